//! What calls of an agent or of a job may use in a day, of all of their sessions and processes together: reserved before each is
//! sent. What was used stands in the store beside what is reserved, so it is the same for every process, and after a restart.

use quipu_protocol::{AccountLimit, BudgetUnit, Limit, Outcome, UnixMs};
use quipu_providers::Charge;
use quipu_store::{Commit, Graph, Op, Reservation, ReserveId, StoreError};

use super::accounts::{AccountAmount, AccountBudget, AccountUse, Allowance, HeldAmount, UsedAmounts};
use super::money::{
    LEAST, Price, Purse, Stake, WantedAmount, dollars, floor_nano, in_dollars, locked, number, unread, whole,
};
use super::reserve_wait::ReserveWait;
use super::{CallJob, Caller};
use crate::clock::{Clock, fresh_id};

/// Longer than any day, and shorter than two.
const NEXT_DAY: UnixMs = 26 * 60 * 60 * 1000;

/// What was used of a budget today: by calls that are over, and by those whose process died.
///
/// # Errors
/// What the store says.
pub async fn account_use(
    store: &dyn Graph,
    clock: &dyn Clock,
    budget: &AccountBudget,
) -> Result<AccountUse, StoreError> {
    let (now, mut found) = (clock.now(), AccountUse::default());
    for amount in amounts(budget) {
        let spent = store.spent_of(&amount.account, clock.day_of(now), now).await?;
        match amount.unit {
            BudgetUnit::Dollars => found.dollars = in_dollars(spent),
            BudgetUnit::Tokens => found.tokens = spent.unsigned_abs(),
        }
    }
    Ok(found)
}

/// A budget in its units.
fn amounts(budget: &AccountBudget) -> impl Iterator<Item = AccountAmount> + '_ {
    let of = |unit: BudgetUnit, limit: i64| {
        // Keys of jobs can have a slash, which ends the name of an account.
        let name = budget.name.replace('%', "%25").replace('/', "%2F");
        let word = match unit {
            BudgetUnit::Dollars => "usd",
            BudgetUnit::Tokens => "tokens",
        };
        let account = format!("{}:{word}:{name}", budget.holder.word());
        AccountAmount { holder: budget.holder, name: budget.name.clone(), unit, account, limit }
    };
    let dollars = budget.dollars.map(|most| of(BudgetUnit::Dollars, floor_nano(most)));
    dollars.into_iter().chain(budget.tokens.map(|most| of(BudgetUnit::Tokens, whole(most))))
}

impl Purse {
    /// The budgets of the next call.
    pub(super) fn account_amounts(&self) -> Vec<AccountAmount> {
        let budgets = self.accounts.as_ref().map_or_else(Vec::new, |accounts| accounts.budgets());
        budgets.iter().flat_map(amounts).collect()
    }
}

impl Caller {
    /// Reserves what the call can use at most of each account; `amount` is what it may cost by other limits. Gives what is left for it.
    pub(super) async fn reserve_of_accounts(
        &self,
        order: &CallJob,
        price: &Price<'_>,
        amount: i64,
        accounts: &[AccountAmount],
    ) -> Result<Allowance, Outcome> {
        // What is left of a call that broke down counts as used.
        locked(&self.purse.held).accounts.clear();
        let mut allowed = Allowance { amount, output: price.most.output };
        for account in accounts {
            match account.unit {
                BudgetUnit::Dollars => {
                    let (full, least) = (allowed.amount, price.least().min(allowed.amount));
                    let wanted = WantedAmount { full, least, made: 0 };
                    allowed.amount = self.reserve_of_account(order, account, wanted).await?;
                }
                BudgetUnit::Tokens => {
                    let input = price.most.input;
                    let of = |output: u64| whole(input.saturating_add(output));
                    let (full, least) = (of(allowed.output), of(allowed.output.min(LEAST)));
                    let wanted = WantedAmount { full, least, made: 0 };
                    let granted = self.reserve_of_account(order, account, wanted).await?;
                    allowed.output = granted.unsigned_abs().saturating_sub(input);
                }
            }
        }
        Ok(allowed)
    }

