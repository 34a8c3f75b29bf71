//! Files of rules that commands of a model made: they count once a person accepted them.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_store::Graph;

use crate::permissions::{PermissionItem, Record};
use crate::{Advice, Failure, Home};

/// Accepts a file of rules, as it is now, in a directory. Gives its true path.
///
/// # Errors
/// When it cannot be read, or the permissions cannot be written.
pub fn accept_rules(record: &Record, file: &Path) -> Result<PathBuf, Failure> {
    let failed = |error: std::io::Error| Failure::request(format!("{}: {error}", file.display()));
    let path = file.canonicalize().map_err(failed)?;
    let content = hash_of(&path).map_err(failed)?;
    let Some(text) = path.to_str() else {
        return Err(Failure::request(format!("{}: its name is not text (UTF-8)", path.display())));
    };
    record.add(PermissionItem::Rules { path: text.to_owned(), content })?;
    Ok(path)
}

/// The most of a file of rules that is looked at.
const RULES: u64 = 64 << 20;

fn bytes_of(path: &Path) -> std::io::Result<Vec<u8>> {
    let file = quipu_workspace::open_for_reading(path).map_err(std::io::Error::other)?.0;
    let mut bytes = Vec::new();
    file.take(RULES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn hash_of(path: &Path) -> std::io::Result<String> {
    Ok(digest(&bytes_of(path)?))
}

fn digest(bytes: &[u8]) -> String {
    quipu::history::content_of(bytes).to_string()
}

/// Rules without the files that commands of a model made and nobody accepted, which are told.
pub(crate) async fn accepted_rules(
    home: &Home,
    store: &dyn Graph,
    cwd: &Path,
    rules: Vec<quipu::Rules>,
) -> Result<Vec<quipu::Rules>, Failure> {
    let mut kept = Vec::new();
    for one in rules {
        // The user's own lie where no command may write.
        if one.path.starts_with(&home.dir) {
            kept.push(one);
            continue;
        }
        let bytes = bytes_of(&one.path).unwrap_or_default();
        let Some(session) = quipu::history::made_by_command(store, &one.path, &bytes).await? else {
            kept.push(one);
            continue;
        };
        let path = one.path.canonicalize().unwrap_or_else(|_| one.path.clone());
        let content = digest(&bytes);
        let is_accepted = Record::of(home, cwd).project()?.entries.iter().any(|entry| {
            matches!(&entry.what, PermissionItem::Rules { path: known, content: was } if Path::new(known) == path && *was == content)
        });
        if is_accepted {
            kept.push(one);
        } else {
            let text =
                format!("{} was created by a command of session {session} and is ignored", path.display());
            home.warn_with(text, Advice::AcceptRules(path));
        }
    }
    Ok(kept)
}
