//! Which texts that stand for nodes tell which of them: what goes where a person has one of those forgotten.

use std::ops::Range;
use std::sync::Arc;

use quipu_dag::sha256;
use quipu_protocol::{Compaction, CompactionSummaryMessage, Entry, Json, Message, NodeId, hex};
use serde::{Deserialize, Serialize};

use crate::DecodedEntry;
use crate::compact::{TouchedFiles, carried_text, summary_of_note};
use crate::forgotten::{FORGOTTEN, forgotten_compaction};

/// Under which name the details of a compaction keep them.
const TOLD: &str = "told";

/// A part of a text, word for word, and the nodes whose words it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldPart {
    /// The part.
    pub text: String,
    /// The nodes.
    pub nodes: Vec<NodeId>,
}

/// The same by its place in a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToldPlace {
    start: usize,
    end: usize,
    /// Of what stands there: a summary that was changed otherwise has other places.
    sum: String,
    nodes: Vec<NodeId>,
}

/// The details of a compaction that others read, with the places.
#[derive(Serialize, Deserialize)]
struct ToldDetails {
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    told: Vec<ToldPlace>,
}

impl ToldPlace {
    fn new(summary: &str, range: Range<usize>, nodes: Vec<NodeId>) -> Self {
        let sum = sum(summary.get(range.clone()).unwrap_or_default());
        Self { start: range.start, end: range.end, sum, nodes }
    }

    fn text<'a>(&self, summary: &'a str) -> Option<&'a str> {
        summary.get(self.start..self.end).filter(|text| sum(text) == self.sum)
    }
}

fn sum(text: &str) -> String {
    hex(&sha256(text.as_bytes()))[..16].to_owned()
}

/// The details of a compaction: files, and which parts of its summary repeat which nodes. `parts` stand in it in this order; where one
/// does not, as it was changed on the way, all of the summary counts for it. Of the `words` of the user, those count that were carried.
#[must_use]
pub fn told_details(
    files: &TouchedFiles,
    summary: &str,
    parts: Vec<ToldPart>,
    words: Vec<ToldPart>,
) -> Option<Json> {
    let mut told = Vec::with_capacity(parts.len() + words.len());
    let mut lost = Vec::new();
    let mut from = 0;
    for ToldPart { text, nodes } in parts {
        match find(summary, from, &text) {
            Some(place) => {
                from = place.end;
                told.push(ToldPlace::new(summary, place, nodes));
            }
            None => lost.extend(nodes),
        }
    }
    let mut from = summary_of_note(summary).len();
    for ToldPart { text, nodes } in words {
        if let Some(place) = find(summary, from, &text) {
            from = place.end;
            told.push(ToldPlace::new(summary, place, nodes));
        }
    }
    if !lost.is_empty() {
        told.push(ToldPlace::new(summary, 0..summary.len(), lost));
    }
    let rest = Json::of(files).ok()?.read().ok()?;
    Json::of(&ToldDetails { rest, told }).ok()
}

fn find(summary: &str, from: usize, text: &str) -> Option<Range<usize>> {
    let start = from + summary.get(from..)?.find(text)?;
    Some(start..start + text.len()).filter(|range| !range.is_empty())
}

fn details_of(compaction: &Compaction) -> Option<ToldDetails> {
    let details = compaction.details.as_ref().filter(|details| details.get().contains(TOLD))?;
    details.read().ok()
}

/// The nodes whose words a compaction's summary repeats.
#[must_use]
pub fn told_nodes(compaction: &Compaction) -> Vec<NodeId> {
    let told = details_of(compaction).map_or_else(Vec::new, |details| details.told);
    told.into_iter().flat_map(|place| place.nodes).collect()
}

/// The words of the user that a compaction carries, as a note carries them on that has room for so many characters.
#[must_use]
pub fn told_words(compaction: &Compaction, most: usize) -> Vec<ToldPart> {
    let told = details_of(compaction).map_or_else(Vec::new, |details| details.told);
    let words = summary_of_note(&compaction.summary).len();
    let of_words = told.into_iter().filter(|place| place.start >= words);
    let part = |place: ToldPlace| {
        let text = place.text(&compaction.summary)?.to_owned();
        Some(ToldPart { text: carried_text(text, most), nodes: place.nodes })
    };
    of_words.filter_map(part).collect()
}

