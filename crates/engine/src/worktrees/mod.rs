//! Git worktrees of sub-agents: each in a directory of ours, on a branch of its own. What a sub-agent changed there is committed to the
//! branch at its end, and taken over into the files of the repository by a merge that writes all of it or nothing.
//!
//! Git runs without hooks and filters, and may write only to the worktree and to the directory of the repository.

mod merging;
mod repository;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use quipu_protocol::{SessionId, UnixMs};
use quipu_workspace::{Access, AccessRules, Git, GitError, file_key};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub use self::merging::{MergeAction, MergeConflict, MergedFile};
use self::repository::{Repository, repository};

const INFO: &str = "worktree.json";
const LOCK: &str = "lock";
const INDEX: &str = "index";
/// What git says where somebody else wants to remove one.
const REASON: &str = "a sub-agent of Quipu works here";
/// The mode of another repository in git's index.
const GITLINK: &[u8] = b"160000 ";
/// Bytes of git's index.
const INDEX_LIMIT: u64 = 512 << 20;
/// Bytes of what is noted of one.
const INFO_LIMIT: u64 = 64 * 1024;
/// Worktrees that are listed.
const LISTED: usize = 1_000;
/// Files that one changed at most, to be merged.
const FILES: usize = 5_000;
/// The name and address of commits.
const AUTHOR: [&str; 2] = ["Quipu", "quipu@localhost"];

/// Why something was not done with a worktree. Nothing is lost by it.
#[derive(Debug, thiserror::Error)]
pub enum WorktreeError {
    /// The directory is in no git repository.
    #[error("{} is in no git repository", .0.display())]
    NoRepository(PathBuf),
    /// Its repository has no commit to begin from.
    #[error("the git repository {} has no commit yet", .0.display())]
    NoCommit(PathBuf),
    /// The `.git` of the repository leads elsewhere.
    #[error("the `.git` of {} leads to a repository elsewhere ({}) that does not lead back", .0.display(), .1.display())]
    Elsewhere(PathBuf, PathBuf),
    /// There is none of that name.
    #[error("there is no worktree `{0}`")]
    Unknown(String),
    /// Several could be meant.
    #[error("`{0}` is the beginning of several worktrees")]
    Ambiguous(String),
    /// Somebody works in it, or merges it.
    #[error("the worktree {0} is in use: a sub-agent works in it, or it is being merged or discarded")]
    InUse(String),
    /// Its changes are not committed, so nobody knows yet which files a merge changes.
    #[error(
        "the worktree {0} was left before its changes were committed; a person has to take it over or discard it"
    )]
    Interrupted(String),
    /// Its branch stands elsewhere than its files, and what is on it would be lost.
    #[error("its branch has commits that its HEAD does not have")]
    BranchAhead,
    /// A directory of it is a repository of its own.
    #[error("another repository is in it: {}; commit it with git", .0.display())]
    Nested(PathBuf),
    /// It belongs to another repository.
    #[error("the worktree {id} belongs to the repository {}", .top.display())]
    Other {
        /// The worktree.
        id: String,
        /// Its repository.
        top: PathBuf,
    },
    /// What it changed cannot be put together with what is there. Nothing was changed.
    #[error("{} conflicts; nothing was changed", .0.len())]
    Conflicts(Vec<MergeConflict>),
    /// A file could not be written. What was written before it was put back, but for these.
    #[error("{}: {why}{}", .path.display(), unrestored(.left))]
    NotWritten {
        /// The file.
        path: PathBuf,
        /// What happened.
        why: String,
        /// What could not be put back.
        left: Vec<PathBuf>,
    },
    /// It changed more files than are merged.
    #[error("it changed more than {FILES} files; merge the branch with git")]
    TooMany,
    /// Git said no.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file or directory of ours cannot be used.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
}

fn unrestored(left: &[PathBuf]) -> String {
    match left {
        [] => ". Nothing was changed".to_owned(),
        left => {
            let names: Vec<String> = left.iter().map(|path| path.display().to_string()).collect();
            format!(". These files were changed and could not be put back: {}", names.join(", "))
        }
    }
}

