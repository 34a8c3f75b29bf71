//! Sessions, messages and parts as they are stored: rows of the database, or the files that earlier versions wrote, one for each.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;
use quipu_protocol::{Json, UnixMs};
use quipu_store::{ForeignCursor, ForeignDatabase, ForeignRows, ForeignValue};

use crate::intake::{LINE_LIMIT, without_space};
use crate::json::Members;

/// Rows of each table that are looked at to find what was written since.
const NEWEST: u32 = 2_000;

/// A session.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) directory: String,
    pub(super) title: String,
    pub(super) version: String,
    pub(super) time: UnixMs,
}

pub(super) struct MessageRow {
    pub(super) id: String,
    pub(super) created: UnixMs,
    pub(super) updated: UnixMs,
    /// All that it says beside its parts, as JSON, where it is some.
    pub(super) data: String,
}

/// The sessions of the messages and of the parts that were added last, and when each of those rows was written.
pub(super) struct NewestRows([Vec<(String, UnixMs)>; 2]);

impl NewestRows {
    /// When the last of them was.
    pub(super) fn time(&self) -> UnixMs {
        self.0.iter().flatten().map(|(_, updated)| *updated).max().unwrap_or_default()
    }

    /// The sessions of those that were written then or later; `None` when there may be others before them.
    pub(super) fn since(&self, time: UnixMs) -> Option<HashSet<String>> {
        let is_all = |rows: &Vec<(String, UnixMs)>| {
            rows.len() < NEWEST as usize || rows.iter().any(|(_, updated)| *updated < time)
        };
        let written = self.0.iter().flatten().filter(|(_, updated)| *updated >= time);
        self.0.iter().all(is_all).then(|| written.map(|(session, _)| session.clone()).collect())
    }
}

/// Where they are stored.
pub(super) enum Rows {
    Database(ForeignDatabase),
    /// The folder `storage`.
    Files(PathBuf),
}

/// Whether a folder holds the files of earlier versions.
pub(super) fn is_tree(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "storage") && path.join("session").is_dir()
}

fn text(value: &ForeignValue<'_>) -> Option<String> {
    value.text().map(std::borrow::Cow::into_owned)
}

/// The columns that are read. More may be there, and other tables.
const TABLES: [(&str, &[&str]); 3] = [
    ("session", &["id", "parent_id", "directory", "title", "version", "time_created"]),
    ("message", &["id", "session_id", "time_created", "time_updated", "data"]),
    ("part", &["id", "session_id", "message_id", "data"]),
];

