//! What tools change is noticed, and kept.

use quipu_store::ReadModel as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use quipu::protocol::{FileChange, FileState, Outcome, Unknown};
use quipu::store::{Store, Until, decode_nodes};
use quipu::{FileSettings, SessionOptions};
use serde_json::{Value, json};

use crate::support::{LiveSession, World, call, say};

/// What the nodes of a session say of files, in their order.
async fn changes(world: &World, live: &LiveSession) -> Vec<FileChange> {
    let nodes = world.store.lineage(live.session.view().head.unwrap(), Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    decoded.into_iter().flat_map(|one| one.step.files).collect()
}

async fn bytes(world: &World, state: &FileState) -> Vec<u8> {
    world.store.chunk(state.content().unwrap(), 0..u64::MAX).await.unwrap()
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

async fn session(
    calls: &[(&str, Value)],
    change: impl FnOnce(&mut SessionOptions, &Path),
) -> (World, LiveSession) {
    let mut world = World::with([call(calls), say("done")]);
    world.tools = quipu::builtin();
    let mut options = world.options();
    change(&mut options, &world.cwd());
    let live = world.create_with(options).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    (world, live)
}

#[tokio::test]
async fn a_file_is_kept_as_it_was_and_as_it_became() {
    let calls = [
        ("write", json!({"path": "new/a.txt", "content": "one\n"})),
        ("edit", json!({"path": "old.bin", "edits": [{"oldText": "mid", "newText": "MIDDLE"}]})),
        ("write", json!({"path": "same", "content": "same"})),
        ("write", json!({"path": "no\0such", "content": "x"})),
        ("read", json!({"path": "same"})),
    ];
    let old: Vec<u8> = [b"\xff\0".repeat(3_000), b" mid ".to_vec(), b"\xfe\n".repeat(3_000)].concat();
    let (world, live) = session(&calls, |_, cwd| {
        std::fs::write(cwd.join("old.bin"), &old).unwrap();
        std::fs::set_permissions(cwd.join("old.bin"), std::fs::Permissions::from_mode(0o751)).unwrap();
        std::fs::write(cwd.join("same"), "same").unwrap();
    })
    .await;
    let found = changes(&world, &live).await;
    let [made, edited] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((made.path.as_str(), &made.before), ("new/a.txt", &FileState::Absent));
    assert_eq!(bytes(&world, &made.after).await, b"one\n");
    assert_eq!(edited.path, "old.bin");
    assert_eq!(bytes(&world, &edited.before).await, old);
    let path = world.cwd().join("old.bin");
    assert_eq!(bytes(&world, &edited.after).await, std::fs::read(&path).unwrap());
    for state in [&edited.before, &edited.after] {
        assert!(matches!(state, FileState::File { mode: 0o751, .. }), "{state:?}");
    }
    assert_eq!(mode(&path), 0o751);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn large_or_secret_file_is_named_but_not_kept() {
    let key = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";
    let calls = [
        ("write", json!({"path": "large", "content": "x".repeat(101)})),
        ("write", json!({"path": "secret", "content": format!("key = \"{key}\"\n")})),
        ("write", json!({"path": "first", "content": "y".repeat(60)})),
        ("write", json!({"path": "second", "content": "z".repeat(60)})),
    ];
    let (world, live) = session(&calls, |options, cwd| {
        options.files = FileSettings { file_bytes: 100, run_bytes: 110, ..options.files };
        std::fs::write(cwd.join("large"), "small").unwrap();
    })
    .await;
    let found = changes(&world, &live).await;
    let of = |path: &str| &found.iter().find(|change| change.path == path).unwrap().after;
    assert_eq!(*of("large"), FileState::Unknown { why: Unknown::TooLarge, size: Some(101) });
    assert!(matches!(of("secret"), FileState::Unknown { why: Unknown::Secret, .. }), "{found:?}");
    // They run side by side, and there is room for one of the two.
    let states = [of("first"), of("second")];
    assert_eq!(states.iter().filter(|state| state.is_known()).count(), 1, "{states:?}");
    live.finish().await;
    let file = std::fs::read(world.dir.path().join("quipu.db")).unwrap();
    assert_eq!(memchr::memmem::find(&file, key.as_bytes()), None, "the secret is nowhere in the store");
    world.check().await;
}

#[tokio::test]
async fn nothing_is_kept_where_that_is_turned_off() {
    let calls = [("write", json!({"path": "a", "content": "b"}))];
    let (world, live) = session(&calls, |options, _| options.files.enabled = false).await;
    assert_eq!(changes(&world, &live).await, []);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn steps_of_a_file_are_known_by_path_content_and_prompt() {
    use quipu::store::{FileStepQuery, FileSteps};

    let mut world = World::with([
        call(&[("write", json!({"path": "a.txt", "content": "one\n"}))]),
        call(&[("bash", json!({"command": "sed -i s/one/two/ a.txt; mv a.txt b.txt; false"}))]),
        say("done"),
    ]);
    world.tools = quipu::builtin();
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    let path = |name: &str| world.cwd().join(name).to_str().unwrap().to_owned();
    let ask = async |of| {
        let found = world.store.file_steps(FileStepQuery { of, limit: 9 }).await.unwrap();
        assert_eq!(found.behind, 0);
        found.found
    };
    let of_a = ask(FileSteps::Paths(vec![path("a.txt")])).await;
    let [written, removed] = of_a.as_slice() else { panic!("{of_a:?}") };
    assert_eq!((&written.before, &removed.after), (&FileState::Absent, &FileState::Absent));
    assert_eq!(written.after, removed.before);
    assert!(written.answer.is_some() && written.answer != removed.answer && written.seq < removed.seq);
    assert_eq!((written.asked, written.session.is_some()), (removed.asked, true));
    // A command that failed has changed what it changed.
    let made = ask(FileSteps::Paths(vec![path("b.txt")])).await;
    assert_eq!((made.len(), made[0].node, &made[0].before), (1, removed.node, &FileState::Absent));
    assert_eq!(bytes(&world, &made[0].after).await, b"two\n");
    assert_eq!(ask(FileSteps::Content(made[0].after.content().unwrap())).await, made);
    assert_eq!(ask(FileSteps::Content(written.after.content().unwrap())).await, of_a);
    assert_eq!(ask(FileSteps::Asked(written.asked.unwrap())).await.len(), 3);
    assert_eq!(ask(FileSteps::Paths(vec![path("none")])).await, []);
    live.finish().await;
}
