//! Resources of servers that a person's message mentions by `@server:address`.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use quipu::RESOURCE_PROBLEM;
use quipu_mcp::{McpTools, RESOURCE_URI_BYTES, Server, visible};
use quipu_protocol::{AddedBlock, Provenance, UserInput};

use crate::one_line;

/// Resources that one message gets at most.
const RESOURCES: usize = 8;
/// Characters of a message in which mentions are looked for.
const TEXT: usize = 64 << 10;
/// How long a list of resources is waited for, as it is typed.
const LISTED: Duration = Duration::from_secs(2);
/// Suggestions at a time.
const SUGGESTIONS: usize = 100;

/// What messages of the open session may mention. Clones are the same.
#[derive(Clone, Default)]
pub struct Mentions(Arc<Mutex<Weak<McpTools>>>);

impl fmt::Debug for Mentions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mentions")
    }
}

/// Something that can be mentioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSuggestion {
    /// What is written behind `@`.
    pub text: String,
    /// What it is, in one line.
    pub description: String,
}

/// A mention in a message.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mention {
    server: String,
    uri: String,
}

impl Mentions {
    /// The servers of the session that is open from now on.
    pub(crate) fn set(&self, tools: Weak<McpTools>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = tools;
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        let tools = self.0.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        tools.map(|tools| tools.servers()).unwrap_or_default()
    }

    /// The message with the resources that `typed` mentions, each read once and set apart as data of its server; and what
    /// could not be read, in a line each, which the message says too. `typed` is what the person wrote: what a file or a
    /// server put into a message mentions nothing.
    pub async fn read(&self, mut input: UserInput, typed: &str) -> (UserInput, Vec<String>) {
        let found = if input.provenance.is_default() { mentions(typed) } else { Vec::new() };
        let servers = if found.is_empty() { Vec::new() } else { self.servers() };
        let server_of = |mention: &Mention| servers.iter().find(|one| one.name() == mention.server);
        // `@name:word` may be anything; an address of an unknown server is a mistake.
        let meant = |mention: &Mention| server_of(mention).is_some() || mention.uri.contains("://");
        let mut found: Vec<Mention> = found.into_iter().filter(meant).collect();
        let left_out = found.len().saturating_sub(RESOURCES);
        found.truncate(RESOURCES);
        let read = join_all(found.iter().map(|mention| async {
            match server_of(mention) {
                Some(server) => server.resource(&mention.uri).await.map_err(|error| error.to_string()),
                None => Err(format!("this session has no MCP server {}", mention.server)),
            }
        }));
        let mut problems = Vec::new();
        for (mention, read) in found.iter().zip(read.await) {
            let name = one_line(&visible(&format!("@{}:{}", mention.server, mention.uri)), 300);
            let source = Provenance::tool().named(format!("MCP server {}", mention.server));
            match read {
                Ok(read) => {
                    for block in read.blocks {
                        input.added.push(AddedBlock::behind(&input.content, source.clone()));
                        input.content.push(block);
                    }
                    if !read.left_out.is_empty() {
                        problems.push(format!("{name} is not whole. Left out: {}", read.left_out.join("; ")));
                    }
                }
                Err(why) => {
                    let why = one_line(&visible(&why), 500);
                    input.add(format!("{RESOURCE_PROBLEM}{name}: {why}]"), Provenance::quipu());
                    problems.push(format!("{name} could not be read: {why}"));
                }
            }
        }
        if left_out > 0 {
            let why = format!("{left_out} more resources are left out: a message may have {RESOURCES}");
            input.add(format!("{RESOURCE_PROBLEM}{why}]"), Provenance::quipu());
            problems.push(why);
        }
        (input, problems)
    }

    /// Whether what is written behind `@` can only be a resource.
    pub fn is_resource(&self, written: &str) -> bool {
        let server = written.split_once(':').map(|(server, _)| server);
        server.is_some_and(|server| self.servers().iter().any(|one| one.name() == server))
    }

    /// The servers whose names begin with what is written behind `@`.
    pub fn begun(&self, written: &str) -> Vec<ResourceSuggestion> {
        let servers = self.servers().into_iter().filter(|one| one.name().starts_with(written));
        let servers = servers.filter(|one| one.has_resources());
        let suggestion = |server: Arc<Server>| ResourceSuggestion {
            text: format!("{}:", server.name()),
            description: "resources of the MCP server".to_owned(),
        };
        servers.map(suggestion).collect()
    }

    /// The resources of the server that is written behind `@`, of those that have what stands behind its name.
    pub async fn suggested(&self, written: &str) -> Vec<ResourceSuggestion> {
        let Some((name, rest)) = written.split_once(':') else { return Vec::new() };
        let Some(server) = self.servers().into_iter().find(|one| one.name() == name) else {
            return Vec::new();
        };
        let listed = tokio::time::timeout(LISTED, server.resources(LISTED)).await;
        let rest = rest.to_lowercase();
        let listed = listed.ok().and_then(Result::ok).unwrap_or_default().into_iter().filter(|one| {
            one.uri.to_lowercase().contains(&rest) || one.description.to_lowercase().contains(&rest)
        });
        let suggestion = |one: quipu_mcp::ServerResource| ResourceSuggestion {
            text: format!("{name}:{}", one.uri),
            description: one.description,
        };
        listed.take(SUGGESTIONS).map(suggestion).collect()
    }
}

/// Whether a message begins with what could name a resource of a server.
#[must_use]
pub fn names_resource(message: &str) -> bool {
    let word = match message.starts_with("@\"") {
        true => Some(message),
        false => message.split_whitespace().next(),
    };
    word.is_some_and(|word| message.starts_with('@') && !mentions(word).is_empty())
}

/// What stands behind `@` at the beginning of a word and has a colon, each once.
fn mentions(text: &str) -> Vec<Mention> {
    if text.len() > TEXT {
        return Vec::new();
    }
    let begins = |at: usize| {
        text[..at].chars().next_back().is_none_or(|before| before.is_whitespace() || before == '(')
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices('@').filter(|(at, _)| begins(*at)) {
        let rest = &text[at + 1..];
        let word = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split(['"', '\n']).next().unwrap_or_default(),
            None => {
                let word = rest.split(char::is_whitespace).next().unwrap_or_default();
                word.trim_end_matches(['.', ',', ';', ':', '!', '?', ')'])
            }
        };
        let Some((server, uri)) = word.split_once(':') else { continue };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_short = (1..=64).contains(&server.len()) && (1..=RESOURCE_URI_BYTES).contains(&uri.len());
        let mention = Mention { server: server.to_owned(), uri: uri.to_owned() };
        if is_short && server.chars().all(is_name) && !found.contains(&mention) {
            found.push(mention);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_mentioned_by_server_and_address() {
        for (text, found) in [
            ("see @srv:a://b, and (@srv:c) @srv:c", &["srv a://b", "srv c"][..]),
            ("@\"my.srv:file:///a b.txt\" now", &["my.srv file:///a b.txt"]),
            ("me@srv:a @a/b:c @:x @srv: @a", &[]),
        ] {
            let of = mentions(text).into_iter().map(|one| format!("{} {}", one.server, one.uri));
            assert_eq!(of.collect::<Vec<_>>(), found, "{text}");
        }
    }
}
