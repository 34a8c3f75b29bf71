//! What a server said when it failed, as one of the closed kinds.

use std::time::Duration;

use quipu_protocol::ModelErrorKind;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::surrogates;

/// Characters of a server's own words that an error quotes.
const MAX_QUOTE: usize = 1_000;

/// What a server said about a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Complaint {
    /// Its word for the kind, such as `overloaded_error`.
    pub(crate) kind: String,
    /// Its message, made printable.
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
    /// The HTTP status that it would have answered with, where it says so within a stream.
    pub(crate) status: Option<u16>,
    /// How long it asks us to wait, where it says so in the body.
    pub(crate) retry_after: Option<Duration>,
    /// Whether waiting a moment lifts the limit that was reached, where the body names it.
    pub(crate) limit_passes: Option<bool>,
}

/// Reads the JSON in which servers complain: `{"error":{"type","message"}}`, `{"error":"…"}`,
/// `{"message","type"}`, `{"detail":"…"}`, or a list of one of these. Anything else is quoted as it is. Of the
/// `details` of an error, a reason counts more than the type, and a delay is kept.
pub(crate) fn read_complaint(body: &str) -> Complaint {
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Shape<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
        #[serde(borrow, alias = "Message")]
        message: Option<&'a RawValue>,
        #[serde(borrow)]
        detail: Option<&'a RawValue>,
        #[serde(borrow, rename = "type", alias = "__type")]
        kind: Option<&'a RawValue>,
        #[serde(borrow)]
        code: Option<&'a RawValue>,
        #[serde(borrow)]
        status: Option<&'a RawValue>,
        #[serde(borrow)]
        details: Option<&'a RawValue>,
        #[serde(borrow)]
        request_id: Option<&'a RawValue>,
    }
    let text = |raw: Option<&RawValue>| raw.and_then(|raw| surrogates::lossy(raw.get()));
    let first = serde_json::from_str::<Vec<&RawValue>>(body).ok().and_then(|list| list.first().copied());
    let Ok(outer) = serde_json::from_str::<Shape<'_>>(first.map_or(body, RawValue::get)) else {
        return Complaint { message: quote(body), ..Complaint::default() };
    };
    let request_id = text(outer.request_id).map(|id| quote(&id));
    let inner = outer.error.and_then(|raw| serde_json::from_str::<Shape<'_>>(raw.get()).ok());
    let shape = inner.unwrap_or_default();
    let message = text(shape.message)
        .or_else(|| text(outer.error))
        .or_else(|| text(outer.message))
        .or_else(|| text(outer.detail));
    let details = shape.details.map(read_details).unwrap_or_default();
    let kinds = [
        details.reason,
        text(shape.kind),
        text(shape.code),
        text(shape.status),
        text(outer.kind),
        text(outer.code),
    ];
    let codes = [shape.code, outer.code].into_iter().flatten();
    let status =
        codes.filter_map(|code| code.get().trim_matches('"').parse().ok()).find(|n| (400..600).contains(n));
    Complaint {
        status,
        retry_after: details.retry_after,
        limit_passes: details.limit_passes,
        kind: kinds.into_iter().flatten().find(|kind| kind != "error").unwrap_or_default(),
        message: message.map_or_else(|| quote(body), |message| quote(&message)),
        request_id,
    }
}

/// What the details of an error say, each of which names its type in `@type`.
#[derive(Default)]
struct ErrorDetails {
    /// The reason, where it is a word of the table.
    reason: Option<String>,
    retry_after: Option<Duration>,
    limit_passes: Option<bool>,
}

fn read_details(raw: &RawValue) -> ErrorDetails {
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Detail {
        reason: String,
        retry_delay: String,
        violations: Vec<Violation>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default, rename_all = "camelCase")]
    struct Violation {
        quota_id: String,
        quota_value: String,
    }
    let mut read = ErrorDetails::default();
    for detail in serde_json::from_str::<Vec<&RawValue>>(raw.get()).unwrap_or_default() {
        let Ok(detail) = serde_json::from_str::<Detail>(detail.get()) else { continue };
        let delay = detail.retry_delay.strip_suffix('s').and_then(|seconds| seconds.parse().ok());
        let delay = delay.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        read.retry_after = read.retry_after.or(delay);
        read.reason = read.reason.or(Some(detail.reason).filter(|reason| by_word(reason).is_some()));
        if !detail.violations.is_empty() {
            // Waiting for the delay that comes with it helps for a limit by the minute only.
            let lasts = |limit: &Violation| limit.quota_id.contains("PerDay") || limit.quota_value == "0";
            let passes = !detail.violations.iter().any(lasts);
            read.limit_passes = Some(passes && read.limit_passes != Some(false));
        }
    }
    read
}

