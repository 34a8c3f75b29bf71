//! Chunks of known texts.

use quipu_outbound::{BreakPreference, Chunk, ChunkOptions, Chunker, units};

use BreakPreference::{Newline, Paragraph, Sentence};

fn options(min: usize, max: usize, preference: BreakPreference) -> ChunkOptions {
    ChunkOptions { min, max, preference, flush_on_paragraph: false }
}

fn texts(chunks: &[Chunk]) -> Vec<&str> {
    chunks.iter().map(|chunk| chunk.text.as_str()).collect()
}

fn chunked(options: ChunkOptions, text: &str) -> Vec<Chunk> {
    let mut chunker = Chunker::new(options);
    chunker.append(text);
    let mut chunks = chunker.drain();
    chunks.extend(chunker.finish());
    chunks
}

fn check(options: ChunkOptions, text: &str, expected: &[&str]) {
    let chunks = chunked(options, text);
    assert_eq!(texts(&chunks), expected, "{options:?} {text:?}");
    for chunk in &chunks {
        assert!(units(&chunk.text) <= options.max, "{chunk:?}");
    }
}

#[test]
fn observed_outputs_are_those_of_the_reference() {
    check(
        options(5, 25, Paragraph),
        "First block line\n\nSecond block line",
        &["First block line", "Second block line"],
    );
    check(
        options(5, 30, Sentence),
        "One two three. Four five six. Seven eight nine ten",
        &["One two three. Four five six.", "Seven eight nine ten"],
    );
    check(options(2, 10, Paragraph), "abcdefghijklmnopqrst", &["abcdefghij", "klmnopqrst"]);
    check(options(2, 10, Paragraph), "abcd efgh ijkl", &["abcd efgh", "ijkl"]);
    check(options(3, 12, Newline), "aaaa\nbbbb\ncccc\ndddd", &["aaaa\nbbbb", "cccc\ndddd"]);
    let x18 = format!("```json\n{}\n```", "x".repeat(18));
    check(
        options(10, 30, Paragraph),
        &format!("```json\n{}\n```", "x".repeat(60)),
        &[&x18, &x18, &x18, "```json\nxxxxxx\n```"],
    );
    check(
        options(5, 25, Newline),
        "~~~sh\nalpha\nbeta\ngamma\ndelta\n~~~\nEnd",
        &["~~~sh\nalpha\nbeta\ngamm\n~~~", "~~~sh\na\ndelta\n~~~", "End"],
    );
}

#[test]
fn paragraphs_are_flushed_before_the_text_ends() {
    let mut chunker = Chunker::new(ChunkOptions { flush_on_paragraph: true, ..options(1, 100, Paragraph) });
    let mut chunks = Vec::new();
    for piece in ["Intro", "\n\nBody text", "\n\nTail"] {
        chunker.append(piece);
        chunks.extend(chunker.drain());
    }
    assert_eq!(texts(&chunks), ["Intro", "Body text"]);
    assert_eq!(texts(&chunker.finish()), ["Tail"]);
}

#[test]
fn short_text_waits_for_its_end() {
    let mut chunker = Chunker::new(options(50, 100, Paragraph));
    chunker.append("hi");
    assert_eq!(chunker.drain(), []);
    assert!(chunker.has_text());
    assert_eq!(texts(&chunker.finish()), ["hi"]);
    assert!(!chunker.has_text());
}

#[test]
fn forced_text_that_fits_is_unchanged() {
    for text in ["  a\n\nb. c\n", "```\nopen", "a\r\n\r\nb", "\u{0}x", "one.\ntwo.\n\nthree."] {
        let mut chunker = Chunker::new(options(10, 100, Paragraph));
        chunker.append(text);
        assert_eq!(texts(&chunker.finish()), [text]);
    }
}

#[test]
fn paragraph_breaks_leave_no_line_breaks_behind() {
    check(
        options(4, 20, Paragraph),
        "First part\n\n\n\nSecond part\n\nThird part",
        &["First part", "Second part", "Third part"],
    );
    check(options(4, 20, Paragraph), "First part\r\n\r\nSecond part", &["First part", "Second part"]);
    check(
        options(4, 20, Paragraph),
        "First part\n \t\n    code\nAfter it",
        &["First part", "    code\nAfter it"],
    );
    // The same when the second line break comes later.
    let mut chunker = Chunker::new(options(4, 20, Paragraph));
    let mut chunks = Vec::new();
    for character in "First part\n\n\nSecond part".chars() {
        chunker.append(&character.to_string());
        chunks.extend(chunker.drain());
    }
    chunks.extend(chunker.finish());
    assert_eq!(texts(&chunks), ["First part", "Second part"]);
}

