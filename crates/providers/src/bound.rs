//! What a request can use at most, from the bytes that are sent.

use quipu_protocol::{Message, Model, ModelRequest};
use serde::Deserialize;

use crate::catalogue;
use crate::prepare::{UserBlock, own_tokens, shown, user_side};
use crate::{openai_responses, search};

/// What servers put around a request on their own: roles, marks, what tells a model how to call tools.
const AROUND: u64 = 2_048;
/// Tokens of what a search finds at most.
const FOUND: u64 = 16_384;
/// Tokens of an image at most: eight tiles, where a tile is dearest.
const IMAGE: u64 = 49_152;

/// What a request can use at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MostTokens {
    /// Tokens of the request.
    pub input: u64,
    /// Of the answer, thinking included, if the server keeps to the limit in the request.
    pub output: u64,
    /// Whether the server may keep some of the input for an hour.
    pub long_cache: bool,
    /// Searches that the server may make for the answer.
    pub searches: u64,
}

impl MostTokens {
    /// What `body`, made from `request`, can use. A token stands for a byte of text or more, and what is JSON around the text
    /// is longer than the marks that servers put in its place.
    pub fn of(request: &ModelRequest, body: &[u8]) -> Self {
        let mut input = (body.len() as u64).saturating_add(AROUND);
        for message in request.messages.iter() {
            let seen = match &**message {
                Message::ToolResult(result) => shown(&result.content, &request.model, ""),
                other => user_side(other, &request.model).unwrap_or_default(),
            };
            for one in seen {
                if let UserBlock::Image { data, .. } = one {
                    input = input.saturating_sub(data.len() as u64).saturating_add(IMAGE);
                }
            }
        }
        let searches = if declares_search(body) { u64::from(search::MAX_SEARCHES) } else { 0 };
        let mut window = catalogue::window(&request.model);
        if searches > 0 {
            // The server reads all of it again with what each search found.
            let found = FOUND.saturating_mul(searches * (searches + 1) / 2);
            input = input.saturating_mul(searches + 1).saturating_add(found);
            window = window.map(|window| window.saturating_mul(searches + 1));
        }
        if let Some(window) = window {
            // Its server reads no more, and whoever set a larger window knows of one that does.
            input = input.min(window.max(request.model.context_window));
        }
        let long_cache = body.windows(LONG.len()).any(|piece| piece == LONG);
        Self { input, output: output_limit(request, body), long_cache, searches }
    }

    /// US dollars that a call of `model` with so many tokens of output costs at most.
    pub fn price(&self, model: &Model, output: u64) -> f64 {
        let tokens = model.cost.most(self.input, output, self.long_cache);
        tokens * openai_responses::dearest_tier(model) + search::price(model, self.searches)
    }
}

/// Whether the server may search for the answer. No text of a conversation can say this: quotes are escaped there.
fn declares_search(body: &[u8]) -> bool {
    const MARKS: [&[u8]; 3] =
        [br#"{"type":"web_search"}"#, br#"{"type":"web_search_20250305","#, br#""googleSearch":{}"#];
    MARKS.iter().any(|mark| body.windows(mark.len()).any(|piece| piece == *mark))
}

/// No text of a conversation can say this: quotes are escaped there.
const LONG: &[u8] = br#""ttl":"1h""#;

/// Tokens that the server is told an answer may have.
fn output_limit(request: &ModelRequest, body: &[u8]) -> u64 {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct InferenceConfig {
        max_tokens: Option<u64>,
    }
    #[derive(Deserialize)]
    struct Limit {
        #[serde(rename = "inferenceConfig")]
        inference_config: Option<InferenceConfig>,
        max_tokens: Option<u64>,
        max_completion_tokens: Option<u64>,
        max_output_tokens: Option<u64>,
    }
    let limit = serde_json::from_slice::<Limit>(body).ok();
    let limit = limit.and_then(|limit| {
        let nested = limit.inference_config.and_then(|config| config.max_tokens);
        let own = [limit.max_tokens, limit.max_completion_tokens, limit.max_output_tokens];
        own.into_iter().chain([nested]).flatten().max()
    });
    limit.unwrap_or_else(|| own_tokens(&request.model))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quipu_protocol::{Json, Prices, Thinking};

    use super::*;

    fn input(model: Model, bytes: usize) -> u64 {
        let request = ModelRequest {
            model: Arc::new(model),
            system: "".into(),
            tools: Arc::new([]),
            messages: Vec::new().into(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        };
        MostTokens::of(&request, &vec![b' '; bytes]).input
    }

    #[test]
    fn searches_and_tiers_raise_the_most_that_a_call_costs() {
        let cost = Prices { input: 1.0, output: 2.0, ..Prices::default() };
        let api = openai_responses::API;
        let model = |params: &str| Model {
            api: api.into(),
            provider: "openai".into(),
            cost: cost.clone(),
            sampling_params: Json::parse(params).ok(),
            ..Model::default()
        };
        let request = |model: Model| ModelRequest {
            model: Arc::new(model),
            system: "".into(),
            tools: Arc::new([]),
            messages: Vec::new().into(),
            thinking: Thinking::Off,
            max_tokens: None,
            session: None,
            stable_system: None,
        };
        let most = |params: &str, body: &[u8]| {
            let most = MostTokens::of(&request(model(params)), body);
            (most.input, most.searches, (most.price(&model(params), 0) * 1e6).round())
        };
        assert_eq!(most("{}", b"{}"), (2 + AROUND, 0, 2_050.0));
        assert_eq!(most(r#"{"service_tier":"priority"}"#, b"{}").2, 4_100.0);
        // The server may take the usual one.
        assert_eq!(most(r#"{"service_tier":"flex"}"#, b"{}").2, 2_050.0);
        let searching = br#"{"tools":[{"type":"web_search"}]}"#;
        let input = 6 * (33 + AROUND) + 15 * FOUND;
        assert_eq!(most("{}", searching), (input, 5, 50_000.0 + input as f64));
        let quoted = br#"{"text":"{\"type\":\"web_search\"}"}"#;
        assert_eq!(most("{}", quoted).1, 0);
    }

    #[test]
    fn windows_bound_input_where_their_server_is_known() {
        let known = &catalogue::models("anthropic")[0];
        let window = known.context_window;
        let bytes = usize::try_from(window * 2).unwrap();
        let told = |context_window: u64| Model { context_window, ..(**known).clone() };
        assert_eq!(input(told(5), bytes), window);
        assert_eq!(input(told(window + 7), bytes), window + 7);
        let elsewhere = Model { base_url: "http://192.0.2.1".into(), ..told(5) };
        assert_eq!(input(elsewhere, bytes), window * 2 + AROUND);
        assert_eq!(input(Model { context_window: 5, ..Model::default() }, 10), 10 + AROUND);
    }
}
