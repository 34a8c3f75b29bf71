//! Bodies that are made from the one before them are the ones that are made from nothing.

use std::sync::Arc;

use proptest::prelude::*;
use quipu_protocol::{Content, Json, Message, Model, ModelRequest};
use quipu_providers::{Body, CallOptions, Memory, Provider, SharedPrefix};

use super::encode::{assistant, call, messages, model, request, result, user};
use super::{
    encode_codex, encode_completions, encode_contents, encode_converse, encode_mistral, encode_pi_messages,
    encode_responses,
};
use crate::wires;

/// All wires, and the second one with each quirk that makes a message depend on what follows it.
fn models() -> Vec<Model> {
    let quirky = |compat: &str| Model { compat: Json::parse(compat).ok(), ..encode_completions::model() };
    vec![
        model(),
        encode_completions::model(),
        encode_responses::model(),
        encode_contents::model(),
        encode_contents::old_model(),
        encode_codex::model(),
        encode_mistral::model(),
        encode_converse::model(),
        encode_converse::plain_model(),
        encode_pi_messages::model(),
        quirky(r#"{"cacheControlFormat":"anthropic"}"#),
        quirky(r#"{"requiresAssistantAfterToolResult":true,"requiresToolsWithToolHistory":true}"#),
    ]
}

fn provider(model: &Model) -> Arc<dyn Provider> {
    wires::provider(model, quipu_providers::Credentials::none(), &[], CallOptions::default()).unwrap()
}

/// The first messages of a request; everything else is shared.
fn first(request: &ModelRequest, count: usize) -> ModelRequest {
    ModelRequest { messages: request.messages[..count].to_vec().into(), ..request.clone() }
}

/// Makes a body with the memory of the one before, and compares it with the one that is made from nothing.
fn next(
    provider: &dyn Provider,
    request: &ModelRequest,
    memory: &mut Memory,
    before: &mut Option<Body>,
) -> Result<(), TestCaseError> {
    let made = provider.encode_next(request, memory);
    let plain = provider.encode(request);
    prop_assert_eq!(made.as_ref().map(|body| &body.bytes), plain.as_ref());
    let Ok(body) = made else { return Ok(()) };
    prop_assert_eq!(body.id, Body::of(body.bytes.clone()).id);
    if let Some(SharedPrefix { with, bytes }) = body.shared {
        let before = before.as_ref().unwrap();
        prop_assert_eq!(with, before.id);
        let bytes = usize::try_from(bytes).unwrap();
        prop_assert_eq!(&before.bytes[..bytes], &body.bytes[..bytes]);
    }
    *before = Some(body);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(256)
    ) })]

    #[test]
    fn a_memory_changes_no_byte_however_a_conversation_goes_on(
        messages in messages(),
        other in messages(),
        counts in proptest::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 1..8),
        no_tools in any::<bool>(),
    ) {
        for model in models() {
            let provider = provider(&model);
            let mut whole = request(model, messages.clone());
            if no_tools {
                whole.tools = [].into();
            }
            let other: Vec<_> = other.iter().cloned().map(Arc::new).collect();
            let other = ModelRequest { messages: other.into(), ..whole.clone() };
            let (mut memory, mut before) = (Memory::default(), None);
            for count in 0..=whole.messages.len() {
                next(&*provider, &first(&whole, count), &mut memory, &mut before)?;
            }
            // Back and forth, and in a conversation that went another way.
            for (count, elsewhere) in &counts {
                let of = if *elsewhere { &other } else { &whole };
                let mut request = first(of, count.index(of.messages.len() + 1));
                if *elsewhere {
                    Arc::make_mut(&mut request.messages).extend(whole.messages.last().cloned());
                }
                next(&*provider, &request, &mut memory, &mut before)?;
            }
        }
    }
}

#[test]
fn a_turn_costs_what_is_new_in_it() {
    for model in [
        model(),
        encode_completions::model(),
        encode_responses::model(),
        encode_contents::model(),
        encode_codex::model(),
        encode_mistral::model(),
        encode_converse::model(),
        encode_pi_messages::model(),
    ] {
        let provider = provider(&model);
        let own = |content| match model.api.as_str() {
            "anthropic-messages" => assistant("claude-test-1", content),
            "openai-responses" => encode_responses::own(content),
            "google-generative-ai" => encode_contents::own(content),
            "openai-codex-responses" => encode_codex::own(content),
            "mistral-conversations" => encode_mistral::own(content),
            "bedrock-converse-stream" => encode_converse::own(content),
            "pi-messages" => encode_pi_messages::own(content),
            _ => encode_completions::own(content),
        };
        let mut said: Vec<Message> = vec![user(vec![Content::text("Go")])];
        for turn in 0..50 {
            let id = format!("call_{turn}");
            said.push(own(vec![call(&id, "read", r#"{"path":"a"}"#)]));
            said.push(result(&id, vec![Content::text("line\n".repeat(20))], false));
        }
        let whole = request(model, said);
        let mut memory = Memory::default();
        let mut before: Option<Body> = None;
        for turn in 0..=50 {
            let body = provider.encode_next(&first(&whole, 1 + 2 * turn), &mut memory).unwrap();
            if let Some(before) = &before {
                let SharedPrefix { with, bytes } = body.shared.expect("it goes on");
                assert_eq!(with, before.id);
                let lost = before.bytes.len() as u64 - bytes;
                assert!(lost < 120, "all but the end of the body before is in this one: {lost}");
                assert_ne!(before.bytes.as_ptr(), body.bytes.as_ptr(), "who still holds it keeps it");
            }
            before = Some(body);
        }
        // Nobody holds the last one, so the next one grows where it stands.
        let at = before.take().map(|body| body.bytes.as_ptr());
        let body = provider.encode_next(&first(&whole, 101), &mut memory).unwrap();
        assert_eq!(Some(body.bytes.as_ptr()), at);
    }
}
