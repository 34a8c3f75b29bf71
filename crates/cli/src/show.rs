//! `quipu show`: a session as a tree, a node whole, the request behind an answer.

use std::io::Write as _;
use std::path::Path;

use quipu_dag::Node;
use quipu_protocol::{Body, Content, Entry, Message, NodeId, StepInfo};
use quipu_store::{Candidate, FoundBy, Resolved, Scope, SessionQuery, SessionRow, Store};
use quipu_transcript::{Decoded, role_with};
use sha2::{Digest as _, Sha256};

use crate::args::ShowArgs;
use crate::exit::{Exit, Failure};
use crate::print::{Paint, ago, dollars, iso, one_line, printable, took};
use crate::setup::{Place, current_dir, now, session_named};
use crate::tree;

/// Columns of what somebody named, where it is told: it may be of any length.
const WIDTH: usize = 100;

pub(crate) async fn run(args: &ShowArgs) -> Result<(), Failure> {
    let place = Place::find(&args.out.store)?;
    let Some(store) = place.store_to_read()? else {
        return Err(Failure::usage(format!(
            "there is no store at {} yet; try `quipu demo`",
            place.store.display()
        )));
    };
    let store: &dyn Store = &*store;
    let Some(what) = &args.what else {
        return show_session(store, &newest_here(store).await?, args).await;
    };
    // What is named needs no directory; then it only says what `HEAD` means.
    let newest = match current_dir() {
        Ok(here) => newest_in(store, &here).await?,
        Err(_) => None,
    };
    let found = resolve(store, what, newest.as_ref()).await?;
    if found.by == FoundBy::Session && !args.request {
        let query = SessionQuery { id: found.session.clone(), limit: Some(1), ..SessionQuery::default() };
        if let Some(row) = store.sessions(query).await?.first() {
            return show_session(store, row, args).await;
        }
    }
    let Some(node) = store.nodes(&[found.node]).await?.into_iter().flatten().next() else {
        return Err(Failure::new(
            Exit::Store,
            format!("node {} is named by a ref but missing from the store", found.node),
        ));
    };
    let Some(decoded) =
        quipu_store::decode_nodes(store, std::slice::from_ref(&node)).await?.into_iter().next()
    else {
        return Err(Failure::new(Exit::Store, format!("node {} could not be read", node.id)));
    };
    if args.request {
        return show_request(store, &node, &decoded).await;
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.out.json {
        writeln!(out, "{}", node_json(&node, &decoded)?)?;
    } else {
        write_node(&mut out, &node, &decoded, found.session.as_ref().map(ToString::to_string))?;
    }
    Ok(out.flush()?)
}

/// Writes one node, whole.
pub(crate) async fn write_whole(
    store: &dyn Store,
    what: &str,
    json: bool,
    out: &mut impl std::io::Write,
) -> Result<(), Failure> {
    let newest = match current_dir() {
        Ok(here) => newest_in(store, &here).await?,
        Err(_) => None,
    };
    let found = resolve(store, what, newest.as_ref()).await?;
    let nodes: Vec<Node> = store.nodes(&[found.node]).await?.into_iter().flatten().collect();
    let decoded = quipu_store::decode_nodes(store, &nodes).await?;
    let (Some(node), Some(decoded)) = (nodes.first(), decoded.first()) else {
        return Err(Failure::new(Exit::Store, format!("node {} is missing from the store", found.node)));
    };
    if json {
        return Ok(writeln!(out, "{}", node_json(node, decoded)?)?);
    }
    write_node(out, node, decoded, found.session.as_ref().map(ToString::to_string))
}

/// The newest session of the current directory.
pub(crate) async fn newest_here(store: &dyn Store) -> Result<SessionRow, Failure> {
    newest_in(store, &current_dir()?).await?.ok_or_else(|| {
        Failure::usage("no session in this directory; `quipu sessions --all` lists those of every directory")
    })
}

async fn newest_in(store: &dyn Store, here: &Path) -> Result<Option<SessionRow>, Failure> {
    let cwd = Some(here.to_string_lossy().into_owned());
    let query = SessionQuery { cwd, limit: Some(1), ..SessionQuery::default() };
    Ok(store.sessions(query).await?.into_iter().next())
}

/// What a person means by a name.
pub(crate) async fn resolve(
    store: &dyn Store,
    what: &str,
    newest: Option<&SessionRow>,
) -> Result<Candidate, Failure> {
    let scope = Scope { head: newest.and_then(|row| row.head) };
    let found = match store.resolve(&what.into(), &scope).await? {
        Resolved::None => by_name(store, what).await?,
        found => found,
    };
    match found {
        Resolved::One(found) => Ok(found),
        Resolved::None => Err(Failure::usage(format!(
            "`{}` is no node and no session here: give a session's id, a node's hash, or at least their first four \
             characters (`quipu sessions --all`)",
            one_line(what, WIDTH)
        ))),
        Resolved::Many(found) => {
            let mut list = Vec::with_capacity(found.len());
            for one in &found {
                list.push(candidate(store, one).await?);
            }
            Err(Failure::usage(format!(
                "`{}` could be any of these; say more:\n{}",
                one_line(what, WIDTH),
                list.join("\n")
            )))
        }
    }
}

/// The node that somebody means; of a session its last one, also when it was removed and stands nowhere.
pub(crate) async fn last_node(store: &dyn Store, what: &str) -> Result<NodeId, Failure> {
    let found = resolve(store, what, None).await?;
    let (FoundBy::Session, Some(session)) = (found.by, &found.session) else { return Ok(found.node) };
    if let Some(head) = session_named(store, session.as_str()).await?.head {
        return Ok(head);
    }
    let ends = store.landmarks(std::slice::from_ref(session), 1).await?;
    Ok(ends.first().map_or(found.node, |end| end.node))
}

/// One of several that could be meant: a session by its id and what it is about, a node by its hash.
async fn candidate(store: &dyn Store, one: &Candidate) -> Result<String, Failure> {
    let when = ago(now(), one.timestamp);
    let Some(session) = &one.session else {
        return Ok(format!("  {}  {}  {when}", one.node.short(), printable(&one.role)));
    };
    if one.by != FoundBy::Session {
        return Ok(format!("  {}  {}  {when}  session {session}", one.node.short(), printable(&one.role)));
    }
    let query = SessionQuery { id: Some(session.clone()), limit: Some(1), ..SessionQuery::default() };
    let rows = store.sessions(query).await?;
    let about = rows.first().map_or("", |row| if row.called.is_empty() { &row.title } else { &row.called });
    Ok(format!("  session {session}  {when}  {}", one_line(about, 60)).trim_end().to_owned())
}

/// Sessions that were given this name.
async fn by_name(store: &dyn Store, name: &str) -> Result<Resolved, Failure> {
    // As it is kept when it is given.
    let name = name.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    let name = name.collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        return Ok(Resolved::None);
    }
    let query = SessionQuery { called: Some(name), limit: Some(20), ..SessionQuery::default() };
    let mut found = Vec::new();
    for row in store.sessions(query).await? {
        match store.resolve(&row.id.as_str().into(), &Scope::default()).await? {
            Resolved::One(one) => found.push(one),
            Resolved::Many(_) | Resolved::None => {}
        }
    }
    Ok(match found.len() {
        1 => found.pop().map_or(Resolved::None, Resolved::One),
        0 => Resolved::None,
        _ => Resolved::Many(found),
    })
}

