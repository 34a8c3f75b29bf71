//! Directives in the text of a reply: the message that it answers, voice, media.

use std::collections::BTreeMap;
use std::mem;
use std::ops::Range;

use crate::block::ReplyTarget;
use crate::media::{MediaCheck, NamedFile, is_address, named_source};
use crate::tags::{Segment, TagOptions, TagStripper};

/// The longest tag in double brackets, in bytes: an address can be in it.
const TAG_MOST: usize = 4200;
/// The longest line that can name media, in bytes.
const LINE_MOST: usize = 4400;
/// The longest id of a message, in characters.
const ID_MOST: usize = 256;
const MEDIA: &str = "MEDIA:";

/// A piece of a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Directive {
    /// Text to send.
    Text(String),
    /// The message that the rest answers.
    ReplyTo(ReplyTarget),
    /// Audio is sent as a voice message.
    Voice,
    /// Media that follow the text so far.
    Media {
        /// As the text names them.
        named: String,
        /// What is sent.
        source: String,
    },
    /// A file that could be sent when the same text came before, and is not there any more.
    MissingMedia,
    /// All text before this is not to be sent.
    Leak,
}

/// Takes the directives out of one message. What it gives is the same in whatever pieces the text arrives.
#[derive(Debug, Clone, Default)]
pub struct DirectiveParser {
    held: String,
    /// What of it is code.
    held_code: Vec<Range<usize>>,
    /// The last character given; none at the start of the message.
    last: Option<char>,
    /// The text continues in the middle of a line.
    in_line: bool,
    /// A directive was taken out here.
    joint: bool,
    check: Option<MediaCheck>,
    /// Files that were judged, by name: whether they may be sent.
    judged: BTreeMap<String, bool>,
    /// Those of them that were not asked for.
    newly_judged: Vec<NamedFile>,
}

impl DirectiveParser {
    /// For one message.
    pub fn new() -> Self {
        Self::default()
    }

    /// For one message. Where there is a check, what names a file that does not pass it is text.
    pub fn checking(check: Option<MediaCheck>) -> Self {
        Self { check, ..Self::default() }
    }

    /// These files were judged when the message came before: text that names them is read as it was then.
    pub fn knows_files(&mut self, files: &[NamedFile]) {
        self.judged.extend(files.iter().map(|file| (file.name.clone(), file.may_be_sent)));
    }

    /// The files that were judged since this was asked last.
    pub fn take_judged_files(&mut self) -> Vec<NamedFile> {
        mem::take(&mut self.newly_judged)
    }

    /// The message is read anew from its beginning. Its files stay judged.
    pub(crate) fn begin_again(&mut self) {
        let judged = mem::take(&mut self.judged);
        let newly_judged = mem::take(&mut self.newly_judged);
        *self = Self { judged, newly_judged, ..Self::checking(self.check.take()) };
    }

    /// What is certain after this segment.
    pub fn push(&mut self, segment: &Segment) -> Vec<Directive> {
        let mut out = Vec::new();
        match segment {
            Segment::Text(text) => {
                self.held.push_str(text);
                self.read(false, &mut out);
            }
            // A path in backticks belongs to its line.
            Segment::Code(code) if self.holds_media_line() && !code.contains('\n') => {
                let begin = self.held.len();
                self.held.push_str(code);
                self.held_code.push(begin..self.held.len());
                self.read(false, &mut out);
            }
            Segment::Code(code) => {
                self.read(true, &mut out);
                self.give(code, &mut out);
                self.in_line = !code.ends_with('\n');
            }
            Segment::Leak => {
                self.held.clear();
                self.held_code.clear();
                self.last = None;
                self.in_line = false;
                self.joint = false;
                out.push(Directive::Leak);
            }
        }
        out
    }

    /// What was held back: the text ends here. Another text of the same message can follow.
    pub fn finish(&mut self) -> Vec<Directive> {
        let mut out = Vec::new();
        self.read(true, &mut out);
        self.in_line = false;
        out
    }

