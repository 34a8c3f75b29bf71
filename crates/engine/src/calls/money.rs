//! Money is reserved before a request is sent: the most that the call can cost, so that what is spent stays within the limits
//! of the run and of the day, over all processes of a store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::mailbox;
use bytes::Bytes;
use quipu_protocol::{
    CallRecord, Limit, Message, Model, ModelError, ModelErrorKind, ModelRequest, Notice, Outcome, RunId,
    UnixMs, Usage,
};
use quipu_providers::{CallEnd, Charge, MostTokens, Provider};
use quipu_store::{Commit, Graph, Op, Reservation, ReserveId, ReserveRequest, StoreError};

use super::accounts::{AccountAmount, Accounts, Allowance, HeldAmount, UsedAmounts};
use super::book::RunBook;
use super::reserve_wait::ReserveWait;
use super::{CallJob, Caller};
use crate::clock::fresh_id;
use quipu_machine::{MachineInput, RunMoney};

/// Tokens of an answer below which a request is not lowered.
pub(super) const LEAST: u64 = 1_024;
/// How long a call waits for what others have reserved.
const WAIT: Duration = Duration::from_secs(30);
/// How long a reservation lasts without renewal.
const TTL: Duration = Duration::from_secs(120);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(40);

/// What may be spent, and what is reserved of it.
pub(crate) struct Purse {
    daily: Mutex<Option<f64>>,
    pub(super) wait: Duration,
    /// Another store, in which all is reserved and kept: that of a session that is kept nowhere itself.
    ledger: Option<Arc<dyn Graph>>,
    pub(super) held: Mutex<Reservations>,
    measured: Mutex<Option<InputCount>>,
    /// What all calls of the session may cost in a day, where it is for a purpose with an amount.
    pub(super) amount: Mutex<Option<PurposeAmount>>,
    /// Of whose budgets its calls are.
    pub(super) accounts: Option<Arc<dyn Accounts>>,
    /// What the calls of the run may cost together.
    pub(crate) book: RunBook,
    /// For a call beside the session's own: what the run that pays holds back for it.
    promised: Mutex<Option<SideHold>>,
}

/// What calls of a purpose may cost in a day.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PurposeAmount {
    pub(super) purpose: Arc<str>,
    /// US dollars.
    pub(super) budget: f64,
}

/// What a run holds back for a call beside its own.
struct SideHold {
    of: Arc<Purse>,
    run: RunId,
    amount: i64,
}

#[derive(Default)]
pub(super) struct Reservations {
    /// For the call under way, or the calls of the summary under way.
    pub(super) current: Option<ReserveId>,
    /// The same, of the amount of its purpose.
    pub(super) purpose: Option<ReserveId>,
    /// For the call under way, of accounts.
    pub(super) accounts: Vec<HeldAmount>,
    /// For calls that are over, and whose nodes are not in the store yet; what they may have cost besides what those tell.
    over: Vec<(ReserveId, i64)>,
    /// Of the day that began then: the cost of calls that is not in the other store yet.
    missed: (UnixMs, i64),
}

/// What a server counted last.
struct InputCount {
    request: Arc<ModelRequest>,
    bytes: u64,
    input: u64,
}

/// What a call can cost.
pub(super) struct Price<'a> {
    pub(super) model: &'a Model,
    pub(super) most: MostTokens,
}

/// What is to be reserved. `made`: what was spent and stands in no node yet.
pub(super) struct WantedAmount {
    pub(super) full: i64,
    pub(super) least: i64,
    pub(super) made: i64,
}

impl WantedAmount {
    /// Asks the store for it: of what may be spent since then, and of which so much was spent in another store.
    pub(super) fn request(
        &self,
        id: ReserveId,
        (since, now): (UnixMs, UnixMs),
        (limit, elsewhere): (i64, i64),
        settles: bool,
    ) -> ReserveRequest {
        let (full, least) = (self.full.saturating_add(self.made), self.least.saturating_add(self.made));
        ReserveRequest { id, since, now, expires: after(now, TTL), limit, elsewhere, full, least, settles }
    }
}

