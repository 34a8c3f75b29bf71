//! Answers on their way to blocks.

use proptest::prelude::*;
use quipu_outbound::{
    BreakPreference, ChunkOptions, CoalesceOptions, DrainPoint, MediaCheck, Outbox, PacingOptions, ReplyMode,
    ReplyStream, ReplyTarget, StreamInput, StreamOptions, StreamOutput,
};

use crate::splits::{pieces, sizes};
use StreamInput::{
    MessageDropped, MessageEnded, MessageStarted, Reasoning, RunEnded, Text, TextEnded, Tick, ToolStarted,
};

fn options() -> StreamOptions {
    let chunks = ChunkOptions { min: 10, max: 40, ..ChunkOptions::default() };
    StreamOptions { chunks, ..StreamOptions::default() }
}

fn stream(options: StreamOptions) -> ReplyStream {
    ReplyStream::new("run".into(), options)
}

/// Outputs in short: texts, `+media`, `>reply`, `|` for a flush, `.` for the end of a message, `~` for a silent one.
fn short(outputs: &[StreamOutput]) -> Vec<String> {
    outputs
        .iter()
        .map(|output| match output {
            StreamOutput::Block { block, .. } => {
                let mut line = block.text.clone();
                for media in &block.media {
                    line += &format!("+{media}");
                }
                if block.voice {
                    line += "+voice";
                }
                match &block.reply_to {
                    Some(ReplyTarget::Current) => line += ">current",
                    Some(ReplyTarget::Id(id)) => line += &format!(">{id}"),
                    None => {}
                }
                line
            }
            StreamOutput::Flushed => "|".to_owned(),
            StreamOutput::Closed { silent: false, .. } => ".".to_owned(),
            StreamOutput::Closed { silent: true, .. } => "~".to_owned(),
        })
        .collect()
}