/// `text` on one line, without control characters, at most [`MAX_QUOTE`] characters; an HTML page as its title.
pub(crate) fn quote(text: &str) -> String {
    let start = text.trim_start();
    if start.get(..1) == Some("<") {
        let lower = start.to_ascii_lowercase();
        let title = lower.find("<title>").and_then(|at| {
            let end = lower[at..].find("</title>")?;
            start.get(at + 7..at + end)
        });
        return match title.map(|title| clean(title, 200)) {
            Some(title) if !title.is_empty() => format!("an HTML page, \"{title}\""),
            _ => "an HTML page".into(),
        };
    }
    clean(text, MAX_QUOTE)
}

fn clean(text: &str, limit: usize) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if length > 0 {
            out.push(' ');
            length += 1;
        }
        for c in word.chars() {
            if length >= limit {
                out.push('…');
                return out;
            }
            out.push(c);
            length += 1;
        }
    }
    out
}

/// The kind of a failure, from the HTTP status (when there was an answer) and the server's words.
pub(crate) fn classify(status: Option<u16>, complaint: &Complaint) -> ModelErrorKind {
    use ModelErrorKind as K;
    let detail = normalise(&format!("{} {}", complaint.kind, complaint.message));
    let overflow = || is_overflow(&detail);
    let quota = || match complaint.limit_passes {
        Some(passes) => !passes,
        None => QUOTA.iter().any(|pattern| detail.contains(pattern)),
    };
    match status {
        Some(401 | 403) if quota() => K::Quota,
        Some(401 | 403) => K::Auth,
        Some(402) => K::Quota,
        Some(404) => K::UnknownModel,
        Some(408) => K::Timeout,
        Some(409 | 425) => K::Server,
        Some(413) => K::ContextOverflow,
        Some(429) if quota() => K::Quota,
        Some(429) => K::RateLimited,
        Some(503 | 529) => K::Overloaded,
        Some(500..=599) => by_word(&complaint.kind).filter(|kind| kind.is_transient()).unwrap_or(K::Server),
        Some(400..=499) => {
            if overflow() {
                K::ContextOverflow
            } else if quota() {
                K::Quota
            } else {
                by_word(&complaint.kind).unwrap_or(K::InvalidRequest)
            }
        }
        // Nothing else is an error of the server's own: a redirect, a 1xx or a 2xx that is no answer.
        Some(_) => K::Malformed,
        None if overflow() => K::ContextOverflow,
        None if quota() => K::Quota,
        None => by_word(&complaint.kind).unwrap_or(K::Server),
    }
}

/// The header in which some servers name the kind of an error.
pub(crate) const KIND_HEADER: &str = "x-amzn-errortype";