async fn show_session(store: &dyn Store, row: &SessionRow, args: &ShowArgs) -> Result<(), Failure> {
    let tree = tree::read(store, row, tree::Forks::Named).await?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    if args.out.json {
        let nodes =
            tree.rows.iter().map(|row| node_json(&row.node, &row.decoded)).collect::<Result<Vec<_>, _>>()?;
        let labels = crate::sessions::label_counts(store, std::slice::from_ref(&row.id)).await?;
        let value = serde_json::json!({ "session": crate::sessions::json(row, &labels), "cut": tree.cut });
        // The nodes are raw JSON, which a value cannot hold.
        let text = value.to_string();
        writeln!(out, "{},\"nodes\":[{}]}}", &text[..text.len() - 1], nodes.join(","))?;
        return Ok(out.flush()?);
    }
    let paint = Paint::stdout();
    writeln!(out, "session {}  {}", paint.bold(row.id.as_str()), printable(&row.cwd))?;
    writeln!(out, "{} nodes, {}, {}", row.entries + 1, dollars(row.cost), ago(now(), row.updated))?;
    for line in tree::draw(&tree, row.head.as_slice(), paint) {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

async fn show_request(store: &dyn Store, node: &Node, decoded: &Decoded) -> Result<(), Failure> {
    let Some(call) = &decoded.step.call else {
        return Err(Failure::usage(format!(
            "no model call is recorded under {} ({}); give the node of an answer",
            node.id.short(),
            one_line(&node.record.role, 40)
        )));
    };
    let bytes = store.chunk(call.body, 0..u64::MAX).await?;
    if Sha256::digest(&bytes).as_slice() != call.body.0 {
        return Err(Failure::new(Exit::Store, format!("the request of {} was rebuilt wrongly", node.id)));
    }
    let mut out = std::io::stdout().lock();
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

/// A node as a program reads it.
pub(crate) fn node_json(node: &Node, decoded: &Decoded) -> Result<String, Failure> {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Shown<'a> {
        id: quipu_protocol::NodeId,
        parent: Option<quipu_protocol::NodeId>,
        role: &'a str,
        timestamp: i64,
        external_id: &'a Option<String>,
        parts: &'a [quipu_protocol::BlobId],
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a Message>,
        #[serde(skip_serializing_if = "Option::is_none")]
        session: Option<&'a quipu_protocol::SessionStart>,
        #[serde(skip_serializing_if = "Option::is_none")]
        epoch: Option<&'a quipu_protocol::Epoch>,
        #[serde(skip_serializing_if = "Option::is_none")]
        compaction: Option<&'a quipu_protocol::Compaction>,
        #[serde(skip_serializing_if = "Option::is_none")]
        entry: Option<&'a quipu_protocol::Json>,
        /// Of a merge: the node that it hangs on, and the ends of the other branches.
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        merge: &'a [quipu_protocol::NodeId],
        step: &'a StepInfo,
    }
    let mut shown = Shown {
        id: node.id,
        parent: node.record.parent,
        role: role_with(node, &decoded.entry),
        timestamp: node.record.timestamp,
        external_id: &node.record.external_id,
        parts: &node.record.parts,
        message: None,
        session: None,
        epoch: None,
        compaction: None,
        entry: None,
        merge: &decoded.step.merge,
        step: &decoded.step,
    };
    match &decoded.entry {
        Entry::Message(message) => shown.message = Some(message),
        Entry::Session(start) => shown.session = Some(start),
        Entry::Epoch(epoch) => shown.epoch = Some(epoch),
        Entry::Compaction(compaction) => shown.compaction = Some(compaction),
        Entry::Meta(json) => shown.entry = Some(json),
    }
    serde_json::to_string(&shown).map_err(Failure::failed)
}

fn write_node(
    out: &mut impl std::io::Write,
    node: &Node,
    decoded: &Decoded,
    session: Option<String>,
) -> Result<(), Failure> {
    let paint = Paint::stdout();
    writeln!(out, "{} {}", paint.bold("node"), node.id)?;
    writeln!(out, "role    {}", printable(role_with(node, &decoded.entry)))?;
    if let Some(parent) = node.record.parent {
        writeln!(out, "parent  {parent}")?;
    }
    for merged in decoded.step.merge.iter().skip(1) {
        writeln!(out, "merges  {merged}")?;
    }
    if let Some(session) = session {
        writeln!(out, "session {session}")?;
    }
    writeln!(out, "time    {}", iso(node.record.timestamp))?;
    write_step(out, &decoded.step)?;
    writeln!(out)?;
    match &decoded.entry {
        Entry::Message(message) => write_message(out, message)?,
        Entry::Session(start) => {
            writeln!(out, "session {} of {} in {}", start.session, start.agent, printable(&start.cwd))?;
            writeln!(out, "model   {}/{}", start.epoch.provider, start.epoch.model)?;
        }
        Entry::Epoch(epoch) => writeln!(out, "model   {}/{}", epoch.provider, epoch.model)?,
        Entry::Compaction(compaction) => write_compaction(out, compaction)?,
        Entry::Meta(json) => writeln!(out, "{}", printable(json.get()))?,
    }
    Ok(())
}

fn write_compaction(
    out: &mut impl std::io::Write,
    compaction: &quipu_protocol::Compaction,
) -> Result<(), Failure> {
    let kept = compaction.first_kept.map_or_else(|| "nothing".into(), |first| first.to_string());
    writeln!(out, "kept    {kept}")?;
    writeln!(out, "tokens  {} before it", compaction.tokens_before)?;
    if let Some(checkpoint) = &compaction.checkpoint {
        writeln!(out, "model   {}/{}", checkpoint.epoch.provider, checkpoint.epoch.model)?;
    }
    Ok(writeln!(out, "\n{}", printable(&compaction.summary))?)
}

fn write_step(out: &mut impl std::io::Write, step: &StepInfo) -> Result<(), Failure> {
    if let Some(duration) = step.duration_ms {
        writeln!(out, "took    {}", took(duration))?;
    }
    if let Some(call) = &step.call {
        let place = if call.local { "local" } else { "remote" };
        let first =
            call.first_token_ms.map_or(String::new(), |ms| format!(", first token after {}", took(ms)));
        writeln!(out, "call    {}/{} over {} ({place}{first})", call.provider, call.model, call.api)?;
        writeln!(out, "request {} bytes, sha256 {}", call.body_bytes, call.body)?;
        for attempt in &call.attempts {
            let status = attempt.status.map_or(String::new(), |status| format!(" {status}"));
            let error = attempt.error.map_or("answered".to_owned(), |error| format!("{error:?}"));
            writeln!(out, "attempt {}{status} {error}", iso(attempt.at))?;
        }
    }
    Ok(())
}

fn write_message(out: &mut impl std::io::Write, message: &Message) -> Result<(), Failure> {
    match message {
        Message::User(user) => write_body(out, &user.content),
        Message::Assistant(answer) => {
            write_blocks(out, &answer.content)?;
            let usage = &answer.usage;
            writeln!(
                out,
                "\n({} in, {} cached, {} out, {}; stopped: {:?})",
                usage.input + usage.cache_write,
                usage.cache_read,
                usage.output,
                dollars(usage.cost.total),
                answer.stop_reason
            )?;
            if let Some(error) = &answer.error_message {
                writeln!(out, "error: {}", printable(error))?;
            }
            Ok(())
        }
        Message::ToolResult(result) => {
            let failed = if result.is_error { " (failed)" } else { "" };
            writeln!(
                out,
                "[{} {}]{failed}",
                printable(&result.tool_name),
                printable(result.tool_call_id.as_str())
            )?;
            write_blocks(out, &result.content)
        }
        Message::BashExecution(run) => {
            writeln!(out, "$ {}\n{}", printable(&run.command), printable(&run.output))?;
            Ok(())
        }
        Message::Custom(custom) => write_body(out, &custom.content),
        Message::BranchSummary(summary) => Ok(writeln!(out, "{}", printable(&summary.summary))?),
        Message::CompactionSummary(summary) => Ok(writeln!(out, "{}", printable(&summary.summary))?),
        Message::Other(json) => Ok(writeln!(out, "{}", printable(json.get()))?),
    }
}

fn write_body(out: &mut impl std::io::Write, body: &Body) -> Result<(), Failure> {
    write_blocks(out, &body.blocks())
}

fn write_blocks(out: &mut impl std::io::Write, blocks: &[Content]) -> Result<(), Failure> {
    for block in blocks {
        match block {
            Content::Text(text) => writeln!(out, "{}", printable(&text.text))?,
            Content::Thinking(thinking) => writeln!(out, "(thinking) {}", printable(&thinking.thinking))?,
            Content::Image(image) => {
                writeln!(out, "[image {}, {} bytes]", printable(&image.mime_type), image.data.len() / 4 * 3)?;
            }
            Content::ToolCall(call) => {
                writeln!(
                    out,
                    "[call {} {}] {}",
                    printable(&call.name),
                    printable(call.id.as_str()),
                    printable(call.arguments.get())
                )?;
            }
            Content::Other(json) => writeln!(out, "{}", printable(json.get()))?,
        }
    }
    Ok(())
}
