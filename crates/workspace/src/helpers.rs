//! Programs that we start ourselves, unconfined: found where no confined command could have put them.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use crate::path::FileKeys;

/// Where programs usually are; looked at behind `PATH`.
const USUAL: [&str; 8] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/sbin",
    "/sbin",
    "/run/current-system/sw/bin",
    "/opt/homebrew/bin",
    "/opt/local/bin",
];
/// Where every command may write.
const SHARED: [&str; 1] = ["/dev"];
/// Resolved before the first command of a session starts.
const FIRST: [&str; 8] = ["sh", "bash", "grep", "git", "less", "wl-paste", "xclip", "pngpaste"];
/// Variables besides `PATH` that name, with colons between, where a program takes code from.
const LISTS: [&str; 15] = [
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LD_AUDIT",
    "DYLD_LIBRARY_PATH",
    "DYLD_FALLBACK_LIBRARY_PATH",
    "DYLD_FRAMEWORK_PATH",
    "DYLD_INSERT_LIBRARIES",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "NODE_PATH",
    "PERL5LIB",
    "RUBYLIB",
    "BASH_ENV",
    "ENV",
];
/// Bytes of a program that are read to learn what runs it.
const FIRST_LINE: u64 = 256;

/// Those of this process, and where its commands may write.
static OURS: Mutex<HelperState> = Mutex::new(HelperState { write: Vec::new(), helpers: None });

struct HelperState {
    /// True paths.
    write: Vec<PathBuf>,
    /// Made when it is first wanted, and anew when there is more to write.
    helpers: Option<Arc<Helpers>>,
}

/// Why a line of the user's is not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HelperError {
    /// It names a file that commands of a session could have put there.
    #[error(
        "it names {named}, which commands of a session could change; move it to a directory that they cannot write to"
    )]
    Changeable {
        /// The file, as the line names it.
        named: String,
    },
    /// There is no shell.
    #[error("no `sh` outside the directories that commands can write to")]
    NoShell,
}

/// Finds programs by name where no confined command can put one: not in a relative or empty entry of `PATH`, not in a
/// directory where commands may write, and not behind a link that leads through one.
#[derive(Debug)]
pub struct Helpers {
    /// True paths.
    write: Vec<PathBuf>,
    /// What is left of `PATH`, then the usual directories; true paths.
    directories: Vec<PathBuf>,
    found: Mutex<HashMap<OsString, PathBuf>>,
}

impl Helpers {
    /// Those of a `PATH`, for commands that may write at these places.
    pub fn new(path: Option<&OsStr>, write: &[PathBuf]) -> Self {
        let shared = SHARED.iter().map(PathBuf::from);
        let mut keys = FileKeys::default();
        let write: Vec<PathBuf> = write.iter().cloned().chain(shared).map(|place| keys.key(&place)).collect();
        let mut helpers = Self { write, directories: Vec::new(), found: Mutex::default() };
        let named = path.into_iter().flat_map(std::env::split_paths);
        let mut directories: Vec<PathBuf> = Vec::new();
        for directory in named.chain(USUAL.iter().map(PathBuf::from)) {
            let Ok(real) = directory.canonicalize() else { continue };
            if !helpers.is_open(&mut keys, &directory) && real.is_dir() && !directories.contains(&real) {
                directories.push(real);
            }
        }
        helpers.directories = directories;
        helpers
    }

    /// Those of this process, for all commands that it confines.
    pub fn of_this_process() -> Arc<Self> {
        let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        let HelperState { write, helpers } = &mut *ours;
        helpers.get_or_insert_with(|| Arc::new(Self::new(std::env::var_os("PATH").as_deref(), write))).clone()
    }

