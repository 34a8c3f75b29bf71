//! The amount that calls of a purpose may cost in a day: reserved before each is sent, so that all processes together stay within it.

use std::sync::Arc;

use quipu_protocol::{Limit, Outcome, UnixMs};
use quipu_store::{Reservation, ReserveId, UsageGrouping, UsageQuery};

use super::money::{PurposeAmount, Purse, WantedAmount, dollars, floor_nano, locked, nano, unread};
use super::reserve_wait::ReserveWait;
use super::{CallJob, Caller};
use crate::clock::fresh_id;

impl Purse {
    /// All calls of its session are for a purpose: what each may cost is reserved of the amount of that.
    pub(crate) fn limit_purpose(&self, purpose: Arc<str>, budget: f64) {
        *locked(&self.amount) = Some(PurposeAmount { purpose, budget });
    }
}

impl Caller {
    /// The amount that a call belongs to: that of its own purpose, or of the purpose of its session.
    pub(super) fn amount_of(&self, order: &CallJob) -> Option<PurposeAmount> {
        match order.daily {
            Some(budget) => Some(PurposeAmount { purpose: order.purpose.name().into(), budget }),
            None => locked(&self.purse.amount).clone(),
        }
    }

    /// Reserves what is wanted of the amount of the purpose; waits while only others stand in the way. Gives what the call may cost.
    pub(super) async fn reserve_of_purpose(
        &self,
        order: &CallJob,
        of: &PurposeAmount,
        wanted: WantedAmount,
    ) -> Result<i64, Outcome> {
        let made = wanted.made;
        let (purse, store) = (&self.purse, self.money_store());
        let PurposeAmount { purpose, budget } = of;
        let fresh = || ReserveId::of_purpose(purpose, &fresh_id());
        let id = locked(&purse.held).purpose.get_or_insert_with(fresh).clone();
        let mut wait = ReserveWait::new(self, order);
        loop {
            let now = self.clock.now();
            let today = self.clock.day_of(now);
            let settles = wait.is_over();
            let Some(known) = self.spent_for(purpose, today, &wait).await? else { continue };
            let ask = wanted.request(id.clone(), (today, now), (floor_nano(*budget), known), settles);
            let reserved = store.reserve(ask.clone()).await.map_err(|error| unread(&error))?;
            // What ended meanwhile is reserved no more, and was not known to be spent.
            if self.spent_for(purpose, today, &wait).await?.is_none_or(|spent_now| spent_now > known) {
                continue;
            }
            let Reservation { granted, spent, others } = reserved;
            if let Some(granted) = granted {
                return Ok(granted.saturating_sub(made));
            }
            // Not before: the question is a commit, too.
            let changed = store.changed();
            if ask.least > ask.limit.saturating_sub(spent) || settles {
                return Err(Outcome::Limit(Limit::Cost(*budget)));
            }
            let what = format!("{} of the ${budget} a day for {purpose}", dollars(others));
            wait.for_others(&what, changed).await?;
        }
    }

    /// What calls of the purpose cost since then, as nodes say. `None` after a pause, where some of them were not counted yet; an
    /// error where that lasts longer than a call waits.
    async fn spent_for(
        &self,
        purpose: &str,
        since: UnixMs,
        wait: &ReserveWait<'_>,
    ) -> Result<Option<i64>, Outcome> {
        let changed = self.money_store().changed();
        let settles = wait.is_over();
        let query = UsageQuery { by: UsageGrouping::Purpose, since: Some(since), until: None };
        let known = self.money_store().usage(query).await.map_err(|error| unread(&error))?;
        if known.behind == 0 {
            let of_purpose = known.found.iter().filter(|sum| sum.key == purpose);
            return Ok(Some(nano(of_purpose.map(|sum| sum.cost).sum())));
        }
        if settles {
            return Err(uncounted(known.behind));
        }
        wait.pause(changed).await?;
        Ok(None)
    }
}

fn uncounted(behind: u64) -> Outcome {
    Outcome::StoreFailed(format!(
        "the cost of the newest {behind} nodes is not counted yet, so nothing was sent"
    ))
}
