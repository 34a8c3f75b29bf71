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
    // With these, `doctor` finds a fault.
    set(&world, &json!({}));
}

/// What `doctor` says of containers: the states, the texts, and its exit code.
fn doctor(world: &World, programs: Option<&std::path::Path>) -> (i32, Vec<(String, String)>) {
    let mut command = world.quipu(&["doctor", "--json"]);
    if let Some(programs) = programs {
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    }
    let ran = RunningCommand::start(command).wait();
    let findings = ran.json()["findings"].as_array().unwrap().clone();
    let text = |of: &serde_json::Value, name: &str| of[name].as_str().unwrap().to_owned();
    let ours = findings.iter().filter(|finding| finding["what"] == "containers");
    let ours: Vec<_> = ours.map(|finding| (text(finding, "state"), text(finding, "detail"))).collect();
    let is_bad = findings.iter().any(|finding| finding["state"] == "bad");
    assert_eq!(ran.json()["healthy"], !is_bad);
    (ran.status.code().unwrap(), ours)
}

#[test]
fn doctor_tells_of_containers_only_where_they_are_wanted() {
    let world = World::new([]);
    assert_eq!(doctor(&world, None), (0, vec![]));
    set(&world, &json!({ "mode": "all", "image": "unused" }));
    assert_eq!(doctor(&world, None), (0, vec![]));
    set(&world, &json!({ "backend": "podman", "image": "unused" }));
    let (code, found) = doctor(&world, None);
    assert_eq!((code, found[0].0.as_str()), (0, "note"), "{found:?}");
    assert!(found[0].1.contains("`sandbox.mode` is off"), "{found:?}");
}

#[test]
fn doctor_runs_a_container_and_leaves_none() {
    let Some(image) = Image::make() else { return };
    let world = World::new([]);
    in_image(&world, &image, "rw");
    let (code, found) = doctor(&world, None);
    let states: Vec<&str> = found.iter().map(|(state, _)| state.as_str()).collect();
    assert_eq!((code, &states[..]), (0, &["good", "good", "good"][..]), "{found:?}");
    let version = podman(&["--version"]).rsplit(' ').next().unwrap().to_owned();
    assert!(found[0].1.ends_with(&format!("/podman {version}")), "{found:?}");
    assert!(world.run(&["doctor"]).ok().text().contains("ok    containers   a container of it runs"));
    assert_eq!(image.containers(), []);
    // An image that is not there, and a runtime that is not.
    set(&world, &json!({ "mode": "all", "backend": "podman", "image": "quipu-test-not-there" }));
    let (code, found) = doctor(&world, None);
    assert_eq!((code, found.len(), found[1].0.as_str()), (4, 2, "bad"), "{found:?}");
    assert!(found[1].1.contains("podman import"), "{found:?}");
    let broken = json!({ "mode": "all", "backend": "podman", "image": image.name, "prefix": image.prefix, "runtime": "no-such-runtime" });
    set(&world, &broken);
    let (code, found) = doctor(&world, None);
    assert_eq!((code, found.len(), found[2].0.as_str()), (4, 3, "bad"), "{found:?}");
    assert!(found[2].1.contains("sandbox.runtime"), "{found:?}");
    assert_eq!(image.containers(), []);
}

