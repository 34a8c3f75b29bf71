//! Files go with the conversation: what the plan says is what is changed, and the way back leads back.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use quipu::protocol::{NodeId, Outcome};
use quipu::store::Store;
use quipu::{ChangeError, FileConflict, FilePlan, FilesError, JumpedWithFiles, RestoreFiles};
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
fn difference(before: &Tree, after: &Tree) -> Vec<String> {
    let names: std::collections::BTreeSet<_> = before.keys().chain(after.keys()).collect();
    names.into_iter().filter(|name| before.get(*name) != after.get(*name)).cloned().collect()
}

fn paths(plan: &FilePlan) -> Vec<String> {
    plan.changes.iter().map(|change| change.path.clone()).collect()
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
        let mut world = World::new();
        world.tools = quipu::builtin();
        prepare(&world.cwd());
        let live = world.create().await;
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
        assert_eq!(difference(&before, &self.now()), paths(&plan), "the list is what was changed");
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
