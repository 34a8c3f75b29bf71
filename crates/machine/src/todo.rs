//! The model's to-do list, as people see it: it follows the conversation, wherever the session goes.

use std::sync::Arc;

use quipu_protocol::{Event, Message, NodeId, Ui};
use quipu_transcript::todo_of;

use super::{Effect, Machine};

/// The key of the lines that show it.
pub const TODO_WIDGET: &str = "todo";

/// The list as it was shown last.
#[derive(Debug, Default)]
pub(super) struct TodoState {
    /// The last node that it was looked for in.
    seen: Option<NodeId>,
    lines: Vec<String>,
}

impl TodoState {
    pub(super) fn of(messages: &[Arc<Message>], nodes: &[NodeId]) -> Self {
        Self { seen: nodes.last().copied(), lines: todo_lines(messages) }
    }
}

/// The to-do list of a conversation in a few lines; none where nothing is left to do.
pub fn todo_lines(messages: &[Arc<Message>]) -> Vec<String> {
    todo_of(messages).map(|todo| todo.lines()).unwrap_or_default()
}

impl Machine {
    /// Shows the list again where the conversation has another one now.
    pub(super) fn follow_todo(&mut self) {
        let last = self.nodes.last().copied();
        if last == self.todo.seen {
            return;
        }
        let seen = self.todo.seen.and_then(|seen| self.nodes.iter().rposition(|node| *node == seen));
        self.todo.seen = last;
        let lines = match seen {
            Some(at) => match todo_of(self.messages.get(at + 1..).unwrap_or_default()) {
                Some(todo) => todo.lines(),
                None => return,
            },
            // It went elsewhere.
            None => todo_lines(&self.messages),
        };
        if lines != self.todo.lines {
            self.todo.lines.clone_from(&lines);
            let event = Event::Ui { ui: Ui::Widget { key: TODO_WIDGET.into(), lines } };
            // Before what says that all is done.
            let is_end = |effect: &Effect| {
                matches!(effect, Effect::Emit { event: Event::RunEnded { .. } | Event::Settled, .. })
            };
            let at = self.out.iter().position(is_end).unwrap_or(self.out.len());
            let run = self.run.as_ref().map(|run| run.id.clone());
            self.out.insert(at, Effect::Emit { event, run });
        }
    }
}
