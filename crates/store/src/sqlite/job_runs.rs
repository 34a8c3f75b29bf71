//! The table of what jobs did: made with its first row.

use rusqlite::{Connection, Row, params};

use super::failure::Outcome;
use super::{SqliteStore, rows};
use crate::{
    ContentQuery, Durability, EraseReport, FoundContent, FoundPage, FoundPlace, Fut, JOB_RUN_TEXT, JOB_RUNS,
    JOB_RUNS_EACH, JobDelivery, JobKey, JobRun, JobRunChange, JobRunState, JobRuns, Needles, NewJobRun,
    Selection, StoreError,
};

const TABLE: &str = "
CREATE TABLE IF NOT EXISTS quipu_job_run (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, due INTEGER NOT NULL, attempt INTEGER NOT NULL,
  began INTEGER NOT NULL, ended INTEGER, state TEXT NOT NULL, session TEXT, cost REAL NOT NULL, text TEXT NOT NULL, target TEXT NOT NULL,
  delivery TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS quipu_job_run_key ON quipu_job_run(key, id);
";

/// What [`read`] reads.
const COLUMNS: &str = "id, key, due, attempt, began, ended, state, session, cost, text, target, delivery";

/// How a failed delivery stands that a person was shown.
const FAILED_AND_SHOWN: &str = "failed, shown";

fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement =
        connection.prepare_cached("SELECT 1 FROM sqlite_master WHERE name = 'quipu_job_run'")?;
    Ok(statement.exists([])?)
}

/// Other programs may write anything into the table: what cannot be read counts as interrupted and told.
fn read(row: &Row<'_>) -> rusqlite::Result<JobRun> {
    let owned = |column| Ok::<_, rusqlite::Error>(rows::text(row, column)?.unwrap_or_default().into_owned());
    let state = owned(6)?;
    let state = JobRunState::ALL.into_iter().find(|known| known.word() == state);
    let delivery = match owned(11)?.as_str() {
        "nothing" => JobDelivery::Nothing,
        "pending" => JobDelivery::Pending,
        "failed" | FAILED_AND_SHOWN => JobDelivery::Failed,
        _ => JobDelivery::Done,
    };
    Ok(JobRun {
        id: rows::integer(row, 0)?.unsigned_abs(),
        key: owned(1)?.into(),
        due: rows::integer(row, 2)?,
        attempt: u32::try_from(rows::integer(row, 3)?).unwrap_or(0),
        began: rows::integer(row, 4)?,
        ended: row.get::<_, Option<i64>>(5).unwrap_or(None),
        state: state.unwrap_or(JobRunState::Interrupted),
        session: rows::text(row, 7)?.map(|id| id.into_owned().into()),
        cost: row.get::<_, f64>(8).unwrap_or(0.0),
        text: owned(9)?,
        target: owned(10)?,
        delivery,
    })
}

/// The beginning of a text.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(JOB_RUN_TEXT)]
}

fn begin(connection: &Connection, run: &NewJobRun) -> Outcome<u64> {
    connection.execute_batch(TABLE)?;
    connection
        .prepare_cached(
            "UPDATE quipu_job_run SET state = 'interrupted' WHERE key = ?1 AND state = 'running'",
        )?
        .execute([run.key.as_str()])?;
    connection
        .prepare_cached(
            "INSERT INTO quipu_job_run (key, due, attempt, began, state, cost, text, target, delivery) \
             VALUES (?1, ?2, ?3, ?4, 'running', 0, '', ?5, 'nothing')",
        )?
        .execute(params![run.key.as_str(), run.due, run.attempt, run.began, run.target])?;
    let id = connection.last_insert_rowid();
    connection
        .prepare_cached(
            "DELETE FROM quipu_job_run WHERE key = ?1 AND id <= \
             (SELECT id FROM quipu_job_run WHERE key = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)",
        )?
        .execute(params![run.key.as_str(), JOB_RUNS_EACH.cast_signed()])?;
    connection
        .prepare_cached(
            "DELETE FROM quipu_job_run WHERE id <= (SELECT id FROM quipu_job_run ORDER BY id DESC LIMIT 1 OFFSET ?1)",
        )?
        .execute([JOB_RUNS.cast_signed()])?;
    Ok(id.unsigned_abs())
}

fn change(connection: &Connection, id: u64, change: &JobRunChange) -> Outcome<()> {
    if !exists(connection)? {
        return Ok(());
    }
    let JobRunChange { session, ended, cost, text, delivery } = change;
    connection
        .prepare_cached(
            "UPDATE quipu_job_run SET session = coalesce(?2, session), state = coalesce(?3, state), \
             ended = coalesce(?4, ended), cost = coalesce(?5, cost), text = coalesce(?6, text), \
             delivery = coalesce(?7, delivery) WHERE id = ?1",
        )?
        .execute(params![
            id.cast_signed(),
            session.as_ref().map(ToString::to_string),
            ended.map(|(state, _)| state.word()),
            ended.map(|(_, at)| at),
            cost,
            text.as_deref().map(cut),
            delivery.map(JobDelivery::word),
        ])?;
    Ok(())
}

fn list(
    connection: &Connection,
    key: Option<&str>,
    before: Option<u64>,
    limit: usize,
) -> Outcome<Vec<JobRun>> {
    if !exists(connection)? {
        return Ok(Vec::new());
    }
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM quipu_job_run WHERE (?1 IS NULL OR key = ?1) AND (?2 IS NULL OR id < ?2) \
         ORDER BY id DESC LIMIT ?3"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = statement.query_map(params![key, before.map(u64::cast_signed), limit], read)?;
    Ok(found.collect::<Result<_, _>>()?)
}