fn by_word(word: &str) -> Option<ModelErrorKind> {
    use ModelErrorKind as K;
    // Some have a namespace before it, some an address behind it.
    let word = word.rsplit('#').next().unwrap_or_default();
    let word = word.split(':').next().unwrap_or_default();
    Some(match word {
        "overloaded_error" | "server_busy" | "overloaded" | "UNAVAILABLE" => K::Overloaded,
        "rate_limit_error" | "rate_limit_exceeded" | "RESOURCE_EXHAUSTED" => K::RateLimited,
        "api_error" | "server_error" | "internal_error" | "internal_server_error" | "INTERNAL" => K::Server,
        "timeout_error" | "DEADLINE_EXCEEDED" => K::Timeout,
        "authentication_error" | "permission_error" | "UNAUTHENTICATED" | "PERMISSION_DENIED" => K::Auth,
        "API_KEY_INVALID" | "API_KEY_SERVICE_BLOCKED" | "ACCESS_TOKEN_EXPIRED" => K::Auth,
        "billing_error" | "BILLING_DISABLED" => K::Quota,
        "not_found_error" | "NOT_FOUND" => K::UnknownModel,
        "request_too_large" => K::ContextOverflow,
        "invalid_request_error" | "invalid_prompt" | "INVALID_ARGUMENT" | "FAILED_PRECONDITION" => {
            K::InvalidRequest
        }
        "ThrottlingException" | "TooManyRequestsException" => K::RateLimited,
        "ServiceQuotaExceededException" => K::Quota,
        "ServiceUnavailableException" | "ModelNotReadyException" => K::Overloaded,
        "InternalServerException" | "InternalFailure" => K::Server,
        "ModelErrorException" | "ModelStreamErrorException" => K::Server,
        "ModelTimeoutException" => K::Timeout,
        "AccessDeniedException" | "UnrecognizedClientException" | "InvalidSignatureException" => K::Auth,
        "ExpiredTokenException" | "ExpiredToken" | "InvalidClientTokenId" | "IncompleteSignature" => K::Auth,
        "ResourceNotFoundException" => K::UnknownModel,
        "ValidationException" => K::InvalidRequest,
        _ => return None,
    })
}

/// Lower case, with each number as one `#`: what the tables below are written in.
fn normalise(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_number = false;
    for c in text.chars() {
        let digit = c.is_ascii_digit();
        if digit && !in_number {
            out.push('#');
        }
        in_number = digit || (in_number && c == ',');
        if !in_number {
            out.extend(c.to_lowercase());
        }
    }
    out
}

/// How servers say that waiting does not help. Data: add what is met.
const QUOTA: &[&str] = &[
    "gousagelimiterror",
    "freeusagelimiterror",
    "usage limit reached",
    "usage_limit_exceeded",
    "available balance",
    "credit balance",
    "insufficient_quota",
    "out of budget",
    "quota exceeded",
    "exceeded your current quota",
    "billing",
];

/// How servers say that the conversation is too long; all parts of a row must occur. Data: add what is met.
const OVERFLOW: &[&[&str]] = &[
    &["prompt is too long"],
    &["prompt too long"],
    &["prompt exceeds max length"],
    &["request_too_large"],
    &["input is too long for requested model"],
    &["exceeds the context window"],
    &["context window exceeds limit"],
    &["context window exceeded"],
    &["exceeds", "maximum context length"],
    &["maximum context length is # tokens"],
    &["input token count", "exceeds the maximum"],
    &["maximum prompt length is #"],
    &["reduce the length of the messages"],
    &["exceeds", "maximum allowed input length"],
    &["is longer than the model", "context length"],
    &["exceeds the limit of #"],
    &["exceeds the available context size"],
    &["greater than the context length"],
    &["exceeded model token limit"],
    &["too large for model with # maximum context length"],
    &["but the configured context size is #"],
    &["model_context_window_exceeded"],
    &["exceeded max context length"],
    &["exceeded context length"],
    &["range of input length should be"],
    &["context length exceeded"],
    &["context_length_exceeded"],
    &["too many tokens"],
    &["token limit exceeded"],
    &["input length and `max_tokens` exceed context limit"],
];

fn is_overflow(detail: &str) -> bool {
    const NOT: &[&str] = &["rate limit", "too many requests", "throttling error:", "service unavailable:"];
    OVERFLOW.iter().any(|row| row.iter().all(|part| detail.contains(part)))
        && !NOT.iter().any(|not| detail.contains(not))
}

/// What a person can do about a failure of this kind.
pub(crate) fn advice(kind: ModelErrorKind) -> &'static str {
    use ModelErrorKind as K;
    match kind {
        K::NoCredential => " Set a credential for this provider.",
        K::Auth => " Check the credential of this provider.",
        K::Quota => " Check the plan and the balance of the account; waiting does not help.",
        K::RateLimited | K::Overloaded => " Try again later, or use another model.",
        K::Server | K::StreamEnded => " Try again, or use another model.",
        K::Network => " Check the connection, the proxy settings and the base URL of the provider.",
        K::Timeout => " Try again; for a slow server raise the idle timeout.",
        K::Malformed => {
            " Check the base URL of the provider, and whether a proxy or a login page is in between."
        }
        K::ContextOverflow => " Shorten the conversation, or use a model with a larger window.",
        K::UnknownModel => " Check the model's name and the base URL of the provider.",
        K::TooLarge | K::InvalidRequest | K::Refused | K::Aborted | K::ReplayMismatch => "",
    }
}

