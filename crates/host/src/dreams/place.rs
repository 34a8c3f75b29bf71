//! The files, authors and models of one memory, for a dream.

use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use futures_util::FutureExt as _;
use jiff::tz::TimeZone;
use quipu::{CallRequest, Runner, RunnerPurpose};
use quipu_memory::dream::{
    DistilAsk, DreamError, DreamFut, DreamHost, LineClass, NodeText, NoteFile, WriteResult,
};
use quipu_memory::files::{FileName, FileProblem};
use quipu_memory::notes::{NoteAuthor, Notebook};
use quipu_memory::{AuthorClass, MemoryError, class_of_node};
use quipu_protocol::{Entry, Message, NodeId, UnixMs};
use quipu_store::{
    CHILD_SESSION, HiddenSnapshot, ReadModel as _, SessionQuery, SqliteStore, Store as _, decode_nodes,
};

use crate::Home;
use crate::background_budget::background_budget;
use crate::purposes::DREAM_PURPOSE;

/// Who changes a file.
const BY: &str = "dream";
/// Tokens of an answer.
const TOKENS: u64 = 4_096;

/// A memory as a dream sees it.
pub struct DreamPlace {
    home: Home,
    book: Notebook,
    store: Arc<SqliteStore>,
    runner: Option<Runner>,
}

fn refused(error: impl std::fmt::Display) -> DreamError {
    DreamError::Host(error.to_string())
}

impl DreamPlace {
    pub(super) fn new(home: Home, book: Notebook, store: Arc<SqliteStore>, runner: Option<Runner>) -> Self {
        Self { home, book, store, runner }
    }

