//! A dream over one memory, phase after phase.

use std::collections::BTreeMap;

use quipu_protocol::{NodeId, UnixMs};
use quipu_store::{Dreams, Promotion, SignalChange, SignalEntry, SignalKind, SignalPlace, TextSignal};

use super::daily::{daily_pieces, note_day};
use super::distil::{DistilFault, DistilSource, DistilledLine, distil_ask, distilled, done_before};
use super::gates::{DeepSettings, Gate};
use super::lasting::{LastingOwners, NewLine, append_lines};
use super::own::{DIARY_MARK, claim_hash};
use super::phases::{LightSettings, RemSettings, count, ranked, staged, themes, truths};
use super::recording::{key_of_piece, place_of_piece};
use super::selection::{LiveFiles, PromotedTexts, choose};
use super::state::{ChosenText, DreamPhase, DreamState, ReadNotes};
use super::tags::concept_tags;
use super::{DreamError, DreamHost, WriteResult};

/// Characters that `MEMORY.md` may have.
pub const LASTING_CHARACTERS: usize = 10_000;
/// What a piece of notes counts.
const DAILY_SCORE: f64 = 0.62;
/// Times that a file is written anew because somebody else was faster.
const TRIES: usize = 3;
const LASTING: &str = "MEMORY.md";
const DIARY: &str = "DREAMS.md";

/// How dreams work.
#[derive(Debug, Clone, PartialEq)]
pub struct DreamSettings {
    /// The light phase.
    pub light: LightSettings,
    /// The REM phase.
    pub rem: RemSettings,
    /// The deep phase.
    pub deep: DeepSettings,
    /// Characters that `MEMORY.md` may have: no more than the model sees of it.
    pub characters: usize,
}

impl Default for DreamSettings {
    fn default() -> Self {
        Self {
            light: LightSettings::default(),
            rem: RemSettings::default(),
            deep: DeepSettings::default(),
            characters: LASTING_CHARACTERS,
        }
    }
}

/// A dream over one memory.
pub struct Dream<'a> {
    /// The name of the memory.
    pub memory: &'a str,
    /// Where recalls and progress are kept.
    pub store: &'a dyn Dreams,
    /// Files, authors, models.
    pub host: &'a dyn DreamHost,
    /// How it works.
    pub settings: &'a DreamSettings,
    /// The time of this dream.
    pub now: UnixMs,
}

/// What a dream would do now.
#[derive(Debug, Clone, PartialEq)]
pub struct DreamPreview {
    /// What it would promote.
    pub chosen: Vec<ChosenText>,
    /// Records that it would rank.
    pub considered: usize,
    /// How many each gate would stop.
    pub stopped: Vec<(Gate, u32)>,
}

/// What a phase leaves.
#[derive(Default)]
struct PhaseEnd {
    changes: Vec<SignalChange>,
    promotions: Vec<Promotion>,
}

