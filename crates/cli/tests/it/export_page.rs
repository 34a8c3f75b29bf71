//! The page that a session is written as, in a real browser.

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::archive::{ID, assistant, entry, header, user};
use crate::browser::Browser;
use crate::export::{hostile, import};
use crate::support::*;

/// Markup that would say so if it were run.
const MARKUP: &str = "</script></pre></details></article><script>hit=1</script><img src=x onerror=hit=1>\
    <a href=\"javascript:hit=1\">a</a><iframe src=//evil.invalid></iframe>\" onmouseover=hit=1 '<!--<style>*{display:none}";

/// Waits until all that a page does by itself is done.
const READY: &str = "new Promise(done => { const look = () => {
    const ready = document.documentElement.dataset.ready; ready ? done(ready) : setTimeout(look, 5) }; look() })";

fn page(world: &World, id: &str) -> std::path::PathBuf {
    world.run(&["export", "--format", "html", id, "-o", "page.html"]).ok();
    world.path("work/page.html")
}

#[test]
fn a_page_is_read_folded_and_searched_and_nothing_in_it_runs() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::says("Hi.");
    let mut entries = hostile(&world);
    let call = json!([
        { "type": "thinking", "thinking": MARKUP },
        { "type": "text", "text": format!("# {MARKUP}\n`{MARKUP}` **{MARKUP}** [x](javascript:hit=1)\n```\n{MARKUP}") },
        { "type": "toolCall", "id": "c2", "name": MARKUP, "arguments": { "a": MARKUP } },
        { "type": "image", "mimeType": "image/png\" onerror=hit=1 x=\"", "data": "AAAA" },
        { "type": "image", "mimeType": "image/svg+xml", "data": "AAAA" },
        { "type": "new", "x": MARKUP },
    ]);
    let mut answer = assistant("a5", "u5", &call, "error");
    answer["message"]["errorMessage"] = json!(MARKUP);
    answer["message"]["model"] = json!(MARKUP);
    let label = json!({ "type": "label", "targetId": "u5", "label": MARKUP });
    let name = json!({ "type": "session_info", "name": MARKUP });
    let custom = json!({ "type": "custom", "customType": MARKUP, "data": MARKUP });
    let image = json!({ "type": "message", "message": { "role": "user", "timestamp": 8, "content": [
        { "type": "image", "mimeType": "image/gif", "data": "R0lGODlhAQABAAAAACw=" },
    ] } });
    entries.extend([
        user("u5", "r4", MARKUP),
        answer,
        entry("x5", Some("a5"), &custom),
        entry("l5", Some("x5"), &label),
        entry("n5", Some("l5"), &name),
        entry("i5", Some("n5"), &image),
    ]);
    import(&world, &entries);
    let file = page(&world, ID);
    browser.open(&file);
    assert_eq!(browser.run(READY), "yes");
    for (script, wanted) in [
        ("typeof hit", json!("undefined")),
        // Those of the page and of its entries.
        ("document.querySelectorAll('script').length", json!(1)),
        ("document.querySelectorAll('img').length", json!(2)),
        (
            "document.querySelectorAll('iframe, object, embed, form, base, main style, [onerror], [onmouseover]').length",
            json!(0),
        ),
        (
            "[...document.querySelectorAll('a')].filter(a => !a.getAttribute('href').startsWith('#n')).length",
            json!(0),
        ),
        (
            "document.body.textContent.includes('\\u202e') || document.body.textContent.includes('\\u001b')",
            json!(false),
        ),
        ("document.querySelectorAll('main article').length", json!(16)),
        ("document.querySelectorAll('article article').length", json!(0)),
        ("document.querySelectorAll('main article.branch.l1').length", json!(1)),
        (
            "[...document.querySelectorAll('nav a')].every(a => document.getElementById(a.hash.slice(1)))",
            json!(true),
        ),
        ("document.querySelectorAll('nav a.branch').length", json!(1)),
        // What is in no other place is text.
        ("document.querySelector('h1').textContent", json!(MARKUP)),
        ("getComputedStyle(document.querySelector('article.user')).contentVisibility", json!("auto")),
    ] {
        assert_eq!(browser.run(script), wanted, "{script}");
    }
    let seen = browser.run("document.querySelector('main').textContent");
    assert!(seen.as_str().unwrap().matches(MARKUP).count() >= 9, "{seen}");

    // What is long is folded, and opens.
    let closed = "[...document.querySelectorAll('details')].every(part => !part.open)";
    assert_eq!(browser.run(closed), true);
    browser.run("document.querySelector('details.long summary').click()");
    assert_eq!(browser.run("document.querySelector('details.long').open"), true);
    browser.run(
        "document.querySelector('details.long summary').click(); document.getElementById('fold').click()",
    );
    assert_eq!(browser.run("[...document.querySelectorAll('details')].every(part => part.open)"), true);
    browser.run("document.getElementById('fold').click()");
    assert_eq!(browser.run(closed), true);

    assert_eq!(search(&mut browser, "LINE 250 "), json!(["1 of 16 entries", 1, 1]));
    assert_eq!(browser.run("document.querySelector('article.result details').open"), true);
    assert_eq!(search(&mut browser, "no such words"), json!(["0 of 16 entries", 0, 0]));
    assert_eq!(search(&mut browser, ""), json!(["", 16, 0]));
    assert_eq!(browser.run(closed), true);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!(browser.run("typeof hit"), "undefined");

    // Where the page is changed by somebody, nothing else runs in it either.
    let text = std::fs::read_to_string(&file).unwrap().replace("<main>", &format!("<main>{MARKUP}"));
    let changed = world.file("changed.html", text);
    browser.open(&changed);
    assert_eq!(browser.run("typeof hit"), "undefined");
}

