//! The loop that reads commands, and who carries each of them out.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use quipu_host::{Failure, Home, OpenRequest};
use quipu_protocol::Command;
use quipu_rpc::{BadAnswer, BadCommand, CommandLabel, RpcCommand, RpcLine, StreamingBehavior, read_line};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::output::Output;
use super::settings::LiveSettings;
use super::state::{CommandOutcome, FrontState, ResponseHold};
use crate::lines::{LINE_LIMIT, Line, Lines};
use crate::wording::Wording;

/// Commands that are under way at most.
const UNDER_WAY: usize = 2_048;
/// How many more are read to be refused, while nobody reads what they are answered.
const REFUSED: usize = 64;
/// Bytes of their lines at most.
const UNDER_WAY_BYTES: usize = 64 << 20;
/// How long what was asked for may take when no more commands come.
const LAST_COMMANDS: Duration = Duration::from_secs(10);
/// How long the rest of the output may take then.
const LAST_LINES: Duration = Duration::from_secs(5);

/// How the connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RpcEnd {
    /// No more commands come.
    Left,
    /// It was stopped.
    Stopped,
    /// Nobody reads what is written.
    Unread,
}

/// One session for one program: commands come in, responses and events go out.
pub struct RpcFront {
    state: Arc<FrontState>,
    writer: AbortOnDropHandle<()>,
}

/// A command that is being carried out.
type PendingCommand = Pin<Box<dyn Future<Output = PendingSize>>>;

/// What a command that is over took of the limits.
struct PendingSize {
    bytes: usize,
    is_long: bool,
}

impl RpcFront {
    /// A front that opens sessions as `request` says, words failures in its way, and writes to `write`. Its first session is
    /// open. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// Why the first session cannot be opened.
    pub async fn open(
        home: Home,
        request: OpenRequest,
        wording: Wording,
        write: impl AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, Failure> {
        let (output, writer) = Output::start(write);
        let state = Arc::new(FrontState {
            settings: Mutex::new(LiveSettings::of(&home, &request)),
            home,
            request,
            wording,
            output,
            current: Mutex::default(),
            replacing: RwLock::default(),
            reading: Arc::default(),
        });
        state.open_first().await?;
        Ok(Self { state, writer })
    }

    /// Carries out what is read until no more comes, nobody reads the answers, or it is stopped. Then the session is closed, and
    /// what runs in it is recorded as aborted.
    pub async fn serve(self, read: impl AsyncRead + Unpin, stop: CancellationToken) -> RpcEnd {
        let Self { state, mut writer } = self;
        let end = state.clone().read_commands(Lines::new(read), &stop).await;
        state.close(end == RpcEnd::Left).await;
        drop(state);
        if end != RpcEnd::Unread {
            drop(tokio::time::timeout(LAST_LINES, &mut writer).await);
        }
        end
    }
}

impl FrontState {
    async fn read_commands<R: AsyncRead + Unpin>(
        self: Arc<Self>,
        mut lines: Lines<R>,
        stop: &CancellationToken,
    ) -> RpcEnd {
        let mut under_way: FuturesUnordered<PendingCommand> = FuturesUnordered::new();
        let (mut bytes, mut long) = (0, 0);
        let mut ended = false;
        let overdue = tokio::time::sleep(LAST_COMMANDS);
        tokio::pin!(overdue);
        loop {
            // What ends only when it is stopped is stopped with the session.
            if ended && under_way.len() <= long {
                break;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return RpcEnd::Stopped,
                () = self.output.gone().cancelled() => return RpcEnd::Unread,
                Some(size) = under_way.next(), if !under_way.is_empty() => {
                    bytes -= size.bytes;
                    long -= usize::from(size.is_long);
                }
                () = &mut overdue, if ended => break,
                line = lines.next(), if !ended && under_way.len() < UNDER_WAY + REFUSED => {
                    let Ok(Some(line)) = line else {
                        ended = true;
                        overdue.as_mut().reset(tokio::time::Instant::now() + LAST_COMMANDS);
                        continue;
                    };
                    let size = match &line {
                        Line::Whole(line) => line.len(),
                        Line::TooLong => 0,
                    };
                    let is_full = under_way.len() >= UNDER_WAY || bytes + size > UNDER_WAY_BYTES;
                    let (mut pending, is_long) = self.clone().begin(line, size, is_full);
                    // At once, so that commands begin in the order in which they came.
                    if futures_util::poll!(pending.as_mut()).is_pending() {
                        (bytes, long) = (bytes + size, long + usize::from(is_long));
                        under_way.push(pending);
                    }
                }
            }
        }
        // They end with what they wait for.
        let rest = async { while under_way.next().await.is_some() {} };
        let close = self.close_running();
        tokio::select! {
            biased;
            () = stop.cancelled() => return RpcEnd::Stopped,
            () = self.output.gone().cancelled() => return RpcEnd::Unread,
            _ = tokio::time::timeout(LAST_COMMANDS, async { tokio::join!(rest, close) }) => {}
        }
        RpcEnd::Left
    }

