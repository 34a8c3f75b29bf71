use futures_util::future::BoxFuture;
use quipu::protocol::{AuthorClass, Event, Origin, Provenance, Refusal};
use quipu::store::Graph;
use quipu_testkit::{Answer, Gate};

use super::*;
use crate::queue::{Authority, BusyMode, DropReason};
use crate::testing::{World, gated, request, says};

impl Run {
    /// Reads until it is part of the session.
    async fn until_started(&mut self) {
        while !matches!(self.next().await, Some(RunEvent::Started { .. })) {}
    }
}

async fn at_rest(world: &World) {
    let report = quipu::store::Upkeep::check(&*world.home.store().await.unwrap()).await.unwrap();
    assert_eq!((report.inbox, report.problems), (0, vec![]));
}

impl Conversations {
    /// Waits until the session of a conversation has a message that is to reach its run.
    async fn wait_for_steered(&self, key: &SessionKey) {
        let sourced = self.0.sessions.session(key).await.unwrap();
        let (snapshot, mut events) = sourced.session.subscribe(Delivery::Live).await.unwrap();
        let mut is_there = !snapshot.steering.is_empty();
        while !is_there {
            let envelope = events.next().await.unwrap();
            is_there =
                matches!(&envelope.event, Event::QueueChanged { steering, .. } if !steering.is_empty());
        }
    }
}

#[tokio::test]
async fn run_ends_in_an_outcome_and_says_how() {
    let world = World::new([Answer::new().tool_call("c", "ls", "{}").reply(), says("two files")]);
    let (events, outcome) = world
        .serve(None, 0, |conversations, lanes| async move {
            let message = request("agent:main:main", "which files?", BusyMode::Steer);
            let mut run = conversations.start(message).await.unwrap();
            let (mut names, mut outcome) = (Vec::new(), None);
            while let Some(event) = run.next().await {
                names.push(match &event {
                    RunEvent::Started { messages, .. } => {
                        assert_eq!(messages, &[run.id.clone()]);
                        "started"
                    }
                    RunEvent::Session(envelope) => match envelope.event {
                        Event::ToolEnded { .. } => "tool",
                        Event::Settled => "settled",
                        _ => continue,
                    },
                    RunEvent::Ended(_) => "ended",
                    other => panic!("{other:?}"),
                });
                if let RunEvent::Ended(ended) = event {
                    outcome = Some(ended);
                }
            }
            lanes.idle().await;
            (names, outcome.unwrap())
        })
        .await;
    assert_eq!(events, ["started", "tool", "settled", "ended"]);
    assert_eq!((&*outcome.text, &outcome.outcome, outcome.timed_out), ("two files", &Outcome::Done, false));
    let last = outcome.last_usage.unwrap();
    assert!(last.total_tokens > 0 && outcome.usage.total_tokens == 2 * last.total_tokens, "{outcome:?}");
    let report = quipu::store::Upkeep::check(&*world.home.store().await.unwrap()).await.unwrap();
    assert_eq!((report.inbox, report.problems), (0, vec![]));
}

#[tokio::test]
async fn messages_of_a_busy_conversation_are_collected() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "one"), says("other"), says("both")]);
    world
        .serve(None, 0, |conversations, _| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Collect);
            let first = conversations.start(message("first")).await.unwrap();
            gate.reached().await;
            let second = conversations.start(message("second")).await.unwrap();
            let third = conversations.start(message("third")).await.unwrap();
            assert_eq!(conversations.run(message("third")).await, Err(RunError::Duplicate));
            let other = request("agent:main:direct:x", "elsewhere", BusyMode::Collect);
            assert_eq!(conversations.run(other).await.unwrap().text, "other", "not held up");
            gate.open();
            assert_eq!(first.outcome().await.unwrap().text, "one");
            let (second, third) = (second.outcome().await.unwrap(), third.outcome().await.unwrap());
            assert_eq!((&*second.text, &second), ("both", &third));
        })
        .await;
    let requests = world.server.requests();
    let last = requests.last().unwrap().json().to_string();
    for part in ["[Queued messages while agent was busy]", "Queued #1 (from Anna)", "second", "third"] {
        assert!(last.contains(part), "{part}: {last}");
    }
}

