//! An embedding program that is its own launcher: the example, run as its users would.

use std::process::Command;

use quipu::SandboxSupport;

#[test]
fn commands_of_an_embedding_program_run_in_namespaces() {
    let tests = std::env::current_exe().unwrap();
    let example = tests.ancestors().nth(2).unwrap().join("examples/sandbox");
    if !example.exists() || !SandboxSupport::of_this_system().is_full() {
        assert!(std::env::var_os("CI").is_none() || example.exists(), "examples are built with all tests");
        eprintln!("note: the example `sandbox` was not built, or this system cannot confine; not tested");
        return;
    }
    let output = Command::new(&example).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // Calls of one answer run side by side.
    for (how, word) in [("done", "made"), ("failed", "`network`"), ("failed", "Read-only")] {
        assert!(said.lines().any(|line| line.starts_with(how) && line.contains(word)), "{word}: {said}");
    }
}
