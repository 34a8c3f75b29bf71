//! The built-in policy: what tools may do in a project without asking.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use quipu_protocol::{CommandInput, Scope};
use quipu_rules::{Effect, FileAccess, Host, Rule, RuleSet, Verdict};
use quipu_tools::{BackgroundTool, Touches};
use quipu_workspace::{
    Access, AccessMode, AccessRules, CommandNeeds, FileKeys, HostRules, Network, Reach, Sandbox,
    SandboxSupport, file_key, git_directories, has_other_names,
};

use crate::bound_files::{BoundFile, BoundGrant, CommandFiles, bound, command_files, difference};
use crate::permission_settings::{PermissionMode, PermissionRules, TravelRule, WorkspaceAccess};
use crate::policy::{Decision, Grant, GrantError, Policy, Proposal, input_subject};
use crate::rulings::{RuleRoots, RuleVerdict, judged_command, judged_files, ruling};
use crate::travel::{Tobe, Travel};
use quipu_machine::PolicyVersion;

/// The built-in policy. [`Engine`](crate::Engine) gives tools its bounds; what lies beyond them is asked. Its rules can
/// be exchanged while sessions work by them.
#[derive(Debug)]
pub struct Permissions {
    bounds: RwLock<Arc<Bounds>>,
    /// Counts exchanges of the rules, and grants.
    number: Arc<AtomicU64>,
    /// Sandboxes of rules that hold no more: what was started in them still runs there.
    retired: Mutex<Vec<Arc<Sandbox>>>,
    /// What was allowed while the session was open, whatever the rules become.
    grants: Arc<Mutex<HashMap<Grant, Vec<BoundFile>>>>,
    /// The files of commands as they were when these were asked about.
    asked: Mutex<HashMap<Grant, Vec<BoundFile>>>,
    /// Which hosts commands reach; shared with each sandbox.
    hosts: Arc<HostRules>,
    /// Rules that were added for the session.
    session_rules: Arc<Mutex<Vec<Rule>>>,
}

/// Questions whose files are remembered.
const ASKED: usize = 256;

/// Whether a lasting yes counts.
enum GrantState {
    /// There is none.
    None,
    Holds,
    /// It is for other bytes: why.
    Changed(String),
}

/// The files that a command runs by path, as they are now.
fn files_of(bounds: &Bounds, grant: &Grant) -> Vec<BoundFile> {
    files_by_path(bounds, grant).map(bound).unwrap_or_default()
}

/// Which files a command runs by path; `None` for other tools.
fn files_by_path(bounds: &Bounds, grant: &Grant) -> Option<CommandFiles> {
    if grant.tool != "bash" {
        return None;
    }
    let command = match grant.subject.strip_prefix(WANTS).and_then(|rest| rest.split_once('\n')) {
        Some((_, command)) => command,
        None => &grant.subject,
    };
    Some(command_files(command, &bounds.roots.cwd, bounds.roots.home.as_deref()))
}

fn by_grant(grants: impl IntoIterator<Item = BoundGrant>) -> HashMap<Grant, Vec<BoundFile>> {
    grants.into_iter().map(|BoundGrant { grant, files }| (grant, files)).collect()
}

/// What follows from one set of rules.
#[derive(Debug)]
struct Bounds {
    mode: PermissionMode,
    cwd: PathBuf,
    access: Access,
    /// Where files are put back: within the workspace, whatever tools may do.
    restores: Access,
    /// What confines commands in the modes that confine them; `None` where that cannot be.
    sandbox: Option<Arc<Sandbox>>,
    unconfined: Option<String>,
    /// Whether commands must ask for what namespaces close, and what they need not ask for.
    isolated: bool,
    workspace: WorkspaceAccess,
    network: Network,
    needs: CommandNeeds,
    travel: TravelRule,
    grants: HashMap<Grant, Vec<BoundFile>>,
    rules: RuleSet,
    roots: RuleRoots,
    /// Why nothing is allowed, where the rules are not known.
    unknown: Option<String>,
}

