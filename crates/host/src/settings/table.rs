//! Every setting: the one table that reading, checking, the schema and the documents go by.

use serde_json::Value;

use super::messages::{self, ChatNames, RESET_MODES};
use super::tool_policies::PolicyTable;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Its members in the file, with dots between them.
    pub name: &'static str,
    /// Its name in earlier versions, which files and variables may still use.
    pub formerly: Option<&'static str>,
    /// What its value is.
    pub kind: Kind,
    /// The default value, as JSON; empty for none.
    pub default: &'static str,
    /// When a change takes effect.
    pub effect: Effect,
    /// Whether the file of a project may set it.
    pub project: ProjectUse,
    /// Its purpose, in a few words.
    pub help: &'static str,
}

/// What a value is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Flag,
    /// A whole number from `least` to `most`.
    Number {
        /// The smallest number.
        least: u64,
        /// The largest number.
        most: u64,
    },
    /// An amount of US dollars above 0.
    Amount,
    /// A text that is not empty.
    Text,
    /// A cron expression that some time fits.
    Cron,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these.
    List(Item),
    /// Names of models by the purposes that they are for.
    PurposeModels,
    /// US dollars a day by the purposes of work in the background.
    PurposeBudgets,
    /// Policies of tools by what the table says.
    ToolPolicies(PolicyTable),
    /// One of these words by the names of channels.
    ChannelWords(&'static [&'static str]),
    /// Milliseconds by the names of channels.
    ChannelTimes,
    /// Rules of when conversations begin anew, by these names.
    Resets(ChatNames),
    /// Turns of the user that requests have, by these names.
    Turns(ChatNames),
    /// Agents by their ids.
    Agents,
    /// Addresses of model servers by their ids, or `false`.
    Servers,
    /// The embedding model of the semantic search, or `false`.
    Semantic,
    /// Commands by the events that they are run at.
    Hooks,
}

/// What stands in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item {
    /// The name of a model, or a pattern of names.
    Model,
    /// The name of a key, as `quipu auth` lists it.
    Credential,
    /// The head of another program.
    Head,
    /// A directory: absolute, or below `~`.
    Directory,
    /// The same, or `default`.
    Writable,
    /// The number of a port.
    Port,
    /// `HOST:PORT`, or the path of a socket.
    Service,
    /// `HOST:PLACE`, with `:rw` behind it where it may be changed: what of this machine is where in a container.
    Mount,
    /// The name of a variable.
    Variable,
    /// A permission rule: `TOOL` or `TOOL(PATTERN)`.
    Rule,
    /// The name of a built-in tool.
    Tool,
    /// A name of tools as policies have it: a name, a pattern with `*`, or a group.
    ToolName,
    /// The name of a tool, or a pattern with `*`.
    ToolPattern,
}

/// When a change takes effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// In sessions that are open, the next time that it matters.
    Now,
    /// In the next session, and in one that is opened again.
    NextSession,
    /// In sessions that begin from then on; those that there are stay as they began.
    NewSession,
    /// When the program is started the next time.
    NextStart,
}

impl Effect {
    /// Its word: `now`, `next session`, `next start`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NextSession => "next session",
            Self::NewSession => "new session",
            Self::NextStart => "next start",
        }
    }
}

/// Whether the file of a project may set a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectUse {
    /// It may, once a person trusts it.
    Allowed,
    /// It may not; why.
    Refused(&'static str),
}

const SANDBOX: ProjectUse = ProjectUse::Refused("it opens the sandbox");
const PERMISSIONS: ProjectUse = ProjectUse::Refused("it is a permission");
const HISTORY: ProjectUse = ProjectUse::Refused("it opens other sessions to the model");
const NETWORK: ProjectUse = ProjectUse::Refused("it controls where requests go");
const SPENDING: ProjectUse = ProjectUse::Refused("it controls spending");
const HOME: ProjectUse = ProjectUse::Refused("it names your files");
const CONVERSATIONS: ProjectUse = ProjectUse::Refused("it is about the conversations of all projects");
const STORE: ProjectUse = ProjectUse::Refused("it applies to the store of all projects");
const TOOLS: ProjectUse = ProjectUse::Refused("it gives tools to the model");
const PROMPT: ProjectUse = ProjectUse::Refused("it chooses the system prompt");
const TERMINAL: ProjectUse = ProjectUse::Refused("it applies to your terminal");
const ALLOWED: ProjectUse = ProjectUse::Allowed;

const STREAMING_MODES: &[&str] = &["off", "blocks"];
const QUEUE_MODES: &[&str] = &["steer", "followup", "collect", "interrupt"];
const COUNT: Kind = Kind::Number { least: 1, most: u64::MAX };
const SIZE: Kind = Kind::Number { least: 0, most: u64::MAX };
const PERCENT: Kind = Kind::Number { least: 1, most: 100 };

const fn key(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: Effect,
    project: ProjectUse,
    help: &'static str,
) -> Key {
    Key { name, formerly: None, kind, default, effect, project, help }
}

use Effect::{NewSession, NextSession, NextStart, Now};

