//! How much a recalled text is worth: six signals and what the earlier phases add.

use quipu_protocol::UnixMs;
use quipu_store::SignalEntry;

/// Milliseconds of a day.
pub(super) const DAY: f64 = 86_400_000.0;
/// Days in which what the light and REM phases add halves.
const BOOST_HALF_LIFE: f64 = 14.0;

/// What each signal counts. They are scaled to a sum of 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SignalWeights {
    /// How well it fitted what was asked, on average.
    pub relevance: f64,
    /// How often it came up.
    pub frequency: f64,
    /// For how many different questions, or on how many days.
    pub diversity: f64,
    /// How long ago.
    pub recency: f64,
    /// Over what stretch of days.
    pub consolidation: f64,
    /// How many concepts it names.
    pub conceptual: f64,
}

impl Default for SignalWeights {
    fn default() -> Self {
        Self {
            relevance: 0.30,
            frequency: 0.24,
            diversity: 0.15,
            recency: 0.15,
            consolidation: 0.10,
            conceptual: 0.06,
        }
    }
}

/// The signals of one text, each from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Signals {
    /// See [`SignalWeights::relevance`].
    pub relevance: f64,
    /// See [`SignalWeights::frequency`].
    pub frequency: f64,
    /// See [`SignalWeights::diversity`].
    pub diversity: f64,
    /// See [`SignalWeights::recency`].
    pub recency: f64,
    /// See [`SignalWeights::consolidation`].
    pub consolidation: f64,
    /// See [`SignalWeights::conceptual`].
    pub conceptual: f64,
    /// What the light and REM phases add to the sum.
    pub boost: f64,
    /// The weighted sum with the boost, 1 at most.
    pub total: f64,
}

impl Signals {
    /// Names and values, for people and programs.
    #[must_use]
    pub fn named(&self) -> [(&'static str, f64); 8] {
        [
            ("relevance", self.relevance),
            ("frequency", self.frequency),
            ("diversity", self.diversity),
            ("recency", self.recency),
            ("consolidation", self.consolidation),
            ("conceptual", self.conceptual),
            ("boost", self.boost),
            ("total", self.total),
        ]
    }
}

/// Different questions, or days, whichever are more.
pub(super) fn context_diversity(entry: &SignalEntry) -> usize {
    entry.queries.len().max(entry.days.len())
}

/// Days between a time and now. Of a time that is yet to come, one of two clocks was wrong: it is no fresher for that.
pub(super) fn days_since(then: UnixMs, now: UnixMs) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "days are few")]
    let passed = now.saturating_sub(then) as f64;
    (passed / DAY).abs()
}

/// The signals of a text at a time. `half_life` in days.
#[must_use]
pub fn signals(entry: &SignalEntry, now: UnixMs, weights: &SignalWeights, half_life: f64) -> Signals {
    let count = f64::from(entry.signals());
    let decay =
        |age: f64, half_life: f64| (-std::f64::consts::LN_2 / half_life.max(f64::MIN_POSITIVE) * age).exp();
    let relevance = if count > 0.0 { (entry.total_score / count).clamp(0.0, 1.0) } else { 0.0 };
    let frequency = ((1.0 + count).ln() / 11_f64.ln()).min(1.0);
    let diversity = (to_float(context_diversity(entry)) / 5.0).min(1.0);
    let recency = decay(days_since(entry.last_at, now), half_life);
    // A day has 14 hours more where it comes first.
    let today = now.div_euclid(86_400_000).saturating_add(1);
    let past = entry.days.partition_point(|day| *day <= today);
    let consolidation = spread(&entry.days[..past]).max((f64::from(entry.grounded) / 3.0).min(1.0));
    let conceptual = (to_float(entry.tags.len()) / 6.0).min(1.0);
    let hits = |(count, at): (u32, UnixMs)| {
        ((1.0 + f64::from(count)).ln() / 7_f64.ln()).min(1.0) * decay(days_since(at, now), BOOST_HALF_LIFE)
    };
    let boost = 0.06 * hits(entry.light) + 0.09 * hits(entry.rem);
    let weighted = [
        (weights.relevance, relevance),
        (weights.frequency, frequency),
        (weights.diversity, diversity),
        (weights.recency, recency),
        (weights.consolidation, consolidation),
        (weights.conceptual, conceptual),
    ];
    let all: f64 = weighted.iter().map(|(weight, _)| weight).sum();
    let sum: f64 = weighted.iter().map(|(weight, signal)| weight * signal).sum();
    let base = if all > 0.0 { sum / all } else { 0.0 };
    let total = (base + boost).clamp(0.0, 1.0);
    Signals { relevance, frequency, diversity, recency, consolidation, conceptual, boost, total }
}

