//! What a change of a settings file is: its place, what was there, why it cannot be made.

use serde::{Deserialize, Serialize};

/// The place of a value in a settings file.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The member at the end of these names.
    Member(Vec<String>),
    /// An element of the list at the end of these names.
    Element(Vec<String>),
}

impl Placement {
    /// The names.
    pub fn path(&self) -> &[String] {
        match self {
            Self::Member(path) | Self::Element(path) => path,
        }
    }
}

/// A container that a value was put into, and that was not as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Its names; none for the document.
    pub path: Vec<String>,
    /// What it was before.
    pub origin: Origin,
}

impl Container {
    /// Whether nothing but blanks would be put back.
    pub(crate) fn is_blank(&self) -> bool {
        match &self.origin {
            Origin::Absent => true,
            Origin::Blank { text } | Origin::Empty { behind: text } => text.trim().is_empty(),
        }
    }
}

/// What a container was before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// It was not there.
    Absent,
    /// The document was blank.
    Blank {
        /// Its text, without a byte order mark.
        text: String,
    },
    /// It was empty and on one line.
    Empty {
        /// The line break between the value and its end.
        behind: String,
    },
}

/// A text with a new value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Insertion {
    pub(crate) text: String,
    pub(crate) created: Vec<Container>,
}

/// Why a text cannot be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditError {
    /// It is not valid from this place on.
    Syntax { at: usize, what: String },
    /// What these names lead to cannot hold the value.
    Shape(String),
    /// The change could not be undone exactly.
    Unfaithful,
}
