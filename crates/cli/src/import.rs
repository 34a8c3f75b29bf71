//! `quipu import`: sessions of other agents come into the store.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_archive::{
    AGENTS, Agent, ArchiveError, ImportOptions, Kept, Progress as ImportProgress, Report, Seen,
};
use quipu_seal::Sealer;
use quipu_store::Graph;

use crate::args::ImportArgs;
use crate::exit::{Exit, Failure};
use crate::meters::Meter;
use crate::place::place;
use crate::print::{Paint, Progress, note, printable};
use crate::run::Signals;
use quipu_host::Watch;

/// Problems of one file that people are shown.
const SHOWN: usize = 10;

pub(crate) async fn run(args: &ImportArgs) -> Result<(), Failure> {
    let place = place(&args.out.store)?;
    let asked = Asked::of(args)?;
    let work = match &asked {
        Asked::Agent(agent, path) => {
            let path = path.as_deref();
            vec![(*agent, files_of(agent, path, args).inspect_err(|failure| in_json(path, failure, args))?)]
        }
        Asked::Exports(path) => exports(path).inspect_err(|failure| in_json(Some(path), failure, args))?,
        Asked::All => {
            let work = all();
            if !shown_and_wanted(&work, args)? {
                return Ok(());
            }
            work
        }
    };
    let opened = place.store().await?;
    let store: Arc<dyn Graph> = opened.clone();
    let sealer = place.engine(store.clone(), &place.settings())?.sealer().clone();
    let mut importer = Importer {
        store,
        sealer,
        args,
        seen: Seen::default(),
        sum: Sum::default(),
        failures: 0,
        left_out: 0,
        follows: false,
    };
    if args.watch {
        // What is being written now is not read twice.
        importer.seen.follow();
    }
    let mut signals = Signals::new()?;
    let mut watch = Watch::default();
    for (dir, error) in work.iter().flat_map(|(_, kept)| &kept.unreadable) {
        importer.failed(dir, format!("{} could not be read: {error}{}", dir.display(), advice(error)))?;
    }
    let files =
        work.iter().flat_map(|(agent, kept)| kept.files.iter().map(move |file| (*agent, file.clone())));
    let mut due: Vec<(&Agent, PathBuf)> = files.collect();
    due.retain(|(_, file)| {
        let is_store = is_same_file(file, &place.store);
        if is_store {
            note(format!("{} is the store itself: all of it is there.", file.display()));
        }
        !is_store
    });
    let files = due.len();
    due.retain(|(agent, file)| watch.is_due(agent, file));
    tokio::select! {
        biased;
        _ = signals.next() => {
            note("Stopped. What was stored so far stays; the same command goes on from there.");
            return Err(Failure::silent(signals.exit()));
        }
        imported = importer.import(&due, &mut watch) => imported?,
    }
    if files > 1 {
        let would = if args.dry_run { "would be " } else { "" };
        let sum = &importer.sum;
        note(format!(
            "{files} files: {} entries {would}added, {} known before, {} changed, {} repaired, {} lost",
            sum.added, sum.present, sum.changed, sum.repaired, sum.lost
        ));
    }
    if !args.dry_run && crate::console::shows_people() {
        // Or the first search would have to; what is not watched is left to that and to quiet moments.
        let progress = Progress::new();
        let tell = |at| crate::search::show_progress(&progress, at);
        tokio::select! {
            biased;
            _ = signals.next() => {
                note("Stopped. All is in the store; what is not indexed for the search yet is indexed later.");
                return Err(Failure::silent(signals.exit()));
            }
            done = quipu_host::search::finish_index(&*opened, &tell) => done?,
        }
    }
    if args.watch {
        note("What they write from now on comes in as they write it; Ctrl-C ends that.");
        tokio::select! {
            biased;
            _ = signals.next() => return Err(Failure::silent(signals.exit())),
            failed = follow(&mut importer, &mut watch, &asked) => return failed,
        }
    }
    importer.end()
}

/// Imports what changes, and what comes, for as long as nothing fails that a later try would not mend.
async fn follow(importer: &mut Importer<'_>, watch: &mut Watch, asked: &Asked) -> Result<(), Failure> {
    importer.follows = true;
    loop {
        tokio::time::sleep(Watch::POLL).await;
        let work = match asked {
            // What cannot be read now may be read later.
            Asked::Agent(agent, Some(path)) => {
                vec![(*agent, agent.files(path).map(Kept::from).unwrap_or_default())]
            }
            Asked::Agent(agent, None) => vec![(*agent, agent.detect(&variable))],
            Asked::Exports(path) => Agent::exports(path).unwrap_or_default(),
            Asked::All => all(),
        };
        let files =
            work.into_iter().flat_map(|(agent, kept)| kept.files.into_iter().map(move |file| (agent, file)));
        let due: Vec<(&Agent, PathBuf)> = files.filter(|(agent, file)| watch.is_due(agent, file)).collect();
        if !due.is_empty() {
            importer.import(&due, watch).await?;
        }
    }
}