fn io_error(path: &Path) -> impl FnOnce(std::io::Error) -> WorktreeError {
    let path = path.to_path_buf();
    move |error| WorktreeError::Io { path, error }
}

/// What is noted of a worktree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorktreeInfo {
    /// Its name.
    pub id: String,
    /// The session that works in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// The name of the agent.
    pub agent: String,
    /// What it is about, in a few words; may be empty.
    #[serde(default)]
    pub title: String,
    /// The top directory of the repository whose files a merge changes.
    pub top: PathBuf,
    /// The directory of the repository.
    common: PathBuf,
    /// The directory of git's own for this worktree.
    admin: PathBuf,
    /// Where the session works, below the top directory.
    prefix: PathBuf,
    /// The commit that it began from.
    pub base: String,
    /// Its branch.
    pub branch: String,
    /// Its top directory.
    pub tree: PathBuf,
    /// When it was made.
    pub made: UnixMs,
    /// Files with uncommitted changes in the repository when it was made; they are not in it. `None` where git could not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uncommitted: Option<usize>,
    /// The commit with all that was changed in it, once its sub-agent ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

impl WorktreeInfo {
    /// Where the session works.
    pub fn directory(&self) -> PathBuf {
        self.tree.join(&self.prefix)
    }
}

/// What a worktree differs in from the commit that it began from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorktreeDiff {
    /// Paths below the top directory, with added and removed lines; `None` for files that are no text.
    pub files: Vec<(PathBuf, Option<(u64, u64)>)>,
}

impl WorktreeDiff {
    /// In one line.
    pub fn stat(&self) -> String {
        let lines = |pick: fn((u64, u64)) -> u64| -> u64 {
            self.files.iter().filter_map(|(_, lines)| *lines).map(pick).sum()
        };
        let files = match self.files.len() {
            1 => "1 file".to_owned(),
            count => format!("{count} files"),
        };
        format!("{files} changed, +{} -{}", lines(|lines| lines.0), lines(|lines| lines.1))
    }
}

/// How a worktree that is there stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorktreeState {
    /// A sub-agent works in it, or somebody merges or discards it.
    InUse,
    /// It ended, and changed this.
    Changed(WorktreeDiff),
    /// The process ended before its changes were committed; a merge commits them.
    Interrupted,
    /// Its directory is gone; what was committed to its branch is left.
    Gone,
}

/// A worktree that somebody left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftWorktree {
    /// What is noted of it.
    pub info: WorktreeInfo,
    /// How it stands.
    pub state: WorktreeState,
}

/// What came of a worktree whose sub-agent ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorktreeEnd {
    /// Nothing was changed in it, and it is gone.
    Unchanged,
    /// What was changed is on its branch.
    Changed(WorktreeDiff),
}

/// What a merge did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorktreeMerge {
    /// The files that it wrote, below the top directory.
    pub files: Vec<MergedFile>,
    /// Files that were the same already.
    pub same: usize,
    /// Why the worktree is still there, if it is.
    pub left: Option<String>,
}

/// What a merge does with changes that are not committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InterruptedWork {
    /// They are committed first.
    Taken,
    /// There is no merge.
    Refused,
}

/// What a worktree is made for.
pub(crate) struct WorktreeOrder<'a> {
    /// The directory of the session that sends the sub-agent.
    pub(crate) cwd: &'a Path,
    pub(crate) agent: &'a str,
    pub(crate) title: &'a str,
    /// Names that are tried for it.
    pub(crate) names: &'a mut dyn Iterator<Item = String>,
}

/// The worktrees below one directory of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worktrees {
    root: PathBuf,
}

impl Worktrees {
    /// Those below a directory, which is made (0700) when the first of them is.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether a directory is in a git repository, by its files.
    pub fn is_possible_in(cwd: &Path) -> bool {
        cwd.ancestors().any(|dir| dir.join(".git").symlink_metadata().is_ok())
    }

