//! Where a git repository stands: its head and its refs, read from its files without running git.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::path::Path;
use std::sync::Arc;

use super::index::git_directory;
use crate::FileStamp;
use crate::open::read_small;

/// Refs that are read from files of their own.
const LOOSE: usize = 2_000;
/// Directories inside each other in which they are.
const DEPTH: usize = 16;
/// Bytes of a ref, and of the file of packed ones.
const REF: u64 = 4_096;
const PACKED: u64 = 16 << 20;

/// The head and the refs of a repository, but for those of remotes. Empty where there is none.
#[derive(Debug, Clone, Default)]
pub struct GitRefs {
    /// Each file that was read, and what it says.
    files: BTreeMap<String, (FileStamp, String)>,
    packed: Option<(FileStamp, Arc<BTreeMap<String, String>>)>,
}

impl GitRefs {
    /// Those of the repository around `root`. What did not change since the look before is not read again.
    pub fn of(root: &Path, before: Option<&Self>) -> Self {
        let top = root.ancestors().find(|dir| dir.join(".git").symlink_metadata().is_ok());
        let Some(directory) = top.and_then(git_directory) else { return Self::default() };
        let common = read_small(&directory.join("commondir"), REF);
        let common = common.map_or_else(|| directory.clone(), |common| directory.join(common.trim_end()));
        let mut found = Self::default();
        found.read(&directory.join("HEAD"), "HEAD".into(), before);
        // All of them are in tables, of which this names the newest.
        found.read(&common.join("reftable/tables.list"), "reftable".into(), before);
        let mut left = vec![(common.join("refs"), "refs".to_owned(), 0)];
        while let Some((directory, name, depth)) = left.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else { continue };
            for entry in entries.flatten() {
                let (Ok(kind), Ok(own)) = (entry.file_type(), entry.file_name().into_string()) else {
                    continue;
                };
                let name = format!("{name}/{own}");
                if kind.is_dir() && depth < DEPTH && name != "refs/remotes" {
                    left.push((entry.path(), name, depth + 1));
                } else if kind.is_file() && !own.ends_with(".lock") && found.files.len() < LOOSE {
                    found.read(&entry.path(), name, before);
                }
            }
        }
        found.packed = packed(&common.join("packed-refs"), before);
        found
    }

    fn read(&mut self, path: &Path, name: String, before: Option<&Self>) {
        let Some(stamp) = stamp_of(path) else { return };
        let known = before.and_then(|before| before.files.get(&name)).filter(|(at, _)| *at == stamp);
        let text = match known {
            Some((_, text)) => Some(text.clone()),
            None => read_small(path, REF).and_then(|text| said(&text, &name)),
        };
        if let Some(text) = text {
            self.files.insert(name, (stamp, text));
        }
    }

    /// What a name says: an object, or `ref: ` and another name.
    pub fn get(&self, name: &str) -> Option<&str> {
        let loose = self.files.get(name).map(|(_, text)| text.as_str());
        loose.or_else(|| self.packed.as_ref()?.1.get(name).map(String::as_str))
    }

    /// The names that say something else now, with what they said and say.
    pub fn changed<'a>(&'a self, after: &'a Self) -> BTreeMap<&'a str, (Option<&'a str>, Option<&'a str>)> {
        let same_pack = match (&self.packed, &after.packed) {
            (Some((_, one)), Some((_, other))) => Arc::ptr_eq(one, other),
            (None, None) => true,
            (_, _) => false,
        };
        let packed = |refs: &'a Self| {
            let names = refs.packed.iter().filter(move |_| !same_pack).flat_map(|(_, packed)| packed.keys());
            refs.files.keys().chain(names).map(String::as_str)
        };
        let different = |name: &'a str| {
            let (old, new) = (self.get(name), after.get(name));
            (old != new).then_some((name, (old, new)))
        };
        packed(self).chain(packed(after)).filter_map(different).collect()
    }
}

/// What a file of git's says, where it is what such a file may say.
fn said(text: &str, name: &str) -> Option<String> {
    let text = text.trim();
    let is_id = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_name = text.len() < 300 && text.starts_with("ref: ") && !text.contains(char::is_control);
    match name {
        "reftable" => {
            let mut all = DefaultHasher::new();
            text.hash(&mut all);
            Some(format!("{:016x}", all.finish()))
        }
        _ if is_id || is_name => Some(text.to_owned()),
        _ => None,
    }
}

fn stamp_of(path: &Path) -> Option<FileStamp> {
    let found = path.symlink_metadata().ok().filter(std::fs::Metadata::is_file)?;
    Some(FileStamp::from(&found))
}

fn packed(path: &Path, before: Option<&GitRefs>) -> Option<(FileStamp, Arc<BTreeMap<String, String>>)> {
    let stamp = stamp_of(path)?;
    if let Some((at, known)) = before.and_then(|before| before.packed.as_ref())
        && *at == stamp
    {
        return Some((stamp, known.clone()));
    }
    let text = read_small(path, PACKED)?;
    let refs = text.lines().filter(|line| !line.starts_with(['#', '^'])).filter_map(|line| {
        let (id, name) = line.split_once(' ')?;
        (!name.starts_with("refs/remotes/")).then(|| (name.to_owned(), id.to_owned()))
    });
    let refs: BTreeMap<String, String> = refs.collect();
    // The same names in a file that was written anew are the same.
    let same = before.and_then(|before| before.packed.as_ref()).filter(|(_, known)| **known == refs);
    Some((stamp, same.map_or_else(|| Arc::new(refs), |(_, known)| known.clone())))
}
