//! Trailers in commits: by consent alone, beside the user's own hooks, through all that git does with messages; and what
//! `quipu blame` makes of them in other clones, after rebases, squashes and merges.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use quipu_testkit::{Answer, Reply};
use serde_json::{Value, json};

use crate::support::*;

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// Git as a person runs it in a directory of the world.
fn git_in(world: &World, directory: &str, args: &[&str]) -> String {
    let mut command = world.command("git");
    let output = command.args(args).current_dir(world.path(directory)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "git {args:?}: {out}{err}");
    out.trim().to_owned()
}

fn git(world: &World, args: &[&str]) -> String {
    git_in(world, "work", args)
}

/// A world with a repository in `work`.
fn repository(script: impl IntoIterator<Item = Reply>) -> World {
    let world = World::new(script);
    let settings = "[user]\n\tname = t\n\temail = t@localhost\n[init]\n\tdefaultBranch = main\n";
    std::fs::write(world.path("home/.gitconfig"), settings).unwrap();
    git(&world, &["init", "-q"]);
    world
}

/// The answers that hold these calls, by the ids of the calls.
fn node_of(world: &World, session: &str, call: &str) -> String {
    let nodes = world.nodes_of(&[session]);
    let found = nodes.iter().find(|node| {
        let blocks = node["message"]["content"].as_array();
        blocks.is_some_and(|blocks| blocks.iter().any(|block| block["id"] == call))
    });
    let found = found.unwrap_or_else(|| panic!("no call {call}: {nodes:?}"));
    found["id"].as_str().unwrap().to_owned()
}

fn newest(world: &World) -> String {
    world.sessions()[0]["id"].as_str().unwrap().to_owned()
}

/// The trailers of a commit, as git reads them.
fn trailers(world: &World, directory: &str, commit: &str) -> Vec<String> {
    let format = "--format=%(trailers:key=Quipu-Node,valueonly)";
    let text = git_in(world, directory, &["log", "-1", format, commit, "--"]);
    text.lines().map(str::to_owned).collect()
}

/// Everything below a directory.
fn tree(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut open = vec![root.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path.clone());
            }
            found.insert(path);
        }
    }
    found
}

fn commit(id: &str, file: &str) -> Reply {
    bash(
        id,
        &format!(
            "echo {id} >{file} && git add {file} && git commit -qm 'add {file}' && env && git config core.hooksPath"
        ),
    )
}

#[test]
fn commits_name_their_node_by_consent_alone() {
    for permissions in ["workspace", "full"] {
        let world = repository([
            commit("c1", "one"),
            says("Well."),
            bash("c2", "echo c2 >two && git add two && git commit -qm 'add two'"),
            says("Well."),
            bash("c3", "git init -q other && cd other && git commit -q --allow-empty -m elsewhere"),
            says("Well."),
            commit("c4", "four"),
            says("Well."),
        ]);
        let session = |world: &World, text: &str| {
            world.run(&["-p", "--permissions", permissions, text]).ok();
            (
                newest(world),
                messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<String>(),
            )
        };
        let (_, said) = session(&world, "without");
        assert!(!said.contains("QUIPU_NODE") && !said.contains("GIT_CONFIG"), "{said}");
        assert_eq!(git(&world, &["log", "-1", "--format=%B"]), "add one");
        assert!(!world.path("home/.quipu/git").exists() && !world.path("home/.quipu/git.json").exists());

        let status = world.run(&["git"]).ok().text();
        assert!(status.contains("disabled; `quipu git enable`"), "{status}");
        world.run(&["git", "enable"]).ok();
        assert!(world.run(&["git", "enable"]).ok().err.contains("enabled already"));
        assert_eq!(mode(&world.path("home/.quipu/git.json")), 0o600);
        let rows = world.run(&["git", "status", "--json"]).ok().json_lines();
        assert_eq!((rows.len(), &rows[1]["state"]), (2, &json!("enabled")), "{rows:?}");
        let before = tree(&world.path("work/.git/hooks"));
        let config = std::fs::read(world.path("work/.git/config")).unwrap();

        let (id, _) = session(&world, "with");
        let node = node_of(&world, &id, "c2");
        assert_eq!(
            git(&world, &["log", "-1", "--format=%B"]),
            format!("add two\n\nQuipu-Node: {}", &node[..40])
        );
        assert_eq!(tree(&world.path("work/.git/hooks")), before);
        assert_eq!(std::fs::read(world.path("work/.git/config")).unwrap(), config);
        assert_eq!(git_in(&world, "work", &["status", "--porcelain"]), "");

        session(&world, "elsewhere");
        assert_eq!(git_in(&world, "work/other", &["log", "-1", "--format=%B"]), "elsewhere");

        assert!(world.run(&["git", "disable"]).ok().err.contains("is disabled"));
        let (_, said) = session(&world, "again without");
        assert!(!said.contains("QUIPU_NODE") && !said.contains("GIT_CONFIG"), "{said}");
        assert_eq!(git(&world, &["log", "-1", "--format=%B"]), "add four");
        // Another repository at the same path is another one.
        world.run(&["git", "enable"]).ok();
        std::fs::rename(world.path("work/.git"), world.path("work/.git-was")).unwrap();
        git(&world, &["init", "-q"]);
        let status = world.run(&["git"]).ok().text();
        assert!(status.contains("enabled for another repository"), "{status}");
    }
}

