//! The settings of a user: one type, put together from what is built in, the user's file, the file of a trusted project,
//! the environment and flags, of which the later counts more; each value with where it comes from.
//!
//! `table` names every setting. A new one is a row there and a member of [`Settings`].

mod agents;
mod cache;
mod check;
mod container;
mod edit;
mod heartbeat;
mod keep;
mod layer;
mod messages;
mod named_agents;
mod project;
mod publish;
mod shared;
mod table;
pub(crate) mod text;
mod tool_policies;
mod tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use quipu::{
    CacheExpiry, CompactionSettings, FileSettings, HistorySettings, IdentitySettings, Network, PruneSettings,
    PublishSettings, QueueDrain, TravelRule, TravelSettings, cache_expiry_settings, compaction_settings,
    prune_settings,
};
use quipu_memory::active::{ActiveMode, ActiveOptions};
use quipu_protocol::Thinking;
use quipu_providers::{CallSettings, EmbedderSettings};
use serde_json::{Map, Value};

use crate::offered_tools::PatchTool;
use crate::web::WebSettings;

pub use self::agents::{AgentConfig, AgentTool};
pub(crate) use self::cache::Cache;
pub use self::container::{ContainerSettings, SandboxMode, SandboxScope, SandboxWorkspace};
pub(crate) use self::keep::check_setting;
pub use self::keep::{FileChange, SettingError, SettingsFile, StoredSetting, set_setting, unset_setting};
use self::layer::Layer;
pub use self::layer::{Problem, ProblemKind, Source};
pub use self::messages::{
    ChannelTurns, ChatNames, QueueConfig, ResetCause, ResetConfig, ResetRuleConfig, StreamingConfig,
    StreamingMode, TurnLimits,
};
pub(crate) use self::named_agents::EVERY as EVERY_AGENT;
pub use self::named_agents::{AgentBudget, NamedAgent};
pub(crate) use self::project::{Decision, ask_project_hooks, content_of, is_accepted, project_root};
pub use self::project::{project_settings_path, project_to_trust, trust_project};
pub use self::publish::{settings_schema, settings_table};
pub use self::shared::{HookBudget, SharedHistory};
pub use self::table::{Effect, Item, KEYS, Key, Kind, ProjectUse};
pub use self::tool_policies::PolicyTable;
pub(crate) use self::tool_policies::{closed_members, no_tools};
pub use self::tools::ToolSettings;
pub(crate) use self::tools::UNREADABLE;
use quipu::rules::{Effect as RuleEffect, Rule};

/// The models that go on where the chosen one cannot.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FallbackSettings {
    /// Their names, the first one to try in front.
    pub models: Vec<String>,
    /// Whether they go on also for a model that a run names.
    pub named: bool,
}

