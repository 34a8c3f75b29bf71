//! Lines become pieces, one line at a time: quotations, lists, headings, code, tables.
//!
//! What a line means may depend on lines before it and, for paragraphs and tables, on the next; on nothing else. So what
//! is held back is a paragraph, or the start of a table.

use std::sync::Arc;

use super::inline::inline;
use super::piece::{Body, Indent, Piece};
use super::starts::{Cursor, HtmlEnd, Item, definitions, fence, heading, html, is_rule, item};
use super::table::{Shape, Table, cells};
use crate::highlight::Highlighter;
use crate::styled::Run;
use crate::{Role, clean, width};

/// Bytes of a paragraph that are laid out together: a longer one is cut at a line.
const PARAGRAPH: usize = 4 << 10;
/// Quotations and lists within each other; deeper ones are text.
const DEPTH: usize = 24;

/// The state between two lines.
#[derive(Debug, Clone)]
pub(super) struct Blocks {
    containers: Vec<Container>,
    leaf: Leaf,
    /// The item that ended last: what follows it in the same list has the next number.
    item: Option<EndedItem>,
    /// A blank line came after the last piece.
    gap: bool,
    /// The last piece; `None` before the first.
    last: Option<Sort>,
    /// Of ordinary text.
    role: Role,
    pub(super) pieces: Vec<Piece>,
}

#[derive(Debug, Clone)]
struct Container {
    sort: ContainerSort,
    indent: Indent,
    /// Nothing of it was shown yet.
    fresh: bool,
    /// Nothing stands in it yet.
    empty: bool,
}

#[derive(Debug, Clone)]
enum ContainerSort {
    Quote,
    Item { width: usize, mark: u8, number: u64 },
}

#[derive(Debug, Clone)]
struct EndedItem {
    depth: usize,
    mark: u8,
    next: u64,
}

#[derive(Debug, Clone)]
enum Leaf {
    None,
    Paragraph(String),
    Fence {
        mark: u8,
        length: usize,
        indent: usize,
        highlighter: Highlighter,
    },
    /// By four columns; with blank lines that may belong to it.
    Indented {
        blanks: usize,
    },
    Html(HtmlEnd),
    Table(Table),
    /// A table whose widths change no more.
    Rows(Arc<Shape>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    Text,
    Heading,
    Code,
    Table,
    Rule,
}

impl Blocks {
    pub(super) fn new(role: Role) -> Self {
        Self {
            containers: Vec::new(),
            leaf: Leaf::None,
            item: None,
            gap: false,
            last: None,
            role,
            pieces: Vec::new(),
        }
    }

    /// The state without what is finished.
    pub(super) fn unfinished(&self) -> Self {
        Self {
            containers: self.containers.clone(),
            leaf: self.leaf.clone(),
            item: self.item.clone(),
            pieces: Vec::new(),
            ..*self
        }
    }

    /// The rest of a line that was too long for one.
    pub(super) fn more(&mut self, text: &str) {
        match &mut self.leaf {
            Leaf::Paragraph(paragraph) => {
                paragraph.push_str(text);
                self.cut();
            }
            Leaf::Fence { highlighter, .. } => {
                let runs = highlighter.line(&clean(text));
                self.emit(Body::Code(runs), Sort::Code);
            }
            Leaf::Indented { .. } => self.emit(Body::Code(vec![Run::new(text, Role::Code)]), Sort::Code),
            _ => {
                self.close_leaf();
                self.leaf = Leaf::Paragraph(text.to_owned());
            }
        }
    }

