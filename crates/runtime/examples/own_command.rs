//! A command of one's own, for every front.
//!
//! It is registered at a place: whatever front stands on that place lists and runs it. Here that is a desk (`commands` and
//! `run` in docs/serve.md); the terminal shows it in its menu and in `/help`.
//!
//! ```sh
//! echo '{"type":"hello","version":1}
//! {"type":"commands","id":1}
//! {"type":"run","id":2,"name":"example:words","arguments":"three little words"}' | cargo run --example own_command
//! ```

use std::sync::Arc;

use futures_util::future::BoxFuture;
use quipu_host::{CommandCall, CommandHandler, Failure, OpenRequest, Place, Silent};
use quipu_protocol::{CommandSpec, CommandValue};
use quipu_runtime::Desk;

/// Counts the words behind its name, or has the model do it where there are none.
struct Words;

impl CommandHandler for Words {
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
        Box::pin(async move {
            Ok(match call.arguments.split_whitespace().count() {
                0 => CommandValue::Prompt { input: "Count the words of your last answer.".into() },
                count => CommandValue::Text { text: format!("{count} words") },
            })
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::find(None, Arc::new(Silent))?;
    let spec = CommandSpec::new("example:words", "count words", "the example").with_arguments("[TEXT]");
    place.commands().register(spec, Arc::new(Words))?;
    let desk = Desk::new(place, OpenRequest::default());
    desk.serve(tokio::io::stdin(), tokio::io::stdout()).await;
    desk.shutdown().await;
    Ok(())
}
