//! The real terminal: the one module that reads, writes, and hears signals.
//!
//! It is put into raw mode and given back as it was: when a [`Terminal`] is dropped (also by a panic), when it is left
//! for another program, and before the process is stopped. Its file descriptors are shared with the shell, so they are
//! never made non-blocking.

mod abilities;
mod panics;
mod writer;

pub use abilities::Abilities;
pub use panics::take as take_panics;

use crate::input::Lines;
use crate::{Answer, Decoder, Size, TerminalEvent};
use futures_util::FutureExt as _;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal as Number;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize,
    tcsetattr,
};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use writer::Writer;

/// How long a stop of the process may take to come about.
const STOP_WAIT: Duration = Duration::from_millis(50);

/// Pieces that are read before what they say is taken.
const AT_ONCE: usize = 64;

/// Bracketed paste, focus.
const ENTER: &str = "\x1b[?2004h\x1b[?1004h";
/// `modifyOtherKeys`, and the Kitty keyboard protocol where it is known. The style is set afresh, because a terminal
/// that does not know the first takes it for one.
const ENTER_KEYBOARD: &str = "\x1b[>4;1m\x1b[m\x1b[>1u";
/// Which colour is behind text? Which keyboard protocol? And, what every terminal answers: what are you?
const ASK: &str = "\x1b]11;?\x1b\\\x1b[?u\x1b[c";
const LEAVE_KEYBOARD: &str = "\x1b[<u\x1b[>4m\x1b[m";
const LEAVE: &str = "\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[m\x1b[?2026l";

/// An input from the terminal, or a change of its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalInput {
    /// A key, a paste, or something else that it sent.
    Event(TerminalEvent),
    /// It has another size now.
    Resized(Size),
    /// It has taken all bytes, after [`Terminal::busy`] said that it had not.
    Written,
    /// The process was stopped and goes on. Other programs may have written meanwhile: nothing of the live part is
    /// known to be there.
    Resumed,
    /// It is over.
    End(End),
}

/// Why a terminal is no longer there, or no longer ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The window was closed or the connection lost.
    Closed,
    /// The process was asked to end by a signal: SIGTERM, SIGINT or SIGHUP, as the number says.
    Signal(i32),
}

/// Parses typed bytes into events.
#[derive(Debug)]
enum InputParser {
    Keys(Decoder),
    /// The kernel edits lines.
    Lines(Lines),
}

impl InputParser {
    fn feed(&mut self, bytes: &[u8]) -> Vec<TerminalEvent> {
        match self {
            Self::Keys(decoder) => decoder.feed(bytes),
            Self::Lines(lines) => lines.feed(bytes),
        }
    }

    fn wait(&self) -> Option<Duration> {
        match self {
            Self::Keys(decoder) => decoder.wait(),
            Self::Lines(lines) => lines.wait(),
        }
    }

    fn flush(&mut self) -> Vec<TerminalEvent> {
        match self {
            Self::Keys(decoder) => decoder.flush(),
            Self::Lines(lines) => lines.flush(),
        }
    }
}

/// A terminal in raw mode, or one whose lines the kernel edits; as it was before, once this is dropped.
#[derive(Debug)]
pub struct Terminal {
    input: AsyncFd<OwnedFd>,
    writer: Writer,
    abilities: Abilities,
    /// As it was.
    saved: Termios,
    entered: bool,
    /// What is typed is not shown, where the kernel shows it.
    hidden: bool,
    /// It was asked what it is, and did not answer yet.
    asked: bool,
    size: Size,
    decoder: InputParser,
    /// When what the decoder holds back is no longer waited for.
    deadline: Option<Instant>,
    events: VecDeque<TerminalEvent>,
    /// Somebody waits until all is written.
    waited_for: bool,
    window: Signal,
    resumed: Signal,
    ends: [Signal; 3],
    closed: bool,
}

