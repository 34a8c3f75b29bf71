//! File tools within bounds: a table of paths that lead out, each tried by each tool, and paths that must work.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use quipu_workspace::{Access, AccessRules, Approval, file_key};
use serde_json::json;

use crate::bench::{Bench, text};

/// Paths that lead to a file outside, or to a new one there. `{out}` is the directory outside, `{name}` a file.
const OUT: &[&str] = &[
    "{out}/{name}",
    "../out/{name}",
    "./../out/{name}",
    "../work/../out/{name}",
    "..//out///{name}",
    "sub/../../out/{name}",
    "sub/./.././../out/./{name}",
    "dirlink/{name}",
    "chain/{name}",
    "sub/up/out/{name}",
    "sub/up/out/../out/{name}",
    "dirlink/../out/{name}",
    "file:///{out}/{name}",
    "file://localhost{out}/{name}",
    "file://{out}/%2e%2e/out/{name}",
    "@{out}/{name}",
    "@../out/{name}",
    "/proc/self/root{out}/{name}",
    "/proc/self/cwd/../../../../../../../../../../../../..{out}/{name}",
    "/proc/thread-self/root{out}/{name}",
    "/proc/1/root{out}/{name}",
    "/dev/fd/../../../../../../../../..{out}/{name}",
    "//{out}/{name}",
    "/..{out}/{name}",
    "sub\u{a0}x/../../out/{name}",
];

fn bench() -> (Bench, PathBuf) {
    let mut bench = Bench::new(&[("inside", b"inside\n")]);
    let root = bench.dir.path().canonicalize().unwrap();
    let out = root.join("out");
    for made in ["out", "work/sub", "work/sub x", "own", "home/.ssh", "outputs"] {
        fs::create_dir_all(root.join(made)).unwrap();
    }
    fs::write(out.join("file"), "content\n").unwrap();
    fs::write(root.join("home/.ssh/config"), "content\n").unwrap();
    fs::write(root.join("own/auth.json"), "content\n").unwrap();
    fs::write(root.join("outputs/kept"), "content\n").unwrap();
    fs::write(root.join("work/id_ed25519"), "content\n").unwrap();
    symlink(&out, root.join("work/dirlink")).unwrap();
    symlink("dirlink", root.join("work/chain")).unwrap();
    symlink("../..", root.join("work/sub/up")).unwrap();
    symlink("../out/file", root.join("work/filelink")).unwrap();
    symlink("../out/dangling", root.join("work/dangling")).unwrap();
    symlink("loop", root.join("work/loop")).unwrap();
    fs::hard_link(out.join("file"), root.join("work/hard")).unwrap();
    bench.cx.cwd = root.join("work");
    bench.cx.access = Access::within(AccessRules {
        write: vec![root.join("work")],
        read: vec![root.join("outputs")],
        own: vec![root.join("own")],
        home: Some(root.join("home")),
        protects: true,
    });
    (bench, out)
}

async fn refused(bench: &Bench, tool: &str, path: &str) {
    let args = match tool {
        "read" => json!({ "path": path }),
        "write" => json!({ "path": path, "content": "escaped" }),
        _ => json!({ "path": path, "edits": [{ "oldText": "content", "newText": "escaped" }] }),
    };
    let output = bench.run(tool, args).await;
    assert!(output.is_error, "{tool} {path}: {}", text(&output));
    assert!(!text(&output).contains("content\n"), "{tool} {path}: {}", text(&output));
}

