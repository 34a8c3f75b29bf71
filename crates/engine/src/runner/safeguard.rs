//! The careful way to sum up: in parts, whose notes are made one; what fails is tried again, and what fails for good is named in
//! the notes. Notes that lack something are made again.

use std::time::Duration;

use quipu_machine::{Calls, Stretch};
use quipu_transcript::{
    IdentifierRule, Safeguard, SummaryDemands, SummaryUnit, TURN_MARK, empty_summary, estimate_text,
    flaw_lines, is_oversized, older_share, piece_tokens, summary_input, summary_parts, summary_pieces,
    summary_units,
};
use tokio::time::Instant;

use super::once::in_time;
use super::summarize::{
    Job, REPAIR, SAFEGUARD, SAFEGUARD_MERGE, SAFEGUARD_UPDATE, SummaryFailure, TURN, no_room, pieces,
};
use crate::calls::Caller;

const IDENTIFIERS: &str = include_str!("../prompts/safeguard-identifiers.md");

/// Characters of what is to be mended.
const MEND: usize = 1_600;
/// Messages at the end that a summary is mended by.
const LAST: usize = 10;

/// What became of the pieces so far.
#[derive(Default)]
struct Progress {
    /// How many were read.
    read: usize,
    /// What is said of those that were not.
    gaps: Vec<String>,
    /// Why the last of them was not.
    last: Option<SummaryFailure>,
    /// The notes on everything, as soon as there are some.
    whole: Option<String>,
}

impl Progress {
    fn missed(&mut self, messages: usize, what: &str, why: SummaryFailure) {
        self.gaps.push(format!("({messages} {what} could not be summarized.)"));
        self.last = Some(why);
    }
}

/// The calls of one summary.
struct Work<'a> {
    caller: &'a Caller,
    job: &'a Job,
    stretch: &'a Stretch,
    safeguard: &'a Safeguard,
}

impl Caller {
    /// Sums `stretch` up in the careful way, in time.
    pub(super) async fn safeguarded(
        &self,
        job: &Job,
        stretch: &Stretch,
        safeguard: &Safeguard,
        made: &mut Calls,
    ) -> Result<String, SummaryFailure> {
        let mut progress = Progress::default();
        let work = Work { caller: self, job, stretch, safeguard };
        let seconds = safeguard.timeout_seconds;
        let until = Instant::now().checked_add(Duration::from_secs(seconds));
        let notes = work.notes(made, &mut progress);
        let (notes, is_late) = match until {
            Some(until) => in_time(until, &job.cancel, notes).await,
            None => (notes.await, false),
        };
        match notes {
            // What was being mended is good enough.
            Err(SummaryFailure::Stopped) if is_late => progress.whole.ok_or_else(|| {
                SummaryFailure::Final(format!("the summary took longer than {seconds} seconds"))
            }),
            notes => notes,
        }
    }
}

