//! Calls through real HTTP, to a server that misbehaves.

use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{Message, Model, ModelError, ModelErrorKind, ModelRequest, StopReason, Thinking};
use quipu_providers::{
    AzureDeployment, Call, CallEnd, CallEvent, CallOptions, Credential, Credentials, HeaderChanges,
    OpenAiResponses, Provider, Scheme, Secret, laws,
};
use quipu_testkit::{Answer, FakeServer, Gate, Reply};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::wires::{self, WIRES, Wire};

const KEY: &str = "sk-test-0123456789";

fn key(secret: &str) -> Credentials {
    Credentials::fixed(Credential::new("a test", Scheme::Key(Secret::new(secret))))
}

pub(super) fn options() -> CallOptions {
    CallOptions { base_delay: Duration::from_millis(1), ..CallOptions::default() }
}

fn impatient() -> CallOptions {
    CallOptions { idle_timeout: Duration::from_millis(20), max_retries: 1, ..options() }
}

fn model(wire: Wire, url: String) -> Model {
    Model {
        id: "test-model".into(),
        provider: "testing".into(),
        api: wires::api(wire).into(),
        base_url: url,
        ..Model::default()
    }
}

fn provider(wire: Wire, url: String, options: CallOptions) -> (Arc<dyn Provider>, Arc<ModelRequest>) {
    let model = model(wire, url);
    let provider = wires::provider(&model, key(KEY), &[], options).unwrap();
    let request = ModelRequest {
        model: Arc::new(model),
        system: "".into(),
        tools: Vec::new().into(),
        messages: vec![Arc::new(Message::user("Hi", 0))].into(),
        thinking: Thinking::Off,
        max_tokens: None,
        session: None,
        stable_system: None,
    };
    (provider, Arc::new(request))
}

/// Makes one call, reads its events while it runs and checks the laws.
async fn run(
    wire: Wire,
    url: String,
    options: CallOptions,
    cancel: CancellationToken,
) -> (Vec<CallEvent>, CallEnd) {
    let (provider, request) = provider(wire, url, options);
    let (send, mut receive) = mpsc::channel(4);
    let body = provider.encode(&request).unwrap();
    let call = Call::new(request, body, send, cancel);
    let read = async {
        let mut events = Vec::new();
        while let Some(event) = receive.recv().await {
            events.push(event);
        }
        events
    };
    let (end, events) = tokio::join!(provider.send(call), read);
    laws::check(&events, &end).unwrap();
    (events, end)
}

pub(super) async fn ask(wire: Wire, server: &FakeServer, options: CallOptions) -> (Vec<CallEvent>, CallEnd) {
    run(wire, server.url(), options, CancellationToken::new()).await
}

fn kinds(end: &CallEnd) -> Vec<Option<ModelErrorKind>> {
    end.attempts.iter().map(|attempt| attempt.error).collect()
}

fn retries(events: &[CallEvent]) -> Vec<(u32, Duration)> {
    let retry = |event: &CallEvent| match event {
        CallEvent::Retry { attempt, delay, .. } => Some((*attempt, *delay)),
        CallEvent::Started(_) | CallEvent::Delta(_) => None,
    };
    events.iter().filter_map(retry).collect()
}

/// Each test once for each wire.
macro_rules! on_every_wire {
    ($($test:ident),* $(,)?) => {
        mod messages {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Messages).await; })*
        }
        mod completions {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Completions).await; })*
        }
        mod responses {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Responses).await; })*
        }
        mod contents {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Contents).await; })*
        }
        mod subscription {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Subscription).await; })*
        }
        mod chunks {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Chunks).await; })*
        }
        mod converse {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Converse).await; })*
        }
        mod gateway {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Gateway).await; })*
        }
        mod envelope {
            $(#[tokio::test] async fn $test() { super::$test(super::Wire::Envelope).await; })*
        }
    };
}

on_every_wire!(
    one_answer,
    two_overloads_and_then_an_answer,
    a_retry_makes_what_was_streamed_void,
    retries_end,
    a_wait_beyond_the_limit_fails_at_once,
    the_server_decides_about_retries_when_it_says_so,
    refusals,
    what_is_no_answer,
    silence_ends_in_a_timeout,
    pings_without_end_are_no_answer,
    nobody_listens,
    an_answer_without_end_is_cut_off,
    a_drip_is_an_answer_like_any_other,
    a_slow_drip_is_no_silence,
    an_abort_keeps_what_came,
    an_abort_ends_every_wait,
    a_reader_that_is_gone_does_not_stop_the_call,
);

