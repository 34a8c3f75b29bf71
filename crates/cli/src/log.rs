//! `quipu log`: what was done here, by any agent.

use std::collections::HashMap;
use std::io::Write as _;

use quipu::history::{Ended, LogEntry};
use quipu_protocol::UnixMs;
use quipu_store::{ASKED, DoneQuery};

use crate::args::LogArgs;
use crate::console::current_dir;
use crate::exit::Failure;
use crate::files::shown;
use crate::home::home;
use crate::print::{Paint, ago, dollars, note, one_line, printable};
use crate::search::instant;
use crate::usage::tell_behind;
use quipu_host::now;

/// Prompts of a session that people are shown.
const PROMPTS: usize = 5;
/// Files of a session that people are shown.
const FILES: usize = 12;
/// Columns of a prompt.
const WIDE: usize = 100;

pub(crate) async fn run(args: &LogArgs) -> Result<(), Failure> {
    let home = home(&args.out.store)?;
    let since = match &args.since {
        Some(text) => instant("--since", text, now())?,
        None => midnight(now()),
    };
    let Some(store) = home.existing_store().await? else {
        if !args.out.json {
            note("There are no sessions yet. Try `quipu demo` or `quipu import`.");
        }
        return Ok(());
    };
    let below = if args.all { None } else { Some(current_dir()?.to_string_lossy().into_owned()) };
    let query = DoneQuery {
        below: below.clone(),
        since,
        agent: args.agent.clone(),
        limit: if args.limit == 0 { usize::MAX } else { args.limit },
    };
    let known = quipu::history::log(&*store, query, if args.out.json { ASKED } else { PROMPTS }).await?;
    let mut out = std::io::BufWriter::new(crate::console::stdout());
    if args.out.json {
        for entry in &known.found {
            writeln!(out, "{}", json(entry))?;
        }
        let sessions = known.found.len();
        let end = serde_json::json!({ "type": "end", "since": since, "sessions": sessions, "behind": known.behind });
        writeln!(out, "{end}")?;
        return Ok(out.flush()?);
    }
    let (paint, now) = (Paint::stdout(), now());
    for (n, entry) in known.found.iter().enumerate() {
        if n > 0 {
            writeln!(out)?;
        }
        write_entry(&mut out, entry, now, paint)?;
    }
    out.flush()?;
    match &below {
        Some(below) if known.found.is_empty() => note(format!(
            "No activity in {} since {}. --all includes every directory, --since 1w goes further back.",
            printable(below),
            clock(since, now)
        )),
        None if known.found.is_empty() => note(format!("No activity since {}.", clock(since, now))),
        Some(_) | None => {}
    }
    if args.limit > 0 && known.found.len() == args.limit {
        note(format!("The last {} sessions; --limit 0 shows all.", args.limit));
    }
    tell_behind(known.behind);
    Ok(())
}

/// When today began, here.
fn midnight(now: UnixMs) -> UnixMs {
    let zone = jiff::tz::TimeZone::system();
    let today = jiff::Timestamp::from_millisecond(now).unwrap_or_default().to_zoned(zone.clone()).date();
    today.to_zoned(zone).map_or(now, |begin| begin.timestamp().as_millisecond())
}

/// A time here: of today without its date.
fn clock(at: UnixMs, now: UnixMs) -> String {
    let zone = jiff::tz::TimeZone::system();
    let [at, now] = [at, now]
        .map(|time| jiff::Timestamp::from_millisecond(time).unwrap_or_default().to_zoned(zone.clone()));
    let minute = format!("{:02}:{:02}", at.hour(), at.minute());
    if at.date() == now.date() { minute } else { format!("{} {minute}", at.date()) }
}

fn cost(entry: &LogEntry) -> f64 {
    entry.done.usage.iter().map(|sum| sum.cost).sum()
}

/// Files that were changed, each once, with how often.
fn changed(entry: &LogEntry) -> Vec<(&str, u64)> {
    let mut files: Vec<(&str, u64)> = Vec::new();
    let mut places = HashMap::new();
    for touched in &entry.done.changed {
        let index = *places.entry(touched.path.as_str()).or_insert(files.len());
        if index == files.len() {
            files.push((&touched.path, 0));
        }
        files[index].1 += touched.times;
    }
    files
}

fn models(entry: &LogEntry) -> Vec<&str> {
    let mut models: Vec<&str> =
        entry.done.usage.iter().map(|sum| sum.model.as_str()).filter(|model| !model.is_empty()).collect();
    models.dedup();
    models
}

