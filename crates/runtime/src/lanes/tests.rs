use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::time::advance;

use super::*;

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn key(text: &str) -> SessionKey {
    SessionKey::parse(text).unwrap()
}

/// Lanes whose tasks say when they begin, and end when they are let go.
struct World {
    lanes: Lanes,
    begun: mpsc::UnboundedReceiver<(&'static str, oneshot::Sender<()>)>,
    say: mpsc::UnboundedSender<(&'static str, oneshot::Sender<()>)>,
}

impl World {
    fn new() -> Self {
        let (say, begun) = mpsc::unbounded_channel();
        Self { lanes: Lanes::new(LaneSettings::default()), begun, say }
    }

    fn work(
        &self,
        name: &'static str,
    ) -> impl FnOnce(TaskHandle) -> BoxFuture<'static, &'static str> + use<> {
        let say = self.say.clone();
        move |_| {
            async move {
                let (go, gone) = oneshot::channel();
                say.send((name, go)).unwrap();
                drop(gone.await);
                name
            }
            .boxed()
        }
    }

    fn enqueue(&self, name: &'static str, task: LaneTask) -> LaneTicket<&'static str> {
        self.lanes.enqueue(task, self.work(name))
    }

    /// The next task that begins.
    async fn next(&mut self) -> (&'static str, oneshot::Sender<()>) {
        self.begun.recv().await.unwrap()
    }

    /// Lets everything come to rest, and says whether a task began.
    async fn is_quiet(&mut self) -> bool {
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        self.begun.is_empty()
    }
}

#[tokio::test(start_paused = true)]
async fn session_runs_one_task_at_a_time() {
    let mut world = World::new();
    let (a, b) = (key("agent:main:direct:a"), key("agent:main:direct:b"));
    let main = || LaneTask::new(MAIN_LANE);
    let first = world.lanes.enqueue_in_session(&a, main(), world.work("a1"));
    let second = world.lanes.enqueue_in_session(&a, main(), world.work("a2"));
    let other = world.lanes.enqueue_in_session(&b, main(), world.work("b1"));
    let (name, go) = world.next().await;
    assert_eq!(name, "a1");
    let (name, go_b) = world.next().await;
    assert_eq!(name, "b1");
    assert!(world.is_quiet().await);
    drop(go);
    assert_eq!(first.wait().await, Ok("a1"));
    assert_eq!(world.next().await.0, "a2");
    drop(go_b);
    assert_eq!((second.wait().await, other.wait().await), (Ok("a2"), Ok("b1")));
    world.lanes.idle().await;
    assert_eq!(world.lanes.status(), [], "no lane is kept without work");
}

#[tokio::test(start_paused = true)]
async fn flood_of_one_session_holds_up_no_other() {
    let mut world = World::new();
    world.lanes.set_limit(MAIN_LANE, 1);
    let (flood, quiet) = (key("agent:main:direct:flood"), key("agent:main:direct:quiet"));
    for _ in 0..10_000 {
        drop(world.lanes.enqueue_in_session(&flood, LaneTask::new(MAIN_LANE), world.work("flood")));
    }
    let ticket = world.lanes.enqueue_in_session(&quiet, LaneTask::new(MAIN_LANE), world.work("quiet"));
    assert_eq!(world.next().await.0, "flood");
    assert_eq!(world.next().await.0, "quiet", "right behind the one that ran");
    assert_eq!(ticket.wait().await, Ok("quiet"));
    assert_eq!(world.lanes.clear(&session_lane(&flood)), 9_998);
}

#[tokio::test(start_paused = true)]
async fn priorities_come_first_and_order_is_stable() {
    let mut world = World::new();
    world.lanes.set_limit("x", 0);
    for (name, priority) in [
        ("n1", LanePriority::Normal),
        ("b1", LanePriority::Background),
        ("f1", LanePriority::Foreground),
        ("n2", LanePriority::Normal),
        ("f2", LanePriority::Foreground),
    ] {
        drop(world.enqueue(name, LaneTask::new("x").with_priority(priority)));
    }
    world.lanes.set_limit("x", 1);
    for expect in ["f1", "f2", "n1", "n2", "b1"] {
        assert_eq!(world.next().await.0, expect);
    }
}

#[tokio::test(start_paused = true)]
async fn paused_lane_is_reported_and_cleared() {
    let mut world = World::new();
    world.lanes.set_limit("x", 0);
    let ticket = world.enqueue("one", LaneTask::new("x"));
    let other = world.enqueue("other", LaneTask::new("y"));
    assert_eq!(world.next().await.0, "other", "other lanes run");
    assert_eq!(other.wait().await, Ok("other"));
    advance(seconds(86_400)).await;
    assert!(world.is_quiet().await);
    let longest_wait = Some(seconds(86_400));
    let expect = LaneStatus { lane: "x".into(), limit: 0, running: 0, waiting: 1, longest_wait };
    assert_eq!(world.lanes.status(), [expect]);
    assert_eq!(world.lanes.clear("x"), 1);
    assert_eq!(ticket.wait().await, Err(LaneError::Cleared { lane: "x".into() }));
    assert_eq!(world.lanes.clear("x"), 0);
}

#[tokio::test(start_paused = true)]
async fn long_waits_are_warnings() {
    let mut world = World::new();
    drop(world.enqueue("one", LaneTask::new("x")));
    let (_, go) = world.next().await;
    for _ in 0..300 {
        drop(world.lanes.enqueue(LaneTask::new("x"), |_| async {}));
    }
    let last = world.lanes.enqueue(LaneTask::new("x"), |_| async {});
    advance(Duration::from_millis(1_999)).await;
    drop(world.enqueue("short", LaneTask::new("x")));
    advance(Duration::from_millis(1)).await;
    drop(go);
    assert_eq!(last.wait().await, Ok(()));
    assert_eq!(world.next().await.0, "short");
    let LaneWarnings { warnings, missed } = world.lanes.take_warnings();
    assert_eq!((warnings.len(), missed), (256, 45), "301 waited for two seconds");
    assert_eq!(warnings[255], LaneWarning { lane: "x".into(), waited: seconds(2), behind: 1 });
    assert_eq!(world.lanes.take_warnings(), LaneWarnings::default());
}

#[tokio::test(start_paused = true)]
async fn panics_and_errors_do_not_stop_a_lane() {
    let lanes = Lanes::new(LaneSettings::default());
    let early =
        lanes.enqueue(LaneTask::new("x"), |_| -> BoxFuture<'static, ()> { panic!("before it began") });
    let late = lanes.enqueue(LaneTask::new("x"), |_| async { panic!("{} of it", "in the middle") });
    let failed = lanes.enqueue(LaneTask::new("x"), |_| async { Err::<(), _>("a failure is a value") });
    let fine = lanes.enqueue(LaneTask::new("x"), |_| async { 1 });
    let panicked = |message: &str| LaneError::Panicked { lane: "x".into(), message: message.into() };
    assert_eq!(early.wait().await, Err(panicked("before it began")));
    let late: Result<(), _> = late.wait().await;
    assert_eq!(late, Err(panicked("in the middle of it")));
    assert_eq!(failed.wait().await, Ok(Err("a failure is a value")));
    assert_eq!(fine.wait().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn timeout_counts_from_the_last_progress() {
    let lanes = Lanes::new(LaneSettings::default());
    let (beat, mut beats) = mpsc::unbounded_channel::<()>();
    let began = Instant::now();
    let task = LaneTask::new("x").with_timeout(seconds(10));
    let ticket = lanes.enqueue(task, move |handle| async move {
        while beats.recv().await.is_some() {
            handle.progress();
        }
        std::future::pending::<()>().await;
    });
    for _ in 0..5 {
        advance(seconds(9)).await;
        beat.send(()).unwrap();
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
    }
    drop(beat);
    assert_eq!(ticket.wait().await, Err(LaneError::TimedOut { lane: "x".into(), after: seconds(10) }));
    assert_eq!(began.elapsed(), seconds(55));
    // A time that no clock reaches is none.
    let forever = lanes.enqueue(LaneTask::new("y").with_timeout(Duration::MAX), |_| async { 1 });
    assert_eq!(forever.wait().await, Ok(1));
}

#[tokio::test(start_paused = true)]
async fn timed_out_task_frees_its_place_and_is_dropped() {
    struct Alive(Arc<AtomicUsize>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    let lanes = Lanes::new(LaneSettings::default());
    let alive = Arc::new(AtomicUsize::new(2));
    let main = || LaneTask::new(MAIN_LANE).with_timeout(seconds(10));
    let (told, was_told) = oneshot::channel();
    let polite = Alive(alive.clone());
    let one = lanes.enqueue_in_session(&key("agent:main:a"), main(), move |handle| async move {
        handle.stopped().cancelled().await;
        told.send(()).unwrap();
        drop(polite);
    });
    let deaf = Alive(alive.clone());
    let two = lanes.enqueue_in_session(&key("agent:main:b"), main(), |_| async move {
        std::future::pending::<()>().await;
        drop(deaf);
    });
    let next = lanes.enqueue_in_session(&key("agent:main:b"), main(), |_| async { "ran" });
    assert!(matches!(one.wait().await, Err(LaneError::TimedOut { .. })));
    assert!(matches!(two.wait().await, Err(LaneError::TimedOut { .. })));
    was_told.await.unwrap();
    assert_eq!(next.wait().await, Ok("ran"), "while the other still unwinds");
    lanes.idle().await;
    assert_eq!(alive.load(Ordering::SeqCst), 1);
    advance(seconds(31)).await;
    while alive.load(Ordering::SeqCst) > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn reset_ignores_what_ends_later() {
    let mut world = World::new();
    let old = world.enqueue("old", LaneTask::new("x"));
    let (_, go_old) = world.next().await;
    let queued = world.enqueue("queued", LaneTask::new("x"));
    let third = world.enqueue("third", LaneTask::new("x"));
    world.lanes.reset("x");
    let (name, go) = world.next().await;
    assert_eq!(name, "queued", "what waits survives");
    drop(go_old);
    assert_eq!(old.wait().await, Ok("old"), "who waits gets the result");
    assert!(world.is_quiet().await, "its end frees no place of the new generation");
    drop(go);
    assert_eq!(queued.wait().await, Ok("queued"));
    assert_eq!(world.next().await.0, "third");
    assert_eq!(third.wait().await, Ok("third"));
    world.lanes.reset_all();
    world.lanes.idle().await;
}

#[tokio::test(start_paused = true)]
async fn draining_refuses_new_work_and_ends_what_was_taken() {
    let mut world = World::new();
    let session = key("agent:main:main");
    world.lanes.set_limit("paused", 0);
    let first = world.lanes.enqueue_in_session(&session, LaneTask::new(MAIN_LANE), world.work("first"));
    let second = world.lanes.enqueue_in_session(&session, LaneTask::new(MAIN_LANE), world.work("second"));
    let stuck = world.enqueue("stuck", LaneTask::new("paused"));
    let (_, go) = world.next().await;
    world.lanes.drain();
    assert_eq!(stuck.wait().await, Err(LaneError::Draining));
    assert_eq!(world.enqueue("new", LaneTask::new("x")).wait().await, Err(LaneError::Draining));
    drop(go);
    assert_eq!(first.wait().await, Ok("first"));
    assert_eq!(world.next().await.0, "second", "taken before, though its second lane was entered later");
    assert_eq!(second.wait().await, Ok("second"));
    world.lanes.idle().await;
}

#[tokio::test(start_paused = true)]
async fn draining_refuses_what_a_pause_would_keep() {
    let mut world = World::new();
    let held = world.enqueue("held", LaneTask::new(MAIN_LANE));
    let (_, go) = world.next().await;
    world.lanes.set_limit(MAIN_LANE, 1);
    let waits = world.lanes.enqueue_in_session(&key("agent:main:a"), LaneTask::new(MAIN_LANE), |_| async {});
    assert!(world.is_quiet().await);
    world.lanes.drain();
    world.lanes.set_limit(MAIN_LANE, 0);
    assert_eq!(waits.wait().await, Err(LaneError::Draining));
    drop(go);
    assert_eq!(held.wait().await, Ok("held"));
    world.lanes.idle().await;
}

#[tokio::test(start_paused = true)]
async fn job_that_waits_for_a_run_does_not_wait_for_itself() {
    let lanes = Lanes::new(LaneSettings::default());
    let inner = lanes.clone();
    let job = lanes.enqueue(LaneTask::new(CRON_LANE), move |_| async move {
        let run = LaneTask::new(nested_lane(CRON_LANE));
        inner.enqueue_in_session(&key("cron:job-1"), run, |_| async { "ran" }).wait().await
    });
    assert_eq!(job.wait().await, Ok(Ok("ran")));
    assert_eq!(nested_lane(MAIN_LANE), MAIN_LANE);
}

#[tokio::test(start_paused = true)]
async fn waiting_tasks_are_bounded() {
    let lanes = Lanes::new(LaneSettings { waiting: 3, ..LaneSettings::default() });
    lanes.set_limit("x", 0);
    let kept: Vec<_> = (0..3).map(|n| lanes.enqueue(LaneTask::new("x"), move |_| async move { n })).collect();
    let refused = lanes.enqueue(LaneTask::new("y"), |_| async {}).wait().await;
    assert_eq!(refused, Err(LaneError::Full { lane: "y".into(), waiting: 3 }));
    let long = "x".repeat(2 << 20);
    let refused = lanes.enqueue(LaneTask::new(long), |_| async {}).wait().await;
    assert_eq!(refused, Err(LaneError::NameTooLong { bytes: 2 << 20 }));
    lanes.set_limit("x", 2);
    for (n, ticket) in kept.into_iter().enumerate() {
        assert_eq!(ticket.wait().await, Ok(n));
    }
}

#[test]
fn tasks_of_closed_lanes_are_told() {
    let runtime =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (theirs, ours) = (runtime(), runtime());
    let lanes = theirs.block_on(async { Lanes::new(LaneSettings::default()) });
    let ticket = lanes.enqueue(LaneTask::new("x"), |_| std::future::pending::<()>());
    theirs.shutdown_background();
    assert_eq!(ours.block_on(ticket.wait()), Err(LaneError::Closed));
}

#[tokio::test(start_paused = true)]
async fn task_that_waits_for_something_else_holds_no_place() {
    let mut world = World::new();
    world.lanes.set_limit(MAIN_LANE, 1);
    let (a, b) = (key("agent:main:direct:a"), key("agent:main:direct:b"));
    let behind = |world: &World, name, is_free: oneshot::Receiver<()>| {
        let work = world.work(name);
        world.lanes.enqueue_in_session_behind(&a, LaneTask::new(MAIN_LANE), is_free, |handle, _| work(handle))
    };
    let (free, is_free) = oneshot::channel();
    let first = behind(&world, "a1", is_free);
    let (free_again, is_free) = oneshot::channel();
    let second = behind(&world, "a2", is_free);
    let other = world.lanes.enqueue_in_session(&b, LaneTask::new(MAIN_LANE), world.work("b"));
    let (name, go) = world.next().await;
    assert_eq!(name, "b");
    free.send(()).unwrap();
    assert!(world.is_quiet().await, "the lane is full");
    go.send(()).unwrap();
    assert_eq!(other.wait().await, Ok("b"));
    let (name, go) = world.next().await;
    assert_eq!(name, "a1");
    go.send(()).unwrap();
    assert_eq!(first.wait().await, Ok("a1"));
    // What waits when the end comes is refused where its lane is paused.
    world.lanes.set_limit(MAIN_LANE, 0);
    world.lanes.drain();
    free_again.send(()).unwrap();
    assert_eq!(second.wait().await, Err(LaneError::Draining));
    world.lanes.idle().await;
}
