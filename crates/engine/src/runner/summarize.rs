//! The calls that sum a stretch of conversation up. Long stretches are read in pieces that fit the model's window,
//! each with the notes on those before it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::mailbox;
use quipu_protocol::{
    CompactionSummaryMessage, Content, Limit, Message, Model, ModelErrorKind, ModelRequest, NodeId, Outcome,
    RunId, SessionId, StopReason, Thinking,
};
use quipu_transcript::{TURN_MARK, conversation_text, estimate_text};
use tokio_util::sync::CancellationToken;

use crate::calls::money::nano;
use crate::calls::{CallJob, CallPurpose, CallResult, Caller, seal_answer};
use quipu_machine::RunMoney;
use quipu_machine::{Calls, MachineInput, NoSummary, Purpose, Stretch, Summary};

/// How often a call that failed is made again in the careful way, the first included.
const ATTEMPTS: u32 = 3;
/// Between two of them at most.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

const SUMMARIZER: &str = include_str!("../prompts/summarizer.md");
const INITIAL: &str = include_str!("../prompts/summary.md");
const UPDATE: &str = include_str!("../prompts/summary-update.md");
pub(super) const TURN: &str = include_str!("../prompts/summary-turn.md");
const BRANCH: &str = include_str!("../prompts/summary-branch.md");
const BRANCH_UPDATE: &str = include_str!("../prompts/summary-branch-update.md");

pub(super) const SAFEGUARD: &str = include_str!("../prompts/safeguard.md");
pub(super) const SAFEGUARD_UPDATE: &str = include_str!("../prompts/safeguard-update.md");
pub(super) const SAFEGUARD_MERGE: &str = include_str!("../prompts/safeguard-merge.md");
pub(super) const REPAIR: &str = include_str!("../prompts/safeguard-repair.md");
/// Tokens of what stands behind the instructions of the careful way: the rule on identifiers, or what is to be mended.
const BESIDE_INSTRUCTIONS: u64 = 640;

/// UTF-8 bytes that are taken for one token where a request must fit: fewer than most models need, so that the count
/// is rather too high.
const BYTES: u64 = 3;
/// Between two messages.
const BETWEEN: &str = "\n\n";
/// Tokens of a piece at least; a window that has no room for it is too small.
const PIECE: u64 = 512;
/// Bytes of a piece that is not halved any more when the model finds it too long.
const SMALL: usize = 1_024;

/// Whose calls these are.
pub(crate) struct Job {
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) head: NodeId,
    pub(crate) model: Arc<Model>,
    pub(crate) thinking: Thinking,
    pub(crate) tell: mailbox::Sender<MachineInput>,
    pub(crate) cancel: CancellationToken,
}

/// Why there are no notes.
pub(super) enum SummaryFailure {
    /// Somebody stopped it.
    Stopped,
    /// The model found the request too long.
    TooLong(String),
    /// Another call may succeed.
    Failed(String),
    /// No other call would.
    Final(String),
}

impl Caller {
    /// Sums `stretch` up: its history, on top of what was summed up before, and the beginning of the turn that is cut.
    pub(crate) async fn summarize(&self, job: &Job, stretch: &Stretch) -> Result<Summary, Box<NoSummary>> {
        let mut made = Calls::default();
        let notes = match &stretch.safeguard {
            Some(safeguard) => self.safeguarded(job, stretch, safeguard, &mut made).await,
            None => self.notes(job, stretch, &mut made).await,
        };
        let node = !made.records.is_empty();
        self.over(nano(made.usage.cost.total), nano(made.assumed), node).await;
        match notes {
            Ok(text) => {
                let (supplied_by, hooks, provenance, parts) = (None, Vec::new(), None, Vec::new());
                Ok(Summary { text, made, supplied_by, hooks, provenance, parts })
            }
            Err(missed) => {
                let why = match missed {
                    SummaryFailure::Stopped => None,
                    SummaryFailure::TooLong(why)
                    | SummaryFailure::Failed(why)
                    | SummaryFailure::Final(why) => Some(why),
                };
                Err(Box::new(NoSummary { why, made }))
            }
        }
    }