    /// The name of the memory.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.book.place().id
    }

    /// The memory.
    #[must_use]
    pub fn book(&self) -> &Notebook {
        &self.book
    }

    /// What was forgotten until now; the file is read again only when it has changed.
    fn forgotten(&self) -> Result<HiddenSnapshot, DreamError> {
        let hidden = self.store.hidden();
        match hidden.problem() {
            Some(why) => Err(refused(why)),
            None => Ok(hidden),
        }
    }

    fn name(path: &str) -> Result<FileName, DreamError> {
        FileName::new(path).map_err(refused)
    }

    fn text(&self, path: &str) -> Result<Option<String>, DreamError> {
        match self.book.read(&Self::name(path)?) {
            Ok(file) => Ok(Some(file.text)),
            Err(MemoryError::File { problem: FileProblem::Missing, .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    async fn line_classes(&self, path: &str, text: &str) -> Result<Vec<LineClass>, DreamError> {
        let count = text.lines().count();
        let nobody = LineClass { class: AuthorClass::Untrusted, node: None, is_dream: false };
        let mut classes = vec![nobody; count];
        let authors = self.book.authors(&Self::name(path)?).await.map_err(refused)?;
        // What somebody changed meanwhile has other lines.
        if self.text(path)?.as_deref() != Some(text) {
            return Ok(classes);
        }
        for author in authors {
            let index = |line: u32| usize::try_from(line).unwrap_or(usize::MAX);
            let lines = index(author.lines.first.saturating_sub(1))..index(author.lines.last).min(count);
            for class in classes.get_mut(lines).into_iter().flatten() {
                let is_dream = author.by == BY;
                *class = LineClass { class: author.class, node: author.node, is_dream };
            }
        }
        let forgotten = self.forgotten()?;
        for (class, line) in classes.iter_mut().zip(text.lines()) {
            if forgotten.hides_line(line) {
                *class = nobody;
            }
        }
        Ok(classes)
    }

    async fn node_text(&self, node: NodeId) -> Result<Option<NodeText>, DreamError> {
        if self.forgotten()?.hides(&node) {
            return Ok(None);
        }
        let store = &*self.store;
        let found: Vec<_> = store.nodes(&[node]).await?.into_iter().flatten().collect();
        let Some(decoded) = decode_nodes(store, &found).await?.pop() else { return Ok(None) };
        let text = match &decoded.entry {
            // What stands beside a prompt was not said in it.
            Entry::Message(Message::User(message)) => {
                quipu_protocol::own_text(&message.content.blocks(), &decoded.step.added)
            }
            Entry::Message(Message::Assistant(message)) => message.text(),
            _ => return Ok(None),
        };
        let Some(mut class) = class_of_node(store, node).await? else { return Ok(None) };
        // What programs and sub-agents say among themselves is nobody's memory.
        let session = store.sessions_of(&[node]).await?.into_iter().next().flatten();
        let Some(session) = session else {
            return Ok(Some(NodeText { text, class: AuthorClass::Untrusted }));
        };
        if session.as_str().starts_with(CHILD_SESSION) {
            class = AuthorClass::System;
        } else if matches!(decoded.entry, Entry::Message(Message::Assistant(_))) {
            // What another agent said is not ours, also where its turn read nothing.
            let query =
                SessionQuery { id: Some(session), children: true, limit: Some(1), ..SessionQuery::default() };
            let is_ours = store.sessions(query).await?.first().is_some_and(|row| row.agent == quipu::AGENT);
            if !is_ours {
                class = class.max(AuthorClass::Untrusted);
            }
        }
        Ok(Some(NodeText { text, class }))
    }

    async fn ask(&self, ask: &DistilAsk) -> Result<Option<String>, DreamError> {
        let Some(runner) = &self.runner else { return Ok(None) };
        let budget = background_budget(&self.home, &*self.store, DREAM_PURPOSE).await.map_err(refused)?;
        let Some(left) = budget.left() else {
            if budget.limit > 0.0 {
                return Err(DreamError::Host(format!(
                    "the ${} a day for dreams (budget.background) are spent",
                    budget.limit
                )));
            }
            return Ok(None);
        };
        let purpose = RunnerPurpose::new(DREAM_PURPOSE).map_err(refused)?;
        let request = CallRequest {
            system: ask.system.clone(),
            max_tokens: TOKENS,
            budget: Some(left),
            daily: Some(budget.limit),
            ..CallRequest::new(purpose, ask.prompt.clone())
        };
        let answer = runner.call(request).await.map_err(refused)?;
        Ok(Some(answer.text))
    }
}

impl DreamHost for DreamPlace {
    fn notes(&self) -> DreamFut<'_, Vec<NoteFile>> {
        async {
            let root = &self.book.place().root;
            let mut notes = Vec::new();
            for file in self.book.list().files {
                if file.name.date().is_none() {
                    continue;
                }
                let Ok(found) = std::fs::symlink_metadata(root.join(file.name.as_str())) else { continue };
                let modified =
                    found.mtime().saturating_mul(1_000).saturating_add(found.mtime_nsec() / 1_000_000);
                notes.push(NoteFile { path: file.name.as_str().to_owned(), bytes: file.bytes, modified });
            }
            Ok(notes)
        }
        .boxed()
    }

    fn read<'a>(&'a self, path: &'a str) -> DreamFut<'a, Option<String>> {
        async move { self.text(path) }.boxed()
    }

    fn classes<'a>(&'a self, path: &'a str, text: &'a str) -> DreamFut<'a, Vec<LineClass>> {
        self.line_classes(path, text).boxed()
    }

    fn is_forgotten(&self, text: &str) -> Result<bool, DreamError> {
        let forgotten = self.forgotten()?;
        // A text has the heading that its line stands below.
        let says = |text: &str| forgotten.hides_line(text);
        Ok(text.lines().any(says) || text.split_once(": ").is_some_and(|(_, line)| says(line)))
    }

    fn node(&self, node: NodeId) -> DreamFut<'_, Option<NodeText>> {
        self.node_text(node).boxed()
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        before: Option<&'a str>,
        after: &'a str,
        sources: &'a [NodeId],
    ) -> DreamFut<'a, WriteResult> {
        async move {
            let name = Self::name(path)?;
            // What is promoted comes from owners and agents alone; the diary is a report.
            let class = if path == FileName::MEMORY { AuthorClass::Agent } else { AuthorClass::System };
            let author = NoteAuthor { class, by: BY.to_owned(), sources: sources.to_vec() };
            let mut is_same = false;
            let edit = |now: &str| {
                is_same = now == before.unwrap_or_default();
                is_same.then(|| after.to_owned())
            };
            self.book.write(&name, &author, edit).await.map_err(refused)?;
            Ok(if is_same { WriteResult::Written } else { WriteResult::Changed })
        }
        .boxed()
    }

    fn distil<'a>(&'a self, ask: &'a DistilAsk) -> DreamFut<'a, Option<String>> {
        self.ask(ask).boxed()
    }

    fn day_of(&self, at: UnixMs) -> i64 {
        let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default().to_zoned(TimeZone::system());
        let span = time.date().since(jiff::civil::Date::constant(1970, 1, 1));
        span.map_or(0, |span| i64::from(span.get_days()))
    }
}