async fn one_answer(wire: Wire) {
    let answer =
        Answer::on(wire).thinking("Hm", "sig").text("Hello 😀").tool_call("t1", "read", "{\"path\":\"a\"}");
    let server = FakeServer::start([answer.usage(7, 8, 9, 10).reply().header("request-id", "req_1")]);
    let (events, end) = ask(wire, &server, options()).await;
    assert_eq!(end.error, None);
    assert_eq!(kinds(&end), [None]);
    assert_eq!(end.attempts[0].status, Some(200));
    assert_eq!(end.message.text(), "Hello 😀");
    assert_eq!(end.message.stop_reason, StopReason::ToolUse);
    assert_eq!(end.message.usage.total_tokens, 34);
    // One wire names its answers in a header only.
    let id = (wire != Wire::Converse).then_some("msg_test");
    assert_eq!(end.message.response_id.as_deref(), id);
    // One wire says it at the end.
    let CallEvent::Started(started) = &events[0] else { panic!("{:?}", events[0]) };
    assert!(started.response_id == end.message.response_id || wire == Wire::Gateway);
    let requests = server.requests();
    let [request] = requests.as_slice() else { panic!("one request") };
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", wires::path(wire)));
    let header = |name| request.header(name);
    let bearer = format!("Bearer {KEY}");
    let (key, token, version) = match wire {
        Wire::Messages => (Some(KEY), None, Some("2023-06-01")),
        Wire::Completions
        | Wire::Responses
        | Wire::Subscription
        | Wire::Chunks
        | Wire::Converse
        | Wire::Gateway
        | Wire::Envelope => (None, Some(bearer.as_str()), None),
        Wire::Contents => (None, None, None),
    };
    assert_eq!(header("x-goog-api-key"), (wire == Wire::Contents).then_some(KEY));
    assert!(!request.path.contains(KEY), "{}", request.path);
    assert_eq!((header("x-api-key"), header("authorization")), (key, token));
    assert_eq!(header("anthropic-version"), version);
    assert_eq!(header("accept-encoding"), Some("identity"));
    let frames = "application/vnd.amazon.eventstream";
    let media = if wire == Wire::Converse { frames } else { "text/event-stream" };
    assert_eq!(header("accept"), Some(media));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("anthropic-beta"), None);
    assert_eq!(header("user-agent"), Some(concat!("quipu/", env!("CARGO_PKG_VERSION"))));
    let (provider, asked) = provider(wire, server.url(), options());
    assert_eq!(request.body, provider.encode(&asked).unwrap());
    assert!(provider.is_local());
}

