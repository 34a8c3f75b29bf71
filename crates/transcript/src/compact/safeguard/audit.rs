//! What a summary must have, and whether it does.

use std::collections::BTreeSet;
use std::sync::Arc;

use quipu_protocol::{Body, Content, Message};

use crate::planning::is_plan_note;

/// The headings of a summary, in their order.
pub const SUMMARY_HEADINGS: [&str; 5] =
    ["## Decisions", "## Open TODOs", "## Constraints/Rules", "## Pending user asks", "## Exact identifiers"];

/// Identifiers that are looked for at most.
const IDENTIFIERS: usize = 12;
/// In so many of the last messages.
const LAST: usize = 10;
/// Characters of an identifier at most; what is longer is rarely named again.
const LONGEST: usize = 200;
/// Hexadecimal digits of an identifier at least.
const HEX: usize = 8;
/// Digits of a number at least.
const DIGITS: usize = 6;
/// UTF-8 bytes of a message that are looked at, from its beginning.
const LOOKED_AT: usize = 64 << 10;

/// What a summary lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SummaryFlaw {
    /// A heading.
    Section(&'static str),
    /// A name, a number or an address that the conversation has.
    Identifier(String),
    /// What the user asked for last.
    Ask(String),
}

/// What a summary has to have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SummaryDemands {
    /// Identifiers.
    pub identifiers: Vec<String>,
    /// What the user asked for last.
    pub ask: Option<String>,
}

impl SummaryDemands {
    /// So many of the last messages have identifiers that count.
    pub(super) const LAST: usize = LAST;

    /// What the last messages demand.
    #[must_use]
    pub fn of(messages: &[Arc<Message>]) -> Self {
        let last = &messages[messages.len().saturating_sub(LAST)..];
        let ask = messages.iter().rev().find_map(|message| user_text(message));
        Self { identifiers: identifiers(last), ask }
    }

    /// What a summary lacks of it, the headings included.
    #[must_use]
    pub fn flaws(&self, summary: &str) -> Vec<SummaryFlaw> {
        let lines: BTreeSet<&str> = summary.lines().map(str::trim).collect();
        let sections = SUMMARY_HEADINGS.into_iter().filter(|heading| !lines.contains(heading));
        let mut flaws: Vec<SummaryFlaw> = sections.map(SummaryFlaw::Section).collect();
        flaws.extend(self.missing(summary).into_iter().map(SummaryFlaw::Identifier));
        if let Some(ask) = self.ask.as_ref().filter(|ask| !is_reflected(ask, summary)) {
            flaws.push(SummaryFlaw::Ask(ask.chars().take(LONGEST).collect()));
        }
        flaws
    }

    /// The identifiers that a text does not have.
    #[must_use]
    pub fn missing(&self, summary: &str) -> Vec<String> {
        let lower = summary.to_ascii_lowercase();
        let has = |one: &str| {
            if is_hex(one) { lower.contains(&one.to_ascii_lowercase()) } else { summary.contains(one) }
        };
        self.identifiers.iter().filter(|one| !has(one)).cloned().collect()
    }
}

