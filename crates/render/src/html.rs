//! An entry as HTML to read, in which nothing of its content is HTML.

use quipu_protocol::{Entry, ImageContent};

use crate::reading::{Part, push_visible, read};

/// Kinds of images that are shown: those that hold no program.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Bytes of a paragraph at most in which code and bold words are looked for.
const PARAGRAPH: usize = 64 << 10;

/// An entry to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HtmlEntry {
    /// One of `user`, `assistant`, `result`, `command`, `compaction`, `session`, `note`.
    pub kind: &'static str,
    /// Who speaks, or what happens: text with `code` in it.
    pub title: String,
    /// Blocks: `p`, `h4` to `h6`, `pre`, `img` with its data, and `details` of the class `thinking` or `long`, without
    /// links, styles or scripts. May be empty.
    pub body: String,
}

/// Writes an entry as HTML. What was said is read as the Markdown that most of it is, as far as that is code, headings
/// and bold words; all else stands as it was written.
pub fn html_entry(entry: &Entry) -> HtmlEntry {
    let mut out = String::new();
    let title = read(entry, &mut |part| match part {
        Part::Prose(text) => prose(&mut out, text),
        Part::Thinking(text) => {
            out.push_str("<details class=thinking><summary>Thinking</summary>\n");
            prose(&mut out, text);
            out.push_str("</details>\n");
        }
        Part::Withheld => out.push_str("<p class=aside>Thinking, withheld by the provider</p>\n"),
        Part::Code { text, folded: false, .. } => pre(&mut out, text),
        Part::Code { what, text, folded: true, .. } => {
            let (lines, bytes) = (text.lines().count(), text.len());
            out.push_str("<details class=long><summary>");
            out.push_str(&format!("{what}, {lines} lines, {bytes} bytes</summary>\n"));
            pre(&mut out, text);
            out.push_str("</details>\n");
        }
        Part::Call(name) => {
            out.push_str(&format!("<p class=call>Call <code>{}</code></p>\n", html_text(name)));
        }
        Part::Image(image) => picture(&mut out, image),
        Part::End(what, why) => {
            let colon = if why.is_some() { ": " } else { "" };
            let why = html_text(why.unwrap_or_default());
            out.push_str(&format!("<p class=end><strong>{what}</strong>{colon}{why}</p>\n"));
        }
        Part::Facts(facts) => {
            out.push_str("<p>");
            for (what, is) in facts {
                out.push_str(&format!("{what} <code>{}</code> ", html_text(is)));
            }
            out.push_str("</p>\n");
        }
    });
    let of =
        if title.of.is_empty() { String::new() } else { format!("<code>{}</code>", html_text(&title.of)) };
    let parts = [title.who, &of, &title.more].into_iter().filter(|part| !part.is_empty());
    HtmlEntry { kind: title.kind, title: parts.collect::<Vec<_>>().join(" "), body: out }
}

/// Plain text for any place in HTML, also between quotes: controls and marks of direction are visible in it.
pub fn html_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    push_text(&mut out, text);
    out
}

fn push_text(out: &mut String, text: &str) {
    let mut visible = String::new();
    let text = if text.chars().any(|c| c.is_control() || !c.is_ascii()) {
        push_visible(&mut visible, text);
        &visible
    } else {
        text
    };
    let mut rest = text;
    while let Some(at) = rest.find(['<', '>', '&', '"', '\'']) {
        out.push_str(&rest[..at]);
        out.push_str(match rest.as_bytes()[at] {
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'&' => "&amp;",
            b'"' => "&quot;",
            _ => "&#39;",
        });
        rest = &rest[at + 1..];
    }
    out.push_str(rest);
}

fn pre(out: &mut String, text: &str) {
    // A line break right behind it would not be shown.
    out.push_str("<pre>\n");
    push_text(out, text.trim_end_matches('\n'));
    out.push_str("</pre>\n");
}

