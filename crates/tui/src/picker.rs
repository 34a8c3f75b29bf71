//! A list to choose from: what is typed narrows it.
//!
//! Only the rows that are seen are laid out, so that a list of 100,000 scrolls as a short one does; a longer filter is
//! looked for among what the shorter one left.

use crate::{Key, KeyCode, Line, Size, Style, Theme, clean, width};

/// A text to choose, with a detail beside it.
#[derive(Debug, Clone, PartialEq)]
pub struct PickerRow<T> {
    /// What is chosen with it.
    pub value: T,
    /// What is shown, and looked for; foreign text is made safe when it is shown.
    pub text: String,
    /// Shown behind it, and looked for as well; may be empty.
    pub detail: String,
}

impl<T> PickerRow<T> {
    /// A row.
    pub fn new(value: T, text: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { value, text: text.into(), detail: detail.into() }
    }
}

/// The effect of a key on the picker.
#[derive(Debug, Clone, PartialEq)]
pub enum PickerResult<T> {
    /// Nothing is chosen yet.
    Open,
    /// The value of the chosen row.
    Chosen(T),
    /// Nothing is to be chosen.
    Cancelled,
}

/// A list with a filter. All words of the filter have to be in a row, in any order; case does not matter.
#[derive(Debug, Clone)]
pub struct Picker<T> {
    values: Vec<T>,
    list: List,
}

/// A [`Picker`] without what its rows stand for.
#[derive(Debug, Clone)]
pub(crate) struct List {
    title: String,
    /// Texts and details.
    rows: Vec<(String, String)>,
    /// What is looked through, made when something is looked for first.
    keys: Vec<String>,
    filter: String,
    /// Rows that pass, in their order.
    shown: Vec<usize>,
    at: usize,
    /// The first row that is listed where rows have numbers.
    from: usize,
}

impl<T: Clone> Picker<T> {
    /// A list; its first row is the chosen one.
    pub fn new(title: impl Into<String>, rows: Vec<PickerRow<T>>) -> Self {
        let shown = (0..rows.len()).collect();
        let (values, rows) = rows.into_iter().map(|row| (row.value, (row.text, row.detail))).unzip();
        let (keys, filter) = (Vec::new(), String::new());
        Self { values, list: List { title: title.into(), rows, keys, filter, shown, at: 0, from: 0 } }
    }

    /// The same with another row chosen first.
    #[must_use]
    pub fn starting_at(mut self, row: usize) -> Self {
        self.list.at = row.min(self.values.len().saturating_sub(1));
        self
    }

    /// Puts more rows before the others. The chosen row stays the chosen one.
    pub fn prepend(&mut self, rows: Vec<PickerRow<T>>) {
        self.put(0, rows);
    }

    /// Puts more rows behind the others, whose numbers stay.
    pub fn append(&mut self, rows: Vec<PickerRow<T>>) {
        self.put(self.values.len(), rows);
    }

    fn put(&mut self, at: usize, rows: Vec<PickerRow<T>>) {
        let (values, rows): (Vec<T>, Vec<_>) =
            rows.into_iter().map(|row| (row.value, (row.text, row.detail))).unzip();
        self.values.splice(at..at, values);
        self.list.put(at, rows);
    }

    /// What is typed so far.
    pub fn filter(&self) -> &str {
        &self.list.filter
    }

    /// What Enter takes.
    pub fn chosen(&self) -> Option<&T> {
        self.list.shown.get(self.list.at).and_then(|row| self.values.get(*row))
    }

    /// How many rows pass.
    pub fn len(&self) -> usize {
        self.list.shown.len()
    }

    /// Whether none does.
    pub fn is_empty(&self) -> bool {
        self.list.shown.is_empty()
    }

    /// A key: letters filter, arrows and pages move, Enter takes, Escape leaves.
    pub fn on_key(&mut self, key: Key) -> PickerResult<T> {
        match self.list.on_key(key) {
            PickerResult::Open => PickerResult::Open,
            PickerResult::Chosen(row) => {
                self.values.get(row).map_or(PickerResult::Open, |value| PickerResult::Chosen(value.clone()))
            }
            PickerResult::Cancelled => PickerResult::Cancelled,
        }
    }

