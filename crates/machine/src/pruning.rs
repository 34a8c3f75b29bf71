//! Old results of tools are left out of requests: recorded as a node, in steps, so that between two of them what was
//! sent stays and is found in the provider's cache.

use std::sync::Arc;

use quipu_protocol::{Entry, Event, Message, NodeId};
use quipu_transcript::{
    Measure, Prune, PruneReport, PruneStart, PruneStyle, ToolGlobs, estimate_tokens, is_prunable, is_settled,
    last_turns, measure, newest_turns, sent_tokens,
};

use super::{Draft, Machine, Phase, Plan, Start, Tag, TurnLimit};

/// What of old results is left out of requests once the provider does not hold the conversation any more: leaving it out costs
/// nothing then. It is recorded, and holds from there on. The graph keeps the results whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheExpiry {
    /// Seconds after an answer of the same model after which its cache is taken to be gone.
    pub ttl_seconds: u64,
    /// What came from so many of the last answers on stays, at least one. Nothing happens before there are as many.
    pub keep_answers: u64,
    /// Results are shortened where the context fills so much of the model's window.
    pub soft_percent: u64,
    /// The oldest ones are replaced where it still fills so much.
    pub hard_percent: u64,
    /// Results of at most so many characters are not shortened.
    pub trim_characters: u64,
    /// Characters of the beginning of one that is shortened.
    pub head_characters: u64,
    /// Characters of its end.
    pub tail_characters: u64,
    /// What stands in the place of one that is replaced; `None` to replace none.
    pub placeholder: Option<String>,
    /// None is replaced unless those that can be have so many characters together.
    pub min_clear_characters: u64,
    /// Whose results these are.
    pub tools: ToolGlobs,
}

impl Default for CacheExpiry {
    fn default() -> Self {
        Self {
            ttl_seconds: 300,
            keep_answers: 3,
            soft_percent: 30,
            hard_percent: 50,
            trim_characters: 4_000,
            head_characters: 1_500,
            tail_characters: 1_500,
            placeholder: Some("[This old tool result is left out.]".into()),
            min_clear_characters: 50_000,
            tools: ToolGlobs::default(),
        }
    }
}

/// Characters for each token.
const CHARACTERS: u64 = 4;

/// When results of tools are left out of requests, and which. They stay in the graph, and `recall` reads them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PruneSettings {
    /// Whether it happens at all, and the model has the tool `recall`. Without it, requests hold everything.
    pub enabled: bool,
    /// Nothing is left out before the context fills so much of the model's window.
    pub trigger_percent: u64,
    /// Nothing is left out before this frees so much of the window: the provider has to read again what follows.
    pub clear_at_least_percent: u64,
    /// The results of so many last turns (answers of the model) stay, at least one.
    pub keep_turns: u64,
    /// Results of at most so many characters (UTF-16 code units, 4,800 for an image) stay; at least 2,000 count.
    pub min_characters: u64,
}

impl PruneSettings {
    /// What holds of the records of a lineage: those that point to `recall` only where the model has it.
    #[must_use]
    pub fn applied(&self, mut records: Vec<(usize, Prune)>) -> Vec<(usize, Prune)> {
        records.retain(|(_, prune)| self.enabled || !prune.style.is_pointer());
        records
    }
}

impl Default for PruneSettings {
    fn default() -> Self {
        Self {
            enabled: false,
            trigger_percent: 50,
            clear_at_least_percent: 10,
            keep_turns: 8,
            min_characters: 4_000,
        }
    }
}

/// Under which name the node of a compaction keeps what was counted before it.
pub const MEASURED: &str = "measured";

/// What is known of a context beside its messages.
#[derive(Debug, Default)]
pub struct PruneState {
    /// How many of the messages are no part of any count: a compaction's, and those before results were left out.
    pub old: usize,
    /// What was counted last, of a context that is no more.
    pub measured: Option<Measure>,
    /// Results that are left out.
    pub results: u64,
    /// Estimated tokens that they had.
    pub tokens: u64,
    /// How many messages were looked at.
    pub until: usize,
}

