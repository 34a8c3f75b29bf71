//! What the user's permission rules say of a call, and in which words a person or the model reads it.

use std::path::{Path, PathBuf};

use quipu_protocol::{CommandInput, Touches};
use quipu_rules::{FileAccess, Judgement, Place, RuleSet, Verdict};
use quipu_workspace::{Access, AccessMode, Reach, file_key};

use crate::policy::Proposal;

/// Where the paths of rules begin.
#[derive(Debug, Clone, Default)]
pub(crate) struct RuleRoots {
    /// The true path of the session's directory.
    pub(crate) cwd: PathBuf,
    pub(crate) home: Option<PathBuf>,
}

/// What rules say of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RuleVerdict {
    /// Nothing.
    Silent,
    /// What would be asked about it is not asked.
    Allowed,
    /// A person is asked, also where nobody would be; why. Whether a yes to the same call counts.
    Asked(String, bool),
    /// It does not run; why, for the model.
    Denied(String),
}

/// What rules say of a call. May look at files.
pub(crate) fn ruling(
    rules: &RuleSet,
    roots: &RuleRoots,
    proposal: &Proposal<'_>,
    access: &Access,
) -> RuleVerdict {
    if rules.is_empty() {
        return RuleVerdict::Silent;
    }
    let tool = proposal.call.name.as_str();
    let command = if tool == "bash" { proposal.text("command") } else { None };
    if let Touches::Input(input) = proposal.touches {
        return input_ruling(rules, roots, tool, input);
    }
    let judged = match (proposal.touches, &command) {
        (Touches::Anything, Some(command)) => {
            let network = proposal.flag("network").then(|| rules.tool("network"));
            // A rule about hosts is none about a command that uses the network as the user can.
            match network.filter(|network| network.verdict > Verdict::NoRule) {
                Some(network) => network,
                None => judged_command(rules, roots, command),
            }
        }
        (Touches::Reads(paths), _) => judged_files(rules, roots, tool, paths, FileAccess::Read),
        (Touches::Writes(paths), _) => judged_files(rules, roots, tool, paths, FileAccess::Write),
        (Touches::Nothing | Touches::Session | Touches::Anything | Touches::Input(_), _) => rules.tool(tool),
    };
    verdict_of(rules, tool, &judged, proposal.touches, access)
}

/// What rules say of text for a running command. Where that is a shell, the text is a command line; what else does with it no rule
/// can know.
fn input_ruling(rules: &RuleSet, roots: &RuleRoots, tool: &str, input: &CommandInput) -> RuleVerdict {
    let (of_tool, of_text) = (rules.tool(tool), judged_command(rules, roots, &input.text));
    let judged = if of_text.verdict >= Verdict::Ask { of_text } else { of_tool };
    match judged.verdict {
        Verdict::NoRule | Verdict::Unclear if rules.restricts_commands() => RuleVerdict::Asked(
            "Your rules about commands cannot judge what a running command does with it.".to_owned(),
            false,
        ),
        _ => verdict_of(rules, tool, &judged, &Touches::Nothing, &Access::default()),
    }
}

fn verdict_of(
    rules: &RuleSet,
    tool: &str,
    judged: &Judgement,
    touches: &Touches,
    access: &Access,
) -> RuleVerdict {
    let of_rule = || {
        let decisive = judged.decisive();
        let rule = decisive.and_then(|part| rules.get(part.rule?)).map(|(_, rule)| rule.text());
        let part = decisive.map_or("", |part| part.part.as_str());
        let about = if part == tool { String::new() } else { format!(" (`{}`)", shortened(part)) };
        (rule.unwrap_or_default().to_owned(), about)
    };
    match judged.verdict {
        Verdict::Deny => {
            let (rule, about) = of_rule();
            RuleVerdict::Denied(format!("The user's permission rule `{rule}` denies this call{about}."))
        }
        Verdict::Ask => {
            let (rule, about) = of_rule();
            RuleVerdict::Asked(format!("Your rule `{rule}` asks about it{about}."), false)
        }
        Verdict::Unclear if rules.restricts_commands() => {
            let why = judged.decisive().and_then(|part| part.why).unwrap_or_default();
            RuleVerdict::Asked(format!("Your rules cannot judge it, because {why}."), true)
        }
        Verdict::Allow if configures(rules, judged, touches, access) => RuleVerdict::Silent,
        Verdict::Allow => RuleVerdict::Allowed,
        Verdict::Unclear | Verdict::NoRule => RuleVerdict::Silent,
    }
}

/// Whether a rule with `*` reaches a file that configures programs: only one about that file allows it.
fn configures(rules: &RuleSet, judged: &Judgement, touches: &Touches, access: &Access) -> bool {
    let Touches::Writes(paths) = touches else { return false };
    let mut parts = paths.iter().zip(&judged.parts);
    parts.any(|(path, part)| {
        access.reach(path, AccessMode::Write) == Reach::Configures
            && !part.rule.is_some_and(|rule| rules.is_exact(rule))
    })
}

pub(crate) fn judged_command(rules: &RuleSet, roots: &RuleRoots, command: &str) -> Judgement {
    rules.command(command, &place(roots, &file_key))
}

pub(crate) fn judged_files(
    rules: &RuleSet,
    roots: &RuleRoots,
    tool: &str,
    paths: &[PathBuf],
    access: FileAccess,
) -> Judgement {
    rules.files(tool, paths, access, &place(roots, &file_key))
}

fn place<'a>(roots: &'a RuleRoots, true_path: &'a dyn Fn(&Path) -> PathBuf) -> Place<'a> {
    Place { cwd: &roots.cwd, home: roots.home.as_deref(), true_path }
}

/// What fits into a line.
fn shortened(part: &str) -> String {
    const MOST: usize = 200;
    let line = part.replace(['\n', '\t'], " ");
    if line.len() <= MOST { line } else { format!("{}…", &line[..line.floor_char_boundary(MOST)]) }
}
