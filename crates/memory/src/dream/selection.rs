//! Judging a record by what is there now: the live text, and whose it is.

use std::borrow::Cow;
use std::collections::HashMap;

use quipu_protocol::NodeId;
use quipu_store::{Promotion, PromotionSource, SignalEntry, SignalPlace};

use super::daily::{LONGEST, piece_at};
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

/// Lines that are joined to compare them, at most.
const JOINED: usize = 16;

/// What lines of dreams were made of, and what a dream has chosen, by file.
#[derive(Default)]
pub(super) struct PromotedTexts(HashMap<String, Vec<PromotedText>>);

/// The words of such a text, and where its items and sentences begin and end in them.
#[derive(Default)]
struct PromotedText {
    words: String,
    begins: Vec<usize>,
    ends: Vec<usize>,
    /// Where what stands below the heading begins.
    body: usize,
    /// Whether its end was cut off.
    is_cut: bool,
}

impl PromotedText {
    fn of(text: &str) -> Self {
        let mut promoted = Self { is_cut: text.chars().count() + 1 >= LONGEST, ..Self::default() };
        let (heading, body) = text.split_once(": ").unwrap_or(("", text));
        promoted.add(heading);
        promoted.body = if promoted.words.is_empty() { 0 } else { promoted.words.len() + 1 };
        body.split("; ").flat_map(|item| item.split(". ")).for_each(|part| promoted.add(part));
        promoted
    }

    fn add(&mut self, part: &str) {
        let words = bare(part);
        if words.is_empty() {
            return;
        }
        if !self.words.is_empty() {
            self.words.push(' ');
        }
        self.begins.push(self.words.len());
        self.words.push_str(&words);
        self.ends.push(self.words.len());
    }

    /// Whether it has lines of these words as a whole; without the last of them they are only so long.
    fn has(&self, lines: &str, without_last: usize) -> bool {
        let is_at = |begin: &usize| {
            let stands = self.words.get(*begin..).is_some_and(|words| words.starts_with(lines));
            stands && self.ends.contains(&(begin + lines.len()))
        };
        let is_rest = |begin: usize| {
            let rest = self.words.get(begin..).filter(|rest| !rest.is_empty());
            rest.is_some_and(|rest| lines.starts_with(rest) && without_last < rest.len())
        };
        self.begins.iter().any(is_at) || (self.is_cut && (is_rest(0) || is_rest(self.body)))
    }
}

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
            self.0.entry(path.clone()).or_default().push(PromotedText::of(&source.text));
        }
    }

    /// The stretches of lines of a file that are new, by their first and last ones.
    fn new_lines(&self, path: &str, lines: &[(u32, &str)]) -> Vec<(u32, u32)> {
        let texts = self.0.get(path).map(Vec::as_slice).unwrap_or_default();
        let said = lines.iter().filter(|(_, line)| !line.trim_start().starts_with('#'));
        let said = said.map(|(number, line)| (*number, bare(line))).filter(|(_, words)| !words.is_empty());
        let said: Vec<(u32, String)> = said.collect();
        let mut are_new = vec![true; said.len()];
        for first in 0..said.len() {
            let mut joined = String::new();
            for (last, (_, words)) in said.iter().enumerate().skip(first).take(JOINED) {
                let before = joined.len();
                if !joined.is_empty() {
                    joined.push(' ');
                }
                joined.push_str(words);
                if texts.iter().any(|text| text.has(&joined, before)) {
                    are_new[first..=last].fill(false);
                }
            }
        }
        let stretches = said.iter().zip(&are_new).collect::<Vec<_>>();
        let stretches = stretches.chunk_by(|a, b| a.1 == b.1).filter(|lines| *lines[0].1);
        stretches.map(|lines| (lines[0].0.0, lines[lines.len() - 1].0.0)).collect()
    }
}

/// Of a record the first lines that were not promoted or chosen as part of another one: notes grow, and the pieces
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
    let within = |(number, _): &(u32, &str)| (piece.first..=piece.last).contains(number);
    let lines: Vec<(u32, &str)> = (1..).zip(text.lines()).filter(within).collect();
    for (first, last) in promoted.new_lines(path, &lines) {
        if (first, last) == (piece.first, piece.last) {
            return whole;
        }
        if let Some((rest, _)) = piece_at(text, first, last) {
            let place = place_of_piece(path, &rest);
            return Ok(Some(Cow::Owned(SignalEntry { place, text: rest.text, ..entry.clone() })));
        }
    }
    Ok(None)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn check(promoted: &[&str], lines: &[&str], expected: &[(u32, u32)]) {
        let texts = promoted.iter().map(|text| PromotedText::of(text)).collect();
        let texts = PromotedTexts(HashMap::from([("a.md".to_owned(), texts)]));
        let lines: Vec<(u32, &str)> = (1..).zip(lines.iter().copied()).collect();
        assert_eq!(texts.new_lines("a.md", &lines), expected, "{promoted:?} {lines:?}");
        assert!(lines.is_empty() || !texts.new_lines("b.md", &lines).is_empty());
    }

    #[test]
    fn lines_are_promoted_as_whole_items_alone() {
        check(&["Do not use tabs in Makefiles"], &["- Use tabs in Makefiles"], &[(1, 1)]);
        check(
            &["Style: Do not use tabs; Be kind"],
            &["- Use tabs", "- be kind", "- Do not use tabs."],
            &[(1, 1)],
        );
        check(&["Style: Be kind"], &["- Be kind"], &[]);
        // An item may have such a mark itself, and prose is joined by spaces.
        check(&["Red; or blue; Green"], &["- Red; or blue", "- Green"], &[]);
        check(
            &["Deploys: The server is red and lives in Oslo"],
            &["The server is red", "and lives in Oslo", "It is old."],
            &[(3, 3)],
        );
        check(&["One is so. Two is not. Three is"], &["Two is not."], &[]);
    }

    #[test]
    fn lines_between_promoted_ones_are_no_part_of_the_new() {
        let lines = ["- new one", "", "- new two", "- known", "- new three"];
        check(&["known"], &lines, &[(1, 3), (5, 5)]);
        check(&["known", "new one; new two"], &lines, &[(5, 5)]);
    }

    #[test]
    fn lines_of_a_text_that_was_cut_are_known() {
        let long = "word ".repeat(70);
        let cut: String = format!("Heading: first; {long}").chars().take(LONGEST).collect();
        check(&[&cut], &["- first", &long, "- next"], &[(3, 3)]);
    }
}
