//! One look at a memory under its lock: what is known, what is on the disk, and what is added.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use quipu_protocol::{ChunkId, FileChange, FileState, NodeId, Unknown};
use quipu_seal::Sealer;
use quipu_store::{LineageEnd, NewChunk, RefMove, StoreError, decode_whole};
use sha2::{Digest as _, Sha256};
use similar::{Algorithm, DiffOp, capture_diff_slices};

use super::ledger::{
    ChangeRecord, FormerText, Ledger, LineAuthor, LineRange, NO_CONTENT, NOBODY, UNEXPLAINED,
};
use super::node::{NodeChain, NoteChange, change_of, content_of, ref_of};
use super::notebook::{NoteAuthor, Notebook, WrittenNote};
use super::observe::{UnexplainedChange, of_repository};
use super::shape::{FileShapes, TextShape, shaped};
use crate::files::{
    FILE_BYTES, FileName, FileProblem, FileStamp, FileText, Replacement, list_files, read_file, replace,
};
use crate::lock::FileLock;
use crate::{AuthorClass, MemoryError};

/// How often a file, or the ref, may be changed by somebody else before we give up.
const TRIES: usize = 8;
/// Nodes that are read at a time.
const PAGE: usize = 256;
/// Bytes of the cache of what is known at most.
const CACHE: u64 = 64 << 20;
/// Letters of what makes a change.
const BY: usize = 100;

/// A text that a state keeps.
#[derive(Debug, Clone)]
struct TextState {
    /// `None`: it is not known any more.
    text: Option<String>,
    content: ChunkId,
    state: FileState,
    /// Its lines, where the graph does not keep the text.
    shape: Option<TextShape>,
}

impl TextState {
    fn new_text(&self) -> Option<(&str, ChunkId)> {
        self.text.as_deref().map(|text| (text, self.content))
    }

    fn line_count(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.lines().count())
    }
}

/// A file became another one.
fn change_of_file(ledger: &mut Ledger, file: &FileDraft, node: NodeId, sealer: &Sealer) {
    let (name, after) = (file.name.as_str(), file.after.as_ref());
    let new = after.and_then(TextState::new_text);
    match &file.before {
        None => ledger.change(name, FormerText::Absent, new, node),
        Some(TextState { text: Some(text), .. }) => ledger.change(name, FormerText::Text(text), new, node),
        // Of the text before only the lines are known: those of the new one are compared with them.
        Some(TextState { shape: Some(shape), .. }) => {
            let new = new.map(|(text, content)| (shaped(text, sealer), content));
            let new = new.as_ref().map(|(text, content)| (text.as_str(), *content));
            ledger.change(name, FormerText::Text(&shape.lines), new, node);
        }
        Some(TextState { shape: None, .. }) => ledger.change(name, FormerText::Unknown, new, node),
    }
    if let Some(known) = ledger.files.get_mut(name) {
        known.stamp = file.stamp;
        known.shape = after.and_then(|after| after.shape.clone());
    }
}

/// A change that is no node yet.
#[derive(Debug, Clone)]
struct ChangeDraft {
    class: AuthorClass,
    said: NoteChange,
    files: Vec<FileDraft>,
}

#[derive(Debug, Clone)]
struct FileDraft {
    name: FileName,
    /// `None`: there was no file, or nobody knows what it was.
    before: Option<TextState>,
    after: Option<TextState>,
    stamp: FileStamp,
}

/// Holds the lock of the memory.
pub(super) struct Pass<'a> {
    book: &'a Notebook,
    _lock: FileLock,
    ledger: Ledger,
    pending: Vec<ChangeDraft>,
}

fn now() -> i64 {
    quipu::Clock::now(&quipu::SystemClock)
}

impl<'a> Pass<'a> {
    pub(super) async fn begin(book: &'a Notebook) -> Result<Self, MemoryError> {
        let lock = FileLock::take(&book.state.join(format!("{}.lock", book.place.id))).await?;
        let ledger = load(book).await?;
        Ok(Self { book, _lock: lock, ledger, pending: Vec::new() })
    }

    pub(super) async fn observe_and_commit(mut self) -> Result<Vec<UnexplainedChange>, MemoryError> {
        let found = self.observe().await?;
        let nodes = self.commit().await?;
        Ok(named(found, &nodes))
    }

