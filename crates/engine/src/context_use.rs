//! What fills the context of a session, told without a model.

use quipu_protocol::{Body, Content, Message, NodeId, SessionId, StopReason, Usage};
use quipu_transcript::{estimate_text, last_count, sent_tokens};

use crate::engine::{Engine, OpenError, system_text};
use crate::machine::tool_tokens;
use crate::resume::read_past;

/// Tokens of an image in an estimate.
const IMAGE: u64 = 1_200;

/// A part of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextKind {
    /// The system prompt without the project's rules.
    System,
    /// The project's rules.
    Rules,
    /// The tools' declarations.
    Tools,
    /// What a compaction left of what was before it.
    Summary,
    /// What the user said, with what stands in the user's place.
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
    /// What it is.
    pub kind: ContextKind,
    /// Messages, tools, files of rules or images.
    pub count: u64,
    /// Tokens, corrected by what was counted.
    pub tokens: u64,
}

/// What fills the context of a session, as its next request would have it without what is said then.
#[derive(Debug, Clone, PartialEq)]
pub struct ContextUse {
    /// In the order of a request; parts that are empty, too.
    pub parts: Vec<ContextPart>,
    /// Tokens of all of them.
    pub tokens: u64,
    /// `None` when nothing was counted since the context began or was compacted.
    pub counted: Option<Counted>,
    /// Tokens that the last request had, so that they may be in the provider's cache.
    pub cached: u64,
}

/// What the last answer of a context counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// As it told it.
    pub usage: Usage,
    /// Tokens of the context up to it, itself included.
    pub tokens: u64,
    /// What was estimated for the same.
    pub estimated: u64,
}

impl Engine {
    /// What fills the context of a session at `head`, from what is stored and nothing else. Tokens are estimated from
    /// the length of the texts; all estimates are multiplied by what the last answer counted for one estimated token.
    ///
    /// # Errors
    /// `Store`, `Broken`.
    pub async fn context_use(&self, session: &SessionId, head: NodeId) -> Result<ContextUse, OpenError> {
        let past = read_past(&**self.store(), session, head).await?;
        let system = past.system.as_ref().map_or_else(String::new, system_text);
        let (own, rules) = split(&system);
        let mut parts: Vec<ContextPart> =
            KINDS.iter().map(|kind| ContextPart { kind: *kind, count: 0, tokens: 0 }).collect();
        let mut add = |kind: ContextKind, count: u64, tokens: u64| {
            if let Some(part) = parts.iter_mut().find(|part| part.kind == kind) {
                part.count += count;
                part.tokens = part.tokens.saturating_add(tokens);
            }
        };
        add(ContextKind::System, u64::from(!own.is_empty()), estimate_text(&own));
        for rules in &rules {
            add(ContextKind::Rules, 1, estimate_text(rules));
        }
        for tool in &past.epoch.tools {
            add(ContextKind::Tools, 1, tool_tokens(tool));
        }
        let last = last_count(&past.messages, past.old);
        let mut before = 0_u64;
        let mut sum = estimate_text(&own)
            .saturating_add(rules.iter().map(|rules| estimate_text(rules)).sum())
            .saturating_add(past.epoch.tools.iter().map(tool_tokens).sum());
        for (at, message) in past.messages.iter().enumerate() {
            if let Some((kind, images)) = kind_of(message) {
                let tokens = sent_tokens(message);
                add(kind, 1, tokens.saturating_sub(images * IMAGE));
                add(ContextKind::Images, images, images * IMAGE);
                sum = sum.saturating_add(tokens);
            }
            if last.is_some_and(|(counted, _)| counted == at) {
                before = sum;
            }
        }
        // As before a call: a count that is a small part of what the text must have is none of all that was sent.
        let last = last.filter(|(_, counted)| *counted >= before / 4 && before > 0);
        let counted = last.and_then(|(at, tokens)| match &*past.messages[at] {
            Message::Assistant(answer) => Some(Counted { usage: answer.usage, tokens, estimated: before }),
            _ => None,
        });
        if let Some(Counted { tokens, estimated, .. }) = counted {
            for part in &mut parts {
                let corrected = u128::from(part.tokens) * u128::from(tokens) / u128::from(estimated);
                part.tokens = u64::try_from(corrected).unwrap_or(u64::MAX);
            }
        }
        let tokens = parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.tokens));
        let cached = counted.map_or(0, |Counted { usage, .. }| {
            usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write).min(tokens)
        });
        Ok(ContextUse { parts, tokens, counted, cached })
    }
}

const KINDS: [ContextKind; 8] = [
    ContextKind::System,
    ContextKind::Rules,
    ContextKind::Tools,
    ContextKind::Summary,
    ContextKind::User,
    ContextKind::Answers,
    ContextKind::Results,
    ContextKind::Images,
];

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
        let rules = [crate::Rules { path: "/w/AGENTS.md".into(), text: "Be brief.".into() }];
        let prompt = crate::system_prompt("Base.", &["More.".into()], &rules, std::path::Path::new("/w"));
        let (own, found) = split(&prompt);
        assert_eq!(own, crate::system_prompt("Base.", &["More.".into()], &[], std::path::Path::new("/w")));
        assert!(found.len() == 1 && found[0].contains("Be brief."));
        assert_eq!(split("x\n\n<project_rules path=\"y"), ("x\n\n<project_rules path=\"y".into(), vec![]));
    }
}
