//! `openclaw.json` of a state directory.

use quipu_archive::openclaw::state::is_agent_id;
use serde_json::{Value, json};

use super::{StateOutcome, StatePart, Takeover};
use crate::setup::{INCLUDE, IncludeProblem, whole_config, with_variables};

/// Bytes of a file of settings at most.
const CONFIG: u64 = 16 << 20;

impl Takeover<'_> {
    /// Reads the settings, with the files that they include.
    pub(super) fn read_config(&mut self) {
        let Some(path) = self.state.config.clone() else { return };
        let read = crate::bounded_file::read(&path, CONFIG).map_err(|error| error.in_words("16 MiB"));
        let text = read.and_then(|bytes| {
            String::from_utf8(bytes).map_err(|_| "it is not text (UTF-8); nothing of it is taken".to_owned())
        });
        match text.and_then(|text| whole_config(&path, &text)) {
            Ok((value, problems)) => {
                self.config = value;
                self.close_what_is_missing(&problems);
                for IncludeProblem { file, line, key, why } in problems {
                    let key = if key.is_empty() { INCLUDE.to_owned() } else { format!("{key}.{INCLUDE}") };
                    let why = format!("line {line}: {why}");
                    self.report(StatePart::Directory, &file, &key, StateOutcome::Failed(why));
                }
                self.put_in_variables();
            }
            Err(why) => {
                self.config = json!({});
                let lost =
                    IncludeProblem { file: path.clone(), line: 0, key: String::new(), why: String::new() };
                self.close_what_is_missing(&[lost]);
                self.report(StatePart::Directory, &path, "", StateOutcome::Failed(why));
            }
        }
    }

    /// A file that cannot be read may say that agents have fewer tools, and run fewer commands. So they get no more than if it said
    /// that they have none.
    fn close_what_is_missing(&mut self, problems: &[IncludeProblem]) {
        let is_missing = |names: &[&str]| problems.iter().any(|problem| names.contains(&&*problem.key));
        let is_of_agents = |problem: &IncludeProblem| problem.key.starts_with("agents.list[");
        if !is_missing(&["", "agents", "agents.list", "tools", "tools.exec"])
            && !problems.iter().any(is_of_agents)
        {
            return;
        }
        let file = self.state.config.clone().unwrap_or_default();
        let none = json!({ "deny": ["*"] });
        let Some(config) = self.config.as_object_mut() else { return };
        let agents = config.entry("agents").or_insert(Value::Null);
        if !agents.is_object() {
            *agents = json!({});
        }
        let mut list = match agents.get_mut("list").map(Value::take) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        for agent in list.iter_mut().filter_map(Value::as_object_mut) {
            if agent.remove(INCLUDE).is_some() {
                let id = agent.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
                agent.insert("tools".to_owned(), none.clone());
                self.report(StatePart::Agent, &file, &id, StateOutcome::Note(NO_TOOLS.to_owned()));
            }
        }
        // Agents of the file that is missing have their directories.
        if is_missing(&["", "agents", "agents.list"]) || list.iter().any(|agent| agent.get("id").is_none()) {
            let is_listed = |id: &str, list: &[Value]| {
                let named = |agent: &Value| agent["id"].as_str().map(|name| name.trim().to_lowercase());
                list.iter().any(|agent| named(agent).as_deref() == Some(id))
            };
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

    /// Puts variables of the environment into what is taken of agents.
    fn put_in_variables(&mut self) {
        let Some(agents) = self.config.get_mut("agents") else { return };
        let mut left = Vec::new();
        let mut put_in = |of: &mut Value, key: &str, member: &str| {
            let Some(Value::String(text)) = of.get_mut(member) else { return };
            match with_variables(text, &|name| std::env::var(name).ok()) {
                Ok(whole) => *text = whole,
                Err(why) => {
                    left.push((format!("{key}.{member}"), why));
                    of.as_object_mut().map(|of| of.remove(member));
                }
            }
        };
        if let Some(defaults) = agents.get_mut("defaults") {
            put_in(defaults, "agents.defaults", "workspace");
        }
        let list = agents.get_mut("list").and_then(Value::as_array_mut);
        for (at, agent) in list.into_iter().flatten().enumerate() {
            let key = format!("agents.list[{at}]");
            put_in(agent, &key, "model");
            put_in(agent, &key, "workspace");
            if let Some(model) = agent.get_mut("model") {
                put_in(model, &format!("{key}.model"), "primary");
            }
        }
        let file = self.state.config.clone().unwrap_or_default();
        for (key, why) in left {
            self.report(StatePart::Agent, &file, &key, StateOutcome::Left(why));
        }
    }
}

const NO_TOOLS: &str = "it gets no tools here: a file of settings that may take tools from it cannot be read; remove its `tools` from `agents.byId` and import again once it can";
