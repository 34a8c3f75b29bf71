//! Goes back from a file as it is now, state by state, to the step that made each of its lines.

mod ahead;
mod sources;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use quipu_protocol::{ChunkId, Entry, FileState, NodeId, SessionId, UnixMs};
use quipu_store::{
    CHANGES, FileChange, FileStep, FileStepQuery, FileSteps, Graph, HiddenSnapshot, SeriesChunk, StoreError,
    decode_with,
};
use quipu_transcript::{Change, FileOpKind, absolute_path, file_ops};
use sha2::{Digest as _, Sha256};

use self::ahead::{AnswerPrefetch, StatePrefetch, both};
use self::sources::{copies_only, words};
use super::alignment::{Alignment, LineRuns, Sources};
use super::calls::claims;
use super::lines::{Book, Text};
use super::{ReadFile, UnknownReason};

/// Lines and letters of a block, at least: removed elsewhere in the file by the same call.
const MOVED: (usize, usize) = (1, 20);
/// What is less may have been moved, or written anew.
const LIKE: (usize, usize) = (1, 8);
/// In the same file.
const REPEATED: (usize, usize) = (3, 40);
/// States of a file that are read together: at first, since what is older may not matter, and at most, which is more than the
/// store keeps as differences in a row.
const TOGETHER: (usize, usize) = (4, 36);
/// Bytes of these at most, where they differ in all.
const TOGETHER_BYTES: u64 = 4 << 20;
/// Answers that are read together, at most.
const ANSWERS: usize = 64;
/// From so many states on, the answers that come next are read ahead as well.
const FAR: usize = 16;
/// States whose lines are held at most: more than are read together, twice.
const HELD: usize = 80;

/// Whose a line is.
#[derive(Debug, Clone)]
pub(super) enum Attribution {
    Call(Call),
    Nobody,
    Unknown(UnknownReason),
}

/// A call, or what else of an agent changed the file.
pub(super) type Call = Arc<CallInfo>;

#[derive(Debug)]
pub(super) struct CallInfo {
    pub(super) node: NodeId,
    pub(super) session: Option<SessionId>,
    pub(super) agent: String,
    pub(super) at: UnixMs,
    pub(super) asked: Option<NodeId>,
}

/// Something that changed a file.
#[derive(Debug, Clone)]
enum Event {
    /// It is known how the file was before and after.
    Step(FileStep),
    /// Only the call is known.
    Reported(FileChange),
}

impl Event {
    /// When it was, in the order of all events.
    fn moment(&self) -> (UnixMs, u64) {
        match self {
            Self::Step(step) => (step.at, step.seq),
            Self::Reported(change) => (change.at, 0),
        }
    }
}

/// What happened to one file, the oldest first.
struct Chain {
    paths: Vec<String>,
    events: Vec<Event>,
}

/// A state of a file whose lines are asked for: the newest is looked at first, so that what leads to it is together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    moment: (UnixMs, u64),
    /// After the event `at` of the chain, else before it.
    after: bool,
    chain: usize,
    at: usize,
    content: ChunkId,
}

/// Lines of a state, each with the line of the file in question that it is: those whose author is looked for by themselves.
type Open = Vec<(usize, usize)>;

/// What a step did, as its node says.
#[derive(Clone)]
enum StepAction {
    Command(Arc<str>),
    /// Another tool, with what it did to the file.
    Tool,
    /// Files were put back.
    PutBack,
    /// A person's line, run by hand.
    ByHand,
}

