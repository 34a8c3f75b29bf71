//! A file into the graph.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use quipu_protocol::{ChunkId, Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Commit, Extent, Graph, RefExpectation, RefMove, StoreError, decode_whole};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::chain::ids_of;
use super::entry;
use super::header::Header;
use super::incremental::IncrementalState;
use super::line_parser::LineParser;
use super::node_builder::{BuilderStart, BuiltFile, FileLines, NodeBuilder};
use super::own::OwnSessions;
use super::{AGENT, LINE_LIMIT};
pub(super) use crate::batches::run_blocking;
use crate::batches::{Batch, commit_all};
use crate::import_cache::{ImportCache, Mark, WriteBackState, marks, now, unchanged};
use crate::intake::open_file;
use crate::lineages::{main_ref, nodes_of, tips};
use crate::lines::{Hashing, Lines};
use crate::prefetch::Prefetch;
use crate::stamp::{Stamp, sha_of_first, sha_of_next, tail_of};
use crate::tree::Tree;
use crate::{ArchiveError, Progress, Report};

/// How to import.
pub struct ImportOptions<'a> {
    /// Read and compare, and write nothing.
    pub dry_run: bool,
    /// Told now and then how far it is.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// The nodes of our own up to which files of a session were written, at any time.
pub(super) async fn written(store: &dyn Graph, session: &SessionId) -> Result<Vec<NodeId>, StoreError> {
    let marks = marks(store).await?.filter(|mark| mark.format == AGENT && mark.session == *session);
    Ok(marks.flat_map(|mark| mark.filed.written.into_values()).collect())
}

/// Imports one file: every entry that the store does not have becomes a node with the entry's own id and time. Its
/// secrets are sealed first. What was imported before stays as it is, so that importing again adds nothing, a file
/// that has grown adds what is new, and the order of imports does not matter.
///
/// An import that was cut short is completed by importing again.
///
/// # Errors
/// `File`, `NotASession`, `Changed`, `Store`.
pub async fn import(
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    path: &Path,
    cache: &ImportCache,
    options: &ImportOptions<'_>,
) -> Result<Report, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "found", source };
    let path = std::path::absolute(path).map_err(fail)?;
    let path = path.as_path();
    let file = open_file(path)?;
    let mark = cache.of(AGENT, path);
    if let Some(report) = unchanged(&**store, mark, &file, options.dry_run).await? {
        return Ok(report);
    }
    let before = PriorState { mark, state: cache.take(path), follow: cache.follows() && !options.dry_run };
    let taken = take(store, sealer, file, path, before, options).await?;
    if options.dry_run {
        let mut report = taken.report;
        report.head = store.head(&main_ref(AGENT, &report.session)).await?;
        return Ok(report);
    }
    let note = taken.whole.then(|| taken.mark()).filter(|note| mark != Some(note));
    let head = move_main(&**store, &taken.report.session, taken.last, note).await?;
    let mut report = taken.report;
    report.head = Some(head);
    if let Some(tail) = taken.tail {
        let ImportedFile { tree, hash, lines, next, last, file, .. } = taken;
        let session = report.session.clone();
        cache.keep(
            path,
            IncrementalState { file, session, tree, hash, bytes: report.bytes, lines, next, last, tail },
        );
    }
    Ok(report)
}

/// The state of a file before this import.
#[derive(Default)]
pub(super) struct PriorState<'a> {
    /// What its last import noted.
    mark: Option<&'a Mark>,
    /// What is in memory of it.
    state: Option<IncrementalState>,
    /// Whether to keep that.
    follow: bool,
}

impl<'a> PriorState<'a> {
    /// Of a file whose last import noted this.
    pub(super) fn of(mark: Option<&'a Mark>) -> Self {
        Self { mark, ..Self::default() }
    }
}

/// A file whose entries are in the store.
pub(super) struct ImportedFile {
    pub(super) report: Report,
    pub(super) tree: Tree,
    /// The first node.
    pub(super) root: NodeId,
    /// Place, time and node of the last entry.
    pub(super) last: (u64, UnixMs, NodeId),
    /// The place of the next entry.
    pub(super) next: u64,
    /// Lines, where those to come can be read without them; else 0.
    lines: u64,
    /// Of the last bytes, where the file is followed and what comes to it can be read without them.
    tail: Option<ChunkId>,
    /// What the system said of it.
    file: Stamp,
    /// Of the bytes that were read.
    pub(super) hash: Sha256,
    /// Whether the last line has an end.
    pub(super) whole: bool,
    /// What the system says of it, when nobody had changed it for a while before and nobody did meanwhile.
    stamp: Option<Stamp>,
    /// What is ours of it.
    pub(super) own: OwnSessions,
}

