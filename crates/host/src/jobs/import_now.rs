//! Takes in what agents wrote, once each time that it is due.

use futures_util::future::BoxFuture;
use quipu_archive::Agent;
use quipu_store::JobRunState;

use super::import_watch::Watcher;
use super::thread::in_own_thread;
use super::{BuiltInWork, JobContext, JobError, WorkEnd};
use crate::Home;
use crate::import::{ImportError, ImportPlan, ImportRequest, ImportSource, Importer};

/// The name of this work in jobs.
pub const IMPORT_NOW: &str = "import";

/// Imports the sessions of agents. What is there already is not added again.
pub(super) struct RegularImport(Home);

impl RegularImport {
    pub(super) fn new(home: Home) -> Self {
        Self(home)
    }
}

fn refusal(agent: &str, error: ImportError) -> String {
    match error {
        ImportError::Archive(error) => error.to_string(),
        ImportError::NoHome => "HOME is not set, so the agent's files cannot be found".to_owned(),
        ImportError::NoAgent(name) => format!("`{name}` is not an agent that this version knows"),
        ImportError::NeedsFile(name) => format!("{name} keeps no sessions on this machine"),
        ImportError::NoPlace(_) => format!("there are no sessions of {agent}"),
        ImportError::NoExport(path) => format!("{} is no account export", path.display()),
    }
}

async fn import(home: &Home, agents: &[String], cx: &JobContext) -> Result<WorkEnd, JobError> {
    for name in agents {
        let agent = Agent::named(name)
            .ok_or_else(|| JobError::new(format!("`{name}` is not an agent that this version knows")))?;
        let source = ImportSource::Agent(agent, None);
        let request = ImportRequest { source, follows: false, dry_run: false };
        let plan = match ImportPlan::make(request) {
            Ok(plan) => plan,
            // The agent was not used yet: there may be some the next time.
            Err(ImportError::NoPlace(_)) => continue,
            Err(error) => return Err(JobError::new(refusal(agent.name, error))),
        };
        let mut importer = Importer::open(home, plan).await.map_err(JobError::new)?;
        importer.run(&Watcher(cx)).await.map_err(JobError::new)?;
    }
    Ok(WorkEnd { state: JobRunState::Done, session: None, cost: 0.0, text: String::new() })
}

impl BuiltInWork for RegularImport {
    fn name(&self) -> &str {
        IMPORT_NOW
    }

    fn run<'a>(
        &'a self,
        arguments: &'a [String],
        cx: &'a JobContext,
    ) -> BoxFuture<'a, Result<WorkEnd, JobError>> {
        Box::pin(async move {
            let (home, agents) = (self.0.clone(), arguments.to_vec());
            let work = |cx| async move { import(&home, &agents, &cx).await };
            in_own_thread(cx, work).await.map_err(JobError::new)?
        })
    }
}
