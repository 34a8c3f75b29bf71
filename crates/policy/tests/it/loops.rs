//! Loops of calls: when they are reported, and when they are broken.

use proptest::prelude::*;
use quipu_policy::{
    LoopCall, LoopCallKind, LoopDetector, LoopDetectors, LoopDigest, LoopKind, LoopSettings, LoopVerdict,
};

/// A run with calls that are done at once.
struct Run {
    detector: LoopDetector,
    made: usize,
}

impl Run {
    fn new(settings: LoopSettings) -> Self {
        Self { detector: LoopDetector::new(settings), made: 0 }
    }

    fn calls(&mut self, tool: &str, arguments: u8, result: Option<u8>) -> LoopVerdict {
        let kind = match tool {
            "poll" => LoopCallKind::Poll,
            "nobody" => LoopCallKind::UnknownTool,
            _ => LoopCallKind::Other,
        };
        let id = self.made.to_string();
        self.made += 1;
        let verdict = self.detector.before(&LoopCall { id: &id, tool, arguments: digest(arguments), kind });
        if let (Some(result), false) = (result, matches!(verdict, LoopVerdict::Block(_))) {
            self.detector.after(&id, digest(result));
        }
        verdict
    }
}

fn digest(value: u8) -> LoopDigest {
    [value; 32]
}

/// The form and the number of what is found: `w` for a warning, `b` for a rejected call.
fn short(verdict: &LoopVerdict) -> String {
    match verdict {
        LoopVerdict::Pass => "-".to_owned(),
        LoopVerdict::Warn(finding) => format!("w{:?}{}", finding.kind, finding.count),
        LoopVerdict::Block(finding) => format!("b{:?}{}", finding.kind, finding.count),
    }
}

fn found(
    run: &mut Run,
    count: usize,
    mut call: impl FnMut(&mut Run, usize) -> LoopVerdict,
) -> Vec<(usize, String)> {
    let all = (0..count).map(|at| (at, short(&call(run, at))));
    all.filter(|(_, verdict)| verdict != "-").collect()
}

fn told(at: usize, what: &str) -> (usize, String) {
    (at, what.to_owned())
}

#[test]
fn repeated_call_is_reported_then_rejected() {
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 23, |run, _| run.calls("read", 1, Some(1)));
    let rejected = |at| told(at, "bRepeat20");
    assert_eq!(seen, [told(10, "wRepeat10"), rejected(20), rejected(21), rejected(22)]);
    // Something else runs, and so does the call once its result was another one.
    assert_eq!(run.calls("read", 2, Some(1)), LoopVerdict::Pass);
}

#[test]
fn repeated_call_with_progress_is_reported_alone() {
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 60, |run, at| run.calls("read", 1, u8::try_from(at % 250).ok()));
    // The window holds 31 calls.
    assert_eq!(seen, [told(10, "wRepeat10"), told(20, "wRepeat20"), told(30, "wRepeat30")]);
}

#[test]
fn poll_without_news_is_reported_then_rejected() {
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 22, |run, _| run.calls("poll", 1, Some(1)));
    let (warned, first, second) = (
        told(10, "wPollWithoutProgress10"),
        told(20, "bPollWithoutProgress20"),
        told(21, "bPollWithoutProgress20"),
    );
    assert_eq!(seen, [warned, first, second]);
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 60, |run, at| run.calls("poll", 1, u8::try_from(at % 250).ok()));
    assert_eq!(seen, [], "a poll that finds something new may go on");
}

#[test]
fn two_calls_in_turn_are_reported_then_rejected() {
    let mut run = Run::new(LoopSettings::default());
    let seen =
        found(&mut run, 60, |run, at| run.calls("read", u8::from(at % 2 == 0), Some(u8::from(at % 2 == 0))));
    assert_eq!(seen[0], told(9, "wPingPong10"));
    let rejected: Vec<_> = (19..60).map(|at| told(at, "bPingPong20")).collect();
    assert!(seen.ends_with(&rejected), "{seen:?}");
    assert_eq!(run.calls("read", 7, Some(1)), LoopVerdict::Pass);
    assert_eq!(run.calls("read", 0, Some(0)), LoopVerdict::Pass, "something else was called meanwhile");
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 25, |run, at| run.calls("read", u8::from(at % 2 == 0), u8::try_from(at).ok()));
    assert!(seen.iter().all(|(_, what)| what.starts_with('w')), "progress on both sides: {seen:?}");
}

