//! Questions and answers as lines.

use std::time::Duration;

use proptest::prelude::*;
use quipu_protocol::{Answer, Ask, AskKind, AskOption, Json, Permission, Scope};
use quipu_rpc::{ANSWER_LIMIT, BadAnswer, ask_line, read_answer};

fn permission(scopes: &[Scope]) -> Ask {
    let permission = Permission {
        call: "c1".into(),
        tool: "bash".into(),
        question: "Allow running this command in /work? This mode asks before every command.".into(),
        subject: "make\ntest \"x\"".into(),
        scopes: scopes.to_vec(),
        rules: Vec::new(),
    };
    asked(AskKind::Permission(permission))
}

fn asked(kind: AskKind) -> Ask {
    Ask { id: "a1".into(), deadline: None, default: Answer::Cancel, kind }
}

const ALL: [Scope; 3] = [Scope::Once, Scope::Session, Scope::Always];

#[test]
fn permission_becomes_select_dialog() {
    let line = ask_line(&permission(&ALL), Some(Duration::from_secs(600)));
    assert_eq!(
        line,
        r#"{"type":"extension_ui_request","id":"a1","method":"select","title":"`bash`: Allow running this command in /work? This mode asks before every command.\n\nmake\ntest \"x\"","options":["once","session","always","no"],"timeout":600000}"#
    );
}

#[test]
fn every_other_question_becomes_a_dialog() {
    let check = |kind: AskKind, method: &str, rest: &str| {
        let line = ask_line(&asked(kind), None);
        let expect = format!(r#"{{"type":"extension_ui_request","id":"a1","method":"{method}",{rest}}}"#);
        assert_eq!(line, expect);
    };
    let title = || "T".to_owned();
    check(AskKind::Confirm { title: title(), text: "x".into() }, "confirm", r#""title":"T","message":"x""#);
    let option = |id: &str| AskOption { id: id.into(), label: id.to_uppercase(), detail: None };
    let options = vec![option("a"), option("b")];
    check(AskKind::Choose { title: title(), options }, "select", r#""title":"T","options":["A","B"]"#);
    let text = AskKind::Text { title: title(), placeholder: "p".into(), secret: false };
    check(text, "input", r#""title":"T","placeholder":"p""#);
    check(AskKind::Edit { title: title(), text: "e".into() }, "editor", r#""title":"T","prefill":"e""#);
    let form = AskKind::Form { title: title(), schema: Json::object() };
    check(form, "editor", r#""title":"T\n\n{}","prefill":"{}""#);
    let url = AskKind::OpenUrl { title: title(), url: "http://localhost/x".into() };
    check(url, "confirm", r#""title":"T","message":"http://localhost/x""#);
}

#[test]
fn answers_are_read() {
    let check = |ask: &Ask, members: &str, expect: Option<Answer>| {
        let line = format!(r#"{{"type":"extension_ui_response","id":"a1",{members}}}"#);
        for line in [line.clone(), format!(" {line} \r\n")] {
            let answer = read_answer(line.as_bytes()).unwrap();
            assert_eq!(answer.for_ask(ask).ok(), expect, "{line}");
        }
    };
    let no = |reason: &str| Some(Answer::Deny { reason: Some(reason.into()) });
    let allow = |scope| Some(Answer::Allow { scope });
    let all = permission(&ALL);
    check(&all, r#""value":"once""#, allow(Scope::Once));
    check(&all, r#""value":"session""#, allow(Scope::Session));
    check(&all, r#""value":"always","other":1"#, allow(Scope::Always));
    check(&all, r#""value":"Once""#, None);
    check(&all, r#""value":"no","reason":" not there ""#, no("not there"));
    check(&all, r#""value":"no","reason":"  ""#, Some(Answer::no()));
    check(&all, r#""confirmed":true"#, allow(Scope::Once));
    check(&all, r#""confirmed":false,"reason":"no""#, no("no"));
    check(&all, r#""cancelled":true"#, Some(Answer::no()));
    check(&all, r#""cancelled":true,"value":"always""#, Some(Answer::no()));
    check(&all, r#""cancelled":false,"value":"once""#, allow(Scope::Once));
    let once = permission(&[Scope::Once]);
    check(&once, r#""value":"always""#, None);
    check(&once, r#""value":"once""#, allow(Scope::Once));
    let confirm = asked(AskKind::Confirm { title: "T".into(), text: String::new() });
    check(&confirm, r#""confirmed":false"#, Some(Answer::Confirm { yes: false }));
    check(&confirm, r#""value":"yes""#, None);
    check(&confirm, r#""cancelled":true"#, Some(Answer::Cancel));
    let option = AskOption { id: "a".into(), label: "A".into(), detail: None };
    let choose = asked(AskKind::Choose { title: "T".into(), options: vec![option] });
    check(&choose, r#""value":"A""#, Some(Answer::Choose { option: "a".into() }));
    check(&choose, r#""value":"B""#, None);
    let form = asked(AskKind::Form { title: "T".into(), schema: Json::object() });
    let value = Json::parse(r#"{"a":1.0}"#).unwrap();
    check(&form, r#""value":"{\"a\":1.0}""#, Some(Answer::Form { value }));
    check(&form, r#""value":"{""#, None);
    check(&form, r#""value":"1""#, None);
}

#[test]
fn line_that_answers_nothing_is_reported() {
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
    for members in [r#""value":1"#, r#""confirmed":"yes""#, r#""cancelled":false"#] {
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
