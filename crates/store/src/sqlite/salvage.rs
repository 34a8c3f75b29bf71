//! A damaged store: what can be read is carried over into a new one, and the damaged file is moved aside.
//!
//! Rows are known by their shape and proved by their hashes, so neither the file's header nor its schema is needed.
//! Nothing is written to the damaged file and nothing of it is removed; until the new store is complete, nothing
//! has changed.

use crate::error::system_error;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use quipu_dag::{Blob, Node, NodeRecord, Verdict};
use quipu_protocol::{BlobId, ChunkId, NodeId};
use rusqlite::{Connection, params, params_from_iter};

use super::chunks::{self, RecentChunks};
use super::connect::{self, Patience};
use super::failure::{Failure, Outcome, Place};
use super::pages::{Pages, Row, Tally, Value};
use super::{INDEX_BATCH, check, commit, erase, erased, file, index, rows, schema};
use crate::{Report, StoreError};

/// What SQLite keeps beside a database. None may stay where the new store will be.
const COMPANIONS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// Names of refs that are told; the others are counted.
const TOLD: usize = 100;

/// What was carried over from a damaged store, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Salvage {
    /// Where the damaged file is now; its WAL stands beside it with `-wal` at the end.
    pub damaged: PathBuf,
    /// What is in the new store, and what is missing there (parents, parts).
    pub report: Report,
    /// Rows that could not be read, or are not what their ids say.
    pub skipped: u64,
    /// Nodes that are missing between others, by the numbers of their rows. How many are missing after the last
    /// that was found cannot be known.
    pub lost_nodes: u64,
    /// Refs that stand at an older node than they did, because the newer ones are lost: at most 100 names.
    pub moved_back: Vec<String>,
    /// Refs of which no node is left: at most 100 names.
    pub lost_refs: Vec<String>,
    /// Whether waiting inputs and open steps could not be read, or not all of them.
    pub lost_open: bool,
    /// Whether there was a WAL and none of it could be read: then the last steps may be missing.
    pub lost_wal: bool,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Corrupt(format!("it cannot be read: {error}"))
    }
}

/// Carries over what can be read of the damaged store at `path` into a new store, puts that in its place, and moves
/// the damaged file aside as `<path>.damaged.<ms>`. Blobs, nodes and chunks are carried over if their ids are the
/// hashes of what they hold (those of other programs also if that cannot be checked), refs if they stand at a node
/// that was. Never removes or changes anything of the damaged file. Blocks; needs room for the new store. This
/// process must not have the store open: its locks would be lost.
///
/// # Errors
/// `Busy` while another process has the store open; `NotAStore` when no node is found in it, `NewerVersion`,
/// `Symlink`, `NotOwner`; `Full`, `ReadOnly`, `Io` when the new store cannot be written. Nothing has changed then.
pub fn salvage(path: &Path) -> Result<Salvage, StoreError> {
    let path = file::prepare(path, false)?;
    let place = Place { identity: file::identity(&path), path, busy: Duration::ZERO };
    let source = File::options()
        .read(true)
        .write(true)
        .open(&place.path)
        .map_err(|error| system_error(&place.path, "open", &error))?;
    // Until it is closed, at the end.
    lock(&source, &place)?;
    let mut now = rows::now();
    let aside = loop {
        let aside = file::sibling_path(&place.path, &format!(".damaged.{now}"));
        if fs::symlink_metadata(&aside).is_err() {
            break aside;
        }
        now += 1;
    };
    let new = Place {
        path: file::sibling_path(&place.path, &format!(".repaired.{now}")),
        busy: Duration::ZERO,
        identity: None,
    };
    file::create_private(&new.path).map_err(|error| system_error(&new.path, "create", &error))?;
    let made = carry_over(&source, &place, &new, now)
        .map_err(|failure| match failure {
            // What is unreadable here is the old file.
            Failure::Corrupt(_) => place.error("read", failure),
            failure => new.error("write", failure),
        })
        .and_then(|mut salvage| {
            exchange(&place.path, &new.path, &aside)?;
            salvage.damaged = aside;
            Ok(salvage)
        });
    if made.is_err() {
        // Ours, and of no use.
        for suffix in ["", "-wal", "-shm", "-journal"] {
            fs::remove_file(file::sibling_path(&new.path, suffix)).ok();
        }
    }
    made
}

