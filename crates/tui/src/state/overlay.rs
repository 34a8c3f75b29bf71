//! What takes the keys while it is open: pickers, the navigator, and one line that is asked for.

use std::sync::Arc;

use quipu_protocol::{Model, NodeId, SessionId, Thinking};

use super::Effect;
use crate::blocks::cut as cut_line;
use quipu_host::Question;

use crate::host::{Open, Reach};
use crate::navigator::{Navigated, Navigator};
use crate::picker::{List, Picked, Picker, cut};
use crate::reader::Reader;
use crate::{Key, KeyCode, Line, Size, Style, Theme, clean};

/// What is open.
pub(crate) enum Overlay {
    /// A model.
    Models(Picker<Arc<Model>>),
    /// A level.
    Levels(Picker<Thinking>),
    /// A session.
    Sessions(Picker<SessionId>),
    /// Something that was found.
    Found(Picker<Hit>),
    /// A message of the user's to go on from.
    Said(Picker<NodeId>),
    /// The session as a tree.
    Tree(Box<Navigator>),
    /// How to go to a node.
    Way(Picker<Way>, NodeId),
    /// What can be done without a model.
    First(Picker<First>),
    /// A provider for a key.
    Providers(Picker<String>),
    /// What to do with a provider's key that could not be checked.
    Unchecked(Picker<Unchecked>, String, String),
    /// Something that was sent before.
    Sent(Picker<String>),
    /// A command with what may follow it.
    Offered(Picker<String>),
    /// A setting of the user.
    Settings(Picker<String>),
    /// What two branches did; behind it the tree.
    Compared(Reader, Box<Navigator>),
    /// What going to a node would do to files.
    Foreseen(Reader, NodeId),
    /// What must be known before a session can be opened.
    Opening(Picker<bool>, Question, Box<Open>),
    /// One line.
    Line(Asked),
}

/// A line that is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) title: String,
    pub(crate) text: String,
    /// What is typed is not shown.
    pub(crate) secret: bool,
    pub(crate) purpose: Wanted,
}

/// What a line is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A provider's key.
    Key(String),
    /// A label for a node.
    Label(NodeId),
    /// What a summary should look at.
    Focus(NodeId),
    /// Words to look for in all sessions.
    Search,
}

/// Something that was found: its node and that one's session.
pub(crate) type Hit = (NodeId, Option<SessionId>);

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
    /// The files that tools changed go along.
    Files,
    /// In a new session.
    Fork,
    /// The session that it is of, where that stands.
    Session(SessionId),
}

/// What to do with a key that could not be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unchecked {
    /// Keep it.
    Keep,
    /// Ask the provider again.
    Again,
    /// Forget it.
    Forget,
}

/// What can be done without a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum First {
    /// A model of a server on this machine: provider and model.
    Local(String, String),
    /// Another model.
    Model,
    /// Keep a key.
    Key,
    /// See it work.
    Demo,
    /// Take in sessions of other agents.
    Import,
    /// Find something in them.
    Search,
    /// Leave.
    Quit,
}

/// What was chosen.
pub(crate) enum Chosen {
    Model(Arc<Model>),
    Level(Thinking),
    Session(SessionId),
    Fork(NodeId),
    Hit(Hit),
    /// A node of the navigator.
    Node(NodeId),
    Way(Way, NodeId),
    /// A node of another session.
    Elsewhere(NodeId, SessionId),
    /// Go there with the files; also where what is in them would be lost.
    Files(NodeId, bool),
    Setting(String),
    /// What must be known before a session can be opened; nothing where it shall not be.
    Opening(Option<bool>, Question, Box<Open>),
    First(First),
    Provider(String),
    /// What to do with a provider's key.
    Unchecked(Unchecked, String, String),
    /// Something that was sent before, or a whole command.
    Sent(String),
    Line(Wanted, String),
    /// A node wants a label.
    Label(NodeId, String),
}

/// What became of a key.
pub(crate) enum Going {
    Open(Overlay),
    Closed,
    Chosen(Chosen),
    /// It stays open, and something is to be done.
    Both(Overlay, Effect),
}

fn picked<T: Clone>(
    mut picker: Picker<T>,
    key: Key,
    again: impl FnOnce(Picker<T>) -> Overlay,
    chosen: impl FnOnce(T) -> Chosen,
) -> Going {
    match picker.on_key(key) {
        Picked::Open => Going::Open(again(picker)),
        Picked::Chosen(value) => Going::Chosen(chosen(value)),
        Picked::Cancelled => Going::Closed,
    }
}

