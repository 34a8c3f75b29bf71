//! The static Linux binary: one file that runs where there is nothing else, no loader and no libraries.

use crate::elf::Elf;
use crate::platform::{PLATFORMS, Platform};
use crate::zig::{CrossTools, Zig};
use crate::{package, repo};
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of the binary at most. The project wants 20,000,000; policies, the runner and content holders took it beyond that, and
/// docs/development.md says by how much.
const LARGEST: usize = 40_000_000;

/// What the C compiler is told of this binary alone. No panic goes through C: how to unwind its stack would be there for
/// nothing. The system takes all memory of a process that ends, so that mimalloc need not give it back before; and what it
/// notes of its room is for 128 MiB at a time, not for a GiB, for these notes are made at each start. SQLite counts the
/// memory that it takes only for who asks, and all its connections would wait for each other to count. All functions of a
/// file are one section: SQLite compares addresses of functions, and the linker may give two equal sections one address.
const C_FLAGS: &str = "-fno-asynchronous-unwind-tables -fno-unwind-tables -fno-function-sections \
                       -DMI_SKIP_COLLECT_ON_EXIT=1 -DMI_DEFAULT_ARENA_RESERVE=131072 -DSQLITE_DEFAULT_MEMSTATUS=0";

/// The linker that comes with Rust, as `rustc` knows it.
pub(crate) const OWN_LINKER: &str = "rust-lld";

struct Arguments {
    platform: &'static Platform,
    if_possible: bool,
}

/// Builds C, and links.
struct Tools {
    /// The C compiler.
    compiler: PathBuf,
    /// The archiver, where the machine's own cannot be taken.
    archiver: Option<PathBuf>,
    /// What links, where the compiler of the machine does not.
    linker: Option<Linker>,
}

enum Linker {
    /// A C compiler, whose linker gets its flags through it.
    Compiler,
    /// The linker that comes with Rust, by itself: Rust has all that a static binary for musl is linked with.
    Own,
}

/// `cargo xtask dist [--if-possible] [TARGET]`: true when the binary and its packages are in `target/dist/`, or when the
/// flag allows them to be missing because this machine lacks what building it needs.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let arguments = parse(arguments)?;
    let root = repo::root()?;
    let target = arguments.platform.target;
    let tools = match tools(&root, target) {
        Ok(tools) => tools,
        Err(why) if arguments.if_possible => {
            println!("dist: not built: {why:#}");
            return Ok(true);
        }
        Err(why) => return Err(why),
    };
    let start = Instant::now();
    // Who goes on working while it builds changes the commit.
    let commit = package::commit(&root);
    let built = build(&root, target, &tools)?;
    let bytes = std::fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let needs = Elf::read(&bytes, arguments.platform.machine).and_then(|elf| elf.needs());
    let needs = needs.with_context(|| format!("{} is not what was asked for", built.display()))?;
    if !needs.is_empty() {
        bail!("{} is not static: it {}", built.display(), needs.join(" and "));
    }
    let file = keep(&built, &bytes, target)?;
    println!(
        "dist: {}, static, {} bytes, built in {} s",
        file.display(),
        bytes.len(),
        start.elapsed().as_secs()
    );
    package::note_commit(&file, commit.as_deref())?;
    package::of_build(&root, file.parent().context("a binary in no folder")?, target)?;
    if bytes.len() > LARGEST {
        println!(
            "dist: that is more than {LARGEST} bytes; docs/development.md says how to see what takes the room"
        );
    }
    Ok(bytes.len() <= LARGEST)
}

fn parse(arguments: &[String]) -> Result<Arguments> {
    let (mut chosen, mut if_possible) = (None, false);
    for argument in arguments {
        if argument == "--if-possible" {
            if_possible = true;
        } else if chosen.is_some() {
            bail!("dist builds one target at a time, not {argument:?} as well");
        } else {
            let known = PLATFORMS.iter().find(|platform| platform.target == argument);
            let names = PLATFORMS.each_ref().map(|platform| platform.target).join(", ");
            chosen = Some(known.with_context(|| format!("dist knows {names}, not {argument:?}"))?);
        }
    }
    Ok(Arguments { platform: chosen.unwrap_or(&PLATFORMS[0]), if_possible })
}

