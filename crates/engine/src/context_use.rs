//! What fills the context of a session, estimated without a model.

use quipu_protocol::{Body, Content, Message, NodeId, PromptSection, StopReason, Trust, Usage};
use quipu_transcript::{Measure, OpeningMessages, estimate_text, last_count, measure, sent_tokens};

use crate::engine::Engine;
use crate::error::OpenError;
use crate::identity::system_text;
use crate::resume::read_past;
use crate::sources::{RulesSource, section_text};
use quipu_machine::{PruneSettings, PruneState, tool_tokens};

/// Tokens of an image in an estimate.
const IMAGE: u64 = 1_200;

/// A part of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The text of the user's own before the system prompt.
    Identity,
    /// The system prompt without that, and without the project's rules.
    System,
    /// The project's rules.
    Rules,
    /// What other context sources gave.
    Sources,
    /// The tools' declarations.
    Tools,
    /// What a context source puts before the conversation.
    Opening,
    /// What a compaction left of what was before it.
    Summary,
    /// The user's messages, with what stands in the user's place.
    User,
    /// The model's answers, with its calls and what it thought.
    Answers,
    /// What the tools returned.
    Results,
    /// Images, whoever showed them.
    Images,
}

/// How much of a context is of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextPart {
    /// The source of the content: messages, tools, rules and so on.
    pub kind: ContextKind,
    /// Messages, tools, files of rules or images.
    pub count: u64,
    /// Tokens, corrected by what was counted.
    pub tokens: u64,
}

/// What fills the context of a session, as its next request would have it without the new prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextUse {
    /// In the order of a request; parts that are empty, too.
    pub parts: Vec<ContextPart>,
    /// The sum of the tokens of all parts.
    pub tokens: u64,
    /// `None` when nothing was counted since the context began or was compacted.
    pub counted: Option<CountedTokens>,
    /// Tokens that the last request had, so that they may be in the provider's cache.
    pub cached: u64,
    /// Results that are left out; `None` when none is.
    pub pruned: Option<PrunedUse>,
    /// The sections of the system prompt that context sources gave, in their order; the rules are among them where they were
    /// recorded as such.
    pub sections: Vec<SectionUse>,
}

/// A section of the system prompt that a context source gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionUse {
    /// The name of the source.
    pub source: String,
    /// What the source calls it.
    pub id: String,
    /// Whose words it holds.
    pub trust: Trust,
    /// Tokens, corrected by what was counted.
    pub tokens: u64,
}

/// What leaving old results of tools out saves in a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrunedUse {
    /// Results that are left out.
    pub results: u64,
    /// Tokens that they would have more than what stands in their place, corrected by what was counted.
    pub tokens: u64,
}

/// What the last answer of a context counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CountedTokens {
    /// As the provider reported it.
    pub usage: Usage,
    /// Tokens of the context up to it, itself included.
    pub tokens: u64,
    /// What was estimated for the same.
    pub estimated: u64,
}