    /// Text that was pasted is typed.
    pub fn paste(&mut self, text: &str) {
        self.list.paste(text);
    }

    /// At most `size.rows` lines: the title with the filter, then rows around the chosen one.
    pub fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.list.view(size, theme)
    }

    pub(crate) fn list(&self) -> &List {
        &self.list
    }

    pub(crate) fn list_mut(&mut self) -> &mut List {
        &mut self.list
    }
}

impl List {
    fn on_key(&mut self, key: Key) -> PickerResult<usize> {
        let page = 10;
        let last = self.shown.len().saturating_sub(1);
        match (key.code, key.modifiers.control, key.modifiers.alt) {
            (KeyCode::Enter, ..) => {
                return self.shown.get(self.at).map_or(PickerResult::Open, |row| PickerResult::Chosen(*row));
            }
            (KeyCode::Escape, ..) | (KeyCode::Char('c'), true, _) => return PickerResult::Cancelled,
            (KeyCode::Up, ..) | (KeyCode::Char('p'), true, _) => {
                self.at = self.at.checked_sub(1).unwrap_or(last);
            }
            (KeyCode::Down, ..) | (KeyCode::Char('n'), true, _) => {
                self.at = if self.at >= last { 0 } else { self.at + 1 };
            }
            (KeyCode::PageUp, ..) => self.at = self.at.saturating_sub(page),
            (KeyCode::PageDown, ..) => self.at = (self.at + page).min(last),
            (KeyCode::Home, ..) => self.at = 0,
            (KeyCode::End, ..) => self.at = last,
            (KeyCode::Backspace, ..) => {
                self.filter.pop();
                self.look(false);
            }
            (KeyCode::Char('u'), true, _) => {
                self.filter.clear();
                self.look(false);
            }
            (KeyCode::Char(letter), false, false) => {
                self.filter.push(letter);
                self.look(true);
            }
            _ => {}
        }
        PickerResult::Open
    }

    pub(crate) fn paste(&mut self, text: &str) {
        self.filter.extend(text.chars().filter(|letter| !letter.is_control()).take(200));
        self.look(false);
    }

    /// More rows; the chosen one stays the chosen one, and those that are listed are listed.
    fn put(&mut self, at: usize, rows: Vec<(String, String)>) {
        let further = if at == 0 { rows.len() } else { 0 };
        let (from, chosen) = (self.from, self.shown.get(self.at).map(|row| row + further));
        self.rows.splice(at..at, rows);
        self.keys.clear();
        self.look(false);
        self.at = self.shown.iter().position(|row| Some(*row) == chosen).unwrap_or(0);
        self.from = from;
    }

    /// Finds the rows that pass; `narrower` when the filter only grew.
    fn look(&mut self, narrower: bool) {
        if self.keys.is_empty() {
            let key = |(text, detail): &(String, String)| format!("{text} {detail}").to_lowercase();
            self.keys = self.rows.iter().map(key).collect();
        }
        let filter = self.filter.to_lowercase();
        let words: Vec<&str> = filter.split_whitespace().collect();
        let passes =
            |row: &usize| self.keys.get(*row).is_some_and(|key| words.iter().all(|word| key.contains(word)));
        if narrower {
            let mut shown = std::mem::take(&mut self.shown);
            shown.retain(|row| passes(row));
            self.shown = shown;
        } else {
            self.shown = (0..self.rows.len()).filter(|row| passes(row)).collect();
        }
        (self.at, self.from) = (0, 0);
    }

    /// Where rows have numbers: takes words as they are typed on a line, and says which key they come to.
    pub(crate) fn read(&mut self, words: &str) -> Option<Key> {
        if turned(words, &mut self.from, self.shown.len()) {
            return None;
        }
        if let Some(row) = numbered(words, self.from, self.shown.len()) {
            self.at = row;
            return Some(KeyCode::Enter.into());
        }
        self.filter.clear();
        self.paste(words);
        None
    }

