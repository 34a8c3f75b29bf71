//! Our part of a node: how it is written, found and read.

use std::borrow::Cow;

use quipu_dag::{Blob, Node};
use quipu_protocol::{AddedBlock, BlobId, ChunkId, FileChange, Json, NodeId, Provenance};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::Lookup;
use crate::exact::{Canonical, read};

/// The type of our part.
pub(crate) const KIND: &str = "quipu";
const VERSION: u64 = 1;

/// Our part as it stands in its blob. Each member is read only when it is asked for.
#[derive(Deserialize)]
pub(crate) struct OwnPart<'a> {
    v: u64,
    #[serde(borrow)]
    pub(crate) entry: Cow<'a, str>,
    /// Bytes at the beginning of the `pi_meta` part that are for other programs.
    #[serde(default)]
    pub(crate) listed: usize,
    /// The same, where the last byte is, too.
    #[serde(default)]
    pub(crate) wrapped: usize,
    #[serde(borrow, default)]
    pub(crate) message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    whole: Option<&'a RawValue>,
    #[serde(default)]
    pub(crate) other: bool,
    #[serde(default)]
    pub(crate) plain: bool,
    #[serde(borrow, default)]
    marks: Option<&'a RawValue>,
    #[serde(borrow, default)]
    images: Option<&'a RawValue>,
    #[serde(borrow, default)]
    others: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) session: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) epoch: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) compaction: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) step: Option<&'a RawValue>,
    #[serde(borrow, default)]
    provenance: Option<&'a RawValue>,
    #[serde(borrow, default)]
    added: Option<&'a RawValue>,
    #[serde(borrow, default)]
    files: Option<&'a RawValue>,
    #[serde(borrow, default)]
    merge: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(crate) extra: Option<&'a RawValue>,
}

/// Where the whole message or entry is.
pub(crate) enum WholeLocation {
    /// Not in one piece.
    No,
    /// It is the content of the `pi_meta` part.
    InMeta,
    Here(Json),
}

/// What belongs to one block of the content.
#[derive(Deserialize)]
pub(crate) struct Mark {
    pub(crate) index: u64,
    #[serde(default)]
    pub(crate) signature: Option<String>,
    #[serde(default)]
    pub(crate) redacted: Option<bool>,
    #[serde(default)]
    pub(crate) namespace: Option<String>,
    #[serde(default)]
    pub(crate) arguments: Option<Json>,
}

/// An image of the content.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Image {
    pub(crate) index: u64,
    pub(crate) mime_type: String,
    #[serde(default)]
    pub(crate) chunk: Option<ChunkId>,
    #[serde(default)]
    pub(crate) data: Option<String>,
}

/// A block that no type of part fits.
#[derive(Deserialize)]
pub(crate) struct UnknownBlock {
    pub(crate) index: u64,
    /// One of a type unknown to the writer.
    #[serde(default, deserialize_with = "present")]
    pub(crate) block: Option<Json>,
    /// One of a known type in a place where other programs do not look for it.
    #[serde(default, deserialize_with = "present")]
    pub(crate) content: Option<Json>,
}

/// A member that is there is there, `null` too.
pub(crate) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

impl OwnPart<'_> {
    pub(crate) fn whole(&self) -> WholeLocation {
        match self.whole {
            None => WholeLocation::No,
            Some(raw) if raw.get() == "true" => WholeLocation::InMeta,
            Some(raw) => read(raw.get()).map_or(WholeLocation::No, WholeLocation::Here),
        }
    }

    pub(crate) fn is_compaction(&self) -> bool {
        self.entry == "compaction"
    }

    pub(crate) fn marks(&self) -> Vec<Mark> {
        list(self.marks)
    }

    pub(crate) fn images(&self) -> Vec<Image> {
        list(self.images)
    }

    pub(crate) fn others(&self) -> Vec<UnknownBlock> {
        list(self.others)
    }

    /// What the node brings together; nothing for one that is no merge.
    pub(crate) fn merge(&self) -> Vec<NodeId> {
        #[derive(Deserialize)]
        struct Merge {
            parents: Vec<NodeId>,
        }
        self.merge.and_then(|raw| read::<Merge>(raw.get())).map_or_else(Vec::new, |merge| merge.parents)
    }

    /// `None` also for one of a later version, which cannot be read.
    pub(crate) fn provenance(&self) -> Option<Provenance> {
        self.provenance.and_then(|raw| read(raw.get()))
    }

    /// Those that cannot be read are left out.
    pub(crate) fn added(&self) -> Vec<AddedBlock> {
        let each: Vec<&RawValue> =
            self.added.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        each.into_iter().filter_map(|added| read(added.get())).collect()
    }

    /// Changes that cannot be read are left out.
    pub(crate) fn files(&self) -> Vec<FileChange> {
        let each: Vec<&RawValue> =
            self.files.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
        each.into_iter().filter_map(|change| read(change.get())).collect()
    }
}

