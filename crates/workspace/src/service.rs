//! A program that serves over its pipes for as long as it is wanted, and dies with the agent.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::ProcessRegistry;
use crate::registry::Ticket;
use crate::tree::{MARK, Victims, kill_tree};

/// How long the system may take to report the end of a program that was killed.
const REAP: Duration = Duration::from_secs(5);

/// What to start.
#[derive(Debug)]
pub struct ServiceCommand<'a> {
    /// The program: a path, or a name that is looked up in `PATH`.
    pub program: &'a str,
    /// Its arguments, without its own name.
    pub arguments: &'a [String],
    /// What is changed in the inherited environment; `None` removes.
    pub environment: &'a [(OsString, Option<OsString>)],
    /// Its directory.
    pub cwd: &'a Path,
    /// Who owns it in the registry.
    pub owner: &'a str,
}

/// The ends of a service's pipes.
#[derive(Debug)]
pub struct ServicePipes {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it writes.
    pub stdout: ChildStdout,
    /// What it reports.
    pub stderr: ChildStderr,
}

/// A running service, in a process group of its own. Dropping it kills it, with all that it started.
#[derive(Debug)]
pub struct Service {
    child: Child,
    leader: i32,
    ticket: Ticket,
    registry: Arc<ProcessRegistry>,
    over: bool,
}

impl Service {
    /// Starts it. It is not confined: it has the rights of the user.
    ///
    /// # Errors
    /// When the program cannot be started, or nothing could end it with the agent.
    pub fn start(
        command: &ServiceCommand<'_>,
        registry: &Arc<ProcessRegistry>,
    ) -> io::Result<(Self, ServicePipes)> {
        let ticket = registry.announce(command.owner)?;
        let mut program = Command::new(command.program);
        program
            .args(command.arguments)
            .current_dir(command.cwd)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        for (name, value) in command.environment {
            match value {
                Some(value) => program.env(name, value),
                None => program.env_remove(name),
            };
        }
        program.env(MARK, &ticket.mark);
        let mut child = program.spawn()?;
        let lost = || io::Error::other("the program ended at once");
        let leader = child.id().and_then(|id| i32::try_from(id).ok()).ok_or_else(lost)?;
        let pipes = match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
            (Some(stdin), Some(stdout), Some(stderr)) => ServicePipes { stdin, stdout, stderr },
            _ => return Err(lost()),
        };
        let service = Self { child, leader, ticket, registry: registry.clone(), over: false };
        registry.started(&service.ticket, leader)?;
        Ok((service, pipes))
    }

    /// Its process id.
    pub fn id(&self) -> i32 {
        self.leader
    }

    /// Waits for its end. Nothing is lost when the future is dropped.
    ///
    /// # Errors
    /// When the system cannot tell.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Kills it and all that it started.
    pub async fn kill(mut self) {
        let (leader, mark) = (self.leader, self.ticket.mark.clone());
        let killed =
            tokio::task::spawn_blocking(move || kill_tree(Victims::Command { leader, mark: &mark })).await;
        if killed.is_err() {
            kill_tree(Victims::Command { leader: self.leader, mark: &self.ticket.mark });
        }
        timeout(REAP, self.child.wait()).await.ok();
        self.over = true;
        self.registry.finished(&self.ticket, None);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if !self.over {
            kill_tree(Victims::Command { leader: self.leader, mark: &self.ticket.mark });
            self.child.try_wait().ok();
            self.registry.finished(&self.ticket, None);
        }
    }
}
