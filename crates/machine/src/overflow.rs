//! What is tried when the model says that the context is too long, in this order: the context is compacted, a few times and each
//! time further; long results of tools are shortened; then the run ends.

use quipu_protocol::{CompactionReason, Entry, ModelError};
use quipu_transcript::{Prune, PruneStart, PruneStyle, ToolGlobs};

use super::{Draft, Machine, Phase, Tag};

/// Tokens of a context below which a model's complaint that it is too long is not taken for what it says.
const LEAST: u64 = 1_000;
/// Compactions one after the other without an answer between them.
const COMPACTIONS: u32 = 3;
/// Characters of a result that is not shortened, in a large window.
const RESULT: u64 = 16_000;
/// Of a result that is shortened, characters of its end at most.
const TAIL: u64 = 4_000;

/// What was tried since the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OverflowProgress {
    compactions: u32,
    is_shortened: bool,
}

impl Machine {
    /// The model said that the context is too long: what is tried next.
    pub(super) fn mend_overflow(&mut self, error: ModelError) -> Result<(), ModelError> {
        let Some(run) = &mut self.run else { return Err(error) };
        if !self.compaction.enabled || run.aborting || self.limits.reached(run).is_some() {
            return Err(error);
        }
        let done = run.overflow.compactions;
        if done == 0 && self.estimated < LEAST {
            return Err(error);
        }
        if done < COMPACTIONS {
            run.overflow.compactions += 1;
            // The model counts in its own way, or what came last is larger than its window: less and less is kept, and in the end
            // nothing but the answer that failed.
            let keep =
                self.compaction.keep_recent_tokens.max(self.keep_recent(self.prefix.model.context_window));
            if let Some(found) = self.cut_that_helps(keep >> done, 0) {
                self.begin_turn();
                self.begin_compaction(CompactionReason::Overflow, found, None, Some(error));
                return Ok(());
            }
        }
        let error = match self.shortened_results(error) {
            Ok(prune) => {
                self.begin_turn();
                self.commit_shortened(&prune);
                return Ok(());
            }
            Err(error) => error,
        };
        Err(self.overflow_error(error))
    }

    /// A compaction failed that was to mend it.
    pub(super) fn shorten_after_overflow(&mut self, error: ModelError) -> Result<(), ModelError> {
        if let Some(run) = &mut self.run {
            // One that fails is not tried again.
            run.overflow.compactions = COMPACTIONS;
        }
        match self.shortened_results(error) {
            Ok(prune) => {
                self.commit_shortened(&prune);
                Ok(())
            }
            Err(error) => Err(self.overflow_error(error)),
        }
    }

    /// How long results are shortened, once.
    fn shortened_results(&mut self, error: ModelError) -> Result<Prune, ModelError> {
        let Some(run) = self.run.as_mut().filter(|run| !run.overflow.is_shortened) else { return Err(error) };
        run.overflow.is_shortened = true;
        let Some(before) = self.nodes.last().copied() else { return Err(error) };
        let window = self.prefix.model.context_window;
        let most = if window == 0 { RESULT } else { (window / 10).saturating_mul(3 * 4).min(RESULT) };
        let tail = (most / 10 * 3).min(TAIL);
        let prune = Prune {
            before,
            min_characters: most,
            style: PruneStyle::Trim { head: most - tail, tail },
            tools: ToolGlobs::default(),
            from: PruneStart::First,
        };
        let is_useful = prune.savings(&self.messages, &self.nodes).next().is_some();
        if is_useful { Ok(prune) } else { Err(error) }
    }

    fn commit_shortened(&mut self, prune: &Prune) {
        let Some(run) = &mut self.run else { return };
        run.phase = Phase::Committing;
        self.commit(Tag::Pruned, vec![Draft::new(Entry::Meta(prune.entry()))], Vec::new(), false);
    }

    /// The error that ends the run, with what was tried.
    fn overflow_error(&self, mut error: ModelError) -> ModelError {
        let Some(run) = &self.run else { return error };
        let OverflowProgress { compactions, is_shortened } = run.overflow;
        if compactions > 0 || is_shortened {
            error.message = format!(
                "the conversation does not fit the model's context window, and it cannot be made shorter; begin a new \
                 conversation or use a model with a larger window ({})",
                error.message
            );
        }
        error
    }
}
