//! Places the entries of a file: each below its parent, in whatever order they come. All formats share this. What they do
//! not share is the rule for several entries of one id, which [`Placer::place`] applies.

use crate::ProblemKind;
use crate::key::Key;
use crate::waiting_list::{ListEntry, WaitingList};

/// Places entries whose parents are there, and lets others wait.
pub(crate) trait Placer {
    /// An entry that waits for its parent.
    type Entry: ListEntry;
    /// Why it stops before the end.
    type Error;

    /// The entries that wait.
    fn waiting(&mut self) -> &mut WaitingList<Self::Entry>;

    /// Makes the node of an entry, unless the store has it by the format's rule for entries of one id. The parent is there,
    /// or does not come, for the reason in `unresolved`.
    ///
    /// # Errors
    /// The entry cannot be read any more.
    fn place(&mut self, entry: Self::Entry, unresolved: Option<ProblemKind>) -> Result<(), Self::Error>;

    /// Sends the batch to the store if it is full.
    ///
    /// # Errors
    /// Nobody receives it.
    fn send_if_full(&mut self) -> Result<(), Self::Error>;

    /// Places the entries that wait for an entry with these ids, and those that wait for them.
    ///
    /// # Errors
    /// As [`place`](Self::place) and [`send_if_full`](Self::send_if_full).
    fn place_released(&mut self, keys: impl IntoIterator<Item = Key>) -> Result<(), Self::Error> {
        let mut ready = Vec::new();
        for key in keys {
            self.waiting().release(key, &mut ready);
        }
        while let Some(entry) = ready.pop() {
            let keys = entry.keys();
            self.place(entry, None)?;
            for key in keys {
                self.waiting().release(key, &mut ready);
            }
            self.send_if_full()?;
        }
        Ok(())
    }

    /// Places the entries whose parents do not come, and those that wait for them.
    ///
    /// # Errors
    /// As [`place`](Self::place) and [`send_if_full`](Self::send_if_full).
    fn place_unresolved(&mut self) -> Result<(), Self::Error> {
        let mut pass = self.waiting().unresolved();
        while let Some((entry, kind)) = self.waiting().next_unresolved(&mut pass) {
            let keys = entry.keys();
            self.place(entry, Some(kind))?;
            self.send_if_full()?;
            self.place_released(keys)?;
        }
        Ok(())
    }
}
