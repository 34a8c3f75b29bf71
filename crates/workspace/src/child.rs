//! A shell as a child process: started without copying our memory where that can be done, and waited for.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::Metadata;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::process::{Pid, WaitOptions, waitpid};
#[cfg(target_os = "linux")]
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::ShellEnd;

/// What to start and how.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    /// Without the program's own name.
    pub(crate) arguments: Vec<OsString>,
    /// All of it; nothing is inherited.
    pub(crate) environment: BTreeMap<OsString, OsString>,
    pub(crate) cwd: PathBuf,
    /// Whether `cwd` is the directory of this process.
    pub(crate) here: bool,
    /// Where input comes from; nothing otherwise.
    pub(crate) input: Option<OwnedFd>,
    /// For both outputs.
    pub(crate) output: OwnedFd,
}

/// Whether a directory with this metadata is the one of this process.
pub(crate) fn is_here(directory: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(".").is_ok_and(|here| (here.dev(), here.ino()) == (directory.dev(), directory.ino()))
}

impl Launch {
    /// Starts it in a session of its own.
    ///
    /// Unless it is to run in the directory of this process, the thread that calls this must have nothing else to
    /// do: it may come to have a directory of its own.
    pub(crate) fn start(self) -> io::Result<Pid> {
        #[cfg(target_os = "linux")]
        if self.here || enter(&self.cwd).is_ok() {
            return self.spawn();
        }
        self.fork()
    }

    /// As `vfork` does: our memory is lent to the child until it is another program, instead of being copied.
    #[cfg(target_os = "linux")]
    fn spawn(self) -> io::Result<Pid> {
        use std::ffi::CString;
        use std::os::fd::AsRawFd as _;
        use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

        use nix::fcntl::OFlag;
        use nix::spawn::{PosixSpawnAttr, PosixSpawnFileActions, PosixSpawnFlags, posix_spawn};
        use nix::sys::signal::{SigSet, Signal};
        use nix::sys::stat::Mode;

        let mut files = PosixSpawnFileActions::init()?;
        match &self.input {
            Some(input) => files.add_dup2(input.as_raw_fd(), 0)?,
            None => files.add_open(0, "/dev/null", OFlag::O_RDONLY, Mode::empty())?,
        }
        files.add_dup2(self.output.as_raw_fd(), 1)?;
        files.add_dup2(self.output.as_raw_fd(), 2)?;
        for inherited in inherited() {
            files.add_close(inherited)?;
        }
        let mut attributes = PosixSpawnAttr::init()?;
        attributes.set_flags(
            PosixSpawnFlags::POSIX_SPAWN_SETSIGDEF
                | PosixSpawnFlags::POSIX_SPAWN_SETSIGMASK
                | PosixSpawnFlags::from_bits_retain(libc::c_int::from(libc::POSIX_SPAWN_SETSID)),
        )?;
        // Rust programs ignore it, and others expect to die of it.
        attributes.set_sigdefault(&SigSet::from(Signal::SIGPIPE))?;
        attributes.set_sigmask(&SigSet::empty())?;
        let text = |bytes: Vec<u8>| {
            CString::new(bytes)
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "it holds a NUL character"))
        };
        let mut arguments = vec![text(self.program.as_os_str().as_bytes().to_vec())?];
        for argument in self.arguments {
            arguments.push(text(argument.into_vec())?);
        }
        let environment = self
            .environment
            .iter()
            .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<io::Result<Vec<_>>>()?;
        let pid = posix_spawn(self.program.as_path(), &files, &attributes, &arguments, &environment)?;
        Pid::from_raw(pid.as_raw()).ok_or_else(|| io::Error::other("it has no process id"))
    }

    /// By a copy of this process, which can change its directory.
    fn fork(self) -> io::Result<Pid> {
        use process_wrap::std::{CommandWrap, ProcessSession};
        use std::process::Stdio;

        let errors = self.output.try_clone()?;
        let mut command = CommandWrap::with_new(&self.program, |command| {
            command
                .args(&self.arguments)
                .env_clear()
                .envs(&self.environment)
                .current_dir(&self.cwd)
                .stdin(self.input.map_or_else(Stdio::null, Stdio::from))
                .stdout(self.output)
                .stderr(errors);
        });
        let child = command.wrap(ProcessSession).spawn()?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        pid.ok_or_else(|| io::Error::other("it has no process id"))
    }
}

