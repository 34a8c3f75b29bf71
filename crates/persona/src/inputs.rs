//! What a prompt is made of. All of it is given; nothing is looked up.

use crate::files::{Audience, FileBudget, WorkspaceFile};

/// How much of the prompt there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptMode {
    /// Every section: a conversation with a person.
    #[default]
    Full,
    /// Without what only a conversation with a person needs: sub-agents and scheduled jobs.
    Minimal,
    /// The line that says who it is, and the line of the model.
    None,
}

impl PromptMode {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
            Self::None => "none",
        }
    }
}

/// A tool, in one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolLine {
    /// Its name, as it is called.
    pub name: String,
    /// What it does; may be empty.
    pub summary: String,
}

/// Whether work is handed to sub-agents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delegation {
    /// The prompt says nothing of it.
    #[default]
    Unsaid,
    /// Large tasks go to sub-agents where there is a tool for it.
    Preferred,
}

/// What the prompt says of a memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryGuide {
    /// There are no tools for it.
    #[default]
    Absent,
    /// Answers name where a memory stands.
    Cited,
    /// Answers name no paths of memories.
    Uncited,
}

/// Whether the model may steer a reply with tags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReplyDirectives {
    /// Tags are text.
    #[default]
    Off,
    /// Tags choose the message that is answered, media and voice.
    On,
}

/// Whether the model marks what it thinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReasoningTags {
    /// The provider keeps it apart.
    #[default]
    Off,
    /// The text has tags for it.
    On,
}

/// How often the model reacts with an emoji.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reactions {
    /// The channel has none.
    #[default]
    Off,
    /// Seldom.
    Minimal,
    /// Freely.
    Extensive,
}

/// The directory of the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkspaceNotes {
    /// Its path.
    pub path: String,
    /// What else is to be known of it, a line each.
    pub notes: Vec<String>,
}

/// The chat that the conversation is in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelNotes {
    /// Its name.
    pub name: String,
    /// What is to be known when sending to it, a line each.
    pub notes: Vec<String>,
    /// How speech is to sound; empty for none.
    pub voice: String,
}

/// What is special about this session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExtraContext {
    /// The group that it talks to.
    Group(String),
    /// The task of a sub-agent.
    SubAgent(String),
}

/// Everything that a prompt is made of. The default has no section but the first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PersonaInputs {
    /// How much of it there is.
    pub mode: PromptMode,
    /// The program that the agent runs in.
    pub program: String,
    /// The model, as it is named to itself; empty for nothing.
    pub model: String,
    /// Its tools, in any order.
    pub tools: Vec<ToolLine>,
    /// Whether work is handed to sub-agents.
    pub delegation: Delegation,
    /// The commands of the program that the agent may tell a person, a line each.
    pub commands: Vec<String>,
    /// The list of its skills, as it is to be read.
    pub skills: String,
    /// What the prompt says of a memory.
    pub memory: MemoryGuide,
    /// Short names of models: name and model.
    pub model_aliases: Vec<(String, String)>,
    /// Its directory.
    pub workspace: Option<WorkspaceNotes>,
    /// Where the documentation of the program is; empty for nothing.
    pub documentation: String,
    /// Where commands run and what that closes; empty for nothing.
    pub sandbox: String,
    /// The people whose assistant it is, as the channel names them.
    pub owners: Vec<String>,
    /// The time zone of the person. Never the time: it would change the text each time.
    pub time_zone: String,
    /// The files of the workspace, in any order.
    pub files: Vec<WorkspaceFile>,
    /// Who reads along: it decides which files there are.
    pub audience: Audience,
    /// How much of the files there is.
    pub budget: FileBudget,
    /// Whether tags steer a reply.
    pub directives: ReplyDirectives,
    /// Whether thought is marked.
    pub reasoning_tags: ReasoningTags,
    /// What the whole reply is where nothing is to be sent; empty where that cannot be said.
    pub silent_token: String,
    /// The chat that the conversation is in.
    pub channel: Option<ChannelNotes>,
    /// What is special about this session.
    pub extra: Option<ExtraContext>,
    /// How often it reacts with an emoji.
    pub reactions: Reactions,
    /// What a provider's models need to be told; empty for nothing.
    pub provider_notes: String,
    /// What a heartbeat says and what its answer is when there is nothing to do: prompt and token.
    pub heartbeat: Option<(String, String)>,
    /// Facts of the run, such as `os` and `Linux`, in this order; values that are empty are left out.
    pub runtime: Vec<(String, String)>,
    /// Whether the person sees what the model thinks; empty for nothing.
    pub reasoning: String,
}
