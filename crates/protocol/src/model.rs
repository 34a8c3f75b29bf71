//! Models, what they cost and what was used.

use std::ops::AddAssign;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Json, Message};

/// Tokens of one model call. `input` excludes cached tokens.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Usage {
    /// Input tokens that were neither read from nor written to a cache.
    pub input: u64,
    /// Output tokens, reasoning included.
    pub output: u64,
    /// Input tokens read from the cache.
    pub cache_read: u64,
    /// Input tokens written to the cache.
    pub cache_write: u64,
    /// Those of `cache_write` that are kept for an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_write_1h: Option<u64>,
    /// Those of `output` that were reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<u64>,
    /// Sum of `input`, `output`, `cacheRead` and `cacheWrite`.
    pub total_tokens: u64,
    /// US dollars for these tokens, by kind.
    pub cost: Cost,
}

/// US dollars.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Cost {
    /// US dollars for the `input` tokens.
    pub input: f64,
    /// US dollars for the `output` tokens, reasoning included.
    pub output: f64,
    /// US dollars for the `cacheRead` tokens.
    pub cache_read: f64,
    /// US dollars for the `cacheWrite` tokens.
    pub cache_write: f64,
    /// US dollars for all tokens. In `usage` of a snapshot also the cost of summaries, which no other member has.
    pub total: f64,
}

impl AddAssign<&Self> for Usage {
    /// The tokens and the cost of both. Counts end at the largest number.
    fn add_assign(&mut self, more: &Self) {
        let either = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (None, None) => None,
            (one, other) => Some(one.unwrap_or_default().saturating_add(other.unwrap_or_default())),
        };
        self.input = self.input.saturating_add(more.input);
        self.output = self.output.saturating_add(more.output);
        self.cache_read = self.cache_read.saturating_add(more.cache_read);
        self.cache_write = self.cache_write.saturating_add(more.cache_write);
        self.cache_write_1h = either(self.cache_write_1h, more.cache_write_1h);
        self.reasoning = either(self.reasoning, more.reasoning);
        self.total_tokens = self.total_tokens.saturating_add(more.total_tokens);
        let Cost { input, output, cache_read, cache_write, total } = more.cost;
        self.cost.input += input;
        self.cost.output += output;
        self.cost.cache_read += cache_read;
        self.cost.cache_write += cache_write;
        self.cost.total += total;
    }
}

/// Prices in US dollars for a million tokens.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Prices {
    /// US dollars for a million uncached input tokens.
    pub input: f64,
    /// US dollars for a million output tokens, reasoning included.
    pub output: f64,
    /// US dollars for a million input tokens read from the cache.
    pub cache_read: f64,
    /// US dollars for a million input tokens written to the cache. Tokens that are kept for an hour cost twice `input`.
    pub cache_write: f64,
    /// Other rates above a size of input; the highest that applies counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tiers: Vec<PriceTier>,
    /// Somebody gave these rates, so that a rate of 0 is one. Where nobody did, rates of 0 are not known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stated: bool,
}

/// Rates for large inputs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct PriceTier {
    /// Applies when input, cache reads and cache writes together exceed this.
    pub input_tokens_above: u64,
    /// US dollars for a million uncached input tokens, where the tier applies.
    pub input: f64,
    /// US dollars for a million output tokens, where the tier applies.
    pub output: f64,
    /// US dollars for a million input tokens read from the cache, where the tier applies.
    pub cache_read: f64,
    /// US dollars for a million input tokens written to the cache, where the tier applies.
    pub cache_write: f64,
}

/// How hard a model thinks.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Default,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Thinking {
    /// No thinking. The only level of a model without `reasoning`.
    #[default]
    Off,
    /// As little as it can.
    Minimal,
    /// The level between `minimal` and `medium`.
    Low,
    /// As most tasks want.
    Medium,
    /// The level above `medium`, and the highest one that needs no entry in `thinkingLevelMap`.
    High,
    /// More than a lot, where the model has it.
    Xhigh,
    /// All it can, where the model has it.
    Max,
}

