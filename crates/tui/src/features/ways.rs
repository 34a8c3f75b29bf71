//! What can be done with a node: go there, with or without files and a summary, begin a session from it, label it.

use quipu_protocol::{Command, MoveFiles, NodeId, SessionId, Summarize};

use super::{fork, reports, sessions};
use crate::component::{Chooser, Component, LineInput, OpenComponent};
use crate::picker::{Picker, PickerRow};
use crate::reader::Reader;
use crate::{Effect, Key, KeyCode, Line, Purpose, Request, Size, SlashCommand, State, Theme};

pub(crate) const LABEL: SlashCommand =
    SlashCommand::new("label", "[TEXT]", "label the current node", |state, text, effects| {
        match state.standing.head {
            Some(head) => set_label(state, head, text, effects),
            None => state.hint_at_no_session(),
        }
    })
    .completes()
    .of_session();

/// How to go to a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Way {
    /// It is only printed.
    Read,
    /// The conversation alone.
    Plain,
    /// What is left behind is summed up.
    Summary,
    /// The same, with a focus.
    Focus,
    /// The restores the files that tools changed.
    Files,
    /// In a new session.
    Fork,
    /// The session that it is of, where that stands.
    Session(SessionId),
}

/// The ways to a node of this session.
pub(crate) fn to_node(state: &mut State, node: NodeId) {
    let rows = vec![
        PickerRow::new(Way::Plain, "Go there", "files do not change"),
        PickerRow::new(Way::Files, "Go there with the files", "restores the files that tools changed"),
        PickerRow::new(Way::Summary, "Go there with a summary", "of the branch that you leave"),
        PickerRow::new(Way::Focus, "Go there with a summary of …", "choose its focus"),
        PickerRow::new(Way::Fork, "A new session from there", "this one does not change"),
    ];
    show(state, node, format!("Node {}", node.short()), rows);
}

/// The ways to a node of another session.
pub(crate) fn to_node_elsewhere(state: &mut State, node: NodeId, session: SessionId) {
    let rows = vec![
        PickerRow::new(Way::Fork, "A new session from there", "that one does not change"),
        PickerRow::new(Way::Session(session), "Continue that session", "at its end"),
    ];
    show(state, node, format!("Node {} of another session", node.short()), rows);
}

/// What can be done with a node that was found, in this session or in another.
pub(crate) fn from_hit(state: &mut State, node: NodeId, session: Option<SessionId>) {
    let here = session.is_some() && session == state.standing.session;
    let mut rows = vec![PickerRow::new(Way::Read, "Read it here", "with the conversation before it")];
    if here {
        rows.push(PickerRow::new(Way::Plain, "Go there", "files do not change"));
    }
    let stays = if here { "this one does not change" } else { "that one does not change" };
    rows.push(PickerRow::new(Way::Fork, "A new session from there", stays));
    if let Some(session) = session.filter(|_| !here) {
        rows.push(PickerRow::new(Way::Session(session), "Continue that session", "at its end"));
    }
    show(state, node, format!("Node {}", node.short()), rows);
}

fn show(state: &mut State, node: NodeId, title: String, rows: Vec<PickerRow<Way>>) {
    state.show(Chooser::new(Picker::new(title, rows), move |state, way, effects| {
        go(state, way, node, effects);
    }));
}

fn go(state: &mut State, way: Way, node: NodeId, effects: &mut Vec<Effect>) {
    match way {
        Way::Read => reports::run(vec!["recall".into(), node.to_string()], effects),
        Way::Plain => jump(node, None, MoveFiles::Keep, effects),
        Way::Summary => jump(node, Some(Summarize::default()), MoveFiles::Keep, effects),
        Way::Focus => {
            let line = LineInput::new("What should the summary focus on?", move |_, text, effects| {
                let focus = Some(text).filter(|text| !text.trim().is_empty());
                jump(node, Some(Summarize { focus }), MoveFiles::Keep, effects);
            });
            state.show(line.may_be_empty("leaves that to the model"));
        }
        Way::Files => effects.push(Effect::Ask(foresee(node))),
        Way::Session(session) => sessions::open_session(state, session, effects),
        Way::Fork => fork::fork_at(state, node, effects),
    }
}

fn jump(to: NodeId, summary: Option<Summarize>, files: MoveFiles, effects: &mut Vec<Effect>) {
    effects.push(Effect::Send(Command::Jump { to, summary, label: None, files }, Purpose::Else));
}

/// What going to a node would do to files.
fn foresee(node: NodeId) -> Request {
    Request::new(
        "files",
        move |context| async move {
            match context.session {
                Some(session) => session.plan_files(node).await,
                None => Err(quipu::Refusal::Closed),
            }
        },
        move |state, plan, _| match plan {
            Ok(plan) => state.show(FilePlan::new(node, crate::plan::lines(&plan).join("\n"))),
            Err(refused) => state.failed(&refused.to_string()),
        },
    )
}

/// What going to a node would do to files, to agree to.
pub(crate) struct FilePlan {
    reader: Reader,
    node: NodeId,
}

impl FilePlan {
    pub(crate) fn new(node: NodeId, text: String) -> Self {
        let help =
            "Enter goes there · o also overwrites files (!) whose content would be lost · Escape cancels";
        Self { reader: Reader::new("Files that would change", text, help), node }
    }
}

impl Component for FilePlan {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        let go = |overwrite, effects: &mut Vec<Effect>| {
            jump(self.node, None, MoveFiles::Restore { overwrite }, effects);
            None
        };
        match key.code {
            KeyCode::Enter => go(false, effects),
            KeyCode::Char('o') => go(true, effects),
            KeyCode::Escape => self.leave(state, effects),
            _ => {
                self.reader.on_key(key, state.size);
                Some(self)
            }
        }
    }

    fn on_line(self: Box<Self>, line: &str, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        match line.to_lowercase().as_str() {
            "y" | "yes" => self.on_key(KeyCode::Enter.into(), state, effects),
            "o" => self.on_key(KeyCode::Char('o').into(), state, effects),
            "" | "n" | "no" => self.leave(state, effects),
            _ => Some(self),
        }
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.reader.view(size, theme)
    }

    fn spoken(&self) -> Vec<String> {
        self.reader.spoken(
            "y goes there, o also overwrites files (!) whose content would be lost; Enter alone cancels.",
        )
    }

    fn prompt(&self) -> &'static str {
        "Answer: "
    }
}

/// Asks for the label of a node, which has one already or not.
pub(crate) fn ask_label(state: &mut State, node: NodeId, label: String) {
    let title = format!("Label of {}", node.short());
    let line = LineInput::new(title, move |state, text, effects| set_label(state, node, &text, effects));
    state.show(line.with_text(label));
}

/// Labels a node; without a text it has no label any more.
fn set_label(state: &mut State, node: NodeId, text: &str, effects: &mut Vec<Effect>) {
    let text = Some(text.to_owned()).filter(|text| !text.trim().is_empty());
    state.send_move(Command::Label { node, text }, "label", effects);
}
