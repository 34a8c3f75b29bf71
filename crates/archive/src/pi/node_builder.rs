//! Builds nodes from lines of a file. All lines with one id keep it; a line of an earlier import is found by the hash of its
//! node. Lines that wait for their parents are read again, so that a large file takes little memory.

use std::cell::OnceCell;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::path::PathBuf;

use quipu_protocol::{Json, NodeId, UnixMs};
use sha2::Sha256;
use tokio::sync::mpsc;

use super::AGENT;
use super::entry::{Head, Line, Parent};
use super::line_parser::{EntryText, LineContent, LineParser, ParsedLine};
use crate::batches::{Batch, BatchBuffer, BatchLimit};
use crate::built_node::{BuiltNode, NodeParts};
use crate::key::{EntryIndex, Key};
use crate::lineages::{tip_arrival, tip_departure};
use crate::lines::{self, Hashing, Lines};
use crate::placer::Placer;
use crate::prefetch::{Prefetch, ReadyLines};
use crate::tree::{Placement, ROOT, Tree};
use crate::waiting_list::{ListEntry, WaitingList};
use crate::{ArchiveError, ProblemKind, Report};

/// The result of a file.
pub(super) struct BuiltFile {
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

/// Builds nodes in the order of the file; entries whose parent has not come yet wait for it.
pub(super) struct NodeBuilder {
    maker: LineParser,
    report: Report,
    tree: Tree,
    /// The place of the next entry.
    n: u64,
    last: (u64, UnixMs, NodeId),
    /// The id before it, in a file of version 1.
    before: Option<String>,
    file: File,
    waiting: WaitingList<WaitingLine>,
    batch: BatchBuffer,
    batches: mpsc::Sender<Batch>,
}

/// A line that waits for its parent: it is read again when that comes.
#[derive(Clone, Copy)]
pub(super) struct WaitingLine {
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
    ready: &'a EntryText,
    /// Its line, where that was just read.
    line: Option<&'a Line<'a>>,
}

/// What a builder starts with.
pub(super) struct BuilderStart {
    /// The first node; `None` where the file was begun by a session of ours.
    pub(super) first: Option<BuiltNode>,
    pub(super) maker: LineParser,
    pub(super) report: Report,
    pub(super) tree: Tree,
    /// To read lines again.
    pub(super) file: File,
    /// Bytes of the file.
    pub(super) total: u64,
    /// Place, time and node of the last entry before what is read, where that is not the first.
    pub(super) last: Option<(u64, UnixMs, NodeId)>,
    /// To the store.
    pub(super) batches: mpsc::Sender<Batch>,
}

impl NodeBuilder {
    pub(super) fn new(begin: BuilderStart) -> Self {
        let BuilderStart { first, maker, report, tree, file, total, last, batches } = begin;
        let root = tree.node(ROOT);
        let mut batch = BatchBuffer::new(BatchLimit::of(total));
        if let Some(first) = first {
            batch.add(first);
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
            waiting: WaitingList::default(),
            batch,
            batches,
        }
    }

    /// Places all lines of a file. `prefetch` says on how many cores they are made ready meanwhile.
    pub(super) fn run(mut self, source: FileLines, prefetch: Prefetch) -> Result<BuiltFile, ArchiveError> {
        let FileLines { lines, path, skipped } = source;
        for line in skipped {
            self.report.problem(line, ProblemKind::Malformed, "before the header");
        }
        let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
        let mut whole = true;
        let mut count = lines.number();
        self.report.bytes = lines.offset();
        let maker = self.maker.clone();
        let is_ahead = prefetch.is_any();
        let mut lines = ReadyLines::new(lines, prefetch, move |line| maker.make(line, is_ahead));
        while let Some(ParsedLine { place, problems, what }) = lines.next().map_err(fail)? {
            whole = place.ended;
            count = place.number;
            self.report.bytes = place.end();
            for problem in problems {
                self.report.problem(problem.line, problem.kind, &problem.detail);
            }
            if matches!(what, LineContent::Nothing) {
                if place.is_object {
                    lines.was_no_object();
                }
                continue;
            }
            match self.line(what, place).and_then(|()| self.send_if_full()) {
                Ok(()) => {}
                // The store failed, which is reported there.
                Err(PlaceError::Closed) => break,
                Err(error) => return Err(error.into_error(&path)),
            }
        }
        match self.place_unresolved() {
            Ok(()) | Err(PlaceError::Closed) => {}
            Err(error) => return Err(error.into_error(&path)),
        }
        self.tree.close();
        self.report.branches = self.tree.tips();
        drop(self.send());
        let hash = lines.into_inner().into_inner().hash;
        let Self { report, tree, last, n: next, .. } = self;
        Ok(BuiltFile { report, tree, last, hash, whole, next, lines: count })
    }

