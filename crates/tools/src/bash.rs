//! The tool that runs commands.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use quipu_protocol::{BackgroundId, Json, RunId, ToolSpec};
use quipu_workspace::{
    CommandNeeds, OutputBuffer, OutputLimits, ProcessRegistry, ShellCommand, ShellEnd, ShellError,
    SpillState, run_shell,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::background::{
    AwaitedCommand, BackgroundCommands, BackgroundError, BackgroundLaunch, HandedOver, InputMode, Patience,
};
use crate::background_tool::missing;
use crate::closed::closed;
use crate::ready::{ReadyShells, settle};
use crate::truncate::{MAX_BYTES, MAX_LINES, Truncation, TruncationLimit, format_size};
use crate::{Invocation, Preparation, Tool, ToolContext, ToolOutput, Touches, arguments, spec};

/// Bytes of one command's output that are kept in a file at most.
const SPILL_LIMIT: u64 = 1 << 30;
/// Seconds; the longest that a 32-bit count of milliseconds can say.
const MAX_TIMEOUT: f64 = 2_147_483.647;
/// Seconds that a call waits before its command goes on in the background, at most.
const MAX_YIELD: f64 = 3600.0;

/// `bash {command, timeout?, run_in_background?, yield?, input?, network?, protected?, reason?}`: runs a command line. What it
/// starts in the background lives until the registry ends it.
#[derive(Debug)]
pub struct Bash {
    spec: ToolSpec,
    registry: Arc<ProcessRegistry>,
    ready: ReadyShells,
}

#[derive(Deserialize)]
struct Arguments {
    command: String,
    timeout: Option<f64>,
    /// What the policy allowed: see [`Bash::isolated`].
    #[serde(default)]
    network: bool,
    #[serde(default)]
    protected: bool,
    #[serde(default)]
    run_in_background: bool,
    /// Seconds after which a command that still runs goes on in the background.
    #[serde(rename = "yield")]
    yield_after: Option<f64>,
    /// A background command whose standard input `background` writes to.
    #[serde(default)]
    input: bool,
}

impl Arguments {
    fn needs(&self) -> CommandNeeds {
        CommandNeeds { network: self.network, protected: self.protected }
    }

    /// How long the call waits where its command may go on in the background.
    fn patience(&self) -> Result<Option<Duration>, String> {
        match self.yield_after {
            None => Ok(None),
            Some(seconds) if seconds > 0.0 && seconds <= MAX_YIELD => {
                Ok(Some(Duration::from_secs_f64(seconds)))
            }
            Some(_) => Err(format!(
                "Invalid yield: must be a number of seconds above 0 and at most {MAX_YIELD}. Nothing was run."
            )),
        }
    }
}

/// What fronts learn beyond the text.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    #[serde(skip_serializing_if = "Option::is_none")]
    truncation: Option<Truncation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_output_path: Option<String>,
    /// Only of commands that failed by themselves; 128 and the signal for one that was killed by another.
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    /// Whether it was ended because its time was over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    timed_out: bool,
}

