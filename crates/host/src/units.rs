//! Files with which the system runs jobs or the server by itself: units of the user's systemd, or an agent of launchd.

use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Home;

/// What the system runs by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitPurpose {
    /// Jobs that are due, each minute.
    Schedule,
    /// The server, all the time.
    Server,
}

impl UnitPurpose {
    /// The name of the unit that is started.
    #[must_use]
    pub const fn started(self) -> &'static str {
        match self {
            Self::Schedule => "quipu-schedule.timer",
            Self::Server => "quipu-serve.service",
        }
    }

    /// The name of the agent of launchd.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Schedule => "dev.quipu.schedule",
            Self::Server => "dev.quipu.serve",
        }
    }

    /// The record of what was written, in the home of the user.
    const fn record(self) -> &'static str {
        match self {
            Self::Schedule => "schedule-units.json",
            Self::Server => "serve-units.json",
        }
    }
}

/// What runs programs by itself on a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum UnitKind {
    /// A service and a timer of `systemctl --user`.
    Systemd,
    /// A property list of launchd.
    Launchd,
}

impl UnitKind {
    /// That of this system.
    #[must_use]
    pub const fn here() -> Self {
        if cfg!(target_os = "macos") { Self::Launchd } else { Self::Systemd }
    }
}

/// When jobs are looked for.
const TIMER: &str = "[Unit]\nDescription=Looks each minute for jobs of Quipu that are due\n\n[Timer]\n\
    OnCalendar=*-*-* *:*:00\nAccuracySec=1s\nPersistent=true\n\n[Install]\nWantedBy=timers.target\n";

/// A file of a unit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitFile {
    /// Where it stands.
    pub path: PathBuf,
    /// All that is in it.
    pub content: String,
}

/// What the units run, and where they stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitPlan {
    purpose: UnitPurpose,
    /// What they are for.
    pub kind: UnitKind,
    /// The files.
    pub files: Vec<UnitFile>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// What it is for.
    pub kind: UnitKind,
    /// The files as they were written.
    pub files: Vec<UnitFile>,
    /// Directories that were made for them, the innermost first.
    pub directories: Vec<PathBuf>,
}

