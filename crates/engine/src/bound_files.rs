//! What a lasting yes to a command is bound to, beside its text: the bytes of the files that it runs by their paths.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use quipu_rules::{ScriptWord, run_files};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::policy::Grant;

/// Directories in which paths of one command are looked for.
const DIRECTORIES: usize = 8;
/// Files of one command at most that are looked at. Where there may be more, no yes to it lasts.
const FILES: usize = 64;
/// Bytes of a file that are read at most. Of a larger one its size and times count.
const READ: u64 = 256 << 20;
/// Bytes that are read at a time.
const BLOCK: usize = 64 << 10;

/// A file that a command runs, as it was when that was allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BoundFile {
    /// Its path.
    pub path: PathBuf,
    /// The SHA-256 of its bytes, in hexadecimal digits; of one that could not be read, why that is. `None` where nothing was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
}

/// A lasting yes, with the files that it is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoundGrant {
    /// What was allowed.
    pub grant: Grant,
    /// The files as they were; none where it names no program by a path.
    pub files: Vec<BoundFile>,
}

impl From<Grant> for BoundGrant {
    fn from(grant: Grant) -> Self {
        Self { grant, files: Vec::new() }
    }
}

/// What tells a file from another one without reading it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileStamp(Option<[i64; 7]>);

/// What stands for the files that were not looked at.
const UNCOUNTED: &str = "not read: there are too many files";

/// The files that a command runs by their paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommandFiles {
    /// Scripts, then programs.
    pub(crate) paths: Vec<PathBuf>,
    /// Whether there are no more.
    pub(crate) are_all: bool,
}

/// The files that a command runs by their paths, scripts before programs.
pub(crate) fn command_files(command: &str, cwd: &Path, home: Option<&Path>) -> CommandFiles {
    let found = run_files(command);
    let absolute = |below: &Path, text: &str| match (text.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        // One that is absolute stands for itself.
        _ => below.join(text),
    };
    let mut are_all = true;
    let mut directories = vec![cwd.to_path_buf()];
    for directory in &found.directories {
        let within: Vec<PathBuf> = directories.iter().map(|known| absolute(known, directory)).collect();
        for path in within {
            if path.is_dir() && !directories.contains(&path) {
                directories.push(path);
            }
        }
        are_all &= directories.len() <= DIRECTORIES;
        directories.truncate(DIRECTORIES);
    }
    are_all &= !found.enters_unknown;
    // Where nothing is run by path, it makes no difference which directories there are.
    are_all |= found.programs.is_empty() && found.scripts.is_empty();
    // What a pattern names is known when it runs, not when it is asked about.
    let mut has_patterns = found.has_patterns;
    let mut files: Vec<PathBuf> = Vec::new();
    let mut add = |path: PathBuf| {
        if files.contains(&path) {
            return;
        }
        if files.len() < FILES {
            files.push(path);
        } else {
            are_all = false;
        }
    };
    for words in &found.scripts {
        for ScriptWord { text, is_pattern, follows_option } in words {
            has_patterns |= is_pattern;
            let there = places(&directories, text, &absolute);
            let is_script = !there.is_empty() && !follows_option;
            there.into_iter().for_each(&mut add);
            if is_script {
                break;
            }
        }
    }
    for program in &found.programs {
        let there: Vec<PathBuf> = places(&directories, program, &absolute);
        // One that is made before it runs counts as well: there is nothing now.
        if there.is_empty() {
            add(absolute(cwd, program));
        }
        there.into_iter().for_each(&mut add);
    }
    CommandFiles { paths: files, are_all: are_all && !has_patterns }
}

/// Where a path is a file.
fn places(directories: &[PathBuf], text: &str, absolute: &dyn Fn(&Path, &str) -> PathBuf) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    for directory in directories {
        let path = absolute(directory, text);
        if !places.contains(&path) && path.is_file() {
            places.push(path);
        }
    }
    places
}

/// The same files with their bytes. Where there are more, nothing is equal to what this is.
pub(crate) fn bound(files: CommandFiles) -> Vec<BoundFile> {
    let rest = BoundFile { path: PathBuf::new(), content: Some(UNCOUNTED.to_owned()) };
    let rest = (!files.are_all).then_some(rest);
    let files = files.paths.into_iter().map(|path| BoundFile { content: content_of(&path), path });
    files.chain(rest).collect()
}

