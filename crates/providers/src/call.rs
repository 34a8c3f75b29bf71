//! Sends one body until it is answered: HTTP, limits, retries, cancellation. Knows no wire.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quipu_protocol::{Attempt, Json, Model, ModelError, ModelErrorKind, ModelRequest, UnixMs, Usage};
use reqwest::Response;
use reqwest::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tokio::sync::{mpsc, oneshot};

use crate::access::{Access, ResolvedAccess};
use crate::credentials::{CallOutcome, Credential, CredentialError};
use crate::decode::AnswerDecoder;
use crate::failure::{self, KIND_HEADER, advice, classify, levels_for, quote, read_complaint, retry_after};
use crate::net::{self, LocalRoute};
use crate::outgoing::ResponseHead;
use crate::target::Target;
use crate::time::now;
use crate::wrong_api;
use crate::{CacheRetention, Call, CallEnd, CallEvent, Charge, RetryAsk, ThinkingBudgets, WebSearch};

/// Bytes of an error's body that are read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// Bytes of an answer that is no event stream, kept for the message about it.
const MAX_HEAD: usize = 4 << 10;
/// How long the end of the body is awaited after the answer is complete, so that the connection can be used
/// again.
const DRAIN: Duration = Duration::from_millis(50);
/// How long what may follow a sufficient answer is awaited, such as its usage.
const TAIL: Duration = Duration::from_secs(5);

/// How patient a call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallOptions {
    /// Times that the same bytes are sent again after a transient failure.
    pub max_retries: u32,
    /// The first wait between two attempts; it doubles with each, and gets up to a quarter longer by chance.
    pub base_delay: Duration,
    /// The longest wait that a server may ask for. Beyond it the call fails and says so.
    pub max_delay: Duration,
    /// The longest silence: until the headers, and between two pieces of the answer. An answer that stands still while
    /// pings keep its connection alive is given up after [`longest_stall`](Self::longest_stall).
    pub idle_timeout: Duration,
    /// Bytes of one answer at most.
    pub max_reply_bytes: u64,
    /// How long a source of credentials may take.
    pub credential_timeout: Duration,
    /// How servers on this machine are reached.
    pub local: LocalRoute,
    /// How long servers are asked to keep what they have read.
    pub cache: CacheRetention,
    /// Tokens that each level of thinking is given.
    pub budgets: ThinkingBudgets,
    /// Whether models may search the web at their provider.
    pub web_search: WebSearch,
    /// The JSON Schema that the last answer of a run is to fit, for servers that can hold a model to it.
    pub output_schema: Option<Json>,
}

impl CallOptions {
    /// How long an answer may stand still while its connection is kept alive: six times the longest silence.
    #[must_use]
    pub fn longest_stall(&self) -> Duration {
        self.idle_timeout.saturating_mul(6)
    }
}

impl Default for CallOptions {
    fn default() -> Self {
        Self {
            max_retries: 3,
            base_delay: Duration::from_secs(2),
            max_delay: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(300),
            max_reply_bytes: 64 << 20,
            credential_timeout: Duration::from_secs(60),
            local: LocalRoute::Direct,
            cache: CacheRetention::Short,
            budgets: ThinkingBudgets::default(),
            web_search: WebSearch::Off,
            output_schema: None,
        }
    }
}

/// What every call says of itself.
pub(crate) fn common_headers() -> HeaderMap {
    let mut all = HeaderMap::new();
    all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    all.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    all.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    all
}

/// Headers of these names that name the session, where its name can stand in a header and caches are wanted.
fn session_headers(names: &[&'static str], request: &ModelRequest, options: &CallOptions) -> HeaderMap {
    let session = request.session.as_deref().filter(|_| options.cache != CacheRetention::Off);
    let value = session.and_then(|session| HeaderValue::try_from(session).ok());
    let headers = value.into_iter().flat_map(|value| names.iter().map(move |name| (*name, value.clone())));
    headers.map(|(name, value)| (HeaderName::from_static(name), value)).collect()
}

/// Why an attempt failed, and what the server said about trying again.
pub(crate) struct Failure {
    pub(crate) error: ModelError,
    retry: Option<bool>,
    /// The server may have read the request.
    sent: bool,
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self { error, retry: None, sent: true }
    }
}