pub(super) struct Walk<'a> {
    store: &'a dyn Graph,
    hidden: HiddenSnapshot,
    read: ReadFile<'a>,
    book: Book,
    texts: HashMap<ChunkId, Option<Text>>,
    /// Those that were read from the store, in that order: the walk goes back, so the first are not needed any more.
    held: VecDeque<ChunkId>,
    /// States that were asked for together with others, and how many are the next time.
    asked: HashSet<ChunkId>,
    together: usize,
    /// States that are read while others are looked at, and answers.
    ahead: Option<StatePrefetch<'a>>,
    answers_ahead: Option<AnswerPrefetch<'a>>,
    chains: Vec<Arc<Chain>>,
    by_path: HashMap<String, usize>,
    prompts: HashMap<NodeId, Arc<[FileStep]>>,
    entries: HashMap<NodeId, Option<Arc<Entry>>>,
    calls: HashMap<NodeId, Call>,
    work: BTreeMap<Place, LineRuns>,
    owners: Vec<Attribution>,
    /// Of the lines that were asked for: whether the author is not known yet, from the first one on, and of how many.
    unknown: (usize, Vec<bool>),
    left: usize,
    /// Which lines were found in a state that is kept.
    pub(super) followed: Vec<bool>,
    /// Changes of the file that are known.
    pub(super) changes: usize,
    /// Nodes that were not looked at yet.
    pub(super) behind: u64,
}

impl<'a> Walk<'a> {
    pub(super) fn new(store: &'a dyn Graph, read: ReadFile<'a>) -> Self {
        Self {
            store,
            hidden: store.hidden(),
            read,
            book: Book::default(),
            texts: HashMap::new(),
            held: VecDeque::new(),
            asked: HashSet::new(),
            together: TOGETHER.0,
            ahead: None,
            answers_ahead: None,
            chains: Vec::new(),
            by_path: HashMap::new(),
            prompts: HashMap::new(),
            entries: HashMap::new(),
            calls: HashMap::new(),
            work: BTreeMap::new(),
            owners: Vec::new(),
            unknown: (0, Vec::new()),
            left: 0,
            followed: Vec::new(),
            changes: 0,
            behind: 0,
        }
    }

    /// Whose these lines of a file are that has these names and this content. All lines are followed, since one can tell where
    /// its neighbour came from, until nothing is open of those that were asked for.
    pub(super) async fn lines(
        &mut self,
        paths: &[String],
        bytes: &[u8],
        asked: Range<usize>,
    ) -> Result<Vec<Attribution>, StoreError> {
        let text = self.book.next_text(bytes);
        let content = ChunkId(Sha256::digest(bytes).into());
        self.texts.insert(content, Some(text.clone()));
        let chain = self.chain(paths.to_vec()).await?;
        let at = self.chains[chain].events.len();
        self.changes = at;
        let asked = asked.start.min(text.len())..asked.end.min(text.len());
        self.owners = vec![Attribution::Nobody; text.len()];
        (self.left, self.unknown) = (asked.len(), (asked.start, vec![true; asked.len()]));
        self.followed.clear();
        let place = Place { moment: (UnixMs::MAX, u64::MAX), after: false, chain, at, content };
        self.ask(place, LineRuns::all(text.len()));
        self.followed = vec![false; text.len()];
        while self.left > 0
            && let Some((place, open)) = self.work.pop_last()
        {
            if place.after {
                self.after(place, open).await?;
            } else {
                self.before(place, open).await?;
            }
        }
        self.work.clear();
        Ok(self.owners.drain(..).skip(asked.start).take(asked.len()).collect())
    }

    fn ask(&mut self, place: Place, open: LineRuns) {
        if open.is_empty() {
            return;
        }
        for lines in open.places() {
            if let Some(followed) = self.followed.get_mut(lines) {
                followed.fill(true);
            }
        }
        self.work.entry(place).or_default().extend(open);
    }

    fn give(&mut self, open: &[(usize, usize)], by: &Attribution) {
        for (_, line) in open {
            if let Some(owner) = self.owners.get_mut(*line) {
                *owner = by.clone();
            }
            let (first, unknown) = &mut self.unknown;
            if let Some(unknown) = line.checked_sub(*first).and_then(|at| unknown.get_mut(at)) {
                self.left -= usize::from(std::mem::take(unknown));
            }
        }
    }

