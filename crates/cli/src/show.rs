//! `quipu show`: a session as a tree, a node whole, the request behind an answer.

use std::io::Write as _;

use quipu_dag::Node;
use quipu_protocol::{Body, Content, Entry, Epoch, Message, Provenance, ServerToolBlock, StepInfo};
use quipu_store::{Erasure, Graph, SessionQuery, SessionRow, SpellingKind, StoreError};
use quipu_transcript::{DecodedEntry, role_with};
use sha2::{Digest as _, Sha256};

use crate::args::ShowArgs;
use crate::console::current_dir;
use crate::exit::{Exit, Failure};
use crate::home::{home, no_sessions};
use crate::print::{Paint, ago, counted, dollars, iso, one_line, printable, took};
use crate::tree;
use quipu_host::{node_json, now};

pub(crate) async fn run(args: &ShowArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let Some(store) = home.store_to_read()? else {
        return Err(no_sessions(&home));
    };
    let store: &dyn Graph = &*store;
    let Some(what) = &args.what else {
        return show_session(store, &quipu_host::newest_here(store).await?, args).await;
    };
    // What is named needs no directory; then it only says what `HEAD` means.
    let newest = match current_dir() {
        Ok(here) => quipu_host::newest_in(store, &here).await?,
        Err(_) => None,
    };
    let found = quipu_host::resolve(store, what, newest.as_ref()).await?;
    if found.by == SpellingKind::Session && !args.request {
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
        quipu_store::decode_whole(store, std::slice::from_ref(&node)).await?.into_iter().next()
    else {
        return Err(Failure::new(Exit::Store, format!("node {} could not be read", node.id)));
    };
    if args.request {
        return show_request(store, &node, &decoded).await;
    }
    let erasure = erasure_of(store, &node).await?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        writeln!(out, "{}", shown_json(&node, &decoded, erasure.as_ref())?)?;
    } else {
        let session = found.session.as_ref().map(ToString::to_string);
        write_node(&mut out, &node, &decoded, session, erasure.as_ref())?;
    }
    Ok(out.flush()?)
}

async fn erasure_of(store: &dyn Graph, node: &Node) -> Result<Option<Erasure>, Failure> {
    Ok(store.erasures(&[node.id]).await?.into_iter().next().flatten())
}

/// A node for programs; when and why it was erased, where it was.
fn shown_json(node: &Node, decoded: &DecodedEntry, erasure: Option<&Erasure>) -> Result<String, Failure> {
    let text = node_json(node, decoded)?;
    let Some(erasure) = erasure else { return Ok(text) };
    // The rest is raw JSON, which a value cannot hold.
    Ok(format!("{},\"erased\":{}}}", &text[..text.len() - 1], serde_json::json!(erasure)))
}

/// Writes one node, whole.
pub(crate) async fn write_whole(
    store: &dyn Graph,
    what: &str,
    json: bool,
    out: &mut impl std::io::Write,
) -> Result<(), Failure> {
    let newest = match current_dir() {
        Ok(here) => quipu_host::newest_in(store, &here).await?,
        Err(_) => None,
    };
    let found = quipu_host::resolve(store, what, newest.as_ref()).await?;
    let nodes: Vec<Node> = store.nodes(&[found.node]).await?.into_iter().flatten().collect();
    let decoded = quipu_store::decode_whole(store, &nodes).await?;
    let (Some(node), Some(decoded)) = (nodes.first(), decoded.first()) else {
        return Err(Failure::new(Exit::Store, format!("node {} is missing from the store", found.node)));
    };
    let erasure = erasure_of(store, node).await?;
    if json {
        return Ok(writeln!(out, "{}", shown_json(node, decoded, erasure.as_ref())?)?);
    }
    write_node(out, node, decoded, found.session.as_ref().map(ToString::to_string), erasure.as_ref())
}

