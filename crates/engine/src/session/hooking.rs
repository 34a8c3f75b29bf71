//! Hooks at what people do: what they say, where they go, what they run in the shell. They run in the task of whoever sends
//! the command, before the session has it.

use quipu_protocol::{Ack, Command, Notice, Provenance, Refusal, SessionId, Ui, UserInput};
use tokio_util::sync::CancellationToken;

use super::{CommandInfo, Session};
use crate::hooks::{HookedInput, MoveRequest, ShellLine};

impl Session {
    /// Whether any hook is called in this session.
    pub fn has_hooks(&self) -> bool {
        !self.0.toolbox.hooks.is_empty()
    }

    /// Asks the hooks whether whoever is in front may leave the session for another one; `None` for a new one. A front
    /// calls this before it closes the one that it leaves.
    ///
    /// # Errors
    /// `Blocked` with the reason of the hook; `Closed`.
    pub async fn before_switch(&self, to: Option<SessionId>) -> Result<(), Refusal> {
        if !self.has_hooks() {
            return Ok(());
        }
        self.ask_move(&MoveRequest::Switch { to }).await
    }

    /// Hooks see the input before anything else does. Gives what stands beside it since the session began, or the
    /// acknowledgement where there is no input left.
    pub(super) async fn hook_input(
        &self,
        input: &mut UserInput,
    ) -> Result<Result<Vec<(String, String)>, Ack>, Refusal> {
        let hooks = &self.0.toolbox.hooks;
        let opening = tokio::select! {
            opening = hooks.take_opening() => opening,
            () = self.0.ended.cancelled() => return Err(Refusal::Closed),
        };
        self.note(opening.notices).await?;
        let (hooked, notices) = hooks.input(input.clone()).await;
        self.note(notices).await?;
        match hooked {
            HookedInput::Say(changed) => {
                *input = changed;
                for (hook, text) in &opening.texts {
                    input.add(text, Provenance::hook(hook));
                }
                Ok(Ok(opening.texts))
            }
            HookedInput::Handled => {
                hooks.put_opening_back(opening.texts);
                Ok(Err(Ack::Handled))
            }
            HookedInput::Blocked(why) => {
                hooks.put_opening_back(opening.texts);
                Err(Refusal::Blocked { why })
            }
        }
    }

    /// Hooks see where the session is to go.
    pub(super) async fn hook_move(&self, command: &Command) -> Result<(), Refusal> {
        let request = match command {
            Command::Jump { to, .. } => MoveRequest::Jump { to: *to },
            Command::Undo { steps, .. } => MoveRequest::Undo { steps: *steps },
            Command::Redo { steps, .. } => MoveRequest::Redo { steps: *steps },
            Command::Merge { from, .. } => MoveRequest::Merge { from: *from },
            Command::Fork { at } => MoveRequest::Fork { at: *at },
            Command::UndoCompaction => MoveRequest::UndoCompaction,
            Command::Prompt { .. }
            | Command::Continue
            | Command::Unqueue { .. }
            | Command::Abort { .. }
            | Command::Answer { .. }
            | Command::Compact { .. }
            | Command::Label { .. }
            | Command::Rename { .. }
            | Command::Shell { .. }
            | Command::Set { .. }
            | Command::Close => return Ok(()),
        };
        self.ask_move(&request).await
    }

    async fn ask_move(&self, request: &MoveRequest) -> Result<(), Refusal> {
        let hooked = self.0.toolbox.hooks.before_move(None, request, &CancellationToken::new()).await;
        self.note(hooked.notices).await?;
        hooked.value.map_or(Ok(()), |why| Err(Refusal::Blocked { why }))
    }

    /// Hooks see a line before it runs. Gives the one that runs, where they changed it.
    pub(super) async fn hook_shell(
        &self,
        line: &mut String,
        hidden: bool,
    ) -> Result<Option<CommandInfo>, Refusal> {
        let before = line.clone();
        let hooked = self.0.toolbox.hooks.shell_line(ShellLine { line: before.clone(), hidden }).await;
        let records = hooked.kept_records();
        self.note(hooked.notices).await?;
        let after = hooked.value.map_err(|why| Refusal::Blocked { why })?;
        if after == before {
            return Ok(None);
        }
        let runs = match self.0.sealer.unseal(&after) {
            Ok(runs) => runs.into_owned(),
            Err(error) => return Err(Refusal::Blocked { why: error.to_string() }),
        };
        *line = after;
        Ok(Some(CommandInfo::Line(runs, records)))
    }

    /// What people should know of hooks and policies.
    pub(super) async fn note(&self, notices: Vec<String>) -> Result<(), Refusal> {
        for text in notices {
            self.show(Ui::Notice { notice: Notice::Note { text } }).await?;
        }
        Ok(())
    }
}
