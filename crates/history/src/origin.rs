//! Whether a file is as a command of a model left it.

use std::path::Path;

use quipu_protocol::{ChunkId, Entry, FileState, Message, SessionId};
use quipu_store::{FileStepQuery, FileSteps, Graph, StoreError, decode_nodes};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// Changes of the file that are looked at, the newest.
const STEPS: usize = 200;

#[derive(Deserialize)]
struct Arguments {
    command: Option<String>,
    #[serde(default)]
    protected: bool,
}

/// How a file's content is named in the graph.
pub fn content_of(bytes: &[u8]) -> ChunkId {
    ChunkId(Sha256::digest(bytes).into())
}

/// The session whose command made a file what it is, without being allowed to by a person (`protected`). `None` when nothing
/// is known of it, or a file tool, a person or another program left it so. Only steps that are kept are known.
///
/// # Errors
/// The store cannot be read.
pub async fn made_by_command(
    store: &dyn Graph,
    path: &Path,
    bytes: &[u8],
) -> Result<Option<SessionId>, StoreError> {
    let path = path.parent().and_then(|parent| Some(parent.canonicalize().ok()?.join(path.file_name()?)));
    let Some(path) = path.as_deref().and_then(Path::to_str) else { return Ok(None) };
    let of = FileSteps::Paths(vec![path.to_owned()]);
    let steps = store.file_steps(FileStepQuery { of, limit: STEPS }).await?.found;
    let content = content_of(bytes);
    let is_it = |state: &FileState| state.content() == Some(content);
    let Some(step) =
        steps.iter().filter(|step| is_it(&step.after) && !is_it(&step.before)).max_by_key(|step| step.seq)
    else {
        return Ok(None);
    };
    // Without an answer nobody called: a person put files back.
    let Some(answer) = step.answer else { return Ok(None) };
    let nodes: Vec<_> = store.nodes(&[answer]).await?.into_iter().flatten().collect();
    let decoded = decode_nodes(store, &nodes).await?.into_iter().next().map(|decoded| decoded.entry);
    let Some(Entry::Message(Message::Assistant(message))) = decoded else { return Ok(None) };
    let arguments = message.tool_calls().nth(step.call);
    let arguments = arguments.and_then(|call| serde_json::from_str::<Arguments>(call.arguments.get()).ok());
    let is_command = arguments.is_some_and(|arguments| arguments.command.is_some() && !arguments.protected);
    Ok(step.session.clone().filter(|_| is_command))
}
