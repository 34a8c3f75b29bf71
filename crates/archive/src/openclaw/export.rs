//! A session as a file of this agent.

use std::io::Write;

use quipu_dag::Node;
use quipu_protocol::{Entry, Json, NodeId, SessionId};
use quipu_store::{Graph, Piece, ReadParts, Seq, SessionRow, StoredNode, decode_whole};
use quipu_transcript::{DecodedEntry, decode};
use serde_json::Value;

use super::AGENT;
use crate::ArchiveError;
use crate::json::Members;
use crate::lineages::{main_ref, tips};
use crate::pi::{self, write_kept};

/// Nodes that are read at once, and bytes of their content.
const PIECE: usize = 500;
const PIECE_BYTES: usize = 8 << 20;

/// The version that is written.
const VERSION: u64 = 3;

/// A transcript that was written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportedTranscript {
    /// Entries, without the header.
    pub entries: u64,
    /// Why and when the session was put aside, as the name of its file says it.
    pub archived: Option<(String, String)>,
    /// The id that its header says, where it was imported from this agent.
    pub id: Option<String>,
    /// The agent that it belongs to, where it was imported from one.
    pub agent: Option<String>,
}

/// Writes a session: one that was imported from this agent with all its branches, in the order in which they were read and as
/// they were, but for secrets; any other as a file of Pi has it, whose lines are the same.
///
/// # Errors
/// `NotExportable`, `Store`; `File` with an empty path when `out` refuses.
pub async fn transcript(
    store: &dyn Graph,
    row: &SessionRow,
    out: &mut (dyn Write + Send),
) -> Result<ExportedTranscript, ArchiveError> {
    if row.agent != AGENT {
        let done = pi::export(store, row, out).await?;
        return Ok(ExportedTranscript { entries: done.entries, ..ExportedTranscript::default() });
    }
    let refused = |source| ArchiveError::File { path: std::path::PathBuf::new(), doing: "written", source };
    let root: Vec<Node> = store.nodes(&[row.base]).await?.into_iter().flatten().collect();
    let start = decode_whole(store, &root).await?.pop();
    let kept = start.and_then(|start| start.step.extra.get(AGENT).cloned());
    let KeptHeader { header, id, agent } =
        kept.as_ref().and_then(header).ok_or_else(|| ArchiveError::NotExportable {
            session: row.id.to_string(),
            why: "its first node is missing or has no header",
        })?;
    let mut done = ExportedTranscript { id, agent, ..ExportedTranscript::default() };
    out.write_all(header.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(refused)?;
    let ends = tips(store, AGENT, &row.id).await?.into_iter().map(|head| head.node);
    let ends: Vec<NodeId> = ends.chain(store.head(&main_ref(AGENT, &row.id)).await?).collect();
    let all = store.below(row.base, &ends).await?;
    let mut seqs: &[Seq] = &all;
    let mut line = String::new();
    while !seqs.is_empty() {
        let some = seqs.get(..PIECE).unwrap_or(seqs);
        let Piece { read, nodes, mut objects } = store.written(some, ReadParts::All, PIECE_BYTES).await?;
        objects.load_chunks(store, nodes.iter().map(|written| &written.node)).await?;
        for StoredNode { node, follows, .. } in &nodes {
            let decoded = decode(node, &objects);
            if let Some(note) = own_note(node, &decoded, &row.id) {
                done.archived = archived(note).or(done.archived);
                continue;
            }
            line.clear();
            write_kept(&mut line, node, &decoded, follows.as_deref(), AGENT);
            line.push('\n');
            out.write_all(line.as_bytes()).map_err(refused)?;
            done.entries += 1;
        }
        seqs = seqs.get(read.clamp(1, seqs.len())..).unwrap_or_default();
    }
    out.flush().map_err(refused)?;
    Ok(done)
}

struct KeptHeader {
    /// The line, in the version that is written.
    header: String,
    id: Option<String>,
    /// The agent of the file.
    agent: Option<String>,
}

fn header(kept: &Json) -> Option<KeptHeader> {
    let mut kept: Value = serde_json::from_str(kept.get()).ok()?;
    let agent = kept.get("agent").and_then(Value::as_str).map(str::to_owned);
    let header = kept.get_mut("header")?.as_object_mut()?;
    header.insert("version".to_owned(), VERSION.into());
    let id = header.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(str::to_owned);
    Some(KeptHeader { header: serde_json::to_string(header).ok()?, id, agent })
}

/// A node that an import made of what stood beside the file.
fn own_note<'a>(node: &Node, decoded: &'a DecodedEntry, session: &SessionId) -> Option<&'a Json> {
    let Entry::Meta(json) = &decoded.entry else { return None };
    let id = node.record.external_id.as_deref()?;
    let is_own = id.strip_prefix(session.as_str())?.strip_prefix('.')?.len() == 16;
    is_own.then_some(json)
}

fn archived(note: &Json) -> Option<(String, String)> {
    let members = Members::of(note.get())?;
    let text = |name: &str| members.string(name).map(std::borrow::Cow::into_owned);
    (text("type")? == "archived").then_some(())?;
    Some((text("reason")?, text("at")?))
}
