//! `quipu doctor`: is this machine healthy. Exit 0 unless something is broken; a missing key is not.

mod caches;
mod containers;
mod content;
mod mcp;
mod outputs;
mod setup;

use std::io::Write as _;

use quipu_store::{
    DerivedTables, ProblemKind, RebuildBacklog, RebuildStart, Report, Salvage, StoreError, Upkeep as _,
};
use serde::Serialize;

use crate::args::{DoctorArgs, RebuildArg};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::print::{Paint, Progress, counted, dollars, printable};
use quipu_host::Budget;
use quipu_host::Home;

/// Free bytes of the store that are worth a word.
const FREE: u64 = 1 << 20;

#[derive(Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    detail: String,
}

#[derive(Serialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    Note,
    Bad,
}

pub(crate) async fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let mut found = vec![version(), shell(), home_directory(&home)];
    if args.repair {
        found.extend(repair(&home).await);
    }
    if let Some(what) = args.rebuild {
        found.push(match rebuild(&home, what).await {
            Ok((state, detail)) => Finding { what: "rebuild", state, detail },
            Err(error) => Finding { what: "rebuild", state: State::Bad, detail: why(error) },
        });
    }
    if args.prune {
        found.push(match prune(&home).await {
            Ok((state, detail)) => Finding { what: "prune", state, detail },
            Err(error) => Finding { what: "prune", state: State::Bad, detail: why(error) },
        });
    }
    if args.shrink {
        found.push(match shrink(&home).await {
            Ok((state, detail)) => Finding { what: "shrink", state, detail },
            Err(error) => Finding { what: "shrink", state: State::Bad, detail: why(error) },
        });
    }
    if args.drop_outputs {
        found.push(match outputs::drop_unowned(&home).await {
            Ok((state, detail)) => Finding { what: "drop", state, detail },
            Err(failure) => Finding { what: "drop", state: State::Bad, detail: failure.message },
        });
    }
    if args.drop_caches {
        found.push(match caches::drop_unused(&home).await {
            Ok((state, detail)) => Finding { what: "drop", state, detail },
            Err(failure) => Finding { what: "drop", state: State::Bad, detail: failure.message },
        });
    }
    found.extend(store(&home).await);
    found.push(outputs::finding(&home).await);
    found.extend(caches::finding(&home).await);
    let held = content::bytes(&home).await;
    found.extend(content::findings(&home, &held).await);
    found.extend(settings(&home));
    found.extend(mcp::findings(&home));
    found.extend(setup::findings(&home));
    found.push(credentials(&home));
    found.push(permissions(&home));
    // Behind the permissions: what commands can write to is known then, and no program is taken from there.
    found.extend(containers::findings(&home).await);
    found.push(budget(&home).await);
    found.extend(agent_budgets(&home).await);
    let bad = found.iter().filter(|finding| finding.state == State::Bad).count();
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        writeln!(out, "{}", serde_json::json!({ "healthy": bad == 0, "findings": found, "holders": held }))?;
    } else {
        let paint = Paint::stdout();
        for Finding { what, state, detail } in &found {
            let mark = match state {
                State::Good => paint.cyan("ok  "),
                State::Note => paint.dim("note"),
                State::Bad => paint.red("BAD "),
            };
            writeln!(out, "{mark}  {what:<12} {}", printable(detail))?;
        }
    }
    out.flush()?;
    if bad == 0 { Ok(()) } else { Err(Failure::silent(Exit::Store)) }
}

fn version() -> Finding {
    let detail =
        format!("quipu {} on {} {}", env!("CARGO_PKG_VERSION"), std::env::consts::OS, std::env::consts::ARCH);
    Finding { what: "version", state: State::Good, detail }
}

fn shell() -> Finding {
    match quipu_host::command_shell() {
        Some(shell) => Finding { what: "shell", state: State::Good, detail: shell.display().to_string() },
        None => Finding {
            what: "shell",
            state: State::Bad,
            detail: "no bash or sh in a directory that commands cannot write to; install one".into(),
        },
    }
}

