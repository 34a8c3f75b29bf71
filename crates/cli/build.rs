//! Compiles what the static program copies and compares bytes with.

fn main() {
    const SOURCE: &str = "native/memory.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    let cfg = |name: &str| std::env::var(format!("CARGO_CFG_TARGET_{name}")).unwrap_or_default();
    // musl has better ones for other processors, glibc for all.
    if cfg("ENV") != "musl" || cfg("ARCH") != "x86_64" {
        return;
    }
    // A library of the command's own comes before the C library.
    cc::Build::new()
        .file(SOURCE)
        .opt_level(2)
        .warnings_into_errors(true)
        // Or it would see in these functions what they are to do, and have them call themselves.
        .flag("-ffreestanding")
        .flag("-fno-builtin")
        .flag("-fno-tree-loop-distribute-patterns")
        .compile("quipu_memory");
}
