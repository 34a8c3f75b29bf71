//! The repository's documents as tests read them: their code blocks and code spans.

#![expect(clippy::expect_used, reason = "what is wrong in a test is a panic here")]

use std::path::{Path, PathBuf};

/// A Markdown file of the repository.
#[derive(Debug, Clone)]
pub struct Document {
    /// Path from the root of the repository.
    pub path: String,
    /// Its content.
    pub text: String,
}

/// A fenced block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeBlock {
    /// Number of its first line of content.
    pub line: usize,
    /// What follows the opening fence.
    pub language: String,
    /// Its lines, each with its line feed.
    pub text: String,
}

/// Code within a paragraph or a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSpan {
    /// Number of the line that it begins in.
    pub line: usize,
    /// What stands between the backticks.
    pub text: String,
}

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `README.md` and every page in `docs`, in the order of their paths.
///
/// # Panics
/// When a file cannot be read.
pub fn documents() -> Vec<Document> {
    let root = repository();
    let listing = std::fs::read_dir(root.join("docs")).expect("the folder docs");
    let mut names: Vec<String> = listing
        .map(|entry| entry.expect("an entry of docs").file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    names.push("README.md".to_owned());
    names.sort();
    let read = |path: String| {
        let text = std::fs::read_to_string(root.join(&path)).expect("a document");
        Document { path, text }
    };
    names.into_iter().map(read).collect()
}

impl Document {
    /// Every fenced block.
    pub fn blocks(&self) -> Vec<CodeBlock> {
        let mut blocks = Vec::new();
        let mut open: Option<CodeBlock> = None;
        for (index, line) in self.text.lines().enumerate() {
            match (line.trim_start().strip_prefix("```"), &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(language), None) => {
                    let language = language.trim().to_owned();
                    open = Some(CodeBlock { line: index + 2, language, text: String::new() });
                }
                (None, Some(block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        blocks
    }

    /// Every code span outside of fenced blocks. One that goes over a line break has a space there; `\|` in a table
    /// is `|`.
    pub fn spans(&self) -> Vec<CodeSpan> {
        let (mut spans, mut paragraph, mut fenced) = (Vec::new(), Vec::new(), false);
        for (index, line) in self.text.lines().enumerate() {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            if fence || fenced || line.trim().is_empty() {
                spans.extend(spans_of(&paragraph));
                paragraph.clear();
            } else {
                paragraph.push((index + 1, line));
            }
        }
        spans.extend(spans_of(&paragraph));
        spans
    }
}

fn spans_of(paragraph: &[(usize, &str)]) -> Vec<CodeSpan> {
    let mut spans = Vec::new();
    // The line, the number of backticks and the text of the span that is open.
    let mut open: Option<(usize, usize, String)> = None;
    for (number, line) in paragraph {
        let mut rest = line.trim_start();
        while !rest.is_empty() {
            let at = rest.find('`').unwrap_or(rest.len());
            let (text, after) = rest.split_at(at);
            let ticks = after.len() - after.trim_start_matches('`').len();
            rest = &after[ticks..];
            match &mut open {
                Some((_, _, span)) => span.push_str(text),
                None if ticks > 0 => {
                    open = Some((*number, ticks, String::new()));
                    continue;
                }
                None => continue,
            }
            match open.take() {
                Some((line, count, text)) if count == ticks => {
                    let text = text.trim().replace("\\|", "|");
                    spans.push(CodeSpan { line, text });
                }
                Some((line, count, mut text)) => {
                    text.push_str(&after[..ticks]);
                    open = Some((line, count, text));
                }
                None => {}
            }
        }
        if let Some((_, _, span)) = &mut open {
            span.push(' ');
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_spans_have_their_lines() {
        let text = "# A `b`\n\n```sh\nquipu\n`no`\n```\n| `a\\|b` | ``c`d`` |\n\nfirst `two\nlines` and `x`\n\nan ` alone\n\n`y`\n";
        let page = Document { path: "page.md".into(), text: text.into() };
        let block = CodeBlock { line: 4, language: "sh".into(), text: "quipu\n`no`\n".into() };
        assert_eq!(page.blocks(), [block]);
        let spans = page.spans();
        let found: Vec<(usize, &str)> = spans.iter().map(|span| (span.line, span.text.as_str())).collect();
        assert_eq!(found, [(1, "b"), (7, "a|b"), (7, "c`d"), (9, "two lines"), (10, "x"), (14, "y")]);
    }

    #[test]
    fn documents_are_found() {
        let paths: Vec<String> = documents().into_iter().map(|page| page.path).collect();
        assert!(paths.contains(&"README.md".to_owned()) && paths.contains(&"docs/sdk.md".to_owned()));
    }
}