#[test]
fn consent_needs_a_repository_and_no_project_gives_it() {
    let world = World::new([]);
    world.run(&["git", "enable"]).fails(2, &["is in no git repository"]);
    assert!(world.run(&["git"]).ok().text().contains("no git repository"));
    assert!(!world.path("home/.quipu/git.json").exists());
    std::fs::write(world.path("home/.quipu/git.json"), "{").unwrap();
    world.run(&["git"]).fails(1, &["git.json cannot be used", "withdraw every consent"]);
    std::fs::remove_file(world.path("home/.quipu/git.json")).unwrap();

    // No command of the model gives it, however free it is.
    let enable = format!("git init -q . && {} git enable; echo \"ended $?\"", env!("CARGO_BIN_EXE_quipu"));
    world.server.push(bash("c1", &enable));
    world.server.push(says("Well."));
    world.run(&["-p", "--permissions", "full", "go"]).ok();
    let said: String = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert!(said.contains("in a terminal of your own") && said.contains("ended 2"), "{said}");
    assert!(!world.path("home/.quipu/git.json").exists());

    // One of a repository that is gone can be withdrawn.
    world.run(&["git", "enable"]).ok();
    std::fs::rename(world.path("work/.git"), world.path("work/.moved")).unwrap();
    assert!(world.run(&["git"]).ok().text().contains("(not there)"));
    let path = world.path("work").canonicalize().unwrap();
    assert!(world.run(&["git", "disable", path.to_str().unwrap()]).ok().err.contains("is disabled"));
    assert_eq!(world.run(&["git", "--json"]).ok().json_lines().len(), 1);
}

/// A hook that writes down how it was called.
fn hook(path: &Path, more: &str) {
    let text = format!(
        "#!/bin/sh\n{{ echo \"$0 $* in ${{PWD##*/}}\"; case ${{0##*/}} in pre-push|post-rewrite|reference-transaction) cat ;; esac; }} \
         | sed 's/[0-9a-f]\\{{40\\}}/ID/g' >>\"$LOG\"\n{more}\n"
    );
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
    set_mode(path, 0o755);
}

