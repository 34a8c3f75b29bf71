//! Settings of a user that a front can show and keep, one by one.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::Value;

use crate::Place;

/// A setting that can be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Its members in `settings.json`, with dots between them.
    pub name: &'static str,
    /// The values that it may have; none for a number.
    pub values: &'static [&'static str],
    /// What it is for, in a few words.
    pub help: &'static str,
}

const fn setting(name: &'static str, values: &'static [&'static str], help: &'static str) -> Setting {
    Setting { name, values, help }
}

const ON_OR_OFF: &[&str] = &["true", "false"];

/// Those that there are.
pub const SETTINGS: &[Setting] = &[
    setting("theme", &["dark", "light"], "colours of the terminal"),
    setting("cacheRetention", &["none", "short", "long"], "how long providers keep what was sent"),
    setting("compaction.enabled", ON_OR_OFF, "sum the context up before it is full"),
    setting("compaction.reserveTokens", &[], "tokens kept free for the answer"),
    setting("compaction.keepRecentTokens", &[], "tokens of the newest conversation that stay"),
    setting("context.prune.enabled", ON_OR_OFF, "leave old results of tools out of requests"),
    setting("search.tool", ON_OR_OFF, "the model can search what was done before"),
    setting("travel.tools", ON_OR_OFF, "models of new sessions can look at the graph and go back in it"),
    setting("files.enabled", ON_OR_OFF, "keep what files were before tools changed them"),
    setting("budget.daily", &[], "US dollars for all sessions of a day"),
    setting("retry.enabled", ON_OR_OFF, "try again what failed for a moment"),
    setting("retry.maxRetries", &[], "how often"),
];

/// Why a setting is not kept.
#[derive(Debug)]
pub enum SettingError {
    /// There is no setting of this name.
    Unknown(String),
    /// It must be a number.
    NotANumber(Setting),
    /// It must be one of its values.
    NotAValue(Setting),
    /// The file of the settings is no JSON.
    Unreadable(PathBuf),
    /// The file could not be written.
    Io(std::io::Error),
}

impl From<std::io::Error> for SettingError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// A setting that was kept.
#[derive(Debug, Clone, PartialEq)]
pub struct KeptSetting {
    /// Which.
    pub setting: Setting,
    /// What it is now.
    pub value: Value,
    /// The file that says so.
    pub path: PathBuf,
}

/// Every setting with what the file says of it now, in words; `None` where it says nothing.
pub fn current_settings(place: &Place) -> Vec<(Setting, Option<String>)> {
    let now = place.settings_json().unwrap_or_default();
    let value_of = |setting: &Setting| {
        let value = setting.name.split('.').try_fold(&now, |value, member| value.get(member))?;
        Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    SETTINGS.iter().map(|setting| (*setting, value_of(setting))).collect()
}

/// Keeps a setting, and leaves all others as they are.
///
/// # Errors
/// Why it is not kept; nothing was written then.
pub fn keep_setting(place: &Place, name: &str, value: &str) -> Result<KeptSetting, SettingError> {
    let setting = SETTINGS.iter().find(|known| known.name == name).copied();
    let setting = setting.ok_or_else(|| SettingError::Unknown(name.to_owned()))?;
    let values = setting.values;
    let value = match (values.is_empty(), serde_json::from_str::<Value>(value)) {
        (true, Ok(number @ Value::Number(_))) => number,
        (true, _) => return Err(SettingError::NotANumber(setting)),
        (false, Ok(flag @ Value::Bool(_))) if values == ON_OR_OFF => flag,
        // A theme of the user's own has a name that is not known here.
        (false, _) if name == "theme" || values.contains(&value) => Value::from(value),
        (false, _) => return Err(SettingError::NotAValue(setting)),
    };
    let path = place.settings_path();
    let broken = || SettingError::Unreadable(path.clone());
    let mut settings = place.settings_json().map_err(|_| broken())?;
    if settings.is_null() {
        settings = Value::Object(serde_json::Map::new());
    }
    let mut at = &mut settings;
    for member in name.split('.') {
        let Value::Object(members) = at else { return Err(broken()) };
        at = members.entry(member).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    *at = value.clone();
    // In one step: whoever reads it meanwhile reads all of the old one.
    let target = std::fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
    let mut file = tempfile::NamedTempFile::new_in(target.parent().unwrap_or(&place.home))?;
    writeln!(file, "{settings:#}")?;
    if let Ok(old) = std::fs::metadata(&target) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(&target).map_err(|error| error.error)?;
    Ok(KeptSetting { setting, value, path })
}