    /// Those that are there, oldest first.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn list(&self, cancel: &CancellationToken) -> Result<Vec<LeftWorktree>, WorktreeError> {
        let mut left = Vec::new();
        for info in self.infos()? {
            let state = match self.lock(&info) {
                Err(WorktreeError::InUse(_)) => WorktreeState::InUse,
                // Somebody removed it meanwhile.
                Err(WorktreeError::Io { error, .. }) if error.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => return Err(error),
                Ok(_lock) => match &info.commit {
                    Some(commit) => match differences(&info, commit, cancel) {
                        Ok(diff) => WorktreeState::Changed(diff),
                        Err(_) => WorktreeState::Gone,
                    },
                    None if info.tree.is_dir() => WorktreeState::Interrupted,
                    None => WorktreeState::Gone,
                },
            };
            left.push(LeftWorktree { info, state });
        }
        left.sort_by(|one, other| (one.info.made, &one.info.id).cmp(&(other.info.made, &other.info.id)));
        Ok(left)
    }

    fn infos(&self) -> Result<Vec<WorktreeInfo>, WorktreeError> {
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error(&self.root)(error)),
        };
        let places = entries.flatten().take(LISTED).map(|entry| entry.path());
        Ok(places.filter_map(|place| read_info(&place)).collect())
    }

    /// The worktree of this name, of this session, or the only one whose name begins so.
    ///
    /// # Errors
    /// When there is none, or several.
    pub fn find(&self, name: &str) -> Result<WorktreeInfo, WorktreeError> {
        let name = name.trim();
        let infos = self.infos()?;
        let is_it = |info: &&WorktreeInfo| {
            info.id == name || info.session.as_ref().is_some_and(|session| session.as_str() == name)
        };
        if let Some(info) = infos.iter().find(is_it) {
            return Ok(info.clone());
        }
        let begins = |info: &&WorktreeInfo| {
            let bare = info.id.strip_prefix("wt-").unwrap_or(&info.id);
            name.len() >= 3 && (info.id.starts_with(name) || bare.starts_with(name))
        };
        let mut found = infos.iter().filter(begins);
        match (found.next(), found.next()) {
            (Some(info), None) => Ok(info.clone()),
            (Some(_), Some(_)) => Err(WorktreeError::Ambiguous(name.to_owned())),
            (None, _) => Err(WorktreeError::Unknown(name.chars().take(80).collect())),
        }
    }

    /// Makes one from the commit that the repository around a directory stands at.
    pub(crate) fn make(
        &self,
        order: WorktreeOrder<'_>,
        cancel: &CancellationToken,
    ) -> Result<Worktree, WorktreeError> {
        let Repository { top, common, prefix } = repository(order.cwd, cancel)?;
        let reading = Git::reading(&top, cancel);
        let base = reading.line(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]);
        let base = match base {
            Ok(base) => base,
            Err(GitError::Failed { complaint, .. }) if complaint.is_empty() => {
                return Err(WorktreeError::NoCommit(top));
            }
            Err(error) => return Err(error.into()),
        };
        let status = ["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all"];
        let status = reading.clone().with("GIT_WORK_TREE", &top).run(&status);
        let uncommitted = status.ok().map(|listed| listed.iter().filter(|byte| **byte == 0).count());
        make_directory(&self.root)?;
        // True, since it is written to by exactly this path.
        let root = file_key(&self.root);
        let mut id = None;
        for name in order.names {
            match std::fs::DirBuilder::new().mode(0o700).create(root.join(&name)) {
                Ok(()) => {
                    id = Some(name);
                    break;
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(io_error(&root)(error)),
            }
        }
        let id = id.ok_or_else(|| WorktreeError::InUse(root.display().to_string()))?;
        let place = root.join(&id);
        let branch = format!("quipu-{id}");
        let tree = place.join(directory_name(&top));
        let mut info = WorktreeInfo {
            admin: PathBuf::new(),
            session: None,
            agent: order.agent.to_owned(),
            title: order.title.to_owned(),
            top: top.clone(),
            common: common.clone(),
            prefix,
            base,
            branch,
            tree,
            made: now(),
            uncommitted,
            commit: None,
            id,
        };
        // Before anybody can find it.
        let locked = self.lock(&info);
        match locked.and_then(|lock| Self::add(&mut info, &place, cancel).map(|()| lock)) {
            Ok(lock) => Ok(Worktree { worktrees: Self { root }, info, lock }),
            Err(error) => {
                // What of it was made goes again; the error says why.
                drop(remove(&info, &place, &CancellationToken::new()));
                Err(error)
            }
        }
    }

    fn add(info: &mut WorktreeInfo, place: &Path, cancel: &CancellationToken) -> Result<(), WorktreeError> {
        write_info(place, info)?;
        let git = Git::reading(&info.top, cancel).writing(&[place, &info.common]);
        let tree = info.tree.as_os_str();
        let words = ["worktree", "add", "--quiet", "--no-checkout", "--lock", "--reason", REASON, "-b"];
        let mut arguments: Vec<&std::ffi::OsStr> = words.iter().map(std::ffi::OsStr::new).collect();
        arguments.extend([info.branch.as_ref(), tree, info.base.as_ref()]);
        git.run(&arguments)?;
        let admin = Git::reading(&info.tree, cancel).line(&["rev-parse", "--absolute-git-dir"])?;
        info.admin = PathBuf::from(admin);
        // Settings can hold for worktrees only: filters are looked for where the files are written.
        git_of(info, place, cancel).run(&["read-tree", "--reset", "-u", "HEAD"])?;
        let directory = info.directory();
        std::fs::create_dir_all(&directory).map_err(io_error(&directory))?;
        write_info(place, info)
    }

    fn place(&self, info: &WorktreeInfo) -> PathBuf {
        file_key(&self.root).join(&info.id)
    }

    fn lock(&self, info: &WorktreeInfo) -> Result<File, WorktreeError> {
        let path = self.place(info).join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
        let file = file.map_err(io_error(&path))?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(std::fs::TryLockError::WouldBlock) => Err(WorktreeError::InUse(info.id.clone())),
            Err(std::fs::TryLockError::Error(error)) => Err(io_error(&path)(error)),
        }
    }

    /// The files of the repository that a merge may change, by their paths; nothing is said of conflicts.
    ///
    /// # Errors
    /// When there is no such worktree, it is of another repository, or nothing is known of its changes yet.
    pub fn touched(
        &self,
        name: &str,
        cwd: &Path,
        cancel: &CancellationToken,
    ) -> Result<Vec<PathBuf>, WorktreeError> {
        let info = self.find_in(name, cwd)?;
        let Some(commit) = info.commit.as_deref() else { return Err(WorktreeError::InUse(info.id)) };
        let changes = merging::changes(&info, commit, cancel)?;
        Ok(changes.into_iter().map(|change| info.top.join(change.path)).collect())
    }

    /// The worktree of this name, where it is of the repository around a directory.
    fn find_in(&self, name: &str, cwd: &Path) -> Result<WorktreeInfo, WorktreeError> {
        let info = self.find(name)?;
        let cwd = file_key(cwd);
        let top = cwd.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
        match top == Some(&*info.top) {
            true => Ok(info),
            false => Err(WorktreeError::Other { id: info.id, top: info.top }),
        }
    }

    /// Takes what was changed in a worktree over into the files of the repository around a directory, within these bounds: all of
    /// it, or nothing. Then the worktree and its branch are gone. Only what is committed is taken over.
    ///
    /// # Errors
    /// [`WorktreeError::Conflicts`], [`WorktreeError::Interrupted`] and others, which change nothing.
    pub fn merge_within(
        &self,
        name: &str,
        cwd: &Path,
        access: &Access,
        cancel: &CancellationToken,
    ) -> Result<WorktreeMerge, WorktreeError> {
        let info = self.find_in(name, cwd)?;
        self.merge_info(info, access, InterruptedWork::Refused, cancel)
    }

    /// The same for a person, in the repository that it is of. What is not committed is committed first.
    ///
    /// # Errors
    /// [`WorktreeError::Conflicts`] and others, which change nothing.
    pub fn merge(&self, name: &str, cancel: &CancellationToken) -> Result<WorktreeMerge, WorktreeError> {
        let info = self.find(name)?;
        let access = Access::within(AccessRules { write: vec![info.top.clone()], ..AccessRules::default() });
        self.merge_info(info, &access, InterruptedWork::Taken, cancel)
    }

    fn merge_info(
        &self,
        info: WorktreeInfo,
        access: &Access,
        interrupted: InterruptedWork,
        cancel: &CancellationToken,
    ) -> Result<WorktreeMerge, WorktreeError> {
        let lock = self.lock(&info)?;
        // Somebody may have ended it until the lock was there.
        let info = read_info(&self.place(&info)).ok_or(WorktreeError::Unknown(info.id))?;
        let mut worktree = Worktree { worktrees: self.clone(), info, lock };
        let commit = match (worktree.info.commit.clone(), interrupted) {
            (Some(commit), _) => commit,
            (None, InterruptedWork::Refused) => return Err(WorktreeError::Interrupted(worktree.info.id)),
            (None, InterruptedWork::Taken) => match worktree.commit(cancel)? {
                Some(commit) => commit,
                None => {
                    let left = worktree.remove(cancel).err().map(|error| error.to_string());
                    return Ok(WorktreeMerge { left, ..WorktreeMerge::default() });
                }
            },
        };
        let place = worktree.worktrees.place(&worktree.info);
        let mut report = merging::merge(&worktree.info, &place, &commit, access, cancel)?;
        report.left = worktree.remove(cancel).err().map(|error| error.to_string());
        Ok(report)
    }

    /// Removes a worktree and its branch with all that was changed there.
    ///
    /// # Errors
    /// When there is none, it is in use, or git says no.
    pub fn discard(&self, name: &str, cancel: &CancellationToken) -> Result<WorktreeInfo, WorktreeError> {
        let info = self.find(name)?;
        let lock = self.lock(&info)?;
        let worktree = Worktree { worktrees: self.clone(), info: info.clone(), lock };
        worktree.remove(cancel)?;
        Ok(info)
    }
}

