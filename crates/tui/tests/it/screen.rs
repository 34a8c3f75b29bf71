//! What is written, replayed through a terminal at every boundary.

use crate::glass::{Glass, reference_rows};
use proptest::prelude::*;
use quipu_protocol::ImageContent;
use quipu_tui::{Canvas, Color, Depth, Frame, Graphics, Line, Links, Screen, Size, Style, Theme, blocks};
use std::fmt::Write as _;

fn size(columns: usize, rows: usize) -> Size {
    Size { columns, rows }
}

fn frame(lines: &[&str], cursor: Option<(usize, usize)>) -> Frame {
    Frame { lines: lines.iter().map(|line| Line::from(*line)).collect(), cursor }
}

#[test]
fn finished_lines_scroll_and_the_live_part_stays_below() {
    let mut screen = Screen::new(size(20, 5), Depth::Rgb);
    let mut glass = Glass::new(size(20, 5));
    screen.draw(&frame(&["> ", "status"], Some((0, 2))));
    glass.write(&screen.take());
    for number in 0..12 {
        screen.print(&[Line::from(format!("line {number}").as_str())]);
        glass.write(&screen.take());
    }
    let mut expected: Vec<String> = (0..12).map(|number| format!("line {number}")).collect();
    expected.extend([">".to_owned(), "status".to_owned()]);
    assert_eq!(glass.texts(), expected);
    assert_eq!(glass.cursor(), (3, 2));
}

#[test]
fn finished_live_lines_are_printed_without_repainting() {
    let mut screen = Screen::new(size(60, 10), Depth::Rgb);
    let mut glass = Glass::new(size(60, 10));
    let reply = "a paragraph that has come to its end";
    screen.draw(&frame(&[reply, "", "> "], Some((2, 2))));
    glass.write(&screen.take());
    screen.print(&[Line::from(reply)]);
    screen.draw(&frame(&["", "> "], Some((1, 2))));
    let bytes = screen.take();
    assert!(bytes.is_empty(), "{:?}", String::from_utf8_lossy(&bytes));
    screen.print(&[Line::from("more")]);
    glass.write(&screen.take());
    assert_eq!(glass.texts(), [reply, "more", "", ">"]);
}

#[test]
fn a_typed_character_is_one_byte() {
    let mut screen = Screen::new(size(60, 10), Depth::Rgb);
    screen.draw(&frame(&["> a", "status"], Some((0, 3))));
    let _first = screen.take();
    screen.draw(&frame(&["> ab", "status"], Some((0, 4))));
    assert_eq!(String::from_utf8(screen.take()).unwrap(), "b");
    screen.draw(&frame(&["> ab", "status"], None));
    assert_eq!(String::from_utf8(screen.take()).unwrap(), "\x1b[?25l");
    screen.draw(&frame(&["> ab", "status"], Some((0, 4))));
    assert_eq!(String::from_utf8(screen.take()).unwrap(), "\x1b[?25h");
}

