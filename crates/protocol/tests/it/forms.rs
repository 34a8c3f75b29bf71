//! The published schema is that of the types, and the JSON form of every value fits it and comes back as it was.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::*;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// All that crosses the seam.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is wanted")]
struct Protocol {
    command: Command,
    ack: Ack,
    refused: Refusal,
    envelope: Envelope,
    snapshot: Snapshot,
    ask: Ask,
    answer: Answer,
    notice: Notice,
    client_frame: ClientFrame,
    server_frame: ServerFrame,
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.schema.json")
}

#[test]
fn published_schema_is_that_of_the_types() {
    let mut schema = serde_json::to_value(schemars::schema_for!(Protocol)).unwrap();
    let members = schema.as_object_mut().unwrap();
    members.insert("title".into(), "Quipu protocol".into());
    members.insert("x-version".into(), PROTOCOL_VERSION.into());
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path(), &text).unwrap();
    }
    let published = std::fs::read_to_string(path()).unwrap_or_default();
    assert!(
        published == text,
        "docs/protocol.schema.json is not that of the types: run `UPDATE_SCHEMA=1 cargo test -p quipu-protocol --test it`"
    );
}

fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T, json: &str) {
    assert_eq!(serde_json::to_string(value).unwrap(), json);
    assert_eq!(&serde_json::from_str::<T>(json).unwrap(), value, "{json}");
}

fn both<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
    let json = serde_json::to_string(value).unwrap();
    assert_eq!(&serde_json::from_str::<T>(&json).unwrap(), value, "{json}");
}

