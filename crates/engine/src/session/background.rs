//! Background commands in the handle of a session and in its task.

use std::sync::Arc;
use std::time::Duration;

use quipu_machine::MachineInput;
use quipu_protocol::{AskId, Command, CompactionResult, Event, KillReason, Refusal};
use quipu_tools::BackgroundError;
use tokio::sync::{mpsc, oneshot};

use super::task::Task;
use super::{Mail, Session};
use crate::background::{BackgroundNews, TellNews, reminders};
use crate::background_info::BackgroundInfo;

/// How long a move waits for the notes on commands that it killed.
const NOTED: Duration = Duration::from_secs(5);

/// Puts news into the mailbox; weak, since commands keep no session.
pub(super) fn teller(mail: &mpsc::Sender<Mail>) -> TellNews {
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
            Command::Abort { target: quipu_protocol::AbortTarget::Background(id) } => {
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