#[tokio::test]
async fn credentials_and_headers() {
    let check = async |secret: &str,
                       kind: fn(Secret) -> Scheme,
                       model_headers: &[(&str, &str)],
                       expect: &[(&str, Option<&str>)]| {
        let wire = Wire::Messages;
        let server = FakeServer::start([Answer::new().text("x").reply()]);
        let mut model = model(wire, format!("{}/v1/", server.url()));
        model.reasoning = true;
        model.compat = quipu_protocol::Json::parse(r#"{"sendSessionAffinityHeaders":true}"#).ok();
        let headers: Vec<_> = model_headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let credential = Credential::new("a test", kind(Secret::new(secret)));
        let credentials = Credentials::fixed(credential);
        let provider = wires::provider(&model, credentials, &headers, options()).unwrap();
        let (send, _receive) = mpsc::channel(64);
        let (_, request) = self::provider(wire, server.url(), options());
        let request =
            ModelRequest { model: Arc::new(model), session: Some("s-1".into()), ..(*request).clone() };
        let body = provider.encode(&request).unwrap();
        let call = Call {
            request: Arc::new(request),
            body,
            events: send,
            cancel: CancellationToken::new(),
            retries: None,
            secrets: None,
            headers: HeaderChanges::default(),
            responses: None,
        };
        assert_eq!(provider.send(call).await.error, None);
        let request = &server.requests()[0];
        assert_eq!(request.path, "/v1/messages");
        for (name, value) in expect {
            assert_eq!(request.header(name), *value, "{name}");
        }
    };
    let bearer = format!("Bearer {KEY}");
    check(
        KEY,
        Scheme::Bearer,
        &[],
        &[
            ("authorization", Some(&bearer)),
            ("x-api-key", None),
            ("anthropic-beta", Some("interleaved-thinking-2025-05-14")),
            ("x-session-affinity", Some("s-1")),
        ],
    )
    .await;
    check(
        "sk-ant-oat01-x",
        Scheme::Key,
        &[("User-Agent", "mine"), ("X-New", "1")],
        &[
            ("authorization", Some("Bearer sk-ant-oat01-x")),
            ("x-api-key", None),
            ("anthropic-beta", Some("interleaved-thinking-2025-05-14,oauth-2025-04-20")),
            ("user-agent", Some("mine")),
            ("x-new", Some("1")),
        ],
    )
    .await;
}

#[test]
fn wrong_configuration_is_refused_before_anything_is_sent() {
    for wire in WIRES {
        wrong_configuration(wire);
    }
}

fn wrong_configuration(wire: Wire) {
    let new = |url: &str, secret: &str, headers: &[(String, String)]| {
        wires::provider(&model(wire, url.into()), key(secret), headers, options()).map(drop).unwrap_err().kind
    };
    for url in ["", "nonsense", "ftp://x", "http://", "file:///etc/passwd"] {
        assert_eq!(new(url, KEY, &[]), ModelErrorKind::InvalidRequest, "{url}");
    }
    assert_eq!(new("http://x", "a\nb", &[]), ModelErrorKind::Auth);
    assert_eq!(new("http://x", KEY, &[("a b".into(), "c".into())]), ModelErrorKind::InvalidRequest);
    assert_eq!(new("http://x", KEY, &[("a".into(), "c\r\nd: e".into())]), ModelErrorKind::InvalidRequest);
    let (provider, _) = provider(wire, "https://example.com".into(), options());
    assert!(!provider.is_local());
}

async fn two_overloads_and_then_an_answer(wire: Wire) {
    let busy = || Reply::error(503, "overloaded_error", "busy").header("retry-after-ms", "30");
    let server = FakeServer::start([busy(), busy(), Answer::on(wire).text("Here").reply()]);
    let (events, end) = ask(wire, &server, options()).await;
    assert_eq!(end.error, None);
    assert_eq!(end.message.text(), "Here");
    assert_eq!(kinds(&end), [Some(ModelErrorKind::Overloaded), Some(ModelErrorKind::Overloaded), None]);
    assert_eq!(
        end.attempts.iter().map(|attempt| attempt.status).collect::<Vec<_>>(),
        [Some(503), Some(503), Some(200)]
    );
    let asked = Duration::from_millis(30);
    assert_eq!(retries(&events), [(2, asked), (3, asked)]);
    assert_eq!(events.iter().filter(|event| matches!(event, CallEvent::Started(_))).count(), 1);
    let requests = server.requests();
    assert_eq!(requests.len(), 3);
    for pair in requests.windows(2) {
        assert_eq!(pair[0].body, pair[1].body);
        assert_eq!(pair[0].headers, pair[1].headers);
        assert!(pair[1].at - pair[0].at >= asked);
    }
}

async fn a_retry_makes_what_was_streamed_void(wire: Wire) {
    let start = Answer::on(wire).text("half of it").tool_call("t1", "read", "{}");
    let server = FakeServer::start([
        Reply::stream_on(wire, &start.unfinished()).then_reset(),
        Reply::stream_on(wire, &start.unfinished()).then_cut(),
        Reply::stream_on(wire, &start.unfinished()),
        Answer::on(wire).text("whole").reply(),
    ]);
    let (events, end) = ask(wire, &server, options()).await;
    assert_eq!(end.error, None);
    assert_eq!(end.message.text(), "whole");
    let (network, ended) = (Some(ModelErrorKind::Network), Some(ModelErrorKind::StreamEnded));
    assert_eq!(kinds(&end), [network, network, ended, None]);
    assert_eq!(retries(&events).len(), 3);
}

async fn retries_end(wire: Wire) {
    let server = FakeServer::start((0..5).map(|_| Reply::error(529, "overloaded_error", "Overloaded")));
    let (events, end) = ask(wire, &server, CallOptions { max_retries: 2, ..options() }).await;
    let error = end.error.unwrap();
    assert_eq!((error.kind, error.status), (ModelErrorKind::Overloaded, Some(529)));
    assert!(error.message.ends_with("Given up after 3 attempts."), "{}", error.message);
    assert_eq!(end.message.error_message, Some(error.message));
    assert_eq!((end.attempts.len(), retries(&events).len(), server.requests().len()), (3, 2, 3));
}

async fn a_wait_beyond_the_limit_fails_at_once(wire: Wire) {
    for header in ["3600", "Fri, 31 Dec 2100 23:59:59 GMT"] {
        let server =
            FakeServer::start([Reply::error(503, "overloaded_error", "busy").header("retry-after", header)]);
        let (events, end) = ask(wire, &server, options()).await;
        let error = end.error.unwrap();
        assert_eq!(error.kind, ModelErrorKind::RateLimited);
        assert!(error.message.contains("more than the limit of 60 s"), "{}", error.message);
        assert!(error.retry_after.is_some_and(|wait| wait >= Duration::from_secs(3600)));
        assert_eq!(events, []);
    }
}

async fn the_server_decides_about_retries_when_it_says_so(wire: Wire) {
    let server = FakeServer::start([
        Reply::error(400, "invalid_request_error", "odd").header("x-should-retry", "true"),
        Reply::error(500, "api_error", "broken").header("x-should-retry", "false"),
    ]);
    let (_, end) = ask(wire, &server, options()).await;
    assert_eq!(kinds(&end), [Some(ModelErrorKind::InvalidRequest), Some(ModelErrorKind::Server)]);
}

/// Calls a server with these replies and checks the error: its kind, the times that the body was sent, and
/// words of the message.
async fn fails(
    wire: Wire,
    replies: impl IntoIterator<Item = Reply>,
    options: CallOptions,
    kind: ModelErrorKind,
    sent: usize,
    words: &[&str],
) -> ModelError {
    let server = FakeServer::start(replies);
    let host = server.url().trim_start_matches("http://").to_owned();
    let (_, end) = ask(wire, &server, options).await;
    let error = end.error.unwrap();
    assert_eq!((error.kind, end.attempts.len()), (kind, sent), "{error:?}");
    assert!(error.message.contains(&host), "{} names {host}", error.message);
    for word in words {
        assert!(error.message.contains(word), "{} says {word}", error.message);
    }
    assert!(!error.message.contains(KEY) && !error.message.contains('\n'));
    assert_eq!(end.message.stop_reason, StopReason::Error);
    assert_eq!(end.message.error_message.as_deref(), Some(error.message.as_str()));
    assert_eq!(end.message.provider, "testing");
    error
}

async fn refusals(wire: Wire) {
    use ModelErrorKind as K;
    let check = async |status: u16, kind: &str, message: &str, expect: K| {
        let reply = Reply::error(status, kind, message).header("request-id", "req_9");
        let error = fails(wire, [reply], options(), expect, 1, &[&status.to_string(), message]).await;
        assert_eq!((error.status, error.request_id.as_deref()), (Some(status), Some("req_9")));
    };
    check(401, "authentication_error", "invalid x-api-key", K::Auth).await;
    check(403, "permission_error", "not allowed", K::Auth).await;
    check(402, "billing_error", "pay", K::Quota).await;
    check(404, "not_found_error", "model: test-model", K::UnknownModel).await;
    check(413, "request_too_large", "too large", K::ContextOverflow).await;
    check(400, "invalid_request_error", "prompt is too long: 3 tokens > 2 maximum", K::ContextOverflow).await;
    check(400, "invalid_request_error", "messages.0: bad", K::InvalidRequest).await;
    check(422, "invalid_request_error", "bad", K::InvalidRequest).await;
    check(429, "rate_limit_error", "Monthly usage limit reached", K::UsageLimit).await;
    let echo = Reply::new(401, "text/plain", format!("\u{1b}[31mIncorrect key {KEY}\nsorry\0"));
    fails(wire, [echo], options(), K::Auth, 1, &["[31mIncorrect key [credential] sorry"]).await;
    let moved =
        Reply::new(302, "text/html", "<title>Moved</title>").header("location", "http://other.example/");
    fails(wire, [moved], options(), K::Malformed, 1, &["http://other.example/", "not followed"]).await;
    let endless = Reply::new(400, "text/plain", "x").then_repeat(vec![b'y'; 1 << 16], 1_000);
    fails(wire, [endless], options(), K::InvalidRequest, 1, &["xyyy"]).await;
    fails(
        wire,
        [Reply::new(400, "text/plain", "never ends").then_hang()],
        // Time enough for its beginning, also on a machine with other work.
        CallOptions { idle_timeout: Duration::from_secs(1), ..impatient() },
        K::InvalidRequest,
        1,
        &["never ends"],
    )
    .await;
}

async fn what_is_no_answer(wire: Wire) {
    use ModelErrorKind as K;
    let page = "<!doctype html><html><head><title>Log in</title></head><body>…</body></html>";
    let html = fails(
        wire,
        [Reply::new(200, "text/html; charset=utf-8", page)],
        options(),
        K::Malformed,
        1,
        &["Log in"],
    )
    .await;
    assert!(html.message.contains("Check the base URL"));
    fails(
        wire,
        [Reply::sse(page)],
        options(),
        K::Malformed,
        1,
        &["not answer with an event stream", "Log in"],
    )
    .await;
    let plain = r#"{"id":"msg","type":"message","content":[]}"#;
    fails(
        wire,
        [Reply::new(200, "application/json", plain)],
        options(),
        K::Malformed,
        1,
        &["not with an event stream"],
    )
    .await;
    let hidden = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no such thing"}}"#;
    fails(
        wire,
        [Reply::new(200, "application/json", hidden)],
        options(),
        K::InvalidRequest,
        1,
        &["no such thing"],
    )
    .await;
    let garbage: Vec<u8> = (0..=255).cycle().take(4_000).collect();
    fails(wire, [Reply::sse(garbage)], options(), K::Malformed, 1, &["not answer with an event stream"])
        .await;
    fails(
        wire,
        [Reply::stream_on(wire, "data: {\"type\": nonsense}\n\n")],
        options(),
        K::Malformed,
        1,
        &["not JSON: {\"type\": nonsense}"],
    )
    .await;
    let again = || CallOptions { max_retries: 1, ..options() };
    fails(wire, [Reply::sse(""), Reply::sse("")], again(), K::StreamEnded, 2, &["before it began"]).await;
    let half = || match wire {
        Wire::Converse => Reply::sse(wire.bytes("event: messageStart\ndata: {}\n\n")[..20].to_vec()),
        _ => Reply::sse("event: message_start\ndata: {\"type\":\"mess"),
    };
    fails(wire, [half(), half()], again(), K::StreamEnded, 2, &["in the middle of an event"]).await;
    let raw = || Reply::raw("SMTP ready\r\n");
    fails(wire, [raw(), raw()], again(), K::Network, 2, &[]).await;
    let short = || Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ndata: 1");
    fails(wire, [short(), short()], again(), K::Network, 2, &["broke off"]).await;
    fails(wire, [Reply::raw(""), Reply::raw("")], again(), K::Network, 2, &[]).await;
    fails(wire, [Reply::reset(), Reply::reset()], again(), K::Network, 2, &[]).await;
}

async fn silence_ends_in_a_timeout(wire: Wire) {
    use ModelErrorKind as K;
    fails(wire, [Reply::never(), Reply::never()], impatient(), K::Timeout, 2, &["silent for 0.02 s"]).await;
    let stalled = || Reply::stream_on(wire, &Answer::on(wire).text("and then").unfinished()).then_hang();
    fails(wire, [stalled(), stalled()], impatient(), K::Timeout, 2, &["silent"]).await;
}

/// What keeps a connection alive is no answer: neither before its first word, nor in its middle, nor behind its end.
async fn pings_without_end_are_no_answer(wire: Wire) {
    use ModelErrorKind as K;
    let ping = match wire {
        Wire::Messages => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
        Wire::Completions | Wire::Contents | Wire::Chunks | Wire::Gateway | Wire::Envelope => {
            ": PROCESSING\n\n"
        }
        Wire::Responses | Wire::Subscription => "data: {\"type\":\"keepalive\"}\n\n",
        Wire::Converse => "event: keepalive\ndata: {}\n\n",
    };
    // A reply that drips for a minute; who is sent it leaves long before.
    let pings = wire.bytes(&ping.repeat(60_000 / ping.len()));
    let pause = Duration::from_millis(1);
    for begun in [String::new(), Answer::on(wire).text("and then").unfinished()] {
        let reply = || Reply::stream_on(wire, &begun).then_drip_slowly(pings.clone(), pause);
        let patience = CallOptions { idle_timeout: Duration::from_millis(200), ..impatient() };
        fails(wire, [reply(), reply()], patience, K::Timeout, 2, &["kept the connection open for 1.2 s"])
            .await;
    }
    if wire != Wire::Messages {
        let stream = Answer::on(wire).text("Whole").stream();
        let stream = stream.trim_end_matches("data: [DONE]\n\n").to_owned();
        let server = FakeServer::start([Reply::stream_on(wire, &stream).then_drip_slowly(pings, pause)]);
        let patience = CallOptions { idle_timeout: Duration::from_millis(200), ..impatient() };
        let (_, end) = ask(wire, &server, patience).await;
        assert_eq!((end.error, end.message.text()), (None, "Whole".to_owned()));
    }
}

async fn nobody_listens(wire: Wire) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = format!("http://{address}");
    let (_, end) =
        run(wire, url, CallOptions { max_retries: 1, ..options() }, CancellationToken::new()).await;
    let error = end.error.unwrap();
    assert_eq!((error.kind, end.attempts.len(), error.status), (ModelErrorKind::Network, 2, None));
    assert!(error.message.contains("could not be reached") && error.message.contains(&address.to_string()));
}

