//! `openclaw.json` of a state directory.

use std::path::PathBuf;

use quipu_archive::openclaw::state::is_agent_id;
use serde_json::{Value, json};

use super::agents::id_of;
use super::{StateOutcome, StatePart, Takeover};
use crate::settings::no_tools;
use crate::setup::{INCLUDE, IncludeProblem, entry_with_id, put_in_variables, whole_config};

/// Bytes of a file of settings at most.
const CONFIG: u64 = 16 << 20;

impl Takeover<'_> {
    /// Reads the settings, with the files that they include.
    pub(super) fn read_config(&mut self) {
        let path = self.state.dir.join("openclaw.json");
        let Some(file) = self.state.config.clone() else {
            // It is there, and was not read; why is reported with the other problems of the directory.
            if self.state.problems.iter().any(|problem| problem.path == path) {
                self.config = json!({});
                self.close_what_is_missing(&[lost(path, "")]);
            }
            return;
        };
        let read = crate::bounded_file::read(&file, CONFIG).map_err(|error| error.in_words("16 MiB"));
        let text = read.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "it is not text (UTF-8); nothing of it is taken".to_owned())
        });
        match text.and_then(|text| whole_config(&file, &text)) {
            Ok((value, mut problems)) => {
                self.config = value;
                self.lacks_approvals |= !problems.is_empty();
                problems.extend(self.list_entries());
                problems.extend(self.put_in_variables());
                problems.extend(self.take_out_unreadable());
                self.close_what_is_missing(&problems);
                for IncludeProblem { file, line, key, why } in problems {
                    let outcome = match line {
                        0 => StateOutcome::Left(why),
                        line => StateOutcome::Failed(format!("line {line}: {why}")),
                    };
                    let key = match line {
                        0 => key,
                        _ if key.is_empty() => INCLUDE.to_owned(),
                        _ => format!("{key}.{INCLUDE}"),
                    };
                    self.report(StatePart::Directory, &file, &key, outcome);
                }
            }
            Err(why) => {
                self.config = json!({});
                self.close_what_is_missing(&[lost(file.clone(), "")]);
                self.report(StatePart::Directory, &file, "", StateOutcome::Failed(why));
            }
        }
    }

    /// Puts the agents of `agents.entries`, which newer versions have by their ids, into the list. Of one that is no object nothing is
    /// known but its id: it gets no tools.
    fn list_entries(&mut self) -> Vec<IncludeProblem> {
        let file = self.state.config.clone().unwrap_or_default();
        let Some(agents) = self.config.get_mut("agents").and_then(Value::as_object_mut) else {
            return Vec::new();
        };
        let mut problems = Vec::new();
        let entries = match agents.remove("entries") {
            Some(Value::Object(entries)) => entries,
            None => return problems,
            Some(_) => {
                let why = "it is not an object".to_owned();
                return vec![IncludeProblem { why, ..lost(file, "agents.entries") }];
            }
        };
        let list = agents.entry("list").or_insert_with(|| json!([]));
        let Some(list) = list.as_array_mut() else { return problems };
        for (id, theirs) in &entries {
            if id == INCLUDE {
                // It was reported where it was read.
            } else if theirs.is_object() {
                list.push(entry_with_id(id, theirs));
            } else {
                list.push(json!({ "id": id, "tools": no_tools() }));
                let why = format!("it is not an object; {NO_TOOLS}");
                problems.push(IncludeProblem { why, ..lost(file.clone(), &format!("agents.entries.{id}")) });
            }
        }
        problems
    }

    /// Takes out what is no list of agents.
    fn take_out_unreadable(&mut self) -> Option<IncludeProblem> {
        let file = self.state.config.clone().unwrap_or_default();
        let agents = self.config.get_mut("agents")?;
        let (key, wanted) = match agents.get("list") {
            _ if !agents.is_object() => ("agents", "an object"),
            Some(list) if !list.is_array() => ("agents.list", "a list"),
            _ => return None,
        };
        match agents.as_object_mut() {
            Some(agents) => drop(agents.remove("list")),
            None => *agents = json!({}),
        }
        Some(IncludeProblem { why: format!("it is not {wanted}"), ..lost(file, key) })
    }

    /// A file that cannot be read may say that agents have fewer tools, and run fewer commands. So they get no more than if it said
    /// that they have none.
    fn close_what_is_missing(&mut self, problems: &[IncludeProblem]) {
        let is_missing = |names: &[&str]| problems.iter().any(|problem| names.contains(&&*problem.key));
        let is_of_agents = |problem: &IncludeProblem| {
            ["agents.list[", "agents.entries."].iter().any(|start| problem.key.starts_with(start))
        };
        if !is_missing(&["", "agents", "agents.list", "agents.entries", "tools", "tools.exec"])
            && !problems.iter().any(is_of_agents)
        {
            return;
        }
        let file = self.state.config.clone().unwrap_or_default();
        let none = no_tools();
        let Some(config) = self.config.as_object_mut() else { return };
        let agents = config.entry("agents").or_insert(Value::Null);
        if !agents.is_object() {
            *agents = json!({});
        }
        let mut list = match agents.get_mut("list").map(Value::take) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        // Which agent one is whose file is missing is not known: it is none of those that are named.
        let named = list.len();
        list.retain(|agent| agent.get(INCLUDE).is_none() || agent.get("id").is_some());
        let is_unknown =
            list.len() < named || problems.iter().any(|problem| problem.line == 0 && is_of_agents(problem));
        self.is_default_unknown = is_unknown || is_missing(&["", "agents", "agents.list", "agents.entries"]);
        for agent in list.iter_mut().filter_map(Value::as_object_mut) {
            if agent.remove(INCLUDE).is_some() {
                let id = agent.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                agent.insert("tools".to_owned(), none.clone());
                self.report(StatePart::Agent, &file, &id, StateOutcome::Note(NO_TOOLS.to_owned()));
            }
        }
        // Agents of the file that is missing have their directories.
        if is_missing(&["", "agents", "agents.list", "agents.entries"]) || is_unknown {
            let is_listed = |id: &str, list: &[Value]| list.iter().any(|agent| id_of(agent) == id);
            let ids: Vec<String> = self.state.agents.iter().map(|agent| agent.id.clone()).collect();
            for id in ids.into_iter().filter(|id| is_agent_id(id)) {
                if !is_listed(&id, &list) {
                    list.push(json!({ "id": id, "tools": none }));
                    self.report(StatePart::Agent, &file, &id, StateOutcome::Note(NO_TOOLS.to_owned()));
                }
            }
        }
        if let Some(agents) = self.config.get_mut("agents").and_then(Value::as_object_mut) {
            agents.insert("list".to_owned(), list.into());
        }
        let approvals = self.state.approvals.as_mut();
        let agents = approvals.and_then(|document| document.value.get_mut("agents"));
        let mut is_left = false;
        for (_, agent) in agents.and_then(Value::as_object_mut).into_iter().flatten() {
            is_left |= agent.as_object_mut().is_some_and(|agent| agent.remove("allowlist").is_some());
        }
        if is_left {
            let why = "no allowlists are taken: settings that may forbid commands cannot be read".to_owned();
            self.report(StatePart::Approval, &file, "", StateOutcome::Left(why));
        }
    }

    /// Puts variables of the environment into what is taken of agents. Those whose id cannot be known are taken out, and named.
    fn put_in_variables(&mut self) -> Vec<IncludeProblem> {
        let file = self.state.config.clone().unwrap_or_default();
        let (mut left, mut unknown) = (Vec::new(), Vec::new());
        let env = |name: &str| std::env::var(name).ok();
        let mut put_in = |of: &mut Value, key: &str, member: &str| {
            let Some(value) = of.get_mut(member) else { return };
            let before = left.len();
            put_in_variables(value, &format!("{key}.{member}"), &env, &mut left);
            let is_lost = value.is_null() || value.get("primary").is_some_and(Value::is_null);
            // In `tools` null stands for what cannot be read, and closes it.
            if left.len() > before && is_lost && member != "tools" && member != "exec" {
                of.as_object_mut().map(|of| of.remove(member));
            }
        };
        if let Some(tools) = self.config.get_mut("tools") {
            put_in(tools, "tools", "exec");
        }
        if let Some(agents) = self.config.get_mut("agents") {
            if let Some(defaults) = agents.get_mut("defaults") {
                put_in(defaults, "agents.defaults", "workspace");
            }
            if let Some(list) = agents.get_mut("list").and_then(Value::as_array_mut) {
                let mut at = 0;
                list.retain_mut(|agent| {
                    let key = format!("agents.list[{at}]");
                    at += 1;
                    for member in ["model", "workspace", "tools"] {
                        put_in(agent, &key, member);
                    }
                    let has_id = agent.get("id").is_some();
                    put_in(agent, &key, "id");
                    let is_known = !has_id || agent.get("id").is_some();
                    if !is_known {
                        unknown.push(key);
                    }
                    is_known
                });
            }
        }
        for (key, why) in left {
            self.report(StatePart::Agent, &file, &key, StateOutcome::Left(why));
        }
        let why = "which agent it is cannot be known";
        unknown
            .into_iter()
            .map(|key| IncludeProblem { why: why.to_owned(), ..lost(file.clone(), &key) })
            .collect()
    }
}

/// What is missing of the settings below some names.
fn lost(file: PathBuf, key: &str) -> IncludeProblem {
    IncludeProblem { file, line: 0, key: key.to_owned(), why: String::new() }
}

const NO_TOOLS: &str = "it gets no tools here: a file of settings that may take tools from it cannot be read; remove its `tools` from `agents.byId` and import again once it can";
