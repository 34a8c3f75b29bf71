//! Hooks that are commands in the user's settings: a command reads what happens as JSON, and answers by its exit code or
//! with JSON. The form is the one that other agents' users have in their settings already.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use quipu::{
    CallVerdict, CompactionRequest, CompactionVerdict, Hook, HookContext, HookError, HookFailure,
    InputVerdict, ResultVerdict, RunEnd, RunEndVerdict, SessionOrigin, StartVerdict,
};
use quipu_protocol::{CompactionReason, Content, Json, Outcome, ToolCall, ToolResultMessage, UserInput};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Seconds that a command may take where nothing is said.
const SECONDS: u64 = 60;
/// Bytes of each of its outputs that are read; more is an error.
const OUTPUT: u64 = 1 << 20;
/// Characters of what a command that failed said.
const ERROR: usize = 500;
/// Commands at most; those beyond are left out, which is told.
const MOST: usize = 64;

/// When a command is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Moment {
    BeforeTool,
    AfterTool,
    Prompt,
    SessionStart,
    SessionEnd,
    BeforeCompaction,
    RunEnd,
}

impl Moment {
    const ALL: [(&'static str, Self); 7] = [
        ("PreToolUse", Self::BeforeTool),
        ("PostToolUse", Self::AfterTool),
        ("UserPromptSubmit", Self::Prompt),
        ("SessionStart", Self::SessionStart),
        ("SessionEnd", Self::SessionEnd),
        ("PreCompact", Self::BeforeCompaction),
        ("Stop", Self::RunEnd),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, moment)| *moment == self).map_or("", |(name, _)| name)
    }
}

/// For which tools a command is, or for which ways in which something begins or is caused.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Matcher {
    All,
    /// Any of these, whatever the case of their letters; one that ends in `*` is the beginning of a name.
    Names(Vec<String>),
}

impl Matcher {
    fn of(text: &str) -> Self {
        let names: Vec<String> = text.split('|').map(|name| name.trim().to_lowercase()).collect();
        let is_all = |name: &String| matches!(name.as_str(), "" | "*" | ".*");
        if names.iter().any(is_all) { Self::All } else { Self::Names(names) }
    }

    fn fits(&self, tool: &str) -> bool {
        let tool = tool.to_lowercase();
        let is = |name: &String| match name.strip_suffix(".*").or_else(|| name.strip_suffix('*')) {
            Some(begin) => tool.starts_with(begin),
            None => tool == *name,
        };
        match self {
            Self::All => true,
            Self::Names(names) => names.iter().any(is),
        }
    }
}

