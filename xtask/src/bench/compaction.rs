//! What a compaction costs and what is left after it: by a summary of a model, and by a cover, which asks none.
//!
//! The model is a script. What a summary says is what the script says: nothing at all, or every fact. So both ends of what a model
//! can do are measured, and not how good one is. Facts that stay without any summary (words of the user) count for both.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::histories::prose;
use super::programs::{Contender, Stage};
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "compaction",
    about: "a session compacted by a summary of a model and by a cover: calls, tokens, cost, facts that are left",
    run,
};

/// Runs before the compaction, and how many of the first of them state a fact.
const TURNS: usize = 120;
const FACTS: usize = 90;
/// Facts that are asked for one by one.
const PROBES: usize = 18;
/// The model's window in tokens.
const WINDOW: usize = 64_000;
/// Dollars for a million tokens of input and of output, as models of the middle class cost.
const PRICES: (f64, f64) = (3.0, 15.0);
/// Where a fact stands: in turn.
const PLACES: [&str; 3] = ["first sentence of an answer", "midst of an answer", "words of the user"];

/// How the context is compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By a model whose summary says nothing.
    Empty,
    /// By a model whose summary says every fact.
    Ideal,
    /// By sentences of what leaves, without a call.
    Cover,
}

impl Way {
    const ALL: [Self; 3] = [Self::Empty, Self::Ideal, Self::Cover];

    fn name(self) -> &'static str {
        match self {
            Self::Empty => "a summary that says nothing",
            Self::Ideal => "a summary that says every fact",
            Self::Cover => "a cover",
        }
    }
}

/// One compaction, and the request after it.
struct CompactedSession {
    calls: usize,
    /// Bytes that were sent for it, and bytes of its answers.
    sent: usize,
    answered: usize,
    /// The request after it.
    request: String,
}

fn run(context: &Context) -> Result<Vec<Row>> {
    let (turns, probes) = if context.sizes.is_smoke() { (30, 3) } else { (TURNS, PROBES) };
    let what = format!("compaction after {turns} runs");
    if !context.wants(BENCHMARK.name, &what) {
        return Ok(Vec::new());
    }
    let facts = turns * FACTS / TURNS;
    let mut rows = Vec::new();
    for way in Way::ALL {
        let name = way.name();
        eprintln!("bench: {what}, by {name}");
        let stage = stage(context, way)?;
        for turn in 0..turns {
            let (asked, answered) = said(turn, facts);
            let mut command = stage.prompt(None, &asked)?;
            if turn > 0 {
                command.arg("--continue");
            }
            stage.run(&command, [stage.wire().text(&[answered])])?;
        }
        let row = |part: &str, unit: &'static str, value: f64| Row {
            what: format!("{what}, by {name}, {part}"),
            unit,
            samples: vec![value],
        };
        if way == Way::Cover {
            let asked: Vec<usize> = (0..probes).map(|at| at * facts / probes / 3 * 3 + at % 3).collect();
            let mut kept = [0_usize; PLACES.len()];
            for fact in &asked {
                kept[fact % PLACES.len()] += usize::from(is_kept_where_asked(&stage, *fact)?);
            }
            for (place, kind) in PLACES.iter().enumerate() {
                let of = asked.iter().filter(|fact| *fact % PLACES.len() == place).count();
                rows.push(row(&format!("facts kept, question known, {kind}"), "%", percent(kept[place], of)));
            }
        }
        let before = stage.last_request().len();
        let found = compacted(&stage, way, facts)?;
        ensure!(found.request.len() < before, "{name}: the request did not become shorter");
        ensure!((found.calls == 0) == (way == Way::Cover), "{name}: {} calls", found.calls);
        let (input, output) = (tokens(found.sent), tokens(found.answered));
        let cost = (input * PRICES.0 + output * PRICES.1) / 1_000_000.0;
        rows.push(row("calls of the model", "calls", found.calls as f64));
        rows.push(row("sent for it", "tokens", input));
        rows.push(row("cost", "$", cost));
        rows.push(row("next request", "tokens", tokens(found.request.len())));
        for (place, kind) in PLACES.iter().enumerate() {
            let of: Vec<usize> = (0..facts).filter(|fact| fact % PLACES.len() == place).collect();
            let kept = of.iter().filter(|fact| stands(&found.request, **fact)).count();
            rows.push(row(&format!("facts kept, {kind}"), "%", percent(kept, of.len())));
        }
    }
    Ok(rows)
}

