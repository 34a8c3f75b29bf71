//! What a person had forgotten, for the store: no search finds it.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    stamp: Option<(SystemTime, u64, u64)>,
    /// `None` where the file cannot be used: then everything is hidden, so that nothing comes back.
    list: Option<Arc<ForgetList>>,
    problem: Option<String>,
    /// How often it was read; 0 before that.
    version: u64,
}

impl ForgottenNodes {
    /// Below our directory. What is wrong with the list is told to `observer`.
    pub(crate) fn new(dir: &Path, observer: SharedObserver) -> Self {
        Self { observer, memory: MemoryHome::new(dir), read: Mutex::default() }
    }

    fn now(&self) -> MutexGuard<'_, ListState> {
        let found = std::fs::metadata(ForgetList::path(&self.memory)).ok();
        let stamp = found.and_then(|found| Some((found.modified().ok()?, found.len(), found.ino())));
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        // What could not be read may be readable now, and the file as it was.
        if read.version == 0 || read.stamp != stamp || read.problem.is_some() {
            let (list, problem) = match ForgetList::read(&self.memory) {
                Ok(list) => (Some(Arc::new(list)), None),
                Err(error) => {
                    let text = format!(
                        "No search has hits and no session is continued while what was forgotten cannot be read: {error}"
                    );
                    let problem = Some(error.to_string());
                    if read.problem != problem {
                        self.observer.0.notice(HostNotice { is_warning: true, text, advice: None });
                    }
                    (None, problem)
                }
            };
            let is_known = read.version > 0 && problem.is_some() && read.problem == problem;
            let version = read.version + u64::from(!is_known);
            *read = ListState { stamp, list, problem, version };
        }
        read
    }

    fn list(&self) -> Option<Arc<ForgetList>> {
        self.now().list.clone()
    }
}

impl HiddenNodes for ForgottenNodes {
    fn is_empty(&self) -> bool {
        self.list().is_some_and(|list| list.is_empty())
    }

    fn hides(&self, node: &NodeId) -> bool {
        self.list().is_none_or(|list| list.hides_node(node))
    }

    fn hides_line(&self, line: &str) -> bool {
        self.list().is_some_and(|list| list.hides_line(line))
    }

    fn version(&self) -> u64 {
        self.now().version
    }

    fn problem(&self) -> Option<String> {
        self.now().problem.clone()
    }
}
