//! Another session from a node of this one or of another.

use quipu_protocol::{Command, NodeId};

use crate::component::Chooser;
use crate::picker::{Picker, PickerRow};
use crate::{Action, Effect, Request, SlashCommand, State};

pub(crate) const FORK: SlashCommand =
    SlashCommand::new("fork", "[NODE]", "start a new session just before one of your messages", fork)
        .completes()
        .of_session()
        .with_key(Action::Fork);

/// From a node that somebody names, or from before a message of the user's.
fn fork(state: &mut State, name: &str, effects: &mut Vec<Effect>) {
    match (state.standing.head, name.parse::<NodeId>()) {
        (_, Ok(at)) => fork_at(state, at, effects),
        (_, Err(_)) if !name.is_empty() => {
            let name = name.to_owned();
            effects.push(Effect::Ask(Request::to_host("resolve", |host| host.resolve(name), fork_at)));
        }
        (Some(head), _) => {
            effects.push(Effect::Ask(Request::to_host(
                "said",
                move |host| host.user_messages(head),
                show_user_messages,
            )));
        }
        (None, _) => state.hint_at_no_session(),
    }
}

fn show_user_messages(state: &mut State, user_messages: Vec<(NodeId, String)>, _: &mut Vec<Effect>) {
    let rows = user_messages.into_iter().map(|(node, text)| PickerRow::new(node, text, "")).collect();
    state.show(Chooser::new(Picker::new("Start a new session just before", rows), fork_at));
}

/// A new session from a node; it is gone on with.
pub(crate) fn fork_at(state: &mut State, at: NodeId, effects: &mut Vec<Effect>) {
    if !state.is_held() {
        state.send_move(Command::Fork { at }, "fork", effects);
    }
}
