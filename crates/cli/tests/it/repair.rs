//! `quipu doctor --repair`: a damaged store is moved aside, what can be read goes on, and it is said what was lost.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use quipu_testkit::{Answer, Gate, Reply};

use crate::support::*;

/// A store with a session of 30 turns.
fn lived_in() -> World {
    let world = World::unprivileged(vec![Answer::new().text("Hello.").reply(); 30]);
    let prompts: Vec<String> = (0..30).map(|n| format!("question {n} {}", "words ".repeat(300))).collect();
    let args: Vec<&str> = ["-p"].into_iter().chain(prompts.iter().map(String::as_str)).collect();
    world.run(&args).ok();
    world.check();
    world.unchecked();
    world
}

fn overwrite(world: &World, at: u64, bytes: &[u8]) {
    File::options().write(true).open(world.store()).unwrap().write_all_at(bytes, at).unwrap();
}

fn damaged_files(world: &World) -> Vec<PathBuf> {
    let names = std::fs::read_dir(world.path("home/.quipu")).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.to_string_lossy().contains(".damaged.")).collect()
}

/// Ordinary commands refuse and name the command, which says where the damaged file went; then all goes on.
#[track_caller]
fn repaired(world: &World) -> String {
    let before = std::fs::read(world.store()).unwrap();
    for args in [["-p", "hi"].as_slice(), &["sessions"], &["show"]] {
        world.run(args).fails(4, &["quipu.db", "damaged", "quipu doctor --repair"]);
    }
    let told = world.run(&["doctor"]).exits(4).text();
    assert!(told.contains("quipu doctor --repair"), "{told}");
    assert!(damaged_files(world).is_empty(), "nothing is repaired that was not asked for");
    assert!(std::fs::read(world.store()).unwrap() == before);
    let told = world.run(&["doctor", "--repair"]).ok().text();
    let aside = damaged_files(world);
    let aside = aside.iter().find(|path| !path.file_name().unwrap().to_string_lossy().contains('-')).unwrap();
    assert!(std::fs::read(aside).unwrap() == before, "the damaged file is kept as it was");
    assert!(told.contains(aside.to_str().unwrap()) && told.contains("carried over"), "{told}");
    told
}

#[test]
fn of_a_flipped_header_nothing_is_lost() {
    let world = lived_in();
    let nodes = world.nodes();
    overwrite(&world, 0, &[0xff; 16]);
    let told = repaired(&world);
    assert!(told.contains("nothing that was found is lost") && !told.contains("lost:"), "{told}");
    assert_eq!(world.nodes(), nodes);
    world.check();
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "-c", "on"]).ok();
    assert_eq!(messages(world.requests().last().unwrap()).len(), 61);
    world.check();
    // A second time there is nothing to do.
    let told = world.run(&["doctor", "--repair"]).ok().text();
    assert!(told.contains("nothing was changed"), "{told}");
    assert_eq!(damaged_files(&world).len(), 1);
}

#[test]
fn of_damage_in_the_middle_the_rest_goes_on() {
    let world = lived_in();
    let pages = std::fs::metadata(world.store()).unwrap().len() / 4096;
    for page in (0..pages).filter(|page| page % 4 == 1 || *page == 2) {
        overwrite(&world, page * 4096, &[0xa5; 600]);
    }
    overwrite(&world, 0, &[0xff; 16]);
    let told = repaired(&world);
    assert!(told.contains("lost:"), "{told}");
    // What is left is told as it is, and a new session works.
    world.run(&["doctor"]).ok();
    world.run(&["sessions"]).ok();
    world.server.push(Answer::new().text("New.").reply());
    world.run(&["-p", "hi"]).ok();
}

#[test]
fn a_session_with_a_gap_goes_on_from_a_node_before_it() {
    let world = lived_in();
    let nodes = world.nodes();
    let lost = nodes[40]["id"].as_str().unwrap();
    // The id is in the row, in the rows of its children, and in indexes: none of them is what it was.
    let mut bytes = std::fs::read(world.store()).unwrap();
    let at: Vec<usize> =
        (0..bytes.len() - 64).filter(|at| &bytes[*at..*at + 64] == lost.as_bytes()).collect();
    assert!(!at.is_empty());
    for at in at {
        bytes[at + 10] = b'x';
    }
    std::fs::write(world.store(), bytes).unwrap();
    world.run(&["doctor"]).exits(4);
    let told = world.run(&["doctor", "--repair"]).ok().text();
    assert!(told.contains("lost:"), "{told}");
    world.server.push(Answer::new().text("On.").reply());
    world.run(&["-p", "--fork", nodes[38]["id"].as_str().unwrap(), "on"]).ok();
    world.run(&["doctor"]).ok();
}

#[test]
fn of_a_file_cut_short_the_beginning_goes_on() {
    let world = lived_in();
    // Each table and index has its first page at the beginning, whatever it holds: rows come behind them.
    let length = std::fs::metadata(world.store()).unwrap().len();
    File::options().write(true).open(world.store()).unwrap().set_len(length / 4 * 3 + 100).unwrap();
    let told = world.run(&["doctor", "--repair"]).ok().text();
    assert!(told.contains("carried over") && told.contains(".damaged."), "{told}");
    world.server.push(Answer::new().text("New.").reply());
    world.run(&["-p", "hi"]).ok();
    world.run(&["doctor"]).ok();
}

#[test]
fn not_while_another_process_has_it_open() {
    let gate = Gate::new();
    let world = World::new([Reply::sse(Answer::new().text("Half\n").unfinished()).then_gate(&gate)]);
    world.unchecked();
    let mut running = world.start(&["-p", "--stream", "first"]);
    assert_eq!(running.line().unwrap(), "Half");
    reached(&gate);
    // While the log holds the first page it stands for that of the file, and is copied over it in a quiet moment.
    let damaged = (0..1_000).any(|_| {
        overwrite(&world, 0, &[0xff; 16]);
        world.run(&["doctor"]).status.code() == Some(4)
    });
    assert!(damaged);
    let told = world.run(&["doctor", "--repair"]).exits(4).text();
    assert!(told.contains("nothing was changed") && told.contains("another program"), "{told}");
    assert!(damaged_files(&world).is_empty());
    running.signal(nix::sys::signal::Signal::SIGKILL);
    running.wait();
    world.run(&["doctor", "--repair"]).ok();
    world.server.push(Answer::new().text("On.").reply());
    let ran = world.run(&["-p", "-c", "on"]).ok();
    assert!(ran.err.contains("A model call was interrupted"), "{}", ran.err);
}

#[test]
fn without_room_or_rights_nothing_is_changed() {
    let world = lived_in();
    overwrite(&world, 0, &[0xff; 16]);
    let before = std::fs::read(world.store()).unwrap();
    set_mode(&world.path("home/.quipu"), 0o500);
    let told = world.run(&["doctor", "--repair"]).exits(4).text();
    assert!(told.contains("nothing was changed"), "{told}");
    set_mode(&world.path("home/.quipu"), 0o700);
    let mut command = world.command("/bin/sh");
    let program = world.program.display();
    command.args(["-c", &format!("trap '' XFSZ; ulimit -f 40; exec {program} doctor --repair")]);
    let told = Running::start(command).wait().exits(4).text();
    assert!(told.contains("nothing was changed") && told.contains("no room"), "{told}");
    assert!(std::fs::read(world.store()).unwrap() == before);
    let left: Vec<_> = std::fs::read_dir(world.path("home/.quipu"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains("damaged") || name.contains("repaired"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    world.run(&["doctor", "--repair"]).ok();
}