impl Rows {
    /// # Errors
    /// It cannot be read, or its tables are others than those that are known.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path.is_dir() {
            return Ok(Self::Files(path.to_owned()));
        }
        let database = ForeignDatabase::open(path)?;
        for (table, needed) in TABLES {
            let have = database.columns(table)?;
            let lacks = needed.iter().find(|needed| !have.iter().any(|column| column == *needed));
            let what = match lacks {
                None => continue,
                Some(_) if have.is_empty() => format!("it has no table `{table}`"),
                Some(column) => format!("its table `{table}` has no column `{column}`"),
            };
            return Err(io::Error::other(format!(
                "{what}: it is not an OpenCode database, or its version is not supported; a newer Quipu may read it"
            )));
        }
        Ok(Self::Database(database))
    }

    /// All sessions, the oldest first.
    pub(super) fn sessions(&self) -> io::Result<Vec<Row>> {
        let mut found = Vec::new();
        let database = match self {
            Self::Database(database) => database,
            Self::Files(root) => {
                for folder in entries(&root.join("session"))?.into_iter().filter(|path| path.is_dir()) {
                    // Beside `info`, the first versions had messages and parts here as well.
                    let is_other = ["message", "part"].iter().any(|name| folder.ends_with(name));
                    let files = if is_other { Vec::new() } else { entries(&folder)? };
                    found.extend(files.iter().filter_map(|file| session(file)));
                }
                found.sort_by(|one: &Row, other| (one.time, &one.id).cmp(&(other.time, &other.id)));
                return Ok(found);
            }
        };
        let rows = ForeignRows {
            table: "session",
            columns: &["id", "parent_id", "directory", "title", "version", "time_created"],
            only: None,
            order: &["time_created", "id"],
            most: None,
        };
        database.rows(rows, &mut |row| {
            if let [id, parent, directory, title, version, time] = row
                && let Some(id) = text(id)
            {
                found.push(Row {
                    id,
                    parent: text(parent),
                    directory: text(directory).unwrap_or_default(),
                    title: text(title).unwrap_or_default(),
                    version: text(version).unwrap_or_default(),
                    time: time.integer().unwrap_or_default(),
                });
            }
            true
        })?;
        Ok(found)
    }

    /// The rows that were added last; `None` where they do not say when they were written. Nothing else is read.
    pub(super) fn newest(&self) -> Option<NewestRows> {
        let Self::Database(database) = self else { return None };
        let mut tables = [Vec::new(), Vec::new()];
        for (table, found) in ["message", "part"].into_iter().zip(&mut tables) {
            let columns = ["session_id", "time_updated"];
            let read = database.newest(table, &columns, NEWEST, &mut |row| {
                if let [session, updated] = row {
                    found.push((text(session).unwrap_or_default(), updated.integer().unwrap_or_default()));
                }
                true
            });
            read.ok()?;
        }
        Some(NewestRows(tables))
    }

    /// Calls `each` with the messages of a session by id: with the first, so many at most, or with all.
    pub(super) fn messages(
        &self,
        session: &str,
        most: Option<usize>,
        mut each: impl FnMut(MessageRow),
    ) -> io::Result<()> {
        match self {
            Self::Database(database) => {
                database.rows(ForeignRows { most, ..messages_of(session) }, &mut |row| {
                    stored(row).into_iter().for_each(&mut each);
                    true
                })
            }
            Self::Files(root) => {
                let files = message_files(root, session).into_iter().take(most.unwrap_or(usize::MAX));
                files.map(|file| message(&file)).for_each(each);
                Ok(())
            }
        }
    }

    /// Calls `each` with the messages of a session by id and the parts of each as they stand, until it says no. None but these
    /// are in memory.
    pub(super) fn conversation<E: From<io::Error>>(
        &self,
        session: &str,
        mut each: impl FnMut(MessageRow, Vec<String>) -> Result<bool, E>,
    ) -> Result<(), E> {
        let database = match self {
            Self::Database(database) => database,
            Self::Files(root) => {
                for file in message_files(root, session) {
                    let message = message(&file);
                    let parts = part_files(root, session, &message.id);
                    if !each(message, parts.iter().map(|file| part(file)).collect())? {
                        break;
                    }
                }
                return Ok(());
            }
        };
        let parts = ForeignRows {
            table: "part",
            columns: &["message_id", "data"],
            only: Some(("session_id", session)),
            order: &["message_id", "id"],
            most: None,
        };
        database.walk(messages_of(session), |messages| {
            database.walk(parts, |parts| {
                let mut parts = Parts { parts, next: None, last: None };
                while let Some(row) = messages.read()? {
                    let Some(message) = stored(&row) else { continue };
                    let ForeignValue::Text(id) = row[0] else { continue };
                    if !each(message, parts.of(id)?)? {
                        break;
                    }
                }
                Ok(())
            })?
        })?
    }
}

/// The columns of a message that [`stored`] reads.
fn messages_of(session: &str) -> ForeignRows<'_> {
    ForeignRows {
        table: "message",
        columns: &["id", "time_created", "time_updated", "data"],
        only: Some(("session_id", session)),
        order: &["id"],
        most: None,
    }
}