/// A worktree that this process works with: nobody else merges or discards it.
#[derive(Debug)]
pub(crate) struct Worktree {
    worktrees: Worktrees,
    pub(crate) info: WorktreeInfo,
    /// Held until it is dropped.
    lock: File,
}

impl Worktree {
    /// Notes which session works in it.
    pub(crate) fn begun(&mut self, session: SessionId) -> Result<(), WorktreeError> {
        self.info.session = Some(session);
        write_info(&self.worktrees.place(&self.info), &self.info)
    }

    /// Its sub-agent ended: what it changed is committed to the branch. Without a change the worktree goes.
    pub(crate) fn finish(mut self, cancel: &CancellationToken) -> Result<WorktreeEnd, WorktreeError> {
        let Some(commit) = self.commit(cancel)? else {
            self.remove(cancel)?;
            return Ok(WorktreeEnd::Unchanged);
        };
        Ok(WorktreeEnd::Changed(differences(&self.info, &commit, cancel)?))
    }

    /// Removes it with its branch.
    pub(crate) fn remove(self, cancel: &CancellationToken) -> Result<(), WorktreeError> {
        let Self { worktrees, info, lock } = self;
        remove(&info, &worktrees.place(&info), cancel)?;
        drop(lock);
        Ok(())
    }

    /// Commits all that was changed in it to its branch; `None` where nothing was.
    fn commit(&mut self, cancel: &CancellationToken) -> Result<Option<String>, WorktreeError> {
        let (place, info) = (self.worktrees.place(&self.info), &self.info);
        let branch = format!("refs/heads/{}", info.branch);
        let reading = Git::reading(&info.common, cancel);
        let last = reading.line(&["rev-parse", "--verify", "--quiet", &branch])?;
        let commit = if info.tree.is_dir() {
            // A lock that a killed git left, and settings of the worktree, say nothing here.
            let index = place.join(INDEX);
            copy_index(&info.admin.join("index"), &index, cancel)?;
            let git = git_of(info, &place, cancel)
                .with("GIT_INDEX_FILE", &index)
                .with("GIT_AUTHOR_NAME", AUTHOR[0])
                .with("GIT_AUTHOR_EMAIL", AUTHOR[1])
                .with("GIT_COMMITTER_NAME", AUTHOR[0])
                .with("GIT_COMMITTER_EMAIL", AUTHOR[1]);
            let head = git.line(&["rev-parse", "--verify", "HEAD^{commit}"])?;
            match git.run(&["merge-base", "--is-ancestor", &last, &head]) {
                Err(GitError::Failed { code: Some(1), .. }) => return Err(WorktreeError::BranchAhead),
                ended => drop(ended?),
            }
            if !index.exists() {
                git.run(&["read-tree", &head])?;
            }
            // Git would look into it, by the settings that are in there.
            if let Some(nested) = nested(&git, &info.tree)? {
                return Err(WorktreeError::Nested(nested));
            }
            git.run(&["add", "--all"])?;
            let tree = git.line(&["write-tree"])?;
            let before = git.line(&["rev-parse", "--verify", &format!("{head}^{{tree}}")])?;
            let commit = if tree == before {
                head
            } else {
                let about = if info.title.is_empty() { info.agent.clone() } else { info.title.clone() };
                let text = format!("Work of a sub-agent: {about}\n");
                let words = ["commit-tree", &tree, "-p", &head, "-F", "-"];
                let made = git.run_with(&words, text.into_bytes())?;
                String::from_utf8_lossy(&made).trim().to_owned()
            };
            git.run(&["update-ref", &branch, &commit, &last])?;
            drop(std::fs::remove_file(&index));
            // Git sees the files as committed then; where it cannot, nothing is lost.
            drop(git.with("GIT_INDEX_FILE", info.admin.join("index")).run(&["read-tree", &commit]));
            commit
        } else {
            last
        };
        if commit == self.info.base {
            return Ok(None);
        }
        self.info.commit = Some(commit.clone());
        write_info(&place, &self.info)?;
        Ok(Some(commit))
    }
}