fn content_of(path: &Path) -> Option<String> {
    let unread = |why: &dyn std::fmt::Display| Some(format!("not read: {why}"));
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => return unread(&error.kind()),
    };
    if !metadata.is_file() {
        return unread(&"it is no regular file");
    }
    if metadata.len() > READ {
        return unread(&format!("{:?}", stamp(path).0));
    }
    let hash = || -> std::io::Result<String> {
        let (mut file, mut hash, mut block) = (File::open(path)?.take(READ), Sha256::new(), vec![0; BLOCK]);
        loop {
            let read = file.read(&mut block)?;
            let Some(bytes) = block.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
            hash.update(bytes);
        }
        Ok(quipu_protocol::hex(&hash.finalize()))
    };
    hash().map_or_else(|error| unread(&error.kind()), Some)
}

/// What tells a file from what comes to be in its place.
pub(crate) fn stamp(path: &Path) -> FileStamp {
    FileStamp(std::fs::metadata(path).ok().map(|found| {
        let number = |number: u64| i64::from_ne_bytes(number.to_ne_bytes());
        [
            number(found.dev()),
            number(found.ino()),
            number(found.len()),
            found.mtime(),
            found.mtime_nsec(),
            found.ctime(),
            found.ctime_nsec(),
        ]
    }))
}

/// Why a yes that was bound to `then` does not count for `now`; `None` where it does.
pub(crate) fn difference(then: &[BoundFile], now: &[BoundFile]) -> Option<String> {
    if now.iter().any(|file| file.content.as_deref() == Some(UNCOUNTED)) {
        return Some("You allowed it, but it may run more files than can be compared.".to_owned());
    }
    let was = |path: &Path| then.iter().find(|file| file.path == path);
    for file in now {
        let shown = file.path.display();
        match was(&file.path) {
            Some(then) if then == file => {}
            Some(BoundFile { content: None, .. }) => {
                return Some(format!("You allowed it when {shown} was not there."));
            }
            Some(_) if file.content.is_none() => {
                return Some(format!("You allowed it, and {shown} is gone."));
            }
            Some(_) => return Some(format!("You allowed it, and {shown} has changed since.")),
            None => {
                return Some(format!("You allowed it, but not with the bytes that {shown} has now."));
            }
        }
    }
    // What it would not run now changes nothing.
    None
}

/// The programs of calls as they were when these were decided on, by the calls' identities.
#[derive(Debug, Default)]
pub(crate) struct ShownPrograms(Mutex<HashMap<String, Vec<(PathBuf, FileStamp)>>>);

impl ShownPrograms {
    /// Looks at the programs of a command.
    pub(crate) fn show(&self, call: String, command: &str, cwd: &Path) {
        let files = command_files(command, cwd, std::env::home_dir().as_deref());
        let stamped =
            files.paths.into_iter().map(|path| (stamp(&path), path)).map(|(stamp, path)| (path, stamp));
        self.lock().insert(call, stamped.collect());
    }

    /// A program of the call that is another one by now.
    pub(crate) fn changed(&self, call: &str) -> Option<PathBuf> {
        let shown = self.lock();
        let mut files = shown.get(call)?.iter();
        files.find(|(path, then)| stamp(path) != *then).map(|(path, _)| path.clone())
    }

