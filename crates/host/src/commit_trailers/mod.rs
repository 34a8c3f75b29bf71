//! Commits that name the node whose command made them, in the repositories whose user consented.
//!
//! Nothing is written into a repository. Where there is a consent, commands get one more entry of git's settings by their
//! environment: a file of ours, which leads git to hooks of ours in these repositories alone. Those run the hooks that git would
//! run otherwise, with the same arguments and input, and give their ends on.

mod consent;
mod consented_repository;
mod environment;
mod hooks;
mod script_files;

pub use quipu::history::NODE_TRAILER;

pub use consent::{Repository, TrailerConsent, TrailerState};
pub use consented_repository::ConsentedRepository;
pub(crate) use environment::CommitTrailers;

/// Hexadecimal digits of a node that the trailer holds.
pub const TRAILER_DIGITS: usize = 40;
/// Repositories with a consent at most.
pub const MOST_REPOSITORIES: usize = 256;
