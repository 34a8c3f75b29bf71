//! The system prompt of a personal agent, as a function of its inputs.
//!
//! [`render`] puts the sections of a [`PersonaInputs`] into a [`PersonaPrompt`]: text that stays the same from session to session
//! first, then the place of the cache boundary, then what changes. [`inject`] fits the files of a workspace into a
//! [`FileBudget`].
//!
//! This crate does no IO and knows no clock: who calls it reads the files. It must not know how a prompt reaches a model, where
//! settings are kept, or any chat.

mod cut;
mod files;
mod inputs;
mod prompt;
mod sections;

pub use files::{
    Audience, FileBudget, FileContent, FileState, InjectedFile, WorkspaceFile, WorkspaceName, described_file,
    inject,
};
pub use inputs::{
    ChannelNotes, Delegation, ExtraContext, MemoryGuide, PersonaInputs, PromptMode, Reactions, ReasoningTags,
    ReplyDirectives, ToolLine, WorkspaceNotes,
};
pub use prompt::{PersonaPrompt, PlacedSection, render};
pub use sections::{PersonaSection, Stability, sections};
