//! Agents, into `agents.byId` of the settings.

use std::path::PathBuf;

use quipu_archive::openclaw::state::{MAIN, is_agent_id};
use quipu_protocol::AgentId;
use serde_json::{Map, Value};

use super::{StateOutcome, StatePart, Takeover, TakeoverMode};
use crate::Failure;
use crate::settings::{SettingsFile, check_setting, set_setting};
use crate::setup::{AGENTS, AgentMerge, UNCHANGEABLE, agents_of, setting_failure, tools_of};

/// An agent as its settings have it.
struct ConfiguredAgent {
    id: String,
    model: Option<Value>,
    workspace: Option<String>,
    /// What narrows its tools.
    tools: Option<Value>,
}

/// What to do about an agent that comes without a directory.
const NO_WORKSPACE: &str = "; set `workspace` of the agent, and import again";

/// The id of an agent of the list, as its directory has it. The one without a name is the main one.
pub(super) fn id_of(theirs: &Value) -> String {
    AgentId::normalise(theirs.get("id").and_then(Value::as_str).unwrap_or_default()).to_string()
}

impl Takeover<'_> {
    pub(super) fn take_agents(&mut self) -> Result<(), Failure> {
        let agents = self.configured_agents();
        let file = self.state.config.clone().unwrap_or_else(|| self.state.dir.join("agents"));
        let (mut ours, is_changeable) = agents_of(self.home);
        let before = ours.clone();
        let mut outcomes_by_id = Vec::new();
        for ConfiguredAgent { id, model, workspace, tools } in agents {
            let mut new = Map::new();
            new.extend(model.map(|model| ("model".to_owned(), model)));
            new.extend(workspace.clone().map(|path| ("workspace".to_owned(), path.into())));
            new.extend(tools.map(|tools| ("tools".to_owned(), tools)));
            let name = format!("{AGENTS}.{id}");
            let is_new = !ours.contains_key(&id);
            let AgentMerge { agent, added, kept } = AgentMerge::of(ours.get(&id), &new);
            let outcomes = if !is_new && added.is_empty() && kept.is_empty() {
                vec![StateOutcome::Same(name)]
            } else if !is_changeable {
                vec![StateOutcome::Left(format!("{AGENTS} {UNCHANGEABLE}"))]
            } else {
                ours.insert(id.clone(), Value::Object(agent));
                let member = |member: &String| format!("{name}.{member}");
                let mut outcomes: Vec<_> = match is_new {
                    true => vec![StateOutcome::Added(name.clone())],
                    false => added.keys().map(|added| StateOutcome::Added(member(added))).collect(),
                };
                outcomes.extend(kept.iter().map(|kept| StateOutcome::Kept(member(kept))));
                outcomes
            };
            outcomes_by_id.push((id.clone(), outcomes));
            // What is set here counts.
            let here = ours.get(&id).and_then(|agent| agent.get("workspace")).and_then(Value::as_str);
            let path = here.map(str::to_owned).or(workspace).and_then(|path| expanded(&path));
            if let Some(path) = path.and_then(|path| path.canonicalize().ok()).filter(|path| path.is_dir()) {
                self.workspaces.insert(id, path);
            }
        }
        let text = Value::Object(ours.clone()).to_string();
        let checked = if ours == before { Ok(()) } else { check_setting(AGENTS, &text).map(drop) };
        if let Err(why) = checked {
            // There are more than there may be, or one that nothing can be set of. All else is taken.
            self.workspaces.retain(|id, _| before.contains_key(id));
            self.report(StatePart::Agent, &file, AGENTS, StateOutcome::Failed(why));
        } else {
            if ours != before && self.mode == TakeoverMode::Write {
                set_setting(self.home, &SettingsFile::User, AGENTS, &text).map_err(setting_failure)?;
            }
            for (id, outcome) in outcomes_by_id
                .into_iter()
                .flat_map(|(id, all)| all.into_iter().map(move |outcome| (id.clone(), outcome)))
            {
                self.report(StatePart::Agent, &file, &id, outcome);
            }
        }
        let agents = self.config.get("agents").and_then(|agents| agents.get("defaults"));
        let confines = agents.and_then(|defaults| defaults.get("sandbox"));
        let narrows = self.config.get("tools").filter(|tools| {
            let members = tools.as_object().into_iter().flatten();
            !tools.is_object() || members.filter(|(name, _)| *name != "exec").count() > 0
        });
        if narrows.is_some() || confines.is_some() {
            let why = "tools and sandboxes of all agents are settings: import those of openclaw as well";
            self.report(StatePart::Agent, &file, "tools", StateOutcome::Left(why.to_owned()));
        }
        Ok(())
    }

    /// The agents of the settings, and those that only have a directory.
    fn configured_agents(&mut self) -> Vec<ConfiguredAgent> {
        let config = self.config.clone();
        let agents = config.get("agents");
        let list = agents.and_then(|agents| agents.get("list")).and_then(Value::as_array);
        let defaults = agents.and_then(|agents| agents.get("defaults"));
        let file = self.state.config.clone().unwrap_or_else(|| self.state.dir.clone());
        let text = |of: Option<&Value>| of?.get("workspace")?.as_str().map(str::to_owned);
        // Of those that say nothing else, the first one is meant.
        let listed = || list.into_iter().flatten();
        let marked = listed().find(|theirs| theirs.get("default") == Some(&Value::Bool(true)));
        self.is_default_unknown &= marked.is_none();
        let first = || listed().next().filter(|_| !self.is_default_unknown);
        let default = marked.or_else(first).map_or_else(|| MAIN.to_owned(), id_of);
        self.default_agent.clone_from(&default);
        let mut found: Vec<ConfiguredAgent> = Vec::new();
        for (at, theirs) in list.into_iter().flatten().enumerate() {
            if !theirs.is_object() {
                let why = "it is not an object".to_owned();
                self.report(StatePart::Agent, &file, &format!("agents.list[{at}]"), StateOutcome::Left(why));
                continue;
            }
            let id = id_of(theirs);
            if found.iter().any(|agent| agent.id == id) {
                continue;
            }
            let named = theirs.get("model").map(|model| model.get("primary").unwrap_or(model));
            let model =
                named.filter(|model| model.as_str().is_some_and(|name| !name.trim().is_empty())).cloned();
            if named.is_some() && model.is_none() {
                let why = "it names no model; the agent has the model of the settings".to_owned();
                self.report(StatePart::Agent, &file, &format!("{id} model"), StateOutcome::Left(why));
            }
            if theirs.get("workspace").is_some_and(|path| !path.is_string()) {
                let why = format!("it is no text{NO_WORKSPACE}");
                self.report(StatePart::Agent, &file, &format!("{id} workspace"), StateOutcome::Left(why));
            }
            let workspace =
                text(Some(theirs)).or_else(|| self.default_workspace(&id, id == default, text(defaults)));
            let tools = theirs.get("tools").cloned().and_then(|mut tools| {
                // What it may run becomes approvals.
                tools.as_object_mut().and_then(|tools| tools.remove("exec"));
                let (tools, left) = tools_of(&id, "tools", &tools);
                for (member, why) in left {
                    let key = format!("{id} {member}");
                    self.report(StatePart::Agent, &file, &key, StateOutcome::Left(why));
                }
                tools
            });
            found.push(ConfiguredAgent { id, model, workspace, tools });
        }
        let others: Vec<String> = self.state.agents.iter().map(|agent| agent.id.clone()).collect();
        for id in others.into_iter().filter(|id| is_agent_id(id)) {
            if found.iter().all(|agent| agent.id != id) {
                let workspace = self.default_workspace(&id, id == default, text(defaults));
                found.push(ConfiguredAgent { id, model: None, workspace, tools: None });
            }
        }
        for agent in &mut found {
            let Some(path) = agent.workspace.take_if(|path| !path.starts_with(['/', '~'])) else { continue };
            let why = match path.contains("${") {
                true => format!("a variable is not put into its path{NO_WORKSPACE}"),
                // It means another directory here.
                false => format!("its path is relative{NO_WORKSPACE}"),
            };
            let key = format!("{} workspace", agent.id);
            self.report(StatePart::Agent, &file, &key, StateOutcome::Left(why));
        }
        found
    }

    /// Where an agent works that says nothing: in the directory of all agents or in one below it, or else in one of the state
    /// directory that is there.
    fn default_workspace(&self, id: &str, is_default: bool, of_defaults: Option<String>) -> Option<String> {
        if let Some(path) = of_defaults {
            return Some(if is_default { path } else { format!("{}/{id}", path.trim_end_matches('/')) });
        }
        let name = if is_default { "workspace".to_owned() } else { format!("workspace-{id}") };
        let path = self.state.dir.join(name);
        path.is_dir().then(|| path.to_str().map(str::to_owned)).flatten()
    }
}

/// A path of the settings.
fn expanded(written: &str) -> Option<PathBuf> {
    match written.strip_prefix('~') {
        Some(below) => std::env::home_dir().map(|home| home.join(below.trim_start_matches('/'))),
        None => Some(PathBuf::from(written)),
    }
}
