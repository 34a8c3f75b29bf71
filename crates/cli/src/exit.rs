//! How the program ends.

use std::fmt;
use std::process::ExitCode;

use quipu_host::{Advice, FailureKind, NameCandidate};

use crate::wording::{ago, one_line, printable};

/// An exit code; the table is in the help and in `docs/exit-codes.md`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    Failed = 1,
    Usage = 2,
    Credential = 3,
    Store = 4,
    Limit = 5,
    ReplayMismatch = 6,
    Hangup = 129,
    Interrupted = 130,
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// What went wrong, for people, and the code to leave with. An empty message was told already.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl fmt::Display) -> Self {
        Self { exit, message: message.to_string() }
    }

    pub(crate) fn usage(message: impl fmt::Display) -> Self {
        Self::new(Exit::Usage, message)
    }

    pub(crate) fn failed(message: impl fmt::Display) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// Leaves without a word: stdout is closed, as `head` does.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, message: String::new() }
    }
}

impl From<quipu_host::Failure> for Failure {
    fn from(failure: quipu_host::Failure) -> Self {
        let exit = match failure.kind {
            FailureKind::ReplayMismatch => return Self::silent(Exit::Failed),
            FailureKind::Failed => Exit::Failed,
            FailureKind::Request | FailureKind::Asks(_) => Exit::Usage,
            FailureKind::Credential => Exit::Credential,
            FailureKind::Store => Exit::Store,
        };
        Self::new(exit, advised(&failure.message, failure.advice.as_ref()))
    }
}

/// What is wrong in the words of the host.
macro_rules! of_the_host {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                quipu_host::Failure::from(error).into()
            }
        }
    )*};
}

of_the_host!(
    quipu_store::StoreError,
    quipu::OpenError,
    quipu::ChangeError,
    quipu::BookmarkError,
    quipu::UndoError,
    quipu_replay::RecordingError,
    quipu_archive::ArchiveError,
    std::io::Error
);

/// A message, and what to do in the words of the command line.
pub(crate) fn advised(message: &str, advice: Option<&Advice>) -> String {
    let Some(advice) = advice else { return message.to_owned() };
    let advice = match advice {
        Advice::AnotherModel(Some((provider, id))) => {
            return format!("{message} `--model {provider}/{id}` goes on with another.");
        }
        Advice::AnotherModel(None) => {
            return format!(
                "{message} `--model PROVIDER/MODEL` goes on with another; `quipu models` lists them."
            );
        }
        Advice::ListModels => return format!("{message} See `quipu models`."),
        Advice::SetKey(Some(provider)) => {
            return format!("{message}: set a key with `quipu auth set {provider}`");
        }
        Advice::SetKey(None) => {
            return format!(
                "{message} Run `quipu auth set PROVIDER`; `quipu auth` lists the providers, and `quipu demo` needs no key"
            );
        }
        Advice::OneOf(meant) => {
            let list: Vec<String> = meant.iter().map(one_of).collect();
            return format!("{message}; say more:\n{}", list.join("\n"));
        }
        Advice::SayWords => {
            return format!(
                "{message}, such as `quipu search red button` or `quipu search --file api.rs`"
            );
        }
        Advice::OnlyVectors => "with --wait and no words, only vectors are made".to_owned(),
        Advice::ListProviders => "`quipu auth` lists them".to_owned(),
        Advice::ListSessions => "`quipu sessions --all` lists what there is".to_owned(),
        Advice::ListBookmarks => "`quipu bookmark` lists them".to_owned(),
        Advice::ForkAt(at) => format!("`quipu fork {at}` goes on from where it stood"),
        Advice::Fork => "`quipu fork` makes one that goes on from it".to_owned(),
        Advice::GoOnFrom(before) => {
            format!("`quipu -p --fork {before} \"…\"` goes on from before it and leaves this session as it is")
        }
        Advice::Overwrite => {
            "`--overwrite` replaces them all the same, and going back brings back what could be kept".to_owned()
        }
        Advice::GoOnElsewhere { session, store } => {
            let flag = store.as_ref().map_or(String::new(), |store| format!(" --store {}", store.display()));
            format!(
                "go on with it here with `quipu -p --session {session} --cwd .{flag} \"…\"`, elsewhere with --cwd DIR, or \
                 make that directory again"
            )
        }
        Advice::GoOnHere(session) => {
            format!("`quipu -p --session {session} --cwd . \"…\"` would go on with it here.")
        }
        Advice::NameSession => {
            "give a session's id, a node's hash, or at least their first four characters (`quipu sessions --all`)"
                .to_owned()
        }
        Advice::NameForDirectory => "add --session or --fork, or change to the directory".to_owned(),
        Advice::Repair => {
            "`quipu doctor --repair` moves it aside and carries over what can be read, and --store names another".to_owned()
        }
        Advice::Examine => "see `quipu doctor`".to_owned(),
        Advice::AnotherStore => "--store names another".to_owned(),
        Advice::TakeSide => "--ours or --theirs says so".to_owned(),
        Advice::MoveStore => "set QUIPU_HOME, or name another store with --store".to_owned(),
        Advice::SetBudget => "mend it, or say with --daily-budget what may be spent today".to_owned(),
        Advice::OneOfNetwork => {
            "--no-network and --allow network contradict each other; give one of them".to_owned()
        }
        Advice::AllowNetwork => "without --no-network they have it".to_owned(),
        Advice::Revoke(id) => format!("`quipu permissions revoke {id}` forgets it"),
        Advice::RetryJob(key) => format!("`quipu schedule retry {key}` tries it again"),
        Advice::TrustProject => {
            "`quipu config trust` shows what they change and accepts them as they are".to_owned()
        }
        Advice::AcceptRules(path) => format!(
            "read it, and accept it as it is with `quipu permissions accept {}`",
            path.display()
        ),
    };
    format!("{message}; {advice}")
}

/// One of several that could be meant: a session by its id and what it is about, a node by its hash.
fn one_of(one: &NameCandidate) -> String {
    let (when, role) = (ago(quipu_host::now(), one.at), printable(&one.role));
    match &one.session {
        None => format!("  {}  {role}  {when}", one.node.short()),
        Some(session) if !one.is_session => {
            format!("  {}  {role}  {when}  session {session}", one.node.short())
        }
        Some(session) => {
            format!("  session {session}  {when}  {}", one_line(&one.about, 60)).trim_end().to_owned()
        }
    }
}
