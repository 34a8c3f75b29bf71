//! What is being written, as data.

use std::io;
use std::sync::Arc;

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
    Paste(Arc<str>),
    /// The name under which a paste is kept elsewhere.
    Kept(String),
}

impl Draft {
    /// Whether nothing is written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.after.is_empty()
    }

    /// The same with long pastes kept elsewhere: `keep` gives the name of one, or none for one that stays.
    pub(crate) fn without_pastes(
        &self,
        mut keep: impl FnMut(&Arc<str>) -> io::Result<Option<String>>,
    ) -> io::Result<Self> {
        let mut part = |part: &Part| match part {
            Part::Paste(content) => Ok(keep(content)?.map_or_else(|| part.clone(), Part::Kept)),
            Part::Text(_) | Part::Kept(_) => Ok(part.clone()),
        };
        let mut parts = |parts: &[Part]| parts.iter().map(&mut part).collect::<io::Result<Vec<Part>>>();
        Ok(Self { before: parts(&self.before)?, after: parts(&self.after)? })
    }

    /// The same with secrets replaced: `seal` gives a text without. Where the cursor stands inside of one, it is behind
    /// it then.
    pub(crate) fn sealed(&self, seal: impl Fn(&str) -> String) -> Self {
        let part = |part: &Part| match part {
            Part::Text(text) => Part::Text(seal(text)),
            Part::Paste(content) => Part::Paste(seal(content).into()),
            Part::Kept(name) => Part::Kept(name.clone()),
        };
        let mut before: Vec<Part> = self.before.iter().map(part).collect();
        let mut after: Vec<Part> = self.after.iter().map(part).collect();
        if let (Some(Part::Text(left)), Some(Part::Text(right))) = (before.last_mut(), after.first()) {
            let whole = format!("{left}{right}");
            let sealed = seal(&whole);
            if sealed != whole {
                *left = sealed;
                after.remove(0);
            }
        }
        Self { before, after }
    }

    /// The same behind a text.
    pub(crate) fn behind(mut self, text: String) -> Self {
        self.before.insert(0, Part::Text(text));
        self
    }

    /// The same with pastes that were kept elsewhere; one that `find` does not have stays a name.
    pub(crate) fn with_pastes(mut self, mut find: impl FnMut(&str) -> Option<Arc<str>>) -> Self {
        for part in self.before.iter_mut().chain(&mut self.after) {
            if let Part::Kept(name) = part
                && let Some(content) = find(name)
            {
                *part = Part::Paste(content);
            }
        }
        self
    }
}

fn parts(clip: &Clip) -> Vec<Part> {
    let part = |piece: &Piece| match piece {
        Piece::Text(text) => Part::Text(text.clone()),
        Piece::Chip(content) => Part::Paste(content.clone()),
    };
    clip.pieces().iter().map(part).collect()
}

fn clip(parts: &[Part]) -> Clip {
    let piece = |part: &Part| match part {
        Part::Text(text) => Piece::Text(text.clone()),
        Part::Paste(content) => Piece::Chip(content.clone()),
        // Whoever kept it puts it back first; what is lost is named.
        Part::Kept(name) => Piece::Text(format!("[lost paste {name}]")),
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