/// Settings as they hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The theme of the terminal, where one is named.
    pub theme: Option<String>,
    /// Whether the terminal speaks in lines.
    pub screen_reader: bool,
    /// Links, images and notifications of the terminal.
    pub terminal: TerminalSettings,
    /// The model of a new session where none was chosen in its directory: `provider/id`, or a part of a name.
    pub default_model: Option<String>,
    /// The level of thinking of a new session where none was chosen for its model.
    pub default_thinking: Option<Thinking>,
    /// The models that are gone through; none for all.
    pub enabled_models: Vec<String>,
    /// Names of models by the purpose that they are for.
    pub purpose_models: BTreeMap<String, String>,
    /// The models that go on where the chosen one cannot.
    pub fallback: FallbackSettings,
    /// How models are called.
    pub calls: CallSettings,
    /// Sub-agents.
    pub agents: AgentConfig,
    /// Agents by their ids.
    pub named_agents: BTreeMap<String, NamedAgent>,
    /// What becomes of messages that come while a conversation is busy.
    pub queue: QueueConfig,
    /// Whether answers are sent to chats while they arrive.
    pub streaming: StreamingConfig,
    /// When conversations begin anew.
    pub resets: ResetConfig,
    /// How many turns of the user requests of conversations have.
    pub turns: TurnLimits,
    /// Which models get `apply_patch`.
    pub patch_tool: PatchTool,
    /// Which tools are offered, and when loops of calls are broken.
    pub tools: Arc<ToolSettings>,
    /// How the web is searched.
    pub web: WebSettings,
    /// When a context is summed up.
    pub compaction: CompactionSettings,
    /// What then stands for what leaves it.
    pub compaction_mode: CompactionMode,
    /// How many of the messages for the end of a turn are taken there.
    pub steering: QueueDrain,
    /// How many of the messages for the end of a run are taken there.
    pub follow_up: QueueDrain,
    /// What is left out of requests.
    pub prune: PruneSettings,
    /// What is left out of them when the provider's cache has expired.
    pub cache_expiry: Option<Arc<CacheExpiry>>,
    /// Whether the model can search what was done before.
    pub history: HistorySettings,
    /// Whether memories are used.
    pub memory: MemorySettings,
    /// The past before conversations.
    pub time: TimeSettings,
    /// Which sessions the MCP server shows.
    pub shared_history: SharedHistory,
    /// How much history the hooks of other agents give.
    pub hook_budget: HookBudget,
    /// The embedding model of the semantic search; `None` turns it off.
    pub semantic: Option<EmbedderSettings>,
    /// Whether the model can look at the graph.
    pub travel: TravelSettings,
    /// Whether it may go back.
    pub travel_rule: TravelRule,
    /// Whether new sessions have the prompt of a personal agent.
    pub persona: bool,
    /// Whether new sessions begin in plan mode.
    pub plan_mode: bool,
    /// Whether the model can keep a to-do list.
    pub todo_tool: bool,
    /// The text before the system prompt.
    pub identity: IdentitySettings,
    /// Directories above a repository whose rules count; as they are written.
    pub rules_above: Vec<String>,
    /// What is kept of files.
    pub files: FileSettings,
    /// Whether models can run commands in the background.
    pub background: bool,
    /// What is remembered of a prompt before its run.
    pub active_memory: ActiveOptions,
    /// Whether models can add jobs, where a person allows it.
    pub schedule_tool: bool,
    /// Heads of other programs.
    pub publish: PublishSettings,
    /// Dreams over memories.
    pub dreaming: DreamingSettings,
    /// Whether the past of a project is built after each session in it.
    pub past_after_session: bool,
    /// What may be spent.
    pub budget: BudgetSettings,
    /// Where commands run.
    pub sandbox: SandboxSettings,
    /// Commands at events: the user's, then those of the project.
    pub hooks: Vec<Value>,
    /// Permission rules.
    pub rules: Vec<(RuleEffect, Rule)>,
    /// What is wrong; the rest counts.
    pub problems: Vec<Problem>,
    values: BTreeMap<&'static str, (Value, Source)>,
}

/// The members of `memory`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemorySettings {
    /// Whether the memories are used that a person switched on.
    pub enabled: bool,
    /// Whether the terminal asks in each project, once memory is on in one.
    pub asks: bool,
    /// Whether sessions that programs share use them.
    pub shared: bool,
    /// Whether the model writes summaries of the past itself.
    pub creates: bool,
}

/// What stands for what leaves a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CompactionMode {
    /// A summary of a model.
    #[default]
    Summary,
    /// The same, made in parts and checked.
    Safeguard,
    /// Sentences of it by time.
    Cover,
}

/// The past before the conversations of new sessions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimeSettings {
    /// Whether it is there.
    pub is_on: bool,
    /// Tokens that it has at most.
    pub tokens: u64,
    /// Whether what changes in it is served one run later.
    pub delay: bool,
    /// What the model and then the user say behind it; `None` for nothing.
    pub boundary: Option<(String, String)>,
}

/// The members of `terminal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSettings {
    /// Whether URLs and files are links (`OSC 8`); `None` to detect it.
    pub hyperlinks: Option<bool>,
    /// Whether images are drawn, where the terminal can.
    pub show_images: bool,
    /// How the terminal notifies a user who looks elsewhere.
    pub notify: NotifySetting,
}

/// How the terminal notifies a user who looks elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NotifySetting {
    /// Whatever the terminal is known to support.
    #[default]
    Auto,
    /// The escape sequence `OSC 9`.
    Osc9,
    /// The escape sequence `OSC 777`.
    Osc777,
    /// The bell (BEL) alone.
    Bell,
    /// No notification.
    Off,
}

/// The members of `memory.dreaming`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamingSettings {
    /// Whether recalls are kept and dreams run.
    pub enabled: bool,
    /// When dreams run, as a cron expression.
    pub schedule: String,
}

