//! Databases of a gateway for personal agents, with the tables and columns of its version 2026.9.6 that an import reads.

#![expect(clippy::unwrap_used, reason = "what is wrong in a test is a panic here")]

use std::path::Path;

use rusqlite::{Connection, params};

/// The version of the form that databases of agents have.
pub const AGENT_FORM: i64 = 23;
/// That of the shared one.
pub const STATE_FORM: i64 = 17;

const META: &str = "CREATE TABLE schema_meta (meta_key TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL,
    schema_version INTEGER NOT NULL, agent_id TEXT, app_version TEXT, created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL) STRICT;";
const AGENT: &str = "CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL,
    entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL, event_json TEXT, created_at INTEGER NOT NULL,
    event_zstd BLOB, event_utf8_bytes INTEGER, navigation_json TEXT, PRIMARY KEY (session_id, seq)) STRICT;
CREATE TABLE session_transcript_archives (session_id TEXT NOT NULL, generation TEXT NOT NULL, session_key TEXT NOT NULL,
    reason TEXT NOT NULL, encoding TEXT NOT NULL, archive_blob BLOB NOT NULL, archive_name TEXT NOT NULL UNIQUE,
    PRIMARY KEY (session_id, generation)) STRICT;
CREATE TABLE session_transcript_cold_archives (session_id TEXT NOT NULL PRIMARY KEY, storage TEXT NOT NULL, archive_blob BLOB) STRICT;
CREATE TABLE auth_profile_store (store_key TEXT NOT NULL PRIMARY KEY, store_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;
CREATE TABLE auth_profile_state (state_key TEXT NOT NULL PRIMARY KEY, state_json TEXT NOT NULL, updated_at INTEGER NOT NULL) STRICT;";
const STATE: &str = "CREATE TABLE exec_approvals_config (config_key TEXT NOT NULL PRIMARY KEY, raw_json TEXT NOT NULL) STRICT;
CREATE TABLE config_machine_state (state_key TEXT NOT NULL PRIMARY KEY, value_json TEXT NOT NULL, updated_at_ms INTEGER NOT NULL) STRICT;
CREATE TABLE cron_jobs (store_key TEXT NOT NULL, job_id TEXT NOT NULL, name TEXT NOT NULL, enabled INTEGER NOT NULL,
    payload_kind TEXT NOT NULL, job_json TEXT NOT NULL, state_json TEXT NOT NULL DEFAULT '{}', updated_at INTEGER NOT NULL,
    PRIMARY KEY (store_key, job_id)) STRICT;";

/// The database of an agent, or of what all agents share.
pub struct GatewayDatabase {
    connection: Connection,
}

impl GatewayDatabase {
    /// That of an agent, of a version of its form.
    pub fn of_agent(path: &Path, version: i64) -> Self {
        Self::create(path, AGENT, version)
    }

    /// That of what all agents share.
    pub fn of_state(path: &Path, version: i64) -> Self {
        Self::create(path, STATE, version)
    }

    fn create(path: &Path, tables: &str, version: i64) -> Self {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let connection = Connection::open(path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.execute_batch(META).unwrap();
        connection.execute_batch(tables).unwrap();
        connection
            .execute(
                "INSERT INTO schema_meta VALUES ('primary', 'x', ?1, NULL, '2026.9.6', 1, 1), ('state-migrations', 'x', 99, NULL, '', 1, 1)",
                params![version],
            )
            .unwrap();
        connection.pragma_update(None, "user_version", version).unwrap();
        Self { connection }
    }

    /// A conversation and its session.
    pub fn conversation(&self, key: &str, session: &str, entry: &str) {
        let row = params![key, session, entry];
        self.connection.execute("INSERT INTO session_nodes VALUES (?1, ?2, ?3, 7)", row).unwrap();
    }

    /// An event of a session, as text or packed.
    pub fn event(&self, session: &str, seq: i64, text: Option<&str>, packed: Option<&[u8]>) {
        let row = params![session, seq, text, packed];
        self.connection
            .execute("INSERT INTO transcript_events VALUES (?1, ?2, ?3, 1000, ?4, NULL, NULL)", row)
            .unwrap();
    }

    /// A session that was put aside.
    pub fn archive(&self, session: &str, name: &str, encoding: &str, content: &[u8]) {
        let row = params![session, name, encoding, content];
        self.connection
            .execute("INSERT INTO session_transcript_archives VALUES (?1, ?2, 'k', 'reset', ?3, ?4, ?2)", row)
            .unwrap();
    }

    /// A session whose events are packed together, or in a file.
    pub fn cold(&self, session: &str, content: Option<&[u8]>) {
        let row = params![session, content];
        self.connection
            .execute("INSERT INTO session_transcript_cold_archives VALUES (?1, 'sqlite', ?2)", row)
            .unwrap();
    }

    /// The credentials of the agent, and their use.
    pub fn profiles(&self, profiles: &str, state: &str) {
        self.connection
            .execute("INSERT INTO auth_profile_store VALUES ('primary', ?1, 1)", params![profiles])
            .unwrap();
        self.connection
            .execute("INSERT INTO auth_profile_state VALUES ('primary', ?1, 1)", params![state])
            .unwrap();
    }

    /// The approvals of commands.
    pub fn approvals(&self, text: &str) {
        self.connection
            .execute("INSERT INTO exec_approvals_config VALUES ('primary', ?1)", params![text])
            .unwrap();
    }

    /// A job.
    pub fn job(&self, id: &str, enabled: bool, json: &str) {
        let row = params![id, enabled, json];
        self.connection
            .execute("INSERT INTO cron_jobs VALUES ('/x', ?1, ?1, ?2, 'agentTurn', ?3, '{}', 1)", row)
            .unwrap();
    }
}