impl Failure {
    /// What the attempt may have been charged all the same: of its answer came so much.
    fn charge(&self, status: Option<u16>, begun: bool, told: bool, usage: &Usage) -> Charge {
        use ModelErrorKind as Kind;
        let refused = status.is_some_and(|status| !(200..300).contains(&status));
        // What a connection or a limit of ours did to it says nothing of what the server did.
        let broke = matches!(
            self.error.kind,
            Kind::Network
                | Kind::Timeout
                | Kind::StreamEnded
                | Kind::Malformed
                | Kind::TooLarge
                | Kind::Aborted
        );
        match (self.sent, begun || broke) {
            (true, true) if !refused => charge(told, usage),
            _ => Charge::Nothing,
        }
    }
}

/// What an answer of this usage may have been charged.
fn charge(told: bool, usage: &Usage) -> Charge {
    let counts = [usage.input, usage.output, usage.cache_read, usage.cache_write];
    if told && counts.iter().any(|count| *count > 0) { Charge::Told(*usage) } else { Charge::AtLeast(*usage) }
}

/// Sends `call.body` until it is answered for good or bad. The headers of the names in `session_names` name the session.
pub(crate) async fn run(
    access: &Access,
    options: &CallOptions,
    session_names: &[&'static str],
    call: Call,
    decoder: impl Fn(Arc<Model>, UnixMs) -> Box<dyn AnswerDecoder> + Send,
) -> CallEnd {
    let Call { request, body, events, cancel, retries: gate, secrets, headers: changes, responses } = call;
    let extra = session_headers(session_names, &request, options);
    let started = now();
    let mut attempts: Vec<Attempt> = Vec::new();
    let mut charges: Vec<Charge> = Vec::new();
    // Those that were refused, and the way that comes after them.
    let mut used: Vec<Arc<Credential>> = Vec::new();
    let mut next: Option<ResolvedAccess> = None;
    let mut rotations = 0;
    let unsent = |error: ModelError, attempts, charges| {
        let (message, unknown, _) = decoder(request.model.clone(), started).finish(Some(&error));
        CallEnd { message, error: Some(error), attempts, charges, unknown }
    };
    loop {
        let way = async {
            let reached = match next.take() {
                Some(reached) => reached,
                None => access.reach(options).await?,
            };
            if let Some(learn) = &secrets {
                reached.credential.teach(|secret| learn(secret));
            }
            let mut headers = reached.target.headers.clone();
            for (name, value) in &extra {
                // What a person has set stays.
                headers.entry(name).or_insert_with(|| value.clone());
            }
            changes.apply(&mut headers, &reached.target);
            let signed = access.signed(&reached, &headers, &body, options).await?;
            Ok::<_, ModelError>((reached, headers, signed))
        };
        let way = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(aborted()),
            way = way => way,
        };
        let (reached, headers, signed) = match way {
            Ok(way) => way,
            Err(error) => {
                if error.kind == ModelErrorKind::Aborted {
                    let error = Some(error.kind);
                    attempts.push(Attempt { at: now(), error, status: None, credential: None });
                    charges.push(Charge::Nothing);
                }
                return unsent(error, attempts, charges);
            }
        };
        let (target, headers) = match &signed {
            Some((target, headers)) => (target, headers),
            None => (&*reached.target, &headers),
        };
        let credential = &reached.credential;
        let named = access.is_named() || !used.is_empty();
        let named = named.then(|| credential.identity.clone());
        let mut attempt = Attempt { at: now(), error: None, status: None, credential: named };
        let mut answer = decoder(request.model.clone(), started);
        let number = u32::try_from(attempts.len() + 1).unwrap_or(u32::MAX);
        let heads = responses.as_ref().map(|responses| (responses, number));
        let sent = AttemptRequest { target, headers, body: &body, heads };
        let one = once(&sent, options, &events, &mut *answer, &mut attempt.status);
        let outcome = tokio::select! {
            biased;
            () = cancel.cancelled() => Err(aborted().into()),
            outcome = one => outcome,
        };
        let Err(mut failure) = outcome else {
            let told = answer.has_usage();
            let (message, unknown, error) = answer.finish(None);
            attempt.error = error.as_ref().map(|error| error.kind);
            let report = access.report(credential, CallOutcome::of(attempt.error));
            tokio::select! {
                biased;
                () = report => {}
                () = cancel.cancelled() => {}
            }
            attempts.push(attempt);
            charges.push(charge(told, &message.usage));
            return CallEnd { message, error, attempts, charges, unknown };
        };
        attempt.error = Some(failure.error.kind);
        let status = attempt.status;
        attempts.push(attempt);
        let outcome = CallOutcome::of(Some(failure.error.kind));
        let asked = async {
            if failure.error.kind != ModelErrorKind::Aborted {
                access.report(credential, outcome).await;
            }
            if !outcome.is_refusal() {
                return Ok(None);
            }
            if !used.iter().any(|known| Arc::ptr_eq(known, credential)) {
                used.push(credential.clone());
            }
            access.another(&used, outcome, options).await
        };
        let other = tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(None),
            other = asked => other,
        };
        let delay = match other {
            Ok(Some(reached)) => {
                next = Some(reached);
                rotations += 1;
                Some(Duration::ZERO)
            }
            Ok(None) => again(options, attempts.len() - rotations, &mut failure),
            Err(problem) => {
                let delay = again(options, attempts.len() - rotations, &mut failure);
                let needs_login = matches!(problem.error, CredentialError::NeedsLogin { .. });
                if needs_login && matches!(outcome, CallOutcome::Unauthorised | CallOutcome::Revoked) {
                    failure.error.kind = ModelErrorKind::NoCredential;
                }
                let detail = ModelError::from(problem).message;
                failure.error.message = format!("{} {detail}", failure.error.message);
                delay
            }
        };
        let (begun, told) = (answer.has_begun(), answer.has_usage());
        let (message, unknown, _) = answer.finish(Some(&failure.error));
        charges.push(failure.charge(status, begun, told, &message.usage));
        let delay = match delay {
            Some(delay) if may_retry(gate.as_ref(), &charges).await => delay,
            Some(_) | None => {
                return CallEnd { message, error: Some(failure.error), attempts, charges, unknown };
            }
        };
        let retries = u32::try_from(attempts.len() - 1).unwrap_or(u32::MAX);
        let wait = async {
            let event = CallEvent::Retry { attempt: retries + 2, delay, error: failure.error };
            send(&events, event).await;
            tokio::time::sleep(delay).await;
        };
        tokio::select! {
            biased;
            () = cancel.cancelled() => return unsent(aborted(), attempts, charges),
            () = wait => {}
        }
    }
}

