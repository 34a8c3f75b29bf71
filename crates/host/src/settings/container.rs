//! The settings of sandboxes of a scope, and of their containers.

use std::path::{Path, PathBuf};

use quipu::{AccessMode, ContainerEngine, ContainerLimits, ContainerMount};
use serde_json::Value;

use super::tools::UNREADABLE;

/// Which sessions work in a sandbox of a scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxMode {
    /// None.
    #[default]
    Off,
    /// All but the main conversation of an agent.
    NonMain,
    /// All.
    All,
}

/// Which sessions share a sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxScope {
    /// Those of an agent.
    #[default]
    Agent,
    /// None.
    Session,
    /// All.
    Shared,
}

/// What the sessions of a sandbox have of their workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SandboxWorkspace {
    /// Nothing: they work in a folder of the sandbox.
    #[default]
    Own,
    /// They read it.
    Read,
    /// They read and change it.
    Write,
}

/// What containers are made of, as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSettings {
    /// What keeps them.
    pub engine: ContainerEngine,
    /// The image; empty where none is named.
    pub image: String,
    /// The program that runs them.
    pub runtime: Option<String>,
    /// The name of their network.
    pub network: String,
    /// What their names begin with.
    pub prefix: String,
    /// How much of the machine they use.
    pub limits: ContainerLimits,
    /// More of this machine.
    pub mounts: Vec<ContainerMount>,
    /// Variables that commands get.
    pub variables: Vec<String>,
}

impl SandboxMode {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("all") => Self::All,
            Some("non-main") => Self::NonMain,
            Some(_) | None => Self::Off,
        }
    }
}

impl SandboxScope {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("session") => Self::Session,
            Some("shared") => Self::Shared,
            Some(_) | None => Self::Agent,
        }
    }
}

impl SandboxWorkspace {
    pub(super) fn of_word(word: Option<&str>) -> Self {
        match word {
            Some("ro") => Self::Read,
            Some("rw") => Self::Write,
            Some(_) | None => Self::Own,
        }
    }
}

impl ContainerSettings {
    /// `None` where commands run in namespaces.
    pub(super) fn of_values<'a>(value: &impl Fn(&str) -> Option<&'a Value>) -> Option<Self> {
        let text = |name: &str| value(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| value(name).and_then(Value::as_u64);
        let texts = |name: &str| {
            value(name).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        };
        let engine = match text("sandbox.backend").as_deref() {
            Some("namespaces") | None => return None,
            // The default one may confine less.
            Some(_) if text("sandbox.runtime").as_deref() == Some(UNREADABLE) => ContainerEngine::Unreadable,
            Some("podman") => ContainerEngine::Podman,
            Some("docker") => ContainerEngine::Docker,
            Some(_) => ContainerEngine::Unreadable,
        };
        Some(Self {
            engine,
            image: text("sandbox.image").unwrap_or_default(),
            runtime: text("sandbox.runtime"),
            network: text("sandbox.containerNetwork").unwrap_or_else(|| "none".to_owned()),
            prefix: text("sandbox.prefix").unwrap_or_else(|| "quipu-sbx-".to_owned()),
            limits: ContainerLimits {
                processes: number("sandbox.processes"),
                memory: number("sandbox.memoryMiB").map(|size| size.saturating_mul(1 << 20)),
                processors: number("sandbox.cpus"),
            },
            mounts: texts("sandbox.mounts").filter_map(mount_of).collect(),
            variables: texts("sandbox.variables").map(str::to_owned).collect(),
        })
    }
}

/// A mount as it is written: `HOST:PLACE`, with `:rw` behind it where it may be changed.
pub(super) fn mount_of(text: &str) -> Option<ContainerMount> {
    let (rest, access) = match (text.strip_suffix(":rw"), text.strip_suffix(":ro")) {
        (Some(rest), _) => (rest, AccessMode::Write),
        (None, Some(rest)) => (rest, AccessMode::Read),
        (None, None) => (text, AccessMode::Read),
    };
    let (source, target) = rest.split_once(':')?;
    let are_plain =
        Path::new(source).is_absolute() && Path::new(target).is_absolute() && !target.contains(':');
    are_plain.then(|| ContainerMount { source: PathBuf::from(source), target: PathBuf::from(target), access })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_only_unless_they_say_otherwise() {
        for (text, access) in
            [("/a:/b", AccessMode::Read), ("/a:/b:ro", AccessMode::Read), ("/a:/b:rw", AccessMode::Write)]
        {
            assert_eq!(
                mount_of(text),
                Some(ContainerMount { source: "/a".into(), target: "/b".into(), access })
            );
        }
        for text in ["", "/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:rw:rw", ":/b"] {
            assert_eq!(mount_of(text), None, "{text}");
        }
    }
}
