//! Markdown, piece by piece.

/// Bytes of a page as Markdown.
const MOST: usize = 8 << 20;
/// Lists and quotes that are indented.
const DEPTH: usize = 12;

/// What text within a line is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Inline {
    Strong,
    Emphasis,
    Code,
    /// With where it leads.
    Link(Option<String>),
}

impl Inline {
    fn opening(&self) -> &'static str {
        match self {
            Self::Strong => "**",
            Self::Emphasis => "*",
            Self::Code => "`",
            Self::Link(Some(_)) => "[",
            Self::Link(None) => "",
        }
    }

    fn closing(&self) -> String {
        match self {
            Self::Link(Some(to)) => format!("]({to})"),
            Self::Link(None) => String::new(),
            other => other.opening().to_owned(),
        }
    }
}

#[derive(Debug, Default)]
struct Table {
    /// Whether a row had cells that are headings.
    has_head: bool,
    /// Cells of the row that is written, and whether they are headings.
    cells: usize,
    is_head: bool,
    /// The line below the headings stands there.
    is_ruled: bool,
}

/// Writes Markdown. Blank lines and spaces are written before the next text, if there is one.
#[derive(Debug, Default)]
pub(super) struct Writer {
    out: String,
    /// Line ends before the next text.
    breaks: usize,
    is_spaced: bool,
    /// What begins a line, such as `- `.
    marks: String,
    quotes: usize,
    lists: Vec<Option<u64>>,
    tables: Vec<Table>,
    /// Whether each was written: what holds no text is left out.
    inlines: Vec<(Inline, bool)>,
    /// Where the text of code begins in the output.
    code: Option<usize>,
    code_depth: usize,
    is_full: bool,
}

impl Writer {
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether what is written is a cell of a table with headings, which is one line.
    fn is_in_cell(&self) -> bool {
        self.tables.last().is_some_and(|table| table.has_head && table.cells > 0)
    }

    fn end_line(&mut self, breaks: usize) {
        self.is_spaced = false;
        if self.code.is_some() {
            return;
        }
        if self.is_in_cell() {
            self.is_spaced = true;
        } else {
            self.breaks = self.breaks.max(breaks);
        }
    }

    pub(super) fn line(&mut self) {
        if self.code.is_some() {
            self.out.push('\n');
            return;
        }
        self.end_line(1);
    }

    pub(super) fn block(&mut self) {
        self.end_line(2);
    }

    /// Begins the next line with this.
    pub(super) fn mark(&mut self, mark: &str) {
        if self.code.is_none() && !self.is_in_cell() {
            self.marks.push_str(mark);
        }
    }

    pub(super) fn rule(&mut self) {
        self.block();
        self.text("---");
        self.block();
    }

    pub(super) fn begin_quote(&mut self) {
        self.block();
        self.quotes += 1;
    }

    pub(super) fn end_quote(&mut self) {
        self.quotes = self.quotes.saturating_sub(1);
        self.block();
    }

    pub(super) fn begin_list(&mut self, first: Option<u64>) {
        if self.lists.is_empty() {
            self.block();
        } else {
            self.line();
        }
        self.lists.push(first);
    }

    pub(super) fn end_list(&mut self) {
        self.lists.pop();
        if self.lists.is_empty() { self.block() } else { self.line() }
    }

    pub(super) fn item(&mut self) {
        self.end_line(1);
        self.marks.clear();
        let mark = match self.lists.last_mut() {
            Some(Some(number)) => {
                let mark = format!("{number}. ");
                *number = number.saturating_add(1);
                mark
            }
            _ => "- ".to_owned(),
        };
        self.mark(&mark);
    }

    pub(super) fn begin_table(&mut self) {
        self.block();
        self.tables.push(Table::default());
    }

    pub(super) fn end_table(&mut self) {
        self.end_row();
        self.tables.pop();
        self.block();
    }

    pub(super) fn row(&mut self) {
        self.end_row();
    }

    pub(super) fn cell(&mut self, is_head: bool) {
        let Some(table) = self.tables.last_mut() else { return };
        table.has_head |= is_head;
        table.is_head |= is_head;
        table.cells += 1;
        let (is_first, has_head) = (table.cells == 1, table.has_head);
        if has_head {
            if is_first {
                self.breaks = self.breaks.max(1);
            }
            self.is_spaced = false;
            self.plain(if is_first { "|" } else { " |" });
            self.is_spaced = true;
        } else if !is_first {
            self.is_spaced = true;
        }
    }

