//! Bodies that grow. A request begins with nearly all of the one before it, so its bytes are made and hashed from
//! where the two part.

use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use quipu_protocol::{ChunkId, Message, Model, ModelError, ModelRequest, ToolSpec};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::prepare::no_form;

/// The bytes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// What is sent.
    pub bytes: Bytes,
    /// The SHA-256 of the bytes.
    pub id: ChunkId,
    /// How much of it is that of the body before, where that is known.
    pub shared: Option<SharedPrefix>,
}

/// The bytes that a body shares with the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedPrefix {
    /// The body that was made before.
    pub with: ChunkId,
    /// Bytes that both begin with.
    pub bytes: u64,
}

impl Body {
    /// A body that was made from nothing.
    pub fn of(bytes: Bytes) -> Self {
        Self { id: ChunkId(Sha256::digest(&bytes).into()), bytes, shared: None }
    }
}

/// What the making of a body leaves behind, so that the next one costs what is new in it. One for a conversation; it
/// changes how long it takes to make a body and never what it is.
#[derive(Default)]
pub struct Memory(Option<PreviousBody>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memory").field("messages", &self.0.as_ref().map(|past| past.messages.len())).finish()
    }
}

/// What stands before the messages is made of.
struct Head {
    model: Arc<Model>,
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    /// All else, as the wire writes it down.
    rest: String,
}

impl Head {
    fn is_that_of(&self, request: &ModelRequest, rest: &str) -> bool {
        Arc::ptr_eq(&self.model, &request.model)
            && Arc::ptr_eq(&self.system, &request.system)
            && Arc::ptr_eq(&self.tools, &request.tools)
            && self.rest == rest
    }
}

/// Makes the next body with a memory. A debug build makes it from nothing, too: the memory must not change a byte.
pub(crate) fn make_next(
    memory: &mut Memory,
    make: impl Fn(&mut Memory) -> Result<Body, ModelError>,
) -> Result<Body, ModelError> {
    let body = make(memory)?;
    let anew = || make(&mut Memory::default()).map(|body| body.bytes);
    debug_assert_eq!(Ok(&body.bytes), anew().as_ref(), "a memory changes no byte");
    debug_assert_eq!(body.id, Body::of(body.bytes.clone()).id, "nor its hash");
    Ok(body)
}

/// The part of a body that every longer conversation also begins with.
struct StablePrefix {
    /// Bytes before it.
    at: usize,
    /// Messages of the request before it.
    taken: usize,
    /// Whether one of them was written.
    wrote: bool,
    hash: Sha256,
}

struct PreviousBody {
    head: Head,
    stable: StablePrefix,
    /// The messages before the place.
    messages: Vec<Arc<Message>>,
    /// What the wire remembers there.
    state: Box<dyn Any + Send>,
    /// The whole body.
    body: Bytes,
    id: ChunkId,
}

/// Writes a request body, reusing the stable prefix of the one before.
pub(crate) struct BodyBuilder<S> {
    head: Head,
    stable: StablePrefix,
    messages: Vec<Arc<Message>>,
    /// What the wire remembers where the writing goes on.
    state: S,
    out: BytesMut,
    /// One message: written here first, since each quote and comma would be a copy of its own into the body.
    message: Vec<u8>,
    wrote: bool,
    /// The body before, and what came behind the place in it.
    before: Option<(ChunkId, usize, Vec<u8>)>,
    /// What ends the body behind the object that holds the messages.
    closing: Cow<'static, str>,
}

