//! The program on a pseudo-terminal, and a watch on what it shows: behind every byte, since a write may end behind any.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use nix::sys::termios::{Termios, tcgetattr};
use quipu_testkit::{Answer, Gate, Reply};

use crate::support::World;

/// A terminal that shows nothing new for so long hangs.
const LIMIT: Duration = Duration::from_secs(60);
/// Lines of the scrollback.
const SCROLLBACK: usize = 10_000;

pub(crate) const ENTER: &str = "\r";
pub(crate) const ALT_ENTER: &str = "\u{1b}\r";
pub(crate) const ALT_UP: &str = "\u{1b}[1;3A";
pub(crate) const ESCAPE: &str = "\u{1b}";
pub(crate) const CTRL_C: &str = "\u{3}";
pub(crate) const CTRL_D: &str = "\u{4}";
pub(crate) const CTRL_L: &str = "\u{c}";
pub(crate) const SHIFT_TAB: &str = "\u{1b}[Z";
pub(crate) const UP: &str = "\u{1b}[A";
pub(crate) const DOWN: &str = "\u{1b}[B";
pub(crate) const PAGE_UP: &str = "\u{1b}[5~";
pub(crate) const PAGE_DOWN: &str = "\u{1b}[6~";

/// The program on a terminal of its own.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    /// The window's side, until it is closed.
    ours: Option<File>,
    theirs: OwnedFd,
    /// Tells the reader to end behind what it reads next.
    closing: Arc<AtomicBool>,
    pieces: Receiver<Vec<u8>>,
    pub(crate) screen: vt100::Parser,
    watch: Watch,
    /// All that was written.
    pub(crate) bytes: Vec<u8>,
    before: Termios,
}

impl Terminal {
    pub(crate) fn open(world: &World, args: &[&str]) -> Self {
        Self::sized(world, args, 100, 30)
    }

    pub(crate) fn sized(world: &World, args: &[&str], columns: u16, rows: u16) -> Self {
        Self::start(world.quipu(args), columns, rows)
    }

    /// On a terminal that the environment says more of.
    pub(crate) fn telling(
        world: &World,
        args: &[&str],
        columns: u16,
        rows: u16,
        env: &[(&str, &str)],
    ) -> Self {
        let mut command = world.quipu(args);
        command.envs(env.iter().copied());
        Self::start(command, columns, rows)
    }

