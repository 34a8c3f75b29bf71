//! What requests begin with, as sources of tools and context have it now: asked before a call, recorded as an epoch where
//! it is something else, and told as every change of the prefix.

use std::collections::BTreeMap;
use std::sync::Arc;

use quipu_dag::Blob;
use quipu_protocol::{BlobId, Entry, Epoch, EpochContext, Message, NodeId, ToolSpec, UnixMs};

use super::{Draft, Effect, Machine, Phase, Prefix, Run, Tag};

/// Messages of the user that sources may see at most.
const EARLIER: usize = 8;

/// Why sources are asked for what requests begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EpochReason {
    /// A session is opened, and what its requests begin with is made anew.
    Start,
    /// The context was compacted.
    Compaction,
    /// Another model answers from here on.
    ModelChange,
    /// The source said that it has something else now.
    Source,
    /// A run begins: what the user wants now is in the conversation already.
    Run,
    /// Something that it told was forgotten by a person.
    Forgotten,
}

/// At what sources want to be asked, besides when they say so themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refreshes {
    /// Before the next model call after a compaction.
    pub compaction: bool,
    /// After a change of the model.
    pub model_change: bool,
    /// Before the first model call of a run.
    pub run: bool,
}

impl Refreshes {
    pub(super) fn wants(self, reason: EpochReason) -> bool {
        match reason {
            EpochReason::Compaction => self.compaction,
            EpochReason::ModelChange => self.model_change,
            EpochReason::Run => self.run,
            EpochReason::Start | EpochReason::Source | EpochReason::Forgotten => true,
        }
    }
}

/// What sources may know of the conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ConversationBrief {
    /// When the oldest message was said that is no summary.
    pub first: Option<UnixMs>,
    /// What the user said before the newest message of theirs, oldest first; the last ones alone.
    pub earlier: Vec<Arc<Message>>,
    /// The node of each of these.
    pub nodes: Vec<NodeId>,
    /// Estimated tokens of the conversation.
    pub tokens: u64,
}

/// What sources make of what requests begin with.
#[derive(Debug, Clone, PartialEq)]
pub struct RefreshResult {
    /// The whole system prompt.
    pub system: Arc<str>,
    /// Its blob; `None` for no prompt.
    pub prompt: Option<BlobId>,
    /// What sources of context gave to it.
    pub context: Option<EpochContext>,
    /// The tools, as declared to the model.
    pub tools: Arc<[ToolSpec]>,
    /// The names of those that sources gave, by source.
    pub tool_sources: BTreeMap<String, Vec<String>>,
    /// Stored with the node of the epoch.
    pub blobs: Vec<Blob>,
}

/// Sources are being asked, or what they gave is being recorded.
pub(super) struct RefreshState {
    reasons: Vec<EpochReason>,
    then: AfterRefresh,
    /// What is being recorded.
    prefix: Option<Prefix>,
    /// Something was forgotten meanwhile that they may have given: they are asked again before the call.
    is_outdated: bool,
}

/// What comes after sources were asked.
#[derive(Debug, Clone, Copy)]
pub(super) enum AfterRefresh {
    /// What else is due before a call, and the call.
    Checks,
    /// The call: what is due before it was done.
    Call,
}

impl Machine {
    /// Has sources asked before the next call.
    pub(super) fn refresh_at(&mut self, reason: EpochReason) {
        if self.refreshes.wants(reason) && !self.due.contains(&reason) {
            self.due.push(reason);
        }
    }

    /// Before a call: asks sources, where there is a reason.
    pub(super) fn refresh_before_call(&mut self, then: AfterRefresh) -> bool {
        let Some(run) = self.run.as_mut().filter(|run| !run.aborting) else { return false };
        if self.due.is_empty() {
            return false;
        }
        let reasons = std::mem::take(&mut self.due);
        let refreshing = RefreshState { reasons: reasons.clone(), then, prefix: None, is_outdated: false };
        run.phase = Phase::Refreshing(Box::new(refreshing));
        let (run, model) = (run.id.clone(), self.prefix.model.clone());
        let brief = self.brief();
        self.out.push(Effect::Refresh { run, reasons, model, brief });
        true
    }

