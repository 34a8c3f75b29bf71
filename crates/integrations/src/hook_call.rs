//! What a host tells when it calls, in words that are the same for all.

use std::path::PathBuf;

use serde_json::Value;

/// A call of a hook.
#[derive(Debug, Clone, PartialEq)]
pub struct HookCall {
    /// The host's own id of the session.
    pub session: Option<String>,
    /// The directory that the session works in.
    pub directory: Option<PathBuf>,
    /// The file that the host keeps the session in.
    pub transcript: Option<PathBuf>,
    /// What happened.
    pub occasion: Occasion,
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Occasion {
    /// A session begins without what was said before.
    Start,
    /// The user sent this.
    Prompt(String),
    /// The model is about to change files, or has just read one.
    Edit(Vec<EditTarget>),
    /// A command failed.
    Failure(CommandFailure),
    /// A turn or a session ended: what was said can be taken in.
    TurnEnd,
    /// Nothing that is answered.
    None,
}

/// A place that is about to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EditTarget {
    /// The file, as the host names it.
    pub path: PathBuf,
    /// The text that is to be replaced; `None` for the whole file.
    pub old: Option<String>,
}

/// A command that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandFailure {
    /// The command.
    pub command: String,
    /// What it printed.
    pub output: String,
    /// Whether the host says that it failed. Otherwise only the output can tell.
    pub sign: FailureSign,
}

/// How a failure is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureSign {
    /// The host says so.
    Reported,
    /// The output looks like it.
    Guessed,
}

/// A text of a payload, below members.
pub(crate) fn text(payload: &Value, members: &[&str]) -> Option<String> {
    let found = members.iter().try_fold(payload, |value, member| value.get(member))?;
    found.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

/// The place of an edit in a tool's arguments: a path, and what is replaced.
pub(crate) fn edit_target(input: &Value, path: &str, old: &str) -> Vec<EditTarget> {
    let Some(path) = text(input, &[path]) else { return Vec::new() };
    vec![EditTarget { path: PathBuf::from(path), old: text(input, &[old]) }]
}

/// An edit of these places; nothing where there is none.
pub(crate) fn edit(targets: Vec<EditTarget>) -> Occasion {
    if targets.is_empty() { Occasion::None } else { Occasion::Edit(targets) }
}

/// The files of a patch that exist before it, with the lines of the first place that each changes.
pub(crate) fn patched(patch: &str) -> Vec<EditTarget> {
    /// Files of one patch that are looked at.
    const FILES: usize = 4;
    let mut targets: Vec<EditTarget> = Vec::new();
    let mut is_first_place = false;
    for line in patch.lines() {
        let file = line.strip_prefix("*** Update File: ").or_else(|| line.strip_prefix("*** Delete File: "));
        if let Some(file) = file {
            if targets.len() == FILES {
                break;
            }
            targets.push(EditTarget { path: PathBuf::from(file.trim()), old: None });
            is_first_place = true;
        } else if line.starts_with("*** ") {
            is_first_place = false;
        } else if let Some(target) = targets.last_mut().filter(|_| is_first_place) {
            match (line.chars().next(), &mut target.old) {
                (Some('-' | ' '), old) => {
                    let old = old.get_or_insert_default();
                    old.push_str(&line[1..]);
                    old.push('\n');
                }
                (Some('@'), Some(_)) => is_first_place = false,
                (Some(_) | None, _) => {}
            }
        }
    }
    targets
}

/// The exit code that a text names at its end: `exit code 3` in any case, with a colon or none, within the last lines.
pub(crate) fn exit_code_of(text: &str) -> Option<i64> {
    /// Bytes at the end that are looked at.
    const END: usize = 400;
    let mut from = text.len().saturating_sub(END);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let end = text[from..].to_lowercase();
    let at = end.rfind("exit code")?;
    let rest = end[at + "exit code".len()..].trim_start_matches([':', ' ']);
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