/// Runs that wait to be told or shown.
#[derive(Debug, Clone)]
enum WaitingRuns {
    /// To this target.
    Of(String),
    /// To a person, as they could not be told.
    Failed,
}

impl WaitingRuns {
    fn list(&self, connection: &Connection, limit: i64) -> Outcome<Vec<JobRun>> {
        if !exists(connection)? {
            return Ok(Vec::new());
        }
        let (condition, target) = match self {
            Self::Of(target) => ("delivery = 'pending' AND target = ?1", target.as_str()),
            Self::Failed => ("delivery = 'failed' AND ?1 = ''", ""),
        };
        let mut statement = connection.prepare_cached(&format!(
            "SELECT {COLUMNS} FROM quipu_job_run WHERE {condition} ORDER BY id LIMIT ?2"
        ))?;
        let found = statement.query_map(params![target, limit], read)?;
        Ok(found.collect::<Result<_, _>>()?)
    }

    fn take(&self, connection: &Connection, limit: i64) -> Outcome<Vec<JobRun>> {
        let found = self.list(connection, limit)?;
        let after = match self {
            Self::Of(_) => JobDelivery::Done.word(),
            Self::Failed => FAILED_AND_SHOWN,
        };
        let mut changed =
            connection.prepare_cached("UPDATE quipu_job_run SET delivery = ?2 WHERE id = ?1")?;
        for run in &found {
            changed.execute(params![run.id.cast_signed(), after])?;
        }
        Ok(found)
    }
}

/// Runs that hold what is looked for, or worked in such a session: row, bytes.
fn holding(connection: &Connection, selection: &Selection, needles: &Needles) -> Outcome<Vec<(i64, u64)>> {
    let mut found = Vec::new();
    if !exists(connection)? || (needles.is_empty() && selection.sessions.is_empty()) {
        return Ok(found);
    }
    let mut statement = connection.prepare(&format!("SELECT {COLUMNS} FROM quipu_job_run ORDER BY id"))?;
    let mut all = statement.query([])?;
    while let Some(row) = all.next()? {
        let run = read(row)?;
        let in_session = run.session.as_ref().is_some_and(|session| selection.sessions.contains(session));
        let texts = [run.text.as_bytes(), run.key.as_str().as_bytes()];
        if in_session || texts.into_iter().any(|text| needles.are_in(text)) {
            found.push((run.id.cast_signed(), run.text.len() as u64));
        }
    }
    Ok(found)
}

/// Adds the runs to a page: behind the jobs.
pub(super) fn find(
    connection: &Connection,
    query: &ContentQuery,
    needles: &Needles,
    page: &mut FoundPage,
) -> Outcome<()> {
    for (row, bytes) in holding(connection, &query.selection, needles)? {
        let place = FoundPlace::Row { table: "quipu_job_run".to_owned(), key: row.to_string() };
        if !page.push(&format!("run {row:020}"), FoundContent { place, bytes }) {
            break;
        }
    }
    Ok(())
}

pub(super) fn erase(
    connection: &Connection,
    selection: &Selection,
    needles: &Needles,
    erased: &mut EraseReport,
) -> Outcome<()> {
    for (row, bytes) in holding(connection, selection, needles)? {
        connection.execute("DELETE FROM quipu_job_run WHERE id = ?1", [row])?;
        erased.add(bytes);
    }
    Ok(())
}

impl JobRuns for SqliteStore {
    fn begin_job_run(&self, run: NewJobRun) -> Fut<'_, u64> {
        Box::pin(self.work(Durability::Process, move |connection| begin(connection, &run)))
    }

    fn change_job_run(&self, id: u64, changed: JobRunChange) -> Fut<'_, ()> {
        Box::pin(self.work(Durability::Process, move |connection| change(connection, id, &changed)))
    }

    fn job_runs<'a>(
        &'a self,
        key: Option<&'a JobKey>,
        before: Option<u64>,
        limit: usize,
    ) -> Fut<'a, Vec<JobRun>> {
        let key = key.map(|key| key.as_str().to_owned());
        Box::pin(self.read(move |connection| list(connection, key.as_deref(), before, limit)))
    }

    fn take_job_runs<'a>(&'a self, target: &'a str, limit: usize) -> Fut<'a, Vec<JobRun>> {
        Box::pin(self.take_runs(WaitingRuns::Of(target.to_owned()), limit))
    }

    fn take_failed_deliveries(&self, limit: usize) -> Fut<'_, Vec<JobRun>> {
        Box::pin(self.take_runs(WaitingRuns::Failed, limit))
    }

    fn end_deliveries<'a>(&'a self, key: &'a JobKey) -> Fut<'a, ()> {
        let key = key.clone();
        Box::pin(self.work(Durability::Process, move |connection| {
            if exists(connection)? {
                connection
                    .prepare_cached(
                        "UPDATE quipu_job_run SET delivery = 'failed' WHERE key = ?1 AND delivery = 'pending'",
                    )?
                    .execute([key.as_str()])?;
            }
            Ok(())
        }))
    }
}

impl SqliteStore {
    async fn take_runs(&self, runs: WaitingRuns, limit: usize) -> Result<Vec<JobRun>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // Nothing is written where there is nothing.
        let looked = runs.clone();
        if self.read(move |connection| looked.list(connection, 1)).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.work(Durability::Process, move |connection| runs.take(connection, limit)).await
    }
}