    /// What happened to a file.
    async fn chain(&mut self, paths: Vec<String>) -> Result<usize, StoreError> {
        if let Some(known) = paths.first().and_then(|path| self.by_path.get(path)) {
            return Ok(*known);
        }
        let of = FileSteps::Paths(paths.clone());
        let steps = self.store.file_steps(FileStepQuery { of, limit: CHANGES });
        let (steps, reported) = both(steps, self.store.changes(&paths)).await?;
        self.behind = self.behind.max(steps.behind).max(reported.behind);
        let mut events: Vec<Event> = steps.found.into_iter().map(Event::Step).collect();
        let watched: Vec<Option<SessionId>> = events
            .iter()
            .map(|event| match event {
                Event::Step(step) => step.session.clone(),
                Event::Reported(_) => None,
            })
            .collect();
        // A session that keeps states keeps them of each change; what it has none of changed nothing.
        let reported = reported.found.into_iter().filter(|change| {
            change.states.is_none() && (change.session.is_none() || !watched.contains(&change.session))
        });
        events.extend(reported.map(Event::Reported));
        events.sort_by_key(Event::moment);
        let number = self.chains.len();
        for path in &paths {
            self.by_path.insert(path.clone(), number);
        }
        self.chains.push(Arc::new(Chain { paths, events }));
        Ok(number)
    }

    /// Reads states of a file together, where one around an event is needed: backwards from it, as they are looked at.
    async fn read_together(&mut self, chain: &Chain, at: usize) -> Result<(), StoreError> {
        if let Some(answers) = &mut self.answers_ahead {
            answers.reading.advance();
        }
        let states =
            chain.events.get(..=at).unwrap_or_default().iter().rev().filter_map(|event| match event {
                Event::Step(step) => Some([step.after.content(), step.before.content()]),
                Event::Reported(_) => None,
            });
        let mut states = states.map(|states| states.into_iter().flatten());
        let is_new = |id: &ChunkId| !self.texts.contains_key(id) && !self.asked.contains(id);
        if !states.clone().next().is_some_and(|mut states| states.any(|id| is_new(&id))) {
            return Ok(());
        }
        let mut ids: Vec<ChunkId> = Vec::with_capacity(2 * self.together + 1);
        for id in states.by_ref().flatten() {
            if ids.len() > 2 * self.together {
                break;
            }
            if is_new(&id) && !ids.contains(&id) {
                ids.push(id);
            }
        }
        let first = ids.first().copied();
        let ahead = self.ahead.take().filter(|ahead| ahead.ids.first().copied() == first);
        let mut reading = match ahead {
            Some(ahead) => ahead,
            None => StatePrefetch::new(self.store, ids[..ids.len().min(self.together)].to_vec()),
        };
        // Beside the answers.
        reading.reading.advance();
        self.answers(chain, at).await?;
        self.together = (self.together * 2).min(TOGETHER.1);
        let StatePrefetch { ids: wanted, reading } = reading;
        let found = reading.await?;
        // The store reads the next ones meanwhile.
        let rest = ids.into_iter().filter(|id| !wanted[..found.len().min(wanted.len())].contains(id));
        let rest: Vec<ChunkId> = rest.take(self.together).collect();
        if !rest.is_empty() {
            let mut next = StatePrefetch::new(self.store, rest);
            next.reading.advance();
            self.ahead = Some(next);
        }
        for (id, bytes) in wanted.into_iter().zip(found) {
            self.asked.insert(id);
            // Why one cannot be read is an error where it is needed.
            let is_change = matches!(bytes, Some(SeriesChunk::Changed { .. }));
            let text = bytes.and_then(|bytes| match bytes {
                SeriesChunk::Whole(bytes) => Some(self.book.next_text(&bytes)),
                SeriesChunk::Changed { prefix, suffix, middle } => {
                    self.book.changed_text(prefix, suffix, &middle)
                }
            });
            match text {
                Some(text) => self.hold(id, Some(text)),
                None if is_change => break,
                None => {}
            }
        }
        Ok(())
    }

