//! What a session reads of its memories when it begins.

mod section;

use std::fmt;

use futures_util::future::BoxFuture;
use jiff::civil::Date;
use quipu::protocol::Trust;
use quipu::{Context, ContextAsk, ContextSource, Section, SourceError};
use quipu_store::StoreError;

use crate::files::{FileName, FileProblem};
use crate::notes::{LineAuthor, NOTE_BYTES, Notebook};
use crate::{AuthorClass, ForgetList, MemoryError, MemoryKind};

pub use section::visible;
use section::{CutSide, FileExcerpt, framed};

/// Characters of `USER.md` at most.
pub const USER_BUDGET: usize = 4_000;
/// Characters of `MEMORY.md` at most.
pub const MEMORY_BUDGET: usize = 12_000;
/// Characters of a file of today's notes at most: of one note that a model adds, all are seen.
pub const TODAY_BUDGET: usize = NOTE_BYTES + 100;
/// Characters of a file of yesterday's notes at most.
pub const DAY_BUDGET: usize = 3_000;
/// Characters of everything at most. Where the model's window is small, it is less.
pub const CONTEXT_BUDGET: usize = 24_000;
/// Files of one day that are read.
const DAY_FILES: usize = 5;
/// Characters of a token, about.
const CHARACTERS: u64 = 4;

/// Sections of the system prompt with the memories that are open: `USER.md`, `MEMORY.md`, the notes of today and of yesterday,
/// within budgets. They are read once, when the session begins. Their text is framed as information: nothing in it is an order.
/// Lines of untrusted authors are left out.
pub struct MemorySource {
    books: Vec<Notebook>,
    today: Date,
    forgotten: ForgetList,
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemorySource").field("books", &self.books).field("today", &self.today).finish()
    }
}

impl MemorySource {
    /// What the source is called.
    pub const NAME: &'static str = "memory";

    /// These memories, in this order, on this day.
    #[must_use]
    pub fn new(books: Vec<Notebook>, today: Date) -> Self {
        Self { books, today, forgotten: ForgetList::default() }
    }

    /// The same without lines that a person had forgotten, also where they still stand in a file.
    #[must_use]
    pub fn without(self, forgotten: ForgetList) -> Self {
        Self { forgotten, ..self }
    }

    async fn sections(&self, budget: usize, busy: &[&str]) -> Result<Vec<Section>, MemoryError> {
        let mut left = budget;
        let mut sections = Vec::new();
        for (name, most, cut) in self.wanted() {
            for book in &self.books {
                for file in names(book, &name) {
                    let authors = match busy.contains(&book.place().id.as_str()) {
                        true => Vec::new(),
                        false => self.authors(book, &file).await?,
                    };
                    let shown = self.shown(book, &file, &authors, most.min(left), cut)?;
                    let Some(shown) = shown else { continue };
                    left = left.saturating_sub(shown.characters);
                    let id = format!("{}/{file}", book.place().id);
                    sections.push(Section {
                        id,
                        text: framed(book.place(), &file, &shown),
                        trust: Trust::Untrusted,
                    });
                }
            }
        }
        Ok(sections)
    }

    /// What is read, with its budget, the most important first.
    fn wanted(&self) -> Vec<(FileChoice, usize, CutSide)> {
        let top = |name| FileChoice::Top(name);
        let mut wanted = vec![
            (top(FileName::USER), USER_BUDGET, CutSide::End),
            (top(FileName::MEMORY), MEMORY_BUDGET, CutSide::End),
            (FileChoice::Day(self.today), TODAY_BUDGET, CutSide::Beginning),
        ];
        if let Ok(yesterday) = self.today.yesterday() {
            wanted.push((FileChoice::Day(yesterday), DAY_BUDGET, CutSide::Beginning));
        }
        wanted
    }

    /// Who wrote the lines of a file; nobody where it cannot be used, as is told in its place.
    async fn authors(&self, book: &Notebook, name: &FileName) -> Result<Vec<LineAuthor>, MemoryError> {
        match book.authors(name).await {
            Err(MemoryError::File { .. } | MemoryError::Busy(_)) => Ok(Vec::new()),
            found => found,
        }
    }

    fn shown(
        &self,
        book: &Notebook,
        name: &FileName,
        authors: &[LineAuthor],
        most: usize,
        cut: CutSide,
    ) -> Result<Option<FileExcerpt>, MemoryError> {
        let text = match book.read(name) {
            Ok(text) => text,
            Err(MemoryError::File { problem: FileProblem::Missing, .. }) => return Ok(None),
            Err(MemoryError::File { problem, .. }) => return Ok(Some(FileExcerpt::unusable(&problem))),
            Err(error) => return Err(error),
        };
        if let Some(line) = text.conflict {
            return Ok(Some(FileExcerpt::unusable(&FileProblem::Conflict(line))));
        }
        let is_trusted = |line: u32| {
            authors.iter().any(|author| {
                (author.lines.first..=author.lines.last).contains(&line)
                    && author.class != AuthorClass::Untrusted
            })
        };
        let shown = |line| if self.forgotten.hides_line(line) { "" } else { line };
        let text = text.text.lines().map(shown).collect::<Vec<_>>().join("\n");
        let path = format!("{}{name}", book.place().kind.prefix());
        Ok(FileExcerpt::of(&path, &text, is_trusted, most, cut))
    }
}

/// Which file of each memory.
enum FileChoice {
    Top(&'static str),
    Day(Date),
}

/// The files of a memory that are meant.
fn names(book: &Notebook, wanted: &FileChoice) -> Vec<FileName> {
    match wanted {
        // A repository's own view of its user is nobody's.
        FileChoice::Top(FileName::USER) if book.place().kind == MemoryKind::Repository => Vec::new(),
        FileChoice::Top(name) => FileName::new(name).into_iter().collect(),
        FileChoice::Day(day) => {
            let files = book.list().files.into_iter().map(|file| file.name);
            let mut of_day: Vec<FileName> =
                files.filter(|name| name.date().is_some_and(|date| date.day == *day)).collect();
            // The note of the day itself first: models write there.
            of_day.sort_by_key(|name| name.date().is_none_or(|date| !date.slug.is_empty()));
            of_day.truncate(DAY_FILES);
            of_day
        }
    }
}

impl ContextSource for MemorySource {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn context<'a>(&'a self, ask: &'a ContextAsk) -> BoxFuture<'a, Result<Context, SourceError>> {
        // A quarter of what is left for all sources, at most.
        let most = ask.budget.map_or(CONTEXT_BUDGET, |tokens| {
            usize::try_from(tokens.saturating_mul(CHARACTERS) / 4).unwrap_or(usize::MAX).min(CONTEXT_BUDGET)
        });
        Box::pin(async move {
            let mut busy = Vec::new();
            for book in &self.books {
                match book.observe().await {
                    Ok(_) => {}
                    // What is new is nobody's, and what is known is known without a node for it.
                    Err(MemoryError::Store(StoreError::ReadOnly { .. } | StoreError::Full { .. })) => {}
                    // Another process is at it for long: without the authors its lines are left out.
                    Err(MemoryError::Busy(_)) => busy.push(book.place().id.as_str()),
                    Err(error) => return Err(SourceError::new(error)),
                }
            }
            let sections = self.sections(most, &busy).await.map_err(SourceError::new)?;
            Ok(Context { sections, keep_recent: None })
        })
    }
}
