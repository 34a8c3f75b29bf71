//! The static Linux binary: one file that runs where there is nothing else, no loader and no libraries.

use crate::repo;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The targets that can be built: name, and the machine as the header of the binary has it.
const TARGETS: [(&str, u16); 2] = [("x86_64-unknown-linux-musl", 62), ("aarch64-unknown-linux-musl", 183)];

/// Bytes of the binary at most. The project wants 20,000,000; policies, the runner and content holders took it beyond that, and
/// docs/development.md says by how much.
const LARGEST: usize = 36_000_000;

/// What the C compiler is told of this binary alone. No panic goes through C: how to unwind its stack would be there for
/// nothing. The system takes all memory of a process that ends, so that mimalloc need not give it back before; and what it
/// notes of its room is for 128 MiB at a time, not for a GiB, for these notes are made at each start. SQLite counts the
/// memory that it takes only for who asks, and all its connections would wait for each other to count. All functions of a
/// file are one section: SQLite compares addresses of functions, and the linker may give two equal sections one address.
const C_FLAGS: &str = "-fno-asynchronous-unwind-tables -fno-unwind-tables -fno-function-sections \
                       -DMI_SKIP_COLLECT_ON_EXIT=1 -DMI_DEFAULT_ARENA_RESERVE=131072 -DSQLITE_DEFAULT_MEMSTATUS=0";

struct Arguments {
    target: &'static str,
    machine: u16,
    if_possible: bool,
}

/// `cargo xtask dist [--if-possible] [TARGET]`: true when the binary is in `target/dist/`, or when the flag allows
/// it to be missing because this machine lacks what building it needs.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let arguments = parse(arguments)?;
    let root = repo::root()?;
    let compiler = match tools(&root, arguments.target) {
        Ok(compiler) => compiler,
        Err(why) if arguments.if_possible => {
            println!("dist: not built: {why:#}");
            return Ok(true);
        }
        Err(why) => return Err(why),
    };
    let start = Instant::now();
    let built = build(&root, arguments.target, &compiler)?;
    let bytes = std::fs::read(&built).with_context(|| format!("cannot read {}", built.display()))?;
    let needs = Elf::read(&bytes, arguments.machine).and_then(|elf| elf.needs());
    let needs = needs.with_context(|| format!("{} is not what was asked for", built.display()))?;
    if !needs.is_empty() {
        bail!("{} is not static: it {}", built.display(), needs.join(" and "));
    }
    let file = keep(&built, &bytes, arguments.target)?;
    println!(
        "dist: {}, static, {} bytes, built in {} s",
        file.display(),
        bytes.len(),
        start.elapsed().as_secs()
    );
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
            let known = TARGETS.iter().find(|(target, _)| target == argument);
            let names = TARGETS.map(|(target, _)| target).join(", ");
            chosen = Some(known.with_context(|| format!("dist knows {names}, not {argument:?}"))?);
        }
    }
    let (target, machine) = *chosen.unwrap_or(&TARGETS[0]);
    Ok(Arguments { target, machine, if_possible })
}