    /// Finds files that are not as the last node left them. Files that cannot be read stay as they are known.
    async fn observe(&mut self) -> Result<Vec<FileName>, MemoryError> {
        let root = &self.book.place.root;
        let list = list_files(root);
        let mut files = Vec::new();
        for file in &list.files {
            let known = self.ledger.files.get(file.name.as_str());
            if known.is_some_and(|known| known.stamp == file.stamp) {
                continue;
            }
            let Ok(text) = read_file(root, &file.name) else { continue };
            files.extend(self.difference(&file.name, Some(&text)).await?);
        }
        let there: Vec<&str> = list.files.iter().map(|file| file.name.as_str()).collect();
        let is_unreadable =
            |name: &str| list.problems.iter().any(|(path, _)| root.join(name).starts_with(path));
        let gone: Vec<FileName> = self
            .ledger
            .files
            .keys()
            .filter(|name| !there.contains(&name.as_str()) && !is_unreadable(name))
            .filter_map(|name| FileName::new(name).ok())
            .collect();
        for name in gone {
            files.extend(self.difference(&name, None).await?);
        }
        let names = files.iter().map(|file| file.name.clone()).collect();
        if !files.is_empty() {
            let said = NoteChange { by: UNEXPLAINED.to_owned(), ..NoteChange::default() };
            self.add(ChangeDraft { class: AuthorClass::Untrusted, said, files });
        }
        Ok(names)
    }

    /// How a file differs from what the last node left.
    async fn difference(
        &mut self,
        name: &FileName,
        text: Option<&FileText>,
    ) -> Result<Option<FileDraft>, MemoryError> {
        let after = text.map(|text| kept(&text.text, &text.stamp, &self.book.sealer));
        let known = self.ledger.files.get_mut(name.as_str());
        if let (Some(known), Some(after), Some(text)) = (known, &after, text)
            && known.content == after.content
        {
            known.stamp = text.stamp;
            return Ok(None);
        }
        let before = self.before(name).await?;
        if before.is_none() && after.is_none() {
            return Ok(None);
        }
        let stamp = text.map(|text| text.stamp).unwrap_or_default();
        Ok(Some(FileDraft { name: name.clone(), before, after, stamp }))
    }

    /// A file as the last node left it.
    async fn before(&self, name: &FileName) -> Result<Option<TextState>, MemoryError> {
        let Some(known) = self.ledger.files.get(name.as_str()) else { return Ok(None) };
        let pending = self.pending.iter().rev().flat_map(|change| &change.files);
        if let Some(file) = pending.into_iter().find(|file| file.name == *name) {
            return Ok(file.after.clone());
        }
        let text = text_of(self.book, known.content).await?;
        Ok(Some(match text {
            Some(text) => kept(&text, &known.stamp, &self.book.sealer),
            None => {
                let state = FileState::unknown(Unknown::Secret);
                TextState { text: None, content: known.content, state, shape: known.shape.clone() }
            }
        }))
    }

