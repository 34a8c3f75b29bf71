//! Files that were written for somebody, anywhere: exports, pictures, recordings, session files of other agents that a session
//! is written to, traces. `written.jsonl` in the home lists them, so that they are known when something is to go.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use quipu_dag::Blob;
use quipu_protocol::{BlobId, SessionId, UnixMs};
use quipu_store::{
    ContentHolder, ContentQuery, EraseTargets, Erased, FoundContent, FoundPage, FoundPlace, HolderError,
    HolderFut, KeptWhy, Needles, Selection,
};
use quipu_transcript::{ERASED, erased_part};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::disk::{self, DiskFile};
use super::files;
use super::lines::Lines;
use crate::Home;

/// The list, in the home.
const FILE: &str = "written.jsonl";
/// Bytes of the list from which lines of files that are gone are left out.
const LONG: u64 = 1 << 20;
/// Bytes of the list that are read.
const LIMIT: u64 = 64 << 20;

/// What a file is, which says how something is erased from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WrittenKind {
    /// A session to read, or for programs. It goes as a whole, unless somebody changed it.
    Export,
    /// A picture of a session. The same.
    Picture,
    /// A recording of what a model was asked and answered. The same; it may have grown.
    Recording,
    /// A session file of another agent, to which a session of ours is written. Its lines keep their ids and their length.
    SessionFile,
    /// A trace. A line of it becomes `{}` and spaces.
    Trace,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrittenFile {
    /// Where; absolute.
    pub path: PathBuf,
    /// What it is.
    pub kind: WrittenKind,
    /// Whose content it holds; none where that is not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionId>,
    /// When, milliseconds since the epoch.
    pub at: UnixMs,
    /// Device and inode, by which it is known again.
    file: (u64, u64),
    /// SHA-256 of its bytes, of one that is not added to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<BlobId>,
}

impl Home {
    /// Notes that a file was written, so that its content is found when it is to be erased. Whatever keeps it from being noted
    /// is told.
    pub fn wrote(&self, path: &Path, kind: WrittenKind, sessions: &[SessionId]) {
        if let Err(error) = self.note_written(path, kind, sessions) {
            self.warn(format!(
                "{} could not be recorded in {}, so erasing will not reach it: {error}",
                path.display(),
                self.dir.join(FILE).display()
            ));
        }
    }

    fn note_written(&self, path: &Path, kind: WrittenKind, sessions: &[SessionId]) -> io::Result<()> {
        let path = std::path::absolute(path)?.canonicalize()?;
        let about = std::fs::metadata(&path)?;
        // What goes to a pipe or a device is nowhere to be found again.
        if !about.is_file() {
            return Ok(());
        }
        let whole = matches!(kind, WrittenKind::Export | WrittenKind::Picture);
        let file = WrittenFile {
            sha256: if whole { Some(hash_of(&path)?) } else { None },
            file: (about.dev(), about.ino()),
            sessions: sessions.to_vec(),
            at: crate::now(),
            path,
            kind,
        };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
        let list = self.dir.join(FILE);
        let lock = std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(self.dir.join("written.lock"))?;
        let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| errno)?;
        let mut opened =
            std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&list)?;
        let known = read(&list)?;
        let same = |other: &WrittenFile| WrittenFile { at: file.at, ..other.clone() } == file;
        if known.iter().any(same) {
            return Ok(());
        }
        let mut line = serde_json::to_vec(&file)?;
        line.push(b'\n');
        let size = opened.metadata()?.len();
        if size > 0 {
            let mut last = [0];
            opened.read_exact_at(&mut last, size - 1)?;
            // Somebody was stopped in the middle of a line.
            if last != *b"\n" {
                line.insert(0, b'\n');
            }
        }
        opened.write_all(&line)?;
        opened.sync_data()?;
        if size + line.len() as u64 > LONG {
            forget_gone(&opened, &list)?;
        }
        Ok(())
    }
}

