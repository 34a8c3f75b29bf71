//! Names of tools, the entries of lists, and what one list says of a name.

use std::collections::BTreeSet;

use crate::groups;
use crate::{ENTRY_BYTES, MOST_ENTRIES};

/// Other names of built-in tools.
const ALIASES: &[(&str, &str)] = &[
    ("exec", "bash"),
    ("shell", "bash"),
    ("process", "background"),
    ("apply-patch", "apply_patch"),
    ("cron", "schedule"),
];

/// A name as policies compare it: lower-cased, without spaces around it, an alias as the tool that it means.
pub fn canonical(name: &str) -> String {
    let name = name.trim().to_lowercase();
    match ALIASES.iter().find(|(alias, _)| *alias == name) {
        Some((_, tool)) => (*tool).to_owned(),
        None => name,
    }
}

/// A tool that is offered, as a policy sees it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ToolName {
    /// As the model calls it.
    shown: String,
    canonical: String,
    source: Option<String>,
}

impl ToolName {
    /// A built-in tool.
    pub fn built_in(name: impl Into<String>) -> Self {
        let shown = name.into();
        Self { canonical: canonical(&shown), shown, source: None }
    }

    /// A tool of a source, such as `mcp`. Aliases are for built-in tools alone.
    pub fn of_source(name: impl Into<String>, source: impl Into<String>) -> Self {
        let shown = name.into();
        Self { canonical: shown.trim().to_lowercase(), shown, source: Some(source.into().to_lowercase()) }
    }

    /// As the model calls it.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// As entries match it.
    pub fn name(&self) -> &str {
        &self.canonical
    }

    /// The source that gives it; `None` for a built-in tool.
    pub fn source(&self) -> Option<&str> {
        self.source.as_deref()
    }
}

/// One entry of a list: a name, a glob with `*`, or a group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamePattern(String);

impl NamePattern {
    /// An entry as it is written; `None` for one that is empty or too long.
    pub fn parse(entry: &str) -> Option<Self> {
        let text = canonical(entry);
        (!text.is_empty() && text.len() <= ENTRY_BYTES).then_some(Self(text))
    }

    /// The entry in its canonical form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it means this tool. The name of a source means all of its tools.
    pub fn matches(&self, tool: &ToolName) -> bool {
        if self.0.starts_with("group:") {
            return groups::contains(&self.0, (tool.name(), tool.source()));
        }
        glob(self.0.as_bytes(), tool.name().as_bytes()) || tool.source() == Some(&*self.0)
    }

    /// Whether some tool that there is or could be is meant; a glob may mean any.
    pub(crate) fn is_known(&self, offered: &[ToolName]) -> bool {
        if self.0.starts_with("group:") {
            return groups::is_group(&self.0);
        }
        self.0.contains('*')
            || groups::is_known_tool(&self.0)
            || groups::is_known_source(&self.0)
            || offered.iter().any(|tool| self.matches(tool))
    }
}

/// Whether the whole text fits a pattern in which `*` stands for any bytes, also none. Time is at most the product of the
/// lengths.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut from) = (0, 0);
    // The last `*`, and how far the text went when it was met.
    let mut star: Option<(usize, usize)> = None;
    while from < text.len() {
        match (pattern.get(at), text.get(from)) {
            (Some(b'*'), _) => {
                star = Some((at, from));
                at += 1;
            }
            (Some(wanted), Some(found)) if wanted == found => {
                at += 1;
                from += 1;
            }
            _ => {
                let Some((place, met)) = star else { return false };
                at = place + 1;
                from = met + 1;
                star = Some((place, met + 1));
            }
        }
    }
    pattern.iter().skip(at).all(|byte| *byte == b'*')
}

/// The allow and deny entries of one step. Their order does not matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NameFilter {
    allow: BTreeSet<NamePattern>,
    deny: BTreeSet<NamePattern>,
    /// Only what is allowed passes, even where no entry could be read.
    is_closed: bool,
}

/// What a step says of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NameVerdict<'a> {
    Kept,
    Denied(&'a NamePattern),
    NotAllowed,
}

impl NameFilter {
    /// The entries of a step. An allow list whose entries cannot be read allows nothing.
    pub fn new<'a>(
        allow: impl IntoIterator<Item = &'a str>,
        deny: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let mut is_closed = false;
        let allow = allow
            .into_iter()
            .inspect(|_| is_closed = true)
            .take(MOST_ENTRIES)
            .filter_map(NamePattern::parse)
            .collect();
        // A deny list that is too long or cannot be read must not open anything.
        let deny = deny.into_iter().filter_map(NamePattern::parse).collect();
        Self { allow, deny, is_closed }
    }

    /// Whether it removes nothing.
    pub fn is_open(&self) -> bool {
        !self.is_closed && self.deny.is_empty()
    }

    /// Whether this step keeps a tool: a deny entry that matches, no; no allow entries, yes; one that matches, yes; else no.
    pub fn keeps(&self, tool: &ToolName) -> bool {
        self.verdict(tool) == NameVerdict::Kept
    }

    /// Every entry.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &NamePattern> {
        self.allow.iter().chain(&self.deny)
    }

    /// The allow entries.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &NamePattern> {
        self.allow.iter()
    }

    pub(crate) fn verdict(&self, tool: &ToolName) -> NameVerdict<'_> {
        if let Some(denied) = self.deny.iter().find(|entry| is_meant(entry, tool, Direction::Deny)) {
            return NameVerdict::Denied(denied);
        }
        let is_allowed =
            !self.is_closed || self.allow.iter().any(|entry| is_meant(entry, tool, Direction::Allow));
        if is_allowed { NameVerdict::Kept } else { NameVerdict::NotAllowed }
    }
}

#[derive(Clone, Copy)]
enum Direction {
    Allow,
    Deny,
}

/// Whether an entry means a tool, or one that this tool stands for: `apply_patch` is allowed with `write`, and denied with
/// `write` or `edit`, since it does what they do; `background` goes with `bash`.
fn is_meant(entry: &NamePattern, tool: &ToolName, direction: Direction) -> bool {
    if entry.matches(tool) {
        return true;
    }
    let others: &[&str] = match (tool.source(), tool.name(), direction) {
        (None, "apply_patch", Direction::Allow) => &["write"],
        (None, "apply_patch", Direction::Deny) => &["write", "edit"],
        (None, "background", _) => &["bash"],
        _ => &[],
    };
    others.iter().any(|other| entry.matches(&ToolName::built_in(*other)))
}