    pub(super) async fn write(
        &mut self,
        name: &FileName,
        author: &NoteAuthor,
        mut edit: impl FnMut(&str) -> Option<String> + Send,
    ) -> Result<Option<WrittenNote>, MemoryError> {
        let path = self.book.place.root.join(name.as_str());
        let mut observed = Vec::new();
        let mut unexplained = Vec::new();
        for _ in 0..TRIES {
            observed.extend(self.observe().await?);
            let old = match read_file(&self.book.place.root, name) {
                Ok(text) => match text.conflict {
                    Some(line) => return Err(self.book.refused(name, FileProblem::Conflict(line))),
                    None => Some(text),
                },
                Err(FileProblem::Missing) => None,
                Err(problem) => return Err(self.book.refused(name, problem)),
            };
            let before = old.as_ref().map(|old| kept(&old.text, &old.stamp, &self.book.sealer));
            let known = self.ledger.files.get(name.as_str()).map(|known| known.content);
            if known != before.as_ref().map(|before| before.content) {
                continue;
            }
            let old_text = old.as_ref().map_or("", |old| old.text.as_str());
            let wanted = edit(old_text).filter(|new| new != old_text);
            let Some(wanted) = wanted else {
                let nodes = self.commit().await?;
                unexplained.extend(named(observed, &nodes));
                return Ok(None);
            };
            let new = match author.class {
                // A person's words are that person's.
                AuthorClass::Owner => wanted,
                AuthorClass::Agent | AuthorClass::Untrusted | AuthorClass::System => {
                    sealed(old_text, &wanted, &self.book.sealer)
                }
            };
            if new.len() as u64 > FILE_BYTES {
                return Err(MemoryError::TooLarge { path, bytes: new.len() as u64, limit: FILE_BYTES });
            }
            let replaced = replace(&path, old.as_ref().map(|old| old.text.as_bytes()), new.as_bytes());
            let former = match replaced.map_err(MemoryError::io("write", &path))? {
                Replacement::Changed(ours) => {
                    ours.bring_over(&path).map_err(MemoryError::io("write", &path))?;
                    continue;
                }
                Replacement::Done(former) => former,
            };
            let stamp =
                std::fs::symlink_metadata(&path).map(|found| FileStamp::from(&found)).unwrap_or_default();
            let after = Some(kept(&new, &stamp, &self.book.sealer));
            let said = NoteChange {
                by: author.by.chars().take(BY).collect(),
                sources: author.sources.clone(),
                ..NoteChange::default()
            };
            let file = FileDraft { name: name.clone(), before, after, stamp };
            self.add(ChangeDraft { class: author.class, said, files: vec![file] });
            let nodes = self.commit().await;
            // A program that had the file open may have written to it after it was replaced.
            let brought = former.bring_over(&path).map_err(MemoryError::io("write", &path));
            let nodes = nodes?;
            unexplained.extend(named(std::mem::take(&mut observed), &nodes));
            let node = nodes.last().copied();
            if brought? {
                let observed = self.observe().await?;
                let nodes = self.commit().await?;
                unexplained.extend(named(observed, &nodes));
            }
            let Some(node) = node else { return Ok(None) };
            return Ok(Some(WrittenNote { node, name: name.clone(), text: new, unexplained }));
        }
        Err(MemoryError::Unsettled(path))
    }

    /// Who wrote the lines of a text, which is that of the file now.
    pub(super) fn authors(&self, text: &FileText) -> Vec<LineAuthor> {
        let name = text.name.as_str();
        let now = kept(&text.text, &text.stamp, &self.book.sealer).content;
        if self.ledger.files.get(name).is_some_and(|known| known.content == now) {
            let found = self.ledger.authors(name);
            let last = found.last().map_or(0, |author| author.lines.last);
            if usize::try_from(last).is_ok_and(|last| last == text.text.lines().count()) {
                return found;
            }
        }
        // Nobody has looked since it changed: what differs will be untrusted.
        of_repository(text, false)
    }

    /// A person accepted these lines.
    pub(super) async fn accept(
        mut self,
        accepted: BTreeMap<String, Vec<LineRange>>,
    ) -> Result<Option<NodeId>, MemoryError> {
        let said = NoteChange { by: "review".to_owned(), accepted, ..NoteChange::default() };
        self.pending.push(ChangeDraft { class: AuthorClass::Owner, said, files: Vec::new() });
        Ok(self.commit().await?.last().copied())
    }

    fn add(&mut self, change: ChangeDraft) {
        // As if it were committed, so that what follows sees it; the node is not known yet.
        for file in &change.files {
            change_of_file(&mut self.ledger, file, NOBODY, &self.book.sealer);
        }
        self.pending.push(change);
    }

