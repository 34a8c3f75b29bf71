//! What was cut, to be put back.

use super::buffer::Clip;

/// Cuts that are kept.
const KEPT: usize = 60;

/// The kill ring. Cuts that follow each other become one.
#[derive(Debug, Clone, Default)]
pub(super) struct KillRing {
    cuts: Vec<Clip>,
    /// How far back the last one put was.
    turned: usize,
}

impl KillRing {
    /// Keeps what was cut: behind the last cut, before it, or as one of its own.
    pub(super) fn cut(&mut self, clip: Clip, with: KillMode) {
        self.turned = 0;
        if clip.is_empty() {
            return;
        }
        match (with, self.cuts.pop()) {
            (KillMode::Behind, Some(last)) => self.cuts.push(last.and(clip)),
            (KillMode::Before, Some(last)) => self.cuts.push(clip.and(last)),
            (KillMode::Alone, last) => self.cuts.extend(last.into_iter().chain([clip])),
            (_, None) => self.cuts.push(clip),
        }
        if self.cuts.len() > KEPT {
            self.cuts.remove(0);
        }
    }

    /// The last cut.
    pub(super) fn last(&mut self) -> Option<&Clip> {
        self.turned = 0;
        self.cuts.last()
    }

    /// The cut before the one that was given last; behind the oldest comes the newest.
    pub(super) fn turn(&mut self) -> Option<&Clip> {
        self.turned = (self.turned + 1) % self.cuts.len().max(1);
        self.cuts.iter().rev().nth(self.turned)
    }
}

/// How a cut joins the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KillMode {
    /// It was cut elsewhere.
    Alone,
    /// It followed in the text.
    Behind,
    /// It came before in the text.
    Before,
}
