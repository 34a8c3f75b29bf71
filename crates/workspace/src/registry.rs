//! Who owns the processes that commands left running.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::task::JoinHandle;

use crate::guardian::Guardian;
use crate::tree::{Victims, group_exists, kill_tree};

/// Owns every process that [`run_shell`](crate::run_shell) started with it. Dropping it kills them all.
///
/// While any of them lives, a guardian process (a small `sh`) watches us: when this process dies in whichever
/// way, the guardian kills them in our place.
#[derive(Debug)]
pub struct ProcessRegistry {
    id: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    started: u64,
    commands: BTreeMap<u64, Command>,
    /// Who had a command. Few: a run, or a session.
    owners: HashSet<String>,
    guardian: Option<Guardian>,
}

#[derive(Debug)]
struct Command {
    owner: String,
    /// The process id of the shell, which is also its group's and its session's.
    leader: i32,
    /// Set when the shell is gone and something that it started may live.
    left: Option<Option<JoinHandle<()>>>,
}

/// A command in the registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ticket {
    number: u64,
    owner: String,
    pub(crate) mark: String,
}

impl Default for ProcessRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessRegistry {
    /// An empty registry. Costs nothing until the first command.
    pub fn new() -> Self {
        let mut random = RandomState::new().build_hasher();
        random.write_u32(std::process::id());
        Self { id: format!("{:016x}", random.finish()), state: Mutex::default() }
    }

    /// Kills everything that was started and still lives, background processes of finished commands and
    /// commands that are running included. Blocks for some milliseconds.
    pub fn kill_all(&self) {
        let commands = std::mem::take(&mut self.lock().commands);
        commands.values().for_each(Command::kill);
        // Who left its group carries the mark; without any command there is nobody to look for.
        if self.lock().started > 0 {
            kill_tree(Victims::Marked { prefix: &format!("{}.", self.id) });
        }
        let mut state = self.lock();
        if state.commands.is_empty() {
            state.guardian = None;
        }
    }

    /// The same for what commands of one owner started; nothing where it has none.
    pub fn kill_owned(&self, owner: &str) {
        let mut state = self.lock();
        if !state.owners.remove(owner) {
            return;
        }
        let commands: Vec<Command> =
            state.commands.extract_if(.., |_, command| command.owner == owner).map(|(_, one)| one).collect();
        drop(state);
        commands.iter().for_each(Command::kill);
        kill_tree(Victims::Marked { prefix: &format!("{}.{owner}.", self.id) });
        let mut state = self.lock();
        if state.commands.is_empty() {
            state.guardian = None;
        }
    }

    /// How many commands are running or have left something running.
    pub fn alive(&self) -> usize {
        let mut state = self.lock();
        state.prune();
        state.commands.len()
    }

    /// Announces a command, before it is started.
    pub(crate) fn announce(&self, owner: &str) -> io::Result<Ticket> {
        let mut state = self.lock();
        if state.guardian.is_none() {
            state.guardian = Some(Guardian::start(&self.id)?);
        }
        state.started += 1;
        state.owners.insert(owner.to_owned());
        let (number, mark) = (state.started, format!("{}.{owner}.{}", self.id, state.started));
        Ok(Ticket { number, owner: owner.to_owned(), mark })
    }

    /// The announced command runs as this group.
    pub(crate) fn started(&self, ticket: &Ticket, leader: i32) -> io::Result<()> {
        let mut state = self.lock();
        state.prune();
        state.commands.insert(ticket.number, Command { owner: ticket.owner.clone(), leader, left: None });
        let told = state.guardian.as_mut().map(|guardian| guardian.watch(leader));
        if !matches!(told, Some(Ok(()))) {
            // Someone killed the guardian: a new one takes over all.
            let mut guardian = Guardian::start(&self.id)?;
            for command in state.commands.values() {
                guardian.watch(command.leader)?;
            }
            state.guardian = Some(guardian);
        }
        Ok(())
    }

    /// The command is over. What is left of it, if anything, stays ours; `drain` reads what it still prints.
    pub(crate) fn finished(&self, ticket: &Ticket, drain: Option<JoinHandle<()>>) {
        let mut state = self.lock();
        match state.commands.get_mut(&ticket.number) {
            Some(command) => command.left = Some(drain),
            // `kill_all` was faster.
            None => {
                if let Some(drain) = drain {
                    drain.abort();
                }
            }
        }
        state.prune();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Command {
    fn kill(&self) {
        if group_exists(self.leader) {
            nix::sys::signal::killpg(nix::unistd::Pid::from_raw(self.leader), nix::sys::signal::SIGKILL).ok();
        }
        if let Some(Some(drain)) = &self.left {
            drain.abort();
        }
    }
}

impl State {
    /// Forgets commands of which nothing is left, so that a number that the system gives out again is not ours.
    fn prune(&mut self) {
        let State { commands, guardian, .. } = self;
        commands.retain(|_, command| {
            let keep = command.left.is_none() || group_exists(command.leader);
            if !keep && let Some(guardian) = guardian {
                // A dead guardian is replaced when the next command starts.
                guardian.forget(command.leader).ok();
            }
            keep
        });
    }
}

impl Drop for ProcessRegistry {
    fn drop(&mut self) {
        self.kill_all();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};

    use super::*;

    #[test]
    fn a_guardian_that_was_killed_is_replaced() {
        let registry = ProcessRegistry::new();
        let ticket = registry.announce("run").unwrap();
        let mut child = std::process::Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        if let Some(guardian) = &mut registry.lock().guardian {
            guardian.end();
        }
        registry.started(&ticket, i32::try_from(child.id()).unwrap()).unwrap();
        assert!(registry.lock().guardian.as_mut().unwrap().forget(1).is_ok(), "the new one listens");
        assert_eq!(registry.alive(), 1);
        registry.kill_all();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(registry.alive(), 0);
    }
}
