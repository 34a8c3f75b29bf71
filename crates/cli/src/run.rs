//! Running tasks: events to stdout and stderr, signals to the session, the outcome to an exit code.

use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use quipu::{Delivery, OpenedSession, Refusal, Session};
use quipu_protocol::{
    Answer, AskId, CompactionReason, CompactionResult, Delta, Ending, Envelope, Event, Limit, Message,
    ModelErrorKind, Notice, Outcome, Provenance, Scope, StopReason, Thinking, Ui, UserInput,
};
use quipu_replay::{Places, Replay};
use quipu_rpc::{JsonEvents, SessionHeader};
use quipu_store::Graph;

use crate::args::{Mode, Task};
use crate::ask::{Asker, LineAsker};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::input::TaskMessage;
use crate::output_schema::{AnswerVerdict, StructuredOutput};
use crate::print::{Paint, Progress, dollars, iso, note, note_in, one_line, printable, took};
use crate::signals::Signals;
use crate::spoken_text::SpokenText;
use quipu_host::Budget;
use quipu_host::{StartedSession, current_dir, now};

/// Between two looks of a person at how far an answer is.
const SHOW: Duration = Duration::from_millis(100);

/// Brings the session's file up to date. What it lacks is a failure, unless there was another one.
async fn finish(file: &quipu_host::Mirror, result: Result<(), Failure>) -> Result<(), Failure> {
    match (result, file.finish().await.map_err(Failure::from)) {
        (Ok(()), lacks) => lacks,
        (result, Ok(())) => result,
        (Err(failure), Err(lacks)) => {
            note(lacks.message);
            Err(failure)
        }
    }
}

/// `quipu -p`.
pub(crate) async fn run(task: &Task) -> Result<(), Failure> {
    if task.ask_on_stdin && task.mode != Mode::Json {
        return Err(Failure::usage("--ask-on-stdin asks with events, so it needs `--mode json`"));
    }
    if task.stream && task.mode == Mode::Json {
        return Err(Failure::usage(
            "--stream is for text; `--mode json` already has every piece of an answer",
        ));
    }
    let output = task.output_schema.as_deref().map(StructuredOutput::read).transpose()?;
    let mut home = home(&task.store)?;
    if task.no_session {
        home = home.without_outputs();
    }
    let here = current_dir()?;
    let replay = match &task.replay {
        Some(path) => Some(Arc::new(Replay::open(path, Places::of(&here))?)),
        None => None,
    };
    let reads = replay.is_none() && !task.ask_on_stdin;
    let piped = if reads { crate::input::piped()? } else { String::new() };
    let read = |messages, piped| crate::input::prompts(messages, piped, &here);
    let (mut prompts, mut tasks) = match &replay {
        Some(replay) => (replay.prompts(), Vec::new()),
        None => (vec![None], read(TaskMessage::typed(&task.messages), piped.clone())?),
    };
    let continues = task.resume || task.session.is_some() || task.fork.is_some();
    if tasks.is_empty() && !continues && replay.is_none() {
        return Err(Failure::usage(
            "no task: give one as an argument or on stdin, such as `quipu -p \"fix the test\"`",
        ));
    }
    let StartedSession { store: open, opened, recorder, budget, file, ask_deadline, .. } =
        crate::home::open(&home, task, &here, replay.clone()).await?;
    let OpenedSession { session, notices } = opened;
    if replay.is_none()
        && let Some(messages) = crate::slash::expanded(&home, &session, &task.messages).await?
    {
        tasks = read(messages, piped)?;
        prompts = Vec::new();
    }
    if !tasks.is_empty() {
        prompts = crate::input::with_resources(&home, tasks).await;
    }
    let cwd = session.cwd().display().to_string();
    // What must be typed to go on after a failure.
    let agent = task.agent.as_ref().map_or_else(String::new, |id| format!(" --agent {id}"));
    let again = match session.cwd() == here {
        // What was replayed goes on with a model of its own only.
        _ if task.no_session || replay.is_some() => None,
        _ if let Some(file) = &file => {
            Some(format!("quipu -p{agent} --session {}{}", file.path, crate::home::store_flag(&home)))
        }
        true => Some(format!("quipu -p{agent} -c{}", crate::home::store_flag(&home))),
        false => Some(format!(
            "quipu -p{agent} --session {}{}",
            session.view().session,
            crate::home::store_flag(&home)
        )),
    };
    let store = (!task.no_session).then(|| home.store.clone());
    let hints = ExitHints {
        again,
        budget,
        store: store.and_then(|path| Some((file_number(&path)?, path))),
        open: Some(open),
    };
    if let (Some(output), Some(Some(last))) = (&output, prompts.last_mut()) {
        last.add(output.instruction(), Provenance::quipu());
    }
    let mut front = Front::new(task.mode, &session, &cwd)?;
    match &mut front {
        Front::Text(text) => {
            text.asker = Asker::new();
            text.streams = task.stream;
            text.output = output;
        }
        Front::Json(json) => {
            json.output = output;
            if task.ask_on_stdin {
                json.asker = Some(LineAsker::new(ask_deadline)?);
            }
        }
    }
    for notice in notices {
        front.opened_with(&session, notice)?;
    }
    let mut result = run_prompts(session, prompts, front, &hints).await;
    if let Some(file) = file {
        result = finish(&file, result).await;
    }
    crate::home::make_room(&home, task).await;
    for text in replay.iter().flat_map(|replay| replay.notes()) {
        note(format!("note: {text}"));
    }
    let Some((path, recorder)) = task.record.as_ref().zip(recorder) else { return result };
    match (result, recorder.finish()) {
        (result, Ok(calls)) => {
            if calls > 0 {
                note(format!("recorded   {calls} model call(s) in {}", path.display()));
            }
            result
        }
        (Ok(()), Err(error)) => Err(Failure::failed(format!("the recording is not complete: {error}"))),
        (Err(failure), Err(error)) => {
            note(format!("the recording is not complete: {error}"));
            Err(failure)
        }
    }
}

