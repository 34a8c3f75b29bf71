//! Looking up, newest first, and ranking what is newest.

use std::collections::{HashMap, HashSet};

use quipu_dag::Node;
use quipu_protocol::{NodeId, SessionId};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::super::failure::Outcome;
use super::super::twins::Twins;
use super::super::{graph, rows};
use super::mark::Term;
use super::mark::{self, Place};
use super::query;
use super::text::{Reader, spread};
use super::{Kind, cursor, exists, tag, unindexed};
use crate::{Hit, MatchKind, MatchMode, Order, RANKED, SearchHits, SearchQuery, Sessions};

/// Hits that are looked at in one search at most.
const LOOKED_AT: usize = 20_000;
/// Hits of one session that are passed over, one by one, when it has enough of them.
const PASSED: u64 = 500;
/// Directories below the one asked for that are looked in at most, the last used ones.
const DIRECTORIES: i64 = 500;
/// Sessions that go on from a removed one that are looked at.
const HEIRS: i64 = 100;
/// The newest nodes that tell how rare a word is.
const SAMPLE: i64 = 20_000;
/// Nodes with the words but of other projects or speakers that are looked at, before the index is asked for both.
const OTHERS: usize = 64;

/// Answers a query from what is indexed.
pub(in crate::sqlite) fn find(connection: &Connection, query: &SearchQuery) -> Outcome<SearchHits> {
    let mut found = SearchHits { behind: unindexed(connection)?, ..SearchHits::default() };
    if !exists(connection)? {
        return Ok(found);
    }
    let terms = query::terms(&query.words);
    let Some(scope) = Scope::of(connection, query)? else { return Ok(found) };
    let mut search = Search::new(connection, query, &terms, scope);
    if query.matching != MatchMode::Substrings {
        let words = query::by_words(&terms);
        if words.is_some() || terms.is_empty() {
            search.take_words(words.as_ref())?;
        }
    }
    if query.matching != MatchMode::Words && search.drafts.len() < search.most {
        match query::by_substrings(&terms) {
            Some(condition) => search.take_substrings(&condition)?,
            None => found.too_short = terms.iter().map(|term| term.text.clone()).collect(),
        }
    }
    found.cut = search.cut;
    found.hits = search.hits(query.order == Order::Best)?;
    Ok(found)
}

/// The rows after `floor` whose nodes meet the conditions on tags and paths: `Some(None)` for all, `None` for none.
pub(in crate::sqlite) fn allowed(
    connection: &Connection,
    query: &SearchQuery,
    floor: i64,
) -> Outcome<Option<Option<HashSet<i64>>>> {
    if !exists(connection)? {
        return Ok(None);
    }
    let Some(scope) = Scope::of(connection, query)? else { return Ok(None) };
    let mut rows: Option<HashSet<i64>> = None;
    for condition in scope.conditions() {
        let mut statement = connection
            .prepare_cached("SELECT rowid FROM quipu_x_words WHERE quipu_x_words MATCH ?1 AND rowid > ?2")?;
        let found = statement.query_map(params![condition, floor], |row| row.get(0))?;
        let found: HashSet<i64> = found.collect::<Result<_, _>>()?;
        rows = Some(match rows {
            Some(rows) => rows.intersection(&found).copied().collect(),
            None => found,
        });
    }
    Ok(Some(rows))
}

