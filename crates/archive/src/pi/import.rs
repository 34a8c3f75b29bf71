//! A file into the graph.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;
use quipu_protocol::{ChunkId, Json, NodeId, SessionId, UnixMs};
use quipu_seal::Sealer;
use quipu_store::{Action, ActionQuery, Commit, RefMove, Store, StoreError, decode_nodes};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::mpsc;

use super::entry;
use super::header::Header;
use super::placer::{Batch, Begin, Done, Placer};
use super::{AGENT, LINE_LIMIT};
use crate::lineages::{main_ref, tips, walk};
use crate::lines::Lines;
use crate::tree::Tree;
use crate::{ArchiveError, Progress, Report};

/// The action that notes what was imported.
const IMPORTED: &str = "QUIPU_IMPORT";

/// How to import.
pub struct ImportOptions<'a> {
    /// Read and compare, and write nothing.
    pub dry_run: bool,
    /// Told now and then how far it is.
    pub progress: &'a (dyn Fn(Progress) + Sync),
}

/// What was imported before, by file. Read once for many files.
#[derive(Debug, Default)]
pub struct Imports(HashMap<PathBuf, Mark>);

/// What an import noted of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    format: String,
    path: PathBuf,
    session: SessionId,
    bytes: u64,
    sha256: ChunkId,
}

impl Imports {
    /// Reads what the store notes of earlier imports.
    ///
    /// # Errors
    /// What the store says.
    pub async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let query = ActionQuery { kinds: vec![IMPORTED.into()], ..ActionQuery::default() };
        let mut marks = HashMap::new();
        for logged in store.actions(query).await? {
            let mark = logged.action.metadata.and_then(|text| serde_json::from_str::<Mark>(&text).ok());
            if let Some(mark) = mark.filter(|mark| mark.format == AGENT) {
                // The newest comes first.
                marks.entry(mark.path.clone()).or_insert(mark);
            }
        }
        Ok(Self(marks))
    }
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
    store: &Arc<dyn Store>,
    sealer: &Arc<Sealer>,
    path: &Path,
    imports: &Imports,
    options: &ImportOptions<'_>,
) -> Result<Report, ArchiveError> {
    let fail = |doing| move |source| ArchiveError::File { path: path.to_owned(), doing, source };
    let path = std::path::absolute(path).map_err(fail("found"))?;
    let path = path.as_path();
    let fail = |doing| move |source| ArchiveError::File { path: path.to_owned(), doing, source };
    let mut file = open(path)?;
    let total = file.metadata().map_err(fail("read"))?.len();
    let mark = imports.0.get(path);
    if let Some(mark) = mark
        && mark.bytes == total
        && let Some(head) = store.head(&main_ref(AGENT, &mark.session)).await?
    {
        let (returned, hash) = off_the_runtime(move || hash_of(file)).await?.map_err(fail("read"))?;
        if hash == mark.sha256 {
            let mut report = Report::new(path.to_owned(), mark.session.clone());
            (report.bytes, report.unchanged, report.head) = (total, true, Some(head));
            return Ok(report);
        }
        file = returned;
        file.rewind().map_err(fail("read"))?;
    }
    let owned = path.to_owned();
    let begun = off_the_runtime(move || Source::begin(file, owned)).await??;
    let session = begun.header.session.clone();
    let first = begun.header.build();
    let root = first.node.id;
    let mut tree = Tree::new(root);
    if store.nodes(&[root]).await?.into_iter().flatten().next().is_some() {
        let heads: Vec<NodeId> =
            tips(&**store, AGENT, &session).await?.into_iter().map(|head| head.node).collect();
        let inner = walk(&**store, root, heads, |node, is_tip| {
            tree.stored(node.id, node.record.external_id.as_deref(), is_tip);
        })
        .await?;
        tree.stored_inner(inner);
    }
    let (sender, mut batches) = mpsc::channel::<Batch>(2);
    let placer = Placer::new(Begin {
        first,
        version: begun.header.version,
        sealer: Arc::clone(sealer),
        report: Report::new(path.to_owned(), session.clone()),
        tree,
        file: begun.file,
    });
    let lines = begun.lines;
    let reader = tokio::task::spawn_blocking(move || placer.run(lines, &sender));
    let mut committed = Ok(());
    while let Some(batch) = batches.recv().await {
        if !options.dry_run
            && let Err(error) = store.commit(batch.commit).await
        {
            committed = Err(error);
            break;
        }
        (options.progress)(Progress {
            bytes: batch.bytes,
            total: total.max(batch.bytes),
            entries: batch.entries,
        });
    }
    drop(batches);
    let done = reader.await.map_err(|error| ArchiveError::Fault(error.to_string()))?;
    committed?;
    let Done { mut report, last, hash, whole } = done?;
    if options.dry_run {
        report.head = store.head(&main_ref(AGENT, &session)).await?;
        return Ok(report);
    }
    let note = Mark {
        format: AGENT.into(),
        path: path.to_owned(),
        session: session.clone(),
        bytes: report.bytes,
        sha256: hash,
    };
    let note = (whole && mark != Some(&note)).then_some(note);
    report.head = Some(move_main(&**store, &session, last, note).await?);
    Ok(report)
}

