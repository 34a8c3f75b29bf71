//! Lines of a file by the commits that they come from: where a commit names the node that made it, its lines are known also in
//! another directory, after a rebase, a squash or a merge.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use quipu_protocol::{Entry, Message, NodeId, SessionId, UnixMs};
use quipu_store::{
    Graph, LineageEnd, Resolution, Scope, SessionQuery, SessionRow, Spelling, SpellingKind, StoreError,
    decode_with,
};

use super::walk::{Attribution, Walk, command_of};
use super::{Blame, BlameTurn, LineAuthor, ReadFile, UnknownReason};

/// The key of the trailer with which a commit names the node that made it.
pub const NODE_TRAILER: &str = "Quipu-Node";
/// Digits of a node in a trailer.
const DIGITS: std::ops::RangeInclusive<usize> = 40..=64;
/// Trailers that are looked up for one file.
const TRAILERS: usize = 2_000;
/// Sessions whose files are looked through for one file.
const SESSIONS: usize = 64;
/// Other paths of a file that are looked at.
const PATHS: usize = 16;
/// Commits have whole seconds.
const SECOND: UnixMs = 1_000;
/// Nodes that are gone back over in search of the user's words.
const FAR: usize = 400;

/// A commit, and what the trailers in its message say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedCommit {
    /// Its id.
    pub id: String,
    /// When it was made, to the second; `None` where that is not known.
    pub at: Option<UnixMs>,
    /// The values of its trailers.
    pub nodes: Vec<String>,
}

/// The commits of a file's lines.
#[derive(Debug, Clone, Copy)]
pub struct LineCommits<'a> {
    /// For each line its commit, as a place in `commits`.
    pub lines: &'a [Option<usize>],
    /// The commits.
    pub commits: &'a [NamedCommit],
    /// The file, by its true path.
    pub path: &'a Path,
}

/// What came of the trailers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrailerReport {
    /// Lines whose turn is known by a commit.
    pub lines: usize,
    /// Trailers that name no answer of a model in this store.
    pub unknown: usize,
    /// Trailers that name no node at all.
    pub malformed: usize,
    /// Trailers that name an answer which cannot have made the commit: it came later, or runs no command.
    pub unfit: usize,
    /// Whether there are more than are looked up.
    pub is_cut: bool,
}

/// A node that commits name.
#[derive(Debug, Clone)]
struct NamedNode {
    node: NodeId,
    at: UnixMs,
    session: Option<SessionId>,
    agent: String,
    cwd: String,
    /// Whether the answer holds a call of a command.
    runs_command: bool,
}

impl NamedNode {
    /// Whether a commit of this time can be made by the answer.
    fn can_make(&self, at: Option<UnixMs>) -> bool {
        self.runs_command && at.is_some_and(|at| self.at.div_euclid(SECOND) <= at.div_euclid(SECOND))
    }
}

/// The file in another clone, by the sessions that worked there.
struct WatchedClone {
    sessions: BTreeSet<SessionId>,
    owners: Vec<Attribution>,
    /// Which lines were seen there.
    seen: Vec<bool>,
}

