//! The daily budget: over all sessions of a store, by the day of the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use quipu::protocol::{Command, Limit, Outcome};
use quipu::store::{SqliteStore, Store, Upkeep};
use quipu::{Clock, Limits, SessionOptions};
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
    let ledger: Arc<dyn Store> = world.store.clone();
    let options = SessionOptions { ledger: Some(ledger), ..limited(&world, 0.5) };
    let live = Live::of(engine.create(options).await.unwrap()).await;
    assert_eq!(live.run("go").await, Outcome::Done);
    assert_eq!(live.run("go").await, Outcome::Limit(Limit::Daily { spent: 0.5, budget: 0.5 }));
    live.finish().await;
}
