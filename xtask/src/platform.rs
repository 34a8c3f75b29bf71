//! The machines that have a static binary, and what others call them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// A machine with a static Linux binary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// The target of the compiler.
    pub(crate) target: &'static str,
    /// The machine in the header of the binary.
    pub(crate) machine: u16,
    /// The machine as `uname -m` prints it.
    pub(crate) name: &'static str,
    /// The machine as npm has it (`cpu`).
    pub(crate) npm: &'static str,
    /// The tags of a wheel. A static binary needs no C library, so it is good for each.
    pub(crate) wheel: [&'static str; 3],
}

pub(crate) static PLATFORMS: [Platform; 2] = [
    Platform {
        target: "x86_64-unknown-linux-musl",
        machine: 62,
        name: "x86_64",
        npm: "x64",
        wheel: ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"],
    },
    Platform {
        target: "aarch64-unknown-linux-musl",
        machine: 183,
        name: "aarch64",
        npm: "arm64",
        wheel: ["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"],
    },
];

/// Lets everybody run a file.
///
/// # Errors
/// When its mode cannot be changed.
pub(crate) fn make_executable(file: &Path) -> Result<()> {
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(file, mode).with_context(|| format!("cannot change {}", file.display()))
}