    /// Commands may write at these places: from now on no helper of this process is taken from there.
    /// [`Sandbox`](crate::Sandbox)es say so by themselves.
    pub fn keep_from<'a>(places: impl IntoIterator<Item = &'a Path>) {
        let mut ours = OURS.lock().unwrap_or_else(PoisonError::into_inner);
        // Most are caches below one home.
        let mut keys = FileKeys::default();
        for place in places {
            let place = keys.key(place);
            if !ours.write.contains(&place) {
                ours.write.push(place);
                ours.helpers = None;
            }
        }
    }

    /// Looks up what is started sooner or later, so that nothing that comes to be later is taken.
    pub(crate) fn settle(&self) {
        for name in FIRST {
            self.find(name);
        }
    }

    /// The program of this name, or at this path; `None` when there is none but where commands may write.
    pub fn find(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        let name = name.as_ref();
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = found.get(name) {
            return Some(known.clone());
        }
        let program = if name.as_bytes().contains(&b'/') {
            let path = PathBuf::from(name);
            (is_program(&path) && self.is_sound(&path)).then_some(path)
        } else {
            // The one that every system has.
            let first = (name == "sh").then(|| PathBuf::from("/bin"));
            let places = first.iter().chain(&self.directories).map(|directory| directory.join(name));
            places.into_iter().find(|path| is_program(path) && self.is_sound(path))
        }?;
        found.insert(name.to_owned(), program.clone());
        Some(program)
    }

    /// A command that runs this program, with an environment from which it takes no code where commands may write.
    pub fn command(&self, name: &str) -> Option<Command> {
        let mut command = Command::new(self.find(name)?);
        self.clean(&mut command, name);
        Some(command)
    }

    /// A command that runs a line of the user's in this directory, in a shell that looks programs up as
    /// [`Helpers::find`] does.
    ///
    /// # Errors
    /// It names a file where commands may write, or there is no shell.
    pub fn shell(&self, line: &str, directory: &Path) -> Result<Command, HelperError> {
        if let Some(named) = self.open_word(line, directory) {
            return Err(HelperError::Changeable { named });
        }
        let shell = self.find("sh").ok_or(HelperError::NoShell)?;
        let mut command = Command::new(shell);
        command.args(["-c", line]).current_dir(directory);
        self.clean(&mut command, line);
        Ok(command)
    }

    /// `PATH` for a program, or a line of the shell, that looks others up by their names: the directories where commands
    /// cannot write, without those in which a name of the line leads to where they can.
    pub fn path(&self, line: &str) -> OsString {
        let mut names: Vec<String> = words(line, false).map(str::to_owned).collect();
        // What `env` looks up for a script.
        let scripts: Vec<String> = names.iter().filter_map(|name| first_line(&self.find(name)?)).collect();
        names.extend(scripts.iter().flat_map(|line| words(line, false)).map(str::to_owned));
        let kept = self
            .directories
            .iter()
            .filter(|directory| names.iter().all(|name| self.is_sound(&directory.join(name))))
            // Such a name could not be joined with others.
            .filter(|directory| !directory.as_os_str().as_bytes().contains(&b':'));
        std::env::join_paths(kept).unwrap_or_default()
    }

    /// Takes from the environment of a program what makes it run code from where commands may write.
    pub fn clean(&self, command: &mut Command, line: &str) {
        command.env("PATH", self.path(line));
        for name in LISTS {
            let Some(value) = std::env::var_os(name) else { continue };
            let mut keys = FileKeys::default();
            // Where a name is empty, or relative, the directory that the program runs in is meant.
            let kept: Vec<PathBuf> =
                std::env::split_paths(&value).filter(|path| !self.is_open(&mut keys, path)).collect();
            match std::env::join_paths(&kept) {
                Ok(list) if !list.is_empty() => command.env(name, list),
                Ok(_) | Err(_) => command.env_remove(name),
            };
        }
    }

    /// Whether commands choose what is at this path.
    fn is_open(&self, keys: &mut FileKeys, path: &Path) -> bool {
        let below = |path: &Path| self.write.iter().any(|place| path.starts_with(place));
        !path.is_absolute() || below(&keys.key(path)) || keys.leads_through(path, &self.write)
    }

    /// Whether commands choose neither a program nor what runs it.
    fn is_sound(&self, path: &Path) -> bool {
        let mut keys = FileKeys::default();
        if self.is_open(&mut keys, path) {
            return false;
        }
        if !is_program(path) {
            return true;
        }
        let Some(line) = first_line(path) else { return true };
        line.split_whitespace().next().is_some_and(|runs| !self.is_open(&mut keys, Path::new(runs)))
    }

    /// A path in a line of the shell that leads to a file where commands may write.
    fn open_word(&self, line: &str, directory: &Path) -> Option<String> {
        let home = std::env::home_dir().unwrap_or_default();
        let starts = [("~/", &*home), ("$HOME/", &home), ("${HOME}/", &home), ("$PWD/", directory)];
        let mut keys = FileKeys::default();
        // Between quotes a path may have spaces.
        let quoted = line.split(['\'', '"']).filter(|text| text.contains('/'));
        let named = words(line, true).chain(quoted).find(|word| {
            let below = starts.iter().find_map(|(start, at)| Some(at.join(word.strip_prefix(start)?)));
            let path = below.unwrap_or_else(|| directory.join(word));
            // A link to nothing could lead to something soon.
            let may_run = path.metadata().map_or_else(|_| path.is_symlink(), |found| found.is_file());
            may_run && self.is_open(&mut keys, &path)
        });
        named.map(str::to_owned)
    }
}

/// The words of a line of the shell: those that could be names of programs, or those with a `/`.
fn words(line: &str, paths: bool) -> impl Iterator<Item = &str> {
    let words = line.split(|c: char| c.is_whitespace() || ";|&()<>'\"`\\".contains(c));
    words.filter(move |word| word.contains('/') == paths && !matches!(*word, "" | "." | ".."))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// What follows the `#!` of a script.
fn first_line(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FIRST_LINE).read_to_end(&mut bytes).ok()?;
    let line = bytes.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).into_owned())
}