async fn an_answer_without_end_is_cut_off(wire: Wire) {
    use ModelErrorKind as K;
    let (start, delta) = {
        // What the piece adds to what came before it.
        let (before, after) = (Answer::on(wire).unfinished(), Answer::on(wire).text("ab").unfinished());
        let frames: Vec<&str> = after[before.len()..].split_inclusive("\n\n").collect();
        let (first, piece) = match wire {
            Wire::Messages | Wire::Responses | Wire::Subscription | Wire::Gateway => (frames[0], frames[1]),
            Wire::Completions | Wire::Contents | Wire::Chunks | Wire::Converse | Wire::Envelope => {
                ("", frames[0])
            }
        };
        let long = format!("{}\"", "x".repeat(1 << 20));
        assert_eq!(piece.matches("\"a\"").count(), 1);
        (format!("{before}{first}"), piece.replace("\"a\"", &format!("\"{long}")))
    };
    fails(
        wire,
        [Reply::stream_on(wire, &start).then_repeat(wire.bytes(&delta), 100)],
        options(),
        K::TooLarge,
        1,
        &["more than 8 MiB of content"],
    )
    .await;
    let line = match wire {
        Wire::Converse => {
            Reply::stream_on(wire, &format!("event: new\ndata: \"{}\"\n\n", "x".repeat(17 << 20)))
        }
        _ => Reply::sse("data: ").then_repeat(vec![b'x'; 1 << 20], 100),
    };
    fails(wire, [line], options(), K::TooLarge, 1, &["larger than 16 MiB"]).await;
    let filler = "x".repeat(1 << 20);
    let comments = match wire {
        Wire::Converse => wire.bytes(&format!("event: initial-response\ndata: {{\"p\":\"{filler}\"}}\n\n")),
        _ => format!(": {filler}\n").into_bytes(),
    };
    let comments = Reply::sse("").then_repeat(comments, 100);
    fails(wire, [comments], options(), K::TooLarge, 1, &["67108864 bytes"]).await;
}