#[test]
fn commands_have_a_type() {
    let prompt = Command::Prompt { input: "hi".into(), when: QueueMode::FollowUp };
    check(&prompt, r#"{"type":"prompt","input":[{"type":"text","text":"hi"}],"when":"followUp"}"#);
    check(&Command::Continue, r#"{"type":"continue"}"#);
    check(
        &Command::Abort { target: AbortTarget::Tool("c1".into()) },
        r#"{"type":"abort","target":{"tool":"c1"}}"#,
    );
    check(
        &Command::Answer { ask: "a1".into(), answer: Answer::Allow { scope: Scope::Session } },
        r#"{"type":"answer","ask":"a1","answer":{"type":"allow","scope":"session"}}"#,
    );
    check(
        &Command::Set { setting: Setting::Thinking { level: Thinking::High } },
        r#"{"type":"set","setting":{"type":"thinking","level":"high"}}"#,
    );
    // In any order, with what may be left out left out.
    let compact: Command = serde_json::from_str(r#"{"focus":null,"type":"compact"}"#).unwrap();
    assert_eq!(compact, Command::Compact { focus: None });
}

#[test]
fn wrong_commands_are_refused_with_a_reason() {
    for (json, why) in [
        ("{}", "type"),
        (r#"{"type":"fly"}"#, "fly"),
        (r#"{"type":7}"#, "string"),
        (r#"{"type":"prompt"}"#, "input"),
        (r#"{"type":"prompt","input":"hi","when":"now"}"#, "list of blocks"),
        (r#"{"type":"prompt","input":[],"when":"soon"}"#, "soon"),
        (r#"{"type":"compact","focus":null,"force":true}"#, "force"),
        (r#"{"type":"answer","ask":"a","answer":{"type":"allow"}}"#, "scope"),
        (r#"{"type":"continue","x":1}"#, "x"),
        ("[]", "object"),
        ("null", "object"),
    ] {
        let error = serde_json::from_str::<Command>(json).unwrap_err().to_string();
        assert!(error.contains(why), "{json}: {error}");
    }
}

#[test]
fn arguments_stay_as_the_model_wrote_them() {
    let args = Json::parse(r#"{"b":1.0,"a":12345678901234567890,"__proto__":{ "x":[] }}"#).unwrap();
    let event = Event::ToolStarted { call: "c".into(), name: "bash".into(), args: args.clone() };
    check(&event, &format!(r#"{{"type":"toolStarted","call":"c","name":"bash","args":{args}}}"#));
    check(&Answer::Form { value: args.clone() }, &format!(r#"{{"type":"form","value":{args}}}"#));
    // What no text can hold is shown as what cannot be shown.
    let lone = Json::parse(r#"{"a":"\ud800"}"#).unwrap();
    let event = Event::ToolStarted { call: "c".into(), name: "bash".into(), args: lone };
    let back: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
    assert!(matches!(back, Event::ToolStarted { args, .. } if args.get() == r#"{"a":"\ufffd"}"#));
}

#[test]
fn every_event_comes_back_as_it_was() {
    let answer = AssistantMessage { content: vec![Content::text("a")], ..AssistantMessage::default() };
    let message = Arc::new(Message::Assistant(answer));
    let node = NodeId([7; 32]);
    let error = ModelError::new(ModelErrorKind::Server, "down");
    let permission = Permission {
        call: "c".into(),
        tool: "bash".into(),
        question: "run this".into(),
        subject: "ls".into(),
        scopes: vec![Scope::Once, Scope::Always],
        rules: Vec::new(),
    };
    let kinds = [
        AskKind::Permission(permission),
        AskKind::Confirm { title: "t".into(), text: String::new() },
        AskKind::Choose {
            title: "t".into(),
            options: vec![AskOption { id: "1".into(), label: "one".into(), detail: None }],
        },
        AskKind::Text { title: "t".into(), placeholder: String::new(), secret: true },
        AskKind::Edit { title: "t".into(), text: "e".into() },
        AskKind::Form { title: "t".into(), schema: Json::parse(r#"{"type":"object"}"#).unwrap() },
        AskKind::OpenUrl { title: "t".into(), url: "http://localhost/".into() },
    ];
    let ask = |kind: AskKind| Ask { id: "a".into(), deadline: Some(5), default: Answer::no(), kind };
    let mut snapshot = Snapshot::new("s".into(), "/w".into(), Arc::default(), Thinking::Off);
    let mut events = vec![
        Event::RunStarted,
        Event::TurnStarted { turn: 1 },
        Event::MessageStarted { id: "m1".into(), message: message.clone(), attempt: 1 },
        Event::MessageDelta { id: "m1".into(), delta: Delta::TextStarted { index: 0 } },
        Event::MessageDelta { id: "m1".into(), delta: Delta::Text { index: 0, text: "a".into() } },
        Event::MessageEnded { id: "m1".into(), message: message.clone(), ending: Ending::Committed(node) },
        Event::MessageEnded { id: "m2".into(), message, ending: Ending::Dropped(error.clone()) },
        Event::ToolStarted { call: "c".into(), name: "bash".into(), args: Json::object() },
        Event::ToolOutput { call: "c".into(), tail: "x".into() },
        Event::AskClosed { ask: "a".into(), answer: Some(Answer::once()), by_policy: false },
        Event::AskClosed { ask: "a".into(), answer: None, by_policy: true },
        Event::BackgroundStarted { id: "b1".into(), command: "make".into() },
        Event::BackgroundStarted { id: "b2".into(), command: "make".into() },
        Event::BackgroundEnded {
            id: "b1".into(),
            command: "make".into(),
            end: BackgroundEnd::Killed(KillReason::Person),
        },
        Event::ChildStarted {
            child: "child-1".into(),
            call: "c".into(),
            agent: "reviewer".into(),
            title: "Look".into(),
        },
        Event::ChildStarted {
            child: "child-2".into(),
            call: "c2".into(),
            agent: "sub-agent".into(),
            title: String::new(),
        },
        Event::ChildEnded {
            child: "child-1".into(),
            call: "c".into(),
            outcome: ChildOutcome::Done,
            turns: 2,
            calls: 3,
            cost: 0.5,
        },
        Event::PermissionsChanged { mode: "ask".into() },
        Event::QueueChanged {
            steering: vec![QueuedItem { id: "i".into(), text: "t".into() }],
            follow_up: Vec::new(),
        },
        Event::Appended { node },
        Event::HeadMoved { from: None, to: node },
        Event::CompactionStarted { reason: CompactionReason::Manual },
        Event::CompactionEnded {
            reason: CompactionReason::Overflow,
            result: Arc::new(CompactionResult::Failed("why".into())),
        },
        Event::JumpStarted { to: node },
        Event::JumpEnded { result: Arc::new(JumpResult::Aborted) },
        Event::ContextPruned { node, results: 1, tokens_before: 2, tokens_after: 1 },
        Event::EpochChanged { node: None, model: Arc::default(), thinking: Thinking::Max },
        Event::RetryScheduled { attempt: 2, delay: Duration::from_millis(1500), error: error.clone() },
        Event::RetryEnded { ok: false },
        Event::from(Notice::note("n")),
        Event::from(Notice::Branched { session: "b".into() }),
        Event::from(Notice::Interrupted { calls: vec![("bash".into(), "c".into())], model_call: true }),
        Event::Ui { ui: Ui::Status { key: "k".into(), text: Some("t".into()) } },
        Event::Ui { ui: Ui::Widget { key: "w".into(), lines: vec!["l".into()] } },
        Event::Renamed { name: "n".into() },
        Event::TurnEnded { turn: 1 },
        Event::RunEnded { outcome: Outcome::Limit(Limit::Daily { spent: 1.5, budget: 2.0 }) },
        Event::RunEnded { outcome: Outcome::Failed(error) },
        Event::RunEnded { outcome: Outcome::Done },
        Event::Settled,
    ];
    events.extend(kinds.map(|kind| Event::AskOpened { ask: Arc::new(ask(kind)) }));
    for (at, event) in events.into_iter().enumerate() {
        let envelope =
            Envelope { seq: at as u64 + 1, session: "s".into(), run: Some("r".into()), at: 5, event };
        both(&envelope);
        snapshot.fold(&envelope);
        both(&snapshot);
        let lagged = Event::Lagged { missed: 3, snapshot: Arc::new(snapshot.clone()) };
        both(&lagged);
    }
    assert_eq!((snapshot.asks.len(), snapshot.head), (7, Some(node)));
    assert_eq!(snapshot.status["k"], "t");
}

#[test]
fn unknown_members_of_events_are_passed_over() {
    let json =
        r#"{"seq":1,"session":"s","run":null,"at":5,"event":{"type":"turnStarted","turn":3,"new":1},"x":[]}"#;
    let envelope: Envelope = serde_json::from_str(json).unwrap();
    assert_eq!(envelope.event, Event::TurnStarted { turn: 3 });
}
