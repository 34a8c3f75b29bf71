//! What a store keeps for dreams: which lines of a memory were recalled, how far the dream over a memory is, and what it
//! promoted.

use quipu_protocol::{NodeId, UnixMs};
use serde::{Deserialize, Serialize};

use crate::{Fut, StoreError};

/// Recall records of one memory at most. The ones that were recalled longest ago go first.
pub const SIGNAL_ENTRIES: usize = 20_000;
/// Hashes of queries that one record keeps.
pub const SIGNAL_QUERIES: usize = 32;
/// Days that one record keeps.
pub const SIGNAL_DAYS: usize = 16;
/// Concept tags that one record keeps.
pub const SIGNAL_TAGS: usize = 8;
/// Bytes of the text of a record; a longer one is cut.
pub const SIGNAL_TEXT: usize = 2_000;
/// Signals that are stored at once at most.
pub const SIGNALS_AT_ONCE: usize = 50_000;
/// Promotions of one memory that are kept; the oldest go first.
pub const PROMOTIONS: usize = 2_000;
/// Bytes of the progress of a dream.
pub const DREAM_PROGRESS: usize = 4 << 20;

/// How a line came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalKind {
    /// A search found it, for a person or a model.
    Search,
    /// It stands in the notes of a day. Counts once for each query, and is no recall.
    Daily,
    /// A model cited it.
    Grounded,
}

/// Where a recalled text stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SignalPlace {
    /// Lines of a file of the memory, counted from 1, the last one included.
    Lines {
        /// The file, relative to the directory of the memory.
        path: String,
        /// The first line.
        first: u32,
        /// The last line.
        last: u32,
    },
    /// A node of the graph.
    Node(NodeId),
}

/// One time that a text came up.
#[derive(Debug, Clone, PartialEq)]
pub struct TextSignal {
    /// The name of its record in the memory.
    pub key: String,
    /// Where it stands.
    pub place: SignalPlace,
    /// The text.
    pub text: String,
    /// Words for what it is about.
    pub tags: Vec<String>,
    /// How it came up.
    pub kind: SignalKind,
    /// How well it fitted, from 0 to 1.
    pub score: f64,
    /// The hash of what was asked.
    pub query: String,
    /// The day, counted from 1970-01-01, where the person lives.
    pub day: i64,
    /// When.
    pub at: UnixMs,
}

/// What is known of one text that came up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SignalEntry {
    /// Its name in the memory.
    pub key: String,
    /// Where it stood last.
    pub place: SignalPlace,
    /// The text as it was last.
    pub text: String,
    /// Times that a search found it.
    pub recalls: u32,
    /// Times that it stood in notes of a day.
    pub daily: u32,
    /// Times that a model cited it.
    pub grounded: u32,
    /// The sum of all scores.
    pub total_score: f64,
    /// The best score.
    pub best_score: f64,
    /// When it came up first.
    pub first_at: UnixMs,
    /// When it came up last.
    pub last_at: UnixMs,
    /// Hashes of what was asked, each once.
    pub queries: Vec<String>,
    /// Days on which it came up, each once, in order.
    pub days: Vec<i64>,
    /// Words for what it is about.
    pub tags: Vec<String>,
    /// Times that the light phase staged it, and when last.
    #[serde(default)]
    pub light: (u32, UnixMs),
    /// Times that the REM phase chose it, and when last.
    #[serde(default)]
    pub rem: (u32, UnixMs),
    /// When it was promoted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promoted: Option<UnixMs>,
}

impl SignalEntry {
    /// The record of a text that comes up for the first time.
    #[must_use]
    pub fn first(signal: &TextSignal) -> Self {
        let mut entry = Self {
            key: signal.key.clone(),
            place: signal.place.clone(),
            text: String::new(),
            recalls: 0,
            daily: 0,
            grounded: 0,
            total_score: 0.0,
            best_score: 0.0,
            first_at: signal.at,
            last_at: signal.at,
            queries: Vec::new(),
            days: Vec::new(),
            tags: Vec::new(),
            light: (0, 0),
            rem: (0, 0),
            promoted: None,
        };
        entry.add(signal);
        entry
    }

