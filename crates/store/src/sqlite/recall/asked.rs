//! The words of a question: how rare each is, and which words of the index are read for it.

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
        let mut counts: Vec<u32> = Vec::new();
        for form in self.words.iter().flat_map(|word| &word.forms) {
            if form.share.is_some() && form.count() > 0 && !(is_large && form.count() > all / 8) {
                counts.push(form.count());
            }
        }
        counts.sort_unstable();
        let mut sum = 0_u32;
        let rare = |count: &u32| {
            sum = sum.saturating_add(*count);
            sum <= effort.read_near
        };
        let most = counts.into_iter().take_while(rare).last().unwrap_or(0);
        let (mut read, mut kept) = (0_u32, 0);
        for word in &mut self.words {
            word.forms.retain(|form| {
                let count = form.count();
                if form.share.is_some() {
                    return (1..=most).contains(&count);
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