impl Bash {
    /// The tool. `registry` owns what its commands leave running.
    pub fn new(registry: Arc<ProcessRegistry>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string" },
                "timeout": { "type": "number", "description": "Seconds" },
            },
            "required": ["command"],
        });
        let description = "Run a command with bash in the working directory, without input. Returns stdout and \
             stderr together: the last 2000 lines or 50KB, the whole in a file. Background processes end with the \
             session.";
        Self { spec: spec("bash", description, &parameters), registry, ready: ReadyShells::default() }
    }

    /// The same with the parameters `run_in_background` and `yield`.
    #[must_use]
    pub fn with_background(mut self) -> Self {
        let mut parameters = self.spec.parameters.value();
        if let Some(properties) = parameters.get_mut("properties").and_then(|one| one.as_object_mut()) {
            properties.insert("run_in_background".into(), json!({ "type": "boolean" }));
            let description = "Seconds; then in the background";
            properties.insert("yield".into(), json!({ "type": "number", "description": description }));
        }
        self.spec.parameters = Json::from(&parameters);
        self
    }

    /// The tool, telling the model that commands are confined; [`ToolContext::sandbox`] is what confines them.
    pub fn confined(registry: Arc<ProcessRegistry>) -> Self {
        let mut tool = Self::new(registry);
        tool.spec.description.push_str(
            " Commands can write only in the working directory, in $TMPDIR and in the usual caches, and cannot \
             gain rights.",
        );
        tool
    }

    /// The tool, telling the model that commands run in a container, where the workspace has another path.
    pub fn contained(registry: Arc<ProcessRegistry>) -> Self {
        let mut tool = Self::new(registry);
        tool.spec.description.push_str(
            " Commands run in a container without a network: `pwd` shows where the working directory is there, and file tools \
             take such paths too. Writes only there, in /tmp and in $HOME, which do not last.",
        );
        tool
    }

    /// The tool, telling the model that commands run in namespaces of their own, and how to ask for more. Whether a call that
    /// asks may run is for the policy to say.
    pub fn isolated(registry: Arc<ProcessRegistry>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "command": { "type": "string" },
                "timeout": { "type": "number", "description": "Seconds" },
                "network": { "type": "boolean", "description": "Asks the user" },
                "protected": {
                    "type": "boolean",
                    "description": "Change git, agent, editor, shell config; asks the user"
                },
                "reason": { "type": "string" },
            },
            "required": ["command"],
        });
        let description = "Run a bash command in the working directory, without input. Returns stdout and stderr: \
             the last 2000 lines or 50KB, all in a file. Processes end with the session. \
             Writes only here, in $TMPDIR and usual caches; no network but localhost \
             servers. /tmp is private, for other tools $TMPDIR/tmp.";
        Self { spec: spec("bash", description, &parameters), ..Self::new(registry) }
    }
}

impl Tool for Bash {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn touches(&self, _args: &serde_json::Value, _cx: &ToolContext) -> Touches {
        Touches::Anything
    }

    fn prepare(&self, call: &Invocation, cx: &ToolContext) -> Option<Preparation> {
        let arguments: Arguments = arguments(&call.args).ok()?;
        // Those start with the background commands: the shell has to be in their list.
        if arguments.run_in_background || (arguments.yield_after.is_some() && cx.background.is_some()) {
            return None;
        }
        let needs = arguments.needs();
        Some(self.ready.plan(&call.id, arguments.command, needs, cx, &self.registry))
    }

    fn end_run(&self, run: &RunId) {
        self.registry.kill_owned(run.as_str());
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        cx: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(self.bash(call, cx))
    }
}

impl Bash {
    async fn bash(&self, call: Invocation, cx: &ToolContext) -> ToolOutput {
        let arguments: Arguments = match arguments(&call.args) {
            Ok(arguments) => arguments,
            Err(error) => return ToolOutput::error(error),
        };
        let (needs, patience) = (arguments.needs(), arguments.patience());
        let Arguments { command, timeout, run_in_background, input, .. } = arguments;
        // Taken first: a call that does not come to run ends it.
        let ready = match self.ready.take(&call.id, &command, needs, cx).await {
            Ok(ready) => ready,
            Err(error) => return ToolOutput::error(error.to_string()),
        };
        let wait = match timeout {
            None => None,
            Some(seconds) if !seconds.is_finite() || seconds < 0.0 => {
                return ToolOutput::error("Invalid timeout: must be a finite number of seconds");
            }
            Some(seconds) if seconds > MAX_TIMEOUT => {
                return ToolOutput::error("Invalid timeout: maximum is 2147483.647 seconds");
            }
            Some(seconds) => (seconds > 0.0).then(|| Duration::from_secs_f64(seconds)),
        };
        let patience = match patience {
            Ok(patience) => patience,
            Err(error) => return ToolOutput::error(error),
        };
        if cx.cancel.is_cancelled() {
            return ToolOutput::error("Command aborted");
        }
        if run_in_background {
            let input = if input { InputMode::Open } else { InputMode::None };
            return self.start_in_background(command, wait, needs, input, cx).await;
        }
        if input {
            return ToolOutput::error("`input` needs `run_in_background`. Nothing was run.");
        }
        if let (Some(longest), Some(commands)) = (patience, &cx.background) {
            let launch = self.launch(command, wait, needs, cx);
            return start_awaited(commands, launch, longest, timeout, cx).await;
        }
        if ready.is_none()
            && let Err(error) = settled(cx).await
        {
            return error;
        }
        let limits = OutputLimits { lines: MAX_LINES as u64, bytes: MAX_BYTES, spill_bytes: SPILL_LIMIT };
        let mut output = OutputBuffer::new(limits, &cx.outputs);
        let progress = |output: &OutputBuffer| (cx.progress)(&Truncation::tail(output).content);
        let end = match ready {
            Some(shell) => shell.run(wait, cx.sandbox.as_deref(), &cx.cancel, &mut output, &progress).await,
            None => {
                let shell = ShellCommand {
                    owner: cx.run.as_str(),
                    command: &command,
                    cwd: &cx.cwd,
                    env: &cx.env,
                    timeout: wait,
                    sandbox: cx.sandbox.as_deref(),
                    needs,
                };
                run_shell(shell, &self.registry, &cx.cancel, &mut output, &progress).await
            }
        };
        finished(&output, end, timeout, needs, cx)
    }
}