/// The session's own ref: at the last entry of the longest file that was imported for it.
async fn move_main(
    store: &dyn Store,
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
                let decoded = decode_nodes(store, &nodes).await?;
                let pair = nodes.first().zip(decoded.first());
                pair.map(|(node, decoded)| {
                    (entry::place(&decoded.step).unwrap_or(0), node.record.timestamp, node.id)
                })
            }
        };
        let stays = current.is_some_and(|current| current >= last);
        if stays && note.is_none() {
            return Ok(found.unwrap_or(last.2));
        }
        let head = if stays { found.unwrap_or(last.2) } else { last.2 };
        let mut batch = Commit::default();
        if !stays {
            batch.moves.push(RefMove::swap(name.clone(), found, last.2, "import"));
        }
        if let Some(note) = &note {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            batch.actions.push(Action {
                timestamp: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
                kind: IMPORTED.into(),
                from: found,
                to: Some(head),
                metadata: serde_json::to_string(note).ok(),
            });
        }
        match store.commit(batch).await {
            Ok(()) => return Ok(head),
            // Another import was faster: whose file is longer is looked at again.
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ArchiveError> {
    tokio::task::spawn_blocking(work).await.map_err(|error| ArchiveError::Fault(error.to_string()))
}

/// Opens a regular file, and nothing that could be waited for.
fn open(path: &Path) -> Result<File, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "opened", source };
    let flags = (OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits();
    let file = File::options().read(true).custom_flags(flags).open(path).map_err(fail)?;
    if !file.metadata().map_err(fail)?.is_file() {
        return Err(ArchiveError::NotASession { path: path.to_owned(), why: "it is no regular file" });
    }
    Ok(file)
}

fn hash_of(mut file: File) -> std::io::Result<(File, ChunkId)> {
    let mut reader = Hashing { file: file.try_clone()?, hash: Sha256::new() };
    let mut buffer = vec![0; 1 << 20];
    while reader.read(&mut buffer)? > 0 {}
    file.rewind()?;
    Ok((file, ChunkId(reader.hash.finalize().into())))
}

/// A file whose bytes are hashed as they are read.
pub(super) struct Hashing {
    file: File,
    pub(super) hash: Sha256,
}

impl Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// A file whose header was read.
struct Source {
    lines: FileLines,
    header: Header,
    /// To read lines again.
    file: File,
}

/// The rest of a file, and where it is for messages.
pub(super) struct FileLines {
    pub(super) lines: Lines<BufReader<Hashing>>,
    pub(super) path: PathBuf,
    /// Lines before the header that hold nothing: they are told later.
    pub(super) skipped: Vec<u64>,
}

impl Source {
    fn begin(file: File, path: PathBuf) -> Result<Self, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.clone(), doing: "read", source };
        let again = file.try_clone().map_err(fail)?;
        let reader = BufReader::with_capacity(1 << 20, Hashing { file, hash: Sha256::new() });
        let mut lines = Lines::new(reader, LINE_LIMIT);
        let mut skipped = Vec::new();
        loop {
            let Some(line) = lines.next().map_err(fail)? else {
                let why = if skipped.is_empty() { "it is empty" } else { "it holds no JSON" };
                return Err(ArchiveError::NotASession { path, why });
            };
            // The first line that is JSON must be the header.
            match Json::parse(&String::from_utf8_lossy(line.bytes)) {
                Ok(json) => {
                    let why = "its first line is no header with a type `session` and an id";
                    let Some(header) = Header::of(&json) else {
                        return Err(ArchiveError::NotASession { path, why });
                    };
                    let lines = FileLines { lines, path, skipped };
                    return Ok(Self { lines, header, file: again });
                }
                Err(_) if line.bytes.trim_ascii().is_empty() && !line.is_too_long() => {}
                Err(_) => skipped.push(line.number),
            }
        }
    }
}
