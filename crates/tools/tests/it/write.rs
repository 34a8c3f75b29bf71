use serde_json::json;

use crate::bench::{Bench, check, text};

#[tokio::test]
async fn table() {
    let long = "x".repeat(100_000);
    check(
        "write",
        json!({"path": "a", "content": "é\r\n\n"}),
        &[],
        "Successfully wrote to a",
        &[("a", "é\r\n\n".as_bytes())],
    )
    .await;
    check(
        "write",
        json!({"path": "a", "content": ""}),
        &[("a", b"old")],
        "Successfully wrote to a",
        &[("a", b"")],
    )
    .await;
    check(
        "write",
        json!({"path": "@a", "content": long}),
        &[("a", b"old")],
        "Successfully wrote to @a",
        &[("a", long.as_bytes())],
    )
    .await;
    check("write", json!({"path": "a", "content": 5}), &[], "Successfully wrote to a", &[("a", b"5")]).await;
    check("write", json!({"path": "d/e/f", "content": "x"}), &[], "Successfully wrote to d/e/f", &[]).await;
    check(
        "write",
        json!({"path": "/dev/null", "content": "x"}),
        &[],
        "!EINVAL: /dev/null is a character device, not a regular file",
        &[],
    )
    .await;
    check(
        "write",
        json!({"path": ".", "content": "x"}),
        &[("a", b"1")],
        "!EISDIR: CWD/. is a directory, not a regular file. List it with a command such as ls",
        &[("a", b"1")],
    )
    .await;
    check(
        "write",
        json!({"path": "a/b", "content": "x"}),
        &[("a", b"1")],
        "!ENOTDIR: cannot inspect CWD/a/b: Not a directory (os error 20)",
        &[("a", b"1")],
    )
    .await;
    check(
        "write",
        json!({"path": "nul\0", "content": "x"}),
        &[],
        "!EINVAL: cannot inspect CWD/nul\0: file name contained an unexpected NUL byte",
        &[],
    )
    .await;
}

#[tokio::test]
async fn aborted_before_it_began_changes_nothing() {
    for (tool, args) in [
        ("write", json!({"path": "a", "content": "new"})),
        ("edit", json!({"path": "a", "edits": [{"oldText": "old", "newText": "new"}]})),
        ("read", json!({"path": "a"})),
    ] {
        let bench = Bench::new(&[("a", b"old")]);
        bench.cx.cancel.cancel();
        let output = bench.run(tool, args).await;
        assert_eq!((text(&output), output.is_error), ("Operation aborted", true), "{tool}");
        assert_eq!(bench.files(), [("a".to_owned(), b"old".to_vec())]);
    }
}
