//! The answers of one run on their way to one chat.

use std::collections::{HashMap, HashSet};

use quipu::protocol::{
    AssistantMessage, CallId, Content, Delta, Ending, Event, Message, NodeId, RunId, StopReason,
    ToolResultMessage,
};
use quipu_outbound::{
    Directive, DirectiveParser, DrainPoint, MediaCheck, Progress, ReplyKey, ReplyStream, StreamInput,
    StreamOutput, TagOptions, TagStripper,
};

use super::rows::{OwedReply, SentCall};
use super::said::SaidMessages;
use super::{Replies, ReplyRoute, ReplyRoutes, ReplyTiming, SESSIONS_CHANNEL, SentMessage, post};
use crate::keys::SessionKey;

/// Bytes of a line without an end that wait for it, as they may be half of a secret.
const OPEN_LINE: usize = 4 << 10;
/// Bytes of the line that begins a private key, at most.
const KEY_HEADER: usize = 120;
/// Bytes of a private key that wait for its end: what is longer is none.
const OPEN_KEY: usize = 256 << 10;
/// Bytes before new text by which a secret in it is recognised.
const BEHIND: usize = 4 << 10;

/// The answers of one run on their way to one chat.
pub(crate) struct ReplyFlow {
    stream: ReplyStream,
    timing: ReplyTiming,
    files: MediaCheck,
    /// Messages that are known already.
    known: HashSet<NodeId>,
    /// The session went to another node since the last message was taken.
    moved: bool,
    /// Its first prompt was seen.
    prompted: bool,
    /// What the turn asked last has its whole answer.
    answered: bool,
    /// Somebody else asked behind that answer.
    of_others: bool,
    /// The reply that was begun last.
    begun: Option<ReplyKey>,
    /// The answer that arrives.
    open: Option<OpenText>,
    /// Calls that were over before their answer was stored, and whether they failed.
    early: HashMap<CallId, bool>,
    /// Calls under way that send messages.
    sending: Vec<SendingCall>,
    /// Messages that tools had sent when the process before this one ended, whose results it may not have stored.
    sent: Vec<SentCall>,
}

/// A text of an answer, as far as it arrived.
#[derive(Debug, Default)]
struct OpenText {
    text: String,
    /// So much of it was passed on.
    passed: usize,
}

/// A call that sends a message, until it is over.
struct SendingCall {
    call: CallId,
    message: SentMessage,
    /// It is one of the tool `message`, which sends its text as answers are sent.
    is_parsed: bool,
}

/// What a flow needs to know of what it is a part of.
pub(super) struct FlowWorld<'a> {
    pub(super) routes: &'a dyn ReplyRoutes,
    /// How much of a reply is stored, where it is not whole.
    pub(super) progress: &'a dyn Fn(&ReplyKey) -> Option<Progress>,
    /// Takes secrets out of a text.
    pub(super) seal: &'a dyn Fn(&str) -> String,
    /// Milliseconds.
    pub(super) at: i64,
}

impl ReplyFlow {
    /// That of a run that is owed, and may send these files; `None` where nobody wants it.
    pub(crate) fn of(
        replies: &Replies,
        key: &SessionKey,
        owed: &OwedReply,
        files: MediaCheck,
    ) -> Option<Self> {
        if owed.route.channel == SESSIONS_CHANNEL {
            return None;
        }
        let ReplyRoute { mut options, timing, .. } = replies.0.routes.route(key, &owed.route)?;
        options.drain = match timing {
            ReplyTiming::Whole => DrainPoint::MessageEnd,
            ReplyTiming::Streamed => DrainPoint::TextEnd,
        };
        options.pacing = None;
        options.current_message.clone_from(&owed.message);
        options.media_check = Some(files.clone());
        // Not the run of the session: it is another one when it is continued by another process.
        let stream = ReplyStream::new(RunId::from(owed.turn.as_str()), options);
        let (begun, open, early) = (None, None, HashMap::new());
        let (known, moved, prompted, sent) = (HashSet::new(), true, false, owed.sent.clone());
        let sending = Vec::new();
        let (answered, of_others) = (false, false);
        Some(Self {
            stream,
            timing,
            files,
            known,
            moved,
            prompted,
            answered,
            of_others,
            begun,
            open,
            early,
            sending,
            sent,
        })
    }

