//! An agent that calls hooks.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::configuration::Configuration;
use crate::hook_call::{HookCall, Occasion};

/// An agent that calls hooks.
#[derive(Clone, Copy)]
pub struct Host {
    /// Its name on the command line of a hook.
    pub name: &'static str,
    /// What its sessions are called in the store.
    pub agent: &'static str,
    /// What happened, by the host's own name of the event; `Occasion::None` for one that is not answered.
    pub(crate) occasion: fn(&str, &Value) -> Occasion,
    /// How the host keeps its sessions.
    pub storage: SessionStorage,
    /// The file of the session, as the payload names it.
    pub(crate) transcript: fn(&Value) -> Option<PathBuf>,
    /// The answer of an event in the host's form.
    pub(crate) answer: fn(&str, &str) -> String,
    pub(crate) configuration: fn(&Path) -> Configuration,
}

/// How a host keeps its sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionStorage {
    /// In a file each, which the payload names.
    Files,
    /// In one database.
    Database,
}

impl Host {
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
