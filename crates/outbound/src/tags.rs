//! Reasoning, markers of the final answer and control tokens taken out of a stream of text, in whatever pieces it arrives.

use std::mem;

use crate::markers::{
    ARGUMENTS_MOST, MarkerScan, ObjectEnd, OpenObject, TAG_MOST, UNENDED_MOST, scan_marker,
};

/// A run of backticks that no equal run follows within this many bytes is text, and so is an opening line of a fence that is longer.
const CODE_MOST: usize = 1024;
/// The longest control token, in bytes.
const TOKEN_MOST: usize = 128;

const THINKING: &[&str] =
    &["think", "thinking", "thought", "antthinking", "antml:think", "antml:thinking", "antml:thought"];
const MEMORIES: &[&str] = &["relevant-memories", "relevant_memories"];
const CALLS: &[&str] = &[
    "tool_call",
    "tool_calls",
    "tool_result",
    "function_call",
    "function_calls",
    "function_response",
    "function",
];
const FINAL: &[&str] = &["final"];

/// How tags are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TagOptions {
    /// Only what stands between `<final>` and `</final>` is visible; without these tags, nothing.
    pub enforce_final: bool,
}

/// Visible text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// Text outside code.
    Text(String),
    /// Code in a line or a fenced block, with its marks. Nothing in it is a tag or a directive.
    Code(String),
    /// All visible text before this was reasoning whose opening tag is missing.
    Leak,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Thinking,
    Memories,
    Calls,
    Final,
    Token,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagScan {
    Tag {
        length: usize,
        family: Family,
        closing: bool,
        empty: bool,
    },
    /// It may become a tag.
    Unfinished,
    Text,
}

/// Takes the tags out of one message. What it gives is the same in whatever pieces the text arrives.
///
/// ```
/// use quipu_outbound::{Segment, TagOptions, TagStripper};
///
/// let mut stripper = TagStripper::new(TagOptions::default());
/// let mut segments = stripper.push("Hello <th");
/// segments.extend(stripper.push("ink>secret</think>you"));
/// segments.extend(stripper.finish());
/// assert_eq!(segments, [Segment::Text("Hello ".to_owned()), Segment::Text("you".to_owned())]);
/// ```
#[derive(Debug, Clone)]
pub struct TagStripper {
    options: TagOptions,
    nested: bool,
    /// Removes no tag; only distinguishes code from text.
    literal: bool,
    /// Text whose meaning depends on what follows.
    held: String,
    /// Bytes of it that have no mark that decides.
    searched: usize,
    hidden: Option<Family>,
    depth: usize,
    /// What the block that is open hides; kept for whole texts only.
    hidden_text: String,
    fence: Option<(u8, usize)>,
    line_start: bool,
    in_final: bool,
    any_visible: bool,
    orphan: bool,
    /// The arguments of a call that is written as text.
    object: OpenObject,
    /// How often such arguments had no end.
    unended: u8,
    /// A closing tag was taken for code in the reasoning that is open.
    quoted_close: bool,
    /// Closing tags of reasoning count in code.
    closes_in_code: bool,
    /// A control token was taken out, and this was the character before it.
    glued_to: Option<char>,
    last: Option<char>,
}

impl TagStripper {
    /// For one message.
    pub fn new(options: TagOptions) -> Self {
        Self {
            options,
            nested: false,
            literal: false,
            held: String::new(),
            searched: 0,
            hidden: None,
            depth: 0,
            hidden_text: String::new(),
            fence: None,
            line_start: true,
            in_final: false,
            any_visible: false,
            orphan: false,
            object: OpenObject::default(),
            unended: 0,
            quoted_close: false,
            closes_in_code: false,
            glued_to: None,
            last: None,
        }
    }

    /// Takes nothing out: for text whose tags are gone.
    pub(crate) fn literal(options: TagOptions) -> Self {
        Self { literal: true, ..Self::new(options) }
    }

    /// The visible text that is certain after this piece.
    pub fn push(&mut self, text: &str) -> Vec<Segment> {
        self.held.push_str(text);
        self.read(false)
    }

    /// What was held back: the text ends here. Half a tag is text, and a fence that is open ends. Another text of the same message
    /// can follow.
    pub fn finish(&mut self) -> Vec<Segment> {
        let segments = self.read(true);
        self.fence = None;
        self.line_start = true;
        segments
    }

