//! What was offered to a chat, what it acknowledged, and what is offered again.

use quipu_protocol::UnixMs;
use serde::{Deserialize, Serialize};

use crate::block::{Block, ReplyKey};
use crate::media::NamedFile;
use crate::offer::Offer;
use crate::sink::{Acknowledgement, SinkError};

/// The pause after the first failure, in milliseconds; it doubles with each.
const PAUSE_FIRST: i64 = 1_000;
const PAUSE_MOST: i64 = 60_000;

/// How far a part has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PartState {
    /// It was never acknowledged.
    #[serde(rename_all = "camelCase")]
    Waiting {
        /// How often it was offered.
        attempts: u32,
        /// When the last offer failed.
        since: UnixMs,
        /// Milliseconds after that before which it is not offered again.
        pause_ms: i64,
    },
    /// The chat has it.
    Acknowledged {
        /// The message as the chat names it.
        message: Option<String>,
    },
    /// The chat will never take it.
    Refused {
        /// What the chat says.
        reason: String,
    },
}

/// One message of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// What it says; none once the chat has it.
    pub block: Option<Block>,
    /// How far it has come.
    pub state: PartState,
}

/// One reply on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// Names the reply.
    pub key: ReplyKey,
    /// Messages at its beginning that were acknowledged or refused, and of which nothing is kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub settled: u32,
    /// Its messages behind those, in order.
    pub parts: Vec<Part>,
    /// Bytes of visible text that the parts have.
    pub end: usize,
    /// [`Block::digest`] of them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// [`Block::media_end`] of them.
    pub media: usize,
    /// [`Block::files`] of all parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NamedFile>,
    /// No part will be added.
    pub closed: bool,
    /// The message of the chat that shows the preview.
    pub preview: Option<String>,
}

impl Delivery {
    /// Whether each part was acknowledged or refused, and no part will be added.
    pub fn is_settled(&self) -> bool {
        self.closed && self.waiting().is_none()
    }

    /// Whether a part is to be offered.
    pub fn is_waiting(&self) -> bool {
        self.waiting().is_some()
    }

    /// How many messages it has so far.
    pub fn part_count(&self) -> u32 {
        self.settled.saturating_add(u32::try_from(self.parts.len()).unwrap_or(u32::MAX))
    }

    /// Forgets what was acknowledged or refused at its beginning: what grows for long does not grow in the store.
    pub fn settle(&mut self) {
        self.settle_some(u32::MAX);
    }

    fn settle_some(&mut self, parts: u32) {
        let most = usize::try_from(parts.saturating_sub(self.settled)).unwrap_or(usize::MAX);
        let settled = self.waiting().unwrap_or(self.parts.len()).min(most);
        self.parts.drain(..settled);
        self.settled = self.settled.saturating_add(u32::try_from(settled).unwrap_or(u32::MAX));
    }

    fn waiting(&self) -> Option<usize> {
        self.parts.iter().position(|part| matches!(part.state, PartState::Waiting { .. }))
    }
}

/// How much of a reply an outbox has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Parts.
    pub parts: u32,
    /// Bytes of visible text that they have.
    pub end: usize,
    /// [`Block::digest`] of them; empty where it is sure that the same text comes again.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
    /// [`Block::media_end`] of them.
    pub media: usize,
    /// [`Block::files`] of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<NamedFile>,
}

/// A part that cannot be recorded or found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// Parts come one after the other.
    #[error("part {part} of reply {key} does not follow part {last}; record the parts in order", last = i64::from(*expected) - 1)]
    Gap {
        /// The reply.
        key: ReplyKey,
        /// The part that came.
        part: u32,
        /// The part that had to come.
        expected: u32,
    },
    /// The reply has ended.
    #[error("reply {key} is closed; part {part} cannot be added, use another key")]
    Closed {
        /// The reply.
        key: ReplyKey,
        /// The part that came.
        part: u32,
    },
    /// No such part.
    #[error("reply {key} has no part {part}")]
    Unknown {
        /// The reply.
        key: ReplyKey,
        /// The part.
        part: u32,
    },
}

/// The replies for one chat, in order.
///
/// A part is recorded, and the outbox stored, before it is offered. After a crash, the stored outbox offers again what was not
/// acknowledged, under the same key and part; the sink that has it takes it once. Parts are offered one at a time, so their order
/// in the chat is theirs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outbox {
    replies: Vec<Delivery>,
    /// An offer is under way; a process that starts anew has none.
    #[serde(skip)]
    in_flight: Option<(ReplyKey, u32)>,
}

