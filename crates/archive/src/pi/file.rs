//! A session file that is gone on with: what is in it comes into the graph, and what the graph gets is appended to it.
//!
//! The graph is first: a line is written when its node is durable, and what a crash kept from the file is written when it
//! is opened next. Whole lines are appended, in one write; nothing of the file is ever changed or taken away, so that
//! what another program appends meanwhile stays. Each line names what it follows, so the file becomes a tree then.

use std::collections::{BTreeMap, HashMap, HashSet, hash_map};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use quipu_dag::Node;
use quipu_protocol::{ChunkId, Entry, NodeId, SessionId};
use quipu_seal::Sealer;
use quipu_store::{Graph, LineageEnd, RefName, SessionRow, StoreError, decode_whole};
use sha2::{Digest as _, Sha256};

use super::chain::{Chain, header_line, ids_of, note_id, references, settings_at};
use super::disk::{Job, WriteFailure, find, is_same, last_line};
use super::entry::place;
use super::export::notes;
use super::import::{ImportOptions, ImportedFile, PriorState, hash_of, move_main, run_blocking, take};
use super::own::{OwnSessions, began, file_under, unbegun};
use super::{AGENT, VERSION};
use crate::import_cache::{Mark, WriteBackState};
use crate::intake::open_file;
use crate::tree::Tree;
use crate::{ArchiveError, ImportCache, Progress, Report};

/// Nodes that one commit of a session mostly adds at most.
const NEAR: usize = 8;
/// Nodes whose lines are appended in one write.
const PIECE: usize = 500;

/// The final report of a session file.
#[derive(Debug)]
pub struct FinishReport {
    /// Nodes of our own that it lacks, and why.
    pub lacking: Option<(u64, WriteFailure)>,
    /// What another program appended meanwhile was taken in.
    pub taken: Option<Report>,
}

/// A session file, open and locked: no other process of ours opens it meanwhile.
#[derive(Debug)]
pub struct SessionFile {
    path: PathBuf,
    /// Holds the lock.
    file: Arc<File>,
    /// To append with; `None` when that was refused.
    writer: Option<Arc<File>>,
    /// We made it.
    made: bool,
    /// The version that it had, when it was migrated.
    migrated: Option<u64>,
    /// The session of its header; `None` while it holds nothing.
    session: Option<SessionId>,
    /// Bytes that it had when we looked last.
    size: u64,
    /// Whether its last line has an end.
    ended: bool,
    /// What stands at its end and is no whole line: perhaps the beginning of what is to be written.
    torn: Vec<u8>,
    /// It was one of ours, and is whole now.
    completed: bool,
    /// Of all that it holds; `None` when that is not known any more.
    hash: Option<Sha256>,
    /// The place of the next entry.
    next: u64,
    /// The node of its last entry.
    last: Option<NodeId>,
    /// Nodes that stand in it and can be gone on from, with the id that a line which follows them names.
    known: HashMap<NodeId, Option<String>>,
    /// Sessions of ours that were noted as written to it, and the nodes up to which they are.
    filed: HashSet<SessionId>,
    written: BTreeMap<SessionId, NodeId>,
    noted: Option<NodeId>,
    /// What was taken in when it was opened.
    report: Option<Report>,
    /// Nodes whose lines were added when it was opened.
    healed: u64,
    /// Something was appended by us.
    grown: bool,
    /// Another program appended something.
    foreign: bool,
    lacking: u64,
    why: Option<WriteFailure>,
}

