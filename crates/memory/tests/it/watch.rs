//! Changes of notes are noticed, whatever program makes them and however.

use std::fs;
use std::path::Path;
use std::time::Duration;

use quipu_memory::search::NoteWatch;

use crate::support::World;

/// Longer than any machine takes, and no answer is waited for so long.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

/// Whether a change is noticed; the watch goes on.
async fn notices(watch: &mut NoteWatch, world: &World, change: impl FnOnce(&Path)) -> bool {
    let place = world.book().place().clone();
    let around = [world.dir.path().join("home")];
    watch.watch(std::slice::from_ref(&place), &around);
    change(&place.root);
    tokio::time::timeout(LONG, watch.changed()).await.is_ok()
}

#[tokio::test]
async fn changes_of_note_files_are_noticed() {
    let world = World::new();
    let mut watch = NoteWatch::default();
    fs::create_dir_all(world.dir.path().join("home")).unwrap();
    let changes: [fn(&Path); 8] = [
        // There is no memory yet.
        |root| fs::create_dir_all(root).unwrap(),
        |root| fs::write(root.join("MEMORY.md"), "- red\n").unwrap(),
        |root| fs::create_dir_all(root.join("memory/old")).unwrap(),
        |root| fs::write(root.join("memory/old/2026-11-01.md"), "- blue\n").unwrap(),
        // As editors do it.
        |root| {
            fs::write(root.join("memory/.tmp"), "- green\n").unwrap();
            fs::rename(root.join("memory/.tmp"), root.join("memory/old/2026-11-01.md")).unwrap();
        },
        |root| fs::remove_file(root.join("memory/old/2026-11-01.md")).unwrap(),
        // Another directory in its place.
        |root| {
            fs::rename(root.join("memory"), root.with_extension("away")).unwrap();
            fs::create_dir_all(root.join("memory")).unwrap();
        },
        |root| fs::remove_dir_all(root).unwrap(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        assert!(notices(&mut watch, &world, change).await, "change {at}");
        assert_eq!(watch.is_reported(), cfg!(target_os = "linux"), "change {at}");
    }
}

#[tokio::test]
async fn replaced_memory_is_watched_and_what_was_moved_away_is_not() {
    let world = World::new();
    let mut watch = NoteWatch::default();
    world.put("memory/2026-11-01.md", "- red\n");
    let away = world.dir.path().join("away");
    let replace = |root: &Path| {
        fs::rename(root, &away).unwrap();
        fs::create_dir_all(root.join("memory")).unwrap();
    };
    assert!(notices(&mut watch, &world, replace).await);
    let write = |root: &Path| fs::write(root.join("memory/2026-11-02.md"), "- blue\n").unwrap();
    assert!(notices(&mut watch, &world, write).await);
    // All that was reported of this is read first.
    while tokio::time::timeout(SHORT, watch.changed()).await.is_ok() {}
    fs::write(away.join("memory/2026-11-01.md"), "- green\n").unwrap();
    assert!(tokio::time::timeout(SHORT, watch.changed()).await.is_err());
}

#[tokio::test]
async fn thousands_of_changes_are_one_report() {
    let world = World::new();
    let mut watch = NoteWatch::default();
    world.put("MEMORY.md", "- red\n");
    let many = |root: &Path| {
        fs::create_dir_all(root.join("memory")).unwrap();
        for number in 0..3_000 {
            fs::write(root.join(format!("memory/{number}.md")), "- blue\n").unwrap();
        }
    };
    assert!(notices(&mut watch, &world, many).await);
    let mut reports = 0;
    while tokio::time::timeout(SHORT, watch.changed()).await.is_ok() {
        reports += 1;
    }
    assert!(reports < 200, "{reports}");
}
