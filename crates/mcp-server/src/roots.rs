//! The directories that a client names as its roots.

use std::path::{Path, PathBuf};

use quipu_transcript::one_line;

/// Roots at most; more are left out, which is told.
const MOST: usize = 32;
/// Characters of an address that messages repeat.
const SHOWN: usize = 200;

/// What a client's roots come to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Roots {
    /// Directories without links.
    pub(crate) directories: Vec<PathBuf>,
    /// Why others are not used, a line each.
    pub(crate) refused: Vec<String>,
}

/// Reads the addresses of roots. A root that is a link out of the directory in which it lies is not used: a project could carry
/// one, and lead to the sessions of another project.
pub(crate) fn roots<'a>(addresses: impl IntoIterator<Item = &'a str>, directory: &Path) -> Roots {
    let mut roots = Roots::default();
    for (at, address) in addresses.into_iter().enumerate() {
        if at >= MOST {
            roots.refused.push(format!("only the first {MOST} roots of the client are used"));
            break;
        }
        match root(address, directory) {
            Ok(found) if roots.directories.contains(&found) => {}
            Ok(found) => roots.directories.push(found),
            Err(why) => {
                roots.refused.push(format!("the root {} is not used: {why}", one_line(address, SHOWN)));
            }
        }
    }
    roots
}

fn root(address: &str, directory: &Path) -> Result<PathBuf, &'static str> {
    let path = local_path(address).ok_or("it is no file:// address of an absolute path on this machine")?;
    let found = path.canonicalize().map_err(|_| "there is no such directory")?;
    if !found.is_dir() {
        return Err("it is not a directory");
    }
    let above = path.parent().map(Path::canonicalize);
    let leaves = above.and_then(Result::ok).is_some_and(|above| !found.starts_with(above));
    if leaves || leaves_a_repository(&path) || (path.starts_with(directory) && !found.starts_with(directory))
    {
        return Err("it is a link that leads out of its directory; name the directory that it leads to");
    }
    Ok(found)
}

/// Whether a link on the way lies in a repository and leads out of it: files of a repository say nothing of other directories.
fn leaves_a_repository(path: &Path) -> bool {
    let mut real = PathBuf::new();
    for part in path.components() {
        let next = real.join(part);
        if !next.is_symlink() {
            real = next;
            continue;
        }
        let Ok(target) = next.canonicalize() else { return true };
        let repository = real.ancestors().find(|directory| directory.join(".git").exists());
        if repository.is_some_and(|repository| !target.starts_with(repository)) {
            return true;
        }
        real = target;
    }
    false
}

/// The path of a `file:` address without dots.
fn local_path(address: &str) -> Option<PathBuf> {
    let rest = address.strip_prefix("file://")?;
    let rest = rest.strip_prefix("localhost").unwrap_or(rest);
    let bytes = decoded(rest.split(['?', '#']).next()?)?;
    let path = PathBuf::from(String::from_utf8(bytes).ok()?);
    let is_plain = path.components().all(|part| !matches!(part, std::path::Component::ParentDir));
    (path.is_absolute() && is_plain).then_some(path)
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits = [bytes.next()?, bytes.next()?];
        let value = u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?;
        if value == 0 {
            return None;
        }
        out.push(value);
    }
    Some(out)
}
