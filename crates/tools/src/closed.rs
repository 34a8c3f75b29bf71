//! What the model is told after a command that met something closed.

use quipu_workspace::{CommandNeeds, Network, Sandbox, names_secret};

/// How programs say that there is no network.
const NO_NETWORK: [&str; 12] = [
    "Network is unreachable",
    "network is unreachable",
    "Could not resolve",
    "could not resolve",
    "Couldn't resolve",
    "Temporary failure in name resolution",
    "Name or service not known",
    "EAI_AGAIN",
    "ENETUNREACH",
    "ENOTFOUND",
    "dns error",
    "no such host",
];
/// How they say that nothing listens on this machine.
const REFUSED: [&str; 5] = [
    "Connection refused",
    "connection refused",
    "ECONNREFUSED",
    "Failed to connect to 127.0.0.1",
    "Failed to connect to localhost",
];
/// How they say that a service with a socket is not there.
const NO_SERVICE: [&str; 4] = [
    "Cannot connect to the Docker daemon",
    "connect to the Docker API",
    "Cannot connect to Podman",
    "Could not open a connection to your authentication agent",
];
/// How they say that something cannot be changed.
const READ_ONLY: [&str; 5] =
    ["Read-only file system", "read-only file system", "EROFS", "Device or resource busy", "EBUSY"];
/// How they say that a namespace cannot be made.
const NO_NAMESPACE: [&str; 7] = [
    "unshare failed",
    "No permissions to create new namespace",
    "reating new namespace failed",
    "No usable sandbox",
    "cannot clone: ",
    "cannot re-exec process",
    "newuidmap",
];
/// How they say that there is no key and no login.
const NO_LOGIN: [&str; 7] = [
    "Permission denied (publickey",
    "Host key verification failed",
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "gpg failed to sign",
    "No secret key",
];

/// What was closed to a command in namespaces, as far as what it printed shows that it met it. `failed`: it ended so; of one
/// that did not, only what reads like a complaint of a program counts.
pub(crate) fn closed(text: &str, failed: bool, needs: CommandNeeds, sandbox: &Sandbox) -> Option<String> {
    if !sandbox.isolation().is_ok_and(|isolated| isolated.is_ok()) {
        return None;
    }
    let met = text
        .lines()
        .filter(|line| failed || is_complaint(line))
        .fold(DenialSigns::default(), DenialSigns::and);
    if let Some(containers) = sandbox.containers() {
        let mut told = Vec::new();
        if met.network && containers.network == "none" {
            told.push("Commands run in a container that has no network.");
        }
        if met.read_only {
            told.push(
                "In the container only the working directory, as far as the user allows it, /tmp, /var/tmp and /run can be \
                 changed; files that configure git, agents, editors and shells cannot.",
            );
        }
        return (!told.is_empty()).then(|| format!("[{}]", told.join(" ")));
    }
    let network = sandbox.network();
    let mut told: Vec<String> = Vec::new();
    let hosts = sandbox.hosts().filter(|_| !needs.network);
    let refused = hosts.map(|hosts| hosts.take_refused()).unwrap_or_default();
    if !refused.is_empty() {
        let rules = refused.iter().map(|rule| format!("`{rule}`")).collect::<Vec<_>>().join(", ");
        told.push(format!(
            "The proxy refused hosts that no permission rule allows; rules that the user can add: {rules}."
        ));
    }
    if met.network && !needs.network && network != Network::Open {
        told.push(match network {
            Network::Closed => "The user denies commands the network.".into(),
            _ if hosts.is_some() => "Commands reach hosts only through the proxy that HTTPS_PROXY names, and only those that a permission rule `network(HOST)` of the user allows; programs that use no proxy reach none. A call with `network` asks the user for the network.".into(),
            _ => "Commands have no network by default; a call with `network` asks the user for it.".into(),
        });
    }
    if met.refused && network != Network::Open {
        let asked = match network {
            Network::Closed => "",
            _ => ", calls with it those of this machine",
        };
        told.push(format!(
            "On localhost, calls without `network` reach servers that such calls started and what the user names in \
             `sandbox.services`{asked}."
        ));
    }
    if met.service {
        told.push(
            "Sockets of services on this machine are closed, except those that the user names in `sandbox.services`."
                .into(),
        );
    }
    if met.read_only {
        let configuration = if needs.protected {
            ""
        } else {
            " .git/config, git hooks and files that configure agents, editors and shells are read-only as well, and programs may have continued without changing them; a call with `protected` asks the user for them."
        };
        told.push(format!(
            "Commands cannot change files outside of the working directory, $TMPDIR and the usual caches.{configuration}"
        ));
    }
    if met.namespace {
        told.push(
            "Commands cannot make namespaces of their own, as containers and the sandboxes of browsers do."
                .into(),
        );
    }
    if met.secret {
        told.push(
            "Keys and logins of the user are hidden from commands, whether or not they exist; the user must run what needs them."
                .into(),
        );
    }
    (!told.is_empty()).then(|| format!("[{}]", told.join(" ")))
}

/// Kinds of denials that the output of a command shows.
#[derive(Default)]
struct DenialSigns {
    network: bool,
    refused: bool,
    service: bool,
    read_only: bool,
    namespace: bool,
    secret: bool,
}

impl DenialSigns {
    fn and(self, line: &str) -> Self {
        let says = |signs: &[&str]| signs.iter().any(|sign| line.contains(sign));
        let is_missing = ["No such file or directory", "ermission denied", "ENOENT", "EACCES"];
        Self {
            network: self.network || says(&NO_NETWORK),
            refused: self.refused || says(&REFUSED),
            service: self.service || says(&NO_SERVICE),
            read_only: self.read_only || says(&READ_ONLY),
            namespace: self.namespace || says(&NO_NAMESPACE),
            secret: self.secret || says(&NO_LOGIN) || (says(&is_missing) && names_secret(line)),
        }
    }
}

/// Whether a line reads like what a program says of its failure (`git: …`, `error: …`), not like a line of a file.
fn is_complaint(line: &str) -> bool {
    let line = line.trim_start();
    let said_by = line.split_once(':').map(|(by, _)| by.rsplit('/').next().unwrap_or(by));
    let is_program = |name: &str| {
        (1..=16).contains(&name.len())
            && name.chars().all(|char| char.is_ascii_alphanumeric() || "-_+".contains(char))
    };
    said_by.is_some_and(is_program)
        || ["npm err", "npm ERR", "Cannot connect to"].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_told_from_lines_of_files() {
        for line in [
            "error: unable to unlink old 'AGENTS.md': Device or resource busy",
            "/bin/bash: line 1: /etc/x: Read-only file system",
            "fatal: unable to access 'https://example.com/a/': Could not resolve host: example.com",
            "npm error code EAI_AGAIN",
        ] {
            assert!(is_complaint(line), "{line}");
        }
        for line in
            ["    \"ENOTFOUND\",", "src/net.rs:12: \"EROFS\"", "12: EROFS is told when", "", "a b: EROFS"]
        {
            assert!(!is_complaint(line) || line.starts_with("12"), "{line}");
        }
    }
}
