//! The file that keeps credentials.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value};

/// The name of the file.
const FILE: &str = "auth.json";
/// Bytes of it at most.
const MAX_BYTES: u64 = 1 << 20;

/// How often a file that is not valid is read again, and how far apart.
pub(super) const WRITES: u32 = 10;
pub(super) const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// `auth.json` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthFileError {
    /// Reading or writing failed.
    #[error("{path}: {source}")]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not a JSON object. It is left as it is.
    #[error("{path} is not valid: {problem}. Correct or remove it; it was left as it is.")]
    Invalid {
        /// The path of `auth.json`.
        path: PathBuf,
        /// Line and column, or what it must be.
        problem: String,
    },
}

/// One entry of `auth.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AuthEntry {
    /// A key, in the syntax of configured values, with variables that go with it.
    ApiKey { key: Option<String>, env: BTreeMap<String, String> },
    /// An access token that ends at `expires` (milliseconds since the epoch), with what else its login keeps.
    Oauth { access: String, refresh: Option<String>, expires: Option<i64>, fields: Map<String, Value> },
    /// A login that another program keeps in a file of its own; the name of that program.
    Reference { agent: String, fields: Map<String, Value> },
}

/// `auth.json` of a home directory. Created 0600 in a directory 0700; written under a lock, whole or not at all.
#[derive(Debug, Clone)]
pub struct AuthFile {
    path: PathBuf,
}

impl AuthFile {
    /// The file in `home`; it need not exist.
    pub fn new(home: &Path) -> Self {
        Self { path: home.join(FILE) }
    }

    /// The path of `auth.json`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps `key` for `provider`, in place of what was there. A key that begins with `!` or holds `$` is read
    /// as a reference later unless it is escaped, which this does.
    ///
    /// # Errors
    /// When the file cannot be read, is not valid, or cannot be written; it is unchanged then.
    pub fn set_key(&self, provider: &str, key: &str) -> Result<(), AuthFileError> {
        let entry = serde_json::json!({ "type": "api_key", "key": escaped(key) });
        self.change(|entries| entries.insert(provider.to_owned(), entry)).map(drop)
    }

    /// Forgets what is kept for `provider`. Whether there was anything.
    ///
    /// # Errors
    /// As [`AuthFile::set_key`].
    pub fn remove(&self, provider: &str) -> Result<bool, AuthFileError> {
        self.change(|entries| entries.shift_remove(provider)).map(|old| old.is_some())
    }

    /// The same as [`AuthFile::read`], where a file that another program is just writing is read again. Blocks for that.
    pub(crate) fn read_settled(&self) -> Result<AuthEntries, AuthFileError> {
        for _ in 0..WRITES {
            let is_empty = fs::metadata(&self.path).is_ok_and(|file| file.len() == 0);
            match self.read() {
                Err(AuthFileError::Invalid { .. }) => {}
                Ok(_) if is_empty => {}
                read => return read,
            }
            std::thread::sleep(WRITE_INTERVAL);
        }
        self.read()
    }

