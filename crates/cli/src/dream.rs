//! `quipu dream`: what was recalled often becomes a line of `MEMORY.md`.

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use quipu_host::dreams::{dream_of, dream_place, dream_settings, dreaming_places};
use quipu_host::jobs::{DREAM, DreamJob, DueRun, JobNotice, JobRunner, keep_dream_job, models_for_jobs};
use quipu_host::{DREAM_PURPOSE, Home, HostNotice, Observer, background_budget, now};
use quipu_memory::MemoryPlace;
use quipu_memory::dream::{ChosenText, DreamPhase, DreamPreview, DreamState, Gate};
use quipu_store::{Dreams, Graph, JobRetry, JobState, Jobs};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::args::OutArgs;
use crate::exit::Failure;
use crate::home::home;
use crate::print::{Paint, ago, dollars, note, printable};
use crate::signals::Signals;

/// How long a dream waits for another process that runs jobs, or ran them when it died.
const PATIENCE: Duration = Duration::from_secs(90);
/// How often it looks meanwhile.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct DreamArgs {
    #[command(subcommand)]
    action: Option<DreamAction>,
    /// Show what a dream would promote now, and why. Nothing is written, and no model is asked.
    #[arg(long, conflicts_with = "now")]
    dry_run: bool,
    /// Dream now: go on with a dream that was cut off, or begin one.
    #[arg(long)]
    now: bool,
    #[command(flatten)]
    out: OutArgs,
}

#[derive(Debug, Subcommand)]
enum DreamAction {
    /// Show when the next dream is due, and what the last one did. The same as `quipu dream`.
    Status(OutArgs),
}

pub(crate) async fn run(args: &DreamArgs) -> Result<(), Failure> {
    match &args.action {
        Some(DreamAction::Status(out)) => status(out).await,
        None if args.dry_run => dry_run(&args.out).await,
        None if args.now => dream_now(&args.out).await,
        None => status(&args.out).await,
    }
}

/// The memories that dreams change, where there are any.
pub(crate) fn places(home: &Home) -> Result<Vec<MemoryPlace>, Failure> {
    let config = home.config();
    if !config.dreaming.enabled {
        return Err(Failure::usage(
            "dreaming is off; `quipu config set memory.dreaming.enabled true` switches it on",
        ));
    }
    let places = dreaming_places(home)?;
    if places.is_empty() {
        return Err(Failure::usage("no memory is on; `quipu memory on` switches on that of this project"));
    }
    Ok(places)
}

async fn dry_run(args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let places = places(&home)?;
    let Some(store) = home.existing_store().await? else {
        note("Nothing was recalled yet.");
        return Ok(());
    };
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let settings = dream_settings();
    let mut out = crate::console::stdout();
    for place in places {
        let place = dream_place(&home, &store, &sealer, place, None);
        let found = dream_of(&store, &place, &settings).preview().await.map_err(Failure::failed)?;
        if args.json {
            writeln!(out, "{}", preview_json(place.id(), &found))?;
        } else {
            write!(out, "{}", preview_text(place.id(), &found))?;
        }
    }
    Ok(())
}

fn chosen_json(chosen: &ChosenText) -> Value {
    let signals: serde_json::Map<String, Value> =
        chosen.source.signals.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
    json!({
        "text": chosen.text, "place": chosen.place, "class": chosen.source.class,
        "recalls": chosen.source.recalls, "signals": signals,
    })
}

fn gates_json(stopped: &[(Gate, u32)]) -> Value {
    stopped.iter().map(|(gate, count)| json!({ "gate": gate, "count": count, "why": gate.words() })).collect()
}

fn preview_json(memory: &str, found: &DreamPreview) -> Value {
    json!({
        "memory": memory,
        "chosen": found.chosen.iter().map(chosen_json).collect::<Vec<_>>(),
        "considered": found.considered,
        "stopped": gates_json(&found.stopped),
    })
}

