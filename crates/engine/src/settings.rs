//! `settings.json`: what of it concerns sessions. Other members belong to others and are left alone.

use serde_json::Value;

use crate::CompactionSettings;

impl CompactionSettings {
    /// What `compaction` of the settings says (`enabled`, `reserveTokens`, `keepRecentTokens`), and for people what is
    /// wrong with it; the defaults stand there.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let (mut found, mut problems) = (Self::default(), Vec::new());
        let Some(compaction) = settings.get("compaction") else { return (found, problems) };
        let mut problem = |member: &str, wanted: &str| {
            problems.push(format!("compaction{member} must be {wanted}; its default is used."));
        };
        if !compaction.is_object() && !compaction.is_null() {
            problem("", "an object");
        }
        match compaction.get("enabled") {
            None | Some(Value::Null) => {}
            Some(Value::Bool(enabled)) => found.enabled = *enabled,
            Some(_) => problem(".enabled", "true or false"),
        }
        for (name, place) in [
            ("reserveTokens", &mut found.reserve_tokens),
            ("keepRecentTokens", &mut found.keep_recent_tokens),
        ] {
            match compaction.get(name) {
                None | Some(Value::Null) => {}
                Some(value) => match value.as_u64().filter(|tokens| *tokens > 0) {
                    Some(tokens) => *place = tokens,
                    None => problem(&format!(".{name}"), "a whole number of 1 or more"),
                },
            }
        }
        (found, problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let default = CompactionSettings::default();
        let check = |text: &str, expect: CompactionSettings, wrong: &[&str]| {
            let (found, problems) = CompactionSettings::of_json(&serde_json::from_str(text).expect("JSON"));
            assert_eq!(found, expect, "{text}");
            assert_eq!(problems.len(), wrong.len(), "{problems:?}");
            for (problem, member) in problems.iter().zip(wrong) {
                assert!(problem.contains(member), "{problem}");
            }
        };
        check("{}", default, &[]);
        check("null", default, &[]);
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
