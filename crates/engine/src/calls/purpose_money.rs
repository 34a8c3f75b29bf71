//! The amount that calls of a purpose may cost in a day: reserved before each is sent, so that all processes together stay within it.

use quipu_protocol::{Limit, Outcome};
use quipu_store::{Reservation, ReserveId, ReserveRequest, UsageGrouping, UsageQuery};
use tokio::time::Instant;

use super::money::{LOOK, TTL, WantedAmount, after, dollars, floor_nano, locked, nano, unread};
use super::{CallJob, Caller};
use crate::clock::fresh_id;

impl Caller {
    /// Reserves what is wanted of the amount of the purpose; waits while only others stand in the way. Gives what the call may cost.
    pub(super) async fn reserve_of_purpose(
        &self,
        order: &CallJob,
        budget: f64,
        wanted: WantedAmount,
    ) -> Result<i64, Outcome> {
        let WantedAmount { full, least, made } = wanted;
        let (purse, store) = (&self.purse, self.money_store());
        let purpose = order.purpose.name();
        let fresh = || ReserveId::of_purpose(purpose, &fresh_id());
        let id = locked(&purse.held).purpose.get_or_insert_with(fresh).clone();
        let began = Instant::now();
        let mut is_notified = false;
        let mut known = self.spent_for(purpose).await?;
        loop {
            let now = self.clock.now();
            let changed = store.changed();
            let settles = began.elapsed() >= purse.wait;
            let ask = ReserveRequest {
                id: id.clone(),
                since: self.clock.day_of(now),
                now,
                expires: after(now, TTL),
                limit: floor_nano(budget),
                elsewhere: known,
                full: full.saturating_add(made),
                least: least.saturating_add(made),
                settles,
            };
            let reserved = store.reserve(ask.clone()).await.map_err(|error| unread(&error))?;
            // What ended meanwhile is reserved no more, and was not known to be spent.
            let spent_now = self.spent_for(purpose).await?;
            if spent_now > known {
                known = spent_now;
                continue;
            }
            let Reservation { granted, spent, others } = reserved;
            if let Some(granted) = granted {
                return Ok(granted.saturating_sub(made));
            }
            if ask.least > ask.limit.saturating_sub(spent) || settles {
                return Err(Outcome::Limit(Limit::Cost(budget)));
            }
            if !is_notified {
                is_notified = true;
                let text = format!(
                    "waiting up to {} s: other calls have reserved {} of the ${budget} a day for {purpose}",
                    purse.wait.as_secs_f64().ceil(),
                    dollars(others)
                );
                self.tell(order, text).await;
            }
            let rest = purse.wait.saturating_sub(began.elapsed()).min(LOOK);
            tokio::select! {
                biased;
                () = order.cancel.cancelled() => return Err(Outcome::Aborted),
                // A store that is closed says so with the next question.
                _ = tokio::time::timeout(rest, changed) => {}
            }
        }
    }

    /// What calls of a purpose cost today, as nodes tell.
    async fn spent_for(&self, purpose: &str) -> Result<i64, Outcome> {
        let today = self.clock.day_of(self.clock.now());
        let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(today), until: None };
        let known = self.money_store().usage(query).await.map_err(|error| unread(&error))?;
        if known.behind > 0 {
            let behind = known.behind;
            return Err(Outcome::StoreFailed(format!(
                "the cost of the newest {behind} nodes is not counted yet, so nothing was sent"
            )));
        }
        let spent = known.found.iter().filter(|sum| sum.key == purpose).map(|sum| sum.cost).sum();
        Ok(nano(spent))
    }
}
