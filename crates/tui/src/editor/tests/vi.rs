//! Vi's modes.

use super::*;

fn bench(marked: &str) -> Bench {
    let mut bench = Bench::new(40, 10);
    bench.bindings = Bindings::default().with_vi(true);
    put(&mut bench, marked);
    bench
}

/// What a text with `|` at the cursor becomes in normal mode.
fn check(before: &str, keys: &str, expect: &str) {
    let mut bench = bench("|");
    bench.press("escape");
    put(&mut bench, before);
    bench.press(keys);
    assert_eq!(bench.marked(), expect, "{before:?} {keys}");
}

#[test]
fn motions() {
    check("|one two", "'w'", "one |two");
    check("|one.two three", "'ww'", "one.|two three");
    check("|one.two three", "'W'", "one.two |three");
    check("|one two three", "'2w'", "one two |three");
    check("|one two", "'e'", "on|e two");
    check("on|e two", "'e'", "one tw|o");
    check("one tw|o", "'bb'", "|one two");
    check("one two.thr|ee", "'B'", "one |two.three");
    check("a\n\nb|c", "'bb'", "a\n|\nbc");
    check("|a\n\nb", "'ww'", "a\n\n|b");
    check("|abc", "'lllll'", "ab|c");
    check("ab|c\nd", "'hhhh'", "|abc\nd");
    check("|abc", "'$'", "ab|c");
    check("  ab|c", "'0'", "|  abc");
    check("  ab|c", "'^'", "  |abc");
    check("a\nb|\nc", "'gg'", "|a\nb\nc");
    check("|a\nb\n  c", "'G'", "a\nb\n  |c");
    check("|a\nb\nc", "'2G'", "a\n|b\nc");
    check("|a b c b", "'fb'", "a |b c b");
    check("|a b c b", "'2fb'", "a b c |b");
    check("|a b c b", "'fb;'", "a b c |b");
    check("|a b c b", "'fb;,'", "a |b c b");
    check("|a b c b", "'tb;'", "a b c| b");
    check("a b c |b", "'Tb'", "a b| c b");
    check("|a b", "'fz' 'x'", "| b");
    check("f|(a(b)c)", "'%'", "f(a(b)c|)");
    check("f(a(b)c|)", "'%'", "f|(a(b)c)");
    check("|a\nb\n\nc", "'}'", "a\nb\n|\nc");
    check("a\n\nb\nc|", "'{'", "a\n|\nb\nc");
    check("|日本 e\u{301}x", "'wl'", "日本 e\u{301}|x");
    check("|ab\nabcd", "'lj'", "ab\na|bcd");
}

#[test]
fn operators() {
    check("|one two", "'dw'", "|two");
    check("|one two\nx", "'wdw'", "one| \nx");
    check("|one two three", "'d2w'", "|three");
    check("|one two three", "'2dw'", "|three");
    check("|one two", "'cwX' escape", "|X two");
    check("|a two", "'cwX' escape", "|X two");
    check("|one two three", "'c2wX' escape", "|X three");
    check("on|e two", "'de'", "o|n");
    check("one |two", "'db'", "|two");
    check("one |two", "'d0'", "|two");
    check("on|e two", "'D'", "o|n");
    check("on|e", "'CX' escape", "on|X");
    check("a\nb|c\nd", "'dd'", "a\n|d");
    check("a\nb|c", "'dd'", "|a");
    check("|a\nb\nc", "'2dd'", "|c");
    check("|a\nb\nc", "'dj'", "|c");
    check("a\nb\n|c", "'dk'", "|a");
    check("a\nb|c\nd", "'ccX' escape", "a\n|X\nd");
    check("a\nb\n|c", "'dgg'", "|");
    check("|one two one", "'dfo'", "| one");
    check("|one two one", "'dto'", "|o one");
    check("|one, two", "'dt,'", "|, two");
    check("f(|a(b)c)", "'di('", "f(|)");
    check("f(a(|b)c)", "'da('", "f(a|c)");
    check("x \"a |b\" y", "'ci\"Z' escape", "x \"|Z\" y");
    check("one t|wo three", "'daw'", "one |three");
    check("one t|wo three", "'diw'", "one | three");
    check("one t|wo", "'daw'", "on|e");
    check("|ab", "'x'", "|b");
    check("|abc", "'2x'", "|c");
    check("ab|c", "'X'", "a|c");
    check("|abc", "'sX' escape", "|Xbc");
    check("|abc", "'rX'", "|Xbc");
    check("|abc", "'2rX'", "X|Xc");
    check("|abc", "'4rX'", "|abc");
    check("|abC", "'3~'", "AB|c");
    check("|a\n  b\nc", "'J'", "a| b\nc");
    check("|a\nb\nc", "'3J'", "a b| c");
    check("|one two", "'d' escape 'w'", "one |two");
    check("|one two", "'dx' 'x'", "|ne two");
}

#[test]
fn putting_and_copying() {
    check("|ab", "'xp'", "b|a");
    check("|one two", "'dwP'", "one| two");
    check("|a\nb", "'yyp'", "a\n|a\nb");
    check("|a\nb", "'yyjP'", "a\n|a\nb");
    check("|a\nb", "'ddp'", "b\n|a");
    check("|ab", "'x3p'", "baa|a");
    check("|one two", "'yw$p'", "one twoone| ");
    check("a|b", "'p'", "a|b");
    let mut bench = bench("one |two");
    bench.press("escape 'D' 'i' ctrl+y");
    assert_eq!(bench.editor.text(), "on twoe", "the ring has it too");
}