/// The same commands in the same repository, with and without consent: the user's hooks see the same.
#[test]
fn hooks_of_the_user_are_called_as_without_quipu() {
    let line = "export LOG=$PWD/log; echo 1 >a; git add a; git commit -qm one; echo 2 >a; git commit -qam 'bad two'; echo \"ended $?\" >>log; \
                git commit -qam three; touch stop; echo 4 >a; git commit -qam four; echo \"ended $?\" >>log; rm stop; git checkout -q a; \
                git commit -q --amend -m again; git checkout -qb side HEAD; echo s >s; git add s; git commit -qnm side; git checkout -q main; \
                git merge -q --no-ff --no-edit side; git init -q --bare bare; git push -q ./bare main 2>/dev/null; \
                git rebase -q --force-rebase HEAD~1; git worktree add -q wt -b wt; cd wt; echo w >w; git add w; git commit -qm in-worktree; true";
    for place in ["hooks", "relative", "global"] {
        let mut logs = Vec::new();
        for consent in [false, true] {
            let world = repository([bash("c1", line), says("Well.")]);
            let hooks = match place {
                "hooks" => world.path("work/.git/hooks"),
                "relative" => {
                    git(&world, &["config", "core.hooksPath", "tools/hooks"]);
                    world.path("work/tools/hooks")
                }
                _ => {
                    let hooks = world.path("home/hooks");
                    git(&world, &["config", "--global", "core.hooksPath", "~/hooks"]);
                    hooks
                }
            };
            for name in [
                "prepare-commit-msg",
                "post-commit",
                "pre-merge-commit",
                "post-merge",
                "post-checkout",
                "pre-push",
                "post-rewrite",
                "pre-rebase",
                "reference-transaction",
            ] {
                hook(&hooks.join(name), "");
            }
            hook(&hooks.join("pre-commit"), "[ ! -e stop ]");
            hook(
                &hooks.join("commit-msg"),
                "if grep -q bad \"$1\"; then exit 7; fi; echo 'Checked-by: hook' >>\"$1\"",
            );
            std::fs::write(hooks.join("post-index-change"), "not executable").unwrap();
            if consent {
                world.run(&["git", "enable"]).ok();
            }
            world.run(&["-p", "go"]).ok();
            let said: String = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
            let log = std::fs::read_to_string(world.path("work/log")).unwrap();
            let root = world.path("").display().to_string();
            // A relative path is looked up in the new worktree, where there is none, and not where it is made from.
            let counts = |line: &&str| place != "relative" || !line.ends_with(" in wt");
            let log: Vec<&str> = log.lines().filter(counts).collect();
            logs.push(log.join("\n").replace(root.trim_end_matches('/'), "ROOT"));
            let message = git(&world, &["log", "-1", "--format=%B", "main", "--"]);
            assert_eq!(message.contains("Quipu-Node"), consent, "{message}");
            let last = git(&world, &["log", "-1", "--format=%B", "wt", "--"]);
            // A relative path leads nowhere in the other worktree.
            assert_eq!(
                last.contains("Checked-by: hook"),
                place != "relative",
                "{last}{said}{}",
                log.join("\n")
            );
            assert_eq!(last.contains("Quipu-Node"), consent, "{last}{said}{}", log.join("\n"));
        }
        // Numbers of processes are in no line; the message file of a worktree is named by its path.
        assert_eq!(logs[0], logs[1], "{place}");
        assert!(
            logs[0].matches("ended 1").count() == 2 && logs[0].contains("reference-transaction"),
            "{}",
            logs[0]
        );
    }
}

#[test]
fn hooks_that_a_program_put_over_ours_are_made_again() {
    // As hook managers do it: aside with what is there, and their own in its place.
    let line = "hooks=$(git config core.hooksPath); stat -c 'mode %a' \"$hooks\" \"$hooks/pre-commit\"; chmod 700 \"$hooks\"; \
                mv \"$hooks/pre-commit\" \"$hooks/pre-commit.old\"; printf '#!/bin/sh\\n' >\"$hooks/commit-msg.new\"; \
                mv -f \"$hooks/commit-msg.new\" \"$hooks/commit-msg\"";
    let world =
        repository([bash("c1", line), bash("c2", "echo 1 >a; git add a; git commit -qm one"), says("Well.")]);
    let log = world.path("log");
    for name in ["pre-commit", "commit-msg"] {
        let hook = world.path("work/.git/hooks").join(name);
        std::fs::write(&hook, format!("#!/bin/sh\necho {name} >>{}\n", log.display())).unwrap();
        set_mode(&hook, 0o755);
    }
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "--permissions", "full", "go"]).ok();
    let said: String = messages(world.requests().last().unwrap()).iter().map(wire_text).collect();
    assert_eq!(said.matches("mode 500").count(), 2, "{said}");
    assert_eq!(std::fs::read_to_string(&log).unwrap(), "pre-commit\ncommit-msg\n");
    assert_eq!(trailers(&world, "work", "HEAD"), [&node_of(&world, &newest(&world), "c2")[..40]]);
}