/// Hints for the message of a failed run.
#[derive(Default)]
pub(crate) struct ExitHints {
    /// The command that goes on with the session, if one can.
    again: Option<String>,
    /// What may be spent in a day.
    budget: Option<Budget>,
    /// The store's file, and its number when the run began.
    store: Option<((u64, u64), PathBuf)>,
    /// The same, as it is open.
    open: Option<Arc<dyn Graph>>,
}

impl ExitHints {
    /// Whether another file stands under the store's name, or none, or one without the last steps.
    fn has_lost_store(&self) -> bool {
        self.open.as_ref().is_some_and(|store| store.local().is_some_and(|local| !local.is_in_place()))
            || self.store.as_ref().is_some_and(|(number, path)| file_number(path) != Some(*number))
    }
}

fn file_number(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Sends the prompts one after the other (`None` goes on without a message) and follows each to its end.
pub(crate) async fn run_prompts(
    session: Session,
    prompts: Vec<Option<UserInput>>,
    mut front: Front,
    hints: &ExitHints,
) -> Result<(), Failure> {
    let listening = if front.can_ask() {
        session.subscribe_and_answer(Delivery::Lossless).await
    } else {
        session.subscribe(Delivery::Lossless).await
    };
    let (snapshot, mut events) = listening.map_err(refused)?;
    if let Front::Text(text) = &mut front {
        text.model = Some((snapshot.model.provider.clone(), snapshot.model.id.clone(), snapshot.thinking));
        // Commands are shown when they run.
        text.streams &= snapshot.profile.is_none();
        text.spoken = SpokenText::of(snapshot.profile);
    }
    let mut signals = Signals::new()?;
    let mut result = Ok(());
    let mut prompts = VecDeque::from(prompts);
    while let Some(prompt) = prompts.pop_front() {
        let sent = match prompt {
            Some(input) => session.prompt(input).await,
            None => session.send(quipu_protocol::Command::Continue).await,
        };
        if let Err(error) = sent {
            result = Err(refused(error));
            break;
        }
        let mut outcome = Outcome::Aborted;
        loop {
            tokio::select! {
                event = events.next() => match event {
                    None => break,
                    Some(envelope) => {
                        if let Event::RunEnded { outcome: ended } = &envelope.event {
                            outcome = ended.clone();
                        }
                        let settled = matches!(envelope.event, Event::Settled);
                        if let Err(error) = front.show(&envelope) {
                            signals.closed(error);
                            abort(&session).await;
                        }
                        if settled {
                            break;
                        }
                    }
                },
                answer = front.answer() => match answer {
                    Ok((ask, answer)) => {
                        // A question that is not open any more needs no answer.
                        drop(session.send(quipu_protocol::Command::Answer { ask, answer }).await);
                    }
                    Err(line) => if let Err(error) = write_line(&line) {
                        signals.closed(error);
                        abort(&session).await;
                    },
                },
                again = signals.next() => {
                    if again {
                        // Twice: leave at once. What was acknowledged is in the store.
                        return Err(Failure::silent(signals.exit()));
                    }
                    abort(&session).await;
                }
            }
        }
        result = signals.failure().map_or_else(|| finished(&outcome, hints), Err);
        if result.is_ok() && prompts.is_empty() {
            match front.check_output() {
                Ok(again) => prompts.extend(again.map(Some)),
                Err(failure) => result = Err(failure),
            }
        }
        if result.is_err() {
            break;
        }
    }
    session.shutdown().await;
    // What still ran in the background ended with the session.
    while let Some(envelope) = events.next().await {
        if let Event::BackgroundEnded { .. } = &envelope.event
            && let Err(error) = front.show(&envelope)
            && result.is_ok()
        {
            result = Err(error.into());
        }
    }
    if let (Ok(()), Err(error)) = (&result, front.finish()) {
        return Err(error);
    }
    result
}

async fn abort(session: &Session) {
    // A session that is closed has nothing to abort.
    drop(session.abort().await);
}

pub(crate) fn refused(error: Refusal) -> Failure {
    let exit = match &error {
        Refusal::Store { .. } => Exit::Store,
        Refusal::Files { .. } | Refusal::NotMoved { .. } | Refusal::Blocked { .. } => Exit::Failed,
        Refusal::Empty
        | Refusal::NothingToContinue
        | Refusal::NothingToCompact
        | Refusal::NothingToUndo
        | Refusal::NothingToRedo
        | Refusal::NoCompaction
        | Refusal::MergeConflict { .. }
        | Refusal::NotInSession { .. }
        | Refusal::NoSuchModel { .. }
        | Refusal::LabelTooLong { .. } => Exit::Usage,
        Refusal::Busy
        | Refusal::NoSuchAsk
        | Refusal::InvalidAnswer
        | Refusal::QueueFull
        | Refusal::SlowSubscriber
        | Refusal::Closed => Exit::Failed,
    };
    Failure::new(exit, error)
}

fn finished(outcome: &Outcome, hints: &ExitHints) -> Result<(), Failure> {
    let fail = |exit: Exit, what: String| {
        let again = hints.again.as_ref().filter(|_| !hints.has_lost_store());
        let hint = again
            .map_or(String::new(), |again| format!("\nThe session is kept; to continue: `{again} \"…\"`."));
        Err(Failure::new(exit, format!("{what}{hint}")))
    };
    match outcome {
        Outcome::Done => Ok(()),
        Outcome::Aborted => Err(Failure::failed("aborted")),
        Outcome::Failed(error) => {
            let exit = match error.kind {
                ModelErrorKind::NoCredential | ModelErrorKind::Auth | ModelErrorKind::AuthRevoked => {
                    Exit::Credential
                }
                ModelErrorKind::UnknownModel => Exit::Usage,
                ModelErrorKind::ReplayMismatch => Exit::ReplayMismatch,
                _ => Exit::Failed,
            };
            fail(exit, error.to_string())
        }
        Outcome::Limit(Limit::Turns(turns)) => {
            fail(Exit::Limit, format!("stopped after {turns} turns (--max-turns)"))
        }
        Outcome::Limit(Limit::Cost(cost)) => fail(Exit::Limit, format!("stopped at ${cost} (--max-cost)")),
        Outcome::Limit(Limit::Daily { spent, budget }) => {
            let source = hints.budget.as_ref().map_or_else(|| "daily_budget".to_owned(), crate::home::source);
            let what = format!(
                "stopped before a model call: {} counts as spent today, and the daily budget is {} ({source}). Continue tomorrow, or now with a higher --daily-budget",
                dollars(*spent),
                dollars(*budget)
            );
            fail(Exit::Limit, what)
        }
        Outcome::Limit(Limit::Account(limit)) => {
            fail(Exit::Limit, format!("stopped before a model call: {limit}"))
        }
        Outcome::StoreFailed(text) => fail(Exit::Store, text.clone()),
    }
}

/// Tells people of trouble.
pub(crate) fn tell(notice: &Notice) {
    match notice {
        Notice::Branched { session } => note(format!(
            "Another process is working on this session; this run continues on a branch: session {session}"
        )),
        Notice::Interrupted { calls, model_call } => {
            for (tool, call) in calls {
                note(format!(
                    "The process that ran {tool} ({call}) exited or stopped responding. The call is not run again; check what it did."
                ));
            }
            if *model_call {
                note(
                    "The process that waited for a reply exited or stopped responding. The reply was lost and is not retried.",
                );
            }
        }
        Notice::Note { text } => note(text),
    }
}

/// What people or programs see of a run.
pub(crate) enum Front {
    Text(Box<Text>),
    Json(Box<Json>),
}

/// Every event as a line on stdout.
pub(crate) struct Json {
    events: JsonEvents,
    asker: Option<LineAsker>,
    /// The form of the last answer.
    output: Option<StructuredOutput>,
}

/// Text to stdout, the rest to stderr.
#[derive(Default)]
pub(crate) struct Text {
    /// Whether text is written as it comes, and not when its message is kept.
    pub(crate) streams: bool,
    /// How far an answer is that is not written yet.
    progress: Option<Progress>,
    /// When that was shown last.
    shown: Option<Instant>,
    /// Characters of it so far.
    characters: usize,
    /// Whether the last byte on stdout was not a newline.
    open: bool,
    wrote: bool,
    asker: Option<Asker>,
    /// The form of the last answer, which alone is written then.
    output: Option<StructuredOutput>,
    /// The model that answers: provider, id, level.
    model: Option<(String, String, Thinking)>,
    /// What of the answers is written.
    spoken: SpokenText,
}

impl Front {
    pub(crate) fn new(mode: Mode, session: &Session, cwd: &str) -> Result<Self, Failure> {
        match mode {
            Mode::Text => Ok(Self::Text(Box::default())),
            Mode::Json => {
                let id = session.view().session;
                let events =
                    JsonEvents::new(SessionHeader { id, timestamp: iso(now()), cwd: cwd.to_owned() });
                write_line(&events.header_line())?;
                Ok(Self::Json(Box::new(Json { events, asker: None, output: None })))
            }
            Mode::Rpc => Err(Failure::usage("`--mode rpc` drives sessions by commands, not by a task")),
        }
    }

    fn output(&mut self) -> Option<&mut StructuredOutput> {
        match self {
            Self::Text(text) => text.output.as_mut(),
            Self::Json(json) => json.output.as_mut(),
        }
    }

    fn can_ask(&self) -> bool {
        match self {
            Self::Text(text) => text.asker.is_some(),
            Self::Json(json) => json.asker.is_some(),
        }
    }

    /// The next answer of the person at the terminal, or of the program at stdin; or a line for that program.
    async fn answer(&mut self) -> Result<(AskId, Answer), String> {
        match self {
            Self::Text(text) => match &mut text.asker {
                Some(asker) => Ok(asker.answer().await),
                None => std::future::pending().await,
            },
            Self::Json(json) => match &mut json.asker {
                Some(asker) => asker.answer().await,
                None => std::future::pending().await,
            },
        }
    }

    /// Notice that was met before anyone could listen.
    fn opened_with(&mut self, session: &Session, notice: Notice) -> std::io::Result<()> {
        let session = session.view().session;
        let event = Event::from(notice);
        self.show(&Arc::new(Envelope { seq: 0, session, run: None, at: now(), event }))
    }

    pub(crate) fn show(&mut self, envelope: &Arc<Envelope>) -> std::io::Result<()> {
        if let Self::Text(text) = self
            && !matches!(envelope.event, Event::MessageDelta { .. })
        {
            text.clear_progress();
        }
        if let Event::Ui { ui: Ui::Notice { notice } } = &envelope.event {
            tell(notice);
        }
        if let (Event::MessageEnded { message, ending: Ending::Committed(_), .. }, Some(output)) =
            (&envelope.event, self.output())
        {
            output.observe(message);
        }
        match self {
            Self::Json(json) => {
                for line in json.events.fold(envelope) {
                    write_line(&line)?;
                }
                match (&envelope.event, &mut json.asker) {
                    (Event::AskOpened { ask }, Some(asker)) => write_line(&asker.asked(ask)),
                    (Event::AskClosed { ask, .. }, Some(asker)) => {
                        asker.closed(ask);
                        Ok(())
                    }
                    _ => Ok(()),
                }
            }
            Self::Text(text) => text.show(&envelope.event),
        }
    }

    /// Judges the last answer where it has to have a form, and writes it where it has; else what the model is asked next.
    fn check_output(&mut self) -> Result<Option<UserInput>, Failure> {
        let Some(output) = self.output() else { return Ok(None) };
        match output.check()? {
            AnswerVerdict::Again(prompt) => return Ok(Some(prompt)),
            AnswerVerdict::Fits(text, value) => match self {
                Self::Text(_) => write_line(&text)?,
                Self::Json(_) => {
                    write_line(&serde_json::json!({ "type": "quipu_output", "output": value }).to_string())?;
                }
            },
        }
        Ok(None)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        match self {
            Self::Text(text) => Ok(text.close()?),
            Self::Json(_) => Ok(()),
        }
    }
}

fn write_line(line: &str) -> std::io::Result<()> {
    let mut out = crate::console::stdout();
    out.write_all(line.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

impl Text {
    fn show(&mut self, event: &Event) -> std::io::Result<()> {
        if let Event::ToolEnded { result, .. } = event {
            self.spoken.observe(result);
        }
        match event {
            Event::MessageDelta { delta: Delta::Text { text, .. }, .. } if self.streams => self.write(text),
            Event::MessageDelta { delta: Delta::ServerTool { summary, .. }, .. } => {
                if !summary.is_empty() {
                    self.close()?;
                    note_in(Paint::dim, format!("• {}", one_line(summary, 200)));
                }
                Ok(())
            }
            Event::MessageDelta { delta, .. } => {
                self.advance(delta);
                Ok(())
            }
            Event::MessageEnded { message, ending, .. } => {
                if let Message::Assistant(answer) = &**message {
                    // One that failed is asked for again, or ends the run with what went wrong. One that is whole and could
                    // not be stored stands nowhere else.
                    if answer.stop_reason != StopReason::Error && !self.streams && self.output.is_none() {
                        for text in self.spoken.of_answer(answer) {
                            self.write(&text)?;
                        }
                    }
                    self.close()?;
                    if let Ending::Dropped(error) = ending {
                        note_in(
                            Paint::dim,
                            format!("(the answer broke off: {})", one_line(&error.message, 200)),
                        );
                    }
                }
                Ok(())
            }
            Event::ToolStarted { name, args, .. } => {
                self.close()?;
                note_in(Paint::dim, format!("• {name} {}", one_line(&brief(name, args), 100)));
                Ok(())
            }
            Event::ToolEnded { result, .. } if let Some(plan) = crate::planning::unanswered(result) => {
                self.write(&plan)?;
                self.close()
            }
            Event::Ui { ui: Ui::Widget { key, lines } } if key == quipu::TODO_WIDGET => {
                self.close()?;
                lines.iter().for_each(|line| note_in(Paint::dim, format!("  {line}")));
                Ok(())
            }
            Event::ToolEnded { result, .. } if result.is_error => {
                let text: Vec<&str> =
                    result.content.iter().filter_map(quipu_protocol::Content::as_text).collect();
                note_in(
                    Paint::red,
                    format!("  {} failed: {}", result.tool_name, one_line(&text.join(" "), 200)),
                );
                Ok(())
            }
            Event::CompactionStarted { reason } => {
                self.close()?;
                let why = match reason {
                    CompactionReason::Threshold => "the context is nearly full",
                    CompactionReason::Overflow => "the provider rejected the context as too long",
                    CompactionReason::Manual => "requested",
                };
                note_in(Paint::dim, format!("• compacting ({why}) …"));
                Ok(())
            }
            Event::CompactionEnded { result, .. } => {
                match &**result {
                    CompactionResult::Done { node, compaction, tokens_after } => {
                        let cost = compaction.usage.map_or(0.0, |usage| usage.cost.total);
                        note_in(
                            Paint::dim,
                            format!(
                                "  {} tokens before, about {tokens_after} after, ${cost:.4}; node {}",
                                compaction.tokens_before,
                                node.short()
                            ),
                        );
                    }
                    CompactionResult::Aborted => note_in(Paint::dim, "  stopped; the context is unchanged"),
                    CompactionResult::Failed(why) => {
                        note_in(
                            Paint::red,
                            format!("  not compacted, the context is unchanged: {}", one_line(why, 300)),
                        );
                    }
                }
                Ok(())
            }
            Event::JumpStarted { to } => {
                self.close()?;
                note_in(Paint::dim, format!("• going to {} …", to.short()));
                Ok(())
            }
            Event::EpochChanged { model, thinking, .. } => {
                let now = Some((model.provider.clone(), model.id.clone(), *thinking));
                if self.model == now {
                    // The tools or the system prompt changed.
                    return Ok(());
                }
                self.model = now;
                self.close()?;
                let level = quipu_protocol::Json::of(thinking).unwrap_or_default();
                let level = level.get().trim_matches('"');
                note_in(
                    Paint::dim,
                    format!("• model is now {}/{}, thinking {level}", model.provider, model.id),
                );
                Ok(())
            }
            Event::ContextPruned { results, tokens_before, tokens_after, node } => {
                self.close()?;
                let what = match results {
                    0 => "earlier turns left out".to_owned(),
                    results => format!("{results} old tool results pruned"),
                };
                let node = node.short();
                note_in(
                    Paint::dim,
                    format!(
                        "• {what}: {tokens_before} tokens before, about {tokens_after} after; node {node}"
                    ),
                );
                Ok(())
            }
            Event::AskOpened { ask } => {
                self.close()?;
                if let Some(asker) = &mut self.asker {
                    asker.asked(ask);
                }
                Ok(())
            }
            Event::AskClosed { ask, answer: by, by_policy } => {
                if let Some(asker) = &mut self.asker {
                    asker.closed(ask);
                }
                if let Some(Answer::Allow { scope: Scope::Always }) = by {
                    note("  saved; `quipu permissions` lists and revokes it");
                }
                if *by_policy {
                    let word = if matches!(by, Some(Answer::Allow { .. })) { "allowed" } else { "refused" };
                    note_in(Paint::dim, format!("  {word} by the current permissions"));
                }
                Ok(())
            }
            Event::BackgroundStarted { id, command } => {
                self.close()?;
                note_in(Paint::dim, format!("• background {id}: {}", one_line(command, 100)));
                Ok(())
            }
            Event::BackgroundEnded { id, command, end } => {
                self.close()?;
                note_in(Paint::dim, format!("• background {id} {end}: {}", one_line(command, 100)));
                Ok(())
            }
            Event::PermissionsChanged { mode } => {
                self.close()?;
                note_in(Paint::dim, format!("• permissions are now `{mode}`"));
                Ok(())
            }
            Event::RetryScheduled { attempt, delay, error } => {
                self.close()?;
                let delay = took(u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
                note_in(Paint::dim, format!("… {}; try {attempt} in {delay}", one_line(&error.message, 200)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Shows that an answer comes, where a person sees it.
    fn advance(&mut self, delta: &Delta) {
        if self.streams {
            return;
        }
        let what = match delta {
            Delta::Text { text, .. } => {
                self.characters += text.chars().count();
                "answering"
            }
            Delta::Thinking { text, .. } => {
                self.characters += text.chars().count();
                "thinking"
            }
            Delta::ToolCallArguments { json, .. } => {
                self.characters += json.chars().count();
                "calling a tool"
            }
            _ => return,
        };
        if self.shown.is_some_and(|shown| shown.elapsed() < SHOW) {
            return;
        }
        self.shown = Some(Instant::now());
        let progress = self.progress.get_or_insert_with(Progress::new);
        progress.show(&format!("… {what}, {} characters", self.characters));
    }

    /// Takes away what shows that an answer comes.
    fn clear_progress(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.clear();
        }
        (self.characters, self.shown) = (0, None);
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut out = crate::console::stdout();
        // A program gets the text as it is; a terminal must not be steered by it.
        if out.is_terminal() {
            out.write_all(printable(text).as_bytes())?;
        } else {
            out.write_all(text.as_bytes())?;
        }
        self.open = !text.ends_with('\n');
        self.wrote = true;
        out.flush()
    }

    fn close(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.open) {
            let mut out = crate::console::stdout();
            out.write_all(b"\n")?;
            out.flush()?;
        }
        Ok(())
    }
}

/// The arguments of a call for people: the one that says most, or all.
fn brief(tool: &str, args: &quipu_protocol::Json) -> String {
    if tool == "apply_patch" {
        return quipu_host::files_of_patch(args.get()).join(", ");
    }
    let value = args.value();
    let text = |name: &str| value.get(name).and_then(|value| value.as_str()).filter(|text| !text.is_empty());
    match tool {
        quipu::TASK_TOOL => {
            if let Some(id) = text("merge") {
                return format!("merge {id}");
            }
            let agent = text("agent").unwrap_or("sub-agent");
            return match text("description").or_else(|| text("prompt")) {
                Some(about) => format!("{agent}: {about}"),
                None => agent.to_owned(),
            };
        }
        "plan" => {
            let plan = text("text").unwrap_or_default();
            let first =
                plan.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
            return first.unwrap_or_default().to_owned();
        }
        "todo" => {
            let items = value.get("items").and_then(|items| items.as_array()).map_or(0, Vec::len);
            return crate::print::counted(items as u64, "item");
        }
        _ => {}
    }
    let main =
        ["command", "url", "query", "pattern", "path"].iter().find_map(|name| value.get(name)?.as_str());
    main.map_or_else(|| args.to_string(), str::to_owned)
}
