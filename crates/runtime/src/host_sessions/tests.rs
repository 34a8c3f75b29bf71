use quipu::PermissionMode;
use quipu::store::{RefMove, SessionQuery, Upkeep as _};
use quipu_host::{PermissionRequest, SilentObserver};
use quipu_testkit::{Answer, Reply};
use std::path::PathBuf;

use super::*;
use crate::testing::{World, says};

fn key(text: &str) -> SessionKey {
    SessionKey::parse(text).unwrap()
}

fn limits(open: usize) -> HostSessionLimits {
    HostSessionLimits { open, ..HostSessionLimits::default() }
}

async fn say(sessions: &HostSessions, chat: &str, text: &str) -> (SessionId, String) {
    let sourced = sessions.session(&key(chat)).await.unwrap();
    let (_, answer) = sourced.session.ask(text).await.unwrap();
    (sourced.session.view().session, answer)
}

fn replies(count: usize) -> Vec<Reply> {
    (0..count).map(|n| says(&format!("answer {n}"))).collect()
}

#[tokio::test]
async fn conversation_keeps_its_session_across_restarts() {
    let world = World::new(replies(3));
    let chat = "agent:main:telegram:group:-100";
    let sessions = world.host_sessions(limits(8)).await;
    assert_eq!(sessions.session_of(&key(chat)).await.unwrap(), None);
    let (first, _) = say(&sessions, chat, "one").await;
    let (again, _) = say(&sessions, chat, "two").await;
    assert_eq!(first, again);
    sessions.close().await;
    assert_eq!(sessions.open(), 0);
    drop(sessions);

    // Another process.
    let home = Home::at(world.dir.path().canonicalize().unwrap().join("home"), Arc::new(SilentObserver));
    let here = world.here();
    let request = move |_: &SessionKey| OpenRequest { here: here.clone(), ..OpenRequest::default() };
    let sessions = HostSessions::new(home, limits(8), Arc::new(request)).await.unwrap();
    let (third, _) = say(&sessions, chat, "three").await;
    assert_eq!(third, first);
    sessions.close().await;
    let last = world.server.requests().pop().unwrap().json().to_string();
    assert!(last.contains("one") && last.contains("answer 1") && last.contains("three"), "{last}");
    let report = world.home.store().await.unwrap().check().await.unwrap();
    assert_eq!(report.problems, []);
}

#[tokio::test]
async fn session_without_messages_is_begun_again() {
    let world = World::new(replies(1));
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    drop(sessions.session(&key(chat)).await.unwrap());
    sessions.close().await;
    let (id, _) = say(&sessions, chat, "one").await;
    assert_eq!(sessions.session_of(&key(chat)).await.unwrap(), Some(id));
    sessions.close().await;
}

#[tokio::test]
async fn reset_begins_a_new_session_and_keeps_the_old() {
    let world = World::new(replies(2));
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    let (old, _) = say(&sessions, chat, "one").await;
    sessions.reset(&key(chat)).await.unwrap();
    assert_eq!((sessions.session_of(&key(chat)).await.unwrap(), sessions.open()), (None, 0));
    let (new, _) = say(&sessions, chat, "two").await;
    assert_ne!(new, old);
    let last = world.server.requests().pop().unwrap().json().to_string();
    assert!(!last.contains("answer 0"), "{last}");
    let rows = world.home.store().await.unwrap();
    let rows = quipu::store::ReadModel::sessions(&*rows, SessionQuery::default()).await.unwrap();
    assert!(rows.iter().any(|row| row.id == old) && rows.iter().any(|row| row.id == new));
    sessions.close().await;
}

#[tokio::test]
async fn reset_waits_for_the_run() {
    let world = World::new(replies(1));
    let chat = key("agent:main:main");
    let sessions = world.host_sessions(limits(8)).await;
    let sourced = sessions.session(&chat).await.unwrap();
    let mut reset = Box::pin(sessions.reset(&chat));
    let early = futures_util::poll!(&mut reset);
    assert!(early.is_pending());
    sourced.session.ask("one").await.unwrap();
    drop(sourced);
    reset.await.unwrap();
    assert_eq!(sessions.open(), 0);
}

