//! What is being written, kept so that it outlives the process.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::Flock;
use quipu::Sealer;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::editor::Draft;
use crate::private_file::{self, Syncer};

/// Processes that may keep drafts of one directory at a time.
const SLOTS: usize = 16;
/// Bytes of a paste from which it has a file of its own, so that a key behind it writes little.
const LONG: usize = 16 << 10;
/// Bytes of a file that is read.
const LIMIT: u64 = 256 << 20;

#[derive(Serialize, Deserialize)]
struct StoredDraft<'a> {
    version: u32,
    /// For people who look at the file.
    directory: String,
    draft: std::borrow::Cow<'a, Draft>,
}

/// The file that holds this process's draft: `drafts/KEY-N.json` in the home of Quipu (0600), `KEY` made of the
/// working directory. A lock beside it says that it is somebody's; what a process leaves that ended in whatever way
/// is taken over by the next one in the same directory.
///
/// What was saved outlives the process. It is brought to the disk beside that, so a loss of power costs the last
/// moments. Secrets in it are replaced, as in the store.
#[derive(Debug)]
pub struct DraftFile {
    path: PathBuf,
    lock_path: PathBuf,
    directory: String,
    /// Held as long as this is.
    _lock: Flock<File>,
    sealer: Arc<Sealer>,
    syncer: Syncer,
    there: bool,
    /// Pastes that have files, and the names of those.
    pastes: Vec<(Arc<str>, String)>,
    /// Counts the names.
    named: u64,
}

impl DraftFile {
    /// Takes a place for the drafts of a working directory, and what was left there.
    ///
    /// # Errors
    /// No place can be made, or 16 processes have one. A draft that cannot be read is put aside as `..unreadable`,
    /// and the place is taken without it.
    pub fn claim(home: &Path, directory: &Path, sealer: &Arc<Sealer>) -> io::Result<(Self, Option<Draft>)> {
        let drafts = home.join("drafts");
        private_file::make_directory(&drafts)?;
        let hash = Sha256::digest(directory.as_os_str().as_encoded_bytes());
        let key = quipu_protocol::hex(&hash[..8]);
        let mut slots: Vec<(Option<std::time::SystemTime>, usize)> = (0..SLOTS)
            .map(|slot| {
                let found = drafts.join(format!("{key}-{slot}.json")).metadata();
                (found.and_then(|found| found.modified()).ok(), slot)
            })
            .collect();
        // The newest draft that is nobody's, else the first free place.
        slots.sort_by_key(|(modified, slot)| (std::cmp::Reverse(*modified), *slot));
        for (_, slot) in slots {
            let lock_path = drafts.join(format!("{key}-{slot}.lock"));
            let Some(lock) = private_file::lock(&lock_path, false)? else { continue };
            let path = drafts.join(format!("{key}-{slot}.json"));
            let mut file = Self {
                path,
                lock_path,
                directory: directory.display().to_string(),
                _lock: lock,
                sealer: sealer.clone(),
                syncer: Syncer::default(),
                there: false,
                pastes: Vec::new(),
                named: 0,
            };
            let draft = read(&file.path)?.map(|draft| file.take_pastes(draft));
            file.there = draft.is_some();
            return Ok((file, draft));
        }
        Err(io::Error::other(format!("{SLOTS} processes already keep drafts of this directory")))
    }

    /// Keeps a draft in the place of the last one, in one step; an empty one is removed.
    ///
    /// # Errors
    /// It cannot be written, and the last one is still there; or an earlier one could not be brought to the disk.
    pub fn save(&mut self, draft: &Draft) -> io::Result<()> {
        if draft.is_empty() {
            return self.remove();
        }
        let draft = draft.without_pastes(|content| self.keep(content))?;
        let draft = std::borrow::Cow::Owned(draft.sealed(|text| self.sealer.seal(text).into_owned()));
        let bytes =
            serde_json::to_vec(&StoredDraft { version: 1, directory: self.directory.clone(), draft })?;
        private_file::replace(&self.path, &bytes, false)?;
        self.there = true;
        self.syncer.sync(&self.path)
    }

    /// The name of the file of a paste; none for a short one.
    fn keep(&mut self, content: &Arc<str>) -> io::Result<Option<String>> {
        if content.len() < LONG {
            return Ok(None);
        }
        if let Some((_, name)) = self.pastes.iter().find(|(kept, _)| Arc::ptr_eq(kept, content)) {
            return Ok(Some(name.clone()));
        }
        self.named += 1;
        let name = format!("paste-{}", self.named);
        let path = self.path.with_extension(&name);
        private_file::replace(&path, self.sealer.seal(content).as_bytes(), false)?;
        self.pastes.push((content.clone(), name.clone()));
        self.syncer.sync(&path)?;
        Ok(Some(name))
    }

    /// The draft with its pastes.
    fn take_pastes(&mut self, draft: Draft) -> Draft {
        draft.with_pastes(|name| {
            let number: u64 = name.strip_prefix("paste-")?.parse().ok()?;
            let content = whole(&self.path.with_extension(name)).ok()?;
            let content: Arc<str> = String::from_utf8(content).ok()?.into();
            self.named = self.named.max(number);
            self.pastes.push((content.clone(), name.to_owned()));
            Some(content)
        })
    }

    /// Removes the draft: it was sent.
    ///
    /// # Errors
    /// It is still there.
    pub fn remove(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.there) {
            return Ok(());
        }
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                self.there = true;
                Err(error)
            }
            _ => {
                // Without the draft they are nobody's.
                for (_, name) in self.pastes.drain(..) {
                    std::fs::remove_file(self.path.with_extension(name)).ok();
                }
                Ok(())
            }
        }
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        // Under the lock: who opened it meanwhile sees that it is gone. A lock that stays is taken by the next.
        if !self.there {
            std::fs::remove_file(&self.lock_path).ok();
        }
    }
}

