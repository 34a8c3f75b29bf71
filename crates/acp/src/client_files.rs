//! Files as the client holds them: an editor with changes that are not saved.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quipu::EditorFiles;
use serde_json::{Value, json};
use tokio::runtime::Handle;

use crate::link::SessionLink;

/// How long the client may take over one file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks the client about files, from threads that may block.
pub(crate) struct ClientFiles {
    link: Arc<SessionLink>,
    runtime: Handle,
    /// It did not answer in time once, and is not waited for again.
    is_silent: AtomicBool,
}

impl ClientFiles {
    /// Must be called within a Tokio runtime.
    pub(crate) fn new(link: Arc<SessionLink>) -> Self {
        Self { link, runtime: Handle::current(), is_silent: AtomicBool::new(false) }
    }

    fn ask(&self, method: &str, path: &Path, content: Option<&str>) -> Option<Value> {
        let (session, path) = (self.link.name()?, path.to_str()?);
        if self.is_silent.load(Ordering::Relaxed) {
            return None;
        }
        let mut params = json!({ "sessionId": session, "path": path });
        if let Some(content) = content {
            params["content"] = content.into();
        }
        let stop = self.link.stop();
        let asked = async {
            tokio::select! {
                answer = tokio::time::timeout(PATIENCE, self.link.connection.request(method, &params)) => Some(answer),
                () = stop.cancelled() => None,
            }
        };
        match self.runtime.block_on(asked)? {
            Ok(answer) => answer.ok(),
            Err(_) => {
                self.is_silent.store(true, Ordering::Relaxed);
                None
            }
        }
    }
}

impl EditorFiles for ClientFiles {
    fn read(&self, path: &Path) -> Option<String> {
        if !self.link.abilities.reads_files {
            return None;
        }
        let answer = self.ask("fs/read_text_file", path, None)?;
        answer.get("content").and_then(Value::as_str).map(str::to_owned)
    }

    fn written(&self, path: &Path, text: &str) {
        if self.link.abilities.writes_files {
            // The file is written: an editor that does not take it reads it.
            drop(self.ask("fs/write_text_file", path, Some(text)));
        }
    }
}
