use proptest::prelude::*;
use quipu_persona::{
    Audience, ChannelNotes, Delegation, ExtraContext, FileBudget, FileContent, MemoryGuide, PersonaInputs,
    PromptMode, Reactions, ReasoningTags, ReplyDirectives, Stability, ToolLine, WorkspaceFile, WorkspaceName,
    WorkspaceNotes, render,
};

fn file(name: WorkspaceName, text: &str) -> WorkspaceFile {
    let content = FileContent::Text(text.to_owned());
    WorkspaceFile { name, path: "/home/ann/agent".into(), content }
}

/// Something in every section.
fn all(mode: PromptMode) -> PersonaInputs {
    let line = |name: &str, summary: &str| ToolLine { name: name.into(), summary: summary.into() };
    PersonaInputs {
        mode,
        program: "Quipu".into(),
        model: "test/large".into(),
        tools: vec![
            line("zebra", ""),
            line("bash", "Runs a command."),
            line("read", "Reads a file\nor a part of it."),
        ],
        delegation: Delegation::Preferred,
        commands: vec!["`quipu sessions` lists sessions".into()],
        skills: "<skills>\n- tidy: cleans up\n</skills>".into(),
        memory: MemoryGuide::Cited,
        model_aliases: vec![("big".into(), "test/large".into())],
        workspace: Some(WorkspaceNotes {
            path: "/home/ann/agent".into(),
            notes: vec!["It is a git repository.".into()],
        }),
        documentation: "docs/README.md".into(),
        sandbox: "Commands run without the network.".into(),
        owners: vec!["telegram:7".into()],
        time_zone: "Europe/Berlin".into(),
        files: vec![
            file(WorkspaceName::Heartbeat, "- look at the mail"),
            file(WorkspaceName::Soul, "Calm and brief."),
            file(WorkspaceName::Memory, "Ann likes tea."),
            file(WorkspaceName::Bootstrap, "Ask for a name."),
            WorkspaceFile { content: FileContent::Missing, ..file(WorkspaceName::User, "") },
            file(WorkspaceName::Agents, "Never push to main."),
        ],
        audience: match mode {
            PromptMode::Full => Audience::Owner,
            PromptMode::Minimal | PromptMode::None => Audience::SubAgent,
        },
        budget: FileBudget::default(),
        directives: ReplyDirectives::On,
        reasoning_tags: ReasoningTags::On,
        silent_token: "NO_REPLY".into(),
        channel: Some(ChannelNotes {
            name: "telegram".into(),
            notes: vec!["At most 4,000 characters in a message.".into()],
            voice: "Speak slowly.".into(),
        }),
        extra: Some(match mode {
            PromptMode::Full => ExtraContext::Group("Friends of Ann.".into()),
            PromptMode::Minimal | PromptMode::None => ExtraContext::SubAgent("Count the files.".into()),
        }),
        reactions: Reactions::Minimal,
        provider_notes: "Answer in plain text.".into(),
        heartbeat: Some(("Look at HEARTBEAT.md.".into(), "HEARTBEAT_OK".into())),
        runtime: vec![
            ("agent".into(), "main".into()),
            ("os".into(), "Linux".into()),
            ("empty".into(), " ".into()),
        ],
        reasoning: "hidden".into(),
    }
}

/// The text with a line where the cache boundary is.
fn shown(inputs: &PersonaInputs) -> String {
    let prompt = render(inputs);
    let (stable, changing) = prompt.text.split_at(prompt.boundary);
    format!("{stable}\n\n======== cache boundary ========{changing}")
}

#[test]
fn full_prompt_has_every_section() {
    insta::assert_snapshot!(shown(&all(PromptMode::Full)));
}

#[test]
fn minimal_prompt_has_what_a_task_needs() {
    insta::assert_snapshot!(shown(&all(PromptMode::Minimal)));
}

#[test]
fn none_prompt_says_who_it_is() {
    insta::assert_snapshot!(shown(&all(PromptMode::None)));
}

#[test]
fn blank_inputs_give_no_section() {
    let inputs = PersonaInputs {
        skills: " \n".into(),
        commands: vec![" ".into()],
        owners: vec![String::new()],
        sandbox: "\n".into(),
        runtime: vec![("os".into(), String::new())],
        ..PersonaInputs::default()
    };
    let prompt = render(&inputs);
    let ids: Vec<&str> = prompt.sections.iter().map(|placed| placed.section.id).collect();
    assert_eq!(ids, ["identity", "tool_style", "execution", "safety"]);
    assert_eq!(prompt.boundary, prompt.text.len());
}

#[test]
fn changing_inputs_change_nothing_before_the_boundary() {
    let one = all(PromptMode::Full);
    let mut other = one.clone();
    other.runtime = vec![("agent".into(), "other".into())];
    other.channel = None;
    other.extra = None;
    other.reactions = Reactions::Off;
    other.provider_notes = String::new();
    other.heartbeat = None;
    other.reasoning = String::new();
    other.files.retain(|file| file.name != WorkspaceName::Heartbeat);
    let (one, other) = (render(&one), render(&other));
    assert_eq!(one.text[..one.boundary], other.text[..other.boundary]);
    assert_ne!(one.text, other.text);
    // Also where it is too long.
    let mut long = all(PromptMode::Full);
    let heartbeat = long.files.iter_mut().find(|file| file.name == WorkspaceName::Heartbeat).unwrap();
    heartbeat.content = FileContent::Text("- look\n".repeat(5_000));
    let long = render(&long);
    assert_eq!(long.text[..long.boundary], one.text[..one.boundary]);
    assert!(
        long.text[long.boundary..].contains("Shortened below: HEARTBEAT.md."),
        "{}",
        &long.text[long.boundary..]
    );
    assert_eq!(
        other.boundary,
        other.text.len().min(other.boundary + "\n\n## Run\n\nRun: agent=other".len())
            - "\n\n## Run\n\nRun: agent=other".len()
    );
}

proptest! {
    #[test]
    fn prompt_is_the_same_for_the_same_inputs(
        texts in proptest::collection::vec("\\PC{0,40}", 8),
        mode in proptest::sample::select(vec![PromptMode::Full, PromptMode::Minimal, PromptMode::None]),
        (most, total) in (0_usize..200, 0_usize..600),
    ) {
        let mut inputs = all(mode);
        inputs.budget = FileBudget { file: most, total };
        inputs.files = WorkspaceName::ALL.into_iter().zip(&texts).map(|(name, text)| file(name, text)).collect();
        let prompt = render(&inputs);
        let mut turned = inputs.clone();
        turned.files.reverse();
        turned.tools.reverse();
        prop_assert_eq!(&prompt, &render(&turned), "the order of files and tools makes no difference");
        prop_assert!(prompt.text.is_char_boundary(prompt.boundary));
        let mut end = 0;
        for placed in &prompt.sections {
            prop_assert!(prompt.text[placed.start..].starts_with(&placed.section.text));
            prop_assert!(!placed.section.text.trim().is_empty());
            let is_stable = placed.section.stability == Stability::Stable;
            prop_assert_eq!(is_stable, placed.start < prompt.boundary);
            prop_assert!(placed.start >= end);
            end = placed.start + placed.section.text.len();
        }
        prop_assert_eq!(end, prompt.text.len());
    }
}