/// Whose call it is.
pub(crate) struct CallOrigin {
    pub(crate) is_summary: bool,
    pub(crate) tell: Option<mailbox::Sender<MachineInput>>,
}

/// What is at stake with each attempt of a call.
#[derive(Debug)]
pub(crate) struct Stake {
    model: Arc<Model>,
    most: MostTokens,
    /// What an attempt may cost.
    amount: i64,
}

impl Stake {
    /// Tokens that these attempts used, where the server said nothing else: at most.
    pub(super) fn tokens(&self, charges: &[Charge]) -> i64 {
        let of = |charge: &Charge| match charge {
            Charge::Nothing => 0,
            Charge::Told(usage) => used(usage),
            Charge::AtLeast(usage) => {
                let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
                let input = if sent > 0 { sent } else { self.most.input };
                used(usage).max(whole(input.saturating_add(self.most.output)))
            }
        };
        charges.iter().map(of).fold(0, i64::saturating_add)
    }

    /// What an attempt may cost, in billionths of a US dollar.
    pub(super) fn amount(&self) -> i64 {
        self.amount
    }

    pub(super) fn price(&self) -> Price<'_> {
        Price { model: &self.model, most: self.most }
    }

    /// What was charged for these attempts at most.
    pub(super) fn charged(&self, charges: &[Charge]) -> i64 {
        charges.iter().map(|charge| self.of(charge)).fold(0, i64::saturating_add)
    }

    fn of(&self, charge: &Charge) -> i64 {
        match charge {
            Charge::Nothing => 0,
            Charge::Told(usage) => nano(usage.cost.total),
            Charge::AtLeast(usage) => {
                let sent = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
                let reported = nano(usage.cost.total);
                // The server counted the input. Its rates depend on nothing else.
                let most = if sent > 0 && self.model.cost.tiers.is_empty() {
                    let most = MostTokens { input: 0, long_cache: false, ..self.most };
                    let answer = most.price(&self.model, most.output);
                    self.amount.min(nano(usage.cost.total - usage.cost.output + answer))
                } else {
                    self.amount
                };
                most.max(reported)
            }
        }
    }
}

/// What came of a call.
pub(crate) struct CallReport {
    pub(crate) request: Arc<ModelRequest>,
    pub(crate) bytes: u64,
    pub(crate) end: CallEnd,
    /// `None`: nothing was sent.
    pub(crate) record: Option<CallRecord>,
    /// Why it was not sent once more: the run ends so.
    pub(crate) refused: Option<Outcome>,
}

impl Price<'_> {
    fn with(&self, output: u64) -> i64 {
        nano(self.most.price(self.model, output))
    }

    pub(super) fn full(&self) -> i64 {
        self.with(self.most.output)
    }

    pub(super) fn least(&self) -> i64 {
        self.with(self.most.output.min(LEAST))
    }

    /// The longest answer that so much pays for.
    fn output_for(&self, amount: i64) -> u64 {
        let (mut fits, mut too_much) = (self.most.output.min(LEAST), self.most.output);
        while too_much - fits > 1 {
            let middle = fits + (too_much - fits) / 2;
            if self.with(middle) <= amount { fits = middle } else { too_much = middle }
        }
        fits
    }
}

impl Purse {
    pub(crate) fn new(
        daily: Option<f64>,
        wait: Option<Duration>,
        ledger: Option<Arc<dyn Graph>>,
        accounts: Option<Arc<dyn Accounts>>,
    ) -> Self {
        let (held, measured, book) = (Mutex::default(), Mutex::default(), RunBook::default());
        let (daily, wait, promised) = (Mutex::new(daily), wait.unwrap_or(WAIT), Mutex::default());
        Self { daily, wait, ledger, held, measured, amount: Mutex::default(), accounts, book, promised }
    }

    /// For calls beside those of the session: the same limits, and reservations of their own.
    pub(crate) fn beside(&self) -> Self {
        let (ledger, accounts) = (self.ledger.clone(), self.accounts.clone());
        let beside = Self::new(self.daily(), Some(self.wait), ledger, accounts);
        locked(&beside.held).missed = locked(&self.held).missed;
        beside
    }

