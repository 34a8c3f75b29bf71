//! Permissions that follow their files: what another program, or a command of the terminal, saves there holds for the
//! next call of every session that is open.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu::rules::{Effect, Rule};
use quipu::{
    CommandNeeds, Decision, Grant, GrantError, Network, PermissionMode, Permissions, Policy, PolicyVersion,
    Proposal, WorkspaceAccess,
};
use quipu_protocol::Scope;
use quipu_workspace::{Access, Sandbox};

use crate::file_stamp::FileStamp;
use crate::permissions::{
    Entry, PermissionItem, Project, Record, RuleReach, Source, UnsavedPermissions, command_write,
};
use crate::{Advice, Failure, Home, OpenRequest, PermissionRequest, Question, env};

/// The permissions of a session, as they are saved.
#[derive(Debug)]
pub struct SavedPermissions {
    permissions: Permissions,
    source: Source,
    /// Whether what is allowed for good is kept.
    keeps: bool,
    /// What was given for this run; worktrees of sub-agents have the same.
    unsaved: Arc<Mutex<UnsavedPermissions>>,
    seen: Mutex<PermissionState>,
}

#[derive(Debug)]
struct PermissionState {
    stamps: [FileStamp; 2],
    /// The mode of this run that it was read with.
    mode: Option<PermissionMode>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SavedPermissions {
    pub(crate) fn of(source: Source, unsaved: UnsavedPermissions, keeps: bool) -> Result<Self, Failure> {
        // Before they are read: what is saved meanwhile is read again.
        let stamps = stamps(&source);
        let (rules, grants) = source.read(&unsaved)?;
        let permissions = Permissions::new(rules, grants);
        let seen = Mutex::new(PermissionState { stamps, mode: unsaved.mode });
        Ok(Self { permissions, source, keeps, unsaved: Arc::new(Mutex::new(unsaved)), seen })
    }

    /// How much is asked.
    pub fn mode(&self) -> PermissionMode {
        self.permissions.mode()
    }

    /// What rules say of a host that a tool would reach.
    pub(crate) fn host(&self, host: &quipu::rules::Host) -> quipu::rules::Verdict {
        self.follow();
        self.permissions.host(host)
    }

    /// What rules say of a tool.
    pub(crate) fn tool(&self, name: &str) -> quipu::rules::Verdict {
        self.follow();
        self.permissions.tool(name)
    }

    /// Whether the session is kept off the network.
    pub(crate) fn is_offline(&self) -> bool {
        self.follow();
        self.permissions.is_offline()
    }

    /// Whether commands are confined.
    pub fn confines(&self) -> bool {
        self.permissions.confines()
    }

    /// Whether commands run in namespaces.
    pub fn isolates(&self) -> bool {
        self.permissions.isolates()
    }

    /// Whether commands run in containers.
    pub fn contains(&self) -> bool {
        self.permissions.contains()
    }

    /// Whether tools and commands change the workspace.
    pub fn workspace(&self) -> WorkspaceAccess {
        self.permissions.workspace()
    }

    /// Why commands are not confined, though they should be.
    pub fn unconfined(&self) -> Option<String> {
        self.permissions.unconfined()
    }

    /// Why this mode cannot hold in this session, if so.
    pub fn refuses(&self, mode: PermissionMode) -> Option<String> {
        (mode == PermissionMode::Full && self.source.closes_network()).then(|| {
            format!(
                "this session denies commands the network, which `full` cannot do; the mode stays `{}`",
                self.mode().word()
            )
        })
    }

    /// A mode was saved for the directory: it takes the place of one that was given for this run only.
    pub fn mode_was_saved(&self) {
        let lifted = self.source.directory.as_deref().map_or(Ok(()), |directory| {
            let mode = self.source.record.project()?.mode.unwrap_or_default();
            lift_mode(&self.source.home, directory, mode)
        });
        if let Err(failure) = lifted {
            self.source.home.warn(failure.message);
        }
        let had = lock(&self.unsaved).mode.take().is_some();
        if had {
            self.read_again(&mut lock(&self.seen));
        }
    }

    /// Another mode for this session alone: nothing is saved.
    ///
    /// # Errors
    /// `Request` where the session cannot have it.
    pub fn set_here(&self, mode: PermissionMode) -> Result<(), Failure> {
        if let Some(why) = self.refuses(mode) {
            return Err(Failure::request(why));
        }
        lock(&self.unsaved).mode = Some(mode);
        self.follow();
        Ok(())
    }

    fn keep_rules(&self, rules: &[String], reach: RuleReach) -> Result<(), Failure> {
        for rule in rules {
            let rule = Rule::parse(rule).map_err(|error| Failure::failed(error.to_string()))?;
            self.source.record.add_rule(Effect::Allow, &rule, reach)?;
        }
        Ok(())
    }

    /// Reads the files again where they are other ones than before.
    fn follow(&self) {
        let mode = lock(&self.unsaved).mode;
        let mut seen = lock(&self.seen);
        if seen.stamps != stamps(&self.source) || seen.mode != mode {
            self.read_again(&mut seen);
        }
    }

    fn read_again(&self, seen: &mut PermissionState) {
        seen.stamps = stamps(&self.source);
        let unsaved = lock(&self.unsaved).clone();
        seen.mode = unsaved.mode;
        match self.source.read(&unsaved) {
            Ok((mut rules, grants)) => {
                if let Some(why) = self.refuses(rules.mode) {
                    self.source.home.warn(why);
                    rules.mode = self.mode();
                }
                self.permissions.exchange(rules, grants);
            }
            Err(failure) => {
                self.source.home.warn(format!("no tool call runs: {}", failure.message));
                self.permissions.refuse_all(failure.message);
            }
        }
    }
}

impl Policy for SavedPermissions {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        self.follow();
        self.permissions.decide(proposal)
    }

