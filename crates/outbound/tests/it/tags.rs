//! Tags taken out of a stream.

use proptest::prelude::*;
use quipu_outbound::{Segment, TagOptions, TagStripper, visible_text};

use crate::splits::{pieces, sizes};

const FINAL: TagOptions = TagOptions { enforce_final: true };

fn stripped(options: TagOptions, pieces: &[String]) -> Vec<Segment> {
    let mut stripper = TagStripper::new(options);
    let mut segments: Vec<Segment> = Vec::new();
    for piece in pieces {
        for segment in stripper.push(piece) {
            merge(&mut segments, segment);
        }
    }
    for segment in stripper.finish() {
        merge(&mut segments, segment);
    }
    segments
}

fn merge(segments: &mut Vec<Segment>, segment: Segment) {
    match (segments.last_mut(), segment) {
        (Some(Segment::Text(last)), Segment::Text(text)) => last.push_str(&text),
        (Some(Segment::Code(last)), Segment::Code(text)) => last.push_str(&text),
        (_, segment) => segments.push(segment),
    }
}

fn shown(segments: &[Segment]) -> String {
    let mut shown = String::new();
    for segment in segments {
        match segment {
            Segment::Text(text) | Segment::Code(text) => shown.push_str(text),
            Segment::Leak => shown.clear(),
        }
    }
    shown
}

#[test]
fn observed_texts_are_those_of_the_reference() {
    for (text, expected) in [
        ("<think>a</think>Hello", "Hello"),
        ("Hello <think>secret", "Hello"),
        ("leak</think>Answer", "Answer"),
        ("`<think>` is a tag", "`<think>` is a tag"),
        ("<think>only", "only"),
        ("a<think>b<think>c</think>d</think>e", "ae"),
        ("<final>Hi</final>", "Hi"),
    ] {
        assert_eq!(visible_text(text, TagOptions::default()), expected, "{text}");
    }
}

#[test]
fn code_that_would_hide_the_whole_answer_is_none() {
    let visible = |text: &str| visible_text(text, TagOptions::default());
    assert_eq!(visible("<think>it is `</think>`x` is the answer"), "`x` is the answer");
    assert_eq!(visible("<think>it is `</think>` not</think>`x`"), "`x`");
    assert_eq!(visible("<think>use a ` tick</think>Answer with `code` here"), "Answer with `code` here");
}