/// Sees to it that the standard library of the target and a C compiler for it are there.
fn tools(root: &Path, target: &str) -> Result<Tools> {
    let (machine, _) = target.split_once('-').context("a target without a machine")?;
    let is_own = machine == std::env::consts::ARCH;
    let variable = format!("CC_{}", target.replace('-', "_"));
    let named = std::env::var(&variable).ok();
    // Debian's wrapper around the machine's own compiler; other machines need a compiler of their own.
    let usual = if is_own { "musl-gcc".to_owned() } else { format!("{machine}-linux-musl-gcc") };
    let compiler = named.clone().unwrap_or(usual);
    let tools = match Command::new(&compiler).arg("--version").output() {
        Ok(_) => {
            Tools { compiler: compiler.into(), archiver: None, linker: (!is_own).then_some(Linker::Compiler) }
        }
        Err(error) if is_own || named.is_some() => bail!(
            "the C compiler {compiler} cannot be run: {error}. SQLite and ring are built with it: install it (Debian: \
             apt-get install musl-tools), or name another in {variable}"
        ),
        Err(error) => {
            let zig = Zig::have(root).with_context(|| {
                format!(
                    "the C compiler {compiler} cannot be run: {error}; nor is there another: put one of this name on the \
                     PATH, or name one in {variable}"
                )
            })?;
            let CrossTools { compiler, archiver } = zig.tools(root, target)?;
            Tools { compiler, archiver: Some(archiver), linker: Some(Linker::Own) }
        }
    };
    have_std(root, target)?;
    Ok(tools)
}

/// Sees to it that the standard library of the target is there.
pub(crate) fn have_std(root: &Path, target: &str) -> Result<()> {
    if has_std(root, target)? {
        return Ok(());
    }
    println!("the standard library of {target} is not installed: rustup target add {target}");
    let added = Command::new("rustup").args(["target", "add", target]).current_dir(root).output();
    if has_std(root, target)? {
        return Ok(());
    }
    let why = match added {
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => format!("rustup cannot be run: {error}"),
    };
    bail!(
        "the standard library of {target} is not there, and could not be had ({why}). With a network, `rustup target \
         add {target}` fetches it; without rustup, the system's packages of Rust may have it"
    )
}

fn has_std(root: &Path, target: &str) -> Result<bool> {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(root)
        .output()
        .context("cannot run rustc")?;
    let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    Ok(output.status.success()
        && std::fs::read_dir(folder).is_ok_and(|files| {
            files.flatten().any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
        }))
}

/// Builds the release for the target, and gives back where cargo put the binary.
fn build(root: &Path, target: &str, tools: &Tools) -> Result<PathBuf> {
    println!("dist: building for {target}");
    let name = target.replace('-', "_");
    let upper = name.to_uppercase();
    // What somebody else wants of it counts too.
    let c_flags = std::env::var(format!("CFLAGS_{name}")).unwrap_or_default();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--release", "--locked", "--package", "quipu-cli", "--target", target])
        .args(["--message-format", "json-render-diagnostics"])
        .env(format!("CC_{name}"), &tools.compiler)
        .env(format!("CFLAGS_{name}"), [&c_flags, C_FLAGS].join(" "))
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags(tools.linker.as_ref())?.join("\x1f"));
    if let Some(archiver) = &tools.archiver {
        command.env(format!("AR_{name}"), archiver);
    }
    let linker = format!("CARGO_TARGET_{upper}_LINKER");
    match tools.linker {
        Some(Linker::Compiler) => {
            command.env(linker, &tools.compiler);
        }
        Some(Linker::Own) => {
            command.env(linker, OWN_LINKER);
        }
        None => {}
    }
    let output =
        command.current_dir(root).stderr(Stdio::inherit()).output().context("cannot run cargo build")?;
    if !output.status.success() {
        bail!("the release does not build for {target}");
    }
    executable(&output.stdout).context("cargo named no binary quipu")
}

/// The binary in what cargo says in JSON.
pub(crate) fn executable(messages: &[u8]) -> Option<PathBuf> {
    String::from_utf8_lossy(messages)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "quipu")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
}

