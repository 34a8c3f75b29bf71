//! Licences, bans and sources of every dependency, checked against `deny.toml`.
//!
//! cargo-deny reads the same file and knows more, but takes minutes to build; this needs `cargo metadata` alone, so
//! that CI can always enforce it. A key it does not know is an error: it never passes over a rule in silence.

mod licence;

use crate::repo;
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Config {
    #[expect(
        dead_code,
        reason = "asked of cargo metadata in any case; named here so that the file may say it"
    )]
    graph: Option<Graph>,
    licenses: Licenses,
    bans: Bans,
    sources: Sources,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Graph {
    #[expect(dead_code, reason = "cargo metadata is always asked for all features")]
    all_features: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Licenses {
    allow: BTreeSet<String>,
    #[serde(default)]
    exceptions: Vec<Exception>,
    #[expect(dead_code, reason = "only cargo-deny reads licence files; here a crate must name its licence")]
    confidence_threshold: Option<f64>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Exception {
    #[serde(rename = "crate")]
    name: String,
    allow: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Bans {
    deny: Vec<BannedCrate>,
    multiple_versions: Level,
    wildcards: Level,
    /// Paths inside the workspace carry no version; they are no wildcards.
    #[expect(dead_code, reason = "paths are never counted here; only cargo-deny has to be told")]
    #[serde(default)]
    allow_wildcard_paths: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct BannedCrate {
    #[serde(rename = "crate")]
    name: String,
    use_instead: Option<String>,
    reason: Option<String>,
    /// Crates that may use it all the same. Nobody else may.
    #[serde(default)]
    wrappers: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Sources {
    unknown_registry: Level,
    unknown_git: Level,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    Allow,
    Warn,
    Deny,
}

/// The part of `cargo metadata` that is needed here.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

/// Who uses whom, as the lock file says.
#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    /// Ids of the packages that it uses.
    dependencies: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    /// None for packages of the workspace.
    source: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    req: String,
    path: Option<String>,
}

/// How cargo names the one registry that is known.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    faults: Vec<String>,
    warnings: Vec<String>,
}

impl Report {
    fn add(&mut self, level: Level, message: String) {
        match level {
            Level::Allow => {}
            Level::Warn => self.warnings.push(message),
            Level::Deny => self.faults.push(message),
        }
    }
}

/// `cargo xtask deny`: our own reading of `deny.toml`, then cargo-deny's when it is installed.
pub(crate) fn run(arguments: &[String]) -> Result<bool> {
    if !arguments.is_empty() {
        bail!("deny takes no arguments, not {arguments:?}");
    }
    let root = repo::root()?;
    let text = std::fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;
    let config: Config =
        toml::from_str(&text).context("deny.toml has something that xtask deny does not know")?;
    let metadata = metadata(&root)?;
    let report = check(&config, &metadata);
    for warning in &report.warnings {
        println!("warning: {warning}");
    }
    for fault in &report.faults {
        println!("deny: {fault}");
    }
    println!("deny: {} packages, {} faults", metadata.packages.len(), report.faults.len());
    let second = cargo_deny(&root)?;
    Ok(report.faults.is_empty() && second)
}

fn metadata(root: &Path) -> Result<Metadata> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked"])
        .current_dir(root)
        .output()
        .context("cannot run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata --locked failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata printed something else")
}

/// True when cargo-deny agrees or is not there.
fn cargo_deny(root: &Path) -> Result<bool> {
    let there =
        Command::new("cargo-deny").arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        println!("deny: cargo-deny is not installed; deny.toml was read by xtask alone");
        return Ok(true);
    }
    let status = Command::new("cargo-deny")
        .args([
            "--log-level",
            "error",
            "--locked",
            "check",
            "--hide-inclusion-graph",
            "licenses",
            "bans",
            "sources",
        ])
        .current_dir(root)
        .status()
        .context("cannot run cargo-deny")?;
    Ok(status.success())
}

fn check(config: &Config, metadata: &Metadata) -> Report {
    let mut report = Report::default();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &metadata.packages {
        let name = format!("{} {}", package.name, package.version);
        versions.entry(&package.name).or_default().insert(&package.version);
        check_licence(config, package, &name, &mut report);
        if let Some(banned) = config.bans.deny.iter().find(|banned| banned.name == package.name) {
            check_ban(banned, metadata, package, &name, &mut report);
        }
        match package.source.as_deref() {
            None | Some(CRATES_IO) => {}
            Some(git) if git.starts_with("git+") => {
                report.add(config.sources.unknown_git, format!("{name} comes from {git}"));
            }
            Some(other) => report.add(config.sources.unknown_registry, format!("{name} comes from {other}")),
        }
        if package.source.is_none() {
            for dependency in package.dependencies.iter().filter(|one| one.req == "*" && one.path.is_none()) {
                report.add(config.bans.wildcards, format!("{name} takes any version of {}", dependency.name));
            }
        }
    }
    for (name, versions) in versions.iter().filter(|(_, versions)| versions.len() > 1) {
        let list = versions.iter().copied().collect::<Vec<_>>().join(", ");
        report.add(
            config.bans.multiple_versions,
            format!("{name} is there in {} versions: {list}", versions.len()),
        );
    }
    report
}

/// A banned crate is there: a fault, unless all that use it are its wrappers.
fn check_ban(banned: &BannedCrate, metadata: &Metadata, package: &Package, name: &str, report: &mut Report) {
    let reason = banned.reason.as_deref().unwrap_or("banned in deny.toml");
    let instead = banned.use_instead.as_ref().map_or(String::new(), |other| format!("; use {other}"));
    if banned.wrappers.is_empty() {
        report.faults.push(format!("{name} is banned: {reason}{instead}"));
        return;
    }
    let users = metadata.resolve.nodes.iter().filter(|node| node.dependencies.contains(&package.id));
    for node in users {
        let user =
            metadata.packages.iter().find(|user| user.id == node.id).map_or(&node.id, |user| &user.name);
        if !banned.wrappers.contains(user) {
            report.faults.push(format!("{name} is banned, but {user} uses it: {reason}{instead}"));
        }
    }
}

fn check_licence(config: &Config, package: &Package, name: &str, report: &mut Report) {
    let Some(expression) = &package.license else {
        report.faults.push(format!("{name} names no licence"));
        return;
    };
    let excepted = config.licenses.exceptions.iter().filter(|exception| exception.name == package.name);
    let mut allowed = config.licenses.allow.clone();
    allowed.extend(excepted.flat_map(|exception| exception.allow.iter().cloned()));
    match licence::satisfied(expression, &allowed) {
        Ok(true) => {}
        Ok(false) => {
            report.faults.push(format!("{name}: licence {expression} is not in the list of deny.toml"));
        }
        Err(error) => report.faults.push(format!("{name}: licence {expression:?} cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = r#"
        [licenses]
        allow = ["MIT"]
        exceptions = [{ crate = "roots", allow = ["CDLA-Permissive-2.0"] }]
        [bans]
        multiple-versions = "warn"
        wildcards = "deny"
        deny = [
            { crate = "openssl", use-instead = "rustls", reason = "one TLS" },
            { crate = "old", wrappers = ["fuzzer"], reason = "the standard library has it" },
        ]
        [sources]
        unknown-registry = "deny"
        unknown-git = "deny"
    "#;

    fn report(packages: &str, nodes: &str) -> Result<Report> {
        let metadata = format!("{{\"packages\":[{packages}],\"resolve\":{{\"nodes\":[{nodes}]}}}}");
        Ok(check(&toml::from_str(CONFIG)?, &serde_json::from_str(&metadata)?))
    }

    fn package(name: &str, version: &str, rest: &str) -> String {
        format!(
            "{{\"id\":\"{name}\",\"name\":\"{name}\",\"version\":\"{version}\",\"dependencies\":[],{rest}}}"
        )
    }

    #[test]
    fn each_kind_of_bad_dependency_is_found() -> Result<()> {
        let io = format!("\"source\":\"{CRATES_IO}\"");
        let ours = "{\"id\":\"ours\",\"name\":\"ours\",\"version\":\"0.1.0\",\"license\":\"MIT OR Apache-2.0\",\"source\":null,\"dependencies\":[{\"name\":\"any\",\"req\":\"*\",\"path\":null},{\"name\":\"sister\",\"req\":\"*\",\"path\":\"p\"}]}";
        let packages = [
            package("fine", "1.0.0", &format!("\"license\":\"MIT\",{io}")),
            package("fine", "2.0.0", &format!("\"license\":\"MIT/GPL-3.0\",{io}")),
            package("copyleft", "1.0.0", &format!("\"license\":\"GPL-3.0-only\",{io}")),
            package("silent", "1.0.0", &format!("\"license\":null,{io}")),
            package("garbled", "1.0.0", &format!("\"license\":\"MIT OR\",{io}")),
            package("roots", "1.0.0", &format!("\"license\":\"CDLA-Permissive-2.0\",{io}")),
            package("openssl", "0.10.0", &format!("\"license\":\"MIT\",{io}")),
            package("forked", "1.0.0", "\"license\":\"MIT\",\"source\":\"git+https://example.org/forked\""),
            package(
                "mirrored",
                "1.0.0",
                "\"license\":\"MIT\",\"source\":\"registry+https://example.org/index\"",
            ),
            ours.to_owned(),
        ];
        let report = report(&packages.join(","), "")?;
        assert_eq!(
            report.faults,
            [
                "copyleft 1.0.0: licence GPL-3.0-only is not in the list of deny.toml",
                "silent 1.0.0 names no licence",
                "garbled 1.0.0: licence \"MIT OR\" cannot be read: ends where a licence should stand",
                "openssl 0.10.0 is banned: one TLS; use rustls",
                "forked 1.0.0 comes from git+https://example.org/forked",
                "mirrored 1.0.0 comes from registry+https://example.org/index",
                "ours 0.1.0 takes any version of any",
            ]
        );
        assert_eq!(report.warnings, ["fine is there in 2 versions: 1.0.0, 2.0.0"]);
        Ok(())
    }

    #[test]
    fn a_banned_crate_is_left_to_its_wrappers() -> Result<()> {
        let packages = ["old", "fuzzer", "other"]
            .map(|name| package(name, "1.0.0", &format!("\"license\":\"MIT\",\"source\":\"{CRATES_IO}\"")))
            .join(",");
        let uses = |user: &str| format!("{{\"id\":\"{user}\",\"dependencies\":[\"old\"]}}");
        assert_eq!(report(&packages, &uses("fuzzer"))?, Report::default());
        assert_eq!(
            report(&packages, &format!("{},{}", uses("fuzzer"), uses("other")))?.faults,
            ["old 1.0.0 is banned, but other uses it: the standard library has it"]
        );
        Ok(())
    }

    #[test]
    fn an_unknown_rule_is_refused() {
        let config = CONFIG.replace("[sources]", "[sources]\nallow-org = {}\n");
        assert!(toml::from_str::<Config>(&config).is_err());
    }
}