#[tokio::test]
async fn interrupt_aborts_the_run_and_drops_what_waits() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never"), says("newest")]);
    world
        .serve(None, 0, |conversations, _| async move {
            let message = |text, mode| request("agent:main:main", text, mode);
            let first = conversations.start(message("first", BusyMode::Followup)).await.unwrap();
            gate.reached().await;
            let second = conversations.start(message("second", BusyMode::Followup)).await.unwrap();
            let newest = conversations.run(message("newest", BusyMode::Interrupt)).await.unwrap();
            assert_eq!(newest.text, "newest");
            assert_eq!(first.outcome().await.unwrap().outcome, Outcome::Aborted);
            assert_eq!(second.outcome().await, Err(RunError::Dropped(DropReason::Interrupted)));
        })
        .await;
}

#[tokio::test]
async fn run_without_progress_is_aborted() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never"), says("next")]);
    world
        .serve(Some(Duration::from_secs(2)), 0, |conversations, _| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Followup);
            let first = conversations.run(message("first")).await.unwrap();
            assert_eq!((&first.outcome, first.timed_out), (&Outcome::Aborted, true));
            assert_eq!(conversations.run(message("second")).await.unwrap().text, "next");
        })
        .await;
}

#[tokio::test]
async fn session_that_cannot_be_opened_is_tried_again() {
    let world = World::new([says("there")]);
    world
        .serve(None, 1, |conversations, _| async move {
            let message = request("agent:main:main", "hello", BusyMode::Steer);
            let mut run = conversations.start(message).await.unwrap();
            match run.next().await.unwrap() {
                RunEvent::Failing(why) => assert_eq!(why, "the session is not there today"),
                other => panic!("{other:?}"),
            }
            assert_eq!(run.outcome().await.unwrap().text, "there");
        })
        .await;
}

#[tokio::test]
async fn stored_prompt_is_said_once() {
    let world = World::new([says("one"), says("never")]);
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    world
        .serve(None, 0, |conversations, _| async move {
            let key = SessionKey::parse("agent:main:main").unwrap();
            let message = request("agent:main:main", "hello", BusyMode::Steer);
            assert_eq!(conversations.run(message).await.unwrap().text, "one");
            let session = conversations.0.sessions.session(&key).await.unwrap().session;
            // Its row left the store with the prompt.
            let holder = SessionId::from(quipu::store::MESSAGE_INBOX);
            assert!(store.pending(&holder).await.unwrap().inbox.is_empty());
            let again = session.prompt_stored(&holder, &"turn-gone".into(), "hello").await;
            assert!(matches!(again, Err(Refusal::Store { .. })), "{again:?}");
        })
        .await;
    assert_eq!(world.server.requests().len(), 1);
}

#[tokio::test]
async fn turn_that_is_part_of_a_session_already_is_not_run() {
    let world = World::new([says("next")]);
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    let sealer = Arc::new(quipu::Sealer::new([7; 32]));
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let done: Result<(), InboxError> =
        MessageInbox::with(store.clone(), sealer, |inbox, mut events| async move {
            let lanes = Lanes::new(crate::lanes::LaneSettings::default());
            let conversations = Conversations::new(inbox, lanes, sessions, None);
            let first =
                conversations.start(request("agent:main:main", "first", BusyMode::Steer)).await.unwrap();
            // What an attempt did that was broken off before it heard of it.
            let holder = SessionId::from(quipu::store::MESSAGE_INBOX);
            let rows = store.pending(&holder).await.unwrap().inbox;
            let take = quipu::store::Op::InboxTake { session: holder, item: rows[0].id.clone() };
            store.commit(quipu::store::Commit { ops: vec![take], ..Default::default() }).await.unwrap();
            let next = async {
                assert_eq!(first.outcome().await, Err(RunError::Closed));
                conversations.run(request("agent:main:main", "second", BusyMode::Steer)).await.unwrap()
            };
            tokio::select! {
                served = conversations.serve(&mut events) => panic!("{served:?}"),
                next = next => assert_eq!(next.text, "next"),
            }
            Ok(())
        })
        .await;
    done.unwrap();
    all.close().await;
}