    fn read(&mut self, finish: bool) -> Vec<Segment> {
        let mut text = mem::take(&mut self.held);
        let mut out = Vec::new();
        let mut at = 0;
        while at < text.len() {
            let used = self.step(&text[at..], finish, &mut out);
            if used == 0 {
                break;
            }
            self.searched = 0;
            at += used;
        }
        // What waits can be long, and is not copied where nothing came of this piece.
        text.drain(..at);
        self.held = text;
        out
    }

    /// Reads one unit of the text; returns its bytes, or none when more text must come first.
    fn step(&mut self, text: &str, finish: bool, out: &mut Vec<Segment>) -> usize {
        if let Some(family) = self.hidden {
            return self.step_hidden(family, text, finish);
        }
        if self.fence.is_some() {
            return self.step_fence(text, finish, out);
        }
        if self.line_start {
            match opening_fence(text, finish) {
                FenceScan::Opens { mark, count, length } => {
                    self.fence = Some((mark, count));
                    self.line_start = text[..length].ends_with('\n');
                    self.show(&text[..length], true, out);
                    return length;
                }
                FenceScan::Unfinished => return 0,
                FenceScan::Text => {}
            }
        }
        let Some(mark) = text.find(['<', '`', '\n', '[']) else {
            self.show(text, false, out);
            self.line_start = false;
            return text.len();
        };
        if mark > 0 {
            self.show(&text[..mark], false, out);
            self.line_start = false;
            return mark;
        }
        match text.as_bytes()[0] {
            b'\n' => {
                self.show("\n", false, out);
                self.line_start = true;
                1
            }
            b'`' => {
                let (length, code) = self.backticks(text, finish);
                self.show(&text[..length], code, out);
                self.line_start &= length == 0;
                length
            }
            b'[' => self.step_marker(text, finish, out),
            _ => self.step_tag(text, finish, out),
        }
    }

    fn step_tag(&mut self, text: &str, finish: bool, out: &mut Vec<Segment>) -> usize {
        let scan = if self.literal { TagScan::Text } else { scan_tag(text, finish) };
        let (length, family, closing, empty) = match scan {
            TagScan::Unfinished => return 0,
            TagScan::Text => {
                self.show("<", false, out);
                self.line_start = false;
                return 1;
            }
            TagScan::Tag { length, family, closing, empty } => (length, family, closing, empty),
        };
        match family {
            Family::Token => {
                self.glued_to = self.last.filter(|last| !last.is_whitespace());
            }
            Family::Final => {
                if empty {
                    self.in_final = !self.in_final;
                } else {
                    self.in_final = !closing;
                }
            }
            Family::Thinking | Family::Memories if closing => {
                self.orphan |= self.any_visible && family == Family::Thinking;
            }
            Family::Thinking | Family::Memories => {
                if !empty {
                    self.hide(family);
                }
            }
            Family::Calls => {
                let mut after = text[length..].chars().take(TAG_MOST);
                let payload = after.by_ref().find(|character| !character.is_whitespace());
                if payload.is_none() && !finish && text[length..].chars().take(TAG_MOST).count() < TAG_MOST {
                    return 0;
                }
                if closing || empty || !matches!(payload, Some('{' | '[' | '<')) {
                    self.show(&text[..length], false, out);
                    self.line_start = false;
                } else {
                    self.hide(family);
                }
            }
        }
        length
    }

    fn step_marker(&mut self, text: &str, finish: bool, out: &mut Vec<Segment>) -> usize {
        let is_bracketed = self.last == Some('[');
        match if self.literal || is_bracketed { MarkerScan::Text } else { scan_marker(text, finish) } {
            MarkerScan::Unfinished => 0,
            MarkerScan::Text => {
                self.show("[", false, out);
                self.line_start = false;
                1
            }
            MarkerScan::Marker { length, has_arguments } => {
                let length = match has_arguments.then(|| self.arguments(text, length)) {
                    None => length,
                    Some(ObjectEnd::At(end)) => end,
                    Some(ObjectEnd::Open) if !finish => return 0,
                    // What has no end is the text of the answer.
                    Some(ObjectEnd::Open | ObjectEnd::None) => {
                        self.unended = self.unended.saturating_add(1);
                        self.show("[", false, out);
                        self.line_start = false;
                        return 1;
                    }
                };
                self.glued_to = self.last.filter(|last| !last.is_whitespace());
                length
            }
        }
    }

