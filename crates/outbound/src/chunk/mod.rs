//! Text into chunks that fit a message, code blocks closed and opened again.

mod fences;
mod window;

use std::ops::Range;

use serde::{Deserialize, Serialize};
use unicode_segmentation::GraphemeCursor;

use fences::{FenceScanner, Span, SpanKind};
use window::{Window, begins_fence};

/// Characters by which a cut is moved at most so that no marker begins a message.
const NUDGES: usize = 32;

/// The length of a text as chats count it: UTF-16 code units. A text is never longer in characters than in these units.
pub fn units(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// Where a chunk ends by preference. Blanks between words follow, and last any place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakPreference {
    /// At a blank line, else at a line break, else after a sentence.
    #[default]
    Paragraph,
    /// At a line break.
    Newline,
    /// After a sentence.
    Sentence,
}

/// How long chunks are, in [`units`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChunkOptions {
    /// No chunk is cut below this length before the text ends; at least 1.
    pub min: usize,
    /// No chunk is longer, with the lines that close and open a code block. Raised to `min`, and to 2: a character can have two units.
    pub max: usize,
    /// Where to cut.
    pub preference: BreakPreference,
    /// Each paragraph is a chunk of its own as soon as the next one begins.
    pub flush_on_paragraph: bool,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self { min: 800, max: 1200, preference: BreakPreference::Paragraph, flush_on_paragraph: false }
    }
}

impl ChunkOptions {
    /// The same for a chat whose messages have at most `limit` units.
    #[must_use]
    pub fn within(mut self, limit: usize) -> Self {
        self.max = self.max.min(limit);
        self.min = self.min.min(self.max);
        self.valid()
    }

    fn valid(mut self) -> Self {
        self.min = self.min.max(1);
        self.max = self.max.max(self.min).max(2);
        self
    }
}

/// A piece of the text that fits a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What is sent.
    pub text: String,
    /// Bytes of the whole text that it has. Between two chunks only blanks are left out, and the last line of a code block that the
    /// chunk before closed.
    pub source: Range<usize>,
    /// Bytes at the start of `text` that open a code block again.
    pub reopened: usize,
    /// Bytes at the end of `text` that close a code block.
    pub closed: usize,
}

/// What is left out before the next chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    Nothing,
    /// Blanks, and line breaks after them.
    Blanks,
    /// Blank lines; the indentation of the next line stays.
    Lines,
}

/// Where a chunk ends, and what is put around it.
struct CutPoint {
    at: usize,
    skip: Skip,
    close: Option<String>,
    reopen: Option<String>,
}

impl CutPoint {
    fn at_newline(at: usize) -> Self {
        Self { at, skip: Skip::Lines, close: None, reopen: None }
    }

    fn after_word(at: usize) -> Self {
        Self { at, skip: Skip::Blanks, close: None, reopen: None }
    }
}

/// Cuts a text that arrives in pieces.
///
/// ```
/// use quipu_outbound::{ChunkOptions, Chunker};
///
/// let mut chunker = Chunker::new(ChunkOptions { min: 5, max: 25, ..ChunkOptions::default() });
/// chunker.append("First block line\n\nSecond block line");
/// let mut chunks = chunker.drain();
/// chunks.extend(chunker.finish());
/// let texts: Vec<_> = chunks.iter().map(|chunk| chunk.text.as_str()).collect();
/// assert_eq!(texts, ["First block line", "Second block line"]);
/// ```
#[derive(Debug, Clone)]
pub struct Chunker {
    options: ChunkOptions,
    buffer: String,
    /// Position of the first byte of the buffer in the whole text.
    base: usize,
    /// Where the next chunk begins.
    start: usize,
    fences: FenceScanner,
    window: Window,
    skip: Skip,
    /// Blanks up to here are already known to be left out, or to be followed by a line that is not.
    skipped: usize,
    /// What follows the blanks begins a message within a line of the text: it is read as the start of a line.
    begins_line: bool,
    reopen: Option<String>,
    /// The last character of passed text, which nothing has followed yet.
    passed: Option<char>,
    work: u64,
}

/// What makes a line one of an indented block.
const INDENT: &str = "    ";