/// Git in a worktree, by the directories that are noted of it: nothing that is in the worktree leads it elsewhere.
fn git_of(info: &WorktreeInfo, place: &Path, cancel: &CancellationToken) -> Git {
    Git::reading(&info.tree, cancel)
        .writing(&[place, &info.common])
        .with("GIT_DIR", &info.admin)
        .with("GIT_COMMON_DIR", &info.common)
        .with("GIT_WORK_TREE", &info.tree)
}

/// Copies git's index; where there is none that can be read, there is no copy. The copy is as old as the index: git compares
/// the times of files with that.
fn copy_index(from: &Path, to: &Path, cancel: &CancellationToken) -> Result<(), WorktreeError> {
    let modified = from.metadata().and_then(|found| found.modified());
    // Commands could have put anything in its place.
    let (Ok(modified), Ok((bytes, _))) = (modified, quipu_workspace::read_whole(from, INDEX_LIMIT, cancel))
    else {
        drop(std::fs::remove_file(to));
        return Ok(());
    };
    let file = File::create(to);
    file.and_then(|mut file| file.write_all(&bytes).and_then(|()| file.set_modified(modified)))
        .map_err(io_error(to))
}

/// A directory that is another repository, in git's index and in the worktree.
fn nested(git: &Git, tree: &Path) -> Result<Option<PathBuf>, WorktreeError> {
    let listed = git.run(&["ls-files", "-s", "-z"])?;
    let links = listed.split(|byte| *byte == 0).filter(|line| line.starts_with(GITLINK));
    let mut paths =
        links.filter_map(|line| line.splitn(2, |byte| *byte == b'\t').nth(1)).map(merging::path_of);
    Ok(paths.find(|path| tree.join(path).join(".git").symlink_metadata().is_ok()))
}