/// The first of these rows (with how near they are) that meet the other conditions, as hits; whether there was too much
/// to look at.
pub(in crate::sqlite) fn near(
    connection: &Connection,
    query: &SearchQuery,
    ranked: &[(f64, i64)],
    most: usize,
    is_same: &dyn Fn(i64, &NodeId) -> Outcome<bool>,
) -> Outcome<(Vec<Hit>, bool)> {
    let terms = query::terms(&query.words);
    let mut search = Search::new(connection, query, &terms, Scope::default());
    for (score, seq) in ranked {
        if search.drafts.len() >= most {
            break;
        }
        if search.looked_at >= LOOKED_AT {
            search.cut = true;
            break;
        }
        search.looked_at += 1;
        let session = search.session_of(*seq)?;
        let Some(node) = rows::node_at(connection, *seq)? else { continue };
        if !search.passes(&node, session)? || !is_same(*seq, &node.id)? {
            continue;
        }
        let is_there = |twin| ranked.iter().any(|(_, seq)| *seq == twin);
        if search.is_shown_elsewhere(*seq, session, &node, &is_there)? {
            continue;
        }
        let text = search.reader.said(&node)?;
        let (places, words) = mark::by_words(&text, &terms);
        let (by, tool, score) = (MatchKind::Semantic, None, Some(*score));
        search.drafts.push(HitDraft { seq: *seq, node, session, by, tool, text, places, words, score });
    }
    let cut = search.cut;
    Ok((search.hits(false)?, cut))
}

/// Whether a node is in a session that was not removed, or that one which goes on from it needs.
pub(in crate::sqlite) fn stands(
    connection: &Connection,
    session: Option<i64>,
    node: &NodeId,
) -> Outcome<bool> {
    let query = SearchQuery { sessions: Sessions::Standing, ..SearchQuery::default() };
    Search::new(connection, &query, &[], Scope::default()).is_standing(session, node)
}

/// What the tags and paths of a node must be.
#[derive(Default)]
struct Scope {
    /// Conditions of the index; tags that few nodes have.
    rare: Vec<String>,
    /// The condition that names the projects, which many nodes can meet, and their directories.
    project: Option<(String, HashSet<String>)>,
    /// The same of who spoke, and their roles.
    speakers: Option<(String, Vec<&'static str>)>,
}

impl Scope {
    /// `None` when no node can be so.
    fn of(connection: &Connection, query: &SearchQuery) -> Outcome<Option<Self>> {
        let mut scope = Self::default();
        if !query.speakers.is_empty() {
            let roles: Vec<&str> =
                query.speakers.iter().flat_map(|speaker| speaker.roles()).copied().collect();
            scope.speakers = Some((query::about(roles.iter().map(|role| tag('r', role))), roles));
        }
        if let Some(agent) = &query.agent {
            scope.rare.push(query::about([tag('a', agent)].into_iter()));
        }
        if let Some(tool) = &query.tool {
            scope.rare.push(query::about([tag('t', tool)].into_iter()));
        }
        if let Some(project) = &query.project {
            let project = project.strip_suffix('/').filter(|short| !short.is_empty()).unwrap_or(project);
            let below = if project == "/" { project.to_owned() } else { format!("{project}/") };
            // The character after the slash ends the range.
            let end = format!("{}0", below.strip_suffix('/').unwrap_or(&below));
            let mut statement = connection.prepare_cached(
                "SELECT project, max(updated) AS last FROM quipu_x_session \
                 WHERE project = ?1 OR (project >= ?2 AND project < ?3) GROUP BY project ORDER BY last DESC LIMIT ?4",
            )?;
            let found = statement
                .query_map(params![project, below, end, DIRECTORIES], |row| row.get::<_, String>(0))?;
            let directories: HashSet<String> = found.collect::<rusqlite::Result<_>>()?;
            if directories.is_empty() {
                return Ok(None);
            }
            let condition = query::about(directories.iter().map(|directory| tag('p', directory)));
            scope.project = Some((condition, directories));
        }
        if let Some(file) = &query.file {
            if mark::tokens(file).next().is_none() {
                return Ok(None);
            }
            scope.rare.push(query::about([spread(file)].into_iter()));
        }
        Ok(Some(scope))
    }

    fn conditions(&self) -> impl Iterator<Item = &String> {
        let project = self.project.as_ref().map(|(condition, _)| condition);
        let speakers = self.speakers.as_ref().map(|(condition, _)| condition);
        self.rare.iter().chain(project).chain(speakers)
    }
}

struct Search<'a> {
    connection: &'a Connection,
    query: &'a SearchQuery,
    terms: &'a [Term],
    scope: Scope,
    /// Whether the sessions that were looked at are of the project.
    inside: HashMap<i64, bool>,
    /// The condition on tags that must not hold.
    without: Option<String>,
    /// Whether sessions that were looked at still stand.
    standing: HashMap<i64, SessionFilter>,
    /// Hits to take at most.
    most: usize,
    reader: Reader<'a>,
    looked_at: usize,
    cut: bool,
    /// How many hits of a session were taken, and passed over.
    sessions: HashMap<Option<i64>, (usize, u64)>,
    drafts: Vec<HitDraft>,
}

