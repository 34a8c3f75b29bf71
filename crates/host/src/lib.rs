//! What every front stands on: the user's files and settings, permissions as they are saved, and sessions that are opened
//! with all of that; and what is done with a store beside them: names, trees and lists of sessions, [`search`], [`import`]
//! and its watch, [`export`], [`jobs`].
//!
//! Nothing is printed here and nothing is read from a terminal. What goes wrong is a [`Failure`], what a person should know
//! a [`HostNotice`] to the [`Observer`] of the [`Home`]; both say what happened, and what to do as an [`Advice`] that the
//! front words. What has to be asked before a session can be opened is a [`FailureKind::Asks`]: the front asks, adds the
//! answer to the [`OpenRequest`] and opens again.

mod active_memory;
mod agent_request;
mod attachments;
mod background;
mod background_budget;
mod bounded_file;
mod budget;
mod call_loops;
mod catalogue;
mod command_hooks;
pub mod commands;
pub mod commit_trailers;
mod context;
pub mod dreams;
mod entry;
pub mod export;
mod failure;
mod file_stamp;
mod forgotten;
mod free_models;
mod front_thread;
mod globs;
mod helpers;
pub mod holders;
mod home;
mod identity;
pub mod import;
mod job_notice;
pub mod jobs;
mod json;
mod keys;
mod listing;
mod login;
pub mod mcp;
pub mod memory;
mod memory_flush;
mod memory_search;
mod memory_watch;
mod mentions;
mod missing_cwd;
mod model;
mod model_choices;
mod models;
mod names;
mod observer;
mod offered_models;
mod offered_tools;
mod open;
mod outputs;
pub mod packages;
pub mod past;
mod past_compaction;
mod past_opening;
mod past_tools;
mod permission_test;
mod permissions;
mod persona;
mod planning;
mod program;
mod prompt;
mod prompt_report;
mod purposes;
mod request;
pub mod resources;
mod rules;
mod sandbox;
mod saved;
mod schedule_tool;
mod scheduled_job;
mod sealers;
pub mod search;
mod semantic;
mod session_file;
pub mod settings;
pub mod setup;
mod sources;
mod state_file;
mod sub_agents;
mod suggestions;
pub mod takeover;
mod text;
mod tool_filter;
mod tree;
mod turn_intake;
pub mod units;
mod watch;
mod web;

pub use agent_request::agent_request;
pub use attachments::{mention, pasted_image, with_images};
pub use background_budget::{BackgroundBudget, background_budget, has_background_budget};
pub use budget::{Budget, agent_budget, agent_budgets, budget_of, spent_today};
pub use catalogue::{KeptCatalogue, refresh_catalogue, remove_catalogue};
pub use commands::{CommandCall, CommandError, CommandHandler, CommandRegistry};
pub use context::make_room;
pub use entry::{entry_words, room_behind};
pub use failure::{Advice, Failure, FailureKind, NameCandidate};
pub use free_models::{CallPrices, may_cost};
pub use helpers::{command_shell, helpers, keep_from};
pub use home::{Home, current_dir, env, local_zone, now, seal_credentials};
pub use identity::identity_for_new_sessions;
pub use json::{label_counts, node_json, session_json};
pub use keys::{KeyOutcome, keep_key};
pub use listing::{Glimpse, SessionItem, list_sessions, tail};
pub use login::{
    LoginMethod, LoginOffer, ProviderLogin, RestrictionConsent, agent_login, begin_login, login_offer,
    login_offers, use_agent_login,
};
pub use memory_search::{is_memory_on, local_vectors, memory_notes, memory_search, note_search};
pub use memory_watch::watch_memory;
pub use mentions::{Mentions, ResourceSuggestion, names_resource};
pub use missing_cwd::MissingDirectories;
pub use model::model_of;
pub use model_choices::{ModelChoice, keep_model_choice};
pub use names::{last_node, newest_here, newest_in, resolve, session_named};
pub use observer::{HostNotice, Observer, SilentObserver};
pub use offered_models::{
    CycleModel, LocalServer, LocalServers, ProviderItem, callable_models, cycled_models, key_providers,
    local_servers, sourced_models,
};
pub use offered_tools::{LISTED_TOOLS, PatchTool};
pub use open::{StartedSession, existing_session, find_session, open};
pub use past_compaction::COVER_SOURCE;
pub use past_opening::PAST_CHARGE;
pub use past_tools::{CREATE_TOOL, LookupMisses, PastDeclaration, PastTools, RANGE_TOOL};
pub use permission_test::{PermissionTest, TestedDecision, TestedPart, test_permission};
pub use permissions::{
    Entry, PermissionItem, Project, Record, RuleReach, SavedRule, added_directories, demo_permissions,
    mode_named, permissions_here,
};
pub use program::{program_path, running_program};
pub use prompt_report::{FileSize, PromptReport, SectionSize, SkillSize, ToolSize, prompt_report};
pub use purposes::{DREAM_PURPOSE, FLUSH_PURPOSE, PAST_PURPOSE, PROOF_PURPOSE};
pub use quipu_past::PastId;
pub use quipu_policy::{ChatGroup, RemovalRule, Sender, ToolName};
pub use request::{
    ConversationPlace, OpenRequest, PermissionRequest, Question, SessionAudience, SessionTarget, ToolAdapter,
};
pub use rules::accept_rules;
pub use sandbox::{ContainerFindings, SANDBOX, containers_here, isolation_here, launcher};
pub use saved::SavedPermissions;
pub use scheduled_job::{
    JobTarget, PROMPT_LIMIT, PromptWork, SCHEDULED, ScheduledJob, ScheduledJobError, ScheduledWork,
};
pub use sealers::{sealed, sealed_json, seals_with};
pub use search::{FoundItem, FoundItems};
pub use semantic::{SemanticReport, SemanticSearch};
pub use session_file::{Mirror, is_file};
pub use settings::{
    AgentBudget, BudgetSettings, ChannelTurns, ContainerSettings, DreamingSettings, FallbackSettings,
    NamedAgent, Problem, ProblemKind, QueueConfig, ResetCause, ResetConfig, ResetRuleConfig, SandboxMode,
    SandboxScope, SandboxSettings, SandboxWorkspace, SettingRow, Settings, Source, StreamingConfig,
    StreamingMode, TurnLimits,
};
pub use sources::Sources;
pub use suggestions::{
    Steps, Suggestion, suggested_agents, suggested_bookmarks, suggested_chunks, suggested_labels,
    suggested_model, suggested_nodes, suggested_providers, suggested_sessions, suggested_steps,
};
pub use text::{ago, dollars, files_of_patch, iso, one_line, one_line_with, title_of};
pub use tool_filter::{ChangedSchema, FilteredTools, SettingsToolFilter};
pub use tree::{
    PastChunkRow, PastRow, Reach, TreeKind, TreeRow, nodes_of, session_rows, tree_rows, unfolded_rows,
    user_messages,
};
pub use turn_intake::{start_turn_intake, take_turn_in};
pub use web::{WebSettings, needs_search_key};
