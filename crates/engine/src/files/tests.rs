//! A process that dies while files are put back, at each of its steps.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::{ChunkId, FileState, NodeId, SessionId};
use quipu_seal::Sealer;
use quipu_store::{Commit, NewChunk, SqliteStore, Store};
use sha2::{Digest as _, Sha256};

use quipu_transcript::{FilePlan, PlannedChange};

use super::plan::RestorePlan;
use super::restore::{FilesError, InFlight, settle};

struct World {
    dir: tempfile::TempDir,
    root: PathBuf,
    store: SqliteStore,
    sealer: Arc<Sealer>,
    session: SessionId,
}

fn file(text: &str) -> FileState {
    FileState::File {
        mode: 0o640,
        size: text.len() as u64,
        content: ChunkId(Sha256::digest(text.as_bytes()).into()),
    }
}

fn put(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o640)).unwrap();
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        put(&root.join("changed"), "theirs");
        put(&root.join("removed"), "gone");
        let (store, sealer) = (SqliteStore::in_memory().unwrap(), Arc::new(Sealer::new([0; 32])));
        Self { dir, root, store, sealer, session: "s".into() }
    }

    /// What is to be done: one file is changed, one made, one removed, one link made.
    async fn ready(&self) -> RestorePlan {
        let mut chunks = Vec::new();
        for text in ["ours", "new"] {
            let bytes: Arc<[u8]> = text.as_bytes().into();
            chunks.push(NewChunk::Full { id: ChunkId(Sha256::digest(&bytes).into()), bytes });
        }
        self.store.commit(Commit { chunks, ..Commit::default() }).await.unwrap();
        let change = |path: &str, before, after| PlannedChange {
            path: path.into(),
            before,
            after,
            conflict: None,
            implied: false,
        };
        let changes = vec![
            change("a/new", FileState::Absent, file("new")),
            change("changed", file("theirs"), file("ours")),
            change("link", FileState::Absent, FileState::Link { target: "a/new".into() }),
            change("removed", file("gone"), FileState::Absent),
        ];
        let places = changes.iter().map(|change| (self.root.join(&change.path), None)).collect();
        RestorePlan { plan: FilePlan { changes, ..FilePlan::default() }, places, keeps: Vec::new() }
    }

    async fn begin(&self, ready: RestorePlan) -> Result<InFlight, FilesError> {
        InFlight::stage(&self.store, &self.session, NodeId([1; 32]), ready, (self.root.clone(), &[])).await
    }

    async fn settle(&self) -> Vec<String> {
        let settled = settle(&self.store, &self.sealer, &self.session).await.unwrap();
        assert!(!settled.is_pending);
        settled.notes
    }

    /// The commit that moves the ref.
    async fn moved(&self, flight: &InFlight) {
        let ops = vec![flight.op(&self.session, None)];
        self.store.commit(Commit { ops, ..Commit::default() }).await.unwrap();
    }

    async fn is_open(&self) -> bool {
        self.store.pending(&self.session).await.unwrap().jump.is_some()
    }

    /// Every file by its name, with its text or what the link says.
    fn files(&self) -> Vec<String> {
        let (mut found, mut left) = (Vec::new(), vec![self.root.clone()]);
        while let Some(directory) = left.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(&self.root).unwrap().display().to_string();
                match path.symlink_metadata().unwrap() {
                    meta if meta.is_dir() => left.push(path),
                    meta if meta.is_symlink() => {
                        found.push(format!("{name} -> {}", path.read_link().unwrap().display()));
                    }
                    _ => found.push(format!("{name} {}", std::fs::read_to_string(&path).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}

const BEFORE: [&str; 2] = ["changed theirs", "removed gone"];
const AFTER: [&str; 3] = ["a/new new", "changed ours", "link -> a/new"];

#[tokio::test]
async fn before_the_ref_has_moved_all_is_taken_back() {
    let world = World::new();
    let flight = world.begin(world.ready().await).await.unwrap();
    assert_eq!(world.files().len(), 5, "staged beside the targets");
    drop(flight);
    assert_eq!(world.settle().await, [""; 0]);
    assert_eq!((world.files(), world.is_open().await), (BEFORE.map(String::from).to_vec(), false));
    assert_eq!(world.settle().await, [""; 0], "once is enough");
}

#[tokio::test]
async fn moved_restore_completes_from_any_point() {
    for done in 0..=5 {
        let world = World::new();
        let flight = world.begin(world.ready().await).await.unwrap();
        world.moved(&flight).await;
        drop(flight);
        let staged = |target: &str| {
            let entries = std::fs::read_dir(&world.root).unwrap().map(|entry| entry.unwrap().path());
            let found = entries.filter(|path| path.extension().is_some_and(|end| end == "tmp"));
            found.into_iter().find(|path| match path.read_link() {
                Ok(_) => target == "link",
                Err(_) => std::fs::read_to_string(path).unwrap() == target,
            })
        };
        if done > 0 {
            std::fs::remove_file(world.root.join("removed")).unwrap();
        }
        if done > 1 {
            std::fs::create_dir(world.root.join("a")).unwrap();
            std::fs::rename(staged("new").unwrap(), world.root.join("a/new")).unwrap();
        }
        if done > 2 {
            std::fs::rename(staged("ours").unwrap(), world.root.join("changed")).unwrap();
        }
        if done > 3 {
            std::fs::remove_file(staged("link").unwrap()).unwrap();
        }
        if done > 4 {
            std::os::unix::fs::symlink("a/new", world.root.join("link")).unwrap();
        }
        assert_eq!(world.settle().await, [""; 0]);
        assert_eq!(
            (world.files(), world.is_open().await),
            (AFTER.map(String::from).to_vec(), false),
            "{done}"
        );
    }
}

#[tokio::test]
async fn file_changed_meanwhile_is_kept_and_reported() {
    let world = World::new();
    let flight = world.begin(world.ready().await).await.unwrap();
    world.moved(&flight).await;
    drop(flight);
    put(&world.root.join("changed"), "mine");
    let notes = world.settle().await;
    assert!(notes.len() == 1 && notes[0].starts_with("changed: someone"), "{notes:?}");
    assert_eq!(world.files(), ["a/new new", "changed mine", "link -> a/new"]);
    assert!(!world.is_open().await);
}

#[tokio::test]
async fn failed_staging_changes_no_file() {
    let world = World::new();
    let mut ready = world.ready().await;
    // Its bytes are nowhere: the last of them, so that others are staged before.
    ready.plan.changes[3].after = file("lost");
    assert!(matches!(world.begin(ready).await, Err(FilesError::Store(_))));
    assert_eq!((world.files(), world.is_open().await), (BEFORE.map(String::from).to_vec(), false));
    drop(world.dir);
}
