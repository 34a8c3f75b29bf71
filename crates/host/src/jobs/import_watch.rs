//! A job that takes in what other agents write.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu_archive::{Agent, Progress, Report};
use quipu_store::{Job, JobTime, NewJob};
use serde::{Deserialize, Serialize};

use super::thread::in_own_thread;
use super::{JobContext, JobError, JobHandler, JobOutcome};
use crate::Home;
use crate::import::{
    ImportError, ImportObserver, ImportPlan, ImportProblem, ImportRequest, ImportSource, Importer,
};

/// The kind of such jobs.
pub const IMPORT_WATCH: &str = "import-watch";
/// How long after one look at an agent's files comes the next.
const EVERY: Duration = Duration::from_secs(10);
/// How long one look may take: the first may have to take in all that an agent ever wrote.
const DEADLINE: Duration = Duration::from_secs(3600);
/// Attempts before such a job stands as failed.
const ATTEMPTS: u32 = 8;

/// Takes in what agents write, where they keep their sessions: what is there, and then every ten seconds what is new.
pub struct ImportWatch(Arc<Inner>);

struct Inner {
    home: Home,
    /// By agent, between two looks: what was read of each file.
    importers: Mutex<HashMap<&'static str, Importer>>,
}

#[derive(Serialize, Deserialize)]
struct Payload {
    agent: String,
}

impl ImportWatch {
    /// For the store of a place.
    pub fn new(home: Home) -> Self {
        Self(Arc::new(Inner { home, importers: Mutex::default() }))
    }

    /// The job that watches an agent; due at once.
    ///
    /// # Errors
    /// `NoAgent`, and `NeedsFile` of one that keeps no sessions on this machine.
    pub fn job(agent: &str) -> Result<NewJob, ImportError> {
        let known = Agent::named(agent).ok_or_else(|| ImportError::NoAgent(agent.to_owned()))?;
        if !known.has_place() {
            return Err(ImportError::NeedsFile(known.name));
        }
        let payload = Payload { agent: known.name.to_owned() };
        Ok(NewJob {
            key: format!("{IMPORT_WATCH}/{}", known.name).into(),
            kind: IMPORT_WATCH.to_owned(),
            payload: serde_json::json!(payload).to_string(),
            due: JobTime::After(Duration::ZERO),
            attempt_limit: ATTEMPTS,
        })
    }
}

impl Inner {
    fn importers(&self) -> MutexGuard<'_, HashMap<&'static str, Importer>> {
        self.importers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, job: &Job, cx: &JobContext) -> Result<JobOutcome, JobError> {
        let payload: Payload = serde_json::from_str(&job.payload)
            .map_err(|error| JobError::new(format!("the payload does not name an agent: {error}")))?;
        let agent = Agent::named(&payload.agent).ok_or_else(|| {
            JobError::new(format!("`{}` is not an agent that this version knows", payload.agent))
        })?;
        // One whose work was dropped is not used again: it takes for read what it was about to read.
        let known = self.importers().remove(agent.name);
        let watcher = Watcher(cx);
        let importer = match known {
            Some(mut importer) => {
                importer.poll(&watcher).await.map_err(JobError::new)?;
                importer
            }
            None => {
                let source = ImportSource::Agent(agent, None);
                let request = ImportRequest { source, follows: true, dry_run: false };
                let plan = ImportPlan::make(request).map_err(|error| {
                    JobError::new(match error {
                        ImportError::Archive(error) => error.to_string(),
                        _ => "HOME is not set, so the agent's files cannot be found".to_owned(),
                    })
                })?;
                let mut importer = Importer::open(&self.home, plan).await.map_err(JobError::new)?;
                importer.run(&watcher).await.map_err(JobError::new)?;
                importer
            }
        };
        self.importers().insert(agent.name, importer);
        Ok(JobOutcome::Again(JobTime::After(EVERY)))
    }
}

impl JobHandler for ImportWatch {
    fn kind(&self) -> &str {
        IMPORT_WATCH
    }

    fn deadline(&self) -> Duration {
        DEADLINE
    }

    fn run<'a>(&'a self, job: &'a Job, cx: &'a JobContext) -> BoxFuture<'a, Result<JobOutcome, JobError>> {
        Box::pin(async move {
            let (inner, job) = (self.0.clone(), job.clone());
            match in_own_thread(cx, |cx| async move { inner.look(&job, &cx).await }).await {
                Ok(done) => done,
                Err(ended) => match ended.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(ended) => Err(JobError::new(ended)),
                },
            }
        })
    }
}

/// Tells of files that could not be imported; the others are.
pub(super) struct Watcher<'a>(pub(super) &'a JobContext);

impl ImportObserver for Watcher<'_> {
    fn progress(&self, _: &Path, _: Progress) {}

    fn imported(&self, _: &Report) -> io::Result<()> {
        Ok(())
    }

    fn failed(&self, path: &Path, problem: &ImportProblem) -> io::Result<()> {
        self.0.warn(match problem {
            ImportProblem::Directory(error) => format!("{} could not be read: {error}", path.display()),
            ImportProblem::File(error) => error.to_string(),
        });
        Ok(())
    }

    fn is_store(&self, _: &Path) {}
}