fn home_directory(home: &Home) -> Finding {
    use std::os::unix::fs::MetadataExt as _;
    let shown = home.dir.display();
    let (state, detail) = match std::fs::metadata(&home.dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (State::Good, format!("{shown} (does not exist yet; created when first needed)"))
        }
        Err(error) => (State::Bad, format!("{shown} cannot be used: {error}")),
        Ok(meta) if !meta.is_dir() => {
            (State::Bad, format!("{shown} is not a directory; set QUIPU_HOME to a directory"))
        }
        Ok(meta) if meta.mode() & 0o077 != 0 => (
            State::Note,
            format!("other users can read {shown} (mode {:o}); run `chmod 700` on it", meta.mode() & 0o777),
        ),
        Ok(_) => (State::Good, shown.to_string()),
    };
    Finding { what: "home", state, detail }
}

fn is_absent(home: &Home) -> bool {
    std::fs::symlink_metadata(&home.store).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound)
}

/// Whether a problem is only what a repair told that it could not bring back.
fn is_known_loss(report: &Report, problem: ProblemKind) -> bool {
    let lost = match problem {
        ProblemKind::Parent | ProblemKind::Part | ProblemKind::Ref | ProblemKind::Orphan => true,
        ProblemKind::File
        | ProblemKind::Blob
        | ProblemKind::Chunk
        | ProblemKind::Node
        | ProblemKind::Derived => false,
    };
    lost && report.salvaged.is_some()
}

fn is_sound(report: &Report) -> bool {
    report.problems.iter().all(|problem| is_known_loss(report, problem.kind))
}

/// Puts a store made of what can be read in the place of a damaged one.
async fn repair(home: &Home) -> Vec<Finding> {
    let finding = |state, detail: String| vec![Finding { what: "repair", state, detail }];
    if is_absent(home) {
        return finding(State::Note, format!("{} does not exist", home.store.display()));
    }
    match home.open(&quipu_store::OpenOptions::default()) {
        Ok(store) => match store.check().await {
            Ok(report) if is_sound(&report) => {
                return finding(State::Good, "the store is not damaged; nothing was changed".into());
            }
            Ok(report) if report.problems.iter().all(|problem| problem.kind == ProblemKind::Derived) => {
                return match store.rebuild().await {
                    Ok(()) => finding(State::Good, "the index was rebuilt; nothing is lost".into()),
                    Err(error) => finding(State::Bad, why(error)),
                };
            }
            Ok(_) | Err(StoreError::Corrupt { .. }) => {}
            Err(error) => return finding(State::Bad, why(error)),
        },
        // A header can be so damaged that nothing shows what the file was.
        Err(StoreError::Corrupt { .. } | StoreError::NotAStore { .. }) => {}
        Err(error) => return finding(State::Bad, why(error)),
    }
    match quipu_store::salvage(&home.store) {
        Ok(done) => {
            let lines = repaired(home, &done).into_iter();
            lines.map(|detail| Finding { what: "repair", state: State::Note, detail }).collect()
        }
        Err(error) => finding(State::Bad, format!("not repaired, and nothing was changed: {error}")),
    }
}

/// Makes derived tables anew and tells how far it is. Ended by Ctrl-C, it goes on from there the next time.
async fn rebuild(home: &Home, what: RebuildArg) -> Result<(State, String), StoreError> {
    if is_absent(home) {
        return Ok((State::Note, format!("{} does not exist", home.store.display())));
    }
    let store = home.open(&quipu_store::OpenOptions::default())?;
    let (derived, name) = match what {
        RebuildArg::Search => (DerivedTables::Search, "the search indexes"),
        RebuildArg::All => (DerivedTables::All, "all tables that are derived from the graph"),
    };
    let begun = store.begin_rebuild(derived).await?;
    let progress = Progress::new();
    let mut first: Option<RebuildBacklog> = None;
    loop {
        let left = store.continue_rebuild().await?;
        if left == RebuildBacklog::default() {
            break;
        }
        let all = *first.get_or_insert(left);
        let done = |left: u64, all: u64| 100 - (100 * left).checked_div(all).unwrap_or(0).min(100);
        progress.show(&format!(
            "rebuilding: sessions {} %, activity {} %, words {} %, parts of words {} %",
            done(left.graph, all.graph),
            done(left.activity, all.activity),
            done(left.words, all.words),
            done(left.substrings, all.substrings)
        ));
    }
    drop(progress);
    let how = match begun {
        RebuildStart::Anew => "were rebuilt",
        RebuildStart::Resumed => "were rebuilt, continuing an earlier rebuild",
    };
    Ok((State::Good, format!("{name} {how}")))
}

