//! Lines to nodes: each below its parent, in whatever order they stand in the file.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use quipu_protocol::{Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Commit, Expect, RefMove};
use sha2::Sha256;
use tokio::sync::mpsc;

use super::entry::{self, Line, Parent};
use super::import::FileLines;
use super::{AGENT, LINE_LIMIT};
use crate::batches::Batch;
use crate::built::{Built, Parts};
use crate::lineages::tip_ref;
use crate::tree::{At, Key, Placed, ROOT, Tree};
use crate::{ArchiveError, ProblemKind, Report};

/// Nodes and bytes of one commit, about.
const BATCH_NODES: usize = 2_000;
const BATCH_BYTES: usize = 4 << 20;

/// What came of a file.
pub(super) struct Done {
    pub(super) report: Report,
    pub(super) tree: Tree,
    /// Place, time and node of the last entry.
    pub(super) last: (u64, UnixMs, NodeId),
    /// Of all that was read.
    pub(super) hash: Sha256,
    /// Whether the file was read to its end, and its last line has one.
    pub(super) whole: bool,
    /// Entries and the header: the place of the next one.
    pub(super) next: u64,
}

/// Lines to nodes, in the order of the file; entries whose parent has not come yet wait for it.
pub(super) struct Placer {
    version: u64,
    session: SessionId,
    sealer: Arc<Sealer>,
    report: Report,
    tree: Tree,
    /// The place of the next entry.
    n: u64,
    last: (u64, UnixMs, NodeId),
    /// The session's own time, for entries that have none.
    time: UnixMs,
    /// The id before it, in a file of version 1.
    before: Option<String>,
    file: File,
    held: Vec<Option<Held>>,
    /// Those that wait for an id, by that id.
    waiting: HashMap<Key, Vec<usize>>,
    batch: Commit,
    batch_bytes: usize,
}

/// A line that waits for its parent: it is read again when that comes.
#[derive(Clone, Copy)]
struct Held {
    number: u64,
    offset: u64,
    length: u64,
    n: u64,
    id: Option<Key>,
    parent: Key,
}

/// A line ready to be placed.
struct Ready {
    text: Json,
    /// As it was before its secrets were sealed.
    unsealed: Option<Json>,
    number: u64,
    n: u64,
}

/// The receiver is gone: the store failed, which the other side tells.
struct Stopped;

/// What is known when the first entry is read.
pub(super) struct Begin {
    /// The first node; `None` where the file was begun by a session of ours.
    pub(super) first: Option<Built>,
    /// The session's own time, for entries that have none.
    pub(super) time: UnixMs,
    pub(super) version: u64,
    pub(super) sealer: Arc<Sealer>,
    pub(super) report: Report,
    pub(super) tree: Tree,
    /// To read lines again.
    pub(super) file: File,
}

impl Placer {
    pub(super) fn new(begin: Begin) -> Self {
        let Begin { first, time, version, sealer, report, tree, file } = begin;
        let root = tree.node(ROOT);
        let mut batch = Commit::default();
        if let Some(first) = first {
            first.add_to(&mut batch);
        }
        Self {
            version,
            session: report.session.clone(),
            sealer,
            report,
            tree,
            n: 1,
            last: (0, time, root),
            time,
            before: None,
            file,
            held: Vec::new(),
            waiting: HashMap::new(),
            batch,
            batch_bytes: 0,
        }
    }

    pub(super) fn run(
        mut self,
        source: FileLines,
        batches: &mpsc::Sender<Batch>,
    ) -> Result<Done, ArchiveError> {
        let FileLines { mut lines, path, skipped } = source;
        for line in skipped {
            self.report.problem(line, ProblemKind::Malformed, "before the header");
        }
        let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
        let mut whole = true;
        self.report.bytes = lines.offset();
        while let Some(line) = lines.next().map_err(fail)? {
            whole = line.ended;
            self.report.bytes = line.offset + line.length + u64::from(line.ended);
            if line.is_too_long() {
                let detail = format!("{} bytes, and {LINE_LIMIT} are the limit", line.length);
                self.report.problem(line.number, ProblemKind::TooLong, &detail);
                continue;
            }
            let at = (line.number, line.offset, line.length);
            let Some(json) = line.json(&mut self.report) else { continue };
            self.line(json, at).map_err(|error| error.told(&path))?;
            if self.batch.nodes.len() >= BATCH_NODES || self.batch_bytes >= BATCH_BYTES {
                let Ok(()) = self.send(batches) else { break };
            }
        }
        self.place_rest(batches).map_err(|error| error.told(&path))?;
        self.tree.close();
        self.report.branches = self.tree.tips();
        // Nobody receives any more when the store failed, which is told there.
        drop(self.send(batches));
        let hash = lines.into_inner().into_inner().hash;
        Ok(Done { report: self.report, tree: self.tree, last: self.last, hash, whole, next: self.n })
    }

