//! Permissions as the user keeps them, in one file for all projects, and as a session has them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use quipu::rules::{Effect, Rule, RuleSet};
use quipu::{
    BoundFile, BoundGrant, Cache, CommandNeeds, Grant, Namespaces, Network, PermissionMode, PermissionRules,
    Permissions, TravelRule, WorkspaceAccess,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::commit_trailers::CommitTrailers;
use crate::state_file::{State, StateFile};
use crate::{Advice, ConversationPlace, Failure, Home, env, sandbox};

/// `permissions.json`. Keys are true paths of directories.
#[derive(Debug, Serialize, Deserialize)]
struct PermissionFile {
    version: u32,
    /// The number of the next grant.
    #[serde(default)]
    next: u64,
    #[serde(default)]
    projects: BTreeMap<String, Project>,
    /// Rules of every directory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    everywhere: Vec<Entry>,
}

impl Default for PermissionFile {
    fn default() -> Self {
        Self { version: Self::VERSION, next: 0, projects: BTreeMap::new(), everywhere: Vec::new() }
    }
}

impl State for PermissionFile {
    const VERSION: u32 = 1;
    const RESET: &str = "reset all permissions";

    fn version(&self) -> u32 {
        self.version
    }
}

/// What is saved for a directory.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Project {
    #[serde(default, with = "mode", skip_serializing_if = "Option::is_none")]
    /// How much is asked there.
    pub mode: Option<PermissionMode>,
    /// What else holds there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<Entry>,
}

/// Something that can be revoked.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Entry {
    /// Names it.
    pub id: String,
    /// The permission itself.
    #[serde(flatten)]
    pub what: PermissionItem,
}

/// A saved permission.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum PermissionItem {
    /// A directory where tools work as well.
    Directory {
        /// Its true path.
        path: String,
    },
    /// A call that was allowed for good.
    Grant {
        /// The name of the tool.
        tool: String,
        /// The command line, or the path of the file.
        subject: String,
        /// The files that the command runs by their paths, as they were.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        files: Vec<BoundFile>,
    },
    /// A directory that a variable of the user's environment names for a tool, and whether commands write to it.
    Cache {
        /// The name of the variable.
        variable: String,
        /// What it named.
        path: String,
        /// Whether commands write there.
        write: bool,
    },
    /// A file of rules that a command made, as it was when it was accepted: the SHA-256 of its bytes.
    Rules {
        /// Its true path.
        path: String,
        /// The hash of its bytes.
        content: String,
    },
    /// A permission rule.
    Rule {
        /// What it says.
        effect: Effect,
        /// Its text, such as `bash(git status *)`.
        rule: String,
    },
    /// The settings of a project, as they were when they were accepted: the SHA-256 of the file's bytes.
    Settings {
        /// The path of the file.
        path: String,
        /// The hash of its bytes.
        content: String,
    },
    /// Skills, templates and rules that a project brings along, and whether they are used: the SHA-256 of what of them can run.
    Resources {
        /// The root of the project.
        path: String,
        /// The hash of what can run.
        content: String,
        /// Whether they are used.
        used: bool,
    },
}

/// Where a saved rule counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleReach {
    /// In the directory that it was saved for.
    Project,
    /// In every directory.
    Everywhere,
    /// Where the settings count that have it.
    Settings,
}

/// A rule as it is saved.
#[derive(Debug, Clone)]
pub struct SavedRule {
    /// Names it.
    pub id: String,
    /// Where it counts.
    pub reach: RuleReach,
    /// What it says.
    pub effect: Effect,
    /// The rule.
    pub rule: Rule,
}

/// How much is asked, as it is written.
mod mode {
    use quipu::PermissionMode;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        mode: &Option<PermissionMode>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match mode {
            Some(mode) => serializer.serialize_str(mode.word()),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<PermissionMode>, D::Error> {
        let Some(word) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let mode = super::mode_named(&word);
        mode.map(Some).ok_or_else(|| serde::de::Error::custom(format!("{word} is not a permission mode")))
    }
}

/// How much is asked, by its word.
pub fn mode_named(word: &str) -> Option<PermissionMode> {
    let all = [PermissionMode::Ask, PermissionMode::Workspace, PermissionMode::Full];
    all.into_iter().find(|mode| mode.word() == word)
}

/// The file, and the project of one directory in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    file: StateFile,
    /// `None` for a directory whose name is not text: two of them must not be taken for one.
    pub(crate) project: Option<String>,
}