/// Drops old states of files.
async fn prune(home: &Home) -> Result<(State, String), StoreError> {
    if is_absent(home) {
        return Ok((State::Note, format!("{} does not exist", home.store.display())));
    }
    let store = home.open(&quipu_store::OpenOptions::default())?;
    let most = home.config().files.store_bytes;
    let progress = crate::print::Progress::new();
    let done = store.drop_files(most, &move |at| crate::home::show_dropping(&progress, at)).await?;
    let detail = crate::home::dropped(&done);
    Ok(match done.left <= most {
        true => (State::Good, detail),
        false => {
            let why = "the newest changes of sessions need the rest";
            (
                State::Note,
                format!("{detail}; more than files.storeBytes ({} KiB): {why}", most.div_ceil(1024)),
            )
        }
    })
}

/// Gives back what is free in the file of the store.
async fn shrink(home: &Home) -> Result<(State, String), StoreError> {
    if is_absent(home) {
        return Ok((State::Note, format!("{} does not exist", home.store.display())));
    }
    let store = home.open(&quipu_store::OpenOptions::default())?;
    let smaller = store.shrink().await?;
    Ok((State::Good, format!("the store file is {} KiB smaller", smaller / 1024)))
}

/// What happened, where the damaged file is, and what was lost.
fn repaired(home: &Home, done: &Salvage) -> Vec<String> {
    let report = &done.report;
    let mut lines = vec![
        format!(
            "{} was damaged; the damaged file is kept as {}",
            home.store.display(),
            done.damaged.display()
        ),
        format!(
            "copied into a new store: {}, {}, {}, {}, {}, {}, {}",
            counted(report.nodes, "node"),
            counted(report.blobs, "blob"),
            counted(report.chunks, "chunk"),
            counted(report.refs, "ref"),
            counted(report.sessions, "session"),
            counted(report.open_steps, "open step"),
            counted(report.inbox, "waiting message")
        ),
    ];
    let list = |names: &[String]| names.join(", ");
    let mut lost = Vec::new();
    if done.skipped > 0 {
        lost.push(format!("{} rows that are unreadable or do not match their hashes", done.skipped));
    }
    if done.lost_nodes > 0 {
        lost.push(format!("{} in the middle of the graph", counted(done.lost_nodes, "node")));
    }
    let missing = report.problem_count;
    if missing > 0 {
        lost.push(format!("{missing} parents or parts of the remaining nodes; they are listed below"));
    }
    if !done.moved_back.is_empty() {
        lost.push(format!("the newest steps of {}, which now end at earlier nodes", list(&done.moved_back)));
    }
    if !done.lost_refs.is_empty() {
        lost.push(format!("every node of {}", list(&done.lost_refs)));
    }
    if done.lost_open {
        lost.push("some or all waiting messages and open steps".to_owned());
    }
    if done.lost_wal {
        lost.push("the write-ahead log, so the last steps may be missing".to_owned());
    }
    if lost.is_empty() {
        lines.push(
            "nothing that could be read is lost; if the file was truncated, its end may have held more"
                .into(),
        );
    } else {
        lines.extend(lost.into_iter().map(|what| format!("lost: {what}")));
    }
    lines
}

/// What is wrong with the store, and what to do.
fn why(error: StoreError) -> String {
    Failure::from(error).message
}

