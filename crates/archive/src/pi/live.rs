//! A session of this agent that is taken in while it runs: each entry becomes the node that an import of the session's file
//! gives, before or after the file is written.
//!
//! The agent gives the lines of its entries in the order in which they stand in the file, or will. They are placed by what
//! places the lines of a file, so there is nothing here that could differ.

use std::fs::File;
use std::io::{BufReader, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::{Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Commit, Extent, Graph};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::chain::ids_of;
use super::header::Header;
use super::import::{ImportOptions, PriorState, Source, move_main, run_blocking, stored, take};
use super::line_parser::LineParser;
use super::node_builder::{BuilderStart, BuiltFile, FileLines, NodeBuilder};
use super::own::OwnSessions;
use super::{AGENT, LINE_LIMIT};
use crate::batches::{Batch, commit_all};
use crate::import_cache::ImportCache;
use crate::intake::open_file;
use crate::key::Key;
use crate::lines::{Hashing, Lines};
use crate::prefetch::Prefetch;
use crate::tree::{ROOT, Tree};
use crate::{ArchiveError, Report};

/// A session that is taken in as it goes on.
pub struct LiveSession {
    store: Arc<dyn Graph>,
    parser: LineParser,
    /// What is known of its entries; `None` after a write that failed, so that the session is opened again.
    tree: Option<Tree>,
    root: NodeId,
    /// Entries so far.
    count: u64,
    /// Place, time and node of the last entry.
    last: Option<(u64, UnixMs, NodeId)>,
    /// The id of the last entry.
    last_id: Option<String>,
    /// Holds the lines that are being placed; nobody else sees it.
    spool: File,
    path: PathBuf,
    report: Option<Report>,
    damage: Option<ArchiveError>,
}

impl std::fmt::Debug for LiveSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LiveSession")
            .field("session", &self.parser.session)
            .field("count", &self.count)
            .finish()
    }
}

impl LiveSession {
    /// Opens a session by its header. Where its file is there, what the file holds comes into the graph first; a file that
    /// is gone, empty, of another session or has no header is passed by, and the entries begin anew: those that the graph
    /// has are recognized.
    ///
    /// # Errors
    /// `NotASession` for a header that is none or of an old version, `File`, `Changed`, `Store`.
    pub async fn open(
        store: &Arc<dyn Graph>,
        sealer: &Arc<Sealer>,
        header: &Json,
        path: Option<&Path>,
    ) -> Result<Self, ArchiveError> {
        let shown = path.unwrap_or(Path::new("session")).to_owned();
        let refused = |why| ArchiveError::NotASession { path: shown.clone(), why };
        let header =
            Header::of(header).ok_or_else(|| refused("the header has no type `session` and no id"))?;
        if header.version < super::VERSION {
            return Err(refused("its version is older than 3"));
        }
        let session = header.session.clone();
        let first = header.build();
        let time = first.node.record.timestamp;
        let spool = match Extent::of(&**store).await?.spool {
            Some(dir) => tempfile::tempfile_in(dir),
            None => tempfile::tempfile(),
        };
        let fail = |source| ArchiveError::File { path: shown.clone(), doing: "prepared", source };
        let spool = spool.map_err(fail)?;
        let parser = LineParser {
            version: header.version,
            session: session.clone(),
            sealer: Arc::clone(sealer),
            time,
        };
        let mut this = Self {
            store: Arc::clone(store),
            parser,
            tree: None,
            root: first.node.id,
            count: 0,
            last: None,
            last_id: None,
            spool,
            path: shown,
            report: None,
            damage: None,
        };
        if let Some(path) = path.filter(|path| std::fs::metadata(path).is_ok_and(|found| found.len() > 0)) {
            match this.take_file(sealer, path).await {
                Ok(true) => return Ok(this),
                Ok(false) => {}
                Err(error @ ArchiveError::NotASession { .. }) => this.damage = Some(error),
                Err(error) => return Err(error),
            }
        }
        let own = OwnSessions::of(&**store, &session).await?;
        match &own.root {
            Some(root) => this.root = root.id,
            None => {
                let mut batch = Commit::default();
                first.add_to(&mut batch);
                store.commit(batch).await?;
            }
        }
        let mut tree = Tree::new(this.root, Extent::of(&**store).await?.spool);
        if let Some(root) = &own.root {
            tree.ours(root.id, None, &ids_of(root), false, false);
        }
        stored(&**store, this.root, &session, &own, &mut tree).await?;
        this.tree = Some(tree);
        Ok(this)
    }

