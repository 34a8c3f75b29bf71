//! The laws of a session's event stream.

use std::collections::{HashMap, HashSet};

use quipu_protocol::{Delta, Ending, Event, Message};

/// A stream of events that no session may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokenLaw {
    /// An event breaks a law.
    #[error("{law}: {event}")]
    Event {
        /// The law.
        law: &'static str,
        /// The event.
        event: String,
    },
    /// The stream ended too early.
    #[error("something was left open: {state}")]
    LeftOpen {
        /// What was known then.
        state: String,
    },
}

/// Checks events one by one; the first broken law is the error.
#[derive(Debug, Default)]
pub struct EventLaws {
    running: bool,
    turn: Option<u32>,
    last_turn: u32,
    settled: bool,
    messages: HashMap<String, Vec<String>>,
    ended: HashSet<String>,
    tools: Vec<String>,
    shells: Vec<String>,
    background: HashSet<String>,
    children: HashSet<String>,
    asks: HashSet<String>,
    compacting: bool,
    jumping: bool,
}

impl EventLaws {
    /// Takes the next event.
    ///
    /// # Errors
    /// Says which law it breaks.
    pub fn take(&mut self, event: &Event) -> Result<(), BrokenLaw> {
        self.step(event).map_err(|law| BrokenLaw::Event { law, event: format!("{event:?}") })
    }

    /// Nothing may be open at the end.
    ///
    /// # Errors
    /// Says what is.
    pub fn finish(&self) -> Result<(), BrokenLaw> {
        let open = self.running || self.turn.is_some() || !self.messages.is_empty() || !self.tools.is_empty();
        let open = open || self.compacting || self.jumping || !self.shells.is_empty();
        if open || !self.asks.is_empty() {
            return Err(BrokenLaw::LeftOpen { state: format!("{self:?}") });
        }
        Ok(())
    }