async fn store(home: &Home) -> Vec<Finding> {
    let bad = |detail: String| vec![Finding { what: "store", state: State::Bad, detail }];
    if is_absent(home) {
        let detail = format!("{} (does not exist yet)", home.store.display());
        return vec![Finding { what: "store", state: State::Good, detail }];
    }
    let store = match home.open(&quipu_store::OpenOptions::default()) {
        Ok(store) => store,
        Err(error) => return bad(why(error)),
    };
    let report = match store.check().await {
        Ok(report) => report,
        Err(error) => return bad(why(error)),
    };
    let mut detail = format!(
        "{}: {}, {}, {}, {} KiB; {}, {}",
        home.store.display(),
        counted(report.sessions, "session"),
        counted(report.nodes, "node"),
        counted(report.blobs, "blob"),
        report.file_bytes / 1024,
        counted(report.open_steps, "open step"),
        counted(report.inbox, "waiting message")
    );
    if report.free_bytes >= FREE && report.free_bytes >= report.file_bytes / 4 {
        detail.push_str(&format!(
            "; {} KiB are free and reused before the file grows: `quipu doctor --shrink` returns them to the disk",
            report.free_bytes / 1024
        ));
    }
    let state = if is_sound(&report) { State::Good } else { State::Bad };
    let mut found = vec![Finding { what: "store", state, detail }];
    let most = home.config().files.store_bytes;
    let mut detail = format!(
        "{} saved states of files that tools changed, {} KiB of the store (at most {} KiB: files.storeBytes)",
        report.file_states,
        report.file_state_bytes.div_ceil(1024),
        most.div_ceil(1024)
    );
    if report.dropped_files.states > 0 {
        let (states, bytes) = (report.dropped_files.states, report.dropped_files.bytes.div_ceil(1024));
        detail.push_str(&format!("; {states} older ones, {bytes} KiB, were dropped"));
    }
    let state = if report.file_state_bytes > most { State::Note } else { State::Good };
    if state == State::Note {
        detail.push_str("; `quipu doctor --prune` drops the oldest");
    }
    found.push(Finding { what: "files", state, detail });
    if let Some(detail) = home.on_a_network() {
        found.push(Finding { what: "store", state: State::Note, detail });
    }
    if report.unverifiable > 0 {
        let detail = format!(
            "ids that cannot be verified: {} of other programs",
            counted(report.unverifiable, "node")
        );
        found.push(Finding { what: "store", state: State::Note, detail });
    }
    if store.is_read_only() {
        let detail = match store.refusal() {
            Some(why @ StoreError::Full { .. }) => {
                format!("it can be read, but a task cannot be recorded: {why}")
            }
            _ => "it is read-only: it can be read, but a task cannot be recorded".into(),
        };
        found.push(Finding { what: "store", state: State::Note, detail });
    }
    for problem in &report.problems {
        let state = if is_known_loss(&report, problem.kind) { State::Note } else { State::Bad };
        found.push(Finding { what: "store", state, detail: problem.what.clone() });
    }
    let more = report.problem_count.saturating_sub(report.problems.len() as u64);
    if more > 0 {
        found.push(Finding { what: "store", state, detail: format!("and {more} more problems") });
    }
    found
}

fn permissions(home: &Home) -> Finding {
    let (state, detail) = match quipu_host::permissions_here(home) {
        Ok((true, detail)) => (State::Good, detail),
        Ok((false, detail)) => (State::Note, detail),
        Err(failure) if failure.kind == quipu_host::FailureKind::Request => (State::Note, failure.message),
        Err(failure) => (State::Bad, failure.message),
    };
    Finding { what: "permissions", state, detail }
}

