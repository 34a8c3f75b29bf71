//! Values of `models.json` and `auth.json` that may refer to the environment or to a command.
//!
//! `!command` is the output of a shell command, `$NAME` and `${NAME}` are environment variables, `$$` and `$!`
//! stand for `$` and `!`; all else is literal.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How long a command may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a command's output at most.
const MAX_OUTPUT: u64 = 64 << 10;

/// A value could not be had. The message says why, and never holds the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ValueError {
    #[error("the environment variable {0} is not set")]
    Missing(String),
    #[error("the command {command:?} {problem}")]
    Command { command: String, problem: String },
}

/// The environment variables that were asked for when the settings were loaded.
pub(crate) type Vars = BTreeMap<String, Option<String>>;

#[derive(Debug, PartialEq, Eq)]
enum Part<'a> {
    Literal(&'a str),
    Variable(&'a str),
}

/// The variables that `value` refers to.
pub(crate) fn variables(value: &str) -> impl Iterator<Item = &str> {
    let parts = if value.starts_with('!') { Vec::new() } else { parts(value) };
    parts.into_iter().filter_map(|part| match part {
        Part::Variable(name) => Some(name),
        Part::Literal(_) => None,
    })
}

/// Why no shell can run a `!command`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NoShell(pub Box<dyn std::error::Error + Send + Sync>);

/// What runs a `!command`: a shell that is given its line, or why there is none. It runs unconfined, so where commands
/// of a model are confined it must not look programs up where these could have put them.
pub type Shell = dyn Fn(&str) -> Result<Command, NoShell> + Send + Sync;

/// `/bin/sh` in the directory of the settings, which looks programs up in what is absolute in `PATH` and not below the
/// directory of this process.
pub(crate) fn usual_shell(home: &Path, line: &str) -> Command {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let path = std::env::var_os("PATH").unwrap_or_default();
    let outside = |directory: &std::path::PathBuf| {
        let real = directory.canonicalize();
        directory.is_absolute() && matches!((real, &here), (Ok(real), Ok(here)) if !real.starts_with(here))
    };
    let path = std::env::join_paths(std::env::split_paths(&path).filter(outside)).unwrap_or_default();
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).env("PATH", path);
    command.current_dir(if home.is_dir() { home } else { Path::new("/") });
    command
}

/// What `value` stands for. Runs its command in the shell, when it is one.
pub(crate) fn resolve(value: &str, vars: &Vars, shell: &Shell) -> Result<String, ValueError> {
    if let Some(command) = value.strip_prefix('!') {
        return output(command, shell, COMMAND_TIMEOUT);
    }
    parts(value)
        .into_iter()
        .map(|part| match part {
            Part::Literal(text) => Ok(text),
            Part::Variable(name) => vars
                .get(name)
                .and_then(Option::as_deref)
                .filter(|value| !value.is_empty())
                .ok_or_else(|| ValueError::Missing(name.to_owned())),
        })
        .collect()
}

/// A value that stands for itself, or for one variable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum PlainValue {
    /// This text.
    Literal(String),
    /// The variable of this name.
    Variable(String),
}

/// What `value` stands for; `None` for a command, and for what is made of several parts.
pub(crate) fn plain(value: &str) -> Option<PlainValue> {
    if value.starts_with('!') {
        return None;
    }
    let parts = parts(value);
    if let [Part::Variable(name)] = &parts[..] {
        return Some(PlainValue::Variable((*name).to_owned()));
    }
    let literal = parts.into_iter().map(|part| match part {
        Part::Literal(text) => Some(text),
        Part::Variable(_) => None,
    });
    literal.collect::<Option<String>>().map(PlainValue::Literal)
}

fn parts(value: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        if !before.is_empty() {
            parts.push(Part::Literal(before));
        }
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let braced =
            after.strip_prefix('{').and_then(|inner| inner.split_once('}')).filter(|(name, _)| is_name(name));
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
        rest = if let Some((name, rest)) = braced {
            parts.push(Part::Variable(name));
            rest
        } else if is_name(&after[..end]) {
            parts.push(Part::Variable(&after[..end]));
            &after[end..]
        } else if after.starts_with(['$', '!']) {
            parts.push(Part::Literal(&after[..1]));
            &after[1..]
        } else {
            parts.push(Part::Literal("$"));
            after
        };
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest));
    }
    parts
}