#[tokio::test]
async fn steered_message_reaches_the_run_behind_its_tools() {
    let gate = Gate::new();
    let call = Answer::new().tool_call("c", "ls", "{}");
    let first = quipu_testkit::Reply::sse("").then_gate(&gate).then(call.stream());
    let world = World::new([first, says("both"), says("alone")]);
    let reached = gate.clone();
    world
        .serve(None, 0, |conversations, _| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Steer);
            let mut first = conversations.start(message("first")).await.unwrap();
            first.until_started().await;
            reached.reached().await;
            let mut steered = conversations.start(message("second")).await.unwrap();
            let mut other = request("agent:main:main", "third", BusyMode::Steer);
            other.message.authority = Authority { sender: Some("bob".into()), ..Authority::default() };
            let third = conversations.start(other).await.unwrap();
            // The session has it before the answer comes.
            conversations.wait_for_steered(&message("x").key).await;
            gate.open();
            let started = steered.next().await.unwrap();
            assert!(
                matches!(&started, RunEvent::Started { messages, .. } if *messages == [steered.id.clone()]),
                "{started:?}"
            );
            let (first, steered) = (first.outcome().await.unwrap(), steered.outcome().await.unwrap());
            assert_eq!((&*first.text, &first), ("both", &steered));
            assert_eq!(third.outcome().await.unwrap().text, "alone", "other rights, a run of its own");
        })
        .await;
    let requests = world.server.requests();
    let texts: Vec<String> = requests.iter().map(|one| one.json().to_string()).collect();
    assert_eq!(texts.len(), 3);
    assert!(!texts[0].contains("second") && texts[1].contains("second"));
    assert!(texts[1].find("tool_result") < texts[1].find("second"), "behind the results: {}", texts[1]);
    let report = quipu::store::Upkeep::check(&*world.home.store().await.unwrap()).await.unwrap();
    assert_eq!((report.inbox, report.problems), (0, vec![]));
}

#[tokio::test]
async fn steered_message_of_a_run_that_timed_out_runs_afterwards() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never"), says("late")]);
    world
        .serve(Some(Duration::from_secs(2)), 0, |conversations, _| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Steer);
            let mut first = conversations.start(message("first")).await.unwrap();
            first.until_started().await;
            let second = conversations.start(message("second")).await.unwrap();
            conversations.wait_for_steered(&message("x").key).await;
            assert!(first.outcome().await.unwrap().timed_out);
            assert_eq!(second.outcome().await.unwrap().text, "late");
        })
        .await;
    at_rest(&world).await;
}

#[tokio::test]
async fn steered_message_of_a_stopped_run_is_dropped() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "never"), says("next")]);
    world
        .serve(None, 0, |conversations, _| async move {
            let message = |text| request("agent:main:main", text, BusyMode::Steer);
            let mut first = conversations.start(message("first")).await.unwrap();
            first.until_started().await;
            let second = conversations.start(message("second")).await.unwrap();
            let key = message("x").key;
            conversations.wait_for_steered(&key).await;
            conversations.stop(&key, message("x").message.authority).await.unwrap();
            assert_eq!(first.outcome().await.unwrap().outcome, Outcome::Aborted);
            assert_eq!(second.outcome().await, Err(RunError::Dropped(DropReason::Stopped)));
            assert_eq!(conversations.run(message("third")).await.unwrap().text, "next");
        })
        .await;
    let last = world.server.requests().pop().unwrap().json().to_string();
    assert!(last.contains("third") && !last.contains("second"), "{last}");
    at_rest(&world).await;
}

/// The workspace of heartbeats, and what they said.
#[derive(Default)]
struct Place {
    alerts: Mutex<Vec<String>>,
    told: tokio::sync::Notify,
}

impl crate::HeartbeatPlace for Place {
    fn file<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, crate::HeartbeatFile> {
        Box::pin(std::future::ready(crate::HeartbeatFile::Text("- look at the disk".into())))
    }

    fn deliver<'a>(&'a self, _: &'a SessionKey, alert: String) -> BoxFuture<'a, crate::AlertDelivery> {
        lock(&self.alerts).push(alert);
        self.told.notify_one();
        Box::pin(std::future::ready(crate::AlertDelivery::Stored))
    }
}

