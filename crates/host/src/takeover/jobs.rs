//! Jobs, into jobs with schedules.

use std::path::Path;

use quipu_protocol::{AgentId, UnixMs};
use quipu_schedule::Recurrence;
use quipu_store::{JobKey, Jobs};
use serde_json::Value;

use super::{StateOutcome, StatePart, Takeover, TakeoverMode};
use crate::scheduled_job::{JobTarget, PromptWork, ScheduledJob, ScheduledWork};
use crate::{Failure, now};

/// What the keys of such jobs begin with.
pub(super) const KEYS: &str = "openclaw/";
/// Jobs that are taken at most.
const JOBS: usize = 5_000;

/// A job as it is here, and what of it is not.
struct TakenJob {
    job: ScheduledJob,
    is_paused: bool,
    notes: Vec<String>,
}

impl Takeover<'_> {
    /// Takes jobs.
    ///
    /// # Errors
    /// What the store says.
    pub async fn jobs(&mut self, store: &dyn Jobs) -> Result<(), Failure> {
        let Some(document) = self.state.jobs.clone() else { return Ok(()) };
        let file = &document.path;
        let Some(jobs) = document.value.get("jobs").and_then(Value::as_array) else {
            let why = "it has no list `jobs`".to_owned();
            self.report(StatePart::Job, file, "", StateOutcome::Failed(why));
            return Ok(());
        };
        if jobs.len() > JOBS {
            let why = format!("it has more than {JOBS} jobs; the others are left out");
            self.report(StatePart::Job, file, "", StateOutcome::Failed(why));
        }
        for (at, theirs) in jobs.iter().take(JOBS).enumerate() {
            let text = |name: &str| theirs.get(name).and_then(Value::as_str).unwrap_or_default();
            let id = if text("id").is_empty() { text("jobId") } else { text("id") };
            let shown = if id.is_empty() { format!("jobs[{at}]") } else { id.to_owned() };
            let named = match text("name") {
                "" => shown.clone(),
                name => format!("{shown} ({name})"),
            };
            if id.is_empty() {
                let why = "it has no id".to_owned();
                self.report(StatePart::Job, file, &named, StateOutcome::Left(why));
                continue;
            }
            match self.taken(theirs) {
                Ok(taken) => {
                    self.put_job(store, file, &named, id, taken).await?;
                }
                Err(why) => self.report(StatePart::Job, file, &named, StateOutcome::Left(why)),
            }
        }
        Ok(())
    }

    async fn put_job(
        &mut self,
        store: &dyn Jobs,
        file: &Path,
        named: &str,
        id: &str,
        TakenJob { job, is_paused, notes }: TakenJob,
    ) -> Result<(), Failure> {
        let name = format!("{KEYS}{id}");
        let key = JobKey::from(name.as_str());
        let there = store.job(&key).await?;
        if let Some(there) = there {
            let is_like = ScheduledJob::of_job(&there).is_some_and(|there| job.is_like(&there));
            let outcome = if is_like { StateOutcome::Same(name) } else { StateOutcome::Kept(name) };
            self.report(StatePart::Job, file, named, outcome);
            return Ok(());
        }
        let new = match job.new_job(key, now()) {
            Ok(new) => new,
            Err(error) => {
                self.report(StatePart::Job, file, named, StateOutcome::Left(error.to_string()));
                return Ok(());
            }
        };
        if let Err(error) = new.check() {
            self.report(StatePart::Job, file, named, StateOutcome::Left(error.to_string()));
            return Ok(());
        }
        if self.mode == TakeoverMode::Write {
            let is_new = match is_paused {
                true => store.put_paused_job(new, now()).await?,
                false => store.put_new_job(new, now()).await?,
            };
            if !is_new {
                self.report(StatePart::Job, file, named, StateOutcome::Kept(name));
                return Ok(());
            }
        }
        let label = if is_paused { format!("{name}, paused") } else { name };
        self.report(StatePart::Job, file, named, StateOutcome::Added(label));
        for note in notes {
            self.report(StatePart::Job, file, named, StateOutcome::Note(note));
        }
        Ok(())
    }

    /// A job in our words, or why there is none.
    fn taken(&self, theirs: &Value) -> Result<TakenJob, String> {
        let mut notes = Vec::new();
        let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let empty = Value::Null;
        let payload = theirs.get("payload").unwrap_or(&empty);
        let (prompt, model) = match text(payload, "kind").as_deref() {
            Some("agentTurn") => (text(payload, "message"), text(payload, "model")),
            Some("systemEvent") => {
                notes.push("it runs in a session of its own, and not in the main conversation".to_owned());
                (text(payload, "text"), None)
            }
            Some(kind) => return Err(format!("payloads of the kind {:?} are not supported", short(kind))),
            None => return Err("it has no payload".to_owned()),
        };
        let prompt = prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or("its prompt is empty")?;
        for name in ["fallbacks", "thinking", "timeoutSeconds", "lightContext", "toolsAllow"] {
            if payload.get(name).is_some_and(|value| !value.is_null() && *value != Value::Bool(false)) {
                notes.push(format!("its {name} is not taken"));
            }
        }
        match text(theirs, "sessionTarget").as_deref() {
            None | Some("main" | "isolated") => {}
            Some(_) => notes.push("each run has a session of its own".to_owned()),
        }
        if theirs.get("agentId").is_some_and(|id| !id.is_string() && !id.is_null()) {
            return Err("its agentId is no text, so whose tools it has cannot be known".to_owned());
        }
        let named = text(theirs, "agentId").filter(|id| !id.trim().is_empty());
        if named.is_none() && self.is_default_unknown {
            return Err("it names no agent, and which one is the default one cannot be known".to_owned());
        }
        let agent =
            named.map_or_else(|| self.default_agent.clone(), |id| AgentId::normalise(&id).to_string());
        let cwd = self.workspaces.get(&agent).and_then(|path| path.to_str());
        let cwd = cwd.ok_or_else(|| {
            format!("its agent `{}` has no directory here that it could run in", short(&agent))
        })?;
        let (when, jitter_ms) = recurrence(theirs)?;
        let target = target(theirs, &mut notes)?;
        notes
            .push("without a budget it runs only models that cost nothing; add it again with one".to_owned());
        let work = ScheduledWork::Prompt(PromptWork {
            model,
            agent: Some(agent.clone()),
            ..PromptWork::new(prompt, cwd)
        });
        let is_paused = theirs.get("enabled").is_some_and(|enabled| *enabled != Value::Bool(true));
        if theirs.get("enabled").is_some_and(|enabled| !enabled.is_boolean()) {
            notes.push("its enabled is neither true nor false, so it is paused".to_owned());
        }
        Ok(TakenJob { job: ScheduledJob { when, jitter_ms, work, target }, is_paused, notes })
    }
}

