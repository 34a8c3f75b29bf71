//! Chats of VS Code as `Chat: Export Chat...` writes them: one JSON value, one file a session; the files that it keeps itself in
//! `chatSessions` have the same shape, and more members, or are logs of the changes of such a value.
//!
//! A request is what the user said and all that came of it. What a model saw of that stands in `result.metadata`, when the
//! participant keeps it: its rounds, and the results of its tools. Otherwise what the screen showed is taken.

mod log;
mod parts;
mod read;

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_protocol::{ChunkId, UnixMs};

use crate::intake::{Format, LINE_LIMIT, Outline};
use crate::json::{Members, list};
use crate::lineages::session_id;
use crate::lines::without_mark;
use crate::{ArchiveError, Found};

/// What these sessions are called in the store.
pub const AGENT: &str = "vscode-chat";

pub(crate) const FORMAT: Format = Format { agent: AGENT, outline, read: read::read };

/// Bytes of the file that names a directory.
const NAMES: u64 = 1 << 20;

/// Where VS Code keeps chats by itself: in `User/workspaceStorage` in its folder of settings, and those without a project in
/// `User/globalStorage/emptyWindowChatSessions`. None when there is no home.
pub fn sessions_dirs(env: &dyn Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    let home = || env("HOME");
    let settings = match cfg!(target_os = "macos") {
        true => home().map(|home| home.join("Library/Application Support")),
        false => env("XDG_CONFIG_HOME").or_else(|| Some(home()?.join(".config"))),
    };
    let folders = ["Code/User/workspaceStorage", "Code/User/globalStorage/emptyWindowChatSessions"];
    settings.into_iter().flat_map(|settings| folders.map(|folder| settings.join(folder))).collect()
}

/// Whether a file may be a session: where VS Code keeps them, most files are something else.
pub(crate) fn is_session(path: &Path) -> bool {
    let is_kept = path
        .ancestors()
        .any(|dir| dir.file_name().is_some_and(|name| name == "workspaceStorage" || name == "globalStorage"));
    let folder = path.parent().and_then(Path::file_name);
    !is_kept || folder.is_some_and(|name| name == "chatSessions" || name == "emptyWindowChatSessions")
}

/// Looks at a session file.
pub(crate) fn look(path: &Path) -> std::io::Result<Found> {
    let bytes = std::fs::metadata(path)?.len();
    Ok(Found { path: path.to_owned(), project: directory(path), sessions: 1, bytes })
}

/// What a file says of its session.
struct Header {
    session: String,
    time: Option<UnixMs>,
    title: Option<String>,
}

impl Header {
    /// Reads the whole; `None` when it is no chat, or an empty one.
    fn of(chat: &Members<'_>) -> Option<Self> {
        let requests = list(chat.get("requests")?);
        let first = Members::of(requests.first()?)?;
        chat.string("responderUsername")?;
        let session = match chat.string("sessionId").filter(|id| !id.is_empty()) {
            Some(id) => id.into_owned(),
            None => {
                // An export has no id of its own: its first request has.
                let first = first.string("requestId").map_or_else(|| requests[0].to_owned(), Into::into);
                format!("chat-{}", &ChunkId(quipu_dag::sha256(first.as_bytes())).to_string()[..32])
            }
        };
        let number = |members: &Members<'_>, name: &str| {
            members.get(name).and_then(|text| text.parse::<UnixMs>().ok())
        };
        let title = chat.string("customTitle").or_else(|| chat.string("computedTitle"));
        Some(Self {
            session,
            time: number(chat, "creationDate").or_else(|| number(&first, "timestamp")),
            title: title.filter(|title| !title.is_empty()).map(Into::into),
        })
    }
}

fn outline(file: &mut File, path: &Path) -> Result<Outline, ArchiveError> {
    let fail = |source| ArchiveError::File { path: path.to_owned(), doing: "read", source };
    let not = |why| ArchiveError::NotASession { path: path.to_owned(), why };
    let idle = crate::intake::idle(file).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(LINE_LIMIT as u64 + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() > LINE_LIMIT {
        return Err(not("it is longer than 128 MiB"));
    }
    let bytes = without_mark(&bytes);
    let mut text = String::from_utf8_lossy(bytes);
    if bytes.starts_with(log::START) {
        let mut log = log::Log::new();
        for line in text.lines() {
            // What is wrong with one is told when it is read.
            log.apply(line).ok();
        }
        text = log.end().to_string().into();
    }
    let header = Members::of(text.trim_ascii()).as_ref().and_then(Header::of);
    let why = match text.trim_ascii().is_empty() {
        true => "it is empty",
        false => "it is not a complete JSON object with a `responderUsername` and non-empty `requests`",
    };
    let session = session_id(&header.ok_or_else(|| not(why))?.session);
    Ok(Outline::alone(session, idle))
}

/// The folder that a chat which VS Code keeps is about; an export does not say.
fn directory(path: &Path) -> Option<String> {
    let workspace = path.parent()?.parent()?.join("workspace.json");
    let mut text = String::new();
    File::open(workspace).ok()?.take(NAMES).read_to_string(&mut text).ok()?;
    let uri = Members::of(text.trim_ascii())?.string("folder")?.into_owned();
    // Letters beyond ASCII stand as bytes in it.
    let mut bytes = Vec::new();
    let mut rest = uri.strip_prefix("file://")?.as_bytes();
    while let [first, more @ ..] = rest {
        let code =
            more.get(..2).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok());
        match code.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).ok().filter(|path| path.starts_with('/'))
}
