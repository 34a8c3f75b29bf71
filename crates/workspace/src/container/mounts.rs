//! What of this machine may be mounted in a container, and where.

use std::path::{Component, Path, PathBuf};

use super::ContainerError;
use crate::{AccessMode, file_key};

/// A directory or file of this machine in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// What is mounted: absolute.
    pub source: PathBuf,
    /// Where it is in the container: absolute.
    pub target: PathBuf,
    /// Whether commands change it.
    pub access: AccessMode,
}

/// Neither they nor what is below them.
const SYSTEM: [&str; 7] = ["/etc", "/proc", "/sys", "/dev", "/boot", "/run", "/var/run"];
/// In a container they are its own.
const OWN: [&str; 5] = ["/proc", "/sys", "/dev", "/etc", "/run"];
/// Sockets by which a program starts containers as it likes, wherever they are.
const SOCKETS: [&str; 4] = ["docker.sock", "podman.sock", "containerd.sock", "crio.sock"];

impl ContainerMount {
    /// The mount as an argument, after a look at both ends: the source by where it truly leads.
    pub(super) fn argument(&self, home: Option<&Path>, hidden: &[PathBuf]) -> Result<String, ContainerError> {
        let refused = |path: &Path, why| ContainerError::Mount { path: path.to_path_buf(), why };
        let source = self.checked(home, hidden)?;
        let is_plain = self.target.is_absolute()
            && self.target.parent().is_some()
            && self.target.components().all(|part| !matches!(part, Component::ParentDir | Component::CurDir));
        if !is_plain {
            return Err(refused(&self.target, "a place in a container is an absolute path below `/`"));
        }
        if OWN.iter().any(|own| self.target.starts_with(own)) {
            return Err(refused(&self.target, "this place belongs to the container itself"));
        }
        let text = |path: &Path| {
            let plain = path.to_str().filter(|text| !text.contains([',', '"', '\n']));
            plain.map(str::to_owned).ok_or_else(|| {
                refused(path, "its name has a comma, a quote, a line feed, or bytes that are not text")
            })
        };
        let reads = match self.access {
            AccessMode::Read => ",readonly",
            AccessMode::Write => "",
        };
        Ok(format!("type=bind,source={},destination={}{reads}", text(&source)?, text(&self.target)?))
    }

    /// The true path of the source, where it may be mounted.
    fn checked(&self, home: Option<&Path>, hidden: &[PathBuf]) -> Result<PathBuf, ContainerError> {
        let source = file_key(&self.source);
        let refused = |why| Err(ContainerError::Mount { path: self.source.clone(), why });
        if !self.source.is_absolute() {
            return refused("its path is not absolute");
        }
        if source.parent().is_none() {
            return refused("it is the whole file system");
        }
        if SYSTEM
            .iter()
            .any(|system| source.starts_with(system) || source.starts_with(file_key(Path::new(system))))
        {
            return refused("it belongs to the system");
        }
        let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if SOCKETS.contains(&name) || SOCKETS.iter().any(|socket| source.join(socket).exists()) {
            return refused("whoever reaches the socket there starts containers as he likes");
        }
        if let Some(home) = home {
            let home = file_key(home);
            if home.starts_with(&source) {
                return refused("it holds the home directory, where programs keep secrets");
            }
            let names = crate::protected::lines(include_str!("../secrets.txt"));
            let secrets: Vec<PathBuf> = names.map(|name| file_key(&home.join(name))).collect();
            if secrets.iter().any(|secret| source.starts_with(secret)) {
                return refused("programs keep secrets there");
            }
            if secrets.iter().any(|secret| secret.starts_with(&source) && secret.exists()) {
                return refused("programs keep secrets below it");
            }
        }
        let hidden = hidden.iter().map(|path| file_key(path)).collect::<Vec<_>>();
        if hidden.iter().any(|hidden| hidden.starts_with(&source)) {
            return refused("it holds Quipu's own files");
        }
        Ok(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argument(source: &Path, target: &str, home: &Path) -> Result<String, String> {
        let mount =
            ContainerMount { source: source.into(), target: target.into(), access: AccessMode::Write };
        mount.argument(Some(home), &[home.join(".quipu")]).map_err(|error| error.to_string())
    }

    #[test]
    fn places_of_the_system_and_of_secrets_are_not_mounted() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let (home, sockets) = (root.join("home"), root.join("sockets"));
        for made in [".ssh", ".config/gh", ".config/other", "work", ".quipu"] {
            std::fs::create_dir_all(home.join(made)).unwrap();
        }
        std::fs::create_dir_all(&sockets).unwrap();
        std::fs::write(sockets.join("docker.sock"), "").unwrap();
        std::os::unix::fs::symlink("/etc", home.join("link")).unwrap();
        for refused in
            ["/", "/etc", "/etc/ssl", "/proc", "/sys/fs", "/dev/null", "/run/docker.sock", "/var/run", "work"]
        {
            argument(Path::new(refused), "/data", &home).unwrap_err();
        }
        for refused in ["", ".ssh", ".ssh/id", ".config", ".config/gh", "link", ".quipu", "a,b", "a\"b"] {
            argument(&home.join(refused), "/data", &home).unwrap_err();
        }
        argument(&root, "/data", &home).unwrap_err();
        argument(&sockets, "/data", &home).unwrap_err();
        argument(&sockets.join("docker.sock"), "/data", &home).unwrap_err();
        for target in ["/", "data", "/data/../etc", "/proc/x", "/dev", "/etc/x", "/run"] {
            argument(&home.join("work"), target, &home).unwrap_err();
        }
        let work = home.join("work");
        let expected = format!("type=bind,source={},destination=/data", work.display());
        assert_eq!(argument(&work, "/data", &home), Ok(expected));
        argument(&home.join(".config/other"), "/data", &home).unwrap();
    }
}
