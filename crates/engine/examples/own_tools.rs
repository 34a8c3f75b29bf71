//! An agent of another kind: its own system prompt, and two tools of its own in place of all four built-in ones.
//!
//! ```text
//! cargo run -p quipu --example own_tools
//! ```

use std::pin::Pin;
use std::sync::{Arc, Mutex};

use quipu::protocol::{Event, Json, Message, Model, ToolSpec};
use quipu::{
    Delivery, Engine, Invocation, Script, ScriptStep, Sealer, SessionOptions, Tool, ToolContext, ToolOutput,
    Touches,
};

/// What the shop has: the state that both tools share.
type Shelf = Arc<Mutex<Vec<(String, u32)>>>;

/// `count {item}`: how many there are.
struct Count {
    spec: ToolSpec,
    shelf: Shelf,
}

/// `sell {item}`: takes one away.
struct SellTool {
    spec: ToolSpec,
    shelf: Shelf,
}

fn spec(name: &str, description: &str) -> ToolSpec {
    let schema = r#"{"type":"object","properties":{"item":{"type":"string"}},"required":["item"]}"#;
    ToolSpec {
        name: name.into(),
        description: description.into(),
        parameters: Json::parse(schema).unwrap_or_else(|_| Json::object()),
    }
}

/// The argument was checked against the schema before the tool was called.
fn item(call: &Invocation) -> String {
    call.args.value()["item"].as_str().unwrap_or_default().to_owned()
}

impl Tool for Count {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        _: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let name = item(&call);
            match self.shelf.lock() {
                Ok(shelf) => match shelf.iter().find(|(known, _)| *known == name) {
                    Some((_, count)) => ToolOutput::text(format!("{count} left")),
                    None => ToolOutput::error(format!("There is no {name}.")),
                },
                Err(_) => ToolOutput::error("The shelf fell down."),
            }
        })
    }

    /// Calls of one answer run side by side, except where they say that they touch the same thing.
    fn touches(&self, _: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Reads(vec![cx.cwd.join("shelf")])
    }
}

impl Tool for SellTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run<'a>(
        &'a self,
        call: Invocation,
        _: &'a ToolContext,
    ) -> Pin<Box<dyn Future<Output = ToolOutput> + Send + 'a>> {
        Box::pin(async move {
            let name = item(&call);
            let Ok(mut shelf) = self.shelf.lock() else { return ToolOutput::error("The shelf fell down.") };
            match shelf.iter_mut().find(|(known, count)| *known == name && *count > 0) {
                Some((_, count)) => {
                    *count -= 1;
                    ToolOutput::text("sold")
                }
                // An error is a result like any other: the model reads it and decides.
                None => ToolOutput::error(format!("There is no {name} to sell.")),
            }
        })
    }

    fn touches(&self, _: &serde_json::Value, cx: &ToolContext) -> Touches {
        Touches::Writes(vec![cx.cwd.join("shelf")])
    }
}

fn step(text: &str, calls: &[(&str, &str)], expect: &[&str]) -> ScriptStep {
    let call =
        |(tool, item): &(&str, &str)| ((*tool).to_owned(), Json::from(serde_json::json!({ "item": item })));
    ScriptStep {
        expect: expect.iter().map(|piece| (*piece).to_owned()).collect(),
        text: text.into(),
        calls: calls.iter().map(call).collect(),
    }
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "an example shows what it does")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = tempfile::tempdir()?;
    let engine =
        Engine::new(quipu::store::in_memory()?, Arc::new(Sealer::new([0; 32])), dir.path().join("outputs"));
    let shelf: Shelf = Arc::new(Mutex::new(vec![("lamp".into(), 1), ("rope".into(), 7)]));
    let script = Script::new(vec![
        // The second sale waits for the first, since both write the shelf.
        step("Let me see.", &[("count", "lamp"), ("sell", "lamp"), ("sell", "lamp")], &[]),
        step(
            "Sold one lamp; the second is not there.",
            &[],
            &["1 left", "sold", "There is no lamp to sell."],
        ),
    ]);
    let model = Arc::new(Model { id: "script".into(), provider: "script".into(), ..Model::default() });
    let options = SessionOptions {
        system: Some("You keep a small shop. Sell what is there and nothing else.".into()),
        tools: vec![
            Arc::new(Count { spec: spec("count", "How many of an item are left."), shelf: shelf.clone() }),
            Arc::new(SellTool { spec: spec("sell", "Sells one of an item."), shelf }),
        ],
        ..SessionOptions::new(dir.path(), model, Arc::new(script))
    };
    let session = engine.create(options).await?;

    // Everything that happens comes out as events.
    let (_, mut events) = session.subscribe(Delivery::Lossless).await?;
    session.prompt("Two lamps, please.").await?;
    while let Some(envelope) = events.next().await {
        match &envelope.event {
            Event::ToolStarted { name, args, .. } => println!("{name} {args}"),
            Event::ToolEnded { result, .. } => println!("  {:?}", result.content),
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
