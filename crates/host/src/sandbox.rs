//! What the sandbox of commands is made of: `sandbox` of `settings.json`, and ourselves as its keeper.

use quipu::{Doors, Launcher, Network, Permissions};

use crate::Place;

/// The argument with which we become the keeper of a sandbox.
pub const SANDBOX: &str = "__sandbox";

/// Ourselves, also when we were replaced meanwhile.
pub fn launcher() -> Launcher {
    Launcher { program: "/proc/self/exe".into(), arguments: vec![SANDBOX.into()] }
}

/// What may stand in `sandbox` of `settings.json`.
const KNOWN: [&str; 6] = ["caches", "namespaces", "network", "ports", "services", "write"];

/// What `settings.json` says of the network of commands (`sandbox.network`), and whether they run in namespaces
/// (`sandbox.namespaces`).
pub(crate) fn isolation(place: &Place) -> (Network, bool) {
    let settings = place.settings_json().unwrap_or_default();
    let network = match settings.pointer("/sandbox/network").map(|value| value.as_str().unwrap_or_default()) {
        None | Some("ask") => Network::Asked,
        Some("open") => Network::Open,
        Some("closed") => Network::Closed,
        Some(_) => {
            place.warn_of_settings("sandbox.network must be ask, open or closed; it is asked");
            Network::Asked
        }
    };
    if let Some(sandbox) = settings.get("sandbox") {
        let unknown = sandbox
            .as_object()
            .into_iter()
            .flat_map(|all| all.keys())
            .find(|key| !KNOWN.contains(&key.as_str()));
        let known = KNOWN.join(", ");
        match unknown {
            _ if !sandbox.is_object() => {
                place.warn_of_settings(format!("sandbox must be an object, with {known}; the defaults hold"));
            }
            Some(key) => place.warn_of_settings(format!("sandbox.{key} is no setting; there are {known}")),
            None => {}
        }
    }
    let isolated = settings.pointer("/sandbox/namespaces").map(serde_json::Value::as_bool);
    if isolated == Some(None) {
        place.warn_of_settings("sandbox.namespaces must be true or false; it is true");
    }
    (network, isolated.flatten().unwrap_or(true))
}

/// Whether what commands write to caches is kept apart for each project (`sandbox.caches`). A wrong word is told if `tells`.
pub(crate) fn keeps_caches_apart(place: &Place, tells: bool) -> bool {
    let settings = place.settings_json().unwrap_or_default();
    let word = settings.pointer("/sandbox/caches").map(|value| value.as_str().unwrap_or_default());
    if tells && !matches!(word, None | Some("private" | "shared")) {
        place.warn_of_settings("sandbox.caches must be private or shared; it is private");
    }
    word != Some("shared")
}

/// What `settings.json` opens between the network of commands and this machine: `sandbox.ports`, `sandbox.services`.
pub(crate) fn doors(place: &Place) -> Doors {
    let settings = place.settings_json().unwrap_or_default();
    let warn = |problem: &str| place.warn_of_settings(format!("{problem}; it is left out"));
    let list = |name: &str| match settings.pointer(&format!("/sandbox/{name}")) {
        None => Vec::new(),
        Some(serde_json::Value::Array(list)) => list.clone(),
        Some(_) => {
            warn(&format!("sandbox.{name} must be a list"));
            Vec::new()
        }
    };
    let mut doors = Doors::default();
    for port in list("ports") {
        match port.as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0) {
            Some(port) => doors.ports.push(port),
            None => warn(&format!("sandbox.ports holds {port}, which is not a port (1 to 65535)")),
        }
    }
    for service in list("services") {
        match service.as_str() {
            Some(socket) if socket.starts_with('/') => {
                if !std::path::Path::new(socket).exists() {
                    place.warn_of_settings(format!(
                        "sandbox.services names {socket}, where nothing is now; commands do not reach it until a session \
                         begins while it is there"
                    ));
                }
                doors.sockets.push(socket.into());
            }
            Some(address) if is_address(address) => doors.services.push(address.to_owned()),
            _ => warn(&format!(
                "sandbox.services holds {service}, which is neither `HOST:PORT` nor the absolute path of a socket"
            )),
        }
    }
    doors
}

fn is_address(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// Why commands do not run in namespaces, and what is open then.
pub fn isolation_here(permissions: &Permissions) -> Option<String> {
    let sandbox = quipu::Policy::sandbox(permissions)?;
    let why = match sandbox.isolation() {
        Ok(Ok(())) => return None,
        Ok(Err(why)) => why.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "not in namespaces ({why}), so that these are open to them: the network, sockets with a path, reading secrets in the \
         home directory, .git/config and hooks, other processes' names"
    ))
}
