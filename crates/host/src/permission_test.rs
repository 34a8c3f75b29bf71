//! What the permissions of a directory say of a call, without making it.

use std::path::Path;

use quipu::rules::{FileAccess, Judgement, Place, RuleSet, Verdict};
use quipu::{Decision, PermissionMode, Permissions, Policy as _, Proposal, Touches};
use quipu_protocol::{Json, ToolCall};
use quipu_workspace::file_key;

use crate::permissions::{SavedRule, Source, UnsavedPermissions};
use crate::{Failure, Home};

/// What would become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestedDecision {
    /// It runs.
    Allowed,
    /// A person is asked; without one it does not run.
    Asked,
    /// It does not run.
    Denied,
}

/// One part of a call, and the rule that decides about it.
#[derive(Debug, Clone)]
pub struct TestedPart {
    /// As it was written.
    pub part: String,
    /// What is said of it.
    pub verdict: Verdict,
    /// The rule.
    pub rule: Option<SavedRule>,
    /// Why no rule with `*` allows it, or why it needs none.
    pub why: Option<&'static str>,
}

/// What the permissions say of a call.
#[derive(Debug, Clone)]
pub struct PermissionTest {
    /// What becomes of it.
    pub decision: TestedDecision,
    /// The question, why it is denied, or why it runs where no rule allows it.
    pub reason: String,
    /// Its parts.
    pub parts: Vec<TestedPart>,
    /// The rules that the question would offer.
    pub offers: Vec<String>,
}

/// Tests a call of a tool in `cwd`. `subject`: the command line of `bash`, the path of a file, a host of `network`, or
/// nothing.
///
/// # Errors
/// Where the permissions cannot be read, or the subject is none of the tool.
pub fn test_permission(
    home: &Home,
    cwd: &Path,
    tool: &str,
    subject: &str,
) -> Result<PermissionTest, Failure> {
    let source = Source::begun_in(home, cwd);
    let cwd = &*source.cwd;
    let saved = source.rules()?;
    let (rules, grants) = source.read(&UnsavedPermissions::default())?;
    let own = rules.home.as_deref().map(file_key);
    let true_cwd = file_key(cwd);
    let place = Place { cwd: &true_cwd, home: own.as_deref(), true_path: &file_key };
    let paths = || vec![file_key(&cwd.join(subject))];
    let (touches, judgement) = match tool {
        "bash" => (Touches::Anything, rules.rules.command(subject, &place)),
        "network" => return tested_host(&rules.rules, &saved, subject),
        "read" | "grep" | "find" | "ls" => {
            let paths = paths();
            let judgement = rules.rules.files(tool, &paths, FileAccess::Read, &place);
            (Touches::Reads(paths), judgement)
        }
        _ if !subject.is_empty() => {
            let paths = paths();
            let judgement = rules.rules.files(tool, &paths, FileAccess::Write, &place);
            (Touches::Writes(paths), judgement)
        }
        _ => (Touches::Anything, rules.rules.tool(tool)),
    };
    let arguments = Json::from(serde_json::json!({ "command": subject }));
    let call = ToolCall {
        id: "test".into(),
        name: tool.to_owned(),
        arguments,
        thought_signature: None,
        namespace: None,
    };
    let permissions = Permissions::new(rules, grants);
    let decision = permissions.decide(&Proposal { call: &call, cwd, touches: &touches, travel: None });
    let parts = tested(&judgement, &saved);
    let (decision, reason) = match decision {
        Decision::Allow if judgement.verdict == Verdict::Allow => (TestedDecision::Allowed, String::new()),
        Decision::Allow => (TestedDecision::Allowed, allowed_without_rule(permissions.mode(), tool)),
        Decision::Deny { reason } => (TestedDecision::Denied, reason),
        Decision::Ask { question, .. } => (TestedDecision::Asked, question),
        Decision::NoOpinion => (TestedDecision::Asked, String::new()),
    };
    let offers = if decision == TestedDecision::Asked { judgement.proposals() } else { Vec::new() };
    Ok(PermissionTest { decision, reason, parts, offers })
}

/// Why a call runs that no rule allows.
fn allowed_without_rule(mode: PermissionMode, tool: &str) -> String {
    match mode {
        PermissionMode::Ask if tool == "bash" => "exactly this command was always allowed".into(),
        PermissionMode::Ask => "no mode asks about it".into(),
        mode => format!("the mode `{}` does not ask about it", mode.word()),
    }
}

fn tested(judgement: &Judgement, saved: &[SavedRule]) -> Vec<TestedPart> {
    let part = |part: &quipu::rules::PartJudgement| TestedPart {
        part: part.part.clone(),
        verdict: part.verdict,
        rule: part.rule.and_then(|number| saved.get(number)).cloned(),
        why: part.why,
    };
    judgement.parts.iter().map(part).collect()
}

/// A host that a command wants to reach through the proxy: nobody is asked about it.
fn tested_host(rules: &RuleSet, saved: &[SavedRule], subject: &str) -> Result<PermissionTest, Failure> {
    let host = quipu::rules::Host::parse(subject, Some(443))
        .ok_or_else(|| Failure::request(format!("`{subject}` is not a host, such as api.example.com:443")))?;
    let judgement = rules.host(&host);
    let decision =
        if judgement.verdict == Verdict::Allow { TestedDecision::Allowed } else { TestedDecision::Denied };
    let reason = match judgement.verdict {
        Verdict::Allow => String::new(),
        _ => format!("No rule allows commands to reach it; `network({})` would.", host.name()),
    };
    let parts = tested(&judgement, saved);
    Ok(PermissionTest { decision, reason, parts, offers: vec![format!("network({})", host.name())] })
}
