//! The packages, as a person installs them: from the file, without a network, into an empty home.
//!
//! The binary in them is the static one that `cargo xtask dist` built, or the one that `QUIPU_PACKAGED` names. Where there is
//! neither, or where npm or Python is missing, these tests say so.

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};
    use std::sync::OnceLock;

    use quipu_testkit::needs_peers;
    use serde_json::Value;
    use sha2::{Digest as _, Sha256};

    /// The folder of the packages, made once; `None`, and a line that says so, where there is no binary.
    fn packages() -> Option<&'static Path> {
        static MADE: OnceLock<Option<PathBuf>> = OnceLock::new();
        MADE.get_or_init(|| {
            let name =
                format!("quipu-{}-{}-unknown-linux-musl", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
            let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dist").join(name);
            let named = std::env::var_os("QUIPU_PACKAGED").map(PathBuf::from);
            let binary = named.clone().unwrap_or(usual);
            if !binary.exists() {
                println!("not run: there is no {}; `cargo xtask dist` builds it", binary.display());
                return None;
            }
            let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("packages");
            drop(std::fs::remove_dir_all(&folder));
            package(&binary, &folder, named.is_some());
            Some(folder)
        })
        .as_deref()
    }

    fn package(binary: &Path, folder: &Path, is_named: bool) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["package", "--binary"]).arg(binary).arg("--out").arg(folder);
        if is_named {
            command.arg("--dynamic");
        }
        ok(&mut command);
    }

    /// Runs a command to its end, which must be a good one.
    #[track_caller]
    fn ok(command: &mut Command) -> Output {
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{command:?}: {}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        output
    }

    #[track_caller]
    fn line(command: &mut Command) -> String {
        String::from_utf8(ok(command).stdout).unwrap().trim().to_owned()
    }

    /// An empty home, and commands that have nothing of the tester's environment but the programs on its `PATH`.
    struct Home(tempfile::TempDir);

    impl Home {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().canonicalize().unwrap().join(name)
        }

        fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
            let mut command = Command::new(program);
            let path = std::env::var_os("PATH").unwrap_or_default();
            command.env_clear().env("PATH", path).env("HOME", self.path("")).current_dir(self.0.path());
            command
        }

        /// Whether a program can be had; where it must be, it is.
        fn has(&self, program: &str, arguments: &[&str]) -> bool {
            let output = self.command(program).args(arguments).output();
            let there = output.as_ref().is_ok_and(|output| output.status.success());
            assert!(there || !needs_peers(), "{program} is missing: {output:?}");
            if !there {
                println!("not run: there is no {program}");
            }
            there
        }

        /// What an installed program does in an empty home: it says what it is, how it came, and works.
        fn tries(&self, program: &Path) -> Value {
            let quipu = |arguments: &[&str]| line(self.command(program).args(arguments));
            assert_eq!(quipu(&["--version"]), format!("quipu {}", env!("CARGO_PKG_VERSION")));
            let demo = ok(self.command(program).arg("demo"));
            assert!(self.path(".quipu/quipu.db").is_file(), "{demo:?}");
            assert!(quipu(&["sessions", "--all"]).lines().count() > 0);
            serde_json::from_str(&quipu(&["update", "--json"])).unwrap()
        }
    }

    /// The one file of the packages that ends so.
    fn file(folder: &Path, end: &str) -> PathBuf {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(end)).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn checksums_and_manifest_are_those_of_the_files() {
        let Some(folder) = packages() else { return };
        let read = |name: &str| std::fs::read(folder.join(name)).unwrap();
        let digest = |name: &str| -> String {
            Sha256::digest(read(name)).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        let sums = String::from_utf8(read("SHA256SUMS")).unwrap();
        let mut names: Vec<&str> = sums
            .lines()
            .map(|line| {
                let (sum, name) = line.split_once("  ").unwrap();
                assert_eq!(sum, digest(name), "{name}");
                name
            })
            .collect();
        let manifest: Value = serde_json::from_slice(&read("manifest.json")).unwrap();
        let files = manifest["files"].as_array().unwrap();
        for file in files {
            let name = file["file"].as_str().unwrap();
            assert_eq!(file["sha256"], digest(name), "{name}");
            assert_eq!(file["bytes"], read(name).len(), "{name}");
        }
        names.retain(|name| *name != "manifest.json");
        assert_eq!(names, files.iter().map(|file| file["file"].as_str().unwrap()).collect::<Vec<_>>());
        ok(Command::new("sha256sum")
            .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
            .current_dir(folder));
    }

    #[test]
    fn packages_of_one_binary_are_the_same_bytes() {
        let Some(folder) = packages() else { return };
        let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
        let again = tempfile::tempdir().unwrap();
        package(&file(folder, &target), again.path(), true);
        for name in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()) {
            let read = |folder: &Path| std::fs::read(folder.join(&name)).unwrap();
            assert!(read(folder) == read(again.path()), "{} differs", name.display());
        }
    }

    #[test]
    fn npm_package_installs_offline_and_becomes_the_binary() {
        let Some(folder) = packages() else { return };
        let home = Home::new();
        if !home.has("npm", &["--version"]) {
            return;
        }
        let prefix = home.path("prefix");
        let npm = |arguments: &[&str]| {
            let mut command = home.command("npm");
            command.args(arguments).arg("--global").arg("--prefix").arg(&prefix);
            // No registry, no scripts: nothing of either is needed.
            ok(command.args(["--offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]))
        };
        let package = file(folder, ".tgz");
        npm(&["install", package.to_str().unwrap()]);
        let program = prefix.join("bin/quipu");
        let update = home.tries(&program);
        assert_eq!(update["method"], "npm", "{update}");
        let command = update["commands"][0].as_str().unwrap();
        assert!(command.starts_with("npm install --global --prefix "), "{command}");

        // Nothing stays between the program and who started it.
        let mut child = home
            .command(&program)
            .args(["hash", "--jsonl"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"{}\n").unwrap();
        let mut hash = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut hash).unwrap();
        if cfg!(target_os = "linux") {
            let runs = std::fs::read_link(format!("/proc/{}/exe", child.id())).unwrap();
            assert!(
                runs.ends_with(format!("quipu-agent/{}/quipu", std::env::consts::ARCH)),
                "{}",
                runs.display()
            );
        }
        drop(input);
        assert!(child.wait().unwrap().success() && !hash.is_empty());

        npm(&["uninstall", "quipu-agent"]);
        assert!(!program.exists() && !prefix.join("lib/node_modules/quipu-agent").exists());
        // What sessions are is the person's.
        assert!(home.path(".quipu/quipu.db").is_file());
    }

    #[test]
    fn npm_package_names_a_machine_that_it_lacks() {
        let Some(folder) = packages() else { return };
        let home = Home::new();
        let unpacked = home.path("unpacked");
        std::fs::create_dir(&unpacked).unwrap();
        ok(home.command("tar").arg("-xzf").arg(file(folder, ".tgz")).arg("-C").arg(&unpacked));
        let manifest = std::fs::read(unpacked.join("package/package.json")).unwrap();
        let manifest: Value = serde_json::from_slice(&manifest).unwrap();
        assert!(manifest["scripts"].is_null() && manifest["dependencies"].is_null(), "{manifest}");
        // A machine that no package is for.
        let uname = home.path("uname");
        std::fs::write(&uname, "#!/bin/sh\necho sparc64\n").unwrap();
        ok(home.command("chmod").arg("+x").arg(&uname));
        let mut command = home.command("/bin/sh");
        command
            .arg(unpacked.join("package/quipu"))
            .env("PATH", format!("{}:/usr/bin:/bin", home.path("").display()));
        let output = command.arg("--version").output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains("no program for sparc64 on sparc64"),
            "{said}"
        );
    }

    #[test]
    fn wheel_installs_offline_and_is_the_binary() {
        let Some(folder) = packages() else { return };
        let home = Home::new();
        if !home.has("python3", &["-m", "venv", "--help"]) {
            return;
        }
        let environment = home.path("environment");
        ok(home.command("python3").args(["-m", "venv"]).arg(&environment));
        let pip = |arguments: &[&str]| {
            let mut command = home.command(environment.join("bin/python"));
            ok(command.args(["-m", "pip", "--disable-pip-version-check", "--no-input", "-q"]).args(arguments))
        };
        let wheel = file(folder, ".whl");
        pip(&["install", "--no-index", wheel.to_str().unwrap()]);
        let program = environment.join("bin/quipu");
        let update = home.tries(&program);
        assert_eq!(update["method"], "pip", "{update}");
        assert_eq!(update["program"], program.display().to_string());
        let command = update["commands"][0].as_str().unwrap();
        assert!(
            command.contains("bin/python") && command.contains(" -m pip install --upgrade "),
            "{command}"
        );

        pip(&["uninstall", "--yes", "quipu-agent"]);
        assert!(!program.exists());
        assert!(home.path(".quipu/quipu.db").is_file());
    }
}