    /// A run of the session holds so much back for the call.
    pub(crate) fn promise(&self, of: &Arc<Self>, run: &RunId, amount: i64) {
        *locked(&self.promised) = Some(SideHold { of: of.clone(), run: run.clone(), amount });
    }

    /// What the call can cost is known: no more than that is held back for it. Gives that, where a run pays.
    pub(super) fn needs(&self, amount: i64) -> Option<i64> {
        let mut promised = locked(&self.promised);
        let promised = promised.as_mut()?;
        let needs = amount.min(promised.amount);
        promised.of.book.side_needs(&promised.run, promised.amount, needs);
        promised.amount = needs;
        Some(needs)
    }

    /// The call is over, and cost so much.
    pub(crate) fn promise_kept(&self, cost: i64) {
        if let Some(SideHold { of, run, amount }) = locked(&self.promised).take() {
            of.book.side_cost(&run, amount, cost);
        }
    }

    /// Takes over the costs that are not in the other store, while calls were made beside those of the session. `before`: what it
    /// did not have when they began.
    pub(crate) fn missed_beside(&self, beside: &Self, before: (UnixMs, i64)) {
        let (day, amount) = locked(&beside.held).missed;
        let known = if before.0 == day { before.1 } else { 0 };
        if amount > known {
            self.miss(day, amount - known);
        }
    }

    /// The day and the cost that is not in the other store.
    pub(crate) fn missed(&self) -> (UnixMs, i64) {
        locked(&self.held).missed
    }

    /// US dollars that may be spent in a day.
    pub(crate) fn daily(&self) -> Option<f64> {
        *locked(&self.daily)
    }

    /// Another limit, from the next call on.
    pub(crate) fn set_daily(&self, dollars: Option<f64>) {
        *locked(&self.daily) = dollars;
    }

    /// What is reserved for calls that are over, and what of it they may have cost besides what their nodes tell; released
    /// by the commit of those.
    pub(crate) fn over(&self) -> Vec<(ReserveId, i64)> {
        if self.ledger.is_some() { Vec::new() } else { locked(&self.held).over.clone() }
    }

    /// They are released.
    pub(crate) fn released(&self, over: &[(ReserveId, i64)]) {
        locked(&self.held).over.retain(|one| !over.contains(one));
    }

    /// The other store does not get it.
    fn miss(&self, today: UnixMs, amount: i64) {
        let mut held = locked(&self.held);
        held.missed = (today, held.missed_on(today).saturating_add(amount));
    }

    /// What is known of the input of a request, at most. A server counted what it begins with before.
    fn most(&self, request: &ModelRequest, body: &[u8]) -> MostTokens {
        let mut most = MostTokens::of(request, body);
        // What searches add was not there before.
        if most.searches == 0
            && let Some(before) = &*locked(&self.measured)
            && before.is_beginning_of(request)
            && let Some(more) = (body.len() as u64).checked_sub(before.bytes)
        {
            let images = most.input.saturating_sub(body.len() as u64);
            most.input = most.input.min(before.input.saturating_add(more).saturating_add(images));
        }
        most
    }

    fn measure(&self, request: &Arc<ModelRequest>, bytes: u64, usage: &Usage) {
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        if input > 0 {
            *locked(&self.measured) = Some(InputCount { request: request.clone(), bytes, input });
        }
    }
}

impl Reservations {
    /// What is reserved for the call, of the day and of the amount of its purpose.
    fn take(&mut self) -> Vec<ReserveId> {
        self.current.take().into_iter().chain(self.purpose.take()).collect()
    }

    fn missed_on(&self, today: UnixMs) -> i64 {
        if self.missed.0 == today { self.missed.1 } else { 0 }
    }
}

impl InputCount {
    fn is_beginning_of(&self, request: &ModelRequest) -> bool {
        let before = &*self.request;
        let (old, new) = (&before.model, &request.model);
        let same = |(one, other): (&Arc<Message>, &Arc<Message>)| Arc::ptr_eq(one, other) || one == other;
        (&old.provider, &old.api, &old.id, &old.base_url) == (&new.provider, &new.api, &new.id, &new.base_url)
            && before.thinking == request.thinking
            && before.system == request.system
            && (Arc::ptr_eq(&before.tools, &request.tools) || before.tools == request.tools)
            && before.messages.len() <= request.messages.len()
            && before.messages.iter().zip(request.messages.iter()).all(same)
    }
}

