//! Groups of tools: names that stand for several.

/// A name that stands for several tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ToolGroup {
    /// As entries write it.
    pub name: &'static str,
    /// The built-in tools in it, in their canonical names.
    pub tools: &'static [&'static str],
    /// The sources whose tools are in it.
    pub sources: GroupSources,
}

/// The sources whose tools are in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupSources {
    /// None: only built-in tools are in it.
    None,
    /// The source of this name.
    One(&'static str),
    /// Every source.
    All,
}

const fn built_in(name: &'static str, tools: &'static [&'static str]) -> ToolGroup {
    ToolGroup { name, tools, sources: GroupSources::None }
}

const FS: &[&str] = &["read", "edit", "write", "apply_patch", "grep", "find", "ls"];
const RUNTIME: &[&str] = &["bash", "background", "code_execution"];
const WEB: &[&str] = &["web_fetch", "web_search"];
const MEMORY: &[&str] = &["memory_search", "memory_get", "memory_note", "memory_range", "memory_create"];
const SESSIONS: &[&str] = &[
    "sessions_list",
    "sessions_history",
    "sessions_send",
    "sessions_spawn",
    "sessions_yield",
    "session_status",
    "subagents",
    "task",
    "search_history",
    "recall",
    "life",
    "trace",
    "tobe",
];
const AUTOMATION: &[&str] = &["schedule", "gateway", "heartbeat_respond"];
const AGENTS: &[&str] = &["agents_list", "plan", "todo", "update_plan"];
const MEDIA: &[&str] = &["image", "pdf", "tts", "image_generate", "music_generate", "video_generate"];
const MESSAGING: &[&str] = &["message"];
const UI: &[&str] = &["browser", "canvas"];
const NODES: &[&str] = &["nodes"];
/// Every built-in tool beyond files and commands.
const QUIPU: [&[&str]; 9] = [WEB, MEMORY, SESSIONS, AUTOMATION, AGENTS, MEDIA, MESSAGING, UI, NODES];

/// Every group except `group:quipu`, which has all built-in tools beyond files and commands.
pub const GROUPS: &[ToolGroup] = &[
    built_in("group:fs", FS),
    built_in("group:runtime", RUNTIME),
    built_in("group:web", WEB),
    built_in("group:memory", MEMORY),
    built_in("group:sessions", SESSIONS),
    built_in("group:automation", AUTOMATION),
    built_in("group:agents", AGENTS),
    built_in("group:media", MEDIA),
    built_in("group:messaging", MESSAGING),
    built_in("group:ui", UI),
    built_in("group:nodes", NODES),
    ToolGroup { name: "group:mcp", tools: &[], sources: GroupSources::One("mcp") },
    ToolGroup { name: "group:plugins", tools: &[], sources: GroupSources::All },
];

/// Whether a built-in tool can have this canonical name.
pub(crate) fn is_known_tool(name: &str) -> bool {
    GROUPS.iter().any(|group| group.tools.contains(&name))
}

/// Whether tools can have this source, also where nothing has it now.
pub(crate) fn is_known_source(name: &str) -> bool {
    GROUPS.iter().any(|group| matches!(group.sources, GroupSources::One(source) if source == name))
}

/// Whether there is a group with this name.
pub(crate) fn is_group(name: &str) -> bool {
    name == "group:quipu" || name == "group:openclaw" || GROUPS.iter().any(|group| group.name == name)
}

/// Whether a tool is in a group, by its canonical name and its source.
pub(crate) fn contains(group: &str, (tool, source): (&str, Option<&str>)) -> bool {
    if matches!(group, "group:quipu" | "group:openclaw") {
        return source.is_none() && QUIPU.iter().any(|tools| tools.contains(&tool));
    }
    GROUPS.iter().filter(|known| known.name == group).any(|known| match source {
        None => known.tools.contains(&tool),
        Some(source) => match known.sources {
            GroupSources::None => false,
            GroupSources::One(one) => one == source,
            GroupSources::All => true,
        },
    })
}
