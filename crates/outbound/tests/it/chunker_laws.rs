//! Laws of chunks, for every text, every split of it and every size.

use proptest::prelude::*;
use quipu_outbound::{BreakPreference, Chunk, ChunkOptions, Chunker, units};

use crate::splits::{pieces, sizes};

fn soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "word",
        "two words",
        ". ",
        "! ",
        "? ",
        "\n",
        "\n\n",
        "\n \n",
        "\r\n",
        " ",
        "  ",
        "\t",
        "```",
        "```rust\n",
        "```\n",
        "\n```\n",
        "~~~",
        "~~~sh\n",
        "\n~~~\n",
        "  ```\n",
        "`code`",
        "`",
        "~",
        "    four\n",
        "\tcode\n",
        "    ",
        "é",
        "e\u{301}",
        "👩\u{200d}👧",
        "😀",
        "\u{0}",
        "\u{a0}",
        "\u{200b}",
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "- item\n",
        "````\n",
        "3.14",
        "、",
        "\u{2028}",
        "```` info string\n",
    ]);
    prop::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

fn preference() -> impl Strategy<Value = BreakPreference> {
    prop::sample::select(vec![
        BreakPreference::Paragraph,
        BreakPreference::Newline,
        BreakPreference::Sentence,
    ])
}

fn chunked(options: ChunkOptions, pieces: &[String]) -> Vec<Chunk> {
    let mut chunker = Chunker::new(options);
    let mut chunks = Vec::new();
    for piece in pieces {
        chunker.append(piece);
        chunks.extend(chunker.drain());
    }
    chunks.extend(chunker.finish());
    chunks
}

/// The marker of the fence that the text leaves open, read line by line.
fn open_fence(text: &str) -> Option<(char, usize)> {
    let mut open: Option<(char, usize)> = None;
    for line in text.split('\n') {
        let line = line.trim_end_matches('\r');
        let rest = line.trim_start_matches(' ');
        if line.len() - rest.len() > 3 {
            continue;
        }
        let Some(mark) = rest.chars().next().filter(|mark| matches!(mark, '`' | '~')) else { continue };
        let count = rest.chars().take_while(|character| *character == mark).count();
        let info = &rest[count..];
        match open {
            Some((opener, least)) => {
                let closes = mark == opener && count >= least && info.trim_matches([' ', '\t']).is_empty();
                open = open.filter(|_| !closes);
            }
            None if count >= 3 && !(mark == '`' && info.contains('`')) => open = Some((mark, count)),
            None => {}
        }
    }
    open
}

fn is_closing_line(text: &str) -> bool {
    let text = text.trim();
    text.len() >= 3
        && (text.chars().all(|character| character == '`') || text.chars().all(|character| character == '~'))
}

fn check_laws(options: ChunkOptions, text: &str, chunks: &[Chunk]) -> Result<(), TestCaseError> {
    let most = options.max.max(options.min).max(2);
    let mut at = 0;
    let mut closed = false;
    for chunk in chunks {
        prop_assert!(units(&chunk.text) <= most, "too long: {chunk:?}");
        prop_assert!(!chunk.text.trim().is_empty());
        let gap = &text[at..chunk.source.start];
        prop_assert!(
            gap.trim().is_empty() || (closed && is_closing_line(gap)),
            "lost {gap:?} before {chunk:?}"
        );
        let inner = &chunk.text[chunk.reopened..chunk.text.len() - chunk.closed];
        prop_assert_eq!(inner, &text[chunk.source.clone()]);
        let opened = &chunk.text[..chunk.reopened];
        prop_assert!(
            opened.is_empty() || opened == "    " || (opened.ends_with('\n') && open_fence(opened).is_some()),
            "opened with {opened:?}"
        );
        closed = chunk.closed > 0;
        if closed {
            prop_assert!(is_closing_line(&chunk.text[chunk.text.len() - chunk.closed..]));
        }
        at = chunk.source.end;
    }
    let gap = &text[at..];
    prop_assert!(gap.trim().is_empty() || (closed && is_closing_line(gap)), "lost {gap:?} at the end");
    Ok(())
}

/// Text that arrived after a cut within a line can begin with a marker: it opens a block in the chat, not in the text.
fn begins_with_marker(text: &str, chunk: &Chunk) -> bool {
    let before = &text[..chunk.source.start];
    chunk.text.trim_start().starts_with(['`', '~']) && !before.is_empty() && !before.ends_with('\n')
}