fn stage(context: &Context, way: Way) -> Result<Stage<'_>> {
    let stage = Stage::new(context, Contender::Quipu)?;
    let model = json!({ "id": "m", "contextWindow": WINDOW, "maxTokens": 4_000 });
    let models = json!({ "providers": { "fake": { "baseUrl": stage.server_url(), "api": "anthropic-messages",
        "apiKey": "bench", "models": [model] } } });
    std::fs::write(stage.settings().join("models.json"), models.to_string())?;
    let mode = if way == Way::Cover { "cover" } else { "summary" };
    let settings = json!({ "compaction": { "enabled": false, "mode": mode, "keepRecentTokens": 4_000 } });
    std::fs::write(stage.settings().join("settings.json"), settings.to_string())?;
    Ok(stage)
}

/// What is said in a run, with a fact in one of the first.
fn said(turn: usize, facts: usize) -> (String, String) {
    let fact = match turn < facts {
        true => format!("The code of {} is {}.", thing(turn), code(turn)),
        false => String::new(),
    };
    let (asked, first, rest) = (prose(7, turn, 90), prose(11, turn, 500), prose(13, turn, 700));
    match turn % PLACES.len() {
        0 => (asked, format!("{fact} {first}\n{rest}").trim().to_owned()),
        1 => (asked, format!("{first} {fact} {rest}")),
        _ => (format!("{asked} {fact}").trim().to_owned(), format!("{first}\n{rest}")),
    }
}

fn thing(fact: usize) -> String {
    format!("gadget{fact:03}")
}

fn code(fact: usize) -> String {
    format!("zq{:05}", (fact + 17) * 7_919 % 100_000)
}

fn stands(request: &str, fact: usize) -> bool {
    request.contains(&code(fact))
}

/// Whether a fact stands in what is left of the context, by a cover that knows the question. The session is then as it was.
fn is_kept_where_asked(stage: &Stage<'_>, fact: usize) -> Result<bool> {
    let question = format!("What is the code of {}?", thing(fact));
    stage.load([]);
    let node = printed(stage, &["compact", "--model", "fake/m", "--focus", &question])?;
    ensure!(stage.served().is_empty(), "a cover asked a model");
    let shown = printed(stage, &["show", node.trim(), "--json"])?;
    printed(stage, &["compact", "--undo"])?;
    Ok(stands(&shown, fact))
}

fn printed(stage: &Stage<'_>, arguments: &[&str]) -> Result<String> {
    let output = stage.program()?.args(arguments).output().context("cannot run quipu")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "quipu {arguments:?} failed: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Compacts the newest session and sends one more request.
fn compacted(stage: &Stage<'_>, way: Way, facts: usize) -> Result<CompactedSession> {
    let summary = match way {
        Way::Empty => "## Goal\nNone.".to_owned(),
        Way::Ideal => {
            let lines = (0..facts).map(|fact| format!("- {}: {}\n", thing(fact), code(fact)));
            format!("## Context\n{}", lines.collect::<String>())
        }
        Way::Cover => String::new(),
    };
    // As many as it may want.
    stage.load((0..16).map(|_| stage.wire().text(std::slice::from_ref(&summary))));
    printed(stage, &["compact", "--model", "fake/m"])?;
    let served = stage.served();
    let mut command = stage.prompt(None, "Go on.")?;
    command.arg("--continue");
    stage.run(&command, [stage.hello()])?;
    Ok(CompactedSession {
        calls: served.len(),
        sent: served.iter().map(|one| one.body_bytes).sum(),
        answered: served.len() * summary.len(),
        request: stage.last_request(),
    })
}

/// About.
#[expect(clippy::cast_precision_loss, reason = "bytes of a few requests")]
fn tokens(bytes: usize) -> f64 {
    bytes as f64 / 4.0
}

#[expect(clippy::cast_precision_loss, reason = "a few facts")]
fn percent(part: usize, of: usize) -> f64 {
    100.0 * part as f64 / of.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_said_once_and_apart() {
        let all: String =
            (0..FACTS).map(|turn| said(turn, FACTS)).map(|(asked, told)| asked + &told).collect();
        assert!((0..FACTS).all(|fact| all.matches(&code(fact)).count() == 1));
        assert!(said(FACTS + 1, FACTS).1.len() > 1_000);
    }
}