    /// Reads the answers together whose calls made these states.
    async fn answers(&mut self, chain: &Chain, at: usize) -> Result<(), StoreError> {
        let is_known = |event: &Event| match event {
            Event::Step(step) => step.answer.is_none_or(|answer| self.entries.contains_key(&answer)),
            Event::Reported(_) => true,
        };
        let steps = chain.events.get(..=at).unwrap_or_default();
        if !steps.iter().rev().take(self.together).all(is_known)
            && let Some(ids) = self.unread_answers(steps)
        {
            let ahead = self.answers_ahead.take().filter(|ahead| ahead.ids == ids);
            let ahead = ahead.unwrap_or_else(|| AnswerPrefetch::new(self.store, ids));
            let found = ahead.reading.await?;
            self.entries.extend(found.into_iter().map(|(node, entry)| (node, Some(Arc::new(entry)))));
            for id in ahead.ids {
                self.entries.entry(id).or_insert(None);
            }
        }
        // Far back, the store reads the next ones meanwhile.
        if self.together >= FAR
            && self.answers_ahead.is_none()
            && let Some(ids) = self.unread_answers(steps)
        {
            let mut next = AnswerPrefetch::new(self.store, ids);
            next.reading.advance();
            self.answers_ahead = Some(next);
        }
        Ok(())
    }

    /// The answers that come next and were not read yet, going back from the end of these events.
    fn unread_answers(&self, events: &[Event]) -> Option<Vec<NodeId>> {
        let mut ids: Vec<NodeId> = events
            .iter()
            .rev()
            .filter_map(|event| match event {
                Event::Step(step) => step.answer,
                Event::Reported(_) => None,
            })
            .filter(|answer| !self.entries.contains_key(answer))
            .take((2 * self.together).min(ANSWERS))
            .collect();
        ids.sort_unstable();
        ids.dedup();
        (!ids.is_empty()).then_some(ids)
    }

    async fn text(&mut self, content: ChunkId) -> Result<Option<Text>, StoreError> {
        if let Some(known) = self.texts.get(&content) {
            return Ok(known.clone());
        }
        let text = match self.store.chunk(content, 0..u64::MAX).await {
            Ok(bytes) => Some(self.book.next_text(&bytes)),
            Err(StoreError::Missing { .. } | StoreError::Corrupt { .. }) => None,
            Err(error) => return Err(error),
        };
        self.hold(content, text.clone());
        Ok(text)
    }

    fn hold(&mut self, content: ChunkId, text: Option<Text>) {
        if self.texts.insert(content, text).is_none() {
            self.held.push_back(content);
        }
        if self.held.len() > HELD
            && let Some(first) = self.held.pop_front()
        {
            self.texts.remove(&first);
        }
    }

    /// The lines of a state: none where there is no file; `None` where it is not kept.
    async fn state(&mut self, state: &FileState) -> Result<Option<(Option<ChunkId>, Text)>, StoreError> {
        match state {
            FileState::File { content, .. } => {
                Ok(self.text(*content).await?.map(|text| (Some(*content), text)))
            }
            FileState::Absent | FileState::Link { .. } | FileState::Directory { .. } => {
                Ok(Some((None, Text::from([]))))
            }
            FileState::Unknown { .. } => Ok(None),
        }
    }

    async fn entry(&mut self, node: NodeId) -> Result<Option<Arc<Entry>>, StoreError> {
        if let Some(known) = self.entries.get(&node) {
            return Ok(known.clone());
        }
        let nodes: Vec<_> = self.store.nodes(&[node]).await?.into_iter().flatten().collect();
        let decoded = decode_with(self.store, &self.hidden, &nodes).await?;
        let entry = decoded.into_iter().next().map(|decoded| Arc::new(decoded.entry));
        self.entries.insert(node, entry.clone());
        Ok(entry)
    }

    /// The name and the arguments of a call.
    async fn call(&mut self, answer: NodeId, call: usize) -> Result<Option<(String, String)>, StoreError> {
        let entry = self.entry(answer).await?;
        let Some(Entry::Message(quipu_protocol::Message::Assistant(message))) = entry.as_deref() else {
            return Ok(None);
        };
        let call = message.tool_calls().nth(call);
        Ok(call.map(|call| (call.name.clone(), call.arguments.get().to_owned())))
    }

