//! From what somebody calls a node to the node.

use quipu_protocol::NodeId;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::failure::Outcome;
use super::{graph, lists, rows};
use crate::{Candidate, RefName, Resolution, Scope, SpellingKind};

/// Candidates that are told at most.
const LIMIT: usize = 20;
/// Characters of a prefix at least.
const PREFIX: usize = 4;
/// Bytes of a spelling at most; anything longer names nothing.
const LONGEST: usize = 1024;

pub(super) fn resolve(connection: &Connection, spelling: &str, scope: &Scope) -> Outcome<Resolution> {
    let spelling = spelling.trim();
    if spelling.is_empty() || spelling.len() > LONGEST {
        return Ok(Resolution::None);
    }
    let found = collect(connection, spelling, scope)?;
    // The same node by two names is one answer.
    let mut unique: Vec<(NodeId, SpellingKind)> = Vec::new();
    for (node, by) in found {
        if !unique.iter().any(|(have, _)| *have == node) {
            unique.push((node, by));
        }
    }
    let mut candidates = Vec::new();
    for (node, by) in unique {
        candidates.extend(describe(connection, node, by)?);
    }
    candidates.sort_by_key(|candidate| std::cmp::Reverse(candidate.timestamp));
    candidates.truncate(LIMIT);
    Ok(match candidates.len() {
        0 => Resolution::None,
        1 => candidates.pop().map_or(Resolution::None, Resolution::One),
        _ => Resolution::Many(candidates),
    })
}

fn collect(connection: &Connection, spelling: &str, scope: &Scope) -> Outcome<Vec<(NodeId, SpellingKind)>> {
    if spelling == "HEAD" {
        return Ok(scope.head.into_iter().map(|head| (head, SpellingKind::Head)).collect());
    }
    if let Some(id) = spelling.strip_prefix("pi:").or_else(|| spelling.strip_prefix("ext:")) {
        return by_external_id(connection, id, scope);
    }
    let lower = spelling.to_ascii_lowercase();
    if let Ok(id) = lower.parse::<NodeId>() {
        return Ok(vec![(id, SpellingKind::Hash)]);
    }
    let mut found = Vec::new();
    if (PREFIX..64).contains(&lower.len()) && lower.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        // 'g' follows every hexadecimal digit.
        let mut statement = connection
            .prepare_cached("SELECT id FROM nodes WHERE id >= ?1 AND id < ?1 || 'g' ORDER BY id LIMIT ?2")?;
        let mut rows = statement.query(params![lower, i64::try_from(LIMIT).unwrap_or(i64::MAX)])?;
        while let Some(row) = rows.next()? {
            found.extend(rows::node_id(row, 0)?.map(|id| (id, SpellingKind::Hash)));
        }
    }
    found.extend(by_external_id(connection, spelling, scope)?);
    found.extend(by_session(connection, spelling)?);
    found.extend(lists::head(connection, spelling)?.map(|node| (node, SpellingKind::Ref)));
    let bookmark = RefName::bookmark(spelling);
    found.extend(lists::head(connection, bookmark.as_str())?.map(|node| (node, SpellingKind::Ref)));
    Ok(found)
}

/// Ids of other programs are unique within one session only: one on the lineage of the head wins, then the
/// newest.
fn by_external_id(connection: &Connection, id: &str, scope: &Scope) -> Outcome<Vec<(NodeId, SpellingKind)>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, timestamp FROM nodes WHERE external_id = ?1 ORDER BY timestamp DESC, rowid DESC LIMIT 1000",
    )?;
    let mut rows = statement.query([id])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let timestamp = rows::integer(row, 1)?;
        found.extend(rows::node_id(row, 0)?.map(|id| (id, timestamp)));
    }
    if found.len() > 1 {
        if let Some(head) = &scope.head {
            let mut near = Vec::new();
            for (node, _) in &found {
                if graph::is_ancestor(connection, node, head)? {
                    near.push(*node);
                }
            }
            if let [only] = near[..] {
                return Ok(vec![(only, SpellingKind::ExternalId)]);
            }
        }
        let newest = found[0].1;
        found.retain(|(_, timestamp)| *timestamp == newest);
    }
    Ok(found.into_iter().map(|(node, _)| (node, SpellingKind::ExternalId)).collect())
}

/// A session that has no ref any more is answered with its first node.
fn by_session(connection: &Connection, spelling: &str) -> Outcome<Vec<(NodeId, SpellingKind)>> {
    let mut statement = connection.prepare_cached(
        "SELECT s.id, coalesce(r.node_id, lower(hex(s.base))) FROM quipu_x_session s LEFT JOIN refs r ON r.name = s.ref \
         WHERE s.id >= ?1 ORDER BY s.id LIMIT ?2",
    )?;
    let mut rows = statement.query(params![spelling, i64::try_from(LIMIT).unwrap_or(i64::MAX)])?;
    let (mut exact, mut longer) = (Vec::new(), Vec::new());
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        if !id.starts_with(spelling) {
            break;
        }
        let Some(node) = rows::node_id(row, 1)? else { continue };
        if id == spelling {
            exact.push((node, SpellingKind::Session));
        } else if spelling.chars().count() >= PREFIX {
            longer.push((node, SpellingKind::Session));
        }
    }
    Ok(if exact.is_empty() { longer } else { exact })
}

fn describe(connection: &Connection, node: NodeId, by: SpellingKind) -> Outcome<Option<Candidate>> {
    let mut statement = connection.prepare_cached(
        "SELECT n.role, n.external_id, n.timestamp, s.id FROM nodes n \
         LEFT JOIN quipu_x_node x ON x.seq = n.rowid AND x.id = ?2 \
         LEFT JOIN quipu_x_session s ON s.num = x.session WHERE n.id = ?1",
    )?;
    let candidate = statement.query_row(params![node.to_string(), node.0], |row| {
        Ok(Candidate {
            node,
            by,
            role: rows::text(row, 0)?.unwrap_or_default().into_owned(),
            external_id: rows::text(row, 1)?.map(std::borrow::Cow::into_owned),
            timestamp: rows::integer(row, 2)?,
            session: row.get::<_, Option<String>>(3)?.map(Into::into),
        })
    });
    Ok(candidate.optional()?)
}
