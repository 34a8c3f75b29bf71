//! Lines to nodes: each below its parent, in whatever order they stand in the file.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::path::PathBuf;

use quipu_protocol::{Json, NodeId, UnixMs};
use quipu_store::{Commit, Expect, RefMove};
use sha2::Sha256;
use tokio::sync::mpsc;

use super::AGENT;
use super::entry::{Head, Line, Parent};
use super::ready::{Made, Maker, Ready, What};
use crate::ahead::{Ahead, ReadyLines};
use crate::batches::{Batch, Most};
use crate::built::{Built, Parts};
use crate::key::{At, Key};
use crate::lineages::tip_ref;
use crate::lines::{self, Hashing, Lines};
use crate::tree::{Placed, ROOT, Tree};
use crate::{ArchiveError, ProblemKind, Report};

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
    pub(super) lines: u64,
}

/// Lines to nodes, in the order of the file; entries whose parent has not come yet wait for it.
pub(super) struct Placer {
    maker: Maker,
    report: Report,
    tree: Tree,
    /// The place of the next entry.
    n: u64,
    last: (u64, UnixMs, NodeId),
    /// The id before it, in a file of version 1.
    before: Option<String>,
    file: File,
    held: Vec<Option<Held>>,
    /// Those that wait for an id, by that id.
    waiting: HashMap<Key, Vec<usize>>,
    batch: Commit,
    batch_bytes: usize,
    most: Most,
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

/// An entry to be placed.
#[derive(Clone, Copy)]
struct Entry<'a> {
    head: &'a Head<'a>,
    ready: &'a Ready,
    /// Its line, where that was just read.
    line: Option<&'a Line<'a>>,
}

/// The receiver is gone: the store failed, which the other side tells.
struct Stopped;

/// What is known when the first entry is read.
pub(super) struct Begin {
    /// The first node; `None` where the file was begun by a session of ours.
    pub(super) first: Option<Built>,
    pub(super) maker: Maker,
    pub(super) report: Report,
    pub(super) tree: Tree,
    /// To read lines again.
    pub(super) file: File,
    /// Bytes of the file.
    pub(super) total: u64,
    /// Place, time and node of the last entry before what is read, where that is not the first.
    pub(super) last: Option<(u64, UnixMs, NodeId)>,
}

impl Placer {
    pub(super) fn new(begin: Begin) -> Self {
        let Begin { first, maker, report, tree, file, total, last } = begin;
        let root = tree.node(ROOT);
        let mut batch = Commit::default();
        if let Some(first) = first {
            first.add_to(&mut batch);
        }
        let last = last.unwrap_or((0, maker.time, root));
        Self {
            last,
            maker,
            report,
            tree,
            n: last.0 + 1,
            before: None,
            file,
            held: Vec::new(),
            waiting: HashMap::new(),
            batch,
            batch_bytes: 0,
            most: Most::of(total),
        }
    }

    /// Places all lines of a file. `ahead` says on how many cores they are made ready meanwhile.
    pub(super) fn run(
        mut self,
        source: FileLines,
        ahead: Ahead,
        batches: &mpsc::Sender<Batch>,
    ) -> Result<Done, ArchiveError> {
        let FileLines { lines, path, skipped } = source;
        for line in skipped {
            self.report.problem(line, ProblemKind::Malformed, "before the header");
        }
        let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
        let mut whole = true;
        let mut count = lines.number();
        self.report.bytes = lines.offset();
        let maker = self.maker.clone();
        let is_ahead = ahead.is_any();
        let mut lines = ReadyLines::new(lines, ahead, move |line| maker.make(line, is_ahead));
        while let Some(Made { place, problems, what }) = lines.next().map_err(fail)? {
            whole = place.ended;
            count = place.number;
            self.report.bytes = place.end();
            for problem in problems {
                self.report.problem(problem.line, problem.kind, &problem.detail);
            }
            if matches!(what, What::Nothing) {
                if place.is_object {
                    lines.was_no_object();
                }
                continue;
            }
            self.line(what, place).map_err(|error| error.told(&path))?;
            if self.most.is_reached(&self.batch, self.batch_bytes) {
                let Ok(()) = self.send(batches) else { break };
            }
        }
        self.place_rest(batches).map_err(|error| error.told(&path))?;
        self.tree.close();
        self.report.branches = self.tree.tips();
        // Nobody receives any more when the store failed, which is told there.
        drop(self.send(batches));
        let hash = lines.into_inner().into_inner().hash;
        let Self { report, tree, last, n: next, .. } = self;
        Ok(Done { report, tree, last, hash, whole, next, lines: count })
    }

