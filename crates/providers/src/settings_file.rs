//! `settings.json`: what of it concerns model calls. Other members belong to others and are left alone.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::local::{self, LocalEndpoint};
use crate::warning::Warning;
use crate::{CacheRetention, CallOptions, WebSearch, net};

/// Bytes of `settings.json` at most.
const MAX_BYTES: u64 = 1 << 20;
/// A silence that no call outlives: how a limit is turned off.
const UNLIMITED: Duration = Duration::from_secs(365 * 24 * 3600);

/// What settings say of calls of models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSettings {
    /// The patience of calls, and how much is thought and kept by servers.
    pub options: CallOptions,
    /// Where model servers on this machine are looked for.
    pub(crate) local: Arc<[LocalEndpoint]>,
    /// Ids of keys, in the order in which those of one provider are tried.
    pub(crate) key_order: Arc<Vec<String>>,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self { options: CallOptions::default(), local: local::places().into(), key_order: Arc::default() }
    }
}

impl CallSettings {
    /// What the settings say (`retry`, `httpIdleTimeoutMs`, `thinkingBudgets`, `cacheRetention`, `proxyLocalServers`,
    /// `localServers`, `keyOrder`, `webSearch`), and for people what is wrong with it; the defaults stand there.
    pub fn of_json(settings: &Value) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let local = local_places(settings, |problem| problems.push(problem));
        let options = options(settings, |problem| problems.push(problem));
        let key_order = key_order(settings, |problem| problems.push(problem));
        (Self { options, local: local.into(), key_order: Arc::new(key_order) }, problems)
    }
}

/// What the file asks for. A file that is not there asks for nothing; what is wrong is warned of and left at its
/// default.
pub(crate) fn read(path: &Path, warnings: &mut Vec<Warning>) -> CallSettings {
    let Some(parsed) = parse(path, warnings) else { return CallSettings::default() };
    let (settings, problems) = CallSettings::of_json(&parsed);
    warnings.extend(problems.iter().map(|problem| Warning(format!("{}: {problem}", path.display()))));
    settings
}

fn local_places(parsed: &Value, mut warn: impl FnMut(String)) -> Vec<LocalEndpoint> {
    let mut local = local::places().to_vec();
    match parsed.get("localServers") {
        None | Some(Value::Null) => {}
        Some(Value::Bool(false)) => local.clear(),
        Some(Value::Object(servers)) => {
            for (id, url) in servers {
                local.retain(|place| place.id != *id || url.is_string());
                let is_here = |url: &str| {
                    let host = reqwest::Url::parse(url).ok();
                    host.is_some_and(|url| net::is_loopback(url.host_str().unwrap_or_default()))
                };
                match (url, local.iter_mut().find(|place| place.id == *id)) {
                    (Value::Null | Value::Bool(false), _) => {}
                    (Value::String(url), _) if !is_here(url) => warn(format!(
                        "localServers.{id} must be the URL of a server on this machine, such as \
                         \"http://127.0.0.1:8000/v1\"; put others into models.json."
                    )),
                    (Value::String(url), Some(place)) => place.url.clone_from(url),
                    (Value::String(url), None) => {
                        local.push(LocalEndpoint { id: id.clone(), name: id.clone(), url: url.clone() });
                    }
                    (_, _) => warn(format!("localServers.{id} must be a URL, or null for none.")),
                }
            }
        }
        Some(_) => warn("localServers must be an object of URLs, or false; its default is used.".into()),
    }
    local
}

fn key_order(parsed: &Value, mut warn: impl FnMut(String)) -> Vec<String> {
    match parsed.get("keyOrder") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(ids)) => {
            let text = |id: &Value| id.as_str().filter(|id| !id.is_empty()).map(String::from);
            let found: Vec<String> = ids.iter().filter_map(text).collect();
            if found.len() != ids.len() {
                warn(
                    "keyOrder must be a list of keys, such as [\"PROVIDER:NAME\"]; other items are ignored."
                        .into(),
                );
            }
            found
        }
        Some(_) => {
            warn("keyOrder must be a list of keys, such as [\"PROVIDER:NAME\"]; its default is used.".into());
            Vec::new()
        }
    }
}