    async fn doing(&mut self, step: &FileStep) -> Result<StepAction, StoreError> {
        let Some(answer) = step.answer else {
            let entry = self.entry(step.node).await?;
            return Ok(match entry.as_deref() {
                Some(Entry::Meta(_)) => StepAction::PutBack,
                Some(Entry::Message(quipu_protocol::Message::ToolResult(_))) => StepAction::Tool,
                // Whoever made it: its node says who that is.
                Some(Entry::Message(quipu_protocol::Message::Custom(custom)))
                    if custom.custom_type == crate::MEMORY_CHANGE =>
                {
                    StepAction::Tool
                }
                Some(_) | None => StepAction::ByHand,
            });
        };
        let Some((_, arguments)) = self.call(answer, step.call).await? else { return Ok(StepAction::Tool) };
        let command = command_of(&arguments);
        Ok(command.map_or(StepAction::Tool, |command| StepAction::Command(command.into())))
    }

    fn by(&mut self, step: &FileStep) -> Attribution {
        let node = step.answer.unwrap_or(step.node);
        let call = self.calls.entry(node).or_insert_with(|| {
            Arc::new(CallInfo {
                node,
                session: step.session.clone(),
                agent: step.agent.clone(),
                at: step.at,
                asked: step.asked,
            })
        });
        Attribution::Call(call.clone())
    }

    /// Lines of a state as it was just before an event: whoever left it so, or somebody since.
    async fn before(&mut self, place: Place, open: LineRuns) -> Result<(), StoreError> {
        let chain = self.chains[place.chain].clone();
        if let Some(same) = same_before(&chain, place.at, place.chain, place.content) {
            self.ask(same, open);
            return Ok(());
        }
        let Some(text) = self.text(place.content).await? else {
            self.give(&open.pairs(), &Attribution::Unknown(UnknownReason::NotKept));
            return Ok(());
        };
        let mut why = None;
        let mut at = place.at;
        let mut parent: Option<(Place, Text)> = None;
        // Changes of which only the calls are known.
        let mut reported: Vec<Event> = Vec::new();
        while parent.is_none() && at > 0 {
            at -= 1;
            self.read_together(&chain, at).await?;
            let event = chain.events[at].clone();
            let Event::Step(step) = &event else {
                why.get_or_insert(UnknownReason::NotWatched);
                reported.push(event);
                continue;
            };
            let moment = event.moment();
            let place = |after, content| Place { moment, after, chain: place.chain, at, content };
            match self.state(&step.after).await? {
                Some((Some(content), text)) => {
                    parent = Some((place(true, content), text));
                    continue;
                }
                Some((None, _)) => {}
                None => {
                    why.get_or_insert(UnknownReason::NotKept);
                    reported.push(event.clone());
                }
            }
            // It was removed, and is there again: what it was is what it may have become again.
            if let Some((Some(content), text)) = self.state(&step.before).await? {
                parent = Some((place(false, content), text));
            }
        }
        reported.reverse();
        let mut open = open;
        if !reported.is_empty() {
            open = self.claimed(&chain, &reported, &text, open.pairs()).await?.into();
        }
        let mut rest = match &parent {
            None => open.pairs(),
            Some((parent, old)) => {
                let found = self.book.align(old, &text);
                let rest = self.follow(*parent, &found, &open);
                self.moved(*parent, old, Sources::Removed(&found.removed()), &text, rest, MOVED)
            }
        };
        if rest.is_empty() {
            return Ok(());
        }
        // Somebody gave the file another name.
        let is_whole = rest.len() == text.len();
        if is_whole && self.elsewhere(&chain, place.moment, None, place.content, &text, &rest).await? {
            return Ok(());
        }
        rest = self.recent(&chain, place, &text, rest).await?;
        if parent.is_none() && at == 0 && chain.events.len() >= CHANGES {
            why.get_or_insert(UnknownReason::TooMany);
        }
        self.give(&rest, &why.map_or(Attribution::Nobody, Attribution::Unknown));
        Ok(())
    }

    /// Passes on the lines that are found in an earlier state; what is left.
    fn follow(&mut self, to: Place, found: &Alignment, open: &LineRuns) -> Open {
        let (same, rest) = open.follow(found);
        self.ask(to, same);
        rest
    }

