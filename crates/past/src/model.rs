//! Summaries by a model: who asks it, what it is asked, and what an answer must be like to be one.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;

use quipu_dag::sha256;
use quipu_protocol::hex;
use quipu_tools::stripped;
use serde::Serialize;

use crate::source::{SourceSpeaker, SourceText};
use crate::{
    AskedModel, ChildSummary, ExtractiveSummary, RefusedSummary, Summariser as _, SummaryMethod, WorkId,
};

/// What it is told of nodes, and of summaries.
const LEAF: &str = include_str!("prompts/leaf.md").trim_ascii_end();
const PARENT: &str = include_str!("prompts/parent.md").trim_ascii_end();
/// The rules by which sources stand in a prompt.
const FORM: u32 = 1;
/// Tokens of a summary of nodes at most, and of one of summaries.
pub const LEAF_TOKENS: u64 = 512;
/// See [`LEAF_TOKENS`].
pub const PARENT_TOKENS: u64 = 768;
/// Bytes that are counted as one token.
pub const TOKEN_BYTES: usize = 4;
/// As many bytes.
const LEAF_BYTES: usize = 512 * TOKEN_BYTES;
const PARENT_BYTES: usize = 768 * TOKEN_BYTES;
/// Bytes of nodes in one prompt at most, about; the middle of more is left out.
const PROMPT: usize = 64_000;
/// Bytes of one text at most: its beginning and its end.
const SAID: usize = 4_000;
const TOLD: usize = 1_000;
const CALL: usize = 300;
const CHILD: usize = 4_096;
/// Calls of one answer that are named.
const CALLS: usize = 8;
/// How many times longer than a summary an answer is that is none.
const FAR_TOO_LONG: usize = 4;
/// Letters of the sources that a summary may begin with and still be one.
const ECHO: usize = 300;
/// How answers begin that decline.
const REFUSALS: [&str; 9] = [
    "i can't",
    "i can’t",
    "i cannot",
    "i'm sorry",
    "i’m sorry",
    "i am sorry",
    "i'm unable",
    "i am unable",
    "as an ai",
];

/// A future of somebody who asks models.
pub type AskFut<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One call of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryAsk {
    /// What it is told.
    pub system: &'static str,
    /// The sources.
    pub prompt: String,
    /// Tokens of the answer at most.
    pub max_tokens: u64,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SummaryReply {
    /// Its words.
    pub text: String,
    /// Tokens that were sent.
    pub input: u64,
    /// Tokens of the answer.
    pub output: u64,
    /// US dollars.
    pub cost: f64,
    /// Whether the answer was cut off at its most tokens.
    pub is_cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum AskRefusal {
    /// It will not answer this, now or later.
    Never(String),
    /// It takes this request for an invalid one, and may take others.
    Invalid(String),
    /// There is no money left for it.
    Budget(String),
    /// Something that may be gone the next time.
    Failed(String),
}

/// Asks a model for summaries.
pub trait SummaryModel: Send + Sync {
    /// Provider and model.
    fn name(&self) -> String;

    /// Asks it, once. What it answers is kept before this returns, so that [`recorded`](Self::recorded) finds it.
    fn ask<'a>(&'a self, ask: &'a SummaryAsk) -> AskFut<'a, Result<SummaryReply, AskRefusal>>;

    /// An answer to an earlier call whose prompt began with this line, where one was kept and nobody got it.
    fn recorded<'a>(&'a self, first_line: &'a str) -> AskFut<'a, Option<SummaryReply>>;

    /// US dollars that so many tokens cost.
    fn price(&self, input: u64, output: u64) -> f64;
}

/// How a model that is asked makes summaries.
#[must_use]
pub fn model_method(model: &dyn SummaryModel) -> SummaryMethod {
    SummaryMethod::Model(asked_model(model))
}

pub(crate) fn asked_model(model: &dyn SummaryModel) -> AskedModel {
    AskedModel { model: model.name(), prompt: prompt_hash().to_owned() }
}

fn prompt_hash() -> &'static str {
    static HASH: LazyLock<String> = LazyLock::new(|| {
        let mut bytes = FORM.to_le_bytes().to_vec();
        bytes.extend_from_slice(LEAF.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(PARENT.as_bytes());
        hex(&sha256(&bytes))
    });
    &HASH
}

/// What a call is, before it is made: its tokens as they are counted here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CallSize {
    /// Tokens that are sent.
    pub input: u64,
    /// Tokens of the longest answer.
    pub output: u64,
}

/// What stands around the sources: known before they are read. Nobody who writes a source knows the hash of it, so none can close
/// the mark.
struct Frame {
    open: String,
    close: String,
}

impl Frame {
    fn of(work: WorkId, level: u32) -> Self {
        let what = if level == 0 { "sources" } else { "summaries" };
        let key = format!("{}-{}", work.short(), prompt_hash().get(..8).unwrap_or_default());
        Self { open: format!("<{what} {key}>\n"), close: format!("</{what} {key}>") }
    }

    fn bytes(&self) -> usize {
        self.open.len() + self.close.len()
    }
}

/// What the prompt of a chunk begins with.
pub(crate) fn first_line(work: WorkId, level: u32) -> String {
    Frame::of(work, level).open.trim_end().to_owned()
}

/// Tokens of texts of so many bytes.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(TOKEN_BYTES) as u64
}