/// A command of the settings.
struct CommandHook {
    moment: Moment,
    matcher: Matcher,
    command: String,
    deadline: Duration,
    on_failure: HookFailure,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group {
    #[serde(default)]
    matcher: String,
    hooks: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    command: String,
    timeout: Option<f64>,
    on_failure: Option<String>,
}

/// The hooks of settings, in the order of what names them. What cannot be used is left out, which the settings tell.
pub(crate) fn command_hooks(settings: &[Value]) -> Vec<Arc<dyn Hook>> {
    let hooks = settings.iter().flat_map(|events| hooks_of(Some(events)).0);
    hooks.map(|hook| Arc::new(hook) as Arc<dyn Hook>).collect()
}

/// What is wrong with the hooks of settings.
pub(crate) fn problems_of(settings: &Value) -> Vec<String> {
    hooks_of(Some(settings)).1
}

/// The hooks that settings name, and what is wrong with them.
fn hooks_of(settings: Option<&Value>) -> (Vec<CommandHook>, Vec<String>) {
    let (mut hooks, mut problems) = (Vec::new(), Vec::new());
    let events = match settings {
        None => return (hooks, problems),
        Some(Value::Object(events)) => events,
        Some(_) => return (hooks, vec!["`hooks` must be an object of events".to_owned()]),
    };
    for (event, groups) in events {
        let Some((_, moment)) = Moment::ALL.iter().find(|(name, _)| name == event) else {
            let known = Moment::ALL.map(|(name, _)| name).join(", ");
            problems.push(format!("hooks.{event} is not a known event; the events are {known}"));
            continue;
        };
        let groups: Vec<Group> = match serde_json::from_value(groups.clone()) {
            Ok(groups) => groups,
            Err(error) => {
                problems.push(format!("hooks.{event}: {error}"));
                continue;
            }
        };
        for Group { matcher, hooks: entries } in groups {
            for entry in entries {
                match hook_of(*moment, &matcher, entry) {
                    Ok(hook) if hooks.len() < MOST => hooks.push(hook),
                    Ok(_) => problems.push(format!("hooks.{event}: more than {MOST} hooks")),
                    Err(why) => problems.push(format!("hooks.{event}: {why}")),
                }
            }
        }
    }
    (hooks, problems)
}

fn hook_of(moment: Moment, matcher: &str, entry: Entry) -> Result<CommandHook, String> {
    let Entry { kind, command, timeout, on_failure } = entry;
    if kind != "command" {
        return Err(format!("a hook of type {kind:?} is not supported; only \"command\" is"));
    }
    if command.trim().is_empty() {
        return Err("a hook has no command".to_owned());
    }
    let seconds = timeout.unwrap_or(SECONDS as f64);
    let deadline = Duration::try_from_secs_f64(seconds).ok().filter(|deadline| !deadline.is_zero());
    let deadline =
        deadline.ok_or_else(|| format!("timeout {seconds} must be a number of seconds above 0"))?;
    let on_failure = match on_failure.as_deref() {
        None | Some("pass") => HookFailure::Pass,
        Some("block") => HookFailure::Block,
        Some(other) => return Err(format!("onFailure {other:?} must be \"pass\" or \"block\"")),
    };
    Ok(CommandHook { moment, matcher: Matcher::of(matcher), command, deadline, on_failure })
}

/// The exit code and the output of a hook's command.
#[derive(Debug)]
struct HookOutput {
    code: Option<i32>,
    out: String,
    err: String,
}

/// What a command may print.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Answer {
    r#continue: Option<bool>,
    stop_reason: Option<String>,
    decision: Option<String>,
    reason: Option<String>,
    hook_specific_output: SpecificOutput,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecificOutput {
    permission_decision: Option<String>,
    permission_decision_reason: Option<String>,
    updated_input: Option<serde_json::Map<String, Value>>,
    additional_context: Option<String>,
}

/// What a command says.
enum Word {
    /// It says no; why.
    Blocks(String),
    Says(Box<Answer>),
    /// It printed this, which is no JSON object.
    Text(String),
}

impl HookOutput {
    /// 0 is well, 2 says no, anything else is a failure of the command.
    fn word(self) -> Result<Word, HookError> {
        match self.code {
            Some(0) => {}
            Some(2) => return Ok(Word::Blocks(self.err.trim().to_owned())),
            code => {
                let how =
                    code.map_or_else(|| "was killed".to_owned(), |code| format!("ended with code {code}"));
                let text: String = self.err.trim().chars().take(ERROR).collect();
                return Err(HookError::new(if text.is_empty() { how } else { format!("{how}: {text}") }));
            }
        }
        match serde_json::from_str::<Value>(&self.out) {
            Ok(value @ Value::Object(_)) => match serde_json::from_value::<Answer>(value) {
                Ok(answer) => Ok(Word::Says(Box::new(answer))),
                Err(error) => {
                    Err(HookError::new(format!("its output is not the JSON of a hook answer: {error}")))
                }
            },
            _ => Ok(Word::Text(self.out)),
        }
    }
}

impl Answer {
    /// Why it says no, where it does.
    fn blocks(&self) -> Option<String> {
        let reason = |one: &Option<String>| one.clone().unwrap_or_else(|| "no reason given".to_owned());
        if self.r#continue == Some(false) {
            return Some(reason(&self.stop_reason));
        }
        (self.decision.as_deref() == Some("block")).then(|| reason(&self.reason))
    }

