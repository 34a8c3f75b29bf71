//! What counts where settings of another program cannot be taken that narrow tools or confine commands.

use serde_json::{Value, json};

use super::entries::Entry;
use super::table::{SetupAgent, SetupRow};
use super::{SetupImport, SetupOutcome, setting_failure, words_of};
use crate::settings::{Key, SettingsFile, set_setting};
use crate::{Failure, Source};

impl SetupImport<'_> {
    /// Closes what settings that cannot be taken may have narrowed or confined, unless the user has set it; what is done about it stands
    /// behind the reason.
    pub(super) fn close(&mut self, mut why: String, settings: &[&str]) -> Result<String, Failure> {
        let mut closings: Vec<_> = settings.iter().filter_map(|ours| closing_of(ours)).collect();
        closings.dedup();
        for (ours, value) in closings {
            let is_of_user = Key::named(ours)
                .is_some_and(|key| matches!(self.home.config().row(key).source, Source::User(_)));
            if is_of_user && !self.has_set(ours) {
                continue;
            }
            if !self.dry_run {
                set_setting(self.home, &SettingsFile::User, ours, &words_of(&value))
                    .map_err(setting_failure)?;
            }
            self.closed.push(ours);
            why.push_str(&format!("; `{ours}` is {value} until you set it"));
        }
        Ok(why)
    }

    /// Whether a setting was set by this import.
    fn has_set(&self, name: &str) -> bool {
        self.closed.contains(&name)
            || self
                .reports
                .iter()
                .any(|report| matches!(&report.outcome, SetupOutcome::Set { ours, .. } if ours == name))
    }
}

/// What counts where a setting of another program cannot be read that narrows tools or confines commands.
fn closing_of(ours: &str) -> Option<(&'static str, Value)> {
    let none = || json!(["*"]);
    Some(match ours {
        "tools.profile" => ("tools.profile", json!("minimal")),
        "tools.allow" | "tools.deny" => ("tools.deny", none()),
        "tools.sandbox.allow" | "tools.sandbox.deny" => ("tools.sandbox.deny", none()),
        "tools.subagents.allow" | "tools.subagents.deny" => ("tools.subagents.deny", none()),
        "sandbox.mode" => ("sandbox.mode", json!("all")),
        "sandbox.scope" => ("sandbox.scope", json!("session")),
        "sandbox.workspaceAccess" => ("sandbox.workspaceAccess", json!("none")),
        _ => return None,
    })
}

/// Settings of ours of what an object about tools or sandboxes does not say.
pub(super) fn missing_in(agent: &SetupAgent, object: &Entry) -> Vec<&'static str> {
    let key = object.key.as_str();
    if !(key == "tools" || key.starts_with("tools.") || key == "agents.defaults.sandbox") {
        return Vec::new();
    }
    let is_within = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    let rows = agent.rows.iter().filter_map(|row| match row {
        SetupRow::Setting { theirs, ours, .. }
            if is_within(theirs) && object.nearest(theirs).key != *theirs =>
        {
            Some(*ours)
        }
        _ => None,
    });
    rows.collect()
}