    async fn notes(&self, job: &Job, stretch: &Stretch, made: &mut Calls) -> Result<String, SummaryFailure> {
        let mut previous = stretch.previous.clone();
        let mut history = pieces(told(&stretch.history), stretch, previous.as_deref());
        if history.is_none()
            && let Some(summary) = previous.take()
        {
            // Notes of a larger model: there is no room for anything beside them, so they are summed up as well.
            let before = CompactionSummaryMessage { summary, tokens_before: 0, timestamp: 0 };
            let before = Arc::new(Message::CompactionSummary(before));
            let whole: Vec<_> = std::iter::once(before).chain(stretch.history.iter().cloned()).collect();
            history = pieces(told(&whole), stretch, None);
        }
        let (Some(history), Some(turn)) = (history, pieces(told(&stretch.turn), stretch, None)) else {
            return Err(no_room(stretch));
        };
        let instructions = match stretch.purpose {
            Purpose::Compaction => [INITIAL, UPDATE],
            Purpose::Branch => [BRANCH, BRANCH_UPDATE],
        };
        let notes = self.read(job, stretch, history, previous, instructions, made).await?;
        let turn = self.read(job, stretch, turn, None, [TURN, TURN], made).await?;
        match (notes, turn) {
            (Some(notes), None) => Ok(notes),
            (notes, Some(turn)) => {
                let notes = notes.unwrap_or_else(|| "Nothing came before this turn.".into());
                Ok(format!("{notes}{TURN_MARK}{turn}"))
            }
            (None, None) => Err(SummaryFailure::Failed("there was nothing to summarize".into())),
        }
    }

    /// Piece after piece, each with the notes on those before it. `instructions`: without such notes, and with them.
    pub(super) async fn read(
        &self,
        job: &Job,
        stretch: &Stretch,
        mut pieces: VecDeque<String>,
        mut notes: Option<String>,
        instructions: [&str; 2],
        made: &mut Calls,
    ) -> Result<Option<String>, SummaryFailure> {
        let mut most = usize::MAX;
        while let Some(mut piece) = pieces.pop_front() {
            if piece.len() > most {
                let middle = piece.floor_char_boundary(piece.len() / 2);
                let end = piece[..middle].rfind(BETWEEN).filter(|end| *end > middle / 2).unwrap_or(middle);
                pieces.push_front(piece.split_off(end));
                pieces.push_front(piece);
                continue;
            }
            let which = instructions[usize::from(notes.is_some())];
            match self.note_tried(job, stretch, &piece, notes.as_deref(), which, made).await {
                Ok(text) => notes = Some(text),
                // Its window is not known, or smaller than configured.
                Err(SummaryFailure::TooLong(_)) if piece.len() > SMALL => {
                    most = piece.len() / 2 + 4;
                    pieces.push_front(piece);
                }
                Err(missed) => return Err(missed),
            }
        }
        Ok(notes)
    }

    /// One call, made again where it fails and that may help.
    pub(super) async fn note_tried(
        &self,
        job: &Job,
        stretch: &Stretch,
        piece: &str,
        previous: Option<&str>,
        instructions: &str,
        calls: &mut Calls,
    ) -> Result<String, SummaryFailure> {
        let (mut left, mut wait) = match &stretch.safeguard {
            Some(safeguard) => (ATTEMPTS, Duration::from_millis(safeguard.retry_ms)),
            None => (1, Duration::ZERO),
        };
        loop {
            left -= 1;
            match self.note(job, stretch, piece, previous, instructions, calls).await {
                Err(SummaryFailure::Failed(_)) if left > 0 => {
                    tokio::select! {
                        () = tokio::time::sleep(wait.min(LONGEST_WAIT)) => {}
                        () = job.cancel.cancelled() => return Err(SummaryFailure::Stopped),
                    }
                    wait = wait.saturating_mul(2);
                }
                done => return done,
            }
        }
    }

