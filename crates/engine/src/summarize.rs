//! The calls that sum a stretch of conversation up. Long stretches are read in pieces that fit the model's window,
//! each with the notes on those before it.

use std::sync::Arc;

use quipu_protocol::{
    Content, Cost, Limit, Message, Model, ModelErrorKind, ModelRequest, NodeId, Outcome, RunId, SessionId,
    StopReason, Thinking, Usage,
};
use quipu_transcript::{conversation_text, estimate_text};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::call::{Caller, Order, seal_answer};
use crate::machine::{Calls, NoSummary, Stretch, Summary};

const SUMMARIZER: &str = include_str!("prompts/summarizer.md");
const INITIAL: &str = include_str!("prompts/summary.md");
const UPDATE: &str = include_str!("prompts/summary-update.md");
const TURN: &str = include_str!("prompts/summary-turn.md");

/// UTF-8 bytes that are taken for one token where a request must fit: fewer than most models need, so that the count
/// is rather too high.
const BYTES: u64 = 3;
/// Between two messages.
const BETWEEN: &str = "\n\n";
/// Tokens of a piece at least, however small the window is.
const PIECE: u64 = 512;

/// Whose calls these are.
pub(crate) struct Job {
    pub(crate) session: SessionId,
    pub(crate) run: RunId,
    pub(crate) head: NodeId,
    pub(crate) model: Arc<Model>,
    pub(crate) thinking: Thinking,
    pub(crate) cancel: CancellationToken,
}

impl Caller {
    /// Sums `stretch` up: its history, on top of what was summed up before, and the beginning of the turn that is cut.
    pub(crate) async fn summarize(&self, job: &Job, stretch: &Stretch) -> Result<Summary, Box<NoSummary>> {
        let mut made = Calls::default();
        let text = match self.notes(job, stretch, &mut made).await {
            Ok(text) => text,
            Err(why) => return Err(Box::new(NoSummary { why, made })),
        };
        Ok(Summary { text, made })
    }

    /// The error is `None` when it was stopped.
    async fn notes(&self, job: &Job, stretch: &Stretch, made: &mut Calls) -> Result<String, Option<String>> {
        let mut notes = stretch.previous.clone();
        for piece in pieces(&stretch.history, stretch) {
            let instructions = if notes.is_some() { UPDATE } else { INITIAL };
            notes = Some(self.note(job, stretch, &piece, notes.as_deref(), instructions, made).await?);
        }
        let mut turn: Option<String> = None;
        for piece in pieces(&stretch.turn, stretch) {
            turn = Some(self.note(job, stretch, &piece, turn.as_deref(), TURN, made).await?);
        }
        match (notes, turn) {
            (Some(notes), None) => Ok(notes),
            (notes, Some(turn)) => {
                let notes = notes.unwrap_or_else(|| "Nothing came before this turn.".into());
                Ok(format!("{notes}\n\n---\n\n**The turn that goes on below began so:**\n\n{turn}"))
            }
            (None, None) => Err(Some("there was nothing to sum up".into())),
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
    ) -> Result<String, Option<String>> {
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
        };
        let order = Order {
            session: job.session.clone(),
            run: job.run.clone(),
            head: job.head,
            request: Arc::new(request),
            recorded: None,
            system: None,
            cancel: job.cancel.clone(),
        };
        // Nobody watches a summary being written.
        let (events, mut unwatched) = mpsc::channel(64);
        let watch = async { while unwatched.recv().await.is_some() {} };
        let (made, ()) = tokio::join!(self.attempt(order, events), watch);
        let (mut end, record) = made.map_err(|outcome| match outcome {
            Outcome::StoreFailed(text) => Some(text),
            Outcome::Limit(Limit::Daily { spent, budget }) => {
                Some(format!("${spent:.2} of today's budget of ${budget} are spent"))
            }
            Outcome::Aborted => None,
            Outcome::Done | Outcome::Failed(_) | Outcome::Limit(_) => Some("the call was not made".into()),
        })?;
        if let Some(mut record) = record {
            record.attempts = end.attempts;
            calls.records.push(record);
        }
        add(&mut calls.usage, &end.message.usage);
        let failed = |why: &str| Err(Some(why.to_owned()));
        if let Some(error) = end.error {
            let why = self.sealer.seal(&error.message);
            return match error.kind {
                ModelErrorKind::Aborted => Err(None),
                _ => failed(&format!("the model did not sum the conversation up: {why}")),
            };
        }
        seal_answer(&mut end.message, &self.sealer);
        if end.message.tool_calls().next().is_some() {
            return failed("the model called a tool in place of summing the conversation up");
        }
        match end.message.stop_reason {
            StopReason::Stop => {}
            StopReason::Length => {
                return failed(
                    "the summary was cut off at the limit of its length; raise the reserve of tokens",
                );
            }
            StopReason::ToolUse
            | StopReason::Error
            | StopReason::Aborted
            | StopReason::Deferred
            | StopReason::Pending => return failed("the model did not finish the summary"),
        }
        let texts: Vec<&str> = end.message.content.iter().filter_map(Content::as_text).collect();
        let text = texts.join("\n").trim().to_owned();
        if text.is_empty() { failed("the model summed the conversation up in no words") } else { Ok(text) }
    }
}

/// The text of a stretch, in pieces that fit a request beside everything else in it. Of a message that is longer than
/// two pieces the middle is left out.
fn pieces(messages: &[Arc<Message>], stretch: &Stretch) -> Vec<String> {
    let instructions = [INITIAL, UPDATE, TURN].iter().map(|text| estimate_text(text)).max().unwrap_or(0);
    // Twice the answer: once written, once read again as the notes before the next piece.
    let others = estimate_text(SUMMARIZER)
        + instructions
        + stretch.focus.as_deref().map_or(0, estimate_text)
        + stretch.previous.as_deref().map_or(0, estimate_text).max(stretch.max_tokens)
        + stretch.max_tokens;
    let tokens = stretch.window.saturating_sub(others).max(PIECE.min(stretch.window));
    let most = usize::try_from(tokens.saturating_mul(BYTES)).unwrap_or(usize::MAX).max(4);
    let mut pieces = vec![String::new()];
    for message in messages {
        let text = shortened(conversation_text(std::slice::from_ref(message)), most);
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let Some(piece) = pieces.last_mut() else { return pieces };
            let room = most.saturating_sub(piece.len() + BETWEEN.len());
            // A message stands whole in the next piece, unless it is longer than half of one.
            if !piece.is_empty() && rest.len() > room && (room < most / 2 || rest.len() <= most) {
                pieces.push(String::new());
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
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn shortened(text: String, piece: usize) -> String {
    if text.len() <= piece.saturating_mul(2) {
        return text;
    }
    let (head, tail) = (text.floor_char_boundary(piece / 2), text.ceil_char_boundary(text.len() - piece / 2));
    let missing = text[head..tail].chars().count();
    format!("{}\n(... {missing} characters are left out ...)\n{}", &text[..head], &text[tail..])
}

fn add(sum: &mut Usage, one: &Usage) {
    sum.input += one.input;
    sum.output += one.output;
    sum.cache_read += one.cache_read;
    sum.cache_write += one.cache_write;
    sum.total_tokens += one.total_tokens;
    let Cost { input, output, cache_read, cache_write, total } = one.cost;
    sum.cost.input += input;
    sum.cost.output += output;
    sum.cost.cache_read += cache_read;
    sum.cost.cache_write += cache_write;
    sum.cost.total += total;
}
