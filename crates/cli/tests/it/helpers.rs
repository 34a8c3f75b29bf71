//! Programs that run unconfined, in a world where commands have put their own of each name into every place of `PATH`
//! where they can write. None of them may ever run.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use quipu_testkit::Reply;

use crate::pty::{Terminal, says};
use crate::slash::leave;
use crate::support::*;

const CTRL_G: &str = "\u{7}";
const CTRL_V: &str = "\u{16}";

/// What the program starts by name, unconfined, and what users' lines name here.
const NAMES: [&str; 12] = [
    "sh",
    "bash",
    "grep",
    "git",
    "less",
    "wl-paste",
    "xclip",
    "pngpaste",
    "quipu",
    "the-editor",
    "the-pager",
    "cat",
];
/// A row: its name, the entry of `PATH`, and the directory of its programs.
type PathEntry = (&'static str, String, &'static str);

fn places(world: &World) -> Vec<PathEntry> {
    let at = |name: &str| world.path(name).display().to_string();
    vec![
        ("the current directory", ".".into(), "work"),
        ("an empty entry", String::new(), "work"),
        ("a relative directory", "tools/bin".into(), "work/tools/bin"),
        ("a virtual environment", at("work/.venv/bin"), "work/.venv/bin"),
        ("packages of Node", at("work/node_modules/.bin"), "work/node_modules/.bin"),
        ("a cache", at("home/.cache/envs/bin"), "home/.cache/envs/bin"),
        ("links into the workspace", at("home/bin"), "work/hidden"),
    ]
}

/// The world, the value of `PATH`, and the file that a program leaves a line in when it runs unconfined.
fn planted(world: &World, (_, entry, dir): &PathEntry) -> (String, PathBuf) {
    let mark = world.path("mark");
    let dir = world.path(dir);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::create_dir_all(world.path("home/bin")).unwrap();
    for name in NAMES {
        let program = dir.join(name);
        std::fs::write(&program, format!("#!/bin/sh\necho {name} >> '{}'\n", mark.display())).unwrap();
        set_mode(&program, 0o755);
        if dir.ends_with("hidden") {
            symlink(&program, world.path("home/bin").join(name)).unwrap();
        }
    }
    (format!("{entry}:/usr/local/bin:/usr/bin:/bin"), mark)
}

/// A repository in which one file is as it was committed.
fn repository(world: &World) -> bool {
    let git = |args: &[&str]| {
        let mut command = world.command("git");
        command.args(["-c", "user.name=n", "-c", "user.email=e@example.com"]).args(args);
        command.output().is_ok_and(|output| output.status.success())
    };
    std::fs::write(world.path("work/tracked"), "as it was\n").unwrap();
    git(&["init", "-q"]) && git(&["add", "tracked"]) && git(&["commit", "-qm", "first"])
}

fn clean(place: &str, mark: &Path) {
    let ran = std::fs::read_to_string(mark).unwrap_or_default();
    assert_eq!(ran, "", "{place}: these ran");
}

#[test]
fn no_planted_program_is_run() {
    let count = places(&World::new([])).len();
    for at in 0..count {
        let script: [Reply; 4] = [
            bash("c1", "echo changed > tracked"),
            says("Done."),
            bash("c2", "echo $$ > pid; sleep 1000"),
            says("Never."),
        ];
        let mut world = World::new(script);
        let place = places(&world).swap_remove(at);
        let (path, mark) = planted(&world, &place);
        let place = place.0;
        let is_repository = repository(&world);
        // The key is what a command prints.
        let key = world.path("home/key");
        std::fs::write(&key, KEY).unwrap();
        let models = world.path("home/.quipu/models.json");
        let text = std::fs::read_to_string(&models).unwrap();
        std::fs::write(&models, text.replace(KEY, &format!("!cat {} | cat", key.display()))).unwrap();
        let with_path = |mut command: Command| {
            command.env("PATH", &path);
            command
        };

        RunningCommand::start(with_path(world.quipu(&["-p", "Change it."]))).wait().ok();
        clean(place, &mark);
        assert!(world.requests()[0].headers.iter().any(|(_, value)| value.contains(KEY)), "{place}: no key");
        if is_repository {
            RunningCommand::start(with_path(world.quipu(&["undo", "--files", "--yes"]))).wait().ok();
            let now = std::fs::read_to_string(world.path("work/tracked")).unwrap();
            assert_eq!(now, "as it was\n", "{place}: what git had is not known");
            clean(place, &mark);
        }

        // What watches over commands takes over when the program is killed.
        let running = RunningCommand::start(with_path(world.quipu(&["-p", "Wait."])));
        let pid = || std::fs::read_to_string(world.path("work/pid")).ok()?.trim().parse::<i32>().ok();
        until(pid);
        kill(running.pid(), Signal::SIGKILL).unwrap();
        running.wait();
        no_command_lives(&world);
        clean(place, &mark);

        // Pagers, the usual one and the user's.
        let nodes = world.nodes();
        let id = nodes.iter().find(|node| node["role"] == "assistant").unwrap()["id"].as_str().unwrap();
        let quoted = format!("{} open {id}", world.program.display());
        for pager in
            [None, Some("less -R"), Some("the-pager"), Some("./the-pager"), Some("tools/bin/the-pager")]
        {
            let mut command = with_path(world.command("script"));
            command.args(["-qec", &quoted, "/dev/null"]).env("TERM", "xterm").env("LESS", "FRX");
            pager.map(|pager| command.env("PAGER", pager));
            command.output().ok();
            clean(place, &mark);
        }

        // Programs that the terminal starts.
        world.another_server([]);
        for editor in ["the-editor", "./the-editor", "tools/bin/the-editor --wait", "exec the-editor"] {
            let mut command = with_path(world.quipu(&[]));
            command.env("EDITOR", editor).env("WAYLAND_DISPLAY", "wayland-0").env("DISPLAY", ":7");
            let mut terminal = Terminal::start(command, 160, 30);
            terminal.shows("test-1");
            terminal.types(CTRL_V);
            terminal.until("an answer about the clipboard", |shown| {
                ["not installed", "no image", "does not answer", "cannot be"]
                    .iter()
                    .any(|part| shown.contains(part))
            });
            terminal.types("text");
            terminal.shows("text");
            terminal.types(CTRL_G);
            terminal.shows("The editor could not be used.");
            leave(terminal);
            clean(place, &mark);
        }
    }
}

