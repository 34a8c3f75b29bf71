//! The end of a run: where there are hooks, they are asked whether it goes on, and with what.

use quipu_protocol::{Event, Notice, Outcome};

use super::{Draft, Effect, HookPrompt, Machine, Phase, Run, Tag, Went, record_hooks};

/// How often in a row hooks can go on with a run that the model ended.
const IN_A_ROW: u32 = 3;

impl Machine {
    /// The model is done, and nothing waits to be said.
    pub(super) fn model_done(&mut self) {
        let has_hooks = self.has_hooks;
        let Some(run) = &mut self.run else { return };
        if !has_hooks {
            return self.end_run(Outcome::Done);
        }
        run.phase = Phase::Ending;
        let (run, again, last) = (run.id.clone(), run.prolonged, self.messages.last().cloned());
        self.out.push(Effect::AskRunEnd { run, last, again });
    }

    pub(super) fn run_end_decided(&mut self, more: Option<Box<HookPrompt>>) {
        let waiting = self.waiting() > 0;
        let Some(run @ Run { phase: Phase::Ending, .. }) = &mut self.run else { return };
        run.phase = Phase::Saying;
        if run.aborting {
            return self.end_run(Outcome::Aborted);
        }
        if waiting {
            // Somebody said something meanwhile, and hooks are asked again behind that.
            return self.after_turn(Went::Done);
        }
        let Some(HookPrompt { input, hooks }) = more.map(|more| *more) else {
            return self.end_run(Outcome::Done);
        };
        if run.prolonged >= IN_A_ROW {
            let text = format!(
                "Hooks asked to continue the run again, but it ended: they can do that at most {IN_A_ROW} times in a \
                 row."
            );
            self.emit(Event::from(Notice::Note { text }));
            return self.end_run(Outcome::Done);
        }
        if let Some(limit) = self.limits.reached(run) {
            return self.end_run(Outcome::Limit(limit));
        }
        run.prolonged += 1;
        let mut draft = Draft::said(input, self.now);
        draft.step.run = Some(run.id.clone());
        record_hooks(&mut draft.step, &hooks);
        self.commit(Tag::Between, vec![draft], Vec::new(), true);
    }
}
