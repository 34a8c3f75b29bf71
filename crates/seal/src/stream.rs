//! Sealing of bytes that come in pieces, in bounded memory: what is written down of a long output.

use std::borrow::Cow;
use std::sync::Arc;

use crate::Sealer;
use crate::edit::Edit;

/// Bytes that are taken out of the window at a time, or somewhat fewer.
const BODY: usize = 256 << 10;
/// Bytes behind them that are looked at as well: more than any row of the table takes that has a bound.
const AHEAD: usize = 32 << 10;
/// Bytes before them, sealed as they were handed out: more than a row takes before its secret.
const BEHIND: usize = 4 << 10;
/// A secret that ends this close to the end of what is known may go on.
const MARGIN: usize = 4 << 10;
/// What may be kept of a secret that fills the whole window, so that the rest of it is still taken for one.
const SEEDS: [usize; 3] = [1 << 10, 8 << 10, 64 << 10];
/// Bytes of secrets that are remembered of one stream; further ones are sealed and not remembered.
const REMEMBERED: usize = 1 << 20;
/// Stands for a byte that is no UTF-8 while secrets are looked for: no letter, no digit, no white space.
const BROKEN: u8 = 0x1a;

/// Seals what comes in pieces as [`Sealer::seal`] would seal all of it at once. Bytes that are not UTF-8 stay as they
/// are.
///
/// What is handed out lags behind what came in, by some hundreds of kilobytes, which is also the memory that it
/// takes. Limits: a secret of one word (such as a JWT) is surely found up to the length of that window, a secret of several lines
/// has no limit; and where a secret is longer than the window, more than one placeholder stands for it.
///
/// ```
/// let sealer = std::sync::Arc::new(quipu_seal::Sealer::new([7; 32]));
/// sealer.know("api-key", "correct horse battery");
/// let (mut stream, mut out) = (quipu_seal::SealStream::new(sealer), Vec::new());
/// stream.push(b"key: correct hor", &mut out);
/// stream.push(b"se battery\n\xff", &mut out);
/// stream.finish(&mut out);
/// assert!(out.starts_with(b"key: [REDACTED:api-key:") && out.ends_with(b"]\n\xff"));
/// ```
#[derive(Debug)]
pub struct SealStream {
    sealer: Arc<Sealer>,
    /// What was handed out last, sealed; then what waits.
    window: Vec<u8>,
    /// Where in the window what waits begins.
    waits: usize,
    /// Bytes of secrets that may still be remembered.
    memory: usize,
}

impl SealStream {
    /// A stream that is sealed by `sealer`, with what it knows at each moment.
    pub fn new(sealer: Arc<Sealer>) -> Self {
        Self { sealer, window: Vec::new(), waits: 0, memory: REMEMBERED }
    }

    /// Takes the next bytes, and adds to `out` what is sure by now.
    pub fn push(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        let ahead = self.ahead();
        while !bytes.is_empty() {
            let room = (BODY + ahead).saturating_sub(self.window.len() - self.waits);
            let (now, later) = bytes.split_at(bytes.len().min(room.max(1)));
            self.window.extend_from_slice(now);
            bytes = later;
            if self.window.len() - self.waits >= BODY + ahead {
                self.hand_out(ahead, out);
            }
        }
    }

    /// Adds the rest to `out`. What comes after begins anew.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        let found = self.found();
        self.emit(self.window.len(), &found, out);
        self.window.clear();
        self.waits = 0;
    }

    /// Bytes that are looked at behind what is handed out.
    fn ahead(&self) -> usize {
        AHEAD.max(2 * self.sealer.known().longest())
    }

    fn found(&self) -> Vec<Edit> {
        self.sealer.found(&as_text(&self.window), false)
    }

    fn hand_out(&mut self, ahead: usize, out: &mut Vec<u8>) {
        let found = self.found();
        let end = self.window.len();
        let cut = self.cut(end - ahead);
        let across = found.iter().find(|edit| edit.range.start < cut && edit.range.end > cut);
        let cut = match across {
            None => cut,
            Some(edit) if edit.range.end + MARGIN.min(ahead / 2) <= end => edit.range.end,
            // It may go on. All before it is sure; it waits for its end while there is room.
            Some(edit) if edit.range.start > self.waits => edit.range.start,
            Some(edit) => {
                let start = edit.range.start.max(self.waits);
                let until = start + whole_lines(&self.window[start..edit.range.end]).len();
                let seed = self.seed(&self.window[start..until]).to_vec();
                self.emit(until, &found, out);
                // In the place of what was handed out: what follows reads on from the beginning of the secret.
                self.window.splice(self.waits..self.waits, seed);
                return;
            }
        };
        self.emit(cut, &found, out);
    }

    /// The beginning of a secret, as much as is one by itself; nothing if there is none.
    fn seed<'a>(&self, secret: &'a [u8]) -> &'a [u8] {
        let is_secret = |seed: &&[u8]| {
            let whole = |edit: &Edit| edit.range == (0..seed.trim_ascii_end().len());
            self.sealer.found(&as_text(seed), false).iter().any(whole)
        };
        let seeds = SEEDS.iter().filter_map(|size| secret.get(..*size));
        seeds.map(whole_lines).find(is_secret).unwrap_or_default()
    }

    /// A place to cut at or before `most`: behind a line, or else behind a word, or else between two characters.
    fn cut(&self, most: usize) -> usize {
        let part = &self.window[self.waits..most];
        let line = memchr::memrchr(b'\n', part);
        let word = || part.iter().rposition(u8::is_ascii_whitespace);
        if let Some(at) = line.filter(|at| *at > 0).or_else(word) {
            return self.waits + at + 1;
        }
        let character = (self.waits + 1..most).rev().find(|at| self.window[*at] & 0xc0 != 0x80);
        character.unwrap_or(most)
    }

    /// Hands out what waits up to `cut`, sealed.
    fn emit(&mut self, cut: usize, found: &[Edit], out: &mut Vec<u8>) {
        let from = out.len();
        let mut copied = self.waits;
        for edit in found.iter().filter(|edit| edit.range.end > self.waits && edit.range.start < cut) {
            let start = edit.range.start.max(copied);
            out.extend_from_slice(&self.window[copied..start]);
            out.extend_from_slice(edit.with.as_bytes());
            copied = edit.range.end.min(cut).max(start);
            let secret = &self.window[edit.range.clone()];
            if let Ok(secret) = std::str::from_utf8(secret)
                && secret.len() <= self.memory
                && self.sealer.remember(secret)
            {
                self.memory -= secret.len();
            }
        }
        out.extend_from_slice(&self.window[copied.min(cut)..cut]);
        let sealed = &out[from..];
        let mut behind = self.window[..self.waits].to_vec();
        behind.extend_from_slice(&sealed[sealed.len().saturating_sub(BEHIND)..]);
        let mut start = behind.len().saturating_sub(BEHIND);
        // From the beginning of a line, so that no half of a word looks like another.
        if start > 0 {
            start = memchr::memchr(b'\n', &behind[start..behind.len() - BEHIND / 2])
                .map_or(start, |at| start + at + 1);
        }
        behind.drain(..start);
        self.waits = behind.len();
        behind.extend_from_slice(&self.window[cut..]);
        self.window = behind;
    }
}

/// The bytes up to the end of a line, if there is one.
fn whole_lines(bytes: &[u8]) -> &[u8] {
    memchr::memrchr(b'\n', bytes).map_or(bytes, |end| &bytes[..=end])
}

/// The bytes as text of the same length.
fn as_text(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return text.into();
    }
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::from(BROKEN)));
    }
    text.into()
}
