//! Which commands there are.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quipu_protocol::CommandSpec;
use tokio::sync::Notify;

use super::{CommandError, CommandHandler};

/// The source of commands that a front does itself.
pub const BUILT_IN: &str = "built-in";
/// Commands of a registry at most.
pub const MAX_COMMANDS: usize = 1_000;
/// Bytes of a name at most.
const MAX_NAME: usize = 64;
/// Characters of help, arguments and source at most.
const MAX_LINE: usize = 200;
/// Notices that wait at most.
const MAX_NOTICES: usize = 100;

/// The commands that a front offers. Clones are the same registry.
#[derive(Clone, Default)]
pub struct CommandRegistry(Arc<Mutex<Rows>>);

#[derive(Default)]
struct Rows {
    /// Those of a front first, then the others by their names.
    rows: Vec<Row>,
    notices: Vec<CommandError>,
    version: u64,
    /// Beginnings of names that somebody may add soon.
    expected: Vec<String>,
    changed: Arc<Notify>,
}

#[derive(Clone)]
pub(super) struct Row {
    pub(super) spec: CommandSpec,
    /// `None` for what a front does itself.
    pub(super) handler: Option<Arc<dyn CommandHandler>>,
}

impl fmt::Debug for CommandRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rows().rows.iter().map(|row| &row.spec.name)).finish()
    }
}

impl CommandRegistry {
    fn rows(&self) -> MutexGuard<'_, Rows> {
        // Nothing can break down while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a command.
    ///
    /// # Errors
    /// `Name`, `Spec`, `TooMany`; `Taken` where another has the name: who came first keeps it, and a built-in command
    /// always. Each is among the [notices](Self::take_notices), too.
    pub fn register(&self, spec: CommandSpec, handler: Arc<dyn CommandHandler>) -> Result<(), CommandError> {
        let mut rows = self.rows();
        let added = rows.add(spec, handler);
        if let Err(error) = &added {
            rows.notice(error.clone());
        }
        added
    }

    /// Puts the commands that a front does itself in front of the others, in their order. They win over all that have
    /// their names.
    pub fn set_built_in(&self, specs: impl IntoIterator<Item = CommandSpec>) {
        let mut rows = self.rows();
        let built_in = specs.into_iter().map(|mut spec| {
            BUILT_IN.clone_into(&mut spec.source);
            Row { spec, handler: None }
        });
        let built_in: Vec<_> = built_in.collect();
        let others = std::mem::take(&mut rows.rows).into_iter().filter(|row| row.handler.is_some());
        let is_taken = |row: &Row| built_in.iter().any(|own| own.spec.name == row.spec.name);
        let (lost, others): (Vec<_>, Vec<_>) = others.partition(is_taken);
        rows.rows = built_in.into_iter().chain(others).collect();
        rows.version += 1;
        for Row { spec, .. } in lost {
            let kept = "Quipu itself".to_owned();
            rows.notice(CommandError::Taken { name: spec.name, kept, refused: spec.source });
        }
    }

    /// Takes the commands of a source away.
    pub fn remove(&self, source: &str) {
        let mut rows = self.rows();
        rows.rows.retain(|row| row.handler.is_none() || row.spec.source != source);
        rows.version += 1;
    }

    /// Says which beginnings of names may be added soon, in place of those that were named before.
    pub(crate) fn expect_only(&self, beginnings: Vec<String>) {
        let mut rows = self.rows();
        rows.expected = beginnings;
        rows.changed.notify_waiters();
    }

    /// Says that no more names with a beginning are to come.
    pub(crate) fn expect_no_more(&self, beginning: &str) {
        let mut rows = self.rows();
        rows.expected.retain(|known| known != beginning);
        rows.changed.notify_waiters();
    }

    /// Waits until there is a command of this name, or nobody is about to add it; at most `limit`.
    pub async fn settled(&self, name: &str, limit: Duration) {
        let changed = self.rows().changed.clone();
        let is_open = || {
            let rows = self.rows();
            let is_known = rows.rows.iter().any(|row| row.spec.name == name);
            !is_known && rows.expected.iter().any(|beginning| name.starts_with(beginning))
        };
        let settled = async {
            loop {
                let mut next = std::pin::pin!(changed.notified());
                next.as_mut().enable();
                if !is_open() {
                    return;
                }
                next.await;
            }
        };
        // What is late is not there.
        drop(tokio::time::timeout(limit, settled).await);
    }

    /// All of them: those that a front does itself, then the others by their names.
    pub fn list(&self) -> Vec<CommandSpec> {
        self.rows().rows.iter().map(|row| row.spec.clone()).collect()
    }

    /// Those that can be run without the terminal.
    pub fn runnable(&self) -> Vec<CommandSpec> {
        let rows = self.rows();
        rows.rows.iter().filter(|row| row.handler.is_some()).map(|row| row.spec.clone()).collect()
    }

    /// Another number whenever the list is another.
    pub fn version(&self) -> u64 {
        self.rows().version
    }

    /// What a person should know since the last time: commands that are not used.
    pub fn take_notices(&self) -> Vec<CommandError> {
        std::mem::take(&mut self.rows().notices)
    }

    pub(super) fn row(&self, name: &str) -> Option<Row> {
        self.rows().rows.iter().find(|row| row.spec.name == name).cloned()
    }
}

impl Rows {
    fn add(&mut self, spec: CommandSpec, handler: Arc<dyn CommandHandler>) -> Result<(), CommandError> {
        let is_letter =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b":_-".contains(&byte);
        let CommandSpec { name, arguments, help, source, .. } = &spec;
        if !(1..=MAX_NAME).contains(&name.len()) || !name.bytes().all(is_letter) {
            let shown = name.chars().filter(|letter| !letter.is_control()).take(MAX_NAME);
            return Err(CommandError::Name { name: shown.collect() });
        }
        let name = name.clone();
        let is_line = |text: &str| !text.contains(char::is_control) && text.chars().nth(MAX_LINE).is_none();
        let is_listed = !help.trim().is_empty() && !source.trim().is_empty() && source != BUILT_IN;
        if !is_listed || ![help, arguments, source].into_iter().all(|text| is_line(text)) {
            return Err(CommandError::Spec { name });
        }
        if let Some(taken) = self.rows.iter().find(|row| row.spec.name == name) {
            let kept = if taken.handler.is_none() { "Quipu itself" } else { &taken.spec.source };
            return Err(CommandError::Taken { name, kept: kept.to_owned(), refused: source.clone() });
        }
        if self.rows.len() >= MAX_COMMANDS {
            return Err(CommandError::TooMany { name, limit: MAX_COMMANDS });
        }
        let before = |row: &Row| row.handler.is_none() || row.spec.name < name;
        let place = self.rows.partition_point(before);
        self.rows.insert(place, Row { spec, handler: Some(handler) });
        self.version += 1;
        self.changed.notify_waiters();
        Ok(())
    }

    fn notice(&mut self, notice: CommandError) {
        if self.notices.len() < MAX_NOTICES {
            self.notices.push(notice);
        }
    }
}