    fn context(self) -> Option<String> {
        self.hook_specific_output.additional_context.filter(|text| !text.trim().is_empty())
    }
}

impl CommandHook {
    /// What the command reads, whatever happens.
    fn input(&self, cx: &HookContext) -> Value {
        json!({
            "session_id": cx.session,
            "transcript_path": "",
            "cwd": cx.cwd,
            "permission_mode": "default",
            "hook_event_name": self.moment.name(),
        })
    }

    fn input_of_call(&self, call: &ToolCall, cx: &HookContext) -> Value {
        let mut input = self.input(cx);
        let mut arguments = call.arguments.value();
        // Under the name that scripts look for as well.
        if let Some(path) = arguments.get("path").and_then(Value::as_str) {
            let path = cx.cwd.join(path);
            arguments["file_path"] = path.to_string_lossy().into();
        }
        input["tool_name"] = capitalized(&call.name).into();
        input["tool_use_id"] = call.id.as_str().into();
        input["tool_input"] = arguments;
        input
    }

    async fn run(&self, input: &Value, cx: &HookContext) -> Result<Word, HookError> {
        run(&self.command, input.to_string().into_bytes(), &cx.cwd).await?.word()
    }

    async fn before_tool(&self, call: &ToolCall, cx: &HookContext) -> Result<CallVerdict, HookError> {
        let answer = match self.run(&self.input_of_call(call, cx), cx).await? {
            Word::Blocks(reason) => return Ok(CallVerdict::Block { reason }),
            Word::Text(_) => return Ok(CallVerdict::Pass),
            Word::Says(answer) => *answer,
        };
        if let Some(reason) = answer.blocks() {
            return Ok(CallVerdict::Block { reason });
        }
        let SpecificOutput { permission_decision, permission_decision_reason, updated_input, .. } =
            answer.hook_specific_output;
        let why = permission_decision_reason.unwrap_or_else(|| "no reason given".to_owned());
        match permission_decision.as_deref() {
            // It opens nothing that the permissions close.
            None | Some("allow") => {}
            Some("deny") => return Ok(CallVerdict::Block { reason: why }),
            Some("ask") => return Ok(CallVerdict::Ask { question: why }),
            Some(other) => return Err(HookError::new(format!("unknown permissionDecision {other:?}"))),
        }
        Ok(updated_input.map_or(CallVerdict::Pass, |mut input| {
            if let Some(path) = input.remove("file_path") {
                input.insert("path".to_owned(), path);
            }
            CallVerdict::Replace(Json::from(Value::Object(input)))
        }))
    }

    async fn after_tool(
        &self,
        call: &ToolCall,
        result: &ToolResultMessage,
        cx: &HookContext,
    ) -> Result<ResultVerdict, HookError> {
        let mut input = self.input_of_call(call, cx);
        let texts: Vec<&str> = result.content.iter().filter_map(Content::as_text).collect();
        input["tool_response"] = json!({ "content": texts.join("\n"), "is_error": result.is_error });
        Ok(match self.run(&input, cx).await? {
            Word::Blocks(reason) => ResultVerdict::Append(reason),
            Word::Text(_) => ResultVerdict::Pass,
            Word::Says(answer) => match answer.blocks().or_else(|| answer.context()) {
                Some(text) => ResultVerdict::Append(text),
                None => ResultVerdict::Pass,
            },
        })
    }

    async fn session_start(
        &self,
        origin: SessionOrigin,
        cx: &HookContext,
    ) -> Result<StartVerdict, HookError> {
        let mut input = self.input(cx);
        input["source"] = source(origin).into();
        Ok(match self.run(&input, cx).await? {
            Word::Blocks(reason) => return Err(HookError::new(reason)),
            Word::Text(text) if text.trim().is_empty() => StartVerdict::Pass,
            Word::Text(text) => StartVerdict::Beside(text.trim_end().to_owned()),
            Word::Says(answer) => answer.context().map_or(StartVerdict::Pass, StartVerdict::Beside),
        })
    }