#[tokio::test]
async fn heartbeat_waits_for_its_agent_and_runs_in_a_session_beside() {
    let gate = Gate::new();
    let world = World::new([gated(&gate, "hello"), says("**HEARTBEAT_OK** The disk is full.")]);
    let place = Arc::new(Place::default());
    let told = place.clone();
    world
        .serve(None, 0, |conversations, _| async move {
            let key = SessionKey::parse("agent:main:main").unwrap();
            let clock = Arc::new(quipu::SystemClock);
            let beats = crate::Heartbeats::new(Arc::new(conversations.clone()), place.clone(), clock);
            let settings = crate::HeartbeatSettings { ack_max_chars: Some(0), ..Default::default() };
            beats.set(key.clone(), settings.resolve("UTC").unwrap());
            assert_eq!(conversations.load(&key), crate::AgentLoad::Idle);
            let first = conversations.start(request("agent:main:main", "hi", BusyMode::Steer)).await.unwrap();
            gate.reached().await;
            assert_eq!(conversations.load(&key), crate::AgentLoad::Busy);
            beats.wake(&key, crate::WakeReason::Command);
            let end = async {
                gate.open();
                let first = first.outcome().await.unwrap();
                place.told.notified().await;
                first
            };
            tokio::select! {
                () = beats.serve() => panic!("it serves for ever"),
                first = end => assert_eq!(first.text, "hello"),
            }
        })
        .await;
    assert_eq!(*lock(&told.alerts), ["The disk is full."]);
    let requests = world.server.requests();
    let of_heartbeat = requests.last().unwrap().json()["messages"].to_string();
    assert!(
        of_heartbeat.contains("Heartbeat. Read HEARTBEAT.md") && !of_heartbeat.contains("\"hi\""),
        "{of_heartbeat}"
    );
}

#[tokio::test]
async fn heartbeat_sees_nothing_of_those_before_it() {
    let world = World::new([says("HEARTBEAT_OK one"), says("HEARTBEAT_OK two"), says("HEARTBEAT_OK three")]);
    let key = SessionKey::parse("agent:main:main").unwrap();
    let beat = |prompt: &str| crate::heartbeat_request(&key, prompt, 0);
    let said = || world.server.requests().pop().unwrap().json()["messages"].to_string();
    let all = &world;
    let work = |conversations: Conversations, _| async move {
        conversations.run(beat("The first.")).await.unwrap();
        conversations.run(beat("The second.")).await.unwrap();
        let alone = said();
        assert!(alone.contains("The second.") && !alone.contains("The first."), "{alone}");
        let heartbeat = serde_json::json!({ "isolatedSession": false });
        set(all, "agents", serde_json::json!({ "byId": { "main": { "heartbeat": heartbeat } } }));
        conversations.run(beat("The third.")).await.unwrap();
        let together = said();
        assert!(together.contains("The third.") && together.contains("The second."), "{together}");
    };
    world.serve(None, 0, work).await;
}

#[tokio::test]
async fn heartbeat_has_no_rules_of_the_project_in_its_prompt() {
    let world = World::new([says("hello"), says("HEARTBEAT_OK"), says("HEARTBEAT_OK")]);
    std::fs::write(world.here().join("AGENTS.md"), "Speak of whales.").unwrap();
    let heartbeat = serde_json::json!({ "lightContext": false });
    set(&world, "agents", serde_json::json!({ "byId": { "ops": { "heartbeat": heartbeat } } }));
    let of_person = request("agent:main:main", "hi", BusyMode::Followup);
    let beats = ["agent:main:main", "agent:ops:main"];
    world
        .serve(None, 0, |conversations, _| async move {
            conversations.run(of_person).await.unwrap();
            for key in beats {
                let key = SessionKey::parse(key).unwrap();
                conversations.run(crate::heartbeat_request(&key, "Look.", 0)).await.unwrap();
            }
        })
        .await;
    let requests = world.server.requests();
    let has_rules: Vec<bool> =
        requests.iter().map(|request| request.json().to_string().contains("Speak of whales.")).collect();
    assert_eq!(has_rules, [true, false, true]);
}

/// When a person last said something in a conversation, as it is stored.
async fn said(world: &World, key: &str) -> Option<serde_json::Value> {
    let store: Arc<dyn Graph> = world.home.store().await.unwrap();
    let work = store.pending(&quipu::store::conversation_inbox(key)).await.unwrap();
    work.inbox.into_iter().find(|row| row.id.as_str() == "said").map(|row| row.input.read().unwrap())
}

