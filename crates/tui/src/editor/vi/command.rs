//! What letters do in normal and visual mode.

use std::ops::Range;

use super::super::clusters::{after, before, line_end, line_start};
use super::super::kill::KillMode;
use super::super::{Editor, EditorOutcome};
use super::motion::{
    CharacterSearch, Span, first_of_line, line, next_word, object, other_bracket, paragraph, previous_word,
    run_last, word_last,
};
use super::{MOST, Mode, Operator, PendingKey};

impl Editor {
    pub(super) fn command(&mut self, character: char) -> EditorOutcome {
        let handled = EditorOutcome::Handled(Vec::new());
        if let Some(pending) = self.vi.pending.take() {
            self.pending(pending, character);
            return handled;
        }
        match character {
            '1'..='9' => return self.digit(character),
            '0' if self.vi.count.is_some() => return self.digit(character),
            _ => {}
        }
        if self.motion(character) {
            return handled;
        }
        if matches!(self.vi.mode, Mode::Visual { .. }) {
            self.visual(character);
            return handled;
        }
        if let Some((operator, _)) = self.vi.operator {
            self.operator_key(operator, character);
            return handled;
        }
        let count = self.vi.count.take();
        let times = count.unwrap_or(1);
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        match character {
            'd' => self.vi.operator = Some((Operator::Delete, count)),
            'c' => self.vi.operator = Some((Operator::Change, count)),
            'y' => self.vi.operator = Some((Operator::Copy, count)),
            'i' => self.insert_mode(),
            'a' => self.insert_at(after(text, at).min(line_end(text, at))),
            'I' => self.insert_at(first_of_line(text, at)),
            'A' => self.insert_at(line_end(text, at)),
            'o' => self.open_line(line_end(text, at), true),
            'O' => self.open_line(line_start(text, at), false),
            'x' => self.operate(Operator::Delete, at..forward(text, at, times), false),
            'X' => self.operate(Operator::Delete, backward(text, at, times)..at, false),
            's' => self.operate(Operator::Change, at..forward(text, at, times), false),
            'D' => self.operate(Operator::Delete, at..line_end(text, at), false),
            'C' => self.operate(Operator::Change, at..line_end(text, at), false),
            'S' => self.operate(Operator::Change, self.lines(at, times), true),
            'Y' => self.operate(Operator::Copy, self.lines(at, times), true),
            'J' => self.join(times.max(2) - 1),
            '~' => {
                let range = at..forward(text, at, times);
                let end = range.end;
                self.swap_case(range);
                self.buffer.go(end);
            }
            'r' => {
                self.vi.count = count;
                self.vi.pending = Some(PendingKey::Replace);
            }
            'p' | 'P' => self.put_register(character == 'P', times),
            'v' | 'V' => {
                let of = self.buffer.changes();
                self.vi.mode = Mode::Visual { anchor: at, lines: character == 'V', of };
            }
            'u' => while_some(times, || self.buffer.undo()),
            '\u{12}' => while_some(times, || self.buffer.redo()),
            _ => self.vi.forget(),
        }
        handled
    }

    fn digit(&mut self, character: char) -> EditorOutcome {
        let digit = character.to_digit(10).unwrap_or(0) as usize;
        self.vi.count = Some((self.vi.count.unwrap_or(0) * 10 + digit).min(MOST));
        EditorOutcome::Handled(Vec::new())
    }

    /// The second key of `f`, `g`, `r`, `i` and such.
    fn pending(&mut self, pending: PendingKey, character: char) {
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        match pending {
            PendingKey::Find { back, till } => {
                let find = CharacterSearch { character, back, till };
                self.vi.find = Some(find);
                self.search(find, false);
            }
            PendingKey::G if character == 'g' => {
                let number = self.vi.take_count().unwrap_or(1);
                let place = first_of_line(text, line(text, number));
                self.arrive(place, Span::Lines);
            }
            PendingKey::G => self.vi.forget(),
            PendingKey::Replace => {
                let count = self.vi.count.take().unwrap_or(1);
                let end = forward(text, at, count);
                if text[at..end].chars().count() >= count && count > 0 && at < end {
                    let same = self.buffer.clean(&character.to_string().repeat(count));
                    self.buffer.replace(at..end, &same);
                    self.buffer.go(before(self.buffer.text(), self.buffer.cursor()));
                }
            }
            PendingKey::Object { around } => {
                self.vi.count = None;
                let Some(range) = object(text, at, around, character) else { return self.vi.forget() };
                match (&mut self.vi.mode, self.vi.operator.take()) {
                    (Mode::Visual { anchor, .. }, _) if !range.is_empty() => {
                        *anchor = range.start;
                        let last = before(text, range.end);
                        self.buffer.go(last);
                    }
                    (_, Some((operator, _))) => self.operate(operator, range, false),
                    _ => {}
                }
            }
        }
    }

