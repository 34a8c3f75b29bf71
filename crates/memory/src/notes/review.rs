//! What a person accepts: lines that nobody explained, and what was written in turns that read untrusted text.

use std::collections::BTreeMap;

use quipu_protocol::NodeId;

use super::ledger::{LineAuthor, LineRange, lines_of};
use super::notebook::Notebook;
use super::pass::Pass;
use crate::files::{FileName, FileText};
use crate::{AuthorClass, MemoryError, MemoryKind};

/// Lines that wait for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinesToReview {
    /// The file.
    pub name: FileName,
    /// Which lines, and who wrote them as far as is known.
    pub author: LineAuthor,
    /// What they say.
    pub text: String,
}

impl Notebook {
    /// Untrusted lines of every file that can be read. What changed since the last node becomes one first. Blank lines need nobody.
    ///
    /// # Errors
    /// `Busy`, `Io`, `Store`.
    pub async fn to_review(&self) -> Result<Vec<LinesToReview>, MemoryError> {
        self.observe().await?;
        let mut found = Vec::new();
        let files = self.list().files;
        let read = files.iter().filter_map(|file| self.read(&file.name).ok());
        // What stands between marks of a conflict is nobody's word.
        let texts: Vec<FileText> = read.filter(|text| text.conflict.is_none()).collect();
        let authors = self.authors_of(&texts.iter().collect::<Vec<_>>()).await?;
        for (text, authors) in texts.iter().zip(authors) {
            let lines = lines_of(&text.text);
            for author in authors {
                let range = range_of(author.lines, lines.len());
                let said = lines.get(range).unwrap_or_default().join("\n");
                if author.class == AuthorClass::Untrusted && !said.trim().is_empty() {
                    found.push(LinesToReview { name: text.name.clone(), author, text: said });
                }
            }
        }
        Ok(found)
    }

    /// A person accepts lines as they were shown: they are that person's from here on. Lines that are others by now are left out.
    /// Gives the node, where any were accepted.
    ///
    /// # Errors
    /// `ReadOnly` for the memory of a repository, which is accepted as a whole; `Busy`, `Io`, `Store`.
    pub async fn accept(&self, shown: &[LinesToReview]) -> Result<Option<NodeId>, MemoryError> {
        if self.place.kind == MemoryKind::Repository {
            return Err(MemoryError::ReadOnly(self.place.root.clone()));
        }
        self.observe().await?;
        let mut accepted: BTreeMap<String, Vec<LineRange>> = BTreeMap::new();
        for one in shown {
            let Ok(text) = self.read(&one.name) else { continue };
            let lines = lines_of(&text.text);
            let range = range_of(one.author.lines, lines.len());
            if lines.get(range).unwrap_or_default().join("\n") == one.text {
                accepted.entry(one.name.as_str().to_owned()).or_default().push(one.author.lines);
            }
        }
        if accepted.is_empty() {
            return Ok(None);
        }
        Pass::begin(self).await?.accept(accepted).await
    }
}

fn range_of(lines: LineRange, count: usize) -> std::ops::Range<usize> {
    let first = usize::try_from(lines.first).unwrap_or(1).max(1) - 1;
    let last = usize::try_from(lines.last).unwrap_or(usize::MAX).min(count);
    first.min(last)..last
}
