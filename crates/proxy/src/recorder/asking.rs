//! What becomes of a request whose conversation has a jump, or asks for one.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::HeaderMap;
use quipu_archive::{ConversationDigest, LiveEntry, LivePlan};
use quipu_protocol::{Content, Entry, Message, NodeId, StepInfo, UnixMs};
use quipu_store::{Graph, HiddenSnapshot, RefMove, Resolution, Scope, StoreError};
use quipu_transcript::FORGOTTEN;

use super::keeping::ReadRequest;
use super::known::Name;
use super::{Decision, ExchangeRecorder};
use crate::body::RequestBody;
use crate::chains::ViewItems;
use crate::exchange::now;
use crate::item::{Author, ItemList};
use crate::jump::{
    AskedJump, EDITS, Edit, JumpPlan, ProxyCommand, applied, carryover, checked_note, closed, command,
    is_changed, is_forgotten, line_digest, plan_ref,
};
use crate::local_answer::local_answer;
use crate::packed::unpacked;
use crate::placement::place;
use crate::state::{UNREADABLE, confirmation, note_now, short_id};
use crate::wire_kind::WireKind;
use crate::wires::blank_answer;

/// A conversation with some of its jumps.
struct RequestView {
    body: RequestBody,
    items: ViewItems,
}

/// An answer of the proxy's own, not yet in the store.
struct OwnAnswer {
    change: LivePlan,
    question: NodeId,
    answer: NodeId,
    text: String,
    time: UnixMs,
}

/// The provider and the model of the proxy's own answers.
const OWN: &str = "quipu-proxy";

impl ExchangeRecorder {
    /// What becomes of a request.
    pub(super) async fn decide(&mut self, wire: WireKind, headers: &HeaderMap, body: &Bytes) -> Decision {
        let Ok(bytes) = unpacked(headers, body) else { return Decision::Pass };
        let Some(parsed) = RequestBody::parse(wire, &bytes) else { return Decision::Pass };
        let store = match self.store() {
            Ok(store) => store,
            Err(error) => return self.blind(&error),
        };
        for is_second in [false, true] {
            match self.decided(&*store, wire, headers, parsed.clone()).await {
                Ok(decision) => return decision,
                Err(StoreError::Conflict { .. }) if !is_second => self.sessions.forget(),
                Err(error) => {
                    let error = self.failed(&error);
                    return self.blind(&error);
                }
            }
        }
        Decision::Pass
    }

    /// The store cannot be asked. Where no conversation is known to have a jump, all go on.
    fn blind(&self, error: &str) -> Decision {
        if self.sessions.has_jumps() {
            return Decision::Refuse(format!(
                "the store cannot be read, so nobody knows what this conversation leaves out, and nothing was sent: {error}"
            ));
        }
        self.notify(&format!("the store cannot be used: {error}"));
        Decision::Pass
    }

    async fn decided(
        &mut self,
        store: &dyn Graph,
        wire: WireKind,
        headers: &HeaderMap,
        body: RequestBody,
    ) -> Result<Decision, StoreError> {
        // Another process may have asked for a jump, or confirmed one.
        self.sessions.look(store).await?;
        let read = self.read(store, wire, headers, body).await?;
        let plan = self.sessions.plan(store, &read.name).await?;
        let hidden = store.hidden();
        let notes = self.notes(store, &hidden, &read.name, &plan).await?;
        let views = self.views(&read, &plan, &notes);
        let asked = match views.last() {
            // Messages of calls beside a conversation are written by a model.
            Some(last) if read.origin.parent.is_none() => command(&last.items.now),
            Some(_) | None => None,
        };
        if let Some(why) = hidden.problem().filter(|_| views.len() > 1 || asked.is_some()) {
            let text = format!("{UNREADABLE}, so nothing was sent: {why}");
            self.notify(&text);
            return Ok(Decision::Refuse(text));
        }
        // Without history there is nothing to go back in: such calls stand beside a conversation.
        match asked {
            Some((first, ProxyCommand::Tobe { target, note })) if first > 0 => {
                return self.ask(store, &read, plan, &views, (&target, &note)).await;
            }
            Some((first, ProxyCommand::Confirm)) if first > 0 => {
                return self.confirm(store, &read, plan, &views).await;
            }
            Some(_) | None => {}
        }
        if let (Some(last), Some(edit)) = (views.last(), plan.edits.get(views.len() - 1)) {
            // What was to be left out cannot be found.
            let session = &read.name.1;
            if is_changed(&last.items, edit, &self.seal()) {
                let text = format!(
                    "the client changed messages before the jump to {} in the session {session}, so nobody knows what to leave \
                     out, and nothing was sent. Release the jump, or begin a new conversation",
                    edit.target.short()
                );
                self.notify(&text);
                return Ok(Decision::Refuse(text));
            }
            self.notify(&format!(
                "{session}: the jump to {} does not concern this request",
                edit.target.short()
            ));
        }
        match (&views[..], plan.edits.get(views.len().wrapping_sub(2))) {
            ([_, .., last], Some(edit)) => Ok(self.rewritten(&read, last, edit.target)),
            _ => Ok(Decision::Pass),
        }
    }