fn picture(out: &mut String, image: &ImageContent) {
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
    let (kind, bytes) = (html_text(&image.mime_type), image.data.len() / 4 * 3);
    if IMAGES.contains(&image.mime_type.as_str()) && image.data.bytes().all(is_base64) {
        out.push_str(&format!(
            "<img loading=lazy alt=\"Image {kind}, {bytes} bytes\" src=\"data:{kind};base64,"
        ));
        out.push_str(&image.data);
        out.push_str("\">\n");
    } else {
        out.push_str(&format!("<p class=aside>Image {kind}, {bytes} bytes</p>\n"));
    }
}

/// Paragraphs, headings and fences.
fn prose(out: &mut String, text: &str) {
    let mut open: Option<(char, usize)> = None;
    // What was gathered of a paragraph or a fence.
    let mut block = String::new();
    for line in text.lines() {
        let bare = line.trim_start();
        let mark = bare.chars().next().filter(|mark| matches!(mark, '`' | '~'));
        let run = mark.map_or(0, |mark| bare.chars().take_while(|c| *c == mark).count());
        if let Some((wanted, length)) = open {
            if mark == Some(wanted) && run >= length && bare[run..].trim().is_empty() {
                pre(out, &std::mem::take(&mut block));
                open = None;
                continue;
            }
            block.push_str(line);
            block.push('\n');
        } else if let Some(mark) =
            mark.filter(|mark| run >= 3 && (*mark == '~' || !bare[run..].contains('`')))
        {
            paragraph(out, &std::mem::take(&mut block));
            open = Some((mark, run));
        } else if bare.is_empty() {
            paragraph(out, &std::mem::take(&mut block));
        } else {
            let level = line.bytes().take_while(|byte| *byte == b'#').count();
            if (1..=6).contains(&level) && line[level..].starts_with([' ', '\t']) {
                paragraph(out, &std::mem::take(&mut block));
                let tag = format!("h{}", (level + 3).min(6));
                out.push_str(&format!("<{tag} dir=auto>"));
                inline(out, line[level..].trim());
                out.push_str(&format!("</{tag}>\n"));
            } else {
                block.push_str(line);
                block.push('\n');
            }
        }
    }
    if open.is_some() {
        pre(out, &block);
    } else {
        paragraph(out, &block);
    }
}

fn paragraph(out: &mut String, text: &str) {
    let text = text.trim_end_matches('\n');
    if !text.is_empty() {
        out.push_str("<p dir=auto>");
        inline(out, text);
        out.push_str("</p>\n");
    }
}

/// Code and bold words; a mark without its other one stands as it is.
fn inline(out: &mut String, text: &str) {
    let mut rest = text;
    // What is longer is no paragraph.
    while let Some(at) = rest.find(['`', '*']).filter(|_| text.len() <= PARAGRAPH) {
        push_text(out, &rest[..at]);
        rest = &rest[at..];
        let (mark, tag) = if rest.starts_with('`') { ('`', "code") } else { ('*', "strong") };
        let inner = rest.trim_start_matches(mark);
        let run = rest.len() - inner.len();
        let end = (mark == '`' || run == 2).then(|| inner.find(&rest[..run])).flatten();
        match end {
            Some(end) if end > 0 && !inner[end + run..].starts_with(mark) => {
                out.push_str(&format!("<{tag}>"));
                push_text(out, &inner[..end]);
                out.push_str(&format!("</{tag}>"));
                rest = &inner[end + run..];
            }
            Some(_) | None => {
                out.push_str(&rest[..run]);
                rest = inner;
            }
        }
    }
    push_text(out, rest);
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn pictures_with_scripts_are_not_shown() {
        for (mime_type, data, shown) in [
            ("image/png", "AAAA", true),
            ("image/svg+xml", "AAAA", false),
            ("image/png", "AAAA\" onerror=\"x", false),
            ("image/png;x", "AAAA", false),
        ] {
            let mut out = String::new();
            picture(&mut out, &ImageContent { data: data.into(), mime_type: mime_type.into() });
            assert_eq!(out.starts_with("<img "), shown, "{out}");
            assert!(!out.contains("onerror"), "{out}");
        }
    }
}