/// What the index is asked for.
struct IndexConditions {
    /// Less than `all`: what it leaves out is looked up of each hit, until many are others.
    few: Option<String>,
    all: String,
}

/// Whether hits of a session count.
enum SessionFilter {
    All,
    /// It was removed: those that lead to one of these, the first nodes of sessions that go on from it.
    LeadingTo(Vec<NodeId>),
}

struct HitDraft {
    seq: i64,
    node: Node,
    session: Option<i64>,
    by: MatchKind,
    tool: Option<String>,
    text: String,
    places: Vec<Place>,
    words: usize,
    score: Option<f64>,
}

impl<'a> Search<'a> {
    fn new(connection: &'a Connection, query: &'a SearchQuery, terms: &'a [Term], scope: Scope) -> Self {
        Self {
            connection,
            query,
            terms,
            scope,
            inside: HashMap::new(),
            without: (!query.without_tools.is_empty())
                .then(|| query::about(query.without_tools.iter().map(|tool| tag('t', tool)))),
            standing: HashMap::new(),
            most: match query.order {
                Order::Newest => query.limit,
                Order::Best => query.limit.max(RANKED),
            },
            reader: Reader::new(connection),
            looked_at: 0,
            cut: false,
            sessions: HashMap::new(),
            drafts: Vec::new(),
        }
    }

    fn take_words(&mut self, words: Option<&String>) -> Outcome<()> {
        let statement =
            "SELECT rowid FROM quipu_x_words WHERE quipu_x_words MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC";
        let without = self.without.as_ref();
        let joined = |conditions: &mut dyn Iterator<Item = &String>| {
            let all = conditions.map(String::as_str).collect::<Vec<_>>().join(" AND ");
            match without {
                _ if all.is_empty() => None,
                Some(without) => Some(format!("({all}) NOT {without}")),
                None => Some(all),
            }
        };
        let Some(all) = joined(&mut words.into_iter().chain(self.scope.conditions())) else { return Ok(()) };
        // Most nodes are of the project in question and of one that speaks: to look at what a few hits are costs less than to walk
        // through the list of all of them.
        let few = words.and_then(|words| joined(&mut [words].into_iter().chain(&self.scope.rare)));
        let conditions = IndexConditions { few: few.filter(|few| *few != all), all };
        self.take(Kind::Words, statement, &conditions, |search, seq, node, session| {
            let document = search.reader.text(&node)?;
            let (places, words) = mark::by_words(&document.text, search.terms);
            // Rows of another program's file can have got other numbers.
            if places.is_empty() && !search.terms.is_empty() {
                return Ok(None);
            }
            let (by, tool, text) = (MatchKind::Words, document.tool, document.text);
            Ok(Some(HitDraft { seq, node, session, by, tool, text, places, words, score: None }))
        })
    }

    fn take_substrings(&mut self, condition: &str) -> Outcome<()> {
        let statement =
            "SELECT rowid FROM quipu_x_parts WHERE quipu_x_parts MATCH ?1 AND rowid < ?2 ORDER BY rowid DESC";
        let known: HashSet<i64> = self.drafts.iter().map(|taken| taken.seq).collect();
        let conditions = IndexConditions { few: None, all: condition.to_owned() };
        self.take(Kind::Substrings, statement, &conditions, |search, seq, node, session| {
            if known.contains(&seq)
                || !search.is_inside(session)?
                || !search.is_spoken(&node)?
                || !search.is_indexed_with(seq, search.scope.rare.iter())?
            {
                return Ok(None);
            }
            let text = search.reader.parts(&node)?;
            let Some(places) = mark::by_substrings(&text, search.terms) else { return Ok(None) };
            let (by, tool, words) = (MatchKind::Substring, search.reader.text(&node)?.tool, text.len() / 6);
            Ok(Some(HitDraft { seq, node, session, by, tool, text, places, words, score: None }))
        })
    }

