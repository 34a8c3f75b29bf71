//! The agents that call hooks.

use std::path::Path;

use crate::configuration::Configuration;
use crate::host::Host;
use crate::{claude_code, codex, copilot, gemini, openclaw, opencode};

/// All agents that call hooks.
pub static HOSTS: [Host; 6] =
    [claude_code::HOST, codex::HOST, gemini::HOST, copilot::HOST, opencode::HOST, openclaw::HOST];

/// What is to be written so that an agent calls its hooks, with `program` as the command to call; `None` for an agent that has
/// none. The names are those of [`HOSTS`].
pub fn configuration(agent: &str, program: &Path) -> Option<Configuration> {
    Some((Host::named(agent)?.configuration)(program))
}

impl Host {
    /// The agent of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        HOSTS.iter().find(|host| host.name == name)
    }
}
