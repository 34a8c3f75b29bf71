//! Logins to servers on the network, in `mcp/auth.json`.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_mcp::{DefinitionStoreError, OauthTokens, TokenStore};
use serde::{Deserialize, Serialize};

use crate::state_file::{State, StateFile};

#[derive(Serialize, Deserialize)]
struct TokensFile {
    version: u32,
    /// By the address of the server.
    #[serde(default)]
    logins: BTreeMap<String, OauthTokens>,
}

impl Default for TokensFile {
    fn default() -> Self {
        Self { version: Self::VERSION, logins: BTreeMap::new() }
    }
}

impl State for TokensFile {
    const VERSION: u32 = 1;
    const RESET: &str = "log in to each MCP server again";

    fn version(&self) -> u32 {
        self.version
    }
}

/// The file (0600), with its lock.
#[derive(Debug)]
pub(super) struct FileTokens(StateFile);

impl FileTokens {
    pub(super) fn of(home: &Path) -> Self {
        Self(StateFile::new(home.join("mcp").join("auth.json")))
    }
}

impl TokenStore for FileTokens {
    fn tokens(&self, url: &str) -> Option<OauthTokens> {
        // What cannot be read is no login.
        self.0.read::<TokensFile>().ok()?.logins.remove(url)
    }

    fn keep(&self, url: &str, tokens: Option<&OauthTokens>) -> Result<(), DefinitionStoreError> {
        let changed = self.0.change(|file: &mut TokensFile| match tokens {
            Some(tokens) => file.logins.insert(url.to_owned(), tokens.clone()).as_ref() != Some(tokens),
            None => file.logins.remove(url).is_some(),
        });
        changed.map_err(|failure| DefinitionStoreError(failure.message))
    }
}