fn parse(path: &Path, warnings: &mut Vec<Warning>) -> Option<Value> {
    let name = path.display();
    let mut warn = |problem: String| warnings.push(Warning(format!("{name}: {problem}")));
    let file = match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => Err(error),
        Ok(metadata) if !metadata.is_file() => Err(std::io::Error::other("it is not a regular file")),
        Ok(metadata) if metadata.len() > MAX_BYTES => Err(std::io::Error::other("it is larger than 1 MiB")),
        Ok(_) => File::open(path),
    };
    let mut text = String::new();
    if let Err(error) = file.and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)) {
        warn(format!("it cannot be read ({error}); the defaults are used."));
        return None;
    }
    match serde_json::from_str(text.trim_start_matches('\u{feff}')) {
        Ok(parsed) => Some(parsed),
        Err(error) => {
            let place = format!("line {}, column {}", error.line(), error.column());
            warn(format!("it is not JSON ({place}); the defaults are used."));
            None
        }
    }
}

fn options(parsed: &Value, mut warn: impl FnMut(String)) -> CallOptions {
    let mut options = CallOptions::default();
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
    let budgets = &mut options.budgets;
    for (level, budget) in [
        ("minimal", &mut budgets.minimal),
        ("low", &mut budgets.low),
        ("medium", &mut budgets.medium),
        ("high", &mut budgets.high),
    ] {
        *budget = number(&format!("/thinkingBudgets/{level}")).unwrap_or(*budget);
    }
    match parsed.get("proxyLocalServers") {
        Some(Value::Bool(true)) => options.local = net::LocalRoute::Proxied,
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(_) => warn("proxyLocalServers must be true or false; its default is used.".into()),
    }
    match parsed.get("webSearch") {
        Some(Value::Bool(true)) => options.web_search = WebSearch::On,
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(_) => warn("webSearch must be true or false; its default is used.".into()),
    }
    match parsed.get("cacheRetention").map(|it| it.as_str().unwrap_or_default()) {
        None | Some("short") => {}
        Some("long") => options.cache = CacheRetention::Long,
        Some("none") => options.cache = CacheRetention::Off,
        Some(_) => {
            warn("cacheRetention must be \"short\", \"long\" or \"none\"; its default is used.".into());
        }
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
        assert_eq!(&read(&path, &mut warnings).options, expect, "{text}");
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
        let proxied = CallOptions { local: net::LocalRoute::Proxied, ..default() };
        check(r#"{"proxyLocalServers":true}"#, &proxied, "");
        check(r#"{"proxyLocalServers":1}"#, &default(), "proxyLocalServers");
        let budgets = crate::ThinkingBudgets { low: 5_000, ..crate::ThinkingBudgets::default() };
        let low = CallOptions { budgets, ..default() };
        check(r#"{"thinkingBudgets":{"low":5000}}"#, &low, "");
        check(r#"{"thinkingBudgets":{"low":5000,"high":-1}}"#, &low, "thinkingBudgets.high");
        let cached = |cache| CallOptions { cache, ..default() };
        check(r#"{"cacheRetention":"short"}"#, &default(), "");
        check(r#"{"cacheRetention":"long"}"#, &cached(CacheRetention::Long), "");
        check(r#"{"cacheRetention":"none"}"#, &cached(CacheRetention::Off), "");
        check(r#"{"cacheRetention":60}"#, &default(), "cacheRetention");
        let searching = CallOptions { web_search: WebSearch::On, ..default() };
        check(r#"{"webSearch":true}"#, &searching, "");
        check(r#"{"webSearch":false}"#, &default(), "");
        check(r#"{"webSearch":"on"}"#, &default(), "webSearch");
        check(r#"{"retry":{"enabled":"no"}}"#, &default(), "retry.enabled");
        check("{", &default(), "not JSON");
        check("[]", &default(), "");
    }

    #[test]
    fn local_servers_are_looked_for_where_the_file_says() {
        let urls = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("settings.json");
            std::fs::write(&path, text).unwrap();
            let mut warnings = Vec::new();
            let places = read(&path, &mut warnings).local;
            let places: Vec<_> = places.iter().map(|place| (place.id.clone(), place.url.clone())).collect();
            (places, warnings.len())
        };
        let usual = urls("{}").0;
        assert_eq!(usual[0].0, "ollama");
        assert_eq!(urls(r#"{"localServers":false}"#), (vec![], 0));
        assert_eq!(urls(r#"{"localServers":7}"#), (usual.clone(), 1));
        let mut expect: Vec<_> = usual.iter().filter(|(id, _)| id != "lmstudio").cloned().collect();
        expect[0].1 = "http://localhost:1/v1".to_owned();
        expect.push(("mine".to_owned(), "http://127.0.0.1:2".to_owned()));
        let text = r#"{"localServers":{"ollama":"http://localhost:1/v1","lmstudio":null,"mine":"http://127.0.0.1:2",
            "far":"http://10.0.0.1/v1","odd":[]}}"#;
        assert_eq!(urls(text), (expect, 2));
    }
}