impl Outbox {
    /// Nothing to deliver.
    pub fn new() -> Self {
        Self::default()
    }

    /// The outbox of replies that were stored, in order.
    pub fn restore(replies: Vec<Delivery>) -> Self {
        Self { replies, in_flight: None }
    }

    /// Adds a whole reply behind those that are there. One of a key that is there already stays as it is, and false is returned.
    pub fn add(&mut self, delivery: Delivery) -> bool {
        let is_new = self.reply(&delivery.key).is_none();
        if is_new {
            self.replies.push(delivery);
        }
        is_new
    }

    /// The replies that are not forgotten, in order.
    pub fn replies(&self) -> &[Delivery] {
        &self.replies
    }

    /// The reply of this key.
    pub fn reply(&self, key: &ReplyKey) -> Option<&Delivery> {
        self.replies.iter().find(|reply| reply.key == *key)
    }

    /// Adds a part. A part that is there already stays as it is, and false is returned: a run that is repeated after a crash makes
    /// the same parts again.
    pub fn record(&mut self, key: &ReplyKey, part: u32, mut block: Block) -> Result<bool, DeliveryError> {
        let reply = self.entry(key);
        let expected = reply.part_count();
        if part < expected {
            return Ok(false);
        }
        if part > expected {
            return Err(DeliveryError::Gap { key: key.clone(), part, expected });
        }
        if reply.closed {
            return Err(DeliveryError::Closed { key: key.clone(), part });
        }
        if block.digest.is_empty() {
            reply.end = reply.end.max(block.end);
            reply.media = reply.media.max(block.media_end);
        } else {
            // Less than before where the message was begun anew.
            reply.end = block.end;
            reply.media = block.media_end;
            reply.digest.clone_from(&block.digest);
        }
        reply.files.append(&mut block.files);
        reply.parts.push(Part {
            block: Some(block),
            state: PartState::Waiting { attempts: 0, since: 0, pause_ms: 0 },
        });
        Ok(true)
    }

    /// The reply has all its parts.
    pub fn close(&mut self, key: &ReplyKey) {
        self.entry(key).closed = true;
    }

    /// The next message to offer, when none is under way and its pause is over.
    pub fn next(&mut self, at: UnixMs) -> Option<Offer> {
        if self.in_flight.is_some() || self.deadline(at)? > at {
            return None;
        }
        let (reply, index) = self.first_waiting()?;
        let delivery = self.replies.get_mut(reply)?;
        let part_number = delivery.settled.checked_add(u32::try_from(index).ok()?)?;
        let replaces = delivery.preview.clone().filter(|_| part_number == 0);
        let part = delivery.parts.get_mut(index)?;
        let PartState::Waiting { attempts, pause_ms, .. } = &mut part.state else { return None };
        *attempts = attempts.saturating_add(1);
        *pause_ms = 0;
        let offer = Offer {
            key: delivery.key.clone(),
            part: part_number,
            block: part.block.clone()?,
            attempt: *attempts,
            preview: false,
            replaces,
        };
        self.in_flight = Some((offer.key.clone(), part_number));
        Some(offer)
    }

    /// When the next message can be offered; none when one is under way or nothing waits. A clock that went back ends a
    /// pause.
    pub fn deadline(&self, at: UnixMs) -> Option<UnixMs> {
        if self.in_flight.is_some() {
            return None;
        }
        let (reply, index) = self.first_waiting()?;
        match self.replies.get(reply)?.parts.get(index)?.state {
            PartState::Waiting { since, pause_ms, .. } if since <= at => {
                Some(since.saturating_add(pause_ms).max(at))
            }
            PartState::Waiting { .. } => Some(at),
            _ => None,
        }
    }

    /// The chat has this part. An acknowledgement can come late and more than once.
    pub fn acknowledge(
        &mut self,
        key: &ReplyKey,
        part: u32,
        acknowledgement: Acknowledgement,
    ) -> Result<(), DeliveryError> {
        self.land(key, part);
        let Some(entry) = self.part(key, part)? else { return Ok(()) };
        if !matches!(entry.state, PartState::Acknowledged { .. }) {
            entry.state = PartState::Acknowledged { message: acknowledgement.message };
            entry.block = None;
        }
        Ok(())
    }

