//! Commands with a slash that come from elsewhere: a registry of what they are and what runs them.
//!
//! A front lists what the registry holds. What the terminal does itself it has put there too (`built-in`), without
//! anything that runs it elsewhere.

mod error;
mod registry;
mod run;

use futures_util::future::BoxFuture;
use quipu::Session;
use quipu_protocol::CommandValue;

pub use error::CommandError;
pub use registry::{BUILT_IN, CommandRegistry, MAX_COMMANDS};
pub use run::{COMMAND_DEADLINE, MAX_COMMAND_TEXT};

use crate::Failure;

/// Runs a command.
///
/// It may take [`COMMAND_DEADLINE`]; then it is dropped. It must not block its thread. What it does to the session it does
/// through the session's handle, like any front.
///
/// ```
/// use std::sync::Arc;
///
/// use futures_util::future::BoxFuture;
/// use quipu_host::{CommandCall, CommandHandler, CommandRegistry, Failure};
/// use quipu_protocol::{CommandSpec, CommandValue};
///
/// struct Shout;
///
/// impl CommandHandler for Shout {
///     fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>> {
///         Box::pin(async { Ok(CommandValue::Text { text: call.arguments.to_uppercase() }) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let registry = CommandRegistry::default();
/// let spec = CommandSpec::new("example:shout", "say it louder", "an example").with_arguments("TEXT");
/// registry.register(spec, Arc::new(Shout)).unwrap();
/// let call = CommandCall { arguments: "hello".into(), session: None };
/// let value = registry.run("example:shout", call).await.unwrap();
/// assert_eq!(value, CommandValue::Text { text: "HELLO".into() });
/// # });
/// ```
pub trait CommandHandler: Send + Sync + 'static {
    /// Does what the command says.
    ///
    /// # Errors
    /// Why that did not go, for people.
    fn run<'a>(&'a self, call: &'a CommandCall) -> BoxFuture<'a, Result<CommandValue, Failure>>;

    /// What may follow, where the command `completes`: whole texts behind the name. A hundred are used, of what comes
    /// within two seconds.
    fn complete<'a>(&'a self, arguments: &'a str) -> BoxFuture<'a, Vec<String>> {
        let _ = arguments;
        Box::pin(std::future::ready(Vec::new()))
    }
}

/// What a command is run with.
#[derive(Clone)]
pub struct CommandCall {
    /// What follows its name.
    pub arguments: String,
    /// The session that is open, where one is.
    pub session: Option<Session>,
}
