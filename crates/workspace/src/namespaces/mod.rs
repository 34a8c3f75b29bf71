//! Commands of a session in namespaces of their own (user, mount, process, network, IPC), over Landlock and seccomp.
//!
//! The agent starts itself again (or the launcher that an embedding program names, which calls [`run_launcher`]): the
//! *stage* makes the namespaces and the mounts, and starts the *keeper*, process 1 of the session. The keeper starts each
//! command from a thread of its own that has given up everything first: the network, Landlock, capabilities, system calls. It
//! cannot be traced or signalled by commands. The agent speaks to it through a socket; the end of that socket, however the
//! agent comes to its end, ends the keeper, and with it the kernel ends every process of the session.

mod doors;
mod keeper;
mod mounts;
mod net;
mod protected;
mod stage;
mod watch;
mod wire;

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::child::Launch;
use wire::{Fields, FrameReader, receive, send};

/// How long the namespaces may take to be made.
const START: Duration = Duration::from_secs(20);
/// How long the end of a session waits for its processes to be gone.
const END: Duration = Duration::from_secs(2);

/// A program that becomes the keeper of a session: it must do nothing before it calls [`run_launcher`], and have one thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launcher {
    /// The program; absolute.
    pub program: PathBuf,
    /// What it is given.
    pub arguments: Vec<OsString>,
}

/// What the namespaces of a session show. All paths are absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// What makes them.
    pub launcher: Launcher,
    /// The user's home, below which programs keep secrets.
    pub home: Option<PathBuf>,
    /// What is hidden besides the list of secrets: our own directory.
    pub hidden: Vec<PathBuf>,
    /// Directories that can be read although they lie in what is hidden; made (0700) when they are missing.
    pub visible: Vec<PathBuf>,
    /// What passes between the network of the session and that of the user.
    pub doors: Doors,
}

/// What a person opened between the network of a session and this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Doors {
    /// Ports on which commands listen and which the user's programs reach, at the same port of 127.0.0.1. While another
    /// program has the port it is tried again each second.
    pub ports: Vec<u16>,
    /// Services (`HOST:PORT`) that commands reach, at the same port of 127.0.0.1.
    pub services: Vec<String>,
    /// Sockets with a path that commands reach; absolute.
    pub sockets: Vec<PathBuf>,
}

/// What one command may do besides, because a person allowed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CommandNeeds {
    /// Use the network as the user can.
    pub network: bool,
    /// Change what [configures](crate::configures) git, agents, editors and shells.
    pub protected: bool,
}

/// What the agent tells the stage and the keeper.
#[derive(Debug)]
struct Setup {
    write: Vec<PathBuf>,
    /// Those of them in which something configures programs.
    protects: Vec<PathBuf>,
    /// Caches over which something lies, and in the same order what.
    caches: Vec<PathBuf>,
    layers: Vec<PathBuf>,
    visible: Vec<PathBuf>,
    hidden: Vec<PathBuf>,
    temporary: PathBuf,
    home: PathBuf,
    /// Where programs are looked up.
    path: OsString,
    open: bool,
    ports: Vec<OsString>,
    services: Vec<OsString>,
    sockets: Vec<PathBuf>,
}

impl Setup {
    fn encode(&self) -> Vec<u8> {
        let mut fields = Fields::default();
        for list in [&self.write, &self.protects, &self.caches, &self.layers, &self.visible, &self.hidden] {
            fields.put_list(list.iter());
        }
        fields.put(&self.temporary);
        fields.put(&self.home);
        fields.put(&self.path);
        fields.put_flag(self.open);
        fields.put_list(self.ports.iter());
        fields.put_list(self.services.iter());
        fields.put_list(self.sockets.iter());
        fields.0
    }

    fn decode(bytes: &[u8]) -> io::Result<Self> {
        let mut fields = FrameReader(bytes);
        Ok(Self {
            write: fields.paths()?,
            protects: fields.paths()?,
            caches: fields.paths()?,
            layers: fields.paths()?,
            visible: fields.paths()?,
            hidden: fields.paths()?,
            temporary: fields.path()?,
            home: fields.path()?,
            path: fields.text()?,
            open: fields.flag()?,
            ports: fields.list()?,
            services: fields.list()?,
            sockets: fields.paths()?,
        })
    }
}

/// What the stage says first: that it waits for its users to be mapped.
const MAP: &[u8] = b"map";
/// What the keeper says when it can start commands. Anything else is why not.
const READY: &[u8] = b"ready";
/// What the agent says to get a listener in the network of the session. No start of a command is as short.
const LISTEN: &[u8] = b"listen";

