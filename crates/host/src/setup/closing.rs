//! What counts where settings of another program cannot be taken that narrow tools or confine commands.

use serde_json::{Value, json};

use super::entries::Entry;
use super::includes::INCLUDE;
use super::table::{SetupAgent, SetupRow};
use super::{SetupImport, setting_failure, words_of};
use crate::settings::{Key, SettingsFile, closed_members, set_setting};
use crate::{Failure, Source};

impl SetupImport<'_> {
    /// Closes what settings that cannot be taken may have narrowed or confined, unless the user has set it; what is done about it stands
    /// behind the reason.
    pub(super) fn close(&mut self, mut why: String, settings: &[&str]) -> Result<String, Failure> {
        let open = settings.iter().filter(|ours| !self.is_of_user(ours));
        let mut closings: Vec<_> = open.filter_map(|ours| closing_of(ours)).collect();
        closings.dedup();
        for (ours, value) in closings {
            if self.is_of_user(ours) {
                why.push_str(&format!("; your `{ours}` stays, and nothing else is closed for it"));
                continue;
            }
            if !self.dry_run {
                set_setting(self.home, &SettingsFile::User, ours, &words_of(&value))
                    .map_err(setting_failure)?;
            }
            why.push_str(&format!("; `{ours}` is {value} until you set it"));
            self.closed.insert(ours, value);
        }
        Ok(why)
    }

    /// Whether the user has set a setting, or an import before this one.
    fn is_of_user(&self, name: &str) -> bool {
        let config = self.home.config();
        let is_set = Key::named(name).is_some_and(|key| matches!(config.row(key).source, Source::User(_)));
        is_set && !self.set.contains(name) && !self.closed.contains_key(name)
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
        "tools.byProvider" => ("tools.byProvider", closed_members()),
        "tools.bySender" => ("tools.bySender", closed_members()),
        "tools.byGroup" => ("tools.byGroup", closed_members()),
        _ => return None,
    })
}

/// Settings of ours of what an object about tools or sandboxes does not say.
pub(super) fn missing_in(agent: &SetupAgent, object: &Entry) -> Vec<&'static str> {
    let key = object.key.as_str();
    // Where these are no objects, sandboxes are in what cannot be read.
    let is_around = ["agents", "agents.defaults"].contains(&key) && !object.value.is_object();
    if !(key == "tools" || key.starts_with("tools.") || key == "agents.defaults.sandbox" || is_around) {
        return Vec::new();
    }
    let is_within = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
    // Where a file is missing, lists are not whole, as they are joined, and what another file says may have been said anew.
    let is_partial = object.value.get(INCLUDE).is_some();
    let is_missing = |theirs: &str| {
        let found = object.nearest(theirs);
        let is_there = found.key == theirs && (!is_partial || found.file == object.file);
        is_within(theirs) && (!is_there || is_partial && theirs.ends_with(".deny"))
    };
    let rows = agent.rows.iter().filter_map(|row| match row {
        SetupRow::Setting { theirs, ours, .. } if is_missing(theirs) => Some(*ours),
        _ => None,
    });
    rows.collect()
}
