//! What is ours without a list that says so: a call of the program, or an entry that differs from the wanted one only in the
//! program and the directory that it names.

use std::path::Path;

use serde_json::{Map, Value};

use crate::document::Content;
use crate::edit::{EditError, Placement};
use crate::ledger::{PieceRecord, RecordContent};
use crate::piece::{Piece, PieceContent, sha256};

const PROGRAM_NAME: &str = "quipu";
/// Names the directory of Quipu's own files, in calls and in entries.
const HOME_VARIABLE: &str = "QUIPU_HOME";
/// Stands for a program.
const MARK: &str = "$program";

/// The calls of an agent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recognition<'a> {
    pub(crate) agent: &'a str,
    pub(crate) program: &'a str,
}

impl Recognition<'_> {
    /// Whether a value calls the program, or another of its name as a hook of the agent.
    pub(crate) fn is_call(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => {
                let words = words(text);
                let is_hook = |call: &[String]| {
                    matches!(call, [program, hook, agent]
                        if is_named(program) && hook == "hook" && agent == self.agent)
                };
                words.iter().any(|word| word == self.program) || words.windows(3).any(is_hook)
            }
            Value::Array(items) => items.iter().any(|item| self.is_call(item)),
            Value::Object(members) => members.values().any(|member| self.is_call(member)),
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
        }
    }

    /// What stands in the place of a piece, if it is that piece with another program.
    pub(crate) fn of_another_program(
        &self,
        text: &str,
        piece: &Piece,
    ) -> Result<Option<PieceRecord>, EditError> {
        let (syntax, placement, value) = match &piece.content {
            PieceContent::File(wanted) => {
                let program = self.program_in_place(wanted, text);
                let content = RecordContent::File { sha256: sha256(text) };
                return Ok(program.map(|program| PieceRecord { program, content }));
            }
            PieceContent::Value { syntax, placement, value } => (*syntax, placement, value),
        };
        let found = match (syntax.values(text, placement.path())?, placement) {
            (Content::Value(found), Placement::Member(_)) => vec![found],
            (Content::Value(Value::Array(found)), Placement::Element(_)) => found,
            _ => return Ok(None),
        };
        if found.contains(value) {
            return Ok(None);
        }
        let wanted = self.form(value, &mut None);
        for found in found {
            let mut program = None;
            if self.form(&found, &mut program) == wanted
                && let Some(program) = program
            {
                let content = RecordContent::Value { syntax, placement: placement.clone(), value: found };
                return Ok(Some(PieceRecord { program, content }));
            }
        }
        Ok(None)
    }

    /// The program that a text names where another names ours; all else is the same.
    fn program_in_place(&self, wanted: &str, text: &str) -> Option<String> {
        let parts: Vec<&str> = wanted.split(self.program).collect();
        let [first, second, ..] = parts[..] else { return None };
        let rest = text.strip_prefix(first)?;
        let end = if second.is_empty() { rest.len() } else { rest.find(second)? };
        let program = &rest[..end];
        let is_same = is_absolute(program) && program != self.program && parts.join(program) == text;
        is_same.then(|| program.to_owned())
    }

    /// A value without the program and the directory that it names.
    fn form(&self, value: &Value, program: &mut Option<String>) -> Value {
        match value {
            Value::String(text) => Value::from(self.form_of_text(text, program)),
            Value::Array(items) => items.iter().map(|item| self.form(item, program)).collect(),
            Value::Object(members) => {
                let members = members.iter().filter(|(name, _)| *name != HOME_VARIABLE);
                let members = members.map(|(name, value)| (name.clone(), self.form(value, program)));
                let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
                Value::Object(members.filter(|(_, value)| !is_empty(value)).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn form_of_text(&self, text: &str, program: &mut Option<String>) -> String {
        let is_ours = |word: &str| word == self.program || is_absolute(word);
        if is_ours(text) {
            *program = Some(text.to_owned());
            return MARK.to_owned();
        }
        let Some((before, rest)) = text.split_once(" hook ") else { return text.to_owned() };
        let is_plain = !before.contains(['&', ';', '|', '$', '`', '<', '>', '(', ')', '\n']);
        match words(before).as_slice() {
            [word] if is_plain && is_ours(word) => *program = Some(word.clone()),
            [home, word] if is_plain && home.starts_with("QUIPU_HOME=") && is_ours(word) => {
                *program = Some(word.clone());
            }
            _ => return text.to_owned(),
        }
        format!("{MARK} hook {rest}")
    }
}

fn is_named(word: &str) -> bool {
    Path::new(word).file_name().is_some_and(|name| name == PROGRAM_NAME)
}

fn is_absolute(word: &str) -> bool {
    Path::new(word).is_absolute() && is_named(word) && !word.contains('\n')
}

/// The words of a command line, without their quotes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut signs = text.chars();
    while let Some(sign) = signs.next() {
        match (quote, sign) {
            (Some(open), sign) if sign == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(sign);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(signs.next()),
            (None, sign) if sign.is_whitespace() || matches!(sign, ';' | '&' | '|' | '(' | ')') => {
                words.extend(word.take());
            }
            (_, sign) => word.get_or_insert_default().push(sign),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_told_from_paths_with_the_name() {
        let recognition = Recognition { agent: "gemini", program: "/opt/q u/quipu-2" };
        for (text, expect) in [
            ("/home/quipu/.gemini/x.sh", false),
            ("cat /home/quipu/hook gemini", false),
            ("quipu hook codex Stop", false),
            ("/opt/q u/quipu-2", false),
            ("quipu hook gemini Stop", true),
            ("QUIPU_HOME=/x '/a b/quipu' hook gemini Stop || true", true),
            ("'/opt/q u/quipu-2' import", true),
        ] {
            let value = json!({ "hooks": [{ "command": text }] });
            assert_eq!(recognition.is_call(&value), expect, "{text}");
        }
    }
}
