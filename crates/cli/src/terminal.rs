//! `quipu` without arguments: the terminal.

mod appearance;
mod arguments;
mod host;

use std::io::IsTerminal as _;
use std::sync::Arc;

use quipu_tui::terminal::Abilities;
use quipu_tui::{Bindings, ExitReason, FirstPrompt, SessionRequest, TerminalOptions};

use crate::args::{Mode, Task};
use crate::exit::{Exit, Failure};
use crate::home::home;
use crate::input::{TaskMessage, TaskPrompt};
use crate::print::note;
use quipu_host::{Home, Source, current_dir};

/// Whether there is a terminal on both sides, and nothing was asked that needs none.
pub(crate) fn is_there(task: &Task) -> bool {
    std::io::stdin().is_terminal()
        && std::io::stdout().is_terminal()
        && task.mode == Mode::Text
        && task.record.is_none()
        && !task.ask_on_stdin
}

/// What says that nothing is to be drawn, if anything does: what was said for this time counts most.
fn linear(home: &Home, task: &Task, abilities: Abilities) -> Option<&'static str> {
    let settings = home.config();
    match settings.source_of("screenReader") {
        _ if task.screen_reader => Some("--screen-reader"),
        _ if abilities.linear => Some("TERM (a terminal without cursor control)"),
        _ if !settings.screen_reader => None,
        Some(Source::Environment(_)) => Some("QUIPU_SCREEN_READER"),
        _ => Some("screenReader in settings.json"),
    }
}

/// Why there is none, or none is wanted.
pub(crate) fn why_not(task: &Task) -> &'static str {
    if task.mode != Mode::Text || task.record.is_some() || task.ask_on_stdin {
        "there is no task"
    } else if !std::io::stdin().is_terminal() {
        "stdin is not a terminal, and there is no task"
    } else if !std::io::stdout().is_terminal() {
        "stdout is not a terminal, and there is no task"
    } else {
        "TERM names a terminal without cursor control, and there is no task"
    }
}

pub(crate) async fn run(task: &Task) -> Result<(), Failure> {
    let notices = Arc::new(crate::home::NoticeBuffer::default());
    let mut home = home(&task.store)?.with_observer(notices.clone());
    if task.no_session {
        home = home.without_outputs();
    }
    let here = current_dir()?;
    // Before the terminal is drawn on: a file that is not there is an error of the command line.
    let prompts = crate::input::prompts(TaskMessage::typed(&task.messages), String::new(), &here)?;
    let first = |TaskPrompt { input, typed }| FirstPrompt { input, typed };
    let prompts = prompts.into_iter().map(first).collect();
    let (dir, directory) = (home.dir.clone(), here.clone());
    let sealer = Arc::new(quipu::Sealer::new(home.seal_key()?));
    quipu_host::seals_with(&sealer);
    let mut abilities = Abilities::of_this_process();
    let linear = linear(&home, task, abilities);
    if linear.is_some() {
        abilities = abilities.linear();
    }
    let able = abilities;
    let appearance::Appearance { theme, adapts, abilities, problems: mut notes } =
        appearance::appearance(&home, abilities);
    if let Some(by) = linear {
        notes.insert(0, format!("Quipu in plain lines for screen readers, set by {by}."));
    }
    notes.extend(crate::diagnostics::notes());
    // Before the first command.
    quipu_host::helpers();
    let flag = crate::home::store_flag(&home);
    let (bindings, problems) = Bindings::load(&dir.join("keybindings.json"));
    notes.extend(problems);
    // A recording is played as it is, and what keeps nothing uses no store.
    let jobs = (task.replay.is_none() && !task.no_session).then(|| home.clone());
    let host = Arc::new(host::TerminalHost::new(home, notices.clone(), task, here, sealer.clone(), able));
    let begin = TerminalOptions {
        host: host.clone(),
        theme,
        bindings,
        abilities,
        adapts,
        home: dir,
        sealer,
        directory,
        open: SessionRequest::default(),
        prompts,
        notes,
    };
    let ended = match &jobs {
        Some(home) => quipu_host::jobs::run_alongside(home, quipu_tui::run(begin)).await,
        None => quipu_tui::run(begin).await,
    };
    let lacks = host.finish().await;
    for text in notices.take() {
        note(text);
    }
    let quipu_tui::TerminalEnd { left, messages } = ended?;
    for text in messages.into_iter().chain(lacks) {
        note(text);
    }
    match left {
        ExitReason::Quit(Some(session)) => {
            note(format!("To continue: `quipu --session {session}{flag}`."));
            Ok(())
        }
        ExitReason::Quit(None) => Ok(()),
        ExitReason::Signal(1) | ExitReason::Gone => Err(Failure::silent(Exit::Hangup)),
        ExitReason::Signal(_) => Err(Failure::silent(Exit::Terminated)),
    }
}
