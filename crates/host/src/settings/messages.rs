//! The members of `messages.queue`, `messages.streaming`, `session.reset` and `session.history`.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Milliseconds of a pause at most: an hour.
pub(super) const DEBOUNCE_MOST: u64 = 3_600_000;
/// What begins conversations anew.
pub(super) const RESET_MODES: &[&str] = &["off", "daily", "idle"];
/// Minutes without messages that can be set at most: ten years.
const IDLE_MOST: u64 = 5_256_000;
/// Turns of a request that can be set at most.
pub(super) const TURNS_MOST: u64 = 100_000;
/// People of a channel that are named at most.
const PEOPLE: usize = 1_024;
/// Kinds of conversations whose sessions can begin anew.
const RESET_KINDS: [&str; 3] = ["direct", "group", "thread"];
/// Kinds of conversations that have limits of turns; a thread has that of what it is a part of.
const TURN_KINDS: [&str; 2] = ["direct", "group"];
/// Channels that are named at most.
const CHANNELS: usize = 256;

/// What conversations are told apart by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChatNames {
    /// Their kinds.
    Kinds,
    /// The names of their channels.
    Channels,
}

/// The members of `messages.queue`, in their own words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct QueueConfig {
    /// What becomes of a message that comes while its conversation is busy.
    pub mode: Option<String>,
    /// The same by channel, in small letters.
    pub mode_by_channel: BTreeMap<String, String>,
    /// Milliseconds without a new message after which those that wait are run.
    pub debounce_ms: Option<u64>,
    /// The same by channel, in small letters.
    pub debounce_ms_by_channel: BTreeMap<String, u64>,
    /// Messages of a conversation that wait at most.
    pub cap: Option<usize>,
    /// What happens to more.
    pub drop: Option<String>,
}

impl QueueConfig {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let word = |name: &str| value(name).and_then(Value::as_str).map(str::to_owned);
        let channels = |name: &str| value(name).and_then(Value::as_object).into_iter().flatten();
        let modes = channels("messages.queue.byChannel");
        let times = channels("messages.queue.debounceMsByChannel");
        Self {
            mode: word("messages.queue.mode"),
            mode_by_channel: modes
                .filter_map(|(channel, mode)| Some((channel.to_lowercase(), mode.as_str()?.to_owned())))
                .collect(),
            debounce_ms: value("messages.queue.debounceMs").and_then(Value::as_u64),
            debounce_ms_by_channel: times
                .filter_map(|(channel, time)| Some((channel.to_lowercase(), time.as_u64()?)))
                .collect(),
            cap: value("messages.queue.cap")
                .and_then(Value::as_u64)
                .and_then(|cap| usize::try_from(cap).ok()),
            drop: word("messages.queue.drop"),
        }
    }
}

/// The members of `messages.streaming`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StreamingConfig {
    /// Whether answers are sent in blocks while they arrive.
    pub mode: StreamingMode,
    /// The same by channel, in small letters.
    pub mode_by_channel: BTreeMap<String, StreamingMode>,
    /// Characters of a block at least.
    pub min_chars: Option<usize>,
    /// Characters of a block at most.
    pub max_chars: Option<usize>,
    /// Milliseconds for which a block waits for the next one; 0 for none.
    pub join_ms: Option<u64>,
}

/// When an answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamingMode {
    /// When it is whole.
    #[default]
    Off,
    /// In blocks, while it arrives.
    Blocks,
}

impl StreamingMode {
    fn of(word: &Value) -> Option<Self> {
        match word.as_str()? {
            "off" => Some(Self::Off),
            "blocks" => Some(Self::Blocks),
            _ => None,
        }
    }
}

impl StreamingConfig {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |name: &str| value(name).and_then(Value::as_u64);
        let size = |name: &str| number(name).and_then(|size| usize::try_from(size).ok());
        let channels = value("messages.streaming.byChannel").and_then(Value::as_object).into_iter().flatten();
        Self {
            mode: value("messages.streaming.mode").and_then(StreamingMode::of).unwrap_or_default(),
            mode_by_channel: channels
                .filter_map(|(channel, mode)| Some((channel.to_lowercase(), StreamingMode::of(mode)?)))
                .collect(),
            min_chars: size("messages.streaming.minChars"),
            max_chars: size("messages.streaming.maxChars"),
            join_ms: number("messages.streaming.joinMs"),
        }
    }

    /// What holds for a channel.
    pub fn mode_of(&self, channel: &str) -> StreamingMode {
        self.mode_by_channel.get(&channel.to_lowercase()).copied().unwrap_or(self.mode)
    }
}

