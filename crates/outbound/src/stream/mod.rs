//! From what a model streams to the messages of its reply.

mod message;
mod options;

use std::ops::Range;

use quipu_protocol::{RunId, UnixMs};

use crate::block::{Block, ReplyKey, ReplyTarget};
use crate::chunk::{Chunk, Chunker};
use crate::coalesce::{Coalescer, Seam};
use crate::directives::Directive;
use crate::duplicates::SentTexts;
use crate::outbox::Progress;
use crate::pacing::Pacer;
use crate::repeat::{Repeat, TextDigest};
use crate::silence::SilenceGate;
use crate::tags::{Segment, TagOptions, visible_segments};
use message::{Message, Piece};
pub use options::{DrainPoint, ReplyMode, StreamOptions};

/// What happens to an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamInput<'a> {
    /// An answer begins.
    MessageStarted,
    /// Text arrives.
    Text(&'a str),
    /// Reasoning arrives, apart from the text.
    Reasoning(&'a str),
    /// A text of the answer is whole. Some models repeat it then.
    TextEnded {
        /// The text again.
        content: Option<&'a str>,
    },
    /// A tool is about to run: all text before it is sent first, and [`StreamOutput::Flushed`] follows it.
    ToolStarted,
    /// The answer is whole.
    MessageEnded {
        /// All its text, when it is known; text that did not arrive before is taken from it.
        text: Option<&'a str>,
    },
    /// The answer was dropped and is asked for again. What was not sent is not sent.
    MessageDropped,
    /// The run ended.
    RunEnded,
    /// Time passed.
    Tick,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamOutput {
    /// Record this in the outbox.
    Block {
        /// The reply.
        key: ReplyKey,
        /// Counts from 0 in the reply.
        part: u32,
        /// What is sent.
        block: Block,
    },
    /// What came before a tool is out; wait for its delivery, then let the tool start.
    Flushed,
    /// The reply has all its parts.
    Closed {
        /// The reply.
        key: ReplyKey,
        /// The model had nothing to say.
        silent: bool,
    },
}

#[derive(Debug, Clone)]
enum QueueItem {
    Block { message: u32, block: Block },
    Flushed,
    Closed { message: u32, silent: bool },
}

/// The answers of one run on their way to one chat. Time comes in with each input, in milliseconds; a clock that jumps back stands
/// still here.
///
/// ```
/// use quipu_outbound::{ReplyStream, StreamInput, StreamOptions, StreamOutput};
///
/// let mut stream = ReplyStream::new("run".into(), StreamOptions::default());
/// stream.on(StreamInput::MessageStarted, 0);
/// stream.on(StreamInput::Text("<think>hm</think>Good "), 5);
/// stream.on(StreamInput::Text("morning"), 9);
/// let outputs = stream.on(StreamInput::MessageEnded { text: None }, 10);
/// assert!(matches!(&outputs[0], StreamOutput::Block { block, .. } if block.text == "Good morning"));
/// ```
#[derive(Debug, Clone)]
pub struct ReplyStream {
    options: StreamOptions,
    run: RunId,
    number: u32,
    message: Message,
    /// Messages begun so far; the present one is its last.
    begun: u32,
    coalescer: Option<Coalescer>,
    pacer: Pacer<QueueItem>,
    sent: SentTexts,
    /// The next part of the message that is being sent.
    sending: (u32, u32),
    /// Text of the present message that left, in case that it is asked for again.
    left: Progress,
    retry: Option<(String, Progress)>,
    resumed: Option<Progress>,
    any_reply: bool,
    last_text: String,
    /// Time here, the clock when it was set, both in milliseconds.
    elapsed: u64,
    clock: Option<UnixMs>,
}

impl ReplyStream {
    /// For a run that begins.
    pub fn new(run: RunId, options: StreamOptions) -> Self {
        Self {
            message: Message::new(&options),
            coalescer: options.coalesce.map(|coalesce| Coalescer::new(coalesce, options.chunks.preference)),
            pacer: Pacer::new(options.pacing, options.seed),
            options,
            run,
            number: 0,
            begun: 0,
            sent: SentTexts::new(),
            sending: (0, 0),
            left: Progress::default(),
            retry: None,
            resumed: None,
            any_reply: false,
            last_text: String::new(),
            elapsed: 0,
            clock: None,
        }
    }

    /// Continues after a crash with the message of this number, of which an outbox has some parts: what they say is not sent again.
    /// The next input is [`StreamInput::MessageStarted`], and the whole text follows.
    pub fn resume(run: RunId, options: StreamOptions, message: u32, progress: Progress) -> Self {
        let mut stream = Self::new(run, options);
        stream.continue_at(message);
        stream.resume_next(progress);
        stream
    }

    /// The message that begins next was begun before a crash, and an outbox has so much of it. What that says is not sent again, unless
    /// another text comes: that is sent whole.
    pub fn resume_next(&mut self, progress: Progress) {
        self.any_reply |= progress.parts > 0;
        self.resumed = Some(progress);
    }

    /// The next message has this number: those before it are known to a process before this one.
    pub fn continue_at(&mut self, message: u32) {
        self.begun = message;
        self.number = message;
        self.any_reply |= message > 0;
    }

    /// The number of the message that begins next.
    pub fn next_message(&self) -> u32 {
        self.begun
    }

    /// The key of the message that begins next.
    pub fn next_key(&self) -> ReplyKey {
        ReplyKey::of(&self.run, self.begun)
    }

    /// What messaging tools sent: a block that repeats it is dropped.
    pub fn sent_texts(&mut self) -> &mut SentTexts {
        &mut self.sent
    }

    /// The key of the present message.
    pub fn key(&self) -> ReplyKey {
        ReplyKey::of(&self.run, self.number)
    }

    /// The text of the present message to be shown as a preview. It only grows, except when it turns out to be reasoning.
    pub fn preview(&self) -> &str {
        &self.message.visible[self.message.visible_start..]
    }

    /// When [`StreamInput::Tick`] has something to do.
    pub fn deadline(&self) -> Option<UnixMs> {
        let coalesced = self.coalescer.as_ref().and_then(Coalescer::deadline);
        let next = match (coalesced, self.pacer.deadline()) {
            (Some(one), Some(other)) => one.min(other),
            (one, other) => one.or(other)?,
        };
        let wait = i64::try_from(next.saturating_sub(self.elapsed)).unwrap_or(i64::MAX);
        Some(self.clock.unwrap_or_default().saturating_add(wait))
    }

    /// What to do now that this happened.
    pub fn on(&mut self, input: StreamInput<'_>, at: UnixMs) -> Vec<StreamOutput> {
        let passed = self.clock.map_or(0, |before| at.saturating_sub(before));
        self.elapsed = self.elapsed.saturating_add(u64::try_from(passed).unwrap_or(0));
        self.clock = Some(at);
        match input {
            StreamInput::MessageStarted => self.start_message(),
            StreamInput::Text(text) => self.text(text),
            StreamInput::Reasoning(text) => {
                self.ensure_message();
                if self.options.reasoning {
                    self.message.reasoning.push_str(text);
                }
            }
            StreamInput::TextEnded { content } => self.text_ended(content),
            StreamInput::ToolStarted => {
                self.settle_text();
                self.flush();
                self.pacer.push(QueueItem::Flushed, false);
            }
            StreamInput::MessageEnded { text } => self.end_message(text),
            StreamInput::MessageDropped => self.drop_message(),
            StreamInput::RunEnded => {
                self.break_off();
                self.flush();
            }
            StreamInput::Tick => {
                let block = self.coalescer.as_mut().and_then(|coalescer| coalescer.tick(self.elapsed));
                self.queue(block);
            }
        }
        self.release()
    }

    /// A message that has no end of its own ends as far as it came.
    fn break_off(&mut self) {
        if self.begun > self.number && !self.message.ended {
            if let Repeat::Text(..) | Repeat::Digest(..) = self.message.repeat {
                self.message.repeat = Repeat::Nothing;
            }
            self.end_message(None);
        }
    }

    fn start_message(&mut self) {
        self.break_off();
        self.message = Message::new(&self.options);
        self.number = self.begun;
        self.begun += 1;
        self.left = Progress::default();
        if let Some(progress) = self.resumed.take() {
            self.sending = (self.number, progress.parts);
            self.message.repeat = match progress.end {
                0 => Repeat::Nothing,
                end if progress.digest.is_empty() => Repeat::Length(end),
                end => Repeat::Digest(end, progress.digest.clone()),
            };
            self.left = progress;
        } else if let Some((text, progress)) = self.retry.take() {
            self.left = progress;
            self.message.repeat = if text.is_empty() { Repeat::Nothing } else { Repeat::Text(text, 0) };
        }
        self.message.repeated_media = self.left.media;
        self.message.media_end = self.left.media;
        self.message.parser.knows_files(&self.left.files);
    }

    /// Text without a beginning begins a message.
    fn ensure_message(&mut self) {
        if self.begun <= self.number || self.message.ended {
            self.start_message();
        }
    }

    fn text(&mut self, text: &str) {
        self.ensure_message();
        self.send_reasoning();
        self.message.raw.push_str(text);
        let segments = self.message.stripper.push(text);
        self.segments(&segments);
        if self.options.drain == DrainPoint::TextEnd {
            let chunks = self.message.chunker.drain();
            self.chunks(chunks, true);
        }
    }

    /// The part of a repeated text that did not arrive before. What contradicts it is not added: no text is sent twice.
    fn text_ended(&mut self, content: Option<&str>) {
        if self.begun <= self.number || self.message.ended {
            return;
        }
        let arrived = &self.message.raw[self.message.raw_start..];
        if let Some(rest) =
            content.and_then(|content| content.strip_prefix(arrived)).filter(|rest| !rest.is_empty())
        {
            let rest = rest.to_owned();
            self.text(&rest);
        }
        self.message.raw_start = self.message.raw.len();
        self.finish_parsers();
        if self.options.drain == DrainPoint::TextEnd {
            let rest = self.message.gate.end_text();
            self.show(&rest);
            let chunks = self.message.chunker.finish();
            self.chunks(chunks, true);
        }
        self.message.between_texts = !self.message.visible.is_empty();
    }

    /// All text that arrived, whole or not, is to be sent.
    fn settle_text(&mut self) {
        self.send_reasoning();
        self.finish_parsers();
        let rest = self.message.gate.finish();
        self.message.gate = SilenceGate::new();
        self.show(&rest);
        let chunks = self.message.chunker.finish();
        self.chunks(chunks, self.options.drain == DrainPoint::TextEnd);
        self.media_only();
        self.settle_held();
    }

    fn end_message(&mut self, text: Option<&str>) {
        if self.begun > self.number && self.message.ended {
            return;
        }
        self.ensure_message();
        if let Some(rest) =
            text.and_then(|text| text.strip_prefix(self.message.raw.as_str())).filter(|rest| !rest.is_empty())
        {
            let rest = rest.to_owned();
            self.text(&rest);
        }
        self.send_reasoning();
        self.finish_parsers();
        let rest = self.message.gate.finish();
        self.show(&rest);
        let silent = self.message.gate.is_silent() && self.message.visible.is_empty();
        if !silent && self.message.visible.trim().is_empty() && !self.message.raw.is_empty() {
            self.show_whole();
        }
        self.judge_repeat();
        let chunks = self.message.chunker.finish();
        self.chunks(chunks, self.options.drain == DrainPoint::TextEnd);
        self.media_only();
        self.settle_held();
        self.flush();
        self.message.ended = true;
        self.pacer.push(QueueItem::Closed { message: self.number, silent }, false);
    }

    /// Nothing was visible while it streamed: what the whole text shows is sent, such as reasoning that was never closed.
    fn show_whole(&mut self) {
        let options = TagOptions { enforce_final: self.options.enforce_final };
        self.message.parser.begin_again();
        self.message.gate = SilenceGate::new();
        let parser = &mut self.message.parser;
        let segments = visible_segments(&self.message.raw, options);
        let mut directives: Vec<_> = segments.iter().flat_map(|segment| parser.push(segment)).collect();
        directives.extend(parser.finish());
        if self.message.media_count > 0 {
            // They were found while it streamed.
            directives.retain(|found| !matches!(found, Directive::Media { .. } | Directive::MissingMedia));
        }
        self.directives(directives);
        let rest = self.message.gate.finish();
        self.show(&rest);
    }

    fn drop_message(&mut self) {
        if self.begun <= self.number || self.message.ended {
            return;
        }
        let number = self.number;
        self.pacer.retain(|queued| !matches!(queued, QueueItem::Block { message, .. } if *message == number));
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.flush();
        }
        let left = self.left.clone();
        match &self.message.repeat {
            Repeat::Digest(..) | Repeat::Length(_) => self.resumed = Some(left),
            // Less of it came than had left before.
            Repeat::Text(expected, _) => self.retry = Some((expected.clone(), left)),
            Repeat::Nothing => {
                let text = self.message.visible.get(..left.end).unwrap_or(&self.message.visible);
                self.retry = Some((text.to_owned(), left));
            }
        }
        self.message.ended = true;
        self.begun = number;
    }

    fn finish_parsers(&mut self) {
        let segments = self.message.stripper.finish();
        self.segments(&segments);
        let directives = self.message.parser.finish();
        self.directives(directives);
    }

    fn segments(&mut self, segments: &[Segment]) {
        for segment in segments {
            let directives = self.message.parser.push(segment);
            self.directives(directives);
        }
    }

    fn directives(&mut self, directives: Vec<Directive>) {
        for directive in directives {
            match directive {
                Directive::Text(text) => {
                    let text = self.message.gate.push(&text);
                    self.show(&text);
                }
                Directive::ReplyTo(ReplyTarget::Current) => {
                    self.message.explicit.get_or_insert(ReplyTarget::Current);
                }
                Directive::ReplyTo(target) => self.message.explicit = Some(target),
                Directive::Voice => self.message.voice = true,
                Directive::MissingMedia => self.before_media(),
                Directive::Media { named, source } => {
                    self.before_media();
                    if self.sent.contains_media(&named) || self.sent.contains_media(&source) {
                        continue;
                    }
                    let comes_again = self.message.media_count <= self.message.repeated_media;
                    if comes_again || matches!(self.message.repeat, Repeat::Digest(..)) {
                        self.message.held_media.push((self.message.media_count, source));
                    } else {
                        self.message.media.push((self.message.media_count, source));
                    }
                }
                Directive::Leak => {
                    self.message.chunker.reset();
                    self.message.media.clear();
                    self.message.held_media.clear();
                    self.message.held.clear();
                    self.message.gate = SilenceGate::new();
                    self.message.visible_start = self.message.visible.len();
                    let number = self.number;
                    self.pacer.retain(|queued| match queued {
                        QueueItem::Block { message, block } => *message != number || block.reasoning,
                        _ => true,
                    });
                    if let Some(coalescer) = &mut self.coalescer {
                        coalescer.flush();
                    }
                }
            }
        }
    }

    /// Media stand here: no text before them is the silent token.
    fn before_media(&mut self) {
        let text = self.message.gate.release();
        self.show(&text);
        self.message.media_count += 1;
    }

    /// Text that is to be sent.
    fn show(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if std::mem::take(&mut self.message.between_texts) && !self.message.visible.ends_with('\n') {
            self.give("\n\n");
        }
        self.give(text);
    }

    fn give(&mut self, text: &str) {
        let message = &mut self.message;
        message.visible.push_str(text);
        match &mut message.repeat {
            Repeat::Nothing => self.chunk(text),
            Repeat::Length(left) => {
                let mut skip = text.len().min(*left);
                while !text.is_char_boundary(skip) {
                    skip += 1;
                }
                *left = left.saturating_sub(skip);
                if *left == 0 {
                    message.repeat = Repeat::Nothing;
                }
                message.chunker.pass(&text[..skip]);
                let rest = text[skip..].to_owned();
                self.chunk(&rest);
            }
            Repeat::Text(expected, came) => {
                let same = text.len().min(expected.len() - *came);
                if expected.as_bytes()[*came..*came + same] != text.as_bytes()[..same] {
                    self.send_anew();
                    return;
                }
                *came += same;
                if *came == expected.len() {
                    message.repeat = Repeat::Nothing;
                }
                message.chunker.pass(&text[..same]);
                let rest = text[same..].to_owned();
                self.chunk(&rest);
            }
            Repeat::Digest(length, _) if message.visible.len() < *length => {}
            Repeat::Digest(..) => self.judge_repeat(),
        }
    }

    /// Sends what waited until it was known whether text comes again that was sent before a crash: what follows it, or all.
    fn judge_repeat(&mut self) {
        let (length, digest) = match &self.message.repeat {
            Repeat::Digest(length, digest) => (length, digest),
            // It ends before it has said all that left.
            Repeat::Text(expected, came) if !expected[*came..].trim().is_empty() => return self.send_anew(),
            Repeat::Text(..) | Repeat::Length(_) | Repeat::Nothing => return,
        };
        let message = &self.message;
        let again =
            message.visible.get(..*length).filter(|text| TextDigest::default().of(text, *length) == *digest);
        let Some(again) = again.map(str::to_owned) else { return self.send_anew() };
        let rest = message.visible[again.len()..].to_owned();
        self.message.repeat = Repeat::Nothing;
        self.message.chunker.pass(&again);
        self.chunk(&rest);
        let held = std::mem::take(&mut self.message.held_media);
        let repeated = self.message.repeated_media;
        self.message.media.extend(held.into_iter().filter(|(number, _)| *number > repeated));
    }

    /// It is another answer than the one of which something was sent: it is sent whole.
    fn send_anew(&mut self) {
        let message = &mut self.message;
        message.repeat = Repeat::Nothing;
        message.chunker = Chunker::new(self.options.chunks);
        message.chunked_from = message.visible_start;
        (message.repeated_media, message.media_end) = (0, 0);
        let held = std::mem::take(&mut message.held_media);
        let whole = message.visible[message.visible_start..].to_owned();
        (self.left.end, self.left.media) = (0, 0);
        self.chunk(&whole);
        self.message.media.extend(held);
    }

    fn chunk(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if !self.message.media.is_empty() && !text.trim().is_empty() {
            let chunks = self.message.chunker.finish();
            self.chunks(chunks, true);
            self.media_only();
        }
        self.message.chunker.append(text);
    }

    fn chunks(&mut self, chunks: Vec<Chunk>, paced: bool) {
        let last = chunks.len();
        let ends = !self.message.chunker.has_text();
        for (index, chunk) in chunks.into_iter().enumerate() {
            let mut media = Vec::new();
            if index + 1 == last && ends {
                media = self.message.take_media();
            }
            let (end, digest) = self.sent_until(chunk.source.end);
            let voice = self.message.voice && !media.is_empty();
            let from = self.message.chunked_from.saturating_add(chunk.source.start);
            let media_end = self.message.media_end;
            let block = Block { text: chunk.text, media, voice, end, media_end, digest, ..Block::default() };
            let Chunk { reopened, closed, .. } = chunk;
            self.block(Piece { block, source: from..end, reopened, closed, paced });
        }
    }

    /// Media that no text goes with.
    fn media_only(&mut self) {
        if !self.message.media.is_empty() {
            let media = self.message.take_media();
            let media_end = self.message.media_end;
            let (end, digest) = self.sent_until(self.message.chunker.position());
            let block =
                Block { media, voice: self.message.voice, end, media_end, digest, ..Block::default() };
            self.block(Piece { block, source: end..end, reopened: 0, closed: 0, paced: true });
        }
    }

    /// Where in the visible text a place of the chunker is, and the digest of what comes before it.
    fn sent_until(&mut self, position: usize) -> (usize, String) {
        let message = &mut self.message;
        let end = message.chunked_from.saturating_add(position);
        let digest = match self.options.drain {
            DrainPoint::TextEnd => message.digest.of(&message.visible, end),
            // All of it leaves at once.
            DrainPoint::MessageEnd => String::new(),
        };
        (end, digest)
    }

    /// Reasoning as messages of its own, each line in italics.
    fn send_reasoning(&mut self) {
        let reasoning = std::mem::take(&mut self.message.reasoning);
        if reasoning.trim().is_empty() || (self.left.parts > 0 && !self.message.any_block) {
            return;
        }
        let mut text = "Reasoning:".to_owned();
        for line in reasoning.lines().map(str::trim).filter(|line| !line.is_empty()) {
            text.push_str("\n_");
            text.push_str(line);
            text.push('_');
        }
        let mut chunker = Chunker::new(self.options.chunks);
        chunker.append(&text);
        for chunk in chunker.finish() {
            let block = Block { text: chunk.text, reasoning: true, ..Block::default() };
            self.enqueue(block, self.options.drain == DrainPoint::TextEnd);
        }
    }

    /// A block that may repeat what a messaging tool sent waits until it is known whether all of that is repeated.
    fn block(&mut self, piece: Piece) {
        let held = self.message.held.first().map(|first| first.source.start);
        if held.is_some_and(|from| self.repeats(from..piece.source.end)) {
            return self.message.held.push(piece);
        }
        self.settle_held();
        match self.repeats(piece.source.clone()) {
            true => self.message.held.push(piece),
            false => self.pass(piece),
        }
    }

    /// Whether this part of the visible text stands in something that a messaging tool sent.
    fn repeats(&self, source: Range<usize>) -> bool {
        self.message.visible.get(source).is_some_and(|text| self.sent.covers(text))
    }

    /// Drops what waits, if it is what a messaging tool sent, or lets it leave.
    fn settle_held(&mut self) {
        let held = std::mem::take(&mut self.message.held);
        let (Some(first), Some(last)) = (held.first(), held.last()) else { return };
        let text = self.message.visible.get(first.source.start..last.source.end);
        let is_repeated = text.is_some_and(|text| self.sent.contains(text));
        for mut piece in held {
            if is_repeated {
                piece.block.text.clear();
            }
            self.pass(piece);
        }
    }

    fn pass(&mut self, piece: Piece) {
        let Piece { mut block, source, reopened, closed, paced } = piece;
        let first = !std::mem::replace(&mut self.message.any_block, true);
        if first
            && self.last_text.ends_with(':')
            && let Some(rest) = block.text.strip_prefix(self.last_text.as_str())
        {
            block.text = rest.trim_start().to_owned();
        }
        let reached = self.options.target.as_deref().is_some_and(|target| self.sent.reached(target));
        if self.sent.contains(&block.text) || (!paced && reached) {
            block.text.clear();
        }
        if block.is_empty() {
            return;
        }
        block.text = block.text.trim_start_matches(['\n', '\r']).trim_end().to_owned();
        block.reply_to.clone_from(&self.message.explicit);
        if !block.text.is_empty() {
            self.last_text.clone_from(&block.text);
        }
        let gap = self.message.gap_before(source, reopened, closed);
        match &mut self.coalescer {
            Some(coalescer) => {
                for block in coalescer.push(block, &Seam { gap, reopened, closed }, self.elapsed) {
                    self.enqueue(block, paced);
                }
            }
            None => self.enqueue(block, paced),
        }
    }

    fn enqueue(&mut self, mut block: Block, paced: bool) {
        block.reply_to = self.reply_target(block.reply_to.take());
        self.pacer.push(QueueItem::Block { message: self.number, block }, paced);
    }

    fn reply_target(&mut self, explicit: Option<ReplyTarget>) -> Option<ReplyTarget> {
        let answers = match self.options.reply_mode {
            ReplyMode::Off => false,
            ReplyMode::Explicit => explicit.is_some(),
            ReplyMode::First => !self.any_reply,
            ReplyMode::All => true,
        };
        self.any_reply = true;
        if !answers {
            return None;
        }
        match explicit.unwrap_or(ReplyTarget::Current) {
            ReplyTarget::Current => {
                Some(self.options.current_message.clone().map_or(ReplyTarget::Current, ReplyTarget::Id))
            }
            target @ ReplyTarget::Id(_) => Some(target),
        }
    }

    fn flush(&mut self) {
        let block = self.coalescer.as_mut().and_then(Coalescer::flush);
        self.queue(block);
    }

    fn queue(&mut self, block: Option<Block>) {
        if let Some(block) = block {
            self.enqueue(block, self.options.drain == DrainPoint::TextEnd);
        }
    }

    fn release(&mut self) -> Vec<StreamOutput> {
        let queued = self.pacer.take(self.elapsed);
        let mut outputs = Vec::with_capacity(queued.len());
        for queued in queued {
            outputs.push(match queued {
                QueueItem::Flushed => StreamOutput::Flushed,
                QueueItem::Closed { message, silent } => {
                    StreamOutput::Closed { key: ReplyKey::of(&self.run, message), silent }
                }
                QueueItem::Block { message, mut block } => {
                    if self.sending.0 != message {
                        self.sending = (message, 0);
                    }
                    let part = self.sending.1;
                    self.sending.1 += 1;
                    if message == self.number {
                        self.left.parts = part + 1;
                        self.left.end = self.left.end.max(block.end);
                        self.left.media = self.left.media.max(block.media_end);
                        block.files = self.message.parser.take_judged_files();
                        self.left.files.extend_from_slice(&block.files);
                    }
                    StreamOutput::Block { key: ReplyKey::of(&self.run, message), part, block }
                }
            });
        }
        outputs
    }
}
