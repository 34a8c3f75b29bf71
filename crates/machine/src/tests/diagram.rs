//! The states of the machine and the ways between them, as they were taken, drawn in `docs/machine.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::super::{CommitError, Machine, MachineInput, Phase, Tag};

/// From which state to which other one, and upon what.
pub(super) type Transition = (&'static str, &'static str, String);

/// Each state with what it is.
const STATES: [(&str, &str); 16] = [
    ("Idle", "nothing is under way; the queues may hold what waits for the next run"),
    ("Starting", "hooks are asked what they add to what begins the run"),
    ("Committing", "the messages that begin the run, or come between two turns, are being committed"),
    ("Calling", "a model call is under way"),
    ("Answered", "the answer is being committed, and its calls are being prepared"),
    ("Tools", "tools run, or wait for an answer of a person"),
    ("Results", "the results of the tools are being committed"),
    ("Ending", "the model is done, and hooks decide whether the run continues"),
    ("Compacting", "the context is being summarized"),
    ("Jumping", "the session goes to another node without files"),
    ("ToolJumping", "a call of the model takes the session to another node"),
    ("Moving", "the session is moved with its files, undone, redone, merged, labelled or named"),
    ("Changing", "another model or thinking level is being recorded"),
    ("Noting", "a line that a person ran in the shell, or a note on a background command, becomes a node"),
    ("Refreshing", "sources of tools and context are asked, or what they gave is being recorded"),
    (
        "FallingBack",
        "after a failed call, another model is looked for, or what is tried instead is being recorded",
    ),
];

pub(super) fn state(machine: &Machine) -> &'static str {
    match machine.run.as_ref().map(|run| &run.phase) {
        None => "Idle",
        Some(Phase::Committing) => "Committing",
        Some(Phase::Calling { .. }) => "Calling",
        Some(Phase::Answered(_)) => "Answered",
        Some(Phase::Tools(_)) => "Tools",
        Some(Phase::Results(_)) => "Results",
        Some(Phase::Starting(_)) => "Starting",
        Some(Phase::Ending) => "Ending",
        Some(Phase::Compacting(_)) => "Compacting",
        Some(Phase::Jumping(_)) => "Jumping",
        Some(Phase::ToolJumping(_)) => "ToolJumping",
        Some(Phase::Moving(_)) => "Moving",
        Some(Phase::Changing(_)) => "Changing",
        Some(Phase::Noting(_)) => "Noting",
        Some(Phase::Refreshing(_)) => "Refreshing",
        Some(Phase::FallingBack(_)) => "FallingBack",
    }
}

/// What an input is, in words for the drawing.
pub(super) fn kind(input: &MachineInput) -> String {
    match input {
        MachineInput::Command { command, .. } => {
            let json = serde_json::to_value(command).unwrap();
            format!("command {}", json["type"].as_str().unwrap())
        }
        MachineInput::Committed { result: Err(CommitError::Conflict { .. }), .. } => "lost the race".into(),
        MachineInput::Committed { result: Err(_), .. } => "not committed".into(),
        MachineInput::Committed {
            tag: Tag::ShellEnds { .. } | Tag::Noted { .. } | Tag::NotedBegin { .. },
            ..
        } => "shell line or note committed".into(),
        MachineInput::Committed { .. } => "committed".into(),
        MachineInput::Prepared { .. } => "calls prepared".into(),
        MachineInput::Call { .. } => "piece of the answer".into(),
        MachineInput::CallEnded { .. } => "answer ended".into(),
        MachineInput::CallNotMade { .. } => "call not made".into(),
        MachineInput::RunStartDecided { .. } => "run start decided".into(),
        MachineInput::RunEndDecided { .. } => "run end decided".into(),
        MachineInput::Summarized { .. } => "summarized".into(),
        MachineInput::TargetResolved { .. } => "target resolved".into(),
        MachineInput::Moved { .. } => "moved".into(),
        MachineInput::ChildrenKilled { .. } => "children killed".into(),
        MachineInput::ToolOutput { .. } | MachineInput::ToolDone { .. } | MachineInput::ToolHeld { .. } => {
            "tool done".into()
        }
        MachineInput::Policy(_)
        | MachineInput::Judged { .. }
        | MachineInput::AskExpired { .. }
        | MachineInput::Askers(_) => "question closed".into(),
        MachineInput::ShellOutput { .. } | MachineInput::ShellEnded { .. } => "shell line ended".into(),
        MachineInput::Notice(_) => "notice".into(),
        MachineInput::Tuned(_) => "tuned".into(),
        MachineInput::Background(_) => "background command ended".into(),
        MachineInput::SideBegun | MachineInput::SideEnded(_) => "call beside the conversation".into(),
        MachineInput::SourcesChanged => "sources changed".into(),
        MachineInput::PromptForgotten => "prompt forgotten".into(),
        MachineInput::Forgotten(_) => "nodes forgotten".into(),
        MachineInput::Refreshed { .. } => "sources asked".into(),
        MachineInput::FallbackFound(..) => "model found".into(),
    }
}

/// What the document says between its marks is what was seen; `UPDATE_DIAGRAM=1` writes it there.
pub(super) fn is_documented(taken: &BTreeSet<Transition>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/machine.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- states: begin -->\n", "<!-- states: end -->");
    let (before, rest) = document.split_once(begin).unwrap();
    let (found, after) = rest.split_once(end).unwrap();
    let drawn = drawn(taken);
    if std::env::var_os("UPDATE_DIAGRAM").is_some() {
        std::fs::write(&path, format!("{before}{begin}{drawn}{end}{after}")).unwrap();
        return;
    }
    assert!(
        found == drawn,
        "docs/machine.md is out of date: run this test with UPDATE_DIAGRAM=1. It would say:\n{drawn}"
    );
}

fn drawn(taken: &BTreeSet<Transition>) -> String {
    let mut arrows: BTreeMap<(usize, usize), Vec<&str>> = BTreeMap::new();
    let place = |name: &str| STATES.iter().position(|(state, _)| *state == name).unwrap();
    for (from, to, why) in taken {
        arrows.entry((place(from), place(to))).or_default().push(why);
    }
    let mut text = String::from("```mermaid\nstateDiagram-v2\n    [*] --> Idle\n");
    for (from, to) in arrows.keys() {
        text.push_str(&format!("    {} --> {}\n", STATES[*from].0, STATES[*to].0));
    }
    text.push_str("```\n\n| state | what happens there |\n|---|---|\n");
    for (name, what) in STATES {
        text.push_str(&format!("| {name} | {what} |\n"));
    }
    text.push_str("\n| from | to | upon |\n|---|---|---|\n");
    for ((from, to), why) in &arrows {
        text.push_str(&format!("| {} | {} | {} |\n", STATES[*from].0, STATES[*to].0, why.join(", ")));
    }
    text
}
