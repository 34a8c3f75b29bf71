//! Commands with a slash in tasks without the terminal.

use std::io::Write as _;
use std::time::Duration;

use quipu::Session;
use quipu_host::{CommandCall, Home};
use quipu_protocol::CommandValue;

use crate::exit::Failure;
use crate::input::TaskMessage;
use crate::print::printable;

/// How long a command is waited for that a server is about to add.
const PATIENCE: Duration = Duration::from_secs(10);

/// The messages of a task, of which those that begin with a command are what it gives; `None` where none does.
///
/// # Errors
/// Why a command did not go.
pub(crate) async fn expanded(
    home: &Home,
    session: &Session,
    messages: &[String],
) -> Result<Option<Vec<TaskMessage>>, Failure> {
    for message in messages {
        if let Some(name) = message.strip_prefix('/').and_then(|line| line.split_whitespace().next()) {
            home.commands().settled(name, PATIENCE).await;
        }
    }
    let known = home.commands().runnable();
    let mut expanded = Vec::with_capacity(messages.len());
    let mut is_changed = false;
    for message in messages {
        let line = message.strip_prefix('/').unwrap_or_default();
        let (name, arguments) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if !known.iter().any(|spec| spec.name == name) {
            expanded.push(TaskMessage::Typed(message.clone()));
            continue;
        }
        is_changed = true;
        let call = CommandCall { arguments: arguments.trim().to_owned(), session: Some(session.clone()) };
        match home.commands().run(name, call).await.map_err(Failure::usage)? {
            CommandValue::Prompt { input } => expanded.push(TaskMessage::Command(input)),
            CommandValue::Text { text } => writeln!(crate::console::stdout(), "{}", printable(&text))?,
            CommandValue::Done => {}
        }
    }
    Ok(is_changed.then_some(expanded))
}
