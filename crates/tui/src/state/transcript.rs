//! What was said and done, on its way into the scrollback.

use std::collections::{HashSet, VecDeque};

use quipu_protocol::{CallId, MessageId, NodeId};

use super::folded::FoldedBlocks;
use super::item::{AnswerItem, CallItem, Item};
use crate::{Line, Theme};

/// What is not printed yet, and what is known of what is.
#[derive(Default)]
pub(crate) struct Transcript {
    /// What is not printed yet, in the order in which it will be.
    pub(crate) items: VecDeque<Item>,
    /// The last node of a session that is printed and not open yet.
    pub(crate) glimpsed: Option<NodeId>,
    /// Finished lines that nobody took yet.
    pub(crate) printed: Vec<Line>,
    /// Calls whose results were shown.
    pub(crate) shown: HashSet<CallId>,
    pub(crate) last_answer: String,
    pub(crate) unfolded: bool,
    pub(crate) folded: FoldedBlocks,
}

impl Transcript {
    /// Prints what is finished at the front; `all` of it where nobody sees what waits behind something else.
    pub(crate) fn settle(&mut self, all: bool, columns: usize, theme: &Theme) {
        if all {
            for item in &mut self.items {
                item.print(columns, theme, self.unfolded, &mut self.folded, &mut self.printed);
            }
            return self.items.retain(|item| !item.is_done());
        }
        while let Some(item) = self.items.front_mut() {
            item.print(columns, theme, self.unfolded, &mut self.folded, &mut self.printed);
            if !item.is_done() {
                break;
            }
            self.items.pop_front();
        }
    }

    /// The last folded block in full, once.
    pub(crate) fn open_block(&mut self, columns: usize, theme: &Theme) -> Option<Vec<Line>> {
        self.folded.open(columns, theme)
    }

    pub(crate) fn begin_answer(&mut self, answer: AnswerItem) {
        self.items.push_back(Item::Answer(Box::new(answer)));
    }

    /// The answer that is not printed yet.
    pub(crate) fn answer(&mut self, id: &MessageId) -> Option<&mut AnswerItem> {
        self.items.iter_mut().rev().find_map(|item| match item {
            Item::Answer(answer) if answer.id == *id => Some(&mut **answer),
            _ => None,
        })
    }

    /// The call that runs.
    pub(crate) fn tool(&mut self, call: &CallId) -> Option<&mut CallItem> {
        self.items.iter_mut().rev().find_map(|item| match item {
            Item::Tool(tool) if tool.call == *call && tool.result.is_none() => Some(&mut **tool),
            _ => None,
        })
    }

    /// Calls that have no result will have none.
    pub(crate) fn drop_calls(&mut self) {
        self.items.retain(|item| !matches!(item, Item::Tool(tool) if tool.result.is_none()));
    }
}
