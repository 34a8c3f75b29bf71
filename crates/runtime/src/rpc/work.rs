//! Commands that change how a session goes on, and those that wait for something to end.

use std::sync::Arc;

use quipu_host::{callable_models, cycled_models};
use quipu_protocol::{
    AbortTarget, Ack, Command, CompactionResult, Event, Model, Refusal, RunId, Setting, Thinking,
    clamp_level, level_name, levels, parse_level,
};
use quipu_rpc::{
    CommandLabel, CompactionForm, CycledModel, ModelForm, ShellForm, data_text, failed_compaction_lines,
};

use super::active::{ActiveSession, PendingChoice};
use super::pump::entry_name;
use super::state::{CommandOutcome, CommandRefusal, FrontState};

const TOO_SMALL: &str = "Nothing to compact (session too small)";

impl FrontState {
    /// Stops what runs, and waits until it is over.
    pub(super) async fn abort(&self, active: &ActiveSession) {
        for target in [AbortTarget::Run, AbortTarget::Compaction] {
            // A session that is closed has nothing to abort.
            drop(active.session.send(Command::Abort { target }).await);
        }
        active.settled().await;
    }

    pub(super) async fn abort_retry(&self, active: &ActiveSession) -> CommandOutcome {
        if active.snapshot().await?.retry.is_some() {
            active.session.abort().await?;
        }
        Ok(None)
    }

    pub(super) async fn abort_shells(&self, active: &ActiveSession) -> CommandOutcome {
        for shell in active.snapshot().await?.shells {
            let target = AbortTarget::Shell(shell.id);
            active.session.send(Command::Abort { target }).await?;
        }
        Ok(None)
    }

    pub(super) async fn compact(&self, active: &ActiveSession, focus: Option<String>) -> CommandOutcome {
        self.abort(active).await;
        let mut ended = active.shown.listen(|event| matches!(event, Event::CompactionEnded { .. }));
        match active.session.compact(focus).await {
            Ok(_) => {}
            Err(Refusal::NothingToCompact) => {
                let why = match self.read_entries(active).await {
                    Ok((entries, _)) if entries.ends_compacted() => "Already compacted",
                    _ => TOO_SMALL,
                };
                for line in failed_compaction_lines(why) {
                    self.output.send(line).await;
                }
                return Err(why.into());
            }
            Err(refused) => return Err(refused.to_string().into()),
        }
        let Some(envelope) = ended.recv().await else { return Err(Refusal::Closed.to_string().into()) };
        let Event::CompactionEnded { result, .. } = &envelope.event else { return Ok(None) };
        match &**result {
            CompactionResult::Done { node, compaction, tokens_after } => {
                // One that keeps nothing names itself.
                let first = compaction.first_kept.unwrap_or(*node);
                let first = entry_name(&*active.store, first).await;
                Ok(Some(data_text(&CompactionForm::of(compaction, &first, *tokens_after))))
            }
            CompactionResult::Aborted => Err("Compaction cancelled".into()),
            CompactionResult::Failed(why) => Err(why.clone().into()),
        }
    }

    /// Runs a line of a person in the shell, and shows what it prints.
    pub(super) async fn shell(
        &self,
        active: &ActiveSession,
        label: &CommandLabel,
        line: String,
        hidden: bool,
    ) -> CommandOutcome {
        let mut events = active
            .shown
            .listen(|event| matches!(event, Event::ShellOutput { .. } | Event::ShellEnded { .. }));
        let run: RunId = match active.session.send(Command::Shell { line, hidden }).await? {
            Ack::Started(run) => run,
            // A hook did what was wanted.
            _ => return Ok(None),
        };
        let mut seen = String::new();
        while let Some(envelope) = events.recv().await {
            match &envelope.event {
                Event::ShellOutput { id, tail } if *id == run => {
                    self.show_output(label, &seen, tail).await;
                    seen = tail.to_string();
                }
                Event::ShellEnded { id, result, store_error } if *id == run => {
                    self.show_output(label, &seen, &result.output).await;
                    return match store_error {
                        Some(why) => Err(format!("the line ran, but it could not be stored: {why}").into()),
                        None => Ok(Some(data_text(&ShellForm::from(&**result)))),
                    };
                }
                _ => {}
            }
        }
        Err(Refusal::Closed.to_string().into())
    }

