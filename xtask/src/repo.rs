//! The checkout as a value: every text file that git would keep, by its path from the root.

use crate::rust_source::RustSource;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files above this many bytes are recordings or tables that no rule reads.
const LARGEST_FILE: u64 = 4 << 20;

/// What a file is for; the rules differ by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Code of a crate.
    Source,
    /// Anything only tests use: `tests/`, `benches/`, modules behind `cfg(test)`, fixtures.
    Test,
    /// A compiled example of a crate.
    Example,
    /// `build.rs`, whose standard output is its interface.
    BuildScript,
    /// Tables: a `data` folder, or a Rust file named `..table.rs` or `..tables.rs`.
    Data,
    /// Prose, manifests, configuration.
    Other,
}

/// One Rust file, scanned once for all rules.
#[derive(Debug)]
pub(crate) struct RustFile {
    pub(crate) role: Role,
    pub(crate) source: RustSource,
}

impl RustFile {
    /// True when the line (from 1) is compiled for tests only.
    pub(crate) fn is_test(&self, line: usize) -> bool {
        self.role == Role::Test || self.source.in_test_region(line)
    }
}

/// The text files of the checkout; paths use `/` and start at the root.
#[derive(Debug, Default)]
pub(crate) struct Repo {
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) rust: BTreeMap<String, RustFile>,
    /// Every path that git keeps, including files that are not text.
    pub(crate) paths: BTreeSet<String>,
}

/// The root of the checkout: xtask's own folder is one below it.
pub(crate) fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).context("xtask has no parent folder")
}

impl Repo {
    /// Reads what git keeps or would add: ignored files are no part of the project.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let listing = Command::new("git")
            // A clone may belong to another user than the one who checks it.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot run git to list the files; tidy needs it on the PATH")?;
        if !listing.status.success() {
            bail!("git ls-files failed: {}", String::from_utf8_lossy(&listing.stderr).trim());
        }
        let mut files = Vec::new();
        let mut others = Vec::new();
        for path in String::from_utf8_lossy(&listing.stdout).split('\0').filter(|path| !path.is_empty()) {
            let full = root.join(path);
            // Deleted but not yet committed, or a link: neither has a text of its own.
            let Ok(meta) = std::fs::symlink_metadata(&full) else { continue };
            if meta.is_file() && meta.len() <= LARGEST_FILE {
                let bytes = std::fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                match String::from_utf8(bytes) {
                    Ok(text) => files.push((path.to_owned(), text)),
                    Err(_) => others.push(path.to_owned()),
                }
            } else {
                others.push(path.to_owned());
            }
        }
        let mut repo = Self::from_files(files);
        repo.paths.extend(others);
        Ok(repo)
    }

    /// Builds the same value from texts in memory, as the tests of the rules do.
    pub(crate) fn from_files(files: impl IntoIterator<Item = (String, String)>) -> Self {
        let files: BTreeMap<String, String> = files.into_iter().collect();
        let mut sources = BTreeMap::new();
        let mut test_modules = Vec::new();
        for (path, text) in files.iter().filter(|(path, _)| path.ends_with(".rs")) {
            let source = RustSource::scan(text);
            test_modules.extend(source.test_modules.iter().map(|name| module_path(path, name)));
            sources.insert(path.clone(), source);
        }
        let rust = sources
            .into_iter()
            .map(|(path, source)| {
                let behind_cfg_test = test_modules
                    .iter()
                    .any(|module| path == format!("{module}.rs") || path.starts_with(&format!("{module}/")));
                let role = if behind_cfg_test { Role::Test } else { role_of(&path) };
                (path, RustFile { role, source })
            })
            .collect();
        let paths = files.keys().cloned().collect();
        Self { files, rust, paths }
    }

    /// True when the path names a file or a folder that holds one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        let folder = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(folder.clone()..).next().is_some_and(|next| next.starts_with(&folder))
    }

    /// The role of any file, Rust or not.
    pub(crate) fn role(&self, path: &str) -> Role {
        self.rust.get(path).map_or_else(|| role_of(path), |file| file.role)
    }

    /// Names of the folders under `crates/` that hold a manifest.
    pub(crate) fn crates(&self) -> Vec<&str> {
        self.paths
            .iter()
            .filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .collect()
    }
}

/// The folder name of the crate that a path belongs to: `store`, `xtask`; none for files of the whole project.
pub(crate) fn crate_of(path: &str) -> Option<&str> {
    if path.starts_with("xtask/") {
        return Some("xtask");
    }
    path.strip_prefix("crates/")?.split_once('/').map(|(name, _)| name)
}

/// Where the file of `mod name;` is looked for, without its `.rs` or `/mod.rs`.
fn module_path(path: &str, name: &str) -> String {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    match file {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{folder}/{name}"),
        file => format!("{folder}/{}/{name}", file.trim_end_matches(".rs")),
    }
}

fn role_of(path: &str) -> Role {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    let has = |wanted: &[&str]| folders.split('/').any(|folder| wanted.contains(&folder));
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    if has(&["tests", "benches", "fixtures", "snapshots", "testdata"])
        || stem == "tests"
        || stem.ends_with("_tests")
    {
        Role::Test
    } else if has(&["data"])
        || (path.ends_with(".rs") && (stem.ends_with("table") || stem.ends_with("tables")))
    {
        Role::Data
    } else if has(&["examples"]) {
        Role::Example
    } else if file == "build.rs" {
        Role::BuildScript
    } else if ["rs", "js", "mjs", "py", "sh"].iter().any(|extension| file.ends_with(&format!(".{extension}")))
    {
        Role::Source
    } else {
        Role::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_what_it_is_for() {
        let repo = Repo::from_files(
            [
                ("crates/a/src/lib.rs", "#[cfg(test)]\nmod laws;\nmod real;\n"),
                ("crates/a/src/laws.rs", ""),
                ("crates/a/src/laws/more.rs", ""),
                ("crates/a/src/real.rs", "#[cfg(test)] mod checks;"),
                ("crates/a/src/real/checks.rs", ""),
                ("crates/a/src/price_table.rs", ""),
                ("crates/a/src/data/rows.rs", ""),
                ("crates/a/tests/it.rs", ""),
                ("crates/a/tests/data/page.html", ""),
                ("crates/a/examples/one.rs", ""),
                ("crates/a/build.rs", ""),
                ("crates/a/Cargo.toml", ""),
            ]
            .map(|(path, text)| (path.to_owned(), text.to_owned())),
        );
        let roles: Vec<(&str, Role)> =
            repo.paths.iter().map(|path| (path.as_str(), repo.role(path))).collect();
        assert_eq!(
            roles,
            [
                ("crates/a/Cargo.toml", Role::Other),
                ("crates/a/build.rs", Role::BuildScript),
                ("crates/a/examples/one.rs", Role::Example),
                ("crates/a/src/data/rows.rs", Role::Data),
                ("crates/a/src/laws.rs", Role::Test),
                ("crates/a/src/laws/more.rs", Role::Test),
                ("crates/a/src/lib.rs", Role::Source),
                ("crates/a/src/price_table.rs", Role::Data),
                ("crates/a/src/real.rs", Role::Source),
                ("crates/a/src/real/checks.rs", Role::Test),
                ("crates/a/tests/data/page.html", Role::Test),
                ("crates/a/tests/it.rs", Role::Test),
            ]
        );
        assert_eq!(repo.crates(), ["a"]);
        assert!(repo.exists("crates/a/src/") && repo.exists("crates") && !repo.exists("crates/a/sr"));
    }
}
