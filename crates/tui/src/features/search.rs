//! What was said and done in all sessions.

use super::ways;
use crate::component::{Chooser, LineInput};
use crate::host::{FoundItem, FoundItems};
use crate::picker::{Picker, PickerRow};
use crate::quoting::words;
use crate::{Effect, Request, SlashCommand, State};

pub(crate) const SEARCH: SlashCommand =
    SlashCommand::new("search", "[WORDS]", "search all sessions", |state, words, effects| {
        if words.is_empty() { ask(state) } else { find(words, effects) }
    });

/// Asks for words to look for.
pub(crate) fn ask(state: &mut State) {
    state.show(LineInput::new("Search for", |_, text, effects| {
        if !text.trim().is_empty() {
            find(&text, effects);
        }
    }));
}

/// Looks for words in all sessions.
fn find(text: &str, effects: &mut Vec<Effect>) {
    let (arguments, text) = (words(text), text.to_owned());
    let then = move |state: &mut State, found: FoundItems, _: &mut Vec<Effect>| show(state, found, &text);
    effects.push(Effect::Ask(Request::to_host("search", |host| host.search(arguments), then)));
}

fn show(state: &mut State, items: FoundItems, text: &str) {
    for line in &items.notes {
        state.note(line);
    }
    let row = |item: FoundItem| PickerRow::new((item.node, item.session), item.text, item.detail);
    let rows: Vec<_> = items.found.into_iter().map(row).collect();
    if !rows.is_empty() {
        let picker = Picker::new(format!("Found for {text}"), rows);
        state.show(Chooser::new(picker, |state, (node, session), _| ways::from_hit(state, node, session)));
    }
}
