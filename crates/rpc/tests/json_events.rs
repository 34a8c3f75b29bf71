//! The lines of the JSON mode against a real capture of Pi, and the lines that Pi does not have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{
    Answer, Ask, AskKind, BackgroundEnd, ChildOutcome, Compaction, CompactionReason, CompactionResult,
    Content, Delta, Ending, Envelope, Event, Json, JumpReport, JumpResult, Limit, Message, ModelError,
    ModelErrorKind, NodeId, Notice, Outcome, Permission, QueuedItem, Scope, Snapshot, Thinking,
    ToolResultMessage,
};
use quipu_rpc::{JsonEvents, SessionHeader};
use serde_json::Value;

fn events() -> JsonEvents {
    JsonEvents::new(SessionHeader {
        id: "01a1f82e-9e12-74f0-ac41-f9b70e39de47".into(),
        timestamp: "2026-11-20T08:59:27.127Z".into(),
        cwd: "/home/user/proj".into(),
    })
}

fn envelope(event: Event) -> Envelope {
    Envelope { seq: 1, session: "s".into(), run: Some("r".into()), at: 0, event }
}

/// The only line of an event.
#[track_caller]
fn line(events: &mut JsonEvents, event: Event) -> String {
    let mut lines = events.fold(&envelope(event));
    assert_eq!(lines.len(), 1);
    lines.remove(0)
}

fn assistant(text: &str) -> Arc<Message> {
    Arc::new(serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}")))
}

/// The same value with JavaScript's spelling of whole numbers.
fn whole_numbers(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Object(members) => {
            members.into_iter().map(|(name, value)| (name, whole_numbers(value))).collect()
        }
        Value::Number(number) if number.as_f64() == Some(0.0) => Value::from(0),
        other => other,
    }
}

/// The event that a line of the capture stands for.
fn event_of(captured: &Value, messages: &mut usize) -> Event {
    let text = |name: &str| captured[name].as_str().unwrap_or_default().to_owned();
    let message = || Arc::new(Message::deserialize_from(&captured["message"]));
    match captured["type"].as_str().unwrap_or_default() {
        "agent_start" => Event::RunStarted,
        "turn_start" => Event::TurnStarted { turn: 1 },
        "turn_end" => Event::TurnEnded { turn: 1 },
        "agent_end" => Event::RunEnded { outcome: Outcome::Done },
        "agent_settled" => Event::Settled,
        "message_start" => {
            *messages += 1;
            Event::MessageStarted { id: messages.to_string().into(), message: message(), attempt: 1 }
        }
        "message_update" => {
            let update = &captured["assistantMessageEvent"];
            let index =
                usize::try_from(update["contentIndex"].as_u64().unwrap_or_default()).unwrap_or_default();
            let piece = update["delta"].as_str().unwrap_or_default().to_owned();
            let delta = match update["type"].as_str().unwrap_or_default() {
                "text_start" => Delta::TextStarted { index },
                "text_delta" => Delta::Text { index, text: piece },
                "text_end" => Delta::TextEnded { index },
                "toolcall_start" => Delta::ToolCallStarted {
                    index,
                    id: update["id"].as_str().unwrap_or_default().into(),
                    name: update["toolName"].as_str().unwrap_or_default().to_owned(),
                },
                "toolcall_delta" => Delta::ToolCallArguments { index, json: piece },
                "toolcall_end" => Delta::ToolCallEnded { index },
                other => panic!("{other}"),
            };
            Event::MessageDelta { id: messages.to_string().into(), delta }
        }
        "message_end" => Event::MessageEnded {
            id: messages.to_string().into(),
            message: message(),
            ending: Ending::Committed(NodeId([7; 32])),
        },
        "tool_execution_start" => Event::ToolStarted {
            call: text("toolCallId").into(),
            name: text("toolName"),
            args: Json::from(&captured["args"]),
        },
        "tool_execution_update" => Event::ToolOutput {
            call: text("toolCallId").into(),
            tail: captured["partialResult"]["content"][0]["text"].as_str().unwrap_or_default().into(),
        },
        "tool_execution_end" => Event::ToolEnded {
            call: text("toolCallId").into(),
            result: Arc::new(ToolResultMessage {
                tool_call_id: text("toolCallId").into(),
                tool_name: text("toolName"),
                content: serde_json::from_value(captured["result"]["content"].clone()).unwrap_or_default(),
                details: captured["result"].get("details").map(Json::from),
                usage: None,
                is_error: captured["isError"].as_bool().unwrap_or_default(),
                timestamp: 0,
            }),
        },
        other => panic!("{other}"),
    }
}

