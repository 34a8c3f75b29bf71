//! `quipu permissions`.

use std::io::Write as _;
use std::path::Path;

use crate::console::current_dir;
use quipu::PermissionMode;
use quipu::rules::{Effect, Rule, Verdict};
use quipu_host::{
    Entry, Home, PermissionItem, PermissionTest, Record, RuleReach, SavedRule, TestedDecision, TestedPart,
};

use crate::args::{EffectArg, PermissionsAction, PermissionsArgs, StoreArg};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{note, printable};

/// The mode that a command of the program sets, if it sets one.
pub(crate) fn mode_set_by(words: &[String]) -> Option<PermissionMode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["permissions", "set", mode] | ["permissions", mode] => quipu_host::mode_named(mode),
        _ => None,
    }
}

/// `quipu permissions`.
pub(crate) fn run(args: &PermissionsArgs) -> Result<(), Failure> {
    let home = home(&StoreArg::default())?;
    let cwd = current_dir()?;
    let record = Record::of(&home, &cwd);
    match &args.action {
        None | Some(PermissionsAction::List) => list(&record, args.json),
        Some(PermissionsAction::Set { mode }) => set(&record, &cwd, (*mode).into()),
        Some(PermissionsAction::Ask) => set(&record, &cwd, PermissionMode::Ask),
        Some(PermissionsAction::Workspace) => set(&record, &cwd, PermissionMode::Workspace),
        Some(PermissionsAction::Full) => set(&record, &cwd, PermissionMode::Full),
        Some(PermissionsAction::Accept { file }) => accept(&record, file),
        Some(PermissionsAction::Add { effect, rule, everywhere }) => {
            let reach = if *everywhere { RuleReach::Everywhere } else { RuleReach::Project };
            add(&record, (*effect).into(), rule, reach)
        }
        Some(PermissionsAction::Test { subject, tool, json }) => test(&home, &cwd, (tool, subject), *json),
        Some(PermissionsAction::Revoke { id }) => {
            if record.revoke(id)? {
                note(format!("{id} is revoked, also for open sessions"));
                return Ok(());
            }
            Err(Failure::usage(format!("there is no permission `{id}`; `quipu permissions list` lists them")))
        }
    }
}

impl From<EffectArg> for Effect {
    fn from(effect: EffectArg) -> Self {
        match effect {
            EffectArg::Allow => Self::Allow,
            EffectArg::Ask => Self::Ask,
            EffectArg::Deny => Self::Deny,
        }
    }
}

fn add(record: &Record, effect: Effect, rule: &str, reach: RuleReach) -> Result<(), Failure> {
    let rule = Rule::parse(rule).map_err(|error| Failure::usage(format!("{}: {error}", printable(rule))))?;
    let id = record.add_rule(effect, &rule, reach)?;
    note(format!("{id}: {} {rule} {}, also in open sessions", effect.word(), reach_words(reach)));
    Ok(())
}

fn reach_words(reach: RuleReach) -> &'static str {
    match reach {
        RuleReach::Project => "in this directory",
        RuleReach::Everywhere => "in every directory",
        RuleReach::Settings => "in the settings",
    }
}

