//! `quipu schedule install` and `uninstall`: the system runs the jobs.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use quipu_host::schedule_unit::{LABEL, UNIT, UnitError, UnitKind, UnitPlan, UnitRecord};
use quipu_host::{Home, helpers, program_path};

use crate::args::OutArgs;
use crate::confirm::confirm;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, note, printable};

#[derive(Debug, Args)]
pub(super) struct InstallArgs {
    /// Do it without asking.
    #[arg(long, short = 'y')]
    yes: bool,
    #[command(flatten)]
    out: OutArgs,
}

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

pub(super) async fn install(args: &InstallArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let program = program_path()?;
    let mut words: Vec<PathBuf> = ["schedule", "run", "--once"].map(PathBuf::from).into();
    if home.has_named_store() {
        words.extend([PathBuf::from("--store"), home.store.clone()]);
    }
    let plan = UnitPlan::of(&home, UnitKind::here(), Path::new(&program), &words).map_err(refused)?;
    let is_there = plan.is_there();
    if is_there {
        if !args.out.json {
            note("It is installed already.");
        }
        return started(&plan, &home, is_there, args.out.json);
    }
    for file in &plan.files {
        if let Ok(found) = std::fs::read_to_string(&file.path) {
            show(&file.path, &found, '-');
        }
        show(&file.path, &file.content, '+');
    }
    if !args.yes {
        confirm("Write these files?", "The files are written", "nothing was written")?;
    }
    plan.write(&home).map_err(refused)?;
    started(&plan, &home, is_there, args.out.json)
}

/// Variables of this shell that jobs need and the timer does not have.
fn missing(home: &Home) -> Vec<String> {
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut names = home.settings().env_keys();
    names.extend(OF_NETWORK.iter().map(ToString::to_string));
    names.retain(is_set);
    names
}

/// Has the system run them, also where it did so already, and says so.
fn started(plan: &UnitPlan, home: &Home, is_there: bool, is_json: bool) -> Result<(), Failure> {
    let (missing, timer) = (missing(home), format!("{UNIT}.timer"));
    let done = match plan.kind {
        UnitKind::Systemd => {
            system(&["daemon-reload"]).and_then(|()| system(&["enable", "--now", timer.as_str()]))
        }
        UnitKind::Launchd => launchctl("load", &plan.files[0].path),
    };
    if is_json {
        let change = if is_there { super::UNCHANGED } else { "installed" };
        let files = plan.files.iter().map(|file| &file.path);
        let mut object = object(change, plan.kind, files, done);
        object["missing"] = missing.into();
        return Ok(writeln!(crate::console::stdout(), "{object}")?);
    }
    if !missing.is_empty() {
        note(format!(
            "The timer does not have these variables of this shell: {}. Jobs that need them fail there; `quipu auth` keeps keys where the timer finds them.",
            missing.join(", ")
        ));
    }
    match (done, plan.kind) {
        (Ok(()), _) => note("Jobs run when they are due, while you are logged in."),
        (Err(why), UnitKind::Systemd) => note(format!(
            "The files are written, but the timer could not be started: {why}. Without systemd, call `quipu schedule run --once` each minute, such as from cron. Else run `systemctl --user enable --now {timer}`."
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

pub(super) async fn uninstall(args: &InstallArgs) -> Result<(), Failure> {
    let home: Home = home(&args.out.store)?;
    let Some(record) = UnitRecord::read(&home).map_err(refused)? else {
        if args.out.json {
            let object = object(super::UNCHANGED, UnitKind::here(), std::iter::empty(), Ok(()));
            return Ok(writeln!(crate::console::stdout(), "{object}")?);
        }
        note("Nothing is installed.");
        return Ok(());
    };
    for file in &record.files {
        show(&file.path, &file.content, '-');
    }
    if !args.yes {
        confirm("Remove these files?", "The files are removed", "nothing was removed")?;
    }
    // Before the timer is stopped.
    record.check().map_err(refused)?;
    let timer = format!("{UNIT}.timer");
    let stopped = match record.kind {
        UnitKind::Systemd => system(&["disable", "--now", timer.as_str()]),
        UnitKind::Launchd => match record.files.first() {
            Some(file) => launchctl("unload", &file.path),
            None => Ok(()),
        },
    };
    record.remove(&home).map_err(refused)?;
    if args.out.json {
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
            note(format!("The files are removed; the timer could not be stopped: {why}."));
        }
        (Err(why), UnitKind::Launchd) => {
            note(format!("The file is removed; launchd still has {LABEL}: {why}."));
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