    /// Takes what a table has, newest first, as far as the conditions hold that are not in it.
    fn take(
        &mut self,
        kind: Kind,
        statement: &str,
        conditions: &IndexConditions,
        mut read: impl FnMut(&mut Self, i64, Node, Option<i64>) -> Outcome<Option<HitDraft>>,
    ) -> Outcome<()> {
        let before = self.drafts.len();
        let until = cursor(self.connection, kind)?;
        let mut statement = self.connection.prepare_cached(statement)?;
        let mut below = i64::MAX;
        let mut few = conditions.few.as_ref();
        let mut others = 0;
        'below: loop {
            let mut found = statement.query(params![few.unwrap_or(&conditions.all), below])?;
            while self.drafts.len() < self.most {
                let Some(row) = found.next()? else { break 'below };
                let seq: i64 = row.get(0)?;
                if self.looked_at >= LOOKED_AT {
                    self.cut = true;
                    break 'below;
                }
                self.looked_at += 1;
                let session = self.session_of(seq)?;
                // Read once: for who said it, where the index is not asked, and for the other conditions.
                let mut node = None;
                if few.is_some() && !self.is_of_scope(seq, session, &mut node)? {
                    others += 1;
                    if others == OTHERS {
                        few = None;
                        below = seq;
                        continue 'below;
                    }
                    continue;
                }
                if self.query.order == Order::Newest
                    && let Some(most) = self.query.per_session
                    && let Some((taken, passed)) = self.sessions.get_mut(&session)
                    && *taken >= most
                {
                    *passed += 1;
                    if *passed % PASSED == 0
                        && let Some(first) = session
                    {
                        // The others of this session stand after its first node. Sessions that were written at the
                        // same time are passed over with it.
                        self.cut = true;
                        below = first;
                        continue 'below;
                    }
                    continue;
                }
                let node = match node {
                    Some(node) => Some(node),
                    None => rows::node_at(self.connection, seq)?,
                };
                let Some(node) = node else { continue };
                if !self.passes(&node, session)? {
                    continue;
                }
                if let Some(taken) = read(self, seq, node, session)?
                    && !self.is_shown_elsewhere(seq, session, &taken.node, &|twin| twin <= until)?
                {
                    self.sessions.entry(session).or_default().0 += 1;
                    self.drafts.push(taken);
                }
            }
            break;
        }
        if before > 0 {
            self.drafts.sort_by_key(|taken| std::cmp::Reverse(taken.seq));
        }
        Ok(())
    }

    /// Whether the tags and paths of a node are as they must be.
    fn is_in_scope(&self, seq: i64) -> Outcome<bool> {
        self.is_indexed_with(seq, self.scope.conditions())
    }

