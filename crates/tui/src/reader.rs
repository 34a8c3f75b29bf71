//! A text to read, with something to do behind it or not. Pure.

use crate::picker::cut;
use crate::{Key, KeyCode, Line, Size, Theme, render};

/// A text that scrolls.
pub(crate) struct Reader {
    title: &'static str,
    text: String,
    top: usize,
    /// What keys do behind it.
    help: &'static str,
}

impl Reader {
    pub(crate) fn new(title: &'static str, text: String, help: &'static str) -> Self {
        Self { title, text, top: 0, help }
    }

    /// Moves; the lines that there are bound it when it is shown.
    pub(crate) fn on_key(&mut self, key: Key, size: Size) {
        let page = size.rows.saturating_sub(4).max(1);
        let last = self.text.lines().count().saturating_sub(1);
        let top = match key.code {
            KeyCode::Up => self.top.saturating_sub(1),
            KeyCode::Down => self.top + 1,
            KeyCode::PageUp => self.top.saturating_sub(page),
            KeyCode::PageDown | KeyCode::Char(' ') => self.top + page,
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => self.top,
        };
        self.top = top.min(last);
    }

    /// All of it, to be heard, without how it is scrolled.
    pub(crate) fn spoken(&self, then: &str) -> Vec<String> {
        let mut lines = vec![format!("{}:", self.title)];
        lines.extend(self.text.lines().map(str::to_owned));
        lines.push(then.to_owned());
        lines
    }

    pub(crate) fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        let room = size.rows.saturating_sub(2).max(1);
        let mut lines = vec![Line::styled(cut(self.title, size.columns), theme.heading)];
        let text = render::plain(&self.text, size.columns, theme.text, usize::MAX);
        let top = self.top.min(text.len().saturating_sub(room));
        lines.extend(text.into_iter().skip(top).take(room));
        lines.push(Line::styled(cut(self.help, size.columns), theme.muted));
        lines
    }
}