    async fn session_end(&self, cx: &HookContext) -> Result<(), HookError> {
        let mut input = self.input(cx);
        input["reason"] = OTHER.into();
        match self.run(&input, cx).await? {
            Word::Blocks(reason) => Err(HookError::new(reason)),
            Word::Text(_) | Word::Says(_) => Ok(()),
        }
    }

    async fn before_compaction(
        &self,
        request: &CompactionRequest,
        cx: &HookContext,
    ) -> Result<CompactionVerdict, HookError> {
        let mut input = self.input(cx);
        input["trigger"] = trigger(request.reason).into();
        input["custom_instructions"] = request.focus.as_deref().unwrap_or_default().into();
        Ok(match self.run(&input, cx).await? {
            Word::Blocks(reason) => CompactionVerdict::Block { reason },
            Word::Text(_) => CompactionVerdict::Pass,
            Word::Says(answer) => match answer.blocks() {
                Some(reason) => CompactionVerdict::Block { reason },
                None => CompactionVerdict::Pass,
            },
        })
    }

    async fn run_end(&self, end: &RunEnd, cx: &HookContext) -> Result<RunEndVerdict, HookError> {
        let mut input = self.input(cx);
        input["stop_hook_active"] = (end.again > 0).into();
        input["last_assistant_message"] = end.answer.as_str().into();
        Ok(match self.run(&input, cx).await? {
            Word::Blocks(prompt) => RunEndVerdict::Continue { prompt },
            Word::Text(_) => RunEndVerdict::Pass,
            // Here `continue: false` lets it end, whatever else is said.
            Word::Says(answer) if answer.r#continue == Some(false) => RunEndVerdict::Pass,
            Word::Says(answer) => match answer.blocks() {
                Some(prompt) => RunEndVerdict::Continue { prompt },
                None => RunEndVerdict::Pass,
            },
        })
    }

    async fn prompt(&self, message: &UserInput, cx: &HookContext) -> Result<InputVerdict, HookError> {
        let mut input = self.input(cx);
        input["prompt"] = message.text().into();
        Ok(match self.run(&input, cx).await? {
            Word::Blocks(reason) => InputVerdict::Block { reason },
            Word::Text(text) if text.trim().is_empty() => InputVerdict::Pass,
            Word::Text(text) => InputVerdict::Beside(text.trim_end().to_owned()),
            Word::Says(answer) => match answer.blocks() {
                Some(reason) => InputVerdict::Block { reason },
                None => answer.context().map_or(InputVerdict::Pass, InputVerdict::Beside),
            },
        })
    }
}

impl Hook for CommandHook {
    fn name(&self) -> &str {
        &self.command
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn on_failure(&self) -> HookFailure {
        self.on_failure
    }

    fn input<'a>(
        &'a self,
        input: &'a UserInput,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<InputVerdict, HookError>> {
        match self.moment {
            Moment::Prompt => Box::pin(self.prompt(input, cx)),
            _ => Box::pin(std::future::ready(Ok(InputVerdict::Pass))),
        }
    }

    fn session_start<'a>(
        &'a self,
        origin: SessionOrigin,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<StartVerdict, HookError>> {
        match self.moment {
            Moment::SessionStart if self.matcher.fits(source(origin)) => {
                Box::pin(self.session_start(origin, cx))
            }
            _ => Box::pin(std::future::ready(Ok(StartVerdict::Pass))),
        }
    }