/// One model that can be called, as the catalogue and `models.json` describe it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Model {
    /// The provider's id for it.
    pub id: String,
    /// Name to show to people. Requests use `id`.
    pub name: String,
    /// The wire, such as `anthropic-messages`.
    pub api: String,
    /// The provider's id.
    pub provider: String,
    /// Where requests go, without the wire's own path.
    pub base_url: String,
    /// Whether it can think.
    pub reasoning: bool,
    /// What the wire calls each level of thinking; `null` hides a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking_level_map: Option<Json>,
    /// `text`, `image`.
    pub input: Vec<String>,
    /// US dollars for a million tokens of each kind.
    pub cost: Prices,
    /// Tokens of input and output together.
    pub context_window: u64,
    /// Tokens of output at most.
    pub max_tokens: u64,
    /// Members for the body of every request, such as `temperature`, where the wire takes any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampling_params: Option<Json>,
    /// Headers for every request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headers: Option<Json>,
    /// Quirks of the wire.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compat: Option<Json>,
}

impl Model {
    /// Whether the model's `input` contains `image`.
    pub fn sees_images(&self) -> bool {
        self.input.iter().any(|kind| kind == "image")
    }

    /// The price of `usage`; `cost` in it is ignored.
    pub fn price(&self, usage: &Usage) -> Cost {
        // Some providers count nonsense.
        let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        let tier = self
            .cost
            .tiers
            .iter()
            .filter(|tier| sent > tier.input_tokens_above)
            .max_by_key(|tier| tier.input_tokens_above);
        let rates = tier
            .map_or((self.cost.input, self.cost.output, self.cost.cache_read, self.cost.cache_write), |t| {
                (t.input, t.output, t.cache_read, t.cache_write)
            });
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let of = |tokens: u64, rate: f64| tokens as f64 * rate / 1e6;
        let long = usage.cache_write_1h.unwrap_or(0).min(usage.cache_write);
        let mut cost = Cost {
            input: of(usage.input, rates.0),
            output: of(usage.output, rates.1),
            cache_read: of(usage.cache_read, rates.2),
            // What is kept for an hour costs twice the input rate.
            cache_write: of(usage.cache_write - long, rates.3) + of(long, rates.0 * 2.0),
            total: 0.0,
        };
        cost.total = cost.input + cost.output + cost.cache_read + cost.cache_write;
        cost
    }
}

impl Prices {
    /// Whether any rate is known. A model without one may cost anything.
    pub fn are_known(&self) -> bool {
        if self.stated {
            return true;
        }
        let rates = [self.input, self.output, self.cache_read, self.cache_write];
        rates.iter().any(|rate| *rate > 0.0) || !self.tiers.is_empty()
    }

    /// The most that a call with so many tokens can cost, in US dollars: all of the input at the dearest rate for input
    /// that may apply. `long`: some of it may be kept for an hour.
    pub fn most(&self, input: u64, output: u64, long: bool) -> f64 {
        let base = (self.input, self.output, self.cache_read, self.cache_write);
        let tiers = self.tiers.iter().filter(|tier| input > tier.input_tokens_above);
        let tiers = tiers.map(|tier| (tier.input, tier.output, tier.cache_read, tier.cache_write));
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^52")]
        let of = |tokens: u64, rate: f64| tokens as f64 * rate / 1e6;
        let costs = std::iter::once(base).chain(tiers).map(|(plain, answer, read, write)| {
            let kept = if long { plain * 2.0 } else { 0.0 };
            of(input, plain.max(read).max(write).max(kept)) + of(output, answer)
        });
        costs.fold(0.0, f64::max)
    }
}

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolSpec {
    /// Its name: `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// Text that tells the model what the tool does.
    pub description: String,
    /// JSON Schema of its arguments: an object schema.
    pub parameters: Json,
}

/// Everything that a model call is made of. A pure function of committed nodes and a frozen prefix.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The model to call, with its provider and wire.
    pub model: Arc<Model>,
    /// The system prompt; empty for none.
    pub system: Arc<str>,
    /// Bytes of its beginning that are the same from session to session, so that a provider can keep them apart from what
    /// follows; `None` where nobody says so.
    pub stable_system: Option<usize>,
    /// The tools, in the order in which they are declared.
    pub tools: Arc<[ToolSpec]>,
    /// A valid conversation: every tool call answered once, starting with the user's side. It may still hold
    /// what the wire must adapt: thinking of other models, foreign call ids, images for a blind model. Shared with
    /// whoever makes the next request, so that a turn does not copy the list.
    pub messages: Arc<Vec<Arc<Message>>>,
    /// Thinking level of the epoch.
    pub thinking: Thinking,
    /// Output tokens at most; `None` for the model's own limit.
    pub max_tokens: Option<u64>,
    /// Names the session to providers that keep caches apart.
    pub session: Option<String>,
}
