//! Files go with the conversation: what the plan says is what is changed, and the way back leads back.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use quipu::protocol::{FileState, Json, NodeId, Outcome, Unknown};
use quipu::store::{Commit, Op, OpenJump, Store};
use quipu::{
    ChangeError, FileConflict, FileSettings, FilesError, JumpedWithFiles, RestoreFiles, SessionOptions,
};
use serde_json::{Value, json};

use crate::support::{World, call, say};

/// Every file and link below a directory: its mode and its bytes, or what the link says.
pub(crate) type Tree = BTreeMap<String, (u32, Vec<u8>)>;

pub(crate) fn tree(root: &Path) -> Tree {
    let (mut found, mut left) = (Tree::new(), vec![root.to_path_buf()]);
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if meta.is_dir() {
                left.push(path);
            } else if meta.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                found.insert(name, (0, target.into_os_string().into_encoded_bytes()));
            } else {
                found.insert(name, (meta.mode() & 0o7777, std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

/// The paths that differ.
pub(crate) fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("write", json!({"path": path, "content": content}))
}

/// One session, run after run; where it stood after each, and the files then.
pub(crate) struct Story {
    pub(crate) world: World,
    pub(crate) places: Vec<(NodeId, Tree)>,
}

impl Story {
    /// `prepare` is what a person did before.
    pub(crate) async fn of(runs: &[Vec<(&str, Value)>], prepare: impl FnOnce(&Path)) -> Self {
        Self::with(runs, prepare, |_| {}).await
    }

    pub(crate) async fn with(
        runs: &[Vec<(&str, Value)>],
        prepare: impl FnOnce(&Path),
        change: impl FnOnce(&mut SessionOptions),
    ) -> Self {
        let mut world = World::new();
        world.tools = quipu::builtin();
        prepare(&world.cwd());
        let mut options = world.options();
        change(&mut options);
        let live = world.create_with(options).await;
        let mut places = Vec::new();
        for calls in runs {
            world.fake.push([call(calls), say("done")]);
            assert_eq!(live.run("go").await, Outcome::Done);
            places.push((live.session.view().head.unwrap(), tree(&world.cwd())));
        }
        live.finish().await;
        Self { world, places }
    }

    pub(crate) fn now(&self) -> Tree {
        tree(&self.world.cwd())
    }

    /// Goes there; what was said before is what is done.
    pub(crate) async fn go(&self, to: NodeId, overwrite: bool) -> JumpedWithFiles {
        let how = RestoreFiles { overwrite, ..RestoreFiles::default() };
        let before = self.now();
        let plan = self.world.engine.preview_files(to, &how).await.unwrap();
        assert_eq!(self.now(), before, "looking changes nothing");
        let done = self.world.engine.jump_with_files(to, None, &how).await.unwrap();
        assert_eq!((done.plan == plan, done.problems.as_slice()), (true, &[][..]));
        // A tree has no directories.
        let is_file = |state: &FileState| matches!(state, FileState::File { .. } | FileState::Link { .. });
        let files = plan.changes.iter().filter(|change| is_file(&change.before) || is_file(&change.after));
        let files: Vec<String> = files.map(|change| change.path.clone()).collect();
        assert_eq!(difference(&before, &self.now()), files, "the list is what was changed");
        done
    }
}

fn three_runs() -> Vec<Vec<(&'static str, Value)>> {
    vec![
        vec![write("a", "1\n"), write("keep", "k\n")],
        vec![
            ("edit", json!({"path": "a", "edits": [{"oldText": "1", "newText": "2"}]})),
            write("deep/er/b", "b\n"),
            ("bash", json!({"command": "echo person > nobody-knows"})),
        ],
        vec![write("a", "3\n"), write("old", "changed\n")],
    ]
}

#[tokio::test]
async fn files_are_at_each_node_what_they_were_and_the_way_back_leads_back() {
    let story = Story::of(&three_runs(), |cwd| {
        std::fs::write(cwd.join("old"), b"\xff\0old").unwrap();
        std::fs::set_permissions(cwd.join("old"), std::fs::Permissions::from_mode(0o6751)).unwrap();
        std::fs::write(cwd.join("untouched"), "u").unwrap();
    })
    .await;
    let mut moves = Vec::new();
    for at in [0, 2, 1, 0, 1, 2, 0] {
        let (node, files) = &story.places[at];
        let before = story.now();
        let done = story.go(*node, false).await;
        moves.push((done.jumped.from, before));
        assert_eq!(story.now().get("a"), files.get("a"), "{at}");
        assert_eq!(story.now().get("old"), files.get("old"), "{at}");
        assert_eq!(story.now().get("deep/er/b"), files.get("deep/er/b"), "{at}");
    }
    for (from, before) in moves.into_iter().rev() {
        story.go(from, false).await;
        assert_eq!(story.now(), before);
    }
    assert_eq!(story.now(), story.places[2].1);
    story.world.check().await;
}

#[tokio::test]
async fn what_somebody_changed_is_not_overwritten_unless_told_and_comes_back() {
    let story = Story::of(&three_runs(), |_| {}).await;
    let cwd = story.world.cwd();
    std::fs::write(cwd.join("a"), "mine\n").unwrap();
    std::fs::write(cwd.join("mine"), "too\n").unwrap();
    std::fs::remove_file(cwd.join("deep/er/b")).unwrap();
    let (first, _) = &story.places[0];
    let before = story.now();
    let how = RestoreFiles::default();
    let refused = story.world.engine.jump_with_files(*first, None, &how).await.unwrap_err();
    let ChangeError::Files(FilesError::Conflicts(plan)) = refused else { panic!("{refused}") };
    let conflicts: Vec<_> = plan.conflicts().map(|(change, why)| (change.path.as_str(), why)).collect();
    assert_eq!(conflicts, [("a", FileConflict::Changed)], "what is gone already is as it will be");
    assert_eq!(story.now(), before);
    let done = story.go(*first, true).await;
    assert_eq!(story.now()["a"].1, b"1\n");
    assert_eq!(story.now()["mine"], before["mine"]);
    story.go(done.jumped.from, false).await;
    assert_eq!(story.now(), before);
    story.world.check().await;
}

/// A process that died while it put files back leaves a row; who moves the session next brings it to its end.
#[tokio::test]
async fn what_was_left_of_files_is_told_by_whoever_moves_the_session_next() {
    let story = Story::of(&three_runs(), |_| {}).await;
    let (engine, store, cwd) = (&story.world.engine, &story.world.store, story.world.cwd());
    let (first, last) = (story.places[0].0, story.places[2].0);
    let id = engine.session_to_jump(first).await.unwrap();
    std::fs::write(cwd.join("way"), "by hand").unwrap();
    let dies = async || {
        let state = |target: &str| json!({ "kind": "link", "target": target });
        let change = json!({ "path": "way", "before": state("a"), "after": state("b") });
        let files = json!({ "root": cwd, "steps": [{ "at": cwd.join("way"), "change": change }] });
        let jump = OpenJump { stage: "moved".into(), plan: Json::from(&json!({ "files": files })) };
        let ops = vec![Op::JumpPut { session: id.clone(), jump }];
        store.commit(Commit { ops, ..Commit::default() }).await.unwrap();
    };
    let told = ["way: someone changed it meanwhile, so it was not restored".to_owned()];
    dies().await;
    assert_eq!(engine.undo_along(&id, 1, None).await.unwrap().1, told);
    dies().await;
    assert_eq!(engine.redo_along(&id, 1, None).await.unwrap().1, told);
    dies().await;
    assert_eq!(engine.jump_along(first, None, None).await.unwrap().problems, told);
    assert_eq!(engine.jump_along(first, None, None).await.unwrap().problems, [""; 0], "once");
    dies().await;
    assert_eq!(engine.merge_along(last, &id, "", None, None).await.unwrap().problems, told);
    dies().await;
    assert_eq!(engine.tobe_along(first, "Look.", None).await.unwrap().problems, told);
    assert_eq!(std::fs::read(cwd.join("way")).unwrap(), b"by hand");
    assert_eq!(engine.undo(&id, 3).await.unwrap().last().unwrap().to, Some(last));
    story.world.check().await;
}

/// While something is in the way of such a file, the session is not moved, or what it leaves would never be settled.
#[tokio::test]
async fn a_session_whose_files_cannot_take_their_places_is_not_moved_before_they_can() {
    let story = Story::of(&three_runs(), |_| {}).await;
    let (engine, store, cwd) = (&story.world.engine, &story.world.store, story.world.cwd());
    let first = story.places[0].0;
    let id = engine.session_to_jump(first).await.unwrap();
    std::fs::write(cwd.join("in-the-way"), "").unwrap();
    let at = cwd.join("in-the-way/link");
    let change = json!({
        "path": "in-the-way/link", "before": { "kind": "absent" }, "after": { "kind": "link", "target": "a" },
    });
    let steps = json!([{ "at": at, "staged": cwd.join(".quipu-1.tmp"), "change": change }]);
    let plan = Json::from(&json!({ "files": { "root": cwd, "steps": steps } }));
    let ops = vec![Op::JumpPut { session: id.clone(), jump: OpenJump { stage: "moved".into(), plan } }];
    store.commit(Commit { ops, ..Commit::default() }).await.unwrap();
    let before = story.now();
    let refused = |error: ChangeError| {
        let text = error.to_string();
        assert!(text.contains("in-the-way/link") && text.contains("cannot move"), "{text}");
    };
    refused(engine.undo_along(&id, 1, Some(&RestoreFiles::default())).await.unwrap_err());
    refused(engine.tobe_along(first, "Look.", None).await.unwrap_err());
    refused(engine.jump_with_files(first, None, &RestoreFiles::default()).await.unwrap_err());
    let changed = difference(&before, &story.now());
    assert!(changed.iter().all(|path| path == ".quipu-1.tmp"), "{changed:?}");
    std::fs::remove_file(cwd.join("in-the-way")).unwrap();
    engine.undo(&id, 1).await.unwrap();
    assert_eq!(std::fs::read_link(&at).unwrap(), Path::new("a"));
    assert!(!cwd.join(".quipu-1.tmp").exists());
    engine.redo(&id, 1).await.unwrap();
    story.world.check().await;
}

/// What the settings say of how much is kept holds for what is put back, too.
#[tokio::test]
async fn what_is_replaced_is_kept_up_to_the_limit_that_is_set() {
    let story = Story::of(&three_runs(), |_| {}).await;
    let mine = "by hand\n".repeat(10);
    std::fs::write(story.world.cwd().join("a"), &mine).unwrap();
    let conflict = async |file_bytes: u64| {
        let kept = FileSettings { file_bytes, ..FileSettings::default() };
        let how = RestoreFiles { kept, ..RestoreFiles::default() };
        let plan = story.world.engine.preview_files(story.places[0].0, &how).await.unwrap();
        plan.changes.into_iter().find(|change| change.path == "a").and_then(|change| change.conflict)
    };
    assert_eq!(conflict(mine.len() as u64).await, Some(FileConflict::Changed));
    assert_eq!(conflict(mine.len() as u64 - 1).await, Some(FileConflict::Lost(Unknown::TooLarge)));
}

#[tokio::test]
async fn a_link_or_a_directory_in_the_way_is_left_alone() {
    let runs = [vec![write("d/f", "1"), write("x", "1")], vec![write("d/f", "2"), write("x", "2")]];
    let story = Story::of(&runs, |_| {}).await;
    let cwd = story.world.cwd();
    std::fs::rename(cwd.join("d"), cwd.join("elsewhere")).unwrap();
    symlink("elsewhere", cwd.join("d")).unwrap();
    std::fs::remove_file(cwd.join("x")).unwrap();
    std::fs::create_dir(cwd.join("x")).unwrap();
    std::fs::write(cwd.join("x/mine"), "m").unwrap();
    let before = story.now();
    let done = story.go(story.places[0].0, true).await;
    let left: Vec<_> = done.plan.left.iter().map(|left| left.path.as_str()).collect();
    assert_eq!((left, done.plan.changes.len()), (vec!["d/f", "x"], 0), "{:?}", done.plan);
    assert_eq!(story.now(), before);
    story.go(done.jumped.from, false).await;
    story.world.check().await;
}

#[tokio::test]
async fn where_the_directory_is_gone_or_closed_nothing_moves() {
    let story = Story::of(&three_runs(), |_| {}).await;
    let cwd = story.world.cwd();
    let head = |story: &Story| {
        let store = story.world.store.clone();
        async move { store.heads("quipu/").await.unwrap() }
    };
    let before = head(&story).await;
    let aside = story.world.dir.path().join("aside");
    std::fs::rename(&cwd, &aside).unwrap();
    let how = RestoreFiles { overwrite: true, ..RestoreFiles::default() };
    let gone = story.world.engine.jump_with_files(story.places[0].0, None, &how).await.unwrap_err();
    assert!(matches!(&gone, ChangeError::Files(FilesError::NoDirectory(path)) if *path == cwd), "{gone}");
    assert!(!cwd.exists());
    std::fs::rename(&aside, &cwd).unwrap();
    if !nix::unistd::geteuid().is_root() {
        std::fs::set_permissions(cwd.join("deep/er"), std::fs::Permissions::from_mode(0o555)).unwrap();
        let files = story.now();
        let closed = story.world.engine.jump_with_files(story.places[0].0, None, &how).await.unwrap_err();
        assert!(closed.to_string().contains("deep/er/b"), "{closed}");
        assert_eq!(story.now(), files);
        std::fs::set_permissions(cwd.join("deep/er"), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(head(&story).await, before);
    let id = before[0].name.as_str().strip_prefix("quipu/").unwrap().into();
    assert_eq!(story.world.store.pending(&id).await.unwrap().jump, None);
    story.world.check().await;
}

pub(crate) fn bash(command: &str) -> (&'static str, Value) {
    ("bash", json!({ "command": command }))
}

pub(crate) fn git(cwd: &Path, args: &[&str]) -> bool {
    let run = std::process::Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(cwd)
        .env("HOME", cwd)
        .output();
    run.is_ok_and(|run| run.status.success())
}

fn commands() -> Vec<Vec<(&'static str, Value)>> {
    vec![
        vec![bash("true")],
        vec![bash(
            "printf two > tracked; rm -r dir; mv old moved; chmod 755 script; ln -sfn script link; printf '\\377\\0' > bin",
        )],
        vec![bash("mkdir old && printf x > old/file && rm bin"), write("tracked", "three")],
        vec![bash("rm -rf old && printf again > old; touch script; printf ignored > out/ignored")],
    ]
}

fn prepare(cwd: &Path) {
    for (name, text) in [("tracked", "one"), ("dir/a", "a"), ("dir/b/c", "c"), ("old", "o"), ("script", "#!")]
    {
        std::fs::create_dir_all(cwd.join(name).parent().unwrap()).unwrap();
        std::fs::write(cwd.join(name), text).unwrap();
        let then = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        std::fs::File::options().write(true).open(cwd.join(name)).unwrap().set_modified(then).unwrap();
    }
    symlink("tracked", cwd.join("link")).unwrap();
    std::fs::create_dir_all(cwd.join("out")).unwrap();
    std::fs::write(cwd.join(".gitignore"), "out/\n").unwrap();
}

/// All but what git keeps for itself.
fn watched(tree: &Tree) -> Tree {
    tree.iter()
        .filter(|(name, _)| !name.starts_with(".git/"))
        .map(|(name, state)| (name.clone(), state.clone()))
        .collect()
}

async fn there_and_back(story: &Story) {
    let mut moves = Vec::new();
    for at in [0, 2, 1, 3, 0, 3, 1] {
        let before = story.now();
        let done = story.go(story.places[at].0, false).await;
        assert_eq!(done.plan.left, [], "{at}");
        assert_eq!(watched(&story.now()), watched(&story.places[at].1), "{at}");
        moves.push((done.jumped.from, before));
    }
    for (from, before) in moves.into_iter().rev() {
        story.go(from, false).await;
        assert_eq!(story.now(), before);
    }
}

#[tokio::test]
async fn what_commands_change_goes_too_without_a_repository() {
    let story = Story::of(&commands(), prepare).await;
    there_and_back(&story).await;
    story.world.check().await;
}

#[tokio::test]
async fn what_commands_change_goes_too_in_a_repository_a_worktree_and_beside_a_submodule() {
    let commit = |cwd: &Path| git(cwd, &["add", "."]) && git(cwd, &["commit", "-qm", "x"]);
    let here = std::env::temp_dir();
    if !git(&here, &["--version"]) {
        eprintln!("note: git is not here, so repositories are not tested");
        return;
    }
    let mut runs = commands();
    let repository = Story::of(&runs, |cwd| {
        prepare(cwd);
        assert!(git(cwd, &["init", "-q"]) && commit(cwd));
        std::fs::write(cwd.join("dir/a"), "changed by a person").unwrap();
        std::fs::write(cwd.join("untracked"), "u").unwrap();
    });
    there_and_back(&repository.await).await;
    let worktree = Story::of(&runs, |cwd| {
        let main = cwd.parent().unwrap().join("main");
        std::fs::create_dir(&main).unwrap();
        prepare(&main);
        assert!(git(&main, &["init", "-q"]) && commit(&main));
        assert!(git(&main, &["worktree", "add", "-q", cwd.to_str().unwrap()]));
    });
    there_and_back(&worktree.await).await;
    runs[1].push(bash("printf changed > sub/file && git -C sub add . && printf more > sub/more"));
    let submodule = Story::of(&runs, |cwd| {
        let other = cwd.parent().unwrap().join("other");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("file"), "f").unwrap();
        assert!(git(&other, &["init", "-q"]) && commit(&other));
        prepare(cwd);
        assert!(git(cwd, &["init", "-q"]));
        let other = other.to_str().unwrap();
        assert!(git(cwd, &["-c", "protocol.file.allow=always", "submodule", "-q", "add", other, "sub"]));
        assert!(commit(cwd));
    });
    there_and_back(&submodule.await).await;
}

#[tokio::test]
async fn what_people_change_between_commands_is_theirs() {
    let mut world = World::new();
    world.tools = quipu::builtin();
    let cwd = world.cwd();
    std::fs::write(cwd.join("a"), "1").unwrap();
    let live = world.create().await;
    world.fake.push([call(&[bash("printf c > c")]), say("done"), call(&[bash("printf d > d")]), say("done")]);
    assert_eq!(live.run("go").await, Outcome::Done);
    std::fs::write(cwd.join("a"), "mine").unwrap();
    assert_eq!(live.run("on").await, Outcome::Done);
    let head = live.session.view().head.unwrap();
    let nodes = world.store.lineage(head, quipu::store::Until::Root).await.unwrap();
    let decoded = quipu::store::decode_nodes(&*world.store, &nodes).await.unwrap();
    let paths: Vec<_> = decoded.iter().flat_map(|one| &one.step.files).map(|change| &change.path).collect();
    assert_eq!(paths, ["c", "d"]);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn commands_side_by_side_are_noticed_together() {
    let runs =
        [vec![bash("printf 1 > a"), bash("printf 2 > b"), bash("printf 3 > c")], vec![bash("rm a b c")]];
    let story = Story::of(&runs, |_| {}).await;
    story.go(story.places[0].0, false).await;
    assert_eq!(story.now(), story.places[0].1);
    story.go(story.places[1].0, false).await;
    assert_eq!(story.now(), Tree::new());
    story.world.check().await;
}
