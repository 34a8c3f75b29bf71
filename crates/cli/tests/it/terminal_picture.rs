//! The picture in the README: the program at work on a pseudo-terminal, as it shows itself.

use std::fmt::Write as _;
use std::path::PathBuf;

use quipu_testkit::Answer;
use serde_json::{Value, json};

use crate::pty::{CTRL_D, Terminal};
use crate::support::{World, call};

const COLUMNS: u16 = 92;
const ROWS: u16 = 40;
/// Units of a cell, and around all.
const CELL: (u32, u32) = (8, 18);
const MARGIN: u32 = 16;

/// The sixteen colours, on light and on dark.
const LIGHT: [&str; 16] = [
    "#24292f", "#b3261e", "#1a7f37", "#8a5a00", "#0b57d0", "#8250df", "#0b7285", "#6e7781", "#57606a",
    "#cf222e", "#1f883d", "#9a6700", "#0969da", "#8250df", "#1b7c83", "#24292f",
];
const DARK: [&str; 16] = [
    "#484f58", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", "#b1bac4", "#8b949e",
    "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#b3f0ff", "#f0f6fc",
];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn colour(kind: char, color: vt100::Color) -> Option<String> {
    match color {
        vt100::Color::Idx(index @ 0..16) => Some(format!("{kind}{index}")),
        vt100::Color::Default => None,
        other => panic!("one of sixteen colours: {other:?}"),
    }
}

/// The screen as a picture that needs nothing else.
fn drawn(screen: &vt100::Screen) -> String {
    let rows: Vec<String> = screen.rows(0, COLUMNS).map(|row| row.trim_end().to_owned()).collect();
    let last = rows.iter().rposition(|row| !row.is_empty()).unwrap() + 1;
    let (width, height) =
        (u32::from(COLUMNS) * CELL.0 + 2 * MARGIN, u32::try_from(last).unwrap() * CELL.1 + 2 * MARGIN);
    let palette = |colours: &[&str; 16]| {
        let one = |(at, colour): (usize, &&str)| {
            format!(".f{at}{{fill:{colour}}}.b{at}{{fill:{colour};opacity:.22}}")
        };
        colours.iter().enumerate().map(one).collect::<String>()
    };
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">\n\
         <title>quipu in a terminal</title>\n\
         <style>text{{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#1f2328}}\
         .bg{{fill:#fff;stroke:#d0d7de}}{}\n\
         @media(prefers-color-scheme:dark){{text{{fill:#e6edf3}}.bg{{fill:#0d1117;stroke:#30363d}}{}}}\n\
         .b{{font-weight:600}}.i{{font-style:italic}}.u{{text-decoration:underline}}.d{{fill-opacity:.66}}</style>\n\
         <rect class=\"bg\" x=\".5\" y=\".5\" width=\"{}\" height=\"{}\" rx=\"8\"/>\n",
        palette(&LIGHT),
        palette(&DARK),
        width - 1,
        height - 1
    );
    for at in 0..u16::try_from(last).unwrap() {
        let y = MARGIN + u32::from(at) * CELL.1;
        // Runs of cells that look the same: their classes, where they begin, what they say.
        let mut runs: Vec<(String, Option<String>, u16, String)> = Vec::new();
        for column in 0..COLUMNS {
            let cell = screen.cell(at, column).unwrap();
            if cell.is_wide_continuation() {
                continue;
            }
            let (mut front, mut back) = (colour('f', cell.fgcolor()), colour('b', cell.bgcolor()));
            if cell.inverse() {
                (front, back) = (back.map(|back| back.replace('b', "f")), Some("b7".to_owned()));
            }
            let mut classes: Vec<String> = front.into_iter().collect();
            let marks =
                [(cell.bold(), "b"), (cell.italic(), "i"), (cell.underline(), "u"), (cell.dim(), "d")];
            classes.extend(marks.iter().filter(|(is, _)| *is).map(|(_, class)| (*class).to_owned()));
            let (classes, text) =
                (classes.join(" "), if cell.has_contents() { cell.contents() } else { " " });
            // Whether a blank was written or passed over is not seen.
            let blank = text == " " && back.is_none() && !cell.underline();
            match runs.last_mut() {
                Some(run) if run.1 == back && (blank || run.0 == classes) => run.3.push_str(text),
                _ if blank => runs.push((String::new(), None, column, text.to_owned())),
                _ => runs.push((classes, back, column, text.to_owned())),
            }
        }
        let mut text = String::new();
        for (classes, back, column, said) in runs {
            let x = MARGIN + u32::from(column) * CELL.0;
            let columns = u32::try_from(unicode_width::UnicodeWidthStr::width(said.as_str())).unwrap();
            if let Some(back) = back {
                let (width, height) = (columns * CELL.0, CELL.1);
                writeln!(
                    out,
                    "<rect class=\"{back}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>"
                )
                .unwrap();
            }
            let shown = said.trim_end();
            if shown.is_empty() {
                continue;
            }
            let columns = u32::try_from(unicode_width::UnicodeWidthStr::width(shown)).unwrap();
            let class = if classes.is_empty() { String::new() } else { format!(" class=\"{classes}\"") };
            // As wide as its cells in whatever font there is.
            let length = columns * CELL.0;
            write!(text, "<tspan x=\"{x}\" textLength=\"{length}\"{class}>{}</tspan>", escaped(shown))
                .unwrap();
        }
        if !text.is_empty() {
            writeln!(out, "<text y=\"{}\">{text}</text>", y + 13).unwrap();
        }
    }
    out.push_str("</svg>\n");
    out
}

