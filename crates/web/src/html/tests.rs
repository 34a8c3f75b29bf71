use super::*;

fn check(html: &str, expect: &str) {
    let base = Url::parse("https://a.example/docs/page").unwrap();
    assert_eq!(markdown(html, Some(&base)).text, expect, "{html}");
}

#[test]
fn blocks_and_inlines_become_markdown() {
    check("<h1>One  <em>knot</em></h1><p>Two\n three.<p>Four", "# One *knot*\n\nTwo three.\n\nFour");
    check("<ul><li>a<li>b<ol><li>c</ol></ul>d", "- a\n- b\n  1. c\n\nd");
    check("<ol start=3><li>a</li><li><p>b</p></li></ol>", "3. a\n\n4. b");
    check("see <a href=\"../x?y=1\">the <b>page</b></a>.", "see [the **page**](https://a.example/x?y=1).");
    check("<a href='javascript:alert(1)'>x</a><a href='#y'>y</a><a href=/z></a>", "xy");
    check("<pre><code>let a = 1;\n  b &lt; c\n</code></pre>after", "```\nlet a = 1;\n  b < c\n```\n\nafter");
    check("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc");
    check("a<br>b<hr>c <code>d</code>", "a\nb\n\n---\n\nc `d`");
    check(
        "<table><tr><th>A</th><th>B</th></tr><tr><td>1</td><td><p>2|3</p></td></tr></table>x",
        "| A | B |\n| --- | --- |\n| 1 | 2\\|3 |\n\nx",
    );
    check("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\nc");
    check("<img alt='a knot' src=x> &amp; &eacute;", "[image: a knot] & é");
    let page = markdown("<html><head><title> A \n page </title></head><body>x", None);
    assert_eq!((page.title.as_deref(), page.text.as_str()), (Some("A page"), "x"));
}

#[test]
fn hidden_text_is_left_out() {
    for hidden in [
        "<p style='display: none'>EVIL</p>",
        "<p style=\"color:red; DISPLAY:NONE !important\">EVIL</p>",
        "<span style='visibility:hidden'>EVIL</span>",
        "<span style='opacity:0.0'>EVIL</span>",
        "<span style='font-size:0px'>EVIL</span>",
        "<div hidden><p>EVIL</p>EVIL</div>",
        "<div aria-hidden=true>EVIL</div>",
        "<!-- EVIL -->",
        "<!-- EVIL --!>",
        "<script>EVIL</script>",
        "<style>EVIL</style>",
        "<noscript>EVIL</noscript>",
        "<template><p>EVIL</p></template>",
        "<svg><text>EVIL</text></svg>",
        "<dialog>EVIL</dialog>",
        "<input type=hidden value=EVIL>",
        "<p hidden>EVIL<p>",
    ] {
        let text = markdown(&format!("a{hidden} b"), None).text;
        assert!(!text.contains("EVIL") && text.starts_with('a') && text.ends_with('b'), "{hidden}: {text}");
    }
    // Bidirectional marks, tags and characters without width, also by their numbers.
    check("a\u{200b}b&#x202e;c&#xe0041;d\u{feff}", "abcd");
}

#[test]
fn strange_pages_end_within_bounds() {
    let deep = "<div>".repeat(200_000) + "x";
    assert!(markdown(&deep, None).text.is_empty());
    let quotes = "<blockquote>".repeat(400) + &"a<br>".repeat(200_000);
    assert!(markdown(&quotes, None).text.len() <= 9 << 20);
    let lists = "<ul><li>".repeat(200) + &"a<br>".repeat(100_000);
    assert!(markdown(&lists, None).text.len() <= 9 << 20);
    for open in ["<a href=\"", "<", "<!--", "</", "&#", "<table><tr><td>", "<pre>", "</p></p></table></td>"] {
        markdown(&open.repeat(10_000), None);
    }
    let marks = "<b>".repeat(300) + "x" + &"</b>".repeat(300) + "y";
    assert!(markdown(&marks, None).text.ends_with('y'));
}
