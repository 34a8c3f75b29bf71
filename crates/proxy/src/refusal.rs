//! Answers of the proxy's own, in the form in which clients of all wires show errors.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};

use crate::tee::{AnswerBody, whole};

/// Why a request is not passed on, or not answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) text: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    pub(crate) fn answer(&self) -> Response<AnswerBody> {
        let error = serde_json::json!({
            "type": "error",
            "error": { "type": "proxy_error", "code": "proxy_error", "message": format!("quipu proxy: {}", self.text) },
        });
        let mut answer = Response::new(whole(error.to_string()));
        *answer.status_mut() = self.status;
        answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        answer
    }
}
