//! Runs git in a repository that may be hostile: without hooks, filters and drivers, without the network, for a bounded time, and where
//! the system can confine it with no place to write but those that are named.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::helpers::Helpers;

/// Between two looks at a git that works.
const LOOK: Duration = Duration::from_millis(4);
/// Bytes of what git says is wrong.
const COMPLAINT: u64 = 4_096;
/// Bytes of names of filters and hooks in a repository's settings.
const NAMES: u64 = 256 * 1024;
/// Filters and hooks that are turned off; of more, git is not run.
const OFF: usize = 500;

/// Why git did not do it.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is none.
    #[error("git is not installed, or only in a directory that commands can write to")]
    Missing,
    /// It cannot be started or read.
    #[error("git cannot be run: {0}")]
    Io(#[from] std::io::Error),
    /// It says no.
    #[error("{}", said(.complaint, *.code))]
    Failed {
        /// Its exit code; `None` for a signal.
        code: Option<i32>,
        /// What it says, on one line.
        complaint: String,
    },
    /// It took too long.
    #[error("git was stopped: it had not finished after {} seconds", .0.as_secs())]
    Overdue(Duration),
    /// Nobody waits for it any more.
    #[error("git was stopped")]
    Cancelled,
    /// It says more than is read.
    #[error("git printed more than {0} bytes")]
    TooLong(u64),
    /// The settings of the repository name more than is turned off.
    #[error("the settings of the repository name more than {OFF} filters and hooks")]
    TooMany,
}

fn said(complaint: &str, code: Option<i32>) -> String {
    match (complaint.is_empty(), code) {
        (false, _) => format!("git says: {complaint}"),
        (true, Some(code)) => format!("git failed with code {code}"),
        (true, None) => "git was ended by a signal".to_owned(),
    }
}

/// Git in one directory.
#[derive(Debug, Clone)]
pub struct Git {
    directory: PathBuf,
    /// Where it may write; nowhere where that is empty.
    write: Vec<PathBuf>,
    environment: Vec<(OsString, OsString)>,
    /// Bytes of output at most.
    limit: u64,
    longest: Duration,
    cancel: CancellationToken,
}

impl Git {
    /// Git that only reads.
    pub fn reading(directory: &Path, cancel: &CancellationToken) -> Self {
        Self {
            directory: directory.to_path_buf(),
            write: Vec::new(),
            environment: Vec::new(),
            limit: 64 << 20,
            longest: Duration::from_secs(300),
            cancel: cancel.clone(),
        }
    }

    /// The same that may write in these directories.
    #[must_use]
    pub fn writing(mut self, write: &[&Path]) -> Self {
        self.write = write.iter().map(|path| path.to_path_buf()).collect();
        self
    }

    /// The same that is stopped after this time.
    #[must_use]
    pub fn within(mut self, longest: Duration) -> Self {
        self.longest = longest;
        self
    }

    /// The same that may print this many bytes.
    #[must_use]
    pub fn up_to(mut self, bytes: u64) -> Self {
        self.limit = bytes;
        self
    }