/// Sees to it that the standard library of the target and a C compiler for it are there; gives back the compiler.
fn tools(root: &Path, target: &str) -> Result<String> {
    let (machine, _) = target.split_once('-').context("a target without a machine")?;
    // Debian's wrapper around the machine's own compiler; other machines need a compiler of their own.
    let (compiler, remedy) = if machine == std::env::consts::ARCH {
        ("musl-gcc".to_owned(), "install it (Debian: apt-get install musl-tools)")
    } else {
        (format!("{machine}-linux-musl-gcc"), "put a cross compiler of this name on the PATH")
    };
    let variable = format!("CC_{}", target.replace('-', "_"));
    let compiler = std::env::var(&variable).unwrap_or(compiler);
    if let Err(error) = Command::new(&compiler).arg("--version").output() {
        bail!(
            "the C compiler {compiler} cannot be run: {error}. SQLite and ring are built with it: {remedy}, or name \
             another in {variable}"
        );
    }
    if has_std(root, target)? {
        return Ok(compiler);
    }
    println!("dist: the standard library of {target} is not installed: rustup target add {target}");
    let added = Command::new("rustup").args(["target", "add", target]).current_dir(root).output();
    if has_std(root, target)? {
        return Ok(compiler);
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
fn build(root: &Path, target: &str, compiler: &str) -> Result<PathBuf> {
    println!("dist: building for {target}");
    let name = target.replace('-', "_");
    let upper = name.to_uppercase();
    // What somebody else wants of it counts too.
    let c_flags = std::env::var(format!("CFLAGS_{name}")).unwrap_or_default();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["build", "--release", "--locked", "--package", "quipu-cli", "--target", target])
        .args(["--message-format", "json-render-diagnostics"])
        .env(format!("CC_{name}"), compiler)
        .env(format!("CFLAGS_{name}"), [&c_flags, C_FLAGS].join(" "))
        .env("CARGO_ENCODED_RUSTFLAGS", rust_flags()?.join("\x1f"));
    if !target.starts_with(std::env::consts::ARCH) {
        command.env(format!("CARGO_TARGET_{upper}_LINKER"), compiler);
    }
    let output =
        command.current_dir(root).stderr(Stdio::inherit()).output().context("cannot run cargo build")?;
    if !output.status.success() {
        bail!("the release does not build for {target}");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "quipu")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .context("cargo named no binary quipu")
}

/// What the compiler is told of this binary alone.
fn rust_flags() -> Result<Vec<String>> {
    let mut flags = vec![
        // The first is the default today, but no promise of the target's. The second packs what is moved at the start
        // into a fortieth of its room; musl reads that since 1.2.4.
        "-Ctarget-feature=+crt-static".to_owned(),
        "-Clink-arg=-Wl,-z,pack-relative-relocs".to_owned(),
        // What says `#[inline]` is taken in as readily where size matters as where speed does, unless the optimiser hears
        // otherwise.
        "-Cllvm-args=-inlinehint-threshold=75".to_owned(),
    ];
    // Generic code of types that look the same in memory is often the same; the linker that comes with the compiler
    // keeps one of it. Rust promises no address of a function, and C is kept out of it (`C_FLAGS`).
    if let Some(folder) = linker()? {
        flags.push(format!("-Clink-arg=-B{}", folder.display()));
        flags.push("-Clink-arg=-fuse-ld=lld".to_owned());
        flags.push("-Clink-arg=-Wl,--icf=all".to_owned());
    }
    // Messages of panics name files. Where they are on this machine is nobody's business, and takes room.
    let home = match std::env::var_os("CARGO_HOME") {
        Some(home) => PathBuf::from(home),
        None => std::env::home_dir().context("there is no home directory")?.join(".cargo"),
    };
    let sources = home.join("registry").join("src");
    let Ok(registries) = std::fs::read_dir(&sources) else { return Ok(flags) };
    for registry in registries {
        let registry = registry.with_context(|| format!("cannot read {}", sources.display()))?;
        flags.push(format!("--remap-path-prefix={}=", registry.path().display()));
    }
    // The environment's order is no order: the same flags each time, or all is compiled anew.
    flags.sort();
    Ok(flags)
}

/// The folder of the linker that comes with the compiler, under the name that a C compiler looks for; `None` where the
/// compiler comes without, and the C compiler's own links.
fn linker() -> Result<Option<PathBuf>> {
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
    let name = format!("quipu-{}-{target}", env!("CARGO_PKG_VERSION"));
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

/// The part of a 64-bit, little-endian ELF file that says who loads the program.
struct Elf<'a> {
    bytes: &'a [u8],
    /// Kind, place and length of each segment.
    segments: Vec<(u32, usize, usize)>,
}

impl<'a> Elf<'a> {
    fn read(bytes: &'a [u8], machine: u16) -> Result<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            bail!("it is no ELF file of 64 bits");
        }
        let mut elf = Self { bytes, segments: Vec::new() };
        let found = elf.number(18, 2)?;
        if found != usize::from(machine) {
            bail!("it is for machine {found}, not for {machine}");
        }
        let (table, length, count) = (elf.number(32, 8)?, elf.number(54, 2)?, elf.number(56, 2)?);
        for index in 0..count {
            let at = table.saturating_add(index * length);
            let kind = u32::try_from(elf.number(at, 4)?)?;
            let segment = (kind, elf.number(at.saturating_add(8), 8)?, elf.number(at.saturating_add(32), 8)?);
            elf.segments.push(segment);
        }
        Ok(elf)
    }

    fn number(&self, at: usize, length: usize) -> Result<usize> {
        let bytes = self.bytes.get(at..at.saturating_add(length)).context("it is cut off")?;
        let value = bytes.iter().rev().fold(0_u64, |sum, byte| (sum << 8) | u64::from(*byte));
        usize::try_from(value).context("it is too large")
    }

    /// What the program needs besides the kernel: nothing, when it is static.
    fn needs(&self) -> Result<Vec<String>> {
        const DYNAMIC: u32 = 2;
        const INTERPRETER: u32 = 3;
        const NEEDED: usize = 1;
        let mut needs = Vec::new();
        for &(kind, at, length) in &self.segments {
            let content = self.bytes.get(at..at.saturating_add(length)).context("a segment is cut off")?;
            if kind == INTERPRETER {
                let loader = String::from_utf8_lossy(content);
                needs.push(format!("wants the loader {}", loader.trim_end_matches('\0')));
            }
            if kind == DYNAMIC {
                // Pairs of tag and value. A static program has them too, where it may be loaded anywhere.
                let mut libraries = 0;
                for entry in (at..at.saturating_add(length)).step_by(16) {
                    libraries += usize::from(self.number(entry, 8)? == NEEDED);
                }
                if libraries > 0 {
                    needs.push(format!("needs {libraries} shared libraries"));
                }
            }
        }
        Ok(needs)
    }
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
            let parsed = parse(&words(line)).ok().map(|parsed| (parsed.target, parsed.if_possible));
            assert_eq!(parsed, wanted, "{line}");
        }
    }

    /// A header, segments of a kind with their content, in this order.
    fn elf(segments: &[(u32, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56 * segments.len()];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        let mut put = |at: usize, value: usize, length: usize| {
            bytes[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        };
        put(18, 62, 2);
        put(32, 64, 8);
        put(54, 56, 2);
        put(56, segments.len(), 2);
        let mut place = 64 + 56 * segments.len();
        for (index, (kind, content)) in segments.iter().enumerate() {
            let at = 64 + 56 * index;
            put(at, usize::try_from(*kind).unwrap(), 4);
            put(at + 8, place, 8);
            put(at + 32, content.len(), 8);
            place += content.len();
        }
        bytes.extend(segments.iter().flat_map(|(_, content)| content.iter()));
        bytes
    }

    #[test]
    fn a_program_that_needs_a_loader_or_libraries_is_found() {
        let mut dynamic = [0; 48];
        // DT_FLAGS, then DT_NEEDED, then the end.
        (dynamic[0], dynamic[16]) = (30, 1);
        for (segments, wanted) in [
            (&[][..], &[][..]),
            (&[(1, &b"code"[..])], &[]),
            (&[(1, b"code"), (2, &dynamic[..16])], &[]),
            (&[(3, b"/lib/loader\0")], &["wants the loader /lib/loader"]),
            (&[(2, &dynamic)], &["needs 1 shared libraries"]),
        ] {
            let bytes = elf(segments);
            let needs = Elf::read(&bytes, 62).and_then(|elf| elf.needs()).unwrap();
            assert_eq!(needs, wanted);
            assert!(Elf::read(&bytes, 183).is_err());
            for length in 0..bytes.len() {
                // Cut off anywhere, it is refused or harmless, and never a panic.
                drop(Elf::read(&bytes[..length], 62).and_then(|elf| elf.needs()));
            }
        }
        assert!(Elf::read(b"#!/bin/sh\n", 62).is_err());
    }

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
    fn dynamic_program_is_not_static() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let needs = Elf::read(&bytes, 62).and_then(|elf| elf.needs()).unwrap();
        assert!(needs.len() == 2 && needs[0].starts_with("wants the loader /"), "{needs:?}");
    }
}
