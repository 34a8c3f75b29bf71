//! Looking at conversations. What the store has of them is sealed, so no secret comes out.

use quipu::protocol::{Entry, Message, UnixMs};
use quipu::store::{LineageEnd, SessionQuery, SessionRow, StoreError, decode_nodes};

use super::caller::Caller;
use crate::keys::SessionKey;

/// Conversations in a list, where nothing is said, and at most.
const LISTED: u64 = 50;
const LISTED_MOST: u64 = 200;
/// Conversations that are looked at for a list.
const LOOKED_AT: usize = 2_000;
/// Messages of a history, where nothing is said, and at most.
const MESSAGES: u64 = 20;
const MESSAGES_MOST: u64 = 100;
/// Nodes that are looked at for them.
const NODES: usize = 1_000;
/// Bytes of one message, and of all.
const MESSAGE: usize = 4_000;
const ALL: usize = 40_000;

/// The row of the session of a conversation.
async fn row_of(caller: &Caller, key: &SessionKey) -> Result<Option<SessionRow>, StoreError> {
    let Some(id) = caller.sessions.session_of(key).await? else { return Ok(None) };
    let query = SessionQuery { id: Some(id), limit: Some(1), ..SessionQuery::default() };
    Ok(caller.sessions.store().sessions(query).await?.into_iter().next())
}

fn failed(error: &StoreError) -> String {
    format!("The conversations cannot be read: {error}")
}

fn state(caller: &Caller, key: &SessionKey) -> &'static str {
    if caller.conversations.active_group(key).is_some() { "running" } else { "idle" }
}

/// `sessions_list`.
pub(super) async fn list(caller: &Caller, limit: Option<u64>) -> Result<String, String> {
    let most = usize::try_from(limit.unwrap_or(LISTED).clamp(1, LISTED_MOST)).unwrap_or(usize::MAX);
    let keys = caller.sessions.conversations().await.map_err(|error| failed(&error))?;
    let mut rows: Vec<(UnixMs, String)> = Vec::new();
    for key in keys.iter().filter(|key| caller.sees(key)).take(LOOKED_AT) {
        let Some(row) = row_of(caller, key).await.map_err(|error| failed(&error))? else { continue };
        let title = if row.called.is_empty() { &row.title } else { &row.called };
        let own = if *key == caller.own { ", this one" } else { "" };
        let seen = ago(row.updated);
        rows.push((row.updated, format!("- {key} ({}{own}, {seen}): {title}", state(caller, key))));
    }
    if rows.is_empty() {
        return Ok("There are no conversations that you can see.".to_owned());
    }
    rows.sort_by_key(|(updated, _)| std::cmp::Reverse(*updated));
    let left = rows.len().saturating_sub(most);
    let mut text: Vec<String> = rows.into_iter().take(most).map(|(_, line)| line).collect();
    if left > 0 {
        text.push(format!("[{left} older ones are not listed; `limit` lists up to {LISTED_MOST}.]"));
    }
    Ok(text.join("\n"))
}

/// `sessions_history`.
pub(super) async fn read(caller: &Caller, name: &str, limit: Option<u64>) -> Result<String, String> {
    let key = caller.other(name).await?;
    let most = usize::try_from(limit.unwrap_or(MESSAGES).clamp(1, MESSAGES_MOST)).unwrap_or(usize::MAX);
    let Some(row) = row_of(caller, &key).await.map_err(|error| failed(&error))? else {
        return Ok(format!("Nothing was said in `{key}` yet."));
    };
    let messages = messages(caller, &row).await.map_err(|error| failed(&error))?;
    let mut shown: Vec<String> = Vec::new();
    let (mut bytes, mut left) = (0, 0);
    for line in messages.iter().rev().filter_map(line_of) {
        bytes += line.len();
        if shown.len() >= most || bytes > ALL {
            left += 1;
        } else {
            shown.push(line);
        }
    }
    shown.reverse();
    if left > 0 {
        shown.insert(0, format!("[{left} earlier messages are left out.]"));
    }
    if shown.is_empty() {
        return Ok(format!("Nothing was said in `{key}` yet."));
    }
    Ok(shown.join("\n\n"))
}

/// `session_status`.
pub(super) async fn status(caller: &Caller, name: Option<&str>) -> Result<String, String> {
    let key = match name {
        Some(name) => caller.other(name).await?,
        None => caller.own.clone(),
    };
    let state = state(caller, &key);
    let Some(row) = row_of(caller, &key).await.map_err(|error| failed(&error))? else {
        return Ok(format!("conversation: {key}\nstate: {state}\nNothing was said in it yet."));
    };
    let messages = messages(caller, &row).await.map_err(|error| failed(&error))?;
    let last = messages.iter().rev().find_map(|message| match message {
        Message::Assistant(answer) => Some(answer),
        _ => None,
    });
    let (model, context) = match last {
        Some(answer) => {
            let usage = &answer.usage;
            (
                format!("{}/{}", answer.provider, answer.model),
                usage.input + usage.cache_read + usage.cache_write,
            )
        }
        None => (row.model.clone(), 0),
    };
    Ok(format!(
        "conversation: {key}\nstate: {state}\nsession: {}\nmodel: {model}\ncontext: {context} tokens in the last request\n\
         entries: {}\ncost: ${:.4}\nlast active: {}",
        row.id,
        row.entries,
        row.cost,
        ago(row.updated)
    ))
}

/// The newest messages of a session, the oldest of them first.
async fn messages(caller: &Caller, row: &SessionRow) -> Result<Vec<Message>, StoreError> {
    let Some(head) = row.head else { return Ok(Vec::new()) };
    let store = caller.sessions.store();
    let nodes = store.lineage(head, LineageEnd::Count(NODES)).await?;
    let decoded = decode_nodes(&**store, &nodes).await?;
    let messages = decoded.into_iter().filter_map(|one| match one.entry {
        Entry::Message(message) => Some(message),
        _ => None,
    });
    Ok(messages.collect())
}

/// A message as a model reads it: what people and models said, without results of tools and reasoning.
fn line_of(message: &Message) -> Option<String> {
    let (who, text) = match message {
        Message::User(user) => ("user", user.content.text()),
        Message::Assistant(answer) => {
            let calls: Vec<&str> = answer
                .content
                .iter()
                .filter_map(|content| Some(content.as_tool_call()?.name.as_str()))
                .collect();
            let text = answer.text();
            let calls =
                if calls.is_empty() { String::new() } else { format!("(calls {})", calls.join(", ")) };
            let between = if text.is_empty() || calls.is_empty() { "" } else { " " };
            ("assistant", format!("{text}{between}{calls}"))
        }
        _ => return None,
    };
    if text.trim().is_empty() {
        return None;
    }
    let kept = &text[..text.floor_char_boundary(MESSAGE)];
    let cut = if kept.len() < text.len() { " […]" } else { "" };
    Some(format!("[{who}] {kept}{cut}"))
}

/// How long ago that was, by the clock of the system.
fn ago(then: UnixMs) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_millis()).unwrap_or(i64::MAX);
    match now.saturating_sub(then).max(0) / 1000 {
        seconds @ 0..60 => format!("{seconds} s ago"),
        seconds @ 60..3_600 => format!("{} min ago", seconds / 60),
        seconds @ 3_600..86_400 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}
