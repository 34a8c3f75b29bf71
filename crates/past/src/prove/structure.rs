//! Whether the requests that were recorded equal what the graph gives: each is put together again from the nodes before it.

use std::future::Future;
use std::pin::Pin;

use quipu_protocol::{CallRecord, Entry, Message, NodeId};
use quipu_store::{Graph, SessionRow, decode_whole};
use quipu_transcript::{PROJECTION, decode};
use serde_json::Value;

use crate::pages::Pages;
use crate::segments::AGENT;
use crate::{DifferentRequest, PastError, PastScope, StructureRecord};

/// Differences that are kept.
const DIFFERENT: usize = 100;

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestVerdict {
    /// What the graph gives is what was recorded, to the byte.
    Equal,
    /// It is something else; the first place that differs.
    Different(String),
    /// Nobody can tell, and why.
    Unchecked(String),
}

/// What a judge is waited for with.
pub type JudgeFut<'a> = Pin<Box<dyn Future<Output = Result<RequestVerdict, PastError>> + Send + 'a>>;

/// Puts requests together again: who knows the models does.
pub trait RequestJudge: Send + Sync {
    /// Compares a request that was recorded with what the graph gives.
    fn judge<'a>(&'a self, call: &'a CallRecord) -> JudgeFut<'a>;
}

/// Looks at the requests of the sessions of a scope, at most so many of each session, evenly chosen.
///
/// # Errors
/// What the store says.
pub async fn prove_structure(
    store: &dyn Graph,
    scope: &PastScope,
    judge: &dyn RequestJudge,
    most: usize,
) -> Result<StructureRecord, PastError> {
    let mut record = StructureRecord::default();
    for row in scope.sessions(store).await? {
        record.sessions += 1;
        let calls = calls_of(store, &row).await?;
        let count = calls.len();
        record.requests += count;
        let looked_at = count.min(most);
        record.skipped += count - looked_at;
        for nth in 0..looked_at {
            // The last one is always among them.
            let Some(node) = calls.get((nth + 1) * count / looked_at - 1) else { continue };
            let Some(call) = RecordedCall::read(store, *node).await? else {
                *record.unchecked.entry("its node is not there any more".to_owned()).or_default() += 1;
                continue;
            };
            let verdict = match call.why_not(&row) {
                Some(why) => RequestVerdict::Unchecked(why.to_owned()),
                None => judge.judge(&call.record).await?,
            };
            match verdict {
                RequestVerdict::Equal => record.equal += 1,
                RequestVerdict::Different(at) => {
                    if record.different.len() < DIFFERENT {
                        record.different.push(DifferentRequest { node: call.node, at });
                    } else {
                        let why = "differs, and is one of too many to name".to_owned();
                        *record.unchecked.entry(why).or_default() += 1;
                    }
                }
                RequestVerdict::Unchecked(why) => *record.unchecked.entry(why).or_default() += 1,
            }
        }
    }
    Ok(record)
}

/// A call, and the node that it stands in.
struct RecordedCall {
    node: NodeId,
    record: CallRecord,
    is_answer: bool,
}

impl RecordedCall {
    async fn read(store: &dyn Graph, node: NodeId) -> Result<Option<Self>, PastError> {
        let found: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
        let Some(decoded) = decode_whole(store, &found).await?.pop() else { return Ok(None) };
        let is_answer = matches!(decoded.entry, Entry::Message(Message::Assistant(_)));
        Ok(decoded.step.call.map(|record| Self { node, record, is_answer }))
    }

    /// Why it cannot be put together from the conversation, if so.
    fn why_not(&self, row: &SessionRow) -> Option<&'static str> {
        if row.agent != AGENT {
            return Some("another program recorded it");
        }
        if !self.is_answer {
            return Some("it asked for a summary, or beside the conversation");
        }
        (self.record.projection != PROJECTION).then_some("an earlier version of the program put it together")
    }
}

/// The nodes with calls of a session, in their order.
async fn calls_of(store: &dyn Graph, row: &SessionRow) -> Result<Vec<NodeId>, PastError> {
    let mut calls = Vec::new();
    let Some(head) = row.head else { return Ok(calls) };
    let mut pages = Pages::below(store, row.base, head).await?;
    while let Some(piece) = pages.next().await? {
        for stored in &piece.nodes {
            if decode(&stored.node, &piece.objects).step.call.is_some() {
                calls.push(stored.node.id);
            }
        }
    }
    Ok(calls)
}

/// The first place in which two bodies differ: a JSON pointer, or a byte where they are no JSON or the same values.
#[must_use]
pub fn first_difference(recorded: &[u8], made: &[u8]) -> String {
    let byte = || {
        let at = recorded.iter().zip(made).position(|(a, b)| a != b);
        format!("byte {}", at.unwrap_or_else(|| recorded.len().min(made.len())))
    };
    let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).ok();
    let (Some(recorded), Some(made)) = (read(recorded), read(made)) else { return byte() };
    let mut path = String::new();
    if differs(&recorded, &made, &mut path) {
        if path.is_empty() { "/".to_owned() } else { path }
    } else {
        byte()
    }
}

/// Whether two values differ; `path` leads there then.
fn differs(a: &Value, b: &Value, path: &mut String) -> bool {
    let mut step = |name: &str, a: Option<&Value>, b: Option<&Value>| {
        let before = path.len();
        path.push('/');
        path.push_str(&name.replace('~', "~0").replace('/', "~1"));
        let found = match (a, b) {
            (Some(a), Some(b)) => differs(a, b, path),
            (_, _) => true,
        };
        if !found {
            path.truncate(before);
        }
        found
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            names.into_iter().any(|name| step(name, a.get(name), b.get(name)))
        }
        (Value::Array(a), Value::Array(b)) => {
            (0..a.len().max(b.len())).any(|at| step(&at.to_string(), a.get(at), b.get(at)))
        }
        (a, b) => a != b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_is_named_by_its_place() {
        for (a, b, wanted) in [
            (r#"{"a":[1,{"b/c":2}]}"#, r#"{"a":[1,{"b/c":3}]}"#, "/a/1/b~1c"),
            (r#"{"a":[1,2]}"#, r#"{"a":[1]}"#, "/a/1"),
            (r#"{"a":1,"b":2}"#, r#"{"a":1}"#, "/b"),
            (r#"{"a":1}"#, r#"{"a": 1}"#, "byte 5"),
            ("abc", "abd", "byte 2"),
            ("1", "2", "/"),
        ] {
            assert_eq!(first_difference(a.as_bytes(), b.as_bytes()), wanted, "{a} {b}");
        }
    }
}
