//! Commands that can write only where they may: Landlock, applied to threads of ours that start them.
//!
//! A confined thread shares its memory with the agent, so what it starts must not be able to reach it. Therefore
//! two layers: one thread *holds* the outer domain of a session for as long as the session lives, so that its
//! commands can signal each other; each command is started by a thread of its own that adds an inner domain and is
//! gone before the command may begin. The holder is outside the inner domain and cannot be traced from it, and neither
//! can the thread that it keeps ready for the next command, whose inner domain is another.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::caches::Cache;
use crate::helpers::Helpers;
use crate::temporary::Temporary;

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

impl SandboxSupport {
    /// Asks the kernel.
    pub fn of_this_system() -> Self {
        system::support()
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
    caches: Vec<Cache>,
    network: Network,
    state: Mutex<Option<Started>>,
}

/// Whether commands can reach other machines, and servers on this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// As the user can.
    #[default]
    Open,
    /// No sockets but those with a name on this machine (Unix) and those to the kernel (netlink); no `io_uring`,
    /// which could make others. Programs for another kind of processor, such as 32-bit ones, are killed.
    Closed,
}

#[derive(Debug)]
struct Started {
    holder: system::Holder,
    temporary: Temporary,
}

impl Sandbox {
    /// A sandbox whose commands may write in these directories and files (absolute; what is not there when the
    /// first command starts is left out), in a directory for temporary files of their own, and to the usual
    /// devices.
    pub fn new(write: Vec<PathBuf>) -> Self {
        Helpers::keep_from(write.iter().map(PathBuf::as_path));
        Self { write, caches: Vec::new(), network: Network::Open, state: Mutex::default() }
    }

    /// The same, where commands may write to these caches too. Those of tools that are installed are made before the
    /// first command starts.
    #[must_use]
    pub fn with_caches(mut self, caches: Vec<Cache>) -> Self {
        Helpers::keep_from(caches.iter().map(|cache| cache.path.as_path()));
        self.write.extend(caches.iter().map(|cache| cache.path.clone()));
        self.caches = caches;
        self
    }

    /// The same with this network.
    #[must_use]
    pub fn with_network(mut self, network: Network) -> Self {
        self.network = network;
        self
    }

    /// Why the network cannot be closed on this system, if so.
    pub fn network_stays_open() -> Option<String> {
        system::closed_network().err().map(|error| error.to_string())
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

    /// The directory for temporary files, if it was made already.
    pub fn made(&self) -> Option<PathBuf> {
        let state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.as_ref().map(|started| started.temporary.path().to_path_buf())
    }

    /// Runs `start` in a thread that is confined, and returns when that thread is gone.
    pub(crate) fn enter<T: Send + 'static>(
        &self,
        start: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.with(|started| started.holder.run(start))
    }

    fn with<T>(&self, work: impl FnOnce(&Started) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let started = match state.take() {
            Some(started) => started,
            None => self.start()?,
        };
        work(state.insert(started))
    }

    fn start(&self) -> io::Result<Started> {
        self.caches.iter().for_each(|cache| cache.make(&self.write));
        let temporary = Temporary::make()?;
        Helpers::keep_from([temporary.path()]);
        Helpers::of_this_process().settle();
        let holder = system::Holder::start(&self.write, temporary.path(), self.network)?;
        Ok(Started { holder, temporary })
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
        let work = || system::close_writing().map(|()| start());
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

#[cfg(target_os = "linux")]
mod system {
    use std::collections::BTreeMap;
    use std::io;
    use std::path::{Path, PathBuf};
    use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
    use std::thread::JoinHandle;

    use landlock::{
        ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
        RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
    };

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
        SeccompRule,
    };

    use super::{Network, SandboxSupport};

    /// Devices that programs write to, and directories of them.
    const DEVICES: [&str; 9] = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/ptmx",
        "/dev/pts",
        "/dev/shm",
    ];

