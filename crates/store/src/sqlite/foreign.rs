//! Databases of other programs, read and never written.

use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::fcntl::OFlag;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// How long to wait for a program that holds the database.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of one value at most.
const VALUE_LIMIT: i32 = 128 << 20;

/// How often a database that changes is copied.
const COPIES: usize = 3;
/// Bytes of the header of a log, which differs each time that the log is begun anew.
const LOG_HEADER: u64 = 32;

/// Steps of SQLite's machine between two looks at how many there were.
const STEPS: c_int = 100_000;
/// Steps that one query may take whatever the size of the file, and for each byte of it. Reading a row takes about thirty,
/// and no row takes less than seven bytes; what needs more goes through the same pages again and again.
const FREE_STEPS: u64 = 50_000_000;
const STEPS_OF_A_BYTE: u64 = 16;

/// A database of another program, as it was when it was opened: what is written to it later is not seen. What stands
/// in its WAL is. A query ends with an error when it takes more steps than a sound file of this size can need.
pub struct ForeignDatabase {
    connection: Connection,
    /// The file as it was, where nothing keeps others from writing to it.
    unguarded: Option<UnguardedFile>,
    /// Steps that the query under way has taken.
    steps: Arc<AtomicU64>,
}

/// Which rows of a table, and what of them. Names are those of the other program.
#[derive(Debug, Clone, Copy)]
pub struct ForeignRows<'a> {
    /// The table.
    pub table: &'a str,
    /// The columns, in the order in which they are given.
    pub columns: &'a [&'a str],
    /// Only rows in which this column is this text.
    pub only: Option<(&'a str, &'a str)>,
    /// The columns by which they are ordered.
    pub order: &'a [&'a str],
    /// The first of them, so many at most; `None` for all.
    pub most: Option<usize>,
}

/// A file that is read without a lock.
struct UnguardedFile {
    path: PathBuf,
    /// Its bytes, and when it was changed.
    stamp: (u64, i64, i64),
}

