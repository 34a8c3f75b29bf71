//! Finding the texts and putting others in their place.

use std::ops::Range;

use quipu_workspace::FileError;
use similar::DiffOp;
use tokio_util::sync::CancellationToken;

use super::Replacement;
use super::compare::{Lines, lines};
use super::diff::{COMPARED, count_lines};
use super::view::{View, loose, to_lf};

/// One text to put in place of a part of the view.
pub(crate) struct Piece {
    pub(crate) part: Range<usize>,
    pub(crate) text: String,
}

/// Where an edit was found in the text that is searched, and what comes there.
struct Hit {
    edit: usize,
    part: Range<usize>,
    new: String,
}

/// The bytes of the file with all `edits` made. Bytes outside the lines that an edit changes stay as they are.
///
/// A text that is not found as it is, is looked for loosely ([`loose`]); then all are, and the lines that they
/// touch are rewritten in their loose form.
///
/// # Errors
/// The text for the model: not found, found more than once, overlapping, empty, nothing to change.
pub(crate) fn apply(
    bytes: &[u8],
    edits: &[Replacement],
    path: &str,
    cancel: &CancellationToken,
) -> Result<Vec<u8>, String> {
    let say = EditMessages { path, single: edits.len() == 1 };
    let view = View::new(bytes);
    let edits: Vec<(String, String)> =
        edits.iter().map(|edit| (to_lf(&edit.old_text), to_lf(&edit.new_text))).collect();
    if let Some(empty) = edits.iter().position(|(old, _)| old.is_empty()) {
        return Err(say.empty(empty));
    }
    let loose_text = loose(&view.text);
    let is_loose = edits.iter().any(|(old, _)| cancel.is_cancelled() || !view.text.contains(old.as_str()));
    let searched = if is_loose { &loose_text } else { &view.text };

    let mut hits = Vec::with_capacity(edits.len());
    for (edit, (old, new)) in edits.into_iter().enumerate() {
        // Each goes through the whole file, and there may be very many.
        if cancel.is_cancelled() {
            return Err(FileError::Cancelled.to_string());
        }
        let loose_old = loose(&old);
        let exact = searched.find(&old).map(|at| at..at + old.len());
        let found = exact.or_else(|| {
            let at = is_loose.then(|| searched.find(&loose_old)).flatten()?;
            Some(at..at + loose_old.len())
        });
        let part = found.ok_or_else(|| say.missing(edit))?;
        // Texts that only look different count as the same, or the wrong one could be meant.
        let count = match loose_old.is_empty() {
            true => loose_text.chars().count().saturating_sub(1),
            false => loose_text.matches(&loose_old).count(),
        };
        let count = count.max(searched.matches(&old).count());
        if count > 1 {
            return Err(say.ambiguous(edit, count));
        }
        hits.push(Hit { edit, part, new });
    }
    hits.sort_by_key(|hit| hit.part.start);
    for pair in hits.windows(2) {
        if pair[0].part.end > pair[1].part.start {
            return Err(say.overlap(pair[0].edit, pair[1].edit));
        }
    }
    if hits.iter().all(|hit| searched[hit.part.clone()] == hit.new) {
        return Err(say.unchanged());
    }
    let pieces = match is_loose {
        true => whole_lines(&view.text, &loose_text, hits),
        false => hits.into_iter().map(|hit| Piece { part: hit.part, text: hit.new }).collect(),
    };
    let new = splice(&view, &pieces);
    if new == bytes { Err(say.unchanged()) } else { Ok(new) }
}

/// Hits in the loose text as replacements of whole lines of the true one.
fn whole_lines(text: &str, loose_text: &str, hits: Vec<Hit>) -> Vec<Piece> {
    let starts = |text: &str| -> Vec<usize> {
        let after = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
        std::iter::once(0).chain(after).chain([text.len() + 1]).collect()
    };
    let (true_starts, loose_starts) = (starts(text), starts(loose_text));
    let line_of = |at: usize| loose_starts.partition_point(|start| *start <= at).max(1) - 1;

    let mut pieces: Vec<Piece> = Vec::new();
    // The line that the last piece ends in, and how far into the loose text it goes.
    let mut open: Option<(usize, usize)> = None;
    let close = |pieces: &mut Vec<Piece>, open: Option<(usize, usize)>| {
        if let (Some(piece), Some((line, at))) = (pieces.last_mut(), open) {
            // A text that ends with a line end leaves the next line alone.
            if at == loose_starts[line] && at > 0 && line > 0 {
                piece.part.end = true_starts[line];
            } else {
                let end = loose_starts[line + 1] - 1;
                piece.text.push_str(&loose_text[at..end]);
                piece.part.end = true_starts[line + 1] - 1;
            }
        }
    };
    for Hit { part, new, .. } in hits {
        let first = line_of(part.start);
        match open {
            Some((line, at)) if line == first && at > loose_starts[line] => {
                if let Some(piece) = pieces.last_mut() {
                    piece.text.push_str(&loose_text[at..part.start]);
                    piece.text.push_str(&new);
                }
            }
            _ => {
                close(&mut pieces, open);
                let mut line = loose_text[loose_starts[first]..part.start].to_owned();
                line.push_str(&new);
                let start = true_starts[first];
                pieces.push(Piece { part: start..start, text: line });
            }
        }
        open = Some((line_of(part.end), part.end));
    }
    close(&mut pieces, open);
    pieces
}

