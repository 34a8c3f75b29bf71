//! What a project brings along is used once a person trusts it: text for as long as that is so, and what can run as it was.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::agent::shown as shown_agent;
use super::files::{Step, in_one_line, walk};
use super::set::ResourceSet;
use super::template::TemplateOrigin;
use crate::{Advice, Failure, Home, OpenRequest, PermissionItem, Question, Record};

/// Bytes of a file that count.
const MOST_BYTES: u64 = 8 << 20;
/// Rows of a question at most.
const MOST_ROWS: usize = 30;

/// What a project brings along, as a person has to see it before it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectResources {
    /// The root of the project.
    pub root: PathBuf,
    /// What was found.
    pub set: ResourceSet,
    /// `AGENTS.md` and the like of its directories, which other agents read without a question.
    pub open_rules: Vec<PathBuf>,
    /// Programs that lie in skills.
    pub programs: Vec<PathBuf>,
    /// The hash of what can run: programs of skills, and templates with commands.
    content: String,
}

impl ProjectResources {
    pub(super) fn new(root: PathBuf, set: ResourceSet, open_rules: Vec<PathBuf>) -> Self {
        let mut programs = Vec::new();
        for skill in &set.skills {
            walk(skill.directory(), Some(&root), &mut |path, is_directory, _| {
                if !is_directory && is_program(path) {
                    programs.push(path.to_owned());
                }
                Step::Enter
            });
        }
        programs.sort_unstable();
        programs.dedup();
        let templates = set.templates.iter().filter(|template| template.has_commands);
        let templates = templates.filter_map(|template| template.origin.path());
        let mut hash = Sha256::new();
        for path in programs.iter().map(PathBuf::as_path).chain(templates) {
            hash.update(path.as_os_str().as_encoded_bytes());
            hash.update([0]);
            hash.update(hash_of(path));
        }
        let content = quipu_protocol::hex(&hash.finalize());
        Self { root, set, open_rules, programs, content }
    }

    /// What a person decided; `None` where nobody did, or what can run has changed since.
    pub(super) fn decision(&self, home: &Home) -> Option<bool> {
        let root = self.root.to_str()?;
        let project = Record::in_home(&home.dir, &self.root).project().ok()?;
        project.entries.iter().find_map(|entry| match &entry.what {
            PermissionItem::Resources { path, content, used } if path == root && *content == self.content => {
                Some(*used)
            }
            _ => None,
        })
    }

    /// Whether a person refused it, even if what can run has changed since.
    pub(super) fn is_refused(&self, home: &Home) -> bool {
        let Ok(project) = Record::in_home(&home.dir, &self.root).project() else { return false };
        project.entries.iter().any(|entry| match &entry.what {
            PermissionItem::Resources { path, used, .. } => {
                !used && Some(path.as_str()) == self.root.to_str()
            }
            _ => false,
        })
    }

    /// Keeps what a person decided.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(super) fn decide(&self, home: &Home, used: bool) -> Result<(), Failure> {
        let Some(path) = self.root.to_str().map(str::to_owned) else {
            return Err(Failure::request(format!("{}: its name is not text (UTF-8)", self.root.display())));
        };
        let what = PermissionItem::Resources { path, content: self.content.clone(), used };
        let is_same = |one: &PermissionItem| matches!(one, PermissionItem::Resources { .. });
        Record::in_home(&home.dir, &self.root).put_in_place(what, &is_same)
    }

    /// All of it, a row each.
    pub fn rows(&self) -> Vec<String> {
        let shown = |path: &Path| path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
        let rules = self.open_rules.iter().chain(&self.set.rules);
        let mut rows: Vec<String> = rules.map(|path| format!("rules     {}", shown(path))).collect();
        rows.extend(self.set.path_rules.iter().map(|rules| {
            format!("rules     {}  for {}", shown(&rules.path), in_one_line(&rules.patterns.join(", "), 60))
        }));
        for skill in &self.set.skills {
            rows.push(format!("skill     {}  {}", shown(&skill.path), in_one_line(&skill.description, 60)));
        }
        rows.extend(self.programs.iter().map(|path| format!("program   {}", shown(path))));
        rows.extend(self.set.agents.iter().map(|agent| shown_agent(agent, &self.root)));
        for template in &self.set.templates {
            if let TemplateOrigin::File { path, .. } = &template.origin {
                let commands = if template.has_commands { "  (with commands)" } else { "" };
                rows.push(format!("template  {}{commands}", shown(path)));
            }
        }
        rows
    }

    /// Whether this is used, as a person says it now or said it before.
    pub(super) fn is_used(&self, home: &Home, request: &OpenRequest) -> Result<bool, Failure> {
        if let Some(used) = self.decision(home) {
            if !used {
                self.report_rules(home, request);
            }
            return Ok(used);
        }
        let mut rows = self.rows();
        let more = rows.len().saturating_sub(MOST_ROWS);
        rows.truncate(MOST_ROWS);
        let rows: String = rows.iter().map(|row| format!("\n  {}", in_one_line_kept(row))).collect();
        let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
        let text = format!(
            "{} brings along instructions for agents:{rows}{more}\nThe model reads them if you use them. Programs run only through its tools, as you permit. Quipu asks again when a program changes.",
            self.root.display()
        );
        match request.answer(Question::Resources, &text)? {
            Some(used) => {
                self.decide(home, used)?;
                Ok(used)
            }
            None => {
                let ResourceSet { skills, templates, agents, rules, path_rules, .. } = &self.set;
                let count = skills.len() + templates.len() + agents.len() + rules.len() + path_rules.len();
                let root = self.root.display();
                if count > 0 {
                    let text = format!("{count} skills, templates and rules of {root} are not used");
                    home.warn_with(text, Advice::TrustProject);
                }
                self.report_rules(home, request);
                Ok(false)
            }
        }
    }

    /// Says whether the open rules are read, where nobody accepted them.
    fn report_rules(&self, home: &Home, request: &OpenRequest) {
        let names = self.open_rules.iter().filter_map(|path| path.file_name());
        let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
        names.sort_unstable();
        names.dedup();
        if names.is_empty() || request.no_context_files {
            return;
        }
        let (names, root) = (names.join(", "), self.root.display());
        let text = match self.is_refused(home) {
            true => format!("{names} of {root}: not read, because you refused what the project brings along"),
            false => format!("{names} of {root}: read, although you have not accepted the project"),
        };
        for text in home.resources.new_ones(vec![text]) {
            home.warn_with(text, Advice::TrustProject);
        }
    }
}

/// A row without what would steer a terminal.
fn in_one_line_kept(row: &str) -> String {
    row.chars().filter(|letter| !letter.is_control()).collect()
}

/// Whether a file is made to be run: by its mode, its first bytes, or the directory that such files have in a skill.
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    let Ok((mut file, found)) = quipu_workspace::open_for_reading(path) else { return false };
    let mut start = [0; 2];
    let has_mark = file.read_exact(&mut start).is_ok() && &start == b"#!";
    let in_scripts = path.parent().and_then(Path::file_name).is_some_and(|name| name == "scripts");
    found.permissions().mode() & 0o111 != 0 || has_mark || in_scripts
}

fn hash_of(path: &Path) -> [u8; 32] {
    let mut hash = Sha256::new();
    if let Ok((file, found)) = quipu_workspace::open_for_reading(path) {
        hash.update(found.len().to_le_bytes());
        let mut file = file.take(MOST_BYTES);
        let mut bytes = [0; 16 << 10];
        while let Ok(count @ 1..) = file.read(&mut bytes) {
            hash.update(&bytes[..count]);
        }
    }
    hash.finalize().into()
}