    /// Where the arguments end that begin there. What is beyond the limit is not looked at, so that the answer is the same in whatever
    /// pieces the text arrives.
    fn arguments(&mut self, text: &str, begin: usize) -> ObjectEnd {
        if self.unended >= UNENDED_MOST {
            return ObjectEnd::None;
        }
        let end = text.floor_char_boundary(begin + ARGUMENTS_MOST);
        let from = match self.searched > begin {
            true => self.searched,
            false => {
                self.object = OpenObject::default();
                begin
            }
        };
        match self.object.end(&text[from..end]) {
            Some(length) => ObjectEnd::At(from + length),
            None if end == text.len() && end < begin + ARGUMENTS_MOST => {
                self.searched = end;
                ObjectEnd::Open
            }
            None => ObjectEnd::None,
        }
    }

    fn hide(&mut self, family: Family) {
        self.hidden = Some(family);
        self.depth = 1;
        self.quoted_close = false;
        self.hidden_text.clear();
    }

    fn step_hidden(&mut self, family: Family, text: &str, finish: bool) -> usize {
        let Some(mark) = text.find(['<', '`']) else {
            self.keep_hidden(text);
            return text.len();
        };
        if mark > 0 {
            self.keep_hidden(&text[..mark]);
            return mark;
        }
        if text.starts_with('`') {
            if family != Family::Thinking {
                self.keep_hidden("`");
                return 1;
            }
            let (length, code) = self.backticks(text, finish);
            let count = run_of(&text.as_bytes()[..text.len().min(CODE_MOST)], b'`');
            let close = match (length, code) {
                (0, false) => hidden_close(text, count, None, self.closes_in_code),
                (_, true) => hidden_close(text, count, Some(length), self.closes_in_code),
                (_, false) => HiddenClose::None,
            };
            // A run that reaches past the end of the reasoning pairs with nothing in it.
            let length = match close {
                HiddenClose::None => length,
                HiddenClose::Quoted => {
                    self.quoted_close = true;
                    length
                }
                HiddenClose::Real => count,
            };
            self.keep_hidden(&text[..length]);
            return length;
        }
        match scan_tag(text, finish) {
            TagScan::Unfinished => 0,
            TagScan::Tag { length, family: found, closing, empty } if found == family => {
                if closing {
                    self.depth = if self.nested { self.depth.saturating_sub(1) } else { 0 };
                    if self.depth == 0 {
                        self.hidden = None;
                        self.hidden_text.clear();
                        self.line_start = self.last.is_none_or(|last| last == '\n');
                    }
                } else if !empty {
                    self.depth += 1;
                }
                length
            }
            // What only the final answer may end: reasoning that was never closed.
            TagScan::Tag { length, family: Family::Final, closing: false, .. }
                if self.options.enforce_final =>
            {
                self.hidden = None;
                self.in_final = true;
                self.line_start = self.last.is_none_or(|last| last == '\n');
                length
            }
            TagScan::Tag { .. } | TagScan::Text => {
                self.keep_hidden("<");
                1
            }
        }
    }

    fn keep_hidden(&mut self, text: &str) {
        if self.nested {
            self.hidden_text.push_str(text);
        }
    }

    fn step_fence(&mut self, text: &str, finish: bool, out: &mut Vec<Segment>) -> usize {
        let Some((mark, count)) = self.fence else { return 0 };
        let newline = text.find('\n');
        let line = &text[..newline.map_or(text.len(), |newline| newline + 1)];
        if self.line_start {
            let run = line.trim_start_matches(' ');
            let indent = line.len() - run.len();
            let marks = run.bytes().take_while(|byte| *byte == mark).count();
            let may_close = indent < 4 && run[marks..].trim().is_empty() && line.len() < CODE_MOST;
            if newline.is_none() && !finish && may_close {
                return 0;
            }
            if may_close && marks >= count {
                self.fence = None;
            }
        }
        self.line_start = newline.is_some();
        self.show(line, true, out);
        line.len()
    }

    /// A run of backticks and what it encloses; only the run when nothing does, and nothing when more text must come first.
    /// What is beyond the limit is not looked at, so that the answer is the same in whatever pieces the text arrives.
    fn backticks(&mut self, text: &str, finish: bool) -> (usize, bool) {
        let bytes = &text.as_bytes()[..text.len().min(CODE_MOST)];
        let end = bytes.len();
        let whole = finish || end == CODE_MOST;
        let count = run_of(bytes, b'`');
        // In reasoning, fenced blocks are read here too.
        let over_paragraphs = self.hidden.is_some() && count >= 3;
        let mut at = count.max(self.searched);
        while at < end {
            let next = match bytes[at] {
                b'`' => {
                    let run = run_of(&bytes[at..], b'`');
                    if run == count && (at + run < end || end < CODE_MOST && finish) {
                        return (at + run, true);
                    }
                    at + run
                }
                b'\n' => {
                    let blanks = bytes[at + 1..]
                        .iter()
                        .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\r'))
                        .count();
                    let next = at + 1 + blanks;
                    if bytes.get(next) == Some(&b'\n') && !over_paragraphs {
                        return (count, false);
                    }
                    next
                }
                _ => at + 1,
            };
            if next == end && !whole {
                break;
            }
            at = next;
        }
        if whole {
            return (count, false);
        }
        self.searched = at;
        (0, false)
    }

