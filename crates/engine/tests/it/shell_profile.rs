//! Sessions of the profile `shell`, as a program makes and continues them.

use std::sync::Arc;

use quipu::protocol::{Entry, Message, Outcome, SessionProfile};
use quipu::store::{LineageEnd, RefName, Store, decode_nodes};
use quipu::{OpenError, SessionOptions, ToolOutput, reassembled_request};
use serde_json::{Value, json};

use crate::support::{World, echo, model, say, text_of, tool};

/// A world whose `bash` gives back what it was called with.
fn world(replies: &[&str]) -> World {
    let mut world = World::with(replies.iter().map(|text| say(text)));
    let bash = tool("bash", |args, _| async move { ToolOutput::text(format!("ran {}", args["command"])) });
    world.tools = vec![echo(), bash];
    world
}

fn options(world: &World) -> SessionOptions {
    SessionOptions { profile: Some(SessionProfile::Shell), ..world.options() }
}

/// What requests have: each message as its role and text, and whether any tool or call is in them.
fn requests(world: &World) -> Vec<Vec<String>> {
    let bodies = world.fake.bodies();
    let all = bodies.iter().map(|body| serde_json::from_slice::<Value>(body).unwrap());
    all.map(|body| {
        assert_eq!(body["tools"], json!([]), "no tool is declared");
        assert!(!body["messages"].to_string().contains("toolCall"), "{body}");
        let messages: Vec<Message> = serde_json::from_value(body["messages"].clone()).unwrap();
        messages.iter().map(|one| format!("{}: {}", one.role().unwrap(), text_of(one))).collect()
    })
    .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_asks_and_continues_with_the_same_requests() {
    let world = world(&["ls", "exit\nIt is empty.", "pwd", "exit"]);
    let session = world.engine.create(options(&world)).await.unwrap();
    assert_eq!(session.profile(), Some(SessionProfile::Shell));
    assert_eq!(session.ask("what is here?").await.unwrap(), (Outcome::Done, "It is empty.".into()));
    let id = session.view().session;
    session.shutdown().await;
    // Options that say nothing of it keep it.
    let (live, _) = world.open(&id).await;
    assert_eq!(live.session.profile(), Some(SessionProfile::Shell));
    assert_eq!(live.session.ask("and where?").await.unwrap(), (Outcome::Done, String::new()));
    live.finish().await;

    let requests = requests(&world);
    assert_eq!(requests[0], ["user: what is here?"]);
    assert!(requests[1][2].ends_with("Z\nran \"ls\""), "{:?}", requests[1]);
    for pair in requests.windows(2) {
        assert!(pair[1].starts_with(&pair[0]), "{pair:?}");
    }
    // What was sent can be put together from the graph.
    let head = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let calls: Vec<_> = decoded.iter().filter_map(|one| one.step.call.as_ref()).collect();
    assert_eq!(calls.len(), 4);
    for (call, body) in calls.iter().zip(world.fake.bodies()) {
        let again = reassembled_request(&*world.store, call.head, call.system, model()).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        let messages: Vec<&Message> = again.request.messages.iter().map(|message| &**message).collect();
        assert_eq!(serde_json::to_value(messages).unwrap(), body["messages"]);
        assert!(again.request.tools.is_empty());
    }
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reply_is_kept_as_said_with_the_call_it_makes() {
    let world = world(&["```bash\npatience 90 make\n```", "exit"]);
    let session = world.engine.create(options(&world)).await.unwrap();
    session.ask("build").await.unwrap();
    let id = session.view().session;
    session.shutdown().await;
    let head = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, LineageEnd::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let Entry::Session(start) = &decoded[0].entry else { panic!("{:?}", decoded[0]) };
    assert_eq!((start.epoch.profile, start.epoch.tools.len()), (Some(SessionProfile::Shell), 0));
    let Entry::Message(Message::Assistant(answer)) = &decoded[2].entry else { panic!("{:?}", decoded[2]) };
    assert_eq!(answer.text(), "```bash\npatience 90 make\n```");
    let call = answer.tool_calls().next().unwrap();
    assert_eq!(
        (call.name.as_str(), call.arguments.value()),
        ("bash", json!({ "command": "make", "timeout": 90 }))
    );
    let Entry::Message(Message::ToolResult(result)) = &decoded[3].entry else { panic!("{:?}", decoded[3]) };
    assert_eq!(result.tool_call_id, call.id);
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_keeps_what_it_began_with() {
    let world = world(&["exit", "plain", "exit"]);
    let shell = world.engine.create(options(&world)).await.unwrap();
    shell.ask("one").await.unwrap();
    let at = shell.view().head.unwrap();
    shell.shutdown().await;
    let plain = world.engine.create(world.options()).await.unwrap();
    plain.ask("two").await.unwrap();
    let (id, plain_at) = (plain.view().session, plain.view().head.unwrap());
    plain.shutdown().await;
    let is_refused = |opened: Result<_, OpenError>| {
        matches!(opened, Err(OpenError::OtherProfile { wanted: "shell", began_with: None }))
    };
    assert!(is_refused(world.engine.open(&id, options(&world)).await.map(drop)));
    assert!(is_refused(world.engine.fork(plain_at, options(&world)).await.map(drop)));
    let fork = world.engine.fork(at, world.options()).await.unwrap().session;
    assert_eq!(fork.profile(), Some(SessionProfile::Shell));
    fork.ask("three").await.unwrap();
    fork.shutdown().await;
    // Who has no shell has no commands.
    let lacks = SessionOptions { tools: vec![echo()], ..options(&world) };
    assert!(matches!(world.engine.create(lacks).await, Err(OpenError::NoShell)));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sources_give_text_and_no_tools() {
    struct Rules;
    impl quipu::ContextSource for Rules {
        fn name(&self) -> &str {
            "rules-of-test"
        }

        fn context<'a>(
            &'a self,
            _: &'a quipu::ContextAsk,
        ) -> futures_util::future::BoxFuture<'a, Result<quipu::Context, quipu::SourceError>> {
            let trust = quipu::protocol::Trust::Owner;
            let section = quipu::Section { id: "r".into(), text: "Use tabs.".into(), trust };
            Box::pin(std::future::ready(Ok(quipu::Context { sections: vec![section], keep_recent: None })))
        }
    }
    struct More;
    impl quipu::ToolSource for More {
        fn name(&self) -> &str {
            "more"
        }

        fn tools<'a>(
            &'a self,
            _: &'a quipu::SourceContext,
        ) -> futures_util::future::BoxFuture<'a, Result<Vec<Arc<dyn quipu::Tool>>, quipu::SourceError>>
        {
            Box::pin(std::future::ready(Ok(vec![tool("more", |_, _| async { ToolOutput::text("x") })])))
        }
    }
    let world = world(&["ls", "exit"]);
    let session = world
        .engine
        .create(SessionOptions {
            context_sources: vec![Arc::new(Rules)],
            tool_sources: vec![Arc::new(More)],
            planning: quipu::PlanningSettings { plan: true, todo: true, ..Default::default() },
            history: quipu::HistorySettings { enabled: true },
            ..options(&world)
        })
        .await
        .unwrap();
    session.ask("go").await.unwrap();
    session.shutdown().await;
    requests(&world);
    let body: Value = serde_json::from_slice(&world.fake.bodies()[0]).unwrap();
    assert!(body["system"].as_str().unwrap().contains("Use tabs."), "{body}");
    world.check().await;
}
