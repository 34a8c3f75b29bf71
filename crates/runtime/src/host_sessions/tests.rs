use quipu::store::{SessionQuery, Upkeep as _};
use quipu_host::SilentObserver;
use quipu_testkit::Reply;

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
