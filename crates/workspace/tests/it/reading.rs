//! The sandbox for commands that only read, made from one that may write.

use std::sync::Arc;

use crate::confined::{World, snapshot, worlds};

/// What each tries to write, from within the workspace.
const WRITES: [&str; 10] = [
    "echo changed > inside",
    "touch new",
    "rm -f inside",
    "mv inside moved",
    "chmod 000 inside",
    "ln -s inside link",
    "mkdir made",
    "truncate -s 0 inside",
    "echo x > \"$ADDED/x\"; echo x > \"$OUT/x\"; echo x > \"$HOME/.cache/x\"",
    "sh -c 'cd / && echo x > \"$OLDPWD/x\"'",
];

fn reading(world: &World) -> World {
    world.with(Arc::new(world.sandbox.reading()), world.env.clone())
}

#[tokio::test]
async fn reading_sandbox_writes_only_temporary_files() {
    for world in worlds() {
        world.fresh();
        let reading = reading(&world);
        let before = ["ws", "added", "out", "home"].map(|name| snapshot(&world.path(name)));
        for command in WRITES {
            reading.run(command).await.unwrap();
            let after = ["ws", "added", "out", "home"].map(|name| snapshot(&world.path(name)));
            assert_eq!(before, after, "{:?}: {command}", world.way);
        }
        let told = reading
            .run("cat inside; echo kept > \"$TMPDIR/own\"; cat \"$TMPDIR/own\"; echo \"$GIT_OPTIONAL_LOCKS\"")
            .await
            .unwrap();
        assert_eq!(told.1, "inside\nkept\n0\n", "{:?}", world.way);
        // The one that it was made from writes as before, and git is told nothing there.
        let told =
            world.run("echo more >> inside; cat inside; echo \"[$GIT_OPTIONAL_LOCKS]\"").await.unwrap();
        assert_eq!(told.1, "inside\nmore\n[]\n", "{:?}", world.way);
    }
}
