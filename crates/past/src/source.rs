//! What a past is made of: the nodes of sessions, each with who speaks in it, what it says and when.

use quipu_protocol::{AuthorClass, Body, CallId, Content, Entry, Message, StepInfo, UnixMs, own_text};
use quipu_transcript::{DecodedEntry, provenance};

use crate::TimeRange;

/// Who speaks in a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SourceSpeaker {
    /// A person, or a program in the place of one.
    Person,
    /// The model.
    Model,
    /// A tool, or a command that a person ran.
    Tool,
}

/// What a node says, for who sums it up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceText {
    /// Who.
    pub speaker: SourceSpeaker,
    /// The words.
    pub text: String,
    /// The calls of an answer: names with arguments, as JSON.
    pub calls: Vec<String>,
    /// Whether it tells of a failure.
    pub is_error: bool,
    /// How far its author is trusted.
    pub class: AuthorClass,
}

/// Calls that a node begins, or whose result it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeCalls {
    pub(crate) begun: Vec<CallId>,
    pub(crate) ended: Option<CallId>,
}

/// Times before this are counters, or unknown: nothing that is imported is older than 1973.
const FIRST_KNOWN: UnixMs = 100_000_000_000;

/// When a node was said, where that is known: by its message, else by the node.
#[must_use]
pub fn time_of(entry: &Entry, written: UnixMs) -> Option<UnixMs> {
    let said = match entry {
        Entry::Message(message) => message.timestamp(),
        Entry::Session(_) | Entry::Epoch(_) | Entry::Compaction(_) | Entry::Meta(_) => 0,
    };
    [said, written].into_iter().find(|at| {
        *at >= FIRST_KNOWN && at.checked_add(1).is_some_and(|end| TimeRange::new(*at, end).is_some())
    })
}

/// What is summed up of a node; `None` for one that says nothing of the conversation: summaries of what stands before them, too.
/// `importer` names the agent whose session it is, where that is not ours.
pub(crate) fn source_of(decoded: &DecodedEntry, importer: Option<&str>) -> Option<(SourceText, NodeCalls)> {
    let Entry::Message(message) = &decoded.entry else { return None };
    let step: &StepInfo = &decoded.step;
    let class = provenance(&decoded.entry, step, importer).map_or(AuthorClass::Untrusted, |from| from.author);
    let mut calls = NodeCalls::default();
    let mut begun = Vec::new();
    let (speaker, text, is_error) = match message {
        Message::User(said) => (SourceSpeaker::Person, own_words(&said.content, step), false),
        Message::Assistant(answer) => {
            for block in &answer.content {
                if let Content::ToolCall(call) = block {
                    calls.begun.push(call.id.clone());
                    begun.push(format!("{} {}", call.name, call.arguments.get()));
                }
            }
            (SourceSpeaker::Model, words(&answer.content), answer.error_message.is_some())
        }
        Message::ToolResult(result) => {
            calls.ended = Some(result.tool_call_id.clone());
            (SourceSpeaker::Tool, words(&result.content), result.is_error)
        }
        Message::BashExecution(run) => {
            let failed = run.exit_code.is_some_and(|code| code != 0);
            (SourceSpeaker::Tool, format!("{}\n{}", run.command, run.output), failed)
        }
        Message::BranchSummary(branch) => (SourceSpeaker::Model, branch.summary.clone(), false),
        Message::Custom(_) | Message::CompactionSummary(_) | Message::Other(_) => return None,
    };
    Some((SourceText { speaker, text, calls: begun, is_error, class }, calls))
}

impl SourceText {
    /// Bytes that whoever sums it up reads.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.text.len() + self.calls.iter().map(String::len).sum::<usize>()
    }
}

fn own_words(body: &Body, step: &StepInfo) -> String {
    match body {
        Body::Text(text) => text.clone(),
        Body::Blocks(blocks) => own_text(blocks, &step.added),
    }
}

fn words(blocks: &[Content]) -> String {
    blocks.iter().filter_map(Content::as_text).collect::<Vec<_>>().join("\n")
}
