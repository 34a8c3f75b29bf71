//! What a machine can do to a run: no descriptors, little memory, a clock that jumps, a disk elsewhere, sleep.

use nix::sys::signal::Signal;
use quipu_testkit::{Answer, Gate, Neighbour, Reply};

use crate::support::*;

/// The command under limits that a shell sets.
fn under(world: &World, limits: &str, args: &str) -> CommandOutput {
    let mut command = world.command("/bin/sh");
    command.args(["-c", &format!("{limits}; exec {} {args}", world.program.display())]);
    RunningCommand::start(command).wait()
}

#[test]
fn out_of_file_descriptors() {
    let world = World::unprivileged([]);
    let refused = ["file descriptors", "os error 24", "ulimit -n"];
    for limit in [5, 6, 9, 15, 20, 30, 33] {
        under(&world, &format!("ulimit -n {limit}"), "-p task").fails(1, &refused);
        under(&world, &format!("ulimit -n {limit}"), "doctor").fails(1, &refused);
    }
    assert!(world.requests().is_empty() && !world.store().exists());
    // Where it begins, it has enough.
    for limit in [36, 40, 64] {
        world.server.push(bash("c1", "cat ../work/effects; echo ran >> effects"));
        world.server.push(Answer::new().text("Done.").reply());
        assert_eq!(under(&world, &format!("ulimit -n {limit}"), "-p task").ok().text(), "Done.\n", "{limit}");
    }
    assert_eq!(std::fs::read_to_string(world.path("work/effects")).unwrap(), "ran\n".repeat(3));
}

/// Linux counts all memory that a process can write against this limit, also what it never touches, such as the
/// stacks of its threads: a stricter measure than what is resident.
#[cfg(target_os = "linux")]
#[test]
fn in_64_mb_of_memory() {
    let world = World::unprivileged([
        call("c1", "read", &serde_json::json!({ "path": "large.txt" })),
        bash("c2", "head -c 3000000 large.txt"),
        Answer::new().text(&"many words ".repeat(20_000)).reply(),
    ]);
    world.file("large.txt", "a line of a large file\n".repeat(500_000));
    under(&world, "ulimit -d 65536", "-p task").ok();
    world.server.push(Answer::new().text("On.").reply());
    under(&world, "ulimit -d 65536", "-p -c on").ok();
    under(&world, "ulimit -d 65536", "show").ok();
    under(&world, "ulimit -d 65536", "doctor").ok();
}

/// Builds a library that stands in for one function of the system.
#[cfg(target_os = "linux")]
pub(crate) fn in_place_of(world: &World, source: &str) -> Option<std::path::PathBuf> {
    let (code, library) = (world.path("home/in_place.c"), world.path("home/in_place.so"));
    std::fs::write(&code, source).unwrap();
    let built =
        std::process::Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&code).status();
    if built.is_ok_and(|status| status.success()) {
        return Some(library);
    }
    assert!(std::env::var_os("QUIPU_REQUIRE_PEERS").is_none(), "no C compiler");
    println!("skipped: no C compiler");
    None
}

#[cfg(target_os = "linux")]
fn with(world: &World, library: &std::path::Path, args: &[&str]) -> CommandOutput {
    let mut command = world.quipu(args);
    command.env("LD_PRELOAD", library);
    RunningCommand::start(command).wait()
}