#[test]
fn messages_stay_what_git_makes_of_them() {
    let script = r#"
export GIT_EDITOR=true
put() { echo "$1" >a; git add a; }
put 1; git commit -qm 'plain'; git tag plain
put 2; printf 'from a file\n\nbody\n\n#12 stays\n\nSigned-off-by: x <x@y>\n' >m; git commit -qF m; git tag file
put 3; git commit -qnm '#7 no verify'; git tag noverify
put 4; git commit -q; echo "empty $?"
printf 'Template:\n\n# words\n' >t; git -c commit.template=t commit -q; echo "template $?"
GIT_EDITOR="sed -i '1s/.*/Edited/'" git -c commit.template=t commit -q; git tag template
put 5; GIT_EDITOR="sed -i '1s/.*/Verbose/'" git commit -qv; git tag verbose
git commit -q --amend --no-edit; git tag amended
git checkout -q -b side plain; echo s >s; git add s; git commit -qm side; git tag sided
git checkout -q main; git merge -q --no-ff side -m 'merged side'; git tag merge
git checkout -q -b pick plain; git cherry-pick verbose --strategy-option=theirs >/dev/null; git tag picked
git checkout -q -b squash plain; git merge -q --squash side >/dev/null; git commit -q --no-edit; git tag squash
git checkout -q -b signed plain; ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/key"
git -c gpg.format=ssh -c user.signingkey="$TMPDIR/key.pub" commit -q --allow-empty -S -m signed; git tag signed
git checkout -q main; git rm -qf --cached m t 2>/dev/null; true
"#;
    let world = repository([
        bash("c1", script),
        says("Well."),
        bash(
            "c2",
            "git commit -q --amend --no-edit; git tag again; git checkout -q -b moved noverify; git rebase -q -X theirs --onto plain file; git tag rebased; \
             git checkout -q -b fixed plain; echo p >p; git add p; git -c core.hooksPath=/dev/null commit -qm person; echo q >p; git add p; \
             git -c core.hooksPath=/dev/null commit -qm 'fixup! person'; GIT_SEQUENCE_EDITOR=true git rebase -q -i --autosquash plain; git tag fixed-up",
        ),
        says("Well."),
    ]);
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "go"]).ok();
    let said = wire_text(&messages(world.requests().last().unwrap()).pop().unwrap());
    assert!(said.contains("empty 1") && said.contains("template 1"), "{said}");
    let first = node_of(&world, &newest(&world), "c1")[..40].to_owned();
    let message = |tag: &str| git(&world, &["log", "-1", "--format=%B", tag, "--"]);
    let trailer = format!("Quipu-Node: {first}");
    for (tag, text) in [
        ("plain", format!("plain\n\n{trailer}")),
        ("file", format!("from a file\n\nbody\n\n#12 stays\n\nSigned-off-by: x <x@y>\n{trailer}")),
        ("noverify", format!("#7 no verify\n\n{trailer}")),
        ("template", format!("Edited\n\n{trailer}")),
        ("verbose", format!("Verbose\n\n{trailer}")),
        ("amended", format!("Verbose\n\n{trailer}")),
        ("sided", format!("side\n\n{trailer}")),
        ("merge", format!("merged side\n\n{trailer}")),
        ("picked", format!("Verbose\n\n{trailer}")),
        ("signed", format!("signed\n\n{trailer}")),
    ] {
        assert_eq!(message(tag), text, "{tag}");
    }
    assert!(git(&world, &["cat-file", "-p", "signed"]).contains("BEGIN SSH SIGNATURE"));
    let squash = message("squash");
    assert!(squash.starts_with("Squashed commit") && squash.ends_with(&format!("\n\n{trailer}")), "{squash}");

    world.run(&["-p", "go on"]).ok();
    let second = node_of(&world, &newest(&world), "c2")[..40].to_owned();
    assert_eq!(trailers(&world, "work", "again"), [&*first, &*second]);
    // What is only made again elsewhere keeps its message.
    assert_eq!(message("rebased"), message("noverify"));
    assert_eq!(message("fixed-up"), "person");
}

