//! Process 1 of a session: starts its commands, tells how they end, and takes everything with it at its own end.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex};

use landlock::{BitFlags, RulesetCreated, Scope};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use rustix::process::{PidfdFlags, WaitId, WaitIdOptions, WaitOptions, pidfd_open, waitid};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::BpfProgram;

use super::watch::Watch;
use super::wire::{FrameReader, receive, send};
use super::{CommandNeeds, EMPTY, LISTEN, READY, Setup, doors, lock, net, protected};
use crate::child::Launch;
use crate::confine::{local_or_internet, restrict, ruleset};

fn failed(what: &str, error: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what}: {error}"))
}

/// The commands that run: where the end of each is told.
#[derive(Debug, Default)]
struct Commands {
    running: Mutex<HashMap<i32, File>>,
    more: Condvar,
    /// Whether there is any process.
    any: AtomicBool,
}

impl Commands {
    /// Waits for every process that ends, also those whose parents are gone.
    fn reap(&self) {
        loop {
            // Its number is its own until it was waited for, which is not before its start was told.
            let ended = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).and_then(|_| {
                let mut running = lock(&self.running);
                let ended = rustix::process::wait(WaitOptions::NOHANG)?;
                Ok(ended.map(|(pid, status)| (running.remove(&pid.as_raw_nonzero().get()), status)))
            });
            match ended {
                Ok(Some((told, status))) => {
                    if let Some(mut told) = told {
                        let end =
                            [status.exit_status().unwrap_or(-1), status.terminating_signal().unwrap_or(0)];
                        // Nobody waits for it any more.
                        told.write_all(&end.map(i32::to_le_bytes).concat()).ok();
                    }
                }
                Ok(None) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => {
                    let running = lock(&self.running);
                    if running.is_empty() {
                        self.any.store(false, Ordering::SeqCst);
                        drop(self.more.wait(running));
                    }
                }
            }
        }
    }
}

/// What a command's thread gives up.
#[derive(Debug)]
struct Bounds {
    /// The session's own; `None` where commands use that of the user.
    network: Option<Arc<OwnedFd>>,
    write: Vec<PathBuf>,
    closed: RulesetCreated,
    /// For those that use the network of the user: what has a name there stays closed.
    open: RulesetCreated,
    filter: BpfProgram,
    kept: CapabilitySet,
}

/// What a command's thread is told, and what it tells.
struct Job {
    launch: Launch,
    status: File,
}

struct ReadyKeeper {
    job: SyncSender<Job>,
    started: Receiver<io::Result<OwnedFd>>,
}

