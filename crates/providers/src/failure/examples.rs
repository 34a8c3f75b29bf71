//! What servers are known to say, and what each comes to.

use quipu_protocol::{ModelErrorKind as K, Thinking};

use super::{Complaint, classify, levels_for};

#[track_caller]
fn check(status: Option<u16>, kind: &str, message: &str, expect: K) {
    let complaint = Complaint { kind: kind.into(), message: message.into(), ..Complaint::default() };
    assert_eq!(classify(status, &complaint), expect, "{status:?} {kind:?} {message:?}");
}

#[test]
fn messages_without_a_status_name_their_kind() {
    for (message, expect) in [
        ("429 rate limit", K::RateLimited),
        ("HTTP 402 payment required", K::Quota),
        ("insufficient credits", K::Quota),
        ("Your credit balance is too low", K::Quota),
        ("402 usage limit exceeded, try again later", K::UsageLimit),
        ("weekly usage limit reached", K::UsageLimit),
        ("invalid api key", K::Auth),
        ("401 Unauthorized", K::Auth),
        ("403 forbidden", K::Auth),
        ("api_key_revoked", K::AuthRevoked),
        ("overloaded_error", K::Overloaded),
        ("Error: 529 overloaded", K::Overloaded),
        ("503 Service Unavailable", K::Overloaded),
        ("500 internal server error", K::Server),
        ("ECONNRESET", K::Timeout),
        ("request timed out", K::Timeout),
        ("tool_use.id should match", K::InvalidRequest),
        ("400 bad request", K::InvalidRequest),
        ("404 page not found", K::UnknownModel),
        ("model_not_found: x", K::UnknownModel),
        // A conversation that is gone, which no other attempt brings back.
        ("session not found", K::InvalidRequest),
        ("tokens per minute (TPM): Limit 8000", K::RateLimited),
        ("prompt is too long: 210000 tokens > 200000 maximum", K::ContextOverflow),
        ("something odd", K::Server),
        // Orders of the table that matter.
        ("image exceeds 5 MB maximum", K::InvalidRequest),
        ("messages.3: image dimensions exceed max allowed size: 8000 pixels", K::InvalidRequest),
        ("No conversation found with this id", K::InvalidRequest),
        ("Unknown model: gpt-99", K::UnknownModel),
        ("The model `x` does not exist or you do not have access to it", K::UnknownModel),
        ("status: 402", K::Quota),
        ("got a 402 from upstream", K::Quota),
        ("You have reached your monthly limit. Check your plan and billing details.", K::Quota),
        ("Too many concurrent requests", K::RateLimited),
        ("Request was throttled", K::RateLimited),
        ("model_cooldown", K::RateLimited),
        ("resource has been exhausted", K::RateLimited),
        ("You exceeded your current quota", K::UsageLimit),
        ("Rate limit reached (RPM). To raise it, see https://example.com/account/billing", K::RateLimited),
        ("the model is at capacity", K::Overloaded),
        ("service_unavailable: high demand", K::Overloaded),
        ("We are under high load", K::Overloaded),
        ("You have used all available credits", K::Quota),
        ("spending limit reached", K::Quota),
        ("This requires more credits, or fewer max_tokens", K::Quota),
        ("The API key was deleted", K::AuthRevoked),
        ("This key has been disabled", K::AuthRevoked),
        ("Your account has been deactivated", K::AuthRevoked),
        ("OAuth is not allowed for this organization", K::AuthRevoked),
        ("Incorrect API key provided: sk-…", K::Auth),
        ("missing scope: model.request", K::Auth),
        ("the token expired", K::Auth),
        ("No API key found", K::Auth),
        ("An unknown error occurred", K::Timeout),
        ("Unknown error (no error details in response)", K::Server),
        ("502 Bad Gateway", K::Server),
        ("504 Gateway Timeout", K::Timeout),
        ("upstream error: connection reset", K::Server),
        ("String should match pattern '^[a-z]+$'", K::InvalidRequest),
        ("This model does not support assistant message prefill", K::InvalidRequest),
        ("socket hang up", K::Timeout),
        ("fetch failed", K::Timeout),
        ("terminated", K::Timeout),
        ("the process was terminated by its owner", K::Server),
        ("deadline exceeded", K::Timeout),
        ("ThrottlingException: slow down", K::RateLimited),
        ("concurrency limit reached", K::RateLimited),
        ("ModelNotReadyException", K::Overloaded),
        ("请求过于频繁，请稍后再试", K::RateLimited),
        ("账户余额不足", K::Quota),
    ] {
        check(None, "", message, expect);
    }
}