/// The members of `session.reset`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResetConfig {
    /// What begins conversations anew. Where it is not said, minutes alone are idleness, an hour is that of a day, and nothing is never.
    pub mode: Option<ResetCause>,
    /// The hour at which a day begins.
    pub at_hour: Option<u8>,
    /// Minutes without messages.
    pub idle_minutes: Option<u64>,
    /// Rules by kind of conversation: `direct`, `group`, `thread`.
    pub by_kind: BTreeMap<String, ResetRuleConfig>,
    /// Rules by channel, in small letters.
    pub by_channel: BTreeMap<String, ResetRuleConfig>,
}

/// A member of `session.reset.byKind` or `session.reset.byChannel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResetRuleConfig {
    /// What begins these conversations anew; where it is not said, as for all.
    pub mode: Option<ResetCause>,
    /// The hour at which a day begins.
    pub at_hour: Option<u8>,
    /// Minutes without messages.
    pub idle_minutes: Option<u64>,
}

/// The members of `session.history`. 0 is no limit, and more specific than nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnLimits {
    /// For every conversation of people.
    pub turns: Option<u32>,
    /// For conversations with one person.
    pub direct: Option<u32>,
    /// For those of rooms.
    pub group: Option<u32>,
    /// By channel, in small letters.
    pub by_channel: BTreeMap<String, ChannelTurns>,
}

/// A member of `session.history.byChannel`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChannelTurns {
    /// With one person.
    pub direct: Option<u32>,
    /// In rooms.
    pub group: Option<u32>,
    /// With single people, in small letters.
    pub people: BTreeMap<String, u32>,
}

/// What begins a conversation anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCause {
    /// Nothing.
    Never,
    /// A new day, and minutes without messages where they are set.
    Daily,
    /// Minutes without messages.
    Idle,
}

impl ResetConfig {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |name: &str| value(name).and_then(Value::as_u64);
        let rules = |name: &str| {
            let rules = value(name).and_then(Value::as_object).into_iter().flatten();
            rules.map(|(name, rule)| (name.to_lowercase(), ResetRuleConfig::of(rule))).collect()
        };
        Self {
            mode: value("session.reset.mode").and_then(ResetCause::of),
            at_hour: number("session.reset.atHour").and_then(|hour| u8::try_from(hour).ok()),
            idle_minutes: number("session.reset.idleMinutes"),
            by_kind: rules("session.reset.byKind"),
            by_channel: rules("session.reset.byChannel"),
        }
    }
}

impl ResetCause {
    fn of(word: &Value) -> Option<Self> {
        match word.as_str() {
            Some("off") => Some(Self::Never),
            Some("daily") => Some(Self::Daily),
            Some("idle") => Some(Self::Idle),
            _ => None,
        }
    }
}

impl ResetRuleConfig {
    /// A rule that was checked.
    fn of(rule: &Value) -> Self {
        Self {
            mode: rule.get("mode").and_then(ResetCause::of),
            at_hour: rule.get("atHour").and_then(Value::as_u64).and_then(|hour| u8::try_from(hour).ok()),
            idle_minutes: rule.get("idleMinutes").and_then(Value::as_u64),
        }
    }
}

impl TurnLimits {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |value: &Value| value.as_u64().and_then(|turns| u32::try_from(turns).ok());
        let kind =
            |name: &str| value("session.history.byKind").and_then(|kinds| kinds.get(name)).and_then(number);
        let channels = value("session.history.byChannel").and_then(Value::as_object).into_iter().flatten();
        let channel = |(name, limits): (&String, &Value)| {
            let people = limits.get("people").and_then(Value::as_object).into_iter().flatten();
            let people = people.filter_map(|(id, turns)| Some((id.to_lowercase(), number(turns)?)));
            let of = |name: &str| limits.get(name).and_then(number);
            (
                name.to_lowercase(),
                ChannelTurns { direct: of("direct"), group: of("group"), people: people.collect() },
            )
        };
        Self {
            turns: value("session.history.turns").and_then(number),
            direct: kind("direct"),
            group: kind("group"),
            by_channel: channels.map(channel).collect(),
        }
    }
}