    /// Starts the program as this command would, in a group of its own: who stops itself stops that, as under a shell.
    pub(crate) fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        use std::os::unix::process::CommandExt as _;
        command.process_group(0);
        let size = nix::pty::Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let ends = nix::pty::openpty(&size, None).unwrap();
        // Copies that no other child inherits: a window is closed when its last one is.
        let (ours, theirs) = (File::from(ends.master.try_clone().unwrap()), ends.slave.try_clone().unwrap());
        drop((ends.master, ends.slave));
        let before = tcgetattr(&theirs).unwrap();
        if command.get_envs().all(|(name, _)| name != "TERM") {
            command.env("TERM", "xterm-256color");
        }
        command
            .stdin(theirs.try_clone().unwrap())
            .stdout(theirs.try_clone().unwrap())
            .stderr(theirs.try_clone().unwrap());
        let child = command.spawn().unwrap();
        // It holds their end.
        drop(command);
        let (tx, pieces) = channel();
        let mut from = ours.try_clone().unwrap();
        let closing = Arc::new(AtomicBool::new(false));
        let closes = closing.clone();
        std::thread::spawn(move || {
            let mut piece = vec![0; 64 << 10];
            while let Ok(count) = from.read(&mut piece) {
                if count == 0 || closes.load(Ordering::SeqCst) || tx.send(piece[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let screen = vt100::Parser::new(cells(rows), cells(columns), SCROLLBACK);
        let (ours, watch) = (Some(ours), Watch::default());
        Self { child, ours, theirs, closing, pieces, screen, watch, bytes: Vec::new(), before }
    }

    pub(crate) fn types(&mut self, text: &str) {
        self.sends(text.as_bytes());
    }

    pub(crate) fn sends(&mut self, bytes: &[u8]) {
        self.ours.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// A paste, as terminals mark it.
    pub(crate) fn pastes(&mut self, bytes: &[u8]) {
        self.sends(&[b"\x1b[200~", bytes, b"\x1b[201~"].concat());
    }

    /// Takes what was written, byte by byte.
    fn takes(&mut self, piece: &[u8]) {
        for byte in piece {
            self.screen.process(&[*byte]);
            self.watch.byte(*byte, self.screen.screen());
        }
        self.bytes.extend_from_slice(piece);
    }

    /// Takes what comes until `holds` holds for what is seen.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&str) -> bool) {
        let until = Instant::now() + LIMIT;
        loop {
            let shown = self.screen.screen().contents();
            // Nobody sees what stands there within an update.
            if !self.watch.hidden && holds(&shown) {
                return;
            }
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.takes(&piece),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    self.child.kill().ok();
                    panic!("{what} was not seen:\n{shown}");
                }
            }
        }
    }

    /// Takes what comes next; `false` when that takes too long.
    pub(crate) fn takes_more(&mut self) -> bool {
        let piece = self.pieces.recv_timeout(LIMIT);
        if let Ok(piece) = &piece {
            self.takes(piece);
        }
        piece.is_ok()
    }

    #[track_caller]
    pub(crate) fn shows(&mut self, part: &str) {
        self.until(part, |shown| shown.contains(part));
    }

    /// Waits until this was written, whatever is seen of it.
    #[track_caller]
    pub(crate) fn tells(&mut self, part: &[u8]) {
        let until = Instant::now() + LIMIT;
        while !crate::support::contains(&self.bytes, part) {
            match self.pieces.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(piece) => self.takes(&piece),
                Err(_) => panic!("{:?} was not written", String::from_utf8_lossy(part)),
            }
        }
    }

    /// Waits until nothing is under way behind this text.
    #[track_caller]
    pub(crate) fn settles(&mut self, part: &str) {
        self.until(&format!("the end of {part}"), |shown| {
            shown.contains(part) && !shown.contains("stops it")
        });
    }

    #[track_caller]
    pub(crate) fn hides(&mut self, part: &str) {
        self.until(&format!("the end of {part}"), |shown| !shown.contains(part));
    }

    /// Waits until a draft that holds this is kept, which follows what is shown.
    #[track_caller]
    pub(crate) fn keeps(&self, world: &World, part: &str) {
        let drafts = world.path("home/.quipu/drafts");
        let kept = || {
            let files = std::fs::read_dir(&drafts).into_iter().flatten().flatten();
            files.flat_map(|file| std::fs::read_to_string(file.path())).any(|text| text.contains(part))
        };
        let until = Instant::now() + LIMIT;
        while !kept() {
            assert!(Instant::now() < until, "{part:?} is not kept");
            std::thread::yield_now();
        }
    }

    /// What is seen now.
    pub(crate) fn seen(&self) -> String {
        self.screen.screen().contents()
    }

    /// Whether the terminal is as it was before.
    pub(crate) fn is_restored(&self) -> bool {
        let after = tcgetattr(self.theirs.as_fd()).unwrap();
        (after.local_flags, after.input_flags, after.output_flags)
            == (self.before.local_flags, self.before.input_flags, self.before.output_flags)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        nix::sys::signal::kill(self.pid(), signal).unwrap();
    }

    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.child.id().cast_signed())
    }

    /// SIGKILL.
    pub(crate) fn dies(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn resize(&mut self, columns: u16, rows: u16) {
        let done = std::process::Command::new("sh")
            .args(["-c", &format!("stty cols {columns} rows {rows}")])
            .stdin(self.theirs.try_clone().unwrap())
            .status()
            .unwrap();
        assert!(done.success());
        // A terminal that does not say how big it is is taken for one of the usual size.
        let (columns, rows) = if columns == 0 || rows == 0 { (80, 24) } else { (columns, rows) };
        self.screen.screen_mut().set_size(cells(rows), cells(columns));
        let narrow = self.watch.narrow || columns < 3 || rows < 3;
        self.watch = Watch { hidden: self.watch.hidden, narrow, ..Watch::default() };
        // The kernel tells the terminal's foreground group, which this child is not in.
        self.signal(Signal::SIGWINCH);
    }

    /// The window is closed.
    pub(crate) fn closes(&mut self) {
        self.closing.store(true, Ordering::SeqCst);
        // It reads this, and lets its side go.
        File::from(self.theirs.try_clone().unwrap()).write_all(b" ").unwrap();
        while let Ok(piece) = self.pieces.recv() {
            self.takes(&piece);
        }
        self.ours = None;
    }

    /// All lines, from the first of the scrollback to the last of the screen, those put together that the terminal
    /// broke.
    pub(crate) fn lines(&mut self) -> Vec<String> {
        let (rows, columns) = self.screen.screen().size();
        let screen = self.screen.screen_mut();
        let mut all: Vec<(String, bool)> = Vec::new();
        let row = |screen: &vt100::Screen, at: u16| {
            let text = screen.rows(0, columns.get()).nth(usize::from(at)).unwrap_or_default();
            (text.trim_end().to_owned(), screen.row_wrapped(at))
        };
        for back in (1..=screen.scrollback_len()).rev() {
            screen.set_scrollback(back);
            all.push(row(screen, 0));
        }
        screen.set_scrollback(0);
        all.extend((0..rows.get()).map(|at| row(screen, at)));
        let mut lines = Vec::new();
        let mut line = String::new();
        for (text, wraps) in all {
            line.push_str(&text);
            if !wraps {
                lines.push(std::mem::take(&mut line));
            }
        }
        lines.push(line);
        lines
    }

    /// Waits for its end; the terminal must be as it was.
    #[track_caller]
    pub(crate) fn ends(&mut self) -> Option<i32> {
        let until = Instant::now() + LIMIT;
        let status = loop {
            // It may have more to say than a terminal holds.
            if let Ok(piece) = self.pieces.recv_timeout(Duration::from_millis(20)) {
                self.takes(&piece);
            } else if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > until {
                self.child.kill().ok();
                panic!("it does not end:\n{}", self.screen.screen().contents());
            }
        };
        if self.ours.is_some() {
            let after = tcgetattr(self.theirs.as_fd()).unwrap();
            assert_eq!(after.local_flags, self.before.local_flags);
            assert_eq!(after.input_flags, self.before.input_flags);
            assert_eq!(after.output_flags, self.before.output_flags);
        }
        status.code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It is gone, mostly.
        self.child.kill().ok();
        self.child.wait().ok();
        if !std::thread::panicking() {
            assert!(self.watch.bytes == 0 || self.watch.looked > 0, "nothing was looked at");
        }
    }
}

