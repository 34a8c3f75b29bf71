//! Connections: how they are opened, and how they wait for locks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::failure::{Failure, Outcome};

/// How long a connection waits for locks; can be shortened for work that is not urgent.
#[derive(Debug, Clone)]
pub(super) struct Patience(Arc<AtomicU64>);

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        let patience = Self(Arc::default());
        patience.set(limit);
        patience
    }

    pub(super) fn set(&self, limit: Duration) {
        self.0.store(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Opens a file for reading and writing; it must exist.
pub(super) fn read_write(path: &Path, patience: &Patience) -> Outcome<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    set_up(Connection::open_with_flags(path, flags)?, patience)
}

/// Opens a file for reading beside a writer.
pub(super) fn reader(path: &Path, patience: &Patience) -> Outcome<Connection> {
    let connection = read_write(path, patience)?;
    connection.pragma_update(None, "query_only", true)?;
    // The last to close copies the WAL and removes it; that is for the writer, who knows whether it may.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(connection)
}

/// Opens a file that cannot be written: plainly; or as one that cannot change, when even the WAL's shared memory cannot be
/// made; or, when there is no room for that and the WAL is not empty, alone, with that memory in this process.
pub(super) fn read_only(path: &Path, patience: &Patience) -> Outcome<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let plain = Connection::open_with_flags(path, flags)
        .map_err(Failure::from)
        .and_then(|connection| set_up(connection, patience))
        .and_then(|connection| probe(&connection).map(|()| connection));
    match plain {
        // A WAL that is not empty holds steps which a file taken as unchangeable would not show.
        Err(Failure::Sql(error))
            if (cannot_open(&error) || has_no_room(&error))
                && super::file::size(&super::file::sibling_path(path, "-wal")) == 0 =>
        {
            let flags = flags | OpenFlags::SQLITE_OPEN_URI;
            let connection = Connection::open_with_flags(immutable_uri(path), flags)?;
            let connection = set_up(connection, patience)?;
            probe(&connection)?;
            Ok(connection)
        }
        Err(Failure::Sql(error)) if has_no_room(&error) => {
            // Nothing is written: the WAL is neither copied nor removed.
            let flags =
                flags.difference(OpenFlags::SQLITE_OPEN_READ_ONLY) | OpenFlags::SQLITE_OPEN_READ_WRITE;
            let connection = Connection::open_with_flags_and_vfs(path, flags, c"unix-excl")?;
            let connection = set_up(connection, patience)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
            probe(&connection)?;
            Ok(connection)
        }
        other => other,
    }
}

/// Whether there was no room on the disk, or none that this process may use.
pub(super) fn has_no_room(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|code| super::failure::is_full(*code))
}

/// Turns the WAL on, so that readers and the writer do not wait for each other. A file system
/// without shared memory refuses; then they do.
pub(super) fn write_ahead(connection: &Connection, patience: &Patience) -> Outcome<()> {
    let mut wait = waiter(patience.clone());
    for tries in 0.. {
        let mode: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
        if mode == "wal" {
            break;
        }
        // SQLite does not ask the busy handler here when another process is just opening the file.
        match connection.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Ok(()) => break,
            Err(error)
                if matches!(
                    error.sqlite_error_code(),
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
                ) && wait(tries) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// A database in memory.
pub(super) fn in_memory() -> Outcome<Connection> {
    set_up(Connection::open_in_memory()?, &Patience::new(Duration::ZERO))
}

/// Bytes of the file that a connection may keep in memory.
pub(super) fn limit_cache(connection: &Connection, bytes: u32) -> Outcome<()> {
    connection.pragma_update(None, "cache_size", -i64::from(bytes / 1_000))?;
    Ok(())
}

/// Reads the header and the schema.
pub(super) fn probe(connection: &Connection) -> Outcome<()> {
    connection.query_row("SELECT count(*) FROM sqlite_master", [], |_| Ok(()))?;
    Ok(())
}

/// Whether SQLite could not open a file that it needs (database, WAL or shared memory).
pub(super) fn cannot_open(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    )
}

fn set_up(mut connection: Connection, patience: &Patience) -> Outcome<Connection> {
    connection.busy_handler(Some(waiter(patience.clone())))?;
    // The file may come from anywhere: nothing in its schema may run.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, false)?;
    // Without it, a statement is parsed and planned again for each new value of some parameters. Nothing here is
    // ever analysed, so the values could not change a plan.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(96);
    // Quiet moments copy the WAL into the file; under a writer that never pauses, each copy costs a sync, so there
    // it waits until the WAL is nearly as long as it may be.
    connection.execute_batch(
        "PRAGMA cell_size_check = ON; PRAGMA cache_size = -32000; PRAGMA temp_store = MEMORY; \
         PRAGMA wal_autocheckpoint = 16000; PRAGMA journal_size_limit = 67108864; PRAGMA fullfsync = ON;",
    )?;
    Ok(connection)
}

/// Sleeps a little longer each time, never the same time twice, so that processes that wait for one lock do not
/// wake up together again and again.
fn waiter(patience: Patience) -> impl FnMut(i32) -> bool + Send + 'static {
    let mut began = Instant::now();
    let mut random = u64::from(std::process::id()) << 32 | 0x9e37_79b9;
    move |tries| {
        if tries == 0 {
            began = Instant::now();
        }
        let waited = began.elapsed();
        let limit = patience.get();
        if waited >= limit {
            return false;
        }
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let ceiling = match tries {
            0..=3 => 200,
            4..=15 => 1_000,
            16..=63 => 5_000,
            _ => 20_000,
        };
        let pause = Duration::from_micros(50 + random % ceiling);
        std::thread::sleep(pause.min(limit - waited));
        true
    }
}

fn immutable_uri(path: &Path) -> String {
    use std::fmt::Write as _;
    use std::os::unix::ffi::OsStrExt;
    let mut uri = String::from("file:");
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                uri.push(char::from(byte));
            }
            _ => {
                // Writing to a string cannot fail.
                write!(uri, "%{byte:02X}").ok();
            }
        }
    }
    uri.push_str("?immutable=1");
    uri
}
