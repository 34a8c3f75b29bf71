//! A first look at a file: whose records it holds.

use std::fs::File;
use std::io::{self, BufReader, Seek as _};
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use memchr::memmem;
use quipu_protocol::{SessionId, UnixMs};

use crate::ArchiveError;
use crate::intake::{LINE_LIMIT, Outline};
use crate::json::Members;
use crate::json::time_of;
use crate::lineages::session_id;
use crate::lines::Lines;

/// What a line has that says which session it was written for.
const REQUESTED: &[u8] = b"\"requestSessionId\":\"";
/// Bytes that are searched for that at once.
const BLOCK: usize = 256 << 10;

pub(super) fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let copies = Copies::of(file, path)?;
    let idle = crate::intake::idle(file).map_err(fail)?;
    let mut related = Vec::new();
    for (_, owner) in &copies.runs {
        if !related.contains(owner) {
            related.push(owner.clone());
        }
    }
    related.extend(copies.parent.clone());
    let (session, first) = (copies.session.clone(), copies.first.clone());
    Ok(Outline { session, related, first, before: Vec::new(), idle, look: Some(Arc::new(copies)) })
}

/// Which lines of a file were copied from other sessions.
#[derive(Debug, Clone)]
pub(super) struct Copies {
    pub(super) session: SessionId,
    /// Of a file of a subagent: the session that started it.
    pub(super) parent: Option<SessionId>,
    first: Option<String>,
    /// Lines up to this number are of that session; in order.
    pub(super) runs: Vec<(u64, SessionId)>,
    /// What was written by this session is not older.
    pub(super) own_from: Option<UnixMs>,
}

impl Copies {
    /// Reads the file from where it stands to its end.
    pub(super) fn of(file: &mut File, path: &Path) -> Result<Self, ArchiveError> {
        let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let agent = stem.starts_with("agent-").then_some(stem);
        let named = Some(stem).filter(|stem| is_uuid(stem));
        let start = file.stream_position().map_err(fail)?;
        let file = &*file;
        let mut lines = Lines::new(BufReader::with_capacity(64 << 10, file), LINE_LIMIT);
        let mut session: Option<String> = named.map(str::to_owned);
        let mut first = None;
        let mut own_from = None;
        let mut runs: Vec<(u64, String)> = Vec::new();
        let requested = memmem::Finder::new(REQUESTED);
        let mut empty = true;
        let mut has_copies = false;
        while let Some(line) = lines.next().map_err(fail)? {
            empty &= line.bytes.trim_ascii().is_empty();
            let copied = requested.find(line.bytes).is_some();
            if !copied && first.is_some() && session.is_some() {
                // Mostly nothing was copied.
                let at = start + line.place.end();
                if !has_copies && !stands_after(file, at, &requested).map_err(fail)? {
                    break;
                }
                has_copies = true;
                continue;
            }
            let Ok(text) = std::str::from_utf8(line.bytes) else { continue };
            let Some(members) = Members::of(text.trim_ascii()) else { continue };
            if session.is_none() {
                session = members.string("sessionId").map(std::borrow::Cow::into_owned);
            }
            if first.is_none() {
                first = members.string("uuid").map(std::borrow::Cow::into_owned);
                if first.is_none() {
                    own_from = members.string("timestamp").and_then(|text| time_of(&text)).or(own_from);
                }
            }
            if let Some(owner) = members.string("requestSessionId") {
                runs.push((line.place.number, owner.into_owned()));
            }
        }
        let Some(session) = session else {
            let why = if empty { "it is empty" } else { "none of its records has a session id" };
            return Err(ArchiveError::NotASession { path: path.to_owned(), why });
        };
        if first.is_none() {
            let why = "it has no record with a `uuid`";
            return Err(ArchiveError::NotASession { path: path.to_owned(), why });
        }
        let (session, parent) = match agent {
            None => (session_id(&session), None),
            Some(agent) => {
                // The records name the session that started it, the path does so too.
                let of_path =
                    path.ancestors().filter_map(|dir| dir.file_name()?.to_str()).find(|name| is_uuid(name));
                let parent = of_path.unwrap_or(&session);
                (session_id(&format!("{parent}.{agent}")), Some(session_id(parent)))
            }
        };
        let runs = runs.into_iter().map(|(line, owner)| (line, session_id(&owner)));
        let runs: Vec<_> =
            runs.filter(|(_, owner)| *owner != session && Some(owner) != parent.as_ref()).collect();
        Ok(Self { session, parent, first, runs, own_from })
    }

