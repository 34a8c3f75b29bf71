//! The agents on a pseudo-terminal: how soon they can be typed into, how soon a key is seen, and what a reply costs that
//! streams in.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::contest::Contest;
use super::programs::{Contender, Stage};
use super::pty::Pty;
use super::server::ServedRequest;
use super::wires::Reply;
use super::{Benchmark, Context, Row};

pub(super) const BENCHMARK: Benchmark =
    Benchmark { name: "terminal", about: "typing and streaming on a pseudo-terminal", run };

/// Deltas of a streamed reply for each second.
const RATE: u64 = 2_000;
/// Nothing takes longer but a program that hangs.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// What is seen when a reply is over, and what ends the text.
const END: &str = "THEEND";
/// What is typed at the start until it is seen.
const PROBE: char = '§';
/// From one key to the next while a reply streams.
const BETWEEN_KEYS: Duration = Duration::from_millis(40);

fn run(context: &Context) -> Result<Vec<Row>> {
    let seconds = if context.sizes.deltas < 10_000 { 1 } else { 10 };
    let contest = Contest {
        bench: BENCHMARK.name,
        what: "terminal",
        parts: &[
            ("start to first visible character", "ms"),
            ("start to a usable prompt", "ms"),
            ("key to echo, idle, median", "ms"),
            ("key to echo, idle, 99th percentile", "ms"),
            ("context switches while idle", ""),
            ("memory, idle", "MB"),
            ("bytes for a character of a reply", "B"),
            ("processor for a reply", "ms"),
            ("memory after a reply", "MB"),
            ("context switches while idle after a reply", ""),
            ("key to echo, streaming, median", "ms"),
            ("key to echo, streaming, 99th percentile", "ms"),
            ("key to echo, first fifth of a reply, median", "ms"),
            ("key to echo, last fifth of a reply, median", "ms"),
            ("Escape to the closed connection", "ms"),
        ],
        contenders: &[Contender::Quipu, Contender::Pi, Contender::Codex],
    };
    let prepare = |stage: &Stage<'_>| stage.warm_up();
    contest.run(context, prepare, |stage, _| {
        let (first, usable) = start(&mut Pty::start(&mut stage.interactive()?)?)?;
        let mut pty = Pty::start(&mut stage.interactive()?)?;
        start(&mut pty)?;
        let mut keys = Keys::default();
        let idle = (0..200).map(|_| keys.press(&mut pty)).collect::<Result<Vec<f64>>>()?;
        clear(&mut pty)?;

        let before = pty.usage();
        pty.settle(Duration::ZERO)?;
        drain(&mut pty, Duration::from_secs(seconds))?;
        let rested = pty.usage();

        let reply = reply(stage, seconds);
        let bytes = pty.bytes;
        ask(stage, &mut pty, &reply.0)?;
        pty.until(END, LIMIT)?;
        pty.settle(Duration::from_millis(300))?;
        let bytes = pty.bytes - bytes;
        let after = pty.usage();
        // What is left of a reply may not keep it awake, either. For ours alone, for it takes long.
        let awake = if stage.who.is_peer() {
            None
        } else {
            pty.settle(Duration::from_secs(1))?;
            let before = pty.usage();
            drain(&mut pty, Duration::from_secs(seconds))?;
            Some(pty.usage().switches_since(&before))
        };

        let served = ask(stage, &mut pty, &reply.0)?;
        drain(&mut pty, Duration::from_millis(100))?;
        let mut streaming = Vec::new();
        let replied = || served.replied_ns.load(std::sync::atomic::Ordering::Relaxed) > 0;
        while !replied() {
            streaming.push(keys.press(&mut pty)?);
            // Taken back, so that the prompt is as long at the end of the reply as at its start.
            pty.types("\x7f")?;
            let next = Instant::now() + BETWEEN_KEYS;
            while Instant::now() < next && !replied() {
                pty.next(next.saturating_duration_since(Instant::now()))?;
            }
        }
        pty.settle(Duration::from_millis(500))?;
        clear(&mut pty)?;

        let served = ask(stage, &mut pty, &reply.0)?;
        drain(&mut pty, Duration::from_millis(300))?;
        let pressed = pty.types("\x1b")?;
        let give_up = Instant::now() + LIMIT;
        let closed = loop {
            let closed = served.closed_ns.load(std::sync::atomic::Ordering::Relaxed);
            if closed > 0
                || Instant::now() > give_up
                || served.replied_ns.load(std::sync::atomic::Ordering::Relaxed) > 0
            {
                break closed;
            }
            pty.next(Duration::from_millis(1))?;
        };
        let fifth = streaming.len() / 5;
        Ok(vec![
            Some(milliseconds(first)),
            Some(milliseconds(usable)),
            percentile(&idle, 0.5),
            percentile(&idle, 0.99),
            Some(rested.switches_since(&before)),
            Some(rested.memory_mb),
            Some(bytes as f64 / reply.1 as f64),
            Some(after.cpu_ms - rested.cpu_ms),
            Some(after.memory_mb),
            awake,
            percentile(&streaming, 0.5),
            percentile(&streaming, 0.99),
            percentile(&streaming[..fifth], 0.5),
            percentile(&streaming[streaming.len() - fifth..], 0.5),
            (closed > 0).then(|| milliseconds(closed.saturating_sub(pressed))),
        ])
    })
}