#[cfg(target_os = "linux")]
#[test]
fn a_clock_that_jumps_back() {
    // At each look it is further back.
    const CLOCK: &str = "#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
        int clock_gettime(clockid_t id, struct timespec *at) {\n\
          static _Atomic long looks;\n\
          int got = syscall(SYS_clock_gettime, id, at);\n\
          if (id == CLOCK_REALTIME) at->tv_sec = 1000000000 - looks++;\n\
          return got;\n}\n";
    let world = World::unprivileged(vec![Answer::new().text("Hello.").reply(); 3]);
    let Some(library) = in_place_of(&world, CLOCK) else { return };
    world.run(&["-p", "first"]).ok();
    with(&world, &library, &["-p", "-c", "second"]).ok();
    world.run(&["-p", "-c", "third"]).ok();
    assert_eq!(messages(world.requests().last().unwrap()).len(), 5);
    let times: Vec<i64> =
        world.nodes().iter().map(|node| node["timestamp"].as_i64().expect("a time")).collect();
    // The start of the session, and three questions with their answers.
    assert!(times.len() == 7 && times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    // A session that begins in the past.
    world.server.push(Answer::new().text("Hello.").reply());
    with(&world, &library, &["-p", "new"]).ok();
}

#[cfg(target_os = "linux")]
#[test]
fn a_clock_before_1970_breaks_nothing() {
    for seconds in ["-1", "-1000000", "-2177452800"] {
        let clock = format!(
            "#include <time.h>\n#include <unistd.h>\n#include <sys/syscall.h>\n\
             int clock_gettime(clockid_t id, struct timespec *at) {{\n\
               int got = syscall(SYS_clock_gettime, id, at);\n\
               if (id == CLOCK_REALTIME) at->tv_sec = {seconds}LL;\n\
               return got;\n}}\n"
        );
        let world = World::unprivileged([
            bash("c1", "echo hi > made.txt"),
            Answer::new().text("Hello.").reply(),
            Answer::new().text("Again.").reply(),
        ]);
        let Some(library) = in_place_of(&world, &clock) else { return };
        with(&world, &library, &["-p", "first"]).ok();
        with(&world, &library, &["-p", "-c", "--daily-budget", "100", "second"]).ok();
        assert_eq!(messages(world.requests().last().unwrap()).len(), 5);
        let times: Vec<i64> = world.nodes().iter().map(|node| node["timestamp"].as_i64().unwrap()).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
        let commands: &[&[&str]] = &[
            &["sessions"],
            &["show"],
            &["tree"],
            &["log"],
            &["usage"],
            &["files"],
            &["doctor"],
            &["search", "first"],
            &["blame", "made.txt"],
            &["undo", "--yes"],
            &["context"],
            &["import", "--dry-run"],
            &["demo"],
        ];
        for args in commands {
            let ran = with(&world, &library, args);
            assert!(!ran.err.contains("panicked") && ran.status.code() != Some(101), "{args:?}: {}", ran.err);
            assert!(ran.status.success(), "{args:?}: {}", ran.err);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_network_file_system_is_told() {
    const NFS: &str = "#define _GNU_SOURCE\n#include <string.h>\n#include <sys/vfs.h>\n\
        int statfs(const char *path, struct statfs *found) {\n\
          memset(found, 0, sizeof *found);\n\
          found->f_type = 0x6969;\n\
          return path == 0;\n}\n\
        int statfs64(const char *path, struct statfs64 *found) {\n\
          memset(found, 0, sizeof *found);\n\
          found->f_type = 0x6969;\n\
          return path == 0;\n}\n";
    let world = World::unprivileged([Answer::new().text("Hello.").reply()]);
    let Some(library) = in_place_of(&world, NFS) else { return };
    let words = ["warning", "network file system (NFS)", "QUIPU_HOME", "--store"];
    let ran = with(&world, &library, &["-p", "first"]).ok();
    assert!(words.iter().all(|word| ran.err.contains(word)), "{}", ran.err);
    let found = with(&world, &library, &["doctor", "--json"]).ok().json();
    assert!(found["healthy"] == true && found.to_string().contains("NFS"), "{found}");
    assert!(!world.run(&["sessions"]).ok().err.contains("network"));
}

#[test]
fn suspended_and_resumed() {
    let gate = Gate::new();
    let world = World::unprivileged([
        Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate),
        Answer::new().text("Another.").reply(),
    ]);
    let mut running = world.start(&["-p", "--stream", "first"]);
    assert_eq!(running.line().unwrap(), "Half");
    reached(&gate);
    running.signal(Signal::SIGSTOP);
    // It holds nothing that others need.
    world.run(&["sessions"]).ok();
    world.run(&["-p", "second"]).ok();
    // And while it sleeps, nothing of it is taken for dead.
    assert!(lives(running.pid().as_raw()));
    running.signal(Signal::SIGCONT);
    // The connection was lost meanwhile, so it asks again.
    world.server.push(Answer::new().text("Whole.").reply());
    gate.open();
    assert!(running.wait().ok().text().ends_with("Whole.\n"));
    world.server.push(Answer::new().text("On.").reply());
    let first = world.sessions();
    let first = first.iter().find(|row| row["title"].as_str().unwrap().contains("first")).unwrap();
    world.run(&["-p", "--session", first["id"].as_str().unwrap(), "third"]).ok();
}

#[test]
fn a_log_that_was_deleted() {
    let gate = Gate::new();
    let world = World::unprivileged([
        Answer::new().text("Kept.").reply(),
        Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate),
    ]);
    world.run(&["-p", "first"]).ok();
    let before = world.nodes();
    let mut running = world.start(&["-p", "--stream", "-c", "second"]);
    assert_eq!(running.line().unwrap(), "Half");
    reached(&gate);
    running.signal(Signal::SIGKILL);
    running.wait();
    for suffix in ["-wal", "-shm"] {
        std::fs::remove_file(format!("{}{suffix}", world.store().display())).unwrap();
    }
    world.unchecked();
    // What the log held may be gone with it; what was there before is whole.
    world.run(&["doctor"]).ok();
    let after = world.nodes();
    assert_eq!(after[..before.len()], before[..]);
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "third"]).ok();
    world.run(&["doctor"]).ok();
}

#[test]
fn a_store_that_is_replaced() {
    let gate = Gate::new();
    let world = World::unprivileged([
        Answer::new().text("Kept.").reply(),
        Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate),
    ]);
    world.run(&["-p", "first"]).ok();
    let other = world.path("home/.quipu/other.db");
    std::fs::copy(world.store(), &other).unwrap();
    if nix::unistd::geteuid().is_root() {
        std::os::unix::fs::chown(&other, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mut running = world.start(&["-p", "--stream", "-c", "second"]);
    assert_eq!(running.line().unwrap(), "Half");
    reached(&gate);
    std::fs::rename(&other, world.store()).unwrap();
    gate.open();
    running.wait().fails(4, &["quipu.db", "removed or replaced"]);
    world.unchecked();
    // The one that stands there now is as it was.
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "third"]).ok();
    world.run(&["doctor"]).ok();
}

