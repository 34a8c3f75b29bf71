//! Nothing outlives a benchmark: what it started is killed and its files are removed, also on Ctrl-C.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::unistd::Pid;

/// The longest that one run of one program may take.
const LIMIT: Duration = Duration::from_secs(900);

/// The process group at work. Held locked while a program starts, so that none can start unseen.
static RUNNING: Mutex<Option<Pid>> = Mutex::new(None);

/// From here on the signals that end programs also kill what is measured and remove `scratch`. For a process that
/// has no other threads yet: they inherit it that these signals are blocked, and so do children.
pub(super) fn watch(scratch: PathBuf) -> Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block().context("cannot block signals")?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let Ok(signal) = signals.wait() else { return };
        // Kept until the end: no program starts any more.
        let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        kill(*running);
        // The dead may still be writing when the first attempt looks.
        for _ in 0..50 {
            if std::fs::remove_dir_all(&scratch).is_ok() || !scratch.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        eprintln!("bench: stopped by {signal}");
        std::process::exit(128 + signal as i32);
    })?;
    Ok(())
}

/// Runs a program in a process group of its own and gives its output; kills the group when it takes too long.
pub(super) fn output(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let (child, group) = {
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let child = command.spawn().with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let group = Pid::from_raw(i32::try_from(child.id())?);
        *running = Some(group);
        (child, group)
    };
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(child.wait_with_output()));
    let output = told.recv_timeout(LIMIT);
    if output.is_err() {
        kill(Some(group));
    }
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = None;
    match output {
        Ok(output) => output.context("cannot wait for the program"),
        Err(_) => bail!("it was killed after {} s", LIMIT.as_secs()),
    }
}

/// Starts a program in a process group of its own; [`end`] kills it.
pub(super) fn start(command: &mut Command) -> Result<(Child, Pid)> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let child = command.process_group(0).spawn();
    let child = child.with_context(|| format!("cannot start {:?}", command.get_program()))?;
    let group = Pid::from_raw(i32::try_from(child.id())?);
    *running = Some(group);
    Ok((child, group))
}

/// Kills what [`start`] has started.
pub(super) fn end(child: &mut Child, group: Pid) {
    kill(Some(group));
    // It is dead or was never ours.
    child.wait().ok();
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

fn kill(group: Option<Pid>) {
    if let Some(group) = group {
        // A group that is gone already is what we want.
        killpg(group, Signal::SIGKILL).ok();
    }
}
