//! What was sent in all sessions, in a file that many processes add to.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu::Sealer;
use serde::{Deserialize, Serialize};

use crate::private_file;

/// Texts that are read, the newest of them.
pub const HISTORY_TEXTS: usize = 1_000;
/// Bytes of a text that is kept; the session has longer ones.
pub const HISTORY_TEXT: usize = 256 << 10;
/// Bytes that remain when the file is made shorter, and bytes from which it is.
const REMAIN: u64 = 4 << 20;
const MOST: u64 = 2 * REMAIN;

/// A line of the file.
#[derive(Serialize, Deserialize)]
struct Row<'a> {
    text: std::borrow::Cow<'a, str>,
}

/// `history.jsonl` in the home of Quipu (0600): one JSON object a line, `{"text": ..}`, the newest last. Secrets in the
/// texts are replaced, as in the store.
#[derive(Debug, Clone)]
pub struct SentFile {
    path: PathBuf,
    sealer: Arc<Sealer>,
}

impl SentFile {
    /// The file in a home directory.
    #[must_use]
    pub fn new(home: &Path, sealer: &Arc<Sealer>) -> Self {
        Self { path: home.join("history.jsonl"), sealer: sealer.clone() }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest texts, the oldest of them first. Lines that are none are passed over. None where there is no file.
    ///
    /// # Errors
    /// The file is there and cannot be read.
    pub fn load(&self) -> io::Result<Vec<String>> {
        match std::fs::metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
            Ok(_) => {}
        }
        let (mut file, _) = quipu_workspace::open_for_reading(&self.path).map_err(io::Error::other)?;
        Ok(texts(&tail(&mut file, MOST + HISTORY_TEXT as u64)?).1)
    }

    /// Adds a text, durably; waits for other processes that do so. Nothing is added of what is empty, longer than
    /// [`HISTORY_TEXT`], or the same as the last one.
    ///
    /// # Errors
    /// It cannot be written; the file is then as it was.
    pub fn append(&self, text: &str) -> io::Result<()> {
        if text.trim().is_empty() || text.len() > HISTORY_TEXT {
            return Ok(());
        }
        if let Some(home) = self.path.parent() {
            private_file::make_directory(home)?;
        }
        let Some(mut file) = private_file::lock(&self.path, true)? else { return Ok(()) };
        let size = file.metadata()?.len();
        let mut line = serde_json::to_vec(&Row { text: self.sealer.seal(text) })?;
        line.push(b'\n');
        if size > 0 {
            let mut last = vec![0; line.len().min(usize::try_from(size).unwrap_or(usize::MAX))];
            let from = size - last.len() as u64;
            file.read_exact_at(&mut last, from)?;
            if last == line && (size == line.len() as u64 || begins_line(&file, size - line.len() as u64)?) {
                return Ok(());
            }
            // Somebody was stopped in the middle of a line.
            if last.last() != Some(&b'\n') {
                line.insert(0, b'\n');
            }
        }
        if let Err(error) = file.write_all(&line).and_then(|()| file.sync_data()) {
            // What was written of it would hide the next line.
            file.set_len(size)?;
            return Err(error);
        }
        if size + line.len() as u64 > MOST { self.shorten(&mut file) } else { Ok(()) }
    }

    /// Leaves the newest texts; those who wait for the lock see that there is another file.
    fn shorten(&self, file: &mut File) -> io::Result<()> {
        let bytes = tail(file, REMAIN)?;
        let (from, _) = texts(&bytes);
        private_file::replace(&self.path, &bytes[from..], true)
    }
}

fn begins_line(file: &File, at: u64) -> io::Result<bool> {
    let mut before = [0];
    file.read_exact_at(&mut before, at - 1)?;
    Ok(before == *b"\n")
}

/// The last bytes of a file, from where a line begins.
fn tail(file: &mut File, most: u64) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    let from = size.saturating_sub(most);
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(most).read_to_end(&mut bytes)?;
    if from > 0 {
        let line = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |end| end + 1);
        bytes.drain(..line);
    }
    Ok(bytes)
}

/// The newest texts of lines, and where the first of them begins.
fn texts(bytes: &[u8]) -> (usize, Vec<String>) {
    let (mut end, mut found) = (bytes.len(), Vec::new());
    let mut from = end;
    while end > 0 && found.len() < HISTORY_TEXTS {
        let begin = memchr::memrchr(b'\n', &bytes[..end - 1]).map_or(0, |newline| newline + 1);
        if let Ok(row) = serde_json::from_slice::<Row<'_>>(&bytes[begin..end]) {
            found.push(row.text.into_owned());
            from = begin;
        }
        end = begin;
    }
    found.reverse();
    (from, found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

    fn sealer() -> Arc<Sealer> {
        Arc::new(Sealer::new([7; 32]))
    }

    #[test]
    fn secrets_are_replaced() {
        let home = tempfile::tempdir().unwrap();
        let file = SentFile::new(home.path(), &sealer());
        file.append("use ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o").unwrap();
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.contains("use [REDACTED:github-token:") && !text.contains("Zk3"), "{text}");
    }

    #[test]
    fn texts_come_back_in_order() {
        let home = tempfile::tempdir().unwrap();
        let file = SentFile::new(&home.path().join("new"), &sealer());
        assert_eq!(file.load().unwrap(), Vec::<String>::new());
        for text in ["one", "two\nlines \u{1}", "two\nlines \u{1}", " ", "one", "\"one\"}", "}"] {
            file.append(text).unwrap();
        }
        file.append(&"x".repeat(HISTORY_TEXT + 1)).unwrap();
        assert_eq!(file.load().unwrap(), ["one", "two\nlines \u{1}", "one", "\"one\"}", "}"]);
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_line_cut_short_hides_nothing() {
        let home = tempfile::tempdir().unwrap();
        let file = SentFile::new(home.path(), &sealer());
        std::fs::write(file.path(), "{\"text\":\"one\"}\nnonsense\n\n{\"text\":\"tw").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        file.append("three").unwrap();
        assert_eq!(file.load().unwrap(), ["one", "three"]);
        assert_eq!(std::fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        std::fs::write(file.path(), b"\xff\xfe\n{\"text\":\"a\xff\"}\n").unwrap();
        assert_eq!(file.load().unwrap(), Vec::<String>::new());
    }

    #[test]
    fn sent_history_refuses_a_fifo() {
        let home = tempfile::tempdir().unwrap();
        let file = SentFile::new(home.path(), &sealer());
        nix::unistd::mkfifo(file.path(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(file.load().is_err());
        assert!(file.append("x").is_err());
    }

    #[test]
    fn sent_history_is_shortened_without_losing_lines() {
        let home = tempfile::tempdir().unwrap();
        let file = SentFile::new(home.path(), &sealer());
        let old = format!("{{\"text\":\"{}\"}}\n", "x".repeat(8_000));
        let many = usize::try_from(MOST).unwrap() / old.len();
        std::fs::write(file.path(), old.repeat(many)).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for at in 0..10 {
                        file.append(&format!("{writer} {at} {}", "y".repeat(2_000))).unwrap();
                    }
                });
            }
        });
        let texts = file.load().unwrap();
        for writer in 0..4 {
            let of_writer = texts.iter().filter(|text| text.starts_with(&format!("{writer} "))).count();
            assert_eq!(of_writer, 10);
        }
        assert!(std::fs::metadata(file.path()).unwrap().len() < MOST);
        assert!(texts.len() > 400 && texts[0].starts_with('x'));
    }
}
