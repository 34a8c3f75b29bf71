//! The jobs of heartbeats in the store: those of the server, and those of other programs.

use super::conversations::*;
use super::*;
use quipu_store::{
    ClaimOutcome, Job, JobFailurePlan, JobState, JobTime, Jobs as _, NewJob, OpenOptions, Owner,
    RunnerLeaseOutcome, SqliteStore,
};

/// The kind of the jobs of heartbeats.
const KIND: &str = "heartbeat";

/// A world whose agent has a heartbeat once a day.
fn beating(script: impl IntoIterator<Item = Reply>) -> World {
    world_with(script, &json!({ "agents": { "byId": { "main": { "heartbeat": { "every": "24h" } } } } }))
}

fn store(world: &World) -> SqliteStore {
    SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap()
}

/// The job of the heartbeat of a conversation, once it is as it is waited for; `None` where there is none any more.
async fn job(store: &SqliteStore, key: &str, is_there: impl Fn(&Job) -> bool) -> Option<Job> {
    let key = format!("{KIND}/{key}").into();
    let until = std::time::Instant::now() + LIMIT;
    loop {
        let job = store.job(&key).await.unwrap()?;
        if is_there(&job) {
            return Some(job);
        }
        assert!(std::time::Instant::now() < until, "{job:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_job_of_another_program_stands() {
    let world = beating([]);
    let store = store(&world);
    let other = "agent:main:direct:anna";
    let payload = json!({ "conversation": other, "everyMs": 3_600_000 }).to_string();
    let key = format!("{KIND}/{other}").into();
    let due = NewJob { key, kind: KIND.into(), payload, due: JobTime::At(1), attempt_limit: 3 };
    let now = quipu_host::now();
    store.put_job(due, now).await.unwrap();
    let server = Server::start(&world);
    let job = job(&store, other, |job| job.due > 1).await.expect("the server took it away");
    assert!(job.due >= now + 3_600_000 && job.state == JobState::Waiting, "{job:?}");
    drop(store);
    server.ends(Signal::SIGTERM, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeat_job_that_failed_is_tried_again() {
    let world = beating([says("The disk is full.")]);
    let server = Server::start(&world);
    let list = || world.run(&["schedule", "list", "--json"]).ok().json_lines();
    while list().is_empty() {}
    server.ends(Signal::SIGTERM, 0);
    let store = store(&world);
    let (now, ttl) = (quipu_host::now(), Duration::from_secs(30));
    store.retry_job(&format!("{KIND}/{MAIN}").into(), now).await.unwrap();
    let leads = store.lead_jobs(&Owner("test".into()), now, ttl).await.unwrap();
    let RunnerLeaseOutcome::Granted(lease) = leads else { panic!("{leads:?}") };
    let ClaimOutcome::Job(claim) = store.claim_job(&lease, &[KIND], now, ttl).await.unwrap() else {
        panic!("nothing is due")
    };
    let failed = store.fail_job(&claim, "it broke", JobFailurePlan::Stop, now).await.unwrap();
    assert_eq!(failed, JobState::Failed);
    store.resign_jobs(&lease).await.unwrap();
    let server = Server::start(&world);
    job(&store, MAIN, |job| job.state != JobState::Failed).await.unwrap();
    drop(store);
    let alert = Reader::of(&server, MAIN).reply();
    assert_eq!(alert["text"], "The disk is full.", "{alert}");
    server.ends(Signal::SIGTERM, 0);
}
