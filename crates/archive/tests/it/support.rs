//! A store, files, and what the migration of the program that wrote them makes of a file.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::{ArchiveError, ImportCache, Report, pi};
use quipu_protocol::{Entry, NodeId};
use quipu_seal::Sealer;
use quipu_store::{Graph, LineageEnd, RefName, SessionQuery, SessionRow, SqliteStore, decode_nodes};
use serde_json::{Value, json};

/// A secret that is known to the sealer.
pub(crate) const SECRET: &str = "correct horse battery";

pub(crate) const FIXTURES: [&str; 4] = [
    "before-compaction.jsonl.gz",
    "2026-11-20T08-59-27-127Z_01a1f82e-9e12-74f0-ac41-f9b70e39de47.jsonl",
    "2026-11-20T08-59-54-432Z_01a1f82f-08c0-725c-b6a2-648bcb2a6533.jsonl",
    "2026-11-20T08-59-55-794Z_01a1f82f-0e12-725c-b6a2-648c8cfe0ab4.jsonl",
];

pub(crate) struct Archive {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
}

/// Every ref, and the nodes that they lead to.
pub(crate) type All = (Vec<(String, NodeId)>, Vec<NodeId>);

pub(crate) fn archive() -> Archive {
    let sealer = Sealer::new([7; 32]);
    sealer.know("known", SECRET);
    Archive {
        dir: tempfile::tempdir().unwrap(),
        store: Arc::new(SqliteStore::in_memory().unwrap()),
        sealer: Arc::new(sealer),
    }
}

pub(crate) fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(work)
}

impl Archive {
    pub(crate) fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn try_import(&self, path: &Path) -> Result<Report, ArchiveError> {
        block_on(async {
            let cache = ImportCache::load(&*self.store).await?;
            let options = pi::ImportOptions { dry_run: false, progress: &|_| {} };
            pi::import(&self.store, &self.sealer, path, &cache, &options).await
        })
    }

    pub(crate) fn import(&self, path: &Path) -> Report {
        let report = self.try_import(path).unwrap();
        assert!(report.unchanged || report.read == report.added + report.present + report.changed);
        report
    }

    /// Imports a file of this content.
    pub(crate) fn import_text(&self, name: &str, content: impl AsRef<[u8]>) -> Report {
        self.import(&self.file(name, content))
    }

    pub(crate) fn rows(&self) -> Vec<SessionRow> {
        block_on(self.store.sessions(SessionQuery::default())).unwrap()
    }

    pub(crate) fn row(&self, id: &str) -> SessionRow {
        self.rows().into_iter().find(|row| row.id.as_str() == id).unwrap()
    }

    pub(crate) fn export(&self, id: &str) -> String {
        let mut out = Vec::new();
        let done = block_on(pi::export(&*self.store, &self.row(id), &mut out)).unwrap();
        assert_eq!(done.bytes, out.len() as u64);
        String::from_utf8(out).unwrap()
    }

    /// The lineage of the session's ref, with what each node means.
    pub(crate) fn lineage(&self, id: &str) -> Vec<(NodeId, Entry)> {
        let head = self.row(id).head.unwrap();
        block_on(async {
            let nodes = self.store.lineage(head, LineageEnd::Root).await.unwrap();
            let entries = decode_nodes(&*self.store, &nodes).await.unwrap();
            nodes.iter().zip(entries).map(|(node, decoded)| (node.id, decoded.entry)).collect()
        })
    }

    /// The messages that lead to a node.
    pub(crate) fn branch(&self, tip: NodeId) -> Vec<quipu_protocol::Message> {
        block_on(async {
            let nodes = self.store.lineage(tip, LineageEnd::Root).await.unwrap();
            let entries = decode_nodes(&*self.store, &nodes).await.unwrap();
            let message =
                |entry: &Entry| quipu_transcript::message_of(entry).map(std::borrow::Cow::into_owned);
            entries.iter().filter_map(|decoded| message(&decoded.entry)).collect()
        })
    }

    pub(crate) fn all(&self) -> All {
        block_on(async {
            let heads = self.store.heads("").await.unwrap();
            let mut nodes = Vec::new();
            for head in &heads {
                let lineage = self.store.lineage(head.node, LineageEnd::Root).await.unwrap();
                nodes.extend(lineage.iter().map(|node| node.id));
            }
            nodes.sort();
            nodes.dedup();
            (heads.into_iter().map(|head| (head.name.to_string(), head.node)).collect(), nodes)
        })
    }

