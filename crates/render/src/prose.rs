//! Markdown of messages as HTML: its structure, and of its content nothing but text.

use pulldown_cmark::{Alignment, CodeBlockKind, Event, HeadingLevel, Options, Parser, Tag, TagEnd};

use crate::change::change;
use crate::escape::{html_text, pre, push_text};

/// Bytes of a text in which Markdown is looked for; a longer one stands as it was written.
const TEXT: usize = 256 << 10;
/// Blocks and emphasis within each other; what is deeper is written without them.
const DEPTH: usize = 24;
/// Columns of a table; a wider one stands as it was written.
const COLUMNS: usize = 64;
/// Cells of all tables of a text: rows are filled up to the width of their header, so a short text may have very many.
const CELLS: usize = 20_000;
/// Where a link may lead to.
const SCHEMES: [&str; 3] = ["http://", "https://", "mailto:"];

/// Writes a text of Markdown.
pub(crate) fn prose(out: &mut String, text: &str) {
    if text.len() > TEXT {
        out.push_str("<p dir=auto>");
        push_text(out, text.trim_end_matches('\n'));
        out.push_str("</p>\n");
        return;
    }
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut page =
        Page { out, open: Vec::new(), cells: 0, block: None, is_head: false, sides: Vec::new(), column: 0 };
    // Ends of a table that is written as it is.
    let mut skipping = false;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match event {
            Event::End(TagEnd::Table) if skipping => skipping = false,
            _ if skipping => {}
            Event::Start(Tag::Table(sides)) if page.is_too_large(&sides, &text[range.clone()]) => {
                pre(page.out, &text[range]);
                skipping = true;
            }
            event => page.event(event),
        }
    }
}

/// What is being written.
struct Page<'a> {
    out: &'a mut String,
    /// What ends each of the open tags.
    open: Vec<Option<String>>,
    cells: usize,
    /// The language and the text of a block of code.
    block: Option<(String, String)>,
    is_head: bool,
    sides: Vec<Alignment>,
    column: usize,
}

