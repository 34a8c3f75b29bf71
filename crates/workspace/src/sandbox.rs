//! Commands that can write only where they may: Landlock, applied to threads of ours that start them.
//!
//! A confined thread shares its memory with the agent, so what it starts must not be able to reach it. Therefore
//! two layers: one thread *holds* the outer domain of a session for as long as the session lives, so that its
//! commands can signal each other; each command is started by a thread of its own that adds an inner domain and is
//! gone before the command may begin. The holder is outside the inner domain and cannot be traced from it, and neither
//! can the thread that it keeps ready for the next command, whose inner domain is another.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::process::Pid;

use crate::caches::{self, Cache};
use crate::child::Launch;
use crate::confine;
use crate::container::{Container, ContainerCommand, ContainerError, Containers};
use crate::helpers::Helpers;
use crate::layers::Layers;
use crate::namespaces::{CommandNeeds, Doors, Namespaces, Session, SessionBounds};
use crate::proxy::{HostRules, Proxy};
use crate::temporary::TemporaryDirectory;

/// What this system can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxSupport {
    /// Writes can be confined. `scoped`: signals and abstract sockets as well (Linux 6.12 and later).
    Full {
        /// Whether signals and abstract sockets stay among the commands of a session.
        scoped: bool,
    },
    /// The kernel has Landlock and cannot confine truncation (before Linux 6.2).
    TooOld,
    /// No Landlock: another system, an old kernel, or it is turned off.
    Missing,
}

/// Why commands do not run in namespaces.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IsolationError {
    /// Nobody wants it.
    #[error("they were not asked for")]
    NotAskedFor,
    /// The system does not give them.
    #[error("{why}")]
    Unavailable {
        /// What it says.
        why: String,
    },
}

impl SandboxSupport {
    /// Asks the kernel.
    pub fn of_this_system() -> Self {
        confine::support()
    }

    /// Whether commands can be confined.
    pub fn is_full(self) -> bool {
        matches!(self, Self::Full { .. })
    }
}

/// Confines commands. Set up by the first of them; dropped, it removes their directory for temporary files.
#[derive(Debug)]
pub struct Sandbox {
    write: Vec<PathBuf>,
    caches: Arc<[Cache]>,
    /// Where what commands write to caches is kept; `None`: in the caches.
    layers: Option<PathBuf>,
    network: Network,
    namespaces: Option<Namespaces>,
    /// In which containers commands run, in place of namespaces.
    containers: Option<Box<Containers>>,
    /// Which hosts commands reach through a proxy.
    hosts: Option<Arc<HostRules>>,
    /// What its commands are told in their environment.
    variables: &'static [(&'static str, &'static str)],
    /// Whether it was told that there are none.
    told: AtomicBool,
    state: Mutex<Option<SandboxState>>,
    /// Commands that began and are not over.
    begun: Arc<AtomicUsize>,
    /// Held by who makes a container, so that there is one; what is there already can be used meanwhile. When the last attempt ended, and
    /// what was said, if the program did not come to an end.
    settling: Mutex<Option<(Instant, String)>>,
}

/// Counts a running command until it is dropped.
#[derive(Debug)]
pub(crate) struct CommandGuard(Arc<AtomicUsize>);

impl Drop for CommandGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether commands can reach other machines, and servers on this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// As the user can.
    Open,
    /// In namespaces: only servers of the session, unless a command was [allowed](CommandNeeds) more. Without them, as the user can.
    #[default]
    Asked,
    /// In namespaces: the same. Without them no sockets but those with a name on this machine (Unix) and those to the kernel (netlink); no `io_uring`,
    /// which could make others. Programs for another kind of processor, such as 32-bit ones, are killed.
    Closed,
}

#[derive(Debug)]
struct SandboxState {
    confined: Confinement,
    temporary: TemporaryDirectory,
    layers: Option<Layers>,
    /// What leads out of the network of the session, once a rule wants it.
    proxy: Mutex<Option<Proxy>>,
}

