//! A tool call that is over.

use std::sync::Arc;

use quipu_dag::NewChunk;
use quipu_protocol::{
    AddedBlock, Entry, FileChange, Message, Provenance, RunId, StepInfo, ToolResultMessage, UnixMs,
};
use quipu_transcript::WorkspaceNote;

use super::{Draft, Interventions, ToolJump};

/// A finished tool call, sealed.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedCall {
    /// What the model is given.
    pub result: ToolResultMessage,
    /// What hooks and policies did to the call and to its result.
    pub interventions: Interventions,
    /// Where its text came from.
    pub provenance: Provenance,
    /// Blocks of it that came from elsewhere.
    pub added: Vec<AddedBlock>,
    /// When it began.
    pub started: UnixMs,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// What it did to files.
    pub files: Vec<FileChange>,
    /// Their states, stored with the result.
    pub states: Vec<NewChunk>,
    /// What else it did to the workspace, and what is not known of that.
    pub note: Box<WorkspaceNote>,
    /// Whether the run ends with its batch.
    pub terminate: bool,
    /// Where it takes the session.
    pub jump: Option<Box<ToolJump>>,
}

impl FinishedCall {
    /// The entry of its result.
    pub(super) fn draft(&self, run: &RunId) -> Draft {
        let mut step = StepInfo {
            run: Some(run.clone()),
            started: Some(self.started),
            duration_ms: Some(self.duration_ms),
            provenance: Some(self.provenance.clone()),
            added: self.added.clone(),
            files: self.files.clone(),
            ..StepInfo::default()
        };
        self.note.put_into(&mut step);
        self.interventions.record(&mut step);
        let entry = Arc::new(Entry::Message(Message::ToolResult(self.result.clone())));
        Draft { entry, step, states: self.states.clone(), blobs: Vec::new() }
    }
}
