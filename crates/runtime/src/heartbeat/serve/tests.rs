use std::collections::VecDeque;

use quipu::Sealer;
use quipu::protocol::{SessionId, Usage};
use quipu::store::{JobPut, JobTime, Jobs, NewJob, OpenOptions, SqliteStore};
use quipu_host::SilentObserver;
use quipu_host::jobs::{DueRun, JobRunner};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::job::{HeartbeatJob, heartbeat_job};
use super::super::settings::HeartbeatSettings;
use super::*;
use crate::queue::{BusyMode, DropRule};

/// 2026-11-29T12:00:00Z.
const NOON: i64 = 1_795_953_600_000;

/// A clock that goes with tokio's, which can be held still.
struct TokioClock(Instant);

impl Clock for TokioClock {
    fn now(&self) -> UnixMs {
        NOON + i64::try_from(self.0.elapsed().as_millis()).unwrap()
    }
}

/// Answers messages at once, and keeps when they came.
#[derive(Default)]
struct Agent {
    answers: Mutex<VecDeque<Result<&'static str, RunError>>>,
    seen: Mutex<Vec<(i64, RunRequest)>>,
    is_busy: Mutex<bool>,
    alerts: Mutex<Vec<(String, String)>>,
    /// How many alerts are lost.
    lost: Mutex<usize>,
    ran: Notify,
}

impl HeartbeatRuns for Agent {
    fn load(&self, _: &SessionKey) -> AgentLoad {
        if *self.is_busy.lock().unwrap() { AgentLoad::Busy } else { AgentLoad::Idle }
    }

    fn run(&self, request: RunRequest) -> BoxFuture<'_, Result<Arc<RunOutcome>, RunError>> {
        self.seen.lock().unwrap().push((request.message.at - NOON, request));
        self.ran.notify_one();
        let answer = self.answers.lock().unwrap().pop_front().unwrap_or(Ok("HEARTBEAT_OK"));
        let outcome = answer.map(|text| {
            Arc::new(RunOutcome {
                session: SessionId::from("s"),
                outcome: Outcome::Done,
                text: text.to_owned(),
                usage: Usage::default(),
                last_usage: None,
                duration: Duration::ZERO,
                timed_out: false,
            })
        });
        Box::pin(std::future::ready(outcome))
    }
}

impl HeartbeatPlace for Agent {
    fn file<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, HeartbeatFile> {
        Box::pin(std::future::ready(HeartbeatFile::Text("- look".into())))
    }

    fn deliver<'a>(&'a self, key: &'a SessionKey, alert: String) -> BoxFuture<'a, AlertDelivery> {
        let mut lost = self.lost.lock().unwrap();
        let delivery = if *lost > 0 { AlertDelivery::Lost } else { AlertDelivery::Stored };
        *lost = lost.saturating_sub(1);
        self.alerts.lock().unwrap().push((key.to_string(), alert));
        Box::pin(std::future::ready(delivery))
    }
}

fn key() -> SessionKey {
    SessionKey::parse("agent:main:main").unwrap()
}

/// Heartbeats of one conversation, and the agent behind them.
fn world(settings: &HeartbeatSettings) -> (Heartbeats, Arc<Agent>) {
    let agent = Arc::new(Agent::default());
    let clock = Arc::new(TokioClock(Instant::now()));
    let beats = Heartbeats::new(agent.clone(), agent.clone(), clock);
    beats.set(key(), settings.resolve("UTC").unwrap());
    (beats, agent)
}

