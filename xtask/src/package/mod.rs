//! Packages that carry the static binaries, their checksums and a manifest. The same binaries make the same bytes.

mod npm;
mod wheel;
mod zip;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::elf::Elf;
use crate::platform::{PLATFORMS, Platform, make_executable};
use crate::repo;

const DESCRIPTION: &str = "A coding agent that keeps every step, so that you can go back to any of them";
const README: &str = include_str!("../../data/package/README.md");
/// Levels of the compression go from 0 to 10; above 9 is for nothing that is made on each run of CI.
const LEVEL: u8 = 9;

/// A file of a package.
struct PackedFile {
    path: String,
    bytes: Vec<u8>,
    mode: u32,
}

impl PackedFile {
    fn text(path: &str, text: impl AsRef<str>) -> Self {
        Self { path: path.to_owned(), bytes: text.as_ref().as_bytes().to_vec(), mode: 0o644 }
    }

    fn program(path: &str, bytes: &[u8]) -> Self {
        Self { path: path.to_owned(), bytes: bytes.to_vec(), mode: 0o755 }
    }
}

/// What packages say of the project.
struct Project {
    version: String,
    license: String,
    repository: String,
    /// Names and texts.
    licences: Vec<(&'static str, String)>,
}

impl Project {
    fn read(root: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
        let manifest: toml::Value = toml::from_str(&text).context("Cargo.toml is not TOML")?;
        let field = |name: &str| {
            let value = manifest.get("workspace").and_then(|it| it.get("package")?.get(name)?.as_str());
            value.map(str::to_owned).with_context(|| format!("Cargo.toml has no workspace.package.{name}"))
        };
        let licences = ["LICENSE-APACHE", "LICENSE-MIT"].map(|name| {
            let text = std::fs::read_to_string(root.join(name));
            text.map(|text| (name, text)).with_context(|| format!("cannot read {name}"))
        });
        Ok(Self {
            version: field("version")?,
            license: field("license")?,
            repository: field("repository")?,
            licences: licences.into_iter().collect::<Result<_>>()?,
        })
    }
}

/// A binary to be packed.
struct Binary {
    platform: &'static Platform,
    bytes: Vec<u8>,
}

impl Binary {
    /// Reads a binary, whose header says for which machine it is.
    fn read(file: &Path, dynamic: bool) -> Result<Self> {
        let bytes = std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let of_machine = |platform: &&Platform| Elf::read(&bytes, platform.machine).is_ok();
        let platform = PLATFORMS.iter().find(of_machine).with_context(|| {
            let known = PLATFORMS.each_ref().map(|platform| platform.target).join(", ");
            format!("{} is no binary of {known}", file.display())
        })?;
        let needs = Elf::read(&bytes, platform.machine)?.needs()?;
        ensure!(
            dynamic || needs.is_empty(),
            "{} is not static: it {}; `--dynamic` packs it all the same, to try the packages",
            file.display(),
            needs.join(" and ")
        );
        Ok(Self { platform, bytes })
    }
}

struct Arguments {
    binaries: Vec<PathBuf>,
    out: Option<PathBuf>,
    dynamic: bool,
}

/// `cargo xtask package [--binary FILE].. [--out DIR] [--dynamic]`: the packages of what is in `target/dist/`, or of
/// these binaries.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let Arguments { mut binaries, out, dynamic } = parse(arguments)?;
    let root = repo::root()?;
    let folder = root.join("target").join("dist");
    let commit = if binaries.is_empty() {
        let (found, commit) = built(&folder, None)?;
        binaries = found;
        commit
    } else {
        commit(&root)
    };
    make(&root, &binaries, &out.unwrap_or(folder), commit.as_deref(), dynamic)?;
    Ok(true)
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let mut parsed = Arguments { binaries: Vec::new(), out: None, dynamic: false };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut path = || rest.next().map(PathBuf::from).with_context(|| format!("{argument} needs a path"));
        match argument.as_str() {
            "--binary" => parsed.binaries.push(path()?),
            "--out" => parsed.out = Some(path()?),
            "--dynamic" => parsed.dynamic = true,
            other => {
                bail!("package takes --binary FILE (repeatable), --out DIR and --dynamic, not {other:?}")
            }
        }
    }
    Ok(parsed)
}

