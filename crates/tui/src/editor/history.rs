//! What was sent before, to be had again.

use super::buffer::Clip;

/// Texts that are kept.
const KEPT: usize = 1_000;

/// Texts that were sent, and where among them the editor is.
#[derive(Debug, Clone, Default)]
pub(super) struct History {
    /// The oldest first.
    sent: Vec<String>,
    /// Which is shown, and what was being written before.
    shown: Option<(usize, Clip)>,
}

impl History {
    pub(super) fn load(&mut self, sent: Vec<String>) {
        self.sent = sent;
        self.sent.drain(..self.sent.len().saturating_sub(KEPT));
        self.shown = None;
    }

    /// The newest first, each text once.
    pub(super) fn sent(&self) -> impl Iterator<Item = &str> {
        let mut seen = std::collections::HashSet::new();
        self.sent.iter().rev().map(String::as_str).filter(move |text| seen.insert(*text))
    }

    /// One more, unless it is the same as the last.
    pub(super) fn push(&mut self, text: &str) {
        self.shown = None;
        if text.trim().is_empty() || self.sent.last().is_some_and(|last| last == text) {
            return;
        }
        if self.sent.len() >= KEPT {
            self.sent.remove(0);
        }
        self.sent.push(text.to_owned());
    }

    /// The one before what is shown. `written` is asked for what the editor holds, when nothing of here is shown yet.
    pub(super) fn previous(&mut self, written: impl FnOnce() -> Clip) -> Option<String> {
        let at = self.shown.as_ref().map_or(self.sent.len(), |(at, _)| *at).checked_sub(1)?;
        let text = self.sent.get(at)?.clone();
        match &mut self.shown {
            Some((shown, _)) => *shown = at,
            None => self.shown = Some((at, written())),
        }
        Some(text)
    }

    /// The one after what is shown; behind the last, what was being written.
    pub(super) fn next(&mut self) -> Option<HistoryEntry> {
        let (at, _) = self.shown.as_mut()?;
        *at += 1;
        if let Some(text) = self.sent.get(*at) {
            return Some(HistoryEntry::Sent(text.clone()));
        }
        self.shown.take().map(|(_, written)| HistoryEntry::Written(written))
    }

    pub(super) fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// What is shown was changed, and is the editor's own now.
    pub(super) fn leave(&mut self) {
        self.shown = None;
    }
}

/// The entry that the editor shows next.
pub(super) enum HistoryEntry {
    Sent(String),
    Written(Clip),
}
