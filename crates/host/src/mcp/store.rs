//! What is known of the tools of servers: their definitions as they were last, and which of them a person accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quipu_mcp::{Acceptance, DefinitionStore, DefinitionStoreError};
use quipu_protocol::Json;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::state_file::{State, StateFile};

/// Definitions of one tool that are kept as accepted: a server may have one for each directory.
const ACCEPTED_PER_TOOL: usize = 8;

/// `mcp/accepted.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct AcceptedFile {
    version: u32,
    /// Hashes by server and tool, the newest last.
    #[serde(default)]
    servers: BTreeMap<String, BTreeMap<String, Vec<String>>>,
}

impl Default for AcceptedFile {
    fn default() -> Self {
        Self { version: Self::VERSION, servers: BTreeMap::new() }
    }
}

impl State for AcceptedFile {
    const VERSION: u32 = 1;
    const RESET: &str = "be asked about each MCP tool again";

    fn version(&self) -> u32 {
        self.version
    }
}

/// `mcp/NAME.json`: the tools of one server.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ToolsFile {
    version: u32,
    #[serde(default)]
    server: String,
    #[serde(default)]
    tools: Option<Vec<Json>>,
}

impl Default for ToolsFile {
    fn default() -> Self {
        Self { version: Self::VERSION, server: String::new(), tools: None }
    }
}

impl State for ToolsFile {
    const VERSION: u32 = 1;
    const RESET: &str = "have the tools of the server read again";

    fn version(&self) -> u32 {
        self.version
    }
}

/// The files in the home.
#[derive(Debug)]
pub(super) struct FileStore {
    directory: PathBuf,
    /// What is known of a run that keeps nothing; `None` for one that does.
    unkept: Option<Mutex<AcceptedFile>>,
}

impl FileStore {
    /// Of a user's home. One that does not keep reads the files and changes none.
    pub(super) fn keeping(home: &Path) -> Self {
        Self { directory: home.join("mcp"), unkept: None }
    }

    pub(super) fn unkept(home: &Path) -> Self {
        Self { directory: home.join("mcp"), unkept: Some(Mutex::default()) }
    }

    fn accepted(&self) -> StateFile {
        StateFile::new(self.directory.join("accepted.json"))
    }

    fn tools(&self, server: &str) -> StateFile {
        let hash = Sha256::digest(server.as_bytes());
        let hash = quipu_protocol::hex(&hash[..8]);
        StateFile::new(self.directory.join(format!("tools-{hash}.json")))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn failed(failure: crate::Failure) -> DefinitionStoreError {
    DefinitionStoreError(failure.message)
}

impl AcceptedFile {
    fn accept(&mut self, server: &str, tool: &str, hash: &str) -> bool {
        let hashes = self.servers.entry(server.to_owned()).or_default().entry(tool.to_owned()).or_default();
        if hashes.iter().any(|known| known == hash) {
            return false;
        }
        hashes.push(hash.to_owned());
        if hashes.len() > ACCEPTED_PER_TOOL {
            hashes.remove(0);
        }
        true
    }

    fn acceptance(&self, server: &str, tool: &str, hash: &str) -> Acceptance {
        let hashes = self.servers.get(server).and_then(|tools| tools.get(tool));
        match hashes {
            Some(hashes) if hashes.iter().any(|known| known == hash) => Acceptance::Accepted,
            Some(_) => Acceptance::Changed,
            None => Acceptance::New,
        }
    }
}

impl DefinitionStore for FileStore {
    fn known(&self, server: &str) -> Option<Vec<Json>> {
        // What cannot be read is read from the server.
        let file: ToolsFile = self.tools(server).read().ok()?;
        file.tools.filter(|_| file.server == server)
    }

    fn remember(&self, server: &str, definitions: &[Json]) -> Result<(), DefinitionStoreError> {
        if self.unkept.is_some() {
            return Ok(());
        }
        let changed = self.tools(server).change(|file: &mut ToolsFile| {
            let new = Some(definitions.to_vec());
            let changes = file.server != server || file.tools != new;
            (file.server, file.tools) = (server.to_owned(), new);
            changes
        });
        changed.map_err(failed)
    }

    fn acceptance(&self, server: &str, tool: &str, hash: &str) -> Acceptance {
        if let Some(unkept) = &self.unkept
            && lock(unkept).acceptance(server, tool, hash) == Acceptance::Accepted
        {
            return Acceptance::Accepted;
        }
        // What cannot be read accepts nothing.
        let file = self.accepted().read::<AcceptedFile>().unwrap_or_default();
        file.acceptance(server, tool, hash)
    }

    fn accept(&self, server: &str, tool: &str, hash: &str) -> Result<(), DefinitionStoreError> {
        if self.acceptance(server, tool, hash) == Acceptance::Accepted {
            return Ok(());
        }
        match &self.unkept {
            Some(unkept) => {
                lock(unkept).accept(server, tool, hash);
                Ok(())
            }
            None => {
                let changed =
                    self.accepted().change(|file: &mut AcceptedFile| file.accept(server, tool, hash));
                changed.map_err(failed)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acceptance_follows_the_hash_and_survives_a_restart() {
        let home = tempfile::tempdir().unwrap();
        let store = FileStore::keeping(home.path());
        assert_eq!(store.acceptance("s", "t", "a"), Acceptance::New);
        store.accept("s", "t", "a").unwrap();
        let again = FileStore::keeping(home.path());
        assert_eq!(again.acceptance("s", "t", "a"), Acceptance::Accepted);
        assert_eq!(again.acceptance("s", "t", "b"), Acceptance::Changed);
        assert_eq!(again.acceptance("other", "t", "a"), Acceptance::New);
        let definitions = [Json::parse(r#"{"name":"t"}"#).unwrap()];
        again.remember("s", &definitions).unwrap();
        assert_eq!(store.known("s").unwrap(), definitions);
        assert_eq!(store.known("other"), None);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &home.path().join("mcp/accepted.json").metadata().unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn unkept_acceptance_writes_no_file() {
        let home = tempfile::tempdir().unwrap();
        let store = FileStore::unkept(home.path());
        store.accept("s", "t", "a").unwrap();
        store.remember("s", &[]).unwrap();
        assert_eq!(store.acceptance("s", "t", "a"), Acceptance::Accepted);
        assert!(!home.path().join("mcp").exists());
    }
}
