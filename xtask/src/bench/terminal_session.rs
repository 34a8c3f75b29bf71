//! Long sessions on a pseudo-terminal: how soon one can be gone on with, and how its tree is walked.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::contest::Contest;
use super::programs::{Contender, Stage};
use super::pty::Pty;
use super::sessions::{MOST_FOR_PEERS, Session, put};
use super::terminal::{Keys, LIMIT, clear, drain, milliseconds, percentile};
use super::{Benchmark, Context, Row, number};

pub(super) const BENCHMARK: Benchmark = Benchmark {
    name: "terminal-session",
    about: "open sessions of 1k and 100k entries on a pseudo-terminal, and walk their trees",
    run,
};

/// What marks where a session stands in our tree.
const HERE: &str = "◂ here";
const UP: &str = "\x1b[A";
const PAGE_UP: &str = "\x1b[5~";
const HOME: &str = "\x1b[H";
const END: &str = "\x1b[F";

fn run(context: &Context) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for count in &context.sizes.trees {
        let session = Session { number: 0, entries: *count };
        let what = format!("session of {} entries on a terminal", number(*count as f64));
        let prepare = |stage: &Stage<'_>| {
            stage.warm_up()?;
            let file = put(context, stage, &[session])?;
            // The first time may bring the session up to this program's version.
            leave(open(stage, session, &file)?.0)?;
            Ok(file)
        };
        let (ours, all): (&[Contender], &[Contender]) =
            (&[Contender::Quipu], &[Contender::Quipu, Contender::Pi]);
        let opening = Contest {
            bench: BENCHMARK.name,
            what: &what,
            parts: &[
                ("start to its last words", "ms"),
                ("start to a key behind them", "ms"),
                ("memory", "MB"),
            ],
            contenders: if *count > MOST_FOR_PEERS { ours } else { all },
        };
        rows.extend(opening.run(context, prepare, |stage, file| {
            let (mut pty, shown) = open(stage, session, file)?;
            Keys::default().press(&mut pty)?;
            let usable = pty.last_ns.saturating_sub(pty.started_ns);
            let memory = pty.usage().memory_mb;
            leave(pty)?;
            Ok(vec![Some(milliseconds(shown)), Some(milliseconds(usable)), Some(memory)])
        })?);
        let walking = Contest {
            bench: BENCHMARK.name,
            what: &format!("{what}, `/tree`"),
            parts: &[
                ("to where it stands", "ms"),
                ("key to rows, median", "ms"),
                ("key to rows, 99th percentile", "ms"),
            ],
            contenders: ours,
        };
        rows.extend(walking.run(context, prepare, |stage, file| {
            let (mut pty, _) = open(stage, session, file)?;
            pty.types("/tree")?;
            // Its list of commands is there, and taken for it.
            drain(&mut pty, Duration::from_millis(300))?;
            let pressed = pty.types("\r")?;
            let there = pty.until(HERE, LIMIT)?.saturating_sub(pressed);
            drain(&mut pty, Duration::from_millis(100))?;
            // Each of them leads to another row: the last 400 entries are rows, and a page is 36 of them.
            let keys = [UP; 150].into_iter().chain([PAGE_UP; 5]).chain([HOME, END].repeat(20));
            let times = keys.map(|key| answered(&mut pty, key)).collect::<Result<Vec<f64>>>()?;
            pty.types("\x1b")?;
            drain(&mut pty, Duration::from_millis(100))?;
            leave(pty)?;
            Ok(vec![Some(milliseconds(there)), percentile(&times, 0.5), percentile(&times, 0.99)])
        })?);
    }
    Ok(rows)
}

/// The program with the session, once its last words are seen; nanoseconds until then.
fn open(stage: &Stage<'_>, session: Session, file: &Path) -> Result<(Pty, u64)> {
    let mut command = stage.interactive()?;
    command.arg("--session");
    match stage.who {
        Contender::Quipu | Contender::QuipuOpen => command.arg(session.id()),
        Contender::Pi | Contender::Codex | Contender::CodexConfined => command.arg(file),
    };
    let mut pty = Pty::start(&mut command)?;
    let seen = pty.until(&session.last_word(), LIMIT)?;
    let since = seen.saturating_sub(pty.started_ns);
    Ok((pty, since))
}

/// Leaves a program whose editor is all that is open, and waits for its end.
fn leave(mut pty: Pty) -> Result<()> {
    clear(&mut pty)?;
    pty.types("\x04")?;
    let give_up = Instant::now() + LIMIT;
    // What it says at the end, until there is nobody to read from.
    while pty.next(LIMIT).is_ok() {
        ensure!(Instant::now() < give_up, "it does not leave");
    }
    Ok(())
}

/// Presses a key of the tree, and waits for what it changes; milliseconds to the end of that.
fn answered(pty: &mut Pty, key: &str) -> Result<f64> {
    let pressed = pty.types(key)?;
    ensure!(pty.next(LIMIT)?.is_some(), "{key:?} changes nothing");
    pty.settle(Duration::from_millis(5))?;
    Ok(milliseconds(pty.last_ns.saturating_sub(pressed)))
}