    /// A key that moves. Whether it is one.
    fn motion(&mut self, character: char) -> bool {
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let operator = self.vi.operator.map(|(operator, _)| operator);
        let is_change_of_word = operator == Some(Operator::Change)
            && text[at..].chars().next().is_some_and(|one| !one.is_whitespace());
        let big = character.is_uppercase();
        match character {
            'f' | 't' | 'F' | 'T' => {
                self.vi.pending = Some(PendingKey::Find { back: big, till: matches!(character, 't' | 'T') });
                return true;
            }
            'g' => {
                self.vi.pending = Some(PendingKey::G);
                return true;
            }
            'i' | 'a' if operator.is_some() || self.vi.mode != Mode::Normal => {
                self.vi.pending = Some(PendingKey::Object { around: character == 'a' });
                return true;
            }
            _ => {}
        }
        if !"hjkl wWbBeE0^_$G;,{}%".contains(character) {
            return false;
        }
        let count = self.vi.take_count();
        let times = count.unwrap_or(1);
        let repeated = |step: &dyn Fn(usize) -> usize| {
            (0..times).try_fold(at, |at, _| {
                let next = step(at);
                if next == at { Err(at) } else { Ok(next) }
            })
        };
        let repeated = |step: &dyn Fn(usize) -> usize| repeated(step).unwrap_or_else(|stuck| stuck);
        let (place, span) = match character {
            'h' => (backward(text, at, times), Span::Before),
            'l' | ' ' => (forward(text, at, times), Span::Before),
            'j' | 'k' => {
                self.vertical(character == 'k', times);
                return true;
            }
            // What is changed of a word ends with the word.
            'w' | 'W' if is_change_of_word => {
                let first = run_last(text, at, big);
                ((1..times).fold(first, |at, _| word_last(text, at, big)), Span::With)
            }
            'w' | 'W' => {
                let place = repeated(&|at| next_word(text, at, big));
                // An operator does not take the newline behind the last word.
                let crosses = operator.is_some() && text[at..place].contains('\n') && times == 1;
                (if crosses && at < line_end(text, at) { line_end(text, at) } else { place }, Span::Before)
            }
            'b' | 'B' => (repeated(&|at| previous_word(text, at, big)), Span::Before),
            'e' | 'E' => (repeated(&|at| word_last(text, at, big)), Span::With),
            '0' => (line_start(text, at), Span::Before),
            '^' | '_' => (first_of_line(text, at), Span::Before),
            '$' => {
                let end =
                    (1..times).fold(line_end(text, at), |end, _| line_end(text, (end + 1).min(text.len())));
                (end, Span::Before)
            }
            'G' => (first_of_line(text, line(text, count.unwrap_or(usize::MAX))), Span::Lines),
            '{' | '}' => (repeated(&|at| paragraph(text, at, character == '{')), Span::Before),
            '%' => match other_bracket(text, at) {
                Some(place) => (place, Span::With),
                None => {
                    self.vi.forget();
                    return true;
                }
            },
            _ => {
                let Some(find) = self.vi.find else {
                    self.vi.forget();
                    return true;
                };
                let find = if character == ',' { CharacterSearch { back: !find.back, ..find } } else { find };
                self.vi.count = Some(times);
                self.search(find, true);
                return true;
            }
        };
        self.arrive(place, span);
        true
    }