impl PruneState {
    /// Carries the records of a lineage out, one after the other, as they were made: each with the number of messages
    /// before it. `old` messages are a compaction's; `prefix` are the tokens before the messages.
    pub fn of(
        records: &[(usize, Prune)],
        messages: &mut [Arc<Message>],
        nodes: &[NodeId],
        old: usize,
        prefix: u64,
    ) -> Self {
        let mut left = Self { old, ..Self::default() };
        for (at, prune) in records {
            let Some((messages, nodes)) = messages.get_mut(..*at).zip(nodes.get(..*at)) else { continue };
            let all = messages.iter().fold(prefix, |sum, one| sum.saturating_add(sent_tokens(one)));
            left.out(prune, messages, nodes, all);
        }
        left
    }

    /// As a session begins.
    pub(super) fn of_start(start: &mut Start, prefix: u64) -> Self {
        let left = Self::of(&start.prunes, &mut start.messages, &start.nodes, start.old, prefix);
        Self { measured: left.measured.or(start.measured), ..left }
    }

    /// Leaves results out of a context of `all` estimated tokens.
    fn out(&mut self, prune: &Prune, messages: &mut [Arc<Message>], nodes: &[NodeId], all: u64) -> u64 {
        self.remember(messages, all);
        let PruneReport { results, tokens, until } = prune.apply(messages, nodes);
        self.results += results;
        self.tokens = self.tokens.saturating_add(tokens);
        self.until = self.until.max(until);
        self.old = self.old.max(messages.len());
        results
    }

    /// Keeps what was counted, before the context becomes another.
    pub(super) fn remember(&mut self, messages: &[Arc<Message>], all: u64) {
        if let Some((measured, _)) = measure(messages, self.old, all) {
            self.measured = Some(measured);
        }
    }
}

impl Machine {
    /// What is to be left out before the next call.
    pub(super) fn prune_is_due(&self) -> Option<Prune> {
        self.turns_are_due().or_else(|| self.pointers_are_due()).or_else(|| self.expiry_is_due())
    }

    /// The turns before the newest ones, once: when a run begins.
    fn turns_are_due(&self) -> Option<Prune> {
        let TurnLimit::Newest(turns) = self.turns else { return None };
        if self.run.as_ref().is_none_or(|run| run.turn > 1) {
            return None;
        }
        let first = newest_turns(self.messages.iter(), turns)?;
        // What was noted for a message stands right before it.
        let is_noted = |one: &&Arc<Message>| matches!(***one, Message::Custom(_) | Message::BashExecution(_));
        let noted = self.messages.get(..first)?.iter().rev().take_while(is_noted).count();
        let prune = Prune::omitting(*self.nodes.get(first - noted)?);
        let is_useful = prune.savings(&self.messages, &self.nodes).next().is_some();
        is_useful.then_some(prune)
    }

    /// Whether what is being committed may make [`Self::turns_are_due`].
    pub(super) fn turns_may_be_due(&self) -> bool {
        let TurnLimit::Newest(turns) = self.turns else { return false };
        let users = |messages: &[Arc<Message>]| {
            messages.iter().filter(|message| matches!(***message, Message::User(_))).count()
        };
        let most = usize::try_from(turns.get()).unwrap_or(usize::MAX);
        users(&self.messages) + users(&self.adding) > most
    }