fn stored(row: &[ForeignValue<'_>]) -> Option<MessageRow> {
    let [id, created, updated, data] = row else { return None };
    let [created, updated] = [created, updated].map(|time| time.integer().unwrap_or_default());
    Some(MessageRow { id: text(id)?, created, updated, data: text(data).unwrap_or_default() })
}

/// The parts of a session, in the order of their messages.
struct Parts<'a, 'b> {
    parts: &'a mut ForeignCursor<'b>,
    /// What was read last, of a message to come.
    next: Option<(Vec<u8>, String)>,
    /// The message that was asked for last.
    last: Option<Vec<u8>>,
}

impl Parts<'_, '_> {
    /// Those of a message, which comes after those that were asked for before.
    fn of(&mut self, message: &[u8]) -> io::Result<Vec<String>> {
        let before = self.last.replace(message.to_vec());
        let is_behind = |id: &[u8]| before.as_ref().is_some_and(|before| id <= &**before);
        if before.as_ref().is_some_and(|before| message < &**before) {
            return Err(disorder());
        }
        let mut own = Vec::new();
        while let Some((of, data)) = self.next()? {
            match (*of).cmp(message) {
                Ordering::Less if is_behind(&of) => return Err(disorder()),
                // Of a message that is not there.
                Ordering::Less => {}
                Ordering::Equal => own.push(data),
                Ordering::Greater => {
                    self.next = Some((of, data));
                    break;
                }
            }
        }
        Ok(own)
    }

    fn next(&mut self) -> io::Result<Option<(Vec<u8>, String)>> {
        if self.next.is_some() {
            return Ok(self.next.take());
        }
        while let Some(row) = self.parts.read()? {
            if let [ForeignValue::Text(message), data] = &row[..]
                && let Some(data) = text(data)
            {
                return Ok(Some((message.to_vec(), data)));
            }
        }
        Ok(None)
    }
}

fn disorder() -> io::Error {
    io::Error::other(
        "its rows are not in the order of their ids, so the database is damaged: close the program that uses it, recover \
         the data into a new file (`sqlite3 FILE .recover | sqlite3 NEW`) and import NEW",
    )
}

/// The files of a session's messages, by name.
fn message_files(root: &Path, session: &str) -> Vec<PathBuf> {
    let folders = [root.join("message"), root.join("session/message")];
    folders
        .iter()
        .filter_map(|folder| inside(folder, session))
        .flat_map(|folder| json_files(&folder))
        .collect()
}

fn message(file: &Path) -> MessageRow {
    let data = read(file);
    let members = Members::of(&data);
    let time = members.as_ref().and_then(|members| Members::of(members.get("time")?));
    let created = time.and_then(|time| time.get("created")?.parse().ok());
    MessageRow {
        id: stem(file),
        created: created.unwrap_or_default(),
        updated: written(file),
        data: members.map_or(data.clone(), |members| members.without(&["id", "sessionID"]).to_string()),
    }
}

/// The files of a message's parts, by name.
fn part_files(root: &Path, session: &str, message: &str) -> Vec<PathBuf> {
    let older = inside(&root.join("session/part"), session);
    let folders = [Some(root.join("part")), older].into_iter().flatten();
    folders.filter_map(|folder| inside(&folder, message)).flat_map(|folder| json_files(&folder)).collect()
}

fn part(file: &Path) -> String {
    let data = read(file);
    let own =
        Members::of(&data).map(|members| members.without(&["id", "messageID", "sessionID"]).to_string());
    own.unwrap_or(data)
}

/// What a folder has, by name; nothing where there is none.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: Vec<PathBuf> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    found.sort();
    Ok(found)
}

/// The folder of this name in another; `None` for a name that leads elsewhere.
fn inside(folder: &Path, name: &str) -> Option<PathBuf> {
    let is_name = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
    is_name.then(|| folder.join(name))
}

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let files = entries(folder).unwrap_or_default();
    files.into_iter().filter(|file| file.extension().is_some_and(|end| end == "json")).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_owned()
}

/// When a file was written, as milliseconds.
fn written(file: &Path) -> UnixMs {
    let time = std::fs::metadata(file).and_then(|data| data.modified()).ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok()).unwrap_or_default();
    UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX)
}

/// The value in a file, in one line; what cannot be read is empty, and so told as no JSON.
fn read(file: &Path) -> String {
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW).bits();
    let opened = File::options().read(true).custom_flags(flags).open(file);
    let mut bytes = Vec::new();
    let is_read = opened.and_then(|file| match file.metadata()?.is_file() {
        true => file.take(LINE_LIMIT as u64 + 1).read_to_end(&mut bytes),
        false => Err(io::Error::other("it is not a regular file")),
    });
    if is_read.is_err() || bytes.len() > LINE_LIMIT {
        return String::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    Json::parse(text.trim_ascii())
        .map_or_else(|_| text.clone().into_owned(), |json| without_space(&json).to_string())
}

fn session(file: &Path) -> Option<Row> {
    let text = read(file);
    let members = Members::of(&text)?;
    let of = |name: &str| members.string(name).map(std::borrow::Cow::into_owned);
    let time = members.get("time").and_then(Members::of);
    Some(Row {
        id: of("id").filter(|id| *id == stem(file))?,
        parent: of("parentID"),
        directory: of("directory").unwrap_or_default(),
        title: of("title").unwrap_or_default(),
        version: of("version").unwrap_or_default(),
        time: time.and_then(|time| time.get("created")?.parse().ok()).unwrap_or_default(),
    })
}
