//! Clients that come and go: whoever comes back holds the same as one that stayed.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use quipu::protocol::{Answer, AskKind, Command, Event, Notice, Refused, Scope, Thinking, Ui};
use quipu::{Decision, Delivery, Grant, GrantError, Policy, Proposal};
use serde_json::json;

use crate::support::{Reply, World, call, say};

/// Asks for each command, and keeps what is allowed for longer.
#[derive(Default)]
struct AskAll(std::sync::Mutex<Vec<(Grant, Scope)>>);

impl Policy for AskAll {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        match proposal.text("command") {
            Some(subject) => Decision::Ask { question: "run this".into(), subject },
            None => Decision::Allow,
        }
    }

    fn scopes(&self, _: &Grant) -> Vec<Scope> {
        vec![Scope::Once, Scope::Session, Scope::Always]
    }

    fn grant(&self, grant: Grant, scope: Scope) -> Result<Scope, GrantError> {
        self.0.lock().unwrap().push((grant, scope));
        if scope == Scope::Always {
            Err(GrantError::NotKept { why: "the disk is full".into() })
        } else {
            Ok(scope)
        }
    }
}

/// What a client does before it goes: how many events it reads, and how many others the session makes until it is back.
type Stays = Vec<(u8, u8)>;

async fn come_and_go(delivery: Delivery, stays: Stays) {
    let command = |line: &str| ("bash", json!({ "command": line }));
    let world = World::with([
        Reply { pieces: 700, retries: 1, ..say(&"abcdefghij".repeat(70)) },
        call(&[command("echo one; sleep 0.02; echo two"), command("echo three")]),
        Reply { thinking: Some("hm".into()), ..call(&[command("true")]) },
        Reply { pieces: 300, ..say(&"xyz".repeat(100)) },
        say("steered"),
        say("more"),
    ]);
    let mut options = world.options();
    options.policy = Arc::new(AskAll::default());
    options.tools = quipu::builtin();
    let session = world.engine.create(options).await.unwrap();
    let (first, mut stayed) = session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let (seen, watched) = tokio::sync::watch::channel(0);
    let answers = session.clone();
    let staying = tokio::spawn(async move {
        let (mut state, mut states) = (first, HashMap::new());
        states.insert(state.seq, state.clone());
        while let Some(envelope) = stayed.next().await {
            state.fold(&envelope);
            states.insert(state.seq, state.clone());
            seen.send_replace(state.seq);
            if let Event::Asked { ask } = &envelope.event {
                let answer = Answer::Allow { scope: Scope::Session };
                let answer = Command::Answer { ask: ask.id.clone(), answer };
                answers.send(answer).await.unwrap();
            }
        }
        states
    });
    let coming = {
        let (session, mut watched) = (session.clone(), watched.clone());
        tokio::spawn(async move {
            let mut held = Vec::new();
            for (reads, misses) in stays {
                let Ok((mut state, mut events)) = session.subscribe(delivery).await else { break };
                held.push(state.clone());
                for _ in 0..reads {
                    // Nothing may come any more.
                    let next = tokio::time::timeout(Duration::from_millis(200), events.next()).await;
                    let Ok(Some(envelope)) = next else { break };
                    state.fold(&envelope);
                    held.push(state.clone());
                }
                let until = state.seq + u64::from(misses) * 20;
                let wait = watched.wait_for(|seq| *seq >= until);
                drop(tokio::time::timeout(Duration::from_millis(100), wait).await);
                // One that did not go, and read nothing for a while.
                while let Ok(Some(envelope)) = tokio::time::timeout(Duration::ZERO, events.next()).await {
                    state.fold(&envelope);
                    held.push(state.clone());
                }
            }
            held
        })
    };
    session.show(Ui::Status { key: "k".into(), text: Some("status".into()) }).await.unwrap();
    session.prompt("go").await.unwrap();
    session.show(Ui::Widget { key: "w".into(), lines: vec!["line".into()] }).await.unwrap();
    session.steer("and this").await.unwrap();
    session.follow_up("and that").await.unwrap();
    let until_rest = async |mut watched: tokio::sync::watch::Receiver<u64>| {
        while session.view().run.is_some() || session.view().waiting > 0 {
            if watched.changed().await.is_err() {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), until_rest(watched.clone())).await.unwrap();
    let setting = quipu::protocol::Setting::Thinking { level: Thinking::High };
    session.set(setting).await.unwrap();
    session.prompt("once more").await.unwrap();
    tokio::time::timeout(Duration::from_secs(60), until_rest(watched)).await.unwrap();
    let mut held = coming.await.unwrap();
    let (now, _) = session.subscribe(delivery).await.unwrap();
    assert_eq!(now.status["k"], "status");
    assert_eq!(now.widgets["w"], ["line"]);
    held.push(now);
    // Whoever stayed has seen all that anybody holds: only then it ends.
    session.shutdown().await;
    let states = staying.await.unwrap();
    for held in held {
        assert_eq!(Some(&held), states.get(&held.seq), "after event {}", held.seq);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn client_that_comes_back_holds_what_one_that_stayed_holds(
        stays in prop::collection::vec((0..60u8, 0..30u8), 1..12),
        live: bool,
    ) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let delivery = if live { Delivery::Live } else { Delivery::Lossless };
        runtime.block_on(come_and_go(delivery, stays));
    }
}

#[tokio::test]
async fn thousand_reconnects_leave_nothing_behind() {
    let world = World::new();
    let live = world.create().await;
    for at in 0..1_000 {
        let delivery = if at % 2 == 0 { Delivery::Live } else { Delivery::Lossless };
        drop(live.session.subscribe_and_answer(delivery).await.unwrap());
    }
    live.run("go").await;
    let (snapshot, _) = live.session.subscribe(Delivery::Live).await.unwrap();
    assert_eq!((snapshot.run, snapshot.asks.len()), (None, 0));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn question_is_answered_with_a_scope_that_it_offers() {
    let world = World::with([
        call(&[("bash", json!({ "command": "true" }))]),
        call(&[("bash", json!({ "command": "false" }))]),
    ]);
    let policy = Arc::new(AskAll::default());
    let mut options = world.options();
    options.policy = policy.clone();
    options.tools = quipu::builtin();
    let session = world.engine.create(options).await.unwrap();
    let (_, mut events) = session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    session.prompt("go").await.unwrap();
    let (mut scopes, mut told) = (vec![Scope::Always, Scope::Session], Vec::new());
    let mut by = Vec::new();
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::Asked { ask } => {
                assert!(matches!(&ask.kind, AskKind::Permission(asked) if asked.scopes.len() == 3));
                let answer = |answer| Command::Answer { ask: ask.id.clone(), answer };
                let wrong = session.send(answer(Answer::Confirm { yes: true })).await;
                assert_eq!(wrong, Err(Refused::NoSuchAnswer));
                let (open, _) = session.subscribe(Delivery::Live).await.unwrap();
                assert_eq!(open.asks, std::slice::from_ref(ask));
                session.send(answer(Answer::Allow { scope: scopes.pop().unwrap() })).await.unwrap();
                assert_eq!(session.send(answer(Answer::no())).await, Err(Refused::NoSuchAsk));
            }
            Event::AskClosed { by: Some(Answer::Allow { scope }), .. } => by.push(*scope),
            Event::Ui { ui: Ui::Notice { notice: Notice::Note { text } } } => told.push(text.clone()),
            Event::Settled => break,
            _ => {}
        }
    }
    assert_eq!(by, [Scope::Session, Scope::Session]);
    assert_eq!(told, ["Could not save your permission, so it holds for this session only: the disk is full"]);
    let asked: Vec<Scope> = policy.0.lock().unwrap().iter().map(|(_, scope)| *scope).collect();
    assert_eq!(asked, [Scope::Session, Scope::Always]);
    session.shutdown().await;
}