    fn session_end<'a>(&'a self, cx: &'a HookContext) -> BoxFuture<'a, Result<(), HookError>> {
        match self.moment {
            Moment::SessionEnd if self.matcher.fits(OTHER) => Box::pin(self.session_end(cx)),
            _ => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn before_compaction<'a>(
        &'a self,
        request: &'a CompactionRequest,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CompactionVerdict, HookError>> {
        match self.moment {
            Moment::BeforeCompaction if self.matcher.fits(trigger(request.reason)) => {
                Box::pin(self.before_compaction(request, cx))
            }
            _ => Box::pin(std::future::ready(Ok(CompactionVerdict::Pass))),
        }
    }

    fn run_end<'a>(
        &'a self,
        end: &'a RunEnd,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<RunEndVerdict, HookError>> {
        match self.moment {
            // Who stopped a run wants nothing more of it.
            Moment::RunEnd if end.outcome == Outcome::Done => Box::pin(self.run_end(end, cx)),
            _ => Box::pin(std::future::ready(Ok(RunEndVerdict::Pass))),
        }
    }

    fn tool_call<'a>(
        &'a self,
        call: &'a ToolCall,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        match self.moment {
            Moment::BeforeTool if self.matcher.fits(&call.name) => Box::pin(self.before_tool(call, cx)),
            _ => Box::pin(std::future::ready(Ok(CallVerdict::Pass))),
        }
    }

    fn tool_result<'a>(
        &'a self,
        call: &'a ToolCall,
        result: &'a ToolResultMessage,
        cx: &'a HookContext,
    ) -> BoxFuture<'a, Result<ResultVerdict, HookError>> {
        match self.moment {
            Moment::AfterTool if self.matcher.fits(&call.name) => Box::pin(self.after_tool(call, result, cx)),
            _ => Box::pin(std::future::ready(Ok(ResultVerdict::Pass))),
        }
    }
}

/// Why a session ends, as scripts know it.
const OTHER: &str = "other";

/// How a session begins, as scripts know it.
fn source(origin: SessionOrigin) -> &'static str {
    match origin {
        SessionOrigin::New => "startup",
        SessionOrigin::Resumed | SessionOrigin::Forked => "resume",
    }
}

/// Why a context is compacted, as scripts know it.
fn trigger(reason: CompactionReason) -> &'static str {
    match reason {
        CompactionReason::Manual => "manual",
        CompactionReason::Threshold | CompactionReason::Overflow => "auto",
    }
}

/// A tool's name as scripts know it.
fn capitalized(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Runs a command in a process group of its own, which ends with the future.
async fn run(command: &str, input: Vec<u8>, cwd: &Path) -> Result<HookOutput, HookError> {
    let mut child = tokio::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(command)
        .current_dir(cwd)
        .env("QUIPU_PROJECT_DIR", cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| HookError::new(format!("could not start: {error}")))?;
    let _group = child.id().and_then(|id| i32::try_from(id).ok()).map(ProcessGroup::of);
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let give = async {
        if let Some(mut stdin) = stdin {
            // One that does not read has its answer all the same.
            drop(stdin.write_all(&input).await);
        }
    };
    let ((), out, err) = tokio::join!(give, read(stdout), read(stderr));
    let status = child
        .wait()
        .await
        .map_err(|error| HookError::new(format!("its exit status could not be read: {error}")))?;
    Ok(HookOutput { code: status.code(), out: out?, err: err? })
}

/// Kills what a command left.
struct ProcessGroup(i32);

impl ProcessGroup {
    fn of(id: i32) -> Self {
        Self(id)
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        use nix::sys::signal::{Signal, killpg};
        // It is gone where nothing is left.
        killpg(nix::unistd::Pid::from_raw(self.0), Signal::SIGKILL).ok();
    }
}

async fn read(from: Option<impl tokio::io::AsyncRead + Unpin>) -> Result<String, HookError> {
    let Some(from) = from else { return Ok(String::new()) };
    let mut bytes = Vec::new();
    let mut from = from.take(OUTPUT + 1);
    from.read_to_end(&mut bytes)
        .await
        .map_err(|error| HookError::new(format!("its output could not be read: {error}")))?;
    if bytes.len() as u64 > OUTPUT {
        return Err(HookError::new(format!("it printed more than {OUTPUT} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
