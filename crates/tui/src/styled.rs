//! Text that plays a role, before it has a colour.

use std::sync::Arc;

use crate::{Role, clean};

/// Text that plays one role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) text: String,
    pub(crate) role: Role,
    pub(crate) bold: bool,
    pub(crate) italic: bool,
    pub(crate) strike: bool,
    /// Where it leads.
    pub(crate) link: Option<Arc<str>>,
}

impl Run {
    /// Text of somebody else, made safe. Line ends stay.
    pub(crate) fn new(text: &str, role: Role) -> Self {
        let text = match text.contains('\n') {
            false => clean(text).into_owned(),
            true => text.split('\n').map(|line| clean(line)).collect::<Vec<_>>().join("\n"),
        };
        Self { text, role, bold: false, italic: false, strike: false, link: None }
    }

    fn looks_like(&self, other: &Self) -> bool {
        (self.role, self.bold, self.italic, self.strike, &self.link)
            == (other.role, other.bold, other.italic, other.strike, &other.link)
    }

    /// Adds a run, to the one before where they look the same.
    pub(crate) fn join(runs: &mut Vec<Self>, run: Self) {
        match runs.last_mut() {
            _ if run.text.is_empty() => {}
            Some(last) if last.looks_like(&run) && run.role != Role::Code => last.text.push_str(&run.text),
            _ => runs.push(run),
        }
    }
}
