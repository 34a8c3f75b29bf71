//! Lines are found by their words, and taken out.

use std::collections::BTreeMap;

use quipu_protocol::NodeId;

use super::ledger::lines_of;
use super::notebook::{NoteAuthor, Notebook};
use crate::files::FileName;
use crate::{AuthorClass, MemoryError};

/// A line that has the words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundLine {
    /// Its file.
    pub name: FileName,
    /// Its number, from 1.
    pub line: u32,
    /// What it says.
    pub text: String,
}

impl Notebook {
    /// Lines of every file that have all of these words, in any order and in any case.
    #[must_use]
    pub fn find_lines(&self, words: &str) -> Vec<FoundLine> {
        let words: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for file in self.list().files {
            let Ok(text) = self.read(&file.name) else { continue };
            for (line, number) in text.text.lines().zip(1_u32..) {
                let lower = line.to_lowercase();
                if words.iter().all(|word| lower.contains(word)) {
                    found.push(FoundLine { name: file.name.clone(), line: number, text: line.to_owned() });
                }
            }
        }
        found
    }

    /// A person takes lines out of their files. A line that says something else by now, or stands elsewhere, is found by what
    /// it said. Gives the nodes.
    ///
    /// # Errors
    /// As [`Notebook::write`].
    pub async fn remove_lines(&self, lines: &[FoundLine], by: &str) -> Result<Vec<NodeId>, MemoryError> {
        let mut files: BTreeMap<&FileName, Vec<&str>> = BTreeMap::new();
        for line in lines {
            files.entry(&line.name).or_default().push(&line.text);
        }
        let author = NoteAuthor { class: AuthorClass::Owner, by: by.to_owned(), sources: Vec::new() };
        let mut nodes = Vec::new();
        for (name, gone) in files {
            let without = |text: &str| {
                let mut gone = gone.clone();
                let kept = text.split_inclusive('\n').filter(|line| {
                    let line = lines_of(line).first().copied().unwrap_or_default();
                    match gone.iter().position(|text| *text == line) {
                        Some(at) => {
                            gone.swap_remove(at);
                            false
                        }
                        None => true,
                    }
                });
                Some(kept.collect::<String>())
            };
            nodes.extend(self.write(name, &author, without).await?.map(|written| written.node));
        }
        Ok(nodes)
    }
}