impl std::fmt::Debug for Purse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Purse").field("daily", &self.daily()).finish_non_exhaustive()
    }
}

impl Caller {
    /// Reserves the most that a call can cost; lowers what it asks for where that makes it fit. An error is how the run ends.
    /// `None`: nothing limits it, or it costs nothing.
    pub(crate) async fn reserve(&self, order: &mut CallJob) -> Result<Option<Stake>, Outcome> {
        let made = order.made();
        let mut run = order.money.map(|money| RunMoney { left: money.left - made, ..money });
        let mut daily = self.purse.daily();
        let mut of_purpose = self.amount_of(order);
        let accounts = self.purse.account_amounts();
        if run.is_none() && daily.is_none() && of_purpose.is_none() && accounts.is_empty() {
            return Ok(None);
        }
        if let Some(budget) = daily {
            let spent = self.spent_today().await? + made;
            if spent >= budget {
                return Err(Outcome::Limit(Limit::Daily { spent, budget }));
            }
        }
        let provider = self.provider();
        let request = order.request.clone();
        if !request.model.cost.are_known() {
            let counts_money = run.is_some() || daily.is_some() || of_purpose.is_some();
            if !provider.is_local() && (counts_money || accounts.iter().any(AccountAmount::is_money)) {
                return Err(unpriced(&request.model));
            }
            // It costs nothing, and uses tokens.
            (run, daily, of_purpose) = (None, None, None);
            if accounts.is_empty() {
                return Ok(None);
            }
        }
        let Some(body) = body_of(order, &*provider) else { return Ok(None) };
        let price = Price { model: &request.model, most: self.purse.most(&request, &body) };
        let mut amount = price.full();
        if let Some(RunMoney { left, limit }) = run {
            let choose = |left: i64| match amount > left {
                true => (price.least() <= left).then_some(left),
                false => Some(amount),
            };
            let book = &self.purse.book;
            amount = loop {
                let changed = book.changed();
                match book.hold(&order.run, floor_nano(left), nano(made), choose) {
                    Ok(amount) => break amount,
                    // Calls beside it are in its way, which end at their deadlines.
                    Err(left) if price.least() <= left.saturating_add(book.under_way()) => tokio::select! {
                        biased;
                        () = order.cancel.cancelled() => return Err(Outcome::Aborted),
                        () = changed => {}
                    },
                    Err(left) => {
                        self.tell(order, too_dear(&price, left, "the run's cost limit")).await;
                        return Err(Outcome::Limit(Limit::Cost(limit)));
                    }
                }
            };
        }
        if let Some(budget) = daily {
            let wanted = WantedAmount { full: amount, least: price.least().min(amount), made: nano(made) };
            amount = self.reserve_of_day(order, &price, budget, wanted).await?;
        }
        if let Some(of) = &of_purpose {
            let wanted = WantedAmount { full: amount, least: price.least().min(amount), made: nano(made) };
            amount = self.reserve_of_purpose(order, of, wanted).await?;
        }
        let Allowance { amount, output } = self.reserve_of_accounts(order, &price, amount, &accounts).await?;
        let mut most = price.most;
        if amount < price.full() || output < most.output {
            most = self.lower(order, &price, Allowance { amount, output }, &*provider).await?;
        }
        Ok(Some(Stake { model: request.model.clone(), most, amount }))
    }