    /// Another batch of calls begins.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<(PathBuf, FileStamp)>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(command: &str, cwd: &Path) -> Vec<String> {
        let found = command_files(command, cwd, Some(&cwd.join("home")));
        // Without `.` in it.
        let shown = |path: &PathBuf| path.strip_prefix(cwd).unwrap_or(path).components().collect::<PathBuf>();
        found.paths.iter().map(|path| shown(path).display().to_string()).collect()
    }

    #[test]
    fn files_are_those_that_the_command_runs() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        for path in ["run.sh", "sub/run.sh", "tool.py", "data.csv", "home/bin/own", "notes.md"] {
            std::fs::create_dir_all(cwd.join(path).parent().unwrap()).unwrap();
            std::fs::write(cwd.join(path), path).unwrap();
        }
        assert_eq!(files("./run.sh notes.md", cwd), ["run.sh"]);
        assert_eq!(files("cat notes.md", cwd), Vec::<String>::new());
        assert_eq!(files("python3 tool.py data.csv", cwd), ["tool.py"]);
        assert_eq!(files("python3 -c 'x' data.csv; sh run.sh", cwd), ["data.csv", "run.sh"]);
        assert_eq!(files("~/bin/own", cwd), ["home/bin/own"]);
        // Either of them may be meant.
        assert_eq!(files("cd sub && ./run.sh", cwd), ["run.sh", "sub/run.sh"]);
        assert_eq!(files("make && ./made", cwd), ["made"]);
        assert_eq!(files("/bin/sh -c ./run.sh", cwd), ["run.sh", "/bin/sh"]);
        assert_eq!(files("cat run.sh | sudo bash", cwd), ["run.sh"]);
    }

    #[test]
    fn more_files_than_are_looked_at_are_equal_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        std::fs::write(cwd.join("run.sh"), "one").unwrap();
        let line = |count: usize| {
            let words: Vec<String> = (0..count).map(|number| format!("a/{number}")).collect();
            format!("echo {}; cat run.sh | bash", words.join(" "))
        };
        let few = command_files(&line(FILES - 1), cwd, None);
        assert!(few.are_all && few.paths.len() == FILES, "{few:?}");
        assert_eq!(difference(&bound(few.clone()), &bound(few)), None);
        let many = command_files(&line(FILES), cwd, None);
        assert!(!many.are_all && many.paths.contains(&cwd.join("run.sh")), "{many:?}");
        let many = bound(many);
        assert!(difference(&many, &many).unwrap().contains("more files"));
        // Nor are those of directories that are not looked into.
        for number in 0..=DIRECTORIES {
            std::fs::create_dir(cwd.join(format!("d{number}"))).unwrap();
        }
        let enter: String = (0..=DIRECTORIES).map(|number| format!("cd d{number}; cd ..; ")).collect();
        assert!(!command_files(&format!("{enter}./run.sh"), cwd, None).are_all);
        assert!(command_files(&format!("{enter}ls"), cwd, None).are_all);
    }

    #[test]
    fn pattern_that_may_name_a_program_is_equal_to_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cwd = dir.path();
        std::fs::create_dir(cwd.join("sub")).unwrap();
        std::fs::write(cwd.join("s.sh"), "one").unwrap();
        let are_all = |command: &str| command_files(command, cwd, None).are_all;
        for command in ["./s.*", "sh s.s?", "sh {s,t}.sh", "cd su* && ./s.sh", "cat s.* | sh"] {
            assert!(!are_all(command), "{command}");
        }
        let now = bound(command_files("./s.*", cwd, None));
        assert!(difference(&[], &now).is_some() && difference(&now, &now).is_some());
        for command in ["sh s.sh *.txt", "./s.sh *", "cd su* && ls", "cat s.*"] {
            assert!(are_all(command), "{command}");
        }
    }

    #[test]
    fn difference_names_the_file_that_changed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.sh");
        let now = || bound(CommandFiles { paths: vec![path.clone()], are_all: true });
        let missing = now();
        std::fs::write(&path, "one").unwrap();
        let (one, before) = (now(), stamp(&path));
        assert_eq!(difference(&one, &now()), None);
        assert_eq!(stamp(&path), before);
        assert!(difference(&missing, &one).unwrap().contains("was not there"));
        assert!(difference(&[], &one).unwrap().contains("not with the bytes"));
        // Other bytes of the same length.
        std::fs::write(&path, "two").unwrap();
        assert!(difference(&one, &now()).unwrap().ends_with("run.sh has changed since."));
        std::fs::remove_file(&path).unwrap();
        assert!(difference(&one, &now()).unwrap().contains("is gone"));
        assert_eq!(difference(&one, &[]), None);
        // A link to other bytes is another program.
        std::fs::write(dir.path().join("other"), "other").unwrap();
        std::os::unix::fs::symlink("other", &path).unwrap();
        assert!(difference(&one, &now()).is_some());
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(now()[0].content.as_ref().unwrap().contains("no regular file"));
    }
}
