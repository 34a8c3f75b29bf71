//! The models that the keys for the next one go through: `enabledModels` of `settings.json`.

use quipu_providers::Settings;
use quipu_tui::Cycled;
use serde_json::Value;

use crate::exit::Failure;
use quipu_host::Place;

/// What the setting says; `None` where it says nothing.
pub(super) fn patterns(place: &Place) -> Result<Option<Vec<String>>, Failure> {
    let wrong = || {
        Failure::usage("`enabledModels` in settings.json must be a list of names, such as [\"sonnet:high\"]")
    };
    match &place.settings_json().unwrap_or_default()["enabledModels"] {
        Value::Null => Ok(None),
        Value::Array(names) if names.is_empty() => Ok(None),
        Value::Array(names) => {
            let names = names.iter().map(|name| name.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(Some).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// The models that it names.
pub(super) fn named(settings: &Settings, patterns: &[String]) -> Result<Vec<Cycled>, Failure> {
    let named = settings.named(patterns);
    if named.is_empty() {
        return Err(Failure::usage(format!(
            "`enabledModels` in settings.json names no model that can be asked: {}",
            patterns.join(", ")
        )));
    }
    Ok(named)
}