impl Record {
    /// That of a directory.
    pub fn of(home: &Home, cwd: &Path) -> Self {
        Self::in_home(&home.dir, cwd)
    }

    /// That of a directory, for the user whose files are in `home`.
    pub(crate) fn in_home(home: &Path, cwd: &Path) -> Self {
        let file = StateFile::new(home.join("permissions.json"));
        Self { file, project: cwd.to_str().map(str::to_owned) }
    }

    fn read(&self) -> Result<PermissionFile, Failure> {
        self.file.read()
    }

    /// What is saved for the directory.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn project(&self) -> Result<Project, Failure> {
        let mut saved = self.read()?;
        Ok(self.project.as_ref().and_then(|project| saved.projects.remove(project)).unwrap_or_default())
    }

    /// Changes the file, alone. Nothing is written when nothing changed.
    fn change(&self, change: impl FnOnce(&mut PermissionFile) -> bool) -> Result<(), Failure> {
        self.file.change(|saved: &mut PermissionFile| {
            let changed = change(saved);
            saved.projects.retain(|_, project| project.mode.is_some() || !project.entries.is_empty());
            changed
        })
    }

    fn named(&self) -> Result<&String, Failure> {
        self.project.as_ref().ok_or_else(|| {
            Failure::request(
                "the name of this directory is not text (UTF-8), so no permission can be saved for it",
            )
        })
    }

    /// Adds an entry, unless it is there.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn add(&self, what: PermissionItem) -> Result<(), Failure> {
        let name = self.named()?;
        self.change(|saved| {
            let id = format!("p{}", saved.next + 1);
            let project = saved.projects.entry(name.clone()).or_default();
            if project.entries.iter().any(|entry| entry.what == what) {
                return false;
            }
            project.entries.push(Entry { id, what });
            saved.next += 1;
            true
        })
    }

    /// The rules that count in the directory: those of every directory, then its own.
    ///
    /// # Errors
    /// When the file cannot be read, or has a rule that is none.
    pub fn rules(&self) -> Result<Vec<SavedRule>, Failure> {
        let mut saved = self.read()?;
        let own =
            self.project.as_ref().and_then(|project| saved.projects.remove(project)).unwrap_or_default();
        let everywhere = saved.everywhere.into_iter().map(|entry| (entry, RuleReach::Everywhere));
        let entries = everywhere.chain(own.entries.into_iter().map(|entry| (entry, RuleReach::Project)));
        let mut rules = Vec::new();
        for (Entry { id, what }, reach) in entries {
            let PermissionItem::Rule { effect, rule } = what else { continue };
            let rule = Rule::parse(&rule).map_err(|error| {
                let shown = self.file.path.display();
                Failure::failed(format!("{shown} cannot be used: the rule `{rule}` ({id}): {error}"))
            })?;
            rules.push(SavedRule { id, reach, effect, rule });
        }
        Ok(rules)
    }

    /// Adds a rule, unless it is there. Its id.
    ///
    /// # Errors
    /// When the file cannot be written, or would have too many rules.
    pub fn add_rule(&self, effect: Effect, rule: &Rule, reach: RuleReach) -> Result<String, Failure> {
        let name = match reach {
            RuleReach::Project => Some(self.named()?.clone()),
            RuleReach::Everywhere => None,
            RuleReach::Settings => {
                return Err(Failure::request("a rule of the settings is added in settings.json"));
            }
        };
        let what = PermissionItem::Rule { effect, rule: rule.text().to_owned() };
        let (mut added, mut is_full) = (String::new(), false);
        self.change(|saved| {
            let id = format!("p{}", saved.next + 1);
            let entries = match &name {
                Some(name) => &mut saved.projects.entry(name.clone()).or_default().entries,
                None => &mut saved.everywhere,
            };
            if let Some(there) = entries.iter().find(|entry| entry.what == what) {
                added.clone_from(&there.id);
                return false;
            }
            let is_rule = |entry: &&Entry| matches!(entry.what, PermissionItem::Rule { .. });
            is_full = entries.iter().filter(is_rule).count() >= RULES;
            if is_full {
                return false;
            }
            added.clone_from(&id);
            entries.push(Entry { id, what });
            saved.next += 1;
            true
        })?;
        if is_full {
            return Err(Failure::request(format!(
                "there are {RULES} rules already, which is the most; remove some"
            )));
        }
        Ok(added)
    }

    /// The rules of every directory, with their ids.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn everywhere(&self) -> Result<Vec<Entry>, Failure> {
        Ok(self.read()?.everywhere)
    }

    /// Accepts the settings of a project as they are, in place of what they were.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn accept_settings(&self, file: &str, content: String) -> Result<(), Failure> {
        let name = self.named()?;
        let what = PermissionItem::Settings { path: file.to_owned(), content };
        self.change(|saved| {
            let id = format!("p{}", saved.next + 1);
            let project = saved.projects.entry(name.clone()).or_default();
            if project.entries.iter().any(|entry| entry.what == what) {
                return false;
            }
            project.entries.retain(
                |entry| !matches!(&entry.what, PermissionItem::Settings { path, .. } if path == file),
            );
            project.entries.push(Entry { id, what });
            saved.next += 1;
            true
        })
    }

    /// Adds an entry in place of those that are the same to `is_same`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn put_in_place(
        &self,
        what: PermissionItem,
        is_same: &dyn Fn(&PermissionItem) -> bool,
    ) -> Result<(), Failure> {
        let name = self.named()?;
        self.change(|saved| {
            let id = format!("p{}", saved.next + 1);
            let project = saved.projects.entry(name.clone()).or_default();
            if project.entries.iter().any(|entry| entry.what == what) {
                return false;
            }
            project.entries.retain(|entry| !is_same(&entry.what));
            project.entries.push(Entry { id, what });
            saved.next += 1;
            true
        })
    }

    /// Sets how much is asked in the directory.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, mode: PermissionMode) -> Result<(), Failure> {
        let name = self.named()?;
        self.change(|saved| {
            let project = saved.projects.entry(name.clone()).or_default();
            project.mode.replace(mode) != Some(mode)
        })
    }

    /// Every directory that something is saved for, and this one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn all(&self) -> Result<BTreeMap<String, Project>, Failure> {
        let mut saved = self.read()?;
        if let Some(project) = &self.project {
            saved.projects.entry(project.clone()).or_default();
        }
        Ok(saved.projects)
    }

    /// Takes back an entry, of whichever directory. Whether there was one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn revoke(&self, id: &str) -> Result<bool, Failure> {
        let mut found = false;
        self.change(|saved| {
            let entries = saved.projects.values_mut().map(|project| &mut project.entries);
            for entries in entries.chain([&mut saved.everywhere]) {
                let before = entries.len();
                entries.retain(|entry| entry.id != *id);
                found |= entries.len() != before;
            }
            found
        })?;
        Ok(found)
    }

    /// Keeps a grant for good, in place of one for other bytes.
    pub(crate) fn keep(&self, grant: &BoundGrant) -> Result<(), Failure> {
        let BoundGrant { grant: Grant { tool, subject }, files } = grant.clone();
        let is_same = |item: &PermissionItem| matches!(item, PermissionItem::Grant { tool, subject, .. } if (tool, subject) == (&grant.grant.tool, &grant.grant.subject));
        self.put_in_place(PermissionItem::Grant { tool, subject, files }, &is_same)
    }
}

