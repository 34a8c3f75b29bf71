//! What a messaging tool sent.

use quipu_outbound::{SentTexts, normalized};

#[test]
fn texts_are_compared_without_case_emoji_and_blanks() {
    assert_eq!(normalized("  Hello 👋🏽   WORLD\n✅ "), "hello world");
    assert_eq!(normalized("👍️"), "");
    assert_eq!(normalized("ÄRGER 1"), "ärger 1");
}

#[test]
fn texts_that_a_tool_sent_are_known() {
    let mut sent = SentTexts::new();
    sent.begin("a".into(), "The build is green again.", &["/tmp/a.png".to_owned()], Some("chat/1"));
    assert!(!sent.contains("The build is green again."), "it is not sent before the call has ended");
    sent.end(&"a".into(), false);
    for (text, duplicate) in [
        ("The build is green again.", true),
        ("the BUILD is green  again. 🎉", true),
        ("I told them: The build is green again. All fine?", true),
        ("The build is green again. Here is what was done in the night, and why.", false),
        ("build is green again", true),
        ("the build", false),
        ("The build is red again.", false),
        ("Done.", false),
    ] {
        assert_eq!(sent.contains(text), duplicate, "{text:?}");
    }
    assert!(sent.contains_media("/tmp/a.png") && !sent.contains_media("/tmp/b.png"));
    assert!(sent.reached("chat/1") && !sent.reached("chat/2"));
}

#[test]
fn texts_of_a_call_that_failed_are_not_known() {
    let mut sent = SentTexts::new();
    sent.begin("a".into(), "The build is green again.", &[], Some("chat/1"));
    sent.end(&"a".into(), true);
    sent.end(&"b".into(), false);
    assert!(!sent.contains("The build is green again.") && !sent.reached("chat/1"));
}

#[test]
fn last_two_hundred_texts_are_remembered() {
    let mut sent = SentTexts::new();
    for number in 0..=200 {
        let call = format!("call {number}").as_str().into();
        sent.begin(
            format!("call {number}").as_str().into(),
            &format!("message number <{number}>"),
            &[],
            None,
        );
        sent.end(&call, false);
    }
    assert!(!sent.contains("message number <0>"));
    assert!(sent.contains("message number <1>") && sent.contains("message number <200>"));
}