/// Tells programs of a path that could not be read, as of any file.
fn in_json(path: Option<&Path>, failure: &Failure, args: &ImportArgs) {
    if let Some(path) = path.filter(|_| args.out.json && failure.exit == Exit::Failed) {
        let line = serde_json::json!({ "path": path, "error": failure.message });
        // Who does not listen any more is told by the exit code.
        drop(writeln!(crate::console::stdout(), "{line}"));
    }
}

/// What all agents keep on this machine.
fn all() -> Vec<(&'static Agent, Kept)> {
    let mut work: Vec<_> = AGENTS.iter().map(|agent| (agent, agent.detect(&variable))).collect();
    work.retain(|(_, kept)| !kept.files.is_empty() || !kept.unreadable.is_empty());
    work
}

struct Importer<'a> {
    store: Arc<dyn Graph>,
    sealer: Arc<Sealer>,
    args: &'a ImportArgs,
    /// What was imported before.
    seen: Seen,
    sum: Sum,
    /// Files and directories of which nothing could be taken.
    failures: usize,
    /// Files of which something could not.
    left_out: usize,
    /// Only what is new is told.
    follows: bool,
}

impl Importer<'_> {
    /// Tells of a file or a directory that could not be imported.
    fn failed(&mut self, path: &Path, told: String) -> Result<(), Failure> {
        self.failures += 1;
        if self.args.out.json {
            let line = serde_json::json!({ "path": path, "error": told });
            writeln!(crate::console::stdout(), "{line}")?;
        }
        note(told);
        Ok(())
    }

    /// Whether all could be taken.
    fn end(&self) -> Result<(), Failure> {
        let count = |count: usize, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let failures = count(self.failures, "file or directory", "files or directories")
            .map(|what| format!("{what} could not be imported"));
        let left_out = count(self.left_out, "file", "files")
            .map(|what| format!("something in {what} could not be taken"));
        let told: Vec<String> = failures.into_iter().chain(left_out).collect();
        if told.is_empty() { Ok(()) } else { Err(Failure::failed(told.join("; "))) }
    }

    /// Imports files and tells of each; one that cannot be imported keeps none of the others from it.
    async fn import(&mut self, files: &[(&Agent, PathBuf)], watch: &mut Watch) -> Result<(), Failure> {
        self.seen.catch_up(&*self.store).await?;
        for (agent, file) in files {
            let progress = progress(file);
            let options = ImportOptions { dry_run: self.args.dry_run, progress: &progress };
            match agent.import(&self.store, &self.sealer, file, &self.seen, &options).await {
                Ok(reports) => {
                    watch.imported(file, &reports);
                    self.left_out += usize::from(reports.iter().any(Report::left_out));
                    for report in reports {
                        self.sum.add(&report);
                        if report.added > 0 || !self.follows {
                            tell(&report, self.args)?;
                        }
                    }
                }
                Err(error @ ArchiveError::Store(_)) => return Err(error.into()),
                // It is read again, as after any change.
                Err(ArchiveError::Changed { .. }) if self.follows => {}
                Err(error) => {
                    let advice = match &error {
                        ArchiveError::File { source, .. } => advice(source),
                        _ => "",
                    };
                    self.failed(file, format!("{error}{advice}"))?;
                }
            }
        }
        Ok(())
    }
}