/// Rules of one directory, or of all, at most.
const RULES: usize = 1_000;

/// What the directory of a project is called where there is one for each.
pub(crate) fn project_name(cwd: &Path) -> String {
    let name = cwd.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name: String =
        name.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.".contains(*c)).take(40).collect();
    let hash = Sha256::digest(cwd.as_os_str().as_encoded_bytes());
    let hash = quipu_protocol::hex(&hash[..8]);
    format!("{name}-{hash}")
}

/// Permissions of a run that saves nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnsavedPermissions {
    pub(crate) mode: Option<PermissionMode>,
    pub(crate) directories: Vec<PermissionItem>,
}

/// What the permissions of a session are read from.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) home: Home,
    pub(crate) cwd: PathBuf,
    /// The directory whose settings and caches these are: that of the session whose sub-agent works in `cwd`.
    pub(crate) project: PathBuf,
    pub(crate) record: Record,
    /// The directory that the session belongs to, where it works in the folder of a sandbox in place of it: what is denied and asked
    /// there is so in the folder.
    pub(crate) directory: Option<PathBuf>,
    /// What was said for this run only.
    pub(crate) network: Option<Network>,
    pub(crate) needs: CommandNeeds,
    pub(crate) allow_tobe: bool,
    /// The conversation that the session is for.
    pub(crate) conversation: Option<ConversationPlace>,
}