/// Rules of when conversations begin anew. One that cannot be read is ignored as a whole, so the one that is less specific holds.
pub(super) fn check_resets(
    name: &str,
    names: ChatNames,
    rules: &Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    let wanted = format!(
        "an object of `mode` ({}), `atHour` (0 to 23) and `idleMinutes` (0 to {IDLE_MOST})",
        RESET_MODES.join(", ")
    );
    let fits = |rule: &Value| {
        rule.as_object().is_some_and(|members| {
            members.iter().all(|(member, value)| match member.as_str() {
                "mode" => value.as_str().is_some_and(|word| RESET_MODES.contains(&word)),
                "atHour" => value.as_u64().is_some_and(|hour| hour <= 23),
                "idleMinutes" => value.as_u64().is_some_and(|minutes| minutes <= IDLE_MOST),
                _ => false,
            })
        })
    };
    match names {
        ChatNames::Channels => by_channel(name, rules, &wanted, fits),
        ChatNames::Kinds => by_kind(name, &RESET_KINDS, rules, &wanted, fits),
    }
}

/// Limits of turns. One that cannot be read is ignored as a whole.
pub(super) fn check_turns(
    name: &str,
    names: ChatNames,
    limits: &Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    let is_number = |value: &Value| value.as_u64().is_some_and(|turns| turns <= TURNS_MOST);
    let number = format!("a whole number from 0 to {TURNS_MOST}");
    match names {
        ChatNames::Kinds => by_kind(name, &TURN_KINDS, limits, &number, is_number),
        ChatNames::Channels => {
            let wanted = format!(
                "an object of `direct`, `group` and `people` by id (at most {PEOPLE}), each {number}"
            );
            by_channel(name, limits, &wanted, |value| {
                value.as_object().is_some_and(|members| {
                    members.iter().all(|(member, value)| match member.as_str() {
                        "direct" | "group" => is_number(value),
                        "people" => value
                            .as_object()
                            .is_some_and(|people| people.len() <= PEOPLE && people.values().all(is_number)),
                        _ => false,
                    })
                })
            })
        }
    }
}

/// The form of rules of when conversations begin anew.
pub(super) fn resets_schema(names: ChatNames) -> Value {
    let rule = json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "mode": { "enum": RESET_MODES },
            "atHour": { "type": "integer", "minimum": 0, "maximum": 23 },
            "idleMinutes": { "type": "integer", "minimum": 0, "maximum": IDLE_MOST },
        },
    });
    match names {
        ChatNames::Channels => json!({ "type": "object", "additionalProperties": rule }),
        ChatNames::Kinds => kinds_schema(&RESET_KINDS, &rule),
    }
}

/// The form of limits of turns.
pub(super) fn turns_schema(names: ChatNames) -> Value {
    let turns = json!({ "type": "integer", "minimum": 0, "maximum": TURNS_MOST });
    match names {
        ChatNames::Kinds => kinds_schema(&TURN_KINDS, &turns),
        ChatNames::Channels => json!({ "type": "object", "additionalProperties": {
            "type": "object",
            "additionalProperties": false,
            "properties": {
                "direct": turns,
                "group": turns,
                "people": { "type": "object", "additionalProperties": turns },
            },
        } }),
    }
}

