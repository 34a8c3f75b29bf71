//! Commands in a terminal of the client, where nothing confines them anyway.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use quipu::{Invocation, Preparation, Tool, ToolContext, ToolOutput, Touches};
use quipu_protocol::{Json, RunId, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::link::SessionLink;

/// Bytes of output that the client keeps for us.
const OUTPUT: usize = 50 << 10;
/// How long the client may take over a question about its terminal, beside the wait for the command.
const PATIENCE: Duration = Duration::from_secs(10);

/// `bash` in a terminal of the client. A command that is confined runs here, and so does one in the background, or that may go on there.
pub(crate) struct TerminalBash {
    own: Arc<dyn Tool>,
    link: Arc<SessionLink>,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<f64>,
    #[serde(default)]
    run_in_background: bool,
    /// Seconds after which it goes on in the background.
    #[serde(rename = "yield")]
    yield_after: Option<f64>,
}

/// How a command in a terminal ended.
enum TerminalEnd {
    Exited(Value),
    TimedOut,
    Aborted,
    Failed(String),
}

impl TerminalBash {
    pub(crate) fn new(own: Arc<dyn Tool>, link: Arc<SessionLink>) -> Self {
        Self { own, link }
    }

    /// The arguments of a command for the client; `None` where it runs here.
    fn for_client(&self, call: &Invocation, cx: &ToolContext) -> Option<Arguments> {
        if !self.link.abilities.has_terminals || cx.sandbox.is_some() || self.link.name().is_none() {
            return None;
        }
        let arguments: Arguments = call.args.read().ok()?;
        let goes_on_here = arguments.yield_after.is_some() && cx.background.is_some();
        (!arguments.run_in_background && !goes_on_here).then_some(arguments)
    }

    async fn ask(&self, method: &str, mut params: Value) -> Result<Value, String> {
        params["sessionId"] = self.link.name().unwrap_or_default().into();
        let request = self.link.connection.request(method, &params);
        match tokio::time::timeout(PATIENCE, request).await {
            Ok(answer) => answer.map_err(|error| error.message),
            Err(_) => Err(format!("the client did not answer {method} in {} seconds", PATIENCE.as_secs())),
        }
    }

    async fn in_terminal(&self, call: &Invocation, given: Arguments, cx: &ToolContext) -> ToolOutput {
        let Arguments { command, timeout, .. } = given;
        let wait = match timeout {
            Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
                return ToolOutput::error("Invalid timeout: must be a finite number of seconds");
            }
            // None at all where it is longer than anyone waits.
            Some(seconds) => Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero()),
            None => None,
        };
        // Names that are to be removed, such as those of keys, can only be emptied there.
        let variable = |(name, value): &(String, Option<String>)| json!({ "name": name, "value": value.as_deref().unwrap_or_default() });
        let env: Vec<Value> = cx.env.iter().map(variable).collect();
        let create = json!({
            "command": "bash", "args": ["-c", command], "env": env, "cwd": cx.cwd.to_string_lossy(),
            "outputByteLimit": OUTPUT,
        });
        let terminal = match self.ask("terminal/create", create).await {
            Ok(created) => created.get("terminalId").and_then(Value::as_str).map(str::to_owned),
            Err(why) => return ToolOutput::error(format!("The client could not run the command: {why}")),
        };
        let Some(terminal) = terminal else {
            return ToolOutput::error("The client could not run the command: its answer names no terminal");
        };
        let name = self.link.call(&call.id);
        self.link.put_in_terminal(&name);
        let content = json!([{ "type": "terminal", "terminalId": terminal }]);
        let shown = json!({ "sessionUpdate": "tool_call_update", "toolCallId": name, "content": content });
        self.link.connection.update(self.link.name().unwrap_or_default(), shown).await;
        let named = || json!({ "terminalId": terminal });
        let end = self.wait(&terminal, wait, cx).await;
        if !matches!(end, TerminalEnd::Exited(_)) {
            // It is released all the same, which kills it too.
            drop(self.ask("terminal/kill", named()).await);
        }
        let output = self.ask("terminal/output", named()).await;
        drop(self.ask("terminal/release", named()).await);
        result(&end, &output, timeout)
    }

    async fn wait(&self, terminal: &str, wait: Option<Duration>, cx: &ToolContext) -> TerminalEnd {
        let params = json!({ "sessionId": self.link.name().unwrap_or_default(), "terminalId": terminal });
        let overdue = async {
            match wait {
                Some(wait) => tokio::time::sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = cx.cancel.cancelled() => TerminalEnd::Aborted,
            ended = self.link.connection.request("terminal/wait_for_exit", &params) => match ended {
                Ok(status) => TerminalEnd::Exited(status),
                Err(error) => TerminalEnd::Failed(error.message),
            },
            () = overdue => TerminalEnd::TimedOut,
        }
    }
}