/// Gives this thread a directory of its own. Some containers do not allow that.
#[cfg(target_os = "linux")]
fn enter(directory: &std::path::Path) -> io::Result<()> {
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)?;
    std::env::set_current_dir(directory)
}

/// Open files of this process that its own programs get unless they are closed: what it was started with itself, too. Those that end
/// by themselves are among them. Nothing is known where the system tells of none, as in the keeper, which closed all of them.
#[cfg(target_os = "linux")]
pub(crate) fn inherited() -> impl Iterator<Item = std::os::fd::RawFd> {
    let files = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    files.filter_map(|file| file.file_name().to_str()?.parse().ok()).filter(|file| *file > 2)
}

/// Whether the environment makes bash do something before its command line, or do it otherwise.
pub(crate) fn prepares_bash(environment: &BTreeMap<OsString, OsString>) -> bool {
    environment.keys().any(|name| {
        name == "BASH_ENV" || name == "SHELLOPTS" || name.as_encoded_bytes().starts_with(b"BASH_FUNC_")
    })
}

/// A child process that nobody else waits for.
#[derive(Debug)]
pub(crate) struct Child {
    pid: Pid,
    notice: io::Result<Notice>,
    ended: Option<ShellEnd>,
}

/// How its end is told.
#[derive(Debug)]
enum Notice {
    #[cfg(target_os = "linux")]
    Handle(AsyncFd<OwnedFd>),
    /// Some child of ours ended.
    Signal(Signal),
    /// It is a child of the keeper, which tells its exit code and signal.
    #[cfg(target_os = "linux")]
    Told(AsyncFd<OwnedFd>),
}

impl Child {
    /// For a child that runs or waits to be waited for.
    pub(crate) fn new(pid: Pid) -> Self {
        #[cfg(target_os = "linux")]
        if let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::NONBLOCK) {
            #[expect(
                deprecated,
                reason = "its successor is `unsafe`; an `OwnedFd` stays the same descriptor"
            )]
            let handle = AsyncFd::with_interest(handle, tokio::io::Interest::READABLE);
            return Self { pid, notice: handle.map(Notice::Handle), ended: None };
        }
        Self { pid, notice: signal(SignalKind::child()).map(Notice::Signal), ended: None }
    }

    /// For a child of the keeper of a session, which nobody is on other systems.
    #[cfg(not(target_os = "linux"))]
    pub(crate) fn kept(pid: Pid, _: OwnedFd) -> Self {
        Self::new(pid)
    }

    /// For a child of the keeper of a session.
    #[cfg(target_os = "linux")]
    pub(crate) fn kept(pid: Pid, status: OwnedFd) -> Self {
        let told = rustix::fs::fcntl_setfl(&status, rustix::fs::OFlags::NONBLOCK).map_err(io::Error::from);
        #[expect(deprecated, reason = "its successor is `unsafe`; an `OwnedFd` stays the same descriptor")]
        let told = told.and_then(|()| AsyncFd::with_interest(status, tokio::io::Interest::READABLE));
        Self { pid, notice: told.map(Notice::Told), ended: None }
    }

    /// Waits for its end, which can be asked for again. Nothing is lost when the future is dropped.
    pub(crate) async fn wait(&mut self) -> io::Result<ShellEnd> {
        loop {
            if let Some(end) = self.try_wait()? {
                return Ok(end);
            }
            match &mut self.notice {
                #[cfg(target_os = "linux")]
                Ok(Notice::Handle(handle) | Notice::Told(handle)) => handle.readable().await?.clear_ready(),
                Ok(Notice::Signal(signal)) => drop(signal.recv().await),
                Err(error) => return Err(io::Error::new(error.kind(), error.to_string())),
            }
        }
    }

    /// Its end, if it came. Gives its number back to the system.
    pub(crate) fn try_wait(&mut self) -> io::Result<Option<ShellEnd>> {
        #[cfg(target_os = "linux")]
        if let Ok(Notice::Told(told)) = &self.notice {
            if self.ended.is_none() {
                self.ended = read_end(told.get_ref())?;
            }
            return Ok(self.ended);
        }
        if self.ended.is_none() {
            self.ended = waitpid(Some(self.pid), WaitOptions::NOHANG)?.map(|(_, status)| {
                match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => ShellEnd::Exited(code),
                    (None, signal) => ShellEnd::Signalled(signal.unwrap_or(0)),
                }
            });
        }
        Ok(self.ended)
    }
}

