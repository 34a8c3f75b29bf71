//! The project's own chores, each one a subcommand of `cargo xtask`: the house rules, the licence and ban list,
//! the steps of CI, the static binary and the benchmarks.
//!
//! It depends on none of the project's crates, so that checking the house never waits for building it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the command line, not a library"
)]

mod bench;
mod catalogue;
mod ci;
mod deny;
mod dist;
mod elf;
mod messages;
mod package;
mod pages;
mod peers;
mod platform;
mod platforms;
mod repo;
mod rust_source;
mod tidy;
mod zig;

use anyhow::{Result, bail};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND

  tidy [--notes]             check the house rules; --notes also lists files that are getting long
  deny                       check licences, bans and sources of all dependencies against deny.toml
  ci [--full]                run the steps of .ci/run here; --full takes the long variants of kill and race tests
  dist [TARGET]              build the static Linux binary into target/dist/; --if-possible passes without the tools
  package [--binary FILE].. [--out DIR]
                             pack what dist built, or these binaries, for npm and PyPI, with checksums and a manifest
  platforms [arm64 [--debug]|macos|windows]
                             build and try what runs elsewhere: ARM64 in emulation, and checks for macOS and Windows
  bench [--runs N] [--million] [--peers DIR] [--only TEXT] [NAME..]
                             build a release and print a table of measurements; --list names them
  pages DIR                  write man pages and completions for bash, zsh and fish below DIR, such as ~/.local
  messages [CRATE..]         print every text that the program says, with its place, to be reviewed
  peers [DIR]                install the agents that bench measures beside ours into DIR (needs npm)
  catalogue [--version V]    write the catalogue of models anew from the published table (needs npm and tar)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// True when the chore found nothing to complain about; an error when it could not be done at all.
fn run(arguments: &[String]) -> Result<bool> {
    let Some((command, rest)) = arguments.split_first() else {
        print!("{USAGE}");
        return Ok(false);
    };
    match command.as_str() {
        "tidy" => tidy::run(rest),
        "deny" => deny::run(rest),
        "ci" => ci::run(rest),
        "dist" => dist::run(rest),
        "package" => package::run(rest),
        "platforms" => platforms::run(rest),
        "bench" => bench::run(rest),
        "messages" => messages::run(rest),
        "pages" => pages::run(rest),
        "peers" => peers::run(rest),
        "catalogue" => catalogue::run(rest),
        "help" | "--help" | "-h" => {
            print!("{USAGE}");
            Ok(true)
        }
        other => bail!("no chore is named {other:?}\n\n{USAGE}"),
    }
}