    /// Whether its last answer is whole: what is asked then is asked anew.
    pub(super) fn has_answered(&self) -> bool {
        self.answered
    }

    /// Something was asked anew: by the turn, or by somebody else, to whom the answers are.
    pub(super) fn asked(&mut self, is_own: bool) {
        self.of_others = !is_own;
        self.answered &= !is_own;
    }

    /// Whether what the session says now is for others.
    pub(super) fn is_of_others(&self) -> bool {
        self.of_others
    }

    /// The number of the next reply.
    pub(super) fn next(&self) -> u32 {
        self.stream.next_message()
    }

    /// The next reply has this number.
    pub(super) fn continue_at(&mut self, number: u32) {
        self.stream.continue_at(number);
    }

    /// What a process before this one took of the run.
    pub(super) fn knows(&mut self, said: &SaidMessages, routes: &dyn ReplyRoutes) {
        self.moved = said.is_moved;
        self.continue_at(said.next);
        for one in said.messages.iter().filter(|one| one.is_taken) {
            self.known.insert(one.node);
            self.prompted = true;
            match &one.message {
                Message::Assistant(answer) => self.calls(answer, routes),
                Message::ToolResult(result) => self.call_ended(&result.tool_call_id, result.is_error),
                _ => {}
            }
        }
    }

    /// Whether there was a prompt before.
    pub(super) fn is_prompted(&mut self) -> bool {
        std::mem::replace(&mut self.prompted, true)
    }

    /// Whether this message is still to be taken.
    pub(super) fn is_new(&mut self, node: NodeId) -> bool {
        self.known.insert(node)
    }

    /// The session went to another node.
    pub(crate) fn moved(&mut self) {
        self.moved = true;
    }

    /// Whether it did since this was asked last.
    pub(super) fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// When [`ReplyFlow::ticked`] has something to do, in milliseconds.
    pub(super) fn deadline(&self) -> Option<i64> {
        self.stream.deadline()
    }

    /// What is sent because time passed.
    pub(super) fn ticked(&mut self, at: i64) -> Vec<StreamOutput> {
        self.stream.on(StreamInput::Tick, at)
    }

    /// A call is over; what it sent is not sent again.
    pub(crate) fn tool_ended(&mut self, result: &ToolResultMessage) {
        // One that only reads can be over before the answer that asks for it is stored.
        self.early.insert(result.tool_call_id.clone(), result.is_error);
        self.call_ended(&result.tool_call_id, result.is_error);
    }

    /// Whether answers are sent while they arrive.
    pub(super) fn is_streamed(&self) -> bool {
        self.timing == ReplyTiming::Streamed
    }

    /// What is sent of an answer that arrives.
    pub(super) fn arrived(&mut self, event: &Event, world: &FlowWorld<'_>) -> Vec<StreamOutput> {
        match event {
            Event::MessageStarted { message, .. } if matches!(**message, Message::Assistant(_)) => {
                self.open = Some(OpenText::default());
                self.begin(world)
            }
            Event::MessageDelta { delta: Delta::Text { text, .. }, .. } => {
                let Some(open) = &mut self.open else { return Vec::new() };
                open.text.push_str(text);
                let text = open.take(certain(&open.text, open.passed), world.seal);
                self.stream.on(StreamInput::Text(&text), world.at)
            }
            Event::MessageDelta { delta: Delta::TextEnded { .. }, .. } => {
                let Some(open) = &mut self.open else { return Vec::new() };
                let text = open.take(open.text.len(), world.seal);
                *open = OpenText::default();
                let mut outputs = self.stream.on(StreamInput::Text(&text), world.at);
                outputs.extend(self.stream.on(StreamInput::TextEnded { content: None }, world.at));
                outputs
            }
            Event::ToolStarted { .. } if self.open.is_some() => {
                self.stream.on(StreamInput::ToolStarted, world.at)
            }
            Event::MessageEnded { ending: Ending::Dropped(_), .. } if self.open.take().is_some() => {
                self.stream.on(StreamInput::MessageDropped, world.at)
            }
            _ => Vec::new(),
        }
    }

