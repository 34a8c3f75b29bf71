//! Where the whole outputs of long commands are kept: sealed, and for as long as their sessions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use quipu_protocol::SessionId;
use quipu_seal::{SealStream, Sealer};
use quipu_workspace::{OutputFilter, OutputPlace, TemporaryDirectory};

/// A directory for the files of long outputs, with a directory (0700) in it for each session.
///
/// What is written there is sealed first, so that a file holds no secret that the result of its command would not show. A
/// session that is removed takes its files along.
#[derive(Debug, Clone)]
pub struct Outputs {
    root: PathBuf,
    /// Removes the directory when the last owner goes.
    _temporary: Option<Arc<TemporaryDirectory>>,
    /// Why nothing can be kept.
    closed: Option<Arc<str>>,
}

/// The files of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptOutputs {
    /// The session; `None` for files that lie beside the directories of sessions, as versions up to 0.1 made them.
    pub session: Option<SessionId>,
    /// How many.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Outputs {
    /// In `root`, which is made when needed.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), _temporary: None, closed: None }
    }

    /// In a directory for temporary files, which goes with the last copy of this; after a kill, the next one made (by
    /// this or for a session's commands) removes it. Where it cannot be made, results say so instead of naming a file.
    pub fn temporary() -> Self {
        match TemporaryDirectory::make() {
            Ok(made) => {
                let root = made.path().join("outputs");
                Self { root, _temporary: Some(Arc::new(made)), closed: None }
            }
            Err(error) => {
                let base = std::env::temp_dir();
                let why = format!("cannot create a temporary directory in {}: {error}", base.display());
                // A name that nothing has.
                let root = base.join(format!("quipu-outputs-{}", crate::clock::fresh_id()));
                Self { root, _temporary: None, closed: Some(why.into()) }
            }
        }
    }

    /// The directory: tools may read what is in it.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where the outputs of a session go, sealed by `sealer`.
    pub fn place(&self, session: &SessionId, sealer: &Arc<Sealer>) -> OutputPlace {
        if let Some(why) = &self.closed {
            return OutputPlace::nowhere(why.clone());
        }
        let sealer = sealer.clone();
        let directory = self.directory(session).unwrap_or_else(|| self.root.clone());
        OutputPlace::filtered(directory, move || Box::new(Sealing(SealStream::new(sealer.clone()))))
    }

    /// Removes the files of a session.
    ///
    /// # Errors
    /// The first one that stays.
    pub fn remove(&self, session: &SessionId) -> io::Result<()> {
        let Some(directory) = self.directory(session) else { return Ok(()) };
        // Nothing but our own files: an embedding program may have named a directory where others have theirs.
        remove_files(&directory)?;
        match std::fs::remove_dir(&directory) {
            Err(error) if is_gone(&error) || error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            done => done,
        }
    }

    /// Removes the files that lie beside the directories of sessions.
    ///
    /// # Errors
    /// The first one that stays.
    pub fn remove_loose(&self) -> io::Result<()> {
        remove_files(&self.root)
    }

    /// What is kept, of each session that has files.
    ///
    /// # Errors
    /// The directory, or one in it, cannot be read.
    pub fn kept(&self) -> io::Result<Vec<KeptOutputs>> {
        let entries = match std::fs::read_dir(&self.root) {
            Err(error) if is_gone(&error) => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut all = Vec::new();
        let mut add = |session, directory: &Path| -> io::Result<()> {
            let (mut files, mut bytes) = (0, 0);
            for file in files_in(directory)? {
                // Removed meanwhile, as it may be.
                let Ok(found) = file.symlink_metadata() else { continue };
                files += 1;
                bytes += found.len();
            }
            if files > 0 {
                all.push(KeptOutputs { session, files, bytes });
            }
            Ok(())
        };
        add(None, &self.root)?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().into_string().unwrap_or_default();
            let session = SessionId::from(name);
            if entry.file_type()?.is_dir() && self.directory(&session).is_some() {
                add(Some(session), &entry.path())?;
            }
        }
        Ok(all)
    }

    /// The directory of a session whose id is a name that a file can have.
    fn directory(&self, session: &SessionId) -> Option<PathBuf> {
        crate::clock::is_session_id(session.as_str()).then(|| self.root.join(session.as_str()))
    }
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// The files of outputs in a directory, by their names.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Err(error) if is_gone(&error) => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        if OutputPlace::is_file_name(&entry.file_name()) && !entry.file_type()?.is_dir() {
            files.push(entry.path());
        }
    }
    Ok(files)
}