    /// The same once more for the same bytes, beside what the attempts before may have been charged.
    pub(crate) async fn reserve_again(
        &self,
        order: &CallJob,
        stake: &Stake,
        charges: &[Charge],
    ) -> Result<(), Outcome> {
        let (price, amount, charged) = (stake.price(), stake.amount, stake.charged(charges));
        self.reserve_of_accounts_again(order, stake, charges).await?;
        if charged == 0 {
            return Ok(());
        }
        if let Some(RunMoney { left, limit }) = order.money {
            let left = self.purse.book.left_of(&order.run, floor_nano(left - order.made()));
            let left = left.saturating_sub(charged);
            if amount > left {
                self.tell(order, too_dear_again(charged, amount, left, "the run's cost limit")).await;
                return Err(Outcome::Limit(Limit::Cost(limit)));
            }
        }
        let made = nano(order.made()).saturating_add(charged);
        let wanted = || WantedAmount { full: amount, least: amount, made };
        if let Some(budget) = self.purse.daily() {
            self.reserve_of_day(order, &price, budget, wanted()).await?;
        }
        if let Some(of) = self.amount_of(order) {
            self.reserve_of_purpose(order, &of, wanted()).await?;
        }
        Ok(())
    }

    async fn spent_today(&self) -> Result<f64, Outcome> {
        let now = self.clock.now();
        let today = self.clock.day_of(now);
        let store = self.money_store();
        let spent = async { Ok(store.spent(today).await? + store.assumed(today, now).await?) };
        let spent: f64 = spent.await.map_err(|error| unread(&error))?;
        Ok(spent + in_dollars(locked(&self.purse.held).missed_on(today)))
    }

    /// Reserves what is wanted in the store; waits while only others stand in the way. Gives what the call may cost.
    async fn reserve_of_day(
        &self,
        order: &CallJob,
        price: &Price<'_>,
        budget: f64,
        wanted: WantedAmount,
    ) -> Result<i64, Outcome> {
        let made = wanted.made;
        let (purse, store) = (&self.purse, self.money_store());
        let id = locked(&purse.held).current.get_or_insert_with(|| ReserveId(fresh_id())).clone();
        let mut wait = ReserveWait::new(self, order);
        loop {
            let now = self.clock.now();
            let today = self.clock.day_of(now);
            let elsewhere = locked(&purse.held).missed_on(today);
            let settles = wait.is_over();
            let ask = wanted.request(id.clone(), (today, now), (floor_nano(budget), elsewhere), settles);
            let Reservation { granted, spent, others } = match store.reserve(ask.clone()).await {
                Ok(reserved) => reserved,
                // Nobody can spend there, but what was spent counts.
                Err(StoreError::ReadOnly { .. }) if purse.ledger.is_some() => {
                    let spent = nano(self.spent_today().await?);
                    let left = ask.limit.saturating_sub(spent);
                    let granted = Some(ask.full.min(left)).filter(|granted| *granted >= ask.least);
                    Reservation { granted, spent, others: 0 }
                }
                Err(error) => return Err(unread(&error)),
            };
            if let Some(granted) = granted {
                return Ok(granted.saturating_sub(made));
            }
            // Not before: the question is a commit, too.
            let changed = store.changed();
            let left = ask.limit.saturating_sub(spent);
            if ask.least > left || settles {
                let left = left.saturating_sub(others).saturating_sub(made);
                self.tell(order, too_dear(price, left, "today's budget")).await;
                return Err(Outcome::Limit(Limit::Daily { spent: in_dollars(spent), budget }));
            }
            wait.for_others(&format!("{} of today's budget", dollars(others)), changed).await?;
        }
    }

    /// Lowers the answer to what `amount` pays for.
    async fn lower(
        &self,
        order: &mut CallJob,
        price: &Price<'_>,
        allowed: Allowance,
        provider: &dyn Provider,
    ) -> Result<MostTokens, Outcome> {
        let amount = allowed.amount;
        let is_cheap = amount >= price.full();
        let output = if is_cheap { allowed.output } else { price.output_for(amount).min(allowed.output) };
        let request = &*order.request;
        if order.hooked.as_ref().is_some_and(|hooked| hooked.change.is_none()) {
            let text =
                "cannot resend the request that hooks changed: it may cost more than what is left to spend";
            return Err(Outcome::Failed(ModelError::new(ModelErrorKind::InvalidRequest, text)));
        }
        // The model that has no more than that: the budgets of thinking follow from it on each wire.
        let model = Model { max_tokens: output, ..(*request.model).clone() };
        let request = Arc::new(ModelRequest { model: Arc::new(model), ..request.clone() });
        order.request = request.clone();
        order.recorded = None;
        self.change_payload(order).await?;
        let body = match order.payload() {
            Some(payload) => payload.body.clone(),
            None => provider.encode(&request).map_err(Outcome::Failed)?,
        };
        let most = self.purse.most(&request, &body);
        if (Price { model: price.model, most }).full() > amount || most.output > allowed.output {
            let text = format!(
                "could not limit the answer to {output} tokens: a setting of the model fixes its length"
            );
            return Err(Outcome::Failed(ModelError::new(ModelErrorKind::InvalidRequest, text)));
        }
        let text = format!(
            "the answer is limited to {output} tokens instead of {} to stay within the {}",
            price.most.output,
            if is_cheap { "daily budget of tokens" } else { "cost limit" }
        );
        self.tell(order, text).await;
        Ok(most)
    }