    /// The rows with numbers, to be heard.
    pub(crate) fn spoken(&self) -> Vec<String> {
        let filter = if self.filter.is_empty() { "" } else { " with " };
        let mut lines =
            vec![format!("{}{filter}{}: {} to choose from.", self.title, self.filter, self.shown.len())];
        for (place, row) in self.shown.iter().skip(self.from).take(TOGETHER).enumerate() {
            let Some((text, detail)) = self.rows.get(*row) else { continue };
            let between = if detail.is_empty() { "" } else { ", " };
            lines.push(format!("{}. {}{between}{}", place + 1, one_line(text), one_line(detail)));
        }
        lines.push(format!(
            "A number selects one, words narrow the list{}; Enter alone cancels.",
            pages(self.from, self.shown.len())
        ));
        lines
    }

    pub(crate) fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let columns = size.columns;
        let room = size.rows.saturating_sub(2).max(1);
        let mut title = Line::styled(cut(&clean(&self.title), columns / 2), theme.heading);
        let left = columns.saturating_sub(title.width());
        if self.filter.is_empty() {
            title.push(cut("  type to filter", left), theme.muted);
        } else {
            title.push(cut(&format!("  {}", clean(&self.filter)), left), Style::default());
        }
        let mut lines = vec![title];
        let top = self.at.saturating_sub(room / 2).min(self.shown.len().saturating_sub(room));
        for (place, row) in self.shown.iter().enumerate().skip(top).take(room) {
            let Some((text, detail)) = self.rows.get(*row) else { continue };
            let chosen = place == self.at;
            let mut line = Line::styled(if chosen { "› " } else { "  " }, theme.accent);
            let style = if chosen { theme.accent } else { Style::default() };
            let text = cut(&clean(&one_line(text)), columns.saturating_sub(2));
            let left = columns.saturating_sub(2 + width(&text) + 2);
            line.push(text, style);
            if !detail.is_empty() && left > 3 {
                line.push(format!("  {}", cut(&clean(&one_line(detail)), left)), theme.muted);
            }
            lines.push(line);
        }
        if self.shown.is_empty() {
            lines.push(Line::styled("  nothing matches", theme.muted));
        }
        let count = format!("  {} of {}", (self.at + 1).min(self.shown.len()), self.shown.len());
        lines.push(Line::styled(cut(&count, columns), theme.muted));
        lines
    }
}

/// Rows that are listed together where they have numbers.
pub(crate) const TOGETHER: usize = 20;

/// Turns to other rows, where the words ask for that.
pub(crate) fn turned(words: &str, from: &mut usize, count: usize) -> bool {
    match words {
        "+" if *from + TOGETHER < count => *from += TOGETHER,
        "-" => *from = from.saturating_sub(TOGETHER),
        "+" => {}
        _ => return false,
    }
    true
}

/// The row that a number stands for.
pub(crate) fn numbered(words: &str, from: usize, count: usize) -> Option<usize> {
    let number = words.parse::<usize>().ok().filter(|number| (1..=TOGETHER).contains(number))?;
    Some(from + number - 1).filter(|row| *row < count)
}

/// How to turn to other rows, where there are any.
pub(crate) fn pages(from: usize, count: usize) -> String {
    let mut text = String::new();
    if from + TOGETHER < count {
        text.push_str(&format!(", + lists the next of {} more", count - from - TOGETHER));
    }
    if from > 0 {
        text.push_str(", - the previous ones");
    }
    text
}

/// The first line, shortened before it is laid out: a row may be a whole file.
pub(crate) fn one_line(text: &str) -> String {
    let line = text.trim_start().lines().next().unwrap_or_default();
    line.chars().take(1_000).collect()
}