impl Chunker {
    /// Values that contradict each other are corrected as [`ChunkOptions`] says.
    pub fn new(options: ChunkOptions) -> Self {
        let options = options.valid();
        Self {
            options,
            buffer: String::new(),
            base: 0,
            start: 0,
            fences: FenceScanner::new(0),
            window: Window::new(0, options.min),
            skip: Skip::Nothing,
            skipped: 0,
            begins_line: false,
            reopen: None,
            passed: None,
            work: 0,
        }
    }

    /// Adds text. Nothing is cut before [`Self::drain`] or [`Self::finish`].
    pub fn append(&mut self, text: &str) {
        if let Some(next) = text.chars().next()
            && let Some(last) = self.passed.take()
        {
            self.follow(last, next);
        }
        self.read(text);
    }

    fn read(&mut self, text: &str) {
        self.fences.push(text, self.end());
        self.work += text.len() as u64;
        self.buffer.push_str(text);
    }

    /// Adds text that was sent before: it is in no chunk, and code that it leaves open is opened again. Nothing may wait.
    pub fn pass(&mut self, text: &str) {
        self.read(text);
        self.passed = text.chars().next_back().or(self.passed);
        self.begin_at(self.end(), self.options.min);
        self.release();
    }

    /// What follows passed text, between these characters, begins as it does behind a chunk.
    fn follow(&mut self, last: char, next: char) {
        let end = self.end();
        self.skipped = end;
        let line = |line: &str| format!("{line}\n");
        (self.reopen, self.skip) = match self.fences.inside(end).map(|span| &span.kind) {
            Some(SpanKind::Fenced(fence)) => {
                (self.reopening(&fence.bare, &fence.line).map(line), Skip::Nothing)
            }
            _ if last == '\n' => (None, Skip::Lines),
            Some(SpanKind::Indented) if self.repeats_indent(Some(next)) => {
                (Some(INDENT.to_owned()), Skip::Nothing)
            }
            None if let Some(fence) = self.fences.opening_fence() => {
                (self.reopening(&fence.bare, &fence.bare).map(line), Skip::Nothing)
            }
            _ => (None, Skip::Blanks),
        };
        self.begins_line = self.skip == Skip::Blanks;
        if self.begins_line {
            self.fences = FenceScanner::new(end);
        }
    }

    /// Whether text waits.
    pub fn has_text(&self) -> bool {
        self.end() > self.start
    }

    /// The text that waits, without what opens a code block again.
    pub fn waiting(&self) -> &str {
        self.slice(self.start, self.end())
    }

    /// Bytes of text that were given so far.
    pub fn position(&self) -> usize {
        self.end()
    }

    /// Characters read so far, those read again included: what the law of linear work is checked with.
    pub fn work(&self) -> u64 {
        self.work
    }

    /// Forgets what waits. What follows is another text, whose first byte has the next position.
    pub fn reset(&mut self) {
        let end = self.end();
        self.buffer.clear();
        self.base = end;
        self.fences = FenceScanner::new(end);
        self.skip = Skip::Nothing;
        self.begins_line = false;
        self.reopen = None;
        self.passed = None;
        self.begin_at(end, self.options.min);
    }

    /// The chunks that can be cut while the text continues.
    pub fn drain(&mut self) -> Vec<Chunk> {
        self.cut_all(false)
    }

    /// The chunks of all that waits: the text ends here. What is appended later is another text.
    pub fn finish(&mut self) -> Vec<Chunk> {
        self.fences.finish(self.end());
        self.begin_at(self.start, 1);
        let chunks = self.cut_all(true);
        self.reset();
        chunks
    }

    fn cut_all(&mut self, force: bool) -> Vec<Chunk> {
        let mut chunks = Vec::new();
        loop {
            self.skip_blanks();
            if self.leave_closed_block() {
                continue;
            }
            if !self.has_text() {
                break;
            }
            let room = self.room();
            let text = &self.buffer[self.window.next.at - self.base..];
            let one_paragraph = self.options.flush_on_paragraph && !force;
            self.work += self.window.read(text, room, one_paragraph, &self.fences);
            let Some(cut) = self.next_cut(force, !chunks.is_empty()) else { break };
            chunks.extend(self.cut(cut));
        }
        self.release();
        chunks
    }

    /// Units of text that fit the next chunk.
    fn room(&self) -> usize {
        self.options.max - self.reopen.as_deref().map_or(0, units)
    }

