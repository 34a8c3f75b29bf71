//! What the user says: messages, `@file`s, piped stdin.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use quipu_protocol::{Content, UserInput};

use crate::exit::Failure;

/// Bytes of one included file, or of stdin, at most.
const LIMIT: u64 = 16 << 20;

/// The prompts of this run: the first holds what was [`piped`], files and the first message; each further message is
/// a prompt of its own.
pub(crate) fn prompts(messages: &[String], piped: String, cwd: &Path) -> Result<Vec<UserInput>, Failure> {
    let (files, texts): (Vec<&String>, Vec<&String>) =
        messages.iter().partition(|word| word.starts_with('@'));
    let mut text = piped;
    let mut images = Vec::new();
    for file in files {
        match include(&cwd.join(&file[1..]))? {
            IncludedFile::Text(more) => text.push_str(&more),
            IncludedFile::Image(blocks) => images.extend(blocks),
            IncludedFile::Nothing => {}
        }
    }
    let mut texts = texts.into_iter();
    match texts.next() {
        Some(first) => text.push_str(first),
        None => text.truncate(text.trim_end().len()),
    }
    let mut blocks = Vec::new();
    if !text.trim().is_empty() {
        blocks.push(Content::text(text));
    }
    blocks.extend(images);
    let first = (!blocks.is_empty()).then_some(UserInput::new(blocks));
    Ok(first
        .into_iter()
        .chain(texts.filter(|text| !text.trim().is_empty()).map(|text| UserInput::from(text.as_str())))
        .map(|input| quipu_host::with_images(input, cwd))
        .collect())
}

/// What stands on stdin, when it is no terminal.
pub(crate) fn piped() -> Result<String, Failure> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Ok(String::new());
    }
    let mut bytes = Vec::new();
    stdin.lock().take(LIMIT + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LIMIT {
        return Err(Failure::usage(
            "stdin is larger than 16 MiB; put it in a file and name the file in the task",
        ));
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.trim();
    Ok(if text.is_empty() { String::new() } else { format!("{text}\n") })
}

enum IncludedFile {
    Text(String),
    Image(Vec<Content>),
    Nothing,
}

fn include(path: &Path) -> Result<IncludedFile, Failure> {
    let path: PathBuf = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let shown = path.display();
    let meta = std::fs::metadata(&path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Failure::usage(format!("File not found: {shown}")),
        _ => Failure::usage(format!("{shown} cannot be read: {error}")),
    })?;
    if !meta.is_file() {
        return Err(Failure::usage(format!("{shown} is not a regular file, so it cannot be included")));
    }
    if meta.len() > LIMIT {
        return Err(Failure::usage(format!(
            "{shown} is larger than 16 MiB; name it in the task and let the agent read parts of it"
        )));
    }
    let bytes =
        std::fs::read(&path).map_err(|error| Failure::usage(format!("{shown} cannot be read: {error}")))?;
    if bytes.is_empty() {
        return Ok(IncludedFile::Nothing);
    }
    if let Some(blocks) = quipu_tools::image_blocks(&bytes) {
        if !blocks.iter().any(|block| matches!(block, Content::Image(_))) {
            return Err(Failure::usage(format!(
                "{shown} is an image that cannot be decoded, or not made small enough"
            )));
        }
        return Ok(IncludedFile::Image(blocks));
    }
    let text = String::from_utf8_lossy(&bytes);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    Ok(IncludedFile::Text(format!("<file name=\"{shown}\">\n{text}\n</file>\n")))
}

/// A flag's value: the content of the file of that name if there is one, else the text itself.
pub(crate) fn text_or_file(value: &str) -> Result<String, Failure> {
    let path = Path::new(value);
    if value.contains('\n') || !path.is_file() {
        return Ok(value.to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{value} cannot be read: {error}")))
}
