//! Agents of another gateway, into `agents.byId`.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_protocol::AgentId;
use serde_json::{Map, Value, json};

use super::entries::Entry;
use super::includes::{INCLUDE, has_include};
use super::{SetupImport, SetupOutcome, policies};
use crate::settings::{EVERY_AGENT, Key, check_setting, no_tools};
use crate::{Failure, Home, Source};

/// Where agents stand.
pub(crate) const AGENTS: &str = "agents.byId";
/// Why they are not changed.
pub(crate) const UNCHANGEABLE: &str =
    "is set by a variable of the environment, or has an agent that cannot be read";

impl SetupImport<'_> {
    /// A list of agents, or an object of them by their ids, into ours, unless the user has set them.
    pub(super) fn agents(&mut self, file: &Path, entry: &Entry) -> Result<(), Failure> {
        let all: Vec<(String, Value)> = match &entry.value {
            Value::Array(list) => list
                .iter()
                .enumerate()
                .map(|(at, theirs)| (format!("{}[{at}]", entry.key), theirs.clone()))
                .collect(),
            Value::Object(members) if entry.key.ends_with(".entries") => members
                .iter()
                .map(|(id, theirs)| (format!("{}.{id}", entry.key), entry_with_id(id, theirs)))
                .collect(),
            _ => {
                let why = "it is not a list of agents".to_owned();
                self.report(file, entry.line, &entry.key, SetupOutcome::Left(why));
                Vec::new()
            }
        };
        let mut ours: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
        for (key, theirs) in &all {
            let Some(id) = self.id_of(file, entry.line, key, theirs) else { continue };
            // Of two with one id the first one counts, as in a state directory.
            if ours.contains_key(&id) {
                let why = format!("there is an agent `{id}` already");
                self.report(file, entry.line, &format!("{key}.id"), SetupOutcome::Left(why));
                continue;
            }
            let mut agent = Map::new();
            for (member, value) in theirs.as_object().into_iter().flatten() {
                let mut value = match member.as_str() {
                    "id" => continue,
                    // The file that was not read, which is reported, may have narrowed its tools.
                    INCLUDE => {
                        let (tools, left) = tools_of(&id, &format!("{key}.tools"), theirs);
                        agent.extend(tools.map(|tools| ("tools".to_owned(), tools)));
                        for (name, why) in left {
                            self.report(file, entry.line, &name, SetupOutcome::Left(why));
                        }
                        continue;
                    }
                    "tools" if theirs.get(INCLUDE).is_some() => continue,
                    "model" if value.is_object() => {
                        for other in value.as_object().into_iter().flatten().map(|(name, _)| name) {
                            if other != "primary" {
                                let name = format!("{key}.model.{other}");
                                let why = "an agent has one model".to_owned();
                                self.report(file, entry.line, &name, SetupOutcome::Left(why));
                            }
                        }
                        value["primary"].clone()
                    }
                    "model" | "workspace" => value.clone(),
                    "tools" => {
                        let mut tools = value.clone();
                        for (name, why) in self.whole(&mut tools, &format!("{key}.tools")) {
                            self.report(file, entry.line, &name, SetupOutcome::Left(why));
                        }
                        let (ours, left) = tools_of(&id, &format!("{key}.tools"), &tools);
                        for (name, why) in left {
                            self.report(file, entry.line, &name, SetupOutcome::Left(why));
                        }
                        agent.extend(ours.map(|ours| (member.clone(), ours)));
                        continue;
                    }
                    _ => {
                        let why = match member.as_str() {
                            "compaction" => "agents have no compaction of their own; `compaction` is for all",
                            "heartbeat" => "heartbeats cost money: set `heartbeat` in `agents.byId` yourself",
                            _ => "there is no such setting here",
                        };
                        let name = format!("{key}.{member}");
                        self.report(file, entry.line, &name, SetupOutcome::Left(why.to_owned()));
                        continue;
                    }
                };
                // What cannot be set of one agent keeps nothing else from being taken.
                let whole = self.put_in_variables(&mut value);
                match whole.and_then(|()| check_member(&id, member, &value)) {
                    Ok(()) => drop(agent.insert(member.clone(), value)),
                    Err(why) => {
                        self.report(file, entry.line, &format!("{key}.{member}"), SetupOutcome::Left(why));
                    }
                }
            }
            ours.insert(id, agent);
        }
        self.put_agents(file, entry, ours)
    }

    /// The id of an agent of the list, as the directories of that gateway have it; `None` where it cannot be known.
    fn id_of(&mut self, file: &Path, line: usize, key: &str, theirs: &Value) -> Option<String> {
        let mut written = theirs.get("id").cloned().unwrap_or(Value::Null);
        let problem = match &written {
            _ if !theirs.is_object() => Some("it is not an object"),
            // The one without a name is the main one, unless its name is in a file that is missing.
            Value::Null if theirs.get(INCLUDE).is_none() => None,
            Value::String(_) => None,
            _ => Some("it has no id"),
        };
        if let Some(why) = problem {
            self.report(file, line, key, SetupOutcome::Left(why.to_owned()));
            return None;
        }
        let at = format!("{key}.id");
        if let Err(why) = self.put_in_variables(&mut written) {
            self.report(file, line, &at, SetupOutcome::Left(why));
            return None;
        }
        let written = written.as_str().unwrap_or_default();
        let id = AgentId::normalise(written).to_string();
        if id != written.trim().to_lowercase() {
            self.report(file, line, &at, SetupOutcome::Note(format!("the agent is `{id}` here")));
        }
        Some(id)
    }

    /// Agents, and members of those that are there, unless the user has set these.
    fn put_agents(
        &mut self,
        file: &Path,
        entry: &Entry,
        theirs: BTreeMap<String, Map<String, Value>>,
    ) -> Result<(), Failure> {
        let (mut ours, is_changeable) = agents_of(self.home);
        let before = ours.clone();
        let mut outcomes = Vec::new();
        for (id, agent) in theirs {
            let label = format!("{AGENTS}.{id}");
            let mut agent = agent;
            for (member, value) in &mut agent {
                let text = value.to_string();
                if self.sealer.seal(&text) != text {
                    let why = format!("{label}.{member} would hold a secret, which is not copied");
                    outcomes.push(SetupOutcome::Left(why));
                    // Without its policy it would have all tools.
                    *value = if member == "tools" { no_tools() } else { Value::Null };
                }
            }
            agent.retain(|_, value| !value.is_null());
            let is_new = !ours.contains_key(&id);
            let merged = AgentMerge::of(ours.get(&id), &agent);
            if !is_new && merged.added.is_empty() && merged.kept.is_empty() {
                outcomes.push(SetupOutcome::Same { ours: label });
                continue;
            }
            if !is_changeable {
                outcomes.push(SetupOutcome::Left(format!("{AGENTS} {UNCHANGEABLE}")));
                continue;
            }
            if is_new || !merged.added.is_empty() {
                let value = Value::Object(merged.added);
                outcomes.push(SetupOutcome::Set { ours: label.clone(), value });
            }
            outcomes.extend(
                merged.kept.iter().map(|member| SetupOutcome::Kept { ours: format!("{label}.{member}") }),
            );
            ours.insert(id, Value::Object(merged.agent));
        }
        if ours != before
            && let outcome @ SetupOutcome::Left(_) = self.store(AGENTS.to_owned(), &Value::Object(ours))?
        {
            outcomes = vec![outcome];
        }
        for outcome in outcomes {
            self.report(file, entry.line, &entry.key, outcome);
        }
        Ok(())
    }
}