/// Leaves the lines of files that are there.
fn forget_gone(opened: &File, list: &Path) -> io::Result<()> {
    let mut text = Vec::new();
    for line in read(list)? {
        if line.path.symlink_metadata().is_ok() {
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
    }
    if (text.len() as u64) < opened.metadata()?.len() {
        let aside =
            tempfile::Builder::new().prefix(".written-").tempfile_in(list.parent().unwrap_or(list))?;
        aside.as_file().write_all_at(&text, 0)?;
        aside.as_file().sync_data()?;
        aside.persist(list).map_err(|error| error.error)?;
    }
    Ok(())
}

fn hash_of(path: &Path) -> io::Result<BlobId> {
    let (mut hash, mut file) = (Sha256::new(), disk::open(path, false)?);
    let mut window = vec![0; 256 << 10];
    loop {
        match file.read(&mut window)? {
            0 => break,
            read => hash.update(&window[..read]),
        }
    }
    Ok(BlobId(hash.finalize().into()))
}

/// The lines of the list; what is none is passed over.
fn read(list: &Path) -> io::Result<Vec<WrittenFile>> {
    let bytes = match disk::whole(list, LIMIT) {
        Err(error) if disk::is_gone(&error) => return Ok(Vec::new()),
        bytes => bytes?,
    };
    let lines = bytes.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// The files of the list.
pub(super) struct WrittenFiles {
    list: PathBuf,
}

impl WrittenFiles {
    pub(super) fn of(home: &Home) -> Self {
        Self { list: home.dir.join(FILE) }
    }

    fn work(&self, selection: &Selection) -> Result<Work, HolderError> {
        Ok(Work {
            list: self.list.clone(),
            needles: Needles::of(selection)?,
            sessions: selection.sessions.clone(),
            nothing: selection.sessions.is_empty() && selection.needles.is_empty(),
        })
    }
}

struct Work {
    list: PathBuf,
    needles: Needles,
    sessions: Vec<SessionId>,
    nothing: bool,
}

/// A listed file that exists.
struct ListedFile {
    written: WrittenFile,
    disk: DiskFile,
}

impl ListedFile {
    fn place(&self) -> FoundPlace {
        FoundPlace::File { path: self.disk.path.clone(), line: None }
    }

    /// Whether it is as it was written.
    fn is_ours(&self) -> io::Result<bool> {
        match self.written.sha256 {
            Some(hash) => Ok(hash_of(&self.disk.path)? == hash),
            None => {
                let about = std::fs::symlink_metadata(&self.disk.path)?;
                Ok((about.dev(), about.ino()) == self.written.file)
            }
        }
    }
}

/// The files of the list that are there, each once as it was written last, by their keys.
fn listed_files(list: &Path) -> Result<Vec<ListedFile>, HolderError> {
    let lines = read(list).map_err(|error| HolderError::file(list, "read", &error))?;
    let mut last = std::collections::BTreeMap::new();
    for file in lines {
        let sessions = last.get(&file.path).map(|known: &WrittenFile| known.sessions.clone());
        let entry = last.entry(file.path.clone()).or_insert_with(|| file.clone());
        *entry = file;
        for session in sessions.into_iter().flatten() {
            if !entry.sessions.contains(&session) {
                entry.sessions.push(session);
            }
        }
    }
    let mut found = Vec::new();
    for (path, written) in last {
        let disk = match disk::file_at(&path) {
            Ok(Some(disk)) => disk,
            Ok(None) => continue,
            // Reading it will say what is wrong.
            Err(_) => DiskFile { path, bytes: 0 },
        };
        found.push(ListedFile { written, disk });
    }
    found.sort_by_cached_key(|file| file.disk.key());
    Ok(found)
}

/// What an entry of a session file leaves: its ids, in as many bytes.
fn entry_left(line: &[u8], needles: &Needles) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Head<'a> {
        #[serde(borrow, rename = "type")]
        kind: std::borrow::Cow<'a, str>,
    }
    let entry = std::str::from_utf8(line).ok().filter(|text| text.starts_with('{'));
    let Some((text, entry)) = entry.and_then(|text| Some((text, Blob::new("pi_entry", text).ok()?))) else {
        // No entry: nothing of it need stay.
        return if line.trim_ascii().is_empty() { Some(line.to_vec()) } else { trace_left(line, needles) };
    };
    // Not a session's first line: it says where the session belongs, and who reads the file needs it.
    if !needles.are_in(line)
        && serde_json::from_str::<Head<'_>>(text).is_ok_and(|head| head.kind == "session")
    {
        return Some(line.to_vec());
    }
    let left = erased_part(&entry).content;
    let shorter = left.replace(ERASED, "");
    let left = [left, shorter, "{}".to_owned()]
        .into_iter()
        .find(|left| left.len() <= line.len() && !needles.are_in(left.as_bytes()))?;
    let mut left = left.into_bytes();
    left.resize(line.len(), b' ');
    Some(left)
}

