//! The bodies of a session's requests as the store keeps them: each as what it adds to one before it.

use std::sync::Arc;

use quipu_protocol::{ChunkId, Json, ModelError, ModelRequest, ToolSpec};
use quipu_providers::{Body, Memory, Provider, SharedPrefix};
use quipu_store::NewChunk;
use sha2::{Digest as _, Sha256};

/// Every so many bodies one stands on one that is further back, every so many of those again, and so on. Reading a
/// body goes through few others then, and none needs to be kept whole.
const STEP: u64 = 8;

/// What making and keeping the next body needs.
#[derive(Default)]
pub(crate) struct Bodies {
    memory: Memory,
    /// The body that was kept last.
    last: Option<ChunkId>,
    /// Bodies of which each begins with what is shared of the one before, as far as one to come can stand on them.
    chain: Vec<Link>,
    tools: Option<(Arc<[ToolSpec]>, ChunkId)>,
}

struct Link {
    id: ChunkId,
    number: u64,
    /// Bytes that all later ones begin with, too.
    shared: u64,
}

impl Bodies {
    /// Bodies that follow `last`.
    pub(crate) fn after(last: Option<ChunkId>) -> Self {
        Self { last, ..Self::default() }
    }

    /// The body of a request.
    pub(crate) fn make(
        &mut self,
        provider: &dyn Provider,
        request: &ModelRequest,
    ) -> Result<Body, ModelError> {
        provider.encode_next(request, &mut self.memory)
    }

    /// Lets go of what only makes the next body faster.
    pub(crate) fn rest(&mut self) {
        self.memory = Memory::default();
    }

    /// Another provider writes the bodies from here on.
    pub(crate) fn written_otherwise(&mut self) {
        self.memory = Memory::default();
    }

    /// The SHA-256 of a request's tools.
    pub(crate) fn tools(&mut self, tools: &Arc<[ToolSpec]>) -> ChunkId {
        match &self.tools {
            Some((known, id)) if Arc::ptr_eq(known, tools) => *id,
            _ => {
                let id = ChunkId(Sha256::digest(Json::of(&**tools).unwrap_or_default().get()).into());
                self.tools = Some((tools.clone(), id));
                id
            }
        }
    }

    /// How a body is kept.
    pub(crate) fn chunk(&self, body: &Body) -> NewChunk {
        let id = body.id;
        if let Some((next, shared)) = self.next(body) {
            let back = (0..).map(|rank| STEP.pow(rank)).take_while(|back| next.is_multiple_of(*back)).last();
            let base = next - back.unwrap_or(1);
            if let Some(link) = self.chain.iter().find(|link| link.number == base) {
                let prefix = link.shared.min(shared);
                return NewChunk::Grown { id, base: link.id, prefix, bytes: body.bytes.clone() };
            }
        }
        let bytes = Arc::from(&body.bytes[..]);
        match self.last {
            Some(base) if base != id => NewChunk::Delta { id, base, bytes },
            Some(_) | None => NewChunk::Full { id, bytes },
        }
    }

    /// The body is in the store.
    pub(crate) fn kept(&mut self, body: &Body) {
        let number = match self.next(body) {
            Some((number, shared)) => {
                self.chain.iter_mut().for_each(|link| link.shared = link.shared.min(shared));
                let needed = |old: u64| {
                    (1..)
                        .map(|rank| STEP.pow(rank))
                        .take_while(|step| *step <= number.max(1) * STEP)
                        .any(|step| old == number - number % step)
                };
                self.chain.retain(|link| needed(link.number));
                number
            }
            None => {
                self.chain.clear();
                0
            }
        };
        self.chain.push(Link { id: body.id, number, shared: u64::MAX });
        self.last = Some(body.id);
    }

    /// The number of a body that continues from the last one of the chain, and what it shares with that.
    fn next(&self, body: &Body) -> Option<(u64, u64)> {
        let (last, SharedPrefix { with, bytes }) = self.chain.last().zip(body.shared)?;
        (last.id == with).then_some((last.number + 1, bytes))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    /// Makes a body of `turns` pieces and a tail, as requests have it.
    fn body(turns: usize, before: Option<&Body>) -> Body {
        let mut bytes = b"head".repeat(50);
        for turn in 0..turns {
            bytes.extend_from_slice(format!("<piece {turn}>").repeat(3).as_bytes());
        }
        bytes.extend_from_slice(b"<end>");
        let mut body = Body::of(Bytes::from(bytes));
        body.shared = before.map(|before| {
            let alike = before.bytes.iter().zip(&body.bytes).take_while(|(a, b)| a == b).count();
            SharedPrefix { with: before.id, bytes: alike as u64 }
        });
        body
    }

    #[test]
    fn body_delta_uses_similar_base_and_short_chain() {
        let mut bodies = Bodies::default();
        let mut kept: std::collections::HashMap<ChunkId, (Bytes, usize)> = std::collections::HashMap::new();
        let mut before: Option<Body> = None;
        for turns in 0..700 {
            let body = body(turns, before.as_ref());
            let depth = match bodies.chunk(&body) {
                NewChunk::Full { .. } | NewChunk::Plain { .. } => 0,
                NewChunk::Grown { id, base, prefix, bytes } => {
                    assert_eq!((id, &bytes), (body.id, &body.bytes));
                    let (base, depth) = &kept[&base];
                    let prefix = usize::try_from(prefix).unwrap();
                    assert_eq!(base[..prefix], bytes[..prefix]);
                    assert!(prefix + 5 >= base.len(), "only the end of the base is lost");
                    depth + 1
                }
                NewChunk::Delta { .. } => panic!("turn {turns} goes on from the one before"),
            };
            assert!(depth <= 7 * 4, "turn {turns} stands on {depth}");
            bodies.kept(&body);
            assert!(bodies.chain.len() <= 5, "{}", bodies.chain.len());
            kept.insert(body.id, (body.bytes.clone(), depth));
            before = Some(body);
        }
        // A body that does not continue is compared with the last one, and so is what follows one that was not kept.
        let lost = body(3, None);
        assert!(
            matches!(bodies.chunk(&lost), NewChunk::Delta { base, .. } if Some(base) == before.map(|body| body.id))
        );
        assert!(matches!(bodies.chunk(&body(4, Some(&lost))), NewChunk::Delta { .. }));
    }
}
