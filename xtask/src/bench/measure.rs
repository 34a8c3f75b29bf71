//! One run of a program: wall time, processor time, peak memory.
//!
//! The system reports memory as the most that any finished child ever had, so each run gets a process of its own:
//! this program starts itself as a thin parent, which starts the program and prints what it cost.

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::guard;

/// The hidden argument of `cargo xtask bench` that makes it the thin parent.
pub(super) const CHILD: &str = "--measure-child";
/// How much of what a failed program said is repeated, bytes from its end.
const SAID: usize = 2_000;

/// What one run cost.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Cost {
    /// When the program was started, by [`now_ns`].
    pub(crate) started_ns: u64,
    /// Milliseconds from start to exit.
    pub(crate) wall_ms: f64,
    /// Milliseconds of user and system time, grandchildren included.
    pub(crate) cpu_ms: f64,
    /// Most resident memory of the largest process, MiB.
    pub(crate) peak_mib: f64,
}

/// Nanoseconds on a clock that all processes of the machine share and nobody sets.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(std::time::Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs `command` once with the variables given to it and no others, and reports its cost; failing is an error.
pub(super) fn once(command: &Command) -> Result<Cost> {
    let mut parent = Command::new(std::env::current_exe().context("cannot find xtask itself")?);
    parent.args(["bench", CHILD]).arg(command.get_program()).args(command.get_args()).env_clear();
    for (key, value) in command.get_envs() {
        if let Some(value) = value {
            parent.env(key, value);
        }
    }
    if let Some(folder) = command.get_current_dir() {
        parent.current_dir(folder);
    }
    let name = || {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    };
    let output = guard::output(&mut parent).with_context(name)?;
    if !output.status.success() {
        let said = &output.stderr[output.stderr.len().saturating_sub(SAID)..];
        bail!("{} failed: {}", name(), String::from_utf8_lossy(said).trim());
    }
    serde_json::from_slice(&output.stdout).context("the measuring parent printed something else")
}

/// The thin parent: its standard output is the cost as JSON, the program's own output goes nowhere.
pub(super) fn child(command: &[String]) -> Result<bool> {
    let (program, arguments) = command.split_first().context("nothing to measure")?;
    let started_ns = now_ns();
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {program}"))?;
    let wall = start.elapsed();
    if !status.success() {
        bail!("{program} ended with {status}");
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("the system does not say what the run cost")?;
    let seconds = |time: nix::sys::time::TimeVal| {
        std::time::Duration::from_secs(time.tv_sec().unsigned_abs())
            + std::time::Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or_default())
    };
    // Linux counts in KiB, macOS in bytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1_024 };
    let peak_bytes = usage.max_rss().unsigned_abs() * unit;
    let cost = Cost {
        started_ns,
        wall_ms: wall.as_secs_f64() * 1_000.0,
        cpu_ms: (seconds(usage.user_time()) + seconds(usage.system_time())).as_secs_f64() * 1_000.0,
        peak_mib: (peak_bytes >> 10) as f64 / 1_024.0,
    };
    println!("{}", serde_json::to_string(&cost)?);
    Ok(true)
}