#[test]
fn inserting_and_taking_back() {
    check("|ab", "'aX' escape", "a|Xb");
    check("a|b", "'IX' escape", "|Xab");
    check("|ab", "'AX' escape", "ab|X");
    check("a|b\nc", "'oX' escape", "ab\n|X\nc");
    check("a\nb|c", "'OX' escape", "a\n|X\nbc");
    check("|ab", "'iX Y Z' escape 'u'", "|ab");
    check("|ab", "'iX Y Z' escape 'u' ctrl+r", "X Y Z|ab");
    check("|one two three", "'dww' 'u'", "|one two three");
    check("|one two three", "'dw..'", "|");
    check("|one two three", "'cwX' escape 'w.'", "X |X three");
    check("|one two three", "'cwX' escape 'w.u'", "X |two three");
    check("|ab", "'x' 'u' '.'", "|b");
    check("|a b", "'iX' left 'Y' escape 'w.'", "YXa |YXb");
}

#[test]
fn marking() {
    check("|one two", "'vey' 'P'", "on|eone two");
    check("one |two three", "'ved'", "one | three");
    check("one tw|o", "'vbx'", "one| ");
    check("|a\nb\nc", "'Vjd'", "|c");
    check("a |bc d", "'viwcX' escape", "a |X d");
    check("|ab", "'v' escape 'x'", "|b");
    check("a|bc", "'vohd'", "|c");
    check("|abc", "'vl~'", "|ABc");
    let mut bench = bench("one tw|o");
    bench.press("escape 'vb'");
    assert_eq!(bench.editor.vi_mode(&bench.bindings), Some("VISUAL"));
    assert_eq!(bench.press("alt+w"), EditorOutcome::Handled(vec![EditorEffect::Copy("tw".into())]));
    let (lines, _) = bench.editor.view(Size { columns: 40, rows: 3 }, &Theme::default());
    let marked: Vec<(&str, bool)> =
        lines[0].spans.iter().map(|span| (span.text.as_str(), span.style.reverse)).collect();
    assert_eq!(marked, [("one ", false), ("tw", true), ("o", false)]);
}

#[test]
fn modes_and_keys_of_others() {
    let mut bench = bench("|");
    let mode = |bench: &Bench| bench.editor.vi_mode(&bench.bindings);
    assert_eq!(mode(&bench), Some("INSERT"));
    bench.press("'jk'");
    assert_eq!(bench.press("escape"), EditorOutcome::Handled(vec![]));
    assert_eq!(mode(&bench), Some("NORMAL"));
    assert_eq!(bench.press("escape"), EditorOutcome::Ignored, "the second is the caller's");
    assert_eq!(bench.press("'2d' escape"), EditorOutcome::Handled(vec![]));
    assert_eq!(bench.press("ctrl+c"), EditorOutcome::Ignored);
    bench.editor.set_history(vec!["older".into()]);
    bench.press("'k'");
    assert_eq!(bench.editor.text(), "older");
    bench.press("'j'");
    assert_eq!(bench.editor.text(), "jk");
    assert_eq!(bench.press("enter"), EditorOutcome::Submit("jk".into()));
    assert_eq!(mode(&bench), Some("INSERT"));
    bench.bindings = Bindings::default();
    assert_eq!(mode(&bench), None);
}

fn keys() -> impl Strategy<Value = Vec<String>> {
    let letters = "hjklwbeWBE0^_$gG;,{}%fFtTiaIAoOdcyxXsSDCYJ~rpPvVu.123( \"ab日\n";
    let letter = proptest::sample::select(letters.chars().collect::<Vec<_>>());
    let key = prop_oneof![
        8 => letter.prop_map(|one| format!("'{one}'")),
        2 => Just("escape".to_owned()),
        1 => proptest::sample::select(KEYS).prop_map(str::to_owned),
        1 => Just("ctrl+r".to_owned()),
    ];
    proptest::collection::vec(key, 1..40)
}

/// A text that changes by a key that is not vi's while some of it is marked: nothing is marked any more.
#[test]
fn selection_ends_when_the_text_changes() {
    let text = "\t\u{202e}";
    let mut bench = bench("|");
    bench.press("escape");
    bench.editor.set_text(&format!("{text} one (two \"three\")\n\nfour\n{text}"));
    for key in ["h", "p", "l", "v", "{", "delete"] {
        bench.press(key);
        let buffer = &bench.editor.buffer;
        assert!(is_boundary(buffer.text(), buffer.cursor()), "{:?} after {key}", bench.marked());
    }
}

proptest! {
    #[test]
    fn any_keys_leave_a_sound_editor(text in text(), keys in keys()) {
        let mut bench = bench("|");
        bench.press("escape");
        bench.editor.set_text(&format!("{text} one (two \"three\")\n\nfour\n{text}"));
        for key in &keys {
            bench.press(key);
            let buffer = &bench.editor.buffer;
            prop_assert!(is_boundary(buffer.text(), buffer.cursor()), "{:?} after {}", bench.marked(), key);
            let fresh = Layout::new(buffer.source(), 40);
            prop_assert_eq!(fresh.starts(), buffer.layout().starts());
            let (lines, (row, _)) = bench.editor.view(Size { columns: 40, rows: 5 }, &Theme::default());
            prop_assert!(row < lines.len());
            if buffer.text().len() > 100_000 {
                break;
            }
        }
        while bench.editor.buffer.redo() {}
        let done = bench.editor.text();
        while bench.editor.buffer.undo() {}
        prop_assert_eq!(bench.editor.text(), "");
        while bench.editor.buffer.redo() {}
        prop_assert_eq!(bench.editor.text(), done);
    }
}
