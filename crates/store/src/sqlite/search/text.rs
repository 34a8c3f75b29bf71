//! What a node says, as text to index and to show.

use std::collections::HashMap;
use std::io::Read as _;
use std::rc::Rc;

use quipu_dag::{Node, Text, Value};
use quipu_protocol::{BlobId, NodeId};
use quipu_transcript::is_plan_note;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Connection, MAIN_DB, OptionalExtension as _};

use super::super::failure::Outcome;
use super::super::rows;
use super::prefetch::{FIND, Prefetch, Type};
use super::{Kind, tag};
use crate::{INDEXED_SUBSTRINGS, INDEXED_WORDS, VECTOR_TEXT};

/// Bytes of a blob that is read as JSON at most. Of a larger one only the beginning is read, as it stands.
const WHOLE: i64 = 1 << 20;
/// Bytes without a space of letters and digits that are left out: encoded data, in which nobody looks for words.
const LONGEST_RUN: usize = 512;
/// Bytes of a path at most.
const LONGEST_PATH: usize = 1_024;
/// Paths of one call at most.
const MOST_PATHS: usize = 64;
/// Results that may stand between a result and its call.
const MOST_RESULTS: usize = 64;
/// Between two paths, so that no phrase goes over both.
const BETWEEN: &str = " qz ";
/// Bytes of a tool's name or the like at most, for its tag to be remembered.
const SHORT: usize = 64;

/// What is indexed of a node.
#[derive(Default)]
pub(super) struct Document {
    /// What it says.
    pub(super) text: String,
    /// Its tags and the paths that it names.
    pub(super) about: String,
    /// The tool that it calls, or whose result it is.
    pub(super) tool: Option<String>,
}

/// Calls of an answer: their ids and the paths that they name.
type Calls = Rc<Vec<(String, Vec<String>)>>;

/// Reads nodes; knows what the last ones had in common.
pub(in crate::sqlite) struct Reader<'a> {
    connection: &'a Connection,
    /// Finds a blob: at hand, for most of the time goes into it.
    find: Option<CachedStatement<'a>>,
    /// Blobs that were read before their turn.
    pub(super) prefetch: Prefetch,
    session: Option<(i64, String)>,
    /// Of the last node that had some, with its role.
    calls: Option<(NodeId, String, Calls)>,
    /// Words for properties that came before.
    tags: HashMap<(char, String), String>,
}

