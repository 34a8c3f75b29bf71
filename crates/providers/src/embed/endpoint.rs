//! Vectors from a server: `POST BASE/embeddings`, as many servers have it.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use quipu_protocol::{Model, ModelError, ModelErrorKind, Usage};
use reqwest::header::{ACCEPT, HeaderMap, HeaderValue};
use serde::Deserialize;
use serde_json::json;

use super::{Embedder, Embeddings, MAX_DIMENSIONS};
use crate::access::{self, Access, WireForm};
use crate::call;
use crate::credentials::{Credentials, InvalidCredential, Scheme};
use crate::exchange::exchange;
use crate::failure::{classify, read_complaint};
use crate::{CallOptions, openai};

/// Texts of one request at most.
const BATCH: usize = 64;
/// Bytes of the texts of one request at most, but for one text that is longer.
const BATCH_BYTES: usize = 128 << 10;
/// Characters of a text at most. Models that take 512 tokens read about so much.
const LONGEST: usize = 2_000;
/// Where cutting ends, when the server says that a text is too long.
const SHORTEST: usize = 250;
/// Bytes of one answer at most: 64 vectors of 8,192 numbers, each written with 20 characters, and as much again.
const MAX_ANSWER: u64 = 24 << 20;

/// What is put around a body here.
struct Form;

impl WireForm for Form {
    fn address(&self, base_url: &str) -> String {
        openai::address(base_url, "embeddings")
    }

    fn headers(&self, scheme: &Scheme) -> Result<HeaderMap, InvalidCredential> {
        let mut all = call::common_headers();
        all.insert(ACCEPT, HeaderValue::from_static("application/json"));
        access::add_scheme(&mut all, scheme, access::BEARER)?;
        Ok(all)
    }
}

/// One model behind such an address.
#[derive(Debug)]
pub struct EmbeddingEndpoint {
    access: Access,
    options: CallOptions,
    model: Model,
    dimensions: Option<u64>,
    id: String,
}

impl EmbeddingEndpoint {
    /// Calls to `model` below its base URL, with `credentials`. `headers` are added and win over our own.
    ///
    /// # Errors
    /// `InvalidRequest` when the base URL is not an HTTP URL, `Auth` when a credential that is known already cannot stand in
    /// a header.
    pub fn new(
        model: &Model,
        credentials: Credentials,
        headers: &[(String, String)],
        dimensions: Option<u64>,
        mut options: CallOptions,
    ) -> Result<Self, ModelError> {
        let access = Access::new(model, credentials, headers, Form)?;
        let url = Form.address(&model.base_url);
        let length = dimensions.map_or_else(String::new, |count| format!(" {count}"));
        let id = format!("{url} {}{length}", model.id);
        options.max_reply_bytes = options.max_reply_bytes.min(MAX_ANSWER);
        Ok(Self { access, options, model: model.clone(), dimensions, id })
    }

    /// One request, again with shorter texts while the server says that they are too long.
    async fn batch(&self, texts: &[String]) -> Result<Embeddings, ModelError> {
        let mut most = LONGEST;
        loop {
            // An empty text is an error to some servers, and says nothing.
            let input: Vec<&str> = texts
                .iter()
                .map(|text| {
                    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
                    if text[..end].trim().is_empty() { "." } else { &text[..end] }
                })
                .collect();
            let mut body = json!({ "model": self.model.id, "input": input });
            if let Some(count) = self.dimensions {
                body["dimensions"] = json!(count);
            }
            let read = |answer: &[u8]| read(answer, texts.len());
            match exchange(&self.access, &self.options, Bytes::from(body.to_string()), read).await {
                Err(error) if error.kind == ModelErrorKind::ContextOverflow && most / 2 >= SHORTEST => {
                    most /= 2;
                }
                other => return other,
            }
        }
    }
}

impl Embedder for EmbeddingEndpoint {
    fn id(&self) -> &str {
        &self.id
    }

    fn is_local(&self) -> bool {
        self.access.is_local()
    }

    fn embed<'a>(&'a self, texts: &'a [String]) -> BoxFuture<'a, Result<Embeddings, ModelError>> {
        Box::pin(async move {
            let mut all = Embeddings::default();
            let mut rest = texts;
            while !rest.is_empty() {
                let mut bytes = 0;
                let fits = rest.iter().take(BATCH).take_while(|text| {
                    bytes += text.len().min(4 * LONGEST);
                    bytes <= BATCH_BYTES
                });
                let (batch, later) = rest.split_at(fits.count().max(1));
                let mut made = self.batch(batch).await?;
                let length = |vectors: &[Vec<f32>]| vectors.first().map(Vec::len);
                if length(&all.vectors).is_some_and(|known| Some(known) != length(&made.vectors)) {
                    return Err(malformed("gave vectors of different lengths"));
                }
                all.vectors.append(&mut made.vectors);
                all.usage.input += made.usage.input;
                all.usage.total_tokens += made.usage.total_tokens;
                rest = later;
            }
            all.usage.cost = self.model.price(&all.usage);
            Ok(all)
        })
    }
}

