//! What the static program copies, fills and compares bytes with does what it should.

#![cfg(target_arch = "x86_64")]

use std::path::Path;
use std::process::Command;

#[test]
fn bytes_are_copied_filled_and_compared_as_by_loops() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("memory");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/memory.c");
    let flags = ["-O2", "-ffreestanding", "-fno-builtin", "-o"];
    let built = Command::new(compiler).args(flags).arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let run = Command::new(program).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}
