//! `quipu schedule install`: files for the system, which are removed again byte for byte.

use std::path::PathBuf;

use crate::support::*;

/// All files and directories below a directory, with what is in the files.
fn tree(root: &std::path::Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path.clone());
                found.push((path, None));
            } else {
                found.push((path.clone(), Some(std::fs::read(&path).unwrap())));
            }
        }
    }
    found.sort();
    found
}

fn run(world: &World, args: &[&str], path: &str) -> CommandOutput {
    let mut command = world.quipu(args);
    command.env("PATH", path);
    RunningCommand::start(command).wait()
}

#[cfg(not(target_os = "macos"))]
#[test]
fn installed_timer_is_removed_byte_for_byte() {
    let world = World::new([]);
    let bin = world.path("home/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("systemctl"), "#!/bin/sh\necho \"$@\" >> \"$HOME/called\"\n").unwrap();
    set_mode(&bin.join("systemctl"), 0o755);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let config = world.path("home/.config");
    std::fs::create_dir_all(&config).unwrap();
    let before = (tree(&config), tree(&world.path("home/.quipu")));
    let shown = run(&world, &["schedule", "install"], &path).fails(2, &["--yes"]);
    assert!(
        shown.err.contains("quipu-schedule.timer") && shown.err.contains("+ OnCalendar="),
        "{}",
        shown.err
    );
    assert_eq!(tree(&config), before.0, "nothing was written");
    run(&world, &["schedule", "install", "--yes"], &path).ok();
    let service = config.join("systemd/user/quipu-schedule.service");
    let text = std::fs::read_to_string(&service).unwrap();
    assert!(text.contains(" schedule run --once\n") && text.contains("QUIPU_HOME="), "{text}");
    assert!(run(&world, &["schedule", "install"], &path).ok().err.contains("installed already"));
    // What somebody changed is not taken away, and its timer goes on.
    std::fs::write(&service, format!("{text}# mine\n")).unwrap();
    run(&world, &["schedule", "uninstall", "--yes"], &path).fails(1, &["was changed since it was written"]);
    run(&world, &["schedule", "install", "--yes"], &path).fails(1, &["was changed since it was written"]);
    let called = std::fs::read_to_string(world.path("home/called")).unwrap();
    assert!(!called.contains("disable"), "{called}");
    // Installed again, it is started again.
    assert_eq!(called.matches("enable --now").count(), 2, "{called}");
    std::fs::write(&service, text).unwrap();
    run(&world, &["schedule", "uninstall", "--yes"], &path).ok();
    assert_eq!((tree(&config), tree(&world.path("home/.quipu"))), before);
    let called = std::fs::read_to_string(world.path("home/called")).unwrap();
    let calls: Vec<&str> = called.lines().collect();
    assert_eq!(calls[..2], ["--user daemon-reload", "--user enable --now quipu-schedule.timer"], "{called}");
    assert!(called.contains("--user disable --now quipu-schedule.timer"), "{called}");
    assert!(run(&world, &["schedule", "uninstall"], &path).ok().err.contains("Nothing is installed"));
}

#[cfg(not(target_os = "macos"))]
#[test]
fn systemctl_that_cannot_help_is_reported() {
    let world = World::new([]);
    let empty = world.path("home/empty");
    std::fs::create_dir_all(&empty).unwrap();
    let path = empty.display().to_string();
    let installed = run(&world, &["schedule", "install", "--yes"], &path).ok();
    // It is not installed, or there is no session of systemd for it to talk to.
    assert!(installed.err.contains("the timer could not be started: "), "{}", installed.err);
    assert!(installed.err.contains("quipu schedule run --once"), "{}", installed.err);
    let removed = run(&world, &["schedule", "uninstall", "--yes"], &path).ok();
    assert!(removed.err.contains("could not be stopped"), "{}", removed.err);
    assert!(!world.path("home/.config").exists());
}

#[cfg(not(target_os = "macos"))]
#[test]
fn files_of_every_place_are_removed() {
    let world = World::new([]);
    let run = |verb: &str, config: &std::path::Path| {
        let mut command = world.quipu(&["schedule", verb, "--yes"]);
        command.env("PATH", world.path("home/none")).env("XDG_CONFIG_HOME", config);
        command.env("ANTHROPIC_API_KEY", "not-a-key");
        RunningCommand::start(command).wait()
    };
    let (one, two) = (world.path("home/one"), world.path("home/two"));
    let said = run("install", &one).ok().err;
    assert!(said.contains("does not have these variables of this shell: ANTHROPIC_API_KEY"), "{said}");
    run("install", &two).ok();
    // A relative one does not count.
    run("install", std::path::Path::new("relative")).ok();
    assert!(
        one.exists() && two.exists() && world.path("home/.config/systemd/user/quipu-schedule.timer").exists()
    );
    run("uninstall", &two).ok();
    assert!(!one.exists() && !two.exists() && !world.path("home/.config").exists());
}

#[cfg(not(target_os = "macos"))]
#[test]
fn install_says_what_it_wrote_to_programs() {
    let world = World::new([]);
    let bin = world.path("home/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("systemctl"), "#!/bin/sh\necho 'no systemctl today' >&2\nexit 1\n").unwrap();
    set_mode(&bin.join("systemctl"), 0o755);
    let path = format!("{}:/usr/bin:/bin", bin.display());
    let object = |args: &[&str]| run(&world, args, &path).ok().json();
    let installed = object(&["schedule", "install", "--yes", "--json"]);
    assert_eq!(
        (&installed["change"], &installed["kind"]),
        (&"installed".into(), &"systemd".into()),
        "{installed}"
    );
    let files = installed["files"].as_array().unwrap().clone();
    assert!(
        files.len() == 2 && files.iter().all(|file| std::path::Path::new(file.as_str().unwrap()).is_file())
    );
    assert_eq!(installed["error"], "no systemctl today", "{installed}");
    assert_eq!(object(&["schedule", "install", "--json"])["change"], "unchanged");
    let removed = object(&["schedule", "uninstall", "--yes", "--json"]);
    assert_eq!(
        (&removed["change"], &removed["files"]),
        (&"removed".into(), &installed["files"]),
        "{removed}"
    );
    assert_eq!(object(&["schedule", "uninstall", "--json"])["change"], "unchanged");
}