/// Rows, one after the other.
pub struct ForeignCursor<'a> {
    rows: rusqlite::Rows<'a>,
    columns: usize,
}

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ForeignValue<'a> {
    /// Nothing.
    Null,
    /// A whole number.
    Integer(i64),
    /// Another number.
    Real(f64),
    /// A text, which may be no UTF-8.
    Text(&'a [u8]),
    /// Bytes.
    Blob(&'a [u8]),
}

impl ForeignDatabase {
    /// Opens a file. It must be in a directory where its owner's sidecar files can be read.
    ///
    /// # Errors
    /// It cannot be opened, is no database, or is held by another program.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        Self::opened(Connection::open_with_flags(path, flags).map_err(failed)?, path)
    }

    /// The same, and nothing is written beside the file: neither a log nor shared memory. What has a log is read from a copy, unless its
    /// program writes to it all the time, there is no room, or the log is no regular file. [`Self::check`] says afterwards whether another program has written
    /// to what was read.
    ///
    /// # Errors
    /// The same.
    pub fn open_without_trace(path: &Path) -> io::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // The log is beside the file that links lead to.
        let path = &path.canonicalize()?;
        if !is_logged(path)? {
            return Self::open(path);
        }
        // To read a log, SQLite writes the shared memory.
        if has_log(path) {
            match copied(path) {
                Some((dir, copy)) => {
                    // It may hold secrets: once it is open, nobody finds it any more.
                    let database = Self::open(&copy)?;
                    dir.close()?;
                    return Ok(database);
                }
                None if has_log(path) => return Self::open(path),
                // Its program has closed it meanwhile.
                None => {}
            }
        }
        let unguarded = UnguardedFile { path: path.to_owned(), stamp: stamp_of(path)? };
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        let connection = Connection::open_with_flags(unchanging(path), flags).map_err(failed)?;
        Ok(Self { unguarded: Some(unguarded), ..Self::opened(connection, path)? })
    }

    /// Whether what was read was one state of the database.
    ///
    /// # Errors
    /// Another program has written to it since it was opened.
    pub fn check(&self) -> io::Result<()> {
        let Some(UnguardedFile { path, stamp }) = &self.unguarded else { return Ok(()) };
        if has_log(path) || stamp_of(path)? != *stamp {
            return Err(io::Error::other(
                "another program has written to it while it was read: close that program and import again",
            ));
        }
        Ok(())
    }

    fn opened(mut connection: Connection, path: &Path) -> io::Result<Self> {
        let steps = Arc::new(AtomicU64::new(0));
        let most = step_limit(path);
        let counter = Arc::clone(&steps);
        let count = move || {
            let step = u64::try_from(STEPS).unwrap_or(0);
            counter.fetch_add(step, Ordering::Relaxed) > most
        };
        connection.progress_handler(STEPS, Some(count)).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, VALUE_LIMIT).map_err(failed)?;
        // What stands in its schema is not ours to run.
        connection.pragma_update(None, "trusted_schema", false).map_err(failed)?;
        connection.pragma_update(None, "query_only", true).map_err(failed)?;
        connection.execute_batch("BEGIN").map_err(failed)?;
        // The first read is what the rest is read beside.
        connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
            .map_err(failed)?;
        Ok(Self { connection, unguarded: None, steps })
    }

    /// A view, or a table that code of its own computes, can have rows without end: only tables are read.
    fn refuse_computed(&self, table: &str) -> io::Result<()> {
        let query = "SELECT 1 FROM sqlite_schema WHERE lower(name) = lower(?1) AND (type = 'view' OR (type = 'table' AND rootpage = 0))";
        let mut statement = self.connection.prepare_cached(query).map_err(failed)?;
        if statement.exists([table]).map_err(failed)? {
            return Err(io::Error::other(format!(
                "`{table}` is a view or a virtual table, which could return endless rows; Quipu reads only tables"
            )));
        }
        Ok(())
    }

    /// The columns of a table, which differ between versions of a program; none where there is no such table.
    ///
    /// # Errors
    /// The database is damaged.
    pub fn columns(&self, table: &str) -> io::Result<Vec<String>> {
        self.refuse_computed(table)?;
        let mut statement =
            self.connection.prepare_cached("SELECT name FROM pragma_table_info(?1)").map_err(failed)?;
        let names = statement.query_map([table], |row| row.get(0)).map_err(failed)?;
        names.collect::<Result<_, _>>().map_err(failed)
    }

    /// Calls `each` with every row, until it says no.
    ///
    /// # Errors
    /// There is no such table or column, or the database is damaged.
    pub fn rows(
        &self,
        rows: ForeignRows<'_>,
        each: &mut dyn FnMut(&[ForeignValue<'_>]) -> bool,
    ) -> io::Result<()> {
        self.walk(rows, |cursor| {
            while let Some(row) = cursor.read()? {
                if !each(&row) {
                    break;
                }
            }
            Ok(())
        })?
    }

    /// Gives `work` the rows, one after the other: those of two tables at once where one walk is within another.
    ///
    /// # Errors
    /// There is no such table or column, or the database is damaged.
    pub fn walk<T>(
        &self,
        rows: ForeignRows<'_>,
        work: impl FnOnce(&mut ForeignCursor<'_>) -> T,
    ) -> io::Result<T> {
        let list = |names: &[&str]| names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let mut query = format!("SELECT {} FROM {}", list(rows.columns), quoted(rows.table));
        if let Some((column, _)) = rows.only {
            query.push_str(&format!(" WHERE {} = ?1", quoted(column)));
        }
        if !rows.order.is_empty() {
            query.push_str(&format!(" ORDER BY {}", list(rows.order)));
        }
        if let Some(most) = rows.most {
            query.push_str(&format!(" LIMIT {most}"));
        }
        self.ask(&query, rows, work)
    }

    /// Calls `each` with the rows that were added last, so many at most and the newest first. Nothing but them is read.
    ///
    /// # Errors
    /// The same, or the rows of the table have no numbers.
    pub fn newest(
        &self,
        table: &str,
        columns: &[&str],
        most: u32,
        each: &mut dyn FnMut(&[ForeignValue<'_>]) -> bool,
    ) -> io::Result<()> {
        let list = columns.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
        let query = format!("SELECT {list} FROM {} ORDER BY rowid DESC LIMIT {most}", quoted(table));
        let rows = ForeignRows { table, columns, only: None, order: &[], most: None };
        self.ask(&query, rows, |cursor| {
            while let Some(row) = cursor.read()? {
                if !each(&row) {
                    break;
                }
            }
            Ok(())
        })?
    }

    fn ask<T>(
        &self,
        query: &str,
        rows: ForeignRows<'_>,
        work: impl FnOnce(&mut ForeignCursor<'_>) -> T,
    ) -> io::Result<T> {
        self.refuse_computed(rows.table)?;
        let mut statement = self.connection.prepare_cached(query).map_err(failed)?;
        // A query within the walk of another one has steps of its own.
        let outer = self.steps.swap(0, Ordering::Relaxed);
        let found = match rows.only {
            Some((_, text)) => statement.query([text]),
            None => statement.query([]),
        };
        let result = found
            .map_err(failed)
            .map(|rows_found| work(&mut ForeignCursor { rows: rows_found, columns: rows.columns.len() }));
        self.steps.store(outer, Ordering::Relaxed);
        result
    }
}

impl ForeignCursor<'_> {
    /// The next row; `None` after the last.
    ///
    /// # Errors
    /// The database is damaged.
    pub fn read(&mut self) -> io::Result<Option<Vec<ForeignValue<'_>>>> {
        let Some(row) = self.rows.next().map_err(failed)? else { return Ok(None) };
        let value = |at: usize| {
            Ok(match row.get_ref(at).map_err(failed)? {
                ValueRef::Null => ForeignValue::Null,
                ValueRef::Integer(number) => ForeignValue::Integer(number),
                ValueRef::Real(number) => ForeignValue::Real(number),
                ValueRef::Text(text) => ForeignValue::Text(text),
                ValueRef::Blob(bytes) => ForeignValue::Blob(bytes),
            })
        };
        (0..self.columns).map(value).collect::<io::Result<_>>().map(Some)
    }
}

impl ForeignValue<'_> {
    /// The text, half of a character as U+FFFD; `None` for anything else.
    pub fn text(&self) -> Option<std::borrow::Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(String::from_utf8_lossy(text)),
            Self::Null | Self::Integer(_) | Self::Real(_) | Self::Blob(_) => None,
        }
    }

    /// The whole number.
    pub fn integer(&self) -> Option<i64> {
        match self {
            Self::Integer(number) => Some(*number),
            Self::Null | Self::Real(_) | Self::Text(_) | Self::Blob(_) => None,
        }
    }
}

