//! What runs on other machines and systems: ARM64, built here and tried in emulation; macOS and Windows, checked by the
//! compiler. It takes an hour, so that CI runs it only where it has the time (`QUIPU_FULL=1`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::zig::Zig;
use crate::{dist, repo};

const ARM64: &str = "aarch64-unknown-linux-musl";
const MACOS: &str = "aarch64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-gnu";
/// Runs programs of ARM64 on another machine.
const EMULATOR: &str = "qemu-aarch64-static";
/// Where the kernel is told how programs of other machines are run, and by which name.
const BINFMT: &str = "/proc/sys/fs/binfmt_misc";
const REGISTERED: &str = "quipu-aarch64";
/// What programs of ARM64 begin with, and which bits of that count.
const MAGIC: &str = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00";
const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
/// The packages whose tests run in emulation: where the order of bytes, threads and memory could make a difference.
const EMULATED: [&str; 5] = ["quipu-dag", "quipu-transcript", "quipu-seal", "quipu-store", "quipu-providers"];

/// `cargo xtask platforms [arm64 [--debug]|macos|windows]`: true when all of them, or this one, are as they should be.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let root = repo::root()?;
    let names: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match names[..] {
        [] => Ok(arm64(&root, false)? && macos(&root)? && windows(&root)?),
        ["arm64"] => arm64(&root, false),
        ["arm64", "--debug"] => arm64(&root, true),
        ["macos"] => macos(&root),
        ["windows"] => windows(&root),
        _ => bail!("usage: cargo xtask platforms [arm64 [--debug]|macos|windows]"),
    }
}

/// Builds the binary and its packages, or only a debug build of the binary, and runs a session, the demo and tests in
/// emulation.
fn arm64(root: &Path, debug: bool) -> Result<bool> {
    let emulator = Command::new(EMULATOR).arg("--version").output();
    emulator.with_context(|| {
        format!("{EMULATOR} is missing: install it (Debian: apt-get install qemu-user-static)")
    })?;
    // The test of the static binary has the session and the demo.
    let mut session = Command::new(env!("CARGO"));
    session.args(["test", "--package", "xtask", "--test", "dist", "--", "--nocapture"]).current_dir(root);
    session.env("QUIPU_REQUIRE_PEERS", "1");
    if debug {
        let mut command = cross(root, "build", ARM64)?;
        command.args(["--package", "quipu-cli", "--message-format", "json-render-diagnostics"]);
        println!("platforms: {}", shown(&command));
        let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo build")?;
        let Some(binary) = dist::executable(&output.stdout) else { return Ok(false) };
        session.env("QUIPU_EMULATED", binary);
    } else if !dist::run(&[ARM64.to_owned()])? {
        return Ok(false);
    }
    if !passes(&mut session)? {
        return Ok(false);
    }
    have_children(root)?;
    for package in EMULATED {
        let mut command = cross(root, "test", ARM64)?;
        if !passes(command.args(["--package", package]))? {
            println!("platforms: tests of {package} fail on ARM64");
            return Ok(false);
        }
    }
    Ok(true)
}

/// Tests begin programs of their own, which the kernel must know how to run: told by whoever administrates this machine, until its
/// next start.
fn have_children(root: &Path) -> Result<()> {
    if Path::new(BINFMT).join(REGISTERED).exists() || Path::new(BINFMT).join("qemu-aarch64").exists() {
        return Ok(());
    }
    let folder = Path::new(BINFMT);
    if !folder.join("register").exists() {
        // What it says is in the error below.
        drop(Command::new("mount").args(["-t", "binfmt_misc", "binfmt_misc", BINFMT]).status());
    }
    let found = Command::new("sh").args(["-c", "command -v \"$0\"", EMULATOR]).current_dir(root).output()?;
    let emulator = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let rule = format!(":{REGISTERED}:M::{MAGIC}:{MASK}:{emulator}:F");
    println!("platforms: the kernel is told to run programs of ARM64 with {emulator}");
    std::fs::write(folder.join("register"), rule).with_context(|| {
        format!(
            "programs of ARM64 cannot be run by tests: register {EMULATOR} in {BINFMT}, as the administrator"
        )
    })
}

/// Checks all code for macOS.
fn macos(root: &Path) -> Result<bool> {
    let mut command = cross(root, "check", MACOS)?;
    passes(command.args(["--workspace", "--all-targets"]))
}

/// Says for each package whether it compiles for Windows: a list of what is missing, which fails nothing.
fn windows(root: &Path) -> Result<bool> {
    let mut command = cross(root, "check", WINDOWS)?;
    command.args(["--workspace", "--exclude", "xtask", "--keep-going", "--message-format", "json"]);
    let output = command.stderr(Stdio::inherit()).output().context("cannot run cargo check")?;
    // Errors by package; those without are there too.
    let mut found: BTreeMap<String, usize> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let Some(package) = message["package_id"].as_str().and_then(own_package) else { continue };
        let errors = found.entry(package.to_owned()).or_default();
        *errors += usize::from(
            message["message"]["level"] == "error"
                && !message["message"]["spans"].as_array().is_none_or(Vec::is_empty),
        );
    }
    let packages = packages(root)?;
    ensure!(!packages.is_empty(), "cargo metadata names no packages");
    for package in packages {
        match found.get(&package) {
            Some(0) => println!("platforms: {package} compiles for Windows"),
            Some(errors) => println!("platforms: {package} does not compile for Windows: {errors} errors"),
            None => println!("platforms: {package} waits for packages that do not compile for Windows"),
        }
    }
    Ok(true)
}

/// The name of a package of ours in the id that cargo gives it.
fn own_package(id: &str) -> Option<&str> {
    let (path, name) = id.strip_prefix("path+file://")?.split_once('#')?;
    Some(match name.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    })
}

fn packages(root: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["metadata", "--no-deps", "--format-version", "1"]).current_dir(root);
    let output = command.output().context("cannot run cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = metadata["packages"].as_array().context("cargo metadata names no packages")?;
    let names = packages.iter().filter_map(|package| package["name"].as_str().map(str::to_owned));
    Ok(names.filter(|name| name != "xtask").collect())
}

/// Cargo for another target, with a C compiler for it.
fn cross(root: &Path, command: &str, target: &str) -> Result<Command> {
    dist::have_std(root, target)?;
    let tools = Zig::have(root)?.tools(root, target)?;
    let name = target.replace('-', "_");
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args([command, "--locked", "--target", target])
        .env(format!("CC_{name}"), tools.compiler)
        .env(format!("AR_{name}"), tools.archiver)
        // Nobody is to look for Apple's headers: Zig has its own.
        .env("SDKROOT", root.join("target").join("zig"))
        .current_dir(root);
    if target == ARM64 {
        let variable = format!("CARGO_TARGET_{}", name.to_uppercase());
        cargo.env(format!("{variable}_LINKER"), dist::OWN_LINKER).env(format!("{variable}_RUNNER"), EMULATOR);
    }
    Ok(cargo)
}

fn passes(command: &mut Command) -> Result<bool> {
    println!("platforms: {}", shown(command));
    Ok(command.status().context("cannot run cargo")?.success())
}

fn shown(command: &Command) -> String {
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    format!("cargo {}", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_found_in_ids() {
        for (id, name) in [
            ("path+file:///src/quipu/crates/dag#quipu-dag@0.1.0", Some("quipu-dag")),
            ("path+file:///src/quipu/crates/quipu-dag#0.1.0", Some("quipu-dag")),
            ("registry+https://example.com/index#anyhow@1.0.0", None),
        ] {
            assert_eq!(own_package(id), name, "{id}");
        }
    }
}
