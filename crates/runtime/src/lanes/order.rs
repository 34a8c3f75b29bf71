//! Which task of a lane is next: values in, values out, with the time handed in.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::{LanePriority, LaneStatus};

/// The lanes, what waits in each and how many run.
#[derive(Debug)]
pub(super) struct LaneOrder {
    lanes: BTreeMap<Arc<str>, Lane>,
    limits: HashMap<Arc<str>, usize>,
    /// How long one waits until it counts as of the next higher priority.
    promotion: Duration,
    waiting: usize,
    running: usize,
    generation: u64,
}

#[derive(Debug)]
struct Lane {
    generation: u64,
    running: usize,
    /// One queue for each priority, the highest first.
    queues: [VecDeque<WaitingTask>; 3],
}

#[derive(Debug, Clone, Copy)]
struct WaitingTask {
    id: u64,
    since: Duration,
}

/// A task whose turn it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TaskStart {
    pub(super) id: u64,
    /// What [`LaneOrder::finish`] needs beside the lane.
    pub(super) generation: u64,
    pub(super) waited: Duration,
    /// How many wait behind it in its lane.
    pub(super) behind: usize,
}

impl LaneOrder {
    pub(super) fn new(promotion: Duration, limits: &[(&str, usize)]) -> Self {
        let limits = limits.iter().map(|(lane, limit)| (Arc::from(*lane), *limit)).collect();
        Self { lanes: BTreeMap::new(), limits, promotion, waiting: 0, running: 0, generation: 0 }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.running == 0
    }

    /// How many tasks of a lane run at a time. An unknown lane runs one.
    pub(super) fn limit(&self, lane: &str) -> usize {
        self.limits.get(lane).copied().unwrap_or(1)
    }

    pub(super) fn set_limit(&mut self, lane: &str, limit: usize) {
        self.limits.insert(lane.into(), limit);
    }

    /// Puts a task behind those of its priority. Ids grow.
    pub(super) fn push(&mut self, lane: &Arc<str>, priority: LanePriority, id: u64, now: Duration) {
        let generation = &mut self.generation;
        let lane = self.lanes.entry(lane.clone()).or_insert_with(|| {
            // Never one that a lane of this name had before it was empty.
            *generation += 1;
            Lane { generation: *generation, running: 0, queues: Default::default() }
        });
        lane.queues[priority as usize].push_back(WaitingTask { id, since: now });
        self.waiting += 1;
    }

    /// Takes the next task of a lane, where there is room for one.
    pub(super) fn start(&mut self, name: &str, now: Duration) -> Option<TaskStart> {
        let limit = self.limit(name);
        let promotion = self.promotion.as_millis().max(1);
        let lane = self.lanes.get_mut(name).filter(|lane| lane.running < limit)?;
        let heads = lane.queues.iter().enumerate().filter_map(|(class, queue)| {
            let head = *queue.front()?;
            // Who waits long enough comes before whoever came later, whatever the priorities.
            let promoted = now.saturating_sub(head.since).as_millis() / promotion;
            Some((promoted + (2 - class) as u128, std::cmp::Reverse(head.id), class))
        });
        let (_, _, class) = heads.max()?;
        let WaitingTask { id, since } = lane.queues[class].pop_front()?;
        lane.running += 1;
        self.running += 1;
        self.waiting -= 1;
        let behind = lane.queues.iter().map(VecDeque::len).sum();
        Some(TaskStart { id, generation: lane.generation, waited: now.saturating_sub(since), behind })
    }

    /// A task ended. Nothing happens where its lane was reset since.
    pub(super) fn finish(&mut self, name: &str, generation: u64) {
        let Some(lane) = self.lanes.get_mut(name).filter(|lane| lane.generation == generation) else {
            return;
        };
        lane.running -= 1;
        self.running -= 1;
        self.forget_idle(name);
    }

    /// Forgets what runs in a lane; what waits stays.
    pub(super) fn reset(&mut self, name: &str) {
        let Some(lane) = self.lanes.get_mut(name) else { return };
        self.generation += 1;
        lane.generation = self.generation;
        self.running -= std::mem::take(&mut lane.running);
        self.forget_idle(name);
    }

    /// Removes what waits in a lane, and gives the ids in the order in which they came.
    pub(super) fn clear(&mut self, name: &str) -> Vec<u64> {
        let Some(lane) = self.lanes.get_mut(name) else { return Vec::new() };
        let mut ids: Vec<u64> =
            lane.queues.iter_mut().flat_map(|queue| queue.drain(..)).map(|one| one.id).collect();
        ids.sort_unstable();
        self.waiting -= ids.len();
        self.forget_idle(name);
        ids
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.lanes.keys().cloned().collect()
    }

    pub(super) fn status(&self, now: Duration) -> Vec<LaneStatus> {
        let lanes = self.lanes.iter().map(|(name, lane)| {
            let since = lane.queues.iter().filter_map(|queue| queue.front()).map(|head| head.since).min();
            LaneStatus {
                lane: name.to_string(),
                limit: self.limit(name),
                running: lane.running,
                waiting: lane.queues.iter().map(VecDeque::len).sum(),
                longest_wait: since.map(|since| now.saturating_sub(since)),
            }
        });
        lanes.collect()
    }

