//! How long a dream without a model takes, and how much memory.
//!
//! `dream_rate DIRECTORY CANDIDATES RUNS` makes notes and recalls in the directory, dreams over them so often, each time over a
//! store of its own, and prints a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`. `cargo xtask bench
//! dream` runs it.

use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;

use futures_util::FutureExt as _;
use quipu_memory::AuthorClass;
use quipu_memory::dream::{
    DistilAsk, Dream, DreamError, DreamFut, DreamHost, DreamSettings, LineClass, NodeText, NoteFile,
    WriteResult, claim_hash, concept_tags,
};
use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Dreams as _, OpenOptions, SignalKind, SignalPlace, SqliteStore, TextSignal};

type Outcome<T> = Result<T, Box<dyn Error>>;

const DAY: i64 = 86_400_000;
/// 2026-11-27, three in the morning.
const NOW: UnixMs = 20_784 * DAY + 3 * 3_600_000;
const MEMORY: &str = "user";
/// Notes of the last so many days.
const DAYS: usize = 30;

struct Files(PathBuf);

impl DreamHost for Files {
    fn notes(&self) -> DreamFut<'_, Vec<NoteFile>> {
        async {
            let notes = (0..DAYS).map(|day| {
                let path = note(day);
                let bytes = std::fs::metadata(self.0.join(&path)).map_or(0, |found| found.len());
                NoteFile { path, bytes, modified: 1 }
            });
            Ok(notes.collect())
        }
        .boxed()
    }

    fn read<'a>(&'a self, path: &'a str) -> DreamFut<'a, Option<String>> {
        async move { Ok(std::fs::read_to_string(self.0.join(path)).ok()) }.boxed()
    }

    fn classes<'a>(&'a self, _: &'a str, text: &'a str) -> DreamFut<'a, Vec<LineClass>> {
        let classes = text
            .lines()
            .map(|_| LineClass { class: AuthorClass::Owner, node: None, is_dream: false })
            .collect();
        async move { Ok(classes) }.boxed()
    }

    fn is_forgotten(&self, _: &str) -> Result<bool, DreamError> {
        Ok(false)
    }

    fn node(&self, _: NodeId) -> DreamFut<'_, Option<NodeText>> {
        async { Ok(None) }.boxed()
    }

    fn write<'a>(
        &'a self,
        path: &'a str,
        _: Option<&'a str>,
        after: &'a str,
        _: &'a [NodeId],
    ) -> DreamFut<'a, WriteResult> {
        async move {
            std::fs::write(self.0.join(path), after).ok();
            Ok(WriteResult::Written)
        }
        .boxed()
    }

    fn distil<'a>(&'a self, _: &'a DistilAsk) -> DreamFut<'a, Option<String>> {
        async { Ok(None) }.boxed()
    }

    fn day_of(&self, at: UnixMs) -> i64 {
        at.div_euclid(DAY)
    }
}

fn note(day: usize) -> String {
    format!("memory/2026-11-{:02}.md", 27_usize.saturating_sub(day % 27).max(1))
}

fn text(number: usize) -> String {
    let subjects = ["deploy", "billing", "parser", "cache", "release", "login", "search", "backup"];
    let subject = subjects[number % subjects.len()];
    format!(
        "The {subject} of service number {number} is owned by team {} and runs in zone z{}",
        number % 97,
        number % 13
    )
}

async fn prepare(store: &SqliteStore, files: &Files, candidates: usize) -> Outcome<()> {
    std::fs::create_dir_all(files.0.join("memory"))?;
    let mut texts = vec![String::from("# Services\n\n"); DAYS];
    let mut signals = Vec::new();
    for number in 0..candidates {
        let (day, text) = (number % 27, text(number));
        let line = u32::try_from(texts[day].lines().count() + 1)?;
        texts[day].push_str(&format!("- {text}\n\n"));
        for (query, ago) in
            [("who owns it", 3), ("which zone", 2), ("what runs", 1)].iter().take(1 + number % 3)
        {
            signals.push(TextSignal {
                key: format!("memory:{}:{}", note(day), claim_hash(&text)),
                place: SignalPlace::Lines { path: note(day), first: line, last: line },
                text: text.clone(),
                tags: concept_tags(&text),
                kind: SignalKind::Search,
                score: 0.9,
                query: claim_hash(&format!("{query} {number}")),
                day: NOW.div_euclid(DAY) - ago,
                at: NOW - ago * DAY,
            });
        }
    }
    for (day, text) in texts.iter().enumerate().take(27) {
        std::fs::write(files.0.join(note(day)), text)?;
    }
    for batch in signals.chunks(10_000) {
        store.note_recalls(MEMORY, batch.to_vec()).await?;
    }
    Ok(())
}

/// The largest resident size so far, in megabytes.
fn peak() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024.0 / 1e6)
}

#[expect(clippy::print_stdout, reason = "the numbers are this program's output")]
fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, candidates, runs] = &arguments[..] else {
        return Err("usage: dream_rate DIRECTORY CANDIDATES RUNS".into());
    };
    let (candidates, runs): (usize, usize) = (candidates.parse()?, runs.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut times = Vec::new();
    std::fs::create_dir_all(directory)?;
    for _ in 0..runs {
        let place = tempfile::tempdir_in(directory)?;
        let files = Files(place.path().to_owned());
        let store = SqliteStore::open(&place.path().join("graph.db"), &OpenOptions::default())?;
        runtime.block_on(prepare(&store, &files, candidates))?;
        let settings = DreamSettings::default();
        let began = Instant::now();
        let dream = Dream { memory: MEMORY, store: &store, host: &files, settings: &settings, now: NOW };
        let done = runtime.block_on(dream.run())?;
        times.push(began.elapsed().as_secs_f64() * 1e3);
        if done.is_none_or(|done| done.promoted.len() != settings.deep.limit) {
            return Err("the dream did not promote what it should".into());
        }
    }
    println!("{}", serde_json::json!({ "what": "without a model", "unit": "ms", "samples": times }));
    if let Some(peak) = peak() {
        println!("{}", serde_json::json!({ "what": "peak memory", "unit": "MB", "samples": [peak] }));
    }
    Ok(())
}
