//! Commands in containers: one container for a scope and a workspace, kept by podman or docker, in which each command is started by
//! `exec`.
//!
//! Its root is read-only, it has no network and no capabilities, and of this machine it has the workspace and what a person
//! mounts there. All of it that can be written, other than mounts, is in memory and gone when it stops. It stops when the last
//! program that uses it lets go of it; who uses it is known by locks on a file beside it, which end with a process however that
//! ends. What is left over by one that was killed is stopped by the next use, or removed by another container's.

mod check;
mod engine;
mod environment;
mod mounts;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use sha2::{Digest as _, Sha256};

pub use check::{ContainerReport, EngineVersion, check_containers};
pub use engine::ContainerEngine;
use engine::EngineProgram;
pub use mounts::ContainerMount;

use crate::AccessMode;
use crate::child::Launch;
use crate::tree::MARK;

/// The label with the hash of all settings.
const CONFIG: &str = "quipu.config";
/// The label with whose containers they are.
const OWNER: &str = "quipu.owner";
/// The label with the second in which it was made.
const CREATED: &str = "quipu.created";
/// What process 1 of a container does: nothing, and what is left by others is waited for.
const IDLE: &str =
    r#"s='while read -r _; do :; done'; command -v bash >/dev/null 2>&1 && exec bash -c "$s"; eval "$s""#;
/// Waits for the word, then becomes the shell; never begins when the agent is gone before.
const GATE: &str = r#"read -r QUIPU_GATE || exit 125
unset QUIPU_GATE
if command -v bash >/dev/null 2>&1; then exec bash -c "$0" </dev/null; fi
exec sh -c "$0" </dev/null"#;
/// The same for a command that keeps its input; a shell reads a pipe byte by byte.
const OPEN_GATE: &str = r#"read -r QUIPU_GATE || exit 125
unset QUIPU_GATE
if command -v bash >/dev/null 2>&1; then exec bash -c "$0"; fi
exec sh -c "$0""#;
/// How long the end of a session waits for others that make or stop containers, and then for its own to stop.
const ENDING: Duration = Duration::from_secs(10);
/// How often it is looked whether they are done.
const PAUSE: Duration = Duration::from_millis(20);
/// Limits of open files and of processes at most. Podman asks for more by itself, which a system refuses where it may not raise limits;
/// and it lowers its own limit of processes to this.
const FILES: u64 = 1_048_576;
const PROCESSES: u64 = 32_768;

/// What the containers of commands are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Containers {
    /// What keeps them.
    pub engine: ContainerEngine,
    /// The image, which is never fetched.
    pub image: String,
    /// The program that runs them, such as `runc`; the engine's own choice otherwise.
    pub runtime: Option<String>,
    /// The name of the network: `none`, or one that the engine has.
    pub network: String,
    /// What the names of containers begin with.
    pub prefix: String,
    /// What commands share a container by: an agent, a session.
    pub scope: String,
    /// The workspace, and where commands find it.
    pub workspace: ContainerMount,
    /// More of this machine.
    pub mounts: Vec<ContainerMount>,
    /// Names of variables that commands get from this process, as far as they hold no secret and no code.
    pub variables: Vec<String>,
    /// How much of the machine they use.
    pub limits: ContainerLimits,
    /// When containers that nobody uses are removed.
    pub prune: PruneLimits,
    /// Whether it stays, stopped, when nobody uses it any more.
    pub end: ContainerEnd,
    /// Where it is written down who uses a container: a directory, made (0700) when it is missing.
    pub state: PathBuf,
    /// The user's home, below which programs keep secrets.
    pub home: Option<PathBuf>,
    /// Our own directories, which are never mounted.
    pub hidden: Vec<PathBuf>,
}

/// How much of the machine a container uses at most; `None` is all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerLimits {
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processors.
    pub processors: Option<u64>,
}

/// When containers that nobody uses are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneLimits {
    /// So long after the last command: 24 hours.
    pub idle: Duration,
    /// So long after they were made: 7 days.
    pub age: Duration,
}

impl Default for PruneLimits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(24 * 3600), age: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// What becomes of a container that nobody uses any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContainerEnd {
    /// It stops, and starts with the next command.
    #[default]
    Stopped,
    /// It is removed.
    Removed,
}

