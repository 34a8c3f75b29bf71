//! Sandboxes of a scope: what a session in one has of its workspace, in namespaces and in containers of podman.

#[path = "../../../workspace/tests/it/containers/image.rs"]
mod image;

use quipu_testkit::{Answer, Reply};
use serde_json::json;

use self::image::{Image, podman, processes, runtime};
use crate::support::*;

fn done() -> Reply {
    Answer::new().text("Done.").reply()
}

fn told(world: &World) -> String {
    wire_text(messages(world.requests().last().unwrap()).last().unwrap())
}

/// The names of the tools that the model was offered last.
fn offered(world: &World) -> Vec<String> {
    let request = world.requests().last().unwrap().json();
    let tools = request["tools"].as_array().unwrap();
    tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Settings of a sandbox, with these members.
fn set(world: &World, members: &serde_json::Value) {
    let settings = json!({ "retry": { "baseDelayMs": 1 }, "sandbox": members });
    std::fs::write(world.path("home/.quipu/settings.json"), settings.to_string()).unwrap();
}

fn in_image(world: &World, image: &Image, access: &str) {
    let (name, prefix) = (&image.name, &image.prefix);
    set(
        world,
        &json!({
            "mode": "all", "workspaceAccess": access, "backend": "podman", "image": name, "prefix": prefix,
            "runtime": runtime().unwrap_or_else(|| "crun".to_owned()),
        }),
    );
}

#[test]
fn commands_in_a_container_change_files_that_undo_restores() {
    let Some(image) = Image::make() else { return };
    let world = World::new([
        bash("c1", "pwd; echo two > given.txt; mkdir sub; echo made > sub/made.txt; env"),
        call("c2", "read", &json!({ "path": "/workspace/sub/made.txt" })),
        call("c3", "write", &json!({ "path": "/workspace/sub/written.txt", "content": "by a tool" })),
        bash("c4", "cat sub/written.txt"),
        done(),
    ]);
    world.file("given.txt", "one\n");
    in_image(&world, &image, "rw");
    world.run(&["-p", "work"]).ok();
    let requests = world.requests();
    let result = |at: usize| wire_text(messages(&requests[at]).last().unwrap());
    assert!(result(1).starts_with("/workspace\n") && result(1).contains("HOME=/tmp"), "{}", result(1));
    assert!(
        !result(1).contains("QUIPU_HOME") && !result(1).contains(&world.path("home").display().to_string())
    );
    assert!(result(2).contains("made"), "{}", result(2));
    assert!(result(4).contains("by a tool"), "{}", result(4));
    assert_eq!(std::fs::read_to_string(world.path("work/given.txt")).unwrap(), "two\n");
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(std::fs::read_to_string(world.path("work/given.txt")).unwrap(), "one\n");
    assert!(!world.path("work/sub/made.txt").exists());
    let [(_, state)] = image.containers().try_into().unwrap();
    assert_eq!(state, "Exited");
}

#[test]
fn nothing_runs_outside_where_there_is_no_container() {
    let write = |id: &str| bash(id, "echo x > ran");
    let world = World::new([write("c1"), done(), write("c2"), done()]);
    let base = json!({ "mode": "all", "workspaceAccess": "rw", "backend": "podman" });
    set(&world, &base);
    world.run(&["--permissions", "full", "-p", "work"]).ok();
    assert!(
        told(&world).contains("Nothing was run") && told(&world).contains("sandbox.image"),
        "{}",
        told(&world)
    );
    let mut named = base;
    named["image"] = "quipu-test-not-there".into();
    set(&world, &named);
    world.run(&["-p", "again"]).ok();
    assert!(told(&world).contains("Nothing was run"), "{}", told(&world));
    assert!(!world.path("work/ran").exists());
}

#[test]
fn session_resumed_under_other_settings_has_their_sandbox() {
    let Some(image) = Image::make() else { return };
    let world = World::new([
        bash("c1", "pwd; echo one > made.txt"),
        done(),
        bash("c2", "pwd; cat made.txt; echo two > made.txt"),
        done(),
        bash("c3", "pwd; cat made.txt; echo three > made.txt"),
        done(),
    ]);
    let work = world.path("work").display().to_string();
    world.run(&["-p", "first"]).ok();
    assert!(told(&world).contains(&work), "{}", told(&world));
    in_image(&world, &image, "ro");
    world.run(&["-p", "-c", "second"]).ok();
    assert!(
        told(&world).contains("/workspace\none") && told(&world).contains("Read-only"),
        "{}",
        told(&world)
    );
    assert!(
        !offered(&world).iter().any(|tool| ["write", "edit"].contains(&tool.as_str())),
        "{:?}",
        offered(&world)
    );
    in_image(&world, &image, "rw");
    world.run(&["-p", "-c", "third"]).ok();
    assert!(told(&world).contains("/workspace\none"), "{}", told(&world));
    assert_eq!(std::fs::read_to_string(world.path("work/made.txt")).unwrap(), "three\n");
    assert!(offered(&world).contains(&"write".to_owned()));
}

#[test]
fn commands_in_a_container_end_with_a_killed_agent() {
    let Some(image) = Image::make() else { return };
    let mark = format!("88{}", std::process::id());
    let world = World::new([
        bash("c1", &format!("setsid sleep 1{mark} & echo begun > begun; sleep 2{mark}")),
        done(),
    ]);
    in_image(&world, &image, "rw");
    let running = world.start(&["-p", "work"]);
    let patience = std::time::Instant::now();
    while !world.path("work/begun").exists() {
        assert!(patience.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    running.signal(nix::sys::signal::Signal::SIGKILL);
    drop(running.wait());
    while processes(&mark) > 0 {
        assert!(patience.elapsed().as_secs() < 60, "it lives on");
        std::thread::yield_now();
    }
    let [(name, state)] = image.containers().try_into().unwrap();
    assert_eq!(state, "Up", "the next use of it, or the pruning, ends it");
    podman(&["rm", "-f", "-t", "0", &name]);
}

#[test]
fn workspace_is_read_only_in_namespaces_where_it_should_be() {
    let world = World::new([
        bash(
            "c1",
            "cat given.txt; echo two > given.txt; echo x > new.txt; echo temporary > $TMPDIR/x && cat $TMPDIR/x",
        ),
        call("c2", "write", &json!({ "path": "new.txt", "content": "x" })),
        done(),
    ]);
    world.file("given.txt", "one\n");
    set(&world, &json!({ "mode": "all", "workspaceAccess": "ro" }));
    world.run(&["--permissions", "full", "-p", "work"]).ok();
    let requests = world.requests();
    let result = wire_text(messages(&requests[1]).last().unwrap());
    assert!(result.contains("one") && result.contains("temporary"), "{result}");
    assert_eq!(std::fs::read_to_string(world.path("work/given.txt")).unwrap(), "one\n");
    assert!(!world.path("work/new.txt").exists());
    let names = ["write", "edit", "apply_patch"];
    assert!(!offered(&world).iter().any(|tool| names.contains(&tool.as_str())), "{:?}", offered(&world));
}

#[test]
fn sandbox_without_a_workspace_has_a_folder_of_its_own() {
    let world = World::new([
        bash("c1", "pwd; ls; echo one > made.txt"),
        call("c2", "write", &json!({ "path": "written.txt", "content": "by a tool" })),
        call("c3", "read", &json!({ "path": world_file() })),
        done(),
        bash("c4", "cat made.txt written.txt"),
        done(),
        bash("c5", "pwd"),
        done(),
    ]);
    world.file("given.txt", "of the user\n");
    set(&world, &json!({ "mode": "all" }));
    world.run(&["-p", "work"]).ok();
    let requests = world.requests();
    let result = |at: usize| wire_text(messages(&requests[at]).last().unwrap());
    let folder = world.path("home/.quipu/sandboxes");
    assert!(
        result(1).starts_with(&folder.display().to_string()) && !result(1).contains("given.txt"),
        "{}",
        result(1)
    );
    assert!(result(2).contains("written.txt"), "{}", result(2));
    assert!(!result(3).contains("of the user"), "{}", result(3));
    assert!(!world.path("work/made.txt").exists());
    let own = std::fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    assert_eq!(std::fs::read_to_string(own.join("made.txt")).unwrap(), "one\n");
    // The next session of the agent, from another directory.
    world.run(&["-p", "again"]).ok();
    assert!(told(&world).contains("one\nby a tool"), "{}", told(&world));
    // Without a sandbox all is as it was.
    set(&world, &json!({ "mode": "non-main" }));
    world.run(&["-p", "once more"]).ok();
    assert!(told(&world).contains(&world.path("work").display().to_string()), "{}", told(&world));
}

/// A file that a sandbox of its own does not have.
fn world_file() -> &'static str {
    "../../../../work/given.txt"
}