/// What a commit differs in from the one that a worktree began from.
fn differences(
    info: &WorktreeInfo,
    commit: &str,
    cancel: &CancellationToken,
) -> Result<WorktreeDiff, WorktreeError> {
    let words = ["diff-tree", "-r", "-z", "--no-renames", "--no-ext-diff", "--no-textconv", "--numstat"];
    let words: Vec<&str> = words.into_iter().chain([info.base.as_str(), commit]).collect();
    let listed = Git::reading(&info.common, cancel).run(&words)?;
    let files = listed.split(|byte| *byte == 0).filter_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b'\t');
        let mut number = || std::str::from_utf8(fields.next()?).ok()?.trim().parse::<u64>().ok();
        let lines = (number(), number());
        let path = merging::path_of(fields.next()?);
        Some((path, lines.0.zip(lines.1)))
    });
    Ok(WorktreeDiff { files: files.collect() })
}

/// Removes what there is of a worktree, and its branch.
fn remove(info: &WorktreeInfo, place: &Path, cancel: &CancellationToken) -> Result<(), WorktreeError> {
    // Git removes none whose `.git` is gone, but any whose directory is.
    if info.tree.starts_with(place) {
        remove_directory(&info.tree)?;
    }
    // Where the repository itself is gone, there is nothing to tell it.
    if info.common.is_dir() {
        let git = Git::reading(&info.common, cancel).writing(&[place, &info.common]);
        let tree = info.tree.as_os_str();
        let words = ["worktree", "remove", "--force", "--force"].map(std::ffi::OsStr::new);
        let removed = git.run(&[words.as_slice(), &[tree]].concat());
        if let (Err(error), true) = (removed, !info.admin.as_os_str().is_empty() && info.admin.is_dir()) {
            return Err(error.into());
        }
        let branch = format!("refs/heads/{}", info.branch);
        if Git::reading(&info.common, cancel).run(&["rev-parse", "--verify", "--quiet", &branch]).is_ok() {
            git.run(&["update-ref", "-d", &branch])?;
        }
    }
    remove_directory(place)
}

