//! What can go wrong with a store. Closed: callers branch on the variant, never on the text.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_protocol::NodeId;

use crate::{JobKey, RefName};

/// A store operation failed. Nothing of the operation was kept. Every message says what happened, where, and
/// what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A ref does not stand where the writer thought. Nothing of the commit was kept: write it as a branch.
    #[error(
        "ref `{name}` moved: it is now at {}, because another process wrote to this session; continue on a branch of \
         your own",
        at(found)
    )]
    Conflict {
        /// The ref.
        name: RefName,
        /// Where it stands; `None` when it does not exist.
        found: Option<NodeId>,
    },
    /// The lease on a ref is held by someone else, or the fence that came with a move is no longer the newest.
    #[error("ref `{name}` is leased to `{owner}`; wait until the lease ends, or write to another session")]
    Fenced {
        /// The ref.
        name: RefName,
        /// Who holds the lease now; empty when nobody does.
        owner: String,
    },
    /// Another program holds the file's lock.
    #[error(
        "{} was locked by another program for {}; end that program (or its open transaction) and try again",
        path.display(), span(*waited)
    )]
    Busy {
        /// The file.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// The disk, the quota or the file-size limit is used up. The store can be used again once there is room.
    #[error("no room to write {}: {detail}; free some space or raise the limit, then try again", path.display())]
    Full {
        /// The file.
        path: PathBuf,
        /// What SQLite or the system said.
        detail: String,
    },
    /// The file or its directory cannot be written.
    #[error(
        "{} is read-only; reading works, but to record steps make the file and its directory writable for you, \
         or name another store",
        path.display()
    )]
    ReadOnly {
        /// The file.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error(
        "{} is damaged: {what}; restore a backup, or name another store",
        path.display()
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The file, its WAL or its shared memory was removed or replaced while the store was open. Nothing is written
    /// until it is back, or until the store is opened again.
    #[error(
        "{} was removed or replaced while the store {} was in use; {}",
        lost.display(), path.display(), after_loss(path, lost, *saved, recovered.as_deref())
    )]
    Replaced {
        /// The file of the store.
        path: PathBuf,
        /// What was removed or replaced: `path`, or the WAL (`-wal`) or shared memory (`-shm`) beside it.
        lost: PathBuf,
        /// Whether everything that was acknowledged before is in the file, or in the WAL where that is in place.
        saved: bool,
        /// A new file with everything that was acknowledged, made of the one that is still open.
        recovered: Option<PathBuf>,
    },
    /// The WAL beside the file was cut short while the store was open, and with it steps that the file does not hold yet.
    /// Nothing is written until every program has closed the store.
    #[error(
        "{} was cut short while the store {} was in use; {}",
        wal.display(), path.display(), after_cut(path, recovered.as_deref())
    )]
    Cut {
        /// The file of the store.
        path: PathBuf,
        /// The path of the WAL file.
        wal: PathBuf,
        /// A new file with everything that was acknowledged, where one could be made of what this process still had.
        recovered: Option<PathBuf>,
    },
    /// The file was written by a newer Quipu.
    #[error(
        "{} has format {found}, and this program knows formats up to {known}; use the newer Quipu that wrote it",
        path.display()
    )]
    NewerVersion {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format that this program knows.
        known: i64,
    },
    /// The file or its directory belongs to another user.
    #[error(
        "{} belongs to user {owner}, and this program runs as user {user}; name a store of your own",
        path.display()
    )]
    NotOwner {
        /// The file or directory.
        path: PathBuf,
        /// Its owner's number.
        owner: u32,
        /// Our effective user's number.
        user: u32,
    },
    /// The path leads through a symbolic link that could be turned elsewhere.
    #[error("{} is a symbolic link; name the file that it points to", path.display())]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// The path is no store: not a regular file, or a database of something else.
    #[error("{} is not a store: {what}; name another file", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// Something that was named does not exist.
    #[error("{what} is not in the store {}", path.display())]
    Missing {
        /// The store.
        path: PathBuf,
        /// What was asked for.
        what: String,
    },
    /// Something that was named was erased: somebody wanted it gone.
    #[error("{what} was erased from the store {} and cannot be brought back; the rest of the session is kept", path.display())]
    Erased {
        /// The store.
        path: PathBuf,
        /// What was asked for, when it was erased and why.
        what: String,
    },
    /// Something exceeds a limit.
    #[error("{what} is {size} bytes, and the store takes at most {limit}; split it or leave it out")]
    TooLarge {
        /// What is too large.
        what: String,
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A job is not held any more by who claimed it: its lease ran out and another process claimed it, or it was cancelled
    /// or replaced.
    #[error(
        "job `{key}` is no longer held by this process: its lease expired, or it was removed or replaced; the store \
         keeps the newer state"
    )]
    JobLost {
        /// The job.
        key: JobKey,
    },
    /// Another process has the right to run the jobs of this store.
    #[error("another process runs the jobs of this store; wait until it finishes them")]
    NotLeading,
    /// There are as many jobs as a store takes.
    #[error("the store already holds {limit} jobs, which is the maximum; remove some")]
    TooManyJobs {
        /// How many it takes.
        limit: u64,
    },
    /// Anything else that the system or SQLite refused.
    #[error("could not {doing} {}: {detail}; check the file and its disk, then try again", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done, as a verb.
        doing: String,
        /// What the system said.
        detail: String,
    },
}

fn at(found: &Option<NodeId>) -> String {
    found.as_ref().map_or_else(|| "nothing".to_owned(), NodeId::short)
}

fn after_loss(path: &Path, lost: &Path, saved: bool, recovered: Option<&Path>) -> String {
    if let Some(recovered) = recovered {
        return format!(
            "all acknowledged steps are in {}: end every program that uses the store, then name that file as the store; or remove \
             {path}-wal and {path}-shm where they are, and move that file to the store's name",
            recovered.display(),
            path = path.display()
        );
    }
    let advice = match (path == lost, saved) {
        (true, _) => {
            "the last acknowledged steps may not be in the file that is there now: restore the old one with its \
             write-ahead log, or end every program that uses the store and open the current one"
        }
        (false, true) => {
            "all steps acknowledged before are safe in the store's file; end every program that uses it and open it again"
        }
        (false, false) => {
            "restore it if you can, because the last acknowledged steps may be nowhere else; \
             then end every program that uses the store and open it again"
        }
    };
    advice.to_owned()
}

fn after_cut(path: &Path, recovered: Option<&Path>) -> String {
    match recovered {
        Some(recovered) => format!(
            "all acknowledged steps are in {}: end every program that uses the store, then name that file as the \
             store, or move {} away with its -wal and -shm files and give that file its name",
            recovered.display(),
            path.display()
        ),
        None => "the last acknowledged steps are lost; end every program that uses the store, then open it again and \
                 check it"
            .to_owned(),
    }
}

/// A span of time, in seconds where it has some.
fn span(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{} s", time.as_secs())
    }
}

/// An error of the system, as ours.
pub(crate) fn system_error(path: &Path, doing: &str, error: &io::Error) -> StoreError {
    let path = path.to_owned();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            StoreError::Full { path, detail: error.to_string() }
        }
        ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly { path },
        _ => StoreError::Io { path, doing: doing.to_owned(), detail: error.to_string() },
    }
}
