//! Writing to people and to programs.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quipu_protocol::Trust;

use crate::console::ProgressSink;
pub(crate) use crate::wording::{ago, one_line, printable};
pub(crate) use quipu_host::{dollars, iso};

/// A number and its noun, which gets an `s` unless the number is one.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// How far something is: a line on stderr that the next one replaces, where that is a terminal that obeys. Nothing is left
/// of it in the end.
pub(crate) struct Progress {
    shows: bool,
    /// Takes it in place of that, and when it last did.
    sink: Option<(ProgressSink, Mutex<Option<Instant>>)>,
    /// Something stands there.
    stands: AtomicBool,
}

/// Columns of a word to a terminal about how far something is.
const SINK_COLUMNS: usize = 60;
/// Between two words to a terminal about how far something is.
const APART: Duration = Duration::from_millis(100);

impl Progress {
    pub(crate) fn new() -> Self {
        let obeys = std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let shows = crate::console::shows_people() && obeys;
        let sink = crate::console::progress_sink().map(|sink| (sink, Mutex::new(None)));
        Self { shows, sink, stands: AtomicBool::new(false) }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_seen(&self) -> bool {
        self.shows || self.sink.is_some()
    }

    /// Shows a line in the place of the one before, cut to one row: what is longer could not be cleared.
    pub(crate) fn show(&self, line: &str) {
        if let Some((ProgressSink(tell), last)) = &self.sink {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_none_or(|last| last.elapsed() >= APART) {
                *last = Some(Instant::now());
                tell(&one_line(line, SINK_COLUMNS));
            }
            return;
        }
        if self.shows {
            let terminal = terminal_size::terminal_size_of(std::io::stderr());
            let columns = terminal.map_or(80, |(width, _)| usize::from(width.0));
            self.stands.store(true, Ordering::Relaxed);
            self.write(&one_line(line, columns.saturating_sub(1)));
        }
    }

    /// Takes the line away; the next one is shown at once.
    pub(crate) fn clear(&self) {
        if let Some((ProgressSink(tell), last)) = &self.sink {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.take().is_some() {
                tell("");
            }
            return;
        }
        if self.stands.swap(false, Ordering::Relaxed) {
            self.write("");
        }
    }

    fn write(&self, line: &str) {
        // A terminal that is gone cannot be told so.
        drop(write!(std::io::stderr().lock(), "\r\x1b[K{line}"));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

/// A line for people, on stderr.
pub(crate) fn note(text: impl AsRef<str>) {
    crate::console::tell(&printable(text.as_ref()));
}

/// The same in a colour, which is added to what was made printable.
pub(crate) fn note_in(colour: fn(Paint, &str) -> String, text: impl AsRef<str>) {
    crate::console::tell(&colour(Paint::stderr(), &printable(text.as_ref())));
}

/// Whether a stream may be coloured that is a terminal or is none.
pub(crate) fn colours(is_terminal: bool) -> bool {
    is_terminal
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Colours for one stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Paint(bool);

impl Paint {
    pub(crate) fn none() -> Self {
        Self(false)
    }

    pub(crate) fn stdout() -> Self {
        Self(colours(crate::console::stdout().is_terminal()))
    }

    pub(crate) fn stderr() -> Self {
        Self(colours(crate::console::shows_people()))
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.wrap("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.wrap("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.wrap("31", text)
    }

    pub(crate) fn cyan(self, text: &str) -> String {
        self.wrap("36", text)
    }

    fn wrap(self, code: &str, text: &str) -> String {
        if self.0 { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// A duration for people.
pub(crate) fn took(milliseconds: u64) -> String {
    let duration = Duration::from_millis(milliseconds);
    if milliseconds < 1000 {
        format!("{milliseconds} ms")
    } else {
        format!("{:.1} s", duration.as_secs_f64())
    }
}

/// Columns that people see on stdout: those of the terminal, else `$COLUMNS`, else 80; from 20 to 500.
pub(crate) fn width() -> usize {
    let columns = || std::env::var("COLUMNS").ok()?.trim().parse().ok();
    let terminal = crate::console::size();
    let width = terminal.map(|(width, _)| usize::from(width.0)).or_else(columns).unwrap_or(80);
    width.clamp(20, 500)
}

/// A text without the colours and weights that [`Paint`] gives.
pub(crate) fn unpainted(text: &str) -> String {
    let mut pieces = text.split("\u{1b}[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap_or(piece.len());
        match piece[end..].strip_prefix('m') {
            Some(rest) => out.push_str(rest),
            None => {
                out.push_str("\u{1b}[");
                out.push_str(piece);
            }
        }
    }
    out
}

/// Whose words a section holds, for programs and for people.
pub(crate) fn trust_name(trust: Trust) -> &'static str {
    match trust {
        Trust::Owner => "owner",
        Trust::Project => "project",
        Trust::Untrusted => "untrusted",
    }
}

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paint_is_taken_off_and_nothing_else() {
        let paint = Paint(true);
        let painted = format!("{} and {}\n", paint.bold("one"), paint.dim("two [1m"));
        assert!(painted.contains('\u{1b}'));
        assert_eq!(unpainted(&painted), "one and two [1m\n");
        assert_eq!(unpainted("a\u{1b}[2Jb\u{1b}["), "a\u{1b}[2Jb\u{1b}[");
    }

    #[test]
    fn progress_tells_the_first_line_of_each_step() {
        let told: std::sync::Arc<Mutex<Vec<String>>> = std::sync::Arc::default();
        let heard = told.clone();
        let tell = move |line: &str| heard.lock().unwrap().push(line.to_owned());
        let sink = Some((ProgressSink(std::sync::Arc::new(tell)), Mutex::new(None)));
        let progress = Progress { shows: false, sink, stands: AtomicBool::new(false) };
        progress.show("requests");
        progress.clear();
        progress.show("chunks");
        drop(progress);
        assert_eq!(*told.lock().unwrap(), ["requests", "", "chunks", ""]);
    }

    #[test]
    fn nothing_steers_the_terminal() {
        assert_eq!(printable("a\x1b[31m\u{202e}b\tc\n"), "a\\u{1b}[31m\\u{202e}b\tc\n");
        let unseen = "x\u{200b}\u{e0041}y\u{ad}z\u{fe01}\u{2060}";
        let seen = "x\\u{200b}\\u{e0041}y\\u{ad}z\\u{fe01}\\u{2060}";
        assert_eq!((printable(unseen), one_line(unseen, 80)), (seen.to_owned(), seen.to_owned()));
        assert_eq!(
            printable("👩\u{200d}👧 ❤\u{fe0f} می\u{200c}خواهم"),
            "👩\u{200d}👧 ❤\u{fe0f} می\u{200c}خواهم"
        );
        assert_eq!(one_line("  a\n b  ", 9), "a b");
        assert_eq!(one_line("abcdef", 4), "abc…");
        assert_eq!(one_line("abcd", 4), "abcd");
        // Two columns each; what does not fit is not begun.
        assert_eq!(one_line("絵文字です", 6), "絵文…");
        assert_eq!(one_line("絵文字", 6), "絵文字");
        assert_eq!(one_line("e\u{301}e\u{301}e\u{301}", 3), "e\u{301}e\u{301}e\u{301}");
        assert_eq!(one_line("a\u{1b}[2Jb", 40), "a\\u{1b}[2Jb");
        assert_eq!(one_line("\u{61c}a", 3), "…");
    }
}