/// Gives lines that no known call wrote to the turns that their commits name. Where sessions that these turns belong to changed
/// the same file of another clone, a line belongs to the turn that wrote it there, else to the turn that made the commit. What a
/// session in this directory or in that clone saw and left to nobody stays nobody's, for its changes are known.
///
/// # Errors
/// What the store says.
pub async fn credit_commits(
    store: &dyn Graph,
    blame: &mut Blame,
    content: &str,
    from: LineCommits<'_>,
    read: ReadFile<'_>,
) -> Result<TrailerReport, StoreError> {
    let mut report = TrailerReport::default();
    let open: Vec<(usize, usize)> = blame
        .lines
        .iter()
        .zip(from.lines)
        .enumerate()
        .filter(|(_, (author, _))| !matches!(author, LineAuthor::Turn(_)))
        .filter_map(|(line, (_, commit))| Some((line, (*commit)?)))
        .filter(|(_, commit)| from.commits.get(*commit).is_some_and(|commit| !commit.nodes.is_empty()))
        .collect();
    if open.is_empty() {
        return Ok(report);
    }
    let named = named(store, &open, from.commits, &mut report).await?;
    let elsewhere = |node: &NamedNode| blame.changes == 0 || !is_around(from.path, &node.cwd);
    let sessions: Vec<SessionId> = {
        let all = named.values().flatten().filter(|node| elsewhere(node));
        all.filter_map(|node| node.session.clone()).collect::<BTreeSet<_>>().into_iter().collect()
    };
    let written = written_elsewhere(store, &sessions, content, from.path, read).await?;
    let mut turns: BTreeMap<(NodeId, usize), BlameTurn> = BTreeMap::new();
    let mut credits: Vec<(usize, (NodeId, usize))> = Vec::new();
    for (line, commit) in open {
        let Some(nodes) = named.get(&commit) else { continue };
        let nodes: Vec<&NamedNode> = match blame.lines.get(line) {
            Some(LineAuthor::Nobody) => nodes.iter().filter(|node| elsewhere(node)).collect(),
            _ => nodes.iter().collect(),
        };
        let of_these = |session: &Option<SessionId>| {
            session.is_some() && nodes.iter().any(|node| node.session == *session)
        };
        let call = written.iter().find_map(|clone| match clone.owners.get(line) {
            Some(Attribution::Call(call)) if of_these(&call.session) => Some(call),
            _ => None,
        });
        if let Some(call) = call {
            let turn = BlameTurn {
                node: call.node,
                session: call.session.clone(),
                agent: call.agent.clone(),
                at: call.at,
                asked: call.asked,
                reason: String::new(),
                commit: Some(from.commits[commit].id.clone()),
            };
            turns.entry((call.node, commit)).or_insert(turn);
            credits.push((line, (call.node, commit)));
            continue;
        }
        let is_of_nobody = |clone: &WatchedClone| {
            clone.seen.get(line) == Some(&true)
                && matches!(clone.owners.get(line), Some(Attribution::Nobody))
                && nodes
                    .iter()
                    .any(|node| node.session.as_ref().is_some_and(|id| clone.sessions.contains(id)))
        };
        if written.iter().any(is_of_nobody) {
            continue;
        }
        match nodes.as_slice() {
            [] => {}
            [one] => {
                turns.entry((one.node, commit)).or_insert_with(|| BlameTurn {
                    node: one.node,
                    session: one.session.clone(),
                    agent: one.agent.clone(),
                    at: one.at,
                    asked: None,
                    reason: String::new(),
                    commit: Some(from.commits[commit].id.clone()),
                });
                credits.push((line, (one.node, commit)));
            }
            _ => blame.lines[line] = LineAuthor::Unknown(UnknownReason::SeveralTurns),
        }
    }
    report.lines = credits.len();
    ask(store, &mut turns).await?;
    let mut places: HashMap<(NodeId, usize), usize> = HashMap::new();
    for (key, turn) in turns {
        places.insert(key, blame.turns.len());
        blame.turns.push(turn);
    }
    for (line, key) in credits {
        if let Some(place) = places.get(&key) {
            blame.lines[line] = LineAuthor::Turn(*place);
        }
    }
    in_order(blame);
    Ok(report)
}

