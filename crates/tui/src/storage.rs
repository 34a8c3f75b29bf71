//! Who keeps what is written and sent. What cannot be kept is told once, and again when it can be; no key waits for it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::editor::Draft;
use crate::{DraftFile, SentFile};

/// How long the end waits for what was sent to be kept: another process may hold the file.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Stores the draft and the history of the editor.
pub(crate) struct EditorStorage {
    draft: Option<DraftFile>,
    /// What was saved last could not be.
    fails: bool,
    /// Texts for the history, in order. As many as a person sends.
    texts: Option<Sender<String>>,
    done: oneshot::Receiver<()>,
}

impl EditorStorage {
    /// `report` tells a person something, from another thread.
    pub(crate) fn new(
        draft: Option<DraftFile>,
        sent: SentFile,
        report: impl Fn(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (texts, given) = channel();
        let (end, done) = oneshot::channel();
        std::thread::Builder::new().name("history".to_owned()).spawn(move || {
            append(&sent, &given, &report);
            // Nobody may wait for it any more.
            let _ended = end.send(());
        })?;
        Ok(Self { draft, fails: false, texts: Some(texts), done })
    }

    /// Keeps what is being written; what is to be told of that.
    pub(crate) fn draft(&mut self, draft: &Draft) -> Option<String> {
        let result = self.draft.as_mut()?.save(draft);
        if self.fails && draft.is_empty() && result.is_ok() {
            // That nothing is written says nothing of what will be.
            return None;
        }
        let failed = std::mem::replace(&mut self.fails, result.is_err());
        match result {
            Err(error) if !failed => Some(format!(
                "Your unsent text is not saved, so a crash would lose it: {error}. Quipu tries again with each key."
            )),
            Ok(()) if failed => Some("Your unsent text is saved again".to_owned()),
            Err(_) | Ok(()) => None,
        }
    }

    /// Keeps what was sent.
    pub(crate) fn sent(&self, text: String) {
        if let Some(texts) = &self.texts {
            // The thread ends last.
            drop(texts.send(text));
        }
    }

    /// Waits for what was sent to be kept, and not for ever.
    pub(crate) async fn finish(mut self) {
        self.texts = None;
        drop(tokio::time::timeout(LAST_WAIT, self.done).await);
    }
}

fn append(file: &SentFile, texts: &Receiver<String>, report: &dyn Fn(String)) {
    let mut fails = false;
    for text in texts {
        let result = file.append(&text);
        let failed = std::mem::replace(&mut fails, result.is_err());
        match result {
            Err(error) if !failed => {
                report(format!(
                    "Sent messages are not saved in the history: {}: {error}",
                    file.path().display()
                ));
            }
            Ok(()) if failed => report("Sent messages are saved in the history again".to_owned()),
            Err(_) | Ok(()) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editor::Editor;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    #[test]
    fn storage_failure_is_reported_once() {
        let home = tempfile::tempdir().unwrap();
        let sealer = Arc::new(quipu::Sealer::new([7; 32]));
        let (draft, _) = DraftFile::claim(home.path(), Path::new("/a"), &sealer).unwrap();
        let sent = SentFile::new(home.path(), &sealer);
        let failures: Arc<Mutex<Vec<String>>> = Arc::default();
        let listener = failures.clone();
        let mut storage =
            EditorStorage::new(Some(draft), sent.clone(), move |text| listener.lock().unwrap().push(text))
                .unwrap();
        let mut editor = Editor::default();
        editor.insert("text");
        // A file where a directory was; and a directory where a file is to be.
        let drafts = home.path().join("drafts");
        std::fs::rename(&drafts, home.path().join("away")).unwrap();
        std::fs::write(&drafts, "").unwrap();
        std::fs::create_dir(sent.path()).unwrap();
        assert!(storage.draft(&editor.draft()).unwrap().contains("not saved"));
        assert_eq!(storage.draft(&editor.draft()), None);
        storage.sent("one".into());
        storage.sent("two".into());
        while failures.lock().unwrap().is_empty() {
            std::thread::yield_now();
        }
        std::fs::remove_file(&drafts).unwrap();
        std::fs::rename(home.path().join("away"), &drafts).unwrap();
        assert!(storage.draft(&editor.draft()).unwrap().contains("saved again"));
        assert_eq!(storage.draft(&editor.draft()), None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(storage.finish());
        let failures = failures.lock().unwrap();
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert!(failures[0].contains("history.jsonl"));
    }
}
