//! The built-in policy: what tools may do in a project without asking.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use quipu_protocol::Scope;
use quipu_tools::Touches;
use quipu_workspace::{
    Access, AccessMode, AccessRules, Cache, CommandNeeds, FileKeys, Namespaces, Network, Reach, Sandbox,
    SandboxSupport, file_key, git_directories, has_other_names,
};

use crate::policy::{Decision, Grant, GrantError, Policy, Proposal};
use crate::travel::{Tobe, Travel};
use quipu_machine::PolicyVersion;

/// How much is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PermissionMode {
    /// Every command and every change is asked; commands are confined as well.
    Ask,
    /// Free within the workspace: commands are confined to it, files elsewhere are asked.
    #[default]
    Workspace,
    /// Everything that the user can do, unasked and unconfined.
    Full,
}

/// Whether a model may take its session to earlier points of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TravelRule {
    /// A person is asked each time, in every mode; without one it is refused.
    #[default]
    Ask,
    /// It may.
    Allow,
    /// It may not.
    Deny,
}

/// What the permissions of a session are made of. All paths are absolute.
#[derive(Debug, Clone, Default)]
pub struct PermissionRules {
    /// How much is asked.
    pub mode: PermissionMode,
    /// The directory of the session.
    pub cwd: PathBuf,
    /// More directories where tools may work as in `cwd`.
    pub add_dirs: Vec<PathBuf>,
    /// Directories and files that tools may read, such as kept outputs.
    pub read: Vec<PathBuf>,
    /// Our own directory, which tools never change.
    pub own: PathBuf,
    /// The user's home, below which programs keep secrets.
    pub home: Option<PathBuf>,
    /// Directories and files that commands may write as well. One that is reached through a place where commands may
    /// write is left out: they could let it lead anywhere.
    pub command_write: Vec<PathBuf>,
    /// The same, made when they are missing and wanted: [`caches`](crate::caches).
    pub caches: Vec<Cache>,
    /// Where what commands write to caches that are not shared is kept: a directory of the project, made when it is missing. `None`: they
    /// write to the caches themselves.
    pub cache_layers: Option<PathBuf>,
    /// Whether confined commands can use the network: in namespaces they ask for it by default, without them they can.
    pub network: Network,
    /// What runs commands in namespaces, where the system has them; without it Landlock alone confines them.
    pub namespaces: Option<Namespaces>,
    /// What commands may do without asking where they would have to ask.
    pub needs: CommandNeeds,
    /// What the system can do; [`SandboxSupport::of_this_system`].
    pub support: Option<SandboxSupport>,
    /// Whether the model may go to earlier points of its session.
    pub travel: TravelRule,
}

/// The built-in policy. [`Engine`](crate::Engine) gives tools its bounds; what lies beyond them is asked. Its rules can
/// be exchanged while sessions work by them.
#[derive(Debug)]
pub struct Permissions {
    bounds: RwLock<Arc<Bounds>>,
    /// Counts exchanges of the rules, and grants.
    number: AtomicU64,
    /// Sandboxes of rules that hold no more: what was started in them still runs there.
    retired: Mutex<Vec<Arc<Sandbox>>>,
    /// What was allowed while the session was open, whatever the rules become.
    grants: Mutex<HashSet<Grant>>,
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
    network: Network,
    needs: CommandNeeds,
    travel: TravelRule,
    grants: HashSet<Grant>,
    /// Why nothing is allowed, where the rules are not known.
    unknown: Option<String>,
}

impl PermissionMode {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Workspace => "workspace",
            Self::Full => "full",
        }
    }
}

impl Permissions {
    /// Permissions for one session; `grants` are allowed from the start.
    pub fn new(rules: PermissionRules, grants: impl IntoIterator<Item = Grant>) -> Self {
        Self {
            bounds: RwLock::new(Arc::new(Bounds::new(rules, grants.into_iter().collect()))),
            number: AtomicU64::new(0),
            retired: Mutex::default(),
            grants: Mutex::default(),
        }
    }