/// Whether whoever made the call lets the bytes be sent once more.
async fn may_retry(gate: Option<&mpsc::Sender<RetryAsk>>, charges: &[Charge]) -> bool {
    let Some(gate) = gate else { return true };
    let (go, answer) = oneshot::channel();
    gate.send(RetryAsk { charges: charges.to_vec(), go }).await.is_ok() && answer.await.unwrap_or(false)
}

/// How long to wait before the same bytes are sent again, after so many attempts; `None`, and the error says so, when
/// that does not help or was tried enough.
pub(crate) fn again(options: &CallOptions, attempts: usize, failure: &mut Failure) -> Option<Duration> {
    let retries = u32::try_from(attempts - 1).unwrap_or(u32::MAX);
    let error = &mut failure.error;
    let asked = error.retry_after.unwrap_or_default();
    let transient =
        error.kind != ModelErrorKind::Aborted && failure.retry.unwrap_or(error.kind.is_transient());
    if transient && retries < options.max_retries && asked <= options.max_delay {
        return Some(backoff(options, retries).max(asked));
    }
    if transient && asked > options.max_delay {
        error.kind = ModelErrorKind::RateLimited;
        error.message = format!(
            "{} It asked Quipu to wait {} s, more than the limit of {} s.",
            error.message,
            asked.as_secs_f64().ceil(),
            options.max_delay.as_secs_f64(),
        );
    } else if retries > 0 && error.kind != ModelErrorKind::Aborted {
        error.message = format!("{} Given up after {attempts} attempts.", error.message);
    }
    None
}

fn aborted() -> ModelError {
    ModelError::new(ModelErrorKind::Aborted, "The call was aborted.")
}

/// A reader that is gone does not stop the call: its owner drops or cancels it when that is wanted.
async fn send(events: &mpsc::Sender<CallEvent>, event: CallEvent) {
    drop(events.send(event).await);
}

/// Details of one attempt that errors report.
pub(crate) struct AttemptInfo<'a> {
    target: &'a Target,
    status: Option<u16>,
    request_id: Option<String>,
}

