//! What stands before the text of a skill or template, between two lines `---`: a small part of YAML, read strictly.
//!
//! Read are names with a text, a number or a word, quoted or not, also over several lines (`|`, `>`); and lists. Values that
//! are objects are passed over. Everything else is an error that names its line.

use std::collections::BTreeMap;
use std::fmt;

use crate::globs::split_at_commas;

/// More of them are an error.
const MOST_NAMES: usize = 100;

/// The name whose value is text in any case.
pub(super) const HINT: &str = "argument-hint";

/// What stands behind a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FieldValue {
    Text(String),
    List(Vec<String>),
    /// An object, which nobody needs.
    Object,
}

/// What stood before a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Frontmatter {
    values: BTreeMap<String, FieldValue>,
}

/// What is wrong, and in which line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FrontmatterError {
    pub(super) line: usize,
    what: &'static str,
}

impl fmt::Display for FrontmatterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl Frontmatter {
    /// A text that is not empty; a list in one line.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        let text = match self.values.get(name)? {
            FieldValue::Text(text) => text.trim().to_owned(),
            FieldValue::List(items) => items.join(", "),
            FieldValue::Object => return None,
        };
        (!text.is_empty()).then_some(text)
    }

    /// The words of a list, or of a text.
    pub(super) fn words(&self, name: &str) -> Vec<String> {
        match self.values.get(name) {
            Some(FieldValue::List(items)) => items.clone(),
            Some(FieldValue::Text(text)) => {
                let words = text.split(|c: char| c == ',' || c.is_whitespace());
                words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
            }
            Some(FieldValue::Object) | None => Vec::new(),
        }
    }

    /// The patterns of a list, or of a text with commas between them.
    pub(super) fn patterns(&self, name: &str) -> Vec<String> {
        let parts = |text: &str| {
            let parts = split_at_commas(text).into_iter().map(str::trim);
            parts.filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        match self.values.get(name) {
            Some(FieldValue::List(items)) => items.clone(),
            Some(FieldValue::Text(text)) => parts(text),
            Some(FieldValue::Object) | None => Vec::new(),
        }
    }

    /// A value of yes or no.
    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        match self.text(name)?.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" => Some(true),
            "false" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    /// Whether the name stands there.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }
}

/// Takes a file apart: what stands before its text, and the text. A file that does not begin with `---` has nothing there.
pub(super) fn split(file: &str) -> Result<(Frontmatter, &str), FrontmatterError> {
    let file = file.strip_prefix('\u{feff}').unwrap_or(file);
    let is_mark = |line: &str| line.trim_end() == "---";
    let Some((first, rest)) = file.split_once('\n').filter(|(first, _)| is_mark(first)) else {
        return Ok((Frontmatter::default(), file));
    };
    let mut at = first.len() + 1;
    let mut lines = Vec::new();
    for line in rest.split_inclusive('\n') {
        at += line.len();
        if is_mark(line) {
            let frontmatter = Lines { lines, at: 0 }.read()?;
            return Ok((frontmatter, file[at..].trim_start_matches(['\r', '\n'])));
        }
        lines.push(line.trim_end());
    }
    Err(FrontmatterError { line: 1, what: "`---` is not closed by a second line `---`" })
}

struct Lines<'a> {
    lines: Vec<&'a str>,
    at: usize,
}

impl<'a> Lines<'a> {
    fn error<T>(&self, what: &'static str) -> Result<T, FrontmatterError> {
        // The mark is the first line of the file.
        Err(FrontmatterError { line: self.at + 2, what })
    }

