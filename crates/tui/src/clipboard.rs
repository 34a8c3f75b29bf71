//! The image on the clipboard, as a file.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use quipu_workspace::Helpers;

/// Bytes of an image.
const MOST: u64 = 32 << 20;
/// What a program may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How PNG begins.
const PNG: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Why there is no image of the clipboard.
#[derive(Debug, thiserror::Error)]
pub enum ClipboardError {
    /// No desktop.
    #[error(
        "There is no clipboard here (neither WAYLAND_DISPLAY nor DISPLAY is set). Copy the image to this machine (over SSH: scp) and name it as @path"
    )]
    NoClipboard,
    /// The program that reads it is missing.
    #[error(
        "{0}, which reads the clipboard, is not installed (or only in a directory that commands can write to)"
    )]
    NotInstalled(String),
    /// Something else is on it, or nothing.
    #[error("There is no image on the clipboard")]
    NoImage,
    /// It is beyond the limit.
    #[error("The image is larger than {} MiB", MOST >> 20)]
    TooLarge,
    /// No file could be made of it.
    #[error("The image cannot be written to {}: {error}", directory.display())]
    NotWritten {
        /// Where.
        directory: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The program does not start.
    #[error("{program} cannot be run: {error}")]
    NotStarted {
        /// The program that was to be started.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// Its output cannot be read.
    #[error("{program} cannot be read: {error}")]
    NotRead {
        /// The program whose output was to be read.
        program: String,
        /// Why.
        error: std::io::Error,
    },
    /// It has no output.
    #[error("{0} has no output")]
    NoOutput(String),
    /// It did not end in time.
    #[error("{0} does not answer")]
    NoAnswer(String),
    /// The work was given up.
    #[error("{0}")]
    Stopped(#[from] tokio::task::JoinError),
}

/// Puts the image of the clipboard into a new file (0600, PNG) in a directory, and gives its path. Asks `wl-paste`,
/// `xclip` or `pngpaste`, whichever is for this desktop; waits for it, five seconds at most.
///
/// # Errors
/// There is no image, or no program that reads the clipboard.
pub fn clipboard_image(directory: &Path) -> Result<PathBuf, ClipboardError> {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut programs: Vec<&[&str]> = Vec::new();
    if set("WAYLAND_DISPLAY") {
        programs.push(&["wl-paste", "--no-newline", "--type", "image/png"]);
    }
    if set("DISPLAY") {
        programs.push(&["xclip", "-selection", "clipboard", "-target", "image/png", "-out"]);
    }
    if cfg!(target_os = "macos") {
        programs.push(&["pngpaste", "-"]);
    }
    if programs.is_empty() {
        return Err(ClipboardError::NoClipboard);
    }
    image_of(&programs, directory)
}

fn image_of(programs: &[&[&str]], directory: &Path) -> Result<PathBuf, ClipboardError> {
    let mut asked = Vec::new();
    for program in programs {
        let Some(bytes) = output(program)? else { continue };
        asked.push(program[0]);
        if bytes.starts_with(PNG) {
            let written = tempfile::Builder::new().prefix("image-").suffix(".png").tempfile_in(directory);
            let kept = written.and_then(|mut file| {
                file.write_all(&bytes)?;
                file.keep().map_err(|error| error.error)
            });
            return match kept {
                Ok((_, path)) => Ok(path),
                Err(error) => Err(ClipboardError::NotWritten { directory: directory.to_owned(), error }),
            };
        }
    }
    match (asked.is_empty(), programs.first()) {
        (true, Some(program)) => Err(ClipboardError::NotInstalled(program[0].to_owned())),
        _ => Err(ClipboardError::NoImage),
    }
}

/// What a program prints; `None` when there is no such program.
fn output(program: &[&str]) -> Result<Option<Vec<u8>>, ClipboardError> {
    let name = program[0];
    let Some(mut command) = Helpers::of_this_process().command(name) else { return Ok(None) };
    let spawned = command
        .args(&program[1..])
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ClipboardError::NotStarted { program: name.to_owned(), error }),
    };
    let Some(out) = child.stdout.take() else { return Err(ClipboardError::NoOutput(name.to_owned())) };
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = out.take(MOST + 1).read_to_end(&mut bytes).map(|_| bytes);
        // Nobody waits any more when it took too long.
        sender.send(read).ok();
    });
    let read = receiver.recv_timeout(PATIENCE);
    // It has said what it has to say.
    child.kill().ok();
    child.wait().ok();
    match read {
        Ok(Ok(bytes)) if bytes.len() as u64 > MOST => Err(ClipboardError::TooLarge),
        Ok(Ok(bytes)) => Ok(Some(bytes)),
        Ok(Err(error)) => Err(ClipboardError::NotRead { program: name.to_owned(), error }),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
            Err(ClipboardError::NoAnswer(name.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    #[test]
    fn an_image_becomes_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let image: &[&str] = &["sh", "-c", "printf '\\211PNG\\r\\n\\032\\nrest'"];
        let text: &[&str] = &["sh", "-c", "echo text"];
        let missing: &[&str] = &["no-such-program-here"];
        let path = image_of(&[missing, text, image], dir.path()).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), [PNG, b"rest"].concat());
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        let told = |programs: &[&[&str]]| image_of(programs, dir.path()).unwrap_err().to_string();
        assert!(told(&[text]).contains("no image"));
        assert!(told(&[missing, text]).contains("no image"));
        assert!(
            told(&[missing]).contains("no-such-program-here, which reads the clipboard, is not installed")
        );
        assert!(told(&[&["sh", "-c", "exec head -c 40000000 /dev/zero"]]).contains("larger"));
        let nowhere = image_of(&[image], &dir.path().join("none")).unwrap_err().to_string();
        assert!(nowhere.contains("cannot be written"), "{nowhere}");
    }
}
