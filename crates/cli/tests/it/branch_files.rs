//! `quipu branch --files`: the files that tools changed go with the conversation.

use std::collections::BTreeMap;
use std::path::Path;

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::support::*;

/// The files below the working directory, with their modes.
pub(crate) fn tree(world: &World) -> BTreeMap<String, (u32, Vec<u8>)> {
    let (root, mut found) = (world.path("work"), BTreeMap::new());
    let mut left = vec![root.clone()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => {
                    let name = path.strip_prefix(&root).unwrap().display().to_string();
                    found.insert(name, (mode(&path), std::fs::read(&path).unwrap()));
                }
            }
        }
    }
    found
}

fn writes(files: &[(&str, &str)]) -> Reply {
    let answer = Answer::new();
    let calls = files.iter().enumerate();
    calls
        .fold(answer, |answer, (at, (path, content))| {
            let args = json!({ "path": path, "content": content }).to_string();
            answer.tool_call(&format!("c{at}"), "write", &args)
        })
        .reply()
}

fn done() -> Reply {
    Answer::new().text("Done.").reply()
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

/// Two runs, and where the session stood after each.
fn two_runs(
    first: &[(&str, &str)],
    second: &[(&str, &str)],
    prepare: impl FnOnce(&World),
) -> (World, String, String) {
    let world = World::new([writes(first), done(), writes(second), done()]);
    prepare(&world);
    world.run(&["-p", "one"]).ok();
    let one = head(&world);
    world.run(&["-p", "-c", "two"]).ok();
    let two = head(&world);
    (world, one, two)
}

#[test]
fn jump_changes_only_the_files_it_previewed() {
    let (world, one, two) = two_runs(&[("a", "1"), ("b", "1")], &[("a", "two"), ("new/c", "2")], |world| {
        world.file("mine", "m");
    });
    let after = tree(&world);
    let shown = world.run(&["branch", &one, "--files", "--dry-run"]).ok().text();
    assert_eq!(shown, "  ~ a  1 bytes\n  - new/c  removed\n");
    let plan = world.run(&["branch", &one, "--files", "--dry-run", "--json"]).ok().json();
    assert_eq!(plan["files"]["changes"][1]["after"], json!({ "kind": "absent" }));
    world.run(&["branch", &one, "--files"]).fails(2, &["2 files", "--yes", "--dry-run"]);
    assert_eq!((tree(&world), head(&world)), (after.clone(), two.clone()));

    let told = world.run(&["branch", &one, "--files", "--yes", "--json"]).ok().json();
    assert_eq!((&told["from"], &told["at"], &told["problems"]), (&json!(two), &json!(one), &json!([])));
    let mut expect = after.clone();
    expect.insert("a".into(), (after["a"].0, b"1".to_vec()));
    expect.remove("new/c");
    assert_eq!(tree(&world), expect);
    assert!(!world.path("work/new").exists(), "it was made for what is gone");
    let ran = world.run(&["branch", &two, "--files", "-y"]).ok();
    assert!(ran.err.contains("+ new/c") && ran.err.contains("--files"), "{}", ran.err);
    assert_eq!(tree(&world), after);
    world.run(&["branch", &two, "--files", "--dry-run"]).ok();
    world.run(&["branch", &two, "--overwrite"]).fails(2, &["--files"]);
}

#[test]
fn foreign_changes_are_refused_overwritten_and_restored() {
    let (world, one, two) = two_runs(&[("a", "1"), ("b", "1")], &[("a", "two"), ("b", "2")], |_| {});
    world.file("b", "mine");
    let before = tree(&world);
    let refused =
        world.run(&["branch", &one, "--files", "--yes"]).fails(1, &["1 of these files", "--overwrite"]);
    assert!(
        refused.err.contains("! ~ b") && refused.err.contains("changed since then by somebody else"),
        "{}",
        refused.err
    );
    assert_eq!((tree(&world), head(&world)), (before.clone(), two.clone()));
    world.run(&["branch", &one, "--files", "--overwrite", "--yes"]).ok();
    assert_eq!((tree(&world)["a"].1.as_slice(), tree(&world)["b"].1.as_slice()), (&b"1"[..], &b"1"[..]));
    world.run(&["branch", &two, "--files", "--yes"]).ok();
    assert_eq!(tree(&world), before);
}

#[test]
fn a_terminal_is_asked() {
    let (world, one, two) = two_runs(&[("a", "1")], &[("a", "two")], |_| {});
    let (code, said) = on_terminal(&world, &["branch", &one, "--files"], "n\n", 100);
    assert!(code == Some(1) && said.contains("Change these 1 files?"), "{code:?} {said}");
    assert_eq!((tree(&world)["a"].1.as_slice(), head(&world)), (&b"two"[..], two));
    let (code, said) = on_terminal(&world, &["branch", &one, "--files"], "y\n", 100);
    assert_eq!((code, tree(&world)["a"].1.as_slice()), (Some(0), &b"1"[..]), "{said}");
}

#[test]
fn on_a_full_disk_nothing_is_changed() {
    let large: Vec<u8> = (0..900_000u32).map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    let (world, one, two) = two_runs(&[("a", "1")], &[("a", "2"), ("large", "s")], |world| {
        world.file("large", &large);
    });
    let before = tree(&world);
    // Files may grow to half a megabyte, as on a disk that is full then.
    let mut command = world.command("/bin/sh");
    let line =
        format!("trap '' XFSZ; ulimit -f 1000; exec {} branch {one} --files --yes", world.program.display());
    command.args(["-c", &line]);
    RunningCommand::start(command).wait().fails(1, &["large", "EFBIG", "Nothing was changed"]);
    assert_eq!((tree(&world), head(&world)), (before, two));
    world.run(&["branch", &one, "--files", "--yes"]).ok();
    assert_eq!(tree(&world)["large"].1, large);
}

#[test]
fn a_directory_that_is_gone_or_closed_is_told() {
    let world =
        World::unprivileged([writes(&[("d/a", "1")]), done(), writes(&[("d/a", "2"), ("b", "2")]), done()]);
    world.run(&["-p", "one"]).ok();
    let one = head(&world);
    world.run(&["-p", "-c", "two"]).ok();
    let (two, before) = (head(&world), tree(&world));
    set_mode(&world.path("work/d"), 0o500);
    world.run(&["branch", &one, "--files", "--yes"]).fails(1, &["d/a", "EACCES", "Nothing was changed"]);
    set_mode(&world.path("work/d"), 0o700);
    assert_eq!((tree(&world), head(&world)), (before, two));
    let gone = world.path("gone");
    std::fs::rename(world.path("work/d"), &gone).unwrap();
    let ran = world.run(&["branch", &one, "--files", "--yes"]).exits(1);
    assert!(
        ran.err.contains("! + d/a") && ran.err.contains("changed since then by somebody else"),
        "{}",
        ran.err
    );
    std::fs::rename(&gone, world.path("work/d")).unwrap();
    world.run(&["branch", &one, "--files", "--yes"]).ok();
}

const MANY: usize = 120;

/// Files that wait beside their targets.
fn staged(root: &Path) -> usize {
    let entries = std::fs::read_dir(root).unwrap();
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().ends_with(".tmp")).count()
}