/// Looks at the screen whenever a person could: the scrollback is never cleared, and what is shown never goes and comes
/// again, outside of synchronised updates.
#[derive(Default)]
struct Watch {
    /// Within a synchronised update.
    hidden: bool,
    /// The last bytes.
    tail: Vec<u8>,
    /// Something was seen since the terminal was taken.
    shown: bool,
    /// Behind what the screen was blank.
    blank: Option<String>,
    bytes: usize,
    /// The window was so small that an empty editor fills it: what is blank says nothing any more.
    narrow: bool,
    /// How often the screen was looked at.
    looked: usize,
}

impl Watch {
    fn byte(&mut self, byte: u8, screen: &vt100::Screen) {
        self.bytes += 1;
        self.tail.push(byte);
        if self.tail.len() > 4_096 {
            self.tail.drain(..2_048);
        }
        for forbidden in ["\x1b[2J", "\x1b[3J", "\x1bc", "\x1b[?1049h", "\x1b[?47h", "\x1b[?1047h"] {
            assert!(!self.tail.ends_with(forbidden.as_bytes()), "{forbidden:?} was sent");
        }
        let mut could_change = byte == b'\n' || self.ends_sequence();
        if self.tail.ends_with(b"\x1b[?2026h") {
            assert!(!self.hidden, "an update within an update");
            self.hidden = true;
        } else if self.tail.ends_with(b"\x1b[?2026l") {
            self.hidden = false;
        } else if self.tail.ends_with(b"\x1b[?2004l") {
            // It is another program's now.
            (self.shown, self.blank) = (false, None);
        } else if !self.shown || self.blank.is_some() {
            could_change |= byte > b' ';
        }
        if self.hidden || !could_change {
            return;
        }
        self.looked += 1;
        let blank = screen.contents().trim().is_empty();
        if !blank {
            assert_eq!(self.blank, None, "the screen was blank behind this, and then was not");
            self.shown = true;
        } else if self.shown && self.blank.is_none() && !self.narrow {
            let end = &self.tail[self.tail.len().saturating_sub(200)..];
            self.blank = Some(String::from_utf8_lossy(end).into_owned());
        }
    }

    /// Whether this byte was the last one of a sequence.
    fn ends_sequence(&self) -> bool {
        let Some((last, before)) = self.tail.split_last() else { return false };
        if !(0x40..=0x7e).contains(last) {
            return false;
        }
        let near = &before[before.len().saturating_sub(24)..];
        let Some(escape) = near.iter().rposition(|byte| *byte == 0x1b) else { return false };
        match &near[escape + 1..] {
            [] => *last != b'[' && *last != b']',
            [b'[', parameters @ ..] => parameters.iter().all(|byte| (0x20..0x40).contains(byte)),
            _ => false,
        }
    }
}

fn cells(count: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(count).unwrap()
}

pub(crate) fn says(text: &str) -> Reply {
    Answer::new().text(text).reply()
}

/// An answer that stops behind its text until the gate is opened.
pub(crate) fn held(text: &str, gate: &Gate) -> Reply {
    let answer = Answer::new().text(text);
    let begun = answer.unfinished();
    let rest = answer.stream()[begun.len()..].to_owned();
    Reply::sse(begun).then_gate(gate).then(rest)
}

/// Or the watch would say nothing of the program.
#[test]
fn the_watch_sees_what_flickers() {
    let seen = |bytes: &str| {
        let mut screen = vt100::Parser::new(cells(5), cells(20), 100);
        let mut watch = Watch::default();
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for byte in bytes.bytes() {
                screen.process(&[byte]);
                watch.byte(byte, screen.screen());
            }
        }))
        .is_err()
    };
    assert!(!seen("text\r\nmore\x1b[K"));
    assert!(seen("text\r\x1b[Kmore"));
    assert!(!seen("text\x1b[?2026h\r\x1b[Kmore\x1b[?2026l"));
    assert!(seen("text\x1b[?2026h\r\x1b[K\x1b[?2026lmore"));
    assert!(seen("text\x1b[2J") && seen("text\x1bc") && seen("\x1b[?1049h"));
    assert!(!seen("text\r\x1b[K\x1b[?2004lmore"));
}