#[test]
fn doctor_survives_a_program_that_prints_rubbish() {
    let world = World::new([]);
    let programs = world.path("home/programs");
    std::fs::create_dir(&programs).unwrap();
    set(&world, &json!({ "mode": "non-main", "backend": "podman", "image": "any" }));
    let fake = |script: &str| {
        std::fs::write(programs.join("podman"), format!("#!/bin/sh\n{script}\n")).unwrap();
        set_mode(&programs.join("podman"), 0o755);
        let (code, found) = doctor(&world, Some(&programs));
        assert_eq!(code, 4, "{found:?}");
        assert!(
            found.iter().all(|(_, detail)| detail.len() < 2_000 && !detail.contains('\u{1b}')),
            "{found:?}"
        );
        found
    };
    let found = fake(r"head -c 3000000 /dev/zero | tr '\0' x; printf '\033[31mred'");
    assert!(found.len() == 1 && found[0].1.contains("could not say its version"), "{found:?}");
    let found = fake("exit 7");
    assert!(found.len() == 1 && found[0].1.contains("it printed nothing"), "{found:?}");
    let found =
        fake(r"[ $1 = --version ] && echo podman version 9.8.7 && exit; printf '\033]0;x\007\n\n'; exit 1");
    assert!(found.len() == 2 && found[0].1.ends_with("podman 9.8.7") && found[1].0 == "bad", "{found:?}");
    assert!(!world.path("home/.quipu/containers").exists(), "nothing was made");
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
    let why = "write is not offered here: denied by write (sandbox.workspaceAccess is `ro`)";
    assert!(told(&world).contains(why), "{}", told(&world));
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

/// A job is no main conversation: `non-main` confines it, and its runs find what those before them made.
#[test]
fn jobs_work_in_a_sandbox_of_their_own() {
    let world = World::new([]);
    set(&world, &json!({ "mode": "non-main", "scope": "session" }));
    for name in ["a", "b"] {
        let add = ["schedule", "add", "prompt", "--every", "1d", "--budget", "9", "--name", name, "go"];
        world.run(&add).ok();
    }
    let folder = world.path("home/.quipu/sandboxes");
    for (job, runs) in [("a", 1), ("a", 2), ("b", 1)] {
        world.server.push(bash("c1", "pwd; echo ran >> ran.txt; wc -l < ran.txt"));
        world.server.push(done());
        world.run(&["schedule", "run", job]).ok();
        let said = told(&world);
        assert!(said.contains(&folder.display().to_string()), "{job}: {said}");
        assert!(said.lines().any(|line| line.trim() == runs.to_string()), "{job}, {runs}: {said}");
    }
    assert!(!world.path("work/ran.txt").exists());
}

/// What a run with these options makes of the calls: their results.
fn results_of(world: &World, args: &[&str], calls: &[(&str, serde_json::Value)]) -> Vec<String> {
    let mut answer = Answer::new();
    for (at, (tool, arguments)) in calls.iter().enumerate() {
        answer = answer.tool_call(&format!("c{at}"), tool, &arguments.to_string());
    }
    world.server.push(answer.reply());
    world.server.push(done());
    world.run(&[args, &["-p", "work"]].concat()).ok();
    crate::permissions::results(world)
}

fn command(text: &str) -> (&'static str, serde_json::Value) {
    ("bash", json!({ "command": text }))
}

#[test]
fn rules_of_the_directory_hold_in_a_sandbox_of_its_own() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new([]);
    for (effect, rule) in [
        ("deny", "bash(touch *)"),
        ("deny", "write"),
        ("deny", "read(secret/**)"),
        ("ask", "bash(mkdir *)"),
        ("allow", "bash(printf *)"),
    ] {
        world.run(&["permissions", "add", effect, rule]).ok();
    }
    std::fs::create_dir(world.path("work/secret")).unwrap();
    world.file("secret/key", "of the user\n");
    set(&world, &json!({ "mode": "all" }));
    let calls = [
        command("touch made"),
        ("write", json!({ "path": "made", "content": "x" })),
        ("read", json!({ "path": world.path("work/secret/key") })),
        command("mkdir made"),
        command("printf free"),
    ];
    let told = results_of(&world, &[], &calls);
    assert!(told[0].contains("`bash(touch *)` denies this call"), "{told:?}");
    assert!(told[1].contains("`write` denies this call"), "{told:?}");
    assert!(told[2].contains("`read(secret/**)` denies this call"), "{told:?}");
    assert!(told[3].contains("nobody is here"), "{told:?}");
    assert_eq!(told[4], "free");
    // Its mode counts as well, and what it allows is not of the folder.
    world.run(&["permissions", "set", "ask"]).ok();
    let told = results_of(&world, &[], &[command("printf free")]);
    assert!(told[0].contains("nobody is here"), "{told:?}");
    let told = results_of(&world, &["--permissions", "workspace"], &[command("printf free")]);
    assert_eq!(told, ["free"], "it was asked for");
    assert_eq!(results_of(&world, &[], &[command("printf free")]), ["free"], "and saved");
    let told = results_of(&world, &["-c"], &[command("touch made")]);
    assert!(told[0].contains("denies this call"), "{told:?}");
}

