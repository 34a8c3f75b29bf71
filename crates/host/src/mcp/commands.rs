//! Servers as commands: `/mcp` lists them, accepts definitions and connects again; prompts of servers are commands of their own.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use futures_util::future::{BoxFuture, join_all};
use quipu_mcp::{
    Acceptance, FIRST_WAIT, McpSource, McpTools, ServerPrompt, ServerReport, ServerStatus, visible,
};
use quipu_protocol::{CommandSpec, CommandValue, Provenance, UserInput};

use super::files::{McpFileUse, mcp_files};
use crate::commands::{CommandCall, CommandHandler, CommandRegistry};
use crate::resources::command_words;
use crate::{Failure, Home, one_line};

const SOURCE: &str = "MCP servers";
const PROMPTS: &str = "prompt of the MCP server";
/// Characters of a description.
const WIDTH: usize = 100;

/// Offers the commands in place of those of another session. Without a source there are no servers.
pub(super) fn offer(home: &Home, cwd: &std::path::Path, source: Option<&McpSource>) {
    let registry = home.commands();
    registry.remove(SOURCE);
    let of_prompts = registry.list().into_iter().map(|spec| spec.source);
    let mut old: Vec<String> = of_prompts.filter(|source| source.starts_with(PROMPTS)).collect();
    old.dedup();
    old.iter().for_each(|source| registry.remove(source));
    registry.expect_only(Vec::new());
    let tools = source.map(McpSource::servers).unwrap_or_default();
    home.mentions().set(tools.clone());
    let spec = CommandSpec::new(
        "mcp",
        "list MCP servers and their tools; accept definitions, connect again",
        SOURCE,
    )
    .with_arguments("[accept SERVER, reconnect SERVER]");
    let handler =
        Arc::new(ServersCommand { home: home.without_commands(), cwd: cwd.to_owned(), tools: tools.clone() });
    // Where the name is taken, the registry says so.
    registry.register(spec, handler).ok();
    let Some(shared) = tools.upgrade() else { return };
    let names = shared.reports().iter().map(|report| prefix(report.server.name())).collect();
    registry.expect_only(names);
    let (registry, mut listings) = (registry.clone(), shared.listings());
    drop(shared);
    tokio::spawn(async move {
        loop {
            let Some(shared) = tools.upgrade() else { return };
            for report in shared.reports() {
                offer_prompts(&registry, &tools, &report);
            }
            drop(shared);
            if listings.changed().await.is_err() {
                return;
            }
        }
    });
}

fn offer_prompts(registry: &CommandRegistry, tools: &Weak<McpTools>, report: &ServerReport) {
    let server = report.server.name();
    let source: String = format!("{PROMPTS} {}", one_line(server, 60));
    let is_settled = matches!(report.server.status(), ServerStatus::Waiting(_) | ServerStatus::Failed(_));
    let listing = report.server.listing();
    if let Some(listing) = &listing {
        registry.remove(&source);
        for prompt in &listing.prompts {
            let name: String =
                format!("{}{}", prefix(server), typed(&prompt.name)).chars().take(64).collect();
            let help = if prompt.description.is_empty() { &prompt.name } else { &prompt.description };
            let spec = CommandSpec::new(name, one_line(&visible(help), 190), source.clone())
                .with_arguments(one_line(&prompt.hint(), 190));
            let (tools, server, prompt) = (tools.clone(), server.to_owned(), prompt.clone());
            // Two names that are typed alike: the registry says which one is not used.
            registry.register(spec, Arc::new(PromptCommand { tools, server, prompt })).ok();
        }
    }
    if listing.is_some() || is_settled {
        registry.expect_no_more(&prefix(server));
    }
}

/// What the names of the prompts of a server begin with.
fn prefix(server: &str) -> String {
    format!("mcp__{}__", typed(server))
}

/// A name as a command may have it.
fn typed(name: &str) -> String {
    let letter = |letter: char| match letter.to_ascii_lowercase() {
        letter @ ('a'..='z' | '0'..='9' | '_' | '-') => letter,
        _ => '_',
    };
    name.chars().map(letter).take(40).collect()
}

struct PromptCommand {
    tools: Weak<McpTools>,
    server: String,
    prompt: ServerPrompt,
}