/// The beginning of a text that fits, with `…` where something is missing.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    use unicode_segmentation::UnicodeSegmentation as _;
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut taken = 0;
    for cluster in text.graphemes(true) {
        taken += width(cluster);
        if taken + 1 > columns {
            break;
        }
        kept.push_str(cluster);
    }
    if columns > 0 {
        kept.push('…');
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_in(picker: &mut Picker<usize>, text: &str) {
        for letter in text.chars() {
            assert_eq!(picker.on_key(KeyCode::Char(letter).into()), PickerResult::Open);
        }
    }

    fn many(count: usize) -> Picker<usize> {
        let row = |at| PickerRow::new(at, format!("Row {at}"), if at % 2 == 0 { "even" } else { "odd" });
        Picker::new("Rows", (0..count).map(row).collect())
    }

    #[test]
    fn words_narrow_it_in_any_order() {
        let mut picker = many(100);
        type_in(&mut picker, "EVEN 4");
        assert_eq!(picker.len(), 14, "{:?}", picker.chosen());
        picker.on_key(KeyCode::Down.into());
        assert_eq!(picker.on_key(KeyCode::Enter.into()), PickerResult::Chosen(14));
        for _ in 0..6 {
            picker.on_key(KeyCode::Backspace.into());
        }
        assert_eq!(picker.len(), 100);
        type_in(&mut picker, "zzz");
        assert!(picker.is_empty());
        assert_eq!(picker.on_key(KeyCode::Enter.into()), PickerResult::Open);
        assert_eq!(picker.on_key(KeyCode::Escape.into()), PickerResult::Cancelled);
    }

    #[test]
    fn rows_that_come_later_do_not_move_what_is_chosen() {
        let mut picker = many(10);
        picker.on_key(KeyCode::Down.into());
        picker.prepend(vec![PickerRow::new(77, "Row of late", "even"), PickerRow::new(78, "Another", "")]);
        assert_eq!((picker.chosen().copied(), picker.len()), (Some(1), 12));
        type_in(&mut picker, "row even");
        assert_eq!((picker.chosen().copied(), picker.len()), (Some(77), 6));
        picker.prepend(vec![PickerRow::new(79, "Row, the latest", "even")]);
        assert_eq!((picker.chosen().copied(), picker.len()), (Some(77), 7));
    }

    #[test]
    fn numbers_stay_with_their_rows() {
        let mut picker = many(3);
        picker.append(vec![PickerRow::new(77, "Row of late", "")]);
        assert_eq!(picker.list().spoken()[0], "Rows: 4 to choose from.");
        assert_eq!(picker.list_mut().read("2"), Some(KeyCode::Enter.into()));
        assert_eq!(picker.on_key(KeyCode::Enter.into()), PickerResult::Chosen(1));
        assert_eq!(picker.list_mut().read("late"), None);
        assert_eq!(picker.list_mut().read("1"), Some(KeyCode::Enter.into()));
        assert_eq!(picker.on_key(KeyCode::Enter.into()), PickerResult::Chosen(77));
    }

    #[test]
    fn the_chosen_row_is_always_seen() {
        let mut picker = many(100_000);
        let size = Size { columns: 40, rows: 8 };
        for key in [KeyCode::End, KeyCode::Up, KeyCode::Home, KeyCode::PageDown, KeyCode::Down] {
            picker.on_key(key.into());
            let lines = picker.view(size, &Theme::dark());
            assert!(lines.len() <= 8);
            assert_eq!(lines.iter().filter(|line| line.text().starts_with('›')).count(), 1);
        }
        assert_eq!(picker.chosen().copied(), Some(11));
    }

    #[test]
    fn picker_cursor_wraps_at_both_ends() {
        let mut picker = many(3);
        picker.on_key(KeyCode::Up.into());
        assert_eq!(picker.chosen().copied(), Some(2));
        picker.on_key(KeyCode::Down.into());
        assert_eq!(picker.chosen().copied(), Some(0));
    }

    #[test]
    fn no_line_is_wider_than_the_screen() {
        let rows = vec![PickerRow::new(0, "日本語".repeat(40), "\u{1b}[2J".repeat(9))];
        for columns in [1, 5, 20, 80] {
            for line in
                Picker::new("\u{202e}title", rows.clone()).view(Size { columns, rows: 5 }, &Theme::dark())
            {
                assert!(columns < 20 || line.width() <= columns, "{columns}: {}", line.text());
                assert!(!line.text().contains('\u{1b}'));
            }
        }
    }
}
