//! What stands behind a summary without a model: the newest turns word for word, what failed, and names.

use std::sync::Arc;

use quipu_protocol::{Body, Content, Message, NodeId, ToolResultMessage};
use serde::Deserialize;

use super::audit::is_named;
use super::{IdentifierRule, Safeguard, SummaryDemands};
use crate::compact::note::without_blocks;
use crate::{SummaryPart, words};

/// Characters of all of it, the summary included.
const ALL: usize = 16_000;
/// Characters of a message that stands there word for word.
const ONE: usize = 600;
/// Characters of these messages together.
const TURNS: usize = 6_000;
/// Calls that failed.
const FAILURES: usize = 8;
/// Characters of what one said.
const FAILURE: usize = 240;

/// Between the notes on whole turns and those on the beginning of one that goes on.
pub const TURN_MARK: &str = "\n\n---\n\n**Start of the turn that continues below:**\n\n";

/// A message as it stands behind a summary.
struct Line {
    text: String,
    /// Whether nothing of the message is left out.
    is_whole: bool,
}

/// The newest turns as lines: where they begin, how many messages at their beginning have no room, and the others.
struct NewestLines {
    from: usize,
    dropped: usize,
    lines: Vec<Line>,
}

impl NewestLines {
    fn of(messages: &[Arc<Message>], turns: u64) -> Self {
        let mut left = turns.min(Safeguard::MOST_TURNS);
        let mut from = messages.len();
        for (at, message) in messages.iter().enumerate().rev() {
            if left == 0 {
                break;
            }
            if matches!(**message, Message::User(_)) {
                (from, left) = (at, left - 1);
            }
        }
        let all: Vec<Line> = messages[from..].iter().map(|message| line(message)).collect();
        let mut room = TURNS;
        let fits = |line: &&Line| {
            let size = line.text.chars().count() + 1;
            let fits = size <= room;
            room = room.saturating_sub(size);
            fits
        };
        let count = all.iter().rev().take_while(fits).count();
        let dropped = all.len() - count;
        Self { from, dropped, lines: all.into_iter().skip(dropped).collect() }
    }
}

/// The messages of whole turns that the model sums up: those of the newest turns are left out where they stand behind the summary
/// without loss. Where nothing would be left, all of them.
#[must_use]
pub fn summary_input(history: &[Arc<Message>], turns: u64) -> &[Arc<Message>] {
    let NewestLines { from, dropped, lines } = NewestLines::of(history, turns);
    let first_line = from + dropped;
    // A turn leaves only as a whole.
    let mut end = history.len();
    for at in (first_line..history.len()).rev() {
        if !lines.get(at - first_line).is_some_and(|line| line.is_whole) {
            break;
        }
        if matches!(*history[at], Message::User(_)) {
            end = at;
        }
    }
    if end == 0 { history } else { &history[..end] }
}

