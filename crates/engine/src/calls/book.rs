//! What the calls of one run may cost together: those of the session's own, one at a time, and those beside the conversation.

use std::sync::{Mutex, MutexGuard, PoisonError};

use quipu_protocol::RunId;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Promises of the run under way. In billionths of a US dollar.
#[derive(Debug, Default)]
pub(crate) struct RunBook {
    book: Mutex<Book>,
    /// A call beside the conversation may cost less than before.
    changed: Notify,
}

#[derive(Debug, Default)]
struct Book {
    run: Option<RunId>,
    /// What the call of the session's own may cost that is under way, or cost, and the machine does not know yet.
    own: i64,
    /// What calls beside the conversation cost that the run pays for, and what those under way may cost.
    sides: i64,
    /// Of that, what those under way may cost.
    under: i64,
    /// What all calls of the session cost, or may have cost, in US dollars.
    spent: f64,
}

impl Book {
    fn turn_to(&mut self, run: &RunId) {
        if self.run.as_ref() != Some(run) {
            (self.run, self.own, self.sides, self.under) = (Some(run.clone()), 0, 0, 0);
        }
    }
}

impl RunBook {
    /// Holds an amount for a call of the session's own, beside what calls for the same summary before it cost (`made`). `left`
    /// is what the machine and those leave of the run; `choose` is given what calls beside the conversation leave of that,
    /// and says how much is held, if any.
    pub(super) fn hold(
        &self,
        run: &RunId,
        left: i64,
        made: i64,
        choose: impl FnOnce(i64) -> Option<i64>,
    ) -> Result<i64, i64> {
        let mut book = self.book();
        book.turn_to(run);
        let left = left.saturating_sub(book.sides);
        let amount = choose(left).ok_or(left)?;
        book.own = amount.saturating_add(made);
        Ok(amount)
    }

    /// What calls beside the conversation leave of it.
    pub(crate) fn left_of(&self, run: &RunId, left: i64) -> i64 {
        let mut book = self.book();
        book.turn_to(run);
        left.saturating_sub(book.sides)
    }

    /// The call of the session's own that was held for is over, and cost so much.
    pub(super) fn own_cost(&self, amount: i64) {
        self.book().own = amount;
    }

    /// The machine knows what it cost.
    pub(crate) fn own_counted(&self, dollars: f64) {
        let mut book = self.book();
        book.own = 0;
        book.spent += dollars;
    }

    /// Promises a call beside the conversation as much as is there of what it wants; `None` where nothing is left.
    pub(crate) fn promise(&self, run: &RunId, left: i64, wanted: Option<i64>) -> Option<i64> {
        let mut book = self.book();
        book.turn_to(run);
        let left = left.saturating_sub(book.own).saturating_sub(book.sides);
        let granted = wanted.map_or(left, |wanted| wanted.min(left));
        if granted <= 0 {
            return None;
        }
        book.sides = book.sides.saturating_add(granted);
        book.under = book.under.saturating_add(granted);
        Some(granted)
    }

    /// A call that was promised so much cost so much.
    pub(crate) fn side_cost(&self, run: &RunId, promised: i64, cost: i64) {
        let mut book = self.book();
        if book.run.as_ref() == Some(run) {
            book.sides = book.sides.saturating_sub(promised).saturating_add(cost);
            book.under = book.under.saturating_sub(promised);
        }
        drop(book);
        self.changed.notify_waiters();
    }

    /// A call that was promised so much can cost no more than that.
    pub(super) fn side_needs(&self, run: &RunId, promised: i64, needs: i64) {
        let mut book = self.book();
        if book.run.as_ref() == Some(run) {
            let less = promised.saturating_sub(needs).max(0);
            book.sides = book.sides.saturating_sub(less);
            book.under = book.under.saturating_sub(less);
        }
        drop(book);
        self.changed.notify_waiters();
    }

    /// What calls beside the conversation that are under way may cost.
    pub(super) fn under_way(&self) -> i64 {
        self.book().under
    }

    /// Ends when one of them may cost less than before.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// A call beside the conversation is over.
    pub(crate) fn side_counted(&self, dollars: f64) {
        self.book().spent += dollars;
    }

    /// What all calls of the session cost, or may have cost, in US dollars.
    pub(crate) fn spent(&self) -> f64 {
        self.book().spent
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Nothing can break down while it is held.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_a_run_never_promise_more_than_is_left() {
        let (book, run) = (RunBook::default(), RunId::from("r"));
        let all = |left| Some(left);
        assert_eq!(book.promise(&run, 100, Some(30)), Some(30));
        // A call of the session's own gets what is left beside it.
        assert_eq!(book.hold(&run, 100, 0, all), Ok(70));
        assert_eq!(book.promise(&run, 100, Some(1)), None, "all is held");
        book.own_cost(20);
        assert_eq!(book.promise(&run, 100, None), Some(50));
        // It needs no more than that.
        book.side_needs(&run, 50, 40);
        assert_eq!((book.under_way(), book.left_of(&run, 100)), (70, 30));
        book.side_cost(&run, 40, 10);
        assert_eq!(book.under_way(), 30);
        book.own_counted(20e-9);
        // The machine counted what the own call cost.
        assert_eq!(book.hold(&run, 80, 0, |left| (left >= 50).then_some(left)), Err(40));
        // Another run begins with nothing promised; what comes late of the one before is not its own.
        let next = RunId::from("s");
        assert_eq!(book.promise(&next, 10, Some(20)), Some(10));
        book.side_cost(&run, 30, 30);
        book.side_cost(&next, 10, 0);
        assert_eq!(book.left_of(&next, 10), 10);
    }
}