    fn send(&mut self) -> Result<(), PlaceError> {
        // With the entries, so that an import that is cut short resumes here.
        let refs = self.tree.turned();
        let session = &self.maker.session;
        let arrive = refs.arrive.into_iter().map(|end| tip_arrival(AGENT, session, end));
        let leave = refs.leave.into_iter().map(|end| tip_departure(AGENT, session, end));
        self.batch.move_refs(arrive.chain(leave));
        let commit = self.batch.take();
        let batch = Batch { commit, bytes: self.report.bytes, entries: self.report.read };
        self.batches.blocking_send(batch).map_err(|_| PlaceError::Closed)
    }

    /// One line that is an entry.
    fn line(&mut self, what: LineContent, place: lines::Place) -> Result<(), PlaceError> {
        let n = self.n;
        self.n += 1;
        match what {
            LineContent::Nothing => Ok(()),
            LineContent::Text(json) => {
                let ready = self.maker.ready(json, place.number, n, self.before.as_deref());
                let Some(line) = Line::read(ready.text.get()) else { return Ok(()) };
                if self.maker.version < 2 && line.head.kind != "session" {
                    self.before = line.head.id.as_deref().map(str::to_owned);
                }
                self.enter(Entry { head: &line.head, ready: &ready, line: Some(&line) }, None, place)
            }
            LineContent::Ready(prepared) => {
                let mut prepared = *prepared;
                if prepared.ready.n != n {
                    // A line before it is none, which was not known yet.
                    prepared.ready.n = n;
                    prepared.parts = None;
                }
                let entry = Entry { head: &prepared.head, ready: &prepared.ready, line: None };
                self.enter(entry, prepared.parts, place)
            }
        }
    }

    /// An entry: it is placed, or waits for its parent.
    fn enter(
        &mut self,
        entry: Entry<'_>,
        parts: Option<NodeParts>,
        place: lines::Place,
    ) -> Result<(), PlaceError> {
        let Entry { head, ready: &EntryText { number, n, ref unsealed, .. }, .. } = entry;
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
            return self.place_released(key);
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
                        let held = WaitingLine { number, offset, length, n, id: key, parent };
                        self.waiting.push(parent, held);
                        return Ok(());
                    }
                }
            }
        };
        self.place_entry(entry, parts, parent);
        self.tree.check().map_err(PlaceError::Io)?;
        self.place_released(key)
    }

    /// `parts` are those of an entry that hangs where it says.
    fn place_entry(&mut self, entry: Entry<'_>, parts: Option<NodeParts>, parent: EntryIndex) {
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
        let place = |parts: NodeParts, parent: EntryIndex| {
            parts.build(Some(self.tree.node(parent)), time, id.map(str::to_owned))
        };
        let build = |parent: EntryIndex, find: &dyn Fn(&str) -> Option<NodeId>| {
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
            Placement::Present => self.report.present += 1,
            Placement::Changed(kept) => {
                self.report.problem(ready.number, ProblemKind::Changed, id.unwrap_or_default());
                node = kept;
            }
            Placement::New => {
                self.report.added += 1;
                self.batch.add(built);
            }
        }
        self.last = self.last.max((ready.n, time, node));
    }

    fn place_held(&mut self, held: WaitingLine, parent: EntryIndex) -> Result<(), PlaceError> {
        let length = usize::try_from(held.length).map_err(|_| PlaceError::Changed)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, held.offset).map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => PlaceError::Changed,
            _ => PlaceError::Io(error),
        })?;
        let json = Json::parse(&String::from_utf8_lossy(&bytes)).map_err(|_| PlaceError::Changed)?;
        let ready = self.maker.ready(json, held.number, held.n, self.before.as_deref());
        let line = Line::read(ready.text.get()).ok_or(PlaceError::Changed)?;
        self.place_entry(Entry { head: &line.head, ready: &ready, line: Some(&line) }, None, parent);
        self.tree.check().map_err(PlaceError::Io)
    }
}