impl Overlay {
    pub(crate) fn on_key(self, key: Key, size: Size) -> Going {
        match self {
            Self::Models(picker) => picked(picker, key, Self::Models, Chosen::Model),
            Self::Levels(picker) => picked(picker, key, Self::Levels, Chosen::Level),
            Self::Sessions(picker) => picked(picker, key, Self::Sessions, Chosen::Session),
            Self::Found(picker) => picked(picker, key, Self::Found, Chosen::Hit),
            Self::Said(picker) => picked(picker, key, Self::Said, Chosen::Fork),
            Self::Way(picker, node) => {
                picked(picker, key, |picker| Self::Way(picker, node), |way| Chosen::Way(way, node))
            }
            Self::First(picker) => picked(picker, key, Self::First, Chosen::First),
            Self::Providers(picker) => picked(picker, key, Self::Providers, Chosen::Provider),
            Self::Unchecked(mut picker, provider, secret) => match picker.on_key(key) {
                Picked::Open => Going::Open(Self::Unchecked(picker, provider, secret)),
                Picked::Chosen(how) => Going::Chosen(Chosen::Unchecked(how, provider, secret)),
                Picked::Cancelled => Going::Chosen(Chosen::Unchecked(Unchecked::Forget, provider, secret)),
            },
            Self::Opening(mut picker, question, open) => match picker.on_key(key) {
                Picked::Open => Going::Open(Self::Opening(picker, question, open)),
                Picked::Chosen(yes) => Going::Chosen(Chosen::Opening(Some(yes), question, open)),
                Picked::Cancelled => Going::Chosen(Chosen::Opening(None, question, open)),
            },
            Self::Sent(picker) => picked(picker, key, Self::Sent, Chosen::Sent),
            Self::Offered(picker) => picked(picker, key, Self::Offered, Chosen::Sent),
            Self::Tree(mut navigator) => match navigator.on_key(key, size) {
                Navigated::Open => Going::Open(Self::Tree(navigator)),
                Navigated::Closed => Going::Closed,
                Navigated::Go(node) => Going::Chosen(Chosen::Node(node)),
                Navigated::Session(session) => Going::Chosen(Chosen::Session(session)),
                Navigated::Label(node, label) => Going::Chosen(Chosen::Label(node, label)),
                Navigated::Unfold(row) => Going::Both(Self::Tree(navigator), Effect::Unfold(row)),
                Navigated::Preview(node) => Going::Both(Self::Tree(navigator), Effect::Preview(node)),
                Navigated::Elsewhere(node, session) => Going::Chosen(Chosen::Elsewhere(node, session)),
                Navigated::Nodes(session) => {
                    Going::Both(Self::Tree(navigator), Effect::Tree(Reach::Session(session), true))
                }
                Navigated::Compare(a, b) => Going::Both(Self::Tree(navigator), Effect::Compare(a, b)),
                Navigated::Wider(reach) => Going::Both(Self::Tree(navigator), Effect::Tree(reach, false)),
            },
            Self::Settings(picker) => picked(picker, key, Self::Settings, Chosen::Setting),
            Self::Compared(mut reader, navigator) => match key.code {
                KeyCode::Escape | KeyCode::Enter => Going::Open(Self::Tree(navigator)),
                _ => {
                    reader.on_key(key, size);
                    Going::Open(Self::Compared(reader, navigator))
                }
            },
            Self::Foreseen(mut reader, node) => match key.code {
                KeyCode::Enter => Going::Chosen(Chosen::Files(node, false)),
                KeyCode::Char('o') => Going::Chosen(Chosen::Files(node, true)),
                KeyCode::Escape => Going::Closed,
                _ => {
                    reader.on_key(key, size);
                    Going::Open(Self::Foreseen(reader, node))
                }
            },
            Self::Line(mut asked) => {
                match (key.code, key.modifiers.control, key.modifiers.alt) {
                    (KeyCode::Enter, ..) => return Going::Chosen(Chosen::Line(asked.purpose, asked.text)),
                    (KeyCode::Escape, ..) | (KeyCode::Char('c'), true, _) => return Going::Closed,
                    (KeyCode::Backspace, ..) => drop(asked.text.pop()),
                    (KeyCode::Char('u'), true, _) => asked.text.clear(),
                    (KeyCode::Char(letter), false, false) => asked.text.push(letter),
                    _ => {}
                }
                Going::Open(Self::Line(asked))
            }
        }
    }

    pub(crate) fn paste(&mut self, text: &str) {
        match self {
            Self::Tree(navigator) => navigator.paste(text),
            Self::Line(asked) => {
                asked.text.extend(text.chars().filter(|letter| !letter.is_control()).take(16 << 10));
            }
            _ => drop(self.list_mut().map(|list| list.paste(text))),
        }
    }

