//! What a person had forgotten, for the store: no search finds it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use quipu_memory::{ForgetList, MemoryHome};
use quipu_protocol::NodeId;
use quipu_store::HiddenNodes;

use crate::HostNotice;
use crate::observer::SharedObserver;

/// The list of a home, read again when its file has changed.
pub(crate) struct ForgottenNodes {
    observer: SharedObserver,
    memory: MemoryHome,
    read: Mutex<ListState>,
}

#[derive(Default)]
struct ListState {
    stamp: Option<(SystemTime, u64)>,
    /// `None` where the file cannot be used: then everything is hidden, so that nothing comes back.
    list: Option<Arc<ForgetList>>,
    is_read: bool,
}

impl ForgottenNodes {
    /// Below our directory. What is wrong with the list is told to `observer`.
    pub(crate) fn new(dir: &Path, observer: SharedObserver) -> Self {
        Self { observer, memory: MemoryHome::new(dir), read: Mutex::default() }
    }

    fn list(&self) -> Option<Arc<ForgetList>> {
        let found = std::fs::metadata(ForgetList::path(&self.memory)).ok();
        let stamp = found.and_then(|found| Some((found.modified().ok()?, found.len())));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if !read.is_read || read.stamp != stamp {
            let list = ForgetList::read(&self.memory).map(Arc::new).map_err(|error| {
                let text = format!("No search has hits while what was forgotten cannot be read: {error}");
                self.observer.0.notice(HostNotice { is_warning: true, text, advice: None });
            });
            *read = ListState { stamp, list: list.ok(), is_read: true };
        }
        read.list.clone()
    }
}

impl HiddenNodes for ForgottenNodes {
    fn is_empty(&self) -> bool {
        self.list().is_some_and(|list| list.is_empty())
    }

    fn hides(&self, node: &NodeId) -> bool {
        self.list().is_none_or(|list| list.hides_node(node))
    }
}