    fn handled(abi: ABI) -> Result<Ruleset, landlock::RulesetError> {
        Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_write(abi))
    }

    pub(super) fn support() -> SandboxSupport {
        let works =
            |ruleset: Result<Ruleset, landlock::RulesetError>| ruleset.and_then(Ruleset::create).is_ok();
        if !works(handled(ABI::V1)) {
            return SandboxSupport::Missing;
        }
        if !works(handled(ABI::V3)) {
            return SandboxSupport::TooOld;
        }
        let scoped = works(handled(ABI::V3).and_then(|ruleset| ruleset.scope(Scope::Signal)));
        SandboxSupport::Full { scoped }
    }

    fn failed(error: impl std::fmt::Display) -> io::Error {
        io::Error::other(format!("the sandbox could not be set up: {error}"))
    }

    /// The rules for files; with `scopes`, also those for signals and abstract sockets.
    fn ruleset(write: &[PathBuf], temporary: &Path, scopes: bool) -> Result<RulesetCreated, io::Error> {
        // Truncation must be confined; control of devices and scopes where the kernel can.
        let mut ruleset = handled(ABI::V3)
            .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
            .and_then(|ruleset| ruleset.handle_access(AccessFs::IoctlDev))
            .map_err(failed)?;
        if scopes {
            ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket).map_err(failed)?;
        }
        let mut created = ruleset.create().map_err(failed)?;
        // Device nodes are made by nobody: through them an administrator would reach whole disks.
        let all = AccessFs::from_write(ABI::V5) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
        let paths = write.iter().map(PathBuf::as_path).chain([temporary]);
        for path in paths {
            created = grant(created, path, all)?;
        }
        for device in DEVICES {
            // New names in /dev/shm, and nowhere else among the devices.
            let rights = if device == "/dev/shm" {
                all
            } else {
                AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev
            };
            created = grant(created, Path::new(device), rights)?;
        }
        Ok(created)
    }

    fn grant(created: RulesetCreated, path: &Path, rights: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
        let (Ok(opened), Ok(metadata)) = (PathFd::new(path), std::fs::metadata(path)) else {
            return Ok(created);
        };
        let rights = if metadata.is_dir() { rights } else { rights & AccessFs::from_file(ABI::V5) };
        created.add_rule(PathBeneath::new(opened, rights)).map_err(failed)
    }

    fn restrict(ruleset: &RulesetCreated) -> io::Result<()> {
        let status = ruleset.try_clone()?.restrict_self().map_err(failed)?;
        match status.ruleset {
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
            RulesetStatus::NotEnforced => Err(failed("the kernel does not enforce it")),
        }
    }

    /// Confines this thread, which ends before anybody is told what it started, so that nobody shares its memory.
    pub(super) fn close_writing() -> io::Result<()> {
        let created = handled(ABI::V3)
            .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
            .and_then(|ruleset| ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket))
            .and_then(Ruleset::create)
            .map_err(failed)?;
        restrict(&grant(created, Path::new("/dev/null"), AccessFs::WriteFile | AccessFs::Truncate)?)?;
        seccompiler::apply_filter(&closed_network()?).map_err(failed)
    }

    /// The filter that leaves only local sockets.
    pub(super) fn closed_network() -> io::Result<BpfProgram> {
        let unless = |domain: i32| {
            let domain = u64::try_from(domain).map_err(failed)?;
            SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, domain).map_err(failed)
        };
        let foreign =
            SeccompRule::new(vec![unless(libc::AF_UNIX)?, unless(libc::AF_NETLINK)?]).map_err(failed)?;
        let mut rules =
            BTreeMap::from([(libc::SYS_socket, vec![foreign]), (libc::SYS_io_uring_setup, vec![])]);
        if cfg!(target_arch = "x86_64") {
            // The same calls by their numbers for 32-bit pointers.
            rules = rules
                .into_iter()
                .flat_map(|(call, rules)| [(call, rules.clone()), (call | 0x4000_0000, rules)])
                .collect();
        }
        let refused = SeccompAction::Errno(libc::EACCES.unsigned_abs());
        let machine = std::env::consts::ARCH.try_into().map_err(failed)?;
        SeccompFilter::new(rules, SeccompAction::Allow, refused, machine)
            .and_then(BpfProgram::try_from)
            .map_err(failed)
    }

    /// A thread that starts one command.
    #[derive(Debug)]
    struct Launcher {
        job: SyncSender<Box<dyn FnOnce() + Send>>,
        thread: JoinHandle<io::Result<()>>,
    }

    /// The thread that holds the outer domain, and what comes from it.
    #[derive(Debug)]
    pub(super) struct Holder {
        /// Asks for the next launcher.
        wanted: Option<SyncSender<()>>,
        launchers: Receiver<io::Result<Launcher>>,
        thread: Option<JoinHandle<()>>,
    }

    impl Holder {
        pub(super) fn start(write: &[PathBuf], temporary: &Path, network: Network) -> io::Result<Self> {
            let outer = ruleset(write, temporary, true)?;
            let inner = ruleset(write, temporary, false)?;
            let (wanted, orders) = sync_channel(1);
            let (ready, launchers) = sync_channel(1);
            let (restricted, started) = sync_channel(1);
            let filter = match network {
                Network::Open => None,
                Network::Closed => Some(closed_network()?),
            };
            let launcher = move || {
                let (job, jobs) = sync_channel::<Box<dyn FnOnce() + Send>>(1);
                let inner = inner.try_clone()?;
                let work = move || {
                    restrict(&inner)?;
                    // None comes when the session is over.
                    if let Ok(job) = jobs.recv() {
                        job();
                    }
                    Ok(())
                };
                let thread = std::thread::Builder::new().name("quipu-start".into()).spawn(work)?;
                Ok(Launcher { job, thread })
            };
            let hold = move || {
                let result = restrict(&outer).and_then(|()| match &filter {
                    Some(filter) => seccompiler::apply_filter(filter).map_err(failed),
                    None => Ok(()),
                });
                let works = result.is_ok();
                if restricted.send(result).is_err() || !works {
                    return;
                }
                for () in orders {
                    if ready.send(launcher()).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name("quipu-sandbox".into()).spawn(hold)?;
            started.recv().map_err(failed)??;
            wanted.send(()).map_err(failed)?;
            Ok(Self { wanted: Some(wanted), launchers, thread: Some(thread) })
        }

        pub(super) fn run<T: Send + 'static>(
            &self,
            start: impl FnOnce() -> T + Send + 'static,
        ) -> io::Result<T> {
            let gone = || failed("its thread is gone");
            let launcher = self.launchers.recv().map_err(|_| gone())?;
            let result = launcher.and_then(|Launcher { job, thread }| {
                let (send, receive) = sync_channel(1);
                // One that could not be confined takes no job, and says why at its end.
                drop(job.send(Box::new(move || drop(send.send(start())))));
                // Joined before anyone is told: then nobody shares a domain with what was started.
                thread.join().unwrap_or_else(|_| Err(failed("a thread panicked")))?;
                receive.recv().map_err(|_| gone())
            });
            // The next is made while this command runs.
            self.wanted.as_ref().ok_or_else(gone)?.send(()).map_err(|_| gone())?;
            result
        }
    }

    impl Drop for Holder {
        fn drop(&mut self) {
            self.wanted = None;
            // Neither has anything left to do or to tell.
            if let Some(thread) = self.thread.take() {
                drop(thread.join());
            }
            while let Ok(Ok(Launcher { job, thread })) = self.launchers.try_recv() {
                drop(job);
                drop(thread.join());
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;
    use std::path::{Path, PathBuf};

    use super::{Network, SandboxSupport};

    pub(super) fn support() -> SandboxSupport {
        SandboxSupport::Missing
    }

    pub(super) fn closed_network() -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
    }

    pub(super) fn close_writing() -> io::Result<()> {
        closed_network()
    }

    /// There is none here.
    #[derive(Debug)]
    pub(super) struct Holder;

    impl Holder {
        pub(super) fn start(_: &[PathBuf], _: &Path, _: Network) -> io::Result<Self> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
        }

        pub(super) fn run<T: Send + 'static>(&self, _: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
            Err(io::Error::new(io::ErrorKind::Unsupported, "commands cannot be confined on this system"))
        }
    }
}