    fn rewritten(&self, read: &ReadRequest, view: &RequestView, target: NodeId) -> Decision {
        self.counters.rewritten.fetch_add(1, Ordering::Relaxed);
        let left_out = read.body.elements.len().saturating_sub(view.body.elements.len());
        self.notify(&format!(
            "{}: request sent as of {}, without {left_out} of its {} messages",
            read.name.1,
            target.short(),
            read.body.elements.len()
        ));
        Decision::Send { bytes: view.body.bytes().into(), target: target.to_string() }
    }

    /// What stands in the place of what each jump leaves out now.
    async fn notes(
        &mut self,
        store: &dyn Graph,
        hidden: &HiddenSnapshot,
        name: &Name,
        plan: &JumpPlan,
    ) -> Result<Vec<String>, StoreError> {
        if hidden.is_empty() || plan.edits.is_empty() {
            return Ok(plan.edits.iter().map(|edit| edit.carryover.clone()).collect());
        }
        let live = &self.sessions.get(store, name).await?.live;
        let note = |edit: &Edit| match is_forgotten(hidden, live, edit) {
            true => carryover(FORGOTTEN),
            false => edit.carryover.clone(),
        };
        Ok(plan.edits.iter().map(note).collect())
    }

    /// The request as it came, then with each jump that concerns it.
    fn views(&self, read: &ReadRequest, plan: &JumpPlan, notes: &[String]) -> Vec<RequestView> {
        let items = ViewItems::of(read.items.clone());
        let mut views = vec![RequestView { body: read.body.clone(), items }];
        for (edit, note) in plan.edits.iter().zip(notes) {
            let Some(next) = views.last().and_then(|view| self.next(view, edit, note)) else { break };
            views.push(next);
        }
        views
    }

    fn next(&self, view: &RequestView, edit: &Edit, note: &str) -> Option<RequestView> {
        let body = applied(&view.body, &view.items, edit, note)?;
        let keep = view.items.position(&edit.keep)?;
        let now = body.wire.items(&body, ConversationDigest::default(), &self.seal());
        // Later jumps and nodes are known by what was recorded.
        let items = view.items.then(now, keep, (note, &edit.carryover), &self.seal());
        Some(RequestView { body, items })
    }

    /// Refuses what a line asks for: the answer is kept as the proxy's own, not as one of the model.
    async fn refused(
        &mut self,
        store: &dyn Graph,
        read: &ReadRequest,
        views: &[RequestView],
        why: &str,
    ) -> Result<Decision, StoreError> {
        let text = format!("quipu: {}. Nothing is changed.", why.trim_end_matches('.'));
        if read.facts.previous.is_none() {
            let answered = self.own_answer(store, read, views, |_| text.clone()).await?;
            self.sessions.get(store, &read.name).await?.live.commit(store, answered.change).await?;
        }
        Ok(Self::says(read, &text))
    }

