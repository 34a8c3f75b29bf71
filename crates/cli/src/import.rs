//! `quipu import`: sessions of other agents come into the store.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;

use quipu_archive::{ArchiveError, Report};
use quipu_host::import::{
    ImportError, ImportObserver, ImportPlan, ImportProblem, ImportRequest, ImportSource, ImportSum, Importer,
    ProjectSessions, agent_names, agent_places,
};

use crate::args::ImportArgs;
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::meters::Meters;
use crate::print::{Paint, Progress, note, printable};
use crate::signals::Signals;

/// Problems of one file that people are shown.
const SHOWN: usize = 10;

pub(crate) async fn run(args: &ImportArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    if args.settings {
        return crate::import_settings::run(&home, args);
    }
    if args.state {
        return Box::pin(crate::import_state::run(&home, args)).await;
    }
    let source = ImportSource::named(args.agent.as_deref(), args.path.as_deref()).map_err(in_words)?;
    let request = ImportRequest { source: source.clone(), follows: args.watch, dry_run: args.dry_run };
    let plan = ImportPlan::make(request)
        .map_err(in_words)
        .inspect_err(|failure| in_json(source.path(), failure, args))?;
    match &source {
        ImportSource::Agent(agent, Some(path)) if plan.is_empty() => {
            note(format!("No session files of {} in {}.", agent.name, path.display()));
        }
        ImportSource::All if !shown_and_wanted(&plan, args)? => return Ok(()),
        ImportSource::All | ImportSource::Agent(..) | ImportSource::Exports(_) => {}
    }
    let mut importer = Importer::open(&home, plan).await?;
    let teller = Teller::new(args);
    let mut signals = Signals::new()?;
    tokio::select! {
        biased;
        _ = signals.next() => {
            note("Stopped. What was imported stays; run the same command again to continue.");
            return Err(Failure::silent(signals.exit()));
        }
        imported = importer.run(&teller) => imported?,
    }
    let sum = importer.sum();
    tell_sum(&sum, args);
    if !args.dry_run && crate::console::shows_people() {
        // Or the first search would have to; what is not watched is left to that and to quiet moments.
        let progress = Progress::new();
        let tell = |at| crate::search::show_progress(&progress, at);
        tokio::select! {
            biased;
            _ = signals.next() => {
                note("Stopped. All sessions are imported; the search index is completed later.");
                return Err(Failure::silent(signals.exit()));
            }
            done = importer.finish_index(&tell) => done?,
        }
    }
    if args.watch {
        note("Watching for new messages; press Ctrl-C to stop.");
        tokio::select! {
            biased;
            _ = signals.next() => return Err(Failure::silent(signals.exit())),
            failed = importer.follow(&teller) => match failed? {},
        }
    }
    end(&sum)
}

/// Says what several files came to.
pub(crate) fn tell_sum(sum: &ImportSum, args: &ImportArgs) {
    if sum.files > 1 {
        let would = if args.dry_run { "would be " } else { "" };
        note(format!(
            "{} files: {} entries {would}added, {} already known, {} changed, {} repaired, {} lost{}",
            sum.files,
            sum.added,
            sum.present,
            sum.changed,
            sum.repaired,
            sum.lost.saturating_sub(sum.pending),
            held_back(sum.pending)
        ));
    }
}

/// Whether all could be taken.
pub(crate) fn end(sum: &ImportSum) -> Result<(), Failure> {
    let count = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        count => Some(format!("{count} {many}")),
    };
    let failures = count(sum.failures, "file or directory", "files or directories")
        .map(|what| format!("{what} could not be imported"));
    let left_out =
        count(sum.left_out, "file", "files").map(|what| format!("parts of {what} could not be imported"));
    let message: Vec<String> = failures.into_iter().chain(left_out).collect();
    if message.is_empty() { Ok(()) } else { Err(Failure::failed(message.join("; "))) }
}

/// Why there is nothing to import, in the words of the command line.
pub(crate) fn in_words(error: ImportError) -> Failure {
    Failure::usage(match error {
        ImportError::Archive(error) => return error.into(),
        ImportError::NoAgent(name) => format!(
            "`{name}` is neither a file nor an agent whose sessions Quipu can import; the agents are {}",
            agent_names().join(", ")
        ),
        ImportError::NeedsFile(agent) => {
            format!(
                "name the file: `quipu import {agent} FILE`, the ZIP of the account export from that service"
            )
        }
        ImportError::NoHome => "HOME is not set; name a file or a directory".to_owned(),
        ImportError::NoPlace(places) => {
            let places: Vec<String> = places.iter().map(|path| path.display().to_string()).collect();
            format!("there are no sessions in {}; name a file or a directory", places.join(" or "))
        }
        ImportError::NoExport(path) => {
            let what = if path.is_dir() { "holds" } else { "is" };
            format!(
                "{} {what} no account export that Quipu knows; put the agent before it, one of {}",
                path.display(),
                agent_names().join(", ")
            )
        }
    })
}

/// Tells programs of a path that could not be read, as of any file.
fn in_json(path: Option<&Path>, failure: &Failure, args: &ImportArgs) {
    if let Some(path) = path.filter(|_| args.out.json && failure.exit == Exit::Failed) {
        let line = serde_json::json!({ "path": path, "error": failure.message });
        // Who does not listen any more is told by the exit code.
        drop(writeln!(crate::console::stdout(), "{line}"));
    }
}

/// Tells of each file: programs in lines of JSON, people in words.
pub(crate) struct Teller<'a> {
    args: &'a ImportArgs,
    meters: Meters,
}

impl<'a> Teller<'a> {
    pub(crate) fn new(args: &'a ImportArgs) -> Self {
        Self { args, meters: Meters::default() }
    }
}

