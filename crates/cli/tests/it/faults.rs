//! Stores that cannot be used: each time one message, exit code 4, and nothing is lost.

use std::fs::File;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::symlink;

use quipu_testkit::{Answer, Reply};

use crate::support::*;

fn answers(count: usize) -> Vec<Reply> {
    vec![Answer::new().text("Hello.").reply(); count]
}

/// Everything that opens the store.
const ALL: [&[&str]; 6] =
    [&["-p", "hi"], &["-p", "-c", "hi"], &["demo"], &["sessions"], &["show"], &["show", "HEAD"]];

#[track_caller]
fn all_fail(world: &World, words: &[&str]) {
    for args in ALL {
        world.run(args).fails(4, words);
    }
    let found = world.run(&["doctor", "--json"]).exits(4).json();
    assert_eq!(found["healthy"], false);
    let told = found["findings"].to_string();
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
}

#[test]
fn a_flipped_header() {
    let world = World::unprivileged(answers(2));
    world.run(&["-p", "first"]).ok();
    let good = std::fs::read(world.store()).unwrap();
    let mut file = File::options().write(true).open(world.store()).unwrap();
    file.write_all(&[0xff; 16]).unwrap();
    drop(file);
    all_fail(&world, &["quipu.db", "damaged", "backup", "--store"]);
    // Another store can be used in the meantime, and a copy that was kept goes on.
    world.run(&["-p", "--store", "other.db", "hi"]).ok();
    std::fs::write(world.store(), good).unwrap();
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "second"]).ok();
    assert_eq!(messages(&world.requests()[2]).len(), 3);
}

#[test]
fn a_store_that_is_none() {
    let world = World::new([]);
    std::fs::write(world.store(), "just some words, and enough of them that no header fits\n".repeat(200))
        .unwrap();
    all_fail(&world, &["quipu.db", "--store"]);
    assert!(std::fs::read_to_string(world.store()).unwrap().starts_with("just some words"));
    std::fs::remove_file(world.store()).unwrap();
    std::fs::create_dir(world.store()).unwrap();
    all_fail(&world, &["quipu.db", "not a store", "--store"]);
    std::fs::remove_dir(world.store()).unwrap();
    symlink(world.path("work/elsewhere.db"), world.store()).unwrap();
    all_fail(&world, &["quipu.db", "symbolic link"]);
    std::fs::remove_file(world.store()).unwrap();
    nix::unistd::mkfifo(&world.store(), nix::sys::stat::Mode::S_IRWXU).unwrap();
    all_fail(&world, &["quipu.db", "not a store"]);
    std::fs::remove_file(world.store()).unwrap();
}

#[test]
fn damage_inside() {
    let world = World::unprivileged(answers(30));
    let prompts = vec!["some words ".repeat(300); 30];
    let args: Vec<&str> = ["-p"].into_iter().chain(prompts.iter().map(String::as_str)).collect();
    world.run(&args).ok();
    world.check();
    world.unchecked();
    let size = std::fs::metadata(world.store()).unwrap().len();
    let mut file = File::options().write(true).open(world.store()).unwrap();
    for page in 3..size / 4096 {
        file.seek(SeekFrom::Start(page * 4096)).unwrap();
        file.write_all(&[0xa5; 600]).unwrap();
    }
    drop(file);
    world.run(&["doctor"]).exits(4);
    for args in ALL {
        let ran = world.run(args);
        let code = ran.status.code();
        assert!(code == Some(4) && ran.message().contains("quipu.db"), "{args:?}: {code:?} {}", ran.err);
    }
}

#[test]
fn one_of_another_user() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let world = World::new(answers(1));
    world.run(&["-p", "first"]).ok();
    std::os::unix::fs::chown(world.store(), Some(NOBODY), None).unwrap();
    all_fail(&world, &["quipu.db", "belongs to user 65534", "--store"]);
    std::os::unix::fs::chown(world.store(), Some(0), None).unwrap();
    world.run(&["sessions"]).ok();
}

