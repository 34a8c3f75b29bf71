//! The files of one memory and the nodes of their changes, together.

use std::path::PathBuf;
use std::sync::Arc;

use quipu_protocol::{ChunkId, NodeId};
use quipu_seal::Sealer;
use quipu_store::Graph;
use sha2::{Digest as _, Sha256};

use super::observe::UnexplainedChange;
use crate::files::{FileList, FileName, FileProblem, FileText, list_files, read_file};
use crate::{AuthorClass, MemoryError, MemoryHome, MemoryKind, MemoryPlace};

/// Reads and changes a memory. Cheap to make; holds nothing open.
#[derive(Clone)]
pub struct Notebook {
    pub(crate) place: MemoryPlace,
    pub(crate) state: PathBuf,
    pub(crate) store: Arc<dyn Graph>,
    pub(crate) sealer: Arc<Sealer>,
    /// Of a repository's memory: the content that a person accepted.
    accepted: Option<String>,
}

impl std::fmt::Debug for Notebook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notebook").field("place", &self.place).finish_non_exhaustive()
    }
}

/// Who makes a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteAuthor {
    /// The class of the author: `untrusted` where a model writes in a turn that read untrusted text.
    pub class: AuthorClass,
    /// What makes the change, such as the name of a tool or a command: at most 100 letters.
    pub by: String,
    /// The nodes that the new text comes from.
    pub sources: Vec<NodeId>,
}

/// A change that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenNote {
    /// Its node.
    pub node: NodeId,
    /// The file.
    pub name: FileName,
    /// The text as it stands there now, with secrets of the new lines replaced.
    pub text: String,
    /// What other programs had changed before.
    pub unexplained: Vec<UnexplainedChange>,
}

impl Notebook {
    /// The memory of a place. Changes become nodes of `store`; secrets of new text are replaced by `sealer`.
    #[must_use]
    pub fn new(home: &MemoryHome, place: MemoryPlace, store: Arc<dyn Graph>, sealer: Arc<Sealer>) -> Self {
        let accepted = home.accepted_content(&place);
        Self { place, state: home.state(), store, sealer, accepted }
    }

    /// Whose memory it is, and where.
    #[must_use]
    pub fn place(&self) -> &MemoryPlace {
        &self.place
    }

    /// The files that are there, and what cannot be used.
    #[must_use]
    pub fn list(&self) -> FileList {
        list_files(&self.place.root)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// `File` with what is wrong with it.
    pub fn read(&self, name: &FileName) -> Result<FileText, MemoryError> {
        read_file(&self.place.root, name).map_err(|problem| self.refused(name, problem))
    }

    /// A hash of all that the memory says now, by which the memory of a repository is accepted as a whole.
    #[must_use]
    pub fn content(&self) -> String {
        let mut hash = Sha256::new();
        for file in self.list().files {
            let text = read_file(&self.place.root, &file.name);
            // What cannot be read now is something else once it can.
            let text = text.as_ref().map_or("\0", |text| text.text.as_str());
            for part in [file.name.as_str(), text] {
                hash.update((part.len() as u64).to_le_bytes());
                hash.update(part.as_bytes());
            }
        }
        ChunkId(hash.finalize().into()).to_string()
    }

    /// Whether a person accepted the memory of a repository as it is now.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.accepted.as_ref().is_some_and(|accepted| *accepted == self.content())
    }

    pub(crate) fn is_writable(&self) -> Result<(), MemoryError> {
        match self.place.kind {
            MemoryKind::Repository => Err(MemoryError::ReadOnly(self.place.root.clone())),
            MemoryKind::User | MemoryKind::Project | MemoryKind::Workspace => Ok(()),
        }
    }

    pub(crate) fn refused(&self, name: &FileName, problem: FileProblem) -> MemoryError {
        MemoryError::File { path: self.place.root.join(name.as_str()), problem }
    }
}
