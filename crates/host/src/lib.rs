//! What every front stands on: the user's files and settings, permissions as they are saved, and sessions that are opened
//! with all of that.
//!
//! Nothing is printed here and nothing is read from a terminal. What goes wrong is a [`Failure`], what a person should know
//! a [`HostNotice`] to the [`Observer`] of the [`Place`]; both say what happened, and what to do as an [`Advice`] that the
//! front words. What has to be asked before a session can be opened is a [`FailureKind::Asks`]: the front asks, adds the
//! answer to the [`OpenRequest`] and opens again.

mod budget;
mod command_hooks;
mod context;
mod failure;
mod gone;
mod helpers;
mod identity;
mod keys;
mod meaning;
mod model;
mod models;
mod names;
mod observer;
mod open;
mod outputs;
mod permissions;
mod place;
mod prompt;
mod request;
mod rules;
mod sandbox;
mod saved;
mod session_file;
mod watch;

pub use budget::{Budget, budget_of, spent_today};
pub use context::{context_settings, file_settings, make_room};
pub use failure::{Advice, Failure, FailureKind, Meant};
pub use gone::Seen;
pub use helpers::{command_shell, helpers, keep_from};
pub use keys::{KeyKept, keep_key};
pub use meaning::{Compared, Meaning};
pub use model::model_of;
pub use names::{last_node, newest_here, newest_in, resolve, session_named};
pub use observer::{HostNotice, Observer, Silent};
pub use open::{Started, existing_session, find_session, open};
pub use permissions::{
    Entry, Project, Record, What, added_directories, demo_permissions, mode_named, permissions_here,
};
pub use place::{LocalStore, Place, current_dir, env, now, seal_credentials};
pub use request::{OpenRequest, PermissionRequest, Question, Which};
pub use rules::accept_rules;
pub use sandbox::{SANDBOX, isolation_here, launcher};
pub use saved::SavedPermissions;
pub use session_file::{Mirror, is_file};
pub use watch::Watch;