    /// Whether the file with one more line says the same.
    pub(super) fn are_same_with(&self, line: &[u8]) -> bool {
        if memmem::find(line, REQUESTED).is_none() {
            return true;
        }
        let text = String::from_utf8_lossy(line);
        let owner = Members::of(text.trim_ascii())
            .and_then(|members| members.string("requestSessionId").map(|owner| session_id(&owner)));
        owner.is_none_or(|owner| owner == self.session || Some(&owner) == self.parent.as_ref())
    }

    /// Whose a record is.
    pub(super) fn owner(&self, line: u64, time: Option<UnixMs>) -> &SessionId {
        let at = self.runs.partition_point(|(end, _)| *end < line);
        if let Some((_, owner)) = self.runs.get(at) {
            return owner;
        }
        match (self.runs.last(), time, self.own_from) {
            (Some((_, owner)), Some(time), Some(own)) if time < own => owner,
            _ => &self.session,
        }
    }
}

/// Whether something stands in a file after a place, for which no line is looked at: in one half beside the other, for
/// nothing else can be done before that is known.
fn stands_after(file: &File, at: u64, what: &memmem::Finder<'_>) -> io::Result<bool> {
    let left = file.metadata()?.len().saturating_sub(at);
    if left < 4 * BLOCK as u64 {
        return stands_in(file, at..u64::MAX, what);
    }
    let middle = at + left / 2;
    std::thread::scope(|scope| {
        let rest = || stands_in(file, middle..u64::MAX, what);
        let beside = std::thread::Builder::new().name("quipu-import".to_owned()).spawn_scoped(scope, rest);
        // What lies on both sides of the middle is found here.
        let here = stands_in(file, at..middle + what.needle().len() as u64 - 1, what)?;
        let there = match beside {
            Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?,
            Err(_) => rest()?,
        };
        Ok(here || there)
    })
}

fn stands_in(file: &File, mut range: Range<u64>, what: &memmem::Finder<'_>) -> io::Result<bool> {
    let mut block = vec![0; BLOCK];
    let mut kept = 0;
    while range.start < range.end {
        let most = usize::try_from(range.end - range.start).unwrap_or(BLOCK).saturating_add(kept);
        let read = match file.read_at(&mut block[kept..most.min(BLOCK)], range.start) {
            Ok(0) => return Ok(false),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        range.start += read as u64;
        let filled = kept + read;
        if what.find(&block[..filled]).is_some() {
            return Ok(true);
        }
        // What may be the beginning of it.
        kept = filled.min(what.needle().len() - 1);
        block.copy_within(filled - kept..filled, 0);
    }
    Ok(false)
}

fn is_uuid(text: &str) -> bool {
    text.len() == 36
        && text.bytes().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_wherever_it_stands() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let what = memmem::Finder::new(REQUESTED);
        for size in [0, 10, 1_000, BLOCK - 5, BLOCK, 3 * BLOCK, 9 * BLOCK + 3] {
            let blank = vec![b' '; size];
            std::fs::write(&path, &blank).unwrap();
            let file = File::open(&path).unwrap();
            assert!(!stands_after(&file, 0, &what).unwrap());
            let edges = [0, BLOCK, 2 * BLOCK, size / 2, size, size / 2 + BLOCK];
            for at in edges.iter().flat_map(|edge| edge.saturating_sub(25)..edge + 3).filter(|at| *at <= size)
            {
                let mut text = blank.clone();
                text.splice(at..at, REQUESTED.iter().copied());
                std::fs::write(&path, &text).unwrap();
                let file = File::open(&path).unwrap();
                assert!(stands_after(&file, 0, &what).unwrap(), "{at} of {size}");
                assert!(!stands_after(&file, at as u64 + 1, &what).unwrap(), "{at} of {size}");
            }
        }
    }
}