    fn send(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), Stopped> {
        self.batch_bytes = 0;
        let mut commit = std::mem::take(&mut self.batch);
        // With the entries: who is cut short goes on from here.
        let refs = self.tree.turned();
        let arrive = refs
            .arrive
            .into_iter()
            .map(|end| RefMove::publish(tip_ref(AGENT, &self.session, &end), end, "import"));
        let leave = refs.leave.into_iter().map(|end| RefMove {
            name: tip_ref(AGENT, &self.session, &end),
            expect: Expect::Any,
            to: None,
            fence: None,
            why: "import".into(),
        });
        commit.moves.extend(arrive.chain(leave));
        let batch = Batch { commit, bytes: self.report.bytes, entries: self.report.read };
        batches.blocking_send(batch).map_err(|_| Stopped)
    }

    /// One line that is JSON.
    fn line(&mut self, json: Json, (number, offset, length): (u64, u64, u64)) -> Result<(), Again> {
        if !json.get().starts_with('{') {
            self.report.problem(number, ProblemKind::NotAnEntry, json.get());
            return Ok(());
        }
        let n = self.n;
        self.n += 1;
        let ready = self.ready(json, number, n);
        self.report.sealed += u64::from(ready.unsealed.is_some());
        let Some(line) = Line::read(ready.text.get()) else { return Ok(()) };
        if self.version < 2 && line.kind != "session" {
            self.before = line.id.as_deref().map(str::to_owned);
        }
        let key = line.id.as_deref().map(Key::of);
        if line.kind == "session" {
            self.report.problem(number, ProblemKind::SecondHeader, "");
        } else if key.is_none() {
            self.report.problem(number, ProblemKind::NoId, "");
        }
        if let Some(node) = key.and_then(|key| self.tree.meet_own(key)) {
            // Written by us: what the graph has is what was said.
            self.report.read += 1;
            self.report.present += 1;
            self.last = self.last.max((n, line.timestamp.unwrap_or(self.time), node));
            return self.release(key);
        }
        let parent = match &line.parent {
            Parent::Nothing => ROOT,
            Parent::Unreadable => {
                if line.kind != "session" {
                    self.report.problem(number, ProblemKind::Orphan, "it does not say what it follows");
                }
                ROOT
            }
            Parent::Id(parent) if line.id.as_ref() == Some(parent) => {
                self.report.problem(number, ProblemKind::Cycle, parent);
                ROOT
            }
            Parent::Id(parent) => {
                // Only what this file has shown: so the same file gives the same nodes, whatever the store holds.
                let parent = Key::of(parent);
                match self.tree.find_met(parent) {
                    Some(at) => at,
                    None => {
                        let held = Held { number, offset, length, n, id: key, parent };
                        self.waiting.entry(parent).or_default().push(self.held.len());
                        self.held.push(Some(held));
                        return Ok(());
                    }
                }
            }
        };
        self.place(&line, &ready, parent);
        self.release(key)
    }

    /// The line as it is kept.
    fn ready(&self, json: Json, number: u64, n: u64) -> Ready {
        let migrated = if self.version < super::VERSION {
            entry::migrated(json.get(), self.version, &self.session, n, self.before.as_deref())
        } else {
            None
        };
        let json = migrated.and_then(|text| Json::parse(&text).ok()).unwrap_or(json);
        let sealed = self.sealer.seal_json(&json);
        let unsealed = (sealed != json).then_some(json);
        Ready { text: sealed, unsealed, number, n }
    }

