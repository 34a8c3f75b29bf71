//! The index of what was said, for questions: made when it is first asked for, and added to in quiet moments from then on.
//!
//! It is apart from the index of the search: that one holds everything and finds what has all words, this one holds what people
//! and models said, by stems, and ranks by what stands beside it too.

mod asked;
mod effort;
pub(super) mod find;
pub(super) mod notes;
mod ranker;
mod scope;
mod sign;
mod sign_table;
mod space;
mod stem;
mod terms;
#[cfg(test)]
mod tests;
pub(super) mod vectors;
mod words;

use std::collections::HashMap;

use quipu_dag::Node;
use quipu_protocol::{AuthorClass, Entry, Message, own_text};
use quipu_transcript::decode;
use rusqlite::{Connection, OptionalExtension as _, params};

use self::space::{Adder, Space, Unit, Units, kind, totals};
use super::failure::Outcome;
use super::search::Reader;
use super::{places, rows, search};
use crate::VECTOR_TEXT;

/// Nodes of one transaction, and bytes of their text: about a tenth of a second.
const STEP: (usize, usize) = (6_000, 2 << 20);
/// The same in a quiet moment.
const QUIET: (usize, usize) = (1_000, 128 << 10);
/// Nodes that may stand between a message and the one before it.
const HOPS: u32 = 200;
/// How the part of a user's message tells of blocks that somebody added, or who wrote it.
const MARKS: [&str; 2] = ["\"added\":", "\"provenance\":"];

/// Nodes after a row, with where they stand.
const NODES: &str = "x.session, x.parent, n.rowid FROM nodes n LEFT JOIN quipu_x_node x ON x.seq = n.rowid \
                     WHERE n.rowid > ?1 AND n.rowid <= ?2 ORDER BY n.rowid LIMIT ?3";

/// Drops the index, of sessions and of notes.
pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    reset_sessions(connection)?;
    notes::reset(connection)
}

fn reset_sessions(connection: &Connection) -> Outcome<()> {
    Space::Sessions.reset(connection)?;
    vectors::reset(connection, Space::Sessions)
}

/// A node was placed that came before: what is indexed may lack its session.
pub(super) fn placed_late(connection: &Connection, seq: i64) -> Outcome<()> {
    if Space::Sessions.exists(connection)? && seq <= totals(connection, Space::Sessions)?.seq {
        reset_sessions(connection)?;
        Space::Sessions.create(connection)?;
    }
    Ok(())
}

/// How many rows are not indexed; `None` where there is no index.
pub(super) fn left(connection: &Connection) -> Outcome<Option<u64>> {
    if !Space::Sessions.exists(connection)? {
        return Ok(None);
    }
    let last = places::last(connection)?;
    let done = u64::try_from(totals(connection, Space::Sessions)?.seq).unwrap_or(0);
    Ok(Some(last.saturating_sub(done)))
}

/// Indexes a little more, where there is an index; says whether there is more to do. Within the caller's transaction.
pub(super) fn advance(connection: &Connection, step: (usize, usize)) -> Outcome<bool> {
    if left(connection)?.is_none_or(|left| left == 0) {
        return Ok(false);
    }
    let until = places::cursor(connection)?;
    let mut adder = Adder::new(connection, Space::Sessions)?;
    let from = adder.totals.seq;
    if from > until {
        // The rows were numbered anew.
        reset_sessions(connection)?;
        Space::Sessions.create(connection)?;
        return Ok(true);
    }
    let mut walk = Walk::default();
    let mut reader = Reader::new(connection);
    let mut agents: HashMap<i64, bool> = HashMap::new();
    let mut statement = connection.prepare_cached(&format!("SELECT {}, {NODES}", rows::NODE))?;
    let mut found = statement.query(params![from, until, i64::try_from(step.0).unwrap_or(i64::MAX)])?;
    let (mut nodes, mut bytes) = (0, 0);
    while bytes < step.1
        && let Some(row) = found.next()?
    {
        nodes += 1;
        let (session, parent, seq): (Option<i64>, Option<i64>, i64) =
            (row.get(9)?, row.get(10)?, row.get(11)?);
        adder.totals.seq = seq;
        let (before, hops) = walk.before(connection, &mut adder.units, parent)?;
        let unit = match rows::node(row)? {
            None => None,
            Some(node) => {
                let is_ours = match session {
                    None => false,
                    Some(session) => is_ours(connection, &mut agents, session)?,
                };
                match unit_of(connection, &mut reader, &node, is_ours)? {
                    None => None,
                    Some((text, kind, author)) => {
                        bytes += text.len();
                        let at = node.record.timestamp;
                        let unit = Unit {
                            seq: u32::try_from(seq).unwrap_or(u32::MAX),
                            group: session.and_then(|session| u32::try_from(session).ok()).unwrap_or(0),
                            before: before.unwrap_or(0),
                            at: seconds(at),
                            kind,
                            author,
                            ..Unit::default()
                        };
                        Some(adder.add(unit, &text, at)?)
                    }
                }
            }
        };
        walk.known.insert(seq, unit.map_or((before, hops + 1), |unit| (Some(unit), 0)));
    }
    drop(found);
    if bytes < step.1 && nodes < step.0 {
        adder.totals.seq = until;
    }
    let more = adder.totals.seq < until;
    adder.finish()?;
    Ok(more || places::is_behind(connection)?)
}

