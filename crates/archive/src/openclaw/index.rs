//! `sessions.json` beside the transcripts: the key and the name that each session has.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use quipu_protocol::SessionId;

use crate::ArchiveError;
use crate::import_cache::now;
use crate::intake::open_file;
use crate::json::Members;
use crate::lineages::session_id;
use crate::stamp::Stamp;

/// Bytes of `sessions.json` at most; of a longer one no names are taken.
const INDEX_LIMIT: u64 = 64 << 20;

/// Members of a row of `sessions.json` that name a session, the best first.
const NAMES: [&str; 5] = ["label", "displayName", "subject", "groupChannel", "space"];

/// The one that was read last: hundreds of transcripts stand beside one of many megabytes.
static LAST: Mutex<Option<SessionIndex>> = Mutex::new(None);

/// The key of a session, and its name when it has one.
type SessionName = (String, Option<String>);

/// What a file says.
struct SessionIndex {
    path: PathBuf,
    stamp: Stamp,
    sessions: HashMap<SessionId, SessionName>,
}

/// The key of a session in `sessions.json` beside its file, and its name when it has one; `None` where that does not tell. An
/// error is told in words.
pub(super) fn called(path: &Path, session: &SessionId) -> Result<Option<SessionName>, String> {
    let Some(dir) = path.parent() else { return Ok(None) };
    let index = dir.join("sessions.json");
    match is_inside(dir, &index) {
        Ok(true) => {}
        Ok(false) => return Err("it is a link out of the directory".to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    }
    let file = match open_file(&index) {
        Ok(file) => file,
        Err(ArchiveError::NotASession { .. }) => return Ok(None),
        Err(ArchiveError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(None);
        }
        Err(ArchiveError::File { source, .. }) => return Err(source.to_string()),
        Err(error) => return Err(error.to_string()),
    };
    let data = file.metadata().map_err(|error| error.to_string())?;
    let too_large = |bytes: u64| format!("{bytes} bytes; the limit is {INDEX_LIMIT}");
    if data.len() > INDEX_LIMIT {
        return Err(too_large(data.len()));
    }
    let stamp = Stamp::of(&data);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = last.as_ref().filter(|known| known.path == index && known.stamp == stamp) {
        return Ok(known.sessions.get(session).cloned());
    }
    let settled = stamp.settled(now());
    let mut bytes = Vec::new();
    file.take(INDEX_LIMIT + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > INDEX_LIMIT {
        return Err(too_large(bytes.len() as u64));
    }
    let sessions = sessions_of(&bytes)?;
    let called = sessions.get(session).cloned();
    *last = settled.map(|stamp| SessionIndex { path: index, stamp, sessions });
    Ok(called)
}

/// Whether a file is within the state directory of these sessions; beside them, where they are in none.
fn is_inside(dir: &Path, file: &Path) -> io::Result<bool> {
    let named = |path: &Path, name: &str| path.file_name().is_some_and(|found| found == name);
    let agents = dir.parent().and_then(Path::parent).filter(|path| named(path, "agents"));
    let root = agents.filter(|_| named(dir, "sessions")).and_then(Path::parent).unwrap_or(dir);
    // A relative path that has no more parts is below the working directory.
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    Ok(file.canonicalize()?.starts_with(root.canonicalize()?))
}

/// All that a file says; of two rows about a session the first counts.
fn sessions_of(bytes: &[u8]) -> Result<HashMap<SessionId, SessionName>, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut sessions = HashMap::new();
    // The program leaves an empty one where a disk was full.
    if text.trim_ascii().is_empty() {
        return Ok(sessions);
    }
    let rows = Members::of(text.trim_ascii()).ok_or("it is not a JSON object")?;
    for (key, row) in &rows.0 {
        let Some(row) = Members::of(row) else { continue };
        let id = row.string("sessionId").unwrap_or_default();
        let file = row.string("sessionFile").unwrap_or_default();
        let of_file = file.rsplit(['/', '\\']).next().and_then(|name| name.strip_suffix(".jsonl"));
        let text = |members: &Members<'_>, name: &str| {
            members.string(name).map(std::borrow::Cow::into_owned).filter(|text| !text.trim().is_empty())
        };
        let name = NAMES.iter().find_map(|name| text(&row, name));
        let name = name.or_else(|| text(&row.get("origin").and_then(Members::of)?, "label"));
        sessions.entry(session_id(of_file.unwrap_or(&id))).or_insert_with(|| (key.to_string(), name));
    }
    Ok(sessions)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn index_that_changed_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = dir.path().join("agents/main/sessions");
        fs::create_dir_all(&sessions).unwrap();
        let (file, index) = (sessions.join("s.jsonl"), sessions.join("sessions.json"));
        let told = || called(&file, &session_id("s"));
        assert_eq!(told(), Ok(None));
        for name in ["one", "two"] {
            let text =
                format!(r#"{{"k": {{"sessionId": "s", "label": "{name}"}}, "l": {{"sessionId": "s"}}}}"#);
            fs::write(&index, text).unwrap();
            for _ in 0..2 {
                assert_eq!(told(), Ok(Some(("k".to_owned(), Some(name.to_owned())))));
            }
        }
        fs::write(&index, "[]").unwrap();
        assert!(told().is_err());
        fs::remove_file(&index).unwrap();
        nix::unistd::mkfifo(&index, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(told(), Ok(None), "nothing writes to it");
    }

    #[test]
    fn index_behind_a_link_out_of_the_directory_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = dir.path().join("state/agents/main/sessions");
        fs::create_dir_all(&sessions).unwrap();
        let row = r#"{"k": {"sessionId": "s", "label": "elsewhere"}}"#;
        fs::write(dir.path().join("other.json"), row).unwrap();
        fs::write(dir.path().join("state/inside.json"), row).unwrap();
        let (file, index) = (sessions.join("s.jsonl"), sessions.join("sessions.json"));
        std::os::unix::fs::symlink(dir.path().join("other.json"), &index).unwrap();
        assert!(called(&file, &session_id("s")).unwrap_err().contains("link"));
        fs::remove_file(&index).unwrap();
        std::os::unix::fs::symlink("../../../inside.json", &index).unwrap();
        assert!(called(&file, &session_id("s")).unwrap().is_some());
    }
}
