//! Measurements as a Markdown table: numbers are read by people, never asserted by a test.
//!
//! To add one, write a file beside this one with a `BENCHMARK` and name it in [`BENCHMARKS`].

mod agent;
mod commits;
mod machine;
mod measure;
mod version;

use crate::repo;
use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// All benchmarks in the order of the table.
const BENCHMARKS: &[Benchmark] = &[
    version::BENCHMARK,
    agent::HELLO,
    agent::TURNS,
    agent::DELTAS,
    agent::RESUME,
    agent::LIST,
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
    /// The released `quipu` of this checkout.
    quipu: PathBuf,
    /// How many samples each row has.
    runs: usize,
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

struct Arguments {
    runs: usize,
    names: Vec<String>,
    list: bool,
}

/// `cargo xtask bench [--runs N] [--list] [NAME..]`.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    // How this program measures others: see `measure`.
    if let Some((measure::CHILD, command)) =
        arguments.split_first().map(|(first, rest)| (first.as_str(), rest))
    {
        return measure::child(command);
    }
    let arguments = parse(arguments)?;
    if arguments.list {
        for benchmark in BENCHMARKS {
            println!("{:<12} {}", benchmark.name, benchmark.about);
        }
        return Ok(true);
    }
    let chosen: Vec<&Benchmark> = BENCHMARKS
        .iter()
        .filter(|one| arguments.names.is_empty() || arguments.names.iter().any(|name| name == one.name))
        .collect();
    let root = repo::root()?;
    let context = Context { quipu: build(&root)?, root, runs: arguments.runs };
    // Taken before the work starts, which is load itself.
    let machine = machine::describe(&context.root);
    let mut rows = Vec::new();
    for benchmark in chosen {
        eprintln!("bench: {}", benchmark.name);
        rows.extend(
            (benchmark.run)(&context).with_context(|| format!("benchmark {} failed", benchmark.name))?,
        );
    }
    print!("{machine}\n{}", table(&rows));
    Ok(true)
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed = Arguments { runs: 21, names: Vec::new(), list: false };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--list" => parsed.list = true,
            "--runs" => {
                let value = words.next().context("--runs needs a number")?;
                parsed.runs = value.parse().with_context(|| format!("--runs {value} is not a number"))?;
                if !(FEWEST_RUNS..=MOST_RUNS).contains(&parsed.runs) {
                    bail!("--runs {value}: between {FEWEST_RUNS} and {MOST_RUNS}");
                }
            }
            name if BENCHMARKS.iter().any(|one| one.name == name) => parsed.names.push(name.to_owned()),
            other => bail!("no benchmark is named {other:?}; cargo xtask bench --list names them"),
        }
    }
    Ok(parsed)
}

/// Builds the release and returns the path of its binary, wherever the target folder is.
fn build(root: &Path) -> Result<PathBuf> {
    eprintln!("bench: building the release");
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--package", "quipu-cli", "--message-format", "json-render-diagnostics"])
        .current_dir(root)
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cannot run cargo build")?;
    if !output.status.success() {
        bail!("the release does not build");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "quipu")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no binary quipu")
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
            parse("--runs 7 version").is_ok_and(|parsed| parsed.runs == 7 && parsed.names == ["version"])
        );
        for bad in ["--runs", "--runs x", "--runs 6", "--runs 1001", "nothing", "--fast"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
