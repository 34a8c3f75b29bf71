//! Every setting: the one table that reading, checking, the schema and the documents go by.

use serde_json::Value;

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Key {
    /// Its members in the file, with dots between them.
    pub name: &'static str,
    /// Its name in earlier versions, which files and variables may still use.
    pub formerly: Option<&'static str>,
    /// What its value is.
    pub kind: Kind,
    /// What holds where nobody says anything, as JSON; empty where that is nothing.
    pub default: &'static str,
    /// When a change holds.
    pub effect: Effect,
    /// Whether the file of a project may set it.
    pub project: ProjectUse,
    /// What it is for, in a few words.
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
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these.
    List(Item),
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
}

/// When a change holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// In sessions that are open, the next time that it matters.
    Now,
    /// In the next session, and in one that is opened again.
    NextSession,
    /// When the program is started the next time.
    NextStart,
}

impl Effect {
    /// Its word: `now`, `next session`, `next start`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NextSession => "next session",
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
const NETWORK: ProjectUse = ProjectUse::Refused("it says where requests go");
const SPENDING: ProjectUse = ProjectUse::Refused("it says what may be spent");
const HOME: ProjectUse = ProjectUse::Refused("it names files of yours");
const STORE: ProjectUse = ProjectUse::Refused("it is about the store of all projects");
const TERMINAL: ProjectUse = ProjectUse::Refused("it is about your terminal");
const ALLOWED: ProjectUse = ProjectUse::Allowed;

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

use Effect::{NextSession, NextStart, Now};

/// Those that there are.
pub const KEYS: &[Key] = &[
    key("theme", Kind::Text, "", Now, TERMINAL, "colours of the terminal: dark, light, or a file in themes"),
    key(
        "screenReader",
        Kind::Flag,
        "false",
        NextStart,
        TERMINAL,
        "the terminal speaks in lines for screen readers",
    ),
    key(
        "terminal.hyperlinks",
        Kind::Flag,
        "",
        NextStart,
        TERMINAL,
        "links in the terminal; found out where nothing is said",
    ),
    key(
        "terminal.showImages",
        Kind::Flag,
        "true",
        NextStart,
        TERMINAL,
        "pictures in the terminal, where it can show them",
    ),
    key(
        "terminal.notify",
        Kind::Word(&["auto", "osc9", "osc777", "bell", "off"]),
        "\"auto\"",
        NextStart,
        TERMINAL,
        "how the terminal calls you when you look elsewhere",
    ),
    key(
        "enabledModels",
        Kind::List(Item::Model),
        "[]",
        Now,
        ALLOWED,
        "models that the keys for the next model go through",
    ),
    key(
        "cacheRetention",
        Kind::Word(&["none", "short", "long"]),
        "\"short\"",
        NextSession,
        ALLOWED,
        "how long providers keep what was sent",
    ),
    key("thinkingBudgets.minimal", SIZE, "1024", NextSession, ALLOWED, "tokens of thinking at this level"),
    key("thinkingBudgets.low", SIZE, "2048", NextSession, ALLOWED, "tokens of thinking at this level"),
    key("thinkingBudgets.medium", SIZE, "8192", NextSession, ALLOWED, "tokens of thinking at this level"),
    key(
        "thinkingBudgets.high",
        SIZE,
        "16384",
        NextSession,
        ALLOWED,
        "tokens of thinking at this level and above",
    ),
    key("retry.enabled", Kind::Flag, "true", NextSession, ALLOWED, "try again what failed for a moment"),
    key("retry.maxRetries", SIZE, "3", NextSession, ALLOWED, "how often"),
    key(
        "retry.baseDelayMs",
        SIZE,
        "2000",
        NextSession,
        ALLOWED,
        "milliseconds before the first time; then twice as many",
    ),
    key(
        "retry.provider.maxRetryDelayMs",
        SIZE,
        "60000",
        NextSession,
        ALLOWED,
        "the longest wait that a server may ask for",
    ),
    key(
        "httpIdleTimeoutMs",
        SIZE,
        "300000",
        NextSession,
        ALLOWED,
        "the longest silence of a server; 0 is without limit",
    ),
    key(
        "proxyLocalServers",
        Kind::Flag,
        "false",
        NextSession,
        NETWORK,
        "reach servers on this machine through the proxy as well",
    ),
    key(
        "localServers",
        Kind::Servers,
        "",
        NextSession,
        NETWORK,
        "where model servers on this machine are looked for",
    ),
    key(
        "compaction.enabled",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "sum the context up before it is full",
    ),
    key("compaction.reserveTokens", COUNT, "16384", NextSession, ALLOWED, "tokens kept free for the answer"),
    key(
        "compaction.keepRecentTokens",
        COUNT,
        "20000",
        NextSession,
        ALLOWED,
        "tokens of the newest conversation that stay",
    ),
    key(
        "context.prune.enabled",
        Kind::Flag,
        "false",
        NextSession,
        ALLOWED,
        "leave old results of tools out of requests",
    ),
    key(
        "context.prune.triggerPercent",
        PERCENT,
        "50",
        NextSession,
        ALLOWED,
        "how full the context is then, in percent",
    ),
    key(
        "context.prune.clearAtLeastPercent",
        PERCENT,
        "10",
        NextSession,
        ALLOWED,
        "what must become free, in percent",
    ),
    key("context.prune.keepTurns", COUNT, "8", NextSession, ALLOWED, "turns whose results stay"),
    key("context.prune.minCharacters", COUNT, "4000", NextSession, ALLOWED, "shorter results stay"),
    key("search.tool", Kind::Flag, "true", NextSession, HISTORY, "the model can search what was done before"),
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
        "travel.tools",
        Kind::Flag,
        "false",
        NextSession,
        HISTORY,
        "models of new sessions can look at the graph and go back in it",
    ),
    key(
        "travel.tobe",
        Kind::Word(&["ask", "allow", "deny"]),
        "\"ask\"",
        Now,
        PERMISSIONS,
        "whether the model may go back in its session",
    ),
    key("identity.file", Kind::Text, "", NextSession, HOME, "a text of yours before the system prompt"),
    key(
        "rules.above",
        Kind::List(Item::Directory),
        "[]",
        NextSession,
        HOME,
        "directories above a repository whose rules count",
    ),
    key(
        "files.enabled",
        Kind::Flag,
        "true",
        NextSession,
        ALLOWED,
        "keep what files were before tools changed them",
    ),
    key(
        "files.fileBytes",
        Kind::Number { least: 1, most: 64 << 20 },
        "1048576",
        NextSession,
        ALLOWED,
        "bytes of one file that are kept at most",
    ),
    key(
        "files.runBytes",
        COUNT,
        "67108864",
        NextSession,
        ALLOWED,
        "bytes that the files of one run add at most",
    ),
    key(
        "files.storeBytes",
        COUNT,
        "1073741824",
        Now,
        STORE,
        "bytes of the store that states of files take at most",
    ),
    key(
        "files.ignoredFiles",
        Kind::Number { least: 1, most: 100_000 },
        "10000",
        NextSession,
        ALLOWED,
        "files that git ignores and that are looked at",
    ),
    key(
        "publish",
        Kind::List(Item::Head),
        "[]",
        NextSession,
        STORE,
        "heads of other programs that follow our sessions",
    ),
    key("budget.daily", Kind::Amount, "", NextSession, SPENDING, "US dollars for all sessions of a day"),
    key(
        "budget.waitMs",
        SIZE,
        "",
        NextSession,
        SPENDING,
        "how long a call waits for what others have reserved",
    ),
    key(
        "sandbox.network",
        Kind::Word(&["ask", "open", "closed"]),
        "\"ask\"",
        Now,
        SANDBOX,
        "the network of commands",
    ),
    key("sandbox.namespaces", Kind::Flag, "true", Now, SANDBOX, "commands run in namespaces"),
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
        "whether caches are kept apart for each project",
    ),
    key(
        "sandbox.ports",
        Kind::List(Item::Port),
        "[]",
        Now,
        SANDBOX,
        "ports of commands that this machine reaches",
    ),
    key(
        "sandbox.services",
        Kind::List(Item::Service),
        "[]",
        Now,
        SANDBOX,
        "services of this machine that commands reach",
    ),
    key(
        "hooks",
        Kind::Hooks,
        "{}",
        NextSession,
        ALLOWED,
        "commands that are run at events; those of a project after yours",
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

    /// What holds where nobody says anything.
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
            Self::Word(words) => {
                let (last, others) = words.split_last().unwrap_or((&"", &[]));
                format!("{} or {last}", others.join(", "))
            }
            Self::List(Item::Model) => "a list of names, such as [\"sonnet:high\"]".to_owned(),
            Self::List(Item::Head) => "a list of names of heads, such as [\"PI_HEAD\"]".to_owned(),
            Self::List(Item::Directory) => "a list of directories, such as [\"~/work\"]".to_owned(),
            Self::List(Item::Writable) => "a list of paths, such as [\"default\", \"~/data\"]".to_owned(),
            Self::List(Item::Port) => "a list of ports, such as [8080]".to_owned(),
            Self::List(Item::Service) => "a list of services, such as [\"localhost:5432\"]".to_owned(),
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
            Self::Word(words) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            Self::List(Item::Port) => "list of numbers".to_owned(),
            Self::List(_) => "list of texts".to_owned(),
            Self::Servers | Self::Semantic => "object, or `false`".to_owned(),
            Self::Hooks => "object".to_owned(),
        }
    }
}
