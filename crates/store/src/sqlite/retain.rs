//! States of files are dropped, the oldest first, until what is left of them fits.
//!
//! What is to be dropped is found in reads, and dropped in short transactions, each of which looks again at what was written
//! since: another process may be at work. Chunks that are kept as the difference to one that goes are kept whole from then on.

use std::collections::{HashMap, HashSet};

use quipu_dag::Blob;
use quipu_protocol::{BlobId, ChunkId};
use quipu_transcript::files_of;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::{SqliteStore, chunks, file, rows};
use crate::{DroppedFiles, Durability, FileDropListener, FileDropProgress, StoreError};

/// Under which key of `quipu_meta` it stands what was dropped so far.
const MARK: &str = "files.dropped";
/// And when it was looked whether there is something to drop.
const LOOKED: &str = "files.looked";
/// Milliseconds.
const DAY: i64 = 24 * 60 * 60 * 1_000;
/// The type of the row of the action log.
const KIND: &str = "QUIPU_DROP_FILES";
/// States that one transaction drops.
const STEP: usize = 500;
/// Nodes and blobs that are read at once.
const PAGE: i64 = 1_000;
/// How often it is measured again: what stood on what was dropped takes more room than before.
const ROUNDS: usize = 8;

/// States of files, and what must stay of them.
#[derive(Default)]
struct States {
    /// The last node that names each, by its row.
    last: HashMap<ChunkId, i64>,
    /// Of each file in each session, the states of its last change.
    newest: HashMap<(i64, String), [Option<ChunkId>; 2]>,
    /// The last row that was read.
    upto: i64,
}

impl States {
    /// Reads the nodes that came since. What they need otherwise of what is known by then is added to `others`.
    fn advance(&mut self, connection: &Connection, mut others: Option<&mut HashSet<ChunkId>>) -> Outcome<()> {
        let mut statement = connection
            .prepare_cached("SELECT rowid, parts_list FROM nodes WHERE rowid > ?1 ORDER BY rowid LIMIT ?2")?;
        let mut session_of = connection.prepare_cached("SELECT session FROM quipu_x_node WHERE seq = ?1")?;
        loop {
            let page: Vec<(i64, String)> = statement
                .query_map(params![self.upto, PAGE], |row| {
                    Ok((row.get(0)?, rows::text(row, 1)?.unwrap_or_default().into_owned()))
                })?
                .collect::<Result<_, _>>()?;
            let Some((end, _)) = page.last() else { return Ok(()) };
            self.upto = *end;
            for (seq, parts) in page {
                let Some(last) = rows::parts(&parts).pop() else { continue };
                let Some(blob) = rows::find_blob(connection, &last)? else { continue };
                if let Some(others) = &mut others {
                    needed_by(&blob, &self.last, others);
                }
                let files = files_of(&blob);
                if files.is_empty() {
                    continue;
                }
                let session: Option<i64> =
                    session_of.query_row([seq], |row| row.get(0)).optional()?.flatten();
                for change in files {
                    let states = [change.before.content(), change.after.content()];
                    self.last.extend(states.iter().flatten().map(|state| (*state, seq)));
                    self.newest.insert((session.unwrap_or(0), change.path), states);
                }
            }
        }
    }

    /// Those that may be dropped, the oldest first.
    fn droppable(&self, others: &HashSet<ChunkId>) -> Vec<ChunkId> {
        let newest: HashSet<ChunkId> = self.newest.values().flatten().flatten().copied().collect();
        let mut found: Vec<(i64, ChunkId)> = self
            .last
            .iter()
            .filter(|(id, _)| !newest.contains(id) && !others.contains(id))
            .map(|(id, seq)| (*seq, *id))
            .collect();
        found.sort_unstable_by_key(|(seq, id)| (*seq, id.0));
        found.into_iter().map(|(_, id)| id).collect()
    }
}

/// How a state is kept.
#[derive(Debug, Clone, Copy)]
struct StoredState {
    /// Bytes that it takes.
    bytes: u64,
    /// Its own bytes.
    size: u64,
    /// What it is the difference to.
    base: Option<ChunkId>,
}

/// How these are kept, as far as they are.
fn measure(
    connection: &Connection,
    states: &HashMap<ChunkId, i64>,
) -> Outcome<HashMap<ChunkId, StoredState>> {
    let mut found = HashMap::new();
    for state in states.keys() {
        if let Some((bytes, size, base)) = chunks::kept(connection, state)? {
            found.insert(*state, StoredState { bytes, size, base });
        }
    }
    Ok(found)
}

fn total(kept: &HashMap<ChunkId, StoredState>) -> u64 {
    kept.values().map(|one| one.bytes).sum()
}

