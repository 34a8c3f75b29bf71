//! Background commands of a session: what the model is told of them, and who hears of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_machine::{BackgroundNote, Draft, open_background};
use quipu_protocol::{
    BackgroundEnd, BackgroundId, Body, Content, CustomMessage, Entry, Event, Json, KillReason, Message,
    Provenance, RunId, StepInfo, UnixMs,
};
use quipu_seal::Sealer;
use quipu_tools::{BackgroundCommands, BackgroundEvent, BackgroundObserver};
use serde_json::json;

use crate::clock::fresh_id;
use crate::files::CommandChanges;
use crate::toolbox::Toolbox;

/// The kind of the messages.
const KIND: &str = "quipu.background";
/// Bytes of a command line in a note.
const SHOWN: usize = 500;

/// What happens in a session when a background command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BackgroundWake {
    /// An idle session begins a run with the note.
    #[default]
    Idle,
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

/// What is told of a command.
pub(crate) type TellNews = Arc<dyn Fn(BackgroundNews) -> BoxFuture<'static, ()> + Send + Sync>;

/// Tells the session task of its commands.
pub(crate) fn observer(tell: TellNews, toolbox: &Arc<Toolbox>, wake: BackgroundWake) -> BackgroundObserver {
    // Weak: commands keep no session.
    let toolbox = Arc::downgrade(toolbox);
    Arc::new(move |event| {
        let (tell, toolbox) = (tell.clone(), toolbox.clone());
        Box::pin(async move {
            if let Some(news) = news(event, &toolbox, wake).await {
                tell(news).await;
            }
        })
    })
}

async fn news(
    event: BackgroundEvent,
    toolbox: &Weak<Toolbox>,
    wake: BackgroundWake,
) -> Option<BackgroundNews> {
    let toolbox = toolbox.upgrade()?;
    match event {
        BackgroundEvent::Started { id, command } => {
            toolbox.background_begins();
            let command = toolbox.parts.sealer.seal(&command).into_owned();
            Some(BackgroundNews { event: Event::BackgroundStarted { id, command }, note: None })
        }
        BackgroundEvent::Ended { id, command, end, took, unread } => {
            let command = toolbox.parts.sealer.seal(&command).into_owned();
            // The result of the call that kills it says so, and has what it changed.
            let note = match end {
                BackgroundEnd::Killed(KillReason::Model) => None,
                _ => {
                    let changes = toolbox.background_changes().await;
                    let ended = EndedCommand { id: &id, command: &command, end: &end, took, unread };
                    let draft = ended.draft(changes, &toolbox.parts.sealer, toolbox.parts.clock.now());
                    let ended_alone = !matches!(end, BackgroundEnd::Killed(_));
                    let wakes = ended_alone && wake == BackgroundWake::Idle;
                    Some(BackgroundNote { draft, wake: wakes.then(|| RunId::from(fresh_id())) })
                }
            };
            toolbox.background_ends();
            Some(BackgroundNews { event: Event::BackgroundEnded { id, command, end }, note })
        }
    }
}

struct EndedCommand<'a> {
    id: &'a BackgroundId,
    command: &'a str,
    end: &'a BackgroundEnd,
    took: Duration,
    unread: u64,
}

impl EndedCommand<'_> {
    fn draft(&self, changes: CommandChanges, sealer: &Sealer, now: UnixMs) -> Draft {
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
        custom_type: KIND.to_owned(),
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
