//! The store, opened when it is needed, and what a page of text is.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_protocol::UnixMs;
use quipu_seal::Sealer;
use quipu_store::Graph;

use crate::blames::BlameMemory;
use crate::desk::MemoryDesk;
use crate::error::{CallError, StoreOpenError};
use crate::reach::ScopeSetting;

/// Opens the store; `None` while nothing was ever stored.
pub type StoreOpener = Arc<dyn Fn() -> Result<Option<Arc<dyn Graph>>, StoreOpenError> + Send + Sync>;

/// What a server shows, and to whom.
#[derive(Clone)]
pub struct ServerOptions {
    /// Opens the store, at the first call that needs it.
    pub opener: StoreOpener,
    /// Replaces secrets in what a client searches for: the store knows them by their placeholders.
    pub sealer: Arc<Sealer>,
    /// The directory of the server, without links: the scope of a client without roots.
    pub directory: PathBuf,
    /// What the user's setting allows.
    pub scope: ScopeSetting,
    /// The tools of memory, which take the place of `search` where memory is on.
    pub memory: Option<Arc<dyn MemoryDesk>>,
    /// The version that clients are told.
    pub version: String,
    /// Tells the person who started the server a line.
    pub notify: Arc<dyn Fn(&str) + Send + Sync>,
}

/// The store behind the tools.
pub(crate) struct Archive {
    opener: StoreOpener,
    pub(crate) sealer: Arc<Sealer>,
    opened: Mutex<Option<Arc<dyn Graph>>>,
    pub(crate) blames: BlameMemory,
}

impl Archive {
    pub(crate) fn new(options: &ServerOptions) -> Self {
        let (opener, sealer) = (options.opener.clone(), options.sealer.clone());
        Self { opener, sealer, opened: Mutex::default(), blames: BlameMemory::default() }
    }

    /// The store.
    ///
    /// # Errors
    /// `Empty` while there is none, `Opening` where it cannot be opened; the next call tries again.
    pub(crate) fn store(&self) -> Result<Arc<dyn Graph>, CallError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = &*opened {
            return Ok(store.clone());
        }
        let store = (self.opener)()?.ok_or(CallError::Empty)?;
        *opened = Some(store.clone());
        Ok(store)
    }
}

/// A part of a result, and where the next begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) text: String,
    /// The `cursor` of the next page.
    pub(crate) next: Option<String>,
}

impl Page {
    /// The text with a last line that says how to go on. It stands behind the frame: the server says it, not the archive.
    pub(crate) fn whole(self) -> String {
        match self.next {
            None => self.text,
            Some(next) => format!("{}\nMore: call again with cursor \"{next}\".", self.text),
        }
    }
}

/// The time.
pub(crate) fn now() -> UnixMs {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| UnixMs::try_from(since.as_millis()).unwrap_or(UnixMs::MAX))
}
