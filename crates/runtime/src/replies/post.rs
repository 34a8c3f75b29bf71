//! Messages that a tool sends to a chat, on the way of all replies.

use std::sync::atomic::Ordering;

use quipu::protocol::{CallId, RunId, ToolCall};
use quipu::store::{Commit, Durability, StoreError};
use quipu_outbound::{Block, DrainPoint, Outbox, ReplyStream, StreamInput, StreamOutput};

use super::rows::{ReplyRow, StoredReply};
use super::{REPLY_LIMIT, Replies, ReplyRoute, SentMessage, lock};
use crate::keys::SessionKey;

/// The tool that sends messages.
pub const MESSAGE_TOOL: &str = "message";

/// The channel of messages from one conversation to another: no chat has it, so what answers them goes back to who waits for it.
pub(crate) const SESSIONS_CHANNEL: &str = "sessions";

/// A message of a tool.
pub(crate) struct PostedMessage {
    /// The run of the session and the call.
    pub(crate) call: (RunId, CallId),
    pub(crate) text: String,
    /// Addresses, and true paths of files.
    pub(crate) media: Vec<String>,
    /// Another chat, as the model names it.
    pub(crate) to: Option<String>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum PostError {
    /// The run answers nobody.
    #[error("this conversation has no chat that a message can be sent to")]
    NoChat,
    /// There is no chat with this name, or the conversation may not send there.
    #[error("there is no chat `{0}` that this conversation may send to")]
    Unknown(String),
    /// Nothing is left of it.
    #[error("the message is empty")]
    Empty,
    /// The chat takes no more.
    #[error("{REPLY_LIMIT} messages wait for this chat; send fewer, or wait")]
    Full,
    /// It was not stored.
    #[error("the message could not be stored: {0}")]
    Store(#[from] StoreError),
}

/// What a call of the tool `message` sends to the chat of its own conversation.
pub(super) fn sent(call: &ToolCall) -> Option<SentMessage> {
    if call.name != MESSAGE_TOOL {
        return None;
    }
    let arguments = call.arguments.value();
    let text = |name: &str| arguments.get(name).and_then(|text| text.as_str()).map(str::to_owned);
    // Its own chat has not got what went to another one.
    if text("to").is_some() {
        return None;
    }
    let media = arguments.get("media").and_then(|media| media.as_array());
    let media = media.into_iter().flatten().filter_map(|one| one.as_str().map(str::to_owned)).collect();
    Some(SentMessage { text: text("text").unwrap_or_default(), media, target: None })
}

impl Replies {
    /// Stores a message for the chat of the run that is active in a conversation; it is offered as answers are, in their order and
    /// under one key. Media that stand in the text are its blocks' own, and `allows` says which of them may be sent.
    pub(crate) async fn post_of_tool(
        &self,
        key: &SessionKey,
        message: PostedMessage,
        allows: &(dyn Fn(&str) -> bool + Sync),
    ) -> Result<u32, PostError> {
        let owed = self.owed(key).ok_or(PostError::NoChat)?;
        let route = match message.to {
            Some(name) => self.0.routes.named(&owed.route, &name).ok_or(PostError::Unknown(name))?,
            None => owed.route,
        };
        let ReplyRoute { mut options, .. } = self.0.routes.route(key, &route).ok_or(PostError::NoChat)?;
        options.drain = DrainPoint::MessageEnd;
        options.pacing = None;
        options.enforce_final = false;
        options.current_message = owed.message;
        let number = self.0.number.fetch_add(1, Ordering::Relaxed) + 1;
        let (run, call) = message.call;
        // Models repeat the ids of calls, and the number counts in one process.
        let mut stream = ReplyStream::new(RunId::from(format!("{run}/{call}/{number}")), options);
        let mut outputs = stream.on(StreamInput::MessageStarted, 0);
        outputs.extend(stream.on(StreamInput::MessageEnded { text: Some(&message.text) }, 0));
        let mut blocks: Vec<Block> = outputs
            .into_iter()
            .filter_map(|output| match output {
                StreamOutput::Block { block, .. } => Some(block),
                StreamOutput::Closed { .. } | StreamOutput::Flushed => None,
            })
            .collect();
        blocks.iter_mut().for_each(|block| block.media.retain(|source| allows(source)));
        match blocks.last_mut() {
            Some(last) => last.media.extend(message.media),
            None => blocks.push(Block { media: message.media, ..Block::default() }),
        }
        blocks.retain(|block| !block.is_empty());
        let reply_key = stream.key();
        let mut made = Outbox::new();
        for (part, block) in (0..).zip(blocks) {
            // They come in order, so it can take them.
            drop(made.record(&reply_key, part, block));
        }
        made.close(&reply_key);
        let delivery = made.reply(&reply_key).filter(|delivery| !delivery.parts.is_empty()).cloned();
        let delivery = delivery.ok_or(PostError::Empty)?;
        let parts = u32::try_from(delivery.parts.len()).unwrap_or(u32::MAX);
        if lock(&self.0.outboxes).get(&route).is_some_and(|one| one.outbox.replies().len() >= REPLY_LIMIT) {
            return Err(PostError::Full);
        }
        let (queue, stored) = (key.to_string(), StoredReply { number, route: route.clone(), delivery });
        let ops = vec![ReplyRow::Reply(Box::new(stored.clone())).put(&queue)];
        self.0.store.commit(Commit { ops, durability: Durability::Process, ..Commit::default() }).await?;
        {
            let mut outboxes = lock(&self.0.outboxes);
            let there = outboxes.entry(route.clone()).or_default();
            there.rows.insert(reply_key, (queue, number));
            there.outbox.add(stored.delivery);
        }
        self.wake(&route);
        Ok(parts)
    }
}
