//! Nothing in the project names the machine that it was written on.

use super::Finding;
use crate::repo::{Repo, Role};

/// Folders of one machine; a project may be anywhere.
const MACHINE_FOLDERS: &[&str] = &["/work/", "/root/"];
/// Clients know their registries; a host in a file breaks everyone behind a mirror.
const REGISTRY_HOSTS: &[&str] = &[
    "files.pythonhosted.org",
    "index.crates.io",
    "proxy.golang.org",
    "pypi.org/simple",
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "static.crates.io",
];

/// The client of such a registry, which has to know it where nobody names another.
const CLIENTS: &[&str] = &["crates/host/src/packages/npm.rs"];

pub(crate) fn check(repo: &Repo) -> Vec<Finding> {
    let mut findings = Vec::new();
    // This folder holds the very words that it looks for.
    for (path, text) in repo.files.iter().filter(|(path, _)| !path.starts_with("xtask/src/tidy/")) {
        for (index, content) in text.lines().enumerate() {
            let line = index + 1;
            let is_client = CLIENTS.iter().any(|client| path == client);
            for host in REGISTRY_HOSTS.iter().filter(|host| !is_client && content.contains(**host)) {
                findings.push(Finding::fault(path, line, format!("names the registry host {host}")));
            }
            let test =
                repo.role(path) == Role::Test || repo.rust.get(path).is_some_and(|file| file.is_test(line));
            if !test && let Some(folder) = machine_path(content) {
                findings.push(Finding::fault(path, line, format!("names a folder of one machine: {folder}")));
            }
        }
    }
    findings
}

/// The first absolute path of a machine in the line. A longer path that contains one, or a URL, is another matter.
fn machine_path(line: &str) -> Option<String> {
    let starts_path =
        |at: usize| !line[..at].ends_with(|last: char| last.is_alphanumeric() || "._-~}/*".contains(last));
    for folder in MACHINE_FOLDERS {
        if line.match_indices(folder).any(|(at, _)| starts_path(at)) {
            return Some((*folder).to_owned());
        }
    }
    line.match_indices("/home/").find_map(|(at, folder)| {
        let name: String =
            line[at + folder.len()..].chars().take_while(|next| next.is_alphanumeric()).collect();
        (starts_path(at) && !name.is_empty()).then(|| format!("{folder}{name}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::expect;

    #[test]
    fn paths_and_hosts_of_a_machine_are_found() {
        expect(
            check,
            &[
                (
                    "docs/a.md",
                    "see /work/x\nand `/home/ada/x`\nbut ~/work/x, /home/<name>, a/root/b, https://x.org/home/y\n",
                ),
                ("crates/a/tests/data/s.json", "{\"cwd\":\"/root/x\",\"from\":\"registry.npmjs.org\"}"),
                ("crates/a/src/lib.rs", "#[cfg(test)]\nmod tests {\n  const X: &str = \"/home/ada\";\n}\n"),
            ],
            &[
                "crates/a/tests/data/s.json:1: names the registry host registry.npmjs.org",
                "docs/a.md:1: names a folder of one machine: /work/",
                "docs/a.md:2: names a folder of one machine: /home/ada",
            ],
        );
    }
}