/// Takes the lock that each process which has the store open holds a part of.
fn lock(source: &File, place: &Place) -> Result<(), StoreError> {
    let bytes = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0x4000_0000,
        l_len: 512,
        l_pid: 0,
    };
    match fcntl(source, FcntlArg::F_SETLK(&bytes)) {
        Ok(_) => Ok(()),
        Err(nix::errno::Errno::EACCES | nix::errno::Errno::EAGAIN) => {
            Err(StoreError::Busy { path: place.path.clone(), waited: Duration::ZERO })
        }
        Err(error) => Err(system_error(&place.path, "lock", &error.into())),
    }
}

/// Puts `new` in the place of `path` and `path` aside. What happened is undone when it cannot be completed.
fn exchange(path: &Path, new: &Path, aside: &Path) -> Result<(), StoreError> {
    let mut moved = Vec::new();
    let mut linked = false;
    let done = (|| {
        for suffix in COMPANIONS {
            let (from, to) = (file::sibling_path(path, suffix), file::sibling_path(aside, suffix));
            match fs::rename(&from, &to) {
                Ok(()) => moved.push((from, to)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(system_error(&from, "move", &error)),
            }
        }
        // With two names, it is never without one.
        linked = fs::hard_link(path, aside).is_ok();
        if !linked {
            fs::rename(path, aside).map_err(|error| system_error(path, "move", &error))?;
            moved.push((path.to_owned(), aside.to_owned()));
        }
        path.parent().map_or(Ok(()), file::sync_directory)?;
        fs::rename(new, path).map_err(|error| system_error(new, "move", &error))
    })();
    match done {
        Ok(()) => {
            // Without it, a loss of power can bring the damaged file back under its name: then it is done again.
            path.parent().map(file::sync_directory);
            Ok(())
        }
        Err(error) => {
            // The error that stopped us is the one to tell.
            for (from, to) in moved {
                fs::rename(to, from).ok();
            }
            if linked {
                // The second name only; the file has its own.
                fs::remove_file(aside).ok();
            }
            Err(error)
        }
    }
}

fn carry_over(source: &File, place: &Place, new: &Place, now: i64) -> Outcome<Salvage> {
    let wal = match File::open(file::sibling_path(&place.path, "-wal")) {
        Ok(wal) => Some(wal),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.into()),
    };
    let connection = connect::read_write(&new.path, &Patience::new(new.busy))?;
    connection.execute_batch("PRAGMA synchronous = EXTRA")?;
    schema::bring_up_to_date(&connection, &new.path, &Patience::new(new.busy))?;
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let mut pages = Pages::open(source, wal.as_ref(), None)?;
    let mut found = SalvagedRows::default();
    gather(&connection, place, &mut pages, &mut found)?;
    if found.nodes.is_empty() && pages.size() != 4096 {
        // The header lies about the size of pages.
        pages = Pages::open(source, wal.as_ref(), Some(4096))?;
        gather(&connection, place, &mut pages, &mut found)?;
    }
    for (key, values) in std::mem::take(&mut found.others) {
        if erased::is_erased_node(&connection, &key.1)? {
            found.nodes.insert(key, values);
        } else {
            found.skipped += 1;
        }
    }
    if found.nodes.is_empty() {
        let what =
            "it contains no readable nodes, so there is nothing to recover; it was not changed".to_owned();
        return Err(StoreError::NotAStore { path: place.path.clone(), what }.into());
    }
    let mut salvage =
        Salvage { skipped: found.skipped, lost_wal: pages.wal_unreadable, ..Salvage::default() };
    salvage.lost_nodes = insert_nodes(&connection, &mut found)?;
    let roots = roots(&mut pages)?;
    place_refs(&connection, &mut pages, &roots, &mut found, &mut salvage)?;
    salvage.lost_open = !open_work(&connection, &mut pages, &roots, &mut salvage.skipped)?;
    salvage.skipped += drop_damaged_chunks(&connection)?;
    // Pages that were free may have given back what was erased.
    erase::again(&connection)?;
    connection.execute(
        "INSERT OR REPLACE INTO quipu_meta (key, value) VALUES ('salvaged', ?1)",
        [now.to_string()],
    )?;
    while index::advance(&connection, INDEX_BATCH)? {}
    connection.execute_batch("COMMIT")?;
    salvage.report = check::check(&connection, new)?;
    connection.close().map_err(|(_, error)| error)?;
    Ok(salvage)
}

