//! Files go along with `tobe`, `undo` and `redo`.

use std::collections::BTreeMap;
use std::sync::Arc;

use quipu::protocol::{Json, Model, NodeId, SessionId};
use quipu::store::{OpenOptions, RefName, SqliteStore, Store as _, Until};
use quipu::{ChangeError, Engine, MergeSide, RestoreFiles, Script, ScriptStep, Sealer, SessionOptions};
use quipu_dag::Node;
use quipu_testkit::{Answer, Reply};
use serde_json::json;

use crate::branch_files::tree;
use crate::support::*;

fn write(path: &str, content: &str) -> Reply {
    call("c1", "write", &json!({ "path": path, "content": content }))
}

fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// The files in the directory of the command.
fn files(world: &World) -> BTreeMap<String, String> {
    let read = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(path).unwrap())
    };
    std::fs::read_dir(world.path("work")).unwrap().map(read).collect()
}

fn head(world: &World) -> String {
    world.sessions()[0]["head"].as_str().unwrap().to_owned()
}

#[test]
fn files_go_back_with_a_message_and_with_undo_and_forward_again() {
    let world =
        World::new([write("a", "one\n"), says("One."), write("a", "two\n"), says("Two."), says("Back.")]);
    world.file("mine", "not an agent's\n");
    world.run(&["-p", "first"]).ok();
    let (first, one) = (head(&world), files(&world));
    world.run(&["-p", "-c", "second"]).ok();
    let (second, two) = (head(&world), files(&world));

    // Shown, and refused without somebody who agrees.
    let shown = world.run(&["tobe", "--files", "--dry-run", "--json", &first, "Again."]).ok().json();
    assert_eq!(shown["files"]["changes"][0]["path"], "a");
    world.run(&["tobe", "--files", &first, "Again."]).fails(2, &["go back to", "add --yes"]);
    assert_eq!((head(&world), files(&world)), (second.clone(), two.clone()));

    let told = world.run(&["tobe", "--files", "--yes", "--json", &first, "Again."]).ok().json();
    assert_eq!(told["problems"], json!([]));
    assert_eq!(files(&world), one);
    world.run(&["-p", "-c"]).ok();
    let said = messages(world.requests().last().unwrap()).iter().map(wire_text).collect::<Vec<_>>();
    assert!(said.last().unwrap().contains("Again.\n[SYSTEM WARNING]: "), "{said:?}");
    assert!(said.last().unwrap().contains("made in the working directory since are undone"), "{said:?}");

    // The message and its answer go, and the files are what they were.
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world), two);
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world), one);
    world.run(&["undo", "--files", "--yes"]).ok();
    assert_eq!(files(&world).keys().collect::<Vec<_>>(), ["mine"]);
    world.run(&["redo", "--files", "--yes", "--steps", "2"]).ok();
    assert_eq!(files(&world), two);

    // What somebody changed since is not overwritten, and nothing moved.
    world.file("a", "by hand\n");
    let stood = head(&world);
    world.run(&["undo", "--files", "--yes"]).fails(1, &["1 of the files", "`--overwrite` replaces them"]);
    assert_eq!((head(&world), &*files(&world)["a"]), (stood, "by hand\n"));
    world.run(&["undo", "--files", "--overwrite", "--yes"]).ok();
    assert_eq!(files(&world), one);
}

#[test]
fn many_moves_undone_by_another_process_give_equal_files() {
    let turns = 12;
    let mut script = Vec::new();
    for turn in 0..turns {
        script.extend([write(["a", "b", "c"][turn % 3], &format!("turn {turn}\n")), says("Done.")]);
    }
    let world = World::new(script);
    world.run(&["-p", "turn 0"]).ok();
    let mut states = vec![files(&world)];
    let mut heads = vec![head(&world)];
    let (mut seed, mut turn) = (11_usize, 1);
    while states.len() <= 20 {
        seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
        if turn < turns && seed.is_multiple_of(2) {
            world.run(&["-p", "-c", &format!("turn {turn}")]).ok();
            turn += 1;
        } else {
            let to = heads[(seed >> 8) % heads.len()].clone();
            world.run(&["branch", "--files", "--yes", &to]).ok();
        }
        // Going where it stands is no step.
        if heads.last() != Some(&head(&world)) {
            states.push(files(&world));
            heads.push(head(&world));
        }
    }
    for (at, state) in states.iter().enumerate().rev().skip(1) {
        world.run(&["undo", "--files", "--yes"]).ok();
        assert_eq!(&files(&world), state, "after {at} moves");
    }
    let steps = (states.len() - 1).to_string();
    world.run(&["redo", "--files", "--yes", "--steps", &steps]).ok();
    assert_eq!(Some(&files(&world)), states.last());
    world.run(&["undo", "--files", "--yes", "--steps", &steps]).ok();
    assert_eq!(files(&world), states[0]);
}

/// An engine of this process over the world's store.
struct Moves {
    engine: Engine,
    options: SessionOptions,
    session: Option<SessionId>,
    /// A message to itself waits for its answer.
    waits: bool,
}