#[tokio::test]
async fn paths_that_lead_out_are_refused() {
    let (bench, out) = bench();
    let root = out.parent().unwrap().to_path_buf();
    let mut tried = 0;
    let names =
        |dir: &PathBuf| fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect::<Vec<_>>();
    let before = names(&out);
    let mut paths: Vec<String> = Vec::new();
    for path in OUT {
        for name in ["file", "new", "newdir/new"] {
            paths.push(path.replace("{out}", out.to_str().unwrap()).replace("{name}", name));
        }
    }
    paths.extend(["filelink", "dangling", "loop", "id_ed25519", "../home/.ssh/config"].map(str::to_owned));
    paths.extend(
        ["/proc/self/mem", "/proc/self/environ", "/dev/mem", "/etc/passwd", "/dev/null"].map(str::to_owned),
    );
    for path in &paths {
        for tool in ["read", "write", "edit"] {
            refused(&bench, tool, path).await;
            tried += 1;
        }
    }
    // Its content is what the workspace holds, so it may be read; to write it would reach the other name.
    for (tool, path) in [
        ("write", "hard"),
        ("edit", "hard"),
        ("write", "../own/x"),
        ("edit", "../own/auth.json"),
        ("write", "../outputs/kept"),
    ] {
        refused(&bench, tool, path).await;
        tried += 1;
    }
    assert_eq!(names(&out), before);
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "content\n");
    assert_eq!(fs::read_to_string(root.join("own/auth.json")).unwrap(), "content\n");
    assert_eq!(fs::read_to_string(root.join("outputs/kept")).unwrap(), "content\n");
    assert!(!root.join("own/x").exists());
    eprintln!("{tried} escapes tried");
}

#[tokio::test]
async fn paths_inside_the_workspace_are_writable() {
    let (bench, _) = bench();
    for path in ["new", "deep/er/new", "./sub/../x", "sub/new", "sub x/y", "@z"] {
        let output = bench.run("write", json!({ "path": path, "content": "content" })).await;
        assert!(!output.is_error, "{path}: {}", text(&output));
        let edit = json!({ "path": path, "edits": [{ "oldText": "content", "newText": "other" }] });
        let output = bench.run("edit", edit).await;
        assert!(!output.is_error, "{path}: {}", text(&output));
        assert_eq!(text(&bench.run("read", json!({ "path": path })).await), "other", "{path}");
    }
    symlink("sub/target", bench.path("in")).unwrap();
    let output = bench.run("write", json!({ "path": "in", "content": "through" })).await;
    assert!(!output.is_error, "{}", text(&output));
    assert_eq!(fs::read_to_string(bench.path("sub/target")).unwrap(), "through");
    assert!(bench.path("in").is_symlink());
    for path in ["hard", "../outputs/kept"] {
        assert_eq!(text(&bench.run("read", json!({ "path": path })).await), "content\n", "{path}");
    }
}

/// What was approved is a file, not a name: when the name leads elsewhere by the time, it is refused.
#[tokio::test]
async fn an_approved_path_is_that_file_alone() {
    let (mut bench, out) = bench();
    bench.cx.access = bench.cx.access.approving(vec![Approval::of(file_key(&out.join("file")))]);
    let write = |path: &str| json!({ "path": path, "content": "allowed\n" });
    for path in ["filelink", "../out/file", "hard"] {
        let output = bench.run("read", json!({ "path": path })).await;
        assert!(!output.is_error, "{path}: {}", text(&output));
    }
    let output = bench.run("write", write("filelink")).await;
    assert!(!output.is_error, "{}", text(&output));
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "allowed\n");
    assert!(bench.run("write", write("../out/other")).await.is_error);
    assert!(bench.run("write", write("hard")).await.is_error, "another name of it was not approved");
    fs::write(out.join("secret"), "content\n").unwrap();
    fs::remove_file(bench.path("filelink")).unwrap();
    symlink("../out/secret", bench.path("filelink")).unwrap();
    for tool in ["read", "write", "edit"] {
        refused(&bench, tool, "filelink").await;
    }
    // Our own files stay closed whatever is approved.
    let own = out.parent().unwrap().join("own/auth.json");
    bench.cx.access = bench.cx.access.approving(vec![Approval::of(file_key(&own))]);
    refused(&bench, "write", "../own/auth.json").await;
    assert_eq!(fs::read_to_string(own).unwrap(), "content\n");
}