    /// Passes on blocks that stand elsewhere in an earlier state, among lines that can be their source; what is left.
    fn moved(
        &mut self,
        to: Place,
        old: &[usize],
        sources: Sources<'_>,
        text: &[usize],
        open: Open,
        least: (usize, usize),
    ) -> Open {
        let (pairs, rest) = self.pairs(old, sources, text, open, least);
        self.ask(to, pairs.into());
        rest
    }

    fn pairs(
        &self,
        old: &[usize],
        sources: Sources<'_>,
        text: &[usize],
        open: Open,
        least: (usize, usize),
    ) -> (Open, Open) {
        if old.is_empty() || open.is_empty() {
            return (Vec::new(), open);
        }
        // Nothing else of the text is open.
        let lines = open.iter().map(|(line, _)| *line);
        let (first, last) = (lines.clone().min().unwrap_or(0), lines.max().unwrap_or(0));
        let mut is_open = vec![false; last + 1 - first];
        for (line, _) in &open {
            is_open[line - first] = true;
        }
        let found = self.book.blocks(old, sources, &text[first..=last], &is_open, least);
        let found: HashMap<usize, usize> =
            found.into_iter().map(|(line, place)| (line + first, place)).collect();
        let (same, rest): (Open, Open) = open.into_iter().partition(|(line, _)| found.contains_key(line));
        (same.into_iter().filter_map(|(line, of)| Some((*found.get(&line)?, of))).collect(), rest)
    }

    /// Gives lines to calls whose arguments hold them, where no states are kept; what is left.
    async fn claimed(
        &mut self,
        chain: &Chain,
        reported: &[Event],
        text: &[usize],
        open: Open,
    ) -> Result<Open, StoreError> {
        if reported.is_empty() || open.is_empty() {
            return Ok(open);
        }
        let mut changes: Vec<(FileOpKind, Vec<Change>)> = Vec::new();
        let mut by: Vec<Attribution> = Vec::new();
        for event in reported {
            let (answer, call, cwd, of) = match event {
                Event::Step(step) => {
                    let Some(answer) = step.answer else { continue };
                    (answer, step.call, step.cwd.clone(), self.by(step))
                }
                Event::Reported(change) => {
                    let Some(call) = change.call else { continue };
                    let of = Arc::new(CallInfo {
                        node: change.node,
                        session: change.session.clone(),
                        agent: change.agent.clone(),
                        at: change.at,
                        asked: change.asked,
                    });
                    (change.node, call, change.cwd.clone(), Attribution::Call(of))
                }
            };
            let Some((name, arguments)) = self.call(answer, call).await? else { continue };
            for op in file_ops(&name, &arguments) {
                if op.kind != FileOpKind::Read && chain.paths.contains(&absolute_path(&cwd, &op.path)) {
                    changes.push((op.kind, op.changes));
                    by.push(of.clone());
                }
            }
        }
        let lines: Vec<_> =
            text.iter().map(|number| String::from_utf8_lossy(self.book.line(*number)).into_owned()).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let found = claims(&lines, &changes);
        let (claimed, rest): (Open, Open) =
            open.into_iter().partition(|(line, _)| found.get(*line).is_some_and(Option::is_some));
        for one in claimed {
            if let Some(by) = found[one.0].and_then(|at| by.get(at)).cloned() {
                self.give(&[one], &by);
            }
        }
        Ok(rest)
    }

