//! What commands with a slash do, and what was chosen.

use quipu_protocol::{Ack, Command, MoveFiles, NodeId, QueueMode, SessionId, Setting, Summarize, Thinking};

use super::Choice;
use super::overlay::{Asked, Chosen, Wanted, Way};
use super::{Effect, ModelChoice, Overlay, Purpose, State};
use crate::commands::{COMMANDS, Does, Report, SlashCommand, words};
use crate::host::{Cycled, Open, Which};
use crate::picker::{Picker, PickerRow};
use crate::render;

/// Levels of thinking by name.
const LEVELS: [(Thinking, &str); 7] = [
    (Thinking::Off, "off"),
    (Thinking::Minimal, "minimal"),
    (Thinking::Low, "low"),
    (Thinking::Medium, "medium"),
    (Thinking::High, "high"),
    (Thinking::Xhigh, "xhigh"),
    (Thinking::Max, "max"),
];

/// A level's name.
pub(crate) fn level_name(level: Thinking) -> &'static str {
    LEVELS.iter().find(|(one, _)| *one == level).map_or("", |(_, name)| name)
}

impl State {
    pub(super) fn slash(&mut self, command: &SlashCommand, arguments: &str, effects: &mut Vec<Effect>) {
        if (self.opening || self.moving) && command.does.is_of_the_session() {
            // It is for the session that is being opened, or for where that goes.
            let what = if self.opening { "is being opened" } else { "is on its way" };
            self.hint = Some(format!("The session {what}; /{} follows", command.name));
            self.held.push_back((*command, arguments.to_owned()));
            return;
        }
        let session = self.standing.session.as_ref().map(|id| id.as_str().to_owned());
        let head = self.standing.head.map(|node| node.to_string());
        let nothing = |state: &mut Self| state.note("Nothing was said in this session yet");
        match command.does {
            Does::Help => self.help(),
            Does::Quit => self.leave(effects),
            Does::Search if arguments.is_empty() => self.ask_words(),
            Does::Search => effects.push(Effect::Search(arguments.to_owned())),
            Does::Copy => self.copy(effects),
            Does::Later if arguments.is_empty() => self.hint = Some("/later and what is to be sent".into()),
            Does::Later => self.say(arguments.to_owned(), QueueMode::FollowUp, effects),
            Does::Unqueue => self.take_back(effects),
            Does::History => self.search_history(),
            Does::Unfold => self.on_action(crate::Action::ToolsExpand, effects),
            Does::Edit if arguments.is_empty() => effects.push(Effect::Edit(self.editor.text())),
            Does::Edit => effects.push(Effect::Edit(arguments.to_owned())),
            Does::Tree => self.tree(effects),
            Does::Resume => effects.push(Effect::Sessions(arguments.to_owned())),
            Does::New => self.begin_anew(effects),
            Does::Fork => self.fork(arguments, effects),
            Does::Clone => match (session, head) {
                (Some(session), Some(_)) => self.copy_session(session.into(), effects),
                _ => nothing(self),
            },
            Does::Undo | Does::Redo => match self.standing.head {
                Some(_) => self.step(matches!(command.does, Does::Undo), arguments, effects),
                None => nothing(self),
            },
            Does::Name => match self.standing.head {
                Some(_) => {
                    let command = Command::Rename { name: arguments.to_owned() };
                    self.send_move(command, "name", effects);
                }
                None => nothing(self),
            },
            Does::Label => match self.standing.head {
                Some(head) => self.label(head, arguments, effects),
                None => nothing(self),
            },
            Does::Compact if self.working.is_some() || self.busy.is_some() => {
                self.held.push_back((*command, arguments.to_owned()));
                self.hint = Some("The context is summed up when the work is done".into());
            }
            Does::Compact => {
                let focus = Some(arguments.to_owned()).filter(|focus| !focus.is_empty());
                effects.push(Effect::Send(Command::Compact { focus }, Purpose::Else));
            }
            Does::Model if arguments.is_empty() => effects.push(Effect::Models),
            Does::Model => match arguments.split_once('/') {
                Some((provider, id)) => {
                    self.switch(Some((provider.to_owned(), id.to_owned())), None, effects);
                }
                None => effects.push(Effect::Models),
            },
            Does::Thinking => self.thinking(arguments, effects),
            Does::Settings if arguments.is_empty() => effects.push(Effect::Settings),
            Does::Settings => effects.push(Effect::KeepSetting(arguments.to_owned())),
            Does::Login => effects.push(Effect::Providers(arguments.to_owned())),
            Does::Demo => self.demo(effects),
            Does::Import => {
                let run = std::iter::once("import".to_owned()).chain(words(arguments));
                effects.push(Effect::Foreground(run.collect()));
            }
            Does::Report(report) => {
                let mut run = vec![command.name.to_owned()];
                let said = words(arguments);
                match (report, session, head) {
                    (Report::AsSaid, ..) => run.extend(said),
                    (Report::Session, Some(session), Some(_)) if said.is_empty() => run.push(session),
                    (Report::Node, _, Some(head)) if said.is_empty() => run.push(head),
                    (Report::Session | Report::Node, ..) if said.is_empty() => return nothing(self),
                    (Report::Session | Report::Node, ..) => run.extend(said),
                    (Report::Export, Some(session), Some(_)) => {
                        let format = said.first().map_or("markdown", String::as_str);
                        let name = format!("{}.{}", short(&session), ending(format));
                        let file = said.get(1).cloned().unwrap_or(name);
                        run.extend(["--format".into(), format.to_owned(), "-o".into(), file, session]);
                    }
                    (Report::Export, ..) => return nothing(self),
                    (Report::Bookmark, _, Some(head)) if said.len() == 1 => {
                        run.extend(said);
                        run.push(head);
                    }
                    (Report::Bookmark, ..) => run.extend(said),
                    (Report::Diff, _, Some(head)) if said.len() == 1 => {
                        run.extend(said);
                        run.push(head);
                    }
                    (Report::Diff, ..) if said.is_empty() => {
                        self.hint = Some(
                            "/diff A compares it with where the session stands, /diff A B two others".into(),
                        );
                        return;
                    }
                    (Report::Diff, ..) => run.extend(said),
                }
                effects.push(Effect::Command(run));
            }
        }
    }

