//! The words of an index as they are written, with the signs of their vectors: by these the words are found that are near one of a
//! question. A word enters when a vector of its text is made, so that a question looks at words alone, and not at texts.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::search;
use super::sign::SignTarget;
use super::sign_table::{NearestList, SignAdder, SignTable};
use super::space::Space;
use super::stem::stem;
use super::words::{cut, is_stop, weight};
use crate::WordVectors;

/// Letters of a word; others are names, numbers and sums of letters that mean nothing by their pieces.
const LETTERS: std::ops::RangeInclusive<usize> = 3..=24;
/// Words of an index at most, those that came first.
const MOST: u32 = 100_000;
/// How near a word must be, as a cosine, and one that is near a word of the question that stands somewhere itself.
const NEAR: f32 = 0.4;
pub(super) const NEAR_KNOWN: f32 = 0.5;
/// Words that are looked at closely for one of the question, and how near they must be by their signs.
const LIKELY: usize = 64;
const LIKELY_NEAR: f32 = 0.25;
/// Words near one of the question that count at most.
const MOST_NEAR: usize = 8;

/// Words that are near one of the question, by their stems, each with how near.
pub(super) type NearWords = HashMap<String, Vec<(String, f32)>>;

fn table(space: Space) -> String {
    format!("{}_term", space.table())
}

fn signs(space: Space) -> String {
    format!("{}_term_sign", space.table())
}

pub(super) fn create(connection: &Connection, space: Space) -> Outcome<()> {
    let sql = format!(
        "CREATE TABLE IF NOT EXISTS {} (num INTEGER PRIMARY KEY, word TEXT NOT NULL UNIQUE); {}",
        table(space),
        SignTable::definition(&signs(space))
    );
    Ok(connection.execute_batch(&sql)?)
}

pub(super) fn reset(connection: &Connection, space: Space) -> Outcome<()> {
    let sql = format!("DROP TABLE IF EXISTS {}; DROP TABLE IF EXISTS {}", table(space), signs(space));
    Ok(connection.execute_batch(&sql)?)
}

fn is_term(word: &str) -> bool {
    LETTERS.contains(&word.chars().count()) && word.chars().all(char::is_alphabetic)
}

/// Adds words to an index.
pub(super) struct TermAdder<'a> {
    connection: &'a Connection,
    insert: String,
    count: u32,
    signs: SignAdder<'a>,
}

impl<'a> TermAdder<'a> {
    pub(super) fn new(connection: &'a Connection, space: Space, width: usize) -> Outcome<Self> {
        let table = table(space);
        let count =
            connection
                .query_row(&format!("SELECT coalesce(max(num), 0) FROM {table}"), [], |row| row.get(0))?;
        let insert = format!("INSERT OR IGNORE INTO {table} (num, word) VALUES (?1, ?2)");
        let signs = SignAdder::new(connection, SignTable::new(signs(space), width));
        Ok(Self { connection, insert, count, signs })
    }

    /// Adds a word, unless it is there.
    pub(super) fn add(&mut self, word: &str, vector: &[f32]) -> Outcome<()> {
        if self.count >= MOST || !is_term(word) || vector.iter().all(|number| *number == 0.0) {
            return Ok(());
        }
        let next = self.count + 1;
        if self.connection.prepare_cached(&self.insert)?.execute(params![next, word])? == 1 {
            self.count = next;
            self.signs.add(next, vector)?;
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Outcome<()> {
        self.signs.finish()
    }
}

/// A word of a question that others are compared with.
struct WordTarget {
    stem: String,
    vector: Arc<[f32]>,
    sign: SignTarget,
    near: Vec<(String, f32)>,
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let lengths = product(a, a) * product(b, b);
    if lengths > 0.0 { weight(f64::from(product(a, b)) / f64::from(lengths).sqrt()) } else { 0.0 }
}

/// The words of these indexes that are near those of a question. All of them must have vectors of `words`.
pub(super) fn near(
    connection: &Connection,
    spaces: &[Space],
    words: &dyn WordVectors,
    question: &str,
    most: usize,
) -> Outcome<NearWords> {
    let mut asked: Vec<WordTarget> = Vec::new();
    for word in search::words(question).filter(|word| is_term(word) && !is_stop(word)) {
        if asked.len() >= most {
            break;
        }
        let (stem, vector) = (stem(cut(&word)), words.word(&word));
        if let Some(sign) = SignTarget::new(&vector)
            && !asked.iter().any(|known| known.stem == stem)
        {
            asked.push(WordTarget { stem, vector, sign, near: Vec::new() });
        }
    }
    if asked.is_empty() {
        return Ok(NearWords::new());
    }
    for space in spaces {
        let mut likely: Vec<NearestList> =
            asked.iter().map(|_| NearestList::new(LIKELY, LIKELY_NEAR)).collect();
        SignTable::new(signs(*space), words.width()).each(connection, |first, signs| {
            for (asked, likely) in asked.iter().zip(&mut likely) {
                for (number, sign) in (first..).zip(signs.clone()) {
                    if let Some(nearness) = asked.sign.nearness(sign)
                        && likely.wants(nearness)
                    {
                        likely.add(nearness, number);
                    }
                }
            }
        })?;
        let sql = format!("SELECT word FROM {} WHERE num = ?1", table(*space));
        let mut get = connection.prepare_cached(&sql)?;
        for (asked, likely) in asked.iter_mut().zip(likely) {
            for number in likely.numbers() {
                let word: Option<String> = get.query_row([number], |row| row.get(0)).optional()?;
                let Some(word) = word else { continue };
                let nearness = cosine(&asked.vector, &words.word(&word));
                let stem = stem(cut(&word));
                if nearness < NEAR || stem == asked.stem {
                    continue;
                }
                match asked.near.iter_mut().find(|(known, _)| *known == stem) {
                    Some((_, known)) => *known = known.max(nearness),
                    None => asked.near.push((stem, nearness)),
                }
            }
        }
    }
    for asked in &mut asked {
        asked.near.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        asked.near.truncate(MOST_NEAR);
    }
    Ok(asked.into_iter().map(|asked| (asked.stem, asked.near)).collect())
}
