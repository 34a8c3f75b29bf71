//! The table of what other agents keep, read from its data.

use std::path::{Path, PathBuf};

const TABLE: &str = include_str!("agents.txt");

/// An agent whose settings can be taken over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetupAgent {
    pub(super) name: &'static str,
    aliases: Vec<&'static str>,
    pub(super) title: String,
    pub(super) files: Vec<SetupFile>,
    pub(super) rows: Vec<SetupRow>,
}

/// A file of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SetupFile {
    pub(super) form: FileForm,
    base: &'static str,
    path: &'static str,
    /// Only these members are looked at; empty for all.
    pub(super) only: Vec<&'static str>,
}

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FileForm {
    Json,
    /// JSON with comments, names without quotes and the like.
    Json5,
    Toml,
}

/// What becomes of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SetupRow {
    Setting {
        theirs: &'static str,
        ours: &'static str,
        words: &'static str,
    },
    Pair {
        first: &'static str,
        second: &'static str,
        ours: &'static str,
    },
    /// The larger of two numbers, and what stands for each where it is not there.
    Larger {
        first: &'static str,
        second: &'static str,
        ours: &'static str,
        defaults: [u64; 2],
    },
    /// A number that counts only with a flag; what stands for it without the flag, and with the flag alone.
    Gate {
        flag: &'static str,
        number: &'static str,
        ours: &'static str,
        values: [u64; 2],
    },
    /// What stands for a member that an object does not have.
    Fill {
        key: &'static str,
        member: &'static str,
        ours: &'static str,
        word: &'static str,
    },
    Hooks(&'static str),
    Rules(&'static str),
    Servers(&'static str),
    /// A list of agents.
    Agents(&'static str),
    /// Policies of tools by sender.
    Senders(&'static str),
    /// Policies of tools by provider.
    Providers(&'static str),
    /// Channels, whose rooms can have policies of tools, and which can have limits of turns.
    Rooms(&'static str),
    /// Objects by name, in which a word stands for a member that they do not have: that of an object that is for all, or else `word`.
    Each {
        theirs: &'static str,
        ours: &'static str,
        words: &'static str,
        member: &'static str,
        all: &'static str,
        word: &'static str,
    },
    /// What counts only where others are not there: our settings, with a word for each that has not its value.
    Alone {
        key: &'static str,
        beside: Vec<&'static str>,
        ours: Vec<(&'static str, Option<&'static str>)>,
    },
    Foreign {
        key: &'static str,
        why: String,
    },
}

/// The agents of the table.
pub(super) fn agents() -> Vec<SetupAgent> {
    let mut agents: Vec<SetupAgent> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&'static str> = line.split_whitespace().collect();
        let spaced = |text: &str| text.replace('_', " ");
        if let ["agent", name, aliases, title] = words[..] {
            let aliases = aliases.split(',').collect();
            agents.push(SetupAgent {
                name,
                aliases,
                title: spaced(title),
                files: Vec::new(),
                rows: Vec::new(),
            });
            continue;
        }
        let Some(agent) = agents.last_mut() else { continue };
        match words[..] {
            ["file", form, base, path, ref only @ ..] => {
                let only = only.iter().flat_map(|only| only.split(',')).collect();
                let form = match form {
                    "toml" => FileForm::Toml,
                    "json5" => FileForm::Json5,
                    _ => FileForm::Json,
                };
                agent.files.push(SetupFile { form, base, path, only });
            }
            ["key", theirs, ours, ref words @ ..] => {
                let words = words.first().copied().unwrap_or("*");
                agent.rows.push(SetupRow::Setting { theirs, ours, words });
            }
            ["pair", first, second, ours] => agent.rows.push(SetupRow::Pair { first, second, ours }),
            ["larger", first, second, ours, one, other] => {
                if let (Ok(one), Ok(other)) = (one.parse(), other.parse()) {
                    agent.rows.push(SetupRow::Larger { first, second, ours, defaults: [one, other] });
                }
            }
            ["gate", flag, number, ours, off, on] => {
                if let (Ok(off), Ok(on)) = (off.parse(), on.parse()) {
                    agent.rows.push(SetupRow::Gate { flag, number, ours, values: [off, on] });
                }
            }
            ["fill", key, member, ours, word] => {
                agent.rows.push(SetupRow::Fill { key, member, ours, word });
            }
            ["hooks", key] => agent.rows.push(SetupRow::Hooks(key)),
            ["rules", key] => agent.rows.push(SetupRow::Rules(key)),
            ["agents", key] => agent.rows.push(SetupRow::Agents(key)),
            ["senders", key] => agent.rows.push(SetupRow::Senders(key)),
            ["providers", key] => agent.rows.push(SetupRow::Providers(key)),
            ["rooms", key] => agent.rows.push(SetupRow::Rooms(key)),
            ["each", theirs, ours, words, member, all, word] => {
                agent.rows.push(SetupRow::Each { theirs, ours, words, member, all, word });
            }
            ["alone", key, beside, ref ours @ ..] => {
                let ours = ours.iter().map(|ours| match ours.split_once('=') {
                    Some((ours, word)) => (ours, Some(word)),
                    None => (*ours, None),
                });
                let (beside, ours) = (beside.split(',').collect(), ours.collect());
                agent.rows.push(SetupRow::Alone { key, beside, ours });
            }
            ["servers", key] => agent.rows.push(SetupRow::Servers(key)),
            ["other", key, why] => agent.rows.push(SetupRow::Foreign { key, why: spaced(why) }),
            _ => {}
        }
    }
    agents
}

/// The agent of this name.
pub(super) fn agent_named(name: &str) -> Option<SetupAgent> {
    agents().into_iter().find(|agent| agent.name == name || agent.aliases.contains(&name))
}

impl SetupFile {
    /// Where it is, by the environment.
    pub(super) fn path(&self, env: &dyn Fn(&str) -> Option<PathBuf>, home: Option<&Path>) -> Option<PathBuf> {
        let (variable, default) = self.base.split_once('=')?;
        let named = (!variable.is_empty()).then(|| env(variable)).flatten();
        let default = || Some(home?.join(default.trim_start_matches(['~', '/'])));
        Some(named.or_else(default)?.join(self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let agents = agents();
        assert_eq!(agents.len(), 4);
        let rows: usize = agents.iter().map(|agent| agent.rows.len() + agent.files.len() + 1).sum();
        let lines = TABLE.lines().filter(|line| !(line.starts_with('#') || line.is_empty())).count();
        assert_eq!(rows, lines);
        for row in agents.iter().flat_map(|agent| &agent.rows) {
            if let SetupRow::Setting { ours, .. }
            | SetupRow::Pair { ours, .. }
            | SetupRow::Larger { ours, .. }
            | SetupRow::Gate { ours, .. }
            | SetupRow::Fill { ours, .. }
            | SetupRow::Each { ours, .. } = row
            {
                assert!(crate::settings::Key::named(ours).is_some(), "{ours}");
            }
            if let SetupRow::Alone { ours, .. } = row {
                assert!(ours.iter().all(|(ours, _)| crate::settings::Key::named(ours).is_some()), "{ours:?}");
            }
        }
        let file = &agents[0].files[0];
        assert_eq!(
            file.path(&|_| None, Some(Path::new("/h"))).unwrap(),
            Path::new("/h/.pi/agent/settings.json")
        );
        assert_eq!(file.path(&|_| None, None), None);
    }
}
