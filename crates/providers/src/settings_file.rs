//! `settings.json`: what of it concerns model calls. Other members belong to others and are left alone.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::CallOptions;
use crate::settings::Warning;

/// Bytes of `settings.json` at most.
const MAX_BYTES: u64 = 1 << 20;
/// A silence that no call outlives: how a limit is turned off.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

/// The patience of calls that the file asks for. A file that is not there asks for nothing; what is wrong is
/// warned of and left at its default.
pub(crate) fn read(path: &Path, warnings: &mut Vec<Warning>) -> CallOptions {
    let mut options = CallOptions::default();
    let name = path.display();
    let mut warn = |problem: String| warnings.push(Warning(format!("{name}: {problem}")));
    let file = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return options,
        Err(error) => Err(error),
        Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("it is not a regular file")),
        Ok(metadata) if metadata.len() > MAX_BYTES => Err(std::io::Error::other("it is larger than 1 MiB")),
        Ok(_) => File::open(path),
    };
    let mut text = String::new();
    if let Err(error) = file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)) {
        warn(format!("it cannot be read ({error}); the defaults are used."));
        return options;
    }
    let parsed: Value = match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(parsed) => parsed,
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            warn(format!("it is not JSON ({place}); the defaults are used."));
            return options;
        }
    };
    let mut number = |pointer: &str| match parsed.pointer(pointer) {
        None | Some(Value::Null) => None,
        Some(value) => {
            let number = value.as_u64();
            if number.is_none() {
                let member = pointer.trim_start_matches('/').replace('/', ".");
                warn(format!("{member} must be a whole number of 0 or more; its default is used."));
            }
            number
        }
    };
    if let Some(times) = number("/retry/maxRetries") {
        options.max_retries = u32::try_from(times).unwrap_or(u32::MAX);
    }
    if let Some(delay) = number("/retry/baseDelayMs") {
        options.base_delay = Duration::from_millis(delay);
    }
    if let Some(delay) = number("/retry/provider/maxRetryDelayMs") {
        options.max_delay = Duration::from_millis(delay);
    }
    if let Some(silence) = number("/httpIdleTimeoutMs") {
        options.idle_timeout =
            if silence == 0 { UNLIMITED } else { Duration::from_millis(silence).min(UNLIMITED) };
    }
    match parsed.pointer("/retry/enabled") {
        Some(Value::Bool(false)) => options.max_retries = 0,
        None | Some(Value::Null | Value::Bool(true)) => {}
        Some(_) => warn("retry.enabled must be true or false; its default is used.".into()),
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &CallOptions, complaint: &str) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("settings.json");
        std::fs::write(&path, text).unwrap();
        let mut warnings = Vec::new();
        assert_eq!(&read(&path, &mut warnings), expect, "{text}");
        let told = warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert_eq!(complaint.is_empty(), told.is_empty(), "{told}");
        assert!(told.contains(complaint) && (told.is_empty() || told.contains("settings.json")), "{told}");
    }

    #[test]
    fn calls_are_as_patient_as_the_file_says() {
        let default = CallOptions::default;
        let ms = Duration::from_millis;
        check("{}", &default(), "");
        check("\u{feff}{\"theme\":\"dark\",\"retry\":null}", &default(), "");
        check(
            r#"{"retry":{"maxRetries":5,"baseDelayMs":10,"provider":{"maxRetryDelayMs":20}},"httpIdleTimeoutMs":30}"#,
            &CallOptions {
                max_retries: 5,
                base_delay: ms(10),
                max_delay: ms(20),
                idle_timeout: ms(30),
                ..default()
            },
            "",
        );
        check(r#"{"retry":{"enabled":false}}"#, &CallOptions { max_retries: 0, ..default() }, "");
        check(r#"{"httpIdleTimeoutMs":0}"#, &CallOptions { idle_timeout: UNLIMITED, ..default() }, "");
        check(
            r#"{"retry":{"maxRetries":-1,"baseDelayMs":1}}"#,
            &CallOptions { base_delay: ms(1), ..default() },
            "retry.maxRetries",
        );
        check(r#"{"retry":{"enabled":"no"}}"#, &default(), "retry.enabled");
        check("{", &default(), "not JSON");
        check("[]", &default(), "");
    }
}
