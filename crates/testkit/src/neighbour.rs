//! Another program on the same store, made from the description of the shared tables alone: it follows one head for the
//! whole machine, as the program does that those tables come from, and reads lineages as that one does. Nothing of ours is
//! used, so what it sees is what others see.
#![expect(clippy::unwrap_used, reason = "what is wrong in a test is a panic here")]

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension as _, params};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Such a program. Each statement commits by itself, as its own do.
pub struct Neighbour {
    connection: Connection,
    head: String,
    said: i64,
}

/// Makes a database whose tables are views that never end, each with these columns.
pub fn endless_database(path: &Path, tables: &[(&str, &[&str])]) {
    let connection = Connection::open(path).unwrap();
    for (table, columns) in tables {
        let names = columns.join(", ");
        let first = vec!["1"; columns.len()].join(", ");
        let next = vec!["n + 1"; columns.len() - 1].join(", ");
        let names_of_e =
            std::iter::once("n").chain(columns.iter().copied().skip(1)).collect::<Vec<_>>().join(", ");
        let view = format!(
            "CREATE VIEW {table}({names}) AS WITH RECURSIVE e({names_of_e}) AS (VALUES ({first}) UNION ALL \
             SELECT n + 1, {next} FROM e) SELECT * FROM e"
        );
        connection.execute_batch(&view).unwrap();
    }
}

/// A row of the log of actions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// What was done.
    pub kind: String,
    /// From where.
    pub from: Option<String>,
    /// To where.
    pub to: Option<String>,
    /// More about it.
    pub metadata: Option<String>,
}

/// The text that is hashed: members in order, no spaces. Numbers and texts of tests are the same in every language.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
            sorted.sort_by_key(|(name, _)| name.encode_utf16().collect::<Vec<_>>());
            let members: Vec<String> = sorted
                .into_iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), canonical(value)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

