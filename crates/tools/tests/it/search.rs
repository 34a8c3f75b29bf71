//! grep, find and ls on real trees.

use std::fs;
use std::os::unix::fs::symlink;

use quipu_workspace::{Access, AccessRules};
use serde_json::{Value, json};

use crate::bench::{Bench, text};

fn tree() -> Bench {
    let mut bench = Bench::new(&[]);
    let root = bench.cx.cwd.canonicalize().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    put(".gitignore", b"target/\n*.log\n");
    put("README.md", b"one knot\ntwo Knots\n");
    put("src/main.rs", b"fn main() {\n    knot();\n}\n");
    put("src/deep/lib.rs", b"// nothing\n");
    put("target/main.rs", b"knot\n");
    put("a.log", b"knot\n");
    put(".hidden/x.rs", b"let knot = 1;\r\n");
    put("picture.bin", b"knot\0knot\n");
    put("secret/id_ed25519", b"knot\n");
    symlink("README.md", root.join("link.md")).unwrap();
    symlink("nowhere", root.join("broken")).unwrap();
    bench.cx.cwd = root;
    bench
}

async fn run(bench: &Bench, tool: &str, args: Value) -> String {
    let output = bench.run(tool, args).await;
    format!("{}{}", if output.is_error { "!" } else { "" }, text(&output))
}

#[tokio::test]
async fn grep_finds_lines_and_respects_ignore_files() {
    let bench = tree();
    fs::remove_dir_all(bench.path("secret")).unwrap();
    let all = ".hidden/x.rs:1: let knot = 1;\nREADME.md:1: one knot\nsrc/main.rs:2:     knot();";
    assert_eq!(run(&bench, "grep", json!({ "pattern": "knot" })).await, all);
    assert_eq!(run(&bench, "grep", json!({ "pattern": "kno(t)\\b" })).await, all);
    let rs = run(&bench, "grep", json!({ "pattern": "knot", "glob": "*.rs", "path": "src" })).await;
    assert_eq!(rs, "main.rs:2:     knot();");
    let around = json!({ "pattern": "KNOT()", "literal": true, "ignoreCase": true, "context": 1, "path": "src/main.rs" });
    assert_eq!(
        run(&bench, "grep", around).await,
        "main.rs-1- fn main() {\nmain.rs:2:     knot();\nmain.rs-3- }"
    );
    // What is left out of a search is found where it is named.
    assert_eq!(run(&bench, "grep", json!({ "pattern": "k", "path": "target" })).await, "main.rs:1: knot");
    assert_eq!(run(&bench, "grep", json!({ "pattern": "absent" })).await, "No matches found");
    let bad = run(&bench, "grep", json!({ "pattern": "(" })).await;
    assert!(bad.starts_with("!The pattern is no regular expression: "), "{bad}");
    assert!(
        run(&bench, "grep", json!({ "pattern": "a", "path": "none" })).await.starts_with("!Path not found: ")
    );
}

#[tokio::test]
async fn search_tools_are_bounded() {
    let bench = Bench::new(&[]);
    let line = format!("{}\n", "x".repeat(600));
    fs::write(bench.path("long"), line.repeat(30_000)).unwrap();
    let cut = run(&bench, "grep", json!({ "pattern": "x", "limit": 3 })).await;
    assert!(cut.contains("\nlong:3: x") && !cut.contains("long:4"), "{}", cut.len());
    assert!(cut.ends_with("\n\n[3 matches limit reached. Use limit=6 for more, or refine pattern. Some lines truncated to 500 chars. Use read tool to see full lines]"));
    let full = run(&bench, "grep", json!({ "pattern": "x", "limit": 100_000 })).await;
    assert!(full.len() < 52_000 && full.ends_with("50.0KB limit reached]"), "{}", full.len());
    // A match far into a file, over the blocks that it is read in.
    let mut big = "y\n".repeat(6 << 20).into_bytes();
    big.extend_from_slice(b"needle\n");
    fs::write(bench.path("big"), &big).unwrap();
    let number = (6 << 20) + 1;
    assert_eq!(run(&bench, "grep", json!({ "pattern": "needle" })).await, format!("big:{number}: needle"));
    for name in 0..1_200 {
        fs::write(bench.path(&format!("n{name:04}")), "").unwrap();
    }
    let found = run(&bench, "find", json!({ "pattern": "n*" })).await;
    assert!(found.starts_with("n0000\nn0001\n"), "{}", &found[..80]);
    assert!(
        found.ends_with("n0999\n\n[1000 results limit reached. Use limit=2000 for more, or refine pattern]")
    );
    let listed = run(&bench, "ls", json!({ "limit": 2 })).await;
    assert_eq!(listed, "big\nlong\n\n[2 entries limit reached. Use limit=4 for more]");
}

