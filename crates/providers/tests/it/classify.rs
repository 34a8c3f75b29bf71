//! Every error that a fake server can send, as the kind that a call ends with.

use std::time::Duration;

use quipu_protocol::ModelErrorKind as K;
use quipu_providers::CallOptions;
use quipu_testkit::{Answer, FakeServer, Reply};

use crate::http::{ask, options};
use crate::wires::{WIRES, Wire};

/// The kind of each error status when the server says nothing.
fn kind_of_status(status: u16) -> K {
    match status {
        401 | 403 => K::Auth,
        402 => K::Quota,
        404 => K::UnknownModel,
        408 | 410 | 499 | 504 | 522 | 524 => K::Timeout,
        409 | 425 => K::Server,
        413 => K::ContextOverflow,
        429 => K::RateLimited,
        503 | 529 => K::Overloaded,
        400..=499 => K::InvalidRequest,
        500..=599 => K::Server,
        _ => K::Malformed,
    }
}

/// What the server of a wire can send in place of an answer.
fn errors(wire: Wire) -> Vec<(Reply, K)> {
    let begun = Answer::on(wire).text("Half of").unfinished();
    let said = |status, kind: &str, message: &str| Reply::error_on(wire, status, kind, message);
    let mut all = vec![
        (said(401, "authentication_error", "invalid x-api-key"), K::Auth),
        (said(401, "authentication_error", "API key revoked"), K::AuthRevoked),
        (said(403, "permission_error", "no"), K::Auth),
        (said(402, "billing_error", "pay"), K::Quota),
        (said(404, "not_found_error", "model: test-model"), K::UnknownModel),
        (said(413, "request_too_large", "too large"), K::ContextOverflow),
        (said(400, "invalid_request_error", "prompt is too long: 3 tokens > 2 maximum"), K::ContextOverflow),
        (said(400, "invalid_request_error", "this model does not support thinking"), K::ThinkingLevel),
        (said(400, "invalid_request_error", "odd"), K::InvalidRequest),
        (said(429, "rate_limit_error", "slow down"), K::RateLimited),
        (said(429, "rate_limit_error", "weekly usage limit reached"), K::UsageLimit),
        (said(500, "api_error", "boom"), K::Server),
        (said(529, "overloaded_error", "Overloaded"), K::Overloaded),
        (Reply::new(200, "text/html", "<title>Log in</title>"), K::Malformed),
        (Reply::new(200, "application/json", "{}"), K::Malformed),
        (Reply::new(302, "text/html", "").header("location", "http://other.example/"), K::Malformed),
        (Reply::raw("not HTTP at all\r\n\r\n"), K::Network),
        (Reply::reset(), K::Network),
        (Reply::never(), K::Timeout),
        (Reply::stream_on(wire, &begun).then_reset(), K::Network),
        (Reply::stream_on(wire, &begun).then_hang(), K::Timeout),
        (Reply::stream_on(wire, &begun).then_cut(), K::Network),
        (Reply::stream_on(wire, &begun), K::StreamEnded),
    ];
    all.extend(
        (400..=599).map(|status| (Reply::new(status, "application/json", ""), kind_of_status(status))),
    );
    all
}

#[tokio::test]
async fn errors_of_fake_servers_are_classified() {
    for wire in WIRES {
        for (reply, expect) in errors(wire) {
            // Silence alone is waited for; what answers has the time that a slow machine needs.
            let silent = Duration::from_millis(200);
            let idle_timeout = if expect == K::Timeout { silent } else { silent * 100 };
            let patience = CallOptions { max_retries: 0, idle_timeout, ..options() };
            let shown = format!("{reply:?}");
            let server = FakeServer::start([reply]);
            let (_, end) = ask(wire, &server, patience).await;
            let error = end.error.expect("an error");
            assert_eq!(error.kind, expect, "{wire:?}: {shown}: {error}");
            assert_eq!(end.attempts.len(), 1, "{shown}");
        }
    }
}
