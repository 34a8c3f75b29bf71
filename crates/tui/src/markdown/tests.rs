use std::cell::Cell;

use proptest::prelude::*;

use super::*;

thread_local! {
    /// Bytes that were read or laid out.
    static WORK: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn count(bytes: usize) {
    WORK.set(WORK.get() + bytes);
}

fn shown(text: &str, columns: usize) -> String {
    markdown(text, columns, &Theme::plain()).iter().map(Line::text).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(shown(text, 40), expect, "{text:?}");
}

/// Text with the styles that matter written around it: `<b>`, `<i>`, `<s>`, `<c>` for code, `<l>` for links.
fn styled(text: &str) -> String {
    let marks = Theme {
        strong: style(|s| s.bold = true),
        emphasis: style(|s| s.italic = true),
        code: style(|s| s.reverse = true),
        link: style(|s| s.underline = true),
        ..Theme::default()
    };
    let mut out = String::new();
    for line in markdown(text, 80, &marks) {
        for span in line.spans {
            let s = span.style;
            let sets =
                [(s.bold, 'b'), (s.italic, 'i'), (s.strike, 's'), (s.reverse, 'c'), (s.underline, 'l')];
            let mut wrapped = span.text;
            for (_, mark) in sets.into_iter().filter(|(on, _)| *on) {
                wrapped = format!("<{mark}>{wrapped}</{mark}>");
            }
            out.push_str(&wrapped);
        }
        out.push('\n');
    }
    out.trim_end().to_owned()
}

fn style(set: impl Fn(&mut crate::Style)) -> crate::Style {
    let mut style = crate::Style::default();
    set(&mut style);
    style
}

#[test]
fn paragraphs_and_headings() {
    check("one\ntwo\n\nthree", "one\ntwo\n\nthree");
    check("# Title\ntext\n### Third #\nmore", "Title\n\ntext\n\n### Third\n\nmore");
    check("Title\n=====\ntext\n\nSub\n---", "Title\n\ntext\n\nSub");
    check("#hashtag\n####### seven", "#hashtag\n####### seven");
    check("a\n***\nb", "a\n\n────────────────────────────────────────\n\nb");
    check(
        "one two three four five six seven eight nine ten",
        "one two three four five six seven eight\nnine ten",
    );
    check("hard  \nbreak\\\nhere", "hard\nbreak\nhere");
    check("a\r\nb\r\n\r\nc", "a\nb\n\nc");
    check("", "");
    check("\n\n \n", "");
}

#[test]
fn lists() {
    check("- a\n- b\n  - c\n    d\n- e", "- a\n- b\n  - c\n    d\n- e");
    check("1. a\n1. b\n1. c", "1. a\n2. b\n3. c");
    check("3) a\n4) b\n\ntext\n\n1) c", "3) a\n4) b\n\ntext\n\n1) c");
    check("- a\n\n- b\n\n  more", "- a\n\n- b\n\n  more");
    check("* a\n+ b", "- a\n- b");
    check("text\n- a\n- b\ntext", "text\n- a\n- b\n  text");
    check("- [ ] open\n- [x] done", "- [ ] open\n- [x] done");
    check("-\n- a", "-\n- a");
    check("1. a\n   ```\n   code\n   ```\n2. b", "1. a\n\n     code\n\n2. b");
    check("text\n2. no list", "text\n2. no list");
    check(
        "- one two three four five six seven eight nine",
        "- one two three four five six seven\n  eight nine",
    );
    check("1. a\n   - x\n   - y\n2. b", "1. a\n   - x\n   - y\n2. b");
}

#[test]
fn quotations() {
    check("> a\n> b\nlazy\n\nout", "│ a\n│ b\n│ lazy\n\nout");
    check("text\n> q\n>\n> r", "text\n\n│ q\n│\n│ r");
    check("> > deep\n> - item", "│ │ deep\n│ - item");
}

#[test]
fn code_keeps_its_lines() {
    check("a\n```rust\nfn x() {\n\n\ty();\n}\n```\nb", "a\n\n  fn x() {\n\n      y();\n  }\n\nb");
    check("    indented\n\n      more\n\ntext", "  indented\n\n    more\n\ntext");
    check("~~~\n```\n~~~", "  ```");
    check("```\nnever closed", "  never closed");
    let long = "x".repeat(200);
    assert_eq!(shown(&format!("```\n{long}\n```"), 20), format!("  {long}"));
}

#[test]
fn tables() {
    check(
        "| a | b |\n|---|--:|\n| 1 | 22 |\n| `x|` | y \\| z |\n\nend",
        "a  │         b\n───┼──────────\n1  │        22\n`x │ ` | y | z\n\nend",
    );
    check("a | b\n- | -\n1 | 2", "a │ b\n──┼──\n1 │ 2");
    check("text\na | b\n- | -\n1", "text\n\na │ b\n──┼──\n1 │");
    check("a | b\n- | - | -", "a | b\n- | - | -");
    let wide = "| one | two |\n|---|---|\n| some words that are long | other words that are long, too |";
    assert_eq!(
        shown(wide, 30),
        "one            │ two\n───────────────┼──────────────\nsome words     │ other words\nthat are long  │ that are\n               │ long, too"
    );
    assert_eq!(shown("| one | two |\n|---|---|\n| 1 | 2 |", 10), "────────\none: 1\ntwo: 2");
}

#[test]
fn emphasis() {
    let check = |text: &str, expect: &str| assert_eq!(styled(text), expect, "{text:?}");
    check("*a* **b** ***c*** ~~d~~ `e`", "<i>a</i> <b>b</b> <i><b>c</b></i> <s>d</s> <c>e</c>");
    check("**a *b* c**", "<b>a </b><i><b>b</b></i><b> c</b>");
    check("snake_case_name and _a_", "snake_case_name and <i>a</i>");
    check("2 * 3 * 4, a*b*c", "2 * 3 * 4, a<i>b</i>c");
    check("**not closed and *neither", "**not closed and *neither");
    check("\\*a\\* &lt;b&gt; &#65; &nope;", "*a* <b> A &nope;");
    check("`` a`b `` and ` not closed", "<c>a`b</c> and ` not closed");
    check("**`code`** *[x](http://y)*", "<c><b>code</b></c> <l><i>x</i></l><i> (http://y)</i>");
    check("**bold**text and** not**", "<b>bold</b>text and** not**");
    check("“**____ ***\n</b>***", "“<b>____ ***</b>\n<b></b></b>*");
    check("a\n*b\nc*", "a\n<i>b</i>\n<i>c</i>");
}

#[test]
fn links() {
    let check = |text: &str, expect: &str| assert_eq!(styled(text), expect, "{text:?}");
    check("[a](http://x \"title\") b", "<l>a</l> (http://x) b");
    check("[http://x](http://x) b", "http://x b");
    check("<http://x> see http://y/a_b_c. (http://z)", "http://x see http://y/a_b_c. (http://z)");
    check("![alt](pic.png)", "<l>alt</l> (pic.png)");
    check("[a [b](c) d](e)", "[a <l>b</l> (c) d](e)");
    check("[a](<b c>) [x](y(z)) [](u)", "<l>a</l> (b c) <l>x</l> (y(z)) u");
    check("[a][b] [c] a]b\n\n[b]: http://x", "[a][b] [c] a]b\n\n[b]: http://x");
    check("[a](not closed", "[a](not closed");
}

#[test]
fn html_is_shown() {
    check("a <b>c</b> d<br>e", "a <b>c</b> d\ne");
    check("<div>\n*x*\n</div>\n\n*y*", "<div>\n*x*\n</div>\n\ny");
    check("<!-- a\n\nb -->\nc", "<!-- a\n\nb -->\nc");
    check("1 < 2 > 0", "1 < 2 > 0");
}

#[test]
fn nothing_foreign_is_obeyed() {
    for text in [
        "\x1b[2J",
        "`\x1b[2J`",
        "```\n\x1b[2J\n```",
        "&#27;[2J",
        "# \x1b[2J",
        "|\x1b[2J|b|\n|-|-|\n",
        "[\x1b[2J](\x1b[2J)",
        "> \u{202e}x",
        "<p \x1b[2J>",
    ] {
        for line in markdown(text, 40, &Theme::dark()) {
            let text = line.text();
            assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
        }
    }
}

#[test]
fn markdown_lines_fit_the_columns() {
    let text = "# A heading that is long\n\n> > quoted and long\n\n1. item\n   - nested item with words\n     - deeper\n\n| a | b | c |\n|---|---|---|\n| words in a cell | more words | x |\n\nhttps://example.com/a/very/long/path/that/does/not/fit\n\n---\n日本語の文章です\n";
    for columns in [1, 2, 5, 10, 11, 20, 40] {
        for line in markdown(text, columns, &Theme::plain()) {
            assert!(line.width() <= columns.max(2), "{columns}: {:?}", line.text());
        }
    }
}

#[test]
fn a_piece_costs_the_same_at_the_end_of_a_long_reply() {
    let kinds = [
        ("paragraphs", "Some words of a paragraph, **bold** and `code`.\n\n"),
        ("one paragraph", "words on "),
        ("lines of a paragraph", "words on\n"),
        ("code", "```rust\nfn main() { /* a comment */ }\n```\n\n"),
        ("a list", "- an item\n  1. within\n"),
        ("code in an item", "      let x = \"text\";\n"),
        ("a table", "| a | b |\n"),
        ("a quotation", "> words\n"),
        ("html", "<div>\n"),
        ("emphasis", "*_**[`"),
        ("nested", "> - "),
        ("references", "[a]: b\n"),
        ("backticks", "` ``"),
    ];
    for (kind, unit) in kinds {
        let start = match kind {
            "a table" => "| x | y |\n|---|---|\n",
            "code in an item" => "1. code:\n\n   ```rust\n",
            _ => "",
        };
        let theme = Theme::plain();
        let mut markdown = Markdown::new();
        markdown.push(start);
        let mut most = [0; 2];
        // 120 KB in pieces of about 20 bytes; the most that one of them costs, in the first tenth and in the last one.
        let unit = unit.repeat(1 + 20 / unit.len());
        let pieces = 120_000 / unit.len();
        for piece in 0..pieces {
            let before = WORK.get();
            markdown.push(&unit);
            drop(markdown.take(80, &theme));
            if piece % 16 == 0 {
                drop(markdown.live(80, &theme));
                let cost = WORK.get() - before;
                match piece * 10 / pieces {
                    0 => most[0] = cost.max(most[0]),
                    9 => most[1] = cost.max(most[1]),
                    _ => {}
                }
            }
        }
        // What is held back is a paragraph and a line, or the start of a table.
        assert!(most[1] <= most[0] * 3 / 2 + 512 && most[1] < 24 << 10, "{kind}: {most:?}");
    }
}

/// Text that is likely to mean something.
fn source() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        12 => "[a-z]{1,6}".prop_map(String::from),
        20 => prop::sample::select(vec![
            "\n", "\n", "\n\n", " ", "  ", "    ", "\t", "- ", "* ", "1. ", "2) ", "> ", "# ", "```", "```rust\n", "~~~", "`",
            "*", "**", "_", "~~", "[", "](", ")", "![", "]: ", "|", "|-|-|\n", "| a | b |\n|---|:-:|\n", "---", "===",
            "<b>", "<div>", "<!--", "-->", "&amp;", "\\", "\r\n", "\r", "日本", "é", "👩\u{200d}👧", "\x1b[31m", "http://x.y/z", "[ ] ", "\"",
            "/*", "*/", "fn ", "'",
        ]).prop_map(String::from),
        1 => (1usize..3).prop_map(|n| "long ".repeat(n * 1000)),
        1 => (1usize..3).prop_map(|n| "x".repeat(n * 5000)),
        1 => (1usize..3).prop_map(|n| "|c|d|\n".repeat(n * 40)),
    ];
    prop::collection::vec(word, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn streaming_is_reading_all_at_once(text in source(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5), columns in 10usize..90) {
        let theme = Theme::plain();
        let whole = markdown(&text, columns, &theme);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| text.floor_char_boundary(cut.index(text.len() + 1))).collect();
        cuts.sort_unstable();
        cuts.push(text.len());
        let mut streamed = Markdown::new();
        let mut finished = Vec::new();
        let mut at = 0;
        for cut in cuts {
            streamed.push(&text[at..cut]);
            at = cut;
            finished.extend(streamed.take(columns, &theme));
            // What was declared finished never changes.
            prop_assert_eq!(&finished[..], &whole[..finished.len().min(whole.len())]);
            // What is live is what would come if this were the end.
            let mut all = finished.clone();
            all.extend(streamed.live(columns, &theme));
            prop_assert_eq!(all, markdown(&text[..cut], columns, &theme));
        }
        streamed.end();
        finished.extend(streamed.take(columns, &theme));
        prop_assert_eq!(finished, whole);
    }
}
