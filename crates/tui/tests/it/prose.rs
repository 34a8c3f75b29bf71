//! Answers of every kind at four widths.

use std::fmt::Write as _;

use quipu_tui::{Theme, markdown, width};

use crate::blocks::check;

#[test]
fn lists_in_lists() {
    let text = "Before.\n\n- one, which is long enough that it has to go on in a second line even on a wide screen, below \
                itself\n  - two\n    1. three, which is also rather long, so that one sees where its second line begins\n    \
                2. four\n\n       With a paragraph of its own.\n- [ ] to do\n- [x] done\n\n10. ten\n11. eleven\n\n* > quoted \
                in a list\n\n> - a list in a quotation\n> > deeper";
    check("lists", |columns, theme| markdown(text, columns, theme));
}

#[test]
fn tables_wider_than_the_window() {
    let text = "| crate | what it is for | may use |\n|:--|:-:|--:|\n| `store` | keeps nodes, bodies and names in one file, and \
                finds them again | dag |\n| `tui` | 日本語のセル | everything, but never a store: it holds a session's handle |\n\n| \
                1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10 | 11 | 12 |\n|-|-|-|-|-|-|-|-|-|-|-|-|\n| a | b | c | d | e | f | g | h \
                | i | j | k | l |";
    check("tables", |columns, theme| markdown(text, columns, theme));
}

#[test]
fn scripts_of_the_world() {
    let family = "👨\u{200d}👩\u{200d}👧\u{200d}👦";
    let text = format!(
        "日本語の文章はスペースなしで書かれますが、行の幅に合わせて折り返さなければなりません。\n\n한국어 문장도 마찬가지입니다. \
         中文字符每个占两列。\n\nFamily {family}, flag 🏳\u{fe0f}\u{200d}🌈, skin 👍🏽, keycap 1\u{fe0f}\u{20e3}, 🇫🇷🇩🇪.\n\n\
         Combining: e\u{301} n\u{303} a\u{30a} Z\u{351}\u{36b}\u{343}.\n\nRight to left: שלום עולם, مرحبا بالعالم; \
         and back.\n\nThai: สวัสดีชาวโลก; Devanagari: नमस्ते दुनिया."
    );
    check("scripts", |columns, theme| markdown(&text, columns, theme));
    let shown: String = markdown(&text, 120, &Theme::plain()).iter().map(quipu_tui::Line::text).collect();
    for part in [family, "e\u{301}", "שלום עולם", "नमस्ते"] {
        assert!(shown.contains(part), "{part} is not whole: {shown}");
    }
}

#[test]
fn dangerous_escape_sequences_are_shown_as_text() {
    let text = "Direction: user\u{202e}txt.exe\u{202c} and \u{2066}isolated\u{2069}.\n\nEscapes: \x1b[2J \x1b]0;title\x07 \
                \x1b]52;c;aGk=\x07 \u{9b}31m \x08\x08.\n\nHidden: a\u{200b}b\u{feff}c\u{ad}d.\n\n`code \x1b[31m`\n\n| \
                \x1b[1m | \u{202e}x |\n|--|--|\n| [link](http://x\u{202e}y) | <b>\x07</b> |";
    check("dangerous", |columns, theme| markdown(text, columns, theme));
    let code = format!("{text}\n\n```sh\necho \x1b[2J\u{202e}\n```\n\n```none\n\x07\n```");
    for columns in [1, 5, 20, 80] {
        for line in markdown(&code, columns, &Theme::dark()) {
            let text = line.text();
            let obeyed = |c: char| {
                c.is_control()
                    || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}' | '\u{feff}')
            };
            assert!(!text.contains(obeyed), "{text:?}");
        }
    }
}

#[test]
fn very_long_lines() {
    let word = "x".repeat(3_000);
    let text =
        format!("{word}\n\n- {word}\n\n> {word}\n\n```\n{word}\n```\n\n{}", "words and words ".repeat(200));
    for columns in [20, 80] {
        let mut code = String::new();
        for line in markdown(&text, columns, &Theme::plain()) {
            let text = line.text();
            // Only code is left as it is: the terminal breaks it, so that what is copied is what was written.
            if width(&text) > columns {
                write!(code, "{}", text.trim()).unwrap();
            }
        }
        assert!(word.starts_with(&code) && code.len() >= 2_048, "{columns}: {}", code.len());
    }
}
