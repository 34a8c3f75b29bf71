//! Names of conversations: which agent, chat, account, person and thread a message belongs to.

mod direct;

use std::fmt;

pub use direct::{DEFAULT_ACCOUNT, DirectKeys, DirectScope, IdentityLinks, LinkError};
pub use quipu_protocol::{AGENT_ID_LIMIT, AgentId, DEFAULT_AGENT};

/// Bytes of a session key at most, as it is given and as it is written: with the 16 bytes that `conversation_inbox` puts in front,
/// it is a name in the store, and the store takes names of up to 1,024.
pub const KEY_LIMIT: usize = 1_024 - "runtime:session:".len();

/// The name of a conversation, in one spelling: lower case, no empty parts, no control characters.
///
/// Reading what is written gives the same key. A key that does not begin with `agent` is taken too, as other programs have them.
///
/// ```
/// use quipu_runtime::{AgentId, KeyPlace, RoomKind, SessionKey};
///
/// let key = SessionKey::parse("agent:Main:telegram:group:-100:topic:7").unwrap();
/// assert_eq!(key.to_string(), "agent:main:telegram:group:-100:topic:7");
/// let KeyPlace::Room { channel, kind, topic, .. } = key.place() else { panic!() };
/// assert_eq!((channel.as_str(), *kind, topic.as_deref()), ("telegram", RoomKind::Group, Some("7")));
/// assert_eq!(SessionKey::room(&AgentId::normalise("main"), "telegram", RoomKind::Group, "-100", Some("7")), Ok(key));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionKey {
    agent: Option<AgentId>,
    place: KeyPlace,
    thread: Option<String>,
    is_heartbeat: bool,
}

/// What a key names, beside agent and thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPlace {
    /// One word: the one conversation that all direct messages share.
    Main(String),
    /// A conversation with one person.
    Direct {
        /// The channel, where conversations are separate for each channel.
        channel: Option<String>,
        /// The account of ours that got the message, where conversations are separate for each account.
        account: Option<String>,
        /// The person.
        peer: String,
    },
    /// A conversation of several people.
    Room {
        /// The channel.
        channel: String,
        /// Which kind of room.
        kind: RoomKind,
        /// The room.
        peer: String,
        /// The topic within it.
        topic: Option<String>,
    },
    /// A scheduled job: its id.
    Cron(String),
    /// A call of a hook: its id.
    Hook(String),
    /// A sub-agent: its id, and behind `:subagent:` those of its own sub-agents.
    Subagent(String),
    /// A session of an editor's protocol: what stands behind `acp:`.
    Acp(String),
    /// The session that everybody shares. Never of an agent.
    Global,
    /// Nobody knows whose. Never of an agent.
    Unknown,
    /// Anything else, unread.
    Other(String),
}

/// The kinds of rooms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RoomKind {
    /// A group.
    Group,
    /// A channel of a server.
    Channel,
}

impl RoomKind {
    fn word(self) -> &'static str {
        match self {
            Self::Group => "group",
            Self::Channel => "channel",
        }
    }

    fn of(word: &str) -> Option<Self> {
        [Self::Group, Self::Channel].into_iter().find(|kind| kind.word() == word)
    }
}

/// Why a text is not a session key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Nothing but colons and white space.
    #[error("the session key is empty")]
    Empty,
    /// It is longer than [`KEY_LIMIT`].
    #[error("the session key has {bytes} bytes; at most {KEY_LIMIT} are allowed")]
    TooLong {
        /// How long it is.
        bytes: usize,
    },
    /// `agent` and less than an id and a name behind it.
    #[error("the session key `{key}` is not complete: write `agent:ID:NAME`")]
    Incomplete {
        /// The key.
        key: String,
    },
    /// A character that a terminal or a log would act on.
    #[error("the session key has a control character (U+{code:04X}) at byte {at}; remove it")]
    Control {
        /// Its code.
        code: u32,
        /// Where it is.
        at: usize,
    },
    /// A part is missing that the key cannot do without.
    #[error("the {part} of a session key is empty")]
    EmptyPart {
        /// Which part.
        part: &'static str,
    },
    /// Put into a key, a part would be read as something else.
    #[error("`{text}` cannot be the {part} of a session key: as `{key}` it would name another conversation")]
    Ambiguous {
        /// Which part.
        part: &'static str,
        /// The part.
        text: String,
        /// What the key would be.
        key: String,
    },
}

