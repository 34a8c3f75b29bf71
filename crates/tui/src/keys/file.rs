//! `keybindings.json`: an object of names of actions, each with a key or a list of keys, and `tui.editor.mode`.

use std::collections::HashSet;
use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use super::{ACTIONS, ActionInfo, Bindings, Scope, key_name, parse_key};
use crate::Key;

/// A faulty entry of the file. The rest of the file applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BindingProblem {
    /// From 1.
    pub line: usize,
    /// What is wrong, and what holds instead.
    pub text: String,
}

impl fmt::Display for BindingProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: {}", self.line, self.text)
    }
}

/// Bytes of the file.
const LIMIT: u64 = 1 << 20;
/// Which keys the editor goes by: `"emacs"`, as without it, or `"vi"`.
const MODE: &str = "tui.editor.mode";

/// Names and values in the order of the file, those that are there twice too.
struct Entries(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read;
        impl<'de> Visitor<'de> for Read {
            type Value = Entries;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("an object of actions and their keys")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Entries, M::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_map(Read)
    }
}

impl Bindings {
    /// What the file at a path says, see [`read`](Self::read), and what of it does not hold: each a line that names
    /// the file. The table's keys where there is no file.
    #[must_use]
    pub fn load(path: &Path) -> (Self, Vec<String>) {
        let shown = path.display();
        if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
            return (Self::default(), Vec::new());
        }
        let text = quipu_workspace::open_for_reading(path).map_err(|error| error.to_string()).and_then(
            |(file, metadata)| {
                let mut text = String::new();
                if metadata.len() > LIMIT {
                    return Err(format!("it is larger than {} MiB", LIMIT >> 20));
                }
                let read = file.take(LIMIT).read_to_string(&mut text);
                read.map(|_| text).map_err(|error| error.to_string())
            },
        );
        match text {
            Ok(text) => {
                let (bindings, problems) = Self::read(&text);
                let to_line =
                    |problem: &BindingProblem| format!("{shown}:{}: {}", problem.line, problem.text);
                (bindings, problems.iter().map(to_line).collect())
            }
            Err(error) => {
                (Self::default(), vec![format!("{shown}: not used, so the default keys apply: {error}")])
            }
        }
    }

    /// The table's keys, changed by the text of a `keybindings.json`, and what of that text does not hold.
    ///
    /// A key that the file gives to an action is taken from another one that has it only by default. Of two that the
    /// file gives it to, the first has it.
    #[must_use]
    pub fn read(text: &str) -> (Self, Vec<BindingProblem>) {
        let mut problems = Vec::new();
        let entries = match serde_json::from_str::<Entries>(text) {
            Ok(Entries(entries)) => entries,
            Err(error) => {
                let why = error.to_string();
                let why = why.split(" at line ").next().unwrap_or_default();
                let text = format!("not used, so the default keys apply: {why}");
                problems.push(BindingProblem { line: error.line().max(1), text });
                return (Self::default(), problems);
            }
        };
        let default = Self::default();
        let mut keys: Vec<Option<Vec<Key>>> = vec![None; ACTIONS.len()];
        let mut given: Vec<(Key, &ActionInfo)> = Vec::new();
        let mut finder = Finder { text, at: 0 };
        let mut vi = false;
        for (id, value) in entries {
            let line = finder.line(&id);
            let mut tell = |line: usize, text: String| problems.push(BindingProblem { line, text });
            if id == MODE {
                match value.as_str() {
                    Some("vi") => vi = true,
                    Some("emacs") => vi = false,
                    _ => {
                        tell(
                            line,
                            format!("{MODE:?} is \"emacs\" or \"vi\", not {value}; the emacs keys apply"),
                        );
                    }
                }
                continue;
            }
            let Some(at) = ACTIONS.iter().position(|info| info.id == id) else {
                let near = nearest(&id).map_or_else(String::new, |near| format!("; {near:?} is one"));
                tell(line, format!("there is no action {id:?}{near}; it is ignored"));
                continue;
            };
            let info = &ACTIONS[at];
            if keys[at].is_some() {
                tell(line, format!("{id:?} occurs twice; the first one applies"));
                continue;
            }
            let names = match &value {
                Value::String(name) => vec![name.clone()],
                Value::Array(names) if names.iter().all(Value::is_string) => {
                    names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()
                }
                Value::Null => Vec::new(),
                _ => {
                    tell(line, format!("{id:?} must be a key or a list of keys; its default applies"));
                    continue;
                }
            };
            let mut own = Vec::new();
            let meant = !names.is_empty();
            for name in names {
                let line = finder.line(&name);
                let key = match parse_key(&name) {
                    Ok(key) => key,
                    Err(why) => {
                        tell(line, format!("{id:?} cannot have the key {name:?}: {why}; it is ignored"));
                        continue;
                    }
                };
                let shared =
                    default.action(Scope::Editor, key).is_some() && default.action(Scope::App, key).is_some();
                let clash = |other: Scope| {
                    let both = [other, info.scope];
                    other == info.scope
                        || !shared && both.contains(&Scope::Editor) && both.contains(&Scope::App)
                };
                let other = given.iter().find(|(taken, by)| *taken == key && clash(by.scope));
                match other {
                    Some((_, by)) if by.id != id => {
                        tell(
                            line,
                            format!("{} is already the key of {:?}, which keeps it", key_name(key), by.id),
                        );
                    }
                    Some(_) => {}
                    None => {
                        given.push((key, info));
                        own.push(key);
                    }
                }
            }
            if meant && own.is_empty() {
                tell(line, format!("{id:?} would have no key, so its default applies"));
                continue;
            }
            keys[at] = Some(own);
        }
        let taken: HashSet<(Scope, Key)> = given.iter().map(|(key, info)| (info.scope, *key)).collect();
        let hidden = |info: &ActionInfo, key: Key| {
            // The editor's keys come before those that hold everywhere.
            taken.contains(&(info.scope, key))
                || info.scope == Scope::App
                    && taken.contains(&(Scope::Editor, key))
                    && default.action(Scope::Editor, key).is_none()
        };
        let keys = keys
            .into_iter()
            .zip(ACTIONS)
            .map(|(own, info)| match own {
                Some(own) => own,
                None => default.keys(info.action).iter().copied().filter(|key| !hidden(info, *key)).collect(),
            })
            .collect();
        (Self::of(keys, vi), problems)
    }
}

