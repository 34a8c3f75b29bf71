//! Keys of providers: asked for, checked, kept; or the login to an account in place of one.

use super::logins;
use crate::component::{Chooser, LineInput};
use crate::host::{HostError, KeyOutcome, ProviderItem};
use crate::picker::{Picker, PickerRow};
use crate::{Effect, Request, SlashCommand, State};

pub(crate) const LOGIN: SlashCommand =
    SlashCommand::new("login", "[PROVIDER]", "add a key for a provider, or log in", login).completes();

/// What to do with a key that could not be checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UncheckedKeyChoice {
    Keep,
    /// Ask the provider again.
    Again,
    Forget,
}

/// A key for the provider of this name, or for one that is chosen.
pub(crate) fn login(_: &mut State, provider: &str, effects: &mut Vec<Effect>) {
    let wanted = provider.to_owned();
    let then = move |state: &mut State, providers, _: &mut Vec<Effect>| show(state, providers, &wanted);
    effects.push(Effect::Ask(Request::to_host("providers", |host| host.providers(), then)));
}

/// Providers for a key, to choose from; or the key itself, where it is said whose it is.
fn show(state: &mut State, providers: Vec<ProviderItem>, wanted: &str) {
    if let Some(item) = providers.iter().find(|provider| provider.id == wanted) {
        return ask(state, item.clone());
    }
    let row = |item: ProviderItem| {
        let login = item.login.as_ref().map(|login| format!("login: {}", login.account));
        let detail = match (&item.source, item.variables.first()) {
            (Some(source), _) => format!("has a key: {source}"),
            (None, Some(variable)) => {
                let login = login.map(|login| format!("; {login}")).unwrap_or_default();
                format!("also from {variable}{login}")
            }
            (None, None) => login.unwrap_or_default(),
        };
        PickerRow::new(item.clone(), item.id, detail)
    };
    let mut picker = Picker::new("A key for", providers.into_iter().map(row).collect());
    if !wanted.is_empty() {
        picker.paste(wanted);
    }
    state.show(Chooser::new(picker, |state, item, _| ask(state, item)));
}

/// Asks for the key of a provider, or how to log in where it has a login.
fn ask(state: &mut State, item: ProviderItem) {
    match item.login {
        Some(offer) => logins::choose(state, offer),
        None => state.ask_key(item.id),
    }
}

impl State {
    /// Asks for the key of a provider.
    pub(super) fn ask_key(&mut self, provider: String) {
        let title = format!("API key for {provider} (hidden)");
        let line = LineInput::new(title, |state, key, effects| match key.trim() {
            "" => state.left_component(),
            key => check(state, provider, key.to_owned(), effects),
        });
        self.show(line.secret());
    }
}

/// Asks the provider whether it takes a key.
fn check(state: &mut State, provider: String, key: String, effects: &mut Vec<Effect>) {
    let what = format!("testing the key with {provider}");
    keep(state, what, provider, key, false, effects);
}

fn keep(
    state: &mut State,
    what: String,
    provider: String,
    key: String,
    unasked: bool,
    effects: &mut Vec<Effect>,
) {
    let (of, secret) = (provider.clone(), key.clone());
    let (request, stop) = Request::new(
        if unasked { "keep key" } else { "check key" },
        move |context| context.host.keep_key(of, secret, unasked),
        move |state: &mut State, result, effects| kept(state, provider, key, result, effects),
    )
    .stoppable();
    state.activity.check(what, state.now, stop, "The key was not saved.");
    effects.push(Effect::Ask(request));
}

impl State {
    /// The provider is not asked any more; the key is not kept.
    pub(crate) fn stop_checking(&mut self, effects: &mut Vec<Effect>) {
        let Some(checking) = self.activity.checking.take() else { return };
        effects.push(Effect::Stop(checking.stop));
        self.note(checking.stopped);
        self.back_to_first();
    }
}

fn kept(
    state: &mut State,
    provider: String,
    key: String,
    kept: Result<KeyOutcome, HostError>,
    effects: &mut Vec<Effect>,
) {
    // One that came as it was stopped: what is stored is told all the same.
    if state.activity.checking.take().is_none() && !matches!(kept, Ok(KeyOutcome::Stored(_))) {
        return;
    }
    match kept {
        Ok(KeyOutcome::Stored(text)) => {
            state.credential_stored(&provider, &text, effects);
        }
        Ok(KeyOutcome::Refused(why)) => {
            state.error(&format!("{provider} rejects the key; it was not saved."), &why);
            state.ask_key(provider);
        }
        Ok(KeyOutcome::Unknown(why)) => {
            state.error(&format!("The key could not be tested with {provider}."), &why);
            let row = |what, text: &str, detail: &str| PickerRow::new(what, text, detail);
            let rows = vec![
                row(UncheckedKeyChoice::Again, "Test again", ""),
                row(
                    UncheckedKeyChoice::Keep,
                    "Save the key anyway",
                    "the next message shows whether it works",
                ),
                row(UncheckedKeyChoice::Forget, "Do not save it", ""),
            ];
            let title = format!("The key for {provider}");
            let decide = |state: &mut State, what, effects: &mut Vec<Effect>| match what {
                UncheckedKeyChoice::Again => check(state, provider, key, effects),
                UncheckedKeyChoice::Keep => {
                    let what = format!("saving the key for {provider}");
                    keep(state, what, provider, key, true, effects);
                }
                UncheckedKeyChoice::Forget => forget(state),
            };
            let chooser = Chooser::new(Picker::new(title, rows), decide);
            state.show(chooser.or_else(|state, _| forget(state)));
        }
        Err(error) => {
            state.error("The key was not saved.", &error.to_string());
            state.back_to_first();
        }
    }
}

impl State {
    /// There is a credential now, which makes the first session possible.
    pub(super) fn credential_stored(&mut self, provider: &str, text: &str, effects: &mut Vec<Effect>) {
        self.note(text);
        if self.opening.unready || self.standing.session.is_none() {
            self.overlay = None;
            self.opening.unready = false;
            let latest = self.opening.latest.clone();
            self.opening.begin(latest, effects);
        } else {
            self.note(&format!("/model {provider} lists its models."));
        }
    }
}

/// The key is not kept.
fn forget(state: &mut State) {
    state.note("The key was not saved.");
    state.back_to_first();
}
