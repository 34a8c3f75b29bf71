//! A file of version 1 or 2 becomes one of version 3 on disk, as this agent makes it one when it opens it.

use std::fs::File;
use std::io::{BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use quipu_protocol::Json;

use super::LINE_LIMIT;
use super::entry::{Line, migrated};
use super::header::Header;
use crate::ArchiveError;
use crate::lines::Lines;

/// Writes the file aside, with the same mode and owner, and puts it in the place of the old one. The ids that version 1
/// lacks are those that an import gives. Lines that are no entries stay as they are. Gives the new file, locked, open to
/// be read and appended to.
pub(super) fn migrate(path: &Path, old: &File) -> Result<File, ArchiveError> {
    let fail = |doing| move |source| ArchiveError::File { path: path.to_owned(), doing, source };
    let dir = path.parent().unwrap_or(Path::new("/"));
    let before = old.metadata().map_err(fail("read"))?;
    let mut new = tempfile::Builder::new()
        .prefix(".quipu-migrate-")
        .append(true)
        .tempfile_in(dir)
        .map_err(fail("migrated to version 3"))?;
    let reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(fail("opened"))?);
    let mut out = std::io::BufWriter::with_capacity(1 << 20, new.as_file_mut());
    let mut lines = Lines::new(reader, LINE_LIMIT);
    let mut header: Option<Header> = None;
    let (mut n, mut last_id) = (0, None);
    while let Some(line) = lines.next().map_err(fail("read"))? {
        if line.is_too_long() {
            let why = "it has an old format version, and one line is too long to migrate";
            return Err(ArchiveError::NotASession { path: path.to_owned(), why });
        }
        let text = String::from_utf8_lossy(line.bytes);
        let json = Json::parse(&text).ok().filter(|json| json.get().starts_with('{'));
        let made = match (&json, &header) {
            (None, _) => None,
            (Some(json), None) => {
                let Some(first) = Header::of(json) else {
                    let why = "its first line is not a header with type `session` and an id";
                    return Err(ArchiveError::NotASession { path: path.to_owned(), why });
                };
                n = 1;
                let text = first.text().to_owned();
                header = Some(first);
                Some(text)
            }
            (Some(json), Some(header)) => {
                let made = migrated(json.get(), header.version, &header.session, n, last_id.as_deref());
                n += 1;
                if let Some(entry) = Line::read(made.as_deref().unwrap_or(json.get()))
                    && entry.head.kind != "session"
                {
                    last_id = entry.head.id.map(std::borrow::Cow::into_owned);
                }
                made
            }
        };
        let bytes = made.as_ref().map_or(line.bytes, |text| text.as_bytes());
        out.write_all(bytes).and_then(|()| out.write_all(b"\n")).map_err(fail("migrated to version 3"))?;
    }
    out.flush().map_err(fail("migrated to version 3"))?;
    drop(out);
    let settle = || {
        let file = new.as_file();
        let made = file.metadata()?;
        if (made.uid(), made.gid()) != (before.uid(), before.gid()) {
            std::os::unix::fs::fchown(file, Some(before.uid()), Some(before.gid()))?;
        }
        file.set_permissions(std::fs::Permissions::from_mode(before.mode() & 0o7777))?;
        file.sync_all()
    };
    settle().map_err(fail("migrated to version 3"))?;
    if new.as_file().try_lock().is_err() {
        return Err(ArchiveError::InUse { path: path.to_owned() });
    }
    let now = std::fs::metadata(path).map_err(fail("read"))?;
    if (now.dev(), now.ino(), now.len()) != (before.dev(), before.ino(), before.len()) {
        return Err(ArchiveError::Changed { path: path.to_owned() });
    }
    let file = new.persist(path).map_err(|error| fail("migrated to version 3")(error.error))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail("migrated to version 3"))?;
    Ok(file)
}