    fn search(&mut self, find: CharacterSearch, again: bool) {
        let count = self.vi.take_count().unwrap_or(1);
        match find.from(self.buffer.text(), self.buffer.cursor(), count, again) {
            Some(place) if super::super::clusters::is_boundary(self.buffer.text(), place) => {
                self.arrive(place, if find.back { Span::Before } else { Span::With });
            }
            _ => self.vi.forget(),
        }
    }

    /// Rows, or lines for an operator.
    fn vertical(&mut self, up: bool, times: usize) {
        let Some((operator, _)) = self.vi.operator.take() else {
            let last = std::mem::take(&mut self.last);
            let _outcome = if up { self.up(last, times) } else { self.down(last, times) };
            return;
        };
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let mut place = at;
        for _ in 0..times {
            place = if up {
                line_start(text, line_start(text, place).saturating_sub(1))
            } else {
                (line_end(text, place) + 1).min(text.len())
            };
        }
        let range = line_start(text, at.min(place))..line_end(text, at.max(place));
        self.operate(operator, range, true);
    }

    /// A motion leads to a place: the cursor goes there, or an operator takes what is between.
    fn arrive(&mut self, place: usize, span: Span) {
        self.vi.count = None;
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let Some((operator, _)) = self.vi.operator.take() else {
            self.last = super::super::LastAction::Other;
            self.buffer.go(place);
            return;
        };
        let (from, to) = (at.min(place), at.max(place));
        match span {
            Span::Before => self.operate(operator, from..to, false),
            Span::With => self.operate(operator, from..after(text, to), false),
            Span::Lines => self.operate(operator, line_start(text, from)..line_end(text, to), true),
        }
    }

    /// The second key of an operator that is no motion: doubled, it takes lines.
    fn operator_key(&mut self, operator: Operator, character: char) {
        let doubled = matches!(
            (operator, character),
            (Operator::Delete, 'd') | (Operator::Change, 'c') | (Operator::Copy, 'y')
        );
        let times = self.vi.take_count().unwrap_or(1);
        self.vi.forget();
        if doubled {
            self.operate(operator, self.lines(self.buffer.cursor(), times), true);
        }
    }

    fn visual(&mut self, character: char) {
        let Mode::Visual { anchor, lines, of } = self.vi.mode else { return };
        let marked = self.marked();
        let at = self.buffer.cursor();
        let operator = match character {
            'd' | 'x' | 'X' | 'D' => Operator::Delete,
            'c' | 's' | 'C' | 'S' => Operator::Change,
            'y' | 'Y' => Operator::Copy,
            'o' => {
                self.buffer.go(anchor);
                self.vi.mode = Mode::Visual { anchor: at, lines, of };
                return;
            }
            'v' | 'V' => {
                let other = lines != (character == 'V');
                self.vi.mode = if other { Mode::Visual { anchor, lines: !lines, of } } else { Mode::Normal };
                return;
            }
            '~' => {
                self.vi.mode = Mode::Normal;
                self.swap_case(marked.clone());
                self.buffer.go(marked.start);
                return;
            }
            'J' => {
                self.vi.mode = Mode::Normal;
                let newlines = self.buffer.text()[marked.clone()].matches('\n').count();
                self.buffer.go(marked.start);
                self.join(newlines.max(1));
                return;
            }
            'p' | 'P' => {
                let register = self.vi.register.clone();
                self.vi.mode = Mode::Normal;
                self.operate(Operator::Delete, marked.clone(), false);
                self.buffer.put(marked.start..marked.start, &register.0);
                return;
            }
            _ => return self.vi.forget(),
        };
        self.vi.mode = Mode::Normal;
        self.vi.forget();
        self.operate(operator, marked, lines);
    }

    /// Lines from the one with a place on, without the newline behind the last.
    fn lines(&self, at: usize, times: usize) -> Range<usize> {
        let text = self.buffer.text();
        let end = (1..times).fold(line_end(text, at), |end, _| line_end(text, (end + 1).min(text.len())));
        line_start(text, at)..end
    }

