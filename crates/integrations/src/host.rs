//! The agents that call hooks.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::configuration::Configuration;
use crate::hook_call::{HookCall, Occasion};
use crate::{claude_code, codex, copilot, gemini, openclaw, opencode};

/// An agent that calls hooks.
#[derive(Clone, Copy)]
pub struct Host {
    /// Its name on the command line of a hook.
    pub name: &'static str,
    /// What its sessions are called in the store.
    pub agent: &'static str,
    /// What happened, by the host's own name of the event; `Occasion::None` for one that is not answered.
    pub(crate) occasion: fn(&str, &Value) -> Occasion,
    /// The file of the session, as the payload names it.
    pub(crate) transcript: fn(&Value) -> Option<PathBuf>,
    /// The answer of an event in the host's form.
    pub(crate) answer: fn(&str, &str) -> String,
    pub(crate) configuration: fn(&Path) -> Configuration,
}

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

    /// What a payload says. Members that are missing or of another kind than expected are left out.
    pub fn call(&self, event: &str, payload: &Value) -> HookCall {
        let text = |names: &[&str]| {
            let mut found = names.iter().filter_map(|name| payload.get(name)?.as_str());
            found.find(|text| !text.is_empty()).map(str::to_owned)
        };
        HookCall {
            session: text(&["session_id", "sessionId"]),
            directory: text(&["cwd"]).map(PathBuf::from),
            transcript: (self.transcript)(payload),
            occasion: (self.occasion)(event, payload),
        }
    }

    /// The answer to an event, in the form that the host reads.
    pub fn answer(&self, event: &str, text: &str) -> String {
        (self.answer)(event, text)
    }
}
