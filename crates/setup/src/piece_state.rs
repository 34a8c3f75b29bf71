//! How a piece stands in the text of its file.

use serde_json::Value;

use crate::document::Content;
use crate::edit::{EditError, Placement};
use crate::ledger::{PieceRecord, RecordContent};
use crate::piece::{Piece, PieceContent, PieceState, sha256};
use crate::recognition::Recognition;

/// How a piece stands in the text of its file. `old` is what an earlier setup wrote in its place.
pub(crate) fn state_of(
    text: Option<&str>,
    piece: &Piece,
    old: Option<&PieceRecord>,
    recognition: Recognition<'_>,
) -> Result<PieceState, EditError> {
    let Some(text) = text else { return Ok(PieceState::Missing) };
    match &piece.content {
        PieceContent::File(wanted) => {
            let is_old = |old: &PieceRecord| match &old.content {
                RecordContent::File { sha256: old } => *old == sha256(text),
                RecordContent::Value { .. } => false,
            };
            Ok(match text == wanted {
                true => PieceState::Present,
                false if old.is_some_and(is_old) => PieceState::Outdated,
                false => PieceState::Changed,
            })
        }
        PieceContent::Value { syntax, placement, value } => {
            let old = old.and_then(|old| match &old.content {
                RecordContent::Value { value, .. } => Some(value),
                RecordContent::File { .. } => None,
            });
            let found = match syntax.values(text, placement.path())? {
                Content::Nothing => return Ok(PieceState::Missing),
                Content::Value(found) => found,
            };
            let (items, is_list) = match (placement, found) {
                (Placement::Member(_), found) => (vec![found], false),
                (Placement::Element(_), Value::Array(items)) => (items, true),
                (Placement::Element(_), _) => return Ok(PieceState::Changed),
            };
            // One with a comment in it, or in another layout, could not be taken out exactly.
            let state = |value: &Value, state: PieceState| {
                let can_be_taken = syntax.remove(text, placement, value, &[])?.is_some();
                Ok(if can_be_taken { state } else { PieceState::Changed })
            };
            match old {
                _ if items.contains(value) => state(value, PieceState::Present),
                Some(old) if items.contains(old) => state(old, PieceState::Outdated),
                _ if !is_list || items.iter().any(|item| recognition.is_call(item)) => {
                    Ok(PieceState::Changed)
                }
                _ => Ok(PieceState::Missing),
            }
        }
    }
}
