//! Permissions that follow their files: what another program, or a command of the terminal, saves there holds for the
//! next call of every session that is open.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::{Decision, Grant, PermissionMode, Permissions, Policy, PolicyVersion, Proposal};
use quipu_protocol::Scope;
use quipu_workspace::{Access, Sandbox};

use crate::Failure;
use crate::permissions::{Source, Unsaved};

/// What tells one state of a file from another; `None` where it is not there.
type Stamp = Option<(u64, u64, u64, [i64; 4])>;

/// The permissions of a session, as they are saved.
#[derive(Debug)]
pub struct SavedPermissions {
    permissions: Permissions,
    source: Source,
    /// Whether what is allowed for good is kept.
    keeps: bool,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    stamps: [Stamp; 2],
    unsaved: Unsaved,
}

impl SavedPermissions {
    pub(crate) fn of(source: Source, unsaved: Unsaved, keeps: bool) -> Result<Self, Failure> {
        // Before they are read: what is saved meanwhile is read again.
        let stamps = stamps(&source);
        let (rules, grants) = source.read(&unsaved)?;
        let permissions = Permissions::new(rules, grants);
        Ok(Self { permissions, source, keeps, seen: Mutex::new(Seen { stamps, unsaved }) })
    }

    /// How much is asked.
    pub fn mode(&self) -> PermissionMode {
        self.permissions.mode()
    }

    /// Whether commands are confined.
    pub fn confines(&self) -> bool {
        self.permissions.confines()
    }

    /// Whether commands run in namespaces.
    pub fn isolates(&self) -> bool {
        self.permissions.isolates()
    }

    /// Why commands are not confined, though they should be.
    pub fn unconfined(&self) -> Option<String> {
        self.permissions.unconfined()
    }

    /// Why this mode cannot hold in this session, if so.
    pub fn refuses(&self, mode: PermissionMode) -> Option<String> {
        (mode == PermissionMode::Full && self.source.closes_network()).then(|| {
            format!(
                "this session keeps commands off the network, which `full` cannot do; it stays `{}`",
                self.mode().word()
            )
        })
    }

    /// A mode was saved for the directory: it takes the place of one that was given for this run only.
    pub fn mode_was_saved(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.unsaved.mode.take().is_some() {
            seen.stamps = [None, None];
            self.read_again(&mut seen);
        }
    }

    /// Reads the files again where they are other ones than before.
    fn follow(&self) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.stamps != stamps(&self.source) {
            self.read_again(&mut seen);
        }
    }

    fn read_again(&self, seen: &mut Seen) {
        seen.stamps = stamps(&self.source);
        match self.source.read(&seen.unsaved) {
            Ok((mut rules, grants)) => {
                if let Some(why) = self.refuses(rules.mode) {
                    self.source.place.warn(why);
                    rules.mode = self.mode();
                }
                self.permissions.exchange(rules, grants);
            }
            Err(failure) => {
                self.source.place.warn(format!("no call is run: {}", failure.message));
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
        scopes
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, String> {
        if scope != Scope::Always || !self.scopes(&grant).contains(&scope) {
            return self.permissions.grant(grant, scope);
        }
        // It is read from there, as long as it stands there.
        self.source.record.keep(&grant).map(|()| scope).map_err(|failure| {
            self.permissions.allow(grant);
            format!("That could not be kept, and holds for this session only: {}", failure.message)
        })
    }

    fn access(&self) -> Access {
        self.permissions.access()
    }

    fn restores(&self) -> Option<Access> {
        self.permissions.restores()
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.permissions.sandbox()
    }
}

fn stamps(source: &Source) -> [Stamp; 2] {
    source.files().map(|path| stamp(&path))
}

fn stamp(path: &Path) -> Stamp {
    let found = std::fs::metadata(path).ok()?;
    let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
    Some((found.dev(), found.ino(), found.size(), times))
}
