//! Which crate may use which, as drawn in `docs/architecture.md`, and what the pure crates may use at all.

use super::Finding;
use crate::repo::Repo;
use std::collections::{BTreeMap, BTreeSet};
use toml::{Table, Value};

/// The arrows as drawn. A crate may use whatever its arrows reach; a crate that is not here is not drawn yet.
const DRAWN: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("dag", &["protocol"]),
    ("transcript", &["dag"]),
    ("store", &["transcript"]),
    ("machine", &["transcript"]),
    ("history", &["store"]),
    ("render", &["transcript"]),
    ("seal", &["protocol"]),
    ("providers", &["protocol"]),
    ("rules", &[]),
    ("policy", &[]),
    ("workspace", &["protocol", "rules"]),
    ("tools", &["workspace"]),
    ("archive", &["store", "seal"]),
    ("engine", &["machine", "history", "seal", "providers", "workspace", "tools"]),
    ("memory", &["engine", "archive"]),
    ("past", &["engine"]),
    ("schedule", &[]),
    ("outbound", &["protocol"]),
    ("persona", &[]),
    ("extensions", &["engine"]),
    ("mcp", &["engine"]),
    ("loopback", &[]),
    ("mcp-server", &["history", "loopback", "seal", "workspace"]),
    ("integrations", &["history", "seal"]),
    ("pi-extension", &["history", "archive"]),
    ("proxy", &["archive", "history", "loopback", "providers"]),
    ("web", &["engine"]),
    ("setup", &[]),
    ("replay", &["engine"]),
    (
        "host",
        &[
            "engine", "archive", "replay", "render", "mcp", "web", "memory", "past", "schedule", "policy",
            "persona",
        ],
    ),
    ("runtime", &["host", "rpc", "outbound"]),
    ("server", &["runtime", "loopback"]),
    ("acp", &["runtime"]),
    ("tui", &["host"]),
    ("gateway", &["engine"]),
    ("rpc", &["engine", "archive"]),
    (
        "cli",
        &[
            "acp",
            "runtime",
            "server",
            "rpc",
            "memory",
            "extensions",
            "mcp",
            "mcp-server",
            "integrations",
            "pi-extension",
            "proxy",
            "setup",
            "tui",
            "gateway",
        ],
    ),
    ("testkit", &["protocol"]),
    // Never shipped: its benchmarks drive the binary against the fake server.
    ("xtask", &["testkit"]),
];

/// Used by tests only, so no other crate may ship it.
const TESTS_ONLY: &str = "testkit";

/// Crates without IO, clock or randomness, and the libraries that would bring them in.
const PURE: &[&str] =
    &["protocol", "dag", "transcript", "seal", "machine", "rules", "outbound", "policy", "persona"];
const IMPURE_LIBRARIES: &[&str] = &[
    "tokio",
    "tokio-util",
    "reqwest",
    "rusqlite",
    "rand",
    "getrandom",
    "fastrand",
    "jiff",
    "nix",
    "rustix",
    "tempfile",
];

/// Libraries with one owner, so that their words stay in one place.
const OWNED_LIBRARIES: &[(&str, &[&str])] =
    &[("rusqlite", &["store", "testkit"]), ("reqwest", &["providers", "mcp", "web", "proxy"])];

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut manifests = BTreeMap::new();
    for path in repo.files.keys().filter(|path| is_manifest(path)) {
        match repo.files[path].parse::<Table>() {
            Ok(manifest) => {
                manifests.insert(path.as_str(), manifest);
            }
            Err(error) => findings.push(Finding::fault(path, 0, format!("not TOML: {}", error.message()))),
        }
    }
    // Cargo knows our crates by package name, the drawing by folder.
    let folders: BTreeMap<&str, &str> = manifests
        .iter()
        .filter_map(|(path, manifest)| Some((package_name(manifest)?, folder(path))))
        .collect();
    for (path, manifest) in &manifests {
        let name = folder(path);
        let Some(reachable) = reach(name) else {
            findings.push(Finding::fault(
                path,
                0,
                format!(
                    "{name} is not drawn: add its arrows to docs/architecture.md and xtask/src/tidy/arrows.rs"
                ),
            ));
            continue;
        };
        for dependency in shipped(manifest) {
            if let Some(&target) = folders.get(dependency) {
                if target == TESTS_ONLY && name != "xtask" {
                    findings.push(Finding::fault(
                        path,
                        0,
                        format!("{name} ships {TESTS_ONLY}; it is for [dev-dependencies] only"),
                    ));
                } else if !reachable.contains(target) {
                    findings.push(Finding::fault(path, 0, format!("no arrow leads from {name} to {target}")));
                }
            }
            if PURE.contains(&name) && IMPURE_LIBRARIES.contains(&dependency) {
                findings.push(Finding::fault(
                    path,
                    0,
                    format!("{name} is pure: it may not use {dependency}"),
                ));
            }
            if let Some((_, owners)) = OWNED_LIBRARIES.iter().find(|(library, _)| *library == dependency)
                && !owners.contains(&name)
            {
                findings.push(Finding::fault(
                    path,
                    0,
                    format!("{dependency} belongs to {}, not to {name}", owners.join(", ")),
                ));
            }
        }
    }
    findings
}

