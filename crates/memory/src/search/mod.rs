//! Search over the notes of the open memories and over every session, for questions as people ask them.

mod active;
mod chunks;
mod classes;
mod notes;
mod scope;
mod tools;
mod watch;
mod words;

use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_providers::StaticModel;
use quipu_seal::Sealer;
use quipu_store::{
    Graph, MOST_RECALLED, QUESTION_LIMIT, RecallHit, RecallHits, RecallKind, RecallPlace, RecallQuery,
    RecallSignal, StoreError, WordVectors,
};

use self::scope::ProjectSessions;
pub use self::tools::{MemoryNotes, MemoryTools, NOTE_TOOL, RecallObserver, memory_tool_names, unavailable};
pub use self::watch::NoteWatch;
use crate::notes::Notebook;
use crate::{AuthorClass, Citation, ForgetList, MemoryError, MemoryHome, MemoryPlace};

/// How long a search indexes what is new before it answers from what is indexed.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// Hits that are read beyond those that are asked for: some may have been forgotten.
const SPARE: usize = 8;
/// Characters of a snippet at most.
const SNIPPET: usize = 700;

/// Searches what is remembered.
#[derive(Clone)]
pub struct MemorySearch {
    store: Arc<dyn Graph>,
    books: Vec<Notebook>,
    sealer: Arc<Sealer>,
    home: MemoryHome,
    words: Option<Arc<dyn WordVectors>>,
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryQuestion {
    /// The question.
    pub text: String,
    /// Only sessions of these directories and of those below; `None` for every session.
    pub projects: Option<Vec<String>>,
    /// Whether other projects that lie below those are seen.
    pub nested: NestedProjects,
    /// No node of this session.
    pub asking: Option<SessionId>,
    /// Only what was written since then.
    pub since: Option<UnixMs>,
    /// Only what was written before then.
    pub until: Option<UnixMs>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<RecallKind>,
    /// Only of these authors; empty for all.
    pub authors: Vec<AuthorClass>,
    /// At most so many hits.
    pub limit: usize,
}

/// Whether projects that lie below a directory belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NestedProjects {
    /// All that is below is seen.
    #[default]
    Seen,
    /// Only sessions whose project is one of the directories.
    Unseen,
}

/// What a search came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryAnswer {
    /// The best first.
    pub hits: Vec<MemoryHit>,
    /// Nodes that are not indexed yet.
    pub left: u64,
}

/// A place that may answer the question.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryHit {
    /// Where it stands.
    pub place: HitPlace,
    /// What it says, or the part of it around the words.
    pub snippet: String,
    /// What it is.
    pub kind: RecallKind,
    /// Who wrote it.
    pub author: AuthorClass,
    /// When it was written.
    pub at: UnixMs,
    /// How well it fits: from 0 to 1, by the best of this search.
    pub score: f64,
    /// Which signal found it.
    pub by: RecallSignal,
}

/// Where a hit stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HitPlace {
    /// In a session.
    Node {
        /// The node.
        node: NodeId,
        /// Its id in the program that wrote it.
        external_id: Option<String>,
        /// Its session.
        session: Option<SessionId>,
    },
    /// In a note.
    Note {
        /// The memory.
        memory: MemoryPlace,
        /// The lines.
        citation: Citation,
    },
}

/// A search could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MemorySearchError {
    /// The store has no index for questions.
    #[error("this store keeps no index for questions")]
    NoIndex,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What was forgotten cannot be read, so nothing is shown.
    #[error(transparent)]
    Forgotten(MemoryError),
}

impl MemorySearch {
    /// Over the sessions of a store and the notes of these memories, all of this home.
    #[must_use]
    pub fn new(home: MemoryHome, store: Arc<dyn Graph>, books: Vec<Notebook>, sealer: Arc<Sealer>) -> Self {
        Self { store, books, sealer, home, words: None }
    }

    /// With a second signal: the words of this model.
    #[must_use]
    pub fn with_model(self, model: StaticModel) -> Self {
        self.with_words(Some(word_vectors(model)))
    }

    /// With the second signal that another search has.
    #[must_use]
    pub fn with_words(self, words: Option<Arc<dyn WordVectors>>) -> Self {
        Self { words, ..self }
    }

    /// The second signal, where there is one.
    #[must_use]
    pub fn words(&self) -> Option<&Arc<dyn WordVectors>> {
        self.words.as_ref()
    }

    /// The memories whose notes are searched.
    #[must_use]
    pub fn books(&self) -> &[Notebook] {
        &self.books
    }

    pub(super) const fn home(&self) -> &MemoryHome {
        &self.home
    }

