//! Whose conversation it is, and which.

use std::sync::LazyLock;

use http::HeaderMap;
use http::header::USER_AGENT;
use quipu_archive::{Agent, live_session_id};
use quipu_dag::sha256;
use quipu_protocol::SessionId;
use quipu_store::CHILD_SESSION;
use serde::Deserialize;

use crate::item::{Author, Item};
use crate::wires::RequestFacts;

/// What a client is called that does not say who it is.
const NAMELESS: &str = "proxy";
/// Bytes of a name at most.
const NAME: usize = 40;

/// The program that asks, by the first word of its user agent. Names of importers are theirs, and ours is ours.
pub(crate) fn agent(headers: &HeaderMap, seal: &dyn Fn(&str) -> String) -> String {
    let told = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let word = told.split(['/', ' ', '(']).next().unwrap_or_default();
    let name: String = word
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' })
        .take(NAME)
        .collect::<String>()
        .to_ascii_lowercase();
    let name = name.trim_matches(['.', '_', '-']);
    // Letters are changed above, so what it said counts too.
    if name.is_empty() || seal(name) != name || seal(word) != word {
        NAMELESS.to_owned()
    } else if name == "quipu" || name.starts_with("quipu-") || Agent::named(name).is_some() {
        format!("{NAMELESS}-{name}")
    } else {
        name.to_owned()
    }
}

/// A name as it can be stored: a digest of it where something in it has to be sealed.
pub(crate) fn plain(name: &str, seal: &dyn Fn(&str) -> String) -> String {
    if seal(name) == name {
        return name.to_owned();
    }
    format!("sealed-{}", &quipu_protocol::hex(&sha256(name.as_bytes()))[..32])
}

/// The session: the client's own id, else one by how the conversation begins.
pub(crate) fn session(own: Option<&str>, items: &[Item], seal: &dyn Fn(&str) -> String) -> SessionId {
    if let Some(own) = own {
        return live_session_id(&plain(own.trim(), seal));
    }
    let first = items.iter().find(|item| item.author == Author::User && item.counts);
    let first = first.or_else(|| items.first()).map(|item| item.digest).unwrap_or_default();
    format!("conversation-{}", first.hex()).as_str().into()
}

/// The session of calls beside the conversation of another one, such as for titles, and of its sub-agents.
pub(crate) fn side_session(session: &SessionId, items: &[Item]) -> SessionId {
    let first = items.iter().find(|item| item.counts).map(|item| item.digest).unwrap_or_default();
    let name: String = session.as_str().chars().take(96).collect();
    format!("{CHILD_SESSION}{name}-{}", &first.hex()[..12]).as_str().into()
}

/// What is particular to clients.
#[derive(Debug, Deserialize)]
struct Clients {
    /// Headers in which clients name the one of their agents that asks.
    agents: Vec<String>,
}

static CLIENTS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let clients: Option<Clients> = serde_json::from_str(include_str!("../data/clients.json")).ok();
    clients.map(|clients| clients.agents).unwrap_or_default()
});

/// The session of a sub-agent that its client names; `None` for the one that the session belongs to, whose name is that of
/// the session itself.
pub(crate) fn named_agent(headers: &HeaderMap, own: Option<&str>, session: &SessionId) -> Option<SessionId> {
    let own = own?;
    let named = CLIENTS.iter().find_map(|name| headers.get(name)).and_then(|value| value.to_str().ok())?;
    let named = named.trim();
    if named.is_empty() || named == own.trim() || named == session.as_str() {
        return None;
    }
    let session: String = session.as_str().chars().take(96).collect();
    let digest = quipu_protocol::hex(&sha256(named.as_bytes()));
    Some(format!("{CHILD_SESSION}{session}-{}", &digest[..12]).as_str().into())
}

/// What tells the conversation of a session from calls beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Profile {
    tools: usize,
    system: [u8; 32],
}

/// Characters of the longest part of a system prompt that are compared: later ones tell the date and the like.
const COMPARED: usize = 240;

impl Profile {
    pub(crate) fn of(facts: &RequestFacts, items: &[Item]) -> Self {
        let instructions = items.iter().filter(|item| matches!(item.author, Author::Instructions(_)));
        let instructions = instructions.filter_map(Item::text);
        let parts = facts.system.split("\n\n").chain(instructions);
        let longest = parts.max_by_key(|part| part.len()).unwrap_or_default();
        let start: String = longest.chars().take(COMPARED).collect();
        Self { tools: facts.tools, system: sha256(start.as_bytes()) }
    }

    /// As text, for the store.
    pub(crate) fn written(self) -> String {
        format!("{}:{}", self.tools, quipu_protocol::hex(&self.system))
    }

    /// From its text; `None` for any other.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (tools, digits) = text.split_once(':')?;
        let mut system = [0; 32];
        if digits.len() != 64 || !digits.is_ascii() {
            return None;
        }
        for (at, byte) in system.iter_mut().enumerate() {
            *byte = u8::from_str_radix(digits.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        Some(Self { tools: tools.parse().ok()?, system })
    }

    /// Whether the client offers tools to the model.
    pub(crate) fn has_tools(self) -> bool {
        self.tools > 0
    }

    /// Whether a request with this one, which shares no message with the conversation of the session, is beside it.
    pub(crate) fn is_beside(self, main: Option<Self>) -> bool {
        match main {
            None => self.tools == 0,
            Some(main) if self.tools != main.tools => self.tools < main.tools,
            Some(main) => self.system != main.system,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_named_by_their_user_agent() {
        let check = |told: &str, expect: &str| {
            let headers = [(USER_AGENT, told.parse().unwrap())].into_iter().collect();
            assert_eq!(agent(&headers, &str::to_owned), expect, "{told}");
        };
        check("some-cli/2.1 (external, cli)", "some-cli");
        check("Some Tool", "some");
        check("quipu/0.1", "proxy-quipu");
        check("pi/0.85", "proxy-pi");
        check("../../etc", "proxy");
        check("???", "proxy");
        assert_eq!(agent(&HeaderMap::new(), &str::to_owned), "proxy");
    }

    #[test]
    fn profiles_are_read_as_they_are_written() {
        let profile = Profile { tools: 12, system: sha256(b"You help.") };
        assert_eq!(Profile::parse(&profile.written()), Some(profile));
        for text in ["", "1", "1:ab", "x:00", ":"] {
            assert_eq!(Profile::parse(text), None, "{text}");
        }
    }
}
