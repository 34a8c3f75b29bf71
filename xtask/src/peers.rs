//! Other agents, and clients of ours, installed from npm and PyPI at fixed versions: for the benchmarks to measure beside ours,
//! and for tests that read the session files which they write or are driven by them.
//!
//! `xtask/data/peers/package.json` names the packages. Nothing is installed outside the given directory, and none
//! of the programs is started here but to say its version.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::repo;

const MANIFEST: &str = include_str!("../data/peers/package.json");
const NODE: &str = "node";
/// Where Python packages are, and the member that names them.
const PYTHON: &str = "python";
const PI: &str = "@earendil-works/pi-coding-agent";
const CODEX: &str = "@openai/codex";

/// The programs that are measured, of one directory, all there and of the wanted versions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Peers {
    /// A Node that is new enough for Pi, whatever this machine has.
    pub(crate) node: PathBuf,
    /// Pi's program, for `node`.
    pub(crate) pi: PathBuf,
    /// The module of Pi that has its list of sessions.
    pub(crate) pi_module: PathBuf,
    /// Codex's native program, without the script that npm starts it by.
    pub(crate) codex: PathBuf,
    /// Names and versions for the table.
    pub(crate) versions: String,
}

/// `peers [DIR]`: installs what is not there yet.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let directory = match arguments {
        [] => repo::root()?.join("target").join("peers"),
        [directory] if !directory.starts_with('-') => std::path::absolute(directory)?,
        _ => bail!("usage: cargo xtask peers [DIR]"),
    };
    if let (Ok(peers), Ok(())) = (Peers::find(&directory), check_all(&directory)) {
        eprintln!("peers: {} holds them already", directory.display());
        return report(&directory, &peers);
    }
    install(&directory)?;
    let whole = check_all(&directory).and_then(|()| Peers::find(&directory));
    let peers = whole.context("npm said that it installed the peers, but they are not whole")?;
    report(&directory, &peers)
}

fn install(directory: &Path) -> Result<()> {
    let npm = Command::new("npm").arg("--version").output();
    let npm = npm.context("npm is missing: install Node.js with npm, or put it on the PATH")?;
    ensure!(npm.status.success(), "npm does not work: {}", String::from_utf8_lossy(&npm.stderr).trim());
    let ours = directory.join("package.json");
    let foreign = match std::fs::read_dir(directory) {
        Ok(mut entries) => entries.next().is_some() && !is_ours(&ours),
        Err(_) => false,
    };
    ensure!(!foreign, "{} holds something else; name a directory that is empty or new", directory.display());
    std::fs::create_dir_all(directory).with_context(|| format!("cannot make {}", directory.display()))?;
    std::fs::write(&ours, MANIFEST).with_context(|| format!("cannot write {}", ours.display()))?;
    eprintln!(
        "peers: npm {} installs {} into {}; about 1.8 GB",
        String::from_utf8_lossy(&npm.stdout).trim(),
        wanted()?.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", "),
        directory.display()
    );
    let status = Command::new("npm")
        // Warnings are about the machine's own Node, which runs none of this.
        .args(["install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"])
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("npm cannot be started")?;
    ensure!(
        status.success(),
        "npm could not install the peers ({status}); what it said stands above. It needs the network, or a mirror that \
         has these packages in these versions; run `cargo xtask peers` again afterwards"
    );
    packed()?.iter().try_for_each(|(name, version)| unpack(directory, name, version))?;
    install_python(directory)
}

/// Installs the Python packages, for whichever Python this machine has.
fn install_python(directory: &Path) -> Result<()> {
    let packages = python()?;
    let named = packages.iter().map(|(name, version)| format!("{name}=={version}"));
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "--target"])
        .arg(directory.join(PYTHON))
        .args(named)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status();
    let status = status.context("python3 is missing: install Python with pip, or put it on the PATH")?;
    ensure!(
        status.success(),
        "pip could not install the Python packages ({status}); what it said stands above"
    );
    Ok(())
}

/// Whether the Python packages are there in their versions.
fn check_python(directory: &Path) -> Result<()> {
    for (name, version) in python()? {
        let place = directory.join(PYTHON);
        let found = place.join(format!("{}-{version}.dist-info", name.replace('-', "_")));
        ensure!(found.is_dir(), "{name} {version} is not in {}; run `cargo xtask peers`", place.display());
    }
    Ok(())
}

/// Whether everything is there in its version.
fn check_all(directory: &Path) -> Result<()> {
    check(directory, &wanted()?)?;
    check_packed(directory)?;
    check_python(directory)
}

