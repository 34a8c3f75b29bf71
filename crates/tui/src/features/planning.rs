//! Plan mode: switched on, where only what reads runs, and off.

use quipu_protocol::{Command, QueueMode, Setting};

use crate::{Action, Effect, Purpose, SlashCommand, State};

/// The mode, as the session names it.
const MODE: &str = "plan";

pub(crate) const PLAN: SlashCommand =
    SlashCommand::new("plan", "[TEXT]", "plan mode on or off; with a text: on, and send it", plan)
        .of_session()
        .with_key(Action::PlanToggle);

fn plan(state: &mut State, text: &str, effects: &mut Vec<Effect>) {
    let is_on = state.standing.permissions == MODE;
    let on = !is_on || !text.is_empty();
    if on != is_on {
        effects.push(Effect::Send(Command::Set { setting: Setting::Plan { on } }, Purpose::Else));
    }
    if !text.is_empty() {
        state.say(text.to_owned(), QueueMode::Steer, effects);
    }
}
