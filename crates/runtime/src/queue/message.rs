//! Messages that wait, what keeps them apart, and the turns that are made of them.

use std::collections::VecDeque;
use std::sync::Arc;

use quipu_protocol::{AddedBlock, Content, ItemId, Json, Provenance, UnixMs, UserInput};
use serde::{Deserialize, Serialize};

use super::BusyMode;

/// Characters of the line that is kept of a dropped message at most.
pub const LINE_CHARS: usize = 160;
/// Characters of a sender's name in a prompt at most.
const NAME_CHARS: usize = 80;

const TITLE: &str = "[Queued messages while agent was busy]";

/// Where a message came from, and where the reply goes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The channel.
    pub channel: String,
    /// The account of ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The person or the room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
}

/// What a sender may do. Two messages are run together only if it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Authority {
    /// Who sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
    /// Whether that is the owner.
    #[serde(default)]
    pub is_owner: bool,
    /// What the sender sets for commands otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exec: Option<Json>,
    /// Which rights were raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elevation: Option<String>,
}

impl Authority {
    /// Whether what runs with these other rights may be stopped: an owner stops all, others what is their own.
    pub(crate) fn may_stop(&self, other: &Self) -> bool {
        self.is_owner || self == other
    }
}

/// Messages of one group may be run together.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MessageGroup {
    /// From where to where.
    pub route: Route,
    /// With which rights.
    pub authority: Authority,
    /// Who answers for the text.
    #[serde(default)]
    pub provenance: Provenance,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueuedMessage {
    /// Names it; no two messages have the same.
    pub id: ItemId,
    /// Its id on its channel, by which one that is delivered twice is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<String>,
    /// From where to where.
    pub route: Route,
    /// With which rights.
    pub authority: Authority,
    /// The name of the sender, for the model to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What it says.
    pub input: UserInput,
    /// When it came.
    pub at: UnixMs,
    /// What was to become of it while a run is active.
    pub mode: BusyMode,
}

impl QueuedMessage {
    /// What it may be run together with.
    pub fn group(&self) -> MessageGroup {
        let Self { route, authority, .. } = self;
        MessageGroup {
            route: route.clone(),
            authority: authority.clone(),
            provenance: self.input.provenance.clone(),
        }
    }

    /// One line of it, without line ends, cut at [`LINE_CHARS`] characters.
    fn line(&self) -> String {
        let text = self.input.text();
        let line = one_line(&text, LINE_CHARS);
        if line.is_empty() { "(no text)".to_owned() } else { line }
    }
}

/// Dropped messages of a group, which are still to be reported to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Overflow {
    /// Names it; another one after each message that is dropped.
    pub id: ItemId,
    /// Whose they were.
    pub group: MessageGroup,
    /// How many.
    pub count: u64,
    /// A line of each of the newest of them.
    pub lines: VecDeque<String>,
}

impl Overflow {
    pub(super) fn new(group: MessageGroup) -> Self {
        Self { id: "".into(), group, count: 0, lines: VecDeque::new() }
    }

    /// Adds a message that was dropped; of `most` of them a line is kept.
    pub(super) fn add(&mut self, message: &QueuedMessage, most: usize) {
        self.id = format!("overflow-{}", message.id).into();
        self.count = self.count.saturating_add(1);
        self.lines.push_back(message.line());
        while self.lines.len() > most {
            self.lines.pop_front();
        }
    }

    fn title(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!("[Queue overflow] Dropped {} message{plural} due to cap.", self.count)
    }
}

/// What one run answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueTurn {
    /// Names it; the id of the row that leaves the store when its prompt is part of a session.
    pub id: ItemId,
    /// Its messages, the oldest first; none where it only tells of dropped ones.
    pub members: Vec<ItemId>,
    /// Their ids on the channel, where they have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub message_ids: Vec<String>,
    /// Where they came from, and with which rights it runs.
    pub group: MessageGroup,
    /// The prompt.
    pub input: UserInput,
    /// Whether it came to interrupt what ran before it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub interrupts: bool,
    /// When the newest of its messages came, however long it waited; `None` in rows of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<UnixMs>,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl QueueTurn {
    /// A turn of messages of one group, and of what was dropped of that group.
    pub(super) fn of(
        group: MessageGroup,
        messages: &[Arc<QueuedMessage>],
        overflow: Option<&Overflow>,
    ) -> Option<Self> {
        let first = messages.first().map(|message| &message.id).or(overflow.map(|overflow| &overflow.id))?;
        let input = match (messages, overflow) {
            ([message], None) => message.input.clone(),
            _ => prompt(&group, messages, overflow),
        };
        let members = messages.iter().map(|message| message.id.clone()).collect();
        let message_ids = messages.iter().filter_map(|message| message.message_id.clone()).collect();
        let interrupts = messages.iter().any(|message| message.mode == BusyMode::Interrupt);
        let at = messages.iter().map(|message| message.at).max();
        Some(Self { id: format!("turn-{first}").into(), members, message_ids, group, input, interrupts, at })
    }
}

/// One prompt of several messages. Only what is Quipu's own counts as its own: names and lines are the words of their senders.
fn prompt(group: &MessageGroup, messages: &[Arc<QueuedMessage>], overflow: Option<&Overflow>) -> UserInput {
    let mut input = UserInput::new(Vec::new()).from_source(group.provenance.clone());
    if let Some(overflow) = overflow {
        input.add(overflow.title(), Provenance::quipu());
        let lines: Vec<String> = overflow.lines.iter().map(|line| format!("- {line}")).collect();
        input.content.push(Content::text(lines.join("\n")));
    }
    if let [message] = messages {
        append(&mut input, &message.input);
    } else if !messages.is_empty() {
        input.add(TITLE, Provenance::quipu());
        for (at, message) in messages.iter().enumerate() {
            let name = message.from.as_deref().map(|name| one_line(name, NAME_CHARS)).unwrap_or_default();
            let from = if name.is_empty() { name } else { format!(" (from {name})") };
            input.content.push(Content::text(format!("---\nQueued #{}{from}", at + 1)));
            append(&mut input, &message.input);
        }
    }
    input
}

/// Puts the blocks of one message behind those of another of the same provenance.
fn append(input: &mut UserInput, more: &UserInput) {
    let moved = |added: &AddedBlock| {
        let before = u32::try_from(input.content.len()).unwrap_or(u32::MAX);
        AddedBlock { block: before.saturating_add(added.block), provenance: added.provenance.clone() }
    };
    let added: Vec<AddedBlock> = more.added.iter().map(moved).collect();
    input.added.extend(added);
    input.content.extend(more.content.iter().cloned());
}

/// A text in one line, of so many characters at most.
pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut line = String::new();
    let mut letters = 0;
    for word in text.split(|letter: char| letter.is_whitespace() || letter.is_control()) {
        if word.is_empty() {
            continue;
        }
        for letter in (!line.is_empty()).then_some(' ').into_iter().chain(word.chars()) {
            if letters == most {
                line.pop();
                line.push('…');
                return line;
            }
            line.push(letter);
            letters += 1;
        }
    }
    line
}
