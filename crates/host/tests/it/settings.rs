//! Settings that are kept one by one.

use std::sync::Arc;

use quipu_host::{Place, SettingError, Silent, current_settings, keep_setting};

#[test]
fn a_kept_setting_leaves_all_others_as_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::at(dir.path(), Arc::new(Silent));
    std::fs::write(place.settings_path(), "{\"theme\": \"mine\", \"search\": {\"other\": 1}}").unwrap();
    let kept = keep_setting(&place, "search.tool", "false").unwrap();
    assert_eq!((kept.setting.name, kept.value), ("search.tool", false.into()));
    let found = place.settings_json().unwrap();
    assert_eq!(found, serde_json::json!({ "theme": "mine", "search": { "other": 1, "tool": false } }));
    let now = current_settings(&place);
    let of = |name: &str| now.iter().find(|(setting, _)| setting.name == name).unwrap().1.clone();
    assert_eq!((of("theme").as_deref(), of("search.tool").as_deref()), (Some("mine"), Some("false")));
    assert_eq!(of("budget.daily"), None);
}

#[test]
fn a_setting_that_cannot_be_kept_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::at(dir.path(), Arc::new(Silent));
    let refused = |name: &str, value: &str| keep_setting(&place, name, value).unwrap_err();
    assert!(matches!(refused("no.such", "1"), SettingError::Unknown(name) if name == "no.such"));
    assert!(matches!(refused("budget.daily", "much"), SettingError::NotANumber(_)));
    assert!(matches!(refused("cacheRetention", "ever"), SettingError::NotAValue(_)));
    assert!(!place.settings_path().exists());
    std::fs::write(place.settings_path(), "{").unwrap();
    assert!(matches!(refused("theme", "dark"), SettingError::Unreadable(_)));
    assert_eq!(std::fs::read_to_string(place.settings_path()).unwrap(), "{");
}