impl ImportedFile {
    pub(super) fn mark(&self) -> Mark {
        let sha256 = ChunkId(self.hash.clone().finalize().into());
        Mark {
            stamp: self.stamp,
            filed: WriteBackState {
                next: self.next,
                last: Some(self.last.2),
                lines: self.lines,
                ..WriteBackState::default()
            },
            ..Mark::new(AGENT, &self.report.path, self.report.session.clone(), self.report.bytes, sha256)
        }
    }
}

/// Reads a file and puts what is new into the store. Where a note says how far it was read, and it has only grown since, what
/// was read is hashed and what came after it read; where it is in memory how far, what came after it alone.
pub(super) fn take<'a>(
    store: &'a Arc<dyn Graph>,
    sealer: &'a Arc<Sealer>,
    file: File,
    path: &'a Path,
    before: PriorState<'a>,
    options: &'a ImportOptions<'a>,
) -> Pin<Box<dyn Future<Output = Result<ImportedFile, ArchiveError>> + Send + 'a>> {
    // As in [`SessionFile::read`](super::SessionFile::read).
    Box::pin(take_file(store, sealer, file, path, before, options))
}

async fn take_file(
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    file: File,
    path: &Path,
    before: PriorState<'_>,
    options: &ImportOptions<'_>,
) -> Result<ImportedFile, ArchiveError> {
    let PriorState { mark, state, follow } = before;
    let fail = |doing| move |source| ArchiveError::File { path: path.to_owned(), doing, source };
    let stamp = Stamp::of(&file.metadata().map_err(fail("read"))?);
    let settled = stamp.settled(now());
    let total = stamp.bytes;
    let again = file.try_clone().map_err(fail("read"))?;
    let owned = path.to_owned();
    let begun = run_blocking(move || Source::begin(file, owned)).await??;
    let session = begun.header.session.clone();
    let first = begun.header.build();
    let time = first.node.record.timestamp;
    let own = OwnSessions::of(&**store, &session).await?;
    let (first, root) = match &own.root {
        Some(root) => (None, root.id),
        None => {
            let root = first.node.id;
            (Some(first), root)
        }
    };
    let mut report = Report::new(path.to_owned(), session.clone());
    let (mut lines, mut last) = (begun.lines, None);
    let can_continue = begun.header.version > 1 && own.rows.is_empty();
    let state = match state.filter(|state| can_continue && state.is_of(&stamp, &session)) {
        Some(state) => state.checked(&**store, again.try_clone().map_err(fail("read"))?).await?,
        None => None,
    };
    // Of a file that is followed what was read before is not read again.
    let from = state.as_ref().map(|(state, _)| (state.bytes, state.hash.clone()));
    let went_on = from.is_some();
    let tree = if let Some((state, rest)) = state {
        (report.read, report.present, last) = (state.last.0, state.last.0, Some(state.last));
        lines = FileLines { lines: rest, path: lines.path, skipped: Vec::new() };
        state.tree
    } else {
        let mut tree = Tree::new(root, Extent::of(&**store).await?.spool);
        if let Some(root) = &own.root {
            tree.ours(root.id, None, &ids_of(root), false, false);
        }
        stored(&**store, root, &session, &own, &mut tree).await?;
        let mark =
            mark.filter(|mark| mark.session == session && mark.bytes < total && begun.header.version > 1);
        if let Some(mark) = mark
            && let Some(before) = last_of(&**store, mark, &tree).await?
        {
            let (same, known) = (again.try_clone().map_err(fail("read"))?, mark.clone());
            if let Some(rest) = run_blocking(move || after(same, &known)).await?.map_err(fail("read"))? {
                tree.meet_all();
                (report.read, report.present, last) = (before.0, before.0, Some(before));
                lines = FileLines { lines: rest, path: lines.path, skipped: Vec::new() };
            }
        }
        tree
    };
    let (sender, batches) = mpsc::channel::<Batch>(1);
    let maker = LineParser {
        version: begun.header.version,
        session: session.clone(),
        sealer: Arc::clone(sealer),
        time,
    };
    let builder = NodeBuilder::new(BuilderStart {
        first,
        maker,
        report,
        tree,
        file: begun.file,
        total,
        last,
        batches: sender,
    });
    let reader = tokio::task::spawn_blocking(move || builder.run(lines, Prefetch::of(total)));
    let committed = commit_all(&**store, batches, total, options).await;
    let done = reader.await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
    committed?;
    let BuiltFile { report, tree, last, hash, whole, next, lines } = done?;
    let lines = if can_continue { lines } else { 0 };
    let keeps = follow && whole && can_continue;
    let end = again.try_clone().map_err(fail("read"))?;
    let after = Stamp::of(&again.metadata().map_err(fail("read"))?);
    let changed = || Err(ArchiveError::Changed { path: path.to_owned() });
    if report.bytes < total || after.bytes < report.bytes {
        return changed();
    }
    if after != stamp {
        // Mostly it has grown: then what was read is still there.
        let bytes = report.bytes;
        let now = move || {
            let mut file = again;
            let (from, mut hash) = from.unwrap_or_default();
            file.seek(SeekFrom::Start(from))?;
            sha_of_next(&mut file, bytes - from, &mut hash)?;
            Ok::<_, std::io::Error>(hash.finalize())
        };
        if run_blocking(now).await?.map_err(fail("read"))? != hash.clone().finalize() {
            return changed();
        }
    }
    if report.added > 0 && !options.dry_run {
        leave_inner(&**store, &session, &tree).await?;
    }
    let tail = if keeps { Some(tail_of(&end, report.bytes).map_err(fail("read"))?) } else { None };
    let (file, stamp) = (stamp, settled.filter(|stamp| *stamp == after && !went_on));
    Ok(ImportedFile { report, tree, root, last, next, lines, tail, file, hash, whole, stamp, own })
}

