//! The beginning of a run: where there are hooks, they are asked what they add to the prompt.

use std::sync::Arc;

use quipu_protocol::{AddedBlock, Body, Entry, Message, RunId, UserInput};

use super::{
    Draft, Effect, EpochReason, HookPrompt, Machine, Phase, PlanOp, ReplyId, Run, Tag, record_hooks,
};

/// What begins a run, while hooks are asked.
pub(super) struct StartState {
    reply: Option<ReplyId>,
    drafts: Vec<Draft>,
    ops: Vec<PlanOp>,
}

impl Machine {
    /// Begins a run with a prompt.
    pub(super) fn begin_run(
        &mut self,
        run: RunId,
        reply: Option<ReplyId>,
        drafts: Vec<Draft>,
        ops: Vec<PlanOp>,
    ) {
        if !self.has_hooks {
            self.run = Some(Run::new(run));
            return self.commit_start(reply, drafts, ops);
        }
        let prompt = self.background.all().chain(&drafts).cloned().collect();
        let phase = Phase::Starting(Box::new(StartState { reply, drafts, ops }));
        self.run = Some(Run { phase, ..Run::new(run.clone()) });
        self.out.push(Effect::AskRunStart { run, prompt });
    }

    pub(super) fn run_start_decided(&mut self, prompt: Option<Box<HookPrompt>>) {
        let now = self.now;
        let Some(run @ Run { phase: Phase::Starting(_), .. }) = &mut self.run else { return };
        let Phase::Starting(starting) = std::mem::replace(&mut run.phase, Phase::Committing) else { return };
        let StartState { reply, mut drafts, ops } = *starting;
        if let Some(HookPrompt { input, hooks }) = prompt.map(|prompt| *prompt) {
            match drafts.last_mut() {
                Some(draft) => add_to(draft, input),
                None => drafts.push(Draft::user_message(input, now)),
            }
            if let Some(draft) = drafts.last_mut() {
                record_hooks(&mut draft.step, &hooks);
            }
        }
        self.commit_start(reply, drafts, ops);
    }

    fn commit_start(&mut self, reply: Option<ReplyId>, drafts: Vec<Draft>, ops: Vec<PlanOp>) {
        // Not lost where this commit fails: it is what happened, and not what somebody wants.
        self.queue_background_notes();
        self.refresh_at(EpochReason::Run);
        let mut all: Vec<Draft> = self.returns().into_iter().collect();
        all.extend(drafts);
        self.commit(Tag::Start { reply }, all, ops, true);
    }
}

/// Puts content behind a prompt.
fn add_to(draft: &mut Draft, input: UserInput) {
    if let Entry::Message(Message::User(message)) = &*draft.entry {
        let mut message = message.clone();
        let mut blocks = message.content.blocks().into_owned();
        let UserInput { content, provenance, added } = input;
        for (at, block) in content.into_iter().enumerate() {
            let own = added.iter().find(|one| usize::try_from(one.block).is_ok_and(|place| place == at));
            let provenance = own.map_or_else(|| provenance.clone(), |one| one.provenance.clone());
            draft.step.added.push(AddedBlock::behind(&blocks, provenance));
            blocks.push(block);
        }
        message.content = Body::Blocks(blocks);
        draft.entry = Arc::new(Entry::Message(Message::User(message)));
    }
}
