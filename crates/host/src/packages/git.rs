//! Packages of Git repositories: one commit, fetched by the program `git` and read as an archive, so that nothing is checked out.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::archive::unpack;
use super::tree::TreeWriter;

/// How long a step may take.
const PATIENCE: Duration = Duration::from_secs(180);
/// Bytes of the archive, of the repository and of messages at most.
const MOST_ARCHIVE: u64 = 64 << 20;
const MOST_MESSAGE: u64 = 16 << 10;
/// What Git may not do here: run programs that a repository or an address names, or go into other repositories.
const SAFE: &[&str] = &[
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.symlinks=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "fetch.fsckObjects=true",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Fetches one commit and writes its files. Gives its id. `work` is an empty directory of ours.
pub(super) async fn fetch(
    address: &str,
    reference: Option<&str>,
    work: &Path,
    writer: &mut TreeWriter,
) -> Result<String, String> {
    let git_dir = work.join("repository.git");
    let at = |args: &[&str]| {
        let mut command = git(work);
        command.arg("--git-dir").arg(&git_dir).args(args);
        command
    };
    let mut init = git(work);
    init.args(["init", "--quiet", "--bare", "--template="]).arg(&git_dir);
    run(init, MOST_MESSAGE).await?;
    let wanted = reference.unwrap_or("HEAD");
    let fetch = [
        "fetch",
        "--quiet",
        "--depth=1",
        "--no-tags",
        "--no-recurse-submodules",
        "--no-write-fetch-head",
        "--",
        address,
    ];
    let target = format!("{wanted}:refs/package");
    let mut command = at(&fetch);
    command.arg(&target);
    run(command, MOST_MESSAGE).await?;
    let commit = run(at(&["rev-parse", "--verify", "refs/package^{commit}"]), MOST_MESSAGE).await?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let mut archive = at(&["archive", "--format=tar", &commit]);
    // Filters of the user's configuration would change files, and run programs for it.
    archive.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
    let archive = run(archive, MOST_ARCHIVE).await?;
    unpack(&archive[..], 0, writer)?;
    Ok(commit)
}

fn git(work: &Path) -> Command {
    let mut command = Command::new("git");
    for (name, _) in std::env::vars_os() {
        // They would lead it into another repository, or give it a configuration.
        let is_of_git = name.as_encoded_bytes().starts_with(b"GIT_");
        let stays = ["GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH", "GIT_ASKPASS"];
        if is_of_git && !stays.iter().any(|known| name == OsStr::new(known)) {
            command.env_remove(name);
        }
    }
    if std::env::var_os("GIT_SSH_COMMAND").is_none() && std::env::var_os("GIT_SSH").is_none() {
        command.env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
    }
    command
        .env("GIT_ALLOW_PROTOCOL", "https:http:ssh:file")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_LFS_SKIP_SMUDGE", "1")
        .env("LC_ALL", "C")
        .current_dir(work)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    for setting in SAFE {
        command.args(["-c", setting]);
    }
    command
}

/// What a command prints, of which there is at most so much.
async fn run(mut command: Command, most: u64) -> Result<Vec<u8>, String> {
    let mut child = command
        .spawn()
        .map_err(|error| format!("the program `git` cannot be started: {error}; install Git"))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut out, mut said) = (Vec::new(), Vec::new());
    let work = async {
        let output = async {
            match stdout {
                Some(stdout) => stdout.take(most + 1).read_to_end(&mut out).await.map(drop),
                None => Ok(()),
            }
        };
        let complaints = async {
            match stderr {
                // It ends when the reader is gone, which is as good.
                Some(stderr) => stderr.take(MOST_MESSAGE).read_to_end(&mut said).await.map(drop),
                None => Ok(()),
            }
        };
        tokio::try_join!(output, complaints)?;
        child.wait().await
    };
    let ended = tokio::time::timeout(PATIENCE, work).await;
    let status = match ended {
        Ok(status) => status.map_err(|error| format!("git: {error}"))?,
        Err(_) => return Err(format!("git did not finish within {} s", PATIENCE.as_secs())),
    };
    if out.len() as u64 > most {
        return Err(format!("git printed more than {} MiB", MOST_ARCHIVE >> 20));
    }
    if status.success() {
        return Ok(out);
    }
    let said = String::from_utf8_lossy(&said);
    let last = said.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    let last: String = last.chars().filter(|letter| !letter.is_control()).take(300).collect();
    Err(format!("git failed: {last}"))
}
