//! Loops of calls: the same call again and again, two calls in turn, a poll that finds nothing new, a tool that is not there.
//!
//! A detector belongs to one run. It is asked before each call and told each result; it knows digests alone.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

/// Calls between two warnings about the same loop.
const BUCKET: usize = 10;
/// Loops of a run whose warnings are remembered.
const MOST_WARNED: usize = 256;
/// Equal calls behind a compaction that are a loop.
const AFTER_COMPACTION: usize = 3;

/// When a loop is reported, and when it is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopSettings {
    /// Calls that are remembered.
    pub history_size: usize,
    /// Repetitions that are reported to the model.
    pub warning: usize,
    /// Calls of a tool that is not there in a row, after which further ones are rejected.
    pub unknown_tool: usize,
    /// Repetitions without progress after which a call is rejected.
    pub critical: usize,
    /// The same for every kind of call, whichever detectors are on.
    pub breaker: usize,
    /// The detectors.
    pub detectors: LoopDetectors,
}

/// Which kinds of loops are looked for, besides the breaker and tools that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopDetectors {
    /// One call again and again.
    pub generic_repeat: bool,
    /// A poll that finds nothing new.
    pub known_poll_no_progress: bool,
    /// Two calls in turn.
    pub ping_pong: bool,
}

impl Default for LoopSettings {
    fn default() -> Self {
        let detectors = LoopDetectors { generic_repeat: true, known_poll_no_progress: true, ping_pong: true };
        Self { history_size: 30, warning: 10, unknown_tool: 10, critical: 20, breaker: 30, detectors }
    }
}

impl LoopSettings {
    /// The same with numbers in their order: a warning comes before a rejection, and that before the breaker; the history holds
    /// what is counted.
    #[must_use]
    pub fn in_order(self) -> Self {
        let warning = self.warning.max(1);
        let critical = self.critical.max(warning + 1);
        let breaker = self.breaker.max(critical + 1);
        let unknown_tool = self.unknown_tool.max(1);
        let history_size = self.history_size.max(breaker).max(unknown_tool);
        Self { history_size, warning, unknown_tool, critical, breaker, ..self }
    }
}

/// The digest of arguments or of a result.
pub type LoopDigest = [u8; 32];

/// What kind of call it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopCallKind {
    /// It asks how something is that runs elsewhere.
    Poll,
    /// Its tool is not there.
    UnknownTool,
    /// Any other.
    Other,
}

/// A call that is about to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopCall<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its tool.
    pub tool: &'a str,
    /// Its arguments, whatever the order of their members.
    pub arguments: LoopDigest,
    /// Its kind.
    pub kind: LoopCallKind,
}

/// What is found before a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoopVerdict {
    /// It runs.
    Pass,
    /// It runs, and the model reads this behind its result.
    Warn(LoopFinding),
    /// It does not run, and the model reads this instead.
    Block(LoopFinding),
}

/// A loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFinding {
    /// Its form.
    pub kind: LoopKind,
    /// The tool of the call.
    pub tool: String,
    /// How often it was repeated.
    pub count: usize,
    /// Whether the call is rejected.
    pub is_critical: bool,
}

/// The form of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoopKind {
    /// A tool that is not there.
    UnknownTool,
    /// The same call with the same result, beyond all measure.
    Breaker,
    /// A poll that finds nothing new.
    PollWithoutProgress,
    /// Two calls in turn.
    PingPong,
    /// The same call again.
    Repeat,
    /// The same call with the same result right after a compaction.
    AfterCompaction,
}

impl fmt::Display for LoopFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, tool, count, is_critical } = self;
        if *is_critical {
            f.write_str("The call was not run, because this is a loop: ")?;
        } else {
            f.write_str("This may be a loop: ")?;
        }
        match kind {
            LoopKind::UnknownTool => {
                write!(f, "`{tool}` was called {count} times in a row, and there is no such tool.")?;
            }
            LoopKind::Breaker | LoopKind::AfterCompaction => {
                write!(f, "`{tool}` was called {count} times with the same arguments and the same result.")?;
            }
            LoopKind::PollWithoutProgress => {
                write!(f, "`{tool}` was asked {count} times and found nothing new.")?;
            }
            LoopKind::PingPong => {
                write!(f, "two calls were made in turn {count} times; one is this of `{tool}`.")?;
            }
            LoopKind::Repeat => write!(f, "`{tool}` was called {count} times with the same arguments.")?,
        }
        f.write_str(" Do something else, or say what keeps you from going on.")
    }
}

