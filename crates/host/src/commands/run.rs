//! Running a command within its limits.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;
use quipu_protocol::CommandValue;

use super::registry::Row;
use super::{CommandCall, CommandError, CommandRegistry};

/// How long a command may take.
pub const COMMAND_DEADLINE: Duration = Duration::from_secs(60);
/// Bytes of a text that a command shows at most.
pub const MAX_COMMAND_TEXT: usize = 256 << 10;
/// Bytes of what a command says to the model at most, as JSON.
const MAX_PROMPT: usize = 16 << 20;
/// Characters of an error at most.
const MAX_WHY: usize = 1_000;
/// What may follow a command: how much is offered, and how long that may take.
const OFFERED: usize = 100;
const OFFER: Duration = Duration::from_secs(2);

impl CommandRegistry {
    /// Runs a command. Dropped: it ends.
    ///
    /// # Errors
    /// `Unknown`, `OfTerminal`, and whatever goes wrong with it.
    pub async fn run(&self, name: &str, call: CommandCall) -> Result<CommandValue, CommandError> {
        self.run_within(name, call, COMMAND_DEADLINE).await
    }

    /// The same within another time.
    ///
    /// # Errors
    /// As [`CommandRegistry::run`].
    pub async fn run_within(
        &self,
        name: &str,
        call: CommandCall,
        deadline: Duration,
    ) -> Result<CommandValue, CommandError> {
        let shown = || name.chars().take(64).collect::<String>();
        let Some(Row { spec, handler }) = self.row(name) else {
            return Err(CommandError::Unknown { name: shown() });
        };
        let Some(handler) = handler else { return Err(CommandError::OfTerminal { name: shown() }) };
        let (name, origin) = (spec.name, spec.source);
        let work = AssertUnwindSafe(async { handler.run(&call).await }).catch_unwind();
        let value = match tokio::time::timeout(deadline, work).await {
            Err(_) => {
                let seconds = deadline.as_secs();
                return Err(CommandError::TimedOut { name, origin, seconds });
            }
            Ok(Err(_)) => return Err(CommandError::Panicked { name, origin }),
            Ok(Ok(Err(failure))) => {
                let why = failure.message.chars().take(MAX_WHY).collect();
                return Err(CommandError::Failed { name, origin, why });
            }
            Ok(Ok(Ok(value))) => value,
        };
        let (size, limit) = match &value {
            CommandValue::Prompt { input } => {
                (serde_json::to_vec(input).map_or(usize::MAX, |json| json.len()), MAX_PROMPT)
            }
            CommandValue::Text { text } => (text.len(), MAX_COMMAND_TEXT),
            CommandValue::Done => (0, 0),
        };
        if size > limit { Err(CommandError::TooLarge { name, origin, limit }) } else { Ok(value) }
    }

    /// What may follow a command. Nothing where it does not say, or says it too late.
    pub async fn complete(&self, name: &str, arguments: &str) -> Vec<String> {
        let Some(Row { spec, handler: Some(handler) }) = self.row(name) else { return Vec::new() };
        if !spec.completes {
            return Vec::new();
        }
        let work = AssertUnwindSafe(async { handler.complete(arguments).await }).catch_unwind();
        let mut offered = match tokio::time::timeout(OFFER, work).await {
            Ok(Ok(offered)) => offered,
            Ok(Err(_)) | Err(_) => Vec::new(),
        };
        offered.truncate(OFFERED);
        offered.retain(|text| text.len() <= MAX_WHY && !text.contains(char::is_control));
        offered
    }
}
