//! Programs that are started unconfined, looked for in every place where a command could have put one of their name.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use quipu_workspace::Helpers;

/// What is started by name somewhere in the tree.
const NAMES: [&str; 10] =
    ["sh", "bash", "grep", "git", "less", "wl-paste", "xclip", "pngpaste", "vim", "pass"];

/// A program that leaves a mark.
fn plant(path: &Path, mark: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\necho \"$0\" >> '{}'\n", mark.display())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

struct World {
    _dir: tempfile::TempDir,
    root: PathBuf,
    mark: PathBuf,
    write: Vec<PathBuf>,
}

fn world() -> World {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for made in ["ws", "home/.cache/envs/bin", "home/bin"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    let write = vec![root.join("ws"), root.join("home/.cache")];
    World { mark: root.join("mark"), _dir: dir, root, write }
}

/// Each place, as an entry of `PATH`, and where the program is put for it.
fn places(world: &World) -> Vec<(&'static str, String, PathBuf)> {
    let at = |name: &str| world.root.join(name);
    let text = |name: &str| at(name).display().to_string();
    symlink(at("ws/tools"), at("home/linked")).unwrap();
    symlink(at("home/bin"), at("ws/back")).unwrap();
    vec![
        ("the current directory", ".".into(), at("ws")),
        ("an empty entry", String::new(), at("ws")),
        ("a relative directory", "bin".into(), at("ws/bin")),
        ("a relative way up", "../ws/bin".into(), at("ws/bin")),
        ("a virtual environment", text("ws/.venv/bin"), at("ws/.venv/bin")),
        ("packages of Node", text("ws/node_modules/.bin"), at("ws/node_modules/.bin")),
        ("the workspace by another name", format!("{}/../ws/.venv/bin", text("home")), at("ws/.venv/bin")),
        ("a cache", text("home/.cache/envs/bin"), at("home/.cache/envs/bin")),
        ("a directory behind a link", text("home/linked"), at("ws/tools")),
        ("a link of the workspace that leads out", text("ws/back"), at("home/bin")),
        ("the devices", "/dev/shm/quipu-helpers".into(), at("unused")),
    ]
}

#[test]
fn no_program_is_taken_from_where_commands_write() {
    let world = world();
    let mut tried = 0;
    for (place, entry, dir) in places(&world) {
        let path = format!("{entry}:/usr/bin:/bin");
        for name in NAMES {
            plant(&dir.join(name), &world.mark);
            let helpers = Helpers::new(Some(path.as_ref()), &world.write);
            let found = helpers.find(name);
            let dir = dir.canonicalize().unwrap();
            assert!(
                found.as_ref().is_none_or(|found| !found.starts_with(&dir)),
                "{place}: {name} is {found:?}"
            );
            // Neither is it what a shell takes for the name.
            let mut shell =
                helpers.shell(&format!("command -v {name}; true"), &world.root.join("ws")).unwrap();
            let said = String::from_utf8(shell.output().unwrap().stdout).unwrap();
            assert!(!said.contains(world.root.to_str().unwrap()), "{place}: {name} is {said}");
            tried += 1;
            if dir != world.root.join("home/bin") {
                continue;
            }
            fs::remove_file(dir.join(name)).unwrap();
        }
    }
    assert!(!world.mark.exists());
    assert_eq!(tried, NAMES.len() * 11);
}

#[test]
fn a_link_into_the_workspace_is_no_program() {
    let world = world();
    let bin = world.root.join("home/bin");
    let path = format!("{}:/usr/bin:/bin", bin.display());
    for name in NAMES {
        // To a program, to one that is not there yet, and along a way that leads through the workspace and out again.
        plant(&world.root.join("ws").join(name), &world.mark);
        plant(&world.root.join("other").join(name), &world.mark);
        symlink(world.root.join("other").join(name), world.root.join("ws/out")).unwrap();
        for (target, what) in [(name, "program"), ("not-yet", "later program"), ("out", "way")] {
            symlink(world.root.join("ws").join(target), bin.join(name)).unwrap();
            let helpers = Helpers::new(Some(path.as_ref()), &world.write);
            let found = helpers.find(name);
            assert!(
                found.as_ref().is_none_or(|found| !found.starts_with(&bin)),
                "{what}: {name} is {found:?}"
            );
            let mut shell = helpers.shell(&format!("true {name}; {name} </dev/null"), &bin).unwrap();
            // What the system has of this name is run for real.
            if found.is_none() || name == "pass" {
                assert_eq!(shell.output().unwrap().status.code(), Some(127), "{what}: {name}");
            }
            let named = helpers.path(name);
            assert!(std::env::split_paths(&named).all(|dir| dir != bin), "{what}: {name}: {named:?}");
            // Other names are looked up there.
            assert!(std::env::split_paths(&helpers.path("other")).any(|dir| dir == bin), "{what}");
            fs::remove_file(bin.join(name)).unwrap();
        }
        fs::remove_file(world.root.join("ws/out")).unwrap();
    }
    assert!(!world.mark.exists());
}

#[test]
fn a_script_that_the_workspace_runs_is_no_program() {
    let world = world();
    let bin = world.root.join("home/bin");
    let script = |line: &str| {
        fs::write(bin.join("tool"), format!("#!{line}\n")).unwrap();
        fs::set_permissions(bin.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
        Helpers::new(Some(bin.as_os_str()), &world.write).find("tool")
    };
    assert_eq!(script("/bin/sh"), Some(bin.join("tool")));
    assert_eq!(script("/usr/bin/env python3"), Some(bin.join("tool")));
    assert_eq!(script(&world.root.join("ws/.venv/bin/python").display().to_string()), None);
    assert_eq!(script(".venv/bin/python"), None);
    assert_eq!(script(""), None);
    // What `env` finds for it is no link into the workspace either.
    script("/usr/bin/env runner");
    plant(&world.root.join("ws/runner"), &world.mark);
    symlink(world.root.join("ws/runner"), bin.join("runner")).unwrap();
    let helpers = Helpers::new(Some(bin.as_os_str()), &world.write);
    let mut shell = helpers.shell("tool", &world.root).unwrap();
    assert_eq!(shell.status().unwrap().code(), Some(127));
    assert!(!world.mark.exists());
}

#[test]
fn programs_of_ordinary_directories_are_found() {
    let world = world();
    let bin = world.root.join("home/bin");
    plant(&bin.join("pass"), &world.mark);
    plant(&world.root.join("elsewhere/real"), &world.mark);
    symlink("../../elsewhere/real", bin.join("linked")).unwrap();
    fs::write(bin.join("data"), "no program").unwrap();
    let helpers = Helpers::new(Some(bin.as_os_str()), &world.write);
    assert_eq!(helpers.find("pass"), Some(bin.join("pass")));
    assert_eq!(helpers.find("linked"), Some(bin.join("linked")));
    assert_eq!(helpers.find(bin.join("pass")), Some(bin.join("pass")));
    assert_eq!(helpers.find("data"), None);
    assert_eq!(helpers.find("quipu-no-such-program"), None);
    // Behind `PATH`, and without one.
    assert!(helpers.find("sh").is_some());
    assert!(Helpers::new(None, &[]).find("sh").is_some());
    assert!(helpers.command("pass").unwrap().status().unwrap().success());
    assert!(world.mark.exists());
    // It stays what it was, whatever comes before it by then.
    plant(&world.root.join("first/tool"), &world.mark);
    fs::create_dir_all(world.root.join("zeroth")).unwrap();
    let path = std::env::join_paths([world.root.join("zeroth"), world.root.join("first")]).unwrap();
    let helpers = Helpers::new(Some(&path), &world.write);
    assert_eq!(helpers.find("tool"), Some(world.root.join("first/tool")));
    plant(&world.root.join("zeroth/tool"), &world.mark);
    assert_eq!(helpers.find("tool"), Some(world.root.join("first/tool")));
}

#[test]
fn lines_of_the_user_name_no_file_of_the_workspace() {
    let world = world();
    let ws = world.root.join("ws");
    plant(&ws.join("node_modules/.bin/ed"), &world.mark);
    plant(&ws.join("my tools/ed"), &world.mark);
    symlink("later", ws.join("soon")).unwrap();
    symlink(ws.join("node_modules/.bin/ed"), world.root.join("home/ed")).unwrap();
    let helpers = Helpers::new(Some("/usr/bin:/bin".as_ref()), &world.write);
    let full = |name: &str| world.root.join(name).display().to_string();
    for line in [
        "./node_modules/.bin/ed".to_owned(),
        "node_modules/.bin/ed --wait".into(),
        "exec node_modules/.bin/ed \"$1\"".into(),
        "A=b node_modules/.bin/ed".into(),
        "true; (./node_modules/.bin/ed)".into(),
        "$PWD/node_modules/.bin/ed".into(),
        format!("'{}' \"$1\"", full("ws/my tools/ed")),
        "\"my tools/ed\"".into(),
        "./soon".into(),
        full("home/ed"),
        format!("sh {}", full("ws/../ws/node_modules/.bin/ed")),
    ] {
        let error = helpers.shell(&line, &ws).map(drop).unwrap_err().to_string();
        assert!(error.contains("could change"), "{line}: {error}");
    }
    for line in ["cat </dev/null 2>/dev/null", "less -R", "sed s/a/b/", "test -d .", "vim +/x"] {
        assert!(helpers.shell(line, &ws).is_ok(), "{line}");
    }
    // An empty directory of programs is no current directory.
    plant(&ws.join("cat"), &world.mark);
    helpers.shell("cat </dev/null", &ws).unwrap().status().unwrap();
    assert!(!world.mark.exists());
}
