//! Why a line stands in a memory, and why a text does or does not get there.

use quipu_store::{Promotion, SignalEntry};

use super::DreamError;
use super::gates::{Gate, class_gate, failed_gates};
use super::lasting::{LastingEntry, lasting_entries};
use super::own::claim_hash;
use super::run::Dream;
use super::selection::{LiveFiles, PromotedTexts, live_text, unpromoted};
use super::signals::{Signals, signals};
use super::state::place_words;
use super::tags::{overlap, words};

/// From this share of common words on a text is meant.
const ALIKE: f64 = 0.3;
/// Texts that are explained at most.
const EXPLAINED: usize = 5;

/// A line of `MEMORY.md` and where it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct LineOrigin {
    /// The line.
    pub entry: LastingEntry,
    /// What the dream kept with it; `None` for a line that no dream wrote, or of which nothing is kept.
    pub promotion: Option<Promotion>,
}

/// What is known of a text, and what keeps it from being promoted.
#[derive(Debug, Clone, PartialEq)]
pub struct ExplainedText {
    /// Its record.
    pub entry: SignalEntry,
    /// Where it stands, as people write it.
    pub place: String,
    /// Its score, signal by signal.
    pub signals: Signals,
    /// Whose it is now, where it is still there.
    pub class: Option<crate::AuthorClass>,
    /// What it does not pass.
    pub gates: Vec<Gate>,
}

/// The line of `MEMORY.md` with this number, or the first that holds this text.
///
/// # Errors
/// What the store says, or the file.
pub async fn explain_line(
    dream: &Dream<'_>,
    text: Option<&str>,
    line: Option<u32>,
) -> Result<Option<LineOrigin>, DreamError> {
    let file = dream.host.read("MEMORY.md").await?.unwrap_or_default();
    let wanted = text.map(|text| words(text.trim_start_matches(['-', '*', '+', ' '])));
    let is_meant = |entry: &LastingEntry| {
        line.is_some_and(|line| line == entry.line)
            || text.is_some_and(|text| entry.text.to_lowercase().contains(&text.trim().to_lowercase()))
            || wanted.as_ref().is_some_and(|wanted| overlap(wanted, &words(&entry.text)) >= 0.6)
    };
    let Some(entry) = lasting_entries(&file).into_iter().find(is_meant) else { return Ok(None) };
    let promotion = match &entry.mark {
        Some(mark) => dream.store.promotions(dream.memory).await?.into_iter().find(|one| one.id == mark.id),
        None => None,
    };
    Ok(Some(LineOrigin { entry, promotion }))
}

/// The records that a text means, the most alike first, each with what it does not pass.
///
/// # Errors
/// What the store says, or a file.
pub async fn explain_text(dream: &Dream<'_>, text: &str) -> Result<Vec<ExplainedText>, DreamError> {
    let (own, claim) = (words(text), claim_hash(text));
    let mut found: Vec<(f64, SignalEntry)> = dream
        .store
        .recalls(dream.memory)
        .await?
        .into_iter()
        .filter_map(|entry| {
            let theirs = words(&entry.text);
            let is_part = !own.is_empty() && own.is_subset(&theirs);
            let alike = if claim_hash(&entry.text) == claim || entry.key == text {
                2.0
            } else if is_part {
                1.0 + overlap(&own, &theirs)
            } else {
                overlap(&own, &theirs)
            };
            (alike >= ALIKE).then_some((alike, entry))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key.cmp(&b.1.key)));
    let mut files = LiveFiles::default();
    let promoted = PromotedTexts::of(&dream.store.promotions(dream.memory).await?);
    let mut explained = Vec::new();
    for (_, entry) in found.into_iter().take(EXPLAINED) {
        let deep = &dream.settings.deep;
        let of = signals(&entry, dream.now, &deep.weights, deep.half_life);
        let mut gates = failed_gates(&entry, &of, deep, dream.now);
        let mut place = place_words(&entry.place);
        let mut class = None;
        match live_text(dream.host, &mut files, &entry).await? {
            Ok(now) => {
                place = place_words(&now.place);
                class = Some(now.class);
                gates.extend(class_gate(now.class));
            }
            Err(gate) if !gates.contains(&gate) => gates.push(gate),
            Err(_) => {}
        }
        let is_promoted = unpromoted(dream.host, &mut files, &promoted, &entry).await?.is_none();
        if is_promoted && !gates.contains(&Gate::Promoted) {
            gates.push(Gate::Promoted);
        }
        explained.push(ExplainedText { entry, place, signals: of, class, gates });
    }
    Ok(explained)
}
