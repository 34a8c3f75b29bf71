//! Input of a session.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{MapAccess, SeqAccess, Visitor, value};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::{AddedBlock, Content, Provenance};

/// A message to a session: blocks of text and images, and their provenance.
///
/// Its JSON form is the list of its blocks where a person wrote all of it, else an object with `content`, `provenance` and
/// `added`.
///
/// ```
/// use quipu_protocol::{AuthorClass, Origin, Provenance, UserInput};
///
/// let json = r#"{"content":[{"type":"text","text":"The build failed."}],"provenance":{"origin":"process","author":"untrusted"}}"#;
/// let input: UserInput = serde_json::from_str(json).unwrap();
/// assert_eq!(input, UserInput::from("The build failed.").from_source(Provenance::new(Origin::Process, AuthorClass::Untrusted)));
/// assert_eq!(serde_json::to_string(&input).unwrap(), json);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UserInput {
    /// Text and image blocks, in the order in which the model gets them.
    pub content: Vec<Content>,
    /// Origin and author of the blocks that `added` does not list; by default a person, the owner.
    pub provenance: Provenance,
    /// Blocks of them that came from elsewhere.
    pub added: Vec<AddedBlock>,
}

impl UserInput {
    /// Blocks that a person wrote.
    pub const fn new(content: Vec<Content>) -> Self {
        let provenance = Provenance::new(crate::Origin::Person, crate::AuthorClass::Owner);
        Self { content, provenance, added: Vec::new() }
    }

    /// Sets the provenance.
    #[must_use]
    pub fn from_source(mut self, provenance: Provenance) -> Self {
        self.provenance = provenance;
        self
    }

    /// The text blocks joined by newlines.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
    }

    /// The text blocks that came from nowhere else, joined by newlines.
    pub fn own_text(&self) -> String {
        crate::own_text(&self.content, &self.added)
    }

    /// Appends a text of another source.
    pub fn add(&mut self, text: impl Into<String>, provenance: Provenance) {
        self.added.push(AddedBlock::behind(&self.content, provenance));
        self.content.push(Content::text(text));
    }
}

impl From<&str> for UserInput {
    fn from(text: &str) -> Self {
        Self::new(vec![Content::text(text)])
    }
}

impl From<String> for UserInput {
    fn from(text: String) -> Self {
        Self::new(vec![Content::text(text)])
    }
}

impl Serialize for UserInput {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.provenance.is_default() && self.added.is_empty() {
            return self.content.serialize(serializer);
        }
        let mut object = serializer.serialize_struct("UserInput", 2 + usize::from(!self.added.is_empty()))?;
        object.serialize_field("content", &self.content)?;
        object.serialize_field("provenance", &self.provenance)?;
        if !self.added.is_empty() {
            object.serialize_field("added", &self.added)?;
        }
        object.end()
    }
}

/// The object of the JSON form.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SourcedInput {
    /// Text and image blocks, in the order in which the model gets them.
    content: Vec<Content>,
    /// Origin and author of the blocks that `added` does not list; by default a person, the owner.
    #[serde(default)]
    provenance: Provenance,
    /// Blocks of them that came from elsewhere.
    #[serde(default)]
    added: Vec<AddedBlock>,
}

impl<'de> Deserialize<'de> for UserInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = UserInput;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of blocks, or an object with `content`")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<UserInput, A::Error> {
                Vec::deserialize(value::SeqAccessDeserializer::new(list)).map(UserInput::new)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<UserInput, A::Error> {
                let SourcedInput { content, provenance, mut added } =
                    SourcedInput::deserialize(value::MapAccessDeserializer::new(map))?;
                added.retain(|added| usize::try_from(added.block).is_ok_and(|block| block < content.len()));
                let provenance = match provenance.name {
                    Some(name) => Provenance { name: None, ..provenance }.named(name),
                    None => provenance,
                };
                Ok(UserInput { content, provenance, added })
            }
        }

        deserializer.deserialize_any(Form)
    }
}

impl JsonSchema for UserInput {
    fn schema_name() -> Cow<'static, str> {
        "UserInput".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (list, object) =
            (generator.subschema_for::<Vec<Content>>(), generator.subschema_for::<SourcedInput>());
        json_schema!({
            "description": "A message: blocks of text and images; an object where a source other than a person wrote some of it.",
            "anyOf": [list, object]
        })
    }
}
