//! Calls that were given up, in a small file that people can be told of. It holds no text of sessions.

use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use quipu_protocol::UnixMs;
use serde::{Deserialize, Serialize};

use crate::seen::make_directory;

const NAME: &str = "problems.jsonl";
const BEFORE: &str = "problems.before.jsonl";
/// Bytes of a file; then it becomes the one before, of which there is one.
const LIMIT: u64 = 64 << 10;
/// Characters of a problem and of a name.
const LONGEST: usize = 300;

/// A call that was given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// When.
    pub at: UnixMs,
    /// The agent that called, as it was named on the command line.
    pub agent: String,
    /// Its event.
    pub event: String,
    /// What went wrong.
    pub problem: String,
}

/// Adds a line to the log below `directory`.
///
/// # Errors
/// It cannot be written.
pub fn append_log(directory: &Path, line: &LogLine) -> io::Result<()> {
    make_directory(directory)?;
    let path = directory.join(NAME);
    if fs::metadata(&path).is_ok_and(|found| found.len() > LIMIT) {
        fs::rename(&path, directory.join(BEFORE))?;
    }
    let short = |text: &str| quipu_transcript::one_line(text, LONGEST);
    let line = LogLine {
        at: line.at,
        agent: short(&line.agent),
        event: short(&line.event),
        problem: short(&line.problem),
    };
    let text = serde_json::to_string(&line).map_err(io::Error::other)? + "\n";
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    // One write, so that lines of two processes do not mix.
    file.write_all(text.as_bytes())
}

/// The lines of the log below `directory`, the oldest first; those that cannot be read are left out.
///
/// # Errors
/// The file is there and cannot be read.
pub fn read_log(directory: &Path) -> io::Result<Vec<LogLine>> {
    let mut lines = Vec::new();
    for name in [BEFORE, NAME] {
        let mut bytes = Vec::new();
        match fs::File::open(directory.join(name)) {
            Ok(file) => file.take(4 * LIMIT).read_to_end(&mut bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        let text = String::from_utf8_lossy(&bytes);
        lines.extend(text.lines().filter_map(|line| serde_json::from_str(line).ok()));
    }
    Ok(lines)
}