impl Engine {
    /// What fills the context of the session that ends at `head`, as its next request with these settings would have it; from what
    /// is stored and nothing else. Tokens are estimated from the length of the texts; all estimates are multiplied by
    /// what the last answer counted for one estimated token, also by one before results were left out.
    ///
    /// # Errors
    /// `Store`, `Broken`.
    pub async fn context_use(&self, head: NodeId, prune: &PruneSettings) -> Result<ContextUse, OpenError> {
        let mut past = read_past(&**self.store(), head).await?;
        let identity = past.prompt.identity.as_deref().map_or_else(String::new, system_text);
        let rest = past.prompt.rest();
        let record = past.epoch.context.as_ref().map_or(&[][..], |context| &context.sections);
        let others: Vec<&PromptSection> =
            record.iter().filter(|section| section.source != RulesSource::NAME).collect();
        let (others, unread) = cut_out(&rest, &others);
        let (own, rules) = split(&unread);
        let mut sizes: Vec<Size> = Vec::new();
        sizes.push(Size {
            kind: ContextKind::Identity,
            count: u64::from(!identity.is_empty()),
            tokens: estimate_text(&identity),
        });
        sizes.push(Size {
            kind: ContextKind::System,
            count: u64::from(!own.is_empty()),
            tokens: estimate_text(&own),
        });
        sizes.extend(rules.iter().map(|rules| Size::one(ContextKind::Rules, estimate_text(rules))));
        sizes.extend(others.iter().map(|other| Size::one(ContextKind::Sources, estimate_text(other))));
        sizes.extend(past.epoch.tools.iter().map(|tool| Size::one(ContextKind::Tools, tool_tokens(tool))));
        let opening = OpeningMessages::of(past.epoch.context.as_ref());
        sizes.extend(opening.all().map(|message| Size::one(ContextKind::Opening, sent_tokens(message))));
        let records = prune.applied(past.prunes);
        let mut left = PruneState::of(&records, &mut past.messages, &past.nodes, past.old, sum(&sizes));
        left.measured = left.measured.or(past.measured);
        let last = last_count(&past.messages, left.old);
        // What the last answer counted, and what came after it.
        let mut after: Vec<Size> = Vec::new();
        for (at, message) in past.messages.iter().enumerate() {
            let sizes = if last.is_some_and(|(counted, _)| at > counted) { &mut after } else { &mut sizes };
            if let Some((kind, images)) = kind_of(message) {
                sizes.push(Size::one(kind, sent_tokens(message).saturating_sub(images * IMAGE)));
                sizes.push(Size { kind: ContextKind::Images, count: images, tokens: images * IMAGE });
            }
        }
        // As before a call.
        let all = sum(&sizes).saturating_add(sum(&after));
        let measured = measure(&past.messages, left.old, all).map(|(measured, _)| measured);
        let answer = last.map(|(at, _)| &*past.messages[at]);
        let counted =
            measured.zip(answer).and_then(|(Measure { counted, estimated }, answer)| match answer {
                Message::Assistant(answer) => {
                    Some(CountedTokens { usage: answer.usage, tokens: counted, estimated })
                }
                _ => None,
            });
        let known = measured.or(left.measured);
        let correct = |tokens: u64| known.map_or(tokens, |known| known.correct(tokens));
        let exact = |tokens: u64| match measured {
            // Without bounds, so that these together are what was counted.
            Some(Measure { counted, estimated }) => {
                let corrected = u128::from(tokens) * u128::from(counted) / u128::from(estimated);
                u64::try_from(corrected).unwrap_or(u64::MAX)
            }
            None => correct(tokens),
        };
        let part = |kind: ContextKind| {
            let of = |sizes: &[Size]| -> (u64, u64) {
                let sizes = sizes.iter().filter(|size| size.kind == kind);
                sizes.fold((0, 0), |(count, tokens), size| {
                    (count + size.count, tokens.saturating_add(size.tokens))
                })
            };
            let ((before, counted), (later, new)) = (of(&sizes), of(&after));
            ContextPart { kind, count: before + later, tokens: exact(counted).saturating_add(correct(new)) }
        };
        let mut parts: Vec<ContextPart> = KINDS.into_iter().map(part).collect();
        let tokens = exact(sum(&sizes)).saturating_add(correct(sum(&after)));
        // What rounding took from the parts is the largest one's.
        let together = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.tokens));
        if let Some(largest) = parts.iter_mut().max_by_key(|part| part.tokens) {
            largest.tokens = largest.tokens.saturating_add(tokens.saturating_sub(together));
        }
        let cached = counted.map_or(0, |CountedTokens { usage, .. }| {
            usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write).min(tokens)
        });
        let pruned = PrunedUse { results: left.results, tokens: correct(left.tokens) };
        let pruned = (left.results > 0).then_some(pruned);
        let section = |section: &PromptSection| SectionUse {
            source: section.source.clone(),
            id: section.id.clone(),
            trust: section.trust,
            tokens: exact(section_text(&rest, section).map_or(0, estimate_text)),
        };
        let sections = record.iter().map(section).collect();
        Ok(ContextUse { parts, tokens, counted, cached, pruned, sections })
    }
}

