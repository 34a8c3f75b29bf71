//! What commands of the program print.

use quipu_protocol::{Command, Setting};

use crate::host::{CommandOutput, OutputPiece, OutputStream};
use crate::quoting::words;
use crate::{Effect, Line, Request, SlashCommand, State, render};

pub(crate) const BOOKMARK: SlashCommand = SlashCommand::new(
    "bookmark",
    "[NAME]",
    "name the current node; list the names",
    |state, arguments, effects| {
        let arguments = words(arguments);
        let head = state.standing.head.filter(|_| arguments.len() == 1);
        run(named("bookmark", arguments.into_iter().chain(head.map(|head| head.to_string()))), effects);
    },
)
.completes()
.of_session();
pub(crate) const RECALL: SlashCommand = SlashCommand::new(
    "recall",
    "[NODE]",
    "show a node in full, with the conversation before it",
    |state, arguments, effects| of_node(state, "recall", arguments, effects),
)
.completes()
.of_session();
pub(crate) const LIFE: SlashCommand =
    SlashCommand::new("life", "[NODE]", "show the graph around a node", |state, arguments, effects| {
        of_node(state, "life", arguments, effects);
    })
    .completes()
    .of_session();
pub(crate) const DIFF: SlashCommand =
    SlashCommand::new("diff", "A [B]", "compare two branches since they parted", diff)
        .completes()
        .of_session();
pub(crate) const USAGE: SlashCommand =
    SlashCommand::new("usage", "[OPTIONS]", "show tokens and cost", |_, arguments, effects| {
        run(named("usage", words(arguments)), effects);
    })
    .completes();
pub(crate) const DREAM: SlashCommand = SlashCommand::new(
    "dream",
    "[--dry-run|--now]",
    "show what was recalled often, and promote it",
    |_, arguments, effects| run(named("dream", words(arguments)), effects),
)
.completes();
pub(crate) const CONTEXT: SlashCommand = SlashCommand::new(
    "context",
    "",
    "show what fills the context, and what the next turn costs",
    |state, arguments, effects| {
        let session = state.standing.head.and(state.standing.session.as_ref());
        let session = session.map(|session| session.as_str().to_owned());
        of(state, "context", arguments, session, effects);
    },
)
.of_session();
pub(crate) const SKILLS: SlashCommand =
    SlashCommand::new("skills", "", "list skills, templates and rules files", |_, _, effects| {
        run(named("skills", []), effects);
    });
pub(crate) const MEMORY: SlashCommand = SlashCommand::new(
    "memory",
    "[ACTION]",
    "show, correct and forget what sessions remember",
    |_, arguments, effects| run(named("memory", words(arguments)), effects),
)
.completes();
pub(crate) const PERMISSIONS: SlashCommand = SlashCommand::new(
    "permissions",
    "[ACTION]",
    "show, change or revoke what tools may do here",
    |_, arguments, effects| run(named("permissions", words(arguments)), effects),
)
.completes();
pub(crate) const EXPORT: SlashCommand =
    SlashCommand::new("export", "[FORMAT] [FILE]", "export the session: markdown, html, json or pi", export)
        .completes()
        .of_session();

pub(crate) fn named(name: &str, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(arguments).collect()
}

/// A command about what is said; where nothing is, about what is open.
fn of(state: &mut State, name: &str, arguments: &str, open: Option<String>, effects: &mut Vec<Effect>) {
    let arguments = words(arguments);
    match open {
        _ if !arguments.is_empty() => run(named(name, arguments), effects),
        Some(open) => run(named(name, [open]), effects),
        None => state.hint_at_no_session(),
    }
}

fn of_node(state: &mut State, name: &str, arguments: &str, effects: &mut Vec<Effect>) {
    let head = state.standing.head.map(|head| head.to_string());
    of(state, name, arguments, head, effects);
}

fn diff(state: &mut State, arguments: &str, effects: &mut Vec<Effect>) {
    let arguments = words(arguments);
    if arguments.is_empty() {
        state.hint = Some("/diff A compares A with the current node, /diff A B compares two nodes".into());
        return;
    }
    let head = state.standing.head.filter(|_| arguments.len() == 1);
    run(named("diff", arguments.into_iter().chain(head.map(|head| head.to_string()))), effects);
}

fn export(state: &mut State, arguments: &str, effects: &mut Vec<Effect>) {
    let (Some(session), Some(_)) = (&state.standing.session, state.standing.head) else {
        return state.hint_at_no_session();
    };
    let session = session.as_str().to_owned();
    let arguments = words(arguments);
    let format = arguments.first().map_or("markdown", String::as_str);
    let ending = match format {
        "markdown" => "md",
        "pi" => "jsonl",
        other => other,
    };
    let name = format!("{}.{ending}", session.get(..8).unwrap_or(&session));
    let file = arguments.get(1).cloned().unwrap_or(name);
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
            if let (Some(session), Ok(output @ CommandOutput { ok: true, .. })) =
                (context.session.filter(|_| changes), &mut printed)
                && let Err(refused) = session.send(Command::Set { setting: Setting::Permissions }).await
            {
                output.ok = false;
                output.push_note(format!("The open session rejected it: {refused}\n"));
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

/// Shows what a command printed.
pub(crate) fn show(state: &mut State, what: &str, printed: &CommandOutput) {
    let mut lines =
        vec![Line::default(), Line::styled(format!("/{}", crate::clean(what)), state.theme.command)];
    let columns = state.size.columns;
    for OutputPiece { stream, text } in &printed.pieces {
        let style = match stream {
            OutputStream::Out => state.theme.text,
            OutputStream::Err if printed.ok => state.theme.muted,
            OutputStream::Err => state.theme.error,
        };
        lines.extend(render::plain(text.trim_end(), columns, style, usize::MAX));
    }
    state.ready(lines);
    if state.opening.unready && state.overlay.is_none() {
        state.tell_first();
    }
}