    fn read(mut self) -> Result<Frontmatter, FrontmatterError> {
        let mut values = BTreeMap::new();
        while let Some(line) = self.lines.get(self.at).copied() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                self.at += 1;
                continue;
            }
            if line.starts_with([' ', '\t', '-']) {
                return self.error("a name and a colon are expected here, without a space before them");
            }
            let Some((name, value)) = line.split_once(':') else {
                return self.error("there is no colon behind the name");
            };
            if !(value.is_empty() || value.starts_with([' ', '\t'])) {
                return self.error("there is no space behind the colon");
            }
            let name = name.trim().trim_matches(['"', '\'']).to_owned();
            if values.len() >= MOST_NAMES {
                return self.error("there are more than 100 names");
            }
            let value = match value.trim() {
                // What people write there is seldom YAML: `[FILE] [-v]`, `@file`.
                hint if name == HINT && !hint.starts_with(['"', '\'', '|', '>']) => {
                    self.at += 1;
                    FieldValue::Text(without_comment(hint).to_owned())
                }
                value => self.value(value)?,
            };
            if values.insert(name, value).is_some() {
                self.at -= 1;
                return self.error("the name occurs more than once");
            }
        }
        Ok(Frontmatter { values })
    }

    /// The value that begins in this line; moves behind it.
    fn value(&mut self, first: &'a str) -> Result<FieldValue, FrontmatterError> {
        let folds = first.starts_with('>');
        if folds || first.starts_with('|') {
            if first[1..]
                .trim_start_matches(['+', '-'])
                .split('#')
                .next()
                .is_some_and(|rest| !rest.trim().is_empty())
            {
                return self.error("only `|`, `>` and `-` or `+` after them are read");
            }
            self.at += 1;
            return Ok(FieldValue::Text(joined(&self.indented(), folds)));
        }
        match first.chars().next() {
            None => {
                self.at += 1;
                self.below()
            }
            Some('#') => {
                self.at += 1;
                self.below()
            }
            Some('[') => self.flow_list(first),
            Some('{') if first.ends_with('}') => {
                self.at += 1;
                Ok(FieldValue::Object)
            }
            Some('{' | '&' | '*' | '!' | '%' | '@' | '`') => {
                self.error("this value is not supported; put it in quotes if it is text")
            }
            Some(quote @ ('"' | '\'')) => {
                let text = quoted(first, quote);
                match text {
                    Some(text) => {
                        self.at += 1;
                        Ok(FieldValue::Text(text))
                    }
                    None => self.error("the quotes are not closed in this line"),
                }
            }
            Some(_) => {
                self.at += 1;
                let mut lines = vec![without_comment(first)];
                lines.extend(self.indented().into_iter().map(str::trim));
                Ok(FieldValue::Text(joined(&lines, true)))
            }
        }
    }

    /// The lines that are indented, or empty between such.
    fn indented(&mut self) -> Vec<&'a str> {
        let mut lines = Vec::new();
        while let Some(line) = self.lines.get(self.at).copied() {
            if !(line.trim().is_empty() || line.starts_with([' ', '\t'])) {
                break;
            }
            lines.push(line);
            self.at += 1;
        }
        while lines.last().is_some_and(|line| line.trim().is_empty()) {
            lines.pop();
        }
        let margin = |line: &&&str| line.len() - line.trim_start().len();
        let least = lines.iter().filter(|line| !line.trim().is_empty()).map(|line| margin(&line)).min();
        lines.into_iter().map(|line| line.get(least.unwrap_or(0)..).unwrap_or("")).collect()
    }

    /// A list or an object in the lines below a name.
    fn below(&mut self) -> Result<FieldValue, FrontmatterError> {
        let mut items = Vec::new();
        let mut is_object = false;
        while let Some(line) = self.lines.get(self.at).copied() {
            let text = line.trim_start();
            if text.is_empty() || text.starts_with('#') {
                self.at += 1;
            } else if let Some(item) = text.strip_prefix("- ") {
                let item = item.trim();
                items.push(match item.chars().next() {
                    Some(quote @ ('"' | '\'')) => match quoted(item, quote) {
                        Some(text) => text,
                        None => return self.error("the quotes are not closed in this line"),
                    },
                    _ => without_comment(item).to_owned(),
                });
                self.at += 1;
            } else if line.starts_with([' ', '\t']) {
                is_object = true;
                self.at += 1;
            } else {
                break;
            }
        }
        Ok(if is_object {
            FieldValue::Object
        } else if items.is_empty() {
            FieldValue::Text(String::new())
        } else {
            FieldValue::List(items)
        })
    }

    /// A list in square brackets, in one line.
    fn flow_list(&mut self, first: &str) -> Result<FieldValue, FrontmatterError> {
        let text = without_comment(first);
        let Some(mut rest) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).map(str::trim)
        else {
            return self.error("the list is not closed by `]` in this line");
        };
        let mut items = Vec::new();
        while !rest.is_empty() {
            let (item, behind) = match rest.chars().next() {
                Some(quote @ ('"' | '\'')) => {
                    let Some(end) = rest[1..].find(quote) else {
                        return self.error("the quotes are not closed in this line");
                    };
                    (rest[1..=end].to_owned(), rest[end + 2..].trim_start())
                }
                _ => {
                    let end = rest.find(',').unwrap_or(rest.len());
                    (rest[..end].trim().to_owned(), &rest[end..])
                }
            };
            items.push(item);
            rest = match behind.strip_prefix(',') {
                Some(rest) => rest.trim_start(),
                None if behind.is_empty() => "",
                None => return self.error("a comma is expected between the items of the list"),
            };
        }
        self.at += 1;
        Ok(FieldValue::List(items))
    }
}