    /// The question, and an answer of the proxy's own to it, as a change of the session, which then stands there. `text` is
    /// what is said to the question's node.
    async fn own_answer(
        &mut self,
        store: &dyn Graph,
        read: &ReadRequest,
        views: &[RequestView],
        text: impl FnOnce(NodeId) -> String,
    ) -> Result<OwnAnswer, StoreError> {
        let blank = blank_answer(OWN, OWN, OWN);
        let sealer = self.options.sealer.clone();
        let seal = self.seal();
        let known = self.sessions.get(store, &read.name).await?;
        let time = now();
        let mut change = known.live.change();
        let last = views.last().map_or(&read.items[..], |view| &view.items.now[..]);
        let after = ConversationDigest::default();
        let (question, digest) =
            place(&mut change, &known.live, &read.origin, (after, last), &blank, time, &sealer);
        let text = text(question);
        let mut list = ItemList::after(digest);
        list.push((0, 0), Author::Assistant, vec![Content::text(text.clone())], &seal);
        let message = quipu_protocol::AssistantMessage {
            content: vec![Content::text(text.clone())],
            timestamp: time,
            ..blank
        };
        let entry = LiveEntry {
            entry: Entry::Message(Message::Assistant(message)),
            step: StepInfo::default(),
            digest: list.digest(),
            id: Some(uuid::Uuid::now_v7().to_string()),
            time,
        };
        let answer = change.append(question, entry);
        change.stand_at(answer);
        Ok(OwnAnswer { change: change.finish(), question, answer, text, time })
    }

    fn says(read: &ReadRequest, text: &str) -> Decision {
        let (kind, text) = local_answer(read.body.wire, read.facts.is_stream, &read.facts.model, text);
        Decision::Answer { kind, text }
    }

    /// A jump is asked for.
    async fn ask(
        &mut self,
        store: &dyn Graph,
        read: &ReadRequest,
        plan: JumpPlan,
        views: &[RequestView],
        (target, note): (&str, &str),
    ) -> Result<Decision, StoreError> {
        if read.facts.previous.is_some() {
            self.notify("a jump was asked for in a conversation whose history is kept at the server, which is not supported");
            return Ok(Decision::Pass);
        }
        let note = match checked_note(note) {
            Ok(note) => self.options.sealer.seal(&note).into_owned(),
            Err(error) => return self.refused(store, read, views, &error.to_string()).await,
        };
        let (level, at, node) = match self.find(store, read, views, target).await? {
            Ok(found) => found,
            Err(text) => return self.refused(store, read, views, &text).await,
        };
        if level >= EDITS {
            let text = format!("this conversation has {EDITS} jumps already; begin a new one");
            return self.refused(store, read, views, &text).await;
        }
        if let Some(Some(erasure)) = store.erasures(&[node]).await?.first() {
            let text = format!("{} was erased ({})", node.short(), erasure.why);
            return self.refused(store, read, views, &text).await;
        }
        let view = &views[level];
        let items = &view.items.now;
        let Some(keep) = closed(items, at) else {
            let text = format!(
                "{} calls a tool whose result is not here; name a node before or after it",
                node.short()
            );
            return self.refused(store, read, views, &text).await;
        };
        let messages = items[keep + 1..].iter().filter(|item| item.counts).count().saturating_sub(1);
        let question = items.last().map(|item| item.digest).unwrap_or_default();
        let counting = items.iter().rev().find(|item| item.counts);
        let asked_line = counting.map(|item| line_digest(item, &self.seal())).unwrap_or_default();
        let is_hidden = store.hidden().hides(&node);
        let said = items[at].content.iter().filter(|_| !is_hidden);
        let line: String = said.filter_map(Content::as_text).collect::<Vec<_>>().join(" ");
        let line: String = line.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(60).collect();

        // The question, and the answer to it, are the end of the branch that is left.
        let command = self.options.confirm_command.clone();
        let shown =
            if line.is_empty() { node.short() } else { format!("{} (\"{}\")", node.short(), line.trim()) };
        let says = |question: NodeId| {
            let id = short_id(question);
            format!(
                "quipu: back to {shown}? Later requests of this conversation would leave out {messages} piece(s) after it. \
                 Write the line `quipu: confirm`, or run `{command} {id}`. Until then nothing is changed; files stay as they are."
            )
        };
        let answered = self.own_answer(store, read, views, says).await?;
        let OwnAnswer { change: mut next, question: end, answer: departure, text, time } = answered;
        let id = short_id(end);
        let keep = items[keep].digest.hex();
        let before = plan.edits[..level.min(plan.edits.len())].to_vec();
        let question = question.hex();
        let asked = AskedJump {
            id,
            before,
            keep,
            question,
            line: asked_line,
            target: node,
            departure,
            note,
            messages,
            at: time,
        };
        let plan = JumpPlan { asked: Some(asked), ..plan };
        let (agent, session) = &read.name;
        next.commit.ops.push(plan.put(agent, session));
        next.commit.moves.push(RefMove::publish(plan_ref(agent, session), departure, "ask"));
        self.sessions.get(store, &read.name).await?.live.commit(store, next).await?;
        self.sessions.has_jump(&read.name);
        self.notify(&format!("{session}: a jump to {} is asked for", node.short()));
        Ok(Self::says(read, &text))
    }