#[test]
fn unknown_tool_is_rejected_after_its_streak() {
    let mut run = Run::new(LoopSettings::default());
    let seen = found(&mut run, 12, |run, at| run.calls("nobody", u8::try_from(at).unwrap(), None));
    assert_eq!(seen, [told(10, "bUnknownTool10"), told(11, "bUnknownTool10")]);
    run.calls("read", 1, Some(1));
    assert_eq!(run.calls("nobody", 1, None), LoopVerdict::Pass, "another call ends the streak");
}

#[test]
fn breaker_holds_without_detectors() {
    let detectors = LoopDetectors { generic_repeat: false, known_poll_no_progress: false, ping_pong: false };
    let settings = LoopSettings { detectors, ..LoopSettings::default() };
    for tool in ["read", "poll"] {
        let mut run = Run::new(settings);
        let seen = found(&mut run, 31, |run, _| run.calls(tool, 1, Some(1)));
        assert_eq!(seen, [told(30, "bBreaker30")]);
    }
}

#[test]
fn same_call_right_after_a_compaction_is_rejected() {
    let mut run = Run::new(LoopSettings::default());
    run.detector.compacted();
    let seen = found(&mut run, 4, |run, _| run.calls("read", 1, Some(1)));
    assert_eq!(seen, [told(3, "bAfterCompaction3")]);
    let mut run = Run::new(LoopSettings::default());
    run.detector.compacted();
    run.calls("read", 2, Some(1));
    assert_eq!(found(&mut run, 4, |run, _| run.calls("read", 1, Some(1))), []);
}

#[test]
fn call_behind_a_compaction_runs_again_once_another_was_made() {
    let mut run = Run::new(LoopSettings::default());
    run.detector.compacted();
    assert_eq!(found(&mut run, 3, |run, _| run.calls("bash", 1, Some(1))), []);
    assert_eq!(short(&run.calls("bash", 1, Some(1))), "bAfterCompaction3");
    assert_eq!(short(&run.calls("edit", 2, Some(1))), "-");
    assert_eq!(found(&mut run, 3, |run, _| run.calls("bash", 1, Some(2))), []);
}

#[test]
fn numbers_are_put_into_their_order() {
    let wild = LoopSettings {
        history_size: 0,
        warning: 0,
        unknown_tool: 0,
        critical: 0,
        breaker: 0,
        ..LoopSettings::default()
    };
    let settings = wild.in_order();
    assert_eq!((settings.warning, settings.critical, settings.breaker), (1, 2, 3));
    assert_eq!((settings.unknown_tool, settings.history_size), (1, 3));
    let verdict = {
        let mut run = Run::new(wild);
        run.calls("read", 1, Some(1));
        run.calls("read", 1, Some(1));
        run.calls("read", 1, Some(1))
    };
    let LoopVerdict::Block(finding) = verdict else { panic!("{verdict:?}") };
    assert_eq!(finding.kind, LoopKind::Repeat);
    assert_eq!(
        finding.to_string(),
        "The call was not run, because this is a loop: `read` was called 2 times with the same arguments. Do something \
         else, or say what keeps you from going on."
    );
}

proptest! {
    #[test]
    fn different_calls_are_no_loop(count in 1..200usize) {
        let mut run = Run::new(LoopSettings::default());
        for at in 0..count {
            // Neither two in turn nor ten equal ones in the window.
            let verdict = run.calls("read", u8::try_from(at % 7).unwrap(), Some(1));
            prop_assert_eq!(verdict, LoopVerdict::Pass);
        }
    }

    #[test]
    fn rejected_calls_are_critical_and_counted(calls in prop::collection::vec((0..3u8, 0..2u8), 0..120)) {
        let mut run = Run::new(LoopSettings { warning: 3, critical: 5, ..LoopSettings::default() });
        for (arguments, result) in calls {
            match run.calls("read", arguments, Some(result)) {
                LoopVerdict::Pass => {}
                LoopVerdict::Warn(finding) => prop_assert!(!finding.is_critical && finding.count >= 3),
                LoopVerdict::Block(finding) => prop_assert!(finding.is_critical && finding.count >= 5),
            }
        }
    }
}
