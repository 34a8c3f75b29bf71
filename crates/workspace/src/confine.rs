//! Landlock and seccomp on threads of ours: what a confined thread starts cannot shed it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use landlock::{
    ABI, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreated, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::{Network, SandboxSupport};

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

pub(crate) fn support() -> SandboxSupport {
    let works = |ruleset: Result<Ruleset, landlock::RulesetError>| ruleset.and_then(Ruleset::create).is_ok();
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
pub(crate) fn ruleset(
    write: &[PathBuf],
    temporary: &Path,
    scopes: BitFlags<Scope>,
) -> Result<RulesetCreated, io::Error> {
    // Truncation must be confined; control of devices and scopes where the kernel can.
    let mut ruleset = handled(ABI::V3)
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
        .and_then(|ruleset| ruleset.handle_access(AccessFs::IoctlDev))
        .map_err(failed)?;
    if !scopes.is_empty() {
        ruleset = ruleset.scope(scopes).map_err(failed)?;
    }
    let mut created = ruleset.create().map_err(failed)?;
    // Device nodes are made by nobody: through them an administrator would reach whole disks.
    let all = AccessFs::from_write(ABI::V5) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let paths = write.iter().map(PathBuf::as_path).chain([temporary]);
    for path in paths {
        if let Ok(opened) = exact(path) {
            created = add(created, opened, all)?;
        }
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
    let Ok(opened) = PathFd::new(path) else { return Ok(created) };
    add(created, opened, rights)
}

fn add(created: RulesetCreated, opened: impl AsFd, rights: BitFlags<AccessFs>) -> io::Result<RulesetCreated> {
    let found = rustix::fs::fstat(&opened)?;
    let is_dir = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    let rights = if is_dir { rights } else { rights & AccessFs::from_file(ABI::V5) };
    created.add_rule(PathBeneath::new(opened, rights)).map_err(failed)
}

/// What is at a true path, if it leads through no link by now: a command may have put one there, which says nothing of
/// what may be written.
pub(crate) fn exact(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

pub(crate) fn restrict(ruleset: &RulesetCreated) -> io::Result<()> {
    let status = ruleset.try_clone()?.restrict_self().map_err(failed)?;
    match status.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err(failed("the kernel does not enforce it")),
    }
}

/// Confines this thread, which ends before anybody is told what it started, so that nobody shares its memory.
pub(crate) fn close_writing() -> io::Result<()> {
    let created = handled(ABI::V3)
        .map(|ruleset| ruleset.set_compatibility(CompatLevel::BestEffort))
        .and_then(|ruleset| ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket))
        .and_then(Ruleset::create)
        .map_err(failed)?;
    restrict(&grant(created, Path::new("/dev/null"), AccessFs::WriteFile | AccessFs::Truncate)?)?;
    seccompiler::apply_filter(&closed_network()?).map_err(failed)
}

/// The same, but for these directories.
pub(crate) fn close_writing_except(write: &[PathBuf]) -> io::Result<()> {
    let scopes = Scope::Signal | Scope::AbstractUnixSocket;
    // A kernel without scopes confines files all the same.
    let created = match crate::SandboxSupport::of_this_system() {
        SandboxSupport::Full { scoped: true } => ruleset(write, Path::new("/dev/null"), scopes),
        _ => ruleset(write, Path::new("/dev/null"), BitFlags::EMPTY),
    }?;
    restrict(&created)?;
    seccompiler::apply_filter(&closed_network()?).map_err(failed)
}

/// The filter that leaves only local sockets.
pub(crate) fn closed_network() -> io::Result<BpfProgram> {
    only_sockets(&[libc::AF_UNIX, libc::AF_NETLINK], &[])
}

/// The filter for who has a network of its own: other kinds of sockets, such as those to the host of a virtual machine, are
/// not in it.
pub(crate) fn local_or_internet() -> io::Result<BpfProgram> {
    only_sockets(&[libc::AF_UNIX, libc::AF_NETLINK, libc::AF_INET, libc::AF_INET6], &SHARED)
}

/// What no namespace keeps apart: keys of the user, files by numbers, programs in the kernel and what it counts.
const SHARED: [libc::c_long; 8] = [
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_syslog,
];

fn only_sockets(domains: &[i32], closed: &[libc::c_long]) -> io::Result<BpfProgram> {
    let unless = |domain: &i32| {
        let domain = u64::try_from(*domain).map_err(failed)?;
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, domain).map_err(failed)
    };
    let foreign = domains.iter().map(unless).collect::<io::Result<Vec<_>>>()?;
    let foreign = SeccompRule::new(foreign).map_err(failed)?;
    let mut rules = BTreeMap::from([(libc::SYS_socket, vec![foreign]), (libc::SYS_io_uring_setup, vec![])]);
    rules.extend(closed.iter().map(|call| (*call, Vec::new())));
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
pub(crate) struct Holder {
    /// Asks for the next launcher.
    wanted: Option<SyncSender<()>>,
    launchers: Receiver<io::Result<Launcher>>,
    thread: Option<JoinHandle<()>>,
}

impl Holder {
    pub(crate) fn start(write: &[PathBuf], temporary: &Path, network: Network) -> io::Result<Self> {
        let outer = ruleset(write, temporary, Scope::Signal | Scope::AbstractUnixSocket)?;
        let inner = ruleset(write, temporary, BitFlags::EMPTY)?;
        let (wanted, orders) = sync_channel(1);
        let (ready, launchers) = sync_channel(1);
        let (restricted, started) = sync_channel(1);
        let filter = match network {
            Network::Open | Network::Asked => None,
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

    pub(crate) fn run<T: Send + 'static>(&self, start: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
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