impl AttemptInfo<'_> {
    pub(crate) fn complete(&self, mut error: ModelError) -> ModelError {
        error.status = self.status;
        error.request_id = error.request_id.or_else(|| self.request_id.as_deref().map(quote));
        error.message = printable(&error.message, &self.target.secrets);
        error
    }
}

/// What one attempt sends, and where.
pub(crate) struct AttemptRequest<'a> {
    pub(crate) target: &'a Target,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    /// Who is shown how the answer begins, and the number of the attempt.
    pub(crate) heads: Option<(&'a mpsc::Sender<ResponseHead>, u32)>,
}

/// An answer with a good status.
pub(crate) async fn answered<'a>(
    outgoing: &AttemptRequest<'a>,
    options: &CallOptions,
    status: &mut Option<u16>,
) -> Result<(Response, AttemptInfo<'a>), Failure> {
    let AttemptRequest { target, headers, body, heads } = *outgoing;
    let name = target.name();
    let client = net::client(&target.url, options.local);
    let client = client.map_err(|error| Failure { error, retry: Some(false), sent: false })?;
    let sent = client.post(target.url.clone()).headers(headers.clone()).body(body.clone()).send();
    let mut response = match tokio::time::timeout(options.idle_timeout, sent).await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            let Some(obstacle) = net::obstacle(&target.url, options.local, &error) else {
                let sent = !error.is_connect();
                return Err(Failure { error: network(&name, &error), retry: None, sent });
            };
            let detail = format!("{name} could not be reached: {}", failure::quote(&obstacle.detail));
            let error = ModelError::new(ModelErrorKind::Network, detail);
            return Err(Failure { error, retry: obstacle.lasting.then_some(false), sent: false });
        }
        Err(_) => return Err(silent(&name, options).into()),
    };
    *status = Some(response.status().as_u16());
    if let Some((heads, number)) = heads {
        let head = ResponseHead::of(number, response.status().as_u16(), response.headers(), target);
        // Whoever looks on is not waited for.
        drop(heads.try_send(head));
    }
    let ids = ["request-id", "x-request-id", "x-amzn-requestid"];
    let request_id = ids.into_iter().find_map(|name| header(&response, name));
    let info = AttemptInfo { target, status: *status, request_id };
    if response.status().is_success() {
        return Ok((response, info));
    }
    let failure = refused(&name, &mut response, options).await;
    let mut failure = Failure { error: info.complete(failure.error), ..failure };
    if info.status == Some(404)
        && let Some(hint) = wrong_api::hint(target, body).await
    {
        failure.error.message = format!("{} {}", failure.error.message, printable(&hint, &target.secrets));
    }
    // The statuses that a proxy gives in its own name.
    match (info.status, net::proxy_of(&target.url, options.local)) {
        (Some(407), Some(proxy)) => {
            failure.error.kind = ModelErrorKind::Network;
            failure.error.message = format!("{name} could not be reached: {}", proxy.wants_password());
            failure.retry = Some(false);
        }
        (Some(502..=504), Some(proxy)) => {
            let (detail, proxy, advice) = (&failure.error.message, proxy.name(), proxy.advice());
            failure.error.message = format!("{detail} It came through {proxy}. {advice}");
        }
        _ => {}
    }
    Err(failure)
}

async fn once(
    outgoing: &AttemptRequest<'_>,
    options: &CallOptions,
    events: &mpsc::Sender<CallEvent>,
    answer: &mut dyn AnswerDecoder,
    status: &mut Option<u16>,
) -> Result<(), Failure> {
    let name = outgoing.target.name();
    let (mut response, info) = answered(outgoing, options, status).await?;
    let media = header(&response, CONTENT_TYPE.as_str()).unwrap_or_default().to_ascii_lowercase();
    let streams = !(media.starts_with("text/html") || media.starts_with("application/json"));
    if !streams {
        let failure = not_a_stream(&name, &mut response, options).await;
        return Err(info.complete(failure).into());
    }
    let streamed = stream(&name, options, &mut response, events, answer).await;
    streamed.map_err(|error| info.complete(error).into())
}

pub(crate) fn too_large(name: &str, options: &CallOptions) -> ModelError {
    ModelError::new(
        ModelErrorKind::TooLarge,
        format!(
            "{name} sent an answer larger than the limit of {} bytes. Ask for less at once.",
            options.max_reply_bytes
        ),
    )
}

