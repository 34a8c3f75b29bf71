//! Approvals of commands, into permission rules of the directories in which the agents work.
//!
//! Both files of settings say what an agent may run, and the stricter one counts. A rule counts in the directory of its agent
//! alone, so that no other session here may more than before.

use std::path::{Path, PathBuf};

use quipu::rules::{Effect, Rule};
use serde_json::Value;

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

fn security(value: Option<&Value>) -> Option<Security> {
    match value?.as_str()?.trim() {
        "deny" => Some(Security::Deny),
        "allowlist" => Some(Security::Allowlist),
        "full" => Some(Security::Full),
        _ => None,
    }
}

fn ask(value: Option<&Value>) -> Option<Ask> {
    match value?.as_str()?.trim() {
        "off" => Some(Ask::Off),
        "on-miss" => Some(Ask::OnMiss),
        "always" => Some(Ask::Always),
        _ => None,
    }
}

impl Takeover<'_> {
    pub(super) fn take_approvals(&mut self) -> Result<(), Failure> {
        let document = self.state.approvals.clone();
        let file = document.as_ref().map(|document| document.path.clone());
        let file = file.or_else(|| self.state.config.clone()).unwrap_or_else(|| self.state.dir.clone());
        let approvals = document.map_or(Value::Null, |document| document.value);
        if let Some(version) = approvals.get("version").filter(|version| version.as_u64() != Some(1)) {
            let why = format!("it has version {version} of its form; version 1 is supported");
            self.report(StatePart::Approval, &file, "", StateOutcome::Failed(why));
            return Ok(());
        }
        let of = |value: &Value, names: &[&str]| {
            names.iter().try_fold(value.clone(), |value, name| value.get(name).cloned())
        };
        let config = self.config.clone();
        let agents: Vec<(String, PathBuf)> = self.workspaces.clone().into_iter().collect();
        for (id, workspace) in &agents {
            let listed = config.get("agents").and_then(|agents| agents.get("list")).and_then(Value::as_array);
            let own = listed.into_iter().flatten().find(|agent| {
                agent.get("id").and_then(Value::as_str).is_some_and(|name| name.eq_ignore_ascii_case(id))
            });
            let said = |name: &str| {
                let own = own.and_then(|own| of(own, &["tools", "exec", name]));
                own.or_else(|| of(&config, &["tools", "exec", name]))
            };
            let host = |name: &str| {
                let places =
                    [&["agents", id.as_str(), name][..], &["agents", EVERYONE, name], &["defaults", name]];
                places.iter().find_map(|names| of(&approvals, names))
            };
            // The stricter of both. Where neither says anything, nothing is taken: here is asked.
            let security = [security(said("security").as_ref()), security(host("security").as_ref())];
            let security = security.into_iter().flatten().min();
            let asked = [ask(said("ask").as_ref()), ask(host("ask").as_ref())].into_iter().flatten().max();
            self.take_modes(&file, id, workspace, security, asked)?;
            let lists = [EVERYONE, id.as_str()].map(|id| of(&approvals, &["agents", id, "allowlist"]));
            let patterns: Vec<Value> =
                lists.into_iter().flatten().filter_map(|list| list.as_array().cloned()).flatten().collect();
            let says = !patterns.is_empty() || security == Some(Security::Deny) || asked == Some(Ask::Always);
            let others = agents.iter().filter(|(other, path)| other != id && path == workspace);
            let others: Vec<String> = others.map(|(other, _)| format!("`{other}`")).collect();
            if says && !others.is_empty() {
                let why = format!(
                    "its rules count for {} as well: the same directory is theirs",
                    others.join(", ")
                );
                self.report(StatePart::Approval, &file, id, StateOutcome::Note(why));
            }
            if security == Some(Security::Deny) {
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
        self.without_directory(&file, &approvals);
        Ok(())
    }

    /// Agents that approvals are for and that work nowhere.
    fn without_directory(&mut self, file: &Path, approvals: &Value) {
        let agents = approvals.get("agents").and_then(Value::as_object).cloned().unwrap_or_default();
        for (id, entry) in agents {
            let says = entry.as_object().is_some_and(|entry| !entry.is_empty());
            let is_left = match id.as_str() {
                EVERYONE => self.workspaces.is_empty(),
                id => !self.workspaces.contains_key(id),
            };
            if says && is_left {
                let why = "the agent has no directory here that its rules could count in".to_owned();
                self.report(StatePart::Approval, file, &id, StateOutcome::Left(why));
            }
        }
    }

    fn take_modes(
        &mut self,
        file: &Path,
        id: &str,
        workspace: &Path,
        security: Option<Security>,
        asked: Option<Ask>,
    ) -> Result<(), Failure> {
        match security {
            Some(Security::Deny) => {
                let key = format!("{id} security deny");
                self.take_rule(file, &key, workspace, Effect::Deny, "bash")?;
            }
            Some(Security::Full) => {
                let why = "commands without a question are a permission mode here, which is not taken over; commands are asked about".to_owned();
                self.report(
                    StatePart::Approval,
                    file,
                    &format!("{id} security full"),
                    StateOutcome::Left(why),
                );
            }
            Some(Security::Allowlist) | None => {}
        }
        match asked {
            Some(Ask::Always) if security != Some(Security::Deny) => {
                self.take_rule(file, &format!("{id} ask always"), workspace, Effect::Ask, "bash")?;
            }
            Some(Ask::Off) if security == Some(Security::Allowlist) => {
                let why = "commands that no pattern allows are asked about here, and not refused".to_owned();
                self.report(StatePart::Approval, file, &format!("{id} ask off"), StateOutcome::Note(why));
            }
            Some(Ask::Always | Ask::Off | Ask::OnMiss) | None => {}
        }
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
    use super::*;

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
