//! Whose words a hit is now: the index knows the time when it was indexed.

use quipu_store::Graph;

use super::{HitPlace, MemoryHit};
use crate::files::{FileName, FileText};
use crate::notes::{LineAuthor, Notebook};
use crate::{AuthorClass, class_of_node};

/// The least trusted author of these lines; what nobody knows of is nobody's word, as what a conflict left.
pub(super) fn class_of_lines(text: &FileText, authors: &[LineAuthor], first: u32, last: u32) -> AuthorClass {
    let of_these = authors.iter().filter(|author| author.lines.first <= last && author.lines.last >= first);
    let known = of_these.map(|author| author.class).max();
    known.filter(|_| text.conflict.is_none()).unwrap_or(AuthorClass::Untrusted)
}

/// Puts the classes of this moment into hits: an answer has the class of its turn, lines those of the notes' history. What
/// cannot be found out is untrusted.
pub(super) async fn set_classes(store: &dyn Graph, books: &[Notebook], hits: &mut [MemoryHit]) {
    for hit in hits.iter_mut() {
        if let HitPlace::Node { node, .. } = &hit.place
            && hit.author != AuthorClass::Untrusted
        {
            let found = class_of_node(store, *node).await.ok().flatten();
            hit.author = found.unwrap_or(AuthorClass::Untrusted);
        }
    }
    for book in books {
        let mut texts: Vec<FileText> = Vec::new();
        let mut wanted: Vec<(&mut MemoryHit, usize, u32, u32)> = Vec::new();
        for hit in hits.iter_mut() {
            let HitPlace::Note { memory, citation } = &hit.place else { continue };
            if memory.id != book.place().id {
                continue;
            }
            let (first, last) = (*citation.lines.start(), *citation.lines.end());
            let at = match texts.iter().position(|text| text.name.as_str() == citation.path) {
                Some(at) => at,
                None => {
                    let text = FileName::new(&citation.path).ok().and_then(|name| book.read(&name).ok());
                    let Some(text) = text else {
                        hit.author = AuthorClass::Untrusted;
                        continue;
                    };
                    texts.push(text);
                    texts.len() - 1
                }
            };
            wanted.push((hit, at, first, last));
        }
        if wanted.is_empty() {
            continue;
        }
        let authors = book.authors_of(&texts.iter().collect::<Vec<_>>()).await.unwrap_or_default();
        for (hit, at, first, last) in wanted {
            let of_file = authors.get(at).map(Vec::as_slice).unwrap_or_default();
            hit.author = texts
                .get(at)
                .map_or(AuthorClass::Untrusted, |text| class_of_lines(text, of_file, first, last));
        }
    }
}
