//! `quipu undo` and `quipu redo`: what moved a session is taken back by another process, and done again.

use std::sync::Arc;

use quipu::protocol::{Model, NodeId, SessionId};
use quipu::store::{OpenOptions, RefName, SqliteStore, Until};
use quipu::{Engine, Opened, Script, ScriptStep, Sealer, SessionOptions};
use quipu_testkit::{Answer, Gate, Reply};
use serde_json::{Value, json};

use crate::support::*;

/// An engine of this process over the world's store, and what a session of it is made of.
pub(crate) fn engine(world: &World, answers: usize) -> (Engine, SessionOptions) {
    let store = Arc::new(SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap());
    let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), world.path("tmp"));
    let steps = (0..answers).map(|at| ScriptStep { text: format!("answer {at}"), ..ScriptStep::default() });
    let model = Arc::new(Model { id: "script".into(), ..Model::default() });
    let script = Arc::new(Script::new(steps.collect()));
    (engine, SessionOptions::new(world.path("work"), model, script))
}

async fn head(engine: &Engine, session: &SessionId) -> Option<NodeId> {
    engine.store().head(&RefName::session(session)).await.unwrap()
}

/// Says something in the session.
async fn say(engine: &Engine, session: &SessionId, options: &SessionOptions, text: &str) {
    let Opened { session, troubles } = engine.open(session, options.clone()).await.unwrap();
    assert_eq!(troubles, []);
    session.ask(text).await.unwrap();
    session.shutdown().await;
}

#[tokio::test]
async fn a_hundred_moves_are_undone_by_another_process_and_done_again() {
    let world = World::new([]);
    let (engine, options) = engine(&world, 101);
    let session = engine.create(options.clone()).await.unwrap();
    session.ask("begin").await.unwrap();
    let id = session.view().session;
    session.shutdown().await;
    let mut heads = vec![head(&engine, &id).await.unwrap()];
    let mut seed = 7_u64;
    let mut at = 0;
    while heads.len() <= 100 {
        at += 1;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, which) = ((seed >> 33) % 4, usize::try_from(seed >> 40).unwrap());
        let here = *heads.last().unwrap();
        // Behind the session's first node.
        let lineage = engine.store().lineage(here, Until::Root).await.unwrap();
        let old = heads[which % heads.len()];
        match kind {
            0 => drop(engine.jump(old, None).await.unwrap()),
            1 => drop(engine.jump(old, Some("here")).await.unwrap()),
            2 if lineage.len() > 1 => {
                drop(engine.jump(lineage[1 + which % (lineage.len() - 1)].id, None).await.unwrap());
            }
            _ => say(&engine, &id, &options, &format!("turn {at}")).await,
        }
        // Going where it stands is no step.
        let now = head(&engine, &id).await.unwrap();
        heads.extend(Some(now).filter(|now| *now != here));
    }
    drop(engine);

    let steps = world.run(&["undo", id.as_str(), "--steps", "100", "--yes", "--json"]).ok().json_lines();
    let to: Vec<Value> = steps.iter().map(|step| step["to"].clone()).collect();
    let back: Vec<Value> = heads.iter().rev().skip(1).map(|head| json!(head)).collect();
    assert_eq!(to, back);
    assert_eq!(world.sessions()[0]["head"], json!(heads[0]), "the first state");
    let steps = world.run(&["redo", id.as_str(), "--steps", "100", "--yes", "--json"]).ok().json_lines();
    let to: Vec<Value> = steps.iter().map(|step| step["to"].clone()).collect();
    assert_eq!(to, heads[1..].iter().map(|head| json!(head)).collect::<Vec<_>>());
    assert_eq!(world.sessions()[0]["head"], json!(heads[100]), "and the last");
    world.run(&["redo", id.as_str(), "--yes"]).fails(2, &["there is nothing to do again"]);
}

#[test]
fn a_step_is_a_turn_a_jump_a_fork_or_a_removal() {
    let answers = ["One.", "Two.", "Three."].map(|text| Answer::new().text(text).reply());
    let world = World::new(answers);
    world.run(&["-p", "one"]).ok();
    let first = world.sessions()[0].clone();
    let id = first["id"].as_str().unwrap();
    world.run(&["-p", "-c", "two"]).ok();
    let second = world.sessions()[0]["head"].clone();

    // It is asked; without a person it is not done.
    world.run(&["undo"]).fails(2, &["1 step(s) (turn)", "only after you confirm: add --yes"]);
    let (code, seen) = on_terminal(&world, &["undo"], "n\n", 200);
    assert_eq!(code, Some(1), "{seen}");
    assert!(seen.contains("Undo 1 step(s) (turn)") && seen.contains("not undone"), "{seen}");
    assert_eq!(world.sessions()[0]["head"], second);

    let ran = world.run(&["undo", "--yes"]).ok();
    assert_eq!(json!(ran.text().trim()), first["head"]);
    assert!(ran.err.contains("turn undone") && ran.err.contains("quipu redo"), "{}", ran.err);
    world.run(&["redo"]).fails(2, &["1 step(s) (turn)", "are redone only after you confirm: add --yes"]);
    let (code, seen) = on_terminal(&world, &["redo"], "n\n", 200);
    assert!(code == Some(1) && seen.contains("Redo 1 step(s) (turn)"), "{code:?}: {seen}");
    assert_eq!(world.sessions()[0]["head"], first["head"]);
    world.run(&["redo", "--yes"]).ok();
    assert_eq!(world.sessions()[0]["head"], second);

    // A new move leaves nothing to do again; what was undone is in the graph.
    world.run(&["undo", "--yes"]).ok();
    world.run(&["-p", "-c", "three"]).ok();
    world.run(&["redo", "--yes"]).fails(2, &["nothing to do again"]);
    world.run(&["show", second.as_str().unwrap()]).ok();
    let told = world.run(&["undo", "--yes", "--json", "--steps", "9"]).ok().json_lines();
    let what: Vec<&Value> = told.iter().map(|step| &step["what"]).collect();
    assert_eq!(what, ["turn", "turn", "start"], "and what was undone before is not undone again");
    assert_eq!(told[2]["to"], Value::Null);
    assert_eq!(world.sessions().len(), 0);
    world.run(&["redo", id, "--steps", "2", "--yes"]).ok();
    assert_eq!(world.sessions()[0]["head"], first["head"]);

    // A session that was removed, and one that was forked.
    world.run(&["rm", id, "--yes"]).ok();
    let told = world.run(&["undo", id, "--yes", "--json"]).ok().json();
    assert_eq!((&told["what"], &told["to"]), (&json!("remove"), &first["head"]));
    let fork = world.run(&["clone", id]).ok().text();
    let told = world.run(&["undo", fork.trim(), "--yes", "--json"]).ok().json();
    assert_eq!((&told["what"], &told["to"]), (&json!("fork"), &Value::Null));
    assert_eq!(world.sessions().len(), 1);
    world.run(&["undo", fork.trim(), "--yes"]).fails(2, &["there is nothing to undo"]);
    world.run(&["undo", "nothing-of-the-kind"]).exits(2);
}

#[test]
fn undo_refuses_a_busy_session() {
    let gate = Gate::new();
    let gated = Reply::sse("").then_gate(&gate).then(Answer::new().text("Two.").stream());
    let world = World::new([Answer::new().text("One.").reply(), gated]);
    world.run(&["-p", "one"]).ok();
    let running = world.start(&["-p", "-c", "two"]);
    reached(&gate);
    world.run(&["undo", "--yes"]).fails(1, &["another process is working on session"]);
    gate.open();
    running.wait().ok();
    world.run(&["undo", "--yes"]).ok();
}
