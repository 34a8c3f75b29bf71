//! Other sessions: one that is gone on with, a new one, a copy of this one.

use quipu_protocol::SessionId;

use crate::component::Chooser;
use crate::host::{OpenTarget, SessionItem, SessionRequest};
use crate::picker::{Picker, PickerRow};
use crate::{Action, Effect, Request, SlashCommand, State, render};

pub(crate) const RESUME: SlashCommand =
    SlashCommand::new("resume", "[WORDS]", "continue another session of any directory or agent", resume)
        .completes()
        .with_key(Action::Resume);
pub(crate) const NEW: SlashCommand =
    SlashCommand::new("new", "", "start a new session", |state, _, effects| state.begin_anew(effects))
        .with_key(Action::NewSession);
pub(crate) const CLONE: SlashCommand =
    SlashCommand::new("clone", "", "copy the session, with the same history", clone_session).of_session();
pub(crate) const QUIT: SlashCommand =
    SlashCommand::new("quit", "", "exit; the session is saved", |_, _, effects| effects.push(Effect::Leave));

/// Another session of any directory or agent; the words filter them at first.
fn resume(_: &mut State, words: &str, effects: &mut Vec<Effect>) {
    let words = words.to_owned();
    let then = move |state: &mut State, sessions: Vec<SessionItem>, effects: &mut Vec<Effect>| {
        show_sessions(state, sessions, &words, effects);
    };
    effects.push(Effect::Ask(Request::to_host("sessions", |host| host.sessions(), then)));
}

fn show_sessions(state: &mut State, sessions: Vec<SessionItem>, filter: &str, effects: &mut Vec<Effect>) {
    if let Some(named) = sessions.iter().find(|item| item.id.as_str() == filter) {
        return open_session(state, named.id.clone(), effects);
    }
    let here = &state.standing.directory;
    let now = state.now;
    let rows = sessions
        .into_iter()
        .map(|item| {
            let place = if item.cwd == *here { String::new() } else { format!(" · {}", item.cwd) };
            let agent =
                if item.agent == quipu::AGENT { String::new() } else { format!(" · {}", item.agent) };
            let title = if item.title.is_empty() { "(no message yet)".into() } else { item.title };
            let ago = render::ago(now, item.updated);
            let detail = format!("{ago} · {} entries · ${:.2}{agent}{place}", item.entries, item.cost);
            PickerRow::new(item.id, title, detail)
        })
        .collect();
    let mut picker = Picker::new("Continue session", rows);
    if !filter.is_empty() {
        picker.paste(filter);
        if let (1, Some(only)) = (picker.len(), picker.chosen()) {
            return open_session(state, only.clone(), effects);
        }
    }
    state.show(Chooser::new(picker, open_session));
}

/// Goes on with a session.
pub(crate) fn open_session(state: &mut State, session: SessionId, effects: &mut Vec<Effect>) {
    state.open(SessionRequest { which: OpenTarget::Session(session), ..SessionRequest::default() }, effects);
}

/// A copy of this session, which is gone on with; what is said meanwhile is said there.
fn clone_session(state: &mut State, _: &str, effects: &mut Vec<Effect>) {
    let (Some(session), Some(_)) = (state.standing.session.clone(), state.standing.head) else {
        return state.hint_at_no_session();
    };
    if state.is_held() {
        return;
    }
    if state.opening.under_way {
        state.hint = Some("The session is being opened".into());
        return;
    }
    state.opening.under_way = true;
    effects.push(Effect::Ask(Request::new(
        "clone",
        |context| context.host.clone_session(session),
        |state: &mut State, copy, effects| {
            state.opening.under_way = false;
            match copy {
                Ok(copy) => open_session(state, copy, effects),
                Err(why) => {
                    state.error("The copy was not made.", &why.to_string());
                    state.say_what_waits(effects);
                }
            }
        },
    )));
}