fn result(end: &TerminalEnd, output: &Result<Value, String>, timeout: Option<f64>) -> ToolOutput {
    let printed = output.as_ref().ok().and_then(|output| output.get("output")?.as_str()).unwrap_or_default();
    let start = printed.ceil_char_boundary(printed.len().saturating_sub(OUTPUT));
    let is_cut = start > 0
        || output.as_ref().is_ok_and(|output| output.get("truncated").and_then(Value::as_bool) == Some(true));
    let mut text = printed[start..].to_owned();
    if is_cut {
        text.push_str(&format!("\n\n[Showing the last {} KB of the output.]", OUTPUT >> 10));
    }
    let mut exit_code = None;
    let status = match end {
        TerminalEnd::Exited(status) => {
            let signal = status.get("signal").and_then(Value::as_str);
            exit_code = status.get("exitCode").and_then(Value::as_i64).filter(|code| *code != 0);
            match (signal, exit_code) {
                (Some(signal), _) => Some(format!("Command was ended by the signal {signal}")),
                (None, Some(code)) => Some(format!("Command exited with code {code}")),
                (None, None) => None,
            }
        }
        TerminalEnd::TimedOut => {
            Some(format!("Command timed out after {} seconds", timeout.unwrap_or_default()))
        }
        TerminalEnd::Aborted => Some("Command aborted".to_owned()),
        TerminalEnd::Failed(why) => Some(format!("The client could not say how the command ended: {why}")),
    };
    if text.is_empty() && (status.is_none() || exit_code.is_some()) {
        text.push_str("(no output)");
    }
    if let Some(status) = &status {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(status);
    }
    ToolOutput {
        details: exit_code.map(|code| Json::from(&json!({ "exitCode": code }))),
        is_error: status.is_some(),
        ..ToolOutput::text(text)
    }
}

impl Tool for TerminalBash {
    fn spec(&self) -> &ToolSpec {
        self.own.spec()
    }

    fn touches(&self, args: &Value, cx: &ToolContext) -> Touches {
        self.own.touches(args, cx)
    }

    fn prepare(&self, call: &Invocation, cx: &ToolContext) -> Option<Preparation> {
        if self.for_client(call, cx).is_some() { None } else { self.own.prepare(call, cx) }
    }

    fn end_run(&self, run: &RunId) {
        self.own.end_run(run);
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        match self.for_client(&call, cx) {
            None => self.own.run(call, cx),
            Some(arguments) => Box::pin(async move {
                if cx.cancel.is_cancelled() {
                    return ToolOutput::error("Command aborted");
                }
                self.in_terminal(&call, arguments, cx).await
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_says_how_the_command_ended() {
        let check = |end: TerminalEnd, printed: &str, expect: &str, is_error: bool| {
            let output = Ok(json!({ "output": printed, "truncated": false }));
            let result = result(&end, &output, Some(3.0));
            assert_eq!((result.content[0].as_text().unwrap(), result.is_error), (expect, is_error));
        };
        let exited = |code: i64| TerminalEnd::Exited(json!({ "exitCode": code, "signal": null }));
        check(exited(0), "hello\n", "hello\n", false);
        check(exited(0), "", "(no output)", false);
        check(exited(2), "", "(no output)\n\nCommand exited with code 2", true);
        let killed = TerminalEnd::Exited(json!({ "exitCode": null, "signal": "SIGKILL" }));
        check(killed, "x", "x\n\nCommand was ended by the signal SIGKILL", true);
        check(TerminalEnd::TimedOut, "", "Command timed out after 3 seconds", true);
        check(TerminalEnd::Aborted, "", "Command aborted", true);
    }
}