async fn stream(
    name: &str,
    options: &CallOptions,
    response: &mut Response,
    events: &mpsc::Sender<CallEvent>,
    answer: &mut dyn AnswerDecoder,
) -> Result<(), ModelError> {
    let mut out = Vec::new();
    let mut head = Vec::new();
    let mut total: u64 = 0;
    // Bytes may come without end and say nothing: pings and comments.
    let mut progressed = Instant::now();
    loop {
        let enough = answer.is_enough();
        let silence = if enough { options.idle_timeout.min(TAIL) } else { options.idle_timeout };
        let most = if enough { silence } else { options.longest_stall() };
        let left = most.saturating_sub(progressed.elapsed());
        let chunk = match tokio::time::timeout(silence.min(left), response.chunk()).await {
            Ok(Ok(chunk)) => chunk,
            // How the connection ends matters no more.
            Ok(Err(_)) | Err(_) if enough => None,
            Ok(Err(error)) => return Err(network(name, &error)),
            Err(_) if left <= silence => return Err(stalled(name, options)),
            Err(_) => return Err(silent(name, options)),
        };
        let pushed = match &chunk {
            Some(chunk) => {
                total += chunk.len() as u64;
                if total > options.max_reply_bytes {
                    return Err(too_large(name, options));
                }
                if head.len() < MAX_HEAD {
                    head.extend_from_slice(&chunk[..chunk.len().min(MAX_HEAD - head.len())]);
                }
                answer.push(chunk, &mut out)
            }
            None => answer.end(&mut out),
        };
        if !out.is_empty() {
            for event in out.drain(..) {
                send(events, event).await;
            }
            // Who reads the events may have taken its time.
            progressed = Instant::now();
        }
        if answer.is_complete() {
            // Most often the end is here already.
            drop(
                tokio::time::timeout(DRAIN, async { while let Ok(Some(_)) = response.chunk().await {} })
                    .await,
            );
            return Ok(());
        }
        if let Err(mut error) = pushed {
            let detail = quote(&String::from_utf8_lossy(&head));
            if chunk.is_none() && !answer.has_heard() && !detail.is_empty() {
                // Words came, but no answer in them.
                error.kind = ModelErrorKind::Malformed;
                error.message = format!("did not answer with an event stream: {detail}");
            }
            error.message = format!("{name} {}.{}", error.message.trim_end_matches('.'), advice(error.kind));
            return Err(error);
        }
    }
}

/// The server answered with an error status.
async fn refused(name: &str, response: &mut Response, options: &CallOptions) -> Failure {
    let status = response.status();
    let wait = {
        let (ms, plain) = (header(response, "retry-after-ms"), header(response, "retry-after"));
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since the epoch are far below 2^52")]
        retry_after(ms.as_deref(), plain.as_deref(), now() as f64 / 1e3)
    };
    let retry = match header(response, "x-should-retry").as_deref() {
        Some("true") => Some(true),
        Some("false") => Some(false),
        _ => None,
    };
    let location = header(response, "location");
    let mut complaint = read_complaint(&String::from_utf8_lossy(&error_body(response, options).await));
    complaint.explain_limit(Some(now().unsigned_abs() / 1_000));
    if complaint.kind.is_empty() {
        complaint.kind = header(response, KIND_HEADER).unwrap_or_default();
    }
    let kind = classify(Some(status.as_u16()), &complaint);
    let levels = levels_for(kind, &complaint);
    let mut detail = if complaint.message.is_empty() { "without a word".into() } else { complaint.message };
    if let Some(location) = location.filter(|_| status.is_redirection()) {
        detail = format!("a redirect to {}, which is not followed", quote(&location));
    }
    let mut error = ModelError::new(
        kind,
        format!("{name} answered {}: {}.{}", status.as_u16(), detail.trim_end_matches('.'), advice(kind)),
    );
    error.retry_after = wait.or(complaint.retry_after);
    error.request_id = complaint.request_id;
    error.levels = levels;
    Failure { error, retry, sent: true }
}