    /// A line without its end.
    pub(super) fn line(&mut self, text: &str) {
        let mut cursor = Cursor { rest: text, column: 0, pending: 0 };
        let mut matched = self.matched(&mut cursor);
        let mut all = matched == self.containers.len();
        if all && self.continues(&cursor) {
            return;
        }
        if cursor.ahead().1.is_empty() {
            self.blank(matched);
            return;
        }
        loop {
            let (indent, rest) = cursor.ahead();
            let paragraph = matches!(self.leaf, Leaf::Paragraph(_));
            if indent >= 4 {
                if paragraph || (all && matches!(self.leaf, Leaf::Table(_) | Leaf::Rows(_))) {
                    break;
                }
                self.close_to(matched);
                cursor.pass(4);
                let run = cursor.text();
                self.open(Leaf::Indented { blanks: 0 });
                self.emit(Body::Code(vec![Run::new(&run, Role::Code)]), Sort::Code);
                return;
            }
            if all && paragraph && self.below(rest) {
                return;
            }
            let byte = rest.as_bytes()[0];
            if byte == b'>' && self.containers.len() < DEPTH {
                self.close_to(matched);
                cursor.pass(indent);
                cursor.bump(1);
                cursor.pass(usize::from(cursor.ahead().0 > 0));
                self.push(ContainerSort::Quote, "│ ", "│ ", Role::Quote);
            } else if is_rule(rest) {
                self.close_to(matched);
                self.open(Leaf::None);
                self.emit(Body::Rule, Sort::Rule);
                return;
            } else if let Some((level, title)) = heading(rest) {
                self.close_to(matched);
                self.open(Leaf::None);
                self.heading(level, title);
                return;
            } else if let Some((mark, length, info)) = fence(rest) {
                self.close_to(matched);
                let highlighter = Highlighter::new(info.split([' ', ',', '{']).next().unwrap_or(""));
                self.open(Leaf::Fence { mark, length, indent, highlighter });
                return;
            } else if let Some(end) = html(rest, all && paragraph) {
                self.close_to(matched);
                self.open(Leaf::Html(end));
                cursor.pass(indent);
                self.html_line(&cursor.text(), end);
                return;
            } else if let Some(item) = item(rest, all && paragraph).filter(|_| self.containers.len() < DEPTH)
            {
                self.close_to(matched);
                cursor.pass(indent);
                cursor.bump(item.length);
                let (space, after) = cursor.ahead();
                let space = if after.is_empty() || space > 4 { 1 } else { space };
                cursor.pass(space);
                self.push_item(&item, indent + item.length + space);
            } else {
                break;
            }
            matched = self.containers.len();
            all = true;
            if cursor.ahead().1.is_empty() {
                return;
            }
        }
        self.text(&cursor, matched, all);
    }

    /// How many of the open quotations and items the line goes on with.
    fn matched(&self, cursor: &mut Cursor<'_>) -> usize {
        for (index, container) in self.containers.iter().enumerate() {
            let (indent, rest) = cursor.ahead();
            match container.sort {
                ContainerSort::Quote if indent <= 3 && rest.starts_with('>') => {
                    cursor.pass(indent);
                    cursor.bump(1);
                    cursor.pass(usize::from(cursor.ahead().0 > 0));
                }
                ContainerSort::Item { .. } if rest.is_empty() && !container.empty => cursor.pass(indent),
                ContainerSort::Item { width, .. } if indent >= width && !rest.is_empty() => {
                    cursor.pass(width);
                }
                _ => return index,
            }
        }
        self.containers.len()
    }

    /// Whether the line belongs to code or HTML that is open.
    fn continues(&mut self, cursor: &Cursor<'_>) -> bool {
        let (ahead, rest) = cursor.ahead();
        match &mut self.leaf {
            Leaf::Fence { mark, length, indent, highlighter } => {
                let marks = rest.bytes().take_while(|byte| byte == mark).count();
                if ahead <= 3 && marks >= *length && rest[marks..].trim().is_empty() {
                    self.leaf = Leaf::None;
                    return true;
                }
                let mut inner = Cursor { rest: cursor.rest, column: cursor.column, pending: cursor.pending };
                inner.pass(ahead.min(*indent));
                let runs = highlighter.line(&clean(&inner.text()));
                self.emit(Body::Code(runs), Sort::Code);
                true
            }
            Leaf::Indented { blanks } if rest.is_empty() => {
                *blanks += 1;
                true
            }
            Leaf::Indented { blanks } if ahead >= 4 => {
                let blanks = std::mem::take(blanks);
                for _ in 0..blanks {
                    self.emit(Body::Code(Vec::new()), Sort::Code);
                }
                let mut inner = Cursor { rest: cursor.rest, column: cursor.column, pending: cursor.pending };
                inner.pass(4);
                let run = inner.text();
                self.emit(Body::Code(vec![Run::new(&run, Role::Code)]), Sort::Code);
                true
            }
            Leaf::Indented { blanks } => {
                self.gap |= *blanks > 0;
                self.leaf = Leaf::None;
                false
            }
            Leaf::Html(end) if *end != HtmlEnd::Blank || !rest.is_empty() => {
                let end = *end;
                self.html_line(&cursor.text(), end);
                true
            }
            _ => false,
        }
    }