/// The members of `budget`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BudgetSettings {
    /// US dollars for all sessions of a day; `None` for no limit.
    pub daily: Option<f64>,
    /// How long a call waits for money that other calls have reserved.
    pub wait: Option<Duration>,
    /// US dollars a day for models in the background, by purpose.
    pub background: BTreeMap<String, f64>,
}

/// The members of `sandbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxSettings {
    /// Whether commands reach the network.
    pub network: Network,
    /// Whether they run in namespaces.
    pub namespaces: bool,
    /// Directories that they may write to, as they are written.
    pub write: Vec<String>,
    /// Whether each project has its own layer over caches, which holds what commands write.
    pub separates_caches: bool,
    /// Ports of theirs that this machine reaches.
    pub ports: Vec<u16>,
    /// Addresses and sockets of this machine that they reach.
    pub services: Vec<String>,
    /// Which sessions work in a sandbox of a scope.
    pub mode: SandboxMode,
    /// Which of them share one.
    pub scope: SandboxScope,
    /// What they have of their workspace.
    pub workspace: SandboxWorkspace,
    /// In which containers their commands run; `None`: in namespaces.
    pub container: Option<ContainerSettings>,
}

/// A setting, its value and where that comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct SettingRow<'a> {
    /// The setting of the table.
    pub key: &'static Key,
    /// Its value; null where there is none.
    pub value: Value,
    /// Where it comes from.
    pub source: &'a Source,
}

/// The default of each setting.
impl Default for Settings {
    fn default() -> Self {
        Self::of_layers(&[])
    }
}

fn drain_of(word: Option<&str>) -> QueueDrain {
    match word {
        Some("all") => QueueDrain::All,
        _ => QueueDrain::First,
    }
}

impl Settings {
    /// What is set for the agent of an id.
    pub fn named_agent(&self, id: &str) -> Option<&NamedAgent> {
        named_agents::named(&self.named_agents, id)
    }

