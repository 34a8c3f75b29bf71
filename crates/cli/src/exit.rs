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
    Asked = 7,
    Denied = 8,
    Output = 9,
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
            FailureKind::OutputClosed => return Self::silent(Exit::Failed),
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
            return format!("{message} Continue with another: `--model {provider}/{id}`.");
        }
        Advice::AnotherModel(None) => {
            return format!(
                "{message} Continue with another: `--model PROVIDER/MODEL`; `quipu models` lists them."
            );
        }
        Advice::ListModels => return format!("{message} See `quipu models`."),
        Advice::SetKey(Some(provider)) => {
            return format!("{message}: set a key with `quipu auth set {provider}`");
        }
        Advice::LogIn(provider) => {
            return format!("{message}: log in with `quipu auth login {provider}`");
        }
        Advice::UseLogin(agent) => {
            let message = message.trim_end_matches('.');
            return format!("{message}: use the login of another program with `quipu auth use {agent}`");
        }
        Advice::SetKeyOrLogIn(provider) => {
            return format!(
                "{message}: set a key with `quipu auth set {provider}`, or log in with `quipu auth login {provider}`"
            );
        }
        Advice::SetKey(None) => {
            return format!(
                "{message} Run `quipu auth set PROVIDER`; `quipu auth` lists the providers, and `quipu demo` needs no key"
            );
        }
        Advice::OneOf(meant) => {
            let list: Vec<String> = meant.iter().map(one_of).collect();
            return format!("{message}; give more of it:\n{}", list.join("\n"));
        }
        Advice::SayWords => {
            return format!(
                "{message}, such as `quipu search red button` or `quipu search --file api.rs`"
            );
        }
        Advice::OnlyVectors => "with --wait and no words, quipu only builds the vectors".to_owned(),
        Advice::ListProviders => "`quipu auth` lists them".to_owned(),
        Advice::ListSessions => "`quipu sessions --all` lists all sessions".to_owned(),
        Advice::ListBookmarks => "`quipu bookmark` lists them".to_owned(),
        Advice::ForkAt(at) => format!("`quipu fork {at}` starts a new session from its end"),
        Advice::Fork => "`quipu fork` starts a session from it".to_owned(),
        Advice::GoOnFrom(before) => {
            format!("`quipu -p --fork {before} \"…\"` starts a new session just before it and leaves this one unchanged")
        }
        Advice::Overwrite => {
            "`--overwrite` replaces them anyway; going back restores what could be saved".to_owned()
        }
        Advice::GoOnElsewhere { session, store } => {
            let flag = store.as_ref().map_or(String::new(), |store| format!(" --store {}", store.display()));
            format!(
                "continue it here with `quipu -p --session {session} --cwd .{flag} \"…\"`, elsewhere with --cwd DIR, or create that directory again"
            )
        }
        Advice::GoOnHere(session) => {
            format!("To continue it here: `quipu -p --session {session} --cwd . \"…\"`.")
        }
        Advice::NameSession => {
            "give a session's id, a node's hash, or at least their first four characters (`quipu sessions --all`)"
                .to_owned()
        }
        Advice::NameForDirectory => "add --session or --fork, or change to the directory".to_owned(),
        Advice::Repair => {
            "`quipu doctor --repair` copies what can be read into a new store and keeps the damaged file; --store uses another store".to_owned()
        }
        Advice::Examine => "see `quipu doctor`".to_owned(),
        Advice::AnotherStore => "--store uses another store".to_owned(),
        Advice::TakeSide => "choose with --ours or --theirs".to_owned(),
        Advice::MoveStore => "set QUIPU_HOME, or name another store with --store".to_owned(),
        Advice::SetBudget => "correct it, or set a limit for today with --daily-budget".to_owned(),
        Advice::OneOfNetwork => {
            "--no-network and --allow network contradict each other; give one of them".to_owned()
        }
        Advice::AllowNetwork => "leave --no-network out to allow it".to_owned(),
        Advice::Revoke(id) => format!("`quipu permissions revoke {id}` revokes it"),
        Advice::RetryJob(key) => format!("`quipu schedule retry {key}` retries it"),
        Advice::MemoryStatus => "`quipu memory status` lists them".to_owned(),
        Advice::TrustProject => {
            "`quipu config trust` shows what they change and accepts them".to_owned()
        }
        Advice::AcceptRules(path) => format!(
            "read it, then accept it with `quipu permissions accept {}`",
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