impl SessionFile {
    /// Opens a file, or makes an empty one (0600) where there is none; its directory must be there. What it holds comes
    /// into the graph, and what the graph has of it that it lacks is written to it. A file of an older version becomes
    /// one of version 3 first.
    ///
    /// # Errors
    /// `File`, `NotASession`, `InUse`, `Changed`, `Store`; `File` too when what it lacks cannot be written.
    pub async fn open(
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        path: &Path,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, ArchiveError> {
        Self::find(path).await?.read(store, sealer, progress).await
    }

    /// Opens a file, or makes an empty one, and brings it to version 3, as [`SessionFile::open`] does first. What it holds
    /// is not read yet.
    ///
    /// # Errors
    /// `File`, `NotASession`, `InUse`, `Changed`.
    pub async fn find(path: &Path) -> Result<Self, ArchiveError> {
        let asked = path.to_owned();
        let (found, version) = run_blocking(move || find(&asked)).await??;
        Ok(Self {
            path: found.path,
            file: Arc::new(found.file),
            writer: found.writer.map(Arc::new),
            made: found.made,
            migrated: version.filter(|version| *version < VERSION),
            session: None,
            size: found.size,
            ended: true,
            torn: Vec::new(),
            completed: false,
            hash: Some(Sha256::new()),
            next: 0,
            last: None,
            known: HashMap::new(),
            filed: HashSet::new(),
            written: BTreeMap::new(),
            noted: None,
            report: None,
            healed: 0,
            grown: false,
            foreign: false,
            lacking: 0,
            why: None,
        })
    }

    /// Sessions that earlier versions announced, which began a call before they opened one, and that did not come to be; the
    /// newest first.
    ///
    /// # Errors
    /// What the store says.
    pub async fn announced(&self, store: &dyn Graph) -> Result<Vec<SessionId>, StoreError> {
        match &self.session {
            Some(session) => unbegun(store, &self.path, session).await,
            None => Ok(Vec::new()),
        }
    }

    /// Reads a file that was found: the rest of [`SessionFile::open`].
    ///
    /// # Errors
    /// As [`SessionFile::open`].
    pub fn read<'a>(
        self,
        store: &'a Arc<dyn Graph>,
        sealer: &'a Arc<Sealer>,
        progress: &'a (dyn Fn(Progress) + Sync),
    ) -> Pin<Box<dyn Future<Output = Result<Self, ArchiveError>> + Send + 'a>> {
        // Boxed in this crate: each crate that awaits an `async fn` gets a copy of its code.
        Box::pin(self.read_found(store, sealer, progress))
    }

    async fn read_found(
        self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Self, ArchiveError> {
        let mut this = self;
        let cache = ImportCache::load(&**store).await?;
        if this.size == 0 {
            this.begin_again(&**store, &cache).await?;
            return Ok(this);
        }
        if this.is_as_noted(&**store, cache.of(AGENT, &this.path)).await? {
            return Ok(this);
        }
        let options = ImportOptions { dry_run: false, progress };
        let taken =
            take(store, sealer, open_file(&this.path)?, &this.path, PriorState::default(), &options).await?;
        let note = taken.whole.then(|| taken.mark()).filter(|note| cache.of(AGENT, &this.path) != Some(note));
        let head = move_main(&**store, &taken.report.session, taken.last, note).await?;
        this.session = Some(taken.report.session.clone());
        this.size = taken.report.bytes;
        this.hash = Some(taken.hash.clone());
        (this.next, this.last, this.ended) = (taken.next, Some(taken.last.2), taken.whole);
        if !taken.whole {
            let file = this.file.clone();
            let size = this.size;
            let torn = run_blocking(move || last_line(&file, size)).await?;
            this.torn = torn.map_err(|source| this.failed("read", source))?;
        }
        if taken.own.root.is_none() {
            this.known.insert(taken.root, None);
        }
        this.known.insert(taken.last.2, name_of(&**store, taken.last.2).await?);
        // Nothing of ours follows one without an id but directly.
        let is_there = |node: &Node| node.record.external_id.is_none() || is_met(&taken.tree, node);
        this.heal(&**store, &taken.own, &is_there).await?;
        this.write_notes(store, sealer, &taken).await?;
        let mut report = taken.report;
        report.head = Some(head);
        report.lost = report.lost.saturating_sub(u64::from(this.completed));
        this.report = Some(report);
        Ok(this)
    }

    /// An empty file that a session of ours was about to begin when its process died.
    async fn begin_again(&mut self, store: &dyn Graph, cache: &ImportCache) -> Result<(), ArchiveError> {
        if self.made || cache.of(AGENT, &self.path).is_some() {
            return Ok(());
        }
        let Some(row) = began(store, &self.path).await? else { return Ok(()) };
        let Some(head) = row.head else { return Ok(()) };
        let (_, path) = path_to(store, head, &|_| false).await?;
        self.filed.insert(row.id.clone());
        self.last = Some(head);
        match self.write_path(store, None, &path).await {
            Ok(lines) => self.healed += lines,
            Err(error) => {
                self.lacking += path.len() as u64;
                self.why = Some(error);
                return Ok(());
            }
        }
        self.written.insert(row.id, head);
        Ok(())
    }

    /// Whether everything is as it was when we were done with it last.
    async fn is_as_noted(&mut self, store: &dyn Graph, mark: Option<&Mark>) -> Result<bool, ArchiveError> {
        let Some((mark, last)) = mark.and_then(|mark| Some((mark, mark.filed.last?))) else {
            return Ok(false);
        };
        if mark.bytes != self.size || mark.filed.next == 0 || self.migrated.is_some() {
            return Ok(false);
        }
        let own = OwnSessions::of(store, &mark.session).await?;
        for row in &own.rows {
            let filed = own.is_filed(&self.path, &row.id) || row.id == mark.session;
            if filed && row.head.is_some() && row.head != mark.filed.written.get(&row.id).copied() {
                return Ok(false);
            }
        }
        if store.head(&RefName::notes(AGENT, &mark.session)).await? != mark.filed.notes {
            return Ok(false);
        }
        let file = open_file(&self.path)?;
        let (_, hash) =
            run_blocking(move || hash_of(file)).await?.map_err(|source| self.failed("read", source))?;
        if ChunkId(hash.clone().finalize().into()) != mark.sha256 {
            return Ok(false);
        }
        self.session = Some(mark.session.clone());
        self.hash = Some(hash);
        (self.next, self.last) = (mark.filed.next, Some(last));
        (self.written, self.noted) = (mark.filed.written.clone(), mark.filed.notes);
        self.filed = self.written.keys().cloned().collect();
        let ends: Vec<NodeId> = self.written.values().copied().chain([last]).collect();
        for node in ends {
            self.known.insert(node, name_of(store, node).await?);
        }
        Ok(true)
    }

    /// Appends what sessions of ours have and the file has not. What cannot be written is tried again with the next node.
    async fn heal(
        &mut self,
        store: &dyn Graph,
        own: &OwnSessions,
        is_there: &(dyn Fn(&Node) -> bool + Sync),
    ) -> Result<(), ArchiveError> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let first = self.last;
        let heads: Vec<NodeId> = own.rows.iter().filter_map(|row| row.head).collect();
        let mut wrote = HashSet::new();
        for row in &own.rows {
            let Some(head) = row.head else { continue };
            let (anchor, path) = path_to(store, head, is_there).await?;
            // Another file with the same header, such as a copy, has sessions of its own.
            let is_ours = row.id == session || own.is_filed(&self.path, &row.id);
            if !is_ours && path.contains(&row.base) {
                continue;
            }
            file_under(store, &self.path, &session, &row.id).await?;
            self.filed.insert(row.id.clone());
            // Where the file ends there, the session goes on at its head.
            let is_end = anchor.as_ref().map(|node| node.id) == first;
            if let Some(anchor) = &anchor {
                self.known.insert(anchor.id, name_of(store, anchor.id).await?);
            }
            if !path.is_empty() && !self.heal_up_to(store, own, head, &mut wrote, is_there).await? {
                continue;
            }
            // Or went back from there since, over a compaction or to another branch.
            let went_back = match first {
                Some(first) if own.ends.contains(&first) && heads.iter().all(|head| *head != first) => {
                    self.last_is_ours(store).await? && store.fork_point(head, first).await? == Some(head)
                }
                Some(_) | None => false,
            };
            if is_end || went_back {
                self.last = Some(head);
            }
            if let hash_map::Entry::Vacant(known) = self.known.entry(head) {
                known.insert(name_of(store, head).await?);
            }
            self.written.insert(row.id.clone(), head);
        }
        Ok(())
    }

    /// Appends what leads to the head of a session, and before that the ends that its sessions left, so that the head
    /// stands last. Says whether that could be written.
    async fn heal_up_to(
        &mut self,
        store: &dyn Graph,
        own: &OwnSessions,
        head: NodeId,
        wrote: &mut HashSet<NodeId>,
        is_there: &(dyn Fn(&Node) -> bool + Sync),
    ) -> Result<bool, ArchiveError> {
        let elsewhere = |path: &[NodeId]| {
            let here = |row: &SessionRow| {
                self.session.as_ref() == Some(&row.id) || own.is_filed(&self.path, &row.id)
            };
            own.rows.iter().any(|row| path.contains(&row.base) && !here(row))
        };
        let mut paths = Vec::new();
        for end in own.left(store).await?.iter().filter(|end| **end != head).chain([&head]) {
            let known = |node: &Node| is_there(node) || wrote.contains(&node.id);
            let (anchor, path) = path_to(store, *end, &known).await?;
            if path.is_empty() || (*end != head && (anchor.is_none() || elsewhere(&path))) {
                continue;
            }
            wrote.extend(path.iter().copied());
            paths.push((anchor, path));
        }
        for (anchor, path) in paths {
            match self.write_path(store, anchor, &path).await {
                Ok(lines) => self.healed += lines,
                Err(error) => {
                    self.lacking += path.len() as u64;
                    self.why = Some(error);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Labels and names that were given beside the session: they become lines, and come back as entries of it.
    async fn write_notes(
        &mut self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        taken: &ImportedFile,
    ) -> Result<(), ArchiveError> {
        let Some(session) = self.session.clone() else { return Ok(()) };
        let of_the_file = |node: &Node| node.id == taken.root || is_met(&taken.tree, node);
        let mut last = match self.last {
            Some(last) => name_of(&**store, last).await?,
            None => None,
        };
        let mut lines = Vec::new();
        for node in notes(&**store, &session, &of_the_file).await? {
            let id = note_id(&node.id);
            if taken.tree.has_met(&id) {
                continue;
            }
            for decoded in decode_whole(&**store, std::slice::from_ref(&node)).await? {
                let Entry::Meta(json) = &decoded.entry else { continue };
                let mut chain = Chain { last: last.clone(), ..Chain::default() };
                name_references(&**store, &mut chain, &decoded.entry).await?;
                lines.push(chain.meta(json, &id, node.record.timestamp));
                last = Some(id.clone());
            }
        }
        if !lines.is_empty() {
            let count = lines.len() as u64;
            if let Err(error) = self.append(lines).await {
                self.lacking += count;
                self.why = Some(error);
                return Ok(());
            }
            self.healed += count;
            self.take_in(store, sealer).await?;
        }
        self.noted = store.head(&RefName::notes(AGENT, &session)).await?;
        Ok(())
    }

    /// Reads the file again, as it is now.
    async fn take_in(
        &mut self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
    ) -> Result<Report, ArchiveError> {
        let options = ImportOptions { dry_run: false, progress: &|_| {} };
        let taken =
            take(store, sealer, open_file(&self.path)?, &self.path, PriorState::default(), &options).await?;
        move_main(&**store, &taken.report.session, taken.last, None).await?;
        self.size = taken.report.bytes;
        self.hash = Some(taken.hash);
        (self.next, self.last, self.ended) = (taken.next, Some(taken.last.2), taken.whole);
        self.known.insert(taken.last.2, name_of(&**store, taken.last.2).await?);
        Ok(taken.report)
    }

    /// The file, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The version that it had before it was migrated; `None` when there was nothing to do.
    pub fn migrated(&self) -> Option<u64> {
        self.migrated
    }

    /// What was taken in when it was opened; `None` when it was as it was left.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Lines that were added to the file when it was opened, since the graph had them.
    pub fn healed(&self) -> u64 {
        self.healed
    }

    /// The node of its last entry, to go on from; `None` for an empty file.
    pub fn last(&self) -> Option<NodeId> {
        self.last
    }

    /// Whether its last entry is one that we wrote.
    ///
    /// # Errors
    /// What the store says.
    pub async fn last_is_ours(&self, store: &dyn Graph) -> Result<bool, StoreError> {
        let Some(last) = self.last else { return Ok(false) };
        let nodes: Vec<Node> = store.nodes(&[last]).await?.into_iter().flatten().collect();
        Ok(decode_whole(store, &nodes).await?.iter().all(|decoded| place(&decoded.step).is_none()))
    }

    /// The session of its header; `None` for an empty file.
    pub fn session(&self) -> Option<&SessionId> {
        self.session.as_ref()
    }

    /// From now on `own`, which goes on from `at`, is written to the file.
    ///
    /// # Errors
    /// What the store says.
    pub async fn resume(
        &mut self,
        store: &dyn Graph,
        own: &SessionId,
        at: Option<NodeId>,
    ) -> Result<(), StoreError> {
        if self.filed.insert(own.clone()) {
            file_under(store, &self.path, self.session.as_ref().unwrap_or(own), own).await?;
        }
        if let Some(at) = at
            && !self.known.contains_key(&at)
            && self.why.is_none()
        {
            self.known.insert(at, name_of(store, at).await?);
        }
        Ok(())
    }

    /// Appends what `own` has and the file has not, of which `nodes` is new. Gives what people should know: that it could
    /// not be written, that another program appended to it. What could not be written is tried again with the next node,
    /// unless the file is not the one any more that was opened.
    pub async fn follow(&mut self, store: &dyn Graph, own: &SessionId, nodes: &[NodeId]) -> Option<String> {
        let head = *nodes.last()?;
        if self.why.as_ref().is_some_and(WriteFailure::is_final) {
            self.lacking += nodes.len() as u64;
            return None;
        }
        let before = (self.foreign, self.why.is_some());
        let done = self.follow_to(store, own, head).await;
        let path = self.path.display().to_string();
        match done {
            Ok(_) => {
                (self.lacking, self.why) = (0, None);
                self.written.insert(own.clone(), head);
                self.last = Some(head);
                (self.foreign && !before.0).then(|| {
                    format!(
                        "another program appended to {path}: its entries stay there and are imported when the session \
                         ends"
                    )
                })
            }
            Err(error) => {
                let notice =
                    format!("new messages are no longer written to {path}: {error}. The store keeps them");
                self.why = Some(error);
                (!before.1).then_some(notice)
            }
        }
    }

    async fn follow_to(
        &mut self,
        store: &dyn Graph,
        own: &SessionId,
        head: NodeId,
    ) -> Result<u64, WriteFailure> {
        self.resume(store, own, None).await?;
        let shared = self.shared_with(store, head).await?;
        let is_there = |node: &Node| self.known.contains_key(&node.id) || shared.contains(&node.id);
        let (anchor, path) = path_to(store, head, &is_there).await?;
        if anchor.is_none() && self.session.is_some() {
            // It went to a node from which we cannot see what the file has.
            self.lacking += 1;
            return Err(WriteFailure::Moved);
        }
        self.lacking = path.len() as u64;
        self.write_path(store, anchor, &path).await
    }

    /// Where the way to a node leaves what stands in the file, when that is not at one of the known nodes: the session
    /// went to another place of the file.
    async fn shared_with(&self, store: &dyn Graph, head: NodeId) -> Result<Vec<NodeId>, StoreError> {
        let near = store.lineage(head, LineageEnd::Count(NEAR)).await?;
        if near.iter().any(|node| self.known.contains_key(&node.id)) {
            return Ok(Vec::new());
        }
        // All that is before a node of the file stands in it.
        let mut shared = Vec::new();
        for end in self.written.values().copied().chain(self.last) {
            shared.extend(store.fork_point(head, end).await?);
        }
        Ok(shared)
    }

    /// The end: what another program appended is taken in, and how far the file is is noted.
    ///
    /// # Errors
    /// As `import`.
    pub async fn finish(
        mut self,
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
    ) -> Result<FinishReport, ArchiveError> {
        if let Some(why) = self.why.take() {
            return Ok(FinishReport { lacking: Some((self.lacking, why)), taken: None });
        }
        let now = self.file.metadata().map_err(|source| self.failed("read", source))?.len();
        let mut taken = None;
        if self.foreign || now > self.size {
            let last = self.last;
            taken = Some(self.take_in(store, sealer).await?);
            self.grown |= self.last != last;
        }
        let (Some(session), Some(last), true) = (&self.session, self.last, self.grown && self.ended) else {
            return Ok(FinishReport { lacking: None, taken });
        };
        if let Some(hash) = self.hash.take() {
            let sha256 = ChunkId(hash.finalize().into());
            let filed = WriteBackState {
                next: self.next,
                last: Some(last),
                lines: 0,
                written: self.written.clone(),
                notes: self.noted,
            };
            let mark = Mark { filed, ..Mark::new(AGENT, &self.path, session.clone(), self.size, sha256) };
            move_main(&**store, session, (self.next.saturating_sub(1), 0, last), Some(mark)).await?;
        }
        Ok(FinishReport { lacking: None, taken })
    }

    /// Appends the lines of a path of nodes that follows `anchor`; `None` for one from the beginning of everything.
    async fn write_path(
        &mut self,
        store: &dyn Graph,
        anchor: Option<Node>,
        path: &[NodeId],
    ) -> Result<u64, WriteFailure> {
        let mut chain = Chain::default();
        let mut before = anchor.map(|node| node.id);
        if let Some(node) = before {
            chain.last = match self.known.get(&node) {
                Some(name) => name.clone(),
                None => name_of(store, node).await?,
            };
        }
        let mut settings = false;
        let mut written = 0;
        for piece in path.chunks(PIECE) {
            let mut begun = None;
            let nodes: Vec<Node> = store.nodes(piece).await?.into_iter().flatten().collect();
            let mut lines = Vec::new();
            for (node, decoded) in nodes.iter().zip(decode_whole(store, &nodes).await?) {
                match (&decoded.entry, before) {
                    (Entry::Session(start), _) => {
                        settings = true;
                        if self.session.is_none() && lines.is_empty() {
                            lines.push(header_line(
                                start.session.as_str(),
                                node.record.timestamp,
                                &start.cwd,
                            ));
                            begun = Some(start.session.clone());
                        }
                    }
                    (Entry::Epoch(_), Some(before)) if !settings => {
                        chain.settings = settings_at(store, before).await?;
                        settings = true;
                    }
                    _ => {}
                }
                name_references(store, &mut chain, &decoded.entry).await?;
                chain.node(node, &decoded, &mut lines);
                before = Some(node.id);
            }
            let count = lines.len() as u64;
            self.append(lines).await?;
            self.session = begun.or(self.session.take());
            written += count;
            if let Some(last) = piece.last() {
                self.known.insert(*last, chain.last.clone());
            }
        }
        Ok(written)
    }

    /// Appends whole lines, in one write.
    async fn append(&mut self, lines: Vec<String>) -> Result<(), WriteFailure> {
        if lines.is_empty() {
            return Ok(());
        }
        let job = Job {
            file: self.file.clone(),
            writer: self.writer.clone(),
            path: self.path.clone(),
            size: self.size,
            ended: self.ended,
            torn: std::mem::take(&mut self.torn),
            text: lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect(),
        };
        let done =
            run_blocking(move || job.run()).await.map_err(|error| WriteFailure::Fault(error.to_string()))?;
        self.foreign |= done.foreign;
        self.completed |= done.completed;
        self.size = done.size;
        self.ended = done.ended;
        self.writer = done.writer;
        self.torn = done.torn;
        match (&mut self.hash, done.foreign || done.result.is_err()) {
            (Some(hash), false) => hash.update(&done.written),
            (_, true) => self.hash = None,
            (None, false) => {}
        }
        done.result?;
        self.grown = true;
        self.next += lines.len() as u64;
        Ok(())
    }

    fn failed(&self, doing: &'static str, source: std::io::Error) -> ArchiveError {
        ArchiveError::File { path: self.path.clone(), doing, source }
    }
}

impl Drop for SessionFile {
    /// An empty file that we made and nobody wrote to goes again.
    fn drop(&mut self) {
        if self.made
            && self.session.is_none()
            && let (Ok(open), Ok(named)) = (self.file.metadata(), std::fs::metadata(&self.path))
            && open.len() == 0
            && is_same(&open, &named)
        {
            // One that is left is begun by whoever opens it next.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn is_met(tree: &Tree, node: &Node) -> bool {
    ids_of(node).iter().any(|id| tree.stands(id, node.id))
}

/// The nodes up to `head`, oldest first, from the first one on that is not there; and the one before it.
async fn path_to(
    store: &dyn Graph,
    head: NodeId,
    is_there: &(dyn Fn(&Node) -> bool + Sync),
) -> Result<(Option<Node>, Vec<NodeId>), StoreError> {
    let mut path = Vec::new();
    let mut from = Some(head);
    let mut count = 8;
    while let Some(start) = from {
        let nodes = store.lineage(start, LineageEnd::Count(count)).await?;
        from = None;
        for node in nodes.into_iter().rev() {
            if is_there(&node) {
                path.reverse();
                return Ok((Some(node), path));
            }
            from = node.record.parent;
            path.push(node.id);
        }
        count = (count * 4).min(4_096);
    }
    path.reverse();
    Ok((None, path))
}

/// The id that a line names which follows a node: its own, or that of the nearest one before it that has one.
async fn name_of(store: &dyn Graph, node: NodeId) -> Result<Option<String>, StoreError> {
    let mut from = Some(node);
    while let Some(at) = from {
        let Some(node) = store.nodes(&[at]).await?.into_iter().flatten().next() else { break };
        if let Some(id) = node.record.external_id {
            return Ok(Some(id));
        }
        from = node.record.parent;
    }
    Ok(None)
}

/// Tells a chain how the nodes are called that an entry refers to.
async fn name_references(store: &dyn Graph, chain: &mut Chain, entry: &Entry) -> Result<(), StoreError> {
    for node in references(entry) {
        let key = node.to_string();
        if !chain.names.contains_key(&key)
            && let Some(name) = store.nodes(&[node]).await?.into_iter().flatten().next()
            && let Some(id) = name.record.external_id
        {
            chain.names.insert(key, id);
        }
    }
    Ok(())
}
