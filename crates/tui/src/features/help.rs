//! The keys and the commands, from the tables that the program goes by.

use crate::command::with_source;
use crate::{Action, Choice, SlashCommand, State, render};

pub(crate) const HELP: SlashCommand =
    SlashCommand::new("help", "", "list the keys and the commands", |state, _, _| state.help())
        .with_key(Action::Help);

impl State {
    /// The keys and the commands, from the tables that the program goes by.
    pub(crate) fn help(&mut self) {
        let theme = &self.theme;
        let mut sections: Vec<(&str, Vec<(String, String)>)> = Vec::new();
        if self.linear.is_some() {
            sections.push(("Input", typed_help()));
        }
        for section in self.bindings.help().into_iter().filter(|_| self.linear.is_none()) {
            let rows = section.rows.into_iter().map(|(keys, what)| (keys, what.to_owned()));
            sections.push((section.title, rows.collect()));
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
        sections.push(("Commands", commands.collect()));
        let files = [
            ("keybindings.json", "Keys, by the action names in docs/keys.md"),
            ("themes/NAME.json", "Colours; \"theme\" in settings.json selects one"),
        ];
        let files = files.map(|(name, what)| (name.to_owned(), what.to_owned()));
        sections.push(("Files in $QUIPU_HOME (default ~/.quipu)", files.to_vec()));
        let lines = render::sections(&sections, self.size.columns, theme);
        self.ready(lines);
    }
}

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