    /// A command by its name alone.
    pub(super) fn run_command(&mut self, name: &str, effects: &mut Vec<Effect>) {
        if let Some(command) = COMMANDS.iter().find(|command| command.name == name) {
            self.slash(command, "", effects);
        }
    }

    pub(super) fn copy(&mut self, effects: &mut Vec<Effect>) {
        if self.last_answer.is_empty() {
            self.hint = Some("There is no answer yet".into());
        } else {
            effects.push(Effect::Copy(self.last_answer.clone()));
            // Where nothing can be seen of it, whoever does it says so.
            self.hint =
                Some("The last answer is on the clipboard".into()).filter(|_: &String| self.linear.is_none());
        }
    }

    pub(super) fn fork(&mut self, arguments: &str, effects: &mut Vec<Effect>) {
        match self.standing.head {
            _ if !arguments.is_empty() => self.fork_from(arguments.to_owned(), effects),
            Some(head) => effects.push(Effect::Said(head)),
            None => self.note("Nothing was said in this session yet"),
        }
    }

    /// Another session from a node, named by a person.
    fn fork_from(&mut self, node: String, effects: &mut Vec<Effect>) {
        match node.parse::<NodeId>() {
            Ok(at) => self.fork_at(at, effects),
            Err(_) => effects.push(Effect::Resolve(node)),
        }
    }

    /// A new session from a node; it is gone on with.
    pub(super) fn fork_at(&mut self, at: NodeId, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        self.send_move(Command::Fork { at }, "fork", effects);
    }

    /// Back over what moved the session, or forward again.
    fn step(&mut self, back: bool, arguments: &str, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        let steps = if arguments.is_empty() { Ok(1) } else { arguments.parse::<u32>() };
        let Ok(steps @ 1..) = steps else {
            self.error("It was not done.", "The number of steps is a number from 1.");
            return;
        };
        let files = MoveFiles::AsBefore;
        let (command, name) = match back {
            true => (Command::Undo { steps, files }, "undo"),
            false => (Command::Redo { steps, files }, "redo"),
        };
        self.send_move(command, name, effects);
    }

    fn label(&mut self, node: NodeId, text: &str, effects: &mut Vec<Effect>) {
        let text = Some(text.to_owned()).filter(|text| !text.trim().is_empty());
        self.send_move(Command::Label { node, text }, "label", effects);
    }

    /// Moves the session; what is said or asked for meanwhile follows. Behind a run it waits for its end, which what is
    /// said does not.
    pub(super) fn send_move(&mut self, command: Command, name: &'static str, effects: &mut Vec<Effect>) {
        self.moving = self.working.is_none() && self.busy.is_none();
        effects.push(Effect::Send(command, Purpose::Move(name)));
    }

