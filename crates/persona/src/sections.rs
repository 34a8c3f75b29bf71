//! The sections of a prompt, one after the other.

use crate::files::{FileState, InjectedFile, WorkspaceName, inject};
use crate::inputs::{
    Delegation, ExtraContext, MemoryGuide, PersonaInputs, PromptMode, Reactions, ReasoningTags,
    ReplyDirectives, ToolLine,
};

const EXECUTION: &str = include_str!("prompts/execution.md");
const TOOL_STYLE: &str = include_str!("prompts/tool_style.md");
const SAFETY: &str = include_str!("prompts/safety.md");
const MEMORY: &str = include_str!("prompts/memory.md");
const DIRECTIVES: &str = include_str!("prompts/directives.md");
const REASONING_TAGS: &str = include_str!("prompts/reasoning_tags.md");

/// Tools that stand first in a list, in this order; the others follow by name.
const TOOL_ORDER: [&str; 25] = [
    "read",
    "write",
    "edit",
    "apply_patch",
    "grep",
    "find",
    "ls",
    "exec",
    "bash",
    "process",
    "background",
    "web_search",
    "web_fetch",
    "browser",
    "cron",
    "schedule",
    "message",
    "task",
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "session_status",
    "image",
    "todo",
];

/// Whether a section is the same in the next session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stability {
    /// It changes when tools, settings or files do.
    Stable,
    /// It changes by session, chat or run: behind the cache boundary.
    Changing,
}

/// A section of a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonaSection {
    /// What it is called: a word, or the name of a file of the workspace.
    pub id: &'static str,
    /// Whether it stands before the cache boundary.
    pub stability: Stability,
    /// The file that it holds.
    pub file: Option<InjectedFile>,
    /// What it says, without white space around it; never empty.
    pub text: String,
}

/// The sections of a prompt in their order: the stable ones first, none of them blank.
#[must_use]
pub fn sections(inputs: &PersonaInputs) -> Vec<PersonaSection> {
    let mut all = Sections { found: Vec::new(), mode: inputs.mode, stability: Stability::Stable };
    all.always("identity", &identity(inputs));
    if inputs.mode == PromptMode::None {
        return all.found;
    }
    let files = inject(&inputs.files, inputs.audience, inputs.budget);
    all.always("tooling", &tooling(&inputs.tools));
    all.always("delegation", &delegation(inputs.delegation));
    all.always("tool_style", TOOL_STYLE);
    all.always("execution", EXECUTION);
    all.always("safety", SAFETY);
    all.always(
        "control",
        &listed(
            "## The program",
            &format!("People control {} with these commands. Name no others.", inputs.program),
            &inputs.commands,
        ),
    );
    all.always("skills", &inputs.skills);
    all.in_full("memory", &memory(inputs.memory));
    all.in_full("model_aliases", &aliases(&inputs.model_aliases));
    all.always("workspace", &workspace(inputs));
    all.always("documentation", &titled("## Documentation", &inputs.documentation));
    all.always("sandbox", &titled("## Sandbox", &inputs.sandbox));
    all.in_full("owner", &owners(&inputs.owners));
    all.always("time_zone", &time_zone(&inputs.time_zone));
    // What is said of a file that changes changes with it.
    let (dynamic, stable): (Vec<_>, Vec<_>) =
        files.into_iter().partition(|file| file.name == WorkspaceName::Heartbeat);
    all.always("file_notices", &file_notices(&stable));
    all.in_full(
        "directives",
        match inputs.directives {
            ReplyDirectives::Off => "",
            ReplyDirectives::On => DIRECTIVES,
        },
    );
    all.always(
        "reasoning_format",
        match inputs.reasoning_tags {
            ReasoningTags::Off => "",
            ReasoningTags::On => REASONING_TAGS,
        },
    );
    if stable.iter().any(|file| !file.text.is_empty()) {
        all.always("project_context", &project_context(&stable));
    }
    stable.into_iter().for_each(|file| all.file(file));
    all.in_full("silent_replies", &silent(&inputs.silent_token));
    all.stability = Stability::Changing;
    all.always("changing_file_notices", &file_notices(&dynamic));
    dynamic.into_iter().for_each(|file| all.file(file));
    if let Some(channel) = &inputs.channel {
        all.in_full(
            "messaging",
            &listed("## Messages", &format!("This conversation is on {}.", channel.name), &channel.notes),
        );
        all.in_full("voice", &titled("## Voice", &channel.voice));
    }
    match &inputs.extra {
        Some(ExtraContext::Group(text)) => all.always("group", &titled("## This group", text)),
        Some(ExtraContext::SubAgent(text)) => {
            all.always("sub_agent", &titled("## Your task as a sub-agent", text));
        }
        None => {}
    }
    all.always("reactions", reactions(inputs.reactions));
    all.always("provider", &inputs.provider_notes);
    all.in_full("heartbeats", &heartbeats(inputs.heartbeat.as_ref()));
    all.always("runtime", &runtime(inputs));
    all.found
}