fn is_manifest(path: &str) -> bool {
    path == "xtask/Cargo.toml"
        || path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"))
            .is_some_and(|name| !name.contains('/'))
}

fn folder(path: &str) -> &str {
    path.trim_start_matches("crates/").trim_end_matches("/Cargo.toml")
}

fn package_name(manifest: &Table) -> Option<&str> {
    manifest.get("package")?.get("name")?.as_str()
}

/// Names in `[dependencies]` and `[build-dependencies]`, those of single targets included, renames undone.
fn shipped(manifest: &Table) -> BTreeSet<&str> {
    let targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    std::iter::once(manifest)
        .chain(targets.filter_map(Value::as_table))
        .flat_map(|table| ["dependencies", "build-dependencies"].map(|section| table.get(section)))
        .flatten()
        .filter_map(Value::as_table)
        .flatten()
        .map(|(name, value)| value.get("package").and_then(Value::as_str).unwrap_or(name))
        .collect()
}

/// Everything that the arrows from `name` lead to; none when it is not drawn.
fn reach(name: &str) -> Option<BTreeSet<&'static str>> {
    let arrows = |from: &str| DRAWN.iter().find(|(drawn, _)| *drawn == from).map(|(_, to)| *to);
    let mut reached = BTreeSet::new();
    let mut open: Vec<&'static str> = arrows(name)?.to_vec();
    while let Some(next) = open.pop() {
        if reached.insert(next) {
            open.extend(arrows(next).unwrap_or_default());
        }
    }
    Some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    const PROTOCOL: (&str, &str) = ("crates/protocol/Cargo.toml", "[package]\nname = \"quipu-protocol\"\n");
    const STORE: (&str, &str) = (
        "crates/store/Cargo.toml",
        "[package]\nname = \"quipu-store\"\n[dependencies]\nquipu-protocol.workspace = true\n",
    );
    const TESTKIT: (&str, &str) = ("crates/testkit/Cargo.toml", "[package]\nname = \"quipu-testkit\"\n");

    #[test]
    fn an_arrow_against_the_drawing_is_found() {
        let tools = "[package]\nname = \"quipu-tools\"\n[dependencies]\nquipu-protocol.workspace = true\n[target.'cfg(unix)'.dependencies]\nrecords = { package = \"quipu-store\", path = \"../store\" }\n";
        expect(
            check,
            &[PROTOCOL, STORE, ("crates/tools/Cargo.toml", tools)],
            &["crates/tools/Cargo.toml: no arrow leads from tools to store"],
        );
    }

    #[test]
    fn a_crate_nobody_drew_is_found() {
        expect(
            check,
            &[("crates/helpers/Cargo.toml", "[package]\nname = \"quipu-helpers\"\n")],
            &[
                "crates/helpers/Cargo.toml: helpers is not drawn: add its arrows to docs/architecture.md and xtask/src/tidy/arrows.rs",
            ],
        );
    }

    #[test]
    fn test_helpers_are_not_shipped() {
        let dev = "[package]\nname = \"quipu\"\n[dev-dependencies]\nquipu-testkit.workspace = true\n";
        expect(check, &[TESTKIT, ("crates/engine/Cargo.toml", dev)], &[]);
        let shipped = dev.replace("dev-dependencies", "dependencies");
        expect(
            check,
            &[TESTKIT, ("crates/engine/Cargo.toml", &shipped)],
            &["crates/engine/Cargo.toml: engine ships testkit; it is for [dev-dependencies] only"],
        );
    }

    #[test]
    fn libraries_stay_with_their_owners() {
        let seal = "[package]\nname = \"quipu-seal\"\n[dependencies]\ntokio = \"1\"\nrusqlite = \"0\"\n";
        expect(
            check,
            &[("crates/seal/Cargo.toml", seal)],
            &[
                "crates/seal/Cargo.toml: rusqlite belongs to store, testkit, not to seal",
                "crates/seal/Cargo.toml: seal is pure: it may not use rusqlite",
                "crates/seal/Cargo.toml: seal is pure: it may not use tokio",
            ],
        );
    }

    #[test]
    fn a_broken_manifest_is_named() {
        expect(
            check,
            &[("crates/dag/Cargo.toml", "[package\n")],
            &["crates/dag/Cargo.toml: not TOML: unclosed table, expected `]`"],
        );
    }

    #[test]
    fn the_drawing_has_no_circle() {
        for (name, _) in DRAWN {
            assert!(!reach(name).unwrap_or_default().contains(name), "{name} reaches itself");
        }
    }
}