#[tokio::test]
async fn reset_ends_also_where_nobody_waits_for_it() {
    let world = World::new(replies(2));
    let chat = key("agent:main:main");
    let sessions = world.host_sessions(limits(8)).await;
    let (old, _) = say(&sessions, "agent:main:main", "one").await;
    let mut reset = Box::pin(sessions.reset(&chat));
    while sessions.session_of(&chat).await.unwrap().is_some() {
        assert!(futures_util::poll!(reset.as_mut()).is_pending());
    }
    drop(reset);
    let (new, _) = say(&sessions, "agent:main:main", "two").await;
    assert_ne!(new, old);
    assert_eq!(sessions.session_of(&chat).await.unwrap(), Some(new));
    sessions.close().await;
}

#[tokio::test]
async fn renewal_leaves_a_session_that_began_meanwhile() {
    let world = World::new(replies(2));
    let chat = key("agent:main:main");
    let sessions = world.host_sessions(limits(8)).await;
    let (old, _) = say(&sessions, "agent:main:main", "one").await;
    sessions.reset_from(&chat, Some(&old)).await.unwrap();
    let (new, _) = say(&sessions, "agent:main:main", "two").await;
    // Who had read of the old one when it was due.
    sessions.reset_from(&chat, Some(&old)).await.unwrap();
    assert_eq!((sessions.session_of(&chat).await.unwrap(), sessions.open()), (Some(new), 1));
    sessions.close().await;
}

#[tokio::test]
async fn session_that_another_process_holds_is_refused() {
    let world = World::new(replies(1));
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    let (id, _) = say(&sessions, chat, "one").await;
    // Its own handles, as another process has them.
    let other = world.host_sessions(limits(8)).await;
    let failure = other.session(&key(chat)).await.err().unwrap();
    assert_eq!(
        failure.message,
        format!("session {id} of the conversation `{chat}` is open elsewhere; close it there")
    );
    sessions.close().await;
    let sourced = other.session(&key(chat)).await.unwrap();
    assert_eq!(sourced.session.view().session, id);
    drop(sourced);
    other.close().await;
}

#[tokio::test]
async fn conversation_goes_on_in_the_branch_of_its_session() {
    let world = World::new(replies(5));
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    let (id, _) = say(&sessions, chat, "one").await;
    // Another program goes on in the session, as while this machine slept.
    let take = async |id: &SessionId| {
        let store = sessions.store();
        let head = store.head(&RefName::session(id)).await.unwrap().unwrap();
        let parent = store.nodes(&[head]).await.unwrap()[0].clone().unwrap().record.parent.unwrap();
        let swap = RefMove::swap(RefName::session(id), Some(head), parent, "else");
        store.commit(Commit { moves: vec![swap], ..Commit::default() }).await.unwrap();
    };
    take(&id).await;
    let (branch, _) = say(&sessions, chat, "two").await;
    assert_ne!(branch, id);
    assert_eq!(say(&sessions, chat, "three").await.0, branch);
    assert_eq!(sessions.session_of(&key(chat)).await.unwrap(), Some(branch.clone()));
    // Also where it is closed right after.
    take(&branch).await;
    let (last, _) = say(&sessions, chat, "four").await;
    assert_ne!(last, branch);
    sessions.close().await;
    let sessions = world.host_sessions(limits(8)).await;
    assert_eq!(say(&sessions, chat, "five").await.0, last);
    let request = world.server.requests().pop().unwrap().json().to_string();
    for part in ["two", "three", "four", "five"] {
        assert!(request.contains(part), "{part}: {request}");
    }
    sessions.close().await;
}

#[tokio::test]
async fn open_sessions_are_bounded_and_idle_ones_closed() {
    let world = World::new(replies(4));
    let sessions = world.host_sessions(limits(2)).await;
    let (first, _) = say(&sessions, "agent:main:direct:a", "a").await;
    say(&sessions, "agent:main:direct:b", "b").await;
    say(&sessions, "agent:main:direct:c", "c").await;
    assert_eq!(sessions.open(), 2, "the oldest was closed");
    let held = [
        sessions.session(&key("agent:main:direct:b")).await.unwrap(),
        sessions.session(&key("agent:main:direct:c")).await.unwrap(),
    ];
    let mut waits = Box::pin(say(&sessions, "agent:main:direct:a", "again"));
    let early = futures_util::poll!(&mut waits);
    assert!(early.is_pending());
    drop(held);
    assert_eq!(waits.await.0, first, "the session that it had");
    assert_eq!(sessions.0.close_unused(Duration::ZERO).await, None);
    assert_eq!(sessions.open(), 0);
}

