//! Which texts that stand for nodes tell which of them: what goes where a person has one of those forgotten.

use std::ops::Range;
use std::sync::Arc;

use quipu_dag::sha256;
use quipu_protocol::{Compaction, CompactionSummaryMessage, Entry, Json, Message, NodeId, hex};
use serde::{Deserialize, Serialize};

use crate::DecodedEntry;
use crate::compact::{BETWEEN, TouchedFiles, carried_text, place_of_words, summary_of_note};
use crate::forgotten::{FORGOTTEN, forgotten_compaction};

/// Under which name the details of a compaction keep them.
const SOURCES: &str = "sources";

/// A part of a text, word for word, and the nodes whose words it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryPart {
    /// The part.
    pub text: String,
    /// The nodes.
    pub nodes: Vec<NodeId>,
}

/// The same by its place in a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SummaryPlace {
    start: usize,
    end: usize,
    /// Of what stands there: a summary that was changed otherwise has other places.
    sum: String,
    nodes: Vec<NodeId>,
}

/// The details of a compaction that others read, with the places.
#[derive(Serialize, Deserialize)]
struct SourceDetails {
    #[serde(flatten)]
    rest: serde_json::Map<String, serde_json::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<SummaryPlace>,
}

impl SummaryPlace {
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
/// does not, as it was changed on the way, all of the summary counts for it. Of the `words` of the user, those count that were carried:
/// the last of them. Where one does not stand behind the others, all that is left of the words counts for it and those before it.
#[must_use]
pub fn source_details(
    files: &TouchedFiles,
    summary: &str,
    parts: Vec<SummaryPart>,
    words: Vec<SummaryPart>,
) -> Option<Json> {
    let mut sources = Vec::with_capacity(parts.len() + words.len());
    let mut lost = Vec::new();
    let mut from = 0;
    for SummaryPart { text, nodes } in parts {
        match find(summary, from, &text) {
            Some(place) => {
                from = place.end;
                sources.push(SummaryPlace::new(summary, place, nodes));
            }
            None => lost.extend(nodes),
        }
    }
    sources.extend(places_of_words(summary, words));
    if !lost.is_empty() {
        sources.push(SummaryPlace::new(summary, 0..summary.len(), lost));
    }
    let rest = Json::of(files).ok()?.read().ok()?;
    Json::of(&SourceDetails { rest, sources }).ok()
}

fn find(summary: &str, from: usize, text: &str) -> Option<Range<usize>> {
    let start = from + summary.get(from..)?.find(text)?;
    Some(start..start + text.len()).filter(|range| !range.is_empty())
}

fn places_of_words(summary: &str, mut words: Vec<SummaryPart>) -> Vec<SummaryPlace> {
    let place = words.last().and_then(|last| place_of_words(summary, &last.text));
    let Some(Range { start, mut end }) = place else { return Vec::new() };
    let mut places = Vec::new();
    while let Some(SummaryPart { text, nodes }) = words.pop().filter(|_| start < end) {
        let at = summary.get(start..end).and_then(|left| place_of_last(left, &text));
        let Some(at) = at.map(|at| start + at) else {
            let nodes = words.into_iter().flat_map(|part| part.nodes).chain(nodes).collect();
            places.push(SummaryPlace::new(summary, start..end, nodes));
            break;
        };
        places.push(SummaryPlace::new(summary, at..at + text.len(), nodes));
        end = at.saturating_sub(BETWEEN.len());
    }
    places.reverse();
    places
}

/// Where a message begins that is the last of these; behind it nothing but forgotten ones may stand.
fn place_of_last(mut words: &str, text: &str) -> Option<usize> {
    if text.is_empty() {
        return None;
    }
    loop {
        let before = words.strip_suffix(text);
        if let Some(before) = before.filter(|before| before.is_empty() || before.ends_with(BETWEEN)) {
            return Some(before.len());
        }
        words = words.strip_suffix(FORGOTTEN)?.strip_suffix(BETWEEN)?;
    }
}

fn details_of(compaction: &Compaction) -> Option<SourceDetails> {
    let details = compaction.details.as_ref().filter(|details| details.get().contains(SOURCES))?;
    details.read().ok()
}

/// The nodes whose words a compaction's summary repeats.
#[must_use]
pub fn source_nodes(compaction: &Compaction) -> Vec<NodeId> {
    let sources = details_of(compaction).map_or_else(Vec::new, |details| details.sources);
    sources.into_iter().flat_map(|place| place.nodes).collect()
}

/// The words of the user that a compaction carries, as a note carries them on that has room for so many characters.
#[must_use]
pub fn source_words(compaction: &Compaction, most: usize) -> Vec<SummaryPart> {
    let sources = details_of(compaction).map_or_else(Vec::new, |details| details.sources);
    let words = summary_of_note(&compaction.summary).len();
    let of_words = sources.into_iter().filter(|place| place.start >= words);
    let parts = |place: SummaryPlace| {
        // What stands elsewhere now may be anywhere.
        let text = place.text(&compaction.summary).unwrap_or_default();
        // A note takes each piece for a message.
        let part = |text: &str| SummaryPart {
            text: carried_text(text.to_owned(), most),
            nodes: place.nodes.clone(),
        };
        text.split(BETWEEN).map(part).collect::<Vec<_>>()
    };
    of_words.flat_map(parts).collect()
}

/// A compaction without the parts of its summary that repeat what is forgotten; `None` where none does. Where nobody knows any more
/// which part that is, nothing of the summary is left.
#[must_use]
pub fn forget_sources(compaction: &Compaction, is_forgotten: impl Fn(&NodeId) -> bool) -> Option<Compaction> {
    let SourceDetails { rest, sources } = details_of(compaction)?;
    let (gone, left): (Vec<SummaryPlace>, Vec<SummaryPlace>) =
        sources.into_iter().partition(|place| place.nodes.iter().any(&is_forgotten));
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
    let sources = left.into_iter().map(|place| {
        if place.text(summary).is_none() {
            return place;
        }
        let cut = joined.iter().any(|range| place.start < range.end && range.start < place.end);
        let range = if cut { 0..text.len() } else { moved(place.start)..moved(place.end) };
        SummaryPlace::new(&text, range, place.nodes)
    });
    let details = Json::of(&SourceDetails { rest, sources: sources.collect() }).ok();
    Some(Compaction { summary: text, details, ..compaction.clone() })
}

/// Takes out what stands before the conversation where that tells a node that is forgotten, and parts of a compaction's summary that
/// do. Of which nodes the former was stays.
pub fn forget_opening(decoded: &mut DecodedEntry, is_forgotten: impl Fn(&NodeId) -> bool) {
    if let Entry::Compaction(compaction) = &mut decoded.entry
        && let Some(left) = forget_sources(compaction, &is_forgotten)
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
        let part = |text: &str, nth| SummaryPart { text: text.into(), nodes: vec![node(nth)] };
        let parts = vec![part("[1] a wombat", 1), part("[2] a fox", 2)];
        let words = vec![part("was left out", 5), part("the vole", 3), part("the owl", 4)];
        let details = source_details(&files, &summary, parts, words);
        Compaction { summary, details, ..Compaction::default() }
    }

