//! Before an edit: which turn changed the place last, and what the user had asked for.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use quipu_history::{Blame, LineAuthor, blame_lines, file_names, minute, sibling_file};
use quipu_protocol::{Entry, Message, NodeId, UnixMs};
use quipu_store::{StoreError, decode_nodes};
use quipu_transcript::one_line;

use crate::framed_lines::{FramedLines, without_frames};
use crate::hook_call::EditTarget;
use crate::view::{HookAnswer, View};

const HEAD: &str = "Before this edit:";
/// Bytes of a file at most.
const FILE: u64 = 1 << 20;
/// Characters of a reason.
const REASON: usize = 300;

/// A change, as it is told.
struct LastChange {
    node: NodeId,
    agent: String,
    at: UnixMs,
    reason: String,
}

pub(crate) async fn text(
    view: &View<'_>,
    targets: &[EditTarget],
    offer: &(dyn Fn(HookAnswer) + Sync),
) -> Result<Option<HookAnswer>, StoreError> {
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    let mut given = Vec::new();
    for target in targets {
        let Some(path) = resolved(&view.request.directory, &target.path) else { continue };
        let names = names_of(view, &path);
        let shown = view.short_path(&path.to_string_lossy());
        let id_of = |change: &LastChange| {
            format!("{}:{}", change.node.short(), crate::seen::file_name(&[&path.to_string_lossy()]))
        };
        if given.is_empty()
            && let Some(change) = newest(view, &names).await?
            && !view.is_seen(&id_of(&change))
        {
            offer_one(view, &shown, &change, id_of(&change), offer);
        }
        let Some(content) = content(&path) else { continue };
        let range = target.old.as_deref().and_then(|old| lines_of(&content, old));
        let asked = range.map_or(0..usize::MAX, |(first, last)| first..last + 1);
        let found = blame_lines(view.store, &names, &content, asked, &sibling_file).await?;
        let Some(change) = last(view, &found).await? else { continue };
        let place = match range {
            None => shown,
            Some((first, last)) if first == last => format!("{shown} line {}", first + 1),
            Some((first, last)) => format!("{shown} lines {}-{}", first + 1, last + 1),
        };
        let id = id_of(&change);
        if view.is_seen(&id) || given.contains(&id) {
            continue;
        }
        if !lines.push(&line(&place, &change)) {
            break;
        }
        given.push(id);
    }
    Ok(lines.finish().map(|text| HookAnswer { text, given }))
}

/// The file as a whole, for a call that has no time for its lines.
fn offer_one(
    view: &View<'_>,
    shown: &str,
    change: &LastChange,
    id: String,
    offer: &(dyn Fn(HookAnswer) + Sync),
) {
    let mut lines = FramedLines::new(view.request.tokens, HEAD);
    lines.push(&line(shown, change));
    if let Some(text) = lines.finish() {
        offer(HookAnswer { text, given: vec![id] });
    }
}

fn line(place: &str, change: &LastChange) -> String {
    let agent = one_line(&change.agent, 40);
    let agent = if agent.is_empty() { "an agent".to_owned() } else { agent };
    let reason = one_line(&without_frames(&change.reason), REASON);
    let because = if reason.trim().is_empty() { String::new() } else { format!(", because: {reason}") };
    let (at, node) = (minute(change.at), change.node.short());
    format!("{place}: last changed by {agent} {at} (node {node}){because}")
}

/// The newest change that names the file.
async fn newest(view: &View<'_>, names: &[String]) -> Result<Option<LastChange>, StoreError> {
    let Some(change) = view.store.changes(names).await?.found.pop() else { return Ok(None) };
    if view.sees(&[change.node]).await?.first() != Some(&true) {
        return Ok(None);
    }
    let mut reason = String::new();
    if let Some(asked) = change.asked
        && view.sees(&[asked]).await?.first() == Some(&true)
    {
        let nodes: Vec<_> = view.store.nodes(&[asked]).await?.into_iter().flatten().collect();
        for decoded in decode_nodes(view.store, &nodes).await? {
            if let Entry::Message(Message::User(message)) = decoded.entry {
                reason = message.content.text();
            }
        }
    }
    if change.session.as_ref().is_some_and(|session| view.is_own(session)) {
        return Ok(None);
    }
    Ok(Some(LastChange { node: change.node, agent: change.agent, at: change.at, reason }))
}

/// The newest turn that wrote one of these lines, where it may be shown and is no turn of the session that asks.
async fn last(view: &View<'_>, found: &Blame) -> Result<Option<LastChange>, StoreError> {
    let turns = found.lines.iter().filter_map(|line| match line {
        LineAuthor::Turn(turn) => found.turns.get(*turn),
        LineAuthor::Nobody | LineAuthor::Unknown(_) => None,
    });
    let Some(turn) = turns.max_by_key(|turn| turn.at) else { return Ok(None) };
    if turn.session.as_ref().is_some_and(|session| view.is_own(session))
        || view.sees(&[turn.node]).await?.first() != Some(&true)
    {
        return Ok(None);
    }
    let is_seen = match turn.asked {
        Some(asked) => view.sees(&[asked]).await?.first() == Some(&true),
        None => true,
    };
    Ok(Some(LastChange {
        node: turn.node,
        agent: turn.agent.clone(),
        at: turn.at,
        reason: if is_seen { turn.reason.clone() } else { String::new() },
    }))
}

/// The lines, from 0, that a text stands on, where it stands in one place.
fn lines_of(content: &str, old: &str) -> Option<(usize, usize)> {
    let old = old.trim_matches('\n');
    if old.trim().is_empty() {
        return None;
    }
    let mut places = content.match_indices(old);
    let (at, _) = places.next()?;
    let first = content[..at].matches('\n').count();
    places.next().is_none().then(|| (first, first + old.matches('\n').count()))
}

/// The names by which sessions may know a file of the directory, by each name of that.
fn names_of(view: &View<'_>, path: &Path) -> Vec<String> {
    let mut names = file_names(path);
    let spelled = path.strip_prefix(&view.request.directory).into_iter().flat_map(|below| {
        view.projects.iter().flat_map(move |project| file_names(&Path::new(project).join(below)))
    });
    for name in spelled {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The file without links, where it lies in the directory.
fn resolved(directory: &Path, path: &Path) -> Option<PathBuf> {
    let path = directory.join(path).canonicalize().ok()?;
    path.starts_with(directory).then_some(path)
}

/// What the file holds, where it is a text of moderate size.
fn content(path: &Path) -> Option<String> {
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > FILE { None } else { String::from_utf8(bytes).ok() }
}