#[test]
fn background_commands_and_sub_agents_name_their_nodes() {
    let background = json!({ "command": "echo b >b && git add b && git commit -qm background; exec 3>done", "run_in_background": true });
    let world = repository([
        call("c1", "bash", &background),
        bash("c2", "while [ ! -e done ]; do sleep 0.05; done"),
        call("c3", "task", &json!({ "prompt": "Commit", "worktree": true, "description": "Commit it" })),
        bash("k1", "echo k >k && git add k && git commit -qm child && git tag child"),
        says("Committed."),
        says("Well."),
    ]);
    std::fs::write(
        world.path("home/.quipu/settings.json"),
        r#"{"agents":{"tool":"on"},"retry":{"baseDelayMs":1}}"#,
    )
    .unwrap();
    world.file("a", "a\n");
    git(&world, &["add", "."]);
    git(&world, &["commit", "-qm", "begin"]);
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "go"]).ok();
    let parent = newest(&world);
    assert_eq!(trailers(&world, "work", "main"), [&node_of(&world, &parent, "c1")[..40]]);
    let children = world.run(&["agents", "--json"]).ok().json_lines();
    let child = children.iter().find_map(|row| row["session"].as_str()).unwrap();
    assert_eq!(trailers(&world, "work", "child"), [&node_of(&world, child, "k1")[..40]]);
}

/// The lines of a file: text, whose it is, its node, and whether that is known by a commit.
fn blamed(world: &World, directory: &str, file: &str) -> (Vec<(String, String, bool)>, Value) {
    let path = world.path(directory).join(file);
    let mut lines = world.run(&["blame", path.to_str().unwrap(), "--json"]).ok().json_lines();
    let end = lines.pop().unwrap();
    let line = |line: &Value| {
        let by = match line["node"].as_str() {
            Some(node) => node.to_owned(),
            None => line["by"].as_str().unwrap().to_owned(),
        };
        (line["text"].as_str().unwrap().to_owned(), by, line["commit"].is_string())
    };
    (lines.iter().map(line).collect(), end)
}

