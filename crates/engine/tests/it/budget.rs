//! The daily budget: over all sessions of a store, by the day of the clock.

use quipu_store::ReadModel as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use quipu::protocol::{AccountLimit, BudgetHolder, BudgetUnit, Command, Limit, Model, Outcome, Prices};
use quipu::store::{Graph, SqliteStore, Upkeep};
use quipu::{
    AccountBudget, AccountUse, Accounts, AgentDefinition, AgentLimits, AgentSettings, ChildRequest, Clock,
    Engine, Limits, RunnerPurpose, SessionOptions, account_use,
};
use serde_json::json;

use crate::support::*;

const HOUR: i64 = 3_600_000;
const NOON: i64 = 1_700_000_000_000 / (24 * HOUR) * (24 * HOUR) + 12 * HOUR;

/// A clock that is set by hand, in a place where days begin at 18:00 UTC.
struct Hands(AtomicI64);

impl Clock for Hands {
    fn now(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    fn day_of(&self, at: i64) -> i64 {
        at - (at - 18 * HOUR).rem_euclid(24 * HOUR)
    }
}

fn world() -> (World, Arc<Hands>) {
    let clock = Arc::new(Hands(NOON.into()));
    let mut world = World::new();
    world.engine = world.engine.with_clock(clock.clone());
    (world, clock)
}

fn limited(world: &World, dollars: f64) -> SessionOptions {
    let limits = Limits { daily_budget: Some(dollars), ..Limits::default() };
    SessionOptions { limits, ..world.options() }
}

fn costs(dollars: f64, text: &str) -> Reply {
    Reply { cost: dollars, ..say(text) }
}

#[tokio::test]
async fn counts_every_session_until_the_day_is_over() {
    let (world, clock) = world();
    world.fake.push([
        costs(0.25, "one"),
        Reply { cost: 0.25, ..call(&[("echo", json!({}))]) },
        costs(0.125, "two"),
        costs(1.0, "three"),
    ]);
    let first = world.create_with(limited(&world, 0.5)).await;
    assert_eq!(first.run("go").await, Outcome::Done);
    // Another session meets it in the middle of a run: its tool ran, the next call is not made.
    let second = world.create_with(limited(&world, 0.5)).await;
    let reached = Outcome::Limit(Limit::Daily { spent: 0.5, budget: 0.5 });
    assert_eq!(second.run("go").await, reached);
    assert_eq!((world.fake.bodies().len(), second.results().len()), (2, 1));
    assert_eq!(first.run("more").await, reached);
    // The number is the same when it is made anew.
    world.store.rebuild().await.unwrap();
    assert_eq!(world.store.spent(clock.day_of(NOON)).await.unwrap(), 0.5);
    clock.0.store(NOON + 6 * HOUR - 10, Ordering::SeqCst);
    second.session.send(Command::Continue).await.unwrap();
    second.settled(2).await;
    assert_eq!(second.outcomes().pop(), Some(reached));
    assert_eq!(world.fake.bodies().len(), 2);

    // A new day: what was said is answered.
    clock.0.store(NOON + 6 * HOUR, Ordering::SeqCst);
    second.session.send(Command::Continue).await.unwrap();
    second.settled(3).await;
    assert_eq!(second.outcomes().pop(), Some(Outcome::Done));
    assert_eq!(world.store.spent(NOON + 6 * HOUR).await.unwrap(), 0.125);
    // One call goes through as long as anything is left.
    assert_eq!(first.run("and more").await, Outcome::Done);
    assert_eq!(second.run("again").await, Outcome::Limit(Limit::Daily { spent: 1.125, budget: 0.5 }));
    assert_eq!(world.fake.bodies().len(), 4);
    first.finish().await;
    second.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_clock_that_jumps_back_frees_nothing() {
    let (world, clock) = world();
    world.fake.push([costs(0.5, "one"), costs(0.5, "two")]);
    clock.0.store(NOON + 48 * HOUR, Ordering::SeqCst);
    let live = world.create_with(limited(&world, 0.5)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    clock.0.store(NOON, Ordering::SeqCst);
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Daily { spent: 0.5, budget: 0.5 }));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn a_session_that_keeps_nothing_counts_what_others_kept() {
    let (world, _) = world();
    world.fake.push([costs(0.25, "one"), costs(0.25, "two")]);
    let live = world.create_with(limited(&world, 0.5)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.finish().await;
    let clock = Arc::new(Hands(NOON.into()));
    let memory = Arc::new(SqliteStore::in_memory().unwrap());
    let engine = engine_over(memory, world.cwd().as_path()).with_clock(clock);
    let ledger: Arc<dyn Graph> = world.store.clone();
    let options = SessionOptions { ledger: Some(ledger), ..limited(&world, 0.5) };
    let live = LiveSession::of(engine.create(options).await.unwrap()).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Daily { spent: 0.5, budget: 0.5 }));
    live.finish().await;
}

/// Numbers that look random and are the same each time.
fn number(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Whatever calls use within what they may, and however many work at a time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spending_stays_within_daily_budget() {
    for seed in 1..6_u64 {
        let mut state = seed;
        let world = World::new();
        // A thousand tokens cost a dollar; an answer has 1,024 tokens or fewer, which every request allows.
        let spends = |state: &mut u64| f64::from(u32::try_from(number(state) % 1_025).unwrap()) / 1e3;
        let replies: Vec<_> = (0..60).map(|_| costs(spends(&mut state), "so")).collect();
        world.fake.push(replies);
        let max_tokens = 1_024 + number(&mut state) % 4_096;
        let cost = Prices { output: 1_000.0, ..Prices::default() };
        let model = Model { max_tokens, cost, ..(*model()).clone() };
        let budget = 6.0;
        let run = async |limits: Limits| {
            let options = SessionOptions { limits, model: Arc::new(model.clone()), ..world.options() };
            let live = world.create_with(options).await;
            let mut outcome = Outcome::Done;
            while outcome == Outcome::Done {
                outcome = live.run("go").await;
            }
            live.finish().await;
            outcome
        };
        let limits = || Limits {
            daily_budget: Some(budget),
            wait: Some(Duration::from_millis(20)),
            ..Limits::default()
        };
        let ended = futures_util::future::join_all((0..3).map(|_| run(limits()))).await;
        for outcome in ended {
            assert!(matches!(outcome, Outcome::Limit(Limit::Daily { .. })), "{outcome:?}");
        }
        let spent = world.store.spent(0).await.unwrap();
        assert!(spent <= budget && spent > budget - 2.0 * 1.024 - 1e-6, "{seed}: {spent}");
        world.check().await;
    }
}

#[tokio::test]
async fn another_limit_of_the_day_holds_from_the_next_call_on() {
    let (world, _) = world();
    world.fake.push([costs(0.25, "one"), costs(0.25, "two")]);
    let live = world.create().await;
    assert_eq!(live.run("go").await, Outcome::Done);
    live.session.set_daily_budget(Some(0.25));
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Daily { spent: 0.25, budget: 0.25 }));
    live.session.set_daily_budget(None);
    live.session.send(Command::Continue).await.unwrap();
    live.settled(3).await;
    assert_eq!(live.outcomes().pop(), Some(Outcome::Done));
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn child_sessions_of_two_engines_share_the_amount_of_a_purpose() {
    let gate = Gate::new();
    let held = Reply { before: Some(gate.clone()), ..costs(0.5, "one") };
    let world = World::with([held, costs(0.5, "two")]);
    // A thousand tokens cost a dollar, so a call may cost 1.024.
    let cost = Prices { output: 1_000.0, ..Prices::default() };
    let model = Arc::new(Model { max_tokens: 1_024, cost, ..(*model()).clone() });
    let looks_up = async |engine: &Engine, wait: Option<Duration>| {
        let limits = Limits { wait, ..Limits::default() };
        let runner = engine.runner(SessionOptions { limits, model: model.clone(), ..world.options() });
        let request = ChildRequest::new(RunnerPurpose::new("lookup").unwrap(), "Look it up.");
        let request = ChildRequest { max_tokens: 1_024, budget: Some(9.0), daily: Some(1.6), ..request };
        runner.session(request).await.unwrap().outcome
    };
    let other = engine_over(open_store(world.dir.path()), world.dir.path());
    let second = async {
        gate.reached().await;
        let outcome = looks_up(&other, Some(Duration::from_millis(300))).await;
        assert_eq!(world.fake.bodies().len(), 1, "what the first one may cost is reserved");
        gate.open();
        outcome
    };
    let (first, second) = futures_util::future::join(looks_up(&world.engine, None), second).await;
    assert_eq!(first, Outcome::Done);
    assert_ne!(second, Outcome::Done);
    // What the first one cost leaves room for one more, and not for two.
    assert_eq!(looks_up(&other, None).await, Outcome::Done);
    assert_eq!(looks_up(&other, None).await, Outcome::Limit(Limit::Cost(1.6)));
    assert_eq!(world.fake.bodies().len(), 2);
    drop(other);
    world.check().await;
}

fn account(name: &str, dollars: Option<f64>, tokens: Option<u64>) -> AccountBudget {
    AccountBudget { holder: BudgetHolder::Agent, name: name.into(), dollars, tokens }
}

fn of_account(world: &World, budget: &AccountBudget) -> SessionOptions {
    SessionOptions { accounts: Some(Arc::new(vec![budget.clone()])), ..world.options() }
}

fn limit(outcome: Option<Outcome>) -> AccountLimit {
    match outcome {
        Some(Outcome::Limit(Limit::Account(limit))) => limit,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn account_is_shared_by_sessions_until_the_next_day() {
    let (world, clock) = world();
    world.fake.push([costs(0.25, "one"), costs(0.25, "two"), costs(0.125, "other"), costs(0.5, "nobody's")]);
    let ops = account("ops", Some(0.5), None);
    let first = world.create_with(of_account(&world, &ops)).await;
    let second = world.create_with(of_account(&world, &ops)).await;
    assert_eq!(first.run("go").await, Outcome::Done);
    assert_eq!(second.run("go").await, Outcome::Done);
    let reached = limit(Some(first.run("more").await));
    let (holder, name, unit) = (BudgetHolder::Agent, "ops".to_owned(), BudgetUnit::Dollars);
    let resets = NOON + 6 * HOUR;
    assert_eq!(reached, AccountLimit { holder, name, unit, spent: 0.5, budget: 0.5, resets });
    // Nobody else is in its way.
    let other = world.create_with(of_account(&world, &account("main", Some(0.5), None))).await;
    assert_eq!(other.run("go").await, Outcome::Done);
    let nobody = world.create().await;
    assert_eq!(nobody.run("go").await, Outcome::Done);
    assert_eq!(world.fake.bodies().len(), 4, "what does not fit is not sent");
    let used = async |budget| account_use(&*world.store, &*clock, budget).await.unwrap();
    assert_eq!(used(&ops).await, AccountUse { dollars: 0.5, tokens: 0 });
    // One that keeps nothing itself.
    let memory = Arc::new(SqliteStore::in_memory().unwrap());
    let engine = engine_over(memory, world.cwd().as_path()).with_clock(clock.clone());
    let ledger: Arc<dyn Graph> = world.store.clone();
    let options = SessionOptions { ledger: Some(ledger), ..of_account(&world, &ops) };
    let live = LiveSession::of(engine.create(options).await.unwrap()).await;
    assert_eq!(limit(Some(live.run("go").await)).spent, 0.5);
    live.finish().await;
    clock.0.store(NOON + 6 * HOUR, Ordering::SeqCst);
    first.session.send(Command::Continue).await.unwrap();
    first.settled(3).await;
    assert_eq!(first.outcomes().pop(), Some(Outcome::Done), "it begins anew");
    assert_eq!(used(&ops).await, AccountUse::default());
    for live in [first, second, other, nobody] {
        live.finish().await;
    }
    world.check().await;
}

#[tokio::test]
async fn account_counts_tokens_of_models_without_a_price() {
    let (world, _) = world();
    world.fake.push([1, 2].map(|_| Reply { input: 60_000, ..costs(0.001, "so") }));
    let budget = account("ops", None, Some(100_000));
    let live = world.create_with(of_account(&world, &budget)).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.run("go").await, Outcome::Done, "something is left");
    let reached = limit(Some(live.run("go").await));
    assert_eq!((reached.unit, reached.spent, reached.budget), (BudgetUnit::Tokens, 120_002.0, 100_000.0));
    assert_eq!(world.fake.bodies().len(), 2);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn account_counts_calls_of_sub_agents() {
    let (world, _) = world();
    world.fake.push([call(&[("task", json!({ "prompt": "Look." }))]), costs(0.5, "Looked.")]);
    let agent =
        AgentDefinition { name: "helper".into(), description: "Helps.".into(), ..AgentDefinition::default() };
    let agents = AgentSettings { agents: vec![agent], limits: AgentLimits::default(), worktrees: None };
    let options = of_account(&world, &account("ops", Some(0.5), None));
    let live = world.create_with(SessionOptions { agents: Some(Arc::new(agents)), ..options }).await;
    assert_eq!(limit(Some(live.run("go").await)).spent, 0.5);
    assert_eq!(world.fake.bodies().len(), 2);
    live.finish().await;
    world.check().await;
}

#[tokio::test]
async fn calls_of_two_engines_share_an_account() {
    let gate = Gate::new();
    let held = Reply { before: Some(gate.clone()), ..costs(0.5, "one") };
    let world = World::with([held, costs(0.5, "two")]);
    // A thousand tokens cost a dollar, so a call may cost 1.024.
    let cost = Prices { output: 1_000.0, ..Prices::default() };
    let model = Arc::new(Model { max_tokens: 1_024, cost, ..(*model()).clone() });
    let budget = AccountBudget { holder: BudgetHolder::Job, ..account("a/b", Some(1.6), None) };
    let run = async |engine: &Engine, wait: Option<Duration>| {
        let limits = Limits { wait, ..Limits::default() };
        let options = SessionOptions { limits, model: model.clone(), ..of_account(&world, &budget) };
        let live = LiveSession::of(engine.create(options).await.unwrap()).await;
        let outcome = live.run("go").await;
        live.finish().await;
        outcome
    };
    let other = engine_over(open_store(world.dir.path()), world.dir.path());
    let second = async {
        gate.reached().await;
        let outcome = run(&other, Some(Duration::from_millis(300))).await;
        assert_eq!(world.fake.bodies().len(), 1, "what the first one may cost is reserved");
        gate.open();
        outcome
    };
    let (first, second) = futures_util::future::join(run(&world.engine, None), second).await;
    assert_eq!(first, Outcome::Done);
    let second = limit(Some(second));
    assert_eq!((second.holder, &*second.name, second.spent), (BudgetHolder::Job, "a/b", 0.0));
    // What the first one cost leaves room for one more, and not for two.
    assert_eq!(run(&other, None).await, Outcome::Done);
    assert_eq!(limit(Some(run(&other, None).await)).spent, 1.0);
    assert_eq!(world.fake.bodies().len(), 2);
    drop(other);
    world.check().await;
}

/// A budget that is changed while sessions are open.
struct BudgetBoard(std::sync::Mutex<Vec<AccountBudget>>);

impl Accounts for BudgetBoard {
    fn budgets(&self) -> Vec<AccountBudget> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn account_is_asked_for_its_budget_before_each_call() {
    let (world, _) = world();
    world.fake.push([costs(0.5, "one"), costs(0.5, "two")]);
    let accounts = Arc::new(BudgetBoard(vec![account("ops", Some(0.5), None)].into()));
    let live =
        world.create_with(SessionOptions { accounts: Some(accounts.clone()), ..world.options() }).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(limit(Some(live.run("go").await)).budget, 0.5);
    *accounts.0.lock().unwrap() = vec![account("ops", Some(0.75), None)];
    live.session.send(Command::Continue).await.unwrap();
    live.settled(3).await;
    assert_eq!(live.outcomes().pop(), Some(Outcome::Done));
    assert_eq!(limit(Some(live.run("go").await)).spent, 1.0);
    live.finish().await;
    world.check().await;
}
