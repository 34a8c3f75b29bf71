//! `settings.json`: what of it concerns sessions. Other members belong to others and are left alone.

use quipu_workspace::MOST_ENTRIES;
use serde_json::Value;

use crate::{
    CacheExpiry, CompactionSettings, FileSettings, HistorySettings, IdentifierRule, IdentitySettings,
    PruneSettings, PublishSettings, Safeguard, TravelSettings,
};

/// Seconds that a summary may take at most: a day.
const LONGEST_SUMMARY: u64 = 86_400;

/// One member of the settings, and what is wrong in it.
struct Section<'a> {
    name: &'static str,
    value: &'a Value,
    problems: Vec<String>,
}

impl<'a> Section<'a> {
    fn of(settings: &'a Value, name: &'static str) -> Self {
        let value = name.split('.').try_fold(settings, |value, member| value.get(member));
        let mut section = Self { name, value: value.unwrap_or(&Value::Null), problems: Vec::new() };
        if !section.value.is_object() && !section.value.is_null() {
            section.problem("", "an object");
        }
        section
    }

    fn problem(&mut self, member: &str, wanted: &str) {
        let name = self.name;
        self.problems.push(format!("{name}{member} must be {wanted}; its default is used."));
    }

    fn flag(&mut self, member: &str, place: &mut bool) {
        match self.value.get(member) {
            None | Some(Value::Null) => {}
            Some(Value::Bool(found)) => *place = *found,
            Some(_) => self.problem(&format!(".{member}"), "true or false"),
        }
    }

    fn text(&mut self, member: &str, place: &mut Option<String>) {
        match self.value.get(member) {
            None | Some(Value::Null) => {}
            Some(Value::String(found)) if !found.is_empty() => *place = Some(found.clone()),
            Some(_) => self.problem(&format!(".{member}"), "a text"),
        }
    }

    /// A whole number of 0 to `most`.
    fn size(&mut self, member: &str, most: u64, place: &mut u64) {
        match self.value.get(member) {
            Some(value) if value.as_u64() == Some(0) => *place = 0,
            _ => self.number(member, most, place),
        }
    }

    /// One of two words; whether it is the second.
    fn word(&mut self, member: &str, words: [&str; 2], place: &mut bool) {
        match self.value.get(member) {
            None | Some(Value::Null) => {}
            Some(Value::String(found)) if words.contains(&found.as_str()) => *place = found == words[1],
            Some(_) => self.problem(&format!(".{member}"), &format!("`{}` or `{}`", words[0], words[1])),
        }
    }

    /// A list of texts.
    fn texts(&mut self, member: &str, place: &mut Vec<String>) {
        let found = match self.value.get(member) {
            None | Some(Value::Null) => return,
            Some(Value::Array(found)) => found.iter().map(|one| one.as_str().map(str::to_owned)).collect(),
            Some(_) => None,
        };
        match found {
            Some(found) => *place = found,
            None => self.problem(&format!(".{member}"), "a list of texts"),
        }
    }

    /// A whole number of 1 to `most`.
    fn number(&mut self, member: &str, most: u64, place: &mut u64) {
        match self.value.get(member) {
            None | Some(Value::Null) => {}
            Some(value) => match value.as_u64().filter(|number| (1..=most).contains(number)) {
                Some(number) => *place = number,
                None if most == u64::MAX => {
                    self.problem(&format!(".{member}"), "a whole number of 1 or more");
                }
                None => self.problem(&format!(".{member}"), &format!("a whole number from 1 to {most}")),
            },
        }
    }
}

