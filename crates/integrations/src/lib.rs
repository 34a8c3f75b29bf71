//! Hooks of other agents: what they are given of the history when they call, and what is written into their configuration.
//!
//! Each agent has a folder for the payloads of its hooks. Knows the store and how the graph is looked at; knows no session at
//! work, no model and no words of a command line but those that agents call. Nothing here writes to the graph. What is given is
//! framed as an archive and fits a budget.

mod answer;
mod before_edit;
mod beside_prompt;
mod claude_code;
mod codex;
mod configuration;
mod copilot;
mod failure;
mod framed_lines;
mod gemini;
mod hook_call;
mod hook_home;
mod host;
mod hosts;
mod intake_turn;
mod log;
mod openclaw;
mod opencode;
mod seen;
mod start;
mod view;
mod words;

pub use answer::{AnswerError, HookReader};
pub use configuration::{
    Configuration, ConfigurationContent, ConfigurationFile, ConfigurationPlace, JsonAddition, JsonValue,
};
pub use hook_call::{CommandFailure, EditTarget, FailureSign, HookCall, Occasion};
pub use host::{Host, SessionStorage};
pub use hosts::{HOSTS, configuration};
pub use intake_turn::IntakeTurn;
pub use log::{LogLine, append_log, read_log};
pub use seen::SeenPassages;
pub use view::{HookAnswer, HookRequest};
