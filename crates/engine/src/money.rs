//! Money is reserved before a request is sent: the most that the call can cost, so that what is spent stays within the limits
//! of the run and of the day, over all processes of a store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quipu_protocol::{
    Limit, Message, Model, ModelError, ModelErrorKind, ModelRequest, Outcome, Trouble, UnixMs, Usage,
};
use quipu_providers::{CallEnd, MostTokens, Provider};
use quipu_store::{Commit, Op, ReserveAsk, ReserveId, Reserved, Store, StoreError};
use tokio::time::Instant;

use crate::call::{Caller, Order, Recorded};
use crate::clock::fresh_id;
use crate::machine::Input;
use crate::session::Session;

/// Tokens of an answer below which a request is not lowered.
const LEAST: u64 = 1_024;
/// How long a call waits for what others have reserved.
const WAIT: Duration = Duration::from_secs(30);
/// How long a reservation lasts without renewal.
const TTL: Duration = Duration::from_secs(120);
/// How often it is renewed.
const RENEW: Duration = Duration::from_secs(40);
/// How often what others have reserved is looked at, beside each commit.
const LOOK: Duration = Duration::from_millis(500);

/// What may be spent, and what is reserved of it.
pub(crate) struct Purse {
    daily: Mutex<Option<f64>>,
    wait: Duration,
    /// Another store that counts, too: all is reserved there.
    ledger: Option<Arc<dyn Store>>,
    held: Mutex<Held>,
    measured: Mutex<Option<Measured>>,
}

#[derive(Default)]
struct Held {
    /// For the call under way, or the calls of the summary under way.
    current: Option<ReserveId>,
    /// For calls that are over, and whose nodes are not in the store yet.
    over: Vec<ReserveId>,
}

/// What a server counted last.
struct Measured {
    request: Arc<ModelRequest>,
    bytes: u64,
    input: u64,
}

/// What may be left of the limit of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMoney {
    pub(crate) left: f64,
    pub(crate) limit: f64,
}

/// What a call can cost.
struct Price<'a> {
    model: &'a Model,
    most: MostTokens,
}

impl Price<'_> {
    fn with(&self, output: u64) -> i64 {
        nano(self.model.cost.most(self.most.input, output, self.most.long_cache))
    }

    fn full(&self) -> i64 {
        self.with(self.most.output)
    }

    fn least(&self) -> i64 {
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
    pub(crate) fn new(daily: Option<f64>, wait: Option<Duration>, ledger: Option<Arc<dyn Store>>) -> Self {
        let (held, measured) = (Mutex::default(), Mutex::default());
        Self { daily: Mutex::new(daily), wait: wait.unwrap_or(WAIT), ledger, held, measured }
    }

    /// US dollars that may be spent in a day.
    pub(crate) fn daily(&self) -> Option<f64> {
        *locked(&self.daily)
    }

    /// Another limit, from the next call on.
    pub(crate) fn set_daily(&self, dollars: Option<f64>) {
        *locked(&self.daily) = dollars;
    }

    /// What is reserved for calls that are over; released by the commit of their nodes.
    pub(crate) fn over(&self) -> Vec<ReserveId> {
        if self.ledger.is_some() { Vec::new() } else { locked(&self.held).over.clone() }
    }

    /// They are released.
    pub(crate) fn released(&self, ids: &[ReserveId]) {
        locked(&self.held).over.retain(|id| !ids.contains(id));
    }

    /// What is known of the input of a request, at most. A server counted what it begins with before.
    fn most(&self, request: &ModelRequest, body: &[u8]) -> MostTokens {
        let mut most = MostTokens::of(request, body);
        if let Some(before) = &*locked(&self.measured)
            && before.is_beginning_of(request)
            && let Some(more) = (body.len() as u64).checked_sub(before.bytes)
        {
            let images = most.input.saturating_sub(body.len() as u64);
            most.input = most.input.min(before.input.saturating_add(more).saturating_add(images));
        }
        if request.model.context_window > 0 {
            // No server reads more.
            most.input = most.input.min(request.model.context_window);
        }
        most
    }

    fn measure(&self, request: &Arc<ModelRequest>, bytes: u64, usage: &Usage) {
        let input = usage.input.saturating_add(usage.cache_read).saturating_add(usage.cache_write);
        if input > 0 {
            *locked(&self.measured) = Some(Measured { request: request.clone(), bytes, input });
        }
    }
}

