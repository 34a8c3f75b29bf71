//! What heartbeats do, as settings have it.

use std::time::Duration;

use quipu_schedule::{ActiveHours, ScheduleError, parse_span};
use serde::{Deserialize, Serialize};

/// How often a heartbeat comes where nothing else is set.
const EVERY: Duration = Duration::from_secs(30 * 60);
/// Characters beside the token that still count as nothing to report.
const ACK: usize = 300;

/// What a model answers where nothing needs attention.
pub const HEARTBEAT_TOKEN: &str = "HEARTBEAT_OK";
/// What a heartbeat says where nothing else is set.
pub const HEARTBEAT_PROMPT: &str = "Heartbeat. Read HEARTBEAT.md in your workspace if it is there, and do what it asks for now. Do not take up earlier tasks again. If nothing needs attention, answer HEARTBEAT_OK.";

/// The settings, in the form of `agents.defaults.heartbeat`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct HeartbeatSettings {
    /// A length of time such as `30m`; `0m` turns heartbeats off.
    pub every: Option<String>,
    /// What a heartbeat says.
    pub prompt: Option<String>,
    /// When there are heartbeats.
    pub active_hours: Option<HoursSettings>,
    /// Characters beside the token that still count as nothing to report.
    pub ack_max_chars: Option<usize>,
    /// Drop a heartbeat that meets a busy agent, and do not try it again.
    pub skip_when_busy: bool,
    /// Whether a heartbeat sees nothing of those before it; it does not where nothing is said.
    pub isolated_session: Option<bool>,
    /// Whether its prompt has `HEARTBEAT.md` alone of the files of the workspace and the rules of the project; it has where nothing is said.
    pub light_context: Option<bool>,
}

/// When there are heartbeats.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoursSettings {
    /// A time of the day, such as `08:00`.
    pub start: String,
    /// A time of the day, such as `24:00`. The same as the start: never.
    pub end: String,
    /// The name of the time zone.
    #[serde(default)]
    pub timezone: Option<String>,
}

/// What becomes of a heartbeat that meets a busy agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyRule {
    /// It is tried again a second later.
    Retry,
    /// It is dropped.
    Skip,
}

/// What heartbeats do.
#[derive(Debug, Clone, PartialEq)]
pub struct HeartbeatRules {
    /// How often; `None` turns all of them off, whatever wakes them.
    pub every: Option<Duration>,
    /// What they say.
    pub prompt: String,
    /// When there are any.
    pub hours: Option<ActiveHours>,
    /// Characters beside the token that still count as nothing to report.
    pub ack_chars: usize,
    /// What becomes of one that meets a busy agent.
    pub when_busy: BusyRule,
}

impl HeartbeatSettings {
    /// Whether a heartbeat sees nothing of those before it.
    #[must_use]
    pub fn is_isolated(&self) -> bool {
        self.isolated_session.unwrap_or(true)
    }

    /// Whether the prompt of a new session of heartbeats is light.
    #[must_use]
    pub fn is_light(&self) -> bool {
        self.light_context.unwrap_or(true)
    }

    /// What they come to. `zone` is the name of the zone of hours that name none.
    ///
    /// # Errors
    /// What is wrong with the length of time, the hours or the zone.
    pub fn resolve(&self, zone: &str) -> Result<HeartbeatRules, ScheduleError> {
        let every = self.every.as_deref().map_or(Ok(EVERY), |text| match text.trim() {
            "0" => Ok(Duration::ZERO),
            text => parse_span(text),
        })?;
        let hours = match &self.active_hours {
            Some(HoursSettings { start, end, timezone }) => {
                Some(ActiveHours::of(start, end, timezone.as_deref().unwrap_or(zone))?)
            }
            None => None,
        };
        let prompt = self.prompt.as_deref().map(str::trim).filter(|prompt| !prompt.is_empty());
        Ok(HeartbeatRules {
            every: Some(every).filter(|every| !every.is_zero()),
            prompt: prompt.unwrap_or(HEARTBEAT_PROMPT).to_owned(),
            hours,
            ack_chars: self.ack_max_chars.unwrap_or(ACK),
            when_busy: if self.skip_when_busy { BusyRule::Skip } else { BusyRule::Retry },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_resolved_with_their_defaults() {
        let of = |json: &str| serde_json::from_str::<HeartbeatSettings>(json).unwrap().resolve("UTC");
        let rules = of("{}").unwrap();
        assert_eq!((rules.every, rules.ack_chars, rules.hours), (Some(EVERY), 300, None));
        assert!(rules.prompt.contains(HEARTBEAT_TOKEN));
        for off in ["0", "0m", "0s"] {
            assert_eq!(of(&format!(r#"{{"every":"{off}"}}"#)).unwrap().every, None, "{off}");
        }
        let rules = of(r#"{"every":"1h30m","prompt":"Look.","skipWhenBusy":true,"ackMaxChars":9,
            "activeHours":{"start":"08:00","end":"24:00","timezone":"Europe/Berlin"}}"#)
        .unwrap();
        assert_eq!((rules.every, &*rules.prompt), (Some(Duration::from_secs(5_400)), "Look."));
        assert_eq!((rules.when_busy, rules.ack_chars), (BusyRule::Skip, 9));
        let context = |json: &str| {
            let settings: HeartbeatSettings = serde_json::from_str(json).unwrap();
            (settings.is_isolated(), settings.is_light())
        };
        assert_eq!(context("{}"), (true, true));
        assert_eq!(context(r#"{"isolatedSession":false,"lightContext":false}"#), (false, false));
        assert!(of(r#"{"every":"soon"}"#).is_err());
        assert!(of(r#"{"activeHours":{"start":"8","end":"9:00"}}"#).is_err());
        assert!(serde_json::from_str::<HeartbeatSettings>(r#"{"evry":"1m"}"#).is_err());
    }
}