#[tokio::test]
async fn session_with_a_command_in_its_background_stays_open() {
    let start = r#"{"command":"exec sleep 600","run_in_background":true}"#;
    let world = World::new([Answer::new().tool_call("c", "bash", start).reply(), says("started"), says("b")]);
    let permissions = PermissionRequest { mode: Some(PermissionMode::Full), ..PermissionRequest::default() };
    let request = OpenRequest { here: world.here(), permissions, ..OpenRequest::default() };
    let open = Arc::new(move |_: &SessionKey| request.clone());
    let sessions = HostSessions::new(world.home.clone(), limits(2), open).await.unwrap();
    say(&sessions, "agent:main:direct:a", "go").await;
    say(&sessions, "agent:main:direct:b", "b").await;
    let next = sessions.0.close_unused(Duration::ZERO).await;
    assert!(next.is_some(), "it is looked at again");
    assert_eq!(sessions.open(), 1);
    let held = sessions.session(&key("agent:main:direct:a")).await.unwrap();
    let commands = held.session.background();
    assert!(matches!(&*commands, [command] if command.end.is_none()), "{commands:?}");
    held.session.kill_background(commands[0].id.as_str()).await.unwrap();
    drop(held);
    // Its end is known a moment later.
    while sessions.0.close_unused(Duration::ZERO).await.is_some() {
        tokio::task::yield_now().await;
    }
    assert_eq!(sessions.open(), 0);
}

#[tokio::test]
async fn agents_have_their_model_and_workspace() {
    let world = World::new(replies(2));
    let path = world.dir.path().canonicalize().unwrap();
    std::fs::create_dir(path.join("bob")).unwrap();
    let mut settings: serde_json::Value =
        serde_json::from_slice(&std::fs::read(path.join("home/settings.json")).unwrap()).unwrap();
    settings["agents"] =
        serde_json::json!({ "byId": { "bob": { "workspace": path.join("bob"), "model": "test-1" } } });
    std::fs::write(path.join("home/settings.json"), settings.to_string()).unwrap();
    let request = OpenRequest { here: world.here(), ..OpenRequest::default() };
    let sessions = HostSessions::of_agents(world.home.clone(), limits(8), request).await.unwrap();
    for (chat, cwd) in [("agent:bob:main", path.join("bob")), ("agent:main:main", world.here())] {
        let sourced = sessions.session(&key(chat)).await.unwrap();
        assert_eq!(sourced.session.cwd(), cwd);
    }
    sessions.close().await;
}

struct NoObserver;

impl quipu_host::import::ImportObserver for NoObserver {
    fn progress(&self, _: &std::path::Path, _: quipu_host::import::Progress) {}

    fn imported(&self, report: &quipu_host::import::Report) -> std::io::Result<()> {
        assert_eq!(report.lost, 0, "{report:?}");
        Ok(())
    }

    fn failed(
        &self,
        path: &std::path::Path,
        problem: &quipu_host::import::ImportProblem,
    ) -> std::io::Result<()> {
        panic!("{}: {problem:?}", path.display())
    }

    fn is_store(&self, _: &std::path::Path) {}
}

/// Imports a session that another gateway has.
async fn import(world: &World, id: &str) {
    let dir = world.dir.path().join("state/agents/main/sessions");
    std::fs::create_dir_all(&dir).unwrap();
    let lines = [
        format!(
            r#"{{"type":"session","version":3,"id":"{id}","timestamp":"2026-05-20T01:02:03.004Z","cwd":"/gone"}}"#
        ),
        format!(
            r#"{{"type":"message","id":"{id}-1","parentId":null,"timestamp":"2026-05-20T01:02:04.000Z","message":{{"role":"user","content":"said in {id}","timestamp":1}}}}"#
        ),
    ];
    std::fs::write(dir.join(format!("{id}.jsonl")), lines.join("\n") + "\n").unwrap();
    let dir = world.dir.path().join("state");
    let mode = quipu_host::takeover::TakeoverMode::Write;
    let takeover = quipu_host::takeover::Takeover::open(&world.home, Some(&dir), mode).unwrap();
    let plan = takeover.transcripts().unwrap();
    quipu_host::import::Importer::open(&world.home, plan).await.unwrap().run(&NoObserver).await.unwrap();
}