    fn holds_media_line(&self) -> bool {
        !self.in_line && matches!(media_line(&self.held), MediaScan::Line(_))
    }

    fn read(&mut self, finish: bool, out: &mut Vec<Directive>) {
        let text = mem::take(&mut self.held);
        let mut code = mem::take(&mut self.held_code);
        let mut at = 0;
        while at < text.len() {
            if !self.in_line {
                match self.step_line(&text[at..], finish, out) {
                    LineStep::Wait => break,
                    LineStep::Media(length) => at += length,
                    LineStep::Text => self.in_line = true,
                }
                continue;
            }
            let used = match code.iter().find(|code| code.end > at) {
                Some(code) if code.start <= at => {
                    self.give(&text[at..code.end], out);
                    code.end - at
                }
                Some(code) => self.step(&text[at..code.start], true, out),
                None => self.step(&text[at..], finish, out),
            };
            if used == 0 {
                break;
            }
            at += used;
        }
        code.retain(|code| code.start >= at);
        self.held_code = code.into_iter().map(|code| code.start - at..code.end - at).collect();
        text[at..].clone_into(&mut self.held);
    }

    /// Reads the beginning of a line.
    fn step_line(&mut self, text: &str, finish: bool, out: &mut Vec<Directive>) -> LineStep {
        let source = match media_line(text) {
            MediaScan::Prefix if !finish => return LineStep::Wait,
            MediaScan::Prefix | MediaScan::Text => return LineStep::Text,
            MediaScan::Line(source) => source,
        };
        let line = source.find('\n');
        let length = text.len() - source.len() + line.map_or(source.len(), |line| line + 1);
        if length > LINE_MOST {
            return LineStep::Text;
        }
        if line.is_none() && !finish {
            return LineStep::Wait;
        }
        let Some(media) = self.media(&source[..line.unwrap_or(source.len())]) else { return LineStep::Text };
        out.push(media);
        self.joint = true;
        LineStep::Media(length)
    }

    fn step(&mut self, text: &str, finish: bool, out: &mut Vec<Directive>) -> usize {
        let mark = text.find(['[', '\n', '\r']).unwrap_or(text.len());
        if mark > 0 {
            self.give(&text[..mark], out);
            return mark;
        }
        match text.as_bytes()[0] {
            b'\n' => {
                self.give("\n", out);
                self.in_line = false;
                1
            }
            b'\r' => match text.as_bytes().get(1) {
                None if !finish => 0,
                Some(b'\n') => {
                    self.give("\n", out);
                    self.in_line = false;
                    2
                }
                _ => {
                    self.give("\r", out);
                    1
                }
            },
            _ => self.step_bracket(text, finish, out),
        }
    }

    fn step_bracket(&mut self, text: &str, finish: bool, out: &mut Vec<Directive>) -> usize {
        let Some(inner) = text.strip_prefix("[[") else {
            if text.len() == 1 && !finish {
                return 0;
            }
            self.give("[", out);
            return 1;
        };
        let mut end = None;
        let mut stopped = false;
        for (at, character) in inner.char_indices() {
            if at > TAG_MOST || matches!(character, '\n' | '[') {
                stopped = true;
                break;
            }
            if character == ']' {
                match inner.as_bytes().get(at + 1) {
                    Some(b']') => end = Some(at),
                    Some(_) => stopped = true,
                    None => {}
                }
                break;
            }
        }
        let Some(end) = end else {
            if stopped || finish {
                self.give("[", out);
                return 1;
            }
            return 0;
        };
        match self.tag(&inner[..end]) {
            Some(directive) => {
                out.push(directive);
                self.joint = true;
                end + 4
            }
            None => {
                self.give("[", out);
                1
            }
        }
    }