/// A compaction without the parts of its summary that repeat what is forgotten; `None` where none does. Where nobody knows any more
/// which part that is, nothing of the summary is left.
#[must_use]
pub fn forget_told(compaction: &Compaction, is_forgotten: impl Fn(&NodeId) -> bool) -> Option<Compaction> {
    let ToldDetails { rest, told } = details_of(compaction)?;
    let (gone, left): (Vec<ToldPlace>, Vec<ToldPlace>) =
        told.into_iter().partition(|place| place.nodes.iter().any(&is_forgotten));
    if gone.is_empty() {
        return None;
    }
    let summary = &compaction.summary;
    if gone.iter().any(|place| place.text(summary).is_none()) {
        return Some(forgotten_compaction(compaction));
    }
    let mut ranges: Vec<Range<usize>> = gone.iter().map(|place| place.start..place.end).collect();
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| range.start < last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    let (mut text, mut from) = (String::with_capacity(summary.len()), 0);
    for range in &joined {
        text.push_str(summary.get(from..range.start).unwrap_or_default());
        text.push_str(FORGOTTEN);
        from = range.end;
    }
    text.push_str(summary.get(from..).unwrap_or_default());
    // Where a place is that lies outside of what is gone.
    let moved = |at: usize| {
        let before = joined.iter().take_while(|range| range.end <= at);
        before.fold(at, |at, range| at + FORGOTTEN.len() - range.len())
    };
    let told = left.into_iter().filter_map(|place| {
        let cut = joined.iter().any(|range| place.start < range.end && range.start < place.end);
        let range = if cut { 0..text.len() } else { moved(place.start)..moved(place.end) };
        place.text(summary).map(|_| ToldPlace::new(&text, range, place.nodes.clone())).or(Some(place))
    });
    let details = Json::of(&ToldDetails { rest, told: told.collect() }).ok();
    Some(Compaction { summary: text, details, ..compaction.clone() })
}

/// Takes out what stands before the conversation where that tells a node that is forgotten, and parts of a compaction's summary that
/// do. Which nodes the former told stays.
pub fn forget_opening(decoded: &mut DecodedEntry, is_forgotten: impl Fn(&NodeId) -> bool) {
    if let Entry::Compaction(compaction) = &mut decoded.entry
        && let Some(left) = forget_told(compaction, &is_forgotten)
    {
        *compaction = left;
    }
    let epoch = match &mut decoded.entry {
        Entry::Session(start) => &mut start.epoch,
        Entry::Epoch(epoch) => epoch,
        Entry::Compaction(Compaction { checkpoint: Some(checkpoint), .. }) => &mut checkpoint.epoch,
        Entry::Message(_) | Entry::Compaction(_) | Entry::Meta(_) => return,
    };
    let opening = epoch.context.as_mut().and_then(|context| context.opening.as_mut());
    if let Some(opening) = opening.filter(|opening| opening.nodes.iter().any(is_forgotten)) {
        (opening.text, opening.state) = (String::new(), None);
    }
}

/// Puts the summary of a compaction in the place of the one that a conversation begins with.
pub fn summarize_anew(messages: &mut [Arc<Message>], compaction: &Compaction) {
    if let Some(first) = messages.first_mut()
        && let Message::CompactionSummary(before) = &**first
    {
        let summary = CompactionSummaryMessage { summary: compaction.summary.clone(), ..before.clone() };
        *first = Arc::new(Message::CompactionSummary(summary));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::compaction_note;

    fn node(nth: u8) -> NodeId {
        NodeId([nth; 32])
    }

    fn compaction() -> Compaction {
        let said = [Arc::new(Message::user("the vole", 1)), Arc::new(Message::user("the owl", 2))];
        let files = TouchedFiles::default();
        let summary = compaction_note("Head.\n\n[1] a wombat\n[2] a fox", None, &said, &files, 8_000);
        let part = |text: &str, nth| ToldPart { text: text.into(), nodes: vec![node(nth)] };
        let parts = vec![part("[1] a wombat", 1), part("[2] a fox", 2)];
        let words = vec![part("the vole", 3), part("the owl", 4), part("was left out", 5)];
        let details = told_details(&files, &summary, parts, words);
        Compaction { summary, details, ..Compaction::default() }
    }

    #[test]
    fn parts_that_tell_what_is_forgotten_go_and_others_stay() {
        let whole = compaction();
        assert_eq!(told_nodes(&whole), (1..5).map(node).collect::<Vec<_>>());
        assert!(forget_told(&whole, |told| *told == node(5)).is_none(), "it was not carried");
        let left = forget_told(&whole, |told| *told == node(1)).unwrap();
        assert_eq!(left.summary, whole.summary.replace("[1] a wombat", FORGOTTEN));
        // One after the other, as both at once.
        let left = forget_told(&left, |told| *told == node(4)).unwrap();
        let both = forget_told(&whole, |told| [node(1), node(4)].contains(told)).unwrap();
        assert_eq!((&left.summary, &left.details), (&both.summary, &both.details));
        assert!(left.summary.contains("a fox") && left.summary.contains("the vole"));
        assert_eq!(told_nodes(&left), [node(2), node(3)]);
        let words: Vec<String> = told_words(&left, 8_000).into_iter().map(|part| part.text).collect();
        assert_eq!(words, ["the vole"]);
    }

    #[test]
    fn summary_that_was_changed_otherwise_goes_as_a_whole() {
        let whole = compaction();
        let changed = Compaction { summary: whole.summary.replace("Head", "Heading"), ..whole };
        assert_eq!(forget_told(&changed, |told| *told == node(1)).unwrap().summary, FORGOTTEN);
        // A part that does not stand there counts for all.
        let part = ToldPart { text: "elsewhere".into(), nodes: vec![node(1)] };
        let details = told_details(&TouchedFiles::default(), "a text", vec![part], Vec::new());
        let compaction = Compaction { summary: "a text".into(), details, ..Compaction::default() };
        assert_eq!(forget_told(&compaction, |told| *told == node(1)).unwrap().summary, FORGOTTEN);
    }
}
