//! Where code stands in a text that is still arriving: fenced blocks, and blocks indented by four columns.

use std::collections::VecDeque;

/// The longest opening line that is repeated when its block continues in another message, in bytes.
const LINE_MOST: usize = 256;

/// A fenced block of code, as its opening line has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fence {
    mark: char,
    count: usize,
    /// Indentation and marker, without the language.
    pub(super) bare: String,
    /// The whole opening line; the bare one when it is too long to be repeated.
    pub(super) line: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SpanKind {
    Fenced(Fence),
    Indented,
    /// The start of a line that would open a block if it ended earlier: code within a line, in three backticks or more.
    Inline(Fence),
}

/// A block of code. Positions are bytes of the whole text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) kind: SpanKind,
    pub(super) start: usize,
    /// End of the opening line of a fenced block.
    pub(super) opening_end: usize,
    /// Where the closing line begins.
    pub(super) closing: Option<usize>,
    /// End of its last line, before the line break; none while it is open.
    pub(super) end: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Indentation,
    /// A run of markers.
    Marker(char, usize),
    /// Only blanks after the markers.
    Trail(char, usize),
    /// What follows the markers of an opening line.
    Info(char, usize),
    Other,
}

/// Reads each character once.
#[derive(Debug, Clone)]
pub(super) struct FenceScanner {
    spans: VecDeque<Span>,
    line_start: usize,
    indent: usize,
    phase: Phase,
    line: String,
    after_blank: bool,
    in_fence: bool,
    in_indented: bool,
    carriage: bool,
}

impl FenceScanner {
    /// For a text whose first byte has this position.
    pub(super) fn new(at: usize) -> Self {
        Self {
            spans: VecDeque::new(),
            line_start: at,
            indent: 0,
            phase: Phase::Indentation,
            line: String::new(),
            after_blank: true,
            in_fence: false,
            in_indented: false,
            carriage: false,
        }
    }

    pub(super) fn push(&mut self, text: &str, at: usize) {
        for (offset, character) in text.char_indices() {
            self.character(character, at + offset);
        }
    }

    /// The text ends here, so its last line is whole.
    pub(super) fn finish(&mut self, end: usize) {
        if end > self.line_start {
            self.end_line(end);
            self.line_start = end;
        }
    }

    /// Spans that end at or before this position are of no further interest.
    pub(super) fn forget_before(&mut self, at: usize) {
        while self.spans.front().is_some_and(|span| span.end.is_some_and(|end| end <= at)) {
            self.spans.pop_front();
        }
    }

    /// The block that this position is strictly inside of.
    pub(super) fn inside(&self, at: usize) -> Option<&Span> {
        let index = self.spans.partition_point(|span| span.start < at).checked_sub(1)?;
        self.spans.get(index).filter(|span| span.end.is_none_or(|end| at < end))
    }

    /// Whether a block ends at this position.
    pub(super) fn ends_at(&self, at: usize) -> bool {
        let before = self.spans.partition_point(|span| span.start < at).checked_sub(1);
        before.and_then(|index| self.spans.get(index)).is_some_and(|span| span.end == Some(at))
    }

    /// Whether a break here would cut a block, or a line that opens one as far as is known.
    pub(super) fn forbids(&self, at: usize) -> bool {
        self.inside(at).is_some() || (self.opens() && at > self.line_start)
    }

    /// Start of the last line when it may become the opening or closing line of a fenced block.
    pub(super) fn undecided_line(&self) -> Option<usize> {
        matches!(self.phase, Phase::Marker(..) | Phase::Trail(..) | Phase::Info(..))
            .then_some(self.line_start)
    }

    /// The fence that the unfinished last line opens as far as is known; its language may be incomplete, so it is left out.
    pub(super) fn opening_fence(&self) -> Option<Fence> {
        if !self.opens() {
            return None;
        }
        let (Phase::Marker(mark, count) | Phase::Trail(mark, count) | Phase::Info(mark, count)) = self.phase
        else {
            return None;
        };
        let bare = bare(self.indent, mark, count);
        Some(Fence { mark, count, line: bare.clone(), bare })
    }

    fn opens(&self) -> bool {
        !self.in_fence
            && matches!(self.phase, Phase::Marker(_, 3..) | Phase::Trail(_, 3..) | Phase::Info(_, 3..))
    }

