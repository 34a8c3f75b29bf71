//! Quipu: an agent engine whose every step is a node in a content-addressed graph.
//!
//! An [`Engine`] stands over a store; a [`Session`] is one conversation at work: commands go in
//! ([`Session::send`]), events come out ([`Session::subscribe`]). Each step is committed before the next one
//! begins, so what was acknowledged survives a crash, and a session can be opened again at any time.
//!
//! This crate knows no vendor, no database and no front. Models come in as a [`Provider`], tools as a [`Tool`],
//! permission as a [`Policy`].

mod blame;
mod bodies;
mod bookmarks;
mod call;
mod clock;
mod commit;
mod context;
mod context_use;
mod early;
mod engine;
mod files;
mod follower;
mod html;
mod identity;
mod jump;
mod listed;
mod log;
mod markdown;
mod meaning;
mod merge;
mod models;
mod money;
mod moves;
mod origin;
mod outputs;
mod owner;
mod permissions;
mod places;
mod policy;
mod published;
mod reading;
mod record;
mod recording;
mod replay;
mod resume;
mod script;
mod seal_key;
mod session;
mod sessions;
mod settings;
mod subscribe;
mod summarize;
mod timeline;
mod toolbox;
mod travel;
mod tree;
mod undo;

pub use blame::{BLAMED_CHANGES, Blame, BlameTurn, LineOf, NotKnown, ReadFile, blame};
pub use bookmarks::{BOOKMARK_LIMIT, Bookmark, BookmarkError};
pub use clock::{Clock, SystemClock, instant};
pub use context::{Rules, SYSTEM_PROMPT, find_rules, system_prompt};
pub use context_use::{ContextKind, ContextPart, ContextUse, Counted, PrunedUse};
pub use engine::{Engine, OpenError, Opened, SessionOptions};
pub use files::{FileSettings, FilesError, JumpedWithFiles, RestoreFiles};
pub use follower::{Committed, Follower};
pub use html::{HtmlEntry, html_entry, html_text};
pub use identity::{
    IDENTITY_LIMIT, IdentityError, IdentitySettings, identity_hash, identity_text, read_identity,
};
pub use log::{Ended, LogEntry, log};
pub use markdown::{MarkdownEntry, markdown_entry, markdown_inline};
pub use meaning::{
    FoundByMeaning, MeaningError, MeaningIndexed, RANK_OFFSET, index_meaning, search_by_meaning,
};
pub use merge::{Merge, Merged};
pub use models::Models;
pub use origin::{content_of, made_by_command};
pub use outputs::{KeptOutputs, Outputs};
pub use permissions::{PermissionMode, PermissionRules, Permissions, TravelRule};
pub use places::Places;
pub use policy::{AllowAll, Decision, Grant, Policy, Proposal};
pub use published::PublishSettings;
pub use quipu_machine::{AGENT, CompactionSettings, Limits, PolicyVersion, PruneSettings};
pub use quipu_protocol::{MergeSide, NAME_LIMIT, Refused};
pub use record::Recorder;
pub use recording::RecordingError;
pub use replay::Replay;
pub use resume::{epoch_at, has_lost_prompt, last_epoch};
pub use script::{Script, ScriptStep};
pub use seal_key::seal_key;
pub use session::Session;
pub use sessions::{ChangeError, Forked};
pub use settings::{compaction_settings, prune_settings};
pub use subscribe::{Delivery, Events, View};
pub use timeline::TimeStep;
pub use travel::{
    BranchDiff, BranchSide, Carried, Filter, HistorySettings, Illegal, LegalTarget, Life, LifeLine,
    LifeQuery, Neighbours, RecallError, RecallQuery, Recalled, Trace, TraceFilter, TraceQuery, TraceScope,
    Travel, TravelSettings, branch_diff, carried, legal_target, life, recall, row_text, trace,
};
pub use tree::{SessionTree, TreeItem, TreeLine, TreeQuery, is_note, session_tree};
pub use undo::UndoError;

pub use quipu_protocol as protocol;
pub use quipu_providers::{Body, Call, CallEnd, CallEvent, Embedded, Embedder, Memory, Provider, Shared};
pub use quipu_seal::Sealer;
pub use quipu_store as store;
pub use quipu_tools::{
    Invocation, Preparation, Tool, ToolContext, ToolOutput, Touches, builtin, builtin_confined,
    builtin_isolated,
};
pub use quipu_transcript::{FileConflict, FilePlan, LeftAlone, PlannedChange};
pub use quipu_workspace::{
    Access, Cache, CommandNeeds, Doors, Helpers, Launcher, Namespaces, Network, Sandbox, SandboxSupport,
    caches, run_launcher,
};