    /// What is sent of a message that is part of the session.
    pub(super) fn said(&mut self, message: &Message, world: &FlowWorld<'_>) -> Vec<StreamOutput> {
        match message {
            Message::Assistant(answer) => {
                let outputs = self.answer(answer, world);
                self.answered = matches!(answer.stop_reason, StopReason::Stop | StopReason::Length);
                self.calls(answer, world.routes);
                self.early.clear();
                outputs
            }
            Message::ToolResult(result) => {
                // It stands behind the answer that asks for it; one that follows may use the id again.
                self.early.remove(&result.tool_call_id);
                self.call_ended(&result.tool_call_id, result.is_error);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// An answer begins. Where a process before this one sent some of it, that is not sent again.
    fn begin(&mut self, world: &FlowWorld<'_>) -> Vec<StreamOutput> {
        let key = self.stream.next_key();
        if self.begun.as_ref() != Some(&key)
            && let Some(progress) = (world.progress)(&key)
        {
            self.stream.resume_next(progress);
        }
        self.begun = Some(key);
        self.stream.on(StreamInput::MessageStarted, world.at)
    }

    fn answer(&mut self, answer: &AssistantMessage, world: &FlowWorld<'_>) -> Vec<StreamOutput> {
        let arrived = self.open.take();
        // What was broken off is not an answer; the next one is said under its key.
        if matches!(answer.stop_reason, StopReason::Error | StopReason::Aborted) {
            return match arrived {
                Some(_) => self.stream.on(StreamInput::MessageDropped, world.at),
                None => Vec::new(),
            };
        }
        let mut outputs = Vec::new();
        if arrived.is_none() {
            outputs.extend(self.begin(world));
            for text in answer.content.iter().filter_map(Content::as_text) {
                outputs.extend(self.stream.on(StreamInput::Text(text), world.at));
                outputs.extend(self.stream.on(StreamInput::TextEnded { content: None }, world.at));
            }
        }
        outputs.extend(self.stream.on(StreamInput::MessageEnded { text: None }, world.at));
        outputs
    }

    /// What the calls of an answer send is not sent again.
    fn calls(&mut self, answer: &AssistantMessage, routes: &dyn ReplyRoutes) {
        for call in answer.content.iter().filter_map(Content::as_tool_call) {
            let own = post::sent(call);
            let is_parsed = own.is_some();
            let Some(message) = own.or_else(|| routes.sent(&call.name, &call.arguments)) else {
                continue;
            };
            self.sending.push(SendingCall { call: call.id.clone(), message, is_parsed });
            let is_stored = post::is_stored(&self.sent, call);
            let failed = self.early.get(&call.id).map(|failed| *failed && !is_stored);
            if let Some(failed) = failed.or(is_stored.then_some(false)) {
                self.call_ended(&call.id, failed);
            }
        }
    }

    /// A call is over. Its files are looked for now: a call before it can have made them.
    fn call_ended(&mut self, call: &CallId, failed: bool) {
        let ended: Vec<_> = self.sending.extract_if(.., |sending| sending.call == *call).collect();
        if failed {
            return;
        }
        for SendingCall { message: SentMessage { mut text, mut media, target }, is_parsed, .. } in ended {
            // An answer that names one of these files in another way does not send it again.
            let files: Vec<_> = media.iter().filter_map(|name| self.files.source(name)).collect();
            media.extend(files);
            if is_parsed {
                let (visible, found) = self.parsed(&text);
                text = visible;
                media.extend(found);
            }
            let sent = self.stream.sent_texts();
            sent.begin(call.clone(), &text, &media, target.as_deref());
            sent.end(call, false);
        }
    }

    /// What a chat is shown of a text, and the media in it by all their names.
    fn parsed(&self, text: &str) -> (String, Vec<String>) {
        let mut stripper = TagStripper::new(TagOptions::default());
        let mut parser = DirectiveParser::checking(Some(self.files.clone()));
        let mut segments = stripper.push(text);
        segments.extend(stripper.finish());
        let mut found: Vec<_> = segments.iter().flat_map(|segment| parser.push(segment)).collect();
        found.extend(parser.finish());
        let (mut visible, mut media) = (String::new(), Vec::new());
        for directive in found {
            match directive {
                Directive::Text(text) => visible.push_str(&text),
                Directive::Media { named, source } => media.extend([named, source]),
                Directive::Leak => visible.clear(),
                Directive::ReplyTo(_) | Directive::Voice | Directive::MissingMedia => {}
            }
        }
        (visible, media)
    }
}

impl OpenText {
    /// The text up to `end` that was not passed on, without secrets.
    fn take(&mut self, end: usize, seal: &dyn Fn(&str) -> String) -> String {
        if end <= self.passed {
            return String::new();
        }
        let from = self.text.floor_char_boundary(self.passed.saturating_sub(BEHIND));
        let before = seal(&self.text[from..self.passed]);
        let whole = seal(&self.text[from..end]);
        let new = match whole.strip_prefix(&before) {
            Some(new) => new.to_owned(),
            None => seal(&self.text[self.passed..end]),
        };
        self.passed = end;
        new
    }
}

/// Where the part of a text ends that nothing that follows makes a secret of: behind its last line, or the last word of a long one, and before
/// a private key that has not ended. `passed` of it was passed on before.
fn certain(text: &str, passed: usize) -> usize {
    let line = text[passed..].rfind('\n').map_or(passed, |at| passed + at + 1);
    let word =
        || text[line..].rfind(char::is_whitespace).map_or(line, |at| text.ceil_char_boundary(line + at + 1));
    let end = if text.len() - line > OPEN_LINE { word() } else { line };
    let mut from = passed;
    while let Some(begin) = text[from..end].find("-----BEGIN ").map(|at| from + at) {
        let header = &text[begin..text.floor_char_boundary(begin + KEY_HEADER)];
        let line = header.lines().next().unwrap_or_default();
        let is_open = line.len() == header.len() && header.len() + 4 < KEY_HEADER;
        let is_key = is_open || line.contains("PRIVATE KEY");
        match text[begin..end].find("-----END ") {
            Some(at) if is_key => from = begin + at,
            None if is_key && end - begin <= OPEN_KEY => return begin,
            // Other blocks are no secret, and nothing so long is a key.
            _ => from = begin + "-----BEGIN ".len(),
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_key_waits_for_its_end_and_other_blocks_do_not() {
        let all = |text: &str| certain(text, 0) == text.len();
        for kind in ["RSA PRIVATE KEY", "PRIVATE KEY", "PGP PRIVATE KEY BLOCK"] {
            let lines = "A0b1".repeat(16) + "\n";
            let key = format!("Here:\n-----BEGIN {kind}-----\n{}", lines.repeat(1_200));
            assert_eq!(certain(&key, 0), "Here:\n".len(), "{kind}");
            assert!(all(&format!("{key}-----END {kind}-----\n")), "{kind}");
        }
        assert!(all("It begins with -----BEGIN and a name.\n"));
        assert!(all("-----BEGIN CERTIFICATE-----\nAAAA\n"));
        assert!(!all("-----BEGIN CERTIFICATE-----\nAAAA\n-----BEGIN PRIVATE KEY-----\nAAAA\n"));
        // In a long line, whatever pieces it comes in.
        let line = format!("{} -----BEGIN PRIVATE KEY-----\\n{}", "word ".repeat(1_000), "A0b1".repeat(500));
        let begin = line.find("-----BEGIN").unwrap();
        for end in begin + 11..line.len() {
            assert!(certain(&line[..end], 0) <= begin, "{end}");
        }
        // A line is not certain before it has ended.
        assert_eq!(certain("One.\nTwo -----BEG", 0), "One.\n".len());
    }
}