/// An agent of an object by ids, as a list would have it.
pub(crate) fn entry_with_id(id: &str, theirs: &Value) -> Value {
    let mut theirs = theirs.clone();
    if id == INCLUDE {
        return Value::Null;
    }
    if let Some(members) = theirs.as_object_mut() {
        members.insert("id".to_owned(), id.into());
    }
    theirs
}

/// The agents that are set, and whether they can be changed: not if the environment says them, or one of them is broken.
pub(crate) fn agents_of(home: &Home) -> (Map<String, Value>, bool) {
    let Some(key) = Key::named(AGENTS) else { return (Map::new(), false) };
    let config = home.config();
    let row = config.row(key);
    let agents = row.value.as_object().cloned().unwrap_or_default();
    let is_ours = matches!(row.source, Source::User(_) | Source::BuiltIn);
    // What cannot be read would be written as what stands for it.
    let are_whole = agents.keys().all(|id| id != EVERY_AGENT) && config.problem_of(AGENTS).is_none();
    (agents, is_ours && are_whole)
}

/// What becomes of an agent when members of another one are added to it.
pub(crate) struct AgentMerge {
    /// What it says afterwards.
    pub(crate) agent: Map<String, Value>,
    /// What it did not have.
    pub(crate) added: Map<String, Value>,
    /// The names of those that it has with another value, which stays.
    pub(crate) kept: Vec<String>,
}

impl AgentMerge {
    /// Of what is there, and what is to be taken.
    pub(crate) fn of(there: Option<&Value>, theirs: &Map<String, Value>) -> Self {
        let mut agent = there.and_then(Value::as_object).cloned().unwrap_or_default();
        let (mut added, mut kept) = (Map::new(), Vec::new());
        for (member, value) in theirs {
            match agent.get(member) {
                Some(known) if known == value => {}
                Some(_) => kept.push(member.clone()),
                None => drop(added.insert(member.clone(), value.clone())),
            }
        }
        agent.extend(added.clone());
        Self { agent, added, kept }
    }
}

/// `tools` of an agent in our form, and what of it is not taken. An agent whose policy cannot be read gets no tools.
pub(crate) fn tools_of(id: &str, key: &str, theirs: &Value) -> (Option<Value>, Vec<(String, String)>) {
    if has_include(theirs) {
        let why = "a file that it includes cannot be read; it gets no tools here".to_owned();
        return (Some(no_tools()), vec![(key.to_owned(), why)]);
    }
    let mut taken = policies::agent(key, theirs);
    if taken.members.is_empty() && theirs.is_object() {
        return (None, taken.left);
    }
    let ours = Value::Object(taken.members);
    match check_member(id, "tools", &ours) {
        Ok(()) if theirs.is_object() => (Some(ours), taken.left),
        checked => {
            let why = checked.err().unwrap_or_else(|| "it cannot be read".to_owned());
            // What follows is about settings that stand in a file already.
            let why = why.split(';').next().unwrap_or_default();
            taken.left.push((key.to_owned(), format!("{why}; it gets no tools here")));
            (Some(no_tools()), taken.left)
        }
    }
}

/// Whether a member of an agent can be set.
fn check_member(id: &str, member: &str, value: &Value) -> Result<(), String> {
    let alone = json!({ "agent": { member: value } });
    let checked = check_setting(AGENTS, &alone.to_string());
    checked.map(drop).map_err(|why| why.replace(&format!("{AGENTS}.agent."), &format!("{AGENTS}.{id}.")))
}
