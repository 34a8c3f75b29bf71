//! An exchange into the graph.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use http::HeaderMap;
use quipu_archive::{ConversationDigest, LiveEntry};
use quipu_dag::Blob;
use quipu_protocol::{Attempt, CallRecord, ChunkId, Entry, Json, Message, Model, StepInfo};
use quipu_store::{Graph, NewChunk, StoreError};
use sha2::{Digest as _, Sha256};

use super::ExchangeRecorder;
use super::known::{Name, PROFILE};
use crate::answer;
use crate::body::RequestBody;
use crate::exchange::Exchange;
use crate::item::{Author, Item, ItemList};
use crate::packed::unpacked;
use crate::placement::{self, SessionOrigin, place, sealed};
use crate::session::{self, Profile};
use crate::wire_kind::WireKind;
use crate::wires::{RequestFacts, blank_answer};

/// A request as it was understood.
pub(super) struct ReadRequest {
    pub(super) body: RequestBody,
    pub(super) items: Vec<Item>,
    pub(super) facts: RequestFacts,
    pub(super) name: Name,
    pub(super) origin: SessionOrigin,
    /// The conversation that it goes on from, where its history is kept at the server.
    pub(super) after: ConversationDigest,
    pub(super) profile: Profile,
    /// Whether the session stands at its end from now on.
    pub(super) is_main: bool,
}

/// A request of a session that its client names.
struct NamedCall {
    name: Name,
    tools: usize,
    body: RequestBody,
}

impl ExchangeRecorder {
    /// Keeps an exchange, now or when it is clear what it is.
    pub(super) async fn keep(&mut self, exchange: Exchange) {
        let mut exchange = exchange;
        if let Some(call) = self.named_call(exchange.wire, &exchange.headers, &exchange.body) {
            let held = self.calls.of(Some(&call.name));
            if call.tools > 0 {
                self.keep_all(held).await;
            } else {
                // In the order in which they came.
                for earlier in held {
                    if let Some(earlier) = self.calls.hold(call.name.clone(), earlier) {
                        self.keep_now(&earlier).await;
                    }
                }
                if !self.calls.has_begun(&call.name) && self.is_first(&call.name).await {
                    match self.calls.hold(call.name, exchange) {
                        None => return,
                        Some(back) => exchange = back,
                    }
                }
            }
        }
        self.keep_now(&exchange).await;
    }

    /// A request is sent: a conversation that begins shows what waits of its session.
    pub(super) async fn begin(&mut self, wire: WireKind, headers: &HeaderMap, body: &[u8]) {
        let Some(call) = self.named_call(wire, headers, body).filter(|call| call.tools > 0) else { return };
        if !self.is_first(&call.name).await {
            return;
        }
        let items = wire.items(&call.body, ConversationDigest::default(), &self.seal());
        self.calls.begin(call.name.clone(), &items);
        let held = self.calls.of(Some(&call.name));
        self.keep_all(held).await;
    }

    /// Keeps what waits of the session of a request.
    pub(super) async fn keep_held_of(&mut self, wire: WireKind, headers: &HeaderMap, body: &[u8]) {
        if self.calls.is_empty() {
            return;
        }
        if let Some(call) = self.named_call(wire, headers, body) {
            let held = self.calls.of(Some(&call.name));
            self.keep_all(held).await;
        }
    }

    pub(super) async fn keep_all(&mut self, exchanges: Vec<Exchange>) {
        for exchange in exchanges {
            self.keep_now(&exchange).await;
        }
    }

    fn named_call(&self, wire: WireKind, headers: &HeaderMap, body: &[u8]) -> Option<NamedCall> {
        let bytes = unpacked(headers, body).unwrap_or(Cow::Borrowed(body));
        let body = RequestBody::parse(wire, &bytes)?;
        let own = wire.session(&body, headers)?;
        let seal = self.seal();
        let session = session::session(Some(&own), &[], &seal);
        let tools = body.value("tools").as_array().map_or(0, Vec::len);
        Some(NamedCall { name: (session::agent(headers, &seal), session), tools, body })
    }

    /// Whether nothing is kept of a session.
    async fn is_first(&mut self, name: &Name) -> bool {
        let Ok(store) = self.store() else { return false };
        self.sessions.get(&*store, name).await.is_ok_and(|known| known.live.base().is_none())
    }

