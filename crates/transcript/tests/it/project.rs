//! Conversations from lineages, whole and broken.

use std::sync::Arc;

use proptest::prelude::*;
use proptest::sample::select;
use quipu_protocol::{
    AssistantMessage, Body, CallId, Compaction, Content, Entry, Json, Message, NodeId, SessionProfile,
    StepInfo, StopReason, TextContent, ThinkingContent, ToolCall, ToolResultMessage, Usage, UserMessage,
};
use quipu_transcript::{
    DecodedEntry, Projector, check_conversation, context, forgotten, message_of, project, project_messages,
    project_messages_as,
};

use crate::strategies;

/// One line a message: `user: text`, `assistant stop: text call(id)`, `result id: text`.
fn parse(line: &str) -> Entry {
    let (head, rest) = line.split_once(':').unwrap_or((line, ""));
    let rest = rest.trim();
    let words: Vec<&str> = head.split(' ').collect();
    let json = |text: &str| Json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let message = match words[..] {
        ["user"] => Message::User(UserMessage { content: Body::Text(rest.into()), timestamp: 1 }),
        ["assistant", stop] => {
            let blocks = rest.split(' ').filter(|word| !word.is_empty()).map(|word| {
                match word.strip_prefix("call(").and_then(|word| word.strip_suffix(')')) {
                    None => Content::text(word),
                    Some(id) => Content::ToolCall(ToolCall {
                        id: CallId::from(id),
                        name: "read".into(),
                        arguments: Json::object(),
                        thought_signature: None,
                        namespace: None,
                    }),
                }
            });
            Message::Assistant(assistant(
                blocks.collect(),
                json(&format!("\"{stop}\"")).read().unwrap_or_default(),
            ))
        }
        ["result", id] => Message::ToolResult(ToolResultMessage {
            tool_call_id: CallId::from(id),
            tool_name: "read".into(),
            content: vec![Content::text(rest)],
            details: None,
            usage: None,
            is_error: false,
            timestamp: 1,
        }),
        ["meta"] => return Entry::Meta(json(rest)),
        ["message"] => json(rest).read().unwrap_or_else(|error| panic!("{rest}: {error}")),
        _ => panic!("{line}"),
    };
    Entry::Message(message)
}

fn assistant(content: Vec<Content>, stop_reason: StopReason) -> AssistantMessage {
    AssistantMessage {
        content,
        api: "a".into(),
        provider: "p".into(),
        model: "m".into(),
        usage: Usage::default(),
        stop_reason,
        timestamp: 1,
        response_model: None,
        response_id: None,
        error_message: None,
        raw_stop_reason: None,
    }
}

fn render(message: &Message) -> String {
    let words = |blocks: &[Content]| {
        let words: Vec<String> = blocks
            .iter()
            .map(|block| match block {
                Content::Text(text) => text.text.clone(),
                Content::ToolCall(call) => format!("call({})", call.id),
                other => format!("{other:?}"),
            })
            .collect();
        words.join(" ")
    };
    match message {
        Message::User(user) => format!("user: {}", words(&user.content.blocks())),
        Message::Assistant(assistant) => {
            let stop = Json::of(&assistant.stop_reason).unwrap_or_default().get().replace('"', "");
            format!("assistant {stop}: {}", words(&assistant.content))
        }
        Message::ToolResult(result) if result.is_error => {
            format!("error {}: {}", result.tool_call_id, words(&result.content))
        }
        Message::ToolResult(result) => format!("result {}: {}", result.tool_call_id, words(&result.content)),
        other => format!("{other:?}"),
    }
}

const INTERRUPTED: &str = "This call was interrupted and has no result. It may have run in part: check the current \
                           state before you repeat it.";

/// `…` in what is expected stands for the note of an interrupted call.
#[track_caller]
fn check(lines: &[&str], expect: &[&str]) {
    let entries: Vec<Entry> = lines.iter().map(|line| parse(line)).collect();
    let messages = project(&entries);
    assert_eq!(check_conversation(&messages), Ok(()));
    let rendered: Vec<String> =
        messages.iter().map(|message| render(message).replace(INTERRUPTED, "…")).collect();
    assert_eq!(rendered, expect);
}

