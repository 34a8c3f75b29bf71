//! The first call of a large session file is begun before all of the file is in the store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::{EarlyCall, Engine, SessionOptions};
use quipu_archive::pi::SessionFile;
use quipu_protocol::UserInput;
use quipu_providers::Settings;
use quipu_store::{SqliteStore, Store};

use crate::args::Task;
use crate::exit::Failure;
use crate::session_file::row_of;
use crate::setup::{Basis, Place, Prepared, prepare};

/// What is said when it was for nothing.
pub(crate) const UNUSED: &str = "A model call was begun while the file was read, and stopped since the session asked something else then; it may have \
     been charged";

/// What was foreseen.
pub(crate) struct Early {
    /// Where the session goes on, if nothing comes between.
    pub(crate) basis: Basis,
    /// What it is made of there.
    pub(crate) prepared: Result<Prepared, Failure>,
    /// Its first call, under way.
    pub(crate) call: Option<Arc<EarlyCall>>,
}

/// Begins the first call of a file's session, where it is known what that will be. What goes wrong here will go wrong, and
/// be told, when the file is opened.
pub(crate) async fn begin(
    place: &Place,
    task: &Task,
    settings: &Settings,
    engine: &Engine,
    file: &SessionFile,
    prompt: &UserInput,
) -> Option<Early> {
    let elsewhere = task.fork.is_some() || task.cwd.is_some();
    // A recorder keeps what it is told to send when it is.
    if elsewhere || task.replay.is_some() || task.record.is_some() {
        return None;
    }
    let aside: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().ok()?);
    let (session, last) = file.glance(&**engine.store(), &aside, engine.sealer()).await.ok()??;
    let cwd = row_of(&*aside, Some(session.clone())).await.ok()??.cwd;
    if !Path::new(&cwd).is_dir() {
        return None;
    }
    let epoch = quipu::epoch_at(&*aside, last).await.ok()?;
    let basis = Basis { cwd: PathBuf::from(cwd), last: Some(epoch), ours: false, moved: false };
    let prepared = prepare(place, task, settings, engine, &basis, None).await;
    let mut early = Early { basis, prepared, call: None };
    if let Ok(prepared) = &early.prepared {
        // What the day has cost stands in the store proper.
        let options = SessionOptions { ledger: Some(engine.store().clone()), ..prepared.options.clone() };
        let provider = options.provider.clone();
        if let Some(first) = engine.over(aside).first_request(last, options, prompt.clone()).await
            && file.announce(&**engine.store(), &session, first.session()).await.is_ok()
        {
            early.call = engine.begin_early(first, provider).await.ok().map(Arc::new);
        }
    }
    Some(early)
}
