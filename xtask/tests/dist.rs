//! The static binary, in a root directory that holds nothing else: no loader, no libraries, no shell, no `/proc`.
//!
//! `cargo xtask dist` builds it. Where it is not built, or where nobody may change the root, this test says so. That of
//! ARM64 runs in emulation, on machines that have the emulator.

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    use quipu_testkit::{Answer, FakeServer};
    use serde_json::{Value, json};

    /// Runs programs of ARM64 on other machines.
    const EMULATOR: &str = "qemu-aarch64-static";

    /// The static binary of a machine; `None`, and a line that says so, where it is not built. `QUIPU_EMULATED` names another of
    /// ARM64, such as a debug build.
    fn built(machine: &str) -> Option<PathBuf> {
        let name = format!("quipu-{}-{machine}-unknown-linux-musl", env!("CARGO_PKG_VERSION"));
        let usual = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("dist").join(name);
        let named = std::env::var_os("QUIPU_EMULATED").filter(|_| machine == "aarch64");
        let binary = named.map_or(usual, PathBuf::from);
        if !binary.exists() {
            println!("not run: there is no {}; `cargo xtask dist` builds it", binary.display());
            return None;
        }
        Some(binary)
    }

    /// Where the emulator of ARM64 is; `None` on such a machine, or where it is missing.
    fn emulator() -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let places = std::env::split_paths(&path).map(|folder| folder.join(EMULATOR));
        places.into_iter().find(|place| place.is_file() && std::env::consts::ARCH != "aarch64")
    }

    /// A command that runs `/quipu` with `root` as its root directory, by the emulator where one is in it.
    fn inside(root: &Path, way: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(way[0]);
        command.args(&way[1..]).arg(root);
        if root.join(EMULATOR).exists() {
            command.arg(Path::new("/").join(EMULATOR));
        }
        command.arg("/quipu").args(arguments);
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", "/home")
            .env("NO_PROXY", "127.0.0.1")
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn text(output: &Output) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{}\n{}\n{}",
            output.status,
            text(&output.stdout),
            text(&output.stderr)
        );
        text(&output.stdout)
    }

    #[test]
    fn the_static_binary_works_where_there_is_nothing_else() {
        if let Some(binary) = built(std::env::consts::ARCH) {
            works_alone(&binary, None);
        }
    }

    #[test]
    fn emulated_binary_of_arm64_works_where_there_is_nothing_else() {
        let (Some(binary), Some(emulator)) = (built("aarch64"), emulator()) else { return };
        works_alone(&binary, Some(&emulator));
    }

    #[test]
    fn emulated_binary_of_arm64_runs_the_demo() {
        let (Some(binary), Some(emulator)) = (built("aarch64"), emulator()) else { return };
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(emulator);
        command.arg(binary).arg("demo").env_clear().env("PATH", "/usr/bin:/bin").env("HOME", home.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{}\n{shown}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(home.path().join(".quipu/quipu.db").is_file(), "{shown}");
    }

    /// A session in a root directory of its own.
    fn works_alone(binary: &Path, emulator: Option<&Path>) {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        std::fs::copy(binary, root.join("quipu")).unwrap();
        if let Some(emulator) = emulator {
            std::fs::copy(emulator, root.join(EMULATOR)).unwrap();
        }
        // The administrator may change the root; others may in a user namespace of their own, where the system has them.
        let ways: [&[&str]; 2] = [&["chroot"], &["unshare", "--user", "--map-root-user", "chroot"]];
        let tried = ways.map(|way| inside(root, way, &["--version"]).output());
        let works = |output: &Result<Output, _>| output.as_ref().is_ok_and(|output| output.status.success());
        let Some(way) = ways.into_iter().zip(&tried).find_map(|(way, output)| works(output).then_some(way))
        else {
            assert!(
                std::env::var_os("QUIPU_REQUIRE_PEERS").is_none(),
                "no new root directory, or no static binary: {tried:?}"
            );
            println!("not run: this user may not change the root directory of a program: {tried:?}");
            return;
        };
        let run = |arguments: &[&str]| text(&inside(root, way, arguments).output().unwrap());
        assert_eq!(run(&["--version"]).trim(), format!("quipu {}", env!("CARGO_PKG_VERSION")));
        assert!(run(&["hash", "--help"]).contains("JSON"));

        // A model's server on this machine, which has a file written and read.
        let arguments = json!({ "path": "note.txt", "content": "tied once\n" }).to_string();
        let server = FakeServer::start([
            Answer::new().tool_call("call_1", "write", &arguments).reply(),
            Answer::new().tool_call("call_2", "read", r#"{"path":"note.txt"}"#).reply(),
            Answer::new().text("It is written.").reply(),
            Answer::new().text("It was a note.").reply(),
        ]);
        let models = json!({ "providers": { "fake": {
            "baseUrl": server.url(), "api": "anthropic-messages", "apiKey": "none",
            "models": [{ "id": "m", "contextWindow": 100_000, "maxTokens": 1_000 }],
        }}});
        for folder in ["home/.quipu", "tmp"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("home/.quipu/models.json"), models.to_string()).unwrap();
        let task = ["--print", "--provider", "fake", "--model", "m", "--permissions", "full"];
        assert_eq!(run(&[&task[..], &["Write a note."]].concat()).trim(), "It is written.");
        assert_eq!(std::fs::read_to_string(root.join("note.txt")).unwrap(), "tied once\n");

        // What was stored is read again, by other processes.
        let store = std::fs::read(root.join("home/.quipu/quipu.db")).unwrap();
        assert!(store.starts_with(b"SQLite format 3\0"));
        assert!(run(&["sessions"]).contains("Write a note."));
        assert_eq!(run(&[&task[..], &["--continue", "What was it?"]].concat()).trim(), "It was a note.");
        let requests = server.requests();
        let last: Value = serde_json::from_slice(&requests.last().unwrap().body).unwrap();
        let conversation = last["messages"].to_string();
        for part in ["Write a note.", "tied once", "It is written.", "What was it?"] {
            assert!(conversation.contains(part), "{part}: {conversation}");
        }
    }
}
