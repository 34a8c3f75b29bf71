//! A package that was fetched and that nobody has accepted yet.

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use super::content::PackageContent;
use super::installed::{InstalledPackage, find, keep, manifest_content, root};
use super::npm::NpmConfig;
use super::spec::PackageSource;
use super::tree::{PackageFile, PackageTree, TreeWriter};
use super::{DIRECTORY, git, npm};
use crate::{Failure, Home, env};

/// A package that was fetched: what it has, for a person who decides. Dropped: its files are gone.
#[derive(Debug)]
pub struct PreparedPackage {
    /// What it is called.
    pub name: String,
    /// Where it is from.
    pub source: PackageSource,
    /// The version or commit; empty for a directory.
    pub resolved: String,
    /// The hash of its files, by which it is pinned.
    pub hash: String,
    /// Its files.
    pub files: Vec<PackageFile>,
    /// Their size.
    pub bytes: u64,
    /// What it gives.
    pub content: PackageContent,
    /// What it has that is no file and was left out.
    pub left_out: Vec<String>,
    /// The package that it would replace.
    pub replaces: Option<InstalledPackage>,
    work: tempfile::TempDir,
}

/// How the files of a package differ from those that were accepted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PackageChanges {
    /// New paths.
    pub added: Vec<String>,
    /// Paths whose content or mode is another.
    pub changed: Vec<String>,
    /// Paths that are gone.
    pub removed: Vec<String>,
}

/// Fetches a package, without using anything of it.
///
/// # Errors
/// Where it cannot be had, is larger than the limits, has files that no package may have, or nothing that Quipu uses.
pub async fn prepare_package(home: &Home, source: PackageSource) -> Result<PreparedPackage, Failure> {
    let name = source.name();
    if name.is_empty() || name.len() > 214 {
        return Err(Failure::request(format!("{source} has no name that a package can have")));
    }
    let replaces = find(home, &name, &source)?;
    let directory = home.dir.join(DIRECTORY);
    let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", directory.display()));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed)?;
    let work = tempfile::Builder::new().prefix(".new-").tempdir_in(&directory).map_err(failed)?;
    let files = work.path().join("files");
    std::fs::DirBuilder::new().mode(0o700).create(&files).map_err(failed)?;
    let mut writer = TreeWriter::new(&files);
    let fetched = fetch(&source, work.path(), &mut writer).await;
    let resolved = fetched.map_err(|why| Failure::failed(format!("{source} cannot be used: {why}")))?;
    let unusable = |why: String| Failure::failed(format!("{source} cannot be used: {why}"));
    let tree = PackageTree::read(&files).map_err(unusable)?;
    let content = manifest_content(&tree, &files).map_err(unusable)?;
    if content.is_empty() {
        return Err(Failure::request(format!(
            "{source} has no skills, templates, agents or MCP servers, so there is nothing to use"
        )));
    }
    Ok(PreparedPackage {
        name,
        resolved,
        hash: tree.hash(),
        files: tree.files,
        bytes: tree.bytes,
        content,
        left_out: writer.left_out,
        replaces,
        source,
        work,
    })
}

async fn fetch(source: &PackageSource, work: &Path, writer: &mut TreeWriter) -> Result<String, String> {
    match source {
        PackageSource::Npm { name, version } => {
            let config = NpmConfig::of_user(&env)?;
            npm::fetch(&config, name, version.as_deref(), writer).await
        }
        PackageSource::Git { address, reference } => {
            git::fetch(address, reference.as_deref(), work, writer).await
        }
        PackageSource::Directory(path) => writer.copy(path).map(|()| String::new()),
    }
}

impl PreparedPackage {
    /// Where its files are meanwhile.
    pub fn directory(&self) -> std::path::PathBuf {
        self.work.path().join("files")
    }

    /// How its files differ from those of the package that it would replace.
    pub fn changes(&self, home: &Home) -> PackageChanges {
        let old = self.replaces.as_ref().and_then(|old| PackageTree::read(&root(home, &old.hash)).ok());
        let old: BTreeMap<String, PackageFile> =
            old.into_iter().flat_map(|tree| tree.files).map(|file| (file.path.clone(), file)).collect();
        let mut changes = PackageChanges::default();
        for file in &self.files {
            match old.get(&file.path) {
                None => changes.added.push(file.path.clone()),
                Some(known) if known != file => changes.changed.push(file.path.clone()),
                Some(_) => {}
            }
        }
        let is_gone = |path: &&String| self.files.iter().all(|file| file.path != **path);
        changes.removed = old.keys().filter(is_gone).cloned().collect();
        changes
    }

    /// Keeps it from now on, as it was shown.
    ///
    /// # Errors
    /// Where its files or the list cannot be written.
    pub fn accept(self, home: &Home) -> Result<InstalledPackage, Failure> {
        let package = InstalledPackage {
            name: self.name.clone(),
            source: self.source.to_string(),
            resolved: self.resolved.clone(),
            hash: self.hash.clone(),
            files: self.files.len(),
            bytes: self.bytes,
            agents: !self.content.agents.is_empty(),
            servers: self.content.servers.is_some(),
        };
        let target = root(home, &self.hash);
        let failed = |error: std::io::Error| Failure::failed(format!("{}: {error}", target.display()));
        // What lies there may not be what was accepted before.
        match std::fs::remove_dir_all(&target) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        std::fs::rename(self.directory(), &target).map_err(failed)?;
        keep(home, package.clone())?;
        Ok(package)
    }
}
