//! What `--files` brings back of what commands changed, and what it lists instead: the preview, the result, the node behind
//! the jump and the model have the same list.

use std::path::Path;

use quipu::protocol::{Entry, Message, Outcome};
use quipu::store::{Store, Until, decode_nodes};
use quipu::{FilePlan, FileSettings, RestoreFiles, SessionOptions};
use serde_json::{Value, json};

use crate::file_travel::{Story, bash, difference, git, tree};
use crate::support::World;

const KEY: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";

fn put(root: &Path, name: &str, text: &str) {
    std::fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
    std::fs::write(root.join(name), text).unwrap();
}

/// A session whose first run did nothing, and whose second run these commands.
async fn story(
    commands: &[&str],
    prepare: impl FnOnce(&Path),
    change: impl FnOnce(&mut SessionOptions),
) -> Story {
    let runs: Vec<Vec<(&str, Value)>> =
        vec![vec![bash("true")], commands.iter().map(|command| bash(command)).collect()];
    Story::with(&runs, prepare, change).await
}

async fn preview(story: &Story) -> FilePlan {
    let how = RestoreFiles::default();
    story.world.engine.preview_files(story.places[0].0, &how).await.unwrap()
}

fn stays(plan: &FilePlan) -> Vec<String> {
    plan.stays().collect()
}

fn changed(plan: &FilePlan) -> Vec<&str> {
    plan.shown().map(|change| change.path.as_str()).collect()
}

/// Goes back; the tree is as it was there but for what is listed. And forth: it is as it was before.
async fn there_and_back(story: &Story, but: &[&str]) {
    let before = story.now();
    let done = story.go(story.places[0].0, false).await;
    let differs = difference(&story.places[0].1, &story.now());
    let unlisted: Vec<_> = differs
        .iter()
        .filter(|path| !path.starts_with(".git/") && !but.iter().any(|listed| path.starts_with(listed)))
        .collect();
    assert_eq!(unlisted, [""; 0]);
    story.go(done.jumped.from, false).await;
    assert_eq!(story.now(), before);
}

#[tokio::test]
async fn ignored_files_that_bash_changed_or_removed_are_restored() {
    let change =
        "printf two > out/app.db; rm .env; printf new > out/deep/new; rm -r out/gone; mv a.log b.log";
    let story = story(
        &[change],
        |cwd| {
            put(cwd, ".gitignore", ".env\nout/\n*.log\n");
            for (name, text) in [
                (".env", "PORT=80\n"),
                ("out/app.db", "one"),
                ("out/gone/x", "x"),
                ("out/deep/y", "y"),
                ("a.log", "l"),
            ] {
                put(cwd, name, text);
            }
        },
        |_| {},
    )
    .await;
    let plan = preview(&story).await;
    assert_eq!(changed(&plan), [".env", "a.log", "b.log", "out/app.db", "out/deep/new", "out/gone/x"]);
    assert_eq!(stays(&plan), [""; 0]);
    there_and_back(&story, &[]).await;
    story.world.check().await;
}

#[tokio::test]
async fn ignored_secrets_and_large_files_are_listed_and_stay() {
    let story = story(
        &[
            &format!("printf 'KEY={}\\n' > .env; rm large; printf x >> larger", KEY.replace('9', "8")),
            &format!("printf 'KEY={KEY}\\n' > other; rm other; touch same"),
        ],
        |cwd| {
            put(cwd, ".gitignore", ".env\nlarge*\nsame\n");
            put(cwd, ".env", &format!("KEY={KEY}\n"));
            put(cwd, "same", &format!("KEY={KEY}\n"));
            put(cwd, "large", &"x".repeat((1 << 20) + 1));
            put(cwd, "larger", &"y".repeat(2 << 20));
        },
        |_| {},
    )
    .await;
    let plan = preview(&story).await;
    assert_eq!(changed(&plan), [""; 0]);
    assert_eq!(
        stays(&plan),
        [
            "? .env  stays as it is: contains a secret, which is not saved",
            "? large  stays as it is: larger than the limit for saved files",
            "? larger  stays as it is: larger than the limit for saved files",
        ]
    );
    there_and_back(&story, &[".env", "large"]).await;
    let file = std::fs::read(story.world.dir.path().join("quipu.db")).unwrap();
    assert_eq!(memchr::memmem::find(&file, b"xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o"), None, "no secret is stored");
    story.world.check().await;
}

#[tokio::test]
async fn changed_caches_are_listed_and_unchanged_ones_are_not() {
    let story = story(
        &["printf x > node_modules/new; printf y > target/f; touch venv/f"],
        |cwd| {
            put(cwd, ".gitignore", "node_modules\n.venv/\nvenv\n");
            for name in ["node_modules/a/f", ".venv/f", "target/f", "venv/f"] {
                put(cwd, name, "1");
            }
        },
        |_| {},
    )
    .await;
    let plan = preview(&story).await;
    // What git does not ignore is no cache, whatever it is called.
    assert_eq!(changed(&plan), ["target/f"]);
    let why = "stays as it is: a git-ignored cache: something in it changed, but the details are not known";
    assert_eq!(stays(&plan), [format!("? node_modules/  {why}"), format!("? venv/  {why}")]);
    there_and_back(&story, &["node_modules", "venv"]).await;
    story.world.check().await;
}

