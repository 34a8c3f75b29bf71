//! `settings.json`: what of it concerns sessions. Other members belong to others and are left alone.

use std::path::Path;

use serde_json::Value;

use crate::CompactionSettings;

/// Bytes of the file at most.
const MAX_BYTES: u64 = 1 << 20;

impl CompactionSettings {
    /// What `compaction` of the file says (`enabled`, `reserveTokens`, `keepRecentTokens`), and for people what is
    /// wrong with it; the defaults stand there. A file that is missing or is no JSON object asks for nothing: whoever
    /// reads the rest of it says so.
    pub fn of_file(path: &Path) -> (Self, Vec<String>) {
        let (mut settings, mut problems) = (Self::default(), Vec::new());
        let readable = std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() <= MAX_BYTES);
        let text = if readable { std::fs::read_to_string(path).unwrap_or_default() } else { String::new() };
        let parsed = serde_json::from_str::<Value>(text.trim_start_matches('\u{feff}')).ok();
        let Some(compaction) = parsed.as_ref().and_then(|parsed| parsed.get("compaction")) else {
            return (settings, problems);
        };
        let mut problem = |member: &str, wanted: &str| {
            problems.push(format!(
                "{}: compaction{member} must be {wanted}; its default is used.",
                path.display()
            ));
        };
        if !compaction.is_object() && !compaction.is_null() {
            problem("", "an object");
        }
        match compaction.get("enabled") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(enabled)) => settings.enabled = *enabled,
            Some(_) => problem(".enabled", "true or false"),
        }
        for (name, place) in [
            ("reserveTokens", &mut settings.reserve_tokens),
            ("keepRecentTokens", &mut settings.keep_recent_tokens),
        ] {
            match compaction.get(name) {
                None | Some(Value::Null) => {}
                Some(value) => match value.as_u64().filter(|tokens| *tokens > 0) {
                    Some(tokens) => *place = tokens,
                    None => problem(&format!(".{name}"), "a whole number of 1 or more"),
                },
            }
        }
        (settings, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("settings.json");
        let default = CompactionSettings::default();
        assert_eq!(CompactionSettings::of_file(&path), (default, Vec::new()));
        let check = |text: &str, expect: CompactionSettings, wrong: &[&str]| {
            std::fs::write(&path, text).expect("written");
            let (found, problems) = CompactionSettings::of_file(&path);
            assert_eq!(found, expect, "{text}");
            assert_eq!(problems.len(), wrong.len(), "{problems:?}");
            for (problem, member) in problems.iter().zip(wrong) {
                assert!(problem.contains(member) && problem.contains("settings.json"), "{problem}");
            }
        };
        check("{}", default, &[]);
        check("no json", default, &[]);
        check(
            r#"{"compaction":{"enabled":false,"reserveTokens":5,"keepRecentTokens":7}}"#,
            CompactionSettings { enabled: false, reserve_tokens: 5, keep_recent_tokens: 7 },
            &[],
        );
        check(r#"{"compaction":[]}"#, default, &["compaction must be an object"]);
        check(
            r#"{"compaction":{"enabled":1,"reserveTokens":0,"keepRecentTokens":"9"}}"#,
            default,
            &["compaction.enabled", "compaction.reserveTokens", "compaction.keepRecentTokens"],
        );
    }
}
