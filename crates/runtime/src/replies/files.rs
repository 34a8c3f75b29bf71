//! Files that may be sent to chats.

use std::path::Path;

use quipu::{Access, Session};
use quipu_outbound::MediaCheck;

/// The true path of a file that may be sent from a session that works in `cwd`: one of the workspace, which tools may read.
pub(crate) fn sendable_file(name: &str, cwd: &Path, access: &Access) -> Result<String, String> {
    let refused = |why: &str| format!("`{name}` is not sent: {why}. Nothing was sent.");
    let path = cwd.join(name).canonicalize().map_err(|_| refused("there is no such file"))?;
    let workspace = cwd.canonicalize().map_err(|_| refused("the workspace is gone"))?;
    if !path.starts_with(&workspace) {
        return Err(refused("it is outside the workspace"));
    }
    match access.open_for_reading(&path) {
        Ok((_, metadata)) if metadata.is_file() => {}
        Ok(_) => return Err(refused("it is not a file")),
        Err(error) => return Err(refused(&error.to_string())),
    }
    if !access.may_search("read", &path) {
        return Err(refused("a permission rule keeps it from tools"));
    }
    path.into_os_string().into_string().map_err(|_| refused("its name is not Unicode"))
}

/// What answers of a session may send, by what holds at each moment.
pub(crate) fn files_of(session: &Session) -> MediaCheck {
    let session = session.clone();
    MediaCheck::new(move |name| sendable_file(name, session.cwd(), &session.access()).ok())
}