trait FromValue {
    fn deserialize_from(value: &Value) -> Self;
}

impl FromValue for Message {
    fn deserialize_from(value: &Value) -> Self {
        serde_json::from_str(&value.to_string()).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
fn a_capture_of_pi_comes_back_line_by_line() {
    let capture = include_str!("data/pi-json.out");
    let mut lines = capture.lines();
    let mut events = events();
    assert_eq!(events.header_line(), lines.next().unwrap());
    let mut messages = 0;
    let mut usage: HashMap<usize, Value> = HashMap::new();
    for expect in lines {
        let mut expect: Value = serde_json::from_str(expect).unwrap();
        let ours = line(&mut events, event_of(&expect, &mut messages));
        let mut ours: Value = serde_json::from_str(&ours).unwrap();
        match expect["type"].as_str().unwrap() {
            "message_start" => {
                usage.insert(messages, expect["message"]["usage"].clone());
            }
            // Pi's object grows behind the stream's back; ours says what was known when the message began.
            "message_update" => expect["usage"] = usage[&messages].clone(),
            "message_end" => {
                let node = ours.as_object_mut().unwrap().shift_remove("node");
                assert_eq!(node, Some(NodeId([7; 32]).to_string().into()));
            }
            _ => {}
        }
        // As text, for the order of members counts.
        assert_eq!(whole_numbers(ours).to_string(), whole_numbers(expect).to_string());
    }
    assert_eq!(messages, 8);
}

const EMPTY: &str = r#"{"role":"assistant","content":[],"api":"a","provider":"p","model":"m","usage":{"input":3,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.5,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.5}},"stopReason":"pending","timestamp":1}"#;

#[test]
fn thinking_and_arguments_are_accumulated_for_each_block() {
    let mut events = events();
    let start = Event::MessageStarted { id: "m".into(), message: assistant(EMPTY), attempt: 2 };
    assert_eq!(
        line(&mut events, start),
        format!(r#"{{"type":"message_start","message":{EMPTY},"attempt":2}}"#)
    );
    let usage = r#"{"input":3,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":3,"cost":{"input":0.5,"output":0.0,"cacheRead":0.0,"cacheWrite":0.0,"total":0.5}}"#;
    let mut check = |delta: Delta, expect: &str| {
        let ours = line(&mut events, Event::MessageDelta { id: "m".into(), delta });
        assert_eq!(
            ours,
            format!(r#"{{"type":"message_update","usage":{usage},"assistantMessageEvent":{expect}}}"#)
        );
    };
    check(Delta::ThinkingStarted { index: 0 }, r#"{"type":"thinking_start","contentIndex":0}"#);
    let thinking = |text: &str| Delta::Thinking { index: 0, text: text.into() };
    check(thinking("a\n"), r#"{"type":"thinking_delta","contentIndex":0,"delta":"a\n"}"#);
    // Blocks may interleave.
    let call = Delta::ToolCallStarted { index: 2, id: "c".into(), name: "edit".into() };
    check(call, r#"{"type":"toolcall_start","contentIndex":2,"id":"c","toolName":"edit"}"#);
    check(thinking("b"), r#"{"type":"thinking_delta","contentIndex":0,"delta":"b"}"#);
    check(Delta::ThinkingEnded { index: 0 }, r#"{"type":"thinking_end","contentIndex":0,"content":"a\nb"}"#);
    let json = |json: &str| Delta::ToolCallArguments { index: 2, json: json.into() };
    check(json("{\n \"b\":1.0,"), r#"{"type":"toolcall_delta","contentIndex":2,"delta":"{\n \"b\":1.0,"}"#);
    check(json("\"a\":2}\r\n"), r#"{"type":"toolcall_delta","contentIndex":2,"delta":"\"a\":2}\r\n"}"#);
    check(
        Delta::ToolCallEnded { index: 2 },
        r#"{"type":"toolcall_end","contentIndex":2,"toolCall":{"type":"toolCall","id":"c","name":"edit","arguments":{  "b":1.0,"a":2}}}"#,
    );
    // Arguments that are not JSON are kept as a string; none at all are an empty object.
    check(
        Delta::ToolCallStarted { index: 3, id: "d".into(), name: "x".into() },
        r#"{"type":"toolcall_start","contentIndex":3,"id":"d","toolName":"x"}"#,
    );
    check(
        Delta::ToolCallArguments { index: 3, json: "{\"a".into() },
        r#"{"type":"toolcall_delta","contentIndex":3,"delta":"{\"a"}"#,
    );
    check(
        Delta::ToolCallEnded { index: 3 },
        r#"{"type":"toolcall_end","contentIndex":3,"toolCall":{"type":"toolCall","id":"d","name":"x","arguments":"{\"a"}}"#,
    );
    check(
        Delta::ToolCallEnded { index: 4 },
        r#"{"type":"toolcall_end","contentIndex":4,"toolCall":{"type":"toolCall","id":"","name":"","arguments":{}}}"#,
    );
    check(Delta::TextEnded { index: 9 }, r#"{"type":"text_end","contentIndex":9,"content":""}"#);
}

#[test]
fn changes_of_the_session_have_the_lines_of_pi() {
    let mut events = events().with_thinking(Thinking::Off).with_max_retries(3);
    let renamed = |name: &str| Event::Renamed { name: name.into() };
    assert_eq!(line(&mut events, renamed("my name")), r#"{"type":"session_info_changed","name":"my name"}"#);
    assert_eq!(line(&mut events, renamed("")), r#"{"type":"session_info_changed"}"#);
    let changed = |thinking| Event::EpochChanged { node: None, model: Arc::default(), thinking };
    let lines = events.fold(&envelope(changed(Thinking::High)));
    assert_eq!(lines[1..], [r#"{"type":"thinking_level_changed","level":"high"}"#]);
    // Another model, or other tools.
    assert_eq!(events.fold(&envelope(changed(Thinking::High))).len(), 1);
    let error = ModelError::new(ModelErrorKind::Overloaded, "busy");
    assert_eq!(
        line(&mut events, Event::RetryScheduled { attempt: 2, delay: Duration::from_millis(5), error }),
        r#"{"type":"auto_retry_start","attempt":1,"maxAttempts":3,"delayMs":5,"errorMessage":"busy"}"#
    );
    let compaction = Compaction { first_kept: Some(NodeId([3; 32])), ..Compaction::default() };
    let done =
        CompactionResult::Done { node: NodeId([4; 32]), compaction: Arc::new(compaction), tokens_after: 1 };
    let ended = Event::CompactionEnded { reason: CompactionReason::Manual, result: Arc::new(done) };
    let kept =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["result"]["firstKeptEntryId"].clone();
    assert_eq!(kept(&line(&mut events, ended.clone())), NodeId([3; 32]).to_string());
    events.name_entry(NodeId([3; 32]), "e3".into());
    assert_eq!(kept(&line(&mut events, ended)), "e3");
}

#[test]
fn settled_line_comes_after_runs_alone() {
    let mut events = events();
    // After a compaction, or a change of the model.
    assert!(events.fold(&envelope(Event::Settled)).is_empty());
    line(&mut events, Event::RunStarted);
    line(&mut events, Event::RunEnded { outcome: Outcome::Done });
    assert_eq!(line(&mut events, Event::Settled), r#"{"type":"agent_settled"}"#);
    assert!(events.fold(&envelope(Event::Settled)).is_empty());
    let shell = assistant(r#"{"role":"bashExecution","command":"ls","output":"","timestamp":1}"#);
    let started = Event::MessageStarted { id: "m".into(), message: shell.clone(), attempt: 1 };
    let ended =
        Event::MessageEnded { id: "m".into(), message: shell, ending: Ending::Committed(NodeId([1; 32])) };
    assert!(events.fold(&envelope(started)).is_empty());
    assert!(events.fold(&envelope(ended)).is_empty());
}

#[test]
fn no_line_holds_a_newline() {
    let args = Json::parse("{\n\t\"a\":\r\n\"b\\n\"}").unwrap();
    let ours = line(&mut events(), Event::ToolStarted { call: "c".into(), name: "t\n".into(), args });
    assert!(!ours.contains(['\n', '\r']), "{ours}");
    let value: Value = serde_json::from_str(&ours).unwrap();
    assert_eq!(value["args"]["a"], "b\n");
    assert_eq!(value["toolName"], "t\n");
}

#[test]
fn dropped_answers() {
    let mut events = events();
    let error = ModelError { status: Some(503), ..ModelError::new(ModelErrorKind::Overloaded, "busy") };
    let ended = |ending| Event::MessageEnded { id: "m".into(), message: assistant(EMPTY), ending };
    line(&mut events, Event::RunStarted);
    line(&mut events, Event::TurnStarted { turn: 1 });
    assert_eq!(
        line(&mut events, ended(Ending::Dropped(error.clone()))),
        format!(
            r#"{{"type":"message_end","message":{EMPTY},"dropped":{{"kind":"overloaded","message":"busy","status":503}}}}"#
        )
    );
    let delay = Duration::from_millis(2500);
    assert_eq!(
        line(&mut events, Event::RetryScheduled { attempt: 2, delay, error: error.clone() }),
        r#"{"type":"auto_retry_start","attempt":1,"delayMs":2500,"errorMessage":"busy"}"#
    );
    // Kept at last: the dropped one is forgotten.
    line(&mut events, ended(Ending::Committed(NodeId([1; 32]))));
    assert_eq!(
        line(&mut events, Event::RetryEnded { ok: true }),
        r#"{"type":"auto_retry_end","success":true,"attempt":1}"#
    );
    let end = line(&mut events, Event::RunEnded { outcome: Outcome::Done });
    assert_eq!(end, format!(r#"{{"type":"agent_end","messages":[{EMPTY}],"willRetry":false}}"#));
    // Dropped for good: it is the last of the run's messages.
    line(&mut events, Event::RunStarted);
    line(&mut events, Event::TurnStarted { turn: 1 });
    line(&mut events, Event::RetryScheduled { attempt: 3, delay, error: error.clone() });
    line(&mut events, ended(Ending::Dropped(error.clone())));
    assert_eq!(
        line(&mut events, Event::RetryEnded { ok: false }),
        r#"{"type":"auto_retry_end","success":false,"attempt":2,"finalError":"busy"}"#
    );
    assert_eq!(
        line(&mut events, Event::TurnEnded { turn: 1 }),
        format!(r#"{{"type":"turn_end","message":{EMPTY},"toolResults":[]}}"#)
    );
    assert_eq!(
        line(&mut events, Event::RunEnded { outcome: Outcome::Failed(error) }),
        format!(
            r#"{{"type":"agent_end","messages":[{EMPTY}],"willRetry":false,"outcome":{{"kind":"failed","error":{{"kind":"overloaded","message":"busy","status":503}}}}}}"#
        )
    );
}

#[test]
fn lines_of_single_events() {
    let check = |event: Event, expect: &str| assert_eq!(line(&mut events(), event), expect);
    let queued = |text: &str| QueuedItem { id: "i".into(), text: text.into() };
    check(
        Event::QueueChanged { steering: vec![queued("a"), queued("b")], follow_up: vec![queued("c")] },
        r#"{"type":"queue_update","steering":["a","b"],"followUp":["c"]}"#,
    );
    check(Event::TurnEnded { turn: 1 }, r#"{"type":"turn_end","message":null,"toolResults":[]}"#);
    let ended = |outcome| Event::RunEnded { outcome };
    let end = |outcome: &str| {
        format!(r#"{{"type":"agent_end","messages":[],"willRetry":false,"outcome":{{"kind":{outcome}}}}}"#)
    };
    check(ended(Outcome::Aborted), &end(r#""aborted""#));
    check(ended(Outcome::Limit(Limit::Turns(3))), &end(r#""turnLimit","turns":3"#));
    check(ended(Outcome::Limit(Limit::Cost(0.25))), &end(r#""costLimit","dollars":0.25"#));
    check(ended(Outcome::StoreFailed("full".into())), &end(r#""storeFailed","message":"full""#));
    check(
        Event::ToolOutput { call: "c".into(), tail: "x".into() },
        r#"{"type":"tool_execution_update","toolCallId":"c","toolName":"","args":{},"partialResult":{"content":[{"type":"text","text":"x"}],"details":{}}}"#,
    );
    check(
        Event::AskOpened {
            ask: Arc::new(Ask {
                id: "q".into(),
                deadline: None,
                default: Answer::no(),
                kind: AskKind::Permission(Permission {
                    call: "c".into(),
                    tool: "bash".into(),
                    question: "Run it?".into(),
                    subject: "rm -r x".into(),
                    scopes: vec![Scope::Once],
                    rules: Vec::new(),
                }),
            }),
        },
        r#"{"type":"quipu_asked","id":"q","toolCallId":"c","toolName":"bash","question":"Run it?","subject":"rm -r x"}"#,
    );
    let closed = |by| Event::AskClosed { ask: "q".into(), answer: by, by_policy: false };
    check(closed(None), r#"{"type":"quipu_ask_closed","id":"q","answer":null}"#);
    check(closed(Some(Answer::once())), r#"{"type":"quipu_ask_closed","id":"q","answer":"allow"}"#);
    check(
        closed(Some(Answer::Deny { reason: Some("no".into()) })),
        r#"{"type":"quipu_ask_closed","id":"q","answer":"deny","reason":"no"}"#,
    );
    check(
        Event::AskClosed { ask: "q".into(), answer: Some(Answer::once()), by_policy: true },
        r#"{"type":"quipu_ask_closed","id":"q","answer":"allow","byPolicy":true}"#,
    );
    check(
        Event::BackgroundStarted { id: "b1".into(), command: "make".into() },
        r#"{"type":"quipu_background_start","id":"b1","command":"make"}"#,
    );
    check(
        Event::BackgroundEnded { id: "b1".into(), command: "make".into(), end: BackgroundEnd::Exited(2) },
        r#"{"type":"quipu_background_end","id":"b1","command":"make","end":{"exited":2}}"#,
    );
    check(
        Event::ChildStarted {
            child: "child-1".into(),
            call: "c".into(),
            agent: "reviewer".into(),
            title: "Look".into(),
        },
        r#"{"type":"quipu_child_start","child":"child-1","toolCallId":"c","agent":"reviewer","title":"Look"}"#,
    );
    check(
        Event::ChildEnded {
            child: "child-1".into(),
            call: "c".into(),
            outcome: ChildOutcome::Limit,
            turns: 2,
            calls: 3,
            cost: 0.5,
        },
        r#"{"type":"quipu_child_end","child":"child-1","toolCallId":"c","outcome":"limit","turns":2,"calls":3,"cost":0.5}"#,
    );
    check(Event::PermissionsChanged { mode: "ask".into() }, r#"{"type":"quipu_permissions","mode":"ask"}"#);
    let (one, two) = ("01".repeat(32), "02".repeat(32));
    check(
        Event::HeadMoved { from: Some(NodeId([1; 32])), to: NodeId([2; 32]) },
        &format!(r#"{{"type":"quipu_head_moved","from":"{one}","to":"{two}"}}"#),
    );
    check(
        Event::HeadMoved { from: None, to: NodeId([2; 32]) },
        &format!(r#"{{"type":"quipu_head_moved","from":null,"to":"{two}"}}"#),
    );
    let reason = CompactionReason::Overflow;
    check(Event::CompactionStarted { reason }, r#"{"type":"compaction_start","reason":"overflow"}"#);
    let ended = |result| Event::CompactionEnded { reason, result: Arc::new(result) };
    let compaction = Compaction {
        summary: "in short".into(),
        first_kept: Some(NodeId([1; 32])),
        tokens_before: 90,
        ..Compaction::default()
    };
    check(
        ended(CompactionResult::Done {
            node: NodeId([2; 32]),
            compaction: Arc::new(compaction),
            tokens_after: 7,
        }),
        &format!(
            r#"{{"type":"compaction_end","reason":"overflow","result":{{"summary":"in short","firstKeptEntryId":"{one}","tokensBefore":90,"estimatedTokensAfter":7,"quipuNode":"{two}"}},"aborted":false,"willRetry":true}}"#
        ),
    );
    check(
        ended(CompactionResult::Aborted),
        r#"{"type":"compaction_end","reason":"overflow","aborted":true,"willRetry":false}"#,
    );
    check(
        ended(CompactionResult::Failed("why".into())),
        r#"{"type":"compaction_end","reason":"overflow","aborted":false,"willRetry":false,"errorMessage":"why"}"#,
    );
    check(
        Event::JumpStarted { to: NodeId([1; 32]) },
        &format!(r#"{{"type":"quipu_jump_start","to":"{one}"}}"#),
    );
    let ended = |result| Event::JumpEnded { result: Arc::new(result) };
    let jumped = JumpReport {
        session: "s".into(),
        from: NodeId([1; 32]),
        at: NodeId([2; 32]),
        head: NodeId([2; 32]),
        prompt: Some("in other words".into()),
        summary: None,
        usage: None,
    };
    check(
        ended(JumpResult::Done(Box::new(jumped))),
        &format!(
            r#"{{"type":"quipu_jump_end","result":{{"from":"{one}","at":"{two}","head":"{two}","said":[{{"type":"text","text":"in other words"}}]}},"aborted":false}}"#
        ),
    );
    check(ended(JumpResult::Aborted), r#"{"type":"quipu_jump_end","aborted":true}"#);
    check(
        ended(JumpResult::Failed("why".into())),
        r#"{"type":"quipu_jump_end","aborted":false,"errorMessage":"why"}"#,
    );
    check(
        Event::from(Notice::Branched { session: "s2".into() }),
        r#"{"type":"quipu_trouble","kind":"branched","session":"s2"}"#,
    );
    check(
        Event::from(Notice::Interrupted { calls: vec![("bash".into(), "c".into())], model_call: true }),
        r#"{"type":"quipu_trouble","kind":"interrupted","calls":[{"toolCallId":"c","toolName":"bash"}],"modelCall":true}"#,
    );
    check(
        Event::from(Notice::Note { text: "look".into() }),
        r#"{"type":"quipu_trouble","kind":"note","message":"look"}"#,
    );
    check(
        Event::ContextPruned { node: NodeId([1; 32]), results: 3, tokens_before: 9, tokens_after: 4 },
        &format!(
            r#"{{"type":"quipu_context_pruned","node":"{}","results":3,"tokensBefore":9,"estimatedTokensAfter":4}}"#,
            NodeId([1; 32])
        ),
    );
    let snapshot = Snapshot::new("s".into(), "/w".into(), Arc::default(), Thinking::Off).into();
    check(Event::Lagged { missed: 5, snapshot }, r#"{"type":"quipu_lagged","missed":5}"#);
}

#[test]
fn turns_and_runs_begin_empty() {
    let mut events = events();
    let kept = |message: Message| Event::MessageEnded {
        id: "m".into(),
        message: Arc::new(message),
        ending: Ending::Committed(NodeId([1; 32])),
    };
    let result = Message::ToolResult(ToolResultMessage {
        tool_call_id: "c".into(),
        tool_name: "t".into(),
        content: vec![Content::text("x")],
        details: None,
        usage: None,
        is_error: false,
        timestamp: 1,
    });
    let text = serde_json::to_string(&result).unwrap();
    for _ in 0..2 {
        line(&mut events, Event::RunStarted);
        line(&mut events, Event::TurnStarted { turn: 1 });
        line(&mut events, kept(result.clone()));
        let turn = line(&mut events, Event::TurnEnded { turn: 1 });
        assert_eq!(turn, format!(r#"{{"type":"turn_end","message":null,"toolResults":[{text}]}}"#));
        line(&mut events, Event::TurnStarted { turn: 2 });
        let turn = line(&mut events, Event::TurnEnded { turn: 2 });
        assert_eq!(turn, r#"{"type":"turn_end","message":null,"toolResults":[]}"#);
        let run = line(&mut events, Event::RunEnded { outcome: Outcome::Done });
        assert_eq!(run, format!(r#"{{"type":"agent_end","messages":[{text}],"willRetry":false}}"#));
    }
}

#[test]
fn document_names_each_kind_of_model_error() {
    let schema: Value = serde_json::from_str(include_str!("../../../docs/protocol.schema.json")).unwrap();
    let page = include_str!("../../../docs/json-events.md");
    let kinds = schema["$defs"]["ModelErrorKind"]["oneOf"].as_array().unwrap();
    assert!(kinds.len() > 10, "{kinds:?}");
    for kind in kinds {
        // The schema has old names too, which are read and not written.
        let kind: ModelErrorKind = serde_json::from_value(kind["const"].clone()).unwrap();
        let name = serde_json::to_value(kind).unwrap();
        assert!(page.contains(&format!("`{}`", name.as_str().unwrap())), "{name}");
    }
}