/// Between the moment when it was allowed and the one in which it is opened nobody can be asked.
#[tokio::test]
async fn file_linked_after_its_approval_is_refused() {
    for (path, first) in [("../out/other", "one name"), ("hard", "another file behind it")] {
        let (mut bench, out) = bench();
        fs::write(out.join("other"), "content\n").unwrap();
        fs::write(out.join("victim"), "content\n").unwrap();
        let file = file_key(&bench.path(path));
        bench.cx.access = bench.cx.access.approving(vec![Approval::of(file.clone())]);
        fs::remove_file(&file).unwrap();
        fs::hard_link(out.join("victim"), &file).unwrap();
        let write = json!({ "path": path, "content": "escaped" });
        let edit = json!({ "path": path, "edits": [{ "oldText": "content", "newText": "escaped" }] });
        for (tool, args) in [("write", write), ("edit", edit)] {
            let output = bench.run(tool, args).await;
            assert!(output.is_error, "{tool}, {first}");
            assert!(text(&output).contains("it was allowed, but was then replaced"), "{}", text(&output));
        }
        assert_eq!(fs::read_to_string(out.join("victim")).unwrap(), "content\n");
        if path != "hard" {
            let output = bench.run("read", json!({ "path": path })).await;
            assert!(output.is_error && text(&output).contains("was then replaced"), "{}", text(&output));
        }
    }
}

/// A file of the workspace is exchanged for a hard link to the outside again and again while it is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanging_a_file_for_a_hard_link_meanwhile_leads_nowhere() {
    let (bench, out) = bench();
    fs::write(out.join("victim"), "content\n").unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (work, target, stopped) = (bench.cx.cwd.clone(), out.join("victim"), stop.clone());
    let racer = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            fs::write(work.join("plain"), "content\n").unwrap();
            fs::rename(work.join("plain"), work.join("race")).unwrap();
            fs::hard_link(&target, work.join("evil")).unwrap();
            fs::rename(work.join("evil"), work.join("race")).unwrap();
        }
    });
    let mut refused = 0;
    for round in 0..400 {
        let write = json!({ "path": "race", "content": "escaped" });
        let edit = json!({ "path": "race", "edits": [{ "oldText": "content", "newText": "escaped" }] });
        let (tool, args) = if round % 2 == 0 { ("write", write) } else { ("edit", edit) };
        refused += usize::from(bench.run(tool, args).await.is_error);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    racer.join().unwrap();
    assert_eq!(fs::read_to_string(out.join("victim")).unwrap(), "content\n");
    eprintln!("{refused} of 400 writes were refused");
}

/// A directory of the workspace is exchanged for a link to the outside again and again while files are written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn exchanging_a_directory_for_a_link_meanwhile_leads_nowhere() {
    let (bench, out) = bench();
    if !cfg!(target_os = "linux") {
        eprintln!("note: only on Linux is a directory used through its handle; not tested");
        return;
    }
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (work, target, stopped) = (bench.cx.cwd.clone(), out.clone(), stop.clone());
    let (at, aside) = (work.join("race"), work.join("aside"));
    // Before the first write, which would make the directory itself.
    fs::create_dir(&at).unwrap();
    symlink(&target, work.join("evil")).unwrap();
    let racer = std::thread::spawn(move || {
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            fs::rename(&at, &aside).ok();
            fs::rename(work.join("evil"), &at).ok();
            fs::rename(&at, work.join("evil")).ok();
            fs::rename(&aside, &at).ok();
        }
    });
    let mut refused = 0;
    for round in 0..150 {
        let path = format!("race/{}", ["new", "file", "deep/new"][round % 3]);
        let output = bench.run("write", json!({ "path": path, "content": "escaped" })).await;
        refused += usize::from(output.is_error);
        let output = bench.run("read", json!({ "path": "race/file" })).await;
        assert!(output.is_error || text(&output) != "content\n");
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    racer.join().unwrap();
    assert_eq!(fs::read_to_string(out.join("file")).unwrap(), "content\n");
    assert_eq!(fs::read_dir(&out).unwrap().count(), 1);
    eprintln!("{refused} of 150 writes were refused");
}