#[test]
fn tags_are_stripped_in_every_split_in_two() {
    for (options, text, expected) in [
        (TagOptions::default(), "Hi <think>no\n</think>you", "Hi you"),
        (TagOptions::default(), "< THINKING a=\"b\" >no< / Thinking >yes", "yes"),
        (TagOptions::default(), "<thought>no</thought>yes", "yes"),
        (TagOptions::default(), "<thinker>stays</thinker> <b>", "<thinker>stays</thinker> <b>"),
        (TagOptions::default(), "a < b <th", "a < b <th"),
        (TagOptions::default(), "<final>Hi</final> there<final/>", "Hi there"),
        (FINAL, "before <final>in</final> after <final>side</final>", "inside"),
        (FINAL, "no final at all", ""),
        (FINAL, "<think>hm <final>answer</final>", "answer"),
        (FINAL, "x<final/>y<final/>z", "y"),
        (TagOptions::default(), "one<|im_end|>two <｜x｜> three", "one two  three"),
        (TagOptions::default(), "a<relevant-memories>m < n</relevant-memories>b", "ab"),
        (TagOptions::default(), "a<tool_call>{\"name\":1}</tool_call>b", "ab"),
        (TagOptions::default(), "the <function> element", "the <function> element"),
        (TagOptions::default(), "it`s <think>no</think>fine", "it`s fine"),
        (TagOptions::default(), "`a` ``b ` <think>`` c", "`a` ``b ` <think>`` c"),
        (TagOptions::default(), "```html\n<think>\n```\n<think>no</think>x", "```html\n<think>\n```\nx"),
        (TagOptions::default(), "~~~\n<think>\n~~~\n<think>no</think>x", "~~~\n<think>\n~~~\nx"),
        (TagOptions::default(), "<think>```\nopen code</think>answer", "answer"),
        (TagOptions::default(), "<think>say `</think>` then</think>answer", "answer"),
        (
            TagOptions::default(),
            "<think>use a ` tick</think>Answer with `code` here",
            "Answer with `code` here",
        ),
        (TagOptions::default(), "<think>two `` ticks</think>Answer ``x``", "Answer ``x``"),
        (TagOptions::default(), "<think>a `b` and ` c</think>``x`` `y`", "``x`` `y`"),
        (TagOptions::default(), "<think>a ` b</think>an odd ` tick", "an odd ` tick"),
        (TagOptions::default(), "<think>in ```\n</think>\n``` code</think>yes", "yes"),
        (TagOptions::default(), "<think>```\nlet a;</think>```\nlet b;\n```", "```\nlet b;\n```"),
        (TagOptions::default(), "<think>`<think>a</think>` is one</think>yes", "yes"),
        (
            TagOptions::default(),
            "<think>wrap it like `x <think>a</think>` and so on</think>Answer with `code` here.",
            "Answer with `code` here.",
        ),
        (
            TagOptions::default(),
            "<think>Format:\n```html\n<think>plan</think>\nHello\n```\nSo I explain.</think>Answer",
            "Answer",
        ),
        (TagOptions::default(), "<think>as\n```html\n<think>a\n\n</think>\n```\nis</think>yes", "yes"),
        (TagOptions::default(), "<think>as\n```html\n</think>\n```\nis</think>yes", "yes"),
        (TagOptions::default(), "<think>a ``` b <think>c</think> d</think>yes ```", "yes ```"),
        (
            TagOptions::default(),
            "I look.\n[Tool Call: read (ID: 7)]\nArguments: {\"a\":\"}\\\"\"}\nDone",
            "I look.\n\nDone",
        ),
        (TagOptions::default(), "one[tool call: x]two", "one two"),
        (TagOptions::default(), "[Tool Result for ID 7] {\"a\":{}} yes", " yes"),
        (TagOptions::default(), "[Tool Call: x]\nArgued so: {y}", "\nArgued so: {y}"),
        (TagOptions::default(), "`[Tool Call: x]` is code", "`[Tool Call: x]` is code"),
        (
            TagOptions::default(),
            "[Tool Results] and [Tool Call x] [Tool",
            "[Tool Results] and [Tool Call x] [Tool",
        ),
        (TagOptions::default(), "[Tool Call: half", "[Tool Call: half"),
        (
            TagOptions::default(),
            "See [Tool call: design](https://e.com/x), [tool call: b][1] and [Tool Result c][",
            "See [Tool call: design](https://e.com/x), [tool call: b][1] and [Tool Result c][",
        ),
        (TagOptions::default(), "one [Tool Call: a][Tool Result b] (two)", "one  (two)"),
        (
            TagOptions::default(),
            "[Tool Call: read] {\"path\": \"a and there it stopped. <think>x</think>So: {}",
            "[Tool Call: read] {\"path\": \"a and there it stopped. So: {}",
        ),
        (TagOptions::default(), "[[Tool Call: x]] stays", "[[Tool Call: x]] stays"),
        (TagOptions::default(), "leaked reasoning</think> Answer", "Answer"),
        (TagOptions::default(), "kept</think>  ", "kept"),
    ] {
        let splits = text.char_indices().map(|(at, _)| at).chain([text.len()]);
        for at in splits {
            let segments = stripped(options, &[text[..at].to_owned(), text[at..].to_owned()]);
            assert_eq!(shown(&segments).trim_end(), expected.trim_end(), "{text:?} at {at}");
        }
    }
}

#[test]
fn visible_text_arrives_as_soon_as_it_is_certain() {
    let mut stripper = TagStripper::new(TagOptions::default());
    assert_eq!(stripper.push("Hello wor"), [Segment::Text("Hello wor".to_owned())]);
    assert_eq!(stripper.push("ld <"), [Segment::Text("ld ".to_owned())]);
    assert_eq!(stripper.push("b"), [Segment::Text("<b".to_owned())]);
    assert_eq!(stripper.push("<think>x"), []);
    assert_eq!(stripper.push("</think"), []);
    assert_eq!(stripper.push(">y"), [Segment::Text("y".to_owned())]);
}

#[test]
fn half_a_tag_at_the_end_is_text() {
    for text in ["a<", "a</", "a<thin", "a<think", "a<think b", "a<|x", "a`b", "a```"] {
        assert_eq!(shown(&stripped(TagOptions::default(), &[text.to_owned()])), text);
    }
}

