//! HTML as Markdown, without what a person would not see.
//!
//! The tags are read one after the other, without a tree: the depth of a page costs nothing. Text is left out that attributes
//! hide (`hidden`, `aria-hidden`, styles that show nothing), and so are comments, scripts and styles. What a style sheet hides
//! is not known.

mod writer;

use html5gum::{DefaultEmitter, StartTag, Token, Tokenizer};
use reqwest::Url;

use writer::{Inline, Writer};

/// A page as Markdown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Markdown {
    /// Its title.
    pub title: Option<String>,
    /// Its text.
    pub text: String,
}

/// Elements that may be open at a time.
const DEPTH: usize = 512;
/// Bytes of a title.
const TITLE: usize = 300;
/// Bytes of the address of a link that is kept.
const LINK: usize = 500;

/// Elements without an end.
const VOID: &[&str] = &[
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track",
    "wbr",
];
/// Elements whose content is no text for readers.
const SKIPPED: &[&str] = &[
    "script", "style", "noscript", "template", "svg", "math", "iframe", "object", "canvas", "video", "audio",
    "map", "dialog", "datalist",
];
/// Elements that begin on a line of their own.
const LINES: &[&str] = &[
    "div",
    "section",
    "article",
    "main",
    "header",
    "footer",
    "nav",
    "aside",
    "form",
    "fieldset",
    "figure",
    "figcaption",
    "dt",
    "dd",
    "option",
    "address",
    "details",
    "summary",
    "legend",
    "caption",
    "center",
    "body",
];
/// Elements that end at the next one of their kind.
const SIBLINGS: &[(&str, &[&str])] = &[
    ("li", &["li"]),
    ("p", &["p"]),
    ("dt", &["dt", "dd"]),
    ("dd", &["dt", "dd"]),
    ("tr", &["tr", "td", "th"]),
    ("td", &["td", "th"]),
    ("th", &["td", "th"]),
    ("option", &["option"]),
];

#[derive(Debug)]
struct Open {
    name: String,
    is_hidden: bool,
}

/// HTML as Markdown; relative links start from `base`.
pub fn markdown(html: &str, base: Option<&Url>) -> Markdown {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    let mut walk = Walk {
        base,
        open: Vec::new(),
        hidden: 0,
        writer: Writer::default(),
        title: String::new(),
        is_lost: false,
    };
    for token in Tokenizer::new_with_emitter(html, emitter) {
        let Ok(token) = token;
        match token {
            Token::StartTag(tag) => walk.start(&tag),
            Token::EndTag(tag) => walk.end(&String::from_utf8_lossy(&tag.name)),
            Token::String(text) => walk.text(&String::from_utf8_lossy(&text)),
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
        if walk.is_lost || walk.writer.is_full() {
            break;
        }
    }
    while let Some(open) = walk.open.pop() {
        walk.close(&open);
    }
    let title = crate::frame::one_line(&walk.title, TITLE);
    Markdown { title: (!title.is_empty()).then_some(title), text: walk.writer.finish() }
}

struct Walk<'a> {
    base: Option<&'a Url>,
    open: Vec<Open>,
    /// Open elements that hide what is in them.
    hidden: usize,
    writer: Writer,
    title: String,
    /// Too many elements are open to know what is hidden.
    is_lost: bool,
}

