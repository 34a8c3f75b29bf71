//! What moves the session or notes something of it: undo, redo, its name, summing up.

use quipu_protocol::{Ack, Command, MoveFiles, NodeId};

use crate::host::{OpenTarget, SessionRequest};
use crate::picker::{cut, one_line};
use crate::{Effect, Purpose, Request, SlashCommand, State};

/// Columns of a message that is quoted.
const SAID: usize = 72;

pub(crate) const UNDO: SlashCommand = SlashCommand::new(
    "undo",
    "[STEPS]",
    "undo the last move of the session: a jump or a turn",
    |state, steps, effects| step(state, true, steps, effects),
)
.completes()
.of_session();
pub(crate) const REDO: SlashCommand =
    SlashCommand::new("redo", "[STEPS]", "redo what was undone", |state, steps, effects| {
        step(state, false, steps, effects);
    })
    .completes()
    .of_session();
pub(crate) const NAME: SlashCommand =
    SlashCommand::new("name", "[TEXT]", "name the session", |state, name, effects| {
        match state.standing.head {
            Some(_) => state.send_move(Command::Rename { name: name.to_owned() }, "name", effects),
            None => state.hint_at_no_session(),
        }
    })
    .of_session();
pub(crate) const COMPACT: SlashCommand =
    SlashCommand::new("compact", "[FOCUS]", "summarize the older part of the context", compact).of_session();

/// Back over what moved the session, or forward again.
fn step(state: &mut State, back: bool, steps: &str, effects: &mut Vec<Effect>) {
    if state.standing.head.is_none() {
        return state.hint_at_no_session();
    }
    if state.is_held() {
        return;
    }
    let steps = if steps.is_empty() { Ok(1) } else { steps.parse::<u32>() };
    let Ok(steps @ 1..) = steps else {
        state.error("Nothing was done.", "The number of steps must be 1 or more.");
        return;
    };
    let files = MoveFiles::Auto;
    let (command, name) = match back {
        true => (Command::Undo { steps, files }, "undo"),
        false => (Command::Redo { steps, files }, "redo"),
    };
    state.send_move(command, name, effects);
}

fn compact(state: &mut State, focus: &str, effects: &mut Vec<Effect>) {
    if !state.activity.rests() {
        state.opening.held.push_back((COMPACT, focus.to_owned()));
        state.hint = Some("The context is compacted when the work is done".into());
        return;
    }
    let focus = Some(focus.to_owned()).filter(|focus| !focus.is_empty());
    effects.push(Effect::Send(Command::Compact { focus }, Purpose::Else));
}

impl State {
    /// Moves the session; what is said or asked for meanwhile follows. Behind a run it waits for its end, which what is
    /// said does not.
    pub(crate) fn send_move(&mut self, command: Command, name: &'static str, effects: &mut Vec<Effect>) {
        self.opening.moving = self.activity.rests();
        effects.push(Effect::Send(command, Purpose::Move(name)));
    }

    /// The session was moved, or something was noted of it.
    pub(crate) fn on_moved(&mut self, name: &str, ack: Ack, effects: &mut Vec<Effect>) {
        let moved = match ack {
            Ack::Moved(moved) => moved,
            Ack::Forked { session, prompt } => {
                if let Some(prompt) = prompt.filter(|_| self.editor.text().trim().is_empty()) {
                    self.editor.set_text(&prompt);
                    effects.push(Effect::Draft);
                }
                return self.open(
                    SessionRequest { which: OpenTarget::Session(session), ..SessionRequest::default() },
                    effects,
                );
            }
            Ack::Handled if name == "label" => return self.note("The label is changed"),
            Ack::Handled => return self.note("The name of the session is changed"),
            Ack::Started(_) | Ack::Queued(_) | Ack::Unqueued(_) => return,
        };
        let place = |node: Option<NodeId>| node.map_or_else(|| "nowhere".into(), |node| node.short());
        let verb = if name == "undo" { "undone" } else { "redone" };
        for step in &moved.steps {
            self.note(&format!("{} {verb}: from {} to {}", step.kind, place(step.from), place(step.to)));
        }
        for problem in &moved.problems {
            self.note(problem);
        }
        if name == "undo" {
            self.note("/redo restores it");
        }
        if let Some(place) = moved.steps.last().and_then(|step| step.to) {
            Self::say_place(place, effects);
        }
    }

    /// Says where the conversation ends now, by the last message that leads there.
    pub(crate) fn say_place(place: NodeId, effects: &mut Vec<Effect>) {
        let say = |state: &mut Self, messages: Vec<(NodeId, String)>, _: &mut Vec<Effect>| {
            let text = match messages.first() {
                Some((_, text)) => {
                    format!("The conversation now ends after your message: {}", cut(&one_line(text), SAID))
                }
                None => "The conversation is now at its beginning".to_owned(),
            };
            state.note(&text);
        };
        effects.push(Effect::Ask(Request::to_host("place", move |host| host.user_messages(place), say)));
    }
}
