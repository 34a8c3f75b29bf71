//! What is to be changed for an agent: values, nothing is written here.

use std::path::{Path, PathBuf};

use crate::agents::{Agent, SetupContext};
use crate::document::Content;
use crate::edit::{Container, EditError, Placement};
use crate::error::SetupError;
use crate::files::{FoundFile, find};
use crate::ledger::{FileRecord, Ledger, PieceRecord, RecordContent};
use crate::piece::{Piece, PieceContent, PieceState, sha256};
use crate::piece_state::state_of;
use crate::recognition::Recognition;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// The pieces are there.
    Present,
    /// Nothing of ours is there.
    Absent,
}

/// What is to be changed for an agent, and how it stands now.
#[derive(Debug)]
pub struct AgentPlan {
    /// The agent's name.
    pub agent: &'static str,
    /// How its pieces stand.
    pub pieces: Vec<PieceReport>,
    /// Files that change.
    pub changes: Vec<FileChange>,
    /// Why nothing is changed.
    pub problems: Vec<SetupError>,
    /// What the ledger lists of each file then.
    pub(crate) records: Vec<(PathBuf, Option<FileRecord>)>,
}

/// How a piece stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PieceReport {
    /// The file.
    pub file: PathBuf,
    /// Its place there.
    pub label: String,
    /// How it stands.
    pub state: PieceState,
    /// The program that an outdated one names.
    pub old_program: Option<String>,
    /// What setup would write in its place, where the user's own stands in a JSON file.
    pub wanted: Option<String>,
}

/// A file that changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The file.
    pub path: PathBuf,
    /// Its text after the change; `None` when it is removed.
    pub after: Option<String>,
    pub(crate) found: FoundFile,
    /// Directories that are removed with it, when they are empty.
    pub(crate) directories: Vec<PathBuf>,
}

impl FileChange {
    /// Its text now; `None` where it is not there.
    pub fn before(&self) -> Option<&str> {
        self.found.text.as_deref()
    }

    /// The file that is written, behind links.
    pub fn target(&self) -> &Path {
        &self.found.target
    }
}

/// How an agent stands as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentState {
    /// Everything is there.
    Complete,
    /// Nothing is there.
    Absent,
    /// Something is missing.
    Partial,
    /// Something names another program, or has an earlier form.
    Outdated,
    /// Something was changed by the user and is left alone.
    Changed,
    /// A file cannot be used.
    Unusable,
    /// There is nothing that could be set up.
    Empty,
}

impl AgentState {
    /// Its word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Absent => "absent",
            Self::Partial => "partial",
            Self::Outdated => "outdated",
            Self::Changed => "changed",
            Self::Unusable => "unusable",
            Self::Empty => "empty",
        }
    }
}

impl AgentPlan {
    /// How the agent stands now.
    pub fn state(&self) -> AgentState {
        let has = |state: PieceState| self.pieces.iter().any(|piece| piece.state == state);
        let is_absent = self.pieces.iter().all(|piece| piece.state == PieceState::Missing);
        match () {
            () if !self.problems.is_empty() => AgentState::Unusable,
            () if self.pieces.is_empty() => AgentState::Empty,
            () if is_absent => AgentState::Absent,
            () if has(PieceState::Changed) => AgentState::Changed,
            () if has(PieceState::Outdated) => AgentState::Outdated,
            () if has(PieceState::Missing) => AgentState::Partial,
            () => AgentState::Complete,
        }
    }

    /// Whether there is nothing to write.
    pub fn is_done(&self) -> bool {
        self.changes.is_empty()
    }
}

/// A file while its change is planned.
#[derive(Clone)]
struct FilePlan<'a> {
    path: &'a Path,
    found: FoundFile,
    text: Option<String>,
    record: FileRecord,
}