/// The nodes that commits of open lines name, by the place of the commit.
async fn named(
    store: &dyn Graph,
    open: &[(usize, usize)],
    commits: &[NamedCommit],
    report: &mut TrailerReport,
) -> Result<BTreeMap<usize, Vec<NamedNode>>, StoreError> {
    let mut by_text: BTreeMap<String, Option<NodeId>> = BTreeMap::new();
    let wanted: BTreeSet<usize> = open.iter().map(|(_, commit)| *commit).collect();
    let mut texts: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for commit in wanted {
        for text in &commits[commit].nodes {
            if !DIGITS.contains(&text.len()) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                report.malformed += 1;
                continue;
            }
            let text = text.to_ascii_lowercase();
            if !by_text.contains_key(&text) {
                if by_text.len() == TRAILERS {
                    report.is_cut = true;
                    continue;
                }
                let found = store.resolve(&Spelling::from(text.as_str()), &Scope::default()).await?;
                let node = match found {
                    Resolution::One(one) if one.by == SpellingKind::Hash => Some(one.node),
                    Resolution::One(_) | Resolution::Many(_) | Resolution::None => None,
                };
                by_text.insert(text.clone(), node);
            }
            texts.entry(commit).or_default().push(text);
        }
    }
    let ids: Vec<NodeId> = by_text.values().flatten().copied().collect::<BTreeSet<_>>().into_iter().collect();
    let known = known(store, &ids).await?;
    report.unknown =
        by_text.values().filter(|node| node.is_none_or(|node| !known.contains_key(&node))).count();
    let mut of = |commit: usize, texts: Vec<String>| -> Vec<NamedNode> {
        let mut found: Vec<NamedNode> = Vec::new();
        for node in texts.iter().filter_map(|text| known.get(by_text.get(text)?.as_ref()?)) {
            if !node.can_make(commits[commit].at) {
                report.unfit += 1;
            } else if found.iter().all(|one| one.node != node.node) {
                found.push(node.clone());
            }
        }
        found
    };
    Ok(texts
        .into_iter()
        .map(|(commit, texts)| (commit, of(commit, texts)))
        .filter(|(_, nodes)| !nodes.is_empty())
        .collect())
}

/// Those of the nodes that are answers of a model, with their sessions.
async fn known(store: &dyn Graph, ids: &[NodeId]) -> Result<HashMap<NodeId, NamedNode>, StoreError> {
    let mut rows: HashMap<SessionId, Option<SessionRow>> = HashMap::new();
    let mut known = HashMap::new();
    let hidden = store.hidden();
    for page in ids.chunks(super::PAGE) {
        let nodes: Vec<_> = store.nodes(page).await?.into_iter().flatten().collect();
        let entries = decode_with(store, &hidden, &nodes).await?;
        let of: Vec<NodeId> = nodes.iter().map(|node| node.id).collect();
        let sessions = store.sessions_of(&of).await?;
        for ((node, decoded), session) in nodes.iter().zip(entries).zip(sessions) {
            let Entry::Message(Message::Assistant(answer)) = decoded.entry else { continue };
            let row = match &session {
                None => None,
                Some(id) => match rows.get(id) {
                    Some(row) => row.clone(),
                    None => {
                        let query =
                            SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
                        let row = store.sessions(query).await?.into_iter().next();
                        rows.entry(id.clone()).or_insert(row).clone()
                    }
                },
            };
            // As everywhere, one that was removed gives no more than its nodes.
            let (session, agent, cwd) = match row {
                Some(row) if row.head.is_some() => (Some(row.id), row.agent, row.cwd),
                Some(row) => (None, row.agent, row.cwd),
                None => (None, String::new(), String::new()),
            };
            let runs_command = answer.tool_calls().any(|call| command_of(call.arguments.get()).is_some());
            let at = answer.timestamp;
            known.insert(node.id, NamedNode { node: node.id, at, session, agent, cwd, runs_command });
        }
    }
    Ok(known)
}

/// Whether a session that works in a directory watched the file.
fn is_around(file: &Path, cwd: &str) -> bool {
    !cwd.is_empty() && file.starts_with(cwd)
}