/// The output of a shell command, without white space around it. Blocks, for so long at most.
pub(crate) fn output(command: &str, shell: &Shell, within: Duration) -> Result<String, ValueError> {
    let failed = |problem: String| ValueError::Command { command: command.to_owned(), problem };
    let mut child = shell(command)
        .map_err(|problem| failed(format!("cannot be run: {problem}")))?
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| failed(format!("could not be started: {error}")))?;
    let Some(stdout) = child.stdout.take() else { return Err(failed("has no output".into())) };
    let (send, receive) = mpsc::sync_channel(1);
    // The thread ends with the pipe, which ends with the child. The receiver may be gone by then.
    std::thread::spawn(move || {
        let mut output = Vec::new();
        let read = stdout.take(MAX_OUTPUT + 1).read_to_end(&mut output).map(|_| output);
        drop(send.send(read));
    });
    let output = receive.recv_timeout(within);
    if !matches!(&output, Ok(Ok(bytes)) if bytes.len() as u64 <= MAX_OUTPUT) {
        // It may have ended already.
        drop(child.kill());
    }
    let status = child.wait().map_err(|error| failed(format!("could not be waited for: {error}")))?;
    let output = match output {
        Ok(Ok(output)) if output.len() as u64 <= MAX_OUTPUT => output,
        Ok(Ok(_)) => return Err(failed(format!("printed more than {MAX_OUTPUT} bytes"))),
        Ok(Err(error)) => return Err(failed(format!("could not be read: {error}"))),
        Err(_) => return Err(failed(format!("took more than {} s", within.as_secs()))),
    };
    if status.code() == Some(127) {
        return Err(failed(format!(
            "failed ({status}): a program was not found, except perhaps in a directory that commands of a session can write to"
        )));
    }
    if !status.success() {
        return Err(failed(format!("failed ({status})")));
    }
    let text = String::from_utf8(output).map_err(|_| failed("printed something that is not text".into()))?;
    match text.trim() {
        "" => Err(failed("printed nothing".into())),
        text => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(line: &str) -> Result<Command, NoShell> {
        Ok(usual_shell(Path::new("/"), line))
    }

    #[test]
    fn references() {
        let vars: Vars = [("A", Some("1")), ("B_2", Some("two")), ("EMPTY", Some("")), ("NONE", None)]
            .map(|(name, value)| (name.to_owned(), value.map(String::from)))
            .into();
        let check = |value: &str, expect: Result<&str, &str>| {
            let got = resolve(value, &vars, &shell);
            let expect = expect.map(String::from).map_err(|name| ValueError::Missing(name.into()));
            assert_eq!(got, expect, "{value}");
        };
        check("", Ok(""));
        check("sk-plain", Ok("sk-plain"));
        check("ANTHROPIC_API_KEY", Ok("ANTHROPIC_API_KEY"));
        check("$A", Ok("1"));
        check("x${A}y$B_2-z", Ok("x1ytwo-z"));
        check("$$A $!A $", Ok("$A !A $"));
        check("${}${A $1 $-", Ok("${}${A $1 $-"));
        check("$EMPTY", Err("EMPTY"));
        check("a${NONE}", Err("NONE"));
        check("$OTHER", Err("OTHER"));
        assert_eq!(variables("$A ${B} $$C !$D").collect::<Vec<_>>(), ["A", "B", "D"]);
        assert_eq!(variables("!echo $A").count(), 0);
    }

    #[test]
    fn commands() {
        let vars = Vars::new();
        assert_eq!(resolve("!echo ' key '; echo noise >&2", &vars, &shell).unwrap(), "key");
        for (command, problem) in [
            ("!exit 3", "failed (exit status: 3)"),
            ("!quipu-no-such-program", "directory that commands of a session can write to"),
            ("!true", "printed nothing"),
            ("!printf '\\377'", "printed something that is not text"),
            ("!cat /dev/zero", "printed more than 65536 bytes"),
        ] {
            assert!(resolve(command, &vars, &shell).unwrap_err().to_string().ends_with(problem), "{command}");
        }
        assert_eq!(resolve("!pwd", &vars, &shell).unwrap(), "/");
        let none: &Shell = &|_| Err(NoShell("no shell".into()));
        assert!(resolve("!pwd", &vars, none).unwrap_err().to_string().ends_with("cannot be run: no shell"));
    }
}