    fn brief(&self) -> ConversationBrief {
        let is_summary = |message: &&Arc<Message>| matches!(***message, Message::CompactionSummary(_));
        let first = self.messages.iter().find(|message| !is_summary(message));
        let is_users = |(message, _): &(&Arc<Message>, &NodeId)| matches!(***message, Message::User(_));
        let all = self.messages.iter().zip(&self.nodes).rev();
        let mut newest: Vec<_> = all.filter(is_users).skip(1).take(EARLIER).collect();
        newest.reverse();
        let (earlier, nodes) = newest.into_iter().map(|(message, node)| (message.clone(), *node)).unzip();
        let first = first.map(|message| message.timestamp());
        ConversationBrief { first, earlier, nodes, tokens: self.estimated }
    }

    /// What they give now.
    pub(super) fn refreshed(&mut self, result: Option<Box<RefreshResult>>) {
        let Some(Run { aborting, phase: Phase::Refreshing(refreshing), .. }) = &mut self.run else { return };
        if refreshing.prefix.is_some() {
            return;
        }
        let (then, is_outdated) = (refreshing.then, refreshing.is_outdated);
        let Some(refreshed) = result.filter(|_| !*aborting) else {
            // They are asked again in the next run. Where asking failed, what there is holds.
            let reasons = if *aborting { std::mem::take(&mut refreshing.reasons) } else { Vec::new() };
            reasons.into_iter().for_each(|reason| self.refresh_at(reason));
            return self.after_refresh(then);
        };
        let RefreshResult { system, prompt, context, tools, tool_sources, blobs } = *refreshed;
        let now = &self.prefix.epoch;
        let epoch = Epoch { system: prompt, context, tools: tools.clone(), tool_sources, ..now.clone() };
        if epoch == *now {
            self.out.push(Effect::UseSources);
            // What they gave may be from before something of it was forgotten.
            if is_outdated && self.refresh_before_call(then) {
                return;
            }
            return self.after_refresh(then);
        }
        let draft = Draft { blobs, ..Draft::new(Entry::Epoch(epoch.clone())) };
        refreshing.prefix = Some(Prefix { model: self.prefix.model.clone(), system, tools, epoch });
        self.commit(Tag::Refreshed, vec![draft], Vec::new(), false);
    }

    /// It is recorded: from here on requests begin so.
    pub(super) fn refresh_committed(&mut self, nodes: &[NodeId]) {
        let Some(Run { phase: Phase::Refreshing(refreshing), .. }) = &mut self.run else { return };
        let (prefix, then) = (refreshing.prefix.take(), refreshing.then);
        let is_outdated = refreshing.is_outdated;
        if let Some(prefix) = prefix {
            self.out.push(Effect::UseSources);
            self.change(prefix, nodes.last().copied());
        }
        if !is_outdated || !self.refresh_before_call(then) {
            self.after_refresh(then);
        }
    }

    /// Something that the prompt, or the text before the conversation, tells was forgotten by a person: of the next request, or of the
    /// one that is being made.
    pub(super) fn prompt_forgotten(&mut self) {
        self.refresh_at(EpochReason::Source);
        match self.run.as_mut().map(|run| (&mut run.phase, &mut run.is_outdated)) {
            Some((Phase::Refreshing(refreshing), _)) => refreshing.is_outdated = true,
            Some((Phase::Calling { .. }, is_outdated)) => *is_outdated = true,
            _ => {}
        }
    }

    /// What is being recorded to begin requests with: its text, and the nodes that the text before the conversation tells.
    pub fn pending_opening(&self) -> Option<(&str, &[NodeId])> {
        let Some(Run { phase: Phase::Refreshing(refreshing), .. }) = &self.run else { return None };
        let Prefix { system, epoch, .. } = refreshing.prefix.as_ref()?;
        let opening = epoch.context.as_ref().and_then(|context| context.opening.as_ref());
        let told = opening.filter(|opening| !opening.text.is_empty());
        Some((system, told.map_or(&[], |opening| &opening.nodes)))
    }

    /// It could not be recorded: all stays as it was, and they are asked again before the next call.
    pub(super) fn on_refresh_failed(&mut self, refreshing: &RefreshState) {
        refreshing.reasons.iter().for_each(|reason| self.refresh_at(*reason));
    }

    fn after_refresh(&mut self, then: AfterRefresh) {
        match then {
            AfterRefresh::Checks => self.call_as_refreshed(),
            AfterRefresh::Call => self.call_now(),
        }
    }
}