#[test]
fn blame_knows_lines_by_their_commits_in_other_clones() {
    let world = repository([
        call("w1", "write", &json!({ "path": "src/a.txt", "content": "one\ntwo\nthree\n" })),
        bash("c1", "git add -A && git commit -qm first"),
        says("Well."),
        bash(
            "c2",
            "printf 'generated by a long command line\\n' >gen.txt && sed -i s/two/TWO/ src/a.txt && git add -A && git commit -qm second",
        ),
        says("Well."),
    ]);
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "Write the first lines"]).ok();
    let first = newest(&world);
    world.run(&["-p", "Change the second"]).ok();
    let second = newest(&world);
    let (w1, c2) = (node_of(&world, &first, "w1"), node_of(&world, &second, "c2"));
    let owned = |text: &str, by: &str, known: bool| (text.to_owned(), by.to_owned(), known);
    let (here, end) = blamed(&world, "work", "src/a.txt");
    assert_eq!(here, [owned("one", &w1, false), owned("TWO", &c2, false), owned("three", &w1, false)]);
    assert_eq!(end["byCommit"], 0);

    // A clone in a directory that no session knows; a person goes on there.
    git_in(&world, "", &["clone", "-q", "work", "clone"]);
    let (found, end) = blamed(&world, "clone", "src/a.txt");
    assert_eq!(found, [owned("one", &w1, true), owned("TWO", &c2, true), owned("three", &w1, true)]);
    assert_eq!((&end["byCommit"], &end["unknownTrailers"]), (&json!(3), &json!(0)));
    assert_eq!(blamed(&world, "clone", "gen.txt").0, [owned("generated by a long command line", &c2, false)]);
    let shown = world.run(&["blame", world.path("clone/src/a.txt:2").to_str().unwrap()]).ok().text();
    let id = git_in(&world, "clone", &["rev-parse", "HEAD"]);
    assert!(shown.contains(&c2) && shown.contains(&format!("commit  {id}")), "{shown}");
    assert!(shown.contains("asked   Change the second"), "{shown}");

    std::fs::write(world.path("clone/src/a.txt"), "one\nTWO\nthree\nmine\n").unwrap();
    let after = [
        owned("one", &w1, true),
        owned("TWO", &c2, true),
        owned("three", &w1, true),
        owned("mine", "nobody", false),
    ];
    assert_eq!(blamed(&world, "clone", "src/a.txt").0, after);
    git_in(&world, "clone", &["commit", "-qam", "mine"]);
    assert_eq!(blamed(&world, "clone", "src/a.txt").0, after);

    // A rebase, a merge and a squash by a person, in other clones.
    git_in(&world, "", &["clone", "-q", "work", "rebased"]);
    git_in(&world, "rebased", &["checkout", "-q", "--orphan", "base"]);
    git_in(&world, "rebased", &["rm", "-rfq", "."]);
    git_in(&world, "rebased", &["commit", "-q", "--allow-empty", "-m", "base"]);
    git_in(&world, "rebased", &["rebase", "-q", "--onto", "base", "--root", "main"]);
    assert_ne!(git_in(&world, "rebased", &["rev-parse", "HEAD"]), id);
    assert_eq!(blamed(&world, "rebased", "src/a.txt").0, after[..3]);
    git_in(&world, "rebased", &["checkout", "-q", "base"]);
    git_in(&world, "rebased", &["merge", "-q", "--no-ff", "--no-edit", "main"]);
    assert_eq!(blamed(&world, "rebased", "src/a.txt").0, after[..3]);
    git_in(&world, "rebased", &["checkout", "-q", "-b", "squashed", "base~1"]);
    git_in(&world, "rebased", &["merge", "-q", "--squash", "main"]);
    git_in(&world, "rebased", &["commit", "-q", "--no-edit"]);
    assert_eq!(trailers(&world, "rebased", "HEAD"), <[&str; 0]>::default(), "they are in the body");
    assert_eq!(blamed(&world, "rebased", "src/a.txt").0, after[..3]);
    assert_eq!(
        blamed(&world, "rebased", "gen.txt").0,
        [owned("generated by a long command line", &c2, false)]
    );

    // In the first directory a person's lines stay the person's, also where a command commits them.
    std::fs::write(world.path("work/src/a.txt"), "one\nTWO\nthree\nby hand\n").unwrap();
    world.server.push(bash("c3", "git commit -qam third"));
    world.server.push(says("Well."));
    world.run(&["-p", "Commit it"]).ok();
    assert_eq!(trailers(&world, "work", "HEAD").len(), 1);
    assert_eq!(blamed(&world, "work", "src/a.txt").0[3], owned("by hand", "nobody", false));
}

#[test]
fn a_persons_line_in_a_models_commit_stays_so_in_a_clone() {
    let world = repository([
        call("w1", "write", &json!({ "path": "src/a.txt", "content": "first words of the model\n" })),
        says("Well."),
        bash("c2", "echo 'more words of the model' >>src/a.txt; git add -A; git commit -qm all; git tag all"),
        says("Well."),
        bash("c3", "sed -i 's/more words/less/' src/a.txt; git commit -qam less"),
        says("Well."),
    ]);
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "Begin"]).ok();
    let w1 = node_of(&world, &newest(&world), "w1");
    let begun = std::fs::read_to_string(world.path("work/src/a.txt")).unwrap();
    std::fs::write(world.path("work/src/a.txt"), begun + "words of a person\n").unwrap();
    world.run(&["-p", "Go on"]).ok();
    let c2 = node_of(&world, &newest(&world), "c2");
    let owned = |text: &str, by: &str| (text.to_owned(), by.to_owned());
    let wanted = [
        owned("first words of the model", &w1),
        owned("words of a person", "nobody"),
        owned("more words of the model", &c2),
    ];
    let blamed = |directory: &str| -> Vec<(String, String)> {
        blamed(&world, directory, "src/a.txt").0.into_iter().map(|(text, by, _)| (text, by)).collect()
    };
    git_in(&world, "", &["clone", "-q", "work", "clone"]);
    assert_eq!(blamed("work"), wanted);
    assert_eq!(blamed("clone"), wanted);
    // A clone that stays behind: what was watched last knows nothing of the line.
    world.run(&["-p", "Less"]).ok();
    assert_eq!(blamed("clone"), wanted);
}

