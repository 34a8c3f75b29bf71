//! What stands before a conversation: the messages that an epoch opens requests with.

use std::sync::Arc;

use quipu_protocol::{AssistantMessage, Content, EpochContext, EpochOpening, Message, StopReason};

/// The messages that an epoch opens requests with.
///
/// They are no nodes of the conversation: they are made of the record in the epoch, and are the same for the same record.
#[derive(Debug, Clone, Default)]
pub struct OpeningMessages {
    /// Before everything.
    before: Option<Arc<Message>>,
    /// Between what is remembered and the conversation.
    boundary: Vec<Arc<Message>>,
}

impl OpeningMessages {
    /// Those of a record; none where it has none.
    pub fn of(context: Option<&EpochContext>) -> Self {
        let Some(EpochOpening { text, boundary, .. }) = context.and_then(|context| context.opening.as_ref())
        else {
            return Self::default();
        };
        let said = |text: &str| !text.trim().is_empty();
        let before = said(text).then(|| Arc::new(Message::user(text.clone(), 0)));
        // One of the two alone would be a turn without an answer, or an answer to nothing.
        let boundary = boundary.as_ref().filter(|pair| said(&pair.assistant) && said(&pair.user));
        let boundary = boundary.map_or_else(Vec::new, |pair| {
            let answer = AssistantMessage {
                content: vec![Content::text(pair.assistant.as_str())],
                stop_reason: StopReason::Stop,
                ..AssistantMessage::default()
            };
            vec![Arc::new(Message::Assistant(answer)), Arc::new(Message::user(pair.user.clone(), 0))]
        });
        Self { before, boundary }
    }

    /// A conversation with them: before it what is remembered, then the summary that it begins with, if it does, the boundary,
    /// and the rest. Nothing is separated from nothing.
    pub fn around<'a>(
        &'a self,
        messages: &'a [Arc<Message>],
    ) -> impl Iterator<Item = &'a Arc<Message>> + Clone {
        let is_summary = |message: &Arc<Message>| matches!(**message, Message::CompactionSummary(_));
        let summary = usize::from(messages.first().is_some_and(is_summary));
        let (summary, rest) = messages.split_at(summary);
        let has_memory = self.before.is_some() || !summary.is_empty();
        let boundary = if has_memory { self.boundary.as_slice() } else { &[] };
        self.before.iter().chain(summary).chain(boundary).chain(rest)
    }

    /// What they have to say, in their order.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.before.iter().chain(&self.boundary)
    }
}
