//! The terminal: what `quipu` opens without arguments.
//!
//! Lines go out, keys come in. Everything between is pure: `view` makes [`Line`]s of a state and a width, [`Key`]s
//! change the state, and only the outermost module reads and writes a terminal. Finished lines are printed once and
//! belong to the terminal; only the live part below them is drawn again.
//!
//! This crate must not know how anything is stored or sent: it holds a session's handle, as every front does.

#[cfg(test)]
extern crate self as quipu_tui;

mod amounts;
pub mod blocks;
mod clean;
mod clipboard;
mod command;
mod commands;
mod component;
mod depth;
mod diff;
mod draft;
pub mod editor;
#[cfg(test)]
#[path = "../tests/it/fake_host.rs"]
mod fake_host;
mod features;
mod files;
mod frame;
mod fuzzy;
mod highlight;
mod holders;
mod host;
mod input;
mod key;
pub mod keys;
mod levels;
mod line;
mod links;
mod markdown;
mod navigator;
pub mod osc;
mod paths;
mod picker;
mod pictures;
mod plan;
mod private_file;
mod quoting;
mod reader;
mod registered;
mod render;
mod request;
mod run;
mod screen;
mod sent;
mod spoken;
mod state;
mod storage;
mod styled;
pub mod terminal;
mod theme;
mod view;
mod wrap;

pub use clean::{clean, is_unseen};
pub use clipboard::{ClipboardError, clipboard_image};
pub use command::{RunCommand, SlashCommand};
pub use commands::COMMANDS;
pub use depth::Depth;
pub use diff::{ChangeCount, Diff};
pub use draft::DraftFile;
pub use files::{FileFinder, FoundFiles};
pub use frame::{Frame, Size};
pub use holders::holders;
pub use host::*;
pub use input::{Answer, Decoder, TerminalEvent};
pub use key::{Key, KeyCode, Modifiers};
pub use keys::{Action, Bindings, Scope};
pub use line::{Color, Line, Span, Style, width};
pub use links::{Link, Links};
pub use markdown::{Markdown, markdown};
pub use paths::complete_path;
pub use picker::{Picker, PickerResult, PickerRow};
pub use pictures::{Canvas, Graphics, Picture};
pub use request::{Context, EarlyReplies, Reply, Request, Stop};
pub use run::{ExitReason, FirstPrompt, TerminalEnd, TerminalOptions, run, users_editor};
pub use screen::Screen;
pub use sent::{HISTORY_TEXT, HISTORY_TEXTS, SentFile};
pub(crate) use state::SEEN;
pub use state::{Choice, EditorError, Effect, FormError, Purpose, State, UiEvent};
pub use theme::{Role, THEME_LIMIT, Theme, ThemeProblem};
pub use view::view;
pub use wrap::wrap;
