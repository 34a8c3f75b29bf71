//! The first day of a machine: the caches of tools are missing, and their first command must find them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_workspace::*;
use tokio_util::sync::CancellationToken;

/// Variables that would lead tools to the tester's own caches.
const VARIABLES: [&str; 9] = [
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "GOPATH",
    "XDG_CACHE_HOME",
    "GOCACHE",
    "GOMODCACHE",
    "npm_config_cache",
    "PIP_CACHE_DIR",
    "UV_CACHE_DIR",
];

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

struct FreshHome {
    dir: tempfile::TempDir,
    sandbox: Sandbox,
    registry: Arc<ProcessRegistry>,
}

impl FreshHome {
    fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("quipu-fresh-").tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("home")).unwrap();
        fs::create_dir_all(root.join("ws")).unwrap();
        let caches = caches(Some(&root.join("home")), &|_| None);
        let sandbox = Sandbox::new(vec![root.join("ws")]).with_caches(caches);
        Self { dir, sandbox, registry: Arc::default() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    /// Runs a command in an empty workspace.
    async fn run(&self, command: &str) -> (ShellEnd, String) {
        for entry in fs::read_dir(self.path("ws")).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        }
        fs::write(self.path("ws/inside"), "inside\n").unwrap();
        let limits = OutputLimits { lines: 2000, bytes: 50 * 1024, spill_bytes: 1 << 20 };
        let mut output = OutputBuffer::new(limits, &OutputPlace::as_printed(self.path("spill")));
        let mut env: Vec<(String, Option<String>)> =
            VARIABLES.iter().map(|name| ((*name).to_owned(), None)).collect();
        env.push(("HOME".into(), Some(self.path("home").display().to_string())));
        env.push(("GIT_CONFIG_NOSYSTEM".into(), Some("1".into())));
        let shell = ShellCommand {
            owner: "run",
            command: &format!("set -e; {command}"),
            cwd: &self.path("ws"),
            env: &env,
            timeout: Some(std::time::Duration::from_secs(120)),
            sandbox: Some(&self.sandbox),
            needs: CommandNeeds::default(),
        };
        let end = run_shell(shell, &self.registry, &CancellationToken::new(), &mut output, &|_| ()).await;
        (end.unwrap(), output.tail().to_owned())
    }
}

fn entries(path: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name());
    names.map(|name| name.into_string().unwrap()).collect()
}

#[tokio::test]
async fn everyday_commands_work_in_a_fresh_home() {
    if !SandboxSupport::of_this_system().is_full() {
        eprintln!("note: this system cannot confine commands; not tested");
        return;
    }
    let tools = ["cargo", "npm", "node", "pip", "python3", "go", "mvn"];
    let table = include_str!("everyday.txt").lines().chain(include_str!("fresh_home.txt").lines());
    let rows = table.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let (mut tried, mut failed, mut missing) = (0, Vec::new(), BTreeSet::new());
    let fresh = FreshHome::new();
    for (program, command) in rows.map(|line| line.split_once(' ').unwrap()) {
        let ours = include_str!("fresh_home.txt").contains(command);
        if !ours && (!tools.contains(&program) || command.contains("$HOME") || command.contains("added")) {
            continue;
        }
        if !is_installed(program) {
            missing.insert(program);
            continue;
        }
        let (end, output) = fresh.run(command).await;
        if end != ShellEnd::Exited(0) {
            failed.push(format!("{end:?}: {command}\n{output}"));
        }
        tried += 1;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    eprintln!("{tried} commands tried; not installed: {missing:?}");
    // Private, and only for tools that are here.
    let expected = [
        (".cache", "sh"),
        (".cargo", "cargo"),
        ("go", "go"),
        (".npm", "npm"),
        (".local", "pnpm"),
        (".yarn", "yarn"),
        (".bun", "bun"),
        (".gradle", "gradle"),
        (".m2", "mvn"),
        (".ivy2", "sbt"),
        (".nuget", "dotnet"),
        (".composer", "composer"),
    ];
    let home = fresh.path("home");
    let expected: BTreeSet<String> =
        expected.iter().filter(|(_, tool)| is_installed(tool)).map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(entries(&home), expected);
    for name in expected {
        let mode = fs::metadata(home.join(&name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{name}");
    }
}

#[tokio::test]
async fn nothing_is_made_before_the_first_command() {
    let fresh = FreshHome::new();
    assert_eq!(entries(&fresh.path("home")), BTreeSet::new());
    if SandboxSupport::of_this_system().is_full() {
        fresh.run("true").await;
        assert!(entries(&fresh.path("home")).contains(".cache"));
    }
}
