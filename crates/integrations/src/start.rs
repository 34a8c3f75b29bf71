//! At the start of a session: what was done in its directory before.

use quipu_history::{LogEntry, SessionEnd, log, minute};
use quipu_store::{ActivityQuery, StoreError};
use quipu_transcript::one_line;

use crate::framed_lines::{FramedLines, without_frames};
use crate::view::{HookAnswer, View};

const HEAD: &str =
    "Earlier sessions here, newest first. The MCP tools of quipu (read, search) show more by id.";
/// Sessions that are looked at, and prompts of each.
const SESSIONS: usize = 10;
const PROMPTS: usize = 2;
/// How far back, in milliseconds.
const PERIOD: i64 = 90 * 24 * 60 * 60 * 1_000;
/// Tokens from which on more is said of each session.
const ROOM: u64 = 600;

pub(crate) async fn text(view: &View<'_>) -> Result<Option<HookAnswer>, StoreError> {
    let mut entries = Vec::new();
    for project in &view.projects {
        let query = ActivityQuery {
            below: Some(project.clone()),
            since: view.request.now.saturating_sub(PERIOD),
            agent: None,
            limit: SESSIONS,
        };
        entries.extend(log(view.store, query, PROMPTS).await?.found);
    }
    // Those of one name come in this order.
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.done.updated));
    entries.truncate(SESSIONS);
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    for entry in entries {
        if view.is_own(&entry.done.session) || entry.asked.is_empty() {
            continue;
        }
        if !lines.push(&line(view, &entry)) {
            break;
        }
    }
    // What begins anew is given its start anew.
    Ok(lines.finish().map(|text| HookAnswer { text, given: Vec::new() }))
}

fn line(view: &View<'_>, entry: &LogEntry) -> String {
    let done = &entry.done;
    let (prompt, files) = if view.request.tokens >= ROOM { (160, 8) } else { (90, 3) };
    let asked = entry.asked.iter().map(|(_, asked)| one_line(&without_frames(asked), prompt));
    let asked: Vec<String> = asked.filter(|asked| !asked.trim().is_empty()).collect();
    let called = one_line(&done.called, 60);
    let called = if called.is_empty() { String::new() } else { format!(" \"{called}\"") };
    let mut text =
        format!("{} {} session {}{called}", minute(done.updated), one_line(&done.agent, 40), done.session);
    if !asked.is_empty() {
        text.push_str(&format!(": {}", asked.join(" / ")));
    }
    // A file stands there once for each thing that was done to it.
    let mut paths: Vec<&str> = Vec::new();
    for file in &done.changed {
        if paths.len() < files && !paths.contains(&file.path.as_str()) {
            paths.push(&file.path);
        }
    }
    let changed: Vec<String> = paths.into_iter().map(|path| view.short_path(path)).collect();
    if !changed.is_empty() {
        let more = done.changed_count.saturating_sub(changed.len() as u64);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        text.push_str(&format!("; changed {}{more}", changed.join(", ")));
    }
    let ended = match &entry.ended {
        SessionEnd::Answered => return text,
        SessionEnd::Cut => "cut off".to_owned(),
        SessionEnd::Failed(why) => format!("failed: {}", one_line(why, 60)),
        SessionEnd::Aborted => "stopped".to_owned(),
        SessionEnd::Unfinished => "unfinished".to_owned(),
    };
    format!("{text}; {ended}")
}
