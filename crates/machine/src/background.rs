//! Notes on background commands that ended: each becomes a node, between two turns or in an idle session, and wakes the model
//! where that is wanted.

use std::collections::BTreeMap;

use quipu_protocol::{Entry, Event, Json, Message, Notice, Outcome, RunId};
use serde::Deserialize;

use super::{Draft, Machine};

/// How many runs in a row begin with a note, before a person has to say something.
const WAKES: u32 = 20;

/// A note for the model.
#[derive(Debug, Clone, PartialEq)]
pub struct BackgroundNote {
    /// Its entry: a message.
    pub draft: Draft,
    /// Which run it wakes; `None` where it waits for the next request.
    pub wake: Option<NoteWake>,
}

/// What a note wakes.
#[derive(Debug, Clone, PartialEq)]
pub enum NoteWake {
    /// A run under way continues with it, and an idle session begins a run of this id.
    Idle(RunId),
    /// A run under way continues with it.
    Running,
}

/// Notes that are no nodes yet.
#[derive(Default)]
pub(super) struct BackgroundNotes {
    drafts: Vec<Draft>,
    /// They go with the next request, and with nothing else: whoever reads the session later finds the same again.
    reminders: Vec<Draft>,
    /// A run under way continues for them.
    continues: bool,
    /// They begin this run where none is under way.
    wake: Option<RunId>,
    /// Runs in a row that began with a note.
    woken: u32,
}

impl BackgroundNotes {
    pub(super) fn of(reminders: Vec<Draft>) -> Self {
        Self { reminders, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.drafts.is_empty()
    }

    /// Whether a run continues for them.
    pub(super) fn wakes(&self) -> bool {
        self.wake.is_some() || self.continues
    }

    /// What begins a run with a prompt, or without one.
    pub(super) fn all(&self) -> impl Iterator<Item = &Draft> {
        self.reminders.iter().chain(&self.drafts)
    }

    /// A person said something.
    pub(super) fn person_spoke(&mut self) {
        self.woken = 0;
    }

    /// A run that did not end by itself is not followed by another one.
    pub(super) fn run_ended(&mut self, outcome: &Outcome) {
        self.continues = false;
        if *outcome != Outcome::Done {
            self.wake = None;
        }
    }
}

/// What the details of a result or of a note say of background commands, under `background`.
#[derive(Deserialize)]
struct Details {
    background: Mention,
}

#[derive(Deserialize)]
struct Mention {
    started: Option<String>,
    #[serde(default)]
    command: String,
    ended: Option<String>,
    /// Ids and command lines.
    #[serde(default)]
    running: BTreeMap<String, String>,
    #[serde(default)]
    lost: Vec<String>,
}

/// The background commands that a conversation says were started, by id, and not that they ended: their command lines.
pub fn open_background<'a>(messages: impl IntoIterator<Item = &'a Message>) -> BTreeMap<String, String> {
    let mut open = BTreeMap::new();
    for message in messages {
        let Some(Details { background }) = details_of(message).and_then(mention) else { continue };
        open.extend(background.started.map(|id| (id, background.command)));
        open.extend(background.running);
        for id in background.ended.iter().chain(&background.lost) {
            open.remove(id);
        }
    }
    open
}

/// The ids of all background commands that a conversation says were started.
pub fn started_background<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<String> {
    let mut ids = Vec::new();
    for message in messages {
        if let Some(Details { background }) = details_of(message).and_then(mention) {
            ids.extend(background.started.into_iter().chain(background.running.into_keys()));
        }
    }
    ids
}

fn details_of(message: &Message) -> Option<&Json> {
    match message {
        Message::ToolResult(result) => result.details.as_ref(),
        Message::Custom(custom) => custom.details.as_ref(),
        Message::User(_)
        | Message::Assistant(_)
        | Message::BashExecution(_)
        | Message::BranchSummary(_)
        | Message::CompactionSummary(_)
        | Message::Other(_) => None,
    }
}

fn mention(details: &Json) -> Option<Details> {
    // Most results have other details, and some of those are large.
    details.get().contains("\"background\"").then(|| details.read().ok()).flatten()
}

impl Machine {
    /// [`open_background`] where the session stands, with what waits to become a node.
    pub fn open_background(&self) -> BTreeMap<String, String> {
        let drafts = self.unsaved.iter().chain(&self.background.drafts);
        let waiting = drafts.filter_map(|draft| match &*draft.entry {
            Entry::Message(message) => Some(message),
            Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => None,
        });
        open_background(self.messages.iter().map(|message| &**message).chain(waiting))
    }

    /// These notes go with the next request, in place of earlier ones.
    pub fn remind(&mut self, reminders: Vec<Draft>) {
        self.background.reminders = reminders;
    }

    pub(super) fn background_note(&mut self, note: BackgroundNote) {
        let BackgroundNote { draft, wake } = note;
        self.background.drafts.push(draft);
        match wake {
            Some(NoteWake::Idle(run)) => drop(self.background.wake.get_or_insert(run)),
            Some(NoteWake::Running) => self.background.continues = self.run.is_some(),
            None => {}
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
            return self.unsaved.append(&mut self.background.drafts);
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
                self.unsaved.append(&mut self.background.drafts);
                self.begin_noting();
                self.commit(super::Tag::Noted { ended: None }, Vec::new(), Vec::new(), true);
            }
        }
    }

    /// The notes go with the next commit.
    pub(super) fn queue_background_notes(&mut self) {
        (self.background.wake, self.background.continues) = (None, false);
        self.unsaved.append(&mut self.background.reminders);
        self.unsaved.append(&mut self.background.drafts);
    }
}