/// Place, time and node of the last entry that was read of a file, if its entries are all that the store has of the session:
/// then where those to come hang is known without reading it again.
async fn last_of(
    store: &dyn Graph,
    mark: &Mark,
    tree: &Tree,
) -> Result<Option<(u64, UnixMs, NodeId)>, StoreError> {
    let WriteBackState { next, last: Some(last), lines: 1.., .. } = mark.filed else { return Ok(None) };
    let Some(count) = next.checked_sub(1).filter(|count| *count > 0 && tree.is_plain(*count)) else {
        return Ok(None);
    };
    let last = store.nodes(&[last]).await?.into_iter().flatten().next();
    Ok(last.map(|last| (count, last.record.timestamp, last.id)))
}

/// What comes after the lines that were read before; `None` when these are not as they were.
fn after(mut file: File, mark: &Mark) -> std::io::Result<Option<Lines<BufReader<Hashing>>>> {
    // Where those stand who read it from its beginning.
    let at = file.stream_position()?;
    let hash = sha_of_first(&mut file, mark.bytes)?;
    if ChunkId(hash.clone().finalize().into()) != mark.sha256 {
        file.seek(SeekFrom::Start(at))?;
        return Ok(None);
    }
    let reader = BufReader::with_capacity(1 << 20, Hashing { file, hash, bytes: mark.bytes });
    let WriteBackState { next, lines, .. } = mark.filed;
    Ok(Some(Lines::after(reader, LINE_LIMIT, lines, mark.bytes, next)))
}

/// Takes in what the store has of a session. Of its nodes one batch is held at a time.
pub(super) async fn stored(
    store: &dyn Graph,
    root: NodeId,
    session: &SessionId,
    own: &OwnSessions,
    tree: &mut Tree,
) -> Result<(), StoreError> {
    if store.nodes(&[root]).await?.into_iter().flatten().next().is_none() {
        return Ok(());
    }
    let heads: Vec<NodeId> = tips(store, AGENT, session).await?.into_iter().map(|head| head.node).collect();
    let held: HashSet<NodeId> = heads.iter().copied().collect();
    let ends: HashSet<NodeId> = own.ends.iter().copied().collect();
    let is_inner = |node: &NodeId| held.contains(node) && !ends.contains(node);
    let mut inner: Vec<NodeId> = Some(root).filter(is_inner).into_iter().collect();
    let ours = store.below(root, &own.ends).await?;
    nodes_of(store, &ours, |node| {
        let is_end = ends.contains(&node.id);
        inner.extend(Some(node.id).filter(is_inner));
        tree.ours(node.id, node.record.parent, &ids_of(&node), is_end && held.contains(&node.id), is_end);
    })
    .await?;
    let mut others = store.below(root, &heads).await?;
    others.retain(|seq| ours.binary_search(seq).is_err());
    nodes_of(store, &others, |node| {
        let id = node.record.external_id.as_deref();
        tree.stored(node.id, node.record.parent, id, held.contains(&node.id));
    })
    .await?;
    tree.stored_inner(inner);
    Ok(())
}

