//! Blocks that were printed folded, so that they can be opened.

use std::collections::VecDeque;
use std::sync::Arc;

use quipu_protocol::{BashExecutionMessage, Json, ToolResultMessage, UnixMs};

use crate::{Line, Theme, render};

/// Folded blocks that can be opened: the last ones.
const OPENABLE: usize = 32;

/// A block that was printed folded.
#[derive(Debug)]
pub(crate) enum FoldedBlock {
    Thinking(String),
    Tool { name: String, args: Json, result: Arc<ToolResultMessage>, took: UnixMs },
    Shell(Box<BashExecutionMessage>),
}

impl FoldedBlock {
    fn lines(&self, unfolded: bool, columns: usize, theme: &Theme) -> Vec<Line> {
        match self {
            Self::Thinking(text) => render::thinking(text, unfolded, columns, theme),
            Self::Tool { name, args, result, took } => {
                render::tool(name, args, result, *took, unfolded, columns, theme)
            }
            Self::Shell(done) => render::shell(done, unfolded, columns, theme),
        }
    }
}

/// The last blocks that were printed folded.
#[derive(Debug, Default)]
pub(crate) struct FoldedBlocks(VecDeque<FoldedBlock>);

impl FoldedBlocks {
    pub(crate) fn add(&mut self, block: FoldedBlock) {
        if self.0.len() == OPENABLE {
            self.0.pop_front();
        }
        self.0.push_back(block);
    }

    /// The last block that has more than its folded form shows, in full.
    pub(super) fn open(&mut self, columns: usize, theme: &Theme) -> Option<Vec<Line>> {
        while let Some(block) = self.0.pop_back() {
            let whole = block.lines(true, columns, theme);
            if whole.len() > block.lines(false, columns, theme).len() {
                return Some(whole);
            }
        }
        None
    }
}
