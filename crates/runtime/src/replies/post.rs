//! Messages that a tool sends to a chat, on the way of all replies.

use std::sync::atomic::Ordering;

use quipu::protocol::{CallId, RunId, ToolCall};
use quipu::store::{Durability, REPLY_OUTBOX, StoreError};
use quipu_outbound::{
    Block, DrainPoint, MediaCheck, Outbox, ReplyKey, ReplyStream, StreamInput, StreamOptions, StreamOutput,
};
use sha2::{Digest as _, Sha256};

use super::rows::{OwedReply, ReplyRow, SentCall, StoredReply};
use super::{PostOutcome, REPLY_LIMIT, Replies, ReplyRoute, SentMessage, lock};
use crate::inbox_rows::change_rows;
use crate::keys::SessionKey;
use crate::queue::Route;

/// The tool that sends messages.
pub const MESSAGE_TOOL: &str = "message";

/// The channel of messages from one conversation to another: no chat has it, so what answers them goes back to who waits for it.
pub const SESSIONS_CHANNEL: &str = "sessions";

/// Messages of tools that a turn remembers, so that none is sent twice after a crash.
const SENT: usize = 64;

/// What became of a message of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolPost {
    /// It is stored, and on its way.
    Sent {
        /// In so many messages.
        parts: u32,
    },
    /// The turn sent it before another process continued it.
    Repeated,
}

/// A message of a tool.
pub(crate) struct PostedMessage {
    /// The run of the session and the call.
    pub(crate) call: (RunId, CallId),
    pub(crate) text: String,
    /// True paths of files.
    pub(crate) media: Vec<String>,
    /// The same, as the model names them.
    pub(crate) names: Vec<String>,
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

/// Whether the message of a call is stored already, as the rows of a process before this one say.
pub(super) fn is_stored(sent: &[SentCall], call: &ToolCall) -> bool {
    let of_call = |one: &&SentCall| one.call == call.id;
    let Some(arguments) = self::sent(call).filter(|_| sent.iter().any(|one| of_call(&one))) else {
        return false;
    };
    let digest = digest(&arguments.text, &arguments.media, None);
    sent.iter().filter(of_call).any(|one| one.digest == digest)
}

/// What is compared of a message.
fn digest(text: &str, names: &[String], to: Option<&str>) -> String {
    let whole = serde_json::json!([text, names, to]).to_string();
    Sha256::digest(whole).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Blocks of one reply that no answer of a run is.
struct PostedReply<'a> {
    conversation: &'a SessionKey,
    route: &'a Route,
    reply: ReplyKey,
    blocks: Vec<Block>,
    durability: Durability,
}

/// What a text says in a chat with these options.
fn blocks_of(name: RunId, mut options: StreamOptions, text: &str) -> (ReplyKey, Vec<Block>) {
    options.drain = DrainPoint::MessageEnd;
    options.pacing = None;
    let mut stream = ReplyStream::new(name, options);
    let mut outputs = stream.on(StreamInput::MessageStarted, 0);
    outputs.extend(stream.on(StreamInput::MessageEnded { text: Some(text) }, 0));
    let blocks = outputs.into_iter().filter_map(|output| match output {
        StreamOutput::Block { block, .. } => Some(block),
        StreamOutput::Closed { .. } | StreamOutput::Flushed => None,
    });
    (stream.key(), blocks.collect())
}

impl Replies {
    /// Says something that no run says, such as an alert. It is stored, and delivered behind what waits on its route, under a key of `name`;
    /// nothing is said a second time under a name that waits. Files that the text names are not sent unless the options of the route have a
    /// check that lets them.
    ///
    /// # Errors
    /// What the store says; nothing is said then.
    pub async fn post(
        &self,
        key: &SessionKey,
        route: &Route,
        name: &RunId,
        text: &str,
    ) -> Result<PostOutcome, StoreError> {
        let Some(ReplyRoute { mut options, .. }) = self.0.routes.route(key, route) else {
            return Ok(PostOutcome::Unwanted);
        };
        options.media_check.get_or_insert_with(MediaCheck::no_files);
        let (reply, blocks) = blocks_of(name.clone(), options, text);
        let durability = Durability::Power;
        let posted = PostedReply { conversation: key, route, reply, blocks, durability };
        match self.store_posted(posted, None).await {
            Ok(_) => Ok(PostOutcome::Stored),
            Err(PostError::Full) => Ok(PostOutcome::Full),
            Err(PostError::Store(error)) => Err(error),
            Err(PostError::Empty | PostError::NoChat | PostError::Unknown(_)) => Ok(PostOutcome::Unwanted),
        }
    }

