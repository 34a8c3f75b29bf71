//! How the editor looks at several widths.

use super::*;
use crate::editor::Candidate;

const WIDTHS: [usize; 4] = [20, 40, 80, 120];

/// The rows with `▏` where the cursor is, and the list below them.
fn drawn(bench: &mut Bench, columns: usize) -> String {
    let size = Size { columns, rows: 6 };
    bench.editor.resize(size);
    let (lines, (row, column)) = bench.editor.view(size, &Theme::default());
    let mut drawn = format!("{columns} columns, {:?} rows hidden\n", bench.editor.hidden(size));
    for (at, line) in lines.iter().enumerate() {
        let mut text = line.text();
        if at == row {
            let mut place = text.len();
            let mut used = 0;
            for (from, cluster) in text.grapheme_indices(true) {
                if used >= column {
                    place = from;
                    break;
                }
                used += crate::width(cluster);
            }
            text.insert(place, '▏');
        }
        drawn += &format!("|{text}\n");
    }
    for line in bench.editor.popup(size, &Theme::default()) {
        drawn += &format!(" {}\n", line.text());
    }
    drawn
}

#[test]
fn text_is_wrapped() {
    let mut bench = Bench::new(80, 6);
    bench.editor.set_text(
        "A prompt with words of all lengths, an unbreakable_word_that_is_longer_than_twenty_columns, 日本語の文章 and \
         👩‍👩‍👧 e\u{301}.\n\n\tindented\u{1b}[31m \u{202e}abc  \nlast ",
    );
    bench.press("alt+b up up");
    let views: Vec<String> = WIDTHS.iter().map(|columns| drawn(&mut bench, *columns)).collect();
    insta::assert_snapshot!("wrapped", views.join("\n"));
}

#[test]
fn chips_and_lists_are_drawn() {
    let mut bench = Bench::new(80, 6);
    bench.press("'Compare '");
    bench.editor.paste(&"line\n".repeat(4_000));
    bench.press("' with @edit'");
    let candidates =
        ["src/editor/mod.rs", "src/editor/layout.rs", "src/日本/editor.md", "src/edit\u{1b}.rs", "e", "f"];
    let id = 5;
    let candidates = candidates.map(|text| Candidate {
        text: text.into(),
        detail: "2 KB".into(),
        matched: vec![4, 5, 6, 7],
        ..Candidate::default()
    });
    bench.editor.offer(id, candidates.into(), false);
    bench.press("down");
    let views: Vec<String> = WIDTHS.iter().map(|columns| drawn(&mut bench, *columns)).collect();
    insta::assert_snapshot!("chips", views.join("\n"));
}

#[test]
fn more_rows_than_there_is_room_for_scroll() {
    let mut bench = Bench::new(30, 6);
    bench.editor.set_text(&(1..=20).map(|at| format!("row {at}")).collect::<Vec<_>>().join("\n"));
    let mut views = vec![drawn(&mut bench, 30)];
    bench.press("up up up");
    views.push(drawn(&mut bench, 30));
    bench.press("up up up up");
    views.push(drawn(&mut bench, 30));
    bench.press("pageUp pageUp pageUp");
    views.push(drawn(&mut bench, 30));
    insta::assert_snapshot!("scrolled", views.join("\n"));
}

#[test]
fn other_widths_are_right_without_being_told() {
    let mut bench = Bench::new(80, 6);
    bench.editor.set_text(&"some words to wrap ".repeat(10));
    let size = Size { columns: 25, rows: 6 };
    let before = bench.editor.view(size, &Theme::default());
    bench.editor.resize(size);
    assert_eq!(bench.editor.view(size, &Theme::default()), before);
}
