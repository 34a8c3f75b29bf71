//! What is seen before there is a model, and what was sent before: states and what they show.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt as _;
use quipu_tui::editor::Editor;
use quipu_tui::{
    Bindings, Context, Effect, HostError, Key, KeyCode, KeyOutcome, LocalServer, LocalServers, LoginOffer,
    Modifiers, OpenError, ProviderItem, Size, State, Theme, UiEvent, view,
};

use crate::fake_host::{FakeHost, carry_out};

fn state(columns: usize) -> State {
    State::new(Size { columns, rows: 24 }, Theme::plain(), Bindings::default(), Editor::default(), 0)
}

/// A host on whose machine these servers listen.
fn with_servers() -> Arc<FakeHost> {
    Arc::new(FakeHost { servers: Some(servers()), ..FakeHost::default() })
}

fn key(state: &mut State, code: KeyCode) -> Vec<Effect> {
    state.on(UiEvent::Key(Key::from(code)), 0)
}

fn types(state: &mut State, text: &str) {
    for letter in text.chars() {
        key(state, KeyCode::Char(letter));
    }
}

fn without_model(state: &mut State, others: bool) -> Vec<Effect> {
    let why = "You cannot use a model yet: no provider has a key.".into();
    state.on(UiEvent::Opened(Box::new(Err(OpenError::NoModel { why, others }))), 0)
}

/// What was printed since, and the live part.
fn shown(state: &mut State, columns: usize) -> String {
    let mut out = String::new();
    let printed = state.take_printed();
    let frame = view(state, Size { columns, rows: 24 });
    for line in printed.iter().chain(&frame.lines) {
        assert!(line.width() <= columns, "{columns}: {}", line.text());
        writeln!(out, "{}", line.text().trim_end()).unwrap();
    }
    out
}

fn servers() -> LocalServers {
    let found = vec![LocalServer {
        name: "Ollama".into(),
        address: "127.0.0.1:11434".into(),
        provider: "ollama".into(),
        models: (1..=9).map(|size| format!("qwen3:{size}b")).collect(),
    }];
    LocalServers { found, looked_for: vec!["Ollama (11434)".into(), "vLLM (8000)".into()] }
}

#[test]
fn the_first_run() {
    let mut out = String::new();
    for columns in [20, 40, 80, 120] {
        let (host, mut state) = (with_servers(), state(columns));
        let effects = without_model(&mut state, false);
        assert!(
            matches!(effects.as_slice(), [Effect::Ask(request)] if request.name() == "servers"),
            "{effects:?}"
        );
        writeln!(out, "══ {columns}\n{}", shown(&mut state, columns)).unwrap();
        assert!(carry_out(&host, &mut state, effects).is_empty());
        assert_eq!(host.asked(), ["local servers"]);
        writeln!(out, "── servers\n{}", shown(&mut state, columns)).unwrap();
        key(&mut state, KeyCode::Escape);
        types(&mut state, "hello");
        key(&mut state, KeyCode::Enter);
        writeln!(out, "── said\n{}", shown(&mut state, columns)).unwrap();
    }
    insta::assert_snapshot!("first_run", out);
}

#[test]
fn a_server_that_is_found_late_does_not_change_what_enter_takes() {
    let (host, mut state) = (with_servers(), state(80));
    let effects = without_model(&mut state, false);
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert_eq!(host.asked(), ["local servers"]);
    let effects = key(&mut state, KeyCode::Enter);
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert_eq!(host.asked(), ["providers"]);
    // Nobody was named, so the list is not narrowed.
    assert!(shown(&mut state, 80).contains("A key for  type to filter"));
    // Where others can be used, nobody looks for servers, and nobody is welcomed.
    let effects = without_model(&mut state, true);
    assert!(effects.is_empty(), "{effects:?}");
    let text = shown(&mut state, 80);
    assert!(!text.contains("Welcome") || text.matches("Welcome").count() == 1, "{text}");
    assert!(text.contains("Choose another model"), "{text}");
}