/// The first of these, in their order, after which no more than `most` bytes are left. What was kept as the difference to
/// one that goes takes more then.
fn first_of(droppable: Vec<ChunkId>, mut kept: HashMap<ChunkId, StoredState>, most: u64) -> Vec<ChunkId> {
    let mut above: HashMap<ChunkId, Vec<ChunkId>> = HashMap::new();
    for (id, one) in &kept {
        above.entry(one.base.unwrap_or(*id)).or_default().push(*id);
    }
    let (mut left, mut goes) = (total(&kept), Vec::new());
    for id in droppable {
        if left <= most {
            break;
        }
        let Some(one) = kept.remove(&id) else { continue };
        left = left.saturating_sub(one.bytes);
        for next in above.remove(&id).unwrap_or_default() {
            if let Some(next) = kept.get_mut(&next) {
                // They are much alike, so it shrinks as much.
                let whole = next.size.saturating_mul(one.bytes) / one.size.max(1);
                left = (left + whole).saturating_sub(next.bytes);
                (next.bytes, next.base) = (whole, None);
            }
        }
        goes.push(id);
    }
    goes
}

/// The chunks among these that a text names: 64 hexadecimal digits.
fn named_in(text: &str, states: &HashMap<ChunkId, i64>, found: &mut HashSet<ChunkId>) {
    for run in text.split(|c: char| !c.is_ascii_hexdigit()).filter(|run| run.len() == 64) {
        let id = run.parse::<BlobId>().map(|id| ChunkId(id.0));
        found.extend(id.ok().filter(|id| states.contains_key(id)));
    }
}

/// States that a part of ours names for something else than the files that its step changed.
fn needed_by(blob: &Blob, states: &HashMap<ChunkId, i64>, found: &mut HashSet<ChunkId>) {
    if blob.kind != "quipu" {
        return;
    }
    let mut part: serde_json::Value = serde_json::from_str(&blob.content).unwrap_or_default();
    if let Some(part) = part.as_object_mut() {
        part.remove("files");
        // The list of all hashes of a part does not say what they are for.
        part.remove("refs");
    }
    named_in(&part.to_string(), states, found);
}

/// States that something else needs as well: an image or a body with the same bytes, of a part of ours.
fn needed_otherwise(connection: &Connection, states: &HashMap<ChunkId, i64>) -> Outcome<HashSet<ChunkId>> {
    let mut found = HashSet::new();
    let mut statement = connection
        .prepare("SELECT rowid, type, content FROM blobs WHERE rowid > ?1 ORDER BY rowid LIMIT ?2")?;
    let mut last = 0;
    loop {
        let mut page = statement.query(params![last, PAGE])?;
        let before = last;
        while let Some(row) = page.next()? {
            last = row.get(0)?;
            let owned = |column| rows::text(row, column).map(|text| text.unwrap_or_default().into_owned());
            needed_by(&Blob { id: BlobId([0; 32]), kind: owned(1)?, content: owned(2)? }, states, &mut found);
        }
        if last == before {
            return Ok(found);
        }
    }
}

/// States that what is under way needs.
fn open(connection: &Connection, states: &HashMap<ChunkId, i64>) -> Outcome<HashSet<ChunkId>> {
    let mut found = HashSet::new();
    for query in ["SELECT plan FROM quipu_jump", "SELECT result FROM quipu_step WHERE result IS NOT NULL"] {
        let mut statement = connection.prepare_cached(query)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            named_in(&rows::text(row, 0)?.unwrap_or_default(), states, &mut found);
        }
    }
    Ok(found)
}

/// Drops some of these in one transaction. Gives how many there were, and their bytes.
fn drop_some(
    connection: &Connection,
    states: &mut States,
    others: &HashSet<ChunkId>,
    some: &[ChunkId],
    most: u64,
) -> Outcome<(u64, u64)> {
    let mut stays = others.clone();
    states.advance(connection, Some(&mut stays))?;
    stays.extend(open(connection, &states.last)?);
    let droppable: HashSet<ChunkId> = states.droppable(&stays).into_iter().collect();
    let some: HashSet<ChunkId> = some.iter().filter(|id| droppable.contains(id)).copied().collect();
    // Pieces of these that nothing else is made of go as well.
    let (pieces, of_others) = chunks::pieces(connection, &some)?;
    let unused =
        |id: &&ChunkId| !of_others.contains(id) && !states.last.contains_key(id) && !stays.contains(id);
    let pieces: HashSet<ChunkId> = pieces.iter().filter(unused).copied().collect();
    let all: HashSet<ChunkId> = some.union(&pieces).copied().collect();
    chunks::stand_alone(connection, &all)?;
    let (mut count, mut bytes) = (0, 0);
    for id in &some {
        if let Some(length) = chunks::remove(connection, id)? {
            (count, bytes) = (count + 1, bytes + length);
        }
    }
    for id in &pieces {
        bytes += chunks::remove(connection, id)?.unwrap_or(0);
    }
    if count > 0 {
        let before = dropped(connection)?;
        let all = DroppedFiles { states: before.states + count, bytes: before.bytes + bytes, left: 0 };
        connection.execute(
            "INSERT OR REPLACE INTO quipu_meta (key, value) VALUES (?1, ?2)",
            params![MARK, format!("{} {}", all.states, all.bytes)],
        )?;
        let metadata = serde_json::json!({ "states": count, "bytes": bytes, "most": most });
        connection.execute(
            "INSERT INTO action_log (timestamp, action_type, from_node, to_node, metadata) VALUES (?1, ?2, NULL, NULL, ?3)",
            params![rows::now(), KIND, metadata.to_string()],
        )?;
    }
    Ok((count, bytes))
}

