//! Questions that wait for an answer, and how much of the first has been on the screen: nothing is allowed that could not
//! be read to its end.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use quipu_protocol::{Ask, AskId, UnixMs};

use super::Choice;
use crate::{KeyCode, Line, Style, Theme, blocks};

/// A key or a line answers what stood there so long, in milliseconds: what was typed before it came does not.
pub(crate) const SEEN: UnixMs = 400;

/// What the first question is about, in rows, and how far it was seen. Made once for a question and a width: what it is
/// about may have a hundred thousand lines.
#[derive(Debug)]
pub(crate) struct QuestionView {
    ask: AskId,
    columns: usize,
    style: Style,
    pub(crate) body: Vec<Line>,
    /// The first row that is shown, where not all are.
    pub(crate) top: usize,
    /// How many rows were shown last.
    room: usize,
    /// The last row was on the screen.
    ended: bool,
    /// The same, long enough to be read.
    pub(crate) read: bool,
}

/// Questions that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    pub(crate) asks: VecDeque<(Arc<Ask>, Vec<Choice>)>,
    /// When the first of them came.
    pub(crate) asked_at: UnixMs,
    /// The answer that Enter gives to it.
    pub(crate) choice: usize,
    /// The reason of a no, while it is written.
    pub(crate) reason: Option<String>,
    /// What the first question is about, and how far it was seen.
    pub(crate) reading: Option<QuestionView>,
}

impl Questions {
    /// Another question is asked first.
    pub(super) fn next(&mut self, now: UnixMs) {
        (self.reason, self.choice, self.asked_at) = (None, 0, now);
    }

    /// One more question.
    pub(super) fn add(&mut self, ask: &Arc<Ask>, now: UnixMs) {
        if self.asks.is_empty() {
            (self.asked_at, self.choice) = (now, 0);
        }
        self.asks.push_back((ask.clone(), Choice::of(ask)));
    }

    /// Whether the question is asked.
    pub(super) fn has(&self, id: &AskId) -> bool {
        self.asks.iter().any(|(ask, _)| ask.id == *id)
    }

    /// Makes rows of the first question, unless they are made.
    pub(super) fn lay(&mut self, columns: usize, theme: &Theme) {
        let Some((ask, _)) = self.asks.front() else { return self.reading = None };
        let (columns, style) = (columns.max(1), theme.command);
        let old = self.reading.take().filter(|reading| reading.ask == ask.id);
        if old.as_ref().is_some_and(|old| old.columns == columns && old.style == style) {
            return self.reading = old;
        }
        let body = blocks::ask_body(ask, columns, theme);
        let (mut top, mut read) = (0, false);
        if let Some(old) = old {
            // About where it was: in another width there are more rows or fewer.
            top = old.top.saturating_mul(body.len()) / old.body.len().max(1);
            read = old.read;
        }
        let ask = ask.id.clone();
        self.reading = Some(QuestionView { ask, columns, style, body, top, room: 0, ended: read, read });
    }

    /// These rows of what the first question is about are on the screen now. Whether that changes what is shown.
    pub(crate) fn saw(&mut self, rows: Option<Range<usize>>) -> bool {
        let (Some(reading), Some(rows)) = (&mut self.reading, rows) else { return false };
        let Range { start, end } = rows;
        (reading.room, reading.top) = (end.saturating_sub(start), start);
        reading.ended |= end >= reading.body.len();
        // A screen of one row shows its keys in the place of what was to be read, so another key has to say so.
        let flashes = reading.room < 2 && reading.body.len() > 1;
        let before = reading.read;
        reading.read |= reading.ended && !flashes;
        reading.read != before
    }

    /// Whether the first one was read to its end.
    pub(super) fn is_read(&self) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.read)
    }

    /// Whether the key moved what is read; of one row up or down only while that is not read.
    pub(super) fn scroll(&mut self, code: KeyCode) -> bool {
        let Some(reading) = &mut self.reading else { return false };
        let count = reading.body.len();
        if reading.room >= count {
            return false;
        }
        let page = reading.room.saturating_sub(1).max(1);
        let last = count.saturating_sub(reading.room.max(1));
        let top = match code {
            KeyCode::PageUp => reading.top.saturating_sub(page),
            KeyCode::PageDown => reading.top + page,
            KeyCode::Home => 0,
            // However many rows there are room for when it is drawn.
            KeyCode::End => count,
            KeyCode::Up if !reading.read => reading.top.saturating_sub(1),
            KeyCode::Down if !reading.read => reading.top + 1,
            _ => return false,
        };
        reading.read |= reading.ended && top > reading.top;
        reading.top = if code == KeyCode::End { count } else { top.min(last) };
        true
    }
}
