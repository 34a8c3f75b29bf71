//! The program inside tmux, which draws it anew and keeps the scrollback itself.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use quipu_testkit::{Answer, Gate, Reply};

use crate::support::{World, gone, reached};

/// What does not come about in this time hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A tmux server of its own with the program in its one window.
struct Tmux<'a> {
    world: &'a World,
    socket: PathBuf,
}

impl<'a> Tmux<'a> {
    /// `None` where there is no tmux and none is required.
    fn open(world: &'a World, columns: u16, rows: u16) -> Option<Self> {
        let there = Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success());
        if !there {
            assert!(std::env::var_os("QUIPU_REQUIRE_PEERS").is_none(), "tmux is not installed");
            eprintln!("tmux is not installed: not run");
            return None;
        }
        let tmux = Self { world, socket: world.path("tmux") };
        let (columns, rows) = (columns.to_string(), rows.to_string());
        let home = world.path("home").display().to_string();
        let program = world.program.display().to_string();
        let settings = "set -g history-limit 5000 ; set -g status off ; set -s escape-time 0";
        let mut args: Vec<&str> = settings.split(' ').collect();
        args.extend([";", "new-session", "-d", "-x", &columns, "-y", &rows, "-s", "q"]);
        let home = format!("HOME={home}");
        args.extend(["-e", &home, &program]);
        // Its settings come before the window, which is made with them.
        tmux.runs(&[&["start-server", ";"], &args[..]].concat());
        Some(tmux)
    }

    fn runs(&self, args: &[&str]) -> String {
        let mut command = self.world.command("tmux");
        let output = command
            .env("TERM", "xterm-256color")
            .env("LC_ALL", "C.UTF-8")
            .args(["-u", "-f", "/dev/null", "-S"])
            .arg(&self.socket)
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn types(&self, text: &str) {
        self.runs(&["send-keys", "-t", "q", "-l", text]);
    }

    fn key(&self, key: &str) {
        self.runs(&["send-keys", "-t", "q", key]);
    }

    /// All that it has, with broken lines put together.
    fn all(&self) -> String {
        self.runs(&["capture-pane", "-t", "q", "-p", "-J", "-S", "-"])
    }

    #[track_caller]
    fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let until = Instant::now() + LIMIT;
        loop {
            let all = self.all();
            if holds(&all) {
                return all;
            }
            assert!(Instant::now() < until, "{what} was not seen:\n{all}");
        }
    }

    #[track_caller]
    fn shows(&self, part: &str) -> String {
        self.until(part, |all| all.contains(part))
    }

    fn pid(&self) -> i32 {
        self.runs(&["display-message", "-t", "q", "-p", "#{pane_pid}"]).trim().parse().unwrap()
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let mut command = self.world.command("tmux");
        // It is gone where its window is.
        command.arg("-S").arg(&self.socket).arg("kill-server").output().ok();
    }
}

fn numbered(range: std::ops::Range<usize>) -> String {
    range.map(|at| format!("line number {at} of this answer\n\n")).collect()
}

#[test]
fn each_line_is_there_once_also_when_the_window_is_resized() {
    let gates = [Gate::new(), Gate::new()];
    let parts = [numbered(0..60), numbered(60..120), numbered(120..160)];
    let begun = |count: usize| parts[..count].iter().fold(Answer::new(), |answer, part| answer.text(part));
    let (one, two, whole) = (begun(1).unfinished(), begun(2).unfinished(), begun(3).stream());
    let reply = Reply::sse(one.clone()).then_gate(&gates[0]).then(whole[one.len()..two.len()].to_owned());
    let reply = reply.then_gate(&gates[1]).then(whole[two.len()..].to_owned());
    let world = World::new([reply, Answer::new().text("The second answer.").reply()]);
    let Some(tmux) = Tmux::open(&world, 80, 24) else { return world.unchecked() };
    tmux.shows("test-1");
    tmux.types("count for me");
    tmux.key("Enter");
    reached(&gates[0]);
    tmux.shows("line number 58 of this answer");
    tmux.runs(&["resize-window", "-t", "q", "-x", "60", "-y", "20"]);
    gates[0].open();
    reached(&gates[1]);
    tmux.shows("line number 118 of this answer");
    tmux.runs(&["resize-window", "-t", "q", "-x", "100", "-y", "30"]);
    gates[1].open();
    tmux.until("the end", |all| all.contains("line number 159 of") && !all.contains("stops it"));
    tmux.types("once more");
    tmux.key("Enter");
    let all = tmux.until("the second", |all| all.contains("The second answer.") && !all.contains("stops it"));
    for at in 0..160 {
        let line = format!("line number {at} of this answer");
        assert_eq!(all.matches(&line).count(), 1, "{line}:\n{all}");
    }
    for part in ["count for me", "once more", "The second answer."] {
        assert_eq!(all.matches(part).count(), 1, "{part}:\n{all}");
    }
    let pid = tmux.pid();
    // Its terminal is gone: the kernel says so.
    drop(tmux);
    gone(pid);
    let said = world.nodes().iter().filter(|node| node.to_string().contains("The second answer.")).count();
    assert_eq!(said, 1);
}
