//! Commands as lines, and the lines that answer them.

use quipu_protocol::{Compaction, Content, Model, Notice, Prices, Thinking, Ui};
use quipu_rpc::{
    CommandLabel, CompactionForm, ModelForm, QueueDrainMode, RPC_COMMANDS, RpcCommand, RpcLine, SessionState,
    StreamingBehavior, data_text, failed_compaction_lines, read_line, ui_line,
};
use serde_json::{Value, json};

fn command(line: &str) -> (CommandLabel, RpcCommand) {
    match read_line(line.as_bytes()) {
        Ok(RpcLine::Command(label, command)) => (label, command),
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn refused(line: &[u8], expect: &str) {
    match read_line(line) {
        Err(bad) => assert_eq!(bad.line(), expect),
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_command_is_read_by_its_type() {
    let full = json!({
        "message": "m", "provider": "p", "modelId": "i", "level": "high", "mode": "all", "enabled": true,
        "command": "ls", "sessionPath": "s.jsonl", "entryId": "e", "name": "n",
    });
    for name in RPC_COMMANDS {
        let mut line = full.clone();
        line["type"] = name.into();
        line["id"] = 7.into();
        let (label, _) = command(&line.to_string());
        assert_eq!((label.id, label.command.as_deref()), (Some(json!(7)), Some(name)));
    }
    let line = r#"{"type":"prompt","message":"hi","images":[{"type":"image","data":"AA==","mimeType":"image/png"}],"streamingBehavior":"followUp","later":1}"#;
    let RpcCommand::Prompt { message, images, streaming_behavior } = command(line).1 else { panic!() };
    assert_eq!((message.as_str(), streaming_behavior), ("hi", Some(StreamingBehavior::FollowUp)));
    let images: Vec<Content> = images.into_iter().map(Content::from).collect();
    assert_eq!(
        serde_json::to_string(&images).unwrap(),
        r#"[{"type":"image","data":"AA==","mimeType":"image/png"}]"#
    );
    // What is null is not there; a carriage return and blanks around the line are no part of it.
    let line = " {\"type\":\"compact\",\"id\":\"a\",\"customInstructions\":null} \r";
    assert_eq!(command(line).1, RpcCommand::Compact { custom_instructions: None });
    // Separators of lines in other alphabets, and halves of pairs, do not cut a line.
    let line = "{\"type\":\"bash\",\"command\":\"echo \u{2028}\\ud800\"}";
    let expect = RpcCommand::Bash { command: "echo \u{2028}\u{fffd}".into(), exclude_from_context: None };
    assert_eq!(command(line).1, expect);
}

#[test]
fn bad_lines_say_what_is_wrong_with_them() {
    let parse = |error: &str| {
        format!(
            r#"{{"type":"response","command":"parse","success":false,"error":"Failed to parse command: {error}"}}"#
        )
    };
    refused(b"not json", &parse("expected ident at line 1 column 2"));
    for line in ["7", "null", "[]", "\"prompt\""] {
        refused(line.as_bytes(), &parse("a command is a JSON object"));
    }
    refused(
        b"{\"type\":\"pro\xff\"}",
        r#"{"type":"response","command":"pro�","success":false,"error":"Unknown command: pro�"}"#,
    );
    refused(
        br#"{"id":7,"type":"bogus"}"#,
        r#"{"id":7,"type":"response","command":"bogus","success":false,"error":"Unknown command: bogus"}"#,
    );
    refused(
        br#"{"id":{"a":[1]}}"#,
        r#"{"id":{"a":[1]},"type":"response","success":false,"error":"Unknown command: undefined"}"#,
    );
    refused(br#"{"type":3}"#, r#"{"type":"response","success":false,"error":"Unknown command: 3"}"#);
    refused(
        br#"{"id":"x","type":"prompt"}"#,
        r#"{"id":"x","type":"response","command":"prompt","success":false,"error":"the command `prompt` is not valid: missing field `message`"}"#,
    );
    let Err(bad) = read_line(br#"{"type":"set_steering_mode","mode":"some"}"#) else { panic!() };
    assert!(bad.error.contains("unknown variant `some`, expected `one-at-a-time` or `all`"), "{}", bad.error);
    let Err(bad) = read_line(br#"{"type":"bash","command":["ls"]}"#) else { panic!() };
    assert!(bad.error.contains("expected a string"), "{}", bad.error);
    assert!(matches!(read_line(br#"{"type":"extension_ui_response"}"#), Ok(RpcLine::BadAnswer(_))));
    assert!(matches!(
        read_line(br#"{"type":"extension_ui_response","id":"a","confirmed":true}"#),
        Ok(RpcLine::Answer(_))
    ));
}

#[test]
fn responses_repeat_the_label_in_the_order_of_members() {
    let (label, _) = command(r#"{"type":"get_tree","id":"a\n"}"#);
    assert_eq!(label.success(None), r#"{"id":"a\n","type":"response","command":"get_tree","success":true}"#);
    assert_eq!(
        label.success(Some("{\"a\":\n1}")),
        r#"{"id":"a\n","type":"response","command":"get_tree","success":true,"data":{"a": 1}}"#
    );
    assert_eq!(
        label.failure("no \"tree\""),
        r#"{"id":"a\n","type":"response","command":"get_tree","success":false,"error":"no \"tree\""}"#
    );
    assert_eq!(label.shell_update("x\n"), r#"{"type":"bash_execution_update","id":"a\n","delta":"x\n"}"#);
    let (label, _) = command(r#"{"type":"abort"}"#);
    assert_eq!(label.success(None), r#"{"type":"response","command":"abort","success":true}"#);
    assert_eq!(label.shell_update("x"), r#"{"type":"bash_execution_update","delta":"x"}"#);
    assert_eq!(
        failed_compaction_lines("why")[1],
        r#"{"type":"compaction_end","reason":"manual","aborted":false,"willRetry":false,"errorMessage":"Compaction failed: why"}"#
    );
}

/// The capture's own state, made from what ours would hold.
#[test]
fn state_has_the_form_of_the_capture() {
    let capture = include_str!("data/pi-rpc.out").lines().nth(1).unwrap();
    let model = Model {
        id: "m1".into(),
        name: "m1".into(),
        api: "openai-completions".into(),
        provider: "fake".into(),
        base_url: "http://127.0.0.1:18931/v1".into(),
        input: vec!["text".into()],
        cost: Prices { stated: true, ..Prices::default() },
        context_window: 32_000,
        max_tokens: 4_000,
        // Headers may hold keys.
        headers: quipu_protocol::Json::parse(r#"{"x-key":"secret"}"#).ok(),
        ..Model::default()
    };
    let state = SessionState {
        model: ModelForm::from(&model),
        thinking_level: Thinking::Off,
        is_streaming: false,
        is_compacting: false,
        steering_mode: QueueDrainMode::OneAtATime,
        follow_up_mode: QueueDrainMode::OneAtATime,
        session_file: Some(
            "/home/user/.pi/agent/sessions/--home-user-proj--/2026-11-20T08-59-54-432Z_01a1f82f-08c0-725c-b6a2-648bcb2a6533.jsonl",
        ),
        session_id: "01a1f82f-08c0-725c-b6a2-648bcb2a6533",
        session_name: None,
        auto_compaction_enabled: true,
        message_count: 0,
        pending_message_count: 0,
    };
    let (label, _) = command(r#"{"id":"1","type":"get_state"}"#);
    assert_eq!(label.success(Some(&data_text(&state))), capture);
}

#[test]
fn compaction_and_ui_have_their_forms() {
    let compaction = Compaction { summary: "s".into(), tokens_before: 9, ..Compaction::default() };
    assert_eq!(
        data_text(&CompactionForm::of(&compaction, "e1", 4)),
        r#"{"summary":"s","firstKeptEntryId":"e1","tokensBefore":9,"estimatedTokensAfter":4}"#
    );
    let check = |ui: &Ui, rest: &str| {
        let expect = format!(r#"{{"type":"extension_ui_request","id":"n1","method":{rest}}}"#);
        assert_eq!(ui_line("n1", ui), expect);
    };
    check(&Ui::Notice { notice: Notice::note("a\nb") }, r#""notify","message":"a\nb","notifyType":"info""#);
    check(
        &Ui::Status { key: "k".into(), text: Some("t".into()) },
        r#""setStatus","statusKey":"k","statusText":"t""#,
    );
    check(&Ui::Status { key: "k".into(), text: None }, r#""setStatus","statusKey":"k""#);
    let lines = vec!["a".to_owned()];
    check(&Ui::Widget { key: "k".into(), lines }, r#""setWidget","widgetKey":"k","widgetLines":["a"]"#);
    check(&Ui::Widget { key: "k".into(), lines: Vec::new() }, r#""setWidget","widgetKey":"k""#);
    // None of them is a text of several lines.
    let value: Value =
        serde_json::from_str(&ui_line("n1", &Ui::Notice { notice: Notice::note("x") })).unwrap();
    assert_eq!(value["id"], "n1");
}
