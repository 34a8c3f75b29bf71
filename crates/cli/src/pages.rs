//! Man pages and completions of shells, made from the arguments: `cargo xtask pages DIR` writes them.

use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _};
use clap_complete::Shell;

use crate::args::Cli;

/// Where each shell looks for completions, below a prefix such as `/usr/local`.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "share/bash-completion/completions/quipu"),
    (Shell::Zsh, "share/zsh/site-functions/_quipu"),
    (Shell::Fish, "share/fish/vendor_completions.d/quipu.fish"),
];

/// Writes all of them below a prefix.
fn write_pages(prefix: &Path) -> std::io::Result<()> {
    let man = prefix.join("share/man/man1");
    std::fs::create_dir_all(&man)?;
    let mut command = Cli::command();
    command.build();
    write_man(&command, "quipu", &man)?;
    for (shell, path) in SHELLS {
        let path = prefix.join(path);
        std::fs::create_dir_all(path.parent().unwrap_or(prefix))?;
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "quipu", &mut text);
        std::fs::write(path, text)?;
    }
    Ok(())
}

fn write_man(command: &Command, name: &str, man: &Path) -> std::io::Result<()> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone().display_name(name.to_owned())).render(&mut text)?;
    std::fs::write(man.join(format!("{name}.1")), text)?;
    command
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
        .try_for_each(|one| write_man(one, &format!("{name}-{}", one.get_name()), man))
}

#[test]
fn pages_have_every_command_and_shells_can_read_them() {
    let dir = tempfile::tempdir().unwrap();
    // Where `cargo xtask pages` wants them.
    let prefix = std::env::var_os("QUIPU_PAGES_DIR").map_or_else(|| dir.path().to_owned(), PathBuf::from);
    write_pages(&prefix).unwrap();
    let read = |path: &str| std::fs::read_to_string(prefix.join(path)).unwrap();
    let page = read("share/man/man1/quipu.1");
    assert!(page.contains("EXIT") || page.contains("Exit codes"), "{page}");
    let all = Cli::command();
    let shown = |one: &&Command| !one.is_hide_set() && one.get_name() != "help";
    for command in all.get_subcommands().filter(shown) {
        let name = command.get_name();
        let own = read(&format!("share/man/man1/quipu-{name}.1"));
        assert!(own.contains(&format!("quipu\\-{name}")), "{own}");
        for (_, path) in SHELLS {
            assert!(read(path).contains(name), "{path} lacks {name}");
        }
    }
    let bash = prefix.join(SHELLS[0].1);
    let checked = std::process::Command::new("bash").arg("-n").arg(bash).status().unwrap();
    assert!(checked.success());
}
