//! How long a cover takes.
//!
//! `cover_rate CHUNKS RUNS` makes so many chunks over two years, asks for covers of 8,000 tokens with questions and without, and prints
//! a JSON line for each row: `{"what": .., "unit": .., "samples": [..]}`. `cargo xtask bench cover` runs it.

use std::error::Error;
use std::io::Write as _;
use std::time::Instant;

use quipu_past::cover::{CoverAsk, CoverItem, Forest, RelevanceIndex, Span, cover};
use quipu_protocol::NodeId;

const BUDGET: u64 = 8_000;
/// Covers of one run.
const COVERS: usize = 100;
const WORDS: [&str; 40] = [
    "parser", "upload", "retry", "cache", "index", "token", "session", "store", "branch", "merge", "release",
    "docker", "query", "column", "lexer", "socket", "button", "layout", "invoice", "payment", "backup",
    "restore", "metric", "alert", "schema", "render", "kernel", "driver", "sensor", "budget", "window",
    "thread", "signal", "buffer", "packet", "router", "cookie", "header", "bundle", "module",
];

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(self.0 >> 33).unwrap_or(0) % end
    }
}

fn id(n: usize) -> NodeId {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&(n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[8..16].copy_from_slice(&(n as u64).to_be_bytes());
    NodeId(bytes)
}

/// Leaves of some minutes with pauses, and above them parents of 4 to 16 children.
fn chunks(count: usize) -> (Vec<CoverItem>, Vec<String>) {
    let mut numbers = Numbers(7);
    let (mut items, mut texts) = (Vec::new(), Vec::new());
    let leaves = count * 9 / 10;
    let step = 730 * 86_400_000 / leaves as i64;
    let text = |numbers: &mut Numbers| -> String {
        let words: Vec<&str> = (0..30).map(|_| WORDS[numbers.below(40) as usize]).collect();
        format!("{} {}", words.join(" "), numbers.below(100_000))
    };
    for n in 0..leaves {
        let start = n as i64 * step;
        let span = Span { start, end: start + step / 2 };
        items.push(CoverItem {
            id: id(n),
            span,
            cost: u64::from(40 + numbers.below(80)),
            exclusion: None,
            children: vec![],
        });
        texts.push(text(&mut numbers));
    }
    let mut level = 0..leaves;
    while level.len() > 1 && items.len() < count {
        let first = items.len();
        let mut at = level.start;
        while at < level.end && items.len() < count {
            let to = (at + 4 + numbers.below(13) as usize).min(level.end);
            let span = Span { start: items[at].span.start, end: items[to - 1].span.end };
            let children = items[at..to].iter().map(|child| child.id).collect();
            items.push(CoverItem {
                id: id(items.len()),
                span,
                cost: u64::from(80 + numbers.below(80)),
                exclusion: None,
                children,
            });
            texts.push(text(&mut numbers));
            at = to;
        }
        level = first..items.len();
    }
    (items, texts)
}

fn print(what: &str, samples: &[f64]) -> std::io::Result<()> {
    let row = serde_json::json!({ "what": what, "unit": "ms", "samples": samples });
    writeln!(std::io::stdout(), "{row}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = || -> Result<usize, Box<dyn Error>> {
        Ok(arguments.next().ok_or("cover_rate CHUNKS RUNS")?.parse()?)
    };
    let (count, runs) = (number()?, number()?);
    let (items, texts) = chunks(count);
    let summaries = items.iter().map(|item| item.id).zip(texts.iter().map(String::as_str));
    let index = RelevanceIndex::new(summaries);
    let end = items.iter().map(|item| item.span.end).max().unwrap_or(0);
    let turns: Vec<i64> = (0..2_000).map(|n| end - n * 60_000).collect();
    let mut numbers = Numbers(11);
    let mut asks = Vec::new();
    let mut scoring = Vec::new();
    for n in 0..COVERS {
        let question = format!("{} {} {}", WORDS[n % 40], WORDS[(n * 7 + 3) % 40], numbers.below(100_000));
        let began = Instant::now();
        let relevance = if n % 4 == 0 { Vec::new() } else { index.scores(&question) };
        if n % 4 != 0 {
            scoring.push(began.elapsed().as_secs_f64() * 1_000.0);
        }
        let boundary = end - i64::from(numbers.below(86_400_000));
        let floor = (n % 3 == 0).then(|| boundary - 86_400_000);
        let focus = if n % 2 == 0 { 0 } else { 70 };
        asks.push(CoverAsk {
            budget: BUDGET,
            boundary: Some(boundary),
            floor,
            turns: turns.clone(),
            relevance,
            focus,
        });
    }
    let p99 = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times.get(times.len().saturating_sub(1) * 99 / 100).copied().unwrap_or(0.0)
    };
    let median = |times: &[f64]| times.get(times.len() / 2).copied().unwrap_or(0.0);
    let (mut whole, mut whole_median, mut kept) = (Vec::new(), Vec::new(), Vec::new());
    let forest = Forest::new(items.clone());
    for _ in 0..runs {
        let (mut fresh, mut again) = (Vec::new(), Vec::new());
        for ask in &asks {
            let chunks = items.clone();
            let began = Instant::now();
            let found = cover(chunks, ask);
            fresh.push(began.elapsed().as_secs_f64() * 1_000.0);
            let began = Instant::now();
            let same = forest.cover(ask);
            again.push(began.elapsed().as_secs_f64() * 1_000.0);
            if found.used > BUDGET || same != found || found.members.is_empty() {
                return Err(format!("a wrong cover: {} of {BUDGET}", found.used).into());
            }
        }
        whole.push(p99(&mut fresh));
        whole_median.push(median(&fresh));
        kept.push(p99(&mut again));
    }
    print("chunks read anew, median", &whole_median)?;
    print("chunks read anew, p99", &whole)?;
    print("p99", &kept)?;
    print("relevance of one question, p99", &[p99(&mut scoring)])?;
    Ok(())
}
