//! Commands that speak for a person are a person's: no command of a session gives them.

use std::ffi::OsStr;

use quipu_store::SessionRow;

use crate::exit::Failure;

/// What every command of a session, and what it starts, has in its environment: a registry, a dot, whose command it is, a dot, a
/// number.
const MARK: &str = "QUIPU_PROCESS";
/// Whose the lines are that a person types in the terminal.
const PERSON: &str = "user";
/// Processes above this one that are looked at.
#[cfg(target_os = "linux")]
const ABOVE: usize = 64;

/// # Errors
/// Where a session's tool, or what it started, gives the command.
pub(crate) fn of_a_person() -> Result<(), Failure> {
    let own = std::env::vars_os().filter(|(name, _)| name == OsStr::new(MARK));
    if own.into_iter().any(|(_, mark)| is_of_a_tool(&mark.to_string_lossy())) || is_below_a_tool() {
        return Err(Failure::usage(
            "this command is a person's, and a command of a session gave it; run it in a terminal of your own",
        ));
    }
    Ok(())
}

/// The changes of a memory and the summaries of a past are a person's to take back or remove.
///
/// # Errors
/// As [`of_a_person`], for a session that holds them.
pub(crate) fn moved_by_a_person(row: &SessionRow) -> Result<(), Failure> {
    if quipu::takes_no_prompts(row) { of_a_person() } else { Ok(()) }
}

fn is_of_a_tool(mark: &str) -> bool {
    let owner = mark.split_once('.').and_then(|(_, rest)| rest.rsplit_once('.'));
    owner.is_none_or(|(owner, _)| owner != PERSON)
}

/// Whether a process above was started by a tool of a session: its own environment says so, also where ours was changed.
#[cfg(target_os = "linux")]
fn is_below_a_tool() -> bool {
    let name = format!("{MARK}=");
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..ABOVE {
        let Ok(environment) = std::fs::read(format!("/proc/{process}/environ")) else { return false };
        let marks =
            environment.split(|byte| *byte == 0).filter_map(|pair| pair.strip_prefix(name.as_bytes()));
        if marks.into_iter().any(|mark| is_of_a_tool(&String::from_utf8_lossy(mark))) {
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