/// [`advance`] in a quiet moment: a damaged index is dropped, and made anew when the next question is asked.
pub(super) fn advance_quietly(connection: &Connection) -> Outcome<bool> {
    match advance(connection, QUIET) {
        Err(failure) if search::is_damage(&failure) => reset(connection).map(|()| false),
        other => other,
    }
}

fn seconds(at: i64) -> u32 {
    u32::try_from(at.div_euclid(1_000).max(0)).unwrap_or(u32::MAX)
}

fn is_ours(connection: &Connection, known: &mut HashMap<i64, bool>, session: i64) -> Outcome<bool> {
    if let Some(is) = known.get(&session) {
        return Ok(*is);
    }
    let mut statement =
        connection.prepare_cached("SELECT agent = 'quipu' FROM quipu_x_session WHERE num = ?1")?;
    let is = statement.query_row([session], |row| row.get(0)).optional()?.unwrap_or(false);
    known.insert(session, is);
    Ok(is)
}

/// The last unit on the way to each row, and how many nodes are between.
#[derive(Default)]
struct Walk {
    known: HashMap<i64, (Option<u32>, u32)>,
}

impl Walk {
    fn before(
        &mut self,
        connection: &Connection,
        units: &mut Units<'_>,
        parent: Option<i64>,
    ) -> Outcome<(Option<u32>, u32)> {
        let (mut next, mut hops) = (parent, 0);
        while let Some(seq) = next {
            if let Some((unit, more)) = self.known.get(&seq) {
                hops += more;
                return Ok((unit.filter(|_| hops <= HOPS), hops));
            }
            if let Some(unit) = units.of_row(seq)? {
                return Ok((Some(unit), hops));
            }
            hops += 1;
            if hops > HOPS {
                break;
            }
            let mut statement =
                connection.prepare_cached("SELECT parent FROM quipu_x_node WHERE seq = ?1")?;
            next = statement.query_row([seq], |row| row.get(0)).optional()?.flatten();
        }
        Ok((None, hops))
    }
}

/// What a node says that is indexed, what kind it is, and who wrote it.
fn unit_of(
    connection: &Connection,
    reader: &mut Reader<'_>,
    node: &Node,
    is_ours: bool,
) -> Outcome<Option<(String, u8, u8)>> {
    let (kind, mut author) = match rows::role_of(connection, node)? {
        "user" => (kind::USER, AuthorClass::Owner),
        "assistant" if is_ours => (kind::ASSISTANT, AuthorClass::Agent),
        "assistant" => (kind::ASSISTANT, AuthorClass::Untrusted),
        "compactionSummary" | "branchSummary" if is_ours => (kind::SUMMARY, AuthorClass::Agent),
        "compactionSummary" | "branchSummary" => (kind::SUMMARY, AuthorClass::Untrusted),
        _ => return Ok(None),
    };
    let text = match kind {
        kind::USER => {
            let own = own_words(connection, reader, node)?;
            author = own.author.unwrap_or(author);
            own.text
        }
        _ => reader.said(node)?,
    };
    Ok((!text.trim().is_empty()).then(|| (text, kind, author_number(author))))
}

/// What a message of a user says, and who wrote it where the message tells.
struct OwnWords {
    text: String,
    author: Option<AuthorClass>,
}

/// A message without what hooks and memories put beside it: that was not said in it.
fn own_words(connection: &Connection, reader: &mut Reader<'_>, node: &Node) -> Outcome<OwnWords> {
    let tells = match node.record.parts.last() {
        None => false,
        Some(last) => rows::find_blob(connection, last)?
            .is_some_and(|own| own.kind == "quipu" && MARKS.iter().any(|mark| own.content.contains(mark))),
    };
    if !tells {
        return Ok(OwnWords { text: reader.said(node)?, author: None });
    }
    let mut blobs = HashMap::new();
    for part in &node.record.parts {
        if let Some(blob) = rows::find_blob(connection, part)? {
            blobs.insert(*part, blob);
        }
    }
    let decoded = decode(node, &places::Parts(blobs));
    let author = decoded.step.provenance.as_ref().map(|provenance| provenance.author);
    let added = &decoded.step.added;
    let text = match &decoded.entry {
        Entry::Message(Message::User(message)) if !added.is_empty() => {
            let mut own = own_text(&message.content.blocks(), added);
            own.truncate(own.floor_char_boundary(VECTOR_TEXT));
            own
        }
        _ => reader.said(node)?,
    };
    Ok(OwnWords { text, author })
}

/// An author as it is stored.
fn author_number(author: AuthorClass) -> u8 {
    match author {
        AuthorClass::Owner => 1,
        AuthorClass::Agent => 2,
        AuthorClass::Untrusted => 3,
        AuthorClass::System => 4,
    }
}

fn author_of(number: u8) -> AuthorClass {
    match number {
        1 => AuthorClass::Owner,
        2 => AuthorClass::Agent,
        4 => AuthorClass::System,
        _ => AuthorClass::Untrusted,
    }
}

/// [`advance`] that makes the index where there is none, and anew where it is damaged.
pub(super) fn begin_or_advance(connection: &Connection) -> Outcome<bool> {
    if !Space::Sessions.exists(connection)? {
        // There may be one of another form.
        reset_sessions(connection)?;
    }
    Space::Sessions.create(connection)?;
    match advance(connection, STEP) {
        Err(failure) if search::is_damage(&failure) => {
            reset(connection)?;
            Space::Sessions.create(connection)?;
            advance(connection, STEP)
        }
        other => other,
    }
}
