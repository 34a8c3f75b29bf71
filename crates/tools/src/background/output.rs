//! What a background command printed and nobody read yet, in bounded memory.

use std::path::PathBuf;

use quipu_workspace::OutputBuffer;

use crate::truncate::{MAX_BYTES, MAX_LINES};

/// Bytes of the end that a person is shown.
const RECENT: usize = 16 << 10;
/// Bytes of a line without an end that wait for it.
const OPEN_LINE: usize = 4 << 10;
/// Bytes of a block of a private key that wait for its end.
const OPEN_KEY: usize = 16 << 10;

/// Output since it was read last.
#[derive(Debug, Default)]
pub(super) struct UnreadOutput {
    /// Bytes of the whole output that were taken.
    seen: u64,
    text: String,
    /// Unread bytes before it that had no room.
    skipped: u64,
    recent: String,
    /// All of it, while it is short; nothing once a file holds it.
    log: String,
    /// Lines before those that had no room.
    log_cut: u64,
}

/// Unread output, cut to what a result may hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadText {
    /// The end of it.
    pub text: String,
    /// Bytes before it that are left out.
    pub skipped: u64,
    /// The file with all of the output, where it is long.
    pub file: Option<PathBuf>,
}

impl UnreadOutput {
    /// Takes what is new in a growing output.
    pub(super) fn absorb(&mut self, output: &OutputBuffer) {
        let new = output.bytes().saturating_sub(self.seen);
        self.seen = output.bytes();
        let tail = output.tail();
        let from = tail.len().saturating_sub(usize::try_from(new).unwrap_or(usize::MAX));
        let part = &tail[tail.ceil_char_boundary(from)..];
        let missed = new.saturating_sub(part.len() as u64);
        if missed > 0 {
            self.skipped += self.text.len() as u64 + missed;
            self.text.clear();
        }
        self.text.push_str(part);
        if self.text.len() > 2 * MAX_BYTES {
            self.skipped += cut(&mut self.text, MAX_BYTES) as u64;
        }
        self.log.push_str(part);
        if self.log.len() > 4 * MAX_BYTES {
            let lines = self.log.matches('\n').count();
            cut(&mut self.log, 2 * MAX_BYTES);
            self.log_cut += (lines - self.log.matches('\n').count()) as u64;
        }
        self.recent.push_str(&part[part.ceil_char_boundary(part.len().saturating_sub(RECENT))..]);
        if self.recent.len() > 2 * RECENT {
            cut(&mut self.recent, RECENT);
        }
    }

    /// A file holds all of it from now on.
    pub(super) fn is_filed(&mut self) {
        (self.log, self.log_cut) = (String::new(), 0);
    }

    /// What was printed so far, and how many lines before that are gone. While the command runs, the end of it that may be half
    /// of a secret waits.
    pub(super) fn log(&self, has_ended: bool) -> (&str, u64) {
        let whole = if has_ended { self.log.len() } else { whole(&self.log) };
        (&self.log[..whole], self.log_cut)
    }

    /// Whether something can be taken.
    pub(super) fn has_news(&self, has_ended: bool) -> bool {
        self.skipped > 0 || if has_ended { !self.text.is_empty() } else { whole(&self.text) > 0 }
    }

    pub(super) fn unread(&self) -> u64 {
        self.skipped + self.text.len() as u64
    }

    pub(super) fn recent(&self) -> &str {
        let from = self.recent.len().saturating_sub(RECENT);
        &self.recent[self.recent.ceil_char_boundary(from)..]
    }

    /// Takes what is unread. While the command runs, the end of it that may be half of a secret waits.
    pub(super) fn take(&mut self, has_ended: bool) -> UnreadText {
        let whole = if has_ended { self.text.len() } else { whole(&self.text) };
        let rest = self.text.split_off(whole);
        let mut text = std::mem::replace(&mut self.text, rest);
        let mut skipped = std::mem::take(&mut self.skipped);
        skipped += cut(&mut text, MAX_BYTES) as u64;
        let lines = text.strip_suffix('\n').unwrap_or(&text);
        if let Some((before, _)) = lines.rmatch_indices('\n').nth(MAX_LINES - 1) {
            skipped += before as u64 + 1;
            text.drain(..=before);
        }
        UnreadText { text, skipped, file: None }
    }
}

