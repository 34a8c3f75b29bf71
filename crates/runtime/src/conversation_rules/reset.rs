//! When a conversation begins a new session: by day, and after a time without anybody saying anything.

use std::collections::BTreeMap;
use std::time::Duration;

use quipu_host::{ResetCause, ResetConfig, ResetRuleConfig};
use quipu_protocol::{AuthorClass, Origin, Provenance, UnixMs, UserInput};
use quipu_schedule::{DayBoundary, ScheduleError};
use serde::{Deserialize, Serialize};

use crate::keys::{KeyPlace, SessionKey};

/// The hour at which a day begins where nothing else is set.
const HOUR: u8 = 4;

/// The kinds of conversations that settings tell apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConversationKind {
    /// With one person.
    Direct,
    /// In a room.
    Group,
    /// In a thread or topic, whatever it is a part of.
    Thread,
}

impl ConversationKind {
    /// The kind of a conversation; `None` for jobs, hooks, sub-agents and others that no person talks in.
    #[must_use]
    pub fn of(key: &SessionKey) -> Option<Self> {
        let kind = match key.place() {
            KeyPlace::Main(_) | KeyPlace::Direct { .. } | KeyPlace::Global => Self::Direct,
            KeyPlace::Room { topic: Some(_), .. } => Self::Thread,
            KeyPlace::Room { topic: None, .. } => Self::Group,
            KeyPlace::Cron(_)
            | KeyPlace::Hook(_)
            | KeyPlace::Subagent(_)
            | KeyPlace::Acp(_)
            | KeyPlace::Unknown
            | KeyPlace::Other(_) => return None,
        };
        Some(if key.thread().is_some() { Self::Thread } else { kind })
    }
}

/// What a reset goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResetMode {
    /// By day, and by idleness where minutes are set too.
    Daily,
    /// By idleness alone.
    Idle,
    /// By nothing.
    Off,
}

/// When sessions of a kind begin anew, as settings have it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResetRule {
    /// What it goes by; `daily` where nothing is said and no minutes are set.
    pub mode: Option<ResetMode>,
    /// The hour at which a day begins.
    pub at_hour: Option<u8>,
    /// Minutes without anybody saying anything; 0 is no limit.
    pub idle_minutes: Option<u64>,
}

/// The settings, in the form of `session`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResetSettings {
    /// For every conversation.
    pub reset: Option<ResetRule>,
    /// By kind: `direct`, `group`, `thread`.
    pub reset_by_type: ResetByKind,
    /// By channel; it counts more than the kind.
    pub reset_by_channel: BTreeMap<String, ResetRule>,
    /// The old way to say `reset: {mode: idle, idleMinutes}`; without effect beside `reset`.
    pub idle_minutes: Option<u64>,
}

/// Rules by kind of conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ResetByKind {
    /// With one person.
    #[serde(alias = "dm")]
    pub direct: Option<ResetRule>,
    /// In a room.
    pub group: Option<ResetRule>,
    /// In a thread or topic.
    pub thread: Option<ResetRule>,
}

/// Who decides how long a session lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionOwner {
    /// The server of the conversations.
    Server,
    /// A program with sessions of its own: its sessions have no reset that nobody set.
    Program,
}

/// When a conversation begins anew.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ResetPolicy {
    /// When a day begins.
    pub daily: Option<DayBoundary>,
    /// How long nobody may say anything.
    pub idle: Option<Duration>,
}

/// When a session of a conversation began, and when somebody last said something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversationTimes {
    /// When it began.
    pub started: UnixMs,
    /// When a person last said something in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_said: Option<UnixMs>,
}

/// What caused a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnCause {
    /// A person.
    Person,
    /// A heartbeat, a job, another conversation, the end of a command, or another event of the system: it keeps no conversation going.
    System,
}

/// Why a conversation begins anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetReason {
    /// A day has begun since its session did.
    Daily,
    /// Nobody said anything for long.
    Idle,
}

