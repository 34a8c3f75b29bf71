//! What a request can use at most, from the bytes that are sent.

use quipu_protocol::{Message, ModelRequest};
use serde::Deserialize;

use crate::catalogue;
use crate::prepare::{UserBlock, own_tokens, shown, user_side};

/// What servers put around a request on their own: roles, marks, what tells a model how to call tools.
const AROUND: u64 = 2_048;
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
        if let Some(window) = catalogue::window(&request.model) {
            // Its server reads no more, and whoever set a larger window knows of one that does.
            input = input.min(window.max(request.model.context_window));
        }
        let long_cache = body.windows(LONG.len()).any(|piece| piece == LONG);
        Self { input, output: output_limit(request, body), long_cache }
    }
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

    use quipu_protocol::{Model, Thinking};

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
        };
        MostTokens::of(&request, &vec![b' '; bytes]).input
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
