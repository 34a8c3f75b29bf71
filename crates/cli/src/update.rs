//! `quipu update`: how this program was installed, and what to run for a newer version. It fetches nothing.

mod installation;

use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use crate::exit::Failure;
use crate::print::{Paint, printable};
use installation::{Installation, Method, Source, UserFolders};

#[derive(Debug, Args)]
pub(crate) struct UpdateArgs {
    /// Print JSON for programs: version, program, method, place, source, commands, firstOnPath.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &UpdateArgs) -> Result<(), Failure> {
    let program = quipu_host::running_program().map_err(|error| {
        Failure::failed(format!(
            "the program file cannot be found ({error}): it was replaced or removed after this process started, or there is no /proc; \
             run `quipu update` again"
        ))
    })?;
    let folders = UserFolders::of_environment();
    let found = Installation::of(&program, &folders);
    let other = first_on_path().filter(|first| !found.is_started_by(&program, first));
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.json {
        let report = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "program": program.display().to_string(),
            "method": found.method.name(),
            "place": found.place.display().to_string(),
            "source": found.source.map(Source::name),
            "commands": found.commands,
            "firstOnPath": other.map(|path| path.display().to_string()),
        });
        writeln!(out, "{report}")?;
        return Ok(out.flush()?);
    }
    writeln!(out, "quipu {}: {}", env!("CARGO_PKG_VERSION"), shown(&program))?;
    writeln!(out, "{}", printable(&sentence(&found)))?;
    writeln!(out, "{}", introduction(&found))?;
    let paint = Paint::stdout();
    for command in &found.commands {
        writeln!(out, "  {}", paint.bold(&printable(command)))?;
    }
    writeln!(out, "Quipu downloads nothing by itself, and does not look for newer versions.")?;
    if let Some(other) = other {
        writeln!(out, "Another `quipu` comes first on your PATH: {}", shown(&other))?;
    }
    Ok(out.flush()?)
}

fn shown(path: &Path) -> String {
    printable(&path.display().to_string())
}

/// How it was installed.
fn sentence(found: &Installation) -> String {
    let place = found.place.display();
    let source = match found.source {
        Some(Source::Registry) => " from its registry",
        Some(Source::File) => " from a file",
        Some(Source::Git) => " from a Git repository",
        Some(Source::Checkout) | None => "",
    };
    match found.method {
        Method::Npm | Method::Pip | Method::Uv | Method::Pipx => {
            format!("It was installed by {}{source}, in {place}.", found.method.name())
        }
        Method::Cargo if found.source == Some(Source::Checkout) => {
            format!("It was installed by cargo from the checkout {place}.")
        }
        Method::Cargo => format!("It was installed by cargo{source}, in {place}."),
        Method::Checkout => format!("It was built in {place}, and not installed."),
        Method::File => "It is a plain file: no package manager has installed it.".to_owned(),
        Method::OtherManager => {
            format!("It belongs to a package in {place}, which another package manager than npm installed.")
        }
    }
}

/// What stands before the commands.
fn introduction(found: &Installation) -> String {
    let new = found
        .commands
        .iter()
        .find_map(|command| ["NEW.tgz", "NEW.whl", "NEW"].into_iter().find(|new| command.contains(new)));
    match (found.method, new) {
        (Method::OtherManager, _) => "Update that package with the program that installed it.".to_owned(),
        (_, Some(new)) => {
            let what = match new {
                "NEW.tgz" => "npm package".to_owned(),
                "NEW.whl" => "wheel".to_owned(),
                _ => format!("file for {}-{}", std::env::consts::ARCH, std::env::consts::OS),
            };
            format!(
                "To update it, take the {what} of a newer version ({new} below), compare its checksum with SHA256SUMS, and run:"
            )
        }
        (_, None) => "To update it, run:".to_owned(),
    }
}

/// The `quipu` that a shell starts, in full.
fn first_on_path() -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::env::var_os("PATH")?;
    let is_program = |file: &PathBuf| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    let first = std::env::split_paths(&path)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join("quipu"))
        .find(is_program)?;
    first.canonicalize().ok()
}
