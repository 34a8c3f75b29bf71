//! What is done with a memory: writing, appending, noticing what others changed, and who wrote which line.

use super::ledger::LineAuthor;
use super::notebook::{NoteAuthor, Notebook, WrittenNote};
use super::observe::{UnexplainedChange, of_repository};
use super::pass::Pass;
use crate::files::{FileName, FileText};
use crate::{MemoryError, MemoryKind};

impl Notebook {
    /// Makes a change: the one way in which Quipu writes to a memory. `edit` is given the text of the file as it is (an empty
    /// one where there is no file) and returns the text that is wanted, or `None` to leave it. It is called again where a person
    /// changed the file meanwhile, with that person's text.
    ///
    /// The file is replaced in one step, under a lock that all processes share; the node of the change has its states before and
    /// after. What other programs changed since the last node becomes a node of its own before it, untrusted until a person accepts it.
    ///
    /// # Errors
    /// `ReadOnly` for the memory of a repository; `File` where the file cannot be used, has marks of a conflict among them;
    /// `TooLarge`, `Unsettled`, `Busy`, `Io`, `Store`. The file is changed only with `Store`: then the change is found as
    /// unexplained later.
    pub async fn write(
        &self,
        name: &FileName,
        author: &NoteAuthor,
        edit: impl FnMut(&str) -> Option<String> + Send,
    ) -> Result<Option<WrittenNote>, MemoryError> {
        self.is_writable()?;
        let mut pass = Pass::begin(self).await?;
        pass.write(name, author, edit).await
    }

    /// Appends lines to a file.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn append(
        &self,
        name: &FileName,
        author: &NoteAuthor,
        text: &str,
    ) -> Result<Option<WrittenNote>, MemoryError> {
        let text = text.trim_end();
        let added = |old: &str| {
            let gap = if old.is_empty() || old.ends_with('\n') { "" } else { "\n" };
            (!text.is_empty()).then(|| format!("{old}{gap}{text}\n"))
        };
        self.write(name, author, added).await
    }

    /// Finds what other programs changed since the last node, and makes a node of it: untrusted until a person accepts it.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub async fn observe(&self) -> Result<Vec<UnexplainedChange>, MemoryError> {
        if self.place.kind == MemoryKind::Repository || !self.place.root.is_dir() {
            return Ok(Vec::new());
        }
        Pass::begin(self).await?.observe_and_commit().await
    }

    /// Who wrote the lines of a file as it is now. Lines that changed since the last node are untrusted, by nobody.
    ///
    /// # Errors
    /// `File` where it cannot be used, `Busy`, `Io`, `Store`.
    pub async fn authors(&self, name: &FileName) -> Result<Vec<LineAuthor>, MemoryError> {
        let text = self.read(name)?;
        if self.place.kind == MemoryKind::Repository {
            return Ok(of_repository(&text, self.is_accepted()));
        }
        Ok(Pass::begin(self).await?.authors(&text))
    }

    /// The same for texts that were read, in their order: what is known of the memory is read once.
    ///
    /// # Errors
    /// `Busy`, `Io`, `Store`.
    pub async fn authors_of(&self, texts: &[&FileText]) -> Result<Vec<Vec<LineAuthor>>, MemoryError> {
        if self.place.kind == MemoryKind::Repository {
            return Ok(texts.iter().map(|text| of_repository(text, self.is_accepted())).collect());
        }
        let pass = Pass::begin(self).await?;
        Ok(texts.iter().map(|text| pass.authors(text)).collect())
    }
}
