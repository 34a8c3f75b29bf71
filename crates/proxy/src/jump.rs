//! Jumps in conversations of clients: what is asked, what is left out, and how a request is changed.

use quipu_archive::{ConversationDigest, LiveConversation};
use quipu_history::{CarryoverError, carryover_note};
use quipu_protocol::{Json, NodeId, SessionId, UnixMs};
use quipu_store::{HiddenSnapshot, Op, OpenJump, RefName};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::body::{Piece, RequestBody};
use crate::chains::{CHAINS, ViewItems};
use crate::exchange::now;
use crate::item::{Author, Item, ItemList};
use crate::wire_kind::WireKind;

/// How lines for the proxy begin.
pub(crate) const MARK: &str = "quipu: ";
const TOBE: &str = "quipu: tobe ";
const CONFIRM: &str = "quipu: confirm";
/// How the refs of conversations begin that have a jump.
pub(crate) const REFS: &str = "quipu-proxy/";
/// Jumps of one conversation at most.
pub(crate) const EDITS: usize = 64;
const _: () = assert!(CHAINS > EDITS);

/// How long a question waits for a confirmation, in milliseconds.
const ASKED: i64 = 24 * 60 * 60 * 1_000;

/// The warning of a message that a person wrote.
const WARNS: &str = "The user took this conversation back to this point. What came after it is left out; the note above was \
                     written then. Files were not restored: check them before you rely on what they were.";
const NO_NOTE: &str = "(no message)";

/// What a line in a conversation asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyCommand {
    Tobe { target: String, note: String },
    Confirm,
}

/// Messages that are left out, and what stands in their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Edit {
    /// The conversation up to the last message that stays.
    pub(crate) keep: String,
    /// The conversation up to the last message that is left out.
    pub(crate) cut: String,
    /// Whether the answer behind that is left out too.
    pub(crate) with_answer: bool,
    /// What stands in their place.
    pub(crate) carryover: String,
    /// The conversation up to the question, and the question alone.
    #[serde(default)]
    pub(crate) question: String,
    #[serde(default)]
    pub(crate) line: String,
    pub(crate) target: NodeId,
    pub(crate) at: UnixMs,
}

/// A jump that waits for a confirmation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AskedJump {
    pub(crate) id: String,
    /// The jumps before that stay in force.
    pub(crate) before: Vec<Edit>,
    pub(crate) keep: String,
    /// The conversation up to the question.
    pub(crate) question: String,
    /// The question alone.
    #[serde(default)]
    pub(crate) line: String,
    pub(crate) target: NodeId,
    pub(crate) departure: NodeId,
    /// What the person wrote to the model there; sealed.
    pub(crate) note: String,
    pub(crate) messages: usize,
    pub(crate) at: UnixMs,
}

/// All jumps of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct JumpPlan {
    pub(crate) edits: Vec<Edit>,
    pub(crate) asked: Option<AskedJump>,
}

/// The name of a conversation's row for jumps.
pub(crate) fn row(agent: &str, session: &SessionId) -> SessionId {
    format!("{REFS}{agent}/{session}").as_str().into()
}

/// The ref that says that a conversation has a jump.
pub(crate) fn plan_ref(agent: &str, session: &SessionId) -> RefName {
    RefName::from(format!("{REFS}{agent}/{session}"))
}

impl JumpPlan {
    /// A question that nobody answered for long is forgotten.
    pub(crate) fn read(jump: &OpenJump) -> Option<Self> {
        let mut plan: Self = jump.plan.read().ok()?;
        plan.asked = plan.asked.filter(|asked| now().saturating_sub(asked.at) < ASKED);
        Some(plan)
    }

    pub(crate) fn put(&self, agent: &str, session: &SessionId) -> Op {
        let stage = if self.asked.is_some() { "asked" } else { "active" };
        let plan = Json::of(self).unwrap_or_default();
        Op::JumpPut { session: row(agent, session), jump: OpenJump { stage: stage.into(), plan } }
    }
}

/// What the last message of the user asks of the proxy.
pub(crate) fn command(items: &[Item]) -> Option<(usize, ProxyCommand)> {
    let last = items.last()?;
    let first = items.iter().position(|item| item.element == last.element)?;
    let message = &items[first..];
    // Results of tools and files stand in messages of the user too: what asks is all that the message says.
    if message.iter().any(|item| item.author != Author::User) {
        return None;
    }
    let mut counting = message.iter().filter(|item| item.counts);
    let text = counting.next()?.text()?.trim_start();
    if counting.next().is_some() || !text.starts_with(MARK) {
        return None;
    }
    let mut lines = text.lines();
    let line = lines.next()?.trim_end();
    if line == CONFIRM {
        return Some((first, ProxyCommand::Confirm));
    }
    let rest = line.strip_prefix(TOBE)?.trim_start();
    let (target, on_line) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    if target.is_empty() || target.len() > 200 {
        return None;
    }
    let below: Vec<&str> = lines.collect();
    let note = [on_line.trim(), below.join("\n").trim()].join("\n").trim().to_owned();
    Some((first, ProxyCommand::Tobe { target: target.to_owned(), note }))
}

/// A message to oneself that can stand in a conversation.
pub(crate) fn checked_note(note: &str) -> Result<String, CarryoverError> {
    match quipu_history::carryover(note) {
        Err(CarryoverError::Empty) => Ok(String::new()),
        other => other,
    }
}

/// The message as the conversation holds it.
pub(crate) fn carryover(note: &str) -> String {
    let note = if note.is_empty() { NO_NOTE } else { note };
    carryover_note(note, Some(WARNS))
}