    fn version(&self) -> PolicyVersion {
        self.follow();
        self.permissions.version()
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        let mut scopes = self.permissions.scopes(grant);
        if self.keeps && scopes.contains(&Scope::Session) {
            scopes.push(Scope::Always);
        }
        if self.keeps && scopes.contains(&Scope::SessionRule) {
            scopes.extend([Scope::ProjectRule, Scope::AlwaysRule]);
        }
        scopes
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        self.permissions.offers(grant)
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        let reach = match scope {
            Scope::ProjectRule => Some(RuleReach::Project),
            Scope::AlwaysRule => Some(RuleReach::Everywhere),
            Scope::Once | Scope::Session | Scope::SessionRule | Scope::Always => None,
        };
        if let Some(reach) = reach.filter(|_| self.keeps) {
            let offers = self.offers(&grant);
            return self.keep_rules(&offers, reach).map(|()| scope).map_err(|failure| {
                self.permissions.add_rules(&offers);
                GrantError::NotKept { why: failure.message }
            });
        }
        if scope != Scope::Always || !self.scopes(&grant).contains(&scope) {
            return self.permissions.grant(grant, scope);
        }
        // It is read from there, as long as it stands there.
        let bound = self.permissions.bound(grant);
        self.source.record.keep(&bound).map(|()| scope).map_err(|failure| {
            self.permissions.allow(bound.grant);
            GrantError::NotKept { why: failure.message }
        })
    }

    fn access(&self) -> Access {
        self.permissions.access()
    }

    fn restores(&self) -> Option<Access> {
        self.permissions.restores()
    }

    fn elsewhere(&self, cwd: &Path) -> Option<Arc<dyn Policy>> {
        let unsaved = lock(&self.unsaved).clone();
        let source = Source { cwd: cwd.to_path_buf(), ..self.source.clone() };
        let stamps = stamps(&source);
        let (rules, grants) = source.read(&unsaved).ok()?;
        let permissions = self.permissions.beside(rules, grants);
        let seen = Mutex::new(PermissionState { stamps, mode: unsaved.mode });
        let unsaved = self.unsaved.clone();
        Some(Arc::new(Self { permissions, source, keeps: self.keeps, unsaved, seen }))
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.permissions.sandbox()
    }
}

fn stamps(source: &Source) -> [FileStamp; 2] {
    source.files().map(|path| FileStamp::of(&path))
}