/// Takes a package without those that it depends on, for it brings along all that its program needs and npm cannot find
/// them all.
fn unpack(directory: &Path, name: &str, version: &str) -> Result<()> {
    let place = packed_place(directory, name);
    std::fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    let status = Command::new("npm")
        .args(["pack", "--loglevel=error", &format!("{name}@{version}"), "--pack-destination"])
        .arg(&place)
        .stdin(Stdio::null())
        .stdout(Stdio::from(std::io::stderr()))
        .status()
        .context("npm cannot be started")?;
    ensure!(status.success(), "npm could not fetch {name} {version} ({status})");
    let files = std::fs::read_dir(&place).with_context(|| format!("cannot read {}", place.display()))?;
    let archive =
        files.flatten().map(|file| file.path()).find(|path| path.extension().is_some_and(|it| it == "tgz"));
    let archive = archive.with_context(|| format!("npm left no archive in {}", place.display()))?;
    let status = Command::new("tar").arg("-xzf").arg(&archive).arg("-C").arg(&place).status();
    let status = status.context("tar cannot be started")?;
    ensure!(status.success(), "{} could not be unpacked ({status})", archive.display());
    std::fs::remove_file(&archive).with_context(|| format!("cannot remove {}", archive.display()))
}

/// Where a package without its dependencies is.
fn packed_place(directory: &Path, name: &str) -> PathBuf {
    directory.join("packed").join(name.rsplit('/').next().unwrap_or(name))
}