#[tokio::test]
async fn question_of_a_host_has_default_deadline_and_first_answer() {
    let world = World::new();
    let session = world.create().await.session.clone();
    let confirm = || AskKind::Confirm { title: "Sure?".into(), text: String::new() };
    let no = Answer::Confirm { yes: false };
    // Nobody is there who could answer.
    let (snapshot, _listens) = session.subscribe(Delivery::Lossless).await.unwrap();
    assert_eq!(session.ask_person(confirm(), no.clone(), None).await.unwrap(), no);
    assert!(snapshot.asks.is_empty());
    let (_, mut events) = session.subscribe_and_answer(Delivery::Lossless).await.unwrap();
    let late = Some(Duration::from_millis(20));
    assert_eq!(session.ask_person(confirm(), no.clone(), late).await.unwrap(), no);
    let asking = session.clone();
    let asked = tokio::spawn(async move { asking.ask_person(confirm(), Answer::Cancel, None).await });
    let ask = loop {
        match &events.next().await.unwrap().event {
            Event::Asked { ask } if ask.deadline.is_none() => break ask.clone(),
            _ => {}
        }
    };
    let yes = || Command::Answer { ask: ask.id.clone(), answer: Answer::Confirm { yes: true } };
    session.send(yes()).await.unwrap();
    assert_eq!(session.send(yes()).await, Err(Refused::NoSuchAsk));
    assert_eq!(asked.await.unwrap().unwrap(), Answer::Confirm { yes: true });
    // Whoever could answer goes.
    let asking = session.clone();
    let asked = tokio::spawn(async move { asking.ask_person(confirm(), Answer::Cancel, None).await });
    while !matches!(&events.next().await.unwrap().event, Event::Asked { .. }) {}
    drop(events);
    assert_eq!(asked.await.unwrap().unwrap(), Answer::Cancel);
    session.shutdown().await;
    assert_eq!(session.ask_person(confirm(), Answer::Cancel, None).await, Err(Refused::Closed));
    assert_eq!(session.prompt("late").await, Err(Refused::Closed));
}

#[tokio::test]
async fn last_handle_that_goes_closes_the_session() {
    let world = World::with([Reply { pieces: 100_000, ..say(&"abcdefghij".repeat(10_000)) }]);
    let session = world.engine.create(world.options()).await.unwrap();
    let (_, mut events) = session.subscribe(Delivery::Lossless).await.unwrap();
    let other = session.clone();
    other.prompt("go").await.unwrap();
    drop(session);
    assert!(other.view().run.is_some());
    drop(other);
    let mut ended = false;
    while let Some(envelope) = events.next().await {
        ended |= matches!(&envelope.event, Event::RunEnded { .. });
    }
    assert!(ended, "what ran was stopped in order");
    world.check().await;
}