async fn a_drip_is_an_answer_like_any_other(wire: Wire) {
    let stream = Answer::on(wire).thinking("Hm", "sig").text("Grüße 😀").tool_call("t", "n", "{}").stream();
    let dripped = Reply::sse("").then_drip(wire.bytes(&stream));
    let server = FakeServer::start([dripped, Reply::stream_on(wire, &stream)]);
    let drip = ask(wire, &server, options()).await;
    let whole = ask(wire, &server, options()).await;
    assert_eq!(drip.0.len(), whole.0.len());
    assert_eq!(drip.1.message.content, whole.1.message.content);
}

/// A byte now and then, for longer than the longest silence that is borne.
async fn a_slow_drip_is_no_silence(wire: Wire) {
    let stream = wire.bytes(&Answer::on(wire).text("Drop by drop").stream());
    let options = CallOptions { idle_timeout: Duration::from_secs(2), max_retries: 0, ..options() };
    let pause = Duration::from_millis(2) + options.idle_timeout / u32::try_from(stream.len()).unwrap();
    let began = std::time::Instant::now();
    let server = FakeServer::start([Reply::sse("").then_drip_slowly(stream, pause)]);
    let (_, end) = ask(wire, &server, options.clone()).await;
    assert_eq!((end.error, end.message.text()), (None, "Drop by drop".to_owned()));
    assert!(began.elapsed() > options.idle_timeout);
}