impl CommandHandler for PromptCommand {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(async {
            let server = self.tools.upgrade().and_then(|tools| {
                let reports = tools.reports().into_iter();
                reports.map(|report| report.server).find(|server| server.name() == self.server)
            });
            let server = server.ok_or_else(|| Failure::request("its session is closed"))?;
            let words = command_words(&call.arguments);
            let arguments = self.prompt.arguments_of(&words).map_err(|missing| {
                Failure::request(format!("it needs {}: {}", missing.join(", "), self.prompt.hint()))
            })?;
            let text = server.prompt(&self.prompt.name, arguments).await;
            let text = text.map_err(|error| Failure::failed(error.to_string()))?;
            // Not in the words of the person: what it mentions is not read.
            let source = Provenance::tool().named(format!("MCP server {}", self.server));
            Ok(CommandValue::Prompt { input: UserInput::from(text.as_str()).from_source(source) })
        })
    }
}

struct ServersCommand {
    home: Home,
    cwd: PathBuf,
    tools: Weak<McpTools>,
}

impl CommandHandler for ServersCommand {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(async {
            let reports = self.tools.upgrade().map(|tools| tools.reports()).unwrap_or_default();
            join_all(reports.iter().map(|report| report.server.settled(FIRST_WAIT))).await;
            self.text(&call.arguments).map(|text| CommandValue::Text { text })
        })
    }
}

impl ServersCommand {
    fn text(&self, arguments: &str) -> Result<String, Failure> {
        let reports = self.tools.upgrade().map(|tools| tools.reports()).unwrap_or_default();
        let (action, name) = match arguments.trim().split_once(char::is_whitespace) {
            Some((action, name)) => (action, name.trim()),
            None => (arguments.trim(), ""),
        };
        let named = || {
            let found = reports.iter().find(|report| report.server.name() == name);
            found.ok_or_else(|| {
                Failure::request(format!("there is no server `{}` in this session", one_line(name, 60)))
            })
        };
        match action {
            "" => Ok(self.list(&reports)),
            "accept" => {
                let report = named()?;
                let accepted =
                    self.tools.upgrade().map(|tools| tools.accept(report.server.name())).transpose();
                let accepted = accepted.map_err(|error| Failure::failed(error.to_string()))?;
                let count = accepted.flatten().unwrap_or_default();
                Ok(format!("{count} tools of {name} are accepted in their current form."))
            }
            "reconnect" => {
                named()?.server.reconnect();
                Ok(format!("{name} is started again; /mcp shows its state."))
            }
            other => Err(Failure::request(format!(
                "`{}` is not known; write /mcp, /mcp accept SERVER or /mcp reconnect SERVER",
                one_line(other, 60)
            ))),
        }
    }

    fn list(&self, reports: &[ServerReport]) -> String {
        let mut lines = Vec::new();
        for report in reports {
            let name = report.server.name();
            let state = match report.server.status() {
                ServerStatus::Ready(info) => {
                    let prompts = report.server.listing().map_or(0, |listing| listing.prompts.len());
                    let counts = format!("{} tools, {prompts} prompts", report.tools.len());
                    format!("ready  {counts}  {} {}", info.name, info.version)
                }
                ServerStatus::Starting => "starting".to_owned(),
                ServerStatus::Waiting(why) => format!("is started again soon: {why}"),
                ServerStatus::Failed(why) => format!("does not run: {why}"),
            };
            lines.push(format!("{name}  {}", one_line(&visible(&state), 200)));
            for (tool, definition, acceptance) in &report.tools {
                let word = match acceptance {
                    Acceptance::Accepted => "accepted",
                    Acceptance::Changed => "changed",
                    Acceptance::New => "new",
                };
                let description = one_line(&visible(&definition.description), WIDTH);
                lines.push(format!("  {tool:<32} {word:<9} {description}").trim_end().to_owned());
            }
        }
        for file in mcp_files(&self.home, &self.cwd).files {
            for (name, _) in file.servers.iter().filter(|(_, server)| !server.enabled) {
                let disabled = format!("{}  disabled in {}", one_line(name, 60), server_file(&file.path));
                lines.push(disabled);
            }
            if file.counts == McpFileUse::Untrusted && file.problems.is_empty() {
                let path = server_file(&file.path);
                lines.push(format!("{path} is ignored: nobody has accepted it in its current form"));
            }
            lines.extend(file.problems);
        }
        if lines.is_empty() {
            return "This session has no MCP servers.".to_owned();
        }
        let is_open = |report: &&ServerReport| {
            report.tools.iter().any(|(_, _, acceptance)| *acceptance != Acceptance::Accepted)
        };
        if let Some(report) = reports.iter().find(is_open) {
            lines.push(format!("/mcp accept {} accepts its tools as they are shown.", report.server.name()));
        }
        lines.join("\n")
    }
}

fn server_file(path: &std::path::Path) -> String {
    one_line(&path.display().to_string(), 200)
}