#[test]
fn page_shows_tables_links_and_changes() {
    let world = World::new([
        call(
            "c1",
            "edit",
            &json!({ "path": "f.txt", "edits": [{ "oldText": "old <b>", "newText": "new <i>" }] }),
        ),
        Answer::new()
            .text("| a | b |\n|---|--:|\n| *x* | 1 |\n\n- [docs](https://x.test)\n- [no](javascript:x)")
            .reply(),
    ]);
    world.file("f.txt", "old <b>\n");
    world.run(&["-p", "edit it"]).ok();
    let id = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    let text = std::fs::read_to_string(page(&world, &id)).unwrap();
    for part in [
        "<th dir=auto>a</th><th dir=auto class=right>b</th>",
        "<td dir=auto><em>x</em></td>",
        "href=\"https://x.test\">docs</a>",
        "no (javascript:x)",
        "<del>-1 old &lt;b&gt;\n</del>",
        "<ins>+1 new &lt;i&gt;",
        "prefers-color-scheme: dark",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("href=\"javascript") && text.matches("<script").count() == 1);
}

/// Types into the page's search, and gives what it says, how many entries are shown and how many places are marked.
fn search(browser: &mut Browser, words: &str) -> Value {
    browser.run(&format!(
        "new Promise(done => {{
            const [find, hits] = ['find', 'hits'].map(id => document.getElementById(id));
            const all = () => [...document.querySelectorAll('main article')].filter(one => !one.hidden).length;
            hits.textContent = 'waiting';
            const look = () => {{
                const over = find.value ? /of/.test(hits.textContent) : all() === document.querySelectorAll('main article').length;
                if (!over || hits.textContent === 'waiting') return setTimeout(look, 5);
                const found = CSS.highlights.get('found');
                done([hits.textContent, all(), found ? found.size : 0]);
            }};
            find.value = {};
            find.dispatchEvent(new Event('input'));
            look();
        }})",
        json!(words)
    ))
}

#[test]
fn page_of_ten_thousand_entries_opens_shows_and_searches() {
    let Some(mut browser) = Browser::start() else { return };
    let world = World::says("Hi.");
    world.unchecked();
    let mut text = format!("{}\n", header(&world, ID));
    let words = "The quick brown fox jumps over the lazy dog, and then it does so again.\n".repeat(8);
    let mut parent = String::new();
    for n in 0..10_000 {
        let id = format!("e{n}");
        let mut line = if n % 2 == 0 {
            user(&id, &parent, &format!("Question `{n}`\n{words}"))
        } else {
            let content = json!([
                { "type": "thinking", "thinking": words },
                { "type": "text", "text": format!("Answer **{n}**\n\n{words}\n```\n{words}```\n") },
            ]);
            assistant(&id, &parent, &content, "stop")
        };
        if n == 0 {
            line["parentId"] = Value::Null;
        }
        text.push_str(&format!("{line}\n"));
        parent = id;
    }
    let path = world.file("s.jsonl", text);
    world.run(&["import", "pi", path.to_str().unwrap()]).ok();
    let file = page(&world, ID);
    browser.open(&file);
    let first = "new Promise(done => requestAnimationFrame(() => setTimeout(() => {
        const at = document.querySelector('main article').getBoundingClientRect();
        done(at.top < innerHeight && at.height > 0) }, 0)))";
    assert_eq!(browser.run(first), true, "the first entry is drawn");
    assert_eq!(browser.run("document.querySelectorAll('main article').length"), 10_001);
    assert_eq!(search(&mut browser, "answer 9999"), json!(["1 of 10001 entries", 1, 0]));
    let last =
        "document.querySelector('nav a:last-child').click(); new Promise(done => requestAnimationFrame(() =>
        setTimeout(() => { const at = document.querySelector('article:target').getBoundingClientRect();
            done(at.top < innerHeight && at.bottom > 0) }, 0)))";
    search(&mut browser, "");
    assert_eq!(browser.run(last), true);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
