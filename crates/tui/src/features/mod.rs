//! What the terminal can do beside the conversation. Each module is one feature: its commands, what it asks the host for,
//! what it shows of the answer, and what becomes of what is chosen there. The table of commands lists it; nothing else
//! names it.

pub(crate) mod agents;
pub(crate) mod background;
pub(crate) mod credentials;
#[cfg(test)]
pub(crate) mod example;
pub(crate) mod first;
pub(crate) mod fork;
pub(crate) mod help;
pub(crate) mod history;
mod logins;
pub(crate) mod messages;
pub(crate) mod models;
pub(crate) mod moves;
pub(crate) mod past;
pub(crate) mod planning;
pub(crate) mod reports;
pub(crate) mod search;
pub(crate) mod sessions;
pub(crate) mod settings;
pub(crate) mod tree;
pub(crate) mod ways;