    fn place(&mut self, line: &Line<'_>, ready: &Ready, parent: At) {
        if line.timestamp.is_none() {
            self.report.problem(ready.number, ProblemKind::NoTime, "");
        }
        // One that every import of this file gives.
        let time = line.timestamp.unwrap_or(self.time);
        let id = line.id.as_deref();
        let key = id.map(Key::of);
        let met = |id: &str| self.tree.find_met(Key::of(id)).map(|at| self.tree.node(at));
        let any = |id: &str| self.tree.find(Key::of(id)).map(|at| self.tree.node(at));
        let none = |_: &str| None;
        let build = |parent: At, find: &dyn Fn(&str) -> Option<NodeId>| {
            let follows = match &line.parent {
                Parent::Id(id) if parent != ROOT => Some(id.as_ref()),
                _ => None,
            };
            let unsealed = ready.unsealed.as_ref().map(Json::get);
            let (entry, step) = line.entry(ready.n, follows, time, unsealed, find);
            Parts::new(AGENT, &entry, &step).build(Some(self.tree.node(parent)), time, id.map(str::to_owned))
        };
        let mut built = build(parent, &met);
        if self.tree.may_have(key) && !self.tree.has(key, built.node.id) {
            type Find<'a> = &'a dyn Fn(&str) -> Option<NodeId>;
            // Imported from a file that was shorter or longer: what it refers to was not there yet, or was there already.
            let found: [Find<'_>; 3] = [&met, &any, &none];
            let known = match &line.parent {
                Parent::Id(id) => self.tree.find(Key::of(id)),
                Parent::Nothing | Parent::Unreadable => None,
            };
            let parents = [Some(parent), known, Some(ROOT)].into_iter().flatten();
            let before = parents.flat_map(|parent| found.map(|find| (parent, find)));
            built = before
                .map(|(parent, find)| build(parent, find))
                .find(|one| self.tree.has(key, one.node.id))
                .unwrap_or(built);
        }
        if key.is_some_and(|key| self.tree.find_met(key).is_some()) {
            self.report.problem(ready.number, ProblemKind::DuplicateId, id.unwrap_or_default());
        }
        self.report.read += 1;
        let mut node = built.node.id;
        match self.tree.place(key, node, parent) {
            Placed::Present => self.report.present += 1,
            Placed::Changed(kept) => {
                self.report.problem(ready.number, ProblemKind::Changed, id.unwrap_or_default());
                node = kept;
            }
            Placed::New => {
                self.report.added += 1;
                self.batch_bytes += built.size();
                built.add_to(&mut self.batch);
            }
        }
        self.last = self.last.max((ready.n, time, node));
    }

    /// Places those that waited for an entry which has come, and those that wait for them.
    fn release(&mut self, key: Option<Key>) -> Result<(), Again> {
        let mut ready: Vec<usize> = Vec::new();
        let mut next = key;
        loop {
            if let Some(list) = next.and_then(|key| self.waiting.remove(&key)) {
                ready.extend(list.into_iter().rev());
            }
            let Some(index) = ready.pop() else { return Ok(()) };
            next = match self.held.get_mut(index).and_then(Option::take) {
                Some(held) => {
                    let parent = self.tree.find_met(held.parent).unwrap_or(ROOT);
                    self.place_held(held, parent)?;
                    held.id
                }
                None => None,
            };
        }
    }

    fn place_held(&mut self, held: Held, parent: At) -> Result<(), Again> {
        let length = usize::try_from(held.length).map_err(|_| Again::Changed)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, held.offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Again::Changed,
            _ => Again::Io(error),
        })?;
        let json = Json::parse(&String::from_utf8_lossy(&bytes)).map_err(|_| Again::Changed)?;
        let ready = self.ready(json, held.number, held.n);
        let line = Line::read(ready.text.get()).ok_or(Again::Changed)?;
        self.place(&line, &ready, parent);
        Ok(())
    }

    /// At the end of the file: what still waits follows nothing of it, or itself. What another file of this session
    /// brought is followed all the same.
    fn place_rest(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), Again> {
        let ids: HashSet<Key> = self.held.iter().flatten().filter_map(|held| held.id).collect();
        for cycles in [false, true] {
            for index in 0..self.held.len() {
                let Some(held) = self.held[index].filter(|held| cycles || !ids.contains(&held.parent)) else {
                    continue;
                };
                self.held[index] = None;
                let elsewhere = if cycles { None } else { self.tree.find_only(held.parent) };
                if elsewhere.is_none() {
                    let kind = if cycles { ProblemKind::Cycle } else { ProblemKind::Orphan };
                    self.report.problem(held.number, kind, "");
                }
                self.place_held(held, elsewhere.unwrap_or(ROOT))?;
                self.release(held.id)?;
                if self.batch.nodes.len() >= BATCH_NODES || self.batch_bytes >= BATCH_BYTES {
                    let Ok(()) = self.send(batches) else { return Ok(()) };
                }
            }
        }
        Ok(())
    }
}

/// A line could not be read again.
enum Again {
    Changed,
    Io(std::io::Error),
}

impl Again {
    fn told(self, path: &Path) -> ArchiveError {
        match self {
            Self::Changed => ArchiveError::Changed { path: path.to_owned() },
            Self::Io(source) => ArchiveError::File { path: path.to_owned(), doing: "read", source },
        }
    }
}
