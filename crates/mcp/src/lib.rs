//! The Model Context Protocol: servers of other programs as a source of tools.
//!
//! [`McpSource`] gives a session the tools of [`Server`]s; [`McpPolicy`] asks before a definition is used that nobody has
//! accepted. All that a server says is hostile until it is checked: `wire` bounds its messages, `definition` what it
//! declares, `result` what it answers.
//!
//! This crate must not know files of users, words of a command line, models, or how a session is made.

mod call;
mod client;
pub mod config;
mod deciders;
mod definition;
mod elicit;
mod environment;
mod error;
mod events;
mod http;
mod limits;
mod oauth;
mod policy;
mod prompts;
mod resources;
mod result;
mod search;
mod server;
mod source;
mod stdio;
mod store;
mod visible;
mod wire;

pub use client::{Client, ClientInfo, ServerInfo};
pub use config::{ServerConfig, TransportConfig};
pub use definition::{Definition, DefinitionIssue, tool_name};
pub use elicit::{Elicitation, ElicitationAnswer, Elicitor};
pub use environment::{MissingVariables, expanded};
pub use error::{ConfigError, ConnectError, RequestError};
pub use http::check_url;
pub use limits::*;
pub use oauth::{OauthClient, OauthError, OauthLogin, OauthTokens, TokenStore};
pub use policy::McpPolicy;
pub use prompts::{PromptArgument, ServerPrompt};
pub use resources::{ResourceContent, ServerResource};
pub use server::{Listing, Server, ServerEnvironment, ServerStatus};
pub use source::{McpSource, McpTools, ServerReport};
pub use store::{Acceptance, DefinitionStore, DefinitionStoreError};
pub use visible::{is_invisible, stripped, visible};
