//! Wires by their names, for who reads answers that others asked for.

use std::sync::Arc;

use quipu_protocol::{Model, UnixMs};

use crate::openai::compat::Compat;
use crate::tool_schema::SchemaDialect;
use crate::{AnswerDecoder, anthropic, google, openai, openai_responses};

/// A decoder for one streamed answer on the wire that the model names; `None` for a wire that it does not know.
pub fn answer_decoder(model: Arc<Model>, timestamp: UnixMs) -> Option<Box<dyn AnswerDecoder>> {
    match model.api.as_str() {
        anthropic::API => Some(anthropic::decoder(model, timestamp)),
        openai::API => Some(openai::decoder(model, timestamp)),
        openai_responses::API => Some(openai_responses::decoder(model, timestamp)),
        _ => None,
    }
}

/// What the server of a model takes as the schema of a tool: what its API takes, or what the model or the table of quirks
/// says of the server.
pub fn schema_dialect(model: &Model) -> SchemaDialect {
    match model.api.as_str() {
        google::API | google::vertex::API | google::code_assist::API => SchemaDialect::Subset,
        _ => Compat::of(model).tool_schema,
    }
}