/// A summary with what stands behind it, and which parts of that repeat which nodes. `messages` are those that leave the
/// context, of which the first `history` are whole turns; `nodes` are theirs.
#[must_use]
pub fn with_sections(
    summary: &str,
    (messages, history): (&[Arc<Message>], usize),
    nodes: &[NodeId],
    safeguard: &Safeguard,
) -> (String, Vec<SummaryPart>) {
    let whole_turns = messages.get(..history).unwrap_or(messages);
    let mut lines: Vec<(String, Vec<NodeId>)> = Vec::new();
    let node = |at: usize| nodes.get(at).copied().into_iter().collect::<Vec<_>>();
    let title = |lines: &mut Vec<(String, Vec<NodeId>)>, text: &str| {
        let between = if lines.is_empty() { "" } else { "\n" };
        lines.push((format!("{between}{text}"), Vec::new()));
    };
    let newest = NewestLines::of(whole_turns, safeguard.recent_turns);
    if !newest.lines.is_empty() {
        title(&mut lines, "## Recent turns preserved verbatim");
        if newest.dropped > 0 {
            lines.push((
                format!("({} earlier messages of these turns are left out)", newest.dropped),
                Vec::new(),
            ));
        }
        let first = newest.from + newest.dropped;
        lines.extend(newest.lines.into_iter().enumerate().map(|(at, line)| (line.text, node(first + at))));
    }
    let failures: Vec<(usize, String)> = messages
        .iter()
        .enumerate()
        .filter_map(|(at, message)| match &**message {
            Message::ToolResult(result) if result.is_error => Some((at, failure(result))),
            _ => None,
        })
        .collect();
    if !failures.is_empty() {
        title(&mut lines, "## Tool Failures");
        let more = failures.len().saturating_sub(FAILURES);
        // The newest ones, in their order.
        lines.extend(failures.into_iter().skip(more).map(|(at, text)| (text, node(at))));
        if more > 0 {
            lines.push((format!("- ...and {more} more"), Vec::new()));
        }
    }
    let mut sections = joined(&lines);
    let body = bounded(&without_blocks(summary.trim()), ALL.saturating_sub(sections.chars().count() + 2));
    if safeguard.identifiers == IdentifierRule::Strict {
        let last = whole_turns.len().saturating_sub(SummaryDemands::LAST);
        let missing = SummaryDemands::of(whole_turns).missing(&format!("{body}\n{sections}"));
        if !missing.is_empty() {
            title(&mut lines, "## More identifiers");
        }
        for name in missing {
            let of = (last..whole_turns.len()).filter(|at| is_named(&whole_turns[*at], &name));
            let of: Vec<NodeId> = of.flat_map(node).collect();
            lines.push((format!("- {name}"), of));
        }
        sections = joined(&lines);
    }
    if sections.is_empty() {
        return (body, Vec::new());
    }
    let text = format!("{body}\n\n{sections}");
    // What the model wrote comes first, so that no line is taken for one of its own.
    let parts = std::iter::once(SummaryPart { text: body, nodes: Vec::new() });
    let lines = lines.into_iter().filter(|(_, nodes)| !nodes.is_empty());
    (text, parts.chain(lines.map(|(text, nodes)| SummaryPart { text, nodes })).collect())
}

fn joined(lines: &[(String, Vec<NodeId>)]) -> String {
    lines.iter().map(|(line, _)| line.as_str()).collect::<Vec<_>>().join("\n")
}

/// The notes in so many characters; those on the beginning of a turn that goes on are shortened last.
fn bounded(summary: &str, most: usize) -> String {
    if summary.chars().count() <= most {
        return summary.to_owned();
    }
    let (notes, turn) = match summary.split_once(TURN_MARK) {
        Some((notes, turn)) => (notes, format!("{TURN_MARK}{}", cut(turn, most / 2))),
        None => (summary, String::new()),
    };
    format!("{}{turn}", cut(notes, most.saturating_sub(turn.chars().count())))
}

/// The beginning of a text in so many characters, with a line that says what is missing.
fn cut(text: &str, most: usize) -> String {
    const ROOM: usize = 64;
    let count = text.chars().count();
    if count <= most {
        return text.to_owned();
    }
    let shown = most.saturating_sub(ROOM);
    let end = text.char_indices().nth(shown).map_or(text.len(), |(at, _)| at);
    format!("{}\n(... {} more characters are left out ...)", &text[..end], count - shown)
}

fn line(message: &Message) -> Line {
    let (who, texts, others) = match message {
        Message::User(user) => {
            let (texts, others) = body(&user.content);
            ("User".to_owned(), texts, others)
        }
        Message::Custom(custom) => {
            let (texts, others) = body(&custom.content);
            ("User".to_owned(), texts, others)
        }
        Message::Assistant(answer) => {
            let (texts, others) = blocks(&answer.content);
            ("Assistant".to_owned(), texts, others)
        }
        Message::ToolResult(result) => {
            let (texts, others) = blocks(&result.content);
            (format!("Tool result ({})", result.tool_name), texts, others)
        }
        Message::BashExecution(bash) if bash.exclude_from_context == Some(true) => {
            ("User".to_owned(), String::new(), vec!["shell line"])
        }
        Message::BashExecution(bash) => ("User".to_owned(), words::bash_execution(bash), Vec::new()),
        Message::BranchSummary(branch) => {
            ("User".to_owned(), words::branch_summary(&branch.summary), Vec::new())
        }
        Message::CompactionSummary(_) | Message::Other(_) => {
            ("User".to_owned(), String::new(), vec!["other"])
        }
    };
    let text = without_blocks(texts.trim());
    let count = text.chars().count();
    let mut shown = text.clone();
    if count > ONE {
        let end = text.char_indices().nth(ONE).map_or(text.len(), |(at, _)| at);
        shown = format!("{} (... {} more characters)", &text[..end], count - ONE);
    }
    if !others.is_empty() {
        let between = if shown.is_empty() { "" } else { " " };
        shown.push_str(&format!("{between}[non-text content: {}]", others.join(", ")));
    }
    Line { text: format!("- {who}: {shown}"), is_whole: count <= ONE && others.is_empty() }
}

