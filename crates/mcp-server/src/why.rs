//! The tool `why`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use quipu_history::{BEGIN_HISTORY, BLAMED_CHANGES, Blame, LineAuthor, file_names, framed, minute};
use quipu_protocol::NodeId;
use quipu_store::Graph;
use quipu_transcript::one_line;
use serde::Deserialize;

use crate::archive::{Archive, Page};
use crate::commits::{CommitReport, credit_committed_lines};
use crate::error::CallError;
use crate::reach::Reach;

/// Bytes of a file at most.
const FILE_LIMIT: u64 = 4 << 20;
/// Ranges of lines of a page.
const RANGES: usize = 40;
/// Characters of a reason beside a range, and of the reason of one line.
const REASON: usize = 120;
const WHOLE_REASON: usize = 2_000;
/// Characters of a name and of a path.
const NAME: usize = 40;
const PATH: usize = 300;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhyArguments {
    file: String,
    line: Option<usize>,
    cursor: Option<String>,
}

/// Which turn wrote each line of a file, and what the user had asked for.
pub(crate) async fn why(
    archive: &Archive,
    reach: &Reach,
    arguments: WhyArguments,
) -> Result<Page, CallError> {
    let store = archive.store()?;
    let store: &dyn Graph = &*store;
    let path = resolved(reach, &arguments.file)?;
    let content = content(&path)?;
    let count = content.lines().count();
    let from = match (arguments.line, &arguments.cursor) {
        (Some(line), _) => line,
        (None, Some(cursor)) => cursor
            .parse()
            .map_err(|_| CallError::Arguments("cursor is none that this tool gave for this file".into()))?,
        (None, None) => 1,
    };
    let shown = one_line(&path.to_string_lossy(), PATH);
    if from == 0 || (from > count && count > 0) {
        return Err(CallError::Arguments(format!("{shown} has {count} lines; there is no line {from}")));
    }
    let names = file_names(&path);
    let one = match arguments.line {
        Some(line) if count > 0 => archive.blames.line(store, &names, &content, line - 1).await?,
        _ => None,
    };
    // Where its lines begin.
    let (mut found, commits, first) = match one {
        Some(one) => (one, CommitReport::default(), from - 1),
        None => {
            let mut found = Blame::clone(&*archive.blames.blame(store, &names, &content).await?);
            let commits = credit_committed_lines(store, &mut found, &path, &content).await?;
            (found, commits, 0)
        }
    };
    let at = from - 1 - first;
    let ranges = match arguments.line {
        Some(_) => std::iter::once(at..at + 1).collect(),
        None => ranges(&found, at),
    };
    let shown_turns = turns(&found, &ranges);
    hide_reasons(store, reach, &mut found, &shown_turns).await?;
    let authors = authors(store, reach, &found, &shown_turns).await?;
    let mut notes = vec![format!("{shown}, {count} lines.")];
    if found.changes >= BLAMED_CHANGES {
        notes.push(format!("Only the newest {BLAMED_CHANGES} changes were checked."));
    }
    notes.extend(commits.notes());
    if found.behind > 0 {
        notes.push(format!("The newest {} nodes are not indexed yet.", found.behind));
    }
    let mut body = notes.join(" ");
    let mut next = None;
    if arguments.line.is_some() {
        body.push_str(&format!("\n{from}: {}", author(&found, &authors, at, WHOLE_REASON)));
    } else {
        for Range { start, end } in &ranges {
            let range = match end - start {
                1 => end.to_string(),
                _ => format!("{}-{end}", start + 1),
            };
            body.push_str(&format!("\n{range}: {}", author(&found, &authors, *start, REASON)));
        }
        let end = ranges.last().map_or(0, |range| range.end);
        next = (end < found.lines.len()).then(|| (end + 1).to_string());
    }
    Ok(Page { text: framed(BEGIN_HISTORY, &body), next })
}

/// Lines of one author each, as many as a page has.
fn ranges(found: &Blame, from: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let mut at = from;
    while at < found.lines.len() && ranges.len() < RANGES {
        let same = found.lines[at..].iter().take_while(|line| **line == found.lines[at]).count();
        ranges.push(at..at + same);
        at += same;
    }
    ranges
}