/// An answer that says something and calls a tool.
fn calls(text: &str, id: &str, tool: &str, arguments: &Value) -> Answer {
    Answer::new().text(text).tool_call(id, tool, &arguments.to_string())
}

#[test]
fn the_picture_in_the_readme_is_what_the_program_shows() {
    let test = json!({ "command": "sh test.sh" });
    let edit = json!({ "path": "discount.sh", "edits": [{
        "oldText": "$((price - percent))", "newText": "$((price - price * percent / 100))" }] });
    let world = World::new([
        Answer::new().text("Hello.").reply(),
        calls("I will run the test first.", "c1", "bash", &test).usage(2_410, 38, 0, 2_400).reply(),
        calls(
            "The discount is **subtracted as an amount**; it should be a percentage of the price.",
            "c2",
            "edit",
            &edit,
        )
        .usage(180, 92, 2_400, 180)
        .reply(),
        call("c3", "bash", &test),
        Answer::new()
            .text("Fixed: `discount.sh` takes the percentage of the price, and the test passes.")
            .usage(260, 41, 2_580, 260)
            .reply(),
    ]);
    let models = std::fs::read_to_string(world.path("home/.quipu/models.json")).unwrap();
    std::fs::write(
        world.path("home/.quipu/models.json"),
        models.replace("\"test-1\"", "\"example-large\"").replace(":1000", ":12"),
    )
    .unwrap();
    let work = world.path("home/shop");
    std::fs::create_dir(&work).unwrap();
    // The program of `quipu demo`, and its test.
    for (name, text) in [
        ("discount.sh", include_str!("../../src/demo/discount.sh")),
        ("test.sh", include_str!("../../src/demo/test.sh")),
    ] {
        std::fs::write(work.join(name), text).unwrap();
    }
    let here = |args: &[&str]| {
        let mut command = world.quipu(args);
        command.current_dir(&work).env("TERM", "xterm");
        command
    };
    // What tools may do here is kept, and not told again.
    assert!(here(&["-p", "--permissions", "full", "hello"]).output().unwrap().status.success());
    let command = here(&[]);
    let mut terminal = Terminal::start(command, COLUMNS, ROWS);
    terminal.shows("example-large");
    terminal.types("The test fails. Find the bug, fix it, and show that the test passes.\r");
    terminal.settles("the test passes.");
    terminal.until("its end", |shown| shown.contains("Fixed:") && !shown.contains("stops it"));
    let picture = drawn(terminal.screen.screen());
    terminal.types(CTRL_D);
    assert_eq!(terminal.ends(), Some(0));
    // A directory of this test alone.
    let home = world.path("home").display().to_string();
    assert!(!picture.contains(&home), "{picture}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/terminal.svg");
    if std::env::var("INSTA_UPDATE").is_ok_and(|value| value == "always") {
        std::fs::write(&path, &picture).unwrap();
    }
    assert!(picture.len() < 40_000, "{} bytes", picture.len());
    let shipped = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(picture, shipped, "docs/terminal.svg: INSTA_UPDATE=always makes it anew");
}