    /// The same once more for the same bytes, beside what the attempts before may have used.
    pub(super) async fn reserve_of_accounts_again(
        &self,
        order: &CallJob,
        stake: &Stake,
        charges: &[Charge],
    ) -> Result<(), Outcome> {
        for account in self.purse.account_amounts() {
            let (full, made) = match account.unit {
                BudgetUnit::Dollars => (stake.amount(), stake.charged(charges)),
                BudgetUnit::Tokens => {
                    let most = stake.price().most;
                    (whole(most.input.saturating_add(most.output)), stake.tokens(charges))
                }
            };
            if made > 0 {
                let wanted = WantedAmount { full, least: full, made };
                self.reserve_of_account(order, &account, wanted).await?;
            }
        }
        Ok(())
    }

    /// Reserves what is wanted of an account; waits while only others stand in the way. Gives what the call may use.
    async fn reserve_of_account(
        &self,
        order: &CallJob,
        of: &AccountAmount,
        wanted: WantedAmount,
    ) -> Result<i64, Outcome> {
        let made = wanted.made;
        let (purse, store) = (&self.purse, self.money_store());
        let id = {
            let mut held = locked(&purse.held);
            let known = held.accounts.iter().find(|held| held.account == of.account);
            let known = known.map(|held| held.id.clone());
            known.unwrap_or_else(|| {
                let id = ReserveId::of_purpose(&of.account, &fresh_id());
                let (account, unit) = (of.account.clone(), of.unit);
                held.accounts.push(HeldAmount { account, unit, id: id.clone() });
                id
            })
        };
        let mut wait = ReserveWait::new(self, order);
        loop {
            let now = self.clock.now();
            let today = self.clock.day_of(now);
            let settles = wait.is_over();
            let ask = wanted.request(id.clone(), (today, now), (of.limit, 0), settles);
            let (least, limit) = (ask.least, ask.limit);
            let reserved = store.reserve(ask).await.map_err(|error| unread(&error))?;
            let Reservation { granted, spent, others } = reserved;
            if let Some(granted) = granted {
                return Ok(granted.saturating_sub(made));
            }
            // Not before: the question is a commit, too.
            let changed = store.changed();
            if spent >= limit || least > limit.saturating_sub(spent) || settles {
                if spent < limit {
                    let left = limit.saturating_sub(spent).saturating_sub(others).saturating_sub(made).max(0);
                    let text = format!(
                        "the next call may use {}, and {} of the daily budget of the {} `{}` is left",
                        of.shown(least.saturating_sub(made)),
                        of.shown(left),
                        of.holder.word(),
                        of.name
                    );
                    self.tell(order, text).await;
                }
                return Err(Outcome::Limit(Limit::Account(self.account_limit(of, spent, today))));
            }
            let (others, holder) = (of.shown(others), of.holder.word());
            let what = format!("{others} of the daily budget of the {holder} `{}`", of.name);
            wait.for_others(&what, changed).await?;
        }
    }

    fn account_limit(&self, of: &AccountAmount, spent: i64, today: UnixMs) -> AccountLimit {
        AccountLimit {
            holder: of.holder,
            name: of.name.to_string(),
            unit: of.unit,
            spent: of.number(spent),
            budget: of.number(of.limit),
            resets: self.clock.day_of(today.saturating_add(NEXT_DAY)),
        }
    }

    /// The call is over, and used so much; `None`: nothing was sent. Its node need not be in the store yet.
    pub(super) async fn settle_accounts(&self, used: Option<UsedAmounts>) {
        let held = std::mem::take(&mut locked(&self.purse.held).accounts);
        let ops: Vec<Op> = held
            .into_iter()
            .map(|HeldAmount { unit, id, .. }| {
                let amount = used.map_or(0, |used| match unit {
                    BudgetUnit::Dollars => used.dollars,
                    BudgetUnit::Tokens => used.tokens,
                });
                Op::Spend { id, amount }
            })
            .collect();
        if !ops.is_empty() {
            // Should it fail, all that is reserved counts for the day.
            drop(self.money_store().commit(Commit { ops, ..Commit::default() }).await);
        }
    }
}

impl AccountAmount {
    fn number(&self, amount: i64) -> f64 {
        match self.unit {
            BudgetUnit::Dollars => in_dollars(amount),
            BudgetUnit::Tokens => number(amount),
        }
    }

    fn shown(&self, amount: i64) -> String {
        match self.unit {
            BudgetUnit::Dollars => dollars(amount),
            BudgetUnit::Tokens => format!("{amount} tokens"),
        }
    }
}
