//! Notes on background commands that ended: each becomes a node, between two turns or in an idle session, and wakes the model
//! where that is wanted.

use quipu_protocol::{Event, Notice, Outcome, RunId};

use super::{Draft, Machine};

/// How many runs in a row begin with a note, before a person has to say something.
const WAKES: u32 = 20;

/// A note for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundNote {
    /// Its entry: a message.
    pub draft: Draft,
    /// The id of the run that it begins in an idle session; `None` where it waits for the next request.
    pub wake: Option<RunId>,
}

/// Notes that are no nodes yet.
#[derive(Default)]
pub(super) struct BackgroundNotes {
    drafts: Vec<Draft>,
    wake: Option<RunId>,
    /// Runs in a row that began with a note.
    woken: u32,
}

impl BackgroundNotes {
    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Whether a run continues for them.
    pub(super) fn wakes(&self) -> bool {
        self.wake.is_some()
    }

    pub(super) fn drafts(&self) -> &[Draft] {
        &self.drafts
    }

    /// A person said something.
    pub(super) fn person_spoke(&mut self) {
        self.woken = 0;
    }

    /// A run that did not end by itself is not followed by another one.
    pub(super) fn run_ended(&mut self, outcome: &Outcome) {
        if *outcome != Outcome::Done {
            self.wake = None;
        }
    }
}

impl Machine {
    pub(super) fn background_note(&mut self, note: BackgroundNote) {
        let BackgroundNote { draft, wake } = note;
        self.background.drafts.push(draft);
        if let Some(run) = wake {
            self.background.wake.get_or_insert(run);
        }
        self.start_background_notes();
        self.stop_if_closing();
    }

    /// Makes the notes nodes, or begins a run with them, when nothing is under way.
    pub(super) fn start_background_notes(&mut self) {
        if self.run.is_some() || self.committing.is_some() || self.background.is_empty() {
            return;
        }
        if self.closing.is_some() {
            // Committed with what else is left, at the end.
            return self.queue_background_notes();
        }
        match self.background.wake.take().filter(|_| !self.pending_self_message) {
            Some(run) if self.background.woken < WAKES => {
                self.background.woken += 1;
                self.begin_run(run, None, Vec::new(), Vec::new());
            }
            wake => {
                if wake.is_some() {
                    let text = format!(
                        "{WAKES} runs in a row began because a background command ended, so the model is not woken \
                         again until you send a message."
                    );
                    self.emit(Event::from(Notice::Note { text }));
                }
                self.queue_background_notes();
                self.commit_background_notes();
            }
        }
    }

    /// The notes go with the next commit.
    pub(super) fn queue_background_notes(&mut self) {
        self.background.wake = None;
        self.unsaved.append(&mut self.background.drafts);
    }

    fn commit_background_notes(&mut self) {
        self.begin_noting();
        self.commit(super::Tag::Noted { ended: None }, Vec::new(), Vec::new(), true);
    }
}