#[test]
fn killed_anywhere_it_is_taken_back_or_brought_to_its_end() {
    let names: Vec<String> = (0..MANY).map(|at| format!("f{at:03}")).collect();
    let with = |text: &'static str| -> Vec<(&str, &str)> {
        names.iter().map(|name| (name.as_str(), text)).collect()
    };
    let (world, one, two) = two_runs(&with("1"), &with("two"), |_| {});
    let root = world.path("work");
    let (mut here, mut there) = (two, one);
    let (mut back, mut forth) = (0, 0);
    // Others of them may come and go.
    let changed = |text: &[u8]| {
        names.iter().filter(|name| std::fs::read(root.join(name)).is_ok_and(|bytes| bytes == text)).count()
    };
    // Moments that can be seen from outside: so many files are staged; so many of them have taken their places.
    let moments = [(1, 0), (MANY / 2, 0), (MANY, 0), (0, 1), (0, MANY / 2), (0, MANY - 1)];
    for (waits, placed) in moments {
        let to_one = changed(b"two") == MANY;
        let (old, new): (&[u8], &[u8]) = if to_one { (b"two", b"1") } else { (b"1", b"two") };
        let mut running = world.start(&["branch", &there, "--files", "--yes"]);
        loop {
            let ended = running.child.try_wait().unwrap().is_some();
            let reached = if placed > 0 { changed(new) >= placed } else { staged(&root) >= waits };
            if ended || reached {
                break;
            }
        }
        running.child.kill().unwrap();
        drop(running.wait());
        let moved = head(&world) != here;
        // The next move of the session settles it; to where it stands, nothing else is to be done.
        let stands = head(&world);
        let left = world.run(&["branch", &stands, "--files", "--yes"]).ok();
        assert!(!left.err.contains("warning"), "{}", left.err);
        assert_eq!((staged(&root), changed(if moved { new } else { old })), (0, MANY), "{waits} {placed}");
        if moved {
            forth += 1;
            let from = here.clone();
            here = head(&world);
            there = from;
        } else {
            back += 1;
        }
    }
    assert!(back > 0 && forth > 0, "{back} {forth}");
}