    /// Takes in the file; `false` where it is of another session.
    async fn take_file(&mut self, sealer: &Arc<Sealer>, path: &Path) -> Result<bool, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "found", source };
        let path = std::path::absolute(path).map_err(fail)?;
        let (file, owned) = (open_file(&path)?, path.clone());
        let header = run_blocking(move || Source::begin(file, owned)).await??.header;
        if header.session != self.parser.session || header.version < super::VERSION {
            return Ok(false);
        }
        let cache = ImportCache::load(&*self.store).await?;
        let mark = cache.of(AGENT, &path);
        let options = ImportOptions { dry_run: false, progress: &|_| {} };
        let taken =
            take(&self.store, sealer, open_file(&path)?, &path, PriorState::of(mark), &options).await?;
        let note = taken.whole.then(|| taken.mark()).filter(|note| mark != Some(note));
        let head = move_main(&*self.store, &self.parser.session, taken.last, note).await?;
        self.root = taken.root;
        self.count = taken.last.0;
        self.last = Some(taken.last).filter(|last| last.0 > 0);
        self.last_id = match self.last {
            Some((_, _, node)) => {
                let found = self.store.nodes(&[node]).await?.into_iter().flatten().next();
                found.and_then(|node| node.record.external_id)
            }
            None => None,
        };
        self.tree = Some(taken.tree);
        self.report = Some(Report { head: Some(head), ..taken.report });
        Ok(true)
    }

    /// Places the next entries: lines of a file, each an object. When this returns, they survive the end of the process.
    /// After an error the session has to be opened again.
    ///
    /// # Errors
    /// `File`, `Store`, `Fault`.
    pub async fn append(&mut self, entries: &[&str]) -> Result<u64, ArchiveError> {
        let Some(tree) = self.tree.take() else {
            return Err(ArchiveError::Fault("a session was gone on with after a failure".into()));
        };
        if entries.is_empty() {
            self.tree = Some(tree);
            return Ok(0);
        }
        let path = self.path.clone();
        let fail = move |source| ArchiveError::File { path: path.clone(), doing: "prepared", source };
        let mut text = Vec::with_capacity(entries.iter().map(|entry| entry.len() + 1).sum());
        for entry in entries {
            // A line is a line: what breaks it in JSON is blank.
            text.extend(entry.bytes().map(|byte| if byte == b'\n' || byte == b'\r' { b' ' } else { byte }));
            text.push(b'\n');
        }
        let total = text.len() as u64;
        let mut spool = self.spool.try_clone().map_err(&fail)?;
        spool.set_len(0).and_then(|()| spool.rewind()).map_err(&fail)?;
        spool.write_all(&text).and_then(|()| spool.rewind()).map_err(&fail)?;
        drop(text);
        let again = self.spool.try_clone().map_err(&fail)?;
        let (sender, batches) = mpsc::channel::<Batch>(1);
        let builder = NodeBuilder::new(BuilderStart {
            first: None,
            maker: self.parser.clone(),
            report: Report::new(self.path.clone(), self.parser.session.clone()),
            tree,
            file: again,
            total,
            last: self.last,
            batches: sender,
        });
        let hashing = Hashing { file: spool, hash: Sha256::new(), bytes: 0 };
        let reader = BufReader::with_capacity(64 << 10, hashing);
        let lines = Lines::after(reader, LINE_LIMIT, 0, 0, self.count + 1);
        let lines = FileLines { lines, path: self.path.clone(), skipped: Vec::new() };
        let reader = tokio::task::spawn_blocking(move || builder.run(lines, Prefetch::of(0)));
        let options = ImportOptions { dry_run: false, progress: &|_| {} };
        let committed = commit_all(&*self.store, batches, 0, &options).await;
        let done = reader.await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
        committed?;
        let BuiltFile { report, tree, last, .. } = done?;
        move_main(&*self.store, &self.parser.session, last, None).await?;
        self.count = last.0.max(self.count);
        self.last = Some(last);
        self.last_id = None;
        self.tree = Some(tree);
        Ok(report.added)
    }

    /// The session, by its name in the store.
    pub fn session(&self) -> &SessionId {
        &self.parser.session
    }

    /// Entries that were placed: the place of the next one, from 0.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The id of the last entry of the file that was taken in.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Entries that the graph has, and neither the file nor what was given since.
    pub fn lacking(&self) -> u64 {
        self.tree.as_ref().map_or(0, Tree::unmet)
    }

    /// What became of the file; `None` where there was none to take in.
    pub fn report(&self) -> Option<&Report> {
        self.report.as_ref()
    }

    /// Why the file was passed by, where it is no session file any more.
    pub fn damage(&self) -> Option<&ArchiveError> {
        self.damage.as_ref()
    }

    /// The session's first node, which stands for its header.
    pub fn root(&self) -> NodeId {
        self.root
    }

    /// The node of an entry by its id.
    pub fn node_of(&self, id: &str) -> Option<NodeId> {
        let tree = self.tree.as_ref()?;
        tree.find_met(Key::of(id)).map(|at| tree.node(at)).filter(|node| *node != tree.node(ROOT))
    }
}
