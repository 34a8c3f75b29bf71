//! The agents whose sessions can be taken in: where each keeps them, and how they are read.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::Json;
use quipu_seal::Sealer;
use quipu_store::Graph;

use crate::intake::{self, DatabaseFormat, Format};
use crate::json::Members;
use crate::lines::{Lines, content_of};
use crate::pi::session_files;
use crate::session_files::{SessionFiles, files_with};
use crate::{ArchiveError, ImportCache, ImportOptions, Report, export};
use crate::{chatgpt, claude_ai, claude_code, codex, copilot};
use crate::{gemini, gemini_takeout, openclaw, opencode, pi, playfilo};

/// Gives the value of an environment variable.
type Env<'a> = dyn Fn(&str) -> Option<PathBuf> + 'a;

/// Directories, and how many sessions each has.
type Projects = Vec<(String, u64)>;

/// What the names of exports, or of what is in them, end in.
const EXPORTED: &[&str] = &["zip", "json", "html"];

/// Why a text of UTF-16 is not read.
const WIDE: &str = "it is UTF-16; convert it to UTF-8 first (`iconv -f UTF-16 -t UTF-8`)";

/// An agent whose sessions can be taken in.
#[derive(Clone, Copy)]
pub struct Agent {
    /// What its sessions are called in the store and on the command line.
    pub name: &'static str,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    /// With an importer of its own.
    Pi,
    /// One file of nodes that are kept as they are.
    Graph,
    Lines {
        format: &'static Format,
        places: fn(&Env<'_>) -> Vec<PathBuf>,
        /// What the names of its files end in; any where there is none.
        extensions: &'static [&'static str],
        /// Whether such a file of those places is a session.
        is_session: fn(&Path) -> bool,
        look: fn(&Path) -> std::io::Result<ProjectSessions>,
    },
    /// One file for all sessions.
    Database {
        format: &'static DatabaseFormat,
        place: fn(&Env<'_>) -> Option<PathBuf>,
        /// Whether a file of that place is one.
        is_database: fn(&Path) -> bool,
        /// Its projects, and how many sessions each has.
        projects: fn(&Path) -> std::io::Result<Projects>,
    },
    /// An export that the user asked for: an archive, or a file of the folder that it was unpacked to. It has no place of its own.
    Export {
        format: &'static DatabaseFormat,
        /// Whether a file of an archive, or of a folder, holds conversations, by its name.
        is_main: fn(&str) -> bool,
        /// Whether such a file is one, by how it begins.
        is_ours: fn(&str) -> bool,
    },
}

/// All agents that are known.
pub static AGENTS: [Agent; 12] = [
    Agent {
        name: chatgpt::AGENT,
        kind: Kind::Export {
            format: &chatgpt::FORMAT,
            is_main: chatgpt::is_main,
            is_ours: |start| start.contains("\"mapping\"") && !start.contains("\"chat_messages\""),
        },
    },
    Agent {
        name: claude_ai::AGENT,
        kind: Kind::Export {
            format: &claude_ai::FORMAT,
            is_main: claude_ai::is_main,
            is_ours: |start| start.contains("\"chat_messages\""),
        },
    },
    Agent {
        name: claude_code::AGENT,
        kind: Kind::Lines {
            format: &claude_code::FORMAT,
            places: |env| claude_code::sessions_dir(env).into_iter().collect(),
            extensions: &["jsonl"],
            is_session: |_| true,
            look,
        },
    },
    Agent {
        name: codex::AGENT,
        kind: Kind::Lines {
            format: &codex::FORMAT,
            places: |env| {
                codex::home(env)
                    .into_iter()
                    .flat_map(|home| codex::FOLDERS.map(|name| home.join(name)))
                    .collect()
            },
            extensions: &["json", "jsonl", "zst"],
            is_session: codex::is_session,
            look,
        },
    },
    Agent {
        name: copilot::AGENT,
        kind: Kind::Lines {
            format: &copilot::FORMAT,
            places: |env| copilot::sessions_dir(env).into_iter().collect(),
            extensions: &["jsonl"],
            is_session: copilot::is_session,
            look: copilot::look,
        },
    },
    Agent {
        name: gemini::AGENT,
        kind: Kind::Lines {
            format: &gemini::FORMAT,
            places: |env| gemini::sessions_dir(env).into_iter().collect(),
            extensions: &["json", "jsonl"],
            is_session: gemini::is_session,
            look: gemini::look,
        },
    },
    Agent {
        name: gemini_takeout::AGENT,
        kind: Kind::Export {
            format: &gemini_takeout::FORMAT,
            is_main: gemini_takeout::is_main,
            is_ours: gemini_takeout::begins,
        },
    },
    Agent {
        name: openclaw::AGENT,
        kind: Kind::Lines {
            format: &openclaw::FORMAT,
            places: openclaw::sessions_dirs,
            extensions: &[],
            is_session: openclaw::is_session,
            look,
        },
    },
    Agent {
        name: opencode::AGENT,
        kind: Kind::Database {
            format: &opencode::FORMAT,
            place: opencode::home,
            is_database: opencode::is_database,
            projects: opencode::projects,
        },
    },
    Agent { name: pi::AGENT, kind: Kind::Pi },
    Agent { name: playfilo::AGENT, kind: Kind::Graph },
    Agent {
        name: copilot::chat::AGENT,
        kind: Kind::Lines {
            format: &copilot::chat::FORMAT,
            places: copilot::chat::sessions_dirs,
            extensions: &["json", "jsonl"],
            is_session: copilot::chat::is_session,
            look: copilot::chat::look,
        },
    },
];

/// The session files of an agent on this machine.
#[derive(Debug, Default)]
pub struct AgentFiles {
    /// Its session files, by name.
    pub files: Vec<PathBuf>,
    /// Directories that could not be read, and why.
    pub unreadable: Vec<(PathBuf, std::io::Error)>,
}

impl From<SessionFiles> for AgentFiles {
    fn from(found: SessionFiles) -> Self {
        Self { files: found.files, unreadable: found.unreadable }
    }
}

/// The sessions of one project in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectSessions {
    /// The file.
    pub path: PathBuf,
    /// The directory that they work in; `None` where the file does not say.
    pub project: Option<String>,
    /// How many there are.
    pub sessions: u64,
    /// Their part of the bytes of the file, about.
    pub bytes: u64,
}

