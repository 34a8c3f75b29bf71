//! What a server said when it failed, as one of the closed kinds.

#[cfg(test)]
mod examples;
mod table;

use std::time::Duration;

use quipu_protocol::{ModelErrorKind, Thinking};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::surrogates;

use table::{NO_OVERFLOW, ROWS, Row, Scope, WORDS};

/// Characters of a server's own words that an error quotes.
const MAX_QUOTE: usize = 1_000;
/// Characters of a message above which rows of [`Scope::Short`] do not count.
const MAX_SHORT: usize = 512;

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
    /// When the limit of a plan is lifted, in seconds since the epoch.
    resets_at: Option<u64>,
    /// The plan whose limit was reached.
    plan: Option<String>,
}

impl Complaint {
    /// Says of the limit of a plan which plan it is and when the limit is lifted. `now` is in seconds since the epoch,
    /// where it is known.
    pub(crate) fn explain_limit(&mut self, now: Option<u64>) {
        let until = self.resets_at.zip(now).map(|(at, now)| Duration::from_secs(at.saturating_sub(now)));
        self.retry_after = self.retry_after.or(until);
        let (plan, wait) = (self.plan.take(), self.retry_after.filter(|_| is_plan_limit(&self.kind)));
        self.limit_passes = self.limit_passes.or_else(|| Some(wait? <= SHORT_WAIT));
        let plan = plan.map(|plan| format!("plan {plan}"));
        let wait = wait.map(|wait| format!("resets in {}", rounded(wait)));
        let more: Vec<_> = [plan, wait].into_iter().flatten().collect();
        if !more.is_empty() {
            self.message = format!("{} ({})", self.message.trim_end_matches('.'), more.join(", "));
        }
    }
}

/// The longest wait for which a limit counts as one that passes.
const SHORT_WAIT: Duration = Duration::from_secs(60);

/// Whether this is a server's word for the limit of a plan.
fn is_plan_limit(kind: &str) -> bool {
    matches!(kind, "usage_limit_reached" | "usage_limit_exceeded" | "workspace_usage_limit_reached")
}

/// A wait in its two largest units.
fn rounded(wait: Duration) -> String {
    let seconds = wait.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds.div_ceil(60) % 60);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..3_541 => format!("{} min", seconds.div_ceil(60)),
        3_541..86_400 => format!("{} h {minutes} min", seconds.div_ceil(60) / 60),
        _ => format!("{days} d {hours} h"),
    }
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
        #[serde(borrow)]
        plan_type: Option<&'a RawValue>,
        #[serde(borrow)]
        resets_in_seconds: Option<&'a RawValue>,
        #[serde(borrow)]
        resets_at: Option<&'a RawValue>,
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
    let seconds = |raw: Option<&RawValue>| raw?.get().parse::<f64>().ok();
    let resets_in = seconds(shape.resets_in_seconds).and_then(|wait| Duration::try_from_secs_f64(wait).ok());
    let codes = [shape.code, outer.code].into_iter().flatten();
    let status =
        codes.filter_map(|code| code.get().trim_matches('"').parse().ok()).find(|n| (400..600).contains(n));
    Complaint {
        status,
        retry_after: details.retry_after.or(resets_in),
        limit_passes: details.limit_passes,
        resets_at: shape.resets_at.and_then(|raw| raw.get().parse().ok()),
        plan: text(shape.plan_type).map(|plan| quote(&plan).to_lowercase()).filter(|plan| !plan.is_empty()),
        kind: kinds.into_iter().flatten().find(|kind| kind != "error").unwrap_or_default(),
        message: message.map_or_else(|| quote(body), |message| quote(&message)),
        request_id,
    }
}