    /// What a line asks for, and whether it may take as long as something else runs.
    fn begin(self: Arc<Self>, line: Line, bytes: usize, is_full: bool) -> (PendingCommand, bool) {
        let size = move |is_long| PendingSize { bytes, is_long };
        let say = |front: Arc<Self>, line: String| {
            let pending: PendingCommand = Box::pin(async move {
                front.output.send(line).await;
                size(false)
            });
            (pending, false)
        };
        let Line::Whole(line) = line else {
            let error = format!(
                "Failed to parse command: the line is longer than {} MiB and was skipped",
                LINE_LIMIT >> 20
            );
            return say(self, BadCommand { label: CommandLabel::unread(), error }.line());
        };
        match read_line(&line) {
            Err(bad) => say(self, bad.line()),
            Ok(RpcLine::BadAnswer(bad)) => say(self, bad.line()),
            Ok(RpcLine::Answer(given)) => {
                let pending: PendingCommand = Box::pin(async move {
                    if let Err(bad) = self.take_answer(&given).await {
                        self.output.send(bad.line()).await;
                    }
                    size(false)
                });
                (pending, false)
            }
            Ok(RpcLine::Command(label, _)) if is_full => {
                let error = format!(
                    "{UNDER_WAY} commands, or {} MiB of them, are already in progress; wait for their responses",
                    UNDER_WAY_BYTES >> 20
                );
                say(self, label.failure(&error))
            }
            Ok(RpcLine::Command(label, command)) => {
                let is_long = matches!(
                    command,
                    RpcCommand::Compact { .. } | RpcCommand::Bash { .. } | RpcCommand::Abort
                );
                let pending: PendingCommand = Box::pin(async move {
                    let mut hold = None;
                    let outcome = self.carry_out(&label, command, &mut hold).await;
                    let line = match outcome {
                        Ok(data) => label.success(data.as_deref()),
                        Err(refusal) => label.failure(&refusal.0),
                    };
                    self.output.send(line).await;
                    drop(hold);
                    size(is_long)
                });
                (pending, is_long)
            }
        }
    }

    /// An answer to a question. One to a question that is not open is nobody's.
    async fn take_answer(&self, given: &quipu_rpc::AskAnswer) -> Result<(), BadAnswer> {
        let Ok(active) = self.active().await else { return Ok(()) };
        let Some(ask) = active.shown.ask(&given.id) else { return Ok(()) };
        let answer = given.for_ask(&ask)?;
        // The first answer counts; a later one has nothing to answer.
        drop(active.session.send(Command::Answer { ask: ask.id.clone(), answer }).await);
        Ok(())
    }