    #[test]
    fn parts_that_tell_what_is_forgotten_go_and_others_stay() {
        let whole = compaction();
        assert_eq!(source_nodes(&whole), (1..5).map(node).collect::<Vec<_>>());
        assert!(forget_sources(&whole, |one| *one == node(5)).is_none(), "it was not carried");
        let left = forget_sources(&whole, |one| *one == node(1)).unwrap();
        assert_eq!(left.summary, whole.summary.replace("[1] a wombat", FORGOTTEN));
        // One after the other, as both at once.
        let left = forget_sources(&left, |one| *one == node(4)).unwrap();
        let both = forget_sources(&whole, |sources| [node(1), node(4)].contains(sources)).unwrap();
        assert_eq!((&left.summary, &left.details), (&both.summary, &both.details));
        assert!(left.summary.contains("a fox") && left.summary.contains("the vole"));
        assert_eq!(source_nodes(&left), [node(2), node(3)]);
        let words: Vec<String> = source_words(&left, 8_000).into_iter().map(|part| part.text).collect();
        assert_eq!(words, ["the vole"]);
    }

    #[test]
    fn summary_that_was_changed_otherwise_goes_as_a_whole() {
        let whole = compaction();
        let changed = Compaction { summary: whole.summary.replace("Head", "Heading"), ..whole };
        assert_eq!(forget_sources(&changed, |one| *one == node(1)).unwrap().summary, FORGOTTEN);
        // A part that does not stand there counts for all.
        let part = SummaryPart { text: "elsewhere".into(), nodes: vec![node(1)] };
        let details = source_details(&TouchedFiles::default(), "a text", vec![part], Vec::new());
        let compaction = Compaction { summary: "a text".into(), details, ..Compaction::default() };
        assert_eq!(forget_sources(&compaction, |one| *one == node(1)).unwrap().summary, FORGOTTEN);
    }