impl Permissions {
    /// Permissions for one session; `grants` are allowed from the start.
    pub fn new(rules: PermissionRules, grants: impl IntoIterator<Item = BoundGrant>) -> Self {
        let hosts = Arc::<HostRules>::default();
        hosts.set(rules.rules.clone());
        Self {
            bounds: RwLock::new(Arc::new(Bounds::new(rules, by_grant(grants), &hosts))),
            hosts,
            number: Arc::default(),
            retired: Mutex::default(),
            grants: Arc::default(),
            asked: Mutex::default(),
            session_rules: Arc::default(),
        }
    }

    /// Permissions by these rules, such as for another directory, which share what a person allows while the session is open.
    #[must_use]
    pub fn beside(&self, rules: PermissionRules, grants: impl IntoIterator<Item = BoundGrant>) -> Self {
        let mut beside = Self::new(rules, grants);
        beside.number = self.number.clone();
        beside.grants = self.grants.clone();
        beside.session_rules = self.session_rules.clone();
        let all = beside.rules(&beside.bounds());
        beside.hosts.set(all);
        beside
    }

    /// Goes by these rules from now on, and by what was [granted](Self::grant) meanwhile.
    pub fn exchange(&self, rules: PermissionRules, grants: impl IntoIterator<Item = BoundGrant>) {
        let mut bounds = Bounds::new(rules, by_grant(grants), &self.hosts);
        let old = self.bounds();
        match (&mut bounds.sandbox, &old.sandbox) {
            // Commands keep sharing a directory for temporary files, and can signal each other.
            (Some(new), Some(old)) if new.confines_as(old) => *new = old.clone(),
            (_, Some(old)) => {
                self.retired.lock().unwrap_or_else(PoisonError::into_inner).push(old.clone());
            }
            (_, None) => {}
        }
        self.set(bounds);
    }

    /// Allows nothing from now on, because the rules are not known any more.
    pub fn refuse_all(&self, why: String) {
        let old = self.bounds();
        self.set(Bounds {
            mode: old.mode,
            cwd: old.cwd.clone(),
            access: old.access.clone(),
            restores: old.restores.clone(),
            sandbox: old.sandbox.clone(),
            unconfined: old.unconfined.clone(),
            isolated: old.isolated,
            workspace: old.workspace,
            network: old.network,
            needs: CommandNeeds::default(),
            travel: TravelRule::Deny,
            grants: HashMap::new(),
            rules: RuleSet::default(),
            roots: RuleRoots::default(),
            unknown: Some(why),
        });
    }

