//! A line that the user runs in the shell: run by the host, and kept by the session before it begins and when it ends.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use quipu::Session;
use quipu_protocol::{Ack, BashExecutionMessage, Command, UnixMs};
use tokio::sync::oneshot;

use crate::host::{Host, ShellDone, Tell};

/// Bytes of what a line printed that are kept, and that the model is told at most: its end.
const KEPT: usize = 50_000;

/// What became of a line.
#[derive(Debug)]
pub struct ShellRan {
    /// What it printed, or why it was not run.
    pub done: Result<ShellDone, String>,
    /// Why the session does not have it, where it does not.
    pub lost: Option<String>,
}

/// Runs a line; `stop` ends it, also by being dropped.
pub(crate) async fn by_hand(
    host: Arc<dyn Host>,
    session: Option<Arc<Session>>,
    (line, hidden): (String, bool),
    stop: oneshot::Receiver<()>,
    tell: Tell,
    now: impl Fn() -> UnixMs,
) -> ShellRan {
    let begun = match &session {
        Some(session) => session.send(Command::ShellBegins { line: line.clone(), hidden }).await,
        None => Err(quipu::Refused::Closed),
    };
    let run = match begun {
        Ok(Ack::Started(run)) => run,
        // Perhaps its end can be kept.
        Ok(_) | Err(_) => "unkept".into(),
    };
    let work = AssertUnwindSafe(host.shell(line.clone(), stop, tell)).catch_unwind();
    let done =
        work.await.unwrap_or_else(|_| Err("the program failed inside; this is a bug of it".to_owned()));
    let lost = match &session {
        Some(session) => {
            let shell = message(line, hidden, &done, now());
            session.send(Command::ShellEnds { run, shell }).await.err().map(|refused| refused.to_string())
        }
        None => Some("no session is open".to_owned()),
    };
    ShellRan { done, lost }
}

fn message(
    line: String,
    hidden: bool,
    done: &Result<ShellDone, String>,
    now: UnixMs,
) -> BashExecutionMessage {
    let (output, exit_code, cancelled, cut, path) = match done {
        Ok(done) => {
            let from = done.output.ceil_char_boundary(done.output.len().saturating_sub(KEPT));
            let cut = done.cut || from > 0;
            (done.output[from..].to_owned(), done.code, done.code.is_none(), cut, done.path.clone())
        }
        Err(why) => (format!("[It was not run: {why}]"), None, false, false, None),
    };
    BashExecutionMessage {
        command: line,
        output,
        exit_code,
        cancelled,
        truncated: cut,
        full_output_path: path,
        exclude_from_context: hidden.then_some(true),
        timestamp: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_end_is_kept_and_where_the_whole_is() {
        let done = |output: String, path: Option<&str>| {
            Ok(ShellDone { output, code: Some(0), cut: path.is_some(), path: path.map(str::to_owned) })
        };
        let short = message("ls".into(), false, &done("a\n".into(), None), 7);
        assert_eq!(
            (short.output.as_str(), short.truncated, short.exclude_from_context),
            ("a\n", false, None)
        );
        let long = message("ls".into(), true, &done(format!("ü{}", "x".repeat(KEPT - 1)), Some("/o")), 7);
        assert_eq!(
            (long.output.len(), long.truncated, long.exclude_from_context),
            (KEPT - 1, true, Some(true))
        );
        assert_eq!(long.full_output_path.as_deref(), Some("/o"));
        let none = message("ls".into(), false, &Err("no shell".into()), 7);
        assert_eq!(
            (none.output.as_str(), none.exit_code, none.cancelled),
            ("[It was not run: no shell]", None, false)
        );
    }
}
