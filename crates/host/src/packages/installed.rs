//! The packages that are kept: their list, and whether each is what was accepted.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::DIRECTORY;
use super::content::PackageContent;
use super::spec::PackageSource;
use super::tree::PackageTree;
use crate::state_file::{State, StateFile};
use crate::{Failure, Home, bounded_file};

/// Bytes of a `package.json` that is read.
const MOST_MANIFEST: u64 = 1 << 20;
/// All of them are hashed whenever a session begins.
const MOST_PACKAGES: usize = 100;

/// A package that was accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstalledPackage {
    /// What it is called.
    pub name: String,
    /// Where it is from, as [`PackageSource::parse`] reads it.
    pub source: String,
    /// The version or commit that was fetched; empty for a directory.
    #[serde(default)]
    pub resolved: String,
    /// The hash of its files.
    pub hash: String,
    /// How many files it has.
    pub files: usize,
    /// Their size.
    pub bytes: u64,
    /// Its agents were shown to the person who accepted it.
    #[serde(default)]
    pub agents: bool,
    /// Its MCP servers were.
    #[serde(default)]
    pub servers: bool,
}

/// `packages.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct PackagesFile {
    version: u32,
    #[serde(default)]
    packages: Vec<InstalledPackage>,
}

impl Default for PackagesFile {
    fn default() -> Self {
        Self { version: Self::VERSION, packages: Vec::new() }
    }
}

impl State for PackagesFile {
    const VERSION: u32 = 1;
    const RESET: &str = "forget all packages";

    fn version(&self) -> u32 {
        self.version
    }
}

/// How a package stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageState {
    /// It is what was accepted.
    Usable(PackageContent),
    /// It is not, and is not used; why.
    Unusable(String),
}

/// A package that is what was accepted.
#[derive(Debug, Clone)]
pub(crate) struct UsablePackage {
    pub(crate) name: String,
    pub(crate) root: PathBuf,
    pub(crate) content: PackageContent,
}

fn file(home: &Home) -> StateFile {
    StateFile::new(home.dir.join("packages.json"))
}

/// Where the files of a package are.
pub(super) fn root(home: &Home, hash: &str) -> PathBuf {
    home.dir.join(DIRECTORY).join(hash)
}