/// The flaws in lines, for the model that made it.
#[must_use]
pub fn flaw_lines(flaws: &[SummaryFlaw]) -> String {
    let line = |flaw: &SummaryFlaw| match flaw {
        SummaryFlaw::Section(heading) => format!("- The heading `{heading}` is missing."),
        SummaryFlaw::Identifier(name) => format!("- `{name}` is named nowhere."),
        SummaryFlaw::Ask(ask) => {
            format!("- The user's last request is not in it: {}", ask.replace('\n', " "))
        }
    };
    flaws.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A text under the headings, for a conversation that has nothing to sum up.
#[must_use]
pub fn empty_summary() -> String {
    SUMMARY_HEADINGS.map(|heading| format!("{heading}\nNone.")).join("\n\n")
}

/// Names, numbers and addresses of messages, those of the newest message first.
fn identifiers(messages: &[Arc<Message>]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for message in messages.iter().rev() {
        for text in texts(message) {
            let text = &text[..text.floor_char_boundary(LOOKED_AT)];
            for one in words(text).filter(|word| is_identifier(word)) {
                if found.len() == IDENTIFIERS {
                    return found;
                }
                let key = if is_hex(one) { one.to_ascii_lowercase() } else { one.to_owned() };
                if seen.insert(key) {
                    found.push(one.to_owned());
                }
            }
        }
    }
    found
}

/// Whether a message has a name, in any case.
pub(super) fn is_named(message: &Message, name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    texts(message).into_iter().any(|text| text.to_ascii_lowercase().contains(&name))
}

fn texts(message: &Message) -> Vec<&str> {
    match message {
        Message::User(user) => body(&user.content),
        Message::Custom(custom) => body(&custom.content),
        Message::Assistant(answer) => answer.content.iter().filter_map(Content::as_text).collect(),
        Message::ToolResult(result) => result.content.iter().filter_map(Content::as_text).collect(),
        Message::BashExecution(bash) if bash.exclude_from_context != Some(true) => {
            vec![&bash.command, &bash.output]
        }
        Message::BashExecution(_)
        | Message::BranchSummary(_)
        | Message::CompactionSummary(_)
        | Message::Other(_) => Vec::new(),
    }
}

fn body(body: &Body) -> Vec<&str> {
    match body {
        Body::Text(text) => vec![text],
        Body::Blocks(blocks) => blocks.iter().filter_map(Content::as_text).collect(),
    }
}

/// What stands between blank space, quotes and brackets, without the point that ends a sentence.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let ends = |c: char| c.is_whitespace() || "\"'`()[]{}<>,;|=".contains(c);
    text.split(ends).map(|word| word.trim_matches(['.', ':', '!', '?', '*'])).filter(|word| !word.is_empty())
}

fn is_hex(word: &str) -> bool {
    word.len() >= HEX
        && word.bytes().all(|byte| byte.is_ascii_hexdigit())
        && word.bytes().any(|byte| byte.is_ascii_digit())
}

fn is_identifier(word: &str) -> bool {
    if word.len() > LONGEST || !word.is_ascii() {
        return false;
    }
    is_hex(word)
        || (word.len() >= DIGITS && word.bytes().all(|byte| byte.is_ascii_digit()))
        || is_address(word)
        || is_path(word)
        || is_port(word)
}

fn is_address(word: &str) -> bool {
    ["http://", "https://", "ws://", "wss://", "ssh://", "git://", "file://"]
        .iter()
        .any(|scheme| word.len() > scheme.len() && word.starts_with(scheme))
}

fn is_path(word: &str) -> bool {
    let rest = ["~/", "./", "../", "/"].iter().find_map(|start| word.strip_prefix(start));
    let is_plain =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-+@/:".contains(&byte));
    let parts = |text: &str| text.split('/').filter(|part| !part.is_empty()).count();
    match rest {
        Some(rest) => {
            is_plain(rest) && rest.bytes().any(|byte| byte.is_ascii_alphanumeric()) && rest.len() > 2
        }
        // `and/or` is none: a name with an ending has to be last.
        None => {
            is_plain(word)
                && parts(word) > 1
                && word.rsplit('/').next().is_some_and(|name| name.contains('.'))
        }
    }
}

fn is_port(word: &str) -> bool {
    let Some((host, port)) = word.rsplit_once(':') else { return false };
    let is_name = |host: &str| {
        host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
            && host.bytes().any(|byte| byte.is_ascii_alphabetic() || byte == b'.')
            && (host == "localhost" || host.contains('.'))
    };
    (2..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()) && is_name(host)
}