/// A reply as it comes, a few characters at a time and sixty times a second, above an editor and a status line.
#[test]
fn a_streamed_reply_takes_few_bytes() {
    let columns = 100;
    let words: Vec<String> = (0..4_000).map(|number| format!("word{number} ")).collect();
    let mut screen = Screen::new(size(columns, 40), Depth::Rgb);
    let mut glass = Glass::new(size(columns, 40));
    let rule = "─".repeat(columns);
    let mut characters = 0;
    let mut paragraph = String::new();
    for (index, some) in words.chunks(27).enumerate() {
        let text = some.concat();
        characters += text.len();
        paragraph.push_str(&text);
        let mut lines = quipu_tui::wrap(&Line::from(paragraph.as_str()), columns - 2, 0);
        if lines.len() > 6 {
            screen.print(&lines);
            lines.clear();
            paragraph.clear();
        }
        let live = lines.len();
        lines.extend([&rule, "> ", &rule].map(Line::from));
        lines
            .push(Line::from(format!("{} tokens  {}.{} s", index * 27, index / 60, index / 6 % 10).as_str()));
        screen.draw(&Frame { lines, cursor: Some((live + 1, 2)) });
        glass.write(&screen.take());
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio of small numbers")]
    let ratio = glass.bytes as f64 / characters as f64;
    assert!(ratio < 1.6, "{ratio:.2} bytes for each character; {characters} characters");
}

#[test]
fn a_list_that_scrolls_moves_its_rows() {
    let mut screen = Screen::new(size(60, 24), Depth::Rgb);
    let mut glass = Glass::new(size(60, 24));
    let items: Vec<String> = (0..60).map(|number| format!("{number} {}", "an entry ".repeat(5))).collect();
    let show = |top: usize| {
        let mut lines = vec!["pick one"];
        lines.extend(items[top..top + 20].iter().map(String::as_str));
        lines.push("status");
        frame(&lines, Some((0, 8)))
    };
    for top in [0, 1, 2, 5, 4, 1, 0] {
        screen.draw(&show(top));
        let bytes = screen.take();
        if top > 0 {
            assert!(bytes.len() < 270, "{} bytes to scroll", bytes.len());
        }
        glass.write(&bytes);
        let expected: Vec<String> =
            show(top).lines.iter().map(|line| line.text().trim_end().to_owned()).collect();
        assert_eq!(glass.texts(), expected);
    }
}

#[test]
fn a_line_wider_than_the_screen_is_broken_by_the_terminal() {
    let mut screen = Screen::new(size(10, 6), Depth::Rgb);
    let mut glass = Glass::new(size(10, 6));
    screen.print(&[Line::from("https://example.org/a/long/path")]);
    screen.draw(&frame(&["> "], Some((0, 2))));
    glass.write(&screen.take());
    let wraps: Vec<bool> = glass.rows().iter().map(|(_, wraps)| *wraps).collect();
    assert_eq!(wraps, [true, true, true, false, false, false]);
    assert_eq!(glass.screen().contents(), "https://example.org/a/long/path\n>");
}

#[test]
fn a_line_that_ends_where_one_went_on_is_known_to_end() {
    let mut screen = Screen::new(size(6, 6), Depth::Rgb);
    let mut glass = Glass::new(size(6, 6));
    screen.draw(&frame(&["abcdefghi"], None));
    glass.write(&screen.take());
    assert_eq!(glass.screen().contents(), "abcdefghi");
    screen.draw(&frame(&["abcdef", "ghi"], None));
    glass.write(&screen.take());
    assert_eq!(glass.screen().contents(), "abcdef\nghi");
    screen.draw(&frame(&["abcdefghi"], None));
    glass.write(&screen.take());
    assert_eq!(glass.screen().contents(), "abcdefghi");
    screen.draw(&frame(&["abc", "ghi"], None));
    glass.write(&screen.take());
    assert_eq!(glass.screen().contents(), "abc\nghi");
}

#[test]
fn ambiguous_width_characters_keep_their_columns() {
    // The terminal of this test takes each of these for two characters of two columns.
    let mut screen = Screen::new(size(40, 4), Depth::Rgb);
    let mut glass = Glass::new(size(40, 4));
    for text in [
        "a 👩\u{200d}👧 b",
        "a 👩\u{200d}👧 bc",
        "👩\u{200d}👧👩\u{200d}👧|",
        "x👩\u{200d}👧👩\u{200d}👧|",
        "plain",
    ] {
        screen.draw(&frame(&[text, "below"], Some((0, 0))));
        glass.write(&screen.take());
        let row = glass.texts()[0].clone();
        let last = text.chars().next_back().unwrap();
        let column = u16::try_from(quipu_tui::width(text) - 1).unwrap();
        assert_eq!(glass.screen().cell(0, column).unwrap().contents(), last.to_string(), "{text} as {row}");
        assert_eq!(glass.texts().len(), 2);
    }
    assert_eq!(glass.texts(), ["plain", "below"]);
}

#[test]
fn a_frame_taller_than_the_screen_shows_its_end_or_the_cursor() {
    let mut screen = Screen::new(size(10, 3), Depth::Rgb);
    let mut glass = Glass::new(size(10, 3));
    let lines = ["0", "1", "2", "3", "4"];
    for (cursor, expected) in
        [(Some((4, 1)), ["2", "3", "4"]), (Some((1, 1)), ["1", "2", "3"]), (None, ["2", "3", "4"])]
    {
        screen.draw(&frame(&lines, cursor));
        glass.write(&screen.take());
        assert_eq!(glass.texts(), expected);
    }
    assert_eq!(glass.screen().scrollback_len(), 0);
}

#[test]
fn leaving_and_coming_back() {
    let mut screen = Screen::new(size(20, 6), Depth::Rgb);
    let mut glass = Glass::new(size(20, 6));
    screen.print(&[Line::from("before")]);
    screen.draw(&frame(&["> typed", "status"], Some((0, 3))));
    glass.write(&screen.take());
    glass.write(&screen.finish());
    assert_eq!(glass.cursor(), (3, 0));
    assert!(screen.take().is_empty());
    glass.write(b"$ fg\r\n");
    screen.draw(&frame(&["> typed", "status"], Some((0, 3))));
    glass.write(&screen.take());
    assert_eq!(glass.texts(), ["before", "> typed", "status", "$ fg", "> typed", "status"]);
    // A part that is no longer wanted goes before we do.
    screen.draw(&Frame::default());
    glass.write(&screen.finish());
    assert_eq!(glass.texts(), ["before", "> typed", "status", "$ fg", "> typed", "status"][..4]);
}

#[test]
fn no_more_colours_than_the_terminal_has() {
    let style = Style {
        foreground: Color::Rgb(250, 10, 10),
        background: Color::Indexed(21),
        bold: true,
        ..Style::default()
    };
    for (depth, expected) in [
        (Depth::Rgb, "\x1b[1;38;2;250;10;10;48;5;21mtext"),
        (Depth::Indexed, "\x1b[1;38;5;196;48;5;21mtext"),
        (Depth::Ansi, "\x1b[1;91;44mtext"),
        (Depth::None, "\x1b[1mtext"),
    ] {
        let mut screen = Screen::new(size(20, 6), depth);
        screen.print(&[Line::styled("text", style)]);
        let bytes = String::from_utf8(screen.take()).unwrap();
        assert!(bytes.contains(expected), "{depth:?}: {bytes:?}");
    }
}

#[test]
fn an_image_stands_in_rows_of_its_own_among_finished_lines() {
    let data = "iVBORw0KGgoAAAANSUhEUgAAAyAAAAJYCAYAAACadoJw".to_owned();
    let image = ImageContent { data, mime_type: "image/png".into() };
    let mut seen = String::new();
    for (columns, rows) in [(20, 8), (40, 12), (80, 24), (120, 40)] {
        for graphics in [Graphics::Kitty, Graphics::Iterm2] {
            let theme =
                Theme { canvas: Some(Canvas { graphics, cell: (10, 20), rows: rows / 2 }), ..Theme::plain() };
            let mut screen = Screen::new(size(columns, rows), Depth::Rgb);
            let mut glass = Glass::new(size(columns, rows));
            screen.draw(&frame(&["working", "> hello"], Some((1, 7))));
            glass.write(&screen.take());
            screen.print(&[Line::from("before")]);
            screen.print(&blocks::image(&image, columns, &theme));
            screen.print(&[Line::from("behind")]);
            screen.draw(&frame(&["working", "> hello"], Some((1, 7))));
            let bytes = screen.take();
            glass.write(&bytes);
            let text = String::from_utf8_lossy(&bytes);
            let drawn = text.split("\x1b7\x1b[").nth(1).and_then(|rest| rest.split("\x1b8").next());
            let up = drawn.and_then(|rest| rest.split('A').next()).map(|up| up.parse::<usize>().unwrap_or(1));
            let shown = glass.texts();
            let behind = shown.iter().position(|line| line == "behind").unwrap();
            let said = shown[..behind].iter().rposition(|line| !line.is_empty()).unwrap();
            assert!(shown[said].ends_with("33 B]"), "{columns} {shown:?}");
            assert_eq!(Some(behind - said - 1), up, "{columns} {shown:?}");
            assert_eq!(&shown[behind + 1..behind + 3], ["working", "> hello"], "{columns}");
            writeln!(seen, "══ {columns} by {rows}, {graphics:?}: {up:?} rows\n{}", shown.join("\n"))
                .unwrap();
        }
    }
    insta::assert_snapshot!("images", seen);
}

#[test]
fn links_are_begun_and_ended() {
    let links = Links::default();
    let link = links.to("https://example.org/");
    let mut line = Line::from("see ");
    line.push("a long page", Style { link, underline: true, ..Style::default() });
    line.push(" now", Style::default());
    for (columns, known, expected) in [
        (40, true, "see \x1b]8;;https://example.org/\x1b\\\x1b[4ma long page\x1b]8;;\x1b\\\x1b[m now"),
        (8, true, "\x1b]8;;https://example.org/\x1b\\\x1b[4ma long page\x1b]8;;\x1b\\\x1b[m now"),
        (40, false, "see \x1b[4ma long page\x1b[m now"),
    ] {
        let mut screen = Screen::new(size(columns, 6), Depth::Rgb).links(known.then(|| links.clone()));
        screen.print(&[line.clone()]);
        screen.draw(&frame(&["> "], Some((0, 2))));
        let bytes = String::from_utf8(screen.take()).unwrap();
        assert!(bytes.contains(expected), "{columns}: {bytes:?}");
        let mut glass = Glass::new(size(columns, 6));
        glass.write(bytes.as_bytes());
        assert!(glass.texts().concat().contains("long page"), "{:?}", glass.texts());
    }
}

#[test]
fn control_characters_in_a_line_are_never_obeyed() {
    let mut screen = Screen::new(size(40, 4), Depth::Rgb);
    screen.print(&[Line::from("a\x1b]0;title\x07\r\nb\u{9b}2J")]);
    let bytes = String::from_utf8(screen.take()).unwrap();
    assert!(bytes.contains("a\u{fffd}]0;title\u{fffd}\u{fffd}b\u{fffd}2J"), "{bytes:?}");
}

#[test]
fn a_hundred_thousand_lines_at_once() {
    let mut screen = Screen::new(size(80, 24), Depth::Rgb);
    let lines: Vec<Line> = (0..100_000).map(|number| Line::from(format!("line {number}").as_str())).collect();
    screen.draw(&frame(&["> "], Some((0, 2))));
    screen.print(&lines);
    let bytes = screen.take();
    assert!(bytes.len() < 100_000 * 16, "{}", bytes.len());
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(text.matches("line ").count(), 100_000);
    let mut glass = Glass::new(size(80, 24));
    glass.write(text.as_bytes());
    let texts = glass.texts();
    assert_eq!(texts.len(), 100_001);
    assert_eq!(texts[99_999..], ["line 99999", ">"]);
}

fn styles() -> impl Strategy<Value = Style> {
    let colors = prop_oneof![
        Just(Color::Default),
        (0_u8..16).prop_map(Color::Ansi),
        any::<u8>().prop_map(Color::Indexed),
        any::<(u8, u8, u8)>().prop_map(|(red, green, blue)| Color::Rgb(red, green, blue)),
    ];
    (colors.clone(), colors, any::<[bool; 5]>()).prop_map(
        |(foreground, background, [bold, dim, italic, underline, reverse])| Style {
            foreground,
            background,
            bold,
            dim: dim && !bold,
            italic,
            underline,
            reverse,
            strike: false,
            link: quipu_tui::Link::default(),
        },
    )
}

fn lines(most: usize) -> impl Strategy<Value = Vec<Line>> {
    let text = prop_oneof![
        "[a-c ]{0,12}",
        "[ab日本é👍─]{0,12}",
        "[a ]{20,90}",
        "[a日]{20,60}",
        Just("the same line".to_owned()),
        Just(String::new()),
    ];
    let span = (text, prop_oneof![3 => Just(Style::default()), 1 => styles()]);
    let line = proptest::collection::vec(span, 1..3).prop_map(|spans| {
        let mut line = Line::default();
        spans.into_iter().for_each(|(text, style)| line.push(text, style));
        line
    });
    proptest::collection::vec(line, 0..most)
}

#[derive(Debug, Clone)]
enum Step {
    Print(Vec<Line>),
    Draw(Vec<Line>, Option<(usize, usize)>),
    Grow(Line),
    Take,
    Resize(Size),
}

fn steps(resizes: bool) -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![
        (1_usize..60, 1_usize..16).prop_map(|(columns, rows)| size(columns, rows)),
        Just(size(1, 1)),
        Just(size(20, 5)),
    ];
    let step = prop_oneof![
        2 => lines(4).prop_map(Step::Print),
        1 => lines(30).prop_map(Step::Print),
        3 => (lines(9), proptest::option::of((0_usize..9, 0_usize..70))).prop_map(|(lines, at)| Step::Draw(lines, at)),
        1 => (lines(30), proptest::option::of((0_usize..30, 0_usize..70))).prop_map(|(lines, at)| Step::Draw(lines, at)),
        3 => lines(2).prop_map(|lines| Step::Grow(lines.into_iter().next().unwrap_or_default())),
        4 => Just(Step::Take),
        if resizes { 2 } else { 0 } => sizes.prop_map(Step::Resize),
    ];
    proptest::collection::vec(step, 1..24)
}