    async fn keep_now(&mut self, exchange: &Exchange) {
        match self.kept(exchange).await {
            Ok(true) => self.counters.kept.fetch_add(1, Ordering::Relaxed),
            Ok(false) => self.counters.unread.fetch_add(1, Ordering::Relaxed),
            Err(why) => {
                self.counters.lost(&*self.options.notify, &why);
                0
            }
        };
    }

    async fn kept(&mut self, exchange: &Exchange) -> Result<bool, String> {
        let bytes = match unpacked(&exchange.headers, &exchange.body) {
            Ok(bytes) => bytes,
            // What was rewritten is not packed any more.
            Err(_) => Cow::Borrowed(&exchange.body[..]),
        };
        let Some(body) = RequestBody::parse(exchange.wire, &bytes) else { return Ok(false) };
        let store = self.store()?;
        for is_second in [false, true] {
            match self.written(&*store, exchange, &body).await {
                Ok(()) => return Ok(true),
                // Another process moved the session: a person confirmed a jump, or a second proxy runs.
                Err(StoreError::Conflict { .. }) if !is_second => self.sessions.forget(),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(false)
    }

    /// Which conversation a request is of, and what it says.
    pub(super) async fn read(
        &mut self,
        store: &dyn Graph,
        wire: WireKind,
        headers: &HeaderMap,
        body: RequestBody,
    ) -> Result<ReadRequest, StoreError> {
        let seal = self.seal();
        let agent = session::agent(headers, &seal);
        let mut after = ConversationDigest::default();
        let mut items = wire.items(&body, after, &seal);
        let mut facts = wire.facts(&body, &items, headers);
        facts.model = session::plain(&facts.model, &seal);
        facts.cwd = seal(&facts.cwd);
        let profile = Profile::of(&facts, &items);
        let found = match &facts.previous {
            Some(previous) => self.sessions.of_answer(store, &agent, previous).await?,
            None => None,
        };
        let upstream = self.upstreams.of(wire);
        let mut origin = SessionOrigin {
            session: session::session(facts.session.as_deref(), &items, &seal),
            parent: None,
            cwd: facts.cwd.clone(),
            provider: upstream.provider.clone(),
            model: facts.model.clone(),
        };
        if let Some((name, digest)) = found {
            after = digest;
            items = wire.items(&body, after, &seal);
            origin.session = name.1.clone();
            return Ok(ReadRequest { body, items, facts, name, origin, after, profile, is_main: true });
        }
        let main = (agent.clone(), origin.session.clone());
        let known = self.sessions.get(store, &main).await?;
        let is_new = known.live.base().is_none();
        let is_beside = match is_new {
            true => self.calls.is_beside(&main, profile, &items),
            false => profile.is_beside(known.profile),
        };
        if let Some(side) = session::named_agent(headers, facts.session.as_deref(), &main.1) {
            origin.parent = Some(main.1);
            origin.session = side.clone();
            let name = (agent, side);
            return Ok(ReadRequest { body, items, facts, name, origin, after, profile, is_main: true });
        }
        if (is_new && !is_beside) || placement::known(&known.live, &items) > 0 {
            let head = known.live.head().and_then(|head| known.live.digest(head));
            let continues = items.iter().any(|item| item.counts && Some(item.digest) == head);
            let is_main = continues || !is_beside;
            return Ok(ReadRequest { body, items, facts, name: main, origin, after, profile, is_main });
        }
        let side = session::side_session(&main.1, &items);
        let side_name = (agent, side.clone());
        let is_there = self.sessions.get(store, &side_name).await?.live.base().is_some();
        let name = if is_beside || is_there {
            origin.parent = Some(main.1);
            origin.session = side;
            side_name
        } else {
            main
        };
        Ok(ReadRequest { body, items, facts, name, origin, after, profile, is_main: true })
    }

    /// One transaction: the messages that are new, the answer, and how it was asked for.
    async fn written(
        &mut self,
        store: &dyn Graph,
        exchange: &Exchange,
        body: &RequestBody,
    ) -> Result<(), StoreError> {
        let read = self.read(store, exchange.wire, &exchange.headers, body.clone()).await?;
        let ReadRequest { items, facts, name, origin, after, profile, is_main, .. } = read;
        let upstream = self.upstreams.of(exchange.wire);
        let model = (self.options.models)(&upstream.provider, &facts.model);
        let model = Model {
            id: facts.model.clone(),
            api: upstream.api.clone(),
            provider: upstream.provider.clone(),
            ..model.map(|model| (*model).clone()).unwrap_or_default()
        };
        let is_local = upstream.is_local;
        let model = Arc::new(model);
        let answer = answer::read(exchange, &model);
        let seal = self.seal();
        let sealer = Arc::clone(&self.options.sealer);
        let blank = blank_answer(&model.api, &model.provider, &model.id);
        let known = self.sessions.get(store, &name).await?;
        let time = exchange.started;
        let mut change = known.live.change();
        let (end, digest) = place(&mut change, &known.live, &origin, (after, &items), &blank, time, &sealer);

        let sha = ChunkId(Sha256::digest(&exchange.body).into());
        let system = Some(seal(&facts.system)).filter(|text| !text.is_empty());
        let system = system.map(|text| Blob::string("system_prompt", &text));
        let status = exchange.status.map(|status| status.as_u16());
        let call = CallRecord {
            api: model.api.clone(),
            provider: model.provider.clone(),
            model: model.id.clone(),
            local: is_local,
            projection: 0,
            head: end,
            system: system.as_ref().map(|blob| blob.id),
            tools: ChunkId(Sha256::digest(&facts.tools_text).into()),
            body: sha,
            body_bytes: exchange.body.len() as u64,
            before_hooks: None,
            headers: std::collections::BTreeMap::new(),
            removed_headers: Vec::new(),
            started: time,
            first_token_ms: exchange.first_ms,
            duration_ms: Some(exchange.duration_ms),
            attempts: vec![Attempt { at: time, error: answer.error, status, credential: None }],
        };
        let mut list = ItemList::after(digest);
        for part in &answer.message.content {
            list.push((0, 0), Author::Assistant, vec![part.clone()], &seal);
        }
        let own = uuid::Uuid::now_v7().to_string();
        let digest = if list.digest() == digest { digest.then("ended", &own) } else { list.digest() };
        let response = answer.message.response_id.clone().filter(|id| !id.is_empty());
        let mut step = StepInfo {
            call: Some(call),
            started: Some(time),
            duration_ms: Some(exchange.duration_ms),
            ..StepInfo::default()
        };
        if is_main {
            step.extra.insert(PROFILE.to_owned(), Json::of(&profile.written()).unwrap_or_default());
        }
        let entry = LiveEntry {
            entry: sealed(Entry::Message(Message::Assistant(answer.message)), &sealer),
            step,
            digest,
            id: Some(response.clone().unwrap_or(own)),
            time: time.saturating_add(i64::try_from(exchange.duration_ms).unwrap_or_default()),
        };
        let node = change.append(end, entry);
        if is_main {
            change.stand_at(node);
        }
        let mut plan = change.finish();
        plan.commit.blobs.extend(system);
        let kept = kept_body(exchange, &sealer);
        if let Some(bytes) = kept.clone() {
            plan.commit.chunks.push(match known.body {
                Some(base) if base != sha => NewChunk::Delta { id: sha, base, bytes },
                Some(_) | None => NewChunk::Full { id: sha, bytes },
            });
        }
        known.live.commit(store, plan).await?;
        if kept.is_some() {
            known.body = Some(sha);
        }
        if is_main {
            known.profile = Some(profile);
            if profile.has_tools() {
                self.calls.is_kept(&name);
            }
        }
        if let Some(response) = response {
            self.sessions.answered(&response, &name, digest);
        }
        Ok(())
    }
}

/// The bytes of a body in which there is no secret; `None` where something in it would have to be sealed.
fn kept_body(exchange: &Exchange, sealer: &quipu_seal::Sealer) -> Option<Arc<[u8]>> {
    let text = std::str::from_utf8(&exchange.body).ok()?;
    let json = Json::parse(text).ok()?;
    (sealer.seal_json(&json) == json).then(|| Arc::from(&exchange.body[..]))
}
