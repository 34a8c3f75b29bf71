//! What can be said to `quipu tools`.

use clap::Args;
use quipu_host::{ChatGroup, Sender};

use super::{ModelArgs, OutArgs};

/// A conversation of several people.
fn group(text: &str) -> Result<ChatGroup, String> {
    match text.split_once(':') {
        Some((channel, room)) if !channel.is_empty() && !room.is_empty() => {
            Ok(ChatGroup { channel: channel.to_owned(), room: room.to_owned() })
        }
        _ => Err("it is written CHANNEL:ROOM, such as telegram:-100".to_owned()),
    }
}

/// Who sent a message.
fn sender(text: &str) -> Result<Sender, String> {
    let (kind, value) = match text.split_once(':') {
        Some((kind @ ("id" | "e164" | "username"), value)) => (Some(kind), value),
        _ => (None, text),
    };
    if value.is_empty() {
        return Err("it is empty".to_owned());
    }
    let Some(kind) = kind else { return Ok(Sender::of_id(value)) };
    let of = |wanted: &str| (kind == wanted).then(|| value.to_owned());
    Ok(Sender { id: of("id"), e164: of("e164"), username: of("username"), name: None })
}

#[derive(Debug, Args)]
pub(crate) struct ToolsArgs {
    /// The session: its id, the start of its id, or its name. Default: a new one.
    #[arg(value_name = "SESSION")]
    pub(crate) session: Option<String>,
    /// As an agent has them that `agents.byId` in settings.json sets up, with its model and in its workspace.
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
    /// As a conversation of several people has them.
    #[arg(long, value_name = "CHANNEL:ROOM", value_parser = group)]
    pub(crate) group: Option<ChatGroup>,
    /// As who sent a message has them: an id, or `id:`, `e164:` or `username:` and its value.
    #[arg(long, value_name = "SENDER", value_parser = sender)]
    pub(crate) sender: Option<Sender>,
    #[command(flatten)]
    pub(crate) out: OutArgs,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}