/// What the compiler is told of this binary alone.
fn rust_flags(linker: Option<&Linker>) -> Result<Vec<String>> {
    // A C compiler passes flags on to its linker where they are marked so.
    let to_linker = |flags: &[&str]| match linker {
        Some(Linker::Own) => flags.iter().map(|flag| format!("-Clink-arg={flag}")).collect(),
        Some(Linker::Compiler) | None => vec![format!("-Clink-arg=-Wl,{}", flags.join(","))],
    };
    // Packs what is moved at the start into a fortieth of its room; musl reads that since 1.2.4.
    let mut flags = to_linker(&["-z", "pack-relative-relocs"]);
    flags.extend([
        // The default today, but no promise of the target's.
        "-Ctarget-feature=+crt-static".to_owned(),
        // What says `#[inline]` is taken in as readily where size matters as where speed does, unless the optimiser hears
        // otherwise.
        "-Cllvm-args=-inlinehint-threshold=75".to_owned(),
    ]);
    // Generic code of types that look the same in memory is often the same; the linker that comes with the compiler
    // keeps one of it. Rust promises no address of a function, and C is kept out of it (`C_FLAGS`).
    if matches!(linker, Some(Linker::Own)) {
        flags.extend(to_linker(&["--icf=all"]));
    } else if let Some(folder) = linker_folder()? {
        flags.push(format!("-Clink-arg=-B{}", folder.display()));
        flags.push("-Clink-arg=-fuse-ld=lld".to_owned());
        flags.extend(to_linker(&["--icf=all"]));
    }
    // Messages of panics name files. Where they are on this machine is nobody's business, and takes room.
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("there is no home directory")?.join(".cargo"),
    };
    let sources = home.join("registry").join("src");
    let Ok(registries) = std::fs::read_dir(&sources) else { return Ok(flags) };
    let mut folders = registries
        .map(|registry| Ok(registry?.path()))
        .collect::<std::io::Result<Vec<_>>>()
        .with_context(|| format!("cannot read {}", sources.display()))?;
    // The system's order is no order: the same flags each time, or all is compiled anew.
    folders.sort();
    flags.extend(folders.iter().map(|folder| format!("--remap-path-prefix={}=", folder.display())));
    Ok(flags)
}

/// The folder of the linker that comes with the compiler, under the name that a C compiler looks for; `None` where the
/// compiler comes without, and the C compiler's own links.
fn linker_folder() -> Result<Option<PathBuf>> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().context("cannot run rustc")?;
    let host = Command::new("rustc").args(["--print", "host-tuple"]).output().context("cannot run rustc")?;
    let line = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let folder =
        PathBuf::from(line(&sysroot.stdout)).join("lib/rustlib").join(line(&host.stdout)).join("bin/gcc-ld");
    Ok(folder.join("ld.lld").exists().then_some(folder))
}

/// Copies the binary to `dist` in the target folder, with its checksum beside it as `sha256sum --check` reads it.
fn keep(built: &Path, bytes: &[u8], target: &str) -> Result<PathBuf> {
    // TARGET/release/quipu
    let folder = built.ancestors().nth(3).context("cargo built in no target folder")?.join("dist");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let name = package::binary_name(target);
    let file = folder.join(&name);
    // Who runs the old binary keeps it.
    let fresh = folder.join(format!("{name}.new"));
    std::fs::copy(built, &fresh).with_context(|| format!("cannot write {}", fresh.display()))?;
    std::fs::rename(&fresh, &file).with_context(|| format!("cannot write {}", file.display()))?;
    let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let sum = folder.join(format!("{name}.sha256"));
    std::fs::write(&sum, format!("{digest}  {name}\n"))
        .with_context(|| format!("cannot write {}", sum.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_are_checked() {
        for (line, wanted) in [
            ("", Some(("x86_64-unknown-linux-musl", false))),
            ("--if-possible", Some(("x86_64-unknown-linux-musl", true))),
            ("aarch64-unknown-linux-musl", Some(("aarch64-unknown-linux-musl", false))),
            ("--if-possible aarch64-unknown-linux-musl", Some(("aarch64-unknown-linux-musl", true))),
            ("x86_64-unknown-linux-gnu", None),
            ("--fast", None),
            ("aarch64-unknown-linux-musl aarch64-unknown-linux-musl", None),
        ] {
            let parsed = parse(&words(line)).ok().map(|parsed| (parsed.platform.target, parsed.if_possible));
            assert_eq!(parsed, wanted, "{line}");
        }
    }
}