/// What a pass over the file collects, beside what goes straight into the new store.
#[derive(Default)]
struct SalvagedRows {
    /// By the numbers of their rows: in the order in which they were written.
    nodes: BTreeMap<(i64, NodeId), Vec<Value>>,
    /// Those that are not what their ids say.
    others: BTreeMap<(i64, NodeId), Vec<Value>>,
    /// Rows of `refs`, those that were overwritten too.
    refs: Vec<(String, NodeId)>,
    /// Where refs went, by name and number.
    moves: HashMap<String, BTreeMap<i64, Option<NodeId>>>,
    skipped: u64,
}

/// Reads every row in the file.
fn gather(
    connection: &Connection,
    place: &Place,
    pages: &mut Pages<'_>,
    found: &mut SalvagedRows,
) -> Outcome<()> {
    let mut tally = Tally::default();
    pages.scan(&mut tally, |row| take(connection, place, row, found))?;
    found.skipped += tally.broken + tally.pages;
    Ok(())
}

fn is_text_or_null(value: &Value) -> bool {
    matches!(value, Value::Text(_) | Value::Null)
}

/// Takes a row for what its shape says.
fn take(connection: &Connection, place: &Place, row: Row, found: &mut SalvagedRows) -> Outcome<()> {
    let Row { rowid, values } = row;
    let kept = match values.as_slice() {
        [
            Value::Text(id),
            parent,
            Value::Text(_),
            Value::Text(_),
            Value::Integer(_) | Value::Real(_),
            rest @ ..,
        ] if rest.len() <= 4 && is_text_or_null(parent) && rest.iter().all(is_text_or_null) => {
            match id.parse() {
                Ok(id) if fits(id, &values) => drop(found.nodes.insert((rowid, id), values)),
                // One that was erased says something else than it did.
                Ok(id) => drop(found.others.insert((rowid, id), values)),
                Err(_) => found.skipped += 1,
            }
            true
        }
        [Value::Text(hash), Value::Text(kind), Value::Text(content)]
        | [Value::Text(hash), Value::Text(kind), Value::Text(content), Value::Text(_) | Value::Null] => {
            let kept = match hash.parse::<BlobId>() {
                Ok(id) => {
                    let blob = Blob { id, kind: kind.clone(), content: content.clone() };
                    !matches!(blob.verify(), Verdict::Corrupt(_)) || erase::is_left(&blob)
                }
                Err(_) => kind == "playtiss",
            };
            if kept {
                connection
                    .prepare_cached(
                        "INSERT OR IGNORE INTO blobs (hash, type, content, thought_signature) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![hash, kind, content, values.get(3).and_then(text)])?;
            }
            kept
        }
        [Value::Text(name), Value::Text(node)] => {
            if let Ok(node) = node.parse() {
                found.refs.push((name.clone(), node));
            } else if let ("format", Ok(version)) = (name.as_str(), node.parse())
                && version > schema::FORMAT
            {
                let path = place.path.clone();
                return Err(StoreError::NewerVersion { path, found: version, known: schema::FORMAT }.into());
            }
            true
        }
        [Value::Blob(hash), Value::Integer(codec), Value::Integer(size), Value::Blob(bytes)] => {
            let kept = hash.len() == 32 && *size >= 0;
            if kept {
                connection
                    .prepare_cached(
                        "INSERT OR IGNORE INTO quipu_chunk (hash, codec, size, bytes) VALUES (?1, ?2, ?3, ?4)",
                    )?
                    .execute(params![hash, codec, size, bytes])?;
            }
            kept
        }
        [Value::Blob(hash), Value::Integer(kind), Value::Integer(at), Value::Text(why)] => {
            connection
                .prepare_cached(
                    "INSERT OR IGNORE INTO quipu_erased (hash, kind, at, why) VALUES (?1, ?2, ?3, ?4)",
                )?
                .execute(params![hash, kind, at, why])?;
            true
        }
        [
            Value::Null,
            Value::Integer(_),
            Value::Text(_),
            Value::Text(_) | Value::Null,
            Value::Text(_) | Value::Null,
            Value::Text(_) | Value::Null,
        ] => {
            let (time, texts) = (number(&values[1]), values[2..].iter().map(text).collect::<Vec<_>>());
            connection
                .prepare_cached("INSERT OR IGNORE INTO action_log VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                .execute(params![rowid, time, texts[0], texts[1], texts[2], texts[3]])?;
            true
        }
        [
            Value::Null,
            Value::Text(name),
            old @ (Value::Blob(_) | Value::Null),
            to @ (Value::Blob(_) | Value::Null),
            Value::Integer(at),
            Value::Text(writer),
            Value::Text(why),
        ] => {
            found.moves.entry(name.clone()).or_default().insert(rowid, node_id(to));
            connection
                .prepare_cached("INSERT OR IGNORE INTO quipu_reflog VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
                .execute(params![rowid, name, bytes(old), bytes(to), at, writer, why])?;
            true
        }
        // The schema, what is derived and will be made anew, and what is read in its place later.
        _ => true,
    };
    found.skipped += u64::from(!kept);
    Ok(())
}

fn text(value: &Value) -> Option<&str> {
    if let Value::Text(text) = value { Some(text) } else { None }
}

fn bytes(value: &Value) -> Option<&[u8]> {
    if let Value::Blob(bytes) = value { Some(bytes) } else { None }
}

fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        #[expect(clippy::cast_possible_truncation, reason = "saturates, which is what is wanted")]
        Value::Real(number) => *number as i64,
        Value::Null | Value::Text(_) | Value::Blob(_) => 0,
    }
}

fn node_id(value: &Value) -> Option<NodeId> {
    bytes(value).and_then(|bytes| bytes.try_into().ok()).map(NodeId)
}

/// Whether a row of `nodes` is what its id says, as far as that can be known.
fn fits(id: NodeId, values: &[Value]) -> bool {
    let column = |at| values.get(at).and_then(text);
    let record = NodeRecord {
        parent: column(1).and_then(|text| text.parse().ok()),
        role: column(2).unwrap_or_default().to_owned(),
        parts: column(3).map(rows::parts).unwrap_or_default(),
        timestamp: values.get(4).map_or(0, number),
        external_id: column(8).map(str::to_owned),
        system_prompt: column(7).and_then(|text| text.parse().ok()),
    };
    let node = Node { id, record, config: None, thought_signatures: None };
    !matches!(node.verify(), Verdict::Corrupt(_))
}

/// Writes the nodes with the numbers that they had; says how many are missing between them.
fn insert_nodes(connection: &Connection, found: &mut SalvagedRows) -> Outcome<u64> {
    let columns = "id, parent_id, role, parts_list, timestamp, config_json, thought_signatures, \
                   system_prompt_hash, external_id";
    let mut insert = connection.prepare(&format!(
        "INSERT OR IGNORE INTO nodes (rowid, {columns}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
    ))?;
    let mut again = connection.prepare(&format!(
        "INSERT OR IGNORE INTO nodes ({columns}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)"
    ))?;
    let mut last: Option<i64> = None;
    let mut lost: u64 = 0;
    let mut rest = Vec::new();
    for ((rowid, _), mut values) in std::mem::take(&mut found.nodes) {
        values.resize(9, Value::Null);
        let stored: Vec<rusqlite::types::Value> = values.into_iter().map(stored).collect();
        let numbered = std::iter::once(rusqlite::types::Value::Integer(rowid)).chain(stored.iter().cloned());
        if rowid < 1 || insert.execute(params_from_iter(numbered))? == 0 {
            // The number is taken, or the node is there.
            rest.push(stored);
            continue;
        }
        lost = lost.saturating_add(rowid.abs_diff(last.unwrap_or(0)) - 1);
        last = Some(rowid);
    }
    for stored in rest {
        again.execute(params_from_iter(stored))?;
    }
    Ok(lost)
}

fn stored(value: Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Stored;
    match value {
        Value::Null => Stored::Null,
        Value::Integer(number) => Stored::Integer(number),
        Value::Real(number) => Stored::Real(number),
        Value::Text(text) => Stored::Text(text),
        Value::Blob(bytes) => Stored::Blob(bytes),
    }
}

/// Where tables begin, as far as the schema can be read.
fn roots(pages: &mut Pages<'_>) -> Outcome<HashMap<String, u32>> {
    let mut roots = HashMap::new();
    pages.table(1, |row| {
        if let [Value::Text(kind), Value::Text(name), _, Value::Integer(root), ..] = row.values.as_slice()
            && kind == "table"
            && let Ok(root) = u32::try_from(*root)
        {
            roots.insert(name.clone(), root);
        }
        Ok::<(), Failure>(())
    })?;
    Ok(roots)
}

/// Puts refs where they stood or, where that node is lost, where they stood before.
fn place_refs(
    connection: &Connection,
    pages: &mut Pages<'_>,
    roots: &HashMap<String, u32>,
    found: &mut SalvagedRows,
    salvage: &mut Salvage,
) -> Outcome<()> {
    let mut live: HashMap<String, NodeId> = HashMap::new();
    let mut whole = false;
    if let Some(root) = roots.get("refs") {
        whole = pages.table(*root, |row| {
            if let [Value::Text(name), Value::Text(node)] = row.values.as_slice()
                && let Ok(node) = node.parse()
            {
                live.insert(name.clone(), node);
            }
            Ok::<(), Failure>(())
        })?;
    }
    let mut names: Vec<String> = live.keys().cloned().collect();
    if !whole {
        names.extend(found.refs.iter().map(|(name, _)| name.clone()));
        names.extend(found.moves.keys().cloned());
        names.sort_unstable();
        names.dedup();
    }
    names.sort_unstable();
    let mut row_of = connection.prepare("SELECT rowid FROM nodes WHERE id = ?1")?;
    let mut place = connection.prepare("INSERT INTO refs (name, node_id) VALUES (?1, ?2)")?;
    for name in names {
        let moves = found.moves.get(&name);
        let newest = moves.and_then(BTreeMap::last_key_value).map(|(_, to)| *to);
        if !live.contains_key(&name) && newest == Some(None) {
            // It was removed.
            continue;
        }
        let wanted = live.get(&name).copied().or(newest.flatten());
        let earlier = moves.into_iter().flat_map(|moves| moves.values().rev().copied().flatten());
        // Of rows that were overwritten: the one whose node was written last.
        let mut others = Vec::new();
        for (_, node) in found.refs.iter().filter(|(other, _)| *other == name) {
            let mut rows = row_of.query([node.to_string()])?;
            if let Some(row) = rows.next()? {
                others.push((row.get::<_, i64>(0)?, *node));
            }
        }
        others.sort_unstable_by_key(|(row, _)| std::cmp::Reverse(*row));
        let mut at = None;
        for node in wanted.into_iter().chain(earlier).chain(others.into_iter().map(|(_, node)| node)) {
            if row_of.exists([node.to_string()])? {
                at = Some(node);
                break;
            }
        }
        let told = match at {
            Some(node) => {
                place.execute([&name, &node.to_string()])?;
                (wanted != Some(node)).then_some(&mut salvage.moved_back)
            }
            None => Some(&mut salvage.lost_refs),
        };
        if let Some(list) = told.filter(|list| list.len() < TOLD) {
            list.push(name);
        }
    }
    Ok(())
}

/// Waiting inputs and open steps. Rows of these leave, so only those that still belong to their tables count: a
/// step that was finished must not come back. Says whether all could be read.
fn open_work(
    connection: &Connection,
    pages: &mut Pages<'_>,
    roots: &HashMap<String, u32>,
    skipped: &mut u64,
) -> Outcome<bool> {
    let (Some(inbox), Some(step)) = (roots.get("quipu_inbox"), roots.get("quipu_step")) else {
        return Ok(false);
    };
    let inbox = pages.table(*inbox, |row| {
        match row.values.as_slice() {
            [Value::Null, Value::Text(session), Value::Text(name), Value::Text(queue), Value::Text(item)]
                if serde_json::from_str::<&serde_json::value::RawValue>(item).is_ok() =>
            {
                connection
                    .prepare_cached("INSERT OR IGNORE INTO quipu_inbox VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![row.rowid, session, name, queue, item])?;
            }
            _ => *skipped += 1,
        }
        Ok::<(), Failure>(())
    })?;
    let step = pages.table(*step, |row| {
        match row.values.as_slice() {
            [
                Value::Text(session),
                Value::Text(run),
                Value::Text(call),
                Value::Text(state),
                result @ (Value::Blob(_) | Value::Null),
            ] if commit::read_call(call).is_some() && commit::read_state(state).is_some() => {
                connection
                    .prepare_cached("INSERT OR IGNORE INTO quipu_step VALUES (?1, ?2, ?3, ?4, ?5)")?
                    .execute(params![session, run, call, state, bytes(result)])?;
            }
            _ => *skipped += 1,
        }
        Ok::<(), Failure>(())
    })?;
    // Stores of older versions have none.
    let jump = match roots.get("quipu_jump") {
        None => true,
        Some(jump) => pages.table(*jump, |row| {
            match row.values.as_slice() {
                [Value::Text(session), Value::Text(stage), Value::Text(plan)]
                    if serde_json::from_str::<&serde_json::value::RawValue>(plan).is_ok() =>
                {
                    connection
                        .prepare_cached("INSERT OR IGNORE INTO quipu_jump VALUES (?1, ?2, ?3)")?
                        .execute([session, stage, plan])?;
                }
                _ => *skipped += 1,
            }
            Ok::<(), Failure>(())
        })?,
    };
    let jobs = jobs(connection, pages, roots, skipped)?;
    Ok(inbox && step && jump && jobs && dreams(connection, pages, roots, skipped)?)
}

/// What dreams keep; most stores have none.
fn dreams(
    connection: &Connection,
    pages: &mut Pages<'_>,
    roots: &HashMap<String, u32>,
    skipped: &mut u64,
) -> Outcome<bool> {
    let mut complete = true;
    for (table, statement) in super::dreams::CARRY_OVER {
        let Some(root) = roots.get(table) else { continue };
        super::dreams::create(connection)?;
        complete &= pages.table(*root, |row| {
            let (text, at) = match row.values.as_slice() {
                [Value::Text(memory), Value::Text(key), Value::Integer(at), Value::Text(json)] => {
                    (vec![memory, key, json], at)
                }
                [Value::Text(memory), Value::Integer(at), Value::Text(json)] => (vec![memory, json], at),
                _ => {
                    *skipped += 1;
                    return Ok(());
                }
            };
            if text
                .last()
                .is_some_and(|json| serde_json::from_str::<&serde_json::value::RawValue>(json).is_ok())
            {
                let mut statement = connection.prepare_cached(statement)?;
                for (place, text) in text.iter().enumerate() {
                    statement.raw_bind_parameter(place + 2, text)?;
                }
                statement.raw_bind_parameter(1, at)?;
                statement.raw_execute()?;
            } else {
                *skipped += 1;
            }
            Ok::<(), Failure>(())
        })?;
    }
    Ok(complete)
}

/// Jobs, each as if it waited: who runs one has another file.
fn jobs(
    connection: &Connection,
    pages: &mut Pages<'_>,
    roots: &HashMap<String, u32>,
    skipped: &mut u64,
) -> Outcome<bool> {
    // Stores of older versions have none.
    let Some(root) = roots.get("quipu_job") else { return Ok(true) };
    pages.table(*root, |row| {
        match row.values.as_slice() {
            [
                Value::Text(key),
                Value::Text(kind),
                Value::Text(state),
                Value::Integer(due),
                Value::Integer(next),
                span @ (Value::Integer(_) | Value::Null),
                Value::Integer(_),
                Value::Integer(attempts),
                Value::Integer(limit),
                _,
                error @ (Value::Text(_) | Value::Null),
                Value::Text(payload),
            ] => {
                let state = if state == "failed" || state == "paused" { state.as_str() } else { "waiting" };
                let span = matches!(span, Value::Integer(_)).then(|| number(span));
                connection
                    .prepare_cached(
                        "INSERT OR IGNORE INTO quipu_job (key, kind, state, due, next, span, fence, attempts, attempt_limit, \
                         error, payload) VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, ?7, ?8, ?9, ?10)",
                    )?
                    .execute(params![key, kind, state, due, next, span, attempts, limit, text(error), payload])?;
            }
            _ => *skipped += 1,
        }
        Ok::<(), Failure>(())
    })
}

/// Removes chunks that are not what their ids say, until none is left that stands on one of them.
fn drop_damaged_chunks(connection: &Connection) -> Outcome<u64> {
    let mut dropped = 0;
    loop {
        let ids: Vec<(i64, Vec<u8>)> = connection
            .prepare("SELECT rowid, hash FROM quipu_chunk ORDER BY rowid")?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect::<Result<_, _>>()?;
        let mut recent = RecentChunks::default();
        let mut damaged = Vec::new();
        for (row, hash) in ids {
            let Ok(id) = <[u8; 32]>::try_from(hash) else {
                damaged.push(row);
                continue;
            };
            match chunks::verify(connection, ChunkId(id), &mut recent) {
                Ok(()) | Err(Failure::Erased(_)) => {}
                Err(Failure::Corrupt(_) | Failure::Missing(_)) => damaged.push(row),
                Err(error @ (Failure::Sql(_) | Failure::Store(_))) => return Err(error),
            }
        }
        if damaged.is_empty() {
            return Ok(dropped);
        }
        dropped += damaged.len() as u64;
        for row in damaged {
            connection.execute("DELETE FROM quipu_chunk WHERE rowid = ?1", [row])?;
        }
    }
}
