//! Commands that the model runs in the background: listed, their output shown, killed.

use quipu::BackgroundInfo;

use crate::blocks::{duration, one_line};
use crate::component::Chooser;
use crate::picker::{Picker, PickerRow};
use crate::request::Context;
use crate::{Effect, Line, Request, SlashCommand, State, render};

pub(crate) const BACKGROUND: SlashCommand = SlashCommand::new(
    "background",
    "[ID]",
    "list background commands, show their output or kill them",
    background,
)
.of_session();

/// What is done with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CommandChoice {
    Output,
    Kill,
}

fn background(_: &mut State, id: &str, effects: &mut Vec<Effect>) {
    let wanted = id.trim().to_owned();
    let work = |Context { session, .. }: Context| async move {
        session.map(|session| session.background()).unwrap_or_default()
    };
    let then = move |state: &mut State, all: Vec<BackgroundInfo>, _: &mut Vec<Effect>| {
        list(state, all, &wanted);
    };
    effects.push(Effect::Ask(Request::new("background", work, then)));
}

fn list(state: &mut State, all: Vec<BackgroundInfo>, wanted: &str) {
    if all.is_empty() {
        state.hint = Some("No background commands in this session".into());
        return;
    }
    if let Some(named) = all.iter().find(|one| one.id.as_str() == wanted) {
        return choose(state, named.clone());
    }
    let row = |one: BackgroundInfo| {
        let time = duration(one.took);
        let detail = match &one.end {
            None => format!("{}, running for {time}", one.id),
            Some(end) => format!("{} {end} after {time}", one.id),
        };
        let text = one_line(&one.command, 200);
        PickerRow::new(one, text, detail)
    };
    let picker = Picker::new("Background commands", all.into_iter().map(row).collect());
    state.show(Chooser::new(picker, |state, one, _| choose(state, one)));
}

/// Asks what to do with a command.
fn choose(state: &mut State, one: BackgroundInfo) {
    if one.end.is_some() {
        return state.ask_output(one);
    }
    let rows = vec![
        PickerRow::new(CommandChoice::Output, "Show its output", ""),
        PickerRow::new(CommandChoice::Kill, "Kill it", "with everything that it started"),
    ];
    let title = format!("{}: {}", one.id, one_line(&one.command, 60));
    let decide = move |_: &mut State, choice, effects: &mut Vec<Effect>| match choice {
        CommandChoice::Output => effects.push(output(one)),
        CommandChoice::Kill => effects.push(kill(one)),
    };
    state.show(Chooser::new(Picker::new(title, rows), decide));
}

impl State {
    /// The output of a command that ended is all that there is to see.
    fn ask_output(&mut self, one: BackgroundInfo) {
        let rows = vec![PickerRow::new(CommandChoice::Output, "Show its output", "")];
        let title = format!("{}: {}", one.id, one_line(&one.command, 60));
        let show = move |_: &mut Self, _, effects: &mut Vec<Effect>| effects.push(output(one));
        self.show(Chooser::new(Picker::new(title, rows), show));
    }
}

fn output(one: BackgroundInfo) -> Effect {
    let id = one.id.clone();
    let work = move |Context { session, .. }: Context| async move {
        session.map(|session| session.background_output(id.as_str()))
    };
    Effect::Ask(Request::new("background output", work, move |state: &mut State, printed, _| match printed {
        None => state.hint_at_no_session(),
        Some(Err(error)) => state.failed(&error.to_string()),
        Some(Ok(text)) => {
            let title = format!("{}: {}", one.id, one_line(&one.command, 200));
            let mut lines = vec![Line::default(), Line::styled(crate::clean(&title), state.theme.command)];
            let text = if text.trim().is_empty() { "(no output)" } else { text.trim_end() };
            lines.extend(render::plain(text, state.size.columns, state.theme.text, usize::MAX));
            state.ready(lines);
        }
    }))
}

fn kill(one: BackgroundInfo) -> Effect {
    let id = one.id;
    let work = move |Context { session, .. }: Context| async move {
        match session {
            Some(session) => session.kill_background(id.as_str()).await,
            None => Ok(()),
        }
    };
    Effect::Ask(Request::new("kill background", work, |state: &mut State, killed, _| {
        if let Err(error) = killed {
            state.failed(&format!("{error}"));
        }
    }))
}
