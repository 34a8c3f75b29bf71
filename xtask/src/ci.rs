//! The steps of CI on this machine. `.ci/run` alone lists them, so that the two can never differ.

use crate::repo;
use anyhow::{Context, Result, bail};
use std::process::Command;

/// `cargo xtask ci [--full]`: true when every step passed.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    let root = repo::root()?;
    let mut command = Command::new("bash");
    // Its own installs are for a new machine; here the developer decides what is installed.
    command.args([".ci/run", "--no-install"]).current_dir(root);
    match arguments {
        [] => {}
        [flag] if flag == "--full" => {
            command.env("QUIPU_FULL", "1");
        }
        other => bail!("ci takes only --full, not {other:?}"),
    }
    let status = command.status().context("cannot run bash .ci/run")?;
    Ok(status.success())
}
