//! Replacing parts of a text.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// One part of a text and what stands there instead.
pub(crate) struct Edit {
    pub(crate) range: Range<usize>,
    pub(crate) with: Arc<str>,
}

/// `text` with the edits made; they are in order and do not overlap.
pub(crate) fn apply<'a>(text: &'a str, edits: &[Edit]) -> Cow<'a, str> {
    if edits.is_empty() {
        return text.into();
    }
    let mut out = String::with_capacity(text.len());
    let mut copied = 0;
    for edit in edits {
        out.push_str(&text[copied..edit.range.start]);
        out.push_str(&edit.with);
        copied = edit.range.end;
    }
    out.push_str(&text[copied..]);
    out.into()
}