    /// The offer of this part ended without an acknowledgement.
    pub fn fail(
        &mut self,
        key: &ReplyKey,
        part: u32,
        error: &SinkError,
        at: UnixMs,
    ) -> Result<(), DeliveryError> {
        self.land(key, part);
        if let SinkError::NotEditable { .. } = error
            && let Some(reply) = self.replies.iter_mut().find(|reply| reply.key == *key)
        {
            reply.preview = None;
        }
        let Some(entry) = self.part(key, part)? else { return Ok(()) };
        let PartState::Waiting { attempts, since, pause_ms } = &mut entry.state else { return Ok(()) };
        *since = at;
        match error {
            SinkError::Unavailable { retry_after, .. } => {
                let asked = retry_after.map_or(0, |wait| i64::try_from(wait.as_millis()).unwrap_or(i64::MAX));
                *pause_ms = asked.clamp(pause(*attempts), 10 * PAUSE_MOST);
            }
            SinkError::Refused { reason } => {
                entry.state = PartState::Refused { reason: reason.clone() };
            }
            SinkError::NotEditable { .. } => *pause_ms = 0,
        }
        Ok(())
    }

    /// A preview of the reply, to be sent or edited in place. It is not stored and not offered again: part 0 replaces it.
    pub fn preview(&mut self, key: &ReplyKey, text: &str) -> Option<Offer> {
        let reply = self.entry(key);
        if reply.part_count() > 0 || reply.closed {
            return None;
        }
        Some(Offer {
            key: key.clone(),
            part: 0,
            block: Block { text: text.to_owned(), ..Block::default() },
            attempt: 1,
            preview: true,
            replaces: reply.preview.clone(),
        })
    }

    /// The chat shows the preview as this message.
    pub fn acknowledge_preview(&mut self, key: &ReplyKey, acknowledgement: Acknowledgement) {
        let reply = self.entry(key);
        if acknowledgement.message.is_some() {
            reply.preview = acknowledgement.message;
        }
    }

    /// What a stream that continues this reply must know.
    pub fn progress(&self, key: &ReplyKey) -> Progress {
        self.reply(key).map_or_else(Progress::default, |reply| Progress {
            parts: reply.part_count(),
            end: reply.end,
            digest: reply.digest.clone(),
            media: reply.media,
            files: reply.files.clone(),
        })
    }

    /// Keeps nothing of the first parts of a reply, as far as they were acknowledged or refused, and not of more than so many. Do so when
    /// that is stored.
    pub fn settle(&mut self, key: &ReplyKey, parts: u32) {
        if let Some(reply) = self.replies.iter_mut().find(|reply| reply.key == *key) {
            reply.settle_some(parts);
        }
    }

    /// Removes a settled reply. Do so when nothing can produce its parts again.
    pub fn forget(&mut self, key: &ReplyKey) {
        self.replies.retain(|reply| reply.key != *key || !reply.is_settled());
    }

    fn first_waiting(&self) -> Option<(usize, usize)> {
        self.replies.iter().enumerate().find_map(|(index, reply)| Some((index, reply.waiting()?)))
    }

    fn land(&mut self, key: &ReplyKey, part: u32) {
        if self.in_flight.as_ref().is_some_and(|(flying, number)| flying == key && *number == part) {
            self.in_flight = None;
        }
    }

    /// A part; `None` for one that was settled before.
    fn part(&mut self, key: &ReplyKey, part: u32) -> Result<Option<&mut Part>, DeliveryError> {
        let unknown = || DeliveryError::Unknown { key: key.clone(), part };
        let reply = self.replies.iter_mut().find(|reply| reply.key == *key).ok_or_else(unknown)?;
        let Some(index) = part.checked_sub(reply.settled) else { return Ok(None) };
        let index = usize::try_from(index).map_err(|_| unknown())?;
        reply.parts.get_mut(index).map(Some).ok_or_else(unknown)
    }

    fn entry(&mut self, key: &ReplyKey) -> &mut Delivery {
        let index = self.replies.iter().position(|reply| reply.key == *key).unwrap_or_else(|| {
            self.replies.push(Delivery {
                key: key.clone(),
                settled: 0,
                parts: Vec::new(),
                end: 0,
                digest: String::new(),
                media: 0,
                files: Vec::new(),
                closed: false,
                preview: None,
            });
            self.replies.len() - 1
        });
        &mut self.replies[index]
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn pause(attempts: u32) -> i64 {
    (PAUSE_FIRST << attempts.saturating_sub(1).min(6)).min(PAUSE_MOST)
}
