//! The built-in policy: what tools may do in a project without asking.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quipu_tools::Touches;
use quipu_workspace::{Access, AccessRules, Reach, Sandbox, SandboxSupport, Want, file_key, git_directories};

use crate::policy::{Decision, Policy, Proposal};

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
    /// Directories and files that commands may write as well, such as caches.
    pub command_write: Vec<PathBuf>,
    /// What the system can do; [`SandboxSupport::of_this_system`].
    pub support: Option<SandboxSupport>,
}

/// Something that was allowed for more than once, exactly: one tool and one command line or file.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The tool.
    pub tool: String,
    /// The command as it was asked for (secrets sealed), or the true path of the file.
    pub subject: String,
}

/// The built-in policy. [`Engine`](crate::Engine) gives tools its bounds; what lies beyond them is asked.
#[derive(Debug)]
pub struct Permissions {
    mode: PermissionMode,
    cwd: PathBuf,
    access: Access,
    sandbox: Option<Arc<Sandbox>>,
    unconfined: Option<String>,
    grants: Mutex<HashSet<Grant>>,
}

impl Permissions {
    /// Permissions for one session; `grants` are allowed from the start.
    pub fn new(rules: PermissionRules, grants: impl IntoIterator<Item = Grant>) -> Self {
        let PermissionRules { mode, cwd, add_dirs, read, own, home, command_write, support } = rules;
        let mut write = vec![cwd.clone()];
        write.extend(add_dirs);
        let mut commands: Vec<PathBuf> =
            write.iter().chain(&command_write).map(|path| file_key(path)).collect();
        let git: Vec<PathBuf> = write.iter().flat_map(|root| git_directories(root)).collect();
        commands.extend(git);
        let own = file_key(&own);
        let support = support.unwrap_or_else(SandboxSupport::of_this_system);
        let unconfined = match support {
            SandboxSupport::Missing => Some(format!("{MISSING}; {WHAT_TO_SET}")),
            SandboxSupport::TooOld => Some(format!("{TOO_OLD}; {WHAT_TO_SET}")),
            SandboxSupport::Full { .. } => commands.iter().find(|root| own.starts_with(root)).map(|root| {
                format!(
                    "Quipu's own files ({}) lie in {}, where commands may write; work in another directory, or \
                     use `--permissions full`",
                    own.display(),
                    root.display()
                )
            }),
        };
        let confined = mode != PermissionMode::Full && unconfined.is_none();
        let access = match mode {
            PermissionMode::Full => Access::default(),
            PermissionMode::Ask | PermissionMode::Workspace => {
                Access::within(AccessRules { write, read, own: vec![own], home })
            }
        };
        Self {
            mode,
            access,
            sandbox: confined.then(|| Arc::new(Sandbox::new(commands))),
            unconfined: unconfined.filter(|_| mode != PermissionMode::Full),
            grants: Mutex::new(grants.into_iter().collect()),
            cwd,
        }
    }

    /// How much is asked.
    pub fn mode(&self) -> PermissionMode {
        self.mode
    }

    /// Why commands are not confined although they should be; they are asked then.
    pub fn unconfined(&self) -> Option<&str> {
        self.unconfined.as_deref()
    }

    /// Allows this from now on. Says no for what is always asked: files where secrets are kept.
    pub fn grant(&self, grant: Grant) -> bool {
        let lasting = self.may_last(&grant);
        if lasting {
            self.grants().insert(grant);
        }
        lasting
    }

    /// Whether a yes may hold for more than once.
    pub fn may_last(&self, grant: &Grant) -> bool {
        grant.tool == "bash"
            || grant
                .subject
                .lines()
                .all(|path| self.access.reach(Path::new(path), Want::Read) != Reach::Secret)
    }

    fn grants(&self) -> MutexGuard<'_, HashSet<Grant>> {
        self.grants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decide_files(&self, tool: &str, paths: &[PathBuf], want: Want) -> Decision {
        let access = self.access();
        let mut reasons = Vec::new();
        let mut secret = false;
        for path in paths {
            let reach = access.reach(path, want);
            secret |= reach == Reach::Secret;
            match reach {
                Reach::Own => {
                    let reason = format!(
                        "{} is one of Quipu's own files, which tools must not change.",
                        path.display()
                    );
                    return Decision::Deny { reason };
                }
                Reach::Free => {}
                Reach::Secret => reasons.push("programs keep secrets there".to_owned()),
                Reach::Linked => {
                    reasons.push("the file has other names (hard links), which may lie elsewhere".into());
                }
                Reach::Outside => reasons
                    .push(format!("it is outside {}; `--add-dir DIR` adds a directory", self.cwd.display())),
            }
        }
        if self.mode == PermissionMode::Ask && want == Want::Write && reasons.is_empty() {
            reasons.push("every change is asked here".into());
        }
        let Some(reason) = reasons.into_iter().next() else { return Decision::Allow };
        let subject = paths.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>().join("\n");
        let what = match want {
            Want::Read => "read",
            Want::Write => "change",
        };
        self.ask(tool, format!("{what} {subject}: {reason}").replace('\n', ", "), subject, secret)
    }

    fn decide_command(&self, tool: &str, proposal: &Proposal<'_>) -> Decision {
        let command = if tool == "bash" { proposal.text("command") } else { None };
        let reason = match (&command, &self.unconfined) {
            (None, _) => "this tool could touch any file and is not confined".to_owned(),
            (Some(_), Some(why)) => format!("it would not be confined, because {why}"),
            (Some(_), None) if self.mode == PermissionMode::Ask => "every command is asked here".into(),
            (Some(_), None) => return Decision::Allow,
        };
        let question = format!("run this in {}: {reason}", self.cwd.display());
        let subject = command.unwrap_or_else(|| proposal.call.arguments.to_string());
        self.ask(tool, question, subject, false)
    }

    fn ask(&self, tool: &str, question: String, subject: String, always_asked: bool) -> Decision {
        let grant = Grant { tool: tool.to_owned(), subject };
        if !always_asked && self.grants().contains(&grant) {
            return Decision::Allow;
        }
        Decision::Ask { question, subject: grant.subject }
    }
}

const MISSING: &str = "this system has no Landlock (Linux 5.13 and later, unless it is turned off)";
const TOO_OLD: &str = "this kernel's Landlock cannot confine truncation (Linux 6.2 and later can)";
const WHAT_TO_SET: &str = "`--permissions full` runs commands unconfined and unasked";

impl Policy for Permissions {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        if self.mode == PermissionMode::Full {
            return Decision::Allow;
        }
        let tool = &proposal.call.name;
        match proposal.touches {
            Touches::Nothing => Decision::Allow,
            Touches::Reads(paths) => self.decide_files(tool, paths, Want::Read),
            Touches::Writes(paths) => self.decide_files(tool, paths, Want::Write),
            Touches::Anything => self.decide_command(tool, proposal),
        }
    }

    fn access(&self) -> Access {
        match self.sandbox.as_ref().and_then(|sandbox| sandbox.made()) {
            Some(temporary) => self.access.adding(&temporary),
            None => self.access.clone(),
        }
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.sandbox.clone()
    }
}