    fn next_cut(&mut self, force: bool, cut_before: bool) -> Option<CutPoint> {
        if force || self.window.full {
            self.window.settle(&self.fences, self.end());
        }
        if self.options.flush_on_paragraph
            && !force
            && let Some(at) = self.window.first_paragraph
        {
            return Some(CutPoint::at_newline(at));
        }
        let end = self.end();
        if force && self.window.next.at == end {
            return Some(self.last_cut());
        }
        if !self.window.full {
            let early = !force && !cut_before && !self.options.flush_on_paragraph;
            return if early { self.preferred() } else { None };
        }
        Some(self.preferred().or_else(|| self.between_words()).unwrap_or_else(|| self.hard_cut()))
    }

    /// All that is left fits. A block that was opened again ends its chunk; else the rest is one chunk.
    fn last_cut(&self) -> CutPoint {
        let end = self.end();
        if self.reopen.is_some()
            && let Some(close) = self.fences.inside(self.start).and_then(|span| span.end)
            && close > self.start
        {
            return CutPoint::at_newline(close);
        }
        CutPoint::at_newline(end)
    }

    fn preferred(&self) -> Option<CutPoint> {
        let window = &self.window;
        let sentence = window.sentence.filter(|at| self.may_begin(*at));
        match self.options.preference {
            BreakPreference::Paragraph => window
                .paragraph
                .or(window.newline)
                .map(CutPoint::at_newline)
                .or_else(|| sentence.map(CutPoint::after_word)),
            BreakPreference::Newline => window.newline.map(CutPoint::at_newline),
            BreakPreference::Sentence => sentence.map(CutPoint::after_word),
        }
    }

    /// Whether what follows this place reads in a message of its own as it does in the text, as far as it is there.
    fn may_begin(&self, at: usize) -> bool {
        !begins_fence(self.slice(at, self.end()))
    }

    fn between_words(&self) -> Option<CutPoint> {
        let at = self.window.space.filter(|at| self.may_begin(*at)).filter(|at| {
            // A mark that combines with the blank would be left without it.
            let text = self.slice(*at, self.end());
            text.chars()
                .nth(1)
                .is_none_or(|next| next.is_ascii() || is_boundary(text, text.len() - text.trim_start().len()))
        });
        at.map(CutPoint::after_word).or_else(|| self.window.code_line.map(CutPoint::at_newline))
    }

    /// No place is good. What is never cut: a character, the line that opens or closes a block, and where it fits a grapheme.
    fn hard_cut(&self) -> CutPoint {
        let limit = self.window.next.at;
        match self.fences.inside(limit) {
            Some(Span { kind: SpanKind::Indented, .. }) => self.indented_cut(limit),
            Some(span) => self.fence_cut(span),
            None => match self.undecided_start(limit) {
                Some(at) => CutPoint::at_newline(at),
                None => match self.fences.opening_fence().filter(|_| self.fences.forbids(limit)) {
                    Some(fence) => self.split_fence(&fence.bare, &fence.bare, None),
                    None => self.plain_cut(limit),
                },
            },
        }
    }

    /// A cut outside of code, or before the start of a line that reads as an opening line as far as it goes.
    fn plain_cut(&self, limit: usize) -> CutPoint {
        let at = self.word_cut(limit);
        let is_inline = |span: &&Span| matches!(span.kind, SpanKind::Inline(_)) && span.start >= self.start;
        match self.fences.inside(at).filter(is_inline) {
            Some(span) => self.fence_cut(span),
            None => CutPoint::after_word(at),
        }
    }

    /// The line break before the last line, when the cut would be in it and it may belong to a fence.
    fn undecided_start(&self, limit: usize) -> Option<usize> {
        let line = self.fences.undecided_line().filter(|line| limit > *line)?;
        self.before_line(line)
    }

    /// The line break before this line, when text of the window stands before it.
    fn before_line(&self, line: usize) -> Option<usize> {
        let before = self.slice(self.start, line.max(self.start)).trim_end_matches(['\n', '\r']);
        (!before.is_empty()).then(|| self.start + before.len())
    }

    fn indented_cut(&self, limit: usize) -> CutPoint {
        let at = self.word_cut(limit);
        let repeat = self.repeats_indent(self.slice(at, self.end()).chars().next());
        CutPoint {
            at,
            skip: if repeat { Skip::Nothing } else { Skip::Blanks },
            close: None,
            reopen: repeat.then(|| INDENT.to_owned()),
        }
    }