/// What the keeper told, if it did: two numbers. When it is gone, everything in its namespaces was killed.
#[cfg(target_os = "linux")]
fn read_end(told: &OwnedFd) -> io::Result<Option<ShellEnd>> {
    let mut end = [0; 8];
    // Written at once, and shorter than what a pipe keeps together.
    match rustix::io::read(told, &mut end) {
        Ok(8) => {
            let [a, b, c, d, e, f, g, h] = end;
            let (code, signal) = (i32::from_le_bytes([a, b, c, d]), i32::from_le_bytes([e, f, g, h]));
            Ok(Some(if code >= 0 { ShellEnd::Exited(code) } else { ShellEnd::Signalled(signal) }))
        }
        Ok(_) => Ok(Some(ShellEnd::Signalled(nix::libc::SIGKILL))),
        Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::path::Path;

    use super::*;

    /// Starts a shell in `cwd` in some way, checks what it is given, and waits for it in some way.
    async fn check(cwd: &Path, start: fn(Launch) -> io::Result<Pid>, by_signal: bool) {
        let (input, mut gate) = io::pipe().unwrap();
        let (mut reader, output) = io::pipe().unwrap();
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), "read -r x; echo $x; pwd -P; echo $GIVEN$HOME >&2; exit 3".into()],
            environment: BTreeMap::from([("GIVEN".into(), "a b".into())]),
            cwd: cwd.to_path_buf(),
            here: is_here(&cwd.metadata().unwrap()),
            input: Some(input.into()),
            output: output.into(),
        };
        let pid = start(launch).unwrap();
        assert_eq!(rustix::process::getsid(Some(pid)).unwrap(), pid, "a session of its own");
        let mut child = if by_signal {
            Child { pid, notice: signal(SignalKind::child()).map(Notice::Signal), ended: None }
        } else {
            Child::new(pid)
        };
        assert_eq!(child.try_wait().unwrap(), None);
        gate.write_all(b"come\n").unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("come\n{}\na b\n", cwd.canonicalize().unwrap().display()));
        for _ in 0..2 {
            assert_eq!(child.wait().await.unwrap(), ShellEnd::Exited(3));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn files_that_this_process_was_started_with_stay_its_own() {
        let inherited = nix::unistd::dup(std::fs::File::open("/").unwrap()).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&inherited);
        assert!(rustix::io::fcntl_getfd(&inherited).unwrap().is_empty(), "it would be passed on");
        let (mut reader, output) = io::pipe().unwrap();
        let launch = Launch {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), format!("echo begun; readlink /proc/$$/fd/{number}").into()],
            environment: BTreeMap::new(),
            cwd: "/".into(),
            here: false,
            input: None,
            output: output.into(),
        };
        let pid = std::thread::spawn(move || launch.start()).join().unwrap().unwrap();
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "begun\n");
        waitpid(Some(pid), WaitOptions::empty()).unwrap();
    }

    #[tokio::test]
    async fn every_way_to_start_and_to_wait_is_the_same() {
        let elsewhere = tempfile::tempdir().unwrap();
        let here = std::env::current_dir().unwrap();
        let in_a_thread = |launch: Launch| std::thread::spawn(move || launch.start()).join().unwrap();
        for by_signal in [false, true] {
            check(&here, Launch::start, by_signal).await;
            check(elsewhere.path(), in_a_thread, by_signal).await;
            check(elsewhere.path(), Launch::fork, by_signal).await;
        }
        assert_eq!(std::env::current_dir().unwrap(), here);
    }
}
