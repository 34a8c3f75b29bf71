//! All places of a home that hold content of sessions, asked together: where something is, that it goes, and what they take.
//!
//! [`Holders::of`] collects those that this crate knows: the parts of the store, copies of it, outputs of commands, files that
//! were written for somebody, permissions, caches. A front adds those that it writes itself. `docs/content.md` lists them all.
//!
//! Each is asked in a thread of its own with a deadline: one that hangs, panics or answers with more than was asked for ends
//! only its own answer, which names it.

mod copies;
mod disk;
mod files;
mod grants;
mod guard;
mod lines;
mod memory;
mod outputs;
mod written;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use quipu_store::{KEPT_LIMIT, OpenOptions, OwnerDeathCheck, SqliteStore, StoreError, StoreHolder};
use serde::Serialize;

use crate::Home;

pub use files::FilesHolder;
pub use lines::LinesHolder;
pub use quipu_store::{
    ContentHolder, ContentQuery, EraseReport, EraseTargets, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptContent, KeptReason, Needles, Selection, SelectionError,
};
pub use written::{WrittenFile, WrittenKind};

/// Bytes of the names of places in one answer at most.
const NAMES: usize = 16 << 20;
/// Bytes of a holder's name at most.
const NAME: usize = 64;

/// How long holders are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HolderLimits {
    /// To find something: a page.
    pub find: Duration,
    /// To erase. What goes on behind it is not stopped where a thread is in the middle of it; erasing again finishes it.
    pub erase: Duration,
    /// To tell its bytes.
    pub bytes: Duration,
}

impl Default for HolderLimits {
    fn default() -> Self {
        Self {
            find: Duration::from_secs(60),
            erase: Duration::from_secs(3_600),
            bytes: Duration::from_secs(20),
        }
    }
}

/// The result of one content holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer<T> {
    /// The name of the holder.
    pub holder: String,
    /// What the holder found or did.
    pub answer: Result<T, HolderFault>,
}

/// Why a holder did not answer. The others did.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HolderFault {
    /// It said so.
    #[error(transparent)]
    Failed(#[from] HolderError),
    /// It did not answer in time.
    #[error("no answer within {} s; it may still be working. Run it again to finish", after.as_secs_f64())]
    TimedOut {
        /// The deadline.
        after: Duration,
    },
    /// The code of the holder panicked; its content may be incomplete.
    #[error("this is a bug in Quipu, please report it: {message}")]
    Panicked {
        /// What it said.
        message: String,
    },
    /// It answered with more than was asked for; nothing of that is used.
    #[error("it answered with {given} items; at most {limit} were requested")]
    Flooded {
        /// How many.
        given: usize,
        /// How many there could be.
        limit: usize,
    },
    /// The system gave no thread for it.
    #[error("cannot start a thread for it: {detail}; end other programs and try again")]
    NoThread {
        /// What the system said.
        detail: String,
    },
}

/// Why a holder cannot be added.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddHolderError {
    /// There is one of this name.
    #[error("there is already a holder `{0}`; use another name")]
    Taken(String),
    /// It has no name that can be told.
    #[error("{0:?} is not a valid holder name: use at most 64 lower-case letters, digits, `-` and `.`")]
    Name(String),
    /// It panicked when it was asked for its name.
    #[error("a holder panicked when it was asked for its name")]
    Panicked,
}

/// What a holder takes, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HolderBytes {
    /// The name of the holder.
    pub holder: String,
    /// Its bytes; `None` where it did not tell.
    pub bytes: Option<u64>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Places that hold content.
///
/// ```
/// use std::sync::Arc;
///
/// use quipu_host::holders::{Holders, LinesHolder};
/// use quipu_host::{Home, SilentObserver};
/// use quipu_store::EraseTargets;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let dir = tempfile::tempdir().unwrap();
/// let home = Home::at(dir.path(), Arc::new(SilentObserver));
/// let notes = dir.path().join("notes.jsonl");
/// std::fs::write(&notes, "{\"text\":\"the key is 4711\"}\n{\"text\":\"buy bread\"}\n").unwrap();
///
/// let mut holders = Holders::of(&home, None);
/// holders.add(Arc::new(LinesHolder::new("notes", vec![notes.clone()]))).unwrap();
/// for answer in holders.erase(&EraseTargets::of_needle("key is 4711", "asked for")).await {
///     let erased = answer.answer.unwrap();
///     assert_eq!(erased.count, u64::from(answer.holder == "notes"));
/// }
/// let left = std::fs::read_to_string(&notes).unwrap();
/// assert!(left.contains("bread") && !left.contains("4711"));
/// # }
/// ```
#[derive(Default)]
pub struct Holders {
    holders: Vec<(String, Arc<dyn ContentHolder>)>,
    limits: HolderLimits,
}

impl Holders {
    /// None, for who adds them all.
    pub fn new(limits: HolderLimits) -> Self {
        Self { holders: Vec::new(), limits }
    }

    /// Those of a home that this crate knows, with the parts of its store where it is open.
    pub fn of(home: &Home, store: Option<&Arc<SqliteStore>>) -> Self {
        let mut holders = Self::default();
        let mut take = |holder: Arc<dyn ContentHolder>| {
            holders.holders.push((holder.name().to_owned(), holder));
        };
        // Before the index that is made of them.
        take(Arc::new(memory::memory_files(home)));
        if let Some(store) = store {
            let is_dead: OwnerDeathCheck = Arc::new(quipu::is_dead_owner);
            for part in StoreHolder::all(store, &is_dead) {
                take(Arc::new(part));
            }
        }
        take(Arc::new(copies::StoreCopies::of(home)));
        take(Arc::new(outputs::OutputFiles::of(home)));
        take(Arc::new(FilesHolder::caches("caches", home.cache_layers())));
        take(Arc::new(written::WrittenFiles::of(home)));
        take(Arc::new(grants::Grants::of(home)));
        holders
    }

