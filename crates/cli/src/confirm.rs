//! Asking before something is left behind.

use std::io::{BufRead as _, IsTerminal as _};

use crate::exit::Failure;
use crate::print::note;

/// Whether a person says yes. Without one it is refused: `what` is done only when that is confirmed.
///
/// # Errors
/// Without a terminal, and when the answer is no (`not` says what did not happen then).
pub(crate) fn confirm(question: &str, what: &str, not: &str) -> Result<(), Failure> {
    // Whoever answers must see what is asked.
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::usage(format!("{what} only when that is confirmed: add --yes")));
    }
    note(format!("{question} [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Err(Failure::failed(not));
    }
    Ok(())
}