impl<'a> Reader<'a> {
    pub(in crate::sqlite) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            find: None,
            prefetch: Prefetch::default(),
            session: None,
            calls: None,
            tags: HashMap::new(),
        }
    }

    /// What is indexed by words.
    pub(super) fn words(&mut self, node: &Node, session: Option<i64>) -> Outcome<Document> {
        let mut document = self.text(node)?;
        if document.text.is_empty() {
            return Ok(document);
        }
        let mut about = self.tag('r', rows::role_of(self.connection, node)?);
        if let Some(session) = self.session_tags(session)? {
            about.push_str(session);
        }
        if let Some(tool) = &document.tool {
            about.push(' ');
            about.push_str(&self.tag('t', tool));
        }
        // Other tools of the same answer, and all paths.
        about.push_str(&document.about);
        document.about = about;
        if !document.text.is_ascii() {
            document.text = spread(&document.text);
        }
        Ok(document)
    }

    fn tag(&mut self, kind: char, value: &str) -> String {
        if value.len() > SHORT {
            return tag(kind, value);
        }
        self.tags.entry((kind, value.to_owned())).or_insert_with(|| tag(kind, value)).clone()
    }

    /// What a node says, without tags of its place.
    pub(super) fn text(&mut self, node: &Node) -> Outcome<Document> {
        let mut document = Document::default();
        let mut text = String::new();
        let mut calls = Vec::new();
        let mut is_whole = true;
        for part in &node.record.parts {
            if text.len() >= INDEXED_WORDS {
                is_whole = false;
                break;
            }
            let Some((kind, content)) = self.blob(part, Kind::Words)? else { continue };
            match (kind, content) {
                (_, Content::Raw(raw)) => push(&mut text, &raw),
                (Type::ToolCall, Content::Json(value)) => {
                    let name = string(&value, "name");
                    push(&mut text, &name);
                    let arguments = value.get("arguments").unwrap_or(&Value::Null);
                    strings(arguments, &mut |_, string| push(&mut text, string));
                    let paths = paths(arguments);
                    for path in &paths {
                        document.about.push_str(BETWEEN);
                        document.about.push_str(path);
                    }
                    calls.push((string(&value, "id"), paths));
                    match &document.tool {
                        None => document.tool = Some(name),
                        Some(first) if *first != name => {
                            document.about.push(' ');
                            document.about.push_str(&self.tag('t', &name));
                        }
                        Some(_) => {}
                    }
                }
                (Type::ToolResult, Content::Json(value)) => {
                    strings(value.get("content").unwrap_or(&Value::Null), &mut |key, string| {
                        if key != "type" && key != "data" && key != "mimeType" {
                            push(&mut text, string);
                        }
                    });
                    document.tool.get_or_insert_with(|| string(&value, "toolName"));
                    for path in self.paths_of(node, &string(&value, "toolCallId"))? {
                        document.about.push_str(BETWEEN);
                        document.about.push_str(&path);
                    }
                }
                (_, Content::Json(Value::String(said))) => push(&mut text, &said.to_string_lossy()),
                (_, Content::Json(value)) => strings(&value, &mut |key, string| {
                    if is_said(key) {
                        push(&mut text, string);
                    }
                }),
            }
        }
        document.text = text;
        if is_whole && !calls.is_empty() {
            // Their results come next.
            self.calls = Some((node.id, node.record.role.clone(), Rc::new(calls)));
        }
        Ok(document)
    }

    /// What is indexed by substrings: paths, arguments of tools, and blocks of code.
    pub(super) fn parts(&mut self, node: &Node) -> Outcome<String> {
        let mut text = String::new();
        for part in &node.record.parts {
            if text.len() >= INDEXED_SUBSTRINGS {
                break;
            }
            let Some((kind, content)) = self.blob(part, Kind::Substrings)? else { continue };
            match (kind, content) {
                (Type::ToolCall, Content::Json(value)) => {
                    strings(value.get("arguments").unwrap_or(&Value::Null), &mut |_, string| {
                        push_up_to(&mut text, string, INDEXED_SUBSTRINGS);
                    });
                }
                (Type::ToolCall, Content::Raw(raw)) => push_up_to(&mut text, &raw, INDEXED_SUBSTRINGS),
                (Type::Text, Content::Json(Value::String(said))) => {
                    for code in blocks_of_code(&said.to_string_lossy()) {
                        push_up_to(&mut text, code, INDEXED_SUBSTRINGS);
                    }
                }
                _ => {}
            }
        }
        Ok(text)
    }

    /// What somebody said in a node: text and summaries, without thinking, calls and results.
    pub(in crate::sqlite) fn said(&mut self, node: &Node) -> Outcome<String> {
        let mut text = String::new();
        for part in &node.record.parts {
            if text.len() >= VECTOR_TEXT {
                break;
            }
            match self.blob(part, Kind::Words)? {
                Some((Type::Text, Content::Json(Value::String(said)))) => {
                    push_up_to(&mut text, &said.to_string_lossy(), VECTOR_TEXT);
                }
                Some((Type::Meta, Content::Json(value @ Value::Object(_)))) => {
                    strings(&value, &mut |key, string| {
                        if key == "summary" {
                            push_up_to(&mut text, string, VECTOR_TEXT);
                        }
                    });
                }
                Some(_) | None => {}
            }
        }
        Ok(text)
    }

    /// The agent and the directory of a session, by its number.
    fn session_tags(&mut self, session: Option<i64>) -> Outcome<Option<&str>> {
        let Some(session) = session else { return Ok(None) };
        if self.session.as_ref().is_none_or(|(known, _)| *known != session) {
            let found: Option<(String, String)> = self
                .connection
                .prepare_cached("SELECT agent, project FROM quipu_x_session WHERE num = ?1")?
                .query_row([session], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let tags = found.map_or_else(String::new, |(agent, project)| {
                format!(" {} {}", tag('a', &agent), tag('p', &project))
            });
            self.session = Some((session, tags));
        }
        Ok(self.session.as_ref().map(|(_, tags)| tags.as_str()))
    }

    /// The paths that the call of a result names.
    fn paths_of(&mut self, result: &Node, call: &str) -> Outcome<Vec<String>> {
        let mut next = result.record.parent;
        for _ in 0..MOST_RESULTS {
            let Some(id) = next else { break };
            let is_known =
                |(known, role, _): &(NodeId, String, Calls)| *known == id && *role != result.record.role;
            if !self.calls.as_ref().is_some_and(is_known) {
                let Some(node) = rows::find_node(self.connection, &id)? else { break };
                if node.record.role == result.record.role {
                    next = node.record.parent;
                    continue;
                }
                let mut calls = Vec::new();
                for part in &node.record.parts {
                    if let Some((Type::ToolCall, Content::Json(value))) = self.blob(part, Kind::Words)? {
                        let arguments = value.get("arguments").unwrap_or(&Value::Null);
                        calls.push((string(&value, "id"), paths(arguments)));
                    }
                }
                self.calls = Some((id, node.record.role, Rc::new(calls)));
            }
            let calls = self.calls.as_ref().map(|(_, _, calls)| Rc::clone(calls)).unwrap_or_default();
            return Ok(calls
                .iter()
                .find(|(id, _)| id == call)
                .map(|(_, paths)| paths.clone())
                .unwrap_or_default());
        }
        Ok(Vec::new())
    }

    /// A blob that says something; `None` for others, and for what the program puts beside messages by itself.
    fn blob(&mut self, id: &BlobId, kind: Kind) -> Outcome<Option<(Type, Content)>> {
        let found = self.any_blob(id, kind)?;
        Ok(found.filter(|found| match found {
            (Type::Text, Content::Json(Value::String(said))) => !is_plan_note(&said.to_string_lossy()),
            _ => true,
        }))
    }

    fn any_blob(&mut self, id: &BlobId, kind: Kind) -> Outcome<Option<(Type, Content)>> {
        if let Some(blob) = self.prefetch.take(id) {
            return Ok(blob.map(|(of, content)| (of, Content::of(&content))));
        }
        let statement = match &mut self.find {
            Some(statement) => statement,
            none => none.insert(self.connection.prepare_cached(FIND)?),
        };
        let mut found =
            statement.query(rusqlite::params![id.to_string(), WHOLE, kind == Kind::Substrings])?;
        let Some(row) = found.next()? else { return Ok(None) };
        let kind = Type::of(&rows::text(row, 1)?.unwrap_or_default());
        match row.get_ref(2)? {
            ValueRef::Null => return Ok(None),
            ValueRef::Integer(_) => {}
            _ => return Ok(Some((kind, Content::of(&rows::text(row, 2)?.unwrap_or_default())))),
        }
        let rowid: i64 = row.get(0)?;
        let mut bytes = Vec::new();
        let blob = self.connection.blob_open(MAIN_DB, "blobs", "content", rowid, true)?;
        // A failure of the disk shows with the next statement.
        blob.take(INDEXED_WORDS as u64).read_to_end(&mut bytes).ok();
        Ok(Some((kind, Content::Raw(unescaped(&String::from_utf8_lossy(&bytes))))))
    }
}