    /// Whether a line of an indented block is indented again when it is cut before this character.
    fn repeats_indent(&self, next: Option<char>) -> bool {
        self.options.max >= 16 && !matches!(next, Some('\n' | '\r'))
    }

    fn fence_cut(&self, span: &Span) -> CutPoint {
        match &span.kind {
            SpanKind::Fenced(fence) => self.split_fence(&fence.bare, &fence.line, Some(span)),
            // It reads as an opening line as far as it goes, so it is closed; the rest is text.
            SpanKind::Inline(fence) if span.start >= self.start => {
                CutPoint { reopen: None, ..self.split_fence(&fence.bare, &fence.bare, Some(span)) }
            }
            SpanKind::Inline(_) | SpanKind::Indented => {
                CutPoint::after_word(self.word_cut(self.window.next.at))
            }
        }
    }

    /// Closes the block and opens it again, when both lines fit with at least one character.
    fn split_fence(&self, bare: &str, line: &str, span: Option<&Span>) -> CutPoint {
        let limit = self.window.next.at;
        let Some(reopen) = self.reopening(bare, line) else {
            return CutPoint { at: self.word_cut(limit), skip: Skip::Nothing, close: None, reopen: None };
        };
        let room = self.room().saturating_sub(1 + units(bare));
        let mut at = self.start;
        let mut used = 0;
        for character in self.slice(self.start, limit).chars() {
            used += character.len_utf16();
            if used > room {
                break;
            }
            at += character.len_utf8();
        }
        if let Some(span) = span {
            if at <= span.opening_end
                && let Some(before) = self.before_line(span.start)
            {
                return CutPoint::at_newline(before);
            }
            if let Some(closing) = span.closing.filter(|closing| at > *closing && *closing > self.start) {
                at = closing;
            }
        }
        if let Some(line) = self.fences.undecided_line().filter(|line| at > *line && *line > self.start) {
            at = line;
        }
        if at == self.start {
            return CutPoint::after_word(self.word_cut(limit));
        }
        at = self.word_cut(at);
        // Markers alone at the end would close the block, though their line goes on.
        let cut_line =
            self.slice(self.start, at).rfind('\n').map_or(self.start, |newline| self.start + newline + 1);
        let marks = self.slice(cut_line, at).trim();
        if !marks.is_empty() && marks.chars().all(|mark| bare.ends_with(mark)) {
            let opener = bare.trim_start().len();
            if cut_line > self.start {
                at = cut_line;
            } else if marks.len() >= opener {
                at -= self.slice(cut_line, at).trim_start().len() + 1 - opener;
            }
        }
        if let Some(before) =
            span.filter(|span| at <= span.opening_end).and_then(|span| self.before_line(span.start))
        {
            return CutPoint::at_newline(before);
        }
        if self.slice(at, self.end()).starts_with('\n') {
            at += 1;
        }
        CutPoint { at, skip: Skip::Nothing, close: Some(bare.to_owned()), reopen: Some(reopen.to_owned()) }
    }

    /// The line that opens a block again: the whole one, where there is room for more than a few characters, or without its language,
    /// when it fits with a character and the closing line.
    fn reopening<'a>(&self, bare: &'a str, line: &'a str) -> Option<&'a str> {
        let fits = |line: &str, room: usize| units(line) + units(bare) + room <= self.options.max;
        if fits(line, 16) { Some(line) } else { fits(bare, 4).then_some(bare) }
    }

    /// The last place up to `limit` that cuts no grapheme and puts no marker of a fence at the start of a line; else `limit`.
    fn word_cut(&self, limit: usize) -> usize {
        let text = self.slice(self.start, self.end());
        let wanted = limit - self.start;
        let mut cut = wanted;
        if !is_boundary(text, cut) {
            let mut cursor = GraphemeCursor::new(cut, text.len(), true);
            cut = match cursor.prev_boundary(text, 0) {
                Ok(Some(at)) if at > 0 => at,
                _ => cut,
            };
        }
        let mut nudged = cut;
        for _ in 0..NUDGES {
            let at_line_start = text[..nudged].ends_with('\n');
            if nudged == 0 || at_line_start || !begins_fence(&text[nudged..]) {
                return self.start + if nudged == 0 { cut } else { nudged };
            }
            nudged = text[..nudged].char_indices().next_back().map_or(0, |(at, _)| at);
        }
        self.start + cut
    }

