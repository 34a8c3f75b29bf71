//! Guarded files and processes: what a tool may do to the machine, done with bounded memory and clear errors.
//!
//! Files are opened, then checked by their handle: devices, fifos, sockets and directories are refused and never
//! hang. Reading is streamed, writing is atomic. Commands run in a session of their own, and whatever they
//! started dies with them on abort and with the agent at its end, even when the agent is killed with SIGKILL.
//!
//! **Servers started in the background** (`server &`) outlive the command that started them. They are killed,
//! with everything below them, when their [`ProcessRegistry`] is dropped or told to
//! [`kill_all`](ProcessRegistry::kill_all), and when the agent's process ends in whichever way. What should
//! outlive the agent belongs to a service manager, not to a tool call.
//!
//! This crate must not know tools, models or sessions.

mod access;
mod caches;
mod capture;
mod child;
#[cfg_attr(not(target_os = "linux"), path = "confine_none.rs")]
mod confine;
mod container;
mod editor;
mod error;
mod git;
mod git_lines;
mod guardian;
mod helpers;
mod layers;
#[cfg_attr(not(target_os = "linux"), path = "namespaces_none.rs")]
mod namespaces;
mod open;
mod output;
mod path;
mod protected;
mod proxy;
mod read;
mod registry;
mod restore;
mod sandbox;
mod scan;
mod service;
mod shell;
mod shell_input;
mod temporary;
mod text;
mod tree;
mod write;

pub use access::{Access, AccessMode, AccessRules, Approval, Reach, has_other_names};
pub use caches::{Cache, caches, leads_through};
pub use capture::PathContent;
pub use container::{
    ContainerEnd, ContainerEngine, ContainerError, ContainerLimits, ContainerMount, ContainerReport,
    Containers, EngineVersion, PruneLimits, check_containers,
};
pub use editor::EditorFiles;
pub use error::{FileError, FileKind};
pub use git::{Git, GitError};
pub use git_lines::{CommittedLines, LineCommit, committed_lines};
pub use helpers::{HelperError, Helpers};
pub use layers::{cache_layers, drop_cache_layers};
pub use namespaces::{CommandNeeds, Doors, Launcher, Namespaces, run_launcher};
pub use open::{FileStamp, open_for_reading, read_whole};
pub use output::{OutputBuffer, OutputFilter, OutputLimits, OutputPlace, SpillState};
pub use path::{FileKeys, file_key, resolve, resolve_existing};
pub use protected::{configures, names_secret};
pub use proxy::HostRules;
pub use read::{LineRange, ReadLimits, TextWindow, read_lines};
pub use registry::ProcessRegistry;
pub use restore::{
    StagedFile, can_change, make_directory, place, remove, remove_directory, stage, staging_path,
};
pub use sandbox::{IsolationError, Network, Sandbox, SandboxSupport, git_directories};
pub use scan::{
    CACHES, Changes, Files, FoundPath, GitIndex, GitRefs, MOST_ENTRIES, ScanError, Stamp, changed, git_blobs,
    is_cache, scan, walk,
};
pub use service::{Service, ServiceCommand, ServicePipes};
pub use shell::{ReadyShell, ShellCommand, ShellEnd, ShellError, run_shell};
pub use shell_input::ShellInput;
pub use temporary::TemporaryDirectory;
pub use text::Utf8Decoder;
pub use write::{WriteKind, write_file};
