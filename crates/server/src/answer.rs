//! Answers.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};

pub(crate) type AnswerBody = UnsyncBoxBody<Bytes, Infallible>;
pub(crate) type Answer = Response<AnswerBody>;

pub(crate) fn full(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()).boxed_unsync());
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    // It is about this moment, and may hold what a session says.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

pub(crate) fn json_answer(status: StatusCode, body: &Value) -> Answer {
    full(status, "application/json", body.to_string())
}

/// Why a request is not answered as wanted: in the form that clients of the API know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    /// The member `code`.
    pub(crate) code: &'static str,
    pub(crate) message: String,
    /// The member of the request that it is about.
    pub(crate) param: Option<&'static str>,
    /// Something may have been done, so the same request must not be sent again by itself.
    pub(crate) is_final: bool,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), param: None, is_final: false }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid_request", message)
    }

    /// About a member of the request.
    pub(crate) fn unsupported(param: &'static str, message: impl Into<String>) -> Self {
        let error = Self::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message);
        Self { param: Some(param), ..error }
    }

    pub(crate) fn once(self) -> Self {
        Self { is_final: true, ..self }
    }

    fn kind(&self) -> &'static str {
        match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        }
    }

    pub(crate) fn body(&self) -> Value {
        json!({ "error": { "message": self.message, "type": self.kind(), "param": self.param, "code": self.code } })
    }

    pub(crate) fn answer(&self) -> Answer {
        let mut answer = json_answer(self.status, &self.body());
        let headers = answer.headers_mut();
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        let is_busy = matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if is_busy && !self.is_final {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.is_final {
            // The clients of the API ask again by themselves otherwise.
            headers.insert("x-should-retry", HeaderValue::from_static("false"));
        }
        answer
    }
}

pub(crate) fn wrong_method(allowed: &'static str) -> Answer {
    let error = ApiError::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method_not_allowed",
        format!("this path takes {allowed}"),
    );
    let mut answer = error.answer();
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

pub(crate) fn closing() -> ApiError {
    ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "closing", "the server is shutting down")
}
