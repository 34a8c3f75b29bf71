//! The members of `messages.queue` and `session.reset`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Milliseconds of a pause at most: an hour.
pub(super) const DEBOUNCE_MOST: u64 = 3_600_000;
/// Channels that are named at most.
const CHANNELS: usize = 256;

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

/// The members of `session.reset`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResetConfig {
    /// What begins conversations anew; nothing where nothing is said.
    pub mode: Option<ResetCause>,
    /// The hour at which a day begins.
    pub at_hour: Option<u8>,
    /// Minutes without messages.
    pub idle_minutes: Option<u64>,
}

/// What begins a conversation anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResetCause {
    /// A new day, and minutes without messages where they are set.
    Daily,
    /// Minutes without messages.
    Idle,
}

impl ResetConfig {
    /// The values that were checked, by the names of the settings.
    pub(super) fn of<'a>(value: &dyn Fn(&str) -> Option<&'a Value>) -> Self {
        let number = |name: &str| value(name).and_then(Value::as_u64);
        Self {
            mode: match value("session.reset.mode").and_then(Value::as_str) {
                Some("daily") => Some(ResetCause::Daily),
                Some("idle") => Some(ResetCause::Idle),
                _ => None,
            },
            at_hour: number("session.reset.atHour").and_then(|hour| u8::try_from(hour).ok()),
            idle_minutes: number("session.reset.idleMinutes"),
        }
    }
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