    fn send(&mut self, batches: &mpsc::Sender<Batch>) -> Result<(), Stopped> {
        self.batch_bytes = 0;
        self.most = self.most.after(1);
        let mut commit = std::mem::take(&mut self.batch);
        // With the entries: who is cut short goes on from here.
        let refs = self.tree.turned();
        let arrive = refs
            .arrive
            .into_iter()
            .map(|end| RefMove::publish(tip_ref(AGENT, &self.maker.session, &end), end, "import"));
        let leave = refs.leave.into_iter().map(|end| RefMove {
            name: tip_ref(AGENT, &self.maker.session, &end),
            expect: Expect::Any,
            to: None,
            fence: None,
            why: "import".into(),
        });
        commit.moves.extend(arrive.chain(leave));
        let batch = Batch { commit, bytes: self.report.bytes, entries: self.report.read };
        batches.blocking_send(batch).map_err(|_| Stopped)
    }

    /// One line that is an entry.
    fn line(&mut self, what: What, place: lines::Place) -> Result<(), Again> {
        let n = self.n;
        self.n += 1;
        match what {
            What::Nothing => Ok(()),
            What::Text(json) => {
                let ready = self.maker.ready(json, place.number, n, self.before.as_deref());
                let Some(line) = Line::read(ready.text.get()) else { return Ok(()) };
                if self.maker.version < 2 && line.head.kind != "session" {
                    self.before = line.head.id.as_deref().map(str::to_owned);
                }
                self.enter(Entry { head: &line.head, ready: &ready, line: Some(&line) }, None, place)
            }
            What::Ready(ahead) => {
                let mut ahead = *ahead;
                if ahead.ready.n != n {
                    // A line before it is none, which was not known yet.
                    ahead.ready.n = n;
                    ahead.parts = None;
                }
                let entry = Entry { head: &ahead.head, ready: &ahead.ready, line: None };
                self.enter(entry, ahead.parts, place)
            }
        }
    }

    /// An entry: it is placed, or waits for its parent.
    fn enter(&mut self, entry: Entry<'_>, parts: Option<Parts>, place: lines::Place) -> Result<(), Again> {
        let Entry { head, ready: &Ready { number, n, ref unsealed, .. }, .. } = entry;
        self.report.sealed += u64::from(unsealed.is_some());
        let key = head.id.as_deref().map(Key::of);
        if head.kind == "session" {
            self.report.problem(number, ProblemKind::SecondHeader, "");
        } else if key.is_none() {
            self.report.problem(number, ProblemKind::NoId, "");
        }
        if let Some(node) = key.and_then(|key| self.tree.meet_own(key)) {
            // Written by us: what the graph has is what was said.
            self.report.read += 1;
            self.report.present += 1;
            self.last = self.last.max((n, head.timestamp.unwrap_or(self.maker.time), node));
            return self.release(key);
        }
        let parent = match &head.parent {
            Parent::Nothing => ROOT,
            Parent::Unreadable => {
                if head.kind != "session" {
                    self.report.problem(number, ProblemKind::Orphan, "it has no parent id");
                }
                ROOT
            }
            Parent::Id(parent) if head.id.as_ref() == Some(parent) => {
                self.report.problem(number, ProblemKind::Cycle, parent);
                ROOT
            }
            Parent::Id(parent) => {
                // Only what this file has shown: so the same file gives the same nodes, whatever the store holds.
                let parent = Key::of(parent);
                match self.tree.find_met(parent) {
                    Some(at) => at,
                    None => {
                        let lines::Place { offset, length, .. } = place;
                        let held = Held { number, offset, length, n, id: key, parent };
                        self.waiting.entry(parent).or_default().push(self.held.len());
                        self.held.push(Some(held));
                        return Ok(());
                    }
                }
            }
        };
        self.place(entry, parts, parent);
        self.tree.check().map_err(Again::Io)?;
        self.release(key)
    }