impl SessionKey {
    /// Reads a key. Spelling is forgiven (letter case, empty parts, spaces around parts, `dm` for `direct`, a repeated
    /// `:heartbeat`), and what has no known form is kept as [`KeyPlace::Other`].
    ///
    /// # Errors
    /// `Empty`, `TooLong`, `Incomplete`, `Control`. A text that is too long is not read.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let key = Self::read(text)?;
        // Some letters are longer in lower case.
        match key.to_string().len() {
            bytes if bytes > KEY_LIMIT => Err(KeyError::TooLong { bytes }),
            _ => Ok(key),
        }
    }

    fn read(text: &str) -> Result<Self, KeyError> {
        if text.len() > KEY_LIMIT {
            return Err(KeyError::TooLong { bytes: text.len() });
        }
        if let Some((at, found)) = text.char_indices().find(|(_, letter)| letter.is_control()) {
            return Err(KeyError::Control { code: found.into(), at });
        }
        let lower = text.to_lowercase();
        let parts: Vec<&str> = parts(&lower).collect();
        let (agent, mut rest) = match *parts.as_slice() {
            [] => return Err(KeyError::Empty),
            ["agent", id, ref rest @ ..] if !rest.is_empty() => (Some(AgentId::normalise(id)), rest),
            ["agent", ..] => return Err(KeyError::Incomplete { key: lower }),
            ref all => (None, all),
        };
        let mut is_heartbeat = false;
        while let [before @ .., "heartbeat"] = rest
            && !before.is_empty()
        {
            (rest, is_heartbeat) = (before, true);
        }
        let mut thread = None;
        if let Some((before, behind)) = split_at_word(rest, "thread") {
            (rest, thread) = (before, Some(behind.join(":")));
        }
        let place = match rest {
            ["global"] if agent.is_none() => KeyPlace::Global,
            ["unknown"] if agent.is_none() => KeyPlace::Unknown,
            _ => KeyPlace::read(rest),
        };
        Ok(Self { agent, place, thread, is_heartbeat })
    }

    /// The key of the conversation that all direct messages of an agent share.
    ///
    /// # Errors
    /// As [`SessionKey::parse`]; `EmptyPart`; `Ambiguous`.
    pub fn main(agent: &AgentId, word: &str) -> Result<Self, KeyError> {
        let place = KeyPlace::Main(part("main key", word)?);
        Self::build(Some(agent), place, "main key", word)
    }

    /// The key of a room.
    ///
    /// # Errors
    /// As [`SessionKey::parse`]; `EmptyPart`; `Ambiguous` where a part would be read as something else, such as a room whose id
    /// holds `:thread:`.
    pub fn room(
        agent: &AgentId,
        channel: &str,
        kind: RoomKind,
        peer: &str,
        topic: Option<&str>,
    ) -> Result<Self, KeyError> {
        let place = KeyPlace::Room {
            channel: part("channel", channel)?,
            kind,
            peer: part("room", peer)?,
            topic: topic.map(|topic| part("topic", topic)).transpose()?,
        };
        Self::build(Some(agent), place, "room", peer)
    }

    /// The key of a scheduled job, stored under its agent.
    ///
    /// # Errors
    /// As [`SessionKey::room`].
    pub fn cron(agent: Option<&AgentId>, job: &str) -> Result<Self, KeyError> {
        Self::build(agent, KeyPlace::Cron(part("job", job)?), "job", job)
    }

    /// The key of a call of a hook.
    ///
    /// # Errors
    /// As [`SessionKey::room`].
    pub fn hook(id: &str) -> Result<Self, KeyError> {
        Self::build(None, KeyPlace::Hook(part("hook", id)?), "hook", id)
    }

    /// The key of a sub-agent that this session starts; one of a sub-agent stands below it.
    ///
    /// # Errors
    /// As [`SessionKey::room`]; `TooLong` below a long chain.
    pub fn subagent(&self, id: &str) -> Result<Self, KeyError> {
        let agent = self.agent.clone().unwrap_or_default();
        let own = part("sub-agent", id)?;
        let path = match &self.place {
            KeyPlace::Subagent(above) => format!("{above}:subagent:{own}"),
            _ => own,
        };
        Self::build(Some(&agent), KeyPlace::Subagent(path), "sub-agent", id)
    }

    /// The same with a thread of its channel. A thread that it has already is replaced.
    ///
    /// # Errors
    /// As [`SessionKey::room`].
    pub fn with_thread(&self, thread: &str) -> Result<Self, KeyError> {
        let key = Self { thread: Some(part("thread", thread)?), ..self.clone() };
        key.checked("thread", thread)
    }

    /// The conversation that a heartbeat has beside this one. That of a heartbeat is itself.
    #[must_use]
    pub fn heartbeat(&self) -> Self {
        Self { is_heartbeat: true, ..self.clone() }
    }

    fn build(
        agent: Option<&AgentId>,
        place: KeyPlace,
        part: &'static str,
        text: &str,
    ) -> Result<Self, KeyError> {
        let key = Self { agent: agent.cloned(), place, thread: None, is_heartbeat: false };
        key.checked(part, text)
    }

    /// The key, if reading what it is written as gives it again: else somebody who chooses a part chooses the conversation.
    fn checked(self, part: &'static str, text: &str) -> Result<Self, KeyError> {
        let written = self.to_string();
        if Self::parse(&written)? == self {
            return Ok(self);
        }
        Err(KeyError::Ambiguous { part, text: text.to_owned(), key: written })
    }

    /// Its agent; `None` for one that is of no agent, or written without it.
    pub fn agent(&self) -> Option<&AgentId> {
        self.agent.as_ref()
    }

    /// What it names.
    pub fn place(&self) -> &KeyPlace {
        &self.place
    }

    /// Whether it is the main conversation of its agent, whose word this is: no thread of it, and no heartbeat beside it.
    pub fn is_main(&self, word: &str) -> bool {
        let is_word = matches!(&self.place, KeyPlace::Main(main) if *main == word.to_lowercase());
        is_word && self.thread.is_none() && !self.is_heartbeat
    }

    /// The thread of the channel.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }

    /// Whether it is that of a heartbeat beside the conversation.
    pub fn is_heartbeat(&self) -> bool {
        self.is_heartbeat
    }

    /// How many sub-agents deep it is: 0 for a session that people talk to.
    pub fn depth(&self) -> usize {
        match &self.place {
            KeyPlace::Subagent(path) => 1 + path.split(':').filter(|part| *part == "subagent").count(),
            _ => 0,
        }
    }
}

