//! JSON-RPC 2.0: the forms of its messages.

use serde_json::{Map, Value, json};

/// No JSON at all.
pub(crate) const PARSE: i64 = -32_700;
/// JSON, and no request.
pub(crate) const INVALID_REQUEST: i64 = -32_600;
/// A method that is not there.
pub(crate) const NO_METHOD: i64 = -32_601;
/// Parameters that do not fit.
pub(crate) const INVALID_PARAMS: i64 = -32_602;
/// It failed here.
pub(crate) const INTERNAL: i64 = -32_603;
/// A credential is missing.
pub(crate) const AUTH_REQUIRED: i64 = -32_000;
/// A session or file that is not there.
pub(crate) const NOT_FOUND: i64 = -32_002;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WireError {
    pub(crate) code: i64,
    pub(crate) message: String,
    pub(crate) data: Option<Value>,
}

impl WireError {
    pub(crate) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    pub(crate) fn params(message: impl Into<String>) -> Self {
        Self::new(INVALID_PARAMS, message)
    }
}

/// What a line says.
#[derive(Debug, PartialEq)]
pub(crate) enum WireMessage {
    Request { id: Value, method: String, params: Value },
    Notification { method: String, params: Value },
    Response { id: Value, result: Result<Value, WireError> },
}

/// Reads a line.
///
/// # Errors
/// What is wrong, with the id of the request where it has one.
pub(crate) fn read(line: &[u8]) -> Result<WireMessage, Box<(Value, WireError)>> {
    let refused = |id, error| Box::new((id, error));
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        refused(Value::Null, WireError::new(PARSE, format!("this line is not JSON: {error}")))
    })?;
    let Value::Object(mut members) = value else {
        let why = "a message must be an object; batches are not part of this protocol";
        return Err(refused(Value::Null, WireError::new(INVALID_REQUEST, why)));
    };
    let id = members.remove("id");
    let shown = id.clone().filter(is_id).unwrap_or_default();
    let invalid = |why: &str| refused(shown.clone(), WireError::new(INVALID_REQUEST, why));
    if members.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("`jsonrpc` must be \"2.0\""));
    }
    if id.as_ref().is_some_and(|id| !is_id(id)) {
        return Err(invalid("`id` must be a number, a text or null"));
    }
    match members.remove("method") {
        Some(Value::String(method)) => {
            let params = members.remove("params").unwrap_or_default();
            Ok(match id {
                Some(id) => WireMessage::Request { id, method, params },
                None => WireMessage::Notification { method, params },
            })
        }
        Some(_) => Err(invalid("`method` must be a text")),
        None => response(id, members).ok_or_else(|| invalid("neither a request nor an answer")),
    }
}

fn is_id(id: &Value) -> bool {
    matches!(id, Value::Null | Value::String(_) | Value::Number(_))
}

fn response(id: Option<Value>, mut members: Map<String, Value>) -> Option<WireMessage> {
    let id = id?;
    if let Some(result) = members.remove("result") {
        return Some(WireMessage::Response { id, result: Ok(result) });
    }
    let error = members.remove("error")?;
    let code = error.get("code").and_then(Value::as_i64).unwrap_or(INTERNAL);
    let message = error.get("message").and_then(Value::as_str).unwrap_or("no reason was given").to_owned();
    Some(WireMessage::Response { id, result: Err(WireError { code, message, data: None }) })
}

pub(crate) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "method": method, "params": params })
}

pub(crate) fn answer(id: &Value, result: Result<Value, WireError>) -> Value {
    match result {
        Ok(result) => json!({ "jsonrpc": "2.0", "id": id, "result": result }),
        Err(WireError { code, message, data }) => {
            let mut error = json!({ "code": code, "message": message });
            if let Some(data) = data {
                error["data"] = data;
            }
            json!({ "jsonrpc": "2.0", "id": id, "error": error })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_what_they_say() {
        let request = read(br#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"x":1}}"#).unwrap();
        let params = json!({ "x": 1 });
        assert_eq!(request, WireMessage::Request { id: json!("a"), method: "m".into(), params });
        let notification = read(br#"{"jsonrpc":"2.0","method":"m"}"#).unwrap();
        assert_eq!(notification, WireMessage::Notification { method: "m".into(), params: Value::Null });
        let answered = read(br#"{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"no"}}"#).unwrap();
        let result = Err(WireError::new(5, "no"));
        assert_eq!(answered, WireMessage::Response { id: json!(1), result });
    }

    #[test]
    fn malformed_lines_say_what_is_wrong() {
        let check = |line: &str, id: Value, code: i64| {
            let (of, error) = *read(line.as_bytes()).unwrap_err();
            assert_eq!((of, error.code), (id, code), "{line}");
        };
        check("{", Value::Null, PARSE);
        check("\u{1}", Value::Null, PARSE);
        check("[]", Value::Null, INVALID_REQUEST);
        check("7", Value::Null, INVALID_REQUEST);
        check(r#"{"id":7,"method":"m"}"#, json!(7), INVALID_REQUEST);
        check(r#"{"jsonrpc":"1.0","id":7,"method":"m"}"#, json!(7), INVALID_REQUEST);
        check(r#"{"jsonrpc":"2.0","id":[7],"method":"m"}"#, Value::Null, INVALID_REQUEST);
        check(r#"{"jsonrpc":"2.0","id":7,"method":7}"#, json!(7), INVALID_REQUEST);
        check(r#"{"jsonrpc":"2.0","id":7}"#, json!(7), INVALID_REQUEST);
    }
}
