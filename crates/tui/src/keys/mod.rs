//! Which key does what: one table, which the user's file changes and from which help is made.

mod file;
mod names;
mod table;

use std::collections::HashMap;

use crate::{Key, KeyCode};
pub use file::BindingProblem;
pub use names::{KeyNameError, key_label, key_name, parse_key};
pub use table::{ACTIONS, Action};

/// Where an action holds. A key may do one thing in each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// Where text is written.
    Editor,
    /// In lists.
    Select,
    /// Wherever no list is open; the editor's come first.
    App,
    /// In the navigator of a session; before those of lists.
    Tree,
}

impl Scope {
    /// All of them, in the order of help.
    pub const ALL: [Self; 4] = [Self::App, Self::Editor, Self::Select, Self::Tree];

    /// What help calls it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Editor => "Writing",
            Self::Select => "Lists",
            Self::App => "Everywhere",
            Self::Tree => "Tree",
        }
    }
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ActionInfo {
    /// Which one.
    pub action: Action,
    /// Its name in `keybindings.json`.
    pub id: &'static str,
    /// Where it holds.
    pub scope: Scope,
    /// Its keys when nobody says otherwise.
    pub keys: &'static [&'static str],
    /// What it does, in a line.
    pub help: &'static str,
}

impl Action {
    /// Its row in the table.
    #[must_use]
    pub fn info(self) -> &'static ActionInfo {
        // The table has a row for each variant, in their order.
        &ACTIONS[self as usize]
    }
}

/// A part of the help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpSection {
    /// Its heading.
    pub title: &'static str,
    /// Keys, as people write them, and what they do; where there is none, the action's name in brackets.
    pub rows: Vec<(String, &'static str)>,
}

/// Keys and what they do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bindings {
    /// By [`Action`], in the order of the table.
    keys: Vec<Vec<Key>>,
    actions: HashMap<(Scope, Key), Action>,
    vi: bool,
}

impl Default for Bindings {
    /// The table's own keys.
    fn default() -> Self {
        let read = |info: &ActionInfo| info.keys.iter().filter_map(|name| parse_key(name).ok()).collect();
        Self::of(ACTIONS.iter().map(read).collect(), false)
    }
}

impl Bindings {
    fn of(keys: Vec<Vec<Key>>, vi: bool) -> Self {
        let mut actions = HashMap::new();
        for (info, keys) in ACTIONS.iter().zip(&keys) {
            for key in keys {
                actions.entry((info.scope, *key)).or_insert(info.action);
            }
        }
        Self { keys, actions, vi }
    }

    /// What a key does in a scope.
    #[must_use]
    pub fn action(&self, scope: Scope, key: Key) -> Option<Action> {
        self.actions.get(&(scope, key)).copied()
    }

    /// The keys of an action, the first of them for hints.
    #[must_use]
    pub fn keys(&self, action: Action) -> &[Key] {
        self.keys.get(action as usize).map_or(&[], Vec::as_slice)
    }

    /// The first key of an action as people write it; where it has none, the action's name.
    #[must_use]
    pub fn hint(&self, action: Action) -> String {
        self.keys(action).first().map_or_else(|| action.info().id.to_owned(), |key| key_label(*key))
    }

    /// Whether a key is the action's.
    #[must_use]
    pub fn is(&self, action: Action, key: Key) -> bool {
        self.action(action.info().scope, key) == Some(action)
    }

    /// The key that means by default what this one means here, for what goes by default keys: the first scope that
    /// has the key counts. `None` for a key that would mean something by default and does not any more.
    #[must_use]
    pub fn as_default(&self, scopes: &[Scope], key: Key) -> Option<Key> {
        if let Some(action) = scopes.iter().find_map(|scope| self.action(*scope, key)) {
            let keys: Vec<Key> = action.info().keys.iter().filter_map(|name| parse_key(name).ok()).collect();
            return if keys.contains(&key) { Some(key) } else { keys.first().copied() };
        }
        let mut defaults =
            ACTIONS.iter().filter(|info| scopes.contains(&info.scope)).flat_map(|info| info.keys);
        let was = defaults.any(|name| parse_key(name) == Ok(key));
        (!was || written(key).is_some()).then_some(key)
    }

    /// Whether the editor has vi's modes.
    #[must_use]
    pub fn vi(&self) -> bool {
        self.vi
    }

    /// With vi's modes in the editor, or without.
    #[must_use]
    pub fn with_vi(mut self, vi: bool) -> Self {
        self.vi = vi;
        self
    }

    /// What the help says of keys.
    #[must_use]
    pub fn help(&self) -> Vec<HelpSection> {
        let mut sections: Vec<HelpSection> = Scope::ALL
            .into_iter()
            .map(|scope| HelpSection { title: scope.title(), rows: self.rows(scope) })
            .filter(|section| !section.rows.is_empty())
            .collect();
        let written = |rows: &[(&str, &'static str)]| {
            rows.iter().map(|(keys, help)| ((*keys).to_owned(), *help)).collect::<Vec<_>>()
        };
        sections.insert(2, HelpSection { title: "Written", rows: written(WRITTEN) });
        if self.vi {
            sections.insert(2, HelpSection { title: "vi", rows: written(VI) });
        }
        sections
    }

    fn rows(&self, scope: Scope) -> Vec<(String, &'static str)> {
        let of_scope = ACTIONS.iter().filter(|info| info.scope == scope);
        let row = |info: &ActionInfo| {
            let keys: Vec<String> = self.keys(info.action).iter().map(|key| key_label(*key)).collect();
            // Its name, by which it can be given one.
            (if keys.is_empty() { format!("({})", info.id) } else { keys.join(", ") }, info.help)
        };
        of_scope.map(row).collect()
    }
}

/// What is written rather than pressed.
const WRITTEN: &[(&str, &str)] = &[
    ("@", "Name a file: completes from the names of all files"),
    ("/", "A command"),
    ("!", "A shell command; its output goes to the model"),
    ("!!", "A shell command; the model does not see it"),
];

/// Vi's own keys.
const VI: &[(&str, &str)] = &[
    ("Escape", "From inserting to commands"),
    ("i a I A o O", "Insert: here, behind, at the line's beginning, its end, below, above"),
    ("h j k l w b e W B E 0 ^ $ gg G", "Move, with a count"),
    ("f F t T ; ,", "To a character of the line"),
    ("{ } %", "To a paragraph's end, to the other bracket"),
    ("d c y", "Remove, change, copy: with a motion, iw aw i\" a( and such, or doubled for lines"),
    ("x X s S D C Y J ~ r", "Edit characters and lines"),
    ("p P", "Put behind, before"),
    ("v V", "Mark characters, lines"),
    ("u Ctrl+R .", "Take back, do again, repeat"),
];

/// Whether a key writes a character, and which.
#[must_use]
pub fn written(key: Key) -> Option<char> {
    match key.code {
        KeyCode::Char(one) if !key.modifiers.control && !key.modifiers.alt && !one.is_control() => Some(one),
        _ => None,
    }
}
