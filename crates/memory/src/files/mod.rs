//! The files of a memory: which names belong to it, what is read of them, and how one is replaced.

mod merge;
mod name;
mod read;
mod replace;

pub use name::{FileName, NameError, NoteDate};
pub use read::{
    FILE_BYTES, FILES, FileList, FileProblem, FileText, ListedFile, checked_text, list_files, read_file,
};

pub(crate) use name::DEPTH;
pub(crate) use read::FileStamp;
pub(crate) use replace::{Replacement, replace};