/// What was dropped so far.
pub(super) fn dropped(connection: &Connection) -> Outcome<DroppedFiles> {
    let text: Option<String> = connection
        .query_row("SELECT value FROM quipu_meta WHERE key = ?1", [MARK], |row| row.get(0))
        .optional()?;
    let numbers: Vec<u64> =
        text.iter().flat_map(|text| text.split(' ')).filter_map(|number| number.parse().ok()).collect();
    Ok(match numbers.as_slice() {
        [states, bytes] => DroppedFiles { states: *states, bytes: *bytes, left: 0 },
        _ => DroppedFiles::default(),
    })
}

/// Notes that it is being done, unless it was within a day.
fn begin_day(connection: &Connection) -> Outcome<bool> {
    let last: Option<String> = connection
        .query_row("SELECT value FROM quipu_meta WHERE key = ?1", [LOOKED], |row| row.get(0))
        .optional()?;
    let now = rows::now();
    // A clock that was set back is no reason to wait.
    if last.and_then(|last| last.parse().ok()).is_some_and(|last: i64| (last..last + DAY).contains(&now)) {
        return Ok(false);
    }
    connection.execute(
        "INSERT OR REPLACE INTO quipu_meta (key, value) VALUES (?1, ?2)",
        params![LOOKED, now.to_string()],
    )?;
    Ok(true)
}

impl SqliteStore {
    pub(super) async fn drop_files_daily(
        &self,
        most: u64,
        tell: FileDropListener<'_>,
    ) -> Result<Option<DroppedFiles>, StoreError> {
        if self.is_read_only() || file::size(&self.place.path) <= most {
            return Ok(None);
        }
        if !self.work(Durability::Process, begin_day).await? {
            return Ok(None);
        }
        self.drop_files_beyond(most, tell).await.map(Some)
    }

    pub(super) async fn drop_files_beyond(
        &self,
        most: u64,
        tell: FileDropListener<'_>,
    ) -> Result<DroppedFiles, StoreError> {
        let mut done = DroppedFiles::default();
        for _ in 0..ROUNDS {
            // The sessions of nodes stand in derived tables.
            let read = move |connection: &Connection| {
                let mut states = States::default();
                states.advance(connection, None)?;
                let kept = measure(connection, &states.last)?;
                let mut others = HashSet::new();
                if total(&kept) > most {
                    others = needed_otherwise(connection, &states.last)?;
                    others.extend(open(connection, &states.last)?);
                }
                Ok((states, kept, others))
            };
            let (mut states, kept, others) = self.read_indexed(read).await?;
            done.left = total(&kept);
            let goes = first_of(states.droppable(&others), kept, most);
            if goes.is_empty() {
                return Ok(done);
            }
            let (mut some, of) = (0, done.states + goes.len() as u64);
            for step in goes.chunks(STEP) {
                tell(FileDropProgress { done: done.states, of });
                let (step, kept) = (step.to_vec(), others.clone());
                let mut mine = std::mem::take(&mut states);
                let work = move |connection: &Connection| {
                    let found = drop_some(connection, &mut mine, &kept, &step, most)?;
                    Ok((found, std::mem::take(&mut mine)))
                };
                let ((count, bytes), back) = self.work(Durability::Process, work).await?;
                states = back;
                (done.states, done.bytes, some) = (done.states + count, done.bytes + bytes, some + count);
            }
            tell(FileDropProgress { done: done.states, of: done.states });
            if some == 0 {
                return Ok(done);
            }
        }
        let read = |connection: &Connection| {
            let mut states = States::default();
            states.advance(connection, None)?;
            Ok(total(&measure(connection, &states.last)?))
        };
        done.left = self.read_indexed(read).await?;
        Ok(done)
    }
}