/// Each chunk closes what it opens; the last may end within a block.
fn check_fences(options: ChunkOptions, text: &str, chunks: &[Chunk]) -> Result<(), TestCaseError> {
    check_laws(options, text, chunks)?;
    let begins = chunks.iter().any(|chunk| begins_with_marker(text, chunk));
    for (index, chunk) in chunks.iter().enumerate() {
        let last = index + 1 == chunks.len();
        prop_assert!(
            open_fence(&chunk.text).is_none() || (last && (open_fence(text).is_some() || begins)),
            "open: {chunk:?} of {chunks:#?}"
        );
    }
    Ok(())
}

/// What chance found once.
#[test]
fn found_texts_keep_their_fences() {
    let (letters, many) = ("x".repeat(40), "word".repeat(22));
    let mixed = "、\0\n \n     four\n```\n \n\n \n\0~~~sh\n👩\u{200d}👧    four\n- item\n```    four\n\r\n~~~sh\n\n\n";
    for (text, size, min, max, preference) in [
        // A marker behind a blank that is left out where a message begins.
        (format!("  ```\n. {letters}. - item\n```\né`、```\n~~~. two words    four\n````\n        \0\n~~~\n\u{2028}```` info string\n{many}"), 1, 6, 110, BreakPreference::Sentence),
        // Blanks arrive before the marker.
        (format!("e\u{301}```\n```\n. é- item\n  ```\n3.14\n{letters}\n\n👩\u{200d}👧```rust\n\n\n.     ```\n{many}``````"), 3, 18, 93, BreakPreference::Sentence),
        // The opening line stands at the end of the room.
        (format!("{mixed}  ```\n```\n````\n```\r\n\n```\nword"), 1, 24, 97, BreakPreference::Sentence),
        // The room behind the opening line is a few characters.
        (format!("```e\u{301}\0、👩\u{200d}👧{letters}word    four\n    ````\n  ~~~"), 1, 8, 74, BreakPreference::Paragraph),
        // Code within a line, cut at its closing marks.
        ("    four\n````\n~~~sh\n```~~~sh\ne\u{301}````\n3.143.14. ~~~sh\n```\n- item\n\n😀\n\n\n````\n    four\n\n \n```e\u{301}~~~. ```` info string\n".to_owned(), 100_000, 56, 97, BreakPreference::Sentence),
        // Many marks in a line of code.
        (format!("- item\n. é. . é```` info string\n😀\n```\n~~~sh\n`~~~sh\ntwo words    ```````\n```\n{many}"), 1, 29, 72, BreakPreference::Sentence),
    ] {
        let options = ChunkOptions { min, max, preference, flush_on_paragraph: false };
        for size in [size, 1, 3, 100_000] {
            let chunks = chunked(options, &pieces(&text, &[size]));
            check_fences(options, &text, &chunks).unwrap_or_else(|why| panic!("{text:?}, {size}: {why}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn chunks_joined_give_the_text(
        text in prop_oneof![4 => soup(), 1 => any::<String>()],
        sizes in sizes(),
        min in 1_usize..60,
        max in 1_usize..120,
        preference in preference(),
        flush_on_paragraph in any::<bool>(),
    ) {
        let options = ChunkOptions { min, max, preference, flush_on_paragraph };
        let chunks = chunked(options, &pieces(&text, &sizes));
        check_laws(options, &text, &chunks)?;
    }

    #[test]
    fn fences_are_closed_and_opened_again(
        text in soup(),
        sizes in sizes(),
        min in 1_usize..60,
        more in 0_usize..80,
        preference in preference(),
    ) {
        let options = ChunkOptions { min, max: min + 40 + more, preference, flush_on_paragraph: false };
        let chunks = chunked(options, &pieces(&text, &sizes));
        check_fences(options, &text, &chunks)?;
    }

    /// A chunker that takes over behind a chunk that left. It knows the text, not where the messages began.
    #[test]
    fn text_behind_passed_text_keeps_the_laws(
        text in soup(),
        sizes in sizes(),
        again in sizes(),
        min in 1_usize..60,
        more in 0_usize..80,
        preference in preference(),
        taken in any::<prop::sample::Index>(),
    ) {
        let options = ChunkOptions { min, max: min + 40 + more, preference, flush_on_paragraph: false };
        let mut chunks = chunked(options, &pieces(&text, &sizes));
        if chunks.is_empty() {
            return Ok(());
        }
        chunks.truncate(taken.index(chunks.len()) + 1);
        if chunks.iter().any(|chunk| begins_with_marker(&text, chunk)) {
            return Ok(());
        }
        let sent = chunks[chunks.len() - 1].source.end;
        let mut chunker = Chunker::new(options);
        for piece in pieces(&text[..sent], &again) {
            chunker.pass(&piece);
        }
        for piece in pieces(&text[sent..], &again) {
            chunker.append(&piece);
            chunks.extend(chunker.drain());
        }
        chunks.extend(chunker.finish());
        check_fences(options, &text, &chunks)?;
    }
}