/// What is to be changed for an agent.
pub(crate) fn plan(context: &SetupContext<'_>, ledger: &Ledger, agent: &Agent, goal: Goal) -> AgentPlan {
    let mut plan = AgentPlan {
        agent: agent.name,
        pieces: Vec::new(),
        changes: Vec::new(),
        problems: Vec::new(),
        records: Vec::new(),
    };
    let pieces: Vec<Piece> = agent.pieces.iter().map(|piece| in_its_file(ledger, agent, piece)).collect();
    let mut paths: Vec<&Path> = Vec::new();
    let listed = ledger.files.iter().filter(|record| goal == Goal::Absent && is_plausible(agent, record));
    for path in pieces.iter().map(|piece| &*piece.file).chain(listed.map(|record| &*record.path)) {
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    let mut is_blocked = false;
    for path in paths {
        let wanted: Vec<&Piece> = pieces.iter().filter(|piece| piece.file == path).collect();
        if let Err(problem) = plan_file(context, ledger, agent, goal, path, &wanted, &mut plan) {
            plan.problems.push(problem);
            is_blocked |= !wanted.is_empty();
        }
    }
    // The files of an agent are changed all or none; one that it had at another place does not count.
    if is_blocked {
        plan.changes.clear();
        plan.records.clear();
    }
    plan
}

/// The piece in the file beside its own that an earlier setup chose.
fn in_its_file(ledger: &Ledger, agent: &Agent, piece: &Piece) -> Piece {
    let is_other = |record: &&FileRecord| {
        record.agent == agent.name
            && record.path.parent() == piece.file.parent()
            && is_plausible(agent, record)
            && record.path.is_file()
            && record.pieces.iter().any(|old| match (&old.content, &piece.content) {
                (RecordContent::Value { placement: old, .. }, PieceContent::Value { placement, .. }) => {
                    old == placement
                }
                _ => false,
            })
    };
    let file = match ledger.record(agent.name, &piece.file) {
        Some(_) => piece.file.clone(),
        None => {
            ledger.files.iter().find(is_other).map_or_else(|| piece.file.clone(), |other| other.path.clone())
        }
    };
    Piece { file, content: piece.content.clone() }
}

/// A file that the ledger lists counts only if it has the name of one that the agent has.
fn is_plausible(agent: &Agent, record: &FileRecord) -> bool {
    let name = record.path.file_name().unwrap_or_default().to_string_lossy();
    record.agent == agent.name && agent.files.iter().any(|file| *file == name)
}

fn plan_file(
    context: &SetupContext<'_>,
    ledger: &Ledger,
    agent: &Agent,
    goal: Goal,
    path: &Path,
    wanted: &[&Piece],
    plan: &mut AgentPlan,
) -> Result<(), SetupError> {
    let roots = std::iter::once(context.user_home).chain(agent.roots.iter().map(PathBuf::as_path));
    let found = find(path, &roots.collect::<Vec<_>>())?;
    let listed = ledger.record(agent.name, path);
    let record = listed.cloned().unwrap_or_else(|| FileRecord {
        agent: agent.name.to_owned(),
        path: path.to_owned(),
        created: found.text.is_none(),
        directories: found.missing.clone(),
        containers: Vec::new(),
        pieces: Vec::new(),
    });
    let mut file = FilePlan { path, text: found.text.clone(), found, record };
    // What was removed by others is made anew.
    if file.found.text.is_none() {
        file.record.created = true;
        file.record.containers.clear();
        let made = file.found.missing.iter().filter(|made| !file.record.directories.contains(made));
        file.record.directories = made.chain(&file.record.directories).cloned().collect();
    }
    // Where nothing of ours is left, what is there now is the user's.
    if let Some(text) = &file.found.text
        && !file
            .record
            .pieces
            .iter()
            .any(|old| file.clone_with(text).take(old).unwrap_or(false) || file.holds(old).unwrap_or(false))
    {
        file.record.created = false;
        file.record.containers.clear();
        file.record.directories.clear();
    }
    let mut wanted = file.paired(context, wanted);
    let edit =
        |text: &Option<String>, error| SetupError::edit(path, text.as_deref().unwrap_or_default(), error);
    let recognition = Recognition { agent: agent.name, program: context.program };
    let mut unlisted = Vec::new();
    if let Some(text) = &file.text {
        for (piece, old) in wanted.iter_mut().filter(|(_, old)| old.is_none()) {
            *old = recognition.of_another_program(text, piece).map_err(|error| edit(&file.text, error))?;
            unlisted.extend(old.clone());
        }
    }
    for (piece, old) in &wanted {
        let state = state_of(file.text.as_deref(), piece, old.as_ref(), recognition)
            .map_err(|error| edit(&file.text, error))?;
        let old_program =
            (state == PieceState::Outdated).then(|| old.as_ref().map(|old| old.program.clone())).flatten();
        plan.pieces.push(PieceReport {
            file: path.to_owned(),
            label: piece.label(),
            state: state.clone(),
            old_program,
            wanted: (goal == Goal::Present && state == PieceState::Changed)
                .then(|| piece.as_json())
                .flatten(),
        });
        if goal == Goal::Present {
            file.put(context, piece, old.as_ref(), &state).map_err(|error| edit(&file.text, error))?;
        }
    }
    let new: Vec<PieceRecord> = wanted.iter().map(|(piece, _)| piece.record(context.program)).collect();
    let is_in =
        |list: &[PieceRecord], one: &PieceRecord| list.iter().any(|other| other.content == one.content);
    let listed_pieces = file.record.pieces.clone();
    let obsolete: Vec<&PieceRecord> = match goal {
        Goal::Absent => {
            let new = new.iter().filter(|one| !is_in(&listed_pieces, one));
            listed_pieces.iter().chain(new).chain(&unlisted).collect()
        }
        // An earlier version wanted more.
        Goal::Present => listed_pieces.iter().filter(|old| !is_in(&new, old)).collect(),
    };
    for old in obsolete.into_iter().rev() {
        let is_removed = file.take(old).map_err(|error| edit(&file.text, error))?;
        let stays = !is_removed && file.holds(old).map_err(|error| edit(&file.text, error))?;
        // What stays may be made what it was again, and is then taken out exactly.
        if !stays || goal == Goal::Present {
            file.record.pieces.retain(|piece| piece.content != old.content);
        }
        if !stays {
            continue;
        }
        // It stays, and is said to.
        let label = old.label(path);
        match plan.pieces.iter_mut().find(|piece| piece.file == path && piece.label == label) {
            Some(report) => report.state = PieceState::Changed,
            None => plan.pieces.push(PieceReport {
                file: path.to_owned(),
                label,
                state: PieceState::Changed,
                old_program: None,
                wanted: None,
            }),
        }
    }
    file.finish(listed, plan);
    Ok(())
}

impl FilePlan<'_> {
    /// The same plan for a text that may be changed.
    fn clone_with(&self, text: &str) -> Self {
        Self { text: Some(text.to_owned()), ..self.clone() }
    }

    /// Each piece with what an earlier setup wrote in its place.
    fn paired<'p>(
        &self,
        context: &SetupContext<'_>,
        wanted: &[&'p Piece],
    ) -> Vec<(&'p Piece, Option<PieceRecord>)> {
        let new: Vec<PieceRecord> = wanted.iter().map(|piece| piece.record(context.program)).collect();
        let mut free: Vec<&PieceRecord> = self.record.pieces.iter().collect();
        let mut paired: Vec<Option<PieceRecord>> = vec![None; new.len()];
        // Those that are the same first: a list may hold several of ours.
        for is_same in [true, false] {
            for (new, old) in new.iter().zip(&mut paired) {
                let is_match =
                    |one: &&PieceRecord| if is_same { one.content == new.content } else { one.is_at(new) };
                if old.is_none()
                    && let Some(index) = free.iter().position(is_match)
                {
                    *old = Some(free.remove(index).clone());
                }
            }
        }
        wanted.iter().copied().zip(paired).collect()
    }

    /// Puts a piece where it is missing or outdated.
    fn put(
        &mut self,
        context: &SetupContext<'_>,
        piece: &Piece,
        old: Option<&PieceRecord>,
        state: &PieceState,
    ) -> Result<(), EditError> {
        match state {
            PieceState::Changed => return Ok(()),
            PieceState::Present => {}
            PieceState::Missing | PieceState::Outdated => {
                let old = old.filter(|_| *state == PieceState::Outdated).map(|old| &old.content);
                match (&piece.content, old) {
                    (PieceContent::File(text), _) => self.text = Some(text.clone()),
                    (
                        PieceContent::Value { syntax, placement, value },
                        Some(RecordContent::Value { value: old, .. }),
                    ) => {
                        let text = self.text.as_deref().unwrap_or_default();
                        let new = syntax.replace(text, placement, [old, value], &self.blank_containers())?;
                        self.text = Some(new.ok_or(EditError::Unfaithful)?);
                    }
                    (PieceContent::Value { syntax, placement, value }, _) => {
                        let new =
                            syntax.insert(self.text.as_deref().unwrap_or_default(), placement, value)?;
                        self.text = Some(new.text);
                        for container in new.created {
                            self.record.containers.retain(|old| old.path != container.path);
                            self.record.containers.push(container);
                        }
                    }
                }
            }
        }
        let new = piece.record(context.program);
        self.record.pieces.retain(|piece| piece.content != new.content && Some(piece) != old);
        self.record.pieces.push(new);
        Ok(())
    }

    /// Takes a piece out, if it is there as it was written; whether it was.
    fn take(&mut self, old: &PieceRecord) -> Result<bool, EditError> {
        let Some(text) = &self.text else { return Ok(false) };
        match &old.content {
            RecordContent::File { sha256: old } => {
                let is_ours = *old == sha256(text);
                if is_ours {
                    self.text = None;
                }
                Ok(is_ours)
            }
            RecordContent::Value { syntax, placement, value } => {
                match syntax.remove(text, placement, value, &self.blank_containers())? {
                    Some(new) => {
                        self.text = Some(new);
                        Ok(true)
                    }
                    None => Ok(false),
                }
            }
        }
    }

    /// A ledger that others wrote brings no text into the file.
    fn blank_containers(&self) -> Vec<Container> {
        self.record.containers.iter().filter(|container| container.is_blank()).cloned().collect()
    }

    /// Whether something stands in the place of a piece.
    fn holds(&self, old: &PieceRecord) -> Result<bool, EditError> {
        let Some(text) = &self.text else { return Ok(false) };
        match &old.content {
            RecordContent::File { .. } => Ok(true),
            RecordContent::Value { syntax, placement, value } => {
                let found = syntax.values(text, placement.path())?;
                Ok(match (placement, found) {
                    (_, Content::Nothing) => false,
                    (Placement::Member(_), Content::Value(_)) => true,
                    (Placement::Element(_), Content::Value(found)) => {
                        found.as_array().is_some_and(|items| items.contains(value))
                    }
                })
            }
        }
    }

    fn finish(mut self, listed: Option<&FileRecord>, plan: &mut AgentPlan) {
        let is_empty = |text: &str| text.trim_start_matches('\u{feff}').trim().is_empty();
        let was_ours = self.record.created && listed.is_some();
        if self.text.as_deref().is_some_and(is_empty) && was_ours && self.text != self.found.text {
            // A link to a file that is gone would be left.
            let is_toml = self.path.extension().is_some_and(|end| end == "toml");
            let blank = if is_toml { "" } else { "{}\n" };
            self.text = self.found.is_link.then(|| blank.to_owned());
        }
        let is_needed = !self.record.pieces.is_empty();
        let new = is_needed.then(|| self.record.clone());
        if new.as_ref() != listed {
            plan.records.push((self.path.to_owned(), new));
        }
        if self.text != self.found.text {
            let mut directories = if self.text.is_none() { self.record.directories } else { Vec::new() };
            directories.retain(|directory| self.path.starts_with(directory));
            plan.changes.push(FileChange {
                path: self.path.to_owned(),
                after: self.text,
                found: self.found,
                directories,
            });
        }
    }
}
