//! The session as a tree to walk, and what two of its branches did.

use quipu_protocol::{NodeId, SessionId};

use super::{past, sessions, ways};
use crate::component::{Component, OpenComponent};
use crate::host::{PastRow, Reach, TreeKind, TreeRow};
use crate::navigator::{Navigator, NavigatorResult};
use crate::reader::Reader;
use crate::{Action, Effect, Key, KeyCode, Line, Request, Size, SlashCommand, State, Theme};

pub(crate) const TREE: SlashCommand = SlashCommand::new(
    "tree",
    "",
    "walk the session tree: fold, search, filter, label, jump",
    |state, _, effects| state.walk_tree(effects),
)
.of_session()
.with_key(Action::Tree);

/// Columns that are read out in a row: side by side is for the eye.
const HEARD: usize = 79;

impl State {
    /// The navigator of the session that is open.
    pub(crate) fn walk_tree(&mut self, effects: &mut Vec<Effect>) {
        match &self.standing.session {
            Some(session) if self.standing.head.is_some() => rows(Reach::Session(session.clone()), effects),
            _ => self.hint = Some("This session has no messages yet".into()),
        }
    }
}

/// A navigator of what is in reach.
fn rows(reach: Reach, effects: &mut Vec<Effect>) {
    let shown = reach.clone();
    let then = |state: &mut State, rows, _: &mut Vec<Effect>| {
        if let Some(home) = state.standing.session.clone() {
            state.show(Navigator::new(rows, shown, home));
        }
    };
    effects.push(Effect::Ask(Request::to_host("tree", move |host| host.tree(reach, false), then)));
}

/// Something for the navigator, if it is still open when that comes.
fn for_navigator<T>(
    put: impl FnOnce(&mut Navigator, T) + Send + 'static,
) -> impl FnOnce(&mut State, T, &mut Vec<Effect>) + Send + 'static {
    |state, value, _| {
        if let Some(navigator) = state.shown_component() {
            put(navigator, value);
        }
    }
}

/// The nodes of a session, below its row.
fn nodes(session: SessionId) -> Request {
    let reach = Reach::Session(session.clone());
    let then = for_navigator(move |navigator, rows| navigator.open(&session, rows));
    Request::to_host("nodes", |host| host.tree(reach, true), then)
}

/// The rows that one row stands for.
fn unfold(row: &TreeRow) -> Option<Request> {
    let TreeKind::Folded { below, depth, count } = row.kind else { return None };
    let level = row.level;
    let then = for_navigator(move |navigator, rows| navigator.unfold(below, rows));
    Some(Request::to_host("unfold", move |host| host.unfold(below, depth, count, level), then))
}

/// The parts of a past or of a chunk, below its row.
fn below(row: PastRow) -> Request {
    let of = row.clone();
    let then = move |state: &mut State, rows: Vec<TreeRow>, _: &mut Vec<Effect>| {
        let Some(navigator) = state.shown_component::<Navigator>() else { return };
        if !navigator.open_past(&of, rows) {
            state.hint = Some(match of.chunk {
                Some(_) => "This summary names no nodes".into(),
                None => "There is no summary yet; Enter shows what makes them".into(),
            });
        }
    };
    Request::to_host("past", |host| host.past_rows(row), then)
}

/// What a node says.
fn preview(node: NodeId) -> Request {
    let then = for_navigator(move |navigator, text: String| navigator.previewed(node, &text));
    Request::to_host("preview", move |host| host.preview(node), then)
}

/// What two branches did since they parted.
fn compare(state: &State, a: NodeId, b: NodeId) -> Request {
    let most = if state.linear.is_some() { HEARD } else { usize::MAX };
    let columns = state.size.columns.min(most);
    let then = |state: &mut State, text, _: &mut Vec<Effect>| {
        if let Some(tree) = state.take_component() {
            let help = "↑↓ scroll · Escape goes back to the tree";
            state.show(Comparison { reader: Reader::new("Two branches", text, help), tree });
        }
    };
    Request::to_host("compare", move |host| host.compare(a, b, columns), then)
}

impl Component for Navigator {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, effects: &mut Vec<Effect>) -> OpenComponent {
        let request = match Self::on_key(&mut self, key, state.size) {
            NavigatorResult::Open => None,
            NavigatorResult::Closed => return self.leave(state, effects),
            NavigatorResult::Go(node) => {
                ways::to_node(state, node);
                return None;
            }
            NavigatorResult::Elsewhere(node, session) => {
                ways::to_node_elsewhere(state, node, session);
                return None;
            }
            NavigatorResult::Session(session) => {
                sessions::open_session(state, session, effects);
                return None;
            }
            NavigatorResult::Label(node, label) => {
                ways::ask_label(state, node, label);
                return None;
            }
            NavigatorResult::Wider(reach) => {
                rows(reach, effects);
                None
            }
            NavigatorResult::Past(row) => {
                past::commands_of(state, row);
                return None;
            }
            NavigatorResult::Below(row) => Some(below(row)),
            NavigatorResult::Sources(row) => Some(past::sources(row)),
            NavigatorResult::Unfold(row) => unfold(&row),
            NavigatorResult::Preview(node) => Some(preview(node)),
            NavigatorResult::Nodes(session) => Some(nodes(session)),
            NavigatorResult::Compare(a, b) => Some(compare(state, a, b)),
        };
        effects.extend(request.map(Effect::Ask));
        Some(self)
    }

    fn on_line(
        mut self: Box<Self>,
        line: &str,
        state: &mut State,
        effects: &mut Vec<Effect>,
    ) -> OpenComponent {
        if line.is_empty() {
            return self.leave(state, effects);
        }
        match self.read(line) {
            Some(key) => Component::on_key(self, key, state, effects),
            None => Some(self),
        }
    }

    fn paste(&mut self, text: &str) {
        Self::paste(self, text);
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        Self::view(self, size, theme)
    }

    fn spoken(&self) -> Vec<String> {
        Self::spoken(self)
    }
}

/// What two branches did; behind it the tree.
struct Comparison {
    reader: Reader,
    tree: Box<Navigator>,
}

impl Component for Comparison {
    fn on_key(mut self: Box<Self>, key: Key, state: &mut State, _: &mut Vec<Effect>) -> OpenComponent {
        if matches!(key.code, KeyCode::Escape | KeyCode::Enter) {
            return Some(self.tree);
        }
        self.reader.on_key(key, state.size);
        Some(self)
    }

    fn on_line(self: Box<Self>, _: &str, _: &mut State, _: &mut Vec<Effect>) -> OpenComponent {
        Some(self.tree)
    }

    fn leave(self: Box<Self>, _: &mut State, _: &mut Vec<Effect>) -> OpenComponent {
        Some(self.tree)
    }

    fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.reader.view(size, theme)
    }

    fn spoken(&self) -> Vec<String> {
        self.reader.spoken("Enter goes back to the tree.")
    }
}
