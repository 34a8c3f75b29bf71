//! Background commands of a toolbox: what they change, and which there are.

use quipu_tools::BackgroundStatus;

use super::Toolbox;
use crate::background::BackgroundInfo;
use crate::files::CommandChanges;

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

    /// What changed since the last look while a command runs in the background.
    pub(crate) async fn background_changes(&self) -> CommandChanges {
        let Some(snapshotter) = &self.snapshotter else { return CommandChanges::default() };
        let run = self.standing.get().and_then(|view| view.borrow().run.clone());
        snapshotter.background_changes(run.unwrap_or_else(|| "background".into())).await
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
