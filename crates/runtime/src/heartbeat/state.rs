//! One heartbeat: what woke it, when it may run, and what of its answers people get.

use std::collections::{BTreeSet, VecDeque};

use quipu_protocol::UnixMs;

use super::reply::{HeartbeatAnswer, asks_for_nothing, heartbeat_answer};
use super::settings::{BusyRule, HeartbeatRules};
use crate::run::AgentLoad;

/// How long further reasons are waited for.
const COALESCE: i64 = 250;
/// When one that met a busy agent is tried again.
const BUSY_RETRY: i64 = 1_000;
/// How long lies between two runs at least, whatever the reasons.
const GAP: i64 = 60_000;
/// How long it gets at most by failures.
const LONGEST_GAP: i64 = 6 * HOUR;
/// Runs in an hour at most, whatever the reasons.
const RUNS_AN_HOUR: usize = 12;
const HOUR: i64 = 3_600_000;
/// How long the same alert is not said again.
const SAME_ALERT: i64 = 24 * HOUR;

/// What wakes a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WakeReason {
    /// Its time has come.
    Interval,
    /// A command in the background ended.
    Command,
    /// A job has something to report.
    Job,
    /// A hook was called.
    Hook,
    /// A person or a program asked for it.
    Request,
}

/// What is known of HEARTBEAT.md.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatFile {
    /// It is not there.
    Missing,
    /// What it says.
    Text(String),
}

/// Why a heartbeat does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// Heartbeats are off.
    Off,
    /// It is not the time of the day for them.
    QuietHours,
    /// The agent is busy.
    Busy,
    /// HEARTBEAT.md is there and asks for nothing.
    NothingAsked,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatStep {
    /// Nothing before this time; nothing at all where there is none.
    Wait(Option<UnixMs>),
    /// It does not run, and what woke it is forgotten.
    Skip(SkipReason),
    /// It runs, for these reasons. [`Heartbeat::answered`] or [`Heartbeat::failed`] ends it.
    Run(BTreeSet<WakeReason>),
}

/// What becomes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeartbeatReply {
    /// Nothing needs attention; nobody is told.
    Silent,
    /// The same was said within a day; nobody is told again.
    Duplicate,
    /// People get this.
    Alert(String),
}

/// One heartbeat. Time comes in as an argument; clocks that are set back make nothing wait longer than a clock that goes on.
#[derive(Debug, Clone)]
pub struct Heartbeat {
    rules: HeartbeatRules,
    pending: Option<PendingWake>,
    /// When it ran, within an hour.
    runs: VecDeque<UnixMs>,
    is_running: bool,
    /// How many runs failed since one did not.
    failures: u32,
    /// What people got last, and when.
    alert: Option<(String, UnixMs)>,
}

/// What woke it.
#[derive(Debug, Clone)]
struct PendingWake {
    reasons: BTreeSet<WakeReason>,
    /// When it came.
    since: UnixMs,
    /// How long after that it is looked at.
    wait: i64,
}

impl Heartbeat {
    /// One that has never run.
    #[must_use]
    pub fn new(rules: HeartbeatRules) -> Self {
        Self { rules, pending: None, runs: VecDeque::new(), is_running: false, failures: 0, alert: None }
    }

    /// Its rules.
    #[must_use]
    pub fn rules(&self) -> &HeartbeatRules {
        &self.rules
    }

    /// Other rules from now on. What ran and what was said last still count.
    pub fn set_rules(&mut self, rules: HeartbeatRules) {
        self.rules = rules;
    }

    /// Something wakes it. Reasons that come together are answered together.
    pub fn wake(&mut self, reason: WakeReason, now: UnixMs) {
        let pending = self.pending.get_or_insert_with(|| PendingWake {
            reasons: BTreeSet::new(),
            since: now,
            wait: COALESCE,
        });
        pending.reasons.insert(reason);
    }

    /// When [`Heartbeat::step`] has something to do.
    pub fn due(&mut self, now: UnixMs) -> Option<UnixMs> {
        if self.is_running {
            return None;
        }
        self.forget_the_future(now);
        let pending = self.pending.as_ref()?;
        Some(pending.since.saturating_add(pending.wait).max(self.allowed()))
    }

