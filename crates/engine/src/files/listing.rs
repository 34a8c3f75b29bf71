//! What there was before a command, by name: kept in the store while the command runs, so that whoever finds that it was
//! killed knows what it removed. The whole list is written seldom; a command's own row says what is different since then.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use quipu_protocol::{ChunkId, SessionId};
use quipu_workspace::{Files, GitIndex, GitRefs};
use serde::{Deserialize, Serialize};

use quipu_transcript::WorkspaceNote;

/// Files of a list; where there are more, it is not kept.
const LISTED: usize = 20_000;
/// Differences to a list; where there are more, it is written anew.
const DIFFERENT: usize = 128;
/// What says of a mode that it is a directory's.
pub(super) const DIRECTORY: u32 = 0o040_000;
/// Bits of a mode that say what it is the mode of.
pub(super) const KIND: u32 = 0o170_000;

/// A file, or a directory that is empty.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ListedFile {
    pub(super) path: String,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Its content, if the store has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<ChunkId>,
    /// It is as git has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) clean: bool,
}

/// Everything but files that are as git has them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Listing {
    /// Nothing where there are too many.
    pub(super) files: Option<Vec<ListedFile>>,
    /// Files that git tracks and that were not there.
    pub(super) missing: Vec<String>,
    /// Whether what is not in it was not there.
    pub(super) is_whole: bool,
    /// The entries of git's index.
    pub(super) index: Option<u64>,
}

/// What is different since the list was written, and where git stood.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct ListingDelta {
    pub(super) files: Vec<ListedFile>,
    pub(super) gone: Vec<String>,
    pub(super) refs: Vec<(String, String)>,
}

/// What a command's row and the session's list are to say.
#[derive(Debug, Default)]
pub(super) struct Update {
    /// To be written in place of the one before.
    pub(super) listing: Option<Listing>,
    pub(super) since: ListingDelta,
}

/// Keeps track of what the list in the store says.
#[derive(Debug, Default)]
pub(super) struct Lister {
    /// The session that has a list, and the index that it was made with.
    written: Option<(SessionId, Option<u64>)>,
    different: BTreeSet<PathBuf>,
}

impl Lister {
    /// These are no longer as they were.
    pub(super) fn changed<'a>(&mut self, paths: impl IntoIterator<Item = &'a PathBuf>) {
        if self.written.is_some() {
            self.different.extend(paths.into_iter().take(DIFFERENT + 1).cloned());
        }
    }

    /// What is to be written before a command of a session runs.
    pub(super) fn update(
        &mut self,
        session: &SessionId,
        files: &Files,
        (index, hash): (Option<&GitIndex>, Option<u64>),
        refs: &GitRefs,
        content: &dyn Fn(&Path) -> Option<ChunkId>,
    ) -> Update {
        let standing = Some((session.clone(), hash));
        let mut update = Update::default();
        let listed = |path: &Path| {
            let stamp = files.get(path)?;
            Some(ListedFile {
                path: path.to_str()?.to_owned(),
                mode: stamp.mode,
                size: stamp.size,
                content: content(path),
                clean: index.is_some_and(|index| index.clean(path, stamp).is_some()),
            })
        };
        let directory = |path: &Path, mode: u32| {
            let path = path.to_str()?.to_owned();
            Some(ListedFile { path, mode: mode | DIRECTORY, size: 0, content: None, clean: false })
        };
        if self.written == standing && self.different.len() <= DIFFERENT {
            for path in &self.different {
                let found = listed(path).or_else(|| directory(path, files.directory(path)?));
                match found {
                    Some(found) => update.since.files.push(found),
                    None => update.since.gone.extend(path.to_str().map(str::to_owned)),
                }
            }
        } else {
            let clean =
                |path: &Path| files.get(path).zip(index).and_then(|(stamp, index)| index.clean(path, stamp));
            let own: Vec<PathBuf> =
                files.iter().map(|(path, _)| path).filter(|path| clean(path).is_none()).collect();
            let mut all: Vec<ListedFile> = if own.len() > LISTED {
                Vec::new()
            } else {
                own.iter().filter_map(|path| listed(path)).collect()
            };
            all.extend(
                files.empty_directories().take(LISTED).filter_map(|(path, mode)| directory(path, mode)),
            );
            let missing =
                index.into_iter().flat_map(GitIndex::tracked).filter(|(path, _)| files.get(path).is_none());
            let missing = missing.filter_map(|(path, _)| path.to_str().map(str::to_owned)).collect();
            update.listing = Some(Listing {
                files: (own.len() <= LISTED).then_some(all),
                missing,
                is_whole: !files.is_beyond(),
                index: hash,
            });
            self.written = standing;
            self.different.clear();
        }
        let head = refs.get("HEAD");
        let names =
            ["HEAD", "refs/stash"].into_iter().chain(head.and_then(|head| head.strip_prefix("ref: ")));
        update.since.refs =
            names.filter_map(|name| Some((name.to_owned(), refs.get(name)?.to_owned()))).collect();
        update
    }
}