fn hash(value: &Value) -> String {
    Sha256::digest(canonical(value)).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Milliseconds as other programs write times.
fn iso(at: i64) -> String {
    // Only compared with itself here.
    format!("{at}")
}

impl Neighbour {
    /// Opens the store of somebody else, who made the tables.
    pub fn open(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        let mut neighbour = Self { connection, head: "PI_HEAD".to_owned(), said: 0 };
        neighbour.said = neighbour.count();
        neighbour
    }

    /// A new file with the tables of that program and nothing in them.
    pub fn create(path: &Path) -> Self {
        let connection = Connection::open(path).unwrap();
        connection
            .execute_batch(
                "CREATE TABLE IF NOT EXISTS blobs (hash TEXT PRIMARY KEY, type TEXT NOT NULL, content TEXT NOT NULL, \
                 thought_signature TEXT); \
                 CREATE TABLE IF NOT EXISTS nodes (id TEXT PRIMARY KEY, parent_id TEXT, role TEXT NOT NULL, \
                 parts_list TEXT NOT NULL, timestamp INTEGER NOT NULL, config_json TEXT, thought_signatures TEXT, \
                 system_prompt_hash TEXT, external_id TEXT); \
                 CREATE TABLE IF NOT EXISTS refs (name TEXT PRIMARY KEY, node_id TEXT NOT NULL); \
                 CREATE TABLE IF NOT EXISTS action_log (id INTEGER PRIMARY KEY AUTOINCREMENT, \
                 timestamp INTEGER NOT NULL, action_type TEXT NOT NULL, from_node TEXT, to_node TEXT, metadata TEXT); \
                 CREATE INDEX IF NOT EXISTS idx_nodes_parent ON nodes(parent_id); \
                 CREATE INDEX IF NOT EXISTS idx_nodes_external_id ON nodes(external_id);",
            )
            .unwrap();
        drop(connection);
        Self::open(path)
    }

    /// The same, with another head.
    #[must_use]
    pub fn with_head(mut self, head: &str) -> Self {
        head.clone_into(&mut self.head);
        self
    }

    fn count(&self) -> i64 {
        self.connection.query_row("SELECT count(*) FROM nodes", [], |row| row.get(0)).unwrap()
    }

    /// Reads from now on what is there now, so that what is committed later stays in the log.
    pub fn hold(&self) {
        self.connection.execute_batch("BEGIN").unwrap();
        self.count();
    }

    /// Where a ref stands.
    pub fn head(&self, name: &str) -> Option<String> {
        self.connection
            .query_row("SELECT node_id FROM refs WHERE name = ?1", [name], |row| row.get(0))
            .optional()
            .unwrap()
    }

    /// Sets a ref, wherever it stands.
    pub fn set(&self, name: &str, node: &str) {
        self.connection.execute("INSERT OR REPLACE INTO refs VALUES (?1, ?2)", [name, node]).unwrap();
    }

    /// The hashes of all blobs, with their types.
    pub fn blobs(&self) -> Vec<(String, String)> {
        let mut statement = self.connection.prepare("SELECT hash, type FROM blobs ORDER BY rowid").unwrap();
        let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.collect::<Result<_, _>>().unwrap()
    }

    /// Removes a blob, as a fault would.
    pub fn lose_blob(&self, hash: &str) {
        assert_eq!(self.connection.execute("DELETE FROM blobs WHERE hash = ?1", [hash]).unwrap(), 1);
    }

    /// Adds a row to the log of actions.
    pub fn log(&self, at: i64, act: &Act) {
        let Act { kind, from, to, metadata } = act;
        self.connection
            .execute(
                "INSERT INTO action_log (timestamp, action_type, from_node, to_node, metadata) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![at, kind, from, to, metadata],
            )
            .unwrap();
    }

    /// The log of actions, oldest first.
    pub fn acts(&self) -> Vec<Act> {
        let mut statement = self
            .connection
            .prepare("SELECT action_type, from_node, to_node, metadata FROM action_log ORDER BY id")
            .unwrap();
        let rows = statement.query_map([], |row| {
            Ok(Act { kind: row.get(0)?, from: row.get(1)?, to: row.get(2)?, metadata: row.get(3)? })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Says something: blobs, then a node below its head, then the head, then a row of the log. Gives the node.
    pub fn say(&mut self, role: &str, text: &str) -> String {
        let parent = self.head(&self.head);
        self.said += 1;
        let external = format!("{:08x}", 0xa000_0000_i64 + self.said);
        self.put(parent, role, &[("text", json!(text))], Some(&external), 1_700_000_000_000 + self.said)
    }

    /// A node of other parts, below any other or none. Its head follows.
    pub fn put(
        &self,
        parent: Option<String>,
        role: &str,
        parts: &[(&str, Value)],
        external_id: Option<&str>,
        at: i64,
    ) -> String {
        let mut hashes = Vec::new();
        for (kind, content) in parts {
            let id = hash(&json!({ "type": kind, "content": content }));
            self.connection
                .execute(
                    "INSERT OR IGNORE INTO blobs (hash, type, content) VALUES (?1, ?2, ?3)",
                    params![id, kind, content.to_string()],
                )
                .unwrap();
            hashes.push(id);
        }
        let mut record = json!({ "parent_id": parent, "role": role, "parts_list": hashes, "timestamp": at });
        if let Some(external) = external_id {
            record["external_id"] = json!(external);
        }
        let id = hash(&record);
        let config = r#"{"agent":"pi","model":{"provider":"test","id":"test-model"},"thinkingLevel":"off","tools":[]}"#;
        self.connection
            .execute(
                "INSERT OR IGNORE INTO nodes (id, parent_id, role, parts_list, timestamp, config_json, external_id) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![id, parent, role, json!(hashes).to_string(), at, config, external_id],
            )
            .unwrap();
        self.set(&self.head, &id);
        self.log(at, &Act { kind: "COMMIT".into(), from: parent, to: Some(id.clone()), metadata: None });
        id
    }

    /// The nodes of a lineage, the first first. A parent that is missing ends it.
    pub fn lineage(&self, node: &str) -> Vec<String> {
        self.rows(node).into_iter().map(|row| row.id).collect()
    }

    fn rows(&self, node: &str) -> Vec<Row> {
        let mut statement = self
            .connection
            .prepare("SELECT parent_id, role, parts_list, timestamp, config_json, external_id FROM nodes WHERE id = ?1")
            .unwrap();
        let (mut rows, mut next) = (Vec::new(), Some(node.to_owned()));
        while let Some(id) = next {
            let found = statement.query_row([&id], |row| {
                Ok(Row {
                    id: id.clone(),
                    parent: row.get(0)?,
                    role: row.get(1)?,
                    parts: row.get(2)?,
                    at: row.get(3)?,
                    config: row.get(4)?,
                    external_id: row.get(5)?,
                })
            });
            let Some(row) = found.optional().unwrap() else { break };
            next = row.parent.clone();
            rows.push(row);
        }
        rows.reverse();
        rows
    }

    /// A lineage as entries of a session file, as that program makes them when it opens a session.
    pub fn entries(&self, node: &str) -> Vec<Value> {
        let rows = self.rows(node);
        let mut entries = Vec::new();
        let mut parent_id = Value::Null;
        for row in rows {
            entries.extend(self.entry(&row, &parent_id));
            // Without an id of its own, a node is nobody's parent there.
            parent_id = row.external_id.map_or(Value::Null, Value::from);
        }
        entries
    }

    fn entry(&self, row: &Row, parent_id: &Value) -> Option<Value> {
        let (mut content, mut result, mut whole) = (Vec::new(), None, None);
        for part in serde_json::from_str::<Vec<String>>(&row.parts).unwrap() {
            let blob: Option<(String, String)> = self
                .connection
                .query_row("SELECT type, content FROM blobs WHERE hash = ?1", [&part], |row| {
                    Ok((row.get(0)?, row.get(1)?))
                })
                .optional()
                .unwrap();
            let Some((kind, text)) = blob else { continue };
            let data: Value = serde_json::from_str(&text).unwrap();
            match kind.as_str() {
                "text" => content.push(json!({ "type": "text", "text": data })),
                "thinking" => content.push(json!({ "type": "thinking", "thinking": data })),
                "tool_call" => {
                    let mut call = Map::new();
                    call.insert("type".into(), "toolCall".into());
                    for name in ["id", "name", "arguments"] {
                        call.insert(name.into(), data[name].clone());
                    }
                    content.push(call.into());
                }
                "tool_result" => result = Some(data),
                "pi_entry" => whole = Some(data),
                "pi_meta" if data["type"].is_string() && data.get("role").is_none() => whole = Some(data),
                "pi_meta" => content.push(data),
                _ => {}
            }
        }
        if let Some(whole) = whole {
            // With the ids that stand in it.
            return Some(whole);
        }
        let id = row.external_id.clone().unwrap_or_else(|| row.id[..8].to_owned());
        let message = if row.role == "toolResult" {
            let result = result.unwrap_or_default();
            let or = |name: &str, other: Value| match result.get(name) {
                Some(found) => found.clone(),
                None => other,
            };
            json!({ "role": row.role, "toolCallId": or("toolCallId", json!("unknown")),
                "toolName": or("toolName", json!("unknown")), "content": or("content", json!([])),
                "isError": or("isError", json!(false)), "timestamp": row.at })
        } else if content.is_empty() && row.role == "pi_internal" {
            return None;
        } else if row.role == "assistant" {
            let config: Value =
                serde_json::from_str(row.config.as_deref().unwrap_or("null")).unwrap_or_default();
            json!({ "role": row.role, "content": content, "timestamp": row.at, "api": "chat",
                "provider": config["model"]["provider"], "model": config["model"]["id"], "stopReason": "stop" })
        } else {
            json!({ "role": row.role, "content": content, "timestamp": row.at })
        };
        Some(
            json!({ "type": "message", "id": id, "parentId": parent_id, "timestamp": iso(row.at), "message": message }),
        )
    }
}

struct Row {
    id: String,
    parent: Option<String>,
    role: String,
    parts: String,
    at: i64,
    config: Option<String>,
    external_id: Option<String>,
}

/// The entries from the root to the last, by the ids that they name; a parent that is not there ends the walk.
pub fn path_of(entries: &[Value]) -> Vec<Value> {
    let (mut path, mut next) = (Vec::new(), entries.last());
    while let Some(entry) = next {
        path.push(entry.clone());
        next = entry["parentId"].as_str().and_then(|id| entries.iter().find(|entry| entry["id"] == id));
        assert!(path.len() <= entries.len(), "a circle of entries");
    }
    path.reverse();
    path
}

/// What a model is shown of entries, as texts: the summary of the last compaction first, then what it kept, then the rest.
pub fn context_of(entries: &[Value]) -> Vec<String> {
    let path = path_of(entries);
    let last = path.iter().rposition(|entry| entry["type"] == "compaction");
    let shown: Vec<&Value> = match last {
        None => path.iter().collect(),
        Some(at) => {
            let kept = path[..at].iter().position(|entry| entry["id"] == path[at]["firstKeptEntryId"]);
            let kept = &path[kept.unwrap_or(at)..at];
            std::iter::once(&path[at]).chain(kept).chain(&path[at + 1..]).collect()
        }
    };
    let texts = |content: &Value| match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    };
    let say = |entry: &&Value| {
        let (kind, message) = (entry["type"].as_str().unwrap_or_default(), &entry["message"]);
        Some(match kind {
            "compaction" => {
                format!("compactionSummary: {}", entry["summary"].as_str().unwrap_or("undefined"))
            }
            "branch_summary" => {
                format!("branchSummary: {}", entry["summary"].as_str().unwrap_or("undefined"))
            }
            "custom_message" => format!("custom: {}", texts(&entry["content"])),
            "message" => match message["role"].as_str().unwrap_or_default() {
                "branchSummary" | "compactionSummary" => {
                    let role = message["role"].as_str().unwrap_or_default();
                    format!("{role}: {}", message["summary"].as_str().unwrap_or("undefined"))
                }
                "bashExecution" => {
                    format!("bashExecution: {}", message["command"].as_str().unwrap_or("undefined"))
                }
                role => format!("{role}: {}", texts(&message["content"])),
            },
            _ => return None,
        })
    };
    shown.iter().filter_map(say).collect()
}
