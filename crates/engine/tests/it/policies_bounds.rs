//! A step that allows calls opens no way elsewhere, no file outside and no sandbox: those are questions of their own.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use quipu::protocol::{Answer, NodeId, Outcome, Scope};
use quipu::store::{ActionQuery, Store as _};
use quipu::{
    Access, ConfinementVerdict, Crossing, Decision, Delivery, PermissionMode, PermissionRules, Permissions,
    Policy, Proposal, Sandbox, SandboxSupport, SessionOptions, ToolOutput, ToolPolicy, ToolVerdict, Touches,
    TravelRule, TravelSettings, TravelVerdict,
};
use serde_json::json;

use crate::policies::{Act, FixedPolicy, Step, answer, chain, records};
use crate::support::{Gate, LiveSession, World, call, say, touching};

fn head(live: &LiveSession) -> NodeId {
    live.session.view().head.unwrap()
}

/// A ref at each place that was left, so that the checks of the store find what was asked there.
async fn keep_departures(world: &World) {
    let query = ActionQuery { kinds: vec!["INCARNATE".into()], ..ActionQuery::default() };
    for row in world.store.actions(query).await.unwrap() {
        world.engine.fork_from(row.action.from.unwrap(), None).await.unwrap();
    }
}

/// A world whose session may go back, and a node to go to.
async fn traveller(policy: Arc<dyn Policy>, steps: Vec<Arc<dyn ToolPolicy>>) -> (World, LiveSession) {
    let world = World::with([say("a0")]);
    let travel = TravelSettings { tools: true };
    let options = SessionOptions { policy, policies: steps, travel, ..world.options() };
    let live = world.create_with(options).await;
    live.run("q0").await;
    let target = head(&live).short();
    let go = ("tobe", json!({ "target_node_hash": target, "carryover_message": "Back." }));
    world.fake.push([call(&[go]), say("Well.")]);
    live.run("q1").await;
    (world, live)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_that_allows_calls_opens_no_way_elsewhere() {
    let permissions = |travel| {
        let rules = PermissionRules { mode: PermissionMode::Full, travel, ..PermissionRules::default() };
        Arc::new(Permissions::new(rules, []))
    };
    let none = || Arc::new(FixedPolicy(Decision::NoOpinion));
    let cases: [(Arc<dyn Policy>, _, _); 6] = [
        (permissions(TravelRule::Deny), TravelVerdict::Allow, "travel.tobe"),
        (permissions(TravelRule::Ask), TravelVerdict::Allow, "needs a person's permission"),
        (none(), TravelVerdict::NoOpinion, "needs a person's permission"),
        (none(), TravelVerdict::Deny { reason: "stay".into() }, "stay"),
        (none(), TravelVerdict::Allow, "Incarnation"),
        (permissions(TravelRule::Allow), TravelVerdict::NoOpinion, "Incarnation"),
    ];
    for (policy, travel, expected) in cases {
        let kind = Arc::new(Step::says("kind", ToolVerdict::allow()).travelling(travel));
        let (world, live) = traveller(policy, chain([&kind])).await;
        let results = live.results();
        assert!(results.last().unwrap().1.contains(expected), "{expected}: {results:?}");
        keep_departures(&world).await;
        live.finish().await;
        world.check().await;
    }
}

/// Bounds without an opinion on calls.
struct Bounds(Access);

impl Policy for Bounds {
    fn decide(&self, _: &Proposal<'_>) -> Decision {
        Decision::NoOpinion
    }

    fn access(&self) -> Access {
        self.0.clone()
    }
}

#[tokio::test]
async fn step_that_allows_calls_opens_no_file_outside() {
    let outside = tempfile::tempdir().unwrap();
    let file = outside.path().canonicalize().unwrap().join("f");
    std::fs::write(&file, "what is outside").unwrap();
    let asked = "needs a person's permission";
    for (confinement, expected) in [
        (ConfinementVerdict::NoOpinion, asked),
        (ConfinementVerdict::Ask { question: "May it?".into() }, "May it? (kind)"),
        (ConfinementVerdict::Deny { reason: "stay inside".into() }, "stay inside"),
        (ConfinementVerdict::Allow, "what is outside"),
    ] {
        let mut world = World::with([call(&[("read", json!({ "path": file }))]), say("well")]);
        world.tools = quipu::builtin();
        let rules = PermissionRules {
            cwd: world.cwd(),
            own: world.cwd().join("../own"),
            support: Some(SandboxSupport::Missing),
            ..PermissionRules::default()
        };
        let access = Permissions::new(rules.clone(), []).access();
        let kind = Arc::new(Step::says("kind", ToolVerdict::allow()).confining(confinement));
        let policy = Arc::new(Bounds(access));
        let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
        let live = world.create_with(options).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        let results = live.results();
        assert!(results[0].1.contains(expected), "{expected}: {results:?}");
        let crossings = kind.crossings.lock().unwrap().clone();
        assert!(matches!(&crossings[..], [Crossing::File { path, .. }] if *path == file), "{crossings:?}");
        live.finish().await;
        // The built-in permissions ask, whatever a step says.
        world.fake.push([call(&[("read", json!({ "path": file }))]), say("well")]);
        let confinement = ConfinementVerdict::Allow;
        let kind = Arc::new(Step::says("kind", ToolVerdict::allow()).confining(confinement));
        let policy = Arc::new(Permissions::new(rules, []));
        let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
        let live = world.create_with(options).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        assert!(live.results()[0].1.contains(asked), "{:?}", live.results());
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn step_that_allows_calls_lets_none_run_without_a_sandbox() {
    for (confinement, runs) in [(ConfinementVerdict::NoOpinion, false), (ConfinementVerdict::Allow, true)] {
        let mut world = World::with([call(&[("shell", json!({}))]), say("well")]);
        world.tools = vec![touching("shell", Touches::Anything, |_, _| async { ToolOutput::text("ran") })];
        let kind = Arc::new(Step::says("kind", ToolVerdict::allow()).confining(confinement));
        let policy = Arc::new(FixedPolicy(Decision::NoOpinion));
        let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
        let live = world.create_with(options).await;
        assert_eq!(live.run("go").await, Outcome::Done);
        let results = live.results();
        assert_eq!(results[0].1 == "ran", runs, "{results:?}");
        assert_eq!(results[0].1.contains("running without a sandbox"), !runs, "{results:?}");
        assert_eq!(*kind.crossings.lock().unwrap(), [Crossing::Unconfined]);
        live.finish().await;
        world.check().await;
    }
}

/// Commands are confined; there is no opinion on calls.
struct ConfinedPolicy(Permissions);

impl Policy for ConfinedPolicy {
    fn decide(&self, _: &Proposal<'_>) -> Decision {
        Decision::NoOpinion
    }

    fn sandbox(&self) -> Option<Arc<Sandbox>> {
        self.0.sandbox()
    }
}

#[tokio::test]
async fn step_that_allows_calls_gives_commands_no_network() {
    let arguments = json!({ "command": "echo out > f", "network": true, "protected": true, "reason": "why" });
    let mut world = World::with([call(&[("bash", arguments)]), say("well")]);
    world.tools = quipu::builtin_isolated();
    let rules = PermissionRules {
        cwd: world.cwd(),
        own: world.cwd().join("../own"),
        support: Some(SandboxSupport::Full { scoped: true }),
        ..PermissionRules::default()
    };
    let policy = Arc::new(ConfinedPolicy(Permissions::new(rules, [])));
    let kind = Arc::new(Step::says("kind", ToolVerdict::allow()));
    let options = SessionOptions { policy, policies: chain([&kind]), ..world.options() };
    let live = world.create_with(options).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    let asked = answer(&live, 1, Answer::no()).await;
    live.settled(1).await;
    assert!(asked.question.contains("using the network and changing what configures"), "{asked:?}");
    assert_eq!((&*asked.subject, &*asked.scopes), ("echo out > f", &[Scope::Once][..]));
    assert_eq!(*kind.crossings.lock().unwrap(), [Crossing::Network, Crossing::Protected]);
    assert!(!world.cwd().join("f").exists());
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_that_lets_the_session_go_puts_no_files_back() {
    for (confinement, goes) in [(ConfinementVerdict::NoOpinion, false), (ConfinementVerdict::Allow, true)] {
        let write = |text: &str| call(&[("write", json!({ "path": "a", "content": text }))]);
        let mut world = World::with([write("one"), say("a0")]);
        world.tools.extend(quipu::builtin());
        let step = Step::says("kind", ToolVerdict::allow()).travelling(TravelVerdict::Allow);
        let kind = Arc::new(step.confining(confinement));
        let policy = Arc::new(FixedPolicy(Decision::NoOpinion));
        let travel = TravelSettings { tools: true };
        let options = SessionOptions { policy, policies: chain([&kind]), travel, ..world.options() };
        let live = world.create_with(options).await;
        assert_eq!(live.run("q0").await, Outcome::Done);
        let target = head(&live).short();
        let go = json!({ "target_node_hash": target, "carryover_message": "Back.", "files": true });
        world.fake.push([write("two"), call(&[("tobe", go)]), say("Well.")]);
        assert_eq!(live.run("q1").await, Outcome::Done);
        let expected = if goes { "one" } else { "two" };
        assert_eq!(std::fs::read_to_string(world.cwd().join("a")).unwrap(), expected);
        assert_eq!(*kind.crossings.lock().unwrap(), [Crossing::Restore { paths: vec!["a".into()] }]);
        let text = live.results().pop().unwrap().1;
        assert_eq!(text.contains("restoring 1 file(s)? No policy decides that"), !goes, "{text}");
        keep_departures(&world).await;
        live.finish().await;
        world.check().await;
    }
}

#[tokio::test]
async fn question_about_the_bounds_names_who_asks() {
    let mut world = World::with([call(&[("shell", json!({}))]), say("well")]);
    world.tools = vec![touching("shell", Touches::Anything, |_, _| async { ToolOutput::text("ran") })];
    let ask = ConfinementVerdict::Ask { question: "Unconfined?".into() };
    let guard = Arc::new(Step::says("guard", ToolVerdict::NoOpinion).confining(ask));
    let live = world.create_with(SessionOptions { policies: chain([&guard]), ..world.options() }).await;
    let person = live.session.subscribe_and_answer(Delivery::Live).await.unwrap();
    live.session.prompt("go").await.unwrap();
    let asked = answer(&live, 1, Answer::once()).await;
    live.settled(1).await;
    assert_eq!((&*asked.question, &*asked.scopes), ("Unconfined? (guard)", &[Scope::Once][..]));
    assert_eq!(live.results()[0].1, "ran");
    let kept = records(&world, &live).await;
    assert_eq!(kept, [json!([{ "policy": "guard", "question": "confinement", "did": "asked" }])]);
    drop(person);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn path_swapped_before_the_call_is_decided_again() {
    for (then, is_error, expected) in [("closed", true, "it is closed"), ("third", false, "third")] {
        path_leads_elsewhere(then, is_error, expected).await;
    }
}

/// While a call waits for another one, its path comes to lead to `then`.
async fn path_leads_elsewhere(then: &str, is_error: bool, expected: &str) {
    let gate = Gate::new();
    let reads = ("read", json!({ "path": "link" }));
    let mut world = World::with([call(&[("wait", json!({})), reads]), say("well")]);
    let waits = gate.clone();
    world.tools = quipu::builtin();
    world.tools.push(touching("wait", Touches::Anything, move |_, _| {
        let waits = waits.clone();
        async move {
            waits.pass().await;
            ToolOutput::text("waited")
        }
    }));
    for name in ["open", "closed", "third"] {
        std::fs::write(world.cwd().join(name), name).unwrap();
    }
    symlink(world.cwd().join("open"), world.cwd().join("link")).unwrap();
    let guard = Arc::new(Step::new("guard", |request| {
        let closed = matches!(request.touches, Touches::Reads(paths) if paths[0].ends_with("closed"));
        Act::Say(if closed { ToolVerdict::deny("it is closed") } else { ToolVerdict::NoOpinion })
    }));
    let live = world.create_with(SessionOptions { policies: chain([&guard]), ..world.options() }).await;
    live.session.prompt("go").await.unwrap();
    gate.reached().await;
    std::fs::remove_file(world.cwd().join("link")).unwrap();
    symlink(world.cwd().join(then), world.cwd().join("link")).unwrap();
    gate.open();
    live.settled(1).await;
    let results = live.results();
    assert_eq!(results[1].2, is_error, "{results:?}");
    assert!(results[1].1.contains(expected), "{results:?}");
    assert_eq!(guard.asked(), ["c1", "c2", "c2"]);
    live.finish().await;
    world.check().await;
}