/// Who wrote the lines in other clones, as far as these sessions worked there.
async fn written_elsewhere(
    store: &dyn Graph,
    sessions: &[SessionId],
    content: &str,
    path: &Path,
    read: ReadFile<'_>,
) -> Result<Vec<WatchedClone>, StoreError> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let mut paths: BTreeMap<usize, BTreeMap<String, BTreeSet<SessionId>>> = BTreeMap::new();
    for session in sessions.iter().take(SESSIONS) {
        for file in store.file_activity(session).await?.found {
            let file = file.path;
            if Path::new(&file).file_name().is_some_and(|other| other == name) && Path::new(&file) != path {
                let same = common_end(Path::new(&file), path);
                paths.entry(same).or_default().entry(file).or_default().insert(session.clone());
            }
        }
    }
    // Those that share most of the path: the same file of another clone.
    let Some((_, paths)) = paths.pop_last() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (path, sessions) in paths.into_iter().take(PATHS) {
        let mut walk = Walk::new(store, read);
        let owners = walk.lines(&[path], content.as_bytes(), 0..usize::MAX).await?;
        found.push(WatchedClone { sessions, owners, seen: walk.followed });
    }
    Ok(found)
}

/// How many names at the end of two paths are the same.
fn common_end(a: &Path, b: &Path) -> usize {
    a.components().rev().zip(b.components().rev()).take_while(|(a, b)| a == b).count()
}

/// Adds what the user had said before each turn.
async fn ask(store: &dyn Graph, turns: &mut BTreeMap<(NodeId, usize), BlameTurn>) -> Result<(), StoreError> {
    let mut asked: HashMap<NodeId, Option<(NodeId, String)>> = HashMap::new();
    let hidden = store.hidden();
    for turn in turns.values_mut() {
        if let MapEntry::Vacant(place) = asked.entry(turn.node) {
            let before = match turn.asked {
                Some(asked) => store.nodes(&[asked]).await?.into_iter().flatten().collect(),
                None => store.lineage(turn.node, LineageEnd::Count(FAR)).await?,
            };
            let mut found = None;
            for page in before.rchunks(super::PAGE) {
                let entries = decode_with(store, &hidden, page).await?;
                let user = page.iter().zip(entries).rev().find_map(|(node, decoded)| match decoded.entry {
                    Entry::Message(Message::User(message)) => Some((node.id, message.content.text())),
                    _ => None,
                });
                if user.is_some() {
                    found = user;
                    break;
                }
            }
            place.insert(found);
        }
        if let Some(Some((node, words))) = asked.get(&turn.node) {
            (turn.asked, turn.reason) = (Some(*node), words.clone());
        }
    }
    Ok(())
}

/// Brings the turns in the order of their times, and leaves out those of no line.
fn in_order(blame: &mut Blame) {
    let used: HashSet<usize> = blame
        .lines
        .iter()
        .filter_map(|line| match line {
            LineAuthor::Turn(place) => Some(*place),
            LineAuthor::Nobody | LineAuthor::Unknown(_) => None,
        })
        .collect();
    let mut turns: Vec<(usize, BlameTurn)> = std::mem::take(&mut blame.turns)
        .into_iter()
        .enumerate()
        .filter(|(place, _)| used.contains(place))
        .collect();
    turns.sort_by(|(_, a), (_, b)| (a.at, a.node, &a.commit).cmp(&(b.at, b.node, &b.commit)));
    let places: HashMap<usize, usize> = turns.iter().enumerate().map(|(new, (old, _))| (*old, new)).collect();
    for line in &mut blame.lines {
        if let LineAuthor::Turn(place) = line
            && let Some(new) = places.get(place)
        {
            *place = *new;
        }
    }
    blame.turns = turns.into_iter().map(|(_, turn)| turn).collect();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_paths_are_compared_by_names() {
        let same = |a: &str, b: &str| common_end(Path::new(a), Path::new(b));
        assert_eq!(same("/a/src/lib.rs", "/b/src/lib.rs"), 2);
        assert_eq!(same("/a/xsrc/lib.rs", "/b/src/lib.rs"), 1);
        assert_eq!(same("/a", "/b"), 0);
    }
}