    pub(super) fn end_row(&mut self) {
        let Some(table) = self.tables.last_mut() else { return };
        let (cells, is_ruled, has_head) = (table.cells, table.is_ruled, table.has_head);
        let rules = table.is_head && !is_ruled && cells > 0;
        (table.cells, table.is_head, table.is_ruled) = (0, false, is_ruled || rules);
        if cells > 0 && has_head {
            self.is_spaced = false;
            self.plain(" |");
            if rules {
                self.breaks = 1;
                self.plain(&format!("|{}", " --- |".repeat(cells.min(100))));
            }
        }
        self.line();
    }

    pub(super) fn begin_inline(&mut self, inline: Inline) {
        self.inlines.push((inline, false));
    }

    pub(super) fn end_inline(&mut self) {
        let Some((inline, is_written)) = self.inlines.pop() else { return };
        if is_written && self.code.is_none() {
            self.out.push_str(&inline.closing());
        }
    }

    pub(super) fn begin_code(&mut self) {
        self.code_depth += 1;
        if self.code.is_none() {
            self.block();
            self.before_text();
            self.code = Some(self.out.len());
        }
    }

    pub(super) fn end_code(&mut self) {
        self.code_depth = self.code_depth.saturating_sub(1);
        if self.code_depth > 0 {
            return;
        }
        let Some(start) = self.code.take() else { return };
        let text = self.out.split_off(start);
        let text = text.trim_end().trim_start_matches('\n');
        if text.is_empty() {
            return;
        }
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
        let fence = "`".repeat(longest.max(2) + 1);
        let prefix = self.prefix();
        for line in std::iter::once(fence.as_str()).chain(text.lines()) {
            if self.out.len() > MOST {
                self.is_full = true;
                break;
            }
            self.out.push_str(line);
            self.out.push('\n');
            self.out.push_str(&prefix);
        }
        self.out.push_str(&fence);
        self.block();
    }

    /// What stands before each line.
    fn prefix(&self) -> String {
        let lists = self.lists.len().min(DEPTH).saturating_sub(1);
        format!("{}{}", "> ".repeat(self.quotes.min(DEPTH)), "  ".repeat(lists))
    }

    /// Writes what is due before text: line ends, what begins a line, a space, marks of what is within the line.
    fn before_text(&mut self) {
        if self.out.len() > MOST {
            self.is_full = true;
        }
        let is_first = self.out.is_empty();
        let breaks = std::mem::take(&mut self.breaks);
        if breaks > 0 || is_first {
            let prefix = self.prefix();
            if !is_first {
                for at in 1..=breaks {
                    self.out.push('\n');
                    if at < breaks {
                        self.out.push_str(prefix.trim_end());
                    }
                }
            }
            self.out.push_str(&prefix);
            let marks = std::mem::take(&mut self.marks);
            // What goes on in an item stands below its text.
            if marks.is_empty() && !self.lists.is_empty() {
                self.out.push_str("  ");
            }
            self.out.push_str(&marks);
            self.is_spaced = false;
        } else if !self.marks.is_empty() {
            let marks = std::mem::take(&mut self.marks);
            self.out.push_str(&marks);
            self.is_spaced = false;
        }
        if std::mem::take(&mut self.is_spaced) && !self.out.ends_with([' ', '\n']) {
            self.out.push(' ');
        }
    }

    /// Text that is no content.
    fn plain(&mut self, text: &str) {
        self.before_text();
        self.out.push_str(text);
    }

    pub(super) fn text(&mut self, text: &str) {
        if self.is_full {
            return;
        }
        if self.code.is_some() {
            self.out.push_str(text);
            self.is_full |= self.out.len() > MOST;
            return;
        }
        let mut is_first = true;
        for word in text.split(|c: char| c.is_ascii_whitespace()) {
            self.is_spaced |= !is_first;
            is_first = false;
            if word.is_empty() {
                continue;
            }
            self.before_text();
            let closed = self.inlines.iter_mut().filter(|(_, is_written)| !is_written);
            for (inline, is_written) in closed {
                *is_written = true;
                self.out.push_str(inline.opening());
            }
            if self.is_in_cell() {
                self.out.push_str(&word.replace('|', "\\|"));
            } else {
                self.out.push_str(word);
            }
        }
    }

    pub(super) fn finish(mut self) -> String {
        if self.code.is_some() {
            self.code_depth = 0;
            self.end_code();
        }
        let mut text = quipu_tools::stripped(&self.out);
        text.truncate(text.trim_end().len());
        text
    }
}