/// The reason in the details of an error that waiting does not help for long.
const QUOTA_EXHAUSTED: &str = "QUOTA_EXHAUSTED";

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
        if detail.reason == QUOTA_EXHAUSTED {
            read.limit_passes = Some(false);
        }
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
    let text = normalise(&format!("{} {}", complaint.kind, complaint.message));
    let word = by_word(&complaint.kind);
    let status = status.or_else(|| leading_status(&complaint.message));
    let is_invalid =
        matches!(status, Some(400 | 422)) || (status.is_none() && word == Some(K::InvalidRequest));
    let said = read_text(&text, &normalise(&complaint.message), is_invalid);
    // Which limit was reached, where the server says so beside its text.
    let limit = match complaint.limit_passes {
        Some(true) => Some(K::RateLimited),
        Some(false) => Some(K::UsageLimit),
        None => said.filter(|kind| matches!(kind, K::Quota | K::UsageLimit)),
    };
    match status {
        Some(401 | 403) => match said {
            Some(kind @ (K::AuthRevoked | K::Quota | K::UsageLimit)) => kind,
            _ => K::Auth,
        },
        Some(402) => match said {
            Some(kind @ (K::UsageLimit | K::RateLimited)) => kind,
            _ => K::Quota,
        },
        Some(404) => match said {
            Some(
                kind @ (K::ContextOverflow
                | K::Quota
                | K::UsageLimit
                | K::Auth
                | K::AuthRevoked
                | K::InvalidRequest
                | K::ThinkingLevel),
            ) => kind,
            _ => K::UnknownModel,
        },
        Some(408) => K::Timeout,
        Some(409 | 425) => K::Server,
        Some(410) => match said {
            Some(kind @ (K::Quota | K::UsageLimit | K::Auth | K::AuthRevoked | K::InvalidRequest)) => kind,
            _ => K::Timeout,
        },
        // A picture is too large where a conversation is not.
        Some(413) if said == Some(K::InvalidRequest) => K::InvalidRequest,
        Some(413) => K::ContextOverflow,
        Some(429) => limit.unwrap_or(K::RateLimited),
        Some(499) => said.filter(|kind| *kind == K::Overloaded).unwrap_or(K::Timeout),
        Some(503 | 529) => K::Overloaded,
        Some(code @ 500..=599) => {
            let usual = if matches!(code, 504 | 522 | 524) { K::Timeout } else { K::Server };
            let transient = |kind: &K| kind.is_transient();
            word.filter(transient).or(said.filter(transient)).unwrap_or(usual)
        }
        Some(400..=499) => limit.or(said).or(word).unwrap_or(K::InvalidRequest),
        // Nothing else is an error of the server's own: a redirect, a 1xx or a 2xx that is no answer.
        Some(_) => K::Malformed,
        None => limit.or(said).or(word).unwrap_or(K::Server),
    }
}

/// The header in which some servers name the kind of an error.
pub(crate) const KIND_HEADER: &str = "x-amzn-errortype";

fn by_word(word: &str) -> Option<ModelErrorKind> {
    // Some have a namespace before it, some an address behind it.
    let word = word.rsplit('#').next().unwrap_or_default();
    let word = word.split(':').next().unwrap_or_default();
    let names = |row: &str| row.strip_suffix('*').map_or(row == word, |start| word.starts_with(start));
    WORDS.iter().find(|(row, _)| names(row)).map(|(_, kind)| *kind)
}

/// What the first row of the table makes of a text; `message` is the server's message alone.
fn read_text(text: &str, message: &str, is_invalid: bool) -> Option<ModelErrorKind> {
    let is_short = text.chars().take(MAX_SHORT + 1).count() <= MAX_SHORT;
    let counts = |row: &&Row| match row.scope {
        Scope::Always => true,
        Scope::Short => is_short,
        Scope::Unless400 => !is_invalid,
    };
    let is_meant = |row: &&Row| {
        row.kind != ModelErrorKind::ContextOverflow || !NO_OVERFLOW.iter().any(|not| matches(text, not))
    };
    let says = |row: &&Row| {
        row.texts.iter().any(|pattern| match pattern.strip_prefix('=') {
            Some(whole) => message.trim_end_matches('.') == whole,
            None => matches(text, pattern),
        })
    };
    ROWS.iter().filter(counts).find(|row| says(row) && is_meant(row)).map(|row| row.kind)
}

