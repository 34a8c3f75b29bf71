//! Approvals of commands, into permission rules of the directories in which the agents work.
//!
//! Both files of settings say what an agent may run, and the stricter one counts. A rule counts in the directory of its agent
//! alone, so that no other session here may more than before.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quipu::PermissionMode;
use quipu::rules::{Effect, Rule};
use quipu_protocol::DEFAULT_AGENT;
use serde_json::Value;

use super::agents::id_of;
use super::{StateOutcome, StatePart, Takeover, TakeoverMode};
use crate::permissions::{Record, RuleReach};
use crate::{Failure, FailureKind};

/// Patterns of one agent at most.
const PATTERNS: usize = 1_000;
/// The entry that counts for all agents.
const EVERYONE: &str = "*";

/// How much an agent may run, the strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Security {
    Deny,
    Allowlist,
    Full,
}

/// When is asked, the strictest last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Ask {
    Off,
    OnMiss,
    Always,
}

/// A value that is not known, which counts as the strictest.
struct UnknownValue;

impl Security {
    fn of(value: &Value) -> Result<Self, UnknownValue> {
        match value.as_str().map(str::trim) {
            Some("deny") => Ok(Self::Deny),
            Some("allowlist") => Ok(Self::Allowlist),
            Some("full") => Ok(Self::Full),
            _ => Err(UnknownValue),
        }
    }
}

impl Ask {
    fn of(value: &Value) -> Result<Self, UnknownValue> {
        match value.as_str().map(str::trim) {
            Some("off") => Ok(Self::Off),
            Some("on-miss") => Ok(Self::OnMiss),
            Some("always") => Ok(Self::Always),
            _ => Err(UnknownValue),
        }
    }
}

/// Stands for a value of which an object above is none: no word that is known.
static UNREADABLE: Value = Value::Bool(false);

/// What stands below these names. Something else than an object on the way there may have said anything; also null, which stands for
/// what cannot be read, but at the top for a file that is not there.
fn member<'a>(value: &'a Value, names: &[&str]) -> Option<&'a Value> {
    if value.is_null() {
        return None;
    }
    let mut value = value;
    for name in names {
        value = match value {
            Value::Object(members) => members.get(*name)?,
            _ => return Some(&UNREADABLE),
        };
    }
    Some(value)
}

/// What an agent may run.
#[derive(Debug, Default)]
struct AgentApprovals {
    security: Option<Security>,
    asked: Option<Ask>,
    patterns: Vec<Value>,
    /// Values that are not known, by their names.
    unknown: Vec<&'static str>,
}