impl Page<'_> {
    /// Counts the cells of a table; whether it is written as it is.
    fn is_too_large(&mut self, sides: &[Alignment], source: &str) -> bool {
        let cells = source.lines().count().saturating_mul(sides.len());
        self.cells = self.cells.saturating_add(cells);
        sides.len() > COLUMNS || self.cells > CELLS
    }

    fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(TagEnd::CodeBlock) => {
                let (language, text) = self.block.take().unwrap_or_default();
                if matches!(language.as_str(), "diff" | "patch") {
                    change(self.out, &text);
                } else {
                    pre(self.out, &text);
                }
            }
            Event::End(TagEnd::TableHead) => {
                self.is_head = false;
                self.close();
            }
            Event::End(_) => self.close(),
            Event::Text(text) | Event::Html(text) | Event::InlineHtml(text) => match &mut self.block {
                Some((_, block)) => block.push_str(&text),
                None => push_text(self.out, &text),
            },
            Event::Code(text) => {
                self.out.push_str("<code>");
                push_text(self.out, &text);
                self.out.push_str("</code>");
            }
            // Lines stay lines, as in the terminal.
            Event::SoftBreak | Event::HardBreak => self.out.push('\n'),
            Event::Rule => self.out.push_str("<hr>\n"),
            Event::TaskListMarker(done) => self.out.push_str(if done { "☑ " } else { "☐ " }),
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                push_text(self.out, &text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph | Tag::HtmlBlock => self.tag("<p dir=auto>", "</p>\n"),
            Tag::Heading { level, .. } => {
                let tag = match level {
                    HeadingLevel::H1 => "h4",
                    HeadingLevel::H2 => "h5",
                    _ => "h6",
                };
                self.tag(&format!("<{tag} dir=auto>"), &format!("</{tag}>\n"));
            }
            Tag::BlockQuote(_) => self.tag("<blockquote>", "</blockquote>\n"),
            Tag::CodeBlock(kind) => {
                let language = match &kind {
                    CodeBlockKind::Fenced(info) => info.split_whitespace().next().unwrap_or_default(),
                    CodeBlockKind::Indented => "",
                };
                self.block = Some((language.to_ascii_lowercase(), String::new()));
            }
            Tag::List(Some(first)) => self.tag(&format!("<ol start={first}>"), "</ol>\n"),
            Tag::List(None) => self.tag("<ul>", "</ul>\n"),
            Tag::Item => self.tag("<li dir=auto>", "</li>"),
            Tag::Table(sides) => {
                self.sides = sides;
                self.tag("<div class=table><table>", "</table></div>\n");
            }
            Tag::TableHead => {
                (self.is_head, self.column) = (true, 0);
                self.tag("<tr>", "</tr>");
            }
            Tag::TableRow => {
                self.column = 0;
                self.tag("<tr>", "</tr>");
            }
            Tag::TableCell => {
                let name = if self.is_head { "th" } else { "td" };
                let side = match self.sides.get(self.column) {
                    Some(Alignment::Center) => " class=center",
                    Some(Alignment::Right) => " class=right",
                    Some(Alignment::Left | Alignment::None) | None => "",
                };
                self.column += 1;
                self.tag(&format!("<{name} dir=auto{side}>"), &format!("</{name}>"));
            }
            Tag::Emphasis => self.tag("<em>", "</em>"),
            Tag::Strong => self.tag("<strong>", "</strong>"),
            Tag::Strikethrough => self.tag("<s>", "</s>"),
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.link(&dest_url),
            Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::Superscript
            | Tag::Subscript
            | Tag::MetadataBlock(_) => self.open.push(None),
        }
    }

    /// A link to the web; of any other, and of a picture in a link, the target is text.
    fn link(&mut self, url: &str) {
        let lower = url.get(..8).unwrap_or(url).to_ascii_lowercase();
        let is_safe =
            SCHEMES.iter().any(|scheme| lower.starts_with(scheme)) && !url.contains(char::is_control);
        let is_inside = self.open.iter().flatten().any(|end| end == "</a>");
        if is_safe && !is_inside {
            self.tag(&format!("<a rel=\"noreferrer nofollow\" href=\"{}\">", html_text(url)), "</a>");
        } else {
            self.open.push((!url.is_empty()).then(|| format!(" ({})", html_text(url))));
        }
    }

    fn tag(&mut self, begin: &str, end: &str) {
        if self.open.len() < DEPTH {
            self.out.push_str(begin);
            self.open.push(Some(end.to_owned()));
        } else {
            self.open.push(None);
        }
    }

    fn close(&mut self) {
        if let Some(end) = self.open.pop().flatten() {
            self.out.push_str(&end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> String {
        let mut out = String::new();
        prose(&mut out, text);
        out
    }

    #[test]
    fn text_is_read_and_never_html() {
        for (text, wanted) in [
            ("a **b** `<c>`\nd", "<p dir=auto>a <strong>b</strong> <code>&lt;c&gt;</code>\nd</p>\n"),
            ("**a `b", "<p dir=auto>**a `b</p>\n"),
            ("# A <b>\ntext", "<h4 dir=auto>A &lt;b&gt;</h4>\n<p dir=auto>text</p>\n"),
            (
                "```html\n</pre><script>\n```\nafter",
                "<pre>\n&lt;/pre&gt;&lt;script&gt;</pre>\n<p dir=auto>after</p>\n",
            ),
            ("~~~\nopen", "<pre>\nopen</pre>\n"),
            ("\u{202e}\u{1b}[2J \"'&", "<p dir=auto>\\u{202e}\\u{1b}[2J &quot;&#39;&amp;</p>\n"),
            ("``` `<i>", "<p dir=auto>``` `&lt;i&gt;</p>\n"),
            ("é **日本** *", "<p dir=auto>é <strong>日本</strong> *</p>\n"),
            ("", ""),
        ] {
            let mut out = String::new();
            prose(&mut out, text);
            assert_eq!(out, wanted, "{text:?}");
        }
    }

    #[test]
    fn tables_lists_quotes_and_links_are_structure() {
        for (text, wanted) in [
            (
                "| a | b |\n|---|--:|\n| *x* | `<y>` |",
                "<div class=table><table><tr><th dir=auto>a</th><th dir=auto class=right>b</th></tr>\
                 <tr><td dir=auto><em>x</em></td><td dir=auto class=right><code>&lt;y&gt;</code></td></tr>\
                 </table></div>\n",
            ),
            ("- a\n- [x] ~~b~~", "<ul><li dir=auto>a</li><li dir=auto>☑ <s>b</s></li></ul>\n"),
            ("3. a", "<ol start=3><li dir=auto>a</li></ol>\n"),
            ("> q", "<blockquote><p dir=auto>q</p>\n</blockquote>\n"),
            ("```diff\n-a\n+b\n```", "<pre class=diff>\n<del>-a\n</del><ins>+b</ins></pre>\n"),
            (
                "[a](HTTPS://x.test/?q=\"><script>)",
                "<p dir=auto><a rel=\"noreferrer nofollow\" href=\"HTTPS://x.test/?q=&quot;&gt;&lt;script&gt;\">a</a></p>\n",
            ),
            (
                "[a](<https://x.test/\"onclick=\"x>)",
                "<p dir=auto><a rel=\"noreferrer nofollow\" href=\"https://x.test/&quot;onclick=&quot;x\">a</a></p>\n",
            ),
            ("[a](javascript:x)", "<p dir=auto>a (javascript:x)</p>\n"),
            ("[a](data:text/html,x) [b](#n1)", "<p dir=auto>a (data:text/html,x) b (#n1)</p>\n"),
            (
                "[![p](https://x.test/p.png)](https://y.test)",
                "<p dir=auto><a rel=\"noreferrer nofollow\" href=\"https://y.test\">p (https://x.test/p.png)</a></p>\n",
            ),
            ("<div>\n*a*\n</div>", "<p dir=auto>&lt;div&gt;\n*a*\n&lt;/div&gt;</p>\n"),
            (
                "a <b onclick=x>b</b> &lt;i&gt;",
                "<p dir=auto>a &lt;b onclick=x&gt;b&lt;/b&gt; &lt;i&gt;</p>\n",
            ),
        ] {
            assert_eq!(page(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn hostile_markdown_has_bounded_depth_and_size() {
        let tags = |text: &str| text.matches('<').count();
        let deep = page(&format!("{}end", "> ".repeat(5_000)));
        assert!(deep.matches("<blockquote>").count() <= DEPTH && deep.contains("end"), "{}", deep.len());
        let deep = page(&format!("{}x{}", "*a **b ".repeat(2_000), "** *".repeat(2_000)));
        assert!(deep.matches("<em>").count() + deep.matches("<strong>").count() < 4_001);
        let lists: String = (0..300).map(|n| format!("{}- x\n", "  ".repeat(n))).collect();
        assert!(page(&lists).matches("<ul>").count() <= DEPTH);
        // Wide tables with very many short rows stand as they were written.
        let wide = format!("{}\n{}\n{}", "|a".repeat(5_000), "|-".repeat(5_000), "|\n".repeat(50_000));
        assert!(tags(&page(&wide)) < 100);
        let long = format!("{}\n{}\n{}", "|a".repeat(60), "|-".repeat(60), "|x\n".repeat(50_000));
        assert!(page(&long).len() < 8 * CELLS * 20, "{}", page(&long).len());
        let links = page(&"[".repeat(100_000));
        assert!(tags(&links) < 10 && links.contains("[[["));
        assert_eq!(tags(&page(&"*a* ".repeat(TEXT))), 2);
    }
}