#[test]
fn fences_keep_their_line_marker_and_indentation() {
    let code = "echo one two three four five six\n".repeat(4);
    for (open, close) in
        [("```bash", "```"), ("~~~sh", "~~~"), ("   ```text", "   ```"), ("`````c a", "`````")]
    {
        let chunks = chunked(options(10, 60, Paragraph), &format!("{open}\n{code}{close}\nEnd"));
        assert!(chunks.len() > 2, "{open}");
        for chunk in &chunks[..chunks.len() - 1] {
            assert!(chunk.text.starts_with(&format!("{open}\n")), "{chunk:?}");
            assert!(chunk.text.ends_with(&format!("\n{close}")), "{chunk:?}");
        }
        assert_eq!(chunks.last().map(|chunk| chunk.text.as_str()), Some("End"));
    }
}

#[test]
fn fence_that_fits_is_not_split() {
    check(
        options(5, 41, Paragraph),
        "Some words before it\n```\nlet a = 1;\n\nlet b = 2;\n```\nand after",
        &["Some words before it", "```\nlet a = 1;\n\nlet b = 2;\n```\nand after"],
    );
}

#[test]
fn block_that_ends_at_the_cut_is_not_opened_again() {
    // The closing line does not fit the chunk that has the last line of code.
    let block = format!("```\n{}\n```", "x".repeat(20));
    let text = format!("{block}\nAfter the block");
    check(options(5, 28, Newline), &text, &[&block, "After the block"]);
    let mut chunker = Chunker::new(options(5, 28, Newline));
    let mut chunks = Vec::new();
    for character in text.chars() {
        chunker.append(&character.to_string());
        chunks.extend(chunker.drain());
    }
    chunks.extend(chunker.finish());
    assert_eq!(texts(&chunks), [block.as_str(), "After the block"]);
}

#[test]
fn opening_line_that_is_too_long_is_repeated_without_language() {
    let text = format!("```{}\n{}\n```", "l".repeat(40), "x".repeat(60));
    let chunks = chunked(options(5, 40, Newline), &text);
    assert!(chunks[0].text.starts_with("```lll"));
    assert!(chunks[1..].iter().all(|chunk| chunk.text.starts_with("```\n")), "{chunks:?}");
    assert!(
        chunks.iter().all(|chunk| units(&chunk.text) <= 40 && chunk.text.ends_with("\n```")),
        "{chunks:?}"
    );
}

#[test]
fn sizes_too_small_for_a_fence_cut_it_plainly() {
    let chunks = chunked(options(1, 6, Newline), "```\nabcdefghijkl\n```");
    assert!(chunks.iter().all(|chunk| units(&chunk.text) <= 6 && chunk.reopened == 0 && chunk.closed == 0));
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), "```\nabcdefghijkl\n```");
}

#[test]
fn indented_code_is_cut_between_lines_only() {
    let text = format!("Text\n\n{}", "    let value = 1;\n".repeat(6));
    let chunks = chunked(options(10, 50, Paragraph), &text);
    for chunk in &chunks {
        assert!(
            chunk.text.lines().all(|line| line == "Text" || line.is_empty() || line == "    let value = 1;"),
            "{chunk:?}"
        );
    }
    // A line that is too long is continued as code.
    let chunks = chunked(options(10, 40, Paragraph), &format!("    {}", "y".repeat(100)));
    assert!(chunks.iter().all(|chunk| chunk.text.starts_with("    yyyy")), "{chunks:?}");
}

#[test]
fn sentence_is_not_cut_inside_a_number() {
    let mut chunker = Chunker::new(options(5, 40, Sentence));
    let mut chunks = Vec::new();
    for piece in ["The value is 3.", "14 and no more. It", " is known."] {
        chunker.append(piece);
        chunks.extend(chunker.drain());
    }
    chunks.extend(chunker.finish());
    assert_eq!(texts(&chunks), ["The value is 3.14 and no more.", "It is known."]);
}