#[tokio::test]
async fn people_alone_keep_a_conversation_going() {
    let world = World::new((0..2).map(|n| says(&format!("answer {n}"))));
    let key = "agent:main:main";
    let mut of_system = request(key, "The build is done.", BusyMode::Followup);
    let (origin, author) = (Origin::Process, AuthorClass::System);
    of_system.message.input = of_system.message.input.from_source(Provenance::new(origin, author));
    world.serve(None, 0, |conversations, _| async move { conversations.run(of_system).await.unwrap() }).await;
    assert_eq!(said(&world, key).await, None);
    let before = quipu_host::now();
    let of_person = request(key, "Thank you.", BusyMode::Followup);
    world.serve(None, 0, |conversations, _| async move { conversations.run(of_person).await.unwrap() }).await;
    let row = said(&world, key).await.unwrap();
    assert!(row["at"].as_i64().unwrap() >= before, "{row}");
}

/// Adds to the settings of the world.
fn set(world: &World, name: &str, value: serde_json::Value) {
    let path = world.dir.path().canonicalize().unwrap().join("home/settings.json");
    let mut settings: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    settings[name] = value;
    std::fs::write(path, settings.to_string()).unwrap();
}

/// Names of the tools that the model was offered in a request.
fn offered(world: &World, at: usize) -> Vec<String> {
    let body = world.server.requests()[at].json();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test]
async fn tools_follow_the_sender_and_the_group() {
    let call = Answer::new().tool_call("c", "bash", r#"{"command":"touch ran"}"#).reply();
    let world = World::new([says("one"), call, says("two"), says("three"), says("four"), says("five")]);
    let owner = serde_json::json!({ "id:anna": {}, "*": { "allow": ["read", "ls"] } });
    set(
        &world,
        "tools",
        serde_json::json!({
            "deny": ["edit"],
            "byGroup": { "irc:room": { "deny": ["write"], "bySender": owner } },
        }),
    );
    set(&world, "agents", serde_json::json!({ "byId": { "ops": { "tools": { "allow": ["read"] } } } }));
    world
        .serve(None, 0, |conversations, _| async move {
            let from = |key: &str, sender: Option<&str>| {
                let mut message = request(key, "go", BusyMode::Steer);
                message.message.authority =
                    Authority { sender: sender.map(str::to_owned), ..Authority::default() };
                message
            };
            let room = "agent:main:irc:group:room";
            for message in [
                from(room, Some("anna")),
                from(room, Some("bob")),
                from(room, None),
                from("agent:main:irc:group:other", Some("bob")),
                from("agent:ops:main", Some("anna")),
            ] {
                conversations.run(message).await.unwrap();
            }
        })
        .await;
    let of = |at: usize| offered(&world, at);
    let (anna, bob, nobody, other) = (of(0), of(1), of(3), of(4));
    let has = |tools: &[String], name: &str| tools.iter().any(|tool| tool == name);
    assert!(has(&anna, "bash") && !has(&anna, "write") && !has(&anna, "edit"), "{anna:?}");
    assert_eq!((bob, nobody), (vec!["read".to_owned()], vec!["read".to_owned()]), "in the same session");
    assert!(has(&other, "write") && !has(&other, "edit"), "another group: {other:?}");
    assert_eq!(of(5), ["read"], "the agent");
    // What is not offered does not run.
    let told = world.server.requests()[2].json().to_string();
    assert!(told.contains("not in the allow list (tools.byGroup.irc:room.bySender.*)"), "{told}");
    assert!(!world.here().join("ran").exists());
}

/// Answers of this model cost a dollar for each thousand tokens, and have two thousand at most.
fn priced(world: &World) {
    let path = world.dir.path().canonicalize().unwrap().join("home/models.json");
    let mut models: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let model = &mut models["providers"]["testing"]["models"][0];
    model["maxTokens"] = 2_000.into();
    model["cost"] = serde_json::json!({ "input": 0, "output": 1_000, "cacheRead": 0, "cacheWrite": 0 });
    std::fs::write(path, models.to_string()).unwrap();
}

#[tokio::test]
async fn conversations_of_an_agent_share_its_daily_budget() {
    let world = World::new((0..6).map(|_| Answer::new().text("Done.").usage(10, 1_000, 0, 0).reply()));
    priced(&world);
    let agents = |ops: f64| {
        serde_json::json!({ "byId": {
            "ops": { "budget": { "daily": ops } },
            "small": { "budget": { "dailyTokens": 2_500 } },
            "broken": { "budget": { "daily": "much" } },
        } })
    };
    set(&world, "agents", agents(2.5));
    let run = |key: &'static str| {
        let world = &world;
        async move {
            let work = |conversations: Conversations, _| async move {
                conversations.run(request(key, "go", BusyMode::Steer)).await.unwrap().outcome.clone()
            };
            // Each time as another process does.
            world.serve(None, 0, work).await
        }
    };
    let limit = |outcome: Outcome| match outcome {
        Outcome::Limit(quipu::protocol::Limit::Account(limit)) => limit,
        other => panic!("{other:?}"),
    };
    assert_eq!(run("agent:ops:main").await, Outcome::Done);
    assert_eq!(run("agent:ops:irc:group:room").await, Outcome::Done);
    let over = limit(run("agent:ops:main").await);
    assert_eq!((&*over.name, over.spent, over.budget), ("ops", 2.0, 2.5), "{over}");
    let now = quipu::Clock::now(&quipu::SystemClock);
    assert!(over.resets > now && over.resets <= now + 25 * 60 * 60 * 1000, "{over}");
    // What the requests of the others hold beside their answers is not known to the token.
    let over = limit(run("agent:small:main").await);
    assert_eq!((over.unit, over.spent), (quipu::protocol::BudgetUnit::Tokens, 0.0), "{over}");
    let over = limit(run("agent:broken:main").await);
    assert_eq!((over.spent, over.budget), (0.0, 0.0), "what cannot be read is no budget");
    assert_eq!(run("agent:main:main").await, Outcome::Done, "another agent");
    assert_eq!(world.server.requests().len(), 3, "what does not fit is not sent");
    // A higher one holds for sessions that are open.
    let (world, agents) = (&world, &agents);
    let work = |conversations: Conversations, _| async move {
        let run = async || {
            let ended = conversations.run(request("agent:ops:main", "go", BusyMode::Steer)).await;
            ended.unwrap().outcome.clone()
        };
        assert_eq!(limit(run().await).budget, 2.5);
        set(world, "agents", agents(9.0));
        assert_eq!(run().await, Outcome::Done);
    };
    world.serve(None, 0, work).await;
}

