//! What is going on, for who looks for a fault: spans and events of `tracing`, as lines of JSON. Off unless `QUIPU_LOG` says
//! otherwise; docs/tracing.md has the rest.

mod filter;
mod lines;
mod sink;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::Sealer;
use quipu_host::holders::{ContentHolder, LinesHolder, WrittenKind};
use quipu_host::{Home, SilentObserver, env, seal_credentials, seals_with};
use tracing::level_filters::LevelFilter;

use crate::print::note;
use filter::Filter;
use lines::LineWriter;
use sink::{LogFile, Sink, make_directory};

/// Of the directory of the user's files.
const FILE: &str = "logs/quipu.jsonl";

/// Who has stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Front {
    /// The terminal is drawn on.
    Terminal,
    /// It takes lines.
    Lines,
}

/// What is to be told when somebody draws on the terminal.
static NOTES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell_later(text: &str) {
    NOTES.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
}

fn tell_now(text: &str) {
    note(format!("warning: {text}"));
}

/// What there is to tell since the last time.
pub(crate) fn notes() -> Vec<String> {
    std::mem::take(&mut *NOTES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The traces of a home, as a place that holds content: the file and the one before it. Those of another name are in the list
/// of files that were written.
pub(crate) fn holder(home: &Home) -> Arc<dyn ContentHolder> {
    let own = home.dir.join(FILE);
    let old = own.with_extension("jsonl.1");
    Arc::new(LinesHolder::new("trace", vec![old, own]).with_ids())
}

/// Begins to trace where the environment says so. What is wrong with that is told, and nothing is traced then.
pub(crate) fn start(front: Front) {
    let Some(directives) = env("QUIPU_LOG") else { return };
    let warn = match front {
        Front::Terminal => tell_later,
        Front::Lines => tell_now,
    };
    let filter = match Filter::parse(&directives) {
        Ok(filter) if filter.most() == LevelFilter::OFF => return,
        Ok(filter) => filter,
        Err(error) => return warn(&format!("QUIPU_LOG is ignored: {error}")),
    };
    let placed =
        Home::find(None, Arc::new(SilentObserver)).and_then(|home| home.seal_key().map(|key| (home, key)));
    let (home, key) = match placed {
        Ok(placed) => placed,
        Err(failure) => return warn(&format!("tracing is off: {}", failure.message)),
    };
    let own = home.dir.join(FILE);
    let path = match (env("QUIPU_LOG_FILE"), front) {
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Front::Lines) => None,
        (None, Front::Terminal) => Some(own.clone()),
    };
    let sink = match &path {
        None => Sink::Stderr,
        Some(path) => {
            let made = own.parent().filter(|_| own == *path).map_or(Ok(()), make_directory);
            match made.and_then(|()| LogFile::open(path, warn)) {
                Ok(file) => {
                    if own != *path {
                        home.wrote(path, WrittenKind::Trace, &[]);
                    }
                    Sink::File(Mutex::new(file))
                }
                Err(error) => return warn(&format!("tracing is off: {}: {error}", path.display())),
            }
        }
    };
    // Those of sessions are added as they are opened; this one has what is known before.
    let sealer = Arc::new(Sealer::new(key));
    seal_credentials(&sealer, &home.settings());
    seals_with(&sealer);
    let writer = LineWriter::new(filter, sink, sealer);
    if tracing::subscriber::set_global_default(writer).is_ok()
        && let (Some(path), Front::Terminal) = (path, front)
    {
        tell_later(&format!("Tracing to {}", path.display()));
    }
}
