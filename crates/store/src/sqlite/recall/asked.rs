//! The words of a question: how rare each is, and which words of the index are read for it.

use std::collections::HashSet;

use rusqlite::Connection;

use super::super::failure::Outcome;
use super::effort::Effort;
use super::space::{Space, Totals, frequency};
use super::terms::{NEAR_KNOWN, NearWords};
use super::words::weight;

/// A word of a question.
pub(super) struct AskedWord {
    pub(super) rarity: f32,
    /// What is read for it, the word itself first where it stands anywhere.
    pub(super) forms: Vec<WordForm>,
}

/// A word of the index.
pub(super) struct WordForm {
    pub(super) stem: String,
    /// How much it counts; `None` for the word of the question itself.
    pub(super) share: Option<f32>,
    /// In how many units of each index.
    pub(super) units: [u32; 2],
}

impl WordForm {
    fn count(&self) -> u32 {
        self.units[0].saturating_add(self.units[1])
    }
}

/// The words of a question that something is read for.
pub(super) struct AskedWords {
    pub(super) words: Vec<AskedWord>,
    /// How rare all words of the question are together, also those that stand nowhere.
    pub(super) mass: f32,
}

impl AskedWords {
    /// `sums` has what each index holds, by [`Space::slot`].
    pub(super) fn new(
        connection: &Connection,
        spaces: &[Space],
        sums: &[Totals; 2],
        stems: &[String],
        near: &NearWords,
        effort: Effort,
    ) -> Outcome<Self> {
        let all: u32 = sums.iter().map(|totals| totals.units).sum();
        let form = |stem: &str, share: Option<f32>| -> Outcome<WordForm> {
            let mut units = [0; 2];
            for space in spaces {
                units[space.slot()] = frequency(connection, *space, stem)?;
            }
            Ok(WordForm { stem: stem.to_owned(), share, units })
        };
        let mut asked = Self { words: Vec::with_capacity(stems.len()), mass: 0.0 };
        for stem in stems {
            let own = form(stem, None)?;
            let (number, all) = (f64::from(own.count()), f64::from(all));
            let rarity = weight((1.0 + (all - number + 0.5).max(0.5) / (number + 0.5)).ln());
            asked.mass += rarity;
            let stands = own.count() > 0;
            let mut forms = vec![own];
            for (stem, share) in near.get(stem).into_iter().flatten() {
                if *share >= NEAR_KNOWN || !stands {
                    forms.push(form(stem, Some(*share))?);
                }
            }
            asked.words.push(AskedWord { rarity, forms });
        }
        asked.words.sort_by_key(|word| word.forms.first().map(WordForm::count));
        asked.limit(all, effort);
        Ok(asked)
    }

    /// Keeps what is worth reading: of the words themselves the rare ones, at least one, and then of those that are near them.
    fn limit(&mut self, all: u32, effort: Effort) {
        let is_large = all > effort.large;
        let mut near: Vec<(u32, f32, (usize, usize))> = Vec::new();
        for (at, word) in self.words.iter().enumerate() {
            for (place, form) in word.forms.iter().enumerate() {
                let count = form.count();
                if let Some(share) = form.share
                    && count > 0
                    && !(is_large && count > all / 8)
                {
                    near.push((count, share, (at, place)));
                }
            }
        }
        // Of those that are as rare, the nearest.
        near.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| b.1.total_cmp(&a.1)).then_with(|| a.2.cmp(&b.2)));
        let mut sum = 0_u32;
        let rare = |(count, ..): &(u32, f32, (usize, usize))| {
            sum = sum.saturating_add(*count);
            sum <= effort.read_near
        };
        let near: HashSet<(usize, usize)> =
            near.into_iter().take_while(rare).map(|(_, _, place)| place).collect();
        let (mut read, mut kept) = (0_u32, 0);
        for (at, word) in self.words.iter_mut().enumerate() {
            let mut places = 0..;
            word.forms.retain(|form| {
                let place = places.next().unwrap_or_default();
                let count = form.count();
                if form.share.is_some() {
                    return near.contains(&(at, place));
                }
                let keep = count > 0
                    && (kept == 0
                        || read.saturating_add(count) <= effort.read && !(is_large && count > all / 4));
                if keep {
                    read = read.saturating_add(count);
                    kept += 1;
                }
                keep
            });
        }
        self.words.retain(|word| !word.forms.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_that_are_as_rare_stay_within_the_limit() {
        let form = |stem: &str, share, count| WordForm { stem: stem.to_owned(), share, units: [count, 0] };
        let word = |own: &str, near: [(&str, f32); 3]| {
            let near = near.map(|(stem, share)| form(stem, Some(share), 40));
            AskedWord { rarity: 1.0, forms: [form(own, None, 7)].into_iter().chain(near).collect() }
        };
        let words = vec![
            word("a", [("a1", 0.6), ("a2", 0.9), ("a3", 0.7)]),
            word("b", [("b1", 0.8), ("b2", 0.5), ("b3", 0.6)]),
        ];
        let mut asked = AskedWords { words, mass: 2.0 };
        asked.limit(1_000, Effort { read_near: 100, ..Effort::USUAL });
        let left = |word: &AskedWord| word.forms.iter().map(|form| form.stem.clone()).collect::<Vec<_>>();
        assert_eq!(asked.words.iter().map(left).collect::<Vec<_>>(), [vec!["a", "a2"], vec!["b", "b1"]]);
    }
}