/// Removes a directory with all that is in it, if it is there.
fn remove_directory(path: &Path) -> Result<(), WorktreeError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(io_error(path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn make_directory(path: &Path) -> Result<(), WorktreeError> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io_error(path))
}

fn write_info(place: &Path, info: &WorktreeInfo) -> Result<(), WorktreeError> {
    let (path, staged) = (place.join(INFO), place.join(format!("{INFO}.tmp")));
    let text = serde_json::to_vec_pretty(info).map_err(std::io::Error::other).map_err(io_error(&path))?;
    let mut options = File::options();
    let file = options.create(true).truncate(true).write(true).mode(0o600).open(&staged);
    file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&staged, &path))
        .map_err(io_error(&path))
}

/// What is noted at a place; `None` where nothing is that can be read.
fn read_info(place: &Path) -> Option<WorktreeInfo> {
    let mut text = Vec::new();
    let file = File::open(place.join(INFO)).ok()?;
    file.take(INFO_LIMIT).read_to_end(&mut text).ok()?;
    let info: WorktreeInfo = serde_json::from_slice(&text).ok()?;
    (place.file_name() == Some(std::ffi::OsStr::new(&info.id))).then_some(info)
}

/// The name of a worktree's directory: that of the repository's, since tools name things after it.
fn directory_name(top: &Path) -> String {
    let name = top.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let name: String = name.chars().filter(|c| c.is_alphanumeric() || "-_.".contains(*c)).take(60).collect();
    match name.as_str() {
        "" | "." | ".." | INFO | LOCK | INDEX => "tree".to_owned(),
        _ => name,
    }
}

fn now() -> UnixMs {
    crate::Clock::now(&crate::SystemClock)
}