impl Source {
    /// That of a session which a person begins in a directory now. Makes nothing.
    pub(crate) fn begun_in(home: &Home, directory: &Path) -> Self {
        let folder = sandbox::own_folder(home, None, directory);
        let cwd = folder.as_deref().unwrap_or(directory);
        Self {
            home: home.clone(),
            cwd: cwd.to_path_buf(),
            project: cwd.to_path_buf(),
            record: Record::of(home, cwd),
            directory: folder.is_some().then(|| directory.to_path_buf()),
            network: None,
            needs: CommandNeeds::default(),
            allow_tobe: false,
            conversation: None,
        }
    }

    /// The rules and grants as they are saved now; why commands are not kept off the network by them, if so.
    pub(crate) fn read(
        &self,
        unsaved: &UnsavedPermissions,
    ) -> Result<(PermissionRules, Vec<BoundGrant>), Failure> {
        let mut project = self.project(unsaved.mode)?;
        let more = unsaved.directories.iter().cloned().map(|what| Entry { id: String::new(), what });
        project.entries.extend(more);
        let travel = if self.allow_tobe { TravelRule::Allow } else { self.home.config().travel_rule };
        let (mut rules, grants) = rules(&self.home, &self.cwd, project, travel);
        let saved = self.rules()?;
        rules.rules = RuleSet::new(saved.into_iter().map(|saved| (saved.effect, saved.rule)).collect());
        if self.project != self.cwd {
            let layers = rules.cache_layers.take();
            rules.cache_layers = layers.map(|_| self.home.cache_layers().join(project_name(&self.project)));
        }
        rules.network = self.network.unwrap_or(rules.network);
        rules.needs = self.needs;
        sandbox::put(&self.home, self.conversation.as_ref(), &self.project, &mut rules)?;
        Ok((rules, grants))
    }

    /// What is saved, with the mode that counts: one of this run before others.
    fn project(&self, unsaved: Option<PermissionMode>) -> Result<Project, Failure> {
        let mut project = self.record.project()?;
        project.mode = match self.of_directory() {
            None => unsaved.or(project.mode),
            Some(directory) => {
                let saved = [project.mode, directory.project()?.mode].map(Option::unwrap_or_default);
                let mode = unsaved.unwrap_or(saved[0].stricter(saved[1]));
                // Unconfined, it would have all that its sandbox keeps from it.
                Some(mode.stricter(PermissionMode::Workspace))
            }
        };
        Ok(project)
    }

    /// The rules that count: those that are saved, then those of the settings. Where the session works in the folder of a sandbox, what its
    /// directory denies and asks about, too; what that allows was said of other files.
    pub(crate) fn rules(&self) -> Result<Vec<SavedRule>, Failure> {
        let mut rules = rules_in(&self.home, &self.record, &self.project)?;
        let (Some(directory), Some(record)) = (&self.directory, self.of_directory()) else {
            return Ok(rules);
        };
        let careful = rules_in(&self.home, &record, directory)?;
        let careful = careful.into_iter().filter(|saved| saved.effect != Effect::Allow);
        for saved in careful {
            // Also of the files that it was written about.
            let there = saved.rule.below(directory).map(|rule| SavedRule { rule, ..saved.clone() });
            let is_known =
                rules.iter().any(|known| (known.effect, &known.rule) == (saved.effect, &saved.rule));
            rules.extend((!is_known).then_some(saved).into_iter().chain(there));
        }
        Ok(rules)
    }

    /// What is saved for the directory that the session belongs to, where it works elsewhere.
    pub(crate) fn of_directory(&self) -> Option<Record> {
        self.directory.as_ref().map(|directory| Record::of(&self.home, directory))
    }

