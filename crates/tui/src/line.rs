//! What a view is made of: lines of styled text, as wide as they may be.

use std::sync::Arc;

use crate::Picture;
use unicode_segmentation::UnicodeSegmentation as _;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// A colour. What a terminal cannot show is brought down to what it can when it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// The terminal's own.
    #[default]
    Default,
    /// One of the 16 that a terminal's theme defines: 0 to 15.
    Ansi(u8),
    /// Of the table of 256.
    Indexed(u8),
    /// Red, green, blue.
    Rgb(u8, u8, u8),
}

/// How text looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Of the text.
    pub foreground: Color,
    /// Behind the text.
    pub background: Color,
    /// Heavier.
    pub bold: bool,
    /// Fainter.
    pub dim: bool,
    /// Slanted.
    pub italic: bool,
    /// With a line below.
    pub underline: bool,
    /// Foreground and background change places.
    pub reverse: bool,
    /// With a line through it.
    pub strike: bool,
    /// Where it leads, on terminals that know links.
    pub link: crate::Link,
}

impl Style {
    /// The terminal's own style, in this colour.
    #[must_use]
    pub fn colored(foreground: Color) -> Self {
        Self { foreground, ..Self::default() }
    }
}

/// A piece of a line in one style. Its text holds no control characters and no line break: what shows lines escapes
/// nothing more, so whoever makes a span of foreign text cleans it first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Span {
    /// Without control characters.
    pub text: String,
    /// Of all of it.
    pub style: Style,
}

/// A line of the screen, or, when it is wider than the screen, of as many as it takes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Line {
    /// From left to right.
    pub spans: Vec<Span>,
    /// Drawn from here on, in rows of its own, where the line is printed; nothing else stands in it then.
    pub picture: Option<Arc<Picture>>,
}

impl Line {
    /// A line in one style.
    #[must_use]
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { spans: vec![Span { text: text.into(), style }], picture: None }
    }

    /// Adds a piece.
    pub fn push(&mut self, text: impl Into<String>, style: Style) {
        self.spans.push(Span { text: text.into(), style });
    }

    /// The text without styles.
    #[must_use]
    pub fn text(&self) -> String {
        self.spans.iter().map(|span| span.text.as_str()).collect()
    }

    /// How many columns it takes.
    #[must_use]
    pub fn width(&self) -> usize {
        self.spans.iter().map(|span| width(&span.text)).sum()
    }
}

impl From<&str> for Line {
    fn from(text: &str) -> Self {
        Self::styled(text, Style::default())
    }
}

/// How many columns a text takes: the sum over its grapheme clusters, so that a cluster is never split.
#[must_use]
pub fn width(text: &str) -> usize {
    if text.is_ascii() {
        return text.len();
    }
    text.graphemes(true).map(|cluster| cluster.width().min(2)).sum()
}

/// Whether a character takes two columns, as those of Chinese, Japanese and Korean do.
pub(crate) fn is_wide(character: char) -> bool {
    character.width() == Some(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns() {
        for (text, columns) in [("", 0), ("abc", 3), ("日本", 4), ("e\u{301}", 1), ("👩‍👩‍👧", 2), ("ß", 1)]
        {
            assert_eq!(width(text), columns, "{text}");
        }
    }
}
