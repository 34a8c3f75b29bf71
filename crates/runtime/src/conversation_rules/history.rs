//! How many turns of a conversation a request has.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use quipu_protocol::Message;
use serde::{Deserialize, Serialize};

use crate::keys::{KeyPlace, SessionKey};

/// Turns of the user that requests have, by channel, in the form of `channels`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HistoryLimits {
    /// By channel, in lower case.
    pub channels: BTreeMap<String, ChannelHistory>,
}

/// The limits of a channel. 0 is none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChannelHistory {
    /// In rooms.
    pub history_limit: Option<u32>,
    /// With one person.
    pub dm_history_limit: Option<u32>,
    /// With single people.
    pub dms: BTreeMap<String, HistoryOverride>,
}

/// The limit of one person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HistoryOverride {
    /// Turns.
    pub history_limit: Option<u32>,
}

impl HistoryLimits {
    /// The limit of a conversation; `None` where all of it is in requests. A thread has that of what it is a part of.
    #[must_use]
    pub fn limit(&self, key: &SessionKey) -> Option<NonZeroU32> {
        let of = |channel: &str| {
            self.channels.iter().find(|(name, _)| name.to_lowercase() == channel).map(|(_, limits)| limits)
        };
        let limit = match key.place() {
            KeyPlace::Direct { channel: Some(channel), peer, .. } => {
                let channel = of(channel)?;
                let own = channel.dms.iter().find(|(name, _)| name.to_lowercase() == *peer);
                own.and_then(|(_, own)| own.history_limit).or(channel.dm_history_limit)
            }
            KeyPlace::Room { channel, .. } => of(channel)?.history_limit,
            _ => None,
        };
        limit.and_then(NonZeroU32::new)
    }
}

/// The newest so many turns of a conversation: from a message of the user on. All of it where it has no more. What is before it has no effect on a
/// request; results whose calls are left out so are no part of its projection.
#[must_use]
pub fn newest_turns(messages: &[Arc<Message>], limit: Option<NonZeroU32>) -> &[Arc<Message>] {
    let Some(limit) = limit else { return messages };
    let users =
        messages.iter().enumerate().rev().filter(|(_, message)| matches!(***message, Message::User(_)));
    let nth = usize::try_from(limit.get() - 1).unwrap_or(usize::MAX);
    let first = users.map(|(at, _)| at).nth(nth).unwrap_or(0);
    messages.get(first..).unwrap_or(messages)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn message(value: serde_json::Value) -> Arc<Message> {
        Arc::new(serde_json::from_value(value).unwrap())
    }

    fn user(text: &str) -> Arc<Message> {
        message(json!({ "role": "user", "content": text, "timestamp": 1 }))
    }

    fn call(id: &str) -> Arc<Message> {
        message(json!({
            "role": "assistant", "content": [{ "type": "toolCall", "id": id, "name": "ls", "arguments": {} }], "timestamp": 1,
            "api": "x", "provider": "x", "model": "x", "stopReason": "toolUse",
            "usage": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0,
                "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 } },
        }))
    }

    fn result(id: &str) -> Arc<Message> {
        message(json!({
            "role": "toolResult", "toolCallId": id, "toolName": "ls", "content": [], "isError": false, "timestamp": 1,
        }))
    }

    fn limit(turns: u32) -> Option<NonZeroU32> {
        NonZeroU32::new(turns)
    }

    #[test]
    fn limits_are_those_of_channel_and_person() {
        let limits: HistoryLimits = serde_json::from_str(
            r#"{"Telegram":{"historyLimit":3,"dmHistoryLimit":5,"dms":{"7":{"historyLimit":9},"8":{}}},"slack":{"historyLimit":0}}"#,
        )
        .unwrap();
        for (key, expect) in [
            ("agent:main:telegram:direct:7", 9),
            ("agent:main:telegram:direct:8", 5),
            ("agent:main:telegram:account:direct:7:thread:4", 9),
            ("telegram:dm:1", 5),
            ("agent:main:telegram:group:-1:topic:3", 3),
            ("agent:main:slack:channel:c", 0),
            ("agent:main:irc:group:c", 0),
            ("agent:main:main", 0),
            ("cron:x", 0),
        ] {
            assert_eq!(limits.limit(&SessionKey::parse(key).unwrap()), limit(expect), "{key}");
        }
    }

    #[test]
    fn newest_turns_begin_with_a_message_of_the_user() {
        let all = [user("one"), call("a"), result("a"), user("two"), call("b"), user("steer"), result("b")];
        let kept = |turns| newest_turns(&all, limit(turns)).len();
        assert_eq!([0, 1, 2, 3, 4].map(kept), [7, 2, 4, 7, 7]);
        // The result whose call is left out is in no request.
        let projected = quipu_transcript::project_messages(newest_turns(&all, limit(1)).iter().cloned());
        assert_eq!(projected, [user("steer")]);
        assert_eq!(newest_turns(&[], limit(1)).len(), 0);
    }

    proptest! {
        #[test]
        fn kept_turns_are_an_end_with_at_most_that_many(kinds in proptest::collection::vec(0_u8..3, 0..40), turns in 1_u32..9) {
            let all: Vec<_> = kinds.iter().map(|kind| match kind { 0 => user("x"), 1 => call("c"), _ => result("c") }).collect();
            let kept = newest_turns(&all, limit(turns));
            prop_assert!(all.ends_with(kept));
            let users = |messages: &[Arc<Message>]| messages.iter().filter(|one| matches!(***one, Message::User(_))).count();
            prop_assert_eq!(users(kept), users(&all).min(turns as usize));
            if kept.len() < all.len() {
                prop_assert!(matches!(*kept[0], Message::User(_)));
            }
        }
    }
}
