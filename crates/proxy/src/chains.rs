//! Under which digests the pieces of a conversation with jumps may be known. What a jump put in its place counts for all behind
//! it, and is a placeholder once it is forgotten: so what was recorded between two forgets has placeholders for some jumps and
//! the words of others.

use quipu_archive::ConversationDigest;
use quipu_protocol::Content;

use crate::item::{Author, Item, links};

/// Ways to know a conversation at most: at least one more than there are jumps, so that forgets in the order of the jumps, of
/// any number, have their way.
pub(crate) const CHAINS: usize = 65;

/// The digests of a conversation, as they were when some messages of jumps had been forgotten.
struct Chain {
    /// Of each message that is forgotten now, whether it was.
    forgotten: Vec<bool>,
    /// Of each piece.
    digests: Vec<ConversationDigest>,
}

impl Chain {
    /// How often a message had been forgotten before one of an earlier jump.
    fn disorder(&self) -> usize {
        self.forgotten.windows(2).filter(|pair| !pair[0] && pair[1]).count()
    }
}

/// The items of a conversation with some of its jumps.
pub(crate) struct ViewItems {
    pub(crate) now: Vec<Item>,
    /// The first is that of `now`.
    chains: Vec<Chain>,
    /// Where the messages stand that are forgotten now.
    forgotten: Vec<usize>,
}

impl ViewItems {
    /// A conversation as it came.
    pub(crate) fn of(now: Vec<Item>) -> Self {
        let digests = now.iter().map(|item| item.digest).collect();
        Self { now, chains: vec![Chain { forgotten: Vec::new(), digests }], forgotten: Vec::new() }
    }

    /// The conversation with one more jump, of which `now` are the items: the same up to `keep`, and `note` behind that, which
    /// was recorded as `recorded`.
    pub(crate) fn then(
        &self,
        now: Vec<Item>,
        keep: usize,
        (note, recorded): (&str, &str),
        seal: &dyn Fn(&str) -> String,
    ) -> Self {
        let stay = self.forgotten.iter().take_while(|at| **at <= keep).count();
        let mut forgotten = self.forgotten[..stay].to_vec();
        let is_note = |item: &Item| item.author == Author::User && item.text() == Some(note);
        let behind = now.iter().enumerate().skip(keep + 1);
        let branch = behind.filter(|_| note != recorded).find(|(_, item)| is_note(item)).map(|(at, _)| at);
        forgotten.extend(branch);

        let mut chains: Vec<Chain> = Vec::new();
        for chain in &self.chains {
            let kept = &chain.digests[..chain.digests.len().min(keep + 1)];
            // Those that differ in what is left out only are one.
            if chains.iter().any(|known| known.digests.last() == kept.last()) {
                continue;
            }
            for was_forgotten in [true, false] {
                let mut choices = chain.forgotten[..stay].to_vec();
                choices.extend(branch.map(|_| was_forgotten));
                if was_forgotten || branch.is_some() {
                    chains.push(Chain { forgotten: choices, digests: kept.to_vec() });
                }
            }
        }
        // The likely ones first: most is forgotten in the order in which it was said, or at once.
        chains.sort_by_key(Chain::disorder);
        chains.truncate(CHAINS);

        // The first is as the items are; of the others the pieces are sealed once.
        let others = chains.get_mut(1..).unwrap_or_default();
        let rest: Vec<_> = match others.is_empty() {
            true => Vec::new(),
            false => now.iter().skip(keep + 1).map(|item| links(&item.author, &item.content, seal)).collect(),
        };
        let words = links(&Author::User, &[Content::text(recorded)], seal);
        for chain in others {
            let with_words = branch.filter(|_| chain.forgotten.last() == Some(&false));
            let mut digest = chain.digests.last().copied().unwrap_or_default();
            for (at, piece) in (keep + 1..).zip(&rest) {
                let piece = if with_words == Some(at) { &words } else { piece };
                digest = piece.iter().fold(digest, |digest, (kind, text)| digest.then(kind, text));
                chain.digests.push(digest);
            }
        }
        if let Some(first) = chains.first_mut() {
            first.digests = now.iter().map(|item| item.digest).collect();
        }
        Self { now, chains, forgotten }
    }

    /// Where an item with this digest is, the first of several that do not count.
    pub(crate) fn position(&self, digest: &str) -> Option<usize> {
        let digest = ConversationDigest::parse(digest)?;
        let within = |chain: &Chain| {
            let mut all = self.now.iter().zip(&chain.digests);
            all.position(|(item, known)| item.counts && *known == digest)
        };
        self.chains.iter().find_map(within)
    }

    /// What may be known of an item.
    pub(crate) fn digests(&self, at: usize) -> impl Iterator<Item = ConversationDigest> {
        let mut all: Vec<ConversationDigest> = Vec::new();
        for digest in self.chains.iter().filter_map(|chain| chain.digests.get(at)) {
            if !all.contains(digest) {
                all.push(*digest);
            }
        }
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemList;

    fn items(texts: &[String]) -> Vec<Item> {
        let mut list = ItemList::default();
        for (at, text) in texts.iter().enumerate() {
            list.push((at, 0), Author::User, vec![Content::text(text.clone())], &str::to_owned);
        }
        list.items
    }

    #[test]
    fn chains_of_many_jumps_are_those_of_forgets_in_order() {
        let jumps = CHAINS - 1;
        let mut now = vec!["question".to_owned()];
        let mut view = ViewItems::of(items(&now));
        for jump in 0..jumps {
            let keep = now.len() - 1;
            now.extend(["gone".to_owned(), format!("since {jump}")]);
            let recorded = format!("note {jump}");
            view = view.then(items(&now), keep, ("gone", &recorded), &str::to_owned);
        }
        assert_eq!(view.chains.len(), CHAINS);
        for forgotten in 0..=jumps {
            let mut then = now.clone();
            for jump in forgotten..jumps {
                then[1 + 2 * jump] = format!("note {jump}");
            }
            let known = items(&then).last().unwrap().digest.hex();
            assert_eq!(view.position(&known), Some(now.len() - 1), "{forgotten}");
        }
        // Of few all are known.
        let mut few = vec!["question".to_owned()];
        let mut view = ViewItems::of(items(&few));
        for jump in 0..6 {
            few.push("gone".to_owned());
            view = view.then(items(&few), jump, ("gone", &format!("note {jump}")), &str::to_owned);
        }
        assert_eq!(view.digests(6).count(), 64);
        // One that goes back before them all knows none of them.
        let back = ["question", "gone", "on"].map(str::to_owned);
        assert_eq!(view.then(items(&back), 0, ("gone", "gone"), &str::to_owned).chains.len(), 1);
    }
}
