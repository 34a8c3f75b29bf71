//! Going to another node together with the files.

use quipu_machine::Draft;
use quipu_protocol::{Body, Content, CustomMessage, Entry, Message, UnixMs};
use quipu_seal::Sealer;

use quipu_transcript::FilePlan;

/// The kind of the message that tells the model what was not put back.
const KIND: &str = "quipu.files";
const LINES: usize = 50;
const PUT_BACK: &str = "The user went to this point of the conversation and restored the files: the known changes that \
                        tools made in the working directory are undone. Not restored, or not known:";

/// Tells the model what was not put back when a person took the files along; `None` when there is nothing to tell.
pub(crate) fn change_note(plan: &FilePlan, sealer: &Sealer, now: UnixMs) -> Option<Draft> {
    let lines = plan.stays_in_short(LINES);
    if lines.is_empty() {
        return None;
    }
    let lines = sealer.seal(&lines);
    let message = CustomMessage {
        custom_type: KIND.to_owned(),
        content: Body::Blocks(vec![Content::text(format!("{PUT_BACK}\n{lines}"))]),
        display: false,
        details: None,
        timestamp: now,
    };
    Some(Draft::new(Entry::Message(Message::Custom(message))))
}

/// Whether an entry tells the model that. It is nobody's message.
pub(crate) fn tells_of_files(entry: &Entry) -> bool {
    matches!(entry, Entry::Message(Message::Custom(custom)) if custom.custom_type == KIND)
}
