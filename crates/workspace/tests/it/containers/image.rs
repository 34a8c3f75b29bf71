//! An image for tests, made of programs of this machine; and its containers, which go with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What is in it.
const PROGRAMS: [&str; 12] =
    ["bash", "sh", "ls", "cat", "sleep", "id", "env", "setsid", "touch", "head", "grep", "mkdir"];

/// Removed with everything that was made of it.
pub(crate) struct Image {
    pub(crate) name: String,
    /// What the names of its containers begin with.
    pub(crate) prefix: String,
}

/// Runs podman, which must succeed.
pub(crate) fn podman(arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = Command::new("podman").args(arguments).output().unwrap();
    assert!(status.success(), "podman {arguments:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap().trim().to_owned()
}

/// The runtime that works on machines with and without control groups of one hierarchy.
pub(crate) fn runtime() -> Option<String> {
    program("runc").map(|_| "runc".to_owned())
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(name)).find(|path| path.is_file())
}

impl Image {
    /// `None` where there is no podman, which CI has.
    pub(crate) fn make() -> Option<Self> {
        if program("podman").is_none() {
            assert!(std::env::var_os("QUIPU_REQUIRE_PEERS").is_none(), "podman is not installed");
            eprintln!("note: podman is not installed, so nothing was tested");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        for made in ["bin", "tmp", "var/tmp", "run", "etc", "proc", "sys", "dev", "home"] {
            fs::create_dir_all(root.join(made)).unwrap();
        }
        let mut libraries = BTreeSet::new();
        for name in PROGRAMS {
            let source = program(name).unwrap_or_else(|| panic!("no program {name}"));
            fs::copy(&source, root.join("bin").join(name)).unwrap();
            let listed = Command::new("ldd").arg(&source).output().unwrap();
            let listed = String::from_utf8(listed.stdout).unwrap();
            libraries.extend(
                listed.split_ascii_whitespace().filter(|word| word.starts_with('/')).map(PathBuf::from),
            );
        }
        for library in libraries {
            let target = root.join(library.strip_prefix("/").unwrap());
            fs::create_dir_all(target.parent().unwrap()).unwrap();
            fs::copy(&library, target).unwrap();
        }
        let unique = dir.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.').to_lowercase();
        let image = Self { name: format!("quipu-test-{unique}"), prefix: format!("quipu-{unique}-") };
        let tar = dir.path().join("root.tar");
        let packed = Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status().unwrap();
        assert!(packed.success());
        podman(&["import", "--quiet", tar.to_str().unwrap(), &image.name]);
        Some(image)
    }

    /// Names of its containers, and whether they run: `Up`, `Exited`.
    pub(crate) fn containers(&self) -> Vec<(String, String)> {
        let filter = format!("name={}", self.prefix);
        let listed = podman(&["ps", "-a", "--filter", &filter, "--format", "{{.Names}} {{.State}}"]);
        let rows = listed.lines().filter_map(|line| line.split_once(' '));
        let first = |state: &str| state.split(' ').next().unwrap_or_default().to_owned();
        rows.map(|(name, state)| (name.to_owned(), first(state))).collect()
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        for (name, _) in self.containers() {
            Command::new("podman").args(["rm", "-f", "-t", "0", &name]).output().unwrap();
        }
        Command::new("podman").args(["rmi", "-f", &self.name]).output().unwrap();
    }
}

/// Processes of this machine whose command line has this text.
pub(crate) fn processes(text: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path().join("cmdline"));
    let lines = entries.filter_map(|path| fs::read(path).ok());
    let ourselves = std::env::args().any(|argument| argument.contains(text));
    assert!(!ourselves);
    lines.filter(|line| String::from_utf8_lossy(line).replace('\0', " ").contains(text)).count()
}

pub(crate) fn settings(image: &Image, root: &Path) -> quipu_workspace::Containers {
    use quipu_workspace::*;
    Containers {
        engine: ContainerEngine::Podman,
        image: image.name.clone(),
        runtime: runtime(),
        network: "none".into(),
        prefix: image.prefix.clone(),
        scope: "test".into(),
        workspace: ContainerMount {
            source: root.join("ws"),
            target: "/workspace".into(),
            access: AccessMode::Write,
        },
        mounts: Vec::new(),
        variables: Vec::new(),
        limits: ContainerLimits::default(),
        prune: PruneLimits::default(),
        end: ContainerEnd::Stopped,
        state: root.join("state"),
        home: Some(root.join("home")),
        hidden: vec![root.join("home/.quipu"), root.join("state")],
    }
}