/// What `compaction` of the settings says (`enabled`, `reserveTokens`, `keepRecentTokens`, `mode`, and of the mode `safeguard`
/// `recentTurns`, `maxHistoryPercent`, `identifiers`, `qualityRetries`, `timeoutSeconds`), and for people what is wrong with it;
/// the defaults stand there. Other modes are not the engine's.
pub fn compaction_settings(settings: &Value) -> (CompactionSettings, Vec<String>) {
    let (mut found, mut section) = (CompactionSettings::default(), Section::of(settings, "compaction"));
    section.flag("enabled", &mut found.enabled);
    section.number("reserveTokens", u64::MAX, &mut found.reserve_tokens);
    section.number("keepRecentTokens", u64::MAX, &mut found.keep_recent_tokens);
    let (mut safeguard, mut is_off) = (Safeguard::default(), false);
    section.size("recentTurns", Safeguard::MOST_TURNS, &mut safeguard.recent_turns);
    section.number("maxHistoryPercent", 100, &mut safeguard.history_percent);
    section.word("identifiers", ["strict", "off"], &mut is_off);
    section.size("qualityRetries", Safeguard::MOST_RETRIES, &mut safeguard.quality_retries);
    section.number("timeoutSeconds", LONGEST_SUMMARY, &mut safeguard.timeout_seconds);
    safeguard.identifiers = if is_off { IdentifierRule::Off } else { IdentifierRule::Strict };
    let mode = section.value.get("mode").and_then(Value::as_str);
    found.safeguard = (mode == Some("safeguard")).then_some(safeguard);
    (found, section.problems)
}

impl HistorySettings {
    /// What `search` of the settings says (`tool`), and for people what is wrong with it. On by default.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let (mut found, mut section) = (Self { enabled: true }, Section::of(settings, "search"));
        section.flag("tool", &mut found.enabled);
        (found, section.problems)
    }
}

impl FileSettings {
    /// What `files` of the settings says (`enabled`, `fileBytes`, `runBytes`, `storeBytes`, `ignoredFiles`), and for people what is wrong with it; the
    /// defaults stand there.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let (mut found, mut section) = (Self::default(), Section::of(settings, "files"));
        section.flag("enabled", &mut found.enabled);
        section.number("fileBytes", 64 << 20, &mut found.file_bytes);
        section.number("runBytes", u64::MAX, &mut found.run_bytes);
        section.number("storeBytes", u64::MAX, &mut found.store_bytes);
        section.number("ignoredFiles", MOST_ENTRIES as u64, &mut found.ignored_files);
        (found, section.problems)
    }
}

impl IdentitySettings {
    /// What `identity` of the settings says (`file`), and for people what is wrong with it. Off by default.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let (mut found, mut section) = (Self::default(), Section::of(settings, "identity"));
        section.text("file", &mut found.file);
        (found, section.problems)
    }
}

impl TravelSettings {
    /// What `travel` of the settings says (`tools`), and for people what is wrong with it. Off by default.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let (mut found, mut section) = (Self::default(), Section::of(settings, "travel"));
        section.flag("tools", &mut found.tools);
        (found, section.problems)
    }
}

impl PublishSettings {
    /// What `publish` of the settings says (a list of names), and for people what is wrong with it; a name that is wrong is
    /// left out. No head by default.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let wanted = match settings.get("publish") {
            None | Some(Value::Null) => return Default::default(),
            Some(Value::Array(wanted)) => wanted,
            Some(_) => {
                let problem = "publish must be a list of names; no other program's head is moved.";
                return (Self::default(), vec![problem.into()]);
            }
        };
        let (mut found, mut problems) = (Self::default(), Vec::new());
        for (at, name) in wanted.iter().enumerate() {
            match name.as_str().filter(|name| Self::is_head(name)) {
                Some(name) if found.heads.iter().any(|head| head.as_str() == name) => {}
                Some(_) if found.heads.len() == Self::MOST => {
                    problems.push(format!("publish can name at most {} heads; the others are ignored.", Self::MOST));
                    break;
                }
                Some(name) => found.heads.push(name.into()),
                None => problems.push(format!(
                    "publish[{at}] must be the name of another program's head, such as \"PI_HEAD\" (letters, digits, \
                     `_`, `-`, `.`; not starting with `quipu`); it is ignored."
                )),
            }
        }
        (found, problems)
    }
}

