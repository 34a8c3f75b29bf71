//! The log of what jobs did.

use quipu_store::{
    JOB_RUN_TEXT, JOB_RUNS_EACH, JobDelivery, JobRunChange, JobRunState, JobRuns as _, NewJobRun, SqliteStore,
};

use crate::support::*;

fn run(key: &str, due: i64) -> NewJobRun {
    NewJobRun { key: key.into(), due, attempt: 1, target: "terminal".into(), began: T }
}

#[tokio::test]
async fn run_log_is_bounded_and_tells_each_answer_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quipu.db");
    let store = open(&path);
    // Nothing is made before there is a run.
    assert_eq!(store.job_runs(None, None, 10).await.unwrap(), []);
    assert_eq!(store.take_job_runs("terminal", 10).await.unwrap(), []);
    let table = "SELECT count(*) FROM sqlite_master WHERE name = 'quipu_job_run'";
    let tables: i64 =
        rusqlite::Connection::open(&path).unwrap().query_row(table, [], |row| row.get(0)).unwrap();
    assert_eq!(tables, 0);
    let first = store.begin_job_run(run("a", 1)).await.unwrap();
    let second = store.begin_job_run(run("a", 2)).await.unwrap();
    let other = store.begin_job_run(run("b", 1)).await.unwrap();
    let long = "ä".repeat(JOB_RUN_TEXT);
    let change = JobRunChange {
        session: Some("s-1".into()),
        ended: Some((JobRunState::Done, T + 5)),
        cost: Some(0.25),
        text: Some(long),
        delivery: Some(JobDelivery::Pending),
    };
    store.change_job_run(second, change).await.unwrap();
    store.change_job_run(4711, JobRunChange { cost: Some(1.0), ..JobRunChange::default() }).await.unwrap();
    drop(store);
    let store: SqliteStore = open(&path);
    let runs = store.job_runs(Some(&"a".into()), None, 10).await.unwrap();
    assert_eq!(
        runs.iter().map(|run| (run.id, run.state)).collect::<Vec<_>>(),
        [(second, JobRunState::Done), (first, JobRunState::Interrupted),]
    );
    assert_eq!((runs[0].cost, runs[0].ended, runs[0].text.len()), (0.25, Some(T + 5), JOB_RUN_TEXT));
    assert_eq!(runs[0].session, Some("s-1".into()));
    assert_eq!(store.job_runs(None, Some(other), 1).await.unwrap()[0].id, second);
    assert_eq!(store.take_job_runs("webhook", 10).await.unwrap(), []);
    let (one, two) = tokio::join!(store.take_job_runs("terminal", 10), store.take_job_runs("terminal", 10));
    assert_eq!(one.unwrap().len() + two.unwrap().len(), 1);
    // What could not be told is shown once, and stays failed.
    let told = |delivery| JobRunChange { delivery: Some(delivery), ..JobRunChange::default() };
    store.change_job_run(other, told(JobDelivery::Pending)).await.unwrap();
    store.end_deliveries(&"b".into()).await.unwrap();
    let (one, two) = tokio::join!(store.take_failed_deliveries(10), store.take_failed_deliveries(10));
    let shown = [one.unwrap(), two.unwrap()].concat();
    assert_eq!(shown.iter().map(|run| run.id).collect::<Vec<_>>(), [other]);
    assert_eq!(store.job_runs(Some(&"b".into()), None, 1).await.unwrap()[0].delivery, JobDelivery::Failed);
    for due in 0..JOB_RUNS_EACH.cast_signed() + 5 {
        store.begin_job_run(run("a", due)).await.unwrap();
    }
    let kept = store.job_runs(Some(&"a".into()), None, 1_000).await.unwrap();
    assert_eq!(kept.len() as u64, JOB_RUNS_EACH);
    assert_eq!(store.job_runs(Some(&"b".into()), None, 10).await.unwrap().len(), 1);
}
