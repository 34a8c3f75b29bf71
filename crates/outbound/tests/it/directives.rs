//! Directives, media and the silent token.

use proptest::prelude::*;
use quipu_outbound::{
    Directive, DirectiveParser, MediaCheck, ReplyTarget, Segment, SilenceGate, TagOptions, TagStripper,
    is_silent, is_silent_prefix, media_source, parse_directives, without_silent_token,
};

use crate::splits::{pieces, sizes};

fn text(text: &str) -> Directive {
    Directive::Text(text.to_owned())
}

fn media(source: &str) -> Directive {
    Directive::Media { named: source.to_owned(), source: source.to_owned() }
}

fn media_as(named: &str, source: &str) -> Directive {
    Directive::Media { named: named.to_owned(), source: source.to_owned() }
}

fn reply(id: &str) -> Directive {
    Directive::ReplyTo(ReplyTarget::Id(id.to_owned()))
}

fn merged(directives: impl IntoIterator<Item = Directive>) -> Vec<Directive> {
    let mut merged: Vec<Directive> = Vec::new();
    for directive in directives {
        match (merged.last_mut(), directive) {
            (Some(Directive::Text(last)), Directive::Text(text)) => last.push_str(&text),
            (_, directive) => merged.push(directive),
        }
    }
    merged
}

fn streamed(pieces: &[String]) -> Vec<Directive> {
    streamed_by(None, pieces)
}

fn streamed_by(check: Option<MediaCheck>, pieces: &[String]) -> Vec<Directive> {
    let mut stripper = TagStripper::new(TagOptions::default());
    let mut parser = DirectiveParser::checking(check);
    let mut directives = Vec::new();
    for piece in pieces {
        for segment in stripper.push(piece) {
            directives.extend(parser.push(&segment));
        }
    }
    for segment in stripper.finish() {
        directives.extend(parser.push(&segment));
    }
    directives.extend(parser.finish());
    merged(directives)
}

#[test]
fn observed_directives_are_those_of_the_reference() {
    let current = || Directive::ReplyTo(ReplyTarget::Current);
    for (source, expected) in [
        ("Hello [[reply_to_current]]", vec![text("Hello "), current()]),
        ("[[reply_to: 123 ]] hi there", vec![reply("123"), text("hi there")]),
        ("a[[reply_to_current]]b", vec![text("a"), current(), text(" b")]),
        ("x [[reply_to:1]] y [[reply_to:2]]", vec![text("x "), reply("1"), text("y "), reply("2")]),
        ("[[Reply:9]][[VOICE]]ok", vec![reply("9"), Directive::Voice, text("ok")]),
        ("[[audio_as_voice]]\nMEDIA: /tmp/a.ogg", vec![Directive::Voice, media("/tmp/a.ogg")]),
        ("[[media:https://example.com/a.png]]", vec![media("https://example.com/a.png")]),
    ] {
        assert_eq!(parse_directives(source), expected, "{source:?}");
    }
}

#[test]
fn code_is_no_directive() {
    for source in [
        "`[[reply_to:1]]` stays",
        "```\nMEDIA: /tmp/a.png\n[[voice]]\n```\n",
        "~~~\nMEDIA:/tmp/a.png\n~~~",
        "    MEDIA: /tmp/a.png",
        "see [[wiki link]] and [x](y) [",
        "the MEDIA: /tmp/a.png in a line",
        "Media: use `[[voice]]` here",
        "MEDIA: /tmp/`[[reply_to:1]]` `` [[media:/a/b]] ``\nand `[[voice]]`",
        "MEDIA: [[`a`]]",
        "[[reply_to:\n1]]",
        "[[reply_to:]]",
        "[[reply_to: 1",
        "MEDIA: not a path",
        "MEDIA:",
    ] {
        assert_eq!(merged(parse_directives(source)), [text(source)], "{source:?}");
    }
}

#[test]
fn media_lines_leave_the_text() {
    let source = "Here it is:\nMEDIA: `/tmp/my file.png`\nmedia:./b.jpg\nDone";
    let expected = vec![text("Here it is:\n"), media("/tmp/my file.png"), media("./b.jpg"), text("Done")];
    assert_eq!(parse_directives(source), expected);
    for at in 0..=source.len() {
        assert_eq!(streamed(&[source[..at].to_owned(), source[at..].to_owned()]), expected, "at {at}");
    }
}