    fn set(&self, bounds: Bounds) {
        self.hosts.set(self.rules(&bounds));
        *self.bounds.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(bounds);
        // Behind it: whoever sees the new number finds the new rules.
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    fn bounds(&self) -> Arc<Bounds> {
        self.bounds.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How much is asked.
    pub fn mode(&self) -> PermissionMode {
        self.bounds().mode
    }

    /// Whether commands are confined.
    pub fn confines(&self) -> bool {
        self.bounds().confinement().is_some()
    }

    /// Whether commands are to run in namespaces.
    pub fn isolates(&self) -> bool {
        let bounds = self.bounds();
        bounds.isolated && bounds.confinement().is_some()
    }

    /// Whether commands run in containers.
    pub fn contains(&self) -> bool {
        self.bounds().confinement().is_some_and(|sandbox| sandbox.containers().is_some())
    }

    /// Whether tools and commands change the workspace.
    pub fn workspace(&self) -> WorkspaceAccess {
        self.bounds().workspace
    }

    /// What rules say of a host that a tool would reach. Denied where the session is kept off the network.
    pub fn host(&self, host: &Host) -> Verdict {
        let bounds = self.bounds();
        if bounds.network == Network::Closed || bounds.unknown.is_some() {
            return Verdict::Deny;
        }
        self.rules(&bounds).host(host).verdict
    }

    /// Whether the session is kept off the network.
    pub fn is_offline(&self) -> bool {
        self.bounds().network == Network::Closed
    }

    /// What rules say of a tool that has no command and no path.
    pub fn tool(&self, name: &str) -> Verdict {
        self.rules(&self.bounds()).tool(name).verdict
    }

    /// Why commands are not confined although they should be; they are asked then.
    pub fn unconfined(&self) -> Option<String> {
        self.bounds().unconfined.clone()
    }

    /// Allows this from now on. Says no for what is always asked: files where secrets are kept, changes of files with
    /// other names (hard links), and commands that run more files by path than are compared.
    pub fn allow(&self, grant: Grant) -> bool {
        let lasting = self.may_last(&grant);
        if lasting {
            let BoundGrant { grant, files } = self.bound(grant);
            if self.grants().insert(grant, files.clone()).as_ref() != Some(&files) {
                self.number.fetch_add(1, Ordering::SeqCst);
            }
        }
        lasting
    }

    /// The grant with the files that it is bound to: as they were when it was asked, or else as they are now.
    pub fn bound(&self, grant: Grant) -> BoundGrant {
        let asked = self.asked().get(&grant).cloned();
        let files = asked.unwrap_or_else(|| files_of(&self.bounds(), &grant));
        BoundGrant { grant, files }
    }

    /// A person is about to be asked: a yes is for the files as they are now.
    fn remember_asked(&self, bounds: &Bounds, grant: Grant) {
        let files = files_of(bounds, &grant);
        let mut asked = self.asked();
        if asked.len() >= ASKED {
            asked.clear();
        }
        asked.insert(grant, files);
    }

    fn asked(&self) -> MutexGuard<'_, HashMap<Grant, Vec<BoundFile>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a yes may hold for more than once.
    fn may_last(&self, grant: &Grant) -> bool {
        // What is left behind is another thing each time, and so is what a running command does with text.
        if grant.tool == Tobe::NAME || grant.tool == BackgroundTool::NAME {
            return false;
        }
        let bounds = self.bounds();
        // A rule that wants a question wants it each time.
        if self.judged(&bounds, grant) >= Verdict::Ask {
            return false;
        }
        let may_last = |path: &Path| {
            let reads = only_reads(&grant.tool);
            bounds.restores.reach(path, AccessMode::Read) != Reach::Secret
                && (reads || !has_other_names(path))
        };
        if let Some(files) = files_by_path(&bounds, grant) {
            return files.are_all;
        }
        grant.subject.lines().all(|path| may_last(Path::new(path)))
    }

    fn grants(&self) -> MutexGuard<'_, HashMap<Grant, Vec<BoundFile>>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The rules that hold now.
    fn rules(&self, bounds: &Bounds) -> RuleSet {
        let added = self.session_rules.lock().unwrap_or_else(PoisonError::into_inner);
        bounds.rules.with(added.iter().map(|rule| (Effect::Allow, rule.clone())))
    }

    /// Allows what these rules allow, until the session ends. Those that are none are left out.
    pub fn add_rules(&self, rules: &[String]) {
        let mut added = self.session_rules.lock().unwrap_or_else(PoisonError::into_inner);
        for rule in rules.iter().filter_map(|rule| Rule::parse(rule).ok()) {
            if !added.contains(&rule) {
                added.push(rule);
            }
        }
        self.number.fetch_add(1, Ordering::SeqCst);
    }

    fn judged(&self, bounds: &Bounds, grant: &Grant) -> Verdict {
        let rules = self.rules(bounds);
        if rules.is_empty() {
            return Verdict::NoRule;
        }
        if grant.tool == "bash" {
            return judged_command(&rules, &bounds.roots, &grant.subject).verdict;
        }
        let access = if only_reads(&grant.tool) { FileAccess::Read } else { FileAccess::Write };
        let paths: Vec<PathBuf> = grant.subject.lines().map(PathBuf::from).collect();
        let files = judged_files(&rules, &bounds.roots, &grant.tool, &paths, access).verdict;
        files.max(rules.tool(&grant.tool).verdict)
    }

    /// Whether somebody allowed this for longer, with the files as they are now.
    fn granted(&self, bounds: &Bounds, grant: &Grant) -> GrantState {
        let kept = [bounds.grants.get(grant).cloned(), self.grants().get(grant).cloned()];
        let mut state = GrantState::None;
        let mut now = None;
        for files in kept.into_iter().flatten() {
            let now = now.get_or_insert_with(|| files_of(bounds, grant));
            match difference(&files, now) {
                None => return GrantState::Holds,
                Some(why) => state = GrantState::Changed(why),
            }
        }
        state
    }
}

impl Bounds {
    fn new(rules: PermissionRules, grants: HashMap<Grant, Vec<BoundFile>>, hosts: &Arc<HostRules>) -> Self {
        let PermissionRules {
            mode,
            cwd,
            add_dirs,
            read,
            own,
            home,
            command_write,
            mut caches,
            cache_layers,
            network,
            workspace,
            containers,
            mut namespaces,
            needs,
            support,
            travel,
            rules: user_rules,
        } = rules;
        let is_bounded = containers.is_some() || workspace == WorkspaceAccess::Read;
        let mode = if is_bounded && mode == PermissionMode::Full { PermissionMode::Workspace } else { mode };
        let roots = RuleRoots { cwd: file_key(&cwd), home: home.as_deref().map(file_key) };
        let mut write = vec![cwd.clone()];
        write.extend(add_dirs);
        let wanted = write.iter().chain(&command_write).chain(caches.iter().map(|cache| &cache.path));
        // Most are caches below one home.
        let mut keys = FileKeys::default();
        let all: Vec<PathBuf> = wanted.map(|path| keys.key(path)).collect();
        caches.retain(|cache| !keys.leads_through(&cache.path, &all));
        caches.iter_mut().for_each(|cache| cache.path = keys.key(&cache.path));
        let mut commands: Vec<PathBuf> = write.iter().map(|path| keys.key(path)).collect();
        for path in &command_write {
            if !keys.leads_through(path, &all) {
                commands.push(keys.key(path));
            }
        }
        let git: Vec<PathBuf> = write.iter().flat_map(|root| git_directories(root)).collect();
        commands.extend(git);
        let own = file_key(&own);
        let support = support.unwrap_or_else(SandboxSupport::of_this_system);
        // What watches over commands is not confined, and needs a shell that they leave alone.
        let shell = file_key(Path::new("/bin/sh"));
        let unconfined = match support {
            // A container needs nothing of that, and says itself what it needs.
            _ if containers.is_some() => None,
            SandboxSupport::Missing => Some(format!("{MISSING}; {WHAT_TO_SET}")),
            SandboxSupport::TooOld => Some(format!("{TOO_OLD}; {WHAT_TO_SET}")),
            SandboxSupport::Full { .. } => all.iter().chain(&commands).find(|root| own.starts_with(root)).map(|root| {
                format!(
                    "Quipu's own files ({}) are in {}, where commands can write; work in another directory, or use \
                     permissions `full`",
                    own.display(),
                    root.display()
                )
            }).or_else(|| {
                let root = all.iter().chain(&commands).find(|root| shell.starts_with(root))?;
                Some(format!(
                    "the programs that Quipu itself runs ({}) are in {}, where commands can write; work in another \
                     directory, or use permissions `full`",
                    shell.display(),
                    root.display()
                ))
            }),
        };
        let rules = AccessRules { write, read, own: vec![own], home, protects: false };
        let mut tools = AccessRules { protects: !needs.protected, ..rules.clone() };
        let restores = Access::within(rules);
        if workspace == WorkspaceAccess::Read {
            commands.clear();
            let roots = std::mem::take(&mut tools.write);
            if let Some(namespaces) = &mut namespaces {
                // Also where it lies in what is covered, such as `/tmp`.
                namespaces.visible.extend(roots.iter().filter(|root| root.exists()).cloned());
            }
            tools.read.extend(roots);
        }
        let access = match mode {
            PermissionMode::Full => Access::default(),
            PermissionMode::Ask | PermissionMode::Workspace => Access::within(tools),
        };
        Self {
            mode,
            access,
            restores,
            isolated: namespaces.is_some() && containers.is_none() && unconfined.is_none(),
            workspace,
            network,
            needs,
            // In the mode `full`, too: another mode may follow.
            sandbox: unconfined.is_none().then(|| {
                let sandbox = Sandbox::new(commands).with_caches(caches).with_cache_layers(cache_layers);
                let sandbox = sandbox.with_network(network).with_containers(containers);
                Arc::new(sandbox.with_namespaces(namespaces).with_hosts(hosts.clone()))
            }),
            unconfined: unconfined.filter(|_| mode != PermissionMode::Full),
            travel,
            grants,
            rules: user_rules,
            roots,
            unknown: None,
            cwd,
        }
    }

    fn confinement(&self) -> Option<&Arc<Sandbox>> {
        self.sandbox.as_ref().filter(|_| self.mode != PermissionMode::Full)
    }

    fn access(&self) -> Access {
        match self.confinement().and_then(|sandbox| sandbox.made()) {
            Some(temporary) => self.access.adding(&temporary),
            None => self.access.clone(),
        }
    }

    fn decide_files(
        &self,
        granted: &dyn Fn(&Grant) -> bool,
        tool: &str,
        paths: &[PathBuf],
        want: AccessMode,
        asked: Option<String>,
    ) -> Decision {
        if want == AccessMode::Write && self.workspace == WorkspaceAccess::Read {
            return Decision::Deny { reason: READ_ONLY.to_owned() };
        }
        let access = self.access();
        let mut reasons = Vec::new();
        // What may not last: the same path could lead to other files later.
        let mut once = false;
        for path in paths {
            let reach = access.reach(path, want);
            let linked = want == AccessMode::Write && has_other_names(path);
            once |= reach == Reach::Secret || linked;
            match reach {
                Reach::Own => {
                    let reason =
                        format!("{} is one of Quipu's own files, which tools cannot change.", path.display());
                    return Decision::Deny { reason };
                }
                Reach::Free => {}
                Reach::Secret => reasons.push("Programs keep secrets there.".to_owned()),
                Reach::Linked => {
                    reasons.push("The file has other names (hard links), which may lie elsewhere.".into());
                }
                Reach::Configures => {
                    reasons.push(
                        "It configures git, agents, editors or shells, which act outside the sandbox.".into(),
                    );
                }
                Reach::Outside => {
                    let more = if linked { ", and it has other names (hard links)" } else { "" };
                    let cwd = self.cwd.display();
                    reasons.push(format!("It is outside the workspace ({cwd}){more}."));
                }
            }
        }
        if self.mode == PermissionMode::Ask && want == AccessMode::Write && reasons.is_empty() {
            reasons.push("This mode asks before every change.".into());
        }
        let Some(reason) = reasons.into_iter().next().or(asked) else { return Decision::Allow };
        let subject = paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join("\n");
        let what = match want {
            AccessMode::Read => "reading",
            AccessMode::Write => "writing",
        };
        let granted: &dyn Fn(&Grant) -> bool = if once { &|_| false } else { granted };
        ask(granted, tool, format!("Allow {what} {subject}? {reason}").replace('\n', ", "), subject)
    }

    fn decide_command(
        &self,
        granted: &dyn Fn(&Grant) -> bool,
        tool: &str,
        proposal: &Proposal<'_>,
        asked: Option<String>,
    ) -> Decision {
        let command = if tool == "bash" { proposal.text("command") } else { None };
        let wanted = match &command {
            Some(_) => {
                CommandNeeds { network: proposal.flag("network"), protected: proposal.flag("protected") }
            }
            None => CommandNeeds::default(),
        };
        if wanted.network && self.network == Network::Closed {
            let reason = "The user keeps commands off the network (in this run, or by `sandbox.network` in settings.json).".to_owned();
            return Decision::Deny { reason };
        }
        let beyond = self.beyond(wanted);
        let reason = match (&command, &self.unconfined) {
            (None, _) => "It can touch any file and runs without a sandbox.".to_owned(),
            (Some(_), Some(why)) => format!("It would run without a sandbox, because {why}."),
            (Some(_), None) if !beyond.is_empty() => {
                let why = proposal.text("reason").unwrap_or_default();
                let why = if why.trim().is_empty() { String::new() } else { format!(" ({})", why.trim()) };
                format!("It wants to {}{why}. A person can allow that in advance.", beyond.join(" and to "))
            }
            (Some(_), None) if self.mode == PermissionMode::Ask => {
                "This mode asks before every command.".into()
            }
            (Some(_), None) => match asked {
                Some(reason) => reason,
                None => return Decision::Allow,
            },
        };
        let what = if command.is_some() { "this command" } else { "this call" };
        let question = format!("Allow running {what} in {}? {reason}", self.cwd.display()).replace('\n', " ");
        let subject = match command {
            // Another thing than the same command without it.
            Some(command) if !beyond.is_empty() => {
                format!("{WANTS}{}\n{command}", beyond.join(" and to "))
            }
            // One that only looks like that is no yes to more.
            Some(command) if command.starts_with(WANTS) => format!("#\n{command}"),
            Some(command) => command,
            None => proposal.call.arguments.to_string(),
        };
        ask(granted, tool, question, subject)
    }

    /// Text for a running command counts as a command that may do what that one may.
    fn decide_input(
        &self,
        granted: &dyn Fn(&Grant) -> bool,
        tool: &str,
        input: &CommandInput,
        asked: Option<String>,
    ) -> Decision {
        if input.command.is_none() {
            let reason = format!(
                "No background command `{}` takes input. Start it in an answer before this one.",
                input.id
            );
            return Decision::Deny { reason };
        }
        let beyond = self.beyond(CommandNeeds { network: input.network, protected: input.protected });
        let reason = if !input.is_confined {
            "The command runs without a sandbox.".to_owned()
        } else if !beyond.is_empty() {
            format!("The command can {}.", beyond.join(" and "))
        } else if self.mode == PermissionMode::Ask {
            "This mode asks before every command.".to_owned()
        } else {
            match asked {
                Some(reason) => reason,
                None => return Decision::Allow,
            }
        };
        let question = format!("Allow input for background command {}? {reason}", input.id);
        let subject = input_subject(input);
        // No rule about the tool allows more than the sandbox does.
        let subject = if beyond.is_empty() {
            subject
        } else {
            format!("{WANTS}{}\n{subject}", beyond.join(" and to "))
        };
        ask(granted, tool, question, subject)
    }

    /// What a command asks for beyond what it may do unasked.
    fn beyond(&self, wanted: CommandNeeds) -> Vec<&'static str> {
        let mut beyond = Vec::new();
        if self.isolated && wanted.network && self.network == Network::Asked && !self.needs.network {
            beyond.push("use the network");
        }
        if self.isolated && wanted.protected && !self.needs.protected {
            beyond.push("change what configures git, agents, editors or shells");
        }
        beyond
    }

    fn decide_travel(&self, travel: &Travel) -> Decision {
        match self.travel {
            TravelRule::Deny => Decision::Deny {
                reason: "The user does not allow going to earlier points of a session (`travel.tobe`)."
                    .into(),
            },
            TravelRule::Ask => Decision::Ask { question: travel.question(), subject: travel.subject() },
            TravelRule::Allow => Decision::Allow,
        }
    }
}

/// Whether a built-in tool opens files only to read them.
fn only_reads(tool: &str) -> bool {
    matches!(tool, "read" | "grep" | "find" | "ls")
}

/// Before what a command wants beyond what it may do, in the line over it.
const WANTS: &str = "# to ";

fn ask(granted: &dyn Fn(&Grant) -> bool, tool: &str, question: String, subject: String) -> Decision {
    let grant = Grant { tool: tool.to_owned(), subject };
    if granted(&grant) {
        return Decision::Allow;
    }
    Decision::Ask { question, subject: grant.subject }
}

const READ_ONLY: &str = "The workspace is read-only in this session (`sandbox.workspaceAccess`).";
const MISSING: &str = "this system has no Landlock (needs Linux 5.13 or later with Landlock enabled)";
const TOO_OLD: &str = "this kernel's Landlock cannot restrict truncation (needs Linux 6.2 or later)";
const WHAT_TO_SET: &str = "permissions `full` run commands without a sandbox and without asking";

impl Policy for Permissions {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        let bounds = self.bounds();
        if let Some(why) = &bounds.unknown {
            return Decision::Deny { reason: format!("The call was not run, because {why}.") };
        }
        let ruling = ruling(&self.rules(&bounds), &bounds.roots, proposal, &bounds.access);
        if let RuleVerdict::Denied(reason) = ruling {
            return Decision::Deny { reason };
        }
        if let Some(travel) = proposal.travel {
            return bounds.decide_travel(travel);
        }
        let tool = proposal.call.name.as_str();
        let (asked, counts, lifted) = match ruling {
            RuleVerdict::Asked(why, counts) => (Some(why), counts, false),
            ruling => (None, true, ruling == RuleVerdict::Allowed),
        };
        if bounds.mode == PermissionMode::Full && asked.is_none() {
            return Decision::Allow;
        }
        let changed = RefCell::new(None);
        let granted = |grant: &Grant| {
            // What a command asks for beyond its bounds is no matter of rules about commands.
            let lifted = lifted && !grant.subject.starts_with(WANTS);
            lifted
                || (counts
                    && match self.granted(&bounds, grant) {
                        GrantState::Holds => true,
                        GrantState::None => false,
                        GrantState::Changed(why) => {
                            changed.replace(Some(why));
                            false
                        }
                    })
        };
        let decision = match (proposal.touches, asked) {
            (Touches::Nothing | Touches::Session, None) => Decision::Allow,
            (Touches::Nothing | Touches::Session, Some(why)) => ask(
                &granted,
                tool,
                format!("Allow calling `{tool}`? {why}"),
                proposal.call.arguments.to_string(),
            ),
            (Touches::Reads(paths), asked) => {
                bounds.decide_files(&granted, tool, paths, AccessMode::Read, asked)
            }
            (Touches::Writes(paths), asked) => {
                bounds.decide_files(&granted, tool, paths, AccessMode::Write, asked)
            }
            (Touches::Anything, asked) => bounds.decide_command(&granted, tool, proposal, asked),
            (Touches::Input(input), asked) => bounds.decide_input(&granted, tool, input, asked),
        };
        let Decision::Ask { question, subject } = decision else { return decision };
        self.remember_asked(&bounds, Grant { tool: tool.to_owned(), subject: subject.clone() });
        let question = match changed.into_inner() {
            Some(why) => format!("{question} {why}"),
            None => question,
        };
        Decision::Ask { question, subject }
    }