/// The status is fine, but the body is a page or a plain JSON value.
async fn not_a_stream(name: &str, response: &mut Response, options: &CallOptions) -> ModelError {
    let body = error_body(response, options).await;
    let body = String::from_utf8_lossy(&body);
    let complaint = read_complaint(&body);
    if complaint.kind.is_empty() || complaint.kind == "message" {
        let detail = if body.trim().is_empty() { "an empty body".into() } else { quote(&body) };
        let kind = ModelErrorKind::Malformed;
        return ModelError::new(
            kind,
            format!("{name} answered with {detail}, not with an event stream.{}", advice(kind)),
        );
    }
    let kind = classify(None, &complaint);
    let levels = levels_for(kind, &complaint);
    let mut error = ModelError::new(
        kind,
        format!("{name} answered: {}.{}", complaint.message.trim_end_matches('.'), advice(kind)),
    );
    error.request_id = complaint.request_id;
    error.levels = levels;
    error
}

/// As much of the body as an error needs. Whatever goes wrong ends it.
async fn error_body(response: &mut Response, options: &CallOptions) -> Vec<u8> {
    let mut body = Vec::new();
    let read = async {
        while body.len() < MAX_ERROR_BODY {
            let Ok(Some(chunk)) = response.chunk().await else { break };
            body.extend_from_slice(&chunk[..chunk.len().min(MAX_ERROR_BODY - body.len())]);
        }
    };
    // Also where it comes byte by byte.
    drop(tokio::time::timeout(options.idle_timeout, read).await);
    body
}

fn header(response: &Response, name: &str) -> Option<String> {
    response.headers().get(name)?.to_str().ok().map(String::from)
}

pub(crate) fn network(name: &str, error: &reqwest::Error) -> ModelError {
    let kind = if error.is_timeout() { ModelErrorKind::Timeout } else { ModelErrorKind::Network };
    let what = if error.is_connect() {
        "could not be reached"
    } else if error.is_body() || error.is_decode() {
        "broke off in the middle of the answer"
    } else {
        "did not answer"
    };
    let cause = std::error::Error::source(error).map(net::describe).unwrap_or_default();
    let cause = if cause.is_empty() { String::new() } else { format!(" ({})", failure::quote(&cause)) };
    ModelError::new(kind, format!("{name} {what}{cause}.{}", advice(kind)))
}

pub(crate) fn silent(name: &str, options: &CallOptions) -> ModelError {
    let kind = ModelErrorKind::Timeout;
    let seconds = options.idle_timeout.as_secs_f64();
    ModelError::new(kind, format!("{name} was silent for {seconds} s.{}", advice(kind)))
}

pub(crate) fn stalled(name: &str, options: &CallOptions) -> ModelError {
    let kind = ModelErrorKind::Timeout;
    let seconds = options.longest_stall().as_secs_f64();
    let message =
        format!("{name} kept the connection open for {seconds} s without sending any of its answer.");
    ModelError::new(kind, format!("{message}{}", advice(kind)))
}

/// At most 2,000 characters, and no credential, which some servers repeat.
fn printable(message: &str, secrets: &[String]) -> String {
    let hide = |message: String, secret: &String| message.replace(secret, "[credential]");
    let message = secrets.iter().fold(message.to_owned(), hide);
    if message.chars().count() <= 2_000 {
        message
    } else {
        message.chars().take(1_999).chain(['…']).collect()
    }
}

/// The wait before the retry that follows `retries` others.
fn backoff(options: &CallOptions, retries: u32) -> Duration {
    let base = options.base_delay.saturating_mul(2_u32.saturating_pow(retries)).min(options.max_delay);
    // The standard library's hasher keys are the only randomness that this needs.
    let chance = std::hash::RandomState::new().build_hasher().finish() % 1_000;
    base + base.mul_f64(f64::from(u16::try_from(chance).unwrap_or_default()) / 4_000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_and_vary_upward() {
        let options = CallOptions::default();
        for (retries, seconds) in [(0, 2), (1, 4), (2, 8), (10, 60), (u32::MAX, 60)] {
            let wait = backoff(&options, retries);
            let base = Duration::from_secs(seconds);
            assert!(wait >= base && wait <= base.mul_f64(1.25), "{retries}: {wait:?}");
        }
    }

    #[test]
    fn messages_are_short_and_hold_no_credential() {
        assert_eq!(printable("bad key sk-1, sk-1", &["sk-1".into()]), "bad key [credential], [credential]");
        assert_eq!(printable(&"é".repeat(3_000), &[]).chars().count(), 2_000);
    }
}
