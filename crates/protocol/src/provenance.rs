//! Where a text came from, and who answers for it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Content;

/// The way by which a text entered a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Origin {
    /// A person typed it, or a front sent it for a person.
    #[default]
    Person,
    /// A model wrote it: an answer, a summary, a message to itself.
    Model,
    /// The result of a tool call.
    Tool,
    /// A hook added it, or put it in the place of something else.
    Hook,
    /// A program wrote it: Quipu itself, or a script that drives a session.
    Process,
    /// A schedule sent it when its time came.
    Schedule,
    /// A child session returned it.
    Child,
    /// A chat channel delivered it.
    Channel,
    /// It was imported from another agent's files.
    Import,
}

/// How far the author of a text may be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AuthorClass {
    /// The person whose session it is.
    #[default]
    Owner,
    /// A model that works for the owner.
    Agent,
    /// Anyone else: files, web pages, outputs of commands, other people. Its instructions are data.
    Untrusted,
    /// Quipu itself, and the hooks and settings that the owner installed.
    System,
}

/// Where a text came from. Stored in the node of the text, so it is part of the node's id.
///
/// ```
/// use quipu_protocol::{AuthorClass, Origin, Provenance};
///
/// assert_eq!(Provenance::default(), Provenance::new(Origin::Person, AuthorClass::Owner));
/// let json = serde_json::to_string(&Provenance::new(Origin::Hook, AuthorClass::System).named("date")).unwrap();
/// assert_eq!(json, r#"{"origin":"hook","author":"system","name":"date"}"#);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Provenance {
    /// The way by which it came.
    #[serde(default)]
    pub origin: Origin,
    /// How far the author is trusted; `owner` when absent.
    #[serde(default)]
    pub author: AuthorClass,
    /// Which one of its kind, such as the hook or the channel; at most [`PROVENANCE_NAME`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The longest name in a [`Provenance`], in bytes.
pub const PROVENANCE_NAME: usize = 256;

impl Provenance {
    /// Without a name.
    #[must_use]
    pub const fn new(origin: Origin, author: AuthorClass) -> Self {
        Self { origin, author, name: None }
    }

    /// The same with a name, cut at [`PROVENANCE_NAME`] bytes.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        let mut name = name.into();
        name.truncate(name.floor_char_boundary(PROVENANCE_NAME));
        self.name = Some(name);
        self
    }

    /// Origin `tool`, author `untrusted`.
    #[must_use]
    pub const fn tool() -> Self {
        Self::new(Origin::Tool, AuthorClass::Untrusted)
    }

    /// What Quipu itself wrote.
    #[must_use]
    pub const fn quipu() -> Self {
        Self::new(Origin::Process, AuthorClass::System)
    }

    /// A line that a person runs in the shell, and what it prints.
    #[must_use]
    pub const fn shell() -> Self {
        Self::new(Origin::Process, AuthorClass::Untrusted)
    }

    /// Origin `model`, author `agent`.
    #[must_use]
    pub const fn model() -> Self {
        Self::new(Origin::Model, AuthorClass::Agent)
    }

    /// Origin `hook`, author `system`, with the name of the hook.
    #[must_use]
    pub fn hook(name: &str) -> Self {
        Self::new(Origin::Hook, AuthorClass::System).named(name)
    }

    /// Whether a person said it in the session.
    pub fn is_default(&self) -> bool {
        self.origin == Origin::Person && self.author == AuthorClass::Owner && self.name.is_none()
    }
}

/// A block of a message that came from elsewhere than the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddedBlock {
    /// Its place in the content of the message, from 0.
    pub block: u32,
    /// Origin, author and name of the block: members beside `block` in JSON.
    #[serde(flatten)]
    pub provenance: Provenance,
}

impl AddedBlock {
    /// The block that is put behind these next.
    pub fn behind(content: &[Content], provenance: Provenance) -> Self {
        Self { block: u32::try_from(content.len()).unwrap_or(u32::MAX), provenance }
    }
}

/// The texts among the blocks of a message that `added` does not list, joined by newlines.
///
/// ```
/// use quipu_protocol::{AddedBlock, Content, Provenance, own_text};
///
/// let blocks = [Content::text("<file>"), Content::text("Look.")];
/// assert_eq!(own_text(&blocks, &[AddedBlock { block: 0, provenance: Provenance::tool() }]), "Look.");
/// ```
pub fn own_text(blocks: &[Content], added: &[AddedBlock]) -> String {
    own_blocks(blocks, added).filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}

/// The blocks of a message that `added` does not list.
pub fn own_blocks<'a>(blocks: &'a [Content], added: &'a [AddedBlock]) -> impl Iterator<Item = &'a Content> {
    let is_added =
        move |at: usize| added.iter().any(|one| usize::try_from(one.block).is_ok_and(|block| block == at));
    blocks.iter().enumerate().filter(move |(at, _)| !is_added(*at)).map(|(_, block)| block)
}
