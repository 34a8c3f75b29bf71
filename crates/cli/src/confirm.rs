//! Asking before something is left behind.

use std::io::BufRead as _;

use crate::exit::Failure;
use crate::print::note;

/// What a person says to a question; `None` where nobody is there to be asked.
///
/// # Errors
/// When the terminal cannot be read.
pub(crate) fn asked(question: &str) -> Result<Option<bool>, Failure> {
    // Whoever answers must see what is asked.
    if !crate::console::is_typed() || !crate::console::shows_people() {
        return Ok(None);
    }
    note(format!("{question} [y/N]"));
    let mut answer = String::new();
    crate::console::stdin().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")))
}

/// Whether a person says yes. Without one it is refused: `what` is done only when that is confirmed.
///
/// # Errors
/// Without a terminal, and when the answer is no (`not` says what did not happen then).
pub(crate) fn confirm(question: &str, what: &str, not: &str) -> Result<(), Failure> {
    match asked(question)? {
        Some(true) => Ok(()),
        Some(false) => Err(Failure::failed(not)),
        None => Err(Failure::usage(format!("{what} only after you confirm: add --yes"))),
    }
}
