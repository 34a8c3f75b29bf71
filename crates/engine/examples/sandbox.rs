//! Runs commands of a model in namespaces: no network, no secrets, no writing outside of the directory. This program is its own
//! launcher: started with `keep-commands` it becomes the process that keeps them.
//!
//! ```text
//! cargo run -p quipu --example sandbox
//! ```

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

use quipu::protocol::{Event, Json, Model};
use quipu::{
    Delivery, Doors, Engine, Launcher, Namespaces, PermissionRules, Permissions, Script, ScriptStep, Sealer,
    SessionOptions,
};

/// The argument with which the agent starts this program again.
const KEEP: &str = "keep-commands";

#[expect(clippy::print_stderr, reason = "an example shows what it does")]
fn main() -> ExitCode {
    let launcher = Launcher { program: "/proc/self/exe".into(), arguments: vec![OsString::from(KEEP)] };
    // Before anything else, and before there is a second thread.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == KEEP) {
        return quipu::run_launcher(&launcher);
    }
    match run(launcher) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn run(launcher: Launcher) -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let (work, own) = (dir.path().join("work"), dir.path().join("own"));
    std::fs::create_dir(&work)?;
    std::fs::create_dir(&own)?;
    let bash = |command: &str| ("bash".to_owned(), Json::from(serde_json::json!({ "command": command })));
    let script = Script::new(vec![
        ScriptStep {
            calls: vec![
                bash("echo made > file && cat file"),
                bash("echo x > /dev/tcp/192.0.2.1/80"),
                bash("echo x > ../outside"),
            ],
            ..ScriptStep::default()
        },
        ScriptStep { text: "That is all.".into(), ..ScriptStep::default() },
    ]);
    let rules = PermissionRules {
        cwd: work.clone(),
        own: own.clone(),
        namespaces: Some(Namespaces {
            launcher,
            home: std::env::home_dir(),
            hidden: vec![own.clone()],
            visible: Vec::new(),
            doors: Doors::default(),
        }),
        ..PermissionRules::default()
    };
    let engine = Engine::new(quipu::store::in_memory()?, Arc::new(Sealer::new([0; 32])), own.join("outputs"));
    let model = Arc::new(Model { id: "script".into(), provider: "script".into(), ..Model::default() });
    let options = SessionOptions {
        // A `bash` that can ask for the network, and for what configures programs.
        tools: quipu::builtin_isolated(),
        policy: Arc::new(Permissions::new(rules, [])),
        ..SessionOptions::new(&work, model, Arc::new(script))
    };
    let session = engine.create(options).await?;
    let (_, mut events) = session.subscribe(Delivery::Lossless).await?;
    session.prompt("Try it.").await?;
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::ToolEnded { result, .. } => {
                println!("{}: {:?}", if result.is_error { "failed" } else { "done" }, result.content);
            }
            // Where there are no namespaces, why.
            Event::Ui { ui: quipu::protocol::Ui::Notice { notice: trouble } } => println!("{trouble:?}"),
            Event::Settled => break,
            _ => {}
        }
    }
    session.shutdown().await;
    Ok(())
}