impl AgentApprovals {
    /// Of the settings of the gateway, and of the file with approvals: of both the stricter one. Where neither says anything, nothing is taken.
    fn of(config: &Value, approvals: &Value, id: &str) -> Self {
        let listed = config.get("agents").and_then(|agents| agents.get("list")).and_then(Value::as_array);
        let own = listed.into_iter().flatten().find(|agent| id_of(agent) == id);
        let values = |name: &str| {
            let commands = ["tools", "exec", name];
            let gateway = own.and_then(|own| member(own, &commands)).or_else(|| member(config, &commands));
            let places = [&["agents", id, name][..], &["agents", EVERYONE, name], &["defaults", name]];
            let host = places.iter().find_map(|names| member(approvals, names));
            // An older name of the main one.
            let older = member(approvals, &["agents", "default", name]).filter(|_| id == DEFAULT_AGENT);
            [gateway, host, older].into_iter().flatten()
        };
        let mut unknown = Vec::new();
        let mut known = |name: &'static str, is_known: bool| {
            if !is_known && !unknown.contains(&name) {
                unknown.push(name);
            }
        };
        let (mut security, mut asked) = (None, None);
        for one in values("security").map(Security::of) {
            known("security", one.is_ok());
            let one = one.unwrap_or(Security::Deny);
            security = Some(security.map_or(one, |other: Security| other.min(one)));
        }
        // Newer versions have one word for both.
        const MODE: &str = "/tools/exec/mode";
        let mode = own.and_then(|own| own.pointer(MODE)).or_else(|| config.pointer(MODE));
        if let Some(one) = mode.map(Security::of) {
            known("mode", one.is_ok());
            let one = one.unwrap_or(Security::Deny);
            security = Some(security.map_or(one, |other: Security| other.min(one)));
        }
        for one in values("ask").map(Ask::of) {
            known("ask", one.is_ok());
            let one = one.unwrap_or(Ask::Always);
            asked = Some(asked.map_or(one, |other: Ask| other.max(one)));
        }
        let lists = [EVERYONE, id].map(|id| member(approvals, &["agents", id, "allowlist"]));
        if lists.iter().flatten().any(|list| !list.is_array() && !list.is_null()) {
            known("allowlist", false);
            security = Some(Security::Deny);
        }
        let patterns = lists.into_iter().flatten().filter_map(Value::as_array).flatten().cloned().collect();
        Self { security, asked, patterns, unknown }
    }

    /// Whether anything of it counts in a directory.
    fn says(&self) -> bool {
        !self.patterns.is_empty()
            || matches!(self.security, Some(Security::Deny | Security::Allowlist))
            || self.asked == Some(Ask::Always)
    }

    /// Whether commands that no pattern allows do not run there without a question.
    fn asks(&self) -> bool {
        match self.security {
            Some(Security::Allowlist) => true,
            Some(Security::Deny | Security::Full) => false,
            None => !self.patterns.is_empty(),
        }
    }
}