    fn cut(&mut self, cut: CutPoint) -> Option<Chunk> {
        let source = self.start..cut.at;
        let inner = self.slice(source.start, source.end);
        let chunk = if inner.trim().is_empty() {
            None
        } else {
            let prefix = self.reopen.as_deref().unwrap_or_default();
            let mut text = String::with_capacity(prefix.len() + inner.len() + 8);
            text.push_str(prefix);
            text.push_str(inner);
            let open = text.len();
            if let Some(close) = &cut.close {
                if !text.ends_with('\n') {
                    text.push('\n');
                }
                text.push_str(close);
            }
            Some(Chunk { closed: text.len() - open, reopened: prefix.len(), text, source })
        };
        self.reopen = cut.reopen.map(|mut line| {
            if cut.close.is_some() {
                line.push('\n');
            }
            line
        });
        let end = self.end();
        // Blanks at the start of a line are no blanks between words: with them, a marker may be none.
        let skip = match cut.skip {
            Skip::Blanks if self.slice(self.start, cut.at).ends_with('\n') => Skip::Lines,
            skip => skip,
        };
        self.begins_line = skip == Skip::Blanks && self.slice(cut.at, end).trim_start().is_empty();
        if self.begins_line {
            self.fences = FenceScanner::new(end);
        }
        self.skip = skip;
        self.skipped = cut.at;
        self.begin_at(cut.at, self.window.min());
        chunk
    }

    /// Leaves out what the last cut said, as far as the text has it.
    fn skip_blanks(&mut self) {
        if self.skip == Skip::Nothing {
            return;
        }
        let end = self.end();
        let mut start = self.start;
        let from = self.skipped.max(start);
        let mut at = from;
        let mut skip = self.skip;
        for character in self.slice(from, end).chars() {
            match character {
                '\n' => {
                    skip = Skip::Lines;
                    start = at + 1;
                }
                _ if character.is_whitespace() => {
                    if skip == Skip::Blanks {
                        start = at + character.len_utf8();
                    }
                }
                _ => {
                    skip = Skip::Nothing;
                    break;
                }
            }
            at += character.len_utf8();
        }
        self.work += (at - from) as u64;
        self.skip = skip;
        self.skipped = at;
        if start > self.start {
            if self.begins_line {
                // Without the blanks.
                let mut fences = FenceScanner::new(start);
                fences.push(self.slice(start, end), start);
                self.work += (end - start) as u64;
                self.fences = fences;
            }
            self.begin_at(start, self.window.min());
        }
        self.begins_line &= skip == Skip::Blanks;
    }

    /// The block that was opened again ends before it has any text: it is not opened after all.
    fn leave_closed_block(&mut self) -> bool {
        if self.reopen.is_none() {
            return false;
        }
        let in_line = |span: &Span| matches!(span.kind, SpanKind::Inline(_));
        if !self.fences.forbids(self.start) || self.fences.inside(self.start).is_some_and(in_line) {
            self.reopen = None;
            if self.fences.ends_at(self.start) {
                self.skip = Skip::Lines;
                self.skipped = self.start;
                return true;
            }
            return false;
        }
        let Some((closing, end)) =
            self.fences.inside(self.start).and_then(|span| Some((span.closing?, span.end?)))
        else {
            return false;
        };
        if closing < self.start || !self.slice(self.start, closing).trim().is_empty() {
            return false;
        }
        self.reopen = None;
        self.skip = Skip::Lines;
        self.skipped = end;
        self.begin_at(end, self.window.min());
        true
    }

    fn begin_at(&mut self, start: usize, min: usize) {
        self.start = start;
        self.window = Window::new(start, min);
    }

    fn release(&mut self) {
        self.fences.forget_before(self.start);
        let used = self.start - self.base;
        if used > 4096 && used > self.buffer.len() / 2 {
            self.buffer.drain(..used);
            self.base = self.start;
        }
    }

    fn end(&self) -> usize {
        self.base + self.buffer.len()
    }

    fn slice(&self, from: usize, to: usize) -> &str {
        &self.buffer[from - self.base..to - self.base]
    }
}

fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}