#[derive(Debug)]
enum Confinement {
    /// In namespaces.
    Session(Session),
    /// The engine of containers keeps it.
    Container(Box<Container>),
    /// By Landlock alone; why there are no namespaces, where they were wanted.
    Holder(confine::Holder, Option<String>, Vec<(&'static str, PathBuf)>),
}

/// A started command: its process, and the descriptor that reports its end if it is not a child of this process.
pub(crate) type LaunchedProcess = (Pid, Option<OwnedFd>);

impl Sandbox {
    /// A sandbox whose commands may write in these directories and files (absolute; what is not there when the
    /// first command starts is left out), in a directory for temporary files of their own, and to the usual
    /// devices.
    pub fn new(write: Vec<PathBuf>) -> Self {
        Helpers::keep_from(write.iter().map(PathBuf::as_path));
        Self {
            write,
            caches: Arc::default(),
            layers: None,
            network: Network::Asked,
            namespaces: None,
            containers: None,
            hosts: None,
            variables: &[],
            told: AtomicBool::default(),
            state: Mutex::default(),
            begun: Arc::default(),
            settling: Mutex::default(),
        }
    }

    /// Another one with the network and the namespaces of this one, whose commands write in their directory for temporary
    /// files alone. Git leaves out what it would write without need. The doors to this machine stay those of the first one.
    #[must_use]
    pub fn reading(&self) -> Self {
        let namespaces = self.namespaces.clone().map(|namespaces| {
            let Namespaces { mut visible, .. } = namespaces;
            // Also where it lies in what is covered, such as `/tmp`.
            visible.extend(self.write.iter().cloned().chain(self.made()).filter(|path| path.exists()));
            Namespaces { doors: Doors::default(), visible, ..namespaces }
        });
        Self {
            network: self.network,
            namespaces,
            containers: self.containers.as_deref().cloned().map(Containers::reading).map(Box::new),
            hosts: self.hosts.clone(),
            variables: &[("GIT_OPTIONAL_LOCKS", "0")],
            ..Self::new(Vec::new())
        }
    }

    /// The same, where commands may write to these caches too. Those of tools that are installed are made before the
    /// first command starts.
    #[must_use]
    pub fn with_caches(mut self, caches: Vec<Cache>) -> Self {
        Helpers::keep_from(caches.iter().map(|cache| cache.path.as_path()));
        self.write.extend(caches.iter().map(|cache| cache.path.clone()));
        self.caches = caches::shared(caches);
        self
    }

    /// The same, where what commands write to caches that are not shared is kept below this directory, one of the project (made, 0700).
    /// In namespaces it lies over the caches. Without them variables lead tools to it, for caches that a variable alone names;
    /// others are written as they are.
    #[must_use]
    pub fn with_cache_layers(mut self, project: Option<PathBuf>) -> Self {
        self.layers = project;
        self
    }

    /// The same with this network.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// The same in namespaces, where the system has them; otherwise by Landlock alone.
    #[must_use]
    pub fn with_namespaces(mut self, namespaces: Option<Namespaces>) -> Self {
        self.namespaces = namespaces;
        self
    }

    /// The same in containers: never in anything else, whatever fails.
    #[must_use]
    pub fn with_containers(mut self, containers: Option<Containers>) -> Self {
        self.containers = containers.map(Box::new);
        self
    }

    /// In which containers commands run.
    pub fn containers(&self) -> Option<&Containers> {
        self.containers.as_deref()
    }

    /// Where on this machine a path is as commands name it, where they have another name for it.
    pub fn path_outside(&self, path: &Path) -> Option<PathBuf> {
        self.containers.as_ref()?.outside(path)
    }

    /// The same, where commands in namespaces reach the hosts that these rules allow, through a proxy.
    #[must_use]
    pub fn with_hosts(mut self, hosts: Arc<HostRules>) -> Self {
        self.hosts = Some(hosts);
        self
    }

    /// The rules by which commands reach hosts through a proxy, where any of them allows one.
    pub fn hosts(&self) -> Option<&Arc<HostRules>> {
        let reaches = self.network == Network::Asked && self.containers.is_none();
        self.hosts.as_ref().filter(|hosts| reaches && hosts.opens())
    }

    /// The variables that lead programs to the proxy; none where nothing goes through one.
    ///
    /// # Errors
    /// When the sandbox cannot be set up, or no proxy can be started.
    pub(crate) fn proxy(&self) -> io::Result<Vec<(&'static str, String)>> {
        let Some(hosts) = self.hosts() else { return Ok(Vec::new()) };
        self.with(|started| {
            let Confinement::Session(session) = &started.confined else { return Ok(Vec::new()) };
            let mut proxy = started.proxy.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let running = match proxy.take() {
                Some(running) => running,
                // One that was ended is started again with the next command.
                None => match session.listen() {
                    Ok(listener) => Proxy::start(listener, hosts.clone())?,
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                },
            };
            Ok(proxy.insert(running).environment())
        })
    }

    /// Whether commands run in namespaces; if not, why. Sets the sandbox up.
    ///
    /// # Errors
    /// When it cannot be set up.
    pub fn isolation(&self) -> io::Result<Result<(), IsolationError>> {
        self.with(|started| {
            Ok(match &started.confined {
                Confinement::Session(_) | Confinement::Container(_) => Ok(()),
                Confinement::Holder(_, Some(why), _) => Err(IsolationError::Unavailable { why: why.clone() }),
                Confinement::Holder(_, None, _) => Err(IsolationError::NotAskedFor),
            })
        })
    }

    /// Why commands do not run in namespaces although that was asked for. Told once, after the first of them was started.
    pub fn lacks_namespaces(&self) -> Option<String> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Confinement::Holder(_, Some(why), _) = &state.as_ref()?.confined else { return None };
        (!self.told.swap(true, Ordering::SeqCst)).then(|| why.clone())
    }

    /// Why the network cannot be closed on this system, if so.
    pub fn network_stays_open() -> Option<String> {
        confine::closed_network().err().map(|error| error.to_string())
    }

    /// What commands reach beyond their own servers.
    pub fn network(&self) -> Network {
        self.network
    }

    /// Whether commands are confined in the same way by both.
    pub fn confines_as(&self, other: &Self) -> bool {
        (&self.write, &self.caches, &self.layers, self.network, &self.namespaces, &self.containers)
            == (
                &other.write,
                &other.caches,
                &other.layers,
                other.network,
                &other.namespaces,
                &other.containers,
            )
    }

    /// Where commands may write, without devices and the temporary directory.
    pub fn write(&self) -> &[PathBuf] {
        &self.write
    }

    /// The directory for temporary files (0700), made by the first call.
    ///
    /// # Errors
    /// When the sandbox cannot be set up.
    pub fn temporary(&self) -> io::Result<PathBuf> {
        self.with(|started| Ok(started.temporary.path().to_path_buf()))
    }

    /// The variables that lead tools to caches of the project, and that the sandbox sets besides.
    ///
    /// # Errors
    /// When the sandbox cannot be set up.
    pub(crate) fn environment(&self) -> io::Result<Vec<(&'static str, OsString)>> {
        let own = self.variables.iter().map(|(name, value)| (*name, OsString::from(value)));
        self.with(|started| {
            Ok(match &started.confined {
                Confinement::Session(_) | Confinement::Container(_) => own.collect(),
                Confinement::Holder(_, _, variables) => {
                    own.chain(variables.iter().map(|(name, path)| (*name, path.clone().into()))).collect()
                }
            })
        })
    }

    /// The directory for temporary files, if it was made already.
    pub fn made(&self) -> Option<PathBuf> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.as_ref().map(|started| started.temporary.path().to_path_buf())
    }

