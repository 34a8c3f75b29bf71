//! A filter of tools: what it removes, when it is asked, and what becomes of one that breaks down.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use quipu::protocol::Setting;
use quipu::{
    AgentLimits, AgentSettings, SessionOptions, SourceVersion, ToolFilter, ToolFilterAnswer, ToolFilterAsk,
    ToolOutput, ToolSource,
};
use serde_json::json;

use crate::sources::{Bench, plug};
use crate::support::{LiveSession, World, call, model, say, tool};

type Decide = Box<dyn Fn(&ToolFilterAsk<'_>) -> ToolFilterAnswer + Send + Sync>;

struct Filter {
    decide: Decide,
    asked: Mutex<Vec<(String, Vec<String>)>>,
    version: SourceVersion,
}

impl Filter {
    fn new(decide: impl Fn(&ToolFilterAsk<'_>) -> ToolFilterAnswer + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { decide: Box::new(decide), asked: Mutex::default(), version: SourceVersion::new() })
    }
}

impl ToolFilter for Filter {
    fn filter(&self, ask: &ToolFilterAsk<'_>) -> ToolFilterAnswer {
        let names = ask.tools.iter().map(|tool| tool.name.to_owned()).collect();
        self.asked.lock().unwrap().push((ask.model.id.clone(), names));
        (self.decide)(ask)
    }

    fn version(&self) -> SourceVersion {
        self.version.clone()
    }
}

fn without(names: &[&str]) -> ToolFilterAnswer {
    let removed: HashMap<String, String> =
        names.iter().map(|name| ((*name).to_owned(), "nobody wants it".to_owned())).collect();
    ToolFilterAnswer { removed, notices: Vec::new() }
}

fn filtered(world: &World, filter: &Arc<Filter>) -> SessionOptions {
    let tools = ["one", "two"].map(|name| tool(name, |_, _| async { ToolOutput::text("done") })).to_vec();
    SessionOptions { tools, tool_filter: Some(filter.clone()), ..world.options() }
}

/// Names of the tools in a request.
fn names(world: &World, at: usize) -> Vec<String> {
    let body: serde_json::Value = serde_json::from_slice(&world.fake.bodies()[at]).unwrap();
    let tools = body["tools"].as_array().cloned().unwrap_or_default();
    tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_removes_tools_of_options_and_of_sources() {
    let world = World::with([call(&[("one", json!({})), ("plugged", json!({}))]), say("Fine.")]);
    let filter = Filter::new(|_| without(&["one", "plugged", "unheard"]));
    let bench = Bench::new("bench", vec![plug("plugged"), plug("other")]);
    let options =
        SessionOptions { tool_sources: vec![bench as Arc<dyn ToolSource>], ..filtered(&world, &filter) };
    let live = world.create_with(options).await;
    live.run("go").await;
    assert_eq!(names(&world, 0), ["two", "other"]);
    assert_eq!(filter.asked.lock().unwrap()[0].1, ["one", "two", "plugged", "other"]);
    let results = live.results();
    for (_, text, is_error) in &results {
        assert!(
            *is_error && text.ends_with("is not offered here: nobody wants it. Continue without it."),
            "{text}"
        );
    }
    assert_eq!(results.len(), 2);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_is_asked_again_for_another_model() {
    struct OtherModel(Arc<quipu::protocol::Model>, Arc<dyn quipu::Provider>);
    impl quipu::Models for OtherModel {
        fn find(
            &self,
            _: &str,
            _: &str,
        ) -> Result<(Arc<quipu::protocol::Model>, Arc<dyn quipu::Provider>), quipu::ModelLookupError>
        {
            Ok((self.0.clone(), self.1.clone()))
        }
    }
    let world = World::new();
    let other = quipu::protocol::Model { id: "other".into(), ..(*model()).clone() };
    let models: Arc<dyn quipu::Models> = Arc::new(OtherModel(Arc::new(other), world.fake.clone()));
    let filter = Filter::new(|ask| if ask.model.id == "other" { without(&["one"]) } else { without(&[]) });
    let options = SessionOptions { models: Some(models), ..filtered(&world, &filter) };
    let live = world.create_with(options).await;
    live.run("a").await;
    live.session.set(Setting::Model { provider: "test".into(), id: "other".into() }).await.unwrap();
    live.run("b").await;
    assert_eq!([names(&world, 0), names(&world, 1)], [vec!["one", "two"], vec!["two"]]);
    let id = live.id();
    live.finish().await;
    // One that is opened again is offered what holds then.
    let open = Filter::new(|_| without(&["two"]));
    let options = SessionOptions { system: None, ..filtered(&world, &open) };
    let live = LiveSession::of(world.engine.open(&id, options).await.unwrap().session).await;
    live.run("c").await;
    assert_eq!(names(&world, 2), ["one"]);
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_that_changed_is_asked_before_the_next_call() {
    let world = World::with([say("a"), say("b"), call(&[("one", json!({}))]), say("c")]);
    let is_narrow = Arc::new(AtomicBool::new(false));
    let narrow = is_narrow.clone();
    let filter = Filter::new(move |_| match narrow.load(Ordering::SeqCst) {
        true => without(&["one"]),
        false => without(&[]),
    });
    let live = world.create_with(filtered(&world, &filter)).await;
    live.run("a").await;
    // What is not announced is not seen.
    is_narrow.store(true, Ordering::SeqCst);
    live.run("b").await;
    filter.version.change();
    live.run("c").await;
    let all = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!([names(&world, 0), names(&world, 1)], [all.clone(), all]);
    assert_eq!([names(&world, 2), names(&world, 3)], [vec!["two"], vec!["two"]]);
    let (_, text, is_error) = live.results().pop().unwrap();
    assert!(is_error && text.contains("is not offered here: nobody wants it"), "{text}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sub_agents_are_asked_about_with_their_level() {
    let task = call(&[("task", json!({ "prompt": "Look" }))]);
    let world = World::with([task, say("Looked."), say("Good.")]);
    let filter = Filter::new(|ask| match ask.depth {
        0 => without(&["one"]),
        _ => without(&["two"]),
    });
    let settings = AgentSettings { agents: Vec::new(), limits: AgentLimits::default(), worktrees: None };
    let options = SessionOptions { agents: Some(Arc::new(settings)), ..filtered(&world, &filter) };
    let live = world.create_with(options).await;
    live.run("go").await;
    assert_eq!(names(&world, 0), ["two", "task"]);
    assert_eq!(names(&world, 1), Vec::<String>::new(), "what its session lacks is not lent");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn filter_that_breaks_down_offers_nothing() {
    let world = World::with([call(&[("one", json!({}))]), say("Fine.")]);
    let filter = Filter::new(|_| panic!("a filter that breaks down"));
    let live = world.create_with(filtered(&world, &filter)).await;
    live.run("go").await;
    assert_eq!(names(&world, 0), Vec::<String>::new());
    assert!(live.results()[0].1.contains("the filter of tools panicked"), "{:?}", live.results());
    live.finish().await;
    world.check().await;
}