impl Moves {
    fn new(world: &World) -> Self {
        let store = Arc::new(SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap());
        let engine = Engine::new(store, Arc::new(Sealer::new([0; 32])), world.path("tmp"));
        let (model, script) = (Arc::new(Model::default()), Arc::new(Script::new(Vec::new())));
        let options = SessionOptions::new(world.path("work"), model, script);
        Self { engine, options, session: None, waits: false }
    }

    /// A turn in which the model makes this call.
    async fn turn(&mut self, tool: &str, arguments: serde_json::Value) {
        let text = |text: &str| ScriptStep { text: text.into(), ..ScriptStep::default() };
        let call = ScriptStep { calls: vec![(tool.into(), Json::from(&arguments))], ..ScriptStep::default() };
        let mut steps = vec![call, text("Done.")];
        if std::mem::take(&mut self.waits) {
            steps.insert(0, text("I see."));
        }
        let options = SessionOptions { provider: Arc::new(Script::new(steps)), ..self.options.clone() };
        let session = match &self.session {
            Some(id) => self.engine.open(id, options).await.unwrap().session,
            None => self.engine.create(options).await.unwrap(),
        };
        session.ask("Go on.").await.unwrap();
        self.session = Some(session.view().session);
        session.shutdown().await;
    }

    fn of(self, session: &SessionId) -> Self {
        Self { session: Some(session.clone()), ..self }
    }

    async fn head(&self) -> NodeId {
        let name = RefName::session(self.session.as_ref().unwrap());
        self.engine.store().head(&name).await.unwrap().unwrap()
    }
}

/// The messages up to a node.
async fn said(world: &World, at: NodeId) -> Vec<NodeId> {
    let store = SqliteStore::open(&world.store(), &OpenOptions::default()).unwrap();
    let nodes = store.lineage(at, Until::Root).await.unwrap();
    let is_said = |node: &&Node| ["user", "assistant", "toolResult"].contains(&node.record.role.as_str());
    nodes.iter().filter(is_said).map(|node| node.id).collect()
}

#[tokio::test]
async fn hundred_undos_restore_the_first_state_and_files() {
    const MOVES: usize = 100;
    let world = World::new([]);
    world.file("mine", "not an agent's\n");
    let mut moves = Moves::new(&world);
    moves.turn("write", json!({ "path": "a", "content": "begin\n" })).await;
    let id = moves.session.clone().unwrap();
    let (mut heads, mut states) = (vec![moves.head().await], vec![tree(&world)]);
    let mut legal = heads.clone();
    let how = RestoreFiles { overwrite: true, ..RestoreFiles::default() };
    let mut seed = 5_u64;
    let mut kinds = [0; 4];
    let mut at = 0;
    while heads.len() <= MOVES {
        at += 1;
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (kind, which) =
            (usize::try_from((seed >> 33) % 8).unwrap(), usize::try_from(seed >> 40).unwrap());
        let (old, file) = (heads[which % heads.len()], ["a", "b", "d/c", "d/e/f"][which % 4]);
        let kind = match kind {
            0 => {
                moves.engine.jump_with_files(old, None, &how).await.unwrap();
                moves.waits = false;
                0
            }
            1 => {
                let target = legal[which % legal.len()];
                moves.engine.tobe_with_files(target, "Look again.", &how).await.unwrap();
                moves.waits = true;
                1
            }
            2 => {
                let merged =
                    moves.engine.merge_along(old, &id, "", Some(MergeSide::Theirs), Some(&how)).await;
                match merged {
                    Ok(_) | Err(ChangeError::NothingToMerge { .. }) => 2,
                    Err(error) => panic!("{error}"),
                }
            }
            3 => {
                let command =
                    format!("mkdir -p d/e; chmod 600 a; rm -f {file}; mv b d/moved; printf {at} > new-{at}");
                moves.turn("bash", json!({ "command": command })).await;
                3
            }
            _ => {
                moves.turn("write", json!({ "path": file, "content": format!("{at}\n") })).await;
                legal.push(moves.head().await);
                3
            }
        };
        // Going where it stands is no step.
        let now = moves.head().await;
        if heads.last() != Some(&now) {
            heads.push(now);
            states.push(tree(&world));
            kinds[kind] += 1;
        }
    }
    assert!(kinds.iter().all(|kind| *kind > 3), "{kinds:?}");
    drop(moves);

    for (undone, state) in states.iter().rev().enumerate().step_by(20).skip(1) {
        let steps = world.run(&["undo", id.as_str(), "--steps", "20", "--files", "--yes", "--json"]).ok();
        assert_eq!(steps.json_lines().len(), 20);
        assert_eq!(&tree(&world), state, "{undone} undone");
    }
    assert_eq!(tree(&world), states[0]);
    // What is said there is the first turn, and nothing else.
    let stands = said(&world, Moves::new(&world).of(&id).head().await).await;
    assert_eq!(stands, said(&world, heads[0]).await);
    world.run(&["redo", id.as_str(), "--steps", "100", "--files", "--yes"]).ok();
    assert_eq!(tree(&world), states[MOVES]);
    world.run(&["undo", id.as_str(), "--steps", "100", "--files", "--yes"]).ok();
    assert_eq!(tree(&world), states[0]);
}