/// Whether a person had the message of a jump forgotten that is in force.
pub(crate) fn is_forgotten(hidden: &HiddenSnapshot, live: &LiveConversation, edit: &Edit) -> bool {
    let keep = ConversationDigest::parse(&edit.keep);
    let node = keep.and_then(|keep| live.find(carryover_digest(keep, &edit.carryover)));
    hidden.problem().is_some() || node.is_some_and(|node| hidden.hides(&node))
}

/// The digest of a conversation behind the carryover.
pub(crate) fn carryover_digest(keep: ConversationDigest, text: &str) -> ConversationDigest {
    let mut list = ItemList::after(keep);
    let content = vec![quipu_protocol::Content::text(text)];
    list.push((0, 0), Author::User, content, &str::to_owned);
    list.digest()
}

/// The last item that has to stay where `at` stays, so that each call has its result; `None` where one has none.
pub(crate) fn closed(items: &[Item], at: usize) -> Option<usize> {
    let mut open: Vec<&str> = Vec::new();
    for item in &items[..=at] {
        open.extend(item.call());
        if let Author::Tool { call, .. } = &item.author {
            open.retain(|one| one != call);
        }
    }
    let mut at = at;
    while !open.is_empty() {
        let next = items.get(at + 1)?;
        match &next.author {
            // Further calls of the same answer.
            Author::Assistant => open.extend(next.call()),
            Author::Tool { call, .. } => open.retain(|one| one != call),
            Author::User | Author::Instructions(_) => return None,
        }
        at += 1;
    }
    Some(at)
}

/// A line of a person, whatever stands before it.
pub(crate) fn line_digest(item: &Item, seal: &dyn Fn(&str) -> String) -> String {
    let text = seal(item.text().unwrap_or_default().trim());
    ConversationDigest::default().then("line", &text).hex()
}

/// Whether this is the conversation of an edit with something before the question changed, so that nobody can tell what is
/// to be left out.
pub(crate) fn is_changed(items: &ViewItems, edit: &Edit, seal: &dyn Fn(&str) -> String) -> bool {
    let mut lines = items.now.iter().filter(|item| item.author == Author::User && item.counts);
    items.position(&edit.question).is_none() && lines.any(|item| line_digest(item, seal) == edit.line)
}

/// The request without what an edit leaves out, with `note` in its place; `None` where it is of another conversation.
pub(crate) fn applied(body: &RequestBody, view: &ViewItems, edit: &Edit, note: &str) -> Option<RequestBody> {
    let keep = view.position(&edit.keep)?;
    let mut cut = view.position(&edit.cut)?;
    if cut < keep {
        return None;
    }
    let items = &view.now;
    if edit.with_answer {
        while items.get(cut + 1).is_some_and(|item| item.author == Author::Assistant) {
            cut += 1;
        }
    }
    // Reasoning behind what stays belongs to what is left out, and goes with it.
    let left_out = |index: usize| index > keep && index <= cut;
    let wire = body.wire;
    let mut out: Vec<Piece> = Vec::new();
    let mut is_put = false;
    for (element, piece) in body.elements.iter().enumerate() {
        let of_it = || items.iter().enumerate().filter(|(_, item)| item.element == element);
        let behind = of_it().any(|(index, _)| index > keep);
        if behind && !is_put && of_it().all(|(index, _)| index > keep) {
            push(&mut out, wire, Piece::Made(wire.user_element(note)));
            is_put = true;
        }
        let (dropped, all) = (of_it().filter(|(index, _)| left_out(*index)).count(), of_it().count());
        if dropped == 0 {
            push(&mut out, wire, if body.is_text { text_element(wire, piece) } else { piece.clone() });
        } else if dropped < all {
            let blocks: Vec<usize> =
                of_it().filter(|(index, _)| !left_out(*index)).map(|(_, item)| item.block).collect();
            push(&mut out, wire, Piece::Made(part_of(&piece.value(), &blocks)));
        }
        if behind && !is_put {
            push(&mut out, wire, Piece::Made(wire.user_element(note)));
            is_put = true;
        }
    }
    if !is_put {
        push(&mut out, wire, Piece::Made(wire.user_element(note)));
    }
    Some(body.with(out))
}

/// A text that stood alone, as an element of a list.
fn text_element(wire: WireKind, piece: &Piece) -> Piece {
    Piece::Made(wire.user_element(piece.value().as_str().unwrap_or_default()))
}

/// An element with some of its blocks.
fn part_of(element: &Value, blocks: &[usize]) -> Value {
    let mut element = element.clone();
    if let Some(all) = element["content"].as_array() {
        let kept: Vec<Value> = all
            .iter()
            .enumerate()
            .filter(|(at, _)| blocks.contains(at))
            .map(|(_, one)| one.clone())
            .collect();
        element["content"] = Value::Array(kept);
    }
    element
}

/// Adds an element. Two messages of the user become one where roles have to alternate.
fn push(out: &mut Vec<Piece>, wire: WireKind, piece: Piece) {
    let is_user = |piece: &Piece| piece.value()["role"] == "user";
    if wire.alternates()
        && let Some(last) = out.last()
        && matches!((last, &piece), (Piece::Made(_), _) | (_, Piece::Made(_)))
        && is_user(last)
        && is_user(&piece)
    {
        let (mut joined, second) = (last.value(), piece.value());
        let mut blocks = blocks_of(&joined);
        blocks.extend(blocks_of(&second));
        joined["content"] = Value::Array(blocks);
        out.pop();
        out.push(Piece::Made(joined));
        return;
    }
    out.push(piece);
}

fn blocks_of(message: &Value) -> Vec<Value> {
    match &message["content"] {
        Value::Array(blocks) => blocks.clone(),
        Value::String(text) => vec![json!({ "type": "text", "text": text })],
        _ => Vec::new(),
    }
}
