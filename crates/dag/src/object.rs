//! Blobs and nodes as they are stored and hashed.

use quipu_protocol::{BlobId, NodeId, NotAHash, UnixMs};
use sha2::{Digest, Sha256};

use crate::canonical::{quoted, sha256, write_number, write_str, write_value};
use crate::{JsonError, JsonErrorKind, Value};

/// A typed piece of content. Its id covers type and canonical content, not the spelling of the column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// SHA-256 of the canonical `{content, type}`.
    pub id: BlobId,
    /// `text`, `thinking`, `tool_call`, `tool_result`, `pi_meta`, `system_prompt`, `quipu`, …
    pub kind: String,
    /// The column as stored: JSON text in the first writer's member order.
    pub content: String,
}

/// What the id of a node covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// The node that this one follows; `None` for a root.
    pub parent: Option<NodeId>,
    /// Such as `user`, `assistant`, `toolResult`, `pi_internal`.
    pub role: String,
    /// The blobs, in order.
    pub parts: Vec<BlobId>,
    /// Commit time, milliseconds since the epoch.
    pub timestamp: UnixMs,
    /// The writer's own id of the entry; a UUIDv7 for our nodes.
    pub external_id: Option<String>,
    /// The system prompt in force.
    pub system_prompt: Option<BlobId>,
}

/// A node: its record, its id, and the columns that the id does not cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// SHA-256 of the canonical record.
    pub id: NodeId,
    /// What the id covers.
    pub record: NodeRecord,
    /// `config_json`, as stored: which agent and model. Not covered by the id.
    pub config: Option<String>,
    /// `thought_signatures`, as stored. Not covered by the id.
    pub thought_signatures: Option<String>,
}

/// Whether an object is what its id says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The id was computed again from the object.
    Valid,
    /// This object has no id that we can compute; the text says why.
    Unverifiable(&'static str),
    /// The object is not what was hashed; the text says how we know.
    Corrupt(String),
}

impl Blob {
    /// A blob of JSON content. The text is kept as it is; the id covers what it means.
    ///
    /// # Errors
    /// When `content_json` is not JSON that [`Value::parse`] takes.
    pub fn new(kind: impl Into<String>, content_json: impl Into<String>) -> Result<Self, JsonError> {
        let (kind, content) = (kind.into(), content_json.into());
        let mut canonical = String::with_capacity(content.len());
        write_value(&mut canonical, &Value::parse(&content)?);
        Ok(Self { id: blob_id(&kind, &canonical), kind, content })
    }

    /// A blob whose content is canonical JSON text already; it is hashed as it stands, without reading it.
    /// What is not canonical gets an id that no other program computes: see [`Blob::verify`].
    pub fn from_canonical(kind: impl Into<String>, content_json: impl Into<String>) -> Self {
        let (kind, content) = (kind.into(), content_json.into());
        debug_assert!(crate::is_canonical(&content), "not canonical: {content}");
        Self { id: blob_id(&kind, &content), kind, content }
    }

    /// A blob whose content is a string, such as `thinking` or `system_prompt`.
    pub fn string(kind: impl Into<String>, text: &str) -> Self {
        let (kind, content) = (kind.into(), quoted(text));
        Self { id: blob_id(&kind, &content), kind, content }
    }

    /// A blob of type `text`.
    pub fn text(text: &str) -> Self {
        Self::string("text", text)
    }

    /// Computes the id again. A tombstone of erased content is the store's to know; here it is corrupt.
    pub fn verify(&self) -> Verdict {
        if self.kind == "playtiss" {
            return Verdict::Unverifiable("a block of another scheme, which has its own identifiers");
        }
        // Most columns hold the canonical text: those need no tree. One value it must be all the same, or a
        // forged column could reach out of its member.
        if blob_id(&self.kind, &self.content) == self.id
            && serde_json::from_str::<&serde_json::value::RawValue>(&self.content).is_ok()
        {
            return Verdict::Valid;
        }
        match Value::parse(&self.content) {
            Ok(value) => {
                let mut canonical = String::with_capacity(self.content.len());
                write_value(&mut canonical, &value);
                let computed = blob_id(&self.kind, &canonical);
                if computed == self.id {
                    Verdict::Valid
                } else {
                    Verdict::Corrupt(format!("type and content hash to {computed}"))
                }
            }
            Err(JsonError { kind: JsonErrorKind::Depth, .. }) => {
                Verdict::Unverifiable("nested too deeply to check")
            }
            Err(error) => Verdict::Corrupt(format!("the content is not JSON: {error}")),
        }
    }
}

fn blob_id(kind: &str, canonical_content: &str) -> BlobId {
    let mut hasher = Sha256::new();
    hasher.update(b"{\"content\":");
    hasher.update(canonical_content.as_bytes());
    hasher.update(b",\"type\":");
    hasher.update(quoted(kind).as_bytes());
    hasher.update(b"}");
    BlobId(hasher.finalize().into())
}