    /// One call.
    async fn note(
        &self,
        job: &Job,
        stretch: &Stretch,
        piece: &str,
        previous: Option<&str>,
        instructions: &str,
        calls: &mut Calls,
    ) -> Result<String, SummaryFailure> {
        if let Some(dollars) = stretch.dollars
            && calls.cost() >= dollars
        {
            return Err(SummaryFailure::Final("the run's cost limit is reached".into()));
        }
        let mut text = format!("<conversation>\n{piece}\n</conversation>\n\n");
        if let Some(previous) = previous {
            text.push_str(&format!("<previous-summary>\n{previous}\n</previous-summary>\n\n"));
        }
        text.push_str(instructions.trim_end());
        if let Some(focus) = &stretch.focus {
            text.push_str(&format!("\n\nAdditional focus: {focus}"));
        }
        let request = ModelRequest {
            model: job.model.clone(),
            system: SUMMARIZER.trim_end().into(),
            tools: Arc::new([]),
            messages: vec![Arc::new(Message::user(text, self.clock.now()))].into(),
            thinking: if job.model.reasoning { job.thinking } else { Thinking::Off },
            max_tokens: Some(stretch.max_tokens),
            // It shares no beginning with the session's own requests.
            session: None,
            stable_system: None,
        };
        let order = CallJob {
            session: job.session.clone(),
            run: job.run.clone(),
            head: job.head,
            request: Arc::new(request),
            recorded: None,
            system: None,
            purpose: CallPurpose::Summary(stretch.purpose),
            summary: Some(calls.clone()),
            money: stretch.dollars.map(|left| RunMoney { left, limit: left }),
            daily: None,
            is_outdated: None,
            tell: Some(job.tell.clone()),
            cancel: job.cancel.clone(),
            hooked: None,
            responses: None,
        };
        let made = self.once(order).await;
        let missed = |outcome| match outcome {
            Outcome::StoreFailed(text) => SummaryFailure::Final(text),
            Outcome::Limit(Limit::Daily { spent, budget }) => {
                SummaryFailure::Final(format!("${spent:.2} of today's budget of ${budget} is spent"))
            }
            Outcome::Limit(Limit::Account(limit)) => SummaryFailure::Final(limit.to_string()),
            Outcome::Limit(Limit::Cost(_)) => SummaryFailure::Final("the run's cost limit is reached".into()),
            Outcome::Failed(error) => SummaryFailure::Final(error.message),
            Outcome::Aborted => SummaryFailure::Stopped,
            Outcome::Done | Outcome::Limit(_) => SummaryFailure::Final("the call was not made".into()),
        };
        let CallResult { mut end, record, money } = made.map_err(missed)?;
        calls.assumed += money.assumed;
        if let Some(mut record) = record {
            record.attempts = end.attempts;
            calls.records.push(record);
        }
        calls.usage += &end.message.usage;
        if let Some(outcome) = money.refused {
            return Err(missed(outcome));
        }
        let failed = |why: &str| Err(SummaryFailure::Failed(why.to_owned()));
        if let Some(error) = end.error {
            let why = self.sealer.seal(&error.message);
            let why = format!("the model did not summarize the conversation: {why}");
            return Err(match error.kind {
                ModelErrorKind::Aborted => SummaryFailure::Stopped,
                ModelErrorKind::ContextOverflow => SummaryFailure::TooLong(why),
                kind if helps_no_other_call(kind) => SummaryFailure::Final(why),
                _ => SummaryFailure::Failed(why),
            });
        }
        seal_answer(&mut end.message, &self.sealer);
        if end.message.tool_calls().next().is_some() {
            return failed("the model called a tool instead of summarizing the conversation");
        }
        match end.message.stop_reason {
            StopReason::Stop => {}
            StopReason::Length => {
                return failed("the summary was cut off at its token limit; raise the token reserve");
            }
            StopReason::ToolUse
            | StopReason::Error
            | StopReason::Aborted
            | StopReason::Deferred
            | StopReason::Pending => return failed("the model did not finish the summary"),
        }
        let texts: Vec<&str> = end.message.content.iter().filter_map(Content::as_text).collect();
        let text = texts.join("\n").trim().to_owned();
        if text.is_empty() { failed("the model returned an empty summary") } else { Ok(text) }
    }
}

