//! The login to an account of a provider: chosen, shown, waited for.

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::component::{Chooser, LineInput};
use crate::host::{LoginMethod, LoginOffer, ProviderLogin};
use crate::picker::{Picker, PickerRow};
use crate::{Effect, Request, State};

const STOPPED: &str = "The login was stopped; nothing is stored.";

/// What gives a provider its credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CredentialChoice {
    Login(LoginMethod),
    Key,
}

/// How to log in, or a key in place of it.
pub(super) fn choose(state: &mut State, offer: LoginOffer) {
    let mut rows = Vec::new();
    let mut row = |choice, text: &str, detail: &str| rows.push(PickerRow::new(choice, text, detail));
    if offer.in_browser {
        row(CredentialChoice::Login(LoginMethod::Browser), "Log in with a browser", &offer.account);
    }
    if offer.by_device_code {
        let text = "Log in with a code on another device";
        row(CredentialChoice::Login(LoginMethod::Device), text, &offer.account);
    }
    if offer.takes_key {
        row(CredentialChoice::Key, "Enter an API key", "");
    }
    let title = format!("A credential for {}", offer.provider);
    state.show(Chooser::new(Picker::new(title, rows), move |state, choice, effects| match choice {
        CredentialChoice::Login(method) => restricted(state, offer, method, effects),
        CredentialChoice::Key => state.ask_key(offer.provider),
    }));
}

/// Says what the provider restricts, and asks.
fn restricted(state: &mut State, offer: LoginOffer, method: LoginMethod, effects: &mut Vec<Effect>) {
    let Some(restriction) = offer.restriction.clone() else { return begin(state, offer, method, effects) };
    state.note(&restriction);
    let title = format!("Use {} all the same?", offer.account);
    let rows = vec![PickerRow::new(false, "No", "nothing is stored"), PickerRow::new(true, "Yes", "log in")];
    let decide = move |state: &mut State, accepted, effects: &mut Vec<Effect>| {
        if accepted { begin(state, offer, method, effects) } else { state.back_to_first() }
    };
    state.show(Chooser::new(Picker::new(title, rows), decide));
}

fn begin(state: &mut State, offer: LoginOffer, method: LoginMethod, effects: &mut Vec<Effect>) {
    let (provider, what) = (offer.provider.clone(), format!("beginning the login to {}", offer.account));
    let (request, stop) = Request::new(
        "begin login",
        move |context| context.host.begin_login(offer, method),
        move |state: &mut State, begun, effects| {
            if state.activity.checking.take().is_none() {
                return;
            }
            match begun {
                Ok(login) => wait(state, &provider, login, effects),
                Err(error) => failed(state, &error.to_string()),
            }
        },
    )
    .stoppable();
    state.activity.check(what, state.now, stop, STOPPED);
    effects.push(Effect::Ask(request));
}

fn failed(state: &mut State, why: &str) {
    state.error("The login failed.", why);
    state.back_to_first();
}

/// Shows what to open, and waits until the person is done there.
fn wait(state: &mut State, provider: &str, login: ProviderLogin, effects: &mut Vec<Effect>) {
    let prompt = login.prompt();
    state.note(&format!("Open this page: {}", prompt.url));
    if let Some(code) = &prompt.user_code {
        state.note(&format!("Enter the code {code} there."));
    }
    let (paste, pasted) = oneshot::channel();
    let takes_code = prompt.takes_code;
    let of = provider.to_owned();
    let (request, stop) = Request::new(
        "login",
        move |_| async move {
            // Nothing is pasted where the line is gone.
            login.finish(async { pasted.await.ok() }, &CancellationToken::new()).await
        },
        move |state: &mut State, done, effects| {
            if state.activity.checking.take().is_none() && done.is_err() {
                return;
            }
            drop(state.take_component::<LineInput>());
            match done {
                Ok(text) => state.credential_stored(&of, &text, effects),
                Err(failure) => failed(state, &failure.message),
            }
        },
    )
    .stoppable();
    state.activity.check(format!("waiting for the login to {provider}"), state.now, stop, STOPPED);
    effects.push(Effect::Ask(request));
    if !takes_code {
        return;
    }
    let title = if prompt.listens {
        "Waiting for the browser. If it is on another machine, paste its last address here"
    } else {
        "Paste the code, or the last address of the browser"
    };
    let line = LineInput::new(title, |_, text, _| {
        // A login that is over takes nothing more.
        drop(paste.send(text));
    });
    state.show(line.or_else(State::stop_checking));
}