#[test]
fn a_key_is_asked_about_until_somebody_stops() {
    let provider = ProviderItem { variables: vec!["ONE_API_KEY".into()], ..one() };
    let host = Arc::new(FakeHost { providers: vec![provider], ..FakeHost::default() });
    let mut state = state(80);
    without_model(&mut state, false);
    let effects = key(&mut state, KeyCode::Enter);
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert!(shown(&mut state, 80).contains("also from ONE_API_KEY"));
    key(&mut state, KeyCode::Enter);
    types(&mut state, "secret");
    let text = shown(&mut state, 80);
    assert!(text.contains("API key for one") && !text.contains("secret"), "{text}");
    let effects = key(&mut state, KeyCode::Enter);
    let [Effect::Ask(check)] = <[Effect; 1]>::try_from(effects).unwrap() else { panic!("no request") };
    let context = Context { host: host.clone(), session: None, early: Arc::new(|_| {}) };
    let mut check = Box::pin(check.carry_out(context));
    assert!((&mut check).now_or_never().is_none(), "the provider does not answer");
    assert_eq!(host.asked(), ["providers", "keep one secret false"]);
    assert!(state.is_working());
    state.on(UiEvent::Tick, 3_000);
    assert!(shown(&mut state, 80).contains("testing the key with one · 3s · Escape stops it"));
    let effects = key(&mut state, KeyCode::Escape);
    let [Effect::Stop(stop)] = effects.as_slice() else { panic!("{effects:?}") };
    stop.stop();
    assert!(matches!((&mut check).now_or_never(), Some(None)), "nothing comes of it");
    let text = shown(&mut state, 80);
    assert!(text.contains("The key was not saved.") && text.contains("What now?"), "{text}");
}

#[test]
fn stopped_key_check_asks_nothing() {
    let kept = Mutex::new(Some(Ok(KeyOutcome::Unknown("late".into()))));
    let host = Arc::new(FakeHost { providers: vec![one()], kept, ..FakeHost::default() });
    let mut state = state(80);
    let effects = without_model(&mut state, false);
    assert_eq!(effects.len(), 1);
    let effects = login(&host, &mut state, "secret");
    let [Effect::Ask(check)] = <[Effect; 1]>::try_from(effects).unwrap() else { panic!("no request") };
    let context = Context { host, session: None, early: Arc::new(|_| {}) };
    let late = check.carry_out(context).now_or_never().flatten().unwrap();
    key(&mut state, KeyCode::Escape);
    assert!(state.on(UiEvent::Reply(late), 0).is_empty());
    assert!(!shown(&mut state, 80).contains("late"));
}

#[test]
fn provider_with_a_login_offers_it_beside_a_key() {
    let offer = LoginOffer {
        provider: "one".into(),
        account: "Plan One".into(),
        restriction: Some("One allows this plan in its own program only.".into()),
        takes_key: true,
        in_browser: false,
        by_device_code: true,
    };
    let provider = ProviderItem { login: Some(offer), ..one() };
    let host = Arc::new(FakeHost { providers: vec![provider], ..FakeHost::default() });
    let mut state = state(80);
    without_model(&mut state, false);
    let effects = key(&mut state, KeyCode::Enter);
    assert!(carry_out(&host, &mut state, effects).is_empty());
    assert!(shown(&mut state, 80).contains("login: Plan One"));
    key(&mut state, KeyCode::Enter);
    let text = shown(&mut state, 80);
    assert!(text.contains("Log in with a code on another device"), "{text}");
    assert!(text.contains("Enter an API key") && !text.contains("with a browser"), "{text}");
    key(&mut state, KeyCode::Enter);
    let text = shown(&mut state, 80);
    assert!(
        text.contains("in its own program only.") && text.contains("Use Plan One all the same?"),
        "{text}"
    );
    key(&mut state, KeyCode::Down);
    let effects = key(&mut state, KeyCode::Enter);
    assert!(state.is_working());
    carry_out(&host, &mut state, effects);
    assert_eq!(host.asked(), ["providers", "begin login one Device"]);
    let text = shown(&mut state, 80);
    assert!(text.contains("The login failed.") && text.contains("What now?"), "{text}");
    assert!(!state.is_working());
}

fn one() -> ProviderItem {
    ProviderItem { id: "one".into(), ..ProviderItem::default() }
}

