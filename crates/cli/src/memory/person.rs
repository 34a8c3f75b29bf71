//! Commands that speak for a person are a person's: no command of a session gives them.

use std::ffi::OsStr;

use crate::exit::Failure;

/// What every command of a session, and what it starts, has in its environment.
const MARK: &str = "QUIPU_PROCESS";
/// Processes above this one that are looked at.
#[cfg(target_os = "linux")]
const ABOVE: usize = 64;

/// # Errors
/// Where a session's tool, or what it started, gives the command.
pub(super) fn of_a_person() -> Result<(), Failure> {
    if std::env::vars_os().any(|(name, _)| name == OsStr::new(MARK)) || is_below_a_tool() {
        return Err(Failure::usage(
            "this command is a person's, and a command of a session gave it; run it in a terminal of your own",
        ));
    }
    Ok(())
}

/// Whether a process above was started by a session: its own environment says so, also where ours was emptied.
#[cfg(target_os = "linux")]
fn is_below_a_tool() -> bool {
    let mark = format!("{MARK}=");
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..ABOVE {
        let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else { return false };
        if environment.split(|byte| *byte == 0).any(|pair| pair.starts_with(mark.as_bytes())) {
            return true;
        }
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{process}/stat")) else { return false };
        // The name of the program may have brackets and spaces.
        let above = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(1)?.parse().ok());
        match above {
            Some(above) if above > 1 => process = above,
            _ => return false,
        }
    }
    false
}

#[cfg(not(target_os = "linux"))]
fn is_below_a_tool() -> bool {
    false
}