/// What the commands of a session may write, and reach.
#[derive(Debug)]
pub(crate) struct SessionBounds<'a> {
    pub(crate) write: &'a [PathBuf],
    /// Directories of `write` in which something configures programs.
    pub(crate) protects: Vec<PathBuf>,
    /// Of `write`, caches that are only read, and where what is written there goes.
    pub(crate) layered: Vec<(PathBuf, PathBuf)>,
    /// For commands to write; its `tmp` is what they see as `/tmp`.
    pub(crate) temporary: &'a Path,
    /// Whether they use the network of the user.
    pub(crate) open: bool,
}

/// Namespaces that are there. Dropped, they end with every process in them.
#[derive(Debug)]
pub(crate) struct Session {
    socket: UnixStream,
    stage: Child,
    /// Git directories that were there before the first command.
    repositories: Vec<PathBuf>,
}

impl Session {
    /// Makes them.
    ///
    /// # Errors
    /// Why they cannot be made here.
    pub(crate) fn start(namespaces: &Namespaces, bounds: SessionBounds<'_>) -> io::Result<Self> {
        let SessionBounds { write, protects, layered, temporary, open } = bounds;
        let (caches, layers) = layered.into_iter().unzip();
        let Namespaces { launcher, home, hidden, visible, doors } = namespaces;
        let mut hidden = hidden.clone();
        hidden.extend(protected::secrets(home.as_deref()));
        for path in visible {
            // What is not there cannot be shown later. An error is met by who writes there.
            std::fs::DirBuilder::new().mode(0o700).create(path).ok();
        }
        let setup = Setup {
            write: write.to_vec(),
            protects,
            caches,
            layers,
            visible: visible.clone(),
            hidden,
            temporary: temporary.to_owned(),
            home: home.clone().unwrap_or_default(),
            path: std::env::var_os("PATH").unwrap_or_default(),
            open,
            ports: doors.ports.iter().map(|port| port.to_string().into()).collect(),
            services: doors.services.iter().map(OsString::from).collect(),
            sockets: doors.sockets.clone(),
        };
        let (socket, theirs) = UnixStream::pair()?;
        let stage = Command::new(&launcher.program)
            .args(&launcher.arguments)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", launcher.program.display()))
            })?;
        let repositories = setup.protects.iter().flat_map(|root| protected::repositories(root)).collect();
        let session = Self { socket, stage, repositories };
        session.prepare(&setup.encode())?;
        Ok(session)
    }

    fn prepare(&self, setup: &[u8]) -> io::Result<()> {
        self.socket.set_read_timeout(Some(START))?;
        send(self.socket.as_fd(), setup, &[])?;
        loop {
            let (said, _) = receive(self.socket.as_fd())?.ok_or_else(gone)?;
            match said.as_slice() {
                MAP => {
                    let mapped = self.map_users();
                    let answer = mapped.as_ref().err().map(ToString::to_string).unwrap_or_default();
                    send(self.socket.as_fd(), answer.as_bytes(), &[])?;
                    mapped?;
                    // For the keeper, which the stage starts.
                    send(self.socket.as_fd(), setup, &[])?;
                }
                READY => break,
                why => return Err(io::Error::other(String::from_utf8_lossy(why).into_owned())),
            }
        }
        self.socket.set_read_timeout(None)
    }

    /// Each user of ours is the same one inside. An administrator can map all; a user maps himself, in the stage.
    fn map_users(&self) -> io::Result<()> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        for map in ["uid_map", "gid_map"] {
            let ours = std::fs::read_to_string(format!("/proc/self/{map}"))?;
            let mut theirs = String::new();
            for line in ours.lines() {
                if let [first, _, count] = line.split_ascii_whitespace().collect::<Vec<_>>().as_slice() {
                    theirs.push_str(&format!("{first} {first} {count}\n"));
                }
            }
            std::fs::write(format!("/proc/{}/{map}", self.stage.id()), theirs)
                .map_err(|error| io::Error::new(error.kind(), format!("{map}: {error}")))?;
        }
        Ok(())
    }

    /// Starts a command. Its process as we see it, and a pipe on which the keeper tells how it ended, as `waitpid` would.
    ///
    /// # Errors
    /// The outer one: the keeper is gone. The inner one: it could not be started.
    pub(crate) fn launch(
        &self,
        launch: &Launch,
        needs: CommandNeeds,
    ) -> io::Result<io::Result<(Pid, OwnedFd)>> {
        let (status, ends) = io::pipe()?;
        let nothing;
        let input = match &launch.input {
            Some(input) => input.as_fd(),
            None => {
                nothing = File::open("/dev/null")?;
                nothing.as_fd()
            }
        };
        let mut fields = Fields::default();
        fields.put(&launch.program);
        fields.put(&launch.cwd);
        fields.put_list(launch.arguments.iter());
        fields.put_list(launch.environment.keys());
        launch.environment.values().for_each(|value| fields.put(value));
        fields.put_flag(needs.network);
        fields.put_flag(needs.protected);
        let sent = send(self.socket.as_fd(), &fields.0, &[input, launch.output.as_fd(), ends.as_fd()]);
        drop(ends);
        // Whatever is wrong with the socket, the other side is not there any more.
        let said = sent.and_then(|()| receive(self.socket.as_fd())).map_err(|_| gone())?;
        let (said, files) = said.ok_or_else(gone)?;
        let errno = number(&said)?;
        if errno != 0 {
            return Ok(Err(io::Error::from_raw_os_error(errno)));
        }
        let handle = files.into_iter().next().ok_or_else(gone)?;
        Ok(outer(&handle).map(|pid| (pid, status.into())))
    }

    /// A listener on a free port of `localhost` in the network of the session.
    ///
    /// # Errors
    /// When there is no such network, or the keeper is gone.
    pub(crate) fn listen(&self) -> io::Result<TcpListener> {
        send(self.socket.as_fd(), LISTEN, &[])?;
        let (said, files) = receive(self.socket.as_fd())?.ok_or_else(gone)?;
        match number(&said)? {
            0 => files.into_iter().next().map(TcpListener::from).ok_or_else(gone),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    /// A command that was started begins: what is there now is closed to it. `alone`: no other one is on its way, to which
    /// what is new could belong.
    ///
    /// # Errors
    /// When it could not be closed, or the keeper is gone.
    pub(crate) fn begin(&self, alone: bool) -> io::Result<()> {
        send(self.socket.as_fd(), &[u8::from(alone)], &[])?;
        let (said, _) = receive(self.socket.as_fd())?.ok_or_else(gone)?;
        match number(&said)? {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.socket.shutdown(std::net::Shutdown::Both).ok();
        let since = Instant::now();
        while let Ok(None) = self.stage.try_wait() {
            if since.elapsed() > END {
                // A process that hangs inside the kernel holds it up.
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // What the last of its processes left.
        self.repositories.iter().for_each(|git| protected::disable_commondir(git));
    }
}

/// What is to be read-only below a directory where commands may write, as far as it is there. Gives git directories what could be
/// made otherwise.
pub(crate) fn protected_places(root: &Path) -> Vec<PathBuf> {
    protected::repositories(root).iter().for_each(|git| protected::complete(git));
    protected::places(root)
}

fn number(said: &[u8]) -> io::Result<i32> {
    said.try_into().map(i32::from_le_bytes).map_err(|_| gone())
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the process that keeps the sandbox is gone")
}

/// No process has this number: for one that is gone already.
const GONE: i32 = i32::MAX;

/// The number of a process in another namespace, as we see it. A shell that cannot read its line at all does not wait at its
/// gate, and may be gone.
fn outer(handle: &OwnedFd) -> io::Result<Pid> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", handle.as_raw_fd()))?;
    let number: Option<i32> = info.lines().find_map(|line| line.strip_prefix("Pid:")?.trim().parse().ok());
    let number = number.map(|number| if number > 0 { number } else { GONE });
    number.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("its process has no number here"))
}

/// The first thing that a [`Launcher`] does: with the socket of the agent as its input, it becomes the stage of a session, and then
/// its keeper. `again`: how it is started once more, with which it comes back here.
pub fn run_launcher(again: &Launcher) -> ExitCode {
    // What the agent was started with would be in each command.
    for file in crate::child::inherited().collect::<Vec<_>>() {
        nix::unistd::close(file).ok();
    }
    let Ok(socket) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    // Process 1 was started by the stage.
    let done = if std::process::id() == 1 { keeper::run(&socket) } else { stage::run(&socket, again) };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when the agent is gone.
            send(socket.as_fd(), error.to_string().as_bytes(), &[]).ok();
            ExitCode::FAILURE
        }
    }
}

/// An empty file, which covers others.
pub(super) const EMPTY: &str = "/dev/.empty";

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
