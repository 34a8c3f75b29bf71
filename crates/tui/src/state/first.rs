//! Before there is a model: what can be done, and keys.

use super::overlay::{Asked, First, Overlay, Unchecked, Wanted};
use super::{Effect, State, Working};
use crate::host::{Kept, LocalServers, Open, ProviderItem};
use crate::picker::{Picker, PickerRow};

/// Models of one server that are offered; `/model` has all.
const OFFERED: usize = 5;

/// Said while it runs.
const DEMO: &str = "The demo runs …";

impl State {
    /// What can be done without a model; `others` could be used.
    pub(super) fn without_model(&mut self, why: &str, others: bool, effects: &mut Vec<Effect>) {
        self.unready = true;
        if !others {
            self.note("Welcome to Quipu.");
        }
        self.note(why);
        self.offer_first(others);
        if !others {
            effects.push(Effect::LocalServers);
        }
    }

    fn offer_first(&mut self, others: bool) {
        let row = |first, what: &str, how: &str| PickerRow::new(first, what, how);
        let mut rows = vec![
            row(First::Key, "Keep a key for a provider", "/login: the provider is asked whether it takes it"),
            row(First::Demo, "See it work", "/demo: a whole task with a scripted model, without a key"),
            row(First::Import, "Take in sessions of other agents", "/import: they stay as they are"),
            row(First::Search, "Search what was said and done", "/search WORDS: in all sessions"),
            row(First::Quit, "Leave", "/quit"),
        ];
        if others {
            rows.insert(0, row(First::Model, "Choose another model", "/model"));
        }
        self.show(Overlay::First(Picker::new("What now?", rows)));
    }

    /// The same in words, for who left the list.
    pub(super) fn tell_first(&mut self) {
        self.note(
            "/login keeps a key, /model takes a model of a server on this machine, /demo shows a whole task, /import takes \
             in sessions of other agents, /search WORDS finds in them, /help lists all.",
        );
    }

    /// Servers were looked for.
    pub(super) fn on_local_servers(&mut self, servers: &LocalServers) {
        if !self.unready {
            return;
        }
        if servers.found.is_empty() {
            if !servers.looked_for.is_empty() {
                let places = servers.looked_for.join(", ");
                self.note(&format!("No model server listens on this machine; looked for {places}."));
            }
            return;
        }
        let mut rows = Vec::new();
        for server in &servers.found {
            for model in server.models.iter().take(OFFERED) {
                rows.push(PickerRow::new(
                    First::Local(server.provider.clone(), model.clone()),
                    format!("Use {model} of {}", server.name),
                    format!("/model {}/{model}: on this machine, {}", server.provider, server.address),
                ));
            }
        }
        if let Some(Overlay::First(picker)) = &mut self.overlay {
            // A number that was heard stays with its row.
            return if self.linear.is_some() { picker.append(rows) } else { picker.prepend(rows) };
        }
        for server in &servers.found {
            let model = server.models.first().map_or("", String::as_str);
            self.note(&format!(
                "{} listens on {}: /model {}/{model} uses it.",
                server.name, server.address, server.provider
            ));
        }
    }

    pub(super) fn first(&mut self, first: First, effects: &mut Vec<Effect>) {
        match first {
            First::Local(provider, id) => {
                self.opening = true;
                self.unready = false;
                effects.push(Effect::Open(Open { model: Some((provider, id)), ..self.latest.clone() }));
            }
            First::Model => effects.push(Effect::Models),
            First::Key => effects.push(Effect::Providers(String::new())),
            First::Demo => self.demo(effects),
            First::Import => effects.push(Effect::Foreground(vec!["import".into()])),
            First::Search => self.ask_words(),
            First::Quit => self.leave(effects),
        }
    }

    pub(super) fn demo(&mut self, effects: &mut Vec<Effect>) {
        self.hint = Some(DEMO.into());
        effects.push(Effect::Command(vec!["demo".into()]));
    }

    /// The demo has ended.
    pub(super) fn demo_ended(&mut self) {
        drop(self.hint.take_if(|hint| hint == DEMO));
    }

