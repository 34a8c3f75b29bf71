//! Puts sessions in Pi's form into a store, for benchmarks: `session_store STORE DIRECTORY`.
//!
//! Each `*.jsonl` file of the directory (version 3, one line of descent, made by `cargo xtask bench`) becomes a
//! session as the engine would have written it: a node for each message and each compaction, with a checkpoint. The
//! prefix of their requests is that of a session that the store has already, so run one prompt first.
//!
//! It is no importer: other kinds of lines are passed over, and times and ids are taken as they come.

use std::collections::HashMap;
use std::error::Error;
use std::io::BufRead as _;
use std::path::{Path, PathBuf};

use quipu::protocol::{
    Checkpoint, Compaction, CompactionReason, Entry, Epoch, Message, NodeId, SessionId, SessionStart,
    StepInfo, UnixMs,
};
use quipu::store::{
    Commit, NewChunk, OpenOptions, ReadModel as _, RefMove, RefName, SessionQuery, SqliteStore, Store as _,
};
use quipu_dag::{Node, NodeRecord};
use serde::Deserialize;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Nodes of one commit.
const TOGETHER: usize = 1_000;

/// A line of the file, as far as it is needed. Not an enum by `type`: messages keep JSON as it was written, which
/// serde cannot give to a variant that it has yet to find.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    id: String,
    cwd: Option<String>,
    message: Option<Message>,
    summary: Option<String>,
    tokens_before: Option<u64>,
    first_kept_entry_id: Option<String>,
}

/// A session on its way into the store.
struct Writer<'a> {
    store: &'a SqliteStore,
    session: SessionId,
    epoch: Epoch,
    head: Option<NodeId>,
    /// What the store has of it.
    committed: Option<NodeId>,
    /// Nodes of the file's ids.
    known: HashMap<String, NodeId>,
    last: UnixMs,
    batch: Commit,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Outcome<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [store, directory] = arguments.as_slice() else {
        return Err("usage: session_store STORE DIRECTORY".into());
    };
    let store = SqliteStore::open(store, &OpenOptions::default())?;
    let rows = store.sessions(SessionQuery { limit: Some(1), ..SessionQuery::default() }).await?;
    let row = rows.first().ok_or("the store has no session to take the prefix of requests from")?;
    let epoch = quipu::last_epoch(&store, row).await?.ok_or("its session has no entries")?;
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    for file in files {
        write(&store, &epoch, &file).await.map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}

async fn write(store: &SqliteStore, epoch: &Epoch, file: &Path) -> Outcome<()> {
    let mut lines = std::io::BufReader::new(std::fs::File::open(file)?).lines();
    let first = lines.next().ok_or("the file is empty")??;
    let Line { kind, id, cwd: Some(cwd), .. } = serde_json::from_str(&first)? else {
        return Err("the first line names no directory".into());
    };
    if kind != "session" {
        return Err("the first line is no session".into());
    }
    let mut writer = Writer {
        store,
        session: SessionId::from(id),
        epoch: epoch.clone(),
        head: None,
        committed: None,
        known: HashMap::new(),
        last: 0,
        batch: Commit::default(),
    };
    let start = SessionStart {
        session: writer.session.clone(),
        cwd,
        agent: quipu::AGENT.to_owned(),
        parent_session: None,
        epoch: epoch.clone(),
    };
    writer.add(&Entry::Session(start), 0);
    for line in lines {
        let line: Line = serde_json::from_str(&line?)?;
        let (entry, at) = if let Some(message) = line.message {
            let at = message.timestamp();
            (Entry::Message(message), at)
        } else if let Some(summary) = line.summary {
            let kept = line.first_kept_entry_id.and_then(|id| writer.known.get(&id).copied());
            let compaction = Compaction {
                summary,
                first_kept: kept,
                tokens_before: line.tokens_before.unwrap_or_default(),
                timestamp: writer.last,
                reason: Some(CompactionReason::Threshold),
                checkpoint: Some(Checkpoint { session: writer.session.clone(), epoch: writer.epoch.clone() }),
                ..Compaction::default()
            };
            (Entry::Compaction(compaction), writer.last)
        } else {
            continue;
        };
        let node = writer.add(&entry, at);
        writer.known.insert(line.id, node);
        if writer.batch.nodes.len() >= TOGETHER {
            writer.commit().await?;
        }
    }
    writer.commit().await
}

impl Writer<'_> {
    /// The entry as the engine writes it: see `commit.rs` there.
    fn add(&mut self, entry: &Entry, at: UnixMs) -> NodeId {
        let encoded = quipu_transcript::encode(entry, &StepInfo::default());
        self.last = at.max(self.last + 1);
        let record = NodeRecord {
            parent: self.head,
            role: encoded.role,
            parts: encoded.blobs.iter().map(|blob| blob.id).collect(),
            timestamp: self.last,
            external_id: Some(uuid::Uuid::now_v7().to_string()),
            system_prompt: self.epoch.system,
        };
        let config = matches!(entry, Entry::Message(Message::Assistant(_)) | Entry::Session(_)).then(|| {
            let model = serde_json::json!({ "provider": self.epoch.provider, "id": self.epoch.model });
            serde_json::json!({ "agent": quipu::AGENT, "model": model, "thinkingLevel": self.epoch.thinking })
                .to_string()
        });
        self.batch.blobs.extend(encoded.blobs);
        let chunks = encoded.chunks.into_iter();
        self.batch.chunks.extend(chunks.map(|(id, bytes)| NewChunk::Full { id, bytes: bytes.into() }));
        let node = Node::new(record, config, None);
        self.head = Some(node.id);
        let id = node.id;
        self.batch.nodes.push(node);
        id
    }

    async fn commit(&mut self) -> Outcome<()> {
        let mut batch = std::mem::take(&mut self.batch);
        let Some(head) = self.head else { return Ok(()) };
        batch.moves.push(RefMove::swap(RefName::session(&self.session), self.committed, head, "bench"));
        self.store.commit(batch).await?;
        self.committed = Some(head);
        Ok(())
    }
}
