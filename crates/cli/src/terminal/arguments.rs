//! What may follow the commands of the terminal, and the settings that it keeps.

use quipu::Engine;
use quipu_protocol::NodeId;
use quipu_store::Graph;
use quipu_tui::editor::Candidate;

use crate::exit::Failure;
use crate::print::{one_line, printable};
use quipu_host::{KeptSetting, Place, Setting, SettingError, Steps, Suggestion};

/// Columns of a value.
const WIDTH: usize = 60;

pub(super) fn candidate(suggestion: Suggestion) -> Candidate {
    let Suggestion { text, name, detail } = suggestion;
    // What is written is written as it is.
    let text = if name.is_empty() { text } else { printable(&text) };
    Candidate { text, written: name, detail: printable(&detail), ..Candidate::default() }
}

fn candidates(suggestions: Vec<Suggestion>) -> Vec<Candidate> {
    suggestions.into_iter().map(candidate).collect()
}

pub(super) fn offered(text: &str, detail: String) -> Candidate {
    Candidate { text: text.to_owned(), detail, ..Candidate::default() }
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
        "import" => return Some(candidates(quipu_host::suggested_agents())),
        "login" => return Some(candidates(quipu_host::suggested_providers(place))),
        "settings" => return Some(quipu_host::current_settings(place).iter().flat_map(rows).collect()),
        _ => return None,
    };
    Some(words.iter().map(|(text, detail)| offered(text, (*detail).to_owned())).collect())
}

/// A setting, once for each value that it may have.
fn rows((Setting { name, values, help }, value): &(Setting, Option<String>)) -> Vec<Candidate> {
    let detail = |shown: &str| match value {
        Some(value) if value == shown => format!("{help} (it is so)"),
        Some(value) if shown.is_empty() => format!("{help}; now {}", one_line(value, WIDTH)),
        _ => (*help).to_owned(),
    };
    if values.is_empty() {
        return vec![offered(name, detail(""))];
    }
    values.iter().map(|one| offered(&format!("{name} {one}"), detail(one))).collect()
}

/// Keeps a setting, and leaves all others as they are.
pub(super) fn set(place: &Place, setting: &str) -> Result<String, Failure> {
    let Some((name, value)) = setting.trim().split_once(char::is_whitespace) else {
        return Err(Failure::usage(
            "name the setting and its value, such as `/settings compaction.enabled false`",
        ));
    };
    let KeptSetting { setting, value, path } =
        quipu_host::keep_setting(place, name, value.trim()).map_err(not_kept)?;
    let mut told = format!("{} is {value} now, in {}", setting.name, path.display());
    if matches!(setting.name, "search.tool" | "travel.tools") && value == true {
        told.push_str("; a session that began without these tools goes on without them");
    }
    Ok(told)
}

fn not_kept(error: SettingError) -> Failure {
    match error {
        SettingError::Unknown(name) => {
            Failure::usage(format!("`{name}` is none of the settings that `/settings` lists"))
        }
        SettingError::NotANumber(setting) => Failure::usage(format!("{} must be a number", setting.name)),
        SettingError::NotAValue(setting) => {
            Failure::usage(format!("{} must be one of: {}", setting.name, setting.values.join(", ")))
        }
        SettingError::Unreadable(path) => {
            Failure::usage(format!("{} cannot be read as JSON; mend it first", path.display()))
        }
        SettingError::Io(error) => error.into(),
    }
}

/// Steps back or forward, by number: what each is, and what the session stands at then.
pub(super) async fn steps(
    engine: &Engine,
    command: &str,
    head: Option<NodeId>,
) -> Result<Vec<Candidate>, Failure> {
    let which = if command == "undo" { Steps::Undo } else { Steps::Redo };
    Ok(candidates(quipu_host::suggested_steps(engine, which, head).await?))
}

/// What may follow that is in the store.
pub(super) async fn stored(
    store: &dyn Graph,
    command: &str,
    head: Option<NodeId>,
) -> Result<Vec<Candidate>, Failure> {
    let found = match (command, head) {
        ("resume", _) => quipu_host::suggested_sessions(store).await?,
        ("bookmark", _) => quipu_host::suggested_bookmarks(store).await?,
        ("label", Some(head)) => quipu_host::suggested_labels(store, head).await?,
        ("fork" | "recall" | "life" | "diff", Some(head)) => {
            quipu_host::suggested_nodes(store, head, command == "diff").await?
        }
        _ => Vec::new(),
    };
    Ok(candidates(found))
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_setting_is_in_the_table_of_the_tests() {
        let table = include_str!("../../tests/it/live_settings.rs");
        for quipu_host::Setting { name, .. } in quipu_host::SETTINGS {
            assert!(table.contains(&format!("name: \"{name}\"")), "{name} has no row in live_settings.rs");
        }
    }
}