/// What something has, as it is estimated.
struct Size {
    kind: ContextKind,
    count: u64,
    tokens: u64,
}

impl Size {
    fn one(kind: ContextKind, tokens: u64) -> Self {
        Self { kind, count: 1, tokens }
    }
}

fn sum(sizes: &[Size]) -> u64 {
    sizes.iter().fold(0, |sum, size| sum.saturating_add(size.tokens))
}

const KINDS: [ContextKind; 11] = [
    ContextKind::Identity,
    ContextKind::System,
    ContextKind::Rules,
    ContextKind::Sources,
    ContextKind::Tools,
    ContextKind::Opening,
    ContextKind::Summary,
    ContextKind::User,
    ContextKind::Answers,
    ContextKind::Results,
    ContextKind::Images,
];

/// The texts of sections, and the prompt without them. The two line ends before one stay: they belong to nothing else.
fn cut_out<'a>(prompt: &'a str, sections: &[&PromptSection]) -> (Vec<&'a str>, String) {
    let (mut texts, mut left, mut done) = (Vec::new(), String::new(), 0);
    for section in sections {
        let Some(text) = section_text(prompt, section) else { continue };
        let start = usize::try_from(section.start).unwrap_or(usize::MAX);
        left.push_str(prompt.get(done..start).unwrap_or_default());
        done = start + text.len();
        texts.push(text);
    }
    left.push_str(prompt.get(done..).unwrap_or_default());
    (texts, left)
}

/// The system prompt without the project's rules, and each of them.
fn split(system: &str) -> (String, Vec<&str>) {
    const BEGIN: &str = "\n\n<project_rules path=\"";
    const END: &str = "\n</project_rules>";
    let (mut own, mut rules, mut rest) = (String::new(), Vec::new(), system);
    while let Some(begin) = rest.find(BEGIN)
        && let Some(length) = rest[begin..].find(END)
    {
        let end = begin + length + END.len();
        own.push_str(&rest[..begin]);
        rules.push(&rest[begin..end]);
        rest = &rest[end..];
    }
    own.push_str(rest);
    (own, rules)
}

/// Under what a message counts, with its images; `None` where the model is not shown it.
fn kind_of(message: &Message) -> Option<(ContextKind, u64)> {
    let images = |content: &[Content]| {
        content.iter().filter(|block| matches!(block, Content::Image(_))).count() as u64
    };
    let in_body = |body: &Body| match body {
        Body::Text(_) => 0,
        Body::Blocks(blocks) => images(blocks),
    };
    match message {
        Message::User(user) => Some((ContextKind::User, in_body(&user.content))),
        Message::Custom(custom) => Some((ContextKind::User, in_body(&custom.content))),
        Message::BashExecution(bash) => {
            (bash.exclude_from_context != Some(true)).then_some((ContextKind::User, 0))
        }
        Message::BranchSummary(_) => Some((ContextKind::User, 0)),
        Message::CompactionSummary(_) => Some((ContextKind::Summary, 0)),
        Message::ToolResult(result) => Some((ContextKind::Results, images(&result.content))),
        Message::Assistant(answer) => match answer.stop_reason {
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => {
                Some((ContextKind::Answers, images(&answer.content)))
            }
            StopReason::Error | StopReason::Aborted | StopReason::Deferred | StopReason::Pending => None,
        },
        Message::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_told_apart() {
        let rules = [crate::Rules {
            path: "/w/AGENTS.md".into(),
            text: "Be brief.".into(),
            trust: quipu_protocol::Trust::Project,
        }];
        let prompt = crate::system_prompt("Base.", &["More.".into()], &rules, std::path::Path::new("/w"));
        let (own, found) = split(&prompt);
        assert_eq!(own, crate::system_prompt("Base.", &["More.".into()], &[], std::path::Path::new("/w")));
        assert!(found.len() == 1 && found[0].contains("Be brief."));
        assert_eq!(split("x\n\n<project_rules path=\"y"), ("x\n\n<project_rules path=\"y".into(), vec![]));
    }
}
