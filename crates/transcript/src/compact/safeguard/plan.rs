//! In which pieces a conversation is read.

use std::ops::Range;
use std::sync::Arc;

use quipu_protocol::Message;

use crate::compact::{conversation_text, estimate_text};

/// An estimate is taken for a fifth more than it says.
const MARGIN: (u64, u64) = (6, 5);
/// The largest share of the window that one piece has, and the smallest, in thousandths.
const SHARE: (u64, u64) = (400, 150);
/// Messages above so many thousandths of the window in the middle make pieces smaller.
const LARGE: u64 = 100;
/// Tokens for the instructions, the notes and the answer.
const OVERHEAD: u64 = 4_096;
/// Tokens of a piece at least.
const LEAST: u64 = 512;
/// Fewer messages are not read in two parts.
const FEW: usize = 4;

/// A message as the model that sums up reads it, with the results of its calls: these are never parted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryUnit {
    /// Whose message it is.
    pub speaker: &'static str,
    /// How many messages it stands for.
    pub messages: usize,
    /// The text.
    pub text: String,
    /// Its estimated tokens.
    pub tokens: u64,
}

/// The messages as units. What has no text is left out.
#[must_use]
pub fn summary_units(messages: &[Arc<Message>]) -> Vec<SummaryUnit> {
    let mut units: Vec<SummaryUnit> = Vec::new();
    let mut calls = false;
    for message in messages {
        let text = conversation_text(std::slice::from_ref(message));
        let is_result = matches!(**message, Message::ToolResult(_));
        if let (true, true, Some(last)) = (calls, is_result, units.last_mut()) {
            last.messages += 1;
            if !text.is_empty() {
                last.text.push_str("\n\n");
                last.text.push_str(&text);
                last.tokens = estimate_text(&last.text);
            }
            continue;
        }
        let speaker = match &**message {
            Message::Assistant(_) => "assistant",
            Message::ToolResult(_) => "tool",
            _ => "user",
        };
        // A result belongs to what stands before it; a unit without text still takes the results.
        calls = matches!(**message, Message::Assistant(_)) && !text.is_empty();
        if !text.is_empty() {
            let tokens = estimate_text(&text);
            units.push(SummaryUnit { speaker, messages: 1, text, tokens });
        }
    }
    units
}

fn with_margin(tokens: u64) -> u64 {
    tokens.saturating_mul(MARGIN.0) / MARGIN.1
}

fn tokens_of(units: &[SummaryUnit]) -> u64 {
    units.iter().fold(0, |sum, unit| sum.saturating_add(unit.tokens))
}

/// Whether a message has more than half of a window: a summary of the others may succeed where one with it fails.
#[must_use]
pub fn is_oversized(unit: &SummaryUnit, window: u64) -> bool {
    with_margin(unit.tokens) > window / 2
}

/// Tokens that a piece has at most, in a window of so many: the larger the messages are, the smaller. `None` where the window
/// is not known (the largest number).
#[must_use]
pub fn piece_tokens(units: &[SummaryUnit], window: u64) -> Option<u64> {
    if window == u64::MAX || window == 0 {
        return None;
    }
    let messages = units.iter().map(|unit| unit.messages as u64).sum::<u64>().max(1);
    let average =
        u128::from(with_margin(tokens_of(units))) * 1_000 / u128::from(messages) / u128::from(window);
    let average = u64::try_from(average).unwrap_or(u64::MAX);
    let (most, least) = SHARE;
    let share = match average > LARGE {
        true => most.saturating_sub(average.saturating_mul(2).min(most - least)).max(least),
        false => most,
    };
    let tokens = u64::try_from(u128::from(window) * u128::from(share) / 1_000).unwrap_or(u64::MAX);
    Some((tokens.saturating_sub(OVERHEAD).saturating_mul(MARGIN.1) / MARGIN.0).max(LEAST))
}

/// Where the first of two parts ends that have about as many tokens; at least one unit is on each side where there are two.
fn half(units: &[SummaryUnit]) -> usize {
    let all = tokens_of(units);
    let mut sum = 0_u64;
    for (at, unit) in units.iter().enumerate() {
        sum = sum.saturating_add(unit.tokens);
        if sum >= all / 2 {
            return (at + 1).min(units.len().saturating_sub(1)).max(1).min(units.len());
        }
    }
    units.len()
}

/// What is read first, as there is more than `percent` of the window: halves are taken off until the rest fits. Nothing where
/// it is not much more.
#[must_use]
pub fn older_share(units: &[SummaryUnit], window: u64, percent: u64) -> usize {
    let most = u64::try_from(u128::from(window) * u128::from(percent.min(100)) / 100).unwrap_or(u64::MAX);
    if window == u64::MAX || tokens_of(units) <= with_margin(most) {
        return 0;
    }
    let mut from = 0;
    while units.len() - from > 1 && tokens_of(&units[from..]) > most {
        from += half(&units[from..]);
    }
    from.min(units.len().saturating_sub(1))
}

/// The parts that get a summary each, which are made one then: all in one where they fit a piece, or two.
#[must_use]
pub fn summary_parts(units: &[SummaryUnit], piece: Option<u64>) -> Vec<Range<usize>> {
    let is_small = piece.is_none_or(|piece| tokens_of(units) <= piece);
    if units.is_empty() {
        return Vec::new();
    }
    if is_small || units.len() < FEW {
        return std::iter::once(0..units.len()).collect();
    }
    let middle = half(units);
    vec![0..middle, middle..units.len()]
}