impl NodeRecord {
    /// The canonical text that is hashed: `external_id` and `system_prompt_hash` only when set, as Pi writes it.
    pub fn canonical(&self) -> String {
        self.spelled(self.external_id.as_deref().map(Some), self.system_prompt.as_ref())
    }

    /// The id of a node with this record.
    pub fn id(&self) -> NodeId {
        NodeId(sha256(self.canonical().as_bytes()))
    }

    /// `external_id`: `None` leaves the member out, `Some(None)` writes `null`.
    fn spelled(&self, external_id: Option<Option<&str>>, system_prompt: Option<&BlobId>) -> String {
        let mut out = String::with_capacity(256 + 67 * self.parts.len());
        out.push('{');
        match external_id {
            None => {}
            Some(None) => out.push_str("\"external_id\":null,"),
            Some(Some(id)) => {
                out.push_str("\"external_id\":");
                write_str(&mut out, id);
                out.push(',');
            }
        }
        match &self.parent {
            None => out.push_str("\"parent_id\":null"),
            Some(parent) => out.extend(["\"parent_id\":\"", parent.hex().as_str(), "\""]),
        }
        out.push_str(",\"parts_list\":");
        out.push_str(&write_parts_list(&self.parts));
        out.push_str(",\"role\":");
        write_str(&mut out, &self.role);
        if let Some(prompt) = system_prompt {
            out.extend([",\"system_prompt_hash\":\"", prompt.hex().as_str(), "\""]);
        }
        out.push_str(",\"timestamp\":");
        // JavaScript wrote it as a double; within 2^53 that is the integer itself.
        #[expect(clippy::cast_precision_loss, reason = "the hash is defined over doubles")]
        write_number(&mut out, self.timestamp as f64);
        out.push('}');
        out
    }
}

impl Node {
    /// A node with its id computed.
    pub fn new(record: NodeRecord, config: Option<String>, thought_signatures: Option<String>) -> Self {
        Self { id: record.id(), record, config, thought_signatures }
    }

    /// Computes the id again, in every way that is known to be in use: with and without the external id (or
    /// with a `null` for it), with and without the system prompt.
    ///
    /// A node that fits none of them is corrupt when its external id is a UUIDv7, as ours are; any other is
    /// foreign, and its writer may hash something that we do not know.
    pub fn verify(&self) -> Verdict {
        let external_id = self.record.external_id.as_deref();
        for external_id in [external_id.map(Some), None, Some(None)] {
            for system_prompt in [self.record.system_prompt.as_ref(), None] {
                let spelled = self.record.spelled(external_id, system_prompt);
                if sha256(spelled.as_bytes()) == self.id.0 {
                    return Verdict::Valid;
                }
            }
        }
        if external_id.is_some_and(is_uuid_v7) {
            return Verdict::Corrupt(format!("the record hashes to {}", self.record.id()));
        }
        Verdict::Unverifiable("another program hashed the record in a different form")
    }
}

/// Whether a text is a UUID of version 7 in its usual spelling: lowercase with hyphens.
fn is_uuid_v7(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(at, &byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            14 => byte == b'7',
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
            _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        })
}

/// The text of a `parts_list` column: a JSON array of hexadecimal hashes without white space.
pub fn write_parts_list(parts: &[BlobId]) -> String {
    let mut out = String::with_capacity(2 + 67 * parts.len());
    out.push('[');
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push('"');
        out.push_str(part.hex().as_str());
        out.push('"');
    }
    out.push(']');
    out
}

/// A `parts_list` column cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartsListError {
    /// Not JSON.
    #[error("the parts list is not JSON: {0}")]
    Json(#[from] JsonError),
    /// JSON, but no array of strings.
    #[error("the parts list is not an array of strings")]
    Shape,
    /// A string in it is not a hash.
    #[error("part {index} of the parts list: {source}")]
    Hash {
        /// Position in the list, from 0.
        index: usize,
        /// What was expected.
        source: NotAHash,
    },
}

/// Reads a `parts_list` column.
///
/// # Errors
/// When it is not a JSON array of hexadecimal hashes.
pub fn read_parts_list(text: &str) -> Result<Vec<BlobId>, PartsListError> {
    if let Some(parts) = read_usual_parts_list(text) {
        return Ok(parts);
    }
    let Value::Array(items) = Value::parse(text)? else { return Err(PartsListError::Shape) };
    let mut parts = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let part = item.as_text().and_then(|part| part.as_str()).ok_or(PartsListError::Shape)?;
        parts.push(part.parse().map_err(|source| PartsListError::Hash { index, source })?);
    }
    Ok(parts)
}

/// The spelling that every known program writes, without the parser.
fn read_usual_parts_list(text: &str) -> Option<Vec<BlobId>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.split(',').map(|part| part.strip_prefix('"')?.strip_suffix('"')?.parse().ok()).collect()
}