    fn show(&mut self, text: &str, code: bool, out: &mut Vec<Segment>) {
        if text.is_empty() || (self.options.enforce_final && !self.in_final) {
            return;
        }
        let text = if self.orphan { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        if self.orphan {
            self.orphan = false;
            out.push(Segment::Leak);
        }
        let blank = text.trim().is_empty();
        self.any_visible |= !blank;
        let glue = self.glued_to.take().is_some() && !text.starts_with(char::is_whitespace);
        self.last = text.chars().next_back();
        match out.last_mut() {
            Some(Segment::Text(last)) if !code => {
                if glue {
                    last.push(' ');
                }
                last.push_str(text);
            }
            Some(Segment::Code(last)) if code && !glue => last.push_str(text),
            _ if code => {
                if glue {
                    out.push(Segment::Text(" ".to_owned()));
                }
                out.push(Segment::Code(text.to_owned()));
            }
            _ => {
                let mut text = text.to_owned();
                if glue {
                    text.insert(0, ' ');
                }
                out.push(Segment::Text(text));
            }
        }
    }
}

/// The visible text of a whole message. Reasoning in reasoning is counted; reasoning that never ends hides the rest, unless nothing
/// else would be left.
pub fn visible_text(text: &str, options: TagOptions) -> String {
    joined(&visible_segments(text, options)).trim().to_owned()
}

/// The same, with what of it is code, and with blanks at its end.
pub(crate) fn visible_segments(text: &str, options: TagOptions) -> Vec<Segment> {
    let mut segments = segments_by(TagStripper { nested: true, ..TagStripper::new(options) }, text);
    if let Some(Segment::Text(first)) = segments.first_mut() {
        *first = first.trim_start().to_owned();
    }
    segments
}

fn segments_by(mut stripper: TagStripper, text: &str) -> Vec<Segment> {
    let options = stripper.options;
    let mut segments = stripper.push(text);
    segments.extend(stripper.finish());
    if let Some(leak) = segments.iter().rposition(|segment| *segment == Segment::Leak) {
        segments.drain(..=leak);
    }
    if joined(&segments).trim().is_empty() && stripper.hidden == Some(Family::Thinking) {
        if stripper.quoted_close {
            // What was taken for code ended the reasoning: nothing else did.
            let again = TagStripper { nested: true, closes_in_code: true, ..TagStripper::new(options) };
            return segments_by(again, text);
        }
        if !options.enforce_final {
            let mut literal = TagStripper::literal(options);
            segments = literal.push(&stripper.hidden_text);
            segments.extend(literal.finish());
        }
    }
    segments
}

fn joined(segments: &[Segment]) -> String {
    let text = |segment: &Segment| match segment {
        Segment::Text(text) | Segment::Code(text) => text.clone(),
        Segment::Leak => String::new(),
    };
    segments.iter().map(text).collect()
}

enum HiddenClose {
    /// No closing tag is known to stand in what the backticks enclose.
    None,
    /// It is code: each closing tag has an opening one before it, or the backticks enclose a closing tag alone.
    Quoted,
    /// It ends the reasoning.
    Real,
}

/// What the closing tags behind `count` backticks in reasoning are, as far as the text has arrived; `span` is how long the code is that they
/// begin, where they do.
fn hidden_close(text: &str, count: usize, span: Option<usize>, closes_in_code: bool) -> HiddenClose {
    let code = without_language(&text[count..span.map_or(text.len(), |span| span - count)], count);
    let (mut depth, mut any_close) = (0_usize, false);
    for (at, _) in code.match_indices('<') {
        let TagScan::Tag { length, family: Family::Thinking, closing, empty } =
            scan_tag(&code[at..], span.is_some())
        else {
            continue;
        };
        any_close |= closing;
        if closes_in_code && closing {
            return HiddenClose::Real;
        }
        match closing {
            false if empty => {}
            false => depth += 1,
            true if depth > 0 => depth -= 1,
            true => {
                let behind = code[at + length..].trim_start();
                let may_end = behind.is_empty() || span.is_none() && behind.starts_with('`');
                if !code[..at].trim_start().is_empty() || !may_end {
                    return HiddenClose::Real;
                }
            }
        }
    }
    if any_close && span.is_some() { HiddenClose::Quoted } else { HiddenClose::None }
}

/// Code behind so many backticks, without the line that names its language.
fn without_language(code: &str, count: usize) -> &str {
    match code.split_once('\n') {
        Some((language, rest)) if count >= 3 && !language.contains(['<', ' ']) => rest,
        _ => code,
    }
}

enum FenceScan {
    Opens { mark: u8, count: usize, length: usize },
    Unfinished,
    Text,
}

fn opening_fence(text: &str, finish: bool) -> FenceScan {
    let bytes = &text.as_bytes()[..text.len().min(CODE_MOST)];
    let whole = finish || bytes.len() == CODE_MOST;
    let indent = run_of(bytes, b' ');
    let Some(mark) = bytes.get(indent).copied() else {
        return if whole || indent > 3 { FenceScan::Text } else { FenceScan::Unfinished };
    };
    if indent > 3 || !matches!(mark, b'`' | b'~') {
        return FenceScan::Text;
    }
    let count = run_of(&bytes[indent..], mark);
    let run_end = indent + count;
    if run_end == bytes.len() && !whole {
        return FenceScan::Unfinished;
    }
    if count < 3 {
        return FenceScan::Text;
    }
    for (offset, byte) in bytes[run_end..].iter().enumerate() {
        match byte {
            b'\n' => return FenceScan::Opens { mark, count, length: run_end + offset + 1 },
            b'`' if mark == b'`' => return FenceScan::Text,
            _ => {}
        }
    }
    match (bytes.len() == CODE_MOST, finish) {
        (true, _) => FenceScan::Text,
        (false, true) => FenceScan::Opens { mark, count, length: bytes.len() },
        (false, false) => FenceScan::Unfinished,
    }
}

fn run_of(bytes: &[u8], mark: u8) -> usize {
    bytes.iter().take_while(|byte| **byte == mark).count()
}

/// Reads a tag at the start of `text`, which is `<`.
fn scan_tag(text: &str, finish: bool) -> TagScan {
    let unfinished = if finish { TagScan::Text } else { TagScan::Unfinished };
    let rest = &text[1..];
    if rest.starts_with(['|', '｜']) {
        let inner = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
        for (at, character) in inner.char_indices() {
            if at > TOKEN_MOST || matches!(character, '\n' | '<') {
                return TagScan::Text;
            }
            if matches!(character, '|' | '｜') {
                let after = &inner[at + character.len_utf8()..];
                match after.chars().next() {
                    Some('>') if at > 0 => {
                        let length = text.len() - after.len() + 1;
                        return TagScan::Tag { length, family: Family::Token, closing: false, empty: true };
                    }
                    Some(_) => {}
                    None => return unfinished,
                }
            }
        }
        return unfinished;
    }
    let name_from = rest.trim_start_matches([' ', '\t']);
    let (name_from, closing) = match name_from.strip_prefix('/') {
        Some(after) => (after.trim_start_matches([' ', '\t']), true),
        None => (name_from, false),
    };
    if text.len() - name_from.len() > 32 {
        return TagScan::Text;
    }
    let name_length = name_from
        .find(|character: char| !character.is_ascii_alphanumeric() && !matches!(character, '_' | '-' | ':'));
    let name = name_from[..name_length.unwrap_or(name_from.len()).min(32)].to_ascii_lowercase();
    let Some(name_length) = name_length else {
        let families = [THINKING, MEMORIES, CALLS, FINAL];
        let known = families.iter().any(|names| names.iter().any(|known| known.starts_with(&name)));
        return if known && name_from.len() <= 32 { unfinished } else { TagScan::Text };
    };
    let is = |names: &[&str]| names.contains(&name.as_str());
    let family = if is(THINKING) {
        Family::Thinking
    } else if is(FINAL) {
        Family::Final
    } else if is(MEMORIES) {
        Family::Memories
    } else if is(CALLS) {
        Family::Calls
    } else {
        return TagScan::Text;
    };
    let attributes = &name_from[name_length..];
    if !attributes.starts_with(|character: char| character.is_whitespace() || matches!(character, '/' | '>'))
    {
        return TagScan::Text;
    }
    for (at, character) in attributes.char_indices() {
        match character {
            _ if at > TAG_MOST => return TagScan::Text,
            '<' => return TagScan::Text,
            '>' => {
                let length = text.len() - attributes.len() + at + 1;
                let empty = !closing && attributes[..at].trim_end().ends_with('/');
                return TagScan::Tag { length, family, closing, empty };
            }
            _ => {}
        }
    }
    unfinished
}