#[test]
fn permissions_are_tested_as_in_a_sandbox_of_its_own() {
    let world = World::new([]);
    world.run(&["permissions", "add", "deny", "bash(touch *)"]).ok();
    world.run(&["permissions", "add", "allow", "bash(printf *)"]).ok();
    world.run(&["permissions", "set", "ask"]).ok();
    set(&world, &json!({ "mode": "all" }));
    let denied = world.run(&["permissions", "test", "touch made"]).exits(8);
    assert!(denied.text().contains("deny bash(touch *)"), "{}", denied.text());
    let asked = world.run(&["permissions", "test", "printf free"]).exits(7);
    assert!(asked.text().contains("This mode asks before every command"), "{}", asked.text());
    let found = world.run(&["doctor", "--json"]).json();
    let findings = found["findings"].as_array().unwrap().clone();
    let here = findings.iter().find(|finding| finding["what"] == "permissions").unwrap();
    let detail = here["detail"].as_str().unwrap();
    assert!(detail.starts_with("ask in ") && detail.contains("sessions work in "), "{detail}");
    assert!(!world.path("home/.quipu/sandboxes").exists(), "nothing was made");
}

#[test]
fn full_mode_leaves_no_sandbox_of_its_own() {
    if !crate::permissions::confined() {
        return;
    }
    let world = World::new([]);
    world.file("given.txt", "of the user\n");
    set(&world, &json!({ "mode": "all" }));
    let made = world.path("work/made");
    let calls = [
        command(&format!("echo x > {}", made.display())),
        ("write", json!({ "path": made, "content": "x" })),
        ("read", json!({ "path": world.path("work/given.txt") })),
        command("printf free"),
    ];
    let told = results_of(&world, &["--permissions", "full"], &calls);
    assert!(!made.exists(), "{told:?}");
    assert!(told[1].contains("nobody is here") && told[2].contains("nobody is here"), "{told:?}");
    assert_eq!(told[3], "free");
}

#[test]
fn unreadable_settings_of_a_sandbox_close_it() {
    let world = World::new([
        bash("c1", "echo x > ran"),
        done(),
        bash("c2", "echo x > ran"),
        done(),
        bash("c3", "pwd"),
        done(),
    ]);
    let backend = json!({ "mode": "all", "workspaceAccess": "rw", "backend": "podmann", "image": "any" });
    set(&world, &backend);
    let ran = world.run(&["--permissions", "full", "-p", "work"]).ok();
    assert!(ran.err.contains("commands in sandboxes do not run until it is corrected"), "{}", ran.err);
    assert!(
        told(&world).contains("`sandbox.backend` or `sandbox.runtime` cannot be read"),
        "{}",
        told(&world)
    );
    assert!(!world.path("work/ran").exists());
    let (code, found) = doctor(&world, None);
    assert_eq!((code, found[0].0.as_str()), (4, "bad"), "{found:?}");
    // Also where more is missing.
    set(&world, &json!({ "mode": "all", "backend": "dokcer" }));
    world.run(&["-p", "more"]).ok();
    assert!(
        told(&world).contains("`sandbox.backend` or `sandbox.runtime` cannot be read"),
        "{}",
        told(&world)
    );
    set(&world, &json!({ "mode": "non_main" }));
    world.run(&["-p", "again"]).ok();
    assert!(told(&world).contains("/.quipu/sandboxes/"), "{}", told(&world));
    set(&world, &json!({}));
}

/// A program that never ends is waited for in a thread of its own.
#[test]
fn podman_that_hangs_holds_up_no_abort() {
    let world = World::new([bash("c1", "echo x")]);
    let programs = world.path("home/programs");
    std::fs::create_dir(&programs).unwrap();
    let calls = world.path("home/calls");
    let script = format!(
        "#!/bin/sh\necho \"$1\" >> {}\n[ \"$1\" = image ] && exec sleep 600\nexit 0\n",
        calls.display()
    );
    std::fs::write(programs.join("podman"), script).unwrap();
    set_mode(&programs.join("podman"), 0o755);
    set(&world, &json!({ "mode": "all", "workspaceAccess": "rw", "backend": "podman", "image": "any" }));
    let mut command = world.quipu(&["-p", "work"]);
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    let running = RunningCommand::start(command);
    let said = || std::fs::read_to_string(&calls).unwrap_or_default();
    let patience = std::time::Instant::now();
    while said().is_empty() {
        assert!(patience.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    let since = std::time::Instant::now();
    running.signal(nix::sys::signal::Signal::SIGINT);
    running.wait().exits(130);
    assert!(since.elapsed().as_secs() < 40, "{:?}", since.elapsed());
    assert_eq!(said().lines().filter(|call| *call == "image").count(), 1, "{}", said());
    set(&world, &json!({}));
}

/// A file that a sandbox of its own does not have.
fn world_file() -> &'static str {
    "../../../../work/given.txt"
}