#[test]
fn a_newer_store() {
    let world = World::new(answers(1));
    world.run(&["-p", "first"]).ok();
    // Its number stands behind its name.
    let mut bytes = std::fs::read(world.store()).unwrap();
    let is_it = |window: &[u8]| window.starts_with(b"format") && window[6].is_ascii_digit();
    let at = bytes.windows(7).position(is_it).unwrap() + 6;
    let known = std::mem::replace(&mut bytes[at], b'9');
    std::fs::write(world.store(), &bytes).unwrap();
    all_fail(&world, &["quipu.db", "format 9", "newer Quipu"]);
    bytes[at] = known;
    std::fs::write(world.store(), &bytes).unwrap();
}

#[test]
fn a_read_only_store_can_be_read() {
    for (file, directory) in [(0o400, 0o700), (0o600, 0o500), (0o400, 0o500)] {
        let world = World::unprivileged(answers(3));
        world.run(&["-p", "first"]).ok();
        let nodes = world.nodes();
        set_mode(&world.store(), file);
        set_mode(&world.path("home/.quipu"), directory);
        let words = ["quipu.db", "read-only", "writable", "--store"];
        for args in [["-p", "hi"].as_slice(), &["-p", "-c", "hi"], &["demo"]] {
            world.run(args).fails(4, &words);
        }
        assert_eq!(world.requests().len(), 1, "nothing is sent that cannot be recorded");
        assert_eq!(world.nodes(), nodes);
        assert!(world.run(&["doctor"]).ok().text().contains("read-only"));
        // Without a record it works, and with rights it goes on.
        world.check();
        world.run(&["-p", "--no-session", "hi"]).ok();
        set_mode(&world.path("home/.quipu"), 0o700);
        set_mode(&world.store(), 0o600);
        world.run(&["-p", "-c", "second"]).ok();
        assert_eq!(messages(&world.requests()[2]).len(), 3);
        world.unchecked();
    }
}

#[test]
fn a_directory_that_nothing_can_be_made_in() {
    let world = World::unprivileged(answers(1));
    set_mode(&world.path("home/.quipu"), 0o500);
    world.run(&["-p", "hi"]).fails(4, &["quipu.db", "Permission denied", "try again"]);
    world.run(&["doctor"]).ok();
    set_mode(&world.path("home/.quipu"), 0o000);
    let ran = world.run(&["sessions"]).exits(4);
    assert!(ran.message().contains(".quipu"), "{}", ran.err);
    world.run(&["doctor"]).exits(4);
    set_mode(&world.path("home/.quipu"), 0o700);
    world.run(&["-p", "hi"]).ok();
}

#[test]
fn a_full_disk() {
    // Files may grow to 1 MiB, as on a disk that is full then. Whether the signal for it is ignored is not ours
    // to choose.
    for trap in ["trap '' XFSZ; ", ""] {
        let world = World::unprivileged(answers(1));
        world.run(&["-p", "first"]).ok();
        let limited = |args: &str| {
            let mut command = world.command("/bin/sh");
            let program = world.program.display();
            command.args(["-c", &format!("{trap}ulimit -f 2048; exec {program} {args}")]);
            RunningCommand::start(command).wait()
        };
        let noise: String = (0..60_000u64)
            .map(|n| {
                format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ n.wrapping_mul(n))
            })
            .collect();
        world.file("noise.txt", &noise);
        world.server.push(call("c1", "read", &serde_json::json!({ "path": "noise.txt", "limit": 1 })));
        limited("-p -c @noise.txt @noise.txt second").fails(4, &["quipu.db", "no room", "free some space"]);
        assert_eq!(world.requests().len(), 1, "nothing is sent that cannot be recorded");
        // Reading works, and with room again it goes on.
        limited("sessions").ok();
        limited("doctor").ok();
        let told = world.run(&["-p", "-c", "--max-turns", "1", "third"]).exits(5);
        assert!(told.err.contains("read"), "{}", told.err);
        // Full in the middle of a run: the prompt still fits, the answer does not.
        world.server.push(
            Answer::new()
                .text(&noise.repeat(2))
                .tool_call("c2", "bash", r#"{"command":"touch ran"}"#)
                .reply(),
        );
        let ran =
            limited("-p -c fourth").fails(4, &["quipu.db", "no room", "free some space", "quipu -p -c"]);
        assert_eq!(ran.text().trim_end().len(), noise.len() * 2);
        assert!(!world.path("work/ran").exists(), "it was run without a record");
        // What was sent is known, what was answered is not.
        world.server.push(Answer::new().text("On.").reply());
        let ran = world.run(&["-p", "-c", "@noise.txt", "fifth"]).ok();
        assert!(ran.err.contains("The process that waited for a reply exited"), "{}", ran.err);
        let said: Vec<String> = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
        assert!(
            said.contains(&"fourth".to_owned()) && said.last().unwrap().ends_with("fifth"),
            "{}",
            said.len()
        );
    }
}

