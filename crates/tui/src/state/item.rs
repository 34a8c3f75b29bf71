//! What is not finished yet: an answer that streams, calls that run. The front of them is printed as it is finished, so
//! that everything stands in the scrollback in its order.

use std::sync::Arc;

use quipu_protocol::{
    AssistantMessage, CallId, Content, Delta, Json, MessageId, ServerToolBlock, ToolResultMessage, UnixMs,
};

use super::folded::{FoldedBlock, FoldedBlocks};
use crate::blocks::{ToolState, ToolView};
use crate::render::{self, Prose};
use crate::{Line, Theme};

/// Something below the scrollback.
pub(crate) enum Item {
    /// Lines that wait for what stands before them.
    Ready(Vec<Line>),
    Answer(Box<AnswerItem>),
    /// A call.
    Tool(Box<CallItem>),
}

/// An answer that is streaming.
pub(crate) struct AnswerItem {
    pub(crate) id: MessageId,
    blocks: Vec<Block>,
    /// Blocks that are printed whole.
    printed: usize,
    ended: bool,
}

enum Block {
    Text {
        prose: Box<Prose>,
        bytes: usize,
        ended: bool,
        begun: bool,
    },
    Thinking {
        text: String,
        ended: bool,
    },
    Call {
        name: String,
        bytes: usize,
    },
    /// What a tool of the provider did.
    Server {
        summary: String,
    },
}

/// A running tool call.
pub(crate) struct CallItem {
    pub(crate) call: CallId,
    pub(crate) name: String,
    pub(crate) args: Json,
    pub(crate) since: UnixMs,
    pub(crate) tail: Arc<str>,
    pub(crate) result: Option<(Arc<ToolResultMessage>, UnixMs)>,
    /// A person is asked whether it may run.
    pub(crate) asked: bool,
    printed: bool,
}

impl Item {
    /// Takes what is finished.
    pub(crate) fn print(
        &mut self,
        columns: usize,
        theme: &Theme,
        unfolded: bool,
        folded: &mut FoldedBlocks,
        out: &mut Vec<Line>,
    ) {
        match self {
            Self::Ready(lines) => out.append(lines),
            Self::Answer(answer) => answer.print(columns, theme, unfolded, folded, out),
            Self::Tool(tool) => {
                if let (Some((result, at)), false) = (&tool.result, tool.printed) {
                    let took = at.saturating_sub(tool.since);
                    out.extend(render::tool(&tool.name, &tool.args, result, took, unfolded, columns, theme));
                    tool.printed = true;
                    if !unfolded {
                        let (name, args, result) = (tool.name.clone(), tool.args.clone(), result.clone());
                        folded.add(FoldedBlock::Tool { name, args, result, took });
                    }
                }
            }
        }
    }

    /// Whether nothing more will be printed of it.
    pub(crate) fn is_done(&self) -> bool {
        match self {
            Self::Ready(_) => true,
            Self::Answer(answer) => answer.ended && answer.printed == answer.blocks.len(),
            Self::Tool(tool) => tool.printed,
        }
    }

    /// What is seen of it while it is not finished, at most `rows` lines.
    pub(crate) fn live(&self, columns: usize, rows: usize, theme: &Theme, now: UnixMs) -> Vec<Line> {
        match self {
            Self::Ready(lines) => lines.clone(),
            Self::Answer(answer) => answer.live(columns, rows, theme),
            Self::Tool(tool) => running(tool, columns, theme, now),
        }
    }
}

impl CallItem {
    /// A call that begins.
    pub(crate) fn new(call: CallId, name: String, args: Json, since: UnixMs) -> Self {
        Self { call, name, args, since, tail: "".into(), result: None, asked: false, printed: false }
    }
}

impl AnswerItem {
    /// An answer without content.
    pub(crate) fn new(id: MessageId) -> Self {
        Self { id, blocks: Vec::new(), printed: 0, ended: false }
    }