/// Everything that was acknowledged is in a new file beside it, which goes on as the store.
#[test]
fn a_store_that_is_removed_is_recovered() {
    let gate = Gate::new();
    let world = World::unprivileged([
        Answer::new().text("Kept.").reply(),
        Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate),
    ]);
    world.unchecked();
    world.run(&["-p", "first"]).ok();
    let mut running = world.start(&["-p", "--stream", "-c", "second"]);
    assert_eq!(running.line().unwrap(), "Half");
    reached(&gate);
    std::fs::remove_file(world.store()).unwrap();
    gate.open();
    let ran = running.wait().fails(4, &["quipu.db", "removed or replaced", ".recovered-", "move that file"]);
    assert!(!ran.err.contains("session is kept"), "{}", ran.err);
    let names = std::fs::read_dir(world.path("home/.quipu")).unwrap().map(|entry| entry.unwrap().path());
    let recovered: Vec<_> =
        names.filter(|path| path.to_string_lossy().contains("quipu.db.recovered-")).collect();
    assert_eq!(recovered.len(), 1, "{recovered:?}");
    assert_eq!(mode(&recovered[0]), 0o600);
    assert!(ran.err.contains(recovered[0].to_str().unwrap()), "{}", ran.err);
    for side in ["-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{side}", world.store().display())));
    }
    std::fs::rename(&recovered[0], world.store()).unwrap();
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "third"]).ok();
    let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(said.contains(&"first".to_owned()) && said.contains(&"Kept.".to_owned()), "{said:?}");
    assert!(said.contains(&"second".to_owned()), "{said:?}");
    world.run(&["doctor"]).ok();
}

/// What only the log held is in a new file, and nothing is written behind the gap.
#[test]
fn a_log_that_is_cut_short_is_told() {
    for part in [0, 1] {
        let gate = Gate::new();
        let world = World::unprivileged([
            Answer::new().text("Kept.").reply(),
            Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate),
        ]);
        world.unchecked();
        world.run(&["-p", "first"]).ok();
        // Somebody reads the store as it is now, so that what comes stays in the log.
        let reader = Neighbour::open(&world.store());
        reader.hold();
        let mut running = world.start(&["-p", "--stream", "-c", "second"]);
        assert_eq!(running.line().unwrap(), "Half");
        reached(&gate);
        cut(&world, "-wal", part);
        gate.open();
        let ran = running
            .wait()
            .fails(4, &["quipu.db-wal", "was cut short", ".recovered-", "name that file as the store"]);
        assert!(!ran.err.contains("session is kept"), "{}", ran.err);
        drop(reader);
        let names = std::fs::read_dir(world.path("home/.quipu")).unwrap().map(|entry| entry.unwrap().path());
        let saved = names.into_iter().find(|path| path.to_string_lossy().contains(".recovered-")).unwrap();
        world.server.push(Answer::new().text("On.").reply());
        world.run(&["-p", "-c", "--store", saved.to_str().unwrap(), "third"]).ok();
        let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert!(said.contains(&"first".to_owned()) && said.contains(&"second".to_owned()), "{said:?}");
    }
}

/// The part that is left of a file beside the store, in quarters.
fn cut(world: &World, side: &str, quarters: u64) {
    let path = format!("{}{side}", world.store().display());
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() * quarters / 4).unwrap();
}

/// No signal ends it, and nothing is lost.
#[test]
fn shared_memory_that_is_cut_short_is_made_anew() {
    for part in [0, 2] {
        let gate = Gate::new();
        let world = World::unprivileged([
            Answer::new().text("Kept.").reply(),
            Reply::sse("").then_gate(&gate).then(Answer::new().text("Two.").stream()),
            Answer::new().text("Three.").reply(),
        ]);
        world.run(&["-p", "first"]).ok();
        let running = world.start(&["-p", "-c", "second"]);
        reached(&gate);
        cut(&world, "-shm", part);
        gate.open();
        assert_eq!(running.wait().ok().text(), "Two.\n");
        assert_eq!(world.run(&["-p", "-c", "third"]).ok().text(), "Three.\n");
        let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert_eq!(said, ["first", "Kept.", "second", "Two.", "third"]);
        world.run(&["doctor"]).ok();
    }
}

#[test]
fn no_home() {
    let world = World::unprivileged([]);
    let mut command = world.quipu(&["-p", "hi"]);
    command.env_remove("HOME");
    RunningCommand::start(command).wait().fails(2, &["neither QUIPU_HOME nor HOME", "set QUIPU_HOME"]);
    // One that is named and not there, where none can be made.
    for home in ["/nonexistent/home", "/dev/null/home", "/proc/home"] {
        let mut command = world.quipu(&["-p", "hi"]);
        command.env("HOME", home);
        let ran = RunningCommand::start(command).wait();
        assert!(ran.status.code().is_some_and(|code| (1..=4).contains(&code)), "{home}: {}", ran.err);
        ran.message();
    }
}
