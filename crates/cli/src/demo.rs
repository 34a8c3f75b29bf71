//! `quipu demo`: a whole coding task with a scripted model, on the real engine, tools and store.

use std::path::Path;
use std::sync::Arc;

use quipu::{Script, ScriptStep, Session, SessionOptions};
use quipu_protocol::{Input, Json, Model};
use quipu_store::{SessionQuery, Store};

use crate::args::{DemoArgs, Mode};
use crate::exit::{Exit, Failure};
use crate::print::{Paint, note, note_in};
use crate::run::Front;
use crate::setup::Place;
use crate::tree;

const PROGRAM: &str = include_str!("demo/discount.sh");
const TEST: &str = include_str!("demo/test.sh");
const TASK: &str = "The test fails. Find the bug, fix it, and show that the test passes.";

pub(crate) async fn run(args: &DemoArgs) -> Result<(), Failure> {
    let place = Place::find(&args.store)?;
    let temporary;
    let dir = match &args.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)
                .map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))?;
            dir.canonicalize()?
        }
        None => {
            temporary = tempfile::Builder::new().prefix("quipu-demo-").tempdir()?;
            temporary.path().canonicalize()?
        }
    };
    for (name, text) in [("discount.sh", PROGRAM), ("test.sh", TEST)] {
        let path = dir.join(name);
        if !path.exists() {
            std::fs::write(&path, text)
                .map_err(|error| Failure::failed(format!("{}: {error}", path.display())))?;
        }
    }
    note_in(
        Paint::bold,
        "A scripted model fixes a bug in a small program. Everything else is real: engine, tools, store.",
    );
    note(format!("workspace  {}", dir.display()));
    note(format!("task       {TASK}\n"));
    let store = place.store().await?;
    let engine = place.engine(store.clone(), &place.settings())?;
    let session = engine.create(options(&dir)).await?;
    let id = session.view().session;
    let front = Front::new(Mode::Text, &session, &dir.display().to_string())?;
    let end = follow(session, front).await;
    if let Err(failure) = end {
        note(format!("\nThe session up to here: quipu show {id}{}", place.store_flag()));
        return Err(failure);
    }
    let query = SessionQuery { id: Some(id.clone()), limit: Some(1), ..SessionQuery::default() };
    let rows = Store::sessions(&*store, query).await?;
    let Some(row) = rows.first() else {
        return Err(Failure::new(Exit::Store, "the session is not in the store"));
    };
    let drawn = tree::read(&*store, row).await?;
    let answer =
        drawn.rows.iter().rev().find(|row| row.decoded.step.call.is_some()).map(|row| row.node.id.short());
    note(format!("\nEvery step is a node of the graph in {}:\n", place.store.display()));
    let mut out = std::io::stdout().lock();
    for line in tree::draw(&drawn, row.head, Paint::stdout()) {
        std::io::Write::write_all(&mut out, format!("{line}\n").as_bytes())?;
    }
    drop(out);
    let flag = place.store_flag();
    let answer = answer.unwrap_or_default();
    note(format!(
        "\nLook at it:\n  quipu show {id}{flag}\n  quipu show {answer}{flag}            (one step)\n  \
         quipu show {answer} --request{flag}  (the bytes the model was sent)\n  quipu sessions --all{flag}"
    ));
    Ok(())
}

async fn follow(session: Session, front: Front) -> Result<(), Failure> {
    crate::run::run_prompts(session, vec![Input::from(TASK)], front, None).await.map_err(|mut failure| {
        if failure.exit == Exit::Departed {
            failure.message = format!("The demo stopped: {}", failure.message);
        }
        failure
    })
}

fn options(dir: &Path) -> SessionOptions {
    let model = Model {
        id: "scripted".into(),
        name: "Scripted".into(),
        api: "script".into(),
        provider: "demo".into(),
        context_window: 200_000,
        max_tokens: 8_000,
        ..Model::default()
    };
    SessionOptions::new(dir, Arc::new(model), Arc::new(Script::new(script())))
}

/// What the scripted model says, and what it must have seen before.
fn script() -> Vec<ScriptStep> {
    let call = |tool: &str, arguments: serde_json::Value| (tool.to_owned(), Json::from(arguments));
    vec![
        ScriptStep {
            text: "I will run the test first, and read the program beside it.".into(),
            calls: vec![
                call("bash", serde_json::json!({ "command": "sh test.sh" })),
                call("read", serde_json::json!({ "path": "discount.sh" })),
            ],
            ..ScriptStep::default()
        },
        ScriptStep {
            expect: vec!["FAIL discount 200 10: expected 180, got 190".into(), PROGRAM.into()],
            text: "The discount is subtracted as an amount; it should be a percentage of the price.".into(),
            calls: vec![call(
                "edit",
                serde_json::json!({
                    "path": "discount.sh",
                    "edits": [{ "oldText": "$((price - percent))", "newText": "$((price - price * percent / 100))" }],
                }),
            )],
        },
        ScriptStep {
            expect: vec!["Successfully replaced 1 block(s) in discount.sh.".into()],
            text: "Now the test again.".into(),
            calls: vec![call("bash", serde_json::json!({ "command": "sh test.sh" }))],
        },
        ScriptStep {
            expect: vec!["PASS".into()],
            text: "Fixed: `discount.sh` now takes the percentage of the price, and `sh test.sh` passes."
                .into(),
            calls: Vec::new(),
        },
    ]
}
