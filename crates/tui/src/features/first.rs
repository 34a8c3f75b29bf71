//! Before there is a model: what can be done.

use super::{credentials, models, reports, search};
use crate::component::Chooser;
use crate::host::LocalServers;
use crate::picker::{Picker, PickerRow};
use crate::quoting::words;
use crate::{Effect, Request, SlashCommand, State};

pub(crate) const IMPORT: SlashCommand =
    SlashCommand::new("import", "[AGENT]", "import sessions of other agents", |_, arguments, effects| {
        let run = std::iter::once("import".to_owned()).chain(words(arguments));
        effects.push(Effect::Foreground(run.collect()));
    })
    .completes();
pub(crate) const DEMO: SlashCommand =
    SlashCommand::new("demo", "", "watch a scripted model do a whole task", |state, _, effects| {
        state.demo(effects);
    });

/// Models of one server that are offered; `/model` has all.
const OFFERED: usize = 5;

/// Said while it runs.
const DEMO_RUNS: &str = "The demo runs …";

/// A first step that needs no model.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FirstChoice {
    /// A model of a server on this machine: provider and model.
    Local(String, String),
    /// Another model.
    Model,
    /// Keep a key.
    Key,
    /// See it work.
    Demo,
    /// Import sessions of other agents.
    Import,
    /// Find something in them.
    Search,
    /// Leave.
    Quit,
}

impl State {
    /// What can be done without a model; `others` could be used.
    pub(crate) fn without_model(&mut self, why: &str, others: bool, effects: &mut Vec<Effect>) {
        self.opening.unready = true;
        if !others {
            self.note("Welcome to Quipu.");
        }
        self.note(why);
        self.offer_first(others);
        if !others {
            let then = |state: &mut Self, servers, _: &mut Vec<Effect>| state.on_local_servers(&servers);
            effects.push(Effect::Ask(Request::to_host("servers", |host| host.local_servers(), then)));
        }
    }

    fn offer_first(&mut self, others: bool) {
        let row = |first, what: &str, how: &str| PickerRow::new(first, what, how);
        let mut rows = vec![
            row(
                FirstChoice::Key,
                "Log in, or add a key",
                "/login: an account or an API key, which is tested",
            ),
            row(FirstChoice::Demo, "See it work", "/demo: a whole task with a scripted model, without a key"),
            row(FirstChoice::Import, "Import sessions of other agents", "/import: their files do not change"),
            row(FirstChoice::Search, "Search all sessions", "/search WORDS"),
            row(FirstChoice::Quit, "Leave", "/quit"),
        ];
        if others {
            rows.insert(0, row(FirstChoice::Model, "Choose another model", "/model"));
        }
        self.show(Chooser::new(Picker::new("What now?", rows), Self::first));
    }

    /// The same in words, for who left the list.
    pub(crate) fn tell_first(&mut self) {
        self.note(
            "/login adds a login or a key, /model uses a model of a server on this machine, /demo shows a whole task, /import imports sessions of other agents, /search WORDS searches them, /help lists all.",
        );
    }

    /// Servers were looked for.
    fn on_local_servers(&mut self, servers: &LocalServers) {
        if !self.opening.unready {
            return;
        }
        if servers.found.is_empty() {
            if !servers.looked_for.is_empty() {
                let places = servers.looked_for.join(", ");
                self.note(&format!("No model server is running on this machine; checked {places}."));
            }
            return;
        }
        let mut rows = Vec::new();
        for server in &servers.found {
            for model in server.models.iter().take(OFFERED) {
                rows.push(PickerRow::new(
                    FirstChoice::Local(server.provider.clone(), model.clone()),
                    format!("Use {model} of {}", server.name),
                    format!("/model {}/{model}: on this machine, {}", server.provider, server.address),
                ));
            }
        }
        let numbered = self.linear.is_some();
        if let Some(chooser) = self.shown_component::<Chooser<FirstChoice>>() {
            return chooser.add(rows, numbered);
        }
        for server in &servers.found {
            let model = server.models.first().map_or("", String::as_str);
            self.note(&format!(
                "{} is running on {}: /model {}/{model} uses it.",
                server.name, server.address, server.provider
            ));
        }
    }

    fn first(&mut self, first: FirstChoice, effects: &mut Vec<Effect>) {
        match first {
            FirstChoice::Local(provider, id) => {
                self.opening.unready = false;
                models::open_with(self, Some((provider, id)), None, effects);
            }
            FirstChoice::Model => models::choose_model("", effects),
            FirstChoice::Key => credentials::login(self, "", effects),
            FirstChoice::Demo => self.demo(effects),
            FirstChoice::Import => effects.push(Effect::Foreground(vec!["import".into()])),
            FirstChoice::Search => search::ask(self),
            FirstChoice::Quit => effects.push(Effect::Leave),
        }
    }

    fn demo(&mut self, effects: &mut Vec<Effect>) {
        self.hint = Some(DEMO_RUNS.into());
        reports::run(vec!["demo".into()], effects);
    }

    /// The demo has ended.
    pub(crate) fn demo_ended(&mut self) {
        drop(self.hint.take_if(|hint| hint == DEMO_RUNS));
    }

    /// What can be done, again, where there is nothing else.
    pub(crate) fn back_to_first(&mut self) {
        if self.opening.unready {
            self.offer_first(false);
        }
    }
}