    /// The session was moved, or something was noted of it.
    pub(super) fn on_moved(&mut self, name: &str, ack: Ack, effects: &mut Vec<Effect>) {
        let moved = match ack {
            Ack::Moved(moved) => moved,
            Ack::Forked { session, said } => {
                if let Some(said) = said.filter(|_| self.editor.text().trim().is_empty()) {
                    self.editor.set_text(&said);
                    effects.push(Effect::Draft);
                }
                return self.open(Open { which: Which::Session(session), ..Open::default() }, effects);
            }
            Ack::Handled if name == "label" => return self.note("The node is labelled"),
            Ack::Handled => return self.note("The session is renamed"),
            Ack::Started(_) | Ack::Queued(_) | Ack::Unqueued(_) => return,
        };
        let place = |node: Option<NodeId>| node.map_or_else(|| "nowhere".into(), |node| node.short());
        let verb = if name == "undo" { "undone" } else { "done again" };
        for step in &moved.steps {
            self.note(&format!("{} {verb}: from {} to {}", step.what, place(step.from), place(step.to)));
        }
        for problem in &moved.problems {
            self.note(problem);
        }
        if name == "undo" {
            self.note("/redo takes that back");
        }
    }

    /// Copies a session and goes on with the copy; what is said meanwhile is said there.
    fn copy_session(&mut self, session: SessionId, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        if self.opening {
            self.hint = Some("The session is being opened".into());
            return;
        }
        self.opening = true;
        effects.push(Effect::Clone(session));
    }

    /// Opens a session, when nothing is under way in this one.
    pub(super) fn open(&mut self, open: Open, effects: &mut Vec<Effect>) {
        if self.is_held() {
            return;
        }
        if self.opening {
            // One after the other: the one that is being opened must not be left behind.
            self.pending = Some(open);
            return;
        }
        self.opening = true;
        effects.push(Effect::Open(open));
    }

    /// The same session with the same model and level, which it may not have said anything with yet.
    pub(super) fn again(&self) -> Open {
        let which = match (&self.standing.session, self.standing.head) {
            (Some(session), Some(_)) => Which::Session(session.clone()),
            // Nothing was said: what the command line asked for may be a file all the same.
            _ if self.latest.which == Which::Asked => Which::Asked,
            _ => Which::New,
        };
        let model = self.standing.model.as_ref();
        let model = model.map(|model| (model.provider.clone(), model.id.clone()));
        let thinking = model.is_some().then_some(self.standing.thinking);
        Open { which, model, thinking, ..Open::default() }
    }

    /// A new session with the same model and level.
    pub(super) fn begin_anew(&mut self, effects: &mut Vec<Effect>) {
        self.open(Open { which: Which::New, ..self.again() }, effects);
    }

    /// Another model or level, from the next request on.
    pub(super) fn switch(
        &mut self,
        model: Option<(String, String)>,
        thinking: Option<Thinking>,
        effects: &mut Vec<Effect>,
    ) {
        if self.unready && !self.opening {
            self.opening = true;
            return effects.push(Effect::Open(Open { model, thinking, ..self.latest.clone() }));
        }
        let setting =
            |(provider, id): &(String, String)| Setting::Model { provider: provider.clone(), id: id.clone() };
        let settings = model.iter().map(setting).chain(thinking.map(|level| Setting::Thinking { level }));
        if self.opening {
            self.settings.extend(settings);
        } else {
            effects.extend(settings.map(|setting| Effect::Send(Command::Set { setting }, Purpose::Set)));
        }
        self.wanted = (model.or(self.wanted.0.take()), thinking.or(self.wanted.1));
        if self.working.is_some() {
            self.hint = Some("From the next turn on".into());
        }
    }

    /// The model after the one that answers, or before it.
    pub(super) fn cycle(&mut self, models: &[Cycled], choice: ModelChoice, effects: &mut Vec<Effect>) {
        let now = self.standing.model.as_ref();
        let (provider, id) = match (&self.wanted.0, now) {
            (Some((provider, id)), _) => (provider.as_str(), id.as_str()),
            (None, Some(model)) => (model.provider.as_str(), model.id.as_str()),
            (None, None) => ("", ""),
        };
        let at = models.iter().position(|(model, _)| model.provider == provider && model.id == id);
        if models.len() < 1 + usize::from(at.is_some()) {
            self.hint = Some("There is no other model; `/login` keeps a key for more".into());
            return;
        }
        let next = match (at, choice) {
            (Some(at), ModelChoice::Previous) => (at + models.len() - 1) % models.len(),
            (Some(at), _) => (at + 1) % models.len(),
            (None, _) => 0,
        };
        let (model, thinking) = &models[next];
        let model = (model.provider.clone(), model.id.clone());
        let level = thinking.map_or(String::new(), |level| format!(", thinking {}", level_name(level)));
        let told = format!("Model: {}/{}{level}", model.0, model.1);
        self.switch(Some(model), *thinking, effects);
        self.hint = Some(told);
    }