fn list<T: DeserializeOwned>(raw: Option<&RawValue>) -> Vec<T> {
    raw.and_then(|raw| read(raw.get())).unwrap_or_default()
}

/// Our part and the ids of the parts before it; `None` for a node of another program, or of a version of ours
/// that we do not know.
pub(crate) fn find<'a>(node: &'a Node, lookup: &'a dyn Lookup) -> Option<(OwnPart<'a>, &'a [BlobId])> {
    let (last, before) = node.record.parts.split_last()?;
    let blob = lookup.blob(last).filter(|blob| blob.kind == KIND)?;
    let own: OwnPart<'_> = serde_json::from_str(&blob.content).ok()?;
    (own.v == VERSION).then_some((own, before))
}

/// The hashes that a blob points at: those in the `refs` of our part, none for every other blob. Whether a
/// hash names a node, a blob or a chunk is for the store to see.
pub fn refs_of(blob: &Blob) -> Vec<[u8; 32]> {
    #[derive(Deserialize)]
    struct Refs<'a> {
        #[serde(borrow, default)]
        refs: Vec<Cow<'a, str>>,
    }
    if blob.kind != KIND {
        return Vec::new();
    }
    let Ok(found) = serde_json::from_str::<Refs<'_>>(&blob.content) else { return Vec::new() };
    found.refs.iter().filter_map(|hash| hash.parse::<ChunkId>().ok()).map(|hash| hash.0).collect()
}

/// What [`crate::decode`] puts into `step.extra` under this name, from our part alone; `None` when that has nothing
/// of this name, and for every other blob.
pub fn extra_of(blob: &Blob, name: &str) -> Option<Json> {
    #[derive(Deserialize)]
    struct ExtraPart<'a> {
        v: u64,
        #[serde(borrow, default)]
        extra: Option<&'a RawValue>,
    }
    if blob.kind != KIND {
        return None;
    }
    let ExtraPart { v: VERSION, extra: Some(extra) } = serde_json::from_str(&blob.content).ok()? else {
        return None;
    };
    let pairs: Vec<(Cow<'_, str>, Json)> = read(extra.get())?;
    pairs.into_iter().rev().find_map(|(found, json)| (found == name).then_some(json))
}

/// What [`crate::decode`] puts into `step.files`, from our part alone; none for every other blob.
pub fn files_of(blob: &Blob) -> Vec<FileChange> {
    // Most parts say nothing of files.
    if blob.kind != KIND || !blob.content.contains("\"files\"") {
        return Vec::new();
    }
    let own = serde_json::from_str::<OwnPart<'_>>(&blob.content).ok().filter(|own| own.v == VERSION);
    own.map(|own| own.files()).unwrap_or_default()
}

/// Our part while it is put together.
pub(crate) struct Draft {
    members: Vec<(&'static str, Canonical)>,
    refs: std::collections::BTreeSet<[u8; 32]>,
}

impl Draft {
    pub(crate) fn new(entry: &'static str) -> Self {
        let members = vec![("v", VERSION.into()), ("entry", entry.into())];
        Self { members, refs: std::collections::BTreeSet::new() }
    }

    pub(crate) fn set(&mut self, name: &'static str, value: Canonical) {
        self.members.push((name, value));
    }

    /// Leaves the member out when there is nothing in the list.
    pub(crate) fn set_list(&mut self, name: &'static str, items: Vec<Canonical>) {
        if !items.is_empty() {
            self.set(name, Canonical::list(items));
        }
    }

    pub(crate) fn refer(&mut self, hash: [u8; 32]) {
        self.refs.insert(hash);
    }

    pub(crate) fn blob(mut self) -> Blob {
        let refs = self.refs.iter().map(|hash| Canonical::from(ChunkId(*hash).hex().as_str()));
        self.members.push(("refs", Canonical::list(refs)));
        Blob::from_canonical(KIND, Canonical::object(self.members).into_text())
    }
}