/// Packs the binaries of the commit that the binary of `target` is of.
///
/// # Errors
/// When a package cannot be made.
pub(crate) fn of_build(root: &Path, folder: &Path, target: &str) -> Result<()> {
    let (binaries, commit) = built(folder, Some(target))?;
    make(root, &binaries, folder, commit.as_deref(), false)
}

/// The name that a binary has in the folder of releases.
pub(crate) fn binary_name(target: &str) -> String {
    format!("quipu-{}-{target}", env!("CARGO_PKG_VERSION"))
}

/// Writes down of which commit a binary is, for who packs it.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn note_commit(binary: &Path, commit: Option<&str>) -> Result<()> {
    let file = commit_file(binary);
    std::fs::write(&file, commit.unwrap_or_default())
        .with_context(|| format!("cannot write {}", file.display()))
}

fn commit_file(binary: &Path) -> PathBuf {
    let name = binary.file_name().unwrap_or_default().to_string_lossy();
    binary.with_file_name(format!("{name}.commit"))
}

/// The commit of the checkout; with `, changed` where files differ from it. None outside of a repository.
pub(crate) fn commit(root: &Path) -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-c", "safe.directory=*"]).args(arguments).current_dir(root).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}, changed") })
}

/// The binaries that were built into the folder, all of one commit: that of `target`'s, or that of all.
fn built(folder: &Path, target: Option<&str>) -> Result<(Vec<PathBuf>, Option<String>)> {
    let files = PLATFORMS.iter().map(|platform| folder.join(binary_name(platform.target)));
    let there: Vec<(PathBuf, String)> = files
        .filter(|file| file.is_file())
        .map(|file| (file.clone(), std::fs::read_to_string(commit_file(&file)).unwrap_or_default()))
        .collect();
    let wanted = match target {
        Some(target) => there.iter().find(|(file, _)| file.ends_with(binary_name(target))),
        None => there.first(),
    };
    let (_, commit) = wanted.with_context(|| {
        format!(
            "there is no binary in {}: `cargo xtask dist` builds one, --binary FILE names one",
            folder.display()
        )
    })?;
    if target.is_none() && there.iter().any(|(_, other)| other != commit) {
        bail!(
            "the binaries in {} are of different commits; build them of one: cargo xtask dist TARGET",
            folder.display()
        );
    }
    let files = there.iter().filter(|(_, other)| other == commit).map(|(file, _)| file.clone()).collect();
    Ok((files, Some(commit.clone()).filter(|commit| !commit.is_empty())))
}

/// Writes the packages of the binaries, their checksums and the manifest.
fn make(root: &Path, files: &[PathBuf], out: &Path, commit: Option<&str>, dynamic: bool) -> Result<()> {
    let project = Project::read(root)?;
    let mut binaries: Vec<Binary> =
        files.iter().map(|file| Binary::read(file, dynamic)).collect::<Result<_>>()?;
    binaries.sort_by_key(|binary| PLATFORMS.iter().position(|platform| platform == binary.platform));
    if let Some([one, _]) = binaries.array_windows().find(|[one, next]| one.platform == next.platform) {
        bail!("two binaries are for {}; name one", one.platform.target);
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let targets: Vec<&str> = binaries.iter().map(|binary| binary.platform.target).collect();
    let mut rows = Vec::new();
    for binary in &binaries {
        let target = binary.platform.target;
        rows.push(keep(out, "binary", &binary_name(target), &binary.bytes, &[target])?);
        let (name, bytes) = wheel::wheel(&project, binary)?;
        rows.push(keep(out, "wheel", &name, &bytes, &[target])?);
    }
    let (name, bytes) = npm::tarball(&project, &binaries)?;
    rows.push(keep(out, "npm", &name, &bytes, &targets)?);

    let manifest = json!({ "name": "quipu", "version": project.version, "commit": commit, "files": rows });
    let manifest = format!("{manifest:#}\n");
    rows.push(keep(out, "manifest", "manifest.json", manifest.as_bytes(), &[])?);
    let sums: String = rows
        .iter()
        .filter_map(|row| Some(format!("{}  {}\n", row["sha256"].as_str()?, row["file"].as_str()?)))
        .collect();
    write(&out.join("SHA256SUMS"), sums.as_bytes())?;
    for row in &rows {
        println!(
            "package: {}, {} bytes",
            out.join(row["file"].as_str().unwrap_or_default()).display(),
            row["bytes"]
        );
    }
    Ok(())
}

/// Writes a file of the release; its row of the manifest.
fn keep(out: &Path, kind: &str, name: &str, bytes: &[u8], targets: &[&str]) -> Result<Value> {
    let file = out.join(name);
    // Who runs a binary that is the same already keeps it.
    if std::fs::read(&file).ok().as_deref() != Some(bytes) {
        write(&file, bytes)?;
    }
    if kind == "binary" {
        make_executable(&file)?;
    }
    let sha256: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(json!({ "file": name, "kind": kind, "targets": targets, "bytes": bytes.len(), "sha256": sha256 }))
}

/// Replaces a file as a whole.
fn write(file: &Path, bytes: &[u8]) -> Result<()> {
    let mut fresh = file.as_os_str().to_owned();
    fresh.push(".new");
    let fresh = PathBuf::from(fresh);
    std::fs::write(&fresh, bytes).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, file).with_context(|| format!("cannot write {}", file.display()))
}

