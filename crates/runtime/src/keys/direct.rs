//! Which conversation a direct message belongs to.

use std::collections::BTreeMap;

use super::{AgentId, KeyError, KeyPlace, SessionKey, part};

/// The account that is meant where none is named.
pub const DEFAULT_ACCOUNT: &str = "default";

/// What distinguishes the conversations of direct messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirectScope {
    /// By nothing: all are one conversation.
    #[default]
    Main,
    /// By the person.
    PerPeer,
    /// By channel and person.
    PerChannelPeer,
    /// By channel, account and person.
    PerAccountChannelPeer,
}

impl DirectScope {
    pub(super) const ALL: [(&str, Self); 4] = [
        ("main", Self::Main),
        ("per-peer", Self::PerPeer),
        ("per-channel-peer", Self::PerChannelPeer),
        ("per-account-channel-peer", Self::PerAccountChannelPeer),
    ];

    /// The scope of a name in settings.
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(known, _)| *known == name).map(|(_, scope)| scope)
    }

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, scope)| *scope == self).map_or("main", |(name, _)| name)
    }
}

/// People by one name, whichever channel they write on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IdentityLinks(BTreeMap<String, String>);

/// Why links of people cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// A link names no channel.
    #[error("the identity link `{link}` of {name} names no channel: write `CHANNEL:PEER`")]
    NoChannel {
        /// The link.
        link: String,
        /// Whose it is.
        name: String,
    },
    /// Two people have the same link.
    #[error("the identity link `{link}` belongs to {first} and to {second}; remove one of them")]
    TwoPeople {
        /// The link.
        link: String,
        /// The one.
        first: String,
        /// The other.
        second: String,
    },
    /// A name or a link that cannot be part of a key.
    #[error("an identity link cannot be used: {0}")]
    Key(#[from] KeyError),
}

impl IdentityLinks {
    /// Links as settings have them: a name, and `channel:peer` for each place where that person writes.
    ///
    /// # Errors
    /// `NoChannel`, `TwoPeople`, `Key`.
    pub fn new<'a, L: IntoIterator<Item = &'a str>>(
        links: impl IntoIterator<Item = (&'a str, L)>,
    ) -> Result<Self, LinkError> {
        let mut all = BTreeMap::new();
        for (name, places) in links {
            let name = part("name", name)?;
            for place in places {
                let link = part("identity link", place)?;
                if !link.contains(':') {
                    return Err(LinkError::NoChannel { link, name });
                }
                if let Some(first) = all.insert(link.clone(), name.clone()).filter(|first| *first != name) {
                    return Err(LinkError::TwoPeople { link, first, second: name });
                }
            }
        }
        Ok(Self(all))
    }

    fn name(&self, channel: &str, peer: &str) -> Option<&String> {
        self.0.get(&format!("{channel}:{peer}"))
    }
}

/// How keys of direct messages are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectKeys {
    /// What distinguishes the conversations.
    pub scope: DirectScope,
    /// The word of the one conversation with [`DirectScope::Main`].
    pub main_key: String,
    /// Whom people are; not used with [`DirectScope::Main`].
    pub links: IdentityLinks,
}

impl Default for DirectKeys {
    fn default() -> Self {
        Self { scope: DirectScope::Main, main_key: "main".to_owned(), links: IdentityLinks::default() }
    }
}

impl DirectKeys {
    /// The key of the conversation of a direct message. Without an account it is that of `default`.
    ///
    /// ```
    /// use quipu_runtime::{AgentId, DirectKeys, DirectScope, IdentityLinks};
    ///
    /// let links = IdentityLinks::new([("anna", ["telegram:7", "discord:99"])]).unwrap();
    /// let keys = DirectKeys { scope: DirectScope::PerPeer, links, ..DirectKeys::default() };
    /// let agent = AgentId::default();
    /// let key = |channel, peer| keys.key(&agent, channel, None, peer).unwrap().to_string();
    /// assert_eq!(key("Telegram", "7"), "agent:main:direct:anna");
    /// assert_eq!(key("discord", "99"), key("telegram", "7"));
    /// assert_eq!(key("discord", "7"), "agent:main:direct:7");
    /// ```
    ///
    /// # Errors
    /// As [`SessionKey::room`]. A message from nobody (`EmptyPart`) is given to no conversation, where each person has one.
    pub fn key(
        &self,
        agent: &AgentId,
        channel: &str,
        account: Option<&str>,
        peer: &str,
    ) -> Result<SessionKey, KeyError> {
        if self.scope == DirectScope::Main {
            return SessionKey::main(agent, &self.main_key);
        }
        let channel = part("channel", channel)?;
        let own = part("peer", peer)?;
        let person = self.links.name(&channel, &own).cloned().unwrap_or(own);
        let account = account.filter(|account| !account.trim().is_empty()).unwrap_or(DEFAULT_ACCOUNT);
        let (channel, account) = match self.scope {
            DirectScope::Main | DirectScope::PerPeer => (None, None),
            DirectScope::PerChannelPeer => (Some(channel), None),
            DirectScope::PerAccountChannelPeer => (Some(channel), Some(part("account", account)?)),
        };
        let place = KeyPlace::Direct { channel, account, peer: person };
        SessionKey::build(Some(agent), place, "peer", peer)
    }
}