    /// The files that it is read from.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        [self.record.file.path.clone(), self.home.dir.join("settings.json")]
    }

    /// Whether commands are kept off the network, which the mode `full` cannot do.
    pub(crate) fn closes_network(&self) -> bool {
        self.network == Some(Network::Closed)
    }
}

/// The rules that are saved for a directory, then those of its settings.
fn rules_in(home: &Home, record: &Record, directory: &Path) -> Result<Vec<SavedRule>, Failure> {
    let mut rules = record.rules()?;
    let settings = home.config_in(directory);
    rules.extend(settings.rules.iter().map(|(effect, rule)| SavedRule {
        id: String::new(),
        reach: RuleReach::Settings,
        effect: *effect,
        rule: rule.clone(),
    }));
    Ok(rules)
}

/// The permissions of a demo in `cwd`: those of a workspace about which nothing is saved.
pub fn demo_permissions(home: &Home, cwd: &Path) -> Permissions {
    let (rules, grants) = rules(home, cwd, Project::default(), TravelRule::Ask);
    Permissions::new(rules, grants)
}

fn rules(
    home: &Home,
    cwd: &Path,
    project: Project,
    travel: TravelRule,
) -> (PermissionRules, Vec<BoundGrant>) {
    let (mut add_dirs, mut grants, mut shared) = (Vec::new(), Vec::new(), Vec::new());
    for entry in project.entries {
        match entry.what {
            PermissionItem::Directory { path } => add_dirs.extend(still_there(home, path, &entry.id)),
            PermissionItem::Grant { tool, subject, files } => {
                grants.push(BoundGrant { grant: Grant { tool, subject }, files });
            }
            PermissionItem::Cache { variable, path, write: true } => shared.push((variable, path)),
            PermissionItem::Cache { .. }
            | PermissionItem::Rule { .. }
            | PermissionItem::Rules { .. }
            | PermissionItem::Settings { .. }
            | PermissionItem::Resources { .. } => {}
        }
    }
    let user_home = std::env::home_dir();
    let (command_write, mut caches) = command_write(home, user_home.as_deref());
    let sandbox = &home.config().sandbox;
    for cache in &mut caches {
        let named = cache.variable.and_then(|variable| Some((variable.to_owned(), env(variable)?)));
        cache.shared = named.is_some_and(|named| shared.contains(&named));
    }
    let mut read = vec![home.readable_outputs()];
    read.extend(crate::resources::readable(home));
    read.extend(crate::memory::readable(home, cwd));
    let namespaces = sandbox.namespaces.then(|| Namespaces {
        launcher: sandbox::launcher(),
        home: user_home.clone(),
        hidden: vec![home.dir.clone()],
        visible: read.iter().cloned().chain(CommitTrailers::readable(home)).collect(),
        doors: sandbox::doors(home),
    });
    let rules = PermissionRules {
        mode: project.mode.unwrap_or_default(),
        cwd: cwd.to_path_buf(),
        add_dirs,
        read,
        own: home.dir.clone(),
        command_write,
        caches,
        cache_layers: sandbox.separates_caches.then(|| home.cache_layers().join(project_name(cwd))),
        home: user_home,
        network: sandbox.network,
        workspace: WorkspaceAccess::Write,
        containers: None,
        namespaces,
        needs: CommandNeeds::default(),
        support: None,
        travel,
        rules: RuleSet::default(),
    };
    (rules, grants)
}

/// Directories where tools of the sessions in `cwd` may work as well, as they were added for good.
pub fn added_directories(home: &Home, cwd: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = Record::of(home, cwd).project()?.entries;
    let added = entries.into_iter().filter_map(|Entry { id, what }| match what {
        PermissionItem::Directory { path } => still_there(home, path, &id),
        PermissionItem::Grant { .. }
        | PermissionItem::Cache { .. }
        | PermissionItem::Rule { .. }
        | PermissionItem::Rules { .. }
        | PermissionItem::Settings { .. }
        | PermissionItem::Resources { .. } => None,
    });
    Ok(added.collect())
}