/// Says what becomes of a call, and leaves with a code for it.
fn test(home: &Home, cwd: &Path, (tool, subject): (&str, &str), json: bool) -> Result<(), Failure> {
    let tested = quipu_host::test_permission(home, cwd, tool, subject)?;
    let PermissionTest { decision, reason, parts, offers } = &tested;
    let word = match decision {
        TestedDecision::Allowed => "allowed",
        TestedDecision::Asked => "asked",
        TestedDecision::Denied => "denied",
    };
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if json {
        let parts: Vec<_> = parts.iter().map(part_json).collect();
        let line = serde_json::json!({
            "decision": word, "tool": tool, "subject": subject, "reason": reason, "parts": parts, "offers": offers,
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(
            out,
            "{word}{}",
            if reason.is_empty() { String::new() } else { format!(": {}", printable(reason)) }
        )?;
        for TestedPart { part, verdict, rule, why } in parts {
            let rule = match rule {
                Some(SavedRule { id, reach, effect, rule }) => {
                    let id = if id.is_empty() { String::new() } else { format!("{id}, ") };
                    format!("{} {rule} ({id}{})", effect.word(), reach_words(*reach))
                }
                None => why
                    .map_or_else(|| "no rule".to_owned(), |why| format!("{}: {why}", verdict_word(*verdict))),
            };
            writeln!(out, "  {}  <- {}", printable(part).replace('\n', "\\n"), printable(&rule))?;
        }
        if !offers.is_empty() {
            writeln!(out, "  a rule for it: {}", offers.join(", "))?;
        }
    }
    out.flush()?;
    match decision {
        TestedDecision::Allowed => Ok(()),
        TestedDecision::Asked => Err(Failure::silent(Exit::Asked)),
        TestedDecision::Denied => Err(Failure::silent(Exit::Denied)),
    }
}

fn part_json(tested: &TestedPart) -> serde_json::Value {
    let TestedPart { part, verdict, rule, why } = tested;
    let rule = rule.as_ref().map(|SavedRule { id, reach, effect, rule }| {
        serde_json::json!({
            "id": id, "effect": effect.word(), "rule": rule.text(), "everywhere": *reach == RuleReach::Everywhere,
        })
    });
    serde_json::json!({ "part": part, "verdict": verdict_word(*verdict), "rule": rule, "why": why })
}

fn verdict_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::NoRule => "no rule",
        Verdict::Unclear => "unclear",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    }
}

fn accept(record: &Record, file: &Path) -> Result<(), Failure> {
    let path = quipu_host::accept_rules(record, file)?;
    note(format!(
        "{} is accepted in its current form, for this directory; new sessions read it",
        path.display()
    ));
    Ok(())
}

fn set(record: &Record, cwd: &Path, mode: PermissionMode) -> Result<(), Failure> {
    record.set(mode)?;
    note(format!("permissions of {} are now `{}`", cwd.display(), mode.word()));
    Ok(())
}

fn list(record: &Record, json: bool) -> Result<(), Failure> {
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    let everywhere = record.everywhere()?;
    if !everywhere.is_empty() && json {
        writeln!(out, "{}", serde_json::json!({ "everywhere": true, "entries": everywhere }))?;
    } else if !everywhere.is_empty() {
        writeln!(out, "{:<10} every directory", "rules")?;
        for entry in &everywhere {
            entry_line(&mut out, entry)?;
        }
    }
    for (directory, project) in &record.all()? {
        let mode = project.mode.unwrap_or_default().word();
        if json {
            let line = serde_json::json!({ "project": directory, "mode": mode, "entries": project.entries });
            writeln!(out, "{line}")?;
            continue;
        }
        writeln!(out, "{mode:<10} {}", printable(directory))?;
        for entry in &project.entries {
            entry_line(&mut out, entry)?;
        }
    }
    out.flush()?;
    Ok(())
}

fn entry_line(out: &mut dyn std::io::Write, entry: &Entry) -> Result<(), Failure> {
    let cache;
    let (kind, what) = match &entry.what {
        PermissionItem::Directory { path } => ("directory", path.as_str()),
        PermissionItem::Grant { tool, subject, .. } => (tool.as_str(), subject.as_str()),
        PermissionItem::Rule { effect, rule } => (effect.word(), rule.as_str()),
        PermissionItem::Rules { path, .. } => ("rules", path.as_str()),
        PermissionItem::Settings { path, .. } => ("settings", path.as_str()),
        PermissionItem::Resources { path, used: true, .. } => ("skills", path.as_str()),
        PermissionItem::Resources { path, used: false, .. } => {
            cache = format!("{path} (not used)");
            ("skills", cache.as_str())
        }
        PermissionItem::Cache { variable, path, write } => {
            let how = if *write { "written by commands" } else { "kept separate" };
            cache = format!("{variable}={path} ({how})");
            ("cache", cache.as_str())
        }
    };
    writeln!(out, "  {:<6} {:<10} {}", entry.id, printable(kind), printable(what).replace('\n', "\\n"))?;
    Ok(())
}