fn run(options: StreamOptions, inputs: &[StreamInput<'_>]) -> Vec<String> {
    let mut stream = stream(options);
    inputs.iter().flat_map(|input| short(&stream.on(*input, 0))).collect()
}

const END: StreamInput<'static> = MessageEnded { text: None };

#[test]
fn blocks_leave_while_the_answer_streams() {
    let mut stream = stream(options());
    stream.on(MessageStarted, 0);
    assert_eq!(short(&stream.on(Text("The first sent"), 1)), Vec::<String>::new());
    assert_eq!(short(&stream.on(Text("ence. The second"), 2)), ["The first sentence."]);
    assert_eq!(stream.preview(), "The first sentence. The second");
    assert_eq!(short(&stream.on(TextEnded { content: None }, 3)), ["The second"]);
    assert_eq!(short(&stream.on(END, 4)), ["."]);
}

#[test]
fn message_end_drains_all_at_once() {
    let options = StreamOptions { drain: DrainPoint::MessageEnd, ..options() };
    let inputs = [MessageStarted, Text("The first sentence. Next"), TextEnded { content: None }];
    assert_eq!(run(options.clone(), &inputs), Vec::<String>::new());
    let all = [inputs.as_slice(), &[Text("another text"), END]].concat();
    assert_eq!(run(options, &all), ["The first sentence. Next\n\nanother text", "."]);
}

#[test]
fn text_that_is_repeated_at_its_end_is_sent_once() {
    for (content, expected) in [
        (Some("Hello wor"), "Hello wor"),
        (Some("Hello world"), "Hello world"),
        (Some("Hello"), "Hello wor"),
        (Some("Other"), "Hello wor"),
        (None, "Hello wor"),
    ] {
        let inputs = [MessageStarted, Text("Hello wor"), TextEnded { content }, END];
        assert_eq!(run(options(), &inputs), [expected, "."]);
    }
    // A message whose text did not stream, and one that is repeated whole.
    assert_eq!(run(options(), &[MessageStarted, MessageEnded { text: Some("Hello") }]), ["Hello", "."]);
    let inputs = [
        MessageStarted,
        Text("Hello"),
        TextEnded { content: Some("Hello") },
        MessageEnded { text: Some("Hello") },
    ];
    assert_eq!(run(options(), &inputs), ["Hello", "."]);
}

#[test]
fn text_leaves_before_a_tool_starts() {
    for drain in [DrainPoint::TextEnd, DrainPoint::MessageEnd] {
        let coalesce = Some(CoalesceOptions { min: 30, max: 40, idle_ms: 1000 });
        let options = StreamOptions { drain, coalesce, ..options() };
        let inputs =
            [MessageStarted, Text("Let me look."), ToolStarted, END, MessageStarted, Text("Done"), END];
        assert_eq!(run(options, &inputs), ["Let me look.", "|", ".", "Done", "."]);
    }
}

#[test]
fn run_end_sends_what_arrived() {
    assert_eq!(run(options(), &[MessageStarted, Text("Half an ans"), RunEnded]), ["Half an ans", "."]);
    assert_eq!(run(options(), &[Text("No start"), RunEnded, RunEnded]), ["No start", "."]);
    assert_eq!(run(options(), &[RunEnded, Tick]), Vec::<String>::new());
}

#[test]
fn short_blocks_are_joined() {
    let coalesce = CoalesceOptions { min: 15, max: 40, idle_ms: 1000 };
    let chunks = ChunkOptions { min: 1, max: 40, flush_on_paragraph: true, ..ChunkOptions::default() };
    let mut stream = stream(StreamOptions { chunks, coalesce: Some(coalesce), ..StreamOptions::default() });
    stream.on(MessageStarted, 0);
    assert_eq!(stream.on(Text("One\n\nTwo\n\nThree"), 100), []);
    assert_eq!(stream.deadline(), None, "too short for an idle moment");
    assert_eq!(stream.on(Text("\n\nFour five six\n\nSe"), 200), []);
    assert_eq!(stream.deadline(), Some(1200));
    assert_eq!(stream.on(Tick, 1199), []);
    assert_eq!(short(&stream.on(Tick, 1200)), ["One\n\nTwo\n\nThree\n\nFour five six"]);
    assert_eq!(short(&stream.on(END, 1201)), ["Se", "."]);
}

#[test]
fn joined_blocks_never_exceed_their_length() {
    let coalesce = CoalesceOptions { min: 1, max: 12, idle_ms: 1000 };
    let chunks =
        ChunkOptions { min: 1, max: 12, preference: BreakPreference::Newline, flush_on_paragraph: true };
    let options = StreamOptions { chunks, coalesce: Some(coalesce), ..StreamOptions::default() };
    let inputs = [MessageStarted, Text("aaaa\n\nbbbb\n\ncccc\n\ndddddddddddd\n\ne"), END];
    assert_eq!(run(options, &inputs), ["aaaa\n\nbbbb", "cccc", "dddddddddddd", "e", "."]);
}

/// What stood between blocks stands between them again.
#[test]
fn joined_blocks_are_as_they_were_in_the_text() {
    let joined = |chunks: ChunkOptions, text: &str| {
        let coalesce = Some(CoalesceOptions { min: 1, max: 200, idle_ms: 1000 });
        let options = StreamOptions { chunks, coalesce, ..StreamOptions::default() };
        let mut stream = stream(options);
        stream.on(MessageStarted, 0);
        let mut outputs = Vec::new();
        for character in text.split_inclusive(' ') {
            outputs.extend(stream.on(Text(character), 0));
        }
        outputs.extend(stream.on(END, 0));
        short(&outputs)
    };
    let chunks = ChunkOptions { min: 10, max: 40, ..ChunkOptions::default() };
    for text in [
        "One sentence is here. Another one follows it. And the third.",
        "- the first item\n- the second item\n- the third item\n\n\nAnd a paragraph. Its end.",
        "| a table | of two |\n|---|---|\n| its row | and cell |\n| its row | and cell |",
        "```\nlet it = be;\n```\nThat was it, and no more of it than this.",
        "Some words:\n```rust\nlet first = 1;\nlet second = 2;\nlet third = 3;\n```\nThat was it.",
        "```\na long line of code without an end that is cut in its middle somewhere\n```",
        "Words.\n\n    let indented = code;\n    let more = of_it_in_a_very_long_line_here;\n",
    ] {
        assert_eq!(joined(chunks, text), [text.trim_end(), "."]);
    }
}

#[test]
fn pauses_stand_between_blocks_and_not_before_the_first() {
    let pacing = Some(PacingOptions { min_ms: 500, max_ms: 500 });
    let mut stream = stream(StreamOptions { pacing, ..options() });
    stream.on(MessageStarted, 0);
    assert_eq!(short(&stream.on(Text("The first sentence. The second"), 0)), ["The first sentence."]);
    assert_eq!(short(&stream.on(ToolStarted, 10)), Vec::<String>::new());
    assert_eq!(stream.deadline(), Some(500));
    // A clock that jumps back stands still; one that jumps forward ends the pause.
    assert_eq!(stream.on(Tick, -100_000), []);
    assert_eq!(stream.deadline(), Some(-100_000 + 490));
    assert_eq!(short(&stream.on(Tick, -100_000 + 490)), ["The second", "|"]);
    assert_eq!(stream.deadline(), None);
}

#[test]
fn pauses_follow_from_the_seed() {
    let pauses = |seed| {
        let pacing = Some(PacingOptions::natural());
        let mut stream = stream(StreamOptions { pacing, seed, ..options() });
        let mut times = Vec::new();
        for number in 0..20 {
            stream.on(MessageStarted, 0);
            stream.on(Text(&format!("Message {number}")), 0);
            stream.on(TextEnded { content: None }, 0);
        }
        while let Some(at) = stream.deadline() {
            times.push(at);
            stream.on(Tick, at);
        }
        times
    };
    let times = pauses(7);
    assert_eq!(times, pauses(7));
    assert_ne!(times, pauses(8));
    assert!(times.windows(2).all(|pair| (800..=2500).contains(&(pair[1] - pair[0]))), "{times:?}");
}

#[test]
fn final_reply_is_not_paced() {
    let pacing = Some(PacingOptions { min_ms: 500, max_ms: 500 });
    let options = StreamOptions { pacing, drain: DrainPoint::MessageEnd, ..options() };
    let text = "The first sentence is here. The second sentence is here. The third one.";
    assert_eq!(run(options, &[MessageStarted, Text(text), END]).len(), 4);
}

#[test]
fn silent_message_sends_nothing_but_its_media() {
    assert_eq!(
        run(options(), &[MessageStarted, Text("NO_"), Text("REPLY\n"), TextEnded { content: None }, END]),
        ["~"]
    );
    let inputs = [MessageStarted, Text("NO_REPLY\nMEDIA: /tmp/a.png"), END];
    assert_eq!(run(options(), &inputs), ["+/tmp/a.png", "~"]);
    let inputs = [MessageStarted, Text("All is done. NO_REPLY"), TextEnded { content: None }, END];
    assert_eq!(run(options(), &inputs), ["All is done.", "."]);
}

#[test]
fn reasoning_that_never_ends_is_sent_when_there_is_no_answer() {
    assert_eq!(run(options(), &[MessageStarted, Text("<think>only this"), END]), ["only this", "."]);
    assert_eq!(run(options(), &[MessageStarted, Text("<think>no</think>"), END]), ["."]);
    assert_eq!(run(options(), &[MessageStarted, Text("Yes <think>no"), END]), ["Yes", "."]);
}

#[test]
fn answer_that_was_taken_for_reasoning_keeps_its_directives() {
    let options =
        || StreamOptions { media_check: checked(true), reply_mode: ReplyMode::Explicit, ..options() };
    for (text, expected) in [
        (
            "<think>I end with `</think>`\n\n[[reply_to: 7]]Here is the plot:\nMEDIA: ./a.png",
            vec!["`\n\nHere is the plot:+/work/./a.png>7", "."],
        ),
        (
            "<think>Here is the plot:\n[[voice]]\nMEDIA: ./a.png\n",
            vec!["Here is the plot:+/work/./a.png+voice", "."],
        ),
        (
            "<think>Write `[[voice]]` or ./b.png:\nMEDIA: ./b.png",
            vec!["Write `[[voice]]` or ./b.png:+/work/./b.png", "."],
        ),
        ("MEDIA: ./a.png\n<think>no end of MEDIA: ./a.png", vec!["+/work/./a.png", "."]),
    ] {
        for drain in [DrainPoint::TextEnd, DrainPoint::MessageEnd] {
            let options = StreamOptions { drain, ..options() };
            assert_eq!(run(options, &[MessageStarted, Text(text), END]), expected, "{text}");
        }
    }
}

#[test]
fn leaked_reasoning_is_dropped_as_long_as_it_has_not_left() {
    let inputs = [MessageStarted, Text("I should"), Text("</think>"), Text("The answer"), END];
    assert_eq!(run(options(), &inputs), ["The answer", "."]);
    let mut stream = stream(options());
    stream.on(Text("I should</think>The"), 0);
    assert_eq!(stream.preview(), "The");
}

#[test]
fn reasoning_is_a_message_of_its_own_when_wanted() {
    let inputs = [MessageStarted, Reasoning("First\n"), Reasoning("then"), Text("Answer"), END];
    assert_eq!(run(options(), &inputs), ["Answer", "."]);
    let options = StreamOptions { reasoning: true, ..options() };
    assert_eq!(run(options, &inputs), ["Reasoning:\n_First_\n_then_", "Answer", "."]);
}

#[test]
fn media_go_with_the_text_before_them() {
    let inputs = [
        MessageStarted,
        Text(
            "See this:\nMEDIA: /tmp/a.png\nMEDIA: /tmp/b.png\nand more\n[[audio_as_voice]]\nMEDIA: /tmp/c.ogg",
        ),
        TextEnded { content: None },
        END,
    ];
    assert_eq!(
        run(options(), &inputs),
        ["See this:+/tmp/a.png+/tmp/b.png", "and more+/tmp/c.ogg+voice", "."]
    );
}

/// Only files in `/work`, which are named without it.
fn checked(is_there: bool) -> Option<MediaCheck> {
    let file = move |name: &str| (is_there && !name.starts_with('/')).then(|| format!("/work/{name}"));
    Some(MediaCheck::new(file))
}

#[test]
fn media_that_do_not_pass_the_check_stay_in_the_text() {
    let text = "Here it is:\nMEDIA: /etc/passwd\nMEDIA: ./b.png\nEnd.\nMEDIA: https://example.com/c.png";
    let inputs: Vec<_> =
        [MessageStarted].into_iter().chain(text.split_inclusive(' ').map(Text)).chain([END]).collect();
    for drain in [DrainPoint::TextEnd, DrainPoint::MessageEnd] {
        let chunks = ChunkOptions { min: 1, max: 200, ..ChunkOptions::default() };
        let options = StreamOptions { chunks, drain, media_check: checked(true), ..StreamOptions::default() };
        let sent = run(options, &inputs).join("\n").replace('\n', " ");
        let expected = "Here it is: MEDIA: /etc/passwd+/work/./b.png End.+https://example.com/c.png .";
        assert_eq!(sent, expected, "{drain:?}");
    }
}

#[test]
fn media_that_a_tool_sent_are_known_by_both_their_names() {
    let options = StreamOptions { media_check: checked(true), ..options() };
    for sent in ["img/a.png", "/work/img/a.png"] {
        let mut stream = stream(options.clone());
        stream.sent_texts().begin("call".into(), "", &[sent.to_owned()], None);
        stream.sent_texts().end(&"call".into(), false);
        stream.on(MessageStarted, 0);
        let outputs = stream.on(MessageEnded { text: Some("Look\nMEDIA: img/a.png\nMEDIA: img/b.png") }, 0);
        assert_eq!(short(&outputs), ["Look+/work/img/b.png", "."], "{sent}");
    }
}

#[test]
fn reply_tags_stick_and_the_mode_counts() {
    let inputs =
        [MessageStarted, Text("[[reply_to: 7]] One.\n\nTwo two two.\n\nThree"), END, Text("Next"), END];
    let chunks = ChunkOptions { min: 1, max: 40, flush_on_paragraph: true, ..ChunkOptions::default() };
    let with = |reply_mode| StreamOptions {
        chunks,
        reply_mode,
        current_message: Some("in".to_owned()),
        ..StreamOptions::default()
    };
    assert_eq!(run(with(ReplyMode::Off), &inputs), ["One.", "Two two two.", "Three", ".", "Next", "."]);
    assert_eq!(run(with(ReplyMode::First), &inputs), ["One.>7", "Two two two.", "Three", ".", "Next", "."]);
    assert_eq!(
        run(with(ReplyMode::All), &inputs),
        ["One.>7", "Two two two.>7", "Three>7", ".", "Next>in", "."]
    );
    assert_eq!(
        run(with(ReplyMode::Explicit), &inputs),
        ["One.>7", "Two two two.>7", "Three>7", ".", "Next", "."]
    );
    let inputs = [MessageStarted, Text("Hi [[reply_to_current]] there"), END];
    assert_eq!(run(with(ReplyMode::Explicit), &inputs), ["Hi there>in", "."]);
    let unknown = StreamOptions { current_message: None, ..with(ReplyMode::Explicit) };
    assert_eq!(run(unknown, &inputs), ["Hi there>current", "."]);
}

#[test]
fn texts_that_a_tool_sent_are_not_sent_again() {
    let mut stream = stream(StreamOptions { target: Some("chat/1".to_owned()), ..options() });
    stream.sent_texts().begin(
        "call".into(),
        "The report is ready now.",
        &["/tmp/r.pdf".to_owned()],
        Some("chat/2"),
    );
    stream.sent_texts().end(&"call".into(), false);
    stream.on(MessageStarted, 0);
    let outputs = stream.on(MessageEnded { text: Some("The report is READY now.\nMEDIA: /tmp/r.pdf") }, 0);
    assert_eq!(short(&outputs), ["."]);
    stream.on(MessageStarted, 0);
    assert_eq!(short(&stream.on(MessageEnded { text: Some("Something else") }, 0)), ["Something else", "."]);
    // A final reply to the chat that a tool wrote to is dropped whole.
    let mut stream = ReplyStream::new(
        "run".into(),
        StreamOptions { target: Some("chat/1".to_owned()), drain: DrainPoint::MessageEnd, ..options() },
    );
    stream.sent_texts().begin("call".into(), "Hi", &[], Some("chat/1"));
    stream.sent_texts().end(&"call".into(), false);
    assert_eq!(short(&stream.on(MessageEnded { text: Some("Something else") }, 0)), ["."]);
}

#[test]
fn text_repeated_after_a_tool_is_cut_to_what_is_new() {
    let inputs = [
        MessageStarted,
        Text("Results so far:"),
        END,
        ToolStarted,
        MessageStarted,
        Text("Results so far:\nall green"),
        END,
    ];
    assert_eq!(run(options(), &inputs), ["Results so far:", ".", "|", "all green", "."]);
}

#[test]
fn dropped_answer_is_continued_by_the_next_attempt() {
    let mut stream = stream(options());
    stream.on(MessageStarted, 0);
    assert_eq!(short(&stream.on(Text("The first sentence. The sec"), 0)), ["The first sentence."]);
    let key = stream.key();
    assert_eq!(stream.on(MessageDropped, 0), []);
    stream.on(MessageStarted, 0);
    assert_eq!(stream.key(), key, "a retry has the same key");
    let outputs = stream.on(MessageEnded { text: Some("The first sentence. The second one.") }, 0);
    assert_eq!(short(&outputs), ["The second one.", "."]);
    assert!(matches!(&outputs[0], StreamOutput::Block { part: 1, key: second, .. } if *second == key));
    // An answer that differs is sent whole, also one that is shorter.
    for other in ["Quite different", "Another"] {
        stream.on(MessageStarted, 0);
        assert_eq!(short(&stream.on(Text("Another sentence here. x"), 0)), ["Another sentence here."]);
        stream.on(MessageDropped, 0);
        stream.on(MessageStarted, 0);
        let outputs = stream.on(MessageEnded { text: Some(other) }, 0);
        assert_eq!(short(&outputs), [other, "."]);
    }
}

#[test]
fn answer_that_is_dropped_again_and_again_is_sent_once() {
    let text = "The first sentence. The second one. The third one.";
    for cuts in
        [&["The first sentence. The second one. Th", "", "The fi", "The first sentence. The s"][..], &[text]]
    {
        let mut stream = stream(options());
        let mut outputs = Vec::new();
        for cut in cuts {
            outputs.extend(stream.on(MessageStarted, 0));
            outputs.extend(cut.split_inclusive(' ').flat_map(|word| stream.on(Text(word), 0)));
            outputs.extend(stream.on(MessageDropped, 0));
        }
        outputs.extend(stream.on(MessageStarted, 0));
        outputs.extend(text.split_inclusive(' ').flat_map(|word| stream.on(Text(word), 0)));
        outputs.extend(stream.on(END, 0));
        assert_eq!(short(&outputs), ["The first sentence.", "The second one.", "The third one.", "."]);
    }
    // A run that ends while an answer comes again adds nothing.
    let inputs = [
        MessageStarted,
        Text("The first sentence. Th"),
        MessageDropped,
        MessageStarted,
        Text("The f"),
        RunEnded,
    ];
    assert_eq!(run(options(), &inputs), ["The first sentence.", "."]);
}

#[test]
fn long_text_that_a_tool_sent_is_dropped_in_all_its_blocks() {
    let text = "The first sentence. The second one. The third one. The fourth one is the last of them.";
    let sent = || {
        let mut stream = stream(options());
        stream.sent_texts().begin("c".into(), text, &[], None);
        stream.sent_texts().end(&"c".into(), false);
        stream.on(MessageStarted, 0);
        stream
    };
    let outputs = |pieces: &[&str]| {
        let mut stream = sent();
        let mut outputs: Vec<_> = pieces.iter().flat_map(|piece| stream.on(Text(piece), 0)).collect();
        outputs.extend(stream.on(END, 0));
        short(&outputs)
    };
    let words: Vec<&str> = text.split_inclusive(' ').collect();
    assert_eq!(outputs(&words), ["."]);
    let more = [words.as_slice(), &["\n\nSomething new is said, too."]].concat();
    assert_eq!(outputs(&more), ["Something new is said, too.", "."]);
    // Less than half of it is an answer of its own.
    assert_eq!(outputs(&["The third one."]), ["The third one.", "."]);
    let other = ["The second one. The third one. ", "Another end of it all follows here."];
    assert_eq!(outputs(&other).concat().replace(' ', ""), other.concat().replace(' ', "") + ".");
    // What is asked for again was not sent.
    let mut stream = sent();
    stream.on(Text("The first sentence. The second one. "), 0);
    stream.on(MessageDropped, 0);
    stream.on(MessageStarted, 0);
    assert_eq!(
        short(&stream.on(MessageEnded { text: Some("The first sentence.") }, 0)),
        ["The first sentence.", "."]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Without code and directives, what is sent is the text, whatever the pieces, the sizes and the pauses.
    #[test]
    fn nothing_is_lost_on_the_way(
        words in prop::collection::vec("[a-z]{1,12}[.!,]?", 1..80),
        separators in prop::collection::vec(prop::sample::select(vec![" ", "\n", "\n\n", " <think>no</think>"]), 80),
        sizes in sizes(),
        min in 1_usize..30,
        more in 0_usize..60,
        coalesce in prop::option::of((1_usize..40, 1_usize..90)),
        at_message_end in any::<bool>(),
        repeated in any::<bool>(),
        tick in 0_i64..3000,
    ) {
        let text: String = words.iter().zip(separators.iter().cycle()).flat_map(|(word, separator)| [word.as_str(), separator]).collect();
        let max = min + more;
        let options = StreamOptions {
            chunks: ChunkOptions { min, max, ..ChunkOptions::default() },
            coalesce: coalesce.map(|(min, most)| CoalesceOptions { min, max: most.min(max), idle_ms: 1000 }),
            pacing: Some(PacingOptions::natural()),
            drain: if at_message_end { DrainPoint::MessageEnd } else { DrainPoint::TextEnd },
            ..StreamOptions::default()
        };
        let mut stream = stream(options);
        let mut at = 0;
        let mut outputs = stream.on(MessageStarted, at);
        for piece in pieces(&text, &sizes) {
            at += tick;
            outputs.extend(stream.on(Text(&piece), at));
            outputs.extend(stream.on(Tick, at));
        }
        outputs.extend(stream.on(TextEnded { content: repeated.then_some(text.as_str()) }, at));
        outputs.extend(stream.on(MessageEnded { text: repeated.then_some(text.as_str()) }, at));
        outputs.extend(stream.on(RunEnded, at));
        while let Some(deadline) = stream.deadline() {
            outputs.extend(stream.on(Tick, deadline));
        }
        let mut sent = String::new();
        for (index, output) in outputs.iter().enumerate() {
            match output {
                StreamOutput::Block { part, block, .. } => {
                    prop_assert_eq!(*part as usize, index);
                    prop_assert!(quipu_outbound::units(&block.text) <= max.max(2));
                    sent.push_str(&block.text);
                }
                StreamOutput::Closed { .. } => prop_assert_eq!(index + 1, outputs.len()),
                StreamOutput::Flushed => {}
            }
        }
        let plain = |text: &str| text.replace("<think>no</think>", "").split_whitespace().collect::<String>();
        prop_assert_eq!(plain(&sent), plain(&text));
    }
}

/// What is recorded of a reply by outputs, and its blocks.
fn recorded(outbox: &mut Outbox, outputs: Vec<StreamOutput>) -> Vec<String> {
    let mut texts = Vec::new();
    for output in outputs {
        match output {
            StreamOutput::Block { key, part, block } => {
                texts.push(block.text.clone());
                assert_eq!(outbox.record(&key, part, block), Ok(true));
            }
            StreamOutput::Closed { key, .. } => outbox.close(&key),
            StreamOutput::Flushed => {}
        }
    }
    texts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// The process ends while an answer arrives; the next one is given another, of which an attempt breaks off as well.
    #[test]
    fn another_answer_after_a_crash_is_sent_whole(
        first in "[a-z]{1,9}( [a-z]{1,9}){0,30}",
        second in "[A-Z]{1,9}( [A-Z]{1,9}){0,30}",
        common in 0_usize..120,
        sizes in sizes(),
        crash in 0_usize..200,
        breaks in 0_usize..200,
    ) {
        let second = format!("{}{second}", &first[..common.min(first.len())]);
        let mut outbox = Outbox::new();
        let mut stream = stream(options());
        let mut before = recorded(&mut outbox, stream.on(MessageStarted, 0));
        for piece in pieces(&first, &sizes).iter().take(crash) {
            before.extend(recorded(&mut outbox, stream.on(Text(piece), 0)));
        }
        let progress = outbox.progress(&stream.key());
        let left = first[..progress.end].to_owned();
        let mut stream = ReplyStream::new("run".into(), options());
        let next = stream.next_key();
        prop_assert_eq!(next.as_str(), "run/0");
        stream.resume_next(progress);
        let mut after = recorded(&mut outbox, stream.on(MessageStarted, 0));
        for piece in pieces(&second, &sizes).iter().take(breaks) {
            after.extend(recorded(&mut outbox, stream.on(Text(piece), 0)));
        }
        after.extend(recorded(&mut outbox, stream.on(MessageDropped, 0)));
        after.extend(recorded(&mut outbox, stream.on(MessageStarted, 0)));
        for piece in &pieces(&second, &sizes) {
            after.extend(recorded(&mut outbox, stream.on(Text(piece), 0)));
        }
        after.extend(recorded(&mut outbox, stream.on(END, 0)));
        let words = |texts: &[String]| texts.join(" ").split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let plain = |text: &str| text.split_whitespace().collect::<String>();
        if second.starts_with(&left) {
            prop_assert_eq!(plain(&words(&before).concat()) + &words(&after).concat(), plain(&second));
        } else {
            prop_assert_eq!(words(&after).concat(), plain(&second));
        }
        prop_assert!(outbox.replies().iter().all(|reply| reply.closed));
    }
}

#[test]
fn another_answer_after_a_crash_has_its_own_media() {
    let media = |name: &str| format!("MEDIA: https://example.org/{name}.png\n");
    let first = format!("Look at this one first.\n\n{}\nAnd then at what follows behind it.\n", media("a"));
    let mut outbox = Outbox::new();
    let mut stream = stream(options());
    recorded(&mut outbox, stream.on(MessageStarted, 0));
    recorded(&mut outbox, stream.on(Text(&first), 0));
    recorded(&mut outbox, stream.on(ToolStarted, 0));
    let progress = outbox.progress(&stream.key());
    assert_eq!(progress.media, 1);
    let again = |text: &str| {
        let mut stream = ReplyStream::new("run".into(), options());
        stream.resume_next(progress.clone());
        let inputs = [MessageStarted, Text(text), END];
        inputs.iter().flat_map(|input| short(&stream.on(*input, 0))).collect::<Vec<_>>()
    };
    let sent = again(&format!("Other words.\n\n{}\nThe end.", media("b")));
    assert!(
        sent.concat().contains("Other words.") && sent.concat().contains("+https://example.org/b.png"),
        "{sent:?}"
    );
    let more = again(&format!("{first}\nAnd last:\n\n{}", media("b")));
    assert!(
        !more.concat().contains("a.png") && more.concat().contains("+https://example.org/b.png"),
        "{more:?}"
    );
    assert!(!more.concat().contains("Look at"), "{more:?}");
}

/// What is sent of an answer before a crash in its middle, and behind it. A tool sent `./a.png` before.
fn sent_around_a_crash(before: &str, behind: &str) -> [Vec<String>; 2] {
    let begun = || {
        let mut stream = stream(StreamOptions { media_check: checked(true), ..options() });
        stream.sent_texts().begin("call".into(), "", &["./a.png".to_owned()], None);
        stream.sent_texts().end(&"call".into(), false);
        stream
    };
    let (mut stream, mut outbox) = (begun(), Outbox::new());
    let mut outputs = stream.on(MessageStarted, 0);
    // Piece by piece, so that what turns out to be reasoning was media before.
    outputs.extend(before.split_inclusive('\n').flat_map(|piece| stream.on(Text(piece), 0)));
    outputs.extend(stream.on(ToolStarted, 0));
    let sent = short(&outputs);
    recorded(&mut outbox, outputs);
    let mut next = begun();
    next.resume_next(outbox.progress(&stream.key()));
    let whole = format!("{before}{behind}");
    let inputs = [MessageStarted, Text(&whole), END];
    [sent, inputs.iter().flat_map(|input| short(&next.on(*input, 0))).collect()]
}

#[test]
fn media_are_sent_once_though_others_were_left_out() {
    let many = "MEDIA: ./a.png\nMEDIA: ./b.png\nHere is the text.\n";
    let [before, behind] = sent_around_a_crash(many, "MEDIA: ./c.png\nAnd more.");
    assert_eq!(before, ["+/work/./b.png", "Here is the text.", "|"]);
    assert_eq!(behind, ["+/work/./c.png", "And more.", "."]);
    let leaked = "So:\nMEDIA: ./l.png\n</think>\nLook:\nMEDIA: ./b.png\nHere is the text.\n";
    let [before, behind] = sent_around_a_crash(leaked, "MEDIA: ./c.png\nAnd more.");
    assert_eq!(before, ["Look:+/work/./b.png", "Here is the text.", "|"]);
    assert_eq!(behind, ["+/work/./c.png", "And more.", "."]);
}

#[test]
fn media_of_the_answer_before_do_not_count_for_another() {
    let line = |name: &str| format!("MEDIA: https://example.org/{name}.png\n");
    let first = format!("Look at these two.\n{}{}And so on and on.\n", line("a"), line("b"));
    let second = format!("Other words begin.\n{}And so on and on.\n", line("c"));
    let mut outbox = Outbox::new();
    let mut behind = Vec::new();
    for text in [&first, &second, &format!("{second}{}The end.", line("d"))] {
        let mut stream = stream(options());
        stream.resume_next(outbox.progress(&stream.next_key()));
        let inputs = [MessageStarted, Text(text), ToolStarted];
        let outputs: Vec<_> = inputs.iter().flat_map(|input| stream.on(*input, 0)).collect();
        behind = short(&outputs);
        recorded(&mut outbox, outputs);
    }
    assert_eq!(behind, ["+https://example.org/d.png", "The end.", "|"]);
}

/// What is sent behind a crash of an answer that names a file, which is there before it or behind it.
fn sent_again(is_there: [bool; 2], second: &str) -> (Vec<String>, Vec<String>) {
    let first = "Look at this one first.\n\nMEDIA: ./a.png\n\nAnd then at what follows behind it.\n";
    let with = |is_there| StreamOptions { media_check: checked(is_there), ..options() };
    let mut outbox = Outbox::new();
    let mut stream = stream(with(is_there[0]));
    let mut outputs = stream.on(MessageStarted, 0);
    outputs.extend(stream.on(Text(first), 0));
    outputs.extend(stream.on(ToolStarted, 0));
    let before = short(&outputs);
    recorded(&mut outbox, outputs);
    let key = stream.key();
    let stored = serde_json::to_string(&outbox.progress(&key)).unwrap();
    let mut stream = ReplyStream::new("run".into(), with(is_there[1]));
    stream.resume_next(serde_json::from_str(&stored).unwrap());
    let second = format!("{first}{second}");
    let inputs = [MessageStarted, Text(&second), END];
    (before, inputs.iter().flat_map(|input| short(&stream.on(*input, 0))).collect())
}

#[test]
fn answer_goes_on_though_its_files_came_or_went() {
    for is_there in [[true, true], [true, false], [false, true], [false, false]] {
        let (before, after) = sent_again(is_there, "And last of all this.");
        let names = before.concat();
        assert_eq!(names.contains("+/work/./a.png"), is_there[0], "{before:?}");
        assert_eq!(names.contains("MEDIA:"), !is_there[0], "{before:?}");
        assert_eq!(after, ["And last of all this.", "."], "{is_there:?}");
    }
}

#[test]
fn file_that_went_is_not_sent_with_another_answer() {
    let options = |is_there| StreamOptions { media_check: checked(is_there), ..options() };
    let mut outbox = Outbox::new();
    let mut stream = stream(options(true));
    recorded(&mut outbox, stream.on(MessageStarted, 0));
    recorded(&mut outbox, stream.on(Text("Look at this one.\n\nMEDIA: ./a.png\nmore"), 0));
    recorded(&mut outbox, stream.on(ToolStarted, 0));
    let progress = outbox.progress(&stream.key());
    assert_eq!(progress.media, 1);
    let mut stream = ReplyStream::new("run".into(), options(false));
    stream.resume_next(progress);
    let inputs = [MessageStarted, Text("Another one.\n\nMEDIA: ./a.png\nMEDIA: ./b.png\n"), END];
    let sent: Vec<_> = inputs.iter().flat_map(|input| short(&stream.on(*input, 0))).collect();
    assert_eq!(sent, ["Another one.", "MEDIA: ./b.png", "."]);
}