/// A file that SQLite keeps beside a database.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// Whether a database has its changes in a log, for which SQLite makes files that are not there.
fn is_logged(path: &Path) -> io::Result<bool> {
    let mut header = Vec::new();
    regular(path)?.take(20).read_to_end(&mut header)?;
    Ok(header.get(18..20).is_some_and(|versions| versions.contains(&2)))
}

/// Whether there are changes in the log of a database.
fn has_log(path: &Path) -> bool {
    beside(path, "-wal").metadata().is_ok_and(|log| log.len() > 0)
}

/// A copy of a database with its log. The log only grows until its content is in the file and it is begun anew: what was copied of it is
/// whole, as long as neither the file nor the header of the log changed.
fn copied(path: &Path) -> Option<(tempfile::TempDir, PathBuf)> {
    let log = beside(path, "-wal");
    for _ in 0..COPIES {
        let private = std::fs::Permissions::from_mode(0o700);
        let dir = tempfile::Builder::new().prefix("quipu-database-").permissions(private).tempdir().ok()?;
        let copy = dir.path().join("copy");
        let before = (stamp_of(path).ok()?, header_of(&log).ok()?);
        let bytes = path.metadata().ok()?.len().saturating_add(log.metadata().ok()?.len());
        if bytes > free_bytes(dir.path())? {
            return None;
        }
        copy_file(&log, &beside(&copy, "-wal")).ok()?;
        copy_file(path, &copy).ok()?;
        if (stamp_of(path).ok()?, header_of(&log).ok()?) == before {
            return Some((dir, copy));
        }
    }
    None
}

/// Opens a regular file: no link, and nothing that could be waited for.
fn regular(path: &Path) -> io::Result<File> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok(file)
}

/// What a log begins with.
fn header_of(log: &Path) -> io::Result<Vec<u8>> {
    let mut header = Vec::new();
    regular(log)?.take(LOG_HEADER).read_to_end(&mut header)?;
    Ok(header)
}

/// Copies a file as long as it is now.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let from = regular(from)?;
    let bytes = from.metadata()?.len();
    let mut new = File::options().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut from.take(bytes), &mut new)?;
    Ok(())
}

/// Bytes that can still be written in a directory.
fn free_bytes(dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The name of a file that nobody changes.
fn unchanging(path: &Path) -> String {
    let mut name = "file:".to_owned();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                name.push(char::from(*byte));
            }
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name + "?immutable=1"
}

fn stamp_of(path: &Path) -> io::Result<(u64, i64, i64)> {
    let found = path.metadata()?;
    Ok((found.len(), found.ctime(), found.ctime_nsec()))
}

