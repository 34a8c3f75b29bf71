//! Background commands in the handle of a session and in its task.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::mailbox;
use futures_util::future::BoxFuture;
use quipu_machine::{BackgroundNote, MachineInput, NoteWake};
use quipu_protocol::{
    AbortTarget, AskId, BackgroundEnd, Command, CompactionResult, Event, KillReason, Refusal, RunId,
};
use quipu_tools::{BackgroundError, BackgroundEvent, BackgroundObserver};
use tokio::sync::oneshot;

use super::task::Task;
use super::{Mail, Session};
use crate::background::{BackgroundInfo, BackgroundNews, BackgroundWake, EndedCommand, reminders};
use crate::clock::fresh_id;
use crate::toolbox::Toolbox;

/// How long a move waits for the notes on commands that it killed.
const NOTED: Duration = Duration::from_secs(5);

/// Puts news into the mailbox; weak, since commands keep no session.
pub(super) fn teller(mail: &mailbox::Sender<Mail>) -> TellNews {
    let mail = mail.downgrade();
    Arc::new(move |news| {
        let mail = mail.upgrade();
        Box::pin(async move {
            // The session is over when nobody listens.
            if let Some(mail) = mail {
                drop(mail.send(Mail::Background(Box::new(news))).await);
            }
        })
    })
}

/// What is told of a command.
pub(super) type TellNews = Arc<dyn Fn(BackgroundNews) -> BoxFuture<'static, ()> + Send + Sync>;

/// Tells the session task of its commands.
pub(super) fn observer(tell: TellNews, toolbox: &Arc<Toolbox>, wake: BackgroundWake) -> BackgroundObserver {
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
                    let wake = match wake {
                        BackgroundWake::Idle => Some(NoteWake::Idle(RunId::from(fresh_id()))),
                        BackgroundWake::Running => Some(NoteWake::Running),
                        BackgroundWake::Never => None,
                    };
                    Some(BackgroundNote { draft, wake: wake.filter(|_| ended_alone) })
                }
            };
            match note {
                Some(_) => toolbox.background_ends(),
                None => toolbox.background_killed(),
            }
            Some(BackgroundNews { event: Event::BackgroundEnded { id, command, end }, note })
        }
    }
}

impl Session {
    /// Its background commands, oldest first: those that run, and the last ones that ended.
    pub fn background(&self) -> Vec<BackgroundInfo> {
        self.0.toolbox.background_list()
    }

    /// The end of what a background command printed, sealed, at most 16 KB.
    ///
    /// # Errors
    /// There is none with this id.
    pub fn background_output(&self, id: &str) -> Result<String, BackgroundError> {
        Ok(self.0.sealer.seal(&self.0.toolbox.background.tail(id)?).into_owned())
    }

    /// Kills a background command for a person, with everything that it started.
    ///
    /// # Errors
    /// There is none with this id.
    pub async fn kill_background(&self, id: &str) -> Result<(), BackgroundError> {
        self.0.toolbox.background.kill(id, KillReason::Person).await.map(|_| ())
    }

    /// What a command of a person does to background commands before the machine gets it.
    pub(super) async fn end_background(&self, command: &Command) -> Result<(), Refusal> {
        let background = &self.0.toolbox.background;
        match command {
            Command::Abort { target: AbortTarget::Background(id) } => {
                // One that ended is as good.
                drop(background.kill(id.as_str(), KillReason::Person).await);
            }
            Command::Close => {
                background.close().await;
            }
            Command::Jump { .. } | Command::Undo { .. } | Command::Redo { .. }
                if background.running() > 0 && self.view().run.is_none() =>
            {
                background.kill_all(KillReason::Move).await;
                // Behind what is said of their ends, which is noted before the session moves.
                let (reply, answer) = oneshot::channel();
                let nothing = AskId::from("");
                self.0.mail.send(Mail::FindAsk(nothing, reply)).await.map_err(|_| Refusal::Closed)?;
                drop(answer.await);
                let mut view = self.0.view.clone();
                let idle = view.wait_for(|view| view.run.is_none());
                drop(tokio::time::timeout(NOTED, idle).await);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Task {
    pub(super) fn background_news(&mut self, news: BackgroundNews) {
        let BackgroundNews { event, note } = news;
        let run = self.machine.run().cloned();
        self.emit(event, run);
        if let Some(note) = note {
            self.take(MachineInput::Background(Box::new(note)));
        }
    }

    /// Where the session stands elsewhere, or its context is another, the model is told of what runs.
    pub(super) fn remind_of_background(&mut self, event: &Event) {
        let is_elsewhere = match event {
            Event::HeadMoved { .. } => true,
            Event::CompactionEnded { result, .. } => matches!(**result, CompactionResult::Done { .. }),
            _ => false,
        };
        if is_elsewhere {
            let running = self.toolbox.background_list();
            let drafts = reminders(&self.machine.open_background(), &running, self.clock.now());
            self.machine.remind(drafts);
        }
    }
}
