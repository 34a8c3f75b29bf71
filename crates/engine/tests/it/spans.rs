//! What is traced of a session: spans within each other, under the ids of its events, and no text of anybody.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu::protocol::{Ending, Event, Outcome, ToolCall};
use quipu::{CallVerdict, Hook, HookContext, HookError, SessionOptions, ToolOutput};
use quipu_testkit::{SpanCollector, SpanRecord};
use serde_json::json;

use crate::compact::{long, options};
use crate::support::{Reply, World, call, say, tool};

/// Lets everything pass.
struct Watch;

impl Hook for Watch {
    fn name(&self) -> &str {
        "watch"
    }

    fn tool_call<'a>(
        &'a self,
        _: &'a ToolCall,
        _: &'a HookContext,
    ) -> BoxFuture<'a, Result<CallVerdict, HookError>> {
        Box::pin(std::future::ready(Ok(CallVerdict::Pass)))
    }
}

#[tokio::test]
async fn a_run_with_tools_a_hook_and_a_compaction_is_a_tree() {
    let traced = SpanCollector::default();
    let _collecting = traced.collect();
    let mut replies: Vec<Reply> = (0..4).map(|n| say(&long(&format!("answer-{n}")))).collect();
    replies.extend([say("half"), Reply { cost: 0.25, input: 700, ..say("## Goal\nCounting.") }]);
    replies.push(Reply {
        input: 1_200,
        ..call(&[("note", json!({ "text": "argument" })), ("note", json!({ "text": "argument" }))])
    });
    replies.push(say("The end."));
    let world = World::with(replies);
    let note = tool("note", |_, _| async { ToolOutput::text("printed") });
    let mut settings =
        SessionOptions { hooks: vec![Arc::new(Watch)], tools: vec![note], ..options(&world, 4_000) };
    settings.compaction.keep_recent_tokens = 850;
    let live = world.create_with(settings).await;
    for n in 0..4 {
        assert_eq!(live.run(&long(&format!("question-{n}"))).await, Outcome::Done);
    }
    let before = traced.all().len();
    assert_eq!(live.run(&long("question-4")).await, Outcome::Done);
    let (session, events) = (live.id(), live.events());
    live.finish().await;

    let all = traced.all();
    assert!(all.iter().all(|one| one.ended), "{all:?}");
    let run = events.iter().rev().find_map(|one| one.run.clone()).unwrap();
    let mine: Vec<(String, &SpanRecord)> =
        (before..all.len()).map(|at| (traced.path(at), &all[at])).collect();
    let paths: BTreeMap<&str, usize> = mine.iter().fold(BTreeMap::new(), |mut count, (path, _)| {
        *count.entry(path.as_str()).or_default() += 1;
        count
    });
    for (path, count) in [
        ("session/run", 1),
        ("session/run/turn", 2),
        ("session/run/turn/compaction", 1),
        ("session/run/turn/compaction/model_call", 2),
        ("session/run/turn/model_call", 2),
        ("session/run/turn/tool_call", 2),
    ] {
        assert_eq!(paths.get(path), Some(&count), "{path} in {paths:#?}");
    }
    let named = |path: &str| -> Vec<&BTreeMap<String, String>> {
        mine.iter().filter(|(found, _)| found == path).map(|(_, one)| &one.fields).collect()
    };
    let hooked = |path: &str, point: &str| {
        named(path).into_iter().filter(|hook| hook["hook"] == "watch" && hook["point"] == point).count()
    };
    assert_eq!(hooked("session/run/turn/hook", "tool_call"), 2, "{paths:#?}");
    assert_eq!(hooked("session/run/turn/tool_call/hook", "tool_result"), 2, "{paths:#?}");
    assert_eq!(hooked("session/run/turn/compaction/hook", "before_compaction"), 1, "{paths:#?}");
    let one_run = named("session/run")[0];
    assert_eq!((&one_run["run"], &one_run["outcome"]), (&run.to_string(), &"done".to_owned()));
    assert_eq!(one_run["session"], session.to_string());
    let turns: Vec<&str> = named("session/run/turn").iter().map(|turn| turn["turn"].as_str()).collect();
    assert_eq!(turns, ["1", "2"]);
    let calls: Vec<&str> =
        named("session/run/turn/tool_call").iter().map(|tool| tool["call"].as_str()).collect();
    assert_eq!(calls, ["c1", "c2"]);
    let tool = named("session/run/turn/tool_call")[0];
    assert_eq!(
        (tool["tool"].as_str(), tool["is_error"].as_str(), tool["output_bytes"].as_str()),
        ("note", "false", "7")
    );
    let summary = named("session/run/turn/compaction/model_call")[1];
    let answer = named("session/run/turn/model_call")[0];
    assert_eq!((summary["purpose"].as_str(), answer["purpose"].as_str()), ("compaction", "answer"));
    assert_eq!((summary["tokens.input"].as_str(), answer["tokens.input"].as_str()), ("700", "1200"));
    assert_eq!((summary["cost"].as_str(), answer["stop"].as_str()), ("0.25", "tool_use"));
    assert!(["local", "cloud"].contains(&answer["tokens.source"].as_str()));
    let compaction = named("session/run/turn/compaction")[0];
    let tokens = |name: &str| compaction[name].parse::<u64>().unwrap();
    assert_eq!(tokens("tokens.saved"), tokens("tokens.before") - tokens("tokens.after"));
    assert!(tokens("tokens.saved") > 0);

    // Every node that an event tells of was written in a commit that is traced, or told in a line of its own.
    let kept = events.iter().filter_map(|one| match &one.event {
        Event::MessageEnded { ending: Ending::Committed(node), .. } => Some(node.to_string()),
        _ => None,
    });
    let nodes: Vec<&String> = all.iter().filter_map(|one| one.fields.get("node")).collect();
    for node in kept {
        assert!(nodes.contains(&&node), "{node}");
    }
    assert!(
        paths.keys().any(|path| path.starts_with("session/run/turn") && path.ends_with("/commit")),
        "{paths:#?}"
    );

    let said = format!("{all:?}");
    for text in ["question-", "answer-", "Counting", "argument", "printed", "The end."] {
        assert!(!said.contains(text), "{text} is traced");
    }
    world.check().await;
}

#[test]
fn job_has_a_span_of_its_own() {
    let traced = SpanCollector::default();
    let collecting = traced.collect();
    quipu::job_span("j1", "import", 2).in_scope(|| tracing::info!(target: "quipu", "half"));
    drop(collecting);
    let all = traced.all();
    assert_eq!((traced.path(0), traced.path(1)), ("job".into(), "job/half".into()));
    let fields: Vec<(&str, &str)> =
        all[0].fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(fields, [("attempt", "2"), ("job", "j1"), ("kind", "import")]);
    assert!(all[0].ended);
}
