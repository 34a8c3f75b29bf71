//! The amount that calls of a purpose may cost in a day: reserved before each is sent, so that all processes together stay within it.

use std::time::Duration;

use quipu_protocol::{Limit, Outcome, UnixMs};
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
        loop {
            let now = self.clock.now();
            let today = self.clock.day_of(now);
            let changed = store.changed();
            let settles = began.elapsed() >= purse.wait;
            let rest = purse.wait.saturating_sub(began.elapsed()).min(LOOK);
            let known = match self.spent_for(purpose, today).await? {
                Ok(known) => known,
                Err(behind) if settles => return Err(uncounted(behind)),
                Err(_) => {
                    pause(order, rest, changed).await?;
                    continue;
                }
            };
            let ask = ReserveRequest {
                id: id.clone(),
                since: today,
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
            match self.spent_for(purpose, today).await? {
                Ok(spent_now) if spent_now > known => continue,
                Ok(_) => {}
                Err(behind) if settles => return Err(uncounted(behind)),
                Err(_) => {
                    pause(order, rest, changed).await?;
                    continue;
                }
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
            pause(order, rest, changed).await?;
        }
    }

    /// What calls of a purpose cost since then, as nodes tell; or how many of these are not counted yet.
    async fn spent_for(&self, purpose: &str, since: UnixMs) -> Result<Result<i64, u64>, Outcome> {
        let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(since), until: None };
        let known = self.money_store().usage(query).await.map_err(|error| unread(&error))?;
        if known.behind > 0 {
            return Ok(Err(known.behind));
        }
        let spent = known.found.iter().filter(|sum| sum.key == purpose).map(|sum| sum.cost).sum();
        Ok(Ok(nano(spent)))
    }
}

fn uncounted(behind: u64) -> Outcome {
    Outcome::StoreFailed(format!(
        "the cost of the newest {behind} nodes is not counted yet, so nothing was sent"
    ))
}

/// Waits until something changes, at most so long.
async fn pause(order: &CallJob, rest: Duration, changed: impl Future) -> Result<(), Outcome> {
    tokio::select! {
        biased;
        () = order.cancel.cancelled() => Err(Outcome::Aborted),
        // A store that is closed says so with the next question.
        _ = tokio::time::timeout(rest, changed) => Ok(()),
    }
}
