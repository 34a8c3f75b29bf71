//! Which memory a directory has: worktrees share one, a moved project takes its own along, and nobody gets another's.

use std::path::{Path, PathBuf};
use std::process::Command;

use quipu_memory::{MemoryError, MemoryHome, project_root, project_trees};

use crate::support::World;

fn git(dir: &Path, args: &[&str]) {
    let ran = Command::new("git")
        .args(["-c", "user.name=T", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

fn made(path: &Path) -> PathBuf {
    std::fs::create_dir_all(path).unwrap();
    path.canonicalize().unwrap()
}

/// A repository with a commit.
fn repository(path: &Path) -> PathBuf {
    let path = made(path);
    git(&path, &["init", "-q"]);
    git(&path, &["commit", "-q", "--allow-empty", "-m", "one"]);
    path
}

/// The first memory that is open in a directory.
fn own(home: &MemoryHome, cwd: &Path) -> Option<PathBuf> {
    home.open(cwd).unwrap().first().map(|place| place.root.clone())
}

#[test]
fn worktrees_of_a_repository_share_a_memory() {
    let world = World::new();
    let (home, dir) = (world.home(), world.dir.path());
    let main = repository(&dir.join("main"));
    let tree = dir.join("trees/feature");
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    let tree = tree.canonicalize().unwrap();
    let below = made(&tree.join("src"));
    assert_eq!(project_root(&below), main);
    assert_eq!(project_trees(&main), [main.clone(), tree.clone()]);
    home.choose(&project_root(&below), |choice| choice.on = true).unwrap();
    assert_eq!(own(&home, &below), own(&home, &main));
    assert!(own(&home, &below).is_some());
    // Through links, too.
    std::os::unix::fs::symlink(&tree, dir.join("link")).unwrap();
    assert_eq!(project_root(&dir.join("link/src")), main);
    // The files of the repository are those that are worked on.
    made(&tree.join(".quipu/memory"));
    let roots = |cwd: &Path| -> Vec<PathBuf> {
        home.open(cwd).unwrap().into_iter().map(|place| place.root).collect()
    };
    assert!(roots(&below).contains(&tree.join(".quipu/memory")));
    assert_eq!(roots(&main).len(), 2, "the other worktree has none");
    // Of a bare repository, and of one whose paths are relative.
    let bare = dir.join("bare.git");
    git(dir, &["clone", "-q", "--bare", main.to_str().unwrap(), bare.to_str().unwrap()]);
    git(&bare, &["worktree", "add", "-q", dir.join("of-bare").to_str().unwrap(), "main"]);
    let bare = bare.canonicalize().unwrap();
    assert_eq!(project_root(&dir.join("of-bare")), bare);
    assert_eq!(project_trees(&bare), [bare.clone(), dir.join("of-bare").canonicalize().unwrap()]);
    let entry = main.join(".git/worktrees/feature");
    std::fs::write(tree.join(".git"), "gitdir: ../../main/.git/worktrees/feature\n").unwrap();
    std::fs::write(entry.join("gitdir"), "../../../../trees/feature/.git\n").unwrap();
    assert_eq!(project_root(&tree), main);
}

#[test]
fn repository_gets_no_memory_by_its_git_file() {
    let world = World::new();
    let (home, dir) = (world.home(), world.dir.path());
    let victim = repository(&dir.join("victim"));
    let tree = dir.join("victims-tree");
    git(&victim, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    home.choose(&victim, |choice| choice.on = true).unwrap();
    let is_nobodys = |hostile: &Path| {
        assert_eq!(project_root(hostile), hostile.canonicalize().unwrap(), "{}", hostile.display());
        assert_eq!(own(&home, hostile), None, "{}", hostile.display());
    };
    // It names an entry that names somebody else, the repository itself, or the other worktree by a link.
    for (name, text) in [
        ("entry", format!("gitdir: {}\n", victim.join(".git/worktrees/victims-tree").display())),
        ("whole", format!("gitdir: {}\n", victim.join(".git").display())),
        ("empty", "gitdir: \n".to_owned()),
        ("none", "nothing\n".to_owned()),
    ] {
        let hostile = made(&dir.join(name));
        std::fs::write(hostile.join(".git"), text).unwrap();
        is_nobodys(&hostile);
    }
    let hostile = made(&dir.join("linked"));
    std::os::unix::fs::symlink(tree.join(".git"), hostile.join(".git")).unwrap();
    is_nobodys(&hostile);
    let hostile = made(&dir.join("linked-whole"));
    std::os::unix::fs::symlink(victim.join(".git"), hostile.join(".git")).unwrap();
    is_nobodys(&hostile);
    // An entry of its own that names it back, and the other's repository as the common one; also behind a link.
    let hostile = made(&dir.join("crafted"));
    let entry = made(&hostile.join("fake/worktrees/one"));
    std::fs::write(hostile.join(".git"), "gitdir: fake/worktrees/one\n").unwrap();
    std::fs::write(entry.join("gitdir"), format!("{}\n", hostile.join(".git").display())).unwrap();
    std::fs::write(entry.join("commondir"), format!("{}\n", victim.join(".git").display())).unwrap();
    is_nobodys(&hostile);
    std::fs::remove_dir_all(hostile.join("fake")).unwrap();
    std::os::unix::fs::symlink(victim.join(".git"), hostile.join("fake")).unwrap();
    std::fs::write(hostile.join(".git"), "gitdir: fake/worktrees/victims-tree\n").unwrap();
    is_nobodys(&hostile);
    // The victim's own are what they were.
    assert_eq!(project_root(&tree), victim);
}

#[test]
fn moved_project_takes_its_memory_along_once_adopted() {
    let world = World::new();
    let (home, dir) = (world.home(), world.dir.path());
    let old = repository(&dir.join("old/app"));
    home.choose(&old, |choice| choice.on = true).unwrap();
    let root = own(&home, &old).unwrap();
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("MEMORY.md"), "- ours\n").unwrap();
    let other = repository(&dir.join("other"));
    let why = |result: Result<_, MemoryError>| -> String {
        let result: Result<quipu_memory::MemoryPlace, MemoryError> = result;
        result.unwrap_err().to_string()
    };
    assert!(why(home.adopt(&other, &old)).contains("the directory is there"));
    assert!(why(home.adopt(&other, &dir.join("never"))).contains("no memory is known of it"));
    let new = dir.canonicalize().unwrap().join("app-2");
    std::fs::rename(&old, &new).unwrap();
    // Nothing happens by itself.
    assert_eq!(own(&home, &new), None);
    let lost = home.lost(&new).unwrap();
    assert_eq!((lost.len(), &lost[0].project, &lost[0].root), (1, &old, &root));
    let taken = home.adopt(&new, &old).unwrap();
    assert_eq!(taken.root, root);
    assert_eq!(own(&home, &new), Some(root.clone()));
    assert_eq!(home.lost(&new).unwrap(), []);
    // Another project where the first one was has a memory of its own.
    let again = repository(&dir.join("old/app"));
    home.choose(&again, |choice| choice.on = true).unwrap();
    let its = own(&home, &again).unwrap();
    assert!(its != root && its.starts_with(home.root()), "{}", its.display());
    // Who has a memory keeps it.
    std::fs::create_dir_all(&its).unwrap();
    std::fs::write(its.join("MEMORY.md"), "- theirs\n").unwrap();
    std::fs::rename(&new, dir.join("app-3")).unwrap();
    assert!(why(home.adopt(&again, &new)).contains("has a memory already"));
    // However the former path is written.
    let former = std::path::PathBuf::from(format!("{}/", new.display()));
    assert_eq!(home.adopt(&dir.canonicalize().unwrap().join("app-3"), &former).unwrap().root, root);
}

#[test]
fn memory_that_was_switched_on_in_a_worktree_can_be_adopted() {
    let world = World::new();
    let (home, dir) = (world.home(), world.dir.path());
    let main = repository(&dir.join("main"));
    let tree = dir.join("feature");
    git(&main, &["worktree", "add", "-q", tree.to_str().unwrap()]);
    let tree = tree.canonicalize().unwrap();
    // As when each worktree had a memory of its own.
    home.choose(&tree, |choice| choice.on = true).unwrap();
    let root = home.project(&tree).root;
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(root.join("MEMORY.md"), "- ours\n").unwrap();
    assert_eq!(home.lost(&main).unwrap().len(), 1);
    assert_eq!(home.lost(&repository(&dir.join("other"))).unwrap(), []);
    assert_eq!(home.adopt(&main, &tree).unwrap().root, root);
    assert_eq!(own(&home, &tree), Some(root));
}

#[test]
fn homes_of_two_users_share_nothing() {
    let world = World::new();
    let dir = world.dir.path();
    let project = repository(&dir.join("shared/app"));
    let homes = ["one", "two"].map(|user| MemoryHome::new(&dir.join(user).join(".quipu")));
    homes[0].choose(&project, |choice| choice.on = true).unwrap();
    assert!(own(&homes[0], &project).unwrap().starts_with(dir.join("one")));
    assert_eq!(own(&homes[1], &project), None);
    assert_eq!(homes[1].lost(&project).unwrap(), []);
    homes[1].choose(&project, |choice| choice.on = true).unwrap();
    assert!(own(&homes[1], &project).unwrap().starts_with(dir.join("two")));
    assert!(homes[1].adopt(&project, &dir.join("gone")).is_err());
}