    /// What is to be done now.
    pub fn step(&mut self, now: UnixMs, load: AgentLoad, file: &HeartbeatFile) -> HeartbeatStep {
        let Some(due) = self.due(now) else { return HeartbeatStep::Wait(None) };
        if due > now {
            return HeartbeatStep::Wait(Some(due));
        }
        let Some(mut pending) = self.pending.take() else { return HeartbeatStep::Wait(None) };
        if self.rules.every.is_none() {
            return HeartbeatStep::Skip(SkipReason::Off);
        }
        if self.rules.hours.as_ref().is_some_and(|hours| !hours.has(now)) {
            return HeartbeatStep::Skip(SkipReason::QuietHours);
        }
        let is_regular = pending.reasons.iter().all(|reason| *reason == WakeReason::Interval);
        if let HeartbeatFile::Text(text) = file
            && is_regular
            && asks_for_nothing(text)
        {
            return HeartbeatStep::Skip(SkipReason::NothingAsked);
        }
        match (load, self.rules.when_busy) {
            (AgentLoad::Idle, _) => {}
            (AgentLoad::Busy, BusyRule::Skip) => return HeartbeatStep::Skip(SkipReason::Busy),
            (AgentLoad::Busy, BusyRule::Retry) => {
                (pending.since, pending.wait) = (now, BUSY_RETRY);
                self.pending = Some(pending);
                return HeartbeatStep::Wait(Some(now.saturating_add(BUSY_RETRY)));
            }
        }
        self.is_running = true;
        self.runs.push_back(now);
        HeartbeatStep::Run(pending.reasons)
    }

    /// The run ended in an answer. An alert is said again until [`Heartbeat::delivered`] says that people get it.
    pub fn answered(&mut self, text: &str, now: UnixMs) -> HeartbeatReply {
        self.is_running = false;
        self.failures = 0;
        self.forget_the_future(now);
        let HeartbeatAnswer::Alert(alert) = heartbeat_answer(text, self.rules.ack_chars) else {
            return HeartbeatReply::Silent;
        };
        match &self.alert {
            Some((last, at)) if *last == plain(&alert) && now.saturating_sub(*at) < SAME_ALERT => {
                HeartbeatReply::Duplicate
            }
            _ => HeartbeatReply::Alert(alert),
        }
    }

    /// People get this alert: it is not said again for a day.
    pub fn delivered(&mut self, alert: &str, now: UnixMs) {
        self.alert = Some((plain(alert), now));
    }

    /// The run ended without one. Each failure in a row doubles the time to the next run, up to six hours.
    pub fn failed(&mut self) {
        self.is_running = false;
        self.failures = self.failures.saturating_add(1);
    }

    /// Nobody waits for the run any more.
    pub fn give_up(&mut self) {
        self.is_running = false;
    }

    /// When the next run may be, by those before it.
    fn allowed(&self) -> UnixMs {
        let gap =
            GAP.saturating_mul(1_i64.checked_shl(self.failures.min(20)).unwrap_or(i64::MAX)).min(LONGEST_GAP);
        let after_last = self.runs.back().map_or(UnixMs::MIN, |last| last.saturating_add(gap));
        let first = self.runs.len().checked_sub(RUNS_AN_HOUR).and_then(|at| self.runs.get(at));
        let in_hour = first.map_or(UnixMs::MIN, |first| first.saturating_add(HOUR));
        after_last.max(in_hour)
    }

    /// What is in the future was written by a clock that was set back since: it counts as now.
    fn forget_the_future(&mut self, now: UnixMs) {
        if let Some(pending) = &mut self.pending {
            pending.since = pending.since.min(now);
        }
        for run in &mut self.runs {
            *run = (*run).min(now);
        }
        if let Some((_, at)) = &mut self.alert {
            *at = (*at).min(now);
        }
        // The newest stays, for failures make the gap longer than an hour.
        while self.runs.len() > RUNS_AN_HOUR {
            self.runs.pop_front();
        }
    }
}