impl Takeover<'_> {
    pub(super) fn take_approvals(&mut self) -> Result<(), Failure> {
        let document = self.state.approvals.clone();
        let file = document.as_ref().map(|document| document.path.clone());
        let file = file.or_else(|| self.state.config.clone()).unwrap_or_else(|| self.state.dir.clone());
        let mut approvals = document.map_or(Value::Null, |document| document.value);
        let mut is_lost = self.lacks_approvals;
        if let Some(version) = approvals.get("version").filter(|version| version.as_u64() != Some(1)) {
            let why = format!("it has version {version} of its form; version 1 is supported");
            self.report(StatePart::Approval, &file, "", StateOutcome::Failed(why));
            (approvals, is_lost) = (Value::Null, true);
        }
        let is_object = |value: &Value| value.is_object();
        if !approvals.is_null() && (!approvals.is_object() || !approvals.get("agents").is_none_or(is_object))
        {
            let why = "it is not an object with `agents` as one; nothing of it is taken".to_owned();
            self.report(StatePart::Approval, &file, "", StateOutcome::Failed(why));
            (approvals, is_lost) = (Value::Null, true);
        }
        let config = self.config.clone();
        let agents: Vec<(String, PathBuf)> = self.workspaces.clone().into_iter().collect();
        for (id, workspace) in &agents {
            let mut own = AgentApprovals::of(&config, &approvals, id);
            for name in std::mem::take(&mut own.unknown) {
                let strictest = if name == "ask" { "always" } else { "deny" };
                let why = format!("its `{name}` has a value that is not known, and counts as `{strictest}`");
                self.report(StatePart::Approval, &file, id, StateOutcome::Note(why));
            }
            // What cannot be read may have said that.
            if is_lost {
                own.security =
                    Some(own.security.map_or(Security::Allowlist, |one| one.min(Security::Allowlist)));
            }
            let others = agents.iter().filter(|(other, path)| other != id && path == workspace);
            let others: Vec<String> = others.map(|(other, _)| format!("`{other}`")).collect();
            if own.says() && !others.is_empty() {
                let why = format!(
                    "its rules count for {} as well: the same directory is theirs",
                    others.join(", ")
                );
                self.report(StatePart::Approval, &file, id, StateOutcome::Note(why));
            }
            self.take_modes(&file, id, workspace, &own)?;
            let patterns = own.patterns;
            if own.security == Some(Security::Deny) {
                if !patterns.is_empty() {
                    let why = "its allowlist is not taken, because it may run nothing".to_owned();
                    self.report(StatePart::Approval, &file, id, StateOutcome::Left(why));
                }
                continue;
            }
            if patterns.len() > PATTERNS {
                let why = format!("its allowlist has more than {PATTERNS} patterns; the others are left out");
                self.report(StatePart::Approval, &file, id, StateOutcome::Left(why));
            }
            for pattern in patterns.iter().take(PATTERNS) {
                self.take_pattern(&file, id, workspace, pattern)?;
            }
        }
        self.without_directory(&file, &config, &approvals);
        Ok(())
    }

    /// Agents that approvals are for and that work nowhere.
    fn without_directory(&mut self, file: &Path, config: &Value, approvals: &Value) {
        let listed = config.get("agents").and_then(|agents| agents.get("list")).and_then(Value::as_array);
        let mut agents: BTreeSet<String> = listed.into_iter().flatten().map(id_of).collect();
        agents.extend(self.state.agents.iter().map(|agent| agent.id.clone()));
        let named = approvals.get("agents").and_then(Value::as_object).into_iter().flatten();
        agents.extend(named.map(|(id, _)| id.clone()));
        for id in agents.into_iter().filter(|id| !id.is_empty()) {
            let is_left = match id.as_str() {
                EVERYONE => self.workspaces.is_empty(),
                id => !self.workspaces.contains_key(id),
            };
            if is_left && AgentApprovals::of(config, approvals, &id).says() {
                let why = "the agent has no directory here that its rules could count in: set `workspace` of the agent, \
                           and import again"
                    .to_owned();
                self.report(StatePart::Approval, file, &id, StateOutcome::Left(why));
            }
        }
    }

    fn take_modes(
        &mut self,
        file: &Path,
        id: &str,
        workspace: &Path,
        own: &AgentApprovals,
    ) -> Result<(), Failure> {
        match own.security {
            Some(Security::Deny) => {
                let key = format!("{id} security deny");
                self.take_rule(file, &key, workspace, Effect::Deny, "bash")?;
            }
            Some(Security::Full) => {
                let why = "commands without a question are the permission mode `full` here, which is not taken over; the mode of \
                           the directory stays";
                self.report(
                    StatePart::Approval,
                    file,
                    &format!("{id} security full"),
                    StateOutcome::Left(why.to_owned()),
                );
            }
            Some(Security::Allowlist) | None => {}
        }
        if own.asks() {
            self.take_mode(file, &format!("{id} security allowlist"), workspace)?;
        }
        match own.asked {
            Some(Ask::Always) if own.security != Some(Security::Deny) => {
                self.take_rule(file, &format!("{id} ask always"), workspace, Effect::Ask, "bash")?;
            }
            Some(Ask::Off) if own.security == Some(Security::Allowlist) => {
                let why = "commands that no pattern allows are asked about here, and not refused".to_owned();
                self.report(StatePart::Approval, file, &format!("{id} ask off"), StateOutcome::Note(why));
            }
            Some(Ask::Always | Ask::Off | Ask::OnMiss) | None => {}
        }
        Ok(())
    }

    /// Commands that no rule allows are asked about in a directory, unless a mode is set for it.
    fn take_mode(&mut self, file: &Path, key: &str, workspace: &Path) -> Result<(), Failure> {
        let label = |mode: PermissionMode| format!("mode {} in {}", mode.word(), workspace.display());
        let record = Record::of(self.home, workspace);
        let outcome = match record.project()?.mode {
            Some(PermissionMode::Ask) => StateOutcome::Same(label(PermissionMode::Ask)),
            Some(mode) => StateOutcome::Kept(label(mode)),
            None => {
                if self.mode == TakeoverMode::Write {
                    record.set(PermissionMode::Ask)?;
                }
                StateOutcome::Added(label(PermissionMode::Ask))
            }
        };
        self.report(StatePart::Approval, file, key, outcome);
        Ok(())
    }

    fn take_pattern(
        &mut self,
        file: &Path,
        id: &str,
        workspace: &Path,
        pattern: &Value,
    ) -> Result<(), Failure> {
        let text = pattern.as_str().or_else(|| pattern.get("pattern")?.as_str()).unwrap_or_default().trim();
        let key = format!("{id} {text}");
        let has_arguments = pattern.get("argPattern").is_some_and(|pattern| !pattern.is_null());
        let rules = if has_arguments {
            Err("it limits arguments by a regular expression, which rules here do not have")
        } else {
            rules_of(text)
        };
        match rules {
            Ok(rules) => {
                for rule in rules {
                    self.take_rule(file, &key, workspace, Effect::Allow, &rule)?;
                }
            }
            Err(why) => self.report(StatePart::Approval, file, &key, StateOutcome::Left(why.to_owned())),
        }
        Ok(())
    }

    fn take_rule(
        &mut self,
        file: &Path,
        key: &str,
        workspace: &Path,
        effect: Effect,
        text: &str,
    ) -> Result<(), Failure> {
        let label = format!("{} {text} in {}", effect.word(), workspace.display());
        let Ok(rule) = Rule::parse(text) else {
            let why = format!("`{text}` is no rule here");
            self.report(StatePart::Approval, file, key, StateOutcome::Left(why));
            return Ok(());
        };
        let record = Record::of(self.home, workspace);
        let is_there = |saved: &crate::permissions::SavedRule| {
            saved.reach == RuleReach::Project && saved.effect == effect && saved.rule.text() == rule.text()
        };
        let outcome = if record.rules()?.iter().any(is_there) {
            StateOutcome::Same(label)
        } else if self.mode == TakeoverMode::DryRun {
            StateOutcome::Added(label)
        } else {
            match record.add_rule(effect, &rule, RuleReach::Project) {
                Ok(_) => StateOutcome::Added(label),
                // There are as many as there may be.
                Err(failure) if failure.kind == FailureKind::Request => StateOutcome::Left(failure.message),
                Err(failure) => return Err(failure),
            }
        };
        self.report(StatePart::Approval, file, key, outcome);
        Ok(())
    }
}

