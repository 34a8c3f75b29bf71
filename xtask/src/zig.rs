//! Zig's C compiler, which builds C for other machines without anything of theirs. It comes from PyPI.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::platform::make_executable;

/// The version that builds were tried with.
const PACKAGE: &str = "ziglang==0.17.1";

/// Compiles without what is asked for by the names of other compilers.
const WRAPPER: &str = r#"#!/bin/sh
# Written by `cargo xtask`. Zig has its own names of targets, and its own headers of every system.
skip=
for argument do
  shift
  if [ -n "$skip" ]; then skip=; continue; fi
  case $argument in
    -arch | -isysroot | -target) skip=yes ;;
    --target=* | -mmacosx-version-min=* | --sysroot=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "PYTHON" -m ziglang COMMAND "$@"
"#;

/// A Python that has Zig.
pub(crate) struct Zig {
    python: PathBuf,
}

/// What builds C for another machine.
pub(crate) struct CrossTools {
    pub(crate) compiler: PathBuf,
    pub(crate) archiver: PathBuf,
}

impl Zig {
    /// Finds it, or installs it into `target/zig`.
    ///
    /// # Errors
    /// When it is not there, and cannot be had.
    pub(crate) fn have(root: &Path) -> Result<Self> {
        let folder = root.join("target").join("zig");
        let zig = Self { python: folder.join("bin").join("python3") };
        if zig.works() {
            return Ok(zig);
        }
        println!("zig: installing {PACKAGE} into {}", folder.display());
        let run = |program: &Path, arguments: &[&str]| -> Result<()> {
            let output = Command::new(program).args(arguments).output();
            let output = output.with_context(|| format!("{} cannot be run", program.display()))?;
            ensure!(
                output.status.success(),
                "{} {} failed: {}",
                program.display(),
                arguments.join(" "),
                String::from_utf8_lossy(&output.stderr).trim()
            );
            Ok(())
        };
        let place = folder.display().to_string();
        run(Path::new("python3"), &["-m", "venv", &place])?;
        run(&zig.python, &["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE])?;
        if !zig.works() {
            bail!("{PACKAGE} is installed in {}, but does not run", folder.display());
        }
        Ok(zig)
    }

    fn works(&self) -> bool {
        let output = Command::new(&self.python).args(["-m", "ziglang", "version"]).output();
        output.is_ok_and(|output| output.status.success())
    }

    /// The compiler and the archiver for a target of Rust's.
    ///
    /// # Errors
    /// When they cannot be written.
    pub(crate) fn tools(&self, root: &Path, target: &str) -> Result<CrossTools> {
        let folder = root.join("target").join("zig").join("tools");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        // Without an optimisation it would check for undefined behaviour, and want its own library for that.
        let compile = format!("cc -target {} -fno-sanitize=all -Wno-date-time", zig_target(target)?);
        let write = |name: &str, command: &str| -> Result<PathBuf> {
            let file = folder.join(format!("{name}-{target}"));
            let text =
                WRAPPER.replace("PYTHON", &self.python.display().to_string()).replace("COMMAND", command);
            std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))?;
            make_executable(&file)?;
            Ok(file)
        };
        Ok(CrossTools { compiler: write("cc", &compile)?, archiver: write("ar", "ar")? })
    }
}

fn zig_target(target: &str) -> Result<&'static str> {
    Ok(match target {
        "aarch64-unknown-linux-musl" => "aarch64-linux-musl",
        "x86_64-unknown-linux-musl" => "x86_64-linux-musl",
        "aarch64-apple-darwin" => "aarch64-macos",
        "x86_64-pc-windows-gnu" => "x86_64-windows-gnu",
        other => bail!("no name is known that Zig has for {other}"),
    })
}