fn kinds_schema(kinds: &[&str], of_each: &Value) -> Value {
    let properties: Map<String, Value> =
        kinds.iter().map(|kind| ((*kind).to_owned(), of_each.clone())).collect();
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn by_kind(
    name: &str,
    kinds: &[&str],
    members: &Map<String, Value>,
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> (Map<String, Value>, Vec<String>) {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (kind, value) in members {
        let shown: String = kind.chars().filter(|letter| !letter.is_control()).take(80).collect();
        if !kinds.contains(&kind.as_str()) {
            problems.push(format!("{name}.{shown} is ignored: the kinds are {}", kinds.join(", ")));
        } else if fits(value) {
            good.insert(kind.clone(), value.clone());
        } else {
            problems.push(format!("{name}.{shown} must be {wanted}; it is ignored"));
        }
    }
    (good, problems)
}

/// Words by channel.
pub(super) fn check_words(
    name: &str,
    words: &[&str],
    channels: &Map<String, Value>,
) -> (Map<String, Value>, Vec<String>) {
    let wanted = words.join(", ");
    by_channel(name, channels, &format!("one of {wanted}"), |value| {
        value.as_str().is_some_and(|word| words.contains(&word))
    })
}

/// Milliseconds by channel.
pub(super) fn check_times(name: &str, channels: &Map<String, Value>) -> (Map<String, Value>, Vec<String>) {
    let wanted = format!("a whole number from 0 to {DEBOUNCE_MOST}");
    by_channel(name, channels, &wanted, |value| value.as_u64().is_some_and(|time| time <= DEBOUNCE_MOST))
}

fn by_channel(
    name: &str,
    channels: &Map<String, Value>,
    wanted: &str,
    fits: impl Fn(&Value) -> bool,
) -> (Map<String, Value>, Vec<String>) {
    let (mut good, mut problems) = (Map::new(), Vec::new());
    for (channel, value) in channels {
        if channel.trim().is_empty() || good.len() == CHANNELS {
            problems.push(format!("{name} can name {CHANNELS} channels; the others are ignored"));
            break;
        }
        if fits(value) {
            good.insert(channel.clone(), value.clone());
        } else {
            let channel: String = channel.chars().filter(|letter| !letter.is_control()).take(80).collect();
            problems.push(format!("{name}.{channel} must be {wanted}; it is ignored"));
        }
    }
    (good, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn rules_that_cannot_be_read_are_ignored() {
        let rule = json!({ "mode": "idle", "atHour": 23, "idleMinutes": 60 });
        let good = json!({ "direct": rule, "group": {}, "thread": { "mode": "off" } });
        let checked = |names, value: &Value| check_resets("r", names, &object(value));
        assert_eq!(checked(ChatNames::Kinds, &good), (object(&good), Vec::new()));
        assert_eq!(checked(ChatNames::Channels, &json!({ "irc": rule })).1, [""; 0]);
        for (names, bad) in [
            (ChatNames::Kinds, json!({ "dm": rule })),
            (ChatNames::Kinds, json!({ "group": "daily" })),
            (ChatNames::Channels, json!({ "irc": { "mode": "weekly" } })),
            (ChatNames::Channels, json!({ "irc": { "atHour": 24 } })),
            (ChatNames::Channels, json!({ "irc": { "idleMinutes": -1 } })),
            (ChatNames::Channels, json!({ "irc": { "idle": 1 } })),
            (ChatNames::Channels, json!({ "": rule })),
        ] {
            let (kept, problems) = checked(names, &bad);
            assert!(kept.is_empty() && problems.len() == 1, "{bad}: {kept:?} {problems:?}");
        }
        let many: Map<String, Value> = (0..300).map(|at| (format!("c{at}"), rule.clone())).collect();
        let (kept, problems) = check_resets("r", ChatNames::Channels, &many);
        assert_eq!((kept.len(), problems.len()), (CHANNELS, 1));
    }

    #[test]
    fn limits_that_cannot_be_read_are_ignored() {
        let checked = |names, value: &Value| check_turns("t", names, &object(value));
        let good = json!({ "direct": 0, "group": 100_000 });
        assert_eq!(checked(ChatNames::Kinds, &good), (object(&good), Vec::new()));
        let good = json!({ "irc": { "direct": 3, "group": 4, "people": { "7": 5 } }, "sms": {} });
        assert_eq!(checked(ChatNames::Channels, &good), (object(&good), Vec::new()));
        let crowd: Map<String, Value> = (0..=PEOPLE).map(|at| (at.to_string(), json!(1))).collect();
        for (names, bad) in [
            (ChatNames::Kinds, json!({ "thread": 1 })),
            (ChatNames::Kinds, json!({ "group": 100_001 })),
            (ChatNames::Kinds, json!({ "group": 1.5 })),
            (ChatNames::Channels, json!({ "irc": 3 })),
            (ChatNames::Channels, json!({ "irc": { "dm": 3 } })),
            (ChatNames::Channels, json!({ "irc": { "people": { "7": "5" } } })),
            (ChatNames::Channels, json!({ "irc": { "people": crowd } })),
        ] {
            let (kept, problems) = checked(names, &bad);
            assert!(kept.is_empty() && problems.len() == 1, "{bad}: {kept:?} {problems:?}");
        }
    }
}
