//! What every crate has: a first comment that says what it is for, and the lints of the workspace.

use super::Finding;
use crate::repo::Repo;
use toml::{Table, Value};

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    let folders = repo.crates().into_iter().map(|name| format!("crates/{name}"));
    for folder in folders.chain(repo.exists("xtask/Cargo.toml").then(|| "xtask".to_owned())) {
        let roots = ["lib.rs", "main.rs"].map(|file| format!("{folder}/src/{file}"));
        for root in roots.iter().filter(|root| repo.files.contains_key(*root)) {
            let first = repo.files[root].lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
            if !first.starts_with("//! ") {
                findings.push(Finding::fault(
                    root,
                    1,
                    "open with //!: what it is for, and what it must not know",
                ));
            } else if first.contains("Placeholder") {
                findings.push(Finding::fault(root, 1, "is still a placeholder"));
            }
        }
        if !roots.iter().any(|root| repo.files.contains_key(root)) {
            findings.push(Finding::fault(
                &format!("{folder}/Cargo.toml"),
                0,
                "has neither src/lib.rs nor src/main.rs",
            ));
        }
        let path = format!("{folder}/Cargo.toml");
        // A manifest that does not parse is the arrows rule's finding.
        let Ok(manifest) = repo.files.get(&path).map_or("", String::as_str).parse::<Table>() else {
            continue;
        };
        let inherits = |section: &str, key: &str| {
            let value = manifest.get(section).and_then(|section| section.get(key));
            let inherited = value
                .and_then(|value| value.get("workspace"))
                .or_else(|| value.filter(|value| value.is_bool()));
            inherited.and_then(Value::as_bool) == Some(true)
        };
        if !inherits("lints", "workspace") {
            findings.push(Finding::fault(
                &path,
                0,
                "takes the lints of the workspace: [lints] workspace = true",
            ));
        }
        for key in ["version", "edition", "rust-version", "license"] {
            if !inherits("package", key) {
                findings.push(Finding::fault(
                    &path,
                    0,
                    format!("takes {key} from the workspace: {key}.workspace = true"),
                ));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    const MANIFEST: &str = "[package]\nname = \"a\"\nversion.workspace = true\nedition.workspace = true\nrust-version.workspace = true\nlicense.workspace = true\n[lints]\nworkspace = true\n";

    #[test]
    fn a_crate_says_what_it_is_for() {
        expect(check, &[("crates/a/Cargo.toml", MANIFEST), ("crates/a/src/lib.rs", "\n//! Knots.\n")], &[]);
        expect(
            check,
            &[
                ("crates/a/Cargo.toml", MANIFEST),
                ("crates/a/src/lib.rs", "// Knots.\nmod x;\n"),
                ("crates/a/src/main.rs", "//! Placeholder\n"),
                ("crates/b/Cargo.toml", MANIFEST),
            ],
            &[
                "crates/a/src/lib.rs:1: open with //!: what it is for, and what it must not know",
                "crates/a/src/main.rs:1: is still a placeholder",
                "crates/b/Cargo.toml: has neither src/lib.rs nor src/main.rs",
            ],
        );
    }

    #[test]
    fn a_crate_follows_the_workspace() {
        let manifest = MANIFEST
            .replace("[lints]\nworkspace = true\n", "")
            .replace("license.workspace = true", "license = \"MIT\"");
        expect(
            check,
            &[("crates/a/Cargo.toml", &manifest), ("crates/a/src/lib.rs", "//! Knots.")],
            &[
                "crates/a/Cargo.toml: takes license from the workspace: license.workspace = true",
                "crates/a/Cargo.toml: takes the lints of the workspace: [lints] workspace = true",
            ],
        );
    }
}
