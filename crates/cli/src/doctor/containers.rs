//! The containers that the settings ask for: their program, the image, the runtime.

use std::time::Duration;

use quipu_host::{ContainerFindings, Home, containers_here};

use super::{Finding, State};

/// How long each call of the program may take. A container of an image that was never used is made of it first.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing where commands run in none.
pub(super) async fn findings(home: &Home) -> Vec<Finding> {
    let finding = |state, detail| Finding { what: "containers", state, detail };
    let of = home.clone();
    let found = tokio::task::spawn_blocking(move || containers_here(&of, PATIENCE)).await;
    let report = match found {
        Ok(ContainerFindings::Unused) => return Vec::new(),
        Ok(ContainerFindings::Off) => {
            let detail = "not used: `sandbox.backend` names them, and `sandbox.mode` is off".to_owned();
            return vec![finding(State::Note, detail)];
        }
        Ok(ContainerFindings::Used(report)) => report,
        Err(error) => return vec![finding(State::Bad, error.to_string())],
    };
    let mut all = Vec::new();
    let mut add = |found: Result<String, String>| {
        all.push(match found {
            Ok(detail) => finding(State::Good, detail),
            Err(detail) => finding(State::Bad, detail),
        });
    };
    add(match &report.program {
        Ok(program) => Ok(format!("{} {}", program.path.display(), program.version)),
        Err(error) => Err(error.to_string()),
    });
    if let Some(image) = &report.image {
        let short = |id: &String| id.trim_start_matches("sha256:").chars().take(12).collect::<String>();
        add(image
            .as_ref()
            .map(|id| format!("the image is there ({})", short(id)))
            .map_err(ToString::to_string));
    }
    if let Some(runtime) = &report.runtime {
        let ran = runtime.as_ref().map(|()| "a container of it runs".to_owned());
        add(ran.map_err(ToString::to_string));
    }
    all
}