    /// Makes nodes of what is pending, and moves the ref. Gives the node of each change.
    async fn commit(&mut self) -> Result<Vec<NodeId>, MemoryError> {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            save(self.book, &self.ledger);
            return Ok(Vec::new());
        }
        let name = ref_of(&self.book.place);
        for _ in 0..TRIES {
            let mut ledger = load(self.book).await?;
            let (mut chain, expect) = chain_at(self.book, ledger.head).await?;
            let mut nodes = Vec::new();
            for change in &pending {
                let node = place(&mut chain, change);
                record(&mut ledger, change, node, &self.book.sealer);
                nodes.push(node);
            }
            let Some(head) = chain.head else { break };
            ledger.head = Some(head);
            let why = CHANGED;
            let mut commit = chain.commit;
            commit.moves.push(RefMove::swap(name.clone(), expect, head, why));
            match self.book.store.commit(commit).await {
                Ok(()) => {
                    save(self.book, &ledger);
                    self.ledger = ledger;
                    return Ok(nodes);
                }
                // Undo or redo was faster.
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(MemoryError::Busy(self.book.place.root.clone()))
    }
}

/// Why the ref of a memory moves, so that each change is a step that can be undone.
const CHANGED: &str = "memory";

fn named(files: Vec<FileName>, nodes: &[NodeId]) -> Vec<UnexplainedChange> {
    let Some(node) = nodes.first().copied() else { return Vec::new() };
    files.into_iter().map(|name| UnexplainedChange { name, node }).collect()
}

/// A text and its state: without its bytes where it holds a secret.
fn kept(text: &str, stamp: &FileStamp, sealer: &Sealer) -> TextState {
    let content = ChunkId(Sha256::digest(text.as_bytes()).into());
    let size = text.len() as u64;
    let (state, shape) = match sealer.seal(text) {
        Cow::Owned(_) => {
            let state = FileState::Unknown { why: Unknown::Secret, size: Some(size) };
            (state, Some(TextShape::of(text, sealer)))
        }
        Cow::Borrowed(_) => (FileState::File { mode: stamp.mode(), size, content }, None),
    };
    TextState { text: Some(text.to_owned()), content, state, shape }
}

/// The new text with the secrets of what is new in it replaced; what stood there before stays.
fn sealed(old: &str, new: &str, sealer: &Sealer) -> String {
    if let Some(added) = new.strip_prefix(old) {
        return format!("{old}{}", sealer.seal(added));
    }
    let (old_lines, new_lines): (Vec<&str>, Vec<&str>) =
        (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
    let mut text = String::with_capacity(new.len());
    for op in capture_diff_slices(Algorithm::Myers, &old_lines, &new_lines) {
        let lines = new_lines[op.new_range()].concat();
        match op {
            DiffOp::Equal { .. } => text.push_str(&lines),
            DiffOp::Delete { .. } | DiffOp::Insert { .. } | DiffOp::Replace { .. } => {
                text.push_str(&sealer.seal(&lines));
            }
        }
    }
    text
}

fn place(chain: &mut NodeChain, change: &ChangeDraft) -> NodeId {
    let state = |kept: Option<&TextState>| kept.map_or(FileState::Absent, |kept| kept.state.clone());
    let mut said = change.said.clone();
    let mut files = Vec::new();
    let mut words = Vec::new();
    for file in &change.files {
        let (before, after) = (state(file.before.as_ref()), state(file.after.as_ref()));
        for kept in [&file.before, &file.after].into_iter().flatten() {
            if let (Some(id), Some(text)) = (content_of(&kept.state), &kept.text) {
                chain.keep(NewChunk::Full { id, bytes: Arc::from(text.as_bytes()) });
            }
        }
        words.push(format!("{}: {}", file.name, difference_in_words(file)));
        let path = file.name.as_str().to_owned();
        let shape = |state: &Option<TextState>| state.as_ref().and_then(|state| state.shape.clone());
        let shapes =
            FileShapes { before: shape(&file.before).map(|shape| shape.whole), after: shape(&file.after) };
        if !shapes.is_empty() {
            said.shapes.insert(path.clone(), shapes);
        }
        files.push(FileChange { path, before, after });
    }
    for (path, ranges) in &change.said.accepted {
        for LineRange { first, last } in ranges {
            words.push(format!("{path}: lines {first} to {last} accepted"));
        }
    }
    let text = format!("{} ({}, by {})", words.join("; "), change.class.name(), change.said.by);
    chain.change(text, change.class, &said, files, now())
}

fn difference_in_words(file: &FileDraft) -> String {
    let lines = |kept: &Option<TextState>| kept.as_ref().map_or(0, TextState::line_count);
    match (&file.before, &file.after) {
        (Some(before), Some(after)) => {
            let [old, new] = [before, after]
                .map(|state| state.text.iter().flat_map(|text| text.lines()).collect::<Vec<_>>());
            let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
            let ops = similar::capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(end));
            let changed = ops.iter().filter(|op| !matches!(op, DiffOp::Equal { .. }));
            let (added, removed) = changed.fold((0, 0), |(added, removed), op| {
                (added + op.new_range().len(), removed + op.old_range().len())
            });
            format!("{added} line(s) added, {removed} removed")
        }
        (None, after) => format!("new, {} line(s)", lines(after)),
        (before, None) => format!("removed, {} line(s)", lines(before)),
    }
}

fn record(ledger: &mut Ledger, change: &ChangeDraft, node: NodeId, sealer: &Sealer) {
    let NoteChange { by, sources, accepted, .. } = &change.said;
    let said = ChangeRecord { class: change.class, by: by.clone(), at: now(), sources: sources.clone() };
    ledger.nodes.insert(node, said);
    for file in &change.files {
        change_of_file(ledger, file, node, sealer);
    }
    for (path, ranges) in accepted {
        ranges.iter().for_each(|range| ledger.accept(path, *range, node));
    }
}

async fn chain_at(book: &Notebook, head: Option<NodeId>) -> Result<(NodeChain, Option<NodeId>), MemoryError> {
    match head {
        Some(head) => {
            let node = book.store.nodes(&[head]).await?.into_iter().flatten().next();
            let (listed, last) =
                node.map_or((None, 0), |node| (node.record.external_id, node.record.timestamp));
            Ok((NodeChain::below(Some(head), listed, last), Some(head)))
        }
        None => {
            let mut chain = NodeChain::below(None, None, 0);
            chain.begin(&book.place, now());
            Ok((chain, None))
        }
    }
}

async fn text_of(book: &Notebook, content: ChunkId) -> Result<Option<String>, MemoryError> {
    match book.store.chunk(content, 0..u64::MAX).await {
        Ok(bytes) => Ok(String::from_utf8(bytes).ok()),
        Err(StoreError::Missing { .. } | StoreError::Erased { .. } | StoreError::Corrupt { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// What is known, from the file of the last time where it is of the node at which the ref stands; else from the nodes.
async fn load(book: &Notebook) -> Result<Ledger, MemoryError> {
    let head = book.store.head(&ref_of(&book.place)).await?;
    let cached = std::fs::metadata(cache_path(book))
        .ok()
        .filter(|found| found.is_file() && found.len() <= CACHE)
        .and_then(|_| std::fs::read(cache_path(book)).ok())
        .and_then(|bytes| serde_json::from_slice::<Ledger>(&bytes).ok());
    if let Some(ledger) = cached.filter(|known| known.version == Ledger::VERSION && known.head == head) {
        return Ok(ledger);
    }
    let mut ledger = Ledger::new();
    ledger.head = head;
    let Some(head) = head else { return Ok(ledger) };
    let nodes = book.store.lineage(head, LineageEnd::Root).await?;
    for nodes in nodes.chunks(PAGE) {
        let decoded = decode_whole(&*book.store, nodes).await?;
        for (node, decoded) in nodes.iter().zip(decoded) {
            let said = change_of(&decoded);
            if let Some((class, NoteChange { by, sources, .. })) = &said {
                let at = node.record.timestamp;
                let record = ChangeRecord { class: *class, by: by.clone(), at, sources: sources.clone() };
                ledger.nodes.insert(node.id, record);
            }
            for FileChange { path, before, after } in &decoded.step.files {
                let shapes = said.as_ref().and_then(|(_, said)| said.shapes.get(path));
                apply(book, &mut ledger, path, (before, after), (shapes, node.id)).await?;
            }
            let accepted: BTreeMap<_, _> = said.map(|(_, said)| said.accepted).unwrap_or_default();
            for (path, ranges) in accepted {
                ranges.iter().for_each(|range| ledger.accept(&path, *range, node.id));
            }
        }
    }
    recognize(book, &mut ledger);
    save(book, &ledger);
    Ok(ledger)
}

/// Finds the content of files that nodes know by their lines alone, where they are as the last node left them.
fn recognize(book: &Notebook, ledger: &mut Ledger) {
    for (name, known) in &mut ledger.files {
        let Some(shape) = known.shape.as_ref().filter(|_| known.content == NO_CONTENT) else { continue };
        let Ok(name) = FileName::new(name) else { continue };
        let Ok(text) = read_file(&book.place.root, &name) else { continue };
        if book.sealer.fingerprint(&text.text) == shape.whole {
            known.content = ChunkId(Sha256::digest(text.text.as_bytes()).into());
        }
    }
}

/// A text before a change, as far as nodes know it.
enum KnownText {
    Text(String),
    Shape(TextShape),
}

impl KnownText {
    /// Its lines, and those of the text after it, so that they can be compared.
    fn beside<'a>(&'a self, new: &'a str, sealer: &Sealer) -> (&'a str, Cow<'a, str>) {
        match self {
            Self::Text(text) => (text, Cow::Borrowed(new)),
            Self::Shape(shape) => (&shape.lines, Cow::Owned(shaped(new, sealer))),
        }
    }

    fn lines(&self, sealer: &Sealer) -> String {
        match self {
            Self::Text(text) => shaped(text, sealer),
            Self::Shape(shape) => shape.lines.clone(),
        }
    }

    fn is(&self, whole: &str, sealer: &Sealer) -> bool {
        match self {
            Self::Text(text) => sealer.fingerprint(text) == whole,
            Self::Shape(shape) => shape.whole == whole,
        }
    }
}

/// A change of a file that a node says.
async fn apply(
    book: &Notebook,
    ledger: &mut Ledger,
    path: &str,
    (before, after): (&FileState, &FileState),
    (shapes, node): (Option<&FileShapes>, NodeId),
) -> Result<(), MemoryError> {
    let sealer = &*book.sealer;
    let (known, shape) = match ledger.files.get(path) {
        Some(file) => (Some(file.content), file.shape.clone()),
        None => (None, None),
    };
    let text = match known {
        Some(content) => text_of(book, content).await?,
        None => None,
    };
    let mut old = text.map(KnownText::Text).or(shape.map(KnownText::Shape));
    match before {
        FileState::Absent => {
            ledger.files.remove(path);
        }
        FileState::File { content, .. } if Some(*content) == known => {}
        // Nodes that are missing between: what they changed is nobody's.
        FileState::File { content, .. } => {
            let found = text_of(book, *content).await?;
            match &found {
                Some(text) => became(ledger, path, old.as_ref(), (text, *content), NOBODY, sealer),
                None => ledger.lose(path, *content),
            }
            old = found.map(KnownText::Text);
        }
        FileState::Link { .. } | FileState::Directory { .. } | FileState::Unknown { .. } => {
            let whole = shapes.and_then(|shapes| shapes.before.as_deref());
            old = old.filter(|old| whole.is_some_and(|whole| old.is(whole, sealer)));
            if old.is_none() {
                ledger.lose(path, NO_CONTENT);
            }
        }
    }
    if *before == FileState::Absent {
        old = None;
    }
    match (after, shapes.and_then(|shapes| shapes.after.as_ref())) {
        (FileState::File { content, .. }, _) => match text_of(book, *content).await? {
            Some(text) if *before == FileState::Absent => {
                ledger.change(path, FormerText::Absent, Some((&text, *content)), node);
            }
            Some(text) => became(ledger, path, old.as_ref(), (&text, *content), node, sealer),
            None => ledger.lose(path, *content),
        },
        (FileState::Absent, _) => {
            ledger.files.remove(path);
        }
        (FileState::Unknown { .. }, Some(shape)) => {
            let lines = old.as_ref().map(|old| old.lines(sealer));
            let former = match (before, lines.as_deref()) {
                (FileState::Absent, _) => FormerText::Absent,
                (_, Some(lines)) => FormerText::Text(lines),
                (_, None) => FormerText::Unknown,
            };
            ledger.change(path, former, Some((&shape.lines, NO_CONTENT)), node);
            if let Some(known) = ledger.files.get_mut(path) {
                known.shape = Some(shape.clone());
            }
        }
        (FileState::Link { .. } | FileState::Directory { .. } | FileState::Unknown { .. }, _) => {
            ledger.lose(path, NO_CONTENT);
        }
    }
    if let (FileState::File { mode, .. }, Some(known)) = (after, ledger.files.get_mut(path)) {
        known.stamp = FileStamp::of_mode(*mode);
    }
    Ok(())
}

/// A file that was there became another one.
fn became(
    ledger: &mut Ledger,
    path: &str,
    old: Option<&KnownText>,
    (text, content): (&str, ChunkId),
    node: NodeId,
    sealer: &Sealer,
) {
    match old.map(|old| old.beside(text, sealer)) {
        Some((old, new)) => ledger.change(path, FormerText::Text(old), Some((&new, content)), node),
        None => ledger.change(path, FormerText::Unknown, Some((text, content)), node),
    }
}

fn cache_path(book: &Notebook) -> std::path::PathBuf {
    book.state.join(format!("{}.json", book.place.id))
}

/// Keeps what is known for the next time. Without it the nodes are read again, so that a failure costs time alone.
fn save(book: &Notebook, ledger: &Ledger) {
    let kept = || -> std::io::Result<()> {
        let text = serde_json::to_vec(ledger).map_err(std::io::Error::other)?;
        let mut aside = tempfile::Builder::new().prefix(".known-").tempfile_in(&book.state)?;
        std::io::Write::write_all(&mut aside, &text)?;
        aside.persist(cache_path(book)).map_err(|error| error.error)?;
        Ok(())
    };
    if let Err(error) = kept() {
        tracing::debug!(memory = book.place.id, %error, "what is known of a memory was not kept");
    }
}
