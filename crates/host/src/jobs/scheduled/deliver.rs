//! Where what came of a job goes.

use std::fmt::Display;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use quipu_providers::net::{LocalRoute, client, describe};
use quipu_store::JobRun;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::work::CUT;
use crate::Home;
use crate::jobs::JobError;
use crate::scheduled_job::{JobTarget, checked_url, host_of};

/// How long a command or a server may take.
const DEADLINE: Duration = Duration::from_secs(60);
/// Characters of a notification.
const SHORT: usize = 300;
/// Bytes that are read of the errors of a command that failed.
const ERROR: u64 = 2_000;

/// How long the rest of a command's errors is waited for once it has ended: a process that it left may hold the pipe.
const REST: Duration = Duration::from_millis(200);

/// Why an answer could not be delivered.
#[derive(Debug)]
pub(super) struct DeliveryError {
    pub(super) error: JobError,
    /// Whether it would fail again.
    pub(super) is_final: bool,
}

impl DeliveryError {
    fn passing(why: impl Display) -> Self {
        Self { error: JobError::new(why), is_final: false }
    }

    fn lasting(why: impl Display) -> Self {
        Self { error: JobError::new(why), is_final: true }
    }
}

/// Delivers the answer of a run to its target.
pub(super) async fn deliver(home: &Home, target: &JobTarget, run: &JobRun) -> Result<(), DeliveryError> {
    let delivered = async {
        match target {
            JobTarget::Nobody | JobTarget::Terminal => Ok(()),
            JobTarget::Desktop => notify(run).await,
            JobTarget::Command(line) => command(home, line, run).await,
            JobTarget::Webhook(url) => post(url, run).await,
        }
    };
    let late = |_| {
        DeliveryError::passing(format!("the {} took longer than {} s", target.word(), DEADLINE.as_secs()))
    };
    tokio::time::timeout(DEADLINE, delivered).await.map_err(late)?
}

fn title(run: &JobRun) -> String {
    match run.state {
        quipu_store::JobRunState::Done => format!("Quipu: {}", run.key),
        state => format!("Quipu: {} ({})", run.key, state.word()),
    }
}

async fn notify(run: &JobRun) -> Result<(), DeliveryError> {
    let (title, text): (String, String) = (title(run), run.text.chars().take(SHORT).collect());
    let helpers = crate::helpers();
    let script = "on run argv\ndisplay notification (item 2 of argv) with title (item 1 of argv)\nend run";
    let command = match helpers.command("notify-send") {
        Some(mut command) => {
            command.args(["--app-name=Quipu", "--", &title, &text]);
            command
        }
        None => match helpers.command("osascript") {
            Some(mut command) => {
                command.args(["-e", script, &title, &text]);
                command
            }
            None => {
                return Err(DeliveryError::lasting(
                    "neither notify-send nor osascript is installed, so there is no desktop notification",
                ));
            }
        },
    };
    run_command(Command::from(command), b"", "the notification").await
}

async fn command(home: &Home, line: &str, run: &JobRun) -> Result<(), DeliveryError> {
    let place = if home.dir.is_dir() { home.dir.as_path() } else { std::path::Path::new("/") };
    let command = crate::helpers().shell(line, place).map_err(DeliveryError::lasting)?;
    let mut command = Command::from(command);
    for name in home.settings().env_keys() {
        command.env_remove(name);
    }
    command.env("QUIPU_JOB", run.key.as_str()).env("QUIPU_JOB_STATE", run.state.word());
    if let Some(session) = &run.session {
        command.env("QUIPU_JOB_SESSION", session.as_str());
    }
    run_command(command, run.text.as_bytes(), "the command").await
}

/// The processes of a command: they end with it, unless it ended well before.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may be gone.
            killpg(group, Signal::SIGKILL).ok();
        }
    }
}

async fn run_command(mut command: Command, input: &[u8], what: &str) -> Result<(), DeliveryError> {
    let failed = |error: std::io::Error| DeliveryError::lasting(format!("{what} could not be run: {error}"));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    let mut child = command.spawn().map_err(failed)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
    let mut group = ProcessGroup(pid);
    let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let give = async {
        if let Some(mut stdin) = stdin {
            // One that does not read may be content all the same.
            drop(stdin.write_all(input).await);
        }
        std::future::pending::<()>().await;
    };
    let mut errors = Vec::new();
    let listen = async {
        if let Some(mut stderr) = stderr {
            drop((&mut stderr).take(ERROR).read_to_end(&mut errors).await);
            // It must not wait for somebody to read.
            drop(tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await);
        }
    };
    let status = {
        let (mut give, mut listen) = (std::pin::pin!(give), std::pin::pin!(listen));
        let mut is_heard = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(failed)?,
                () = &mut listen, if !is_heard => is_heard = true,
                () = &mut give => {}
            }
        };
        if !is_heard {
            // What it left may go on, and holds nothing up.
            drop(tokio::time::timeout(REST, listen).await);
        }
        status
    };
    if status.success() {
        group.0 = None;
        return Ok(());
    }
    let errors = String::from_utf8_lossy(&errors);
    let why = format!("{what} ended with {status}: {}", crate::one_line(errors.trim(), SHORT));
    // There is no such command, or it is none.
    let is_final = matches!(status.code(), Some(126 | 127));
    Err(DeliveryError { error: JobError::new(why), is_final })
}

async fn post(url: &str, run: &JobRun) -> Result<(), DeliveryError> {
    let url = checked_url(url).map_err(DeliveryError::lasting)?;
    let host = host_of(url.as_str());
    let body = json!({
        // The same when it is sent once more.
        "id": format!("{}:{}", run.key, run.due),
        "job": run.key.as_str(),
        "due": run.due,
        "began": run.began,
        "ended": run.ended,
        "state": run.state.word(),
        "session": run.session,
        "cost": run.cost,
        "text": run.text,
        "truncated": run.text.ends_with(CUT),
    });
    // It follows no redirect.
    let client = client(&url, LocalRoute::Direct).map_err(DeliveryError::passing)?;
    let sent = client.post(url).header("content-type", "application/json").body(body.to_string()).send();
    // The error of the client names the whole address.
    let answer = sent.await.map_err(|error| {
        let why = describe(&error.without_url());
        DeliveryError::passing(format!("the webhook at {host} could not be reached: {why}"))
    })?;
    if answer.status().is_success() {
        return Ok(());
    }
    let status = answer.status().as_u16();
    let why = format!("the webhook at {host} answered with status {status}");
    // Too early, too much, or its own fault: that may pass.
    let passes = matches!(status, 408 | 425 | 429 | 500..);
    Err(DeliveryError { error: JobError::new(why), is_final: !passes })
}