    pub(super) fn next_thinking(&mut self, effects: &mut Vec<Effect>) {
        let levels = &self.standing.levels;
        if levels.len() < 2 {
            self.hint = Some("This model has one level of thinking".into());
            return;
        }
        let now = self.wanted.1.unwrap_or(self.standing.thinking);
        let at = levels.iter().position(|level| *level == now).map_or(0, |at| at + 1);
        let next = levels[at % levels.len()];
        self.switch(None, Some(next), effects);
        self.hint = Some(format!("Thinking: {}", level_name(next)));
    }

    pub(super) fn thinking(&mut self, arguments: &str, effects: &mut Vec<Effect>) {
        if let Some((level, _)) = LEVELS.iter().find(|(_, name)| *name == arguments) {
            return self.switch(None, Some(*level), effects);
        }
        let rows =
            self.standing.levels.iter().map(|level| PickerRow::new(*level, level_name(*level), "")).collect();
        let at = self.standing.levels.iter().position(|level| *level == self.standing.thinking);
        self.show(Overlay::Levels(Picker::new("Thinking", rows).starting_at(at.unwrap_or(0))));
    }

    /// The keys and the commands, from the tables that the program goes by.
    pub(super) fn help(&mut self) {
        let theme = &self.theme;
        let mut sections: Vec<(&str, Vec<(String, String)>)> = Vec::new();
        if self.linear.is_some() {
            sections.push(("What is typed", typed_help()));
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
        sections.push(("Questions of permission", answers.to_vec()));
        let commands = COMMANDS.iter().map(|command| {
            let name = format!("/{} {}", command.name, command.arguments);
            (name.trim_end().to_owned(), capital(command.help))
        });
        sections.push(("Commands", commands.collect()));
        let files = [
            ("keybindings.json", "Keys, by the names that docs/keys.md lists"),
            ("themes/NAME.json", "Colours; \"theme\" in settings.json names one"),
        ];
        let files = files.map(|(name, what)| (name.to_owned(), what.to_owned()));
        sections.push(("Files in $QUIPU_HOME, ~/.quipu without it", files.to_vec()));
        let lines = render::sections(&sections, self.size.columns, theme);
        self.ready(lines);
    }

    pub(super) fn chosen(&mut self, chosen: Chosen, effects: &mut Vec<Effect>) {
        match chosen {
            Chosen::Model(model) => {
                self.switch(Some((model.provider.clone(), model.id.clone())), None, effects);
            }
            Chosen::Level(level) => self.switch(None, Some(level), effects),
            Chosen::Session(id) => {
                self.open(Open { which: Which::Session(id), ..Open::default() }, effects);
            }
            Chosen::Fork(node) => self.fork_at(node, effects),
            Chosen::Hit((node, session)) => {
                let title = format!("Node {}", node.short());
                let rows = self.ways_from(session);
                self.show(Overlay::Way(Picker::new(title, rows), node));
            }
            Chosen::Node(node) => {
                let rows = vec![
                    PickerRow::new(Way::Plain, "Go there", "files stay as they are"),
                    PickerRow::new(
                        Way::Files,
                        "Go there with the files",
                        "files that tools changed go along",
                    ),
                    PickerRow::new(Way::Summary, "Go there with a summary", "of what is left behind"),
                    PickerRow::new(Way::Focus, "Go there with a summary of …", "say what it should look at"),
                    PickerRow::new(Way::Fork, "A new session from there", "this one stays as it is"),
                ];
                self.show(Overlay::Way(Picker::new(format!("Node {}", node.short()), rows), node));
            }
            Chosen::Elsewhere(node, session) => {
                let title = format!("Node {} of another session", node.short());
                let rows = vec![
                    PickerRow::new(Way::Fork, "A new session from there", "that one stays as it is"),
                    PickerRow::new(Way::Session(session), "Go on with that session", "where it stands"),
                ];
                self.show(Overlay::Way(Picker::new(title, rows), node));
            }
            Chosen::Way(way, node) => self.go(way, node, effects),
            Chosen::Files(node, overwrite) => {
                let files = MoveFiles::Restore { overwrite };
                let command = Command::Jump { to: node, summary: None, label: None, files };
                effects.push(Effect::Send(command, Purpose::Else));
            }
            Chosen::Setting(setting) if setting.is_empty() => effects.push(Effect::EditSettings),
            // A value is still to be written.
            Chosen::Setting(setting) if !setting.contains(' ') && self.linear.is_some() => {
                self.hint = Some(format!("/settings {setting} and a value sets it."));
            }
            Chosen::Setting(setting) if !setting.contains(' ') => {
                self.editor.set_text(&format!("/settings {setting} "));
            }
            Chosen::Setting(setting) => effects.push(Effect::KeepSetting(setting)),
            Chosen::Opening(yes, question, open) => self.open_with(yes, question, *open, effects),
            Chosen::First(first) => self.first(first, effects),
            Chosen::Provider(provider) => self.ask_key(provider),
            Chosen::Unchecked(what, provider, key) => self.unchecked(what, provider, key, effects),
            Chosen::Sent(text) => {
                self.editor.set_text(&text);
                effects.push(Effect::Draft);
            }
            Chosen::Label(node, label) => self.show(Overlay::Line(Asked {
                title: format!("Label of {}", node.short()),
                text: label,
                secret: false,
                purpose: Wanted::Label(node),
            })),
            Chosen::Line(wanted, text) => match wanted {
                Wanted::Key(provider) if !text.trim().is_empty() => {
                    self.check_key(provider, text.trim().to_owned(), effects);
                }
                Wanted::Key(_) if self.unready => self.tell_first(),
                Wanted::Key(_) => {}
                Wanted::Label(node) => {
                    self.label(node, &text, effects);
                }
                Wanted::Search if text.trim().is_empty() => {}
                Wanted::Search => effects.push(Effect::Search(text)),
                Wanted::Focus(node) => {
                    let focus = Some(text).filter(|text| !text.trim().is_empty());
                    self.jump(node, Some(Summarize { focus }), effects);
                }
            },
        }
    }

    pub(super) fn ask_words(&mut self) {
        self.show(Overlay::Line(Asked {
            title: "What was said or done?".into(),
            text: String::new(),
            secret: false,
            purpose: Wanted::Search,
        }));
    }

    /// What can be done with a node that was found, in this session or in another.
    fn ways_from(&self, session: Option<SessionId>) -> Vec<PickerRow<Way>> {
        let here = session.is_some() && session == self.standing.session;
        let mut rows = vec![PickerRow::new(Way::Read, "Read it here", "with what was said before it")];
        if here {
            rows.push(PickerRow::new(Way::Plain, "Go there", "files stay as they are"));
        }
        let stays = if here { "this one stays as it is" } else { "that one stays as it is" };
        rows.push(PickerRow::new(Way::Fork, "A new session from there", stays));
        if let Some(session) = session.filter(|_| !here) {
            let row = PickerRow::new(Way::Session(session), "Go on with that session", "where it stands");
            rows.push(row);
        }
        rows
    }

    fn go(&mut self, way: Way, node: NodeId, effects: &mut Vec<Effect>) {
        match way {
            Way::Read => effects.push(Effect::Command(vec!["recall".into(), node.to_string()])),
            Way::Plain => self.jump(node, None, effects),
            Way::Summary => self.jump(node, Some(Summarize::default()), effects),
            Way::Focus => self.show(Overlay::Line(Asked {
                title: "What should the summary look at?".into(),
                text: String::new(),
                secret: false,
                purpose: Wanted::Focus(node),
            })),
            Way::Files => effects.push(Effect::Foresee(node)),
            Way::Session(session) => self.chosen(Chosen::Session(session), effects),
            Way::Fork => self.fork_at(node, effects),
        }
    }

    fn jump(&mut self, to: NodeId, summary: Option<Summarize>, effects: &mut Vec<Effect>) {
        effects.push(Effect::Send(
            Command::Jump { to, summary, label: None, files: MoveFiles::Keep },
            Purpose::Else,
        ));
    }
}

/// With its first letter in upper case.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn short(session: &str) -> &str {
    session.get(..8).unwrap_or(session)
}

fn ending(format: &str) -> &str {
    match format {
        "markdown" => "md",
        "pi" => "jsonl",
        other => other,
    }
}

/// The keys and words that hold here.
fn typed_help() -> Vec<(String, String)> {
    let rows = [
        ("Enter", "sends the line; while the agent works it steers"),
        ("a backslash at the end", "the text goes on in the next line"),
        ("a number", "answers a question, or takes a row of a list"),
        ("Ctrl-C, or Escape and Enter", "stops what is under way; twice with nothing under way: leaves"),
        ("Ctrl-D in an empty line", "leaves"),
        ("Ctrl-R", "the terminal shows again what is being typed"),
        ("!LINE, !!LINE", "runs a line in the shell; of the second the model is not told"),
        ("a command, a space and ?", "lists what may follow it"),
    ];
    rows.map(|(keys, what)| (keys.to_owned(), what.to_owned())).to_vec()
}
