//! What is to be in a settings file, and what is there.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::document::Syntax;
use crate::edit::Placement;
use crate::ledger::{PieceRecord, RecordContent};

/// Something that is to be in a file of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Piece {
    /// The file.
    pub file: PathBuf,
    /// What is to be in it.
    pub content: PieceContent,
}

/// What is to be in a file.
#[derive(Debug, Clone, PartialEq)]
pub enum PieceContent {
    /// A value beside what the user has there.
    Value {
        /// How the file is written.
        syntax: Syntax,
        /// The place of the value.
        placement: Placement,
        /// The value.
        value: Value,
    },
    /// The whole file is ours and holds this text.
    File(String),
}

/// What became of a piece, or would.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PieceState {
    /// It is there as it should be.
    Present,
    /// It is not there.
    Missing,
    /// It is there as an earlier setup wrote it, with another program or in another form.
    Outdated,
    /// Something else is there: the user's own, or ours as the user changed it. It is left alone.
    Changed,
}

impl Piece {
    /// Its place for people.
    pub fn label(&self) -> String {
        match &self.content {
            PieceContent::Value { placement, .. } => placement.path().join("."),
            PieceContent::File(_) => self.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        }
    }

    /// Its value, for people, where it is one of a JSON file.
    pub(crate) fn as_json(&self) -> Option<String> {
        match &self.content {
            PieceContent::Value { syntax: Syntax::Json, placement: Placement::Member(_), value } => {
                Some(value.to_string())
            }
            PieceContent::Value { .. } | PieceContent::File(_) => None,
        }
    }

    /// What is remembered of it once it is written.
    pub(crate) fn record(&self, program: &str) -> PieceRecord {
        let content = match &self.content {
            PieceContent::Value { syntax, placement, value } => {
                RecordContent::Value { syntax: *syntax, placement: placement.clone(), value: value.clone() }
            }
            PieceContent::File(text) => RecordContent::File { sha256: sha256(text) },
        };
        PieceRecord { program: program.to_owned(), content }
    }
}

/// The SHA-256 of a text, in hexadecimal digits.
pub(crate) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