    /// Providers for a key, to choose from; or the key itself, where it is said whose it is.
    pub(super) fn on_providers(&mut self, providers: Vec<ProviderItem>, wanted: &str) {
        if providers.iter().any(|provider| provider.id == wanted) {
            return self.ask_key(wanted.to_owned());
        }
        let row = |item: ProviderItem| {
            let detail = match (item.source, item.variables.first()) {
                (Some(source), _) => format!("has one: {source}"),
                (None, Some(variable)) => format!("also from {variable}"),
                (None, None) => String::new(),
            };
            PickerRow::new(item.id.clone(), item.id, detail)
        };
        let mut picker = Picker::new("A key for", providers.into_iter().map(row).collect());
        if !wanted.is_empty() {
            picker.paste(wanted);
        }
        self.show(Overlay::Providers(picker));
    }

    pub(super) fn ask_key(&mut self, provider: String) {
        self.show(Overlay::Line(Asked {
            title: format!("Key for {provider} (it is not shown)"),
            text: String::new(),
            secret: true,
            purpose: Wanted::Key(provider),
        }));
    }

    /// Asks the provider whether it takes a key.
    pub(super) fn check_key(&mut self, provider: String, key: String, effects: &mut Vec<Effect>) {
        let what = format!("asking {provider} whether it takes the key");
        self.checking = Some(Working { since: self.now, what });
        effects.push(Effect::KeepKey(provider, key));
    }

    /// The provider is not asked any more; the key is not kept.
    pub(super) fn stop_checking(&mut self, effects: &mut Vec<Effect>) {
        self.checking = None;
        effects.push(Effect::StopChecking);
        self.note("The key was not kept.");
        self.back_to_first();
    }

    /// What can be done, again, where there is nothing else.
    fn back_to_first(&mut self) {
        if self.unready {
            self.offer_first(false);
        }
    }

    pub(super) fn on_kept(
        &mut self,
        provider: String,
        key: String,
        kept: Result<Kept, String>,
        effects: &mut Vec<Effect>,
    ) {
        if self.checking.take().is_none() {
            // It came as it was stopped: what is stored is told all the same.
            if !matches!(kept, Ok(Kept::Stored(_))) {
                return;
            }
        }
        match kept {
            Ok(Kept::Stored(text)) => {
                self.note(&text);
                if self.unready || self.standing.session.is_none() {
                    self.overlay = None;
                    self.unready = false;
                    self.opening = true;
                    effects.push(Effect::Open(self.latest.clone()));
                } else {
                    self.note(&format!("/model {provider} lists what can be asked with it."));
                }
            }
            Ok(Kept::Refused(why)) => {
                self.error(&format!("{provider} refuses the key; it was not kept."), &why);
                self.ask_key(provider);
            }
            Ok(Kept::Unknown(why)) => {
                self.error(&format!("Whether {provider} takes the key could not be found out."), &why);
                let row = |what, text: &str, detail: &str| PickerRow::new(what, text, detail);
                let rows = vec![
                    row(Unchecked::Again, "Ask again", ""),
                    row(
                        Unchecked::Keep,
                        "Keep the key all the same",
                        "the next prompt shows whether it is taken",
                    ),
                    row(Unchecked::Forget, "Do not keep it", ""),
                ];
                let title = format!("The key for {provider}");
                self.show(Overlay::Unchecked(Picker::new(title, rows), provider, key));
            }
            Err(error) => {
                self.error("The key was not kept.", &error);
                self.back_to_first();
            }
        }
    }

    pub(super) fn unchecked(
        &mut self,
        what: Unchecked,
        provider: String,
        key: String,
        effects: &mut Vec<Effect>,
    ) {
        match what {
            Unchecked::Again => self.check_key(provider, key, effects),
            Unchecked::Keep => {
                let what = format!("keeping the key for {provider}");
                self.checking = Some(Working { since: self.now, what });
                effects.push(Effect::KeepUnchecked(provider, key));
            }
            Unchecked::Forget => {
                self.note("The key was not kept.");
                self.back_to_first();
            }
        }
    }
}