fn user_text(message: &Message) -> Option<String> {
    let Message::User(user) = message else { return None };
    let texts = body(&user.content);
    let text = texts.into_iter().filter(|text| !is_plan_note(text)).collect::<Vec<_>>().join("\n");
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Whether a summary has words of a request: two of three or more, one of fewer.
fn is_reflected(ask: &str, summary: &str) -> bool {
    let keys = keywords(&ask[..ask.floor_char_boundary(LOOKED_AT)]);
    if keys.is_empty() {
        return true;
    }
    let words = keywords(summary);
    let wanted = if keys.len() >= 3 { 2 } else { 1 };
    keys.intersection(&words).count() >= wanted
}

fn keywords(text: &str) -> BTreeSet<String> {
    const COMMON: [&str; 28] = [
        "the", "and", "for", "with", "that", "this", "from", "you", "your", "are", "was", "have", "has",
        "not", "but", "can", "could", "please", "will", "would", "should", "what", "when", "how", "then",
        "them", "into", "now",
    ];
    text.split(|c: char| !c.is_alphanumeric())
        .filter(|word| word.chars().count() >= 3)
        .map(str::to_lowercase)
        .filter(|word| !COMMON.contains(&word.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_what_is_hard_to_find_again() {
        let yes = [
            "deadbeef01",
            "0123456",
            "https://example.org/a?b=1",
            "/etc/hosts",
            "~/x.md",
            "src/main.rs",
            "localhost:8080",
            "10.0.0.7:22",
        ];
        let no =
            ["and/or", "12345", "a:1", "12:30", "decade", "defaced", "hello", "/", "https://", "note:42"];
        assert!(yes.iter().all(|word| is_identifier(word)), "{:?}", yes.map(is_identifier));
        assert!(!no.iter().any(|word| is_identifier(word)), "{:?}", no.map(is_identifier));
        let text = "See (`src/main.rs`), commit DEADBEEF01 and deadbeef01: https://example.org/x.";
        let demands = SummaryDemands::of(&[Arc::new(Message::user(text, 1))]);
        assert_eq!(demands.identifiers, ["src/main.rs", "DEADBEEF01", "https://example.org/x"]);
        assert_eq!(demands.missing("deadbeef01 in src/main.rs"), ["https://example.org/x"]);
        // At most twelve, of the last ten messages, the newest first.
        let many: Vec<_> =
            (0..20).map(|n| Arc::new(Message::user(format!("/a/{n:02} and /b/{n:02}"), 1))).collect();
        let found = SummaryDemands::of(&many).identifiers;
        assert_eq!((found.len(), found[0].as_str(), found[11].as_str()), (12, "/a/19", "/b/14"));
    }

    #[test]
    fn flaws_name_what_is_missing() {
        let messages = [Arc::new(Message::user("Please rename the wombat module in /srv/zoo/wombat.rs", 1))];
        let demands = SummaryDemands::of(&messages);
        let good = format!("{}\nrename wombat: /srv/zoo/wombat.rs", empty_summary());
        assert_eq!(demands.flaws(&good), []);
        let bad =
            good.replace("## Open TODOs", "## Todos").replace("/srv", "/var").replace("rename wombat", "x");
        let flaws = demands.flaws(&bad);
        assert_eq!(flaws[0], SummaryFlaw::Section("## Open TODOs"));
        assert_eq!(flaws[1], SummaryFlaw::Identifier("/srv/zoo/wombat.rs".into()));
        let lines = flaw_lines(&flaws);
        assert!(lines.starts_with("- The heading `## Open TODOs` is missing.\n- `/srv/zoo"), "{lines}");
        let ask = |ask: &str, summary: &str| is_reflected(ask, summary);
        assert!(ask("ok", "") && ask("wombats", "the Wombats") && !ask("wombats", "owls"));
        assert!(!ask("feed wombats and owls", "owls sleep") && ask("feed wombats and owls", "owls feed"));
        assert_eq!(SummaryDemands::of(&[]).flaws(&empty_summary()), []);
    }
}