#[tokio::test]
async fn more_ignored_files_than_are_kept_are_said_to_be_unknown() {
    let command = "rm out/000; printf 2 > keep; printf x > out/new";
    let story = story(
        &[command],
        |cwd| {
            put(cwd, ".gitignore", "out/\n");
            put(cwd, "keep", "1");
            (0..50).for_each(|at| put(cwd, &format!("out/{at:03}"), "x"));
        },
        |options| options.files = FileSettings { ignored_files: 20, ..options.files },
    )
    .await;
    let plan = preview(&story).await;
    assert!(changed(&plan).contains(&"keep"), "{plan:?}");
    // Whether a file was among those that are looked at or not, nothing is said of one that did not change.
    let named: Vec<_> = plan
        .changes
        .iter()
        .map(|change| &change.path)
        .chain(plan.left.iter().map(|left| &left.path))
        .collect();
    assert!(named.iter().all(|path| ["keep", "out/000", "out/new"].contains(&path.as_str())), "{named:?}");
    assert!(plan.unknown.concat().contains("git ignores more than 20 files here"), "{plan:?}");
    story.world.check().await;
}

#[tokio::test]
async fn commits_and_refs_that_bash_moved_are_listed() {
    if !git(&std::env::temp_dir(), &["--version"]) {
        eprintln!("note: git is not here, so repositories are not tested");
        return;
    }
    let with = "git -c user.name=t -c user.email=t@t";
    let story = story(
        &[&format!("printf two > a; {with} commit -qam second; git checkout -qb topic; git tag v1")],
        |cwd| {
            put(cwd, "a", "one");
            assert!(
                git(cwd, &["init", "-q"]) && git(cwd, &["add", "."]) && git(cwd, &["commit", "-qm", "first"])
            );
        },
        |_| {},
    )
    .await;
    let plan = preview(&story).await;
    assert_eq!(changed(&plan), ["a"]);
    let refs: Vec<_> = plan.left.iter().map(|left| left.path.as_str()).collect();
    assert_eq!(refs, [".git/HEAD", ".git/refs/heads/main", ".git/refs/heads/topic", ".git/refs/tags/v1"]);
    let lines = stays(&plan);
    assert!(lines[0].contains("it is at refs/heads/topic and was at refs/heads/main there"), "{lines:?}");
    assert!(lines[2].contains("and was at nowhere there"), "{lines:?}");
    // Once they are back by hand, there is nothing to say.
    let cwd = story.world.cwd();
    assert!(git(&cwd, &["checkout", "-q", "main"]) && git(&cwd, &["reset", "-q", "--soft", "HEAD~1"]));
    assert!(git(&cwd, &["branch", "-qD", "topic"]) && git(&cwd, &["tag", "-d", "v1"]));
    assert_eq!(stays(&preview(&story).await), [""; 0]);
    there_and_back(&story, &[]).await;
    story.world.check().await;
}

#[tokio::test]
async fn staging_a_file_is_listed() {
    if !git(&std::env::temp_dir(), &["--version"]) {
        return;
    }
    let story = story(
        &["printf two > a; git add a"],
        |cwd| {
            put(cwd, "a", "one");
            assert!(
                git(cwd, &["init", "-q"]) && git(cwd, &["add", "."]) && git(cwd, &["commit", "-qm", "first"])
            );
        },
        |_| {},
    )
    .await;
    assert_eq!(
        stays(&preview(&story).await),
        ["? .git/index  stays as it is: the git index is not restored"]
    );
    story.world.check().await;
}

