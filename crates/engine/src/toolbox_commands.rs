//! What a call gets beside its arguments: the environment of a command, by the node whose call starts it, and files as an
//! editor holds them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use crate::mailbox;
use quipu_machine::MachineInput;
use quipu_tools::{Invocation, Preparation, Tool, ToolContext, Touches};

use crate::command_environment::CommandOrigin;
use crate::toolbox::{Toolbox, tell};

impl Toolbox {
    /// The names of the tools that there are.
    pub(crate) fn names(&self) -> Arc<[String]> {
        self.set().names().map(str::to_owned).collect()
    }

    /// What a tool gets ready for a call. Nothing where commands get variables by their node, which is not there yet.
    pub(crate) fn preparation(
        &self,
        tool: &dyn Tool,
        call: &Invocation,
        cx: &ToolContext,
    ) -> Option<Preparation> {
        if self.parts.command_environment.as_ref().is_some_and(|commands| commands.applies()) {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| tool.prepare(call, cx))).unwrap_or_default()
    }

    /// Fits the context to what a call touches; whether it is a command.
    pub(crate) async fn fit_context(
        &self,
        cx: &mut ToolContext,
        touches: &Touches,
        people: &mailbox::Sender<MachineInput>,
    ) -> bool {
        match touches {
            Touches::Anything => self.add_command_environment(cx, people).await,
            Touches::Reads(paths) => self.look_in_editor(cx, paths.clone(), false).await,
            Touches::Writes(paths) => self.look_in_editor(cx, paths.clone(), true).await,
            Touches::Nothing | Touches::Input(_) | Touches::Session => {}
        }
        matches!(touches, Touches::Anything)
    }

    /// What is not saved of files is read in their place; of files that are about to be changed it is saved before they are
    /// looked at.
    async fn look_in_editor(&self, cx: &mut ToolContext, paths: Vec<PathBuf>, saves: bool) {
        let Some(editor) = self.parts.editor.clone() else { return };
        let access = cx.access.clone().in_editor(editor);
        let work = move || {
            if !saves {
                return access.with_unsaved(&paths);
            }
            access.save_unsaved(&paths);
            access
        };
        if let Ok(access) = tokio::task::spawn_blocking(work).await {
            cx.access = access;
        }
    }

    /// Adds the variables of a command that starts now. The session stands at the answer that holds its call.
    async fn add_command_environment(&self, cx: &mut ToolContext, people: &mailbox::Sender<MachineInput>) {
        let head = self.standing.get().and_then(|view| view.borrow().head);
        let Some((commands, node)) = self.parts.command_environment.clone().zip(head) else { return };
        if !commands.applies() {
            return;
        }
        let (env, cwd) = (cx.env.clone(), cx.cwd.clone());
        let work = move || commands.variables(&CommandOrigin { node, cwd: &cwd, env: &env });
        let added = match tokio::task::spawn_blocking(work).await {
            Ok(Ok(added)) => added,
            Ok(Err(error)) => return tell(people, Some(error.to_string())).await,
            Err(error) => return tell(people, Some(error.to_string())).await,
        };
        let added = added.into_iter().map(|(name, value)| (name, Some(value)));
        cx.env = cx.env.iter().cloned().chain(added).collect();
    }
}