    /// The entries, and whether others than the owner can read the file. Entries that are not understood are in
    /// the second list, with the reason.
    pub(crate) fn read(&self) -> Result<AuthEntries, AuthFileError> {
        let mut entries = AuthEntries::default();
        let Some(file) = self.open()? else { return Ok(entries) };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = file.metadata().map_err(|source| self.io(source))?.permissions().mode();
            entries.exposed = mode & 0o077 != 0;
        }
        for (provider, value) in self.parse(file)? {
            match entry(&value) {
                Ok(entry) => drop(entries.known.insert(provider, entry)),
                Err(problem) => entries.odd.push((provider, problem)),
            }
        }
        Ok(entries)
    }

    /// All entries as they stand.
    pub(super) fn entries(&self) -> Result<Map<String, Value>, AuthFileError> {
        match self.open()? {
            Some(file) => self.parse(file),
            None => Ok(Map::new()),
        }
    }

    fn io(&self, source: std::io::Error) -> AuthFileError {
        AuthFileError::Io { path: self.path.clone(), source }
    }

    fn invalid(&self, problem: impl Into<String>) -> AuthFileError {
        AuthFileError::Invalid { path: self.path.clone(), problem: problem.into() }
    }

    fn open(&self) -> Result<Option<File>, AuthFileError> {
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.io(error)),
            Ok(metadata) if !metadata.is_file() => return Err(self.invalid("it is not a regular file")),
            Ok(_) => {}
        }
        File::open(&self.path).map(Some).map_err(|error| self.io(error))
    }

    fn parse(&self, file: File) -> Result<Map<String, Value>, AuthFileError> {
        let mut text = String::new();
        let read = file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(|error| self.io(error))?;
        if read as u64 > MAX_BYTES {
            return Err(self.invalid(format!("it is larger than {MAX_BYTES} bytes")));
        }
        let text = text.trim_start_matches('\u{feff}');
        if text.trim().is_empty() {
            return Ok(Map::new());
        }
        match serde_json::from_str(text) {
            Ok(Value::Object(entries)) => Ok(entries),
            Ok(_) => Err(self.invalid("it must be an object of providers")),
            // Only the place: the parser's words may quote what stands there.
            Err(error) => Err(self.invalid(format!(
                "it is not JSON (line {}, column {})",
                error.line(),
                error.column()
            ))),
        }
    }

    pub(super) fn change<T>(
        &self,
        change: impl FnOnce(&mut Map<String, Value>) -> T,
    ) -> Result<T, AuthFileError> {
        // A file that was linked here from elsewhere stays where it is.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let directory = path.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
        let _lock = locked(&directory, FILE)?;
        let mut entries = self.entries()?;
        let result = change(&mut entries);
        let mut text = serde_json::to_string_pretty(&entries).map_err(|error| self.io(error.into()))?;
        text.push('\n');
        put_whole(&path, &directory.join(format!("{FILE}.{}.tmp", std::process::id())), &text)?;
        Ok(result)
    }
}

/// A key as it is written, so that it stands for itself.
pub(super) fn escaped(key: &str) -> String {
    let mut escaped = key.replace('$', "$$");
    if escaped.starts_with('!') {
        escaped.insert(0, '$');
    }
    escaped
}

/// The lock of whoever changes the file of this name in a directory, which is made where there is none. Released when it is
/// dropped.
pub(super) fn locked(directory: &Path, name: &str) -> Result<File, AuthFileError> {
    let failed = |path: &Path| {
        let path = path.to_path_buf();
        move |source| AuthFileError::Io { path, source }
    };
    private_directory(directory).map_err(failed(directory))?;
    let path = directory.join(format!("{name}.lock"));
    let lock = private().create(true).truncate(false).open(&path).map_err(failed(&path))?;
    lock.lock().map_err(failed(&path))?;
    Ok(lock)
}

/// Puts a text in the place of what a file holds, whole or not at all, through a file beside it. Whoever calls holds the lock.
pub(super) fn put_whole(path: &Path, temporary: &Path, text: &str) -> Result<(), AuthFileError> {
    // What an earlier process of this number left behind when it died; the lock is ours.
    drop(fs::remove_file(temporary));
    let write = || -> std::io::Result<()> {
        let mut file = private().create_new(true).open(temporary)?;
        file.write_all(text.as_bytes())?;
        possible(file.sync_all())?;
        fs::rename(temporary, path)?;
        // From here on it is written.
        let directory = path.parent().unwrap_or_else(|| Path::new("."));
        possible(File::open(directory).and_then(|directory| directory.sync_all()))
    };
    write().map_err(|source| {
        drop(fs::remove_file(temporary));
        AuthFileError::Io { path: path.to_path_buf(), source }
    })
}

/// What `auth.json` holds.
#[derive(Debug, Default)]
pub(crate) struct AuthEntries {
    pub(crate) known: BTreeMap<String, AuthEntry>,
    pub(crate) odd: Vec<(String, String)>,
    pub(crate) exposed: bool,
}

/// Making things survive a loss of power, where that can be done: shares of other machines cannot, and a directory
/// need not be readable to be written to.
pub(super) fn possible(synced: std::io::Result<()>) -> std::io::Result<()> {
    use std::io::ErrorKind;
    synced.or_else(|error| match error.kind() {
        ErrorKind::Unsupported | ErrorKind::InvalidInput | ErrorKind::PermissionDenied => Ok(()),
        _ => Err(error),
    })
}

pub(super) fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