    fn blank(&mut self, matched: usize) {
        self.close_to(matched);
        self.close_leaf();
        self.gap = true;
    }

    /// A line that makes the paragraph before it a heading, or the header of a table.
    fn below(&mut self, rest: &str) -> bool {
        let Leaf::Paragraph(paragraph) = &self.leaf else { return false };
        let level = match rest.trim_end() {
            line if line.bytes().all(|byte| byte == b'=') => 1,
            line if line.bytes().all(|byte| byte == b'-') => 2,
            _ => {
                let (before, header) = paragraph.rsplit_once('\n').unwrap_or(("", paragraph));
                let Some(table) = Table::begin(header, rest, self.role) else { return false };
                let before = before.to_owned();
                self.leaf = if before.is_empty() { Leaf::None } else { Leaf::Paragraph(before) };
                self.close_leaf();
                self.leaf = Leaf::Table(table);
                return true;
            }
        };
        let title = paragraph.clone();
        self.leaf = Leaf::None;
        self.heading(level, &title);
        true
    }

    fn text(&mut self, cursor: &Cursor<'_>, matched: usize, all: bool) {
        let line = cursor.ahead().1;
        match &mut self.leaf {
            // A paragraph goes on also where a quotation or an item does not say so.
            Leaf::Paragraph(paragraph) => {
                paragraph.push('\n');
                paragraph.push_str(line);
                self.cut();
            }
            Leaf::Table(table) if all => {
                table.push(line, self.role);
                if table.is_settled() {
                    self.settle();
                }
            }
            Leaf::Rows(shape) if all => {
                let shape = Arc::clone(shape);
                let cells = cells(line, shape.sides.len(), self.role);
                self.emit(Body::Row(shape, cells), Sort::Table);
            }
            _ => {
                self.close_to(matched);
                self.open(Leaf::Paragraph(line.to_owned()));
                self.cut();
            }
        }
    }

    /// Lets go of the start of a paragraph that is too long to be held.
    fn cut(&mut self) {
        let Leaf::Paragraph(paragraph) = &mut self.leaf else { return };
        if paragraph.len() >= PARAGRAPH {
            let text = std::mem::take(paragraph);
            self.paragraph(&text);
            self.leaf = Leaf::Paragraph(String::new());
        }
    }

    fn heading(&mut self, level: usize, title: &str) {
        let mut runs = inline(title, Role::Heading);
        // Below the second level the depth is no longer seen without its marks.
        if level > 2 {
            runs.insert(0, Run::new(&format!("{} ", "#".repeat(level)), Role::Muted));
        }
        self.emit(Body::Text(runs), Sort::Heading);
    }

    fn html_line(&mut self, line: &str, end: HtmlEnd) {
        self.emit(Body::Text(vec![Run::new(line, Role::Html)]), Sort::Text);
        if let HtmlEnd::Text(end) = end
            && line.to_ascii_lowercase().contains(end)
        {
            self.leaf = Leaf::None;
        }
    }

    /// Ends everything.
    pub(super) fn end(&mut self) {
        self.close_to(0);
    }

    /// Ends the quotations and items beyond the first ones, with what is open in them.
    fn close_to(&mut self, kept: usize) {
        self.close_leaf();
        while self.containers.len() > kept {
            if self.containers.last().is_some_and(|container| container.fresh) {
                self.emit(Body::Text(Vec::new()), Sort::Text);
            }
            let Some(container) = self.containers.pop() else { break };
            if let ContainerSort::Item { mark, number, .. } = container.sort {
                self.item =
                    Some(EndedItem { depth: self.containers.len(), mark, next: number.saturating_add(1) });
            }
        }
    }

    fn close_leaf(&mut self) {
        match std::mem::replace(&mut self.leaf, Leaf::None) {
            Leaf::Paragraph(text) => self.paragraph(&text),
            Leaf::Table(table) => {
                self.leaf = Leaf::Table(table);
                self.settle();
                self.leaf = Leaf::None;
            }
            Leaf::Indented { blanks } => self.gap |= blanks > 0,
            Leaf::None | Leaf::Fence { .. } | Leaf::Html(_) | Leaf::Rows(_) => {}
        }
    }

