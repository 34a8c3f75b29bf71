//! Notes before a compaction: what is worth keeping of the conversation goes to the notes of the day.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use quipu::{CallRequest, CompactionAsk, ContextSource, RunnerPurpose, SourceError};
use quipu_memory::class_of_turn;
use quipu_memory::files::FileName;
use quipu_memory::flush::{flush_class, flush_mark, flush_note, flush_prompt};
use quipu_memory::notes::{NoteAuthor, Notebook};
use quipu_store::Graph;
use quipu_transcript::conversation_text;

use crate::Home;
use crate::background_budget::background_budget;
use crate::purposes::FLUSH_PURPOSE;

/// How long a compaction waits for the note.
const DEADLINE: Duration = Duration::from_secs(55);
/// Tokens of the note.
const TOKENS: u64 = 1_024;
/// Characters of the conversation for each token that the summary may have: about a third of the window in the end.
const CHARACTERS: u64 = 8;

/// Notes what is worth keeping before each compaction, once for each.
pub(crate) struct FlushSource {
    home: Home,
    book: Notebook,
    store: Arc<dyn Graph>,
}

impl FlushSource {
    /// For the notes of this memory.
    pub(crate) fn new(home: Home, book: Notebook, store: Arc<dyn Graph>) -> Self {
        Self { home, book, store }
    }

    /// US dollars that the note may cost, and those of the day; `None` where nobody allowed any.
    async fn money(&self) -> Result<Option<(f64, f64)>, SourceError> {
        let budget =
            background_budget(&self.home, &*self.store, FLUSH_PURPOSE).await.map_err(SourceError::new)?;
        match budget.left() {
            Some(left) => Ok(Some((left, budget.limit))),
            None if budget.limit > 0.0 => Err(SourceError::new(format!(
                "the ${} a day for notes before compactions (budget.background) are spent",
                budget.limit
            ))),
            None => Ok(None),
        }
    }

    async fn flush(&self, ask: &CompactionAsk) -> Result<(), SourceError> {
        let Some(session) = &ask.cx.session else { return Ok(()) };
        let Some((left, limit)) = self.money().await? else { return Ok(()) };
        let mark = flush_mark(session, ask.head);
        let today = jiff::Zoned::now().date();
        for day in [Some(today), today.yesterday().ok()].into_iter().flatten() {
            let noted = self.book.read(&FileName::of_day(day)).is_ok_and(|file| file.text.contains(&mark));
            if noted {
                return Ok(());
            }
        }
        let characters = usize::try_from(ask.max_tokens.saturating_mul(CHARACTERS)).unwrap_or(usize::MAX);
        let (system, prompt) = flush_prompt(&conversation_text(&ask.messages), characters);
        let purpose = RunnerPurpose::new(FLUSH_PURPOSE).map_err(SourceError::new)?;
        let request = CallRequest {
            system,
            max_tokens: TOKENS,
            budget: Some(left),
            daily: Some(limit),
            deadline: DEADLINE,
            ..CallRequest::new(purpose, prompt)
        };
        let before = self.store.hidden().version();
        let answer = ask.cx.runner().call(request).await.map_err(SourceError::new)?;
        let hidden = self.store.hidden();
        if let Some(why) = hidden.problem() {
            return Err(SourceError::new(why));
        }
        if hidden.version() != before {
            // It may say it in other words. The session asks again, of what is left.
            return Err(SourceError::new("something was forgotten while the model answered"));
        }
        let answer: Vec<&str> = answer.text.lines().filter(|line| !hidden.hides_line(line)).collect();
        let Some(note) = flush_note(&answer.join("\n"), &mark) else { return Ok(()) };
        let class = flush_class(ask.messages.iter().map(AsRef::as_ref), ask.previous.is_some());
        let turn = class_of_turn(&*self.store, ask.head).await.map_err(SourceError::new)?;
        let author =
            NoteAuthor { class: class.max(turn), by: FLUSH_PURPOSE.to_owned(), sources: vec![ask.head] };
        self.book.append(&FileName::of_day(today), &author, &note).await.map_err(SourceError::new)?;
        Ok(())
    }
}

impl ContextSource for FlushSource {
    fn name(&self) -> &str {
        FLUSH_PURPOSE
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn before_compaction<'a>(&'a self, ask: &'a CompactionAsk) -> BoxFuture<'a, Result<(), SourceError>> {
        self.flush(ask).boxed()
    }
}
