//! The smallest program around the engine: one session, one prompt, the answer printed.
//!
//! It runs without a key and without a network, since a script stands in for the model. For a real model take
//! `Settings::load(…)`, `find(…)` and `provider_for(…)` of `quipu-providers`.
//!
//! ```text
//! cargo run -p quipu --example minimal
//! ```

use std::sync::Arc;

use quipu::protocol::{Json, Model};
use quipu::{Engine, Script, ScriptStep, Sealer, SessionOptions};

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("notes.txt"), "Buy rope.\n")?;

    // The store keeps every step. This one is gone when the program ends; `store::open` makes one that stays.
    let store = quipu::store::in_memory()?;
    // The key makes the names of sealed secrets: keep one for each store (`quipu::seal_key`).
    let sealer = Arc::new(Sealer::new([0; 32]));
    let engine = Engine::new(store, sealer, dir.path().join("outputs"));

    let script = Script::new(vec![
        ScriptStep {
            text: "I look into the notes.".into(),
            calls: vec![("read".into(), Json::parse(r#"{"path":"notes.txt"}"#)?)],
            ..ScriptStep::default()
        },
        ScriptStep {
            expect: vec!["Buy rope.".into()],
            text: "You have to buy rope.".into(),
            ..ScriptStep::default()
        },
    ]);
    let model = Arc::new(Model { id: "script".into(), provider: "script".into(), ..Model::default() });
    let session = engine.create(SessionOptions::new(dir.path(), model, Arc::new(script))).await?;

    let (outcome, text) = session.ask("What do my notes say?").await?;
    println!("{text}\n({outcome:?}, session {})", session.view().session);
    session.shutdown().await;
    Ok(())
}