impl Work<'_> {
    async fn notes(&self, made: &mut Calls, progress: &mut Progress) -> Result<String, SummaryFailure> {
        let Self { stretch, safeguard, .. } = self;
        let history = summary_input(&stretch.history, safeguard.recent_turns);
        let (mut units, turn) = (summary_units(history), summary_units(&stretch.turn));
        let mut notes = stretch.previous.clone();
        if units.is_empty() && turn.is_empty() {
            // A boundary all the same, or the same would be asked again and again.
            return Ok(notes.unwrap_or_else(empty_summary));
        }
        if pieces(std::iter::empty(), stretch, notes.as_deref()).is_none()
            && let Some(text) = notes.take()
        {
            // Notes of a larger model: there is no room for anything beside them, so they are summed up as well.
            let tokens = estimate_text(&text);
            units.insert(0, SummaryUnit { speaker: "user", messages: 1, text, tokens });
        }
        let older = older_share(&units, stretch.window, safeguard.history_percent);
        for half in [&units[..older], &units[older..]] {
            if !half.is_empty() {
                notes = self.staged(half, notes, made, progress).await?;
            }
        }
        let mut of_turn = None;
        if !turn.is_empty() {
            let texts = turn.iter().map(|unit| unit.text.clone());
            let texts = pieces(texts, stretch, None).ok_or_else(|| no_room(stretch))?;
            match self.caller.read(self.job, stretch, texts, None, [TURN, TURN], made).await {
                Ok(text) => {
                    progress.read += 1;
                    of_turn = text;
                }
                Err(why) => {
                    let why = tolerable(why)?;
                    let messages = turn.iter().map(|unit| unit.messages).sum();
                    progress.missed(messages, "messages at the start of the turn that continues below", why);
                }
            }
        }
        if progress.read == 0 {
            // Nothing was read: nothing goes.
            let nothing = || SummaryFailure::Failed("there was nothing to summarize".into());
            return Err(progress.last.take().unwrap_or_else(nothing));
        }
        let mut notes = notes.unwrap_or_else(|| "Nothing came before this turn.".into());
        progress.whole = Some(whole(&notes, &progress.gaps, of_turn.as_deref()));
        if !units.is_empty() {
            notes = self.mended(notes, &units, SummaryDemands::of(history), made).await?;
        }
        Ok(whole(&notes, &progress.gaps, of_turn.as_deref()))
    }

    /// Notes on these messages, on top of those before them: of one part, or of two that are made one.
    async fn staged(
        &self,
        units: &[SummaryUnit],
        mut before: Option<String>,
        made: &mut Calls,
        progress: &mut Progress,
    ) -> Result<Option<String>, SummaryFailure> {
        let piece = piece_tokens(units, self.stretch.window);
        let mut parts = Vec::new();
        for part in summary_parts(units, piece) {
            let part = &units[part];
            let mut notes = before.take();
            for range in summary_pieces(part, piece) {
                notes = self.piece(&part[range], notes, made, progress).await?;
            }
            parts.extend(notes);
        }
        if parts.len() < 2 {
            return Ok(parts.pop());
        }
        let text = |(at, text): (usize, &String)| format!("<part number=\"{}\">\n{text}\n</part>", at + 1);
        let all = parts.iter().enumerate().map(text).collect::<Vec<_>>().join("\n\n");
        let fits = pieces(std::iter::once(all), self.stretch, None).filter(|pieces| pieces.len() == 1);
        let Some(all) = fits.and_then(|mut pieces| pieces.pop_front()) else {
            return Ok(Some(joined(&parts)));
        };
        let instructions = self.instructions(SAFEGUARD_MERGE);
        let merged = self.caller.note_tried(self.job, self.stretch, &all, None, &instructions, made).await;
        match merged {
            Ok(text) => Ok(Some(text)),
            // Both are better than none.
            Err(why) => tolerable(why).map(|_| Some(joined(&parts))),
        }
    }

    /// Notes on a piece, on top of those before it. Where it cannot be read, the notes stay, and it is said that they lack it.
    async fn piece(
        &self,
        units: &[SummaryUnit],
        before: Option<String>,
        made: &mut Calls,
        progress: &mut Progress,
    ) -> Result<Option<String>, SummaryFailure> {
        let Self { caller, job, stretch, .. } = self;
        let instructions = [self.instructions(SAFEGUARD), self.instructions(SAFEGUARD_UPDATE)];
        let instructions = [instructions[0].as_str(), instructions[1].as_str()];
        let texts = units.iter().map(|unit| unit.text.clone());
        let texts = pieces(texts, stretch, before.as_deref()).ok_or_else(|| no_room(stretch))?;
        let why = match caller.read(job, stretch, texts, before.clone(), instructions, made).await {
            Ok(notes) => {
                progress.read += 1;
                return Ok(notes);
            }
            Err(why) => tolerable(why)?,
        };
        match units {
            // It stands alone in its piece.
            [unit] if is_oversized(unit, stretch.window) => {
                progress.gaps.push(format!(
                    "({} message of about {} tokens: left out of the notes)",
                    unit.speaker, unit.tokens
                ));
                progress.last = Some(why);
            }
            _ => progress.missed(units.iter().map(|unit| unit.messages).sum(), "messages", why),
        }
        Ok(before)
    }

    /// Notes that lack something, made again.
    async fn mended(
        &self,
        mut notes: String,
        units: &[SummaryUnit],
        mut demands: SummaryDemands,
        made: &mut Calls,
    ) -> Result<String, SummaryFailure> {
        if self.safeguard.identifiers == IdentifierRule::Off {
            demands.identifiers.clear();
        }
        let last = units[units.len().saturating_sub(LAST)..].iter().map(|unit| unit.text.clone());
        let text = pieces(last, self.stretch, Some(&notes)).and_then(|mut pieces| pieces.pop_back());
        let Some(text) = text else { return Ok(notes) };
        for _ in 0..self.safeguard.quality_retries.min(Safeguard::MOST_RETRIES) {
            let flaws = demands.flaws(&notes);
            if flaws.is_empty() {
                break;
            }
            let lines: String = flaw_lines(&flaws).chars().take(MEND).collect();
            let instructions = format!("{}\n{lines}", REPAIR.trim_end());
            let Self { caller, job, stretch, .. } = self;
            match caller.note_tried(job, stretch, &text, Some(&notes), &instructions, made).await {
                Ok(better) if demands.flaws(&better).len() <= flaws.len() => notes = better,
                Ok(_) => {}
                Err(SummaryFailure::Stopped) => return Err(SummaryFailure::Stopped),
                // The notes are there.
                Err(SummaryFailure::TooLong(_) | SummaryFailure::Failed(_) | SummaryFailure::Final(_)) => {
                    break;
                }
            }
        }
        Ok(notes)
    }

    fn instructions(&self, text: &str) -> String {
        match self.safeguard.identifiers {
            IdentifierRule::Strict => format!("{}\n\n{}", text.trim_end(), IDENTIFIERS.trim_end()),
            IdentifierRule::Off => text.trim_end().to_owned(),
        }
    }
}

/// A failure that leaves the other pieces as they are.
fn tolerable(why: SummaryFailure) -> Result<SummaryFailure, SummaryFailure> {
    match why {
        SummaryFailure::Stopped | SummaryFailure::Final(_) => Err(why),
        SummaryFailure::TooLong(_) | SummaryFailure::Failed(_) => Ok(why),
    }
}

fn joined(parts: &[String]) -> String {
    parts.join("\n\n")
}

fn whole(notes: &str, gaps: &[String], turn: Option<&str>) -> String {
    let gaps = if gaps.is_empty() { String::new() } else { format!("{}\n\n", gaps.join("\n")) };
    let turn = turn.map_or_else(String::new, |turn| format!("{TURN_MARK}{turn}"));
    format!("{gaps}{notes}{turn}")
}