    /// Whether a node meets these conditions, and has no tag that it must not have.
    fn is_indexed_with<'c>(&self, seq: i64, wanted: impl Iterator<Item = &'c String>) -> Outcome<bool> {
        let wanted = wanted.map(String::as_str).collect::<Vec<_>>().join(" AND ");
        let wanted = (!wanted.is_empty()).then_some(&wanted);
        for (condition, wanted) in [(wanted, true), (self.without.as_ref(), false)] {
            let Some(condition) = condition else { continue };
            let mut statement = self
                .connection
                .prepare_cached("SELECT 1 FROM quipu_x_words WHERE quipu_x_words MATCH ?1 AND rowid = ?2")?;
            if statement.exists(params![condition, seq])? != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a session works in the project, as the index would say.
    fn is_inside(&mut self, session: Option<i64>) -> Outcome<bool> {
        let Some((_, directories)) = &self.scope.project else { return Ok(true) };
        let Some(number) = session else { return Ok(false) };
        if let Some(known) = self.inside.get(&number) {
            return Ok(*known);
        }
        let directory: Option<String> = self
            .connection
            .prepare_cached("SELECT project FROM quipu_x_session WHERE num = ?1")?
            .query_row([number], |row| row.get(0))
            .optional()?;
        let is_inside = directory.is_some_and(|directory| directories.contains(&directory));
        self.inside.insert(number, is_inside);
        Ok(is_inside)
    }

    /// Whether one of the speakers said a node.
    fn is_spoken(&self, node: &Node) -> Outcome<bool> {
        let Some((_, roles)) = &self.scope.speakers else { return Ok(true) };
        Ok(roles.contains(&rows::role_of(self.connection, node)?))
    }

    /// Whether a node is of the project and of the speakers; `node` gets it where it was read for that.
    fn is_of_scope(&mut self, seq: i64, session: Option<i64>, node: &mut Option<Node>) -> Outcome<bool> {
        if !self.is_inside(session)? {
            return Ok(false);
        }
        if self.scope.speakers.is_none() {
            return Ok(true);
        }
        *node = rows::node_at(self.connection, seq)?;
        node.as_ref().map_or(Ok(false), |node| self.is_spoken(node))
    }

    /// Whether what a node says is a hit in the session that it was copied from. `is_there` says of a row whether it can be found.
    fn is_shown_elsewhere(
        &mut self,
        seq: i64,
        session: Option<i64>,
        node: &Node,
        is_there: &dyn Fn(i64) -> bool,
    ) -> Outcome<bool> {
        let Some(session) = session else { return Ok(false) };
        let twins = Twins::of(self.connection, seq, session, node)?;
        for twin in twins.others.iter().filter(|twin| twins.is_after(twin) && is_there(twin.seq)) {
            if self.is_in_scope(twin.seq)?
                && let Some(node) = rows::node_at(self.connection, twin.seq)?
                && self.passes(&node, Some(twin.session))?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn session_of(&self, seq: i64) -> Outcome<Option<i64>> {
        let mut statement =
            self.connection.prepare_cached("SELECT session FROM quipu_x_node WHERE seq = ?1")?;
        Ok(statement.query_row([seq], |row| row.get(0)).optional()?.flatten())
    }

    /// Whether a node meets the conditions that are in no index.
    fn passes(&mut self, node: &Node, session: Option<i64>) -> Outcome<bool> {
        if !self.is_standing(session, &node.id)?
            || self.query.since.is_some_and(|since| node.record.timestamp < since)
        {
            return Ok(false);
        }
        match &self.query.branch {
            Some(branch) => graph::is_ancestor(self.connection, &node.id, branch),
            None => Ok(true),
        }
    }

    /// Whether a hit counts, for the session that it is in.
    fn is_standing(&mut self, session: Option<i64>, node: &NodeId) -> Outcome<bool> {
        let (Sessions::Standing, Some(number)) = (self.query.sessions, session) else { return Ok(true) };
        if !self.standing.contains_key(&number) {
            self.standing.insert(number, self.standing_of(number)?);
        }
        match self.standing.get(&number) {
            Some(SessionFilter::LeadingTo(firsts)) => {
                for first in firsts {
                    if graph::is_ancestor(self.connection, node, first)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Some(SessionFilter::All) | None => Ok(true),
        }
    }

    fn standing_of(&self, number: i64) -> Outcome<SessionFilter> {
        let mut statement = self.connection.prepare_cached(
            "SELECT 1 FROM quipu_x_session s JOIN refs r ON r.name = s.ref \
             WHERE s.num = ?1 AND coalesce(r.node_id, '') <> ''",
        )?;
        if statement.exists([number])? {
            return Ok(SessionFilter::All);
        }
        let mut statement = self.connection.prepare_cached(
            "WITH RECURSIVE heir (id) AS (SELECT id FROM quipu_x_session WHERE num = ?1 \
             UNION SELECT s.id FROM heir JOIN quipu_x_session s ON s.parent = heir.id LIMIT ?2) \
             SELECT s.base FROM heir JOIN quipu_x_session s ON s.id = heir.id JOIN refs r ON r.name = s.ref \
             WHERE s.num <> ?1 AND coalesce(r.node_id, '') <> ''",
        )?;
        let firsts = statement.query_map([number, HEIRS], |row| row.get(0).map(NodeId))?;
        Ok(SessionFilter::LeadingTo(firsts.collect::<Result<_, _>>()?))
    }

    /// What was taken, in the order in which it was or by what it says of the words.
    fn hits(mut self, ranked: bool) -> Outcome<Vec<Hit>> {
        if ranked {
            self.rank()?;
        }
        let mut ids: HashMap<Option<i64>, Option<SessionId>> = HashMap::from([(None, None)]);
        let mut hits: Vec<(Option<i64>, Hit)> = Vec::new();
        for taken in self.drafts {
            let session = match ids.get(&taken.session) {
                Some(known) => known.clone(),
                None => {
                    let id: Option<String> = self
                        .connection
                        .prepare_cached("SELECT id FROM quipu_x_session WHERE num = ?1")?
                        .query_row([taken.session], |row| row.get(0))
                        .optional()?;
                    let id = id.map(SessionId::from);
                    ids.insert(taken.session, id.clone());
                    id
                }
            };
            let hit = Hit {
                node: taken.node.id,
                session,
                role: rows::role_of(self.connection, &taken.node)?.to_owned(),
                tool: taken.tool,
                at: taken.node.record.timestamp,
                by: taken.by,
                excerpt: mark::excerpt(&taken.text, &taken.places),
                score: taken.score,
                more: 0,
                withdrawn: None,
            };
            hits.push((taken.session, hit));
        }
        for (session, (_, passed)) in self.sessions {
            if let Some((_, hit)) = hits.iter_mut().rev().find(|(of, _)| *of == session) {
                hit.more = passed;
            }
        }
        Ok(hits.into_iter().map(|(_, hit)| hit).collect())
    }

    /// Puts what says most first, and drops what is more than asked for.
    fn rank(&mut self) -> Outcome<()> {
        let last: i64 = self
            .connection
            .prepare_cached("SELECT coalesce(max(rowid), 0) FROM nodes")?
            .query_row([], |row| row.get(0))?;
        let mut rarity = Vec::with_capacity(self.terms.len());
        for term in self.terms {
            let nodes: i64 = match query::by_words(std::slice::from_ref(term)) {
                None => 0,
                Some(condition) => self
                    .connection
                    .prepare_cached(
                        "SELECT count(*) FROM quipu_x_words WHERE quipu_x_words MATCH ?1 AND rowid > ?2",
                    )?
                    .query_row(params![condition, last - SAMPLE], |row| row.get(0))?,
            };
            #[expect(clippy::cast_precision_loss, reason = "a weight")]
            let (nodes, all) = (nodes as f64, SAMPLE.min(last) as f64);
            rarity.push((1.0 + (all - nodes + 0.5).max(0.5) / (nodes + 0.5)).ln());
        }
        #[expect(clippy::cast_precision_loss, reason = "a weight")]
        let average =
            self.drafts.iter().map(|taken| taken.words as f64).sum::<f64>() / self.drafts.len().max(1) as f64;
        for taken in &mut self.drafts {
            taken.score = Some(mark::score(&taken.places, taken.words, average, &rarity));
        }
        // Stable: equal ones stay newest first.
        self.drafts.sort_by(|a, b| b.score.unwrap_or(0.0).total_cmp(&a.score.unwrap_or(0.0)));
        let sessions = &mut self.sessions;
        sessions.clear();
        let (limit, per_session) = (self.query.limit, self.query.per_session.unwrap_or(usize::MAX));
        let mut kept = 0;
        self.drafts.retain(|taken| {
            let (taken, passed) = sessions.entry(taken.session).or_default();
            if *taken >= per_session || kept >= limit {
                *passed += 1;
                return false;
            }
            *taken += 1;
            kept += 1;
            true
        });
        Ok(())
    }
}