    /// What is left of a compaction of these messages, one node each, when one is forgotten; what has no place fails.
    fn without(said: &[&str], most: usize, forgotten: u8) -> String {
        let messages: Vec<_> = said.iter().map(|text| Arc::new(Message::user(*text, 1))).collect();
        let files = TouchedFiles::default();
        let summary = compaction_note("Head.", None, &messages, &files, most);
        let summary = format!("{summary}\n\n<plan>\ncontinue\n</plan>");
        let part = |(nth, text): (u8, &&str)| SummaryPart { text: (*text).into(), nodes: vec![node(nth)] };
        let details = source_details(&files, &summary, Vec::new(), (1..).zip(said).map(part).collect());
        let compaction = Compaction { summary, details, ..Compaction::default() };
        forget_sources(&compaction, |one| *one == node(forgotten)).unwrap().summary
    }

    #[test]
    fn words_behind_dropped_ones_keep_their_places() {
        let said = ["continue", "one thing that is a secret", "another, and continue then", "last"];
        let left = without(&said, 60, 2);
        assert!(left.contains("(1 earlier") && !left.contains("secret"), "{left}");
        assert!(left.contains("another, and continue then\n---\nlast"), "{left}");
        let left = without(&said, 60, 3);
        assert!(left.contains("secret") && !left.contains("another"), "{left}");
        // One that is a line between two itself.
        let left = without(&["first", "a\n---\nlast", "last"], 8_000, 2);
        assert!(left.contains(&format!("first\n---\n{FORGOTTEN}\n---\nlast\n")), "{left}");
    }

    #[test]
    fn words_of_which_a_piece_was_dropped_are_forgotten() {
        let files = TouchedFiles::default();
        let said = [Arc::new(Message::user("the first piece\n---\nthe secret", 1))];
        let part = |text: &str, nth| SummaryPart { text: text.into(), nodes: vec![node(nth)] };
        let summary = compaction_note("Head.", None, &said, &files, 8_000);
        let words = vec![part("the first piece\n---\nthe secret", 1)];
        let details = source_details(&files, &summary, Vec::new(), words);
        let before = Compaction { summary, details, ..Compaction::default() };
        // The next note takes it for two messages, and has no room for the first.
        let words = crate::compact::words_of_note(&before.summary);
        let said = [Arc::new(Message::user("and the last", 2))];
        let summary = compaction_note("Head.", words, &said, &files, 24);
        assert!(summary.contains("the secret") && !summary.contains("piece"), "{summary}");
        let mut words = source_words(&before, 24);
        words.push(part("and the last", 2));
        let details = source_details(&files, &summary, Vec::new(), words);
        let next = Compaction { summary, details, ..Compaction::default() };
        let left = forget_sources(&next, |one| *one == node(1)).unwrap().summary;
        assert!(!left.contains("secret") && left.contains("and the last"), "{left}");
        // Where words are not as they were said, all before them count.
        let changed = next.summary.replace("the secret", "a secret");
        let words = vec![part("the secret", 1), part("and the last", 2)];
        let details = source_details(&files, &changed, Vec::new(), words);
        let next = Compaction { summary: changed, details, ..Compaction::default() };
        let left = forget_sources(&next, |one| *one == node(1)).unwrap().summary;
        assert!(!left.contains("secret") && left.contains("and the last"), "{left}");
    }

    #[test]
    fn places_outside_of_the_summary_change_nothing() {
        let whole = compaction();
        let mut details: SourceDetails = whole.details.as_ref().unwrap().read().unwrap();
        for (start, end) in [(usize::MAX, usize::MAX), (0, usize::MAX), (9, 3), (usize::MAX - 1, usize::MAX)]
        {
            details.sources.push(SummaryPlace { start, end, sum: sum(""), nodes: vec![node(9)] });
        }
        let hostile = Compaction { details: Json::of(&details).ok(), ..whole.clone() };
        let left = forget_sources(&hostile, |one| *one == node(1)).unwrap();
        assert_eq!(left.summary, whole.summary.replace("[1] a wombat", FORGOTTEN));
        assert_eq!(forget_sources(&hostile, |one| *one == node(9)).unwrap().summary, FORGOTTEN);
    }
}