/// The draft of a file; one that is none is put aside.
fn read(path: &Path) -> io::Result<Option<Draft>> {
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    let kept = whole(path).ok().and_then(|bytes| {
        let kept: StoredDraft<'_> = serde_json::from_slice(&bytes).ok()?;
        (kept.version == 1).then(|| kept.draft.into_owned())
    });
    if kept.is_none() {
        std::fs::rename(path, path.with_extension("unreadable"))?;
    }
    Ok(kept)
}

pub(crate) fn whole(path: &Path) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let (file, _) = quipu_workspace::open_for_reading(path).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    file.take(LIMIT).read_to_end(&mut bytes).map(|_| bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::Editor;
    use std::os::unix::fs::MetadataExt as _;

    fn sealer() -> Arc<Sealer> {
        Arc::new(Sealer::new([7; 32]))
    }

    fn draft(text: &str) -> Draft {
        let mut editor = Editor::default();
        editor.set_text(text);
        editor.draft()
    }

    #[test]
    fn a_draft_is_there_for_the_next_process_alone() {
        let home = tempfile::tempdir().unwrap();
        let claim = |directory: &str| DraftFile::claim(home.path(), Path::new(directory), &sealer()).unwrap();
        let (mut first, none) = claim("/a");
        assert_eq!(none, None);
        first.save(&draft("first")).unwrap();
        let (mut second, none) = claim("/a");
        assert_eq!(none, None, "the first is at work");
        second.save(&draft("second")).unwrap();
        assert_eq!(claim("/b").1, None);
        drop(first);
        let (mut third, found) = claim("/a");
        assert_eq!(found, Some(draft("first")));
        third.remove().unwrap();
        drop((second, third));
        let (mut fourth, found) = claim("/a");
        assert_eq!(found, Some(draft("second")));
        assert_eq!(std::fs::metadata(&fourth.path).unwrap().mode() & 0o777, 0o600);
        fourth.save(&draft("")).unwrap();
        drop(fourth);
        assert_eq!(std::fs::read_dir(home.path().join("drafts")).unwrap().count(), 0);
    }

    #[test]
    fn pastes_and_the_cursor_come_back() {
        let home = tempfile::tempdir().unwrap();
        let mut editor = Editor::default();
        editor.insert("before  after");
        let long = "line\n".repeat(100_000);
        editor.paste(&long);
        let (mut file, _) = DraftFile::claim(home.path(), Path::new("/a"), &sealer()).unwrap();
        file.save(&editor.draft()).unwrap();
        let size = |file: &DraftFile| file.path.metadata().unwrap().len();
        assert!(size(&file) < 1_000, "what a key writes does not grow with a paste");
        editor.insert("x");
        file.save(&editor.draft()).unwrap();
        drop(file);
        let (mut file, found) = DraftFile::claim(home.path(), Path::new("/a"), &sealer()).unwrap();
        let mut other = Editor::default();
        other.restore(&found.unwrap());
        assert_eq!(other.text(), editor.text());
        assert_eq!(other.draft(), editor.draft());
        other.paste(&"other\n".repeat(10_000));
        file.save(&other.draft()).unwrap();
        drop(file);
        let (mut file, found) = DraftFile::claim(home.path(), Path::new("/a"), &sealer()).unwrap();
        assert_eq!(found, Some(other.draft()));
        file.remove().unwrap();
        drop(file);
        assert_eq!(std::fs::read_dir(home.path().join("drafts")).unwrap().count(), 0);
    }

    #[test]
    fn damaged_draft_is_set_aside() {
        let home = tempfile::tempdir().unwrap();
        let (mut file, _) = DraftFile::claim(home.path(), Path::new("/a"), &sealer()).unwrap();
        file.save(&draft("x")).unwrap();
        let path = file.path.clone();
        drop(file);
        std::fs::write(&path, "{\"version\":1,\"dra").unwrap();
        let (file, found) = DraftFile::claim(home.path(), Path::new("/a"), &sealer()).unwrap();
        assert_eq!(found, None);
        assert!(path.with_extension("unreadable").exists());
        drop(file);
    }

    #[test]
    fn secrets_are_replaced_wherever_the_cursor_stands() {
        const SECRET: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";
        let home = tempfile::tempdir().unwrap();
        let sealer = sealer();
        sealer.know("credential", "correct horse battery");
        let claim = || DraftFile::claim(home.path(), Path::new("/a"), &sealer).unwrap();
        let (mut file, _) = claim();
        let mut editor = Editor::default();
        editor.insert(&format!("use {SECRET} or correct horse battery"));
        editor.paste(&format!("{SECRET}\n").repeat(30));
        editor.paste(&format!("{SECRET} ").repeat(1_000));
        let left = crate::Key::from(crate::KeyCode::Left);
        for _ in 0..60 {
            file.save(&editor.draft()).unwrap();
            for found in std::fs::read_dir(home.path().join("drafts")).unwrap() {
                let text = std::fs::read_to_string(found.unwrap().path()).unwrap();
                assert!(!text.contains("Zk3vQ9xT1mB7cR5n") && !text.contains("correct horse"), "{text}");
                // In two parts, with the cursor between.
                assert!(!text.contains("0aGuE1o"), "{text}");
            }
            editor.on_key(left, &crate::Bindings::default());
        }
        drop(file);
        let (_file, found) = claim();
        let mut other = Editor::default();
        other.restore(&found.unwrap());
        assert!(other.text().starts_with("use [REDACTED:github-token:"), "{}", other.text());
        assert!(other.text().matches("[REDACTED:").count() > 1_000);
    }
}