impl Agent {
    /// The agent of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        AGENTS.iter().find(|agent| agent.name == name)
    }

    /// Where it keeps its sessions, which need not be there; `env` gives environment variables.
    pub fn places(&self, env: &Env<'_>) -> Vec<PathBuf> {
        match self.kind {
            Kind::Pi => pi::sessions_dir(env).into_iter().collect(),
            Kind::Graph => playfilo::home(env).into_iter().collect(),
            Kind::Lines { places, .. } => places(env),
            Kind::Database { place, .. } => place(env).into_iter().collect(),
            Kind::Export { .. } => Vec::new(),
        }
    }

    /// Whether it keeps its sessions in a place of its own, and not in files that the user has to name.
    pub fn has_place(&self) -> bool {
        !matches!(self.kind, Kind::Export { .. })
    }

    /// The exports at `path`, a file or a folder, by whose they are: told by what is in each. Each file is one agent's.
    ///
    /// # Errors
    /// `File` when it is not there, or cannot be read.
    pub fn exports(path: &Path) -> Result<Vec<(&'static Self, AgentFiles)>, ArchiveError> {
        let found = files_with(path, EXPORTED)?;
        let mut work: Vec<(&'static Self, AgentFiles)> = Vec::new();
        let exporting = || AGENTS.iter().filter(|agent| !agent.has_place());
        for file in found.files {
            let named = |agent: &&Self| path.is_file() || agent.is_called_export(&file);
            let Some(agent) = exporting().filter(named).find(|agent| agent.is_export(&file)) else {
                continue;
            };
            match work.iter_mut().find(|(one, _)| one.name == agent.name) {
                Some((_, kept)) => kept.files.push(file),
                None => work.push((agent, AgentFiles { files: vec![file], unreadable: Vec::new() })),
            }
        }
        if let Some((_, kept)) = work.first_mut() {
            kept.unreadable = found.unreadable;
        }
        Ok(work)
    }

    /// Why a file is no export, where it can be told without knowing whose it might be.
    pub fn export_fault(path: &Path) -> Option<ArchiveError> {
        let path = path.to_owned();
        if is_wide(&path) {
            return Some(ArchiveError::NotASession { path, why: WIDE });
        }
        let source = export::fault(&path)?;
        Some(ArchiveError::File { path, doing: "read", source })
    }

    /// Whether a file of a folder may be one of it, by its name.
    fn is_called_export(&self, file: &Path) -> bool {
        let Kind::Export { is_main, .. } = self.kind else { return false };
        is_main(file.to_str().unwrap_or_default()) || file.extension().is_some_and(|end| end == "zip")
    }

    /// Whether a file is an export of it, or holds the conversations of one.
    fn is_export(&self, path: &Path) -> bool {
        let Kind::Export { is_main, is_ours, .. } = self.kind else { return false };
        export::starts(path, is_main).iter().any(|start| is_ours(start))
    }

    /// Finds what it keeps on this machine. Nothing is opened.
    pub fn detect(&self, env: &Env<'_>) -> AgentFiles {
        let mut kept = AgentFiles::default();
        for place in self.places(env).iter().filter(|place| place.is_dir()) {
            match self.files(place) {
                Ok(found) => {
                    kept.files.extend(found.files);
                    kept.unreadable.extend(found.unreadable);
                }
                Err(ArchiveError::File { path, source, .. }) => kept.unreadable.push((path, source)),
                Err(_) => {}
            }
        }
        kept
    }

    /// The session files of `path`: itself when it is no directory. Links to directories are not followed.
    ///
    /// # Errors
    /// `File` when `path` is not there or cannot be read.
    pub fn files(&self, path: &Path) -> Result<SessionFiles, ArchiveError> {
        match self.kind {
            Kind::Pi => session_files(path),
            Kind::Lines { extensions, is_session, .. } => {
                let mut found = files_with(path, extensions)?;
                if path.is_dir() {
                    found.files.retain(|file| is_session(file));
                }
                Ok(found)
            }
            Kind::Export { .. } => {
                let mut found = files_with(path, EXPORTED)?;
                if path.is_dir() {
                    found.files.retain(|file| self.is_called_export(file) && self.is_export(file));
                }
                Ok(found)
            }
            Kind::Graph => databases(path, playfilo::is_database),
            Kind::Database { is_database, .. } => databases(path, is_database),
        }
    }

    /// The files in which it shows that something was written to one of its session files.
    pub fn written_to(&self, path: &Path) -> Vec<PathBuf> {
        match self.kind {
            Kind::Pi | Kind::Lines { .. } | Kind::Export { .. } => vec![path.to_owned()],
            Kind::Graph | Kind::Database { .. } => {
                let mut log = path.as_os_str().to_owned();
                log.push("-wal");
                vec![path.to_owned(), log.into()]
            }
        }
    }

    /// Looks at a file: what sessions it has of which projects.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn look(&self, path: &Path) -> std::io::Result<Vec<ProjectSessions>> {
        let projects = match self.kind {
            Kind::Pi => return Ok(vec![look(path)?]),
            Kind::Lines { look, .. } => return Ok(vec![look(path)?]),
            Kind::Database { projects, .. } => projects(path)?,
            Kind::Graph => vec![(String::new(), playfilo::heads(path)?)],
            Kind::Export { .. } => {
                let bytes = std::fs::metadata(path)?.len();
                return Ok(vec![ProjectSessions {
                    path: path.to_owned(),
                    project: None,
                    sessions: 1,
                    bytes,
                }]);
            }
        };
        let (bytes, _) = intake::stamp(path)?;
        let all: u64 = projects.iter().map(|(_, sessions)| sessions).sum();
        let found = projects.into_iter().map(|(project, sessions)| ProjectSessions {
            path: path.to_owned(),
            project: Some(project).filter(|project| !project.is_empty()),
            sessions,
            bytes: bytes / all.max(1) * sessions,
        });
        Ok(found.collect())
    }

    /// Imports one file, and before it those that it goes on from; the report of each, the file's own last. See
    /// [`crate::pi::import`] for what an import is.
    ///
    /// # Errors
    /// `File`, `NotASession`, `Changed`, `Store`.
    pub async fn import(
        &self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        path: &Path,
        cache: &ImportCache,
        options: &ImportOptions<'_>,
    ) -> Result<Vec<Report>, ArchiveError> {
        let done = match self.kind {
            Kind::Pi => pi::import(store, sealer, path, cache, options).await.map(|report| vec![report]),
            Kind::Graph => playfilo::import(store, sealer, path, cache, options).await,
            Kind::Lines { format, .. } => intake::import(store, sealer, format, path, cache, options).await,
            Kind::Database { format, .. } | Kind::Export { format, .. } => {
                intake::import_database(store, sealer, format, path, cache, options).await
            }
        };
        match done {
            Err(ArchiveError::NotASession { path, .. } | ArchiveError::File { path, doing: "read", .. })
                if is_wide(&path) =>
            {
                Err(ArchiveError::NotASession { path, why: WIDE })
            }
            done => done,
        }
    }
}

