//! Old results that requests leave out, and `recall`, which reads them.

use std::sync::Arc;

use quipu::protocol::{
    Content, Entry, Event, ImageContent, Message, Model, NodeId, Outcome, ToolResultMessage,
};
use quipu::store::{RefName, Store as _, Until, decode_nodes};
use quipu::{Opened, PruneSettings, SessionOptions, ToolOutput};
use serde_json::json;

use crate::support::{Live, Reply, World, call, check_store, messages_of, result_text, say, text_of, tool};

/// A result is about 2,000 tokens.
const CHARACTERS: usize = 8_000;
const POINTER: &str = "[This result is left out";

fn prune() -> PruneSettings {
    PruneSettings {
        enabled: true,
        trigger_percent: 50,
        clear_at_least_percent: 10,
        keep_turns: 3,
        min_characters: 4_000,
    }
}

fn options(world: &World, prune: PruneSettings) -> SessionOptions {
    let model = Model {
        context_window: 60_000,
        input: vec!["text".into(), "image".into()],
        ..(*crate::support::model()).clone()
    };
    SessionOptions { model: Arc::new(model), prune, ..world.options() }
}

/// A tool that prints much, fails or shows a picture, as it is told.
fn world() -> World {
    let mut world = World::new();
    let print = |args: serde_json::Value, _| async move {
        let text = args["text"].as_str().unwrap_or_default().to_owned();
        let long = format!("{text} begins {} {text} ends", "x".repeat(CHARACTERS));
        match text.split('-').next() {
            Some("fail") => ToolOutput::error(long),
            Some("picture") => ToolOutput {
                content: vec![
                    Content::text(text),
                    Content::Image(ImageContent { data: "AAAA".into(), mime_type: "image/png".into() }),
                ],
                ..ToolOutput::default()
            },
            Some("short") => ToolOutput::text(text),
            _ => ToolOutput::text(long),
        }
    };
    world.tools = vec![tool("print", print)];
    world
}

fn print(text: &str) -> Reply {
    Reply { text: format!("I print {text}."), ..call(&[("print", json!({ "text": text }))]) }
}

fn results(messages: &[Message]) -> Vec<&ToolResultMessage> {
    let results = messages.iter().filter_map(|message| match message {
        Message::ToolResult(result) => Some(result),
        _ => None,
    });
    results.collect()
}

fn is_pointer(result: &ToolResultMessage) -> bool {
    result_text(result).starts_with(POINTER)
}

fn steps(live: &Live) -> Vec<(NodeId, u64, u64, u64)> {
    live.all(|event| match event {
        Event::ContextPruned { node, results, tokens_before, tokens_after } => {
            Some((*node, *results, *tokens_before, *tokens_after))
        }
        _ => None,
    })
}