    async fn show_output(&self, label: &CommandLabel, seen: &str, now: &str) {
        let more = added(seen, now);
        if !more.is_empty() {
            self.output.send(label.shell_update(more)).await;
        }
    }

    /// Changes something of the session. While it is at work this waits for a place between two turns: the program is told
    /// that it was taken, and shown what it wants.
    pub(super) async fn change(
        &self,
        active: &ActiveSession,
        command: Command,
        want: impl FnOnce(&mut PendingChoice),
        unwant: impl FnOnce(&mut PendingChoice) + Send + 'static,
    ) -> CommandOutcome {
        if !active.is_busy() {
            return active.session.send(command).await.map(|_| None).map_err(Into::into);
        }
        active.shown.want(want);
        let (session, shown, output) = (active.session.clone(), active.shown.clone(), self.output.clone());
        // Ends with the session at the latest.
        tokio::spawn(async move {
            let sent = session.send(command).await;
            shown.want(unwant);
            if let Err(refused) = sent {
                let notice =
                    quipu_protocol::Ui::Notice { notice: quipu_protocol::Notice::note(refused.to_string()) };
                output.send(quipu_rpc::ui_line("change", &notice)).await;
            }
        });
        Ok(None)
    }

    async fn set_model_to(&self, active: &ActiveSession, model: &Arc<Model>) -> CommandOutcome {
        let setting = Setting::Model { provider: model.provider.clone(), id: model.id.clone() };
        let wanted = model.clone();
        let want = move |all: &mut PendingChoice| all.model = Some(wanted);
        self.change(active, Command::Set { setting }, want, |all| all.model = None).await
    }

    async fn set_thinking_to(&self, active: &ActiveSession, level: Thinking) -> CommandOutcome {
        let setting = Setting::Thinking { level };
        let want = move |all: &mut PendingChoice| all.thinking = Some(level);
        self.change(active, Command::Set { setting }, want, |all| all.thinking = None).await
    }

    /// The model and the level of thinking as they are, or will be.
    pub(super) async fn model_of(
        &self,
        active: &ActiveSession,
    ) -> Result<(Arc<Model>, Thinking), CommandRefusal> {
        let snapshot = active.snapshot().await?;
        let PendingChoice { model, thinking, .. } = active.shown.wanted();
        let model = model.unwrap_or(snapshot.model);
        let thinking = clamp_level(&model, thinking.unwrap_or(snapshot.thinking));
        Ok((model, thinking))
    }

    pub(super) async fn set_model(&self, active: &ActiveSession, provider: &str, id: &str) -> CommandOutcome {
        let models = self.callable_models().await?;
        let model = models.iter().find(|model| model.provider == provider && model.id == id);
        let model = model.ok_or_else(|| format!("Model not found: {provider}/{id}"))?;
        self.set_model_to(active, model).await?;
        Ok(Some(data_text(&ModelForm::from(&**model))))
    }

    pub(super) async fn cycle_model(&self, active: &ActiveSession) -> CommandOutcome {
        let (home, cwd) = (self.home.clone(), active.session.cwd().to_owned());
        let is_scoped = !self.home.config_in(&cwd).enabled_models.is_empty();
        let models = tokio::task::spawn_blocking(move || cycled_models(&home, &cwd)).await;
        let models = models.map_err(|error| error.to_string())?.map_err(|failure| self.worded(&failure))?;
        if models.len() <= 1 {
            return Ok(Some("null".into()));
        }
        let (now, thinking) = self.model_of(active).await?;
        let at = models.iter().position(|(model, _)| model.provider == now.provider && model.id == now.id);
        let (model, level) = &models[at.map_or(0, |at| (at + 1) % models.len())];
        self.set_model_to(active, model).await?;
        if let Some(level) = level {
            self.set_thinking_to(active, *level).await?;
        }
        let thinking_level = clamp_level(model, level.unwrap_or(thinking));
        let cycled = CycledModel { model: ModelForm::from(&**model), thinking_level, is_scoped };
        Ok(Some(data_text(&cycled)))
    }