/// Why there is no container for a command. Nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum ContainerError {
    /// The program is not there.
    #[error(
        "{program} is not installed outside of the directories that commands can write to. Install it (Debian: `apt install {program}`), \
         or set `sandbox.backend` to another one"
    )]
    NoProgram {
        /// Its name.
        program: &'static str,
    },
    /// Nobody knows which program was meant.
    #[error("`sandbox.backend` or `sandbox.runtime` cannot be read; correct it")]
    Unreadable,
    /// No image is named.
    #[error("`sandbox.image` names no image")]
    Unnamed,
    /// The image is not there.
    #[error(
        "{program} has no image {image}. Make it from a directory with a root file system that has `sh`: `tar -C DIR -c . | {program} import - \
         {image}`, or name another one in `sandbox.image`"
    )]
    NoImage {
        /// What was asked.
        program: &'static str,
        /// The name of the image.
        image: String,
    },
    /// A name that is none.
    #[error("`{text}` cannot be {what}")]
    Name {
        /// What it should name.
        what: &'static str,
        /// The text.
        text: String,
    },
    /// A network by which commands would reach this machine or another container.
    #[error(
        "commands get no network `{name}`: it is that of this machine or of another container. Use `none`, or a network of its own"
    )]
    Network {
        /// Its name.
        name: String,
    },
    /// Something that is not mounted.
    #[error("{path} is not mounted in a container: {why}", path = .path.display())]
    Mount {
        /// What, or where.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A command should run where the container has nothing of this machine.
    #[error("{path} is not in the container; {workspace} is", path = .path.display(), workspace = .workspace.display())]
    Elsewhere {
        /// The directory.
        path: PathBuf,
        /// What is.
        workspace: PathBuf,
    },
    /// The program failed.
    #[error("{program} could not {action}: {said}{hint}", hint = hint(said))]
    Failed {
        /// Its name.
        program: &'static str,
        /// What it should do.
        action: &'static str,
        /// What it said.
        said: String,
    },
    /// The program did not come to an end.
    #[error("{program} did not end `{action}` within {} seconds", .patience.as_secs_f32())]
    TimedOut {
        /// Its name.
        program: &'static str,
        /// What it should do.
        action: String,
        /// How long that was waited for.
        patience: Duration,
    },
    /// The system failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

fn hint(said: &str) -> &'static str {
    let is_runtime = ["OCI", "crun", "runc", "cgroup", "setrlimit"].iter().any(|sign| said.contains(sign));
    if is_runtime {
        ". If its runtime does not work on this system, name another one that is installed in `sandbox.runtime`, such as `runc`"
    } else {
        ""
    }
}

/// A container that runs. Dropped, it stops, unless others use it.
#[derive(Debug)]
pub(crate) struct Container {
    settings: Containers,
    program: EngineProgram,
    name: String,
    /// Locked for as long as this lives.
    lock: File,
    /// Its first process here, and when that began.
    first: Option<(u32, String)>,
}

impl Containers {
    /// The name of its container.
    fn name(&self) -> String {
        let writes = if self.workspace.access == AccessMode::Write { "rw" } else { "ro" };
        let what = format!("{}\0{writes}\0{}\0{:?}", self.scope, self.workspace.source.display(), self.end);
        format!("{}{}", self.prefix, digest(&what, 8))
    }

    /// Whose containers these are.
    fn owner(&self) -> String {
        digest(&self.state.display().to_string(), 8)
    }

    /// Whether an image is named that can be one.
    fn check_image_name(&self) -> Result<(), ContainerError> {
        if self.image.trim().is_empty() {
            return Err(ContainerError::Unnamed);
        }
        let is_image = self.image.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !is_image || self.image.contains(char::is_whitespace) {
            return Err(ContainerError::Name { what: "the name of an image", text: self.image.clone() });
        }
        Ok(())
    }

    /// The same for commands that change nothing.
    pub(crate) fn reading(mut self) -> Self {
        self.workspace.access = AccessMode::Read;
        self.mounts.iter_mut().for_each(|mount| mount.access = AccessMode::Read);
        self
    }

