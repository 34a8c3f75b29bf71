//! JSON-RPC messages: what a server sends, checked for form and size before anything is made of it.

use std::borrow::Cow;

use quipu_protocol::Json;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// A message of a server. Parameters and results are text that nobody has read yet.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Message {
    Response { id: u64, outcome: Result<Json, ErrorObject> },
    Request { id: Json, method: String, params: Json },
    Notification { method: String, params: Json },
}

/// The error of a response.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct ErrorObject {
    pub(crate) code: i64,
    #[serde(default)]
    pub(crate) message: String,
    #[serde(default)]
    pub(crate) data: Option<RawValueText>,
}

/// Raw text that can be compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(crate) struct RawValueText(Box<RawValue>);

impl PartialEq for RawValueText {
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl RawValueText {
    pub(crate) fn value(&self) -> Option<Value> {
        serde_json::from_str(self.0.get()).ok()
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

/// Reads one message; `None` where it is none. Depth costs nothing: what is inside is not read.
pub(crate) fn read(bytes: &[u8]) -> Option<Message> {
    let text = std::str::from_utf8(bytes).ok()?;
    let Envelope { id, method, params, result, error } = serde_json::from_str(text).ok()?;
    let id = id.filter(|id| id.get() != "null");
    let params = params.map_or_else(Json::object, Json::from);
    match (id, method) {
        (Some(id), Some(method)) => {
            // An id is a string or a number, and is sent back as it is.
            let fits = id.get().len() <= 1_024 && !id.get().starts_with(['{', '[']);
            fits.then(|| Message::Request { id: Json::from(id), method: method.into_owned(), params })
        }
        (None, Some(method)) => Some(Message::Notification { method: method.into_owned(), params }),
        (Some(id), None) => {
            let id = id.get().trim_matches('"').parse().ok()?;
            let outcome = match (result, error) {
                (_, Some(error)) if error.get() != "null" => Err(serde_json::from_str(error.get())
                    .unwrap_or(ErrorObject {
                        code: 0,
                        message: "an error without a code".into(),
                        data: None,
                    })),
                (Some(result), _) => Ok(Json::from(result)),
                _ => return None,
            };
            Some(Message::Response { id, outcome })
        }
        (None, None) => None,
    }
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

pub(crate) fn notification(method: &str, params: Option<&Value>) -> String {
    match params {
        Some(params) => json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string(),
        None => json!({ "jsonrpc": "2.0", "method": method }).to_string(),
    }
}

/// The answer to a request of the server.
pub(crate) fn response(id: &Json, outcome: &Result<Value, (i64, String)>) -> String {
    let id = id.value();
    match outcome {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string(),
        Err((code, message)) => {
            json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart_by_their_members() {
        let response = read(br#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#).unwrap();
        assert_eq!(response, Message::Response { id: 7, outcome: Ok(Json::parse(r#"{"a":1}"#).unwrap()) });
        let Some(Message::Response { id: 8, outcome: Err(error) }) =
            read(br#"{"id":8,"error":{"code":-32601,"message":"no","data":[1]}}"#)
        else {
            panic!("no error")
        };
        assert_eq!((error.code, error.message.as_str()), (-32601, "no"));
        assert!(matches!(read(br#"{"id":"x","method":"ping"}"#), Some(Message::Request { .. })));
        assert!(matches!(read(br#"{"method":"m","params":{}}"#), Some(Message::Notification { .. })));
        for nothing in [
            "",
            "x",
            "[]",
            "1",
            "{}",
            r#"{"id":1}"#,
            r#"{"id":null,"result":1}"#,
            r#"{"id":{},"method":"a"}"#,
        ] {
            assert_eq!(read(nothing.as_bytes()), None, "{nothing}");
        }
        assert_eq!(read(b"{\"method\":\"\xff\"}"), None);
    }

    #[test]
    fn deep_messages_are_read_without_recursion() {
        let deep = format!(r#"{{"id":1,"result":{}{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
        assert!(matches!(read(deep.as_bytes()), Some(Message::Response { id: 1, outcome: Ok(_) })));
    }
}
