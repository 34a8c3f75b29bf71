//! What one node after the other did, added to the tables.

use std::collections::HashMap;
use std::rc::Rc;

use quipu_dag::{Blob, Node};
use quipu_protocol::{CallId, Content, Entry, Message, NodeId, Origin, ServerToolBlock, Usage};
use quipu_transcript::{DecodedEntry, FileOpKind, decode, performed_file_ops};
use rusqlite::{Connection, OptionalExtension as _, params};
use serde::Deserialize;

use super::super::costs::{SLOT, nano_dollars};
use super::super::failure::Outcome;
use super::super::places::{self, Parts, kind};
use super::super::rows;
use super::super::twins::Twins;
use super::number;

/// Nodes that may stand between a result and its answer, or between a summary and an answer before it.
const NEAR: usize = 64;
/// Nodes that are looked through for what the user said.
const FAR: usize = 20_000;
/// The purpose of sessions that jobs begin.
const SCHEDULE: &str = "schedule";
/// Nodes that are remembered within a step.
const REMEMBERED: usize = 50_000;
/// What a sum can be at most: additions never overflow.
const MOST: i64 = 1_000_000_000_000_000_000;

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
struct FileActor {
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

/// Session, quarter hour, model, whether the calls report their cost, and the purpose.
type UseKey = (i64, i64, String, bool, String);

/// Sums that are written once for each step: of a model, of a tool.
#[derive(Default)]
struct Sums {
    uses: HashMap<UseKey, [i64; 6]>,
    tools: HashMap<(i64, i64, String), [i64; 2]>,
}

pub(super) struct Adder<'a> {
    pub(super) connection: &'a Connection,
    /// Where the cursor stood.
    from: i64,
    /// 1, or -1 where what a node did is taken away again.
    pub(super) sign: i64,
    sums: Sums,
    /// The answers of results that were looked up: the next result mostly follows the one before.
    answers: HashMap<NodeId, Calls>,
    /// The nearest prompt before nodes, by row numbers.
    asked: HashMap<i64, Option<i64>>,
    project: Option<(i64, String)>,
}

impl<'a> Adder<'a> {
    pub(super) fn new(connection: &'a Connection, from: i64) -> Self {
        Self {
            connection,
            from,
            sign: 1,
            sums: Sums::default(),
            answers: HashMap::new(),
            asked: HashMap::new(),
            project: None,
        }
    }

    /// Adds what the node of a row did, with its row number and session.
    pub(super) fn row(&mut self, row: &rusqlite::Row<'_>) -> Outcome<()> {
        let Some(node) = rows::node(row)? else { return Ok(()) };
        let seq: i64 = row.get(9)?;
        let session = row.get::<_, Option<i64>>(10)?.unwrap_or(0);
        if self.answers.len() > REMEMBERED {
            self.answers.clear();
        }
        if self.asked.len() > REMEMBERED {
            self.asked.clear();
        }
        let twins = match session {
            0 => Twins::default(),
            session => Twins::of(self.connection, seq, session, &node)?,
        };
        // Of those that were looked at before, one counts.
        if let Some(twin) = twins.first(|twin| self.was_before(twin.seq, seq))? {
            if twins.is_after(twin) {
                return Ok(());
            }
            if let Some(other) = rows::node_at(self.connection, twin.seq)? {
                self.sign = -1;
                self.node(&other, twin.seq, twin.session)?;
                self.sign = 1;
            }
        }
        self.node(&node, seq, session)
    }

    /// Whether a node was looked at before the one of the row `now`.
    fn was_before(&self, seq: i64, now: i64) -> Outcome<bool> {
        if seq > now.max(self.from) {
            return Ok(false);
        }
        let mut late = self.connection.prepare_cached("SELECT 1 FROM quipu_x_tardy WHERE seq = ?1")?;
        Ok(!late.exists([seq])?)
    }

    /// Adds what a node did, or takes it away.
    fn node(&mut self, node: &Node, seq: i64, session: i64) -> Outcome<()> {
        match node.record.role.as_str() {
            "user" => {
                let statement = match self.sign {
                    1 => "INSERT OR IGNORE INTO quipu_x_asked VALUES (?1, ?2, ?3)",
                    _ => "DELETE FROM quipu_x_asked WHERE session = ?1 AND at = ?2 AND seq = ?3",
                };
                self.connection.prepare_cached(statement)?.execute(params![
                    session,
                    node.record.timestamp,
                    seq
                ])?;
                self.schedule(node, session)?;
            }
            "assistant" => self.answer(node, seq, session)?,
            "toolResult" => self.result(node, seq, session)?,
            "bashExecution" | "custom" => {
                let decoded = self.decode(node, &["quipu"])?;
                self.states(node, seq, session, None, &decoded.step.files)?;
            }
            _ => self.other(node, seq, session)?,
        }
        Ok(())
    }