/// An added directory, unless it leads elsewhere now: it was its true path when it was added, and whoever exchanged it
/// since was not you.
fn still_there(home: &Home, path: String, id: &str) -> Option<PathBuf> {
    let path = PathBuf::from(path);
    let now = quipu_workspace::file_key(&path);
    if now == path {
        return Some(path);
    }
    let text =
        format!("the added directory {} now leads to {} and is ignored", path.display(), now.display());
    home.warn_with(text, Advice::Revoke(id.to_owned()));
    None
}

/// What commands may write besides: `sandbox.write` of the settings, or the usual caches.
pub(crate) fn command_write(home: &Home, user_home: Option<&Path>) -> (Vec<PathBuf>, Vec<Cache>) {
    let (mut write, mut caches) = (Vec::new(), Vec::new());
    for text in &home.config().sandbox.write {
        match (text.as_str(), text.strip_prefix("~/"), user_home) {
            ("default", _, _) => caches = quipu::caches(user_home, &|name| std::env::var_os(name)),
            (_, Some(below), Some(user_home)) => write.push(user_home.join(below)),
            (_, Some(_), None) => {}
            (path, None, _) => write.push(PathBuf::from(path)),
        }
    }
    (write, caches)
}

/// Where confined commands of sessions in `cwd` may write, as far as is known; says nothing of what is wrong, which a
/// session does. Not what holds our own files: there commands are not confined.
pub(crate) fn open_to_commands(home: &Home, cwd: &Path) -> Vec<PathBuf> {
    let entries = Record::of(home, cwd).project().unwrap_or_default().entries;
    let added = entries.into_iter().filter_map(|entry| match entry.what {
        PermissionItem::Directory { path } => Some(PathBuf::from(path)),
        PermissionItem::Grant { .. }
        | PermissionItem::Cache { .. }
        | PermissionItem::Rule { .. }
        | PermissionItem::Rules { .. }
        | PermissionItem::Settings { .. }
        | PermissionItem::Resources { .. } => None,
    });
    let mut places: Vec<PathBuf> = std::iter::once(cwd.to_path_buf()).chain(added).collect();
    let git: Vec<PathBuf> = places.iter().flat_map(|path| quipu_workspace::git_directories(path)).collect();
    let (write, caches) = command_write(home, std::env::home_dir().as_deref());
    places.extend(git);
    places.extend(write);
    places.extend(caches.into_iter().map(|cache| cache.path));
    let own = quipu_workspace::file_key(&home.dir);
    // Most are caches below one home.
    let mut keys = quipu_workspace::FileKeys::default();
    places.retain(|path| !own.starts_with(keys.key(path)));
    places
}

/// In one line: what holds here, and whether it is as it should be.
pub fn permissions_here(home: &Home) -> Result<(bool, String), Failure> {
    let here = crate::current_dir()?;
    let counts = format!("{} saved", Record::of(home, &here).project()?.entries.len());
    let source = Source::begun_in(home, &here);
    let project = source.project(None)?;
    let mode = project.mode.unwrap_or_default();
    let (rules, grants) = rules(home, &source.cwd, project, home.config().travel_rule);
    // To look makes nothing.
    let bare = PermissionRules { caches: Vec::new(), cache_layers: None, ..rules.clone() };
    let permissions = Permissions::new(rules, grants);
    let folder = match &source.directory {
        Some(_) => format!(
            "; sessions work in {}, where its mode and its deny and ask rules count",
            source.cwd.display()
        ),
        None => String::new(),
    };
    let detail = |more: &str| format!("{} in {} ({counts}){folder}; {more}", mode.word(), here.display());
    Ok(match (permissions.mode(), permissions.unconfined()) {
        (PermissionMode::Full, _) => (true, detail("commands are not confined and Quipu never asks")),
        (_, Some(why)) => (false, detail(&format!("Quipu asks before each command, because {why}"))),
        (_, None) => match quipu::SandboxSupport::of_this_system() {
            quipu::SandboxSupport::Full { scoped: false } => (
                true,
                detail("commands are confined; this kernel cannot confine their signals (Linux 6.12 can)"),
            ),
            _ => (true, detail("commands are confined")),
        },
    })
    .map(|(is_well, detail): (bool, String)| {
        match sandbox::isolation_here(&Permissions::new(bare, [])) {
            Some(why) => (false, format!("{detail}; {why}")),
            None => (is_well, detail),
        }
    })
}
