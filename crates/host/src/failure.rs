//! What went wrong, as a value: the front finds the words for what to do about it.

use std::fmt;

use quipu::{BookmarkError, ChangeError, FilesError, OpenError, UndoError};
use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_store::StoreError;

use crate::Question;

/// The category of a failure, by which a front decides what to do and which exit code it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// No other kind fits.
    Failed,
    /// What was asked for cannot be done: it has to be asked otherwise.
    Request,
    /// A credential is missing or cannot be used.
    Credential,
    /// The store cannot be used.
    Store,
    /// The reader of the output has closed it; there is nothing to report.
    OutputClosed,
    /// Nothing is done before a question is answered.
    Asks(Question),
}

/// What went wrong, for people, without what to do about it.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The kind that the exit code follows from.
    pub kind: FailureKind,
    /// What happened and where.
    pub message: String,
    /// What to do, where the front knows how.
    pub advice: Option<Advice>,
}

/// What a person may do.
#[derive(Debug, Clone, PartialEq)]
pub enum Advice {
    /// Continue with another model: this one, where there is one.
    AnotherModel(Option<(String, String)>),
    /// Look at the providers that there are.
    ListProviders,
    /// Look at the models that there are.
    ListModels,
    /// Give a credential for this provider, or any.
    SetKey(Option<String>),
    /// Log in to the account of this provider.
    LogIn(String),
    /// Use the login that this program keeps.
    UseLogin(String),
    /// Give a key for this provider, or log in to its account.
    SetKeyOrLogIn(String),
    /// Look at the sessions of every directory.
    ListSessions,
    /// Go on from where a session stood that was removed.
    ForkAt(NodeId),
    /// Fork the session, and go on in that.
    Fork,
    /// Go on from before a node.
    GoOnFrom(NodeId),
    /// Look at the bookmarks.
    ListBookmarks,
    /// Say whose files are to be kept.
    TakeSide,
    /// Replace the files all the same.
    Overwrite,
    /// Say to go on in another directory.
    GoOnElsewhere {
        /// The session, or its file.
        session: String,
        /// The store, where it is not the user's own.
        store: Option<std::path::PathBuf>,
    },
    /// Go on in this directory with a session that works elsewhere.
    GoOnHere(SessionId),
    /// Name a session or node by its id, or the beginning of it.
    NameSession,
    /// Name the session or node that a directory is given for.
    NameForDirectory,
    /// Keep the store elsewhere.
    MoveStore,
    /// Set a budget for one run.
    SetBudget,
    /// Allow the network, or not.
    OneOfNetwork,
    /// Do not ask for commands to be kept off the network.
    AllowNetwork,
    /// Take back an entry of the permissions.
    Revoke(String),
    /// Accept a file of rules as it is.
    AcceptRules(std::path::PathBuf),
    /// Accept the settings of the project as they are.
    TrustProject,
    /// Have a damaged store repaired.
    Repair,
    /// Have the store examined.
    Examine,
    /// Use another store.
    AnotherStore,
    /// Say words to search for, or only wait for vectors.
    OnlyVectors,
    /// Say words to search for, or a condition.
    SayWords,
    /// See what is wrong with the files of memories.
    MemoryStatus,
    /// Have a job tried again whose attempts are used up.
    RetryJob(String),
    /// Say more of these.
    OneOf(Vec<NameCandidate>),
}

/// One of several nodes or sessions that a name could mean.
#[derive(Debug, Clone, PartialEq)]
pub struct NameCandidate {
    /// The node that the name could mean.
    pub node: NodeId,
    /// The role of its entry.
    pub role: String,
    /// The session that holds the node.
    pub session: Option<SessionId>,
    /// Whether the session is meant.
    pub is_session: bool,
    /// The time of the node.
    pub at: UnixMs,
    /// What the session is about.
    pub about: String,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: FailureKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), advice: None }
    }

    /// What was asked for cannot be done.
    pub fn request(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Request, message)
    }

    /// Something failed.
    pub fn failed(message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Failed, message)
    }

    /// Nothing is done before this is answered; `message` says what it is about.
    pub fn asks(question: Question, message: impl fmt::Display) -> Self {
        Self::new(FailureKind::Asks(question), message)
    }

    /// The same failure with advice.
    #[must_use]
    pub fn advise(mut self, advice: Advice) -> Self {
        self.advice = Some(advice);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self { kind: FailureKind::Store, advice: advice_of(&error), message: error.to_string() }
    }
}