    /// Lines of a state as an event left it: those that it did not change were there before.
    async fn after(&mut self, place: Place, open: LineRuns) -> Result<(), StoreError> {
        let chain = self.chains[place.chain].clone();
        let Some(Event::Step(step)) = chain.events.get(place.at) else { return Ok(()) };
        self.read_together(&chain, place.at).await?;
        let Some(text) = self.text(place.content).await? else {
            self.give(&open.pairs(), &Attribution::Unknown(UnknownReason::NotKept));
            return Ok(());
        };
        let doing = self.doing(step).await?;
        let puts_back = match &doing {
            StepAction::PutBack => true,
            StepAction::Command(command) => words(command).any(|word| word == "git"),
            StepAction::Tool | StepAction::ByHand => false,
        };
        if puts_back && let Some(same) = same_before(&chain, place.at, place.chain, place.content) {
            self.ask(same, open);
            return Ok(());
        }
        let before = Place { after: false, ..place };
        let mut rest = match self.state(&step.before).await? {
            Some((content, old)) => {
                let found = match &doing {
                    StepAction::Tool => self.edited(&chain, step, &old, &text).await?,
                    StepAction::Command(_) | StepAction::PutBack | StepAction::ByHand => None,
                };
                let found = found.unwrap_or_else(|| self.book.align(&old, &text));
                if let Some(content) = content {
                    let to = Place { content, ..before };
                    let rest = self.follow(to, &found, &open);
                    let removed = found.removed();
                    let rest = self.moved(to, &old, Sources::Removed(&removed), &text, rest, MOVED);
                    let (alike, mut rest) = self.pairs(&old, Sources::Removed(&removed), &text, rest, LIKE);
                    self.give(&alike, &Attribution::Unknown(UnknownReason::Alike));
                    if let StepAction::Command(command) = &doing {
                        let (literal, left) = self.split_literal(command, &text, rest);
                        rest = self.moved(to, &old, Sources::Kept(&removed), &text, left, REPEATED);
                        rest.extend(literal);
                    }
                    rest
                } else {
                    open.pairs()
                }
            }
            None => {
                // What it was is not kept: lines that the call holds are its own, and nobody knows of the others.
                let event = [chain.events[place.at].clone()];
                let mut rest = self.claimed(&chain, &event, &text, open.pairs()).await?;
                let earlier = self.earlier(&chain, place).await?;
                if let Some((to, old)) = earlier {
                    let found = self.book.align(&old, &text);
                    rest = self.follow(to, &found, &rest.into());
                }
                self.give(&rest, &Attribution::Unknown(UnknownReason::NotKept));
                return Ok(());
            }
        };
        rest = self.siblings(&chain, place, step, &doing, &text, rest).await?;
        if let StepAction::Command(command) = &doing {
            let (literal, left) = self.split_literal(command, &text, rest);
            let is_whole = left.len() == text.len();
            if is_whole
                && self.elsewhere(&chain, place.moment, Some(step), place.content, &text, &left).await?
            {
                return Ok(());
            }
            rest = self.named(&chain, place, step, command, &text, left).await?;
            rest.extend(literal);
        }
        rest = self.meanwhile(&chain, place, step, &text, rest).await?;
        if let StepAction::Command(command) = &doing
            && copies_only(command)
        {
            let (literal, copied) = self.split_literal(command, &text, rest);
            self.give(&copied, &Attribution::Unknown(UnknownReason::NotSeen));
            rest = literal;
        }
        let by = match doing {
            StepAction::Command(_) | StepAction::Tool => self.by(step),
            StepAction::ByHand => Attribution::Nobody,
            StepAction::PutBack => Attribution::Unknown(UnknownReason::NotKept),
        };
        self.give(&rest, &by);
        Ok(())
    }

    /// The newest state before an event that is kept.
    async fn earlier(&mut self, chain: &Chain, place: Place) -> Result<Option<(Place, Text)>, StoreError> {
        for at in (0..place.at).rev() {
            let Event::Step(step) = &chain.events[at] else { continue };
            for (after, state) in [(true, &step.after), (false, &step.before)] {
                if let Some((Some(content), text)) = self.state(state).await? {
                    let moment = chain.events[at].moment();
                    return Ok(Some((Place { moment, after, chain: place.chain, at, content }, text)));
                }
            }
        }
        Ok(None)
    }
}

/// The command that a call runs, by its arguments.
pub(super) fn command_of(arguments: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Command {
        command: String,
    }
    serde_json::from_str::<Command>(arguments).ok().map(|call| call.command)
}

/// The newest state before an event with this very content.
fn same_before(chain: &Chain, at: usize, number: usize, content: ChunkId) -> Option<Place> {
    (0..at).rev().find_map(|at| {
        let event = &chain.events[at];
        let Event::Step(step) = event else { return None };
        let place = |after| Place { moment: event.moment(), after, chain: number, at, content };
        if step.after.content() == Some(content) {
            return Some(place(true));
        }
        (step.before.content() == Some(content)).then(|| place(false))
    })
}