/// The rows of lines, as the terminal shows them.
fn rows(lines: &[Line], columns: usize) -> Vec<String> {
    lines
        .iter()
        .flat_map(|line| reference_rows(&line.text(), columns))
        .map(|row| row.trim_end().to_owned())
        .collect()
}

/// The cells of lines, each with its row and column.
fn cells(lines: &[Line], columns: usize) -> Vec<(usize, usize, String, Style)> {
    let mut cells = Vec::new();
    let (mut row, mut column) = (0, 0);
    for line in lines {
        for span in &line.spans {
            for cluster in unicode_segmentation::UnicodeSegmentation::graphemes(span.text.as_str(), true) {
                let width = quipu_tui::width(cluster).min(columns);
                if column + width > columns {
                    row += 1;
                    column = 0;
                }
                cells.push((row, column, cluster.to_owned(), span.style));
                column += width;
            }
        }
        row += 1;
        column = 0;
    }
    cells
}

/// Whether the terminal shows a cell in its style.
fn check_style(cell: &vt100::Cell, text: &str, style: Style) -> Result<(), TestCaseError> {
    let color = |color| match color {
        Color::Default => vt100::Color::Default,
        Color::Ansi(index) | Color::Indexed(index) => vt100::Color::Idx(index),
        Color::Rgb(red, green, blue) => vt100::Color::Rgb(red, green, blue),
    };
    let shown = (cell.bgcolor(), cell.underline(), cell.inverse());
    prop_assert_eq!(shown, (color(style.background), style.underline, style.reverse), "{:?}", text);
    if text != " " {
        let shown = (cell.fgcolor(), cell.bold(), cell.dim(), cell.italic());
        prop_assert_eq!(shown, (color(style.foreground), style.bold, style.dim, style.italic), "{:?}", text);
    }
    Ok(())
}

