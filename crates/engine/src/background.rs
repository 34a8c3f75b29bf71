//! Background commands of a session: the notes to the model about them, and who gets their events.

use std::collections::BTreeMap;
use std::time::Duration;

use quipu_machine::{BackgroundNote, Draft, open_background};
use quipu_protocol::{
    BackgroundEnd, BackgroundId, Body, Content, CustomMessage, Entry, Event, Json, Message, Provenance,
    StepInfo, UnixMs,
};
use quipu_seal::Sealer;
use quipu_tools::BackgroundCommands;
use serde_json::json;

use crate::files::CommandChanges;

/// The `customType` of messages about background commands.
pub const BACKGROUND_MESSAGE: &str = "quipu.background";
/// Bytes of a command line in a note.
const SHOWN: usize = 500;

/// What happens in a session when a background command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundWake {
    /// An idle session begins a run with the note.
    #[default]
    Idle,
    /// A run under way continues with the note. In an idle session it waits for the next request, and its message ends in no run: whoever holds the
    /// session decides what begins.
    Running,
    /// The note waits for the next request.
    Never,
}

/// A background command, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundInfo {
    /// Its id.
    pub id: BackgroundId,
    /// The command line.
    pub command: String,
    /// How long it runs, or ran.
    pub took: Duration,
    /// How it ended; `None` while it runs.
    pub end: Option<BackgroundEnd>,
}

/// What a session task hears of a background command.
pub(crate) struct BackgroundNews {
    pub(crate) event: Event,
    pub(crate) note: Option<BackgroundNote>,
}

/// The commands of a session that continues from these messages: their ids are new.
pub(crate) fn commands_after<'a>(messages: impl Iterator<Item = &'a Message>) -> BackgroundCommands {
    let started = quipu_machine::started_background(messages);
    let numbers = started.iter().filter_map(|id| BackgroundCommands::number(id));
    BackgroundCommands::after(numbers.max().unwrap_or(0))
}

/// A command that ended, sealed.
pub(crate) struct EndedCommand<'a> {
    pub(crate) id: &'a BackgroundId,
    pub(crate) command: &'a str,
    pub(crate) end: &'a BackgroundEnd,
    pub(crate) took: Duration,
    pub(crate) unread: u64,
}

impl EndedCommand<'_> {
    pub(crate) fn draft(&self, changes: CommandChanges, sealer: &Sealer, now: UnixMs) -> Draft {
        let Self { id, command, end, took, unread } = self;
        let mut text =
            format!("Background command {id} {end} after {}s. Command: {}", took.as_secs(), shown(command));
        if *unread > 0 {
            text.push_str(&format!("\n{unread} bytes of its output are unread; `background` reads them."));
        }
        let end = sealer.seal_json(&Json::of(end).unwrap_or_default());
        let details = json!({ "background": { "ended": id, "command": command, "end": end } });
        let mut draft = note(text, &details, now);
        let CommandChanges { files, states, note, .. } = changes;
        draft.step.files = files;
        note.put_into(&mut draft.step);
        draft.states = states;
        draft
    }
}

/// Reminders of what the conversation does not say, with what runs by now: commands that run no more, and those that a
/// compaction took out of it.
pub(crate) fn reminders(
    open: &BTreeMap<String, String>,
    running: &[BackgroundInfo],
    now: UnixMs,
) -> Vec<Draft> {
    let runs = |id: &str| running.iter().any(|one| one.end.is_none() && one.id.as_str() == id);
    let lost: Vec<_> = open.iter().filter(|(id, _)| !runs(id)).collect();
    let unseen: Vec<_> =
        running.iter().filter(|one| one.end.is_none() && !open.contains_key(one.id.as_str())).collect();
    let mut drafts = Vec::new();
    if !lost.is_empty() {
        let lines: Vec<String> =
            lost.iter().map(|(id, command)| format!("{id}: {}", shown(command))).collect();
        let text = format!(
            "These background commands do not run in this session any more, because it was closed, forked or moved after \
             they started. How they ended is unknown. They are not run again.\n{}",
            lines.join("\n")
        );
        let ids: Vec<_> = lost.iter().map(|(id, _)| id).collect();
        drafts.push(note(text, &json!({ "background": { "lost": ids } }), now));
    }
    if !unseen.is_empty() {
        let lines: Vec<String> =
            unseen.iter().map(|one| format!("{}: {}", one.id, shown(&one.command))).collect();
        let text = format!("These background commands still run.\n{}", lines.join("\n"));
        let running: BTreeMap<&str, &str> =
            unseen.iter().map(|one| (one.id.as_str(), one.command.as_str())).collect();
        drafts.push(note(text, &json!({ "background": { "running": running } }), now));
    }
    drafts
}

/// What a session that is opened tells of commands of an earlier process.
pub(crate) fn left_behind<'a>(messages: impl Iterator<Item = &'a Message>, now: UnixMs) -> Vec<Draft> {
    reminders(&open_background(messages), &[], now)
}

fn note(text: String, details: &serde_json::Value, now: UnixMs) -> Draft {
    let message = CustomMessage {
        custom_type: BACKGROUND_MESSAGE.to_owned(),
        content: Body::Blocks(vec![Content::text(text)]),
        display: true,
        details: Some(Json::from(details)),
        timestamp: now,
    };
    let step = StepInfo { provenance: Some(Provenance::quipu()), ..StepInfo::default() };
    Draft::of(Entry::Message(Message::Custom(message)), step)
}

fn shown(command: &str) -> &str {
    &command[..command.floor_char_boundary(SHOWN)]
}
