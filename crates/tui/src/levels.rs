//! Levels of thinking by name.

use quipu_protocol::Thinking;

const LEVELS: [(Thinking, &str); 7] = [
    (Thinking::Off, "off"),
    (Thinking::Minimal, "minimal"),
    (Thinking::Low, "low"),
    (Thinking::Medium, "medium"),
    (Thinking::High, "high"),
    (Thinking::Xhigh, "xhigh"),
    (Thinking::Max, "max"),
];

/// A level's name.
pub(crate) fn level_name(level: Thinking) -> &'static str {
    LEVELS.iter().find(|(one, _)| *one == level).map_or("", |(_, name)| name)
}

/// The level of a name.
pub(crate) fn level_named(name: &str) -> Option<Thinking> {
    LEVELS.iter().find(|(_, one)| *one == name).map(|(level, _)| *level)
}