impl KeyPlace {
    fn read(rest: &[&str]) -> Self {
        let is_direct = |word: &str| matches!(word, "direct" | "dm");
        let direct = |channel: Option<&str>, account: Option<&str>, peer: &[&str]| Self::Direct {
            channel: channel.map(str::to_owned),
            account: account.map(str::to_owned),
            peer: peer.join(":"),
        };
        match *rest {
            ["cron", ref id @ ..] if !id.is_empty() => Self::Cron(id.join(":")),
            ["hook", ref id @ ..] if !id.is_empty() => Self::Hook(id.join(":")),
            ["subagent", ref id @ ..] if !id.is_empty() => Self::Subagent(id.join(":")),
            ["acp", ref id @ ..] if !id.is_empty() => Self::Acp(id.join(":")),
            [word, ref peer @ ..] if is_direct(word) && !peer.is_empty() => direct(None, None, peer),
            [channel, word, ref peer @ ..] if is_direct(word) && !peer.is_empty() => {
                direct(Some(channel), None, peer)
            }
            [channel, word, ref peer @ ..] if RoomKind::of(word).is_some() && !peer.is_empty() => {
                let (peer, topic) = match split_at_word(peer, "topic") {
                    Some((peer, topic)) => (peer, Some(topic.join(":"))),
                    None => (peer, None),
                };
                let kind = RoomKind::of(word).unwrap_or(RoomKind::Group);
                Self::Room { channel: channel.to_owned(), kind, peer: peer.join(":"), topic }
            }
            [channel, account, word, ref peer @ ..] if is_direct(word) && !peer.is_empty() => {
                direct(Some(channel), Some(account), peer)
            }
            [word] => Self::Main(word.to_owned()),
            ref other => Self::Other(other.join(":")),
        }
    }
}

impl fmt::Display for KeyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Main(text) | Self::Other(text) => f.write_str(text),
            Self::Direct { channel, account, peer } => {
                for part in [channel, account].into_iter().flatten() {
                    write!(f, "{part}:")?;
                }
                write!(f, "direct:{peer}")
            }
            Self::Room { channel, kind, peer, topic } => {
                write!(f, "{channel}:{}:{peer}", kind.word())?;
                topic.iter().try_for_each(|topic| write!(f, ":topic:{topic}"))
            }
            Self::Cron(id) => write!(f, "cron:{id}"),
            Self::Hook(id) => write!(f, "hook:{id}"),
            Self::Subagent(id) => write!(f, "subagent:{id}"),
            Self::Acp(id) => write!(f, "acp:{id}"),
            Self::Global => f.write_str("global"),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(agent) = &self.agent {
            write!(f, "agent:{agent}:")?;
        }
        self.place.fmt(f)?;
        self.thread.iter().try_for_each(|thread| write!(f, ":thread:{thread}"))?;
        if self.is_heartbeat {
            f.write_str(":heartbeat")?;
        }
        Ok(())
    }
}

/// The parts of a key that are not empty.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    text.split(':').map(str::trim).filter(|part| !part.is_empty())
}

/// What stands before and behind a word; `None` where one of the two is empty.
fn split_at_word<'a, 'b>(parts: &'a [&'b str], word: &str) -> Option<(&'a [&'b str], &'a [&'b str])> {
    let at = 1 + parts.get(1..)?.iter().position(|part| *part == word)?;
    let behind = &parts[at + 1..];
    (!behind.is_empty()).then(|| (&parts[..at], behind))
}

/// A part in the one spelling.
fn part(name: &'static str, text: &str) -> Result<String, KeyError> {
    if text.len() > KEY_LIMIT {
        return Err(KeyError::TooLong { bytes: text.len() });
    }
    let text = parts(&text.to_lowercase()).collect::<Vec<_>>().join(":");
    if text.is_empty() { Err(KeyError::EmptyPart { part: name }) } else { Ok(text) }
}

#[cfg(test)]
mod tests;