/// Every setting.
pub const KEYS: &[Key] = &[
    key("theme", Kind::Text, "", Now, TERMINAL, "colours of the terminal: dark, light, or a theme file"),
    key(
        "screenReader",
        Kind::Flag,
        "false",
        NextStart,
        TERMINAL,
        "print the terminal's output in lines, for screen readers",
    ),
    key(
        "terminal.hyperlinks",
        Kind::Flag,
        "",
        NextStart,
        TERMINAL,
        "links in the terminal; detected by default",
    ),
    key(
        "terminal.showImages",
        Kind::Flag,
        "true",
        NextStart,
        TERMINAL,
        "images in the terminal, if it supports them",
    ),
    key(
        "terminal.notify",
        Kind::Word(&["auto", "osc9", "osc777", "bell", "off"]),
        "\"auto\"",
        NextStart,
        TERMINAL,
        "how the terminal notifies you when it is not focused",
    ),
    key(
        "defaultModel",
        Kind::Text,
        "",
        NextSession,
        ALLOWED,
        "the model of a new session where none was chosen in its directory: provider/id, or a part of a name",
    ),
    key(
        "defaultThinkingLevel",
        Kind::Word(&["off", "minimal", "low", "medium", "high", "xhigh", "max"]),
        "\"medium\"",
        NextSession,
        ALLOWED,
        "the level of thinking of a new session where none was chosen for its model",
    ),
    key(
        "enabledModels",
        Kind::List(Item::Model),
        "[]",
        Now,
        ALLOWED,
        "models that the keys for the next model cycle through",
    ),
    key(
        "purposeModels",
        Kind::PurposeModels,
        "{}",
        NextSession,
        NETWORK,
        "models for calls of a purpose: `compaction`, `branch_summary`, `plans`, `sub-agents`, `image`, `dream`, `memory-flush`, `past`; all others use the session's model",
    ),
    key(
        "fallbackModels",
        Kind::List(Item::Model),
        "[]",
        NextSession,
        NETWORK,
        "models that continue a run when its own cannot, in this order",
    ),
    key(
        "fallbackForNamedModel",
        Kind::Flag,
        "false",
        NextSession,
        NETWORK,
        "use these models also where the run names its model with --model",
    ),
    key(
        "keyOrder",
        Kind::List(Item::Credential),
        "[]",
        NextSession,
        SPENDING,
        "keys in the order in which those of one provider are used",
    ),
    key(
        "cacheRetention",
        Kind::Word(&["none", "short", "long"]),
        "\"short\"",
        NextSession,
        ALLOWED,
        "how long providers cache prompts",
    ),
    key(
        "webSearch",
        Kind::Flag,
        "false",
        NextSession,
        NETWORK,
        "let models search the web at their provider; no search is asked",
    ),
    Key {
        formerly: Some("tools"),
        ..key(
            "tools.builtIn",
            Kind::List(Item::Tool),
            "",
            NextSession,
            TOOLS,
            "the built-in tools to offer: `read`, `bash`, `edit`, `write`, and also `grep`, `find`, `ls`, `web_fetch`",
        )
    },
    key(
        "tools.profile",
        Kind::Word(&["minimal", "messaging", "coding", "full"]),
        "\"full\"",
        NextSession,
        TOOLS,
        "the tools that sessions may have at most",
    ),
    key(
        "tools.allow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "only these tools; all where it is empty: names, patterns with `*`, groups such as `group:fs`",
    ),
    key(
        "tools.alsoAllow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "tools besides those of the profile; does not count next to `tools.allow`",
    ),
    key(
        "tools.deny",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "none of these tools, whatever allows them",
    ),
    key(
        "tools.byProvider",
        Kind::ToolPolicies(PolicyTable::Providers),
        "{}",
        NextSession,
        TOOLS,
        "`profile`, `allow`, `alsoAllow` and `deny` for models, by `provider` or `provider/model`; `*` for all others",
    ),
    key(
        "tools.byGroup",
        Kind::ToolPolicies(PolicyTable::Groups),
        "{}",
        NextSession,
        TOOLS,
        "`allow`, `deny` and `bySender` for conversations of several people, by `channel:room`, `channel:*` or `*`",
    ),
    key(
        "tools.bySender",
        Kind::ToolPolicies(PolicyTable::Senders),
        "{}",
        NextSession,
        TOOLS,
        "`allow` and `deny` by who sent the message: `id:…`, `e164:…`, `username:…`; `*` for all others",
    ),
    key(
        "tools.sandbox.allow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "only these tools while commands are confined",
    ),
    key(
        "tools.sandbox.alsoAllow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "these tools beside the default ones of sessions in a sandbox of `sandbox.mode`",
    ),
    key(
        "tools.sandbox.deny",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "none of these tools while commands are confined",
    ),
    key(
        "tools.subagents.allow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "only these tools for sub-agents",
    ),
    key(
        "tools.subagents.alsoAllow",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "tools for sub-agents that they do not have by default, such as `schedule`",
    ),
    key(
        "tools.subagents.deny",
        Kind::List(Item::ToolName),
        "[]",
        NextSession,
        TOOLS,
        "none of these tools for sub-agents",
    ),
    key(
        "tools.loopDetection.enabled",
        Kind::Flag,
        "false",
        NextSession,
        ALLOWED,
        "stop calls that go in circles",
    ),
    key(
        "tools.loopDetection.historySize",
        Kind::Number { least: 1, most: 10_000 },
        "30",
        NextSession,
        ALLOWED,
        "calls of a run that are remembered",
    ),
    key(
        "tools.loopDetection.warning",
        Kind::Number { least: 1, most: 10_000 },
        "10",
        NextSession,
        ALLOWED,
        "repetitions of a call that the model is warned about",
    ),
    key(
        "tools.loopDetection.unknownTool",
        Kind::Number { least: 1, most: 10_000 },
        "10",
        NextSession,
        ALLOWED,
        "calls in a row of a tool that does not exist, after which its calls are rejected",
    ),
    key(
        "tools.loopDetection.critical",
        Kind::Number { least: 1, most: 10_000 },
        "20",
        NextSession,
        ALLOWED,
        "repetitions without progress after which a call is rejected",
    ),
    key(
        "tools.loopDetection.breaker",
        Kind::Number { least: 1, most: 10_000 },
        "30",
        NextSession,
        ALLOWED,
        "the same for every call, whichever detectors are on",
    ),
    key(
        "tools.loopDetection.genericRepeat",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "look for one call again and again",
    ),
    key(
        "tools.loopDetection.knownPollNoProgress",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "look for polls of a background command that find nothing new",
    ),
    key(
        "tools.loopDetection.pingPong",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "look for two calls in turn",
    ),
    key(
        "background",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "whether models can run commands in the background",
    ),
    key(
        "memory.active.mode",
        Kind::Word(&["off", "search", "escalate", "always"]),
        "\"search\"",
        NextSession,
        HISTORY,
        "what is remembered of a prompt before its run: by a search, and by a model where that settles nothing, or always",
    ),
    key(
        "schedule.tool",
        Kind::Flag,
        "false",
        NextSession,
        TOOLS,
        "whether models have the tool `schedule`; each change of a job is asked about",
    ),
    key(
        "web.searchService",
        Kind::Word(&["off", "searxng", "brave", "tavily"]),
        "\"off\"",
        NextSession,
        NETWORK,
        "the service of the tool `web_search`; no search is asked",
    ),
    key(
        "web.searchUrl",
        Kind::Text,
        "",
        NextSession,
        NETWORK,
        "the address of the search service; your SearXNG server",
    ),
    key(
        "applyPatch",
        Kind::Word(&["auto", "on", "off"]),
        "\"auto\"",
        NextSession,
        ALLOWED,
        "whether models get the tool `apply_patch` instead of `edit` and `write`; `auto`: those trained on it",
    ),
    key(
        "agents.tool",
        Kind::Word(&["auto", "on", "off"]),
        "\"auto\"",
        NextSession,
        SPENDING,
        "whether the model has the tool `task`, which sends sub-agents; `auto`: where there are files of agents",
    ),
    key(
        "agents.maxDepth",
        Kind::Number { least: 1, most: 3 },
        "1",
        NextSession,
        SPENDING,
        "levels of sub-agents: with 1, sub-agents send none",
    ),
    key(
        "agents.maxAtOnce",
        Kind::Number { least: 1, most: 16 },
        "4",
        NextSession,
        SPENDING,
        "sub-agents of a session that work at the same time; others wait",
    ),
    key(
        "agents.maxPerRun",
        Kind::Number { least: 1, most: 1_000 },
        "32",
        NextSession,
        SPENDING,
        "sub-agents that one run of a session begins",
    ),
    key(
        "agents.maxTurns",
        Kind::Number { least: 1, most: 10_000 },
        "100",
        NextSession,
        SPENDING,
        "turns of a sub-agent",
    ),
    key(
        "agents.maxMinutes",
        Kind::Number { least: 1, most: 1_440 },
        "30",
        NextSession,
        SPENDING,
        "minutes that a sub-agent works",
    ),
    key(
        "agents.maxCost",
        Kind::Amount,
        "",
        NextSession,
        SPENDING,
        "US dollars of a sub-agent; at most half of what is left of its run",
    ),
    key("thinkingBudgets.minimal", SIZE, "1024", NextSession, ALLOWED, "thinking tokens at this level"),
    key("thinkingBudgets.low", SIZE, "2048", NextSession, ALLOWED, "thinking tokens at this level"),
    key("thinkingBudgets.medium", SIZE, "8192", NextSession, ALLOWED, "thinking tokens at this level"),
    key(
        "thinkingBudgets.high",
        SIZE,
        "16384",
        NextSession,
        ALLOWED,
        "thinking tokens at this level and above",
    ),
    key("retry.enabled", Kind::Flag, "true", NextSession, ALLOWED, "retry requests after temporary failures"),
    key("retry.maxRetries", SIZE, "3", NextSession, ALLOWED, "the number of retries"),
    key(
        "retry.baseDelayMs",
        SIZE,
        "2000",
        NextSession,
        ALLOWED,
        "milliseconds before the first retry; then doubled",
    ),
    key(
        "retry.provider.maxRetryDelayMs",
        SIZE,
        "60000",
        NextSession,
        ALLOWED,
        "milliseconds that a server may ask to wait, at most",
    ),
    key(
        "httpIdleTimeoutMs",
        SIZE,
        "300000",
        NextSession,
        ALLOWED,
        "milliseconds without data from a server, at most; 0 is no limit",
    ),
    key(
        "proxyLocalServers",
        Kind::Flag,
        "false",
        NextSession,
        NETWORK,
        "use the proxy also for servers on this machine",
    ),
    key(
        "localServers",
        Kind::Servers,
        "",
        NextSession,
        NETWORK,
        "where to look for model servers on this machine",
    ),
    key(
        "compaction.enabled",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "summarize the context before it is full",
    ),
    key("compaction.reserveTokens", COUNT, "16384", NextSession, ALLOWED, "tokens reserved for the answer"),
    key(
        "compaction.keepRecentTokens",
        COUNT,
        "20000",
        NextSession,
        ALLOWED,
        "tokens of the newest conversation that are kept",
    ),
    key(
        "compaction.mode",
        Kind::Word(&["summary", "safeguard", "cover"]),
        "\"summary\"",
        NextSession,
        ALLOWED,
        "what stands for what leaves the context: a model's summary, one that is made in parts and checked, or sentences of it by time, without a model",
    ),
    key(
        "compaction.recentTurns",
        Kind::Number { least: 0, most: 12 },
        "3",
        NextSession,
        ALLOWED,
        "of the mode `safeguard`: the user's last turns that stand behind the summary word for word",
    ),
    key(
        "compaction.maxHistoryPercent",
        PERCENT,
        "50",
        NextSession,
        ALLOWED,
        "of the mode `safeguard`: the share of the window that is summarized at once, in percent; what is older is summarized before",
    ),
    key(
        "compaction.identifiers",
        Kind::Word(&["strict", "off"]),
        "\"strict\"",
        NextSession,
        ALLOWED,
        "of the mode `safeguard`: whether paths, addresses, hashes and numbers must be in the summary",
    ),
    key(
        "compaction.qualityRetries",
        Kind::Number { least: 0, most: 3 },
        "1",
        NextSession,
        ALLOWED,
        "of the mode `safeguard`: how often a summary that lacks something is made again",
    ),
    key(
        "compaction.timeoutSeconds",
        Kind::Number { least: 1, most: 86_400 },
        "900",
        NextSession,
        ALLOWED,
        "of the mode `safeguard`: seconds that a summary may take",
    ),
    key(
        "steeringMode",
        Kind::Word(&["one-at-a-time", "all"]),
        "\"one-at-a-time\"",
        NextSession,
        ALLOWED,
        "how many of the messages that wait for the end of a turn the model gets there",
    ),
    key(
        "followUpMode",
        Kind::Word(&["one-at-a-time", "all"]),
        "\"one-at-a-time\"",
        NextSession,
        ALLOWED,
        "how many of the messages that wait for the end of a run the model gets there",
    ),
    key(
        "context.prune.enabled",
        Kind::Flag,
        "false",
        NextSession,
        ALLOWED,
        "leave old tool results out of requests",
    ),
    key(
        "context.prune.triggerPercent",
        PERCENT,
        "50",
        NextSession,
        ALLOWED,
        "the fill level of the context that starts it, in percent",
    ),
    key(
        "context.prune.clearAtLeastPercent",
        PERCENT,
        "10",
        NextSession,
        ALLOWED,
        "the share of the context to free, in percent",
    ),
    key(
        "context.prune.keepTurns",
        COUNT,
        "8",
        NextSession,
        ALLOWED,
        "the newest turns, whose results are kept",
    ),
    key("context.prune.minCharacters", COUNT, "4000", NextSession, ALLOWED, "shorter results are kept"),
    key(
        "context.expiry.enabled",
        Kind::Flag,
        "false",
        NextSession,
        ALLOWED,
        "shorten old tool results when the provider's cache has expired",
    ),
    key(
        "context.expiry.ttlSeconds",
        COUNT,
        "300",
        NextSession,
        ALLOWED,
        "seconds after an answer after which the cache has expired",
    ),
    key(
        "context.expiry.keepAnswers",
        COUNT,
        "3",
        NextSession,
        ALLOWED,
        "the newest answers of the model; results from the first of them on are kept",
    ),
    key(
        "context.expiry.softPercent",
        PERCENT,
        "30",
        NextSession,
        ALLOWED,
        "the fill level of the context from which results are shortened, in percent",
    ),
    key(
        "context.expiry.hardPercent",
        PERCENT,
        "50",
        NextSession,
        ALLOWED,
        "the fill level from which the oldest results are replaced, in percent",
    ),
    key(
        "context.expiry.trimCharacters",
        COUNT,
        "4000",
        NextSession,
        ALLOWED,
        "results of at most so many characters are not shortened",
    ),
    key(
        "context.expiry.headCharacters",
        SIZE,
        "1500",
        NextSession,
        ALLOWED,
        "characters of the beginning of a shortened result",
    ),
    key("context.expiry.tailCharacters", SIZE, "1500", NextSession, ALLOWED, "characters of its end"),
    key(
        "context.expiry.clear",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "replace the oldest results where shortening is not enough",
    ),
    key(
        "context.expiry.placeholder",
        Kind::Text,
        "\"[This old tool result is left out.]\"",
        NextSession,
        ALLOWED,
        "the text in the place of a replaced result",
    ),
    key(
        "context.expiry.minClearCharacters",
        SIZE,
        "50000",
        NextSession,
        ALLOWED,
        "characters that the results must have together before one is replaced",
    ),
    key(
        "context.expiry.allow",
        Kind::List(Item::ToolPattern),
        "[]",
        NextSession,
        ALLOWED,
        "only the results of these tools; of all where it is empty",
    ),
    key(
        "context.expiry.deny",
        Kind::List(Item::ToolPattern),
        "[]",
        NextSession,
        ALLOWED,
        "never the results of these tools",
    ),
    key("search.tool", Kind::Flag, "true", NextSession, HISTORY, "the model can search earlier sessions"),
    key(
        "memory.enabled",
        Kind::Flag,
        "true",
        NextSession,
        HISTORY,
        "use the memories that you switched on; false: none, whatever you switched on",
    ),
    key(
        "memory.ask",
        Kind::Flag,
        "true",
        NextSession,
        HISTORY,
        "once memory is on in a project, the terminal asks once in each other project",
    ),
    key(
        "memory.shared",
        Kind::Flag,
        "false",
        NextSession,
        HISTORY,
        "sessions that programs share through `quipu serve` read your memories",
    ),
    key(
        "memory.create",
        Kind::Flag,
        "false",
        NextSession,
        HISTORY,
        "the model can write summaries of the past itself, with `memory_create`",
    ),
    key(
        "memory.time",
        Kind::Word(&["off", "on"]),
        "\"off\"",
        NewSession,
        HISTORY,
        "new sessions begin with summaries of the project's past, where memory is on",
    ),
    key(
        "memory.timeTokens",
        COUNT,
        "8000",
        NextSession,
        HISTORY,
        "tokens of these summaries at most; more than 20000 count as 20000",
    ),
    key("memory.delay", Kind::Flag, "true", NextSession, HISTORY, "other summaries are served one run later"),
    key(
        "memory.boundary",
        Kind::Flag,
        "true",
        NextSession,
        HISTORY,
        "two short messages stand between these summaries and the conversation",
    ),
    key(
        "memory.breath",
        Kind::Text,
        "\"breath\"",
        NextSession,
        HISTORY,
        "the first of them, in the place of the model",
    ),
    key(
        "memory.moment",
        Kind::Text,
        "\"present moment begins.\"",
        NextSession,
        HISTORY,
        "the second, in the place of the user",
    ),
    key(
        "mcpServer.scope",
        Kind::Word(&["directory", "all"]),
        "\"directory\"",
        NextStart,
        HISTORY,
        "the sessions that the MCP server shows: of the client's roots or the directory, or all",
    ),
    key(
        "integrations.history",
        Kind::Word(&["off", "small", "normal"]),
        "\"small\"",
        Now,
        HISTORY,
        "the history that hooks give other agents: none; 300 tokens at a start, 100 beside a prompt; or 1,000 and 300",
    ),
    Key {
        formerly: Some("search.meaning"),
        ..key(
            "search.semantic",
            Kind::Semantic,
            "false",
            Now,
            NETWORK,
            "the embedding model of the semantic search",
        )
    },
    key(
        "prompt.persona",
        Kind::Flag,
        "false",
        NewSession,
        PROMPT,
        "new sessions have the prompt of a personal agent, with the files of their directory: AGENTS.md, SOUL.md and others",
    ),
    key("planMode", Kind::Flag, "false", NextSession, ALLOWED, "new sessions begin in plan mode"),
    key("todo.tool", Kind::Flag, "true", NextSession, ALLOWED, "the model can keep a to-do list"),
    key(
        "travel.tools",
        Kind::Flag,
        "false",
        NextSession,
        HISTORY,
        "models of new sessions can read the graph and go back in it",
    ),
    key(
        "travel.tobe",
        Kind::Word(&["ask", "allow", "deny"]),
        "\"ask\"",
        Now,
        PERMISSIONS,
        "whether the model may go back in its session",
    ),
    key("identity.file", Kind::Text, "", NextSession, HOME, "a file with your text before the system prompt"),
    key(
        "rules.above",
        Kind::List(Item::Directory),
        "[]",
        NextSession,
        HOME,
        "directories above a repository whose rules files apply",
    ),
    key("files.enabled", Kind::Flag, "true", NextSession, ALLOWED, "save files before tools change them"),
    key(
        "files.fileBytes",
        Kind::Number { least: 1, most: 64 << 20 },
        "1048576",
        NextSession,
        ALLOWED,
        "bytes of one saved file, at most",
    ),
    key(
        "files.runBytes",
        COUNT,
        "67108864",
        NextSession,
        ALLOWED,
        "bytes that the saved files of one run add, at most",
    ),
    key(
        "files.storeBytes",
        COUNT,
        "1073741824",
        Now,
        STORE,
        "bytes of the store that saved files take, at most",
    ),
    key(
        "files.ignoredFiles",
        Kind::Number { least: 1, most: 100_000 },
        "10000",
        NextSession,
        ALLOWED,
        "files ignored by git that are checked for changes, at most",
    ),
    key(
        "publish",
        Kind::List(Item::Head),
        "[]",
        NextSession,
        STORE,
        "heads of other programs that follow Quipu's sessions",
    ),
    key("budget.daily", Kind::Amount, "", NextSession, SPENDING, "US dollars for all sessions of a day"),
    key(
        "budget.background",
        Kind::PurposeBudgets,
        "{}",
        Now,
        SPENDING,
        "US dollars a day for models in the background, by purpose: `dream`, `memory-flush`, `past`; 0 where it says nothing",
    ),
    key(
        "budget.waitMs",
        SIZE,
        "",
        NextSession,
        SPENDING,
        "milliseconds that a call waits for money reserved by others",
    ),
    key(
        "memory.dreaming.enabled",
        Kind::Flag,
        "false",
        Now,
        STORE,
        "keep what searches recall, and promote what was recalled often to MEMORY.md at night",
    ),
    key(
        "memory.dreaming.schedule",
        Kind::Cron,
        "\"0 3 * * *\"",
        Now,
        STORE,
        "when dreams run: a cron expression, in your time zone",
    ),
    key(
        "agents.byId",
        Kind::Agents,
        "{}",
        NextSession,
        SPENDING,
        "`model`, `workspace`, `tools`, `budget` and `heartbeat` of agents, by their ids",
    ),
    key(
        "session.reset.mode",
        Kind::Word(RESET_MODES),
        "\"off\"",
        Now,
        CONVERSATIONS,
        "when a message begins a new session of its conversation: never, with a new day, after a time without messages of people. Where it is not set, `session.reset.idleMinutes` alone means `idle`, and `session.reset.atHour` `daily`",
    ),
    key(
        "session.reset.atHour",
        Kind::Number { least: 0, most: 23 },
        "4",
        Now,
        CONVERSATIONS,
        "the hour at which a day begins, in your time zone; set without a mode, it means `daily`",
    ),
    key(
        "session.reset.idleMinutes",
        Kind::Number { least: 0, most: 5_256_000 },
        "0",
        Now,
        CONVERSATIONS,
        "minutes without messages of people after which a conversation begins anew; 0 is no limit. Alone, without a mode, it means `idle`",
    ),
    key(
        "session.reset.byKind",
        Kind::Resets(ChatNames::Kinds),
        "{}",
        Now,
        CONVERSATIONS,
        "`mode`, `atHour` and `idleMinutes` for conversations of a kind: `direct`, `group`, `thread`",
    ),
    key(
        "session.reset.byChannel",
        Kind::Resets(ChatNames::Channels),
        "{}",
        Now,
        CONVERSATIONS,
        "the same for those of single channels, before the kind",
    ),
    key(
        "session.history.turns",
        Kind::Number { least: 0, most: messages::TURNS_MOST },
        "0",
        Now,
        CONVERSATIONS,
        "newest turns of the user that requests of a conversation have; 0 for all",
    ),
    key(
        "session.history.byKind",
        Kind::Turns(ChatNames::Kinds),
        "{}",
        Now,
        CONVERSATIONS,
        "the same for conversations of a kind: `direct`, `group`",
    ),
    key(
        "session.history.byChannel",
        Kind::Turns(ChatNames::Channels),
        "{}",
        Now,
        CONVERSATIONS,
        "`direct`, `group` and `people` (by id) of single channels, before the kind",
    ),
    key(
        "messages.queue.mode",
        Kind::Word(QUEUE_MODES),
        "\"steer\"",
        Now,
        CONVERSATIONS,
        "what becomes of a message that comes while its conversation is busy",
    ),
    key(
        "messages.queue.byChannel",
        Kind::ChannelWords(QUEUE_MODES),
        "{}",
        Now,
        CONVERSATIONS,
        "the same for messages of single channels",
    ),
    key(
        "messages.queue.debounceMs",
        Kind::Number { least: 0, most: 3_600_000 },
        "500",
        Now,
        CONVERSATIONS,
        "milliseconds without a new message after which those that wait are run",
    ),
    key(
        "messages.queue.debounceMsByChannel",
        Kind::ChannelTimes,
        "{}",
        Now,
        CONVERSATIONS,
        "the same for single channels",
    ),
    key(
        "messages.queue.cap",
        Kind::Number { least: 1, most: 256 },
        "20",
        Now,
        CONVERSATIONS,
        "messages of a conversation that wait at most",
    ),
    key(
        "messages.queue.drop",
        Kind::Word(&["new", "old", "summarize"]),
        "\"summarize\"",
        Now,
        CONVERSATIONS,
        "what happens to more: the new one is refused, an old one goes, or it goes and a line of it is told later",
    ),
    key(
        "messages.streaming.mode",
        Kind::Word(STREAMING_MODES),
        "\"off\"",
        Now,
        CONVERSATIONS,
        "whether a conversation is answered when the answer is whole, or in blocks while it arrives",
    ),
    key(
        "messages.streaming.byChannel",
        Kind::ChannelWords(STREAMING_MODES),
        "{}",
        Now,
        CONVERSATIONS,
        "the same for conversations of single channels",
    ),
    key(
        "messages.streaming.minChars",
        Kind::Number { least: 1, most: 65_536 },
        "800",
        Now,
        CONVERSATIONS,
        "characters of a block at least, before its answer ends",
    ),
    key(
        "messages.streaming.maxChars",
        Kind::Number { least: 40, most: 65_536 },
        "1200",
        Now,
        CONVERSATIONS,
        "characters of a block at most",
    ),
    key(
        "messages.streaming.joinMs",
        Kind::Number { least: 0, most: 60_000 },
        "1000",
        Now,
        CONVERSATIONS,
        "milliseconds for which a block waits for the next one, to be one message with it; 0 for none",
    ),
    key(
        "past.build",
        Kind::Word(&["off", "after-session"]),
        "\"off\"",
        NextSession,
        STORE,
        "when the past of a project is summed up by itself: never, or 31 minutes after a session in it has ended",
    ),
    key(
        "sandbox.network",
        Kind::Word(&["ask", "open", "closed"]),
        "\"ask\"",
        Now,
        SANDBOX,
        "network access of commands",
    ),
    key("sandbox.namespaces", Kind::Flag, "true", Now, SANDBOX, "run commands in namespaces"),
    key(
        "sandbox.write",
        Kind::List(Item::Writable),
        "[\"default\"]",
        Now,
        SANDBOX,
        "directories that commands may write to",
    ),
    key(
        "sandbox.caches",
        Kind::Word(&["private", "shared"]),
        "\"private\"",
        Now,
        SANDBOX,
        "whether each project has separate caches",
    ),
    key(
        "sandbox.ports",
        Kind::List(Item::Port),
        "[]",
        Now,
        SANDBOX,
        "ports of commands that are reachable from this machine",
    ),
    key(
        "sandbox.services",
        Kind::List(Item::Service),
        "[]",
        Now,
        SANDBOX,
        "services of this machine that commands may reach",
    ),
    key(
        "sandbox.mode",
        Kind::Word(&["off", "non-main", "all"]),
        "\"off\"",
        Now,
        SANDBOX,
        "which sessions work in a sandbox of a scope: none, all but the main conversation of an agent, or all",
    ),
    key(
        "sandbox.scope",
        Kind::Word(&["agent", "session", "shared"]),
        "\"agent\"",
        Now,
        SANDBOX,
        "which sessions share such a sandbox: those of an agent, none, or all",
    ),
    key(
        "sandbox.workspaceAccess",
        Kind::Word(&["none", "ro", "rw"]),
        "\"none\"",
        Now,
        SANDBOX,
        "the workspace of such a sandbox: a folder of its own, that of the session to read, or to read and write",
    ),
    key(
        "sandbox.backend",
        Kind::Word(&["namespaces", "podman", "docker"]),
        "\"namespaces\"",
        Now,
        SANDBOX,
        "what confines commands in such a sandbox",
    ),
    key("sandbox.image", Kind::Text, "", Now, SANDBOX, "the image of containers, which is never fetched"),
    key(
        "sandbox.runtime",
        Kind::Text,
        "",
        Now,
        SANDBOX,
        "the program that runs containers, such as `runc`; the default of podman or docker otherwise",
    ),
    key(
        "sandbox.containerNetwork",
        Kind::Text,
        "\"none\"",
        Now,
        SANDBOX,
        "the network of containers: `none`, or the name of one",
    ),
    key(
        "sandbox.prefix",
        Kind::Text,
        "\"quipu-sbx-\"",
        Now,
        SANDBOX,
        "the beginning of the names of containers",
    ),
    key(
        "sandbox.processes",
        Kind::Number { least: 1, most: 4_194_304 },
        "",
        Now,
        SANDBOX,
        "processes in a container at most",
    ),
    key(
        "sandbox.memoryMiB",
        Kind::Number { least: 6, most: 1 << 30 },
        "",
        Now,
        SANDBOX,
        "memory of a container at most, in MiB",
    ),
    key(
        "sandbox.cpus",
        Kind::Number { least: 1, most: 4_096 },
        "",
        Now,
        SANDBOX,
        "processors of a container at most",
    ),
    key(
        "sandbox.mounts",
        Kind::List(Item::Mount),
        "[]",
        Now,
        SANDBOX,
        "more of this machine in containers: `HOST:PLACE` to read, `HOST:PLACE:rw` to change as well",
    ),
    key(
        "sandbox.variables",
        Kind::List(Item::Variable),
        "[]",
        Now,
        SANDBOX,
        "variables that commands in containers get from Quipu's environment; never those that hold secrets or code",
    ),
    key(
        "permissions.allow",
        Kind::List(Item::Rule),
        "[]",
        Now,
        ALLOWED,
        "permission rules that allow; those of a project count beside yours",
    ),
    key("permissions.ask", Kind::List(Item::Rule), "[]", Now, ALLOWED, "permission rules that ask"),
    key("permissions.deny", Kind::List(Item::Rule), "[]", Now, ALLOWED, "permission rules that deny"),
    key(
        "hooks",
        Kind::Hooks,
        "{}",
        NextSession,
        ALLOWED,
        "commands that run at events; those of a project after yours",
    ),
];