    /// How a command is started in the container, which is made, or made again, where none runs.
    ///
    /// # Errors
    /// There is no container for it.
    pub(crate) fn container_launch(&self, command: ContainerCommand<'_>) -> io::Result<Launch> {
        self.settle()?;
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Some(Confinement::Container(container)) = state.as_ref().map(|started| &started.confined) else {
            return Err(io::Error::other("it has no container"));
        };
        container.launch(command).map_err(io::Error::other)
    }

    /// Has the container run, where commands run in one: makes it, or makes it again where somebody stopped or removed it. This can
    /// take long; nothing else waits for it meanwhile.
    ///
    /// # Errors
    /// There is no container. The kind is `TimedOut` where its program does not come to an end.
    pub fn settle(&self) -> io::Result<()> {
        let Some(containers) = self.containers() else { return Ok(()) };
        let lock = || self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let asked = Instant::now();
        let mut late = self.settling.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Whoever waited for an attempt has its result, and makes none of their own that would take as long.
        if let Some((_, said)) = late.as_ref().filter(|(ended, _)| asked < *ended) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, said.clone()));
        }
        *late = None;
        let temporary = match lock().as_ref().map(|started| &started.confined) {
            Some(Confinement::Container(container)) if container.is_alive() => return Ok(()),
            Some(_) => None,
            None => Some(Self::temporary_directory()?),
        };
        let container = Container::start(containers.clone()).map_err(|error| {
            let kind = match &error {
                ContainerError::TimedOut { .. } => {
                    *late = Some((Instant::now(), error.to_string()));
                    io::ErrorKind::TimedOut
                }
                _ => io::ErrorKind::Other,
            };
            io::Error::new(kind, error)
        })?;
        let confined = Confinement::Container(Box::new(container));
        let mut state = lock();
        let gone = match (state.as_mut(), temporary) {
            // What ran there is gone with it.
            (Some(started), _) => Some(std::mem::replace(&mut started.confined, confined)),
            (None, temporary) => {
                let temporary = temporary.map_or_else(Self::temporary_directory, Ok)?;
                *state = Some(SandboxState { confined, temporary, layers: None, proxy: Mutex::default() });
                None
            }
        };
        drop(state);
        drop(gone);
        Ok(())
    }

    /// Starts a command, which waits at its gate.
    ///
    /// # Errors
    /// The outer one: it cannot be confined. The inner one: it could not be started.
    pub(crate) fn launch(
        &self,
        launch: Launch,
        needs: CommandNeeds,
    ) -> io::Result<io::Result<LaunchedProcess>> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut started = match state.take() {
            Some(started) => started,
            None => self.start()?,
        };
        if let Confinement::Session(session) = &started.confined {
            match session.launch(&launch, needs) {
                // Somebody ended it: what ran there is gone with it.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                    started.proxy = Mutex::default();
                    started.confined = self.confine(&started.temporary, started.layers.as_ref())?;
                    if let Confinement::Holder(_, Some(why), _) = &started.confined {
                        return Err(io::Error::other(why.clone()));
                    }
                }
                launched => {
                    *state = Some(started);
                    return launched.map(|launched| launched.map(|(pid, status)| (pid, Some(status))));
                }
            }
        }
        let launched = match &started.confined {
            Confinement::Session(session) => session
                .launch(&launch, needs)
                .map(|launched| launched.map(|(pid, status)| (pid, Some(status)))),
            Confinement::Container(_) => {
                let panicked = |_| Err(io::Error::other("a thread panicked"));
                let started = std::thread::scope(|scope| {
                    scope.spawn(|| launch.start()).join().unwrap_or_else(panicked)
                });
                Ok(started.map(|pid| (pid, None)))
            }
            Confinement::Holder(holder, ..) => {
                holder.run(move || launch.start()).map(|started| started.map(|pid| (pid, None)))
            }
        };
        *state = Some(started);
        launched
    }

    /// A command that was started is about to begin.
    ///
    /// # Errors
    /// When what is there now could not be closed to it.
    pub(crate) fn begin(&self) -> io::Result<CommandGuard> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let alone = self.begun.fetch_add(1, Ordering::SeqCst) == 0;
        let begun = CommandGuard(self.begun.clone());
        if let Some(SandboxState { confined: Confinement::Session(session), .. }) = state.as_ref() {
            session.begin(alone)?;
        }
        Ok(begun)
    }

    fn with<T>(&self, work: impl FnOnce(&SandboxState) -> io::Result<T>) -> io::Result<T> {
        if self.made().is_none() {
            self.settle()?;
        }
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let started = match state.take() {
            Some(started) => started,
            None => self.start()?,
        };
        work(state.insert(started))
    }

    fn start(&self) -> io::Result<SandboxState> {
        if self.containers.is_some() {
            return Err(io::Error::other("it has no container"));
        }
        self.caches.iter().for_each(|cache| cache.make(&self.write));
        let temporary = Self::temporary_directory()?;
        let layers = self.layers.as_deref().map(Layers::take).transpose()?;
        let confined = self.confine(&temporary, layers.as_ref())?;
        Ok(SandboxState { confined, temporary, layers, proxy: Mutex::default() })
    }

    /// One for temporary files, in which none of our own programs is looked for.
    fn temporary_directory() -> io::Result<TemporaryDirectory> {
        let temporary = TemporaryDirectory::make()?;
        Helpers::keep_from([temporary.path()]);
        Helpers::of_this_process().settle();
        Ok(temporary)
    }

    fn confine(&self, temporary: &TemporaryDirectory, layers: Option<&Layers>) -> io::Result<Confinement> {
        let layered = || {
            self.caches
                .iter()
                .filter(|cache| !cache.shared)
                .zip(std::iter::repeat(layers))
                .filter_map(|(cache, layers)| Some((cache, layers?)))
        };
        let mut missing = None;
        if let Some(namespaces) = &self.namespaces {
            let is_cache = |path: &&PathBuf| self.caches.iter().any(|cache| cache.path == **path);
            let bounds = SessionBounds {
                write: &self.write,
                protects: self.write.iter().filter(|path| !is_cache(path)).cloned().collect(),
                layered: layered()
                    .filter(|(cache, _)| cache.path.symlink_metadata().is_ok())
                    .map(|(cache, layers)| {
                        Ok((cache.path.clone(), layers.make(&cache.path, !cache.is_file())?))
                    })
                    .collect::<io::Result<_>>()?,
                temporary: temporary.path(),
                open: self.network == Network::Open,
            };
            match Session::start(namespaces, bounds) {
                Ok(session) => return Ok(Confinement::Session(session)),
                Err(error) => missing = Some(error.to_string()),
            }
        }
        let (mut write, mut variables) = (self.write.clone(), Vec::new());
        for (cache, layers) in layered() {
            if let Some(variable) = cache.led_by() {
                let own = layers.make(&cache.path, true)?.join(crate::layers::UPPER);
                write.retain(|path| *path != cache.path);
                write.push(own.clone());
                variables.push((variable, own));
            }
        }
        let holder = confine::Holder::start(&write, temporary.path(), self.network)?;
        Ok(Confinement::Holder(holder, missing, variables))
    }
}