/// Every directory below one.
fn directories(root: &Path) -> Vec<String> {
    let (mut found, mut left) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
                left.push(path);
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn empty_directories_are_restored_both_ways() {
    let runs = vec![
        vec![bash("true")],
        vec![
            bash(
                "rmdir gone; mkdir -p made/deep; touch filled/f; rm emptied/f; rm -r file; mkdir file; rmdir dir; touch dir",
            ),
            ("write", json!({"path": "written/new/f", "content": "w"})),
        ],
        vec![bash("touch made/deep/f; rm -r filled; mkdir gone; rmdir emptied")],
    ];
    let mut stood = Vec::new();
    let story = Story::with(
        &runs,
        |cwd| {
            for name in ["gone", "filled", "written", "dir"] {
                std::fs::create_dir(cwd.join(name)).unwrap();
            }
            put(cwd, "emptied/f", "e");
            put(cwd, "file", "f");
        },
        |_| {},
    )
    .await;
    let cwd = story.world.cwd();
    stood.push((story.now(), directories(&cwd)));
    let expect = ["dir", "emptied", "filled", "gone", "written"].map(String::from).to_vec();
    let mut moves = Vec::new();
    for at in [0, 1, 2, 0, 2, 1] {
        let before = (story.now(), directories(&cwd));
        let done = story.go(story.places[at].0, false).await;
        assert_eq!(
            (difference(&story.now(), &story.places[at].1), done.plan.left.len()),
            (vec![], 0),
            "{at}"
        );
        if at == 0 {
            assert_eq!(directories(&cwd), expect);
        }
        if at == 2 {
            assert_eq!((story.now(), directories(&cwd)), stood[0]);
        }
        moves.push((done.jumped.from, before));
    }
    for (from, before) in moves.into_iter().rev() {
        story.go(from, false).await;
        assert_eq!((story.now(), directories(&cwd)), before);
    }
    story.world.check().await;
}

#[tokio::test]
async fn a_directory_that_holds_other_things_stays_and_is_listed() {
    let story = story(&["mkdir made"], |_| {}, |_| {}).await;
    put(&story.world.cwd(), "made/mine", "m");
    let plan = preview(&story).await;
    assert_eq!(stays(&plan), ["? made  stays as it is: it contains other files"]);
    story.world.check().await;
}

#[tokio::test]
async fn a_name_that_is_no_text_is_listed() {
    let story = story(&["printf x > \"$(printf 'bad\\377')\""], |_| {}, |_| {}).await;
    let plan = preview(&story).await;
    assert_eq!(stays(&plan), ["? bad\u{fffd}  stays as it is: could not be read, or is not a file"]);
}

#[tokio::test]
async fn turned_off_states_are_said_to_be_unknown() {
    let story = story(&["printf x > a"], |_| {}, |options| options.files.enabled = false).await;
    let plan = preview(&story).await;
    let line = "? changes by tools are not saved, because `files.enabled` is false";
    assert_eq!((changed(&plan), stays(&plan)), (vec![], vec![line.to_owned()]));
    story.world.check().await;
}

#[tokio::test]
async fn what_a_jump_left_behind_is_in_its_node_and_in_later_lists() {
    let runs = vec![
        vec![bash("true")],
        vec![bash("true")],
        vec![bash(&format!("printf 'KEY={KEY}\\n' > .env; printf 2 > a"))],
    ];
    let story = Story::with(
        &runs,
        |cwd| {
            put(cwd, ".env", &format!("KEY={}\n", KEY.replace('9', "8")));
        },
        |_| {},
    )
    .await;
    let line = "? .env  stays as it is: contains a secret, which is not saved".to_owned();
    let done = story.go(story.places[1].0, false).await;
    assert_eq!(stays(&done.plan), std::slice::from_ref(&line));
    let nodes = story.world.store.lineage(done.jumped.head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*story.world.store, &nodes).await.unwrap();
    let [.., node, told] = &decoded[..] else { panic!("{decoded:?}") };
    let (Entry::Meta(node), Entry::Message(Message::Custom(told))) = (&node.entry, &told.entry) else {
        panic!("{decoded:?}")
    };
    let told = told.content.blocks();
    assert!(told[0].as_text().is_some_and(|text| text.ends_with(&format!("\n{line}"))), "{told:?}");
    assert_eq!(
        node.value()["data"]["left"],
        json!([{ "path": ".env", "why": "contains a secret, which is not saved" }])
    );
    // Further back it still is as the last command left it.
    assert_eq!(stays(&preview(&story).await), [line]);
    // But where it was left so it is as it was.
    let how = RestoreFiles::default();
    let back = story.world.engine.preview_files(done.jumped.from, &how).await.unwrap();
    assert_eq!(stays(&back), [""; 0]);
    story.go(done.jumped.from, false).await;
    story.world.check().await;
}

#[tokio::test]
async fn aborted_and_timed_out_commands_are_looked_at_as_well() {
    let runs = vec![
        vec![bash("true")],
        vec![("bash", json!({ "command": "rm a; printf x > b; sleep 1000", "timeout": 0.5 }))],
    ];
    let story = Story::with(&runs, |cwd| put(cwd, "a", "one"), |_| {}).await;
    assert_eq!(changed(&preview(&story).await), ["a", "b"]);
    there_and_back(&story, &[]).await;
    story.world.check().await;

    let mut world = World::new();
    world.tools = quipu::builtin();
    put(&world.cwd(), "a", "one");
    let live = world.create().await;
    world.fake.push([crate::support::call(&[bash("true")]), crate::support::say("done")]);
    assert_eq!(live.run("go").await, Outcome::Done);
    let (node, then) = (live.session.view().head.unwrap(), tree(&world.cwd()));
    world.fake.push([crate::support::call(&[bash("rm a; printf x > b; sleep 1000")])]);
    live.session
        .send(quipu::protocol::Command::Prompt { input: "on".into(), when: quipu::protocol::QueueMode::Now })
        .await
        .unwrap();
    while !world.cwd().join("b").exists() {
        tokio::task::yield_now().await;
    }
    live.session.abort().await.unwrap();
    live.settled(2).await;
    live.finish().await;
    let how = RestoreFiles::default();
    assert_eq!(changed(&world.engine.preview_files(node, &how).await.unwrap()), ["a", "b"]);
    let done = world.engine.jump_with_files(node, None, &how).await.unwrap();
    assert_eq!(tree(&world.cwd()), then);
    world.engine.jump_with_files(done.jumped.from, None, &how).await.unwrap();
    world.check().await;
}