/// The bytes, deflated. By this crate itself: what `flate2` stands on is another from build to build, and other bytes come of
/// it.
fn deflate(bytes: &[u8]) -> Vec<u8> {
    miniz_oxide::deflate::compress_to_vec(bytes, LEVEL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::tests::elf;

    /// A folder with a static binary of each machine, under these names.
    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (platform, name) in PLATFORMS.iter().zip(names) {
            let mut bytes = elf(&[(1, name.as_bytes())]);
            bytes[18..20].copy_from_slice(&platform.machine.to_le_bytes());
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn packages_of_both_machines_are_the_same_bytes_each_time() {
        let from = folder(&["one", "two"]);
        // The order in which binaries are named is no part of what is made.
        let files = [from.path().join("two"), from.path().join("one")];
        let reversed = [files[1].clone(), files[0].clone()];
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = repo::root().unwrap();
        make(&root, &files, first.path(), Some("abc"), false).unwrap();
        make(&root, &reversed, second.path(), Some("abc"), false).unwrap();
        let version = env!("CARGO_PKG_VERSION");
        let made = names(first.path());
        let wheel = |machine: &str| {
            format!(
                "quipu_agent-{version}-py3-none-manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}.whl"
            )
        };
        let mut wanted = vec![
            "SHA256SUMS".to_owned(),
            "manifest.json".to_owned(),
            binary_name("x86_64-unknown-linux-musl"),
            binary_name("aarch64-unknown-linux-musl"),
            format!("quipu-agent-{version}.tgz"),
            wheel("x86_64"),
            wheel("aarch64"),
        ];
        wanted.sort();
        assert_eq!(made, wanted);
        for name in &made {
            let read = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
            assert!(read(first.path()) == read(second.path()), "{name} differs");
        }
        let manifest = std::fs::read(first.path().join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert_eq!(manifest["commit"], "abc");
        let sums = std::fs::read_to_string(first.path().join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), made.len() - 1, "{sums}");
        let rows = manifest["files"].as_array().unwrap();
        assert_eq!(rows.len(), made.len() - 2);
        for row in rows {
            assert!(sums.contains(&format!(
                "{}  {}\n",
                row["sha256"].as_str().unwrap(),
                row["file"].as_str().unwrap()
            )));
        }
    }

    #[test]
    fn binaries_of_two_commits_are_not_packed_together() {
        let targets = PLATFORMS.each_ref().map(|platform| binary_name(platform.target));
        let from = folder(&targets.each_ref().map(String::as_str));
        for (name, commit) in targets.iter().zip(["abc", "def"]) {
            std::fs::write(commit_file(&from.path().join(name)), commit).unwrap();
        }
        let error = built(from.path(), None).unwrap_err().to_string();
        assert!(error.contains("different commits"), "{error}");
        // Who built one of them packs that one.
        let (files, commit) = built(from.path(), Some(PLATFORMS[1].target)).unwrap();
        assert_eq!((files, commit.as_deref()), (vec![from.path().join(&targets[1])], Some("def")));
    }

    #[test]
    fn other_files_are_not_packed() {
        let from = tempfile::tempdir().unwrap();
        let (script, dynamic) = (from.path().join("script"), from.path().join("dynamic"));
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        std::fs::write(&dynamic, elf(&[(3, b"/lib/loader\0")])).unwrap();
        let error = |file: &Path| Binary::read(file, false).err().unwrap().to_string();
        assert!(error(&script).contains("is no binary of"));
        assert!(error(&dynamic).contains("wants the loader"));
        assert!(Binary::read(&dynamic, true).is_ok());
    }
}
