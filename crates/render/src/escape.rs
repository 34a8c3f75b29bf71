//! Text for HTML, in which nothing is markup.

use crate::reading::push_visible;

/// Plain text for any place in HTML, also between quotes: controls and marks of direction are visible in it.
pub fn html_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    push_text(&mut out, text);
    out
}

pub(crate) fn push_text(out: &mut String, text: &str) {
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

pub(crate) fn pre(out: &mut String, text: &str) {
    // A line break right behind it would not be shown.
    out.push_str("<pre>\n");
    push_text(out, text.trim_end_matches('\n'));
    out.push_str("</pre>\n");
}