    /// Whether the provider still holds the conversation, as far as is known: it answered a moment ago. An answer of the
    /// future, as clocks can jump, is one of now. Without an answer there is nothing that could have expired.
    fn cache_is_expired(&self, ttl_seconds: u64) -> bool {
        let model = &self.prefix.model;
        let last = self.messages.iter().rev().find_map(|message| match &**message {
            Message::Assistant(answer)
                if is_settled(answer.stop_reason)
                    && answer.model == model.id
                    && answer.provider == model.provider =>
            {
                Some(answer.timestamp)
            }
            _ => None,
        });
        let ttl = i64::try_from(ttl_seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        last.is_some_and(|last| self.now.saturating_sub(last) >= ttl)
    }

    /// What is left out as the provider has to read everything again anyway: first results are shortened, and the oldest ones
    /// replaced where that is not enough.
    fn expiry_is_due(&self) -> Option<Prune> {
        let expiry = self.cache_expiry.as_deref()?;
        let window = self.prefix.model.context_window;
        let size = if window == 0 { return None } else { self.size() };
        if size < percent(window, expiry.soft_percent) || !self.cache_is_expired(expiry.ttl_seconds) {
            return None;
        }
        let end = last_turns(&self.messages, expiry.keep_answers)?;
        let prune = Prune {
            before: *self.nodes.get(end)?,
            min_characters: expiry.trim_characters,
            style: PruneStyle::Trim { head: expiry.head_characters, tail: expiry.tail_characters },
            tools: expiry.tools.clone(),
            from: PruneStart::User,
        };
        let is_useful = prune.savings(&self.messages, &self.nodes).next().is_some();
        if is_useful {
            return Some(prune);
        }
        let prune = Prune { style: PruneStyle::Clear(expiry.placeholder.clone()?), ..prune };
        let hard = percent(window, expiry.hard_percent);
        if size < hard {
            return None;
        }
        let found: Vec<(usize, u64)> = prune.savings(&self.messages, &self.nodes).collect();
        let characters = found.iter().filter_map(|(at, _)| self.messages.get(*at));
        let characters = characters.fold(0_u64, |sum, message| sum.saturating_add(estimate_tokens(message)));
        if characters.saturating_mul(CHARACTERS) < expiry.min_clear_characters {
            return None;
        }
        let (mut left, mut before) = (size, None);
        for (at, tokens) in found {
            if left < hard {
                break;
            }
            left = left.saturating_sub(self.corrected(tokens));
            before = self.nodes.get(at + 1).copied();
        }
        let prune = Prune { before: before?, ..prune };
        // A node that a compaction holds can be several messages.
        let is_useful = prune.savings(&self.messages, &self.nodes).next().is_some();
        is_useful.then_some(prune)
    }

    fn pointers_are_due(&self) -> Option<Prune> {
        let PruneSettings { enabled, trigger_percent, clear_at_least_percent, keep_turns, min_characters } =
            self.prune;
        let window = self.prefix.model.context_window;
        if !enabled || window == 0 || self.size() < percent(window, trigger_percent) {
            return None;
        }
        let end = last_turns(&self.messages, keep_turns)?;
        let found = self.messages.get(self.left.until..end)?.iter();
        let found = found.filter(|message| is_prunable(message, min_characters));
        let tokens = found.fold(0_u64, |sum, message| sum.saturating_add(sent_tokens(message)));
        let frees = self.corrected(tokens) >= percent(window, clear_at_least_percent).max(1);
        let before = *self.nodes.get(end)?;
        let (style, tools, from) = (PruneStyle::Pointer, ToolGlobs::default(), PruneStart::First);
        frees.then_some(Prune { before, min_characters, style, tools, from })
    }

    /// Before a call: records what the requests from here on leave out.
    pub(super) fn prune_before_call(&mut self) -> bool {
        let Some(prune) = self.prune_is_due() else { return false };
        let Some(run) = &mut self.run else { return false };
        run.phase = Phase::Committing;
        self.commit(Tag::Pruned, vec![Draft::new(Entry::Meta(prune.entry()))], Vec::new(), false);
        true
    }

    /// It is recorded: from here on requests are without.
    pub(super) fn prune_committed(&mut self, plan: &Plan, nodes: &[NodeId]) {
        let drafts = plan.drafts.iter().zip(nodes);
        let mut found = drafts.filter_map(|(draft, node)| match &*draft.entry {
            Entry::Meta(json) => Some((Prune::of_entry(json)?, *node)),
            _ => None,
        });
        let Some((prune, node)) = found.next_back() else { return };
        let tokens_before = self.size();
        let all = self.prefix_tokens.saturating_add(self.estimated);
        let results = self.left.out(&prune, &mut self.messages, &self.nodes, all);
        self.estimated = self.messages.iter().map(|message| sent_tokens(message)).sum();
        self.emit(Event::ContextPruned { node, results, tokens_before, tokens_after: self.size() });
        self.call_model();
    }

    /// An estimate as the last answer's count corrects it.
    pub(super) fn corrected(&self, tokens: u64) -> u64 {
        self.measured().map_or(tokens, |measured| measured.correct(tokens))
    }

    /// What was counted last, of this context or of one before it.
    pub(super) fn measured(&self) -> Option<Measure> {
        let all = self.prefix_tokens.saturating_add(self.estimated);
        let measured = measure(&self.messages, self.left.old, all).map(|(measured, _)| measured);
        measured.or(self.left.measured)
    }
}

fn percent(window: u64, percent: u64) -> u64 {
    u64::try_from(u128::from(window) * u128::from(percent) / 100).unwrap_or(u64::MAX)
}