/// Bytes of a summary by a model at most.
pub(crate) const fn most_bytes(level: u32) -> usize {
    if level == 0 { LEAF_BYTES } else { PARENT_BYTES }
}

/// The call for a chunk of nodes whose texts stand in the prompt with so many bytes each.
pub(crate) fn leaf_size(work: WorkId, lengths: &[usize]) -> CallSize {
    let (head, tail) = shown(lengths);
    let left_out = lengths.len() - head - tail;
    let kept = lengths.iter().take(head).chain(lengths.iter().skip(head + left_out)).sum::<usize>();
    let bytes = LEAF.len() + Frame::of(work, 0).bytes() + kept + left_out_line(left_out).len();
    CallSize { input: tokens(bytes), output: LEAF_TOKENS }
}

/// The call for a chunk of chunks: the keys of their ranges, and bytes of their summaries.
pub(crate) fn parent_size(
    work: WorkId,
    level: u32,
    children: impl Iterator<Item = (String, usize)>,
) -> CallSize {
    // In brackets, each on a line.
    let said: usize = children.map(|(key, bytes)| key.len() + 3 + bytes.min(CHILD) + 1).sum();
    let bytes = PARENT.len() + Frame::of(work, level).bytes() + said;
    CallSize { input: tokens(bytes), output: PARENT_TOKENS }
}

pub(crate) fn leaf_ask(work: WorkId, sources: &[SourceText]) -> SummaryAsk {
    let texts: Vec<String> = sources.iter().map(in_prompt).collect();
    let lengths: Vec<usize> = texts.iter().map(String::len).collect();
    let (head, tail) = shown(&lengths);
    let left_out = texts.len() - head - tail;
    let frame = Frame::of(work, 0);
    let mut prompt = frame.open;
    texts.iter().take(head).for_each(|text| prompt.push_str(text));
    prompt.push_str(&left_out_line(left_out));
    texts.iter().skip(head + left_out).for_each(|text| prompt.push_str(text));
    prompt.push_str(&frame.close);
    SummaryAsk { system: LEAF, prompt, max_tokens: LEAF_TOKENS }
}

pub(crate) fn parent_ask(work: WorkId, level: u32, children: &[ChildSummary]) -> SummaryAsk {
    let frame = Frame::of(work, level);
    let mut prompt = frame.open;
    for child in children {
        prompt.push_str(&format!("[{}]\n{}\n", child.span.key(), clipped(&stripped(&child.summary), CHILD)));
    }
    prompt.push_str(&frame.close);
    SummaryAsk { system: PARENT, prompt, max_tokens: PARENT_TOKENS }
}

/// How many texts stand in a prompt, of the first and of the last: all, or as many as have room in each half.
fn shown(lengths: &[usize]) -> (usize, usize) {
    if lengths.iter().sum::<usize>() <= PROMPT {
        return (lengths.len(), 0);
    }
    let fits = |lengths: &mut dyn Iterator<Item = &usize>| {
        let mut room = PROMPT / 2;
        lengths.take_while(|length| room.checked_sub(**length).map(|left| room = left).is_some()).count()
    };
    (fits(&mut lengths.iter()), fits(&mut lengths.iter().rev()))
}

fn left_out_line(count: usize) -> String {
    if count == 0 { String::new() } else { format!("[{count} steps left out]\n") }
}

/// Bytes of what a node says in a prompt.
pub(crate) fn prompt_bytes(source: &SourceText) -> usize {
    in_prompt(source).len()
}