    /// The same with the store that is there, opened.
    ///
    /// # Errors
    /// What the store says; [`Holders::of`] gives the others.
    pub fn open(home: &Home) -> Result<Self, StoreError> {
        let is_absent = std::fs::symlink_metadata(&home.store).is_err_and(|error| disk::is_gone(&error));
        let store = if is_absent { None } else { Some(Arc::new(home.open(&OpenOptions::default())?)) };
        Ok(Self::of(home, store.as_ref()))
    }

    /// Adds one, behind the others.
    ///
    /// # Errors
    /// Its name is none, or another's.
    pub fn add(&mut self, holder: Arc<dyn ContentHolder>) -> Result<(), AddHolderError> {
        let named = std::panic::catch_unwind(AssertUnwindSafe(|| holder.name().to_owned()));
        let name = named.map_err(|_| AddHolderError::Panicked)?;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
        if name.is_empty() || name.len() > NAME || !name.chars().all(fits) {
            return Err(AddHolderError::Name(name.chars().take(NAME).collect()));
        }
        if self.holders.iter().any(|(known, _)| *known == name) {
            return Err(AddHolderError::Taken(name));
        }
        self.holders.push((name, holder));
        Ok(())
    }

    /// The same holders, waited for so long.
    #[must_use]
    pub fn with_limits(self, limits: HolderLimits) -> Self {
        Self { limits, ..self }
    }

    /// Their names, in their order.
    pub fn names(&self) -> Vec<&str> {
        self.holders.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// Where something is: the same page of each, all asked at once.
    pub async fn find(&self, query: &ContentQuery) -> Vec<Answer<FoundPage>> {
        let asked = self.holders.iter().map(|(name, holder)| async {
            Answer { holder: name.clone(), answer: self.page(holder, query).await }
        });
        futures_util::future::join_all(asked).await
    }

    /// A page of one of them; `None` for a name that none has.
    pub async fn find_in(&self, name: &str, query: &ContentQuery) -> Option<Answer<FoundPage>> {
        let (name, holder) = self.holders.iter().find(|(known, _)| known == name)?;
        Some(Answer { holder: name.clone(), answer: self.page(holder, query).await })
    }

    async fn page(
        &self,
        holder: &Arc<dyn ContentHolder>,
        query: &ContentQuery,
    ) -> Result<FoundPage, HolderFault> {
        let (holder, asked) = (Arc::clone(holder), query.clone());
        let page = guard::ask(self.limits.find, move || async move { holder.find(&asked).await }).await?;
        let limit = query.limit.clamp(1, quipu_store::FOUND_LIMIT);
        if page.found.len() > limit {
            return Err(HolderFault::Flooded { given: page.found.len(), limit });
        }
        let names: usize = page.found.iter().map(|found| found.place.to_string().len()).sum();
        let names = names + page.next.as_ref().map_or(0, String::len);
        if names > NAMES {
            return Err(HolderFault::Flooded { given: names, limit: NAMES });
        }
        Ok(page)
    }

    /// Erases from each, one after the other in their order. One that fails does not keep the others from it.
    pub async fn erase(&self, targets: &EraseTargets) -> Vec<Answer<EraseReport>> {
        let mut answers = Vec::with_capacity(self.holders.len());
        for (name, holder) in &self.holders {
            answers.push(Answer { holder: name.clone(), answer: self.erased(holder, targets).await });
        }
        answers
    }

    /// Erases from one of them; `None` for a name that none has.
    pub async fn erase_in(&self, name: &str, targets: &EraseTargets) -> Option<Answer<EraseReport>> {
        let (name, holder) = self.holders.iter().find(|(known, _)| known == name)?;
        Some(Answer { holder: name.clone(), answer: self.erased(holder, targets).await })
    }

    async fn erased(
        &self,
        holder: &Arc<dyn ContentHolder>,
        targets: &EraseTargets,
    ) -> Result<EraseReport, HolderFault> {
        let (holder, asked) = (Arc::clone(holder), targets.clone());
        let erased = guard::ask(self.limits.erase, move || async move { holder.erase(&asked).await }).await?;
        match erased.kept.len() {
            given if given > KEPT_LIMIT => Err(HolderFault::Flooded { given, limit: KEPT_LIMIT }),
            _ => Ok(erased),
        }
    }

    /// What each takes, all asked at once.
    pub async fn bytes(&self) -> Vec<Answer<u64>> {
        let asked = self.holders.iter().map(|(name, holder)| async {
            let holder = Arc::clone(holder);
            let answer = guard::ask(self.limits.bytes, move || async move { holder.bytes().await }).await;
            Answer { holder: name.clone(), answer }
        });
        futures_util::future::join_all(asked).await
    }
}

impl From<Answer<u64>> for HolderBytes {
    fn from(answer: Answer<u64>) -> Self {
        let Answer { holder, answer } = answer;
        match answer {
            Ok(bytes) => Self { holder, bytes: Some(bytes), error: None },
            Err(fault) => Self { holder, bytes: None, error: Some(fault.to_string()) },
        }
    }
}