    fn character(&mut self, character: char, at: usize) {
        if character == '\n' {
            self.end_line(at - usize::from(self.carriage));
            self.line_start = at + 1;
            return;
        }
        self.carriage = character == '\r';
        if self.phase != Phase::Other && self.line.len() <= LINE_MOST && character != '\r' {
            self.line.push(character);
        }
        let blank = matches!(character, ' ' | '\t' | '\r');
        self.phase = match self.phase {
            Phase::Indentation => match character {
                ' ' => {
                    self.indent += 1;
                    Phase::Indentation
                }
                '\t' => {
                    self.indent = (self.indent / 4 + 1) * 4;
                    Phase::Indentation
                }
                '\r' => Phase::Indentation,
                _ => {
                    self.first_of_line();
                    if matches!(character, '`' | '~') && self.indent < 4 {
                        Phase::Marker(character, 1)
                    } else {
                        Phase::Other
                    }
                }
            },
            Phase::Marker(mark, count) if character == mark => Phase::Marker(mark, count + 1),
            Phase::Marker(_, ..3) => Phase::Other,
            Phase::Marker(mark, count) | Phase::Trail(mark, count) if blank => Phase::Trail(mark, count),
            // A fence of backticks has none in its language: this is code within a line.
            Phase::Marker(mark, count) | Phase::Trail(mark, count) | Phase::Info(mark, count) => {
                if mark == '`' && character == '`' {
                    self.inline(at + 1);
                    Phase::Other
                } else {
                    Phase::Info(mark, count)
                }
            }
            Phase::Other => Phase::Other,
        };
    }

    fn inline(&mut self, end: usize) {
        if let Some(fence) = self.opening_fence() {
            let start = self.line_start;
            let kind = SpanKind::Inline(fence);
            self.spans.push_back(Span { kind, start, opening_end: end, closing: None, end: Some(end) });
        }
    }

    /// The first character that is no blank: now the indentation is known.
    fn first_of_line(&mut self) {
        if self.in_fence {
            return;
        }
        if self.indent < 4 || !(self.after_blank || self.in_indented) {
            self.in_indented = false;
        } else if self.in_indented {
            if let Some(span) = self.spans.back_mut() {
                span.end = None;
            } else {
                self.open_indented();
            }
        } else {
            self.open_indented();
        }
    }

    fn open_indented(&mut self) {
        self.in_indented = true;
        let start = self.line_start;
        self.spans.push_back(Span {
            kind: SpanKind::Indented,
            start,
            opening_end: start,
            closing: None,
            end: None,
        });
    }

    fn end_line(&mut self, end: usize) {
        let phase = self.phase;
        let mut after_blank = phase == Phase::Indentation;
        if self.in_fence {
            let closes = match (phase, self.spans.back().map(|span| &span.kind)) {
                (Phase::Marker(mark, count) | Phase::Trail(mark, count), Some(SpanKind::Fenced(fence))) => {
                    mark == fence.mark && count >= fence.count
                }
                _ => false,
            };
            if closes && let Some(span) = self.spans.back_mut() {
                span.closing = Some(self.line_start);
                span.end = Some(end);
                self.in_fence = false;
                after_blank = true;
            }
        } else if self.opens() {
            if let Some(mut fence) = self.opening_fence() {
                if self.line.len() <= LINE_MOST {
                    fence.line = self.line.trim_end().to_owned();
                }
                self.in_fence = true;
                self.in_indented = false;
                self.spans.push_back(Span {
                    kind: SpanKind::Fenced(fence),
                    start: self.line_start,
                    opening_end: end,
                    closing: None,
                    end: None,
                });
            }
        } else if self.in_indented
            && phase != Phase::Indentation
            && let Some(span) = self.spans.back_mut()
        {
            span.end = Some(end);
        }
        self.after_blank = after_blank;
        self.phase = Phase::Indentation;
        self.indent = 0;
        self.line.clear();
        self.carriage = false;
    }
}

fn bare(indent: usize, mark: char, count: usize) -> String {
    let mut bare = " ".repeat(indent);
    bare.extend(std::iter::repeat_n(mark, count));
    bare
}
