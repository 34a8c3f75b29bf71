//! The user's pager.

use std::io::Write as _;
use std::process::Stdio;

use tokio::signal::unix::SignalKind;

use crate::exit::Failure;
use crate::print::note;
use quipu_host::env;

/// Shows a text in the pager, where stdout is a terminal; else writes it there.
pub(crate) fn page(text: &[u8]) -> Result<(), Failure> {
    if !crate::console::stdout().is_terminal() {
        return print(text);
    }
    // As most programs that page: nothing or `cat` is no pager.
    let pager = std::env::var("PAGER").unwrap_or_else(|_| "less -R".to_owned());
    if pager.trim().is_empty() || pager.trim() == "cat" {
        return print(text);
    }
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let mut command = match quipu_host::helpers().shell(&pager, &here) {
        Ok(command) => command,
        Err(error) => {
            note(format!("warning: the pager `{pager}` cannot start: {error}"));
            return print(text);
        }
    };
    // Ctrl-C is the pager's.
    drop(tokio::signal::unix::signal(SignalKind::interrupt()));
    command.stdin(Stdio::piped());
    if env("LESS").is_none() {
        command.env("LESS", "FRX");
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            note(format!("warning: the pager `{pager}` did not start: {error}"));
            return print(text);
        }
    };
    if let Some(mut stdin) = child.stdin.take() {
        // A pager that is left before the end has read enough.
        stdin.write_all(text).ok();
    }
    let status = child.wait()?;
    // What a shell says of a program that is not there.
    if matches!(status.code(), Some(126 | 127)) {
        note(format!(
            "warning: the pager `{pager}` was not found, except perhaps in a directory that commands of a session can write to; set PAGER to another"
        ));
        return print(text);
    }
    Ok(())
}

fn print(text: &[u8]) -> Result<(), Failure> {
    let mut out = crate::console::stdout();
    out.write_all(text)?;
    Ok(out.flush()?)
}
