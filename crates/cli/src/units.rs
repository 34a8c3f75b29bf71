//! `install` and `uninstall`: the system runs the jobs, or the server.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use quipu_host::units::{UnitError, UnitKind, UnitPlan, UnitPurpose, UnitRecord};
use quipu_host::{Home, helpers, program_path};

use crate::confirm::confirm;
use crate::exit::Failure;
use crate::print::{Paint, note, printable};

/// What is to be installed or removed.
pub(crate) struct UnitRequest<'a> {
    pub(crate) home: &'a Home,
    pub(crate) purpose: UnitPurpose,
    /// Without a question.
    pub(crate) yes: bool,
    pub(crate) json: bool,
}

/// The word for a file that stays as it is.
const UNCHANGED: &str = "unchanged";

/// Variables that say how servers are reached.
const OF_NETWORK: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"];

fn refused(error: UnitError) -> Failure {
    Failure::failed(error)
}

/// Shows lines of files, as a diff does.
fn show(path: &Path, content: &str, sign: char) {
    let paint = Paint::stderr();
    note(paint.bold(&printable(&path.display().to_string())));
    for line in content.lines() {
        note(format!("{sign} {}", printable(line)));
    }
}

/// Has the system run the program with these words.
pub(crate) fn install(request: &UnitRequest<'_>, mut words: Vec<PathBuf>) -> Result<(), Failure> {
    let home = request.home;
    let program = program_path()?;
    if home.has_named_store() {
        words.extend([PathBuf::from("--store"), home.store.clone()]);
    }
    let plan = UnitPlan::of(home, request.purpose, UnitKind::here(), Path::new(&program), &words)
        .map_err(refused)?;
    let is_there = plan.is_there();
    if is_there {
        if !request.json {
            note("It is installed already.");
        }
        return started(&plan, request, is_there);
    }
    for file in &plan.files {
        if let Ok(found) = std::fs::read_to_string(&file.path) {
            show(&file.path, &found, '-');
        }
        show(&file.path, &file.content, '+');
    }
    if !request.yes {
        confirm("Write these files?", "The files are written", "nothing was written")?;
    }
    plan.write(home).map_err(refused)?;
    started(&plan, request, is_there)
}

/// Variables of this shell that sessions need and the system does not have.
fn missing(home: &Home) -> Vec<String> {
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut names = home.settings().env_keys();
    names.extend(OF_NETWORK.iter().map(ToString::to_string));
    names.retain(is_set);
    names
}

/// Has the system run them, also where it did so already, and says so.
fn started(plan: &UnitPlan, request: &UnitRequest<'_>, is_there: bool) -> Result<(), Failure> {
    let (missing, unit) = (missing(request.home), request.purpose.started());
    let done = match plan.kind {
        UnitKind::Systemd => system(&["daemon-reload"]).and_then(|()| system(&["enable", "--now", unit])),
        UnitKind::Launchd => launchctl("load", &plan.files[0].path),
    };
    if request.json {
        let change = if is_there { UNCHANGED } else { "installed" };
        let files = plan.files.iter().map(|file| &file.path);
        let mut object = object(change, plan.kind, files, done);
        object["missing"] = missing.into();
        return Ok(writeln!(crate::console::stdout(), "{object}")?);
    }
    let (whose, needs, done_words, without) = match request.purpose {
        UnitPurpose::Schedule => (
            "timer",
            "Jobs",
            "Jobs run when they are due, while you are logged in.",
            "Without systemd, call `quipu schedule run --once` each minute, such as from cron.",
        ),
        UnitPurpose::Server => (
            "service",
            "Sessions",
            "The server runs while you are logged in; `loginctl enable-linger` keeps it running.",
            "Without systemd, start `quipu serve` by other means.",
        ),
    };
    if !missing.is_empty() {
        note(format!(
            "The {whose} does not have these variables of this shell: {}. {needs} that need them fail there; `quipu auth` keeps keys where the {whose} finds them.",
            missing.join(", ")
        ));
    }
    match (done, plan.kind) {
        (Ok(()), _) => note(done_words),
        (Err(why), UnitKind::Systemd) => note(format!(
            "The files are written, but the {whose} could not be started: {why}. {without} Else run `systemctl --user enable --now {unit}`."
        )),
        (Err(why), UnitKind::Launchd) => {
            note(format!("The file is written, but launchd did not take it: {why}."));
        }
    }
    Ok(())
}

/// What became of the files, for programs: `error` says why the system did not do its part.
fn object<'a>(
    change: &str,
    kind: UnitKind,
    files: impl Iterator<Item = &'a PathBuf>,
    done: Result<(), Why>,
) -> serde_json::Value {
    let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    serde_json::json!({ "change": change, "kind": kind, "files": files, "error": done.err() })
}

/// Removes what `install` wrote.
pub(crate) fn uninstall(request: &UnitRequest<'_>) -> Result<(), Failure> {
    let (home, purpose) = (request.home, request.purpose);
    let Some(record) = UnitRecord::read(home, purpose).map_err(refused)? else {
        if request.json {
            let object = object(UNCHANGED, UnitKind::here(), std::iter::empty(), Ok(()));
            return Ok(writeln!(crate::console::stdout(), "{object}")?);
        }
        note("Nothing is installed.");
        return Ok(());
    };
    for file in &record.files {
        show(&file.path, &file.content, '-');
    }
    if !request.yes {
        confirm("Remove these files?", "The files are removed", "nothing was removed")?;
    }
    // Before anything is stopped.
    record.check().map_err(refused)?;
    let stopped = match record.kind {
        UnitKind::Systemd => system(&["disable", "--now", purpose.started()]),
        UnitKind::Launchd => match record.files.first() {
            Some(file) => launchctl("unload", &file.path),
            None => Ok(()),
        },
    };
    record.remove(home, purpose).map_err(refused)?;
    if request.json {
        let files = record.files.iter().map(|file| &file.path);
        let object = object("removed", record.kind, files, stopped);
        if record.kind == UnitKind::Systemd {
            drop(system(&["daemon-reload"]));
        }
        return Ok(writeln!(crate::console::stdout(), "{object}")?);
    }
    match (stopped, record.kind) {
        (Ok(()), UnitKind::Systemd) => drop(system(&["daemon-reload"])),
        (Ok(()), UnitKind::Launchd) => {}
        (Err(why), UnitKind::Systemd) => {
            let unit = purpose.started();
            note(format!("The files are removed; {unit} could not be stopped: {why}."));
        }
        (Err(why), UnitKind::Launchd) => {
            note(format!("The file is removed; launchd still has {}: {why}.", purpose.label()));
        }
    }
    note("Removed.");
    Ok(())
}

/// Why a program could not do it.
type Why = String;

fn system(words: &[&str]) -> Result<(), Why> {
    let mut command = helpers().command("systemctl").ok_or("`systemctl` is not installed")?;
    command.arg("--user").args(words);
    ended(command)
}

fn launchctl(verb: &str, path: &Path) -> Result<(), Why> {
    let mut command = helpers().command("launchctl").ok_or("`launchctl` is not installed")?;
    command.arg(verb).arg("-w").arg(path);
    ended(command)
}

fn ended(mut command: std::process::Command) -> Result<(), Why> {
    let done = command.stdin(std::process::Stdio::null()).output().map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(crate::print::one_line(said.trim(), 200))
}
