//! Every block at four widths, in the dark theme and without colour.

use std::fmt::Write as _;
use std::time::Duration;

use proptest::prelude::*;
use quipu_protocol::{
    AccountLimit, Answer, Ask, AskKind, BudgetHolder, BudgetUnit, Compaction, CompactionReason,
    CompactionResult, Content, Cost, ImageContent, Json, Limit, ModelError, ModelErrorKind, NodeId, Notice,
    Outcome, Permission, QueuedItem, Scope, ToolResultMessage, Usage,
};
use quipu_tui::blocks::{self, AskView, ShellView, StatusView, ToolState, ToolView};
use quipu_tui::{Color, Line, Style, Theme, markdown};

const WIDTHS: [usize; 4] = [20, 40, 80, 120];

/// A style in words, as files of themes have it.
fn words(style: Style) -> String {
    let color = |color| match color {
        Color::Default => None,
        Color::Ansi(number) => Some(format!("ansi{number}")),
        Color::Indexed(number) => Some(number.to_string()),
        Color::Rgb(red, green, blue) => Some(format!("#{red:02x}{green:02x}{blue:02x}")),
    };
    let flags = [
        (style.bold, "bold"),
        (style.dim, "dim"),
        (style.italic, "italic"),
        (style.underline, "underline"),
        (style.reverse, "reverse"),
        (style.strike, "strike"),
    ];
    let mut words: Vec<String> =
        flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word.to_owned()).collect();
    words.extend(color(style.foreground));
    words.extend(color(style.background).map(|color| format!("on {color}")));
    words.join(" ")
}

/// Each line as text, and below it, where it has styles, which ones begin where.
fn readable(lines: &[Line]) -> String {
    let mut out = String::new();
    for line in lines {
        for span in &line.spans {
            match words(span.style) {
                words if words.is_empty() => out.push_str(&span.text),
                words => {
                    write!(out, "‹{words}›{}‹/›", span.text).unwrap();
                }
            }
        }
        out.push('\n');
    }
    out
}

/// The block at every width: without styles, in the dark theme, and in the theme without colour.
#[track_caller]
pub(crate) fn check(name: &str, block: impl Fn(usize, &Theme) -> Vec<Line>) {
    let mut out = String::new();
    for columns in WIDTHS {
        let plain = block(columns, &Theme::plain());
        writeln!(out, "══ {columns} {}", "═".repeat(columns.saturating_sub(6))).unwrap();
        for line in &plain {
            writeln!(out, "{}", line.text()).unwrap();
            assert!(line.width() <= columns, "{name} at {columns}: {:?}", line.text());
        }
    }
    writeln!(out, "══ in words").unwrap();
    for line in block(80, &Theme::spoken()) {
        writeln!(out, "{}", line.text()).unwrap();
    }
    writeln!(out, "══ styles: dark\n{}", readable(&block(40, &Theme::dark()))).unwrap();
    writeln!(out, "══ styles: plain\n{}", readable(&block(40, &Theme::plain()))).unwrap();
    insta::assert_snapshot!(name, out);
    for columns in 1..30 {
        for theme in [Theme::dark(), Theme::plain()] {
            for line in block(columns, &theme) {
                assert!(line.width() <= columns.max(2), "{name} at {columns}: {:?}", line.text());
            }
        }
    }
}

/// Text of somebody who means harm, or of a program that does not know better.
fn hostile() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => any::<String>(),
        2 => "[ -~]{0,30}",
        3 => prop::sample::select(vec![
            "\x1b[2J", "\x1b[31m", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x1bP", "\r", "\n", "\x08", "\u{9b}1m", "\u{202e}",
            "\u{2066}", "\u{200b}", "\t", "\x1b", "\0", "日本", "e\u{301}", "\\u001b[1m", "+1 x", "\"",
        ]).prop_map(String::from),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

fn permission(tool: &str, question: &str, subject: &str) -> Ask {
    let kind = AskKind::Permission(Permission {
        call: "c".into(),
        tool: tool.into(),
        question: question.into(),
        subject: subject.into(),
        scopes: vec![Scope::Once],
        rules: Vec::new(),
    });
    Ask { id: "a".into(), deadline: None, default: Answer::no(), kind }
}