pub(super) fn private_directory(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// What a login keeps beside its tokens.
fn login_fields(value: &Value) -> Map<String, Value> {
    let mut fields = value.as_object().cloned().unwrap_or_default();
    fields.retain(|name, _| !["type", "access", "refresh", "expires"].contains(&name.as_str()));
    fields
}

pub(super) fn entry(value: &Value) -> Result<AuthEntry, String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(String::from);
    match value.get("type").and_then(Value::as_str) {
        Some("api_key") => {
            let env = value.get("env").and_then(Value::as_object);
            let env = env.into_iter().flatten();
            let env =
                env.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
            Ok(AuthEntry::ApiKey { key: text("key").filter(|key| !key.is_empty()), env })
        }
        Some("oauth") => Ok(AuthEntry::Oauth {
            access: text("access").filter(|access| !access.is_empty()).ok_or("it has no access token")?,
            refresh: text("refresh"),
            expires: value.get("expires").and_then(Value::as_i64),
            fields: login_fields(value),
        }),
        Some("reference") => Ok(AuthEntry::Reference {
            agent: text("agent").ok_or("it names no agent")?,
            fields: login_fields(value),
        }),
        Some(other) => Err(format!("the type {other:?} is unknown")),
        None => Err("it has no type".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    fn mode(path: &Path) -> u32 {
        use std::os::unix::fs::PermissionsExt;
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn keys_are_kept_private_and_beside_others() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path().join("a/home");
        let file = AuthFile::new(&home);
        assert!(file.read().unwrap().known.is_empty());
        assert!(!file.remove("p").unwrap());
        file.set_key("p", "k$1").unwrap();
        file.set_key("q", "!x").unwrap();
        #[cfg(unix)]
        assert_eq!((mode(&home), mode(file.path())), (0o700, 0o600));
        let mut other: Value = serde_json::from_str(&fs::read_to_string(file.path()).unwrap()).unwrap();
        other["future"] = serde_json::json!({"type": "new", "x": [1]});
        fs::write(file.path(), format!("\u{feff}{other}")).unwrap();
        assert!(file.remove("p").unwrap());
        let entries = file.read().unwrap();
        let key = AuthEntry::ApiKey { key: Some("$!x".into()), env: BTreeMap::new() };
        assert_eq!(entries.known, BTreeMap::from([("q".to_owned(), key)]));
        assert_eq!(entries.odd, [("future".to_owned(), "the type \"new\" is unknown".to_owned())]);
        assert!(fs::read_to_string(file.path()).unwrap().contains("\"new\""));
        let left: Vec<_> = fs::read_dir(&home).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }

    #[test]
    fn a_broken_file_is_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        for text in ["{\"p\": sk-secret}", "[]", "{} // no comments here"] {
            fs::write(file.path(), text).unwrap();
            assert!(matches!(file.set_key("p", "k"), Err(AuthFileError::Invalid { .. })), "{text}");
            assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
            assert!(!file.read().unwrap_err().to_string().contains("sk-secret"));
        }
        fs::remove_file(file.path()).unwrap();
        fs::create_dir(file.path()).unwrap();
        assert!(file.set_key("p", "k").is_err());
    }

    #[test]
    fn file_that_is_being_written_is_read_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        let whole = r#"{"p": {"type": "api_key", "key": "k"}}"#;
        fs::write(file.path(), whole).unwrap();
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            // In place, in two pieces, as some programs write it.
            scope.spawn(|| {
                while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                    let mut written = File::create(file.path()).unwrap();
                    written.write_all(&whole.as_bytes()[..20]).unwrap();
                    written.write_all(&whole.as_bytes()[20..]).unwrap();
                    (0..500).for_each(|_| std::thread::yield_now());
                }
            });
            let found: Vec<_> =
                (0..100).map(|_| file.read_settled().map(|entries| entries.known.len()).ok()).collect();
            is_over.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(found, [Some(1); 100]);
        });
        fs::write(file.path(), "{").unwrap();
        assert!(matches!(file.read_settled(), Err(AuthFileError::Invalid { .. })));
    }

    #[test]
    fn writers_do_not_lose_each_others_keys() {
        let directory = tempfile::tempdir().unwrap();
        let file = AuthFile::new(directory.path());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let file = &file;
                scope.spawn(move || {
                    for key in 0..4 {
                        file.set_key(&format!("p{thread}-{key}"), "k").unwrap();
                    }
                });
            }
        });
        assert_eq!(file.read().unwrap().known.len(), 32);
    }
}
