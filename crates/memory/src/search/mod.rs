//! Search over the notes of the open memories and over every session, for questions as people ask them.

mod chunks;
mod notes;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use quipu::{SemanticError, index_semantic};
use quipu_protocol::{NodeId, SessionId, UnixMs};
use quipu_providers::Embedder;
use quipu_seal::Sealer;
use quipu_store::{
    Graph, RecallHits, RecallKind, RecallPlace, RecallQuery, RecallSignal, RecallVector, StoreError,
};

pub use self::tools::{MemoryNotes, MemoryTools, memory_tool_names};
use crate::notes::Notebook;
use crate::{AuthorClass, Citation, MemoryPlace};

/// How long a search indexes what is new before it answers from what is indexed.
const PATIENCE: Duration = Duration::from_millis(1_000);
/// The same for vectors.
const VECTOR_PATIENCE: Duration = Duration::from_millis(100);
/// Characters of a snippet at most.
const SNIPPET: usize = 700;

/// Searches what is remembered.
#[derive(Clone)]
pub struct MemorySearch {
    store: Arc<dyn Graph>,
    books: Vec<Notebook>,
    sealer: Arc<Sealer>,
    embedder: Option<Arc<dyn Embedder>>,
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryQuestion {
    /// The question.
    pub text: String,
    /// Only sessions of these directories and of those below; `None` for every session.
    pub projects: Option<Vec<String>>,
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

/// What a search came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemoryAnswer {
    /// The best first.
    pub hits: Vec<MemoryHit>,
    /// Nodes that are not indexed yet.
    pub left: u64,
    /// Why the second signal was left out, where one is set up.
    pub without_semantic: Option<String>,
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
}

impl MemorySearch {
    /// Over the sessions of a store and the notes of these memories.
    #[must_use]
    pub fn new(store: Arc<dyn Graph>, books: Vec<Notebook>, sealer: Arc<Sealer>) -> Self {
        Self { store, books, sealer, embedder: None }
    }

    /// With a second signal: vectors of this model.
    #[must_use]
    pub fn with_embedder(self, embedder: Arc<dyn Embedder>) -> Self {
        Self { embedder: Some(embedder), ..self }
    }

    /// The memories whose notes are searched.
    #[must_use]
    pub fn books(&self) -> &[Notebook] {
        &self.books
    }

    /// Indexes all that is new; `tell` gets how many nodes are left. Notes that changed are indexed too.
    ///
    /// # Errors
    /// What the store says.
    pub async fn index(&self, mut tell: impl FnMut(u64)) -> Result<(), MemorySearchError> {
        let index = self.store.recall_index().ok_or(MemorySearchError::NoIndex)?;
        let mut before = u64::MAX;
        loop {
            let left = index.index_recall(Duration::from_millis(250)).await?;
            if left == 0 || left >= before {
                break;
            }
            before = left;
            tell(left);
        }
        self.index_notes().await?;
        if let (Some(embedder), Some(vectors)) = (&self.embedder, self.store.vectors()) {
            match index_semantic(vectors, &**embedder, &self.sealer, None, tell).await {
                Ok(_) | Err(SemanticError::Model(_)) => {}
                Err(SemanticError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Indexes the notes that changed.
    ///
    /// # Errors
    /// What the store says.
    pub async fn index_notes(&self) -> Result<(), MemorySearchError> {
        let index = self.store.recall_index().ok_or(MemorySearchError::NoIndex)?;
        for book in &self.books {
            notes::index(index, book, self.embedder.as_deref(), &self.sealer).await?;
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
            match index.index_recall(PATIENCE).await {
                // What is indexed is searched all the same.
                Ok(_) | Err(StoreError::ReadOnly { .. } | StoreError::Full { .. }) => Ok(()),
                Err(error) => Err(MemorySearchError::from(error)),
            }
        };
        let (notes, nodes) = futures_util::future::join(notes, nodes).await;
        nodes?;
        match notes {
            Ok(()) | Err(MemorySearchError::Store(StoreError::ReadOnly { .. } | StoreError::Full { .. })) => {}
            Err(error) => return Err(error),
        }
        // The store knows secrets by their placeholders only.
        let text = self.sealer.seal(&question.text).into_owned();
        let (vector, without_semantic) = match self.vector(&text).await {
            Ok(vector) => (vector, None),
            Err(why) => (None, Some(why)),
        };
        let query = RecallQuery {
            question: text,
            projects: question.projects.clone(),
            memories: self.books.iter().map(|book| book.place().id.clone()).collect(),
            since: question.since,
            until: question.until,
            kinds: question.kinds.clone(),
            authors: question.authors.iter().map(|author| notes::stored_author(*author)).collect(),
            vector,
            limit: question.limit,
        };
        let RecallHits { hits, left, wordless: _ } = index.recall(query).await?;
        let mut answer = MemoryAnswer { hits: Vec::new(), left, without_semantic };
        let mut files = notes::NoteReader::new(&self.books);
        for hit in hits {
            let (place, snippet) = match hit.place {
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
            answer.hits.push(MemoryHit {
                place,
                snippet,
                kind: hit.kind,
                author: notes::author(hit.author),
                at: hit.at,
                score: hit.score,
                by: hit.by,
            });
        }
        Ok(answer)
    }

    /// The vector of a question, once what is new has vectors, as far as there is time; why there is none.
    async fn vector(&self, text: &str) -> Result<Option<RecallVector>, String> {
        let (Some(embedder), Some(vectors)) = (&self.embedder, self.store.vectors()) else { return Ok(None) };
        let indexed = index_semantic(vectors, &**embedder, &self.sealer, Some(VECTOR_PATIENCE), |_| ()).await;
        match indexed {
            Ok(_) | Err(SemanticError::Store(_)) => {}
            Err(SemanticError::Model(error)) => return Err(error.to_string()),
        }
        let made = embedder.embed(&[text.to_owned()]).await.map_err(|error| error.to_string())?;
        let vector = made.vectors.into_iter().next();
        Ok(vector.map(|vector| RecallVector { model: embedder.id().to_owned(), vector }))
    }
}

/// The first characters of a text.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(SNIPPET).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