    /// Lanes of sessions come and go, so one without work is not kept.
    fn forget_idle(&mut self, name: &str) {
        let is_idle = |lane: &Lane| lane.running == 0 && lane.queues.iter().all(VecDeque::is_empty);
        if self.lanes.get(name).is_some_and(is_idle) {
            self.lanes.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LANES: [&str; 3] = ["main", "session:a", "session:b"];
    const PROMOTION: Duration = Duration::from_secs(60);

    #[derive(Debug, Clone)]
    enum Step {
        Push(usize, usize),
        Finish(usize),
        Clear(usize),
        Reset(usize),
        Limit(usize, usize),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            6 => (0..3_usize, 0..3_usize).prop_map(|(lane, class)| Step::Push(lane, class)),
            5 => (0..100_usize).prop_map(Step::Finish),
            1 => (0..3_usize).prop_map(Step::Clear),
            1 => (0..3_usize).prop_map(Step::Reset),
            1 => (0..3_usize, 0..4_usize).prop_map(|(lane, limit)| Step::Limit(lane, limit)),
            3 => (0..100_u64).prop_map(Step::Wait),
        ];
        prop::collection::vec(step, 0..120)
    }

    /// The same as one list that is searched.
    #[derive(Default)]
    struct Model {
        /// Lane, class, id, since.
        waiting: Vec<(usize, usize, u64, Duration)>,
        running: [usize; 3],
        limits: [usize; 3],
    }

    impl Model {
        fn start(&mut self, lane: usize, now: Duration) -> Option<u64> {
            if self.running[lane] >= self.limits[lane] {
                return None;
            }
            let best =
                self.waiting.iter().enumerate().filter(|(_, one)| one.0 == lane).max_by_key(|(_, one)| {
                    let promoted = (now - one.3).as_millis() / PROMOTION.as_millis();
                    (promoted + 2 - one.1 as u128, std::cmp::Reverse(one.2))
                });
            let at = best?.0;
            self.running[lane] += 1;
            Some(self.waiting.remove(at).2)
        }
    }

    proptest! {
        #[test]
        fn order_is_that_of_a_list(steps in steps()) {
            let mut order = LaneOrder::new(PROMOTION, &[("main", 4)]);
            let mut model = Model { limits: [4, 1, 1], ..Model::default() };
            let classes = [LanePriority::Foreground, LanePriority::Normal, LanePriority::Background];
            let (mut now, mut next) = (Duration::ZERO, 0);
            // Lane, generation, whether the model still counts it.
            let mut running: Vec<(usize, u64, bool)> = Vec::new();
            for step in steps {
                match step {
                    Step::Push(lane, class) => {
                        order.push(&LANES[lane].into(), classes[class], next, now);
                        model.waiting.push((lane, class, next, now));
                        next += 1;
                    }
                    Step::Finish(at) if !running.is_empty() => {
                        let (lane, generation, counts) = running.remove(at % running.len());
                        order.finish(LANES[lane], generation);
                        model.running[lane] -= usize::from(counts);
                    }
                    Step::Finish(_) => {}
                    Step::Clear(lane) => {
                        let of_lane: Vec<u64> =
                            model.waiting.extract_if(.., |one| one.0 == lane).map(|one| one.2).collect();
                        prop_assert_eq!(order.clear(LANES[lane]), of_lane);
                    }
                    Step::Reset(lane) => {
                        order.reset(LANES[lane]);
                        model.running[lane] = 0;
                        running.iter_mut().filter(|one| one.0 == lane).for_each(|one| one.2 = false);
                    }
                    Step::Limit(lane, limit) => {
                        order.set_limit(LANES[lane], limit);
                        model.limits[lane] = limit;
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                }
                for (lane, name) in LANES.iter().enumerate() {
                    loop {
                        let start = order.start(name, now);
                        prop_assert_eq!(start.as_ref().map(|start| start.id), model.start(lane, now));
                        let Some(start) = start else { break };
                        running.push((lane, start.generation, true));
                    }
                }
                prop_assert_eq!(order.waiting(), model.waiting.len());
                let status = order.status(now);
                for (lane, name) in LANES.iter().enumerate() {
                    let found = status.iter().find(|one| one.lane == *name);
                    let counts = found.map_or((0, 0), |one| (one.running, one.waiting));
                    let waiting = model.waiting.iter().filter(|one| one.0 == lane).count();
                    prop_assert_eq!(counts, (model.running[lane], waiting));
                }
            }
        }
    }

    #[test]
    fn background_is_not_starved_by_foreground() {
        let mut order = LaneOrder::new(PROMOTION, &[]);
        let lane = Arc::from("main");
        order.push(&lane, LanePriority::Background, 0, Duration::ZERO);
        let mut started = None;
        for second in 1..600 {
            let now = Duration::from_secs(second);
            order.push(&lane, LanePriority::Foreground, second, now);
            let start = order.start("main", now).unwrap();
            if start.id == 0 {
                started = Some((now, start.waited));
                break;
            }
            order.finish("main", start.generation);
        }
        assert_eq!(started, Some((Duration::from_secs(120), Duration::from_secs(120))));
    }
}
