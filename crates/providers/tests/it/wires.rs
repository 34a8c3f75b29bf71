//! All wires, for tests that hold for each.

use std::sync::Arc;

use quipu_protocol::{Model, ModelError, UnixMs};
use quipu_providers::{
    AnswerDecoder, AnthropicMessages, BedrockConverse, BedrockPlace, CallOptions, Credentials,
    GoogleGenerativeAi, MistralConversations, OpenAiCompletions, OpenAiResponses, PiMessages, Provider,
    anthropic, bedrock, google, mistral, openai, openai_responses, pi_messages,
};
pub(crate) use quipu_testkit::Wire;

pub(crate) const WIRES: [Wire; 9] = [
    Wire::Messages,
    Wire::Completions,
    Wire::Responses,
    Wire::Contents,
    Wire::Subscription,
    Wire::Chunks,
    Wire::Converse,
    Wire::Gateway,
    Wire::Envelope,
];
/// The project that requests name where the wire has one.
pub(crate) const PROJECT: &str = "project-7";
/// The header that names the account of a subscription: with it any token will do.
pub(crate) const ACCOUNT: (&str, &str) = ("chatgpt-account-id", "account-of-test");

pub(crate) fn api(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => anthropic::API,
        Wire::Completions => openai::API,
        Wire::Responses => openai_responses::API,
        Wire::Contents => google::API,
        Wire::Subscription => openai_responses::SUBSCRIPTION_API,
        Wire::Chunks => mistral::API,
        Wire::Converse => bedrock::API,
        Wire::Gateway => pi_messages::API,
        Wire::Envelope => google::code_assist::API,
    }
}

/// The path of a request below the host.
pub(crate) fn path(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "/v1/messages",
        Wire::Completions | Wire::Chunks => "/v1/chat/completions",
        Wire::Responses => "/v1/responses",
        Wire::Subscription => "/codex/responses",
        Wire::Gateway => "/messages",
        Wire::Contents => "/v1beta/models/test-model:streamGenerateContent?alt=sse",
        Wire::Converse => "/model/test-model/converse-stream",
        Wire::Envelope => "/v1internal:streamGenerateContent?alt=sse",
    }
}

/// Something that calls `model` on its wire.
pub(crate) fn provider(
    model: &Model,
    credentials: Credentials,
    headers: &[(String, String)],
    options: CallOptions,
) -> Result<Arc<dyn Provider>, ModelError> {
    Ok(match model.api.as_str() {
        anthropic::API => Arc::new(AnthropicMessages::new(model, credentials, headers, options)?),
        openai::API => Arc::new(OpenAiCompletions::new(model, credentials, headers, options)?),
        openai_responses::API => Arc::new(OpenAiResponses::new(model, credentials, headers, options)?),
        google::API => Arc::new(GoogleGenerativeAi::new(model, credentials, headers, options)?),
        google::code_assist::API => {
            let project = PROJECT.to_owned();
            Arc::new(GoogleGenerativeAi::code_assist(model, credentials, headers, options, project)?)
        }
        openai_responses::SUBSCRIPTION_API => {
            let account = [(ACCOUNT.0.to_owned(), ACCOUNT.1.to_owned())];
            let headers = [&account, headers].concat();
            Arc::new(OpenAiResponses::new(model, credentials, &headers, options)?)
        }
        mistral::API => Arc::new(MistralConversations::new(model, credentials, headers, options)?),
        bedrock::API => {
            let base_url = model.base_url.clone();
            let place = BedrockPlace { base_url, region: "us-east-1".into(), force_cache: false };
            Arc::new(BedrockConverse::new(model, credentials, headers, options, place)?)
        }
        pi_messages::API => Arc::new(PiMessages::new(model, credentials, headers, options)?),
        other => panic!("no such wire: {other}"),
    })
}

pub(crate) fn decoder(wire: Wire, model: Arc<Model>, timestamp: UnixMs) -> Box<dyn AnswerDecoder> {
    match wire {
        Wire::Messages => anthropic::decoder(model, timestamp),
        Wire::Completions => openai::decoder(model, timestamp),
        Wire::Responses | Wire::Subscription => openai_responses::decoder(model, timestamp),
        Wire::Contents | Wire::Envelope => google::decoder(model, timestamp),
        Wire::Chunks => mistral::decoder(model, timestamp),
        Wire::Converse => bedrock::decoder(model, timestamp),
        Wire::Gateway => pi_messages::decoder(model, timestamp),
    }
}