/// What a body says, without what may change behind the last answer.
fn messages(body: &[u8]) -> Vec<serde_json::Value> {
    let body: serde_json::Value = serde_json::from_slice(body).unwrap();
    body["messages"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_thirty_turns_old_results_go_in_steps_and_between_them_what_was_sent_stays() {
    let world = world();
    world.fake.push([print("fail-0"), print("short-1"), print("picture-2")]);
    world.fake.push((3..33).map(|turn| print(&format!("long-{turn}"))));
    let live = world.create_with(options(&world, prune())).await;
    let long = format!("a long task {}", "word ".repeat(4_000));
    assert_eq!(live.run(&long).await, Outcome::Done);
    let bodies = world.fake.bodies();
    assert_eq!(bodies.len(), 34);
    let told = steps(&live);
    let mut broken = 0;
    for (at, pair) in bodies.windows(2).enumerate() {
        let (before, after) = (messages(&pair[0]), messages(&pair[1]));
        let warm = after.starts_with(&before);
        broken += usize::from(!warm);
        let sent = messages_of(&pair[1]);
        let results = results(&sent);
        let (old, last) = results.split_at(results.len().saturating_sub(3));
        assert!(last.iter().all(|result| !is_pointer(result)), "{at}: the last turns stay");
        assert!(old.iter().all(|result| !result.is_error || !is_pointer(result)), "{at}: failures stay");
        assert_eq!(text_of(&sent[0]), long, "{at}: the user's words stay");
        let tokens: u64 = sent.iter().map(quipu_transcript::estimate_tokens).sum();
        assert!(tokens < 36_000, "{at}: {tokens}");
    }
    assert_eq!((broken, told.len()), (3, 3), "{told:?}");
    assert!(
        told.iter()
            .all(|(_, results, before, after)| *results > 2 && before > &30_000 && after + 5_000 < *before)
    );
    let sent = messages_of(bodies.last().unwrap());
    let last = results(&sent);
    assert!(result_text(last[0]).starts_with("fail-0 begins") && result_text(last[1]) == "short-1");
    assert!(result_text(last[2]).contains("9 characters and an image.") && last[2].content.len() == 1);
    let said = result_text(last[3]);
    assert!(said.contains("long-3 begins") && said.ends_with("long-3 ends") && said.len() < 1_000, "{said}");

    // What it saves is told, and the count of what is left out.
    let view = live.session.view();
    let used = world.engine.context_use(view.head.unwrap(), &prune()).await.unwrap();
    let saved = used.pruned.unwrap();
    let left_out = last.iter().filter(|result| is_pointer(result)).count() as u64;
    assert_eq!(saved.results, left_out);
    assert!((1_700 * left_out..2_100 * left_out).contains(&saved.tokens), "{saved:?}");
    let whole = world.engine.context_use(view.head.unwrap(), &PruneSettings::default()).await;
    let whole = whole.unwrap();
    assert!(whole.pruned.is_none() && whole.tokens.abs_diff(used.tokens + saved.tokens) < 100, "{whole:?}");
    live.finish().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resumed_the_same_is_left_out_and_turned_off_nothing_is() {
    let world = world();
    world.fake.push((0..16).map(|turn| print(&format!("long-{turn}"))));
    let live = world.create_with(options(&world, prune())).await;
    live.run("go").await;
    assert!(!steps(&live).is_empty());
    let id = live.id();
    live.finish().await;
    let last = world.fake.bodies().pop().unwrap();
    let first: serde_json::Value = serde_json::from_slice(&last).unwrap();
    assert_eq!(first["tools"][1]["name"], "recall");

    let open = async |prune| {
        let Opened { session, troubles } = world.engine.open(&id, options(&world, prune)).await.unwrap();
        assert_eq!(troubles, []);
        Live::of(session).await
    };
    // The same bytes as far as there were any.
    let live = open(prune()).await;
    live.run("and?").await;
    assert!(steps(&live).is_empty());
    live.finish().await;
    let resumed = world.fake.bodies().pop().unwrap();
    let end = b"]";
    let common = last.iter().zip(&resumed).take_while(|(one, other)| one == other).count();
    assert!(last[common..].starts_with(end), "{}", String::from_utf8_lossy(&last[common..]));

    // Off: all is there again, and the tool is not.
    let live = open(PruneSettings::default()).await;
    live.run("off").await;
    live.finish().await;
    let off = world.fake.bodies().pop().unwrap();
    let sent = messages_of(&off);
    assert!(results(&sent).iter().all(|result| result_text(result).len() > CHARACTERS));
    assert!(!String::from_utf8_lossy(&off).contains("recall"));

    // On again, what was left out is left out.
    let live = open(prune()).await;
    live.run("on").await;
    live.finish().await;
    let on = messages(&world.fake.bodies().pop().unwrap());
    assert!(on.starts_with(&messages(&last)));
    // Each time the tools changed, so did what may extend what.
    assert_eq!(world.fake.bodies().len(), 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compaction_keeps_what_was_left_out_so_and_undone_the_context_is_as_before() {
    let world = world();
    world.fake.push((0..17).map(|turn| print(&format!("long-{turn}"))));
    let mut options = options(&world, prune());
    options.compaction.keep_recent_tokens = 11_500;
    let live = world.create_with(options.clone()).await;
    live.run("go").await;
    assert_eq!(steps(&live).len(), 1);
    let before = messages(&world.fake.bodies().pop().unwrap());
    world.fake.push([say("## Goal\nTo print.")]);
    live.session.compact(None).await.unwrap();
    live.settled(2).await;
    live.run("and?").await;
    let id = live.id();
    live.finish().await;
    let after = world.fake.bodies().pop().unwrap();
    let sent = messages_of(&after);
    assert!(text_of(&sent[0]).contains("To print."));
    let kept = results(&sent);
    assert!(
        kept.iter().any(|one| is_pointer(one)) && kept.iter().any(|one| !is_pointer(one)),
        "{}",
        kept.len()
    );

    // Read back, it is the same.
    let Opened { session, .. } = world.engine.open(&id, options.clone()).await.unwrap();
    let live = Live::of(session).await;
    live.run("again?").await;
    live.finish().await;
    assert!(messages(&world.fake.bodies().pop().unwrap()).starts_with(&messages(&after)));

    // And a fork from before the compaction has the old context, byte for byte.
    let head = world.store.head(&RefName::session(&id)).await.unwrap().unwrap();
    let nodes = world.store.lineage(head, Until::Root).await.unwrap();
    let decoded = decode_nodes(&*world.store, &nodes).await.unwrap();
    let at = decoded.iter().position(|one| matches!(one.entry, Entry::Compaction(_))).unwrap();
    let fork = world.engine.fork(nodes[at - 1].id, options).await.unwrap().session;
    fork.ask("and?").await.unwrap();
    fork.shutdown().await;
    assert!(messages(&world.fake.bodies().pop().unwrap()).starts_with(&before));
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_left_out_is_read_by_recall() {
    let world = world();
    world.fake.push([print("picture-0")]);
    world.fake.push((1..16).map(|turn| print(&format!("long-{turn}"))));
    let live = world.create_with(options(&world, prune())).await;
    live.run("go").await;
    let sent = messages_of(&world.fake.bodies().pop().unwrap());
    let pointers: Vec<String> =
        results(&sent).into_iter().filter(|one| is_pointer(one)).map(result_text).collect();
    let args = |pointer: &str| -> serde_json::Value {
        let (_, rest) = pointer.split_once("recall(").unwrap();
        serde_json::from_str(rest.split_once(").]").unwrap().0).unwrap()
    };
    let mut pages = args(&pointers[1]);
    world.fake.push([call(&[("recall", pages.clone())])]);
    live.run("read it").await;
    let (_, first, failed) = live.results().pop().unwrap();
    assert!(!failed && first.starts_with("--- archived node content ---\n"), "{first}");
    assert!(
        first.contains("long-1 begins") && first.contains("/8049 chars"),
        "{}",
        &first[first.len() - 300..]
    );
    let (_, next) = first.split_once("continue with offset ").unwrap();
    pages["offset"] = next.split('"').next().unwrap().parse::<u64>().unwrap().into();
    world.fake.push([call(&[
        ("recall", pages),
        ("recall", args(&pointers[0])),
        ("recall", json!({ "hash": "%" })),
    ])]);
    live.run("and the rest").await;
    let all = live.results();
    let [.., rest, picture, nothing] = all.as_slice() else { panic!("{all:?}") };
    assert!(rest.1.contains("long-1 ends]\n    // text truncated (showing 5000-"), "{}", rest.1);
    assert!(picture.1.contains("[image: image/png]"), "{picture:?}");
    assert!(nothing.2 && nothing.1.contains("No node of this project"), "{nothing:?}");
    let sent = messages_of(&world.fake.bodies().pop().unwrap());
    let picture = results(&sent).into_iter().rev().nth(1).unwrap();
    assert!(matches!(picture.content[..], [Content::Text(_), Content::Image(_)]), "the model sees it again");
    live.finish().await;
    world.check().await;
}

/// A session of another directory is not to be seen, nor one that was removed; another of the same directory is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recall_sees_this_project_and_no_other() {
    let world = world();
    let other = world.dir.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    let mut heads = Vec::new();
    for cwd in [world.cwd(), other.canonicalize().unwrap(), world.cwd()] {
        let options = SessionOptions { cwd, ..options(&world, PruneSettings::default()) };
        let live = world.create_with(options).await;
        live.run("a secret word").await;
        heads.push(live.session.view().head.unwrap().to_string());
        let id = live.id();
        live.finish().await;
        if heads.len() == 3 {
            world.engine.remove(&id).await.unwrap();
        }
    }
    let live = world.create_with(options(&world, prune())).await;
    let calls: Vec<_> = heads.iter().map(|head| ("recall", json!({ "hash": head }))).collect();
    world.fake.push([call(&calls)]);
    live.run("look").await;
    let results = live.results();
    assert!(results[0].1.contains("a secret word") && !results[0].2, "{results:?}");
    assert!(results[1..].iter().all(|result| result.2 && !result.1.contains("secret word")), "{results:?}");
    live.finish().await;
    // The calls of the one that was removed stand below no ref.
    check_store(&world.store).await;
}