impl ImportObserver for Teller<'_> {
    fn progress(&self, file: &Path, at: quipu_archive::Progress) {
        self.meters.show(file, at);
    }

    fn imported(&self, report: &Report) -> io::Result<()> {
        self.meters.clear();
        tell(report, self.args)
    }

    fn failed(&self, path: &Path, problem: &ImportProblem) -> io::Result<()> {
        self.meters.clear();
        let message = match problem {
            ImportProblem::Directory(error) => {
                format!("{} could not be read: {error}{}", path.display(), advice(error))
            }
            ImportProblem::File(error @ ArchiveError::File { source, .. }) => {
                format!("{error}{}", advice(source))
            }
            ImportProblem::File(error) => error.to_string(),
        };
        if self.args.out.json {
            let line = serde_json::json!({ "path": path, "error": message });
            writeln!(crate::console::stdout(), "{line}")?;
        }
        note(message);
        Ok(())
    }

    fn is_store(&self, file: &Path) {
        note(format!("{} is the store itself; there is nothing to import.", file.display()));
    }
}

/// What to do about what could not be read.
fn advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    match error.kind() {
        PermissionDenied => "; give your user read permission, then import it again",
        NotFound => "; it was moved or removed, or is a broken link",
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => "; it is a link that points to itself",
        _ => "",
    }
}

/// Shows what is here; whether it shall be imported.
fn shown_and_wanted(plan: &ImportPlan, args: &ImportArgs) -> Result<bool, Failure> {
    let projects = plan.projects();
    if projects.is_empty() {
        let places: Vec<String> = agent_places().iter().map(|path| path.display().to_string()).collect();
        note(format!(
            "No sessions of other agents were found in {}; name the agent and a file or a directory.",
            places.join(", ")
        ));
        return Ok(args.watch && args.yes);
    }
    let go = args.yes || args.dry_run;
    if !go || !args.out.json {
        let mut out = crate::console::stdout();
        for ProjectSessions { agent, project, sessions, bytes } in &projects {
            let project = project.as_deref().unwrap_or("(unknown)");
            if args.out.json {
                let line = serde_json::json!({
                    "agent": agent, "project": project, "sessions": sessions, "bytes": bytes,
                });
                writeln!(out, "{line}")?;
            } else {
                let agent = Paint::stdout().bold(&format!("{agent:<12}"));
                let size = format!("{:.1} MB", *bytes as f64 / 1e6);
                let plural = if *sessions == 1 { "" } else { "s" };
                writeln!(out, "{agent} {sessions:>6} session{plural:<1} {size:>10}  {}", printable(project))?;
            }
        }
    }
    if go {
        return Ok(true);
    }
    let sessions: u64 = projects.iter().map(|project| project.sessions).sum();
    if !crate::console::is_typed() {
        note(format!(
            "Nothing was imported. `quipu import --yes` imports all {sessions} sessions, `quipu import AGENT [PATH]` only some."
        ));
        return Ok(false);
    }
    note(format!("Import {sessions} sessions? Their files do not change. [y/N]"));
    let mut answer = String::new();
    crate::console::stdin().read_line(&mut answer)?;
    let wanted = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
    if !wanted {
        note("Nothing was imported.");
    }
    Ok(wanted)
}

/// What becomes of a last line without its end, and of an answer that may still be written.
const HELD_BACK: &str = "held back until complete";

fn held_back(count: u64) -> String {
    if count == 0 { String::new() } else { format!(", {count} {HELD_BACK}") }
}

fn tell(report: &Report, args: &ImportArgs) -> io::Result<()> {
    let mut out = crate::console::stdout();
    if args.out.json {
        let line = serde_json::to_string(report)?;
        writeln!(out, "{line}")?;
        return Ok(());
    }
    let path = printable(&report.path.display().to_string());
    if report.unchanged {
        writeln!(out, "{path}\n    session {}, unchanged", report.session)?;
        return Ok(());
    }
    let is_whole = report.session.as_str().is_empty();
    if is_whole && report.lost + report.repaired == 0 && report.skipped.is_empty() {
        return Ok(());
    }
    let mut counts = vec![
        format!("{} {}", report.added, if args.dry_run { "would be added" } else { "added" }),
        format!("{} already known", report.present),
    ];
    for (count, what) in [
        (report.changed, "changed, not imported"),
        (report.repaired, "repaired"),
        (report.lost.saturating_sub(report.pending), "lost"),
        (report.pending, HELD_BACK),
        (report.sealed, "with sealed secrets"),
        (report.actions, "rows of the action log"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let skipped: u64 = report.skipped.values().sum();
    if skipped > 0 {
        let what = if is_whole { "files without a conversation skipped" } else { "redundant lines skipped" };
        counts.push(format!("{skipped} {what}"));
    }
    if is_whole {
        writeln!(out, "{path}\n    in total: {}", counts[2..].join(", "))?;
    } else {
        let branches = if report.branches == 1 { "branch" } else { "branches" };
        writeln!(
            out,
            "{path}\n    session {}, {} {branches}: {}",
            report.session,
            report.branches,
            counts.join(", ")
        )?;
    }
    for problem in report.problems.iter().take(SHOWN) {
        let detail = if problem.detail.is_empty() { String::new() } else { format!(" ({})", problem.detail) };
        let line = if problem.line == 0 { String::new() } else { format!("line {}: ", problem.line) };
        writeln!(out, "    {line}{}{}", problem.kind.words(), printable(&detail))?;
    }
    let rest = (report.changed + report.repaired + report.lost).saturating_sub(SHOWN as u64);
    if rest > 0 {
        writeln!(out, "    … and {rest} more (--json names the first hundred)")?;
    }
    Ok(())
}
