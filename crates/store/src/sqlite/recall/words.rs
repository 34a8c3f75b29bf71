//! The words of texts, questions and dates, as the index has them.

use std::collections::HashMap;

use quipu_protocol::UnixMs;

use super::super::search;
use super::stem::stem;

/// Bytes of a word at most; of a longer one the beginning counts.
const LONGEST: usize = 40;
/// Words of a question that count at most.
pub(super) const OF_A_QUESTION: usize = 48;

/// Words that most texts have. They are neither indexed nor looked for.
const STOP: &str = " a about above after again against all also am an and any are aren as at be because been before being \
below between both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further \
get got had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its itself \
just let ll m many me might mightn more most much mustn my myself needn no nor not now o of off on once only or other \
our ours ourselves out over own re s same shan she should shouldn so some such t than that the their theirs them themselves \
then there these they this those through to too under until up us ve very was wasn we were weren what when where which \
while who whom why will with won would wouldn y you your yours yourself yourselves ";

/// A weight, in the precision in which weights are added.
#[expect(clippy::cast_possible_truncation, reason = "a weight")]
pub(super) fn weight(number: f64) -> f32 {
    number as f32
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

pub(super) fn is_stop(word: &str) -> bool {
    STOP.split(' ').any(|stop| stop == word)
}

/// As much of a word as is stemmed.
pub(super) fn cut(word: &str) -> &str {
    &word[..word.floor_char_boundary(LONGEST)]
}

/// Stems of words that were met.
#[derive(Default)]
pub(super) struct Stems(HashMap<String, Option<String>>);

/// Words that are remembered at most.
const REMEMBERED: usize = 50_000;

impl Stems {
    /// The stem; `None` for a word that does not count.
    fn of(&mut self, word: &str) -> Option<&str> {
        if !self.0.contains_key(word) {
            if self.0.len() >= REMEMBERED {
                self.0.clear();
            }
            let stem = (!is_stop(word)).then(|| stem(cut(word)));
            self.0.insert(word.to_owned(), stem);
        }
        self.0.get(word).and_then(Option::as_deref)
    }

    /// How often each stem stands in a text, and how many words there are.
    pub(super) fn count(&mut self, text: &str) -> (HashMap<String, u32>, u32) {
        let (mut counts, mut words) = (HashMap::new(), 0_u32);
        for word in search::words(text) {
            words = words.saturating_add(1);
            let Some(stem) = self.of(&word) else { continue };
            match counts.get_mut(stem) {
                Some(count) => *count += 1,
                None => {
                    counts.insert(stem.to_owned(), 1);
                }
            }
        }
        (counts, words)
    }
}

/// The stems of a question, each once.
pub(super) fn of_question(question: &str) -> Vec<String> {
    let (mut stems, mut found) = (Stems::default(), Vec::<String>::new());
    for word in search::words(question) {
        if found.len() >= OF_A_QUESTION {
            break;
        }
        if let Some(stem) = stems.of(&word)
            && !found.iter().any(|known| known == stem)
        {
            found.push(stem.to_owned());
        }
    }
    found
}

/// The words of the day on which something was written: "8", "may", "2023", in UTC.
pub(super) fn of_date(at: UnixMs) -> [String; 3] {
    let (year, month, day) = civil(at.div_euclid(86_400_000));
    [day.to_string(), stem(MONTHS[month]), year.to_string()]
}

/// Year, month from 0 and day of a number of days since 1970 (the proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, usize, i64) {
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12;
    let year = year_of_era + era * 400 + i64::from(month < 2);
    (year, usize::try_from(month).unwrap_or(0), day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_lose_their_stop_words_and_endings() {
        assert_eq!(of_question("When did the failing migrations run?"), ["fail", "migrat", "run"]);
        assert_eq!(of_question("Who are you?"), Vec::<String>::new());
        assert_eq!(of_question("Café, CAFE!"), ["cafe"]);
    }

    #[test]
    fn dates_are_words_of_their_day() {
        assert_eq!(of_date(0), ["1", "januari", "1970"]);
        assert_eq!(of_date(1_683_507_600_000), ["8", "mai", "2023"]);
        assert_eq!(of_question("in May 2023"), ["mai", "2023"]);
        assert_eq!(civil(-1), (1969, 11, 31));
        assert_eq!(civil(19_782), (2024, 1, 29));
    }
}
