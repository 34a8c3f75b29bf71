//! Conversations that begin anew while something runs in them, waits, or is owed.

use std::sync::Arc;

use quipu::protocol::{Outcome, SessionId, UnixMs};
use quipu::store::Graph;
use quipu_outbound::{Acknowledgement, MessageSink, Offer, SinkFuture, StreamOptions};
use quipu_testkit::Gate;

use super::*;
use crate::queue::{BusyMode, Route};
use crate::replies::{ReplyRoute, ReplyRoutes};
use crate::testing::{FailingSessions, World, gated, request, says};

const KEY: &str = "agent:main:main";
const MINUTE: UnixMs = 60_000;

/// A chat that takes everything.
struct OpenChat;

impl MessageSink for OpenChat {
    fn offer(&self, _: Offer) -> SinkFuture<'_> {
        Box::pin(std::future::ready(Ok(Acknowledgement::default())))
    }
}

impl ReplyRoutes for OpenChat {
    fn route(&self, _: &SessionKey, _: &Route) -> Option<ReplyRoute> {
        Some(ReplyRoute::new(Arc::new(Self), StreamOptions::default()))
    }
}

/// A world whose conversations begin anew when nobody said anything for an hour.
fn forgetful(script: impl IntoIterator<Item = quipu_testkit::Reply>) -> World {
    let world = World::new(script);
    let file = world.dir.path().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    settings["session"] = serde_json::json!({ "reset": { "idleMinutes": 60 } });
    std::fs::write(file, settings.to_string()).unwrap();
    world
}

/// A message that comes at this time.
fn at(text: &str, at: UnixMs) -> RunRequest {
    let mut request = request(KEY, text, BusyMode::Followup);
    request.message.at = at;
    request
}

fn key() -> SessionKey {
    SessionKey::parse(KEY).unwrap()
}

async fn session_of(sessions: &FailingSessions) -> Option<SessionId> {
    sessions.of_host().session_of(&key()).await.unwrap()
}

async fn replies(world: &World) -> Replies {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    Replies::open(store, Arc::new(OpenChat)).await.unwrap()
}

#[tokio::test]
async fn conversation_to_which_an_answer_is_owed_stays_in_its_session() {
    let gate = Gate::new();
    let world = forgetful([gated(&gate, "never"), says("late")]);
    let now = quipu_host::now();
    // The process ends while the model is asked.
    let first = replies(&world).await;
    world
        .serve_replies(&first, |conversations| async move {
            let run = conversations.start(at("first", now)).await.unwrap();
            gate.reached().await;
            drop(run);
        })
        .await;
    let sessions = world.sessions(0).await;
    let session = session_of(&sessions).await.unwrap();
    sessions.renew(&key(), now + 120 * MINUTE).await.unwrap();
    assert_eq!(session_of(&sessions).await.as_ref(), Some(&session), "an answer is owed");
    let all = sessions.clone();
    let second = replies(&world).await;
    let owed = second.clone();
    let work = |conversations: Conversations, _| async move {
        let (_, run) = conversations.continued().await.pop().unwrap();
        let outcome = run.outcome().await.unwrap();
        assert_eq!((&*outcome.text, &outcome.outcome, &outcome.session), ("late", &Outcome::Done, &session));
        owed.idle().await;
        all.renew(&key(), now + 120 * MINUTE).await.unwrap();
        assert_eq!(session_of(&all).await, None, "nothing is owed any more");
    };
    world.serve_sessions(sessions, None, |all| all.with_replies(second), work).await;
}

#[tokio::test]
async fn front_begins_no_conversation_anew_under_a_message_before_it() {
    let world = forgetful([says("one"), says("two")]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let now = quipu_host::now();
    let work = |conversations: Conversations, lanes: Lanes| async move {
        let session = conversations.run(at("first", now)).await.unwrap().session.clone();
        // It comes in time, and waits for its place; a front comes when nobody said anything for long.
        lanes.set_limit(MAIN_LANE, 0);
        let message = conversations.start(at("second", now + 59 * MINUTE)).await.unwrap();
        while !lanes.status().iter().any(|lane| lane.lane == MAIN_LANE && lane.waiting == 1) {
            tokio::task::yield_now().await;
        }
        let key = key();
        let mut front = Box::pin(all.of_host().borrow_renewed(&key, now + 62 * MINUTE));
        assert!(futures_util::poll!(front.as_mut()).is_pending());
        lanes.set_limit(MAIN_LANE, 4);
        let (message, _) = tokio::join!(message.outcome(), front);
        assert_eq!(message.unwrap().session, session);
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
}

#[tokio::test]
async fn run_of_a_person_keeps_its_conversation_going_to_its_end() {
    let gate = Gate::new();
    let world = forgetful([gated(&gate, "one")]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let work = |conversations: Conversations, _| async move {
        let run = conversations.start(at("first", quipu_host::now())).await.unwrap();
        gate.reached().await;
        // The prompt was said by now; the run ends later than that.
        let asked = quipu_host::now();
        while quipu_host::now() <= asked {
            tokio::task::yield_now().await;
        }
        gate.open();
        let session = run.outcome().await.unwrap().session.clone();
        all.renew(&key(), asked + 60 * MINUTE + 1).await.unwrap();
        assert_eq!(session_of(&all).await, Some(session), "it is an hour since the prompt");
        all.renew(&key(), quipu_host::now() + 60 * MINUTE + 1).await.unwrap();
        assert_eq!(session_of(&all).await, None, "it is an hour since the answer");
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
}
