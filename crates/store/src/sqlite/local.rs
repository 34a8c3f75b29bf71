//! What a store can do because it is a file on this machine.

use std::path::Path;

use quipu_protocol::ChunkId;

use super::{SqliteStore, Writer, places};
use crate::{Extent, Fut, Graph, Local, RecallIndex, Vectors};

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.place.path).finish_non_exhaustive()
    }
}

impl Graph for SqliteStore {
    fn local(&self) -> Option<&dyn Local> {
        Some(self)
    }

    fn recall_index(&self) -> Option<&dyn RecallIndex> {
        Some(self)
    }

    fn vectors(&self) -> Option<&dyn Vectors> {
        Some(self)
    }
}

impl Local for SqliteStore {
    fn is_in_place(&self) -> bool {
        self.writer.as_ref().is_none_or(Writer::is_in_place)
    }

    fn will_build_on(&self, base: ChunkId) {
        if let Some(writer) = &self.writer {
            writer.will_build_on(base);
        }
    }

    fn extent(&self) -> Fut<'_, Extent> {
        // Beside the file, where there is one: what does not fit there does not fit into it either.
        let dir = self.readers.as_ref().and_then(|_| self.place.path.parent()).map(Path::to_owned);
        let spool = dir.filter(|_| !self.is_read_only());
        Box::pin(self.read(move |connection| Ok(Extent { nodes: places::last(connection)?, spool })))
    }
}