/// What `context.expiry` of the settings says (`enabled`, `ttlSeconds`, `keepAnswers`, `softPercent`, `hardPercent`,
/// `trimCharacters`, `headCharacters`, `tailCharacters`, `clear`, `placeholder`, `minClearCharacters`, `allow`, `deny`), and for
/// people what is wrong with it; the defaults stand there. `None` where it is off, as it is by default.
pub fn cache_expiry_settings(settings: &Value) -> (Option<CacheExpiry>, Vec<String>) {
    let (mut found, mut section) = (CacheExpiry::default(), Section::of(settings, "context.expiry"));
    let (mut is_on, mut clears, mut placeholder) = (false, true, found.placeholder.clone());
    section.flag("enabled", &mut is_on);
    section.number("ttlSeconds", u64::MAX, &mut found.ttl_seconds);
    section.number("keepAnswers", u64::MAX, &mut found.keep_answers);
    section.number("softPercent", 100, &mut found.soft_percent);
    section.number("hardPercent", 100, &mut found.hard_percent);
    section.number("trimCharacters", u64::MAX, &mut found.trim_characters);
    section.size("headCharacters", u64::MAX, &mut found.head_characters);
    section.size("tailCharacters", u64::MAX, &mut found.tail_characters);
    section.flag("clear", &mut clears);
    section.text("placeholder", &mut placeholder);
    section.size("minClearCharacters", u64::MAX, &mut found.min_clear_characters);
    section.texts("allow", &mut found.tools.allow);
    section.texts("deny", &mut found.tools.deny);
    found.placeholder = placeholder.filter(|_| clears);
    (is_on.then_some(found), section.problems)
}

