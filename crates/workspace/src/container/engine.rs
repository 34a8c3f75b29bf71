//! The program that keeps containers, and what it says.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpid};

use super::{ContainerError, environment};
use crate::Helpers;
use crate::child::Launch;

/// How long one call may take: an image that is unpacked for the first time takes a while.
const LONGEST: Duration = Duration::from_secs(60);
/// Bytes of what it says that are looked at.
const MOST: usize = 64 * 1024;
/// How often it is looked at.
const PAUSE: Duration = Duration::from_millis(2);

/// Which program keeps containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerEngine {
    /// Podman.
    Podman,
    /// Docker.
    Docker,
    /// None: it is not known which one was meant, so that nothing runs.
    Unreadable,
}

impl ContainerEngine {
    /// The name of its program.
    pub fn program(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
            Self::Unreadable => "(none)",
        }
    }
}

/// A program that was found.
#[derive(Debug)]
pub(super) struct EngineProgram {
    pub(super) engine: ContainerEngine,
    pub(super) program: PathBuf,
    helpers: Arc<Helpers>,
    /// How long one call may take.
    pub(super) patience: Duration,
}

/// How a call ended, and what was said.
#[derive(Debug)]
pub(super) struct EngineAnswer {
    pub(super) succeeded: bool,
    pub(super) text: String,
}

impl EngineProgram {
    pub(super) fn find(engine: ContainerEngine) -> Result<Self, ContainerError> {
        Self::among(Helpers::of_this_process(), engine, LONGEST)
    }

    /// As [`EngineProgram::find`], of other programs and with other patience.
    pub(super) fn among(
        helpers: Arc<Helpers>,
        engine: ContainerEngine,
        patience: Duration,
    ) -> Result<Self, ContainerError> {
        if engine == ContainerEngine::Unreadable {
            return Err(ContainerError::Unreadable);
        }
        let name = engine.program();
        let program = helpers.find(name).ok_or(ContainerError::NoProgram { program: name })?;
        Ok(Self { engine, program, helpers, patience })
    }

    /// Its own environment: nothing by which it takes code from elsewhere.
    pub(super) fn environment(&self) -> BTreeMap<OsString, OsString> {
        let own = ["HOME", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR"];
        let passes = |name: &str| own.contains(&name) || environment::passes(name);
        let mut all: BTreeMap<OsString, OsString> =
            std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(passes)).collect();
        all.insert("PATH".into(), self.helpers.path(self.engine.program()));
        all
    }

    /// Runs it with these arguments, in a session of its own and without files of ours, and waits for its end.
    pub(super) fn call(&self, arguments: &[String]) -> Result<EngineAnswer, ContainerError> {
        let (mut reader, output) = io::pipe()?;
        let launch = Launch {
            program: self.program.clone(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: self.environment(),
            cwd: "/".into(),
            here: false,
            input: None,
            output: OwnedFd::from(output),
        };
        let started = std::thread::scope(|scope| {
            let panicked = |_| Err(io::Error::other("a thread panicked"));
            scope.spawn(move || launch.start()).join().unwrap_or_else(panicked)
        });
        let pid = started?;
        rustix::fs::fcntl_setfl(&reader, rustix::fs::OFlags::NONBLOCK).map_err(io::Error::from)?;
        let (since, mut said, mut buffer) = (Instant::now(), Vec::new(), [0; 4096]);
        let mut ended = None;
        loop {
            let is_late = since.elapsed() >= self.patience;
            match reader.read(&mut buffer) {
                Ok(0) if ended.is_some() => break,
                Ok(got @ 1..) => {
                    let room = MOST.saturating_sub(said.len());
                    said.extend(buffer.iter().take(got.min(room)));
                    // It may say more for as long as it is listened to, and so may what it left running.
                    if !is_late {
                        continue;
                    }
                    if ended.is_some() {
                        break;
                    }
                }
                Ok(_) => {}
                // What it left running may hold the pipe.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && ended.is_some() => break,
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(error) => {
                    end(pid);
                    return Err(error.into());
                }
            }
            if ended.is_none() {
                ended = waitpid(Some(pid), WaitOptions::NOHANG).map_err(io::Error::from)?;
                if ended.is_some() {
                    continue;
                }
            }
            if is_late {
                end(pid);
                let action = arguments.iter().find(|word| !word.starts_with('-')).or(arguments.first());
                return Err(ContainerError::TimedOut {
                    program: self.engine.program(),
                    action: action.cloned().unwrap_or_default(),
                    patience: self.patience,
                });
            }
            std::thread::sleep(PAUSE);
        }
        let succeeded = ended.is_some_and(|(_, status)| status.exit_status() == Some(0));
        Ok(EngineAnswer { succeeded, text: String::from_utf8_lossy(&said).trim().to_owned() })
    }

    /// The id of an image that is there.
    pub(super) fn image_id(&self, image: &str) -> Result<String, ContainerError> {
        let words = ["image", "inspect", "--format", "{{.Id}}", image].map(str::to_owned);
        let said = self.call(&words)?;
        if said.succeeded {
            return Ok(said.text.lines().last().unwrap_or_default().to_owned());
        }
        let lower = said.text.to_ascii_lowercase();
        let program = self.engine.program();
        if ["no such image", "image not known", "unable to find"].iter().any(|sign| lower.contains(sign)) {
            return Err(ContainerError::NoImage { program, image: image.to_owned() });
        }
        Err(ContainerError::Failed { program, action: "look for the image", said: said.text })
    }

    /// The same for a call that must succeed.
    pub(super) fn must(&self, action: &'static str, arguments: &[String]) -> Result<String, ContainerError> {
        let said = self.call(arguments)?;
        if said.succeeded {
            return Ok(said.text);
        }
        Err(ContainerError::Failed { program: self.engine.program(), action, said: said.text })
    }
}

fn end(pid: Pid) {
    // Gone already, or about to be.
    kill_process_group(pid, Signal::KILL).ok();
    waitpid(Some(pid), WaitOptions::empty()).ok();
}
