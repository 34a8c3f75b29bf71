//! What was sent before, to take one of it.

use crate::component::Chooser;
use crate::picker::{Picker, PickerRow};
use crate::{Action, Effect, SlashCommand, State};

pub(crate) const HISTORY: SlashCommand =
    SlashCommand::new("history", "", "list your earlier messages, to reuse one", history)
        .with_key(Action::HistorySearch);

/// What was sent, the newest first, to be looked through.
fn history(state: &mut State, _: &str, _: &mut Vec<Effect>) {
    let sent = state.editor.sent();
    let rows: Vec<PickerRow<String>> =
        sent.map(|text| PickerRow::new(text.to_owned(), text.trim(), "")).collect();
    if rows.is_empty() {
        state.hint = Some("You have not sent a message yet".into());
        return;
    }
    let chooser = Chooser::new(Picker::new("Sent before", rows), |state, text: String, effects| {
        state.write(&text, effects);
    });
    state.show(chooser.moved_by(Action::HistorySearch));
}
