//! Judging a record by what is there now: the live text, and whose it is.

use std::borrow::Cow;
use std::collections::HashMap;

use quipu_protocol::NodeId;
use quipu_store::{Promotion, PromotionSource, SignalEntry, SignalPlace};

use super::daily::piece_at;
use super::gates::{Gate, class_gate};
use super::live::{bare, find_live};
use super::own::is_dream_output;
use super::recording::place_of_piece;
use super::signals::Signals;
use super::state::{ChosenText, place_words};
use super::{DreamError, DreamHost, LineClass};
use crate::AuthorClass;

/// Characters of a chosen text: 160 tokens.
const TEXT: usize = 640;

/// Files that were read, with the class of each line.
#[derive(Default)]
pub(super) struct LiveFiles(HashMap<String, Option<(String, Vec<LineClass>)>>);

impl LiveFiles {
    async fn get(
        &mut self,
        host: &dyn DreamHost,
        path: &str,
    ) -> Result<Option<&(String, Vec<LineClass>)>, DreamError> {
        if !self.0.contains_key(path) {
            let read = match host.read(path).await? {
                Some(text) => {
                    let classes = host.classes(path, &text).await?;
                    Some((text, classes))
                }
                None => None,
            };
            self.0.insert(path.to_owned(), read);
        }
        Ok(self.0.get(path).and_then(Option::as_ref))
    }
}

/// What lines of dreams were made of, and what a dream has chosen, by file.
#[derive(Default)]
pub(super) struct PromotedTexts(HashMap<String, Vec<String>>);

impl PromotedTexts {
    pub(super) fn of(promotions: &[Promotion]) -> Self {
        let mut all = Self::default();
        for source in promotions.iter().flat_map(|promotion| &promotion.sources) {
            all.add(source);
        }
        all
    }

    pub(super) fn add(&mut self, source: &PromotionSource) {
        if let SignalPlace::Lines { path, .. } = &source.place {
            self.0.entry(path.clone()).or_default().push(format!(" {} ", bare(&source.text)));
        }
    }

    fn have(&self, path: &str, line: &str) -> bool {
        let words = bare(line);
        let texts = self.0.get(path).map(Vec::as_slice).unwrap_or_default();
        words.is_empty() || texts.iter().any(|text| text.contains(&format!(" {words} ")))
    }
}

/// A record without the lines at its ends that were promoted or chosen as part of another one: notes grow, and the pieces
/// that searches find grow with them. `None` where no line is left.
pub(super) async fn unpromoted<'a>(
    host: &dyn DreamHost,
    files: &mut LiveFiles,
    promoted: &PromotedTexts,
    entry: &'a SignalEntry,
) -> Result<Option<Cow<'a, SignalEntry>>, DreamError> {
    let whole = Ok(Some(Cow::Borrowed(entry)));
    let SignalPlace::Lines { path, first, last } = &entry.place else { return whole };
    if !promoted.0.contains_key(path) {
        return whole;
    }
    let Some((text, _)) = files.get(host, path).await? else { return whole };
    let Some((piece, _)) = find_live(text, *first, *last, &entry.text) else { return whole };
    let is_new = |(_, line): &(u32, &str)| !promoted.have(path, line);
    let within = |(number, _): &(u32, &str)| (piece.first..=piece.last).contains(number);
    let new: Vec<u32> =
        (1..).zip(text.lines()).filter(within).filter(is_new).map(|(number, _)| number).collect();
    let (Some(first), Some(last)) = (new.first().copied(), new.last().copied()) else { return Ok(None) };
    if (first, last) == (piece.first, piece.last) {
        return whole;
    }
    let rest = piece_at(text, first, last);
    Ok(rest.map(|(rest, _)| {
        let place = place_of_piece(path, &rest);
        Cow::Owned(SignalEntry { place, text: rest.text, ..entry.clone() })
    }))
}

/// The text of a record as it is now.
pub(super) struct LiveText {
    pub(super) text: String,
    pub(super) place: SignalPlace,
    pub(super) class: AuthorClass,
    /// The nodes that it came from.
    nodes: Vec<NodeId>,
}

/// The text of a record as it is now, and whose it is; or the gate that it does not pass. A text of several lines is that of
/// their least trusted author.
pub(super) async fn live_text(
    host: &dyn DreamHost,
    files: &mut LiveFiles,
    entry: &SignalEntry,
) -> Result<Result<LiveText, Gate>, DreamError> {
    let (text, place, class, nodes) = match &entry.place {
        SignalPlace::Lines { path, first, last } => {
            let Some((text, classes)) = files.get(host, path).await? else { return Ok(Err(Gate::Gone)) };
            let Some((piece, heading)) = find_live(text, *first, *last, &entry.text) else {
                return Ok(Err(Gate::Gone));
            };
            // What nobody knows the author of is trusted as little as what nobody explained.
            let mut class = None;
            let mut nodes = Vec::new();
            for line in (piece.first..=piece.last).chain(heading) {
                let at = usize::try_from(line).unwrap_or(usize::MAX).saturating_sub(1);
                let found = classes.get(at);
                class = class.max(Some(found.map_or(AuthorClass::Untrusted, |found| found.class)));
                nodes.extend(found.and_then(|found| found.node).filter(|node| !nodes.contains(node)));
            }
            let place = place_of_piece(path, &piece);
            (piece.text, place, class.unwrap_or(AuthorClass::Untrusted), nodes)
        }
        SignalPlace::Node(node) => {
            let Some(found) = host.node(*node).await? else { return Ok(Err(Gate::Gone)) };
            let line = found.text.split_whitespace().collect::<Vec<_>>().join(" ");
            (line, entry.place.clone(), found.class, vec![*node])
        }
    };
    if host.is_forgotten(&text)? {
        return Ok(Err(Gate::Gone));
    }
    if is_dream_output(&text) {
        return Ok(Err(Gate::OwnOutput));
    }
    // Neither marks nor hidden characters reach the file.
    let text = text.replace("<!--", "").replace("-->", "");
    let text: String = text.chars().filter(|letter| !letter.is_control()).take(TEXT).collect();
    Ok(Ok(LiveText { text: text.trim().to_owned(), place, class, nodes }))
}

/// A record as what is to be promoted, where what is there now passes.
pub(super) async fn choose(
    host: &dyn DreamHost,
    files: &mut LiveFiles,
    promoted: &PromotedTexts,
    (entry, signals): (&SignalEntry, &Signals),
) -> Result<Result<ChosenText, Gate>, DreamError> {
    let Some(entry) = unpromoted(host, files, promoted, entry).await? else {
        return Ok(Err(Gate::Promoted));
    };
    let LiveText { text, place, class, nodes } = match live_text(host, files, &entry).await? {
        Ok(found) => found,
        Err(gate) => return Ok(Err(gate)),
    };
    if let Some(gate) = class_gate(class) {
        return Ok(Err(gate));
    }
    let named = signals.named().iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
    let source = PromotionSource {
        key: entry.key.clone(),
        place: place.clone(),
        text: text.clone(),
        class: class.name().to_owned(),
        recalls: entry.recalls,
        signals: named,
    };
    Ok(Ok(ChosenText { text, place: place_words(&place), source, nodes }))
}