/// Not even the memory that the log shares through a file can be made. What is there is read all the same.
#[test]
fn a_full_disk_can_be_read() {
    let world = World::unprivileged(answers(1));
    world.run(&["-p", "first"]).ok();
    let session = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.run(&["search", "first", "--wait"]).ok();
    world.run(&["log"]).ok();
    let limited = |args: &str| {
        let mut command = world.command("/bin/sh");
        let program = world.program.display();
        command.args(["-c", &format!("ulimit -f 0; exec {program} {args}")]);
        RunningCommand::start(command).wait()
    };
    let reads = |store: &str| {
        for (args, part) in [
            ("sessions", session.as_str()),
            ("show", "first"),
            ("tree", "first"),
            ("log", "first"),
            ("search first", "first"),
            ("usage", "together"),
            ("doctor", "a task cannot be recorded"),
        ] {
            let ran = limited(&format!("{args} --store {store}")).ok();
            assert!(ran.text().contains(part), "{args}: {}", ran.text());
        }
        let store = format!("--store {store} -p -c second");
        limited(&store).fails(4, &["quipu.db", "no room", "free some space"]);
        assert_eq!(world.requests().len(), 1, "nothing is sent that cannot be recorded");
    };
    let store = world.store();
    let shown = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    reads(&shown(&store));
    // And where the last process left a log behind.
    let neighbour = quipu_testkit::Neighbour::open(&store);
    neighbour.log(1, &quipu_testkit::Act { kind: "X".into(), from: None, to: None, metadata: None });
    let left = world.path("work/quipu.db");
    let log = |path: &std::path::Path| std::path::PathBuf::from(format!("{}-wal", path.display()));
    for (from, to) in [(store.clone(), left.clone()), (log(&store), log(&left))] {
        std::fs::write(&to, std::fs::read(from).unwrap()).unwrap();
        std::os::unix::fs::chown(&to, Some(NOBODY), None).unwrap();
    }
    drop(neighbour);
    assert!(std::fs::metadata(log(&left)).unwrap().len() > 0);
    let before = std::fs::read(log(&left)).unwrap();
    reads(&shown(&left));
    assert!(std::fs::read(log(&left)).unwrap() == before, "the log stays");
    // With room again it goes on.
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "third"]).ok();
}

#[test]
fn a_locked_store() {
    use nix::fcntl::{FcntlArg, fcntl};
    use nix::libc;
    let world = World::unprivileged(answers(2));
    world.run(&["-p", "first"]).ok();
    // What another program's transaction holds: the bytes of the file that stand for its lock.
    let file = File::options().read(true).write(true).open(world.store()).unwrap();
    // The width of a kind is that of the system.
    fn lock(kind: impl TryInto<i16, Error: std::fmt::Debug>) -> libc::flock {
        let l_whence = i16::try_from(libc::SEEK_SET).unwrap();
        libc::flock { l_type: kind.try_into().unwrap(), l_whence, l_start: 0x4000_0000, l_len: 512, l_pid: 0 }
    }
    fcntl(&file, FcntlArg::F_SETLK(&lock(libc::F_WRLCK))).unwrap();
    if std::env::var_os("QUIPU_FULL").is_some() {
        world.run(&["-p", "hi"]).fails(4, &["quipu.db", "locked by another program", "30 s", "try again"]);
    }
    // It waits, and goes on when the lock is gone.
    let running = world.start(&["-p", "-c", "second"]);
    fcntl(&file, FcntlArg::F_SETLK(&lock(libc::F_UNLCK))).unwrap();
    running.wait().ok();
}
