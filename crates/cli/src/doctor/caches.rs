//! What commands wrote to caches of tools, which is kept for each project.

use std::io;

use quipu_workspace::{cache_layers, drop_cache_layers};

use super::{Finding, State};
use crate::exit::Failure;
use quipu_host::Home;

async fn apart<T: Send + 'static>(
    home: &Home,
    work: fn(&std::path::Path) -> io::Result<T>,
) -> Result<T, Failure> {
    let root = home.cache_layers();
    let path = root.display().to_string();
    let work = tokio::task::spawn_blocking(move || work(&root)).await;
    work.unwrap_or_else(|error| Err(error.into()))
        .map_err(|error| Failure::failed(format!("{path}: {error}")))
}

/// How much is kept; nothing where there is none.
pub(super) async fn finding(home: &Home) -> Option<Finding> {
    let (state, detail) = match apart(home, cache_layers).await {
        Ok((_, _, 0)) => return None,
        Ok((projects, files, bytes)) => {
            let (ss, fs) = (if projects == 1 { "" } else { "s" }, if files == 1 { "" } else { "s" });
            let mib = bytes.div_ceil(1 << 20);
            let detail = format!(
                "written by commands to caches: {projects} project{ss}, {files} file{fs}, {mib} MiB; `quipu doctor --drop-caches` removes it"
            );
            (State::Good, detail)
        }
        Err(error) => (State::Note, error.message),
    };
    Some(Finding { what: "caches", state, detail })
}

/// Removes what no session has.
pub(super) async fn drop_unused(home: &Home) -> Result<(State, String), Failure> {
    Ok(match apart(home, drop_cache_layers).await? {
        0 => (State::Good, "removed what commands wrote to caches".to_owned()),
        used => {
            let s = if used == 1 { "" } else { "s" };
            (
                State::Note,
                format!("removed what commands wrote to caches, except for {used} running session{s}"),
            )
        }
    })
}