#[test]
fn hostile_trailers_are_said_and_left_out() {
    let world = repository([
        call("w1", "write", &json!({ "path": "b", "content": "b\n" })),
        bash("c1", "echo known >a && git add a && git commit -qm known"),
        says("Well."),
    ]);
    world.run(&["git", "enable"]).ok();
    world.run(&["-p", "Write a line"]).ok();
    let known = node_of(&world, &newest(&world), "c1");
    git_in(&world, "", &["clone", "-q", "work", "clone"]);
    let root = world.path("clone");
    let unknown = "f".repeat(40);
    let many: String = (0..3_000).map(|at| format!("Quipu-Node: {at:040x}\n")).collect();
    for (file, trailer) in [
        ("unknown", format!("Quipu-Node: {unknown}")),
        ("malformed", "Quipu-Node: \u{1b}[31mred ../../etc/passwd\nQuipu-Node: HEAD".to_owned()),
        ("ours", format!("Quipu-Node: {}", known.to_uppercase())),
        ("many", many),
        ("early", format!("Quipu-Node: {known}")),
        ("commandless", format!("Quipu-Node: {}", node_of(&world, &newest(&world), "w1"))),
    ] {
        std::fs::write(root.join(file), format!("{file}\n")).unwrap();
        git_in(&world, "clone", &["add", file]);
        std::fs::write(root.join("message"), format!("{file}\n\n{trailer}\n")).unwrap();
        git_in(&world, "clone", &["commit", "-qF", "message"]);
        if file == "early" {
            let amend = "GIT_COMMITTER_DATE='2001-01-01T00:00:00Z' git commit -q --amend --no-edit";
            assert!(world.command("sh").args(["-c", amend]).current_dir(&root).status().unwrap().success());
        }
    }
    // What settings of the repository would have git run.
    let ran = world.path("ran");
    let plant = format!("sh -c 'touch {}; cat'", ran.display());
    std::fs::write(root.join(".gitattributes"), "* diff=x filter=x\n").unwrap();
    for name in [
        "diff.x.textconv",
        "filter.x.clean",
        "filter.x.smudge",
        "core.fsmonitor",
        "gpg.program",
        "core.pager",
    ] {
        git_in(&world, "clone", &["config", name, &plant]);
    }
    git_in(&world, "clone", &["config", "log.showSignature", "true"]);
    let check = |file: &str, by: &str, note: &str| {
        let path = root.join(file);
        let (found, _) = blamed(&world, "clone", file);
        assert_eq!(found[0].1, by, "{file}");
        let err = world.run(&["blame", path.to_str().unwrap()]).ok().err;
        assert!(err.contains(note) && !err.contains('\u{1b}'), "{file}: {err}");
    };
    check("unknown", "nobody", "1 Quipu-Node trailers of commits name no answer of a model in this store");
    check("malformed", "nobody", "2 Quipu-Node trailers of commits are no nodes");
    check("ours", &known, "");
    check("many", "nobody", "Some trailers of commits were not examined");
    assert!(!ran.exists());
    check("early", "nobody", "1 Quipu-Node trailers name an answer that is newer than the commit");
    check("commandless", "nobody", "or that runs no command");
    // Settings that leave commits out do not count, whatever they name.
    std::fs::write(root.join("left-out"), git_in(&world, "clone", &["rev-parse", "HEAD"])).unwrap();
    for ignored in ["/dev/zero", "missing", "left-out"] {
        git_in(&world, "clone", &["config", "blame.ignoreRevsFile", ignored]);
        check("ours", &known, "");
    }
    git_in(&world, "clone", &["config", "--unset", "blame.ignoreRevsFile"]);
    // A repository that is none any more.
    std::fs::write(root.join(".git/HEAD"), "nothing").unwrap();
    let left = world.run(&["blame", root.join("ours").to_str().unwrap()]).ok();
    assert!(left.text().contains("no agent"), "{}", left.text());
}
