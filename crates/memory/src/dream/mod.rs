//! Dreams: what was recalled often becomes a line of `MEMORY.md`.
//!
//! A dream has phases ([`DreamPhase`]). Each reads what the last left in the store, and ends by storing what it leaves, so that
//! a dream whose process died goes on with the phase that it was in. [`signals`] and [`failed_gates`] decide, [`find_live`]
//! finds the text in the file as it is now, [`distilled`] checks what a model makes of it, and [`append_lines`] is what is done
//! without one. Files, classes of authors and models come in as a [`DreamHost`].

mod daily;
mod distil;
mod error;
mod explain;
mod gates;
mod host;
mod lasting;
mod line_class;
mod live;
mod own;
mod phases;
mod recording;
mod run;
mod selection;
mod signals;
mod state;
mod tags;

pub use daily::{DailyPiece, daily_pieces, note_day};
pub use distil::{
    ANSWER_BYTES, DistilAsk, DistilFault, DistilSource, DistilledLine, DistilledText, distil_ask, distilled,
};
pub use error::DreamError;
pub use explain::{ExplainedText, LineOrigin, explain_line, explain_text};
pub use gates::{DeepSettings, Gate, class_gate, failed_gates};
pub use host::{DreamFut, DreamHost, NodeText, NoteFile, WriteResult};
pub use lasting::{
    LastingEntry, LastingFault, LastingOwners, NewLine, append_lines, check_lasting, lasting_entries,
};
pub use line_class::LineClass;
pub use live::find_live;
pub use own::{DIARY_MARK, MARK, MarkedLine, claim_hash, is_dream_output, marked_line, write_line};
pub use phases::{LightSettings, RemSettings, Theme, ranked, staged, themes, truths};
pub use recording::{RecalledText, recall_fit, record_recalls};
pub use run::{Dream, DreamPreview, DreamSettings, LASTING_CHARACTERS};
pub use signals::{SignalWeights, Signals, signals};
pub use state::{ChosenText, DreamPhase, DreamState};
pub use tags::concept_tags;
