//! Packages of skills, templates, agents and MCP servers: fetched from a registry of npm packages, a Git repository or a directory, listed for a
//! person, and kept as they were accepted.
//!
//! A package is files. Nothing of it is run here, neither when it is fetched nor later. Its identity is a hash of its files: what has
//! another hash than the accepted one is not used. It must not know what a skill or template says.

mod archive;
mod content;
mod git;
mod installed;
mod npm;
mod prepare;
mod spec;
mod tree;

pub(crate) use content::AGENTS;
pub use content::{PackageContent, TemplateFile};
pub use installed::{InstalledPackage, PackageState, installed_packages, package_state, remove_package};
pub(crate) use installed::{package_roots, package_server_files, usable_packages};
pub use prepare::{PackageChanges, PreparedPackage, prepare_package};
pub use spec::PackageSource;
pub use tree::PackageFile;

/// The directory of packages in the home.
const DIRECTORY: &str = "packages";
/// The variable that stands for the directory of a package in the configuration of its servers.
pub(crate) const ROOT_VARIABLE: &str = include_str!("plugin_root.txt").trim_ascii_end();