/// Prints where each program is and what it says of itself.
fn report(directory: &Path, peers: &Peers) -> Result<bool> {
    let programs: [(&str, Vec<&Path>); 3] =
        [(NODE, vec![&peers.node]), (PI, vec![&peers.node, &peers.pi]), (CODEX, vec![&peers.codex])];
    for ((name, words), (_, version)) in programs.iter().zip(in_order()?) {
        let (program, arguments) = words.split_first().context("no program")?;
        let output = Command::new(program)
            .args(arguments)
            .arg("--version")
            .env("PI_OFFLINE", "1")
            .env("HOME", directory.join("home"))
            .output()
            .with_context(|| format!("{} cannot be started", program.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        ensure!(
            output.status.success() && said.contains(&version),
            "{name} {version} does not run here: it ended with {} and said {said:?} {:?}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        println!("{name} {version}: {}", words.last().unwrap_or(program).display());
    }
    println!("measure them with: cargo xtask bench --peers {}", directory.display());
    Ok(true)
}

impl Peers {
    /// Finds the programs in a directory that [`run`] filled.
    pub(crate) fn find(directory: &Path) -> Result<Self> {
        let modules = directory.join("node_modules");
        check(directory, &in_order()?)?;
        let pi = modules.join(PI).join("dist").join("bundle");
        let versions = in_order()?;
        let peers = Self {
            node: modules.join(NODE).join("bin").join("node"),
            pi: pi.join("cli.js"),
            pi_module: pi.join("index.js"),
            codex: native_codex(&modules)?,
            versions: format!("Pi {}, Node {}, Codex {}", versions[1].1, versions[0].1, versions[2].1),
        };
        for file in [&peers.node, &peers.pi, &peers.pi_module, &peers.codex] {
            ensure!(file.is_file(), "{} is missing; run `cargo xtask peers`", file.display());
        }
        Ok(peers)
    }
}

/// Whether these packages are there in these versions.
fn check(directory: &Path, packages: &[(String, String)]) -> Result<()> {
    for (name, version) in packages {
        let manifest = directory.join("node_modules").join(name).join("package.json");
        let text = std::fs::read_to_string(&manifest)
            .with_context(|| format!("{name} is not in {}; run `cargo xtask peers`", directory.display()))?;
        let found: Value = serde_json::from_str(&text)?;
        ensure!(
            found["version"] == version.as_str(),
            "{name} in {} is {}, not {version}; run `cargo xtask peers`",
            directory.display(),
            found["version"].as_str().unwrap_or("of no version")
        );
    }
    Ok(())
}

/// Whether the packages without dependencies are there in their versions.
fn check_packed(directory: &Path) -> Result<()> {
    for (name, version) in packed()? {
        let manifest = packed_place(directory, &name).join("package").join("package.json");
        let text = std::fs::read_to_string(&manifest).with_context(|| {
            format!("{name} {version} is not in {}; run `cargo xtask peers`", directory.display())
        })?;
        let found: Value = serde_json::from_str(&text)?;
        ensure!(found["version"] == version.as_str(), "{} is of another version", manifest.display());
    }
    Ok(())
}

/// The program for this machine, which npm puts into a package of its own.
fn native_codex(modules: &Path) -> Result<PathBuf> {
    let scope = modules.join("@openai");
    let packages = std::fs::read_dir(&scope).with_context(|| format!("cannot read {}", scope.display()))?;
    for package in packages.flatten() {
        let Ok(triples) = std::fs::read_dir(package.path().join("vendor")) else { continue };
        for triple in triples.flatten() {
            let program = triple.path().join("bin").join("codex");
            if program.is_file() {
                return Ok(program);
            }
        }
    }
    bail!("npm has no native program of {CODEX} for this machine")
}

fn is_ours(manifest: &Path) -> bool {
    let name = |text: &str| serde_json::from_str::<Value>(text).ok().map(|value| value["name"].clone());
    std::fs::read_to_string(manifest).ok().and_then(|text| name(&text)) == name(MANIFEST)
}

/// Names and exact versions of the packages.
fn wanted() -> Result<Vec<(String, String)>> {
    versions("dependencies")
}

/// Those of Python.
fn python() -> Result<Vec<(String, String)>> {
    versions(PYTHON)
}

/// Those that are fetched without the packages that they depend on.
fn packed() -> Result<Vec<(String, String)>> {
    versions("packed")
}

fn versions(field: &str) -> Result<Vec<(String, String)>> {
    let manifest: Value =
        serde_json::from_str(MANIFEST).context("xtask/data/peers/package.json is not JSON")?;
    let packages = manifest[field].as_object().context("it names no packages")?;
    let exact = |version: &Value| version.as_str().map(str::to_owned).context("a version is no text");
    packages.iter().map(|(name, version)| Ok((name.clone(), exact(version)?))).collect()
}

/// The packages that are measured, as [`report`] goes through them: Node, Pi, Codex.
fn in_order() -> Result<[(String, String); 3]> {
    let wanted = wanted()?;
    let one = |name: &str| {
        wanted
            .iter()
            .find(|(known, _)| known == name)
            .cloned()
            .with_context(|| format!("{name} is not wanted"))
    };
    Ok([one(NODE)?, one(PI)?, one(CODEX)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_exact() -> Result<()> {
        for (name, version) in in_order()? {
            assert!(version.split('.').all(|part| part.parse::<u32>().is_ok()), "{name} {version}");
        }
        Ok(())
    }

    /// A directory as npm leaves it, with empty programs.
    fn installed(versions: &[(String, String)]) -> Result<tempfile::TempDir> {
        let directory = tempfile::tempdir()?;
        let modules = directory.path().join("node_modules");
        for (name, version) in versions {
            let package = modules.join(name);
            std::fs::create_dir_all(&package)?;
            std::fs::write(
                package.join("package.json"),
                serde_json::json!({ "version": version }).to_string(),
            )?;
        }
        let programs = [
            modules.join("node/bin/node"),
            modules.join(PI).join("dist/bundle/cli.js"),
            modules.join(PI).join("dist/bundle/index.js"),
            modules.join("@openai/codex-one-machine/vendor/triple/bin/codex"),
        ];
        for program in programs {
            std::fs::create_dir_all(program.parent().context("a file in a folder")?)?;
            std::fs::write(program, "")?;
        }
        Ok(directory)
    }

    #[test]
    fn programs_are_found_when_all_are_there_in_their_versions() -> Result<()> {
        let directory = installed(&wanted()?)?;
        let peers = Peers::find(directory.path())?;
        assert!(peers.codex.ends_with("triple/bin/codex") && peers.versions.starts_with("Pi 0."));
        std::fs::remove_file(&peers.node)?;
        assert!(Peers::find(directory.path()).is_err());

        let mut old = wanted()?;
        old.iter_mut().for_each(|(_, version)| *version = "0.0.1".to_owned());
        let error = Peers::find(installed(&old)?.path()).map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("0.0.1, not")));
        Ok(())
    }

    #[test]
    fn nothing_is_installed_into_a_directory_of_others() -> Result<()> {
        let directory = tempfile::tempdir()?;
        std::fs::write(directory.path().join("thesis.txt"), "years of work")?;
        let result = run(&[directory.path().display().to_string()]);
        assert!(result.is_err());
        assert_eq!(std::fs::read_dir(directory.path())?.count(), 1);
        Ok(())
    }
}