#[test]
fn a_whole_conversation_is_left_as_it_is() {
    let lines = [
        "user: hi",
        "assistant toolUse: look call(1) call(2)",
        "result 1: a",
        "result 2: b",
        "assistant stop: done",
        "user: thanks",
    ];
    check(&lines, &lines);
    check(&[], &[]);
}

#[test]
fn calls_and_results_are_paired() {
    // Missing, late, out of order, twice, without a call.
    check(
        &["user: hi", "assistant toolUse: call(1)"],
        &["user: hi", "assistant toolUse: call(1)", "error 1: …"],
    );
    check(
        &[
            "user: hi",
            "assistant toolUse: call(1) call(2) call(3)",
            "result 3: c",
            "user: wait",
            "result 1: a",
            "result 1: again",
            "result 9: ?",
        ],
        &[
            "user: hi",
            "assistant toolUse: call(1) call(2) call(3)",
            "result 1: a",
            "error 2: …",
            "result 3: c",
            "user: wait",
        ],
    );
    check(
        &["user: hi", "assistant toolUse: call(1)", "assistant stop: so", "result 1: late", "user: and"],
        &["user: hi", "assistant toolUse: call(1)", "error 1: …", "assistant stop: so", "user: and"],
    );
    check(
        &["user: hi", "assistant toolUse: call(1)", "assistant error: half", "result 1: a"],
        &["user: hi", "assistant toolUse: call(1)", "result 1: a"],
    );
    check(
        &["result 1: a", "user: hi", "result 1: b", "assistant stop: x"],
        &["user: hi", "assistant stop: x"],
    );
}

#[test]
fn turns_that_are_not_settled_are_left_out() {
    for stop in ["error", "aborted", "deferred", "pending"] {
        check(
            &["user: hi", &format!("assistant {stop}: half call(1)"), "result 1: a", "user: again"],
            &["user: hi", "user: again"],
        );
    }
    check(&["user: hi", "assistant stop:", "user: there?"], &["user: hi", "user: there?"]);
    let entries: Vec<Entry> =
        ["user: hi", "assistant length: call(1) call(2)", "result 1: not run"].map(parse).into();
    let messages = project(&entries);
    assert_eq!(check_conversation(&messages), Ok(()));
    assert_eq!(
        render(&messages[3]),
        "error 2: This call was not run: the answer reached its output token limit, so the arguments may be cut off."
    );
}

#[test]
fn equal_ids_are_made_unique() {
    check(
        &[
            "user: hi",
            "assistant toolUse: call(1) call(1) call()",
            "result 1: a",
            "result 1: b",
            "result : c",
        ],
        &[
            "user: hi",
            "assistant toolUse: call(1) call(1_2) call(call_2)",
            "result 1: a",
            "result 1_2: b",
            "result call_2: c",
        ],
    );
    check(
        &[
            "user: hi",
            "assistant toolUse: call(1)",
            "result 1: a",
            "assistant toolUse: call(1) call(1_2) call(1)",
            "result 1_2: c",
            "result 1: b",
        ],
        &[
            "user: hi",
            "assistant toolUse: call(1)",
            "result 1: a",
            "assistant toolUse: call(1_2) call(1_2_2) call(1_3)",
            "result 1_2: b",
            "result 1_2_2: c",
            "error 1_3: …",
        ],
    );
}

