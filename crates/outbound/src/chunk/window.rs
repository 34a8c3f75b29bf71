//! The text that the next chunk can be cut from, read once, and the best places to cut it.

use super::fences::{FenceScanner, SpanKind};

/// A run of line breaks, with blank lines between them.
#[derive(Debug, Clone, Copy)]
struct Break {
    first: Place,
    second: Option<Place>,
}

/// A byte of the text, and the units between the start of the window and it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: usize,
    pub(super) units: usize,
}

/// Reading resumes where it stopped, so a character is read once for each chunk that it could have been in.
#[derive(Debug, Clone)]
pub(super) struct Window {
    /// The next character to read.
    pub(super) next: Place,
    /// Units at least before a cut.
    min: usize,
    pub(super) paragraph: Option<usize>,
    pub(super) first_paragraph: Option<usize>,
    pub(super) newline: Option<usize>,
    pub(super) sentence: Option<usize>,
    pub(super) space: Option<usize>,
    /// Between two lines of an indented block.
    pub(super) code_line: Option<usize>,
    pending: Option<Break>,
    /// The first of the blanks before the next word, and whether a sentence ends there.
    blank: Option<(Place, bool)>,
    previous: Option<char>,
    line_has_text: bool,
    /// No more text fits.
    pub(super) full: bool,
}

impl Window {
    pub(super) fn new(start: usize, min: usize) -> Self {
        Self {
            next: Place { at: start, units: 0 },
            min,
            paragraph: None,
            first_paragraph: None,
            newline: None,
            sentence: None,
            space: None,
            code_line: None,
            pending: None,
            blank: None,
            previous: None,
            line_has_text: false,
            full: false,
        }
    }

    pub(super) fn min(&self) -> usize {
        self.min
    }

    /// Reads on in `text`, which begins at `next`, until `room` units are read, or until the first paragraph ends if that
    /// is asked for. Returns how many characters it read.
    pub(super) fn read(
        &mut self,
        text: &str,
        room: usize,
        one_paragraph: bool,
        fences: &FenceScanner,
    ) -> u64 {
        let mut count = 0;
        let mut characters = text.char_indices();
        while !(self.full || one_paragraph && self.first_paragraph.is_some())
            && let Some((offset, character)) = characters.next()
        {
            count += 1;
            let rest = &text[offset..];
            self.note(character, rest, fences);
            let units = self.next.units + character.len_utf16();
            if units > room {
                self.full = true;
            } else {
                self.next = Place { at: self.next.at + character.len_utf8(), units };
                self.full = units == room && rest.len() == character.len_utf8();
                self.previous = Some(character);
            }
        }
        count
    }

    /// All places for a cut that the text up to `end` allows are known: line breaks and sentences at its end count too.
    pub(super) fn settle(&mut self, fences: &FenceScanner, end: usize) {
        self.settle_break(fences);
        self.settle_blank(fences);
        if self.next.at == end && self.previous.is_some_and(ends_sentence) && self.next.units > self.min {
            let at = self.next.at;
            if !fences.forbids(at) && self.sentence.is_none_or(|sentence| sentence < at) {
                self.sentence = Some(at);
            }
        }
    }

    fn note(&mut self, character: char, rest: &str, fences: &FenceScanner) {
        let here = self.next;
        if character == '\n' {
            let mut place = here;
            if self.previous == Some('\r') && place.units > 0 {
                place = Place { at: place.at - 1, units: place.units - 1 };
            }
            self.line_has_text = false;
            match &mut self.pending {
                None => self.pending = Some(Break { first: place, second: None }),
                Some(run) if run.second.is_none() => run.second = Some(place),
                Some(_) => {}
            }
            if self.blank.is_none() && self.previous.is_some_and(ends_sentence) {
                self.blank = Some((here, true));
            }
            self.settle_blank(fences);
        } else if character.is_whitespace() {
            if self.line_has_text && self.blank.is_none() && is_breaking(character) && !begins_fence(rest) {
                self.blank = Some((here, self.previous.is_some_and(ends_sentence)));
            }
        } else {
            // A word that would read as the line of a fence does not begin a message.
            if self.blank.is_some() && begins_fence(rest) {
                self.blank = None;
            }
            self.settle_blank(fences);
            self.settle_break(fences);
            self.line_has_text = true;
        }
    }

    fn settle_blank(&mut self, fences: &FenceScanner) {
        let Some((place, ends_sentence)) = self.blank.take() else { return };
        if fences.forbids(place.at) {
            return;
        }
        if ends_sentence && place.units > self.min {
            self.sentence = Some(place.at);
        }
        if place.units >= self.min {
            self.space = Some(place.at);
        }
    }

    fn settle_break(&mut self, fences: &FenceScanner) {
        let Some(run) = self.pending.take() else { return };
        let place = if run.first.units >= self.min {
            run.first
        } else {
            match run.second {
                Some(second) if second.units >= self.min => second,
                _ => return,
            }
        };
        if !fences.forbids(place.at) {
            self.newline = Some(place.at);
            if run.second.is_some() {
                self.paragraph = Some(place.at);
                self.first_paragraph.get_or_insert(place.at);
            }
        } else if fences.inside(place.at).is_some_and(|span| span.kind == SpanKind::Indented) {
            self.code_line = Some(place.at);
        }
    }
}

fn ends_sentence(character: char) -> bool {
    matches!(character, '.' | '!' | '?')
}

/// Blanks between words; not those that forbid a break.
pub(super) fn is_breaking(character: char) -> bool {
    character.is_whitespace() && !matches!(character, '\u{a0}' | '\u{202f}' | '\u{2007}')
}

/// Whether what follows the blanks would read as the line of a fence, were it the start of a message. Looks at no more than it must.
pub(super) fn begins_fence(text: &str) -> bool {
    let mut characters =
        text.chars().take(64).skip_while(|character| character.is_whitespace() && *character != '\n');
    let Some(mark) = characters.next().filter(|mark| matches!(mark, '`' | '~')) else { return false };
    let next = [characters.next(), characters.next()];
    next.into_iter().flatten().all(|character| character == mark)
}