/// What was spent today, and what may be.
async fn budget(home: &Home) -> Finding {
    let finding = |state, detail| Finding { what: "budget", state, detail };
    let limit = match quipu_host::budget_of(home, None) {
        Ok(limit) => limit,
        Err(failure) => return finding(State::Bad, failure.message),
    };
    let (counted, assumed) = if is_absent(home) {
        (0.0, 0.0)
    } else {
        let store = home.open(&quipu_store::OpenOptions::default());
        match async { quipu_host::spent_today(&store?).await }.await {
            Ok(spent) => spent,
            Err(error) => return finding(State::Note, format!("today's spending is unknown: {error}")),
        }
    };
    let spent = counted + assumed;
    let mut spent_text = format!("{} spent today", dollars(counted));
    if assumed > 0.0 {
        let assumed = dollars(assumed);
        spent_text.push_str(&format!(", plus {assumed} reserved for calls whose cost no session records"));
    }
    match limit {
        None => finding(
            State::Good,
            format!("{spent_text}; no daily limit (`budget.daily` in the settings sets one)"),
        ),
        Some(budget @ Budget { dollars: limit, .. }) => {
            let source = crate::home::source(&budget);
            let comma = if assumed > 0.0 { "," } else { "" };
            let detail = format!("{spent_text}{comma} of {} ({source})", dollars(limit));
            if spent < limit {
                finding(State::Good, detail)
            } else {
                finding(State::Note, format!("{detail}; Quipu calls no model before tomorrow"))
            }
        }
    }
}

/// What agents with a budget used of it today.
async fn agent_budgets(home: &Home) -> Vec<Finding> {
    let finding = |state, detail| Finding { what: "agent budget", state, detail };
    let budgets = quipu_host::agent_budgets(home);
    let store = match is_absent(home) {
        false if !budgets.is_empty() => home.open(&quipu_store::OpenOptions::default()).map(Some),
        _ => Ok(None),
    };
    let store = match store {
        Ok(store) => store,
        Err(error) => return vec![finding(State::Note, format!("today's spending is unknown: {error}"))],
    };
    let mut found = Vec::new();
    for budget in budgets {
        let used = match &store {
            Some(store) => quipu::account_use(store, &quipu::SystemClock, &budget).await,
            None => Ok(quipu::AccountUse::default()),
        };
        found.push(match used {
            Ok(used) => {
                let is_over = budget.dollars.is_some_and(|most| used.dollars >= most)
                    || budget.tokens.is_some_and(|most| used.tokens >= most);
                let text =
                    format!("`{}`: {} used today", budget.name, crate::schedule::shares(&budget, used));
                match is_over {
                    true if budget.dollars == Some(0.0) || budget.tokens == Some(0) => {
                        finding(State::Note, format!("{text}; it may call no model"))
                    }
                    true => finding(State::Note, format!("{text}; it calls no model before tomorrow")),
                    false => finding(State::Good, text),
                }
            }
            Err(error) => {
                finding(State::Note, format!("`{}`: today's spending is unknown: {error}", budget.name))
            }
        });
    }
    found
}

/// What is wrong with the files of settings and models.
fn settings(home: &Home) -> Vec<Finding> {
    let finding = |what, state, detail| Finding { what, state, detail };
    let config = match crate::console::current_dir() {
        Ok(here) => home.config_in(&here),
        Err(_) => home.config(),
    };
    let wrong = config.problems.iter().map(|problem| {
        let detail = match problem.kind {
            quipu_host::ProblemKind::Untrusted => {
                format!("{problem}; `quipu config trust` shows and accepts them")
            }
            _ => problem.to_string(),
        };
        finding("settings", State::Note, detail)
    });
    let mut found: Vec<Finding> = wrong.collect();
    if found.is_empty() {
        let set = config.rows().filter(|row| *row.source != quipu_host::Source::BuiltIn).count();
        found.push(finding("settings", State::Good, format!("{set} set; `quipu config` lists them all")));
    }
    let models = home.model_problems().into_iter();
    found.extend(models.map(|problem| finding("models", State::Note, problem)));
    found
}

fn credentials(home: &Home) -> Finding {
    let settings = home.settings();
    let known: Vec<&str> = settings
        .providers()
        .into_iter()
        .filter(|provider| settings.credential_source(provider).is_some())
        .collect();
    let (state, detail) = if known.is_empty() {
        (State::Note, "none found; `quipu auth set PROVIDER` adds one, `quipu demo` needs none".to_owned())
    } else {
        (State::Good, known.join(", "))
    };
    Finding { what: "credentials", state, detail }
}