fn body(body: &Body) -> (String, Vec<&'static str>) {
    match body {
        Body::Text(text) => (text.clone(), Vec::new()),
        Body::Blocks(content) => blocks(content),
    }
}

fn blocks(content: &[Content]) -> (String, Vec<&'static str>) {
    let (mut texts, mut others) = (Vec::new(), Vec::new());
    for block in content {
        match block {
            Content::Text(text) => texts.push(text.text.as_str()),
            // Thinking is for the answer that it led to.
            Content::Thinking(_) => {}
            Content::Image(_) => others.push("image"),
            Content::ToolCall(_) => others.push("tool call"),
            Content::Other(_) => others.push("other"),
        }
    }
    (texts.join("\n"), others)
}

fn failure(result: &ToolResultMessage) -> String {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase", default)]
    struct Details {
        status: Option<String>,
        exit_code: Option<i64>,
    }
    let details: Details =
        result.details.as_ref().and_then(|details| details.read().ok()).unwrap_or_default();
    let status = details.status.filter(|status| status.len() <= 40).map(|status| format!("status={status}"));
    let code = details.exit_code.map(|code| format!("exitCode={code}"));
    let about: Vec<String> = status.into_iter().chain(code).collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(" ")) };
    let (text, _) = blocks(&result.content);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.char_indices().nth(FAILURE).map(|(at, _)| at);
    let text = end.map_or_else(|| text.clone(), |end| format!("{}...", &text[..end]));
    without_blocks(&format!("- {}{about}: {text}", result.tool_name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quipu_protocol::{AssistantMessage, Compaction, Json, ToolCall};

    use super::*;
    use crate::compact::{TouchedFiles, compaction_note, summary_of_note};
    use crate::{FORGOTTEN, forget_sources, source_details};

    fn user(text: &str) -> Arc<Message> {
        Arc::new(Message::user(text, 1))
    }

    fn answer(text: &str) -> Arc<Message> {
        let content = vec![Content::text(text)];
        Arc::new(Message::Assistant(AssistantMessage { content, ..AssistantMessage::default() }))
    }

    fn result(text: &str, is_error: bool) -> Arc<Message> {
        Arc::new(Message::ToolResult(ToolResultMessage {
            tool_call_id: "c".into(),
            tool_name: "bash".into(),
            content: vec![Content::text(text)],
            details: Json::parse(r#"{"exitCode":2}"#).ok(),
            usage: None,
            is_error,
            timestamp: 0,
        }))
    }

    fn nodes(count: usize) -> Vec<NodeId> {
        (0..count).map(|nth| NodeId([u8::try_from(nth % 250).unwrap_or(0); 32])).collect()
    }

    fn sections(messages: &[Arc<Message>], turns: u64) -> String {
        let safeguard = Safeguard { recent_turns: turns, ..Safeguard::default() };
        with_sections("Body.", (messages, messages.len()), &nodes(messages.len()), &safeguard).0
    }

    #[test]
    fn newest_turns_and_failures_stand_behind_the_summary() {
        let messages = [
            user("first"),
            answer("one"),
            user("second"),
            result("no such file\nat all", true),
            answer("two"),
        ];
        assert_eq!(
            sections(&messages, 1),
            "Body.\n\n## Recent turns preserved verbatim\n- User: second\n- Tool result (bash): no such file\nat all\n\
             - Assistant: two\n\n## Tool Failures\n- bash (exitCode=2): no such file at all"
        );
        assert_eq!(sections(&messages[..2], 0), "Body.");
        // A message of more characters is cut; too many are counted.
        let long = [user(&"ä".repeat(700)), answer("x")];
        assert!(sections(&long, 3).contains("ä (... 100 more characters)\n- Assistant: x"));
        let many: Vec<_> =
            std::iter::once(user("go")).chain((0..20).map(|_| answer(&"y".repeat(590)))).collect();
        assert!(sections(&many, 3).contains("(12 earlier messages of these turns are left out)"));
        let failed: Vec<_> = (0..11).map(|n| result(&format!("f{n} {}", "z".repeat(300)), true)).collect();
        let text = sections(&failed, 3);
        assert!(
            text.contains(": f3 ") && !text.contains(": f2 ") && text.ends_with("...\n- ...and 3 more"),
            "{text}"
        );
    }

    #[test]
    fn turns_that_stand_there_whole_are_not_read_again() {
        let call = ToolCall {
            id: "c".into(),
            name: "bash".into(),
            arguments: Json::object(),
            thought_signature: None,
            namespace: None,
        };
        let calling = Arc::new(Message::Assistant(AssistantMessage {
            content: vec![Content::ToolCall(call)],
            ..AssistantMessage::default()
        }));
        let talk = [user("a"), answer("b"), user("c"), answer("d"), user("e"), answer("f")];
        assert_eq!(summary_input(&talk, 2).len(), 2);
        assert_eq!(summary_input(&talk, 3).len(), 6, "nothing else would be left");
        assert_eq!(summary_input(&talk, 0).len(), 6);
        let work = [
            user("a"),
            answer("b"),
            user("c"),
            calling,
            result("r", false),
            answer("d"),
            user("e"),
            answer("f"),
        ];
        assert_eq!(summary_input(&work, 2).len(), 6, "a call is not shown whole");
    }

    #[test]
    fn names_that_the_summary_lacks_are_added() {
        let messages = [user("old"), user("see /srv/zoo/a.rs"), answer("the port is 10.0.0.7:8080")];
        let text = sections(&messages, 0);
        assert_eq!(text, "Body.\n\n## More identifiers\n- 10.0.0.7:8080\n- /srv/zoo/a.rs");
        let safeguard =
            Safeguard { recent_turns: 0, identifiers: IdentifierRule::Off, ..Safeguard::default() };
        assert_eq!(with_sections("Body.", (&messages, 3), &nodes(3), &safeguard).0, "Body.");
    }

    #[test]
    fn forgotten_messages_leave_the_sections() {
        let messages =
            [user("say the secret"), answer("a secret"), user("and now"), result("secret failure", true)];
        let nodes = nodes(4);
        // The model repeats a line: that of the section is meant.
        let body = "- User: say the secret";
        let (text, parts) = with_sections(body, (&messages, 4), &nodes, &Safeguard::default());
        let files = TouchedFiles::default();
        let summary = compaction_note(&text, None, &[], &files, 8_000);
        assert_eq!(summary_of_note(&summary), text);
        let details = source_details(&files, &summary, parts, Vec::new());
        let compaction = Compaction { summary, details, ..Compaction::default() };
        let left = forget_sources(&compaction, |node| *node == nodes[0]).unwrap().summary;
        assert!(left.starts_with(body) && left.matches("say the secret").count() == 1, "{left}");
        let left = forget_sources(&compaction, |node| *node == nodes[3]).unwrap().summary;
        assert!(!left.contains("secret failure") && left.matches(FORGOTTEN).count() == 2, "{left}");
    }

    #[test]
    fn body_is_shortened_before_the_sections() {
        let body = format!("{}{TURN_MARK}{}", "n".repeat(20_000), "t".repeat(3_000));
        let messages = [user("hello"), answer("world")];
        let (text, _) = with_sections(&body, (&messages, 2), &nodes(2), &Safeguard::default());
        assert!(text.chars().count() <= ALL, "{}", text.chars().count());
        assert!(text.contains(&"t".repeat(3_000)) && text.ends_with("- User: hello\n- Assistant: world"));
        assert!(text.contains("more characters are left out"));
    }

    proptest! {
        #[test]
        fn text_behind_any_summary_is_bounded(
            body in ".{0,400}", times in 1_usize..80,
            said in prop::collection::vec(("(\\PC| |\n){0,40}", 1_usize..60, any::<bool>()), 0..30), turns in 0_u64..20,
        ) {
            let messages: Vec<_> = said
                .iter()
                .map(|(text, times, is_user)| {
                    let text = text.repeat(*times);
                    if *is_user { user(&text) } else { result(&text, true) }
                })
                .collect();
            let safeguard = Safeguard { recent_turns: turns, ..Safeguard::default() };
            let nodes = nodes(messages.len());
            let body = body.repeat(times);
            let (text, parts) = with_sections(&body, (&messages, messages.len()), &nodes, &safeguard);
            // Names that are added have at most 200 characters each.
            prop_assert!(text.chars().count() <= ALL + 13 * 204, "{}", text.chars().count());
            let mut from = 0;
            for part in parts {
                let at = text[from..].find(&part.text);
                prop_assert!(at.is_some(), "{:?} in {:?}", part, text);
                from += at.unwrap_or(0) + part.text.len();
            }
        }
    }
}
