//! One thing measured for several programs in turn: a sample of each, then the next of each, so that whatever the
//! machine does meanwhile falls on all of them.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::programs::{Contender, Stage};
use super::wires::Api;
use super::{Context, Row};

/// A peer whose first run takes longer is run fewer times.
const SLOW_SECONDS: u64 = 20;
/// How often, in this case.
const SLOW_RUNS: usize = 3;

pub(super) struct Contest<'a> {
    /// The benchmark that it belongs to.
    pub(super) bench: &'static str,
    /// What is measured, such as ``200 turns of `read` ``.
    pub(super) what: &'a str,
    /// The figures of one run, in order, and their units.
    pub(super) parts: &'a [(&'static str, &'static str)],
    pub(super) contenders: &'a [Contender],
}

struct Lane<'a, T> {
    stage: Stage<'a>,
    prepared: T,
    samples: Vec<Vec<Option<f64>>>,
    runs: usize,
}

impl Contest<'_> {
    /// The rows of all programs that are there: `prepare` sets each stage up, `sample` runs it once. What fails for
    /// a peer becomes a note; ours must not fail.
    pub(super) fn run<T>(
        &self,
        context: &Context,
        prepare: impl Fn(&Stage<'_>) -> Result<T>,
        sample: impl Fn(&Stage<'_>, &T) -> Result<Vec<Option<f64>>>,
    ) -> Result<Vec<Row>> {
        self.run_on(Api::MESSAGES, context, prepare, sample)
    }

    /// The same with models of this API; Codex has its own.
    pub(super) fn run_on<T>(
        &self,
        api: Api,
        context: &Context,
        prepare: impl Fn(&Stage<'_>) -> Result<T>,
        sample: impl Fn(&Stage<'_>, &T) -> Result<Vec<Option<f64>>>,
    ) -> Result<Vec<Row>> {
        let mut lanes = Vec::new();
        for who in self.contenders {
            let name = format!("{}{}", self.what, who.suffix());
            if who.is_peer() && context.peers.is_none() || !context.wants(self.bench, &name) {
                continue;
            }
            eprintln!("bench: {name}");
            let lane = Stage::on(context, *who, api).and_then(|stage| {
                let prepared = prepare(&stage)?;
                Ok(Lane { stage, prepared, samples: Vec::new(), runs: context.runs })
            });
            lanes.extend(self.unless_peer_failed(context, *who, lane)?);
        }
        for run in 0..context.runs {
            let mut left = Vec::with_capacity(lanes.len());
            for mut lane in lanes {
                if run < lane.runs {
                    let who = lane.stage.who;
                    let start = Instant::now();
                    let values = sample(&lane.stage, &lane.prepared);
                    let Some(values) = self.unless_peer_failed(context, who, values)? else { continue };
                    lane.samples.push(values);
                    if who.is_peer() && start.elapsed().as_secs() >= SLOW_SECONDS {
                        lane.runs = lane.runs.min(SLOW_RUNS);
                    }
                }
                left.push(lane);
            }
            lanes = left;
        }
        let row = |(index, (part, unit)): (usize, &(&str, &'static str)), lane: &Lane<'_, T>| Row {
            what: format!("{}{}, {part}", self.what, lane.stage.who.suffix()),
            unit,
            samples: lane.samples.iter().filter_map(|values| values.get(index).copied().flatten()).collect(),
        };
        Ok(self
            .parts
            .iter()
            .enumerate()
            .flat_map(|part| lanes.iter().map(move |lane| row(part, lane)))
            .collect())
    }

    fn unless_peer_failed<R>(
        &self,
        context: &Context,
        who: Contender,
        result: Result<R>,
    ) -> Result<Option<R>> {
        let name = format!("{}{}", self.what, who.suffix());
        match result {
            Ok(value) => Ok(Some(value)),
            Err(error) if who.is_peer() => {
                eprintln!("bench: {name} is left out: {error:#}");
                // Its own words can be long; what comes first says most.
                let why = format!("{error:#}").split_whitespace().collect::<Vec<_>>().join(" ");
                let why: String = why.chars().take(400).collect();
                context.notes.borrow_mut().push(format!("{name}: {why}"));
                Ok(None)
            }
            Err(error) => Err(error).context(name),
        }
    }
}