/// What `context.prune` of the settings says (`enabled`, `triggerPercent`, `clearAtLeastPercent`, `keepTurns`,
/// `minCharacters`), and for people what is wrong with it; the defaults stand there.
pub fn prune_settings(settings: &Value) -> (PruneSettings, Vec<String>) {
    let (mut found, mut section) = (PruneSettings::default(), Section::of(settings, "context.prune"));
    section.flag("enabled", &mut found.enabled);
    section.number("triggerPercent", 100, &mut found.trigger_percent);
    section.number("clearAtLeastPercent", 100, &mut found.clear_at_least_percent);
    section.number("keepTurns", u64::MAX, &mut found.keep_turns);
    section.number("minCharacters", u64::MAX, &mut found.min_characters);
    if settings.get("context").is_some_and(|context| !context.is_object() && !context.is_null()) {
        section.problems.push("context must be an object; its defaults are used.".into());
    }
    (found, section.problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings() {
        let default = CompactionSettings::default();
        let check = |text: &str, expect: CompactionSettings, wrong: &[&str]| {
            let (found, problems) = compaction_settings(&serde_json::from_str(text).expect("JSON"));
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
            CompactionSettings { enabled: false, reserve_tokens: 5, keep_recent_tokens: 7, safeguard: None },
            &[],
        );
        check(r#"{"compaction":[]}"#, default, &["compaction must be an object"]);
        let safeguard = Some(Safeguard::default());
        check(r#"{"compaction":{"mode":"safeguard"}}"#, CompactionSettings { safeguard, ..default }, &[]);
        let safeguard = Some(Safeguard {
            recent_turns: 0,
            history_percent: 40,
            identifiers: IdentifierRule::Off,
            quality_retries: 3,
            timeout_seconds: 60,
            ..Safeguard::default()
        });
        check(
            r#"{"compaction":{"mode":"safeguard","recentTurns":0,"maxHistoryPercent":40,"identifiers":"off",
               "qualityRetries":3,"timeoutSeconds":60}}"#,
            CompactionSettings { safeguard, ..default },
            &[],
        );
        check(
            r#"{"compaction":{"mode":"cover","recentTurns":13,"maxHistoryPercent":0,"identifiers":"some",
               "qualityRetries":4,"timeoutSeconds":0}}"#,
            default,
            &["recentTurns", "maxHistoryPercent", "identifiers", "qualityRetries", "timeoutSeconds"],
        );
        check(
            r#"{"compaction":{"enabled":1,"reserveTokens":0,"keepRecentTokens":"9"}}"#,
            default,
            &["compaction.enabled", "compaction.reserveTokens", "compaction.keepRecentTokens"],
        );
    }

    #[test]
    fn history() {
        let check = |text: &str, enabled: bool, wrong: &[&str]| {
            let (found, problems) = HistorySettings::of_json(&serde_json::from_str(text).expect("JSON"));
            assert_eq!((found.enabled, problems.len()), (enabled, wrong.len()), "{text}: {problems:?}");
            assert!(
                problems.iter().zip(wrong).all(|(problem, wrong)| problem.starts_with(wrong)),
                "{problems:?}"
            );
        };
        check("{}", true, &[]);
        check(r#"{"search":{"tool":false}}"#, false, &[]);
        check(r#"{"search":{"tool":"no"}}"#, true, &["search.tool must be true or false"]);
        check(r#"{"search":7}"#, true, &["search must be an object"]);
        assert!(!HistorySettings::default().enabled);
    }

    #[test]
    fn identity() {
        let check = |text: &str, file: Option<&str>, wrong: &[&str]| {
            let (found, problems) = IdentitySettings::of_json(&serde_json::from_str(text).expect("JSON"));
            assert_eq!((found.file.as_deref(), problems.len()), (file, wrong.len()), "{text}: {problems:?}");
            assert!(
                problems.iter().zip(wrong).all(|(problem, wrong)| problem.starts_with(wrong)),
                "{problems:?}"
            );
        };
        check("{}", None, &[]);
        check(r#"{"identity":{"file":"me.md"}}"#, Some("me.md"), &[]);
        check(r#"{"identity":{"file":""}}"#, None, &["identity.file must be a text"]);
        check(r#"{"identity":"me.md"}"#, None, &["identity must be an object"]);
    }

    #[test]
    fn files() {
        let check = |text: &str, expect: FileSettings, wrong: &[&str]| {
            let (found, problems) = FileSettings::of_json(&serde_json::from_str(text).expect("JSON"));
            assert_eq!((found, problems.len()), (expect, wrong.len()), "{text}: {problems:?}");
            assert!(
                problems.iter().zip(wrong).all(|(problem, wrong)| problem.starts_with(wrong)),
                "{problems:?}"
            );
        };
        let default = FileSettings::default();
        check("{}", default, &[]);
        check(
            r#"{"files":{"enabled":false,"fileBytes":5,"runBytes":6,"storeBytes":7,"ignoredFiles":8}}"#,
            FileSettings { enabled: false, file_bytes: 5, run_bytes: 6, store_bytes: 7, ignored_files: 8 },
            &[],
        );
        check(r#"{"files":{"fileBytes":100000000}}"#, default, &["files.fileBytes"]);
        check(r#"{"files":7}"#, default, &["files must be an object"]);
    }

    #[test]
    fn published_heads() {
        let check = |text: &str, expect: &[&str], wrong: &[&str]| {
            let (found, problems) = PublishSettings::of_json(&serde_json::from_str(text).expect("JSON"));
            let heads: Vec<&str> = found.heads.iter().map(quipu_store::RefName::as_str).collect();
            assert_eq!((&heads[..], problems.len()), (expect, wrong.len()), "{text}: {problems:?}");
            assert!(
                problems.iter().zip(wrong).all(|(found, start)| found.starts_with(start)),
                "{problems:?}"
            );
        };
        for nothing in ["{}", r#"{"publish":null}"#, r#"{"publish":[]}"#, "null"] {
            check(nothing, &[], &[]);
        }
        check(r#"{"publish":["PI_HEAD","terminal_head","PI_HEAD"]}"#, &["PI_HEAD", "terminal_head"], &[]);
        check(r#"{"publish":"PI_HEAD"}"#, &[], &["publish must be a list"]);
        check(
            r#"{"publish":["quipu_head","pi/1","","QUIPU","a b",7,"Kopf_ä","fine"]}"#,
            &["fine"],
            &[
                "publish[0]",
                "publish[1]",
                "publish[2]",
                "publish[3]",
                "publish[4]",
                "publish[5]",
                "publish[6]",
            ],
        );
        let many: Vec<String> = (0..20).map(|n| format!("head{n}")).collect();
        let (found, problems) = PublishSettings::of_json(&serde_json::json!({ "publish": many }));
        assert_eq!((found.heads.len(), problems.len()), (16, 1), "{problems:?}");
    }

    #[test]
    fn pruning() {
        let default = PruneSettings::default();
        assert!(!default.enabled);
        let check = |text: &str, expect: PruneSettings, wrong: &[&str]| {
            let (found, problems) = prune_settings(&serde_json::from_str(text).expect("JSON"));
            assert_eq!(found, expect, "{text}");
            assert_eq!(problems.len(), wrong.len(), "{problems:?}");
            for (problem, member) in problems.iter().zip(wrong) {
                assert!(problem.starts_with(member), "{problem}");
            }
        };
        check(r#"{"context":{}}"#, default, &[]);
        check(
            r#"{"context":{"prune":{"enabled":true,"triggerPercent":30,"clearAtLeastPercent":5,"keepTurns":2,
               "minCharacters":9000}}}"#,
            PruneSettings {
                enabled: true,
                trigger_percent: 30,
                clear_at_least_percent: 5,
                keep_turns: 2,
                min_characters: 9_000,
            },
            &[],
        );
        check(r#"{"context":7}"#, default, &["context must be an object"]);
        check(r#"{"context":{"prune":true}}"#, default, &["context.prune must be an object"]);
        check(
            r#"{"context":{"prune":{"enabled":"on","triggerPercent":101,"keepTurns":0,"minCharacters":-1}}}"#,
            default,
            &[
                "context.prune.enabled",
                "context.prune.triggerPercent",
                "context.prune.keepTurns",
                "context.prune.minCh",
            ],
        );
    }

    #[test]
    fn cache_expiry() {
        let check = |text: &str, expect: Option<CacheExpiry>, wrong: &[&str]| {
            let (found, problems) = cache_expiry_settings(&serde_json::from_str(text).expect("JSON"));
            assert_eq!((found, problems.len()), (expect, wrong.len()), "{text}: {problems:?}");
            for (problem, member) in problems.iter().zip(wrong) {
                assert!(problem.starts_with(&format!("context.expiry.{member}")), "{problem}");
            }
        };
        check("{}", None, &[]);
        let default = CacheExpiry::default();
        check(r#"{"context":{"expiry":{"enabled":true}}}"#, Some(default.clone()), &[]);
        check(
            r#"{"context":{"expiry":{"enabled":true,"ttlSeconds":60,"headCharacters":0,"clear":false,
               "placeholder":"gone","deny":["read"]}}}"#,
            Some(CacheExpiry {
                ttl_seconds: 60,
                head_characters: 0,
                placeholder: None,
                tools: crate::ToolGlobs { deny: vec!["read".into()], ..Default::default() },
                ..default
            }),
            &[],
        );
        check(
            r#"{"context":{"expiry":{"ttlSeconds":0,"keepAnswers":0,"softPercent":101,"placeholder":"","allow":[1]}}}"#,
            None,
            &["ttlSeconds", "keepAnswers", "softPercent", "placeholder", "allow"],
        );
    }

    #[test]
    fn thresholds() {
        let settings = CompactionSettings::default();
        assert_eq!(settings.threshold(200_000), Some(183_616));
        assert_eq!((settings.threshold(8_000), settings.threshold(0)), (Some(6_000), None));
        assert_eq!(CompactionSettings { enabled: false, ..settings }.threshold(8_000), None);
    }
}