/// What an editor looks for in a file, and nobody else.
pub(super) const SCHEMA: &str = "$schema";

impl Key {
    /// The setting of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.name == name)
    }

    /// The setting that had this name in earlier versions.
    pub(super) fn formerly_named(name: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.formerly == Some(name))
    }

    /// The variable of the environment that sets it: `QUIPU_` and its name in upper snake case.
    pub fn variable(&self) -> String {
        variable(self.name)
    }

    /// Its members, from the outside in.
    pub fn path(&self) -> Vec<&'static str> {
        self.name.split('.').collect()
    }

    /// The default value; null for none.
    pub fn default_value(&self) -> Value {
        serde_json::from_str(self.default).unwrap_or_default()
    }

    /// The values that it may have; none where there are too many.
    pub fn values(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Flag => &["true", "false"],
            Kind::Word(words) => words,
            _ if self.name == "theme" => &["dark", "light"],
            _ => &[],
        }
    }
}

/// The variable of the environment for a name.
pub(super) fn variable(key: &str) -> String {
    let mut name = "QUIPU_".to_owned();
    for letter in key.chars() {
        match letter {
            '.' => name.push('_'),
            upper if upper.is_ascii_uppercase() => {
                name.push('_');
                name.push(upper);
            }
            lower => name.push(lower.to_ascii_uppercase()),
        }
    }
    name
}

