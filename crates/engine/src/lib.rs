//! Quipu: an agent engine whose every step is a node in a content-addressed graph.
//!
//! An [`Engine`] stands over a store; a [`Session`] is one conversation at work: commands go in
//! ([`Session::send`]), events come out ([`Session::subscribe`]). Each step is committed before the next one
//! begins, so what was acknowledged survives a crash, and a session can be opened again at any time.
//!
//! This crate knows no vendor, no database and no front. Models come in as a [`Provider`], tools as a [`Tool`],
//! permission as a [`Policy`].

mod agent_policy;
mod agents;
mod arrival;
mod background;
mod bookmarks;
mod bound_files;
mod calls;
mod change;
mod children;
mod clock;
mod command_environment;
mod commit;
mod context;
mod context_use;
mod early;
mod engine;
mod error;
mod files;
mod follower;
mod hooks;
mod identity;
mod image_tool;
mod jump;
mod mailbox;
mod merge;
mod models;
mod moves;
mod nodes;
mod opening;
mod outputs;
mod own_tools;
mod owner;
mod permission_settings;
mod permissions;
mod planning;
mod planning_settings;
mod policies;
mod policy;
mod profile;
mod prompt_parts;
mod published;
mod reassembly;
mod request_parts;
mod restore_files;
mod resume;
mod rules_file;
mod rules_imports;
mod rulings;
mod runner;
mod seal_key;
mod semantic;
mod session;
mod session_move;
mod sessions;
mod settings;
mod shared_values;
mod sources;
mod spans;
mod stand;
mod subscribe;
mod task_tool;
mod timeline;
mod toolbox;
mod toolbox_background;
mod toolbox_commands;
mod toolbox_held;
mod toolbox_parts;
mod travel;
mod undo;
mod worktree_policy;
mod worktrees;

