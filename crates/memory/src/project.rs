//! Which project a directory belongs to. A linked worktree of git belongs to the repository that lists it.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Bytes of a file of git that is read.
const LINK: u64 = 4_096;
/// Worktrees of a repository that are looked at.
const TREES: usize = 1_000;

/// The root of the project that a directory is in: that of its repository, or itself. All linked worktrees of a repository are one
/// project, by the root of its main worktree (of a bare repository, by its directory). Symbolic links on the way are followed.
///
/// A worktree counts as git counts it: its `.git` file names a directory of the repository, and that directory names the file back.
/// So no file that came with a repository makes it another project.
#[must_use]
pub fn project_root(cwd: &Path) -> PathBuf {
    let tree = project_tree(cwd);
    common_of(&tree).map_or(tree, |common| root_of(&common))
}

/// The root of the working tree that a directory is in, or itself.
#[must_use]
pub fn project_tree(cwd: &Path) -> PathBuf {
    let cwd = cwd.canonicalize().unwrap_or_else(|_| cwd.to_path_buf());
    let tree = cwd.ancestors().find(|dir| dir.join(".git").exists()).map(Path::to_path_buf);
    tree.unwrap_or(cwd)
}

/// The directories of a project: its root, and the linked worktrees that its repository lists.
#[must_use]
pub fn project_trees(root: &Path) -> Vec<PathBuf> {
    let mut trees = vec![root.to_path_buf()];
    let common = [root.join(".git"), root.to_path_buf()];
    let listed = common.iter().filter(|common| is_directory(common));
    let listed = listed.filter_map(|common| std::fs::read_dir(common.join("worktrees")).ok());
    for entry in listed.flatten().flatten().take(TREES) {
        let Some(named) = link(&entry.path().join("gitdir"), "") else { continue };
        let named = entry.path().join(named);
        let Some(tree) = named.parent().and_then(|tree| tree.canonicalize().ok()) else { continue };
        if !trees.contains(&tree) && project_root(&tree) == root {
            trees.push(tree);
        }
    }
    trees
}

/// The directory that all worktrees of a repository share, where this is a linked one of it.
fn common_of(tree: &Path) -> Option<PathBuf> {
    let mark = tree.join(".git");
    // No link: a link to the mark of another worktree is not that worktree.
    let found = std::fs::symlink_metadata(&mark).ok().filter(Metadata::is_file)?;
    let own = tree.join(link(&mark, "gitdir:")?).canonicalize().ok()?;
    let worktrees = own.parent().filter(|parent| parent.ends_with("worktrees"))?;
    let common = own.join(link(&own.join("commondir"), "")?).canonicalize().ok()?;
    // The entry must lie in the repository that it names, and name this very file.
    let is_listed = worktrees.parent() == Some(common.as_path());
    let back = own.join(link(&own.join("gitdir"), "")?);
    let back = back.parent().filter(|_| back.file_name() == mark.file_name())?.canonicalize().ok()?;
    let is_named = tree.canonicalize().is_ok_and(|tree| tree == back);
    let has_one_owner = std::fs::metadata(&common).is_ok_and(|common| common.uid() == found.uid());
    (is_listed && is_named && has_one_owner).then_some(common)
}

/// The main worktree of a repository; of a bare one its directory.
fn root_of(common: &Path) -> PathBuf {
    let main = common.parent().filter(|_| common.file_name().is_some_and(|name| name == ".git"));
    main.unwrap_or(common).to_path_buf()
}

fn is_directory(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// The path in a file of git that holds one.
fn link(file: &Path, before: &str) -> Option<PathBuf> {
    std::fs::symlink_metadata(file).ok().filter(Metadata::is_file)?;
    let mut text = String::new();
    File::open(file).ok()?.take(LINK).read_to_string(&mut text).ok()?;
    let path = text.strip_prefix(before)?.trim();
    (!path.is_empty() && !path.contains('\n')).then(|| PathBuf::from(path))
}