    /// What layers make together, each with where it comes from; a later one counts more.
    fn of_layers(layers: &[(Origin, &Layer)]) -> Self {
        let mut values: BTreeMap<&'static str, (Value, Source)> = BTreeMap::new();
        let (mut problems, mut hooks) = (Vec::new(), Vec::new());
        let mut rules = Vec::new();
        for (origin, layer) in layers {
            problems.extend(layer.problems.iter().cloned());
            for (name, value) in &layer.values {
                if *name == "hooks" {
                    // Those of a project come after the user's; a variable takes the place of both.
                    if matches!(origin, Origin::Environment) {
                        hooks.clear();
                    }
                    hooks.push(value.clone());
                }
                // Rules of all files count: none takes away what another denies.
                if let Some(effect) = name.strip_prefix("permissions.").and_then(effect_named) {
                    let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                    rules.extend(texts.filter_map(|text| Some((effect, Rule::parse(text).ok()?))));
                }
                values.insert(name, (value.clone(), origin.source(name)));
            }
        }
        let mut all = Value::Object(Map::new());
        for (name, (value, _)) in &values {
            let mut at = &mut all;
            for member in name.split('.') {
                at = &mut at[member];
            }
            *at = value.clone();
        }
        // Each value was looked at before it came here.
        let texts = |name: &str| -> Vec<String> {
            let items = values.get(name).and_then(|(value, _)| value.as_array());
            items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
        };
        let value = |name: &str| values.get(name).map(|(value, _)| value);
        let flag = |name: &str| value(name).and_then(Value::as_bool);
        let word = |name: &str| value(name).and_then(Value::as_str);
        let ports = value("sandbox.ports").and_then(Value::as_array).into_iter().flatten();
        let ports = ports.filter_map(|port| u16::try_from(port.as_u64()?).ok()).collect();
        Self {
            theme: word("theme").map(str::to_owned),
            screen_reader: flag("screenReader").unwrap_or(false),
            terminal: TerminalSettings {
                hyperlinks: flag("terminal.hyperlinks"),
                show_images: flag("terminal.showImages").unwrap_or(true),
                notify: match word("terminal.notify") {
                    Some("osc9") => NotifySetting::Osc9,
                    Some("osc777") => NotifySetting::Osc777,
                    Some("bell") => NotifySetting::Bell,
                    Some("off") => NotifySetting::Off,
                    _ => NotifySetting::Auto,
                },
            },
            default_model: word("defaultModel").map(str::to_owned),
            default_thinking: word("defaultThinkingLevel").and_then(quipu_providers::parse_level),
            enabled_models: texts("enabledModels"),
            purpose_models: value("purposeModels")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter_map(|(purpose, model)| Some((purpose.clone(), model.as_str()?.to_owned())))
                .collect(),
            fallback: FallbackSettings {
                models: texts("fallbackModels"),
                named: flag("fallbackForNamedModel").unwrap_or(false),
            },
            calls: CallSettings::of_json(&all).0,
            agents: AgentConfig::of(&value),
            named_agents: named_agents::of(value("agents.byId")),
            queue: QueueConfig::of(&value),
            streaming: StreamingConfig::of(&value),
            resets: ResetConfig::of(&value),
            turns: TurnLimits::of(&value),
            patch_tool: PatchTool::of_word(word("applyPatch")),
            tools: Arc::new(ToolSettings::of(&value)),
            web: WebSettings {
                search: word("web.searchService").filter(|word| *word != "off").map(str::to_owned),
                search_url: word("web.searchUrl").map(str::to_owned),
            },
            compaction: compaction_settings(&all).0,
            compaction_mode: match word("compaction.mode") {
                Some("cover") => CompactionMode::Cover,
                Some("safeguard") => CompactionMode::Safeguard,
                _ => CompactionMode::Summary,
            },
            steering: drain_of(word("steeringMode")),
            follow_up: drain_of(word("followUpMode")),
            prune: prune_settings(&all).0,
            cache_expiry: cache_expiry_settings(&all).0.map(Arc::new),
            history: HistorySettings::of_json(&all).0,
            memory: MemorySettings {
                enabled: flag("memory.enabled").unwrap_or(true),
                asks: flag("memory.ask").unwrap_or(true),
                shared: flag("memory.shared").unwrap_or(false),
                creates: flag("memory.create").unwrap_or(false),
            },
            time: TimeSettings {
                is_on: word("memory.time") == Some("on"),
                tokens: value("memory.timeTokens").and_then(Value::as_u64).unwrap_or(8_000),
                delay: flag("memory.delay").unwrap_or(true),
                boundary: flag("memory.boundary").unwrap_or(true).then(|| {
                    let said = |name, default: &str| word(name).unwrap_or(default).to_owned();
                    (said("memory.breath", "breath"), said("memory.moment", "present moment begins."))
                }),
            },
            shared_history: SharedHistory::of_word(word("mcpServer.scope")),
            hook_budget: HookBudget::of_word(word("integrations.history")),
            semantic: EmbedderSettings::of_json(&all).unwrap_or_default(),
            travel: TravelSettings::of_json(&all).0,
            persona: flag("prompt.persona").unwrap_or(false),
            plan_mode: flag("planMode").unwrap_or(false),
            todo_tool: flag("todo.tool").unwrap_or(true),
            travel_rule: match word("travel.tobe") {
                Some("allow") => TravelRule::Allow,
                Some("deny") => TravelRule::Deny,
                _ => TravelRule::Ask,
            },
            identity: IdentitySettings::of_json(&all).0,
            rules_above: texts("rules.above"),
            files: FileSettings::of_json(&all).0,
            background: flag("background").unwrap_or(true),
            active_memory: ActiveOptions {
                mode: match word("memory.active.mode") {
                    Some("off") => ActiveMode::Off,
                    Some("escalate") => ActiveMode::Escalate,
                    Some("always") => ActiveMode::Always,
                    _ => ActiveMode::Search,
                },
                ..ActiveOptions::default()
            },
            schedule_tool: flag("schedule.tool").unwrap_or(false),
            publish: PublishSettings::of_json(&all).0,
            dreaming: DreamingSettings {
                enabled: flag("memory.dreaming.enabled").unwrap_or(false),
                schedule: word("memory.dreaming.schedule").unwrap_or("0 3 * * *").to_owned(),
            },
            past_after_session: word("past.build") == Some("after-session"),
            budget: BudgetSettings {
                daily: value("budget.daily").and_then(Value::as_f64),
                wait: value("budget.waitMs").and_then(Value::as_u64).map(Duration::from_millis),
                background: value("budget.background")
                    .and_then(Value::as_object)
                    .into_iter()
                    .flatten()
                    .filter_map(|(purpose, amount)| Some((purpose.clone(), amount.as_f64()?)))
                    .collect(),
            },
            sandbox: SandboxSettings {
                network: match word("sandbox.network") {
                    Some("open") => Network::Open,
                    Some("closed") => Network::Closed,
                    _ => Network::Asked,
                },
                namespaces: flag("sandbox.namespaces").unwrap_or(true),
                write: value("sandbox.write")
                    .map_or_else(|| vec!["default".to_owned()], |_| texts("sandbox.write")),
                separates_caches: word("sandbox.caches") != Some("shared"),
                ports,
                services: texts("sandbox.services"),
                mode: SandboxMode::of_word(word("sandbox.mode")),
                scope: SandboxScope::of_word(word("sandbox.scope")),
                workspace: SandboxWorkspace::of_word(word("sandbox.workspaceAccess")),
                container: ContainerSettings::of_values(&value),
            },
            hooks,
            rules,
            problems,
            values,
        }
    }