/// Over how many days it came up, and how far the first is from the last.
fn spread(days: &[i64]) -> f64 {
    match days {
        [] => 0.0,
        [_] => 0.2,
        [first, .., last] => {
            #[expect(clippy::cast_precision_loss, reason = "days are few")]
            let span = last.saturating_sub(*first) as f64;
            0.55 * (to_float(days.len()).ln() / 5_f64.ln()).min(1.0) + 0.45 * (span / 7.0).clamp(0.0, 1.0)
        }
    }
}

pub(super) fn to_float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use quipu_store::SignalPlace;

    use super::*;

    const NOW: UnixMs = 1_790_000_000_000;

    fn ago(days: i64) -> UnixMs {
        NOW - days * 86_400_000
    }

    fn entry(queries: usize, days: &[i64], tags: usize, age: i64) -> SignalEntry {
        let words = |count: usize| (0..count).map(|at| at.to_string()).collect();
        SignalEntry {
            key: "k".into(),
            place: SignalPlace::Lines { path: "memory/2026-05-01.md".into(), first: 1, last: 1 },
            text: String::new(),
            recalls: 0,
            daily: 0,
            grounded: 0,
            total_score: 0.0,
            best_score: 0.0,
            first_at: ago(age),
            last_at: ago(age),
            queries: words(queries),
            days: days.to_vec(),
            tags: words(tags),
            light: (0, 0),
            rem: (0, 0),
            promoted: None,
        }
    }

    fn check(entry: &SignalEntry, total: f64) -> Signals {
        let found = signals(entry, NOW, &SignalWeights::default(), 14.0);
        assert!((found.total - total).abs() < 5e-5, "{found:?}, not {total}");
        found
    }

    #[test]
    fn score_vectors_of_the_reference_hold() {
        let first = SignalEntry { recalls: 4, total_score: 2.8, ..entry(3, &[100, 103], 4, 7) };
        let found = check(&first, 0.6501);
        let near = |a: f64, b: f64| assert!((a - b).abs() < 5e-5, "{a} {b}");
        near(found.frequency, 0.6712);
        near(found.relevance, 0.7);
        near(found.diversity, 0.6);
        near(found.recency, std::f64::consts::FRAC_1_SQRT_2);
        near(found.consolidation, 0.4297);
        near(found.conceptual, 0.6667);
        let staged = SignalEntry { light: (2, NOW), rem: (1, ago(14)), ..first };
        near(check(&staged, 0.7000).boost, 0.0499);
        let best = SignalEntry { recalls: 10, total_score: 9.0, ..entry(5, &[1, 2, 3, 4, 8], 6, 0) };
        check(&best, 0.9700);
        let daily = SignalEntry { daily: 1, total_score: 0.62, ..entry(1, &[100], 3, 1) };
        check(&daily, 0.4781);
    }

    #[test]
    fn signals_stay_between_zero_and_one() {
        let wild = SignalEntry {
            recalls: u32::MAX,
            daily: u32::MAX,
            total_score: f64::MAX,
            light: (u32::MAX, i64::MAX),
            rem: (u32::MAX, i64::MIN),
            ..entry(50, &[i64::MIN, i64::MAX], 50, -30)
        };
        let weights = SignalWeights { relevance: 3.0, ..SignalWeights::default() };
        for entry in [wild, entry(0, &[], 0, 10_000)] {
            let found = signals(&entry, NOW, &weights, 0.0);
            assert!(found.named().iter().all(|(_, value)| (0.0..=1.0).contains(value)), "{found:?}");
        }
    }

    #[test]
    fn times_to_come_are_no_fresher_than_past_ones() {
        let recency =
            |age: i64| signals(&entry(1, &[], 0, age), NOW, &SignalWeights::default(), 14.0).recency;
        assert!(recency(-30) < 0.3 && (recency(-30) - recency(30)).abs() < 1e-12);
        let days =
            |days: &[i64]| signals(&entry(1, days, 0, 0), NOW, &SignalWeights::default(), 14.0).consolidation;
        let today = NOW.div_euclid(86_400_000);
        assert_eq!(days(&[today, today + 300]), days(&[today]));
    }

    #[test]
    fn weights_count_by_their_share() {
        let one = SignalEntry { recalls: 4, total_score: 2.8, ..entry(3, &[100, 103], 4, 7) };
        let plain = SignalWeights::default();
        let doubled = SignalWeights {
            relevance: plain.relevance * 2.0,
            frequency: plain.frequency * 2.0,
            diversity: plain.diversity * 2.0,
            recency: plain.recency * 2.0,
            consolidation: plain.consolidation * 2.0,
            conceptual: plain.conceptual * 2.0,
        };
        let of = |weights| signals(&one, NOW, weights, 14.0).total;
        assert!((of(&plain) - of(&doubled)).abs() < 1e-12);
    }
}
