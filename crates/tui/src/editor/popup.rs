//! The list below the editor.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

use super::Editor;
use crate::fuzzy::Fuzzy;
use crate::{Line, Size, Style, Theme, clean, width};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Command,
    Argument,
    Files,
    Paths,
}

/// A list below the editor.
#[derive(Debug, Clone)]
pub(super) struct Popup {
    pub(super) kind: Kind,
    /// Of the last question.
    pub(super) id: u64,
    /// What is replaced.
    pub(super) range: Range<usize>,
    /// What is looked for.
    pub(super) text: String,
    pub(super) candidates: Vec<Candidate>,
    /// Those that are shown, and what of them was looked for.
    pub(super) shown: Vec<(usize, Vec<u32>)>,
    pub(super) at: usize,
    /// More may come.
    pub(super) more: bool,
    /// Tab was pressed: what all have in common is written as soon as it is known.
    pub(super) eager: bool,
}

impl Popup {
    pub(super) fn chosen(&self) -> Option<&Candidate> {
        self.shown.get(self.at).map(|(at, _)| &self.candidates[*at])
    }

    /// Chooses those that fit what is looked for. Files and paths were chosen by who found them.
    pub(super) fn filter(&mut self) {
        self.at = 0;
        if self.text.is_empty() || matches!(self.kind, Kind::Files | Kind::Paths) {
            self.shown =
                self.candidates.iter().enumerate().map(|(at, one)| (at, one.matched.clone())).collect();
            return;
        }
        let mut fuzzy = Fuzzy::names();
        fuzzy.look_for(&self.text);
        let mut scored: Vec<(bool, u32, usize)> = self
            .candidates
            .iter()
            .enumerate()
            .filter_map(|(at, one)| Some((one.text == self.text, fuzzy.score(&one.text)?, at)))
            .collect();
        scored.sort_by_key(|(same, score, at)| (std::cmp::Reverse((*same, *score)), *at));
        self.shown =
            scored.into_iter().map(|(_, _, at)| (at, fuzzy.matched(&self.candidates[at].text))).collect();
    }

    /// What all that are shown begin with.
    pub(super) fn common(&self) -> String {
        let mut texts = self.shown.iter().map(|(at, _)| self.candidates[*at].text.as_str());
        let Some(first) = texts.next() else { return String::new() };
        let same = texts.fold(first.len(), |same, text| {
            let both = first.char_indices().zip(text.chars());
            both.take_while(|((_, one), other)| one == other)
                .last()
                .map_or(0, |((at, one), _)| at + one.len_utf8())
                .min(same)
        });
        first[..same].to_owned()
    }
}

impl Editor {
    /// The rows of the list, no more than `size.rows`; none when there is no list.
    #[must_use]
    pub fn popup(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let Some(popup) = self.popup.as_ref().filter(|_| size.rows > 0) else { return Vec::new() };
        if popup.shown.is_empty() {
            let text = match (popup.more, popup.kind) {
                (true, _) => "looking ...",
                (false, Kind::Files) => "no such file",
                (false, _) => return Vec::new(),
            };
            return vec![Line::styled(cut(text, size.columns).0, theme.muted)];
        }
        let all = popup.shown.len();
        // The last row counts, when not all are seen.
        let seen = if all > size.rows && size.rows > 1 { size.rows - 1 } else { size.rows.min(all) };
        let top = popup.at.saturating_sub(seen / 2).min(all - seen);
        let slash = if popup.kind == Kind::Command { "/" } else { "" };
        let names =
            popup.shown[top..top + seen].iter().map(|(at, _)| width(&clean(&popup.candidates[*at].text)));
        let column = (names.max().unwrap_or(0) + slash.len()).min(size.columns / 2) + 2;
        let mut lines: Vec<Line> = (top..top + seen)
            .map(|row| {
                let (at, matched) = &popup.shown[row];
                popup_row(
                    &popup.candidates[*at],
                    slash,
                    matched,
                    row == popup.at,
                    (size.columns, column),
                    theme,
                )
            })
            .collect();
        if seen < all {
            let more = if popup.more { "+" } else { "" };
            let count = format!("{} of {all}{more}", popup.at + 1);
            lines.push(Line::styled(cut(&count, size.columns).0, theme.muted));
        }
        lines
    }

    /// Whether a list is open, which has the keys for lists.
    #[must_use]
    pub fn has_popup(&self) -> bool {
        self.popup.as_ref().is_some_and(|popup| !popup.shown.is_empty())
    }
}

/// As much of a text as fits, and its columns.
fn cut(text: &str, columns: usize) -> (String, usize) {
    let (mut fits, mut used) = (String::new(), 0);
    for cluster in text.graphemes(true) {
        let wide = width(cluster);
        if used + wide > columns {
            break;
        }
        fits.push_str(cluster);
        used += wide;
    }
    (fits, used)
}

fn popup_row(
    candidate: &Candidate,
    slash: &str,
    matched: &[u32],
    chosen: bool,
    (columns, column): (usize, usize),
    theme: &Theme,
) -> Line {
    let base = if chosen { theme.selection } else { theme.text };
    let mut line = Line::default();
    let mark = if chosen { "› " } else { "  " };
    let (mark, mut used) = cut(mark, columns);
    line.push(mark, base);
    if !slash.is_empty() && used < columns {
        line.push(slash, base);
        used += slash.len();
    }
    let found = Style { background: base.background, reverse: base.reverse, ..theme.matched };
    for (at, one) in candidate.text.chars().enumerate() {
        let matches = u32::try_from(at).is_ok_and(|at| matched.binary_search(&at).is_ok());
        let mut bytes = [0; 4];
        let safe = clean(one.encode_utf8(&mut bytes));
        let (shown, wide) = cut(&safe, columns.saturating_sub(used));
        if shown.len() < safe.len() {
            break;
        }
        used += wide;
        let style = if matches { found } else { base };
        match line.spans.last_mut().filter(|span| span.style == style) {
            Some(span) => span.text.push_str(&shown),
            None => line.push(shown, style),
        }
    }
    let from = (column + 2).max(used + 2);
    if !candidate.detail.is_empty() && from < columns {
        let detail = clean(&candidate.detail).replace('\n', " ");
        let style = if chosen { base } else { theme.muted };
        line.push(" ".repeat(from - used) + &cut(&detail, columns - from).0, style);
    }
    line
}

/// Something that may be meant.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Candidate {
    /// What is shown, and written when it is chosen. A path that ends with a slash is a directory, and goes on.
    pub text: String,
    /// Of what follows a command: what is written instead; empty for the text.
    pub written: String,
    /// Shown behind it; may be empty.
    pub detail: String,
    /// Which characters of the text were looked for, in order.
    pub matched: Vec<u32>,
}

impl Candidate {
    /// What is written when it is chosen.
    pub(crate) fn meant(&self) -> &str {
        if self.written.is_empty() { &self.text } else { &self.written }
    }
}