/// What a rule goes by; `None` where it does not say. Minutes alone are idleness, and an hour is that of a day.
fn mode_of(rule: &ResetRuleConfig) -> Option<ResetMode> {
    match (rule.mode, rule.at_hour, rule.idle_minutes) {
        (Some(ResetCause::Daily), ..) | (None, Some(_), _) => Some(ResetMode::Daily),
        (Some(ResetCause::Idle), ..) | (None, None, Some(_)) => Some(ResetMode::Idle),
        (Some(ResetCause::Never), ..) => Some(ResetMode::Off),
        (None, None, None) => None,
    }
}

impl From<&ResetConfig> for ResetSettings {
    /// The settings of a host. What a rule leaves open is as for all.
    fn from(config: &ResetConfig) -> Self {
        let ResetConfig { mode, at_hour, idle_minutes, by_kind, by_channel } = config;
        let all = ResetRuleConfig { mode: *mode, at_hour: *at_hour, idle_minutes: *idle_minutes };
        let of_all = mode_of(&all);
        let of = |rule: &ResetRuleConfig| {
            let mode = mode_of(rule).or(of_all).unwrap_or(ResetMode::Daily);
            let at_hour = rule.at_hour.or(config.at_hour).filter(|_| mode == ResetMode::Daily);
            let idle_minutes = rule.idle_minutes.or(config.idle_minutes);
            ResetRule { mode: Some(mode), at_hour, idle_minutes }
        };
        let kind = |name: &str| by_kind.get(name).map(of);
        Self {
            reset: of_all.map(|_| of(&all)),
            reset_by_type: ResetByKind {
                direct: kind("direct"),
                group: kind("group"),
                thread: kind("thread"),
            },
            reset_by_channel: by_channel.iter().map(|(channel, rule)| (channel.clone(), of(rule))).collect(),
            idle_minutes: None,
        }
    }
}

impl ResetSettings {
    /// What holds for a conversation: its channel before its kind, that before what holds for all. `zone` is the name of the zone in which days
    /// begin. Jobs, hooks and sub-agents never begin anew.
    ///
    /// # Errors
    /// What is wrong with the hour or the zone.
    pub fn resolve(
        &self,
        key: &SessionKey,
        owner: SessionOwner,
        zone: &str,
    ) -> Result<ResetPolicy, ScheduleError> {
        let Some(kind) = ConversationKind::of(key) else { return Ok(ResetPolicy::default()) };
        let channel = match key.place() {
            KeyPlace::Direct { channel, .. } => channel.as_deref(),
            KeyPlace::Room { channel, .. } => Some(channel.as_str()),
            _ => None,
        };
        let by_channel = channel.and_then(|channel| {
            self.reset_by_channel
                .iter()
                .find(|(name, _)| name.to_lowercase() == channel)
                .map(|(_, rule)| rule)
        });
        let by_kind = match kind {
            ConversationKind::Direct => &self.reset_by_type.direct,
            ConversationKind::Group => &self.reset_by_type.group,
            ConversationKind::Thread => &self.reset_by_type.thread,
        };
        let rule = by_channel.or(by_kind.as_ref()).or(self.reset.as_ref());
        let (mode, hour, minutes) = match (rule, self.idle_minutes, owner) {
            (Some(rule), ..) => {
                // Minutes that a rule leaves open are those of all.
                let minutes = rule.idle_minutes.or(self.reset.as_ref().and_then(|all| all.idle_minutes));
                let mode = rule.mode.unwrap_or(match rule.idle_minutes {
                    Some(_) if rule.at_hour.is_none() => ResetMode::Idle,
                    _ => ResetMode::Daily,
                });
                (mode, rule.at_hour.unwrap_or(HOUR), minutes)
            }
            (None, Some(minutes), _) => (ResetMode::Idle, HOUR, Some(minutes)),
            (None, None, SessionOwner::Server) => (ResetMode::Daily, HOUR, None),
            (None, None, SessionOwner::Program) => return Ok(ResetPolicy::default()),
        };
        let daily = match mode {
            ResetMode::Daily => Some(DayBoundary::of(hour, zone)?),
            ResetMode::Idle => None,
            ResetMode::Off => return Ok(ResetPolicy::default()),
        };
        let idle = minutes
            .filter(|minutes| *minutes > 0)
            .map(|minutes| Duration::from_secs(minutes.saturating_mul(60)));
        Ok(ResetPolicy { daily, idle })
    }
}