    fn step(&mut self, event: &Event) -> Result<(), &'static str> {
        let law = |holds: bool, law: &'static str| if holds { Ok(()) } else { Err(law) };
        match event {
            Event::RunStarted => {
                law(!self.running && !self.jumping, "a run begins when nothing is under way")?;
                (self.running, self.last_turn, self.settled) = (true, 0, false);
            }
            Event::TurnStarted { turn } => {
                law(self.running && self.turn.is_none(), "a turn begins in a run, after the turn before it")?;
                law(*turn == self.last_turn + 1, "turns count up by one")?;
                (self.turn, self.last_turn) = (Some(*turn), *turn);
            }
            Event::TurnEnded { turn } => {
                law(self.turn == Some(*turn), "the turn that ends is the one that began")?;
                law(self.messages.is_empty(), "no message is open when a turn ends")?;
                law(self.tools.is_empty(), "no tool is open when a turn ends")?;
                self.turn = None;
            }
            Event::RunEnded { .. } => {
                law(self.running && self.turn.is_none(), "a run ends after its last turn")?;
                law(self.messages.is_empty() && self.tools.is_empty(), "nothing is open when a run ends")?;
                self.running = false;
            }
            Event::Settled => {
                law(!self.running && !self.jumping, "settled means that nothing runs")?;
                self.settled = true;
            }
            Event::MessageStarted { id, message, .. } => {
                let beside =
                    matches!(**message, Message::BashExecution(_) | Message::Custom(_)) && !self.running;
                law(
                    self.turn.is_some() || beside,
                    "a message begins in a turn, or tells what ran beside the runs",
                )?;
                law(!self.ended.contains(id.as_str()), "a message id is used once")?;
                let new = self.messages.insert(id.to_string(), Vec::new()).is_none();
                law(new, "a message begins once")?;
                if let Message::Assistant(answer) = &**message {
                    law(self.messages.len() == 1, "one answer at a time")?;
                    law(
                        answer.usage.output == 0
                            || !answer.content.is_empty()
                            || answer.error_message.is_some(),
                        "an answer begins without content",
                    )?;
                }
            }
            Event::MessageDelta { id, delta } => {
                let blocks =
                    self.messages.get_mut(id.as_str()).ok_or("a delta belongs to an open message")?;
                let (index, starts) = place(delta);
                law(!starts || index == blocks.len(), "blocks begin in order")?;
                law(starts || index < blocks.len(), "a delta belongs to a block that began")?;
                if starts {
                    blocks.push(String::new());
                }
                if let (Delta::Text { text, .. }, Some(block)) = (delta, blocks.get_mut(index)) {
                    block.push_str(text);
                }
            }
            Event::MessageEnded { id, message, ending } => {
                let blocks =
                    self.messages.remove(id.as_str()).ok_or("a message ends after it began, once")?;
                self.ended.insert(id.to_string());
                if let (Message::Assistant(answer), Ending::Committed(_), false) =
                    (&**message, ending, blocks.is_empty())
                {
                    let streamed: String = blocks.concat();
                    let said: String =
                        answer.content.iter().filter_map(quipu_protocol::Content::as_text).collect();
                    let broke_off = answer.error_message.is_some();
                    law(broke_off || streamed == said, "the deltas are the message")?;
                }
            }
            Event::ToolStarted { call, .. } => {
                law(self.turn.is_some() && self.messages.is_empty(), "a tool begins after its answer")?;
                self.tools.push(call.to_string());
            }
            Event::ToolOutput { call, .. } => {
                law(
                    self.tools.iter().any(|open| open == call.as_str()),
                    "output belongs to a tool that runs",
                )?;
            }
            Event::ToolEnded { call, result } => {
                law(result.tool_call_id == *call, "a result answers its call")?;
                let at = self.tools.iter().position(|open| open == call.as_str());
                self.tools.remove(at.ok_or("a tool ends after it began, once")?);
            }
            Event::ShellStarted { id, .. } => {
                law(self.shells.iter().all(|open| open != id.as_str()), "a line begins once")?;
                self.shells.push(id.to_string());
            }
            Event::ShellOutput { id, .. } => {
                law(
                    self.shells.iter().any(|open| open == id.as_str()),
                    "output belongs to a line that runs",
                )?;
            }
            Event::ShellEnded { id, .. } => {
                let at = self.shells.iter().position(|open| open == id.as_str());
                self.shells.remove(at.ok_or("a line ends after it began, once")?);
            }
            Event::BackgroundStarted { id, .. } => {
                law(self.background.insert(id.to_string()), "a background command begins once")?;
            }
            Event::BackgroundEnded { id, .. } => {
                law(self.background.remove(id.as_str()), "a background command ends after it began, once")?;
            }
            Event::ChildStarted { child, .. } => {
                law(self.children.insert(child.to_string()), "a sub-agent begins once")?;
            }
            Event::ChildEnded { child, .. } => {
                law(self.children.remove(child.as_str()), "a sub-agent ends after it began, once")?;
            }
            Event::AskOpened { ask } => {
                law(self.asks.insert(ask.id.to_string()), "a question is asked once")?;
            }
            Event::AskClosed { ask, .. } => {
                law(self.asks.remove(ask.as_str()), "a question is closed after it was asked, once")?;
            }
            Event::JumpStarted { .. } => {
                law(
                    !self.jumping && !self.compacting && !self.running,
                    "a jump begins when nothing is under way",
                )?;
                self.jumping = true;
            }
            Event::HeadMoved { .. } => {
                law(
                    self.jumping || self.turn.is_none(),
                    "the head moves in a jump, between two turns, or while nothing runs",
                )?;
            }
            Event::JumpEnded { .. } => {
                law(self.jumping, "a jump ends after it began, once")?;
                self.jumping = false;
            }
            Event::CompactionStarted { .. } => {
                law(!self.jumping, "no compaction in a jump")?;
                law(!self.compacting, "one compaction at a time")?;
                law(self.running == self.turn.is_some(), "a compaction begins in a turn or outside a run")?;
                law(self.messages.is_empty() && self.tools.is_empty(), "nothing else is open meanwhile")?;
                self.compacting = true;
            }
            Event::CompactionEnded { .. } => {
                law(self.compacting, "a compaction ends after it began, once")?;
                self.compacting = false;
            }
            Event::ContextPruned { .. } => {
                law(self.turn.is_some() && !self.compacting, "results are left out before a call")?;
                law(self.messages.is_empty() && self.tools.is_empty(), "nothing else is open meanwhile")?;
            }
            Event::EpochChanged { .. } => {
                let idle = self.messages.is_empty() && self.tools.is_empty();
                law(
                    idle && !self.jumping && !self.compacting,
                    "a session goes on otherwise from between two turns, or from before a call",
                )?;
            }
            Event::QueueChanged { .. }
            | Event::RetryScheduled { .. }
            | Event::RetryEnded { .. }
            | Event::Ui { .. }
            | Event::Appended { .. }
            | Event::Renamed { .. }
            | Event::PermissionsChanged { .. }
            | Event::Lagged { .. } => {}
        }
        Ok(())
    }
}

fn place(delta: &Delta) -> (usize, bool) {
    match delta {
        Delta::TextStarted { index }
        | Delta::ThinkingStarted { index }
        | Delta::ToolCallStarted { index, .. }
        | Delta::ServerTool { index, .. } => (*index, true),
        Delta::Text { index, .. }
        | Delta::TextEnded { index }
        | Delta::Thinking { index, .. }
        | Delta::ThinkingEnded { index }
        | Delta::ToolCallArguments { index, .. }
        | Delta::ToolCallEnded { index } => (*index, false),
    }
}
