//! What is being written, as data.

use serde::{Deserialize, Serialize};

use super::Editor;
use super::buffer::{Clip, Piece};

/// What is being written: the text, its chips, and where the cursor is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// Before the cursor.
    before: Vec<Part>,
    /// Behind it.
    after: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Part {
    Text(String),
    Paste(String),
}

impl Draft {
    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }
}

fn parts(clip: &Clip) -> Vec<Part> {
    let part = |piece: &Piece| match piece {
        Piece::Text(text) => Part::Text(text.clone()),
        Piece::Chip(content) => Part::Paste(content.to_string()),
    };
    clip.pieces().iter().map(part).collect()
}

fn clip(parts: &[Part]) -> Clip {
    let piece = |part: &Part| match part {
        Part::Text(text) => Piece::Text(text.clone()),
        Part::Paste(content) => Piece::Chip(content.as_str().into()),
    };
    Clip::new(parts.iter().map(piece).collect())
}

impl Editor {
    /// What is being written, to be kept.
    #[must_use]
    pub fn draft(&self) -> Draft {
        let (at, end) = (self.buffer.cursor(), self.buffer.text().len());
        Draft { before: parts(&self.buffer.clip(0..at)), after: parts(&self.buffer.clip(at..end)) }
    }

    /// Goes on with what was being written, in the place of what is.
    pub fn restore(&mut self, draft: &Draft) {
        self.leave();
        let before = clip(&draft.before);
        self.buffer.begin_group();
        self.buffer.put(0..self.buffer.text().len(), &before);
        let at = self.buffer.cursor();
        self.buffer.put(at..at, &clip(&draft.after));
        self.buffer.end_group();
        self.buffer.go(super::clusters::snap(self.buffer.text(), at));
        self.scroll();
    }
}
