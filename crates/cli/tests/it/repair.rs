//! `quipu doctor --repair`: a damaged store is moved aside, what can be read goes on, and it is said what was lost.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use quipu_testkit::{Answer, Gate, Neighbour, Reply};

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
    assert!(told.contains(aside.to_str().unwrap()) && told.contains("copied into a new store"), "{told}");
    told
}

#[test]
fn of_a_flipped_header_nothing_is_lost() {
    let world = lived_in();
    let nodes = world.nodes();
    overwrite(&world, 0, &[0xff; 16]);
    let told = repaired(&world);
    assert!(told.contains("nothing that could be read is lost") && !told.contains("lost:"), "{told}");
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
    assert!(told.contains("copied into a new store") && told.contains(".damaged."), "{told}");
    world.server.push(Answer::new().text("New.").reply());
    world.run(&["-p", "hi"]).ok();
    world.run(&["doctor"]).ok();
}

/// The prompt of all sessions that began alike is one blob. Without it they go on with the prompt that a new one gets.
#[test]
fn sessions_continue_without_their_system_prompt() {
    let replies = ["One.", "Two.", "Three.", "Four.", "Five."].map(|text| Answer::new().text(text).reply());
    let world = World::new(replies);
    world.run(&["-p", "--append-system-prompt", "Answer in one word.", "one"]).ok();
    let first = world.sessions()[0]["id"].as_str().unwrap().to_owned();
    world.check();
    world.unchecked();
    let store = Neighbour::open(&world.store());
    let prompt = store.blobs().into_iter().find(|(_, kind)| kind == "system_prompt").unwrap().0;
    store.lose_blob(&prompt);
    drop(store);
    let told = world.run(&["doctor"]).exits(4).text();
    assert!(told.contains(&format!("its system prompt {prompt} is missing")), "{told}");

    let notice = format!("The system prompt of this session ({prompt}) is missing from the store.");
    let head = world.nodes().last().unwrap()["id"].as_str().unwrap().to_owned();
    let ran = world.run(&["-p", "--fork", &head, "beside"]).ok();
    assert!(ran.err.contains(&notice), "{}", ran.err);
    let ran = world.run(&["-p", "--session", &first, "two"]).ok();
    assert!(ran.err.contains(&notice), "{}", ran.err);
    // It has a prompt again, as a new session has it, and keeps that without a word.
    let ran = world.run(&["-p", "--session", &first, "three"]).ok();
    assert!(!ran.err.contains("system prompt"), "{}", ran.err);
    world.run(&["-p", "a new session"]).ok();
    let requests = world.requests();
    let system = |at: usize| requests[at].json()["system"].to_string();
    assert!(system(0).contains("Answer in one word.") && !system(2).contains("Answer in one word."));
    assert!(!system(4).is_empty());
    assert_eq!([system(1), system(2), system(3)], [system(4), system(4), system(4)]);
    let counts: Vec<usize> = requests.iter().map(|request| messages(request).len()).collect();
    assert_eq!(counts, [1, 3, 3, 5, 1]);
    // Its beginning, three turns, one epoch between them; and the beginning of the fork.
    assert_eq!(world.nodes_of(&[&first]).len(), 9);
    // What is lost stays lost, and is named each time.
    for _ in 0..2 {
        assert!(world.run(&["doctor"]).exits(4).text().contains(&prompt));
    }
    let told = world.run(&["doctor", "--repair"]).ok().text();
    assert!(told.contains("parents or parts of the remaining nodes"), "{told}");
    assert!(world.run(&["doctor"]).ok().text().contains(&prompt));
}

/// The same prompt comes back with the node of the new epoch.
#[test]
fn a_lost_prompt_comes_back_where_it_is_the_same() {
    let world = World::new(["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply()));
    world.run(&["-p", "one"]).ok();
    world.check();
    let store = Neighbour::open(&world.store());
    let prompt = store.blobs().into_iter().find(|(_, kind)| kind == "system_prompt").unwrap().0;
    store.lose_blob(&prompt);
    world.run(&["doctor"]).exits(4);
    assert!(world.run(&["-p", "-c", "two"]).ok().err.contains("is missing from the store"));
    assert!(!world.run(&["-p", "-c", "three"]).ok().err.contains("is missing"));
    assert_eq!(world.requests()[0].json()["system"], world.requests()[2].json()["system"]);
    world.run(&["doctor"]).ok();
}

/// Whichever blob is lost: `doctor` names it, what can be read is read, and the session can be gone on with.
#[test]
fn each_lost_blob_is_named_and_locks_nothing() {
    let world = World::new([]);
    world.server.push(crate::support::bash("c1", "echo hi > made.txt"));
    world.server.push(Answer::new().text("Done.").reply());
    world.run(&["-p", "make it"]).ok();
    world.check();
    world.unchecked();
    let whole = std::fs::read(world.store()).unwrap();
    let blobs = Neighbour::open(&world.store()).blobs();
    for (hash, kind) in &blobs {
        for side in ["-wal", "-shm"] {
            drop(std::fs::remove_file(format!("{}{side}", world.store().display())));
        }
        std::fs::write(world.store(), &whole).unwrap();
        Neighbour::open(&world.store()).lose_blob(hash);
        let told = world.run(&["doctor"]).exits(4).text();
        assert!(told.contains(hash), "{kind} {hash}: {told}");
        for args in [["sessions"].as_slice(), &["show"], &["log"], &["tree"], &["usage"], &["files"]] {
            let ran = world.run(args);
            assert!(ran.status.success(), "{kind} {args:?}: {}", ran.err);
        }
        world.server.push(Answer::new().text("On.").reply());
        let ran = world.run(&["-p", "-c", "go on"]);
        assert!(ran.status.success(), "{kind} {hash}: {}", ran.err);
        assert_eq!(ran.text(), "On.\n");
    }
}

#[test]
fn repair_refuses_an_open_store() {
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
    assert!(ran.err.contains("The process that waited for a reply exited"), "{}", ran.err);
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
    let told = RunningCommand::start(command).wait().exits(4).text();
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
