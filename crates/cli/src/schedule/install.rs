//! `quipu schedule install` and `uninstall`: the system runs the jobs.

use std::path::{Path, PathBuf};

use clap::Args;
use quipu_host::schedule_unit::{LABEL, UNIT, UnitError, UnitKind, UnitPlan, UnitRecord};
use quipu_host::{Home, helpers, program_path};

use crate::args::StoreArg;
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
    store: StoreArg,
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
    let home = home(&args.store)?;
    let program = program_path()?;
    let mut words: Vec<PathBuf> = ["schedule", "run", "--once"].map(PathBuf::from).into();
    if home.has_named_store() {
        words.extend([PathBuf::from("--store"), home.store.clone()]);
    }
    let plan = UnitPlan::of(&home, UnitKind::here(), Path::new(&program), &words).map_err(refused)?;
    if plan.is_there() {
        note("It is installed already.");
        say_what_is_missing(&home);
        return start(&plan);
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
    say_what_is_missing(&home);
    start(&plan)
}

/// Variables that jobs need which the timer does not have.
fn say_what_is_missing(home: &Home) {
    let is_set = |name: &String| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut names = home.settings().env_keys();
    names.extend(OF_NETWORK.iter().map(ToString::to_string));
    names.retain(is_set);
    if !names.is_empty() {
        note(format!(
            "The timer does not have these variables of this shell: {}. Jobs that need them fail there; `quipu auth` keeps keys where the timer finds them.",
            names.join(", ")
        ));
    }
}

/// Has the system run them, also where it did so already.
fn start(plan: &UnitPlan) -> Result<(), Failure> {
    match plan.kind {
        UnitKind::Systemd => {
            let timer = format!("{UNIT}.timer");
            let done = system(&["daemon-reload"]).and_then(|()| system(&["enable", "--now", timer.as_str()]));
            match done {
                Ok(()) => note("Jobs run when they are due, while you are logged in."),
                Err(why) => note(format!(
                    "The files are written, but the timer could not be started: {why}. Without systemd, call `quipu schedule run --once` each minute, such as from cron. Else run `systemctl --user enable --now {timer}`."
                )),
            }
        }
        UnitKind::Launchd => match launchctl("load", &plan.files[0].path) {
            Ok(()) => note("Jobs run when they are due, while you are logged in."),
            Err(why) => note(format!("The file is written, but launchd did not take it: {why}.")),
        },
    }
    Ok(())
}

pub(super) async fn uninstall(args: &InstallArgs) -> Result<(), Failure> {
    let home: Home = home(&args.store)?;
    let Some(record) = UnitRecord::read(&home).map_err(refused)? else {
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