/// What to do where a store cannot be used.
fn advice_of(error: &StoreError) -> Option<Advice> {
    match error {
        StoreError::Corrupt { .. } => Some(Advice::Repair),
        StoreError::ReadOnly { .. }
        | StoreError::NotOwner { .. }
        | StoreError::NotAStore { .. }
        | StoreError::Replaced { .. }
        | StoreError::Cut { .. } => Some(Advice::AnotherStore),
        _ => None,
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        let (kind, advice) = match &error {
            OpenError::Store(error) => (FailureKind::Store, advice_of(error)),
            OpenError::Broken { .. } => (FailureKind::Store, None),
            OpenError::Unsettled { .. } | OpenError::Forgotten(_) => (FailureKind::Failed, None),
            OpenError::NoSuchSession(_) => (FailureKind::Request, Some(Advice::ListSessions)),
            OpenError::NoSuchNode(_)
            | OpenError::Incomplete { .. }
            | OpenError::BadId(_)
            | OpenError::Exists(_)
            | OpenError::Notes(_)
            | OpenError::OtherProfile { .. }
            | OpenError::NoShell
            | OpenError::BadTool(_) => (FailureKind::Request, None),
        };
        Self { kind, message: error.to_string(), advice }
    }
}

impl From<ChangeError> for Failure {
    fn from(error: ChangeError) -> Self {
        let (kind, advice) = match error {
            ChangeError::Open(error) => return error.into(),
            ChangeError::Files(FilesError::Store(error)) => return error.into(),
            ChangeError::Files(FilesError::Conflicts(_)) => (FailureKind::Failed, Some(Advice::Overwrite)),
            ChangeError::Busy(_) | ChangeError::Files(_) | ChangeError::Outputs { .. } => {
                (FailureKind::Failed, None)
            }
            ChangeError::Removed { at, .. } | ChangeError::NoSession(at) => {
                (FailureKind::Request, Some(Advice::ForkAt(at)))
            }
            ChangeError::Foreign { .. } => (FailureKind::Request, Some(Advice::Fork)),
            ChangeError::Conflict { .. } => (FailureKind::Request, Some(Advice::TakeSide)),
            ChangeError::NothingToMerge { .. }
            | ChangeError::Illegal { .. }
            | ChangeError::BadMessage(_)
            | ChangeError::NothingToUndo(_)
            | ChangeError::NothingToRedo(_)
            | ChangeError::TooLong(_) => (FailureKind::Request, None),
        };
        Self { kind, message: error.to_string(), advice }
    }
}

impl From<BookmarkError> for Failure {
    fn from(error: BookmarkError) -> Self {
        match error {
            BookmarkError::Open(error) => error.into(),
            BookmarkError::Unknown(_) => Self::request(error).advise(Advice::ListBookmarks),
            BookmarkError::BadName(_) | BookmarkError::Foreign(_) => Self::request(error),
        }
    }
}

impl From<UndoError> for Failure {
    fn from(error: UndoError) -> Self {
        match error {
            UndoError::Open(error) => error.into(),
            UndoError::Busy(_) => Self::failed(error),
            UndoError::WentOn { before, .. } => Self::request(error).advise(Advice::GoOnFrom(before)),
            UndoError::NotCompacted(_) => Self::request(error),
        }
    }
}

impl From<quipu_replay::RecordingError> for Failure {
    fn from(error: quipu_replay::RecordingError) -> Self {
        Self::request(error)
    }
}

impl From<quipu_archive::ArchiveError> for Failure {
    fn from(error: quipu_archive::ArchiveError) -> Self {
        match error {
            quipu_archive::ArchiveError::Store(error) => error.into(),
            quipu_archive::ArchiveError::File { path, source, .. } if path.as_os_str().is_empty() => {
                source.into()
            }
            error @ quipu_archive::ArchiveError::InUse { .. } => Self::request(error).advise(Advice::Fork),
            error @ quipu_archive::ArchiveError::NotASession { .. } => Self::request(error),
            error => Self::failed(error),
        }
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            return Self::new(FailureKind::OutputClosed, "");
        }
        Self::failed(format!("input or output failed: {error}"))
    }
}