impl Measured {
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
    pub(crate) async fn reserve(&self, order: &mut Order) -> Result<(), Outcome> {
        let made = order.summary.as_ref().map_or(0.0, |calls| calls.usage.cost.total);
        let run = order.money.map(|money| RunMoney { left: money.left - made, ..money });
        let daily = self.purse.daily();
        if run.is_none() && daily.is_none() {
            return Ok(());
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
            return if provider.is_local() { Ok(()) } else { Err(unpriced(&request.model)) };
        }
        let Some(body) = body_of(order.recorded.as_ref(), &*provider, &request) else { return Ok(()) };
        let price = Price { model: &request.model, most: self.purse.most(&request, &body) };
        let mut amount = price.full();
        if let Some(RunMoney { left, limit }) = run {
            let left = floor_nano(left);
            if amount > left {
                if price.least() > left {
                    self.tell(order, too_dear(&price, left, "--max-cost")).await;
                    return Err(Outcome::Limit(Limit::Cost(limit)));
                }
                amount = left;
            }
        }
        if let Some(budget) = daily {
            amount = self.reserve_of_day(order, &price, budget, amount, nano(made)).await?;
        }
        if amount < price.full() {
            self.lower(order, &price, amount, &*provider).await?;
        }
        Ok(())
    }

    async fn spent_today(&self) -> Result<f64, Outcome> {
        let today = self.clock.day_of(self.clock.now());
        let mut spent = 0.0;
        for store in [&self.store].into_iter().chain(&self.purse.ledger) {
            spent += store.spent(today).await.map_err(|error| unread(&error))?;
        }
        Ok(spent)
    }

