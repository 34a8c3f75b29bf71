//! Text on one line, and times and amounts in words. Nothing is made safe to show here: how that is done depends on where it is shown.

use quipu_protocol::UnixMs;
use unicode_width::UnicodeWidthStr as _;

/// A text on one line, cut to `columns` of a terminal. Reads no more of it than it needs.
pub fn one_line(text: &str, columns: usize) -> String {
    one_line_with(text, columns, |line, _, character, _| line.push(character))
}

/// The same, with each character as `put` writes it: it knows the characters before and after.
pub fn one_line_with(
    text: &str,
    columns: usize,
    put: impl Fn(&mut String, Option<char>, char, Option<char>),
) -> String {
    let mut line = String::new();
    // Where the line is cut when it becomes too wide, and how wide it is.
    let (mut fits, mut used) = (0, 0);
    let mut gap = false;
    let mut rest = text.chars().peekable();
    let mut last = None;
    while let Some(c) = rest.next() {
        let previous = last.replace(c);
        // Controls that are no white space are shown; of white space only that it is there.
        if c.is_whitespace() {
            gap = !line.is_empty();
            continue;
        }
        let before = line.len();
        if std::mem::take(&mut gap) {
            line.push(' ');
        }
        put(&mut line, previous, c, rest.peek().copied());
        used += line[before..].width();
        if used > columns {
            line.truncate(fits);
            line.push('…');
            return line;
        }
        if used < columns {
            fits = line.len();
        }
    }
    line
}

/// How long ago, in words.
pub fn ago(now: UnixMs, then: UnixMs) -> String {
    let seconds = (now - then).max(0) / 1000;
    match seconds {
        0 => "now".into(),
        1..60 => format!("{seconds}s ago"),
        60..3600 => format!("{}m ago", seconds / 60),
        3600..86_400 => format!("{}h ago", seconds / 3600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// A time of day with date, UTC.
pub fn iso(at: UnixMs) -> String {
    let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    format!("{time:.3}")
}

/// US dollars.
pub fn dollars(amount: f64) -> String {
    if amount == 0.0 {
        "$0".into()
    } else if amount < 0.01 {
        format!("${amount:.4}")
    } else {
        format!("${amount:.2}")
    }
}

/// What a session is called: its name, or what was said first.
pub fn title_of(row: &quipu_store::SessionRow) -> &str {
    if row.called.is_empty() { &row.title } else { &row.called }
}

/// Files of a patch that are named at most.
const MOST_PATCHED: usize = 20;

/// The files that the arguments of `apply_patch` name, as far as the arguments are written; 20 at most.
pub fn files_of_patch(arguments: &str) -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct Patch {
        input: String,
    }
    let whole = serde_json::from_str::<Patch>(arguments).map(|patch| patch.input);
    let text = whole.unwrap_or_else(|_| arguments.replace("\\n", "\n"));
    let named = |line: &str| {
        let (what, path) = line.strip_prefix("*** ")?.split_once(": ")?;
        what.ends_with("File").then(|| path.trim().to_owned())
    };
    text.lines().filter_map(named).take(MOST_PATCHED).collect()
}