enum Content {
    Json(Value),
    /// Text that could not be read as JSON, or the beginning of one that is too long.
    Raw(String),
}

impl Content {
    fn of(content: &str) -> Self {
        // What is no JSON was written by somebody else and still says something.
        Value::parse(content).map_or_else(|_| Self::Raw(content.to_owned()), Self::Json)
    }
}

/// JSON as text, near enough: line ends and quotes are what they stand for.
fn unescaped(json: &str) -> String {
    json.replace("\\n", "\n").replace("\\t", "\t").replace("\\\"", "\"")
}

fn string(value: &Value, name: &str) -> String {
    match value.get(name) {
        Some(Value::String(text)) => text.to_string_lossy().into_owned(),
        _ => String::new(),
    }
}

/// Members of entries of other programs, and of messages that are kept whole, that hold what somebody said.
fn is_said(key: &str) -> bool {
    matches!(
        key,
        "text"
            | "content"
            | "summary"
            | "command"
            | "output"
            | "label"
            | "name"
            | "thinking"
            | "errorMessage"
    )
}

/// Every string inside a value, with the name of the member that holds it. Depth costs heap and not stack.
fn strings(value: &Value, take: &mut dyn FnMut(&str, &str)) {
    let mut open: Vec<(Option<&Text>, &Value)> = vec![(None, value)];
    while let Some((name, value)) = open.pop() {
        match value {
            Value::String(text) => {
                take(&name.map_or("".into(), Text::to_string_lossy), &text.to_string_lossy());
            }
            // The first is the next.
            Value::Array(items) => open.extend(items.iter().rev().map(|item| (name, item))),
            Value::Object(members) => {
                open.extend(members.iter().rev().map(|(name, value)| (Some(name), value)));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// What in the arguments of a call is a path, by the name of the member or by its looks.
fn paths(arguments: &Value) -> Vec<String> {
    let mut paths = Vec::new();
    strings(arguments, &mut |key, string| {
        let key = key.to_ascii_lowercase();
        let named = key.contains("path") || key.contains("file");
        let is_path = string.len() <= LONGEST_PATH
            && !string.contains(['\n', '\r'])
            && (named || (string.contains('/') && !string.contains(char::is_whitespace)));
        if is_path && paths.len() < MOST_PATHS {
            paths.push(spread(string));
        }
    });
    paths
}

/// What stands between lines of three backticks or more.
fn blocks_of_code(text: &str) -> Vec<&str> {
    let mut blocks = Vec::new();
    let mut begin = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            match begin.take() {
                None => begin = Some(at + line.len()),
                Some(begin) => blocks.push(&text[begin..at]),
            }
        }
        at += line.len();
    }
    // One that was cut.
    blocks.extend(begin.map(|begin| &text[begin..]));
    blocks
}

fn push(text: &mut String, more: &str) {
    push_up_to(text, more, INDEXED_WORDS);
}

/// Adds a piece of text, without what is encoded data.
fn push_up_to(text: &mut String, more: &str, limit: usize) {
    if more.is_empty() || text.len() >= limit {
        return;
    }
    if !text.is_empty() {
        text.push('\n');
    }
    let more = &more[..more.floor_char_boundary(limit - text.len().min(limit))];
    let is_data =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'_' | b'-');
    if more.len() <= LONGEST_RUN {
        text.push_str(more);
        return;
    }
    let (mut from, mut at) = (0, 0);
    let bytes = more.as_bytes();
    while at < bytes.len() {
        let run = bytes[at..].iter().take_while(|byte| is_data(byte)).count();
        if run > LONGEST_RUN {
            text.push_str(&more[from..at]);
            text.push('…');
            from = at + run;
        }
        at += run + 1;
    }
    text.push_str(&more[from..]);
}

/// Text whose scripts write no spaces, with a space around each character: each is a word then, and any part of such
/// text is found as a phrase.
pub(super) fn spread(text: &str) -> String {
    if !text.chars().any(is_spaceless) {
        return text.to_owned();
    }
    let mut spread = String::with_capacity(text.len() * 2);
    for c in text.chars() {
        if is_spaceless(c) {
            spread.extend([' ', c, ' ']);
        } else {
            spread.push(c);
        }
    }
    spread
}

/// Whether a character is of a script that writes no spaces between words.
pub(super) fn is_spaceless(c: char) -> bool {
    matches!(c,
        '\u{e00}'..='\u{eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7ff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_any_depth_come_in_order_on_a_small_stack() {
        let depth = quipu_dag::MAX_DEPTH / 2 - 1;
        let text = format!("{}\"in\"{}", "[{\"a\":".repeat(depth), "}]".repeat(depth));
        let all = format!("{{\"b\":[\"1\",{{\"c\":\"2\"}},\"3\"],\"d\":{text},\"e\":\"4\"}}");
        let found = std::thread::Builder::new().stack_size(512 << 10).spawn(move || {
            let value = Value::parse(&all).unwrap();
            let mut found = Vec::new();
            strings(&value, &mut |name, text| found.push(format!("{name}={text}")));
            // Its own end is by recursion.
            std::mem::forget(value);
            found
        });
        assert_eq!(found.unwrap().join().unwrap(), ["b=1", "c=2", "b=3", "a=in", "e=4"]);
    }
}