    fn tag(&mut self, inner: &str) -> Option<Directive> {
        let inner = inner.trim();
        let (name, value) = match inner.split_once(':') {
            Some((name, value)) => (name.trim_end(), Some(value.trim())),
            None => (inner, None),
        };
        let name = if name.len() > 32 { return None } else { name.to_ascii_lowercase() };
        match (name.as_str(), value) {
            ("reply_to_current", None) => Some(Directive::ReplyTo(ReplyTarget::Current)),
            ("audio_as_voice" | "voice", None) => Some(Directive::Voice),
            ("reply_to" | "reply", Some(id)) => {
                let id: String = id
                    .chars()
                    .filter(|character| !character.is_control() && !matches!(character, '[' | ']'))
                    .take(ID_MOST)
                    .collect();
                let id = id.trim();
                (!id.is_empty()).then(|| Directive::ReplyTo(ReplyTarget::Id(id.to_owned())))
            }
            ("media", Some(source)) => self.media(source),
            _ => None,
        }
    }

    /// What names a source, if it does and that may be sent. A file is judged once in a message.
    fn media(&mut self, text: &str) -> Option<Directive> {
        let named = named_source(text, self.check.is_some())?;
        let Some(check) = self.check.as_ref().filter(|_| !is_address(&named)) else {
            return Some(Directive::Media { source: named.clone(), named });
        };
        let known = self.judged.get(&named).copied();
        let file = if known == Some(false) { None } else { check.source(&named) };
        let may_be_sent = known.unwrap_or(file.is_some());
        if known.is_none() {
            self.judged.insert(named.clone(), may_be_sent);
            self.newly_judged.push(NamedFile { name: named.clone(), may_be_sent });
        }
        match file {
            Some(source) => Some(Directive::Media { named, source }),
            None => may_be_sent.then_some(Directive::MissingMedia),
        }
    }

    /// Gives text; around a directive that was taken out, words stay apart and blanks are not doubled.
    fn give(&mut self, text: &str, out: &mut Vec<Directive>) {
        let mut text = text;
        if self.last.is_none() {
            text = text.trim_start_matches(['\n', '\r']);
        }
        let mut space = false;
        if self.joint {
            if self.last.is_none_or(char::is_whitespace) {
                text = text.trim_start_matches([' ', '\t']);
                if self.last.is_none() {
                    text = text.trim_start_matches(['\n', '\r']);
                }
            }
            if text.is_empty() {
                return;
            }
            space =
                self.last.is_some_and(|last| !last.is_whitespace()) && !text.starts_with(char::is_whitespace);
            self.joint = false;
        }
        if text.is_empty() {
            return;
        }
        self.last = text.chars().next_back();
        if !matches!(out.last(), Some(Directive::Text(_))) {
            out.push(Directive::Text(String::new()));
        }
        if let Some(Directive::Text(given)) = out.last_mut() {
            if space {
                given.push(' ');
            }
            given.push_str(text);
        }
    }
}

/// The directives of a whole text, without tags taken out.
pub fn parse_directives(text: &str) -> Vec<Directive> {
    let mut stripper = TagStripper::literal(TagOptions::default());
    let mut parser = DirectiveParser::new();
    let mut segments = stripper.push(text);
    segments.extend(stripper.finish());
    let mut directives: Vec<_> = segments.iter().flat_map(|segment| parser.push(segment)).collect();
    directives.extend(parser.finish());
    directives
}

/// What the beginning of a line is.
enum LineStep {
    /// More text must come first.
    Wait,
    /// So many bytes that name media.
    Media(usize),
    Text,
}

enum MediaScan<'a> {
    Line(&'a str),
    Prefix,
    Text,
}

fn media_line(text: &str) -> MediaScan<'_> {
    let line = text.trim_start_matches(' ');
    let indent = text.len() - line.len();
    if indent > 3 {
        return MediaScan::Text;
    }
    let length = line.len().min(MEDIA.len());
    match line.as_bytes()[..length].eq_ignore_ascii_case(&MEDIA.as_bytes()[..length]) {
        true if length == MEDIA.len() => MediaScan::Line(&line[MEDIA.len()..]),
        true => MediaScan::Prefix,
        false => MediaScan::Text,
    }
}