impl ResetPolicy {
    /// Whether a conversation begins anew with the message that comes at `now`, and why. Times that are after `now` are those of a clock that
    /// was set back: they say nothing.
    #[must_use]
    pub fn due(&self, times: &ConversationTimes, now: UnixMs) -> Option<ResetReason> {
        let past = |at: &UnixMs| *at <= now;
        let started = Some(times.started).filter(past);
        if let (Some(started), Some(boundary)) =
            (started, self.daily.as_ref().and_then(|daily| daily.last(now)))
            && started < boundary
        {
            return Some(ResetReason::Daily);
        }
        let last = match times.last_said {
            Some(said) => Some(said).filter(past),
            None => started,
        };
        let idle = self.idle.map(|idle| i64::try_from(idle.as_millis()).unwrap_or(i64::MAX));
        match (last, idle) {
            (Some(last), Some(idle)) if now > last.saturating_add(idle) => Some(ResetReason::Idle),
            _ => None,
        }
    }
}

impl ConversationTimes {
    /// Of a session that begins.
    #[must_use]
    pub const fn begun(now: UnixMs) -> Self {
        Self { started: now, last_said: None }
    }
}

impl TurnCause {
    /// What caused a turn with this prompt: what neither an agent nor the system wrote is of a person.
    #[must_use]
    pub fn of(prompt: &UserInput) -> Self {
        let Provenance { origin, author, .. } = &prompt.provenance;
        match (author, origin) {
            (AuthorClass::Agent | AuthorClass::System, _)
            | (
                _,
                Origin::Model
                | Origin::Tool
                | Origin::Hook
                | Origin::Process
                | Origin::Schedule
                | Origin::Child
                | Origin::Import,
            ) => Self::System,
            (AuthorClass::Owner | AuthorClass::Untrusted, Origin::Person | Origin::Channel) => Self::Person,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HOUR_MS: i64 = 3_600_000;
    /// 2026-11-29T04:00:00Z.
    const FOUR: i64 = 1_795_924_800_000;

    fn settings(json: &str) -> ResetSettings {
        serde_json::from_str(json).unwrap()
    }

    fn policy(json: &str, key: &str) -> ResetPolicy {
        settings(json).resolve(&SessionKey::parse(key).unwrap(), SessionOwner::Server, "UTC").unwrap()
    }

    #[test]
    fn kinds_follow_keys() {
        for (key, kind) in [
            ("agent:main:main", Some(ConversationKind::Direct)),
            ("agent:main:telegram:direct:7", Some(ConversationKind::Direct)),
            ("agent:main:telegram:group:-1", Some(ConversationKind::Group)),
            ("agent:main:telegram:group:-1:topic:3", Some(ConversationKind::Thread)),
            ("agent:main:slack:channel:c:thread:9", Some(ConversationKind::Thread)),
            ("agent:main:main:thread:9", Some(ConversationKind::Thread)),
            ("cron:job", None),
            ("agent:main:subagent:x", None),
            ("hook:x", None),
        ] {
            assert_eq!(ConversationKind::of(&SessionKey::parse(key).unwrap()), kind, "{key}");
        }
    }

    #[test]
    fn rules_are_resolved_in_their_order() {
        let direct = "agent:main:telegram:direct:7";
        let minutes = |policy: &ResetPolicy| policy.idle.map(|idle| idle.as_secs() / 60);
        let of = |json: &str, key: &str| {
            let policy = policy(json, key);
            (policy.daily.is_some(), minutes(&policy))
        };
        assert_eq!(of("{}", direct), (true, None));
        assert_eq!(of(r#"{"idleMinutes":30}"#, direct), (false, Some(30)));
        assert_eq!(of(r#"{"reset":{"mode":"daily","idleMinutes":30}}"#, direct), (true, Some(30)));
        assert_eq!(of(r#"{"reset":{"idleMinutes":0,"mode":"idle"}}"#, direct), (false, None));
        let all = r#"{"reset":{"mode":"idle","idleMinutes":5},"resetByType":{"group":{"mode":"daily"},"thread":{"idleMinutes":7}},
            "resetByChannel":{"Telegram":{"mode":"idle","idleMinutes":9}}}"#;
        assert_eq!(of(all, direct), (false, Some(9)));
        assert_eq!(of(all, "agent:main:main"), (false, Some(5)));
        assert_eq!(of(all, "agent:main:slack:group:x"), (true, Some(5)));
        assert_eq!(of(all, "agent:main:slack:group:x:thread:1"), (false, Some(7)));
        assert_eq!(of(all, "cron:job"), (false, None));
        // A program's sessions have no reset that nobody set.
        let key = SessionKey::parse(direct).unwrap();
        let of_program = settings("{}").resolve(&key, SessionOwner::Program, "UTC").unwrap();
        assert_eq!(of_program, ResetPolicy::default());
        assert!(serde_json::from_str::<ResetSettings>(r#"{"resets":1}"#).is_err());
        let wrong = settings(r#"{"reset":{"mode":"daily","atHour":24}}"#);
        assert!(wrong.resolve(&key, SessionOwner::Server, "UTC").is_err());
    }

    #[test]
    fn settings_of_a_host_give_rules_by_kind_and_channel() {
        let rule = |mode, at_hour, idle_minutes| ResetRuleConfig { mode, at_hour, idle_minutes };
        let kinds = [
            ("group", rule(None, None, Some(7))),
            ("thread", rule(None, None, None)),
            ("direct", rule(Some(ResetCause::Daily), Some(5), Some(0))),
        ];
        let channels = [
            ("irc", rule(Some(ResetCause::Never), None, None)),
            ("sms", rule(Some(ResetCause::Idle), None, None)),
        ];
        let mut config = ResetConfig {
            mode: None,
            at_hour: Some(6),
            idle_minutes: Some(30),
            by_kind: kinds.map(|(name, rule)| (name.to_owned(), rule)).into(),
            by_channel: channels.map(|(name, rule)| (name.to_owned(), rule)).into(),
        };
        let of = |config: &ResetConfig, key: &str| {
            let key = SessionKey::parse(key).unwrap();
            ResetSettings::from(config).resolve(&key, SessionOwner::Program, "UTC").unwrap()
        };
        let policy = |hour: Option<u8>, minutes: Option<u64>| ResetPolicy {
            daily: hour.map(|hour| DayBoundary::of(hour, "UTC").unwrap()),
            idle: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
        };
        for (key, expect) in [
            ("agent:main:main", policy(Some(5), None)),
            ("agent:main:slack:direct:7", policy(Some(5), None)),
            ("agent:main:slack:group:g", policy(None, Some(7))),
            ("agent:main:slack:group:g:topic:3", policy(Some(6), Some(30))),
            ("agent:main:irc:direct:7", policy(None, None)),
            ("agent:main:irc:group:g", policy(None, None)),
            ("agent:main:sms:group:g", policy(None, Some(30))),
            ("cron:job", policy(None, None)),
        ] {
            assert_eq!(of(&config, key), expect, "{key}");
        }
        config.by_kind.clear();
        for (mode, at_hour, idle_minutes, expect) in [
            (None, None, None, policy(None, None)),
            (None, None, Some(30), policy(None, Some(30))),
            (None, None, Some(0), policy(None, None)),
            (None, Some(6), None, policy(Some(6), None)),
            (None, Some(6), Some(30), policy(Some(6), Some(30))),
            (Some(ResetCause::Never), Some(6), Some(30), policy(None, None)),
            (Some(ResetCause::Idle), Some(6), Some(30), policy(None, Some(30))),
            (Some(ResetCause::Daily), Some(6), Some(30), policy(Some(6), Some(30))),
        ] {
            (config.mode, config.at_hour, config.idle_minutes) = (mode, at_hour, idle_minutes);
            assert_eq!(of(&config, "agent:main:slack:group:g"), expect, "{config:?}");
            assert_eq!(of(&config, "agent:main:irc:group:g"), policy(None, None), "{config:?}");
        }
    }

    #[test]
    fn day_and_idleness_begin_a_conversation_anew() {
        let both = policy(r#"{"reset":{"mode":"daily","idleMinutes":60}}"#, "agent:main:main");
        let times = ConversationTimes { started: FOUR - 1, last_said: Some(FOUR - 1) };
        assert_eq!(both.due(&times, FOUR - 1), None);
        assert_eq!(both.due(&times, FOUR), Some(ResetReason::Daily));
        let times = ConversationTimes::begun(FOUR);
        assert_eq!(both.due(&times, FOUR + HOUR_MS), None);
        assert_eq!(both.due(&times, FOUR + HOUR_MS + 1), Some(ResetReason::Idle));
        let times = ConversationTimes { last_said: Some(FOUR + HOUR_MS), ..times };
        assert_eq!(both.due(&times, FOUR + 2 * HOUR_MS), None);
        assert_eq!(both.due(&times, FOUR + 24 * HOUR_MS), Some(ResetReason::Daily));
    }

    #[test]
    fn turn_is_of_a_person_unless_a_program_caused_it() {
        for (origin, author, cause) in [
            (Origin::Person, AuthorClass::Owner, TurnCause::Person),
            (Origin::Channel, AuthorClass::Owner, TurnCause::Person),
            (Origin::Channel, AuthorClass::Untrusted, TurnCause::Person),
            (Origin::Model, AuthorClass::Agent, TurnCause::System),
            (Origin::Schedule, AuthorClass::System, TurnCause::System),
            (Origin::Process, AuthorClass::System, TurnCause::System),
            (Origin::Schedule, AuthorClass::Owner, TurnCause::System),
        ] {
            let prompt = UserInput::from("hi").from_source(Provenance::new(origin, author));
            assert_eq!(TurnCause::of(&prompt), cause, "{origin:?} {author:?}");
        }
    }

    #[test]
    fn clocks_that_jump_begin_a_conversation_anew_once() {
        let both = policy(r#"{"reset":{"mode":"daily","idleMinutes":60}}"#, "agent:main:main");
        // Years ahead: once, and the new session stands.
        let ahead = FOUR + 1_000 * 24 * HOUR_MS;
        assert!(both.due(&ConversationTimes::begun(FOUR), ahead).is_some());
        let new = ConversationTimes { started: ahead, last_said: Some(ahead) };
        assert_eq!(both.due(&new, ahead), None);
        // Back again: what began in the future goes on.
        assert_eq!(both.due(&new, FOUR + HOUR_MS), None);
        let mixed = ConversationTimes { started: FOUR + HOUR_MS, last_said: Some(ahead) };
        assert_eq!(both.due(&mixed, FOUR + 9 * HOUR_MS), None);
        assert_eq!(both.due(&mixed, FOUR + 25 * HOUR_MS), Some(ResetReason::Daily));
    }

    #[test]
    fn day_begins_once_where_the_clock_shows_its_hour_twice() {
        let rule = settings(r#"{"reset":{"mode":"daily","atHour":2}}"#);
        let key = SessionKey::parse("agent:main:main").unwrap();
        let berlin = rule.resolve(&key, SessionOwner::Server, "Europe/Berlin").unwrap();
        // 2026-10-25T00:00:00Z is the first 02:00, an hour later the second.
        let first = 1_792_886_400_000;
        let times = ConversationTimes::begun(first + 1);
        assert_eq!(berlin.due(&ConversationTimes::begun(first - 1), first), Some(ResetReason::Daily));
        assert_eq!(berlin.due(&times, first + HOUR_MS + 2), None);
        assert_eq!(berlin.due(&times, first + 26 * HOUR_MS), Some(ResetReason::Daily));
    }

    proptest! {
        #[test]
        fn session_that_begins_now_is_never_due(now in proptest::num::i64::ANY, said in proptest::option::of(proptest::num::i64::ANY)) {
            let both = policy(r#"{"reset":{"mode":"daily","idleMinutes":1}}"#, "agent:main:main");
            prop_assert_eq!(both.due(&ConversationTimes::begun(now), now), None);
            // Nothing overflows, and what is in the future says nothing.
            let times = ConversationTimes { started: said.unwrap_or(now), last_said: said };
            prop_assert!(both.due(&times, now).is_none() || said.is_some_and(|said| said < now));
        }
    }
}