impl Kind {
    /// What a value must be, behind "must be".
    pub fn wanted(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { least, most: u64::MAX } => format!("a whole number of {least} or more"),
            Self::Number { least, most } => format!("a whole number from {least} to {most}"),
            Self::Amount => "an amount in US dollars above 0, such as 5".to_owned(),
            Self::Text => "a text that is not empty".to_owned(),
            Self::Cron => "a cron expression, such as \"0 3 * * *\"".to_owned(),
            Self::Word(words) => {
                let (last, others) = words.split_last().unwrap_or((&"", &[]));
                format!("{} or {last}", others.join(", "))
            }
            Self::List(Item::Model) => "a list of names, such as [\"sonnet:high\"]".to_owned(),
            Self::List(Item::Credential) => {
                "a list of keys, such as [\"PROVIDER:work\", \"PROVIDER\"]".to_owned()
            }
            Self::List(Item::Head) => "a list of names of heads, such as [\"PI_HEAD\"]".to_owned(),
            Self::List(Item::Directory) => "a list of directories, such as [\"~/work\"]".to_owned(),
            Self::List(Item::Writable) => "a list of paths, such as [\"default\", \"~/data\"]".to_owned(),
            Self::List(Item::Port) => "a list of ports, such as [8080]".to_owned(),
            Self::List(Item::Rule) => {
                "a list of permission rules, such as [\"bash(git status *)\"]".to_owned()
            }
            Self::List(Item::Tool) => "a list of tools, such as [\"read\", \"grep\"]".to_owned(),
            Self::List(Item::ToolPattern) => "a list of tools, such as [\"read\", \"web_*\"]".to_owned(),
            Self::List(Item::ToolName) => "a list of tools, such as [\"read\", \"group:web\"]".to_owned(),
            Self::List(Item::Mount) => {
                "a list of mounts, such as [\"/data:/data\", \"/out:/out:rw\"]".to_owned()
            }
            Self::List(Item::Variable) => "a list of names of variables, such as [\"LANG\"]".to_owned(),
            Self::List(Item::Service) => "a list of services, such as [\"localhost:5432\"]".to_owned(),
            Self::PurposeModels => "an object of names of models".to_owned(),
            Self::PurposeBudgets => "an object of amounts in US dollars, 0 or more".to_owned(),
            Self::ToolPolicies(PolicyTable::Providers) => "an object of policies by provider".to_owned(),
            Self::ToolPolicies(PolicyTable::Groups) => "an object of policies by group".to_owned(),
            Self::ToolPolicies(PolicyTable::Senders) => "an object of lists by sender".to_owned(),
            Self::ChannelWords(_) | Self::ChannelTimes => "an object of values by channel".to_owned(),
            Self::Resets(ChatNames::Kinds) => "an object of rules by kind".to_owned(),
            Self::Resets(ChatNames::Channels) => "an object of rules by channel".to_owned(),
            Self::Turns(ChatNames::Kinds) => "an object of numbers by kind".to_owned(),
            Self::Turns(ChatNames::Channels) => "an object of limits by channel".to_owned(),
            Self::Agents => "an object of agents by id".to_owned(),
            Self::Servers => "an object of URLs, or false".to_owned(),
            Self::Semantic => "an object, or false".to_owned(),
            Self::Hooks => "an object of events".to_owned(),
        }
    }

    /// Its type in a few letters, for tables.
    pub fn short(self) -> String {
        match self {
            Self::Flag => "true or false".to_owned(),
            Self::Number { least, most: u64::MAX } => format!("number, {least} or more"),
            Self::Number { least, most } => format!("number, {least} to {most}"),
            Self::Amount => "US dollars".to_owned(),
            Self::Text => "text".to_owned(),
            Self::Cron => "cron expression".to_owned(),
            Self::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::List(Item::Port) => "list of numbers".to_owned(),
            Self::List(_) => "list of texts".to_owned(),
            Self::Servers | Self::Semantic => "object, or `false`".to_owned(),
            Self::ChannelWords(_)
            | Self::ChannelTimes
            | Self::Resets(_)
            | Self::Turns(_)
            | Self::Agents
            | Self::PurposeModels
            | Self::PurposeBudgets
            | Self::ToolPolicies(_)
            | Self::Hooks => "object".to_owned(),
        }
    }
}
