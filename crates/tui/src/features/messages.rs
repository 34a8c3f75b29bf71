//! Messages beside those that are sent at once: for later, taken back, written elsewhere, copied.

use quipu_protocol::QueueMode;

use crate::{Action, Effect, SlashCommand, State};

pub(crate) const LATER: SlashCommand =
    SlashCommand::new("later", "TEXT", "send it when the work is done", |state, text, effects| {
        if text.is_empty() {
            state.hint = Some("Write the message after /later".into());
        } else {
            state.say(text.to_owned(), QueueMode::FollowUp, effects);
        }
    });
pub(crate) const UNQUEUE: SlashCommand =
    SlashCommand::new("unqueue", "", "take back the last queued message", |state, _, effects| {
        state.take_back(effects);
    })
    .with_key(Action::Dequeue);
pub(crate) const UNFOLD: SlashCommand = SlashCommand::new(
    "unfold",
    "[all]",
    "open the last folded output; all: never fold, or fold again",
    unfold,
)
.with_key(Action::ToolsExpand);
pub(crate) const EDIT: SlashCommand =
    SlashCommand::new("edit", "[TEXT]", "write in your editor", |state, text, effects| {
        let text = if text.is_empty() { state.editor.text() } else { text.to_owned() };
        effects.push(Effect::Edit(text));
    })
    .with_key(Action::ExternalEditor);
pub(crate) const COPY: SlashCommand =
    SlashCommand::new("copy", "", "copy the last answer to the clipboard", copy).with_key(Action::Copy);

fn unfold(state: &mut State, which: &str, _: &mut Vec<Effect>) {
    match which {
        "" => state.open_block(),
        "all" => state.fold_or_unfold(),
        _ => state.error(
            "Nothing was opened.",
            "/unfold opens the last folded output; /unfold all shows all new output in full.",
        ),
    }
}

fn copy(state: &mut State, _: &str, effects: &mut Vec<Effect>) {
    if state.transcript.last_answer.is_empty() {
        state.hint = Some("There is no answer yet".into());
        return;
    }
    effects.push(Effect::Copy(state.transcript.last_answer.clone()));
    // Where nothing can be seen of it, whoever does it says so.
    let seen = state.linear.is_none();
    state.hint = seen.then(|| "The last answer is on the clipboard".into());
}
