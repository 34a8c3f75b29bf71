//! `quipu doctor`: is this machine healthy. Exit 0 unless something is broken; a missing key is not.

use std::io::Write as _;

use quipu_store::Upkeep as _;
use serde::Serialize;

use crate::args::DoctorArgs;
use crate::exit::{Exit, Failure};
use crate::print::{Paint, printable};
use crate::setup::{Place, env};

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
    let place = Place::find(&args.store)?;
    let mut found = vec![version(), shell(), home(&place)];
    found.extend(store(&place).await);
    found.push(credentials(&place));
    found.push(permissions(&place));
    let bad = found.iter().filter(|finding| finding.state == State::Bad).count();
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.json {
        writeln!(out, "{}", serde_json::json!({ "healthy": bad == 0, "findings": found }))?;
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
    let path = env("PATH").unwrap_or_default();
    let on_path =
        |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file());
    let bash = Some(std::path::PathBuf::from("/bin/bash")).filter(|bash| bash.is_file());
    match bash.or_else(|| on_path("bash")).or_else(|| on_path("sh")) {
        Some(shell) => Finding { what: "shell", state: State::Good, detail: shell.display().to_string() },
        None => {
            Finding { what: "shell", state: State::Bad, detail: "neither bash nor sh is on the PATH".into() }
        }
    }
}

fn home(place: &Place) -> Finding {
    use std::os::unix::fs::MetadataExt as _;
    let shown = place.home.display();
    let (state, detail) = match std::fs::metadata(&place.home) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            (State::Good, format!("{shown} (not there yet; made when first needed)"))
        }
        Err(error) => (State::Bad, format!("{shown} cannot be used: {error}")),
        Ok(meta) if !meta.is_dir() => {
            (State::Bad, format!("{shown} is not a directory; set QUIPU_HOME to another"))
        }
        Ok(meta) if meta.mode() & 0o077 != 0 => (
            State::Note,
            format!("{shown} can be read by others (mode {:o}); chmod 700 it", meta.mode() & 0o777),
        ),
        Ok(_) => (State::Good, shown.to_string()),
    };
    Finding { what: "home", state, detail }
}

async fn store(place: &Place) -> Vec<Finding> {
    let bad = |detail: String| vec![Finding { what: "store", state: State::Bad, detail }];
    let store = match place.existing_store().await {
        Ok(Some(store)) => store,
        Ok(None) => {
            let detail = format!("{} (not there yet)", place.store.display());
            return vec![Finding { what: "store", state: State::Good, detail }];
        }
        Err(error) => return bad(error.message),
    };
    let report = match store.check().await {
        Ok(report) => report,
        Err(error) => return bad(error.to_string()),
    };
    let detail = format!(
        "{}: {} sessions, {} nodes, {} blobs, {} KiB; {} open steps, {} waiting messages",
        place.store.display(),
        report.sessions,
        report.nodes,
        report.blobs,
        report.file_bytes / 1024,
        report.open_steps,
        report.inbox
    );
    let state = if report.problem_count == 0 { State::Good } else { State::Bad };
    let mut found = vec![Finding { what: "store", state, detail }];
    if report.unverifiable > 0 {
        let detail = format!("{} nodes of another program whose ids cannot be checked", report.unverifiable);
        found.push(Finding { what: "store", state: State::Note, detail });
    }
    if store.is_read_only() {
        let detail = "it is read-only: reading works, a task cannot be recorded".into();
        found.push(Finding { what: "store", state: State::Note, detail });
    }
    for problem in &report.problems {
        found.push(Finding { what: "store", state: State::Bad, detail: problem.what.clone() });
    }
    let more = report.problem_count.saturating_sub(report.problems.len() as u64);
    if more > 0 {
        found.push(Finding { what: "store", state: State::Bad, detail: format!("and {more} more problems") });
    }
    found
}

fn permissions(place: &Place) -> Finding {
    let (state, detail) = match crate::permissions::state_here(place) {
        Ok((true, detail)) => (State::Good, detail),
        Ok((false, detail)) => (State::Note, detail),
        Err(failure) if failure.exit == Exit::Usage => (State::Note, failure.message),
        Err(failure) => (State::Bad, failure.message),
    };
    Finding { what: "permissions", state, detail }
}

fn credentials(place: &Place) -> Finding {
    let settings = place.settings();
    let known: Vec<&str> = settings
        .providers()
        .into_iter()
        .filter(|provider| settings.credential_source(provider).is_some())
        .collect();
    let (state, detail) = if known.is_empty() {
        (State::Note, "none known; `quipu auth set PROVIDER` adds one, `quipu demo` needs none".to_owned())
    } else {
        (State::Good, known.join(", "))
    };
    Finding { what: "credentials", state, detail }
}