fn preview_text(memory: &str, found: &DreamPreview) -> String {
    let paint = Paint::stdout();
    let mut text = format!("{}\n", paint.bold(&printable(memory)));
    for chosen in &found.chosen {
        let total =
            chosen.source.signals.iter().find(|(name, _)| name == "total").map_or(0.0, |(_, total)| *total);
        let about = format!("{}, {} recalls, score {total:.2}", chosen.place, chosen.source.recalls);
        text.push_str(&format!("  {}\n    {}\n", printable(&chosen.text), paint.dim(&printable(&about))));
    }
    if found.chosen.is_empty() {
        text.push_str("  A dream would promote nothing now.\n");
    }
    text.push_str(&stopped_text(found.considered, &found.stopped));
    text
}

fn stopped_text(considered: usize, stopped: &[(Gate, u32)]) -> String {
    let mut text = format!("  {considered} texts were recalled or noted\n");
    for (gate, count) in stopped {
        text.push_str(&format!("    {count}: {}\n", gate.words()));
    }
    text
}

/// Passes on what people should know. What became of the job is shown at its end.
struct QuietJobs(Home);

impl Observer for QuietJobs {
    fn notice(&self, notice: HostNotice) {
        self.0.observer().notice(notice);
    }

    fn job(&self, _: &JobNotice) {}
}

/// Runs the job, under the lease that all processes share.
async fn dream_now(args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let places = places(&home)?;
    let store = home.store().await?;
    if let Some(why) = store.refusal() {
        return Err(why.clone().into());
    }
    let began = now();
    let sealer = home.engine(store.clone(), &home.settings())?.sealer().clone();
    let models = models_for_jobs(&home, store.clone());
    let handlers: Vec<Arc<dyn quipu_host::jobs::JobHandler>> = vec![Arc::new(DreamJob::new(&home))];
    let observer = Arc::new(QuietJobs(home.clone()));
    let runner = JobRunner::new(store.clone(), handlers, observer, sealer).with_models(models);
    keep_dream_job(&home, &store).await?;
    if store.retry_job(&DREAM.into(), began).await? == JobRetry::Paused {
        return Err(crate::schedule::paused(DREAM));
    }
    let stop = CancellationToken::new();
    let work = run_until_dreamt(&*store, &runner, &places, began, &stop);
    let states = Signals::new()?.ending(&stop, work).await?;
    let mut out = crate::console::stdout();
    for (place, state) in states {
        if args.json {
            writeln!(out, "{}", state_json(&place.id, &state))?;
        } else {
            write!(out, "{}", state_text(&place.id, &state))?;
        }
    }
    Ok(())
}

async fn last(store: &impl Dreams, place: &MemoryPlace) -> Result<Option<DreamState>, Failure> {
    let found = store.dream(&place.id).await?;
    Ok(found.and_then(|found| DreamState::parse(&found.state).ok()))
}

/// The dreams that ended since then, of every memory.
async fn dreamt<'a>(
    store: &impl Dreams,
    places: &'a [MemoryPlace],
    since: i64,
) -> Result<Option<Vec<(&'a MemoryPlace, DreamState)>>, Failure> {
    let mut states = Vec::new();
    for place in places {
        let state = last(store, place).await?;
        match state.filter(|state| state.phase == DreamPhase::Done && state.ended >= Some(since)) {
            Some(state) => states.push((place, state)),
            None => return Ok(None),
        }
    }
    Ok(Some(states))
}

