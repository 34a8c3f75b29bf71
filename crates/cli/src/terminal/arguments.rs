//! What may follow the commands of the terminal, and the settings that it keeps.

use std::collections::HashMap;
use std::io::Write as _;

use quipu::{Engine, TimeStep};
use quipu_protocol::{Model, NodeId};
use quipu_store::{Graph, SessionQuery};
use quipu_tui::editor::Candidate;
use serde_json::Value;

use crate::exit::Failure;
use crate::print::{Paint, ago, one_line};
use quipu_host::{Place, now};

/// Columns of a row's text.
const WIDTH: usize = 60;
/// Sessions, messages and labels that are offered at most.
const OFFERED: usize = 500;
/// Steps of undo and redo that are offered.
const STEPS: usize = 20;

/// A setting: its name, the values that it may have (none for a number), and what it is for.
type Setting = (&'static str, &'static [&'static str], &'static str);

const SETTINGS: &[Setting] = &[
    ("theme", &["dark", "light"], "colours of the terminal"),
    ("cacheRetention", &["none", "short", "long"], "how long providers keep what was sent"),
    ("compaction.enabled", ON_OR_OFF, "sum the context up before it is full"),
    ("compaction.reserveTokens", &[], "tokens kept free for the answer"),
    ("compaction.keepRecentTokens", &[], "tokens of the newest conversation that stay"),
    ("context.prune.enabled", ON_OR_OFF, "leave old results of tools out of requests"),
    ("search.tool", ON_OR_OFF, "the model can search what was done before"),
    ("travel.tools", ON_OR_OFF, "models of new sessions can look at the graph and go back in it"),
    ("files.enabled", ON_OR_OFF, "keep what files were before tools changed them"),
    ("budget.daily", &[], "US dollars for all sessions of a day"),
    ("retry.enabled", ON_OR_OFF, "try again what failed for a moment"),
    ("retry.maxRetries", &[], "how often"),
];
const ON_OR_OFF: &[&str] = &["true", "false"];

pub(super) fn model(model: &Model) -> Candidate {
    offered(format!("{}/{}", model.provider, model.id), String::new(), model.name.clone())
}

fn offered(text: String, written: String, detail: String) -> Candidate {
    Candidate { text, written, detail, ..Candidate::default() }
}

/// What may follow without a look into the store; `None` for a command that needs one.
pub(super) fn known(place: &Place, command: &str) -> Option<Vec<Candidate>> {
    let words: &[(&str, &str)] = match command {
        "export" => &[
            ("markdown", "to read"),
            ("html", "one page with its branches"),
            ("json", "every node, for programs"),
            ("pi", "a session file of that format"),
        ],
        "permissions" => &[
            ("list", "what holds in each directory"),
            ("ask", "ask before commands and changes"),
            ("workspace", "work in the directory without asking"),
            ("full", "nothing is asked"),
            ("revoke", "take back what was allowed for good"),
        ],
        "usage" => &[
            ("--by day", "calendar days"),
            ("--by project", "directories"),
            ("--by model", "models"),
            ("--by agent", "programs"),
            ("--by session", "sessions"),
            ("--since 1d", "the last day"),
            ("--since 1w", "the last week"),
        ],
        "import" => {
            let name =
                |agent: &quipu_archive::Agent| offered(agent.name.into(), String::new(), String::new());
            return Some(quipu_archive::AGENTS.iter().map(name).collect());
        }
        "login" => {
            let settings = place.settings();
            let one = |id: &str| {
                let has = settings.credential_source(id).map(|source| format!("has one: {source}"));
                offered(id.to_owned(), String::new(), has.unwrap_or_default())
            };
            return Some(settings.providers().into_iter().map(one).collect());
        }
        "settings" => {
            let now = place.settings_json().unwrap_or_default();
            return Some(SETTINGS.iter().flat_map(|setting| rows(&now, setting)).collect());
        }
        _ => return None,
    };
    let word = |(text, detail): &(&str, &str)| offered((*text).into(), String::new(), (*detail).into());
    Some(words.iter().map(word).collect())
}

/// A setting, once for each value that it may have.
fn rows(now: &Value, (name, values, help): &Setting) -> Vec<Candidate> {
    let value = name.split('.').try_fold(now, |value, member| value.get(member));
    let value = value.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let detail = |shown: &str| match &value {
        Some(value) if value == shown => format!("{help} (it is so)"),
        Some(value) if shown.is_empty() => format!("{help}; now {}", one_line(value, WIDTH)),
        _ => (*help).to_owned(),
    };
    if values.is_empty() {
        return vec![offered((*name).into(), String::new(), detail(""))];
    }
    values.iter().map(|one| offered(format!("{name} {one}"), String::new(), detail(one))).collect()
}

/// Keeps a setting, and leaves all others as they are.
pub(super) fn set(place: &Place, setting: &str) -> Result<String, Failure> {
    let Some((name, value)) = setting.trim().split_once(char::is_whitespace) else {
        return Err(Failure::usage(
            "name the setting and its value, such as `/settings compaction.enabled false`",
        ));
    };
    let value = value.trim();
    let Some((_, values, _)) = SETTINGS.iter().find(|(known, ..)| *known == name) else {
        return Err(Failure::usage(format!("`{name}` is none of the settings that `/settings` lists")));
    };
    let value = match (values.is_empty(), serde_json::from_str::<Value>(value)) {
        (true, Ok(number @ Value::Number(_))) => number,
        (true, _) => return Err(Failure::usage(format!("{name} must be a number"))),
        (false, Ok(flag @ Value::Bool(_))) if *values == ON_OR_OFF => flag,
        // A theme of the user's own has a name that is not known here.
        (false, _) if name == "theme" || values.contains(&value) => Value::from(value),
        (false, _) => return Err(Failure::usage(format!("{name} must be one of: {}", values.join(", ")))),
    };
    let path = place.home.join("settings.json");
    let broken = || Failure::usage(format!("{} cannot be read as JSON; mend it first", path.display()));
    let mut settings = place.settings_json().map_err(|_| broken())?;
    if settings.is_null() {
        settings = Value::Object(serde_json::Map::new());
    }
    let mut told = format!("{name} is {value} now, in {}", path.display());
    if let ("search.tool" | "travel.tools", Value::Bool(true)) = (name, &value) {
        told.push_str("; a session that began without these tools goes on without them");
    }
    let mut at = &mut settings;
    for member in name.split('.') {
        let Value::Object(members) = at else { return Err(broken()) };
        at = members.entry(member).or_insert_with(|| Value::Object(serde_json::Map::new()));
    }
    *at = value;
    // In one step: whoever reads it meanwhile reads all of the old one.
    let path = std::fs::canonicalize(&path).unwrap_or(path);
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(&place.home))?;
    writeln!(file, "{settings:#}")?;
    if let Ok(old) = std::fs::metadata(&path) {
        file.as_file().set_permissions(old.permissions())?;
    }
    file.as_file().sync_all()?;
    file.persist(&path).map_err(|error| error.error)?;
    Ok(told)
}