    pub(crate) fn head(&self, name: &str) -> Option<NodeId> {
        block_on(self.store.head(&RefName::from(name))).unwrap()
    }
}

/// A fixture, unpacked.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let bytes = std::fs::read(path).unwrap();
    if !name.ends_with(".gz") {
        return String::from_utf8(bytes).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    text
}

/// What the migration leaves of a file: its lines as values. Written from the description of the format, and of no
/// line of ours. Ids that version 1 lacks are `#N`, N being the place in the file.
pub(crate) fn migrated(text: &str) -> Vec<Value> {
    let parsed = text.split('\n').filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut entries: Vec<Value> = parsed.filter(Value::is_object).collect();
    let version = entries[0]["version"].as_u64().unwrap_or(1);
    let mut before = Value::Null;
    for (at, entry) in entries.iter_mut().enumerate() {
        if entry["type"] == "session" {
            if version < 3 {
                entry["version"] = json!(3);
            }
            continue;
        }
        let members = entry.as_object_mut().unwrap();
        if version < 2 {
            let id = json!(format!("#{at}"));
            members.insert("id".into(), id.clone());
            members.insert("parentId".into(), std::mem::replace(&mut before, id));
            if members.get("type") == Some(&json!("compaction"))
                && let Some(index) = members.get("firstKeptEntryIndex").and_then(Value::as_f64)
            {
                members.shift_remove("firstKeptEntryIndex");
                if index.fract() == 0.0 && index >= 1.0 && index <= at as f64 {
                    members.insert("firstKeptEntryId".into(), json!(format!("#{index}")));
                }
            }
        }
        if version < 3
            && members.get("type") == Some(&json!("message"))
            && let Some(role) = members.get_mut("message").and_then(|message| message.get_mut("role"))
            && role == "hookMessage"
        {
            *role = json!("custom");
        }
    }
    entries
}

/// The lines of an export, with ids that were made for version 1 as [`migrated`] has them.
pub(crate) fn exported(text: &str, version_1: bool) -> Vec<Value> {
    assert!(text.ends_with('\n'));
    let mut entries: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    if version_1 {
        let numbered = entries.iter().enumerate().skip(1);
        let ids: HashMap<String, String> = numbered
            .filter_map(|(at, entry)| Some((entry["id"].as_str()?.to_owned(), format!("#{at}"))))
            .collect();
        for entry in &mut entries {
            for name in ["id", "parentId", "firstKeptEntryId"] {
                if let Some(value) = entry.get_mut(name)
                    && let Some(id) = value.as_str().and_then(|id| ids.get(id))
                {
                    *value = json!(id);
                }
            }
        }
    }
    entries
}

/// Numbers as JavaScript has them: `0` and `0.0` are one.
pub(crate) fn as_script(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(as_script).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), as_script(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value.clone(),
    }
}

/// Asserts that an export is what the migration leaves of `text`, entry by entry.
#[track_caller]
pub(crate) fn assert_exports(export: &str, text: &str) {
    let first = text.split('\n').find_map(|line| serde_json::from_str::<Value>(line).ok()).unwrap();
    let version_1 = first["version"].as_u64().is_none_or(|version| version < 2);
    let (got, expect) = (exported(export, version_1), migrated(text));
    for (at, (got, expect)) in got.iter().zip(&expect).enumerate() {
        assert_eq!(as_script(got), as_script(expect), "entry {at}");
    }
    assert_eq!(got.len(), expect.len());
}

/// A header of version 3.
pub(crate) fn header(id: &str) -> Value {
    json!({ "type": "session", "version": 3, "id": id, "timestamp": "2026-01-02T03:04:05.678Z", "cwd": "/p" })
}

/// An entry with this place in the tree, and these members.
pub(crate) fn entry(id: &str, parent: Option<&str>, rest: &Value) -> Value {
    let mut entry = json!({ "id": id, "parentId": parent, "timestamp": "2026-01-02T03:04:06.000Z" });
    entry.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
    entry
}

/// A user's message as an entry.
pub(crate) fn user(id: &str, parent: Option<&str>, text: &str) -> Value {
    let message = json!({ "role": "user", "content": [{ "type": "text", "text": text }], "timestamp": 5 });
    entry(id, parent, &json!({ "type": "message", "message": message }))
}

pub(crate) fn lines(entries: &[Value]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}