impl Memory {
    /// Goes on with the body before where the request allows it; else begins with what `write` says of everything
    /// before the messages: an object, of which the closing brace is left out. `rest` is what this depends on beside
    /// the model, the system prompt and the tools; `member` is the name of the list of messages.
    pub(crate) fn go_on<S: Default + 'static>(
        &mut self,
        request: &ModelRequest,
        rest: String,
        member: &str,
        write: impl FnOnce(&mut Vec<u8>) -> serde_json::Result<()>,
    ) -> Result<BodyBuilder<S>, ModelError> {
        if let Some(past) = self.0.take()
            && past.head.is_that_of(request, &rest)
            && request.messages.len() >= past.messages.len()
            && past.messages.iter().zip(&*request.messages).all(|(old, new)| Arc::ptr_eq(old, new))
            && let Ok(state) = past.state.downcast::<S>()
        {
            let PreviousBody { head, stable, messages, body, id, .. } = past;
            let tail = body[stable.at..].to_vec();
            // Nobody else holds it by now, so that it grows where it is.
            let mut out = body.try_into_mut().unwrap_or_else(|body| BytesMut::from(&body[..stable.at]));
            out.truncate(stable.at);
            let before = Some((id, stable.at, tail));
            let (wrote, message) = (stable.wrote, Vec::new());
            let (state, closing) = (*state, Cow::Borrowed(""));
            return Ok(BodyBuilder { wrote, state, head, stable, messages, out, message, before, closing });
        }
        let mut out = Vec::new();
        write(&mut out).map_err(|error| no_form(&error))?;
        out.pop();
        if out.last() != Some(&b'{') {
            out.push(b',');
        }
        out.extend_from_slice(format!(r#""{member}":["#).as_bytes());
        let head = Head {
            model: request.model.clone(),
            system: request.system.clone(),
            tools: request.tools.clone(),
            rest,
        };
        let hash = Sha256::new_with_prefix(&out);
        let stable = StablePrefix { at: out.len(), taken: 0, wrote: false, hash };
        let state = S::default();
        let out = BytesMut::from(&out[..]);
        let (messages, message) = (Vec::new(), Vec::new());
        let (wrote, before, closing) = (false, None, Cow::Borrowed(""));
        Ok(BodyBuilder { head, stable, messages, state, out, message, wrote, before, closing })
    }
}

impl<S: Default + Send + 'static> BodyBuilder<S> {
    /// What the wire remembers where the writing goes on.
    pub(crate) fn take_state(&mut self) -> S {
        std::mem::take(&mut self.state)
    }

    /// The object that holds the messages is within others, which end with this.
    pub(crate) fn close_with(&mut self, closing: impl Into<Cow<'static, str>>) {
        self.closing = closing.into();
    }

    /// Messages of the request that are written already.
    pub(crate) fn taken(&self) -> usize {
        self.stable.taken
    }

    /// Whether nothing was written yet.
    pub(crate) fn begins(&self) -> bool {
        self.before.is_none()
    }

    /// Writes the next message.
    pub(crate) fn write(&mut self, message: &impl Serialize) -> Result<(), ModelError> {
        if std::mem::replace(&mut self.wrote, true) {
            self.out.put_u8(b',');
        }
        self.message.clear();
        serde_json::to_writer(&mut self.message, message).map_err(|error| no_form(&error))?;
        self.out.extend_from_slice(&self.message);
        Ok(())
    }

    /// What was written so far, for the messages up to `last`, stands in every longer conversation.
    pub(crate) fn settle(&mut self, request: &ModelRequest, last: Option<usize>) {
        let taken = last.map_or(self.stable.taken, |last| self.stable.taken.max(last + 1));
        self.messages.extend_from_slice(&request.messages[self.stable.taken..taken]);
        let Self { stable, out, wrote, .. } = self;
        stable.hash.update(&out[stable.at..]);
        (stable.at, stable.taken, stable.wrote) = (out.len(), taken, *wrote);
    }

    /// The whole body: what was written, and the members of `last` behind the messages. `state` is what the wire
    /// remembers where it said last that what was written is settled; without it the next body begins anew.
    pub(crate) fn finish(
        mut self,
        memory: &mut Memory,
        state: Option<S>,
        last: &impl Serialize,
    ) -> Result<Body, ModelError> {
        let last = serde_json::to_vec(last).map_err(|error| no_form(&error))?;
        self.out.put_slice(if last == b"{}" { b"]" } else { b"]," });
        self.out.put_slice(&last[1..]);
        self.out.put_slice(self.closing.as_bytes());
        let Self { head, stable, messages, out, before, .. } = self;
        let bytes = out.freeze();
        let mut hash = stable.hash.clone();
        hash.update(&bytes[stable.at..]);
        let id = ChunkId(hash.finalize().into());
        let shared = before.map(|(with, at, tail)| {
            let alike = tail.iter().zip(&bytes[at..]).take_while(|(old, new)| old == new).count();
            SharedPrefix { with, bytes: (at + alike) as u64 }
        });
        memory.0 = state.map(|state| PreviousBody {
            head,
            stable,
            messages,
            state: Box::new(state),
            body: bytes.clone(),
            id,
        });
        Ok(Body { bytes, id, shared })
    }
}