    /// Every setting with its value and where that comes from.
    pub fn rows(&self) -> impl Iterator<Item = SettingRow<'_>> {
        KEYS.iter().map(|key| self.row(key))
    }

    /// One setting with its value and where that comes from.
    pub fn row(&self, key: &'static Key) -> SettingRow<'_> {
        match self.values.get(key.name) {
            Some((value, source)) => SettingRow { key, value: value.clone(), source },
            None => SettingRow { key, value: key.default_value(), source: &Source::BuiltIn },
        }
    }

    /// Where the value of a setting comes from; `None` where nobody says anything.
    pub fn source_of(&self, name: &str) -> Option<&Source> {
        self.values.get(name).map(|(_, source)| source)
    }

    /// What keeps a setting from being read as it was meant, if anything does.
    pub fn problem_of(&self, key: &str) -> Option<&Problem> {
        self.problems.iter().find(|problem| problem.hides(key))
    }

    /// What may keep the value from being the one that was meant: the setting cannot be read, its file cannot, or a name that is
    /// not known is nearest to its own.
    pub fn doubt_of(&self, key: &str) -> Option<&Problem> {
        self.problems.iter().find(|problem| {
            problem.is_of_the_whole()
                || problem.hides(key)
                || match &problem.kind {
                    ProblemKind::Unknown { nearest, .. } => nearest.as_deref() == Some(key),
                    ProblemKind::NotAnObject(name) => key == name,
                    ProblemKind::More => true,
                    _ => false,
                }
        })
    }

    /// The same settings, with what flags say before all else.
    #[must_use]
    pub fn with_flags(&self, flags: &[(&'static str, &'static str, Value)]) -> Self {
        if flags.is_empty() {
            return self.clone();
        }
        let mut kept: Vec<(Origin, Layer)> = Vec::new();
        for (name, (value, source)) in &self.values {
            let values = BTreeMap::from([(*name, value.clone())]);
            kept.push((Origin::Known(source.clone()), Layer { values, ..Layer::default() }));
        }
        for (name, flag, value) in flags {
            let values = BTreeMap::from([(*name, value.clone())]);
            kept.push((Origin::Known(Source::Flag(flag)), Layer { values, ..Layer::default() }));
        }
        let layers: Vec<(Origin, &Layer)> =
            kept.iter().map(|(origin, layer)| (origin.clone(), layer)).collect();
        Self {
            hooks: self.hooks.clone(),
            rules: self.rules.clone(),
            problems: self.problems.clone(),
            ..Self::of_layers(&layers)
        }
    }
}

fn effect_named(word: &str) -> Option<RuleEffect> {
    [RuleEffect::Allow, RuleEffect::Ask, RuleEffect::Deny].into_iter().find(|effect| effect.word() == word)
}

/// Where a layer comes from.
#[derive(Debug, Clone)]
enum Origin {
    User(PathBuf),
    Project(PathBuf),
    Environment,
    Known(Source),
}

impl Origin {
    fn source(&self, name: &str) -> Source {
        match self {
            Self::User(path) => Source::User(path.clone()),
            Self::Project(path) => Source::Project(path.clone()),
            Self::Environment => Source::Environment(Key::named(name).map(Key::variable).unwrap_or_default()),
            Self::Known(source) => source.clone(),
        }
    }
}
