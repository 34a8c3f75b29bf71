//! Asking before something is left behind.

use std::io::{BufRead as _, IsTerminal as _};

use quipu_tui::Question;

use crate::args::Task;
use crate::exit::Failure;
use crate::print::note;

/// What a person says to a question; `None` where nobody is there to be asked.
///
/// # Errors
/// When the terminal cannot be read.
pub(crate) fn asked(question: &str) -> Result<Option<bool>, Failure> {
    // Whoever answers must see what is asked.
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Ok(None);
    }
    note(format!("{question} [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}

/// What a person says to a question that comes up while a session is opened; `None` where nobody is there to be asked.
///
/// # Errors
/// When the terminal cannot be read; and where somebody draws on it who is to ask instead.
pub(crate) fn asked_to_open(task: &Task, question: Question, text: &str) -> Result<Option<bool>, Failure> {
    let Some(answers) = &task.answers else { return asked(text) };
    match answers.iter().find(|(answered, _)| *answered == question) {
        Some((_, yes)) => Ok(Some(*yes)),
        None => Err(Failure::asks(question, text)),
    }
}

/// Whether a person says yes. Without one it is refused: `what` is done only when that is confirmed.
///
/// # Errors
/// Without a terminal, and when the answer is no (`not` says what did not happen then).
pub(crate) fn confirm(question: &str, what: &str, not: &str) -> Result<(), Failure> {
    match asked(question)? {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::failed(not)),
        None => Err(Failure::usage(format!("{what} only when that is confirmed: add --yes"))),
    }
}
