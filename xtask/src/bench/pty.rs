//! A program on a pseudo-terminal: what it is told, and what it writes, each piece with the time at which it came.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use nix::pty::{Winsize, openpty};
use nix::sys::termios::{SetArg, cfmakeraw, tcgetattr, tcsetattr};
use nix::unistd::Pid;

use super::guard;
use super::measure::now_ns;

const SIZE: Winsize = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };

/// What programs ask of a terminal, and what one without the Kitty keyboard protocol says.
const ANSWERS: &[(&[u8], &[u8])] = &[
    (b"\x1b[6n", b"\x1b[1;1R"),
    (b"\x1b[c", b"\x1b[?62;22c"),
    (b"\x1b]10;?", b"\x1b]10;rgb:cccc/cccc/cccc\x1b\\"),
    (b"\x1b]11;?", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
];

/// A program on a terminal of 120 by 40; killed with all that it started when this is dropped.
pub(super) struct Pty {
    child: Child,
    group: Pid,
    window: OwnedFd,
    pieces: Receiver<(u64, Vec<u8>)>,
    /// When it was started, by [`now_ns`].
    pub(super) started_ns: u64,
    seen: VisibleText,
    /// The end of what it wrote, for who wants to know what went wrong.
    last: String,
    /// Bytes that it wrote.
    pub(super) bytes: usize,
    /// When the last of them that were taken came.
    pub(super) last_ns: u64,
}

impl Pty {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let pair = openpty(Some(&SIZE), None).context("no pseudo-terminal")?;
        // What is typed before the program has set the terminal up is not echoed by the system in its stead.
        let mut modes = tcgetattr(&pair.slave)?;
        cfmakeraw(&mut modes);
        tcsetattr(&pair.slave, SetArg::TCSANOW, &modes)?;
        let side = || pair.slave.try_clone().map(Stdio::from);
        command.stdin(side()?).stdout(side()?).stderr(side()?);
        let started_ns = now_ns();
        let (child, group) = guard::start(command)?;
        // The command keeps its ends open, and would keep the terminal alive.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let (tell, pieces) = channel();
        let reads = pair.master.try_clone()?;
        std::thread::spawn(move || {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = nix::unistd::read(&reads, &mut buffer) {
                let piece = &buffer[..count];
                for (question, answer) in ANSWERS {
                    if piece.windows(question.len()).any(|window| window == *question) {
                        // A program that is gone needs no answer.
                        nix::unistd::write(reads.as_fd(), answer).ok();
                    }
                }
                if tell.send((now_ns(), piece.to_vec())).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            child,
            group,
            window: pair.master,
            pieces,
            started_ns,
            seen: VisibleText::default(),
            last: String::new(),
            bytes: 0,
            last_ns: started_ns,
        })
    }

    /// Types, and says when.
    pub(super) fn types(&self, text: &str) -> Result<u64> {
        let at = now_ns();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let count = nix::unistd::write(&self.window, rest).context("the terminal takes nothing")?;
            rest = &rest[count..];
        }
        Ok(at)
    }

    /// Takes what comes next, for so long; the text that can be seen of it, and when it came.
    pub(super) fn next(&mut self, limit: Duration) -> Result<Option<(u64, String)>> {
        match self.pieces.recv_timeout(limit) {
            Ok((at, piece)) => {
                self.bytes += piece.len();
                self.last_ns = at;
                let text = self.seen.text(&piece);
                self.last.push_str(&text);
                if self.last.len() > 8_000 {
                    self.last = said(&self.last).to_owned();
                }
                Ok(Some((at, text)))
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the program has ended: {:?}", said(&self.last)),
        }
    }

    /// Waits until a text can be seen that is new; when it came.
    pub(super) fn until(&mut self, what: &str, limit: Duration) -> Result<u64> {
        let end = Instant::now() + limit;
        let mut text = String::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some((at, more)) = self.next(left)? else {
                bail!("{what:?} was not seen in {} ms, but {:?}", limit.as_millis(), said(&self.last));
            };
            text.push_str(&more);
            if text.contains(what) {
                return Ok(at);
            }
        }
    }

    /// Takes what comes until nothing has for so long.
    pub(super) fn settle(&mut self, quiet: Duration) -> Result<()> {
        while self.next(quiet)?.is_some() {}
        Ok(())
    }

    /// What its processes have used so far.
    pub(super) fn usage(&self) -> Usage {
        Usage::of(self.group)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        guard::end(&mut self.child, self.group);
    }
}

/// What the processes of a group have used.
#[derive(Debug, Clone, Default)]
pub(super) struct Usage {
    /// Milliseconds of user and system time.
    pub(super) cpu_ms: f64,
    /// How often each thread gave the processor up or lost it.
    switches: BTreeMap<u64, f64>,
    /// Resident memory, MB.
    pub(super) memory_mb: f64,
}

