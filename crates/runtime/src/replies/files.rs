//! Files that may be sent to chats.

use std::path::Path;

use quipu::{Access, Session};
use quipu_outbound::{Block, MediaCheck, units};

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

/// What is offered of a block: a reply waits long, and what may be sent is judged when its text is read. A file that is gone is left out, and so is
/// one whose path leads over a link now, which could lead out of the workspace. A line says so, where it fits into `most` units or nothing
/// else is left. Addresses are left alone, and paths that do not begin at the root.
#[must_use]
pub fn offered_block(mut block: Block, most: usize) -> Block {
    let (offered, gone): (Vec<_>, Vec<_>) = block.media.into_iter().partition(|source| {
        let path = Path::new(source);
        !path.is_absolute() || is_true_file(path)
    });
    block.media = offered;
    for source in gone {
        let name = Path::new(&source).file_name().unwrap_or_default().to_string_lossy();
        let line = format!("(`{name}` is not sent: it is gone, or a link took its place.)");
        let line_break = if block.text.is_empty() { "" } else { "\n" };
        if block.is_empty() || units(&block.text) + units(line_break) + units(&line) <= most {
            block.text = [&block.text, line_break, &line].concat();
        }
    }
    block
}

/// Whether there is a file, and no link on the way to it.
fn is_true_file(path: &Path) -> bool {
    // What was a true path in the workspace is in it as long as it is true.
    path.canonicalize().is_ok_and(|true_path| true_path == path)
        && path.symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}
