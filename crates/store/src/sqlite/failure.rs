//! Errors inside the SQLite store, before they are given a place.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::ErrorCode;
use rusqlite::ffi;

use crate::StoreError;

/// What can go wrong in a piece of work on a connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// Ours already.
    Store(StoreError),
    /// Something that was named is not there.
    Missing(String),
    /// Something that was named was erased.
    Erased(String),
    /// Something in the file is not what it should be.
    Corrupt(String),
}

impl Failure {
    /// Whether what was found in the tables is wrong, and nothing else.
    pub(super) fn is_of_data(&self) -> bool {
        match self {
            Self::Corrupt(_) => true,
            Self::Sql(error) => matches!(
                error,
                rusqlite::Error::QueryReturnedNoRows
                    | rusqlite::Error::InvalidColumnType(..)
                    | rusqlite::Error::FromSqlConversionFailure(..)
                    | rusqlite::Error::IntegralValueOutOfRange(..)
            ),
            Self::Store(_) | Self::Missing(_) | Self::Erased(_) => false,
        }
    }
}

pub(super) type Outcome<T> = Result<T, Failure>;

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Which file, and how long its locks are waited for: what an error must name.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub(super) path: PathBuf,
    pub(super) busy: Duration,
    /// What [`super::file::identity`] said when it was opened.
    pub(super) identity: Option<(u64, u64)>,
}

impl Place {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The public error of a failure; `doing` is a verb.
    pub(super) fn error(&self, doing: &str, failure: Failure) -> StoreError {
        let path = self.path.clone();
        match failure {
            Failure::Store(error) => error,
            Failure::Missing(what) => StoreError::Missing { path, what },
            Failure::Erased(what) => StoreError::Erased { path, what },
            Failure::Corrupt(what) => StoreError::Corrupt { path, what },
            Failure::Sql(error) => self.sql(doing, &error),
        }
    }

    fn sql(&self, doing: &str, error: &rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        let detail = error.to_string();
        let doing = doing.to_owned();
        let rusqlite::Error::SqliteFailure(code, _) = error else {
            return match error {
                rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::InvalidColumnType(..) => StoreError::Corrupt { path, what: detail },
                _ => StoreError::Io { path, doing, detail },
            };
        };
        match code.code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                StoreError::Busy { path, waited: self.busy }
            }
            _ if is_full(*code) => StoreError::Full { path, detail },
            ErrorCode::ReadOnly if code.extended_code == ffi::SQLITE_READONLY_DBMOVED => StoreError::Io {
                path,
                doing,
                detail: "the file was moved or removed while it was in use".to_owned(),
            },
            ErrorCode::ReadOnly => StoreError::ReadOnly { path },
            ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => {
                StoreError::Corrupt { path, what: detail }
            }
            _ => StoreError::Io { path, doing, detail },
        }
    }
}

/// Whether SQLite found no room. It knows one reason for a failed write as "full"; the others (a quota, a limit on the size
/// of files, memory that is shared through a file on a full disk) look like errors of the system.
pub(super) fn is_full(code: ffi::Error) -> bool {
    code.code == ErrorCode::DiskFull
        || matches!(
            code.extended_code,
            ffi::SQLITE_IOERR_WRITE
                | ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
                | ffi::SQLITE_IOERR_TRUNCATE
        )
}
