//! The text of a settings file, without files: what is in a place, and the text with or without a value there.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::edit::{Container, EditError, Insertion, Placement};
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

    /// The text with a value in the place of another. `None` when that is not there as it was written.
    pub(crate) fn replace(
        self,
        text: &str,
        placement: &Placement,
        [old, new]: [&Value; 2],
        created: &[Container],
    ) -> Result<Option<String>, EditError> {
        let replaced = match self {
            Self::Json => json_edit::replace(text, placement, old, new)?,
            Self::Toml => toml_edit::replace(text, placement, old, new)?,
        };
        let Some(replaced) = replaced else { return Ok(None) };
        let without = self.remove(text, placement, old, created)?;
        match without.is_some() && self.remove(&replaced, placement, new, created)? == without {
            true => Ok(Some(replaced)),
            false => Err(EditError::Unfaithful),
        }
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
