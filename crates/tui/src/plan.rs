//! What would become of files, in lines.

use quipu::{FileConflict, FilePlan};
use quipu_protocol::FileState;

/// One line for each file; those with `!` would lose what is in them.
pub(crate) fn lines(plan: &FilePlan) -> Vec<String> {
    if plan.is_empty() {
        return vec!["No files would change.".into()];
    }
    let changes = plan.shown().map(|change| {
        let sign = match (&change.before, &change.after) {
            (FileState::Absent, _) => "+",
            (_, FileState::Absent) => "-",
            (_, _) => "~",
        };
        let is_directory = change.before.is_directory() || change.after.is_directory();
        let what = format!("{sign} {}{}", crate::clean(&change.path), if is_directory { "/" } else { "" });
        let shown = match (&change.after, &change.before) {
            (FileState::File { size, mode, .. }, FileState::File { mode: old, .. }) if old != mode => {
                format!("{size} bytes, mode {mode:o} (now {old:o})")
            }
            (FileState::File { size, .. }, _) => format!("{size} bytes"),
            (FileState::Link { target }, _) => format!("link to {}", crate::clean(target)),
            (FileState::Directory { .. }, _) => "empty directory".into(),
            (FileState::Absent | FileState::Unknown { .. }, _) => "removed".into(),
        };
        match change.conflict {
            None => format!("  {what}  {shown}"),
            Some(FileConflict::Changed) => format!("! {what}  {shown}; changed since then by somebody else"),
            Some(FileConflict::Lost(why)) => {
                format!("! {what}  {shown}; its current content would be lost: {why}")
            }
        }
    });
    let stays = plan.stays().map(|line| format!("  {}", crate::clean(&line)));
    changes.chain(stays).collect()
}