#[test]
fn the_user_speaks_first() {
    let lost = "user: (The conversation before this point is not available.)";
    check(
        &["user:", "assistant toolUse: call(1)", "result 1: a"],
        &[lost, "assistant toolUse: call(1)", "result 1: a"],
    );
    check(&["assistant error: x", "user: hi"], &["user: hi"]);
    check(&["user:", "user:  ", r#"message: {"role":"user","content":[]}"#], &[]);
}

#[test]
fn other_roles_speak_for_the_user() {
    check(
        &[
            r#"message: {"role":"compactionSummary","summary":"early"}"#,
            r#"message: {"role":"branchSummary","summary":"elsewhere"}"#,
            r#"message: {"role":"branchSummary","summary":" "}"#,
            r#"message: {"role":"custom","customType":"x","content":"note","display":false}"#,
            r#"message: {"role":"custom","customType":"x","content":[{"type":"thinking","thinking":"t"}]}"#,
            r#"message: {"role":"system","content":"no"}"#,
            r#"meta: {"type":"label","label":"custom_message"}"#,
            r#"meta: {"type":"custom_message","customType":"x","content":"of an extension","display":true}"#,
            r#"meta: {"type":"branch_summary","fromId":"root","summary":"left"}"#,
            r#"message: {"role":"bashExecution","command":"secret","output":"x","excludeFromContext":true}"#,
            r#"message: {"role":"bashExecution","command":"ls","output":"a\n```\nb\n","exitCode":2,"truncated":true,"fullOutputPath":"/tmp/o"}"#,
            r#"message: {"role":"bashExecution","command":"sleep 9","output":"","cancelled":true}"#,
        ],
        &[
            "user: The conversation up to this point has been condensed. In short:\n\n<summary>\nearly\n</summary>",
            "user: Another branch of this conversation was explored and left. In short:\n\n<summary>\nelsewhere\n</summary>",
            "user: note",
            "user: of an extension",
            "user: Another branch of this conversation was explored and left. In short:\n\n<summary>\nleft\n</summary>",
            "user: I ran this command:\n```\nls\n```\nIt printed:\n````\na\n```\nb\n````\nIts exit code was 2.\nThe \
             output is truncated. The full output is in /tmp/o.",
            "user: I ran this command:\n```\nsleep 9\n```\nIt printed nothing.\nI stopped it before it ended.",
        ],
    );
}

#[test]
fn unchanged_messages_are_shared() {
    let lines = ["user: hi", "assistant toolUse: call(1)", "result 1: a", "assistant stop: done"];
    let messages: Vec<Arc<Message>> = lines
        .iter()
        .map(|line| match parse(line) {
            Entry::Message(message) => Arc::new(message),
            other => panic!("{other:?}"),
        })
        .collect();
    let projected = project_messages(messages.iter().cloned());
    assert!(messages.iter().zip(&projected).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn the_law_finds_what_is_broken() {
    let check = |lines: &[&str], expect: &str| {
        let messages: Vec<Arc<Message>> = lines
            .iter()
            .filter_map(|line| match parse(line) {
                Entry::Message(message) => Some(Arc::new(message)),
                _ => None,
            })
            .collect();
        assert_eq!(check_conversation(&messages).unwrap_err().to_string(), expect);
    };
    check(&["assistant stop: x"], "message 0: the conversation starts with the assistant");
    check(&["user:"], "message 0: the user message is empty");
    check(&["user: a", "assistant stop:"], "message 1: the assistant message is empty");
    check(&["user: a", "assistant error: x"], "message 1: the assistant message is unfinished");
    check(&["user: a", "assistant toolUse: call(1)"], "at the end, the call 1 has no result");
    check(
        &["user: a", "assistant toolUse: call(1)", "user: b"],
        "message 2: comes before the results of the calls before it",
    );
    check(&["user: a", "assistant toolUse: call()", "result : x"], "message 1: a tool call has no id");
    check(&["user: a", "assistant toolUse: call(1) call(1)"], "message 1: two tool calls have the same id");
    check(
        &["user: a", "assistant toolUse: call(1) call(2)", "result 2: x"],
        "message 2: the tool result does not answer the next open call",
    );
    check(&["user: a", "result 2: x"], "message 1: the tool result does not answer the next open call");
    check(
        &[r#"message: {"role":"branchSummary","summary":"x"}"#],
        "message 0: not a user message, assistant message or tool result",
    );
}

/// Lineages that are mostly conversations, with everything that can break them.
fn lineage() -> BoxedStrategy<Vec<Entry>> {
    let id = || select(vec!["1", "2", "3", "1_2", "", "call_2"]).prop_map(CallId::from);
    let call = id().prop_map(|id| {
        Content::ToolCall(ToolCall {
            id,
            name: "read".into(),
            arguments: Json::object(),
            thought_signature: None,
            namespace: None,
        })
    });
    let text = select(vec!["", " ", "x"])
        .prop_map(|text| Content::Text(TextContent { text: text.into(), text_signature: None }));
    use StopReason::{Aborted, Error, Length, Stop, ToolUse};
    let stop = select(vec![Stop, Stop, ToolUse, ToolUse, ToolUse, Length, Error, Aborted]);
    let answer = (proptest::collection::vec(prop_oneof![2 => call, 1 => text], 0..4), stop)
        .prop_map(|(content, stop)| Entry::Message(Message::Assistant(assistant(content, stop))));
    let result = (id(), 0..1000_i64).prop_map(|(id, at)| {
        Entry::Message(Message::ToolResult(ToolResultMessage {
            tool_call_id: id,
            tool_name: "read".into(),
            content: vec![Content::text(format!("at {at}"))],
            details: None,
            usage: None,
            is_error: false,
            timestamp: at,
        }))
    });
    let user = select(vec!["user: a", "user:", "user: b"]).prop_map(parse);
    let step = prop_oneof![6 => answer, 9 => result, 3 => user, 1 => strategies::entry()];
    proptest::collection::vec(step, 0..24).boxed()
}

/// Whether the last kept answer has all its results, or there is none.
fn is_complete(entries: &[Entry]) -> bool {
    !project(entries).iter().rev().take_while(|message| !matches!(***message, Message::Assistant(_))).any(|message| {
        matches!(&**message, Message::ToolResult(result) if result.content.iter().filter_map(Content::as_text).any(|text| {
            text == INTERRUPTED || text.starts_with("This call was not run")
        }))
    })
}

#[test]
fn forgotten_call_keeps_its_result_and_says_no_word() {
    let lines = [
        "user: secret plan",
        "assistant toolUse: secret call(a) call(b)",
        "result a: secret",
        "result b: fine",
    ];
    let entries: Vec<Entry> = lines.iter().map(|line| parse(line)).collect();
    let left: Vec<Entry> = entries[..3]
        .iter()
        .map(|entry| forgotten(DecodedEntry { entry: entry.clone(), step: StepInfo::default() }).entry)
        .chain([entries[3].clone()])
        .collect();
    let shown: Vec<String> = project(&left).iter().map(|message| render(message)).collect();
    let gone = quipu_transcript::FORGOTTEN;
    let expected = [
        format!("user: {gone}"),
        format!("assistant toolUse: {gone} call(a) call(b)"),
        format!("result a: {gone}"),
        "result b: fine".to_owned(),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn forgotten_thinking_leaves_that_there_was_some() {
    let Entry::Message(Message::Assistant(mut answer)) = parse("assistant toolUse: secret call(a)") else {
        panic!("no answer")
    };
    let thinking = ThinkingContent {
        thinking: "secret".into(),
        thinking_signature: Some("proof of the secret".into()),
        ..ThinkingContent::default()
    };
    answer.content = vec![Content::Thinking(thinking)];
    let Message::Assistant(left) = quipu_transcript::forgotten_message(&Message::Assistant(answer)) else {
        panic!("no answer")
    };
    let was_some = Content::Thinking(ThinkingContent::default());
    assert_eq!(left.content, [was_some, Content::text(quipu_transcript::FORGOTTEN)]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_lineage_gives_a_valid_conversation(entries in lineage()) {
        let messages = project(&entries);
        prop_assert_eq!(check_conversation(&messages), Ok(()));
        // A conversation that is valid stays what it is.
        prop_assert_eq!(project_messages(messages.iter().cloned()), messages);
    }

    #[test]
    fn every_lineage_gives_a_shell_a_valid_conversation(entries in lineage()) {
        let messages: Vec<Arc<Message>> =
            entries.iter().filter_map(|entry| Some(Arc::new(message_of(entry)?.into_owned()))).collect();
        let told = project_messages_as(Some(SessionProfile::Shell), messages.iter().cloned());
        prop_assert_eq!(check_conversation(&told), Ok(()));
        for message in &told {
            let is_plain = match &**message {
                Message::Assistant(answer) => answer.tool_calls().next().is_none(),
                Message::User(_) => true,
                _ => false,
            };
            prop_assert!(is_plain, "{message:?}");
        }
        let mut projector = Projector::of(Some(SessionProfile::Shell));
        for length in 0..=messages.len() {
            let part = &messages[..length];
            let at_once = project_messages_as(Some(SessionProfile::Shell), part.iter().cloned());
            prop_assert_eq!(&*projector.project(part.iter()), &at_once);
        }
    }

    #[test]
    fn forgotten_nodes_leave_a_valid_conversation(
        entries in lineage(),
        forgets in proptest::collection::vec(any::<bool>(), 0..20),
    ) {
        let left: Vec<Entry> = entries
            .iter()
            .zip(forgets.into_iter().chain(std::iter::repeat(false)))
            .map(|(entry, forgets)| match forgets {
                true => forgotten(DecodedEntry { entry: entry.clone(), step: StepInfo::default() }).entry,
                false => entry.clone(),
            })
            .collect();
        prop_assert_eq!(check_conversation(&project(&left)), Ok(()));
        // Once more changes nothing.
        for entry in &left {
            let once = forgotten(DecodedEntry { entry: entry.clone(), step: StepInfo::default() });
            prop_assert_eq!(&forgotten(once.clone()), &once);
        }
    }

    #[test]
    fn repeated_projection_equals_a_single_one(
        entries in lineage(),
        lengths in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6),
    ) {
        let messages: Vec<Arc<Message>> =
            entries.iter().filter_map(|entry| Some(Arc::new(message_of(entry)?.into_owned()))).collect();
        let mut projector = Projector::default();
        let lengths = lengths.iter().map(|length| length.index(messages.len() + 1));
        for length in (0..=messages.len()).chain(lengths) {
            let part = &messages[..length];
            prop_assert_eq!(&*projector.project(part.iter()), &project_messages(part.iter().cloned()));
            // The same in another place.
            let part = &messages[length.min(1)..length];
            prop_assert_eq!(&*Projector::default().project(part.iter()), &project_messages(part.iter().cloned()));
        }
        let rest = &messages[messages.len() / 2..];
        prop_assert_eq!(&*projector.project(rest.iter()), &project_messages(rest.iter().cloned()));
    }

    #[test]
    fn appending_changes_nothing_before(entries in lineage()) {
        let whole = project(&entries);
        for length in 0..entries.len() {
            let before = project(&entries[..length]);
            if is_complete(&entries[..length]) {
                prop_assert_eq!(&whole[..before.len()], &before[..], "{}", length);
            }
        }
    }
}

/// Each letter is a message, each digit a compaction that keeps from the letter before it: `c2a` keeps from `a`.
#[test]
fn the_last_compaction_decides_what_is_shown() {
    let id = |letter: char| NodeId([letter as u8; 32]);
    let check = |lineage: &str, expect: &str| {
        let mut entries = Vec::new();
        for word in lineage.split(' ').filter(|word| !word.is_empty()) {
            let letters: Vec<char> = word.chars().collect();
            let entry = match letters[..] {
                [_] => Entry::Message(Message::user(word, 1)),
                [_, '>', first] => {
                    Entry::Compaction(Compaction { first_kept: Some(id(first)), ..Compaction::default() })
                }
                [_, '!'] => Entry::Compaction(Compaction::default()),
                _ => panic!("{word}"),
            };
            entries.push((id(letters[0]), entry));
        }
        let shown: String = context(&entries).into_iter().map(|at| entries[at].0.0[0] as char).collect();
        assert_eq!(shown, expect, "{lineage}");
    };
    check("", "");
    check("a b c", "abc");
    check("a b C!", "C");
    check("a b C! d e", "Cde");
    check("a b C>b d", "Cbd");
    check("a b C>a d", "Cabd");
    check("a b C>b d E>d f", "Edf");
    // An older one within what is kept has nothing to say any more.
    check("a b C>b d E>b f", "Ebdf");
    // One that points nowhere, or at itself, or at what comes later, keeps everything.
    check("a b C>x d", "Cabd");
    check("a b C>C d", "Cabd");
    check("a b C>d d", "Cabd");
}