/// The rows of a frame that the screen has room for, and where among them the cursor stands.
fn live_rows(frame: &Frame, size: Size) -> (Vec<String>, Option<(usize, usize)>) {
    let mut all = rows(&frame.lines, size.columns);
    let cursor = frame.cursor.filter(|(line, _)| *line < frame.lines.len()).map(|(line, column)| {
        let above = rows(&frame.lines[..line], size.columns).len();
        let own = reference_rows(&frame.lines[line].text(), size.columns);
        let (mut row, mut left) = (0, column);
        while row + 1 < own.len() && left >= quipu_tui::width(&own[row]) {
            left -= quipu_tui::width(&own[row]);
            row += 1;
        }
        (above + row, left.min(size.columns - 1))
    });
    if all.is_empty() {
        all.push(String::new());
    }
    let top = all.len().saturating_sub(size.rows);
    let top = cursor.map_or(top, |(row, _)| top.min(row));
    let shown = all.into_iter().skip(top).take(size.rows).collect();
    (shown, cursor.map(|(row, column)| (row - top, column)))
}

/// Fewer than usual, for each replays a screen byte by byte; as many as `PROPTEST_CASES` says.
fn cases() -> ProptestConfig {
    let usual = ProptestConfig::default();
    if std::env::var_os("PROPTEST_CASES").is_some() { usual } else { ProptestConfig { cases: 80, ..usual } }
}

