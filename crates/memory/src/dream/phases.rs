//! What the phases choose, from the records alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};

use quipu_protocol::UnixMs;
use quipu_store::{SignalEntry, SignalPlace};
use serde::{Deserialize, Serialize};

use super::gates::{DeepSettings, Gate, failed_gates};
use super::signals::{Signals, days_since, signals, to_float};
use super::tags::{overlap, words};

/// How the light phase chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct LightSettings {
    /// Days to look back.
    pub lookback: u32,
    /// Texts that are staged at most.
    pub limit: usize,
    /// From this share of common words on two texts of a file are one.
    pub similarity: f64,
}

impl Default for LightSettings {
    fn default() -> Self {
        Self { lookback: 2, limit: 100, similarity: 0.9 }
    }
}

/// How the REM phase chooses.
#[derive(Debug, Clone, PartialEq)]
pub struct RemSettings {
    /// Days to look back.
    pub lookback: u32,
    /// Themes at most.
    pub limit: usize,
    /// The least strength of a theme.
    pub min_strength: f64,
}

impl Default for RemSettings {
    fn default() -> Self {
        Self { lookback: 7, limit: 10, min_strength: 0.75 }
    }
}

/// Truths that the REM phase chooses at most.
const TRUTHS: usize = 3;
/// The least confidence of one.
const CONFIDENCE: f64 = 0.45;
/// From this share of common words on two truths are one.
const SAME_TRUTH: f64 = 0.88;

/// What many texts of some days have in common.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Theme {
    /// The concept.
    pub tag: String,
    /// Texts that name it.
    pub count: u32,
    /// From 0 to 1.
    pub strength: f64,
}

fn is_recent(entry: &SignalEntry, now: UnixMs, days: u32) -> bool {
    days_since(entry.last_at, now) <= f64::from(days)
}

fn path(entry: &SignalEntry) -> Option<&str> {
    match &entry.place {
        SignalPlace::Lines { path, .. } => Some(path),
        SignalPlace::Node(_) => None,
    }
}

/// The names of the records that the light phase stages: the last recalled first, of texts that are nearly the same one.
#[must_use]
pub fn staged(entries: &[SignalEntry], now: UnixMs, settings: &LightSettings) -> Vec<String> {
    let mut recent: Vec<&SignalEntry> =
        entries.iter().filter(|entry| is_recent(entry, now, settings.lookback)).collect();
    recent.sort_by_key(|entry| (Reverse(entry.last_at), Reverse(entry.recalls), &entry.key));
    let mut kept: Vec<(&SignalEntry, HashSet<String>)> = Vec::new();
    for entry in recent.into_iter().take(settings.limit) {
        let own = words(&entry.text);
        let is_same = |(other, theirs): &(&SignalEntry, HashSet<String>)| {
            path(other) == path(entry) && overlap(theirs, &own) >= settings.similarity
        };
        if !kept.iter().any(is_same) {
            kept.push((entry, own));
        }
    }
    kept.into_iter().map(|(entry, _)| entry.key.clone()).collect()
}

/// What the texts of the last days are about.
#[must_use]
pub fn themes(entries: &[SignalEntry], now: UnixMs, settings: &RemSettings) -> Vec<Theme> {
    let recent: Vec<&SignalEntry> =
        entries.iter().filter(|entry| is_recent(entry, now, settings.lookback)).collect();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for tag in recent.iter().flat_map(|entry| &entry.tags) {
        *counts.entry(tag).or_default() += 1;
    }
    let strength = |count: u32| (f64::from(count) / to_float(recent.len()) * 2.0).min(1.0);
    let mut found: Vec<Theme> = counts
        .into_iter()
        .map(|(tag, count)| Theme { tag: tag.to_owned(), count, strength: strength(count) })
        .filter(|theme| theme.strength >= settings.min_strength)
        .collect();
    found.sort_by(|a, b| {
        b.strength.total_cmp(&a.strength).then(b.count.cmp(&a.count)).then(a.tag.cmp(&b.tag))
    });
    found.truncate(settings.limit);
    found
}

/// The names of the records that may be lasting truths.
#[must_use]
pub fn truths(entries: &[SignalEntry], now: UnixMs, settings: &RemSettings) -> Vec<String> {
    let mut found: Vec<(f64, &SignalEntry)> = entries
        .iter()
        .filter(|entry| entry.promoted.is_none() && is_recent(entry, now, settings.lookback))
        .map(|entry| (confidence(entry), entry))
        .filter(|(confidence, _)| *confidence >= CONFIDENCE)
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.key.cmp(&b.1.key)));
    let mut kept: Vec<(&str, HashSet<String>)> = Vec::new();
    for (_, entry) in found {
        let own = words(&entry.text);
        if kept.iter().all(|(_, theirs)| overlap(theirs, &own) < SAME_TRUTH) {
            kept.push((&entry.key, own));
        }
        if kept.len() == TRUTHS {
            break;
        }
    }
    kept.into_iter().map(|(key, _)| key.to_owned()).collect()
}

fn confidence(entry: &SignalEntry) -> f64 {
    let count = f64::from(entry.signals());
    let average = if count > 0.0 { entry.total_score / count } else { 0.0 };
    0.45 * average
        + 0.25 * ((1.0 + f64::from(entry.recalls)).ln() / 7_f64.ln()).min(1.0)
        + 0.2 * (to_float(entry.days.len()) / 3.0).min(1.0)
        + 0.1 * (to_float(entry.tags.len()) / 6.0).min(1.0)
}

/// A record with its signals.
pub(super) type ScoredEntry<'a> = (&'a SignalEntry, Signals);

/// The records that pass every gate that they can be judged by, the best first; and how many each gate stopped.
#[must_use]
pub fn ranked<'a>(
    entries: &'a [SignalEntry],
    now: UnixMs,
    settings: &DeepSettings,
) -> (Vec<ScoredEntry<'a>>, Vec<(Gate, u32)>) {
    let mut passed = Vec::new();
    let mut stopped: Vec<(Gate, u32)> = Vec::new();
    for entry in entries {
        let found = signals(entry, now, &settings.weights, settings.half_life);
        match failed_gates(entry, &found, settings, now).first() {
            None => passed.push((entry, found)),
            Some(gate) => count(&mut stopped, *gate),
        }
    }
    passed.sort_by(|(a, of_a), (b, of_b)| {
        of_b.total
            .total_cmp(&of_a.total)
            .then(b.recalls.cmp(&a.recalls))
            .then_with(|| path(a).cmp(&path(b)))
            .then_with(|| a.key.cmp(&b.key))
    });
    (passed, stopped)
}

/// One more that a gate stopped.
pub(super) fn count(stopped: &mut Vec<(Gate, u32)>, gate: Gate) {
    match stopped.iter_mut().find(|(other, _)| *other == gate) {
        Some((_, count)) => *count += 1,
        None => stopped.push((gate, 1)),
    }
}
