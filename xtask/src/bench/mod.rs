//! Measurements as a Markdown table: numbers are read by people, never asserted by a test.
//!
//! To add one, write a file beside this one with a `BENCHMARK` and name it in [`BENCHMARKS`].

mod active;
mod agent;
mod answers;
mod browser;
mod cache;
mod commits;
mod compaction;
mod contest;
mod cover;
mod dream;
mod files;
mod guard;
mod histories;
mod hooks;
mod import;
mod machine;
mod mcp;
mod measure;
mod open;
mod past;
mod past_proof;
mod past_recall;
mod pi_extension;
mod plan;
mod programs;
mod proxy;
mod pty;
mod recall;
mod search;
mod server;
mod sessions;
mod shared;
mod targets;
mod terminal;
mod terminal_session;
mod version;
mod wires;

use crate::peers::Peers;
use crate::repo;
use anyhow::{Context as _, Result, bail};
use std::cell::{OnceCell, RefCell};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All benchmarks in the order of the table.
const BENCHMARKS: &[Benchmark] = &[
    version::BENCHMARK,
    version::SIZE,
    agent::HELLO,
    agent::TURNS,
    agent::DELTAS,
    agent::APIS,
    terminal::BENCHMARK,
    terminal_session::BENCHMARK,
    mcp::BENCHMARK,
    sessions::RESUME,
    open::BENCHMARK,
    sessions::LIST,
    sessions::TREE,
    plan::BENCHMARK,
    search::BENCHMARK,
    recall::BENCHMARK,
    answers::BENCHMARK,
    active::BENCHMARK,
    dream::BENCHMARK,
    past::BENCHMARK,
    past_proof::BENCHMARK,
    past_recall::BENCHMARK,
    cover::BENCHMARK,
    cache::BENCHMARK,
    compaction::BENCHMARK,
    shared::BENCHMARK,
    hooks::BENCHMARK,
    pi_extension::BENCHMARK,
    proxy::BENCHMARK,
    files::BENCHMARK,
    import::BENCHMARK,
    commits::BENCHMARK,
];

/// A median of fewer runs says little.
const FEWEST_RUNS: usize = 7;
const MOST_RUNS: usize = 1_000;

struct Benchmark {
    /// What the command line calls it.
    name: &'static str,
    about: &'static str,
    run: fn(&Context) -> Result<Vec<Row>>,
}

/// What a benchmark is given.
struct Context {
    root: PathBuf,
    /// The released `quipu` of this checkout, or the one that was named.
    quipu: PathBuf,
    /// How many samples each row has.
    runs: usize,
    sizes: Sizes,
    /// Other agents to measure beside ours.
    peers: Option<Peers>,
    /// Only what has this text in its name.
    only: Option<String>,
    /// For all files of this run; removed at its end.
    scratch: PathBuf,
    /// What could not be measured, and why.
    notes: RefCell<Vec<String>>,
    /// The example that puts sessions into a store, once it is built.
    session_store: OnceCell<PathBuf>,
}

/// How much each benchmark does.
struct Sizes {
    turns: &'static [usize],
    deltas: usize,
    /// Entries of the sessions that are continued.
    resume: Vec<usize>,
    /// Entries of the files that are opened for the first time.
    open: &'static [usize],
    /// Entries of the sessions that are drawn, forked and so on.
    trees: Vec<usize>,
    /// Branches from one node.
    branches: Vec<usize>,
    /// Entries whose compaction is planned.
    plan: usize,
    /// Turns that are summed up.
    past: &'static [usize],
    /// Nodes that are searched.
    search: Vec<usize>,
    /// Nodes that everyday answers are about.
    answers: Vec<usize>,
    /// Nodes among which other agents look.
    shared: Vec<usize>,
    /// Sessions, and entries of each.
    list: (usize, usize),
    /// Session files that are imported.
    import: Vec<histories::Amount>,
}

/// What `--million` adds to sessions: minutes for making each.
const MILLION: usize = 1_000_000;

impl Sizes {
    fn full() -> Self {
        Self {
            turns: &[50, 200, 800],
            deltas: 20_000,
            resume: vec![1_000, 10_000, 100_000],
            open: &[1_000, 10_000, 100_000],
            trees: vec![1_000, 100_000],
            branches: vec![10_000],
            plan: 100_000,
            past: &[1_000, 10_000, 100_000],
            search: vec![40_000],
            answers: vec![10_000, 100_000],
            shared: vec![10_000, 100_000],
            list: (1_000, 100),
            import: vec![
                histories::Amount { name: "10 MB", files: 1, entries: 10_000 },
                histories::Amount { name: "100 MB", files: 1, entries: 100_000 },
            ],
        }
    }