/// Removes refs of ends that are none. They come from another import of the session that is under way, or was stopped while
/// its last commit was.
async fn leave_inner(store: &dyn Graph, session: &SessionId, tree: &Tree) -> Result<(), StoreError> {
    let ends = tree.ends();
    let mut others = tips(store, AGENT, session).await?;
    others.retain(|head| !ends.contains(&head.node));
    let nodes: Vec<NodeId> = others.iter().map(|head| head.node).collect();
    let mut batch = Commit::default();
    for (head, node) in others.into_iter().zip(store.nodes(&nodes).await?) {
        let id = node.and_then(|node| node.record.external_id);
        if tree.is_followed(id.as_deref(), head.node) {
            let (name, why) = (head.name, "import".into());
            batch.moves.push(RefMove { name, expect: RefExpectation::Any, to: None, fence: None, why });
        }
    }
    if batch.moves.is_empty() { Ok(()) } else { store.commit(batch).await }
}

/// The session's own ref: at the last entry of the longest file that was imported for it.
pub(super) async fn move_main(
    store: &dyn Graph,
    session: &SessionId,
    last: (u64, UnixMs, NodeId),
    note: Option<Mark>,
) -> Result<NodeId, ArchiveError> {
    let name = main_ref(AGENT, session);
    loop {
        let found = store.head(&name).await?;
        let current = match found {
            None => None,
            Some(node) => {
                let nodes: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
                let decoded = decode_whole(store, &nodes).await?;
                let pair = nodes.first().zip(decoded.first());
                pair.map(|(node, decoded)| {
                    (entry::place(&decoded.step).unwrap_or(0), node.record.timestamp, node.id)
                })
            }
        };
        let stays = match current {
            None => false,
            Some(current) if current.2 == last.2 => true,
            // One of ours has no place of its own.
            Some((0, _, node)) => store.fork_point(node, last.2).await? == Some(last.2),
            Some(current) => current >= last,
        };
        if stays && note.is_none() {
            return Ok(found.unwrap_or(last.2));
        }
        let head = if stays { found.unwrap_or(last.2) } else { last.2 };
        let mut batch = Commit::default();
        if !stays {
            batch.moves.push(RefMove::swap(name.clone(), found, last.2, "import"));
        }
        if let Some(note) = &note {
            batch.actions.push(note.action(found, Some(head)));
        }
        match store.commit(batch).await {
            Ok(()) => return Ok(head),
            // Another import was faster: whose file is longer is looked at again.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The hash of all that a file holds; the file stands at its beginning then.
pub(super) fn hash_of(mut file: File) -> std::io::Result<(File, Sha256)> {
    let mut reader = Hashing::new(file.try_clone()?);
    let mut buffer = vec![0; 256 << 10];
    while reader.read(&mut buffer)? > 0 {}
    file.rewind()?;
    Ok((file, reader.hash))
}

/// A file whose header was read.
pub(super) struct Source {
    lines: FileLines,
    pub(super) header: Header,
    /// To read lines again.
    file: File,
}

impl Source {
    #[cfg(test)]
    pub(super) fn into_parts(self) -> (FileLines, Header, File) {
        (self.lines, self.header, self.file)
    }

    pub(super) fn begin(file: File, path: PathBuf) -> Result<Self, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
        let again = file.try_clone().map_err(fail)?;
        let reader = BufReader::with_capacity(1 << 20, Hashing::new(file));
        let mut lines = Lines::new(reader, LINE_LIMIT);
        let mut skipped = Vec::new();
        loop {
            let Some(line) = lines.next().map_err(fail)? else {
                let why = if skipped.is_empty() { "it is empty" } else { "it contains no JSON" };
                return Err(ArchiveError::NotASession { path, why });
            };
            // The first line that is JSON must be the header.
            match Json::parse(&String::from_utf8_lossy(line.bytes)) {
                Ok(json) => {
                    let why = "its first line is not a header with type `session` and an id";
                    let Some(header) = Header::of(&json) else {
                        return Err(ArchiveError::NotASession { path, why });
                    };
                    // The header.
                    lines.set_objects(1);
                    let lines = FileLines { lines, path, skipped };
                    return Ok(Self { lines, header, file: again });
                }
                Err(_) if line.bytes.trim_ascii().is_empty() && !line.is_too_long() => {}
                Err(_) => skipped.push(line.place.number),
            }
        }
    }
}
