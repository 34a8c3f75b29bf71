//! Commands in the background of conversations: what ends while nothing runs becomes a message of the system.

use std::collections::HashMap;

use quipu::protocol::{
    AuthorClass, BackgroundEnd, BackgroundId, Content, Ending, Envelope, Event, Message, Origin, Outcome,
    Provenance, RunId, UserInput,
};
use quipu::{BACKGROUND_MESSAGE, Delivery, Session};
use serde::Deserialize;

use super::{Conversations, RunRequest};
use crate::keys::SessionKey;
use crate::queue::{CAP_LIMIT, MessageGroup};

/// Messages in a row about commands, before somebody else has to say something: a command that its answer starts ends as well.
const IN_A_ROW: u32 = 20;
/// Commands whose starts are remembered.
const KNOWN: usize = 64;
/// What the model does about it.
const TASK: &str = "It ended while nobody was waiting here. Tell whoever asked for it what came of it; read its output with \
                    `background` if you need it. If there is nothing to say, answer NO_REPLY.";

/// How a command ended, as a note in a session says.
#[derive(Deserialize)]
struct EndNote {
    background: EndedCommand,
}

#[derive(Deserialize)]
struct EndedCommand {
    ended: BackgroundId,
    end: BackgroundEnd,
}

/// What is known of the commands of a session.
#[derive(Default)]
struct CommandStarts {
    /// In the name of whom each was started.
    groups: HashMap<BackgroundId, MessageGroup>,
    /// The run under way.
    run: Option<RunId>,
    /// What ended in it.
    ended_in_run: Vec<BackgroundId>,
    in_a_row: u32,
}

impl Conversations {
    /// Has a conversation hear of the commands in the background of its session that end while nothing runs in it, until the session is closed.
    /// Each end is a message of the system behind those that wait, with the route and the rights of the messages whose run started the command:
    /// its answer goes where theirs went. The end of one that no message started waits for the next message, as does the one of a heartbeat: it
    /// could begin itself again and again.
    pub async fn follow_commands(&self, key: SessionKey, session: Session) {
        let Ok((_, mut events)) = session.subscribe(Delivery::Live).await else { return };
        let mut starts = CommandStarts { run: session.view().run, ..CommandStarts::default() };
        drop(session);
        while let Some(envelope) = events.next().await {
            if let Event::BackgroundStarted { id, .. } = &envelope.event
                && !key.is_heartbeat()
                && let Some(group) = self.running_group(&key)
            {
                starts.begun(id.clone(), group);
            }
            let Some((end, group)) = starts.ended(&envelope) else { continue };
            let request = RunRequest::of_system(key.clone(), group, end, quipu_host::now(), CAP_LIMIT);
            // Where it is refused, the note stands in the session all the same, and goes with the next message.
            drop(self.start(request).await);
        }
    }
}

impl CommandStarts {
    fn begun(&mut self, id: BackgroundId, group: MessageGroup) {
        if self.groups.len() < KNOWN {
            self.groups.insert(id, group);
        }
    }

    /// The message about a command that ended by itself while nothing ran, and in the name of whom.
    fn ended(&mut self, Envelope { run, event, .. }: &Envelope) -> Option<(UserInput, MessageGroup)> {
        let message = match event {
            Event::MessageEnded { message, ending: Ending::Committed(_), .. } => message,
            Event::RunStarted => {
                self.run.clone_from(run);
                return None;
            }
            Event::Lagged { snapshot, .. } => {
                self.run = snapshot.run.as_ref().map(|run| run.id.clone());
                return None;
            }
            Event::RunEnded { outcome } => {
                // One that was stopped, or that failed, is not followed by another one.
                for id in self.ended_in_run.drain(..).filter(|_| *outcome != Outcome::Done) {
                    self.groups.remove(&id);
                }
                self.run = None;
                return None;
            }
            // Nothing more is said of it.
            Event::BackgroundEnded { id, end: BackgroundEnd::Killed(_), .. } => {
                self.groups.remove(id);
                return None;
            }
            Event::BackgroundEnded { id, .. } => {
                // Also one whose beginning is being stored.
                self.ended_in_run.extend(run.is_some().then(|| id.clone()));
                return None;
            }
            _ => return None,
        };
        let custom = match &**message {
            Message::Custom(custom) if custom.custom_type == BACKGROUND_MESSAGE => custom,
            Message::User(user) => {
                if !user.content.text().ends_with(TASK) {
                    self.in_a_row = 0;
                }
                return None;
            }
            _ => return None,
        };
        let EndNote { background: EndedCommand { ended, end } } = custom.details.as_ref()?.read().ok()?;
        let group = self.groups.remove(&ended)?;
        if self.run.is_some() && *run == self.run {
            // The model of that run reads it.
            return None;
        }
        self.in_a_row += 1;
        if self.in_a_row > IN_A_ROW {
            return None;
        }
        let provenance = Provenance::new(Origin::Process, AuthorClass::System).named("background");
        let text = format!("Background command {ended} {end}. {TASK}");
        Some((UserInput::new(vec![Content::text(text)]).from_source(provenance), group))
    }
}