async fn bind(sessions: &HostSessions, chat: &str, session: &str) -> ConversationBinding {
    let imported =
        ImportedConversation { session: session.into(), updated: 1, entry: serde_json::Map::new() };
    bind_conversation(&**sessions.store(), &key(chat), &imported, BindMode::Write).await.unwrap()
}

#[tokio::test]
async fn imported_conversation_goes_on_under_its_key() {
    let world = World::new(replies(3));
    import(&world, "first").await;
    import(&world, "second").await;
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    assert_eq!(bind(&sessions, chat, "first").await, ConversationBinding::Bound);
    assert_eq!(bind(&sessions, chat, "first").await, ConversationBinding::Same);
    // It was begun anew there before anything was said here.
    assert_eq!(bind(&sessions, chat, "second").await, ConversationBinding::Bound);
    assert_eq!(bind(&sessions, chat, "first").await, ConversationBinding::Bound);

    let (ours, _) = say(&sessions, chat, "and here").await;
    assert_ne!(ours.as_str(), "first");
    let request = world.server.requests().pop().unwrap().json().to_string();
    assert!(request.contains("said in first") && request.contains("and here"), "{request}");
    assert_eq!(sessions.session_of(&key(chat)).await.unwrap(), Some(ours.clone()));

    // It has gone on here: what is there does not count any more.
    for session in ["first", "second", "second"] {
        assert_eq!(bind(&sessions, chat, session).await, ConversationBinding::Kept(ours.clone()));
    }
    sessions.close().await;
    let (again, _) = say(&sessions, chat, "once more").await;
    assert_eq!(again, ours);

    // Nor after it was begun anew here.
    sessions.reset(&key(chat)).await.unwrap();
    assert_eq!(bind(&sessions, chat, "first").await, ConversationBinding::Same);
    assert_eq!(sessions.session_of(&key(chat)).await.unwrap(), None);
    let (new, _) = say(&sessions, chat, "anew").await;
    assert_ne!(new, ours);
    sessions.close().await;
    let request = world.server.requests().pop().unwrap().json().to_string();
    assert!(!request.contains("said in first"), "{request}");
    let report = world.home.store().await.unwrap().check().await.unwrap();
    assert_eq!(report.problems, []);
}

#[tokio::test]
async fn conversations_of_a_store_are_listed() {
    let world = World::new(replies(1));
    import(&world, "first").await;
    let sessions = world.host_sessions(limits(8)).await;
    let (ours, _) = say(&sessions, "agent:ops:telegram:group:-1", "one").await;
    bind(&sessions, "agent:main:main", "first").await;
    let mut imported =
        ImportedConversation { session: "x".into(), updated: 2, entry: serde_json::Map::new() };
    imported.entry.insert("long".into(), "x".repeat(1 << 20).into());
    let dry = bind_conversation(&**sessions.store(), &key("global"), &imported, BindMode::DryRun).await;
    assert_eq!(dry.unwrap(), ConversationBinding::Bound);
    bind_conversation(&**sessions.store(), &key("unknown"), &imported, BindMode::Write).await.unwrap();
    let known = conversations(&**sessions.store()).await.unwrap();
    let found: Vec<_> = known
        .iter()
        .map(|one| (one.key.to_string(), one.session.clone().unwrap().to_string(), one.imported.is_some()))
        .collect();
    let row = |key: &str, session: &str, imported| (key.to_owned(), session.to_owned(), imported);
    assert_eq!(
        found,
        [
            row("agent:main:main", "first", true),
            row("agent:ops:telegram:group:-1", ours.as_str(), false),
            row("unknown", "x", true),
        ]
    );
    let long = known[2].imported.as_ref().unwrap();
    assert!(long.entry.is_empty(), "a row has a limit");
    sessions.close().await;
}