/// The packages that were accepted, by name.
///
/// # Errors
/// Where the list cannot be read.
pub fn installed_packages(home: &Home) -> Result<Vec<InstalledPackage>, Failure> {
    let mut packages = file(home).read::<PackagesFile>()?.packages;
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// Whether a package is what was accepted, and what it gives.
pub fn package_state(home: &Home, package: &InstalledPackage) -> PackageState {
    match content_of(home, package) {
        Ok(content) => PackageState::Usable(content),
        Err(why) => PackageState::Unusable(why),
    }
}

fn content_of(home: &Home, package: &InstalledPackage) -> Result<PackageContent, String> {
    if !is_hash(&package.hash) {
        return Err("packages.json has no hash of it".to_owned());
    }
    let root = root(home, &package.hash);
    if !root.is_dir() {
        return Err("its files are missing".to_owned());
    }
    let tree = PackageTree::read(&root)?;
    let hash = tree.hash();
    if hash != package.hash {
        let (was, is) = (&package.hash[..12], &hash[..12]);
        return Err(format!("its files changed since you accepted them (hash {is}, accepted {was})"));
    }
    let mut content = manifest_content(&tree, &root)?;
    if !package.agents {
        content.agents.clear();
    }
    content.servers = content.servers.filter(|_| package.servers);
    Ok(content)
}

/// The files of MCP servers of packages that are what was accepted, with the directories of the packages.
pub(crate) fn package_server_files(home: &Home) -> Vec<(PathBuf, PathBuf)> {
    // What is wrong with the list or a package is said where resources are read.
    let packages = installed_packages(home).unwrap_or_default();
    let found = packages.iter().filter(|one| one.servers).filter_map(|package| {
        let root = root(home, &package.hash);
        Some((root.join(content_of(home, package).ok()?.servers?), root))
    });
    found.collect()
}

/// What the files in a directory give.
pub(super) fn manifest_content(tree: &PackageTree, root: &Path) -> Result<PackageContent, String> {
    let manifest = match tree.files.iter().any(|file| file.path == "package.json") {
        true => {
            let bytes = bounded_file::read(&root.join("package.json"), MOST_MANIFEST)
                .map_err(|error| format!("its package.json: {}", error.in_words("1 MiB")))?;
            Some(String::from_utf8(bytes).map_err(|_| "its package.json is not text".to_owned())?)
        }
        false => None,
    };
    PackageContent::of(&tree.files, manifest.as_deref())
}

/// The packages that are what was accepted, and why others are not used.
pub(crate) fn usable_packages(home: &Home) -> (Vec<UsablePackage>, Vec<String>) {
    let packages = match installed_packages(home) {
        Ok(packages) => packages,
        Err(failure) => return (Vec::new(), vec![failure.message]),
    };
    let (mut usable, mut problems) = (Vec::new(), Vec::new());
    for package in packages {
        match content_of(home, &package) {
            Ok(content) => {
                let root = root(home, &package.hash);
                usable.push(UsablePackage { name: package.name, root, content });
            }
            Err(why) => problems
                .push(format!("the package {} is not used: {why}; update it, or remove it", package.name)),
        }
    }
    (usable, problems)
}

/// Where the files of packages are, whatever they are now.
pub(crate) fn package_roots(home: &Home) -> Vec<PathBuf> {
    let packages = installed_packages(home).unwrap_or_default();
    let roots = packages.iter().filter(|one| is_hash(&one.hash)).map(|one| root(home, &one.hash));
    roots.filter(|root| root.is_dir()).collect()
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Adds a package to the list, in place of another version of it.
pub(super) fn keep(home: &Home, package: InstalledPackage) -> Result<(), Failure> {
    let (mut is_full, mut old) = (false, Vec::new());
    file(home).change(|file: &mut PackagesFile| {
        old = file.packages.iter().map(|one| one.hash.clone()).collect();
        file.packages.retain(|one| one.name != package.name);
        is_full = file.packages.len() >= MOST_PACKAGES;
        if !is_full {
            file.packages.push(package);
        }
        !is_full
    })?;
    if is_full {
        return Err(Failure::request(format!(
            "there are {MOST_PACKAGES} packages, which is the most; remove some"
        )));
    }
    forget_files(home, &old);
    Ok(())
}

/// Removes a package. `None` where there is none of the name or source.
///
/// # Errors
/// Where the list cannot be written.
pub fn remove_package(home: &Home, name: &str) -> Result<Option<InstalledPackage>, Failure> {
    let mut removed = None;
    file(home).change(|file: &mut PackagesFile| {
        let at = file.packages.iter().position(|one| one.name == name || one.source == name);
        removed = at.map(|at| file.packages.remove(at));
        removed.is_some()
    })?;
    if let Some(package) = &removed {
        forget_files(home, std::slice::from_ref(&package.hash));
    }
    Ok(removed)
}

/// Removes files that no package has any more. What is left behind takes room and is not used.
fn forget_files(home: &Home, hashes: &[String]) {
    let Ok(kept) = installed_packages(home) else { return };
    for hash in hashes.iter().filter(|hash| is_hash(hash)) {
        if kept.iter().all(|one| one.hash != *hash)
            && let Err(error) = std::fs::remove_dir_all(root(home, hash))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            home.warn(format!("{} could not be removed: {error}", root(home, hash).display()));
        }
    }
}

/// The package of this name or source.
pub(super) fn find(
    home: &Home,
    name: &str,
    source: &PackageSource,
) -> Result<Option<InstalledPackage>, Failure> {
    let identity = source.identity();
    let is_same = |one: &InstalledPackage| {
        PackageSource::parse(&one.source, Path::new("/"))
            .map_or(one.source.starts_with(&identity), |known| known.identity() == identity)
    };
    let Some(known) = installed_packages(home)?.into_iter().find(|one| one.name == name) else {
        return Ok(None);
    };
    if is_same(&known) {
        return Ok(Some(known));
    }
    Err(Failure::request(format!(
        "a package {name} is there already, from {}; remove it first",
        known.source
    )))
}