/// The places of the turns that are shown.
fn turns(found: &Blame, ranges: &[Range<usize>]) -> Vec<usize> {
    let lines = ranges.iter().filter_map(|range| found.lines.get(range.start));
    let turns = lines.filter_map(|line| match line {
        LineAuthor::Turn(place) => Some(*place),
        LineAuthor::Nobody | LineAuthor::Unknown(_) => None,
    });
    turns.filter(|place| *place < found.turns.len()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// The turns that may be seen, by their places.
async fn authors(
    store: &dyn Graph,
    reach: &Reach,
    found: &Blame,
    shown: &[usize],
) -> Result<BTreeMap<usize, NodeId>, CallError> {
    let nodes: Vec<NodeId> = shown.iter().map(|place| found.turns[*place].node).collect();
    let sees = reach.sight().sees(store, &nodes).await?;
    let turns = shown.iter().copied().zip(nodes).zip(sees);
    Ok(turns.filter(|(_, sees)| *sees).map(|(turn, _)| turn).collect())
}

/// Empties the reasons that may not be seen: a branch can begin in a session outside, with the user's message there.
async fn hide_reasons(
    store: &dyn Graph,
    reach: &Reach,
    found: &mut Blame,
    shown: &[usize],
) -> Result<(), CallError> {
    let asked: BTreeSet<NodeId> = shown.iter().filter_map(|place| found.turns[*place].asked).collect();
    let asked: Vec<NodeId> = asked.into_iter().collect();
    let sees = reach.sight().sees(store, &asked).await?;
    let seen: BTreeSet<NodeId> =
        asked.into_iter().zip(sees).filter(|(_, sees)| *sees).map(|(id, _)| id).collect();
    for place in shown {
        let turn = &mut found.turns[*place];
        if turn.asked.is_some_and(|asked| !seen.contains(&asked)) {
            turn.reason.clear();
        }
    }
    Ok(())
}

fn author(found: &Blame, seen: &BTreeMap<usize, NodeId>, at: usize, most: usize) -> String {
    match found.lines.get(at) {
        Some(LineAuthor::Turn(place)) => match (seen.get(place), found.turns.get(*place)) {
            (Some(node), Some(turn)) => {
                let session = turn.session.as_ref().map_or_else(String::new, |id| format!(" session {id}"));
                let agent = one_line(&turn.agent, NAME);
                let reason = one_line(&turn.reason, most);
                let commit =
                    turn.commit.as_ref().map_or_else(String::new, |id| format!(" commit {}", short(id)));
                let (node, at) = (node.short(), minute(turn.at));
                let what = if turn.asked.is_none() && !reason.is_empty() { "change" } else { "asked" };
                format!("{node}  {at}  {agent}{session}{commit}  {what}: {reason}")
            }
            _ => "a session outside of what may be seen here".into(),
        },
        Some(LineAuthor::Unknown(why)) => format!("unknown: {why}"),
        Some(LineAuthor::Nobody) | None => "no agent".into(),
    }
}

/// The first digits of a commit.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// The file that is meant, without links, where it may be looked at.
fn resolved(reach: &Reach, text: &str) -> Result<PathBuf, CallError> {
    let shown = one_line(text, PATH);
    let path = match (Path::new(text), reach.base()) {
        (path, _) if path.is_absolute() => path.to_owned(),
        (path, Some(base)) => base.join(path),
        (_, None) => return Err(CallError::File(format!("{shown} is relative; give an absolute path"))),
    };
    match path.canonicalize() {
        Ok(found) if reach.holds(&found) => Ok(found),
        Err(error) if is_within(reach, &path) => {
            Err(CallError::File(format!("{shown} cannot be read: {error}")))
        }
        Ok(_) | Err(_) => Err(CallError::File(format!("{shown} is outside of {}", reach.words()))),
    }
}

/// Whether a path that leads to nothing may be told from one outside. Where it leads out, nobody learns which files exist.
fn is_within(reach: &Reach, path: &Path) -> bool {
    if reach.base().is_none() {
        return true;
    }
    if !reach.holds(path) || path.components().any(|part| part == Component::ParentDir) {
        return false;
    }
    for above in path.ancestors() {
        if let Ok(found) = above.canonicalize() {
            return reach.holds(&found);
        }
        // A link to nothing may lead out.
        if above.is_symlink() {
            return false;
        }
    }
    false
}

fn content(path: &Path) -> Result<String, CallError> {
    let shown = one_line(&path.to_string_lossy(), PATH);
    let failed = |error: std::io::Error| CallError::File(format!("{shown} cannot be read: {error}"));
    let found = std::fs::metadata(path).map_err(failed)?;
    if !found.is_file() {
        return Err(CallError::File(format!("{shown} is not a file")));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(FILE_LIMIT + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if bytes.len() as u64 > FILE_LIMIT {
        return Err(CallError::File(format!("{shown} is larger than the limit of {FILE_LIMIT} bytes")));
    }
    String::from_utf8(bytes).map_err(|_| CallError::File(format!("{shown} is not text")))
}
