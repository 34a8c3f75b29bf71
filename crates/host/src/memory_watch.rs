//! Notes are indexed when a program has changed them, while a front that lives long has sessions with a memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use quipu_memory::MemoryPlace;
use quipu_memory::search::{MemorySearch, NoteWatch};
use quipu_seal::Sealer;
use quipu_store::{Graph, WordVectors};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::Home;
use crate::file_stamp::FileStamp;
use crate::front_thread::{ThreadEnd, run_in_thread};
use crate::memory::{memory_home, memory_places, notebooks};

/// How long after the first change of several all of them are indexed.
const GATHER: Duration = Duration::from_millis(100);
/// How long after a failure it is tried again.
const AGAIN: Duration = Duration::from_secs(5);
/// The longest rest after work; it is as long as the work was.
const REST: Duration = Duration::from_millis(500);
/// How long the end of a front waits for the index.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether memory is on again, while a session is open whose memory was switched off.
const SWITCH: Duration = Duration::from_secs(2);
/// Directories whose memories are watched at most.
const MOST: usize = 64;

/// What sessions search, for whoever watches it. Clones of a home have the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct WatchedMemories(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// By the directory of the sessions.
    searches: Mutex<BTreeMap<PathBuf, WatchedSearch>>,
    is_new: Notify,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WatchedMemories")
    }
}

/// How the sessions of a directory search.
#[derive(Clone)]
struct WatchedSearch {
    /// Those of its sessions: none is held open.
    stores: Vec<Weak<dyn Graph>>,
    sealer: Arc<Sealer>,
    words: Option<Arc<dyn WordVectors>>,
}

impl WatchedSearch {
    /// Whether a session still has its store open.
    fn is_open(&self) -> bool {
        self.stores.iter().any(|store| store.strong_count() > 0)
    }
}

impl WatchedMemories {
    fn searches(&self) -> MutexGuard<'_, BTreeMap<PathBuf, WatchedSearch>> {
        self.0.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Has the notes that are open in a directory indexed whenever they change: as `search` does it, while somebody has the store
/// open. Nothing happens where no front watches.
pub fn watch_memory(
    home: &Home,
    cwd: &Path,
    store: &Arc<dyn Graph>,
    sealer: &Arc<Sealer>,
    search: &MemorySearch,
) {
    let mut searches = home.watched.searches();
    if searches.len() >= MOST && !searches.contains_key(cwd) {
        return;
    }
    let mut stores = searches.remove(cwd).map(|search| search.stores).unwrap_or_default();
    let is_known = stores.iter().any(|known| known.ptr_eq(&Arc::downgrade(store)));
    stores.retain(|store| store.strong_count() > 0);
    stores.push(Arc::downgrade(store));
    let watched = WatchedSearch { stores, sealer: sealer.clone(), words: search.words().cloned() };
    searches.insert(cwd.to_path_buf(), watched);
    drop(searches);
    if !is_known {
        home.watched.0.is_new.notify_one();
    }
}

/// Until `stop` is cancelled. There is no thread, and nothing wakes, before a session has a memory.
pub(crate) async fn watch_memories(home: &Home, stop: CancellationToken) {
    let mut stamp = None;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = home.watched.0.is_new.notified() => {}
            () = switched_on(home, stamp) => {}
        }
        stamp = Some(ChoiceStamp::now(home));
        let (watch_home, ends) = (home.clone(), stop.clone());
        // Files are read there: no turn waits for them.
        let work = move || async move {
            watch(&watch_home, &ends).await;
            Ok(())
        };
        match run_in_thread(&stop, PATIENCE, work).await {
            ThreadEnd::Done => {}
            ThreadEnd::Failed(failure) => home.warn(format!("Changes of notes are not watched: {failure}.")),
            ThreadEnd::Panicked => home
                .warn("The watch of notes panicked, which is a bug; it starts again with the next session."),
            ThreadEnd::Blocked => return,
        }
    }
}

/// The files that say where memory is on, as they were.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ChoiceStamp([FileStamp; 2]);

impl ChoiceStamp {
    fn now(home: &Home) -> Self {
        let paths = [memory_home(home).choices_path(), home.dir.join("settings.json")];
        Self(paths.map(|path| FileStamp::of(&path)))
    }
}

/// Until memory may be on again where a session searches whose memory was switched off; for ever where there is none.
async fn switched_on(home: &Home, before: Option<ChoiceStamp>) {
    loop {
        home.watched.searches().retain(|_, search| search.is_open());
        if home.watched.searches().is_empty() || before.is_none() {
            return std::future::pending().await;
        }
        tokio::time::sleep(SWITCH).await;
        if Some(ChoiceStamp::now(home)) != before {
            return;
        }
    }
}

/// The searches over memories that are on; `None` where nothing is to be watched.
fn searches(home: &Home) -> Option<Vec<(PathBuf, MemorySearch)>> {
    let mut watched = home.watched.searches();
    let (mut found, mut is_watched) = (Vec::new(), false);
    watched.retain(|cwd, search| {
        let Some(store) = search.stores.iter().find_map(Weak::upgrade) else { return false };
        let Ok(books) = notebooks(home, &store, &search.sealer, cwd) else {
            // What cannot be read now may be read later.
            is_watched = true;
            return true;
        };
        // One that is switched off may be switched on again.
        if !books.is_empty() {
            is_watched = true;
            let index = MemorySearch::new(memory_home(home), store, books, search.sealer.clone());
            found.push((cwd.clone(), index.with_words(search.words.clone())));
        }
        true
    });
    is_watched.then_some(found)
}

/// Until nothing is left to watch, or `stop` is cancelled.
async fn watch(home: &Home, stop: &CancellationToken) {
    let mut notes = NoteWatch::default();
    let mut reported: Option<String> = None;
    loop {
        let began = Instant::now();
        // Before anything is indexed: what changes from here on is noticed.
        let places = places(home);
        notes.watch(&places, std::slice::from_ref(&home.dir));
        let Some(searches) = searches(home) else { return };
        let mut failed = None;
        let work = async {
            for (_, search) in &searches {
                if let Err(error) = search.index_notes().await {
                    failed = Some(error.to_string());
                }
            }
        };
        if stop.run_until_cancelled(work).await.is_none() {
            return;
        }
        // No store is held open meanwhile.
        drop(searches);
        if failed.is_some() && failed != reported {
            let why = failed.clone().unwrap_or_default();
            home.warn(format!("Notes that changed are not indexed now: {why}. The next search tries again."));
        }
        let again = failed.as_ref().map_or(Duration::MAX, |_| AGAIN);
        reported = failed;
        let woken = async {
            // At most half of the time, however much changes.
            tokio::time::sleep(began.elapsed().min(REST)).await;
            tokio::select! {
                () = notes.changed() => tokio::time::sleep(GATHER).await,
                () = home.watched.0.is_new.notified() => {}
                () = tokio::time::sleep(again) => {}
            }
        };
        if stop.run_until_cancelled(woken).await.is_none() {
            return;
        }
    }
}

fn places(home: &Home) -> Vec<MemoryPlace> {
    let directories: Vec<PathBuf> = home.watched.searches().keys().cloned().collect();
    let mut places: Vec<MemoryPlace> =
        directories.iter().flat_map(|cwd| memory_places(home, cwd).unwrap_or_default()).collect();
    places.sort_by(|a, b| a.id.cmp(&b.id));
    places.dedup();
    places
}
