//! Compiles what the static program has of its own: copies and comparisons of bytes, a setting of its allocator.

use std::env;

/// Linked before the C library, which has the like.
const MEMORY: &str = "native/memory.c";
const ALLOCATOR: &str = "native/allocator.c";

fn main() {
    for source in [MEMORY, ALLOCATOR] {
        println!("cargo::rerun-if-changed={source}");
    }
    let cfg = |name: &str| env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    if cfg("ENV") != "musl" {
        return;
    }
    let mut build = cc::Build::new();
    build.opt_level(2).warnings_into_errors(true);
    // Where mimalloc's headers are, by the build script of the crate that brings it.
    let mut allocator = build.clone();
    allocator.file(ALLOCATOR).includes(env::var_os("DEP_MIMALLOC_INCLUDE_DIR"));
    // Nothing calls it, so in a library it would be left out.
    for object in allocator.compile_intermediates() {
        println!("cargo::rustc-link-arg-bins={}", object.display());
    }
    // musl has better ones for other processors.
    if cfg("ARCH") == "x86_64" {
        // Or the compiler would see in these functions what they are to do, and have them call themselves.
        let flags = ["-ffreestanding", "-fno-builtin", "-fno-tree-loop-distribute-patterns"];
        build.file(MEMORY).flags(flags).compile("quipu_memory");
    }
}