/// Steps that a query may take, by the bytes of the file and its WAL.
fn step_limit(path: &Path) -> u64 {
    let size = |path: &Path| std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let bytes = size(path).saturating_add(size(&beside(path, "-wal")));
    bytes.saturating_mul(STEPS_OF_A_BYTE).saturating_add(FREE_STEPS)
}

/// What SQLite says, with what can be done about it.
#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn failed(error: rusqlite::Error) -> io::Error {
    let advice = match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "; another program is using it: close that program and import again"
        }
        Some(ErrorCode::OperationInterrupted) => {
            "; it has more rows than a file of its size can hold: it is damaged or crafted to be endless"
        }
        Some(ErrorCode::NotADatabase) => "; it is not a SQLite database, or it is encrypted",
        Some(ErrorCode::DatabaseCorrupt) => {
            "; it is damaged: close the program that uses it, recover the data into a new file (`sqlite3 FILE .recover | sqlite3 NEW`) and import NEW"
        }
        _ => "",
    };
    io::Error::other(format!("{error}{advice}"))
}

/// A name that stands for a column or a table and for nothing else; in double quotes SQLite would take one that is not
/// there for a text.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(database: &ForeignDatabase, only: Option<(&str, &str)>) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let rows = ForeignRows { table: "t", columns: &["name", "n"], only, order: &["n"], most: None };
        database.rows(rows, &mut |row| {
            names.push(format!("{} {:?}", row[0].text().unwrap_or_default(), row[1].integer()));
            true
        })?;
        Ok(names)
    }

    #[test]
    fn rows_are_read_while_the_database_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("their.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (name, n); INSERT INTO t VALUES ('b', 2), ('a', 1)")
            .unwrap();
        let database = ForeignDatabase::open(&path).unwrap();
        writer.execute_batch("INSERT INTO t VALUES ('c', 3)").unwrap();
        assert_eq!(
            names(&database, None).unwrap(),
            ["a Some(1)", "b Some(2)"],
            "as it was when it was opened"
        );
        let later = ForeignDatabase::open(&path).unwrap();
        assert_eq!(names(&later, Some(("name", "c"))).unwrap(), ["c Some(3)"]);
        assert!(names(&later, Some(("no such column", "c"))).is_err());
        let mut first = Vec::new();
        let rows = ForeignRows { table: "t", columns: &["n"], only: None, order: &["n"], most: Some(2) };
        later
            .rows(rows, &mut |row| {
                first.push(row[0].integer());
                true
            })
            .unwrap();
        assert_eq!(first, [Some(1), Some(2)]);
        let mut newest = Vec::new();
        later
            .newest("t", &["name"], 2, &mut |row| {
                newest.push(row[0].text().unwrap_or_default().into_owned());
                true
            })
            .unwrap();
        assert_eq!(newest, ["c", "a"]);
        assert_eq!(later.columns("t").unwrap(), ["name", "n"]);
        assert_eq!(later.columns("no such table").unwrap(), [""; 0]);
        assert!(later.connection.execute_batch("DELETE FROM t").is_err());
        std::fs::write(
            dir.path().join("none.db"),
            "not a database, but long enough to look like one".repeat(40),
        )
        .unwrap();
        assert!(ForeignDatabase::open(&dir.path().join("none.db")).is_err());
        assert!(ForeignDatabase::open(&dir.path().join("missing.db")).is_err());
    }

    #[test]
    fn database_is_read_without_a_trace_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let names_of = |dir: &Path| {
            let entries = std::fs::read_dir(dir).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let at = dir.path().join("a #1?%.d");
        std::fs::create_dir(&at).unwrap();
        let path = at.join("their.db");
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE t (name, n); INSERT INTO t VALUES ('a', 1)",
            )
            .unwrap();
        // While it is open, its log counts.
        let database = ForeignDatabase::open_without_trace(&path).unwrap();
        assert_eq!(names(&database, None).unwrap(), ["a Some(1)"]);
        database.check().unwrap();
        drop(database);
        let memory = std::fs::read(beside(&path, "-shm")).unwrap();
        // A copy of both files.
        let copied = dir.path().join("copy");
        std::fs::create_dir(&copied).unwrap();
        for end in ["", "-wal"] {
            std::fs::copy(beside(&path, end), beside(&copied.join("their.db"), end)).unwrap();
        }
        let database = ForeignDatabase::open_without_trace(&copied.join("their.db")).unwrap();
        assert_eq!(names(&database, None).unwrap(), ["a Some(1)"]);
        database.check().unwrap();
        assert_eq!(names_of(&copied), ["their.db", "their.db-wal"]);
        // One that was killed, with what it had in its memory.
        std::fs::write(beside(&copied.join("their.db"), "-shm"), &memory).unwrap();
        drop(ForeignDatabase::open_without_trace(&copied.join("their.db")).unwrap());
        assert_eq!(std::fs::read(beside(&copied.join("their.db"), "-shm")).unwrap(), memory);
        // Closed.
        drop(writer);
        assert_eq!(names_of(&at), ["their.db"]);
        let database = ForeignDatabase::open_without_trace(&path).unwrap();
        assert_eq!(names(&database, None).unwrap(), ["a Some(1)"]);
        database.check().unwrap();
        assert_eq!(names_of(&at), ["their.db"]);
        let writer = Connection::open(&path).unwrap();
        writer.execute_batch("INSERT INTO t VALUES ('b', 2)").unwrap();
        assert!(database.check().unwrap_err().to_string().contains("while it was read"));
        drop(writer);
        assert!(database.check().is_err(), "its log is in the file now");
        assert!(ForeignDatabase::open_without_trace(&at.join("missing.db")).is_err());
    }

    #[test]
    fn log_is_copied_beside_the_file_that_a_link_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for name in ["real", "links", "copy"] {
            std::fs::create_dir(at(name)).unwrap();
        }
        let (path, log) = (at("real/their.db"), at("real/their.db-wal"));
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(
                "PRAGMA journal_mode = WAL; CREATE TABLE t (name, n); INSERT INTO t VALUES ('a', 1)",
            )
            .unwrap();
        std::os::unix::fs::symlink(&path, at("links/their.db")).unwrap();
        let database = ForeignDatabase::open_without_trace(&at("links/their.db")).unwrap();
        assert_eq!(names(&database, None).unwrap(), ["a Some(1)"]);
        database.check().unwrap();
        assert_eq!(std::fs::read_dir(at("links")).unwrap().count(), 1);
        // SQLite follows no link to a log either.
        std::fs::copy(&path, at("copy/their.db")).unwrap();
        std::os::unix::fs::symlink(&log, at("copy/their.db-wal")).unwrap();
        assert!(copied(&at("copy/their.db")).is_none());
        assert!(ForeignDatabase::open_without_trace(&at("copy/their.db")).is_err());
        // It is begun anew.
        let header = header_of(&log).unwrap();
        assert_eq!(header.len(), 32);
        writer.execute_batch("INSERT INTO t VALUES ('b', 2)").unwrap();
        assert_eq!(header_of(&log).unwrap(), header);
        writer.execute_batch("PRAGMA wal_checkpoint(RESTART); INSERT INTO t VALUES ('c', 3)").unwrap();
        assert_ne!(header_of(&log).unwrap(), header);
    }

    #[test]
    fn views_and_endless_queries_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hostile.db");
        let endless = "WITH RECURSIVE e(name, n) AS (VALUES ('x', 1) UNION ALL SELECT name, n + 1 FROM e) SELECT * FROM e";
        let writer = Connection::open(&path).unwrap();
        writer
            .execute_batch(&format!(
                "CREATE VIEW T AS {endless}; CREATE VIRTUAL TABLE v USING fts5(name); CREATE TABLE u (name, n)"
            ))
            .unwrap();
        drop(writer);
        let database = ForeignDatabase::open(&path).unwrap();
        let refused = |error: io::Error| {
            assert!(error.to_string().contains("is a view or a virtual table"), "{error}");
        };
        refused(names(&database, None).unwrap_err());
        refused(database.columns("t").unwrap_err());
        refused(database.columns("V").unwrap_err());
        refused(database.newest("t", &["name"], 2, &mut |_| true).unwrap_err());
        assert_eq!(database.columns("u").unwrap(), ["name", "n"]);
        // Whatever else makes a query endless: it stops after a number of steps, within another walk too.
        let rows = ForeignRows { table: "u", columns: &["n", "name"], only: None, order: &[], most: None };
        for order in ["", " ORDER BY n"] {
            let mut count = 0_u64;
            let counted = database.ask(&format!("{endless}{order}"), rows, |cursor| {
                while cursor.read()?.is_some() {
                    count += 1;
                    if count.is_multiple_of(1_000_000) {
                        database.rows(rows, &mut |_| true)?;
                    }
                }
                io::Result::Ok(())
            });
            let error = counted.unwrap().unwrap_err();
            assert!(error.to_string().contains("more rows than a file of its size"), "{error}");
        }
        assert!(database.rows(rows, &mut |_| true).is_ok(), "the next query has steps of its own");
    }
}