/// The permissions of a session in `cwd`: what is saved, and what the request says, which is saved.
pub(crate) fn of_request(
    home: &Home,
    request: &OpenRequest,
    cwd: &Path,
    directory: Option<PathBuf>,
) -> Result<Arc<SavedPermissions>, Failure> {
    let record = Record::of(home, cwd);
    let mut project = record.project()?;
    // `--no-session` keeps nothing on disk.
    let keep = !request.in_memory;
    let mut unsaved = UnsavedPermissions::default();
    if let Some(mode) = request.permissions.mode {
        let before = project.mode.replace(mode).unwrap_or_default();
        if keep && before != mode {
            record.set(mode)?;
            home.note(format!("permissions of {} are now `{}`", cwd.display(), mode.word()));
        }
        if let Some(directory) = directory.as_deref().filter(|_| keep) {
            lift_mode(home, directory, mode)?;
        }
        unsaved.mode = Some(mode).filter(|_| !keep);
    }
    for dir in &request.permissions.add_dirs {
        let path = dir.canonicalize().ok().filter(|path| path.is_dir()).ok_or_else(|| {
            Failure::request(format!("{} is not a directory that can be added", dir.display()))
        })?;
        let Some(text) = path.to_str() else {
            return Err(Failure::request(format!(
                "{}: its name is not text (UTF-8), so it cannot be added",
                dir.display()
            )));
        };
        let what = PermissionItem::Directory { path: text.to_owned() };
        if !project.entries.iter().any(|entry| entry.what == what) {
            if keep {
                record.add(what.clone())?;
            } else {
                unsaved.directories.push(what.clone());
            }
            project.entries.push(Entry { id: String::new(), what });
        }
    }
    if keep && project.mode.unwrap_or_default() != PermissionMode::Full {
        offer_caches(home, request, cwd, &record, &project)?;
    }
    let network = request.permissions.no_network.then_some(Network::Closed);
    let PermissionRequest { allow_network, allow_protected, allow_tobe, .. } = request.permissions;
    if network.is_some() && allow_network {
        return Err(Failure::request("commands cannot both have the network and be denied it")
            .advise(Advice::OneOfNetwork));
    }
    let source = Source {
        home: home.clone(),
        cwd: cwd.to_path_buf(),
        project: cwd.to_path_buf(),
        record,
        directory,
        network,
        needs: CommandNeeds { network: allow_network, protected: allow_protected },
        allow_tobe,
        conversation: request.conversation.clone(),
    };
    let permissions = SavedPermissions::of(source, unsaved, keep)?;
    if network.is_some() {
        let why = match permissions.mode() {
            PermissionMode::Full => {
                Some("permissions are `full` here, so commands are not confined".to_owned())
            }
            PermissionMode::Ask | PermissionMode::Workspace => {
                permissions.unconfined().or_else(Sandbox::network_stays_open)
            }
        };
        if let Some(why) = why {
            return Err(Failure::request(format!("commands cannot be denied the network: {why}"))
                .advise(Advice::AllowNetwork));
        }
    }
    if let Some(why) = permissions.unconfined() {
        home.warn(format!(
            "Quipu asks before every command, or denies it when nobody is there, because {why}"
        ));
    }
    Ok(Arc::new(permissions))
}

/// A mode was set for the folder of a sandbox: where it asks less than that of the directory which the session belongs to, the directory
/// asks no more than `workspace`, or the mode would not count.
fn lift_mode(home: &Home, directory: &Path, mode: PermissionMode) -> Result<(), Failure> {
    let record = Record::of(home, directory);
    if mode != PermissionMode::Ask && record.project()?.mode == Some(PermissionMode::Ask) {
        let workspace = PermissionMode::Workspace;
        record.set(workspace)?;
        home.note(format!("permissions of {} are now `{}`", directory.display(), workspace.word()));
    }
    Ok(())
}

/// Asks once whether commands may write to directories that variables of the user name for tools; where nobody can be
/// asked, what they write there is kept separate.
fn offer_caches(
    home: &Home,
    request: &OpenRequest,
    cwd: &Path,
    record: &Record,
    project: &Project,
) -> Result<(), Failure> {
    if !request.offers_caches || record.project.is_none() || !home.config().sandbox.separates_caches {
        return Ok(());
    }
    let (write, caches) = command_write(home, std::env::home_dir().as_deref());
    let added = project.entries.iter().filter_map(|entry| match &entry.what {
        PermissionItem::Directory { path } => Some(PathBuf::from(path)),
        PermissionItem::Grant { .. }
        | PermissionItem::Cache { .. }
        | PermissionItem::Rule { .. }
        | PermissionItem::Rules { .. }
        | PermissionItem::Settings { .. }
        | PermissionItem::Resources { .. } => None,
    });
    let open: Vec<PathBuf> = std::iter::once(cwd.to_path_buf()).chain(added).chain(write).collect();
    let mut named: Vec<(&str, String)> = Vec::new();
    for cache in caches {
        // Everything has its cache in that one.
        let Some(variable) = cache.variable.filter(|variable| *variable != "XDG_CACHE_HOME") else {
            continue;
        };
        let Some(path) = env(variable) else { continue };
        let is_known = project.entries.iter().any(|entry| {
            matches!(&entry.what, PermissionItem::Cache { variable: known, path: at, .. } if known == variable && *at == path)
        });
        let is_open = open.iter().any(|open| quipu_workspace::file_key(&cache.path).starts_with(open));
        if !is_known && !is_open && named.iter().all(|(known, _)| *known != variable) {
            named.push((variable, path));
        }
    }
    if named.is_empty() {
        return Ok(());
    }
    let list: String = named.iter().map(|(variable, path)| format!("\n  {variable}={path}")).collect();
    let text = format!(
        "Your environment sets directories where tools keep builds and downloads:{list}\nCommands of sessions in {} can read them. What they write there goes to a separate copy for this directory, unless you allow them to write to these directories.",
        cwd.display()
    );
    if let Some(write) = request.answer(Question::Caches, &text)? {
        for (variable, path) in named {
            record.add(PermissionItem::Cache { variable: variable.to_owned(), path, write })?;
        }
    }
    Ok(())
}