/// Why the files cannot be written or removed.
#[derive(Debug, thiserror::Error)]
pub enum UnitError {
    /// HOME is not set.
    #[error("HOME is not set, so there is no place for the files")]
    NoHome,
    /// A path that such a file cannot name.
    #[error("{} cannot stand in such a file", .0.display())]
    Path(PathBuf),
    /// A file of that name is there, and is not ours.
    #[error("{} exists and was not written by Quipu; move it away first", .0.display())]
    Foreign(PathBuf),
    /// A file of ours was changed since it was written.
    #[error("{} was changed since it was written, so it stays; remove it by hand first", .0.display())]
    Changed(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> UnitError + '_ {
    |error| UnitError::File { path: path.to_owned(), error }
}

/// A path as text that needs no other spelling in the file than quotes or escapes.
fn plain(path: &Path) -> Result<&str, UnitError> {
    let text = path.to_str().filter(|text| !text.chars().any(char::is_control));
    text.ok_or_else(|| UnitError::Path(path.to_owned()))
}

/// What stands between quotes in a file of systemd.
fn within_quotes(path: &Path) -> Result<String, UnitError> {
    Ok(plain(path)?.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

/// A word of a command of systemd: between quotes where it needs them.
fn quoted(path: &Path) -> Result<String, UnitError> {
    let text = plain(path)?;
    if !text.is_empty()
        && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_./".contains(letter))
    {
        return Ok(text.to_owned());
    }
    Ok(format!("\"{}\"", within_quotes(path)?.replace('$', "$$")))
}

fn escaped(path: &Path) -> Result<String, UnitError> {
    Ok(plain(path)?.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
}

impl UnitPlan {
    /// The files that run `program` with these words for a place.
    ///
    /// # Errors
    /// `NoHome`, `Path`.
    pub fn of(
        home: &Home,
        purpose: UnitPurpose,
        kind: UnitKind,
        program: &Path,
        words: &[PathBuf],
    ) -> Result<Self, UnitError> {
        let path = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user = path("HOME").ok_or(UnitError::NoHome)?;
        let files = match kind {
            UnitKind::Systemd => {
                // A relative one does not count.
                let base = path("XDG_CONFIG_HOME").filter(|base| base.is_absolute());
                let base = base.unwrap_or_else(|| user.join(".config"));
                let directory = base.join("systemd/user");
                let words = words.iter().map(|word| quoted(word)).collect::<Result<Vec<_>, _>>()?.join(" ");
                // In the path of the program systemd reads no variables.
                let (program, place) =
                    (format!("\"{}\"", within_quotes(program)?), within_quotes(&home.dir)?);
                let run = format!("Environment=\"QUIPU_HOME={place}\"\nExecStart={program} {words}\n");
                let file = |name, content| UnitFile { path: directory.join(name), content };
                match purpose {
                    UnitPurpose::Schedule => vec![
                        file(
                            "quipu-schedule.service",
                            format!(
                                "[Unit]\nDescription=Jobs of Quipu that are due\n\n[Service]\nType=oneshot\n{run}"
                            ),
                        ),
                        file(purpose.started(), TIMER.to_owned()),
                    ],
                    UnitPurpose::Server => vec![file(
                        purpose.started(),
                        format!(
                            "[Unit]\nDescription=Sessions of Quipu for programs\n\n[Service]\nType=exec\n{run}\
                             Restart=on-failure\nRestartSec=1\nKillMode=mixed\nTimeoutStopSec=30\n\n\
                             [Install]\nWantedBy=default.target\n"
                        ),
                    )],
                }
            }
            UnitKind::Launchd => {
                let word = |word: &PathBuf| Ok(format!("\n    <string>{}</string>", escaped(word)?));
                let words = words.iter().map(word).collect::<Result<String, UnitError>>()?;
                let (program, place) = (escaped(program)?, escaped(&home.dir)?);
                let label = purpose.label();
                let times = match purpose {
                    UnitPurpose::Schedule => "  <key>StartInterval</key>\n  <integer>60</integer>\n",
                    UnitPurpose::Server => {
                        "  <key>RunAtLoad</key>\n  <true/>\n  <key>KeepAlive</key>\n  <dict>\n\
                         \x20   <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n"
                    }
                };
                let content = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
                     <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
                     <plist version=\"1.0\">\n<dict>\n  <key>Label</key>\n  <string>{label}</string>\n\
                     \x20 <key>ProgramArguments</key>\n  <array>\n    <string>{program}</string>{words}\n  </array>\n\
                     \x20 <key>EnvironmentVariables</key>\n  <dict>\n    <key>QUIPU_HOME</key>\n    <string>{place}</string>\n  </dict>\n\
                     {times}</dict>\n</plist>\n"
                );
                let path = user.join("Library/LaunchAgents").join(format!("{label}.plist"));
                vec![UnitFile { path, content }]
            }
        };
        Ok(Self { purpose, kind, files })
    }

    /// Whether all files stand there as they would be written.
    pub fn is_there(&self) -> bool {
        self.files
            .iter()
            .all(|file| std::fs::read(&file.path).is_ok_and(|found| found == file.content.as_bytes()))
    }

    /// Writes the files, and the record of them first. Files that are there must be ours.
    ///
    /// # Errors
    /// `Foreign`, `File`.
    pub fn write(&self, home: &Home) -> Result<(), UnitError> {
        let before = UnitRecord::read(home, self.purpose)?;
        for file in &self.files {
            let ours = before.iter().flat_map(|record| &record.files).find(|known| known.path == file.path);
            match std::fs::read(&file.path) {
                Ok(found) if ours.is_some_and(|known| found == known.content.as_bytes()) => {}
                Ok(found) if found == file.content.as_bytes() => {}
                Ok(_) if ours.is_some() => return Err(UnitError::Changed(file.path.clone())),
                Ok(_) => return Err(UnitError::Foreign(file.path.clone())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&file.path)(error)),
            }
        }
        let (mut files, mut directories) = (self.files.clone(), Vec::new());
        if let Some(record) = before {
            // Those of other places stay known, so that they are removed as well.
            let elsewhere =
                record.files.into_iter().filter(|old| self.files.iter().all(|new| new.path != old.path));
            files.extend(elsewhere);
            directories = record.directories;
        }
        for file in &self.files {
            let missing = file.path.ancestors().skip(1).take_while(|directory| !directory.exists());
            for directory in missing {
                if !directories.iter().any(|known| known == directory) {
                    directories.push(directory.to_owned());
                }
            }
        }
        directories.sort_by_key(|directory| std::cmp::Reverse(directory.components().count()));
        let record = UnitRecord { kind: self.kind, files, directories };
        record.write(home, self.purpose)?;
        for file in &self.files {
            let directory = file.path.parent().unwrap_or(Path::new("/"));
            std::fs::create_dir_all(directory).map_err(at(directory))?;
            write_file(&file.path, file.content.as_bytes())?;
        }
        Ok(())
    }
}

/// By rename: nobody sees a part of it.
fn write_file(path: &Path, content: &[u8]) -> Result<(), UnitError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(directory).map_err(at(path))?;
    io::Write::write_all(&mut file, content).map_err(at(path))?;
    file.persist(path).map_err(|error| at(path)(error.error))?;
    Ok(())
}

impl UnitRecord {
    /// What was written; `None` where nothing was.
    ///
    /// # Errors
    /// `File`.
    pub fn read(home: &Home, purpose: UnitPurpose) -> Result<Option<Self>, UnitError> {
        let path = home.dir.join(purpose.record());
        match std::fs::read(&path) {
            Ok(found) => {
                let record = serde_json::from_slice(&found).map_err(io::Error::from);
                record.map(Some).map_err(at(&path))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(at(&path)(error)),
        }
    }

    fn write(&self, home: &Home, purpose: UnitPurpose) -> Result<(), UnitError> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::from).map_err(at(&home.dir))?;
        let mut directory = std::fs::DirBuilder::new();
        directory.recursive(true).mode(0o700).create(&home.dir).map_err(at(&home.dir))?;
        write_file(&home.dir.join(purpose.record()), &text)
    }

    /// Whether all files that are there are as they were written.
    ///
    /// # Errors
    /// `Changed`, `File`.
    pub fn check(&self) -> Result<(), UnitError> {
        for file in &self.files {
            match std::fs::read(&file.path) {
                Ok(found) if found == file.content.as_bytes() => {}
                Ok(_) => return Err(UnitError::Changed(file.path.clone())),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(at(&file.path)(error)),
            }
        }
        Ok(())
    }

    /// Removes the files, the directories that were made for them, and the record. A file that was changed stays, and so
    /// does everything else then.
    ///
    /// # Errors
    /// `Changed`, `File`.
    pub fn remove(&self, home: &Home, purpose: UnitPurpose) -> Result<(), UnitError> {
        self.check()?;
        let gone = |done: io::Result<()>, path: &Path| match done {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path)(error)),
            _ => Ok(()),
        };
        for file in &self.files {
            gone(std::fs::remove_file(&file.path), &file.path)?;
        }
        for directory in &self.directories {
            // One that somebody else uses meanwhile stays.
            drop(std::fs::remove_dir(directory));
        }
        let record = home.dir.join(purpose.record());
        gone(std::fs::remove_file(&record), &record)
    }
}
