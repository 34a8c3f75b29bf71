//! Enums whose JSON form is an object with a `type`.
//!
//! Serde's own way of reading such an object keeps its members in a form that cannot hold JSON text as it was received
//! ([`Json`](crate::Json)). Here the text is turned into serde's plain form of an enum, `{"name": {…}}`, and back.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

use crate::without_lone_surrogates;

/// A value in serde's plain form: `"name"`, or `{"name": {…}}`.
pub(crate) trait PlainForm: Sized {
    /// Writes the plain form.
    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Reads the plain form.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

struct PlainWriter<'a, T>(&'a T);

impl<T: PlainForm> Serialize for PlainWriter<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.write(serializer)
    }
}

struct PlainReader<T>(T);

impl<'de, T: PlainForm> Deserialize<'de> for PlainReader<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(PlainReader)
    }
}

/// `{"name":{…}}` as `{"type":"name",…}`.
fn with_type(plain: &str) -> Option<String> {
    let Some(rest) = plain.strip_prefix("{\"") else { return Some(format!("{{\"type\":{plain}}}")) };
    let (name, members) = rest.split_once("\":{")?;
    let members = members.strip_suffix("}}")?;
    let comma = if members.is_empty() { "" } else { "," };
    Some(format!("{{\"type\":\"{name}\"{comma}{members}}}"))
}

/// The members of an object, in order; the last `type` names the variant.
struct Members<'a> {
    name: Option<String>,
    rest: Vec<(String, &'a RawValue)>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object with a `type`")
            }

            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Members { name: None, rest: Vec::new() };
                while let Some(key) = map.next_key::<String>()? {
                    if key == "type" {
                        members.name = Some(map.next_value()?);
                    } else {
                        members.rest.push((key, map.next_value()?));
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

pub(crate) fn serialize<T: PlainForm, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    let plain = serde_json::to_string(&PlainWriter(value)).map_err(ser::Error::custom)?;
    let text = with_type(&plain).ok_or_else(|| ser::Error::custom("a variant must have named members"))?;
    RawValue::from_string(text).map_err(ser::Error::custom)?.serialize(serializer)
}

pub(crate) fn deserialize<'de, T: PlainForm, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    let text = without_lone_surrogates(raw.get());
    let Members { name, rest } = serde_json::from_str(&text).map_err(de::Error::custom)?;
    let Some(name) = name else { return Err(de::Error::missing_field("type")) };
    let name = serde_json::to_string(&name).map_err(de::Error::custom)?;
    let mut plain = format!("{{{name}:{{");
    for (at, (key, value)) in rest.iter().enumerate() {
        let key = serde_json::to_string(key).map_err(de::Error::custom)?;
        plain.push_str(if at == 0 { "" } else { "," });
        plain.push_str(&key);
        plain.push(':');
        plain.push_str(value.get());
    }
    plain.push_str("}}");
    let unit = rest.is_empty().then(|| serde_json::from_str::<PlainReader<T>>(&name).ok()).flatten();
    let read = unit.map_or_else(|| serde_json::from_str::<PlainReader<T>>(&plain), Ok);
    read.map(|PlainReader(value)| value).map_err(de::Error::custom)
}

/// Gives an enum that derives serde's forms with `#[serde(remote = "Self")]` its form with a `type`.
macro_rules! tagged {
    ($($name:ident),*) => {$(
        impl crate::tagged::PlainForm for $name {
            fn write<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }

            fn read<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $name::deserialize(deserializer)
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                crate::tagged::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::tagged::deserialize(deserializer)
            }
        }
    )*};
}
pub(crate) use tagged;