    /// The level of jumps at which a conversation has a node, where it stands there, and the node.
    async fn find(
        &mut self,
        store: &dyn Graph,
        read: &ReadRequest,
        views: &[RequestView],
        target: &str,
    ) -> Result<Result<(usize, usize, NodeId), String>, StoreError> {
        let candidates = match store.resolve(&target.into(), &Scope::default()).await? {
            Resolution::One(candidate) => vec![candidate.node],
            Resolution::Many(candidates) => candidates.into_iter().map(|candidate| candidate.node).collect(),
            Resolution::None => Vec::new(),
        };
        let shown: String = target.chars().filter(|letter| !letter.is_control()).take(80).collect();
        if candidates.is_empty() {
            return Ok(Err(format!("no node is known as `{shown}`")));
        }
        let known = self.sessions.get(store, &read.name).await?;
        for (level, view) in views.iter().enumerate().rev() {
            let items = &view.items.now;
            let element = items.last().map(|item| item.element);
            let places =
                items.iter().enumerate().filter(|(_, item)| item.counts && Some(item.element) != element);
            let found: Vec<(usize, NodeId)> = places
                .flat_map(|(at, _)| view.items.digests(at).map(move |digest| (at, digest)))
                .filter_map(|(at, digest)| known.live.find(digest).map(|node| (at, node)))
                .filter(|(_, node)| candidates.contains(node))
                .collect();
            match &found[..] {
                [] => {}
                [(at, node)] => return Ok(Ok((level, *at, *node))),
                _ => {
                    return Ok(Err(format!(
                        "`{shown}` may be several nodes of this conversation; say more of it"
                    )));
                }
            }
        }
        Ok(Err(format!("`{shown}` is not in this conversation")))
    }

    /// A jump is confirmed in the conversation.
    async fn confirm(
        &mut self,
        store: &dyn Graph,
        read: &ReadRequest,
        plan: JumpPlan,
        views: &[RequestView],
    ) -> Result<Decision, StoreError> {
        let Some(asked) = plan.asked.clone() else {
            return self.refused(store, read, views, "no jump is asked for in this conversation").await;
        };
        let level = asked.before.len();
        let view = views.get(level).filter(|_| plan.edits.get(..level) == Some(&asked.before[..]));
        let view = view.filter(|view| {
            view.items.position(&asked.question).is_some() && view.items.position(&asked.keep).is_some()
        });
        let Some(view) = view else {
            let text = "the jump was asked for in another branch of this conversation";
            return self.refused(store, read, views, text).await;
        };
        let note = note_now(store, &asked).await?;
        let cut = view.items.now.last().map(|item| item.digest.hex()).unwrap_or_default();
        let edit = Edit {
            keep: asked.keep.clone(),
            cut,
            with_answer: false,
            carryover: carryover(&note),
            question: asked.question.clone(),
            line: asked.line.clone(),
            target: asked.target,
            at: now(),
        };
        let asked = AskedJump { note, ..asked };
        let Some(next) = self.next(view, &edit, &edit.carryover) else {
            return self.refused(store, read, views, "the conversation changed meanwhile").await;
        };
        let known = self.sessions.get(store, &read.name).await?;
        confirmation(store, &mut known.live, &asked, edit).await?;
        self.notify(&format!("{}: back to {}", read.name.1, asked.target.short()));
        Ok(self.rewritten(read, &next, asked.target))
    }
}