/// Whether a failure is that of every call of this model, or of one that is made at once.
fn helps_no_other_call(kind: ModelErrorKind) -> bool {
    matches!(
        kind,
        ModelErrorKind::NoCredential
            | ModelErrorKind::Auth
            | ModelErrorKind::AuthRevoked
            | ModelErrorKind::Quota
            | ModelErrorKind::UsageLimit
            | ModelErrorKind::Timeout
    )
}

pub(super) fn no_room(stretch: &Stretch) -> SummaryFailure {
    let window = stretch.window;
    SummaryFailure::Final(format!("the model's context window of {window} tokens is too small for a summary"))
}

/// Messages as text, one by one.
fn told(messages: &[Arc<Message>]) -> impl Iterator<Item = String> + '_ {
    messages.iter().map(|message| conversation_text(std::slice::from_ref(message)))
}

/// Texts in pieces that fit a request beside everything else in it, the notes before it included. Of a text that is
/// longer than two pieces the middle is left out. `None` when there is no room for a piece.
pub(super) fn pieces(
    texts: impl Iterator<Item = String>,
    stretch: &Stretch,
    previous: Option<&str>,
) -> Option<VecDeque<String>> {
    let all = match stretch.safeguard {
        Some(_) => [TURN, SAFEGUARD, SAFEGUARD_UPDATE, SAFEGUARD_MERGE, REPAIR],
        None => [TURN, INITIAL, UPDATE, BRANCH, BRANCH_UPDATE],
    };
    let mut instructions = all.iter().map(|text| estimate_text(text)).max().unwrap_or(0);
    if stretch.safeguard.is_some() {
        instructions += BESIDE_INSTRUCTIONS;
    }
    // Twice the answer: once written, once read again as the notes before the next piece.
    let others = estimate_text(SUMMARIZER)
        + instructions
        + stretch.focus.as_deref().map_or(0, estimate_text)
        + previous.map_or(0, estimate_text).max(stretch.max_tokens)
        + stretch.max_tokens;
    let tokens = stretch.window.checked_sub(others).filter(|tokens| *tokens >= PIECE)?;
    let most = usize::try_from(tokens.saturating_mul(BYTES)).unwrap_or(usize::MAX);
    let mut pieces = VecDeque::new();
    let mut piece = String::new();
    for text in texts {
        let text = shortened(text, most);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let room = most.saturating_sub(piece.len() + BETWEEN.len());
            // A message stands whole in the next piece, unless it is longer than half of one.
            if !piece.is_empty() && rest.len() > room && (room < most / 2 || rest.len() <= most) {
                pieces.push_back(std::mem::take(&mut piece));
                continue;
            }
            let end = rest.floor_char_boundary(room.max(4));
            if !piece.is_empty() {
                piece.push_str(BETWEEN);
            }
            piece.push_str(&rest[..end]);
            rest = &rest[end..];
        }
    }
    if !piece.is_empty() {
        pieces.push_back(piece);
    }
    Some(pieces)
}

fn shortened(text: String, piece: usize) -> String {
    if text.len() <= piece.saturating_mul(2) {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(piece / 2), text.ceil_char_boundary(text.len() - piece / 2));
    let missing = text[head..tail].chars().count();
    format!("{}\n(... {missing} characters omitted ...)\n{}", &text[..head], &text[tail..])
}