    async fn carry_out(
        &self,
        label: &CommandLabel,
        command: RpcCommand,
        hold: &mut Option<ResponseHold>,
    ) -> CommandOutcome {
        let active = match &command {
            RpcCommand::NewSession { .. }
            | RpcCommand::SwitchSession { .. }
            | RpcCommand::Fork { .. }
            | RpcCommand::Clone => return self.replace(command).await,
            _ => self.active().await?,
        };
        if let RpcCommand::GetMessages
        | RpcCommand::GetSessionStats
        | RpcCommand::GetForkMessages
        | RpcCommand::GetEntries { .. }
        | RpcCommand::GetTree = &command
        {
            *hold = Some(ResponseHold::Reading { _guard: self.reading.clone().lock_owned().await });
        }
        match command {
            RpcCommand::Prompt { message, images, streaming_behavior } => {
                self.prompt(&active, message, images, streaming_behavior, hold).await
            }
            RpcCommand::Steer { message, images } => {
                self.queue(&active, message, images, StreamingBehavior::Steer).await
            }
            RpcCommand::FollowUp { message, images } => {
                self.queue(&active, message, images, StreamingBehavior::FollowUp).await
            }
            RpcCommand::Abort => {
                self.abort(&active).await;
                Ok(None)
            }
            RpcCommand::ClearQueue => self.clear_queue(&active).await,
            RpcCommand::GetState => self.state(&active).await,
            RpcCommand::GetMessages => self.messages(&active).await,
            RpcCommand::SetModel { provider, model_id } => {
                self.set_model(&active, &provider, &model_id).await
            }
            RpcCommand::CycleModel => self.cycle_model(&active).await,
            RpcCommand::GetAvailableModels => self.available_models().await,
            RpcCommand::SetThinkingLevel { level } => self.set_thinking(&active, &level).await,
            RpcCommand::CycleThinkingLevel => self.cycle_thinking(&active).await,
            RpcCommand::GetAvailableThinkingLevels => self.thinking_levels(&active).await,
            RpcCommand::SetSteeringMode { mode } => {
                self.change_settings(
                    &active,
                    |settings| settings.steering = mode,
                    "steeringMode",
                    mode.word(),
                )
                .await
            }
            RpcCommand::SetFollowUpMode { mode } => {
                self.change_settings(
                    &active,
                    |settings| settings.follow_up = mode,
                    "followUpMode",
                    mode.word(),
                )
                .await
            }
            RpcCommand::Compact { custom_instructions } => self.compact(&active, custom_instructions).await,
            RpcCommand::SetAutoCompaction { enabled } => {
                let word = if enabled { "true" } else { "false" };
                self.change_settings(
                    &active,
                    |settings| settings.auto_compaction = enabled,
                    "compaction.enabled",
                    word,
                )
                .await
            }
            RpcCommand::SetAutoRetry { enabled } => {
                let word = if enabled { "true" } else { "false" };
                self.change_settings(&active, |settings| settings.auto_retry = enabled, "retry.enabled", word)
                    .await
            }
            RpcCommand::AbortRetry => self.abort_retry(&active).await,
            RpcCommand::Bash { command, exclude_from_context } => {
                self.shell(&active, label, command, exclude_from_context.unwrap_or_default()).await
            }
            RpcCommand::AbortBash => self.abort_shells(&active).await,
            RpcCommand::GetSessionStats => self.stats(&active).await,
            RpcCommand::ExportHtml { output_path } => self.export_page(&active, output_path).await,
            RpcCommand::GetForkMessages => self.fork_messages(&active).await,
            RpcCommand::GetEntries { since } => self.entries(&active, since.as_deref()).await,
            RpcCommand::GetTree => self.tree(&active).await,
            RpcCommand::GetLastAssistantText => self.last_answer(&active).await,
            RpcCommand::SetSessionName { name } => self.rename(&active, &name).await,
            RpcCommand::GetCommands => self.commands(&active),
            RpcCommand::NewSession { .. }
            | RpcCommand::SwitchSession { .. }
            | RpcCommand::Fork { .. }
            | RpcCommand::Clone => Ok(None),
        }
    }
}