#[test]
fn statuses_decide_where_messages_do_not() {
    for (status, message, expect) in [
        (402, "weekly usage limit exhausted", K::UsageLimit),
        (402, "", K::Quota),
        (402, "weekly limit reached: insufficient credits", K::Quota),
        (429, "", K::RateLimited),
        (429, "insufficient balance", K::Quota),
        (401, "key has been revoked", K::AuthRevoked),
        (401, "", K::Auth),
        (403, "Your credit balance is too low", K::Quota),
        (403, "", K::Auth),
        (408, "", K::Timeout),
        (410, "gone", K::Timeout),
        (410, "session expired", K::InvalidRequest),
        (404, "", K::UnknownModel),
        (404, "prompt is too long", K::ContextOverflow),
        (404, "session not found", K::InvalidRequest),
        (413, "", K::ContextOverflow),
        (413, "image exceeds 5 MB maximum", K::InvalidRequest),
        (499, "", K::Timeout),
        (499, "overloaded", K::Overloaded),
        (500, "", K::Server),
        (500, "overloaded_error", K::Overloaded),
        (502, "", K::Server),
        (503, "", K::Overloaded),
        (504, "", K::Timeout),
        (522, "", K::Timeout),
        (524, "", K::Timeout),
        (529, "", K::Overloaded),
        (400, "", K::InvalidRequest),
        (400, "insufficient credits", K::Quota),
        (422, "invalid api key", K::Auth),
        (400, "model_not_found", K::UnknownModel),
        // What a request that is wrong speaks of is no failure of the server's.
        (400, "messages.4: the timeout of a tool must be below 600", K::InvalidRequest),
        (400, "messages.4: authentication is not a known field", K::InvalidRequest),
        (422, "tools.0: `expired` is not allowed, internal server error", K::InvalidRequest),
    ] {
        check(Some(status), "", message, expect);
    }
    let long = format!("The answer speaks of billing. {}", "More of it. ".repeat(60));
    check(None, "", &long, K::Server);
    check(None, "", &long[..200], K::Quota);
}

#[test]
fn codes_name_their_kind() {
    for (word, expect) in [
        ("RESOURCE_EXHAUSTED", K::RateLimited),
        ("RATE_LIMIT_EXCEEDED", K::RateLimited),
        ("TOO_MANY_REQUESTS", K::RateLimited),
        ("THROTTLED", K::RateLimited),
        ("OVERLOADED", K::Overloaded),
        ("ETIMEDOUT", K::Timeout),
        ("ECONNREFUSED", K::Timeout),
        ("EHOSTUNREACH", K::Timeout),
        ("EAI_AGAIN", K::Timeout),
        ("EPIPE", K::Timeout),
        ("invalid_request_error", K::InvalidRequest),
        ("a_new_word", K::Server),
    ] {
        check(None, word, "?", expect);
    }
    check(None, "invalid_request_error", "the tool timed out", K::InvalidRequest);
    check(None, "authentication_error", "this key has been revoked", K::AuthRevoked);
}

#[test]
fn overflow_is_told_from_rates_and_from_thinking() {
    for message in [
        "request_too_large",
        "request exceeds the maximum size",
        "context length exceeded",
        "This model's maximum context length is 131,072 tokens",
        "your prompt is too long",
        "it exceeds model context window",
        "model token limit",
        "input exceeds the maximum number of tokens",
        "Request size exceeds model context window",
        "context overflow: 9 > 8",
        "it would exceed context limit",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "413 payload too large",
        "context_window_exceeded",
        "The input token count (1196265) exceeds the maximum number of input tokens (1048575)",
        "ollama error: context length exceeded",
        "request (9000 tokens) exceeds the available context size",
        "input is too long for this model",
        "input is too long for the model",
    ] {
        check(None, "", message, K::ContextOverflow);
    }
    for message in ["TPM: prompt is too long for tokens per minute", "rate limit: too many tokens"] {
        check(None, "", message, K::RateLimited);
    }
    check(None, "", "reasoning is required: prompt is too long", K::ThinkingLevel);
}

#[test]
fn errors_about_thinking_offer_levels() {
    use Thinking as T;
    for (message, expect) in [
        (
            "Unsupported value: 'reasoning_effort' does not support 'minimal'. Supported values are: 'low', 'medium', and 'high'.",
            vec![T::Low, T::Medium, T::High],
        ),
        ("reasoning.effort: supported values are: none, extra-high", vec![T::Off, T::Xhigh]),
        ("thinking: supported values are 'on', 'on', 'magic'", vec![T::Low]),
        ("Reasoning is mandatory for this endpoint and cannot be disabled", vec![T::Minimal, T::Low]),
        ("This model does not support thinking", vec![T::Off]),
        ("`reasoning_effort` is not supported with this model", vec![T::Off]),
    ] {
        let complaint = Complaint { message: message.into(), ..Complaint::default() };
        let kind = classify(Some(400), &complaint);
        assert_eq!((kind, levels_for(kind, &complaint)), (K::ThinkingLevel, expect), "{message}");
    }
    let complaint = Complaint { message: "supported values are: 'low'".into(), ..Complaint::default() };
    assert_eq!(levels_for(K::InvalidRequest, &complaint), []);
}