/// Chooses the first provider, and types a key for it; the effects of that.
fn login(host: &Arc<FakeHost>, state: &mut State, secret: &str) -> Vec<Effect> {
    let effects = key(state, KeyCode::Enter);
    assert!(carry_out(host, state, effects).is_empty());
    key(state, KeyCode::Enter);
    types(state, secret);
    key(state, KeyCode::Enter)
}

#[test]
fn key_check_outcomes() {
    let check = |kept: Result<KeyOutcome, HostError>, expect: &[&str]| {
        let kept = Mutex::new(Some(kept));
        let host = Arc::new(FakeHost { providers: vec![one()], kept, ..FakeHost::default() });
        let mut state = state(80);
        without_model(&mut state, false);
        let effects = login(&host, &mut state, "k");
        carry_out(&host, &mut state, effects);
        assert_eq!(host.asked(), ["providers", "keep one k false"]);
        let text = shown(&mut state, 80);
        for part in expect {
            assert!(text.contains(part), "{part}: {text}");
        }
    };
    check(Ok(KeyOutcome::Stored("Stored.".into())), &["Stored.", "opening the session"]);
    check(
        Ok(KeyOutcome::Refused("no such key".into())),
        &["one rejects the key", "no such key", "API key for one"],
    );
    check(
        Ok(KeyOutcome::Unknown("nobody there".into())),
        &["could not be tested", "nobody there", "Test again", "Save the key anyway", "Do not save it"],
    );
    check(
        Err(HostError::Failed { message: "the disk is full".into() }),
        &["The key was not saved.", "the disk is full", "What now?"],
    );
}

#[test]
fn sent_messages_are_searched() {
    let control = |letter| Key {
        code: KeyCode::Char(letter),
        modifiers: Modifiers { control: true, ..Modifiers::default() },
    };
    let mut state = state(80);
    state.on(UiEvent::Key(control('r')), 0);
    assert!(shown(&mut state, 80).contains("You have not sent a message yet"));
    let mut editor = Editor::default();
    editor.set_history(vec![
        "fix the parser".into(),
        "run the tests".into(),
        "fix the printer\nand say so".into(),
        "run the tests".into(),
    ]);
    let mut state =
        State::new(Size { columns: 80, rows: 24 }, Theme::plain(), Bindings::default(), editor, 0);
    types(&mut state, "half a thought");
    state.on(UiEvent::Key(control('r')), 0);
    let text = shown(&mut state, 80);
    assert!(text.contains("› run the tests") && text.contains("1 of 3"), "{text}");
    types(&mut state, "fix");
    assert!(shown(&mut state, 80).contains("› fix the printer"));
    // Again: the one before.
    state.on(UiEvent::Key(control('r')), 0);
    assert!(shown(&mut state, 80).contains("› fix the parser"));
    key(&mut state, KeyCode::Up);
    let effects = key(&mut state, KeyCode::Enter);
    assert!(matches!(effects.as_slice(), [Effect::Draft]), "{effects:?}");
    assert!(shown(&mut state, 80).contains("fix the printer\nand say so"));
    // What was being written is a step of undo away.
    let undo =
        Key { code: KeyCode::Char('-'), modifiers: Modifiers { control: true, ..Modifiers::default() } };
    state.on(UiEvent::Key(undo), 0);
    assert!(shown(&mut state, 80).contains("half a thought"));
}

#[test]
fn a_wrong_name_of_a_command_is_told_with_what_was_meant() {
    let mut state = state(80);
    types(&mut state, "/modle x");
    key(&mut state, KeyCode::Enter);
    let text = shown(&mut state, 80);
    assert!(
        text.contains("There is no /modle. /model? /help lists the commands") && text.contains("/modle x"),
        "{text}"
    );
}

#[test]
fn session_that_hooks_keep_stays_open() {
    let mut state = state(80);
    let why = "a hook refused it: stay".to_owned();
    let effects = state.on(UiEvent::Opened(Box::new(Err(OpenError::Stays(why)))), 0);
    assert!(effects.is_empty(), "nothing is opened in its place: {effects:?}");
    let shown = shown(&mut state, 80);
    assert!(shown.contains("The session stays open.") && shown.contains("stay"), "{shown}");
}