impl Terminal {
    /// The terminal that standard input and output are, in raw mode. Needs a tokio runtime with IO and time.
    ///
    /// # Errors
    /// Either is no terminal, or it is gone.
    pub fn open(abilities: Abilities) -> io::Result<Self> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        Self::of(input, output, abilities)
    }

    /// As [`Terminal::open`], on another terminal than the process's own.
    ///
    /// # Errors
    /// Either is no terminal, or it is gone.
    pub fn of(input: OwnedFd, output: OwnedFd, abilities: Abilities) -> io::Result<Self> {
        let saved = tcgetattr(&input)?;
        let size = size_of(&output);
        let writer = Writer::start(output)?;
        #[expect(
            deprecated,
            reason = "unsound for what may close its descriptor or be another one, as no OwnedFd does"
        )]
        let input = AsyncFd::with_interest(input, Interest::READABLE)?;
        let mut terminal = Self {
            input,
            writer,
            abilities,
            saved,
            entered: false,
            asked: false,
            size,
            decoder: match abilities {
                Abilities { linear: true, .. } => InputParser::Lines(Lines::default()),
                Abilities { remote: true, .. } => InputParser::Keys(Decoder::remote()),
                _ => InputParser::Keys(Decoder::default()),
            },
            hidden: false,
            deadline: None,
            events: VecDeque::new(),
            waited_for: false,
            window: signal(SignalKind::window_change())?,
            resumed: signal(SignalKind::from_raw(Number::CONT.as_raw()))?,
            ends: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::hangup())?,
            ],
            closed: false,
        };
        terminal.enter()?;
        if abilities.private {
            terminal.asked = true;
            terminal.write(ASK.as_bytes().to_vec());
        }
        Ok(terminal)
    }

    /// What the environment says it can do.
    #[must_use]
    pub fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// How big it is.
    #[must_use]
    pub fn size(&self) -> Size {
        self.size
    }

    /// Width and height of a cell in pixels, as it says, or as is usual.
    #[must_use]
    pub fn cell(&self) -> (u32, u32) {
        match tcgetwinsize(self.input.get_ref()) {
            Ok(size)
                if size.ws_xpixel >= size.ws_col
                    && size.ws_ypixel >= size.ws_row
                    && size.ws_col > 0
                    && size.ws_row > 0 =>
            {
                (u32::from(size.ws_xpixel / size.ws_col), u32::from(size.ws_ypixel / size.ws_row))
            }
            _ => (8, 16),
        }
    }

    /// Writes bytes, in the background and in order.
    pub fn write(&mut self, bytes: Vec<u8>) {
        self.writer.write(bytes);
    }

    /// Whether it still has to take bytes. Who draws waits for [`TerminalInput::Written`] then, for what is drawn meanwhile
    /// would only be old.
    #[must_use]
    pub fn busy(&mut self) -> bool {
        let busy = self.writer.busy();
        self.waited_for |= busy;
        busy
    }

    /// Waits until it has taken all bytes. Nothing is lost when this is dropped before.
    ///
    /// # Errors
    /// It took no more: it is closed.
    pub async fn written(&mut self) -> io::Result<()> {
        self.writer.written().await
    }

    /// What came together with the last event.
    pub fn more(&mut self) -> Option<TerminalEvent> {
        let event = self.events.pop_front();
        if event == Some(TerminalEvent::Answer(Answer::Attributes)) {
            self.asked = false;
        }
        event
    }

    /// What comes next. Nothing is lost when this is dropped before it is there.
    pub async fn next(&mut self) -> TerminalInput {
        loop {
            if let Some(event) = self.more() {
                return TerminalInput::Event(event);
            }
            if self.closed {
                return TerminalInput::End(End::Closed);
            }
            let deadline = self.deadline;
            let [terminate, interrupt, hang_up] = &mut self.ends;
            tokio::select! {
                ready = self.input.readable() => match ready {
                    Ok(mut ready) => {
                        match read(self.input.get_ref(), &mut self.decoder, &mut self.events) {
                            // What is left is read when this was taken.
                            Ok(Read::More) => ready.retain_ready(),
                            Ok(Read::All) => ready.clear_ready(),
                            // The end of a text is no end of the terminal.
                            Ok(Read::End) if self.abilities.linear && !hung_up(self.input.get_ref()) => {
                                if self.decoder.wait().is_some() {
                                    self.events.extend(self.decoder.flush());
                                }
                                self.events.push_back(TerminalEvent::Finished);
                                ready.retain_ready();
                            }
                            Ok(Read::End) | Err(_) => self.closed = true,
                        }
                        self.deadline = self.decoder.wait().map(|wait| Instant::now() + wait);
                    }
                    Err(_) => self.closed = true,
                },
                () = tokio::time::sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.events.extend(self.decoder.flush());
                    self.deadline = self.decoder.wait().map(|wait| Instant::now() + wait);
                }
                // One that takes nothing more says so where it is read.
                _ = self.writer.written(), if self.waited_for => {
                    self.waited_for = false;
                    return TerminalInput::Written;
                }
                _ = self.window.recv() => {
                    let size = size_of(self.input.get_ref());
                    if size != self.size {
                        self.size = size;
                        return TerminalInput::Resized(size);
                    }
                }
                _ = self.resumed.recv() => {
                    // A shell may have put it into another mode.
                    self.closed |= self.entered && self.set_up().is_err();
                    self.size = size_of(self.input.get_ref());
                    return TerminalInput::Resumed;
                }
                _ = terminate.recv() => return TerminalInput::End(End::Signal(Number::TERM.as_raw())),
                _ = interrupt.recv() => return if self.abilities.linear {
                    TerminalInput::Event(TerminalEvent::Interrupt)
                } else {
                    TerminalInput::End(End::Signal(Number::INT.as_raw()))
                },
                _ = hang_up.recv() => return TerminalInput::End(End::Signal(Number::HUP.as_raw())),
            }
        }
    }

    /// Waits until the process is asked to end, while another program has the terminal: SIGTERM or SIGHUP, for SIGINT is
    /// for that program.
    pub async fn asked_to_end(&mut self) -> End {
        let [terminate, _, hang_up] = &mut self.ends;
        tokio::select! {
            _ = terminate.recv() => End::Signal(Number::TERM.as_raw()),
            _ = hang_up.recv() => End::Signal(Number::HUP.as_raw()),
        }
    }

    /// Its modes as they were before, whatever another program that had it left.
    pub fn restore(&self) {
        // One that is gone needs nothing.
        let _restored = tcsetattr(self.input.get_ref(), OptionalActions::Now, &self.saved);
    }

    /// Stops the process, as Ctrl-Z does in other programs, and returns when it goes on. The terminal is the shell's
    /// meanwhile. Afterwards nothing of the live part is known to be there.
    ///
    /// # Errors
    /// The terminal is gone.
    pub async fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        rustix::process::kill_current_process_group(Number::TSTP)?;
        // Without a shell that would let it go on, the process is not stopped at all.
        let _stopped = tokio::time::timeout(STOP_WAIT, self.resumed.recv()).await;
        self.enter()?;
        self.size = size_of(self.input.get_ref());
        Ok(())
    }

    /// Whether the kernel shows what is typed, where it edits lines.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn hide(&mut self, hidden: bool) -> io::Result<()> {
        if std::mem::replace(&mut self.hidden, hidden) == hidden || !self.entered {
            return Ok(());
        }
        self.set_up()
    }

    /// Puts it into raw mode, after [`Terminal::leave`].
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn enter(&mut self) -> io::Result<()> {
        if self.entered {
            return Ok(());
        }
        self.set_up()?;
        self.entered = true;
        // Ctrl-C was for the program that had the terminal.
        while self.ends[1].recv().now_or_never().flatten().is_some() {}
        panics::hold();
        Ok(())
    }

    fn set_up(&mut self) -> io::Result<()> {
        let mut modes = self.saved.clone();
        if self.abilities.linear {
            // Whether what is typed is shown is left as it is: Emacs shows it itself.
            modes.local_modes |= LocalModes::ICANON | LocalModes::ISIG;
            modes.input_modes |= InputModes::ICRNL;
            if self.hidden && modes.local_modes.contains(LocalModes::ECHO) {
                modes.local_modes.remove(LocalModes::ECHO);
                modes.local_modes |= LocalModes::ECHONL;
            }
            return Ok(tcsetattr(self.input.get_ref(), OptionalActions::Now, &modes)?);
        }
        modes.make_raw();
        tcsetattr(self.input.get_ref(), OptionalActions::Now, &modes)?;
        self.write(ENTER.as_bytes().to_vec());
        if self.abilities.private {
            self.write(ENTER_KEYBOARD.as_bytes().to_vec());
        }
        Ok(())
    }

    /// Gives it back as it was, for another program or for good. What was written before has been taken by it then,
    /// unless it takes nothing.
    pub fn leave(&mut self) {
        if !std::mem::take(&mut self.entered) {
            return;
        }
        if self.abilities.private {
            self.write(LEAVE_KEYBOARD.as_bytes().to_vec());
        }
        if !self.abilities.linear {
            self.write(LEAVE.as_bytes().to_vec());
        }
        self.writer.settle();
        if self.asked {
            // Its answer would be taken for something typed.
            let _flushed = tcflush(self.input.get_ref(), QueueSelector::IFlush);
        }
        self.restore();
        panics::release();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

/// What was read of a terminal.
enum Read {
    /// All that was there.
    All,
    /// Much, and there may be more.
    More,
    End,
}

/// Reads what is there.
fn read(
    input: &OwnedFd,
    decoder: &mut InputParser,
    events: &mut VecDeque<TerminalEvent>,
) -> io::Result<Read> {
    let mut buffer = [0; 16 * 1_024];
    // Whoever writes without end does not keep all else waiting.
    for _ in 0..AT_ONCE {
        // Asked each time, for a read of nothing would wait.
        if !ready(input)? {
            return Ok(Read::All);
        }
        match rustix::io::read(input, &mut buffer) {
            Ok(0) => return Ok(Read::End),
            Ok(count) => events.extend(decoder.feed(&buffer[..count])),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Read::All),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Read::More)
}

fn hung_up(input: &OwnedFd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).is_err()
        || polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR)
}

fn ready(input: &OwnedFd) -> io::Result<bool> {
    match poll(&mut [PollFd::from_borrowed_fd(input.as_fd(), PollFlags::IN)], Some(&Timespec::default())) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The size of a terminal; of one that does not say, the usual one.
fn size_of(terminal: &OwnedFd) -> Size {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            Size { columns: usize::from(size.ws_col), rows: usize::from(size.ws_row) }
        }
        _ => Size::default(),
    }
}