/// Nanoseconds until something is seen, and until a key is. Keys are pressed all the time, for nobody knows when the
/// program begins to read them.
pub(super) fn start(pty: &mut Pty) -> Result<(u64, u64)> {
    let end = Instant::now() + LIMIT;
    let mut first = None;
    loop {
        ensure!(Instant::now() < end, "no key is ever seen");
        pty.types(&PROBE.to_string())?;
        let Some((at, text)) = pty.next(Duration::from_millis(2))? else { continue };
        let since = at.saturating_sub(pty.started_ns);
        if first.is_none() && text.chars().any(|character| !character.is_whitespace() && character != PROBE) {
            first = Some(since);
        }
        if text.contains(PROBE) {
            pty.settle(Duration::from_millis(200))?;
            clear(pty)?;
            return Ok((first.unwrap_or(since), since));
        }
    }
}

/// Empties the editor.
pub(super) fn clear(pty: &mut Pty) -> Result<()> {
    pty.types("\x15")?;
    pty.settle(Duration::from_millis(200))
}

/// Characters that no program shows by itself, each only once.
#[derive(Default)]
pub(super) struct Keys(usize);

impl Keys {
    /// Presses the next, and waits until it is seen; milliseconds.
    pub(super) fn press(&mut self, pty: &mut Pty) -> Result<f64> {
        // Letters of one column, Latin and Cyrillic.
        let letters = (0x100..0x250).chain(0x410..0x482);
        let character = letters.cycle().nth(self.0).and_then(char::from_u32).unwrap_or('a');
        self.0 += 1;
        let text = character.to_string();
        let pressed = pty.types(&text)?;
        Ok(milliseconds(pty.until(&text, LIMIT)?.saturating_sub(pressed)))
    }
}

/// A reply that streams for so long, and how many characters it has.
fn reply(stage: &Stage<'_>, seconds: u64) -> (Reply, usize) {
    let mut deltas: Vec<String> = (0..RATE * seconds)
        .map(|index| format!("word{index}{}", if index % 60 == 59 { "\n\n" } else { " " }))
        .collect();
    deltas.push(END.to_owned());
    let characters = deltas.iter().map(String::len).sum();
    (stage.wire().text(&deltas).paced(Duration::from_micros(1_000_000 / RATE)), characters)
}

/// Sends a prompt that this answers, and waits for the request.
fn ask(stage: &Stage<'_>, pty: &mut Pty, reply: &Reply) -> Result<ServedRequest> {
    stage.load([reply.clone()]);
    pty.types("go")?;
    // A program may take keys that come at once for a paste.
    drain(pty, Duration::from_millis(200))?;
    pty.types("\r")?;
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(served) = stage.served().pop() {
            return Ok(served);
        }
        ensure!(Instant::now() < end, "no request was made");
        pty.next(Duration::from_millis(1))?;
    }
}

/// Takes what comes for so long.
pub(super) fn drain(pty: &mut Pty, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        pty.next(left)?;
    }
}

#[expect(clippy::cast_precision_loss, reason = "nanoseconds of minutes")]
pub(super) fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// The smallest of these values that so large a part of them does not exceed.
pub(super) fn percentile(values: &[f64], part: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a length")]
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_hundred_values_one_may_be_above_the_99th_percentile() {
        let values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&values, 0.99), Some(99.0));
        assert_eq!(percentile(&values, 0.5), Some(50.0));
        assert_eq!(percentile(&values[..3], 0.5), Some(99.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}
