//! Looks at a workspace: what is seen, and what a look after another one finds.

use std::fs;
use std::process::Command;

use super::*;

fn names(files: &Files) -> Vec<String> {
    let mut names: Vec<String> = files.iter().map(|(path, _)| path.display().to_string()).collect();
    names.sort();
    names
}

fn put(root: &Path, name: &str, text: &str) {
    fs::create_dir_all(root.join(name).parent().unwrap()).unwrap();
    fs::write(root.join(name), text).unwrap();
}

#[test]
fn scan_skips_ignored_files_and_finds_changes() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    for at in 0..100 {
        put(root, &format!("src/{at}/f"), "x");
    }
    for name in
        ["a", "b/c.o", "b/keep.o", "target/x", "b/target/y", ".git/config", ".quipu-1.tmp", "b/x/log/z"]
    {
        put(root, name, "x");
    }
    put(root, ".gitignore", "*.o\n!keep.o\ntarget/\n# no\n/b/**/log\n");
    std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
    let first = scan(root, None, None, 0).unwrap();
    let seen: Vec<String> = names(&first).into_iter().filter(|name| !name.starts_with("src/")).collect();
    assert_eq!(
        (first.len(), seen),
        (105 - 1, [".gitignore", "a", "b/keep.o", "link"].map(String::from).to_vec())
    );
    assert_eq!(changed(&first, &scan(root, None, None, 0).unwrap()).files, Vec::<PathBuf>::new());
    put(root, "src/7/f", "y");
    put(root, "new", "");
    fs::remove_file(root.join("a")).unwrap();
    assert_eq!(
        changed(&first, &scan(root, None, None, 0).unwrap()).files,
        ["a", "new", "src/7/f"].map(PathBuf::from)
    );
    assert!(matches!(scan(&root.join("none"), None, None, 0), Err(ScanError::Unreadable(_))));
}

/// A look after another one finds what a first one finds.
fn again(root: &Path, index: Option<&GitIndex>, before: &Files) -> Files {
    let (again, anew) = (scan(root, index, Some(before), 0).unwrap(), scan(root, index, None, 0).unwrap());
    assert_eq!(changed(&again, &anew).files, Vec::<PathBuf>::new());
    assert_eq!(again.len(), anew.len());
    again
}

/// Makes it look as if nobody had touched the directories for long.
fn rest(root: &Path, files: &mut Files) {
    for (path, directory) in &mut files.directories {
        let mut old = Directory::clone(directory);
        old.looked.0 += 10;
        assert!(old.has_same_names(&Stamp::from(&root.join(path).metadata().unwrap())), "{}", path.display());
        *directory = Arc::new(old);
    }
}

#[test]
fn a_look_after_another_finds_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    for name in ["a", "d/a", "d/b", "d/e/f", "logs/x", "logs/deep/y", "x.o", "d/x.o", "z/.gitignore"] {
        put(&root, name, "1");
    }
    put(&root, ".gitignore", "*.o\n");
    let mut files = scan(&root, None, None, 0).unwrap();
    let steps: &[(&dyn Fn(), &[&str])] = &[
        (&|| {}, &[]),
        (&|| put(&root, "d/a", "22"), &["d/a"]),
        (&|| put(&root, "d/new", "n"), &["d/new"]),
        (&|| fs::remove_file(root.join("d/b")).unwrap(), &["d/b"]),
        (&|| fs::rename(root.join("d/e"), root.join("d/g")).unwrap(), &["d/e/f", "d/g/f"]),
        (&|| put(&root, "new/deep/file", "n"), &["new/deep/file"]),
        (&|| fs::remove_dir_all(root.join("new")).unwrap(), &["new/deep/file"]),
        (&|| fs::rename(root.join("a"), root.join("d/a")).unwrap(), &["a", "d/a"]),
        // Patterns take files out, and give others back, all the way down.
        (&|| put(&root, ".gitignore", "logs/\n"), &[".gitignore", "d/x.o", "logs/deep/y", "logs/x", "x.o"]),
        (&|| put(&root, "z/.gitignore", "*\n"), &["z/.gitignore"]),
        (&|| put(&root, "z/w", "w"), &[]),
        (&|| fs::remove_file(root.join("z/.gitignore")).unwrap(), &["z/w"]),
        (&|| put(&root, ".git/info/exclude", "/d\n"), &["d/a", "d/g/f", "d/new", "d/x.o"]),
    ];
    for (at, (step, expect)) in steps.iter().enumerate() {
        rest(&root, &mut files);
        step();
        let now = again(&root, None, &files);
        let expect: Vec<PathBuf> = expect.iter().map(PathBuf::from).collect();
        assert_eq!(changed(&files, &now).files, expect, "step {at}");
        files = now;
    }
    rest(&root, &mut files);
    let same = scan(&root, None, Some(&files), 0).unwrap();
    assert!(same.directories.iter().all(|(path, new)| Arc::ptr_eq(new, &files.directories[path])));
    // Names that came in the tick in which they were read are found.
    let now = scan(&root, None, None, 0).unwrap();
    put(&root, "late", "l");
    assert_eq!(changed(&now, &again(&root, None, &now)).files, [PathBuf::from("late")]);
}

fn git(root: &Path, args: &[&str]) -> bool {
    let run = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(root)
        .env("HOME", root)
        .output();
    run.is_ok_and(|run| run.status.success())
}