proptest! {
    #[test]
    fn no_block_lets_anything_foreign_through(text in hostile(), columns in 1usize..100, folded: bool) {
        let theme = Theme::dark();
        let json = |value: &str| Json::from(&serde_json::Value::from(value)).to_string();
        let edits = format!(r#"{{"path":{0},"edits":[{{"oldText":"a","newText":{0}}}],"command":{0},"content":{0}}}"#, json(&text));
        let details = format!(r#"{{"diff":{}}}"#, json(&text));
        let done = result(&text, Some(&details), false);
        let failed = result(&text, None, true);
        let ask = permission(&text, &text, &text);
        let mut lines = blocks::user(&text, columns, &theme);
        for name in ["edit", "write", "bash", "read", &text] {
            for (arguments, state) in [
                (edits.as_str(), ToolState::Done { result: &done, took: None }),
                (&edits, ToolState::Done { result: &failed, took: None }),
                (&edits, ToolState::Running { tail: &text, elapsed: Duration::ZERO }),
                (&edits[..edits.floor_char_boundary(edits.len() / 2)], ToolState::Writing),
                (&text, ToolState::Waiting),
            ] {
                lines.extend(tool(name, arguments, state, folded, columns, &theme));
            }
        }
        let body = blocks::ask_body(&ask, columns, &theme);
        let question = AskView { ask: &ask, body: &body, top: 2, read: folded, cwd: &text, choices: &[("y", "yes")], selected: 0, waiting: 0 };
        lines.extend(blocks::ask(&question, columns, 4, &theme).0);
        lines.extend(blocks::small_ask(&question, Some(&text).filter(|_| folded).map(String::as_str), columns, 5, &theme).0);
        lines.extend(blocks::queue(&[QueuedItem { id: "1".into(), text: text.clone() }], &[], columns, &theme));
        lines.extend(blocks::model_error(&ModelError::new(ModelErrorKind::Server, text.clone()), columns, &theme));
        lines.extend(blocks::notice(&Notice::Note { text: text.clone() }, columns, &theme));
        lines.extend(blocks::label(&text, columns, &theme));
        lines.push(blocks::status(&StatusView { model: &text, branch: &text, session: &text, cwd: &text, permissions: &text, thinking: &text, working: Some((&text, Duration::ZERO)), ..StatusView::default() }, columns, &theme));
        for line in &lines {
            let text = line.text();
            prop_assert!(line.width() <= columns.max(2), "{columns}: {text:?}");
            prop_assert!(!text.contains(|c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}' | '\u{200b}')), "{text:?}");
        }
        for line in markdown(&text, columns, &theme).iter().chain(&blocks::thinking(&text, false, columns, &theme)) {
            let text = line.text();
            prop_assert!(!text.contains(|c: char| c.is_control() || matches!(c, '\u{202e}' | '\u{2066}' | '\u{200b}')), "{text:?}");
        }
    }
}

proptest! {}

#[test]
fn a_reply() {
    let text = "## What was wrong\n\nThe loop **never** ended: `next` was read before it was *set*. See [the docs](https://example.com/docs/loops) and ~~the old note~~.\n\n1. Set `next` first.\n2. Then loop:\n   - once for each item\n   - and once for the rest\n\n> It works on my machine.\n\n| case | before | after |\n|:-----|:------:|------:|\n| empty list | hangs | 0 ms |\n| one item | hangs | 1 ms |\n\n- [x] done\n- [ ] to do\n\n---\n\nThat is all.";
    check("reply", |columns, theme| markdown(text, columns, theme));
}

#[test]
fn code() {
    let text = "```rust\n/// Doc.\nfn main() {\n    let x = \"text\"; // 1\n}\n```";
    let theme = Theme::dark();
    insta::assert_snapshot!("code", readable(&markdown(text, 40, &theme)));
    // A line of code is as long as it is: who copies it gets it whole.
    let long = markdown("```\none two three four five six seven eight\n```", 20, &theme);
    assert_eq!(long.len(), 1);
}

#[test]
fn user_message_block() {
    check("user", |columns, theme| {
        let mut lines = blocks::user(
            "Please make the tests pass.\nThey fail since yesterday, and nobody knows why.",
            columns,
            theme,
        );
        let png = "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAYAAACadoJw";
        for data in [png, "bm8gaW1hZ2U="] {
            let image = ImageContent { data: data.into(), mime_type: "image/\u{1b}[2Jpng".into() };
            lines.extend(blocks::image(&image, columns, theme));
        }
        lines
    });
}

#[test]
fn thinking() {
    let text = "The user wants **tests**.\n\nI should look at them first.";
    check("thinking", |columns, theme| {
        let mut lines = blocks::thinking(text, true, columns, theme);
        lines.extend(blocks::thinking("", true, columns, theme));
        lines.extend(blocks::thinking(text, false, columns, theme));
        lines
    });
}

fn result(text: &str, details: Option<&str>, is_error: bool) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: "c".into(),
        tool_name: String::new(),
        content: vec![Content::text(text)],
        details: details.map(|details| Json::parse(details).unwrap()),
        usage: None,
        is_error,
        timestamp: 0,
    }
}

fn tool(
    name: &str,
    arguments: &str,
    state: ToolState<'_>,
    folded: bool,
    columns: usize,
    theme: &Theme,
) -> Vec<Line> {
    blocks::tool(&ToolView { name, arguments, state, folded }, columns, theme)
}

#[test]
fn an_edit() {
    let arguments = r#"{"path":"src/main.rs","edits":[{"oldText":"let a = 1;\nlet b = 2;\n","newText":"let a = 1;\nlet b = 3;\nlet c = 4;\n"}]}"#;
    let details = r#"{"diff":"  9 fn f() {\n-10     let total = count(items) + 1;\n+10     let total = count(&items) + 2;\n+11     log(total);\n 11 }\n    ...\n 98 // end\n-99 fn gone() {}"}"#;
    check("edit", |columns, theme| {
        let mut lines = tool("edit", arguments, ToolState::Waiting, true, columns, theme);
        let done = result("Successfully replaced 1 block(s).", Some(details), false);
        let state = ToolState::Done { result: &done, took: Some(Duration::from_millis(20)) };
        lines.push(Line::default());
        lines.extend(tool("edit", arguments, state, true, columns, theme));
        let failed = result("Could not find the exact text in src/main.rs.", None, true);
        lines.push(Line::default());
        lines.extend(tool(
            "edit",
            arguments,
            ToolState::Done { result: &failed, took: None },
            true,
            columns,
            theme,
        ));
        lines
    });
}

#[test]
fn files() {
    let content: String = (1..=40).map(|n| format!("line {n}\\n")).collect();
    let write = format!(r#"{{"path":"notes/a.txt","content":"{content}"}}"#);
    let text: String = (10..=29).map(|n| format!("let x{n} = {n};\n")).collect();
    check("files", |columns, theme| {
        let mut lines = tool("write", &write[..30], ToolState::Writing, true, columns, theme);
        lines.push(Line::default());
        let done = result("Successfully wrote to notes/a.txt", None, false);
        lines.extend(tool(
            "write",
            &write,
            ToolState::Done { result: &done, took: None },
            true,
            columns,
            theme,
        ));
        lines.push(Line::default());
        let read = result(&text, None, false);
        let arguments = r#"{"path":"a.rs","offset":10,"limit":20}"#;
        lines.extend(tool(
            "read",
            arguments,
            ToolState::Done { result: &read, took: None },
            true,
            columns,
            theme,
        ));
        lines.push(Line::default());
        let short = result("let x = 1;", None, false);
        lines.extend(tool(
            "read",
            r#"{"path":"a.rs"}"#,
            ToolState::Done { result: &short, took: None },
            false,
            columns,
            theme,
        ));
        lines
    });
}

#[test]
fn commands() {
    let output: String = (1..=20).map(|n| format!("test number {n} ... \x1b[32mok\x1b[0m\n")).collect();
    let arguments = r#"{"command":"cargo test --workspace\necho done"}"#;
    check("commands", |columns, theme| {
        let running = ToolState::Running { tail: &output, elapsed: Duration::from_secs(75) };
        let mut lines = tool("bash", arguments, running, true, columns, theme);
        lines.push(Line::default());
        let done = result(&output, None, false);
        let state = ToolState::Done { result: &done, took: Some(Duration::from_millis(4200)) };
        lines.extend(tool("bash", arguments, state, true, columns, theme));
        lines.push(Line::default());
        let failed = result("no such file\n\nCommand exited with code 1", Some(r#"{"exitCode":1}"#), true);
        lines.extend(tool(
            "bash",
            arguments,
            ToolState::Done { result: &failed, took: None },
            true,
            columns,
            theme,
        ));
        lines.push(Line::default());
        lines.extend(tool("bash", r#"{"command":"echo \"a\\"#, ToolState::Writing, true, columns, theme));
        lines.push(Line::default());
        let other = result("3 found", None, false);
        let arguments = r#"{"query":"where is it","limit":3}"#;
        lines.extend(tool(
            "recall",
            arguments,
            ToolState::Done { result: &other, took: None },
            true,
            columns,
            theme,
        ));
        lines
    });
}

#[test]
fn shell() {
    let view = ShellView {
        command: "git status",
        output: "On branch main\nnothing to commit\n",
        running: None,
        exit_code: Some(0),
        cancelled: false,
        hidden: false,
        full_output_path: None,
        folded: true,
    };
    check("shell", |columns, theme| {
        let mut lines = blocks::shell(&view, columns, theme);
        let hidden =
            ShellView { hidden: true, exit_code: Some(2), full_output_path: Some("/tmp/out.txt"), ..view };
        lines.extend(blocks::shell(&hidden, columns, theme));
        lines.extend(blocks::shell(&ShellView { output: "", ..view }, columns, theme));
        lines.extend(blocks::shell(&ShellView { cancelled: true, exit_code: None, ..view }, columns, theme));
        let running = ShellView { running: Some(Duration::from_secs(3)), exit_code: None, ..view };
        lines.extend(blocks::shell(&running, columns, theme));
        lines
    });
}

#[test]
fn errors() {
    check("errors", |columns, theme| {
        let mut error = ModelError::new(ModelErrorKind::RateLimited, "too many requests for this key");
        error.status = Some(429);
        error.retry_after = Some(Duration::from_secs(90));
        error.request_id = Some("req_1\x1b[2J".into());
        let mut lines = blocks::model_error(&error, columns, theme);
        lines.extend(blocks::retry(2, Duration::from_secs(4), &error, columns, theme));
        for outcome in [
            Outcome::Done,
            Outcome::Aborted,
            Outcome::Failed(ModelError::new(ModelErrorKind::NoCredential, "no key is known for `example`")),
            Outcome::Limit(Limit::Turns(20)),
            Outcome::Limit(Limit::Cost(0.5)),
            Outcome::Limit(Limit::Daily { spent: 10.25, budget: 10.0 }),
            Outcome::Limit(Limit::Account(AccountLimit {
                holder: BudgetHolder::Agent,
                name: "ops".into(),
                unit: BudgetUnit::Tokens,
                spent: 900.0,
                budget: 1_000.0,
                resets: 0,
            })),
            Outcome::StoreFailed("disk full".into()),
        ] {
            lines.extend(blocks::outcome(&outcome, columns, theme));
        }
        let interrupted = Notice::Interrupted { calls: vec![("bash".into(), "c".into())], model_call: true };
        for notice in [interrupted, Notice::Note { text: "a note".into() }] {
            lines.extend(blocks::notice(&notice, columns, theme));
        }
        lines
    });
}

#[test]
fn every_failure_of_a_model_says_what_to_do() {
    use ModelErrorKind as K;
    let said = [
        (K::NoCredential, None, "There is no credential for one."),
        (K::Auth, Some(401), "host answered 401: invalid key. Check the credential of this provider."),
        (K::Quota, Some(402), "host answered 402: no credit."),
        (K::RateLimited, Some(429), "host answered 429: slow down. Given up after 4 attempts."),
        (K::Overloaded, Some(529), "host answered 529: overloaded."),
        (K::Server, Some(500), "host answered 500: oh."),
        (K::Network, None, "host could not be reached."),
        (K::Timeout, None, "host said nothing for 300 s."),
        (K::StreamEnded, None, "The answer ended too early."),
        (K::Malformed, Some(200), "host sent an HTML page."),
        (K::TooLarge, None, "The answer is larger than 64 MiB."),
        (K::ContextOverflow, Some(400), "host answered 400: the prompt is too long."),
        (K::InvalidRequest, Some(422), "host answered 422: bad."),
        (K::UnknownModel, Some(404), "host answered 404: no such model."),
        (K::Refused, None, "The provider declined."),
        (K::Aborted, None, "Stopped."),
        (K::ReplayMismatch, None, "The recording has no answer to this."),
    ];
    check("model_errors", |columns, theme| {
        let mut lines = Vec::new();
        for (kind, status, message) in said {
            let mut error = ModelError::new(kind, message);
            error.status = status;
            lines.extend(blocks::model_error(&error, columns, theme));
        }
        for delay in [0, 1, 2_400, 61_000] {
            let error = ModelError::new(K::RateLimited, "host answered 429: slow down.");
            lines.extend(blocks::retry(2, Duration::from_millis(delay), &error, columns, theme));
        }
        lines
    });
}

#[test]
fn a_long_change_is_folded_and_counted() {
    let side = |word: &str| (1..=30).map(|n| format!("let {word}{n} = {n};\\n")).collect::<String>();
    let path = "crates/a/very/long/path/to/a/file/that/is/edited.rs";
    let arguments = format!(
        r#"{{"path":"{path}","edits":[{{"oldText":"{}","newText":"{}"}}]}}"#,
        side("old"),
        side("new")
    );
    let done = result("Successfully replaced 1 block(s).", None, false);
    let state = ToolState::Done { result: &done, took: None };
    check("edit_long", |columns, theme| {
        let lines = tool("edit", &arguments, state, true, columns, theme);
        if columns >= 20 {
            assert!(lines[0].text().ends_with("(+30 -30)"), "{:?}", lines[0].text());
            assert!(lines.last().unwrap().text().ends_with("lines more"));
        }
        lines
    });
    let whole = tool("edit", &arguments, state, false, 80, &Theme::plain());
    assert_eq!(whole.len(), 61, "unfolded it is all there");
}

#[test]
fn asks() {
    let ask = |subject: &str| {
        permission("bash", "Allow running this command in /work? It is not on the list.", subject)
    };
    let choices = [("y", "once"), ("s", "for this session"), ("n", "no")];
    let short = ask("rm -rf target && \x1b[2Jcargo build");
    let long = ask(&(1..=30).map(|n| format!("step {n}")).collect::<Vec<_>>().join("\n"));
    check("ask", |columns, theme| {
        let body = blocks::ask_body(&short, columns, theme);
        let view = AskView {
            ask: &short,
            body: &body,
            top: 0,
            read: true,
            cwd: "~/work",
            choices: &choices,
            selected: 0,
            waiting: 0,
        };
        let (mut lines, part) = blocks::ask(&view, columns, body.len(), theme);
        assert_eq!(part, 0..body.len());
        lines.push(Line::default());
        let body = blocks::ask_body(&long, columns, theme);
        let view = AskView { ask: &long, body: &body, read: false, selected: 2, waiting: 2, ..view };
        for top in [0, usize::MAX] {
            let (shown, part) = blocks::ask(&AskView { top, ..view }, columns, 4, theme);
            assert_eq!(part, if top == 0 { 0..4 } else { body.len() - 4..body.len() });
            lines.extend(shown);
        }
        lines
    });
}

#[test]
fn question_without_room_shows_the_command_and_keys() {
    let ask = |subject: &str| permission("bash", "Allow running this command in ~/work/project?", subject);
    let short = ask("cargo test");
    let long = ask(
        "curl https://example.com/install.sh -o install.sh\nsh install.sh\nrm -rf ~/.cache\ngit push --force",
    );
    let choices = [("y", "once"), ("s", "session"), ("a", "always"), ("n", "no")];
    let held = [("Alt+y", "once"), ("Alt+s", "session"), ("Alt+a", "always"), ("Alt+n", "no")];
    let mut out = String::new();
    for (columns, rows) in [(1, 1), (10, 1), (20, 1), (20, 2), (20, 4), (40, 4), (80, 7)] {
        for (ask, choices, selected, reason) in [
            (&short, &choices, 0, None),
            (&long, &choices, 3, None),
            (&long, &held, usize::MAX, None),
            (&long, &choices, 0, Some("because it pushes over the work of others")),
        ] {
            let body = blocks::ask_body(ask, columns, &Theme::plain());
            let view = AskView {
                ask,
                body: &body,
                top: 0,
                read: false,
                cwd: "~/work",
                choices,
                selected,
                waiting: 1,
            };
            let (lines, part) = blocks::small_ask(&view, reason, columns, rows, &Theme::plain());
            assert!(part.end <= body.len());
            writeln!(out, "══ {columns}×{rows}").unwrap();
            assert!((1..=rows).contains(&lines.len()), "{columns}×{rows}: {lines:?}");
            for line in &lines {
                assert!(line.width() <= columns, "{columns}×{rows}: {:?}", line.text());
                writeln!(out, "{}", line.text()).unwrap();
            }
        }
    }
    insta::assert_snapshot!("small_ask", out);
}

#[test]
fn queue() {
    let item = |id: &str, text: &str| QueuedItem { id: id.into(), text: text.into() };
    let steering = [item("1", "look at the\nother file first"), item("2", "and be quick")];
    let follow_up = [item("3", "then write the changelog, in one sentence for each change that users see")];
    check("queue", |columns, theme| blocks::queue(&steering, &follow_up, columns, theme));
}

#[test]
fn engine_note_blocks() {
    let compaction = Compaction {
        summary: "# Goal\n\nTests pass.".into(),
        tokens_before: 180_400,
        ..Compaction::default()
    };
    let done =
        CompactionResult::Done { node: NodeId([0; 32]), compaction: compaction.into(), tokens_after: 12_345 };
    check("notes", |columns, theme| {
        let mut lines = blocks::compacting(CompactionReason::Threshold, columns, theme);
        lines.extend(blocks::compaction(&done, true, columns, theme));
        lines.extend(blocks::compaction(&done, false, columns, theme));
        lines.extend(blocks::compaction(&CompactionResult::Failed("no key".into()), true, columns, theme));
        lines.extend(blocks::branch_summary("It was tried.\nIt failed.", true, columns, theme));
        lines.extend(blocks::branch_summary("It was tried.\nIt failed.", false, columns, theme));
        lines.extend(blocks::label("before the rewrite", columns, theme));
        lines
    });
}

#[test]
fn status() {
    let usage = Usage {
        input: 12_345,
        output: 6_789,
        cache_read: 1_234_567,
        cache_write: 45_000,
        cost: Cost { total: 1.234, ..Cost::default() },
        ..Usage::default()
    };
    let full = StatusView {
        model: "example-large",
        thinking: "high",
        usage,
        context: Some(150_000),
        window: 200_000,
        branch: "main",
        permissions: "ask",
        background: 2,
        session: "the rewrite",
        cwd: "~/work/project",
        working: None,
    };
    check("status", |columns, theme| {
        vec![
            blocks::status(&full, columns, theme),
            blocks::status(
                &StatusView { working: Some(("thinking", Duration::from_secs(12))), ..full },
                columns,
                theme,
            ),
            blocks::status(&StatusView { context: Some(195_000), ..full }, columns, theme),
            blocks::status(&StatusView { context: None, ..full }, columns, theme),
            blocks::status(&StatusView::default(), columns, theme),
        ]
    });
}
