//! Worktrees of sub-agents: what they see, what is left of them, merges, and repositories that mean harm.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use quipu_testkit::{Answer, CapturedRequest, Gate, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn put(world: &World, path: &str, text: &str) {
    let path = world.path(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn git(world: &World, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(world.path("work"))
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A repository with a commit of three files, and sub-agents.
fn repository(world: &World) {
    put(world, "home/.quipu/settings.json", r#"{"agents":{"tool":"on"},"retry":{"baseDelayMs":1}}"#);
    git(world, &["init", "-q"]);
    put(world, "work/kept.txt", "kept\n");
    put(world, "work/text.txt", "one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    put(world, "work/gone.txt", "goes\n");
    git(world, &["add", "."]);
    git(world, &["commit", "-qm", "begin"]);
}

fn send(id: &str, prompt: &str) -> Reply {
    call(id, "task", &json!({ "prompt": prompt, "worktree": true, "description": "Change it" }))
}

fn write(id: &str, path: &str, content: &str) -> Reply {
    call(id, "write", &json!({ "path": path, "content": content }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

fn result(request: &CapturedRequest) -> String {
    wire_text(&messages(request).pop().unwrap())
}

/// The worktrees that `quipu agents` lists.
fn worktrees(world: &World) -> Vec<Value> {
    let rows = world.run(&["agents", "--json"]).ok().json_lines();
    rows.into_iter().filter(|row| row["worktreeId"].is_string()).collect()
}

fn branches(world: &World) -> String {
    git(world, &["branch", "--format=%(refname:short)"])
}

fn read(world: &World, path: &str) -> String {
    std::fs::read_to_string(world.path(path)).unwrap()
}

#[test]
fn worktree_of_a_sub_agent_is_merged_by_its_parent() {
    let world = World::new([
        send("c1", "Change things"),
        write("w1", "new/made.txt", "by the child\n"),
        bash("b1", "sed -i s/six/SIX/ text.txt && rm gone.txt && cat kept.txt && git branch --show-current"),
        says("Changed."),
    ]);
    repository(&world);
    put(&world, "work/kept.txt", "changed and not committed\n");
    world.server.push(says("Later."));
    world.run(&["-p", "Delegate it"]).ok();
    let requests = world.requests();
    let own = result(&requests[3]);
    // It sees the commit, and not what was not committed.
    assert!(own.contains("kept\n") && own.contains("quipu-wt-"), "{own}");
    let returned = result(&requests[4]);
    assert!(returned.contains("3 files changed, +2 -2"), "{returned}");
    assert!(returned.contains("without the 1 uncommitted changes"), "{returned}");
    assert!(!world.path("work/new").exists() && world.path("work/gone.txt").exists());
    let [row] = &*worktrees(&world) else { panic!("one is left") };
    let id = row["worktreeId"].as_str().unwrap();
    assert!(returned.contains(&format!("worktree {id}:")), "{returned}");
    assert_eq!((&row["state"], &row["title"]), (&json!("changed"), &json!("Change it")));
    assert!(branches(&world).contains(&format!("quipu-{id}")));
    // Both changed one file: in different lines it is put together.
    put(&world, "work/text.txt", "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    world.server.push(call("c2", "task", &json!({ "merge": id })));
    world.server.push(says("Merged."));
    world.run(&["-p", "-c", "Merge it"]).ok();
    let merged = result(world.requests().last().unwrap());
    assert!(merged.starts_with("3 files were changed. Nothing was committed."), "{merged}");
    assert!(merged.contains("combined text.txt") && merged.contains("removed gone.txt"), "{merged}");
    assert_eq!(read(&world, "work/text.txt"), "ONE\ntwo\nthree\nfour\nfive\nSIX\nseven\n");
    assert_eq!(read(&world, "work/new/made.txt"), "by the child\n");
    assert!(!world.path("work/gone.txt").exists());
    assert_eq!(worktrees(&world), Vec::<Value>::new());
    assert_eq!(branches(&world), "main");
    assert_eq!(git(&world, &["worktree", "list"]).lines().count(), 1);
    // The merge is a step of the parent, which can be undone with its files.
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(read(&world, "work/text.txt"), "ONE\ntwo\nthree\nfour\nfive\nsix\nseven\n");
    assert!(world.path("work/gone.txt").exists() && !world.path("work/new/made.txt").exists());
}

#[test]
fn worktree_without_a_change_is_removed() {
    let world = World::new([send("c1", "Look"), bash("b1", "cat kept.txt"), says("Seen."), says("Well.")]);
    repository(&world);
    world.run(&["-p", "Delegate it"]).ok();
    let returned = result(world.requests().last().unwrap());
    assert!(returned.contains("Nothing was changed in its worktree, which is removed."), "{returned}");
    assert_eq!((worktrees(&world).len(), branches(&world)), (0, "main".to_owned()));
}

#[test]
fn conflicting_worktree_changes_nothing_until_it_is_discarded() {
    let world = World::new([
        send("c1", "Change"),
        write("w1", "text.txt", "theirs\n"),
        write("w2", "also.txt", "new\n"),
        says("Done."),
        says("Well."),
    ]);
    repository(&world);
    world.run(&["-p", "Delegate it"]).ok();
    put(&world, "work/text.txt", "ours\n");
    let id = worktrees(&world)[0]["worktreeId"].as_str().unwrap().to_owned();
    let refused = world.run(&["agents", "merge", &id]);
    assert!(refused.err.contains("text.txt: both changed the same lines"), "{}", refused.err);
    assert!(refused.err.contains("nothing was merged, because of 1 conflict"), "{}", refused.err);
    assert_eq!(read(&world, "work/text.txt"), "ours\n");
    assert!(!world.path("work/also.txt").exists());
    let unknown = world.run(&["agents", "merge", "wt-none"]);
    assert!(unknown.err.contains("there is no worktree `wt-none`"), "{}", unknown.err);
    let unasked = world.run(&["agents", "discard", &id]);
    assert!(unasked.err.contains("--yes"), "{}", unasked.err);
    // A directory that somebody removed is listed, and its branch can still be taken over or removed.
    std::fs::remove_dir_all(worktrees(&world)[0]["path"].as_str().unwrap()).unwrap();
    assert_eq!(worktrees(&world).len(), 1);
    world.run(&["agents", "discard", &id, "--yes"]).ok();
    assert_eq!((worktrees(&world).len(), branches(&world)), (0, "main".to_owned()));
}

#[test]
fn killed_process_leaves_a_worktree_that_a_person_merges() {
    let gate = Gate::new();
    let never = Reply::sse("").then_gate(&gate).then(Answer::new().text("Late.").stream());
    let world = World::new([send("c1", "Change"), write("w1", "made.txt", "by the child\n"), never]);
    repository(&world);
    let mut running = world.start(&["-p", "Delegate it"]);
    reached(&gate);
    let id = worktrees(&world)[0]["worktreeId"].as_str().unwrap().to_owned();
    assert_eq!(worktrees(&world)[0]["state"], "in use");
    let busy = world.run(&["agents", "merge", &id]);
    assert!(busy.err.contains("is in use"), "{}", busy.err);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    gate.open();
    let [row] = &*worktrees(&world) else { panic!("one is left") };
    assert_eq!(row["state"], "interrupted");
    // Nobody knows yet what it would change, so the model does not merge it.
    world.server.push(call("c2", "task", &json!({ "merge": id })));
    world.server.push(says("Well."));
    world.run(&["-p", "--permissions", "full", "Merge it"]).ok();
    let refused = result(world.requests().last().unwrap());
    assert!(refused.contains("Not merged: ") && refused.contains("a person has to"), "{refused}");
    assert_eq!(worktrees(&world)[0]["state"], "interrupted");
    assert!(!world.path("work/made.txt").exists());
    // A person can go on in its session, where it worked.
    world.server.push(says("Going on."));
    world.run(&["-p", "--session", row["session"].as_str().unwrap(), "Go on"]).ok();
    let merged = world.run(&["agents", "merge", &id[3..7]]).ok();
    assert!(merged.text().contains("added made.txt"), "{}", merged.text());
    assert_eq!(read(&world, "work/made.txt"), "by the child\n");
    assert_eq!((worktrees(&world).len(), branches(&world)), (0, "main".to_owned()));
}

#[test]
fn hostile_repository_runs_nothing_for_a_worktree() {
    let world =
        World::new([send("c1", "Change"), write("w1", "text.txt", "theirs\n"), says("Done."), says("Well.")]);
    repository(&world);
    let plant = world.path("plant.sh");
    // Where git is confined, it can write to the directory of the repository only.
    let traces = [world.path("ran"), world.path("work/.git/ran")];
    let [ran, ran_confined] = traces.each_ref().map(|path| path.display().to_string());
    std::fs::write(&plant, format!("#!/bin/sh\ntouch {ran}\ntouch {ran_confined}\ncat\n")).unwrap();
    std::fs::set_permissions(&plant, std::fs::Permissions::from_mode(0o755)).unwrap();
    let plant = plant.display().to_string();
    for hook in ["post-checkout", "post-index-change", "reference-transaction", "pre-commit", "post-commit"] {
        std::fs::create_dir_all(world.path("work/.git/hooks")).unwrap();
        std::os::unix::fs::symlink(&plant, world.path(&format!("work/.git/hooks/{hook}"))).unwrap();
    }
    let attributes = "* filter=evil diff=evil merge=evil\nkept.txt filter=later\ngone.txt filter=branch\n";
    put(&world, "work/.git/info/attributes", attributes);
    // Settings that hold for worktrees, and for their branches, only.
    for name in ["later", "branch"] {
        let text = format!(
            "[filter \"{name}\"]\n clean = {plant}\n smudge = {plant}\n process = {plant}\n required = true\n"
        );
        put(&world, &format!("{name}.config"), &text);
    }
    let [later, branch] =
        ["later.config", "branch.config"].map(|name| world.path(name).display().to_string());
    let config = read(&world, "work/.git/config");
    put(
        &world,
        "work/.git/config",
        &format!(
            "{config}[core]\n fsmonitor = {plant}\n[filter \"evil\"]\n clean = {plant}\n smudge = {plant}\n required = true\n\
             [diff \"evil\"]\n command = {plant}\n textconv = {plant}\n[merge \"evil\"]\n driver = {plant}\n\
             [includeIf \"gitdir:**/worktrees/**\"]\n path = {later}\n[includeIf \"onbranch:quipu-*\"]\n path = {branch}\n"
        ),
    );
    world.run(&["-p", "Delegate it"]).ok();
    let id = worktrees(&world)[0]["worktreeId"].as_str().unwrap().to_owned();
    world.run(&["agents", "merge", &id]).ok();
    assert_eq!(read(&world, "work/text.txt"), "theirs\n");
    assert!(traces.iter().all(|trace| !trace.exists()), "something of the repository ran");
}

#[test]
fn merge_does_not_follow_a_link_of_the_repository() {
    let world = World::new([
        send("c1", "Change"),
        write("w1", "docs/post-checkout", "theirs\n"),
        says("Done."),
        says("Well."),
    ]);
    repository(&world);
    world.run(&["-p", "Delegate it"]).ok();
    std::fs::create_dir_all(world.path("work/.git/hooks")).unwrap();
    std::os::unix::fs::symlink(".git/hooks", world.path("work/docs")).unwrap();
    let [row] = &*worktrees(&world) else { panic!("one is left") };
    let id = row["worktreeId"].as_str().unwrap();
    let refused = world.run(&["agents", "merge", id]);
    let why = "docs/post-checkout: a symbolic link is in its place or above it";
    assert!(refused.err.contains(why), "{}", refused.err);
    assert!(!world.path("work/.git/hooks/post-checkout").exists());
    // One that git does not take for a worktree any more goes, too.
    std::fs::remove_file(format!("{}/.git", row["path"].as_str().unwrap())).unwrap();
    world.run(&["agents", "discard", id, "--yes"]).ok();
    assert_eq!((worktrees(&world).len(), branches(&world)), (0, "main".to_owned()));
}

#[test]
fn commits_that_only_the_branch_has_are_kept() {
    let leave = "echo changed > kept.txt && git -c user.name=t -c user.email=t@localhost commit -qam done && \
                 git checkout -q --detach HEAD~1";
    let world = World::new([send("c1", "Change"), bash("b1", leave), says("Done."), says("Well.")]);
    repository(&world);
    world.run(&["-p", "Delegate it"]).ok();
    let returned = result(world.requests().last().unwrap());
    assert!(returned.contains("its branch has commits that its HEAD does not have"), "{returned}");
    let [row] = &*worktrees(&world) else { panic!("one is left") };
    let branch = format!("quipu-{}", row["worktreeId"].as_str().unwrap());
    assert_eq!(git(&world, &["show", &format!("{branch}:kept.txt")]), "changed");
}

#[test]
fn worktree_needs_a_repository_with_a_commit() {
    let world = World::new([send("c1", "Change"), says("Well."), send("c2", "Change"), says("Well.")]);
    put(&world, "home/.quipu/settings.json", r#"{"agents":{"tool":"on"}}"#);
    put(&world, "home/.quipu/agents/own.md", "---\ndescription: Ours.\nisolation: worktree\n---\nWork.\n");
    let ran = |text: &str| {
        world.run(&["-p", text]).ok();
        result(world.requests().last().unwrap())
    };
    let returned = ran("Go");
    assert!(returned.contains("was in no git repository when the session was opened"), "{returned}");
    git(&world, &["init", "-q"]);
    let returned = ran("Go");
    assert!(returned.contains("has no commit yet"), "{returned}");
    assert!(world.run(&["agents"]).ok().text().contains("in a worktree"));
    assert_eq!(worktrees(&world), Vec::<Value>::new());
}

#[test]
fn rules_about_paths_hold_in_a_worktree() {
    let world = World::new([
        send("c1", "Change"),
        write("w1", "kept.txt", "changed\n"),
        write("w2", "text.txt", "changed\n"),
        says("Done."),
        says("Well."),
    ]);
    repository(&world);
    // One by its place in the project, one by the path of the repository.
    let absolute = format!("write({}/text.txt)", world.path("work").display());
    let denied =
        json!({ "agents": { "tool": "on" }, "permissions": { "deny": ["write(kept.txt)", absolute] } });
    put(&world, "home/.quipu/settings.json", &denied.to_string());
    world.run(&["-p", "Go"]).ok();
    let requests = world.requests();
    for at in [2, 3] {
        let refused = result(&requests[at]);
        assert!(refused.contains("permission rule"), "{refused}");
    }
    assert!(result(&requests[4]).contains("Nothing was changed in its worktree"), "{}", result(&requests[4]));
}
