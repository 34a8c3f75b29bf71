//! What the user says: messages, `@file`s, piped stdin.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use quipu_host::Home;
use quipu_protocol::{AddedBlock, Content, Provenance, UserInput};

use crate::exit::Failure;
use crate::print::note;

/// Bytes of one included file, or of stdin, at most.
const LIMIT: u64 = 16 << 20;

/// What a task says, before files are included.
#[derive(Debug, Clone)]
pub(crate) enum TaskMessage {
    /// As a person typed it; `@` at its beginning names a file.
    Typed(String),
    /// What a command with a slash made of one.
    Command(UserInput),
}

impl TaskMessage {
    /// The messages of a command line.
    pub(crate) fn typed(messages: &[String]) -> Vec<Self> {
        messages.iter().cloned().map(Self::Typed).collect()
    }

    /// The file to include.
    fn file(&self, cwd: &Path) -> Option<PathBuf> {
        let Self::Typed(text) = self else { return None };
        let path = cwd.join(text.strip_prefix('@')?);
        // A resource of a server is named alike, and is read when the session is open.
        (path.exists() || !quipu_host::names_resource(text)).then_some(path)
    }

    fn into_input(self) -> UserInput {
        match self {
            Self::Typed(text) => UserInput::from(text),
            Self::Command(input) => input,
        }
    }
}

/// What is sent to the session, with files and images.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TaskPrompt {
    /// All of it.
    pub(crate) input: UserInput,
    /// The message in it, without what was piped or included.
    pub(crate) typed: String,
}

/// The prompts of this run: the first holds what was [`piped`], files and the first message; each further message is
/// a prompt of its own.
pub(crate) fn prompts(
    messages: Vec<TaskMessage>,
    piped: String,
    cwd: &Path,
) -> Result<Vec<TaskPrompt>, Failure> {
    // What a person did not type is set apart, as data of whoever wrote it.
    let mut added = Vec::new();
    if !piped.trim().is_empty() {
        added.push((Content::text(piped), "stdin".to_owned()));
    }
    let (mut images, mut texts) = (Vec::new(), Vec::new());
    for message in messages {
        let Some(file) = message.file(cwd) else {
            texts.push(message.into_input());
            continue;
        };
        let name = format!("file {}", file.display());
        match include(&file)? {
            IncludedFile::Text(text) => added.push((Content::text(text), name)),
            IncludedFile::Image(blocks) => {
                images.extend(blocks.into_iter().map(|block| (block, name.clone())));
            }
            IncludedFile::Nothing => {}
        }
    }
    let mut texts = texts.into_iter();
    let first = texts.next().unwrap_or_else(|| UserInput::new(Vec::new()));
    let typed = typed_of(&first);
    let mut input = UserInput::new(Vec::new()).from_source(first.provenance);
    let put = |input: &mut UserInput, (block, name): (Content, String)| {
        input.added.push(AddedBlock::behind(&input.content, Provenance::tool().named(name)));
        input.content.push(block);
    };
    added.into_iter().for_each(|one| put(&mut input, one));
    let moved = u32::try_from(input.content.len()).unwrap_or(u32::MAX);
    input.added.extend(
        first.added.into_iter().map(|one| AddedBlock { block: one.block.saturating_add(moved), ..one }),
    );
    if !first.content.iter().all(|block| block.as_text().is_some_and(|text| text.trim().is_empty())) {
        input.content.extend(first.content);
    }
    images.into_iter().for_each(|one| put(&mut input, one));
    let first = (!input.content.is_empty()).then_some(TaskPrompt { input, typed });
    let further = texts.filter(|input| !input.text().trim().is_empty()).map(|input| {
        let typed = typed_of(&input);
        TaskPrompt { input, typed }
    });
    let with_images = |prompt: TaskPrompt| {
        let input = quipu_host::with_images(prompt.input, cwd);
        TaskPrompt { input, ..prompt }
    };
    Ok(first.into_iter().chain(further).map(with_images).collect())
}

/// What a person typed of a message.
fn typed_of(input: &UserInput) -> String {
    if input.provenance.is_default() { input.own_text() } else { String::new() }
}

/// The prompts with the resources that they mention.
pub(crate) async fn with_resources(home: &Home, tasks: Vec<TaskPrompt>) -> Vec<Option<UserInput>> {
    let mut prompts = Vec::with_capacity(tasks.len());
    for TaskPrompt { input, typed } in tasks {
        let (input, problems) = home.mentions().read(input, &typed).await;
        problems.iter().for_each(|problem| note(format!("warning: {problem}")));
        prompts.push(Some(input));
    }
    prompts
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
    Ok(if text.is_empty() { String::new() } else { text.to_owned() })
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
    Ok(IncludedFile::Text(format!("<file name=\"{shown}\">\n{text}\n</file>")))
}

/// A flag's value: the content of the file of that name if there is one, else the text itself.
pub(crate) fn text_or_file(value: &str) -> Result<String, Failure> {
    let path = Path::new(value);
    if value.contains('\n') || !path.is_file() {
        return Ok(value.to_owned());
    }
    std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{value} cannot be read: {error}")))
}
