//! Emphasis, code, links: what stands within a paragraph.

use super::forms::{bare_url, entity, tag, target};
use std::sync::Arc;

use crate::Role;
use crate::styled::Run;

/// A piece of a paragraph while it is read.
#[derive(Debug)]
struct Node {
    kind: Kind,
    text: String,
    /// Where it leads.
    link: Option<Arc<str>>,
}

#[derive(Debug)]
enum Kind {
    Text,
    Code,
    Html,
    Url,
    /// A run of `*`, `_` or `~` that may begin or end emphasis. Those of it that do not stay text.
    Delimiter {
        byte: u8,
        left: usize,
        all: usize,
        opens: bool,
        closes: bool,
    },
}

/// What begins at a node, or ends there when negative.
#[derive(Debug, Clone, Copy, Default)]
struct Change {
    bold: i32,
    italic: i32,
    strike: i32,
    link: i32,
}

#[derive(Debug)]
struct Bracket {
    node: usize,
    image: bool,
    active: bool,
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    nodes: Vec<Node>,
    /// One for each node, and one more.
    changes: Vec<Change>,
    brackets: Vec<Bracket>,
    /// Nodes before this one take no more text: what they are is settled.
    settled: usize,
    /// Lengths of runs of backticks that nothing closes from here on.
    unclosed: Vec<usize>,
}