pub use agents::{AGENT_PURPOSE, AgentDefinition, AgentLimits, AgentMode, AgentSettings, TASK_TOOL};
pub use arrival::TRAVEL_TOOL;
pub use background::{BACKGROUND_MESSAGE, BackgroundInfo, BackgroundWake};
pub use bookmarks::{BOOKMARK_LIMIT, Bookmark, BookmarkError};
pub use bound_files::{BoundFile, BoundGrant};
pub use calls::{AccountBudget, AccountUse, Accounts, account_use};
pub use calls::{seal_answer, seal_content};
pub use change::ChangeError;
pub use clock::{Clock, SystemClock, instant};
pub use command_environment::{CommandEnvironment, CommandEnvironmentError, CommandOrigin};
pub use context::{
    Rules, SYSTEM_PROMPT, find_rules, find_rules_below, read_own_rules, read_project_rules, read_rules_at,
    rules_content, rules_files_in, rules_text, system_base, system_end, system_prompt,
};
pub use context_use::{ContextKind, ContextPart, ContextUse, CountedTokens, PrunedUse, SectionUse};
pub use engine::{Engine, SessionOptions};
pub use error::OpenError;
pub use files::{FileSettings, FilesError};
pub use follower::{CommitEvent, Follower};
pub use hooks::{
    CallVerdict, CompactionRequest, CompactionVerdict, END_TIME, HOOK_HEADERS, HOOK_IMAGES, HOOK_REQUEST,
    HOOK_RESOURCES, HOOK_TEXT, Hook, HookAnswer, HookAskError, HookContext, HookEffect, HookError,
    HookFailure, HookPoint, HookRecord, InputVerdict, MessageVerdict, MoveRequest, MoveVerdict, Payload,
    PayloadChange, ProjectTrust, RequestVerdict, Resources, ResourcesVerdict, ResultVerdict, RunEnd,
    RunEndVerdict, RunStart, RunStartAddition, RunStartVerdict, SendVerdict, SessionOrigin, ShellLine,
    ShellVerdict, StartVerdict, StartupHooks, TrustVerdict,
};
pub use identity::{
    IDENTITY_LIMIT, IdentityError, IdentitySettings, identity_hash, identity_text, read_identity,
};
pub use merge::{Merge, MergeReport};
pub use models::{ModelLookupError, Models, PurposeModel};
pub use opening::{OpenedSession, holds_notes, takes_no_prompts};
pub use outputs::{KeptOutputs, Outputs};
pub use owner::{is_dead_owner, with_lease};
pub use permission_settings::{PermissionMode, PermissionRules, TravelRule, WorkspaceAccess};
pub use permissions::Permissions;
pub use planning::PLANS_PURPOSE;
pub use planning_settings::PlanningSettings;
pub use policies::{
    ConfinementRequest, ConfinementVerdict, Crossing, POLICY_TEXT, PolicyContext, PolicyEffect, PolicyError,
    PolicyQuestion, PolicyRecord, ToolPolicy, ToolRequest, ToolVerdict, TravelRequest, TravelVerdict,
};
pub use policy::{AllowAll, Decision, Grant, GrantError, Policy, Proposal};
pub use profile::profile_prompt;
pub use prompt_parts::{PromptPart, PromptPartKind, PromptParts};
pub use published::PublishSettings;
pub use quipu_machine::INBOX_ITEM;
pub use quipu_machine::{
    AGENT, CacheExpiry, CompactionSettings, Limits, LiveChanges, PolicyVersion, PruneSettings, QueueDrain,
    TODO_WIDGET, TurnLimit,
};
pub use quipu_protocol::{MergeSide, NAME_LIMIT, Refusal};
pub use reassembly::{ReassembledRequest, reassembled_request};
pub use request_parts::RequestParts;
pub use restore_files::{JumpWithFiles, RestoreFiles};
pub use resume::{context_messages, epoch_at, has_lost_prompt, last_credential, last_epoch};
pub use rules_file::are_rules_cut;
pub use rules_imports::mentioned_files;
pub use runner::{
    BadRequest, CallAnswer, CallRequest, ChildAnswer, ChildRequest, ModelName, RUNNER_AT_ONCE, RUNNER_BUDGET,
    RUNNER_DEADLINE, RUNNER_DEPTH, RUNNER_LONGEST, RUNNER_PURPOSE, RUNNER_REQUEST, RUNNER_TOKENS,
    RUNNER_TURNS, Runner, RunnerError, RunnerPurpose,
};
pub use seal_key::seal_key;
pub use semantic::{
    RANK_OFFSET, SemanticError, SemanticIndexReport, SemanticMatches, index_semantic, semantic_search,
};
pub use session::{LiveAgent, MOST_FALLBACKS, Session};
pub use sessions::ForkReport;
pub use settings::{cache_expiry_settings, compaction_settings, prune_settings};
pub use sources::{
    CompactionAsk, Context, ContextAsk, ContextSource, EpochReason, Opening, OpeningAsk, RulesSource,
    SECTION_ID, SOURCE_SECTIONS, SOURCE_TEXT, SOURCE_TOOL_BYTES, SOURCE_TOOLS, Section, SourceContext,
    SourceError, SourceSummary, SourceVersion, ToolFilter, ToolFilterAnswer, ToolFilterAsk, ToolSource,
    UnfilteredTool,
};
pub use spans::job_span;
pub use subscribe::{Delivery, Events, View};
pub use timeline::TimeStep;
pub use travel::{HistorySettings, SEARCH_TOOL, Travel, TravelSettings};
pub use undo::UndoError;
pub use worktrees::{
    LeftWorktree, MergeAction, MergeConflict, MergedFile, WorktreeDiff, WorktreeError, WorktreeInfo,
    WorktreeMerge, WorktreeState, Worktrees,
};

pub use image_tool::{IMAGE_PURPOSE, IMAGE_TOOL, ImageQuestions};
pub use quipu_history as history;
pub use quipu_protocol as protocol;
pub use quipu_providers::{
    Body, Call, CallEnd, CallEvent, Embedder, Embeddings, FindError, HeaderChanges, Memory,
    PROTECTED_HEADERS, Provider, ResponseHead, Script, ScriptStep, SharedPrefix,
};
pub use quipu_rules as rules;
pub use quipu_seal::Sealer;
pub use quipu_store as store;
pub use quipu_tools::{
    BackgroundCommands, BackgroundError, BackgroundTool, Confinement, FunctionTool, Invocation, Preparation,
    Tool, ToolContext, ToolOutput, Touches, builtin, builtin_confined, builtin_contained, builtin_isolated,
    builtin_with_background,
};
pub use quipu_transcript::{
    FileConflict, FilePlan, IdentifierRule, PLAN_TOOL, PlanOutcome, PlannedChange, RESOURCE_PROBLEM,
    Safeguard, SkippedFile, SubmittedPlan, SummaryPart, TODO_TOOL, ToolGlobs, is_plan_note, shell_answer,
    typed_text,
};
pub use quipu_workspace::{
    Access, AccessMode, Cache, CommandNeeds, ContainerEnd, ContainerEngine, ContainerError, ContainerLimits,
    ContainerMount, ContainerReport, Containers, Doors, EditorFiles, Helpers, Launcher, Namespaces, Network,
    PruneLimits, Reach, Sandbox, SandboxSupport, caches, run_launcher,
};