async fn run_until_dreamt<'a>(
    store: &(impl Dreams + Jobs),
    runner: &JobRunner,
    places: &'a [MemoryPlace],
    began: i64,
    stop: &CancellationToken,
) -> Result<Vec<(&'a MemoryPlace, DreamState)>, Failure> {
    let until = Instant::now() + PATIENCE;
    let mut is_told = false;
    loop {
        let ran = runner.run_due(stop).await?;
        if let Some(states) = dreamt(store, places, began).await? {
            return Ok(states);
        }
        if matches!(ran, DueRun::Ran { finished: 0, failed: 0 }) {
            // It was about to end when it was asked for, so that was the dream before.
            store.retry_job(&DREAM.into(), began).await?;
        }
        if let DueRun::Ran { failed, .. } = ran
            && failed > 0
        {
            let why = store.job(&DREAM.into()).await?.and_then(|job| job.error).unwrap_or_default();
            return Err(Failure::failed(format!("{}; the next dream goes on from there", printable(&why))));
        }
        if Instant::now() >= until || stop.is_cancelled() {
            return Err(Failure::failed(
                "another process runs jobs and has not finished the dream; `quipu dream status` shows how far it is",
            ));
        }
        if !is_told {
            note("Waiting for the process that runs jobs, or ran them when it ended.");
            is_told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

fn state_json(memory: &str, state: &DreamState) -> Value {
    json!({
        "memory": memory, "phase": state.phase, "started": state.started, "ended": state.ended,
        "promoted": state.promoted, "considered": state.considered, "stopped": gates_json(&state.stopped),
        "themes": state.themes, "problems": state.problems,
    })
}

fn state_text(memory: &str, state: &DreamState) -> String {
    let paint = Paint::stdout();
    let mut text = format!("{}\n", paint.bold(&printable(memory)));
    for line in &state.promoted {
        text.push_str(&format!("  promoted: {}\n", printable(line)));
    }
    if state.promoted.is_empty() {
        text.push_str("  nothing was promoted\n");
    }
    text.push_str(&stopped_text(state.considered, &state.stopped));
    for problem in &state.problems {
        text.push_str(&format!("  {}\n", printable(problem)));
    }
    text
}

async fn status(args: &OutArgs) -> Result<(), Failure> {
    let home = home(&args.store)?;
    let config = home.config();
    let (enabled, schedule) = (config.dreaming.enabled, config.dreaming.schedule.clone());
    let store = home.store_to_read()?;
    let mut out = crate::console::stdout();
    let job = match &store {
        Some(store) => store.job(&DREAM.into()).await?,
        None => None,
    };
    let is_paused = job.as_ref().is_some_and(|job| job.state == JobState::Paused);
    let next = job.as_ref().filter(|_| !is_paused).map(|job| job.next);
    let budget = match &store {
        Some(store) => Some(background_budget(&home, &**store as &dyn Graph, DREAM_PURPOSE).await?),
        None => None,
    };
    let (limit, spent) = budget.map_or((0.0, 0.0), |budget| (budget.limit, budget.spent));
    let places = dreaming_places(&home)?;
    let mut memories = Vec::new();
    for place in &places {
        let Some(store) = &store else { break };
        let recalls = store.recalls(&place.id).await?.len();
        let promotions = store.promotions(&place.id).await?.len();
        memories.push((place, last(&**store, place).await?, recalls, promotions));
    }
    if args.json {
        let memories: Vec<Value> = memories
            .iter()
            .map(|(place, state, recalls, promotions)| {
                json!({
                    "memory": place.id, "recalls": recalls, "promotions": promotions,
                    "last": state.as_ref().map(|state| state_json(&place.id, state)),
                })
            })
            .collect();
        let whole = json!({
            "enabled": enabled, "schedule": schedule, "paused": is_paused, "next": next,
            "budget": { "limit": limit, "spent": spent }, "memories": memories,
        });
        writeln!(out, "{whole}")?;
        return Ok(());
    }
    if !enabled {
        writeln!(out, "Dreaming is off; `quipu config set memory.dreaming.enabled true` switches it on.")?;
        return Ok(());
    }
    let when = match next {
        _ if is_paused => format!("paused; `quipu schedule resume {DREAM}` ends that"),
        None => "when a terminal, `quipu serve` or `quipu schedule run` runs".to_owned(),
        Some(next) if next <= now() => "due now".to_owned(),
        Some(next) => quipu_host::iso(next),
    };
    writeln!(out, "Dreams: {}; next: {when}", printable(&schedule))?;
    let money = if limit > 0.0 {
        format!("{} of {} a day spent today", dollars(spent), dollars(limit))
    } else {
        "no model is asked; `quipu config set budget.background '{\"dream\": 0.10}'` allows ten cents a day"
            .to_owned()
    };
    writeln!(out, "Model: {money}")?;
    for (place, state, recalls, promotions) in memories {
        writeln!(out, "{}: {recalls} recalled texts, {promotions} promoted", printable(&place.id))?;
        if let Some(state) = state {
            let when = match state.ended {
                Some(ended) => format!("ended {}", ago(now(), ended)),
                None => format!("is in its phase `{}`", state.phase.word()),
            };
            writeln!(out, "  the last dream {when}: {} promoted", state.promoted.len())?;
        }
    }
    Ok(())
}