/// Whether the parts of a pattern follow each other in `text`.
fn matches(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    for part in pattern.split('*') {
        let found = match part.strip_prefix('<').and_then(|part| part.strip_suffix('>')) {
            Some(word) => rest.split(|c: char| !c.is_alphanumeric()).any(|one| one == word).then_some(0),
            None => rest.find(part).map(|at| at + part.len()),
        };
        match found {
            Some(end) => rest = rest.get(end..).unwrap_or_default(),
            None => return false,
        }
    }
    true
}

/// The HTTP status that a text begins with: `429 …`, `HTTP 402 …`, `Error: 529 …`, `status: 503`.
fn leading_status(text: &str) -> Option<u16> {
    const BEFORE: [&str; 6] = ["error", "http", "status", "code", "got", "a"];
    let words = text.split(|c: char| c.is_whitespace() || ":,;.-()".contains(c)).filter(|it| !it.is_empty());
    let mut words = words.take(BEFORE.len());
    let first = words.find(|word| !BEFORE.contains(&word.to_ascii_lowercase().as_str()))?;
    first.parse().ok().filter(|code| first.len() == 3 && (400..600).contains(code))
}

/// The levels of thinking that an error of this kind offers.
pub(crate) fn levels_for(kind: ModelErrorKind, complaint: &Complaint) -> Vec<Thinking> {
    if kind == ModelErrorKind::ThinkingLevel { offered_levels(&complaint.message) } else { Vec::new() }
}

/// Levels of thinking that a server asks for in place of the one that it refused, the one to try first in front:
/// those that it names, or what its words come to.
fn offered_levels(message: &str) -> Vec<Thinking> {
    let text = message.to_lowercase();
    let named = text.split_once("supported values are").or_else(|| text.split_once("supported values:"));
    if let Some((_, values)) = named {
        let values = values.split_once(['.', ';']).map_or(values, |(values, _)| values);
        let words = values.split(|c: char| !(c.is_alphanumeric() || "_-".contains(c)));
        let mut levels: Vec<Thinking> = Vec::new();
        for level in words.filter_map(level_of) {
            if !levels.contains(&level) {
                levels.push(level);
            }
        }
        return levels;
    }
    let must = ["mandatory", "required", "cannot be disabled"];
    if must.iter().any(|word| text.contains(word)) {
        return vec![Thinking::Minimal, Thinking::Low];
    }
    vec![Thinking::Off]
}

/// The level that servers mean by a word.
fn level_of(word: &str) -> Option<Thinking> {
    let word: String = word.chars().filter(|c| !"_-".contains(*c)).collect();
    Some(match word.as_str() {
        "off" | "none" | "disabled" => Thinking::Off,
        "minimal" | "min" | "think" => Thinking::Minimal,
        "low" | "on" | "enable" | "enabled" | "thinkhard" => Thinking::Low,
        "medium" | "mid" | "med" | "harder" | "thinkharder" => Thinking::Medium,
        "high" | "ultra" | "ultrathink" | "thinkhardest" | "highest" => Thinking::High,
        "xhigh" | "extrahigh" => Thinking::Xhigh,
        "max" => Thinking::Max,
        _ => return None,
    })
}

/// Lower case, with each number as one `#`: what the table is written in.
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

/// What a person can do about a failure of this kind.
pub(crate) fn advice(kind: ModelErrorKind) -> &'static str {
    use ModelErrorKind as K;
    match kind {
        K::NoCredential => " Set a credential for this provider.",
        K::Auth => " Check the credential of this provider.",
        K::AuthRevoked => " Replace the credential of this provider.",
        K::Quota => " Check the plan and the balance of the account, or use another model.",
        K::RateLimited | K::Overloaded | K::UsageLimit => " Try again later, or use another model.",
        K::ThinkingLevel => " Use another level of thinking, or another model.",
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
        check(429, "RESOURCE_EXHAUSTED", plan, &day, K::UsageLimit, Some(34_500));
        check(429, "RESOURCE_EXHAUSTED", plan, &limits("PerMinute", "0"), K::UsageLimit, Some(34_500));
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