    fn list(&self) -> Option<&List> {
        Some(match self {
            Self::Models(picker) => picker.list(),
            Self::Levels(picker) => picker.list(),
            Self::Sessions(picker) => picker.list(),
            Self::Found(picker) => picker.list(),
            Self::Said(picker) => picker.list(),
            Self::Way(picker, _) => picker.list(),
            Self::First(picker) => picker.list(),
            Self::Providers(picker) | Self::Settings(picker) | Self::Sent(picker) | Self::Offered(picker) => {
                picker.list()
            }
            Self::Unchecked(picker, ..) => picker.list(),
            Self::Opening(picker, ..) => picker.list(),
            Self::Tree(_) | Self::Line(_) | Self::Compared(..) | Self::Foreseen(..) => return None,
        })
    }

    fn list_mut(&mut self) -> Option<&mut List> {
        Some(match self {
            Self::Models(picker) => picker.list_mut(),
            Self::Levels(picker) => picker.list_mut(),
            Self::Sessions(picker) => picker.list_mut(),
            Self::Found(picker) => picker.list_mut(),
            Self::Said(picker) => picker.list_mut(),
            Self::Way(picker, _) => picker.list_mut(),
            Self::First(picker) => picker.list_mut(),
            Self::Providers(picker) | Self::Settings(picker) | Self::Sent(picker) | Self::Offered(picker) => {
                picker.list_mut()
            }
            Self::Unchecked(picker, ..) => picker.list_mut(),
            Self::Opening(picker, ..) => picker.list_mut(),
            Self::Tree(_) | Self::Line(_) | Self::Compared(..) | Self::Foreseen(..) => return None,
        })
    }

    /// Takes a line that was typed, and says which key it comes to.
    pub(crate) fn read(&mut self, text: &str) -> Option<Key> {
        let words = text.trim();
        match self {
            Self::Line(asked) if !words.is_empty() || matches!(asked.purpose, Wanted::Focus(_)) => {
                asked.text.clear();
                self.paste(words);
                Some(KeyCode::Enter.into())
            }
            _ if words.is_empty() => Some(self.leaves()),
            Self::Tree(navigator) => navigator.read(words),
            Self::Compared(..) => Some(self.leaves()),
            Self::Foreseen(..) => match words.to_lowercase().as_str() {
                "y" | "yes" => Some(KeyCode::Enter.into()),
                "o" => Some(KeyCode::Char('o').into()),
                "n" | "no" => Some(self.leaves()),
                _ => None,
            },
            _ => self.list_mut().and_then(|list| list.read(words)),
        }
    }

    /// The key that leaves it.
    pub(crate) fn leaves(&self) -> Key {
        match self {
            Self::Compared(..) | Self::Foreseen(..) => KeyCode::Escape.into(),
            _ => Key {
                code: KeyCode::Char('c'),
                modifiers: crate::Modifiers { control: true, ..crate::Modifiers::default() },
            },
        }
    }

    /// What is to be heard of it.
    pub(crate) fn spoken(&self) -> Vec<String> {
        match self {
            Self::Tree(navigator) => navigator.spoken(),
            Self::Compared(reader, _) => reader.spoken("Enter goes back to the tree."),
            Self::Foreseen(reader, _) => reader
                .spoken("y goes there, o also where what is in a file (!) would be lost; Enter alone stays."),
            Self::Line(Asked { title, purpose: Wanted::Focus(_), .. }) => {
                vec![format!("{title} Enter alone leaves that to the model.")]
            }
            Self::Line(asked) => vec![format!("{}. Enter alone leaves.", asked.title)],
            _ => self.list().map(List::spoken).unwrap_or_default(),
        }
    }

    /// No line is wider than the screen.
    pub(crate) fn view(&self, size: Size, theme: &Theme) -> Vec<Line> {
        self.lines(size, theme).iter().map(|line| cut_line(line, size.columns)).collect()
    }

    fn lines(&self, size: Size, theme: &Theme) -> Vec<Line> {
        match self {
            Self::Compared(reader, _) | Self::Foreseen(reader, _) => reader.view(size, theme),
            Self::Tree(navigator) => navigator.view(size, theme),
            Self::Line(asked) => {
                let columns = size.columns;
                let shown = if asked.secret {
                    "•".repeat(asked.text.chars().count().min(40))
                } else {
                    clean(&asked.text).into_owned()
                };
                let mut line = Line::styled("› ", theme.accent);
                line.push(cut(&shown, columns.saturating_sub(3)), Style::default());
                vec![
                    Line::styled(cut(&clean(&asked.title), columns), theme.heading),
                    line,
                    Line::styled(cut("Enter takes it, Escape leaves", columns), theme.muted),
                ]
            }
            _ => self.list().map(|list| list.view(size, theme)).unwrap_or_default(),
        }
    }
}
