//! The first record of a file.

use std::fs::File;
use std::io::{BufReader, Read as _};
use std::path::{Path, PathBuf};

use quipu_protocol::{Json, SessionId, UnixMs};

use super::FOLDERS;
use crate::ArchiveError;
use crate::intake::{LINE_LIMIT, Outline};
use crate::json::Members;
use crate::json::time_of;
use crate::lineages::session_id;
use crate::lines::{Lines, content_of, without_mark};

/// What a file begins with that is one value, where that is in one line.
pub(super) const DOCUMENT: &[u8] = b"{\"session\":";

/// Records before the header at most.
const BEFORE: u64 = 100;

/// What a rollout says of itself.
#[derive(Debug, Clone)]
pub(super) struct Header {
    pub(super) session: SessionId,
    pub(super) cwd: String,
    pub(super) time: UnixMs,
    pub(super) provider: String,
    /// The session that it goes on from, and the ordinal before which.
    pub(super) fork: Option<(String, Option<u64>)>,
    /// Whether records are bare, as the oldest versions wrote them.
    pub(super) is_bare: bool,
}

impl Header {
    /// Reads a record; `None` when it is no header.
    pub(super) fn of(text: &str) -> Option<Self> {
        let record = Members::of(text)?;
        let is_bare = record.get("payload").is_none();
        if is_bare && (record.get("type").is_some() || record.get("timestamp").is_none()) {
            return None;
        }
        if !is_bare && record.string("type")? != "session_meta" {
            return None;
        }
        let inner = if is_bare { record } else { Members::of(record.get("payload")?)? };
        let text = |name: &str| inner.string(name).map(std::borrow::Cow::into_owned);
        let number = |name: &str| inner.get(name).and_then(|text| text.parse().ok());
        let fork = text("forked_from_id").map(|id| (id, number("forked_from_ordinal_exclusive")));
        Some(Self {
            session: session_id(&text("id")?),
            cwd: text("cwd").unwrap_or_default(),
            time: text("timestamp").and_then(|text| time_of(&text)).unwrap_or_default(),
            provider: text("model_provider").unwrap_or_else(|| "openai".into()),
            fork,
            is_bare,
        })
    }
}

pub(super) fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let idle = crate::intake::idle(file).map_err(fail)?;
    let content = content_of(file).map_err(fail)?;
    let mut lines = Lines::new(BufReader::with_capacity(64 << 10, content), LINE_LIMIT);
    let mut empty = true;
    let mut header = None;
    while header.is_none()
        && let Some(line) = lines.next().map_err(fail)?
        && line.place.number <= BEFORE
    {
        let text = String::from_utf8_lossy(line.bytes);
        empty &= text.trim_ascii().is_empty() && !line.is_too_long();
        if Json::parse(&text).is_ok() {
            header = Header::of(text.trim_ascii());
            if header.is_none() {
                break;
            }
        }
    }
    if header.is_none() && !empty {
        header = document(file).map_err(fail)?;
    }
    let Some(header) = header else {
        let why = if empty { "it is empty" } else { "its first line is not a `session_meta` with an id" };
        return Err(ArchiveError::NotASession { path: path.to_owned(), why });
    };
    let mut before = Vec::new();
    let mut related = Vec::new();
    if let Some((parent, _)) = &header.fork {
        related.push(session_id(parent));
        before.extend(rollout_of(parent, path));
    }
    Ok(Outline { session: header.session, related, first: None, before, idle, look: None })
}

/// The header of a file that is one value, with all records in it; `None` when it is none.
fn document(file: &File) -> std::io::Result<Option<Header>> {
    let mut bytes = Vec::new();
    content_of(file)?.take(LINE_LIMIT as u64 + 1).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(without_mark(&bytes));
    let whole = Members::of(text.trim_ascii()).filter(|_| bytes.len() <= LINE_LIMIT);
    Ok(whole.and_then(|whole| Header::of(whole.get("session")?)))
}

/// The file of a session, among the files that stand near `path`.
fn rollout_of(session: &str, path: &Path) -> Option<PathBuf> {
    let home = path.ancestors().find(|dir| {
        dir.file_name().and_then(|name| name.to_str()).is_some_and(|name| FOLDERS.contains(&name))
    });
    let mut folders: Vec<PathBuf> = path.parent().map(Path::to_owned).into_iter().collect();
    if let Some(home) = home.and_then(Path::parent) {
        folders.extend(FOLDERS.map(|name| home.join(name)));
    }
    // One that was packed may be there beside what it was packed from, or alone.
    let ends = [format!("{session}.jsonl"), format!("{session}.jsonl.zst")];
    folders.into_iter().find_map(|folder| {
        let found = crate::pi::files_with(&folder, &["jsonl", "zst"]).ok()?;
        let of = |end: &String| {
            found.files.iter().find(|file| file.to_str().is_some_and(|name| name.ends_with(end.as_str())))
        };
        ends.iter().find_map(of).cloned()
    })
}
