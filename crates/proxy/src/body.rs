//! The body of a request, taken apart so that what is not changed keeps its bytes.

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire_kind::WireKind;

/// A member or an element, as it came or as it is made.
#[derive(Debug, Clone)]
pub(crate) enum Piece {
    Raw(Box<RawValue>),
    Made(Value),
}

impl Piece {
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Raw(raw) => quipu_protocol::Json::from(&**raw).value(),
            Self::Made(value) => value.clone(),
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            Self::Raw(raw) => out.push_str(raw.get()),
            Self::Made(value) => out.push_str(&value.to_string()),
        }
    }
}

/// A JSON object, with its list of messages apart.
#[derive(Debug, Clone)]
pub(crate) struct RequestBody {
    pub(crate) wire: WireKind,
    members: Vec<(String, Box<RawValue>)>,
    /// The messages; `None` where the list is no list.
    pub(crate) elements: Vec<Piece>,
    /// Whether the list was one text alone.
    pub(crate) is_text: bool,
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Box<RawValue>>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl RequestBody {
    /// `None` for what is no request of this wire.
    pub(crate) fn parse(wire: WireKind, bytes: &[u8]) -> Option<Self> {
        let Members(members) = serde_json::from_slice(bytes).ok()?;
        let list = members.iter().rev().find(|(name, _)| name == wire.list())?;
        let (elements, is_text) = match serde_json::from_str::<Vec<Box<RawValue>>>(list.1.get()) {
            Ok(elements) => (elements.into_iter().map(Piece::Raw).collect(), false),
            Err(_) if list.1.get().starts_with('"') => (vec![Piece::Raw(list.1.clone())], true),
            Err(_) => return None,
        };
        Some(Self { wire, members, elements, is_text })
    }

    /// A member by its name; of several the last one.
    pub(crate) fn member(&self, name: &str) -> Option<&RawValue> {
        self.members.iter().rev().find(|(known, _)| known == name).map(|(_, raw)| &**raw)
    }

    /// The text of a member.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.member(name)?.get()).ok()
    }

    /// The value of a member.
    pub(crate) fn value(&self, name: &str) -> Value {
        self.member(name).map(|raw| quipu_protocol::Json::from(raw).value()).unwrap_or_default()
    }

    /// The same request with other messages.
    pub(crate) fn with(&self, elements: Vec<Piece>) -> Self {
        Self { wire: self.wire, members: self.members.clone(), elements, is_text: false }
    }

    /// Its bytes. What was not changed is as it came.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = String::from("{");
        for (at, (name, value)) in self.members.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            out.push_str(&quipu_dag::quoted(name));
            out.push(':');
            if name == self.wire.list() {
                out.push('[');
                for (at, element) in self.elements.iter().enumerate() {
                    if at > 0 {
                        out.push(',');
                    }
                    element.write(&mut out);
                }
                out.push(']');
            } else {
                out.push_str(value.get());
            }
        }
        out.push('}');
        out.into_bytes()
    }
}