impl Usage {
    fn of(group: Pid) -> Self {
        let mut usage = Self::default();
        for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(process.path().join(name)).unwrap_or_default();
            let stat = read("stat");
            // After the name, which may hold anything: state, parent, group, .. 11 and 12 are the times.
            let fields: Vec<&str> =
                stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect()).unwrap_or_default();
            if fields.get(2).and_then(|field| field.parse().ok()) != Some(group.as_raw()) {
                continue;
            }
            let ticks =
                |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
            // Hundredths of a second, on every Linux that there is.
            usage.cpu_ms += (ticks(11) + ticks(12)) * 10.0;
            usage.memory_mb += number_after(&read("status"), "VmRSS:") * 1.024 / 1_000.0;
            for thread in std::fs::read_dir(process.path().join("task")).into_iter().flatten().flatten() {
                let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
                let number = thread.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
                let switches = number_after(&status, "voluntary_ctxt_switches:")
                    + number_after(&status, "nonvoluntary_ctxt_switches:");
                usage.switches.insert(number, switches);
            }
        }
        usage
    }

    /// Context switches of all threads since `before`; of one that has ended since, the one with which it did.
    pub(super) fn switches_since(&self, before: &Self) -> f64 {
        let ended = before.switches.keys().filter(|thread| !self.switches.contains_key(thread));
        let switched = |(thread, now): (&u64, &f64)| now - before.switches.get(thread).unwrap_or(&0.0);
        self.switches.iter().map(switched).sum::<f64>() + ended.count() as f64
    }
}

/// The last characters of a text.
fn said(text: &str) -> &str {
    let from = text.char_indices().rev().nth(600).map_or(0, |(at, _)| at);
    &text[from..]
}

/// The number after a name at the beginning of a line.
fn number_after(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Text without the sequences that a terminal obeys.
#[derive(Debug, Default)]
struct VisibleText {
    state: State,
    /// Bytes of a character that is not whole yet.
    held: Vec<u8>,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    Control,
    /// `OSC` and its like, up to BEL or `ESC \`.
    String,
}

impl VisibleText {
    fn text(&mut self, bytes: &[u8]) -> String {
        for byte in bytes {
            self.state = match (self.state, byte) {
                (State::Text | State::String, 0x1b) => State::Escape,
                (State::Text, 0..0x20) => State::Text,
                (State::Text, byte) => {
                    self.held.push(*byte);
                    State::Text
                }
                (State::Escape, b'[') => State::Control,
                (State::Escape, b']' | b'P' | b'_' | b'^') => State::String,
                (State::Control, 0x40..=0x7e) | (State::Escape, _) | (State::String, 0x07) => State::Text,
                (state, _) => state,
            };
        }
        let whole = match std::str::from_utf8(&self.held) {
            Ok(_) => self.held.len(),
            Err(error) => error.valid_up_to(),
        };
        // A character that never becomes whole is no reason to keep all that follows.
        let whole = if self.held.len() - whole > 4 { self.held.len() } else { whole };
        let rest = self.held.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.held, rest)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_not_seen() {
        let mut seen = VisibleText::default();
        let text: String = ["a\x1b[1", ";31mb\x1b]0;title", "\x07c\x1b]8;;x\x1b\\", "d\r\n\u{416}"]
            .iter()
            .map(|piece| seen.text(piece.as_bytes()))
            .collect();
        assert_eq!(text, "abcd\u{416}");
        assert_eq!(seen.text(&"\u{416}".as_bytes()[..1]), "");
        assert_eq!(seen.text(&"\u{416}".as_bytes()[1..]), "\u{416}");
    }

    #[test]
    fn a_program_on_a_terminal() -> Result<()> {
        let mut command = Command::new("sh");
        command.args(["-c", "printf 'ready\\033[0m\\n'; read line; printf 'got %s' \"$line\"; read line"]);
        let mut pty = Pty::start(&mut command)?;
        assert!(pty.until("ready", Duration::from_secs(20))? >= pty.started_ns);
        pty.types("typed\n")?;
        pty.until("got typed", Duration::from_secs(20))?;
        let usage = pty.usage();
        assert!(pty.bytes > 10 && usage.memory_mb > 0.0 && usage.switches_since(&Usage::default()) > 0.0);
        Ok(())
    }

    #[test]
    fn switches_of_threads_that_stay_come_and_go() {
        let usage = |switches: &[(u64, f64)]| Usage {
            switches: switches.iter().copied().collect(),
            ..Usage::default()
        };
        let (before, after) = (usage(&[(1, 10.0), (2, 500.0)]), usage(&[(1, 12.0), (3, 4.0)]));
        assert_eq!(after.switches_since(&before), 2.0 + 4.0 + 1.0);
        assert_eq!(before.switches_since(&before), 0.0);
    }
}