    fn paragraph(&mut self, text: &str) {
        let text = text.trim_end();
        if text.is_empty() {
            return;
        }
        let task = ["[ ] ", "[x] ", "[X] "].iter().find(|mark| text.starts_with(**mark));
        let task = task.filter(|_| {
            let item = |c: &Container| c.fresh && matches!(c.sort, ContainerSort::Item { .. });
            self.containers.last().is_some_and(item)
        });
        let runs = match task {
            Some(mark) => {
                let mut runs = inline(&text[mark.len()..], self.role);
                runs.insert(0, Run::new(mark, Role::Bullet));
                runs
            }
            None => definitions(text, self.role),
        };
        self.emit(Body::Text(runs), Sort::Text);
    }

    fn settle(&mut self) {
        let Leaf::Table(table) = std::mem::replace(&mut self.leaf, Leaf::None) else { return };
        let shape = Arc::new(table.shape);
        for (index, cells) in table.rows.into_iter().enumerate() {
            let shape = Arc::clone(&shape);
            let body = if index == 0 { Body::Header(shape, cells) } else { Body::Row(shape, cells) };
            self.emit(body, Sort::Table);
        }
        self.leaf = Leaf::Rows(shape);
    }

    fn push(&mut self, sort: ContainerSort, first: &str, rest: &str, role: Role) {
        self.open(Leaf::None);
        let indent = Indent { first: first.to_owned(), rest: rest.to_owned(), role };
        self.containers.push(Container { sort, indent, fresh: true, empty: true });
    }

    fn push_item(&mut self, item: &Item, width_: usize) {
        let depth = self.containers.len();
        let follows = self.item.as_ref().filter(|ended| ended.depth == depth && ended.mark == item.mark);
        let number = follows.map_or(item.number, |ended| ended.next);
        let first = match item.mark {
            b'.' | b')' => format!("{number}{} ", char::from(item.mark)),
            _ => "- ".to_owned(),
        };
        let rest = " ".repeat(width(&first));
        self.push(
            ContainerSort::Item { width: width_, mark: item.mark, number },
            &first,
            &rest,
            Role::Bullet,
        );
    }

    /// Begins something in the innermost container.
    fn open(&mut self, leaf: Leaf) {
        let depth = self.containers.len();
        if let Some(container) = self.containers.last_mut() {
            container.empty = false;
        }
        let is_item = matches!(leaf, Leaf::None);
        if self.item.as_ref().is_some_and(|ended| ended.depth > depth || (ended.depth == depth && !is_item)) {
            self.item = None;
        }
        self.leaf = leaf;
    }

    fn emit(&mut self, body: Body, sort: Sort) {
        let apart = |sort| matches!(sort, Sort::Heading | Sort::Code | Sort::Table | Sort::Rule);
        let fresh = self.containers.iter().position(|container| container.fresh);
        let new_quote = fresh.is_some_and(|at| matches!(self.containers[at].sort, ContainerSort::Quote))
            && self.last.is_some();
        let separate = match self.last {
            None => false,
            Some(last) if last == sort && !self.gap && sort != Sort::Heading => new_quote,
            Some(last) => self.gap || apart(last) || (fresh.is_none() && apart(sort)) || new_quote,
        };
        if separate && !(self.last == Some(sort) && matches!(sort, Sort::Code | Sort::Table) && !self.gap) {
            let open = fresh.unwrap_or(self.containers.len());
            let indents = self.containers[..open].iter().map(|container| container.indent.after()).collect();
            self.pieces.push(Piece { indents, body: Body::Blank });
        }
        let indents = self.containers.iter_mut().map(|container| {
            let fresh = std::mem::replace(&mut container.fresh, false);
            if fresh { container.indent.clone() } else { container.indent.after() }
        });
        let indents = indents.collect();
        self.pieces.push(Piece { indents, body });
        self.last = Some(sort);
        self.gap = false;
    }
}

impl Indent {
    /// As it is after the first piece.
    fn after(&self) -> Self {
        Self { first: self.rest.clone(), ..self.clone() }
    }
}