#[derive(Debug, Clone)]
struct CallRecord {
    id: String,
    tool: String,
    arguments: LoopDigest,
    result: Option<LoopDigest>,
    kind: LoopCallKind,
}

impl CallRecord {
    fn is_same(&self, call: &LoopCall<'_>) -> bool {
        self.tool == call.tool && self.arguments == call.arguments
    }
}

/// Watches the calls of one run.
#[derive(Debug, Clone)]
pub struct LoopDetector {
    settings: LoopSettings,
    history: VecDeque<CallRecord>,
    /// The bucket of the last warning of each loop, and the order in which they came to be.
    warned: BTreeMap<(LoopKind, String, LoopDigest), usize>,
    /// Results behind a compaction, while these are few.
    compacted: Option<Vec<(String, LoopDigest, LoopDigest)>>,
    /// Two calls in turn of which one was rejected, and how many there were, until something else is called.
    rejected: Option<(usize, [(String, LoopDigest); 2])>,
}

impl LoopDetector {
    /// The detector of a run that begins.
    pub fn new(settings: LoopSettings) -> Self {
        let settings = settings.in_order();
        Self { settings, history: VecDeque::new(), warned: BTreeMap::new(), compacted: None, rejected: None }
    }

    /// What is found before a call. One that is rejected is not remembered.
    pub fn before(&mut self, call: &LoopCall<'_>) -> LoopVerdict {
        match self.rejected_again(call).or_else(|| self.found(call)) {
            Some(finding) if finding.is_critical => {
                if finding.kind == LoopKind::PingPong
                    && let Some(other) = self.history.back().filter(|record| !record.is_same(call))
                {
                    let pair =
                        [(call.tool.to_owned(), call.arguments), (other.tool.clone(), other.arguments)];
                    self.rejected = Some((finding.count, pair));
                }
                LoopVerdict::Block(finding)
            }
            found => {
                self.rejected = None;
                self.remember(call);
                match found.filter(|finding| self.is_news(finding, call)) {
                    Some(finding) => LoopVerdict::Warn(finding),
                    None => LoopVerdict::Pass,
                }
            }
        }
    }

    /// A call is done, with this result.
    pub fn after(&mut self, id: &str, result: LoopDigest) {
        let Some(record) =
            self.history.iter_mut().rev().find(|record| record.id == id && record.result.is_none())
        else {
            return;
        };
        record.result = Some(result);
        if let Some(seen) = self.compacted.as_mut().filter(|seen| seen.len() < AFTER_COMPACTION) {
            seen.push((record.tool.clone(), record.arguments, result));
        }
    }

    /// The context was compacted: what the model repeats from here on, it may have forgotten.
    pub fn compacted(&mut self) {
        self.compacted = Some(Vec::new());
    }

    fn remember(&mut self, call: &LoopCall<'_>) {
        // The first calls behind a compaction were no loop, or the model did something else: from here on it is like any other time.
        self.compacted.take_if(|seen| seen.len() == AFTER_COMPACTION);
        self.history.push_back(CallRecord {
            id: call.id.to_owned(),
            tool: call.tool.to_owned(),
            arguments: call.arguments,
            result: None,
            kind: call.kind,
        });
        while self.history.len() > self.settings.history_size {
            self.history.pop_front();
        }
    }

    /// Whether a warning was not given yet for this loop at this size.
    fn is_news(&mut self, finding: &LoopFinding, call: &LoopCall<'_>) -> bool {
        let key = (finding.kind, call.tool.to_owned(), call.arguments);
        let bucket = finding.count / BUCKET + 1;
        let is_news = self.warned.get(&key).is_none_or(|before| *before < bucket);
        if is_news {
            if self.warned.len() >= MOST_WARNED && !self.warned.contains_key(&key) {
                self.warned.pop_first();
            }
            self.warned.insert(key, bucket);
        }
        is_news
    }