/// An alert by which the same one is known again, however its lines are broken.
fn plain(alert: &str) -> String {
    alert.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::super::settings::HeartbeatSettings;
    use super::*;

    const NOON: i64 = 1_795_953_600_000;

    fn rules() -> HeartbeatRules {
        HeartbeatSettings::default().resolve("UTC").unwrap()
    }

    fn file() -> HeartbeatFile {
        HeartbeatFile::Text("- look at the mail".into())
    }

    fn run(reasons: &[WakeReason]) -> HeartbeatStep {
        HeartbeatStep::Run(reasons.iter().copied().collect())
    }

    #[test]
    fn reasons_that_come_together_run_once() {
        let mut beat = Heartbeat::new(rules());
        assert_eq!(beat.step(NOON, AgentLoad::Idle, &file()), HeartbeatStep::Wait(None));
        beat.wake(WakeReason::Command, NOON);
        beat.wake(WakeReason::Job, NOON + 200);
        beat.wake(WakeReason::Command, NOON + 249);
        assert_eq!(beat.step(NOON + 249, AgentLoad::Idle, &file()), HeartbeatStep::Wait(Some(NOON + 250)));
        assert_eq!(
            beat.step(NOON + 250, AgentLoad::Idle, &file()),
            run(&[WakeReason::Command, WakeReason::Job])
        );
        // What comes meanwhile waits for the end, and for the gap.
        beat.wake(WakeReason::Hook, NOON + 300);
        assert_eq!(beat.due(NOON + 400), None);
        assert_eq!(beat.answered("HEARTBEAT_OK", NOON + 500), HeartbeatReply::Silent);
        assert_eq!(beat.due(NOON + 500), Some(NOON + 250 + 60_000));
        assert_eq!(beat.step(NOON + 60_250, AgentLoad::Idle, &file()), run(&[WakeReason::Hook]));
    }

    #[test]
    fn heartbeat_is_skipped_for_each_reason() {
        let skip = |rules: HeartbeatRules, reason, load, file: HeartbeatFile| {
            let mut beat = Heartbeat::new(rules);
            beat.wake(reason, NOON);
            let step = beat.step(NOON + 250, load, &file);
            (step, beat.due(NOON + 250))
        };
        let empty = || HeartbeatFile::Text("# Heartbeat\n- \n".into());
        let skipped = |why| (HeartbeatStep::Skip(why), None);
        let off = HeartbeatRules { every: None, ..rules() };
        assert_eq!(skip(off, WakeReason::Request, AgentLoad::Idle, file()), skipped(SkipReason::Off));
        let hours = Some(quipu_schedule::ActiveHours::of("13:00", "14:00", "UTC").unwrap());
        let quiet = HeartbeatRules { hours, ..rules() };
        assert_eq!(
            skip(quiet, WakeReason::Command, AgentLoad::Idle, file()),
            skipped(SkipReason::QuietHours)
        );
        let regular = WakeReason::Interval;
        assert_eq!(skip(rules(), regular, AgentLoad::Idle, empty()), skipped(SkipReason::NothingAsked));
        // Something else that happened is looked at, and so is a workspace without the file.
        assert_eq!(
            skip(rules(), WakeReason::Command, AgentLoad::Idle, empty()).0,
            run(&[WakeReason::Command])
        );
        assert_eq!(skip(rules(), regular, AgentLoad::Idle, HeartbeatFile::Missing).0, run(&[regular]));
        let (step, due) = skip(rules(), regular, AgentLoad::Busy, file());
        assert_eq!((step, due), (HeartbeatStep::Wait(Some(NOON + 1_250)), Some(NOON + 1_250)));
        let strict = HeartbeatRules { when_busy: BusyRule::Skip, ..rules() };
        assert_eq!(skip(strict, regular, AgentLoad::Busy, file()), skipped(SkipReason::Busy));
    }

    #[test]
    fn same_alert_is_said_once_a_day() {
        let mut beat = Heartbeat::new(rules());
        let alert = |text: &str| HeartbeatReply::Alert(text.to_owned());
        let mut says = |text: &str, now: i64| {
            let reply = beat.answered(text, now);
            if let HeartbeatReply::Alert(alert) = &reply {
                beat.delivered(alert, now);
            }
            reply
        };
        assert_eq!(says("The disk  is full.", NOON), alert("The disk  is full."));
        assert_eq!(says("The disk is\nfull.", NOON + 1), HeartbeatReply::Duplicate);
        assert_eq!(says("HEARTBEAT_OK", NOON + 2), HeartbeatReply::Silent);
        assert_eq!(says("The disk is full.", NOON + 24 * HOUR - 1), HeartbeatReply::Duplicate);
        assert_eq!(says("The disk is full.", NOON + 24 * HOUR), alert("The disk is full."));
        assert_eq!(says("The house burns.", NOON + 24 * HOUR), alert("The house burns."));
        // After the clock went back it is the same for no longer than a day.
        assert_eq!(says("The house burns.", NOON), HeartbeatReply::Duplicate);
        assert_eq!(says("The house burns.", NOON + 24 * HOUR), alert("The house burns."));
    }

    #[test]
    fn alert_that_nobody_got_is_said_again() {
        let mut beat = Heartbeat::new(rules());
        let alert = HeartbeatReply::Alert("The disk is full.".to_owned());
        assert_eq!(beat.answered("The disk is full.", NOON), alert);
        assert_eq!(beat.answered("The disk is full.", NOON + 60_000), alert);
        beat.delivered("The disk is full.", NOON + 60_000);
        assert_eq!(beat.answered("The disk is full.", NOON + 120_000), HeartbeatReply::Duplicate);
    }

    #[test]
    fn failures_in_a_row_make_it_rarer() {
        let mut beat = Heartbeat::new(rules());
        let mut now = NOON;
        for minutes in [2, 4, 8, 16, 32, 64, 128, 256, 360, 360] {
            beat.wake(WakeReason::Command, now);
            now = beat.due(now).unwrap();
            assert!(matches!(beat.step(now, AgentLoad::Idle, &file()), HeartbeatStep::Run(_)));
            beat.failed();
            beat.wake(WakeReason::Command, now);
            assert_eq!(beat.due(now), Some(now + minutes * 60_000));
        }
        now = beat.due(now).unwrap();
        assert!(matches!(beat.step(now, AgentLoad::Idle, &file()), HeartbeatStep::Run(_)));
        beat.answered("HEARTBEAT_OK", now);
        beat.wake(WakeReason::Command, now);
        assert_eq!(beat.due(now), Some(now + 60_000));
    }

    #[test]
    fn clock_that_goes_back_makes_nothing_wait_longer() {
        let mut beat = Heartbeat::new(rules());
        beat.wake(WakeReason::Interval, NOON + 365 * 24 * HOUR);
        assert_eq!(beat.due(NOON), Some(NOON + 250));
        assert_eq!(beat.step(NOON + 250, AgentLoad::Idle, &file()), run(&[WakeReason::Interval]));
        beat.answered("HEARTBEAT_OK", NOON + 250);
        beat.wake(WakeReason::Interval, NOON - 24 * HOUR);
        assert_eq!(beat.due(NOON - 24 * HOUR), Some(NOON - 24 * HOUR + 60_000));
    }

    proptest! {
        #[test]
        fn flood_of_wakes_is_bounded_for_every_reason(
            wakes in proptest::collection::vec((0_usize..5, 0_i64..120_000), 1..400),
            every in 1_u64..7_200,
        ) {
            let reasons = [WakeReason::Interval, WakeReason::Command, WakeReason::Job, WakeReason::Hook, WakeReason::Request];
            let mut beat = Heartbeat::new(HeartbeatRules { every: Some(Duration::from_secs(every)), ..rules() });
            let (mut now, mut ran, mut waits) = (NOON, Vec::new(), false);
            for (reason, pause) in wakes {
                beat.wake(reasons[reason], now);
                waits = true;
                let end = now + pause;
                while let Some(due) = beat.due(now).filter(|due| *due <= end) {
                    now = now.max(due);
                    if let HeartbeatStep::Run(_) = beat.step(now, AgentLoad::Idle, &file()) {
                        ran.push(now);
                        waits = false;
                        beat.answered("HEARTBEAT_OK", now);
                    }
                }
                now = end;
            }
            prop_assert!(ran.windows(2).all(|two| two[1] - two[0] >= GAP));
            prop_assert!(ran.windows(RUNS_AN_HOUR + 1).all(|many| many[RUNS_AN_HOUR] - many[0] >= HOUR));
            // None is lost.
            prop_assert_eq!(waits, beat.due(now).is_some());
        }
    }
}