    pub(super) async fn tell(&self, order: &CallJob, text: String) {
        self.say(order.tell.as_ref(), text).await;
    }

    async fn say(&self, tell: Option<&mailbox::Sender<MachineInput>>, text: String) {
        if let Some(tell) = tell {
            // The session is over.
            drop(tell.send(MachineInput::Notice(Notice::Note { text })).await);
        }
    }

    /// Renews what is reserved for as long as the call is under way.
    pub(crate) async fn keep_reserved(&self) {
        if self.reserved_ids().is_empty() {
            return std::future::pending().await;
        }
        self.renew_reserved().await;
    }

    /// Renews what is reserved at each moment, and never ends.
    pub(super) async fn renew_reserved(&self) {
        loop {
            tokio::time::sleep(RENEW).await;
            let expires = after(self.clock.now(), TTL);
            let ops = self.reserved_ids().into_iter().map(|id| Op::Renew { id, expires }).collect();
            // Should it fail, what is reserved counts as spent until the call is over.
            drop(self.money_store().commit(Commit { ops, ..Commit::default() }).await);
        }
    }

    fn reserved_ids(&self) -> Vec<ReserveId> {
        let held = locked(&self.purse.held);
        let accounts = held.accounts.iter().map(|account| &account.id);
        held.current.iter().chain(&held.purpose).chain(accounts).cloned().collect()
    }

    /// The call is over. What it cost becomes a node, of which the commit releases what is reserved. Gives what it may have
    /// cost besides, in US dollars.
    pub(crate) async fn settle(&self, order: &CallOrigin, sent: &CallReport, stake: Option<&Stake>) -> f64 {
        let CallReport { request, bytes, end, record, refused } = sent;
        if end.error.is_none() {
            self.purse.measure(request, *bytes, &end.message.usage);
        }
        // A call that is not recorded was not sent.
        let charged = match stake.filter(|_| record.is_some()) {
            Some(stake) if end.charges.is_empty() => stake.of(&charge_of(end)),
            Some(stake) => stake.charged(&end.charges),
            None => 0,
        };
        let reported = nano(end.message.usage.cost.total);
        let assumed = charged.saturating_sub(reported).max(0);
        let tokens = match stake.filter(|_| record.is_some()) {
            Some(stake) if end.charges.is_empty() => stake.tokens(&[charge_of(end)]),
            Some(stake) => stake.tokens(&end.charges),
            None => 0,
        };
        let used = UsedAmounts {
            dollars: reported.saturating_add(assumed),
            tokens: tokens.max(used(&end.message.usage)),
        };
        self.settle_accounts(Some(used)).await;
        if stake.is_some() && !order.is_summary {
            self.purse.book.own_cost(reported.saturating_add(assumed));
        }
        if assumed > 0 && refused.is_none() {
            self.say(order.tell.as_ref(), untold(assumed)).await;
        }
        if !order.is_summary {
            self.over(reported, assumed, record.is_some()).await;
        }
        in_dollars(assumed)
    }

    /// A call is over, or all calls of a summary are.
    pub(crate) async fn over(&self, reported: i64, assumed: i64, node: bool) {
        if node && self.purse.ledger.is_none() {
            let mut held = locked(&self.purse.held);
            let over = held.take().into_iter().map(|id| (id, assumed));
            held.over.extend(over);
            return;
        }
        self.release(reported.saturating_add(assumed)).await;
    }