/// Lines as one text: folded, a line break between two is a space, and an empty line is a break.
fn joined(lines: &[&str], folds: bool) -> String {
    if !folds {
        return lines.join("\n");
    }
    let mut text = String::new();
    for line in lines {
        if line.trim().is_empty() {
            text.push('\n');
        } else {
            if !(text.is_empty() || text.ends_with('\n')) {
                text.push(' ');
            }
            text.push_str(line.trim());
        }
    }
    text
}

fn without_comment(text: &str) -> &str {
    text.find(" #").map_or(text, |at| &text[..at]).trim_end()
}

/// What stands between quotes that a line begins with; `None` where they are not closed, or something follows them.
fn quoted(line: &str, quote: char) -> Option<String> {
    let mut text = String::new();
    let mut letters = line.chars().skip(1).peekable();
    loop {
        match letters.next()? {
            '\\' if quote == '"' => match letters.next()? {
                'n' => text.push('\n'),
                't' => text.push('\t'),
                letter @ ('"' | '\\' | '/') => text.push(letter),
                letter => {
                    text.push('\\');
                    text.push(letter);
                }
            },
            letter if letter == quote && quote == '\'' && letters.peek() == Some(&quote) => {
                letters.next();
                text.push(quote);
            }
            letter if letter == quote => break,
            letter => text.push(letter),
        }
    }
    let rest: String = letters.collect();
    let rest = rest.trim();
    (rest.is_empty() || rest.starts_with('#')).then_some(text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_of_skills_in_the_wild_are_read() {
        let file = "---\nname: pdf-tools # a comment\ndescription: >-\n  Fills forms.\n  Use it: for PDF.\n\n  Really.\n\
                    license: \"Apache \\\"2\\\"\"\nmetadata:\n  author: me\n  tags:\n    - x\nallowed-tools: Read, Bash(git status:*)\n\
                    arguments: [issue, \"a b\"]\npaths:\n  - src/**\n  - 'it''s'\ndisable-model-invocation: true\n\
                    long: begins here\n  and continues\nempty:\nliteral: |\n  a\n   b\n---\n\n# Body\n---\n";
        let (front, body) = split(file).unwrap();
        assert_eq!(body, "# Body\n---\n");
        let text = |name: &str| front.text(name).unwrap_or_default();
        assert_eq!(text("name"), "pdf-tools");
        assert_eq!(text("description"), "Fills forms. Use it: for PDF.\nReally.");
        assert_eq!(text("license"), "Apache \"2\"");
        assert_eq!(front.words("arguments"), ["issue", "a b"]);
        assert_eq!(front.words("paths"), ["src/**", "it's"]);
        assert_eq!(text("allowed-tools"), "Read, Bash(git status:*)");
        assert_eq!(front.flag("disable-model-invocation"), Some(true));
        assert_eq!((text("long"), text("literal")), ("begins here and continues".into(), "a\n b".into()));
        assert!(front.has("metadata") && front.text("metadata").is_none() && front.text("empty").is_none());
        assert_eq!(split("no front\n---\n").unwrap(), (Frontmatter::default(), "no front\n---\n"));
        assert_eq!(split("---\r\nname: a\r\n---\r\nb").unwrap().0.text("name").unwrap(), "a");
    }

    #[test]
    fn frontmatter_that_is_not_read_names_its_line() {
        for (text, line) in [
            ("---\nname: a\n", 1),
            ("---\nname a\n---\n", 2),
            ("---\na: b\n - c: d\nname:x\n---\n", 4),
            ("---\na: b\na: c\n---\n", 3),
            ("---\na: &x b\n---\n", 2),
            ("---\na: \"b\n---\n", 2),
            ("---\na: [b\n---\n", 2),
            ("---\na: [\"b\" c]\n---\n", 2),
            ("---\n- a\n---\n", 2),
            ("---\na: |2x\n---\n", 2),
        ] {
            assert_eq!(split(text).unwrap_err().line, line, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "---\n[a-c:>|\\[\\]\"'#\\- \n]{0,60}\n---\nbody") {
            drop(split(&text));
        }
    }
}