/// Runs `start` in a thread of its own, where this system can confine: what it starts writes nowhere and reaches no
/// network.
///
/// # Errors
/// When it should be confined and cannot.
pub(crate) fn reading_only<T: Send>(start: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !SandboxSupport::of_this_system().is_full() {
        return Ok(start());
    }
    std::thread::scope(|scope| {
        let work = || confine::close_writing().map(|()| start());
        scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}

/// Runs `start` in a thread of its own, where this system can confine: what it starts writes only in these directories, and
/// reaches no network.
///
/// # Errors
/// When it should be confined and cannot.
pub(crate) fn writing_only<T: Send>(write: &[PathBuf], start: impl FnOnce() -> T + Send) -> io::Result<T> {
    if !SandboxSupport::of_this_system().is_full() {
        return Ok(start());
    }
    let write: Vec<PathBuf> = write.iter().map(|path| crate::file_key(path)).collect();
    std::thread::scope(|scope| {
        let work = || confine::close_writing_except(&write).map(|()| start());
        scope.spawn(work).join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
    })
}

/// The directories beside `cwd` that git needs to write to: of the repository around it, and of a worktree or
/// submodule the directories that its `.git` file names. Such a file can be written by anyone who can write to the
/// workspace, so what it names must point back at it.
pub fn git_directories(cwd: &Path) -> Vec<PathBuf> {
    let Some((top, dot)) = cwd.ancestors().find_map(|dir| {
        let dot = dir.join(".git");
        dot.symlink_metadata().ok().map(|found| (dir, (dot, found)))
    }) else {
        return Vec::new();
    };
    let (dot, found) = dot;
    if found.is_dir() {
        // Within `cwd` it is granted already.
        let ours = nix::unistd::geteuid().as_raw() == std::os::unix::fs::MetadataExt::uid(&found);
        return if top == cwd || !ours { Vec::new() } else { vec![dot] };
    }
    let read = |path: &Path| crate::open::read_small(path, 64 * 1024);
    let named = read(&dot).and_then(|text| {
        let target = text.trim_end_matches(['\n', '\r']).strip_prefix("gitdir: ")?.to_owned();
        top.join(target).canonicalize().ok()
    });
    let Some(directory) = named else { return Vec::new() };
    let Ok(dot) = dot.canonicalize() else { return Vec::new() };
    // A worktree: `gitdir` names our `.git`, and it lies in `worktrees` of the common directory.
    if let Some(back) = read(&directory.join("gitdir"))
        && directory.join(back.trim_end()).canonicalize().ok().as_ref() == Some(&dot)
        && let Some(common) = read(&directory.join("commondir"))
        && let Ok(common) = directory.join(common.trim_end()).canonicalize()
        && directory.parent() == Some(&common.join("worktrees"))
    {
        return vec![common];
    }
    // A submodule: its settings name the directory that holds `.git`.
    let back = read(&directory.join("config")).and_then(|config| {
        let line =
            config.lines().find_map(|line| line.trim().strip_prefix("worktree = ").map(str::to_owned))?;
        directory.join(line).canonicalize().ok()
    });
    if back.as_deref() == dot.parent() && directory.ancestors().any(|dir| dir.ends_with("modules")) {
        return vec![directory];
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::AccessMode;
    use crate::container::{ContainerEnd, ContainerEngine, ContainerLimits, ContainerMount, PruneLimits};

    #[test]
    fn caller_that_waited_for_a_failed_attempt_makes_none() {
        let dir = tempfile::tempdir().unwrap();
        let containers = Containers {
            engine: ContainerEngine::Unreadable,
            image: "image".into(),
            runtime: None,
            network: "none".into(),
            prefix: "quipu-".into(),
            scope: "test".into(),
            workspace: ContainerMount {
                source: dir.path().into(),
                target: "/workspace".into(),
                access: AccessMode::Write,
            },
            mounts: Vec::new(),
            variables: Vec::new(),
            limits: ContainerLimits::default(),
            prune: PruneLimits::default(),
            end: ContainerEnd::Stopped,
            state: dir.path().join("state"),
            home: None,
            hidden: Vec::new(),
        };
        let sandbox = Sandbox::new(Vec::new()).with_containers(Some(containers));
        let settled = |ended: Instant| {
            *sandbox.settling.lock().unwrap() = Some((ended, "it took too long".to_owned()));
            sandbox.settle().unwrap_err()
        };
        let error = settled(Instant::now() + Duration::from_secs(3_600));
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "it took too long");
        // Who asks later tries.
        assert_eq!(settled(Instant::now()).kind(), io::ErrorKind::Other);
        assert!(sandbox.settling.lock().unwrap().is_none());
    }
}
