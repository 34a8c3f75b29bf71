//! What the sandbox of commands is made of: `sandbox` of the settings, and ourselves as its keeper.

use quipu::{Doors, Launcher, Permissions};

use crate::Home;

/// The argument with which we become the keeper of a sandbox.
pub const SANDBOX: &str = "__sandbox";

/// Ourselves, also when we were replaced meanwhile.
pub fn launcher() -> Launcher {
    Launcher { program: "/proc/self/exe".into(), arguments: vec![SANDBOX.into()] }
}

/// What the settings open between the network of commands and this machine: `sandbox.ports`, `sandbox.services`.
pub(crate) fn doors(home: &Home) -> Doors {
    let sandbox = &home.config().sandbox;
    let mut doors = Doors { ports: sandbox.ports.clone(), ..Doors::default() };
    for service in &sandbox.services {
        if !service.starts_with('/') {
            doors.services.push(service.clone());
            continue;
        }
        if !std::path::Path::new(service).exists() {
            home.warn_of_settings(format!(
                "sandbox.services names {service}, which does not exist; commands reach it only in sessions that start while it exists"
            ));
        }
        doors.sockets.push(service.into());
    }
    doors
}

/// Why commands do not run in namespaces, and what they can reach then.
pub fn isolation_here(permissions: &Permissions) -> Option<String> {
    let sandbox = quipu::Policy::sandbox(permissions)?;
    let why = match sandbox.isolation() {
        Ok(Ok(())) => return None,
        Ok(Err(why)) => why.to_string(),
        Err(error) => error.to_string(),
    };
    Some(format!(
        "commands run without namespaces ({why}), so they can use the network (unless it is closed) and Unix sockets, read secrets in the home directory, write .git/config and git hooks, and see other processes"
    ))
}