fn short(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(64).collect()
}

/// When it is due.
fn recurrence(theirs: &Value) -> Result<(Recurrence, u64), String> {
    let empty = Value::Null;
    let schedule = theirs.get("schedule").unwrap_or(&empty);
    let text = |name: &str| schedule.get(name).and_then(Value::as_str).map(str::trim);
    let number = |name: &str| schedule.get(name).and_then(Value::as_i64);
    match text("kind") {
        Some("at") => {
            let at = number("atMs").or_else(|| text("at").and_then(time));
            // One beyond all calendars cannot be shown or written either.
            let at = at.filter(|at| jiff::Timestamp::from_millisecond(*at).is_ok());
            let at = at.ok_or("its time cannot be read")?;
            Ok((Recurrence::At(at), 0))
        }
        Some("every") => {
            let every_ms = number("everyMs").and_then(|every| u64::try_from(every).ok());
            let every_ms = every_ms.ok_or("its interval cannot be read")?;
            let created = || theirs.get("createdAtMs").and_then(Value::as_i64);
            let anchor = number("anchorMs").or_else(created).unwrap_or_else(now);
            Ok((Recurrence::Every { every_ms, anchor }, 0))
        }
        Some("cron") => {
            let fields: Vec<&str> = text("expr").unwrap_or_default().split_whitespace().collect();
            // The first of six are seconds.
            let fields = match fields.as_slice() {
                ["0", rest @ ..] if fields.len() == 6 => rest,
                all if all.len() == 6 => return Err("its expression has seconds".to_owned()),
                all => all,
            };
            let zone = text("tz").filter(|zone| !zone.is_empty()).map(str::to_owned);
            let here = || jiff::tz::TimeZone::system().iana_name().map(str::to_owned);
            let zone = zone.or_else(here).ok_or("the time zone of this machine has no name")?;
            let most = u64::try_from(quipu_schedule::JITTER_MOST.as_millis()).unwrap_or(u64::MAX);
            let jitter =
                number("staggerMs").and_then(|jitter| u64::try_from(jitter).ok()).unwrap_or_default();
            Ok((Recurrence::Cron { expression: fields.join(" "), zone }, jitter.min(most)))
        }
        Some(kind) => Err(format!("schedules of the kind {:?} are not supported", short(kind))),
        None => Err("it has no schedule".to_owned()),
    }
}