impl Dream<'_> {
    /// How far the last dream is.
    ///
    /// # Errors
    /// What the store says.
    pub async fn state(&self) -> Result<Option<DreamState>, DreamError> {
        let found = self.store.dream(self.memory).await?;
        Ok(found.and_then(|found| DreamState::parse(&found.state).ok()))
    }

    /// Makes one phase: of the dream that is under way, or the first of a new one. `None` where another process made it
    /// meanwhile.
    ///
    /// # Errors
    /// What stopped it. Made again, it goes on from the same phase.
    pub async fn step(&self) -> Result<Option<DreamState>, DreamError> {
        let found = self.store.dream(self.memory).await?;
        let from = found.as_ref().map_or(0, |found| found.step);
        // What cannot be read is begun anew.
        let known = found.and_then(|found| DreamState::parse(&found.state).ok());
        let mut state = match known {
            Some(state) if state.phase != DreamPhase::Done => state,
            before => DreamState::begin(format!("{}-{from}", self.now), self.now, before),
        };
        let end = match state.phase {
            DreamPhase::Light => self.light(&mut state).await?,
            DreamPhase::Rem => self.rem(&mut state).await?,
            DreamPhase::Deep => self.deep(&mut state).await?,
            DreamPhase::Distil => self.distil(&mut state).await,
            DreamPhase::Promote => self.promote(&mut state).await?,
            DreamPhase::Diary => self.diary(&mut state).await?,
            DreamPhase::Done => PhaseEnd::default(),
        };
        state.phase = state.phase.next();
        if state.phase == DreamPhase::Done {
            state.ended = Some(self.now);
        }
        let stored =
            self.store.advance_dream(self.memory, from, state.json()?, end.changes, end.promotions).await?;
        Ok(stored.then_some(state))
    }

    /// All phases that are left. `None` where another process went on with the dream.
    ///
    /// # Errors
    /// What stopped it. Run again, it goes on from the same phase.
    pub async fn run(&self) -> Result<Option<DreamState>, DreamError> {
        loop {
            match self.step().await? {
                Some(state) if state.phase == DreamPhase::Done => return Ok(Some(state)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }

    /// What a dream would do now. Nothing is written, and no model is asked.
    ///
    /// # Errors
    /// What the store says, or a file.
    pub async fn preview(&self) -> Result<DreamPreview, DreamError> {
        let before = self.state().await?;
        let mut state = DreamState::begin(String::new(), self.now, before);
        let signals = self.notes(&mut state).await?;
        let mut entries: BTreeMap<String, SignalEntry> = self
            .store
            .recalls(self.memory)
            .await?
            .into_iter()
            .map(|entry| (entry.key.clone(), entry))
            .collect();
        for signal in &signals {
            match entries.get_mut(&signal.key) {
                Some(entry) => entry.add(signal),
                None => {
                    entries.insert(signal.key.clone(), SignalEntry::first(signal));
                }
            }
        }
        let entries: Vec<SignalEntry> = entries.into_values().collect();
        self.choose(&mut state, &entries).await?;
        // Whether a model answers is not known before it is asked.
        let before = state.chosen.len();
        state.chosen.retain(|chosen| !is_said(&chosen.source.place));
        (state.chosen.len()..before).for_each(|_| count(&mut state.stopped, Gate::Said));
        Ok(DreamPreview { chosen: state.chosen, considered: state.considered, stopped: state.stopped })
    }

    /// The pieces of the notes of the last days, as signals. Notes that were read today and did not change are left out.
    async fn notes(&self, state: &mut DreamState) -> Result<Vec<TextSignal>, DreamError> {
        let settings = &self.settings.light;
        let day = self.host.day_of(self.now);
        let is_recent = |date: jiff::civil::Date| {
            let days = date
                .since(jiff::civil::Date::constant(1970, 1, 1))
                .map_or(i64::MIN, |span| i64::from(span.get_days()));
            (day - i64::from(settings.lookback)..=day).contains(&days)
        };
        let mut files = self.host.notes().await?;
        files.retain(|file| note_day(&file.path).is_some_and(is_recent));
        files.sort_by(|a, b| b.path.cmp(&a.path));
        state.read.retain(|path, _| files.iter().any(|file| file.path == *path));
        let fresh: Vec<_> = files
            .into_iter()
            .filter(|file| {
                let read = ReadNotes { bytes: file.bytes, modified: file.modified, day };
                state.read.get(&file.path) != Some(&read)
            })
            .collect();
        let most = (settings.limit * 4).max(20);
        let each = most.div_ceil(fresh.len().max(1)).max(6);
        let query = claim_hash(&format!("__dreaming_daily__:{day}"));
        let mut signals = Vec::new();
        for file in fresh {
            let text = match self.host.read(&file.path).await {
                Ok(Some(text)) => text,
                Ok(None) => continue,
                Err(error) => {
                    state.problem(error.to_string());
                    continue;
                }
            };
            state
                .read
                .insert(file.path.clone(), ReadNotes { bytes: file.bytes, modified: file.modified, day });
            for piece in daily_pieces(&text).into_iter().take(each) {
                if signals.len() >= most {
                    break;
                }
                signals.push(TextSignal {
                    key: key_of_piece(&file.path, &piece.text),
                    place: place_of_piece(&file.path, &piece),
                    tags: concept_tags(&piece.text),
                    text: piece.text,
                    kind: SignalKind::Daily,
                    score: DAILY_SCORE,
                    query: query.clone(),
                    day,
                    at: self.now,
                });
            }
        }
        Ok(signals)
    }

    async fn light(&self, state: &mut DreamState) -> Result<PhaseEnd, DreamError> {
        let signals = self.notes(state).await?;
        let mut entries = self.store.recalls(self.memory).await?;
        for signal in &signals {
            match entries.binary_search_by(|entry| entry.key.cmp(&signal.key)) {
                Ok(at) => entries[at].add(signal),
                Err(at) => entries.insert(at, SignalEntry::first(signal)),
            }
        }
        state.staged = staged(&entries, self.now, &self.settings.light);
        let mut changes: Vec<SignalChange> = signals.into_iter().map(SignalChange::Came).collect();
        changes.extend(state.staged.iter().map(|key| SignalChange::Light(key.clone(), self.now)));
        Ok(PhaseEnd { changes, promotions: Vec::new() })
    }

    async fn rem(&self, state: &mut DreamState) -> Result<PhaseEnd, DreamError> {
        let entries = self.store.recalls(self.memory).await?;
        state.themes = themes(&entries, self.now, &self.settings.rem);
        state.truths = truths(&entries, self.now, &self.settings.rem);
        let changes = state.truths.iter().map(|key| SignalChange::Rem(key.clone(), self.now)).collect();
        Ok(PhaseEnd { changes, promotions: Vec::new() })
    }

    async fn deep(&self, state: &mut DreamState) -> Result<PhaseEnd, DreamError> {
        let entries = self.store.recalls(self.memory).await?;
        self.choose(state, &entries).await?;
        Ok(PhaseEnd::default())
    }

    async fn choose(&self, state: &mut DreamState, entries: &[SignalEntry]) -> Result<(), DreamError> {
        let (passed, stopped) = ranked(entries, self.now, &self.settings.deep);
        (state.considered, state.stopped) = (entries.len(), stopped);
        let mut files = LiveFiles::default();
        let mut promoted = PromotedTexts::of(&self.store.promotions(self.memory).await?);
        // Notes first: what was said in a session needs a model to become a line.
        let (noted, said): (Vec<_>, Vec<_>) =
            passed.into_iter().partition(|(entry, _)| !is_said(&entry.place));
        for (entry, signals) in noted.into_iter().chain(said) {
            if state.chosen.len() >= self.settings.deep.limit {
                break;
            }
            match choose(self.host, &mut files, &promoted, (entry, &signals)).await {
                Ok(Ok(chosen)) => {
                    promoted.add(&chosen.source);
                    state.chosen.push(chosen);
                }
                Ok(Err(gate)) => count(&mut state.stopped, gate),
                Err(error) => state.problem(error.to_string()),
            }
        }
        Ok(())
    }

    async fn distil(&self, state: &mut DreamState) -> PhaseEnd {
        if state.chosen.is_empty() {
            return PhaseEnd::default();
        }
        let lasting = async {
            let old = self.host.read(LASTING).await?.unwrap_or_default();
            let owners = self.owners(&old).await?;
            Ok::<_, DreamError>((old, owners))
        };
        // A file that cannot be used is reported by the phase that wants to write it.
        let Ok((old, owners)) = lasting.await else { return PhaseEnd::default() };
        let ask = distil_ask(&old, &owners, &texts(&state.chosen), self.settings.characters);
        match self.host.distil(&ask).await {
            Ok(answer) => {
                state.asked = claim_hash(&ask.prompt);
                let answer = answer.map(|answer| {
                    let end = answer.floor_char_boundary(super::distil::ANSWER_BYTES + 1);
                    answer[..end].to_owned()
                });
                state.answer = answer;
            }
            Err(error) => state.problem(format!("no model distilled the texts: {error}")),
        }
        PhaseEnd::default()
    }

    async fn promote(&self, state: &mut DreamState) -> Result<PhaseEnd, DreamError> {
        self.recheck(state).await?;
        if state.chosen.is_empty() {
            return Ok(PhaseEnd::default());
        }
        let date = self.date();
        for _ in 0..TRIES {
            let old = match self.host.read(LASTING).await {
                Ok(old) => old,
                Err(error) => return unusable(state, error),
            };
            let text = old.clone().unwrap_or_default();
            let owners = match self.owners(&text).await {
                Ok(owners) => owners,
                Err(error) => return unusable(state, error),
            };
            let (new, lines) = self.plan(state, &text, &owners, &date);
            let Some(new) = new else { return Ok(PhaseEnd::default()) };
            if new != text {
                let mut nodes: Vec<NodeId> =
                    state.chosen.iter().flat_map(|chosen| chosen.nodes.clone()).collect();
                nodes.sort_unstable();
                nodes.dedup();
                match self.host.write(LASTING, old.as_deref(), &new, &nodes).await {
                    Ok(WriteResult::Written) => {}
                    Ok(WriteResult::Changed) => continue,
                    Err(error) => return unusable(state, error),
                }
            }
            let promotions = lines.iter().map(|line| self.promotion(state, line)).collect();
            let keys =
                lines.iter().flat_map(|line| &line.from).map(|at| state.chosen[*at].source.key.clone());
            let changes = keys.map(|key| SignalChange::Promoted(key, self.now)).collect();
            state.promoted = lines.into_iter().map(|line| line.line.text).collect();
            return Ok(PhaseEnd { changes, promotions });
        }
        state.problem(
            "MEMORY.md was changed each time that the dream wanted to write it; nothing was promoted",
        );
        Ok(PhaseEnd::default())
    }

    /// What became of the chosen texts since they were chosen: the store and the files may say something else now.
    async fn recheck(&self, state: &mut DreamState) -> Result<(), DreamError> {
        let entries = self.store.recalls(self.memory).await?;
        let (passed, _) = ranked(&entries, self.now, &self.settings.deep);
        let before = std::mem::take(&mut state.chosen);
        let mut files = LiveFiles::default();
        let mut promoted = PromotedTexts::of(&self.store.promotions(self.memory).await?);
        for chosen in &before {
            let entry = passed.iter().find(|(entry, _)| entry.key == chosen.source.key);
            let Some((entry, signals)) = entry else { continue };
            match choose(self.host, &mut files, &promoted, (entry, signals)).await {
                Ok(Ok(fresh)) if fresh.text == chosen.text => {
                    promoted.add(&fresh.source);
                    state.chosen.push(fresh);
                }
                Ok(Ok(_)) => count(&mut state.stopped, Gate::Gone),
                Ok(Err(gate)) => count(&mut state.stopped, gate),
                Err(error) => state.problem(error.to_string()),
            }
        }
        if state.chosen.len() != before.len() {
            // The answer counts texts that are not there any more.
            state.answer = None;
        }
        Ok(())
    }

    /// Whose the lines of `MEMORY.md` are, as its history says, whatever marks stand in it.
    async fn owners(&self, text: &str) -> Result<LastingOwners, DreamError> {
        if text.is_empty() {
            return Ok(LastingOwners::default());
        }
        Ok(LastingOwners::of(text, &self.host.classes(LASTING, text).await?))
    }

    /// The new text of the file with the lines that are new in it; `None` where nothing can be written.
    fn plan(
        &self,
        state: &mut DreamState,
        old: &str,
        owners: &LastingOwners,
        date: &str,
    ) -> (Option<String>, Vec<DistilledLine>) {
        let limit = self.settings.characters;
        if let Some(answer) = &state.answer {
            let chosen = texts(&state.chosen);
            // Written already, before the dream was cut off.
            if let Some(done) = done_before(old, owners, answer, &chosen) {
                state.diary = done.diary;
                return (Some(done.text), done.lines);
            }
            // Its names of entries are those of the file that was read.
            let is_same = claim_hash(&distil_ask(old, owners, &chosen, limit).prompt) == state.asked;
            let made = match is_same {
                true => distilled(old, owners, answer, &chosen, date, limit),
                false => Err(DistilFault::Changed),
            };
            match made {
                Ok(done) => {
                    state.diary = done.diary;
                    return (Some(done.text), done.lines);
                }
                Err(fault) => {
                    state.answer = None;
                    state.problem(format!("the answer of the model is not used: {fault}"));
                }
            }
        }
        // What was said in a session is no line as it is.
        let (noted, said): (Vec<usize>, Vec<usize>) =
            (0..state.chosen.len()).partition(|at| !is_said(&state.chosen[*at].source.place));
        said.iter().for_each(|_| count(&mut state.stopped, Gate::Said));
        let lines: Vec<NewLine> = noted
            .iter()
            .map(|at| &state.chosen[*at])
            .map(|chosen| NewLine {
                text: chosen.text.clone(),
                id: claim_hash(&chosen.text),
                sources: vec![chosen.place.clone()],
            })
            .collect();
        match append_lines(old, owners, &lines, date, limit) {
            Ok((text, present)) => {
                let line = |at: usize| DistilledLine {
                    line: lines[at].clone(),
                    how: "append",
                    from: vec![noted[at]],
                };
                (Some(text), present.into_iter().map(line).collect())
            }
            Err(fault) => {
                state.problem(fault.to_string());
                (None, Vec::new())
            }
        }
    }

    fn promotion(&self, state: &DreamState, line: &DistilledLine) -> Promotion {
        Promotion {
            id: line.line.id.clone(),
            line: line.line.text.clone(),
            how: line.how.to_owned(),
            at: self.now,
            sources: line.from.iter().map(|at| state.chosen[*at].source.clone()).collect(),
        }
    }

    /// What the model said in prose, below what is there. Failing changes nothing of what was promoted.
    async fn diary(&self, state: &mut DreamState) -> Result<PhaseEnd, DreamError> {
        if state.diary.is_empty() {
            return Ok(PhaseEnd::default());
        }
        let mark = format!("{DIARY_MARK}{} -->", state.id);
        for _ in 0..TRIES {
            let written = async {
                let old = self.host.read(DIARY).await?;
                let text = old.clone().unwrap_or_else(|| "# Dream Diary\n".to_owned());
                if text.contains(&mark) {
                    return Ok(WriteResult::Written);
                }
                let end = if text.ends_with('\n') { "" } else { "\n" };
                let new = format!("{text}{end}\n---\n\n{mark}\n*{}*\n\n{}\n", self.date(), state.diary);
                self.host.write(DIARY, old.as_deref(), &new, &[]).await
            };
            match written.await {
                Ok(WriteResult::Written) => return Ok(PhaseEnd::default()),
                Ok(WriteResult::Changed) => {}
                Err(error) => {
                    state.problem(format!("the diary was not written: {}", DreamError::to_string(&error)));
                    return Ok(PhaseEnd::default());
                }
            }
        }
        state.problem("DREAMS.md was changed each time that the dream wanted to write it");
        Ok(PhaseEnd::default())
    }

    fn date(&self) -> String {
        let days = self.host.day_of(self.now);
        let span = jiff::Span::new().try_days(days);
        let date = span.and_then(|span| jiff::civil::Date::constant(1970, 1, 1).checked_add(span));
        date.map_or_else(|_| "unknown".to_owned(), |date| date.to_string())
    }
}

/// A file that cannot be used ends a dream without a promotion; the store's errors stop it until it is run again.
fn unusable(state: &mut DreamState, error: DreamError) -> Result<PhaseEnd, DreamError> {
    match error {
        error @ DreamError::Store(_) => Err(error),
        error => {
            state.problem(format!("nothing was promoted: {error}"));
            Ok(PhaseEnd::default())
        }
    }
}

/// Whether a text was said in a session, and stands in no note.
const fn is_said(place: &SignalPlace) -> bool {
    matches!(place, SignalPlace::Node(_))
}

fn texts(chosen: &[ChosenText]) -> Vec<DistilSource> {
    chosen.iter().map(|one| DistilSource { text: one.text.clone(), place: one.place.clone() }).collect()
}
