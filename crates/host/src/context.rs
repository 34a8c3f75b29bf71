//! What settings make of history and travel, and room for the states of files.

use quipu::{HistorySettings, TravelSettings};
use quipu_replay::Replay;
use quipu_store::{DroppedFiles, OpenOptions, SqliteStore, Upkeep as _};

use crate::{Home, OpenRequest, Settings};

/// Old states of files make room when a task is over and the store has grown beyond what they may take. No reason for the
/// task to fail.
pub async fn make_room(home: &Home) -> Option<DroppedFiles> {
    let size = std::fs::metadata(&home.store).map_or(0, |found| found.len());
    let files = home.config().files;
    if size <= files.store_bytes {
        return None;
    }
    let done = async {
        let store = SqliteStore::open(&home.store, &OpenOptions::default())?;
        let observer = home.shared_observer();
        store.drop_files_when_due(files.store_bytes, &move |at| observer.dropping(at)).await
    };
    match done.await {
        Ok(done) => done.filter(|done| done.states > 0),
        Err(error) => {
            home.warn(format!("old file states could not be dropped: {error}"));
            None
        }
    }
}

/// Whether the model can search what was done before. Without a store there is nothing to search; what is replayed has
/// the tools of its recording.
pub(crate) fn history_settings(
    settings: &Settings,
    request: &OpenRequest,
    replayed: Option<&Replay>,
) -> HistorySettings {
    let mut history = settings.history;
    history.enabled &= !request.in_memory;
    history.enabled &= replayed.is_none_or(Replay::searches_history);
    history
}

/// Whether the model can look at the graph, and go to earlier points of its session. Without a store there is nothing to
/// look at; what is replayed has the tools of its recording.
pub(crate) fn travel_settings(
    settings: &Settings,
    request: &OpenRequest,
    replayed: Option<&Replay>,
) -> TravelSettings {
    let mut travel = settings.travel;
    if let Some(replay) = replayed {
        travel.tools = replay.travels();
    }
    travel.tools &= !request.in_memory;
    travel
}