fn malformed(what: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, what)
}

/// The vectors in an answer, in the order of the texts.
fn read(answer: &[u8], texts: usize) -> Result<Embeddings, ModelError> {
    #[derive(Deserialize)]
    struct Answer {
        data: Vec<Row>,
        #[serde(default)]
        usage: Option<Tokens>,
    }
    #[derive(Deserialize)]
    struct Row {
        index: Option<usize>,
        embedding: Vec<f64>,
    }
    #[derive(Deserialize, Default)]
    #[serde(default)]
    struct Tokens {
        prompt_tokens: Option<u64>,
        total_tokens: Option<u64>,
    }
    let Answer { data, usage } = serde_json::from_slice(answer).map_err(|_| {
        let text = String::from_utf8_lossy(answer);
        let complaint = read_complaint(&text);
        let kind =
            if complaint.kind.is_empty() { ModelErrorKind::Malformed } else { classify(None, &complaint) };
        let said = if text.trim().is_empty() { "an empty body".to_owned() } else { complaint.message };
        ModelError::new(kind, format!("answered with no vectors: {said}"))
    })?;
    if data.len() != texts {
        return Err(malformed(format!("gave {} vectors for {texts} texts", data.len())));
    }
    let length = data.first().map_or(0, |row| row.embedding.len());
    let mut vectors: Vec<Vec<f32>> = vec![Vec::new(); texts];
    for (place, row) in data.into_iter().enumerate() {
        let index = row.index.unwrap_or(place);
        let Some(vector) = vectors.get_mut(index).filter(|vector| vector.is_empty()) else {
            return Err(malformed(format!("gave no text's vector, or one twice (index {index})")));
        };
        if row.embedding.len() != length || !(1..=MAX_DIMENSIONS).contains(&length) {
            let found = row.embedding.len();
            return Err(malformed(format!(
                "gave a vector of {found} numbers (all must have the same length, at most {MAX_DIMENSIONS})"
            )));
        }
        #[expect(clippy::cast_possible_truncation, reason = "what is beyond is refused")]
        vector.extend(row.embedding.iter().map(|number| *number as f32));
        if vector.iter().any(|number| !number.is_finite()) {
            return Err(malformed("gave a vector with a number that is not finite"));
        }
    }
    let tokens = usage.unwrap_or_default();
    let input = tokens.prompt_tokens.or(tokens.total_tokens).unwrap_or(0);
    let total_tokens = tokens.total_tokens.unwrap_or(input);
    Ok(Embeddings { vectors, usage: Usage { input, total_tokens, ..Usage::default() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_with_care() {
        let good = br#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1.5,-2]}],"usage":{"total_tokens":7}}"#;
        let made = read(good, 2).unwrap();
        assert_eq!(made.vectors, [vec![1.5, -2.0], vec![3.0, 4.0]]);
        assert_eq!((made.usage.input, made.usage.total_tokens), (7, 7));
        let plain = br#"{"data":[{"embedding":[1]},{"embedding":[2]}]}"#;
        assert_eq!(read(plain, 2).unwrap().vectors, [[1.0], [2.0]]);
        for (answer, said) in [
            (r#"{"data":[{"embedding":[1]}]}"#, "1 vectors for 2 texts"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}"#, "twice"),
            (r#"{"data":[{"index":0,"embedding":[1]},{"index":9,"embedding":[2]}]}"#, "index 9"),
            (r#"{"data":[{"embedding":[1]},{"embedding":[2,3]}]}"#, "same length"),
            (r#"{"data":[{"embedding":[]},{"embedding":[]}]}"#, "a vector of 0 numbers"),
            (r#"{"data":[{"embedding":[1e300]},{"embedding":[2]}]}"#, "that is not finite"),
            (r#"{"data":[{"embedding":["NaN"]},{"embedding":[2]}]}"#, "no vectors"),
            (r#"{"error":{"message":"no such model","type":"not_found_error"}}"#, "no such model"),
            ("<html><title>Log in</title>", "Log in"),
            ("", "an empty body"),
        ] {
            let error = read(answer.as_bytes(), 2).unwrap_err();
            assert!(error.message.contains(said), "{answer}: {}", error.message);
        }
        let many = format!(r#"{{"data":[{{"embedding":[{}1]}}]}}"#, "1,".repeat(MAX_DIMENSIONS));
        assert!(read(many.as_bytes(), 1).is_err());
    }
}