    /// Where in the container a directory of this machine is.
    fn inside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = std::iter::once(&self.workspace).chain(&self.mounts);
        let found = mounts.filter_map(|mount| Some((mount, path.strip_prefix(&mount.source).ok()?)));
        let (mount, below) = found.max_by_key(|(mount, _)| mount.source.components().count())?;
        Some(mount.target.components().chain(below.components()).collect())
    }

    /// Where on this machine a path of the container is.
    pub(crate) fn outside(&self, path: &Path) -> Option<PathBuf> {
        let mounts = std::iter::once(&self.workspace).chain(&self.mounts);
        let found = mounts.filter_map(|mount| Some((mount, path.strip_prefix(&mount.target).ok()?)));
        let (mount, below) = found.max_by_key(|(mount, _)| mount.target.components().count())?;
        Some(mount.source.components().chain(below.components()).collect())
    }

    /// The arguments that make it, without those that differ each time.
    fn arguments(&self, image: &str, name: &str) -> Result<Vec<String>, ContainerError> {
        let network = self.network.to_ascii_lowercase();
        if network == "host" || network.starts_with("container:") || network.starts_with("ns:") {
            return Err(ContainerError::Network { name: self.network.clone() });
        }
        let named = |text: &str, what: &'static str, more: &str| {
            let is_name = text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text.chars().all(|char| char.is_ascii_alphanumeric() || more.contains(char));
            if is_name { Ok(()) } else { Err(ContainerError::Name { what, text: text.to_owned() }) }
        };
        named(&self.network, "the name of a network", "_.-")?;
        named(&self.prefix, "the beginning of the name of a container", "_.-")?;
        let mut all: Vec<String> = Vec::new();
        let mut add = |text: String| all.push(text);
        if let (Some(runtime), ContainerEngine::Podman) = (&self.runtime, self.engine) {
            add(format!("--runtime={runtime}"));
        }
        ["run", "--detach", "--interactive", "--pull=never", "--read-only", "--cap-drop=ALL"]
            .iter()
            .for_each(|word| add((*word).to_owned()));
        add(format!("--name={name}"));
        add(format!("--network={}", self.network));
        add("--security-opt=no-new-privileges".into());
        add("--stop-signal=KILL".into());
        add("--entrypoint=/bin/sh".into());
        add("--env=HOME=/tmp".into());
        for place in ["/tmp", "/var/tmp", "/run"] {
            add(format!("--tmpfs={place}:rw,exec,nosuid,nodev,mode=1777"));
        }
        match self.engine {
            ContainerEngine::Podman => {
                // Its administrator is the user who runs podman.
                add("--user=0:0".into());
                add("--http-proxy=false".into());
            }
            ContainerEngine::Docker => {
                let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
                add(format!("--user={}:{}", user.as_raw(), group.as_raw()));
                if let Some(runtime) = &self.runtime {
                    add(format!("--runtime={runtime}"));
                }
            }
            ContainerEngine::Unreadable => return Err(ContainerError::Unreadable),
        }
        // More than this process has would be refused where it may not raise its own limits.
        let limit = |resource| rustix::process::getrlimit(resource).maximum;
        let files = limit(rustix::process::Resource::Nofile).unwrap_or(FILES).min(FILES);
        let processes = limit(rustix::process::Resource::Nproc).unwrap_or(PROCESSES).min(PROCESSES);
        add(format!("--ulimit=nofile={files}:{files}"));
        add(format!("--ulimit=nproc={processes}:{processes}"));
        let ContainerLimits { processes, memory, processors } = self.limits;
        processes.iter().for_each(|most| add(format!("--pids-limit={most}")));
        memory.iter().for_each(|most| add(format!("--memory={most}b")));
        processors.iter().for_each(|most| add(format!("--cpus={most}")));
        let home = self.home.as_deref();
        add(format!("--mount={}", self.workspace.argument(home, &self.hidden)?));
        for mount in &self.mounts {
            let own = self.hidden.iter().any(|own| mount.source.starts_with(own));
            if own {
                let why = "it is one of Quipu's own files";
                return Err(ContainerError::Mount { path: mount.source.clone(), why });
            }
            add(format!("--mount={}", mount.argument(home, &self.hidden)?));
        }
        if self.workspace.access == AccessMode::Write {
            // What configures programs outside of the container.
            let mut places = crate::namespaces::protected_places(&self.workspace.source);
            places.sort();
            places.dedup();
            for place in places {
                let Some(target) = self.inside(&place) else { continue };
                if place.is_symlink() {
                    continue;
                }
                let mount = ContainerMount { source: place, target, access: AccessMode::Read };
                add(format!("--mount={}", mount.argument(None, &self.hidden)?));
            }
        }
        add(format!("--workdir={}", self.workspace.target.display()));
        add(format!("--label={OWNER}={}", self.owner()));
        add(image.to_owned());
        Ok(all)
    }
}

