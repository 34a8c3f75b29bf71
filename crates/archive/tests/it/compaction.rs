//! Where a real session is cut and what is carried on, beside what the program that wrote it does: the numbers were
//! taken from its version 0.85.1.

use std::sync::Arc;

use quipu_protocol::{ChunkId, Entry, Message, NodeId};
use quipu_transcript::{
    TouchedFiles, check_conversation, context, context_tokens, conversation_text, cut, estimate_tokens,
    last_count, message_of, project_messages, summary_of_note,
};
use sha2::{Digest as _, Sha256};

use crate::support::{FIXTURES, archive, fixture};

/// Roles in the order of the table: summaries, users, answers, results, commands run by hand.
fn roles(messages: &[Arc<Message>]) -> [usize; 5] {
    let mut count = [0; 5];
    for message in messages {
        let role = match &**message {
            Message::CompactionSummary(_) => 0,
            Message::User(_) => 1,
            Message::Assistant(_) => 2,
            Message::ToolResult(_) => 3,
            Message::BashExecution(_) => 4,
            Message::Custom(_) | Message::BranchSummary(_) | Message::Other(_) => panic!("{message:?}"),
        };
        count[role] += 1;
    }
    count
}

fn estimate(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| estimate_tokens(message)).sum()
}

fn in_other_words(message: &Arc<Message>) -> Arc<Message> {
    let Message::BashExecution(bash) = &**message else { return message.clone() };
    assert!(bash.exit_code == Some(0) && !bash.cancelled && !bash.truncated, "{bash:?}");
    let output =
        if bash.output.is_empty() { "(no output)".to_owned() } else { format!("```\n{}\n```", bash.output) };
    Arc::new(Message::user(format!("Ran `{}`\n{output}", bash.command), bash.timestamp))
}

#[test]
fn compaction_cut_matches_the_agent_that_wrote_it() {
    let archive = archive();
    archive.import_text("a.jsonl", fixture(FIXTURES[0]));
    let id = archive.rows().remove(0).id;
    let lineage = archive.lineage(id.as_str());
    // The header is a node of ours; there it is no entry.
    let branch: &[(NodeId, Entry)] = &lineage[1..];
    assert_eq!(branch.len(), 1002);

    let shown = context(&lineage);
    let (places, messages): (Vec<usize>, Vec<Arc<Message>>) = shown
        .into_iter()
        .filter_map(|at| Some((at, Arc::new(message_of(&lineage[at].1)?.into_owned()))))
        .unzip();
    assert_eq!(messages.len(), 446);
    assert_eq!(roles(&messages), [1, 31, 219, 192, 3]);

    assert_eq!(estimate(&messages), 139_429);
    let old = places.iter().filter(|at| **at <= places[0]).count();
    assert_eq!(context_tokens(&messages, old), 180_820);
    assert_eq!(last_count(&messages, old), Some((444, 168_018)));
    assert_eq!(estimate(&messages[445..]), 12_802);

    let cut = cut(&messages, 20_000).unwrap();
    let turn = cut.turn.unwrap();
    assert_eq!(places[cut.first_kept] - 1, 946);
    assert!(matches!(&*messages[cut.first_kept], Message::Assistant(_)));
    assert_eq!((turn - cut.begin, cut.first_kept - turn), (383, 7));

    let Message::CompactionSummary(previous) = &*messages[0] else { panic!("{:?}", messages[0]) };
    assert_eq!(previous.summary.encode_utf16().count(), 3_649);
    assert_eq!(summary_of_note(&previous.summary), previous.summary, "all of it goes to the next summary");

    // Commands that the user ran are told in words of our own; with the other program's words the rest is equal to
    // the last character.
    let history: Vec<Arc<Message>> = messages[cut.begin..turn].iter().map(in_other_words).collect();
    let text = conversation_text(&history);
    assert_eq!(text.encode_utf16().count(), 344_968);
    assert_eq!(ChunkId(Sha256::digest(&text).into()).to_string()[..16], *"60e27c0f419474b1");

    let mut files = TouchedFiles::default();
    files.add(&messages[cut.begin..cut.first_kept]);
    assert_eq!((files.read_files.len(), files.modified_files.len()), (2, 12));

    let sent = project_messages(messages.iter().cloned());
    check_conversation(&sent).unwrap();
    assert_eq!((sent.len(), roles(&sent)), (440, [0, 35, 212, 193, 0]));
}
