//! What a line begins with: white space, marks of quotations, lists, headings, code, HTML.

use super::forms::tag;
use super::inline::inline;
use crate::Role;
use crate::styled::Run;

/// A line while its beginning is read.
pub(super) struct Cursor<'a> {
    pub(super) rest: &'a str,
    pub(super) column: usize,
    /// Columns of a tab that are left.
    pub(super) pending: usize,
}

impl<'a> Cursor<'a> {
    /// Columns of white space ahead, and what follows it.
    pub(super) fn ahead(&self) -> (usize, &'a str) {
        let mut columns = self.pending;
        for (at, byte) in self.rest.bytes().enumerate() {
            match byte {
                b' ' => columns += 1,
                b'\t' => columns += 4 - (self.column + columns) % 4,
                _ => return (columns, &self.rest[at..]),
            }
        }
        (columns, "")
    }

    /// Passes so many columns of white space.
    pub(super) fn pass(&mut self, mut columns: usize) {
        loop {
            let from_tab = self.pending.min(columns);
            self.pending -= from_tab;
            self.column += from_tab;
            columns -= from_tab;
            if columns == 0 {
                return;
            }
            match self.rest.as_bytes().first() {
                Some(b' ') => self.pending = 1,
                Some(b'\t') => self.pending = 4 - self.column % 4,
                _ => return,
            }
            self.rest = &self.rest[1..];
        }
    }

    /// Passes characters that are one column wide each.
    pub(super) fn bump(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
        self.column += bytes;
    }

    /// The rest with the white space that a tab left.
    pub(super) fn text(&self) -> String {
        format!("{}{}", " ".repeat(self.pending), self.rest)
    }
}

/// A paragraph; definitions of links, which it may begin with, stay in sight: what refers to one was shown before.
pub(super) fn definitions(text: &str, role: Role) -> Vec<Run> {
    let mut rest = text;
    let mut runs = Vec::new();
    while rest.starts_with('[') {
        let line = rest.split('\n').next().unwrap_or(rest);
        let Some((label, target)) = line[1..].split_once("]:") else { break };
        if label.is_empty()
            || label.contains(['[', ']'])
            || label.starts_with('^')
            || target.trim().contains(' ')
        {
            break;
        }
        Run::join(&mut runs, Run::new(line, Role::Url));
        rest = &rest[line.len()..];
        if let Some(next) = rest.strip_prefix('\n') {
            Run::join(&mut runs, Run::new("\n", Role::Url));
            rest = next;
        }
    }
    runs.extend(inline(rest, role));
    runs
}

/// `***`, `- - -`, `___`.
pub(super) fn is_rule(rest: &str) -> bool {
    let mark = rest.as_bytes()[0];
    matches!(mark, b'*' | b'-' | b'_')
        && rest.bytes().all(|byte| byte == mark || byte == b' ' || byte == b'\t')
        && rest.bytes().filter(|byte| *byte == mark).count() >= 3
}

/// `## Title ##`.
pub(super) fn heading(rest: &str) -> Option<(usize, &str)> {
    let level = rest.bytes().take_while(|byte| *byte == b'#').count();
    let title = &rest[level..];
    if !(1..=6).contains(&level) || !(title.is_empty() || title.starts_with([' ', '\t'])) {
        return None;
    }
    let title = title.trim();
    let open = title.trim_end_matches('#');
    Some((level, if open.is_empty() || open.ends_with([' ', '\t']) { open.trim_end() } else { title }))
}

pub(super) fn fence(rest: &str) -> Option<(u8, usize, &str)> {
    let mark = *rest.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let length = rest.bytes().take_while(|byte| *byte == mark).count();
    let info = rest[length..].trim();
    (length >= 3 && !(mark == b'`' && info.contains('`'))).then_some((mark, length, info))
}

pub(super) struct Item {
    /// `-`, `+`, `*`, or what follows the number.
    pub(super) mark: u8,
    pub(super) number: u64,
    pub(super) length: usize,
}

/// What an item of a list begins with. One that cuts a paragraph short is not empty, and has the number 1.
pub(super) fn item(rest: &str, cuts: bool) -> Option<Item> {
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = if digits == 0 { 0 } else { rest[..digits].parse().ok().filter(|_| digits <= 9)? };
    let mark = *rest.as_bytes().get(digits)?;
    let fits = if digits == 0 { matches!(mark, b'-' | b'+' | b'*') } else { matches!(mark, b'.' | b')') };
    if !fits {
        return None;
    }
    let after = &rest[digits + 1..];
    let separate = after.is_empty() || after.starts_with([' ', '\t']);
    if !separate || (cuts && (after.trim().is_empty() || number > 1)) {
        return None;
    }
    Some(Item { mark, number, length: digits + 1 })
}

/// A block of HTML begins; where it ends.
pub(super) fn html(rest: &str, cuts: bool) -> Option<HtmlEnd> {
    const BLOCKS: &[&str] = &[
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "caption",
        "center",
        "col",
        "colgroup",
        "dd",
        "details",
        "dialog",
        "dir",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "frame",
        "frameset",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "hr",
        "html",
        "iframe",
        "legend",
        "li",
        "link",
        "main",
        "menu",
        "menuitem",
        "nav",
        "noframes",
        "ol",
        "optgroup",
        "option",
        "p",
        "param",
        "search",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "title",
        "tr",
        "track",
        "ul",
    ];
    let inner = rest.strip_prefix('<')?;
    for (start, end) in [("!--", "-->"), ("?", "?>"), ("![CDATA[", "]]>")] {
        if inner.starts_with(start) {
            return Some(HtmlEnd::Text(end));
        }
    }
    if let Some(declaration) = inner.strip_prefix('!') {
        return declaration.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(HtmlEnd::Text(">"));
    }
    let name = inner.strip_prefix('/').unwrap_or(inner);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '-').unwrap_or(name.len());
    let (name, after) = (name[..end].to_ascii_lowercase(), &name[end..]);
    let ends = after.is_empty() || after.starts_with([' ', '\t', '>']) || after.starts_with("/>");
    for (raw, end) in
        [("script", "</script>"), ("pre", "</pre>"), ("style", "</style>"), ("textarea", "</textarea>")]
    {
        if name == raw && ends && !inner.starts_with('/') {
            return Some(HtmlEnd::Text(end));
        }
    }
    if ends && BLOCKS.contains(&name.as_str()) {
        return Some(HtmlEnd::Blank);
    }
    let alone = !cuts && tag(rest).is_some_and(|length| rest[length..].trim().is_empty());
    alone.then_some(HtmlEnd::Blank)
}

/// Where a block of HTML ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HtmlEnd {
    Blank,
    Text(&'static str),
}