impl Container {
    /// Has it run: made, made again where it was made of something else, started, or found.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn start(settings: Containers) -> Result<Self, ContainerError> {
        // First: nothing else that is said of it would help.
        if settings.engine == ContainerEngine::Unreadable {
            return Err(ContainerError::Unreadable);
        }
        settings.check_image_name()?;
        let program = EngineProgram::find(settings.engine)?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&settings.state)?;
        let name = settings.name();
        let manage = manage(&settings.state)?;
        let lock = open_lock(&settings.state, &name)?;
        let is_alone = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        flock(&lock, FlockOperation::LockShared).map_err(io::Error::from)?;
        let mut container = Self { settings, program, name, lock, first: None };
        let runs = container.run(is_alone);
        if runs.is_ok() {
            container.prune();
        }
        // Before the container goes, which takes it again.
        drop(manage);
        runs.map(|()| container)
    }

    fn run(&mut self, is_alone: bool) -> Result<(), ContainerError> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let image = self.program.image_id(&self.settings.image)?;
        let mut arguments = self.settings.arguments(&image, &self.name)?;
        let config = digest(&arguments.join("\0"), 16);
        let format = format!("quipu {{{{.State.Running}}}} {{{{index .Config.Labels \"{CONFIG}\"}}}}");
        let found = self.program.call(&words(&["container", "inspect", "--format", &format, &self.name]))?;
        let line = found.text.lines().find_map(|line| line.strip_prefix("quipu "));
        let (running, made_of) = line.and_then(|line| line.split_once(' ')).unwrap_or_default();
        let is_there = found.succeeded && line.is_some();
        if is_there && made_of != config {
            self.program.must(
                "remove a container that was made by other settings",
                &words(&["rm", "-f", &self.name]),
            )?;
        }
        if !is_there || made_of != config {
            let created = since_epoch(SystemTime::now()).as_secs();
            let labels = [format!("--label={CONFIG}={config}"), format!("--label={CREATED}={created}")];
            let image = arguments.pop().unwrap_or_default();
            arguments.extend(labels);
            arguments.push(image);
            arguments.extend(words(&["-c", IDLE]));
            if let Err(error) = self.program.must("start a container", &arguments) {
                // One that was made and does not run is in the way of the next.
                drop(self.program.call(&words(&["rm", "-f", &self.name])));
                return Err(error);
            }
        } else if running != "true" {
            self.program.must("start its container", &words(&["start", &self.name]))?;
        } else if is_alone {
            // Somebody who was killed left it, with whatever runs in it.
            self.program.must("restart its container", &words(&["restart", "-t", "0", &self.name]))?;
        }
        let format = "quipu {{.State.Pid}}";
        let pid = self.program.must(
            "look at its container",
            &words(&["container", "inspect", "--format", format, &self.name]),
        )?;
        let pid = pid.lines().find_map(|line| line.strip_prefix("quipu ")?.trim().parse::<u32>().ok());
        self.first = pid.filter(|pid| *pid > 0).and_then(|pid| Some((pid, began(pid)?)));
        Ok(())
    }

    /// Whether it still runs, as far as that can be seen from here.
    pub(crate) fn is_alive(&self) -> bool {
        self.first.as_ref().is_none_or(|(pid, since)| began(*pid).as_ref() == Some(since))
    }

    /// How a command line is started in it, in a directory of this machine that it has.
    ///
    /// # Errors
    /// It has no such directory.
    pub(crate) fn launch(&self, command: ContainerCommand<'_>) -> Result<Launch, ContainerError> {
        let ContainerCommand { command, cwd, variables, mark, input, input_kind, output } = command;
        let elsewhere = || ContainerError::Elsewhere {
            path: cwd.to_path_buf(),
            workspace: self.settings.workspace.source.clone(),
        };
        let true_path = crate::file_key(cwd);
        let inside =
            self.settings.inside(cwd).or_else(|| self.settings.inside(&true_path)).ok_or_else(elsewhere)?;
        let mut given: BTreeMap<String, String> = BTreeMap::new();
        for (name, value) in std::env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else { continue };
            if environment::is_usual(name) || self.settings.variables.iter().any(|wanted| wanted == name) {
                given.insert(name.to_owned(), value.to_owned());
            }
        }
        for (name, value) in variables {
            match value {
                Some(value) => given.insert(name.clone(), value.clone()),
                None => given.remove(name),
            };
        }
        given.retain(|name, _| environment::passes(name));
        given.insert(MARK.into(), mark.to_owned());
        let mut arguments: Vec<OsString> =
            vec!["exec".into(), "--interactive".into(), "--workdir".into(), inside.into()];
        arguments.extend(given.iter().map(|(name, value)| OsString::from(format!("--env={name}={value}"))));
        let gate = match input_kind {
            InputKind::GateAlone => GATE,
            InputKind::StaysOpen => OPEN_GATE,
        };
        arguments.extend([&self.name, "/bin/sh", "-c", gate, command].map(OsString::from));
        // When it was used is what idleness is known by; a failure makes it look older.
        self.lock.set_modified(SystemTime::now()).ok();
        Ok(Launch {
            program: self.program.program.clone(),
            arguments,
            environment: self.program.environment(),
            cwd: "/".into(),
            here: false,
            input,
            output,
        })
    }

    /// Removes containers of the same owner that nobody uses, and has not for long. One that cannot be removed is met again.
    fn prune(&self) {
        let PruneLimits { idle, age } = self.settings.prune;
        let filter = format!("label={OWNER}={}", self.settings.owner());
        let list = ["ps", "-a", "--filter", &filter, "--format", "{{.Names}}"].map(str::to_owned);
        let Ok(found) = self.program.call(&list) else { return };
        for name in found.text.lines().map(str::trim).filter(|name| found.succeeded && *name != self.name) {
            let is_name = name.chars().all(|char| char.is_ascii_alphanumeric() || "_.-".contains(char));
            let Some(lock) = is_name.then(|| open_lock(&self.settings.state, name).ok()).flatten() else {
                continue;
            };
            if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                continue;
            }
            let format = format!("quipu {{{{index .Config.Labels \"{CREATED}\"}}}}");
            let inspect = ["container", "inspect", "--format", &format, name].map(str::to_owned);
            let created = self.program.call(&inspect).ok().and_then(|said| {
                said.text.lines().find_map(|line| line.strip_prefix("quipu ")?.trim().parse().ok())
            });
            let now = since_epoch(SystemTime::now());
            let since_made = now.saturating_sub(Duration::from_secs(created.unwrap_or(0)));
            let used = lock.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
            let since_used = now.saturating_sub(since_epoch(used));
            if (since_made >= age || since_used >= idle)
                && self.program.call(&["rm", "-f", name].map(str::to_owned)).is_ok_and(|said| said.succeeded)
            {
                drop(fs::remove_file(lock_path(&self.settings.state, name)));
            }
        }
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // What cannot be stopped now is stopped by the next use.
        let Ok(_manage) = manage_within(&self.settings.state, ENDING) else { return };
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let words: &[&str] = match self.settings.end {
            ContainerEnd::Stopped => &["stop", "-t", "0"],
            ContainerEnd::Removed => &["rm", "-f"],
        };
        let words: Vec<String> =
            words.iter().map(|word| (*word).to_owned()).chain([self.name.clone()]).collect();
        // Whoever ends waits for it.
        self.program.patience = self.program.patience.min(ENDING);
        let done = self.program.call(&words);
        if self.settings.end == ContainerEnd::Removed && done.is_ok_and(|said| said.succeeded) {
            drop(fs::remove_file(lock_path(&self.settings.state, &self.name)));
        }
    }
}