/// Keeps a session until the agent is gone.
pub(super) fn run(socket: &OwnedFd) -> io::Result<()> {
    let (setup, _) = receive(socket.as_fd())?.ok_or_else(|| io::Error::other("the agent is gone"))?;
    let setup = Setup::decode(&setup)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let none: Option<&str> = None;
    mount(Some("proc"), "/proc", Some("proc"), flags, none).map_err(|error| failed("/proc", error))?;
    // A command that made namespaces of its own would not see what is mounted later.
    fs::write("/proc/sys/user/max_user_namespaces", "0")
        .map_err(|error| failed("a limit of namespaces", error))?;
    let kept = give_up()?;
    let network = if setup.open { None } else { Some(Arc::new(make_network()?)) };
    if let Some(network) = &network {
        open_doors(&setup, network)?;
    }
    let mut write = setup.write.clone();
    write.extend([setup.temporary.clone(), "/tmp".into(), "/var/tmp".into()]);
    let free: Vec<PathBuf> = write.iter().chain(&setup.sockets).cloned().collect();
    let bounds = Arc::new(Bounds {
        network,
        closed: ruleset(&write, &setup.temporary, BitFlags::EMPTY)?,
        open: ruleset(&write, &setup.temporary, Scope::AbstractUnixSocket.into())?,
        write: setup.protects.clone(),
        filter: local_or_internet()?,
        kept,
    });
    let commands = Arc::new(Commands::default());
    let reaper = commands.clone();
    thread("quipu-reap", move || reaper.reap())?;
    let mut ready = Some(prepare(&bounds, &commands, CommandNeeds::default())?);
    protected::cover_sockets(&free, Path::new(EMPTY));
    let watch = Arc::new(Watch::new()?);
    watch.protect(&setup.protects)?;
    let home = Some(setup.home.as_path()).filter(|home| home.is_absolute());
    let (watcher, running, spared) = (watch.clone(), commands.clone(), free.clone());
    thread("quipu-watch", move || watcher.run(&spared, &|| running.any.load(Ordering::SeqCst)))?;
    send(socket.as_fd(), READY, &[])?;
    loop {
        let Some((message, files)) = receive(socket.as_fd())? else { return Ok(()) };
        let close = || {
            let closed = protected::hide(home);
            protected::cover_sockets(&free, Path::new(EMPTY));
            closed
        };
        if let [alone] = message.as_slice() {
            // What is to be protected may be new, or was replaced from outside.
            let closed = if *alone == 0 {
                watch.again();
                Ok(())
            } else {
                watch.protect(&setup.protects)
            };
            let number = closed.and_then(|()| close()).err().map_or(0, |error| errno(&error));
            send(socket.as_fd(), &number.to_le_bytes(), &[])?;
            continue;
        }
        if message == LISTEN {
            let none = || failed("a listener", "commands use the network of the user");
            let listener = bounds.network.as_ref().ok_or_else(none).and_then(doors::listen_anywhere);
            match listener {
                Ok(listener) => send(socket.as_fd(), &0_i32.to_le_bytes(), &[listener.as_fd()])?,
                Err(error) => send(socket.as_fd(), &errno(&error).to_le_bytes(), &[])?,
            }
            continue;
        }
        let (job, needs) = decode(&message, files)?;
        // It may have mounts of its own from here on.
        let closed = if needs == CommandNeeds::default() { Ok(()) } else { close() };
        let started = closed.and_then(|()| {
            let kept = if needs == CommandNeeds::default() { ready.take() } else { None };
            let thread = kept.map_or_else(|| prepare(&bounds, &commands, needs), Ok)?;
            let gone = || failed("a command", "its thread is gone");
            thread.job.send(job).map_err(|_| gone())?;
            thread.started.recv().map_err(|_| gone())?
        });
        match started {
            Ok(handle) => send(socket.as_fd(), &0_i32.to_le_bytes(), &[handle.as_fd()])?,
            Err(error) => {
                send(socket.as_fd(), &errno(&error).to_le_bytes(), &[])?;
            }
        }
        // For the next one, while this one runs.
        if ready.is_none() {
            ready = Some(prepare(&bounds, &commands, CommandNeeds::default())?);
        }
    }
}

fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EPERM)
}

fn decode(message: &[u8], files: Vec<OwnedFd>) -> io::Result<(Job, CommandNeeds)> {
    let Ok([input, output, status]) = <[OwnedFd; 3]>::try_from(files) else {
        return Err(io::Error::other("a command came without its files"));
    };
    let mut fields = FrameReader(message);
    let (program, cwd, arguments) = (fields.path()?, fields.path()?, fields.list()?);
    let names = fields.list()?;
    let environment = names.into_iter().map(|name| Ok((name, fields.text()?))).collect::<io::Result<_>>()?;
    let needs = CommandNeeds { network: fields.flag()?, protected: fields.flag()? };
    let launch = Launch { program, arguments, environment, cwd, here: false, input: Some(input), output };
    Ok((Job { launch, status: status.into() }, needs))
}