    /// Counts one more time.
    pub fn add(&mut self, signal: &TextSignal) {
        let asked_before = self.queries.contains(&signal.query);
        let count = match signal.kind {
            SignalKind::Daily if asked_before => return,
            SignalKind::Daily => &mut self.daily,
            SignalKind::Search => &mut self.recalls,
            SignalKind::Grounded => &mut self.grounded,
        };
        *count = count.saturating_add(1);
        let score = if signal.score.is_finite() { signal.score.clamp(0.0, 1.0) } else { 0.0 };
        self.total_score += score;
        self.best_score = self.best_score.max(score);
        self.first_at = self.first_at.min(signal.at);
        // A last time that is far ahead of this one was noted by a wrong clock.
        let is_wrong = self.last_at.saturating_sub(signal.at) > 86_400_000;
        self.last_at = if is_wrong { signal.at } else { self.last_at.max(signal.at) };
        self.place = signal.place.clone();
        self.text = signal.text[..signal.text.floor_char_boundary(SIGNAL_TEXT)].to_owned();
        self.tags = signal.tags.iter().take(SIGNAL_TAGS).cloned().collect();
        if !asked_before {
            self.queries.push(signal.query.clone());
            let over = self.queries.len().saturating_sub(SIGNAL_QUERIES);
            self.queries.drain(..over);
        }
        if let Err(at) = self.days.binary_search(&signal.day) {
            self.days.insert(at, signal.day);
            let over = self.days.len().saturating_sub(SIGNAL_DAYS);
            self.days.drain(..over);
        }
    }

    /// All times that it came up.
    #[must_use]
    pub fn signals(&self) -> u32 {
        self.recalls.saturating_add(self.daily).saturating_add(self.grounded)
    }
}

/// What a phase of a dream changes.
#[derive(Debug, Clone, PartialEq)]
pub enum SignalChange {
    /// A text came up.
    Came(TextSignal),
    /// The light phase staged the record of this name.
    Light(String, UnixMs),
    /// The REM phase chose it.
    Rem(String, UnixMs),
    /// It was promoted.
    Promoted(String, UnixMs),
}

/// How far the dream over a memory is. Grows by one with every phase, so that of two processes one goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DreamProgress {
    /// The number of this step.
    pub step: u64,
    /// What the phase left, as JSON.
    pub state: String,
}

/// One source of a promoted line, as it was when it was promoted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromotionSource {
    /// The name of its record.
    pub key: String,
    /// Where it stood.
    pub place: SignalPlace,
    /// Its text.
    pub text: String,
    /// The class of its author.
    pub class: String,
    /// Times that a search found it.
    pub recalls: u32,
    /// Its score, signal by signal, with `boost` and `total`.
    pub signals: Vec<(String, f64)>,
}

/// A line that a dream put into a memory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Promotion {
    /// Its name in the memory: it stands with the line in the file.
    pub id: String,
    /// The line, without its mark.
    pub line: String,
    /// How it came in: `append`, `add`, `merge` or `supersede`.
    pub how: String,
    /// When.
    pub at: UnixMs,
    /// What it came from.
    pub sources: Vec<PromotionSource>,
}

/// A store that keeps what dreams need. Nothing of it exists before the first signal is stored.
pub trait Dreams: Send + Sync + 'static {
    /// The records of a memory, in the order of their names.
    fn recalls<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<SignalEntry>>;

    /// Stores that texts came up.
    ///
    /// # Errors
    /// `TooLarge` for more than [`SIGNALS_AT_ONCE`], and what any write may say.
    fn note_recalls<'a>(&'a self, memory: &'a str, signals: Vec<TextSignal>) -> Fut<'a, ()>;

    /// How far the dream over a memory is; `None` before the first.
    fn dream<'a>(&'a self, memory: &'a str) -> Fut<'a, Option<DreamProgress>>;

    /// Ends a step of a dream: its changes, its promotions and what it left, together or not at all. `false` where the dream
    /// is at another step than `from` (0 before the first): another process went on with it, and nothing is stored.
    ///
    /// # Errors
    /// `TooLarge`, and what any write may say.
    fn advance_dream<'a>(
        &'a self,
        memory: &'a str,
        from: u64,
        state: String,
        changes: Vec<SignalChange>,
        promotions: Vec<Promotion>,
    ) -> Fut<'a, bool>;

    /// What dreams put into a memory, the newest first.
    fn promotions<'a>(&'a self, memory: &'a str) -> Fut<'a, Vec<Promotion>>;

    /// The memories of which anything is kept.
    fn dreamt_memories(&self) -> Fut<'_, Vec<String>>;
}

/// Whether a step is within its limits, which every store checks.
///
/// # Errors
/// `TooLarge`.
pub fn check_dream_step(state: &str, changes: usize) -> Result<(), StoreError> {
    let over = |what: &str, size: usize, limit: usize| StoreError::TooLarge {
        what: what.to_owned(),
        size: size as u64,
        limit: limit as u64,
    };
    if state.len() > DREAM_PROGRESS {
        return Err(over("the progress of a dream", state.len(), DREAM_PROGRESS));
    }
    if changes > SIGNALS_AT_ONCE {
        return Err(over("the recalls that are stored at once", changes, SIGNALS_AT_ONCE));
    }
    Ok(())
}
