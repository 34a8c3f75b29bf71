//! Where there are no namespaces.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::Pid;

use crate::child::Launch;

/// A program that becomes the keeper of a session; never started here.
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
    /// Change what configures git, agents, editors and shells.
    pub protected: bool,
}

/// What the commands of a session may write, and reach.
#[derive(Debug)]
#[expect(dead_code, reason = "it says what would be, as elsewhere")]
pub(crate) struct SessionBounds<'a> {
    pub(crate) write: &'a [PathBuf],
    pub(crate) protects: Vec<PathBuf>,
    pub(crate) layered: Vec<(PathBuf, PathBuf)>,
    pub(crate) temporary: &'a Path,
    pub(crate) open: bool,
}

/// There are none here.
#[derive(Debug)]
pub(crate) struct Session;

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "this system has no namespaces")
}

impl Session {
    pub(crate) fn start(_: &Namespaces, _: SessionBounds<'_>) -> io::Result<Self> {
        Err(missing())
    }

    pub(crate) fn begin(&self, _: bool) -> io::Result<()> {
        Err(missing())
    }

    pub(crate) fn launch(&self, _: &Launch, _: CommandNeeds) -> io::Result<io::Result<(Pid, OwnedFd)>> {
        Err(missing())
    }

    pub(crate) fn listen(&self) -> io::Result<std::net::TcpListener> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Fails: there is nothing to launch.
pub fn run_launcher(_: &Launcher) -> ExitCode {
    ExitCode::FAILURE
}

/// What is to be read-only below a directory where commands may write, as far as it is there.
pub(crate) fn protected_places(root: &Path) -> Vec<PathBuf> {
    crate::protected::names()
        .map(|name| root.join(name))
        .filter(|path| path.symlink_metadata().is_ok())
        .collect()
}