    /// What it is doing, in a word.
    pub(crate) fn phase(&self) -> &'static str {
        match self.blocks.last() {
            Some(Block::Thinking { .. }) => "thinking",
            Some(Block::Text { .. }) => "answering",
            Some(Block::Call { .. }) => "calling a tool",
            Some(Block::Server { .. }) => "searching",
            None => "waiting for the model",
        }
    }

    /// More of it.
    pub(crate) fn add(&mut self, delta: &Delta) {
        match delta {
            Delta::TextStarted { .. } => self.blocks.push(text_block()),
            Delta::Text { text, .. } => {
                if !matches!(self.blocks.last(), Some(Block::Text { ended: false, .. })) {
                    self.blocks.push(text_block());
                }
                if let Some(Block::Text { prose, bytes, .. }) = self.blocks.last_mut() {
                    *bytes += text.len();
                    prose.push(text);
                }
            }
            Delta::ThinkingStarted { .. } => {
                self.blocks.push(Block::Thinking { text: String::new(), ended: false });
            }
            Delta::Thinking { text, .. } => {
                if !matches!(self.blocks.last(), Some(Block::Thinking { .. })) {
                    self.blocks.push(Block::Thinking { text: String::new(), ended: false });
                }
                if let Some(Block::Thinking { text: all, .. }) = self.blocks.last_mut() {
                    all.push_str(text);
                }
            }
            Delta::ToolCallStarted { name, .. } => {
                self.blocks.push(Block::Call { name: name.clone(), bytes: 0 });
            }
            Delta::ToolCallArguments { json, .. } => {
                if let Some(Block::Call { bytes, .. }) = self.blocks.last_mut() {
                    *bytes += json.len();
                }
            }
            Delta::TextEnded { .. } | Delta::ThinkingEnded { .. } | Delta::ToolCallEnded { .. } => {
                self.close();
            }
            Delta::ServerTool { summary, .. } => {
                self.blocks.push(Block::Server { summary: summary.clone() });
            }
        }
    }

    fn close(&mut self) {
        match self.blocks.last_mut() {
            Some(Block::Text { ended, .. } | Block::Thinking { ended, .. }) => *ended = true,
            Some(Block::Call { .. } | Block::Server { .. }) | None => {}
        }
    }

    /// All of it: what did not come as a delta is added, so that what is printed is what is stored.
    pub(crate) fn end(&mut self, message: &AssistantMessage) {
        self.close();
        let mut at = 0;
        for content in &message.content {
            match content {
                Content::Text(text) => {
                    match self.blocks.get_mut(at) {
                        Some(Block::Text { prose, bytes, ended, .. }) => {
                            if let Some(more) = text.text.get(*bytes..) {
                                prose.push(more);
                                *bytes += more.len();
                            }
                            *ended = true;
                        }
                        Some(_) => {}
                        None => {
                            let mut prose = Box::<Prose>::default();
                            prose.push(&text.text);
                            let bytes = text.text.len();
                            self.blocks.push(Block::Text { prose, bytes, ended: true, begun: false });
                        }
                    }
                    at += 1;
                }
                Content::Thinking(thinking) => {
                    match self.blocks.get_mut(at) {
                        Some(Block::Thinking { text, ended }) => {
                            text.clone_from(&thinking.thinking);
                            *ended = true;
                        }
                        Some(_) => {}
                        None => {
                            self.blocks
                                .push(Block::Thinking { text: thinking.thinking.clone(), ended: true });
                        }
                    }
                    at += 1;
                }
                Content::ToolCall(_) => at += 1,
                Content::Other(json) => {
                    let Some(used) = ServerToolBlock::of_json(json) else { continue };
                    if self.blocks.get(at).is_none() {
                        self.blocks.push(Block::Server { summary: used.summary() });
                    }
                    at += 1;
                }
                Content::Image(_) => {}
            }
        }
        self.finish();
    }

    /// Nothing more comes.
    pub(crate) fn finish(&mut self) {
        for block in &mut self.blocks {
            match block {
                Block::Text { ended, .. } | Block::Thinking { ended, .. } => *ended = true,
                Block::Call { .. } | Block::Server { .. } => {}
            }
        }
        self.ended = true;
    }

    /// It is asked for again, or failed: what is not printed yet never will be.
    pub(crate) fn abandon(&mut self) {
        self.blocks.truncate(self.printed);
        self.ended = true;
    }

    fn print(
        &mut self,
        columns: usize,
        theme: &Theme,
        unfolded: bool,
        folded: &mut FoldedBlocks,
        out: &mut Vec<Line>,
    ) {
        let count = self.blocks.len();
        while let Some(block) = self.blocks.get_mut(self.printed) {
            match block {
                Block::Text { prose, ended, begun, .. } => {
                    let lines =
                        if *ended { prose.all(columns, theme) } else { prose.finished(columns, theme) };
                    // A gap before its first line.
                    if !lines.is_empty() && !std::mem::replace(begun, true) {
                        out.push(render::answers(theme));
                    }
                    out.extend(lines);
                    if !*ended {
                        return;
                    }
                }
                Block::Thinking { text, ended: true } => {
                    out.extend(render::thinking(text, unfolded, columns, theme));
                    if !unfolded {
                        folded.add(FoldedBlock::Thinking(std::mem::take(text)));
                    }
                }
                Block::Thinking { ended: false, .. } => return,
                Block::Server { summary } => out.extend(render::server_tool(summary, columns, theme)),
                // It is printed with its result.
                Block::Call { .. } if self.ended || self.printed + 1 < count => {}
                Block::Call { .. } => return,
            }
            self.printed += 1;
        }
    }

    fn live(&self, columns: usize, rows: usize, theme: &Theme) -> Vec<Line> {
        let mut lines = Vec::new();
        for block in self.blocks.iter().skip(self.printed) {
            match block {
                Block::Text { prose, begun, .. } => {
                    let rest = prose.rest(columns, theme);
                    if !rest.is_empty() && !begun {
                        lines.push(Line::default());
                    }
                    lines.extend(rest);
                }
                Block::Thinking { text, .. } => lines.extend(render::thinking_live(text, columns, theme)),
                Block::Call { name, bytes } => lines.push(render::calling(name, *bytes, columns, theme)),
                Block::Server { summary } => lines.extend(render::server_tool(summary, columns, theme)),
            }
        }
        let over = lines.len().saturating_sub(rows);
        lines.drain(..over);
        lines
    }
}

fn text_block() -> Block {
    Block::Text { prose: Box::default(), bytes: 0, ended: false, begun: false }
}

/// A call that runs, or waits.
fn running(tool: &CallItem, columns: usize, theme: &Theme, now: UnixMs) -> Vec<Line> {
    let elapsed = render::span(now.saturating_sub(tool.since));
    let state =
        if tool.asked { ToolState::Waiting } else { ToolState::Running { tail: &tool.tail, elapsed } };
    let view = ToolView { name: &tool.name, arguments: tool.args.get(), state, folded: true };
    crate::blocks::tool(&view, columns, theme)
}
