//! What was imported before, by file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use quipu_protocol::{ChunkId, SessionId};
use quipu_store::{ActionQuery, Store, StoreError};
use serde::{Deserialize, Serialize};

use crate::lineages::IMPORTED;

/// What an import noted of its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Mark {
    pub(crate) format: String,
    pub(crate) path: PathBuf,
    pub(crate) session: SessionId,
    pub(crate) bytes: u64,
    pub(crate) sha256: ChunkId,
}

/// What was imported before. Read once for many files.
#[derive(Debug, Default)]
pub(crate) struct Marks(HashMap<PathBuf, Mark>);

impl Marks {
    pub(crate) async fn load(store: &dyn Store) -> Result<Self, StoreError> {
        let query = ActionQuery { kinds: vec![IMPORTED.into()], ..ActionQuery::default() };
        let mut marks = HashMap::new();
        for logged in store.actions(query).await? {
            let mark = logged.action.metadata.and_then(|text| serde_json::from_str::<Mark>(&text).ok());
            if let Some(mark) = mark {
                // The newest comes first.
                marks.entry(mark.path.clone()).or_insert(mark);
            }
        }
        Ok(Self(marks))
    }

    pub(crate) fn of(&self, agent: &str, path: &Path) -> Option<&Mark> {
        self.0.get(path).filter(|mark| mark.format == agent)
    }
}