    /// The same with a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((name.into(), value.as_ref().to_owned()));
        self
    }

    /// Runs it, and gives what it prints.
    ///
    /// # Errors
    /// [`GitError`].
    pub fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<Vec<u8>, GitError> {
        self.run_with(arguments, Vec::new())
    }

    /// The same, with something to read.
    ///
    /// # Errors
    /// [`GitError`].
    pub fn run_with<A: AsRef<OsStr>>(&self, arguments: &[A], input: Vec<u8>) -> Result<Vec<u8>, GitError> {
        let names = self.configured()?;
        let mut command = self.command(&names)?;
        command.args(arguments);
        let end = self.end_of(command, input, self.limit)?;
        if end.status.success() {
            return Ok(end.output);
        }
        Err(GitError::Failed { code: end.status.code(), complaint: end.complaint })
    }

    /// The one line that it prints.
    ///
    /// # Errors
    /// [`GitError`].
    pub fn line<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Result<String, GitError> {
        let output = self.run(arguments)?;
        Ok(String::from_utf8_lossy(&output).trim_end_matches(['\n', '\r']).to_owned())
    }

    /// Names of settings that would make git run something: of filters, and of hooks in settings.
    fn configured(&self) -> Result<Vec<OsString>, GitError> {
        let mut command = self.command(&[])?;
        command.args(["config", "--null", "--name-only", "--get-regexp", r"^(filter|hook)\."]);
        let reading = Self { write: Vec::new(), ..self.clone() };
        let end = reading.end_of(command, Vec::new(), NAMES)?;
        // It says nothing but this code where there are none, also outside of repositories.
        if !end.status.success() {
            return match end.status.code() {
                Some(1) => Ok(Vec::new()),
                code => Err(GitError::Failed { code, complaint: end.complaint }),
            };
        }
        let mut names = Vec::new();
        for name in end.output.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            use std::os::unix::ffi::OsStrExt as _;
            // What stands before the last dot, of which the name may have some as well.
            let Some(dot) = name.iter().rposition(|byte| *byte == b'.') else { continue };
            let name = OsStr::from_bytes(&name[..dot]).to_owned();
            if !names.contains(&name) {
                names.push(name);
            }
            if names.len() > OFF {
                return Err(GitError::TooMany);
            }
        }
        Ok(names)
    }

    fn command(&self, off: &[OsString]) -> Result<Command, GitError> {
        let helpers = Helpers::of_this_process();
        let mut command = Command::new(helpers.find("git").ok_or(GitError::Missing)?);
        command
            .args(["--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null"])
            .args(["-c", "protocol.allow=never", "-c", "credential.helper=", "-c", "submodule.recurse=false"])
            .args(["-c", "core.untrackedCache=false", "-c", "gc.auto=0", "-c", "core.quotePath=false"])
            .arg("--no-pager")
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", helpers.path("git"))
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .process_group(0);
        // What the user ignores everywhere.
        for name in ["HOME", "XDG_CONFIG_HOME"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let mut count = 0;
        for section in off {
            for (key, value) in [
                (".clean", ""),
                (".smudge", ""),
                (".process", ""),
                (".required", "false"),
                (".command", ""),
                (".enabled", "false"),
            ] {
                let mut name = section.clone();
                name.push(key);
                command.env(format!("GIT_CONFIG_KEY_{count}"), name);
                command.env(format!("GIT_CONFIG_VALUE_{count}"), value);
                count += 1;
            }
        }
        if count > 0 {
            command.env("GIT_CONFIG_COUNT", count.to_string());
        }
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        Ok(command)
    }

    fn end_of(&self, mut command: Command, input: Vec<u8>, limit: u64) -> Result<GitEnd, GitError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let spawned = if self.write.is_empty() {
            crate::sandbox::reading_only(|| command.spawn())
        } else {
            crate::sandbox::writing_only(&self.write, || command.spawn())
        };
        let mut child = spawned??;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        std::thread::scope(|scope| {
            if let Some(mut stdin) = stdin {
                // A git that stops early has said so by its end.
                scope.spawn(move || drop(stdin.write_all(&input)));
            }
            let output = scope.spawn(move || read_up_to(stdout, limit));
            let complaint = scope.spawn(move || read_up_to(stderr, COMPLAINT));
            let status = self.wait(&mut child);
            let output = output.join().unwrap_or_default();
            let complaint = complaint.join().unwrap_or_default();
            let complaint: Vec<&str> =
                std::str::from_utf8(&complaint).unwrap_or_default().split_whitespace().collect();
            if output.len() as u64 > limit {
                return Err(GitError::TooLong(limit));
            }
            Ok(GitEnd { status: status?, output, complaint: complaint.join(" ") })
        })
    }

    fn wait(&self, child: &mut Child) -> Result<ExitStatus, GitError> {
        let until = Instant::now() + self.longest;
        let mut pause = Duration::from_micros(300);
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            let error = if self.cancel.is_cancelled() {
                GitError::Cancelled
            } else if Instant::now() >= until {
                GitError::Overdue(self.longest)
            } else {
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOOK);
                continue;
            };
            if let Ok(pid) = i32::try_from(child.id()) {
                // What it started goes with it.
                let pid = nix::unistd::Pid::from_raw(pid);
                nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL).ok();
            }
            drop(child.kill());
            drop(child.wait());
            return Err(error);
        }
    }
}

/// How a git ended.
struct GitEnd {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: String,
}

/// All of it; one byte more than the limit where there is more, of which the rest is read and forgotten.
fn read_up_to(stream: Option<impl Read>, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        // What cannot be read is missing, which its status tells.
        drop(stream.by_ref().take(limit.saturating_add(1)).read_to_end(&mut bytes));
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
    }
    bytes
}