/// What to do about what could not be read.
fn advice(error: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    match error.kind() {
        PermissionDenied => "; let this user read it, and import it again",
        NotFound => "; it was moved or removed, or is a link that leads nowhere",
        _ if error.raw_os_error() == Some(nix::libc::ELOOP) => "; it is a link that leads back to itself",
        _ => "",
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Whose sessions are meant.
enum Asked {
    /// Of all agents, what they keep here.
    All,
    /// Of one, at a path or where it keeps them.
    Agent(&'static Agent, Option<PathBuf>),
    /// Exports, which say themselves whose they are.
    Exports(PathBuf),
}

impl Asked {
    /// What stands first is an agent, or the path of exports.
    fn of(args: &ImportArgs) -> Result<Self, Failure> {
        let Some(name) = &args.agent else { return Ok(Self::All) };
        if let Some(agent) = Agent::named(name) {
            return Ok(Self::Agent(agent, args.path.clone()));
        }
        let path = PathBuf::from(name);
        if args.path.is_some() || !path.exists() {
            let what = format!(
                "`{name}` is no agent whose sessions can be imported, and no file; the agents are {}",
                names()
            );
            return Err(Failure::usage(what));
        }
        Ok(Self::Exports(path))
    }
}

fn names() -> String {
    let names: Vec<&str> = AGENTS.iter().map(|agent| agent.name).collect();
    names.join(", ")
}

/// The exports of a file or a folder, one at least.
fn exports(path: &Path) -> Result<Vec<(&'static Agent, Kept)>, Failure> {
    let work = Agent::exports(path)?;
    if work.is_empty() {
        if let Some(error) = Agent::export_fault(path) {
            return Err(error.into());
        }
        let what = if path.is_dir() { "holds" } else { "is" };
        return Err(Failure::usage(format!(
            "{} {what} no export of an account that is known; name the agent before it, one of {}",
            path.display(),
            names()
        )));
    }
    Ok(work)
}

/// The files that are named, or those that the agent keeps.
fn files_of(agent: &Agent, path: Option<&Path>, args: &ImportArgs) -> Result<Kept, Failure> {
    if let Some(path) = path {
        let found = agent.files(path)?;
        if found.files.is_empty() {
            note(format!("No session file of {} in {}.", agent.name, path.display()));
        }
        return Ok(found.into());
    }
    if !agent.has_place() {
        let what = format!(
            "name the file: `quipu import {} FILE`, a ZIP that you asked the service for",
            agent.name
        );
        return Err(Failure::usage(what));
    }
    let places = agent.places(&variable);
    if places.is_empty() {
        return Err(Failure::usage("HOME is not set; name a file or a directory"));
    }
    if !args.watch && !places.iter().any(|place| place.is_dir()) {
        let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
        let places = places.join(" or ");
        return Err(Failure::usage(format!("there are no sessions in {places}; name a file or a directory")));
    }
    Ok(agent.detect(&variable))
}

/// Shows what is here; whether it shall be imported.
fn shown_and_wanted(work: &[(&Agent, Kept)], args: &ImportArgs) -> Result<bool, Failure> {
    let mut projects: BTreeMap<(&str, String), (u64, u64)> = BTreeMap::new();
    for (agent, kept) in work {
        for file in &kept.files {
            // A file that cannot be read is told when it is imported.
            for found in agent.look(file).unwrap_or_default() {
                let project = found.project.unwrap_or_else(|| "(it does not say)".into());
                let (sessions, bytes) = projects.entry((agent.name, project)).or_default();
                *sessions += found.sessions;
                *bytes += found.bytes;
            }
        }
    }
    if projects.is_empty() {
        let places = AGENTS.iter().flat_map(|agent| agent.places(&variable));
        let places: Vec<String> = places.map(|place| place.display().to_string()).collect();
        note(format!(
            "No sessions of other agents were found in {}; name the agent and a file or a directory.",
            places.join(", ")
        ));
        return Ok(args.watch && args.yes);
    }
    let go = args.yes || args.dry_run;
    if !go || !args.out.json {
        let mut out = crate::console::stdout();
        for ((agent, project), (sessions, bytes)) in &projects {
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
    let sessions: u64 = projects.values().map(|(sessions, _)| sessions).sum();
    if !crate::console::is_typed() {
        note(format!(
            "Nothing was imported. `quipu import --yes` takes in all {sessions}, `quipu import AGENT [PATH]` some."
        ));
        return Ok(false);
    }
    note(format!("Import {sessions} sessions? Their files stay as they are. [y/N]"));
    let mut answer = String::new();
    crate::console::stdin().read_line(&mut answer)?;
    let wanted = ["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str());
    if !wanted {
        note("Nothing was imported.");
    }
    Ok(wanted)
}

/// Tells how far a large file is, for as long as this is kept.
fn progress(file: &Path) -> impl Fn(ImportProgress) + Sync {
    let meter = Meter::new(file);
    move |at: ImportProgress| meter.show(at)
}

/// Whether two names lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    id(one).is_some_and(|id_of_one| Some(id_of_one) == id(other))
}

fn tell(report: &Report, args: &ImportArgs) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    if args.out.json {
        let line = serde_json::to_string(report).map_err(|error| Failure::failed(error.to_string()))?;
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
        format!("{} known before", report.present),
    ];
    for (count, what) in [
        (report.changed, "changed, not taken"),
        (report.repaired, "repaired"),
        (report.lost, "lost"),
        (report.sealed, "with a secret that was sealed"),
        (report.actions, "rows of the log of actions"),
    ] {
        if count > 0 {
            counts.push(format!("{count} {what}"));
        }
    }
    let skipped: u64 = report.skipped.values().sum();
    if skipped > 0 {
        let what = if is_whole { "files hold no conversation" } else { "lines say nothing new" };
        counts.push(format!("{skipped} {what}"));
    }
    if is_whole {
        writeln!(out, "{path}\n    as a whole: {}", counts[2..].join(", "))?;
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
