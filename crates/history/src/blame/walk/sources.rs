//! Where lines come from that a step put into a file: what it replaced, other files, other sessions.

use std::path::Path;
use std::sync::Arc;

use memchr::memmem;
use quipu_protocol::{ChunkId, FileState, UnixMs};
use quipu_store::{CHANGES, FileStep, FileStepQuery, FileSteps, StoreError};
use quipu_transcript::{FileOpKind, absolute_path, file_ops};

use super::super::UnknownReason;
use super::super::alignment::{Alignment, Sources};
use super::super::lines::Text;
use super::{Attribution, Chain, Event, LIKE, MOVED, Open, Place, REPEATED, StepAction, Walk};

/// Other files of the same call, and of the same prompt, that lines are looked for in.
const SIBLINGS: usize = 64;
/// Files that a command names, that lines are looked for in.
const NAMED: usize = 32;
/// Letters of a text, at least, that is taken for another because it is the same.
const SAME: usize = 16;
/// Removed from another file by the same call.
const MOVED_BESIDE: (usize, usize) = (1, 40);
/// Removed from another file by another call of the same prompt.
const MOVED_APART: (usize, usize) = (2, 40);
/// In another file that the same command changed.
const BESIDE: (usize, usize) = (2, 40);
/// In a file that the command names, which does not hold the line itself.
const COPIED: (usize, usize) = (1, 4);