/// A time; without a zone it is one of UTC.
fn time(text: &str) -> Option<UnixMs> {
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return Some(time.as_millisecond());
    }
    let time = text.parse::<jiff::civil::DateTime>().ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Where its answer goes.
fn target(theirs: &Value, notes: &mut Vec<String>) -> Result<JobTarget, String> {
    let empty = Value::Null;
    let delivery = theirs.get("delivery").unwrap_or(&empty);
    match delivery.get("mode").and_then(Value::as_str) {
        Some("none") => Ok(JobTarget::Nobody),
        Some("webhook") => {
            let to = delivery.get("to").and_then(Value::as_str).unwrap_or_default();
            JobTarget::webhook(to).map_err(|error| error.to_string())
        }
        mode => {
            if mode == Some("announce") {
                notes.push("its answer goes to the terminal: there are no chat channels".to_owned());
            }
            Ok(JobTarget::Terminal)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schedules_are_said_in_our_words() {
        let check = |schedule: Value, expect: Option<(Recurrence, u64)>| {
            let job = json!({ "createdAtMs": 5, "schedule": schedule });
            assert_eq!(recurrence(&job).ok(), expect, "{job}");
        };
        let at = Recurrence::At(1_770_000_000_000);
        check(json!({ "kind": "at", "at": "2026-02-02T02:40:00Z" }), Some((at.clone(), 0)));
        check(json!({ "kind": "at", "at": "2026-02-02T02:40:00" }), Some((at.clone(), 0)));
        check(json!({ "kind": "at", "atMs": 1_770_000_000_000_i64 }), Some((at, 0)));
        let every = |anchor| Some((Recurrence::Every { every_ms: 60_000, anchor }, 0));
        check(json!({ "kind": "every", "everyMs": 60_000, "anchorMs": 7 }), every(7));
        check(json!({ "kind": "every", "everyMs": 60_000 }), every(5));
        let cron = Recurrence::Cron { expression: "0 7 * * 1-5".into(), zone: "Europe/Berlin".into() };
        let zone = "Europe/Berlin";
        check(json!({ "kind": "cron", "expr": "0 7 * * 1-5", "tz": zone }), Some((cron.clone(), 0)));
        check(
            json!({ "kind": "cron", "expr": "0 0 7 * * 1-5", "tz": zone, "staggerMs": 9 }),
            Some((cron, 9)),
        );
        for broken in [
            json!({ "kind": "at", "at": "soon" }),
            json!({ "kind": "at", "atMs": i64::MAX }),
            json!({ "kind": "every", "everyMs": -1 }),
            json!({ "kind": "cron", "expr": "30 0 7 * * 1", "tz": zone }),
            json!({ "kind": "moon" }),
            json!(7),
        ] {
            check(broken, None);
        }
    }
}
