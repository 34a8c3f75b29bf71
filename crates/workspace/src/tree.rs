//! Finding and killing everything that a command started.

use std::collections::HashSet;
use std::io::Read;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

/// The environment variable that every process started by a registry inherits: the registry's id, a dot, the
/// owner, a dot, the number of the command.
pub(crate) const MARK: &str = "QUIPU_PROCESS";
/// The environment variable of guardians, which must outlive the trees that they guard.
pub(crate) const GUARDIAN: &str = "QUIPU_GUARDIAN";

/// Whom to kill.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Victims<'a> {
    /// One command: its group and session, its descendants, and who carries exactly this mark.
    Command { leader: i32, mark: &'a str },
    /// Everything whose mark begins so.
    Marked { prefix: &'a str },
}

/// Kills until nothing is found any more. On Linux this finds processes that left the group (`setsid`), were
/// orphaned, or both, through `/proc`; elsewhere only the group. Blocks for some milliseconds.
pub(crate) fn kill_tree(victims: Victims<'_>) {
    let mut known = HashSet::new();
    // Stopped first, so that none is born behind our back, until a look around finds nobody new.
    for _ in 0..64 {
        let before = known.len();
        for pid in find(victims, &mut known) {
            signal(pid, Signal::SIGSTOP);
        }
        if known.len() == before {
            break;
        }
    }
    if let Victims::Command { leader, .. } = victims {
        killpg(Pid::from_raw(leader), Signal::SIGKILL).ok();
    }
    // A process in an uninterruptible wait dies later.
    for round in 0..64u64 {
        let found = find(victims, &mut known);
        if found.is_empty() {
            return;
        }
        for pid in found {
            signal(pid, Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(round.min(8)));
    }
}

fn signal(pid: i32, signal: Signal) {
    // Gone meanwhile, or another user's: neither is ours to mend.
    kill(Pid::from_raw(pid), signal).ok();
}

/// Whether a group has living members.
pub(crate) fn group_exists(leader: i32) -> bool {
    if killpg(Pid::from_raw(leader), None) == Err(nix::errno::Errno::ESRCH) {
        return false;
    }
    // The dead count until someone waits for them.
    !cfg!(target_os = "linux") || processes().iter().any(|process| process.group == leader)
}

/// The live victims. `known` is everyone ever found: whose parent, group or session is known is a victim, too.
fn find(victims: Victims<'_>, known: &mut HashSet<i32>) -> Vec<i32> {
    let ourselves = i32::try_from(std::process::id()).unwrap_or(0);
    let mut processes = processes();
    processes
        .retain(|process| process.pid != ourselves && !process.has_environment(GUARDIAN, "", Match::Start));
    if let Victims::Command { leader, .. } = victims {
        known.insert(leader);
    }
    for process in &processes {
        let marked = match victims {
            Victims::Command { mark, .. } => process.has_environment(MARK, mark, Match::Whole),
            Victims::Marked { prefix } => process.has_environment(MARK, prefix, Match::Start),
        };
        if marked {
            known.insert(process.pid);
        }
    }
    loop {
        let before = known.len();
        for process in &processes {
            if [process.parent, process.group, process.session].iter().any(|id| known.contains(id)) {
                known.insert(process.pid);
            }
        }
        if known.len() == before {
            break;
        }
    }
    processes.iter().map(|process| process.pid).filter(|pid| known.contains(pid)).collect()
}

struct Process {
    pid: i32,
    parent: i32,
    group: i32,
    session: i32,
}

/// All live processes; those that are already dead are left out. None where there is no `/proc`.
fn processes() -> Vec<Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name, in parentheses, can hold anything; the fields follow the last one.
            let stat = std::str::from_utf8(stat.get(memchr::memrchr(b')', &stat)? + 1..)?).ok()?;
            let mut fields = stat.split_ascii_whitespace();
            if matches!(fields.next()?, "Z" | "X" | "x") {
                return None;
            }
            let mut number = || fields.next()?.parse().ok();
            Some(Process { pid, parent: number()?, group: number()?, session: number()? })
        })
        .collect()
}

#[derive(Clone, Copy)]
enum Match {
    Whole,
    Start,
}

impl Process {
    /// Whether it was started with `name` set to `value`, or to something that begins so.
    fn has_environment(&self, name: &str, value: &str, compare: Match) -> bool {
        let mut environment = Vec::new();
        // Not longer than what the kernel lets a program be started with.
        let read = std::fs::File::open(format!("/proc/{}/environ", self.pid))
            .and_then(|file| file.take(8 << 20).read_to_end(&mut environment));
        read.is_ok()
            && environment.split(|byte| *byte == 0).any(|variable| {
                let rest = variable.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
                rest.is_some_and(|found| match compare {
                    Match::Whole => found == value.as_bytes(),
                    Match::Start => found.starts_with(value.as_bytes()),
                })
            })
    }
}