/// Steps back or forward, by number: what each is, and what the session stands at then.
pub(super) async fn steps(
    engine: &Engine,
    command: &str,
    head: Option<NodeId>,
) -> Result<Vec<Candidate>, Failure> {
    let Some(head) = head else { return Ok(Vec::new()) };
    let store = &**engine.store();
    let Some(session) = store.sessions_of(&[head]).await?.into_iter().flatten().next() else {
        return Ok(Vec::new());
    };
    let steps = match command {
        "undo" => engine.undoable(&session, STEPS).await?,
        _ => engine.redoable(&session, STEPS).await?,
    };
    let ends: Vec<NodeId> = steps.iter().filter_map(|step| step.to).collect();
    let nodes: Vec<_> = store.nodes(&ends).await?.into_iter().flatten().collect();
    let decoded = quipu_store::decode_nodes(store, &nodes).await?;
    let says: HashMap<NodeId, String> = nodes
        .iter()
        .zip(decoded)
        .map(|(node, decoded)| (node.id, crate::tree::preview(&decoded.entry, Paint::none(), WIDTH)))
        .collect();
    let row = |(at, step): (usize, &TimeStep)| {
        let end = match step.to {
            Some(to) => format!("to {} {}", to.short(), says.get(&to).map_or("", String::as_str)),
            None => "the session is not there then".to_owned(),
        };
        offered((at + 1).to_string(), String::new(), format!("{}, {end}", step.what))
    };
    Ok(steps.iter().enumerate().map(row).collect())
}

/// What may follow that is in the store.
pub(super) async fn stored(
    store: &dyn Graph,
    command: &str,
    head: Option<NodeId>,
) -> Result<Vec<Candidate>, Failure> {
    let now = now();
    match command {
        "resume" => {
            let query = SessionQuery { limit: Some(OFFERED), ..SessionQuery::default() };
            let rows = store.sessions(query).await?.into_iter().filter(|row| row.head.is_some());
            let one = |row: quipu_store::SessionRow| {
                let title = if row.called.is_empty() { &row.title } else { &row.called };
                let detail = format!("{} · {}", ago(now, row.updated), one_line(&row.cwd, WIDTH));
                offered(one_line(title, WIDTH), row.id.to_string(), detail)
            };
            Ok(rows.map(one).collect())
        }
        "bookmark" => {
            let heads = store.heads(quipu_store::BOOKMARK).await?;
            let name = |head: &quipu_store::Head| {
                let name = head.name.bookmarked()?;
                Some(offered(name.into(), String::new(), head.node.short()))
            };
            Ok(heads.iter().filter_map(name).collect())
        }
        "fork" | "recall" | "life" | "diff" | "label" => {
            let Some(head) = head else { return Ok(Vec::new()) };
            let session = store.sessions_of(&[head]).await?.into_iter().flatten().next();
            let labels = match &session {
                Some(session) => store.labels(std::slice::from_ref(session)).await?,
                None => Vec::new(),
            };
            if command == "label" {
                let mut texts: Vec<String> = labels.into_iter().map(|label| label.text).collect();
                texts.sort_unstable();
                texts.dedup();
                return Ok(texts
                    .into_iter()
                    .map(|text| offered(text, String::new(), String::new()))
                    .collect());
            }
            let mut found = Vec::new();
            for label in labels.into_iter().take(OFFERED) {
                let Some(target) = label.target else { continue };
                found.push(offered(
                    one_line(&label.text, WIDTH),
                    target.to_string(),
                    format!("label of {}", target.short()),
                ));
            }
            for (node, said) in super::rows::said(store, head).await?.into_iter().take(OFFERED) {
                found.push(offered(one_line(&said, WIDTH), node.to_string(), node.short()));
            }
            if let (Some(session), "diff") = (session, command) {
                // The ends of its branches.
                for end in store.landmarks(&[session], 50).await? {
                    let text = format!("branch that ends with {}", end.node.short());
                    found.push(offered(text, end.node.to_string(), String::new()));
                }
            }
            Ok(found)
        }
        _ => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_in_the_table_of_the_tests() {
        let table = include_str!("../../tests/it/live_settings.rs");
        for (name, ..) in SETTINGS {
            assert!(table.contains(&format!("name: \"{name}\"")), "{name} has no row in live_settings.rs");
        }
    }
}