/// What comes to be there sooner or later.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(std::time::Instant::now() < end, "it does not come");
        std::thread::yield_now();
    }
}

#[test]
fn programs_of_the_user_go_on_working() {
    let world = World::new([says("An answer.")]);
    let bin = world.path("home/.local/bin");
    std::fs::create_dir_all(&bin).unwrap();
    let key = bin.join("the-key");
    std::fs::write(&key, {
        let taken = "echo ${PYTHONPATH-none} ${LD_LIBRARY_PATH-none} ${ENV-none} ${NODE_PATH-none}";
        let (asked, told) = (world.path("asked"), world.path("taken"));
        format!("#!/bin/sh\npwd > '{}'\n{taken} > '{}'\necho {KEY}\n", asked.display(), told.display())
    })
    .unwrap();
    set_mode(&key, 0o755);
    let models = world.path("home/.quipu/models.json");
    let text = std::fs::read_to_string(&models).unwrap();
    std::fs::write(&models, text.replace(KEY, "!the-key")).unwrap();
    let mut command = world.quipu(&["-p", "Ask."]);
    command.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
    // Of these only what lies elsewhere is left to it.
    let work = world.path("work").display().to_string();
    command
        .env("PYTHONPATH", format!("{work}/lib:/opt/lib::lib:{}/.cache/lib", world.path("home").display()));
    command.env("LD_LIBRARY_PATH", format!(":{work}")).env("ENV", "./env").env("NODE_PATH", "/opt/lib");
    RunningCommand::start(command).wait().ok();
    let taken = std::fs::read_to_string(world.path("taken")).unwrap();
    assert_eq!(taken, "/opt/lib none none /opt/lib\n");
    // Not in the workspace, from which some programs take code.
    let home = format!("{}\n", world.path("home/.quipu").display());
    assert_eq!(std::fs::read_to_string(world.path("asked")).unwrap(), home);
    // One that only the workspace has is told.
    world.file("mine", "#!/bin/sh\necho planted\n");
    set_mode(&world.path("work/mine"), 0o755);
    for (command, reason) in [
        ("!mine", "was not found, except perhaps in a directory that commands"),
        (&*format!("!{}", world.path("work/mine").display()), "which commands of a session could change"),
    ] {
        let text = text.replace(KEY, command);
        std::fs::write(&models, text).unwrap();
        let mut command = world.quipu(&["-p", "Ask."]);
        command.env("PATH", format!("{}:/usr/bin:/bin", world.path("work").display()));
        let ran = RunningCommand::start(command).wait();
        assert!(ran.message().contains(reason), "{}", ran.message());
    }
}

/// Who works on this program with this program builds it again and again.
#[test]
fn replaced_program_is_not_run() {
    let mut world = World::new([]);
    let (built, mark) = (world.path("work/target"), world.path("mark"));
    std::fs::create_dir(&built).unwrap();
    let program = std::mem::replace(&mut world.program, built.join("quipu"));
    // By a program: a child that another test starts meanwhile would hold the copy open, and it could not be run.
    assert!(std::process::Command::new("cp").args([&program, &world.program]).status().unwrap().success());
    let mut terminal = Terminal::open(&world, &[]);
    terminal.shows("test-1");
    let planted = built.join("new");
    std::fs::write(&planted, format!("#!/bin/sh\necho ran >> '{}'\n", mark.display())).unwrap();
    set_mode(&planted, 0o755);
    // What the system calls a program that another took the place of.
    std::fs::copy(&planted, built.join("quipu (deleted)")).unwrap();
    std::fs::rename(&planted, &world.program).unwrap();
    terminal.types("/permissions list\r");
    terminal.shows("/permissions list");
    terminal.shows("workspace");
    leave(terminal);
    world.program = program;
    clean("the program itself", &mark);
}