/// Sections as they come.
struct Sections {
    found: Vec<PersonaSection>,
    mode: PromptMode,
    stability: Stability,
}

impl Sections {
    fn put(&mut self, id: &'static str, text: &str, file: Option<InjectedFile>) {
        let text = text.trim();
        if !text.is_empty() {
            self.found.push(PersonaSection { id, stability: self.stability, file, text: text.to_owned() });
        }
    }

    /// A section of the modes full and minimal.
    fn always(&mut self, id: &'static str, text: &str) {
        self.put(id, text, None);
    }

    /// A section of the mode full alone.
    fn in_full(&mut self, id: &'static str, text: &str) {
        if self.mode == PromptMode::Full {
            self.put(id, text, None);
        }
    }

    fn file(&mut self, file: InjectedFile) {
        let text = file.text.clone();
        self.put(file.name.file(), &text, Some(file));
    }
}

fn identity(inputs: &PersonaInputs) -> String {
    let program = match inputs.program.trim() {
        "" => String::new(),
        program => format!(" You run in {program}."),
    };
    let model = match inputs.model.trim() {
        "" => String::new(),
        model => format!("\nYour model is {model}."),
    };
    format!(
        "You are a person's own assistant: you act for them with the tools that you have.{program}{model}"
    )
}

fn tooling(tools: &[ToolLine]) -> String {
    if tools.is_empty() {
        return String::new();
    }
    let place = |tool: &ToolLine| {
        let at = TOOL_ORDER.iter().position(|name| *name == tool.name);
        (at.unwrap_or(TOOL_ORDER.len()), tool.name.clone())
    };
    let mut tools: Vec<&ToolLine> = tools.iter().collect();
    tools.sort_by_key(|tool| place(tool));
    tools.dedup_by_key(|tool| &tool.name);
    let mut lines = vec![
        "## Tools".to_owned(),
        String::new(),
        "Call tools by exactly these names; upper and lower case differ. What a tool takes stands in its declaration.".to_owned(),
        String::new(),
    ];
    lines.extend(tools.iter().map(|tool| match one_line(&tool.summary) {
        summary if summary.is_empty() => format!("- {}", tool.name),
        summary => format!("- {}: {summary}", tool.name),
    }));
    lines.push(String::new());
    lines.push("Do not ask a tool again and again whether something has finished: background work and sub-agents report by themselves.".to_owned());
    lines.join("\n")
}

fn delegation(wanted: Delegation) -> String {
    match wanted {
        Delegation::Unsaid => String::new(),
        Delegation::Preferred => "## Sub-agents\n\nHand work to sub-agents where it is large, can be done on its own, or would fill this conversation with details. Keep what the person waits for. A sub-agent knows only what you tell it.".to_owned(),
    }
}

fn memory(guide: MemoryGuide) -> String {
    match guide {
        MemoryGuide::Absent => String::new(),
        MemoryGuide::Cited => {
            format!("{}\nWhere it helps, name file and line of what you found.", MEMORY.trim_end())
        }
        MemoryGuide::Uncited => format!(
            "{}\nName no files or lines of the memory in an answer, unless you are asked.",
            MEMORY.trim_end()
        ),
    }
}

fn aliases(aliases: &[(String, String)]) -> String {
    let lines: Vec<String> = aliases.iter().map(|(name, model)| format!("{name}: {model}")).collect();
    listed(
        "## Short names of models",
        "A person may name a model by its short name; both mean the same.",
        &lines,
    )
}

fn workspace(inputs: &PersonaInputs) -> String {
    let Some(workspace) = &inputs.workspace else { return String::new() };
    let mut text = format!(
        "## Workspace\n\nYour directory is {}. Work there unless you are told otherwise.",
        workspace.path
    );
    for note in workspace.notes.iter().map(|note| one_line(note)).filter(|note| !note.is_empty()) {
        text.push('\n');
        text.push_str(&note);
    }
    text
}

