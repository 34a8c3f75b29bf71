//! `.ci/run` with a cargo that only says what it was asked: order, names, and the end at the first failure.

use std::error::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder with stand-ins for `cargo` and `timeout`, removed with the value.
struct Bench(PathBuf);

impl Bench {
    fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let folder =
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("ci-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        let cargo = "#!/bin/sh\necho \"$*\" >> \"$ASKED\"\ncase \"$*\" in *\"$FAILS\"*) exit 101;; esac\n";
        // Called as `timeout --kill-after=10 SECONDS COMMAND..`; 124 is how the real one says that time ran out.
        let timeout = "#!/bin/sh\nshift 2\ncase \"$*\" in\n*\"$HANGS\")\n\
                       echo 'test slow::one has been running for over 60 seconds'\n\
                       echo 'test slow::two has been running for over 60 seconds'\n\
                       echo 'test slow::two ... ok'\nexit 124;;\nesac\nexec \"$@\"\n";
        for (name, text) in [("cargo", cargo), ("timeout", timeout)] {
            let file = folder.join(name);
            std::fs::write(&file, text)?;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
        }
        Ok(Self(folder))
    }

    /// Runs the script; gives back whether it passed, its output, and what cargo was asked, a line each.
    fn run(&self, fails: &str, hangs: &str) -> Result<(bool, String, String), Box<dyn Error>> {
        self.run_with(&[], fails, hangs)
    }

    /// [`Self::run`] with more in the environment.
    fn run_with(
        &self,
        environment: &[(&str, &str)],
        fails: &str,
        hangs: &str,
    ) -> Result<(bool, String, String), Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let asked = self.0.join("asked");
        std::fs::write(&asked, "")?;
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH")?);
        let output = Command::new("bash")
            .arg(root.join(".ci/run"))
            .arg("--no-install")
            .env("PATH", path)
            .env("ASKED", &asked)
            .env("FAILS", fails)
            .env("HANGS", hangs)
            .env_remove("QUIPU_FULL")
            .envs(environment.iter().copied())
            .output()?;
        let text = String::from_utf8(output.stdout)?;
        Ok((output.status.success(), text, std::fs::read_to_string(&asked)?))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // It lies in the build folder: what is left there harms nobody.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[test]
fn every_step_runs_in_order() -> Result<(), Box<dyn Error>> {
    let (passed, output, asked) = Bench::new("order")?.run("nothing", "nothing")?;
    assert!(passed, "{output}");
    let dist = "xtask dist --if-possible";
    let (aside, in_order): (Vec<&str>, Vec<&str>) = asked.lines().partition(|line| *line == dist);
    assert_eq!(aside, [dist], "it runs beside others");
    assert_eq!(
        in_order,
        [
            "fetch --locked",
            "test --workspace --no-run",
            "test --workspace",
            "fmt --all --check",
            "clippy --workspace --all-targets -- -D warnings",
            "doc --workspace --lib --no-deps",
            "xtask tidy",
            "xtask deny",
            "test --package xtask --test dist --test packages -- --nocapture",
        ]
    );
    assert!(output.contains("=== tests: cargo test --workspace (limit "), "{output}");
    Ok(())
}

#[test]
fn the_long_run_looks_for_new_inputs() -> Result<(), Box<dyn Error>> {
    let environment = [("QUIPU_FULL", "1"), ("PROPTEST_RNG_SEED", "7")];
    let (passed, output, asked) = Bench::new("full")?.run_with(&environment, "nothing", "nothing")?;
    assert!(passed && asked.contains("test --workspace --tests fuzz_\n"), "{asked}{output}");
    assert!(asked.ends_with("xtask platforms\n"), "{asked}");
    assert!(output.contains("=== fuzz: env QUIPU_FUZZ_SECONDS=400 cargo test "), "{output}");
    assert!(output.contains("PROPTEST_RNG_SEED=7\n"), "{output}");
    Ok(())
}

#[test]
fn the_first_failure_ends_the_run_and_is_named() -> Result<(), Box<dyn Error>> {
    let (passed, output, asked) = Bench::new("failure")?.run("fmt", "nothing")?;
    assert!(!passed && !asked.contains("clippy"), "{output}");
    assert!(output.contains("=== FAILED: format: exit code 101 after "), "{output}");
    Ok(())
}

#[test]
fn a_failure_beside_other_steps_is_named() -> Result<(), Box<dyn Error>> {
    let (passed, output, asked) = Bench::new("aside")?.run("dist", "nothing")?;
    assert!(!passed && asked.contains("xtask deny\n") && !asked.contains("--test dist"), "{asked}{output}");
    assert!(output.contains("=== FAILED: dist: exit code 101 after "), "{output}");
    Ok(())
}

#[test]
fn a_step_without_end_is_named() -> Result<(), Box<dyn Error>> {
    let (passed, output, asked) = Bench::new("limit")?.run("nothing", "cargo test --workspace")?;
    assert!(!passed && !asked.contains("fmt"), "{output}");
    let (before, _) =
        output.split_once("=== FAILED: tests: ran into its limit of ").ok_or(output.as_str())?;
    assert!(before.contains("\nnever ended: test slow::one\n"), "{output}");
    assert!(!before.contains("never ended: test slow::two"), "{output}");
    Ok(())
}