    /// Goes by these rules from now on, and by what was [granted](Self::grant) meanwhile.
    pub fn exchange(&self, rules: PermissionRules, grants: impl IntoIterator<Item = Grant>) {
        let mut bounds = Bounds::new(rules, grants.into_iter().collect());
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
            network: old.network,
            needs: CommandNeeds::default(),
            travel: TravelRule::Deny,
            grants: HashSet::new(),
            unknown: Some(why),
        });
    }

    fn set(&self, bounds: Bounds) {
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

    /// Why commands are not confined although they should be; they are asked then.
    pub fn unconfined(&self) -> Option<String> {
        self.bounds().unconfined.clone()
    }

    /// Allows this from now on. Says no for what is always asked: files where secrets are kept, and changes of files with
    /// other names (hard links).
    pub fn allow(&self, grant: Grant) -> bool {
        let lasting = self.may_last(&grant);
        if lasting && self.grants().insert(grant) {
            self.number.fetch_add(1, Ordering::SeqCst);
        }
        lasting
    }

    /// Whether a yes may hold for more than once.
    fn may_last(&self, grant: &Grant) -> bool {
        // What is left behind is another thing each time.
        if grant.tool == Tobe::NAME {
            return false;
        }
        let bounds = self.bounds();
        let may_last = |path: &Path| {
            let reads = grant.tool == "read";
            bounds.restores.reach(path, AccessMode::Read) != Reach::Secret
                && (reads || !has_other_names(path))
        };
        grant.tool == "bash" || grant.subject.lines().all(|path| may_last(Path::new(path)))
    }

    fn grants(&self) -> MutexGuard<'_, HashSet<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_granted(&self, bounds: &Bounds, grant: &Grant) -> bool {
        bounds.grants.contains(grant) || self.grants().contains(grant)
    }
}

impl Bounds {
    fn new(rules: PermissionRules, grants: HashSet<Grant>) -> Self {
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
            namespaces,
            needs,
            support,
            travel,
        } = rules;
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
        let tools = AccessRules { protects: !needs.protected, ..rules.clone() };
        let restores = Access::within(rules);
        let access = match mode {
            PermissionMode::Full => Access::default(),
            PermissionMode::Ask | PermissionMode::Workspace => Access::within(tools),
        };
        Self {
            mode,
            access,
            restores,
            isolated: namespaces.is_some() && unconfined.is_none(),
            network,
            needs,
            // In the mode `full`, too: another mode may follow.
            sandbox: unconfined.is_none().then(|| {
                let sandbox = Sandbox::new(commands).with_caches(caches).with_cache_layers(cache_layers);
                Arc::new(sandbox.with_network(network).with_namespaces(namespaces))
            }),
            unconfined: unconfined.filter(|_| mode != PermissionMode::Full),
            travel,
            grants,
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
    ) -> Decision {
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
        let Some(reason) = reasons.into_iter().next() else { return Decision::Allow };
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
            (Some(_), None) => return Decision::Allow,
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

/// Before what a command wants beyond what it may do, in the line over it.
const WANTS: &str = "# to ";

fn ask(granted: &dyn Fn(&Grant) -> bool, tool: &str, question: String, subject: String) -> Decision {
    let grant = Grant { tool: tool.to_owned(), subject };
    if granted(&grant) {
        return Decision::Allow;
    }
    Decision::Ask { question, subject: grant.subject }
}

const MISSING: &str = "this system has no Landlock (needs Linux 5.13 or later with Landlock enabled)";
const TOO_OLD: &str = "this kernel's Landlock cannot restrict truncation (needs Linux 6.2 or later)";
const WHAT_TO_SET: &str = "permissions `full` run commands without a sandbox and without asking";

impl Policy for Permissions {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        let bounds = self.bounds();
        if let Some(why) = &bounds.unknown {
            return Decision::Deny { reason: format!("The call was not run, because {why}.") };
        }
        if let Some(travel) = proposal.travel {
            return bounds.decide_travel(travel);
        }
        if bounds.mode == PermissionMode::Full {
            return Decision::Allow;
        }
        let (tool, granted) = (&proposal.call.name, |grant: &Grant| self.is_granted(&bounds, grant));
        match proposal.touches {
            Touches::Nothing | Touches::Session => Decision::Allow,
            Touches::Reads(paths) => bounds.decide_files(&granted, tool, paths, AccessMode::Read),
            Touches::Writes(paths) => bounds.decide_files(&granted, tool, paths, AccessMode::Write),
            Touches::Anything => bounds.decide_command(&granted, tool, proposal),
        }
    }

    fn version(&self) -> PolicyVersion {
        // Read first: rules that come between are found again.
        let number = self.number.load(Ordering::SeqCst);
        PolicyVersion { number, mode: Some(self.mode().word().to_owned()) }
    }

    fn scopes(&self, grant: &Grant) -> Vec<Scope> {
        if self.may_last(grant) { vec![Scope::Once, Scope::Session] } else { vec![Scope::Once] }
    }

    fn grant(&self, grant: Grant, _: Scope) -> Result<Scope, GrantError> {
        // Where files of it came to have other names since it was asked, the yes is for this time.
        Ok(if self.allow(grant) { Scope::Session } else { Scope::Once })
    }

    fn access(&self) -> Access {
        self.bounds().access()
    }

    fn restores(&self) -> Option<Access> {
        Some(self.bounds().restores.clone())
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.bounds().confinement().cloned()
    }
}

#[cfg(test)]
mod tests {
    use quipu_protocol::{Json, ToolCall};

