//! Man pages and completions of shells. The program itself does not hold them: a test of it writes them, because its arguments are
//! known there.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::repo;

/// `pages DIR`: writes them below `DIR`.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let prefix = match arguments {
        [prefix] if !prefix.starts_with('-') => std::path::absolute(prefix)?,
        _ => bail!("usage: cargo xtask pages DIR"),
    };
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let ran = Command::new(cargo)
        .current_dir(repo::root()?)
        .args(["test", "--quiet", "--locked", "-p", "quipu-cli", "--bin", "quipu", "--"])
        .args(["--exact", "pages::pages_have_every_command_and_shells_can_read_them"])
        .env("QUIPU_PAGES_DIR", &prefix)
        .output()
        .context("cargo could not be started")?;
    ensure!(
        ran.status.success() && prefix.join("share/man/man1/quipu.1").is_file(),
        "the pages were not written:\n{}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
    println!("man pages and completions of bash, zsh and fish are below {}", prefix.join("share").display());
    Ok(true)
}