#[tokio::test]
async fn conversation_that_went_on_is_written_whole() {
    use quipu_host::takeover::{ExportedConversation, SecretExport, export_state};

    let world = World::new(replies(1));
    import(&world, "first").await;
    let chat = "agent:main:main";
    let sessions = world.host_sessions(limits(8)).await;
    bind(&sessions, chat, "first").await;
    let (ours, _) = say(&sessions, chat, "and here").await;
    sessions.close().await;
    let store = world.home.store().await.unwrap();
    let known = conversations(&*store).await.unwrap();
    let exported = known.into_iter().map(|one| ExportedConversation {
        key: one.key.to_string(),
        agent: "main".into(),
        session: one.session.unwrap(),
        updated: 0,
        entry: serde_json::Map::new(),
    });
    let out = world.dir.path().join("out");
    let done = export_state(&world.home, &store, &out, exported.collect(), SecretExport::Left).await.unwrap();
    assert_eq!((done.transcripts, done.conversations), (2, 1));
    let file = out.join(format!("agents/main/sessions/{ours}.jsonl"));
    let text = std::fs::read_to_string(&file).unwrap();
    for part in ["said in first", "and here", "answer 0"] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // It goes on elsewhere.
    let other = World::new(replies(1));
    let takeover = quipu_host::takeover::Takeover::open(
        &other.home,
        Some(&out),
        quipu_host::takeover::TakeoverMode::Write,
    )
    .unwrap();
    let plan = takeover.transcripts().unwrap();
    quipu_host::import::Importer::open(&other.home, plan).await.unwrap().run(&NoObserver).await.unwrap();
    let sessions = other.host_sessions(limits(8)).await;
    assert_eq!(bind(&sessions, chat, ours.as_str()).await, ConversationBinding::Bound);
    say(&sessions, chat, "elsewhere").await;
    sessions.close().await;
    let request = other.server.requests().pop().unwrap().json().to_string();
    for part in ["said in first", "and here", "answer 0", "elsewhere"] {
        assert!(request.contains(part), "{part}: {request}");
    }
}

#[tokio::test]
async fn sandbox_takes_all_but_the_main_conversation() {
    let world = World::new(replies(4));
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["sandbox"] = serde_json::json!({ "mode": "non-main", "scope": "session" });
    std::fs::write(file, settings.to_string()).unwrap();
    let home = Home::at(world.dir.path().canonicalize().unwrap().join("home"), Arc::new(SilentObserver));
    let here = world.here();
    let request = move |_: &SessionKey| OpenRequest { here: here.clone(), ..OpenRequest::default() };
    let sessions = HostSessions::new(home, limits(8), Arc::new(request)).await.unwrap();
    for chat in [
        "agent:main:main",
        "agent:main:telegram:group:-1",
        "agent:main:telegram:group:-2",
        "agent:main:main:thread:7",
    ] {
        say(&sessions, chat, "one").await;
    }
    let rows = world.home.store().await.unwrap();
    let rows = quipu::store::ReadModel::sessions(&*rows, SessionQuery::default()).await.unwrap();
    let mut places: Vec<PathBuf> = rows.iter().map(|row| PathBuf::from(&row.cwd)).collect();
    places.sort();
    places.dedup();
    assert_eq!(places.len(), 4, "each has a folder of its own: {places:?}");
    let own = world.dir.path().canonicalize().unwrap().join("home/sandboxes");
    assert_eq!(places.iter().filter(|place| place.starts_with(&own)).count(), 3);
    assert!(places.contains(&world.here()));
}

#[tokio::test]
async fn conversations_begin_anew_by_channel_and_kind() {
    let world = World::new(replies(4));
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["session"] = serde_json::json!({ "reset": {
        "byKind": { "group": { "idleMinutes": 60 }, "direct": { "mode": "idle", "idleMinutes": 600 } },
        "byChannel": { "IRC": { "mode": "off" } },
    } });
    std::fs::write(&file, settings.to_string()).unwrap();
    let sessions = world.host_sessions(limits(8)).await;
    let chats = [
        "agent:main:sms:group:g",
        "agent:main:main",
        "agent:main:irc:group:g",
        "agent:main:sms:group:g:topic:1",
    ];
    for chat in chats {
        say(&sessions, chat, "hello").await;
    }
    let soon = quipu_host::now() + 2 * 3_600_000;
    let mut begun = Vec::new();
    for chat in chats {
        sessions.renew_at(&key(chat), soon).await.unwrap();
        begun.push(sessions.session_of(&key(chat)).await.unwrap().is_none());
    }
    assert_eq!(begun, [true, false, false, false]);
    sessions.renew_at(&key("agent:main:main"), soon + 10 * 3_600_000).await.unwrap();
    assert_eq!(sessions.session_of(&key("agent:main:main")).await.unwrap(), None);
    // Those that began anew are still on the list.
    assert_eq!(sessions.conversations().await.unwrap().len(), 4);
    sessions.close().await;
}

