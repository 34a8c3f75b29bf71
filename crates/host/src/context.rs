//! What `settings.json` says of contexts, files, history and travel.

use quipu::{
    CompactionSettings, FileSettings, HistorySettings, PruneSettings, TravelSettings, compaction_settings,
    prune_settings,
};
use quipu_replay::Replay;
use quipu_store::{DroppedFiles, OpenOptions, SqliteStore, Upkeep as _};

use crate::{OpenRequest, Place};

/// Old states of files make room when a task is over and the store has grown beyond what they may take. No reason for the
/// task to fail.
pub async fn make_room(place: &Place) -> Option<DroppedFiles> {
    let size = std::fs::metadata(&place.store).map_or(0, |found| found.len());
    let (files, _) = FileSettings::of_json(&place.settings_json().unwrap_or_default());
    if size <= files.store_bytes {
        return None;
    }
    let done = async {
        let store = SqliteStore::open(&place.store, &OpenOptions::default())?;
        let observer = place.shared_observer();
        store.drop_files_when_due(files.store_bytes, &move |at| observer.dropping(at)).await
    };
    match done.await {
        Ok(done) => done.filter(|done| done.states > 0),
        Err(error) => {
            place.warn(format!("old states of files could not be dropped: {error}"));
            None
        }
    }
}

/// What `settings.json` says of compaction, and of results that are left out; what is wrong there is told.
pub fn context_settings(place: &Place) -> (CompactionSettings, PruneSettings) {
    let settings = place.settings_json().unwrap_or_default();
    let (compaction, mut problems) = compaction_settings(&settings);
    let (prune, more) = prune_settings(&settings);
    problems.extend(more);
    for problem in problems {
        place.warn_of_settings(problem);
    }
    (compaction, prune)
}

/// Whether the model can search what was done before. Without a store there is nothing to search; what is replayed has
/// the tools of its recording.
pub(crate) fn history_settings(
    place: &Place,
    request: &OpenRequest,
    replayed: Option<&Replay>,
) -> HistorySettings {
    let (mut history, problems) = HistorySettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        place.warn_of_settings(problem);
    }
    history.enabled &= !request.in_memory;
    history.enabled &= replayed.is_none_or(Replay::searches_history);
    history
}

/// What is kept of the files that tools change.
pub fn file_settings(place: &Place) -> FileSettings {
    let (files, problems) = FileSettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        place.warn_of_settings(problem);
    }
    files
}

/// Whether the model can look at the graph, and go to earlier points of its session. Without a store there is nothing to
/// look at; what is replayed has the tools of its recording.
pub(crate) fn travel_settings(
    place: &Place,
    request: &OpenRequest,
    replayed: Option<&Replay>,
) -> TravelSettings {
    let (mut travel, problems) = TravelSettings::of_json(&place.settings_json().unwrap_or_default());
    for problem in problems {
        place.warn_of_settings(problem);
    }
    if let Some(replay) = replayed {
        travel.tools = replay.travels();
    }
    travel.tools &= !request.in_memory;
    travel
}