async fn an_abort_keeps_what_came(wire: Wire) {
    let gate = Gate::new();
    let start = Answer::on(wire).text("so far so good").tool_call("t1", "read", "{}");
    let (start, open) = match wire {
        Wire::Messages => {
            let open = r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t2","name":"n"}}"#;
            (start.unfinished(), format!("data: {open}\n\n"))
        }
        Wire::Responses | Wire::Subscription => {
            let item = r#"{"type":"function_call","call_id":"t2","name":"n","arguments":""}"#;
            let open = format!(r#"{{"type":"response.output_item.added","output_index":2,"item":{item}}}"#);
            (start.unfinished(), format!("data: {open}\n\n"))
        }
        Wire::Gateway => {
            let open = r#"{"type":"toolcall_start","contentIndex":2,"id":"t2","toolName":"n"}"#;
            (start.unfinished(), format!("data: {open}\n\n"))
        }
        // Its calls end with the answer.
        Wire::Completions | Wire::Chunks => (start.tool_call("t2", "n", "").unfinished(), String::new()),
        // And these come whole.
        Wire::Contents | Wire::Envelope => (start.tool_call("t2", "n", "{}").unfinished(), String::new()),
        Wire::Converse => {
            let open = r#"{"contentBlockIndex":2,"start":{"toolUse":{"toolUseId":"t2","name":"n"}}}"#;
            (start.unfinished(), format!("event: contentBlockStart\ndata: {open}\n\n"))
        }
    };
    let server = FakeServer::start([Reply::stream_on(wire, &(start + &open)).then_gate(&gate)]);
    let (provider, request) = provider(wire, server.url(), options());
    let (send, mut receive) = mpsc::channel(64);
    let cancel = CancellationToken::new();
    let body = provider.encode(&request).unwrap();
    let call = Call::new(request, body, send, cancel.clone());
    let read = async {
        let mut events = Vec::new();
        while let Some(event) = receive.recv().await {
            if matches!(&event, CallEvent::Delta(quipu_protocol::Delta::ToolCallStarted { index: 2, .. })) {
                cancel.cancel();
            }
            events.push(event);
        }
        events
    };
    let (end, events) = tokio::join!(provider.send(call), read);
    laws::check(&events, &end).unwrap();
    assert_eq!(end.message.stop_reason, StopReason::Aborted);
    assert_eq!(end.error.map(|error| error.kind), Some(ModelErrorKind::Aborted));
    assert_eq!(end.message.text(), "so far so good");
    let calls: Vec<_> = end.message.tool_calls().map(|call| call.id.as_str()).collect();
    match wire {
        Wire::Messages => assert_eq!((calls.as_slice(), end.message.usage.input), (["t1"].as_slice(), 10)),
        Wire::Responses | Wire::Subscription | Wire::Converse | Wire::Gateway => assert_eq!(calls, ["t1"]),
        Wire::Completions | Wire::Chunks => assert_eq!(calls, [""; 0]),
        Wire::Contents | Wire::Envelope => assert_eq!(calls, ["t1", "t2"]),
    }
}

async fn an_abort_ends_every_wait(wire: Wire) {
    // Before anything is sent.
    let server = FakeServer::start([]);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let (_, end) = run(wire, server.url(), options(), cancel).await;
    assert_eq!((kinds(&end), server.requests().len()), (vec![Some(ModelErrorKind::Aborted)], 0));

    // While the server thinks.
    let server = FakeServer::start([Reply::never()]);
    let cancel = CancellationToken::new();
    let (asked, (_, end)) = tokio::join!(
        async {
            server.wait_for_requests(1).await;
            cancel.cancel();
        },
        run(wire, server.url(), options(), cancel.clone())
    );
    let () = asked;
    assert_eq!(kinds(&end), [Some(ModelErrorKind::Aborted)]);

    // While the next attempt is waited for.
    let server =
        FakeServer::start([Reply::error(503, "overloaded_error", "busy").header("retry-after", "59")]);
    let (provider, request) = provider(wire, server.url(), options());
    let (send, mut receive) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let body = provider.encode(&request).unwrap();
    let call = Call {
        request: request.clone(),
        body: body.clone(),
        events: send,
        cancel: cancel.clone(),
        retries: None,
        secrets: None,
        headers: HeaderChanges::default(),
        responses: None,
    };
    let wait = async {
        let event = receive.recv().await;
        cancel.cancel();
        event
    };
    let (end, event) = tokio::join!(provider.send(call), wait);
    laws::check(&Vec::from_iter(event), &end).unwrap();
    assert_eq!(end.message.stop_reason, StopReason::Aborted);
    assert_eq!(kinds(&end), [Some(ModelErrorKind::Overloaded)]);

    // While nobody reads the events.
    let server = FakeServer::start([Answer::on(wire).text("more than fits").reply()]);
    let (provider, request) = self::provider(wire, server.url(), options());
    let (send, receive) = mpsc::channel(1);
    let cancel = CancellationToken::new();
    let call = Call::new(request, body, send.clone(), cancel.clone());
    let full = async {
        while send.capacity() > 0 {
            tokio::task::yield_now().await;
        }
        cancel.cancel();
    };
    let (end, ()) = tokio::join!(provider.send(call), full);
    assert_eq!(end.message.stop_reason, StopReason::Aborted);
    drop(receive);
}

async fn a_reader_that_is_gone_does_not_stop_the_call(wire: Wire) {
    let server = FakeServer::start([Answer::on(wire).text("anyway").reply()]);
    let (provider, request) = provider(wire, server.url(), options());
    let (send, receive) = mpsc::channel(1);
    drop(receive);
    let body = provider.encode(&request).unwrap();
    let end = provider
        .send(Call {
            request,
            body,
            events: send,
            cancel: CancellationToken::new(),
            retries: None,
            secrets: None,
            headers: HeaderChanges::default(),
            responses: None,
        })
        .await;
    assert_eq!((end.error, end.message.text()), (None, "anyway".to_owned()));
}

/// A server that keeps the connection after the reason for the end: what may follow is not waited for long, and how
/// the connection ends matters no more.
#[tokio::test]
async fn an_answer_that_says_why_it_ended_is_whole() {
    let wire = Wire::Completions;
    let stream = Answer::on(wire).text("Whole").stream();
    let without_end = stream.strip_suffix("data: [DONE]\n\n").unwrap().to_owned();
    let without_usage = stream.split_inclusive("\n\n").take(4).collect::<String>();
    assert!(without_usage.contains(r#""finish_reason":"stop""#) && !without_usage.contains("prompt_tokens"));
    for reply in [
        Reply::sse(without_end.clone()),
        Reply::sse(without_end.clone()).then_hang(),
        Reply::sse(without_end).then_reset(),
        Reply::sse(without_usage.clone()).then_cut(),
        Reply::sse(without_usage).then("data: {\"id\":").then_hang(),
    ] {
        let server = FakeServer::start([reply]);
        // Patient enough for a busy machine: who is not would be told of a silence that was none.
        let patience = CallOptions { idle_timeout: Duration::from_millis(300), ..impatient() };
        let (_, end) = ask(wire, &server, patience).await;
        assert_eq!((end.error, end.message.text()), (None, "Whole".to_owned()));
        assert_eq!(end.attempts.len(), 1);
    }
}

#[tokio::test]
async fn delay_in_the_body_of_an_error_is_waited_for() {
    let body = r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","message":"You exceeded your current quota.",
        "details":[{"violations":[{"quotaId":"RequestsPerMinute"}]},{"retryDelay":"0.03s"}]}}"#;
    let wire = Wire::Contents;
    let limit = Reply::new(429, "application/json", body);
    let server = FakeServer::start([limit, Answer::on(wire).text("Here").reply()]);
    let (events, end) = ask(wire, &server, options()).await;
    assert_eq!((end.error.as_ref(), end.message.text()), (None, "Here".to_owned()));
    assert_eq!(kinds(&end), [Some(ModelErrorKind::RateLimited), None]);
    assert_eq!(retries(&events), [(2, Duration::from_millis(30))]);
}

#[tokio::test]
async fn addresses_and_headers_of_the_second_wire() {
    let check =
        async |path: &str, compat: &str, with_key: bool, expect: &str, headers: &[(&str, Option<&str>)]| {
            let wire = Wire::Completions;
            let server = FakeServer::start([Answer::on(wire).text("x").reply()]);
            let mut model = model(wire, format!("{}{path}", server.url()));
            model.compat = quipu_protocol::Json::parse(compat).ok();
            let credentials = if with_key { key(KEY) } else { Credentials::none() };
            let provider = wires::provider(&model, credentials, &[], options()).unwrap();
            let (_, request) = self::provider(wire, server.url(), options());
            let request =
                ModelRequest { model: Arc::new(model), session: Some("s-1".into()), ..(*request).clone() };
            let (send, _receive) = mpsc::channel(64);
            let body = provider.encode(&request).unwrap();
            let call = Call {
                request: Arc::new(request),
                body,
                events: send,
                cancel: CancellationToken::new(),
                retries: None,
                secrets: None,
                headers: HeaderChanges::default(),
                responses: None,
            };
            assert_eq!(provider.send(call).await.error, None);
            let request = &server.requests()[0];
            assert_eq!(request.path, expect);
            for (name, value) in headers {
                assert_eq!(request.header(name), *value, "{name}");
            }
        };
    let bearer = format!("Bearer {KEY}");
    let bearer = Some(bearer.as_str());
    let session = Some("s-1");
    check("", "{}", true, "/v1/chat/completions", &[("authorization", bearer), ("session_id", None)]).await;
    check("/", "{}", false, "/v1/chat/completions", &[("authorization", None)]).await;
    check("/v1/", "{}", true, "/v1/chat/completions", &[("x-session-affinity", None)]).await;
    let own = [("authorization", None), ("cf-aig-authorization", bearer)];
    check(
        "/api/compat",
        r#"{"keyHeader":"cf-aig-authorization"}"#,
        true,
        "/api/compat/chat/completions",
        &own,
    )
    .await;
    let all = [("session_id", session), ("x-client-request-id", session), ("x-session-affinity", session)];
    check("", r#"{"sendSessionAffinityHeaders":true}"#, true, "/v1/chat/completions", &all).await;
    let routed = r#"{"sendSessionAffinityHeaders":true,"sessionAffinityFormat":"openrouter"}"#;
    check("", routed, true, "/v1/chat/completions", &[("x-session-id", session), ("session_id", None)]).await;
}

#[tokio::test]
async fn azure_deployment_has_its_address_key_and_name() {
    let server = FakeServer::start([Answer::on(Wire::Responses).text("x").reply()]);
    let mut model = model(Wire::Responses, String::new());
    model.api = "azure-openai-responses".into();
    let deployment = AzureDeployment {
        base_url: format!("{}/openai/v1", server.url()),
        api_version: "preview".into(),
        name: Some("mine".into()),
    };
    let provider = OpenAiResponses::deployed(&model, deployment, key(KEY), &[], options()).unwrap();
    let (_, request) = self::provider(Wire::Responses, server.url(), options());
    let request = ModelRequest { model: Arc::new(model), ..(*request).clone() };
    let (send, _receive) = mpsc::channel(64);
    let body = provider.encode(&request).unwrap();
    let call = Call::new(Arc::new(request), body, send, CancellationToken::new());
    let end = provider.send(call).await;
    assert_eq!((end.error, end.message.model.as_str()), (None, "test-model"));
    assert_eq!(end.message.api, "azure-openai-responses");
    let request = &server.requests()[0];
    assert_eq!(request.path, "/openai/v1/responses?api-version=preview");
    assert_eq!((request.header("api-key"), request.header("authorization")), (Some(KEY), None));
    assert_eq!(request.json()["model"], "mine");
}
