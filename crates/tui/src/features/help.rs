//! The keys and the commands, from the tables that the program goes by.

use crate::command::with_source;
use crate::component::Chooser;
use crate::picker::{Picker, PickerRow};
use crate::{Action, Choice, Effect, SlashCommand, State, render};

pub(crate) const HELP: SlashCommand =
    SlashCommand::new("help", "[all]", "list the commands and keys; all: print them", |state, how, _| {
        match how {
            "" => state.help(),
            "all" => state.print_help(),
            _ => {
                state
                    .error("Nothing is listed.", "/help lists the commands and keys; /help all prints them.");
            }
        }
    })
    .with_key(Action::Help);

impl State {
    fn print_help(&mut self) {
        let lines = render::sections(&self.help_sections(), self.size.columns, &self.theme);
        self.ready(lines);
    }

    /// The keys and the commands: a list that scrolls; lines where nothing is drawn.
    pub(crate) fn help(&mut self) {
        if self.linear.is_some() {
            return self.print_help();
        }
        let mut sections = self.help_sections();
        // What most look for comes first.
        let commands = sections.iter().position(|(title, _)| *title == COMMANDS).unwrap_or(0);
        sections[..=commands].rotate_right(1);
        let rows = sections.into_iter().flat_map(|(_, rows)| rows);
        let rows = rows.map(|(name, what)| {
            let command = name.strip_prefix('/').filter(|rest| rest.starts_with(char::is_alphabetic));
            let command = command.and_then(|rest| rest.split(' ').next()).map(|name| format!("/{name} "));
            PickerRow::new(command, name, what)
        });
        let write = |state: &mut Self, command: Option<String>, effects: &mut Vec<Effect>| {
            if let Some(command) = command.filter(|_| state.editor.text().trim().is_empty()) {
                state.write(&command, effects);
            }
        };
        self.show(Chooser::new(Picker::new("Commands and keys", rows.collect()), write));
    }

    /// Headings, and below each names and what they do.
    fn help_sections(&self) -> Vec<(&'static str, Vec<(String, String)>)> {
        let mut sections = Vec::new();
        if self.linear.is_some() {
            sections.push(("Input", typed_help()));
        }
        for section in self.bindings.help().into_iter().filter(|_| self.linear.is_none()) {
            let rows = section.rows.into_iter().map(|(keys, what)| (keys, what.to_owned()));
            sections.push((section.title, rows.collect::<Vec<_>>()));
        }
        let answers = Choice::PERMISSION.map(|choice| {
            let letter = choice.letter().unwrap_or(' ');
            let alt = format!(", Alt+{}", letter.to_ascii_uppercase());
            let alt = if self.linear.is_some() { "" } else { alt.as_str() };
            (format!("{letter}{alt}"), capital(choice.meaning()))
        });
        sections.push(("Permission questions", answers.to_vec()));
        let commands = self.commands.iter().map(|command| {
            let name = format!("/{} {}", command.name, command.arguments);
            (name.trim_end().to_owned(), capital(&with_source(command)))
        });
        sections.push((COMMANDS, commands.collect()));
        let files = [
            ("keybindings.json", "Keys, by the action names in docs/keys.md"),
            ("themes/NAME.json", "Colours; \"theme\" in settings.json selects one"),
        ];
        let files = files.map(|(name, what)| (name.to_owned(), what.to_owned()));
        sections.push(("Files in $QUIPU_HOME (default ~/.quipu)", files.to_vec()));
        sections
    }
}

/// The heading of the commands.
const COMMANDS: &str = "Commands";

/// With its first letter in upper case.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The keys and words that hold here.
fn typed_help() -> Vec<(String, String)> {
    let rows = [
        ("Enter", "sends the line; while the agent works it steers"),
        ("a backslash at the end", "continues the text on the next line"),
        ("a number", "answers a question or selects a row of a list"),
        ("Ctrl-C, or Escape and Enter", "stops the current work; twice without any: exits"),
        ("Ctrl-D in an empty line", "leaves"),
        ("Ctrl-R", "redraws the line you are typing"),
        ("!LINE, !!LINE", "runs a line in the shell; the model does not see the second"),
        ("a command, a space and ?", "lists its arguments"),
    ];
    rows.map(|(keys, what)| (keys.to_owned(), what.to_owned())).to_vec()
}