impl Walk<'_> {
    fn start(&mut self, tag: &StartTag<()>) {
        let name = String::from_utf8_lossy(&tag.name).into_owned();
        let attribute = |name: &str| {
            tag.attributes.get(name.as_bytes()).map(|value| String::from_utf8_lossy(value).into_owned())
        };
        if let Some((_, siblings)) = SIBLINGS.iter().find(|(own, _)| *own == name) {
            self.end_sibling(siblings);
        } else if LINES.contains(&name.as_str())
            || matches!(name.as_str(), "ul" | "ol" | "table" | "pre" | "blockquote")
        {
            // A paragraph ends where a block begins.
            if self.open.last().is_some_and(|open| open.name == "p") {
                self.end("p");
            }
        }
        let is_hidden = SKIPPED.contains(&name.as_str())
            || attribute("hidden").is_some()
            || attribute("aria-hidden").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || attribute("style").is_some_and(|style| hides(&style));
        if self.hidden == 0 && !is_hidden {
            self.show_start(&name, &attribute);
        }
        if VOID.contains(&name.as_str()) {
            return;
        }
        if self.open.len() >= DEPTH {
            self.is_lost = true;
            return;
        }
        self.hidden += usize::from(is_hidden);
        self.open.push(Open { name, is_hidden });
    }

    fn show_start(&mut self, name: &str, attribute: &dyn Fn(&str) -> Option<String>) {
        let writer = &mut self.writer;
        match name {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" => {
                writer.block();
                let level = name.as_bytes().get(1).map_or(1, |digit| usize::from(digit - b'0'));
                writer.mark(&format!("{} ", "#".repeat(level)));
            }
            "p" => writer.block(),
            "br" => writer.line(),
            "hr" => writer.rule(),
            "pre" => writer.begin_code(),
            "blockquote" => writer.begin_quote(),
            "ul" => writer.begin_list(None),
            "ol" => {
                let first = attribute("start").and_then(|first| first.trim().parse().ok()).unwrap_or(1);
                writer.begin_list(Some(first));
            }
            "li" => writer.item(),
            "table" => writer.begin_table(),
            "tr" => writer.row(),
            "td" => writer.cell(false),
            "th" => writer.cell(true),
            "b" | "strong" => writer.begin_inline(Inline::Strong),
            "i" | "em" => writer.begin_inline(Inline::Emphasis),
            "code" | "kbd" | "samp" | "tt" => writer.begin_inline(Inline::Code),
            "a" => writer.begin_inline(Inline::Link(attribute("href").and_then(|to| self.base.link(&to)))),
            "img" => {
                if let Some(alt) = attribute("alt").filter(|alt| !alt.trim().is_empty()) {
                    writer.text(&format!("[image: {}]", crate::frame::one_line(&alt, TITLE)));
                }
            }
            "input" | "head" | "html" => {}
            name if LINES.contains(&name) => writer.line(),
            _ => {}
        }
    }

    /// Ends an open element of one of these names, if it is within the same list or table.
    fn end_sibling(&mut self, names: &[&str]) {
        for at in (0..self.open.len()).rev() {
            let Some(open) = self.open.get(at) else { return };
            if names.contains(&open.name.as_str()) {
                self.close_from(at);
                return;
            }
            if matches!(
                open.name.as_str(),
                "ul" | "ol" | "table" | "dl" | "select" | "body" | "div" | "blockquote"
            ) {
                return;
            }
        }
    }

    fn end(&mut self, name: &str) {
        if let Some(at) = self.open.iter().rposition(|open| open.name == name) {
            self.close_from(at);
        } else if name == "p" || name == "br" {
            self.writer.line();
        }
    }

    fn close_from(&mut self, at: usize) {
        while self.open.len() > at {
            let Some(open) = self.open.pop() else { return };
            self.close(&open);
        }
    }

    fn close(&mut self, open: &Open) {
        self.hidden -= usize::from(open.is_hidden);
        if self.hidden > 0 || open.is_hidden {
            return;
        }
        let writer = &mut self.writer;
        match open.name.as_str() {
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "p" => writer.block(),
            "pre" => writer.end_code(),
            "blockquote" => writer.end_quote(),
            "ul" | "ol" => writer.end_list(),
            "table" => writer.end_table(),
            "tr" => writer.end_row(),
            "b" | "strong" | "i" | "em" | "code" | "kbd" | "samp" | "tt" | "a" => writer.end_inline(),
            "li" => writer.line(),
            name if LINES.contains(&name) => writer.line(),
            _ => {}
        }
    }

    fn text(&mut self, text: &str) {
        if self.hidden > 0 {
            return;
        }
        if self.open.last().is_some_and(|open| open.name == "title") {
            if self.title.len() < TITLE * 4 {
                self.title.push_str(text);
            }
            return;
        }
        self.writer.text(text);
    }
}

trait LinkBase {
    fn link(&self, to: &str) -> Option<String>;
}

impl LinkBase for Option<&Url> {
    /// The absolute address of a link that leads to another page.
    fn link(&self, to: &str) -> Option<String> {
        let to = to.trim();
        if to.is_empty() || to.starts_with('#') || to.len() > LINK {
            return None;
        }
        let url = match self {
            Some(base) => base.join(to).ok()?,
            None => Url::parse(to).ok()?,
        };
        let text = url.as_str().replace('(', "%28").replace(')', "%29");
        (matches!(url.scheme(), "http" | "https" | "mailto") && text.len() <= LINK).then_some(text)
    }
}

/// Whether a style shows nothing of an element.
fn hides(style: &str) -> bool {
    let style: String = style.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_ascii_lowercase();
    style.split(';').any(|rule| {
        let Some((name, value)) = rule.split_once(':') else { return false };
        let value = value.trim_end_matches("!important");
        let is_zero = || {
            let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '%');
            digits.parse::<f64>().is_ok_and(|number| number == 0.0)
        };
        match name {
            "display" => value == "none",
            "visibility" => matches!(value, "hidden" | "collapse"),
            "opacity" | "font-size" => is_zero(),
            "color" => value == "transparent",
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests;