#[test]
fn hostile_texts_hold_back_little_and_end_soon() {
    for unit in [
        "<",
        "`",
        "<think ",
        "` ",
        "``a`",
        "</",
        "<|",
        "a\n`",
        "<think>",
        "</think>",
        "```\n",
        "~~~",
        "\u{0}",
        "<tool_call> ",
        "[Tool Call:]{",
    ] {
        let text = unit.repeat((1 << 17) / unit.len());
        let mut stripper = TagStripper::new(TagOptions::default());
        let mut length = 0;
        for piece in pieces(&text, &[64]) {
            for segment in stripper.push(&piece) {
                if let Segment::Text(text) | Segment::Code(text) = segment {
                    length += text.len();
                }
            }
        }
        assert!(length <= text.len(), "{unit:?}");
        drop(visible_text(&text, TagOptions::default()));
    }
}

#[test]
fn calls_without_an_end_are_looked_for_some_times() {
    let stripped = |text: &str| shown(&stripped(TagOptions::default(), &[text.to_owned()]));
    let call = "[Tool Call: y] {}";
    let open = |times: usize| "[Tool Call: x] {\"".repeat(times);
    assert_eq!(stripped(&format!("{}{call}", open(14))), open(14));
    assert_eq!(stripped(&format!("{}{call}", open(40))), open(40) + call);
}

fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "<think>",
        "</think>",
        "<thinking a=1>",
        "</ thinking>",
        "<final>",
        "</final>",
        "<final/>",
        "`",
        "``",
        "```",
        "```\n",
        "\n",
        "\n\n",
        "~~~\n",
        "<",
        "</",
        "<th",
        "ink>",
        ">",
        "word",
        " ",
        "<|end|>",
        "<|",
        "|>",
        "<tool_call>",
        "{\"a\":1}",
        "</tool_call>",
        "<relevant-memories>",
        "</relevant-memories>",
        "é",
        "😀",
        "\u{0}",
        "<b>",
        "[Tool Call: read]",
        "[Tool ",
        "Call:",
        "Result x",
        "]",
        "(",
        "Arguments: ",
        "{\"",
        "}",
        "    ",
        "\r\n",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn splits_change_nothing(
        text in prop_oneof![6 => soup(), 1 => any::<String>(), 1 => soup().prop_map(|text| text.repeat(60))],
        sizes in sizes(),
        enforce_final in any::<bool>(),
    ) {
        let options = TagOptions { enforce_final };
        let whole = stripped(options, std::slice::from_ref(&text));
        prop_assert_eq!(stripped(options, &pieces(&text, &sizes)), whole);
    }

    /// Whatever backticks are in it and in the answer.
    #[test]
    fn reasoning_that_ends_does_not_leak(
        reasoning in "[a-z` \n~]{0,60}x",
        answer in "[a-z` \n]{0,60}",
        sizes in sizes(),
    ) {
        let text = format!("<think>{reasoning}</think>{answer}");
        let expected = stripped(TagOptions::default(), std::slice::from_ref(&answer));
        prop_assert_eq!(stripped(TagOptions::default(), &pieces(&text, &sizes)), expected);
    }

    /// Also where its code has such reasoning in it, and on both ways.
    #[test]
    fn reasoning_with_reasoning_in_code_does_not_leak(
        code in prop::collection::vec(("`{1,3}", "[a-z \n]{0,9}x", "[a-z \n]{0,9}", "[a-z \n]{0,9}x", any::<bool>()), 0..5),
        answer in "[a-z` \n]{0,60}",
        sizes in sizes(),
    ) {
        let mut reasoning = "plan".to_owned();
        for (marks, before, inner, behind, is_fence) in code {
            let code = format!("{before}<think>{inner}</think>{behind}");
            reasoning.push_str(&match is_fence {
                true => format!("\n{marks}``html\n{code}\n{marks}``\n"),
                false => format!(" {marks}{}{marks} ", code.replace('\n', " ")),
            });
            reasoning.push_str("so on");
        }
        let text = format!("<think>{reasoning}</think>{answer}");
        let expected = stripped(TagOptions::default(), std::slice::from_ref(&answer));
        let whole = visible_text(&text, TagOptions::default());
        prop_assert_eq!(whole, shown(&expected).trim().to_owned());
        prop_assert_eq!(stripped(TagOptions::default(), &pieces(&text, &sizes)), expected);
    }

    #[test]
    fn text_without_marks_is_unchanged(text in "[^<`\\[]*", sizes in sizes()) {
        prop_assert_eq!(shown(&stripped(TagOptions::default(), &pieces(&text, &sizes))), text);
    }
}
