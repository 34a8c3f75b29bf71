//! What a person had forgotten, for the store: no search finds it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu_memory::{ForgetList, MemoryHome};
use quipu_protocol::NodeId;
use quipu_store::{HiddenNodes, HiddenSnapshot, HiddenSource};

use crate::HostNotice;
use crate::file_stamp::FileStamp;
use crate::observer::SharedObserver;

/// The list of a home, read again when its file has changed.
pub(crate) struct ForgetFile {
    observer: SharedObserver,
    memory: MemoryHome,
    read: Mutex<FileState>,
}

#[derive(Default)]
struct FileState {
    stamp: FileStamp,
    /// `None` before it was read.
    list: Option<Arc<ForgottenNodes>>,
}

/// What the list said when it was read.
struct ForgottenNodes {
    /// Where the file cannot be used everything is hidden, so that nothing comes back: why.
    list: Result<ForgetList, String>,
    /// How often it was read before, from 1.
    version: u64,
}

impl ForgetFile {
    /// Below our directory. What is wrong with the list is told to `observer`.
    pub(crate) fn new(dir: &Path, observer: SharedObserver) -> Self {
        Self { observer, memory: MemoryHome::new(dir), read: Mutex::default() }
    }

    fn list(&self) -> Arc<ForgottenNodes> {
        let stamp = FileStamp::of(&ForgetList::path(&self.memory));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let before = read.list.clone();
        // What could not be read may be readable now, and the file as it was.
        if let Some(before) = &before
            && before.list.is_ok()
            && read.stamp == stamp
        {
            return before.clone();
        }
        let version = before.as_ref().map_or(0, |before| before.version) + 1;
        let list = ForgetList::read(&self.memory).map_err(|error| error.to_string());
        if let Err(error) = &list {
            if let Some(known) = before.filter(|before| before.list.as_ref().err() == Some(error)) {
                return known;
            }
            let text = format!(
                "No search has hits and no session is continued while what was forgotten cannot be read: {error}"
            );
            self.observer.0.notice(HostNotice { is_warning: true, text, advice: None });
        }
        let list = Arc::new(ForgottenNodes { list, version });
        *read = FileState { stamp, list: Some(list.clone()) };
        list
    }
}

impl HiddenSource for ForgetFile {
    fn now(&self) -> HiddenSnapshot {
        HiddenSnapshot::of(self.list())
    }
}

impl HiddenNodes for ForgottenNodes {
    fn is_empty(&self) -> bool {
        self.list.as_ref().is_ok_and(ForgetList::is_empty)
    }

    fn hides(&self, node: &NodeId) -> bool {
        self.list.as_ref().map_or(true, |list| list.hides_node(node))
    }

    fn hides_line(&self, line: &str) -> bool {
        self.list.as_ref().is_ok_and(|list| list.hides_line(line))
    }

    fn version(&self) -> u64 {
        self.version
    }

    fn problem(&self) -> Option<&str> {
        self.list.as_ref().err().map(String::as_str)
    }
}