    fn version(&self) -> PolicyVersion {
        // Read first: rules that come between are found again.
        let number = self.number.load(Ordering::SeqCst);
        PolicyVersion { number, mode: Some(self.mode().word().to_owned()) }
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        let mut scopes = vec![Scope::Once];
        if self.may_last(grant) {
            scopes.push(Scope::Session);
        }
        if !self.offers(grant).is_empty() {
            scopes.push(Scope::SessionRule);
        }
        scopes
    }

    fn offers(&self, grant: &Grant) -> Vec<String> {
        if grant.tool != "bash" || grant.subject.starts_with(WANTS) {
            return Vec::new();
        }
        let bounds = self.bounds();
        judged_command(&self.rules(&bounds), &bounds.roots, &grant.subject).proposals()
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        if scope.is_rule() {
            let offers = self.offers(&grant);
            self.add_rules(&offers);
            return Ok(if offers.is_empty() { Scope::Once } else { Scope::SessionRule });
        }
        // Where files of it came to have other names since it was asked, the yes is for this time.
        Ok(if self.allow(grant) { Scope::Session } else { Scope::Once })
    }

    fn access(&self) -> Access {
        let bounds = self.bounds();
        let RuleRoots { cwd, home } = bounds.roots.clone();
        bounds.access().searching_by(self.rules(&bounds), cwd, home)
    }

    fn restores(&self) -> Option<Access> {
        Some(self.bounds().restores.clone())
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.bounds().confinement().cloned()
    }
}

#[cfg(test)]
mod tests;
