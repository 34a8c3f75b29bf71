//! What the phases of a dream leave for the next.

use std::collections::BTreeMap;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{PromotionSource, SignalPlace};
use serde::{Deserialize, Serialize};

use super::DreamError;
use super::gates::Gate;
use super::phases::Theme;

/// A phase of a dream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DreamPhase {
    /// Reads the notes of the last days, and stages what came up.
    Light,
    /// Looks for themes, and for what may be lasting.
    Rem,
    /// Ranks everything, and chooses.
    Deep,
    /// Asks a model, where there is one.
    Distil,
    /// Writes `MEMORY.md`.
    Promote,
    /// Writes `DREAMS.md`, where a model said something.
    Diary,
    /// Nothing is left to do.
    Done,
}

impl DreamPhase {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Light => "light",
            Self::Rem => "rem",
            Self::Deep => "deep",
            Self::Distil => "distil",
            Self::Promote => "promote",
            Self::Diary => "diary",
            Self::Done => "done",
        }
    }

    pub(super) const fn next(self) -> Self {
        match self {
            Self::Light => Self::Rem,
            Self::Rem => Self::Deep,
            Self::Deep => Self::Distil,
            Self::Distil => Self::Promote,
            Self::Promote => Self::Diary,
            Self::Diary | Self::Done => Self::Done,
        }
    }
}

/// A text that the deep phase chose.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChosenText {
    /// The text as it stands now.
    pub text: String,
    /// Where, as people write it.
    pub place: String,
    /// What is kept of it with the line that it becomes.
    pub source: PromotionSource,
    /// The nodes that it came from.
    #[serde(default)]
    pub nodes: Vec<NodeId>,
}

/// A file as it was when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReadNotes {
    pub(super) bytes: u64,
    pub(super) modified: UnixMs,
    pub(super) day: i64,
}

/// How far a dream is, and what it found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DreamState {
    /// The phase that comes next.
    pub phase: DreamPhase,
    /// When the dream began.
    pub started: UnixMs,
    /// When it ended.
    #[serde(default)]
    pub ended: Option<UnixMs>,
    /// The name of the dream.
    pub id: String,
    #[serde(default)]
    pub(super) read: BTreeMap<String, ReadNotes>,
    /// The names of the records that are staged.
    #[serde(default)]
    pub staged: Vec<String>,
    /// What the last days were about.
    #[serde(default)]
    pub themes: Vec<Theme>,
    /// The names of the records that may be lasting.
    #[serde(default)]
    pub truths: Vec<String>,
    /// Records that were ranked.
    #[serde(default)]
    pub considered: usize,
    /// How many each gate stopped.
    #[serde(default)]
    pub stopped: Vec<(Gate, u32)>,
    /// What is to be promoted.
    #[serde(default)]
    pub chosen: Vec<ChosenText>,
    /// What a model answered.
    #[serde(default)]
    pub(super) answer: Option<String>,
    /// The hash of what it was asked.
    #[serde(default)]
    pub(super) asked: String,
    /// What a model said in prose.
    #[serde(default)]
    pub(super) diary: String,
    /// The lines that were put into `MEMORY.md`.
    #[serde(default)]
    pub promoted: Vec<String>,
    /// What went wrong, for people; the dream went on.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Problems that are kept.
const PROBLEMS: usize = 20;

impl DreamState {
    pub(super) fn begin(id: String, now: UnixMs, before: Option<Self>) -> Self {
        Self {
            phase: DreamPhase::Light,
            started: now,
            ended: None,
            id,
            read: before.map(|before| before.read).unwrap_or_default(),
            staged: Vec::new(),
            themes: Vec::new(),
            truths: Vec::new(),
            considered: 0,
            stopped: Vec::new(),
            chosen: Vec::new(),
            answer: None,
            asked: String::new(),
            diary: String::new(),
            promoted: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Reads what a phase left.
    ///
    /// # Errors
    /// `Progress`.
    pub fn parse(json: &str) -> Result<Self, DreamError> {
        serde_json::from_str(json).map_err(|error| DreamError::Progress(error.to_string()))
    }

    pub(super) fn json(&self) -> Result<String, DreamError> {
        serde_json::to_string(self).map_err(|error| DreamError::Progress(error.to_string()))
    }

    pub(super) fn problem(&mut self, text: impl Into<String>) {
        if self.problems.len() < PROBLEMS {
            self.problems.push(text.into());
        }
    }
}

/// Where a text stands, as people write it.
pub(super) fn place_words(place: &SignalPlace) -> String {
    match place {
        SignalPlace::Lines { path, first, last } => {
            crate::Citation { path: path.clone(), lines: *first..=*last }.to_string()
        }
        SignalPlace::Node(node) => format!("node:{node}"),
    }
}
