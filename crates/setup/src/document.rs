//! The text of a settings file, without files: what is in a place, and the text with or without a value there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{json, json_edit, toml_edit};

/// How a settings file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Syntax {
    /// JSON, also with comments and as JSON5.
    Json,
    /// TOML.
    Toml,
}

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

/// What is in a place.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Nothing,
    Value(Value),
}

impl Syntax {
    /// The values in a place: the member, or all elements of the list.
    pub(crate) fn values(self, text: &str, path: &[String]) -> Result<Content, EditError> {
        if text[json::begin_of(text)..].trim().is_empty() {
            return Ok(Content::Nothing);
        }
        let found = match self {
            Self::Json => json::parse(text)?.at(path).map(json::Node::value),
            Self::Toml => {
                let root = toml_edit::read(text)?;
                path.iter().try_fold(&root, |value, name| value.get(name)).cloned()
            }
        };
        Ok(found.map_or(Content::Nothing, Content::Value))
    }

    /// The text with a value in a place that is free. It is made sure that [`Self::remove`] gives the same bytes back.
    pub(crate) fn insert(
        self,
        text: &str,
        placement: &Placement,
        value: &Value,
    ) -> Result<Insertion, EditError> {
        let new = match self {
            Self::Json => json_edit::insert(text, placement, value)?,
            Self::Toml => toml_edit::insert(text, placement, value)?,
        };
        let has_value = match (self.values(&new.text, placement.path())?, placement) {
            (Content::Value(found), Placement::Member(_)) => found == *value,
            (Content::Value(Value::Array(found)), Placement::Element(_)) => found.contains(value),
            _ => false,
        };
        let back = self.remove(&new.text, placement, value, &new.created)?;
        if has_value && back.as_deref() == Some(text) { Ok(new) } else { Err(EditError::Unfaithful) }
    }

    /// The text without a value and without what was made for it. `None` when the value is not there.
    pub(crate) fn remove(
        self,
        text: &str,
        placement: &Placement,
        value: &Value,
        created: &[Container],
    ) -> Result<Option<String>, EditError> {
        match self {
            Self::Json => json_edit::remove(text, placement, value, created),
            Self::Toml => toml_edit::remove(text, placement, value),
        }
    }
}
