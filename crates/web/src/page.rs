//! What a server answered as text.

use crate::charset::{decoded, named_in_page};
use crate::get::RawPage;
use crate::html::markdown;

/// An answer as a model reads it.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    /// Where it came from in the end.
    pub(crate) url: reqwest::Url,
    pub(crate) status: u16,
    /// The type that the server names, or that its bytes look like.
    pub(crate) kind: String,
    pub(crate) title: Option<String>,
    /// `None` for what is not text.
    pub(crate) text: Option<String>,
    /// Bytes that were read.
    pub(crate) size: usize,
    pub(crate) is_cut: bool,
}

/// Bytes in which a zero byte makes an answer one that is not text.
const LOOK: usize = 8 << 10;

impl Page {
    pub(crate) fn of(raw: RawPage) -> Self {
        let RawPage { url, status, content_type, bytes, is_cut } = raw;
        let declared = content_type.as_deref().unwrap_or_default();
        let mut parts = declared.split(';').map(str::trim);
        let mut kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
        });
        let is_wide = charset.as_deref().is_some_and(|name| name.to_ascii_lowercase().starts_with("utf-16"));
        let start = bytes.get(..LOOK.min(bytes.len())).unwrap_or_default();
        let is_binary = start.contains(&0)
            && !is_wide
            && !start.starts_with(b"\xff\xfe")
            && !start.starts_with(b"\xfe\xff");
        if kind.is_empty() {
            let begin = String::from_utf8_lossy(start.get(..64.min(start.len())).unwrap_or_default())
                .to_ascii_lowercase();
            let begin = begin.trim_start();
            let is_html = begin.starts_with("<!doctype html") || begin.starts_with("<html");
            kind = if is_html { "text/html" } else { "text/plain" }.to_owned();
        }
        let is_html = matches!(kind.as_str(), "text/html" | "application/xhtml+xml");
        let (mut title, mut text) = (None, None);
        if !is_binary && (is_html || is_text(&kind)) {
            let charset = charset.or_else(|| if is_html { named_in_page(start) } else { None });
            let read = decoded(&bytes, charset.as_deref());
            text = Some(if is_html {
                let made = markdown(&read, Some(&url));
                title = made.title;
                made.text
            } else {
                quipu_tools::stripped(&read)
            });
        }
        Self { url, status, kind, title, text, size: bytes.len(), is_cut }
    }
}

fn is_text(kind: &str) -> bool {
    const TEXTS: &[&str] = &[
        "json",
        "xml",
        "javascript",
        "ecmascript",
        "yaml",
        "x-yaml",
        "toml",
        "x-sh",
        "x-ndjson",
        "sql",
        "graphql",
        "x-httpd-php",
        "typescript",
        "rtf",
        "x-tex",
        "x-www-form-urlencoded",
    ];
    let Some((class, name)) = kind.split_once('/') else { return false };
    class == "text"
        || (class == "application"
            && (TEXTS.contains(&name) || name.ends_with("+json") || name.ends_with("+xml")))
        || kind == "image/svg+xml"
}