#[tokio::test]
async fn find_and_ls_list_names() {
    let bench = tree();
    assert_eq!(
        run(&bench, "find", json!({ "pattern": "*.rs" })).await,
        ".hidden/x.rs\nsrc/deep/lib.rs\nsrc/main.rs"
    );
    assert_eq!(run(&bench, "find", json!({ "pattern": "src/*" })).await, "src/deep/\nsrc/main.rs");
    assert_eq!(run(&bench, "find", json!({ "pattern": "zzz" })).await, "No files found matching pattern");
    assert!(run(&bench, "find", json!({ "pattern": "[" })).await.starts_with("!The pattern"));
    assert_eq!(
        run(&bench, "ls", json!({})).await,
        ".gitignore\n.hidden/\na.log\nlink.md\npicture.bin\nREADME.md\nsecret/\nsrc/\ntarget/"
    );
    fs::create_dir(bench.path("empty")).unwrap();
    assert_eq!(run(&bench, "ls", json!({ "path": "empty" })).await, "(empty directory)");
    assert!(run(&bench, "ls", json!({ "path": "README.md" })).await.starts_with("!Not a directory: "));
}

#[tokio::test]
async fn searches_stay_within_what_may_be_read() {
    let mut bench = tree();
    let root = bench.dir.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("out")).unwrap();
    fs::write(root.join("out/file"), "knot\n").unwrap();
    symlink(root.join("out"), bench.path("outlink")).unwrap();
    let rules = AccessRules { write: vec![bench.cx.cwd.clone()], ..AccessRules::default() };
    bench.cx.access = Access::within(rules);
    let all = run(&bench, "grep", json!({ "pattern": "knot", "glob": "{*.md,id_*,file}" })).await;
    assert_eq!(
        all,
        "README.md:1: one knot\n\n[1 files were not searched: they hold secrets, or your rules close them]"
    );
    for tool in ["grep", "find", "ls"] {
        for path in ["../out", "outlink", "/proc/self/cwd/../out"] {
            let refused = run(&bench, tool, json!({ "pattern": "knot", "path": path })).await;
            assert!(
                refused.starts_with("!EPERM: ") || refused.starts_with("!Path not found"),
                "{tool} {path}: {refused}"
            );
        }
    }
    let approved = quipu_workspace::Approval::of(root.join("out"));
    bench.cx.access = bench.cx.access.approving(vec![approved]);
    assert_eq!(run(&bench, "grep", json!({ "pattern": "knot", "path": "../out" })).await, "file:1: knot");
    let rule = quipu_rules::Rule::parse("read(**/*.md)").unwrap();
    let denied = quipu_rules::RuleSet::new(vec![(quipu_rules::Effect::Deny, rule)]);
    bench.cx.access = bench.cx.access.searching_by(denied, bench.cx.cwd.clone(), None);
    let closed = run(&bench, "grep", json!({ "pattern": "knot", "glob": "*.md" })).await;
    assert!(closed.starts_with("No matches found\n\n[1 files were not searched"), "{closed}");
    bench.cx.cancel.cancel();
    assert_eq!(run(&bench, "grep", json!({ "pattern": "knot" })).await, "!Operation aborted");
}