    fn operate(&mut self, operator: Operator, range: Range<usize>, lines: bool) {
        let clip = self.buffer.clip(range.clone());
        if !lines && range.is_empty() && operator != Operator::Change {
            return self.vi.forget();
        }
        self.kills.cut(clip.clone(), KillMode::Alone);
        self.vi.register = (clip, lines);
        let text = self.buffer.text();
        match operator {
            Operator::Copy => self.buffer.go(range.start),
            Operator::Delete if lines => {
                // With one of the newlines around it.
                let whole = match (range.start, range.end) {
                    (start, end) if end < text.len() => start..end + 1,
                    (0, end) => 0..end,
                    (start, end) => start - 1..end,
                };
                self.buffer.replace(whole, "");
                self.buffer.go(first_of_line(self.buffer.text(), self.buffer.cursor()));
            }
            Operator::Delete => self.buffer.replace(range, ""),
            Operator::Change => {
                self.insert_mode();
                self.buffer.erase(range);
            }
        }
    }

    fn insert_at(&mut self, place: usize) {
        self.buffer.go(place);
        self.insert_mode();
    }

    fn open_line(&mut self, place: usize, below: bool) {
        self.insert_at(place);
        self.buffer.type_text("\n");
        if !below {
            self.buffer.go(place);
        }
    }

    fn join(&mut self, newlines: usize) {
        self.buffer.begin_group();
        for _ in 0..newlines {
            let (text, at) = (self.buffer.text(), self.buffer.cursor());
            let end = line_end(text, at);
            if end == text.len() {
                break;
            }
            let next = first_of_line(text, end + 1);
            let space =
                if text[..end].ends_with([' ', '\n']) || next == line_end(text, end + 1) { "" } else { " " };
            self.buffer.replace(end..next, space);
            self.buffer.go(super::super::clusters::snap(self.buffer.text(), end));
        }
        self.buffer.end_group();
    }

    fn swap_case(&mut self, range: Range<usize>) {
        let swap = |one: char| -> String {
            if one.is_lowercase() { one.to_uppercase().collect() } else { one.to_lowercase().collect() }
        };
        let swapped: String = self.buffer.text()[range.clone()].chars().map(swap).collect();
        self.buffer.replace(range, &swapped);
    }

    fn put_register(&mut self, here: bool, times: usize) {
        let (clip, lines) = self.vi.register.clone();
        if clip.is_empty() && !lines {
            return;
        }
        // So many that a slip does not fill the memory.
        let times = times.min((16 << 20) / clip.expand().len().max(1) + 1);
        let (text, at) = (self.buffer.text(), self.buffer.cursor());
        let place = match (lines, here) {
            (true, true) => line_start(text, at),
            (true, false) => line_end(text, at),
            (false, true) => at,
            (false, false) => after(text, at).min(line_end(text, at)),
        };
        self.buffer.begin_group();
        self.buffer.go(place);
        for _ in 0..times {
            let at = self.buffer.cursor();
            if lines && !here {
                self.buffer.replace(at..at, "\n");
            }
            let at = self.buffer.cursor();
            self.buffer.put(at..at, &clip);
            if lines && here {
                let at = self.buffer.cursor();
                self.buffer.replace(at..at, "\n");
            }
        }
        self.buffer.end_group();
        let text = self.buffer.text();
        let place = match (lines, here) {
            (true, true) => first_of_line(text, place),
            (true, false) => first_of_line(text, (place + 1).min(text.len())),
            (false, _) => before(text, self.buffer.cursor()),
        };
        self.buffer.go(place);
    }
}

/// Clusters to the right, in the line.
fn forward(text: &str, at: usize, times: usize) -> usize {
    let end = line_end(text, at);
    let mut at = at;
    for _ in 0..times {
        if at >= end {
            break;
        }
        at = after(text, at);
    }
    at
}

/// Clusters to the left, in the line.
fn backward(text: &str, at: usize, times: usize) -> usize {
    let start = line_start(text, at);
    let mut at = at;
    for _ in 0..times {
        if at <= start {
            break;
        }
        at = before(text, at);
    }
    at
}

/// So often, or until there is nothing left to do.
fn while_some(times: usize, mut step: impl FnMut() -> bool) {
    for _ in 0..times {
        if !step() {
            break;
        }
    }
}