/// The same of a trace.
fn trace_left(line: &[u8], _: &Needles) -> Option<Vec<u8>> {
    let mut left = vec![b' '; line.len()];
    left.get_mut(..2)?.copy_from_slice(b"{}");
    Some(left)
}

impl Work {
    fn is_of(&self, file: &ListedFile) -> bool {
        file.written.sessions.iter().any(|session| self.sessions.contains(session))
    }

    fn lines(&self, file: &ListedFile) -> Lines {
        let session_file = file.written.kind == WrittenKind::SessionFile;
        Lines {
            needles: self.needles.clone(),
            paths: vec![file.disk.path.clone()],
            leave: if session_file { entry_left } else { trace_left },
            all: session_file && self.is_of(file),
        }
    }

    fn has_lines(kind: WrittenKind) -> bool {
        match kind {
            WrittenKind::SessionFile | WrittenKind::Trace => true,
            WrittenKind::Export | WrittenKind::Picture | WrittenKind::Recording => false,
        }
    }

    /// Whether a file holds what is looked for.
    fn holds(&self, file: &ListedFile) -> Result<bool, HolderError> {
        if Self::has_lines(file.written.kind) {
            let one = ContentQuery { limit: 1, ..ContentQuery::of(Selection::default()) };
            return Ok(!self.lines(file).find(&one)?.found.is_empty());
        }
        Ok(self.is_of(file) || disk::holds(&file.disk.path, &self.needles)?)
    }

    fn find(&self, query: &ContentQuery) -> Result<FoundPage, HolderError> {
        let mut page = FoundPage::begin(query);
        if self.nothing {
            return Ok(page);
        }
        for file in listed_files(&self.list)? {
            let key = file.disk.key();
            // Nobody can say what is in one that cannot be read.
            if page.is_past(&key) || !self.holds(&file).unwrap_or(true) {
                continue;
            }
            if !page.push(&key, FoundContent { place: file.place(), bytes: file.disk.bytes }) {
                break;
            }
        }
        Ok(page)
    }

    fn erase(&self) -> Result<Erased, HolderError> {
        let mut erased = Erased::default();
        if self.nothing {
            return Ok(erased);
        }
        for file in listed_files(&self.list)? {
            match self.holds(&file) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    files::unread(&file.disk, &error, &mut erased);
                    continue;
                }
            }
            if Self::has_lines(file.written.kind) {
                erased.join(self.lines(&file).erase()?);
                continue;
            }
            match file.is_ours() {
                Ok(true) => files::removed(&file.disk, &mut erased),
                Err(error) => {
                    let error = HolderError::file(&file.disk.path, "read", &error);
                    files::unread(&file.disk, &error, &mut erased);
                }
                Ok(false) => {
                    let told = "it was changed after Quipu wrote it; check it and remove it by hand";
                    erased.keep(file.place(), KeptWhy::Changed, told);
                }
            }
        }
        Ok(erased)
    }
}

impl ContentHolder for WrittenFiles {
    fn name(&self) -> &str {
        "written"
    }

    fn find<'a>(&'a self, query: &'a ContentQuery) -> HolderFut<'a, FoundPage> {
        Box::pin(async move {
            let (work, query) = (self.work(&query.selection)?, query.clone());
            disk::apart(move || work.find(&query)).await
        })
    }

    fn erase<'a>(&'a self, targets: &'a EraseTargets) -> HolderFut<'a, Erased> {
        Box::pin(async move {
            let work = self.work(&targets.selection)?;
            disk::apart(move || work.erase()).await
        })
    }

    fn bytes(&self) -> HolderFut<'_, u64> {
        let list = self.list.clone();
        Box::pin(disk::apart(move || {
            let own = disk::file_at(&list)?.map_or(0, |file| file.bytes);
            Ok(own + listed_files(&list)?.iter().map(|file| file.disk.bytes).sum::<u64>())
        }))
    }
}