#[test]
fn the_index_tells_what_is_as_it_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    if !git(&root, &["init", "-q"]) {
        eprintln!("note: git is not here, so its index is not tested");
        return;
    }
    put(&root, ".gitignore", "ignored/\n");
    for name in ["clean", "dirty", "sub/clean", "ignored/tracked"] {
        put(&root, name, name);
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
        fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(old).unwrap();
    }
    assert!(git(&root, &["add", "-f", "."]) && git(&root, &["commit", "-qm", "x"]));
    put(&root, "dirty", "changed");
    put(&root, "untracked", "u");
    put(&root, "ignored/other", "o");
    for version in ["2", "4"] {
        assert!(git(&root, &["update-index", "--index-version", version]));
        let index = GitIndex::of(&root).unwrap();
        let files = scan(&root, Some(&index), None, 0).unwrap();
        let expect = [".gitignore", "clean", "dirty", "ignored/tracked", "sub/clean", "untracked"];
        assert_eq!(names(&files), expect, "{version}");
        let clean = |name: &str| index.clean(Path::new(name), files.get(Path::new(name)).unwrap());
        assert!(clean("dirty").is_none() && clean("untracked").is_none());
        let ids: Vec<_> = ["clean", "sub/clean"].iter().map(|name| clean(name).unwrap()).collect();
        let blobs = git_blobs(&root, &ids, 1_000);
        assert_eq!(blobs, [Some(b"clean".to_vec()), Some(b"sub/clean".to_vec())]);
        let below = GitIndex::of(&root.join("sub")).unwrap();
        let found = scan(&root.join("sub"), Some(&below), None, 0).unwrap();
        assert!(below.clean(Path::new("clean"), found.get(Path::new("clean")).unwrap()).is_some());
    }
    assert!(git(&root, &["worktree", "add", "-q", "tree"]));
    let tree = GitIndex::of(&root.join("tree")).unwrap();
    assert!(tree.tracks(Path::new("sub"), true) && !tree.tracks(Path::new("untracked"), false));
    fs::write(root.join(".git/index"), b"DIRC\0\0\0\x02\0\0\0\x09short").unwrap();
    assert!(GitIndex::of(&root).is_none());
}

/// Whoever may write to a repository may write its settings.
#[test]
fn settings_of_a_repository_run_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    if !git(&root, &["init", "-q", "ws"]) {
        eprintln!("note: git is not here, so its settings are not tested");
        return;
    }
    let ws = root.join("ws");
    put(&ws, "file", "content");
    assert!(git(&ws, &["add", "."]) && git(&ws, &["commit", "-qm", "x"]));
    let mark = root.join("mark");
    let plant = ws.join("plant");
    fs::write(&plant, format!("#!/bin/sh\necho \"$0\" >> {}\n", mark.display())).unwrap();
    fs::set_permissions(&plant, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for hook in ["pre-auto-gc", "post-checkout", "reference-transaction", "fsmonitor-watchman"] {
        fs::copy(&plant, ws.join(".git/hooks").join(hook)).unwrap();
    }
    let plant = plant.display();
    let settings = format!(
        "[core]\n repositoryformatversion = 1\n fsmonitor = {plant}\n pager = {plant}\n editor = {plant}\n \
         sshCommand = {plant}\n gitProxy = {plant}\n askPass = {plant}\n[pager]\n cat-file = {plant}\n\
         [alias]\n cat-file = !{plant}\n[credential]\n helper = {plant}\n[diff]\n external = {plant}\n\
         [extensions]\n partialClone = away\n[remote \"away\"]\n url = ext::{plant}\n promisor = true\n \
         uploadpack = {plant}\n[protocol]\n allow = always\n[uploadpack]\n packObjectsHook = {plant}\n"
    );
    fs::write(ws.join(".git/config"), settings).unwrap();
    let index = GitIndex::of(&ws).unwrap();
    let (id, _) = index.object(Path::new("file")).unwrap();
    for url in [format!("ext::{plant}"), root.join("ws").display().to_string(), "ssh://localhost/x".into()] {
        assert!(git_config(&ws, "remote.away.url", &url));
        // One that is there, and one that would have to be fetched.
        assert_eq!(git_blobs(&ws, &[id, [7; 20]], 1_000), [Some(b"content".to_vec()), None], "{url}");
    }
    assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap());
}

fn git_config(root: &Path, name: &str, value: &str) -> bool {
    let file = root.join(".git/config");
    let mut command = Command::new("git");
    command.args(["config", "--file"]).arg(file).args([name, value]);
    command.status().is_ok_and(|status| status.success())
}

#[test]
fn read_only_command_writes_nowhere() {
    if !crate::SandboxSupport::of_this_system().is_full() {
        eprintln!("note: this system cannot confine commands");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "old").unwrap();
    let run = |line: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).current_dir(dir.path()).stderr(std::process::Stdio::null());
        crate::sandbox::reading_only(|| command.status()).unwrap().unwrap().success()
    };
    assert!(run("cat file >/dev/null"));
    for line in
        ["echo x > file", "echo x > new", "rm file", "mkdir d", ": > /dev/shm/quipu-none", "mv file f"]
    {
        assert!(!run(line), "{line}");
    }
    assert_eq!(fs::read_to_string(file).unwrap(), "old");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    // This thread is as it was.
    fs::write(dir.path().join("mine"), "x").unwrap();
}