#[test]
fn media_sources_are_public_addresses_or_paths() {
    for (source, valid) in [
        ("https://example.com/a.png", true),
        ("HTTPS://example.com:8443/a?b=c", true),
        ("http://example.com/a.png", false),
        ("https://user:word@example.com/a.png", false),
        ("https://localhost/a", false),
        ("https://intranet/a", false),
        ("https://printer.local/a", false),
        ("https://db.internal/a", false),
        ("https://db.internal./a", false),
        ("https://169.254.169.254/latest", false),
        ("https://127.1/a", false),
        ("https://0x7f.0.0.1/a", false),
        ("https://10.0.0.1/a", false),
        ("https://8.8.8.8/a", true),
        ("https://08.8.8.8/a", false),
        ("https://2130706433/a", false),
        ("https://[::1]/a", false),
        ("https://exa mple.com/a", false),
        ("ftp://example.com/a", false),
        ("javascript:alert(1)/x", false),
        ("/tmp/a.png", true),
        ("./a.png", true),
        ("~/a.png", true),
        ("images/a.png", true),
        ("a.png", false),
        ("C:\\a.png", true),
        ("\\\\server\\share\\a.png", true),
        ("file:///tmp/a.png", true),
        ("../secret", false),
        ("/tmp/../etc/passwd", false),
        ("file://..\\..\\x/y", false),
        ("/tmp/a\u{0}b", false),
        ("", false),
    ] {
        assert_eq!(media_source(source).is_some(), valid, "{source:?}");
    }
    assert_eq!(media_source("\"/tmp/a b.png\"").as_deref(), Some("/tmp/a b.png"));
    assert_eq!(media_source("file:///tmp/a.png").as_deref(), Some("/tmp/a.png"));
    assert_eq!(media_source(&format!("/{}", "a".repeat(5000))), None);
}

#[test]
fn media_paths_with_blanks_are_quoted_or_rooted() {
    for (source, valid) in [
        ("TV/radio 40 %, print 60 %", false),
        ("and/or what you like.png", false),
        ("images/my file.png", false),
        ("`images/my file.png`", true),
        ("/tmp/my file.png", true),
        ("./my file.png", true),
        ("~/my file.tar.gz", true),
        ("C:\\my files\\a b.png", true),
        ("\\\\server\\my share\\a.png", true),
        ("/tmp/my file", false),
        ("/tmp is full. See /var/log for more.", false),
        ("/r/one and .hidden", false),
        ("\"/tmp/my file\"", true),
    ] {
        assert_eq!(media_source(source).is_some(), valid, "{source:?}");
    }
    let text = "Shares:\nMedia: TV/radio 40 %, print 60 %\nDone";
    assert_eq!(parse_directives(text), [self::text(text)]);
}

/// Files of a directory `/work`.
fn checked() -> MediaCheck {
    MediaCheck::new(|name| match name {
        "b.jpg" | "./b.jpg" | "/work/b.jpg" => Some("/work/b.jpg".to_owned()),
        "/work/a b" | "a/b" => Some("/work/a b".to_owned()),
        _ => None,
    })
}

#[test]
fn files_that_do_not_pass_a_check_stay_text() {
    let address = "https://example.com/a.png";
    for (source, expected) in [
        ("Here it is\nMEDIA:/etc/passwd", vec![text("Here it is\nMEDIA:/etc/passwd")]),
        ("[[media: ~/.ssh/id_rsa]] and\nMEDIA: `./c.jpg`\nmore", vec![]),
        ("MEDIA: file:///etc/passwd\n", vec![]),
        ("MEDIA: `/no/[[voice]]`\n", vec![]),
        ("MEDIA: /work/a c\n", vec![]),
        (
            "Look:\nMEDIA: ./b.jpg\nDone",
            vec![text("Look:\n"), media_as("./b.jpg", "/work/b.jpg"), text("Done")],
        ),
        ("MEDIA: /work/a b", vec![media_as("/work/a b", "/work/a b")]),
        ("[[media:https://example.com/a.png]]", vec![media(address)]),
    ] {
        let expected = if expected.is_empty() { vec![text(source)] } else { expected };
        for at in (0..=source.len()).filter(|at| source.is_char_boundary(*at)) {
            let pieces = [source[..at].to_owned(), source[at..].to_owned()];
            assert_eq!(streamed_by(Some(checked()), &pieces), expected, "{source:?} at {at}");
        }
    }
}

