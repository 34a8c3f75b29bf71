//! A chat as VS Code keeps it now: a log of changes to the value that a chat is.
//!
//! The first line is the whole value (`kind` 0), each later one sets what stands at a path (1), cuts a list there and adds to it
//! (2), or removes it (3). A prompt that was sent anew cuts the list of requests: what was cut off is kept, as one that was undone.

use serde_json::Value;

use quipu_protocol::Json;

/// What a file begins with.
pub(super) const START: &[u8] = b"{\"kind\":0";
/// Places in lists beyond this are none.
const LONGEST: usize = 1_000_000;
/// Levels that a change may lead down. The parser bounds those of its value; together they bound what is written and dropped
/// by recursion.
const DEEPEST: usize = 128;

/// A chat while its changes are applied.
pub(super) struct Log {
    chat: Value,
    /// Requests that were cut off together, and where the first of them stood.
    undone: Vec<(usize, Vec<Value>)>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { chat: Value::Null, undone: Vec::new() }
    }

    /// Applies a line.
    ///
    /// # Errors
    /// It is no change, or one of what is not there; in words.
    pub(super) fn apply(&mut self, line: &str) -> Result<(), &'static str> {
        let value = serde_json::from_str::<Value>(line)
            .or_else(|_| serde_json::from_str(&quipu_protocol::without_lone_surrogates(line)));
        let Ok(Value::Object(mut change)) = value else { return Err("not a change record") };
        let kind = change.get("kind").and_then(Value::as_u64);
        let value = change.shift_remove("v");
        if kind == Some(0) {
            self.chat = value.ok_or("an initial state without a value")?;
            return Ok(());
        }
        let Some(Value::Array(path)) = change.shift_remove("k") else {
            return Err("a change without a path");
        };
        let Some((last, before)) = path.split_last() else { return Err("a change without a path") };
        if before.len() > DEEPEST {
            return Err("a change that is too many levels deep");
        }
        let is_requests = before.is_empty() && last == "requests";
        let mut at = &mut self.chat;
        for step in before {
            at = match step {
                Value::String(name) => at.get_mut(name.as_str()),
                step => step.as_u64().and_then(|step| at.get_mut(usize::try_from(step).ok()?)),
            }
            .ok_or("a change to something that does not exist")?;
        }
        match (kind, last, at) {
            (Some(1), Value::String(name), Value::Object(members)) => {
                members.insert(name.clone(), value.unwrap_or(Value::Null));
            }
            (Some(1), step, Value::Array(list)) => {
                let step = step.as_u64().and_then(|step| usize::try_from(step).ok());
                match (step, value) {
                    (Some(step), Some(value)) if step < list.len() => list[step] = value,
                    (Some(step), Some(value)) if step == list.len() && step < LONGEST => list.push(value),
                    _ => return Err("a change to something that does not exist"),
                }
            }
            (Some(2), Value::String(name), Value::Object(members)) => {
                let list = members.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new()));
                let Value::Array(list) = list else {
                    return Err("an addition to something that is not a list");
                };
                let cut = change.get("i").and_then(Value::as_u64).and_then(|cut| usize::try_from(cut).ok());
                let cut = cut.unwrap_or(usize::MAX).min(list.len());
                let gone = list.split_off(cut);
                if is_requests && !gone.is_empty() {
                    self.undone.push((cut, gone));
                }
                if let Some(Value::Array(more)) = value {
                    list.extend(more);
                }
            }
            (Some(3), Value::String(name), Value::Object(members)) => {
                members.shift_remove(name);
            }
            _ => return Err("an unknown kind of change"),
        }
        Ok(())
    }

    /// The chat, with what was cut off as requests that were undone.
    pub(super) fn end(mut self) -> Json {
        if let Some(Value::Array(requests)) = self.chat.get_mut("requests") {
            let mut seen: std::collections::HashSet<String> = requests
                .iter()
                .filter_map(|request| Some(request.get("requestId")?.as_str()?.to_owned()))
                .collect();
            for (number, (place, group)) in self.undone.into_iter().enumerate().rev() {
                let mut place = place.min(requests.len());
                for mut request in group {
                    let id = request.get("requestId").and_then(Value::as_str).map(str::to_owned);
                    if let (Some(id), Value::Object(members)) = (id, &mut request)
                        && seen.insert(id)
                    {
                        // The number tells those of one cut from those of another.
                        members.insert("isHidden".into(), Value::from(number + 1));
                        requests.insert(place, request);
                        place += 1;
                    }
                }
            }
        }
        Json::of(&self.chat).unwrap_or_default()
    }
}
