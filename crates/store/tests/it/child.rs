//! What this binary does as a child process of its own tests: named by a variable, run by the one test here.

use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quipu_protocol::{NodeId, SessionId};
use quipu_store::{RefMove, RefName, Store};

use crate::support::*;

const ROLE: &str = "QUIPU_STORE_CHILD";

/// A user with no rights of its own, for tests that the administrator would pass without meaning.
pub(crate) const NOBODY: u32 = 65534;

/// A command that runs this binary as `role` on the store at `path`.
pub(crate) fn command(role: &str, path: &Path) -> Command {
    command_of(&std::env::current_exe().unwrap(), role, path)
}

fn command_of(program: &Path, role: &str, path: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "child::child", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env("QUIPU_STORE_PATH", path);
    command.stdin(Stdio::null());
    command
}

/// Runs this binary as `role` in a new directory, without the administrator's rights; `limit` is the largest
/// file it may write, in KiB.
pub(crate) fn run_unprivileged(role: &str, limit: Option<u32>) {
    let dir = tempfile::tempdir().unwrap();
    let exe = std::env::current_exe().unwrap();
    // Ignoring the signal is inherited; SQLite then sees an error instead.
    let shell = limit.map(|kib| format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2));
    let mut command = match &shell {
        None => command(role, &dir.path().join("quipu.db")),
        Some(shell) => {
            let inner = command(role, &dir.path().join("quipu.db"));
            let mut command = Command::new("/bin/sh");
            command.args(["-c", shell]).arg(&exe).args(inner.get_args());
            command.envs(inner.get_envs().filter_map(|(key, value)| Some((key, value?))));
            command.stdin(Stdio::null());
            command
        }
    };
    // Fails for everybody but the administrator, who alone has rights to give up.
    drop(chown(dir.path(), Some(NOBODY), Some(NOBODY)));
    let output = command.current_dir(dir.path()).output().unwrap();
    // Or the directory could not be removed.
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
    assert!(
        output.status.success(),
        "{role}: {}\n{}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let path = PathBuf::from(std::env::var_os("QUIPU_STORE_PATH").unwrap());
    if matches!(role.as_str(), "limit" | "read-only" | "no-log") && nix::unistd::geteuid().is_root() {
        // Here and not at the start: the checkout may lie where only the administrator may go.
        nix::unistd::setgid(nix::unistd::Gid::from_raw(NOBODY)).unwrap();
        nix::unistd::setuid(nix::unistd::Uid::from_raw(NOBODY)).unwrap();
    }
    match role.as_str() {
        "commits" => commits(&path, number("QUIPU_STORE_COUNT")).await,
        "until killed" => until_killed(&path).await,
        "bulk until killed" => crate::bulk::until_killed(&path).await,
        "windows" => crate::bulk::windows(&path).await,
        "drop until killed" => crate::retain::drops(&path).await,
        "erase until killed" => crate::erase::until_killed(&path).await,
        "search until killed" => crate::search::until_killed(&path).await,
        "open" => drop(open(&path)),
        "no-memory" => crate::faults::without_its_memory(&path).await,
        "first-read" => crate::faults::after_a_first_read(&path).await,
        "closed-by-all" => crate::faults::closed_by_all(&path).await,
        "limit" => crate::faults::under_a_limit(&path).await,
        "no-log" => crate::faults::without_its_log(&path).await,
        "read-only" => crate::faults::without_permission(&path).await,
        other => panic!("unknown role {other}"),
    }
}

fn number(name: &str) -> i64 {
    std::env::var(name).unwrap().parse().unwrap()
}

/// Appends to a session of its own, and publishes the head that all share.
async fn commits(path: &Path, count: i64) {
    let store = open(path);
    let session = SessionId::from(std::env::var("QUIPU_STORE_SESSION").unwrap());
    let mut parent: Option<NodeId> = None;
    for n in 0..count {
        let (id, mut commit) = step(&session, parent, &format!("{session} {n}"), T + n);
        commit.moves.push(RefMove::publish(RefName::PI_HEAD.into(), id, "publish"));
        store.commit(commit).await.unwrap();
        parent = Some(id);
    }
}

/// Commits without end and says which node was acknowledged.
async fn until_killed(path: &Path) {
    let store = open(path);
    let session = SessionId::from("killed");
    let name = RefName::session(&session);
    let mut parent = store.head(&name).await.unwrap();
    let mut out = std::io::stdout();
    // The test harness has begun a line.
    writeln!(out).unwrap();
    for n in 0.. {
        let (id, commit) = step(&session, parent, &format!("step {n} {}", "x".repeat(2000)), T + n);
        store.commit(commit).await.unwrap();
        writeln!(out, "kept {id}").unwrap();
        out.flush().unwrap();
        parent = Some(id);
    }
}