    /// What a job asked in a session of its own is the purpose of that session.
    fn schedule(&self, node: &Node, session: i64) -> Outcome<()> {
        if session == 0 || self.sign < 0 {
            return Ok(());
        }
        let asked = self.decode(node, &["quipu"])?.step.provenance;
        if asked.is_some_and(|asked| asked.origin == Origin::Schedule) {
            self.connection
                .prepare_cached("INSERT OR IGNORE INTO quipu_x_purpose VALUES (?1, ?2)")?
                .execute(params![session, SCHEDULE])?;
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
            self.sums.tools.entry((session, slot, call.name.clone())).or_default()[0] += self.sign;
        }
        let searches = searches_of(&message.content);
        if searches > 0 {
            let key = (session, slot, ServerToolBlock::SEARCH.to_owned());
            self.sums.tools.entry(key).or_default()[0] += self.sign * searches;
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
            self.sums.tools.entry(key).or_default()[1] += self.sign;
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
                let done =
                    performed_file_ops(&project, &call.tool, &call.arguments, result.is_error, &states);
                (answer, place, done)
            }
            None => (seq, NO_CALL, performed_file_ops(&project, "", "", true, &states)),
        };
        let by = (!states.is_empty()).then_some(by);
        self.did(FileActor { session, seq, call, at, by }, done)
    }

    /// What was done to files.
    fn did(&mut self, doer: FileActor, done: Vec<(String, FileOpKind)>) -> Outcome<()> {
        let FileActor { session, seq, call, at, by } = doer;
        if done.is_empty() {
            return Ok(());
        }
        let asked = self.asked_before(seq)?;
        for (path, kind) in done {
            if self.sign < 0 {
                self.undid(&doer, &path, kind)?;
                continue;
            }
            self.connection
                .prepare_cached(
                    "INSERT INTO quipu_x_touch VALUES (?1, ?2, ?3, 1, ?4, ?5) ON CONFLICT (session, path, deed) DO UPDATE \
                     SET times = times + 1, seq = iif(excluded.at >= at, excluded.seq, seq), at = max(at, excluded.at)",
                )?
                .execute(params![session, path, number(kind), at, seq])?;
            if kind != FileOpKind::Read {
                self.connection
                    .prepare_cached("INSERT OR IGNORE INTO quipu_x_file VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
                    .execute(params![path, seq, call, at, asked, by])?;
            }
        }
        Ok(())
    }

    /// Subtracts an operation. What a copy did is older than what its session did itself, so that which was the last stays so.
    fn undid(&self, doer: &FileActor, path: &str, kind: FileOpKind) -> Outcome<()> {
        let key = params![doer.session, path, number(kind)];
        self.connection
            .prepare_cached(
                "UPDATE quipu_x_touch SET times = times - 1 WHERE session = ?1 AND path = ?2 AND deed = ?3",
            )?
            .execute(key)?;
        self.connection
            .prepare_cached(
                "DELETE FROM quipu_x_touch WHERE session = ?1 AND path = ?2 AND deed = ?3 AND times <= 0",
            )?
            .execute(key)?;
        self.connection
            .prepare_cached("DELETE FROM quipu_x_file WHERE path = ?1 AND seq = ?2 AND call = ?3")?
            .execute(params![path, doer.seq, doer.call])?;
        Ok(())
    }

    /// Summaries: of a compaction, of a branch, or calls for one that came to nothing.
    fn other(&mut self, node: &Node, seq: i64, session: i64) -> Outcome<()> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct SummaryPart {
            #[serde(rename = "type")]
            kind: String,
            usage: Option<Usage>,
            #[serde(rename = "customType")]
            custom: String,
            data: Data,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Data {
            usage: Option<Usage>,
            purpose: String,
        }
        let decoded = self.decode(node, &["quipu", "pi_meta"])?;
        self.states(node, seq, session, None, &decoded.step.files)?;
        let charged = decoded.step.call.is_some();
        let mut purpose = "compaction".to_owned();
        let usage = match &decoded.entry {
            Entry::Compaction(compaction) => compaction.usage,
            // Most entries say nothing of it: told apart without reading them.
            Entry::Meta(json) if json.get().contains("\"usage\"") => {
                let SummaryPart { kind, usage, data, .. } = json.read().unwrap_or_default();
                if kind == "branch_summary" {
                    purpose = kind.clone();
                } else if !data.purpose.is_empty() {
                    purpose = data.purpose;
                }
                (charged || kind == "branch_summary").then_some(usage.or(data.usage)).flatten()
            }
            Entry::Meta(json) if json.get().contains("\"quipu.parent\"") => {
                let SummaryPart { custom, data, .. } = json.read().unwrap_or_default();
                if custom == "quipu.parent" && session != 0 && self.sign > 0 && !data.purpose.is_empty() {
                    self.connection
                        .prepare_cached("INSERT OR REPLACE INTO quipu_x_purpose VALUES (?1, ?2)")?
                        .execute(params![session, data.purpose])?;
                }
                None
            }
            Entry::Meta(_) | Entry::Message(_) | Entry::Session(_) | Entry::Epoch(_) => None,
        };
        let Some(usage) = usage else { return Ok(()) };
        let model = match &decoded.step.call {
            Some(call) => model_name(&call.provider, &call.model),
            None => self.model_before(node)?,
        };
        self.used_for(&purpose, session, node, &model, &usage, charged);
        Ok(())
    }

    fn used(&mut self, session: i64, node: &Node, model: &str, usage: &Usage, charged: bool) {
        self.used_for("", session, node, model, usage, charged);
    }

    /// `purpose` is empty for what the session is for.
    fn used_for(
        &mut self,
        purpose: &str,
        session: i64,
        node: &Node,
        model: &str,
        usage: &Usage,
        charged: bool,
    ) {
        let cost = nano_dollars(usage.cost.total);
        let tokens = [usage.input, usage.output, usage.cache_read, usage.cache_write];
        let tokens = tokens.map(|count| i64::try_from(count).unwrap_or(MOST).min(MOST));
        if cost == 0 && tokens == [0; 4] {
            return;
        }
        let slot = node.record.timestamp.div_euclid(SLOT);
        let key = (session, slot, model.to_owned(), charged || cost > 0, purpose.to_owned());
        let sums = self.sums.uses.entry(key).or_default();
        let [input, output, read, write] = tokens;
        for (sum, more) in sums.iter_mut().zip([1, input, output, read, write, cost]) {
            *sum = sum.saturating_add(self.sign * more).min(MOST);
        }
    }

    /// The node with those of its parts that are of these types.
    fn decode(&self, node: &Node, types: &[&str]) -> Outcome<DecodedEntry> {
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
                let Some(position) = places::position(self.connection, &id)? else { break };
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
    pub(super) fn asked_before(&mut self, seq: i64) -> Outcome<Option<i64>> {
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

    pub(super) fn project(&mut self, session: i64) -> Outcome<String> {
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

    /// Writes the sums.
    pub(super) fn finish(self) -> Outcome<()> {
        let mut put = self.connection.prepare_cached(
            "INSERT INTO quipu_x_use VALUES (?1, ?2, ?3, ?4, ?12, ?5, ?6, ?7, ?8, ?9, ?10) \
             ON CONFLICT (session, slot, model, priced, purpose) DO UPDATE SET calls = calls + excluded.calls, \
             input = min(input + excluded.input, ?11), output = min(output + excluded.output, ?11), \
             cache_read = min(cache_read + excluded.cache_read, ?11), \
             cache_write = min(cache_write + excluded.cache_write, ?11), cost = min(cost + excluded.cost, ?11)",
        )?;
        let mut drop =
            self.connection.prepare_cached("DELETE FROM quipu_x_use WHERE session = ?1 AND calls <= 0")?;
        for ((session, slot, model, priced, purpose), [calls, input, output, read, write, cost]) in
            self.sums.uses
        {
            put.execute(params![
                session, slot, model, priced, calls, input, output, read, write, cost, MOST, purpose
            ])?;
            if calls <= 0 {
                drop.execute([session])?;
            }
        }
        let mut put = self.connection.prepare_cached(
            "INSERT INTO quipu_x_tool VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (session, slot, tool) DO UPDATE \
             SET calls = calls + excluded.calls, failed = failed + excluded.failed",
        )?;
        let mut drop = self
            .connection
            .prepare_cached("DELETE FROM quipu_x_tool WHERE session = ?1 AND calls <= 0 AND failed <= 0")?;
        for ((session, slot, tool), [calls, failed]) in self.sums.tools {
            put.execute(params![session, slot, tool, calls, failed])?;
            if calls <= 0 {
                drop.execute([session])?;
            }
        }
        Ok(())
    }
}

/// How often the provider searched for an answer.
fn searches_of(content: &[Content]) -> i64 {
    let is_search = |block: &&Content| match block {
        Content::Other(json) => ServerToolBlock::of_json(json).is_some_and(|tool| tool.is_search()),
        Content::Text(_) | Content::Thinking(_) | Content::Image(_) | Content::ToolCall(_) => false,
    };
    i64::try_from(content.iter().filter(is_search).count()).unwrap_or(0)
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
