//! `docs/sdk.md` is enough to build on the engine: a program made of its code blocks alone is built outside of the
//! workspace and prints what the page shows.

use std::process::Command;

use quipu_testkit::{CodeBlock, documents, repository};

/// The checkout, as the page has it.
const CHECKOUT: &str = "../quipu/";

/// The program of the page, with its other Rust blocks in modules of their own.
fn program(blocks: &[CodeBlock]) -> String {
    let mut rust = blocks.iter().filter(|block| block.language == "rust");
    let mut program = rust.next().unwrap().text.clone();
    for piece in rust {
        let text = &piece.text;
        program
            .push_str(&format!("\n#[allow(unused)]\nmod line_{} {{\nuse super::*;\n{text}}}\n", piece.line));
    }
    program
}

#[test]
fn program_of_the_page_prints_what_the_page_shows() {
    let page = documents().into_iter().find(|page| page.path == "docs/sdk.md").unwrap();
    let blocks = page.blocks();
    let of = |language: &str| blocks.iter().find(|block| block.language == language).unwrap().text.as_str();
    let root = repository().canonicalize().unwrap();
    let manifest = of("toml").replace(CHECKOUT, &format!("{}/", root.display()));
    assert_ne!(manifest, of("toml"), "the page does not name {CHECKOUT}");

    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("src")).unwrap();
    std::fs::write(dir.path().join("Cargo.toml"), manifest).unwrap();
    std::fs::write(dir.path().join("src/main.rs"), program(&blocks)).unwrap();
    // The same versions of all packages, so that nothing is downloaded.
    std::fs::copy(root.join("Cargo.lock"), dir.path().join("Cargo.lock")).unwrap();

    // Kept from run to run, so that only the program itself is compiled again.
    let tests = std::env::current_exe().unwrap();
    let target = tests.ancestors().nth(3).unwrap().join("sdk-page");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["run", "--quiet", "--offline"])
        .current_dir(dir.path())
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), of("text"), "{errors}");
    assert!(!errors.contains("warning"), "{errors}");
}
