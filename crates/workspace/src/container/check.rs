//! Whether what containers need is there, for who looks at a machine: the program, the image, and a runtime that works.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::engine::EngineProgram;
use super::{ContainerError, ContainerMount, Containers, digest};
use crate::{AccessMode, Helpers, TemporaryDirectory};

/// Characters of an error that a program printed.
const MOST: usize = 400;

/// What was found, in the order in which it is needed. What comes after an error was not looked at.
#[derive(Debug)]
pub struct ContainerReport {
    /// The program that keeps them.
    pub program: Result<EngineVersion, ContainerError>,
    /// The id of the image.
    pub image: Option<Result<String, ContainerError>>,
    /// Whether a container of it came to its end.
    pub runtime: Option<Result<(), ContainerError>>,
}

/// A program that keeps containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineVersion {
    /// Where it is.
    pub path: PathBuf,
    /// Its version, such as `4.3.1`.
    pub version: String,
}

/// Looks for what containers with these settings need. A container is made and removed again, with an empty directory as its
/// workspace. `patience` is for each call of the program.
pub fn check_containers(settings: &Containers, helpers: Arc<Helpers>, patience: Duration) -> ContainerReport {
    let mut report =
        ContainerReport { program: version(settings, helpers.clone(), patience), image: None, runtime: None };
    let Ok(program) = EngineProgram::among(helpers, settings.engine, patience) else { return report };
    if report.program.is_err() {
        return report;
    }
    let image =
        settings.check_image_name().and_then(|()| program.image_id(&settings.image)).map_err(shortened);
    let id = image.as_ref().ok().cloned();
    report.image = Some(image);
    report.runtime = id.map(|id| run(settings, &program, &id).map_err(shortened));
    report
}

fn version(
    settings: &Containers,
    helpers: Arc<Helpers>,
    patience: Duration,
) -> Result<EngineVersion, ContainerError> {
    let program = EngineProgram::among(helpers, settings.engine, patience)?;
    let said = program.must("say its version", &["--version".to_owned()]).map_err(shortened)?;
    let is_version = |word: &&str| {
        let numbers: Vec<&str> = word.split('.').take(2).collect();
        matches!(numbers[..], [first, second]
            if [first, second].iter().all(|part| part.starts_with(|first: char| first.is_ascii_digit())))
    };
    let words = said.lines().next().unwrap_or_default().split([' ', ',']);
    match words.take(8).find(is_version) {
        Some(version) if version.len() <= 60 => {
            Ok(EngineVersion { path: program.program, version: version.to_owned() })
        }
        _ => Err(shortened(ContainerError::Failed {
            program: settings.engine.program(),
            action: "say its version",
            said,
        })),
    }
}

/// Runs a container that does nothing, as those for commands are run.
fn run(settings: &Containers, program: &EngineProgram, image: &str) -> Result<(), ContainerError> {
    let workspace = TemporaryDirectory::make()?;
    let own = ContainerMount { source: workspace.path().to_owned(), ..settings.workspace.clone() };
    let own = ContainerMount { access: AccessMode::Read, ..own };
    let settings = Containers { workspace: own, ..settings.clone() };
    let name = format!("{}{}", settings.prefix, digest(&workspace.path().display().to_string(), 8));
    let mut arguments = settings.arguments(image, &name)?;
    arguments.retain(|word| !matches!(word.as_str(), "--detach" | "--interactive"));
    let image = arguments.pop().unwrap_or_default();
    arguments.extend(["--rm".to_owned(), image, "-c".to_owned(), "exit 0".to_owned()]);
    let ran = program.must("run a container", &arguments);
    if ran.is_err() {
        // One that does not end is in nobody's way, but takes room.
        drop(program.call(&["rm", "-f", &name].map(str::to_owned)));
    }
    ran.map(drop)
}

/// What a program printed, in one line that a person reads.
fn shortened(error: ContainerError) -> ContainerError {
    match error {
        ContainerError::Failed { program, action, said } => {
            let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
            let plain = words.chars().filter(|letter| !letter.is_control());
            let mut short: String = plain.clone().take(MOST).collect();
            if plain.count() > MOST {
                short.push('…');
            }
            if short.is_empty() {
                short.push_str("it printed nothing");
            }
            ContainerError::Failed { program, action, said: short }
        }
        other => other,
    }
}
