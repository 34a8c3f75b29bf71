//! `quipu import`: sessions of another agent come into the store.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quipu_archive::{ArchiveError, Progress, Report, pi};
use quipu_seal::Sealer;
use quipu_store::Store;

use crate::args::{ForeignAgent, ImportArgs};
use crate::exit::Failure;
use crate::print::{note, printable};
use crate::setup::Place;

/// Bytes between two lines of progress.
const STEP: u64 = 64 << 20;
/// Problems of one file that people are shown.
const SHOWN: usize = 10;

pub(crate) async fn run(args: &ImportArgs) -> Result<(), Failure> {
    let ForeignAgent::Pi = args.agent;
    let place = Place::find(&args.store)?;
    let path = match &args.path {
        Some(path) => path.clone(),
        None => default_dir()?,
    };
    let found = pi::session_files(&path).map_err(failed)?;
    for (dir, error) in &found.unreadable {
        note(format!("{} could not be read: {error}", dir.display()));
    }
    let mut failures = found.unreadable.len();
    if found.files.is_empty() {
        note(format!("No session file (*.jsonl) in {}.", path.display()));
    }
    let store: Arc<dyn Store> = place.store().await?;
    let sealer = place.engine(store.clone(), &place.settings())?.sealer().clone();
    let imports = pi::Imports::load(&*store).await?;
    let mut sum = Sum::default();
    for file in &found.files {
        match import(&store, &sealer, file, &imports, args.dry_run).await {
            Ok(report) => {
                sum.add(&report);
                tell(&report, args)?;
            }
            Err(error @ ArchiveError::Store(_)) => return Err(failed(error)),
            Err(error) => {
                failures += 1;
                if args.json {
                    let line = serde_json::json!({ "path": file, "error": error.to_string() });
                    writeln!(std::io::stdout().lock(), "{line}")?;
                }
                note(error.to_string());
            }
        }
    }
    if found.files.len() > 1 {
        let would = if args.dry_run { "would be " } else { "" };
        note(format!(
            "{} files: {} entries {would}added, {} known before, {} changed, {} repaired, {} lost",
            found.files.len(),
            sum.added,
            sum.present,
            sum.changed,
            sum.repaired,
            sum.lost
        ));
    }
    match failures {
        0 => Ok(()),
        1 => Err(Failure::failed("1 file or directory could not be imported")),
        count => Err(Failure::failed(format!("{count} files or directories could not be imported"))),
    }
}

/// Where the other agent keeps its sessions.
fn default_dir() -> Result<PathBuf, Failure> {
    let env = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let dir = pi::sessions_dir(&env)
        .ok_or_else(|| Failure::usage("HOME is not set; name a file or a directory"))?;
    if dir.is_dir() {
        return Ok(dir);
    }
    Err(Failure::usage(format!("there are no sessions in {}; name a file or a directory", dir.display())))
}

pub(crate) fn failed(error: ArchiveError) -> Failure {
    match error {
        ArchiveError::Store(error) => error.into(),
        ArchiveError::File { path, source, .. } if path.as_os_str().is_empty() => source.into(),
        ArchiveError::File { .. }
        | ArchiveError::NotASession { .. }
        | ArchiveError::Changed { .. }
        | ArchiveError::NotExportable { .. }
        | ArchiveError::Fault(_) => Failure::failed(error),
    }
}

async fn import(
    store: &Arc<dyn Store>,
    sealer: &Arc<Sealer>,
    file: &Path,
    imports: &pi::Imports,
    dry_run: bool,
) -> Result<Report, ArchiveError> {
    let told = AtomicU64::new(0);
    let progress = |at: Progress| {
        let before = told.load(Ordering::Relaxed);
        if at.bytes / STEP > before / STEP && at.bytes < at.total {
            told.store(at.bytes, Ordering::Relaxed);
            note(format!(
                "{}: {} of {} MiB, {} entries",
                file.display(),
                at.bytes >> 20,
                at.total >> 20,
                at.entries
            ));
        }
    };
    pi::import(store, sealer, file, imports, &pi::ImportOptions { dry_run, progress: &progress }).await
}

fn tell(report: &Report, args: &ImportArgs) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    if args.json {
        let line = serde_json::to_string(report).map_err(|error| Failure::failed(error.to_string()))?;
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let path = printable(&report.path.display().to_string());
    if report.unchanged {
        writeln!(out, "{path}\n    session {}, unchanged", report.session)?;
        return Ok(());
    }
    let mut counts = vec![
        format!("{} {}", report.added, if args.dry_run { "would be added" } else { "added" }),
        format!("{} known before", report.present),
    ];
    for (count, what) in [
        (report.changed, "changed, not taken"),
        (report.repaired, "repaired"),
        (report.lost, "lost"),
        (report.sealed, "with a secret that was sealed"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let branches = if report.branches == 1 { "branch" } else { "branches" };
    writeln!(
        out,
        "{path}\n    session {}, {} {branches}: {}",
        report.session,
        report.branches,
        counts.join(", ")
    )?;
    for problem in report.problems.iter().take(SHOWN) {
        let detail = if problem.detail.is_empty() { String::new() } else { format!(" ({})", problem.detail) };
        writeln!(out, "    line {}: {}{}", problem.line, problem.kind.words(), printable(&detail))?;
    }
    let rest = (report.changed + report.repaired + report.lost).saturating_sub(SHOWN as u64);
    if rest > 0 {
        writeln!(out, "    … and {rest} more (--json names the first hundred)")?;
    }
    Ok(())
}

#[derive(Default)]
struct Sum {
    added: u64,
    present: u64,
    changed: u64,
    repaired: u64,
    lost: u64,
}

impl Sum {
    fn add(&mut self, report: &Report) {
        self.added += report.added;
        self.present += report.present;
        self.changed += report.changed;
        self.repaired += report.repaired;
        self.lost += report.lost;
    }
}
