//! What the store keeps of replies.

use quipu::protocol::{CallId, ItemId, Json, NodeId, SessionId};
use quipu::store::InboxItem;
use quipu_outbound::Delivery;
use serde::{Deserialize, Serialize};

use crate::inbox_rows::RowChange;
use crate::keys::SessionKey;
use crate::queue::{Authority, MessageGroup, Route};

/// A run whose answers are owed to a chat: from before its prompt is part of the session until its last answer is stored as a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OwedReply {
    /// The turn; its replies have keys of this.
    pub(crate) turn: ItemId,
    /// The session that its prompt becomes part of.
    pub(crate) session: SessionId,
    /// Where the session stood before the turn.
    pub(crate) base: Option<NodeId>,
    /// Where the answers go.
    pub(crate) route: Route,
    /// With which rights it runs; nobody's in rows of earlier versions.
    #[serde(default)]
    pub(crate) authority: Authority,
    /// The message that is answered, as the chat names it.
    pub(crate) message: Option<String>,
    /// All messages that are answered; none in rows of earlier versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) members: Vec<ItemId>,
    /// Answers that are stored as replies, in rows of earlier versions.
    #[serde(default, skip_serializing)]
    pub(crate) answers: u32,
    /// The number of the next reply; none in rows of earlier versions.
    #[serde(default)]
    pub(super) next: Option<u32>,
    /// The last messages that were taken, one for each way that the session went: what they follow was taken, too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) taken: Vec<NodeId>,
    /// Messages that were handed to the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) handed: Vec<ItemId>,
    /// How often it was continued by another process.
    pub(crate) continued: u32,
    /// The newest messages that tools sent in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) sent: Vec<SentCall>,
}

/// A message that a tool sent: it is stored, whatever became of the result of its call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SentCall {
    pub(super) call: CallId,
    /// How often the turn had been continued by then.
    #[serde(default)]
    pub(super) continued: u32,
    /// SHA-256 of what it says and to whom.
    pub(super) digest: String,
}

/// Ways of a session that are remembered of a turn.
const WAYS: usize = 64;

impl OwedReply {
    /// A turn that has said nothing yet, of nobody's rights.
    pub(super) fn new(turn: ItemId, session: SessionId, route: Route) -> Self {
        Self {
            turn,
            session,
            base: None,
            route,
            authority: Authority::default(),
            message: None,
            members: Vec::new(),
            answers: 0,
            next: Some(0),
            taken: Vec::new(),
            handed: Vec::new(),
            continued: 0,
            sent: Vec::new(),
        }
    }

    /// Whether a message of the inbox was a prompt of it.
    pub(super) fn has_prompt(&self, item: &ItemId) -> bool {
        self.turn == *item || self.handed.contains(item) || self.members.contains(item)
    }

    /// One more message was taken. `moved`: the session went to another node since the one before.
    pub(super) fn take(&mut self, node: NodeId, next: u32, moved: bool) {
        self.next = Some(next);
        if !moved {
            self.taken.pop();
        } else if self.taken.len() >= WAYS {
            self.taken.remove(0);
        }
        self.taken.push(node);
    }

    /// Whose messages are answered.
    pub(crate) fn group(&self) -> MessageGroup {
        let (route, authority) = (self.route.clone(), self.authority.clone());
        MessageGroup { route, authority, ..MessageGroup::default() }
    }
}

/// A reply that is not delivered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StoredReply {
    /// Replies of a route are delivered in this order.
    pub(super) number: u64,
    pub(super) route: Route,
    pub(super) delivery: Delivery,
}

/// How the ids of those rows of the outbox begin that say what is owed to a conversation.
pub(crate) const OWED: &str = "owed-";

/// A row of the outbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ReplyRow {
    Owed(Box<OwedReply>),
    Reply(Box<StoredReply>),
}

impl ReplyRow {
    fn id(&self) -> ItemId {
        match self {
            Self::Owed(owed) => format!("{OWED}{}", owed.turn).into(),
            Self::Reply(reply) => reply.delivery.key.as_str().into(),
        }
    }

    fn item(&self, queue: &str) -> InboxItem {
        // Plain data always has a JSON form.
        let input = Json::of(self).unwrap_or_default();
        InboxItem { id: self.id(), queue: queue.to_owned(), input }
    }

    /// It comes.
    pub(super) fn put(&self, queue: &str) -> RowChange {
        RowChange::put(self.item(queue))
    }

    /// It leaves.
    pub(super) fn take(&self) -> RowChange {
        RowChange::take(self.id())
    }

    /// It replaces what is there under its id, and stays away where nothing is.
    pub(super) fn replace(&self, queue: &str) -> RowChange {
        RowChange { put: Some(self.item(queue)), ..self.take() }
    }
}

/// All that a process before this one left to be said and delivered.
#[derive(Default)]
pub(super) struct OutboxRows {
    /// What is owed, by conversation.
    pub(super) owed: Vec<(SessionKey, OwedReply)>,
    /// What is not delivered, in order, each with its queue.
    pub(super) replies: Vec<(String, StoredReply)>,
}

impl OutboxRows {
    /// The rows that can be read.
    pub(super) fn of(rows: Vec<InboxItem>) -> Self {
        let mut found = Self::default();
        for row in rows {
            match (row.input.read::<ReplyRow>(), SessionKey::parse(&row.queue)) {
                (Ok(ReplyRow::Owed(one)), Ok(key)) => found.owed.push((key, *one)),
                (Ok(ReplyRow::Reply(one)), _) => found.replies.push((row.queue, *one)),
                // It stays where it is; a newer version may be able to read it.
                _ => {}
            }
        }
        found.replies.sort_by_key(|(_, reply)| reply.number);
        found
    }
}
