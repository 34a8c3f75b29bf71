//! Where a context is cut.

use std::sync::Arc;

use quipu_protocol::Message;

use super::{estimate_tokens, sent_tokens};

/// Where a compaction cuts a context. Positions are indexes into its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPoint {
    /// The first message that is summed up: after the summary of the compaction before, if there is one.
    pub begin: usize,
    /// The beginning of the turn that the cut goes through, when it goes through one: what is before is history,
    /// what is after belongs to what is kept.
    pub turn: Option<usize>,
    /// The first message that stays as it is.
    pub first_kept: usize,
}

/// Where to cut so that about `keep` tokens, by [`estimate_tokens`], stay as they are: never between a call and its
/// result. `None` when there is nothing before that point to sum up.
///
/// When no cut leaves as little as `keep`, because what came last is larger, the last possible one is taken.
pub fn cut(messages: &[Arc<Message>], keep: u64) -> Option<CutPoint> {
    let begin = match messages.first().map(AsRef::as_ref) {
        Some(Message::CompactionSummary(_)) => 1,
        _ => 0,
    };
    let mut kept = 0;
    let mut enough = None;
    for at in (begin..messages.len()).rev() {
        kept += estimate_tokens(&messages[at]);
        if kept >= keep {
            enough = Some(at);
            break;
        }
    }
    let enough = enough?;
    let can_be_first = |at: &usize| is_cut_point(&messages[*at]);
    let first_kept = (enough..messages.len())
        .find(can_be_first)
        .or_else(|| (begin..messages.len()).rev().find(can_be_first))?;
    if first_kept == begin {
        return None;
    }
    let turn = if begins_turn(&messages[first_kept]) {
        None
    } else {
        (begin..first_kept).rev().find(|at| begins_turn(&messages[*at]))
    };
    Some(CutPoint { begin, turn, first_kept })
}

/// The tokens, by [`sent_tokens`], of what a cut takes away, the summary before it left out. `all` are those of all
/// messages: only what stays is counted, so that the length of what goes costs nothing.
pub fn freed(messages: &[Arc<Message>], cut: CutPoint, all: u64) -> u64 {
    let stays = messages.iter().take(cut.begin).chain(messages.iter().skip(cut.first_kept));
    stays.fold(all, |left, message| left.saturating_sub(sent_tokens(message)))
}

fn is_cut_point(message: &Message) -> bool {
    match message {
        Message::Assistant(_) => true,
        Message::ToolResult(_) | Message::CompactionSummary(_) | Message::Other(_) => false,
        Message::User(_) | Message::BashExecution(_) | Message::Custom(_) | Message::BranchSummary(_) => true,
    }
}

/// Whether somebody other than the model speaks here.
fn begins_turn(message: &Message) -> bool {
    match message {
        Message::User(_) | Message::BashExecution(_) | Message::Custom(_) | Message::BranchSummary(_) => true,
        Message::Assistant(_)
        | Message::ToolResult(_)
        | Message::CompactionSummary(_)
        | Message::Other(_) => false,
    }
}