fn remove_files(directory: &Path) -> io::Result<()> {
    for file in files_in(directory)? {
        match std::fs::remove_file(&file) {
            Err(error) if !is_gone(&error) => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", file.display())));
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Sealing(SealStream);

impl OutputFilter for Sealing {
    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.0.push(bytes, out);
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.0.finish(out);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use quipu_workspace::{OutputBuffer, OutputLimits, SpillState};

    use super::*;

    const LIMITS: OutputLimits = OutputLimits { lines: 4, bytes: 100, spill_bytes: 1 << 20 };
    /// Looks like a key of a common kind, and is none.
    const TOKEN: &str = "ghp_Zk3vQ9xT1mB7cR5nW8yL2dF6hJ4pS0aGuE1o";
    const OWN: &str = "correct-horse/battery+staple";

    fn sealer() -> Arc<Sealer> {
        let sealer = Sealer::new([7; 32]);
        sealer.know("own", OWN);
        Arc::new(sealer)
    }

    /// What is in the file after `pieces` were printed, with what became of it.
    async fn kept(outputs: &Outputs, limits: OutputLimits, pieces: &[&[u8]]) -> (Vec<u8>, String, PathBuf) {
        let mut output = OutputBuffer::new(limits, &outputs.place(&"s1".into(), &sealer()));
        for piece in pieces {
            output.push(piece).await;
        }
        output.finish().await;
        let state = format!("{:?}", output.spill());
        match output.spill() {
            SpillState::Complete(path) | SpillState::Limited(path) => {
                (std::fs::read(path).unwrap(), state, path.to_owned())
            }
            SpillState::NotNeeded | SpillState::Failed(_) => (Vec::new(), state, PathBuf::new()),
        }
    }

    #[tokio::test]
    async fn secret_over_two_pieces_is_sealed_in_the_output_file() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(dir.path().join("outputs"));
        let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n\
                   -----END PRIVATE KEY-----\n";
        let text = format!("{}a {TOKEN} b\n{key}\u{e9} {OWN}\nend\n", "a line of words\n".repeat(40));
        let expect = sealer().seal(&text).into_owned();
        for cut in 600..text.len() {
            let (first, second) = text.as_bytes().split_at(cut);
            let (found, state, path) = kept(&outputs, LIMITS, &[first, second]).await;
            assert_eq!(String::from_utf8(found).unwrap(), expect, "{cut}: {state}");
            std::fs::remove_file(path).unwrap();
        }
        let with_bytes = [text.as_bytes(), b"\xff\xfe", TOKEN.as_bytes()];
        let (found, state, path) = kept(&outputs, LIMITS, &with_bytes).await;
        assert!(state.starts_with("Complete") && found.starts_with(expect.as_bytes()), "{state}");
        assert!(found[expect.len()..].starts_with(b"\xff\xfe[REDACTED:github-token:"));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let directory = path.parent().unwrap();
        assert_eq!((mode(&path), mode(directory), directory.ends_with("outputs/s1")), (0o600, 0o700, true));
    }

    #[tokio::test]
    async fn a_limit_or_a_failure_is_told_and_leaves_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(dir.path().join("outputs"));
        let limits = OutputLimits { spill_bytes: 20, ..LIMITS };
        let text = format!("{TOKEN}\n").repeat(9);
        let (found, state, _) = kept(&outputs, limits, &[text.as_bytes()]).await;
        assert!(state.starts_with("Limited") && found == b"[REDACTED:github-tok", "{state}");
        std::fs::write(dir.path().join("file"), "").unwrap();
        let nowhere = Outputs::new(dir.path().join("file"));
        let (_, state, _) = kept(&nowhere, LIMITS, &[text.as_bytes()]).await;
        assert!(state.starts_with("Failed") && state.contains("cannot make a file"), "{state}");
    }

    #[tokio::test]
    async fn removal_takes_only_output_files() {
        let dir = tempfile::tempdir().unwrap();
        let outputs = Outputs::new(dir.path().join("outputs"));
        assert_eq!(outputs.kept().unwrap(), []);
        outputs.remove(&"s1".into()).unwrap();
        let (_, _, path) = kept(&outputs, LIMITS, &["a line\n".repeat(9).as_bytes()]).await;
        let of = |session: Option<&str>, files, bytes| KeptOutputs {
            session: session.map(Into::into),
            files,
            bytes,
        };
        std::fs::write(outputs.root().join("quipu-bash-old.log"), "old").unwrap();
        std::fs::write(outputs.root().join("mine"), "mine").unwrap();
        std::fs::create_dir_all(outputs.root().join("@other/s9")).unwrap();
        assert_eq!(outputs.kept().unwrap(), [of(None, 1, 3), of(Some("s1"), 1, 63)]);
        std::fs::write(path.with_file_name("mine"), "mine").unwrap();
        outputs.remove(&"../outputs".into()).unwrap();
        outputs.remove(&"s1".into()).unwrap();
        outputs.remove_loose().unwrap();
        assert_eq!(outputs.kept().unwrap(), []);
        assert!(
            !path.exists() && path.with_file_name("mine").exists() && outputs.root().join("mine").exists()
        );
    }

    #[tokio::test]
    async fn temporary_outputs_go_with_their_last_owner() {
        let outputs = Outputs::temporary();
        let other = outputs.clone();
        let (_, _, path) = kept(&outputs, LIMITS, &["a line\n".repeat(9).as_bytes()]).await;
        drop(outputs);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists() && !path.parent().unwrap().parent().unwrap().parent().unwrap().exists());
    }
}