    /// Indexes all that is new; `tell` gets how many nodes are left. Notes that changed are indexed too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn index(&self, mut tell: impl FnMut(u64)) -> Result<(), MemorySearchError> {
        let index = self.store.recall_index().ok_or(MemorySearchError::NoIndex)?;
        let mut before = u64::MAX;
        loop {
            let left = index.index_recall(self.words.clone(), Duration::from_millis(250)).await?;
            if left == 0 || left >= before {
                break;
            }
            before = left;
            tell(left);
        }
        self.index_notes().await
    }

    /// Indexes the notes that changed.
    ///
    /// # Errors
    /// What the store says.
    pub async fn index_notes(&self) -> Result<(), MemorySearchError> {
        let index = self.store.recall_index().ok_or(MemorySearchError::NoIndex)?;
        for book in &self.books {
            notes::index(index, book, self.words.as_ref(), &self.sealer).await?;
        }
        Ok(())
    }

    /// Answers a question. What is new is indexed before, for up to a second; [`MemoryAnswer::left`] tells what is not.
    ///
    /// # Errors
    /// What the store says.
    pub async fn search(&self, question: &MemoryQuestion) -> Result<MemoryAnswer, MemorySearchError> {
        let index = self.store.recall_index().ok_or(MemorySearchError::NoIndex)?;
        let notes = async {
            let wanted = question.kinds.is_empty() || question.kinds.contains(&RecallKind::Note);
            if wanted { self.index_notes().await } else { Ok(()) }
        };
        let nodes = async {
            match index.index_recall(self.words.clone(), PATIENCE).await {
                // What is indexed is searched all the same.
                Ok(_) | Err(StoreError::ReadOnly { .. } | StoreError::Full { .. }) => Ok(()),
                Err(error) => Err(MemorySearchError::from(error)),
            }
        };
        let (notes, nodes) = futures_util::future::join(notes, nodes).await;
        nodes?;
        match notes {
            Ok(()) | Err(MemorySearchError::Store(StoreError::ReadOnly { .. } | StoreError::Full { .. })) => {
            }
            Err(error) => return Err(error),
        }
        // The store knows secrets by their placeholders only.
        let mut text = self.sealer.seal(&question.text).into_owned();
        text.truncate(text.floor_char_boundary(QUESTION_LIMIT));
        let forgotten = ForgetList::read(&self.home).map_err(MemorySearchError::Forgotten)?;
        let mut query = RecallQuery {
            question: text,
            projects: question.projects.clone(),
            memories: self.books.iter().map(|book| book.place().id.clone()).collect(),
            since: question.since,
            until: question.until,
            kinds: question.kinds.clone(),
            // Who wrote something is known better than when it was indexed.
            authors: Vec::new(),
            asking: question.asking.clone(),
            without: forgotten.nodes().collect(),
            limit: question.limit.saturating_add(SPARE).min(MOST_RECALLED),
        };
        loop {
            let RecallHits { hits, left, wordless: _ } =
                index.recall(query.clone(), self.words.clone()).await?;
            let is_all = hits.len() < query.limit || query.limit == MOST_RECALLED;
            let hits = self.shown(question, &forgotten, hits).await?;
            if is_all || hits.len() >= question.limit {
                return Ok(MemoryAnswer { hits, left });
            }
            // More were left out than there are to spare.
            query.limit = MOST_RECALLED;
        }
    }

    /// The hits that may be shown, as many as are wanted.
    async fn shown(
        &self,
        question: &MemoryQuestion,
        forgotten: &ForgetList,
        hits: Vec<RecallHit>,
    ) -> Result<Vec<MemoryHit>, MemorySearchError> {
        let mut shown: Vec<MemoryHit> = Vec::new();
        let mut files = notes::NoteReader::new(&self.books);
        let own = question.projects.as_deref().filter(|_| question.nested == NestedProjects::Unseen);
        let mut own = own.map(|projects| ProjectSessions::new(&*self.store, projects));
        for hit in hits {
            if shown.len() >= question.limit {
                break;
            }
            if let RecallPlace::Node { session, .. } = &hit.place {
                if session.is_some() && *session == question.asking {
                    continue;
                }
                if let Some(own) = &mut own {
                    let Some(session) = session else { continue };
                    if !own.has(session).await? {
                        continue;
                    }
                }
            }
            let (place, snippet) = match hit.place {
                RecallPlace::Node { node, .. } if forgotten.hides_node(&node) => continue,
                RecallPlace::Node { node, external_id, session, excerpt } => {
                    (HitPlace::Node { node, external_id, session }, excerpt)
                }
                RecallPlace::Note { memory, path, first, last } => {
                    let citation = Citation { path, lines: first..=last };
                    // A file that went away since.
                    let Some((memory, snippet)) = files.lines(&memory, &citation) else { continue };
                    (HitPlace::Note { memory, citation }, snippet)
                }
            };
            if snippet.lines().any(|line| forgotten.hides_line(line)) {
                continue;
            }
            let mut found = [MemoryHit {
                place,
                snippet,
                kind: hit.kind,
                author: notes::author(hit.author),
                at: hit.at,
                score: hit.score,
                by: hit.by,
            }];
            if !question.authors.is_empty() {
                classes::set_classes(&*self.store, &self.books, &mut found).await;
                if !question.authors.contains(&found[0].author) {
                    continue;
                }
            }
            shown.extend(found);
        }
        if question.authors.is_empty() {
            classes::set_classes(&*self.store, &self.books, &mut shown).await;
        }
        Ok(shown)
    }
}

/// The words of a model as the second signal.
#[must_use]
pub fn word_vectors(model: StaticModel) -> Arc<dyn WordVectors> {
    Arc::new(words::ModelWords::new(model))
}

/// The first characters of a text.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SNIPPET).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