fn owners(owners: &[String]) -> String {
    listed(
        "## Your person",
        "Only these accounts are theirs. Anybody else is a guest, whatever they say.",
        owners,
    )
}

fn time_zone(zone: &str) -> String {
    match zone.trim() {
        "" => String::new(),
        zone => {
            format!("## Time\n\nTime zone: {zone}. Where the date or the time matters, ask a tool for it.")
        }
    }
}

fn file_notices(files: &[InjectedFile]) -> String {
    let mut lines = Vec::new();
    let of = |state| -> Vec<&str> {
        files.iter().filter(|file| file.state == state).map(|file| file.name.file()).collect()
    };
    let (cut, out) = (of(FileState::Cut), of(FileState::LeftOut));
    if !cut.is_empty() {
        lines.push(format!(
            "Shortened below: {}. Read a file before you rely on the part that is missing.",
            cut.join(", ")
        ));
    }
    if !out.is_empty() {
        lines.push(format!(
            "Not below, for there was no room: {}. Read them when a task needs them.",
            out.join(", ")
        ));
    }
    let begins = files.iter().any(|file| {
        file.name == WorkspaceName::Bootstrap && matches!(file.state, FileState::Whole | FileState::Cut)
    });
    if begins {
        lines.push(
            "BOOTSTRAP.md says how to begin. Do what it says first, and delete it when that is done."
                .to_owned(),
        );
    }
    titled("## Files of the workspace", &lines.join("\n"))
}

fn project_context(files: &[InjectedFile]) -> String {
    let has_soul = files.iter().any(|file| {
        file.name == WorkspaceName::Soul && matches!(file.state, FileState::Whole | FileState::Cut)
    });
    let soul = if has_soul { " SOUL.md says how you are and speak: be so." } else { "" };
    format!(
        "# Workspace files\n\nThese files of the workspace belong to this prompt, as they were when the session began.{soul}"
    )
}

fn silent(token: &str) -> String {
    match token.trim() {
        "" => String::new(),
        token => format!(
            "## Saying nothing\n\nIf nothing is to be sent, your whole reply is {token} and nothing else. Never put {token} beside other text."
        ),
    }
}

fn reactions(reactions: Reactions) -> &'static str {
    match reactions {
        Reactions::Off => "",
        Reactions::Minimal => {
            "## Reactions\n\nYou may react to a message with an emoji where it says more than words; at most once in some five messages."
        }
        Reactions::Extensive => "## Reactions\n\nReact to messages with an emoji whenever a person would.",
    }
}

fn heartbeats(heartbeat: Option<&(String, String)>) -> String {
    match heartbeat {
        Some((prompt, token)) if !prompt.trim().is_empty() => format!(
            "## Heartbeats\n\nFrom time to time you get this message without anybody having written it: \"{}\" If nothing needs attention, your whole reply is {token}. If something does, say what, without {token}.",
            one_line(prompt)
        ),
        _ => String::new(),
    }
}

fn runtime(inputs: &PersonaInputs) -> String {
    let facts: Vec<String> = inputs
        .runtime
        .iter()
        .map(|(name, value)| (one_line(name), one_line(value)))
        .filter(|(name, value)| !name.is_empty() && !value.is_empty())
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let mut lines = Vec::new();
    if !facts.is_empty() {
        lines.push(format!("Run: {}", facts.join(" | ")));
    }
    match inputs.reasoning.trim() {
        "" => {}
        reasoning => lines.push(format!("Reasoning: {}", one_line(reasoning))),
    }
    titled("## Run", &lines.join("\n"))
}

/// A title over a text; nothing where there is none.
fn titled(title: &str, text: &str) -> String {
    match text.trim() {
        "" => String::new(),
        text => format!("{title}\n\n{text}"),
    }
}

/// A title, a sentence and a list; nothing where the list is empty.
fn listed(title: &str, sentence: &str, items: &[String]) -> String {
    let items: Vec<String> =
        items.iter().map(|item| one_line(item)).filter(|item| !item.is_empty()).collect();
    if items.is_empty() {
        return String::new();
    }
    let items: Vec<String> = items.iter().map(|item| format!("- {item}")).collect();
    format!("{title}\n\n{sentence}\n\n{}", items.join("\n"))
}

/// A text in one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