/// Where the part ends that no later output makes a secret of.
fn whole(text: &str) -> usize {
    let line = text.rfind('\n').map_or(0, |at| at + 1);
    let end = if text.len() - line > OPEN_LINE { text.len() } else { line };
    let key = text[..end].rfind("-----BEGIN ");
    match key {
        Some(at) if !text[at..end].contains("-----END ") && end - at <= OPEN_KEY => at,
        Some(_) | None => end,
    }
}

/// Leaves at most so many bytes of the end, from the beginning of a line where there is one. Gives how many went.
fn cut(text: &mut String, most: usize) -> usize {
    if text.len() <= most {
        return 0;
    }
    let from = text.ceil_char_boundary(text.len() - most);
    let line = text[from..].find('\n').map(|at| from + at + 1).filter(|at| *at < text.len());
    let from = line.unwrap_or(from);
    text.drain(..from);
    from
}

#[cfg(test)]
mod tests {
    use quipu_workspace::{OutputLimits, OutputPlace};

    use super::*;

    async fn absorbed(pieces: &[&str], unread: &mut UnreadOutput) {
        let dir = tempfile::tempdir().unwrap();
        let limits = OutputLimits { lines: 2000, bytes: MAX_BYTES, spill_bytes: 1 << 20 };
        let mut output = OutputBuffer::new(limits, &OutputPlace::as_printed(dir.path()));
        for piece in pieces {
            output.push(piece.as_bytes()).await;
            unread.absorb(&output);
        }
    }

    #[tokio::test]
    async fn reading_gives_each_byte_once_and_waits_for_the_end_of_a_line() {
        let mut unread = UnreadOutput::default();
        absorbed(&["one\ntw", "o\nthr"], &mut unread).await;
        assert_eq!(unread.take(false).text, "one\ntwo\n");
        assert_eq!((unread.take(false).text.as_str(), unread.unread()), ("", 3));
        assert_eq!(unread.take(true).text, "thr");
        assert_eq!(unread.unread(), 0);
        assert_eq!(unread.recent(), "one\ntwo\nthr");
    }

    #[tokio::test]
    async fn half_of_a_private_key_waits_for_the_other_half() {
        let mut unread = UnreadOutput::default();
        absorbed(&["a\n-----BEGIN PRIVATE KEY-----\nMIIE\n"], &mut unread).await;
        assert_eq!(unread.take(false).text, "a\n");
        assert!(unread.take(true).text.starts_with("-----BEGIN"));
        let mut long = UnreadOutput::default();
        let line = format!("{}\n", "x".repeat(99)).repeat(OPEN_KEY / 50);
        absorbed(&["-----BEGIN PRIVATE KEY-----\n", &line], &mut long).await;
        assert!(long.take(false).text.len() > OPEN_KEY, "nothing waits for ever");
    }

    #[tokio::test]
    async fn unread_output_is_bounded_and_says_what_is_missing() {
        let mut unread = UnreadOutput::default();
        let line = format!("{}\n", "y".repeat(99));
        let pieces: Vec<String> = (0..50).map(|_| line.repeat(100)).collect();
        absorbed(&pieces.iter().map(String::as_str).collect::<Vec<_>>(), &mut unread).await;
        assert_eq!(unread.unread(), 500_000);
        assert!(unread.text.len() <= 2 * MAX_BYTES);
        let taken = unread.take(true);
        assert!(taken.text.len() <= MAX_BYTES && taken.text.starts_with('y'), "{}", taken.text.len());
        assert_eq!(taken.skipped + taken.text.len() as u64, 500_000);
        let mut short = UnreadOutput::default();
        absorbed(&["z\n".repeat(3000).as_str()], &mut short).await;
        let taken = short.take(true);
        assert_eq!((taken.text.lines().count(), taken.skipped), (MAX_LINES, 2000));
    }
}
