//! The form of databases: one for what all agents share, one for each agent. They are opened to be read only.
//!
//! Their transcripts are written to a directory of their own, each as the file that earlier versions had of it, and imported
//! from there. Credentials stay in memory.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use quipu_store::{ForeignDatabase, ForeignRows, ForeignValue};
use ruzstd::decoding::StreamingDecoder;
use serde_json::{Map, Value, json};

use super::files::parsed;
use super::{AGENT_DATABASE, StateDirectory, StateDocument, StateFault};
use crate::json::Members;

/// The database of what all agents share.
pub(super) const STATE: &str = "state/openclaw.sqlite";

/// Versions of the form that are known.
const STATE_VERSIONS: (&[i64], &str) = (&[17, 18], "17 and 18");
const AGENT_VERSIONS: (&[i64], &str) = (&[23], "23");

/// Bytes of an event that was packed, as its program limits it.
const EVENT: u64 = 4 << 20;
/// Bytes of a transcript that was packed whole.
const TRANSCRIPT: u64 = 1 << 30;
/// How many times larger than its database all transcripts may be, beyond `FREE`.
const RATIO: u64 = 200;
const FREE: u64 = 64 << 20;
/// Rows that cannot be read, which are named one by one.
const NAMED: usize = 100;

/// Reads the databases of a directory.
pub(super) fn read(state: &mut StateDirectory) {
    let path = state.dir.join(STATE);
    match opened(&state.dir, &path, STATE_VERSIONS) {
        Ok(Some(database)) => {
            let before = (state.approvals.clone(), state.jobs.clone(), state.shared_profiles.clone());
            shared(state, &path, &database);
            if let Err(error) = database.check() {
                // It may be of two states.
                (state.approvals, state.jobs, state.shared_profiles) = before;
                state.problem(&path, error);
            }
        }
        Ok(None) => {}
        Err(fault) => state.problem(&path, fault),
    }
    let private = fs::Permissions::from_mode(0o700);
    let scratch = match tempfile::Builder::new().prefix("quipu-state-").permissions(private).tempdir() {
        Ok(scratch) => scratch,
        Err(error) => return state.problem(&std::env::temp_dir(), error),
    };
    let mut agents = std::mem::take(&mut state.agents);
    for agent in &mut agents {
        let dir = state.dir.join("agents").join(&agent.id);
        let path = dir.join(AGENT_DATABASE);
        let database = match opened(&state.dir, &path, AGENT_VERSIONS) {
            Ok(Some(database)) => database,
            Ok(None) => continue,
            Err(fault) => {
                state.problem(&path, fault);
                continue;
            }
        };
        let mut work = AgentWork {
            state: &mut *state,
            database: &database,
            path: &path,
            out: scratch.path().join("agents").join(&agent.id).join("sessions"),
            left: fs::metadata(&path)
                .map_or(0, |found| found.len())
                .saturating_mul(RATIO)
                .saturating_add(FREE),
            unreadable: 0,
            written: BTreeMap::new(),
        };
        let profiles = work.document("auth_profile_store", "store_key", "store_json");
        let profile_state = work.document("auth_profile_state", "state_key", "state_json");
        let index = work.index();
        work.transcripts();
        let written = work.written;
        if let Err(error) = database.check() {
            // What was read may be of two states.
            state.problem(&path, error);
            continue;
        }
        (agent.profiles, agent.profile_state, agent.index) = (profiles, profile_state, index);
        // Files that the program put beside the database are the same transcripts.
        agent.transcripts.retain(|path| {
            path.file_name().and_then(|name| name.to_str()).is_none_or(|name| !written.contains_key(name))
        });
        agent.transcripts.extend(written.into_values());
    }
    state.agents = agents;
    state.scratch = Some(scratch);
}