/// The pieces of a part, which are read one after the other: each has as many tokens as one may have, or is one unit.
#[must_use]
pub fn summary_pieces(units: &[SummaryUnit], piece: Option<u64>) -> Vec<Range<usize>> {
    let piece = piece.unwrap_or(u64::MAX);
    let mut pieces = Vec::new();
    let (mut from, mut sum) = (0, 0_u64);
    for (at, unit) in units.iter().enumerate() {
        if at > from && sum.saturating_add(unit.tokens) > piece {
            pieces.push(from..at);
            (from, sum) = (at, 0);
        }
        sum = sum.saturating_add(unit.tokens);
    }
    if from < units.len() {
        pieces.push(from..units.len());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quipu_protocol::{AssistantMessage, Content, ToolResultMessage};

    use super::*;

    fn unit(tokens: u64) -> SummaryUnit {
        SummaryUnit { speaker: "user", messages: 1, text: String::new(), tokens }
    }

    #[test]
    fn results_stay_with_their_call() {
        let call = AssistantMessage { content: vec![Content::text("look")], ..AssistantMessage::default() };
        let result = ToolResultMessage {
            tool_call_id: "c".into(),
            tool_name: "read".into(),
            content: vec![Content::text("found")],
            details: None,
            usage: None,
            is_error: false,
            timestamp: 0,
        };
        let messages = [
            Arc::new(Message::user("do it", 1)),
            Arc::new(Message::Assistant(call)),
            Arc::new(Message::ToolResult(result.clone())),
            Arc::new(Message::ToolResult(result)),
            Arc::new(Message::user("", 2)),
        ];
        let units = summary_units(&messages);
        let found: Vec<_> = units.iter().map(|unit| (unit.speaker, unit.messages)).collect();
        assert_eq!(found, [("user", 1), ("assistant", 3)]);
        assert_eq!(units[1].text.matches("[Tool result]: found").count(), 2);
    }

    #[test]
    fn pieces_are_smaller_where_messages_are_large() {
        let small: Vec<_> = (0..100).map(|_| unit(100)).collect();
        assert_eq!(piece_tokens(&small, 200_000), Some((80_000 - 4_096) * 5 / 6));
        // A message has 0.3 of the window with the margin: the smallest share.
        let large: Vec<_> = (0..4).map(|_| unit(50_000)).collect();
        assert_eq!(piece_tokens(&large, 200_000), Some((30_000 - 4_096) * 5 / 6));
        // 0.12: between both.
        let some: Vec<_> = (0..4).map(|_| unit(20_000)).collect();
        assert_eq!(piece_tokens(&some, 200_000), Some((32_000 - 4_096) * 5 / 6));
        assert_eq!((piece_tokens(&some, u64::MAX), piece_tokens(&some, 4_000)), (None, Some(512)));
        assert!(is_oversized(&unit(84_000), 200_000) && !is_oversized(&unit(83_000), 200_000));
    }

    #[test]
    fn older_halves_are_read_first() {
        let units: Vec<_> = (0..16).map(|_| unit(10_000)).collect();
        assert_eq!(older_share(&units, 200_000, 50), 8, "160,000 is more than 120,000");
        assert_eq!(older_share(&units[..12], 200_000, 50), 0, "120,000 is not");
        assert_eq!(older_share(&units, 50_000, 50), 14);
        assert_eq!((older_share(&units, u64::MAX, 50), older_share(&[unit(9)], 1, 50)), (0, 0));
        assert_eq!(summary_parts(&units, Some(50_000)), [0..8, 8..16]);
        assert_eq!(summary_parts(&units[..3], Some(500)), std::slice::from_ref(&(0..3)));
        assert_eq!(summary_parts(&units, None), std::slice::from_ref(&(0..16)));
        assert_eq!(summary_pieces(&units[..5], Some(25_000)), [0..2, 2..4, 4..5]);
    }

    proptest! {
        #[test]
        fn every_unit_is_in_one_piece(
            sizes in prop::collection::vec(0_u64..100_000, 0..40), window in 0_u64..300_000, percent in 0_u64..120,
        ) {
            let units: Vec<_> = sizes.into_iter().map(unit).collect();
            let older = older_share(&units, window, percent);
            prop_assert!(older == 0 || older < units.len());
            let piece = piece_tokens(&units, window);
            for half in [&units[..older], &units[older..]] {
                let parts = summary_parts(half, piece);
                let mut next = 0;
                for part in &parts {
                    prop_assert_eq!(part.start, next);
                    prop_assert!(!part.is_empty());
                    next = part.end;
                    let mut within = 0;
                    for one in summary_pieces(&half[part.clone()], piece) {
                        prop_assert!(one.start == within && !one.is_empty());
                        within = one.end;
                        let tokens = tokens_of(&half[part.clone()][one.clone()]);
                        prop_assert!(one.len() == 1 || tokens <= piece.unwrap_or(u64::MAX));
                    }
                    prop_assert_eq!(within, part.len());
                }
                prop_assert_eq!(next, half.len());
            }
        }
    }
}