impl Walk<'_> {
    /// Which lines an edit left as they were: it says which text it put in place of which.
    pub(super) async fn edited(
        &mut self,
        chain: &Chain,
        step: &FileStep,
        old: &Text,
        new: &Text,
    ) -> Result<Option<Alignment>, StoreError> {
        let Some(answer) = step.answer else { return Ok(None) };
        let Some((name, arguments)) = self.call(answer, step.call).await? else { return Ok(None) };
        let ops = file_ops(&name, &arguments);
        let mut of_file = ops.iter().filter(|op| {
            op.kind == FileOpKind::Edit && chain.paths.contains(&absolute_path(&step.cwd, &op.path))
        });
        let (Some(op), None) = (of_file.next(), of_file.next()) else { return Ok(None) };
        if let [change] = &op.changes[..]
            && let Some(found) = self.edited_lines(&change.old, &change.new, old, new)
        {
            return Ok(Some(found));
        }
        let (mut text, mut starts) = (Vec::new(), Vec::with_capacity(old.len()));
        for number in old.iter() {
            starts.push(text.len());
            text.extend_from_slice(self.book.line(*number));
            text.push(b'\n');
        }
        // Where each text stood, in order.
        let mut places = Vec::new();
        for change in &op.changes {
            let (from, to) = (change.old.replace("\r\n", "\n"), change.new.replace("\r\n", "\n"));
            if from.is_empty() {
                return Ok(None);
            }
            // Others that begin within the first would be passed by as well.
            let finder = memmem::Finder::new(&from);
            let mut found = finder.find_iter(&text);
            let (Some(at), None) = (found.next(), found.next()) else { return Ok(None) };
            places.push((at, at + from.len(), to));
        }
        places.sort_unstable();
        if places.windows(2).any(|two| two[0].1 > two[1].0) {
            return Ok(None);
        }
        // Whole lines that hold the places, and what became of them.
        let mut found = Vec::with_capacity(new.len());
        let mut made: Vec<usize> = Vec::with_capacity(new.len());
        let mut line = 0;
        let mut next = 0;
        while next < places.len() {
            let first = starts.partition_point(|start| *start <= places[next].0).saturating_sub(1);
            let start = starts.get(first).copied().unwrap_or(0);
            let (mut end, mut after, mut from) = (start, Vec::new(), start);
            // Places on the same lines go together.
            while next < places.len() && (end == start || places[next].0 < end) {
                let (begin, stop, to) = &places[next];
                after.extend_from_slice(&text[from..*begin]);
                after.extend_from_slice(to.as_bytes());
                from = *stop;
                let inside = stop.saturating_sub(1).max(*begin);
                end = memchr::memchr(b'\n', &text[inside..])
                    .map_or(text.len(), |at| inside + at + 1)
                    .max(*stop);
                next += 1;
            }
            after.extend_from_slice(&text[from..end]);
            let last = first + memchr::memchr_iter(b'\n', &text[start..end]).count();
            made.extend_from_slice(old.get(line..first).unwrap_or_default());
            found.extend((line..first).map(Some));
            let part = self.book.text(&after);
            let inner = self.book.align(&old[first..last.min(old.len())], &part);
            made.extend(part.iter());
            found.extend((0..part.len()).map(|line| inner.get(line).map(|at| at + first)));
            line = last;
        }
        made.extend_from_slice(old.get(line..).unwrap_or_default());
        found.extend((line..old.len()).map(Some));
        Ok((made[..] == new[..]).then(|| Alignment::new(found, old.len())))
    }

    /// The same for an edit that put whole lines in the place of others: where it did is where the texts begin to differ.
    fn edited_lines(&self, from: &str, to: &str, old: &Text, new: &Text) -> Option<Alignment> {
        let (from, to) = match (from.strip_suffix('\n'), to.strip_suffix('\n')) {
            (Some(from), Some(to)) => (from, to),
            (None, None) => (from, to),
            _ => return None,
        };
        let lines = |text: &'_ str| -> Vec<Vec<u8>> {
            let lines = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
            lines.map(|line| line.as_bytes().to_vec()).collect()
        };
        let (from, to) = (lines(from), lines(to));
        let shared = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
        let first = old.iter().zip(new.iter()).take_while(|(a, b)| a == b).count().checked_sub(shared)?;
        let (old_end, new_end) = (first + from.len(), first + to.len());
        let stands = |text: &[usize], lines: &[Vec<u8>]| {
            text.len() == lines.len()
                && text.iter().zip(lines).all(|(number, line)| self.book.line(*number) == line)
        };
        let is_so = stands(old.get(first..old_end)?, &from)
            && stands(new.get(first..new_end)?, &to)
            && old[old_end..] == new[new_end..];
        if !is_so {
            return None;
        }
        let inner = self.book.align(&old[first..old_end], &new[first..new_end]);
        Some(Alignment::between(first, &inner, old.len() - old_end))
    }

    /// Lines that stand in the command itself, and the others.
    pub(super) fn split_literal(&self, command: &str, text: &[usize], open: Open) -> (Open, Open) {
        let writes_blanks = ["<<", "echo", "printf"].iter().any(|word| command.contains(word));
        open.into_iter().partition(|(line, _)| {
            let line = self.book.line(text[*line]).trim_ascii();
            match std::str::from_utf8(line) {
                Ok("") => writes_blanks,
                Ok(line) => command.contains(line),
                Err(_) => false,
            }
        })
    }

    /// Lines that stood in other files which the same call, or a call of the same prompt, changed; what is left.
    pub(super) async fn siblings(
        &mut self,
        chain: &Chain,
        place: Place,
        step: &FileStep,
        doing: &StepAction,
        text: &Text,
        open: Open,
    ) -> Result<Open, StoreError> {
        if open.is_empty() || self.book.is_blank(text) {
            return Ok(open);
        }
        let Some(asked) = step.asked else { return Ok(open) };
        let steps = match self.prompts.get(&asked) {
            Some(steps) => steps.clone(),
            None => {
                let query = FileStepQuery { of: FileSteps::Asked(asked), limit: CHANGES };
                let steps: Arc<[FileStep]> = self.store.file_steps(query).await?.found.into();
                self.prompts.insert(asked, steps.clone());
                steps
            }
        };
        let is_near = |other: &FileStep| {
            other.node == step.node || (other.answer.is_some() && other.answer == step.answer)
        };
        let mut others: Vec<&FileStep> =
            steps.iter().filter(|other| !chain.paths.contains(&other.path)).collect();
        // The same call first; of its files those that it removed, since one of them may have its name changed.
        others.sort_by_key(|other| {
            let same = other.before.content() == Some(place.content);
            (!is_near(other), other.after != FileState::Absent, !same, other.seq.abs_diff(step.seq))
        });
        let is_new = step.before.content().is_none();
        let mut rest = open;
        for other in others.into_iter().take(SIBLINGS) {
            if rest.is_empty() {
                break;
            }
            let Some((Some(content), old)) = self.state(&other.before).await? else { continue };
            let Some((_, left)) = self.state(&other.after).await? else { continue };
            let near = is_near(other);
            let earlier = (other.at, other.seq) <= (step.at, step.seq);
            if !earlier {
                // Pasted first and cut then. With anything in between it might not end.
                let chain = self.chain(vec![other.path.clone()]).await?;
                let events = &self.chains[chain].events;
                let between = events.iter().map(Event::moment).filter(|moment| *moment >= place.moment);
                if between.min().is_some_and(|moment| moment < (other.at, other.seq)) {
                    continue;
                }
            }
            let removed = match other.after {
                FileState::Absent => None,
                _ => Some(self.book.align(&old, &left).removed()),
            };
            let sources = removed.as_ref().map_or(Sources::All, Sources::Removed);
            let (mut pairs, mut left): (Open, Open);
            if near && is_new && other.after == FileState::Absent && rest.len() == text.len() {
                let found = self.book.align(&old, text);
                let same = found.kept();
                if same * 2 >= old.len().min(text.len()) && same > 0 {
                    let all = std::mem::take(&mut rest);
                    let (same, others): (Open, Open) =
                        all.into_iter().partition(|(line, _)| found.get(*line).is_some());
                    pairs = same.into_iter().filter_map(|(line, of)| Some((found.get(line)?, of))).collect();
                    left = others;
                    let (more, others) = self.pairs(&old, Sources::All, text, left, MOVED);
                    pairs.extend(more);
                    left = others;
                } else {
                    let all = std::mem::take(&mut rest);
                    (pairs, left) = self.pairs(&old, Sources::All, text, all, MOVED_BESIDE);
                    let (alike, others) = self.pairs(&old, Sources::All, text, left, LIKE);
                    self.give(&alike, &Attribution::Unknown(UnknownReason::Alike));
                    left = others;
                }
            } else {
                let least = if near { MOVED_BESIDE } else { MOVED_APART };
                (pairs, left) = self.pairs(&old, sources, text, std::mem::take(&mut rest), least);
                if near {
                    let (alike, others) = self.pairs(&old, sources, text, left, LIKE);
                    self.give(&alike, &Attribution::Unknown(UnknownReason::Alike));
                    left = others;
                }
                if near && let StepAction::Command(command) = doing {
                    let (literal, others) = self.split_literal(command, text, left);
                    let (more, others) = self.pairs(&old, Sources::All, text, others, BESIDE);
                    pairs.extend(more);
                    left = others;
                    left.extend(literal);
                }
            }
            rest = left;
            if pairs.is_empty() {
                continue;
            }
            let chain = self.chain(vec![other.path.clone()]).await?;
            let at = self.chains[chain]
                .events
                .iter()
                .position(|event| matches!(event, Event::Step(found) if found.node == other.node));
            let Some(at) = at else { continue };
            let moment = if earlier && !near { (other.at, other.seq) } else { place.moment };
            self.ask(Place { moment, after: false, chain, at, content }, pairs.into());
        }
        Ok(rest)
    }

    /// Whether another file held exactly this before; then the lines are those of that one.
    pub(super) async fn elsewhere(
        &mut self,
        chain: &Chain,
        until: (UnixMs, u64),
        step: Option<&FileStep>,
        content: ChunkId,
        text: &[usize],
        open: &[(usize, usize)],
    ) -> Result<bool, StoreError> {
        if self.book.letters(text) < SAME {
            return Ok(false);
        }
        let of = FileSteps::Content(content);
        let steps = self.store.file_steps(FileStepQuery { of, limit: SIBLINGS }).await?.found;
        let others = steps.iter().filter(|other| !chain.paths.contains(&other.path));
        let mut best: Option<((UnixMs, u64), bool, &FileStep)> = None;
        for other in others {
            let moment = (other.at, other.seq);
            let in_call = step.is_some_and(|step| step.node == other.node);
            let left = other.after.content() == Some(content) && !in_call;
            if (moment < until || in_call) && best.is_none_or(|(known, ..)| moment > known) {
                best = Some((moment, left, other));
            }
        }
        let Some((moment, after, other)) = best else { return Ok(false) };
        let number = self.chain(vec![other.path.clone()]).await?;
        let at = self.chains[number]
            .events
            .iter()
            .position(|event| matches!(event, Event::Step(found) if found.node == other.node));
        let Some(at) = at else { return Ok(false) };
        self.ask(Place { moment, after, chain: number, at, content }, open.to_vec().into());
        Ok(true)
    }

    /// Lines that a command took from files that it names; what is left.
    pub(super) async fn named(
        &mut self,
        chain: &Chain,
        place: Place,
        step: &FileStep,
        command: &str,
        text: &Text,
        open: Open,
    ) -> Result<Open, StoreError> {
        let mut rest = open;
        let mut seen: Vec<String> = Vec::new();
        let mut base = step.cwd.clone();
        let mut is_base = false;
        for word in words(command) {
            if rest.is_empty() || seen.len() >= NAMED {
                break;
            }
            let path = absolute_path(&base, word);
            if std::mem::take(&mut is_base) {
                base = path;
                continue;
            }
            is_base = word == "cd";
            if word.starts_with('-') || chain.paths.contains(&path) || seen.contains(&path) {
                continue;
            }
            let number = self.chain(vec![path.clone()]).await?;
            let other = self.chains[number].clone();
            let at = other.events.iter().position(|event| event.moment() >= place.moment);
            let at = at.unwrap_or(other.events.len());
            // How it was then: as it was left, or as it was found next.
            let mut content = None;
            if let Some(Event::Step(earlier)) = at.checked_sub(1).and_then(|at| other.events.get(at)) {
                content = earlier.after.content();
            } else if let Some(Event::Step(later)) = other.events.get(at) {
                content = later.before.content();
            }
            if let Some(content) = content {
                seen.push(path);
                let Some(old) = self.text(content).await? else { continue };
                let to = Place { moment: place.moment, after: false, chain: number, at, content };
                rest = self.moved(to, &old, Sources::All, text, rest, COPIED);
            } else if other.events.is_empty()
                && path.starts_with(&format!("{}/", step.cwd.trim_end_matches('/')))
                && let Some(bytes) = (self.read)(Path::new(&path))
            {
                // No call ever changed it.
                seen.push(path);
                let old = self.book.text(&bytes);
                let (pairs, left) = self.pairs(&old, Sources::All, text, rest, COPIED);
                self.give(&pairs, &Attribution::Nobody);
                rest = left;
            }
        }
        Ok(rest)
    }

    /// Lines that a person took from files which calls changed not long before; what is left.
    pub(super) async fn recent(
        &mut self,
        chain: &Chain,
        place: Place,
        text: &Text,
        open: Open,
    ) -> Result<Open, StoreError> {
        let numbers: Vec<usize> = open.iter().map(|(line, _)| text[*line]).collect();
        if open.len() < REPEATED.0 || self.book.letters(&numbers) < REPEATED.1 {
            return Ok(open);
        }
        let of = FileSteps::Before(place.moment.1);
        let steps = self.store.file_steps(FileStepQuery { of, limit: 4 * SIBLINGS }).await?.found;
        let mut seen: Vec<&str> = Vec::new();
        let mut rest = open;
        for step in steps.iter().rev() {
            if rest.len() < REPEATED.0 || seen.len() >= SIBLINGS {
                break;
            }
            if (step.at, step.seq) >= place.moment
                || chain.paths.contains(&step.path)
                || seen.contains(&step.path.as_str())
            {
                continue;
            }
            seen.push(&step.path);
            let mut state = (true, self.state(&step.after).await?);
            if let Some((None, _)) = state.1 {
                // Its name was changed, perhaps.
                state = (false, self.state(&step.before).await?);
            }
            let (after, Some((Some(content), old))) = state else { continue };
            let whole = rest.len() == text.len();
            let found = whole.then(|| self.book.align(&old, text));
            let found = found.filter(|found| found.kept() * 2 > text.len());
            let (pairs, left) = match found {
                Some(found) => {
                    let (same, left): (Open, Open) = std::mem::take(&mut rest)
                        .into_iter()
                        .partition(|(line, _)| found.get(*line).is_some());
                    (same.into_iter().filter_map(|(line, of)| Some((found.get(line)?, of))).collect(), left)
                }
                None => self.pairs(&old, Sources::All, text, std::mem::take(&mut rest), REPEATED),
            };
            rest = left;
            if pairs.is_empty() {
                continue;
            }
            let number = self.chain(vec![step.path.clone()]).await?;
            let mut events = self.chains[number].events.iter();
            let Some(at) =
                events.position(|event| matches!(event, Event::Step(found) if found.node == step.node))
            else {
                continue;
            };
            let moment = (step.at, step.seq);
            self.ask(Place { moment, after, chain: number, at, content }, pairs.into());
        }
        Ok(rest)
    }

    /// Lines that other sessions changed while a command ran, which saw only the end of it; what is left.
    pub(super) async fn meanwhile(
        &mut self,
        chain: &Chain,
        place: Place,
        step: &FileStep,
        text: &Text,
        open: Open,
    ) -> Result<Open, StoreError> {
        let mut rest = open;
        for at in (0..place.at).rev().take(SIBLINGS) {
            let Event::Step(other) = &chain.events[at] else { continue };
            if rest.is_empty() || other.at < step.began {
                break;
            }
            if other.session == step.session || other.after.content() == step.before.content() {
                continue;
            }
            let Some((Some(content), old)) = self.state(&other.after).await? else { continue };
            let found = self.book.align(&old, text);
            let moment = chain.events[at].moment();
            let to = Place { moment, after: true, chain: place.chain, at, content };
            rest = self.follow(to, &found, &rest.into());
        }
        Ok(rest)
    }
}

/// Whether a command makes no line: what it writes stands in it, or in a file that it reads.
pub(super) fn copies_only(command: &str) -> bool {
    let mut parts = command.split([';', '|', '&', '\n']).map(str::trim).filter(|part| !part.is_empty());
    !command.contains("<<")
        && parts.all(|part| {
            let mut words = part.split_whitespace();
            match words.next() {
                Some("cp" | "mv" | "cat" | "head" | "tail" | "cd" | "mkdir" | "install" | "tee") => true,
                Some("sed") => words.next() == Some("-n"),
                Some("git") => matches!(words.next(), Some("mv" | "add" | "rm")),
                Some(_) | None => false,
            }
        })
}

/// Words of a command, as far as they can be names.
pub(super) fn words(command: &str) -> impl Iterator<Item = &str> {
    let is_end = |c: char| c.is_whitespace() || "'\"();|&<>`=,".contains(c);
    command.split(is_end).filter(|word| !word.is_empty())
}