impl Bash {
    async fn start_in_background(
        &self,
        command: String,
        timeout: Option<Duration>,
        needs: CommandNeeds,
        input: InputMode,
        cx: &ToolContext,
    ) -> ToolOutput {
        let Some(commands) = &cx.background else {
            return ToolOutput::error(BackgroundError::Off.to_string());
        };
        let launch = BackgroundLaunch { input, ..self.launch(command.clone(), timeout, needs, cx) };
        if let Err(error) = settled(cx).await {
            return error;
        }
        match commands.start(launch).await {
            Ok(id) => ToolOutput {
                details: Some(started(&id, &command)),
                ..ToolOutput::text(format!(
                    "Started background command {id}. You get a message when it ends. `background` reads its output."
                ))
            },
            Err(error) => ToolOutput::error(error.to_string()),
        }
    }

    fn launch<'a>(
        &'a self,
        command: String,
        timeout: Option<Duration>,
        needs: CommandNeeds,
        cx: &'a ToolContext,
    ) -> BackgroundLaunch<'a> {
        BackgroundLaunch {
            run: cx.run.as_str(),
            command,
            cwd: cx.cwd.clone(),
            env: cx.env.clone(),
            timeout,
            input: InputMode::None,
            sandbox: cx.sandbox.clone(),
            needs,
            outputs: &cx.outputs,
            registry: &self.registry,
        }
    }
}

/// Has what a command runs in be there.
async fn settled(cx: &ToolContext) -> Result<(), ToolOutput> {
    if let Err(error) = settle(cx.sandbox.as_ref(), &cx.cancel).await {
        return Err(ToolOutput::error(error.to_string()));
    }
    if cx.cancel.is_cancelled() { Err(ToolOutput::error("Command aborted")) } else { Ok(()) }
}

/// Runs a command in the foreground for so long, then in the background.
async fn start_awaited(
    commands: &BackgroundCommands,
    launch: BackgroundLaunch<'_>,
    longest: Duration,
    timeout: Option<f64>,
    cx: &ToolContext,
) -> ToolOutput {
    if let Err(error) = settled(cx).await {
        return error;
    }
    let (command, needs) = (launch.command.clone(), launch.needs);
    let patience = Patience { longest, live: cx.progress.clone(), cancel: &cx.cancel };
    match commands.start_awaited(launch, patience).await {
        Ok(AwaitedCommand::Ended(output, end)) => finished(&output, end, timeout, needs, cx),
        Ok(AwaitedCommand::Yielded(HandedOver { id, output })) => {
            let seconds = longest.as_secs_f64();
            let mut text =
                if output.text.is_empty() { "(no output yet)\n".to_owned() } else { output.text.clone() };
            if !text.ends_with('\n') {
                text.push('\n');
            }
            text.push_str(&format!(
                "\n[Still running after {seconds}s. It goes on as background command {id}. You get a message when it \
                 ends. `background` reads its output.{}]",
                missing(&output)
            ));
            ToolOutput { details: Some(started(&id, &command)), ..ToolOutput::text(text) }
        }
        Err(error) => ToolOutput::error(error.to_string()),
    }
}