#[test]
fn unsaved_file_states_are_reported() {
    let world = World::new([
        writes(&[("big", &"x".repeat(2_000)), ("a", "1")]),
        done(),
        writes(&[("big", "2")]),
        done(),
    ]);
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"files":{"fileBytes":1000}}"#).unwrap();
    world.run(&["-p", "one"]).ok();
    let one = head(&world);
    world.run(&["-p", "-c", "two"]).ok();
    let shown = world.run(&["branch", &one, "--files", "--dry-run"]).ok().text();
    assert_eq!(shown, "  ? big  stays as it is: larger than the limit for saved files\n");
    let told = world.run(&["doctor"]).ok().text();
    assert!(told.contains("2 saved states of files that tools changed, 1 KiB of the store"), "{told}");
}

#[test]
fn old_states_make_room_and_that_is_told() {
    let text = |at: usize| -> String {
        (0..20_000)
            .map(|n: usize| char::from(b'a' + u8::try_from(n * n * (at + 7) / 3 % 26).unwrap()))
            .collect()
    };
    let texts: Vec<String> = (0..5).map(text).collect();
    let script = texts.iter().flat_map(|text| [writes(&[("a", text.as_str())]), done()]);
    let world = World::new(script);
    world.run(&["-p", "0"]).ok();
    let first = head(&world);
    for at in 1..5 {
        world.run(&["-p", "-c", &at.to_string()]).ok();
    }
    let last = head(&world);
    let shown = world.run(&["branch", &first, "--files", "--dry-run"]).ok().text();
    assert_eq!(shown, "  ~ a  20000 bytes\n");
    world.run(&["doctor", "--prune"]).ok();
    assert_eq!(world.run(&["branch", &first, "--files", "--dry-run"]).ok().text(), shown, "there is room");

    let settings = world.path("home/.quipu/settings.json");
    std::fs::write(&settings, r#"{"files":{"storeBytes":1}}"#).unwrap();
    let told = world.run(&["doctor", "--prune"]).ok().text();
    assert!(told.contains(" old file states") && told.contains("more than files.storeBytes"), "{told}");
    let shown = world.run(&["branch", &first, "--files", "--dry-run"]).ok().text();
    assert_eq!(shown, "  ? a  stays as it is: no longer saved, to free space\n");
    let doctor = world.run(&["doctor", "--json"]).ok().json();
    assert_eq!(doctor["healthy"], true, "{doctor}");
    let before = tree(&world);
    world.run(&["branch", &first, "--files", "--yes"]).ok();
    assert_eq!(tree(&world), before);
    world.run(&["branch", &last, "--files", "--yes"]).ok();

    // Without being asked, once a day.
    let world = World::new(texts.iter().flat_map(|text| [writes(&[("a", text.as_str())]), done()]));
    std::fs::write(world.path("home/.quipu/settings.json"), r#"{"files":{"storeBytes":30000}}"#).unwrap();
    world.run(&["-p", "0"]).ok();
    let told: Vec<String> = (1..5).map(|at| world.run(&["-p", "-c", &at.to_string()]).ok().err).collect();
    let times = told.iter().filter(|told| told.contains("To stay below `files.storeBytes`")).count();
    assert!(times <= 1, "{told:?}");
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
}

#[test]
fn changes_of_an_interrupted_command_are_recorded() {
    let command = "printf two > a; printf n > new; sleep 1000";
    let world = World::new([writes(&[("a", "1"), ("b", "1")]), done(), bash("c1", command), done(), done()]);
    world.run(&["-p", "one"]).ok();
    let one = head(&world);
    let mut running = world.start(&["-p", "-c", "two"]);
    while std::fs::read_to_string(world.path("work/new")).unwrap_or_default() != "n" {
        assert!(running.child.try_wait().unwrap().is_none(), "it still runs");
    }
    running.child.kill().unwrap();
    drop(running.wait());
    world.run(&["-p", "-c", "on"]).ok();
    let shown = world.run(&["branch", &one, "--files", "--dry-run"]).ok().text();
    let why = "stays as it is: not checked before a command changed it";
    assert_eq!(shown, format!("  - new  removed\n  ? a  {why}\n"));
    let mut before = tree(&world);
    world.run(&["branch", &one, "--files", "--yes"]).ok();
    before.remove("new");
    assert_eq!(tree(&world), before);
}

#[test]
fn removals_of_a_killed_command_are_listed_or_restored() {
    let git = |world: &World, args: &[&str]| {
        let mut command = world.command("git");
        command
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
            .args(args);
        command.status().is_ok_and(|status| status.success())
    };
    let first = "printf m > made; printf made > gone-again; mkdir empty";
    let second = "rm -r tracked sub untracked .env made empty; git -c user.name=t -c user.email=t@t commit -q \
                  --allow-empty -m two; printf n > new; sleep 1000";
    let world =
        World::new([bash("c1", "true"), done(), bash("c1", first), bash("c2", second), done(), done()]);
    std::fs::create_dir(world.path("work/sub")).unwrap();
    for (name, text) in [("tracked", "t\n"), ("sub/deep", "d\n"), (".gitignore", ".env\n")] {
        world.file(name, text);
    }
    if !(git(&world, &["init", "-q"]) && git(&world, &["add", "."]) && git(&world, &["commit", "-qm", "one"]))
    {
        eprintln!("note: git is not here, so this is not tested");
        return;
    }
    world.file("untracked", "u");
    world.file(".env", "PORT=1");
    world.run(&["-p", "one"]).ok();
    let (one, then) = (head(&world), tree(&world));
    let mut running = world.start(&["-p", "-c", "two"]);
    while std::fs::read_to_string(world.path("work/new")).unwrap_or_default() != "n" {
        assert!(running.child.try_wait().unwrap().is_none(), "it still runs");
    }
    running.child.kill().unwrap();
    drop(running.wait());
    // Whoever opens the session finds out; what was made and removed between is nothing.
    let shown = world.run(&["branch", &one, "--files", "--dry-run"]).ok().text();
    let why = "stays as it is: not checked before a command changed it";
    let of_git = "git commits, refs and the index are not restored";
    let lines: Vec<&str> = shown.lines().collect();
    assert!(lines.len() > 4, "{shown}");
    assert_eq!(
        lines[..4],
        ["  - gone-again  removed", "  - new  removed", "  + sub/deep  2 bytes", "  + tracked  2 bytes"],
        "{shown}"
    );
    assert_eq!(lines[4], format!("  ? .env  {why}"));
    assert!(lines[5].starts_with("  ? .git/refs/heads/main") && lines[5].ends_with(of_git), "{shown}");
    assert_eq!(lines[6..], [format!("  ? untracked  {why}")], "{shown}");
    world.run(&["branch", &one, "--files", "--yes"]).ok();
    let mut expect = then;
    expect.retain(|name, _| !name.starts_with(".git/") && !["untracked", ".env"].contains(&name.as_str()));
    let mut now = tree(&world);
    now.retain(|name, _| !name.starts_with(".git/"));
    assert_eq!(now, expect);
    assert_eq!(world.run(&["doctor", "--json"]).ok().json()["healthy"], true);
}

#[test]
fn added_directories_are_restored_where_permitted() {
    let outside = tempfile::tempdir().unwrap();
    let extra = outside.path().canonicalize().unwrap();
    let at = |name: &str| extra.join(name).display().to_string();
    let world = World::new([
        writes(&[(&at("a"), "1")]),
        done(),
        writes(&[(&at("a"), "two"), (&at("new/b"), "b"), ("here", "h")]),
        done(),
    ]);
    world.run(&["-p", "--add-dir", extra.to_str().unwrap(), "one"]).ok();
    let one = head(&world);
    world.run(&["-p", "-c", "two"]).ok();
    let two = head(&world);
    let read = |name: &str| std::fs::read_to_string(extra.join(name)).ok();
    world.run(&["branch", &one, "--files", "--yes"]).ok();
    assert_eq!((read("a").as_deref(), read("new/b")), (Some("1"), None));
    assert!(extra.is_dir() && !extra.join("new").exists(), "made for what is gone");
    assert!(!world.path("work/here").exists());
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!((read("a").as_deref(), read("new/b").as_deref()), (Some("two"), Some("b")));

    // Who did not permit it does not have it changed.
    std::fs::remove_file(world.path("home/.quipu/permissions.json")).unwrap();
    let shown = world.run(&["branch", &one, "--files", "--dry-run"]).ok().text();
    assert!(shown.contains("- here  removed"), "{shown}");
    assert_eq!(shown.matches("stays as it is: it is outside the workspace").count(), 2, "{shown}");
    world.run(&["branch", &one, "--files", "--yes"]).ok();
    assert_eq!((read("a").as_deref(), read("new/b").as_deref()), (Some("two"), Some("b")));
    world.run(&["branch", &two, "--files", "--yes"]).ok();
    assert!(world.path("work/here").exists());
}
