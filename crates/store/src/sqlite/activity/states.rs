//! Files before and after steps, as the nodes keep them: what tools and commands changed, and what was put back.

use quipu_dag::Node;
use quipu_protocol::{ChunkId, FileChange, FileState, SessionId};
use rusqlite::{Connection, Row, ToSql, params};

use super::super::failure::Outcome;
use super::super::graph;
use super::{Adder, behind, exists};
use crate::{CHANGES, FileStep, FileStepQuery, FileSteps, IndexedAnswer};

/// What a step is made of.
const COLUMNS: &str = "t.path, t.seq, t.at, t.answer, t.call, t.asked, t.before, t.after, s.id, s.agent, s.project, \
     (SELECT a.timestamp FROM nodes a WHERE a.rowid = t.answer)";

impl Adder<'_> {
    /// What a step did to files; `call` is the row number of its answer and which of its calls it is.
    pub(super) fn states(
        &mut self,
        node: &Node,
        seq: i64,
        session: i64,
        call: Option<(i64, i64)>,
        files: &[FileChange],
    ) -> Outcome<()> {
        if files.is_empty() {
            return Ok(());
        }
        let asked = match call {
            Some((answer, _)) => self.asked_before(answer)?,
            None => None,
        };
        let project = self.project(session)?;
        let mut put = self.connection.prepare_cached(
            "INSERT OR IGNORE INTO quipu_x_state VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?;
        let mut hold =
            self.connection.prepare_cached("INSERT OR IGNORE INTO quipu_x_held VALUES (?1, ?2, ?3)")?;
        let mut drop =
            self.connection.prepare_cached("DELETE FROM quipu_x_state WHERE path = ?1 AND seq = ?2")?;
        let mut let_go = self
            .connection
            .prepare_cached("DELETE FROM quipu_x_held WHERE content = ?1 AND path = ?2 AND seq = ?3")?;
        for FileChange { path, before, after } in files.iter().filter(|change| change.is_of_file()) {
            // As it is: names in nodes are no words of a model.
            let path = match path.starts_with('/') {
                true => path.clone(),
                false => format!("{}/{path}", project.trim_end_matches('/')),
            };
            // Here only files count.
            let state = |state: &FileState| match state {
                FileState::Directory { .. } => serde_json::to_string(&FileState::Absent).unwrap_or_default(),
                state => serde_json::to_string(state).unwrap_or_default(),
            };
            let contents = [before, after].into_iter().filter_map(FileState::content);
            if self.sign < 0 {
                drop.execute(params![path, seq])?;
                for content in contents {
                    let_go.execute(params![content.0, path, seq])?;
                }
                continue;
            }
            let (answer, number) = call.unzip();
            put.execute(params![
                path,
                seq,
                node.record.timestamp,
                session,
                answer,
                number.unwrap_or(0),
                asked,
                state(before),
                state(after)
            ])?;
            for content in contents {
                hold.execute(params![content.0, path, seq])?;
            }
        }
        Ok(())
    }
}

/// Steps that changed files, the oldest first.
pub(in crate::sqlite) fn file_steps(
    connection: &Connection,
    query: &FileStepQuery,
) -> Outcome<IndexedAnswer<Vec<FileStep>>> {
    let behind = behind(connection)?;
    let mut steps: Vec<(i64, FileStep)> = Vec::new();
    if exists(connection)? {
        let most = i64::try_from(query.limit.min(CHANGES)).unwrap_or(i64::MAX);
        let ask = |condition: &str, key: &dyn ToSql, steps: &mut Vec<(i64, FileStep)>| -> Outcome<()> {
            let mut statement = connection
                .prepare_cached(&format!("SELECT {COLUMNS} FROM {condition} ORDER BY t.seq DESC LIMIT ?2"))?;
            let mut found = statement.query(params![key, most])?;
            while let Some(row) = found.next()? {
                steps.extend(step(connection, row)?);
            }
            Ok(())
        };
        let session = "LEFT JOIN quipu_x_session s ON s.num = t.session";
        match &query.of {
            FileSteps::Paths(paths) => {
                let of_path = format!("quipu_x_state t {session} WHERE t.path = ?1");
                for path in paths {
                    ask(&of_path, path, &mut steps)?;
                }
            }
            FileSteps::Content(ChunkId(content)) => {
                let of_content = format!(
                    "quipu_x_held h JOIN quipu_x_state t ON t.path = h.path AND t.seq = h.seq {session} WHERE h.content = ?1"
                );
                ask(&of_content, content, &mut steps)?;
            }
            FileSteps::Before(seq) => {
                let before = format!("quipu_x_state t {session} WHERE t.seq < ?1");
                ask(&before, &i64::try_from(*seq).unwrap_or(i64::MAX), &mut steps)?;
            }
            FileSteps::Asked(asked) => {
                let of_prompt =
                    format!("nodes n JOIN quipu_x_state t ON t.asked = n.rowid {session} WHERE n.id = ?1");
                ask(&of_prompt, &asked.to_string(), &mut steps)?;
            }
        }
    }
    steps.sort_by_key(|(seq, step)| (step.at, *seq));
    Ok(IndexedAnswer { found: steps.into_iter().map(|(_, step)| step).collect(), behind })
}

fn step(connection: &Connection, row: &Row<'_>) -> Outcome<Option<(i64, FileStep)>> {
    let seq: i64 = row.get(1)?;
    let Some(node) = graph::id_of(connection, seq)? else { return Ok(None) };
    let id = |at: usize| -> Outcome<_> {
        match row.get::<_, Option<i64>>(at)? {
            Some(seq) => graph::id_of(connection, seq),
            None => Ok(None),
        }
    };
    let state = |at: usize| -> Outcome<Option<FileState>> {
        Ok(serde_json::from_str(&row.get::<_, String>(at)?).ok())
    };
    let (Some(before), Some(after)) = (state(6)?, state(7)?) else { return Ok(None) };
    let at = row.get(2)?;
    let step = FileStep {
        path: row.get(0)?,
        seq: seq.unsigned_abs(),
        node,
        answer: id(3)?,
        call: usize::try_from(row.get::<_, i64>(4)?).unwrap_or(0),
        began: row.get::<_, Option<i64>>(11)?.unwrap_or(at),
        at,
        session: row.get::<_, Option<String>>(8)?.map(SessionId::from),
        agent: row.get::<_, Option<String>>(9)?.unwrap_or_default(),
        cwd: row.get::<_, Option<String>>(10)?.unwrap_or_default(),
        asked: id(5)?,
        before,
        after,
    };
    Ok(Some((seq, step)))
}