    use super::*;

    const FULL: SandboxSupport = SandboxSupport::Full { scoped: true };

    struct Case<'a> {
        permissions: &'a Permissions,
        touches: Touches,
    }

    impl Case<'_> {
        fn decide(&self, tool: &str) -> Decision {
            let arguments = Json::from(serde_json::json!({ "command": "make test" }));
            let call = ToolCall {
                id: "c".into(),
                name: tool.into(),
                arguments,
                thought_signature: None,
                namespace: None,
            };
            let cwd = &self.permissions.bounds().cwd;
            self.permissions.decide(&Proposal { call: &call, cwd, touches: &self.touches, travel: None })
        }
    }

    /// One word for each decision, with a question's text.
    fn word(decision: Decision) -> String {
        match decision {
            Decision::NoOpinion => "no opinion".into(),
            Decision::Allow => "allow".into(),
            Decision::Deny { reason } => format!("deny {reason}"),
            Decision::Ask { question, .. } => format!("ask {question}"),
        }
    }

    #[test]
    fn each_mode_asks_for_its_actions() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for made in ["work", "added", "own", "home/.ssh"] {
            std::fs::create_dir_all(root.join(made)).unwrap();
        }
        let make = |mode, support| {
            let rules = PermissionRules {
                mode,
                cwd: root.join("work"),
                add_dirs: vec![root.join("added")],
                read: vec![root.join("own/outputs")],
                own: root.join("own"),
                home: Some(root.join("home")),
                command_write: vec![],
                caches: vec![],
                cache_layers: None,
                network: Network::Open,
                namespaces: None,
                needs: CommandNeeds::default(),
                support: Some(support),
                travel: TravelRule::Ask,
            };
            Permissions::new(rules, [])
        };
        let read = |path: &str| Touches::Reads(vec![root.join(path)]);
        let write = |path: &str| Touches::Writes(vec![root.join(path)]);
        let check = |mode, support, tool: &str, touches: Touches, expect: &str| {
            let permissions = make(mode, support);
            let decision = word(Case { permissions: &permissions, touches: touches.clone() }.decide(tool));
            assert!(
                decision.starts_with(expect.split('*').next().unwrap()),
                "{mode:?} {touches:?}: {decision}"
            );
            assert!(
                expect.split('*').all(|part| decision.contains(part)),
                "{mode:?} {touches:?}: {decision}"
            );
        };
        use PermissionMode::{Ask, Full, Workspace};
        use SandboxSupport::{Missing, TooOld};
        for mode in [Ask, Workspace] {
            check(mode, FULL, "read", read("work/f"), "allow");
            check(mode, FULL, "read", read("added/f"), "allow");
            check(mode, FULL, "read", read("own/outputs/f"), "allow");
            check(mode, FULL, "read", read("own/auth.json"), "ask*outside");
            check(mode, FULL, "read", read("home/f"), "ask*outside");
            check(mode, FULL, "read", read("home/.ssh/f"), "ask*secrets");
            check(mode, FULL, "read", read("work/id_rsa"), "ask*secrets");
            check(mode, FULL, "read", read("work/../home/f"), "ask*outside");
            check(mode, FULL, "write", write("home/f"), "ask*outside");
            check(mode, FULL, "write", write("own/permissions.json"), "deny*own files");
            check(mode, FULL, "write", write("own/outputs/f"), "deny*own files");
            check(mode, Missing, "bash", Touches::Anything, "ask*no Landlock*permissions `full`");
            check(mode, TooOld, "bash", Touches::Anything, "ask*truncation*permissions `full`");
            check(mode, FULL, "other", Touches::Anything, "ask*without a sandbox");
            check(mode, FULL, "other", Touches::Nothing, "allow");
        }
        check(Workspace, FULL, "write", write("work/f"), "allow");
        check(Workspace, FULL, "write", write("added/new/f"), "allow");
        check(Workspace, FULL, "bash", Touches::Anything, "allow");
        check(Ask, FULL, "write", write("work/f"), "ask*before every change");
        check(Ask, FULL, "bash", Touches::Anything, "ask*before every command");
        for touches in [Touches::Anything, write("own/f"), read("home/.ssh/f")] {
            check(Full, Missing, "bash", touches, "allow");
        }
        assert!(make(Full, FULL).sandbox().is_none() && make(Workspace, Missing).sandbox().is_none());
        assert!(make(Ask, FULL).sandbox().is_some());
    }

    #[test]
    fn change_of_a_file_with_hard_links_is_asked_each_time() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        for made in ["work", "own"] {
            std::fs::create_dir(at(made)).unwrap();
        }
        let rules = || PermissionRules {
            cwd: at("work"),
            own: at("own"),
            support: Some(FULL),
            ..PermissionRules::default()
        };
        for name in ["work/file", "file"] {
            let path = at(name);
            let grant = |tool: &str| Grant { tool: tool.into(), subject: path.to_str().unwrap().into() };
            std::fs::write(&path, "").unwrap();
            let permissions = Permissions::new(rules(), [grant("edit")]);
            assert!(permissions.allow(grant("write")) && permissions.may_last(&grant("edit")));
            let decide = |tool: &str| {
                let touches = Touches::Writes(vec![path.clone()]);
                word(Case { permissions: &permissions, touches }.decide(tool))
            };
            assert_eq!((decide("write"), decide("edit")), ("allow".into(), "allow".into()));
            std::fs::hard_link(&path, at("other")).unwrap();
            for tool in ["write", "edit"] {
                let decision = decide(tool);
                assert!(decision.starts_with("ask") && decision.contains("hard links"), "{decision}");
                assert!(!permissions.allow(grant(tool)), "a yes holds once");
            }
            std::fs::remove_file(at("other")).unwrap();
            assert_eq!((decide("write"), decide("edit")), ("allow".into(), "allow".into()));
        }
    }

    #[test]
    fn yes_to_a_comment_is_no_yes_to_the_network() {
        let subject = |mode, arguments: serde_json::Value| {
            let dir = tempfile::tempdir().unwrap();
            let rules = PermissionRules {
                mode,
                cwd: dir.path().join("work"),
                own: dir.path().join("own"),
                support: Some(FULL),
                namespaces: Some(Namespaces {
                    launcher: quipu_workspace::Launcher { program: "/nowhere".into(), arguments: Vec::new() },
                    home: None,
                    hidden: Vec::new(),
                    visible: Vec::new(),
                    doors: quipu_workspace::Doors::default(),
                }),
                ..PermissionRules::default()
            };
            let call = ToolCall {
                id: "c".into(),
                name: "bash".into(),
                arguments: Json::from(arguments),
                thought_signature: None,
                namespace: None,
            };
            let permissions = Permissions::new(rules, []);
            let touches = Touches::Anything;
            let proposal = Proposal { call: &call, cwd: dir.path(), touches: &touches, travel: None };
            match permissions.decide(&proposal) {
                Decision::Ask { subject, .. } => subject,
                other => panic!("{other:?}"),
            }
        };
        let wants = subject(
            PermissionMode::Workspace,
            serde_json::json!({ "command": "curl x", "network": true, "reason": "why" }),
        );
        assert_eq!(wants, "# to use the network\ncurl x");
        let plain = subject(PermissionMode::Ask, serde_json::json!({ "command": wants }));
        assert_eq!(plain, "#\n# to use the network\ncurl x");
    }

    #[test]
    fn commands_that_may_change_the_shell_are_asked() {
        let shell = file_key(Path::new("/bin/sh"));
        let cwd = shell.ancestors().nth(2).unwrap().to_path_buf();
        let own = std::env::temp_dir().join("quipu-none");
        let rules = |mode| PermissionRules {
            mode,
            cwd: cwd.clone(),
            own: own.clone(),
            support: Some(FULL),
            ..PermissionRules::default()
        };
        let permissions = Permissions::new(rules(PermissionMode::Workspace), []);
        let decision = word(Case { permissions: &permissions, touches: Touches::Anything }.decide("bash"));
        assert!(decision.starts_with("ask") && decision.contains("Quipu itself runs"), "{decision}");
        assert!(permissions.sandbox().is_none());
        assert_eq!(Permissions::new(rules(PermissionMode::Full), []).unconfined(), None);
    }

    #[test]
    fn grants_are_exact_and_never_of_secrets() {
        let root = std::env::temp_dir().canonicalize().unwrap();
        let rules = PermissionRules {
            cwd: root.join("quipu-none/work"),
            own: root.join("quipu-none/own"),
            home: Some(root.join("quipu-none/home")),
            support: Some(SandboxSupport::Missing),
            ..PermissionRules::default()
        };
        let permissions = Permissions::new(rules, []);
        let decide =
            |tool: &str, touches: Touches| word(Case { permissions: &permissions, touches }.decide(tool));
        let at = |path: &str| root.join("quipu-none").join(path);
        let grant = |tool: &str, subject: &str| Grant { tool: tool.into(), subject: subject.into() };
        assert!(permissions.allow(grant("bash", "make test")));
        assert_eq!(decide("bash", Touches::Anything), "allow");
        assert!(permissions.allow(grant("read", at("f").to_str().unwrap())));
        assert_eq!(decide("read", Touches::Reads(vec![at("f")])), "allow");
        assert!(decide("read", Touches::Reads(vec![at("g")])).starts_with("ask"));
        assert!(decide("write", Touches::Writes(vec![at("f")])).starts_with("ask"), "another tool");
        assert!(!permissions.allow(grant("read", at("home/.ssh/f").to_str().unwrap())));
        // Even one that was written into the file by hand.
        permissions.grants().insert(grant("read", at("home/.ssh/f").to_str().unwrap()));
        assert!(decide("read", Touches::Reads(vec![at("home/.ssh/f")])).starts_with("ask"));
    }

    #[test]
    fn going_elsewhere_is_asked_each_time_unless_a_rule_says_more() {
        let decide = |travel, mode| {
            let cwd = std::env::temp_dir();
            let rules = PermissionRules { mode, cwd: cwd.clone(), travel, ..PermissionRules::default() };
            let permissions = Permissions::new(rules, []);
            let trip = Travel {
                target: quipu_protocol::NodeId([7; 32]),
                line: "user: \"hello\"".into(),
                messages: 3,
                turns: 1,
                message: "the first way is closed".into(),
                files: None,
                begins: false,
            };
            let grant = Grant { tool: "tobe".into(), subject: trip.message.clone() };
            assert!(!permissions.allow(grant));
            let call = ToolCall {
                id: "c".into(),
                name: "tobe".into(),
                arguments: Json::object(),
                thought_signature: None,
                namespace: None,
            };
            let touches = Touches::Nothing;
            let travel = Some(&trip);
            word(permissions.decide(&Proposal { call: &call, cwd: &cwd, touches: &touches, travel }))
        };
        use PermissionMode::{Ask, Full, Workspace};
        for mode in [Ask, Workspace, Full] {
            let asked = decide(TravelRule::Ask, mode);
            assert!(
                asked.starts_with(
                    "ask Allow going back to 070707070707 (user: \"hello\")? It leaves 3 message(s)"
                ),
                "{asked}"
            );
        }
        for mode in [Ask, Workspace, Full] {
            assert_eq!(decide(TravelRule::Allow, mode), "allow");
            assert!(decide(TravelRule::Deny, mode).starts_with("deny"));
        }
    }
}