    async fn callable_models(&self) -> Result<Vec<Arc<Model>>, String> {
        let home = self.home.clone();
        let models = tokio::task::spawn_blocking(move || callable_models(&home)).await;
        models.map_err(|error| error.to_string())
    }

    pub(super) async fn available_models(&self) -> CommandOutcome {
        let models = self.callable_models().await?;
        let forms: Vec<String> = models.iter().map(|model| data_text(&ModelForm::from(&**model))).collect();
        Ok(Some(format!("{{\"models\":[{}]}}", forms.join(","))))
    }

    pub(super) async fn set_thinking(&self, active: &ActiveSession, level: &str) -> CommandOutcome {
        let level = parse_level(level).ok_or_else(|| format!("Unknown thinking level: {level}"))?;
        self.set_thinking_to(active, level).await
    }

    pub(super) async fn cycle_thinking(&self, active: &ActiveSession) -> CommandOutcome {
        let (model, now) = self.model_of(active).await?;
        let levels = levels(&model);
        if levels.len() <= 1 {
            return Ok(Some("null".into()));
        }
        let at = levels.iter().position(|level| *level == now);
        let next = levels[at.map_or(0, |at| (at + 1) % levels.len())];
        self.set_thinking_to(active, next).await?;
        Ok(Some(format!("{{\"level\":\"{}\"}}", level_name(next))))
    }

    pub(super) async fn thinking_levels(&self, active: &ActiveSession) -> CommandOutcome {
        let (model, _) = self.model_of(active).await?;
        Ok(Some(data_text(&serde_json::json!({ "levels": levels(&model) }))))
    }
}

/// What was printed after the end of `seen`, of which `now` may hold only the last part. Where it printed more meanwhile than is
/// kept, what is between is left out.
fn added<'a>(seen: &str, now: &'a str) -> &'a str {
    if let Some(more) = now.strip_prefix(seen) {
        return more;
    }
    // At the end more is kept than before.
    if let Some(at) = now.rfind(seen) {
        return &now[at + seen.len()..];
    }
    let mut from = seen.len().saturating_sub(now.len());
    while from < seen.len() {
        // The longest end of the one that the other begins with.
        if seen.is_char_boundary(from)
            && let Some(more) = now.strip_prefix(&seen[from..])
        {
            return more;
        }
        let next = now.as_bytes().first().copied();
        from += 1;
        let rest = &seen.as_bytes()[from..];
        match rest.iter().position(|byte| Some(*byte) == next) {
            Some(skipped) => from += skipped,
            None => break,
        }
    }
    // The final text may be an end of what was seen already.
    if seen.ends_with(now) { "" } else { now }
}

#[cfg(test)]
mod tests {
    use super::added;

    #[test]
    fn added_is_what_follows_the_end_that_was_seen() {
        let check =
            |seen: &str, now: &str, expect: &str| assert_eq!(added(seen, now), expect, "{seen:?} {now:?}");
        check("", "ab", "ab");
        check("ab", "abc", "c");
        check("ab", "ab", "");
        // The beginning was let go of.
        check("abcdef", "defgh", "gh");
        check("aaab", "abab", "ab");
        check("xéy", "éyz", "z");
        // More was printed than is kept.
        check("abc", "xyz", "xyz");
        check("abcdef", "def", "");
        // The end holds more than was shown last.
        check("def", "abcdefg", "g");
    }
}