/// Opens a database inside of the directory whose form is known.
fn opened(
    dir: &Path,
    path: &Path,
    (versions, known): (&[i64], &'static str),
) -> Result<Option<ForeignDatabase>, StateFault> {
    match path.canonicalize() {
        Ok(real) if !real.starts_with(dir) => return Err(StateFault::Outside),
        Ok(real) if !real.is_file() => return Err(StateFault::NotAFile),
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let database = ForeignDatabase::open_without_trace(path)?;
    let columns = database.columns("schema_meta")?;
    if !["meta_key", "schema_version"].iter().all(|name| columns.iter().any(|column| column == name)) {
        return Err(StateFault::NotItsDatabase { table: "schema_meta" });
    }
    let mut found = -1;
    // Others are about migrations.
    let only = Some(("meta_key", "primary"));
    let rows =
        ForeignRows { table: "schema_meta", columns: &["schema_version"], only, order: &[], most: Some(1) };
    database.rows(rows, &mut |row| {
        found = row.first().and_then(ForeignValue::integer).unwrap_or(-1);
        false
    })?;
    if versions.contains(&found) { Ok(Some(database)) } else { Err(StateFault::Version { found, known }) }
}

fn text(value: Option<&ForeignValue<'_>>) -> Option<String> {
    value?.text().map(std::borrow::Cow::into_owned)
}

fn document(path: &Path, value: Value) -> StateDocument {
    let exposed = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    StateDocument { path: path.to_owned(), value, exposed }
}

/// Approvals, jobs and shared credentials.
fn shared(state: &mut StateDirectory, path: &Path, database: &ForeignDatabase) {
    let mut approvals = None;
    let rows = |table, columns, order| ForeignRows { table, columns, only: None, order, most: None };
    let read = database.rows(
        rows("exec_approvals_config", &["config_key", "raw_json"], &["config_key"]),
        &mut |row| {
            approvals = text(row.get(1)).filter(|text| !text.trim().is_empty());
            approvals.is_none()
        },
    );
    let parsed_approvals =
        read.map_err(StateFault::from).and_then(|()| approvals.map(|text| parsed(&text)).transpose());
    match parsed_approvals {
        Ok(value) => state.approvals = value.map(|value| document(path, value)),
        Err(fault) => state.problem(path, fault),
    }

    let (mut jobs, mut broken) = (Vec::new(), Vec::new());
    let read = database.rows(
        rows("cron_jobs", &["job_id", "enabled", "job_json"], &["store_key", "job_id"]),
        &mut |row| {
            let id = text(row.first()).unwrap_or_default();
            match text(row.get(2)).and_then(|text| serde_json::from_str(&text).ok()) {
                Some(Value::Object(mut job)) => {
                    job.insert("id".to_owned(), id.into());
                    match row.get(1) {
                        Some(ForeignValue::Null) | None => {}
                        Some(enabled) if enabled.integer() == Some(0) => {
                            job.insert("enabled".to_owned(), false.into());
                        }
                        Some(enabled) if enabled.integer().is_none() => {
                            // Neither, which the reader of jobs is told.
                            job.insert("enabled".to_owned(), "unreadable".into());
                        }
                        Some(_) => {}
                    }
                    jobs.push(Value::Object(job));
                }
                _ => broken.push(id),
            }
            true
        },
    );
    if let Err(error) = read {
        state.problem(path, error);
    }
    for row in broken.into_iter().take(NAMED) {
        state.problem(path, StateFault::Row { table: "cron_jobs", row });
    }
    if !jobs.is_empty() {
        state.jobs = Some(document(path, json!({ "jobs": jobs })));
    }

    let mut profiles = None;
    let read = database.rows(
        rows("config_machine_state", &["state_key", "value_json"], &["state_key"]),
        &mut |row| {
            let key = text(row.first()).unwrap_or_default();
            if key.contains("auth") && key.contains("profile") {
                let value = text(row.get(1)).and_then(|text| serde_json::from_str::<Value>(&text).ok());
                profiles = value.filter(|value| value.get("profiles").is_some_and(Value::is_object));
            }
            profiles.is_none()
        },
    );
    match read {
        Ok(()) => state.shared_profiles = profiles.map(|value| document(path, value)),
        Err(error) => state.problem(path, error),
    }
}

/// What is read of the database of an agent.
struct AgentWork<'a> {
    state: &'a mut StateDirectory,
    database: &'a ForeignDatabase,
    path: &'a Path,
    /// Where its transcripts are written.
    out: PathBuf,
    /// Bytes that they may still have together.
    left: u64,
    unreadable: usize,
    /// The files, by their names.
    written: BTreeMap<String, PathBuf>,
}

/// A transcript that is being written.
struct Transcript {
    session: String,
    path: PathBuf,
    file: BufWriter<File>,
}

impl AgentWork<'_> {
    fn row(&mut self, table: &'static str, row: String) {
        self.unreadable += 1;
        if self.unreadable <= NAMED {
            self.state.problem(self.path, StateFault::Row { table, row });
        }
    }

    /// The first row of a table that holds one document.
    fn document(&mut self, table: &'static str, key: &str, value: &str) -> Option<StateDocument> {
        let mut found = None;
        let columns = [key, value];
        let rows = ForeignRows { table, columns: &columns, only: None, order: &[key], most: Some(1) };
        let read = self.database.rows(rows, &mut |row| {
            found = text(row.get(1));
            false
        });
        match read.map_err(StateFault::from).and_then(|()| found.map(|text| parsed(&text)).transpose()) {
            Ok(value) => value.map(|value| document(self.path, value)),
            Err(fault) => {
                self.state.problem(self.path, fault);
                None
            }
        }
    }

    /// Which session each conversation has, as `sessions.json` says it.
    fn index(&mut self) -> Option<StateDocument> {
        let (mut index, mut broken) = (Map::new(), Vec::new());
        let rows = ForeignRows {
            table: "session_nodes",
            columns: &["session_key", "current_session_id", "entry_json", "updated_at"],
            only: None,
            order: &["session_key"],
            most: None,
        };
        let read = self.database.rows(rows, &mut |row| {
            let (Some(key), Some(session)) = (text(row.first()), text(row.get(1))) else {
                broken.push(String::new());
                return true;
            };
            let entry = text(row.get(2)).and_then(|text| serde_json::from_str(&text).ok());
            let Some(Value::Object(mut entry)) = entry else {
                broken.push(key);
                return true;
            };
            entry.remove("sessionFile");
            entry.insert("sessionId".to_owned(), session.into());
            if let Some(updated) = row.get(3).and_then(ForeignValue::integer) {
                entry.entry("updatedAt").or_insert(updated.into());
            }
            index.insert(key, Value::Object(entry));
            true
        });
        if let Err(error) = read {
            self.state.problem(self.path, error);
        }
        for row in broken {
            self.row("session_nodes", row);
        }
        if index.is_empty() {
            return None;
        }
        let found = document(self.path, Value::Object(index));
        // Names of sessions are read from beside their files.
        if let Err(error) = self.made().and_then(|()| self.put_index(&found.value)) {
            self.state.problem(&self.out.clone(), error);
        }
        Some(found)
    }

    fn made(&self) -> io::Result<()> {
        fs::create_dir_all(&self.out)
    }

    fn put_index(&self, index: &Value) -> io::Result<()> {
        private(&self.out.join("sessions.json"))?.write_all(index.to_string().as_bytes())
    }

    fn transcripts(&mut self) {
        let mut known = HashSet::new();
        if let Err(error) = self.made().and_then(|()| self.events(&mut known)) {
            self.state.problem(self.path, error);
        }
        if let Err(error) = self.archives() {
            self.state.problem(self.path, error);
        }
        if let Err(error) = self.cold(&known) {
            self.state.problem(self.path, error);
        }
    }

    /// Sessions whose events are rows.
    fn events(&mut self, known: &mut HashSet<String>) -> io::Result<()> {
        const TABLE: &str = "transcript_events";
        let rows = ForeignRows {
            table: TABLE,
            columns: &["session_id", "seq", "event_json", "event_zstd", "created_at"],
            only: None,
            order: &["session_id", "seq"],
            most: None,
        };
        let database = self.database;
        database.walk(rows, |cursor| -> io::Result<()> {
            let mut open: Option<Transcript> = None;
            while let Some(row) = cursor.read()? {
                let id = text(row.first()).unwrap_or_default();
                let seq = row.get(1).and_then(ForeignValue::integer).unwrap_or_default();
                let packed = match row.get(3) {
                    Some(ForeignValue::Blob(bytes)) => unpacked(bytes, EVENT),
                    _ => None,
                };
                let event = text(row.get(2)).or_else(|| String::from_utf8(packed?).ok());
                let Some(event) = event.filter(|event| !event.contains(['\n', '\r'])) else {
                    self.row(TABLE, format!("{id} {seq}"));
                    continue;
                };
                if open.as_ref().is_none_or(|open| open.session != id) {
                    self.close(open.take())?;
                    let created = row.get(4).and_then(ForeignValue::integer).unwrap_or_default();
                    open = self.begin(&id, &event, created)?;
                    known.insert(id.clone());
                }
                if let Some(open) = &mut open {
                    self.write(&mut open.file, event.as_bytes())?;
                    self.write(&mut open.file, b"\n")?;
                }
            }
            self.close(open)
        })?
    }

    fn begin(&mut self, id: &str, first: &str, created: i64) -> io::Result<Option<Transcript>> {
        let Some(name) = file_name(&format!("{id}.jsonl")) else {
            self.row("transcript_events", id.to_owned());
            return Ok(None);
        };
        let path = self.out.join(&name);
        let mut file = BufWriter::new(private(&path)?);
        let is_header = Members::of(first.trim()).and_then(|members| members.string("type"));
        if is_header.as_deref() != Some("session") {
            let time = jiff::Timestamp::from_millisecond(created).unwrap_or_default();
            let header = json!({ "type": "session", "version": 3, "id": id, "timestamp": format!("{time:.3}"), "cwd": "" });
            self.write(&mut file, format!("{header}\n").as_bytes())?;
        }
        Ok(Some(Transcript { session: id.to_owned(), path, file }))
    }

    fn close(&mut self, transcript: Option<Transcript>) -> io::Result<()> {
        let Some(Transcript { path, mut file, .. }) = transcript else { return Ok(()) };
        file.flush()?;
        if let Some(name) = path.file_name().and_then(|name| name.to_str()) {
            self.written.insert(name.to_owned(), path.clone());
        }
        Ok(())
    }

    fn write(&mut self, file: &mut BufWriter<File>, bytes: &[u8]) -> io::Result<()> {
        let size = bytes.len() as u64;
        self.left = self.left.checked_sub(size).ok_or_else(|| {
            io::Error::other(format!("its transcripts are more than {RATIO} times larger than the database"))
        })?;
        file.write_all(bytes)
    }

    /// Sessions that were reset or deleted.
    fn archives(&mut self) -> io::Result<()> {
        const TABLE: &str = "session_transcript_archives";
        let rows = ForeignRows {
            table: TABLE,
            columns: &["archive_name", "encoding", "archive_blob"],
            only: None,
            order: &["session_id", "generation"],
            most: None,
        };
        let database = self.database;
        database.walk(rows, |cursor| -> io::Result<()> {
            while let Some(row) = cursor.read()? {
                let name = text(row.first()).unwrap_or_default();
                let blob = match row.get(2) {
                    Some(ForeignValue::Blob(bytes) | ForeignValue::Text(bytes)) => *bytes,
                    _ => &[],
                };
                let content = match text(row.get(1)).as_deref() {
                    Some("identity") => Some(blob.to_vec()),
                    Some("zstd") => unpacked(blob, TRANSCRIPT.min(self.left)),
                    _ => None,
                };
                let plain = name.strip_suffix(".zst").unwrap_or(&name);
                let name_of_file = file_name(plain).filter(|name| super::super::is_session(Path::new(name)));
                // Two cannot have one name, nor one that has its events in rows.
                match (content, name_of_file.filter(|name| !self.written.contains_key(name))) {
                    (Some(content), Some(name)) => self.whole(&name, &content)?,
                    _ => self.row(TABLE, name),
                }
            }
            Ok(())
        })?
    }

    /// Sessions that nobody used for long, whose events are packed together.
    fn cold(&mut self, known: &HashSet<String>) -> io::Result<()> {
        const TABLE: &str = "session_transcript_cold_archives";
        let rows = ForeignRows {
            table: TABLE,
            columns: &["session_id", "storage", "archive_blob"],
            only: None,
            order: &["session_id"],
            most: None,
        };
        let database = self.database;
        database.walk(rows, |cursor| -> io::Result<()> {
            while let Some(row) = cursor.read()? {
                let id = text(row.first()).unwrap_or_default();
                if known.contains(&id) {
                    continue;
                }
                let content = match row.get(2) {
                    Some(ForeignValue::Blob(bytes)) => unpacked(bytes, TRANSCRIPT.min(self.left)),
                    // Its file is not looked for.
                    _ => None,
                };
                match (content, file_name(&format!("{id}.jsonl"))) {
                    (Some(content), Some(name)) => self.whole(&name, &content)?,
                    _ => self.row(TABLE, id),
                }
            }
            Ok(())
        })?
    }

    fn whole(&mut self, name: &str, content: &[u8]) -> io::Result<()> {
        let path = self.out.join(name);
        let mut file = BufWriter::new(private(&path)?);
        self.write(&mut file, content)?;
        self.close(Some(Transcript { session: String::new(), path, file }))
    }
}

/// A new file that only its owner reads.
fn private(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).mode(0o600).open(path)
}

/// A name that is that of a file and of no other place.
fn file_name(name: &str) -> Option<String> {
    let fits = |letter: char| !letter.is_control() && !matches!(letter, '/' | '\\');
    (name.len() <= 255 && !name.starts_with('.') && name.chars().all(fits)).then(|| name.to_owned())
}

/// What was packed, where it is whole and within the limit.
fn unpacked(bytes: &[u8], limit: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    StreamingDecoder::new(bytes).ok()?.take(limit + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= limit).then_some(content)
}
