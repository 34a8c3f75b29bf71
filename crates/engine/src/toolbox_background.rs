//! Background commands of a toolbox: their list, and what they change.

use quipu_tools::{BackgroundStatus, Touches};

use crate::background::BackgroundInfo;
use crate::files::CommandChanges;
use crate::toolbox::Toolbox;

impl Toolbox {
    /// A command goes on in the background.
    pub(crate) fn background_begins(&self) {
        if let Some(snapshotter) = &self.snapshotter {
            snapshotter.background_begins();
        }
    }

    /// A background command ended, and what it changed was asked for.
    pub(crate) fn background_ends(&self) {
        if let Some(snapshotter) = &self.snapshotter {
            snapshotter.background_ends();
        }
    }

    /// A background command was killed by a call, which asks for what it changed.
    pub(crate) fn background_killed(&self) {
        if let Some(snapshotter) = &self.snapshotter {
            snapshotter.background_killed();
        }
    }

    /// What changed since the last look while a command runs in the background.
    pub(crate) async fn background_changes(&self) -> CommandChanges {
        let Some(snapshotter) = &self.snapshotter else { return CommandChanges::default() };
        let run = self.standing.get().and_then(|view| view.borrow().run.clone());
        snapshotter.background_changes(run.unwrap_or_else(|| "background".into())).await
    }

    /// A command that is written to runs with secrets put back; people and policies see it without.
    pub(crate) fn sealed(&self, mut touches: Touches) -> Touches {
        if let Touches::Input(input) = &mut touches {
            input.command = input.command.take().map(|command| self.parts.sealer.seal(&command).into_owned());
        }
        touches
    }

    /// The background commands of the session, sealed.
    pub(crate) fn background_list(&self) -> Vec<BackgroundInfo> {
        let seal = |BackgroundStatus { id, command, took, end, .. }| {
            let command = self.parts.sealer.seal(&command).into_owned();
            BackgroundInfo { id, command, took, end }
        };
        self.background.list().into_iter().map(seal).collect()
    }
}
