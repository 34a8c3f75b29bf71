//! What may follow the commands of the terminal, and the settings that it keeps.

use quipu::Engine;
use quipu_protocol::NodeId;
use quipu_store::Graph;
use quipu_tui::editor::Candidate;
use serde_json::Value;

use crate::config::{failure, in_words, origin};
use crate::exit::Failure;
use crate::print::{one_line, printable};
use quipu_host::settings::{SettingsFile, StoredSetting, set_setting};
use quipu_host::{Home, SettingRow, Settings, Steps, Suggestion};

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
pub(super) fn known(home: &Home, command: &str) -> Option<Vec<Candidate>> {
    let words: &[(&str, &str)] = match command {
        "export" => &[
            ("markdown", "a document to read"),
            ("html", "one page with its branches"),
            ("json", "every node, for programs"),
            ("pi", "a session file of that format"),
        ],
        "permissions" => &[
            ("list", "the permissions of each directory"),
            ("ask", "ask before commands and changes"),
            ("workspace", "work in the directory without asking"),
            ("full", "never ask"),
            ("revoke", "take back a permission"),
        ],
        "memory" => &[
            ("list", "the files of the memories that are open here"),
            ("show", "a file, or lines of it"),
            ("review", "lines that nobody has accepted"),
            ("forget", "find lines by words and forget them"),
            ("status", "entries, and what they cost"),
            ("on", "keep a memory for this project"),
            ("off", "stop; the files stay"),
        ],
        "past" => &[
            ("today", "a day, a month, last week, a range with `..`"),
            ("--help", "every action and option"),
            ("estimate", "what a build would make"),
            ("build", "make the summaries that are missing"),
            ("check", "what has no summary, and what came late"),
            ("sources", "what a summary stands on"),
            ("cover", "what of it fits into a budget"),
            ("prove", "whether it can be believed"),
            ("page -o FILE", "one page of HTML"),
            ("review", "mark one as read and found good"),
            ("retract", "take one back"),
            ("create", "write one of your own: a range, and `--text`"),
            ("supersede", "put another one in the place of some"),
        ],
        "usage" => &[
            ("--by day", "calendar days"),
            ("--by project", "directories"),
            ("--by model", "models"),
            ("--by agent", "programs"),
            ("--by session", "sessions"),
            ("--by purpose", "what calls are for"),
            ("--since 1d", "the last day"),
            ("--since 1w", "the last week"),
        ],
        "dream" => &[
            ("status", "when the next dream is due, and what the last one did"),
            ("--dry-run", "what a dream would promote now"),
            ("--now", "dream now"),
        ],
        "import" => return Some(candidates(quipu_host::suggested_agents())),
        "login" => return Some(candidates(quipu_host::suggested_providers(home))),
        _ => return None,
    };
    Some(words.iter().map(|(text, detail)| offered(text, (*detail).to_owned())).collect())
}

/// Every setting, with its value and where that comes from; once for each value that it may have.
pub(super) fn settings(settings: &Settings) -> Vec<Candidate> {
    settings.rows().flat_map(|row| rows(&row)).collect()
}

fn rows(SettingRow { key, value, source }: &SettingRow<'_>) -> Vec<Candidate> {
    let (name, help) = (key.name, key.help);
    let now = in_words(value);
    let from = origin(source);
    let mut values = key.values().to_vec();
    if values.is_empty() {
        let now = if value.is_null() { "nothing".to_owned() } else { one_line(&now, WIDTH) };
        return vec![offered(name, format!("{help}; now {now} ({from})"))];
    }
    if !value.is_null() && !values.contains(&now.as_str()) {
        values.push(&now);
    }
    let detail = |one: &str| match value {
        _ if one == now => format!("{help}; current value ({from})"),
        Value::Null => format!("{help}; not set ({from})"),
        _ => help.to_owned(),
    };
    values.iter().map(|one| offered(&format!("{name} {}", one_line(one, WIDTH)), detail(one))).collect()
}

/// Sets a setting in the user's file, and leaves all others as they are.
pub(super) fn set(home: &Home, setting: &str) -> Result<StoredSetting, Failure> {
    let Some((name, value)) = setting.trim().split_once(char::is_whitespace) else {
        return Err(Failure::usage(
            "name the setting and its value, such as `/settings compaction.enabled false`",
        ));
    };
    set_setting(home, &SettingsFile::User, name, value.trim()).map_err(failure)
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

/// The summaries of the past of a project by their keys.
pub(super) async fn chunks(store: &dyn Graph, here: &std::path::Path) -> Result<Vec<Candidate>, Failure> {
    Ok(candidates(quipu_host::suggested_chunks(store, &quipu_host::past::project_past(here)).await?))
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
    /// Settings whose effect is looked for elsewhere, or that are read together with one of the table.
    const ELSEWHERE: [&str; 58] = [
        "past.",
        "tools",
        "web.",
        "agents.",
        "background",
        "schedule.",
        "webSearch",
        "applyPatch",
        "screenReader",
        "terminal.",
        "defaultModel",
        "defaultThinkingLevel",
        "enabledModels",
        "purposeModels",
        "fallback",
        "keyOrder",
        "thinkingBudgets.",
        "retry.baseDelayMs",
        "retry.provider.",
        "httpIdleTimeoutMs",
        "proxyLocalServers",
        "localServers",
        "compaction.mode",
        "compaction.recentTurns",
        "compaction.maxHistoryPercent",
        "compaction.identifiers",
        "compaction.qualityRetries",
        "compaction.timeoutSeconds",
        "steeringMode",
        "followUpMode",
        "context.expiry.",
        "context.prune.triggerPercent",
        "context.prune.clearAtLeastPercent",
        "context.prune.keepTurns",
        "context.prune.minCharacters",
        "search.semantic",
        "mcpServer.",
        "memory.",
        "integrations.",
        "travel.tobe",
        "planMode",
        "prompt.persona",
        "identity.file",
        "rules.above",
        "files.fileBytes",
        "files.runBytes",
        "files.storeBytes",
        "files.ignoredFiles",
        "publish",
        "budget.waitMs",
        "budget.background",
        "messages.queue.",
        "messages.streaming.",
        "session.reset.",
        "session.history.",
        "memory.dreaming.",
        "sandbox.",
        "permissions.",
    ];

    #[test]
    fn each_setting_is_in_the_table_of_the_tests() {
        let table = include_str!("../../tests/it/live_settings.rs");
        for quipu_host::settings::Key { name, .. } in quipu_host::settings::KEYS {
            let is_known = *name == "hooks" || ELSEWHERE.iter().any(|other| name.starts_with(other));
            assert!(
                is_known || table.contains(&format!("name: \"{name}\"")),
                "{name} has no row in live_settings.rs"
            );
        }
    }
}
