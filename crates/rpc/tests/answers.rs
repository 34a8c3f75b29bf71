//! Questions and answers as lines.

use std::time::Duration;

use proptest::prelude::*;
use quipu_protocol::Ask;
use quipu_rpc::{ANSWER_LIMIT, AskAnswer, BadAnswer, Choice, ask_line, read_answer};

#[test]
fn a_question_is_a_dialog_of_pi() {
    let ask = Ask {
        id: "a1".into(),
        call: "c1".into(),
        tool: "bash".into(),
        question: "run this in /work: every command is asked here".into(),
        subject: "make\ntest \"x\"".into(),
    };
    assert_eq!(
        ask_line(
            &ask,
            &[Choice::Once, Choice::Session, Choice::Always, Choice::No],
            Duration::from_secs(600)
        ),
        r#"{"type":"extension_ui_request","id":"a1","method":"select","title":"May `bash` run this in /work: every command is asked here?\n\nmake\ntest \"x\"","options":["once","session","always","no"],"timeout":600000}"#
    );
}

#[test]
fn answers_are_read() {
    let check = |members: &str, choice: Choice, reason: Option<&str>| {
        let line = format!(r#"{{"type":"extension_ui_response","id":"a1",{members}}}"#);
        let answer = AskAnswer { id: "a1".into(), choice, reason: reason.map(str::to_owned) };
        assert_eq!(read_answer(line.as_bytes()), Ok(answer.clone()), "{line}");
        assert_eq!(read_answer(format!(" {line} \r\n").as_bytes()), Ok(answer), "{line}");
    };
    check(r#""value":"once""#, Choice::Once, None);
    check(r#""value":"session""#, Choice::Session, None);
    check(r#""value":"always","other":1"#, Choice::Always, None);
    check(r#""value":"no","reason":" not there ""#, Choice::No, Some("not there"));
    check(r#""value":"no","reason":"  ""#, Choice::No, None);
    check(r#""confirmed":true"#, Choice::Once, None);
    check(r#""confirmed":false,"reason":"no""#, Choice::No, Some("no"));
    check(r#""cancelled":true"#, Choice::No, None);
    check(r#""cancelled":true,"value":"always""#, Choice::No, None);
    check(r#""cancelled":false,"value":"once""#, Choice::Once, None);
}

#[test]
fn what_answers_nothing_is_told() {
    let check = |line: &str, told: &str| {
        let bad = read_answer(line.as_bytes()).unwrap_err();
        assert!(bad.line().starts_with(told), "{line}: {}", bad.line());
        assert!(bad.line().contains(r#""success":false,"error":""#));
    };
    let parse = r#"{"type":"response","command":"parse","success":false,"error":"Failed to parse command: "#;
    for line in ["", "{", "once", "\u{0}", "{}{}", &"[".repeat(10_000)] {
        check(line, parse);
    }
    check(&" ".repeat(ANSWER_LIMIT + 1), parse);
    check("[]", r#"{"type":"response","command":"","success":false,"error":"Unknown command: ""#);
    check(r#"{"type":"abort","id":"7"}"#, r#"{"id":"7","type":"response","command":"abort","#);
    check(
        r#"{"type":"extension_ui_response","value":"once"}"#,
        r#"{"type":"response","command":"extension_ui_response","#,
    );
    for members in [r#""value":"Once""#, r#""value":1"#, r#""confirmed":"yes""#, r#""cancelled":false"#] {
        check(
            &format!(r#"{{"type":"extension_ui_response","id":"a1",{members}}}"#),
            r#"{"id":"a1","type":"response","command":"extension_ui_response","#,
        );
    }
    assert_eq!(
        BadAnswer::to(&"a9".into(), "no such question").line(),
        r#"{"id":"a9","type":"response","command":"extension_ui_response","success":false,"error":"no such question"}"#
    );
    assert!(read_answer(b"\xff").is_err());
}

proptest! {
    #[test]
    fn any_line_is_read_or_told_in_one_line(line in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Err(bad) = read_answer(&line) {
            prop_assert!(!bad.line().contains('\n'));
        }
    }
}
