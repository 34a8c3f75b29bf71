//! `life`, `recall` and `trace`, as Pi's model calls them.

use std::sync::Arc;

use jiff::tz::TimeZone;
use quipu_history::{
    Filter, LifeQuery, Projects, RecallQuery, Sight, TraceFilter, TraceQuery, TraceScope, life_seen,
    recall_seen, trace,
};
use quipu_protocol::{Json, NodeId};
use quipu_store::{Graph, SessionQuery};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::error::HelperError;
use crate::sessions::now;

/// Nodes before the focus, levels below it, and rows of the log that are shown at most.
const DEEPEST: usize = 200;
const ROWS: usize = 200;
/// Rows of the log that are shown when nobody says how many.
const FEW_ROWS: usize = 15;

/// What a tool looks into, and from where.
pub(crate) struct Archive {
    pub(crate) store: Arc<dyn Graph>,
    /// Where the session stands.
    pub(crate) head: NodeId,
    /// The directory of the session: what other sessions did there and below is seen too.
    pub(crate) cwd: String,
}

#[derive(Deserialize)]
struct LifeArguments {
    focus_hash: Option<String>,
    ancestors: Option<f64>,
    children: Option<bool>,
    #[serde(default)]
    filter_mode: Filter,
    max_depth: Option<f64>,
}

#[derive(Deserialize)]
struct RecallArguments {
    hash: String,
    budget: Option<f64>,
    context_budget: Option<f64>,
    #[serde(default)]
    filter_mode: Filter,
    offset: Option<f64>,
}

#[derive(Deserialize)]
struct TraceArguments {
    limit: Option<f64>,
    #[serde(default)]
    filter_mode: TraceFilter,
    #[serde(default)]
    scope: RowScope,
}

/// Whose rows of the log are shown.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RowScope {
    #[default]
    Lineage,
    Session,
    Project,
}

/// A number of JavaScript as a count: what is no count is none.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn count(number: f64) -> u64 {
    number as u64
}

fn counted(number: Option<f64>, default: usize) -> usize {
    number.map_or(default, |number| usize::try_from(count(number)).unwrap_or(usize::MAX))
}

fn read<T: DeserializeOwned>(arguments: &Json) -> Result<T, HelperError> {
    serde_json::from_str(arguments.get())
        .map_err(|error| HelperError::Refused(format!("Invalid arguments: {error}")))
}

impl Archive {
    pub(crate) fn sight(&self) -> Sight {
        let head = self.head;
        Sight::Project {
            projects: Arc::new(Projects::new(self.cwd.clone())),
            head: Arc::new(move || Some(head)),
        }
    }

    /// What a tool says.
    pub(crate) async fn call(&self, name: &str, arguments: &Json) -> Result<String, HelperError> {
        match name {
            "life" => self.life(read(arguments)?).await,
            "recall" => self.recall(read(arguments)?).await,
            "trace" => self.trace(read(arguments)?).await,
            other => Err(HelperError::Refused(format!("There is no tool \"{other}\"."))),
        }
    }

    async fn life(&self, arguments: LifeArguments) -> Result<String, HelperError> {
        let sight = self.sight();
        let focus = match arguments.focus_hash.filter(|name| !name.is_empty()) {
            Some(name) => sight.find(&*self.store, &name).await?,
            None => self.head,
        };
        let default = LifeQuery::new(focus);
        let query = LifeQuery {
            head: Some(self.head),
            ancestors: counted(arguments.ancestors, default.ancestors).min(DEEPEST),
            children: arguments.children.unwrap_or(default.children),
            filter: arguments.filter_mode,
            max_depth: counted(arguments.max_depth, default.max_depth).min(DEEPEST),
            ..default
        };
        Ok(life_seen(&*self.store, &query, &sight).await?.text(now()))
    }

    async fn recall(&self, arguments: RecallArguments) -> Result<String, HelperError> {
        let sight = self.sight();
        let node = sight.find(&*self.store, &arguments.hash).await?;
        let default = RecallQuery::new(node);
        let query = RecallQuery {
            budget: arguments.budget.map_or(default.budget, count),
            offset: arguments.offset.map_or(default.offset, count),
            context_budget: arguments.context_budget.map_or(default.context_budget, count),
            filter: arguments.filter_mode,
            target: true,
            ..default
        };
        Ok(recall_seen(&*self.store, &query, &sight).await?.text(now()))
    }

    async fn trace(&self, arguments: TraceArguments) -> Result<String, HelperError> {
        let store = &*self.store;
        let session = store.sessions_of(&[self.head]).await?.into_iter().next().flatten();
        let scope = match (arguments.scope, session) {
            (RowScope::Lineage, _) | (_, None) => TraceScope::Lineage(self.head),
            (RowScope::Session, Some(session)) => TraceScope::Session(session),
            (RowScope::Project, Some(session)) => {
                let query = SessionQuery { id: Some(session), limit: Some(1), ..SessionQuery::default() };
                let row = store.sessions(query).await?.into_iter().next();
                TraceScope::Project(row.map_or_else(|| self.cwd.clone(), |row| row.cwd))
            }
        };
        let limit = counted(arguments.limit, FEW_ROWS).clamp(1, ROWS);
        let query = TraceQuery { scope, filter: arguments.filter_mode, limit, before: None };
        let mut shown = trace(store, &query).await?;
        // Messages on a branch of another project stay there.
        let others: Vec<NodeId> =
            shown.rows.iter().filter(|row| row.left).filter_map(|row| row.action.to).collect();
        let sees = self.sight().sees(store, &others).await?;
        let hidden: Vec<NodeId> =
            others.into_iter().zip(sees).filter_map(|(node, sees)| (!sees).then_some(node)).collect();
        shown.rows.retain(|row| !row.left || row.action.to.is_none_or(|to| !hidden.contains(&to)));
        Ok(shown.text(&TimeZone::system()))
    }
}