    /// `parts` are those of an entry that hangs where it says.
    fn place(&mut self, entry: Entry<'_>, parts: Option<Parts>, parent: At) {
        let Entry { head, ready, line } = entry;
        if head.timestamp.is_none() {
            self.report.problem(ready.number, ProblemKind::NoTime, "");
        }
        // One that every import of this file gives.
        let time = head.timestamp.unwrap_or(self.maker.time);
        let id = head.id.as_deref();
        let key = id.map(Key::of);
        let met = |id: &str| self.tree.find_met(Key::of(id)).map(|at| self.tree.node(at));
        let any = |id: &str| self.tree.find(Key::of(id)).map(|at| self.tree.node(at));
        let none = |_: &str| None;
        let again = OnceCell::new();
        let place =
            |parts: Parts, parent: At| parts.build(Some(self.tree.node(parent)), time, id.map(str::to_owned));
        let build = |parent: At, find: &dyn Fn(&str) -> Option<NodeId>| {
            let line = line.or_else(|| again.get_or_init(|| Line::read(ready.text.get())).as_ref());
            line.map(|line| place(self.maker.parts(line, ready, parent == ROOT, find), parent))
        };
        let is_elsewhere = matches!(head.parent, Parent::Id(_)) && parent == ROOT;
        let built = match parts.filter(|_| !is_elsewhere) {
            Some(parts) => Some(place(parts, parent)),
            None => build(parent, &met),
        };
        // It was read before.
        let Some(mut built) = built else { return };
        if self.tree.may_have(key) && !self.tree.has(key, built.node.id) {
            type Find<'a> = &'a dyn Fn(&str) -> Option<NodeId>;
            // Imported from a file that was shorter or longer: what it refers to was not there yet, or was there already.
            let found: [Find<'_>; 3] = [&met, &any, &none];
            let known = match &head.parent {
                Parent::Id(id) => self.tree.find(Key::of(id)),
                Parent::Nothing | Parent::Unreadable => None,
            };
            let parents = [Some(parent), known, Some(ROOT)].into_iter().flatten();
            let before = parents.flat_map(|parent| found.map(|find| (parent, find)));
            built = before
                .filter_map(|(parent, find)| build(parent, find))
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
        let ready = self.maker.ready(json, held.number, held.n, self.before.as_deref());
        let line = Line::read(ready.text.get()).ok_or(Again::Changed)?;
        self.place(Entry { head: &line.head, ready: &ready, line: Some(&line) }, None, parent);
        self.tree.check().map_err(Again::Io)
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
                if self.most.is_reached(&self.batch, self.batch_bytes) {
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

/// The rest of a file, and where it is for messages.
pub(super) struct FileLines {
    pub(super) lines: Lines<BufReader<Hashing>>,
    pub(super) path: PathBuf,
    /// Lines before the header that hold nothing: they are told later.
    pub(super) skipped: Vec<u64>,
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::sync::Arc;

    use proptest::prelude::*;
    use quipu_seal::Sealer;

    use super::*;
    use crate::pi::import::Source;

    const SECRET: &str = "correct horse battery";

    /// All that comes of a file.
    fn placed(text: &str, ahead: Ahead) -> (Vec<String>, Report, (u64, UnixMs, NodeId), u64, bool) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let begun = Source::begin(file, "file".into()).unwrap();
        let (lines, header, file) = begun.into_parts();
        let sealer = Arc::new(Sealer::new([7; 32]));
        sealer.know("known", SECRET);
        let first = header.build();
        let (root, time) = (first.node.id, first.node.record.timestamp);
        let maker = Maker { version: header.version, session: header.session.clone(), sealer, time };
        let report = Report::new("file".into(), header.session);
        let tree = Tree::new(root, None);
        let placer =
            Placer::new(Begin { first: Some(first), maker, report, tree, file, total: 0, last: None });
        let (sender, mut batches) = mpsc::channel(1_000);
        let Done { report, last, next, whole, .. } = placer.run(lines, ahead, &sender).unwrap();
        let mut commits = Vec::new();
        while let Ok(batch) = batches.try_recv() {
            commits.push(format!("{:?}", batch.commit));
        }
        (commits, report, last, next, whole)
    }

    #[track_caller]
    fn check(text: &str) {
        let alone = placed(text, Ahead::tried(0, 0, 0));
        for (threads, piece, most) in [(1, 1, 1), (2, 1, 10_000), (2, 1_500, 6_000)] {
            let ahead = Ahead::tried(threads, piece, most);
            assert!(placed(text, ahead) == alone, "{ahead:?}: otherwise than alone:\n{text}");
        }
    }

    #[test]
    fn lines_made_ready_ahead_are_placed_as_others() {
        for version in [1, 2, 3] {
            let mut text = format!("{{ {{\"type\":\"session\",\"version\":{version}}}\n");
            text.push_str(&format!("{{\"type\":\"session\",\"version\":{version},\"id\":\"s\",\"timestamp\":\"2026-01-02T03:04:05.678Z\"}}\n"));
            for n in 0..60 {
                let parent = if n % 11 == 7 { n + 3 } else { n - 1 };
                let line = match n % 9 {
                    3 => "{\"torn\": ".to_owned(),
                    5 => format!(
                        "{{\"type\":\"compaction\",\"id\":\"i{n}\",\"parentId\":\"i{parent}\",\"summary\":\"short\",\"firstKeptEntryId\":\"i{}\",\"firstKeptEntryIndex\":2,\"tokensBefore\":5}}",
                        n - 4
                    ),
                    6 => [
                        "",
                        "[1]",
                        "{\"type\":\"session\"}",
                        "\u{fffd}{",
                        "{\"type\":\"message\",\"message\":{\"role\":\"hookMessage\",\"content\":\"x\"}}",
                    ][n as usize / 9 % 5]
                        .to_owned(),
                    7 => format!("{{\"type\":\"label\",\"id\":\"i{n}\",\"parentId\":\"i{n}\"}}"),
                    _ => format!(
                        "{{\"type\":\"message\",\"id\":\"i{n}\",\"parentId\":\"i{parent}\",\"timestamp\":\"2026-01-02T03:05:{n:02}.000Z\",\"message\":{{\"role\":\"user\",\"content\":\"say {SECRET} {n}\"}}}}"
                    ),
                };
                text.push_str(&line);
                text.push('\n');
            }
            check(&text);
            check(text.trim_end_matches(['}', '\n']));
        }
    }

    proptest! {
        #[test]
        fn whatever_stands_in_a_file(version in 1..=3, lines in proptest::collection::vec(
            prop_oneof![
                Just("{".to_owned()),
                Just(" ".to_owned()),
                Just("7".to_owned()),
                (0..9, 0..9).prop_map(|(id, parent)| format!("{{\"type\":\"message\",\"id\":\"{id}\",\"parentId\":\"{parent}\",\"message\":{{\"role\":\"user\",\"content\":\"{id}\"}}}}")),
                (0..9, 0..9).prop_map(|(id, kept)| format!("{{\"type\":\"compaction\",\"id\":\"{id}\",\"parentId\":\"{kept}\",\"firstKeptEntryId\":\"{kept}\",\"summary\":\"s\"}}")),
                (0..9).prop_map(|id| format!("{{\"type\":\"custom\",\"id\":\"{id}\",\"parentId\":null}}")),
                Just("{\"type\":\"custom\"}".to_owned()),
            ], 0..40))
        {
            check(&format!("{{\"type\":\"session\",\"version\":{version},\"id\":\"s\"}}\n{}", lines.join("\n")));
        }
    }
}
