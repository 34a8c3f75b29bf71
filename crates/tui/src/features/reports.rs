//! What commands of the program print.

use quipu_protocol::{Command, Setting};

use crate::host::Printed;
use crate::quoting::words;
use crate::{Effect, Line, Request, SlashCommand, State, render};

pub(crate) const BOOKMARK: SlashCommand = SlashCommand::new(
    "bookmark",
    "[NAME]",
    "name the node that the session stands at; list the names",
    |state, said, effects| {
        let said = words(said);
        let head = state.standing.head.filter(|_| said.len() == 1);
        run(named("bookmark", said.into_iter().chain(head.map(|head| head.to_string()))), effects);
    },
)
.completes()
.of_session();
pub(crate) const RECALL: SlashCommand = SlashCommand::new(
    "recall",
    "[NODE]",
    "a node in full, with what was said before it",
    |state, said, effects| of_node(state, "recall", said, effects),
)
.completes()
.of_session();
pub(crate) const LIFE: SlashCommand =
    SlashCommand::new("life", "[NODE]", "the graph around a node", |state, said, effects| {
        of_node(state, "life", said, effects);
    })
    .completes()
    .of_session();
pub(crate) const DIFF: SlashCommand =
    SlashCommand::new("diff", "A [B]", "what two branches did since they parted", diff)
        .completes()
        .of_session();
pub(crate) const USAGE: SlashCommand =
    SlashCommand::new("usage", "[OPTIONS]", "tokens and cost", |_, said, effects| {
        run(named("usage", words(said)), effects);
    })
    .completes();
pub(crate) const CONTEXT: SlashCommand = SlashCommand::new(
    "context",
    "",
    "what fills the context, and what the next turn costs",
    |state, said, effects| {
        let session = state.standing.head.and(state.standing.session.as_ref());
        let session = session.map(|session| session.as_str().to_owned());
        of(state, "context", said, session, effects);
    },
)
.of_session();
pub(crate) const PERMISSIONS: SlashCommand = SlashCommand::new(
    "permissions",
    "[ACTION]",
    "what tools may do here; change or revoke it",
    |_, said, effects| run(named("permissions", words(said)), effects),
)
.completes();
pub(crate) const EXPORT: SlashCommand =
    SlashCommand::new("export", "[FORMAT] [FILE]", "write the session: markdown, html, json or pi", export)
        .completes()
        .of_session();

fn named(name: &str, said: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(said).collect()
}

/// A command about what is said; where nothing is, about what is open.
fn of(state: &mut State, name: &str, said: &str, open: Option<String>, effects: &mut Vec<Effect>) {
    let said = words(said);
    match open {
        _ if !said.is_empty() => run(named(name, said), effects),
        Some(open) => run(named(name, [open]), effects),
        None => state.nothing_was_said(),
    }
}

fn of_node(state: &mut State, name: &str, said: &str, effects: &mut Vec<Effect>) {
    let head = state.standing.head.map(|head| head.to_string());
    of(state, name, said, head, effects);
}

fn diff(state: &mut State, said: &str, effects: &mut Vec<Effect>) {
    let said = words(said);
    if said.is_empty() {
        state.hint = Some("/diff A compares it with where the session stands, /diff A B two others".into());
        return;
    }
    let head = state.standing.head.filter(|_| said.len() == 1);
    run(named("diff", said.into_iter().chain(head.map(|head| head.to_string()))), effects);
}

fn export(state: &mut State, said: &str, effects: &mut Vec<Effect>) {
    let (Some(session), Some(_)) = (&state.standing.session, state.standing.head) else {
        return state.nothing_was_said();
    };
    let session = session.as_str().to_owned();
    let said = words(said);
    let format = said.first().map_or("markdown", String::as_str);
    let ending = match format {
        "markdown" => "md",
        "pi" => "jsonl",
        other => other,
    };
    let name = format!("{}.{ending}", session.get(..8).unwrap_or(&session));
    let file = said.get(1).cloned().unwrap_or(name);
    let options = ["--format".into(), format.to_owned(), "-o".into(), file, session];
    run(named("export", options), effects);
}

/// Runs a command of the program as on its command line, and shows what it prints.
pub(crate) fn run(words: Vec<String>, effects: &mut Vec<Effect>) {
    let what = words.join(" ");
    effects.push(Effect::Ask(Request::new(
        "command",
        |context| async move {
            let changes = words.first().is_some_and(|word| word == "permissions");
            let mut printed = context.host.command(words).await;
            // What it changes is done when the session has taken it.
            if let (Some(session), Ok(Printed { ok: ok @ true, err, .. })) =
                (context.session.filter(|_| changes), &mut printed)
                && let Err(refused) = session.send(Command::Set { setting: Setting::Permissions }).await
            {
                *ok = false;
                err.push_str(&format!("The open session did not take it: {refused}\n"));
            }
            printed
        },
        move |state: &mut State, printed, _| {
            if what == "demo" {
                state.demo_ended();
            }
            match printed {
                Ok(printed) => show(state, &what, &printed),
                Err(error) => state.failed(&error.to_string()),
            }
        },
    )));
}

fn show(state: &mut State, what: &str, printed: &Printed) {
    let mut lines =
        vec![Line::default(), Line::styled(format!("/{}", crate::clean(what)), state.theme.command)];
    let columns = state.size.columns;
    lines.extend(render::plain(printed.out.trim_end(), columns, state.theme.text, usize::MAX));
    let style = if printed.ok { state.theme.muted } else { state.theme.error };
    lines.extend(render::plain(printed.err.trim_end(), columns, style, usize::MAX));
    state.ready(lines);
    if state.opening.unready && state.overlay.is_none() {
        state.tell_first();
    }
}