/// Serves for so long.
async fn serve_for(beats: &Heartbeats, time: Duration) {
    assert!(tokio::time::timeout(time, beats.serve()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn flood_of_wakes_runs_once_a_minute_and_twelve_times_an_hour() {
    let (beats, agent) = world(&HeartbeatSettings::default());
    let flood = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        for _ in 0..36_000 {
            ticks.tick().await;
            assert_eq!(beats.wake(&key(), WakeReason::Command), WakeOutcome::Woken);
        }
    };
    tokio::select! {
        () = beats.serve() => {}
        () = flood => {}
    }
    let times: Vec<i64> = agent.seen.lock().unwrap().iter().map(|(at, _)| at / 1_000).collect();
    assert_eq!(times, (0..12).map(|minute| minute * 60).collect::<Vec<_>>(), "{times:?}");
    let other = SessionKey::parse("agent:main:direct:x").unwrap();
    assert_eq!(beats.wake(&other, WakeReason::Command), WakeOutcome::Unknown);
}

#[tokio::test(start_paused = true)]
async fn heartbeat_runs_beside_its_conversation_without_rights() {
    let (beats, agent) = world(&HeartbeatSettings::default());
    agent.answers.lock().unwrap().extend([
        Ok("The disk is full."),
        Ok("The disk is full."),
        Err(RunError::Closed),
    ]);
    beats.wake(&key(), WakeReason::Job);
    serve_for(&beats, Duration::from_secs(1)).await;
    {
        let seen = agent.seen.lock().unwrap();
        let (at, RunRequest { key, message, policy }) = &seen[0];
        assert_eq!((*at, &*key.to_string()), (250, "agent:main:main:heartbeat"));
        assert!(!message.authority.is_owner && message.input.provenance.author == AuthorClass::System);
        assert_eq!((policy.mode, policy.cap, policy.drop), (BusyMode::Followup, 1, DropRule::New));
        assert!(message.input.text().contains("HEARTBEAT.md"));
    }
    // The same is not said twice, and what fails is tried later.
    for _ in 0..2 {
        beats.wake(&key(), WakeReason::Job);
        serve_for(&beats, Duration::from_secs(61)).await;
    }
    beats.wake(&key(), WakeReason::Job);
    serve_for(&beats, Duration::from_secs(119)).await;
    let times: Vec<i64> = agent.seen.lock().unwrap().iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [250, 60_250, 120_250, 240_250]);
    assert_eq!(
        *agent.alerts.lock().unwrap(),
        [("agent:main:main".to_owned(), "The disk is full.".to_owned())]
    );
}

#[tokio::test(start_paused = true)]
async fn alert_that_could_not_be_stored_is_delivered_later() {
    let (beats, agent) = world(&HeartbeatSettings::default());
    agent.answers.lock().unwrap().extend([const { Ok("The disk is full.") }; 3]);
    *agent.lost.lock().unwrap() = 1;
    for _ in 0..3 {
        beats.wake(&key(), WakeReason::Request);
        serve_for(&beats, Duration::from_secs(61)).await;
    }
    assert_eq!(agent.seen.lock().unwrap().len(), 3);
    assert_eq!(agent.alerts.lock().unwrap().len(), 2, "the first was lost, the third is the second again");
}

#[tokio::test(start_paused = true)]
async fn busy_agent_is_tried_again_each_second() {
    let (beats, agent) = world(&HeartbeatSettings::default());
    *agent.is_busy.lock().unwrap() = true;
    beats.wake(&key(), WakeReason::Interval);
    serve_for(&beats, Duration::from_millis(3_500)).await;
    assert!(agent.seen.lock().unwrap().is_empty());
    *agent.is_busy.lock().unwrap() = false;
    serve_for(&beats, Duration::from_secs(1)).await;
    assert_eq!(agent.seen.lock().unwrap()[0].0, 4_250);
}

#[tokio::test]
async fn job_wakes_its_heartbeat_and_is_due_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteStore::open(&dir.path().join("quipu.db"), &OpenOptions::default()).unwrap());
    let (beats, agent) =
        world(&HeartbeatSettings { every: Some("1h".into()), ..HeartbeatSettings::default() });
    let job = heartbeat_job(&key(), &beats.rules(&key()).unwrap()).unwrap();
    let (name, due) = (job.key.clone(), NewJob { due: JobTime::At(NOON), ..job.clone() });
    let began = Arc::new(TokioClock(Instant::now()));
    store.put_job(job, began.now() - 3_600_000).await.unwrap();
    let handler = Arc::new(HeartbeatJob::new(beats.clone()));
    let runner = JobRunner::new(
        store.clone(),
        vec![handler],
        Arc::new(SilentObserver),
        Arc::new(Sealer::new([7; 32])),
    )
    .with_clock(began.clone());
    let stop = CancellationToken::new();
    assert_eq!(runner.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 1, failed: 0 });
    tokio::select! {
        () = beats.serve() => {}
        () = agent.ran.notified() => {}
    }
    assert_eq!(agent.seen.lock().unwrap().len(), 1);
    let again = store.job(&name).await.unwrap().unwrap();
    assert!((again.due - began.now() - 3_600_000).abs() < 60_000, "{again:?}");
    // The same again changes nothing; another interval begins anew.
    let every = |every: &str| {
        let settings = HeartbeatSettings { every: Some(every.into()), ..HeartbeatSettings::default() };
        heartbeat_job(&key(), &settings.resolve("UTC").unwrap()).unwrap()
    };
    assert_eq!(store.put_job(every("1h"), began.now()).await.unwrap(), JobPut::Unchanged);
    assert_eq!(store.put_job(every("2h"), began.now()).await.unwrap(), JobPut::Replaced);
    // Switched off, the job goes.
    beats.remove(&key());
    store.cancel_job(&name).await.unwrap();
    store.put_job(due, began.now()).await.unwrap();
    assert_eq!(runner.run_due(&stop).await.unwrap(), DueRun::Ran { finished: 1, failed: 0 });
    assert_eq!(store.job(&name).await.unwrap(), None);
    let off = HeartbeatSettings { every: Some("0m".into()), ..HeartbeatSettings::default() };
    assert!(heartbeat_job(&key(), &off.resolve("UTC").unwrap()).is_none());
}