    /// Enough to see that everything works.
    fn smoke() -> Self {
        Self {
            turns: &[10],
            deltas: 1_000,
            resume: vec![1_000],
            open: &[1_000],
            trees: vec![1_000],
            branches: vec![100],
            plan: 10_000,
            past: &[500],
            search: vec![2_000],
            answers: vec![2_000],
            shared: vec![2_000],
            list: (100, 12),
            import: vec![histories::Amount { name: "4 MB", files: 2, entries: 2_000 }],
        }
    }

    /// Whether these are those of [`Sizes::smoke`].
    fn is_smoke(&self) -> bool {
        self.plan < 100_000
    }

    fn with_million(mut self) -> Self {
        for sizes in [
            &mut self.resume,
            &mut self.trees,
            &mut self.branches,
            &mut self.search,
            &mut self.answers,
            &mut self.shared,
        ] {
            sizes.push(MILLION);
        }
        self.import.push(histories::Amount { name: "1 GB", files: 10, entries: MILLION / 10 });
        self
    }
}

impl Context {
    /// Whether `what` is to be measured by this benchmark.
    fn wants(&self, bench: &str, what: &str) -> bool {
        self.only.as_ref().is_none_or(|only| format!("{bench}: {what}").contains(only.as_str()))
    }

    /// The example of the engine that puts sessions into a store.
    fn session_store(&self) -> Result<&Path> {
        if let Some(built) = self.session_store.get() {
            return Ok(built);
        }
        let built =
            build(&self.root, &["--package", "quipu", "--example", "session_store"], "session_store")?;
        Ok(self.session_store.get_or_init(|| built))
    }
}

/// One line of the table.
struct Row {
    what: String,
    unit: &'static str,
    samples: Vec<f64>,
}

impl Row {
    /// Median, smallest and largest sample.
    fn summary(&self) -> Option<(f64, f64, f64)> {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = match sorted.len() {
            0 => return None,
            length if length % 2 == 1 => sorted[middle],
            _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
        };
        Some((median, *sorted.first()?, *sorted.last()?))
    }
}

#[derive(Debug)]
struct Arguments {
    runs: usize,
    names: Vec<String>,
    list: bool,
    smoke: bool,
    million: bool,
    only: Option<String>,
    peers: Option<PathBuf>,
    quipu: Option<PathBuf>,
}

/// `cargo xtask bench [--runs N] [--smoke] [--million] [--peers DIR] [--only TEXT] [--quipu FILE] [--list] [NAME..]`.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    // How this program measures others: see `measure`.
    if let Some((measure::CHILD, command)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        return measure::child(command);
    }
    if arguments.first().is_some_and(|first| first == mcp::SERVER) {
        return mcp::serve();
    }
    let arguments = parse(arguments)?;
    if arguments.list {
        for benchmark in BENCHMARKS {
            println!("{:<16} {}", benchmark.name, benchmark.about);
        }
        return Ok(true);
    }
    let peers = arguments.peers.as_deref().map(Peers::find).transpose()?;
    let root = repo::root()?;
    let scratch = tempfile::Builder::new().prefix("quipu-bench-").tempdir()?;
    guard::watch(scratch.path().to_owned())?;
    let given = arguments.quipu.is_some();
    let quipu = match arguments.quipu {
        Some(quipu) => quipu.canonicalize().with_context(|| format!("no program {}", quipu.display()))?,
        None => build(&root, &["--package", "quipu-cli"], "quipu")?,
    };
    let sizes = if arguments.smoke { Sizes::smoke() } else { Sizes::full() };
    let sizes = if arguments.million { sizes.with_million() } else { sizes };
    let context = Context {
        quipu,
        root,
        runs: arguments.runs,
        sizes,
        peers,
        only: arguments.only,
        scratch: scratch.path().canonicalize()?,
        notes: RefCell::default(),
        session_store: OnceCell::new(),
    };
    // Taken before the work starts, which is load itself.
    let mut head = machine::describe(&context.root, &context.scratch, given.then_some(&*context.quipu));
    if let Some(peers) = &context.peers {
        head.push_str(&format!("Peers: {}.\n", peers.versions));
    }
    if arguments.smoke {
        head.push_str("A smoke run: too small and too short to quote.\n");
    }
    let mut rows = Vec::new();
    for benchmark in BENCHMARKS {
        if !arguments.names.is_empty() && !arguments.names.iter().any(|name| name == benchmark.name) {
            continue;
        }
        // Examples measure these, and know no part of them.
        let whole = [commits::BENCHMARK.name, plan::BENCHMARK.name].contains(&benchmark.name);
        if whole && !context.wants(benchmark.name, benchmark.about) {
            continue;
        }
        eprintln!("bench: {}", benchmark.name);
        rows.extend(
            (benchmark.run)(&context).with_context(|| format!("benchmark {} failed", benchmark.name))?,
        );
    }
    if rows.is_empty() {
        bail!("nothing was measured; `cargo xtask bench --list` names the benchmarks");
    }
    print!("{head}\n{}", table(&rows));
    let targets = targets::table(&rows);
    if !targets.is_empty() {
        print!("\n{targets}");
    }
    let notes = context.notes.take();
    if !notes.is_empty() {
        println!("\nNot measured:\n");
        notes.iter().for_each(|note| println!("- {note}"));
    }
    Ok(true)
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed = Arguments {
        runs: FEWEST_RUNS,
        names: Vec::new(),
        list: false,
        smoke: false,
        million: false,
        only: None,
        peers: None,
        quipu: None,
    };
    let mut runs = None;
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value"));
        match word.as_str() {
            "--list" => parsed.list = true,
            "--smoke" => parsed.smoke = true,
            "--million" => parsed.million = true,
            "--only" => parsed.only = Some(value()?.clone()),
            "--peers" => parsed.peers = Some(std::path::absolute(value()?)?),
            "--quipu" => parsed.quipu = Some(PathBuf::from(value()?)),
            "--runs" => {
                let value = value()?;
                runs = Some(value.parse().with_context(|| format!("--runs {value} is not a number"))?);
            }
            name if BENCHMARKS.iter().any(|one| one.name == name) => parsed.names.push(name.to_owned()),
            other => bail!("no benchmark is named {other:?}; cargo xtask bench --list names them"),
        }
    }
    let fewest = if parsed.smoke { 1 } else { FEWEST_RUNS };
    parsed.runs = runs.unwrap_or(fewest);
    if !(fewest..=MOST_RUNS).contains(&parsed.runs) {
        bail!("--runs {}: between {fewest} and {MOST_RUNS}", parsed.runs);
    }
    Ok(parsed)
}

