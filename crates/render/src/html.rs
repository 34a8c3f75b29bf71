//! An entry as HTML to read, in which nothing of its content is HTML.

use quipu_protocol::{Entry, ImageContent};

use crate::change::change;
use crate::escape::{html_text, pre};
use crate::prose::prose;
use crate::reading::{Part, read};

/// Kinds of images that are shown: those that hold no program.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// An entry to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HtmlEntry {
    /// One of `user`, `assistant`, `result`, `command`, `compaction`, `session`, `note`.
    pub kind: &'static str,
    /// Who speaks, or what happens: text with `code` in it.
    pub title: String,
    /// Blocks: `p`, `h4` to `h6`, lists, `blockquote`, `table`, `hr`, `pre` (of the class `diff` with `ins` and `del`), `img`
    /// with its data, and `details` of the class `thinking` or `long`. Links lead to the web or to an address of mail; there
    /// are no styles and no scripts. May be empty.
    pub body: String,
}

/// Writes an entry as HTML. What was said is read as the Markdown that most of it is; HTML in it is text. Changes of files
/// are shown line by line.
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
        Part::Code { language, text, folded: false, .. } => code(&mut out, language, text),
        Part::Code { what, language, text, folded: true } => {
            let (lines, bytes) = (text.lines().count(), text.len());
            out.push_str("<details class=long><summary>");
            out.push_str(&format!("{what}, {lines} lines, {bytes} bytes</summary>\n"));
            code(&mut out, language, text);
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

fn code(out: &mut String, language: &str, text: &str) {
    if language == "diff" { change(out, text) } else { pre(out, text) }
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

#[cfg(test)]
mod tests {
    use super::*;

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