/// The bytes of the view with the pieces, which are in order, in their places.
pub(crate) fn splice(view: &View<'_>, pieces: &[Piece]) -> Vec<u8> {
    let mut out = view.mark().to_vec();
    let mut at = 0;
    for piece in pieces {
        out.extend_from_slice(view.bytes(at..piece.part.start));
        replace(view, piece, &mut out);
        at = piece.part.end;
    }
    out.extend_from_slice(view.bytes(at..view.text.len()));
    out
}

/// Writes a piece. Lines that are the same before and after keep their bytes; a new line gets the line end of
/// the one it replaces, or of the one before it.
fn replace(view: &View<'_>, piece: &Piece, out: &mut Vec<u8>) {
    let old = &view.text[piece.part.clone()];
    if count_lines(old) + count_lines(&piece.text) > COMPARED {
        let end = view.line_end(piece.part.start);
        for line in piece.text.split_inclusive('\n') {
            put(out, line, end);
        }
        return;
    }
    let Lines { old: lines_before, new: lines_after, ops } = lines(old, piece.text.as_str());
    let mut starts = vec![piece.part.start];
    for line in lines_before {
        starts.push(starts[starts.len() - 1] + line.len());
    }
    let old_lines = starts.len() - 1;
    let end_of = |line: usize| match line < old_lines {
        true => view.line_end((starts[line + 1] - 1).max(starts[line])),
        false => view.line_end(piece.part.end),
    };
    let new = |line: usize| lines_after.get(line).copied().unwrap_or_default();
    for op in ops {
        match op {
            DiffOp::Equal { old_index, len, .. } => {
                out.extend_from_slice(view.bytes(starts[old_index]..starts[old_index + len]));
            }
            DiffOp::Delete { .. } => {}
            DiffOp::Insert { old_index, new_index, new_len } => {
                let end = end_of(old_index.saturating_sub(1));
                (new_index..new_index + new_len).for_each(|line| put(out, new(line), end));
            }
            DiffOp::Replace { old_index, old_len, new_index, new_len } => {
                for line in 0..new_len {
                    put(out, new(new_index + line), end_of(old_index + line.min(old_len.max(1) - 1)));
                }
            }
        }
    }
}

/// Writes a line of the view with the given line end, if it has one.
fn put(out: &mut Vec<u8>, line: &str, end: &[u8]) {
    match line.strip_suffix('\n') {
        Some(body) => {
            out.extend_from_slice(body.as_bytes());
            out.extend_from_slice(end);
        }
        None => out.extend_from_slice(line.as_bytes()),
    }
}

/// Error messages of the tool.
struct EditMessages<'a> {
    path: &'a str,
    single: bool,
}

impl EditMessages<'_> {
    fn empty(&self, edit: usize) -> String {
        match self.single {
            true => format!("oldText must not be empty in {}.", self.path),
            false => format!("edits[{edit}].oldText must not be empty in {}.", self.path),
        }
    }

    fn missing(&self, edit: usize) -> String {
        match self.single {
            true => format!(
                "Could not find the exact text in {}. The old text must match exactly including all whitespace and \
                 newlines.",
                self.path
            ),
            false => format!(
                "Could not find edits[{edit}] in {}. The oldText must match exactly including all whitespace and \
                 newlines.",
                self.path
            ),
        }
    }

    fn ambiguous(&self, edit: usize, count: usize) -> String {
        match self.single {
            true => format!(
                "Found {count} occurrences of the text in {}. The text must be unique. Please provide more context \
                 to make it unique.",
                self.path
            ),
            false => format!(
                "Found {count} occurrences of edits[{edit}] in {}. Each oldText must be unique. Please provide more \
                 context to make it unique.",
                self.path
            ),
        }
    }

    fn overlap(&self, one: usize, other: usize) -> String {
        format!(
            "edits[{one}] and edits[{other}] overlap in {}. Merge them into one edit or target disjoint regions.",
            self.path
        )
    }

    fn unchanged(&self) -> String {
        match self.single {
            true => format!(
                "No changes made to {}. The replacement produced identical content. This might indicate an issue \
                 with special characters or the text not existing as expected.",
                self.path
            ),
            false => {
                format!("No changes made to {}. The replacements produced identical content.", self.path)
            }
        }
    }
}
