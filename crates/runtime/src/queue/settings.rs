//! What happens to messages that come while a run is active, and which setting says so.

use std::collections::BTreeMap;
use std::time::Duration;

use quipu_host::QueueConfig;
use serde::{Deserialize, Serialize};

/// How long nothing may come before what waits is run: half a second.
pub const DEFAULT_DEBOUNCE: Duration = Duration::from_millis(500);
/// Messages of a session that wait at most, where nothing else is set.
pub const DEFAULT_CAP: usize = 20;
/// Messages of a session that can be allowed to wait at most.
pub const CAP_LIMIT: usize = 256;

/// What becomes of a message that comes while a run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BusyMode {
    /// It reaches the model of the active run before its next call; where that is not possible, it is run later by itself.
    #[default]
    Steer,
    /// It is run later, by itself.
    Followup,
    /// It is run later, together with others that come from the same place with the same rights.
    Collect,
    /// The active run is aborted, what waits is dropped, and it is run.
    Interrupt,
}

/// What happens when more messages wait than may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DropRule {
    /// The new one is refused.
    New,
    /// An old one is dropped.
    Old,
    /// An old one is dropped, and a line of it is reported later.
    #[default]
    Summarize,
}

/// The settings for all sessions, in the form of `messages.queue`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct QueueSettings {
    /// The mode.
    pub mode: Option<BusyMode>,
    /// The modes of single channels.
    pub by_channel: BTreeMap<String, BusyMode>,
    /// Milliseconds.
    pub debounce_ms: Option<u64>,
    /// Those of single channels.
    pub debounce_ms_by_channel: BTreeMap<String, u64>,
    /// How many messages of a session may wait.
    pub cap: Option<usize>,
    /// What happens to more.
    pub drop: Option<DropRule>,
}

/// What a session, or a single message, sets otherwise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, expecting = "an object for `queue`")]
pub struct QueueOverride {
    /// The mode.
    pub mode: Option<BusyMode>,
    /// Milliseconds.
    pub debounce_ms: Option<u64>,
    /// How many may wait.
    pub cap: Option<usize>,
    /// What happens to more.
    pub drop: Option<DropRule>,
}

/// What holds for one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePolicy {
    /// The mode.
    pub mode: BusyMode,
    /// How long nothing may come before what waits is run.
    pub debounce: Duration,
    /// How many may wait: 1 to [`CAP_LIMIT`].
    pub cap: usize,
    /// What happens to more.
    pub drop: DropRule,
}

impl From<&QueueConfig> for QueueSettings {
    /// The settings of a host. Words that it does not know are left out, and a host has none.
    fn from(config: &QueueConfig) -> Self {
        fn word<T: serde::de::DeserializeOwned>(word: &str) -> Option<T> {
            serde_json::from_value(serde_json::Value::from(word)).ok()
        }
        let modes = config.mode_by_channel.iter();
        Self {
            mode: config.mode.as_deref().and_then(word),
            by_channel: modes.filter_map(|(channel, mode)| Some((channel.clone(), word(mode)?))).collect(),
            debounce_ms: config.debounce_ms,
            debounce_ms_by_channel: config.debounce_ms_by_channel.clone(),
            cap: config.cap,
            drop: config.drop.as_deref().and_then(word),
        }
    }
}

impl QueueSettings {
    /// What holds for a message of a channel. What the message says itself comes before what the session says, then the
    /// channel, then the setting for all, then the default.
    pub fn resolve(&self, channel: &str, session: &QueueOverride, inline: &QueueOverride) -> QueuePolicy {
        let channel = channel.to_lowercase();
        let mode = inline.mode.or(session.mode).or(self.by_channel.get(&channel).copied()).or(self.mode);
        let own_debounce = inline.debounce_ms.or(session.debounce_ms);
        let debounce =
            own_debounce.or(self.debounce_ms_by_channel.get(&channel).copied()).or(self.debounce_ms);
        QueuePolicy {
            mode: mode.unwrap_or_default(),
            debounce: debounce.map_or(DEFAULT_DEBOUNCE, Duration::from_millis),
            cap: inline.cap.or(session.cap).or(self.cap).unwrap_or(DEFAULT_CAP).clamp(1, CAP_LIMIT),
            drop: inline.drop.or(session.drop).or(self.drop).unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_host_are_those_of_the_queue() {
        let config = QueueConfig {
            mode: Some("collect".into()),
            mode_by_channel: [("slack".into(), "followup".into())].into(),
            debounce_ms: Some(1000),
            debounce_ms_by_channel: [("slack".into(), 2000)].into(),
            cap: Some(5),
            drop: Some("new".into()),
        };
        let settings = QueueSettings::from(&config);
        let none = QueueOverride::default();
        let QueuePolicy { mode, debounce, cap, drop } = settings.resolve("Slack", &none, &none);
        assert_eq!((mode, debounce.as_millis(), cap, drop), (BusyMode::Followup, 2000, 5, DropRule::New));
        assert_eq!(settings.resolve("irc", &none, &none).mode, BusyMode::Collect);
        assert_eq!(QueueSettings::from(&QueueConfig::default()), QueueSettings::default());
    }

    #[test]
    fn settings_are_resolved_in_their_order() {
        let read = |text: &str| serde_json::from_str::<QueueSettings>(text).unwrap();
        let all = r#"{"mode":"collect","byChannel":{"slack":"followup"},"debounceMs":1000,
            "debounceMsByChannel":{"slack":2000},"cap":5,"drop":"new"}"#;
        let with = |mode, debounce_ms| QueueOverride { mode, debounce_ms, ..QueueOverride::default() };
        let none = QueueOverride::default();
        let session = with(Some(BusyMode::Interrupt), Some(3000));
        let inline = with(Some(BusyMode::Steer), Some(0));
        for (settings, channel, session, inline, expect) in [
            ("{}", "slack", none, none, (BusyMode::Steer, 500, 20, DropRule::Summarize)),
            (all, "irc", none, none, (BusyMode::Collect, 1000, 5, DropRule::New)),
            (all, "Slack", none, none, (BusyMode::Followup, 2000, 5, DropRule::New)),
            (all, "slack", session, none, (BusyMode::Interrupt, 3000, 5, DropRule::New)),
            (all, "slack", session, inline, (BusyMode::Steer, 0, 5, DropRule::New)),
            (r#"{"cap":0}"#, "", none, none, (BusyMode::Steer, 500, 1, DropRule::Summarize)),
            (r#"{"cap":99999999}"#, "", none, none, (BusyMode::Steer, 500, 256, DropRule::Summarize)),
        ] {
            let QueuePolicy { mode, debounce, cap, drop } =
                read(settings).resolve(channel, &session, &inline);
            assert_eq!((mode, debounce.as_millis(), cap, drop), (expect.0, expect.1, expect.2, expect.3));
        }
        assert!(serde_json::from_str::<QueueSettings>(r#"{"mode":"steer-backlog"}"#).is_err());
        assert!(serde_json::from_str::<QueueSettings>(r#"{"debounce":1}"#).is_err());
    }
}