#[test]
fn ids_of_messages_are_cleaned() {
    assert_eq!(parse_directives("[[reply_to: a\u{7}b ]]"), [reply("ab")]);
    let long = format!("[[reply_to:{}]]", "9".repeat(1000));
    assert_eq!(parse_directives(&long), [reply(&"9".repeat(256))]);
}

#[test]
fn silent_texts_are_those_of_the_reference() {
    assert!(is_silent(" no_reply \n"));
    assert!(is_silent("{\"action\":\"NO_REPLY\"}"));
    assert!(!is_silent("done. NO_REPLY"));
    for (prefix, silent) in
        [("NO", true), ("NO_", true), ("NO_REPLY", true), ("No", false), ("N", false), ("", false)]
    {
        assert_eq!(is_silent_prefix(prefix), silent, "{prefix:?}");
    }
    for (text, rest) in [
        ("done. NO_REPLY", "done."),
        ("done.\n\n**NO_REPLY**", "done."),
        ("NO_REPLYThe user", "The user"),
        ("NO_REPLY", ""),
        ("  No_Reply\n", ""),
        ("NO_REPLY is a token", "NO_REPLY is a token"),
        ("The answer is NO", "The answer is NO"),
        ("xNO_REPLY", "xNO_REPLY"),
        ("a NO_REPLYS", "a NO_REPLYS"),
        ("NO NNO_REPLY", "NO NNO_REPLY"),
        ("No, really", "No, really"),
        ("{\"action\":\"NO_REPLY\"} x", "{\"action\":\"NO_REPLY\"} x"),
    ] {
        assert_eq!(without_silent_token(text), rest, "{text:?}");
    }
}

#[test]
fn silent_token_does_not_flash() {
    let mut gate = SilenceGate::new();
    for character in "NO_REPLY".chars() {
        assert_eq!(gate.push(&character.to_string()), "");
    }
    assert_eq!(gate.end_text(), "");
    assert_eq!(gate.finish(), "");
    assert!(gate.is_silent());
    let mut gate = SilenceGate::new();
    assert_eq!(gate.push("The answer is NO"), "The answer is");
    assert_eq!(gate.end_text(), " NO");
}

fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "[[",
        "]]",
        "[",
        "]",
        "[[reply_to_current]]",
        "[[reply_to: 7 ]]",
        "[[voice]]",
        "MEDIA:",
        "MED",
        "IA: /a/b\n",
        "\n",
        " ",
        "word",
        "`",
        "```\n",
        "\nMEDIA: `/a b/c`\n",
        "MEDIA: ../x\n",
        "`[[voice]]`",
        "MEDIA: `[[media:/x/y]]`",
        "\r\n",
        "\r",
        "é",
        "[[media:/x/y]]",
        "<think>x</think>",
        "    ",
        "NO_",
        "REPLY",
        "NO_REPLY",
        "*",
        "no_reply",
    ]);
    prop::collection::vec(piece, 0..30).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splits_change_no_directive(text in soup(), sizes in sizes(), is_checked in any::<bool>()) {
        let check = is_checked.then(checked);
        let whole = streamed_by(check.clone(), std::slice::from_ref(&text));
        prop_assert_eq!(streamed_by(check, &pieces(&text, &sizes)), whole);
    }

    #[test]
    fn splits_change_no_silence(text in soup(), sizes in sizes()) {
        let mut gate = SilenceGate::new();
        let mut shown: String = pieces(&text, &sizes).iter().map(|piece| gate.push(piece)).collect();
        shown.push_str(&gate.finish());
        prop_assert_eq!(gate.is_silent(), is_silent(&text));
        prop_assert_eq!(shown, without_silent_token(&text));
    }
}

#[test]
fn segments_of_code_pass_unchanged() {
    let mut parser = DirectiveParser::new();
    assert_eq!(parser.push(&Segment::Code("`[[voice]]`".to_owned())), [text("`[[voice]]`")]);
}
