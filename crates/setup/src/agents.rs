//! The agents that can be set up, read from data.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::document::Syntax;
use crate::edit::Placement;
use crate::piece::{Piece, PieceContent};

const TABLE: &str = include_str!("agents.txt");
/// Stands for the path of the program.
const PROGRAM: &str = "$program";

/// What is known of this machine and user.
pub struct SetupContext<'a> {
    /// A variable of the environment, where it is set to something.
    pub variable: &'a dyn Fn(&str) -> Option<PathBuf>,
    /// The home directory of the user.
    pub user_home: &'a Path,
    /// The directory of Quipu's own files.
    pub home: &'a Path,
    /// The path by which agents start this program.
    pub program: &'a str,
    /// Variables that the program needs when an agent starts it.
    pub environment: &'a [(&'a str, String)],
}

/// An agent, and what is to be in its settings.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Its name in commands.
    pub name: &'static str,
    /// Its name for people.
    pub title: String,
    /// Its program, where one is on the `PATH`.
    pub program: Option<PathBuf>,
    /// Its directory, where it exists.
    pub directory: Option<PathBuf>,
    /// What is to be in its settings.
    pub pieces: Vec<Piece>,
    /// The file of an extension that its own program loads, where it has such.
    pub extension: Option<PathBuf>,
    /// What a person has to know.
    pub remarks: Vec<String>,
    aliases: Vec<&'static str>,
    /// The names that its files can have.
    pub(crate) files: Vec<String>,
    /// Directories that its files may lie in, apart from the home directory.
    pub(crate) roots: Vec<PathBuf>,
}

impl Agent {
    /// Whether it is installed for this user.
    pub fn is_found(&self) -> bool {
        self.program.is_some() || self.directory.is_some()
    }

    /// Whether this is its name.
    pub fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.contains(&name)
    }

    /// Adds what is to be in one of its files. `root` is the directory that a variable of the environment names, if the file
    /// lies there.
    pub fn add(&mut self, file: PathBuf, root: Option<PathBuf>, content: PieceContent) {
        self.has_file(&file);
        self.roots.extend(root);
        self.pieces.push(Piece { file, content });
    }

    fn has_file(&mut self, file: &Path) {
        self.files.extend(file.file_name().map(|name| name.to_string_lossy().into_owned()));
    }

    /// The directory that a base names.
    fn base(&mut self, context: &SetupContext<'_>, base: &str) -> PathBuf {
        let (variable, default) = base.split_once('=').unwrap_or((base, "~"));
        match (context.variable)(variable).filter(|path| path.is_absolute()) {
            Some(path) => {
                self.roots.push(path.clone());
                path
            }
            None => context.user_home.join(default.trim_start_matches(['~', '/'])),
        }
    }
}

/// All agents of the table, with the entries of the MCP server.
pub fn agents(context: &SetupContext<'_>) -> Vec<Agent> {
    let mut agents: Vec<Agent> = Vec::new();
    for line in TABLE.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&'static str> = line.splitn(7, ' ').collect();
        if let ["agent", name, aliases, title, programs] = words[..] {
            agents.push(Agent {
                name,
                title: title.replace('_', " "),
                program: programs.split(',').find_map(|program| on_path(context, program)),
                directory: None,
                pieces: Vec::new(),
                extension: None,
                remarks: Vec::new(),
                aliases: aliases.split(',').collect(),
                files: Vec::new(),
                roots: Vec::new(),
            });
            continue;
        }
        let Some(agent) = agents.last_mut() else { continue };
        match words[..] {
            ["dir", base, path] => {
                let directory = agent.base(context, base).join(path);
                agent.directory = agent.directory.take().or(Some(directory).filter(|path| path.is_dir()));
            }
            ["extension", base, path] => {
                let file = agent.base(context, base).join(path);
                agent.has_file(&file);
                agent.extension = Some(file);
            }
            ["server", form, base, paths, names, environment, value] => {
                let base = agent.base(context, base);
                let files: Vec<PathBuf> = paths.split(',').map(|path| base.join(path)).collect();
                files.iter().for_each(|file| agent.has_file(file));
                let file = files.iter().find(|file| file.symlink_metadata().is_ok()).or(files.first());
                let (Some(file), Ok(value)) = (file.cloned(), serde_json::from_str(value)) else { continue };
                let mut value = filled(value, context.program);
                for (name, setting) in context.environment {
                    value[environment][*name] = Value::from(setting.as_str());
                }
                let content = PieceContent::Value {
                    syntax: if form == "toml" { Syntax::Toml } else { Syntax::Json },
                    placement: Placement::Member(names.split('.').map(str::to_owned).collect()),
                    value,
                };
                agent.pieces.push(Piece { file, content });
            }
            ["remark", ..] => agent.remarks.push(line["remark ".len()..].to_owned()),
            _ => {}
        }
    }
    agents
}

/// The value with the path of the program in it.
fn filled(value: Value, program: &str) -> Value {
    match value {
        Value::String(text) if text == PROGRAM => Value::from(program),
        Value::Array(items) => items.into_iter().map(|item| filled(item, program)).collect(),
        Value::Object(members) => {
            Value::Object(members.into_iter().map(|(name, value)| (name, filled(value, program))).collect())
        }
        other => other,
    }
}

fn on_path(context: &SetupContext<'_>, program: &str) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = (context.variable)("PATH")?;
    let is_program = |path: &PathBuf| {
        path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(&path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(program)).find(is_program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_is_read() {
        let context = SetupContext {
            variable: &|name| (name == "CODEX_HOME").then(|| PathBuf::from("/elsewhere")),
            user_home: Path::new("/h"),
            home: Path::new("/h/.quipu"),
            program: "/opt/q u/quipu",
            environment: &[("QUIPU_HOME", "/q".to_owned())],
        };
        let agents = agents(&context);
        let servers = TABLE.lines().filter(|line| line.starts_with("server ")).count();
        assert_eq!(agents.iter().map(|agent| agent.pieces.len()).sum::<usize>(), servers);
        assert_eq!(agents.len(), 7);
        for agent in &agents {
            assert!(!agent.is_found(), "{agent:?}");
            for piece in &agent.pieces {
                let PieceContent::Value { value, .. } = &piece.content else { panic!("{piece:?}") };
                let text = value.to_string();
                assert!(text.contains("/opt/q u/quipu") && text.contains(r#"{"QUIPU_HOME":"/q"}"#), "{text}");
            }
        }
        let files: Vec<&Path> =
            agents.iter().flat_map(|agent| &agent.pieces).map(|piece| &*piece.file).collect();
        assert_eq!(
            files[..3],
            ["/h/.claude.json", "/elsewhere/config.toml", "/h/.gemini/settings.json"].map(Path::new)
        );
    }
}