/// What a node says, as it stands in a prompt.
fn in_prompt(source: &SourceText) -> String {
    let (name, most) = match (source.speaker, source.is_error) {
        (SourceSpeaker::Person, _) => ("person", SAID),
        (SourceSpeaker::Model, _) => ("model", SAID),
        (SourceSpeaker::Tool, false) => ("tool", TOLD),
        (SourceSpeaker::Tool, true) => ("tool, failed", TOLD),
    };
    let mut said = String::new();
    let text = clipped(source.text.trim(), most);
    if !text.is_empty() {
        said.push_str(&format!("[{name}] {}\n", stripped(&text)));
    }
    for call in source.calls.iter().take(CALLS) {
        said.push_str(&format!("[calls] {}\n", stripped(&clipped(call, CALL))));
    }
    if source.calls.len() > CALLS {
        said.push_str(&format!("[calls] and {} more\n", source.calls.len() - CALLS));
    }
    said
}

/// The beginning and the end of a text.
fn clipped(text: &str, most: usize) -> String {
    const CUT: &str = " […] ";
    if text.len() <= most {
        return text.to_owned();
    }
    let head = text.floor_char_boundary((most - CUT.len()) * 2 / 3);
    let tail = text.ceil_char_boundary(text.len() - (most - CUT.len()) / 3);
    format!("{}{CUT}{}", &text[..head], &text[tail..])
}

/// Why an answer is no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AnswerFault {
    /// It is empty, or has nothing that anybody sees.
    Empty,
    /// It declines.
    Refusal,
    /// It says what it was told, or its sources, again.
    Echo,
    /// It is many times longer than a summary.
    Long,
}

impl AnswerFault {
    /// For people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Empty => "the answer is empty",
            Self::Refusal => "the model declined",
            Self::Echo => "the answer is the prompt",
            Self::Long => "the answer is far too long",
        }
    }
}

/// The summary in an answer: without what nobody sees, and cut where it is too long.
pub(crate) fn judged(ask: &SummaryAsk, reply: &SummaryReply) -> Result<String, AnswerFault> {
    let most = usize::try_from(ask.max_tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN_BYTES);
    if reply.text.len() > most.saturating_mul(FAR_TOO_LONG) {
        return Err(AnswerFault::Long);
    }
    let seen = stripped(&reply.text);
    let text = seen.trim();
    if !text.chars().any(char::is_alphanumeric) {
        return Err(AnswerFault::Empty);
    }
    let beginning: String = text.chars().take(20).flat_map(char::to_lowercase).collect();
    if REFUSALS.iter().any(|refusal| beginning.starts_with(refusal)) {
        return Err(AnswerFault::Refusal);
    }
    let key = ask.prompt.lines().next().unwrap_or_default();
    let told = ask.system.lines().next().unwrap_or_default();
    let echo: String = text.chars().take(ECHO).collect();
    // What draws summaries together may begin as one of them does.
    let repeats = ask.system == LEAF && echo.len() >= ECHO && ask.prompt.contains(&echo);
    if text.contains(key) || text.contains(told) || repeats {
        return Err(AnswerFault::Echo);
    }
    if text.len() <= most && !reply.is_cut {
        return Ok(text.to_owned());
    }
    let room = text.floor_char_boundary((most - '…'.len_utf8()).min(text.len()));
    Ok(format!("{}…", text[..room].trim_end()))
}

/// The summary that stands in the place of one that the model did not give.
pub(crate) fn leaf_instead(
    sources: &[SourceText],
    asked: AskedModel,
    refusal: Option<RefusedSummary>,
) -> (String, SummaryMethod) {
    instead(&ExtractiveSummary.leaf(sources), 0, asked, refusal)
}

pub(crate) fn parent_instead(
    children: &[ChildSummary],
    asked: AskedModel,
    refusal: Option<RefusedSummary>,
) -> (String, SummaryMethod) {
    instead(&ExtractiveSummary.parent(children), 1, asked, refusal)
}

fn instead(
    summary: &str,
    level: u32,
    asked: AskedModel,
    refusal: Option<RefusedSummary>,
) -> (String, SummaryMethod) {
    let method = match ExtractiveSummary.method() {
        SummaryMethod::Extractive { version, .. } => {
            SummaryMethod::Extractive { version, instead: Some(asked), refusal }
        }
        method => method,
    };
    (clipped(&stripped(summary), most_bytes(level)), method)
}
