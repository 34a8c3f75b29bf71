//! What was done: tokens, tools, files, prompts. Tables that follow the graph in quiet moments, as those of the search
//! do, and never in a commit; a cursor moves in the transaction that adds to them.

mod find;
mod states;

use std::collections::HashMap;
use std::rc::Rc;

use quipu_dag::{Blob, Node};
use quipu_protocol::{CallId, Content, Entry, Message, NodeId, Usage};
use quipu_transcript::{Decoded, DeedKind, decode, deeds_done};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;

pub(super) use self::find::{changes, done, touched, usage};
pub(super) use self::states::file_steps;
use super::failure::Outcome;
use super::index::{self, Parts, kind, nano_dollars};
use super::{rows, spend::SLOT};

/// `quipu_x_use`, `quipu_x_tool`: sums by quarter hours. `quipu_x_touch`: files by session. `quipu_x_file`: changes by
/// file, `seq` that of the answer (`call` which of its calls, or -1), `states` that of the node which says how the file was
/// before and after. `quipu_x_state`: files before and after steps, those that put files back included; `seq` that of the
/// node which says so. `quipu_x_held`: which of these hold a content. `quipu_x_tardy`: nodes that got their place after the
/// cursor had gone by.
const TABLES: &str = "
CREATE TABLE IF NOT EXISTS quipu_x_deeds (one INTEGER PRIMARY KEY CHECK (one = 1), seq INTEGER NOT NULL);
INSERT OR IGNORE INTO quipu_x_deeds VALUES (1, 0);
CREATE TABLE IF NOT EXISTS quipu_x_tardy (seq INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS quipu_x_use (session INTEGER NOT NULL, slot INTEGER NOT NULL, model TEXT NOT NULL, priced INTEGER NOT NULL,
  calls INTEGER NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL, cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL,
  cost INTEGER NOT NULL, PRIMARY KEY (session, slot, model, priced)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_tool (session INTEGER NOT NULL, slot INTEGER NOT NULL, tool TEXT NOT NULL, calls INTEGER NOT NULL,
  failed INTEGER NOT NULL, PRIMARY KEY (session, slot, tool)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_touch (session INTEGER NOT NULL, path TEXT NOT NULL, deed INTEGER NOT NULL, times INTEGER NOT NULL,
  at INTEGER NOT NULL, seq INTEGER NOT NULL, PRIMARY KEY (session, path, deed)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_file (path TEXT NOT NULL, seq INTEGER NOT NULL, call INTEGER NOT NULL, at INTEGER NOT NULL, asked INTEGER,
  states INTEGER, PRIMARY KEY (path, seq, call)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_state (path TEXT NOT NULL, seq INTEGER NOT NULL, at INTEGER NOT NULL, session INTEGER NOT NULL,
  answer INTEGER, call INTEGER NOT NULL, asked INTEGER, before TEXT NOT NULL, after TEXT NOT NULL, PRIMARY KEY (path, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS quipu_x_state_asked ON quipu_x_state (asked, seq);
CREATE TABLE IF NOT EXISTS quipu_x_held (content BLOB NOT NULL, path TEXT NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (content, path, seq)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS quipu_x_asked (session INTEGER NOT NULL, at INTEGER NOT NULL, seq INTEGER NOT NULL,
  PRIMARY KEY (session, at, seq)) WITHOUT ROWID;
";
const NAMES: [&str; 9] = [
    "quipu_x_deeds",
    "quipu_x_tardy",
    "quipu_x_use",
    "quipu_x_tool",
    "quipu_x_touch",
    "quipu_x_file",
    "quipu_x_state",
    "quipu_x_held",
    "quipu_x_asked",
];
/// Nodes that may stand between a result and its answer, or between a summary and an answer before it.
const NEAR: usize = 64;
/// Nodes that are looked through for what the user said.
const FAR: usize = 20_000;
/// Nodes that are remembered within a step.
const REMEMBERED: usize = 50_000;
/// What a sum can be at most: additions never overflow.
const MOST: i64 = 1_000_000_000_000_000_000;

/// What is done to a file, as it is stored.
pub(super) fn number(kind: DeedKind) -> i64 {
    match kind {
        DeedKind::Read => 1,
        DeedKind::Write => 2,
        DeedKind::Edit => 3,
        DeedKind::Remove => 4,
    }
}

/// Whether the tables were ever made here, in the form that they have now. Older ones are made anew.
pub(super) fn exists(connection: &Connection) -> Outcome<bool> {
    let mut statement = connection.prepare_cached(
        "SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_file' AND instr(sql, 'states INTEGER') > 0 \
         AND EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'quipu_x_held')",
    )?;
    Ok(statement.exists([])?)
}

/// Drops the tables; they are made again when there is something to add.
pub(super) fn reset(connection: &Connection) -> Outcome<()> {
    for name in NAMES {
        connection.execute_batch(&format!("DROP TABLE IF EXISTS {name}"))?;
    }
    Ok(())
}

fn cursor(connection: &Connection) -> Outcome<i64> {
    let mut statement = connection.prepare_cached("SELECT seq FROM quipu_x_deeds")?;
    Ok(statement.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}

/// How many rows after the cursor there can be.
pub(super) fn behind(connection: &Connection) -> Outcome<u64> {
    let mut statement = connection.prepare_cached("SELECT coalesce(max(rowid), 0) FROM nodes")?;
    let last: i64 = statement.query_row([], |row| row.get(0))?;
    if !exists(connection)? {
        return Ok(last.unsigned_abs());
    }
    let late = connection.prepare_cached("SELECT 1 FROM quipu_x_tardy LIMIT 1")?.exists([])?;
    Ok(u64::try_from(last - cursor(connection)?).unwrap_or(0).max(u64::from(late)))
}

/// A node that waited for its parent has its place now. Within the caller's transaction.
pub(super) fn placed_late(connection: &Connection, seq: i64) -> Outcome<()> {
    if exists(connection)? {
        connection.prepare_cached("INSERT OR IGNORE INTO quipu_x_tardy VALUES (?1)")?.execute([seq])?;
    }
    Ok(())
}

/// Adds what up to `limit` nodes did; says whether there is more. Within the caller's transaction. Tables that are
/// damaged are made anew.
pub(super) fn advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    match try_advance(connection, limit) {
        Err(failure) if failure.is_of_data() => {
            reset(connection)?;
            try_advance(connection, limit)
        }
        other => other,
    }
}

fn try_advance(connection: &Connection, limit: usize) -> Outcome<bool> {
    if behind(connection)? == 0 {
        return Ok(false);
    }
    // Only what has its place: whose it is, is told by that.
    if index::is_behind(connection)? {
        index::advance_or_renew(connection, limit)?;
    }
    let until = index::cursor(connection)?;
    if !exists(connection)? {
        if until == 0 {
            return Ok(false);
        }
        reset(connection)?;
        connection.execute_batch(TABLES)?;
    }
    let from = cursor(connection)?;
    let mut adder = Adder::new(connection);
    let columns = format!(
        "SELECT {}, n.rowid, x.session, x.parent FROM nodes n JOIN quipu_x_node x ON x.seq = n.rowid",
        rows::NODE
    );
    let late: Vec<i64> = connection
        .prepare_cached("SELECT seq FROM quipu_x_tardy ORDER BY seq LIMIT ?1")?
        .query_map([i64::try_from(limit).unwrap_or(i64::MAX)], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    for seq in &late {
        connection.prepare_cached("DELETE FROM quipu_x_tardy WHERE seq = ?1")?.execute([seq])?;
        // What the cursor has not reached yet comes with it.
        if *seq <= from {
            let mut statement = connection.prepare_cached(&format!("{columns} WHERE n.rowid = ?1"))?;
            let mut found = statement.query([seq])?;
            if let Some(row) = found.next()? {
                adder.row(row)?;
            }
        }
    }
    let mut statement = connection.prepare_cached(&format!(
        "{columns} WHERE n.rowid > ?1 AND n.rowid <= ?2 ORDER BY n.rowid LIMIT ?3"
    ))?;
    let mut found = statement.query(params![from, until, i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut last, mut taken) = (from, 0);
    while let Some(row) = found.next()? {
        last = row.get(9)?;
        taken += 1;
        adder.row(row)?;
    }
    drop(found);
    adder.finish()?;
    // To the end when nothing was left, or rows that are gone would be counted for ever.
    let last = if taken < limit { until } else { last };
    connection.prepare_cached("UPDATE quipu_x_deeds SET seq = ?1")?.execute([last])?;
    Ok(taken == limit || late.len() == limit || index::is_behind(connection)?)
}

/// A call of an answer.
struct Call {
    id: CallId,
    tool: String,
    arguments: String,
}

/// In place of which call of an answer it is, where it is none.
const NO_CALL: i64 = -1;

/// Who did something to files.
#[derive(Clone, Copy)]
struct Doer {
    session: i64,
    /// The answer, or another node.
    seq: i64,
    /// Which of its calls.
    call: i64,
    at: i64,
    /// The node that says how the files were before and after.
    by: Option<i64>,
}

/// Calls of an answer, and its row number.
type Calls = Rc<(i64, Vec<Call>)>;

/// Sums that are written once for each step: of a model, of a tool.
#[derive(Default)]
struct Sums {
    uses: HashMap<(i64, i64, String, bool), [i64; 6]>,
    tools: HashMap<(i64, i64, String), [i64; 2]>,
}

struct Adder<'a> {
    connection: &'a Connection,
    sums: Sums,
    /// The answers of results that were looked up: the next result mostly follows the one before.
    answers: HashMap<NodeId, Calls>,
    /// The nearest prompt before nodes, by row numbers.
    asked: HashMap<i64, Option<i64>>,
    project: Option<(i64, String)>,
}

impl<'a> Adder<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            sums: Sums::default(),
            answers: HashMap::new(),
            asked: HashMap::new(),
            project: None,
        }
    }

    fn row(&mut self, row: &rusqlite::Row<'_>) -> Outcome<()> {
        let Some(node) = rows::node(row)? else { return Ok(()) };
        let seq: i64 = row.get(9)?;
        let session = row.get::<_, Option<i64>>(10)?.unwrap_or(0);
        if self.answers.len() > REMEMBERED {
            self.answers.clear();
        }
        if self.asked.len() > REMEMBERED {
            self.asked.clear();
        }
        match node.record.role.as_str() {
            "user" => {
                self.connection
                    .prepare_cached("INSERT OR IGNORE INTO quipu_x_asked VALUES (?1, ?2, ?3)")?
                    .execute(params![session, node.record.timestamp, seq])?;
            }
            "assistant" => self.answer(&node, seq, session)?,
            "toolResult" => self.result(&node, seq, session)?,
            "bashExecution" | "custom" => {
                let decoded = self.decode(&node, &["quipu"])?;
                self.states(&node, seq, session, None, &decoded.step.files)?;
            }
            _ => self.other(&node, seq, session)?,
        }
        Ok(())
    }

    fn answer(&mut self, node: &Node, seq: i64, session: i64) -> Outcome<()> {
        let decoded = self.decode(node, &["tool_call", "quipu"])?;
        let charged = decoded.step.call.is_some();
        let Entry::Message(Message::Assistant(message)) = decoded.entry else { return Ok(()) };
        self.used(session, node, &model_name(&message.provider, &message.model), &message.usage, charged);
        let slot = node.record.timestamp.div_euclid(SLOT);
        for call in message.tool_calls() {
            self.sums.tools.entry((session, slot, call.name.clone())).or_default()[0] += 1;
        }
        let calls = calls_of(message.content);
        if !calls.is_empty() {
            self.answers.insert(node.id, Rc::new((seq, calls)));
        }
        Ok(())
    }

    fn result(&mut self, node: &Node, seq: i64, session: i64) -> Outcome<()> {
        // Its own part says what it answers; only nodes of other programs have to be read whole.
        let mut decoded = self.decode(node, &["quipu"])?;
        if !matches!(&decoded.entry, Entry::Message(Message::ToolResult(result)) if !result.tool_call_id.as_str().is_empty())
        {
            decoded = self.decode(node, &["tool_result", "quipu"])?;
        }
        let charged = decoded.step.call.is_some();
        let states = decoded.step.files;
        let Entry::Message(Message::ToolResult(result)) = decoded.entry else { return Ok(()) };
        if let Some(usage) = &result.usage {
            self.used(session, node, "", usage, charged);
        }
        let at = node.record.timestamp;
        if result.is_error {
            let key = (session, at.div_euclid(SLOT), result.tool_name.clone());
            self.sums.tools.entry(key).or_default()[1] += 1;
        }
        let calls = self.calls_of_result(node)?;
        if let Some(calls) = &calls {
            self.answers.insert(node.id, Rc::clone(calls));
        }
        if result.is_error && states.is_empty() {
            return Ok(());
        }
        let found = calls.as_deref().and_then(|(answer, calls)| {
            let (place, call) = calls.iter().enumerate().find(|(_, call)| call.id == result.tool_call_id)?;
            Some((*answer, i64::try_from(place).unwrap_or(0), call))
        });
        self.states(node, seq, session, found.map(|(answer, place, _)| (answer, place)), &states)?;
        let project = self.project(session)?;
        let by = seq;
        let (seq, call, done) = match found {
            Some((answer, place, call)) => {
                let done = deeds_done(&project, &call.tool, &call.arguments, result.is_error, &states);
                (answer, place, done)
            }
            None => (seq, NO_CALL, deeds_done(&project, "", "", true, &states)),
        };
        let by = (!states.is_empty()).then_some(by);
        self.did(Doer { session, seq, call, at, by }, done)
    }

    /// What was done to files.
    fn did(&mut self, doer: Doer, done: Vec<(String, DeedKind)>) -> Outcome<()> {
        let Doer { session, seq, call, at, by } = doer;
        if done.is_empty() {
            return Ok(());
        }
        let asked = self.asked_before(seq)?;
        for (path, kind) in done {
            self.connection
                .prepare_cached(
                    "INSERT INTO quipu_x_touch VALUES (?1, ?2, ?3, 1, ?4, ?5) ON CONFLICT (session, path, deed) DO UPDATE \
                     SET times = times + 1, seq = iif(excluded.at >= at, excluded.seq, seq), at = max(at, excluded.at)",
                )?
                .execute(params![session, path, number(kind), at, seq])?;
            if kind != DeedKind::Read {
                self.connection
                    .prepare_cached("INSERT OR IGNORE INTO quipu_x_file VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                    .execute(params![path, seq, call, at, asked, by])?;
            }
        }
        Ok(())
    }

    /// Summaries: of a compaction, of a branch, or calls for one that came to nothing.
    fn other(&mut self, node: &Node, seq: i64, session: i64) -> Outcome<()> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Beside {
            #[serde(rename = "type")]
            kind: String,
            usage: Option<Usage>,
            data: Data,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Data {
            usage: Option<Usage>,
        }
        let decoded = self.decode(node, &["quipu", "pi_meta"])?;
        self.states(node, seq, session, None, &decoded.step.files)?;
        let charged = decoded.step.call.is_some();
        let usage = match &decoded.entry {
            Entry::Compaction(compaction) => compaction.usage,
            // Most entries say nothing of it: told apart without reading them.
            Entry::Meta(json) if json.get().contains("\"usage\"") => {
                let Beside { kind, usage, data } = json.read().unwrap_or_default();
                (charged || kind == "branch_summary").then_some(usage.or(data.usage)).flatten()
            }
            Entry::Meta(_) | Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) => None,
        };
        let Some(usage) = usage else { return Ok(()) };
        let model = match &decoded.step.call {
            Some(call) => model_name(&call.provider, &call.model),
            None => self.model_before(node)?,
        };
        self.used(session, node, &model, &usage, charged);
        Ok(())
    }

    fn used(&mut self, session: i64, node: &Node, model: &str, usage: &Usage, charged: bool) {
        let cost = nano_dollars(usage.cost.total);
        let tokens = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        let tokens = tokens.map(|count| i64::try_from(count).unwrap_or(MOST).min(MOST));
        if cost == 0 && tokens == [0; 4] {
            return;
        }
        let slot = node.record.timestamp.div_euclid(SLOT);
        let key = (session, slot, model.to_owned(), charged || cost > 0);
        let sums = self.sums.uses.entry(key).or_default();
        let [input, output, read, write] = tokens;
        for (sum, more) in sums.iter_mut().zip([1, input, output, read, write, cost]) {
            *sum = sum.saturating_add(more).min(MOST);
        }
    }

    /// The node with those of its parts that are of these types.
    fn decode(&self, node: &Node, types: &[&str]) -> Outcome<Decoded> {
        let mut statement = self.connection.prepare_cached(
            "SELECT type, iif(type IN ('text', 'thinking', 'system_prompt', 'image', 'inline_data') \
             OR (?2 AND type = 'tool_result') OR octet_length(content) > 67108864, NULL, content) FROM blobs WHERE hash = ?1",
        )?;
        let mut blobs = HashMap::new();
        let no_results = !types.contains(&"tool_result");
        for id in &node.record.parts {
            let mut found = statement.query(params![id.to_string(), no_results])?;
            let Some(row) = found.next()? else { continue };
            let kind = rows::text(row, 0)?.unwrap_or_default().into_owned();
            if types.contains(&kind.as_str())
                && let Some(content) = rows::text(row, 1)?
            {
                blobs.insert(*id, Blob { id: *id, kind, content: content.into_owned() });
            }
        }
        Ok(decode(node, &Parts(blobs)))
    }

    /// The calls of the answer that a result follows.
    fn calls_of_result(&mut self, node: &Node) -> Outcome<Option<Calls>> {
        let mut next = node.record.parent;
        for _ in 0..NEAR {
            let Some(id) = next else { break };
            if let Some(known) = self.answers.get(&id) {
                return Ok(Some(Rc::clone(known)));
            }
            let Some(parent) = rows::find_node(self.connection, &id)? else { break };
            if parent.record.role == "assistant" {
                let Some(position) = index::position(self.connection, &id)? else { break };
                let Entry::Message(Message::Assistant(message)) =
                    self.decode(&parent, &["tool_call", "quipu"])?.entry
                else {
                    break;
                };
                return Ok(Some(Rc::new((position.seq, calls_of(message.content)))));
            }
            next = parent.record.parent;
        }
        Ok(None)
    }

    /// The model of the nearest answer before a node.
    fn model_before(&self, node: &Node) -> Outcome<String> {
        let mut next = node.record.parent;
        for _ in 0..NEAR {
            let Some(id) = next else { break };
            let Some(parent) = rows::find_node(self.connection, &id)? else { break };
            if parent.record.role == "assistant"
                && let Entry::Message(Message::Assistant(message)) = self.decode(&parent, &["quipu"])?.entry
            {
                return Ok(model_name(&message.provider, &message.model));
            }
            next = parent.record.parent;
        }
        Ok(String::new())
    }

    /// The nearest thing that the user said before a node.
    fn asked_before(&mut self, seq: i64) -> Outcome<Option<i64>> {
        let mut statement =
            self.connection.prepare_cached("SELECT parent, kind FROM quipu_x_node WHERE seq = ?1")?;
        let mut way = Vec::new();
        let mut at = Some(seq);
        let mut asked = None;
        while let Some(here) = at {
            if way.len() == FAR {
                break;
            }
            if let Some(known) = self.asked.get(&here) {
                asked = *known;
                break;
            }
            let found: Option<(Option<i64>, i64)> =
                statement.query_row([here], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
            let Some((parent, found)) = found else { break };
            if found == kind::USER {
                asked = Some(here);
                break;
            }
            way.push(here);
            at = parent;
        }
        self.asked.extend(way.into_iter().map(|here| (here, asked)));
        Ok(asked)
    }

    fn project(&mut self, session: i64) -> Outcome<String> {
        if let Some((known, project)) = &self.project
            && *known == session
        {
            return Ok(project.clone());
        }
        let found: Option<String> = self
            .connection
            .prepare_cached("SELECT project FROM quipu_x_session WHERE num = ?1")?
            .query_row([session], |row| row.get(0))
            .optional()?;
        let project = found.unwrap_or_default();
        self.project = Some((session, project.clone()));
        Ok(project)
    }

    fn finish(self) -> Outcome<()> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO quipu_x_use VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (session, slot, model, priced) DO UPDATE SET calls = calls + excluded.calls, \
             input = min(input + excluded.input, ?11), output = min(output + excluded.output, ?11), \
             cache_read = min(cache_read + excluded.cache_read, ?11), \
             cache_write = min(cache_write + excluded.cache_write, ?11), cost = min(cost + excluded.cost, ?11)",
        )?;
        for ((session, slot, model, priced), [calls, input, output, read, write, cost]) in self.sums.uses {
            put.execute(params![
                session, slot, model, priced, calls, input, output, read, write, cost, MOST
            ])?;
        }
        let mut put = self.connection.prepare_cached(
            "INSERT INTO quipu_x_tool VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session, slot, tool) DO UPDATE \
             SET calls = calls + excluded.calls, failed = failed + excluded.failed",
        )?;
        for ((session, slot, tool), [calls, failed]) in self.sums.tools {
            put.execute(params![session, slot, tool, calls, failed])?;
        }
        Ok(())
    }
}

fn calls_of(content: Vec<Content>) -> Vec<Call> {
    let call = |block| match block {
        Content::ToolCall(call) => {
            Some(Call { id: call.id, tool: call.name, arguments: call.arguments.get().to_owned() })
        }
        Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::Other(_) => None,
    };
    content.into_iter().filter_map(call).collect()
}

fn model_name(provider: &str, model: &str) -> String {
    match (provider, model) {
        ("", model) => model.to_owned(),
        (provider, "") => provider.to_owned(),
        (provider, model) => format!("{provider}/{model}"),
    }
}