proptest! {
    #![proptest_config(cases())]

    /// Whatever is printed and drawn: the terminal has all printed rows and then the live part, the cursor stands where
    /// it should, and nothing is seen half made.
    #[test]
    fn the_terminal_shows_what_was_printed_and_drawn(
        columns in 1_usize..70,
        rows_of_screen in 1_usize..16,
        steps in steps(false),
    ) {
        let size = size(columns, rows_of_screen);
        let mut screen = Screen::new(size, Depth::Rgb);
        let mut glass = Glass::new(size);
        let mut printed: Vec<Line> = Vec::new();
        let mut shown = Frame { lines: Vec::new(), cursor: Some((0, 0)) };
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Print(lines) => {
                    screen.print(&lines);
                    printed.extend(lines);
                }
                Step::Draw(lines, cursor) => {
                    shown = Frame { lines, cursor };
                    screen.draw(&shown);
                }
                Step::Grow(line) => {
                    shown.lines.insert(shown.lines.len() / 2, line);
                    screen.draw(&shown);
                }
                Step::Resize(_) => {}
                Step::Take => {
                    let (live, cursor) = live_rows(&shown, size);
                    let mut expected = rows(&printed, size.columns);
                    let finished = expected.len();
                    expected.extend(live);
                    glass.write(&screen.take());
                    if let Some((row, column)) = cursor {
                        prop_assert_eq!((glass.cursor_row(), glass.cursor().1), (finished + row, column));
                    }
                    prop_assert_eq!(glass.screen().hide_cursor(), shown.cursor.is_none());
                    while expected.last().is_some_and(String::is_empty) {
                        expected.pop();
                    }
                    prop_assert_eq!(glass.texts(), expected);
                    prop_assert!(screen.take().is_empty());
                    // A frame that is cut shows other rows.
                    let whole = rows(&shown.lines, size.columns).len() <= size.rows;
                    let all: Vec<Line> =
                        printed.iter().chain(shown.lines.iter().filter(|_| whole)).cloned().collect();
                    for (row, column, text, style) in cells(&all, size.columns) {
                        let Some(row) = row.checked_sub(glass.screen().scrollback_len()) else { continue };
                        let (row, column) = (u16::try_from(row).unwrap(), u16::try_from(column).unwrap());
                        check_style(glass.screen().cell(row, column).unwrap(), &text, style)?;
                    }
                }
            }
        }
    }

    /// The size changes at any time, also to 1x1: all that was printed stays, the live part stands whole at the end,
    /// and nothing of an older one is left on the screen where the terminal has room for it.
    #[test]
    fn resized_at_any_time(steps in steps(true), reflows in any::<bool>()) {
        let mut now = size(40, 12);
        let mut screen = Screen::new(now, Depth::Indexed).reflows(reflows);
        let mut glass = Glass::new(now);
        let mut printed: Vec<Line> = Vec::new();
        let mut narrowest = now.columns;
        let mut shown = Frame { lines: vec![Line::from("> ")], cursor: Some((0, 2)) };
        screen.draw(&shown);
        glass.write(&screen.take());
        for step in steps.into_iter().chain([Step::Take]) {
            match step {
                Step::Print(lines) => {
                    // Lines that can be told from live ones.
                    let lines: Vec<Line> = lines.iter().map(|line| Line::from(format!("P{}", line.text()).as_str())).collect();
                    screen.print(&lines);
                    printed.extend(lines);
                }
                Step::Draw(lines, cursor) => {
                    shown = Frame { lines, cursor };
                    screen.draw(&shown);
                }
                Step::Grow(line) => {
                    shown.lines.push(line);
                    screen.draw(&shown);
                }
                Step::Resize(size) if size == now => {}
                Step::Resize(size) => {
                    // What was asked for before the change was written before it.
                    glass.write(&screen.take());
                    now = size;
                    narrowest = narrowest.min(size.columns);
                    if reflows { glass.reflow(size) } else { glass.resize(size) }
                    screen.resize(size);
                    screen.draw(&shown);
                }
                Step::Take => {
                    glass.write(&screen.take());
                    let (live, _) = live_rows(&shown, now);
                    let texts: Vec<String> = glass.rows().into_iter().map(|(text, _)| text).collect();
                    let live: Vec<String> = live.into_iter().rev().skip_while(String::is_empty).collect();
                    let seen: Vec<String> = texts.iter().rev().skip_while(|text| text.is_empty()).take(live.len()).cloned().collect();
                    prop_assert_eq!(&seen, &live, "{:?} {:?}", now, texts);
                    // All that was printed is there, in order: whole where rows are laid out anew, else as much of
                    // each as was not cut off.
                    let solid = |text: &str| text.replace(' ', "");
                    let all = solid(&texts.concat());
                    let mut from = 0;
                    for line in &printed {
                        let text = line.text();
                        if reflows {
                            // A single column has no room for wide characters.
                            let text = if narrowest > 1 { solid(&text) } else { "P".to_owned() };
                            let at = all[from..].find(&text);
                            prop_assert!(at.is_some(), "{:?} is gone from {:?}", text, texts);
                            from += at.unwrap() + text.len();
                        } else {
                            let first = reference_rows(&text, narrowest)[0].trim_end().to_owned();
                            let at = texts[from..].iter().position(|row| row.starts_with(&first));
                            prop_assert!(at.is_some(), "{:?} is gone from {:?}", text, texts);
                            from += at.unwrap() + 1;
                        }
                    }
                }
            }
        }
    }
}