/// What the input of a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputKind {
    /// The word to begin; nothing follows.
    GateAlone,
    /// The word, and then what the command reads.
    StaysOpen,
}

/// A command line for a container.
#[derive(Debug)]
pub(crate) struct ContainerCommand<'a> {
    pub(crate) command: &'a str,
    pub(crate) cwd: &'a Path,
    pub(crate) variables: &'a [(String, Option<String>)],
    pub(crate) mark: &'a str,
    pub(crate) input: Option<OwnedFd>,
    pub(crate) input_kind: InputKind,
    pub(crate) output: OwnedFd,
}

/// Whoever holds it alone makes, starts and removes containers.
fn manage(state: &Path) -> io::Result<File> {
    let file = open_lock(state, "manage")?;
    flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// The same, unless somebody else holds it for longer than this.
fn manage_within(state: &Path, patience: Duration) -> io::Result<File> {
    let file = open_lock(state, "manage")?;
    let since = Instant::now();
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if since.elapsed() < patience => std::thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
        }
    }
}

fn lock_path(state: &Path, name: &str) -> PathBuf {
    state.join(format!("{name}.lock"))
}

fn open_lock(state: &Path, name: &str) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(lock_path(state, name))
}

/// When a process began, in a form that another one with its number does not have.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then_some(())?;
    fields.nth(18).map(str::to_owned)
}

fn since_epoch(time: SystemTime) -> Duration {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// So many bytes of a hash.
fn digest(text: &str, bytes: usize) -> String {
    Sha256::digest(text.as_bytes()).iter().take(bytes).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_waits_for_others_no_longer_than_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let held = manage(dir.path()).unwrap();
        let since = Instant::now();
        assert!(manage_within(dir.path(), Duration::from_millis(50)).is_err());
        assert!(since.elapsed() >= Duration::from_millis(50));
        drop(held);
        manage_within(dir.path(), ENDING).unwrap();
    }
}
