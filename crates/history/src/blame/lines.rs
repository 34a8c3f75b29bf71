//! Lines of texts, and which of one text are which of another.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use similar::DiffOp;
use similar::algorithms::{Capture, Replace, histogram};

use super::alignment::{Alignment, Sources};

/// After so long a coarser answer will do.
const PATIENCE: Duration = Duration::from_millis(500);
/// Places to which a block that was added may be moved among lines like its own.
const SLIDE: usize = 100;
/// Places of a line that are tried at most, when a block is looked for.
const PLACES: usize = 64;
/// Columns of a tab.
const TAB: usize = 8;

/// A text: the numbers of its lines in a [`Book`].
pub(super) type Text = Arc<[usize]>;

/// Bytes that are compared at once.
const BLOCK: usize = 256;
/// A mark of the byte order, which is no part of a text.
const MARK: &[u8] = "\u{feff}".as_bytes();

/// Bytes that two texts begin with.
fn common_start(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.chunks_exact(BLOCK).zip(b.chunks_exact(BLOCK));
    let same = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// Bytes that two texts end with.
fn common_end(a: &[u8], b: &[u8]) -> usize {
    let blocks = a.rchunks_exact(BLOCK).zip(b.rchunks_exact(BLOCK));
    let same = blocks.take_while(|(a, b)| a == b).count() * BLOCK;
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    same + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

/// Every line that was seen, by number.
#[derive(Default)]
pub(super) struct Book {
    numbers: HashMap<Arc<[u8]>, usize>,
    lines: Vec<Line>,
    last: LastText,
}

/// The text that was read last: the next one differs in few lines from it, and only those are looked up.
#[derive(Default)]
struct LastText {
    bytes: Vec<u8>,
    /// Where each of its lines ends.
    ends: Vec<usize>,
    numbers: Vec<usize>,
}

struct Line {
    bytes: Arc<[u8]>,
    /// Letters and digits.
    letters: usize,
    /// Columns before the first other character; `None` for a blank line.
    indent: Option<usize>,
}

impl Book {
    /// The lines of a text. Line ends are no part of them, so that other line ends are no other lines.
    pub(super) fn text(&mut self, bytes: &[u8]) -> Text {
        self.lines_of(bytes, true).0.into()
    }

    /// The same for one that differs little from the last one asked so.
    pub(super) fn next_text(&mut self, bytes: &[u8]) -> Text {
        let prefix = common_start(&self.last.bytes, bytes);
        let suffix = common_end(&self.last.bytes[prefix..], &bytes[prefix..]);
        self.changed(prefix, suffix, &bytes[prefix..bytes.len() - suffix])
    }

    /// The same for one that is the last one but for the bytes between the first `prefix` and the last `suffix` ones; `None`
    /// where the last one has not so many.
    pub(super) fn changed_text(&mut self, prefix: usize, suffix: usize, middle: &[u8]) -> Option<Text> {
        let fits = prefix.checked_add(suffix).is_some_and(|kept| kept <= self.last.bytes.len());
        fits.then(|| self.changed(prefix, suffix, middle))
    }

    fn changed(&mut self, prefix: usize, suffix: usize, middle: &[u8]) -> Text {
        let mut last = std::mem::take(&mut self.last);
        let (before, end) = (last.bytes.len(), last.bytes.len() - suffix);
        let mut first = last.ends.partition_point(|end| *end <= prefix);
        if first == last.ends.len() && last.bytes.last() != Some(&b'\n') {
            // The last line goes on in the other text.
            first = first.saturating_sub(1);
        }
        let from = first.checked_sub(1).map_or(0, |at| last.ends[at]);
        // Lines behind a line end that both share.
        let behind = (last.ends.partition_point(|place| *place <= end) + 1).min(last.ends.len());
        let tail = behind.checked_sub(1).map_or(0, |at| before - last.ends[at]);
        last.bytes.splice(prefix..end, middle.iter().copied());
        let now = last.bytes.len();
        let (numbers, ends) = self.lines_of(&last.bytes[from..now - tail], from == 0);
        let after = first + ends.len();
        last.numbers.splice(first..behind, numbers);
        last.ends.splice(first..behind, ends.into_iter().map(|end| from + end));
        if now != before {
            last.ends[after..].iter_mut().for_each(|end| *end = *end + now - before);
        }
        let text = Text::from(&*last.numbers);
        self.last = last;
        text
    }

    /// The lines of these bytes, and where each ends; `begins` where a text begins with them, maybe with a mark of the byte
    /// order.
    fn lines_of(&mut self, bytes: &[u8], begins: bool) -> (Vec<usize>, Vec<usize>) {
        let mark = if begins && bytes.starts_with(MARK) { MARK.len() } else { 0 };
        let (mut numbers, mut ends, mut at) = (Vec::new(), Vec::new(), mark);
        for line in bytes[mark..].split_inclusive(|byte| *byte == b'\n') {
            at += line.len();
            ends.push(at);
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            numbers.push(self.number(line.strip_suffix(b"\r").unwrap_or(line)));
        }
        (numbers, ends)
    }

    fn number(&mut self, line: &[u8]) -> usize {
        if let Some(number) = self.numbers.get(line) {
            return *number;
        }
        let bytes: Arc<[u8]> = line.into();
        let mut column = 0;
        let mut indent = None;
        for byte in line {
            match byte {
                b' ' => column += 1,
                b'\t' => column += TAB - column % TAB,
                _ => {
                    indent = Some(column);
                    break;
                }
            }
        }
        // Of other scripts each byte counts for one letter, or `ä` would be none.
        let letters = line.iter().filter(|byte| byte.is_ascii_alphanumeric() || !byte.is_ascii()).count();
        self.lines.push(Line { bytes: bytes.clone(), letters, indent });
        self.numbers.insert(bytes, self.lines.len() - 1);
        self.lines.len() - 1
    }

    /// The line of a number.
    pub(super) fn line(&self, number: usize) -> &[u8] {
        self.lines.get(number).map_or(&[], |line| &line.bytes)
    }

    /// Letters and digits of these lines.
    pub(super) fn letters(&self, lines: &[usize]) -> usize {
        lines.iter().filter_map(|number| self.lines.get(*number)).map(|line| line.letters).sum()
    }

    /// Whether no line of a text has a letter or a digit.
    pub(super) fn is_blank(&self, text: &[usize]) -> bool {
        text.iter().all(|number| self.lines.get(*number).is_none_or(|line| line.letters == 0))
    }

    fn indent(&self, number: usize) -> Option<usize> {
        self.lines.get(number).and_then(|line| line.indent)
    }

    /// For each line of `new` the one of `old` that it is; `None` for one that was added.
    pub(super) fn align(&self, old: &[usize], new: &[usize]) -> Alignment {
        Alignment::new(self.found(old, new), old.len())
    }

    fn found(&self, old: &[usize], new: &[usize]) -> Vec<Option<usize>> {
        let mut found = vec![None; new.len()];
        let first = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let rest = old[first..].iter().rev().zip(new[first..].iter().rev());
        let last = rest.take_while(|(a, b)| a == b).count();
        (0..first).for_each(|at| found[at] = Some(at));
        (1..=last).for_each(|back| found[new.len() - back] = Some(old.len() - back));
        let (old_end, new_end) = (old.len() - last, new.len() - last);
        if first == old_end && (new_end == new.len() || first == new_end) {
            // Only added at the end, or nothing.
            return found;
        }
        if first < old_end && first < new_end {
            let deadline = Some(Instant::now() + PATIENCE);
            let mut hook = Replace::new(Capture::new());
            let Ok(()) =
                histogram::diff_deadline(&mut hook, old, first..old_end, new, first..new_end, deadline);
            for op in hook.into_inner().ops() {
                if let DiffOp::Equal { old_index, new_index, len } = *op {
                    (0..len).for_each(|n| found[new_index + n] = Some(old_index + n));
                }
            }
            // Line by line in place, where as much stays the same so.
            if old_end - first == new_end - first {
                let same = |at: &usize| old[*at] == new[*at];
                let stays = (first..new_end).filter(same).count();
                if stays >= found[first..new_end].iter().flatten().count() {
                    (first..new_end).for_each(|at| found[at] = same(&at).then_some(at));
                }
            }
        }
        self.slide(new, old.len(), &mut found);
        let mut back = vec![None; old.len()];
        for (at, place) in found.iter().enumerate() {
            if let Some(place) = place {
                back[*place] = Some(at);
            }
        }
        self.slide(old, new.len(), &mut back);
        found.fill(None);
        for (place, at) in back.iter().enumerate() {
            if let Some(at) = at {
                found[*at] = Some(place);
            }
        }
        found
    }

    /// Lines that were added among lines like them can have been added in several places. Chooses the one where others
    /// were removed, or where a block begins and ends.
    fn slide(&self, text: &[usize], others: usize, found: &mut [Option<usize>]) {
        let mut end = text.len();
        while end > 0 {
            if found[end - 1].is_some() {
                end -= 1;
                continue;
            }
            let mut start = end - 1;
            while start > 0 && found[start - 1].is_none() {
                start -= 1;
            }
            // As far down as it goes, together with what it meets there, then up, where it may meet others as well.
            let mut steps = 0;
            while end < text.len() && text[start] == text[end] && found[end].is_some() && steps < SLIDE {
                found[start] = found[end].take();
                (start, end, steps) = (start + 1, end + 1, steps + 1);
                while end < text.len() && found[end].is_none() {
                    end += 1;
                }
            }
            let mut best = (self.cost(text, found, others, start, end), 0);
            let (mut up, mut low, mut high) = (0, start, end);
            while low > 0 && text[low - 1] == text[high - 1] && found[low - 1].is_some() && up < SLIDE {
                found[high - 1] = found[low - 1].take();
                (low, high, up) = (low - 1, high - 1, up + 1);
                if low > 0 && found[low - 1].is_none() {
                    // It has met another: both are one from here on.
                    while low > 0 && found[low - 1].is_none() {
                        low -= 1;
                    }
                    best = (self.cost(text, found, others, low, high), 0);
                    up = 0;
                    continue;
                }
                let cost = self.cost(text, found, others, low, high);
                if cost < best.0 {
                    best = (cost, up);
                }
            }
            // Back down to the best place.
            for _ in best.1..up {
                found[low] = found[high].take();
                (low, high) = (low + 1, high + 1);
            }
            end = low;
        }
    }

    /// How unlikely it is that lines were added from here to there.
    fn cost(&self, text: &[usize], found: &[Option<usize>], others: usize, start: usize, end: usize) -> i64 {
        let before = start.checked_sub(1).and_then(|at| found[at]).map_or(0, |place| place + 1);
        let after = found.get(end).copied().flatten().unwrap_or(others);
        if after > before {
            // In place of others.
            return i64::MIN;
        }
        self.split(text, start) + self.split(text, end)
    }

    /// How unlikely it is that a block begins, or ends, before this line: blocks begin after blank lines, and where lines
    /// begin farther left.
    fn split(&self, text: &[usize], at: usize) -> i64 {
        let indent_of = |number: &usize| self.indent(*number);
        let blank = |at: usize| text.get(at).is_some_and(|number| self.indent(*number).is_none());
        let before = text[..at].iter().rev().take(20).find_map(indent_of);
        let after = text[at.min(text.len())..].iter().take(20).find_map(indent_of);
        let blank_before = at > 0 && blank(at - 1);
        let blanks = i64::from(blank_before) + i64::from(blank(at));
        let mut cost = -30 * blanks + 6 * i64::from(blank(at));
        let level = |indent: Option<usize>| indent.map_or(0, |indent| i64::try_from(indent).unwrap_or(0));
        cost += 60 * level(after).min(40);
        match (before, after) {
            (None, _) => cost += 1,
            (_, None) => cost += 21,
            (Some(before), Some(after)) if after > before => cost += if blanks > 0 { 10 } else { -4 },
            (Some(before), Some(after)) if after < before => cost += if blanks > 0 { 17 } else { 23 },
            (Some(_), Some(_)) => {}
        }
        cost
    }

    /// Blocks of `new`, among the lines that are open there, which stand in `old` among these lines: pairs of the line
    /// in `new` and the one in `old`. A block has at least so many lines and letters.
    pub(super) fn blocks(
        &self,
        old: &[usize],
        sources: Sources<'_>,
        new: &[usize],
        open: &[bool],
        (least_lines, least_letters): (usize, usize),
    ) -> Vec<(usize, usize)> {
        let range = sources.range(old.len());
        let mut places: HashMap<usize, Vec<usize>> = HashMap::new();
        for place in range.clone().filter(|place| sources.holds(*place)) {
            places.entry(old[place]).or_default().push(place);
        }
        let mut pairs = Vec::new();
        if places.is_empty() {
            return pairs;
        }
        // Of the lines of the range.
        let mut used = vec![false; range.len()];
        let mut at = 0;
        while at < new.len() {
            let mut best = (0, range.start);
            if open[at] {
                for place in places.get(&new[at]).into_iter().flatten().take(PLACES) {
                    let run = (0..)
                        .take_while(|n| {
                            open.get(at + n) == Some(&true)
                                && old.get(place + n).is_some_and(|number| *number == new[at + n])
                                && sources.holds(place + n)
                        })
                        .count();
                    // Of places that are alike one that was not found yet.
                    let is_used = |place: usize| used[place - range.start];
                    let better = run > best.0 || (run == best.0 && is_used(best.1) && !is_used(*place));
                    if better {
                        best = (run, *place);
                    }
                }
            }
            let (run, place) = best;
            if run >= least_lines.max(1) && self.letters(&new[at..at + run]) >= least_letters {
                for n in 0..run {
                    used[place + n - range.start] = true;
                    pairs.push((at + n, place + n));
                }
                at += run;
            } else {
                at += 1;
            }
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines_of(text: &str) -> Vec<&str> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line));
        lines.map(|line| line.strip_suffix('\r').unwrap_or(line)).collect()
    }

    proptest! {
        /// What is taken over from the text before is what would be read anew.
        #[test]
        fn texts_that_differ_little_have_their_own_lines(
            texts in proptest::collection::vec("\u{feff}?([ab]{0,2}\r?\n){0,6}[ab]{0,2}", 1..6),
            long in proptest::collection::vec((0_usize..40, "[ab\n]{0,3}"), 0..5),
            shared in 0_usize..5,
        ) {
            let mut texts = texts;
            let mut all: String = (0..40).map(|at| format!("line number {at} of a text of several blocks\n")).collect();
            texts.push(all.clone());
            for (at, new) in long {
                all.insert_str(at * 30, &new);
                texts.push(all.clone());
            }
            let mut books = [Book::default(), Book::default()];
            let mut last: &[u8] = &[];
            for text in &texts {
                let bytes = text.as_bytes();
                let whole = books[0].next_text(bytes);
                // Less than both share is a difference as well.
                let prefix = common_start(last, bytes) * shared / 4;
                let suffix = common_end(&last[prefix..], &bytes[prefix..]) * shared / 4;
                let middle = &bytes[prefix..bytes.len() - suffix];
                let changed = books[1].changed_text(prefix, suffix, middle).unwrap();
                last = bytes;
                let wanted: Vec<&[u8]> = lines_of(text).into_iter().map(str::as_bytes).collect();
                for (book, numbers) in books.iter().zip([whole, changed]) {
                    let found: Vec<&[u8]> = numbers.iter().map(|number| book.line(*number)).collect();
                    prop_assert_eq!(&found, &wanted);
                }
            }
            prop_assert!(books[1].changed_text(last.len(), 1, b"").is_none());
        }
    }
}