/// How long the server asked us to wait, from `retry-after-ms` and `retry-after` (seconds or an HTTP date).
/// `now` is in seconds since the epoch.
pub(crate) fn retry_after(ms: Option<&str>, plain: Option<&str>, now: f64) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let seconds = ms.and_then(number).map(|ms| ms / 1e3).or_else(|| {
        let text = plain?.trim();
        number(text).or_else(|| {
            let at = jiff::fmt::rfc2822::parse(text).ok()?;
            #[expect(clippy::cast_precision_loss, reason = "seconds since the epoch are far below 2^52")]
            Some((at.timestamp().as_second() as f64 - now).max(0.0))
        })
    })?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ModelErrorKind as K;

    #[track_caller]
    fn check(status: Option<u16>, body: &str, kind: ModelErrorKind, message: &str) {
        let complaint = read_complaint(body);
        assert_eq!((classify(status, &complaint), complaint.message.as_str()), (kind, message));
    }

    #[test]
    fn servers_complain_in_many_ways() {
        let detail = |kind: &str, message: &str| {
            serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
        };
        let invalid = |message: &str| detail("invalid_request_error", message);
        check(Some(401), &detail("authentication_error", "invalid x-api-key"), K::Auth, "invalid x-api-key");
        check(Some(403), "nope", K::Auth, "nope");
        check(Some(402), "", K::Quota, "");
        check(Some(404), &detail("not_found_error", "model: x"), K::UnknownModel, "model: x");
        check(Some(429), &detail("rate_limit_error", "slow down"), K::RateLimited, "slow down");
        check(Some(429), r#"{"error":{"code":"insufficient_quota","message":"no"}}"#, K::Quota, "no");
        check(Some(429), "Too many tokens, rate limit", K::RateLimited, "Too many tokens, rate limit");
        check(Some(503), "<html><TITLE>Busy\n now</TITLE>", K::Overloaded, "an HTML page, \"Busy now\"");
        check(Some(529), &detail("overloaded_error", "Overloaded"), K::Overloaded, "Overloaded");
        check(Some(500), &detail("overloaded_error", "Overloaded"), K::Overloaded, "Overloaded");
        check(Some(502), "<html></html>", K::Server, "an HTML page");
        check(Some(413), "", K::ContextOverflow, "");
        check(Some(400), &invalid("messages: bad"), K::InvalidRequest, "messages: bad");
        check(Some(422), r#"{"detail":"bad\u0000\u001b[31m"}"#, K::InvalidRequest, "bad [31m");
        check(Some(302), "", K::Malformed, "");
        check(None, &detail("overloaded_error", "Overloaded"), K::Overloaded, "Overloaded");
        check(None, &detail("new_error", "?"), K::Server, "?");
        check(None, &detail("api_error", "boom"), K::Server, "boom");
        check(Some(400), r#"[{"error":{"code":400,"message":"bad key"}}]"#, K::InvalidRequest, "bad key");
        let status = |body: &str| read_complaint(body).status;
        assert_eq!(status(r#"{"error":{"code":429}}"#), Some(429));
        assert_eq!(status(r#"{"object":"error","code":"503"}"#), Some(503));
        assert_eq!(status(r#"{"error":{"code":1234}}"#), None);
        check(None, &invalid("prompt is too long: 3 > 2"), K::ContextOverflow, "prompt is too long: 3 > 2");
        for text in [
            "prompt is too long: 213462 tokens > 200000 maximum",
            "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
            "Requested token count exceeds the model's maximum context length of 131,072 tokens",
            "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
            "Prompt has 1,234 tokens, but the configured context size is 1,000 tokens",
            "the request exceeds the available context size, try increasing it",
        ] {
            check(Some(400), &invalid(text), K::ContextOverflow, text);
        }
        check(
            Some(400),
            &invalid("Your credit balance is too low"),
            K::Quota,
            "Your credit balance is too low",
        );
    }

    #[test]
    fn details_of_errors_name_reasons_limits_and_delays() {
        let check = |code: u16, status: &str, message: &str, details: &str, kind, delay: Option<u64>| {
            let body = format!(
                r#"{{"error":{{"code":{code},"message":"{message}","status":"{status}","details":{details}}}}}"#
            );
            let complaint = read_complaint(&body);
            assert_eq!((complaint.status, complaint.message.as_str()), (Some(code), message));
            assert_eq!(complaint.retry_after, delay.map(Duration::from_millis), "{details}");
            for status in [Some(code), complaint.status] {
                assert_eq!(classify(status, &complaint), kind, "{body}");
            }
        };
        let plan = "You exceeded your current quota, please check your plan and billing details.";
        let limits = |ids: &str, value: &str| {
            let ids = ids.split(' ').map(|id| format!(r#"{{"quotaId":"{id}","quotaValue":"{value}"}}"#));
            format!(
                r#"[{{"@type":"…/google.rpc.QuotaFailure","violations":[{}]}},7,
                    {{"@type":"…/google.rpc.RetryInfo","retryDelay":"34.5s"}}]"#,
                ids.collect::<Vec<_>>().join(",")
            )
        };
        let minute = limits("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "10");
        check(429, "RESOURCE_EXHAUSTED", plan, &minute, K::RateLimited, Some(34_500));
        let day = limits("RequestsPerMinute RequestsPerDayPerProject", "50");
        check(429, "RESOURCE_EXHAUSTED", plan, &day, K::Quota, Some(34_500));
        check(429, "RESOURCE_EXHAUSTED", plan, &limits("PerMinute", "0"), K::Quota, Some(34_500));
        check(429, "RESOURCE_EXHAUSTED", plan, "[]", K::Quota, None);
        check(429, "RESOURCE_EXHAUSTED", "Resource exhausted.", "{}", K::RateLimited, None);
        let key = r#"[{"@type":"…/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}]"#;
        check(400, "INVALID_ARGUMENT", "API key not valid.", key, K::Auth, None);
        let other = r#"[{"reason":"NEW","retryDelay":"soon"},{"reason":"API_KEY_INVALID"}]"#;
        check(400, "INVALID_ARGUMENT", "API key not valid.", other, K::Auth, None);
        check(400, "INVALID_ARGUMENT", "Bad.", "[]", K::InvalidRequest, None);
        check(403, "PERMISSION_DENIED", "No.", "[]", K::Auth, None);
        check(404, "NOT_FOUND", "No such model.", "[]", K::UnknownModel, None);
        check(500, "INTERNAL", "Oops.", "[]", K::Server, None);
        check(503, "UNAVAILABLE", "The model is overloaded.", "[]", K::Overloaded, None);
        check(504, "DEADLINE_EXCEEDED", "Late.", "[]", K::Timeout, None);
        let bare = read_complaint(r#"{"error":{"status":"UNAVAILABLE","message":"busy"}}"#);
        assert_eq!(classify(None, &bare), K::Overloaded);
    }

    #[test]
    fn quotes_are_short_and_on_one_line() {
        assert_eq!(quote(" a\r\n\tb\u{7}c "), "a b c");
        assert_eq!(quote(&"é".repeat(5_000)).chars().count(), MAX_QUOTE + 1);
    }

    #[test]
    fn the_server_says_how_long_to_wait() {
        let check = |ms, plain, expect: Option<u64>| {
            assert_eq!(
                retry_after(ms, plain, 1_445_412_470.0),
                expect.map(Duration::from_millis),
                "{ms:?} {plain:?}"
            );
        };
        check(None, None, None);
        check(Some("30"), Some("9"), Some(30));
        check(None, Some("1.5"), Some(1500));
        check(Some("x"), Some(" 2 "), Some(2000));
        check(None, Some("Wed, 21 Oct 2015 07:28:00 GMT"), Some(10_000));
        check(None, Some("Wed, 21 Oct 2014 07:28:00 GMT"), None);
        check(None, Some("Tue, 21 Oct 2014 07:28:00 GMT"), Some(0));
        for odd in ["-1", "NaN", "inf", "1e300", "soon"] {
            check(None, Some(odd), None);
        }
    }
}
