//! Which agent is meant where none is named: only a state directory says it, so it is kept for the next one that is written.

use quipu_archive::openclaw::state::{MAIN, is_agent_id};
use serde::{Deserialize, Serialize};

use crate::state_file::{State, StateFile};
use crate::{Failure, Home};

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TakeoverFile {
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default_agent: Option<String>,
}

impl Default for TakeoverFile {
    fn default() -> Self {
        Self { version: Self::VERSION, default_agent: None }
    }
}

impl State for TakeoverFile {
    const VERSION: u32 = 1;
    const RESET: &str = "forget which agent is the default one of an exported state directory";

    fn version(&self) -> u32 {
        self.version
    }
}

fn file(home: &Home) -> StateFile {
    StateFile::new(home.dir.join("takeover.json"))
}

/// The agent that is kept.
pub(super) fn kept(home: &Home) -> Result<Option<String>, Failure> {
    let saved: TakeoverFile = file(home).read()?;
    Ok(saved.default_agent.filter(|id| is_agent_id(id)))
}

/// Keeps an agent. `main` is the default one without it.
pub(super) fn keep(home: &Home, id: &str) -> Result<(), Failure> {
    if !is_agent_id(id) || kept(home)?.as_deref().unwrap_or(MAIN) == id {
        return Ok(());
    }
    file(home).change(|saved: &mut TakeoverFile| {
        saved.default_agent = Some(id.to_owned());
        true
    })
}
