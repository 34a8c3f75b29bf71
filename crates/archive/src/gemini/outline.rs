//! A first look at a file: whose it is, and of which directory.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _};
use std::path::Path;

use quipu_protocol::{ChunkId, Json, UnixMs};

use crate::ArchiveError;
use crate::intake::{LINE_LIMIT, Outline};
use crate::json::{Members, time_of};
use crate::lineages::session_id;
use crate::lines::{Lines, without_mark};

/// Lines that are looked at for a header.
const BEFORE: u64 = 1_000;
/// Bytes of the files that name directories.
const NAMES: u64 = 4 << 20;

/// What a file says of its session.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) session: String,
    /// A hash of the directory.
    pub(super) project: Option<String>,
    pub(super) time: Option<UnixMs>,
    /// What does not change while the session goes on.
    pub(super) kept: Json,
}

impl Header {
    /// Reads a record; `None` when it is no header.
    pub(super) fn of(members: &Members<'_>) -> Option<Self> {
        let is_known = members.get("projectHash").is_some() || members.get("startTime").is_some();
        if members.get("id").is_some() || !is_known {
            return None;
        }
        let time = members.string("startTime").and_then(|text| time_of(&text));
        Some(Self {
            session: members.string("sessionId").filter(|id| !id.is_empty())?.into_owned(),
            project: members.string("projectHash").map(Into::into),
            time,
            kept: members.without(&["messages", "lastUpdated", "summary"]),
        })
    }

    /// The first header of a file, from where that stands.
    pub(super) fn find(file: &mut File) -> std::io::Result<Option<Self>> {
        let mut lines = Lines::new(BufReader::with_capacity(64 << 10, &mut *file), LINE_LIMIT);
        while let Some(line) = lines.next()?
            && line.place.number <= BEFORE
        {
            let text = String::from_utf8_lossy(line.bytes);
            if text.trim_ascii() == "{" {
                break;
            }
            if let Some(header) = Members::of(text.trim_ascii()).as_ref().and_then(Self::of) {
                return Ok(Some(header));
            }
        }
        // Older files are one value on many lines.
        file.rewind()?;
        let mut text = Vec::new();
        file.take(LINE_LIMIT as u64).read_to_end(&mut text)?;
        let text = String::from_utf8_lossy(without_mark(&text));
        Ok(Members::of(text.trim_ascii()).as_ref().and_then(Self::of))
    }
}

pub(super) fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let idle = crate::intake::idle(file).map_err(fail)?;
    let Some(header) = Header::find(file).map_err(fail)? else {
        let empty = file.metadata().map_err(fail)?.len() == 0;
        let why = if empty { "it is empty" } else { "none of its lines is a header with a `sessionId`" };
        return Err(ArchiveError::NotASession { path: path.to_owned(), why });
    };
    Ok(Outline::alone(session_id(&header.session), idle))
}

/// The folder of the project that a session file is of.
pub(super) fn folder(path: &Path) -> Option<&Path> {
    // Those of subagents are in a folder named for the session that began them.
    let chats =
        path.ancestors().skip(1).take(2).find(|dir| dir.file_name().is_some_and(|name| name == "chats"));
    chats.and_then(Path::parent)
}

/// Of a file of a subagent: the session that began it.
pub(super) fn parent(path: &Path) -> Option<String> {
    let dir = path.parent()?;
    let is_inner = dir.parent()?.file_name().is_some_and(|name| name == "chats");
    is_inner.then(|| dir.file_name()?.to_str().map(str::to_owned)).flatten()
}

/// The directory that a session worked in: the folder's name has lost letters of it, and the session has only a hash.
pub(super) fn directory(path: &Path, hash: Option<&str>) -> Option<String> {
    let folder = folder(path)?;
    let read = |path: &Path| {
        let mut text = String::new();
        File::open(path).ok()?.take(NAMES).read_to_string(&mut text).ok()?;
        Some(text)
    };
    let mut named: Vec<String> = Vec::new();
    if let Some(text) = read(&folder.join(".project_root")) {
        named.push(text.trim().to_owned());
    }
    let all = folder.parent().and_then(Path::parent).and_then(|home| read(&home.join("projects.json")));
    #[derive(serde::Deserialize)]
    struct Projects {
        projects: std::collections::BTreeMap<String, String>,
    }
    let all = all.and_then(|text| serde_json::from_str::<Projects>(&text).ok());
    let projects = all.map(|all| all.projects).unwrap_or_default();
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    named.extend(projects.iter().filter(|(_, folder)| *folder == name).map(|(dir, _)| dir.clone()));
    named.retain(|dir| !dir.is_empty());
    let is_hashed = |dir: &&String| {
        hash.is_some_and(|hash| ChunkId(quipu_dag::sha256(dir.as_bytes())).to_string() == hash)
    };
    // Folders of older versions are named by the hash alone.
    let hashed = named.iter().chain(projects.keys()).find(is_hashed);
    hashed.or_else(|| named.first()).cloned()
}