/// Whether a file begins as a text of UTF-16 does, with the mark of the encoding or a letter of ASCII.
fn is_wide(path: &Path) -> bool {
    let mut start = [0; 2];
    let read = intake::open_file(path).is_ok_and(|file| file.read_exact_at(&mut start, 0).is_ok());
    read && matches!(start, [0xff, 0xfe] | [0xfe, 0xff] | [1..=0x7f, 0] | [0, 1..=0x7f])
}

/// The databases of a directory, or the file itself.
fn databases(path: &Path, is_database: fn(&Path) -> bool) -> Result<SessionFiles, ArchiveError> {
    if is_database(path) {
        return Ok(SessionFiles { files: vec![path.to_owned()], unreadable: Vec::new() });
    }
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    if !std::fs::metadata(path).map_err(fail)?.is_dir() {
        return Ok(SessionFiles { files: vec![path.to_owned()], unreadable: Vec::new() });
    }
    let entries = std::fs::read_dir(path).map_err(fail)?.flatten();
    let files = entries.map(|entry| entry.path()).filter(|file| is_database(file));
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    Ok(SessionFiles { files, unreadable: Vec::new() })
}

/// Looks at the beginning of a session file.
fn look(path: &Path) -> std::io::Result<ProjectSessions> {
    /// Lines and bytes that are looked at.
    const LINES: u64 = 40;
    const BYTES: u64 = 1 << 20;
    let file = std::fs::File::open(path)?;
    let bytes = file.metadata()?.len();
    let reader = std::io::BufReader::new(std::io::Read::take(content_of(&file)?, BYTES));
    let mut lines = Lines::new(reader, 1 << 20);
    let mut project = None;
    while project.is_none()
        && let Some(line) = lines.next()?
        && line.place.number <= LINES
    {
        let text = String::from_utf8_lossy(line.bytes);
        let Ok(json) = Json::parse(&text) else { continue };
        let cwd = |text: &str| Members::of(text)?.string("cwd").map(std::borrow::Cow::into_owned);
        let inner = Members::of(json.get()).and_then(|members| members.get("payload"));
        project = cwd(json.get()).or_else(|| inner.and_then(cwd)).filter(|cwd| !cwd.is_empty());
    }
    Ok(ProjectSessions { path: path.to_owned(), project, sessions: 1, bytes })
}