    /// Reserves up to `most` in the store; waits while only others stand in the way. Gives what the call may cost.
    async fn reserve_of_day(
        &self,
        order: &Order,
        price: &Price<'_>,
        budget: f64,
        most: i64,
        made: i64,
    ) -> Result<i64, Outcome> {
        let purse = &self.purse;
        let id = locked(&purse.held).current.get_or_insert_with(|| ReserveId(fresh_id())).clone();
        let began = Instant::now();
        let mut told = false;
        loop {
            let now = self.clock.now();
            let today = self.clock.day_of(now);
            let (store, elsewhere) = match &purse.ledger {
                Some(ledger) => {
                    (ledger, nano(self.store.spent(today).await.map_err(|error| unread(&error))?))
                }
                None => (&self.store, 0),
            };
            let changed = store.changed();
            let settles = began.elapsed() >= purse.wait;
            let ask = ReserveAsk {
                id: id.clone(),
                since: today,
                now,
                expires: after(now, TTL),
                limit: floor_nano(budget),
                elsewhere,
                full: most.saturating_add(made),
                least: price.least().min(most).saturating_add(made),
                settles,
            };
            let Reserved { granted, spent, others } = match store.reserve(ask.clone()).await {
                Ok(reserved) => reserved,
                // Nobody can spend there, but what was spent counts.
                Err(StoreError::ReadOnly { .. }) if purse.ledger.is_some() => {
                    let spent = nano(store.spent(today).await.map_err(|error| unread(&error))?)
                        .saturating_add(elsewhere);
                    let left = ask.limit.saturating_sub(spent);
                    let granted = Some(ask.full.min(left)).filter(|granted| *granted >= ask.least);
                    Reserved { granted, spent, others: 0 }
                }
                Err(error) => return Err(unread(&error)),
            };
            if let Some(granted) = granted {
                return Ok(granted.saturating_sub(made));
            }
            let left = ask.limit.saturating_sub(spent);
            if ask.least > left || settles {
                let left = left.saturating_sub(others).saturating_sub(made);
                self.tell(order, too_dear(price, left, "today's budget")).await;
                return Err(Outcome::Limit(Limit::Daily { spent: in_dollars(spent), budget }));
            }
            if !told {
                told = true;
                let text = format!(
                    "waiting up to {} s: other calls have reserved {} of today's budget",
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

    /// Lowers the answer to what `amount` pays for.
    async fn lower(
        &self,
        order: &mut Order,
        price: &Price<'_>,
        amount: i64,
        provider: &dyn Provider,
    ) -> Result<(), Outcome> {
        let output = price.output_for(amount);
        let request = &*order.request;
        // The model that has no more than that: the budgets of thinking follow from it on each wire.
        let model = Model { max_tokens: output, ..(*request.model).clone() };
        let request = Arc::new(ModelRequest { model: Arc::new(model), ..request.clone() });
        let body = provider.encode(&request).map_err(Outcome::Failed)?;
        let most = self.purse.most(&request, &body);
        if (Price { model: price.model, most }).full() > amount {
            let text = format!(
                "the request could not be lowered to {output} tokens of answer; a setting of the model says how many it asks for"
            );
            return Err(Outcome::Failed(ModelError::new(ModelErrorKind::InvalidRequest, text)));
        }
        let text = format!(
            "the answer may have {output} tokens instead of {}, so that the call stays within what may be spent",
            price.most.output
        );
        self.tell(order, text).await;
        order.request = request;
        order.recorded = None;
        Ok(())
    }

    async fn tell(&self, order: &Order, text: String) {
        if let Some(tell) = &order.tell {
            // The session is over.
            drop(tell.send(Input::Told(Trouble::Note(text))).await);
        }
    }

    /// Renews what is reserved for as long as the call is under way.
    pub(crate) async fn keep_reserved(&self) {
        let Some(id) = locked(&self.purse.held).current.clone() else { return std::future::pending().await };
        loop {
            tokio::time::sleep(RENEW).await;
            let op = Op::Renew { id: id.clone(), expires: after(self.clock.now(), TTL) };
            // Should it fail, what is reserved counts as spent until the call is over.
            drop(self.money_store().commit(Commit { ops: vec![op], ..Commit::default() }).await);
        }
    }

    /// The call is over. What it cost becomes a node, of which the commit releases what is reserved.
    pub(crate) async fn settle(&self, request: &Arc<ModelRequest>, bytes: u64, end: &CallEnd, summary: bool) {
        if end.error.is_none() {
            self.purse.measure(request, bytes, &end.message.usage);
        }
        if self.purse.ledger.is_some() {
            return self.release().await;
        }
        let mut held = locked(&self.purse.held);
        // The calls of a summary have one node.
        if !summary && let Some(id) = held.current.take() {
            held.over.push(id);
        }
    }

    /// The summary is over.
    pub(crate) async fn settle_summary(&self, node: bool) {
        if !node {
            return self.release().await;
        }
        let mut held = locked(&self.purse.held);
        if let Some(id) = held.current.take() {
            held.over.push(id);
        }
    }

    /// Nothing was sent.
    pub(crate) async fn release(&self) {
        let Some(id) = locked(&self.purse.held).current.take() else { return };
        let ops = vec![Op::Release { id }];
        // Should it fail, it counts for the day.
        drop(self.money_store().commit(Commit { ops, ..Commit::default() }).await);
    }

    fn money_store(&self) -> &Arc<dyn Store> {
        self.purse.ledger.as_ref().unwrap_or(&self.store)
    }
}

impl Session {
    /// US dollars that may be spent in a day, from the next call on, whether one is under way or not. `None`: no limit.
    pub fn set_daily_budget(&self, dollars: Option<f64>) {
        self.purse.set_daily(dollars);
    }
}

fn body_of(recorded: Option<&Recorded>, provider: &dyn Provider, request: &ModelRequest) -> Option<Bytes> {
    match recorded {
        Some(recorded) => Some(recorded.bytes()),
        // Whoever sends it finds out why there is none.
        None => provider.encode(request).ok(),
    }
}

fn unread(error: &StoreError) -> Outcome {
    Outcome::StoreFailed(format!("what was spent today could not be read, so nothing was sent: {error}"))
}

fn unpriced(model: &Model) -> Outcome {
    let text = format!(
        "no price is known of {}/{}, so its calls cannot be kept within a limit on money. Give its cost in models.json, or work \
         without the limit",
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

#[expect(clippy::cast_possible_truncation, reason = "clamped; what is no number becomes 0")]
fn nano(dollars: f64) -> i64 {
    (dollars * 1e9).ceil().clamp(0.0, 1e18) as i64
}

#[expect(clippy::cast_possible_truncation, reason = "clamped; what is no number becomes 0")]
fn floor_nano(dollars: f64) -> i64 {
    (dollars * 1e9).round().clamp(0.0, 1e18) as i64
}

#[expect(clippy::cast_precision_loss, reason = "amounts are far below 2^52")]
fn in_dollars(nano: i64) -> f64 {
    nano as f64 / 1e9
}

fn dollars(nano: i64) -> String {
    let dollars = in_dollars(nano);
    if dollars < 0.1 { format!("${dollars:.4}") } else { format!("${dollars:.2}") }
}

fn after(now: UnixMs, time: Duration) -> UnixMs {
    now.saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can break down while it is held.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