/// What tells one content of git's index from another.
pub(super) fn hash_of(index: &GitIndex) -> u64 {
    let mut all = DefaultHasher::new();
    for (path, id) in index.tracked() {
        path.as_os_str().as_bytes().hash(&mut all);
        id.hash(&mut all);
    }
    all.finish()
}

/// What was there before a command that was interrupted.
#[derive(Debug, Default)]
pub(super) struct PriorFiles {
    pub(super) files: HashMap<PathBuf, PriorFile>,
    /// Whether what is not among them was not there.
    pub(super) is_whole: bool,
}

/// A file as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PriorFile {
    pub(super) mode: u32,
    pub(super) size: Option<u64>,
    pub(super) content: Option<ChunkId>,
    /// The object that git has of it.
    pub(super) object: Option<[u8; 20]>,
}

impl PriorFiles {
    /// As the list and the row tell; with what they leave open.
    pub(super) fn of(
        listing: Option<Listing>,
        since: ListingDelta,
        root: &Path,
        note: &mut WorkspaceNote,
    ) -> Self {
        let index = GitIndex::of(root);
        let known = listing
            .and_then(|listing| Some((listing.files?, listing.missing, listing.is_whole, listing.index)));
        let Some((files, missing, is_whole, hash)) = known else {
            note.unknown.push("the files that an interrupted command removed are not known".into());
            return Self::default();
        };
        let index = index.filter(|index| Some(hash_of(index)) == hash);
        let is_known = index.is_some() || hash.is_none();
        if !is_known {
            note.unknown.push(
                "an interrupted command changed the git index, so its changes to tracked files are not known"
                    .into(),
            );
        }
        let missing: BTreeSet<String> = missing.into_iter().collect();
        let mut all: HashMap<PathBuf, PriorFile> = HashMap::new();
        for (path, object) in index.iter().flat_map(GitIndex::tracked) {
            if !path.to_str().is_some_and(|path| missing.contains(path)) {
                let mode = index.as_ref().and_then(|index| index.object(path)).map_or(0, |(_, mode)| mode);
                all.insert(
                    path.to_path_buf(),
                    PriorFile { mode, size: None, content: None, object: Some(object) },
                );
            }
        }
        let put = |all: &mut HashMap<PathBuf, PriorFile>, one: ListedFile| {
            let path = PathBuf::from(&one.path);
            let object = index.as_ref().filter(|_| one.clean).and_then(|index| Some(index.object(&path)?.0));
            all.insert(
                path,
                PriorFile { mode: one.mode, size: Some(one.size), content: one.content, object },
            );
        };
        files.into_iter().for_each(|one| put(&mut all, one));
        for path in &since.gone {
            all.remove(Path::new(path));
        }
        since.files.into_iter().for_each(|one| put(&mut all, one));
        Self { files: all, is_whole: is_whole && is_known }
    }
}
