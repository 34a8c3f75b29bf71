//! MCP servers: the files that configure them, what a person accepted of them, and how a session gets their tools.

mod commands;
mod files;
mod install;
mod store;
mod summary;
mod tokens;

pub(crate) use files::LIMIT as FILE_BYTES;
pub use files::{
    McpFile, McpFileUse, McpFiles, McpServer, add_server, mcp_files, package_file, project_mcp_file,
    remove_server, trust_mcp_file, user_mcp_file,
};
pub(crate) use install::{InstallOptions, install};
pub use install::{accept_definitions, acceptance_of, begin_server_login, keep_server_login, start_server};
pub use summary::server_summary;