/// Reads the text of a paragraph or a heading. A line end in it stays one: a run that is `\n`.
pub(super) fn inline(text: &str, role: Role) -> Vec<Run> {
    let mut reader = Reader {
        text,
        at: 0,
        nodes: Vec::new(),
        changes: vec![Change::default()],
        brackets: Vec::new(),
        settled: 0,
        unclosed: Vec::new(),
    };
    while reader.at < text.len() {
        reader.step();
    }
    reader.emphasis(0);
    reader.runs(role)
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn node(&mut self, kind: Kind, text: impl Into<String>) {
        self.nodes.push(Node { kind, text: text.into(), link: None });
        self.changes.push(Change::default());
    }

    fn plain(&mut self, text: &str) {
        let settled = self.nodes.len() <= self.settled;
        match self.nodes.last_mut() {
            Some(Node { kind: Kind::Text, text: last, .. }) if !settled => last.push_str(text),
            _ => self.node(Kind::Text, text),
        }
    }

    fn step(&mut self) {
        let text = self.text;
        let rest = &text[self.at..];
        let bytes = rest.as_bytes();
        match bytes[0] {
            b'\\' => match bytes.get(1) {
                Some(byte) if byte.is_ascii_punctuation() => {
                    self.plain(&rest[1..2]);
                    self.at += 2;
                }
                Some(b'\n') => self.at += 1,
                _ => self.literal(1),
            },
            b'`' => self.code(),
            b'*' | b'_' | b'~' => self.delimiter(),
            b'[' => self.bracket(false),
            b'!' if bytes.get(1) == Some(&b'[') => self.bracket(true),
            b']' => self.close_bracket(),
            b'<' => self.angle(),
            b'&' => match entity(rest) {
                Some((character, length)) => {
                    self.plain(&character);
                    self.at += length;
                }
                None => self.literal(1),
            },
            b'\n' => {
                if let Some(Node { kind: Kind::Text, text, .. }) = self.nodes.last_mut() {
                    text.truncate(text.trim_end_matches(' ').len());
                }
                self.plain("\n");
                self.at += 1 + rest[1..].len() - rest[1..].trim_start_matches(' ').len();
            }
            b'h' if self.begins_word() && bare_url(rest).is_some() => {
                let length = bare_url(rest).unwrap_or(1);
                self.node(Kind::Url, &rest[..length]);
                self.leads(&rest[..length]);
                self.at += length;
            }
            _ => {
                let special = |byte: u8| b"\\`*_~[]!<&\nh".contains(&byte);
                let length =
                    bytes[1..].iter().position(|byte| special(*byte)).map_or(rest.len(), |at| at + 1);
                self.literal(length);
            }
        }
    }

    fn literal(&mut self, length: usize) {
        let text = &self.text[self.at..self.at + length];
        self.plain(text);
        self.at += length;
    }

    /// Says where the last node leads.
    fn leads(&mut self, target: &str) {
        if let Some(node) = self.nodes.last_mut() {
            node.link = Some(target.into());
        }
    }

    fn begins_word(&self) -> bool {
        self.text[..self.at].chars().next_back().is_none_or(|c| c.is_whitespace() || "*_~([\"'".contains(c))
    }

    fn code(&mut self) {
        let rest = self.rest();
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        if self.unclosed.contains(&ticks) {
            return self.literal(ticks);
        }
        let mut from = ticks;
        while let Some(found) = rest[from..].find('`') {
            let start = from + found;
            let run = rest[start..].len() - rest[start..].trim_start_matches('`').len();
            if run == ticks {
                let inner = rest[ticks..start].replace('\n', " ");
                let padded = inner.len() > 2 && inner.starts_with(' ') && inner.ends_with(' ');
                let code =
                    if padded && !inner.trim().is_empty() { &inner[1..inner.len() - 1] } else { &inner };
                let code = code.to_owned();
                self.node(Kind::Code, code);
                self.at += start + run;
                return;
            }
            from = start + run;
        }
        self.unclosed.push(ticks);
        self.literal(ticks);
    }

    fn delimiter(&mut self) {
        let rest = self.rest();
        let byte = rest.as_bytes()[0];
        let all = rest.bytes().take_while(|other| *other == byte).count();
        let before = self.text[..self.at].chars().next_back();
        let after = rest[all..].chars().next();
        let space = |c: Option<char>| c.is_none_or(char::is_whitespace);
        let mark = |c: Option<char>| c.is_some_and(|c| !c.is_alphanumeric() && !c.is_whitespace());
        let left = !space(after) && (!mark(after) || space(before) || mark(before));
        let right = !space(before) && (!mark(before) || space(after) || mark(after));
        let (opens, closes) = match byte {
            b'_' => (left && (!right || mark(before)), right && (!left || mark(after))),
            b'~' => (left && all <= 2, right && all <= 2),
            _ => (left, right),
        };
        let text = rest[..all].to_owned();
        self.node(Kind::Delimiter { byte, left: all, all, opens, closes }, text);
        self.at += all;
    }

    fn bracket(&mut self, image: bool) {
        let text = if image { "![" } else { "[" };
        self.brackets.push(Bracket { node: self.nodes.len(), image, active: true });
        self.node(Kind::Text, text);
        self.settled = self.nodes.len();
        self.at += text.len();
    }

    fn close_bracket(&mut self) {
        let Some(bracket) = self.brackets.pop() else { return self.literal(1) };
        let target = if bracket.active { target(&self.text[self.at + 1..]) } else { None };
        let Some((url, length)) = target else { return self.literal(1) };
        self.emphasis(bracket.node + 1);
        let shown: String = self.nodes[bracket.node + 1..].iter().map(|node| node.text.as_str()).collect();
        self.nodes[bracket.node].text.clear();
        self.changes[bracket.node].link += 1;
        self.changes[self.nodes.len()].link -= 1;
        if shown.is_empty() {
            self.node(Kind::Url, url.as_str());
        } else if shown != url && Some(shown.as_str()) != url.strip_prefix("mailto:") {
            self.node(Kind::Url, format!(" ({url})"));
        }
        let link: Arc<str> = url.into();
        for node in &mut self.nodes[bracket.node..] {
            node.link.get_or_insert_with(|| link.clone());
        }
        self.settled = self.nodes.len();
        self.at += 1 + length;
        if !bracket.image {
            // No link within a link.
            self.brackets.iter_mut().filter(|outer| !outer.image).for_each(|outer| outer.active = false);
        }
    }

    fn angle(&mut self) {
        let rest = self.rest();
        if let Some(end) = rest.find('>') {
            let inner = &rest[1..end];
            let scheme = inner.split_once(':').map(|(scheme, _)| scheme);
            let is_scheme = |s: &str| {
                (2..=32).contains(&s.len())
                    && s.starts_with(|c: char| c.is_ascii_alphabetic())
                    && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b))
            };
            let mail = inner.split_once('@').is_some_and(|(name, host)| {
                !name.is_empty()
                    && host.contains('.')
                    && inner
                        .bytes()
                        .all(|b| b.is_ascii_alphanumeric() || b"@.!#$%&'*+/=?^_`{|}~-".contains(&b))
            });
            if !inner.contains([' ', '<', '\n']) && (scheme.is_some_and(is_scheme) || mail) {
                let url = inner.to_owned();
                let target = if mail && scheme.is_none() { format!("mailto:{inner}") } else { url.clone() };
                self.node(Kind::Url, url);
                self.leads(&target);
                self.at += end + 1;
                return;
            }
        }
        let Some(length) = tag(rest) else { return self.literal(1) };
        let tag = rest[..length].to_owned();
        if matches!(tag.trim_matches(['<', '>', '/', ' ']).to_ascii_lowercase().as_str(), "br") {
            self.plain("\n");
        } else {
            self.node(Kind::Html, tag);
        }
        self.at += length;
    }

    /// Finds which runs of the delimiters from a node on belong together.
    fn emphasis(&mut self, from: usize) {
        let mut open: Vec<usize> = Vec::new();
        // How far down the list of open runs a closing one of a kind need not look again.
        let mut bottoms = [0usize; 18];
        for at in from..self.nodes.len() {
            while let Kind::Delimiter { byte, left, all, opens, closes } = self.nodes[at].kind {
                if left == 0 {
                    break;
                }
                let kind = match byte {
                    b'*' => 0,
                    b'_' => 1,
                    _ => 2,
                } * 6
                    + usize::from(opens) * 3
                    + all % 3;
                let found = (closes && bottoms[kind] < open.len())
                    .then(|| open[bottoms[kind]..].iter().rposition(|opener| self.pairs(*opener, at)))
                    .flatten()
                    .map(|found| found + bottoms[kind]);
                let Some(found) = found else {
                    if closes {
                        bottoms[kind] = open.len();
                    }
                    if opens {
                        open.push(at);
                    }
                    break;
                };
                let opener = open[found];
                let used = self.pair(opener, at);
                open.truncate(found + usize::from(used));
                bottoms.iter_mut().for_each(|bottom| *bottom = (*bottom).min(open.len()));
            }
        }
        // What was not used is text.
        for node in &mut self.nodes[from..] {
            if let Kind::Delimiter { left, .. } = node.kind {
                node.text.truncate(left);
                node.kind = Kind::Text;
            }
        }
    }

    fn pairs(&self, opener: usize, closer: usize) -> bool {
        let (
            Kind::Delimiter { byte, left, all, closes, .. },
            Kind::Delimiter { byte: other, left: other_left, all: other_all, opens, .. },
        ) = (&self.nodes[opener].kind, &self.nodes[closer].kind)
        else {
            return false;
        };
        if byte != other || *left == 0 {
            return false;
        }
        if *byte == b'~' {
            return left == other_left;
        }
        !((*closes || *opens) && (all + other_all) % 3 == 0 && (all % 3 != 0 || other_all % 3 != 0))
    }

    /// Emphasises what is between two runs; whether the first has something left.
    fn pair(&mut self, opener: usize, closer: usize) -> bool {
        let left = |node: &Node| if let Kind::Delimiter { left, .. } = node.kind { left } else { 0 };
        let (first, second) = (left(&self.nodes[opener]), left(&self.nodes[closer]));
        let strike = self.nodes[opener].text.starts_with('~');
        let used = if strike {
            first
        } else if first >= 2 && second >= 2 {
            2
        } else {
            1
        };
        for (at, by) in [(opener + 1, 1), (closer, -1)] {
            let change = &mut self.changes[at];
            *(if strike {
                &mut change.strike
            } else if used == 2 {
                &mut change.bold
            } else {
                &mut change.italic
            }) += by;
        }
        for node in [opener, closer] {
            if let Kind::Delimiter { left, .. } = &mut self.nodes[node].kind {
                *left -= used;
            }
        }
        first > used
    }

    fn runs(self, role: Role) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        let mut now = Change::default();
        for (node, change) in self.nodes.into_iter().zip(self.changes) {
            now.bold += change.bold;
            now.italic += change.italic;
            now.strike += change.strike;
            now.link += change.link;
            let role = match node.kind {
                Kind::Code => Role::Code,
                Kind::Html => Role::Html,
                Kind::Url => Role::Url,
                Kind::Text | Kind::Delimiter { .. } if now.link > 0 => Role::Link,
                Kind::Text | Kind::Delimiter { .. } => role,
            };
            let mut run = Run::new(&node.text, role);
            (run.bold, run.italic, run.strike) = (now.bold > 0, now.italic > 0, now.strike > 0);
            run.link = node.link;
            Run::join(&mut runs, run);
        }
        runs
    }
}
