//! The MCP servers that sessions of this directory use. None is started.

use quipu_host::Home;
use quipu_host::mcp::{McpFileUse, mcp_files};

use super::{Finding, State};
use crate::console::current_dir;
use crate::print::counted;

/// Nothing where nobody configured a server.
pub(super) fn findings(home: &Home) -> Vec<Finding> {
    let Ok(here) = current_dir() else { return Vec::new() };
    let files = mcp_files(home, &here);
    let mut found = Vec::new();
    let servers = files.servers();
    if !servers.is_empty() {
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        let detail = format!("{}: {}", counted(names.len() as u64, "server"), names.join(", "));
        found.push(Finding { what: "mcp", state: State::Good, detail });
    }
    for file in &files.files {
        let problems = file.problems.iter();
        found.extend(problems.map(|why| Finding { what: "mcp", state: State::Note, detail: why.clone() }));
        if file.counts == McpFileUse::Untrusted && file.problems.is_empty() {
            let detail = format!(
                "{} is ignored; `quipu config trust` accepts it in its current form",
                file.path.display()
            );
            found.push(Finding { what: "mcp", state: State::Note, detail });
        }
    }
    found
}
