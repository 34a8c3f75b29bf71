//! A conversation as a client sends it: pieces in order, each with a digest of all up to it.

use quipu_archive::{ConversationDigest, is_program_context};
use quipu_protocol::{
    AssistantMessage, Body, CallId, Content, CustomMessage, Entry, Message, StopReason, ToolResultMessage,
    UnixMs, UserMessage,
};

/// Who a piece is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Author {
    User,
    Assistant,
    /// The result of a call: its id and the name of the tool, and whether it failed.
    Tool {
        call: String,
        name: String,
        failed: bool,
    },
    /// Instructions among the messages, by their role.
    Instructions(String),
}

/// One piece: a text, an image, a call, a result.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) author: Author,
    /// What it says; of a result all that it says.
    pub(crate) content: Vec<Content>,
    /// The element of the list of the wire that it stands in, and its place there.
    pub(crate) element: usize,
    pub(crate) block: usize,
    /// The conversation up to it.
    pub(crate) digest: ConversationDigest,
    /// Whether it counts for the digest: reasoning does not, which clients leave out at will.
    pub(crate) counts: bool,
}

/// Puts items behind each other.
#[derive(Default)]
pub(crate) struct ItemList {
    pub(crate) items: Vec<Item>,
    digest: ConversationDigest,
}

/// Texts that one client adds to messages and takes away again.
const REMINDER: (&str, &str) = ("<system-reminder>", "</system-reminder>");
/// What context is called that a client adds to the words of the user.
const CONTEXT: &str = "context";

fn is_reminder(text: &str) -> bool {
    text.starts_with(REMINDER.0) && text.ends_with(REMINDER.1)
}

/// What a piece adds to the digest of its conversation, each a kind and a text; nothing where it does not count.
pub(crate) fn links(
    author: &Author,
    content: &[Content],
    seal: &dyn Fn(&str) -> String,
) -> Vec<(String, String)> {
    let mut links = Vec::new();
    let kind = match author {
        Author::User => "user",
        Author::Assistant => "assistant",
        Author::Tool { .. } => "result",
        Author::Instructions(_) => "instructions",
    };
    let mut parts = content;
    if let Author::Tool { call, .. } = author {
        links.push(("call".to_owned(), call.clone()));
        // Clients shorten old results; the call says which it is.
        if !call.is_empty() {
            parts = &[];
        }
    }
    for part in parts {
        let (what, text) = match part {
            Content::Text(text) => {
                let text = text.text.trim();
                if text.is_empty() || is_reminder(text) {
                    continue;
                }
                ("text", seal(text))
            }
            Content::Thinking(_) => continue,
            Content::Image(image) => {
                ("image", quipu_protocol::hex(&quipu_dag::sha256(image.data.as_bytes())))
            }
            Content::ToolCall(call) if call.id.as_str().is_empty() => {
                ("call", seal(&format!("{}\0{}", call.name, call.arguments)))
            }
            Content::ToolCall(call) => ("call", format!("{}\0{}", call.id.as_str(), call.name)),
            Content::Other(json) => ("other", seal(json.get())),
        };
        links.push((format!("{kind} {what}"), text));
    }
    links
}

impl ItemList {
    /// A list that follows another conversation.
    pub(crate) fn after(digest: ConversationDigest) -> Self {
        Self { items: Vec::new(), digest }
    }

    pub(crate) fn digest(&self) -> ConversationDigest {
        self.digest
    }

    /// Adds a piece. `seal` is applied to what counts, so that no digest holds a secret.
    pub(crate) fn push(
        &mut self,
        (element, block): (usize, usize),
        author: Author,
        content: Vec<Content>,
        seal: &dyn Fn(&str) -> String,
    ) {
        let links = links(&author, &content, seal);
        let counts = !links.is_empty();
        self.digest = links.iter().fold(self.digest, |digest, (kind, text)| digest.then(kind, text));
        self.items.push(Item { author, content, element, block, digest: self.digest, counts });
    }
}

impl Item {
    /// The id of the call that it makes.
    pub(crate) fn call(&self) -> Option<&str> {
        self.content.iter().find_map(|part| part.as_tool_call()).map(|call| call.id.as_str())
    }

    /// Its text, where it is one.
    pub(crate) fn text(&self) -> Option<&str> {
        match &self.content[..] {
            [Content::Text(text)] => Some(&text.text),
            _ => None,
        }
    }

    /// Whether the client says it, in the user's place.
    fn is_context(&self) -> bool {
        let text = self.text().filter(|_| self.author == Author::User).map(str::trim);
        text.is_some_and(|text| is_reminder(text) || is_program_context(text))
    }

    /// Whether the next item belongs to the same message.
    fn continues(&self, next: &Item) -> bool {
        match (&self.author, &next.author) {
            (Author::User, Author::User) => {
                self.element == next.element && self.is_context() == next.is_context()
            }
            (Author::Assistant, Author::Assistant) => true,
            (Author::Instructions(_), Author::Instructions(_)) => self.element == next.element,
            _ => false,
        }
    }
}

/// Consecutive items of one message.
pub(crate) struct Group<'a> {
    pub(crate) items: &'a [Item],
}

/// The messages that these items are.
pub(crate) fn groups(items: &[Item]) -> Vec<Group<'_>> {
    items.chunk_by(Item::continues).map(|items| Group { items }).collect()
}

impl Group<'_> {
    pub(crate) fn digest(&self) -> Option<ConversationDigest> {
        self.items.last().map(|item| item.digest)
    }

    /// Whether any of it counts.
    pub(crate) fn counts(&self) -> bool {
        self.items.iter().any(|item| item.counts)
    }

    /// Whether the client says it, in the user's place.
    pub(crate) fn is_context(&self) -> bool {
        self.items.iter().all(Item::is_context)
    }

    /// Its texts, one after the other.
    pub(crate) fn text(&self) -> String {
        self.items.iter().filter_map(Item::text).collect::<Vec<_>>().join("\n")
    }

    /// What it means. An answer of earlier, whose usage nobody knows, is of `model`.
    pub(crate) fn entry(&self, model: &AssistantMessage, time: UnixMs) -> Option<Entry> {
        let content: Vec<Content> = self.items.iter().flat_map(|item| item.content.iter().cloned()).collect();
        Some(Entry::Message(match self.items.first()?.author.clone() {
            Author::User if self.is_context() => Message::Custom(CustomMessage {
                custom_type: CONTEXT.to_owned(),
                content: Body::Blocks(content),
                display: false,
                details: None,
                timestamp: time,
            }),
            Author::User => Message::User(UserMessage { content: Body::Blocks(content), timestamp: time }),
            Author::Assistant => {
                let calls = content.iter().any(|part| part.as_tool_call().is_some());
                let stop_reason = if calls { StopReason::ToolUse } else { StopReason::Stop };
                Message::Assistant(AssistantMessage {
                    content,
                    stop_reason,
                    timestamp: time,
                    ..model.clone()
                })
            }
            Author::Tool { call, name, failed } => Message::ToolResult(ToolResultMessage {
                tool_call_id: CallId::from(call),
                tool_name: name,
                content,
                details: None,
                usage: None,
                is_error: failed,
                timestamp: time,
            }),
            Author::Instructions(role) => Message::Custom(CustomMessage {
                custom_type: role,
                content: Body::Blocks(content),
                display: false,
                details: None,
                timestamp: time,
            }),
        }))
    }
}