async fn show_session(store: &dyn Graph, row: &SessionRow, args: &ShowArgs) -> Result<(), Failure> {
    let tree = tree::read(store, row, tree::Forks::Named).await?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        let nodes =
            tree.rows.iter().map(|row| node_json(&row.node, &row.decoded)).collect::<Result<Vec<_>, _>>()?;
        let labels = quipu_host::label_counts(store, std::slice::from_ref(&row.id)).await?;
        let value = serde_json::json!({ "session": quipu_host::session_json(row, &labels), "cut": tree.cut });
        // The nodes are raw JSON, which a value cannot hold.
        let text = value.to_string();
        writeln!(out, "{},\"nodes\":[{}]}}", &text[..text.len() - 1], nodes.join(","))?;
        return Ok(out.flush()?);
    }
    let paint = Paint::stdout();
    writeln!(out, "session {}  {}", paint.bold(&printable(row.id.as_str())), printable(&row.cwd))?;
    writeln!(
        out,
        "{}, {}, {}",
        counted(row.entries + 1, "node"),
        dollars(row.cost),
        ago(now(), row.updated)
    )?;
    for line in tree::draw(&tree, row.head.as_slice(), paint) {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

async fn show_request(store: &dyn Graph, node: &Node, decoded: &DecodedEntry) -> Result<(), Failure> {
    let Some(call) = &decoded.step.call else {
        return Err(Failure::usage(format!(
            "no model call is recorded under {} ({}); give the node of an answer",
            node.id.short(),
            one_line(&node.record.role, 40)
        )));
    };
    let bytes = match store.chunk(call.body, 0..u64::MAX).await {
        Ok(bytes) => bytes,
        // A proxy sends what its clients say, and keeps no secrets of it.
        Err(StoreError::Missing { .. }) => {
            return Err(Failure::usage(format!(
                "the request of {} is not kept, because it was packed or had secrets in it; it had {} bytes, sha256 {}",
                node.id.short(),
                call.body_bytes,
                call.body
            )));
        }
        Err(error) => return Err(error.into()),
    };
    if Sha256::digest(&bytes).as_slice() != call.body.0 {
        return Err(Failure::new(
            Exit::Store,
            format!("the stored request of {} does not match its hash; run `quipu doctor`", node.id),
        ));
    }
    let mut out = crate::console::stdout();
    out.write_all(&bytes)?;
    Ok(out.flush()?)
}

fn write_node(
    out: &mut impl std::io::Write,
    node: &Node,
    decoded: &DecodedEntry,
    session: Option<String>,
    erasure: Option<&Erasure>,
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
        writeln!(out, "session {}", printable(&session))?;
    }
    writeln!(out, "time    {}", iso(node.record.timestamp))?;
    if let Some(Erasure { at, why }) = erasure {
        writeln!(out, "erased  {}: {}", iso(*at), printable(why))?;
    }
    write_step(out, &decoded.step)?;
    writeln!(out)?;
    match &decoded.entry {
        Entry::Message(message) => write_message(out, message)?,
        Entry::Session(start) => {
            let (id, agent) = (printable(start.session.as_str()), printable(&start.agent));
            writeln!(out, "session {id} of {agent} in {}", printable(&start.cwd))?;
            write_epoch(out, &start.epoch)?;
        }
        Entry::Epoch(epoch) => write_epoch(out, epoch)?,
        Entry::Compaction(compaction) => write_compaction(out, compaction)?,
        Entry::Meta(json) => writeln!(out, "{}", printable(json.get()))?,
    }
    Ok(())
}

fn write_epoch(out: &mut impl std::io::Write, epoch: &Epoch) -> Result<(), Failure> {
    writeln!(out, "model   {}/{}", printable(&epoch.provider), printable(&epoch.model))?;
    if let Some(profile) = epoch.profile {
        writeln!(out, "profile {}", profile.word())?;
    }
    if let Some(plan) = &epoch.plan {
        let before = plan.before.as_ref().map_or(String::new(), |before| {
            format!(", behind it {}/{}", printable(&before.provider), printable(&before.model))
        });
        writeln!(out, "plan    {}{before}", if plan.on { "on" } else { "off" })?;
    }
    Ok(())
}

fn write_compaction(
    out: &mut impl std::io::Write,
    compaction: &quipu_protocol::Compaction,
) -> Result<(), Failure> {
    let kept = compaction.first_kept.map_or_else(|| "nothing".into(), |first| first.to_string());
    writeln!(out, "kept    {kept}")?;
    writeln!(out, "tokens  {} before compaction", compaction.tokens_before)?;
    if let Some(checkpoint) = &compaction.checkpoint {
        write_epoch(out, &checkpoint.epoch)?;
    }
    Ok(writeln!(out, "\n{}", printable(&compaction.summary))?)
}

/// Such as `hook (system), date`.
fn source(of: &Provenance) -> String {
    let word = |json: serde_json::Result<serde_json::Value>| {
        json.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
    };
    let name = of.name.as_deref().map_or(String::new(), |name| format!(", {}", one_line(name, 80)));
    format!("{} ({}){name}", word(serde_json::to_value(of.origin)), word(serde_json::to_value(of.author)))
}

fn write_step(out: &mut impl std::io::Write, step: &StepInfo) -> Result<(), Failure> {
    if let Some(provenance) = &step.provenance {
        writeln!(out, "from    {}", source(provenance))?;
    }
    for added in &step.added {
        writeln!(out, "block {} from {}", added.block + 1, source(&added.provenance))?;
    }
    if let Some(duration) = step.duration_ms {
        writeln!(out, "took    {}", took(duration))?;
    }
    if let Some(call) = &step.call {
        let locality = if call.local { "local" } else { "remote" };
        let first =
            call.first_token_ms.map_or(String::new(), |ms| format!(", first token after {}", took(ms)));
        let (provider, model) = (printable(&call.provider), printable(&call.model));
        writeln!(out, "call    {provider}/{model} over {} ({locality}{first})", printable(&call.api))?;
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
        Message::User(user) => {
            let blocks = user.content.blocks();
            let is_note = |block: &&Content| block.as_text().is_some_and(quipu::is_plan_note);
            let said: Vec<Content> = blocks.iter().filter(|block| !is_note(block)).cloned().collect();
            write_blocks(out, &said)?;
            for note in blocks.iter().filter(is_note).filter_map(Content::as_text) {
                writeln!(out, "(note of plan mode) {note}")?;
            }
            Ok(())
        }
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
            Content::Other(json) => match ServerToolBlock::of_json(json) {
                Some(used) => writeln!(out, "[provider] {}", printable(&used.text()))?,
                None => writeln!(out, "{}", printable(json.get()))?,
            },
        }
    }
    Ok(())
}
