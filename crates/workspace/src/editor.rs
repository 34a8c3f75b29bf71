//! Files as an editor in front of the session holds them, with changes that are not saved.

use std::fmt;
use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::open_for_reading;

/// Bytes of a file, and of a text that an editor holds of it, at most. Larger files are as they are on disk.
const EDITED_FILE: u64 = 8 << 20;

/// An editor in front of the session. Its answers are those of another program: none is waited for without a limit.
pub trait EditorFiles: Send + Sync + 'static {
    /// The text of the file as the editor holds it; `None` where it holds none or does not answer. Blocks.
    fn read(&self, path: &Path) -> Option<String>;

    /// This text was just written to the file. Blocks until the editor took it, or did not.
    fn written(&self, path: &Path, text: &str);
}

/// An editor that several calls share.
#[derive(Clone)]
pub(crate) struct SharedEditor(Arc<dyn EditorFiles>);

impl fmt::Debug for SharedEditor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedEditor")
    }
}

/// A text that is not saved, by the true path of its file.
#[derive(Debug, Clone)]
pub(crate) struct UnsavedText {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl SharedEditor {
    pub(crate) fn new(editor: Arc<dyn EditorFiles>) -> Self {
        Self(editor)
    }

    pub(crate) fn written(&self, path: &Path, bytes: &[u8]) {
        if let Ok(text) = std::str::from_utf8(bytes) {
            self.0.written(path, text);
        }
    }

    /// What the editor holds of a file beyond what is on disk, with the line ends of the file.
    pub(crate) fn unsaved(&self, real: &Path) -> Option<UnsavedText> {
        let (file, metadata) = open_for_reading(real).ok()?;
        if metadata.len() > EDITED_FILE {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(EDITED_FILE + 1).read_to_end(&mut bytes).ok()?;
        let saved = std::str::from_utf8(&bytes).ok().filter(|text| text.len() as u64 <= EDITED_FILE)?;
        let held = self.0.read(real).filter(|text| text.len() as u64 <= EDITED_FILE)?;
        let text = like(saved, &held);
        (text != saved).then(|| UnsavedText { path: real.to_path_buf(), text })
    }
}

impl UnsavedText {
    /// The text as a file that is read from its beginning.
    pub(crate) fn file(&self) -> std::io::Result<std::fs::File> {
        let mut file = tempfile::tempfile()?;
        file.write_all(self.text.as_bytes())?;
        file.rewind()?;
        Ok(file)
    }
}

/// A text of an editor as its file would have it: editors hold texts without a byte order mark and with LF line ends.
fn like(saved: &str, held: &str) -> String {
    const MARK: char = '\u{feff}';
    let lines = |text: &str| text.trim_start_matches(MARK).replace("\r\n", "\n");
    let (plain_saved, plain) = (lines(saved), lines(held));
    if plain_saved == plain {
        return saved.to_owned();
    }
    let ends = saved.matches("\r\n").count();
    let has_crlf = ends > 0 && ends == saved.matches('\n').count();
    let text = if has_crlf { plain.replace('\n', "\r\n") } else { plain };
    if saved.starts_with(MARK) { format!("{MARK}{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{Access, AccessRules, FileError, file_key};

    #[derive(Default)]
    struct Buffers(Mutex<HashMap<PathBuf, String>>);

    impl EditorFiles for Buffers {
        fn read(&self, path: &Path) -> Option<String> {
            self.0.lock().unwrap().get(path).cloned()
        }

        fn written(&self, path: &Path, text: &str) {
            self.0.lock().unwrap().insert(path.to_path_buf(), text.to_owned());
        }
    }

    fn read(access: &Access, path: &Path) -> String {
        let mut text = String::new();
        access.open_for_reading(path).unwrap().0.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn unsaved_text_is_read_saved_before_a_change_and_told_after_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = file_key(dir.path());
        let (path, clean) = (root.join("a.txt"), root.join("b.txt"));
        std::fs::write(&path, "saved\n").unwrap();
        std::fs::write(&clean, "same\r\n").unwrap();
        let buffers = Arc::new(Buffers::default());
        buffers.written(&path, "unsaved\n");
        buffers.written(&clean, "same\n");
        let rules = AccessRules { write: vec![root.clone()], ..AccessRules::default() };
        let access = Access::within(rules).in_editor(buffers.clone());
        assert_eq!(read(&access, &path), "saved\n", "nobody asked yet");
        let looked = access.clone().with_unsaved(&[path.clone(), clean.clone()]);
        assert_eq!((read(&looked, &path), read(&looked, &clean)), ("unsaved\n".into(), "same\r\n".into()));
        assert_eq!(std::fs::read(&path).unwrap(), b"saved\n", "reading saves nothing");

        access.save_unsaved(&[path.clone(), clean.clone()]);
        assert_eq!(std::fs::read(&path).unwrap(), b"unsaved\n");
        assert_eq!(std::fs::read(&clean).unwrap(), b"same\r\n");
        let (bytes, stamp) = access.read_to_change(&path, 100, &CancellationToken::new()).unwrap();
        assert_eq!(bytes, b"unsaved\n");
        access.write_file(&path, b"changed\n", Some(&stamp)).unwrap();
        assert_eq!(buffers.read(&path).as_deref(), Some("changed\n"));

        // What may not be written is neither saved nor told.
        let outside = tempfile::tempdir().unwrap();
        let other = file_key(outside.path()).join("c.txt");
        std::fs::write(&other, "saved\n").unwrap();
        buffers.written(&other, "unsaved\n");
        access.save_unsaved(std::slice::from_ref(&other));
        assert!(matches!(access.write_file(&other, b"x", None), Err(FileError::Refused { .. })));
        assert_eq!(std::fs::read(&other).unwrap(), b"saved\n");
        assert_eq!(buffers.read(&other).as_deref(), Some("unsaved\n"));
    }

    #[test]
    fn text_of_an_editor_keeps_the_line_ends_of_its_file() {
        let check =
            |saved: &str, held: &str, expect: &str| assert_eq!(like(saved, held), expect, "{saved:?}");
        check("a\r\nb\r\n", "a\nb\n", "a\r\nb\r\n");
        check("a\r\nb\r\n", "a\nc\n", "a\r\nc\r\n");
        check("a\r\nb\n", "a\nc\n", "a\nc\n");
        check("\u{feff}a\n", "b\n", "\u{feff}b\n");
        check("\u{feff}a\n", "a\n", "\u{feff}a\n");
        check("", "a\n", "a\n");
    }
}
