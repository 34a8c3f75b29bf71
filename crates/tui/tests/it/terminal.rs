//! The real terminal, held against pseudo-terminals: what it is told, and that it is given back as it was.

use quipu_tui::terminal::{Abilities, End, Terminal, TerminalInput};
use quipu_tui::{Answer, Key, KeyCode, Modifiers, Size, TerminalEvent};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

/// What the copy of this program that is on the terminal does: see [`child`].
const ROLE: &str = "QUIPU_TEST_TERMINAL_ROLE";

fn abilities() -> Abilities {
    Abilities::of_environment(|name| (name == "TERM").then(|| "xterm-256color".to_owned()))
}

/// A pseudo-terminal: the window's side, and the program's.
struct Pair {
    window: OwnedFd,
    program: OwnedFd,
    seen: Vec<u8>,
}

impl Pair {
    fn new() -> Self {
        let pair = nix::pty::openpty(None, None).unwrap();
        let pair = Self { window: pair.master, program: pair.slave, seen: Vec::new() };
        pair.resize(100, 30);
        pair
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.window, size).unwrap();
    }

    fn type_in(&self, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = rustix::io::write(&self.window, rest).unwrap();
            rest = &rest[count..];
        }
    }

    /// Reads until this was written to the terminal.
    fn until(&mut self, what: &str) {
        let mut buffer = [0; 4_096];
        // Not looked for again and again in a megabyte.
        while self.seen.len() < what.len() || !self.text().contains(what) {
            let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
            let mut fds = [PollFd::from_borrowed_fd(self.window.as_fd(), PollFlags::IN)];
            assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "no {what:?} in {:?}", self.text());
            let count = rustix::io::read(&self.window, &mut buffer).unwrap();
            self.seen.extend_from_slice(&buffer[..count]);
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    fn modes(&self) -> Termios {
        tcgetattr(&self.program).unwrap()
    }

    fn raw(&self) -> bool {
        !self.modes().local_modes.intersects(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    fn open(&self) -> Terminal {
        let side = || self.program.try_clone().unwrap();
        Terminal::of(side(), side(), abilities()).unwrap()
    }

    /// Starts a copy of this program on the terminal.
    fn start(&self, role: &str) -> Child {
        let side = || Stdio::from(self.program.try_clone().unwrap());
        Command::new(std::env::current_exe().unwrap())
            .args(["terminal::child", "--exact", "--nocapture"])
            .env(ROLE, role)
            .env("TERM", "xterm-256color")
            .env("RUST_BACKTRACE", "0")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .process_group(0)
            .spawn()
            .unwrap()
    }
}

fn on_one_thread<T>(what: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(what)
}

/// Not a test of its own: what a copy of this program does that another test starts.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else { return };
    on_one_thread(async {
        let mut terminal = Terminal::open(abilities()).unwrap();
        terminal.write(b"<ready>".to_vec());
        loop {
            match terminal.next().await {
                TerminalInput::Event(TerminalEvent::Key(Key { code: KeyCode::Char('z'), .. })) => {
                    terminal.suspend().await.unwrap();
                    terminal.write(b"<again>".to_vec());
                }
                TerminalInput::Event(TerminalEvent::Key(Key { code: KeyCode::Char('q'), .. }))
                    if role == "panic" =>
                {
                    panic!("a fault of ours");
                }
                TerminalInput::End(End::Signal(number)) => {
                    terminal.write(format!("<signal {number}>").into_bytes());
                    return;
                }
                TerminalInput::Resumed => terminal.write(b"<resumed>".to_vec()),
                TerminalInput::End(End::Closed) => return,
                _ => {}
            }
        }
    });
}

#[test]
fn raw_mode_is_set_and_taken_back() {
    let mut pair = Pair::new();
    let before = pair.modes();
    on_one_thread(async {
        let mut terminal = pair.open();
        assert!(pair.raw());
        assert_eq!(terminal.size(), Size { columns: 100, rows: 30 });
        terminal.written().await.unwrap();
        pair.until("\x1b[?2004h\x1b[?1004h\x1b[>4;1m\x1b[m\x1b[>1u\x1b]11;?\x1b\\\x1b[?u\x1b[c");
        terminal.leave();
        pair.until("\x1b[<u\x1b[>4m\x1b[m\x1b[?1004l\x1b[?2004l\x1b[?7h\x1b[?25h\x1b[m\x1b[?2026l");
        assert_eq!(format!("{:?}", pair.modes()), format!("{before:?}"));
        terminal.enter().unwrap();
        assert!(pair.raw());
    });
    assert_eq!(format!("{:?}", pair.modes()), format!("{before:?}"));
    // The shell's file descriptor is as it was.
    assert!(!rustix::fs::fcntl_getfl(&pair.program).unwrap().contains(rustix::fs::OFlags::NONBLOCK));
}

#[test]
fn typed_keys_arrive_and_a_lone_escape_soon_after() {
    let pair = Pair::new();
    on_one_thread(async {
        let mut terminal = pair.open();
        let key = |code| TerminalInput::Event(TerminalEvent::Key(Key::from(code)));
        pair.type_in("ä\x1b[A".as_bytes());
        assert_eq!(terminal.next().await, key(KeyCode::Char('ä')));
        assert_eq!(terminal.next().await, key(KeyCode::Up));
        pair.type_in(b"\x1b");
        // Whoever waits for other things as well drops the future again and again; the Escape comes all the same.
        let found = loop {
            tokio::select! {
                biased;
                found = terminal.next() => break found,
                () = tokio::task::yield_now() => {}
            }
        };
        assert_eq!(found, key(KeyCode::Escape));
        pair.type_in(b"\x1b[?1u\x1b[?62;c\x1bx");
        assert_eq!(terminal.next().await, TerminalInput::Event(TerminalEvent::Answer(Answer::Keyboard(1))));
        assert_eq!(terminal.next().await, TerminalInput::Event(TerminalEvent::Answer(Answer::Attributes)));
        let alt = Modifiers { alt: true, ..Modifiers::default() };
        let pressed = Key { code: KeyCode::Char('x'), modifiers: alt };
        assert_eq!(terminal.next().await, TerminalInput::Event(TerminalEvent::Key(pressed)));
    });
}

#[test]
fn a_window_of_another_size_and_one_that_is_closed() {
    let pair = Pair::new();
    on_one_thread(async {
        let mut terminal = pair.open();
        terminal.written().await.unwrap();
        pair.resize(40, 10);
        // The kernel tells the group in front, which a test is not.
        kill_process(rustix::process::getpid(), Signal::WINCH).unwrap();
        assert_eq!(terminal.next().await, TerminalInput::Resized(Size { columns: 40, rows: 10 }));
        drop(pair.window);
        assert_eq!(terminal.next().await, TerminalInput::End(End::Closed));
        assert_eq!(terminal.next().await, TerminalInput::End(End::Closed));
        terminal.write(b"nobody".to_vec());
        assert!(terminal.written().await.is_err());
        assert!(!terminal.busy());
    });
}

#[test]
fn a_window_that_takes_nothing_stops_nobody() {
    let pair = Pair::new();
    on_one_thread(async {
        let mut terminal = pair.open();
        terminal.write(vec![b'x'; 1_000_000]);
        pair.type_in(b"a");
        let key = TerminalInput::Event(TerminalEvent::Key(Key::from(KeyCode::Char('a'))));
        assert_eq!(terminal.next().await, key);
        assert!(terminal.busy());
        let mut window = pair;
        let reader = std::thread::spawn(move || {
            window.until(&"x".repeat(1_000_000));
            window
        });
        assert_eq!(terminal.next().await, TerminalInput::Written);
        assert!(!terminal.busy());
        drop(reader.join().unwrap());
    });
}

#[test]
fn no_terminal_is_an_error() {
    on_one_thread(async {
        let (input, output) = nix::unistd::pipe().unwrap();
        assert!(Terminal::of(input, output, abilities()).is_err());
    });
}

#[test]
fn given_back_after_signals_and_panics() {
    for (role, signal) in [
        ("wait", Some(Signal::TERM)),
        ("wait", Some(Signal::INT)),
        ("wait", Some(Signal::HUP)),
        ("panic", None),
    ] {
        let mut pair = Pair::new();
        let before = pair.modes();
        let mut child = pair.start(role);
        pair.until("<ready>");
        assert!(pair.raw());
        match signal {
            Some(signal) => {
                kill_process(Pid::from_child(&child), signal).unwrap();
                pair.until(&format!("<signal {}>", signal.as_raw()));
            }
            None => pair.type_in(b"q"),
        }
        pair.until("\x1b[?2026l");
        if signal.is_none() {
            // Said when the terminal can show it, and not before.
            pair.until("a fault of ours");
            let text = pair.text();
            assert!(text.find("a fault of ours") > text.find("\x1b[?2026l"), "{text:?}");
        }
        child.wait().unwrap();
        assert_eq!(format!("{:?}", pair.modes()), format!("{before:?}"), "{role} {signal:?}");
    }
}

#[test]
fn stopped_and_continued() {
    let mut pair = Pair::new();
    let before = pair.modes();
    let mut child = pair.start("wait");
    let id = Pid::from_child(&child);
    pair.until("<ready>");
    for (key, signal, said) in [(Some(b"z"), None, "<again>"), (None, Some(Signal::STOP), "<resumed>")] {
        pair.seen.clear();
        if let Some(key) = key {
            pair.type_in(key);
        }
        if let Some(signal) = signal {
            kill_process(id, signal).unwrap();
        }
        let (_, status) = waitpid(Some(id), WaitOptions::UNTRACED).unwrap().unwrap();
        assert!(status.stopped(), "{status:?}");
        if key.is_some() {
            assert_eq!(format!("{:?}", pair.modes()), format!("{before:?}"));
        }
        kill_process(id, Signal::CONT).unwrap();
        pair.until(said);
        assert!(pair.raw());
    }
    kill_process(id, Signal::TERM).unwrap();
    pair.until("\x1b[?2026l");
    child.wait().unwrap();
}