/// What the result of a call says of the background command that it began.
fn started(id: &BackgroundId, command: &str) -> Json {
    Json::from(json!({ "background": { "started": id, "command": command } }))
}

/// The result of a command that has ended.
fn finished(
    output: &OutputBuffer,
    end: Result<ShellEnd, ShellError>,
    timeout: Option<f64>,
    needs: CommandNeeds,
    cx: &ToolContext,
) -> ToolOutput {
    let timed_out = matches!(end, Ok(ShellEnd::TimedOut));
    let (status, exit_code) = match end {
        Ok(ShellEnd::Exited(0)) => (None, None),
        Ok(ShellEnd::Exited(code)) => (Some(format!("Command exited with code {code}")), Some(code)),
        Ok(ShellEnd::Signalled(signal)) => {
            (Some(format!("Command exited with code {}", 128 + signal)), Some(128 + signal))
        }
        Ok(ShellEnd::TimedOut) => {
            (Some(format!("Command timed out after {} seconds", timeout.unwrap_or_default())), None)
        }
        Ok(ShellEnd::Cancelled) => (Some("Command aborted".into()), None),
        Err(error) => (Some(error.to_string()), None),
    };
    let ran_to_its_end = status.is_none() || exit_code.is_some();
    let mut text = text_of(output);
    if text.is_empty() && ran_to_its_end {
        text.push_str("(no output)");
    }
    if let Some(status) = &status {
        if !text.is_empty() {
            text.push_str("\n\n");
        }
        text.push_str(status);
    }
    let sandbox = cx.sandbox.as_deref().filter(|_| ran_to_its_end || timed_out);
    if let Some(closed) = sandbox.and_then(|sandbox| closed(&text, status.is_some(), needs, sandbox)) {
        text.push_str("\n\n");
        text.push_str(&closed);
    }
    let truncation = Some(Truncation::tail(output)).filter(|cut| cut.truncated);
    let full_output_path = match output.spill() {
        SpillState::Complete(path) | SpillState::Limited(path) => Some(path.display().to_string()),
        SpillState::NotNeeded | SpillState::Failed(_) => None,
    };
    let details = Details { truncation, full_output_path, exit_code, timed_out };
    let worth_telling = details.truncation.is_some() || details.exit_code.is_some() || timed_out;
    ToolOutput {
        details: if worth_telling { Json::of(&details).ok() } else { None },
        is_error: status.is_some(),
        ..ToolOutput::text(text)
    }
}

/// The output as the model gets it, with a note on what is missing.
fn text_of(output: &OutputBuffer) -> String {
    let cut = Truncation::tail(output);
    let Some(by) = cut.truncated_by else { return cut.content };
    let last = cut.total_lines;
    let first = last - cut.output_lines + 1;
    let shown = if cut.last_line_partial {
        let (size, whole) = (format_size(cut.output_bytes), format_size(output.last_line_bytes()));
        format!("Showing last {size} of line {last} (line is {whole})")
    } else {
        let limit = match by {
            TruncationLimit::Lines => String::new(),
            TruncationLimit::Bytes => format!(" ({} limit)", format_size(MAX_BYTES as u64)),
        };
        format!("Showing lines {first}-{last} of {last}{limit}")
    };
    let whole = match output.spill() {
        SpillState::Complete(path) => format!("Full output: {}", path.display()),
        SpillState::Limited(path) => {
            format!(
                "Full output: {} (only its first {})",
                path.display(),
                format_size(output.limits().spill_bytes)
            )
        }
        SpillState::Failed(reason) => format!("The full output was not kept: {reason}"),
        SpillState::NotNeeded => "The full output was not kept".into(),
    };
    format!("{}\n\n[{shown}. {whole}]", cut.content)
}