/// Builds a program of this workspace as a release and returns its path, wherever the target folder is.
fn build(root: &Path, what: &[&str], program: &str) -> Result<PathBuf> {
    eprintln!("bench: building {program}");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--message-format", "json-render-diagnostics"])
        .args(what)
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo build")?;
    if !output.status.success() {
        bail!("{program} does not build");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == program)
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .with_context(|| format!("cargo named no program {program}"))
}

fn table(rows: &[Row]) -> String {
    let mut text =
        "| what | median | least | most | unit | runs |\n|---|---:|---:|---:|---|---:|\n".to_owned();
    for row in rows {
        if let Some((median, least, most)) = row.summary() {
            let [median, least, most] = [median, least, most].map(number);
            let line = format!(
                "| {} | {median} | {least} | {most} | {} | {} |\n",
                row.what,
                row.unit,
                row.samples.len()
            );
            text.push_str(&line);
        }
    }
    text
}

/// Three digits that count; whole numbers in groups of three.
fn number(value: f64) -> String {
    if value.abs() < 100.0 {
        let decimals = if value.abs() < 1.0 {
            3
        } else if value.abs() < 10.0 {
            2
        } else {
            1
        };
        return format!("{value:.decimals$}");
    }
    let digits = format!("{value:.0}");
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 && !grouped.ends_with('-') {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_medians() {
        let row = |samples: &[f64]| Row { what: "x".to_owned(), unit: "ms", samples: samples.to_vec() };
        let rows = [row(&[3.0, 1.0, 2.0]), row(&[1_234_567.8, 0.5]), row(&[])];
        assert_eq!(
            table(&rows),
            "| what | median | least | most | unit | runs |\n|---|---:|---:|---:|---|---:|\n\
             | x | 2.00 | 1.00 | 3.00 | ms | 3 |\n| x | 617,284 | 0.500 | 1,234,568 | ms | 2 |\n"
        );
    }

    #[test]
    fn arguments_are_checked() {
        let parse = |line: &str| parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(
            parse("--runs 9 version").is_ok_and(|parsed| parsed.runs == 9 && parsed.names == ["version"])
        );
        assert!(parse("--million tree").is_ok_and(|parsed| parsed.million && !parsed.smoke));
        assert!(parse("--smoke --only hello").is_ok_and(|parsed| parsed.runs == 1 && parsed.only.is_some()));
        assert!(parse("--peers x").is_ok_and(|parsed| parsed.runs == 7 && parsed.peers.is_some()));
        for bad in [
            "--runs",
            "--runs x",
            "--runs 6",
            "--runs 1001",
            "--smoke --runs 0",
            "--only",
            "nothing",
            "--fast",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