#[test]
fn graphemes_stay_whole_where_they_fit() {
    let family = "👩\u{200d}👩\u{200d}👧\u{200d}👦";
    let width = units(family);
    let chunks = chunked(options(1, width + 3, Paragraph), &family.repeat(20));
    assert_eq!(texts(&chunks), vec![family; 20]);
    let accented = "e\u{301}\u{323}";
    let chunks = chunked(options(1, 10, Paragraph), &accented.repeat(20));
    assert!(chunks.iter().all(|chunk| chunk.text == accented.repeat(3) || chunk.text == accented.repeat(2)));
    // One that is longer than a message is cut between its characters.
    let chunks = chunked(options(1, 4, Paragraph), family);
    assert!(chunks.len() > 1 && chunks.iter().all(|chunk| units(&chunk.text) <= 4));
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), family);
    // A blank that carries a mark is not left out.
    let chunks = chunked(options(1, 8, Paragraph), "abcd \u{301}efghijkl");
    assert_eq!(chunks.iter().map(|chunk| chunk.text.as_str()).collect::<String>(), "abcd \u{301}efghijkl");
}

#[test]
fn spaces_that_forbid_a_break_are_not_broken_at() {
    check(options(2, 9, Paragraph), "ab 100\u{a0}km/h and", &["ab", "100\u{a0}km/h", "and"]);
}

#[test]
fn options_that_contradict_each_other_are_corrected() {
    let chunks = chunked(options(0, 0, Paragraph), "ab😀c");
    assert_eq!(texts(&chunks), ["ab", "😀", "c"]);
}

#[test]
fn limit_of_a_chat_lowers_both_lengths() {
    let limited = ChunkOptions::default().within(500);
    assert_eq!((limited.min, limited.max), (500, 500));
    let limited = ChunkOptions::default().within(0);
    assert_eq!((limited.min, limited.max), (1, 2));
}

#[test]
fn text_that_was_sent_before_opens_its_code_again() {
    let mut chunker = Chunker::new(options(5, 30, Newline));
    chunker.pass("Hello\n```rs\nlet a;\n");
    chunker.append("let b;\n```\n\nEnd of it");
    let chunks = chunker.finish();
    assert_eq!(texts(&chunks), ["```rs\nlet b;\n```", "End of it"]);
    let mut chunker = Chunker::new(options(5, 30, Newline));
    chunker.pass("Hello world.");
    chunker.append("\n\nMore");
    assert_eq!(texts(&chunker.finish()), ["More"]);
}

/// As behind a chunk of its own, wherever the sent text ended.
#[test]
fn text_behind_sent_text_begins_as_behind_a_chunk() {
    for (sent, rest, expected) in [
        // Within the blanks before a marker: in the chat it opens a block, so what follows is read that way.
        (&["List:\n", "   "][..], "  ```\nlet a;", &["```\nlet a;"][..]),
        (&["List:\n"], "  item", &["  item"]),
        (&["List:"], "\n  item", &["  item"]),
        (&["Code:\n\n    let a"], " = 1;", &["     = 1;"]),
        (&["Code:\n```rust"], "\nlet a;\n```\nEnd", &["```\n\nlet a;\n```", "End"]),
        (&["Code:\n``", "`ru"], "st\nlet a;\n```", &["```\nst\nlet a;\n```"]),
        (&["Code:\n```\nlet a;\n`", "``"], "\n\nEnd", &["End"]),
    ] {
        let mut chunker = Chunker::new(options(1, 40, Newline));
        sent.iter().for_each(|piece| chunker.pass(piece));
        chunker.append(rest);
        assert_eq!(texts(&chunker.finish()), expected, "{sent:?}, {rest:?}");
    }
}

/// Long texts in single characters, and at once: each character is read a few times, not once for each that follows.
#[test]
fn long_streams_are_read_in_linear_time() {
    let shapes: [&str; 9] = ["x", " ", "\n", "a. ", "word ", "`", "```\ncode\n```\n", "    code\n", "a\n\n"];
    for shape in shapes {
        for (pieces, length) in [(1, 1 << 16), (1 << 18, 1 << 18)] {
            let text: String = shape.chars().cycle().take(length).collect();
            for options in [
                ChunkOptions::default(),
                options(1, 1200, Paragraph),
                ChunkOptions { flush_on_paragraph: true, ..options(1, 4000, Newline) },
            ] {
                let mut chunker = Chunker::new(options);
                let mut start = 0;
                while start < text.len() {
                    let end = (start + pieces).min(text.len());
                    chunker.append(&text[start..end]);
                    drop(chunker.drain());
                    start = end;
                }
                drop(chunker.finish());
                let most = 12 * text.len() as u64 + 10_000;
                assert!(
                    chunker.work() <= most,
                    "{shape:?} {options:?}: {} for {}",
                    chunker.work(),
                    text.len()
                );
            }
        }
    }
}