/// The rules that allow what a pattern allows, or less: a pattern is a program by its path, or by its name alone.
fn rules_of(pattern: &str) -> Result<Vec<String>, &'static str> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "/._-+@~".contains(letter);
    if pattern.is_empty() || pattern.contains(['*', '?', '[', '{']) {
        return Err(
            "a pattern of paths is not possible in rules about commands; allow its programs one by one",
        );
    }
    if !pattern.chars().all(fits) || (pattern.contains('~') && !pattern.starts_with("~/")) {
        return Err("its path has letters that a rule about commands cannot have");
    }
    if pattern.starts_with('-') || (pattern.contains('/') && !pattern.starts_with(['/', '~'])) {
        return Err("it is neither a whole path nor a name");
    }
    let mut rules = vec![format!("bash({pattern} *)")];
    // A name is the program that it leads to.
    let name = pattern.rsplit('/').next().unwrap_or_default();
    if name != pattern && found_as(name).is_some_and(|found| same_file(&found, Path::new(pattern))) {
        rules.push(format!("bash({name} *)"));
    }
    Ok(rules)
}

/// The program of this name.
fn found_as(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

fn same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// The pattern that a rule about a command is; `None` where no pattern says the same.
pub(super) fn pattern_of(rule: &str) -> Option<&str> {
    let program = rule.strip_prefix("bash(")?.strip_suffix(" *)")?;
    rules_of(program).is_ok().then_some(program)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn approvals_of_a_wrong_shape_are_the_strictest() {
        let of = |config: &Value, approvals: &Value| {
            let AgentApprovals { security, asked, unknown, .. } =
                AgentApprovals::of(config, approvals, "main");
            (security, asked, unknown)
        };
        let strictest = (Some(Security::Deny), Some(Ask::Always), vec!["security", "ask"]);
        for wrong in [json!("full"), json!(["full"]), json!(7), json!(true), Value::Null] {
            let exec = json!({ "exec": wrong });
            for config in [
                json!({ "tools": exec }),
                json!({ "tools": wrong }),
                json!({ "agents": { "list": [{ "id": "main", "tools": exec }] } }),
                json!({ "agents": { "list": [{ "tools": wrong }] } }),
            ] {
                assert_eq!(of(&config, &Value::Null), strictest, "{config}");
            }
            for approvals in [
                json!({ "defaults": wrong }),
                json!({ "agents": { "*": wrong }, "defaults": { "security": "full", "ask": "off" } }),
                json!({ "agents": { "main": wrong, "*": { "security": "full", "ask": "off" } } }),
            ] {
                let (security, asked, unknown) = of(&json!({}), &approvals);
                assert_eq!((security, asked), (strictest.0, strictest.1), "{approvals}");
                assert!(unknown.starts_with(&strictest.2), "{approvals}: {unknown:?}");
            }
        }
        for wrong in [json!({ "pattern": "git" }), json!("git"), json!(7)] {
            let approvals = json!({ "agents": { "main": { "security": "full", "allowlist": wrong } } });
            assert_eq!(
                of(&json!({}), &approvals),
                (Some(Security::Deny), None, vec!["allowlist"]),
                "{wrong}"
            );
        }
        for [config, approvals] in
            [[Value::Null, Value::Null], [json!({ "tools": {} }), json!({ "agents": { "main": {} } })]]
        {
            assert_eq!(of(&config, &approvals), (None, None, vec![]), "{config}");
        }
    }

    #[test]
    fn older_and_newer_words_of_approvals_count() {
        let of =
            |config: &Value, approvals: &Value, id: &str| AgentApprovals::of(config, approvals, id).security;
        let older =
            json!({ "agents": { "default": { "security": "deny" }, "main": { "security": "full" } } });
        assert_eq!(of(&json!({}), &older, "main"), Some(Security::Deny));
        assert_eq!(of(&json!({}), &older, "ops"), None);
        for (mode, expect) in [("deny", Security::Deny), ("full", Security::Full), ("auto", Security::Deny)] {
            let config = json!({ "tools": { "exec": { "mode": mode } } });
            assert_eq!(of(&config, &Value::Null, "main"), Some(expect), "{mode}");
        }
    }

    #[test]
    fn patterns_become_rules_that_allow_no_more() {
        assert_eq!(rules_of("frobnicate").unwrap(), ["bash(frobnicate *)"]);
        assert_eq!(rules_of("/opt/tools/frobnicate").unwrap(), ["bash(/opt/tools/frobnicate *)"]);
        let found = found_as("sh").unwrap();
        let both = [format!("bash({} *)", found.display()), "bash(sh *)".to_owned()];
        assert_eq!(rules_of(found.to_str().unwrap()).unwrap(), both);
        for left in
            ["", "*", "/usr/bin/*", "~/x/**/rg", "a b", "bin/x", "-x", "/a$(b)", "~x/y", "/a;b", "$HOME/x"]
        {
            assert!(rules_of(left).is_err(), "{left}");
        }
        assert!(Rule::parse("bash(~/bin/x *)").is_ok());
    }

    #[test]
    fn rules_about_one_program_are_patterns() {
        for (rule, pattern) in [
            ("bash(git *)", Some("git")),
            ("bash(/usr/bin/git *)", Some("/usr/bin/git")),
            ("bash(git status *)", None),
            ("bash", None),
            ("bash(git)", None),
            ("write(docs/**)", None),
        ] {
            assert_eq!(pattern_of(rule), pattern, "{rule}");
        }
    }
}