/// Finds the lines of strings in the order in which they come.
struct Finder<'a> {
    text: &'a str,
    at: usize,
}

impl Finder<'_> {
    fn line(&mut self, string: &str) -> usize {
        let quoted = serde_json::to_string(string).unwrap_or_default();
        if let Some(found) = self.text[self.at..].find(&quoted) {
            self.at += found + quoted.len();
        }
        1 + self.text[..self.at].matches('\n').count()
    }
}

/// The action whose name is most like a wrong one: the same word at its end, or the same but for case.
fn nearest(id: &str) -> Option<&'static str> {
    let last = id.rsplit('.').next()?;
    let is_near =
        |info: &&ActionInfo| info.id.rsplit('.').next().is_some_and(|word| word.eq_ignore_ascii_case(last));
    ACTIONS.iter().find(is_near).map(|info| info.id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Action;

    #[test]
    fn the_table_has_no_conflicts_and_every_key_is_one() {
        let mut seen = HashSet::new();
        for (at, info) in ACTIONS.iter().enumerate() {
            assert_eq!(info.action as usize, at);
            for name in info.keys {
                let key = parse_key(name).unwrap();
                assert_eq!(key_name(key), *name, "as it is written in help");
                assert!(seen.insert((info.scope, key)), "{name} of {}", info.id);
            }
        }
        assert_eq!(ACTIONS.iter().map(|info| info.id).collect::<HashSet<_>>().len(), ACTIONS.len());
    }

    #[test]
    fn a_file_changes_keys() {
        let text = r#"{
  "tui.editor.cursorUp": ["up", "ctrl+p"],
  "app.suspend": [],
  "app.exit": "ctrl+q",
  "tui.editor.redo": "ctrl+g"
}"#;
        let (bindings, problems) = Bindings::read(text);
        assert_eq!(problems, []);
        let action = |scope, name| bindings.action(scope, parse_key(name).unwrap());
        assert_eq!(action(Scope::Editor, "ctrl+p"), Some(Action::CursorUp));
        assert_eq!(action(Scope::App, "ctrl+p"), None, "the editor has it now");
        assert_eq!(action(Scope::Select, "ctrl+p"), Some(Action::SelectUp));
        assert_eq!(action(Scope::App, "ctrl+z"), None);
        assert_eq!(action(Scope::App, "ctrl+q"), Some(Action::Exit));
        assert_eq!(action(Scope::App, "ctrl+d"), None);
        assert_eq!(bindings.keys(Action::ExternalEditor), []);
        assert_eq!(bindings.hint(Action::Redo), "Ctrl+G");
    }

    #[test]
    fn keybinding_problems_name_their_line() {
        let check = |text: &str, expect: &[(usize, &str)]| {
            let problems = Bindings::read(text).1;
            assert_eq!(problems.len(), expect.len(), "{problems:?}");
            for (problem, (line, part)) in problems.iter().zip(expect) {
                assert!(
                    problem.line == *line && problem.text.contains(part),
                    "{problem}: line {line}, {part}"
                );
            }
        };
        check("{\n\"cursorUp\": \"up\"}", &[(2, "\"tui.editor.cursorUp\" is one")]);
        check("{\"app.nothing\": 1}", &[(1, "no action")]);
        check("{\n\n\"app.exit\":\n[\"ctrl+q\",\n\"hyper+q\"]}", &[(5, "hyper")]);
        check("{\n\"app.exit\":\n\"crtl+q\"}", &[(3, "ignored"), (2, "its default applies")]);
        let (bindings, _) = Bindings::read("{\"app.exit\": \"crtl+q\"}");
        assert_eq!(bindings.hint(Action::Exit), "Ctrl+D");
        check("{\"app.exit\": 7}", &[(1, "a key or a list")]);
        check(
            "{\"app.exit\": \"f5\",\n\"app.clear\": \"f5\"}",
            &[(2, "already the key of \"app.exit\""), (2, "default applies")],
        );
        check("{\"app.exit\": \"f5\",\n\"app.exit\": \"f6\"}", &[(2, "twice")]);
        check("{\n\"app.exit\": \"f5\",,}", &[(2, "default keys apply")]);
        check("{\n\"tui.editor.mode\": \"nano\"}", &[(2, "\"vi\"")]);
        check("[]", &[(1, "an object")]);
        check("", &[(1, "default keys apply")]);
        check("{\"app.exit\": \"f5\", \"tui.select.up\": \"f5\"}", &[]);
    }

    #[test]
    fn a_file_is_found_or_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keybindings.json");
        assert_eq!(Bindings::load(&path), (Bindings::default(), Vec::new()));
        std::fs::write(&path, "{\n\"tui.editor.mode\": \"vi\", \"x\": 1}").unwrap();
        let (bindings, problems) = Bindings::load(&path);
        assert!(bindings.vi());
        assert_eq!(problems, [format!("{}:2: there is no action \"x\"; it is ignored", path.display())]);
        std::fs::write(&path, b"\xff").unwrap();
        assert!(Bindings::load(&path).1[0].contains("default keys apply"));
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Bindings::load(&path).1.len(), 1);
    }

    #[test]
    fn keys_are_translated_for_what_goes_by_default_keys() {
        let (bindings, _) = Bindings::read(
            r#"{"tui.select.up": "ctrl+k", "app.tree.preview": "f2", "app.tree.editLabel": ["alt+l", "f3"]}"#,
        );
        let check = |scopes: &[Scope], key: &str, expect: Option<&str>| {
            let found = bindings.as_default(scopes, parse_key(key).unwrap());
            assert_eq!(found.map(key_name).as_deref(), expect, "{key}");
        };
        let tree = [Scope::Tree, Scope::Select];
        check(&tree, "ctrl+k", Some("up"));
        check(&tree, "up", None);
        check(&tree, "down", Some("down"));
        check(&tree, "f2", Some("space"));
        check(&tree, "space", Some("space"));
        check(&tree, "f3", Some("alt+l"));
        check(&tree, "ctrl+l", None);
        check(&[Scope::Select], "ctrl+l", Some("ctrl+l"));
        check(&tree, "x", Some("x"));
    }

    #[test]
    fn help_shows_the_keys_that_hold() {
        let (bindings, _) = Bindings::read(r#"{"app.exit": "f5", "app.clear": []}"#);
        let help = bindings.with_vi(true).help();
        let titles: Vec<&str> = help.iter().map(|section| section.title).collect();
        assert_eq!(titles, ["Everywhere", "Writing", "vi", "Written", "Lists", "Tree"]);
        let row = |action: Action| {
            let mut rows = help.iter().flat_map(|section| &section.rows);
            rows.find(|(_, help)| *help == action.info().help).map(|(keys, _)| keys.as_str())
        };
        assert_eq!((row(Action::Exit), row(Action::Clear)), (Some("F5"), Some("(app.clear)")));
        assert_eq!(row(Action::ToolsExpand), Some("Ctrl+O"));
        for info in ACTIONS {
            assert!(row(info.action).is_some(), "{} is not in the help", info.id);
        }
    }
}