    /// Stores a message for the chat of the run that is active in a conversation; it is offered as answers are, in their order and
    /// under one key. Files that its text names are sent where `files` lets them, and text otherwise. A message that the same turn
    /// sent before another process continued it is not stored again.
    pub(crate) async fn post_of_tool(
        &self,
        key: &SessionKey,
        message: PostedMessage,
        files: MediaCheck,
    ) -> Result<ToolPost, PostError> {
        let _changing = self.changing(key).await;
        let mut owed = self.owed(key).ok_or(PostError::NoChat)?;
        let (run, call) = message.call;
        let digest = digest(&message.text, &message.names, message.to.as_deref());
        if owed.sent.iter().any(|sent| sent.continued < owed.continued && sent.digest == digest) {
            return Ok(ToolPost::Repeated);
        }
        let route = match message.to {
            Some(name) => self.0.routes.named(&owed.route, &name).ok_or(PostError::Unknown(name))?,
            None => owed.route.clone(),
        };
        let ReplyRoute { mut options, .. } = self.0.routes.route(key, &route).ok_or(PostError::NoChat)?;
        options.enforce_final = false;
        options.current_message.clone_from(&owed.message);
        options.media_check = Some(files);
        // The number counts in one process, which has the run alone. Ids of calls are the model's to choose, and are not used.
        let number = self.0.number.fetch_add(1, Ordering::Relaxed) + 1;
        let name = RunId::from(format!("message-{run}-{number}"));
        let (reply, mut blocks) = blocks_of(name, options, &message.text);
        match blocks.last_mut() {
            Some(last) => last.media.extend(message.media),
            None => blocks.push(Block { media: message.media, ..Block::default() }),
        }
        owed.sent.push(SentCall { call, continued: owed.continued, digest });
        let excess = owed.sent.len().saturating_sub(SENT);
        owed.sent.drain(..excess);
        let durability = Durability::Process;
        let posted = PostedReply { conversation: key, route: &route, reply, blocks, durability };
        let parts = self.store_posted(posted, Some(owed)).await?;
        Ok(ToolPost::Sent { parts })
    }

    /// Stores a reply, with what the conversation is owed besides, and has it delivered; of how many parts it is.
    async fn store_posted(&self, posted: PostedReply<'_>, owed: Option<OwedReply>) -> Result<u32, PostError> {
        let PostedReply { conversation, route, reply, mut blocks, durability } = posted;
        blocks.retain(|block| !block.is_empty());
        let mut made = Outbox::new();
        for (part, block) in (0..).zip(blocks) {
            // They come in order, so it can take them.
            drop(made.record(&reply, part, block));
        }
        made.close(&reply);
        let delivery = made.reply(&reply).filter(|delivery| delivery.part_count() > 0).cloned();
        let delivery = delivery.ok_or(PostError::Empty)?;
        let parts = delivery.part_count();
        if lock(&self.0.outboxes).get(route).is_some_and(|one| one.outbox.replies().len() >= REPLY_LIMIT) {
            return Err(PostError::Full);
        }
        let number = self.0.number.fetch_add(1, Ordering::Relaxed) + 1;
        let stored = StoredReply { number, route: route.clone(), delivery };
        let changes = vec![ReplyRow::Reply(Box::new(stored.clone())).put(&conversation.to_string())];
        match owed {
            Some(owed) => self.put_owed(conversation, owed, changes).await?,
            None => change_rows(&*self.0.store, &REPLY_OUTBOX.into(), &changes, durability).await?,
        }
        self.add(conversation, route, vec![stored]);
        Ok(parts)
    }
}
