//! Replies that a tool has sent already.

use std::collections::{BTreeMap, VecDeque};

use quipu_protocol::CallId;

/// Texts that are remembered.
const TEXTS_MOST: usize = 200;
/// A shorter text is never a duplicate, in characters.
const LENGTH_LEAST: usize = 10;

/// The form in which texts are compared: small letters, no emoji, single blanks.
pub fn normalized(text: &str) -> String {
    let mut normal = String::with_capacity(text.len());
    for character in text.chars().filter(|character| !is_emoji(*character)).flat_map(char::to_lowercase) {
        if !character.is_whitespace() {
            normal.push(character);
        } else if !normal.is_empty() && !normal.ends_with(' ') {
            normal.push(' ');
        }
    }
    if normal.ends_with(' ') {
        normal.pop();
    }
    normal
}

fn is_emoji(character: char) -> bool {
    matches!(
        u32::from(character),
        0x200d | 0x20e3 | 0x231a..=0x231b | 0x23e9..=0x23fa | 0x25aa..=0x25ab | 0x25b6 | 0x25c0 | 0x25fb..=0x25fe
            | 0x2600..=0x27bf | 0x2934..=0x2935 | 0x2b05..=0x2b07 | 0x2b1b..=0x2b1c | 0x2b50 | 0x2b55
            | 0xfe0e..=0xfe0f | 0x1f000..=0x1faff | 0xe0020..=0xe007f
    )
}

#[derive(Debug, Clone, Default)]
struct ToolMessage {
    texts: Vec<String>,
    media: Vec<String>,
    target: Option<String>,
}

/// What messaging tools sent during a run. A call counts once it has ended without an error.
#[derive(Debug, Clone, Default)]
pub struct SentTexts {
    pending: BTreeMap<CallId, ToolMessage>,
    texts: VecDeque<String>,
    media: VecDeque<String>,
    targets: VecDeque<String>,
}

impl SentTexts {
    /// Nothing sent yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A call begins to send this.
    pub fn begin(&mut self, call: CallId, text: &str, media: &[String], target: Option<&str>) {
        let sending = self.pending.entry(call).or_default();
        sending.texts.push(normalized(text));
        sending.media.extend_from_slice(media);
        sending.target = target.map(str::to_owned);
    }

    /// The call ended. What a call that failed wanted to send was not sent.
    pub fn end(&mut self, call: &CallId, failed: bool) {
        let Some(sending) = self.pending.remove(call).filter(|_| !failed) else { return };
        self.texts.extend(sending.texts.into_iter().filter(|text| !text.is_empty()));
        self.media.extend(sending.media);
        self.targets.extend(sending.target);
        for list in [&mut self.texts, &mut self.media, &mut self.targets] {
            let excess = list.len().saturating_sub(TEXTS_MOST);
            list.drain(..excess);
        }
    }

    /// Whether the text is a part of one that was sent.
    pub(crate) fn covers(&self, text: &str) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let text = normalized(text);
        !text.is_empty() && self.texts.iter().any(|sent| sent.contains(&text))
    }

    /// Whether the text says what was sent: it is at least half of a text that was sent, or contains one that is at least half of it.
    pub fn contains(&self, text: &str) -> bool {
        if self.texts.is_empty() {
            return false;
        }
        let text = normalized(text);
        let length = text.chars().count();
        length >= LENGTH_LEAST
            && self.texts.iter().any(|sent| {
                let sent_length = sent.chars().count();
                (sent_length >= LENGTH_LEAST && 2 * sent_length >= length && text.contains(sent.as_str()))
                    || (2 * length >= sent_length && sent.contains(&text))
            })
    }

    /// Whether this medium was sent.
    pub fn contains_media(&self, source: &str) -> bool {
        self.media.iter().any(|sent| sent == source)
    }

    /// Whether something was sent to this chat: its final reply is not sent then.
    pub fn reached(&self, target: &str) -> bool {
        self.targets.iter().any(|sent| sent == target)
    }
}