fn write_entry(
    out: &mut impl std::io::Write,
    entry: &LogEntry,
    now: UnixMs,
    paint: Paint,
) -> Result<(), Failure> {
    let done = &entry.done;
    let all_priced = done.usage.iter().all(|sum| sum.priced);
    let mut about = vec![printable(&done.agent)];
    about.extend(models(entry).into_iter().map(printable));
    about.push(if all_priced {
        dollars(cost(entry))
    } else {
        format!("{} plus calls of unknown cost", dollars(cost(entry)))
    });
    let ended = match &entry.ended {
        Ended::Answered => "answered".to_owned(),
        Ended::Cut => paint.red("cut off at the output limit"),
        Ended::Failed(words) => paint.red(&format!("failed: {}", one_line(words, 60))),
        Ended::Aborted => paint.red("stopped"),
        Ended::Unfinished => "not finished".to_owned(),
    };
    writeln!(
        out,
        "{}  {}  {ended}, {}",
        paint.bold(&clock(done.updated, now)),
        about.join("  "),
        ago(now, done.updated)
    )?;
    let called =
        if done.called.is_empty() { String::new() } else { format!("  {}", one_line(&done.called, 60)) };
    writeln!(
        out,
        "  {}{}",
        paint.dim(&format!("{}  {}", printable(done.session.as_str()), printable(&done.cwd))),
        paint.cyan(&called)
    )?;
    let more = usize::try_from(done.asked_count).unwrap_or(usize::MAX).saturating_sub(entry.asked.len());
    if more > 0 {
        writeln!(out, "  {}", paint.dim(&format!("⋮ {more} before")))?;
    }
    for (_, words) in &entry.asked {
        writeln!(out, "  › {}", one_line(words, WIDE))?;
    }
    if !done.tools.is_empty() {
        let tools: Vec<String> = done
            .tools
            .iter()
            .map(|tool| {
                let failed =
                    if tool.failed > 0 { format!(" ({} failed)", tool.failed) } else { String::new() };
                format!("{} {}{failed}", printable(&tool.tool), tool.calls)
            })
            .collect();
        writeln!(out, "  tools: {}", tools.join(", "))?;
    }
    let files = changed(entry);
    if !files.is_empty() {
        let mut names: Vec<String> =
            files.iter().take(FILES).map(|(path, _)| shown(path, &done.cwd)).collect();
        let more = usize::try_from(done.changed_count).unwrap_or(usize::MAX).saturating_sub(names.len());
        if more > 0 {
            names.push(format!("and {more} more (quipu files {})", printable(done.session.as_str())));
        }
        writeln!(out, "  changed: {}", names.join(", "))?;
    }
    Ok(())
}

fn json(entry: &LogEntry) -> serde_json::Value {
    let done = &entry.done;
    let (ended, error) = match &entry.ended {
        Ended::Answered => ("answered", None),
        Ended::Cut => ("cut", None),
        Ended::Failed(words) => ("failed", Some(words)),
        Ended::Aborted => ("aborted", None),
        Ended::Unfinished => ("unfinished", None),
    };
    let asked = entry.asked.iter().map(|(node, words)| serde_json::json!({ "node": node, "text": words }));
    let tools = done
        .tools
        .iter()
        .map(|tool| serde_json::json!({ "tool": tool.tool, "calls": tool.calls, "failed": tool.failed }));
    let files =
        changed(entry).into_iter().map(|(path, times)| serde_json::json!({ "path": path, "times": times }));
    let tokens = |of: fn(&quipu_store::UsageSum) -> u64| done.usage.iter().map(of).sum::<u64>();
    serde_json::json!({
        "type": "session",
        "session": done.session,
        "agent": done.agent,
        "cwd": done.cwd,
        "name": done.called,
        "head": done.head,
        "updated": done.updated,
        "models": models(entry),
        "asked": asked.collect::<Vec<_>>(),
        "askedCount": done.asked_count,
        "tools": tools.collect::<Vec<_>>(),
        "changed": files.collect::<Vec<_>>(),
        "changedCount": done.changed_count,
        "calls": tokens(|sum| sum.calls),
        "input": tokens(|sum| sum.input),
        "output": tokens(|sum| sum.output),
        "cacheRead": tokens(|sum| sum.cache_read),
        "cacheWrite": tokens(|sum| sum.cache_write),
        "cost": cost(entry),
        "costKnown": done.usage.iter().all(|sum| sum.priced),
        "ended": ended,
        "error": error,
    })
}
