//! What the limits of a question may miss.

use std::sync::Arc;

use rusqlite::Connection;

use super::effort::Effort;
use super::find::rank;
use super::space::{Adder, Space, Unit, kind};
use super::{vectors, words};
use crate::{RecallQuery, WordVectors};

/// Messages, and different words in them.
const UNITS: u32 = 2_000;
const WORDS: f64 = 2_000.0;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Words as often as in natural text: the n-th is n times as rare as the first.
    fn word(&mut self) -> String {
        format!("w{}", WORDS.powf(self.below(1 << 20) as f64 / f64::from(1 << 20)).round())
    }

    fn text(&mut self, most: u64) -> String {
        let words = 5 + self.below(most);
        (0..words).map(|_| self.word()).collect::<Vec<_>>().join(" ")
    }
}

struct LetterVectors;

impl WordVectors for LetterVectors {
    fn id(&self) -> &str {
        "letters"
    }

    fn width(&self) -> usize {
        64
    }

    fn word(&self, word: &str) -> Arc<[f32]> {
        let seed = word.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        let mut random = Random(seed | 1);
        (0..64).map(|_| f32::from(u8::try_from(random.below(256)).unwrap()) - 128.0).collect()
    }
}

/// Sessions of thirty messages each, one after another.
fn filled() -> Connection {
    let connection = Connection::open_in_memory().unwrap();
    Space::Sessions.create(&connection).unwrap();
    let mut adder = Adder::new(&connection, Space::Sessions).unwrap();
    let (mut random, mut texts) = (Random(0x2545_f491_4f6c_dd1d), Vec::new());
    for number in 1..=UNITS {
        let text = random.text(40);
        let (group, before) = (1 + number / 30, if number % 30 == 0 { 0 } else { number - 1 });
        let unit = Unit { seq: number, group, before, kind: kind::USER, ..Unit::default() };
        adder.add(unit, &text, i64::from(number) * 600_000).unwrap();
        texts.push(text);
    }
    adder.finish().unwrap();
    let mut text = |unit: u32| Ok(texts.get(unit as usize - 1).cloned());
    while vectors::make(&connection, &LetterVectors, &mut text).unwrap() {}
    connection
}

/// How many of the first hits are the same, of all of these questions.
fn shared(connection: &Connection, with: Option<&dyn WordVectors>, one: Effort, other: Effort) -> f64 {
    let (mut random, mut same, mut all) = (Random(0x1234_5678_9abc_def1), 0, 0);
    for _ in 0..40 {
        let question = random.text(6);
        let query = RecallQuery { question, limit: 10, ..RecallQuery::default() };
        let stems = words::of_question(&query.question);
        let first = |effort: Effort| -> Vec<u32> {
            let ranked = rank(connection, &query, &stems, with, effort).unwrap();
            ranked.into_iter().take(10).map(|(_, candidate)| candidate.number).collect()
        };
        let (fast, plain) = (first(one), first(other));
        assert_eq!(plain.len(), 10);
        same += plain.iter().filter(|number| fast.contains(number)).count();
        all += plain.len();
    }
    f64::from(u32::try_from(same).unwrap()) / f64::from(u32::try_from(all).unwrap())
}

#[test]
fn limits_miss_few_of_the_first_hits() {
    let connection = filled();
    let all =
        Effort { read: u32::MAX, read_near: u32::MAX, large: u32::MAX, exact: usize::MAX, ..Effort::USUAL };
    // A share of these as small as the usual ones are of some ten thousand messages.
    let few = Effort {
        read: 2_000,
        read_near: 1_000,
        large: 600,
        exact: 60,
        first: 60,
        nearest: 200,
        likely: 150,
        nearest_likely: 50,
    };
    let (by_words, by_both) =
        (shared(&connection, None, few, all), shared(&connection, Some(&LetterVectors), few, all));
    assert!(by_words >= 0.5, "{by_words}");
    assert!(by_both >= 0.5, "{by_both}");
    assert!(shared(&connection, Some(&LetterVectors), all, all) == 1.0);
}