    /// The other one of two calls in turn does not bring the one back that was rejected.
    fn rejected_again(&self, call: &LoopCall<'_>) -> Option<LoopFinding> {
        let (count, pair) = self.rejected.as_ref()?;
        let is_one = pair.iter().any(|(tool, arguments)| tool == call.tool && *arguments == call.arguments);
        let (kind, tool) = (LoopKind::PingPong, call.tool.to_owned());
        is_one.then_some(LoopFinding { kind, tool, count: *count, is_critical: true })
    }

    fn found(&self, call: &LoopCall<'_>) -> Option<LoopFinding> {
        let LoopSettings { warning, unknown_tool, critical, breaker, detectors, .. } = self.settings;
        let finding = |kind, count, is_critical| {
            Some(LoopFinding { kind, tool: call.tool.to_owned(), count, is_critical })
        };
        if call.kind == LoopCallKind::UnknownTool {
            let of_it =
                |record: &&CallRecord| record.kind == LoopCallKind::UnknownTool && record.tool == call.tool;
            let count = self.history.iter().rev().take_while(of_it).count();
            return if count >= unknown_tool { finding(LoopKind::UnknownTool, count, true) } else { None };
        }
        if let Some(seen) = self.compacted.as_ref().filter(|seen| seen.len() == AFTER_COMPACTION)
            && seen.windows(2).all(|pair| pair[0] == pair[1])
            && seen
                .first()
                .is_some_and(|(tool, arguments, _)| tool == call.tool && *arguments == call.arguments)
        {
            return finding(LoopKind::AfterCompaction, AFTER_COMPACTION, true);
        }
        let streak = self.streak(call);
        if streak >= breaker {
            return finding(LoopKind::Breaker, streak, true);
        }
        if call.kind == LoopCallKind::Poll {
            if detectors.known_poll_no_progress && streak >= warning {
                return finding(LoopKind::PollWithoutProgress, streak, streak >= critical);
            }
            return None;
        }
        if detectors.ping_pong
            && let Some((turns, is_stuck)) = self.turns(call)
        {
            if turns >= critical && is_stuck {
                return finding(LoopKind::PingPong, turns, true);
            }
            if turns >= warning {
                return finding(LoopKind::PingPong, turns, false);
            }
        }
        if !detectors.generic_repeat {
            return None;
        }
        if streak >= critical {
            return finding(LoopKind::Repeat, streak, true);
        }
        let count = self.history.iter().filter(|record| record.is_same(call)).count();
        if count >= warning { finding(LoopKind::Repeat, count, false) } else { None }
    }

    /// How often in a row, from the newest on, the call had the same result.
    fn streak(&self, call: &LoopCall<'_>) -> usize {
        let mut results = self
            .history
            .iter()
            .rev()
            .filter(|record| record.is_same(call))
            .filter_map(|record| record.result);
        let Some(newest) = results.next() else { return 0 };
        1 + results.take_while(|result| *result == newest).count()
    }

    /// How many calls at the end, this one included, are two in turn; and whether each of the two always had one result.
    fn turns(&self, call: &LoopCall<'_>) -> Option<(usize, bool)> {
        let other = self.history.back().filter(|record| !record.is_same(call))?;
        let is_other = |record: &CallRecord| record.tool == other.tool && record.arguments == other.arguments;
        let mut count = 1;
        let (mut is_stuck, mut results) = (true, [None::<LoopDigest>, None]);
        for (at, record) in self.history.iter().rev().enumerate() {
            let fits = if at % 2 == 0 { is_other(record) } else { record.is_same(call) };
            if !fits {
                break;
            }
            count += 1;
            let Some(known) = results.get_mut(at % 2) else { break };
            match (record.result, *known) {
                (None, _) => is_stuck = false,
                (Some(result), Some(before)) => is_stuck &= result == before,
                (Some(result), None) => *known = Some(result),
            }
        }
        // One call between two others is no turn.
        (count > 2).then_some((count, is_stuck))
    }
}