/// Rights that no command has, and that nobody who traces this process could take.
fn give_up() -> io::Result<CapabilitySet> {
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    rustix::thread::clear_ambient_capability_set()?;
    // An administrator among users that are all there keeps the rights over files that he has outside.
    let users = fs::read_to_string("/proc/self/uid_map")?;
    let has_all = users.split_ascii_whitespace().nth(2).is_some_and(|count| count != "1");
    let kept = if has_all && rustix::process::geteuid().is_root() {
        CapabilitySet::CHOWN
            | CapabilitySet::DAC_OVERRIDE
            | CapabilitySet::FOWNER
            | CapabilitySet::FSETID
            | CapabilitySet::KILL
            | CapabilitySet::SETUID
            | CapabilitySet::SETGID
    } else {
        CapabilitySet::empty()
    };
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        let is_there = rustix::thread::capability_is_in_bounding_set(one).unwrap_or(false);
        if is_there && !kept.contains(one) {
            rustix::thread::remove_capability_from_bounding_set(one)?;
        }
    }
    let ours = rustix::thread::capabilities(None)?;
    rustix::thread::set_capabilities(None, CapabilitySets { inheritable: CapabilitySet::empty(), ..ours })?;
    rustix::thread::set_no_new_privs(true)?;
    Ok(kept)
}

fn thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<std::thread::JoinHandle<T>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// A network with a loopback device. The keeper stays in that of the user.
fn make_network() -> io::Result<OwnedFd> {
    let make = || -> io::Result<OwnedFd> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|error| failed("a network", error))?;
        net::bring_loopback_up().map_err(|error| failed("a loopback device", error))?;
        Ok(File::open("/proc/thread-self/ns/net")?.into())
    };
    thread("quipu-network", make)?.join().unwrap_or_else(|_| Err(failed("a network", "a thread panicked")))
}

fn open_doors(setup: &Setup, network: &Arc<OwnedFd>) -> io::Result<()> {
    for port in setup.ports.iter().filter_map(|port| port.to_str()?.parse().ok()) {
        doors::let_in(port, network)?;
    }
    for service in setup.services.iter().filter_map(|service| service.to_str()) {
        doors::let_out(service, network)?;
    }
    Ok(())
}

/// A thread that gives everything up and waits for its command.
fn prepare(bounds: &Arc<Bounds>, commands: &Arc<Commands>, needs: CommandNeeds) -> io::Result<ReadyKeeper> {
    let (job, jobs) = sync_channel(1);
    let (starts, started) = sync_channel(1);
    let (bounds, commands) = (bounds.clone(), commands.clone());
    thread("quipu-start", move || {
        let start = || -> io::Result<OwnedFd> {
            confine(&bounds, needs)?;
            let Job { launch, status } = jobs.recv().map_err(io::Error::other)?;
            // Held, so that its end is not told before it is known.
            let mut running = lock(&commands.running);
            let pid = launch.start()?;
            running.insert(pid.as_raw_nonzero().get(), status);
            commands.any.store(true, Ordering::SeqCst);
            commands.more.notify_one();
            // It may have ended, and is still there.
            Ok(pidfd_open(pid, PidfdFlags::empty())?)
        };
        // The session is over when nobody listens.
        starts.send(start()).ok();
    })?;
    Ok(ReadyKeeper { job, started })
}

fn confine(bounds: &Bounds, needs: CommandNeeds) -> io::Result<()> {
    let host = needs.network || bounds.network.is_none();
    if let Some(network) = bounds.network.as_ref().filter(|_| !needs.network) {
        setns(network.as_fd(), CloneFlags::CLONE_NEWNET)?;
    }
    if needs.protected {
        unshare(CloneFlags::CLONE_NEWNS)?;
        protected::open(&bounds.write)?;
    }
    restrict(if host { &bounds.open } else { &bounds.closed })?;
    let sets = CapabilitySets {
        effective: bounds.kept,
        permitted: bounds.kept,
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, sets)?;
    seccompiler::apply_filter(&bounds.filter).map_err(|error| failed("system calls", error))
}