#[tokio::test]
async fn turn_that_waits_in_its_lane_is_stopped_at_once() {
    let world = World::new([says("next")]);
    world
        .serve(None, 0, |conversations, lanes| async move {
            lanes.set_limit(MAIN_LANE, 0);
            let message = |text| request("agent:main:main", text, BusyMode::Followup);
            let first = conversations.start(message("first")).await.unwrap();
            let key = message("x").key;
            conversations.stop(&key, message("x").message.authority).await.unwrap();
            assert_eq!(first.outcome().await, Err(RunError::Dropped(DropReason::Stopped)));
            // A stop with nothing to stop is done at once.
            conversations.stop(&key, message("x").message.authority).await.unwrap();
            lanes.set_limit(MAIN_LANE, 4);
            assert_eq!(conversations.run(message("second")).await.unwrap().text, "next");
        })
        .await;
}

#[tokio::test]
async fn message_that_waits_for_a_front_holds_up_no_other() {
    let world = World::new([says("other"), says("mine")]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let work = |conversations: Conversations, lanes: Lanes| async move {
        lanes.set_limit(MAIN_LANE, 1);
        let mine = request("agent:main:main", "hello", BusyMode::Followup);
        let borrowed = all.of_host().borrow(&mine.key).await.unwrap();
        let mine = conversations.start(mine).await.unwrap();
        let other = request("agent:main:direct:x", "hello", BusyMode::Followup);
        assert_eq!(conversations.run(other).await.unwrap().text, "other");
        drop(borrowed);
        assert_eq!(mine.outcome().await.unwrap().text, "mine");
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
}

#[tokio::test]
async fn message_that_waits_for_a_front_is_stopped_at_once() {
    let world = World::new([says("next")]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let work = |conversations: Conversations, _| async move {
        let message = |text| request("agent:main:main", text, BusyMode::Followup);
        let key = message("x").key;
        let borrowed = all.of_host().borrow(&key).await.unwrap();
        let first = conversations.start(message("first")).await.unwrap();
        conversations.stop(&key, message("x").message.authority).await.unwrap();
        assert_eq!(first.outcome().await, Err(RunError::Dropped(DropReason::Stopped)));
        drop(borrowed);
        assert_eq!(conversations.run(message("second")).await.unwrap().text, "next");
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
    let sent = world.server.requests().pop().unwrap().json()["messages"].to_string();
    assert!(sent.contains("second") && !sent.contains("first"), "{sent}");
    at_rest(&world).await;
}

#[tokio::test]
async fn message_that_is_stopped_before_its_place_holds_up_no_front() {
    let world = World::new([]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let work = |conversations: Conversations, lanes: Lanes| async move {
        lanes.set_limit(MAIN_LANE, 0);
        let message = request("agent:main:main", "first", BusyMode::Followup);
        let (key, authority) = (message.key.clone(), message.message.authority.clone());
        let first = conversations.start(message).await.unwrap();
        while !lanes.status().iter().any(|lane| lane.lane == MAIN_LANE && lane.waiting == 1) {
            tokio::task::yield_now().await;
        }
        conversations.stop(&key, authority).await.unwrap();
        assert_eq!(first.outcome().await, Err(RunError::Dropped(DropReason::Stopped)));
        // Nobody runs, and no place is free.
        drop(all.of_host().borrow(&key).await.unwrap());
        lanes.set_limit(MAIN_LANE, 4);
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
    assert_eq!(world.server.requests().len(), 0);
}

#[tokio::test]
async fn front_waits_for_a_message_that_came_first() {
    let world = World::new([says("one")]);
    let sessions = world.sessions(0).await;
    let all = sessions.clone();
    let work = |conversations: Conversations, lanes: Lanes| async move {
        lanes.set_limit(MAIN_LANE, 0);
        let message = request("agent:main:main", "first", BusyMode::Followup);
        let key = message.key.clone();
        let first = conversations.start(message).await.unwrap();
        while !lanes.status().iter().any(|lane| lane.lane == MAIN_LANE && lane.waiting == 1) {
            tokio::task::yield_now().await;
        }
        let mut borrowed = std::pin::pin!(all.of_host().borrow(&key));
        assert!(futures_util::poll!(borrowed.as_mut()).is_pending());
        lanes.set_limit(MAIN_LANE, 4);
        assert_eq!(first.outcome().await.unwrap().text, "one");
        assert!(borrowed.await.unwrap().session().is_some());
    };
    world.serve_sessions(sessions, None, |all| all, work).await;
}

#[tokio::test]
async fn messages_that_a_process_left_are_followed_by_the_next() {
    let world = World::new([says("both"), says("other")]);
    let message = |key: &str, text: &str| request(key, text, BusyMode::Collect);
    let left = world
        .serve(None, 0, |conversations, lanes| async move {
            lanes.set_limit(MAIN_LANE, 0);
            // A turn of one that is about to begin, and two that wait behind it.
            let turn = conversations.start(message("agent:main:direct:x", "a")).await.unwrap();
            while conversations.active_group(&message("agent:main:direct:x", "a").key).is_none() {
                tokio::task::yield_now().await;
            }
            let second = conversations.start(message("agent:main:direct:x", "b")).await.unwrap();
            let third = conversations.start(message("agent:main:direct:x", "c")).await.unwrap();
            [turn.id, second.id, third.id]
        })
        .await;
    world
        .serve(None, 0, |conversations, _| async move {
            let mut runs = conversations.continued().await;
            assert_eq!(runs.iter().map(|(_, run)| run.id.clone()).collect::<Vec<_>>(), left);
            for (key, run) in &mut runs {
                assert_eq!(key.to_string(), "agent:main:direct:x");
                run.until_started().await;
            }
            let mut texts = Vec::new();
            for (_, run) in runs {
                texts.push(run.outcome().await.unwrap().text.clone());
            }
            assert_eq!(texts, ["both", "other", "other"]);
        })
        .await;
    at_rest(&world).await;
}

#[tokio::test]
async fn message_under_the_longest_key_is_answered() {
    let world = World::new([says("there")]);
    let limit = crate::keys::KEY_LIMIT;
    assert_eq!(limit, 1_008);
    world
        .serve(None, 0, |conversations, _| async move {
            let message = request(&"k".repeat(limit), "hello", BusyMode::Steer);
            assert_eq!(conversations.run(message).await.unwrap().text, "there");
        })
        .await;
    let too_long = SessionKey::parse(&"k".repeat(limit + 1));
    assert_eq!(too_long, Err(crate::keys::KeyError::TooLong { bytes: limit + 1 }));
}
