//! `quipu import --settings`: what other agents have in their settings.

use std::io::Write as _;
use std::path::PathBuf;

use quipu_host::Home;
use quipu_host::setup::{SetupOutcome, SetupReport, SetupRequest, import_settings};
use serde_json::json;

use crate::args::ImportArgs;
use crate::exit::Failure;
use crate::print::{note, one_line, printable};

pub(crate) fn run(home: &Home, args: &ImportArgs) -> Result<(), Failure> {
    let request = SetupRequest { agent: args.agent.clone(), dry_run: args.dry_run };
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let reports = import_settings(home, &request, &env, std::env::home_dir().as_deref())?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    for report in &reports {
        if args.out.json {
            writeln!(out, "{}", object(report))?;
        } else {
            writeln!(out, "{}", line(report))?;
        }
    }
    out.flush()?;
    let count = |word: &str| reports.iter().filter(|report| report.outcome.word() == word).count();
    let would = if args.dry_run { "would be taken over" } else { "taken over" };
    note(format!(
        "{} {would}, {} as they were, {} kept as you set them, {} without a counterpart",
        count("set"),
        count("same"),
        count("kept"),
        count("left"),
    ));
    Ok(())
}

/// A report for programs.
fn object(report: &SetupReport) -> serde_json::Value {
    let SetupReport { file, line, key, outcome } = report;
    let (ours, value, why) = match outcome {
        SetupOutcome::Set { ours, value } => (Some(ours), Some(value), None),
        SetupOutcome::Same { ours } | SetupOutcome::Kept { ours } => (Some(ours), None, None),
        SetupOutcome::Left(why) | SetupOutcome::Note(why) => (None, None, Some(why)),
    };
    json!({
        "file": file,
        "line": line,
        "key": key,
        "outcome": outcome.word(),
        "setting": ours,
        "value": value,
        "why": why,
    })
}

/// A report for people.
fn line(report: &SetupReport) -> String {
    let at = format!("{}:{}", report.file.display(), report.line);
    let key = if report.key.is_empty() { String::new() } else { format!("{}: ", report.key) };
    let what = match &report.outcome {
        SetupOutcome::Set { ours, value } => {
            format!("{ours} = {}", one_line(&crate::config::in_words(value), 100))
        }
        SetupOutcome::Same { ours } => format!("{ours} is so already"),
        SetupOutcome::Kept { ours } => format!("{ours} stays as you set it"),
        SetupOutcome::Left(why) | SetupOutcome::Note(why) => why.clone(),
    };
    printable(&format!("{:<5} {at}  {key}{what}", report.outcome.word()))
}
