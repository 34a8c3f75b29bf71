//! Event streams for other programs: what a session does, as lines that a program can read, and the commands that it sends.
//!
//! The forms are Pi's, so that what reads and drives Pi reads and drives us; `docs/json-events.md` and `docs/rpc.md` describe
//! them. Pure: events go in, lines come out; lines that answer questions or ask for something are read. This crate does no IO, knows no clock, and must not know the engine or how anything is stored:
//! a front subscribes, folds and writes.

mod answers;
mod commands;
mod entries;
mod forms;
mod json_events;
mod line;

pub use answers::{ANSWER_LIMIT, AskAnswer, BadAnswer, LineAnswer, ask_line, read_answer};
pub use commands::{
    BadCommand, CommandLabel, QueueDrainMode, RPC_COMMANDS, RpcCommand, RpcImage, RpcLine, StreamingBehavior,
    read_line,
};
pub use entries::{ForkMessage, SessionEntries, SessionStats, last_answer_text, queue_line};
pub use forms::{
    CommandForm, CommandSource, CompactionForm, ContextFill, CycledModel, ModelForm, SessionState, ShellForm,
    SourceInfo, data_text, failed_compaction_lines, ui_line,
};
pub use json_events::{JsonEvents, SessionHeader};