#[tokio::test]
async fn idle_conversation_begins_anew_where_settings_say_so() {
    let world = World::new(replies(2));
    let chat = key("agent:main:main");
    let sessions = world.host_sessions(limits(8)).await;
    let (old, _) = say(&sessions, "agent:main:main", "one").await;
    let hour = 3_600_000;
    let later = quipu_host::now() + 24 * hour;
    sessions.renew_at(&chat, later).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), Some(old.clone()), "nothing is set");
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["session"] = serde_json::json!({ "reset": { "mode": "idle", "idleMinutes": 60 } });
    std::fs::write(&file, settings.to_string()).unwrap();
    sessions.renew_at(&chat, quipu_host::now()).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), Some(old), "it is not idle");
    sessions.renew_at(&chat, later).await.unwrap();
    assert_eq!((sessions.session_of(&chat).await.unwrap(), sessions.open()), (None, 0));
    sessions.close().await;
}

#[tokio::test]
async fn events_of_the_system_keep_no_conversation_going() {
    let world = World::new(replies(3));
    let chat = key("agent:main:main");
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["session"] = serde_json::json!({ "reset": { "idleMinutes": 60 } });
    std::fs::write(&file, settings.to_string()).unwrap();
    let sessions = world.host_sessions(limits(8)).await;
    let minute = 60_000;
    let hears = async |sessions: &HostSessions, cause: TurnCause| {
        let sourced = sessions.session(&chat).await.unwrap();
        sessions.heard(&chat, &sourced.session, cause).await.unwrap();
        sourced.session.ask("hello").await.unwrap();
        sourced.session.view().session
    };
    let session = hears(&sessions, TurnCause::Person).await;
    // As if it was later.
    let said = quipu_host::now() + 50 * minute;
    sessions.0.person_said(&chat, &session, said).await.unwrap();
    hears(&sessions, TurnCause::System).await;
    sessions.close().await;
    let sessions = world.host_sessions(limits(8)).await;
    sessions.renew_at(&chat, said + 60 * minute).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), Some(session), "a person said something");
    sessions.renew_at(&chat, said + 60 * minute + 1).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), None, "nobody did since");
    sessions.close().await;
}

#[tokio::test]
async fn session_that_the_system_began_gets_idle() {
    let world = World::new(replies(3));
    let chat = key("agent:main:main");
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["session"] = serde_json::json!({ "reset": { "idleMinutes": 60 } });
    std::fs::write(&file, settings.to_string()).unwrap();
    let sessions = world.host_sessions(limits(8)).await;
    let hears = async |cause: TurnCause| {
        let sourced = sessions.session(&chat).await.unwrap();
        sessions.heard(&chat, &sourced.session, cause).await.unwrap();
        sourced.session.ask("hello").await.unwrap();
        sourced.session.view().session
    };
    hears(TurnCause::Person).await;
    sessions.reset(&chat).await.unwrap();
    let session = hears(TurnCause::System).await;
    let query = SessionQuery { id: Some(session.clone()), ..SessionQuery::default() };
    let created = sessions.store().sessions(query).await.unwrap()[0].created;
    while quipu_host::now() <= created {
        tokio::task::yield_now().await;
    }
    hears(TurnCause::System).await;
    sessions.renew_at(&chat, created + 60 * 60_000).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), Some(session));
    sessions.renew_at(&chat, created + 60 * 60_000 + 1).await.unwrap();
    assert_eq!(sessions.session_of(&chat).await.unwrap(), None, "no person spoke in it");
    sessions.close().await;
}
