//! Content blocks of messages.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use crate::{CallId, Json};

/// One block of a message. JSON form: an object with a `type`.
///
/// A type that is not known is kept whole in [`Content::Other`], so nothing that another program wrote is lost.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[serde(tag = "type", rename_all = "camelCase")]
pub enum Content {
    /// Text in a message, without reasoning.
    Text(TextContent),
    /// Reasoning of the model.
    Thinking(ThinkingContent),
    /// An image as base64 text.
    Image(ImageContent),
    /// A request of the model to run a tool.
    ToolCall(ToolCall),
    /// A block of a type unknown to this version.
    #[serde(untagged)]
    Other(Json),
}

/// Text in a message, without reasoning.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TextContent {
    /// The text of the block; may be empty.
    pub text: String,
    /// What the provider wants back with this text, opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_signature: Option<String>,
}

/// Reasoning of the model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingContent {
    /// The reasoning as text; may be empty when it is redacted or withheld.
    pub thinking: String,
    /// Proof that the provider wants back unchanged; for redacted thinking the encrypted data itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_signature: Option<String>,
    /// `Some(true)` when the provider sent this block encrypted only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redacted: Option<bool>,
}

/// An image as base64 text, with its MIME type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImageContent {
    /// Base64 of the file.
    pub data: String,
    /// Such as `image/png`.
    pub mime_type: String,
}

/// A request of the model to run a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The model's id for this call.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// The arguments as the model wrote them; `{}` when absent. What the model sent that is not JSON at all is
    /// kept as a JSON string.
    #[serde(default = "Json::object")]
    pub arguments: Json,
    /// What the provider wants back with this call, opaque.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// The namespace of the tool, where a provider has such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl ImageContent {
    /// The MIME type of an image that models take, by its first bytes; `None` for anything else.
    pub fn kind_of(bytes: &[u8]) -> Option<&'static str> {
        match bytes {
            [0x89, b'P', b'N', b'G', ..] => Some("image/png"),
            [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
            [b'G', b'I', b'F', b'8', ..] => Some("image/gif"),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
            _ => None,
        }
    }
}

impl Content {
    /// A text block without signature.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(TextContent { text: text.into(), text_signature: None })
    }

    /// The text of a text block; `None` for another type of block.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// The call of a `toolCall` block; `None` for another type of block.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }
}

/// The value of one member of a JSON object, when it is a string; the tag of our unions. Of several the last one counts.
/// `name` is with its quotes.
pub(crate) fn tag<'a>(text: &'a str, name: &str) -> Option<Cow<'a, str>> {
    if let Some(value) = first_tag(text, name) {
        return Some(Cow::Borrowed(value));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let found = deserializer.deserialize_map(Tag { member: name.trim_matches('"') }).ok()??;
    serde_json::from_str::<Name<'a>>(found.get()).ok().map(|name| name.0)
}

/// The same of an object that begins with it, as nearly all do, without reading the rest; `None` when that may have it again.
fn first_tag<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (value, rest) = text.strip_prefix('{')?.strip_prefix(name)?.strip_prefix(":\"")?.split_once('"')?;
    // Within strings quotes are escaped, so this is a name or a string of its own; escapes may spell the name too.
    let again = rest.contains(name) || rest.contains("\\u");
    (!again && !value.contains('\\')).then_some(value)
}

#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The last member of a name.
struct Tag<'m> {
    member: &'m str,
}

impl<'de> de::Visitor<'de> for Tag<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(Name(name)) = map.next_key()? {
            if name == self.member {
                found = Some(map.next_value()?);
            } else {
                map.next_value::<de::IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

/// Reads a value whose tag is known, repairing lone surrogates only when the strict parser refuses them.
pub(crate) fn lenient<T: de::DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(text).or_else(|error| match crate::without_lone_surrogates(text) {
        std::borrow::Cow::Borrowed(_) => Err(error),
        std::borrow::Cow::Owned(repaired) => serde_json::from_str(&repaired),
    })
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(d).map_err(de::Error::custom)?;
        let text = raw.get();
        let known = match tag(text, "\"type\"").as_deref() {
            Some("text") => lenient(text).map(Self::Text).ok(),
            Some("thinking") => lenient(text).map(Self::Thinking).ok(),
            Some("image") => lenient(text).map(Self::Image).ok(),
            Some("toolCall") => lenient(text).map(Self::ToolCall).ok(),
            _ => None,
        };
        Ok(known.unwrap_or_else(|| Self::Other(Json::from(&*raw))))
    }
}