impl Placer for NodeBuilder {
    type Entry = WaitingLine;
    type Error = PlaceError;

    fn waiting(&mut self) -> &mut WaitingList<WaitingLine> {
        &mut self.waiting
    }

    /// A line whose parent does not come, or comes from itself, begins a branch. What another file of this session brought
    /// is followed all the same.
    fn place(&mut self, held: WaitingLine, unresolved: Option<ProblemKind>) -> Result<(), PlaceError> {
        let parent = match unresolved {
            None => self.tree.find_met(held.parent),
            Some(ProblemKind::Cycle) => None,
            Some(_) => self.tree.find_only(held.parent),
        };
        if let (None, Some(kind)) = (parent, unresolved) {
            self.report.problem(held.number, kind, "");
        }
        self.place_held(held, parent.unwrap_or(ROOT))
    }

    fn send_if_full(&mut self) -> Result<(), PlaceError> {
        if self.batch.is_full() { self.send() } else { Ok(()) }
    }
}

impl ListEntry for WaitingLine {
    fn parent(&self) -> Option<Key> {
        Some(self.parent)
    }

    fn keys(&self) -> Vec<Key> {
        self.id.into_iter().collect()
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

/// Why a builder stops before the end.
pub(super) enum PlaceError {
    /// A line could not be read again, because the file is another one now.
    Changed,
    Io(std::io::Error),
    /// The receiver of batches is gone: the store failed, which the other side reports.
    Closed,
}

impl PlaceError {
    fn into_error(self, path: &Path) -> ArchiveError {
        match self {
            Self::Changed => ArchiveError::Changed { path: path.to_owned() },
            Self::Io(source) => ArchiveError::File { path: path.to_owned(), doing: "read", source },
            Self::Closed => ArchiveError::Fault("nothing takes the entries that were read".into()),
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
    fn placed(text: &str, prefetch: Prefetch) -> (Vec<String>, Report, (u64, UnixMs, NodeId), u64, bool) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        std::io::Seek::rewind(&mut file).unwrap();
        let begun = Source::begin(file, "file".into()).unwrap();
        let (lines, header, file) = begun.into_parts();
        let sealer = Arc::new(Sealer::new([7; 32]));
        sealer.know("known", SECRET);
        let first = header.build();
        let (root, time) = (first.node.id, first.node.record.timestamp);
        let maker = LineParser { version: header.version, session: header.session.clone(), sealer, time };
        let report = Report::new("file".into(), header.session);
        let tree = Tree::new(root, None);
        let (sender, mut received) = mpsc::channel(1_000);
        let builder = NodeBuilder::new(BuilderStart {
            first: Some(first),
            maker,
            report,
            tree,
            file,
            total: 0,
            last: None,
            batches: sender,
        });
        let BuiltFile { report, last, next, whole, .. } = builder.run(lines, prefetch).unwrap();
        let mut commits = Vec::new();
        while let Ok(batch) = received.try_recv() {
            commits.push(format!("{:?}", batch.commit));
        }
        (commits, report, last, next, whole)
    }

    #[track_caller]
    fn check(text: &str) {
        let alone = placed(text, Prefetch::tried(0, 0, 0));
        for (threads, piece, most) in [(1, 1, 1), (2, 1, 10_000), (2, 1_500, 6_000)] {
            let prefetch = Prefetch::tried(threads, piece, most);
            assert!(placed(text, prefetch) == alone, "{prefetch:?}: otherwise than alone:\n{text}");
        }
    }

    #[test]
    fn prefetched_lines_build_the_same_nodes() {
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
        fn any_file_builds_the_same_with_prefetch(version in 1..=3, lines in proptest::collection::vec(
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
