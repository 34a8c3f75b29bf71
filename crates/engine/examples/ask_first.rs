//! Asks the user before each command: a policy says which calls need a person, a subscriber answers.
//!
//! Type `y` and Enter to allow a command, anything else to refuse it; with no input at all it is refused.
//!
//! ```text
//! cargo run -p quipu --example ask_first
//! ```

use std::sync::Arc;

use quipu::protocol::{Answer, Command, Event, Json, Message, Model};
use quipu::{Decision, Delivery, Engine, Policy, Proposal, Script, ScriptStep, Sealer, SessionOptions};

/// Commands need a person; reading and editing files does not.
struct AskForCommands;

impl Policy for AskForCommands {
    fn decide(&self, proposal: &Proposal<'_>) -> Decision {
        match (proposal.call.name.as_str(), proposal.text("command")) {
            ("bash", Some(command)) if command.contains("sudo") => {
                Decision::Deny { reason: "Commands must not ask for more rights.".into() }
            }
            ("bash", Some(command)) => {
                Decision::Ask { question: "Run this command?".into(), subject: command }
            }
            _ => Decision::Allow,
        }
    }
}

#[tokio::main]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let engine =
        Engine::new(quipu::store::in_memory()?, Arc::new(Sealer::new([0; 32])), dir.path().join("outputs"));
    let bash = |command: &str| ("bash".to_owned(), Json::from(serde_json::json!({ "command": command })));
    let script = Script::new(vec![
        ScriptStep {
            text: "I would run two commands.".into(),
            calls: vec![bash("date"), bash("sudo date")],
            ..ScriptStep::default()
        },
        ScriptStep { text: "That is all.".into(), ..ScriptStep::default() },
    ]);
    let model = Arc::new(Model { id: "script".into(), provider: "script".into(), ..Model::default() });
    let options = SessionOptions {
        policy: Arc::new(AskForCommands),
        ..SessionOptions::new(dir.path(), model, Arc::new(script))
    };
    let session = engine.create(options).await?;

    // While such a subscriber is there, questions wait for an answer; with nobody there they count as refused.
    let (_, mut events) = session.subscribe_and_answer(Delivery::Lossless).await?;
    session.prompt("What time is it?").await?;
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::AskOpened { ask } => {
                let Some(asked) = ask.permission() else { continue };
                println!("{} {} [y/N]", asked.question, asked.subject);
                let line = tokio::task::spawn_blocking(|| {
                    let mut line = String::new();
                    std::io::stdin().read_line(&mut line).map(|_| line)
                });
                let answer = match line.await??.trim() {
                    "y" => Answer::once(),
                    _ => Answer::Deny { reason: Some("Not now.".into()) },
                };
                session.send(Command::Answer { ask: ask.id.clone(), answer }).await?;
            }
            Event::ToolEnded { result, .. } => println!("{}: {:?}", result.tool_name, result.content),
            Event::MessageEnded { message, .. } => {
                if let Message::Assistant(answer) = &**message {
                    println!("{}", answer.text());
                }
            }
            Event::Settled => break,
            _ => {}
        }
    }
    session.shutdown().await;
    Ok(())
}