    /// No node will tell what was charged.
    pub(crate) async fn release(&self, charged: i64) {
        let ids = locked(&self.purse.held).take();
        // That of the day.
        let has_day = ids.iter().any(|id| id.purpose().is_none());
        let ops: Vec<Op> = ids.into_iter().map(|id| Op::Release { id, charged }).collect();
        // Should it fail, all that is reserved counts for the day.
        let released = !ops.is_empty()
            && self.money_store().commit(Commit { ops, ..Commit::default() }).await.is_ok()
            && has_day;
        if !released && self.purse.ledger.is_some() {
            self.purse.miss(self.clock.day_of(self.clock.now()), charged);
        }
    }

    pub(super) fn money_store(&self) -> &Arc<dyn Graph> {
        self.purse.ledger.as_ref().unwrap_or(&self.store)
    }
}

fn body_of(order: &CallJob, provider: &dyn Provider) -> Option<Bytes> {
    match (&order.recorded, order.payload()) {
        (Some(recorded), _) => Some(recorded.bytes()),
        (None, Some(payload)) => Some(payload.body.clone()),
        // Whoever sends it finds out why there is none.
        (None, None) => provider.encode(&order.request).ok(),
    }
}

pub(super) fn unread(error: &StoreError) -> Outcome {
    Outcome::StoreFailed(format!("could not read today's costs, so nothing was sent: {error}"))
}

/// What an answer of which nothing else is known was charged.
fn charge_of(end: &CallEnd) -> Charge {
    let usage = end.message.usage;
    let reported = usage.cost.total > 0.0 || usage.total_tokens > 0;
    if end.error.is_none() && reported { Charge::Told(usage) } else { Charge::AtLeast(usage) }
}

fn unpriced(model: &Model) -> Outcome {
    let text = format!(
        "the price of {}/{} is unknown, so a cost limit cannot be enforced. Set its cost in models.json, or remove the \
         limit",
        model.provider, model.id
    );
    Outcome::Failed(ModelError::new(ModelErrorKind::InvalidRequest, text))
}

fn too_dear(price: &Price<'_>, left: i64, of: &str) -> String {
    format!(
        "the next call may cost {}, or {} with an answer of {} tokens, and {} of {of} is left",
        dollars(price.full()),
        dollars(price.least()),
        price.most.output.min(LEAST),
        dollars(left.max(0))
    )
}

fn too_dear_again(charged: i64, amount: i64, left: i64, of: &str) -> String {
    format!(
        "the call broke off and may have cost {}; another attempt may cost {}, and {} of {of} is left",
        dollars(charged),
        dollars(amount),
        dollars(left.max(0))
    )
}

fn untold(assumed: i64) -> String {
    format!(
        "the server did not report the full cost of the call: {} more is counted as spent, because it may have been \
         charged",
        dollars(assumed)
    )
}

/// Tokens that a call used.
fn used(usage: &Usage) -> i64 {
    let all = [usage.input, usage.output, usage.cache_read, usage.cache_write];
    whole(all.into_iter().fold(0, u64::saturating_add))
}

pub(super) fn whole(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[expect(clippy::cast_possible_truncation, reason = "clamped; what is no number becomes 0")]
pub(crate) fn nano(dollars: f64) -> i64 {
    (dollars * 1e9).ceil().clamp(0.0, 1e18) as i64
}

#[expect(clippy::cast_possible_truncation, reason = "clamped; what is no number becomes 0")]
pub(crate) fn floor_nano(dollars: f64) -> i64 {
    (dollars * 1e9).round().clamp(0.0, 1e18) as i64
}

pub(crate) fn in_dollars(nano: i64) -> f64 {
    number(nano) / 1e9
}

#[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
pub(super) fn number(amount: i64) -> f64 {
    amount as f64
}

pub(super) fn dollars(nano: i64) -> String {
    let dollars = in_dollars(nano);
    if dollars < 0.1 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

fn after(now: UnixMs, time: Duration) -> UnixMs {
    now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

pub(super) fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can break down while it is held.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
